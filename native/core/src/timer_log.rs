//! The log of timers, as Apache's TimerLog.java writes it: files of units, which are only appended. Big-endian:
//!
//! ```text
//!     0  i32  size, 52                               28  i64  position of the message in the commit log
//!     4  i64  position of the unit before this one   36  i32  size of its record
//!             in its slot, -1 for none               40  i32  Java's hash of the topic it is for
//!    12  i32  1, and 2: is put back, 4: deletes      44  i64  0
//!    16  i64  when it was written (ms, whole steps)
//!    24  i32  ms from then to its slot
//! ```
//!
//! Where a unit and 16 bytes don't fit a file ends: i32 the rest, i64 0, i32 the magic of a blank. A position is the file's
//! first, which is its name, and the place in it.

use std::{
    collections::VecDeque,
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::Arc,
};

use crate::{
    error::{value, At, Error, Result},
    mapped_file::{self, create_directory, sync_directory, MappedFile, PAGE},
    record::{int_at, long_at, MAGIC_BLANK},
};

pub const UNIT: usize = 52;
const BLANK: usize = 16;

pub const USUAL: i32 = 1;
/// The slot isn't when the message is due: it goes through the timer topic once more.
pub const ROLL: i32 = 2;
/// The message takes another one back.
pub const DELETE: i32 = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    pub previous: i64,
    pub magic: i32,
    pub write_time: i64,
    pub delay: i32,
    pub position: i64,
    pub size: i32,
    pub topic_hash: i32,
}

impl Unit {
    /// None when the bytes aren't a unit.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let unit = Self {
            previous: long_at(bytes, 4)?,
            magic: int_at(bytes, 12)?,
            write_time: long_at(bytes, 16)?,
            delay: int_at(bytes, 24)?,
            position: long_at(bytes, 28)?,
            size: int_at(bytes, 36)?,
            topic_hash: int_at(bytes, 40)?,
        };
        let whole = bytes.len() >= UNIT && int_at(bytes, 0) == Some(UNIT as i32);
        // Apache takes any four bits, and writes the lowest always.
        (whole && unit.magic & !0xF == 0 && unit.magic & USUAL != 0 && unit.position >= 0 && unit.size > 0)
            .then_some(unit)
    }

    pub fn bytes(&self) -> [u8; UNIT] {
        let mut bytes = [0; UNIT];
        bytes[..4].copy_from_slice(&(UNIT as i32).to_be_bytes());
        bytes[4..12].copy_from_slice(&self.previous.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.magic.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.write_time.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.delay.to_be_bytes());
        bytes[28..36].copy_from_slice(&self.position.to_be_bytes());
        bytes[36..40].copy_from_slice(&self.size.to_be_bytes());
        bytes[40..44].copy_from_slice(&self.topic_hash.to_be_bytes());
        bytes
    }

    /// The time of its slot.
    pub fn time(&self) -> i64 {
        self.write_time.saturating_add(self.delay.into())
    }

    pub fn rolls(&self) -> bool {
        self.magic & ROLL != 0
    }

    /// Whether it takes a message of its slot back; one that rolls doesn't yet.
    pub fn deletes(&self) -> bool {
        self.magic & DELETE != 0 && !self.rolls()
    }

    /// What it adds to how many messages its slot and its topic have pending.
    pub fn weight(&self) -> i32 {
        if self.magic & DELETE != 0 {
            -1
        } else {
            1
        }
    }
}

pub struct TimerLog {
    directory: PathBuf,
    file_size: u64,
    files: VecDeque<Arc<MappedFile>>,
    /// Everything below was forced.
    forced: u64,
}

impl TimerLog {
    /// Take up the files of a directory, all of whose bytes count until `cut`; nothing is changed. A last file of another size
    /// was being made, or has lost its end: it is left out. If the others don't make one log, because one is missing or of
    /// another size, all are, with true: then the queue of timers has to be read again.
    pub fn open(directory: PathBuf, file_size: u64) -> Result<(Self, bool)> {
        if file_size < (UNIT + BLANK) as u64 || file_size > i32::MAX as u64 {
            return value(format!("timer log files can't have {file_size} bytes"));
        }
        let mut log = Self { directory, file_size, files: VecDeque::new(), forced: 0 };
        let mut found = log.list()?;
        if found.last().is_some_and(|&(_, size)| size != file_size) {
            found.pop();
        }
        let first = found.first().map_or(0, |&(base, _)| base);
        let is_next = |(number, &(base, size)): (usize, &(u64, u64))| {
            size == file_size && base % file_size == 0 && base == first + number as u64 * file_size
        };
        if !found.iter().enumerate().all(is_next) {
            return Ok((log, true));
        }
        for (base, size) in found {
            let path = mapped_file::path(&log.directory, base);
            log.files.push_back(Arc::new(MappedFile::open(path, base, size as usize)?));
        }
        Ok((log, false))
    }

    /// (first byte, size) of the files that lie there, in order.
    fn list(&self) -> Result<Vec<(u64, u64)>> {
        let mut found = Vec::new();
        if !self.directory.is_dir() {
            return Ok(found);
        }
        for entry in fs::read_dir(&self.directory).at("list", &self.directory)? {
            let entry = entry.at("list", &self.directory)?;
            let Some(base) = entry.file_name().to_str().and_then(mapped_file::base_of) else { continue };
            found.push((base, entry.metadata().at("look at", &entry.path())?.len()));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Delete the files that were left out.
    pub fn tidy(&self) -> Result<()> {
        for (base, _) in self.list()? {
            if self.files.iter().all(|file| file.base != base) {
                let path = mapped_file::path(&self.directory, base);
                fs::remove_file(&path).at("delete", &path)?;
            }
        }
        Ok(())
    }

    pub fn min(&self) -> u64 {
        self.files.front().map_or(0, |file| file.base)
    }

    pub fn end(&self) -> u64 {
        self.files.back().map_or(0, |file| file.base + file.written() as u64)
    }

    /// The first byte of the file that holds `position`.
    pub fn base_of(&self, position: u64) -> u64 {
        position - position % self.file_size
    }

    fn read(&self, position: u64) -> Option<&[u8]> {
        let file = self.files.get((position.checked_sub(self.min())? / self.file_size) as usize)?;
        Some(file.read((position % self.file_size) as usize))
    }

    pub fn unit(&self, position: u64) -> Option<Unit> {
        Unit::read(self.read(position)?)
    }

    /// All units that are whole, whatever lies between them.
    pub fn units(&self) -> impl Iterator<Item = Unit> + '_ {
        self.files.iter().flat_map(|file| file.read(0).chunks_exact(UNIT).filter_map(Unit::read))
    }

    /// Give `each` the units from `position`, a unit's or a file's first, on; where the first is that isn't whole.
    pub fn scan(&self, position: u64, mut each: impl FnMut(u64, &Unit)) -> u64 {
        let mut position = position;
        while let Some(bytes) = self.read(position) {
            if let Some(unit) = Unit::read(bytes).filter(|unit| unit.previous < position as i64) {
                each(position, &unit);
                position += UNIT as u64;
                continue;
            }
            let rest = (self.file_size - position % self.file_size) as usize;
            // Apache begins a file no later than this.
            let is_blank = rest < UNIT + BLANK && int_at(bytes, 12) == Some(MAGIC_BLANK);
            if !is_blank || self.read(position + rest as u64).is_none() {
                return position;
            }
            position += rest as u64;
        }
        position
    }

    /// The unit before the one at `position`, or before the log's end.
    pub fn before(&self, position: u64) -> Option<u64> {
        let at = position % self.file_size;
        let before = if at == 0 {
            let per_file = (self.file_size as usize - BLANK) / UNIT;
            position.checked_sub(self.file_size)? + ((per_file - 1) * UNIT) as u64
        } else {
            position - UNIT as u64
        };
        (before >= self.min()).then_some(before)
    }

    /// Let the log end at `end`, and make what is behind it zero, so that no later start takes it for units. What is below
    /// `forced` is on disk.
    pub fn cut(&mut self, end: u64, forced: u64) -> Result<()> {
        while let Some(last) = self.files.back().filter(|last| last.base >= end && last.base > self.min()) {
            fs::remove_file(&last.path).at("delete", &last.path)?;
            self.files.pop_back();
        }
        let Some(last) = self.files.pop_back() else { return Ok(()) };
        let written = (end.saturating_sub(last.base) as usize).min(last.size());
        let (path, base) = (last.path.clone(), last.base);
        // Where nothing was ever written nothing is: Apache leaves holes, and on a full disk a store into one would end us.
        let page = |at: usize| last.read(at).chunks(PAGE).next().unwrap_or_default();
        let dirty: Vec<usize> = (written..last.size()).step_by(PAGE).filter(|&at| has_data(page(at))).collect();
        drop(last);
        let file = OpenOptions::new().write(true).open(&path).at("open", &path)?;
        mapped_file::allocate(&file, self.file_size).at("allocate", &path)?;
        let zeros = [0; PAGE];
        for at in dirty {
            let size = PAGE.min(self.file_size as usize - at);
            file.write_all_at(&zeros[..size], at as u64).at("write", &path)?;
        }
        file.sync_all().at("sync", &path).map_err(Error::of_sync)?;
        self.files.push_back(Arc::new(MappedFile::open(path, base, written)?));
        self.forced = forced.min(end);
        Ok(())
    }

    /// Delete all files.
    pub fn clear(&mut self) -> Result<()> {
        while let Some(file) = self.files.pop_back() {
            fs::remove_file(&file.path).at("delete", &file.path)?;
        }
        self.forced = 0;
        Ok(())
    }

    /// Append a unit: its position. On an error nothing has changed.
    pub fn append(&mut self, unit: &Unit) -> Result<u64> {
        let (rest, end) = match self.files.back() {
            Some(last) => (last.size() - last.written(), self.end()),
            None => (0, 0),
        };
        if rest < UNIT + BLANK {
            let base = end + rest as u64;
            create_directory(&self.directory)?;
            let next = MappedFile::create(&self.directory, base, self.file_size).inspect_err(|_| {
                let _ = fs::remove_file(mapped_file::path(&self.directory, base));
            })?;
            if let Some(last) = self.files.back().filter(|_| rest >= BLANK) {
                let mut blank = [0; BLANK];
                blank[..4].copy_from_slice(&(rest as i32).to_be_bytes());
                blank[12..].copy_from_slice(&MAGIC_BLANK.to_be_bytes());
                write(last, &blank);
                last.publish(rest - BLANK);
            }
            self.files.push_back(Arc::new(next));
        }
        let position = self.end();
        if let Some(last) = self.files.back() {
            write(last, &unit.bytes());
        }
        Ok(position)
    }

    /// What has to be forced, which is done without a lock; `set_forced` is told of it.
    pub fn unforced(&self) -> Vec<(Arc<MappedFile>, usize, usize)> {
        let end = |file: &MappedFile| file.base + file.written() as u64;
        let files = self.files.iter().filter(|file| end(file) > self.forced);
        files.map(|file| (Arc::clone(file), self.forced.saturating_sub(file.base) as usize, file.written())).collect()
    }

    pub fn set_forced(&mut self, end: u64) {
        self.forced = self.forced.max(end);
    }

    /// Delete files, never the last, whose units all lead below `log_min`.
    pub fn delete_below(&mut self, log_min: u64) -> Result<Vec<PathBuf>> {
        let mut deleted = Vec::new();
        while self.files.len() > 1 {
            let next = self.min() + self.file_size;
            let last = self.before(next).and_then(|position| self.unit(position));
            let is_kept = |unit: Unit| unit.position as u64 >= log_min;
            // Of the last alone it can't be told: units that were given back lead further down than those before them.
            let mut units = (self.min()..next).step_by(UNIT).filter_map(|position| self.unit(position));
            if last.is_none_or(is_kept) || units.any(is_kept) {
                break;
            }
            let Some(file) = self.files.pop_front() else { break };
            fs::remove_file(&file.path).at("delete", &file.path)?;
            deleted.push(file.path.clone());
        }
        if !deleted.is_empty() {
            sync_directory(&self.directory)?;
        }
        Ok(deleted)
    }
}

fn has_data(bytes: &[u8]) -> bool {
    bytes.iter().any(|&byte| byte != 0)
}

/// Append bytes for which the file has room.
fn write(file: &MappedFile, bytes: &[u8]) {
    // SAFETY: a TimerLog is its files' only writer, and `append` has it for itself; the slice ends before `publish`.
    if let Some(place) = unsafe { file.unwritten(bytes.len()) } {
        place.copy_from_slice(bytes);
        file.publish(bytes.len());
    }
}
