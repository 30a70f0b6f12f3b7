//! Reading messages of a queue: the answer to a pull, by Apache's rules.
//!
//! The queue's end for a caller is the first entry whose record ends behind the caller's limit, so that nobody is given
//! what a crash could still take back. Entries come from memory where they can; otherwise blocks of them are read from the
//! queue's file with the lock let go. An expression is evaluated without the lock, so that others send and read meanwhile.

use std::sync::Arc;

use crate::{
    batch_queue::View,
    commit_log::CommitLog,
    consume_queue::{Block, Entry, Queue, Queues, UNIT},
    error::{At, Result},
    filter::Filter,
    mapped_file::MappedFile,
    properties, record,
    state::Shared,
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
/// The same with an expression: to ask once more costs as much time as to look at some hundreds.
const EXAMINED_FILTERED_MIN: u64 = 4096;
/// Entries read from a file at a time.
const BLOCK: u64 = 1024;

/// The time of so many instructions that filters, of tags too, take in one call, or one message more.
const FILTERING_MAX: usize = 1 << 18;
/// Bytes of a line of the processor's cache, and how many at the end of a record are fetched for a filter.
const LINE: usize = 64;
const LINES_FILTERED: usize = 3;
/// Where a record with addresses of four bytes says how long its body is, to get to what is behind.
const BODY_SIZE_AT: usize = record::BODY_AT + 2 * 8 - 4;

/// How many entries ahead the record of an entry is fetched from memory, where it mostly isn't in any cache; a filter is
/// through with one sooner than a copy.
const AHEAD: u64 = 6;
const AHEAD_FILTERED: u64 = 16;

pub struct Request<'r> {
    pub topic: &'r str,
    pub queue_id: i32,
    pub offset: i64,
    pub count_max: u64,
    pub bytes_max: u64,
    pub limit: u64,
    pub tags: Option<&'r [i32]>,
    pub filter: Option<&'r Filter>,
    pub far: Option<Far>,
}

/// Bounds of a read far behind the log's end, where records have to be read from the disk.
#[derive(Clone, Copy)]
pub struct Far {
    /// So many bytes at the log's end are taken to be in memory.
    pub behind: u64,
    pub count_max: u64,
    pub bytes_max: u64,
}

impl Request<'_> {
    fn examined_max(&self) -> u64 {
        self.count_max.max(if self.filter.is_some() { EXAMINED_FILTERED_MIN } else { EXAMINED_MIN })
    }

    /// Whether what there is already leaves no room for an entry, `behind` bytes behind the log's end.
    fn is_full(&self, count: u64, bytes: u64, behind: u64) -> bool {
        let is_over = |count_max, bytes_max| count > count_max || bytes > bytes_max;
        let far = self.far.filter(|far| behind > far.behind);
        is_over(self.count_max, self.bytes_max) || far.is_some_and(|far| is_over(far.count_max, far.bytes_max))
    }
}

/// Neighbouring records of one file.
pub struct Run {
    /// Its place in `Got::files`.
    pub file: usize,
    pub at: usize,
    pub size: usize,
}

pub struct Got {
    pub status: u8,
    pub next: u64,
    pub min: u64,
    pub max: u64,
    pub count: u64,
    /// Bytes from the last record that was looked at to the log's end.
    pub behind: u64,
    pub files: Vec<Arc<MappedFile>>,
    pub runs: Vec<Run>,
}

impl Got {
    fn none(status: u8, next: u64, min: u64, max: u64) -> Self {
        Self { status, next, min, max, count: 0, behind: 0, files: Vec::new(), runs: Vec::new() }
    }

    pub fn bytes(&self, run: &Run) -> &[u8] {
        &self.files[run.file].read(run.at)[..run.size]
    }
}

pub fn get(shared: &Shared, request: &Request<'_>) -> Result<Got> {
    let mut state = shared.state();
    let slot = state.queues.slot(request.topic.as_bytes(), request.queue_id);
    let queue = slot.and_then(|slot| state.queues.queue(slot).filter(|queue| queue.exists));
    let (Some(slot), Some(queue)) = (slot, queue) else {
        let view = state.batch_queues.existing(request.topic, request.queue_id).cloned();
        drop(state);
        return match view {
            Some(view) => units(shared, request, &view),
            None => Ok(Got::none(status::NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)),
        };
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
    let last = max.min(offset.saturating_add(request.examined_max()));
    let serial = queue.serial;
    let mut scan = Scan {
        request,
        got: Got::none(status::NO_MATCHED_MESSAGE, offset, min, max),
        log_end: state.log.max(),
        bytes: 0,
        filtering: 0,
        skip_below: 0,
        block: state.queues.block(slot, offset),
        last: None,
    };
    // A topic deleted meanwhile may have left its slot to another.
    let same = |queue: &&Queue| queue.serial == serial;
    while let Some(queue) = state.queues.queue(slot).filter(same) {
        let is_done = if request.filter.is_some() {
            drop(state);
            let is_done = scan.step(&Log::Free(shared), None, last);
            state = shared.state();
            is_done
        } else {
            scan.step(&Log::Held(&state.log), Some(queue), last)
        };
        if is_done {
            scan.got.behind = scan.last.map_or(0, |last| last.behind(scan.log_end));
            break;
        }
        let Some(queue) = state.queues.queue(slot).filter(same) else { break };
        if let Some(block) = request.filter.and_then(|_| queue.copied(slot, scan.got.next, last)) {
            scan.block = Some(block);
            continue;
        }
        // What is in no file yet is in memory; its place in the file must not be taken for it.
        let index = scan.got.next;
        let count = BLOCK.min(last.min(queue.written).saturating_sub(index));
        let files = Arc::clone(&state.queues.files);
        drop(state);
        let entries = files.read(request.topic, request.queue_id, index, count);
        let entries = entries.at("read a queue in", &files.directory(request.topic, request.queue_id))?;
        if entries.is_empty() {
            if scan.got.count == 0 && index == offset {
                let per_file = files.file_size / UNIT as u64;
                scan.got.status = status::OFFSET_FOUND_NULL;
                scan.got.next = (index - index % per_file + per_file).min(max);
            }
            break;
        }
        state = shared.state();
        scan.block = Some(state.queues.set_block(slot, serial, index, entries));
    }
    Ok(scan.got)
}

/// The same of a batch queue: records go out whole, with those of their messages that are before the offset asked for.
fn units(shared: &Shared, request: &Request<'_>, view: &View) -> Result<Got> {
    let (min, max) = (view.min, view.end_below(request.limit)?);
    let offset = match u64::try_from(request.offset) {
        Ok(offset) if offset >= min => offset,
        _ => return Ok(Got::none(status::OFFSET_TOO_SMALL, min, min, max)),
    };
    if offset >= max {
        let status = if offset == max { status::OFFSET_OVERFLOW_ONE } else { status::OFFSET_OVERFLOW_BADLY };
        return Ok(Got::none(status, max, min, max));
    }
    let got = Got::none(status::NO_MATCHED_MESSAGE, offset, min, max);
    let log_end = shared.state().log.max();
    let mut scan = Scan { request, got, log_end, bytes: 0, filtering: 0, skip_below: 0, block: None, last: None };
    let mut index = view.holding(offset)?;
    let last = index.saturating_add(request.examined_max());
    while index < last && scan.got.next < max {
        let units = view.read(index, last - index)?;
        if units.is_empty() {
            break;
        }
        index += units.len() as u64;
        let state = shared.state();
        for unit in units.iter().take_while(|unit| unit.next() <= max) {
            let size = unit.entry.size as u64;
            let behind = unit.entry.behind(scan.log_end);
            let is_full = request.is_full(scan.got.count + unit.count as u64, scan.bytes + size, behind);
            if scan.got.count > 0 && is_full || scan.filtering > FILTERING_MAX {
                return Ok(scan.got);
            }
            scan.got.next = unit.next();
            scan.got.behind = behind;
            let before = scan.got.count;
            if request.tags.is_none_or(|tags| unit.entry.may_have(tags)) {
                scan.take(&Log::Held(&state.log), unit.entry);
            }
            if scan.got.count > before {
                scan.got.count += unit.count as u64 - 1;
            }
        }
    }
    Ok(scan.got)
}

/// The log, for who has the lock, and for who takes it when he comes to another file.
enum Log<'l> {
    Held(&'l CommitLog),
    Free(&'l Shared),
}

impl Log<'_> {
    fn locate(&self, position: u64) -> Option<(Arc<MappedFile>, usize)> {
        let found = |log: &CommitLog| log.locate(position).map(|(file, at)| (Arc::clone(file), at));
        match self {
            Self::Held(log) => found(log),
            Self::Free(shared) => found(&shared.state().log),
        }
    }

    /// Where the file behind the one with `position` begins, if that one is gone.
    fn behind_gone(&self, position: u64) -> Option<u64> {
        let behind = |log: &CommitLog| (position < log.min()).then(|| log.next_file(position));
        match self {
            Self::Held(log) => behind(log),
            Self::Free(shared) => behind(&shared.state().log),
        }
    }
}

struct Scan<'r> {
    request: &'r Request<'r>,
    got: Got,
    log_end: u64,
    bytes: u64,
    /// What the filter has cost.
    filtering: usize,
    /// Entries that point below this are gone with their file.
    skip_below: u64,
    block: Option<Block>,
    /// The entry looked at last.
    last: Option<Entry>,
}

impl Scan<'_> {
    /// Go on to `last`; false when the next entry is neither in the queue's memory nor in the block.
    fn step(&mut self, log: &Log<'_>, queue: Option<&Queue>, last: u64) -> bool {
        while self.got.next < last {
            let index = self.got.next;
            let Some(entry) = self.entry(queue, index) else { return false };
            let size = if entry.is_real() { entry.size as u64 } else { 0 };
            let behind = entry.behind(self.log_end);
            let is_full = self.request.is_full(self.got.count + 1, self.bytes + size, behind);
            if self.got.count > 0 && is_full || self.filtering > FILTERING_MAX {
                return true;
            }
            self.got.next += 1;
            self.last = Some(entry);
            if entry.position >= 0 && (entry.position as u64) < self.skip_below {
                continue;
            }
            if entry.is_real() && self.request.tags.is_some_and(|tags| !entry.may_have(tags)) {
                continue;
            }
            let distance = if self.request.filter.is_some() { AHEAD_FILTERED } else { AHEAD };
            if let (Some(ahead), Some(file)) = (self.entry(queue, index + distance), self.got.files.last()) {
                let at = (ahead.position as u64).wrapping_sub(file.base) as usize;
                file.prefetch(at);
                if self.request.filter.is_some() {
                    file.prefetch(at.wrapping_add(BODY_SIZE_AT));
                    let last = at.wrapping_add(ahead.size as usize).wrapping_sub(1);
                    (0..LINES_FILTERED).for_each(|line| file.prefetch(last.wrapping_sub(line * LINE)));
                }
            }
            self.take(log, entry);
        }
        true
    }

    #[inline]
    fn entry(&self, queue: Option<&Queue>, index: u64) -> Option<Entry> {
        queue.and_then(|queue| queue.cached(index)).or_else(|| self.block.as_ref()?.entry(index))
    }

    /// The file that holds `position`, nearly always the one before it, and where in it.
    fn locate(&mut self, log: &Log<'_>, position: u64) -> Option<(usize, usize)> {
        let files = &mut self.got.files;
        let at = files.last().and_then(|file| usize::try_from(position.checked_sub(file.base)?).ok());
        if let Some(at) = at.filter(|&at| files.last().is_some_and(|file| at < file.size())) {
            return Some((files.len() - 1, at));
        }
        let (file, at) = log.locate(position)?;
        files.push(file);
        Some((files.len() - 1, at))
    }

    /// Whether a record is wanted by its tags; only asked where its entry doesn't tell them.
    #[cold]
    fn has_wanted_tags(&mut self, file: usize, at: usize, size: usize) -> bool {
        let Some(tags) = self.request.tags else { return true };
        let properties = record::properties(&self.got.files[file].read(at)[..size]).unwrap_or_default();
        self.filtering += properties.len();
        tags.contains(&(properties::tags_code(properties::keys(properties).tags) as i32))
    }

    fn take(&mut self, log: &Log<'_>, entry: Entry) {
        let (position, size) = (entry.position as u64, entry.size as usize);
        let place = if entry.is_real() { self.locate(log, position) } else { None };
        let place = place.filter(|&(file, at)| {
            let bytes = self.got.files[file].read(at);
            record::is_record(bytes, size, position) && bytes.len() >= size
        });
        let Some((file, at)) = place else {
            if self.got.count == 0 {
                self.got.status = status::MESSAGE_WAS_REMOVING;
            }
            if let Some(behind) = log.behind_gone(position).filter(|_| entry.is_real()) {
                self.skip_below = behind;
            }
            return;
        };
        if entry.is_extended() && !self.has_wanted_tags(file, at, size) {
            return;
        }
        if let Some(filter) = self.request.filter {
            let properties = record::properties(&self.got.files[file].read(at)[..size]).unwrap_or_default();
            self.filtering += filter.cost(properties);
            if !filter.matches(properties) {
                return;
            }
        }
        self.bytes += size as u64;
        let got = &mut self.got;
        got.status = status::FOUND;
        got.count += 1;
        match got.runs.last_mut() {
            Some(run) if run.file == file && run.at + run.size == at => run.size += size,
            _ => got.runs.push(Run { file, at, size }),
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

/// (offset, entry) of a queue from `offset` on, at most `count_max`, as far as records end at or below `limit`; of a batch
/// queue the units, by the offset of their first message.
pub fn entries(
    shared: &Shared,
    topic: &str,
    queue_id: i32,
    offset: u64,
    count_max: u64,
    limit: u64,
) -> Result<Vec<(u64, Entry)>> {
    let mut found = Vec::new();
    let mut at = offset;
    while (found.len() as u64) < count_max {
        // One by one, so that nobody waits long for the lock: it may be a read of a file.
        let state = shared.state();
        if let Some(view) = state.batch_queues.existing(topic, queue_id).cloned() {
            drop(state);
            return unit_entries(&view, offset, count_max, limit);
        }
        let Some(queue) = state.queues.existing(topic, queue_id) else { break };
        at = at.max(queue.min);
        if at >= queue.next {
            break;
        }
        match state.queues.entry(queue, at) {
            Some(entry) if !entry.is_real() || entry.end() <= limit => found.push((at, entry)),
            _ => break,
        }
        at += 1;
    }
    Ok(found)
}

fn unit_entries(view: &View, offset: u64, count_max: u64, limit: u64) -> Result<Vec<(u64, Entry)>> {
    let mut index = view.holding(offset.max(view.min))?;
    let mut found = Vec::new();
    while (found.len() as u64) < count_max {
        let units = view.read(index, count_max - found.len() as u64)?;
        if units.is_empty() {
            break;
        }
        index += units.len() as u64;
        found.extend(units.iter().map(|unit| (unit.first as u64, unit.entry)));
    }
    found.retain(|(_, entry)| entry.end() <= limit);
    Ok(found)
}

/// When a message was stored; -1 when it isn't there.
pub fn store_timestamp(shared: &Shared, topic: &str, queue_id: i32, offset: i64) -> i64 {
    let state = shared.state();
    if let Some(view) = state.batch_queues.existing(topic, queue_id).cloned() {
        drop(state);
        return unit_timestamp(shared, &view, offset).unwrap_or(-1);
    }
    let timestamp = || {
        let queue = state.queues.existing(topic, queue_id)?;
        let offset = u64::try_from(offset).ok().filter(|&offset| offset >= queue.min)?;
        state.timestamp_of(state.queues.entry(queue, offset)?)
    };
    timestamp().unwrap_or(-1)
}

fn unit_timestamp(shared: &Shared, view: &View, offset: i64) -> Option<i64> {
    let offset = u64::try_from(offset).ok().filter(|offset| (view.min..view.next).contains(offset))?;
    let unit = view.unit(view.holding(offset).ok()?).ok()??;
    shared.state().timestamp_of(unit.entry)
}

/// The offset for a time. LOWER is the first message stored at or after it, or the queue's end; UPPER the last one stored
/// at or before it, or the queue's beginning.
pub fn offset_by_time(shared: &Shared, topic: &str, queue_id: i32, timestamp: i64, upper: bool) -> u64 {
    let state = shared.state();
    if let Some(view) = state.batch_queues.existing(topic, queue_id).cloned() {
        drop(state);
        // What can't be read is asked for again by the pull, which has an error for it.
        return view.offset_by_time(timestamp, upper).unwrap_or(view.min);
    }
    let Some(queue) = state.queues.existing(topic, queue_id) else { return 0 };
    let time = |entry| state.timestamp_of(entry).unwrap_or(-1);
    if upper {
        state.queues.search(queue, |entry| time(entry) <= timestamp).saturating_sub(1).max(queue.min)
    } else {
        state.queues.search(queue, |entry| time(entry) < timestamp)
    }
}
