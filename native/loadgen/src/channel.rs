//! A connection that is loaded: in the clear, or with TLS, whoever the server says it is.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme};

const CHUNK: usize = 256 << 10;

pub struct Channel {
    socket: TcpStream,
    tls: Option<Session>,
}

struct Session {
    connection: ClientConnection,
    chunk: Vec<u8>,
    /// What came in the clear, and how much of it was read.
    plain: Vec<u8>,
    read: usize,
}

impl Channel {
    /// Connected, with the handshake done, and not blocking.
    pub fn connect(address: SocketAddr, timeout: Duration, tls: bool) -> io::Result<Self> {
        let mut socket = TcpStream::connect_timeout(&address, timeout)?;
        socket.set_nodelay(true)?;
        let tls = match tls {
            true => Some(Session::open(&mut socket, address, timeout)?),
            false => None,
        };
        socket.set_nonblocking(true)?;
        Ok(Self { socket, tls })
    }

    /// Whether more can be read without the socket's being ready.
    pub fn holds_more(&self) -> bool {
        self.tls.as_ref().is_some_and(|session| session.read < session.plain.len())
    }
}

impl AsRawFd for Channel {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Read for Channel {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.read(out),
            Some(session) => session.read(&mut self.socket, out),
        }
    }
}

impl Write for Channel {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            None => self.socket.write(data),
            Some(session) => {
                session.flush(&mut self.socket)?;
                session.connection.writer().write(data)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.tls.as_mut().map_or(Ok(()), |session| session.flush(&mut self.socket))
    }
}

impl Session {
    fn open(socket: &mut TcpStream, address: SocketAddr, timeout: Duration) -> io::Result<Self> {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody))
            .with_no_client_auth();
        let name = ServerName::IpAddress(address.ip().into());
        let mut connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        socket.set_read_timeout(Some(timeout))?;
        while connection.is_handshaking() {
            connection.complete_io(socket)?;
        }
        Ok(Self { connection, chunk: vec![0; CHUNK], plain: Vec::new(), read: 0 })
    }

    fn read(&mut self, socket: &mut TcpStream, out: &mut [u8]) -> io::Result<usize> {
        if self.read == self.plain.len() {
            self.plain.clear();
            self.read = 0;
            let size = socket.read(&mut self.chunk)?;
            if size == 0 {
                return Ok(0);
            }
            let mut data = &self.chunk[..size];
            while !data.is_empty() {
                self.connection.read_tls(&mut data)?;
                let state = self.connection.process_new_packets().map_err(io::Error::other)?;
                let begin = self.plain.len();
                self.plain.resize(begin + state.plaintext_bytes_to_read(), 0);
                self.connection.reader().read_exact(&mut self.plain[begin..])?;
            }
            if self.plain.is_empty() {
                return Err(ErrorKind::WouldBlock.into());
            }
        }
        let size = out.len().min(self.plain.len() - self.read);
        out[..size].copy_from_slice(&self.plain[self.read..self.read + size]);
        self.read += size;
        Ok(size)
    }

    fn flush(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(socket)?;
        }
        Ok(())
    }
}

/// Believes every server: what is measured is the speed of its TLS.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
