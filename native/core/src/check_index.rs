//! Whether the index files are what the log and their own headers make them: entries lead to records that have the key, in the
//! order of the log; every entry names the one before it in its slot, and every slot its newest.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use crate::{
    error::{At, Result},
    index::{key_hashes, list},
    index_file::{Entry, Header, Layout, ENTRY, HEADER, SLOT},
    log_directories::LogDirectories,
    walk::{fault, read_all, Faults, Walk, WINDOW},
};

const BLOCK: usize = 3000;

pub struct IndexCheck {
    layout: Layout,
    /// Files to come, the next one last.
    paths: Vec<PathBuf>,
    open: Option<Open>,
    lookup: Walk,
    log_min: u64,
    /// Entries from here on are of a time after the check began; then files may grow as well.
    behind: Option<u64>,
    /// The record looked up last: position, store time, hashes.
    record: Option<(i64, i64, Vec<i32>)>,
    pub files: u64,
    pub entries: u64,
}

struct Open {
    path: PathBuf,
    file: File,
    header: Header,
    number: i32,
    /// By slot, the newest entry so far.
    newest: Vec<i32>,
    block: Vec<u8>,
    block_first: i32,
}

impl IndexCheck {
    pub fn new(
        directory: &Path,
        layout: Layout,
        (log, log_file_size): (LogDirectories, u64),
        log_min: u64,
        behind: Option<u64>,
    ) -> Result<Self> {
        let mut paths = if directory.exists() { list(directory)? } else { Vec::new() };
        paths.reverse();
        let lookup = Walk::new(log, log_file_size, WINDOW, false);
        let (open, record, files, entries) = Default::default();
        Ok(Self { layout, paths, open, lookup, log_min, behind, record, files, entries })
    }

    /// Check the entries that lead below `until`: so the log's pages are still in memory when they are wanted again.
    pub fn step(&mut self, until: u64, faults: &mut Faults) -> Result<()> {
        loop {
            let Some(mut open) = self.open.take() else {
                let Some(path) = self.paths.pop() else { return Ok(()) };
                self.open = self.begin(path, faults)?;
                continue;
            };
            while open.number < open.header.next {
                let Some(entry) = open.entry(self.layout)? else { break };
                let deferred = entry.position <= open.header.end_position && entry.position >= until as i64;
                if deferred {
                    self.open = Some(open);
                    return Ok(());
                }
                self.check(&mut open, entry, faults);
                open.number += 1;
                self.entries += 1;
            }
            self.end(&open, faults)?;
        }
    }

    fn begin(&mut self, path: PathBuf, faults: &mut Faults) -> Result<Option<Open>> {
        let file = File::open(&path).at("open", &path)?;
        let size = file.metadata().at("look at", &path)?.len();
        self.files += 1;
        if size != self.layout.size() {
            let expected = format!("{} bytes", self.layout.size());
            faults.push(fault("index file", &path, 0, 1, &expected, &format!("{size}")));
            return Ok(None);
        }
        let mut bytes = [0; HEADER];
        read_all(&file, &mut bytes, 0).at("read", &path)?;
        let header = Header::read(&bytes).unwrap_or_default();
        if header.next > self.layout.entries {
            let expected = format!("at most {} as the next entry", self.layout.entries);
            faults.push(fault("index header", &path, 36, 1, &expected, &header.next.to_string()));
            return Ok(None);
        }
        let newest = vec![0; self.layout.slots as usize];
        Ok(Some(Open { path, file, header, number: 1, newest, block: Vec::new(), block_first: 0 }))
    }

    fn check(&mut self, open: &mut Open, entry: Entry, faults: &mut Faults) {
        let at = self.layout.entry_at(open.number) as u64;
        let mut tell =
            |expected: &str, found: &str| faults.push(fault("index entry", &open.path, at, 1, expected, found));
        if entry.hash < 0 {
            tell("a hash that isn't negative", &entry.hash.to_string());
            return;
        }
        let slot = &mut open.newest[(entry.hash % self.layout.slots) as usize];
        if entry.previous != *slot {
            tell(&format!("entry {slot} before it in its slot"), &entry.previous.to_string());
        }
        *slot = open.number;
        let is_last = open.number == open.header.next - 1;
        let header = &open.header;
        for (at, is_here, expected) in
            [(16, open.number == 1, header.begin_position), (24, is_last && self.behind.is_none(), header.end_position)]
        {
            if is_here && entry.position != expected {
                let found = format!("{expected}");
                faults.push(fault("index header", &open.path, at, 1, &format!("position {}", entry.position), &found));
            }
        }
        let is_new = self.behind.is_some_and(|behind| entry.position >= behind as i64);
        if is_new || (0..self.log_min as i64).contains(&entry.position) {
            return;
        }
        let mut tell =
            |expected: &str, found: &str| faults.push(fault("index entry", &open.path, at, 1, expected, found));
        let Some((stored, hashes)) = self.record_at(entry.position) else {
            tell("the position of a record", &format!("{}, where none is", entry.position));
            return;
        };
        if !hashes.contains(&entry.hash) {
            let expected = format!("the hash of a key of the record at {}: {hashes:?}", entry.position);
            tell(&expected, &entry.hash.to_string());
        }
        // The first entry counts from the file before.
        if open.number > 1 && entry.seconds != header.seconds(stored) {
            tell(&format!("{} seconds", header.seconds(stored)), &entry.seconds.to_string());
        }
        for (at, is_here, found) in
            [(0, open.number == 1, header.begin_timestamp), (8, is_last && self.behind.is_none(), header.end_timestamp)]
        {
            if is_here && found != stored {
                faults.push(fault("index header", &open.path, at, 1, &format!("time {stored}"), &found.to_string()));
            }
        }
    }

    fn record_at(&mut self, position: i64) -> Option<(i64, &[i32])> {
        if self.record.as_ref().is_none_or(|record| record.0 != position) {
            let record = self.lookup.record(u64::try_from(position).ok()?)?;
            self.record = Some((position, record.store_timestamp, key_hashes(&record).collect()));
        }
        self.record.as_ref().map(|(_, stored, hashes)| (*stored, hashes.as_slice()))
    }

    /// All entries were seen: now the slots and their number are known.
    fn end(&self, open: &Open, faults: &mut Faults) -> Result<()> {
        if self.behind.is_some() && self.paths.is_empty() {
            // The newest file of a running broker has grown since its header was read.
            return Ok(());
        }
        let used = open.newest.iter().filter(|&&number| number > 0).count();
        if i64::from(open.header.used_slots) != used as i64 {
            let found = open.header.used_slots.to_string();
            faults.push(fault("index header", &open.path, 32, 1, &format!("{used} slots in use"), &found));
        }
        let mut bytes = vec![0; 16 << 10];
        let mut at = HEADER;
        for slots in open.newest.chunks(bytes.len() / SLOT) {
            let size = slots.len() * SLOT;
            read_all(&open.file, &mut bytes[..size], at as u64).at("read", &open.path)?;
            for (number, (bytes, &expected)) in bytes[..size].chunks_exact(SLOT).zip(slots).enumerate() {
                let found = crate::record::int_at(bytes, 0).unwrap_or(0);
                // Java takes what can't be an entry for none.
                if found != expected && (expected > 0 || (1..open.header.next).contains(&found)) {
                    let place = (at + number * SLOT) as u64;
                    faults.push(fault(
                        "index slot",
                        &open.path,
                        place,
                        1,
                        &format!("entry {expected}"),
                        &found.to_string(),
                    ));
                }
            }
            at += size;
        }
        Ok(())
    }
}

impl Open {
    fn entry(&mut self, layout: Layout) -> Result<Option<Entry>> {
        let in_block = (self.block.len() / ENTRY) as i32;
        if self.block.is_empty() || self.number >= self.block_first + in_block {
            let count = BLOCK.min((self.header.next - self.number) as usize);
            self.block.resize(count * ENTRY, 0);
            self.block_first = self.number;
            read_all(&self.file, &mut self.block, layout.entry_at(self.number) as u64).at("read", &self.path)?;
        }
        Ok(Entry::read(&self.block[(self.number - self.block_first) as usize * ENTRY..]))
    }
}
