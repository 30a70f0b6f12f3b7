//! The commit log: files of one size, end to end, all messages of the broker in the order of arrival.
//!
//! A record never spans two files. Where it (and room for a blank behind it) doesn't fit, a blank record fills the file and
//! the next file begins. A batch is kept in one file for the same price.
//!
//! Positions, each a global byte offset: `min` ≤ `flushed` ≤ `max`. What is below `max` can be read, what is below
//! `flushed` survives a power cut. Once forcing the disk has failed, the kernel may have dropped the dirty pages and
//! would report success next time; so the failure is kept and nothing is called flushed any more.

use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    error::{store, At, Error, Result},
    mapped_file::{self, sync_directory, MappedFile},
    record::{BLANK_SIZE, MAGIC_BLANK},
};

pub struct CommitLog {
    /// New files are made in these in turn.
    targets: Vec<PathBuf>,
    file_size: u64,
    files: VecDeque<Arc<MappedFile>>,
    /// The file behind the last one, made ahead of its use.
    prepared: Option<Arc<MappedFile>>,
    /// Another thread is making the file at this position in this directory, where it has to stay.
    preparing: Option<(u64, PathBuf)>,
    max: u64,
    flushed: u64,
    flush_failure: Option<String>,
}

/// What has to be forced for everything below `target` to be durable.
pub struct Unflushed {
    pub target: u64,
    parts: Vec<(Arc<MappedFile>, usize, usize)>,
}

impl CommitLog {
    pub fn new(targets: Vec<PathBuf>, file_size: u64) -> Self {
        Self {
            targets,
            file_size,
            files: VecDeque::new(),
            prepared: None,
            preparing: None,
            max: 0,
            flushed: 0,
            flush_failure: None,
        }
    }

    /// Take over the files that recovery has found and ended at `max`; they are on disk below `flushed`.
    pub fn adopt(&mut self, files: VecDeque<Arc<MappedFile>>, flushed: u64, max: u64) {
        (self.files, self.flushed, self.max) = (files, flushed, max);
    }

    /// First positions of the files in use.
    pub fn bases(&self) -> Vec<u64> {
        self.files.iter().map(|file| file.base).collect()
    }

    pub fn min(&self) -> u64 {
        self.files.front().map_or(self.max, |file| file.base)
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    /// The file that holds `position`, and where in it.
    pub fn locate(&self, position: u64) -> Option<(&Arc<MappedFile>, usize)> {
        let first = self.files.front()?.base;
        let distance = position.checked_sub(first)?;
        let file = self.files.get(usize::try_from(distance / self.file_size).ok()?)?;
        Some((file, (distance % self.file_size) as usize))
    }

    /// The bytes from `position` to the end of what its file holds.
    pub fn read(&self, position: u64) -> Option<&[u8]> {
        let (file, at) = self.locate(position)?;
        Some(file.read(at)).filter(|bytes| !bytes.is_empty())
    }

    /// The first position of the file behind the one that holds `position`.
    pub fn next_file(&self, position: u64) -> u64 {
        position - position % self.file_size + self.file_size
    }

    /// Append `size` bytes in one file: `write` gets their place and position. On an error nothing has changed.
    pub fn append(&mut self, size: usize, write: impl FnOnce(&mut [u8], u64)) -> Result<u64> {
        if !self.has_room(size) {
            self.roll(size)?;
        }
        let (Some(file), position) = (self.files.back(), self.max) else {
            return store("the log has no file");
        };
        // SAFETY: the log owns its files and writes them only here and in `roll`, both through &mut self. The slice ends
        // with the statement's block, before `publish`.
        let Some(place) = (unsafe { file.unwritten(size) }) else {
            return store(format!("{} has no room for {size} bytes", file.path.display()));
        };
        write(place, position);
        file.publish(size);
        self.max += size as u64;
        Ok(position)
    }

    fn has_room(&self, size: usize) -> bool {
        self.files.back().is_some_and(|file| size + BLANK_SIZE <= file.size() - file.written())
    }

    /// Begin the next file, and only then blank the rest of the last one: a disk that is full changes nothing.
    fn roll(&mut self, size: usize) -> Result<()> {
        if (size + BLANK_SIZE) as u64 > self.file_size {
            return store(format!("{size} bytes don't fit a log file of {} bytes", self.file_size));
        }
        let base = self.next_base();
        let next = match self.prepared.take() {
            Some(file) if file.base == base => file,
            _ => Arc::new(self.make(base)?),
        };
        if let Some(last) = self.files.back() {
            let rest = last.size() - last.written();
            // SAFETY: as in `append`; the slice is gone before `publish`.
            if let Some(blank) = unsafe { last.unwritten(rest) } {
                // Recovery has zeroed what is behind the end, and new files are zero.
                if let Some(head) = blank.first_chunk_mut::<BLANK_SIZE>() {
                    head[..4].copy_from_slice(&(rest as i32).to_be_bytes());
                    head[4..].copy_from_slice(&MAGIC_BLANK.to_be_bytes());
                }
            }
            last.publish(rest);
        }
        self.max = base;
        self.files.push_back(next);
        Ok(())
    }

    /// Whether the file behind the last one is there, so that going on needs no room.
    pub fn has_next_file(&self) -> bool {
        self.prepared.as_ref().is_some_and(|file| file.base == self.next_base())
    }

    /// Where the file behind the last one begins.
    fn next_base(&self) -> u64 {
        match self.files.back() {
            Some(file) => file.base + self.file_size,
            None => self.max - self.max % self.file_size,
        }
    }

    /// Make a file where it belongs, or, where there is no room, in the next directory that has some.
    fn make(&self, base: u64) -> Result<MappedFile> {
        if let Some((_, directory)) = self.preparing.as_ref().filter(|(other, _)| *other == base) {
            // The file may be in one directory only, and another thread is at it.
            return MappedFile::create(directory, base, self.file_size);
        }
        let mut directories = self.targets(base).peekable();
        loop {
            let Some(directory) = directories.next() else { return store("there is no directory for log files") };
            match MappedFile::create(directory, base, self.file_size) {
                Err(error) => {
                    let is_gone = discard(directory, base).is_ok();
                    if !is_gone || directories.peek().is_none() || !matches!(error, Error::Full(_)) {
                        return Err(error);
                    }
                }
                made => return made,
            }
        }
    }

    /// Where a file may be made, its own place first: they go around (MultiPathMappedFileQueue.tryCreateMappedFile).
    fn targets(&self, base: u64) -> impl Iterator<Item = &PathBuf> {
        let first = (base / self.file_size) as usize % self.targets.len();
        self.targets.iter().cycle().skip(first).take(self.targets.len())
    }

    /// Make files in these directories from now on, but one that is made ahead already.
    pub fn set_targets(&mut self, targets: Vec<PathBuf>) {
        self.targets = targets;
    }

    /// The first position of the file to be made ahead, and its directory, for the caller to make it; None when it is there.
    pub fn start_preparing(&mut self) -> Option<(u64, PathBuf)> {
        if self.preparing.is_some() || self.prepared.is_some() {
            return None;
        }
        let base = self.next_base();
        let directory = self.targets(base).next()?.clone();
        self.preparing = Some((base, directory));
        self.preparing.clone()
    }

    /// Take the file made ahead at `base`. Appending may have come there in the meantime and made it by itself: it is the
    /// same file on disk then, and this map of it isn't needed.
    pub fn set_prepared(&mut self, file: Result<MappedFile>) -> Result<bool> {
        let Some((base, directory)) = self.preparing.take() else { return Ok(false) };
        let wanted = base == self.next_base();
        match file {
            Ok(file) if wanted => {
                self.prepared = Some(Arc::new(file));
                Ok(true)
            }
            Ok(_) => Ok(false),
            Err(error) => {
                if wanted {
                    let _ = discard(&directory, base);
                }
                Err(error)
            }
        }
    }

    /// What to force now; None when there is nothing. The work itself needs no lock.
    pub fn unflushed(&mut self) -> Result<Option<Unflushed>> {
        if let Some(failure) = &self.flush_failure {
            return store(failure.clone());
        }
        if self.flushed == self.max {
            return Ok(None);
        }
        let mut parts = Vec::new();
        for file in self.files.iter().filter(|file| file.base + file.size() as u64 > self.flushed) {
            let from = self.flushed.saturating_sub(file.base) as usize;
            if file.written() > from {
                parts.push((Arc::clone(file), from, file.written()));
            }
        }
        Ok(Some(Unflushed { target: self.max, parts }))
    }

    /// Note how forcing went.
    pub fn set_flushed(&mut self, target: u64, result: Result<()>) -> Result<()> {
        match result {
            Ok(()) => self.flushed = self.flushed.max(target),
            Err(ref error) => self.flush_failure = Some(error.to_string()),
        }
        result
    }

    /// Whether `drop_below` would let go of a file.
    pub fn has_files_below(&self, position: u64) -> bool {
        self.files.len() > 1 && self.files.front().is_some_and(|file| file.base + self.file_size <= position)
    }

    /// Let go of the files that end at or below `position`, never of the last one.
    pub fn drop_below(&mut self, position: u64) -> Vec<Arc<MappedFile>> {
        let mut dropped = Vec::new();
        while self.has_files_below(position) {
            dropped.extend(self.files.pop_front());
        }
        dropped
    }

    /// Take back files that `drop_below` gave away and that couldn't be deleted: a gap between files on disk would keep
    /// the store from opening.
    pub fn take_back(&mut self, dropped: &[Arc<MappedFile>]) {
        dropped.iter().rev().for_each(|file| self.files.push_front(Arc::clone(file)));
    }

    /// All files, the one that is written now last; and the one made ahead.
    pub fn maps(&self) -> (Vec<Arc<MappedFile>>, Option<Arc<MappedFile>>) {
        (self.files.iter().cloned().collect(), self.prepared.clone())
    }

    /// Drop the maps, and delete the file that was made ahead and never used.
    pub fn close(&mut self) -> Result<()> {
        self.files.clear();
        match self.prepared.take() {
            Some(file) => fs::remove_file(&file.path).at("delete", &file.path),
            None => Ok(()),
        }
    }
}

impl Unflushed {
    pub fn force(&self) -> Result<()> {
        self.parts.iter().try_for_each(|(file, from, to)| file.sync(*from, *to).at("sync", &file.path))
    }
}

/// Delete a file that couldn't be made. One of a wrong size would keep the store from opening, and so would one that a power
/// cut brings back when the next try was in another directory. On a disk that is full or fails no more can be done.
fn discard(directory: &Path, base: u64) -> Result<()> {
    let path = mapped_file::path(directory, base);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        removed => removed.at("delete", &path)?,
    }
    sync_directory(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failed_sync_nothing_is_called_flushed() {
        let mut log = CommitLog::new(vec![PathBuf::from("/nowhere")], 4096);
        log.adopt(VecDeque::new(), 100, 100);
        log.max = 200;
        assert!(log.set_flushed(200, store("can't sync")).is_err());
        assert!(log.unflushed().is_err());
        assert_eq!(log.flushed(), 100);
    }
}
