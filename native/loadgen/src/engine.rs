//! The loop: C connections with W requests in flight each, one thread, closed loop.
//!
//! A slot is one request in flight. When its answer arrives it sends the next one at once, so latency is that of a client
//! that waits for its turn; no request is held back to keep a rate.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use crate::channel::Channel;
use crate::failure::Failure;
use crate::poller::{Poller, Ready};
use crate::stats::{monotonic_ns, Clocks, Histogram};
use crate::wire::{be32, Frame, Reply, FRAME_SIZE_MAX, OPAQUE_BASE, OPAQUE_SPAN};

const INPUT_SIZE: usize = 256 << 10;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TICK_MS: i32 = 100;
const HEARTBEAT_NS: u64 = 30_000_000_000;
const DRAIN_NS: u64 = 10_000_000_000;
/// Opaque of heartbeats, whose answers only have to be good.
pub const HOUSEKEEPING_OPAQUE: i32 = 7;

/// One request in flight.
#[derive(Default)]
pub struct Slot {
    /// Position among all slots of the run.
    pub index: usize,
    pub offset: i64,
    opaque: i32,
    turn: u32,
    sent_ns: u64,
}

/// What is sent, and what an answer is worth.
pub trait Workload {
    fn request(&mut self, slot: &mut Slot, opaque: i32, out: &mut Vec<u8>);
    /// Messages in a good answer. A code that isn't 0 goes to `refused`.
    fn accepted(&mut self, slot: &mut Slot, reply: &Reply) -> Result<u64, String>;
    /// When the code is part of the work, such as the end of a queue, and not an error: the messages in it, if any.
    fn refused(&mut self, slot: &mut Slot, reply: &Reply) -> Option<u64>;
    /// Sent first, and every half minute, on each connection.
    fn heartbeat(&self, connection: usize) -> Option<Frame>;
}

pub struct Plan {
    pub address: SocketAddr,
    pub connections: usize,
    pub window: usize,
    pub tls: bool,
    pub warmup: Duration,
    pub measured: Duration,
    /// Stop after so many requests instead of after a time.
    pub requests: Option<u64>,
    /// Give up when nothing at all arrives for so long.
    pub silence: Duration,
    pub server_pids: Vec<u32>,
}

#[derive(Default)]
pub struct Errors {
    pub by_code: BTreeMap<i32, (u64, String)>,
}

impl Errors {
    fn add(&mut self, reply: &Reply) {
        let entry = self.by_code.entry(reply.code).or_insert_with(|| {
            let remark = &reply.remark[..reply.remark.len().min(300)];
            (0, String::from_utf8_lossy(remark).into_owned())
        });
        entry.0 += 1;
    }

    pub fn total(&self) -> u64 {
        self.by_code.values().map(|(count, _)| count).sum()
    }
}

pub struct Outcome {
    pub seconds: f64,
    pub requests: u64,
    pub messages: u64,
    pub empty: u64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    pub latency: Histogram,
    pub errors: Errors,
    pub clocks: Clocks,
    /// Of the whole run with warm-up and drain: what the totals on the server are compared with.
    pub all_messages: u64,
    pub all_errors: Errors,
    pub unanswered: u64,
}

struct Connection {
    stream: Channel,
    input: Vec<u8>,
    start: usize,
    end: usize,
    output: Vec<u8>,
    written: usize,
    blocked: bool,
    slots: Vec<Slot>,
}

#[derive(PartialEq, Clone, Copy)]
enum Phase {
    Warm,
    Measure,
    Drain,
}

#[derive(Default)]
struct Counts {
    requests: u64,
    messages: u64,
    empty: u64,
    bytes_in: u64,
    bytes_out: u64,
}

struct Run<'w, W: Workload> {
    plan: Plan,
    workload: &'w mut W,
    phase: Phase,
    counts: Counts,
    latency: Histogram,
    errors: Errors,
    all_messages: u64,
    all_errors: Errors,
    issued: u64,
    in_flight: u64,
}

pub fn run(plan: Plan, workload: &mut impl Workload) -> Result<Outcome, Failure> {
    let mut poller = Poller::new()?;
    let mut connections = Vec::with_capacity(plan.connections);
    for index in 0..plan.connections {
        let connection = Connection::open(&plan, index)?;
        poller.add(&connection.stream, index)?;
        connections.push(connection);
    }
    let phase = if plan.requests.is_some() { Phase::Measure } else { Phase::Warm };
    Run {
        plan,
        workload,
        phase,
        counts: Counts::default(),
        latency: Histogram::new(),
        errors: Errors::default(),
        all_messages: 0,
        all_errors: Errors::default(),
        issued: 0,
        in_flight: 0,
    }
    .drive(&mut poller, &mut connections)
}

impl<W: Workload> Run<'_, W> {
    fn drive(mut self, poller: &mut Poller, connections: &mut [Connection]) -> Result<Outcome, Failure> {
        let mut now = monotonic_ns();
        for (index, connection) in connections.iter_mut().enumerate() {
            // A consumer may pull once its heartbeat was answered; producers start at once.
            match self.workload.heartbeat(index) {
                Some(frame) => connection.beat(frame),
                None => self.issue_all(connection, now),
            }
            self.counts.bytes_out += connection.flush(poller, index)?;
        }
        let mut ready: Vec<Ready> = Vec::new();
        let (mut last_heard, mut last_beat) = (now, now);
        let mut began = now;
        let mut clocks = Clocks::read(&self.plan.server_pids)?;
        let mut phase_ends = match self.plan.requests {
            Some(_) => u64::MAX,
            None => now + self.plan.warmup.as_nanos() as u64,
        };
        let mut result = None;
        loop {
            poller.wait(TICK_MS, &mut ready)?;
            now = monotonic_ns();
            for event in &ready {
                let connection = &mut connections[event.token];
                if event.readable {
                    self.hear(connection)?;
                    last_heard = now;
                }
                if event.readable || event.writable {
                    self.counts.bytes_out += connection.flush(poller, event.token)?;
                }
            }
            if self.phase == Phase::Measure && self.plan.requests.is_some_and(|limit| self.issued >= limit) {
                phase_ends = if self.in_flight == 0 { now } else { u64::MAX };
            }
            if now >= phase_ends {
                match self.phase {
                    Phase::Warm => {
                        self.phase = Phase::Measure;
                        (began, clocks) = (now, Clocks::read(&self.plan.server_pids)?);
                        (self.counts, self.latency, self.errors) =
                            (Counts::default(), Histogram::new(), Errors::default());
                        phase_ends = now + self.plan.measured.as_nanos() as u64;
                    }
                    Phase::Measure => {
                        let used = Clocks::read(&self.plan.server_pids)?.since(&clocks);
                        let counts = std::mem::take(&mut self.counts);
                        let latency = std::mem::replace(&mut self.latency, Histogram::new());
                        result =
                            Some(((now - began) as f64 / 1e9, used, counts, latency, std::mem::take(&mut self.errors)));
                        self.phase = Phase::Drain;
                        phase_ends = now + DRAIN_NS;
                    }
                    Phase::Drain => {}
                }
            }
            if self.phase == Phase::Drain && (self.in_flight == 0 || now >= phase_ends) {
                break;
            }
            if self.in_flight > 0 && now.saturating_sub(last_heard) > self.plan.silence.as_nanos() as u64 {
                return Err(Failure::Silence(format!(
                    "no answer for {} s with {} requests in flight",
                    self.plan.silence.as_secs(),
                    self.in_flight
                )));
            }
            if now - last_beat > HEARTBEAT_NS && self.phase != Phase::Drain {
                last_beat = now;
                for (index, connection) in connections.iter_mut().enumerate() {
                    if let Some(frame) = self.workload.heartbeat(index) {
                        connection.beat(frame);
                    }
                    connection.flush(poller, index)?;
                }
            }
        }
        let (seconds, clocks, counts, latency, errors) = result.expect("a drain follows a measurement");
        Ok(Outcome {
            seconds,
            requests: counts.requests,
            messages: counts.messages,
            empty: counts.empty,
            bytes_in: counts.bytes_in,
            bytes_out: counts.bytes_out,
            latency,
            errors,
            clocks,
            all_messages: self.all_messages,
            all_errors: self.all_errors,
            unanswered: self.in_flight,
        })
    }

    /// Start every slot that has nothing in flight.
    fn issue_all(&mut self, connection: &mut Connection, now: u64) {
        for at in 0..connection.slots.len() {
            if connection.slots[at].opaque == 0 {
                self.issue(connection, at, now);
            }
        }
    }

    fn issue(&mut self, connection: &mut Connection, at: usize, now: u64) {
        let slot = &mut connection.slots[at];
        if self.phase == Phase::Drain || self.plan.requests.is_some_and(|limit| self.issued >= limit) {
            slot.opaque = 0;
            return;
        }
        // The slot comes back from the opaque; the turn makes an answer to an older request of the slot stand out.
        let window = self.plan.window as u32;
        slot.turn = (slot.turn + 1) % (OPAQUE_SPAN / window);
        slot.opaque = OPAQUE_BASE + (slot.turn * window) as i32 + at as i32;
        slot.sent_ns = now;
        self.workload.request(slot, slot.opaque, &mut connection.output);
        self.issued += 1;
        self.in_flight += 1;
    }

    fn hear(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        loop {
            let received = connection.fill()?;
            self.counts.bytes_in += received as u64;
            let now = monotonic_ns();
            while let Some(range) = connection.next_frame()? {
                // Taken out for the while, so that the slots can be borrowed beside it.
                let input = std::mem::take(&mut connection.input);
                let outcome = self.answer(connection, &input[range], now);
                connection.input = input;
                outcome?;
            }
            if !connection.stream.holds_more() {
                return Ok(());
            }
        }
    }

    fn answer(&mut self, connection: &mut Connection, frame: &[u8], now: u64) -> Result<(), Failure> {
        let reply = Reply::parse(frame).map_err(Failure::Protocol)?;
        if !reply.is_response() {
            return Ok(()); // the broker's own requests: a changed consumer group
        }
        if reply.opaque == HOUSEKEEPING_OPAQUE {
            return match reply.code {
                0 => {
                    self.issue_all(connection, now);
                    Ok(())
                }
                code => {
                    Err(Failure::Refused(format!("heartbeat: code {code}: {}", String::from_utf8_lossy(reply.remark))))
                }
            };
        }
        let at = reply.opaque.wrapping_sub(OPAQUE_BASE) as usize % self.plan.window;
        let slot = &mut connection.slots[at];
        if slot.opaque != reply.opaque {
            return Err(Failure::Protocol(format!("answer with unknown opaque {}", reply.opaque)));
        }
        self.in_flight -= 1;
        if reply.code == 0 {
            let messages = self.workload.accepted(slot, &reply).map_err(Failure::Protocol)?;
            self.counts.requests += 1;
            self.counts.messages += messages;
            self.all_messages += messages;
            self.latency.record(now - slot.sent_ns);
        } else if let Some(messages) = self.workload.refused(slot, &reply) {
            self.counts.messages += messages;
            self.all_messages += messages;
            self.counts.empty += 1;
        } else {
            self.errors.add(&reply);
            self.all_errors.add(&reply);
        }
        self.issue(connection, at, now);
        Ok(())
    }
}

impl Connection {
    fn open(plan: &Plan, index: usize) -> Result<Self, Failure> {
        let stream = Channel::connect(plan.address, CONNECT_TIMEOUT, plan.tls)
            .map_err(|error| Failure::Io(format!("connection {index} to {}: {error}", plan.address)))?;
        let slot = |at| Slot { index: index * plan.window + at, offset: 0, opaque: 0, turn: 0, sent_ns: 0 };
        Ok(Self {
            stream,
            input: vec![0; INPUT_SIZE],
            start: 0,
            end: 0,
            output: Vec::new(),
            written: 0,
            blocked: false,
            slots: (0..plan.window).map(slot).collect(),
        })
    }

    fn beat(&mut self, frame: Frame) {
        self.output.extend_from_slice(&frame.bytes);
    }

    fn fill(&mut self) -> Result<usize, Failure> {
        match self.stream.read(&mut self.input[self.end..]) {
            Ok(0) => Err(Failure::Io("the server closed a connection".into())),
            Ok(count) => {
                self.end += count;
                Ok(count)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Where the next whole frame lies; None leaves room for the rest of an unfinished one.
    fn next_frame(&mut self) -> Result<Option<std::ops::Range<usize>>, Failure> {
        let held = self.end - self.start;
        let size = match be32(&self.input[..self.end], self.start) {
            Some(rest) if !(4..FRAME_SIZE_MAX as i32).contains(&rest) => {
                return Err(Failure::Protocol(format!("a frame of {rest} bytes")));
            }
            Some(rest) => 4 + rest as usize,
            None => 4,
        };
        if held >= size {
            let range = self.start..self.start + size;
            self.start = range.end;
            return Ok(Some(range));
        }
        if held == 0 {
            (self.start, self.end) = (0, 0);
        } else if self.start + size.max(INPUT_SIZE / 4) > self.input.len() {
            self.input.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, held);
        }
        if size > self.input.len() {
            self.input.resize(size + INPUT_SIZE, 0);
        }
        Ok(None)
    }

    fn flush(&mut self, poller: &Poller, token: usize) -> Result<u64, Failure> {
        let before = self.written;
        while self.written < self.output.len() {
            match self.stream.write(&self.output[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        let sent = (self.written - before) as u64;
        let is_sealed = match self.stream.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => true,
            done => done.map(|()| false)?,
        };
        let blocked = self.written < self.output.len() || is_sealed;
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
        }
        if blocked != self.blocked {
            self.blocked = blocked;
            poller.want_write(&self.stream, token, blocked)?;
        }
        Ok(sent)
    }
}
