//! A lane: one connection's stream of frames, and the sends and decisions among them that the store can take at once.
//!
//! States: cutting, or dead. A lane dies of the first frame that can't be trusted, and gives that reason from then on.
//!
//! Frames are read from the chunk they came in. Only a frame that isn't whole yet is copied, into a buffer that grows with
//! what has really arrived: a length is a claim, and memory isn't given for claims.
//!
//! Everything that needs the store's lock is done before any Python object is made, see `state`.

use std::{
    borrow::Cow,
    collections::HashMap,
    hash::BuildHasherDefault,
    mem,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use pyo3::{
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyDict, PyList, PyString, PyTuple},
};

use crate::{
    consume_queue::TopicHasher,
    frame::{self, Cut},
    header::{Header, LANGUAGES},
    python::Bytes,
    send::{self, Arrival, Scratch},
    state::{check_host, State},
    store::{Open, Store},
    transactions,
    vouchers::{Changes, Vouchers},
};

/// Room kept for the next unfinished frame.
const BUFFER_KEPT: usize = 64 << 10;
/// A reply to a send takes about this much.
const REPLY_SIZE: usize = 320;

#[pyclass(module = "rockmq._core")]
pub struct Lane {
    store: Option<Arc<Open>>,
    peer: Vec<u8>,
    frame_size_max: usize,
    /// The start of a frame whose rest hasn't come.
    pending: Vec<u8>,
    dead: Option<String>,
    scratch: Scratch,
    header: Header,
    /// Whole frames so far.
    frames: u64,
    /// Where a guard decides over requests.
    vouchers: Option<Vouchers>,
}

/// What came of a piece of the stream.
#[derive(Default)]
pub struct Outcome<'py> {
    pub replies: Vec<u8>,
    /// The position behind the last record appended, 0 when there was none.
    pub end: u64,
    /// (topic, queue id) of watched queues that got messages.
    pub arrivals: Vec<(String, i32)>,
    pub commands: Vec<Bound<'py, PyTuple>>,
    pub reason: Option<String>,
}

impl<'py> Outcome<'py> {
    /// Nothing came of it but replies.
    pub fn is_plain(&self) -> bool {
        self.commands.is_empty() && self.arrivals.is_empty() && self.reason.is_none()
    }

    pub fn into_fed(self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let arrivals = PyList::new(py, self.arrivals)?;
        let commands = PyList::new(py, self.commands)?;
        (PyBytes::new(py, &self.replies), self.end, commands, arrivals, self.reason).into_pyobject(py)
    }
}

/// A frame for Python, still in the bytes it came in.
struct Pending<'d> {
    header: Header,
    text: &'d [u8],
    body: &'d [u8],
}

#[pymethods]
impl Lane {
    #[new]
    fn new(store: Option<&Bound<'_, Store>>, peer: &[u8], frame_size_max: usize) -> PyResult<Self> {
        Self::open(store.map(|store| Arc::clone(&store.get().shared)), peer, frame_size_max, None)
    }

    fn feed<'py>(&mut self, py: Python<'py>, chunk: &Bound<'py, PyAny>, now: i64) -> PyResult<Bound<'py, PyTuple>> {
        self.take(py, Bytes::of(chunk)?.as_slice(), now)?.into_fed(py)
    }

    #[getter]
    fn buffered(&self) -> usize {
        self.unfinished()
    }
}

impl Lane {
    /// `changes` where a guard decides over requests.
    pub fn open(
        store: Option<Arc<Open>>,
        peer: &[u8],
        frame_size_max: usize,
        changes: Option<Changes>,
    ) -> PyResult<Self> {
        check_host("peer", peer)?;
        if !(frame::HEAD..=i32::MAX as usize).contains(&frame_size_max) {
            let bounds = format!("frame_size_max {frame_size_max} is not within {} … {}", frame::HEAD, i32::MAX);
            return Err(PyValueError::new_err(bounds));
        }
        Ok(Self {
            store,
            peer: peer.to_vec(),
            frame_size_max,
            pending: Vec::new(),
            dead: None,
            scratch: Scratch::new(),
            header: Header::default(),
            frames: 0,
            vouchers: changes.map(Vouchers::new),
        })
    }

    /// Bytes of a frame whose rest hasn't come.
    pub fn unfinished(&self) -> usize {
        self.pending.len()
    }

    /// Let go of them: nothing more is taken.
    pub fn forget(&mut self) {
        self.pending = Vec::new();
    }

    pub fn frames(&self) -> u64 {
        self.frames
    }

    pub fn vouch(&mut self, code: i32, access_key: &[u8], topic: &[u8], secret: &[u8]) {
        if let Some(vouchers) = &mut self.vouchers {
            vouchers.add(code, access_key, topic, secret);
        }
    }

    /// Take the next bytes of the stream.
    pub fn take<'py>(&mut self, py: Python<'py>, mut data: &[u8], now: i64) -> PyResult<Outcome<'py>> {
        let mut outcome = Outcome::default();
        if self.dead.is_none() {
            if !self.pending.is_empty() {
                data = self.complete(py, data, now, &mut outcome)?;
            }
            if self.pending.is_empty() && outcome.reason.is_none() {
                let rest = self.cut(py, data, now, &mut outcome)?;
                self.pending.extend_from_slice(rest);
            }
            if outcome.reason.is_some() {
                self.dead.clone_from(&outcome.reason);
                self.pending = Vec::new();
            }
        } else {
            outcome.reason.clone_from(&self.dead);
        }
        Ok(outcome)
    }

    /// Add to the pending frame what it lacks, and no more; what is left of `data`.
    fn complete<'d, 'py>(
        &mut self,
        py: Python<'py>,
        mut data: &'d [u8],
        now: i64,
        outcome: &mut Outcome<'py>,
    ) -> PyResult<&'d [u8]> {
        loop {
            // The words are completed first, to be judged before anything is added behind them.
            let wanted = match self.pending.len() {
                0..4 => 4,
                4..8 => 8,
                _ => frame::size(&self.pending).unwrap_or(frame::HEAD),
            };
            let (head, rest) = data.split_at(data.len().min(wanted.saturating_sub(self.pending.len())));
            self.pending.extend_from_slice(head);
            data = rest;
            let pending = mem::take(&mut self.pending);
            let unfinished = self.cut(py, &pending, now, outcome)?.len();
            self.pending = pending;
            if unfinished == 0 || outcome.reason.is_some() {
                self.pending.clear();
                self.pending.shrink_to(BUFFER_KEPT);
                return Ok(data);
            }
            if data.is_empty() {
                return Ok(data);
            }
        }
    }

    /// Take all whole frames of `data`; what is left of it.
    fn cut<'d, 'py>(
        &mut self,
        py: Python<'py>,
        data: &'d [u8],
        now: i64,
        outcome: &mut Outcome<'py>,
    ) -> PyResult<&'d [u8]> {
        let mut pending = Vec::new();
        let rest = self.process(data, now, outcome, &mut pending);
        self.header.shrink();
        self.scratch.shrink();
        for frame in pending {
            outcome.commands.push(command(py, &frame)?);
        }
        Ok(rest)
    }

    /// The part that may hold the store's lock, and so knows no Python.
    fn process<'d>(
        &mut self,
        mut data: &'d [u8],
        now: i64,
        outcome: &mut Outcome<'_>,
        pending: &mut Vec<Pending<'d>>,
    ) -> &'d [u8] {
        let Self { store, header, scratch, peer, frames, vouchers, .. } = self;
        let mut state = None;
        // Of two decisions the first counts, so none goes before one that is left to Python.
        let mut leaves_decisions = false;
        loop {
            let (text, body, size) = match frame::cut(data, self.frame_size_max) {
                Cut::More => return data,
                Cut::Bad(reason) => {
                    outcome.reason = Some(reason);
                    return &[];
                }
                Cut::Whole { serializer, header: text, body, size } => {
                    if let Err(reason) = header.read(serializer, text) {
                        outcome.reason = Some(reason);
                        return &[];
                    }
                    (text, body, size)
                }
            };
            data = &data[size..];
            *frames += 1;
            let (is_send, is_end) = (send::is_send(header), transactions::is_end(header));
            // Who may end a transaction depends on its message, which is for Python to look at.
            let ends = is_end && !leaves_decisions && vouchers.is_none();
            if let Some(store) = store.as_ref().filter(|_| is_send || ends) {
                let state: &mut State = state.get_or_insert_with(|| store.state());
                let arrival = Arrival { header, text, body, peer, now };
                if outcome.replies.capacity() == 0 {
                    outcome.replies.reserve(REPLY_SIZE + data.len().min(BUFFER_KEPT));
                }
                let (config, fixed) = (&store.config, &store.fixed);
                let stored = match is_send {
                    true => {
                        send::store(state, config, fixed, scratch, vouchers.as_mut(), &arrival, &mut outcome.replies)
                    }
                    false => transactions::end(state, config, &arrival, &mut outcome.replies),
                };
                if let Some(stored) = stored {
                    outcome.end = outcome.end.max(stored.end);
                    outcome.arrivals.extend(stored.arrivals);
                    state.traffic.taken += 1;
                    continue;
                }
            }
            leaves_decisions |= is_end;
            pending.push(Pending { header: mem::take(header), text, body });
        }
    }
}

fn command<'py>(py: Python<'py>, frame: &Pending<'_>) -> PyResult<Bound<'py, PyTuple>> {
    let header = &frame.header;
    let fields = PyDict::new(py);
    for (key, value) in header.fields(frame.text) {
        let key = name(py, key);
        match value {
            Some(value) => fields.set_item(key, text(py, value))?,
            None if fields.contains(&key)? => fields.del_item(key)?,
            None => {}
        }
    }
    (
        header.code,
        LANGUAGES[usize::from(header.language)],
        header.version,
        header.opaque,
        header.flag,
        header.serializer,
        header.remark(frame.text).map(|remark| text(py, remark)),
        fields,
        PyBytes::new(py, frame.body),
    )
        .into_pyobject(py)
}

/// Field names as Python has them, made once: the same few come with every request.
type Names = HashMap<Box<[u8]>, Py<PyString>, BuildHasherDefault<TopicHasher>>;

static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);
const NAMES_MAX: usize = 512;
const NAME_SIZE_MAX: usize = 64;

fn name<'py>(py: Python<'py>, key: &[u8]) -> Bound<'py, PyString> {
    // Making a string can't start a garbage collection, which might come back here.
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = names.get(key) {
        return name.bind(py).clone();
    }
    let name = text(py, key);
    if names.len() < NAMES_MAX && key.len() <= NAME_SIZE_MAX {
        names.insert(key.into(), name.clone().unbind());
    }
    name
}

fn text<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyString> {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => PyString::new(py, text),
        Cow::Owned(text) => PyString::new(py, &text),
    }
}
