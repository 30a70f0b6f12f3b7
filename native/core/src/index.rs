//! The index of a store: files of keys (see `index_file`), one after the other, that follow the log.
//!
//! A message has an entry for its unique key, for each of its keys, and for its tags, all of which lead to its position.
//! Nothing is written when a message is appended: `catch_up` reads the log behind the last entry and puts what is
//! missing. So the index can always be made again from the log, and what is doubtful is deleted rather than repaired:
//! a file of another size, one whose header its entries contradict, one that leads behind the log's end, and after a
//! crash every file that wasn't forced before. A file is forced when the next one begins; its end timestamp then is what
//! the checkpoint may say.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    error::{store, At, Result},
    index_file::{positive, Header, IndexFile, Layout, Wanted},
    mapped_file::{sync_directory, MappedFile},
    properties::{self, java_hash, Keys},
    recent_keys::{hashes, topic_hash, Key},
    record::{self, Crc, Found, Record},
    state::Shared,
};

/// Index files are named by the local time of their making, `yyyyMMddHHmmssSSS`.
const NAME_SIZE: usize = 17;

pub struct Files {
    directory: PathBuf,
    layout: Layout,
    /// Files that are full, in order.
    sealed: VecDeque<(PathBuf, Header)>,
    active: Option<IndexFile>,
    position: u64,
    /// Keys of the record at `position` that have entries already.
    done: usize,
    sealed_until: i64,
    /// What `take_recent` got last; kept for its memory.
    recent: Vec<Key>,
    closed: bool,
}

pub struct Hits {
    pub positions: Vec<u64>,
    pub end_timestamp: i64,
    pub end_position: i64,
}

impl Files {
    /// Take up the files of a directory. After a crash only those are trusted that are full and end at or before
    /// `trusted_until`, the time in the checkpoint.
    pub fn open(directory: PathBuf, layout: Layout, trusted_until: Option<i64>, shared: &Shared) -> Result<Self> {
        fs::create_dir_all(&directory).at("create", &directory)?;
        let paths = list(&directory)?;
        let mut files = Self {
            directory,
            layout,
            sealed: VecDeque::new(),
            active: None,
            position: 0,
            done: 0,
            sealed_until: 0,
            recent: Vec::new(),
            closed: false,
        };
        let mut trusted = true;
        for path in paths {
            let header = if trusted { IndexFile::inspect(&path, layout)? } else { None };
            let header = header.filter(|header| {
                let forced = |until| header.is_full(layout) && header.end_timestamp <= until;
                trusted_until.is_none_or(forced) && files.active.is_none()
            });
            match header {
                Some(header) if header.is_full(layout) => files.sealed.push_back((path, header)),
                Some(_) => files.active = Some(IndexFile::open(path, layout)?),
                None => {
                    // Those behind it would stand apart from the log's order.
                    trusted = false;
                    fs::remove_file(&path).at("delete", &path)?;
                }
            }
        }
        files.resume(shared)?;
        let mut state = shared.state();
        let end = state.log.max();
        state.recent_keys.collect(true, end);
        drop(state);
        Ok(files)
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// The end timestamp of the last file that is known to be forced because it is full; 0 when this index knows of none.
    pub fn sealed_until(&self) -> i64 {
        self.sealed_until
    }

    fn last_header(&self) -> Option<&Header> {
        self.active.as_ref().map(|file| &file.header).or_else(|| self.sealed.back().map(|(_, header)| header))
    }

    /// Find where to go on: at the record that the last entry leads to, as some of its keys may be missing.
    fn resume(&mut self, shared: &Shared) -> Result<()> {
        loop {
            let min = shared.state().log.min();
            (self.position, self.done) = (min, 0);
            let Some(end) = self.last_header().map(|header| header.end_position) else { return Ok(()) };
            if end < min as i64 {
                return Ok(());
            }
            if shared.state().record_at(end as u64).is_some() {
                (self.position, self.done) = (end as u64, self.count_last(end)?);
                return Ok(());
            }
            // It was written before the log lost its end.
            self.delete_last()?;
        }
    }

    fn count_last(&self, position: i64) -> Result<usize> {
        let mut count = 0;
        if let Some(active) = &self.active {
            let (last, is_all) = active.count_last(position);
            count += last;
            if !is_all {
                return Ok(count);
            }
        }
        for (path, _) in self.sealed.iter().rev() {
            let (last, is_all) = IndexFile::open(path.clone(), self.layout)?.count_last(position);
            count += last;
            if !is_all {
                break;
            }
        }
        Ok(count)
    }

    fn delete_last(&mut self) -> Result<()> {
        let path = match self.active.take() {
            Some(active) => Some(active.path),
            None => self.sealed.pop_back().map(|(path, _)| path),
        };
        path.map_or(Ok(()), |path| fs::remove_file(&path).at("delete", &path))
    }

    /// Put what the log holds below `limit`, which is a record's end; stop early after some `bytes_max` of log. A file
    /// begun meanwhile is called `name`, or as the number after the last one's if that is larger.
    pub fn catch_up(&mut self, shared: &Shared, limit: u64, bytes_max: u64, name: &str) -> Result<()> {
        if self.closed {
            return store("the index is closed");
        }
        let mut left = bytes_max;
        while left > 0 {
            if let Some(end) = self.take_recent(shared, limit) {
                let keys = std::mem::take(&mut self.recent);
                let result = self.put_recent(shared, &keys, end, name);
                self.recent = keys;
                return result;
            }
            let Some((file, at)) = self.locate(shared, limit) else { break };
            let before = self.position;
            self.read_file(shared, &file, at, limit.min(before.saturating_add(left)), name)?;
            left = left.saturating_sub(self.position - before);
        }
        Ok(())
    }

    /// Take the keys of everything up to `limit`, if they were noted when it was appended; where that ends.
    fn take_recent(&mut self, shared: &Shared, limit: u64) -> Option<u64> {
        let mut state = shared.state();
        let end = limit.min(state.log.max());
        let are_there = self.done == 0 && (state.recent_keys.from()..end).contains(&self.position);
        are_there.then(|| {
            state.recent_keys.take(end, &mut self.recent);
            end
        })
    }

    /// After an error the rest is read from the log.
    fn put_recent(&mut self, shared: &Shared, keys: &[Key], end: u64, name: &str) -> Result<()> {
        let first = keys.partition_point(|key| key.position < self.position);
        for key in &keys[first..] {
            if self.position != key.position {
                (self.position, self.done) = (key.position, 0);
            }
            self.writable(shared, name)?.put(positive(key.hash), key.position as i64, key.timestamp)?;
            self.done += 1;
        }
        (self.position, self.done) = (end, 0);
        Ok(())
    }

    /// The log file to go on with, and where in it; None when there is nothing to do.
    fn locate(&mut self, shared: &Shared, limit: u64) -> Option<(Arc<MappedFile>, usize)> {
        let state = shared.state();
        if self.position < state.log.min() {
            (self.position, self.done) = (state.log.min(), 0);
        }
        if self.position >= limit.min(state.log.max()) {
            return None;
        }
        state.log.locate(self.position).map(|(file, at)| (Arc::clone(file), at))
    }

    /// Put the records of one log file from `at` on, until one ends at or behind `limit`.
    fn read_file(&mut self, shared: &Shared, file: &MappedFile, at: usize, limit: u64, name: &str) -> Result<()> {
        let data = file.read(at);
        let mut rest = data;
        while self.position < limit {
            match record::find(rest, self.position, Crc::Ignored) {
                Found::Record(record) => {
                    self.put_record(shared, &record, name)?;
                    (self.position, self.done) = (self.position + record.size as u64, 0);
                    rest = &rest[record.size..];
                }
                // The rest is blank; or a damage that recovery hadn't to look at, behind which nothing can be told.
                Found::Blank | Found::Nothing => {
                    let next = file.base + file.size() as u64;
                    (self.position, self.done) = (next.min(shared.state().log.max()), 0);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Put the keys of a record that aren't there yet; the order is Apache's.
    fn put_record(&mut self, shared: &Shared, record: &Record<'_>, name: &str) -> Result<()> {
        for hash in key_hashes(record).skip(self.done) {
            self.writable(shared, name)?.put(hash, record.position, record.store_timestamp)?;
            self.done += 1;
        }
        Ok(())
    }

    /// The file to put the next entry into.
    fn writable(&mut self, shared: &Shared, name: &str) -> Result<&mut IndexFile> {
        if let Some(full) = self.active.take_if(|active| active.is_full()) {
            let forced = full.force().and_then(|()| sync_directory(&self.directory));
            self.sealed.push_back((full.path.clone(), full.header));
            if let Err(error) = forced {
                // The kernel may have dropped the pages it couldn't write, so nobody can tell what the file holds now.
                self.delete_last()?;
                self.resume(shared)?;
                return Err(error);
            }
        }
        match self.active {
            Some(ref mut active) => Ok(active),
            None => {
                let before = self.sealed.back();
                let path = self.directory.join(next_name(name, before.map(|(path, _)| path.as_path())));
                let file = IndexFile::create(path, self.layout, before.map(|(_, header)| header))?;
                self.sealed_until = before.map_or(0, |(_, header)| header.end_timestamp);
                Ok(self.active.insert(file))
            }
        }
    }

    /// Positions of messages that a key may belong to, newest first: hashes are compared, not keys.
    pub fn find(&self, topic: &str, key: &str, is_tag: bool, wanted: &Wanted) -> Result<Hits> {
        let before = java_hash(topic_hash(topic.as_bytes()), if is_tag { b"T#" } else { b"" });
        let wanted = Wanted { hash: positive(java_hash(before, key.as_bytes())), ..*wanted };
        let mut positions = Vec::new();
        let active = self.active.iter().map(|file| (None, &file.header));
        let sealed = self.sealed.iter().rev().map(|(path, header)| (Some(path), header));
        for (path, header) in active.chain(sealed) {
            if header.is_matched(wanted.begin, wanted.end) {
                match (path, &self.active) {
                    (Some(path), _) => IndexFile::open(path.clone(), self.layout)?.find(&wanted, &mut positions),
                    (None, Some(active)) => active.find(&wanted, &mut positions),
                    (None, None) => {}
                }
            }
            if header.begin_timestamp < wanted.begin || positions.len() >= wanted.count_max {
                break;
            }
        }
        let last = self.last_header().copied().unwrap_or_default();
        Ok(Hits {
            positions: positions.into_iter().filter_map(|position| position.try_into().ok()).collect(),
            end_timestamp: last.end_timestamp,
            end_position: last.end_position,
        })
    }

    /// Delete the files whose last entry leads below `position`, never the newest file.
    pub fn delete_below(&mut self, position: u64) -> Result<Vec<PathBuf>> {
        let mut deleted = Vec::new();
        while let Some((path, header)) = self.sealed.front() {
            let is_newest = self.active.is_none() && self.sealed.len() == 1;
            if is_newest || u64::try_from(header.end_position).is_ok_and(|end| end >= position) {
                break;
            }
            fs::remove_file(path).at("delete", path)?;
            deleted.extend(self.sealed.pop_front().map(|(path, _)| path));
        }
        Ok(deleted)
    }

    /// Force what was written and let go of it. What can't be forced is deleted, for the reason given in `writable`.
    pub fn close(&mut self, shared: &Shared) -> Result<()> {
        self.closed = true;
        shared.state().recent_keys.collect(false, 0);
        let Some(active) = self.active.take() else { return Ok(()) };
        let forced = active.force().and_then(|()| sync_directory(&self.directory));
        if forced.is_err() {
            fs::remove_file(&active.path).at("delete", &active.path)?;
        }
        forced
    }
}

/// The hashes that lead to a record, in the order in which Apache puts them; none for a rollback record.
pub fn key_hashes<'r>(record: &Record<'r>) -> impl Iterator<Item = i32> + use<'r> {
    let is_indexed = record.sys_flag & record::TRANSACTION != record::TRANSACTION_ROLLBACK;
    let keys = if is_indexed { properties::keys(record.properties) } else { Keys::default() };
    hashes(topic_hash(record.topic), &keys).map(positive)
}

/// The index files of a directory in order. Other files are none of our business.
pub fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).at("list", directory)? {
        let entry = entry.at("list", directory)?;
        let is_index = |name: &str| name.len() == NAME_SIZE && name.bytes().all(|byte| byte.is_ascii_digit());
        if entry.file_name().to_str().is_some_and(is_index) && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            paths.push(entry.path());
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

/// The file's name: the time, unless that isn't behind the file before. Order of names is order of files.
pub fn next_name(name: &str, before: Option<&Path>) -> String {
    let number = |name: &str| name.parse::<u64>().ok();
    let before = before.and_then(|path| number(path.file_name()?.to_str()?));
    match (number(name), before) {
        (Some(time), Some(before)) if time <= before => format!("{:017}", before + 1),
        _ => name.to_owned(),
    }
}
