//! A connection to a server: TCP, with TLS for https URLs. It blocks; each has a thread.
//!
//! Without TLS, the kernel discards unwanted bytes without copying them.

use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gannet_io::cause::cause;
use gannet_io::named_file;
use rustix::net::{RecvFlags, recv};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{UnbufferedClientConnection, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::Version;
use super::limits::{DISCARD_LEN, READ_LEN, SILENCE_S, TLS_STATES_MAX};
use super::url::Url;

/// Where distributions keep the certificates they trust.
const SYSTEM_ROOTS: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The most bytes that are read of a file of certificates; a system's has a quarter of a million.
const ROOTS_LEN_MAX: u64 = 16 << 20;

/// Bytes that sealing adds to a request.
const SEAL_MAX: usize = 64;

/// The TLS settings of new connections.
#[derive(Clone, Debug)]
pub struct Tls {
    pub(super) config: Arc<ClientConfig>,
    /// Why a certificate was rejected: QUIC's library keeps only the text.
    pub(super) refusal: Arc<OnceLock<rustls::Error>>,
}

impl Tls {
    /// For connections that trust `cacert` alone, the system's certificates, or any (`insecure`).
    ///
    /// # Errors
    /// What cannot be read, in words.
    pub fn new(insecure: bool, cacert: Option<&Path>, version: Version) -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = match insecure {
            true => None,
            false => {
                let roots = Arc::new(roots(cacert)?);
                let chain = WebPkiServerVerifier::builder_with_provider(roots, provider.clone());
                Some(chain.build().map_err(|e| e.to_string())?)
            }
        };
        let refusal = Arc::default();
        let verifier = Verifier {
            provider: provider.clone(),
            chain,
            refusal: Arc::clone(&refusal),
        };
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| e.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![version.alpn().to_vec()];
        let config = Arc::new(config);
        Ok(Self { config, refusal })
    }
}

fn roots(cacert: Option<&Path>) -> Result<RootCertStore, String> {
    let system = || {
        SYSTEM_ROOTS
            .map(Path::new)
            .into_iter()
            .find(|path| path.exists())
    };
    let Some(path) = cacert.or_else(system) else {
        return Err("this machine has no trusted certificates".into());
    };
    let shown = path.display();
    let pem = named_file::read(path, ROOTS_LEN_MAX)
        .map_err(|error| format!("'{shown}': {}", cause(&error)))?;
    let mut roots = RootCertStore::empty();
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
        .filter_map(Result::ok)
        .collect();
    let (added, _) = roots.add_parsable_certificates(certificates);
    match added {
        0 => Err(format!("'{shown}' contains no PEM certificate")),
        _ => Ok(roots),
    }
}

/// A connection.
pub struct Transport {
    socket: TcpStream,
    tls: Option<Box<UnbufferedClientConnection>>,
    /// What has been received; with TLS it is still sealed.
    buffer: Vec<u8>,
    filled: usize,
    outgoing: Vec<u8>,
    /// Content that TLS has decrypted and that was not taken yet.
    opened: Vec<u8>,
    is_open: bool,
    is_closed: bool,
}

impl Transport {
    /// Connects to the server of `url`, and shakes hands where that is due.
    ///
    /// # Errors
    /// Of the name, the connection or TLS.
    pub fn connect(url: &Url, tls: Option<&Tls>) -> io::Result<Self> {
        let addresses = (url.host.as_str(), url.port).to_socket_addrs()?;
        let timeout = Duration::from_secs(SILENCE_S);
        let mut result = Err(io::Error::other("the name has no address"));
        for address in addresses {
            result = TcpStream::connect_timeout(&address, timeout);
            if result.is_ok() {
                break;
            }
        }
        let socket = result?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(timeout))?;
        socket.set_write_timeout(Some(timeout))?;
        let tls = match tls {
            None => None,
            Some(tls) => {
                let name = ServerName::try_from(url.host.clone()).map_err(io::Error::other)?;
                let client = UnbufferedClientConnection::new(tls.config.clone(), name);
                Some(Box::new(client.map_err(io::Error::other)?))
            }
        };
        let mut transport = Self {
            socket,
            tls,
            buffer: vec![0; READ_LEN],
            filled: 0,
            outgoing: Vec::new(),
            opened: Vec::new(),
            is_open: false,
            is_closed: false,
        };
        if transport.tls.is_some() {
            transport.open_records(&mut |_| Ok(()))?;
            while !transport.is_open {
                transport.fill()?;
                transport.keep_opened()?;
            }
        }
        Ok(transport)
    }

    /// The protocol that TLS agreed on.
    pub(super) fn alpn(&self) -> Option<&[u8]> {
        self.tls.as_ref()?.alpn_protocol()
    }

    /// Whether TCP ended without TLS having ended: more may have been meant to come.
    pub(super) fn is_cut(&self) -> bool {
        self.tls.is_some() && !self.is_closed
    }

    /// Sends `bytes`.
    ///
    /// # Errors
    /// Of the connection.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(tls) = self.tls.as_mut() else {
            return self.socket.write_all(bytes);
        };
        let UnbufferedStatus { state, .. } = tls.process_tls_records(&mut []);
        let ConnectionState::WriteTraffic(mut traffic) = state.map_err(io::Error::other)? else {
            return Err(io::Error::other("TLS cannot send now"));
        };
        self.outgoing.resize(bytes.len() + SEAL_MAX, 0);
        let sealed = traffic.encrypt(bytes, &mut self.outgoing);
        let len = sealed.map_err(io::Error::other)?;
        let sent = self.socket.write_all(&self.outgoing[..len]);
        self.outgoing.clear();
        sent
    }

    /// Receives once and gives what came to `take`; false at the end of the stream.
    ///
    /// # Errors
    /// Of the connection, of TLS, and those of `take`.
    pub fn receive(&mut self, take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<bool> {
        if !self.opened.is_empty() {
            let opened = std::mem::take(&mut self.opened);
            return take(&opened).map(|()| true);
        }
        if self.is_closed {
            return Ok(false);
        }
        let more = self.fill()?;
        if self.tls.is_some() {
            self.open_records(take)?;
        } else {
            take(&self.buffer[..self.filled])?;
            self.filled = 0;
        }
        // TCP's end without TLS's is a cut: only a length can tell that nothing is missing.
        Ok(more)
    }

    /// Throws away up to `len` bytes, and says how many; 0 at the end. `None` with TLS, where
    /// bytes have to be opened.
    ///
    /// # Errors
    /// Of the connection.
    pub(super) fn discard(&mut self, len: u64) -> Option<io::Result<u64>> {
        if self.tls.is_some() {
            return None;
        }
        self.buffer.resize(DISCARD_LEN, 0);
        let want = usize::try_from(len).unwrap_or(usize::MAX).min(DISCARD_LEN);
        let buffer = &mut self.buffer;
        loop {
            match recv(&self.socket, &mut buffer[..want], RecvFlags::TRUNC) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Some(Err(silence())),
                Err(e) => return Some(Err(e.into())),
                Ok((_, count)) => return Some(Ok(count as u64)),
            }
        }
    }

    /// Receives behind what is there; false at the end.
    fn fill(&mut self) -> io::Result<bool> {
        loop {
            match recv(
                &self.socket,
                &mut self.buffer[self.filled..],
                RecvFlags::empty(),
            ) {
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => return Err(silence()),
                Err(e) => return Err(e.into()),
                Ok((_, 0)) if self.tls.is_some() && !self.is_open => {
                    return Err(io::Error::other("closed in the TLS handshake"));
                }
                Ok((_, count)) => {
                    self.filled += count;
                    return Ok(count > 0);
                }
            }
        }
    }

    /// Opens records that came with the handshake's last and keeps their content.
    fn keep_opened(&mut self) -> io::Result<()> {
        let mut opened = std::mem::take(&mut self.opened);
        let result = self.open_records(&mut |bytes| {
            opened.extend_from_slice(bytes);
            Ok(())
        });
        self.opened = opened;
        result
    }

    /// Opens every whole record that is there, and sends what TLS has to send.
    fn open_records(&mut self, take: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let Some(tls) = self.tls.as_mut() else {
            return Ok(());
        };
        let mut used = 0;
        for _ in 0..TLS_STATES_MAX {
            let UnbufferedStatus { mut discard, state } =
                tls.process_tls_records(&mut self.buffer[used..self.filled]);
            let goes_on = match state.map_err(io::Error::other)? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(io::Error::other)?;
                        discard += record.discard;
                        take(record.payload)?;
                    }
                    true
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    let at = self.outgoing.len();
                    // Asked without room, it says how much it needs.
                    if let Err(EncodeError::InsufficientSize(e)) = data.encode(&mut []) {
                        self.outgoing.resize(at + e.required_size, 0);
                        let encoded = data.encode(&mut self.outgoing[at..]);
                        encoded.map_err(io::Error::other)?;
                    }
                    true
                }
                ConnectionState::TransmitTlsData(data) => {
                    self.socket.write_all(&self.outgoing)?;
                    self.outgoing.clear();
                    data.done();
                    true
                }
                ConnectionState::WriteTraffic(_) => {
                    self.is_open = true;
                    false
                }
                ConnectionState::PeerClosed => {
                    self.is_closed = true;
                    true
                }
                _ => false,
            };
            used += discard;
            if !goes_on {
                break;
            }
        }
        self.buffer.copy_within(used..self.filled, 0);
        self.filled -= used;
        if self.filled == self.buffer.len() {
            return Err(io::Error::other("a TLS record is too long"));
        }
        Ok(())
    }
}

/// The error if nothing has been received for too long.
pub(super) fn silence() -> io::Error {
    let message = format!("nothing arrived for {SILENCE_S} s");
    io::Error::new(io::ErrorKind::TimedOut, message)
}

/// Verifies a certificate, and that the handshake was signed with its key.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None` accepts any certificate.
    chain: Option<Arc<WebPkiServerVerifier>>,
    /// Stores the reason of a rejection for the caller.
    refusal: Arc<OnceLock<rustls::Error>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(chain) = &self.chain else {
            return Ok(ServerCertVerified::assertion());
        };
        let result = chain.verify_server_cert(end_entity, intermediates, name, ocsp, now);
        result.inspect_err(|error| {
            self.refusal.get_or_init(|| error.clone());
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}
