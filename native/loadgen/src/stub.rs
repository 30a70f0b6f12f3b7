//! A server that answers everything with the same bytes: what loopback and generator can do at best.

use std::borrow::Cow;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::engine::HOUSEKEEPING_OPAQUE;
use crate::failure::Failure;
use crate::options::{Mode, Options};
use crate::poller::Poller;
use crate::wire::{be32, fake_records, Frame, Reply, Serializer, OPAQUE_BASE};

struct Connection {
    stream: TcpStream,
    input: Vec<u8>,
    heads: Vec<Vec<u8>>,
    written: usize,
}

/// Start it in a thread that lives as long as the process. A pull is answered by `pull_max` records of the body size,
/// anything else by a send's answer.
pub fn start(options: &Options) -> Result<SocketAddr, Failure> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let count = options.pull_max.to_string();
    let (fields, body) = match options.mode {
        Mode::LoopbackPull => {
            // Stored size: fixed part, topic and the generator's properties.
            let size = 91 + options.size + options.topic.len() + 54;
            let fields = vec![
                ("maxOffset", Cow::from(count.clone())),
                ("minOffset", "0".into()),
                ("nextBeginOffset", count.into()),
                ("suggestWhichBrokerId", "0".into()),
            ];
            (fields, fake_records(options.pull_max, size))
        }
        _ => (vec![("msgId", "7F00000100002A9F00000000000012C5".into()), ("queueOffset", "1000".into())], Vec::new()),
    };
    let answer = Frame::new(options.serializer, 0, 1, OPAQUE_BASE, &fields, &body);
    let plain = Frame::new(Serializer::Binary, 0, 1, HOUSEKEEPING_OPAQUE, &[], b"");
    let connections = options.connections;
    thread::spawn(move || {
        if let Err(error) = serve(&listener, connections, &answer, body.len(), &plain) {
            eprintln!("loopback stub: {error}");
        }
    });
    Ok(address)
}

fn serve(listener: &TcpListener, count: usize, answer: &Frame, body_size: usize, plain: &Frame) -> std::io::Result<()> {
    let mut poller = Poller::new()?;
    let mut connections = Vec::new();
    for token in 0..count {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        poller.add(&stream, token)?;
        connections.push(Connection { stream, input: Vec::new(), heads: Vec::new(), written: 0 });
    }
    let (head, body) = answer.bytes.split_at(answer.bytes.len() - body_size);
    let mut ready = Vec::new();
    let mut chunk = vec![0; 256 << 10];
    loop {
        poller.wait(1000, &mut ready)?;
        for event in &ready {
            let connection = &mut connections[event.token];
            match connection.stream.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(size) => connection.input.extend_from_slice(&chunk[..size]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let mut at = 0;
            while let Some(rest) = be32(&connection.input, at) {
                let end = at + 4 + rest as usize;
                let Some(frame) = connection.input.get(at..end) else { break };
                let request = Reply::parse(frame).map_err(std::io::Error::other)?;
                if request.code == 34 {
                    connection.stream.write_all(&plain.bytes)?;
                } else {
                    let mut bytes = head.to_vec();
                    answer.patch_opaque(&mut bytes, request.opaque);
                    connection.heads.push(bytes);
                }
                at = end;
            }
            connection.input.drain(..at);
            let blocked = connection.flush(body)?;
            poller.want_write(&connection.stream, event.token, blocked)?;
        }
    }
}

impl Connection {
    /// Write what is owed; true when the socket took less.
    fn flush(&mut self, body: &[u8]) -> std::io::Result<bool> {
        if body.is_empty() && self.written == 0 {
            self.heads = if self.heads.is_empty() { Vec::new() } else { vec![self.heads.concat()] };
        }
        while let Some(head) = self.heads.first() {
            let from_body = self.written.saturating_sub(head.len());
            let parts = [IoSlice::new(head.get(self.written..).unwrap_or(&[])), IoSlice::new(&body[from_body..])];
            match self.stream.write_vectored(&parts) {
                Ok(size) => self.written += size,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(error) => return Err(error),
            }
            if self.written == head.len() + body.len() {
                self.heads.remove(0);
                self.written = 0;
            }
        }
        Ok(false)
    }
}
