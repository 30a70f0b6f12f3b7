//! The queues of a store that is being opened: what their files hold, and what the records of the log say.
//!
//! Of a queue, entries that point below `start` are trusted. All others follow the scan: each record is put at its own
//! queue offset, in log order, and the queue ends behind the last one put. An entry that is there already stays as it
//! is, tags code included; Apache keeps delivery times and extension addresses in that field. A hole that no record fills
//! gets pre-blank entries.
//!
//! A store may have a million queues, most of them short and idle. Each is looked at once, and if it turns out that its file
//! holds what the log says, it isn't touched again: new entries go to the tail in memory, as those of an append do.

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use crate::{
    batch_replay::BatchReplay,
    check_queues::{entry_of, tags_fit},
    consume_queue::{Entry, Queue, Queues, PENDING_MAX, UNIT},
    delays::Levels,
    error::{At, Result},
    light,
    mapped_file::{self, PAGE},
    queue_files::QueueFiles,
    record::{self, SIZE_MIN},
    recover::{is_zero, read_full, wipe},
};

/// Bytes of entries held for all queues before they are put into files.
const RUNS_MAX: usize = 64 << 20;
/// Indexes over this have no place in a file.
pub const INDEX_MAX: i64 = i64::MAX / (4 * UNIT as i64);
/// Entries in the first page of a file.
const PER_PAGE: u64 = (PAGE / UNIT) as u64;
/// Threads that look at files. They mostly wait for the kernel, which does it for some at a time.
const THREADS_MAX: usize = 4;
/// Topics below which one thread will do.
const TOPICS_MIN: usize = 256;

/// Entries of one queue, in a row, that the scan has found and no file was asked about yet.
struct Run {
    start: u64,
    entries: Vec<u8>,
}

/// What the files of a queue hold.
struct Files {
    /// The first entry of the first file that counts.
    first: u64,
    /// Behind the entries that are trusted.
    next: u64,
    /// Entries behind that, and nothing but zeros behind them; None when it can't be said that simply.
    others: Option<Vec<u8>>,
    /// The first of the trusted entries that leads into the log, and where; None when none does.
    min: Option<(u64, u64)>,
    /// The end of the last trusted entry's record, 0 when it leads to none; None without such an entry.
    last_end: Option<u64>,
    /// Whether no trusted entry leads to a record, and no run was brought to the queue yet.
    is_blank: bool,
}

impl Files {
    /// No files, and nothing of a queue but its name.
    const NONE: Self = Self { first: 0, next: 0, others: Some(Vec::new()), min: None, last_end: None, is_blank: true };
}

pub struct Replay {
    pub queues: Queues,
    /// None where only simple queues are made.
    pub batches: Option<BatchReplay>,
    /// Topics of the light queues that records are put into too; None for all.
    pub light: Option<HashSet<Box<[u8]>>>,
    pub levels: Levels,
    start: u64,
    /// Where the log begins; what it has below `start` isn't replayed, but for `repaired`.
    log_min: u64,
    /// Other files, whose tags codes are taken over where they fit.
    old: Option<QueueFiles>,
    /// By slot of the queue, as the next one; queues without have no files.
    runs: Vec<Option<Run>>,
    files: Vec<Files>,
    runs_size: usize,
    /// Of queues that lack entries below `start`, by slot: where in the log the first of them may lead.
    lost: HashMap<usize, u64>,
    /// Slots of the queues that are made again from what is below `start` too; None for all.
    repaired: Option<HashSet<usize>>,
}

impl Replay {
    pub fn new(files: QueueFiles, (start, log_min): (u64, u64), old: Option<QueueFiles>) -> Self {
        Self {
            queues: Queues::new(files),
            batches: None,
            light: Some(HashSet::new()),
            levels: Levels::default(),
            start,
            log_min,
            old,
            runs: Vec::new(),
            files: Vec::new(),
            runs_size: 0,
            lost: HashMap::new(),
            repaired: Some(HashSet::new()),
        }
    }

    /// Make all queues again from the log.
    pub fn repair_all(&mut self) {
        self.repaired = None;
    }

    /// Make those queues again that `before` has found to lack entries.
    pub fn repair_lost_of(&mut self, before: &Self) {
        let lost = before.lost.keys().filter_map(|&slot| before.queues.queue(slot));
        self.repaired = Some(lost.filter_map(|lost| self.queues.slot_or_new(lost.topic.as_bytes(), lost.id)).collect());
    }

    /// Where in the log the first entry that a queue lacks may lead.
    pub fn lost_from(&self) -> Option<u64> {
        let in_batches = self.batches.as_ref().and_then(|batches| batches.lost);
        self.lost.values().copied().chain(in_batches).min()
    }

    /// Take up the queues on disk, each up to its first entry at or above `start`; whether there are any. Light queues that
    /// have no directory are made only with `all_light`.
    pub fn load(&mut self, all_light: bool) -> Result<bool> {
        let topics = directories(&self.queues.files.root)?;
        self.light = if all_light { None } else { Some(light_topics(&topics)) };
        let threads = match thread::available_parallelism() {
            Ok(count) if topics.len() >= TOPICS_MIN => count.get().min(THREADS_MAX),
            _ => 1,
        };
        let files = Arc::clone(&self.queues.files);
        let bounds = (self.start, self.log_min);
        let look = |topics: &[(String, PathBuf)]| -> Result<Vec<(String, i32, Files)>> {
            let mut found = Vec::new();
            for (topic, path) in topics {
                for (id, path) in directories(path)? {
                    let Ok(id) = id.parse::<u32>().map(|id| id as i32) else { continue };
                    if id >= 0 && files.directory(topic, id) == path {
                        let queue = look_at(&files, (topic, id), &path, bounds)?;
                        found.extend(queue.map(|queue| (topic.clone(), id, queue)));
                    }
                }
            }
            Ok(found)
        };
        let pieces = thread::scope(|scope| {
            let pieces = topics.chunks(topics.len().div_ceil(threads).max(1));
            let threads: Vec<_> = pieces.map(|piece| scope.spawn(|| look(piece))).collect();
            threads.into_iter().map(|thread| thread.join()).collect::<Vec<_>>()
        });
        for piece in pieces {
            for (topic, id, files) in piece.unwrap_or_else(|panic| std::panic::resume_unwind(panic))? {
                self.take_up(&topic, id, files);
            }
        }
        Ok(self.queues.iter().next().is_some())
    }

    fn take_up(&mut self, topic: &str, id: i32, files: Files) {
        let Some(slot) = self.queues.slot_or_new(topic.as_bytes(), id) else { return };
        let Some(queue) = self.queues.queue_mut(slot) else { return };
        (queue.exists, queue.min, queue.next, queue.written) = (true, files.first, files.next, files.next);
        self.make_room(slot);
        self.files[slot] = files;
    }

    fn make_room(&mut self, slot: usize) {
        if self.runs.len() <= slot {
            self.runs.resize_with(slot + 1, || None);
            self.files.resize_with(slot + 1, || Files::NONE);
        }
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
        let position = self.last_position(queue).unwrap_or(self.log_min);
        (position < self.start).then_some(position)
    }

    /// Where the last entry of a queue leads, or the log's beginning if nowhere; None for a queue without entries.
    fn last_position(&self, queue: &Queue) -> Option<u64> {
        let last = self.queues.entry(queue, queue.next.checked_sub(1)?)?;
        Some(if last.is_real() { last.position as u64 } else { self.log_min })
    }

    /// Whether records can be where their queue offsets say. Nothing else in a record tells when that field is damaged, and
    /// to believe it could cost a queue what it has: the offsets of a queue have no gaps as long as the log is there, and
    /// begin again at zero.
    fn is_believed(&self, slot: usize, queue: &Queue, run: &Run) -> bool {
        // Several in a row don't go wrong alike. Where nothing is known, how many pre-blank entries there are says nothing:
        // an earlier recovery has made them, and the next one has to find the same.
        if run.start == queue.next || run.start == 0 || self.files[slot].is_blank {
            return true;
        }
        let are_several = run.entries.len() > UNIT;
        if run.start < queue.next {
            return are_several || self.repaired.as_ref().is_some_and(|slots| slots.contains(&slot));
        }
        let position = Entry::read(&run.entries).map_or(0, |first| first.position as u64);
        match self.last_position(queue) {
            Some(last) if last >= self.log_min => {
                let gap = run.start - queue.next;
                // To fill it has to end one day.
                let is_near = gap <= self.queues.files.file_size / UNIT as u64;
                (are_several && is_near) || gap <= position.saturating_sub(last) / SIZE_MIN as u64
            }
            _ => true,
        }
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
        let Some((index, entry)) = entry_of(record, &self.levels) else { return Ok(()) };
        if self.light.as_ref().is_none_or(|topics| !topics.is_empty()) {
            for (topic, index) in light::queues(record) {
                if self.light.as_ref().is_none_or(|topics| topics.contains(topic)) {
                    self.put_entry(topic, 0, index, entry)?;
                }
            }
        }
        self.put_entry(record.topic, record.queue_id, index, entry)
    }

    fn put_entry(&mut self, topic: &[u8], queue_id: i32, index: u64, entry: Entry) -> Result<()> {
        let Some(slot) = self.queues.slot_or_new(topic, queue_id) else { return Ok(()) };
        if (entry.position as u64) < self.start && !self.is_repaired(slot) {
            return Ok(());
        }
        self.make_room(slot);
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

    pub fn write_all(&mut self) -> Result<()> {
        (0..self.runs.len()).try_for_each(|slot| self.write(slot))
    }

    /// Bring a run to its queue.
    fn write(&mut self, slot: usize) -> Result<()> {
        let (Some(mut run), Some(queue)) = (self.runs[slot].take(), self.queues.queue(slot)) else { return Ok(()) };
        self.runs_size -= run.entries.len();
        if !self.is_believed(slot, queue, &run) {
            return Ok(());
        }
        if let Some(position) = self.lost_before(slot, queue, run.start) {
            self.lost.insert(slot, position);
            return Ok(());
        }
        // What there was of an earlier life of the topic isn't missed.
        self.lost.remove(&slot);
        let was_blank = std::mem::replace(&mut self.files[slot].is_blank, false);
        if self.go_on(slot, &run) {
            return Ok(());
        }
        self.queues.write_tail(slot)?;
        self.files[slot].others = None;
        let Some(queue) = self.queues.queue(slot) else { return Ok(()) };
        if let Some(old) = &self.old {
            take_over_tags(old, &queue.topic, queue.id, &mut run);
        }
        let files = Arc::clone(&self.queues.files);
        let per_file = files.file_size / UNIT as u64;
        let (topic, id) = (Arc::clone(&queue.topic), queue.id);
        let file_start = run.start - run.start % per_file;
        let (mut first, mut filled) = (queue.min, run.start);
        // A queue without files, one whose entries lead to a log that is gone and are too far behind to fill the gap, or one
        // whose first file is gone: in each case the run's file begins with entries that were never there.
        let is_far = run.start > queue.next.saturating_add(per_file);
        let is_outdated = is_far && (was_blank || self.last_position(queue).is_none_or(|last| last < self.log_min));
        if !queue.exists || is_outdated || run.start < first {
            if is_outdated {
                files.delete_all(&topic, id)?;
            }
            if !queue.exists || is_outdated {
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
        self.set_unforced(slot, filled.min(file_start));
        Ok(())
    }

    /// Take up a run that begins where its queue ends, if no file has to be looked at or written for it.
    fn go_on(&mut self, slot: usize, run: &Run) -> bool {
        let Some(queue) = self.queues.queue(slot).filter(|queue| queue.next == run.start && self.old.is_none()) else {
            return false;
        };
        let Files { next, others: Some(others), .. } = &self.files[slot] else { return false };
        // A queue that has no file begins with one. What was lost is in files before anybody is served: killed with it in
        // memory, the next recovery might not notice that it is missing.
        if (!queue.exists && run.start != 0) || (self.start > self.log_min && self.is_repaired(slot)) {
            return false;
        }
        let there = others.get((run.start - next) as usize * UNIT..).unwrap_or_default();
        let (known, new) = run.entries.split_at(run.entries.len().min(there.len()));
        let are_same = known.chunks_exact(UNIT).zip(there.chunks_exact(UNIT)).all(|(new, old)| new[..12] == old[..12]);
        if !are_same {
            return false;
        }
        if !known.is_empty() {
            self.set_end(slot, run.start + (known.len() / UNIT) as u64);
        }
        self.set_unforced(slot, run.start);
        let new: Vec<Entry> = new.chunks_exact(UNIT).filter_map(Entry::read).collect();
        self.queues.push(slot, &new);
        self.queues.relieve(slot);
        true
    }

    /// What was there already may be so in the page cache only, the name of its file too, which a kill leaves. From the
    /// beginning of the file on, because that is what makes names be forced.
    fn set_unforced(&mut self, slot: usize, from: u64) {
        let per_file = self.queues.files.file_size / UNIT as u64;
        self.queues.set_unforced(slot, from / per_file * per_file);
    }

    /// Give the holes among the entries from..to pre-blank entries.
    fn fill(&self, files: &QueueFiles, (topic, id): (&str, i32), from: u64, to: u64) -> Result<()> {
        let step = files.file_size / UNIT as u64;
        let mut at = from;
        while at < to {
            let count = step.min(to - at);
            let blanks = Entry::BLANK.bytes().repeat(count as usize);
            change(files, topic, id, at, &blanks, |old, _| {
                old.is_used() && (!old.is_real() || (old.position as u64) < self.start)
            })?;
            at += count;
        }
        Ok(())
    }

    /// The scan has ended: end the queues where it says, on disk too, and find where they begin.
    pub fn finish(&mut self, log_min: u64) -> Result<()> {
        self.write_all()?;
        for slot in self.queues.slots() {
            self.make_room(slot);
            let Some(queue) = self.queues.queue(slot).filter(|queue| queue.exists) else { continue };
            let (known, next) = (&self.files[slot], queue.next);
            let used = known.others.as_ref().map(|others| known.next + (others.len() / UNIT) as u64);
            if next == 0 || used.is_none_or(|used| next < used) {
                let (files, topic, id) = (Arc::clone(&self.queues.files), Arc::clone(&queue.topic), queue.id);
                if next == 0 {
                    files.delete_all(&topic, id)?;
                    if let Some(queue) = self.queues.queue_mut(slot) {
                        queue.exists = false;
                    }
                    continue;
                }
                end_queue(&files, &topic, id, next)?;
            }
            let others = known.others.as_deref().unwrap_or_default();
            let in_memory =
                |index: u64| others.get(index.checked_sub(known.next)? as usize * UNIT..).and_then(Entry::read);
            let entry =
                |index: u64| in_memory(index).filter(|_| index < next).or_else(|| self.queues.entry(queue, index));
            let (min, position) = match known.min.filter(|_| used.is_some()) {
                Some(min) => min,
                None => begin(queue, log_min, entry),
            };
            let last_end = match known.last_end {
                Some(end) if next == known.next => end,
                _ => entry(next - 1).filter(|last| last.is_real()).map_or(0, Entry::end),
            };
            if let Some(queue) = self.queues.queue_mut(slot) {
                (queue.min, queue.min_position, queue.last_end) = (min, position, last_end);
            }
        }
        Ok(())
    }
}

/// The first entry of a queue that leads into the log, and where.
fn begin(queue: &Queue, log_min: u64, entry: impl Fn(u64) -> Option<Entry>) -> (u64, u64) {
    let is_below = |index: u64| entry(index).is_none_or(|entry| !entry.is_real() || (entry.position as u64) < log_min);
    let min = if is_below(queue.min) { partition(queue.min, queue.next, is_below) } else { queue.min };
    (min, entry(min).map_or(log_min, |entry| entry.position as u64))
}

/// What the files of a queue hold; None when there are none. `start` and `log_min` are as for `Replay`.
fn look_at(
    files: &QueueFiles,
    (topic, id): (&str, i32),
    path: &Path,
    (start, log_min): (u64, u64),
) -> Result<Option<Files>> {
    let bases = files.list(path)?;
    let (size, per_file) = (files.file_size, files.file_size / UNIT as u64);
    let is_trusted = |entry: Entry| !entry.is_real() || (entry.position as u64) < start;
    let counting = files.counting(&bases, |base| {
        let first = files.read(topic, id, base / UNIT as u64, 1).at("read", &mapped_file::path(path, base))?;
        Ok(Entry::read(&first).is_some_and(|first| first.is_used() && is_trusted(first)))
    })?;
    let is_all = counting.end == bases.len();
    let Some(&first_base) = bases.get(counting.start) else { return Ok(None) };
    let first = first_base / UNIT as u64;
    let (mut used, mut is_tidy, mut page, mut page_start) = (first, is_all, vec![0; PAGE], first);
    for &base in bases[counting].iter().rev() {
        let path = mapped_file::path(path, base);
        let file = File::open(&path).at("open", &path)?;
        let read = read_full(&file, &mut page, 0).at("read", &path)?;
        let in_file = used_entries(&file, &page[..read], per_file).at("read", &path)?;
        let behind = in_file as usize * UNIT;
        let is_rest_zero = page[behind.min(read)..read].iter().all(|&byte| byte == 0);
        is_tidy &= is_rest_zero && is_zero(&file, behind.max(read) as u64, size).at("read", &path)?;
        page_start = base / UNIT as u64;
        if in_file > 0 {
            used = page_start + in_file;
            break;
        }
    }
    let in_page = page_start..(page_start + PER_PAGE).min(page_start + per_file);
    let entry = |index: u64| {
        if in_page.contains(&index) {
            return Entry::read(&page[(index - page_start) as usize * UNIT..]);
        }
        Entry::read(&files.read(topic, id, index, 1).ok()?)
    };
    let mut next = used;
    let is_blank = loop {
        if next > first && entry(next - 1).is_some_and(|last| !is_trusted(last)) {
            next = partition(first, next, |index| entry(index).is_none_or(is_trusted));
        }
        // Pre-blank entries behind one that isn't trusted follow the scan as that does, but look trusted to the search.
        match last_real(files, (topic, id), (first, next)) {
            Some((index, last)) if !is_trusted(last) => next = index + 1,
            last => break last.is_none(),
        }
    };
    // Where a power cut has left holes among the entries behind `start`, and torn ones, which may lead anywhere, the search
    // may have ended at any of them. A whole entry leads behind the one before it.
    let is_last = |index: u64| {
        entry(index).is_some_and(|last| {
            let before = index.checked_sub(1).filter(|&before| before >= first).and_then(entry);
            let is_behind = |before: Entry| before.is_used() && (!before.is_real() || before.position < last.position);
            last.is_used() && is_trusted(last) && (!last.is_real() || before.is_none_or(is_behind))
        })
    };
    while next > first && !is_last(next - 1) {
        next -= 1;
    }
    let others = match used - next {
        0 if is_tidy => Some(Vec::new()),
        count if is_tidy && count <= PER_PAGE => {
            let others: Vec<u8> = (next..used).filter_map(entry).flat_map(Entry::bytes).collect();
            Some(others).filter(|others| others.len() == count as usize * UNIT)
        }
        _ => None,
    };
    let is_below = |index: u64| entry(index).is_none_or(|entry| !entry.is_real() || (entry.position as u64) < log_min);
    let min = if is_below(first) { partition(first, next, is_below) } else { first };
    let min = (min < next).then(|| (min, entry(min).map_or(log_min, |entry| entry.position as u64)));
    let last_end = next.checked_sub(1).filter(|&last| last >= first).and_then(entry);
    let last_end = last_end.map(|last| if last.is_real() { last.end() } else { 0 });
    Ok(Some(Files { first, next, others, min, last_end, is_blank }))
}

/// Whether all entries of a queue lead below `log_min`.
pub fn is_outdated(files: &QueueFiles, (topic, id): (&str, i32), path: &Path, log_min: u64) -> Result<bool> {
    let found = look_at(files, (topic, id), path, (log_min, log_min))?;
    Ok(found.is_some_and(|found| found.next > found.first && found.others.is_some_and(|others| others.is_empty())))
}

/// The last of the entries first..next that leads to a record, and its index.
fn last_real(files: &QueueFiles, (topic, id): (&str, i32), (first, next): (u64, u64)) -> Option<(u64, Entry)> {
    let (mut end, per_file) = (next, files.file_size / UNIT as u64);
    // The last one, mostly; a queue that was lost may begin with a file of pre-blank entries, which isn't read one by one.
    let mut count = 1;
    while end > first {
        let file_start = (end - 1) - (end - 1) % per_file;
        let start = first.max(file_start).max(end.saturating_sub(count));
        let block = files.read(topic, id, start, end - start).unwrap_or_default();
        let entries = block.chunks_exact(UNIT).filter_map(Entry::read);
        if let Some((index, last)) = (start..end).zip(entries).filter(|(_, entry)| entry.is_real()).last() {
            return Some((index, last));
        }
        (end, count) = (start, (PENDING_MAX / UNIT) as u64);
    }
    None
}

/// The first of low..high that isn't `before`; those that are come first.
fn partition(mut low: u64, mut high: u64, before: impl Fn(u64) -> bool) -> u64 {
    while low < high {
        let middle = low + (high - low) / 2;
        if before(middle) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// How many entries at the start of a queue file, of which `page` is the beginning, are used.
fn used_entries(file: &File, page: &[u8], per_file: u64) -> io::Result<u64> {
    // Most queues are short: their end is in the first page.
    if let Some(used) = first_unused(page) {
        return Ok(used as u64);
    }
    let mut block = vec![0; PER_PAGE as usize * UNIT];
    let (mut low, mut high) = (1, per_file.div_ceil(PER_PAGE));
    while low < high {
        let middle = low + (high - low) / 2;
        let read = read_full(file, &mut block[..UNIT], middle * PER_PAGE * UNIT as u64)?;
        if read == UNIT && first_unused(&block[..UNIT]).is_none() {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    // Block `low` is the first that doesn't start with a used entry: the end is in the one before, or at its end.
    let last = low - 1;
    let read = read_full(file, &mut block, last * PER_PAGE * UNIT as u64)?;
    let used = first_unused(&block[..read]).unwrap_or(read / UNIT) as u64;
    Ok((last * PER_PAGE + used).min(per_file))
}

fn first_unused(block: &[u8]) -> Option<usize> {
    block.chunks_exact(UNIT).position(|entry| !Entry::read(entry).is_some_and(Entry::is_used))
}

/// In tags codes Apache keeps extension addresses, which the log doesn't tell, and times that may be of other delay levels.
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
                if is_same && tags_fit(topic, found, expected) {
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

/// Those of the topics that are light queues.
pub fn light_topics(topics: &[(String, PathBuf)]) -> HashSet<Box<[u8]>> {
    let light = topics.iter().filter(|(topic, _)| topic.starts_with(light::PREFIX));
    light.map(|(topic, _)| topic.as_bytes().into()).collect()
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
