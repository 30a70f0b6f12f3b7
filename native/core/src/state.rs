//! The store without Python: the log, its queues, and who may touch them when.
//!
//! One lock guards the state. It is held for memory work, for creating a log file nobody prepared and for the rare write
//! of an overlong tail; forcing files, writing tails and scanning happen outside. Nobody creates a Python object while
//! holding it: that may run a garbage collection, which may run Python code, which may want the lock.
//!
//! Order of locks: `queue_io`, `flushing`, then the state.

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    batch_queue::{self, BatchQueues, Unit},
    commit_log::CommitLog,
    consume_queue::{usable_name, Entry, Job, Ordinary, Queues, FORCED_APART_MAX, UNIT},
    delays::Levels,
    error::{store, value, At, Error, Result},
    flusher::Signal,
    log_directories::LogDirectories,
    mapped_file::{create_directory, sync_directory, MappedFile},
    properties::{self, Keys},
    queue_files::{force_file_system, QueueFiles},
    recent_keys::{topic_hash, RecentKeys},
    record::{self, Crc, Message, Pattern, TOPIC_MAX},
    recover::{self, Before},
    traffic::{Kind, Number, Traffic},
    transactions::Table,
    unique_key::UniqueKeys,
};

/// Queues whose entries are written between two looks at the state.
const JOBS_MAX: usize = 32;

pub struct Config {
    pub log: LogDirectories,
    pub consume_queue: PathBuf,
    pub log_file_size: u64,
    pub queue_file_size: u64,
    pub batch_queue_file_size: u64,
    pub store_host: Vec<u8>,
    pub max_message_size: usize,
    pub region: String,
    pub trace_on: bool,
    pub cluster: String,
    pub append_crc_property: bool,
    /// How many light queues there may be, 0 where messages may be in none.
    pub light_queues_max: usize,
    pub delay_levels: Levels,
}

impl Config {
    /// The files of batch queues, which lie beside the others.
    pub fn batch_files(&self) -> QueueFiles {
        QueueFiles::batch(self.consume_queue.with_file_name("batchconsumequeue"), self.batch_queue_file_size)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Names and sizes were looked at.
    Opened,
    Recovered,
    Closed,
}

pub struct State {
    pub log: CommitLog,
    pub queues: Queues,
    pub batch_queues: BatchQueues,
    pub phase: Phase,
    pub writable: bool,
    /// Why an append found no room. Nobody tries again before `set_writable`: to find a disk full takes long.
    pub full: Option<String>,
    pub unique_keys: UniqueKeys,
    pub appended: (u64, u64),
    /// Store timestamp of the last record.
    pub last_timestamp: i64,
    /// Store timestamp of the last record when the log was last forced.
    pub forced_until: i64,
    /// Entries of the batch appended last.
    pub batch: Vec<Entry>,
    pub recent_keys: RecentKeys,
    pub delay_levels: Levels,
    pub transactions: Table,
    pub traffic: Traffic,
    /// Position and store timestamp up to which `flush_queues` has last written everything.
    boundary: (u64, i64),
}

pub struct Appended {
    pub position: u64,
    pub end: u64,
    pub queue_offset: u64,
    pub watched: bool,
}

/// Bytes from what is written now to what the processor is told to fetch.
const AHEAD: usize = 512;

/// `size` bytes of `place` are going to be written soon.
#[inline]
fn prefetch_for_write(place: &[u8], size: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in place.get(AHEAD..AHEAD + size).unwrap_or_default().chunks(64) {
        use std::arch::x86_64::{_mm_prefetch, _MM_HINT_ET0};
        // SAFETY: a prefetch is a hint that never faults, and reads and changes nothing.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.as_ptr().cast()) };
    }
}

impl State {
    fn appendable(&self) -> Result<()> {
        match self.phase {
            Phase::Opened => store("recover was not called yet"),
            Phase::Closed => store("the store is closed"),
            Phase::Recovered => match &self.full {
                Some(full) => Err(Error::Full(full.clone())),
                None if !self.writable => store("the store is not writable"),
                None => Ok(()),
            },
        }
    }

    pub fn is_appendable(&self) -> bool {
        self.appendable().is_ok()
    }

    pub fn set_writable(&mut self, writable: bool) {
        (self.writable, self.full) = (writable, None);
    }

    fn noting_full<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(Error::Full(text)) = &result {
            self.full = Some(text.clone());
        }
        result
    }

    /// Append one record; `slot` is its queue's if it is known already, `keys` are what its properties say.
    pub fn append(
        &mut self,
        slot: Option<usize>,
        message: &Message<'_>,
        keys: &Keys<'_>,
        kind: Kind,
    ) -> Result<Appended> {
        self.appendable()?;
        let Some(slot) = slot.or_else(|| self.queues.slot_or_new(message.topic, message.queue_id)) else {
            return value("topic can't name a directory");
        };
        let queued = message.is_queued();
        let queue_offset = self.queues.queue(slot).filter(|_| queued).map_or(0, |queue| queue.next);
        let size = message.size();
        let position = self.log.append(size, |out, position| message.encode(out, queue_offset as i64, position));
        let position = self.noting_full(position)?;
        let end = position + size as u64;
        self.note_appended(1, size, message.store_timestamp);
        if message.sys_flag & record::TRANSACTION != record::TRANSACTION_ROLLBACK {
            let topic_hash = self.queues.queue(slot).map_or(0, |queue| queue.topic_hash);
            self.recent_keys.note(topic_hash, keys, position, end, message.store_timestamp);
        }
        let mut watched = false;
        if queued {
            let due = match self.queues.queue(slot) {
                Some(queue) if queue.is_delaying => self.delay_levels.due(message.properties, message.store_timestamp),
                _ => None,
            };
            let tags = due.unwrap_or_else(|| properties::tags_code(keys.tags));
            watched = self.queues.push(slot, &[Entry { position: position as i64, size: size as i32, tags }]);
            self.queues.relieve(slot);
            self.note_arrival(slot, kind, 1, size as u64);
        }
        Ok(Appended { position, end, queue_offset, watched })
    }

    /// Append the messages of a client batch, all or none, in one file. `common` says what they have in common; the
    /// entries stay in `batch`.
    pub fn append_batch(&mut self, common: &Message<'_>, body: &[u8], kind: Kind) -> Result<Appended> {
        self.appendable()?;
        if body.is_empty() {
            return value("body is empty");
        }
        let Some(slot) = self.queues.slot_or_new(common.topic, common.queue_id) else {
            return value("topic can't name a directory");
        };
        let queue_offset = self.queues.queue(slot).map_or(0, |queue| queue.next);
        let topic_hash = self.queues.queue(slot).map_or(0, |queue| queue.topic_hash);
        let (position, end) = self.write_batch(common, body, queue_offset, topic_hash)?;
        let watched = self.queues.push(slot, &self.batch);
        self.queues.relieve(slot);
        self.note_arrival(slot, kind, self.batch.len() as u64, end - position);
        Ok(Appended { position, end, queue_offset, watched })
    }

    /// Write the records of a client batch, whose entries are in `batch` then: their position, and where they end.
    fn write_batch(
        &mut self,
        common: &Message<'_>,
        body: &[u8],
        queue_offset: u64,
        topic_hash: i32,
    ) -> Result<(u64, u64)> {
        let pattern = Pattern::new(common);
        let mut size = 0;
        for inner in record::batch(body) {
            let inner = inner.map_err(Error::Value)?;
            check_properties_size(pattern.properties_size(&inner))?;
            size += pattern.size(&inner);
        }
        let (batch, recent_keys) = (&mut self.batch, &mut self.recent_keys);
        batch.clear();
        let position = self.log.append(size, |mut out, mut position| {
            for inner in record::checked_batch(body) {
                let size = pattern.size(&inner);
                let (place, rest) = out.split_at_mut(size);
                prefetch_for_write(rest, size);
                pattern.encode(&inner, place, (queue_offset + batch.len() as u64) as i64, position);
                let keys = properties::keys(inner.properties);
                let tags = properties::tags_code(keys.tags);
                batch.push(Entry { position: position as i64, size: size as i32, tags });
                let end = position + size as u64;
                recent_keys.note(topic_hash, &keys, position, end, common.store_timestamp);
                position = end;
                out = rest;
            }
        });
        let position = self.noting_full(position)?;
        self.note_appended(self.batch.len() as u64, size, common.store_timestamp);
        Ok((position, position + size as u64))
    }

    /// Append one record to a batch queue. An inner batch says in its properties how many messages it is, and is told there
    /// which offset the first of them has.
    pub fn append_unit(&mut self, message: &Message<'_>, properties: &[u8], kind: Kind) -> Result<Appended> {
        self.appendable()?;
        let Some(queue) = self.batch_queues.queue_or_new(message.topic, message.queue_id) else {
            return value("topic can't name a directory");
        };
        let queue_offset = if message.is_queued() { queue.view.next } else { 0 };
        let (mut count, mut base) = (1, String::new());
        if message.sys_flag & record::INNER_BATCH == record::INNER_BATCH {
            base = format!("INNER_BASE\x01{queue_offset}\x02");
            let told = [properties, base.as_bytes()].concat();
            count = match properties::inner_batch(&told) {
                Some((_, count)) if properties.last() == Some(&properties::VALUE_END) => count,
                _ => return value("properties have no INNER_NUM from 1 to 32767, or don't end with a separator"),
            };
        }
        let pieces = [properties, base.as_bytes()];
        let message = Message { properties: &pieces, ..*message };
        check_properties_size(message.properties_size())?;
        let size = message.size();
        let position = self.log.append(size, |out, position| message.encode(out, queue_offset as i64, position));
        let position = self.noting_full(position)?;
        let end = position + size as u64;
        self.note_appended(count as u64, size, message.store_timestamp);
        let keys = properties::keys(properties);
        if message.sys_flag & record::TRANSACTION != record::TRANSACTION_ROLLBACK {
            self.recent_keys.note(topic_hash(message.topic), &keys, position, end, message.store_timestamp);
        }
        let mut watched = false;
        if message.is_queued() {
            let entry = Entry { position: position as i64, size: size as i32, tags: properties::tags_code(keys.tags) };
            watched = self.push_unit(&message, Unit::new(entry, message.store_timestamp, queue_offset, count));
            self.traffic.note(&mut Number::default(), message.topic, kind, count as u64, size as u64);
        }
        Ok(Appended { position, end, queue_offset, watched })
    }

    /// Append the messages of a client batch to a batch queue, each by itself.
    pub fn append_units(&mut self, common: &Message<'_>, body: &[u8], kind: Kind) -> Result<Appended> {
        self.appendable()?;
        if body.is_empty() {
            return value("body is empty");
        }
        let Some(queue) = self.batch_queues.queue_or_new(common.topic, common.queue_id) else {
            return value("topic can't name a directory");
        };
        let queue_offset = queue.view.next;
        let (position, end) = self.write_batch(common, body, queue_offset, topic_hash(common.topic))?;
        let mut watched = false;
        for (number, entry) in std::mem::take(&mut self.batch).into_iter().enumerate() {
            self.batch.push(entry);
            let unit = Unit::new(entry, common.store_timestamp, queue_offset + number as u64, 1);
            watched |= self.push_unit(common, unit);
        }
        self.traffic.note(&mut Number::default(), common.topic, kind, self.batch.len() as u64, end - position);
        Ok(Appended { position, end, queue_offset, watched })
    }

    fn push_unit(&mut self, message: &Message<'_>, unit: Unit) -> bool {
        let Some(queue) = self.batch_queues.queue_or_new(message.topic, message.queue_id) else { return false };
        queue.push(&unit);
        if !self.queues.is_leaving(&queue.view.topic) {
            queue.relieve();
        }
        std::mem::take(&mut queue.watched)
    }

    /// Count what came to a queue as its topic's.
    fn note_arrival(&mut self, slot: usize, kind: Kind, messages: u64, bytes: u64) {
        if let Some(queue) = self.queues.queue_mut(slot) {
            self.traffic.note(&mut queue.number, queue.topic.as_bytes(), kind, messages, bytes);
        }
    }

    fn note_appended(&mut self, messages: u64, bytes: usize, timestamp: i64) {
        self.appended.0 += messages;
        self.appended.1 += bytes as u64;
        self.last_timestamp = timestamp;
    }

    /// Where the record at a position lies: its file, the place there, its size.
    pub fn record_at(&self, position: u64) -> Option<(Arc<MappedFile>, usize, usize)> {
        let (file, at) = self.log.locate(position)?;
        let bytes = file.read(at);
        let size = usize::try_from(record::int_at(bytes, 0)?).ok()?;
        let is_whole = record::is_record(bytes, size, position) && size <= bytes.len();
        is_whole.then(|| (Arc::clone(file), at, size))
    }

    /// The store timestamp of the record an entry leads to.
    pub fn timestamp_of(&self, entry: Entry) -> Option<i64> {
        let bytes = self.log.read(entry.position as u64).filter(|_| entry.is_real())?;
        record::is_record(bytes, entry.size as usize, entry.position as u64).then(|| record::store_timestamp(bytes))?
    }
}

pub struct Shared {
    pub config: Config,
    pub flush_signal: Signal,
    pub recovery: recover::Progress,
    state: Mutex<State>,
    flushing: Mutex<()>,
    queue_io: Mutex<()>,
    /// The directory of the queues, opened before anything was written there: see `force_file_system`.
    queue_root: File,
}

impl Shared {
    pub fn open(config: Config) -> Result<Self> {
        check(&config)?;
        config.log.create()?;
        create_directory(&config.consume_queue)?;
        config.log.list(config.log_file_size)?;
        let queue_root = File::open(&config.consume_queue).at("open", &config.consume_queue)?;
        let files = QueueFiles::simple(config.consume_queue.clone(), config.queue_file_size);
        let state = State {
            log: CommitLog::new(config.log.writable.clone(), config.log_file_size),
            queues: Queues::new(files),
            batch_queues: BatchQueues::new(config.batch_files()),
            phase: Phase::Opened,
            writable: true,
            full: None,
            unique_keys: UniqueKeys::new(&config.store_host[..config.store_host.len() - 4]),
            appended: (0, 0),
            last_timestamp: 0,
            forced_until: 0,
            batch: Vec::new(),
            recent_keys: RecentKeys::default(),
            delay_levels: config.delay_levels.clone(),
            transactions: Table::default(),
            traffic: Traffic::default(),
            boundary: (0, 0),
        };
        let (flush_signal, recovery, flushing, queue_io) = Default::default();
        Ok(Self { config, flush_signal, recovery, state: Mutex::new(state), flushing, queue_io, queue_root })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// (first position, store timestamp of the first record or -1) of each log file.
    pub fn log_files(&self) -> Result<Vec<(u64, i64)>> {
        let (phase, bases) = {
            let state = self.state();
            (state.phase, state.log.bases())
        };
        let bases = match phase {
            Phase::Opened => self.config.log.list(self.config.log_file_size)?,
            _ => bases,
        };
        let mut files = Vec::with_capacity(bases.len());
        for base in bases {
            match recover::first_timestamp(&self.config.log.path(base), base) {
                Ok(timestamp) => files.push((base, timestamp)),
                // Deleted since.
                Err(_) if phase == Phase::Recovered && base < self.state().log.min() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }

    pub fn set_ordinary(&self, topic: &str, write_queues: i32, multi_tag: bool) -> Result<()> {
        check_message(topic, 0, b"", &self.config.store_host)?;
        if self.state().batch_queues.has_topic(topic.as_bytes()) {
            return store(format!("the topic {topic} has batch queues, so none of its sends is ordinary"));
        }
        self.state().queues.set_ordinary(topic, Some(Ordinary { write_queues, multi_tag }));
        Ok(())
    }

    /// Let `topic` have batch queues, by a directory that tells the next recovery.
    pub fn set_batch(&self, topic: &str) -> Result<()> {
        check_message(topic, 0, b"", &self.config.store_host)?;
        let mut state = self.state();
        if state.queues.has_queues(topic.as_bytes()) {
            return store(format!("the topic {topic} has simple queues already, and can't have batch queues"));
        }
        if state.batch_queues.has_topic(topic.as_bytes()) {
            return Ok(());
        }
        let directory = state.batch_queues.files.root.join(topic);
        // First of all, so that whoever is deleting files of an earlier life leaves the directory there.
        state.batch_queues.add_topic(topic.as_bytes());
        drop(state);
        let made = create_directory(&directory);
        if made.is_err() {
            self.state().batch_queues.forget(topic);
        }
        made
    }

    pub fn watch(&self, topic: &str, queue_id: i32) -> Result<()> {
        check_message(topic, queue_id, b"", &self.config.store_host)?;
        let mut state = self.state();
        if state.batch_queues.has_topic(topic.as_bytes()) {
            if let Some(queue) = state.batch_queues.queue_or_new(topic.as_bytes(), queue_id) {
                queue.watched = true;
            }
        } else if let Some(queue) =
            state.queues.slot_or_new(topic.as_bytes(), queue_id).and_then(|slot| state.queues.queue_mut(slot))
        {
            queue.watched = true;
        }
        Ok(())
    }

    pub fn recover(&self, before: &Before, crc: Crc) -> Result<(u64, u64)> {
        let _io = lock(&self.queue_io);
        if self.state().phase != Phase::Opened {
            return store("recover is only for a store that was just opened");
        }
        let recovered = recover::recover(&self.config, before, crc, &self.recovery)?;
        let mut state = self.state();
        state.log.adopt(recovered.files, recovered.flushed, recovered.end);
        state.boundary = (recovered.flushed, 0);
        let known = std::mem::replace(&mut state.queues, recovered.queues);
        state.queues.inherit(known);
        if self.config.light_queues_max > 0 {
            state.queues.bound_light(self.config.light_queues_max);
        }
        state.batch_queues = recovered.batch_queues;
        state.last_timestamp = recovered.last_timestamp;
        state.phase = Phase::Recovered;
        Ok((recovered.end, recovered.records))
    }

    pub fn flush(&self) -> Result<u64> {
        let _flushing = lock(&self.flushing);
        let (unflushed, last_timestamp) = {
            let mut state = self.state();
            match state.log.unflushed()? {
                Some(unflushed) => (unflushed, state.last_timestamp),
                None => {
                    state.forced_until = state.last_timestamp;
                    return Ok(state.log.flushed());
                }
            }
        };
        let result = unflushed.force().map_err(Error::of_sync);
        let mut state = self.state();
        state.log.set_flushed(unflushed.target, result)?;
        state.forced_until = last_timestamp;
        Ok(unflushed.target)
    }

    pub fn flush_queues(&self, force: bool) -> Result<(u64, i64)> {
        let (boundary, files, dirty) = loop {
            let deleted = self.delete_forgotten();
            let mut state = self.state();
            // Of a topic whose files are still to go nothing is written, so the boundary stays where it was. Files that can't
            // be deleted are told to who wants that, and cost others nothing.
            if deleted.is_ok() && state.queues.next_leaving().is_some() {
                continue;
            }
            if deleted.is_ok() {
                state.boundary = (state.log.max(), state.last_timestamp);
            }
            break (state.boundary, Arc::clone(&state.queues.files), state.queues.take_dirty(force));
        };
        let mut pieces = dirty.chunks(JOBS_MAX);
        while let Some(piece) = pieces.next() {
            // Held piece by piece, so that deleting a topic needn't wait for all.
            let _io = lock(&self.queue_io);
            let jobs = self.state().queues.jobs(piece);
            if let Err(error) = self.write_jobs(&files, &jobs) {
                let mut state = self.state();
                pieces.for_each(|piece| state.queues.put_back_dirty(piece));
                return Err(error);
            }
        }
        self.flush_batch_queues(force)?;
        if force {
            let forcing = self.state().queues.take_unforced();
            if forcing.len() > FORCED_APART_MAX {
                if let Err(error) = force_file_system(&self.queue_root, &files.root) {
                    self.state().queues.put_back_unforced(&forcing);
                    return Err(error.of_sync());
                }
            } else {
                for (number, piece) in forcing.chunks(JOBS_MAX).enumerate() {
                    let _io = lock(&self.queue_io);
                    if let Err(error) = files.force(piece) {
                        self.state().queues.put_back_unforced(&forcing[number * JOBS_MAX..]);
                        return Err(error.of_sync());
                    }
                }
            }
        }
        self.state().queues.age();
        Ok(boundary)
    }

    fn flush_batch_queues(&self, force: bool) -> Result<()> {
        let _io = lock(&self.queue_io);
        let (files, jobs) = {
            let mut state = self.state();
            let State { queues, batch_queues, .. } = &mut *state;
            (Arc::clone(&batch_queues.files), batch_queues.jobs(|topic| queues.is_leaving(topic)))
        };
        for job in &jobs {
            job.write(&files)?;
            self.state().batch_queues.done(job);
        }
        if force {
            let forcing = self.state().batch_queues.take_unforced();
            if let Err(error) = files.force(&forcing) {
                self.state().batch_queues.put_back_unforced(&forcing);
                return Err(error.of_sync());
            }
        }
        Ok(())
    }

    fn write_jobs(&self, files: &QueueFiles, jobs: &[Job]) -> Result<()> {
        let mut result = Ok(());
        let mut written = 0;
        for job in jobs {
            result = files.write(&job.topic, job.id, job.index, &job.entries);
            if result.is_err() {
                break;
            }
            written += 1;
        }
        let mut state = self.state();
        jobs[..written].iter().for_each(|job| state.queues.done(job));
        jobs[written..].iter().for_each(|job| state.queues.failed(job));
        result
    }

    pub fn prepare_next_file(&self) -> Result<bool> {
        let (base, directory) = {
            let mut state = self.state();
            if state.phase != Phase::Recovered {
                return store("only a recovered store has a next file");
            }
            match state.log.start_preparing() {
                Some(place) => place,
                None => return Ok(false),
            }
        };
        let file = MappedFile::create(&directory, base, self.config.log_file_size);
        let mut state = self.state();
        let closed = state.phase == Phase::Closed;
        let made = state.log.set_prepared(file);
        if closed {
            state.log.close()?;
        }
        made
    }

    /// Tell the kernel how files are used: all are read ahead or not, and those that are yet to be written not if `sparing`
    /// says so; the one written now and the next one are locked in memory if `lock` says so, the others not any more; the
    /// next one is brought into memory if `warm` says so.
    pub fn tend_files(&self, read_ahead: bool, sparing: bool, warm: bool, lock: bool) -> Result<()> {
        let (mut files, next) = self.state().log.maps();
        let current = files.pop();
        for file in &files {
            file.advise(read_ahead);
            file.unlock().at("unlock the memory of", &file.path)?;
        }
        for file in current.iter().chain(&next) {
            file.advise(read_ahead && !sparing);
        }
        if let Some(next) = next.as_ref().filter(|_| warm) {
            next.warm();
        }
        for file in current.iter().chain(&next).filter(|_| lock) {
            file.lock().at("lock the memory of", &file.path)?;
        }
        Ok(())
    }

    pub fn delete_files_below(&self, position: u64) -> Result<Vec<PathBuf>> {
        if !self.state().log.has_files_below(position) {
            return Ok(Vec::new());
        }
        // A queue goes on at its own offset even if all of its records are deleted, which then only its files can tell.
        // Without room for them, what is deleted here may be the only way to get some.
        match self.flush_queues(true) {
            Ok(_) | Err(Error::Full(_)) => {}
            Err(error) => return Err(error),
        }
        let dropped = self.state().log.drop_below(position);
        let mut paths = Vec::new();
        for (number, file) in dropped.iter().enumerate() {
            let removed = fs::remove_file(&file.path).at("delete", &file.path);
            if removed.is_err() {
                self.state().log.take_back(&dropped[number..]);
                removed?;
            }
            paths.push(file.path.clone());
            // Forced before the file behind it is deleted: a power cut may leave no gap either.
            if let Err(error) = file.path.parent().map_or(Ok(()), sync_directory) {
                self.state().log.take_back(&dropped[number + 1..]);
                return Err(error.of_sync());
            }
        }
        let (min, slots, files) = {
            let state = self.state();
            (state.log.min(), state.queues.slots(), Arc::clone(&state.queues.files))
        };
        for slot in slots {
            let _io = lock(&self.queue_io);
            let raised = {
                let mut state = self.state();
                let Some(first) = state.queues.first_needed(slot, min) else { continue };
                state.queues.queue(slot).map(|queue| (Arc::clone(&queue.topic), queue.id, first))
            };
            if let Some((topic, id, first)) = raised {
                files.delete_below(&topic, id, first)?;
            }
        }
        let _io = lock(&self.queue_io);
        let (views, flushed) = {
            let mut state = self.state();
            (state.batch_queues.views(), state.log.flushed())
        };
        for view in &views {
            let (begin, min) = view.beginning_at(min)?;
            if self.state().batch_queues.raise_min(view, begin, min) {
                view.delete_files_below(begin, flushed)?;
            }
        }
        Ok(paths)
    }

    pub fn forget_queues(&self, topic: &str) -> Result<()> {
        if usable_name(topic.as_bytes()).is_none() {
            return value("topic can't name a directory");
        }
        let mut state = self.state();
        state.queues.forget(topic);
        state.batch_queues.forget(topic);
        state.traffic.forget(topic.as_bytes());
        Ok(())
    }

    /// Delete the files of the topics that were forgotten.
    pub fn delete_forgotten(&self) -> Result<()> {
        // Whoever has begun to write one of them ends that first.
        let _io = lock(&self.queue_io);
        loop {
            let (topic, simple, batch) = {
                let state = self.state();
                let Some(topic) = state.queues.next_leaving() else { return Ok(()) };
                let files = &state.queues.files;
                let simple = [files.root.join(topic), files.extensions(topic)];
                (topic.to_owned(), simple, state.batch_queues.files.root.join(topic))
            };
            for directory in simple.iter().chain([&batch]) {
                match fs::remove_dir_all(directory) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    removed => removed.at("delete", directory)?,
                }
            }
            // A topic of that name that has batch queues by now is known by its directory, unless it was forgotten as well.
            let is_back = self.state().batch_queues.has_topic(topic.as_bytes());
            if is_back {
                create_directory(&batch)?;
            }
            let mut state = self.state();
            if state.batch_queues.has_topic(topic.as_bytes()) == is_back {
                state.queues.left(&topic);
            }
        }
    }

    pub fn close(&self) -> Result<()> {
        let recovered = self.state().phase == Phase::Recovered;
        let results =
            if recovered { [self.flush().map(drop), self.flush_queues(true).map(drop)] } else { [Ok(()), Ok(())] };
        let mut state = self.state();
        state.phase = Phase::Closed;
        let closed = state.log.close();
        results.into_iter().collect::<Result<()>>().and(closed)
    }
}

/// A panic with the lock held would be a bug of ours; the state is only changed in steps that leave it whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check(config: &Config) -> Result<()> {
    if !(1024..=i32::MAX as u64).contains(&config.log_file_size) {
        return value(format!("log_file_size {} is not within 1024 … {}", config.log_file_size, i32::MAX));
    }
    if config.batch_queue_file_size == 0
        || config.batch_queue_file_size % batch_queue::UNIT as u64 != 0
        || config.batch_queue_file_size > 1 << 40
    {
        let (size, unit) = (config.batch_queue_file_size, batch_queue::UNIT);
        return value(format!("batch_queue_file_size {size} is not a multiple of {unit} within bounds"));
    }
    if config.queue_file_size == 0 || config.queue_file_size % UNIT as u64 != 0 || config.queue_file_size > 1 << 40 {
        return value(format!("queue_file_size {} is not a multiple of {UNIT} within bounds", config.queue_file_size));
    }
    check_host("store_host", &config.store_host)?;
    for (name, text) in [("region", &config.region), ("cluster", &config.cluster)] {
        if text.bytes().any(|byte| byte == properties::NAME_END || byte == properties::VALUE_END) {
            return value(format!("{name} holds a separator of properties"));
        }
    }
    Ok(())
}

pub fn check_host(name: &str, host: &[u8]) -> Result<()> {
    if host.len() == 8 || host.len() == 20 {
        return Ok(());
    }
    value(format!("{name} has {} bytes, and a host has 8 or 20", host.len()))
}

/// `size` is that of properties as they are stored.
pub fn check_properties_size(size: usize) -> Result<()> {
    if size > properties::SIZE_MAX {
        return value(format!("properties have {size} bytes, over {}", properties::SIZE_MAX));
    }
    Ok(())
}

/// What must hold of a record that Python hands over.
pub fn check_message(topic: &str, queue_id: i32, properties: &[u8], born_host: &[u8]) -> Result<()> {
    if usable_name(topic.as_bytes()).is_none() {
        return value(format!("topic '{topic}' can't name a directory (1 … {TOPIC_MAX} bytes, no '/')"));
    }
    if queue_id < 0 {
        return value(format!("queue_id {queue_id} is negative"));
    }
    check_properties_size(properties.len())?;
    if record::is_like_torn(properties) {
        return value("properties begin or end in a zero byte or hold 16 in a row, as if torn by a crash");
    }
    check_host("born_host", born_host)
}
