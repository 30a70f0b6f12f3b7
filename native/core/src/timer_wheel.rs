//! The wheel of timers, as Apache's TimerWheel.java writes it: for each step of time a slot, which leads to the chain of its
//! units in the timer log. Big-endian, 1,209,600 slots (two weeks of seconds):
//!
//! ```text
//!     0  i64  time / step        16  i64  position of the last unit
//!     8  i64  position of the    24  i32  how many messages (those that delete one count -1)
//!             first unit         28  i32  0
//! ```
//!
//! The slot of a time is number (time / step) mod 1,209,600; one that says another time is empty, and so is one without a last
//! unit (-1), all of whose messages were delivered. The wheel is worked on in
//! memory, which only used parts of it cost, and written page by page when the units it leads to are forced: what is on the
//! disk never leads behind the timer log's end.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use crate::{
    error::{At, Error, Result},
    mapped_file::{sync_directory, PAGE},
    record::{int_at, long_at},
};

pub const SLOTS: i64 = 1_209_600;
const SLOT: usize = 32;
const SIZE: usize = SLOTS as usize * SLOT;
const PAGES: usize = SIZE / PAGE;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    pub first: i64,
    pub last: i64,
    pub count: i32,
}

/// Pages to be written, with their numbers.
pub type Pages = Vec<(usize, Box<[u8]>)>;

pub struct TimerWheel {
    pub path: PathBuf,
    /// Milliseconds.
    pub step: i64,
    /// Empty as long as no slot was used.
    bytes: Vec<u8>,
    is_dirty: Vec<bool>,
}

impl TimerWheel {
    /// Read the wheel; false when there is none, or one of another size.
    pub fn open(path: PathBuf, step: i64) -> Result<(Self, bool)> {
        let mut wheel = Self { path, step, bytes: Vec::new(), is_dirty: Vec::new() };
        let file = match File::open(&wheel.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((wheel, false)),
            other => other.at("open", &wheel.path)?,
        };
        if file.metadata().at("look at", &wheel.path)?.len() != SIZE as u64 {
            return Ok((wheel, false));
        }
        wheel.clear();
        let mut block = vec![0; 64 * PAGE];
        for at in (0..SIZE).step_by(block.len()) {
            let block = &mut block[..(64 * PAGE).min(SIZE - at)];
            file.read_exact_at(block, at as u64).at("read", &wheel.path)?;
            for (number, page) in block.chunks(PAGE).enumerate() {
                // What was never touched costs no memory.
                if page != [0; PAGE] {
                    wheel.bytes[at + number * PAGE..][..page.len()].copy_from_slice(page);
                }
            }
        }
        wheel.is_dirty.fill(false);
        Ok((wheel, true))
    }

    /// Make all slots empty.
    pub fn clear(&mut self) {
        self.bytes = vec![0; SIZE];
        self.is_dirty = vec![true; PAGES];
    }

    fn place(&self, time: i64) -> usize {
        time.div_euclid(self.step).rem_euclid(SLOTS) as usize * SLOT
    }

    /// What a time's slot says, empty or not; None when it says another time.
    pub fn slot(&self, time: i64) -> Option<Slot> {
        let bytes = self.bytes.get(self.place(time)..)?;
        if long_at(bytes, 0)? != time.div_euclid(self.step) {
            return None;
        }
        Some(Slot { first: long_at(bytes, 8)?, last: long_at(bytes, 16)?, count: int_at(bytes, 24)? })
    }

    pub fn set(&mut self, time: i64, slot: Slot) {
        if self.bytes.is_empty() {
            self.clear();
            // Nobody reads a page that was never written, zeros or not.
            self.is_dirty.fill(false);
        }
        let mut bytes = [0; SLOT];
        bytes[..8].copy_from_slice(&time.div_euclid(self.step).to_be_bytes());
        bytes[8..16].copy_from_slice(&slot.first.to_be_bytes());
        bytes[16..24].copy_from_slice(&slot.last.to_be_bytes());
        bytes[24..28].copy_from_slice(&slot.count.to_be_bytes());
        self.write(self.place(time), &bytes);
    }

    /// Make the slots of from..to empty.
    pub fn erase(&mut self, from: i64, to: i64) {
        let mut time = self.next(from, to);
        while time < to {
            self.set(time, Slot { first: -1, last: -1, count: 0 });
            time = self.next(time + self.step, to);
        }
    }

    fn write(&mut self, place: usize, bytes: &[u8]) {
        self.bytes[place..place + SLOT].copy_from_slice(bytes);
        self.is_dirty[place / PAGE] = true;
    }

    /// Add a unit at `position` to the chain of its slot. One that begins a chain takes the place of what was there: that was
    /// delivered, or is in the new chain too.
    pub fn link(&mut self, time: i64, position: u64, weight: i32, begins: bool) {
        let before = self.slot(time).filter(|slot| slot.last >= 0 && !begins);
        let first = before.map_or(position as i64, |slot| slot.first);
        let count = before.map_or(0, |slot| slot.count) + weight;
        self.set(time, Slot { first, last: position as i64, count });
    }

    /// The time of the first slot of from..to that isn't empty, or `to`.
    pub fn next(&self, from: i64, to: i64) -> i64 {
        if self.bytes.is_empty() {
            return to;
        }
        let last = to.min(from.saturating_add(SLOTS * self.step));
        let mut time = from;
        while time < last {
            if self.slot(time).is_some_and(|slot| slot.last >= 0) {
                return time;
            }
            time += self.step;
        }
        to
    }

    /// Whether slots are of times that this wheel's steps can mean, some weeks around `time`; those of another step are far off.
    pub fn fits(&self, time: i64) -> bool {
        let last = self.bytes.chunks_exact(SLOT).filter_map(|slot| long_at(slot, 0)).max().unwrap_or(0);
        last == 0 || (last.saturating_mul(self.step) - time).abs() <= 4 * SLOTS * self.step
    }

    /// Slots that aren't empty and whose time is at least `from`, with it.
    pub fn pending(&self, from: i64) -> impl Iterator<Item = (i64, Slot)> + '_ {
        let slots = if self.bytes.is_empty() { 0 } else { SLOTS };
        (0..slots).filter_map(move |number| {
            let time = from.saturating_add(number * self.step);
            Some((time, self.slot(time).filter(|slot| slot.last >= 0)?))
        })
    }

    pub fn take_dirty(&mut self) -> Pages {
        let mut pages = Pages::new();
        for (number, is_dirty) in self.is_dirty.iter_mut().enumerate() {
            if std::mem::take(is_dirty) {
                pages.push((number, self.bytes[number * PAGE..][..PAGE].into()));
            }
        }
        pages
    }

    /// Pages that couldn't be written are to be written again.
    pub fn put_back_dirty(&mut self, pages: &Pages) {
        for &(number, _) in pages {
            self.is_dirty[number] = true;
        }
    }
}

/// Write pages to the file of a wheel, made if it isn't there, and force it.
pub fn write_pages(path: &Path, pages: &Pages) -> Result<()> {
    if pages.is_empty() {
        return Ok(());
    }
    let is_new = !path.exists();
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).at("open", path)?;
    if file.metadata().at("look at", path)?.len() != SIZE as u64 {
        file.set_len(0).and_then(|()| file.set_len(SIZE as u64)).at("extend", path)?;
    }
    for (number, page) in pages {
        file.write_all_at(page, (number * PAGE) as u64).at("write", path)?;
    }
    file.sync_data().at("sync", path).map_err(Error::of_sync)?;
    match path.parent().filter(|_| is_new) {
        Some(directory) => sync_directory(directory),
        None => Ok(()),
    }
}
