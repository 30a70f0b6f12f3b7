//! One message at a time: from a send to the answer of the pull that waits for it.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::control::{call, call_as, connect, stored_messages};
use crate::engine::{Errors, Outcome, Slot, Workload, HOUSEKEEPING_OPAQUE};
use crate::failure::Failure;
use crate::options::Options;
use crate::stats::{monotonic_ns, Clocks, Histogram};
use crate::wire::{Reply, OPAQUE_BASE};
use crate::work::{Pulls, Sends};

/// So that the pull is parked when the message comes; half of it is between two messages.
const PAUSE: Duration = Duration::from_millis(1);

pub fn run(options: &Options, now_ms: u64) -> Result<Outcome, Failure> {
    let mut options = options.clone();
    (options.queues, options.follow) = (1, true);
    let mut consumer = Consumer { stream: connect(options.address)?, pulls: Pulls::new(&options, now_ms) };
    let mut producer = connect(options.address)?;
    let mut sends = Sends::new(&options, now_ms);
    let beat = consumer.pulls.heartbeat(0).ok_or_else(|| Failure::Protocol("no heartbeat".into()))?;
    call_as(&mut consumer.stream, &beat.bytes, HOUSEKEEPING_OPAQUE, |_| ())?;
    let mut slot = Slot::default();
    slot.offset = stored_messages(&options)?;
    let mut latency = Histogram::new();
    let warm_until = Instant::now() + options.warmup;
    let until = warm_until + options.seconds;
    let (mut clocks, mut began) = (Clocks::read(&options.server_pids)?, Instant::now());
    let (mut messages, mut warm) = (0, true);
    while Instant::now() < until {
        if warm && Instant::now() >= warm_until {
            (clocks, began, latency, messages, warm) =
                (Clocks::read(&options.server_pids)?, Instant::now(), Histogram::new(), 0, false);
        }
        consumer.ask(&mut slot)?;
        std::thread::sleep(PAUSE);
        let mut frame = Vec::new();
        sends.request(&mut Slot::default(), OPAQUE_BASE, &mut frame);
        let sent = monotonic_ns();
        producer.write_all(&frame)?;
        let found = consumer.answer(&mut slot)?;
        latency.record(monotonic_ns() - sent);
        messages += found;
        call(&mut producer, &[], |_| ())?;
    }
    Ok(Outcome {
        seconds: began.elapsed().as_secs_f64(),
        requests: messages,
        messages,
        empty: 0,
        bytes_in: 0,
        bytes_out: 0,
        latency,
        errors: Errors::default(),
        clocks: Clocks::read(&options.server_pids)?.since(&clocks),
        all_messages: messages,
        all_errors: Errors::default(),
        unanswered: 0,
    })
}

struct Consumer {
    stream: TcpStream,
    pulls: Pulls,
}

impl Consumer {
    fn ask(&mut self, slot: &mut Slot) -> Result<(), Failure> {
        let mut frame = Vec::new();
        self.pulls.request(slot, OPAQUE_BASE, &mut frame);
        Ok(self.stream.write_all(&frame)?)
    }

    /// Messages in the answer; the next pull goes on behind them.
    fn answer(&mut self, slot: &mut Slot) -> Result<u64, Failure> {
        let pulls = &mut self.pulls;
        call(&mut self.stream, &[], |reply: &Reply| pulls.accepted(slot, reply))?.map_err(Failure::Protocol)
    }
}
