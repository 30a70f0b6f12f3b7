//! Batch queues (BatchConsumeQueue.java): where the messages of a topic with `queue.type=BatchCQ` lie in the log. A unit for
//! each record, which may be an inner batch of many messages; fixed size, big-endian:
//!
//! ```text
//!     0  i64  position in the log     20  i64  store timestamp                36  i16  messages in it
//!     8  i32  size of the record      28  i64  offset of its first message    38  i32  compacted offset, -1
//!    12  i64  tags code                                                       42  i32  0
//! ```
//!
//! Unit n is at byte 46·n, and offsets grow by the messages of each, so an offset is found by a binary search. Files are named
//! by the byte they start at. Which topics have such queues is what directories there are.
//!
//! Such topics are few, and a unit may be a thousand messages, so nothing is kept for readers: they read the files, without
//! the store's lock. What isn't in a file yet is in memory, until `flush_queues` writes it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    sync::Arc,
};

use crate::{
    consume_queue::{Entry, PENDING_MAX},
    error::{At, Result},
    properties,
    queue_files::{Forcing, QueueFiles},
    record::{self, Record},
    replay::{directories, end_queue},
};

pub const UNIT: usize = 46;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    pub entry: Entry,
    pub timestamp: i64,
    pub first: i64,
    pub count: i16,
}

impl Unit {
    pub fn new(entry: Entry, timestamp: i64, first: u64, count: i16) -> Self {
        Self { entry, timestamp, first: first as i64, count }
    }

    /// The unit at the beginning of `bytes`; None where there is none, as Apache's recovery sees it.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let entry = Entry::read(bytes)?;
        let (timestamp, first) = (record::long_at(bytes, 20)?, record::long_at(bytes, 28)?);
        let count = i16::from_be_bytes(bytes.get(36..38)?.try_into().ok()?);
        (entry.is_real() && first >= 0 && count > 0).then_some(Self { entry, timestamp, first, count })
    }

    pub fn bytes(&self) -> [u8; UNIT] {
        let mut bytes = [0; UNIT];
        bytes[..20].copy_from_slice(&self.entry.bytes());
        bytes[20..28].copy_from_slice(&self.timestamp.to_be_bytes());
        bytes[28..36].copy_from_slice(&self.first.to_be_bytes());
        bytes[36..38].copy_from_slice(&self.count.to_be_bytes());
        bytes[38..42].copy_from_slice(&(-1i32).to_be_bytes());
        bytes
    }

    /// The unit of a record, if it has a place in a queue.
    pub fn of(record: &Record<'_>) -> Option<Self> {
        if !record::is_queued(record.sys_flag) || record.queue_id < 0 {
            return None;
        }
        let entry = Entry { position: record.position, size: record.size as i32, tags: record::tags_code(record) };
        // A client may have put these properties into a message that is none.
        let inner = properties::inner_batch(record.properties).filter(|_| record.is_inner_batch());
        let (first, count) = inner.unwrap_or((record.queue_offset, 1));
        let unit = Self { entry, timestamp: record.store_timestamp, first, count };
        Self::read(&unit.bytes()).filter(|unit| unit.first < i64::MAX / 2)
    }

    /// The offset behind its messages.
    pub fn next(&self) -> u64 {
        self.first as u64 + self.count as u64
    }
}

/// The units of a queue, which are final: may be looked at without the store's lock.
#[derive(Clone)]
pub struct View {
    files: Arc<QueueFiles>,
    pub topic: Arc<str>,
    id: i32,
    /// Numbers of the first unit that leads into the log, and the one behind the last.
    pub begin: u64,
    pub end: u64,
    /// Units from `written` on are in no file.
    written: u64,
    pending: Vec<u8>,
    /// Offsets.
    pub min: u64,
    pub next: u64,
    /// End of the last unit's record.
    pub last_end: u64,
}

impl View {
    fn new(files: &Arc<QueueFiles>, topic: &str, id: i32) -> Self {
        Self {
            files: Arc::clone(files),
            topic: topic.into(),
            id,
            begin: 0,
            end: 0,
            written: 0,
            pending: Vec::new(),
            min: 0,
            next: 0,
            last_end: 0,
        }
    }

    /// Units from number `index` on, `count` at most: as many as lie in one file or in memory.
    pub fn read(&self, index: u64, count: u64) -> Result<Vec<Unit>> {
        let count = count.min(self.end.saturating_sub(index));
        let bytes = match index.checked_sub(self.written) {
            Some(at) => self.pending.get(at as usize * UNIT..).unwrap_or_default().to_vec(),
            None => self
                .files
                .read(&self.topic, self.id, index, count.min(self.written - index))
                .at("read a queue in", &self.files.directory(&self.topic, self.id))?,
        };
        Ok(bytes.chunks_exact(UNIT).take(count as usize).map_while(Unit::read).collect())
    }

    pub fn unit(&self, index: u64) -> Result<Option<Unit>> {
        Ok(self.read(index, 1)?.first().copied())
    }

    /// The first number whose unit isn't `before`; units run from those that are to those that aren't.
    pub fn search(&self, before: impl Fn(&Unit) -> bool) -> Result<u64> {
        let (mut low, mut high) = (self.begin, self.end);
        while low < high {
            let middle = low + (high - low) / 2;
            // One that can't be made out leads nowhere; those behind it do.
            if self.unit(middle)?.as_ref().is_none_or(&before) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The number of the unit that holds `offset`, which is not below the minimum.
    pub fn holding(&self, offset: u64) -> Result<u64> {
        self.search(|unit| unit.next() <= offset)
    }

    /// The offset behind the last message whose record ends at or below `limit`.
    pub fn end_below(&self, limit: u64) -> Result<u64> {
        if self.last_end <= limit {
            return Ok(self.next);
        }
        let end = self.search(|unit| unit.entry.end() <= limit)?;
        Ok(self.unit(end)?.map_or(self.next, |unit| unit.first as u64))
    }

    /// Number and offset of the first unit that leads to `position` or further, if the queue doesn't begin later.
    pub fn beginning_at(&self, position: u64) -> Result<(u64, u64)> {
        let begin = self.search(|unit| (unit.entry.position as u64) < position)?;
        Ok((begin, self.unit(begin)?.map_or(self.next, |unit| unit.first as u64)))
    }

    /// Delete the files before the one that holds unit `begin`, never the last, nor that of the last unit whose record is on
    /// disk, below `flushed`: should a power cut take what is behind it, only that one tells the next offset.
    pub fn delete_files_below(&self, begin: u64, flushed: u64) -> Result<()> {
        let durable = self.search(|unit| unit.entry.end() <= flushed)?;
        self.files.delete_below(&self.topic, self.id, begin.min(durable.saturating_sub(1)))
    }

    /// The offset for a time: LOWER is that of the first unit stored at or after it, or of the last; UPPER that of the last
    /// one stored at or before it, or the queue's beginning.
    pub fn offset_by_time(&self, timestamp: i64, upper: bool) -> Result<u64> {
        let index = if upper {
            self.search(|unit| unit.timestamp <= timestamp)?.saturating_sub(1)
        } else {
            self.search(|unit| unit.timestamp < timestamp)?.min(self.end.saturating_sub(1))
        };
        Ok(self.unit(index.max(self.begin))?.map_or(self.min, |unit| unit.first as u64))
    }
}

pub struct BatchQueue {
    pub view: View,
    /// False while there is only a watch for it.
    pub exists: bool,
    pub watched: bool,
    /// Units from here to `view.written` aren't forced to disk.
    unforced: Option<u64>,
}

impl BatchQueue {
    pub fn push(&mut self, unit: &Unit) {
        let view = &mut self.view;
        if view.begin == view.end {
            view.min = unit.first as u64;
        }
        view.pending.extend_from_slice(&unit.bytes());
        view.end += 1;
        (view.next, view.last_end) = (unit.next(), unit.entry.end());
        self.exists = true;
    }

    /// Write what is in memory if that is much.
    pub fn relieve(&mut self) {
        if self.view.pending.len() >= PENDING_MAX {
            // An error leaves them in memory, for `flush_queues` to tell.
            let _ = self.write();
        }
    }

    pub fn write(&mut self) -> Result<()> {
        let view = &self.view;
        view.files.write(&view.topic, view.id, view.written, &view.pending)?;
        self.set_written(self.view.end);
        Ok(())
    }

    fn set_written(&mut self, to: u64) {
        let view = &mut self.view;
        let count = to.saturating_sub(view.written);
        if count > 0 {
            view.pending.drain(..count as usize * UNIT);
            self.unforced = Some(self.unforced.map_or(view.written, |unforced| unforced.min(view.written)));
            view.written = to;
        }
    }

    /// Be what is in the files from unit `begin` to `end`, of which what `is_trusted` is believed and the rest forgotten.
    pub fn take_up(&mut self, begin: u64, end: u64, is_trusted: impl Fn(&Unit) -> bool) -> Result<()> {
        self.exists = true;
        let view = &mut self.view;
        (view.begin, view.end, view.written) = (begin, end, end);
        let mut trusted = view.search(is_trusted)?;
        // Of the others a power cut may have left later ones without those before.
        while trusted > begin && view.unit(trusted - 1)?.is_none() {
            trusted -= 1;
        }
        self.cut(trusted)?;
        // What is put behind may be there already, in the page cache only, and so may the file's name.
        let per_file = self.view.files.file_size / UNIT as u64;
        self.unforced = Some(trusted - trusted % per_file);
        Ok(())
    }

    /// Forget the units from `end` on. Without any left, the queue goes on at the offset it began with.
    pub fn cut(&mut self, end: u64) -> Result<()> {
        let view = &mut self.view;
        view.min = view.unit(view.begin)?.map_or(0, |first| first.first as u64);
        view.pending.truncate(end.saturating_sub(view.written) as usize * UNIT);
        (view.end, view.written) = (end, view.written.min(end));
        let last = if view.begin < end { view.unit(end - 1)? } else { None };
        view.next = last.map_or(view.min, |last| last.next());
        view.last_end = last.map_or(0, |last| last.entry.end());
        Ok(())
    }

    /// Bring everything into files, and make those end where the queue does; let it begin where the log does.
    pub fn finish(&mut self, log_min: u64) -> Result<()> {
        self.write()?;
        let view = &mut self.view;
        // What its first unit said, if that isn't believed, is no offset to go on at.
        if view.next == 0 || view.end == 0 {
            self.exists = false;
            (view.min, view.next) = (0, 0);
            return view.files.delete_all(&view.topic, view.id);
        }
        end_queue(&view.files, &view.topic, view.id, view.end)?;
        (view.begin, view.min) = view.beginning_at(log_min)?;
        Ok(())
    }
}

/// Units to be written without the lock.
pub struct Job {
    /// The queue's own, which tells it from a later one of that name.
    topic: Arc<str>,
    id: i32,
    index: u64,
    units: Vec<u8>,
}

impl Job {
    pub fn write(&self, files: &QueueFiles) -> Result<()> {
        files.write(&self.topic, self.id, self.index, &self.units)
    }
}

pub struct BatchQueues {
    pub files: Arc<QueueFiles>,
    /// By topic and queue id.
    topics: HashMap<Box<[u8]>, BTreeMap<i32, BatchQueue>>,
}

impl BatchQueues {
    pub fn new(files: QueueFiles) -> Self {
        Self { files: Arc::new(files), topics: HashMap::new() }
    }

    pub fn has_topic(&self, topic: &[u8]) -> bool {
        self.topics.contains_key(topic)
    }

    pub fn add_topic(&mut self, topic: &[u8]) {
        self.topics.entry(topic.into()).or_default();
    }

    /// The queue, made in memory if it isn't there; None when `topic` can't be a directory's name.
    pub fn queue_or_new(&mut self, topic: &[u8], id: i32) -> Option<&mut BatchQueue> {
        let name = crate::consume_queue::usable_name(topic)?;
        let files = &self.files;
        Some(self.topics.entry(topic.into()).or_default().entry(id).or_insert_with(|| BatchQueue {
            view: View::new(files, name, id),
            exists: false,
            watched: false,
            unforced: None,
        }))
    }

    pub fn existing(&self, topic: &str, id: i32) -> Option<&View> {
        self.topics.get(topic.as_bytes())?.get(&id).filter(|queue| queue.exists).map(|queue| &queue.view)
    }

    pub fn has_queues(&self) -> bool {
        self.topics.values().flat_map(BTreeMap::values).any(|queue| queue.exists)
    }

    /// (topic, queue id, min offset, max offset) of each queue.
    pub fn bounds(&self) -> impl Iterator<Item = (String, i32, u64, u64)> + '_ {
        let existing = self.topics.values().flat_map(BTreeMap::values).filter(|queue| queue.exists);
        existing.map(|BatchQueue { view, .. }| (view.topic.to_string(), view.id, view.min, view.next))
    }

    pub fn all(&mut self) -> impl Iterator<Item = &mut BatchQueue> {
        self.topics.values_mut().flat_map(BTreeMap::values_mut)
    }

    /// The lowest position that a queue leads to, or lower; None when all are empty.
    pub fn lowest_position(&self) -> Result<Option<u64>> {
        let queues = self.topics.values().flat_map(BTreeMap::values).filter(|queue| queue.exists);
        let used = queues.map(|queue| &queue.view).filter(|view| view.begin < view.end);
        let firsts = used.map(|view| Ok(view.unit(view.begin)?.map_or(0, |first| first.entry.position as u64)));
        firsts.collect::<Result<Vec<u64>>>().map(|firsts| firsts.into_iter().min())
    }

    /// What is to be written, but for topics that are `leaving`.
    pub fn jobs(&mut self, leaving: impl Fn(&str) -> bool) -> Vec<Job> {
        let pending = self.all().map(|queue| &queue.view).filter(|view| !view.pending.is_empty());
        pending
            .filter(|view| !leaving(&view.topic))
            .map(|view| Job {
                topic: Arc::clone(&view.topic),
                id: view.id,
                index: view.written,
                units: view.pending.clone(),
            })
            .collect()
    }

    pub fn done(&mut self, job: &Job) {
        if let Some(queue) = self.same(&job.topic, job.id) {
            queue.set_written(job.index + (job.units.len() / UNIT) as u64);
        }
    }

    pub fn take_unforced(&mut self) -> Vec<Forcing> {
        let take = |queue: &mut BatchQueue| {
            let view = &queue.view;
            let from = queue.unforced.take()?;
            Some(Forcing { topic: Arc::clone(&view.topic), id: view.id, from, to: view.written })
        };
        self.all().filter_map(take).collect()
    }

    /// Force what was written. It isn't tried again.
    pub fn force(&mut self) -> Result<()> {
        let forcing = self.take_unforced();
        self.files.force(&forcing)
    }

    pub fn put_back_unforced(&mut self, forcing: &[Forcing]) {
        for forcing in forcing {
            if let Some(queue) = self.same(&forcing.topic, forcing.id) {
                queue.unforced = Some(queue.unforced.map_or(forcing.from, |known| known.min(forcing.from)));
            }
        }
    }

    /// What the queues are now.
    pub fn views(&mut self) -> Vec<View> {
        self.all().filter(|queue| queue.exists).map(|queue| queue.view.clone()).collect()
    }

    /// Let a queue begin with unit `begin`, whose offset is `min`; false if it is gone.
    pub fn raise_min(&mut self, view: &View, begin: u64, min: u64) -> bool {
        let queue = self.same(&view.topic, view.id);
        queue.map(|queue| (queue.view.begin, queue.view.min) = (begin, min)).is_some()
    }

    /// The queue whose topic is this very object, and not a later one of that name.
    fn same(&mut self, topic: &Arc<str>, id: i32) -> Option<&mut BatchQueue> {
        let queue = self.topics.get_mut(topic.as_bytes())?.get_mut(&id)?;
        Arc::ptr_eq(&queue.view.topic, topic).then_some(queue)
    }

    /// Forget the queues of `topic`, see `Queues::forget`.
    pub fn forget(&mut self, topic: &str) {
        self.topics.remove(topic.as_bytes());
    }
}

/// The topics that have batch queues in `root`, if there is such a directory.
pub fn topics(root: &Path) -> Result<HashSet<Box<[u8]>>> {
    if !root.is_dir() {
        return Ok(HashSet::new());
    }
    Ok(directories(root)?.into_iter().map(|(topic, _)| topic.into_bytes().into()).collect())
}

/// Whether a record belongs into a batch queue, if these are the `topics` that have some.
pub fn is_batch(record: &Record<'_>, topics: &HashSet<Box<[u8]>>) -> bool {
    record.is_inner_batch() || topics.contains(record.topic)
}
