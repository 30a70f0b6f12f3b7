//! Whether the queues agree with the log: each record has its entry, and each entry leads to its record.
//!
//! Records come in log order, and their entries are compared in runs, so that a queue costs its name and some numbers
//! however long it is. What no record has claimed is looked at afterwards. A record whose entry isn't there may be one of
//! a topic that was deleted: when a later record takes the same offset, it is.

use std::{
    collections::HashSet,
    fs::{self, File},
    path::Path,
};

use rustix::fs::{seek, SeekFrom};

use crate::{
    consume_queue::{Entry, Queues, UNIT},
    delays::{is_time, Levels, SCHEDULE_TOPIC},
    error::Result,
    light,
    log_directories::LogDirectories,
    mapped_file,
    queue_files::QueueFiles,
    record::{self, Record},
    replay::{directories, light_topics, INDEX_MAX},
    walk::{fault, read_all, Fault, Faults, Walk, WINDOW_SMALL},
};

/// Bytes of expected entries of one queue, and of all, that wait to be compared.
const RUN_MAX: usize = 64 << 10;
const RUNS_MAX: usize = 16 << 20;

#[derive(Default)]
struct Known {
    seen: bool,
    first: u64,
    next: u64,
    /// Behind the highest index seen.
    max: u64,
    missing: Option<Missing>,
    run_start: u64,
    run: Vec<u8>,
}

/// Records in a row without an entry.
struct Missing {
    first: u64,
    count: u64,
    expected: Entry,
}

pub struct QueueCheck {
    queues: Queues,
    known: Vec<Known>,
    runs_size: usize,
    lookup: Walk,
    /// Where the log begins; entries that lead below are of deleted files.
    log_min: u64,
    /// Light queues that are there; what records say of others may be anybody's word.
    light: HashSet<Box<[u8]>>,
    levels: Levels,
    pub entries: u64,
}

/// Whether an entry's tags code can be that of a record.
pub fn tags_fit(topic: &str, found: Entry, expected: Entry) -> bool {
    // A delay level may have meant another time when the entry was made.
    found.tags == expected.tags || found.is_extended() || (topic == SCHEDULE_TOPIC && is_time(found.tags))
}

/// The record's place in a queue, if it has one: its index and what the entry should be.
pub fn entry_of(record: &Record<'_>, levels: &Levels) -> Option<(u64, Entry)> {
    let is_put = record::is_queued(record.sys_flag) && record.sys_flag & record::INNER_BATCH == 0;
    if !is_put || record.queue_id < 0 || !(0..=INDEX_MAX).contains(&record.queue_offset) {
        return None;
    }
    let entry = Entry { position: record.position, size: record.size as i32, tags: levels.tags_code(record) };
    Some((record.queue_offset as u64, entry))
}

impl QueueCheck {
    pub fn new(
        files: QueueFiles,
        (log, log_file_size): (LogDirectories, u64),
        log_min: u64,
        levels: Levels,
    ) -> Result<Self> {
        let light = if files.root.exists() { light_topics(&directories(&files.root)?) } else { HashSet::new() };
        let lookup = Walk::new(log, log_file_size, WINDOW_SMALL, false);
        let (queues, known) = (Queues::new(files), Vec::new());
        Ok(Self { queues, known, runs_size: 0, lookup, log_min, light, levels, entries: 0 })
    }

    pub fn put(&mut self, record: &Record<'_>, faults: &mut Faults) {
        let Some((index, entry)) = entry_of(record, &self.levels) else { return };
        self.put_entry((record.topic, record.queue_id), index, entry, faults);
        if !self.light.is_empty() {
            for (topic, index) in light::queues(record) {
                if self.light.contains(topic) {
                    self.put_entry((topic, 0), index, entry, faults);
                }
            }
        }
    }

    fn put_entry(&mut self, (topic, id): (&[u8], i32), index: u64, entry: Entry, faults: &mut Faults) {
        let Some(slot) = self.queues.slot_or_new(topic, id) else { return };
        if self.known.len() <= slot {
            self.known.resize_with(slot + 1, Known::default);
        }
        let known = &self.known[slot];
        if !known.seen || index != known.next || known.run.len() >= RUN_MAX {
            self.compare(slot, faults);
            self.jump(slot, index, faults);
        }
        let known = &mut self.known[slot];
        known.run.extend_from_slice(&entry.bytes());
        known.next = index + 1;
        known.max = known.max.max(known.next);
        self.runs_size += UNIT;
        if self.runs_size > RUNS_MAX {
            (0..self.known.len()).for_each(|slot| self.compare(slot, faults));
        }
    }

    /// The next record of a queue isn't the one behind the last.
    fn jump(&mut self, slot: usize, index: u64, faults: &mut Faults) {
        let known = &mut self.known[slot];
        let (seen, next) = (known.seen, known.next);
        known.run_start = index;
        if !seen {
            (known.seen, known.first, known.max) = (true, index, index);
        } else if index < next {
            // The topic was deleted and has begun again: what the log has of its first life needs no entries any more.
            known.first = known.first.min(index);
            if let Some(missing) = &mut known.missing {
                missing.count = missing.count.min(index.saturating_sub(missing.first));
                if missing.count == 0 {
                    known.missing = None;
                }
            }
        } else if index > next {
            self.unclaimed(slot, next, index, None, faults);
        }
    }

    /// Compare the entries that were expected with those in the files.
    fn compare(&mut self, slot: usize, faults: &mut Faults) {
        let run = std::mem::take(&mut self.known[slot].run);
        if run.is_empty() {
            return;
        }
        self.runs_size -= run.len();
        let (start, count) = (self.known[slot].run_start, (run.len() / UNIT) as u64);
        self.known[slot].run_start += count;
        let Some(queue) = self.queues.queue(slot) else { return };
        let (files, topic, id) = (std::sync::Arc::clone(&self.queues.files), queue.topic.clone(), queue.id);
        let per_file = files.file_size / UNIT as u64;
        let mut index = start;
        while index < start + count {
            let wanted = (start + count - index).min(per_file - index % per_file);
            let base = index / per_file * files.file_size;
            let path = mapped_file::path(&files.directory(&topic, id), base);
            let found = match files.read(&topic, id, index, wanted) {
                Ok(found) => found,
                Err(error) => {
                    let at = index * UNIT as u64 - base;
                    faults.push(fault("unreadable", &path, at, wanted as usize, "queue entries", &error.to_string()));
                    index += wanted;
                    continue;
                }
            };
            let from = (index - start) as usize * UNIT;
            let expected = &run[from..from + wanted as usize * UNIT];
            for (number, bytes) in expected.chunks_exact(UNIT).enumerate() {
                let bytes_found = found.get(number * UNIT..(number + 1) * UNIT).unwrap_or(&[0; UNIT]);
                self.entries += 1;
                if bytes != bytes_found {
                    let (Some(expected), Some(found)) = (Entry::read(bytes), Entry::read(bytes_found)) else {
                        continue;
                    };
                    self.differs(slot, &path, index + number as u64, (expected, found), faults);
                }
            }
            index += wanted;
        }
    }

    fn differs(
        &mut self,
        slot: usize,
        path: &Path,
        index: u64,
        (expected, found): (Entry, Entry),
        faults: &mut Faults,
    ) {
        let Some(queue) = self.queues.queue(slot) else { return };
        let (topic, id) = (queue.topic.clone(), queue.id);
        if (found.position, found.size) == (expected.position, expected.size) && tags_fit(&topic, found, expected) {
            return;
        }
        if found == (Entry { position: 0, size: 0, tags: 0 }) {
            let known = &mut self.known[slot];
            match &mut known.missing {
                Some(missing) if missing.first + missing.count == index => missing.count += 1,
                missing => {
                    let before = missing.replace(Missing { first: index, count: 1, expected });
                    if let Some(before) = before {
                        self.tell_missing(slot, &before, faults);
                    }
                }
            }
            return;
        }
        // A newer life of the topic may have taken the offset.
        let newer = found.is_real() && found.position > expected.position;
        if newer && self.claim(&topic, id, index, found).is_ok() {
            return;
        }
        let at = index * UNIT as u64 % self.queues.files.file_size;
        let mut fault = fault("queue entry", path, at, 1, &text(expected), &text(found));
        fault.queue = Some((topic.to_string(), id));
        faults.push(fault);
    }

    /// Whether the record an entry leads to is the one it should lead to; otherwise what there is.
    fn claim(&mut self, topic: &str, id: i32, index: u64, entry: Entry) -> std::result::Result<(), String> {
        let at = entry.position;
        let Some(record) = self.lookup.record(at as u64) else { return Err(format!("no record at {at}")) };
        let owner = String::from_utf8_lossy(record.topic);
        let mut light = light::queues(&record).into_iter().filter(|(name, _)| id == 0 && *name == topic.as_bytes());
        let place = match light.next() {
            Some((_, found)) => entry_of(&record, &self.levels).map(|(_, expected)| (found, expected)),
            None if (owner.as_ref(), record.queue_id) == (topic, id) => entry_of(&record, &self.levels),
            None => return Err(format!("a record of {owner}/{} at {at}", record.queue_id)),
        };
        match place {
            Some((found, _)) if found != index => Err(format!("a record with offset {found} at {at}")),
            Some((_, expected)) if expected.size != entry.size || !tags_fit(topic, entry, expected) => {
                Err(format!("{}, and the record has {}", text(entry), text(expected)))
            }
            Some(_) => Ok(()),
            None => Err(format!("a record at {at} that has no place in a queue")),
        }
    }

    fn tell_missing(&self, slot: usize, missing: &Missing, faults: &mut Faults) {
        let Some(queue) = self.queues.queue(slot) else { return };
        let files = &self.queues.files;
        let at = missing.first * UNIT as u64;
        let path = mapped_file::path(&files.directory(&queue.topic, queue.id), at - at % files.file_size);
        let offsets = format!("{} to {}", missing.first, missing.first + missing.count - 1);
        let expected = format!("offsets {offsets}, the first with {}", text(missing.expected));
        let gone = if path.exists() { "nothing" } else { "no file" };
        let mut fault = fault("queue missing", &path, at % files.file_size, missing.count as usize, &expected, gone);
        fault.queue = Some((queue.topic.to_string(), queue.id));
        faults.push(fault);
    }

    /// Look at entries that no record of the log has claimed; those from position `behind` on are of a time after the check
    /// began.
    fn unclaimed(&mut self, slot: usize, from: u64, to: u64, behind: Option<u64>, faults: &mut Faults) {
        let Some(queue) = self.queues.queue(slot) else { return };
        let (topic, id, file_size) = (queue.topic.clone(), queue.id, self.queues.files.file_size);
        let directory = self.queues.files.directory(&topic, id);
        let mut block = vec![0; 3000 * UNIT];
        for (base, _) in files_of(&directory) {
            let first = (from * UNIT as u64).max(base);
            let end = to.saturating_mul(UNIT as u64).min(base + file_size);
            let path = mapped_file::path(&directory, base);
            let Ok(file) = File::open(&path) else { continue };
            let mut at = first;
            while at < end {
                // Most of a queue's last file is a hole.
                match seek(&file, SeekFrom::Data(at - base)) {
                    Ok(data) => at = at.max(base + data - data % UNIT as u64),
                    Err(_) => break,
                }
                let size = block.len().min(end.saturating_sub(at) as usize);
                if let Err(error) = read_all(&file, &mut block[..size], at - base) {
                    faults.push(fault(
                        "unreadable",
                        &path,
                        at - base,
                        size / UNIT,
                        "queue entries",
                        &error.to_string(),
                    ));
                    break;
                }
                for (number, bytes) in block[..size].chunks_exact(UNIT).enumerate() {
                    let index = at / UNIT as u64 + number as u64;
                    let Some(entry) = Entry::read(bytes).filter(|_| bytes != [0; UNIT]) else { continue };
                    let is_new = behind.is_some_and(|behind| entry.position as u64 >= behind);
                    let is_old = entry.is_real() && (entry.position as u64) < self.log_min;
                    if entry == Entry::BLANK || is_old || (entry.is_real() && is_new) {
                        continue;
                    }
                    let claim = if entry.is_real() { self.claim(&topic, id, index, entry) } else { Err(text(entry)) };
                    if let Err(found) = claim {
                        let expected = format!("a record with offset {index}, or no entry");
                        let mut fault = fault("queue entry", &path, index * UNIT as u64 - base, 1, &expected, &found);
                        fault.queue = Some((topic.to_string(), id));
                        faults.push(fault);
                    }
                }
                at += size.max(UNIT) as u64;
            }
        }
    }

    /// The log has ended: tell what is missing for good, and look at all that wasn't claimed. The number of queues.
    pub fn finish(&mut self, behind: Option<u64>, faults: &mut Faults) -> Result<u64> {
        (0..self.known.len()).for_each(|slot| self.compare(slot, faults));
        let mut count = 0;
        let root = self.queues.files.root.clone();
        let topics = if root.exists() { directories(&root)? } else { Vec::new() };
        for (topic, path) in topics {
            for (id, directory) in directories(&path)? {
                let Ok(id) = id.parse::<i32>() else { continue };
                let Some(slot) = self.queues.slot_or_new(topic.as_bytes(), id).filter(|_| id >= 0) else { continue };
                if self.known.len() <= slot {
                    self.known.resize_with(slot + 1, Known::default);
                }
                check_files(self.queues.files.file_size, &directory, (&topic, id), faults);
                count += 1;
            }
        }
        for slot in 0..self.known.len() {
            if let Some(missing) = self.known[slot].missing.take() {
                self.tell_missing(slot, &missing, faults);
            }
            let (first, max) = (self.known[slot].first, self.known[slot].max);
            self.unclaimed(slot, 0, first, behind, faults);
            self.unclaimed(slot, max, u64::MAX / UNIT as u64, behind, faults);
        }
        Ok(count)
    }
}

/// Whether the files of a queue have their size, and follow each other.
pub fn check_files(file_size: u64, directory: &Path, (topic, id): (&str, i32), faults: &mut Faults) {
    let mut next = None;
    for (base, size) in files_of(directory) {
        let path = mapped_file::path(directory, base);
        let mut tell = |expected: &str, found: &str| {
            let queue = Some((topic.to_owned(), id));
            faults.push(Fault { queue, ..fault("queue file", &path, 0, 1, expected, found) });
        };
        if size != file_size {
            tell(&format!("{file_size} bytes"), &format!("{size}"));
        }
        if base % file_size != 0 || next.is_some_and(|next| next != base) {
            tell(&format!("a file that begins at {}", next.unwrap_or(base - base % file_size)), &format!("{base}"));
        }
        next = Some(base + file_size);
    }
}

/// First byte and size of each file of a queue.
pub fn files_of(directory: &Path) -> Vec<(u64, u64)> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if let Some(base) = entry.file_name().to_str().and_then(mapped_file::base_of) {
            files.push((base, entry.metadata().map_or(0, |metadata| metadata.len())));
        }
    }
    files.sort_unstable();
    files
}

fn text(entry: Entry) -> String {
    format!("position {}, size {}, tags {}", entry.position, entry.size, entry.tags)
}
