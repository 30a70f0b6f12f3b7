//! `Index` as Python sees it.

use std::{
    path::PathBuf,
    sync::{
        atomic::{AtomicI64, AtomicU64, Ordering},
        Arc, Mutex, MutexGuard, PoisonError,
    },
};

use pyo3::prelude::*;

use crate::{
    error::{value, Result},
    index::Files,
    index_file::{Layout, Wanted},
    store::{Open, Store},
};

#[pyclass(frozen, module = "rockmq._core")]
pub struct Index {
    shared: Arc<Open>,
    /// Held while files are read and written, for which the GIL is let go of first.
    files: Mutex<Files>,
    /// What is asked with the GIL held, when nobody may wait for the files.
    position: AtomicU64,
    sealed_until: AtomicI64,
}

impl Index {
    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Index {
    #[new]
    #[pyo3(signature = (store, directory, *, slots, entries, trusted_until))]
    fn new(
        py: Python<'_>,
        store: &Store,
        directory: PathBuf,
        slots: i32,
        entries: i32,
        trusted_until: Option<i64>,
    ) -> Result<Self> {
        let shared = Arc::clone(&store.shared);
        let layout = Layout::new(slots, entries)?;
        let files = py.detach(|| Files::open(directory, layout, trusted_until, &shared))?;
        let position = AtomicU64::new(files.position());
        Ok(Self { shared, files: Mutex::new(files), position, sealed_until: AtomicI64::new(0) })
    }

    #[getter]
    fn position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    #[getter]
    fn sealed_until(&self) -> i64 {
        self.sealed_until.load(Ordering::Relaxed)
    }

    fn catch_up(&self, py: Python<'_>, limit: u64, bytes_max: u64, name: &str) -> Result<()> {
        if name.len() != 17 || !name.bytes().all(|byte| byte.is_ascii_digit()) {
            return value(format!("name {name:?} is not a time of 17 digits"));
        }
        py.detach(|| {
            let mut files = self.files();
            let result = files.catch_up(&self.shared, limit, bytes_max, name);
            self.position.store(files.position(), Ordering::Relaxed);
            self.sealed_until.store(files.sealed_until(), Ordering::Relaxed);
            result
        })
    }

    #[pyo3(signature = (topic, key, *, is_tag, count_max, begin, end))]
    #[allow(clippy::too_many_arguments)]
    fn find(
        &self,
        py: Python<'_>,
        topic: &str,
        key: &str,
        is_tag: bool,
        count_max: usize,
        begin: i64,
        end: i64,
    ) -> Result<(Vec<u64>, i64, i64)> {
        let wanted = Wanted { hash: 0, begin, end, count_max };
        let found = py.detach(|| self.files().find(topic, key, is_tag, &wanted))?;
        Ok((found.positions, found.end_timestamp, found.end_position))
    }

    fn delete_below(&self, py: Python<'_>, position: u64) -> Result<Vec<String>> {
        let paths = py.detach(|| self.files().delete_below(position))?;
        Ok(paths.iter().map(|path| path.to_string_lossy().into_owned()).collect())
    }

    fn close(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| self.files().close(&self.shared))
    }
}
