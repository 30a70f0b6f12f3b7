//! Whether batch queues agree with the log: each record has its unit, and each unit leads to its record.
//!
//! Units lead into the log in order, as records come, so a queue is gone through once, side by side with the log. A record
//! without a unit may be one of a topic that was deleted: when the topic begins again behind it, it is.

use std::{
    collections::{HashMap, HashSet},
    mem,
};

use crate::{
    batch_queue::{self, is_batch, Unit, UNIT},
    check_queues::{check_files, files_of},
    error::Result,
    mapped_file,
    queue_files::QueueFiles,
    record::Record,
    replay::directories,
    walk::{fault, Faults},
};

/// Units read at a time.
const BLOCK: u64 = 64;

/// How far the units of a queue are claimed by records.
#[derive(Default)]
struct Queue {
    /// Numbers of the first unit that isn't claimed, and of the one behind the last file.
    next: u64,
    end: u64,
    block_start: u64,
    block: Vec<u8>,
    /// Where the record of the last unit begins, and the offset behind the last record's messages.
    last: i64,
    offset: u64,
    missing: Option<Missing>,
}

/// Records in a row without a unit.
struct Missing {
    at: u64,
    count: u64,
    expected: Unit,
}

pub struct BatchCheck {
    files: QueueFiles,
    topics: HashSet<Box<[u8]>>,
    queues: HashMap<(String, i32), Queue>,
    log_min: u64,
    pub units: u64,
}

impl BatchCheck {
    /// The log begins at `log_min`; units that lead below are of deleted files.
    pub fn new(files: QueueFiles, log_min: u64) -> Result<Self> {
        let topics = batch_queue::topics(&files.root)?;
        Ok(Self { files, topics, queues: HashMap::new(), log_min, units: 0 })
    }

    pub fn takes(&self, record: &Record<'_>) -> bool {
        is_batch(record, &self.topics)
    }

    pub fn put(&mut self, record: &Record<'_>, faults: &mut Faults) {
        let (Some(expected), Ok(topic)) = (Unit::of(record), std::str::from_utf8(record.topic)) else { return };
        let key = (topic.to_owned(), record.queue_id);
        let mut queue = self.queues.remove(&key).unwrap_or_else(|| self.begin(&key));
        self.units += 1;
        if (expected.first as u64) < queue.offset {
            // The topic was deleted and has begun again: what the log has of its first life needs no units any more.
            queue.missing = None;
        }
        queue.offset = expected.next();
        self.claim(&key, &mut queue, expected, faults);
        self.queues.insert(key, queue);
    }

    fn begin(&self, (topic, id): &(String, i32)) -> Queue {
        let files = files_of(&self.files.directory(topic, *id));
        let number = |base: u64| base / UNIT as u64;
        let next = files.first().map_or(0, |&(base, _)| number(base));
        let end = files.last().map_or(0, |&(base, _)| number(base + self.files.file_size));
        Queue { next, end, block_start: next, last: -1, ..Queue::default() }
    }

    /// Find the unit that a record should have.
    fn claim(&self, key: &(String, i32), queue: &mut Queue, expected: Unit, faults: &mut Faults) {
        while let Some(bytes) = self.unit(key, queue, queue.next, faults) {
            let found = Unit::read(&bytes);
            let Some(found) = found.filter(|found| found.entry.position > queue.last) else {
                if bytes == [0; UNIT] {
                    break;
                }
                // No unit, or one out of order.
                return self.differs(key, queue, &text(expected), &describe(&bytes), faults);
            };
            if found == expected {
                (queue.last, queue.next) = (found.entry.position, queue.next + 1);
                return;
            }
            if found.entry.position == expected.entry.position {
                queue.last = found.entry.position;
                return self.differs(key, queue, &text(expected), &text(found), faults);
            }
            if found.entry.position > expected.entry.position {
                // Perhaps its record comes later. If that of the next unit comes before, it doesn't.
                let behind = self.unit(key, queue, queue.next + 1, faults).and_then(|bytes| Unit::read(&bytes));
                if behind.is_some_and(|behind| behind.entry.position <= found.entry.position) {
                    return self.differs(key, queue, &text(expected), &text(found), faults);
                }
                break;
            }
            self.unclaimed(key, queue, found, faults);
        }
        match &mut queue.missing {
            Some(missing) if missing.at == queue.next => missing.count += 1,
            missing => {
                let before = missing.replace(Missing { at: queue.next, count: 1, expected });
                before.into_iter().for_each(|before| self.tell_missing(key, &before, faults));
            }
        }
    }

    /// The bytes of unit number `index`; None behind the queue's files, and where nothing can be read.
    fn unit(
        &self,
        (topic, id): &(String, i32),
        queue: &mut Queue,
        index: u64,
        faults: &mut Faults,
    ) -> Option<[u8; UNIT]> {
        if index >= queue.end {
            return None;
        }
        let at = |queue: &Queue| index.checked_sub(queue.block_start).map(|at| at as usize * UNIT);
        if at(queue).is_none_or(|at| at + UNIT > queue.block.len()) {
            queue.block_start = index;
            queue.block = match self.files.read(topic, *id, index, BLOCK) {
                Ok(block) => block,
                Err(error) => {
                    let (path, byte) = self.place(topic, *id, index);
                    faults.push(fault("unreadable", &path, byte, 1, "queue entries", &error.to_string()));
                    Vec::new()
                }
            };
        }
        let at = at(queue)?;
        queue.block.get(at..at + UNIT)?.try_into().ok()
    }

    /// The unit at `queue.next` belongs to no record.
    fn unclaimed(&self, key: &(String, i32), queue: &mut Queue, found: Unit, faults: &mut Faults) {
        queue.last = found.entry.position;
        if (found.entry.position as u64) < self.log_min {
            queue.next += 1;
            return;
        }
        let expected = format!("a record with offset {}, or no entry", found.first);
        self.differs(key, queue, &expected, &text(found), faults);
    }

    /// The unit at `queue.next` is another than it should be.
    fn differs(
        &self,
        (topic, id): &(String, i32),
        queue: &mut Queue,
        expected: &str,
        found: &str,
        faults: &mut Faults,
    ) {
        let (path, byte) = self.place(topic, *id, queue.next);
        let mut fault = fault("queue entry", &path, byte, 1, expected, found);
        fault.queue = Some((topic.clone(), *id));
        faults.push(fault);
        queue.next += 1;
    }

    fn tell_missing(&self, (topic, id): &(String, i32), missing: &Missing, faults: &mut Faults) {
        let (path, byte) = self.place(topic, *id, missing.at);
        let expected = format!("{} entries, the first with {}", missing.count, text(missing.expected));
        let found = if path.exists() { "nothing" } else { "no file" };
        let mut fault = fault("queue missing", &path, byte, missing.count as usize, &expected, found);
        fault.queue = Some((topic.clone(), *id));
        faults.push(fault);
    }

    /// File and byte of a unit.
    fn place(&self, topic: &str, id: i32, index: u64) -> (std::path::PathBuf, u64) {
        let at = index * UNIT as u64;
        let base = at - at % self.files.file_size;
        (mapped_file::path(&self.files.directory(topic, id), base), at - base)
    }

    /// The log has ended: look at all units that no record has claimed, but for those from position `behind` on, which are of
    /// a time after the check began, and tell what is missing for good. The number of queues.
    pub fn finish(&mut self, behind: Option<u64>, faults: &mut Faults) -> Result<u64> {
        let mut count = 0;
        let topics = if self.files.root.is_dir() { directories(&self.files.root)? } else { Vec::new() };
        for (topic, path) in topics {
            for (id, directory) in directories(&path)? {
                let Ok(id) = id.parse::<i32>() else { continue };
                check_files(self.files.file_size, &directory, (&topic, id), faults);
                let key = (topic.clone(), id);
                if !self.queues.contains_key(&key) {
                    self.queues.insert(key.clone(), self.begin(&key));
                }
                count += 1;
            }
        }
        for (key, mut queue) in mem::take(&mut self.queues) {
            self.rest(&key, &mut queue, behind, faults);
            queue.missing.take().into_iter().for_each(|missing| self.tell_missing(&key, &missing, faults));
        }
        Ok(count)
    }

    fn rest(&self, key: &(String, i32), queue: &mut Queue, behind: Option<u64>, faults: &mut Faults) {
        while let Some(bytes) = self.unit(key, queue, queue.next, faults).filter(|bytes| *bytes != [0; UNIT]) {
            match Unit::read(&bytes) {
                Some(found) if behind.is_some_and(|behind| found.entry.position as u64 >= behind) => return,
                Some(found) => self.unclaimed(key, queue, found, faults),
                None => self.differs(key, queue, "a record of its own, or no entry", &describe(&bytes), faults),
            }
        }
    }
}

fn text(unit: Unit) -> String {
    let Unit { entry, timestamp, first, count } = unit;
    format!(
        "position {}, size {}, tags {}, stored {timestamp}, offset {first}, {count} messages",
        entry.position, entry.size, entry.tags
    )
}

fn describe(bytes: &[u8; UNIT]) -> String {
    Unit::read(bytes).map_or_else(|| format!("no unit: {}", bytes[..20].escape_ascii()), text)
}
