//! One index file, as Apache's IndexFile.java and IndexHeader.java write it: a hash table in a file. Big-endian:
//!
//! ```text
//!     0  i64  begin timestamp      8  i64  end timestamp       store times of the first and last entry
//!    16  i64  begin position      24  i64  end position        where their records lie in the log
//!    32  i32  slots in use        36  i32  number of the next entry; the first has 1, entry 0 stays empty
//!    40  i32  per slot: the number of its newest entry, 0 when it has none
//!     …  per entry: i32 hash of the key, i64 position, i32 seconds since the begin timestamp, i32 the entry of the
//!        same slot before this one, 0 when there is none
//! ```
//!
//! The file is sparse, but what is about to be written was allocated: on a full disk the kernel would answer a store into
//! a hole of the map with SIGBUS, which ends the process; allocation fails as an error that can be reported.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
};

use memmap2::{MmapMut, MmapOptions};
use rustix::{
    fs::{fallocate, FallocateFlags},
    io::{retry_on_intr, Errno},
};

use crate::{
    error::{value, At, Result},
    record::{int_at, long_at},
};

pub const HEADER: usize = 40;
pub const SLOT: usize = 4;
pub const ENTRY: usize = 20;
const PAGE: u64 = 4096;
/// Bytes of entries that are allocated at a time.
const AHEAD: u64 = 1 << 20;

/// How many slots and entries a file has; entry 0 counts, though it is never used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    pub slots: i32,
    pub entries: i32,
}

impl Layout {
    pub fn new(slots: i32, entries: i32) -> Result<Self> {
        let size = HEADER as i64 + i64::from(slots) * SLOT as i64 + i64::from(entries) * ENTRY as i64;
        if slots < 1 || entries < 2 || size > i64::from(i32::MAX) {
            return value(format!("an index file can't have {slots} slots and {entries} entries"));
        }
        Ok(Self { slots, entries })
    }

    pub fn size(self) -> u64 {
        self.entry_at(self.entries) as u64
    }

    fn slot_at(self, hash: i32) -> usize {
        HEADER + (hash % self.slots) as usize * SLOT
    }

    pub fn entry_at(self, number: i32) -> usize {
        HEADER + self.slots as usize * SLOT + number as usize * ENTRY
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Header {
    pub begin_timestamp: i64,
    pub end_timestamp: i64,
    pub begin_position: i64,
    pub end_position: i64,
    pub used_slots: i32,
    /// The number of the next entry.
    pub next: i32,
}

impl Header {
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            begin_timestamp: long_at(bytes, 0)?,
            end_timestamp: long_at(bytes, 8)?,
            begin_position: long_at(bytes, 16)?,
            end_position: long_at(bytes, 24)?,
            used_slots: int_at(bytes, 32)?,
            // Apache writes it with the first entry.
            next: int_at(bytes, 36)?.max(1),
        })
    }

    fn bytes(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(&self.begin_timestamp.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.end_timestamp.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.begin_position.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.end_position.to_be_bytes());
        bytes[32..36].copy_from_slice(&self.used_slots.to_be_bytes());
        bytes[36..].copy_from_slice(&self.next.to_be_bytes());
        bytes
    }

    pub fn is_full(&self, layout: Layout) -> bool {
        self.next >= layout.entries
    }

    /// How an entry says that its message was stored at `timestamp`.
    pub fn seconds(&self, timestamp: i64) -> i32 {
        let begin = self.begin_timestamp;
        if begin <= 0 {
            0
        } else {
            (timestamp.wrapping_sub(begin) / 1000).clamp(0, i32::MAX.into()) as i32
        }
    }

    /// Whether the file can hold entries of begin … end; Apache's own three cases.
    pub fn is_matched(&self, begin: i64, end: i64) -> bool {
        let own = self.begin_timestamp..=self.end_timestamp;
        (begin < self.begin_timestamp && end > self.end_timestamp) || own.contains(&begin) || own.contains(&end)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub hash: i32,
    pub position: i64,
    pub seconds: i32,
    pub previous: i32,
}

impl Entry {
    pub fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            hash: int_at(bytes, 0)?,
            position: long_at(bytes, 4)?,
            seconds: int_at(bytes, 12)?,
            previous: int_at(bytes, 16)?,
        })
    }
}

/// What a query looks for in each file.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub hash: i32,
    pub begin: i64,
    pub end: i64,
    pub count_max: usize,
}

/// An index file, mapped.
pub struct IndexFile {
    pub path: PathBuf,
    pub header: Header,
    layout: Layout,
    file: File,
    map: MmapMut,
    /// The file is allocated up to here.
    allocated: u64,
}

impl IndexFile {
    /// Make the file that follows one with header `before`; its times and positions go on from there until it has entries.
    pub fn create(path: PathBuf, layout: Layout, before: Option<&Header>) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).at("create", &path)?;
        // Before it is mapped: on a tmpfs even reading through a map wants room.
        let allocated =
            file.set_len(layout.size()).and_then(|()| allocate(&file, layout, 0, layout.entry_at(1) as u64));
        let made = allocated.at("allocate", &path);
        let mut made = made.and_then(|allocated| Ok(Self { allocated, ..Self::map(file, path.clone(), layout)? }));
        match &mut made {
            Ok(made) => {
                let (timestamp, position) = before.map_or((0, 0), |before| (before.end_timestamp, before.end_position));
                made.header = Header {
                    begin_timestamp: timestamp.max(0),
                    end_timestamp: timestamp.max(0),
                    begin_position: position.max(0),
                    end_position: position.max(0),
                    used_slots: 0,
                    next: 1,
                };
                made.write_header();
            }
            Err(_) => drop(fs::remove_file(&path)),
        }
        made
    }

    pub fn open(path: PathBuf, layout: Layout) -> Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(&path).at("open", &path)?;
        Self::map(file, path, layout)
    }

    fn map(file: File, path: PathBuf, layout: Layout) -> Result<Self> {
        // SAFETY: the store's directory is locked by its owner, who writes index files through one such map at a time and
        // never shortens one. A foreign process that wrote to it could only make us read other numbers, and each of
        // them is checked before it is used as a place.
        let map = unsafe { MmapOptions::new().map_mut(&file) }.at("map", &path)?;
        let header = Header::read(&map).unwrap_or_default();
        Ok(Self { path, header, layout, file, map, allocated: 0 })
    }

    /// The header of a file as it lies on the disk; None when the file isn't one that was left whole: another size, or a
    /// header that its first and last entries contradict.
    pub fn inspect(path: &PathBuf, layout: Layout) -> Result<Option<Header>> {
        let file = File::open(path).at("open", path)?;
        if file.metadata().at("look at", path)?.len() != layout.size() {
            return Ok(None);
        }
        let read = |at: usize, bytes: &mut [u8]| file.read_exact_at(bytes, at as u64).at("read", path);
        let mut bytes = [0; HEADER];
        read(0, &mut bytes)?;
        let Some(header) = Header::read(&bytes) else { return Ok(None) };
        if header.next > layout.entries || !(0..=layout.slots.min(header.next - 1)).contains(&header.used_slots) {
            return Ok(None);
        }
        if header.next > 1 {
            for (number, position) in [(1, header.begin_position), (header.next - 1, header.end_position)] {
                let mut entry = [0; ENTRY];
                read(layout.entry_at(number), &mut entry)?;
                if long_at(&entry, 4) != Some(position) {
                    return Ok(None);
                }
            }
        }
        Ok(Some(header))
    }

    pub fn is_full(&self) -> bool {
        self.header.is_full(self.layout)
    }

    /// Put an entry, for which there must be room. On an error nothing has changed.
    pub fn put(&mut self, hash: i32, position: i64, timestamp: i64) -> Result<()> {
        let number = self.header.next;
        let (slot_at, entry_at) = (self.layout.slot_at(hash), self.layout.entry_at(number));
        let end = (entry_at + ENTRY) as u64;
        if end > self.allocated {
            self.allocated = allocate(&self.file, self.layout, self.allocated, end).at("allocate", &self.path)?;
        }
        let previous = int_at(&self.map, slot_at).filter(|newest| (1..=number).contains(newest)).unwrap_or(0);
        let seconds = self.header.seconds(timestamp);
        let entry = &mut self.map[entry_at..entry_at + ENTRY];
        entry[..4].copy_from_slice(&hash.to_be_bytes());
        entry[4..12].copy_from_slice(&position.to_be_bytes());
        entry[12..16].copy_from_slice(&seconds.to_be_bytes());
        entry[16..].copy_from_slice(&previous.to_be_bytes());
        self.map[slot_at..slot_at + SLOT].copy_from_slice(&number.to_be_bytes());
        if number == 1 {
            (self.header.begin_position, self.header.begin_timestamp) = (position, timestamp);
        }
        self.header.used_slots += i32::from(previous == 0);
        self.header.next += 1;
        (self.header.end_position, self.header.end_timestamp) = (position, timestamp);
        self.write_header();
        Ok(())
    }

    fn write_header(&mut self) {
        self.map[..HEADER].copy_from_slice(&self.header.bytes());
    }

    /// Collect positions, newest first, until there are `count_max`. Java walks the chain by the same rules and would
    /// never leave one that a damage has made a ring; here it ends where it doesn't lead to an older entry.
    pub fn find(&self, wanted: &Wanted, found: &mut Vec<i64>) {
        let mut number = int_at(&self.map, self.layout.slot_at(wanted.hash)).unwrap_or(0);
        while (1..=self.header.next).contains(&number) && found.len() < wanted.count_max {
            let Some(entry) = self.entry(number).filter(|entry| entry.seconds >= 0) else { return };
            let time = self.header.begin_timestamp.saturating_add(i64::from(entry.seconds) * 1000);
            if entry.hash == wanted.hash && (wanted.begin..=wanted.end).contains(&time) {
                found.push(entry.position);
            }
            if entry.previous >= number || time < wanted.begin {
                return;
            }
            number = entry.previous;
        }
    }

    /// How many of the newest entries lead to `position`, and whether all entries do.
    pub fn count_last(&self, position: i64) -> (usize, bool) {
        let leads_there = |&number: &i32| self.entry(number).is_some_and(|entry| entry.position == position);
        let count = (1..self.header.next).rev().take_while(leads_there).count();
        (count, count == (self.header.next - 1) as usize)
    }

    fn entry(&self, number: i32) -> Option<Entry> {
        let at = self.layout.entry_at(number);
        Entry::read(self.map.get(at..at + ENTRY)?)
    }

    /// Force what was written to disk.
    pub fn force(&self) -> Result<()> {
        self.map.flush().at("sync", &self.path)
    }
}

/// Give a file room from `start` to `end` and some more; up to where.
fn allocate(file: &File, layout: Layout, start: u64, end: u64) -> io::Result<u64> {
    // Whole pages: a tmpfs that finds no room for the end of a range takes its first page back as well, and a part of that
    // one may be ours already.
    let end = (end + AHEAD).next_multiple_of(PAGE).min(layout.size());
    match retry_on_intr(|| fallocate(file, FallocateFlags::empty(), start, end - start)) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(end),
        Err(error) => Err(error.into()),
    }
}

/// Java's hash of a key, made a number that is not negative.
pub fn positive(hash: i32) -> i32 {
    hash.checked_abs().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::env::temp_dir;

    use super::*;

    const SMALL: Layout = Layout { slots: 3, entries: 6 };

    fn made(name: &str, before: Option<&Header>) -> IndexFile {
        let path = temp_dir().join(format!("rockmq-index-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        IndexFile::create(path, SMALL, before).unwrap()
    }

    fn found(file: &IndexFile, hash: i32, begin: i64, end: i64) -> Vec<i64> {
        let mut found = Vec::new();
        file.find(&Wanted { hash, begin, end, count_max: 64 }, &mut found);
        found
    }

    #[test]
    fn layout_is_apaches() {
        let layout = Layout::new(5_000_000, 20_000_000).unwrap();
        assert_eq!(layout.size(), 420_000_040);
        assert_eq!((layout.slot_at(5_000_001), layout.entry_at(1)), (44, 20_000_060));
        assert!(Layout::new(0, 2).is_err() && Layout::new(1, 1).is_err() && Layout::new(i32::MAX, i32::MAX).is_err());
    }

    #[test]
    fn chains_lead_from_new_to_old_and_read_back() {
        let mut file = made("chains", None);
        for (hash, position, timestamp) in [(1, 100, 5_000), (4, 200, 4_000), (1, 300, 7_999), (2, 400, i64::MAX)] {
            file.put(hash, position, timestamp).unwrap();
        }
        assert_eq!(found(&file, 1, 0, i64::MAX), [300, 100]);
        // Times are of whole seconds since the first entry, and none is before it.
        assert_eq!(found(&file, 4, 5_000, 5_000), [200]);
        assert_eq!(found(&file, 1, 7_000, 7_000), [300]);
        assert!(found(&file, 1, 7_001, 7_999).is_empty());
        assert_eq!(file.entry(4).unwrap().seconds, i32::MAX);
        assert_eq!((file.header.used_slots, file.header.next, file.is_full()), (2, 5, false));
        assert_eq!((file.header.begin_position, file.header.end_timestamp), (100, i64::MAX));
        file.put(0, 400, 9_000).unwrap();
        assert!(file.is_full());
        assert_eq!((file.count_last(400), file.count_last(1)), ((2, false), (0, false)));
        file.force().unwrap();
        assert_eq!(IndexFile::inspect(&file.path, SMALL).unwrap(), Some(file.header));
        assert_eq!(IndexFile::inspect(&file.path, Layout { slots: 2, entries: 6 }).unwrap(), None);
        assert_eq!(IndexFile::open(file.path.clone(), SMALL).unwrap().header, file.header);
        fs::remove_file(&file.path).unwrap();
    }

    #[test]
    fn a_file_goes_on_where_the_one_before_ended() {
        let before = Header { end_timestamp: 10_000, end_position: 77, ..Header::default() };
        let mut file = made("next", Some(&before));
        assert_eq!((file.header.begin_timestamp, file.header.end_position, file.header.next), (10_000, 77, 1));
        file.put(5, 88, 13_000).unwrap();
        // As Apache does: the first entry counts from the file before, all others from the first.
        assert_eq!((file.entry(1).unwrap().seconds, file.header.begin_timestamp), (3, 13_000));
        fs::remove_file(&file.path).unwrap();
    }

    #[test]
    fn hashes_are_made_positive_as_java_does() {
        assert_eq!((positive(7), positive(-7), positive(i32::MIN)), (7, 7, 0));
    }
}
