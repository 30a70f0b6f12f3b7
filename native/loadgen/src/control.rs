//! One request at a time over a blocking connection: offsets, and the first accepted send.

use std::borrow::Cow;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::engine::{Slot, Workload};
use crate::failure::Failure;
use crate::options::Options;
use crate::signed;
use crate::stats::monotonic_ns;
use crate::wire::{be32, Fields, Reply, Serializer, FRAME_SIZE_MAX, OPAQUE_BASE};
use crate::work::Sends;

const GET_MAX_OFFSET: i32 = 30;
const CALL_TIMEOUT: Duration = Duration::from_secs(5);
const SETTLE_TIMEOUT: Duration = Duration::from_secs(20);
const PROBE_PAUSE: Duration = Duration::from_millis(2);

/// Ask and wait for the answer. `read` gets it when its code is 0.
pub fn call<T>(stream: &mut TcpStream, frame: &[u8], read: impl FnOnce(&Reply) -> T) -> Result<T, Failure> {
    call_as(stream, frame, OPAQUE_BASE, read)
}

/// The same, of a request with another opaque.
pub fn call_as<T>(
    stream: &mut TcpStream,
    frame: &[u8],
    opaque: i32,
    read: impl FnOnce(&Reply) -> T,
) -> Result<T, Failure> {
    stream.write_all(frame)?;
    let until = Instant::now() + CALL_TIMEOUT;
    while Instant::now() < until {
        let mut answer = vec![0; 4];
        stream.read_exact(&mut answer)?;
        let size = be32(&answer, 0).unwrap_or(0);
        if !(4..FRAME_SIZE_MAX as i32).contains(&size) {
            return Err(Failure::Protocol(format!("a frame of {size} bytes")));
        }
        answer.resize(4 + size as usize, 0);
        stream.read_exact(&mut answer[4..])?;
        let reply = Reply::parse(&answer).map_err(Failure::Protocol)?;
        if reply.is_response() && reply.opaque == opaque {
            return match reply.code {
                0 => Ok(read(&reply)),
                code => Err(Failure::Refused(format!("code {code}: {}", String::from_utf8_lossy(reply.remark)))),
            };
        }
    }
    Err(Failure::Silence(format!("no answer in {} s", CALL_TIMEOUT.as_secs())))
}

pub fn connect(address: SocketAddr) -> Result<TcpStream, Failure> {
    let stream = TcpStream::connect_timeout(&address, CALL_TIMEOUT)
        .map_err(|error| Failure::Io(format!("connection to {address}: {error}")))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(CALL_TIMEOUT))?;
    Ok(stream)
}

fn request(options: &Options, code: i32, fields: &Fields) -> Vec<u8> {
    let mut frame = Vec::new();
    let template = signed::template(options.key.as_ref(), Serializer::Json, code, fields, b"");
    template.append_to(&mut frame, OPAQUE_BASE, 0, &mut 0);
    frame
}

/// Messages in all queues of the topic, by their max offsets.
pub fn stored_messages(options: &Options) -> Result<i64, Failure> {
    let mut stream = connect(options.address)?;
    let mut sum = 0;
    for queue in 0..options.queues {
        let fields = [("queueId", Cow::from(queue.to_string())), ("topic", options.topic.as_str().into())];
        sum += call(&mut stream, &request(options, GET_MAX_OFFSET, &fields), |reply| reply.offset)?;
    }
    Ok(sum)
}

/// Wait until the topic holds at least `wanted` messages: a queue may follow the log a little later.
pub fn settled_messages(options: &Options, wanted: i64) -> Result<i64, Failure> {
    let until = Instant::now() + SETTLE_TIMEOUT;
    loop {
        let stored = stored_messages(options)?;
        if stored >= wanted || Instant::now() > until {
            return Ok(stored);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Try to send one message until it is accepted: the monotonic time of that moment, and the tries.
pub fn probe(options: &Options, now_ms: u64) -> Result<(u64, u64), Failure> {
    let mut sends = Sends::new(options, now_ms);
    let until = Instant::now() + options.seconds;
    let mut tries = 0;
    loop {
        tries += 1;
        let mut frame = Vec::new();
        sends.request(&mut Slot::default(), OPAQUE_BASE, &mut frame);
        let sent = connect(options.address).and_then(|mut stream| call(&mut stream, &frame, |_| monotonic_ns()));
        match sent {
            Ok(at) => return Ok((at, tries)),
            Err(failure) if Instant::now() > until => return Err(failure),
            Err(_) => std::thread::sleep(PROBE_PAUSE),
        }
    }
}
