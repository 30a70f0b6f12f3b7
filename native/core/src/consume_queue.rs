//! Consume queues: per topic and queue id, where its messages lie in the log. Fixed entries, big-endian:
//!
//! ```text
//!     0  i64  position in the log     8  i32  size of the record     12  i64  tags code
//! ```
//!
//! Entry n is at byte 20·n; files are named by the byte they start at. Entries below a queue's first known one are filled
//! with pre-blank entries (0, 0x7FFFFFFF, 0), because Apache ends its own recovery at an entry of size zero.
//!
//! A queue holds a tail in memory: entries not yet in a file, and behind those the newest ones that are, so that whoever
//! reads at the head of a queue costs no system call. A tail is written when it has grown to `PENDING_MAX` or by
//! `flush_queues`, and let go of when its queue has been idle for some flushes: 100,000 idle topics hold no tails.

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    hash::{BuildHasherDefault, Hasher},
    num::NonZeroU32,
    sync::Arc,
};

use smallvec::SmallVec;

use crate::{
    delays::SCHEDULE_TOPIC,
    error::Result,
    light,
    queue_files::{force_file_system, Forcing, QueueFiles},
    recent_keys::topic_hash,
    traffic::Number,
};

pub const UNIT: usize = 20;
/// Bytes of unwritten entries at which an append writes them itself.
pub const PENDING_MAX: usize = 64 << 10;
/// Bytes of written entries kept for readers.
pub const CACHED_MAX: usize = 1024 * UNIT;
/// Bytes of all tails over which nothing written is kept, and twice as much over which an append writes what it adds to.
pub const TAILS_MAX: usize = 256 << 20;
/// Queues that are written at a time although nobody waits for it.
const WRITTEN_MAX: usize = 2048;
/// Queues that are forced file by file. Each costs the disk up to three flushes of its cache, of file and directories, so
/// that 400,000 new queues would take it half an hour; over this the whole file system is forced, in some seconds.
pub const FORCED_APART_MAX: usize = 1000;
/// Queues whose slots a topic holds in itself.
const FIRST_QUEUES: usize = 8;
/// Blocks of entries from files kept for readers, each at most some thousand entries.
const BLOCKS: usize = 64;
/// Queues that are looked at in a flush for whether they are idle.
const AGED_MAX: usize = 8192;
/// Flushes after which the tail of a queue without appends is let go of.
pub const IDLE_FLUSHES: u32 = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub position: i64,
    pub size: i32,
    pub tags: i64,
}

impl Entry {
    pub const BLANK: Self = Self { position: 0, size: i32::MAX, tags: 0 };

    pub fn read(bytes: &[u8]) -> Option<Self> {
        let (position, rest) = bytes.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (tags, _) = rest.split_first_chunk()?;
        Some(Self {
            position: i64::from_be_bytes(*position),
            size: i32::from_be_bytes(*size),
            tags: i64::from_be_bytes(*tags),
        })
    }

    pub fn bytes(self) -> [u8; UNIT] {
        let mut bytes = [0; UNIT];
        bytes[..8].copy_from_slice(&self.position.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.size.to_be_bytes());
        bytes[12..].copy_from_slice(&self.tags.to_be_bytes());
        bytes
    }

    /// Whether it leads to a record; holes are zero and pre-blank entries say where nothing was.
    pub fn is_real(self) -> bool {
        self.position >= 0 && self.size > 0 && self.size != i32::MAX
    }

    /// Whether recovery, ours or Apache's, counts it as a part of the queue.
    pub fn is_used(self) -> bool {
        self.position >= 0 && self.size > 0
    }

    /// Whether its message may have one of these tags. Java compares the code as an i32 as well.
    pub fn may_have(self, tags: &[i32]) -> bool {
        tags.contains(&(self.tags as i32)) || self.is_extended()
    }

    /// Whether its tags code is in the queue's extension (`consumequeue_ext`, which only Apache writes): addresses are below
    /// all hashes. What is there may be missing, or another message's after a crash, so the record is asked instead.
    pub fn is_extended(self) -> bool {
        self.tags < i64::from(i32::MIN)
    }

    /// Bytes from its record to the log's end; 0 when it leads to none.
    pub fn behind(self, log_end: u64) -> u64 {
        if self.is_real() {
            log_end.saturating_sub(self.position as u64)
        } else {
            0
        }
    }

    pub fn end(self) -> u64 {
        (self.position.max(0) as u64).saturating_add(self.size.max(0) as u64)
    }
}

pub struct Queue {
    pub topic: Arc<str>,
    pub id: i32,
    /// The hash that the keys of its messages begin with in the index.
    pub topic_hash: i32,
    /// Tells this queue from a later one in the same slot.
    pub serial: u64,
    /// False while there is only a watch for it.
    pub exists: bool,
    pub watched: bool,
    /// Whether its entries tell when their messages are due.
    pub is_delaying: bool,
    pub min: u64,
    pub next: u64,
    /// Where the entry at `min` points, or lower.
    pub min_position: u64,
    /// Whether entries below `min` lead into the log still (retentionBytesPerTopic).
    pub is_hiding: bool,
    /// End of the last entry's record.
    pub last_end: u64,
    /// Entries from `written` on are only in the tail.
    pub written: u64,
    /// Entries from here to `written` aren't forced to disk.
    pub unforced: Option<u64>,
    tail: Vec<u8>,
    /// Bytes of unwritten entries at which an append writes them; raised when that has failed.
    relieved_at: usize,
    /// What `Queues::flushes` was at the last append.
    appended_at: u32,
    in_dirty: bool,
    in_resident: bool,
    /// Its topic's in `Traffic`.
    pub number: Number,
}

impl Queue {
    /// The first index that is in memory.
    pub fn tail_start(&self) -> u64 {
        self.next - (self.tail.len() / UNIT) as u64
    }

    /// The entry at `index` if it is in memory.
    pub fn cached(&self, index: u64) -> Option<Entry> {
        let at = index.checked_sub(self.tail_start())? as usize;
        Entry::read(self.tail.get(at.checked_mul(UNIT)?..)?)
    }

    /// The entries from `index` up to `last` that are in memory, if the first of them is.
    pub fn copied(&self, slot: usize, index: u64, last: u64) -> Option<Block> {
        let at = usize::try_from(index.checked_sub(self.tail_start())?).ok()?.checked_mul(UNIT)?;
        let entries = self.tail.get(at..).filter(|entries| !entries.is_empty())?;
        let size = usize::try_from(last - index).map_or(entries.len(), |count| entries.len().min(count * UNIT));
        Some(Block { slot, serial: self.serial, index, entries: Arc::new(entries[..size].to_vec()) })
    }

    fn pending(&self) -> &[u8] {
        let size = ((self.next - self.written) as usize * UNIT).min(self.tail.len());
        &self.tail[self.tail.len() - size..]
    }

    fn keep(&mut self, size: usize) {
        let keep = self.pending().len().max(size).min(self.tail.len());
        self.tail.drain(..self.tail.len() - keep);
        if self.tail.capacity() > 2 * PENDING_MAX {
            self.tail.shrink_to(PENDING_MAX);
        }
    }
}

#[derive(Default)]
pub struct Topic {
    pub ordinary: Option<Ordinary>,
    /// Slots of the first queues, by queue id: one look less for most.
    first: [Option<NonZeroU32>; FIRST_QUEUES],
    /// Queue ids and slots of the others, in order.
    others: Vec<(i32, usize)>,
}

#[derive(Clone, Copy)]
pub struct Ordinary {
    pub write_queues: i32,
    pub multi_tag: bool,
}

impl Topic {
    pub fn slot(&self, id: i32) -> Option<usize> {
        if let Some(slot) = self.first.get(id as usize) {
            return slot.map(|slot| slot.get() as usize - 1);
        }
        // Ids nearly always run without a gap.
        if let Some(&(found, slot)) = self.others.get((id as usize).wrapping_sub(FIRST_QUEUES)) {
            if found == id {
                return Some(slot);
            }
        }
        self.others.binary_search_by_key(&id, |&(id, _)| id).ok().map(|at| self.others[at].1)
    }

    fn set_slot(&mut self, id: i32, slot: usize) {
        // More slots than numbers would take a terabyte of memory first.
        let number = u32::try_from(slot + 1).ok().and_then(NonZeroU32::new);
        match self.first.get_mut(id as usize) {
            Some(place) => *place = number,
            None => {
                let at = self.others.partition_point(|&(other, _)| other < id);
                self.others.insert(at, (id, slot));
            }
        }
    }

    pub fn slots(&self) -> impl Iterator<Item = usize> + '_ {
        let first = self.first.iter().flatten().map(|slot| slot.get() as usize - 1);
        first.chain(self.others.iter().map(|&(_, slot)| slot))
    }

    fn take_slots(&mut self) -> Vec<usize> {
        let slots = self.slots().collect();
        (self.first, self.others) = Default::default();
        slots
    }
}

/// A topic's; most lie in the table itself, as one out of many thousands is in no cache.
type Name = SmallVec<[u8; 32]>;

/// All queues of the store. Everything here happens under the store's lock, reading and forcing files apart.
pub struct Queues {
    pub files: Arc<QueueFiles>,
    topics: HashMap<Name, Topic, BuildHasherDefault<TopicHasher>>,
    slots: Vec<Option<Queue>>,
    free: Vec<usize>,
    serial: u64,
    /// Slots of queues that may have entries to write, entries to force, or a tail, these with the serial. A slot that was
    /// freed, and perhaps given to another queue, stays until it is come across.
    dirty: Vec<usize>,
    unforced: Vec<usize>,
    resident: VecDeque<(usize, u64)>,
    /// Deleted topics whose files are still there. Nothing is written for a topic of that name meanwhile.
    leaving: Vec<Box<str>>,
    /// Light queues that there are, in memory at least, and that there may be.
    light: (usize, usize),
    flushes: u32,
    tails_size: usize,
    /// What was read from files last, by slot.
    blocks: [Option<Block>; BLOCKS],
}

/// Entries read from a file; final, so whoever reads on finds the next ones here.
#[derive(Clone)]
pub struct Block {
    slot: usize,
    serial: u64,
    pub index: u64,
    pub entries: Arc<Vec<u8>>,
}

impl Block {
    pub fn entry(&self, index: u64) -> Option<Entry> {
        let at = usize::try_from(index.checked_sub(self.index)?).ok()?;
        Entry::read(self.entries.get(at.checked_mul(UNIT)?..)?)
    }
}

/// Entries to be written without the lock.
pub struct Job {
    slot: usize,
    serial: u64,
    pub topic: Arc<str>,
    pub id: i32,
    pub index: u64,
    pub entries: Vec<u8>,
}

impl Queues {
    pub fn new(files: QueueFiles) -> Self {
        Self {
            files: Arc::new(files),
            topics: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            serial: 0,
            dirty: Vec::new(),
            unforced: Vec::new(),
            resident: VecDeque::new(),
            leaving: Vec::new(),
            light: (0, usize::MAX),
            flushes: 0,
            tails_size: 0,
            blocks: [const { None }; BLOCKS],
        }
    }

    /// The block read from this queue last, if it holds `index`.
    pub fn block(&self, slot: usize, index: u64) -> Option<Block> {
        let block = self.blocks[slot % BLOCKS].as_ref()?;
        let same = block.slot == slot && self.queue(slot).is_some_and(|queue| queue.serial == block.serial);
        (same && block.entry(index).is_some()).then(|| block.clone())
    }

    /// Keep entries read from the files of a queue; all of them were written when its `serial` was looked at.
    pub fn set_block(&mut self, slot: usize, serial: u64, index: u64, entries: Vec<u8>) -> Block {
        let block = Block { slot, serial, index, entries: Arc::new(entries) };
        self.blocks[slot % BLOCKS] = Some(block.clone());
        block
    }

    pub fn topic(&self, topic: &[u8]) -> Option<&Topic> {
        self.topics.get(topic)
    }

    pub fn set_ordinary(&mut self, topic: &str, ordinary: Option<Ordinary>) {
        match ordinary {
            Some(_) => self.topics.entry(topic.as_bytes().into()).or_default().ordinary = ordinary,
            None => {
                if let Some(topic) = self.topics.get_mut(topic.as_bytes()) {
                    topic.ordinary = None;
                }
            }
        }
    }

    pub fn slot(&self, topic: &[u8], id: i32) -> Option<usize> {
        self.topics.get(topic)?.slot(id)
    }

    /// The queue, made in memory if it isn't there; None when `topic` can't be a directory's name, or there are too many light
    /// queues.
    pub fn slot_or_new(&mut self, topic: &[u8], id: i32) -> Option<usize> {
        if let Some(slot) = self.slot(topic, id) {
            return Some(slot);
        }
        let name: Arc<str> = usable_name(topic)?.into();
        if name.starts_with(light::PREFIX) {
            if self.light.0 >= self.light.1 {
                return None;
            }
            self.light.0 += 1;
        }
        self.serial += 1;
        let queue = Queue {
            topic: name,
            id,
            topic_hash: topic_hash(topic),
            serial: self.serial,
            exists: false,
            watched: false,
            is_delaying: topic == SCHEDULE_TOPIC.as_bytes(),
            min: 0,
            next: 0,
            min_position: 0,
            is_hiding: false,
            last_end: 0,
            written: 0,
            unforced: None,
            tail: Vec::new(),
            relieved_at: PENDING_MAX,
            appended_at: self.flushes,
            in_dirty: false,
            in_resident: false,
            number: Number::default(),
        };
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(queue);
        self.topics.entry(topic.into()).or_default().set_slot(id, slot);
        Some(slot)
    }

    pub fn queue(&self, slot: usize) -> Option<&Queue> {
        self.slots.get(slot)?.as_ref()
    }

    pub fn queue_mut(&mut self, slot: usize) -> Option<&mut Queue> {
        self.slots.get_mut(slot)?.as_mut()
    }

    /// Make no more light queues than these; those that are there stay.
    pub fn bound_light(&mut self, max: usize) {
        self.light.1 = max;
    }

    /// The queue of a topic if it has messages or files.
    pub fn existing(&self, topic: &str, id: i32) -> Option<&Queue> {
        self.queue(self.slot(topic.as_bytes(), id)?).filter(|queue| queue.exists)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Queue> {
        self.slots.iter().flatten().filter(|queue| queue.exists)
    }

    /// Whether a topic has queues with messages or files.
    pub fn has_queues(&self, topic: &[u8]) -> bool {
        let exists = |slot| self.queue(slot).is_some_and(|queue| queue.exists);
        self.topics.get(topic).is_some_and(|topic| topic.slots().any(exists))
    }

    pub fn slots(&self) -> std::ops::Range<usize> {
        0..self.slots.len()
    }

    /// Append entries; true when the queue was watched, which it then isn't any more.
    pub fn push(&mut self, slot: usize, entries: &[Entry]) -> bool {
        let Some(queue) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return false };
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return false };
        if queue.next == queue.min {
            queue.min_position = first.position as u64;
        }
        queue.exists = true;
        queue.tail.reserve(entries.len() * UNIT);
        entries.iter().for_each(|entry| queue.tail.extend_from_slice(&entry.bytes()));
        queue.next += entries.len() as u64;
        queue.last_end = last.end();
        queue.appended_at = self.flushes;
        self.tails_size += entries.len() * UNIT;
        if !queue.in_dirty {
            queue.in_dirty = true;
            self.dirty.push(slot);
        }
        if !queue.in_resident {
            queue.in_resident = true;
            self.resident.push_back((slot, queue.serial));
        }
        std::mem::take(&mut queue.watched)
    }

    /// Write the queue's tail if it has grown too long. An error leaves it in memory, for the next attempt; to lose an
    /// entry that the log holds is worse than to hold it.
    pub fn relieve(&mut self, slot: usize) {
        let Some(queue) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        let pending = queue.pending();
        if pending.len() < queue.relieved_at && self.tails_size <= 2 * TAILS_MAX
            || is_among(&self.leaving, &queue.topic)
        {
            return;
        }
        match self.files.write(&queue.topic, queue.id, queue.written, pending) {
            Ok(()) => {
                queue.relieved_at = PENDING_MAX;
                let (written, next) = (queue.written, queue.next);
                self.set_written(slot, written, next);
            }
            Err(_) => queue.relieved_at = pending.len() + PENDING_MAX,
        }
    }

    /// Write the tail of a queue whose end is going to change, and let go of it.
    pub fn write_tail(&mut self, slot: usize) -> Result<()> {
        let Some(queue) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return Ok(()) };
        self.files.write(&queue.topic, queue.id, queue.written, queue.pending())?;
        queue.written = queue.next;
        self.tails_size -= queue.tail.len();
        queue.tail = Vec::new();
        Ok(())
    }

    fn set_written(&mut self, slot: usize, from: u64, to: u64) {
        let crowded = self.tails_size > TAILS_MAX;
        let Some(queue) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        queue.written = queue.written.max(to);
        if queue.unforced.is_none() {
            self.unforced.push(slot);
        }
        queue.unforced = Some(queue.unforced.map_or(from, |unforced| unforced.min(from)));
        let before = queue.tail.len();
        queue.keep(if crowded { 0 } else { CACHED_MAX });
        if crowded {
            queue.tail.shrink_to_fit();
        }
        self.tails_size -= before - queue.tail.len();
    }

    /// Slots that have entries to write, to be given to `jobs` piece by piece.
    ///
    /// Unless it must be all of them, it is those that have waited longest. To write a queue costs some microseconds, however
    /// few its new entries are; where many queues get a few each, it pays to wait for more.
    pub fn take_dirty(&mut self, all: bool) -> Vec<usize> {
        if all || self.tails_size > TAILS_MAX || self.dirty.len() <= WRITTEN_MAX {
            return std::mem::take(&mut self.dirty);
        }
        self.dirty.drain(..WRITTEN_MAX).collect()
    }

    pub fn put_back_dirty(&mut self, slots: &[usize]) {
        self.dirty.extend_from_slice(slots);
    }

    pub fn jobs(&mut self, slots: &[usize]) -> Vec<Job> {
        let mut jobs = Vec::with_capacity(slots.len());
        for &slot in slots {
            let Some(queue) = self.slots.get_mut(slot).and_then(Option::as_mut) else { continue };
            if is_among(&self.leaving, &queue.topic) {
                queue.in_dirty = true;
                self.dirty.push(slot);
                continue;
            }
            queue.in_dirty = false;
            if queue.written < queue.next {
                jobs.push(Job {
                    slot,
                    serial: queue.serial,
                    topic: Arc::clone(&queue.topic),
                    id: queue.id,
                    index: queue.written,
                    entries: queue.pending().to_vec(),
                });
            }
        }
        jobs
    }

    pub fn done(&mut self, job: &Job) {
        if self.queue(job.slot).is_some_and(|queue| queue.serial == job.serial) {
            self.set_written(job.slot, job.index, job.index + (job.entries.len() / UNIT) as u64);
        }
    }

    /// A job whose entries couldn't be written.
    pub fn failed(&mut self, job: &Job) {
        if let Some(queue) = self.queue_mut(job.slot).filter(|queue| queue.serial == job.serial && !queue.in_dirty) {
            queue.in_dirty = true;
            self.dirty.push(job.slot);
        }
    }

    pub fn take_unforced(&mut self) -> Vec<Forcing> {
        let slots = std::mem::take(&mut self.unforced);
        let mut forcing = Vec::with_capacity(slots.len());
        for slot in slots {
            let Some(queue) = self.queue_mut(slot) else { continue };
            if let Some(from) = queue.unforced.take() {
                forcing.push(Forcing { topic: Arc::clone(&queue.topic), id: queue.id, from, to: queue.written });
            }
        }
        forcing
    }

    /// Force what was written, see `force_file_system` for `root`. It isn't tried again.
    pub fn force(&mut self, root: &File) -> Result<()> {
        let forcing = self.take_unforced();
        if forcing.len() > FORCED_APART_MAX {
            force_file_system(root, &self.files.root)
        } else {
            self.files.force(&forcing)
        }
    }

    /// Entries from `from` on were written by recovery.
    pub fn set_unforced(&mut self, slot: usize, from: u64) {
        let Some(queue) = self.slots.get_mut(slot).and_then(Option::as_mut) else { return };
        if queue.unforced.is_none() {
            self.unforced.push(slot);
        }
        queue.unforced = Some(queue.unforced.map_or(from, |unforced| unforced.min(from)));
    }

    /// Take over what was said of topics before their queues were known.
    pub fn inherit(&mut self, known: Self) {
        for queue in known.slots.iter().flatten().filter(|queue| queue.watched) {
            let slot = self.slot_or_new(queue.topic.as_bytes(), queue.id);
            if let Some(queue) = slot.and_then(|slot| self.queue_mut(slot)) {
                queue.watched = true;
            }
        }
        for (name, topic) in known.topics {
            if topic.ordinary.is_some() {
                self.topics.entry(name).or_default().ordinary = topic.ordinary;
            }
        }
    }

    pub fn put_back_unforced(&mut self, forcing: &[Forcing]) {
        for forcing in forcing {
            let Some(slot) = self.slot(forcing.topic.as_bytes(), forcing.id) else { continue };
            let Some(queue) = self.queue_mut(slot) else { continue };
            let known = queue.unforced.replace(queue.unforced.map_or(forcing.from, |known| known.min(forcing.from)));
            if known.is_none() {
                self.unforced.push(slot);
            }
        }
    }

    /// One flush has passed: let go of the tails of queues that have been idle for long.
    pub fn age(&mut self) {
        self.flushes = self.flushes.wrapping_add(1);
        let crowded = self.tails_size > TAILS_MAX;
        for _ in 0..self.resident.len().min(AGED_MAX) {
            let Some((slot, serial)) = self.resident.pop_front() else { return };
            let queue = self.slots.get_mut(slot).and_then(Option::as_mut);
            let Some(queue) = queue.filter(|queue| queue.serial == serial) else { continue };
            let idle_flushes = self.flushes.wrapping_sub(queue.appended_at);
            if queue.written < queue.next || !(crowded || idle_flushes > IDLE_FLUSHES) {
                self.resident.push_back((slot, serial));
                continue;
            }
            self.tails_size -= queue.tail.len();
            queue.tail = Vec::new();
            queue.in_resident = false;
        }
    }

    /// The entry at `index`, from memory or file; None where there is none.
    pub fn entry(&self, queue: &Queue, index: u64) -> Option<Entry> {
        if index >= queue.next {
            return None;
        }
        queue.cached(index).or_else(|| Entry::read(&self.files.read(&queue.topic, queue.id, index, 1).ok()?))
    }

    /// The first index in min … next whose entry isn't `before`; entries run from those that are to those that aren't.
    pub fn search(&self, queue: &Queue, before: impl Fn(Entry) -> bool) -> u64 {
        self.search_from(queue, queue.min, before)
    }

    pub fn search_from(&self, queue: &Queue, from: u64, before: impl Fn(Entry) -> bool) -> u64 {
        let (mut low, mut high) = (from, queue.next);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.entry(queue, middle).is_none_or(&before) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The first entry that leads into the log, which begins at `log_min`: what is below it nobody needs, but for `min` that is
    /// there as long as its queue is. None when that can't have changed since the last time.
    pub fn first_needed(&mut self, slot: usize, log_min: u64) -> Option<u64> {
        let raised = self.raise_min(slot, log_min);
        let queue = self.queue(slot)?;
        if !queue.is_hiding {
            return raised.then_some(queue.min);
        }
        let min = queue.min;
        let is_below = |entry: Entry| !entry.is_real() || (entry.position as u64) < log_min;
        let first = self.search_from(queue, 0, is_below).min(min);
        if first == min {
            self.queue_mut(slot)?.is_hiding = false;
        }
        Some(first)
    }

    /// Raise the minimum of a queue to the first entry at or above `position`; true when it was raised.
    pub fn raise_min(&mut self, slot: usize, position: u64) -> bool {
        let Some(queue) = self.queue(slot).filter(|queue| queue.exists && queue.min_position < position) else {
            return false;
        };
        let is_below = |entry: Entry| !entry.is_real() || (entry.position as u64) < position;
        let min = if queue.last_end <= position { queue.next } else { self.search(queue, is_below) };
        let min_position = self.entry(queue, min).map_or(position, |entry| entry.position as u64);
        let raised = min > queue.min;
        if let Some(queue) = self.queue_mut(slot) {
            (queue.min, queue.min_position) = (min, min_position);
        }
        raised
    }

    /// The lowest position that a queue leads to; None when all are empty. A message is its topic's: that it is in a light
    /// queue too, which may have been idle for long, doesn't keep it.
    pub fn lowest_position(&self) -> Option<u64> {
        let keeps = |queue: &&Queue| queue.min < queue.next && !queue.topic.starts_with(light::PREFIX);
        self.iter().filter(keeps).map(|queue| queue.min_position).min()
    }

    /// Forget the queues of `topic`. What comes for a topic of that name from now on is another's, and stays in memory until the
    /// files are deleted and `left` says so.
    pub fn forget(&mut self, topic: &str) {
        if let Some(entry) = self.topics.get_mut(topic.as_bytes()) {
            for slot in entry.take_slots() {
                if let Some(queue) = self.slots[slot].take() {
                    self.tails_size -= queue.tail.len();
                    self.light.0 -= usize::from(queue.topic.starts_with(light::PREFIX));
                    self.free.push(slot);
                }
            }
            if entry.ordinary.is_none() {
                self.topics.remove(topic.as_bytes());
            }
        }
        if !self.is_leaving(topic) {
            self.leaving.push(topic.into());
        }
    }

    pub fn is_leaving(&self, topic: &str) -> bool {
        is_among(&self.leaving, topic)
    }

    /// A topic that was forgotten and has its files still.
    pub fn next_leaving(&self) -> Option<&str> {
        self.leaving.first().map(|topic| &**topic)
    }

    /// The files of a topic that was forgotten are gone.
    pub fn left(&mut self, topic: &str) {
        self.leaving.retain(|leaving| **leaving != *topic);
    }
}

fn is_among(leaving: &[Box<str>], topic: &str) -> bool {
    leaving.iter().any(|leaving| **leaving == *topic)
}

/// The topic as a name of a directory, if it can be one.
pub fn usable_name(topic: &[u8]) -> Option<&str> {
    let unusable = topic.is_empty()
        || topic.len() > crate::record::TOPIC_MAX
        || topic == b"."
        || topic == b".."
        || topic.iter().any(|&byte| byte == b'/' || byte == 0);
    if unusable {
        None
    } else {
        std::str::from_utf8(topic).ok()
    }
}

/// Hashes topic names eight bytes at a time. Names in the table come from the broker's own configuration, so nobody can
/// choose them to collide.
#[derive(Default)]
pub struct TopicHasher(u64);

impl Hasher for TopicHasher {
    fn write(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.mix(u64::from_ne_bytes(chunk.try_into().unwrap_or_default()));
        }
        let mut last = [0; 8];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.mix(u64::from_ne_bytes(last));
    }

    fn write_usize(&mut self, value: usize) {
        self.mix(value as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl TopicHasher {
    fn mix(&mut self, word: u64) {
        let product = u128::from(self.0.rotate_left(5) ^ word) * 0x9E37_79B9_7F4A_7C15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_that_come_and_go_leave_nothing_to_age() {
        let mut queues = Queues::new(QueueFiles::simple(std::env::temp_dir(), 20));
        for _ in 0..100 {
            let slot = queues.slot_or_new(b"T", 0).unwrap();
            queues.push(slot, &[Entry { position: 0, size: 1, tags: 0 }]);
            queues.age();
            assert_eq!(queues.resident.len(), 1);
            queues.forget("T");
            queues.left("T");
        }
        queues.age();
        assert!(queues.resident.is_empty());
        assert!(queues.leaving.is_empty());
    }
}
