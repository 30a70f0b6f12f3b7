//! Recovery: where the log ends, and what the queues have to say about it.
//!
//! The log is the truth. It is scanned from `start`, up to which it was on disk and has to be there, and ends before the first
//! record that isn't whole: wrong magic, size, position or CRC. What lies behind was never acknowledged, and is wiped so
//! that it can't come to life again behind a new tail after the next crash. What was scanned may be in the page cache only,
//! and isn't called flushed before it is.
//!
//! The scan begins earlier where queues have lost what they had: all of their files, or entries between those they have and
//! those the scan finds. Below `start` the log isn't judged: nothing there is cut off, whatever it holds.

use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
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
    batch_replay::{BatchReplay, Named},
    consume_queue::Queues,
    error::{store, value, At, Error, Result},
    mapped_file::{allocate, create_directory, MappedFile},
    queue_files::QueueFiles,
    record::{self, Crc, Found, BLANK_SIZE},
    replay::Replay,
    state::Config,
    walk::{Faults, Walk, WINDOW},
};

/// A file beside the queues while they are made again from the log. What a kill, or a disk without room, leaves of that looks
/// like queues that end early.
const INCOMPLETE: &str = "incomplete";
/// Bytes looked at, or written, at a time where a file is to be zero.
const ZEROS: usize = 64 << 10;

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

/// What is known of the store before.
pub struct Before {
    /// Where the log is whole and on disk up to: the first position of a file, or a place where a record ends.
    pub start: u64,
    /// Whether there were simple queues, and batch queues, for what is below. They are lost where none is found.
    pub had_queues: bool,
    pub had_batch_queues: bool,
    /// Whether what is behind may have been put into light queues.
    pub had_light_queues: bool,
    /// What is known of batch queues beside that.
    pub named: Named,
}

pub fn recover(config: &Config, before: &Before, crc: Crc, progress: &Progress) -> Result<Recovered> {
    let start = before.start;
    let bases = config.log.list(config.log_file_size)?;
    let min = bases.first().copied().unwrap_or(0);
    let root = File::open(&config.consume_queue).at("open", &config.consume_queue)?;
    check_start(config, &bases, start)?;
    let files = || QueueFiles::simple(config.consume_queue.clone(), config.queue_file_size);
    let mut replay = Replay::new(files(), (start, min), None);
    let mut batches = BatchReplay::load(config.batch_files(), &before.named, (start, min))?;
    let incomplete = config.consume_queue.join(INCOMPLETE);
    let mut is_marked = incomplete.exists();
    let has_batch_root = batches.has_root;
    let all_light = before.had_light_queues || config.light_queues_max > 0;
    let batches_lost = is_marked || (before.had_batch_queues && !batches.has_queues());
    if batches_lost {
        batches.repair_all();
    }
    replay.batches = Some(batches);
    replay.levels = config.delay_levels.clone();
    let mut from = if batches_lost { min } else { start };
    let has_queues = replay.load(all_light)?;
    if is_marked || (before.had_queues && !has_queues) {
        from = min;
        replay.repair_all();
    }
    // Once their directory is there again, it is taken to tell of all batch queues.
    if from < start || (!has_batch_root && !before.named.topics.is_empty()) {
        mark(&incomplete, &root, &mut is_marked)?;
    }
    let mut scan = Scan::run(config, &bases, (from, start), crc, progress, &mut replay)?;
    replay.write_all()?;
    if let Some(position) = replay.lost_from().filter(|_| from > min) {
        // What was written belongs to what the second look believes.
        replay.queues.force(&root).map_err(Error::of_sync)?;
        from = bases.iter().rfind(|&&base| base <= position).copied().unwrap_or(min);
        let mut again = Replay::new(files(), (start, min), None);
        again.load(all_light)?;
        // What is missing then is in no log.
        let mut batches = BatchReplay::load(config.batch_files(), &before.named, (start, start))?;
        if !has_batch_root {
            batches.repair_all(); // the directory is that of the first look
        }
        again.batches = Some(batches);
        again.repair_lost_of(&replay);
        again.levels = config.delay_levels.clone();
        replay = again;
        mark(&incomplete, &root, &mut is_marked)?;
        scan = Scan::run(config, &bases, (from, start), crc, progress, &mut replay)?;
        replay.write_all()?;
    }
    let in_use = bases.partition_point(|&base| !scan.ended || base <= scan.last);
    let mut files = VecDeque::new();
    for &base in &bases[..in_use] {
        files.push_back(Arc::new(if scan.ended && base == scan.last {
            end_file(config, base, scan.end)?
        } else {
            MappedFile::open(config.log.path(base), base, config.log_file_size as usize)?
        }));
    }
    // The last one first, each forced before the next: a crash on the way may leave no gap.
    for &base in bases[in_use..].iter().rev() {
        let path = config.log.path(base);
        fs::remove_file(&path).at("delete", &path)?;
        config.log.sync()?;
    }
    config.log.sync()?;
    if !has_batch_root && replay.batches.as_ref().is_some_and(BatchReplay::has_queues) {
        mark(&incomplete, &root, &mut is_marked)?;
    }
    replay.finish(min)?;
    if from < start {
        // For the next recovery they are where they belong, however this one ends.
        replay.queues.force(&root).map_err(Error::of_sync)?;
    }
    let mut batch_queues = match replay.batches {
        Some(batches) => batches.finish(min)?,
        None => BatchQueues::new(config.batch_files()),
    };
    let batch_root = batch_queues.files.root.clone();
    for directory in before.named.topics.iter().map(|topic| batch_root.join(topic)).filter(|path| !path.is_dir()) {
        create_directory(&directory)?;
    }
    if is_marked {
        batch_queues.force().map_err(Error::of_sync)?;
        fs::remove_file(&incomplete).at("delete", &incomplete)?;
        root.sync_all().at("sync the directory of", &incomplete)?;
    }
    Ok(Recovered {
        files,
        queues: replay.queues,
        batch_queues,
        flushed: start.min(scan.end),
        end: scan.end,
        records: scan.records,
        last_timestamp: scan.last_timestamp,
    })
}

fn mark(path: &Path, directory: &File, is_marked: &mut bool) -> Result<()> {
    if !std::mem::replace(is_marked, true) {
        File::create(path).at("create", path)?;
        directory.sync_all().at("sync the directory of", path)?;
    }
    Ok(())
}

/// A log that doesn't reach up to `start` any more has lost messages that were on disk. To go on would hide that, and cut
/// off what is left behind a damage, so it is an error, and nothing has been changed then.
///
/// What is below `start` isn't judged, only whether it is there: a record has to end at `start` or to begin there. It is
/// looked for in the megabyte before, and in more where no record begins in that.
fn check_start(config: &Config, bases: &[u64], start: u64) -> Result<()> {
    let size = config.log_file_size;
    let (min, end) = (bases.first().copied().unwrap_or(0), bases.last().map_or(0, |last| last + size));
    if start < min {
        return value(format!("start {start} is below the log's first position {min}"));
    }
    if start > end {
        return lost(config, end, start);
    }
    if start % size == 0 {
        return Ok(());
    }
    let base = start - start % size;
    let mut walk = Walk::new(config.log.clone(), size, WINDOW, false);
    let mut distance = WINDOW as u64;
    loop {
        let (from, mut faults) = (base.max(start.saturating_sub(distance)), Faults::new());
        let first = if from == base { Some(base) } else { walk.search(base, from)? };
        let step = walk.step(first.unwrap_or(start + 1), start, &mut faults, |_, _| Ok(()))?;
        if step.next == start {
            return Ok(());
        }
        if from == base {
            return lost(config, faults.list.last().map_or(step.next, |fault| base + fault.at), start);
        }
        distance *= 8;
    }
}

fn lost(config: &Config, end: u64, start: u64) -> Result<()> {
    let root = config.consume_queue.parent().unwrap_or(Path::new("")).display();
    if end == 0 {
        return store(format!(
            "there is no log in {}, and it was whole on disk up to {start}: put it back from a copy, or delete \
             {root}/checkpoint to begin anew",
            config.log
        ));
    }
    store(format!(
        "the log in {} is damaged or ends at {end}, and was whole on disk up to {start}; nothing was changed. `rockmq store \
         verify {root}` tells what is there; put the log back from a copy, or have `rockmq store repair {root} --yes` end it \
         where it still can be read",
        config.log
    ))
}

/// The store timestamp of the record a log file starts with, -1 when it doesn't start with one.
pub fn first_timestamp(path: &Path, base: u64) -> Result<i64> {
    let file = File::open(path).at("open", path)?;
    let mut head = [0; 128];
    let read = read_full(&file, &mut head, 0).at("read", path)?;
    let size = record::int_at(&head, 0).filter(|&size| size > 0).unwrap_or(0) as usize;
    if !record::is_record(&head[..read], size, base) || size as u64 > file.metadata().at("look at", path)?.len() {
        return Ok(-1);
    }
    // Of a torn record the time may be zero, or half a time: so old that recovery would begin behind what it has to check.
    let mut data = vec![0; size + BLANK_SIZE];
    let read = read_full(&file, &mut data, 0).at("read", path)?;
    match record::find(&data[..read], base, Crc::Body) {
        Found::Record(record) if !record::is_torn(&record, size, &data[size..read]) => Ok(record.store_timestamp),
        _ => Ok(-1),
    }
}

/// Read from `at` on, as much as there is.
pub fn read_full(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], at + read as u64)? {
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
    /// Replay the log from `from` on; it ends only at or behind `start`. Below, records with a damaged body count as well, and
    /// what is none is passed over.
    fn run(
        config: &Config,
        bases: &[u64],
        (from, start): (u64, u64),
        crc: Crc,
        progress: &Progress,
        replay: &mut Replay,
    ) -> Result<Self> {
        let size = config.log_file_size;
        let mut scan = Self { end: from, last: from, records: 0, last_timestamp: 0, ended: false };
        let bases = &bases[bases.partition_point(|&base| base + size <= from)..];
        progress.read.store(0, Ordering::Relaxed);
        progress.total.store(bases.last().map_or(0, |last| last + size - from), Ordering::Relaxed);
        for &base in bases {
            let file = MappedFile::open(config.log.path(base), base, size as usize)?;
            file.read_ahead();
            scan.file(config, &file, (from, start), crc, |end, record| {
                progress.read.store(end - from, Ordering::Relaxed);
                replay.put(record)
            })?;
            scan.last = base;
            if !scan.ended {
                scan.end = base + size;
            }
            progress.read.store(scan.end - from, Ordering::Relaxed);
            if scan.ended {
                break;
            }
        }
        Ok(scan)
    }

    /// Replay the records of a file; `put` is told where each ends.
    fn file(
        &mut self,
        config: &Config,
        file: &MappedFile,
        (from, start): (u64, u64),
        crc: Crc,
        mut put: impl FnMut(u64, &record::Record<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut position = from.max(file.base);
        loop {
            let at = (position - file.base) as usize;
            let data = file.read(at);
            let is_whole = |record: &record::Record<'_>| match position < start {
                true => position + record.size as u64 <= start,
                false => record.passes(crc) && !record::is_torn(record, at + record.size, &data[record.size..]),
            };
            match record::find(data, position, Crc::Ignored) {
                Found::Record(record) if is_whole(&record) => {
                    position += record.size as u64;
                    self.records += 1;
                    self.last_timestamp = record.store_timestamp;
                    put(position, &record)?;
                }
                Found::Blank => break,
                // A record may end exactly at the end of a file that another store wrote.
                Found::Nothing if data.is_empty() => break,
                _ if position < start => {
                    let mut walk = Walk::new(config.log.clone(), config.log_file_size, WINDOW, false);
                    let next = walk.search(file.base, position + 1)?;
                    position = start.min(next.unwrap_or(file.base + file.size() as u64));
                }
                _ => {
                    (self.end, self.ended) = (position, true);
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Wipe what is behind `end`, and map the file with what is before.
fn end_file(config: &Config, base: u64, end: u64) -> Result<MappedFile> {
    let path = config.log.path(base);
    let written = end - base;
    let handle = OpenOptions::new().read(true).write(true).open(&path).at("open", &path)?;
    let wiped = wipe(&handle, written, config.log_file_size).at("wipe the end of", &path)?;
    allocate(&handle, config.log_file_size).at("allocate", &path)?;
    if wiped {
        // Before anything is written there, or a power cut might bring back what stood behind it.
        handle.sync_all().at("sync", &path)?;
    }
    MappedFile::open(path, base, written as usize)
}

/// Make everything from `from` on zero; whether it wasn't. A hole does that without writing; shortening the file and
/// extending it again would too, but a crash in between leaves a file of a length that keeps the store from opening.
pub fn wipe(file: &File, from: u64, size: u64) -> io::Result<bool> {
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

/// Whether there is nothing but zeros from `from` up to `size`, or to the end of a shorter file.
pub fn is_zero(file: &File, from: u64, size: u64) -> io::Result<bool> {
    let mut block = vec![0; ZEROS];
    for (begin, end) in data_ranges(file, from, size) {
        let mut at = begin;
        while at < end {
            let wanted = block.len().min((end - at) as usize);
            match file.read_at(&mut block[..wanted], at)? {
                0 => return Ok(true),
                // All of it, since that is quicker than to look for the first.
                read if block[..read].iter().fold(0, |all, byte| all | byte) != 0 => return Ok(false),
                read => at += read as u64,
            }
        }
    }
    Ok(true)
}

/// Where a file isn't a hole, which most are behind their end. All that is found out before anything is read: the kernel
/// reads ahead, and what it has read of a hole isn't one any more, so that reading would lead on and on.
fn data_ranges(file: &File, from: u64, size: u64) -> Vec<(u64, u64)> {
    let mut ranges = Vec::new();
    let mut at = from;
    while at < size {
        let begin = match seek(file, SeekFrom::Data(at)) {
            Ok(begin) => begin,
            Err(Errno::NXIO) => break,
            Err(_) => at,
        };
        let end = seek(file, SeekFrom::Hole(begin)).unwrap_or(size).min(size);
        if begin < end {
            ranges.push((begin, end));
        }
        at = end.max(begin + 1);
    }
    ranges
}
