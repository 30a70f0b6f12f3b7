//! Reading messages of a queue: the answer to a pull, by Apache's rules.
//!
//! The queue's end for a caller is the first entry whose record ends behind the caller's limit, so that nobody is given
//! what a crash could still take back. Entries come from memory where they can; otherwise blocks of them are read from the
//! queue's file with the lock let go.

use std::sync::Arc;

use crate::{
    consume_queue::{Entry, Queue, Queues, UNIT},
    error::{At, Result},
    mapped_file::MappedFile,
    record,
    state::{Shared, State},
};

/// Values of Java's GetMessageStatus.
pub mod status {
    pub const FOUND: u8 = 0;
    pub const NO_MATCHED_MESSAGE: u8 = 1;
    pub const MESSAGE_WAS_REMOVING: u8 = 2;
    pub const OFFSET_FOUND_NULL: u8 = 3;
    pub const OFFSET_OVERFLOW_BADLY: u8 = 4;
    pub const OFFSET_OVERFLOW_ONE: u8 = 5;
    pub const OFFSET_TOO_SMALL: u8 = 6;
    pub const NO_MATCHED_LOGIC_QUEUE: u8 = 7;
    pub const NO_MESSAGE_IN_QUEUE: u8 = 8;
}

/// Entries looked at in one call, unless more messages are asked for.
const EXAMINED_MIN: u64 = 800;
/// Entries read from a file at a time.
const BLOCK: u64 = 1024;

pub struct Request<'r> {
    pub topic: &'r str,
    pub queue_id: i32,
    pub offset: i64,
    pub count_max: u64,
    pub bytes_max: u64,
    pub limit: u64,
    pub tags: Option<&'r [i32]>,
}

/// Neighbouring records of one file.
pub struct Run {
    pub file: Arc<MappedFile>,
    pub at: usize,
    pub size: usize,
}

impl Run {
    pub fn bytes(&self) -> &[u8] {
        &self.file.read(self.at)[..self.size]
    }
}

pub struct Got {
    pub status: u8,
    pub next: u64,
    pub min: u64,
    pub max: u64,
    pub count: u64,
    pub runs: Vec<Run>,
}

impl Got {
    fn none(status: u8, next: u64, min: u64, max: u64) -> Self {
        Self { status, next, min, max, count: 0, runs: Vec::new() }
    }
}

pub fn get(shared: &Shared, request: &Request<'_>) -> Result<Got> {
    let mut state = shared.state();
    let Some(queue) = state.queues.existing(request.topic, request.queue_id) else {
        return Ok(Got::none(status::NO_MATCHED_LOGIC_QUEUE, 0, 0, 0));
    };
    let (min, max) = (queue.min, end_below(&state.queues, queue, request.limit));
    if queue.next == 0 {
        return Ok(Got::none(status::NO_MESSAGE_IN_QUEUE, 0, min, max));
    }
    let offset = match u64::try_from(request.offset) {
        Ok(offset) if offset >= min => offset,
        _ => return Ok(Got::none(status::OFFSET_TOO_SMALL, min, min, max)),
    };
    if offset == max {
        return Ok(Got::none(status::OFFSET_OVERFLOW_ONE, offset, min, max));
    }
    if offset > max {
        return Ok(Got::none(status::OFFSET_OVERFLOW_BADLY, max, min, max));
    }
    let last = max.min(offset.saturating_add(request.count_max.max(EXAMINED_MIN)));
    let mut scan = Scan {
        request,
        got: Got::none(status::NO_MATCHED_MESSAGE, offset, min, max),
        bytes: 0,
        skip_below: 0,
        block: (0, Vec::new()),
    };
    while !scan.step(&state, last) {
        let (files, index) = (Arc::clone(&state.queues.files), scan.got.next);
        drop(state);
        let entries = files.read(request.topic, request.queue_id, index, BLOCK.min(last - index));
        let entries = entries.at("read a queue in", &files.directory(request.topic, request.queue_id))?;
        if entries.is_empty() {
            if scan.got.count == 0 && index == offset {
                let per_file = files.file_size / UNIT as u64;
                scan.got.status = status::OFFSET_FOUND_NULL;
                scan.got.next = (index - index % per_file + per_file).min(max);
            }
            break;
        }
        scan.block = (index, entries);
        state = shared.state();
    }
    Ok(scan.got)
}

struct Scan<'r> {
    request: &'r Request<'r>,
    got: Got,
    bytes: u64,
    /// Entries that point below this are gone with their file.
    skip_below: u64,
    block: (u64, Vec<u8>),
}

impl Scan<'_> {
    /// Go on to `last`; false when the next entry has to be read from a file first.
    fn step(&mut self, state: &State, last: u64) -> bool {
        let queue = state.queues.existing(self.request.topic, self.request.queue_id);
        while self.got.next < last {
            let index = self.got.next;
            let cached = queue.and_then(|queue| queue.cached(index));
            let Some(entry) = cached.or_else(|| self.in_block(index)) else { return false };
            let size = if entry.is_real() { entry.size as u64 } else { 0 };
            let is_full = self.got.count >= self.request.count_max || self.bytes + size > self.request.bytes_max;
            if self.got.count > 0 && is_full {
                return true;
            }
            self.got.next += 1;
            if entry.position >= 0 && (entry.position as u64) < self.skip_below {
                continue;
            }
            // Java compares the code as an i32 as well.
            if entry.is_real() && self.request.tags.is_some_and(|tags| !tags.contains(&(entry.tags as i32))) {
                continue;
            }
            self.take(state, entry);
        }
        true
    }

    fn in_block(&self, index: u64) -> Option<Entry> {
        let at = usize::try_from(index.checked_sub(self.block.0)?).ok()?;
        Entry::read(self.block.1.get(at.checked_mul(UNIT)?..)?)
    }

    fn take(&mut self, state: &State, entry: Entry) {
        let (position, size) = (entry.position as u64, entry.size as usize);
        let place = if entry.is_real() { state.log.locate(position) } else { None };
        let place = place.filter(|(file, at)| record::is_record(file.read(*at), size, position));
        let Some((file, at)) = place.filter(|(file, at)| file.read(*at).len() >= size) else {
            if self.got.count == 0 {
                self.got.status = status::MESSAGE_WAS_REMOVING;
            }
            if entry.is_real() && position < state.log.min() {
                self.skip_below = state.log.next_file(position);
            }
            return;
        };
        self.got.status = status::FOUND;
        self.got.count += 1;
        self.bytes += size as u64;
        match self.got.runs.last_mut() {
            Some(run) if Arc::ptr_eq(&run.file, file) && run.at + run.size == at => run.size += size,
            _ => self.got.runs.push(Run { file: Arc::clone(file), at, size }),
        }
    }
}

/// The first index whose record doesn't end at or below `limit`.
fn end_below(queues: &Queues, queue: &Queue, limit: u64) -> u64 {
    if queue.last_end <= limit {
        return queue.next;
    }
    let is_below = |entry: Entry| !entry.is_real() || entry.end() <= limit;
    // What isn't forced yet is at most some messages old, and so in memory.
    let in_memory = queue.tail_start().max(queue.min);
    let low = if queue.cached(in_memory).is_some_and(is_below) { in_memory } else { queue.min };
    queues.search_from(queue, low, is_below)
}

/// The record at a position.
pub fn read(shared: &Shared, position: u64) -> Option<Run> {
    let state = shared.state();
    let (file, at) = state.log.locate(position)?;
    let bytes = file.read(at);
    let size = usize::try_from(record::int_at(bytes, 0)?).ok()?;
    let is_whole = record::is_record(bytes, size, position) && size <= bytes.len();
    is_whole.then(|| Run { file: Arc::clone(file), at, size })
}

/// When a message was stored; -1 when it isn't there.
pub fn store_timestamp(shared: &Shared, topic: &str, queue_id: i32, offset: i64) -> i64 {
    let state = shared.state();
    let timestamp = || {
        let queue = state.queues.existing(topic, queue_id)?;
        let offset = u64::try_from(offset).ok().filter(|&offset| offset >= queue.min)?;
        state.timestamp_of(state.queues.entry(queue, offset)?)
    };
    timestamp().unwrap_or(-1)
}

/// The offset for a time. LOWER is the first message stored at or after it, or the queue's end; UPPER the last one stored
/// at or before it, or the queue's beginning.
pub fn offset_by_time(shared: &Shared, topic: &str, queue_id: i32, timestamp: i64, upper: bool) -> u64 {
    let state = shared.state();
    let Some(queue) = state.queues.existing(topic, queue_id) else { return 0 };
    let time = |entry| state.timestamp_of(entry).unwrap_or(-1);
    if upper {
        state.queues.search(queue, |entry| time(entry) <= timestamp).saturating_sub(1).max(queue.min)
    } else {
        state.queues.search(queue, |entry| time(entry) < timestamp)
    }
}
