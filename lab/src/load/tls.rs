//! The TLS half of the load client: pinned to one version, group and cipher for every server.
//!
//! TLS 1.3, X25519 and AES-128-GCM, so that servers do not differ by what they prefer. The server
//! must present the very certificate of the run. Its signature is checked before a measurement and
//! not within one: that work would be the client's alone, and it has less time than the server.
//!
//! It shares no code with the client of `gannet get`, which drives the same library in much the same
//! way: what measures a program must not have its faults.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result};
use rustls::{
    CipherSuite, ClientConfig, Error, HandshakeKind, NamedGroup,
    client::{
        ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue,
        UnbufferedClientConnection,
    },
    crypto::aws_lc_rs,
    pki_types::ServerName,
    unbuffered::{ConnectionState, EncodeError, UnbufferedStatus},
};

use super::LoadError;
use crate::same_certificate::SameCertificate;

/// Tickets kept: more than any scenario has connections at a time.
const TICKETS_MAX: usize = 1024;
/// Bytes that sealing adds to a request at most: header, content type and tag of one record.
const SEAL_MAX: usize = 5 + 1 + 16;
/// Longest time slice of states without new input: a handshake has fewer than ten.
const STATES_MAX: usize = 100_000;

/// What every TLS connection of a run has in common.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// For servers that present `certificate` (DER). `resume`: connections resume earlier ones.
    /// `check`: the handshake's signature is verified.
    ///
    /// # Errors
    ///
    /// When the TLS library refuses the settings.
    pub(crate) fn new(certificate: &[u8], resume: bool, check: bool) -> Result<Self> {
        let mut provider = aws_lc_rs::default_provider();
        provider
            .cipher_suites
            .retain(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
        provider
            .kx_groups
            .retain(|group| group.name() == NamedGroup::X25519);
        let provider = Arc::new(provider);
        let verifier = SameCertificate::new(certificate, Arc::clone(&provider), check);
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .context("TLS settings")?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.enable_early_data = false;
        config.resumption = if resume {
            Resumption::store(Arc::new(Tickets(Mutex::new(Vec::new()))))
        } else {
            Resumption::disabled()
        };
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// The same for HTTP/3.
    pub(crate) fn for_quic(&self) -> Arc<ClientConfig> {
        let mut config = ClientConfig::clone(&self.config);
        config.alpn_protocols = vec![b"h3".to_vec()];
        Arc::new(config)
    }
}

/// One TLS connection: bytes in, content out, and bytes to be sent.
pub(crate) struct Session {
    connection: UnbufferedClientConnection,
    /// The beginning of a record whose end has not arrived.
    pub(crate) partial: Vec<u8>,
    /// What must be sent.
    pub(crate) outgoing: Vec<u8>,
    /// Whether requests can be sealed.
    pub(crate) is_open: bool,
    /// Whether the server has said that it sends no more.
    pub(crate) is_closed: bool,
}

impl Session {
    /// Begins a handshake: its first bytes are in `outgoing`.
    pub(crate) fn new(tls: &Tls) -> Result<Self, LoadError> {
        let name = ServerName::try_from("localhost").expect("a valid name");
        let connection = UnbufferedClientConnection::new(tls.config.clone(), name)
            .map_err(|e| LoadError::Client(format!("TLS: {e}")))?;
        let mut session = Self {
            connection,
            partial: Vec::new(),
            outgoing: Vec::new(),
            is_open: false,
            is_closed: false,
        };
        session.receive(&mut [], &mut |_| Ok(()))?;
        Ok(session)
    }

    /// Whether the handshake resumed an earlier connection.
    pub(crate) fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Takes records from `input` and gives their content to `content`; returns how many bytes of
    /// `input` were used.
    pub(crate) fn receive(
        &mut self,
        input: &mut [u8],
        content: &mut dyn FnMut(&[u8]) -> Result<(), LoadError>,
    ) -> Result<usize, LoadError> {
        let mut used = 0;
        for _ in 0..STATES_MAX {
            let UnbufferedStatus { mut discard, state } =
                self.connection.process_tls_records(&mut input[used..]);
            let goes_on = match state.map_err(tls_error)? {
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record.map_err(tls_error)?;
                        discard += record.discard;
                        content(record.payload)?;
                    }
                    true
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    let at = self.outgoing.len();
                    // Asked without room, it says how much it needs.
                    if let Err(EncodeError::InsufficientSize(e)) = data.encode(&mut []) {
                        self.outgoing.resize(at + e.required_size, 0);
                        data.encode(&mut self.outgoing[at..])
                            .map_err(|e| LoadError::Client(format!("TLS: {e}")))?;
                    }
                    true
                }
                ConnectionState::TransmitTlsData(data) => {
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
                return Ok(used);
            }
        }
        Err(LoadError::Client("TLS makes no progress".into()))
    }

    /// Seals `request` behind what is to be sent.
    pub(crate) fn seal(&mut self, request: &[u8]) -> Result<(), LoadError> {
        let UnbufferedStatus { state, .. } = self.connection.process_tls_records(&mut []);
        let ConnectionState::WriteTraffic(mut traffic) = state.map_err(tls_error)? else {
            return Err(LoadError::Client("TLS cannot send a request".into()));
        };
        let at = self.outgoing.len();
        self.outgoing.resize(at + request.len() + SEAL_MAX, 0);
        let len = traffic
            .encrypt(request, &mut self.outgoing[at..])
            .map_err(|e| LoadError::Client(format!("TLS: {e}")))?;
        self.outgoing.truncate(at + len);
        Ok(())
    }
}

fn tls_error(error: Error) -> LoadError {
    LoadError::Tls(error.to_string())
}

/// The tickets of one server, last in first out: each is used once.
struct Tickets(Mutex<Vec<Tls13ClientSessionValue>>);

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets")
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, _: NamedGroup) {}

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        None
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tickets.len() < TICKETS_MAX {
            tickets.push(value);
        }
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        let mut tickets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tickets.pop()
    }
}
