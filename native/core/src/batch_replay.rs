//! What recovery makes of batch queues: see `recover` for what it does with the others.
//!
//! A queue's units lead into the log in order, so a record that isn't behind the one its last unit leads to has its unit.
//! Units at or behind `start` follow the scan, and those of records that are missing before are looked for further up the log.

use std::path::Path;

use crate::{
    batch_queue::{BatchQueues, Unit, UNIT},
    error::{At, Result},
    mapped_file,
    queue_files::QueueFiles,
    record::Record,
    replay::directories,
};

/// Units read at a time to find where a queue ends.
const BLOCK: u64 = 1024;

/// What a document tells of the topics that have batch queues.
#[derive(Default)]
pub struct Named {
    pub topics: Vec<String>,
    /// When it was written, as a store time: a topic that it doesn't name was deleted by then, or made since. Without a
    /// document, earlier than all.
    pub at: Option<i64>,
}

pub struct BatchReplay {
    queues: BatchQueues,
    start: u64,
    log_min: u64,
    /// Whether there was a directory for batch queues.
    pub has_root: bool,
    /// Whether that tells of all topics.
    is_complete: bool,
    /// Store time from which on, if not, inner batches tell of others.
    unknown_from: i64,
    /// Where the log has the first of what queues lack below `start`.
    pub lost: Option<u64>,
}

impl BatchReplay {
    /// Make all queues anew from the log, of topics that are `named`. Those that aren't are known by inner batches if there
    /// was no directory for batch queues, `has_root`, which would tell of them.
    pub fn anew(files: QueueFiles, named: &Named, has_root: bool) -> Self {
        let mut queues = BatchQueues::new(files);
        named.topics.iter().for_each(|topic| queues.add_topic(topic.as_bytes()));
        let unknown_from = named.at.unwrap_or(i64::MIN);
        Self { queues, start: 0, log_min: 0, has_root, is_complete: has_root, unknown_from, lost: None }
    }

    /// Take up the queues on disk, each up to its first unit at or above `start`, beside what `anew` does. The log begins at
    /// `log_min`; what is below that is looked for no more.
    pub fn load(files: QueueFiles, named: &Named, (start, log_min): (u64, u64)) -> Result<Self> {
        let has_root = files.root.is_dir();
        let mut replay = Self { start, log_min, ..Self::anew(files, named, has_root) };
        let topics = if has_root { directories(&replay.queues.files.root)? } else { Vec::new() };
        for (topic, topic_path) in topics {
            replay.queues.add_topic(topic.as_bytes());
            for (id, path) in directories(&topic_path)? {
                let Ok(id) = id.parse::<u32>().map(|id| id as i32) else { continue };
                if id >= 0 && replay.queues.files.directory(&topic, id) == path {
                    replay.load_queue(&topic, id, &path)?;
                }
            }
        }
        Ok(replay)
    }

    fn load_queue(&mut self, topic: &str, id: i32, path: &Path) -> Result<()> {
        let (start, files) = (self.start, &self.queues.files);
        let mut bases = files.list(path)?;
        let counting = files.counting(&bases, |base| {
            let first = files.read(topic, id, base / UNIT as u64, 1).at("read", &mapped_file::path(path, base))?;
            Ok(Unit::read(&first).is_some_and(|first| (first.entry.position as u64) < start))
        })?;
        bases = bases[counting].to_vec();
        let Some(&first_base) = bases.first() else { return Ok(()) };
        let begin = first_base / UNIT as u64;
        let mut end = begin;
        for &base in bases.iter().rev() {
            let used = self.used_units(topic, id, base / UNIT as u64)?;
            if used > 0 {
                end = base / UNIT as u64 + used;
                break;
            }
        }
        let Some(queue) = self.queues.queue_or_new(topic.as_bytes(), id) else { return Ok(()) };
        queue.take_up(begin, end, |unit| (unit.entry.position as u64) < start)?;
        // A damaged size doesn't hide what the scan finds.
        queue.view.last_end = queue.view.last_end.min(start);
        Ok(())
    }

    /// How many units there are from number `begin` on in its file: each has to lead behind the one before it.
    fn used_units(&self, topic: &str, id: i32, begin: u64) -> Result<u64> {
        let files = &self.queues.files;
        let (mut used, mut last) = (0, -1);
        loop {
            let wanted = BLOCK.min(files.file_size / UNIT as u64 - used);
            let path = mapped_file::path(&files.directory(topic, id), begin * UNIT as u64);
            let bytes = files.read(topic, id, begin + used, wanted).at("read", &path)?;
            let units = bytes.chunks_exact(UNIT).map_while(Unit::read);
            let mut found = 0;
            for unit in units {
                if unit.entry.position <= last {
                    break;
                }
                last = unit.entry.position;
                found += 1;
            }
            used += found;
            if found < BLOCK || used == files.file_size / UNIT as u64 {
                return Ok(used);
            }
        }
    }

    /// Make all queues again, also those of topics that only inner batches tell of.
    pub fn repair_all(&mut self) {
        self.is_complete = false;
    }

    pub fn has_queues(&self) -> bool {
        self.queues.has_queues()
    }

    /// Whether a record belongs into a batch queue.
    pub fn takes(&self, record: &Record<'_>) -> bool {
        record.is_inner_batch() || self.queues.has_topic(record.topic)
    }

    pub fn put(&mut self, record: &Record<'_>) -> Result<()> {
        let Some(unit) = Unit::of(record) else { return Ok(()) };
        let is_known = self.queues.has_topic(record.topic);
        if !is_known && (self.is_complete || record.store_timestamp < self.unknown_from) {
            // An inner batch of a topic that was deleted: its name may be another's by now.
            return Ok(());
        }
        let may_be_lost = self.start > self.log_min;
        let Some(queue) = self.queues.queue_or_new(record.topic, record.queue_id) else { return Ok(()) };
        let (view, first) = (&queue.view, unit.first as u64);
        if (unit.entry.position as u64) < view.last_end {
            return Ok(());
        }
        if may_be_lost && first > view.next {
            let position = view.last_end.max(self.log_min);
            self.lost = Some(self.lost.map_or(position, |lost| lost.min(position)));
        } else if first == 0 && view.next > 0 {
            // The topic was deleted and has begun again.
            queue.cut(view.begin)?;
        } else if first < view.next && view.begin < view.end {
            // One of two offsets is damaged: the last one if it left a gap that this one fits into.
            let last = view.end - 1;
            let before = if last > view.begin { view.unit(last - 1)? } else { None }.map_or(0, |unit| unit.next());
            if first < before || view.unit(last)?.is_some_and(|last| last.first as u64 == before) {
                return Ok(());
            }
            queue.cut(last)?;
        }
        queue.push(&unit);
        queue.relieve();
        Ok(())
    }

    /// The scan has ended: end the queues where it says, on disk too, and find where they begin.
    pub fn finish(mut self, log_min: u64) -> Result<BatchQueues> {
        self.queues.all().filter(|queue| queue.exists).try_for_each(|queue| queue.finish(log_min))?;
        Ok(self.queues)
    }
}

/// Whether all units of a queue lead below `log_min`.
pub fn is_outdated(files: &QueueFiles, (topic, id): (&str, i32), path: &Path, log_min: u64) -> Result<bool> {
    let files = QueueFiles::batch(files.root.clone(), files.file_size);
    let mut replay = BatchReplay::anew(files, &Named::default(), true);
    replay.start = u64::MAX;
    replay.load_queue(topic, id, path)?;
    let view = replay.queues.existing(topic, id);
    Ok(view.is_some_and(|view| view.next > 0 && view.last_end <= log_min))
}
