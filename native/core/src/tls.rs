//! TLS, the server's end: what a server shows and asks for, and one connection's records.
//!
//! Nothing is resumed: each connection shows its certificate, so that one that was revoked meanwhile is found out. What a peer
//! can make us hold before it is known are 64 KiB of handshake (rustls's bound) and one record.

use std::{
    io::{self, ErrorKind, IoSlice, Read, Write},
    net::TcpStream,
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::{exceptions::PyValueError, prelude::*};
use rustls::{
    client::danger::HandshakeSignatureValid,
    crypto::{self, ring::default_provider, CryptoProvider},
    pki_types::{pem::PemObject, CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime},
    server::{
        danger::{ClientCertVerified, ClientCertVerifier},
        NoServerSessionStorage, WebPkiClientVerifier,
    },
    sign::{CertifiedKey, SingleCertAndKey},
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, InconsistentKeys, RootCertStore, ServerConfig,
    ServerConnection, SignatureScheme,
};

use crate::x509;

/// What to do about certificates of clients that webpki refuses and Java's servers take, by its word for it.
const REMEDIES: [(&str, &str); 2] = [
    ("UnsupportedCertVersion", "it is X.509 v1: issue it again with -extfile, as v3"),
    ("CaUsedAsEndEntity", "it says CA:TRUE, as those of authorities: issue it again with CA:FALSE"),
];

#[pyclass(frozen, module = "rockmq._core")]
pub struct Tls {
    pub shared: Arc<Context>,
}

pub struct Context {
    config: Arc<ServerConfig>,
    /// Whose certificate was refused last; handshakes come one at a time.
    refused: Arc<Mutex<Option<String>>>,
}

#[pymethods]
impl Tls {
    #[new]
    #[pyo3(signature = (chain, key, *, asks=false, requires=false, trust=None, revoked=None))]
    fn new(
        chain: &[u8],
        key: &[u8],
        asks: bool,
        requires: bool,
        trust: Option<&[u8]>,
        revoked: Option<&[u8]>,
    ) -> PyResult<Self> {
        let chain = certificates(chain, "certificate")?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| bad("private key", error))?;
        let provider = Arc::new(default_provider());
        let refused = Arc::default();
        let clients = match asks {
            true => Some(Arc::new(Clients {
                judge: trust.map(|trust| judge(&provider, trust, revoked)).transpose()?,
                requires,
                provider: Arc::clone(&provider),
                refused: Arc::clone(&refused),
            })),
            false => None,
        };
        Self::make(provider, clients, chain, key, refused).map_err(|error| bad("certificate or private key", error))
    }

    #[staticmethod]
    fn self_signed() -> PyResult<Self> {
        let (certificate, key) = x509::self_signed().map_err(|error| bad("certificate of our own", error))?;
        let key = PrivateKeyDer::Pkcs8(key.into());
        Self::make(Arc::new(default_provider()), None, vec![certificate.into()], key, Arc::default())
            .map_err(|error| bad("certificate of our own", error))
    }
}

impl Tls {
    fn make(
        provider: Arc<CryptoProvider>,
        clients: Option<Arc<Clients>>,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        refused: Arc<Mutex<Option<String>>>,
    ) -> Result<Self, Error> {
        let key = provider.key_provider.load_private_key(key)?;
        // By hand, and not by `with_single_cert`: what we show may be X.509 v1, which webpki doesn't read.
        let shown = chain.first().and_then(|certificate| x509::public_key(certificate));
        let shown = shown.ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if key.public_key().is_some_and(|own| own.as_ref() != shown) {
            return Err(InconsistentKeys::KeyMismatch.into());
        }
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = match clients {
            Some(clients) => builder.with_client_cert_verifier(clients),
            None => builder.with_no_client_auth(),
        }
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key))));
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Self { shared: Arc::new(Context { config: Arc::new(config), refused }) })
    }
}

fn certificates(pem: &[u8], what: &str) -> PyResult<Vec<CertificateDer<'static>>> {
    let found: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| bad(what, error))?;
    match found.is_empty() {
        true => Err(bad(what, "no PEM section CERTIFICATE in it")),
        false => Ok(found),
    }
}

fn judge(
    provider: &Arc<CryptoProvider>,
    trust: &[u8],
    revoked: Option<&[u8]>,
) -> PyResult<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(trust, "trusted certificate")? {
        roots.add(certificate).map_err(|error| bad("trusted certificate", error))?;
    }
    let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    if let Some(revoked) = revoked {
        let lists: Vec<_> = CertificateRevocationListDer::pem_slice_iter(revoked)
            .collect::<Result<_, _>>()
            .map_err(|error| bad("revocation list", error))?;
        if lists.is_empty() {
            return Err(bad("revocation list", "no PEM section X509 CRL in it"));
        }
        builder = builder.with_crls(lists);
    }
    builder.build().map_err(|error| bad("trusted certificate or revocation list", error))
}

fn bad(what: &str, error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{what}: {error}"))
}

/// Looks at clients' certificates.
#[derive(Debug)]
struct Clients {
    /// None believes whoever has signed them, as long as the client has the key.
    judge: Option<Arc<dyn ClientCertVerifier>>,
    requires: bool,
    provider: Arc<CryptoProvider>,
    refused: Arc<Mutex<Option<String>>>,
}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        self.requires
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.judge.as_ref().map_or(&[], |judge| judge.root_hint_subjects())
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let Some(judge) = &self.judge else { return Ok(ClientCertVerified::assertion()) };
        judge.verify_client_cert(end_entity, intermediates, now).inspect_err(|_| {
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(x509::who(end_entity));
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// One connection's TLS.
pub struct Session {
    connection: Box<ServerConnection>,
    context: Arc<Context>,
    /// Counted among the handshakes under way as long as it is here.
    handshake: Option<Arc<()>>,
    /// Bytes that are sealed, before that, and not all written.
    sealed: usize,
}

impl Session {
    pub fn new(context: &Arc<Context>, handshakes: &Arc<()>) -> Result<Self, String> {
        let connection = ServerConnection::new(Arc::clone(&context.config)).map_err(|error| error.to_string())?;
        Ok(Self {
            connection: Box::new(connection),
            context: Arc::clone(context),
            handshake: Some(Arc::clone(handshakes)),
            sealed: 0,
        })
    }

    pub fn is_handshaking(&self) -> bool {
        self.handshake.is_some()
    }

    /// Whether something is sealed and not written.
    pub fn wants_write(&self) -> bool {
        self.connection.wants_write()
    }

    pub fn sealed(&self) -> usize {
        self.sealed
    }

    /// Take what came and add to `plain` what was in it; whether the peer says that this is all.
    pub fn open(&mut self, mut data: &[u8], plain: &mut Vec<u8>) -> Result<bool, String> {
        let mut has_ended = false;
        while !data.is_empty() && !has_ended {
            self.connection.read_tls(&mut data).map_err(|error| error.to_string())?;
            let state = self.connection.process_new_packets().map_err(|error| self.refusal(&error))?;
            if !self.connection.is_handshaking() {
                self.handshake = None;
            }
            has_ended = state.peer_has_closed();
            let (begin, size) = (plain.len(), state.plaintext_bytes_to_read());
            plain.resize(begin + size, 0);
            self.connection.reader().read_exact(&mut plain[begin..]).map_err(|error| error.to_string())?;
        }
        Ok(has_ended)
    }

    fn refusal(&self, error: &Error) -> String {
        let whose = match error {
            Error::InvalidCertificate(_) => self.context.refused.lock().unwrap_or_else(PoisonError::into_inner).take(),
            _ => None,
        };
        let mut told = match whose {
            Some(whose) => format!("{error} ({whose})"),
            None => format!("TLS: {error}"),
        };
        if let (Error::InvalidCertificate(why), mut remedies) = (error, REMEDIES.iter()) {
            let why = format!("{why:?}");
            if let Some((_, remedy)) = remedies.find(|(word, _)| why.contains(word)) {
                told.push_str("; ");
                told.push_str(remedy);
            }
        }
        told
    }

    /// Seal some of `pieces`; how many bytes.
    pub fn seal(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let size = self.connection.writer().write_vectored(pieces)?;
        self.sealed += size;
        Ok(size)
    }

    /// Write what is sealed, as far as the kernel takes it.
    pub fn write(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(stream)?;
        }
        self.sealed = 0;
        Ok(())
    }

    /// Tell the peer that this is all, or what it has done wrong. It may not hear it.
    pub fn end(&mut self, stream: &mut TcpStream) {
        self.connection.send_close_notify();
        while self.connection.wants_write() {
            match self.connection.write_tls(stream) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Ok(size) if size > 0 => {}
                _ => break,
            }
        }
    }
}
