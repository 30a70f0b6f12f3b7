//! The sockets of a server: one call reads all that are ready, gives each its lane, and writes back what needs no decision.
//!
//! An event loop that wakes Python for every chunk spends more on that than the kernel does on the exchange itself, which
//! is what many connections with one message each are made of. So the sockets are watched by an epoll of their own, which
//! is readable when one of them is ready; the event loop watches that one, and calls `poll`.
//!
//! A transport is open, closing (it reads no more, and ends when what waits was written) or ended (its socket is closed).
//! All ends are told by `poll`: closing shuts the socket down, which makes it ready once more.
//!
//! The first byte says whether a peer speaks TLS: a handshake begins with 0x16, a frame with the highest byte of its length,
//! which is 0 or 1. Its records are opened before the lane sees them and sealed on their way out, some at a time: what waits to
//! be written waits in the clear, by reference.

use std::{
    collections::{BTreeSet, VecDeque},
    io::{ErrorKind, IoSlice, Read, Write},
    mem::MaybeUninit,
    net::{Shutdown, TcpStream},
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{atomic::Ordering, Arc},
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
    tls::{Context, Session, Tls},
    vouchers::Changes,
};

/// Read from one socket at a time.
const CHUNK: usize = 256 << 10;
/// Sockets served before the event loop gets a turn.
const EVENTS: usize = 64;
/// Bytes of replies one transport may have held; over it nothing more is read from it until some are let go.
const HELD_MAX: usize = 1 << 20;
/// Pieces given to the kernel at a time.
const PIECES: usize = 64;
/// What a TLS handshake begins with.
const HANDSHAKE: u8 = 0x16;
/// Sockets in a handshake, or new, that one `poll` serves: a signature takes up to a millisecond.
const HANDSHAKES: usize = 8;
/// Handshakes under way; over it new ones are refused. Each holds up to 82 KiB.
const HANDSHAKES_MAX: usize = 4096;
/// Bytes of unfinished frames of all transports together; over it the longest give way, but for those up to `UNFINISHED_KEPT`.
const UNFINISHED_MAX: usize = 256 << 20;
const UNFINISHED_KEPT: usize = 16 << 10;

#[pyclass(module = "rockmq._core")]
pub struct Reactor {
    epoll: Arc<OwnedFd>,
    store: Option<Arc<Open>>,
    frame_size_max: usize,
    replies_at_once: bool,
    /// Where a guard decides over requests.
    changes: Option<Changes>,
    /// Replies of sends that aren't durable yet, in the order of the log.
    held: VecDeque<Held>,
    /// How often held replies were looked at for whether they wait for too long.
    sweeps: u64,
    /// Each transport with the connection it is reported by, at the place the kernel knows it by.
    places: Vec<Option<(Py<Transport>, Py<PyAny>)>>,
    free: Vec<usize>,
    chunk: Vec<u8>,
    security: Security,
    unfinished: Unfinished,
}

/// The unfinished frames.
#[derive(Default)]
struct Unfinished {
    bytes: usize,
    /// Length and place of those over `UNFINISHED_KEPT`.
    long: BTreeSet<(usize, usize)>,
}

/// How new connections may speak.
struct Security {
    tls: Option<Arc<Context>>,
    takes_plain: bool,
    /// Each handshake under way has a part in it.
    handshakes: Arc<()>,
    /// What was in the records of a chunk.
    opened: Vec<u8>,
}

#[pymethods]
impl Reactor {
    #[new]
    #[pyo3(signature = (store, frame_size_max, replies_at_once, is_guarded=false))]
    fn new(
        store: Option<&Bound<'_, Store>>,
        frame_size_max: usize,
        replies_at_once: bool,
        is_guarded: bool,
    ) -> PyResult<Self> {
        Ok(Self {
            epoll: Arc::new(epoll::create(CreateFlags::CLOEXEC).map_err(os_error)?),
            store: store.map(|store| Arc::clone(&store.get().shared)),
            frame_size_max,
            replies_at_once,
            changes: is_guarded.then(Changes::default),
            held: VecDeque::new(),
            sweeps: 0,
            places: Vec::new(),
            free: Vec::new(),
            chunk: vec![0; CHUNK],
            security: Security { tls: None, takes_plain: true, handshakes: Arc::new(()), opened: Vec::new() },
            unfinished: Unfinished::default(),
        })
    }

    fn secure(&mut self, tls: Option<&Bound<'_, Tls>>, takes_plain: bool) {
        self.security.tls = tls.map(|tls| Arc::clone(&tls.get().shared));
        self.security.takes_plain = takes_plain;
    }

    fn fileno(&self) -> i32 {
        self.epoll.as_raw_fd()
    }

    #[getter]
    fn held(&self) -> usize {
        self.held.len()
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
        let lane = Lane::open(self.store.clone(), peer, self.frame_size_max, self.changes.clone())?;
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
            wire: Wire::Unknown,
            waiting: VecDeque::new(),
            waiting_size: 0,
            held_size: 0,
            is_reading: true,
            is_closing: false,
            has_ended: false,
            failure: None,
            refusal: None,
            traffic: 0,
            progress: 0,
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
        let mut handshakes = 0;
        for &mut Event { flags, data, .. } in ready {
            let place = data.u64() as usize;
            let Some(Some((open, connection))) = self.places.get(place) else { continue };
            let mut transport = open.bind(py).borrow_mut();
            if self.security.tls.is_some() && transport.is_strange() {
                handshakes += 1;
                if handshakes > HANDSHAKES {
                    continue;
                }
            }
            let mut fed = None;
            let unfinished = transport.lane.unfinished();
            let served = transport.serve(py, flags, &mut self.chunk, &mut self.security, now);
            self.unfinished.change(place, unfinished, transport.lane.unfinished());
            while let Some(longest) = self.unfinished.excess() {
                if longest == place {
                    transport.give_way(&mut self.unfinished);
                } else if let Some(Some((other, _))) = self.places.get(longest) {
                    other.bind(py).borrow_mut().give_way(&mut self.unfinished);
                }
            }
            if let Some(outcome) = served {
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
            if fed.is_none() && ended.is_none() && transport.get_write_buffer_size() == 0 && flags == EventFlags::IN {
                continue;
            }
            if ended.is_some() {
                self.unfinished.change(place, transport.lane.unfinished(), 0);
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

    fn revoke(&self) {
        if let Some(changes) = &self.changes {
            changes.fetch_add(1, Ordering::Relaxed);
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

impl Unfinished {
    /// The frame of the transport at this place has grown, or come to its end.
    fn change(&mut self, place: usize, before: usize, now: usize) {
        self.bytes = self.bytes - before + now;
        if before > UNFINISHED_KEPT {
            self.long.remove(&(before, place));
        }
        if now > UNFINISHED_KEPT {
            self.long.insert((now, place));
        }
    }

    /// Whose has to go, as all are too much.
    fn excess(&self) -> Option<usize> {
        self.long.last().filter(|_| self.bytes > UNFINISHED_MAX).map(|&(_, place)| place)
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

/// What a peer speaks.
enum Wire {
    /// Nothing has come yet.
    Unknown,
    Plain,
    Tls(Session),
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
    wire: Wire,
    waiting: VecDeque<Piece>,
    waiting_size: usize,
    /// Bytes of replies that the reactor holds.
    held_size: usize,
    is_reading: bool,
    is_closing: bool,
    /// The peer's TLS session has ended; its last bytes have been read.
    has_ended: bool,
    failure: Option<String>,
    /// Why we want no more of this peer.
    refusal: Option<String>,
    traffic: u64,
    /// Writes, and times that we ourselves stopped reading.
    progress: u64,
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

    fn vouch(&mut self, code: i32, access_key: &str, topic: &str, secret: &[u8]) {
        self.lane.vouch(code, access_key.as_bytes(), topic.as_bytes(), secret);
    }

    fn get_write_buffer_size(&self) -> usize {
        self.waiting_size + self.session().map_or(0, |session| session.sealed())
    }

    fn is_closing(&self) -> bool {
        self.is_closing
    }

    fn pause_reading(&mut self) {
        self.is_reading = false;
        self.progress += 1;
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
        self.drop_waiting();
        self.close();
    }

    #[getter]
    fn traffic(&self) -> u64 {
        self.traffic
    }

    #[getter]
    fn progress(&self) -> u64 {
        self.progress + self.lane.frames()
    }

    #[getter]
    fn is_handshaking(&self) -> bool {
        self.session().is_some_and(Session::is_handshaking)
    }

    #[getter]
    fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }
}

impl Transport {
    /// Do what a socket is ready for; what came of the bytes it had.
    fn serve<'py>(
        &mut self,
        py: Python<'py>,
        ready: EventFlags,
        chunk: &mut [u8],
        security: &mut Security,
        now: i64,
    ) -> Option<Outcome<'py>> {
        if ready.contains(EventFlags::OUT) {
            self.flush();
        }
        if self.has_ended && !self.is_closing {
            self.close();
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
        let mut data = &chunk[..size];
        if let Wire::Unknown = self.wire {
            self.wire = security.admit(data[0]).map_err(|reason| self.refuse(reason)).ok()?;
        }
        if let Wire::Tls(session) = &mut self.wire {
            security.opened.clear();
            let opened = session.open(data, &mut security.opened);
            let has_ended = opened.map_err(|reason| self.refuse(reason)).ok()?;
            if self.waits() {
                self.flush();
            }
            if has_ended {
                self.has_ended = true;
                self.ask();
            }
            data = &security.opened;
        }
        self.lane.take(py, data, now).map_err(|error| self.fail(error.to_string())).ok()
    }

    /// Whether this peer hasn't shown yet what it is.
    fn is_strange(&self) -> bool {
        match &self.wire {
            Wire::Unknown => self.reads(),
            Wire::Plain => false,
            Wire::Tls(session) => session.is_handshaking(),
        }
    }

    /// End, as the one with the longest of too many unfinished frames.
    fn give_way(&mut self, unfinished: &mut Unfinished) {
        let (all, own) = (unfinished.bytes, self.lane.unfinished());
        unfinished.change(self.place, own, 0);
        self.lane.forget();
        self.refuse(format!(
            "the unfinished frames of all peers hold {all} bytes, the bound is {UNFINISHED_MAX}, and its own is the longest ({own})"
        ));
    }

    fn session(&self) -> Option<&Session> {
        match &self.wire {
            Wire::Tls(session) => Some(session),
            _ => None,
        }
    }

    /// What Python is told of an outcome.
    fn told<'py>(&mut self, py: Python<'py>, outcome: Outcome<'py>) -> Option<Bound<'py, PyTuple>> {
        outcome.into_fed(py).map_err(|error| self.fail(error.to_string())).ok()
    }

    fn reads(&self) -> bool {
        self.is_reading && !self.is_closing && !self.has_ended && self.held_size <= HELD_MAX
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
        self.drop_waiting();
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
        while self.stream.is_some() && self.waits() {
            match self.write_some() {
                Ok(size) => {
                    self.traffic += 1;
                    self.progress += 1;
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

    /// Write, or seal, some of what waits; how many bytes of it wait no more.
    fn write_some(&mut self) -> std::io::Result<usize> {
        let Some(stream) = &mut self.stream else { return Ok(0) };
        if let Wire::Tls(session) = &mut self.wire {
            if session.wants_write() {
                return session.write(stream).map(|()| 0);
            }
        } else if self.waiting.len() == 1 {
            // The usual case, and cheaper than by `writev`.
            return stream.write(self.waiting[0].rest());
        }
        let mut slices = [IoSlice::new(&[]); PIECES];
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.waiting) {
            *slice = IoSlice::new(piece.rest());
            count += 1;
        }
        match &mut self.wire {
            Wire::Tls(session) => session.seal(&slices[..count]),
            _ => stream.write_vectored(&slices[..count]),
        }
    }

    /// Whether there is something to write, which may be written.
    fn waits(&self) -> bool {
        match &self.wire {
            Wire::Tls(session) => session.wants_write() || (!session.is_handshaking() && !self.waiting.is_empty()),
            _ => !self.waiting.is_empty(),
        }
    }

    fn drop_waiting(&mut self) {
        self.waiting.clear();
        self.waiting_size = 0;
        self.wire = Wire::Plain; // what is sealed goes with its session
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
        // The turn after its last bytes a peer that has said goodbye is closed: what they ask for is answered by then.
        wanted.set(EventFlags::OUT, self.waits() || (self.has_ended && !self.is_closing));
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
        self.end_session();
        self.drop_waiting();
        self.is_closing = true;
        self.shut_if_done();
    }

    fn refuse(&mut self, reason: String) {
        self.refusal = Some(reason.clone());
        self.fail(reason);
    }

    fn end_session(&mut self) {
        if let (Wire::Tls(session), Some(stream)) = (&mut self.wire, &mut self.stream) {
            session.end(stream);
        }
    }

    fn shut_if_done(&mut self) {
        if !self.is_closing || self.waits() {
            return;
        }
        self.end_session();
        if let Some(stream) = &self.stream {
            // One that isn't connected any more can't be shut down, and is reported as ready for that.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Security {
    /// What somebody speaks who begins with this byte, or why we don't.
    fn admit(&self, first: u8) -> Result<Wire, String> {
        match &self.tls {
            Some(tls) if first == HANDSHAKE => match Arc::strong_count(&self.handshakes) > HANDSHAKES_MAX {
                true => Err(format!("{HANDSHAKES_MAX} TLS handshakes are under way, the bound")),
                false => Session::new(tls, &self.handshakes).map(Wire::Tls),
            },
            None if first == HANDSHAKE => Err("it wants TLS, which is off here (tls.server.mode)".into()),
            _ if self.takes_plain => Ok(Wire::Plain),
            _ => Err("it doesn't speak TLS, which it has to here (tls.server.mode)".into()),
        }
    }
}

fn contiguous(data: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    crate::python::contiguous(PyUntypedBuffer::get(data)?)
}

fn os_error(error: Errno) -> PyErr {
    PyOSError::new_err((error.raw_os_error(), std::io::Error::from(error).to_string()))
}
