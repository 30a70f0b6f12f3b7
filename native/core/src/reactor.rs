//! The sockets of a server: one call reads all that are ready, gives each its lane, and writes back what needs no decision.
//!
//! An event loop that wakes Python for every chunk spends more on that than the kernel does on the exchange itself, which
//! is what many connections with one message each are made of. So the sockets are watched by an epoll of their own, which
//! is readable when one of them is ready; the event loop watches that one, and calls `poll`.
//!
//! A transport is open, closing (it reads no more, and ends when what waits was written) or ended (its socket is closed).
//! All ends are told by `poll`: closing shuts the socket down, which makes it ready once more.

use std::{
    collections::VecDeque,
    io::{ErrorKind, IoSlice, Read, Write},
    mem::MaybeUninit,
    net::{Shutdown, TcpStream},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::Arc,
};

use pyo3::{
    buffer::PyUntypedBuffer,
    exceptions::PyOSError,
    prelude::*,
    types::{PyBytes, PyList, PyTuple},
};
use rustix::{
    event::{
        epoll::{self, CreateFlags, Event, EventData, EventFlags},
        Timespec,
    },
    io::Errno,
};

use crate::{
    lane::{Lane, Outcome},
    python::slice_of,
    store::{Open, Store},
};

/// Read from one socket at a time.
const CHUNK: usize = 256 << 10;
/// Sockets served before the event loop gets a turn.
const EVENTS: usize = 64;
/// Bytes of replies one transport may have held; over it nothing more is read from it until some are let go.
const HELD_MAX: usize = 1 << 20;
/// Pieces given to the kernel at a time.
const PIECES: usize = 64;

#[pyclass(module = "rockmq._core")]
pub struct Reactor {
    epoll: Arc<OwnedFd>,
    store: Option<Arc<Open>>,
    frame_size_max: usize,
    replies_at_once: bool,
    /// Replies of sends that aren't durable yet, in the order of the log.
    held: VecDeque<Held>,
    /// How often held replies were looked at for whether they wait for too long.
    sweeps: u64,
    /// Each transport with the connection it is reported by, at the place the kernel knows it by.
    places: Vec<Option<(Py<Transport>, Py<PyAny>)>>,
    free: Vec<usize>,
    chunk: Vec<u8>,
}

#[pymethods]
impl Reactor {
    #[new]
    fn new(store: Option<&Bound<'_, Store>>, frame_size_max: usize, replies_at_once: bool) -> PyResult<Self> {
        Ok(Self {
            epoll: Arc::new(epoll::create(CreateFlags::CLOEXEC).map_err(os_error)?),
            store: store.map(|store| Arc::clone(&store.get().shared)),
            frame_size_max,
            replies_at_once,
            held: VecDeque::new(),
            sweeps: 0,
            places: Vec::new(),
            free: Vec::new(),
            chunk: vec![0; CHUNK],
        })
    }

    fn fileno(&self) -> i32 {
        self.epoll.as_raw_fd()
    }

    fn add(&mut self, py: Python<'_>, fd: i32, peer: &[u8], connection: Py<PyAny>) -> PyResult<Py<Transport>> {
        if fd < 0 {
            return Err(PyOSError::new_err(format!("{fd} is no file descriptor")));
        }
        // SAFETY: the caller has detached this descriptor from the socket it accepted and leaves it to us (`_core.pyi`), so
        // nobody else closes it.
        let stream = unsafe { TcpStream::from_raw_fd(fd) };
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        let lane = Lane::open(self.store.clone(), peer, self.frame_size_max)?;
        let place = self.free.last().copied().unwrap_or(self.places.len());
        epoll::add(&self.epoll, &stream, EventData::new_u64(place as u64), EventFlags::IN).map_err(os_error)?;
        if self.free.pop().is_none() {
            self.places.push(None);
        }
        let transport = Transport {
            epoll: Arc::clone(&self.epoll),
            place,
            stream: Some(stream),
            interest: EventFlags::IN,
            lane,
            waiting: VecDeque::new(),
            waiting_size: 0,
            held_size: 0,
            is_reading: true,
            is_closing: false,
            failure: None,
            traffic: 0,
        };
        let transport = Py::new(py, transport)?;
        self.places[place] = Some((transport.clone_ref(py), connection));
        Ok(transport)
    }

    fn poll<'py>(&mut self, py: Python<'py>, now: i64) -> PyResult<Option<Bound<'py, PyList>>> {
        let mut events = [MaybeUninit::<Event>::uninit(); EVENTS];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 0 };
        let ready = match epoll::wait(&self.epoll, &mut events[..], Some(&timeout)) {
            Err(Errno::INTR) => return Ok(None),
            other => other.map_err(os_error)?.0,
        };
        if ready.is_empty() {
            return Ok(None);
        }
        let told = PyList::empty(py);
        let mut answered = Vec::new();
        for &mut Event { flags, data, .. } in ready {
            let place = data.u64() as usize;
            let Some(Some((open, connection))) = self.places.get(place) else { continue };
            let mut transport = open.bind(py).borrow_mut();
            let mut fed = None;
            if let Some(outcome) = transport.serve(py, flags, &mut self.chunk, now) {
                let is_durable = self.replies_at_once || outcome.end == 0;
                if let (Some(store), false) = (&self.store, is_durable) {
                    store.flush_signal.ask();
                }
                if !outcome.is_plain() {
                    fed = transport.told(py, outcome);
                } else if is_durable {
                    // Written when all have been read: the first of many clients to be woken keeps a processor awake for the rest.
                    answered.push((open.clone_ref(py), outcome.replies));
                } else if !outcome.replies.is_empty() {
                    transport.hold(outcome.replies.len());
                    let (end, replies) = (outcome.end, outcome.replies);
                    self.held.push_back(Held { end, sweeps: self.sweeps, transport: open.clone_ref(py), replies });
                }
            }
            let ended = transport.ended(flags);
            if fed.is_none() && ended.is_none() && transport.waiting_size == 0 && flags == EventFlags::IN {
                continue;
            }
            drop(transport);
            told.append((connection, fed, ended.as_deref()).into_pyobject(py)?)?;
            if ended.is_some() {
                self.places[place] = None;
                self.free.push(place);
            }
        }
        for (transport, replies) in answered {
            transport.bind(py).borrow_mut().send([Owner::Core(replies)]);
        }
        Ok(Some(told))
    }

    fn release(&mut self, py: Python<'_>, position: u64) {
        while let Some(held) = self.pop_held(|held| held.end <= position) {
            let mut transport = held.transport.bind(py).borrow_mut();
            transport.let_go(held.replies.len());
            transport.send([Owner::Core(held.replies)]);
        }
    }

    fn overdue<'py>(&mut self, py: Python<'py>, sweeps: u64) -> Vec<(Py<PyAny>, Bound<'py, PyBytes>)> {
        self.sweeps += 1;
        let bound = self.sweeps;
        let mut overdue = Vec::new();
        while let Some(held) = self.pop_held(|held| held.sweeps + sweeps < bound) {
            let mut transport = held.transport.bind(py).borrow_mut();
            transport.let_go(held.replies.len());
            if let Some(Some((open, connection))) = self.places.get(transport.place) {
                if open.is(&held.transport) {
                    overdue.push((connection.clone_ref(py), PyBytes::new(py, &held.replies)));
                }
            }
        }
        overdue
    }
}

impl Reactor {
    fn pop_held(&mut self, is_wanted: impl FnOnce(&Held) -> bool) -> Option<Held> {
        is_wanted(self.held.front()?).then(|| self.held.pop_front())?
    }
}

/// Replies that wait until everything below `end` is durable.
struct Held {
    end: u64,
    /// What `Reactor::sweeps` was then.
    sweeps: u64,
    transport: Py<Transport>,
    replies: Vec<u8>,
}

/// Bytes on their way out.
struct Piece {
    owner: Owner,
    written: usize,
}

enum Owner {
    Core(Vec<u8>),
    Python(PyUntypedBuffer),
}

impl Piece {
    fn rest(&self) -> &[u8] {
        let bytes = match &self.owner {
            Owner::Core(bytes) => bytes,
            Owner::Python(buffer) => slice_of(buffer),
        };
        &bytes[self.written..]
    }
}

#[pyclass(module = "rockmq._core")]
pub struct Transport {
    epoll: Arc<OwnedFd>,
    place: usize,
    /// None when it has ended.
    stream: Option<TcpStream>,
    /// What the kernel is asked to tell.
    interest: EventFlags,
    lane: Lane,
    waiting: VecDeque<Piece>,
    waiting_size: usize,
    /// Bytes of replies that the reactor holds.
    held_size: usize,
    is_reading: bool,
    is_closing: bool,
    failure: Option<String>,
    traffic: u64,
}

#[pymethods]
impl Transport {
    fn write(&mut self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let piece = Owner::Python(contiguous(data)?);
        self.send([piece]);
        Ok(())
    }

    fn writelines(&mut self, data: &Bound<'_, PyList>) -> PyResult<()> {
        let pieces = data.iter().map(|data| contiguous(&data).map(Owner::Python)).collect::<PyResult<Vec<_>>>()?;
        self.send(pieces);
        Ok(())
    }

    fn get_write_buffer_size(&self) -> usize {
        self.waiting_size
    }

    fn is_closing(&self) -> bool {
        self.is_closing
    }

    fn pause_reading(&mut self) {
        self.is_reading = false;
        self.ask();
    }

    fn resume_reading(&mut self) {
        self.is_reading = true;
        self.ask();
    }

    fn close(&mut self) {
        self.is_closing = true;
        self.shut_if_done();
        self.ask();
    }

    fn abort(&mut self) {
        self.waiting.clear();
        self.waiting_size = 0;
        self.close();
    }

    #[getter]
    fn traffic(&self) -> u64 {
        self.traffic
    }
}

impl Transport {
    /// Do what a socket is ready for; what came of the bytes it had.
    fn serve<'py>(&mut self, py: Python<'py>, ready: EventFlags, chunk: &mut [u8], now: i64) -> Option<Outcome<'py>> {
        if ready.contains(EventFlags::OUT) {
            self.flush();
        }
        // An error is found out by reading, which takes it off the socket.
        let is_readable = ready.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR);
        if !self.reads() || !is_readable {
            return None;
        }
        let size = match self.stream.as_mut()?.read(chunk) {
            Ok(0) => {
                self.close();
                return None;
            }
            Ok(size) => size,
            Err(error) => {
                self.note(&error);
                return None;
            }
        };
        self.traffic += size as u64;
        self.lane.take(py, &chunk[..size], now).map_err(|error| self.fail(error.to_string())).ok()
    }

    /// What Python is told of an outcome.
    fn told<'py>(&mut self, py: Python<'py>, outcome: Outcome<'py>) -> Option<Bound<'py, PyTuple>> {
        outcome.into_fed(py).map_err(|error| self.fail(error.to_string())).ok()
    }

    fn reads(&self) -> bool {
        self.is_reading && !self.is_closing && self.held_size <= HELD_MAX
    }

    fn hold(&mut self, size: usize) {
        self.held_size += size;
        self.ask();
    }

    fn let_go(&mut self, size: usize) {
        self.held_size -= size;
        self.ask();
    }

    /// Why there is no socket any more, if that has just come to be; empty when it was closed in good order.
    fn ended(&mut self, ready: EventFlags) -> Option<String> {
        if !ready.intersects(EventFlags::HUP | EventFlags::ERR) || self.reads() {
            return None;
        }
        let stream = self.stream.take()?;
        self.is_closing = true;
        self.waiting.clear();
        self.waiting_size = 0;
        let error = stream.take_error().ok().flatten().map(|error| error.to_string());
        Some(self.failure.take().or(error).unwrap_or_default())
    }

    fn send(&mut self, pieces: impl IntoIterator<Item = Owner>) {
        if self.is_closing {
            return;
        }
        let at_once = self.waiting.is_empty();
        for owner in pieces {
            let piece = Piece { owner, written: 0 };
            let size = piece.rest().len();
            if size > 0 {
                self.waiting_size += size;
                self.waiting.push_back(piece);
            }
        }
        if at_once && !self.waiting.is_empty() {
            self.flush();
        }
    }

    /// Write what waits, as far as the kernel takes it.
    fn flush(&mut self) {
        while let (Some(stream), false) = (&mut self.stream, self.waiting.is_empty()) {
            let written = match self.waiting.len() {
                // The usual case, and cheaper than by `writev`.
                1 => stream.write(self.waiting[0].rest()),
                _ => {
                    let mut slices = [IoSlice::new(&[]); PIECES];
                    let mut count = 0;
                    for (slice, piece) in slices.iter_mut().zip(&self.waiting) {
                        *slice = IoSlice::new(piece.rest());
                        count += 1;
                    }
                    stream.write_vectored(&slices[..count])
                }
            };
            match written {
                Ok(size) => {
                    self.traffic += 1;
                    self.written(size);
                }
                Err(error) => {
                    self.note(&error);
                    break;
                }
            }
        }
        self.shut_if_done();
        self.ask();
    }

    fn written(&mut self, mut size: usize) {
        self.waiting_size -= size;
        while let Some(piece) = self.waiting.front_mut() {
            let rest = piece.rest().len();
            if size < rest {
                piece.written += size;
                break;
            }
            size -= rest;
            self.waiting.pop_front();
        }
    }

    /// Tell the kernel what to look for, if that has changed.
    fn ask(&mut self) {
        let Some(stream) = &self.stream else { return };
        let mut wanted = EventFlags::empty();
        wanted.set(EventFlags::IN, self.reads());
        wanted.set(EventFlags::OUT, !self.waiting.is_empty());
        if wanted == self.interest {
            return;
        }
        match epoll::modify(&self.epoll, stream, EventData::new_u64(self.place as u64), wanted) {
            Ok(()) => self.interest = wanted,
            Err(error) => self.fail(std::io::Error::from(error).to_string()),
        }
    }

    fn note(&mut self, error: &std::io::Error) {
        if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) {
            self.fail(error.to_string());
        }
    }

    /// Nothing more can be done with this socket.
    fn fail(&mut self, reason: String) {
        self.failure.get_or_insert(reason);
        self.waiting.clear();
        self.waiting_size = 0;
        self.is_closing = true;
        self.shut_if_done();
    }

    fn shut_if_done(&mut self) {
        if let (Some(stream), true, true) = (&self.stream, self.is_closing, self.waiting.is_empty()) {
            // One that isn't connected any more can't be shut down, and is reported as ready for that.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn contiguous(data: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    crate::python::contiguous(PyUntypedBuffer::get(data)?)
}

fn os_error(error: Errno) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), std::io::Error::from(error).to_string()))
}
