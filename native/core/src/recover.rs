//! Recovery: where the log ends, and what the queues have to say about it.
//!
//! The log is the truth. It is scanned from `start` and ends before the first record that isn't whole: wrong magic, size,
//! position or CRC. What lies behind was never acknowledged, and is wiped so that it can't come to life again behind a new
//! tail after the next crash. What was scanned may be in the page cache only, and isn't called flushed before it is.
//!
//! The scan begins earlier where queues have lost what they had: all of their files, or entries between those they have and
//! those the scan finds. Below `start` the log isn't judged: nothing there is cut off, whatever it holds.
//!
//! Of a queue, entries that point below `start` are trusted. All others follow the scan: each record is put at its own
//! queue offset, in log order, and the queue ends behind the last one put. An entry that is there already stays as it
//! is, tags code included; Apache keeps delivery times and extension addresses in that field. A hole that no record fills
//! gets pre-blank entries.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc,
    },
};

use rustix::{
    fs::{fallocate, seek, FallocateFlags, SeekFrom},
    io::Errno,
};

use crate::{
    batch_queue::BatchQueues,
    batch_replay::BatchReplay,
    check_queues::{entry_of, light_queues, tags_fit, LMQ_PREFIX},
    commit_log,
    consume_queue::{Entry, Queue, Queues, PENDING_MAX, UNIT},
    error::{value, At, Result},
    mapped_file::{self, allocate, MappedFile},
    queue_files::QueueFiles,
    record::{self, Found, BLANK_SIZE},
    state::Config,
};

/// Bytes of entries held for all queues before they are put into files.
const RUNS_MAX: usize = 64 << 20;
/// Bytes read at a time where a file is searched.
const BLOCK: usize = 4096 / UNIT * UNIT;
/// Bytes looked at, or written, at a time where a file is to be zero.
const ZEROS: usize = 64 << 10;
/// Indexes over this have no place in a file.
pub const INDEX_MAX: i64 = i64::MAX / (4 * UNIT as i64);

pub struct Recovered {
    pub files: VecDeque<Arc<MappedFile>>,
    pub queues: Queues,
    pub batch_queues: BatchQueues,
    /// What is behind may be in the page cache only.
    pub flushed: u64,
    pub end: u64,
    pub records: u64,
    pub last_timestamp: i64,
}

/// How far a recovery is, in bytes of log, for whoever waits for it.
#[derive(Default)]
pub struct Progress {
    pub read: AtomicU64,
    pub total: AtomicU64,
}

pub fn recover(config: &Config, start: u64, check_crc: bool, progress: &Progress) -> Result<Recovered> {
    let bases = commit_log::list(&config.commit_log, config.log_file_size)?;
    if !bases.is_empty() && !bases.contains(&start) {
        return value(format!("start {start} is not the first position of a log file"));
    }
    let min = bases.first().copied().unwrap_or(0);
    let start = if bases.is_empty() { min } else { start };
    let files = || QueueFiles::simple(config.consume_queue.clone(), config.queue_file_size);
    let mut replay = Replay::new(files(), start, None);
    replay.log_min = min;
    replay.batches = Some(BatchReplay::load(config.batch_files(), start, min)?);
    let mut from = start;
    if !replay.load()? {
        (from, replay.repaired) = (min, None);
    }
    let mut scan = Scan::run(config, &bases, (from, start), check_crc, progress, &mut replay)?;
    replay.write_all()?;
    let lost_in_batches = replay.batches.as_ref().and_then(|batches| batches.lost);
    if let Some(position) = replay.lost.values().copied().chain(lost_in_batches).min() {
        from = bases.iter().rfind(|&&base| base <= position).copied().unwrap_or(min);
        let mut again = Replay::new(files(), start, None);
        again.load()?;
        // What is missing then is in no log.
        again.batches = Some(BatchReplay::load(config.batch_files(), start, start)?);
        let lost = replay.lost.keys().filter_map(|&slot| replay.queues.queue(slot));
        again.repaired =
            Some(lost.filter_map(|lost| again.queues.slot_or_new(lost.topic.as_bytes(), lost.id)).collect());
        replay = again;
        scan = Scan::run(config, &bases, (from, start), check_crc, progress, &mut replay)?;
        replay.write_all()?;
    }
    let in_use = bases.partition_point(|&base| !scan.ended || base <= scan.last);
    let mut files = VecDeque::new();
    for &base in &bases[..in_use] {
        files.push_back(Arc::new(if scan.ended && base == scan.last {
            end_file(config, base, scan.end)?
        } else {
            MappedFile::open(&config.commit_log, base, config.log_file_size as usize)?
        }));
    }
    // The last one first, each forced before the next: a crash on the way may leave no gap.
    for &base in bases[in_use..].iter().rev() {
        let path = mapped_file::path(&config.commit_log, base);
        fs::remove_file(&path).at("delete", &path)?;
        mapped_file::sync_directory(&config.commit_log)?;
    }
    mapped_file::sync_directory(&config.commit_log)?;
    replay.finish(min)?;
    let batch_queues = match replay.batches {
        Some(batches) => batches.finish(min)?,
        None => BatchQueues::new(config.batch_files()),
    };
    Ok(Recovered {
        files,
        queues: replay.queues,
        batch_queues,
        flushed: from.min(scan.end),
        end: scan.end,
        records: scan.records,
        last_timestamp: scan.last_timestamp,
    })
}

/// The store timestamp of the record a log file starts with, -1 when it doesn't start with one.
pub fn first_timestamp(directory: &Path, base: u64) -> Result<i64> {
    let path = mapped_file::path(directory, base);
    let file = File::open(&path).at("open", &path)?;
    let mut head = [0; 128];
    let read = read_full(&file, &mut head).at("read", &path)?;
    let size = record::int_at(&head, 0).filter(|&size| size > 0).unwrap_or(0) as usize;
    if !record::is_record(&head[..read], size, base) || size as u64 > file.metadata().at("look at", &path)?.len() {
        return Ok(-1);
    }
    // Of a torn record the time may be zero, or half a time: so old that recovery would begin behind what it has to check.
    let mut data = vec![0; size + BLANK_SIZE];
    let read = read_full(&file, &mut data).at("read", &path)?;
    match record::find(&data[..read], base, true) {
        Found::Record(record) if !record::is_torn(&record, size, &data[size..read]) => Ok(record.store_timestamp),
        _ => Ok(-1),
    }
}

/// Read from the file's beginning, as much as there is.
fn read_full(file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], read as u64)? {
            0 => break,
            size => read += size,
        }
    }
    Ok(read)
}

struct Scan {
    end: u64,
    /// First position of the file read last.
    last: u64,
    records: u64,
    last_timestamp: i64,
    /// A record that isn't whole, or none, is at `end`.
    ended: bool,
}

impl Scan {
    /// Replay the log files from `from` on; the log ends only behind `start`.
    fn run(
        config: &Config,
        bases: &[u64],
        (from, start): (u64, u64),
        check_crc: bool,
        progress: &Progress,
        replay: &mut Replay,
    ) -> Result<Self> {
        let mut scan = Self { end: from, last: from, records: 0, last_timestamp: 0, ended: false };
        let bases = &bases[bases.partition_point(|&base| base < from)..];
        progress.read.store(0, Ordering::Relaxed);
        progress.total.store(bases.len() as u64 * config.log_file_size, Ordering::Relaxed);
        for &base in bases {
            let file = MappedFile::open(&config.commit_log, base, config.log_file_size as usize)?;
            file.read_ahead();
            let read_before = base - from;
            scan.file(&file, check_crc, |at, record| {
                progress.read.store(read_before + at as u64, Ordering::Relaxed);
                replay.put(record)
            })?;
            scan.last = base;
            if scan.ended && base >= start {
                progress.read.store(scan.end - from, Ordering::Relaxed);
                break;
            }
            (scan.end, scan.ended) = (base + config.log_file_size, false);
            progress.read.store(scan.end - from, Ordering::Relaxed);
        }
        Ok(scan)
    }

    /// Replay the records of a file; `put` is told where each ends.
    fn file(
        &mut self,
        file: &MappedFile,
        check_crc: bool,
        mut put: impl FnMut(usize, &record::Record<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut at = 0;
        loop {
            let data = file.read(at);
            match record::find(data, file.base + at as u64, check_crc) {
                Found::Record(record) if record::is_torn(&record, at + record.size, &data[record.size..]) => {
                    self.ended = true;
                    break;
                }
                Found::Record(record) => {
                    at += record.size;
                    self.records += 1;
                    self.last_timestamp = record.store_timestamp;
                    put(at, &record)?;
                }
                Found::Blank => break,
                // A record may end exactly at the end of a file that another store wrote.
                Found::Nothing if data.is_empty() => break,
                Found::Nothing => {
                    self.ended = true;
                    break;
                }
            }
        }
        self.end = file.base + at as u64;
        Ok(())
    }
}

/// Wipe what is behind `end`, and map the file with what is before.
fn end_file(config: &Config, base: u64, end: u64) -> Result<MappedFile> {
    let path = mapped_file::path(&config.commit_log, base);
    let written = end - base;
    let handle = OpenOptions::new().read(true).write(true).open(&path).at("open", &path)?;
    let wiped = wipe(&handle, written, config.log_file_size).at("wipe the end of", &path)?;
    allocate(&handle, config.log_file_size).at("allocate", &path)?;
    if wiped {
        // Before anything is written there, or a power cut might bring back what stood behind it.
        handle.sync_all().at("sync", &path)?;
    }
    MappedFile::open(&config.commit_log, base, written as usize)
}

/// Make everything from `from` on zero; whether it wasn't. A hole does that without writing; shortening the file and
/// extending it again would too, but a crash in between leaves a file of a length that keeps the store from opening.
fn wipe(file: &File, from: u64, size: u64) -> io::Result<bool> {
    if is_zero(file, from, size)? {
        return Ok(false);
    }
    let made = match fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, from, size - from) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(file, from, size),
        other => Ok(other?),
    };
    made.map(|()| true)
}

fn write_zeros(file: &File, from: u64, size: u64) -> io::Result<()> {
    let block = vec![0; ZEROS];
    (from..size)
        .step_by(ZEROS)
        .try_for_each(|at| file.write_all_at(&block[..(size - at).min(ZEROS as u64) as usize], at))
}

pub fn is_zero(file: &File, from: u64, size: u64) -> io::Result<bool> {
    let mut at = from;
    let mut block = vec![0; mapped_file::PAGE];
    while at < size {
        // Most files are sparse behind their end, and holes needn't be read.
        at = match seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => return Ok(true),
            Err(_) => at,
        };
        // Up to the page's end at first: behind it there is mostly a hole, whose zeros would only fill the page cache.
        let wanted = (block.len() - at as usize % mapped_file::PAGE).min(size.saturating_sub(at) as usize);
        match file.read_at(&mut block[..wanted], at)? {
            0 => return Ok(true),
            // All of it, since that is quicker than to look for the first.
            read if block[..read].iter().fold(0, |all, byte| all | byte) != 0 => return Ok(false),
            read => at += read as u64,
        }
        block.resize(ZEROS, 0);
    }
    Ok(true)
}

/// Entries of one queue, in a row, that the scan has found and no file was asked about yet.
struct Run {
    start: u64,
    entries: Vec<u8>,
}

pub struct Replay {
    pub queues: Queues,
    /// None where only simple queues are made.
    batches: Option<BatchReplay>,
    /// Whether there are light queues.
    pub has_light: bool,
    start: u64,
    /// Where the log begins; what it has below `start` isn't replayed, but for `repaired`.
    log_min: u64,
    /// Other files, whose tags codes are taken over where they fit.
    old: Option<QueueFiles>,
    /// By slot of the queue.
    runs: Vec<Option<Run>>,
    runs_size: usize,
    /// Of queues that lack entries below `start`, by slot: where in the log the first of them may lead.
    lost: HashMap<usize, u64>,
    /// Slots of the queues that are made again from what is below `start` too; None for all.
    repaired: Option<HashSet<usize>>,
}

impl Replay {
    pub fn new(files: QueueFiles, start: u64, old: Option<QueueFiles>) -> Self {
        let (runs, lost, repaired) = (Vec::new(), HashMap::new(), Some(HashSet::new()));
        Self {
            queues: Queues::new(files),
            batches: None,
            has_light: false,
            start,
            log_min: start,
            old,
            runs,
            runs_size: 0,
            lost,
            repaired,
        }
    }

    /// Take up the queues on disk, each up to its first entry at or above `start`; whether there are any.
    fn load(&mut self) -> Result<bool> {
        let root = self.queues.files.root.clone();
        for (topic, topic_path) in directories(&root)? {
            self.has_light |= topic.starts_with(LMQ_PREFIX);
            for (id, path) in directories(&topic_path)? {
                let Ok(id) = id.parse::<u32>().map(|id| id as i32) else { continue };
                if id >= 0 && self.queues.files.directory(&topic, id) == path {
                    self.load_queue(&topic, id, &path)?;
                }
            }
        }
        Ok(self.queues.iter().next().is_some())
    }

    fn is_repaired(&self, slot: usize) -> bool {
        self.repaired.as_ref().is_none_or(|slots| slots.contains(&slot))
    }

    /// Whether a queue lacks entries before `index` that an earlier scan would find, and from where in the log on.
    fn lost_before(&self, slot: usize, queue: &Queue, index: u64) -> Option<u64> {
        if self.start <= self.log_min || index <= queue.next || self.is_repaired(slot) {
            return None;
        }
        if !queue.exists {
            // A topic without a directory was deleted.
            return self.queues.files.root.join(&*queue.topic).is_dir().then_some(self.log_min);
        }
        let last = queue.next.checked_sub(1).and_then(|last| self.queues.entry(queue, last));
        let position = last.filter(|last| last.is_real()).map_or(self.log_min, |last| last.position as u64);
        (position < self.start).then_some(position)
    }

    fn load_queue(&mut self, topic: &str, id: i32, path: &Path) -> Result<()> {
        let bases = self.queues.files.list(path)?;
        let size = self.queues.files.file_size;
        // Files behind a gap are what counts, as the newest are there.
        let first = bases.windows(2).rposition(|pair| pair[0] + size != pair[1]).map_or(0, |gap| gap + 1);
        let Some(&first_base) = bases.get(first) else { return Ok(()) };
        let per_file = size / UNIT as u64;
        let (mut end, mut last) = (first_base / UNIT as u64, None);
        for &base in bases[first..].iter().rev() {
            let (used, entry) = used_entries(&mapped_file::path(path, base), per_file)?;
            if used > 0 {
                (end, last) = (base / UNIT as u64 + used, entry);
                break;
            }
        }
        let Some(slot) = self.queues.slot_or_new(topic.as_bytes(), id) else { return Ok(()) };
        let Some(queue) = self.queues.queue_mut(slot) else { return Ok(()) };
        (queue.exists, queue.min, queue.next, queue.written) = (true, first_base / UNIT as u64, end, end);
        let Some(queue) = self.queues.queue(slot) else { return Ok(()) };
        // An entry that a power cut has torn may lead anywhere; one that is whole leads behind the one before it.
        while let Some(entry) = last.filter(|last| last.is_real() && end > queue.min + 1) {
            let before = self.queues.entry(queue, end - 2);
            if before.is_none_or(|before| !before.is_real() || before.position < entry.position) {
                break;
            }
            (end, last) = (end - 1, before);
        }
        let is_trusted = |entry: Entry| !entry.is_real() || (entry.position as u64) < self.start;
        let trusted = match last {
            Some(last) if !is_trusted(last) => self.queues.search(queue, is_trusted),
            _ => end,
        };
        self.set_end(slot, trusted);
        Ok(())
    }

    fn set_end(&mut self, slot: usize, end: u64) {
        if let Some(queue) = self.queues.queue_mut(slot) {
            (queue.next, queue.written) = (end, end);
        }
    }

    /// Put a record into its queue, or rather into the run of entries that will be.
    pub fn put(&mut self, record: &record::Record<'_>) -> Result<()> {
        if let Some(batches) = self.batches.as_mut().filter(|batches| batches.takes(record)) {
            return batches.put(record);
        }
        let Some((index, entry)) = entry_of(record) else { return Ok(()) };
        if self.has_light {
            for (queue, index) in light_queues(record) {
                self.put_entry(queue, 0, index, entry)?;
            }
        }
        self.put_entry(record.topic, record.queue_id, index, entry)
    }

    fn put_entry(&mut self, topic: &[u8], queue_id: i32, index: u64, entry: Entry) -> Result<()> {
        let Some(slot) = self.queues.slot_or_new(topic, queue_id) else { return Ok(()) };
        if (entry.position as u64) < self.start && !self.is_repaired(slot) {
            return Ok(());
        }
        if self.runs.len() <= slot {
            self.runs.resize_with(slot + 1, || None);
        }
        let follows = |run: &Run| run.start + (run.entries.len() / UNIT) as u64 == index;
        if self.runs[slot].as_ref().is_some_and(|run| !follows(run) || run.entries.len() >= PENDING_MAX) {
            self.write(slot)?;
        }
        let run = self.runs[slot].get_or_insert_with(|| Run { start: index, entries: Vec::new() });
        run.entries.extend_from_slice(&entry.bytes());
        self.runs_size += UNIT;
        if self.runs_size > RUNS_MAX {
            self.write_all()?;
        }
        Ok(())
    }

    fn write_all(&mut self) -> Result<()> {
        (0..self.runs.len()).try_for_each(|slot| self.write(slot))
    }

    /// Bring a run to its file.
    fn write(&mut self, slot: usize) -> Result<()> {
        let (Some(mut run), Some(queue)) = (self.runs[slot].take(), self.queues.queue(slot)) else { return Ok(()) };
        self.runs_size -= run.entries.len();
        if let Some(position) = self.lost_before(slot, queue, run.start) {
            self.lost.insert(slot, position);
            return Ok(());
        }
        // What there was of an earlier life of the topic isn't missed.
        self.lost.remove(&slot);
        if let Some(old) = &self.old {
            take_over_tags(old, &queue.topic, queue.id, &mut run);
        }
        let files = Arc::clone(&self.queues.files);
        let per_file = files.file_size / UNIT as u64;
        let (topic, id) = (Arc::clone(&queue.topic), queue.id);
        let file_start = run.start - run.start % per_file;
        let (mut first, mut filled) = (queue.min, run.start);
        // A queue without files, one whose files are too far behind to fill the gap, or one whose first file is gone:
        // in each case the run's file begins with entries that were never there.
        let apart = !queue.exists || run.start > queue.next.saturating_add(per_file) || run.start < first;
        if apart {
            if run.start >= first && queue.exists {
                files.delete_all(&topic, id)?;
            }
            if !queue.exists || run.start >= first {
                first = file_start;
            }
            first = first.min(file_start);
            self.fill(&files, (&topic, id), file_start, run.start)?;
        } else if run.start > queue.next {
            filled = queue.next;
            self.fill(&files, (&topic, id), queue.next, run.start)?;
        }
        merge(&files, &topic, id, run.start, &run.entries)?;
        let end = run.start + (run.entries.len() / UNIT) as u64;
        self.set_end(slot, end);
        if let Some(queue) = self.queues.queue_mut(slot) {
            (queue.exists, queue.min) = (true, first);
        }
        // What was there already may be so in the page cache only, the name of its file too, which a kill leaves. From the
        // beginning of the file on, because that is what makes names be forced.
        self.queues.set_unforced(slot, filled.min(file_start) / per_file * per_file);
        Ok(())
    }

    /// Give the holes among the entries from..to pre-blank entries.
    fn fill(&self, files: &QueueFiles, (topic, id): (&str, i32), from: u64, to: u64) -> Result<()> {
        let blanks = Entry::BLANK.bytes().repeat((to - from) as usize);
        change(files, topic, id, from, &blanks, |old, _| {
            old.is_used() && (!old.is_real() || (old.position as u64) < self.start)
        })
    }

    /// The scan has ended: end the queues where it says, on disk too, and find where they begin.
    pub fn finish(&mut self, log_min: u64) -> Result<()> {
        self.write_all()?;
        let files = Arc::clone(&self.queues.files);
        for slot in self.queues.slots() {
            let Some(queue) = self.queues.queue(slot).filter(|queue| queue.exists) else { continue };
            let (topic, id, next) = (Arc::clone(&queue.topic), queue.id, queue.next);
            if next == 0 {
                files.delete_all(&topic, id)?;
                if let Some(queue) = self.queues.queue_mut(slot) {
                    queue.exists = false;
                }
                continue;
            }
            end_queue(&files, &topic, id, next)?;
            let last = self.queues.entry(queue, next - 1).filter(|entry| entry.is_real());
            let is_below = |entry: Entry| !entry.is_real() || (entry.position as u64) < log_min;
            let first = self.queues.entry(queue, queue.min);
            let min = if first.is_some_and(|first| !is_below(first)) {
                queue.min
            } else {
                self.queues.search(queue, is_below)
            };
            let min_position = self.queues.entry(queue, min).map_or(log_min, |entry| entry.position as u64);
            if let Some(queue) = self.queues.queue_mut(slot) {
                (queue.min, queue.min_position) = (min, min_position);
                queue.last_end = last.map_or(0, Entry::end);
            }
        }
        Ok(())
    }
}

/// Apache keeps delivery times and extension addresses in tags codes, which the log doesn't tell.
fn take_over_tags(old: &QueueFiles, topic: &str, id: i32, run: &mut Run) {
    let mut place = 0;
    while place < run.entries.len() {
        let (index, wanted) = (run.start + (place / UNIT) as u64, (run.entries.len() - place) / UNIT);
        // What can't be read has nothing to take over.
        let found = old.read(topic, id, index, wanted as u64).unwrap_or_default();
        let covered = found.len().max(UNIT).min(run.entries.len() - place);
        for (new, old) in run.entries[place..place + covered].chunks_exact_mut(UNIT).zip(found.chunks_exact(UNIT)) {
            if let (Some(expected), Some(found)) = (Entry::read(new), Entry::read(old)) {
                let is_same = (found.position, found.size) == (expected.position, expected.size);
                if is_same && tags_fit(topic, found.tags, expected.tags) {
                    new.copy_from_slice(old);
                }
            }
        }
        place += covered;
    }
}

/// Write the entries that aren't there yet.
fn merge(files: &QueueFiles, topic: &str, id: i32, start: u64, entries: &[u8]) -> Result<()> {
    change(files, topic, id, start, entries, |old, new| (old.position, old.size) == (new.position, new.size))
}

fn change(
    files: &QueueFiles,
    topic: &str,
    id: i32,
    start: u64,
    entries: &[u8],
    keep: impl Fn(Entry, Entry) -> bool,
) -> Result<()> {
    let mut merged = entries.to_vec();
    let mut changed = None;
    let mut at = start;
    while at < start + (entries.len() / UNIT) as u64 {
        let place = (at - start) as usize * UNIT;
        let wanted = (entries.len() - place) / UNIT;
        let in_file = files.file_size / UNIT as u64 - at % (files.file_size / UNIT as u64);
        let directory = files.directory(topic, id);
        let old = files.read(topic, id, at, wanted as u64).at("read a queue in", &directory)?;
        let covered = (wanted as u64).min(in_file) as usize;
        for number in 0..covered {
            let place = place + number * UNIT;
            let new = Entry::read(&merged[place..]);
            match (old.get(number * UNIT..).and_then(Entry::read), new) {
                (Some(old), Some(new)) if keep(old, new) => merged[place..place + UNIT].copy_from_slice(&old.bytes()),
                _ => changed = changed.or(Some(at + number as u64)),
            }
        }
        at += covered as u64;
    }
    changed.map_or(Ok(()), |first| files.write(topic, id, first, &merged[(first - start) as usize * UNIT..]))
}

/// Zero the entries from `next` on and delete the files behind, the last one first, for good: once the checkpoint has gone
/// on, a queue is believed what it says of the log before.
pub fn end_queue(files: &QueueFiles, topic: &str, id: i32, next: u64) -> Result<()> {
    let directory = files.directory(topic, id);
    let end = next * files.unit;
    let mut deleted = false;
    for &base in files.list(&directory)?.iter().rev() {
        let path = mapped_file::path(&directory, base);
        if base > end {
            fs::remove_file(&path).at("delete", &path)?;
            deleted = true;
        } else if base + files.file_size > end {
            let file = OpenOptions::new().read(true).write(true).open(&path).at("open", &path)?;
            if wipe(&file, end - base, files.file_size).at("wipe the end of", &path)? {
                file.sync_data().at("sync", &path)?;
            }
        }
    }
    if deleted {
        mapped_file::sync_directory(&directory)?;
    }
    Ok(())
}

/// How many entries at the start of a queue file are used, and the last of them.
fn used_entries(path: &PathBuf, per_file: u64) -> Result<(u64, Option<Entry>)> {
    let last_of = |block: &[u8], used: usize| Entry::read(block.get(used.checked_sub(1)? * UNIT..)?);
    let file = File::open(path).at("open", path)?;
    let mut block = vec![0; BLOCK];
    // Most queues are short: their end is in the first block.
    let mut read = read_block(&file, &mut block, 0).at("read", path)?;
    if let Some(used) = first_unused(&block[..read]) {
        return Ok((used as u64, last_of(&block, used)));
    }
    let per_block = (BLOCK / UNIT) as u64;
    let (mut low, mut high) = (1, per_file.div_ceil(per_block));
    while low < high {
        let middle = low + (high - low) / 2;
        read = read_block(&file, &mut block[..UNIT], middle * BLOCK as u64).at("read", path)?;
        if first_unused(&block[..read]).is_none() && read == UNIT {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    // Block `low` is the first that doesn't start with a used entry: the end is in the one before, or at its end.
    let last = low - 1;
    read = read_block(&file, &mut block, last * BLOCK as u64).at("read", path)?;
    let used = first_unused(&block[..read]).unwrap_or(read / UNIT);
    let used = used.min((per_file - last * per_block) as usize);
    Ok((last * per_block + used as u64, last_of(&block, used)))
}

fn read_block(file: &File, block: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < block.len() {
        match file.read_at(&mut block[read..], at + read as u64)? {
            0 => break,
            size => read += size,
        }
    }
    Ok(read / UNIT * UNIT)
}

fn first_unused(block: &[u8]) -> Option<usize> {
    block.chunks_exact(UNIT).position(|entry| !Entry::read(entry).is_some_and(Entry::is_used))
}

/// Directories inside `path` with readable names; a missing `path` has none.
pub fn directories(path: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).at("list", path)? {
        let entry = entry.at("list", path)?;
        if let Some(name) = entry.file_name().to_str().filter(|_| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            found.push((name.to_owned(), entry.path()));
        }
    }
    Ok(found)
}
