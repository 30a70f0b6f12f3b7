//! Forces the log to disk, in a thread that doesn't wait for Python.
//!
//! Sync flush is a group commit: whoever waits asks for a force, and each force takes everything that was appended by
//! then, so one answers all that arrived during the one before. Async flush forces on an interval.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    panic::{catch_unwind, AssertUnwindSafe},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use pyo3::prelude::*;
use rustix::{
    event::{eventfd, EventfdFlags},
    io,
};

use crate::{
    error::{store, Result},
    store::{Open, Store},
};

/// What the thread is asked to do; it belongs to the store, so that an append can ask.
#[derive(Default)]
pub struct Signal {
    asked: Mutex<Asked>,
    changed: Condvar,
}

#[derive(Default)]
struct Asked {
    force: bool,
    end: bool,
}

impl Signal {
    /// Force what is in the log now, soon.
    pub fn ask(&self) {
        let mut asked = lock(&self.asked);
        if !asked.force {
            asked.force = true;
            self.changed.notify_one();
        }
    }

    fn end(&self) {
        lock(&self.asked).end = true;
        self.changed.notify_one();
    }

    /// Wait until somebody asks, or for `interval`; whether to go on after that.
    fn wait(&self, interval: Option<Duration>) -> bool {
        let mut asked = lock(&self.asked);
        while !asked.force && !asked.end {
            match interval {
                None => asked = self.changed.wait(asked).unwrap_or_else(PoisonError::into_inner),
                Some(interval) => {
                    let waited = self.changed.wait_timeout(asked, interval);
                    let (back, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    asked = back;
                    if timeout.timed_out() {
                        break;
                    }
                }
            }
        }
        asked.force = false;
        !asked.end
    }
}

/// What became of the last force, and that there is news.
struct Told {
    outcome: Mutex<std::result::Result<u64, String>>,
    news: OwnedFd,
}

#[pyclass(frozen, module = "rockmq._core")]
pub struct Flusher {
    shared: Arc<Open>,
    told: Arc<Told>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[pymethods]
impl Flusher {
    #[new]
    fn new(store: &Store, interval_ms: Option<u64>) -> PyResult<Self> {
        let shared = Arc::clone(&store.shared);
        let news = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?;
        let told = Arc::new(Told { outcome: Mutex::new(Ok(shared.state().log.flushed())), news });
        let (of_thread, interval) = ((Arc::clone(&shared), Arc::clone(&told)), interval_ms.map(Duration::from_millis));
        let thread =
            thread::Builder::new().name("flusher".into()).spawn(move || run(&of_thread.0, &of_thread.1, interval))?;
        Ok(Self { shared, told, thread: Mutex::new(Some(thread)) })
    }

    fn fileno(&self) -> i32 {
        self.told.news.as_raw_fd()
    }

    fn take(&self) -> Result<u64> {
        // Before the outcome is looked at: what comes afterwards is news again. Without any there is nothing to read.
        let _ = io::read(&self.told.news, &mut [0; 8]);
        lock(&self.told.outcome).clone().or_else(store)
    }

    fn close(&self, py: Python<'_>) {
        self.shared.flush_signal.end();
        let thread = lock(&self.thread).take();
        py.detach(|| thread.map(JoinHandle::join));
    }
}

/// Force until told to end, and once more then; or until a force fails, as the next one could wrongly succeed.
fn run(shared: &Open, told: &Told, interval: Option<Duration>) {
    let mut go_on = true;
    while go_on {
        go_on = shared.flush_signal.wait(interval);
        // Were it a bug of ours that ended the thread, nothing would be forced any more, and nobody would know.
        let outcome = catch_unwind(AssertUnwindSafe(|| shared.flush()));
        let outcome = outcome.unwrap_or_else(|_| store("forcing the log panicked")).map_err(|error| error.to_string());
        go_on &= outcome.is_ok();
        let before = std::mem::replace(&mut *lock(&told.outcome), outcome.clone());
        if before != outcome {
            // It counts up, and is never full.
            let _ = io::write(&told.news, &1u64.to_ne_bytes());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
