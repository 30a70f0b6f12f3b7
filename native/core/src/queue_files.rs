//! The files of consume queues, see `consume_queue` and `batch_queue` for what is in them. Everything here works without the
//! store's lock.

use std::{
    fs::{self, File, OpenOptions},
    io,
    ops::Range,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::fs::syncfs;

use crate::{
    batch_queue, consume_queue,
    error::{At, Error, Result},
    mapped_file::{self, sync_directory},
};

/// Files to be forced without the lock.
pub struct Forcing {
    pub topic: Arc<str>,
    pub id: i32,
    pub from: u64,
    pub to: u64,
}

/// Force all queues, with whatever else is on the file system of `root`, their directory. What went wrong since that was opened
/// is told, which Linux does since 5.8.
pub fn force_file_system(root: &File, path: &Path) -> Result<()> {
    syncfs(root).map_err(io::Error::from).at("sync the file system of", path)
}

/// The files of all queues; no file stays open, because there may be a million of them.
pub struct QueueFiles {
    pub root: PathBuf,
    /// A multiple of `unit`.
    pub file_size: u64,
    /// Bytes of an entry.
    pub unit: u64,
    /// The option that says `file_size`.
    size_key: &'static str,
}

impl QueueFiles {
    pub fn simple(root: PathBuf, file_size: u64) -> Self {
        Self { root, file_size, unit: consume_queue::UNIT as u64, size_key: "mappedFileSizeConsumeQueue" }
    }

    pub fn batch(root: PathBuf, file_size: u64) -> Self {
        Self { root, file_size, unit: batch_queue::UNIT as u64, size_key: "mapperFileSizeBatchConsumeQueue" }
    }

    pub fn directory(&self, topic: &str, id: i32) -> PathBuf {
        let mut directory = self.root.join(topic);
        directory.push(id.to_string());
        directory
    }

    /// Where Apache keeps the extensions of a topic's queues.
    pub fn extensions(&self, topic: &str) -> PathBuf {
        self.root.with_file_name("consumequeue_ext").join(topic)
    }

    /// Write whole entries at `index`, into as many files as they touch, making those that aren't there.
    pub fn write(&self, topic: &str, id: i32, index: u64, entries: &[u8]) -> Result<()> {
        let directory = self.directory(topic, id);
        let (mut at, mut rest) = (index * self.unit, entries);
        while !rest.is_empty() {
            let base = at - at % self.file_size;
            let (head, tail) = rest.split_at(rest.len().min((base + self.file_size - at) as usize));
            let path = mapped_file::path(&directory, base);
            let file = self.open_or_create(&directory, &path)?;
            file.write_all_at(head, at - base).at("write", &path)?;
            at += head.len() as u64;
            rest = tail;
        }
        Ok(())
    }

    fn open_or_create(&self, directory: &Path, path: &Path) -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.at("open", path),
        }
        fs::create_dir_all(directory).at("create", directory)?;
        let file = options.create(true).open(path).at("create", path)?;
        // Sparse, since most queues hold little; Apache refuses a file of another length.
        if let Err(error) = file.set_len(self.file_size) {
            let _ = fs::remove_file(path);
            return Err(error).at("extend", path);
        }
        Ok(file)
    }

    /// Up to `count` entries from `index` on, ending early at the end of a file; empty when the file isn't there.
    pub fn read(&self, topic: &str, id: i32, index: u64, count: u64) -> io::Result<Vec<u8>> {
        let at = index * self.unit;
        let base = at - at % self.file_size;
        let file = match File::open(mapped_file::path(&self.directory(topic, id), base)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut entries = vec![0; (count * self.unit).min(base + self.file_size - at) as usize];
        let mut read = 0;
        while read < entries.len() {
            match file.read_at(&mut entries[read..], at - base + read as u64) {
                Ok(0) => break,
                Ok(size) => read += size,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        entries.truncate(read - read % self.unit as usize);
        Ok(entries)
    }

    /// Force the files that hold the given entries, and the directories that name them.
    pub fn force(&self, forcing: &[Forcing]) -> Result<()> {
        let mut topics: Vec<&str> = Vec::new();
        for Forcing { topic, id, from, to } in forcing {
            let directory = self.directory(topic, *id);
            let (from, to) = (from * self.unit, to * self.unit);
            // What is there, not what might be: a damaged record can make a queue jump over more files than can be counted.
            let mut made = false;
            for base in
                bases(&directory)?.into_iter().filter(|&base| base < to && base.saturating_add(self.file_size) > from)
            {
                let path = mapped_file::path(&directory, base);
                match File::open(&path) {
                    // Deleted since, with its queue.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    other => other.and_then(|file| file.sync_data()).at("sync", &path)?,
                }
                // A file is made by the write of its first entry.
                made |= base >= from;
            }
            if made {
                sync_directory(&directory)?;
                topics.push(topic);
            }
        }
        topics.sort_unstable();
        topics.dedup();
        for topic in &topics {
            let directory = self.root.join(topic);
            if directory.exists() {
                sync_directory(&directory)?;
            }
        }
        if topics.is_empty() {
            Ok(())
        } else {
            sync_directory(&self.root)
        }
    }

    /// First bytes of a queue's files, in order. Files of a wrong size keep the store from opening, as they do in Apache.
    pub fn list(&self, directory: &Path) -> Result<Vec<u64>> {
        let mut bases = Vec::new();
        for entry in fs::read_dir(directory).at("list", directory)? {
            let entry = entry.at("list", directory)?;
            let Some(base) = entry.file_name().to_str().and_then(mapped_file::base_of) else { continue };
            let length = entry.metadata().at("look at", &entry.path())?.len();
            if length == 0 {
                fs::remove_file(entry.path()).at("delete", &entry.path())?;
            } else if length != self.file_size || base % self.file_size != 0 {
                let path = entry.path().display().to_string();
                return Err(Error::Store(format!(
                    "{path} has {length} bytes, and queue files have {}: set {} to the size the store was made with, or \
                     have `rockmq store repair` make the queues anew",
                    self.file_size, self.size_key
                )));
            } else {
                bases.push(base);
            }
        }
        bases.sort_unstable();
        Ok(bases)
    }

    /// Which of the files that `list` has found are the queue, if some are missing between them: those around the last one
    /// that begins with a trusted entry. What is behind a gap after that was never forced, or not all of it: the scan finds it.
    pub fn counting(&self, bases: &[u64], is_trusted: impl Fn(u64) -> Result<bool>) -> Result<Range<usize>> {
        let is_gap = |pair: &[u64]| pair[0] + self.file_size != pair[1];
        if !bases.windows(2).any(is_gap) {
            return Ok(0..bases.len());
        }
        let mut last = bases.len() - 1;
        while last > 0 && !is_trusted(bases[last])? {
            last -= 1;
        }
        let start = bases[..=last].windows(2).rposition(is_gap).map_or(0, |gap| gap + 1);
        let end = bases[last..].windows(2).position(is_gap).map_or(bases.len(), |gap| last + gap + 1);
        Ok(start..end)
    }

    /// Delete a queue's files, and its directory if nothing else is in it.
    pub fn delete_all(&self, topic: &str, id: i32) -> Result<()> {
        let directory = self.directory(topic, id);
        if !directory.exists() {
            return Ok(());
        }
        // The last one first: what a crash leaves begins where the queue began.
        for &base in self.list(&directory)?.iter().rev() {
            let path = mapped_file::path(&directory, base);
            fs::remove_file(&path).at("delete", &path)?;
        }
        sync_directory(&directory)?;
        let _ = fs::remove_dir(&directory);
        Ok(())
    }

    /// Delete the files of a queue that end at or below entry `min`, never the last of them.
    pub fn delete_below(&self, topic: &str, id: i32, min: u64) -> Result<()> {
        let directory = self.directory(topic, id);
        if min * self.unit < self.file_size || !directory.exists() {
            return Ok(());
        }
        let bases = self.list(&directory)?;
        for &base in bases.iter().take(bases.len().saturating_sub(1)) {
            if base + self.file_size <= min * self.unit {
                let path = mapped_file::path(&directory, base);
                fs::remove_file(&path).at("delete", &path)?;
            }
        }
        Ok(())
    }
}

/// First bytes of the files of a queue as their names say, in no order; none without a directory. One that is just being
/// made has no size yet, so unlike in `list` nothing is said about sizes.
pub fn bases(directory: &Path) -> Result<Vec<u64>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.at("list", directory)?,
    };
    let names = entries.map(|entry| Ok(entry.at("list", directory)?.file_name()));
    names.filter_map(|name| name.map(|name| name.to_str().and_then(mapped_file::base_of)).transpose()).collect()
}
