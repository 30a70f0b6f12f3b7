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
    batch_queue::{self, is_batch},
    check::{check_sizes, lock, told, Told},
    delays::Levels,
    error::{store, At, Result},
    index::{key_hashes, next_name},
    index_file::{IndexFile, Layout},
    log_directories::LogDirectories,
    mapped_file::sync_directory,
    queue_files::QueueFiles,
    record::Record,
    replay::{directories, light_topics, Replay},
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
    /// Topics whose queues aren't made here.
    batch_topics: HashSet<Box<[u8]>>,
}

#[pyclass(frozen, module = "rockmq._core")]
pub struct Rebuild {
    work: Mutex<Work>,
}

#[pymethods]
impl Rebuild {
    #[new]
    #[pyo3(signature = (log_directories, queues, new_queues, new_index, *, log_file_size, queue_file_size, index_layout, name, delay_levels = Vec::new()))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        log_directories: Vec<PathBuf>,
        queues: PathBuf,
        new_queues: PathBuf,
        new_index: PathBuf,
        log_file_size: u64,
        queue_file_size: u64,
        index_layout: Option<(i32, i32)>,
        name: String,
        delay_levels: Vec<i64>,
    ) -> Result<Self> {
        check_sizes(log_file_size, queue_file_size)?;
        fs::create_dir_all(&new_queues).at("create", &new_queues)?;
        let index = match index_layout {
            Some((slots, entries)) => {
                fs::create_dir_all(&new_index).at("create", &new_index)?;
                let layout = Layout::new(slots, entries)?;
                Some(IndexBuild { directory: new_index, layout, name, active: None, files: 0 })
            }
            None => None,
        };
        let batch_topics = batch_queue::topics(&queues.with_file_name("batchconsumequeue"))?;
        let old = QueueFiles::simple(queues, queue_file_size);
        let queue_root = File::open(&new_queues).at("open", &new_queues)?;
        let files = QueueFiles::simple(new_queues, queue_file_size);
        let walk = Walk::new(LogDirectories::new(log_directories, Vec::new())?, log_file_size, WINDOW, true);
        // Only a broker knows whether light queues are wanted that aren't there.
        let light = if old.root.is_dir() { light_topics(&directories(&old.root)?) } else { HashSet::new() };
        let mut replay = Replay::new(files, (0, 0), Some(old));
        replay.light = Some(light);
        replay.levels = Levels::new(delay_levels)?;
        let work = Work { walk, replay, index, queue_root, batch_topics };
        Ok(Self { work: Mutex::new(work) })
    }

    fn step(&self, py: Python<'_>, position: u64, to: u64) -> Result<(u64, bool, u64, Vec<Told>, u64)> {
        py.detach(|| {
            let mut work = lock(&self.work);
            let Work { walk, replay, index, batch_topics, .. } = &mut *work;
            let mut faults = Faults::new();
            let step = walk.step(position, to, &mut faults, |record, _| {
                index.as_mut().map_or(Ok(()), |index| index.put(record))?;
                if is_batch(record, batch_topics) {
                    return Ok(());
                }
                replay.put(record)
            })?;
            let (list, more) = told(faults);
            Ok((step.next, step.ended, step.records, list, more))
        })
    }

    fn finish(&self, py: Python<'_>, log_min: u64) -> Result<(u64, u64)> {
        py.detach(|| {
            let mut work = lock(&self.work);
            let Work { replay, index, queue_root, .. } = &mut *work;
            replay.finish(log_min)?;
            replay.queues.force(queue_root)?;
            queue_root.sync_all().at("sync", &replay.queues.files.root)?;
            if let Some(index) = index {
                index.finish()?;
            }
            Ok((replay.queues.iter().count() as u64, index.as_ref().map_or(0, |index| index.files)))
        })
    }
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
