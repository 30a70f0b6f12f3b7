//! Queues and index made anew from the log, in directories of their own; the log is only read.
//!
//! What recovery does with the records it finds is done here with all of them, those behind a damage included. Putting the
//! new directories in the place of the old ones is `exchange`.

use std::{
    collections::HashSet,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Mutex,
};

use pyo3::prelude::*;
use rustix::fs::{renameat_with, RenameFlags, CWD};

use crate::{
    batch_replay::{self, BatchReplay, Named},
    check::{check_sizes, lock, told, Told},
    delays::Levels,
    error::{store, At, Result},
    index::{key_hashes, next_name},
    index_file::{IndexFile, Layout},
    log_directories::LogDirectories,
    mapped_file::{self, sync_directory},
    queue_files::QueueFiles,
    record::Record,
    replay::{directories, is_outdated, light_topics, Replay},
    walk::{Faults, Walk, WINDOW},
};

struct IndexBuild {
    directory: PathBuf,
    layout: Layout,
    name: String,
    active: Option<IndexFile>,
    files: u64,
}

impl IndexBuild {
    fn put(&mut self, record: &Record<'_>) -> Result<()> {
        for hash in key_hashes(record) {
            let full = self.active.take_if(|active| active.is_full());
            if let Some(full) = &full {
                full.force()?;
            }
            let active = match &mut self.active {
                Some(active) => active,
                None => {
                    let name = next_name(&self.name, full.as_ref().map(|full| full.path.as_path()));
                    let path = self.directory.join(name);
                    self.files += 1;
                    self.active.insert(IndexFile::create(path, self.layout, full.as_ref().map(|full| &full.header))?)
                }
            };
            active.put(hash, record.position, record.store_timestamp)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.active.take().map_or(Ok(()), |active| active.force())?;
        sync_directory(&self.directory)
    }
}

struct Work {
    walk: Walk,
    replay: Replay,
    index: Option<IndexBuild>,
    queue_root: File,
    /// The directories of the queues that are made anew, simple ones and batch queues.
    old: [QueueFiles; 2],
}

#[pyclass(frozen, module = "rockmq._core")]
pub struct Rebuild {
    work: Mutex<Work>,
}

#[pymethods]
impl Rebuild {
    #[new]
    #[pyo3(signature = (log_directories, queues, new_queues, batch_queues, new_batch_queues, new_index, *, log_file_size, queue_file_size, batch_queue_file_size, index_layout, name, delay_levels = Vec::new(), all_light = false, batch_topics = Vec::new(), batch_topics_at = None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        log_directories: Vec<PathBuf>,
        queues: PathBuf,
        new_queues: PathBuf,
        batch_queues: PathBuf,
        new_batch_queues: PathBuf,
        new_index: PathBuf,
        log_file_size: u64,
        queue_file_size: u64,
        batch_queue_file_size: u64,
        index_layout: Option<(i32, i32)>,
        name: String,
        delay_levels: Vec<i64>,
        all_light: bool,
        batch_topics: Vec<String>,
        batch_topics_at: Option<i64>,
    ) -> Result<Self> {
        check_sizes(log_file_size, queue_file_size, batch_queue_file_size)?;
        for directory in [&new_queues, &new_batch_queues] {
            fs::create_dir_all(directory).at("create", directory)?;
        }
        let index = match index_layout {
            Some((slots, entries)) => {
                fs::create_dir_all(&new_index).at("create", &new_index)?;
                let layout = Layout::new(slots, entries)?;
                Some(IndexBuild { directory: new_index, layout, name, active: None, files: 0 })
            }
            None => None,
        };
        let simple = |root| QueueFiles::simple(root, queue_file_size);
        let batch = |root| QueueFiles::batch(root, batch_queue_file_size);
        let queue_root = File::open(&new_queues).at("open", &new_queues)?;
        let walk = Walk::new(LogDirectories::new(log_directories, Vec::new())?, log_file_size, WINDOW, true);
        let there = if queues.is_dir() { light_topics(&directories(&queues)?) } else { HashSet::new() };
        let mut replay = Replay::new(simple(new_queues), (0, 0), Some(simple(queues.clone())));
        let has_root = batch_queues.is_dir();
        let mut named = Named { topics: batch_topics, at: batch_topics_at };
        if has_root {
            named.topics.extend(directories(&batch_queues)?.into_iter().map(|(topic, _)| topic));
        }
        for topic in &named.topics {
            let directory = new_batch_queues.join(topic);
            fs::create_dir_all(&directory).at("create", &directory)?;
        }
        replay.batches = Some(BatchReplay::anew(batch(new_batch_queues), &named, has_root));
        replay.light = Some(there).filter(|_| !all_light);
        replay.levels = Levels::new(delay_levels)?;
        let work = Work { walk, replay, index, queue_root, old: [simple(queues), batch(batch_queues)] };
        Ok(Self { work: Mutex::new(work) })
    }

    fn step(&self, py: Python<'_>, position: u64, to: u64) -> Result<(u64, bool, u64, Vec<Told>, u64)> {
        py.detach(|| {
            let mut work = lock(&self.work);
            let Work { walk, replay, index, .. } = &mut *work;
            let mut faults = Faults::new();
            let step = walk.step(position, to, &mut faults, |record, _| {
                index.as_mut().map_or(Ok(()), |index| index.put(record))?;
                replay.put(record)
            })?;
            let (list, more) = told(faults);
            Ok((step.next, step.ended, step.records, list, more))
        })
    }

    fn finish(&self, py: Python<'_>, log_min: u64) -> Result<(u64, u64, u64)> {
        py.detach(|| {
            let mut work = lock(&self.work);
            let Work { replay, index, queue_root, old: [simple, batch], .. } = &mut *work;
            replay.finish(log_min)?;
            replay.queues.force(queue_root)?;
            let mut count = replay.queues.iter().count() as u64;
            count += keep_outdated(simple, &replay.queues.files, |topic, id, path| {
                is_outdated(simple, (topic, id), path, log_min)
            })?;
            let mut batch_count = 0;
            if let Some(batches) = replay.batches.take() {
                let mut made = batches.finish(log_min)?;
                made.force()?;
                batch_count += made.bounds().count() as u64;
                batch_count += keep_outdated(batch, &made.files, |topic, id, path| {
                    batch_replay::is_outdated(batch, (topic, id), path, log_min)
                })?;
            }
            if let Some(index) = index {
                index.finish()?;
            }
            Ok((count, batch_count, index.as_ref().map_or(0, |index| index.files)))
        })
    }
}

/// Take over the queues of which the log has no record any more: only they tell the offset that such a queue goes on at. Their
/// number.
fn keep_outdated(
    old: &QueueFiles,
    new: &QueueFiles,
    is_outdated: impl Fn(&str, i32, &Path) -> Result<bool>,
) -> Result<u64> {
    let mut count = 0;
    let topics = if old.root.is_dir() { directories(&old.root)? } else { Vec::new() };
    for (topic, topic_path) in topics {
        let target = new.root.join(&topic);
        for (name, path) in directories(&topic_path)? {
            let Ok(id) = name.parse::<u32>().map(|id| id as i32) else { continue };
            let directory = new.directory(&topic, id);
            // One that can't be read tells nothing.
            let is_kept = id >= 0
                && old.directory(&topic, id) == path
                && !directory.exists()
                && is_outdated(&topic, id, &path).unwrap_or(false);
            if !is_kept {
                continue;
            }
            fs::create_dir_all(&directory).at("create", &directory)?;
            for base in old.list(&path)? {
                let (from, to) = (mapped_file::path(&path, base), mapped_file::path(&directory, base));
                fs::hard_link(&from, &to).at("link", &to)?;
            }
            sync_directory(&directory)?;
            sync_directory(&target)?;
            count += 1;
        }
    }
    sync_directory(&new.root)?;
    Ok(count)
}

/// Let two directories of one parent take each other's place.
#[pyfunction]
pub fn exchange(py: Python<'_>, one: PathBuf, other: PathBuf) -> Result<()> {
    py.detach(|| {
        let Some(parent) = one.parent() else { return store("a root has no place to exchange") };
        match renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE) {
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => by_turns(&one, &other).at("exchange", &one)?,
            other => other.map_err(io::Error::from).at("exchange", &one)?,
        }
        sync_directory(parent)
    })
}

/// Where the file system can't do it at once.
fn by_turns(one: &Path, other: &Path) -> io::Result<()> {
    let aside = one.with_extension("aside");
    fs::rename(one, &aside)?;
    fs::rename(other, one)?;
    fs::rename(&aside, other)
}
