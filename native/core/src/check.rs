//! `LogReader` and `Check` as Python sees them.

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use pyo3::{prelude::*, types::PyTuple};

use crate::{
    batch_queue,
    check_batches::BatchCheck,
    check_index::IndexCheck,
    check_queues::QueueCheck,
    consume_queue::UNIT,
    delays::Levels,
    error::{value, Result},
    index_file::Layout,
    log_directories::LogDirectories,
    objects,
    queue_files::QueueFiles,
    walk::{Faults, Walk, WINDOW},
};

/// Kind, file, byte, count, expected, found, queue.
pub type Told = (&'static str, PathBuf, u64, u64, String, String, Option<(String, i32)>);

pub fn told(faults: Faults) -> (Vec<Told>, u64) {
    let tell = |fault: crate::walk::Fault| {
        (fault.kind, fault.path, fault.at, fault.count, fault.expected, fault.found, fault.queue)
    };
    (faults.list.into_iter().map(tell).collect(), faults.more)
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn check_sizes(log_file_size: u64, queue_file_size: u64, batch_queue_file_size: u64) -> Result<()> {
    let is_whole = |size: u64, unit: usize| size > 0 && size % unit as u64 == 0;
    if log_file_size < 1024 || !is_whole(queue_file_size, UNIT) || !is_whole(batch_queue_file_size, batch_queue::UNIT) {
        return value(format!(
            "files of {log_file_size}, {queue_file_size} and {batch_queue_file_size} bytes can't be a log's, a queue's and a \
             batch queue's"
        ));
    }
    Ok(())
}

/// Queues, their entries, index files, their entries.
type Counts = (u64, u64, u64, u64);
type Records<'py> = Vec<Bound<'py, PyTuple>>;

#[pyclass(frozen, module = "rockmq._core")]
pub struct LogReader {
    walk: Mutex<Walk>,
}

#[pymethods]
impl LogReader {
    #[new]
    #[pyo3(signature = (directories, *, file_size))]
    fn new(directories: Vec<PathBuf>, file_size: u64) -> Result<Self> {
        check_sizes(file_size, UNIT as u64, batch_queue::UNIT as u64)?;
        Ok(Self { walk: Mutex::new(Walk::new(LogDirectories::new(directories, Vec::new())?, file_size, WINDOW, true)) })
    }

    #[pyo3(signature = (position, to, *, bytes_max, topic = None, queue_id = None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        position: u64,
        to: u64,
        bytes_max: usize,
        topic: Option<String>,
        queue_id: Option<i32>,
    ) -> PyResult<(u64, bool, Records<'py>, Vec<Told>, u64)> {
        let mut faults = Faults::new();
        // The bytes of records, which are decoded again with the GIL.
        let mut kept = Vec::new();
        let (next, ended) = py.detach(|| -> Result<(u64, bool)> {
            let mut walk = lock(&self.walk);
            let (mut at, mut ended) = (position, false);
            // In small steps, as what matches may be much or little of what is read.
            while at < to && !ended && kept.len() < bytes_max && at - position < 64 << 20 {
                let step = walk.step(at, to.min(at + (1 << 20)), &mut faults, |record, _| {
                    let wanted = topic.as_ref().is_none_or(|topic| topic.as_bytes() == record.topic)
                        && queue_id.is_none_or(|id| id == record.queue_id);
                    if wanted {
                        kept.extend_from_slice(record.bytes);
                    }
                    Ok(())
                })?;
                (at, ended) = (step.next, step.ended);
            }
            Ok((at, ended))
        })?;
        let (list, more) = told(faults);
        Ok((next, ended, objects::records(py, &kept)?, list, more))
    }
}

struct Checks {
    walk: Walk,
    queues: QueueCheck,
    batches: BatchCheck,
    index: Option<IndexCheck>,
    behind: Option<u64>,
}

#[pyclass(frozen, module = "rockmq._core")]
pub struct Check {
    checks: Mutex<Checks>,
}

#[pymethods]
impl Check {
    #[new]
    #[pyo3(signature = (log_directories, consume_queue, index, *, log_file_size, queue_file_size, batch_queue_file_size, index_layout, min, behind, delay_levels = Vec::new()))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        log_directories: Vec<PathBuf>,
        consume_queue: PathBuf,
        index: PathBuf,
        log_file_size: u64,
        queue_file_size: u64,
        batch_queue_file_size: u64,
        index_layout: Option<(i32, i32)>,
        min: u64,
        behind: Option<u64>,
        delay_levels: Vec<i64>,
    ) -> Result<Self> {
        check_sizes(log_file_size, queue_file_size, batch_queue_file_size)?;
        let batch_files = QueueFiles::batch(consume_queue.with_file_name("batchconsumequeue"), batch_queue_file_size);
        let batches = BatchCheck::new(batch_files, min)?;
        let files = QueueFiles::simple(consume_queue, queue_file_size);
        let log = LogDirectories::new(log_directories, Vec::new())?;
        let index = match index_layout {
            Some((slots, entries)) => {
                Some(IndexCheck::new(&index, Layout::new(slots, entries)?, (log.clone(), log_file_size), min, behind)?)
            }
            None => None,
        };
        let queues = QueueCheck::new(files, (log.clone(), log_file_size), min, Levels::new(delay_levels)?)?;
        let walk = Walk::new(log, log_file_size, WINDOW, true);
        Ok(Self { checks: Mutex::new(Checks { walk, queues, batches, index, behind }) })
    }

    fn step(&self, py: Python<'_>, position: u64, to: u64) -> Result<(u64, bool, u64, Vec<Told>, u64)> {
        py.detach(|| {
            let mut checks = lock(&self.checks);
            let Checks { walk, queues, batches, index, .. } = &mut *checks;
            let mut faults = Faults::new();
            let step = walk.step(position, to, &mut faults, |record, faults| {
                if batches.takes(record) {
                    batches.put(record, faults);
                } else {
                    queues.put(record, faults);
                }
                Ok(())
            })?;
            if let Some(index) = index {
                index.step(step.next, &mut faults)?;
            }
            let (list, more) = told(faults);
            Ok((step.next, step.ended, step.records, list, more))
        })
    }

    fn finish(&self, py: Python<'_>) -> Result<(Counts, Vec<Told>, u64)> {
        py.detach(|| {
            let mut checks = lock(&self.checks);
            let Checks { queues, batches, index, behind, .. } = &mut *checks;
            let mut faults = Faults::new();
            let count = queues.finish(*behind, &mut faults)? + batches.finish(*behind, &mut faults)?;
            let (mut files, mut entries) = (0, 0);
            if let Some(index) = index {
                index.step(u64::MAX >> 1, &mut faults)?;
                (files, entries) = (index.files, index.entries);
            }
            let (list, more) = told(faults);
            Ok(((count, queues.entries + batches.units, files, entries), list, more))
        })
    }
}
