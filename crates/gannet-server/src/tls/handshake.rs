//! A TLS handshake: bytes in, bytes out, until both sides have keys.
//!
//! ```text
//!            a whole ClientHello                finished
//!   Hello ─────────────────────▶ Running ───────────────────▶ Over (a Session has the keys)
//!     │  ▲                         │
//!     │  └── held: its certificate is coming
//!     ├── HTTP in clear ───────────┼──▶ Over: the caller answers in clear
//!     └── malformed, timed out ────┴──▶ Over: the alert is in the output
//! ```
//!
//! The certificate is chosen from the ClientHello before the TLS library gets any input, so a peer
//! that only opens a connection costs nothing but the bytes it sent. The step from Hello to Running
//! is expensive (a key exchange and a signature: about 100 µs with ECDSA, several times that with
//! RSA): a worker limits the number of these per turn.

use std::fmt;
use std::mem;

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{AlertDescription, Error, NamedGroup, ProtocolVersion};

use super::alert::Alert;
use super::certificates::{CertificateSet, Without};
use super::clients::Demand;
use super::config::{AlpnProtocol, secrets_of};
use super::hello::{self, Look};
use super::negotiated::{self, Negotiated};
use super::record::ContentType;
use super::record::aead::TlsVersion;
use super::session::Session;
use crate::bounds::tls::{
    CIPHERTEXT_MAX_TLS12, CLIENT_HELLO_MAX, HANDSHAKE_INPUT_MAX, HANDSHAKE_STEPS_MAX,
    RECORD_HEADER_LEN,
};

/// See the module documentation.
#[derive(Default)]
pub struct Handshake {
    state: HandshakeState,
    /// Received and not yet used.
    input: Vec<u8>,
    /// The part of it passed to the library, in whole records. The library leaves records that it
    /// drops (rejected early data) in its input, and counts them on each call.
    shown: usize,
    server_name: Option<Box<str>>,
    early: Vec<u8>,
    plain: Vec<u8>,
    is_closed: bool,
    /// Output was produced.
    has_spoken: bool,
    /// Whether the client is asked for a certificate, and needs it.
    demand: Option<Demand>,
    /// The first hello has chosen the certificate of a challenge, which needs none of the client. No
    /// content is sent after that, whatever protocol a second hello offers.
    is_challenge: bool,
    /// The hello is whole, and the certificate for its name is coming.
    is_held: bool,
}

#[derive(Default)]
enum HandshakeState {
    #[default]
    Hello,
    Running(Box<UnbufferedServerConnection>),
    Over,
}

/// The result of received bytes.
#[derive(Debug)]
#[must_use]
pub enum Step {
    /// More input is needed (after sending the output, if any).
    NeedInput,
    /// The certificate for the name is coming: call [`Handshake::receive`] again when certificates were
    /// replaced, without more input than that, or [`Handshake::refuse`].
    Held,
    /// Finished.
    Done(Box<Established>),
}

/// The result of a handshake.
#[derive(Debug)]
pub struct Established {
    /// The connection, ready for both directions.
    pub session: Session,
    /// The protocol to speak.
    pub protocol: AlpnProtocol,
    /// The name requested by the client, in lower case, whether there is a certificate for it or
    /// not.
    pub server_name: Option<Box<str>>,
    /// The certificate that the client has shown (DER), verified.
    pub client_certificate: Option<Box<[u8]>>,
    /// The kind of handshake, for counters.
    pub kind: HandshakeKind,
    /// Version and cipher suite.
    pub negotiated: Option<&'static Negotiated>,
    /// The group of the key exchange, as the registry spells it.
    pub group: &'static str,
    /// Early data (0-RTT) not taken by [`Handshake::take_early`]. With the handshake finished, it
    /// cannot be a replay any more.
    pub early: Vec<u8>,
    /// Plaintext that arrived with the end of the handshake.
    pub plain: Vec<u8>,
    /// Ciphertext after it: input for [`Session::receive`].
    pub rest: Vec<u8>,
    /// The peer has already sent `close_notify`.
    pub is_closed: bool,
}

/// The kind of a handshake.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HandshakeKind {
    /// With a certificate.
    Full,
    /// With a certificate, after a HelloRetryRequest.
    FullWithRetry,
    /// Resumed from a ticket or a stored session.
    Resumed,
}

/// Why a handshake failed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// The client speaks HTTP in clear text: there is no output, and these are the bytes received
    /// so far.
    ClearHttp(Vec<u8>),
    /// The peer violated the protocol, or no common parameters exist. The alert is in the output.
    Ours {
        /// The alert for the peer.
        alert: Alert,
        /// For the log.
        why: String,
    },
    /// The peer aborted with this alert (`unknown_ca`, `bad_certificate`, ...).
    Peers(Alert),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClearHttp(_) => f.write_str("clear_http"),
            Self::Ours { alert, why } => write!(f, "alert_sent={alert} why={why:?}"),
            Self::Peers(alert) => write!(f, "alert_received={alert}"),
        }
    }
}

impl Handshake {
    /// Bytes received and not yet used.
    pub(crate) fn held_bytes(&self) -> usize {
        self.input.capacity() + self.early.capacity() + self.plain.capacity()
    }

    /// A handshake before any input.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the next call of [`receive`](Self::receive) may be expensive: the ClientHello has
    /// not been processed, or the client's certificate not been verified.
    #[must_use]
    pub fn is_costly(&self) -> bool {
        self.is_at_hello() || self.demand.is_some()
    }

    /// Whether it waits for a certificate: the last step was [`Step::Held`].
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Ends a handshake that is held; the alert is in `out`.
    pub fn refuse(&mut self, out: &mut Vec<u8>) -> Failure {
        self.is_held = false;
        self.fail_without(Without::Awaited, out)
    }

    /// Fails because there is no certificate for the client.
    fn fail_without(&mut self, without: Without, out: &mut Vec<u8>) -> Failure {
        let (alert, why) = match without {
            Without::Coming | Without::Awaited => (
                Alert::UNRECOGNIZED_NAME,
                "there is no certificate for the name yet",
            ),
            Without::Unknown => (
                Alert::UNRECOGNIZED_NAME,
                "no site has the name, or no authority issues certificates for it",
            ),
            Without::Nameless => (
                Alert::MISSING_EXTENSION,
                "the client sends no name, and no certificate is the default one",
            ),
        };
        self.fail(alert, why, out)
    }

    fn is_at_hello(&self) -> bool {
        matches!(self.state, HandshakeState::Hello)
    }

    /// Takes received bytes, cut anywhere, and appends bytes to send to `out`.
    ///
    /// # Errors
    /// [`Failure`]; send the contents of `out`, then close.
    pub fn receive(
        &mut self,
        certificates: &CertificateSet,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, Failure> {
        self.input.extend_from_slice(input);
        if self.is_at_hello() {
            match hello::look(&self.input) {
                Look::NeedInput if self.input.len() <= 2 * CLIENT_HELLO_MAX => {
                    return Ok(Step::NeedInput);
                }
                Look::NeedInput => return Err(self.fail(Alert::DECODE_ERROR, "too long", out)),
                Look::ClearHttp => {
                    self.state = HandshakeState::Over;
                    return Err(Failure::ClearHttp(mem::take(&mut self.input)));
                }
                // The library would report missing TLS 1.2 extensions before it checks the version.
                Look::Hello(hello) if hello.is_outdated => {
                    let why = "the client speaks TLS 1.1 or older";
                    return Err(self.fail(Alert::PROTOCOL_VERSION, why, out));
                }
                Look::Hello(hello) => self.start(certificates, hello, out)?,
                Look::Overlong => {
                    return Err(self.fail(Alert::RECORD_OVERFLOW, "a record is too long", out));
                }
                Look::Other => self.start(certificates, hello::Hello::default(), out)?,
            }
        }
        if self.is_held {
            return Ok(Step::Held);
        }
        if self.input.len() > HANDSHAKE_INPUT_MAX {
            return Err(self.fail(Alert::UNEXPECTED_MESSAGE, "too much input", out));
        }
        let HandshakeState::Running(mut connection) =
            mem::replace(&mut self.state, HandshakeState::Over)
        else {
            return Ok(Step::NeedInput);
        };
        let start = out.len();
        if !self.has_new_record() {
            self.state = HandshakeState::Running(connection);
            return Ok(Step::NeedInput);
        }
        match self.drive(&mut connection, out) {
            Ok(false) => {
                self.has_spoken |= out.len() > start;
                self.state = HandshakeState::Running(connection);
                Ok(Step::NeedInput)
            }
            Ok(true) => self.establish(*connection, out).map(Step::Done),
            Err(error) => {
                let is_silent = !self.has_spoken && out.len() == start;
                Err(explain(error, &mut connection, is_silent, out))
            }
        }
    }

    /// Takes received early data (0-RTT), decrypted. An attacker on the path may have recorded and
    /// replayed it, within the limits of the session store: only safe methods may be answered
    /// before the handshake is finished (RFC 8470 section 3).
    pub fn take_early(&mut self) -> Vec<u8> {
        mem::take(&mut self.early)
    }

    /// Whether there is early data that was not taken.
    #[must_use]
    pub fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// The negotiated protocol, available once our side of the handshake has been output.
    #[must_use]
    pub fn protocol(&self) -> AlpnProtocol {
        match &self.state {
            HandshakeState::Running(connection) => self.protocol_of(connection),
            HandshakeState::Hello | HandshakeState::Over => AlpnProtocol::Http11,
        }
    }

    /// What both sides have agreed on, once they have.
    pub fn negotiated(&self) -> Option<&'static Negotiated> {
        match &self.state {
            HandshakeState::Running(connection) => negotiated::of(connection),
            HandshakeState::Hello | HandshakeState::Over => None,
        }
    }

    /// Encrypts a response to early data before the client has finished. False if that is
    /// impossible (no longer, or without early data): then the response waits for [`Step::Done`].
    pub fn encrypt_early(&mut self, pieces: &[&[u8]], out: &mut Vec<u8>) -> bool {
        let plain = pieces.concat();
        self.write_early(out, |traffic, room| traffic.encrypt(&plain, room))
    }

    /// Encrypts `close_notify` after responses to early data, as
    /// [`encrypt_early`](Self::encrypt_early) does; false if that is impossible.
    pub fn end_early(&mut self, out: &mut Vec<u8>) -> bool {
        self.write_early(out, |traffic, room| traffic.queue_close_notify(room))
    }

    fn write_early(
        &mut self,
        out: &mut Vec<u8>,
        mut write: impl FnMut(
            &mut WriteTraffic<'_, ServerConnectionData>,
            &mut [u8],
        ) -> Result<usize, EncryptError>,
    ) -> bool {
        let HandshakeState::Running(connection) = &mut self.state else {
            return false;
        };
        if connection.wants_write() {
            return false;
        }
        let UnbufferedStatus { discard, state } = connection.process_tls_records(&mut self.input);
        let mut is_encrypted = false;
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) = state {
            let start = out.len();
            if let Err(EncryptError::InsufficientSize(need)) = write(&mut traffic, &mut []) {
                out.resize(start + need.required_size, 0);
                let written = write(&mut traffic, &mut out[start..]).unwrap_or(0);
                out.truncate(start + written);
                is_encrypted = written > 0;
            }
        }
        self.discard(discard);
        is_encrypted
    }

    /// Whether there is a record that the library has not been given, or the start of an invalid
    /// one, which it rejects.
    fn has_new_record(&mut self) -> bool {
        let before = self.shown;
        loop {
            let rest = &self.input[self.shown..];
            let Some(header) = rest.first_chunk::<RECORD_HEADER_LEN>() else {
                return self.shown > before || !matches!(rest.first(), None | Some(20..=23));
            };
            let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
            let is_possible = matches!(header[..2], [20..=23, 3]) && len <= CIPHERTEXT_MAX_TLS12;
            if !is_possible {
                return true;
            }
            if rest.len() < RECORD_HEADER_LEN + len {
                return self.shown > before;
            }
            self.shown += RECORD_HEADER_LEN + len;
        }
    }

    /// Removes used input.
    fn discard(&mut self, len: usize) {
        self.input.drain(..len);
        self.shown = self.shown.saturating_sub(len);
    }

    fn start(
        &mut self,
        certificates: &CertificateSet,
        hello: hello::Hello,
        out: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        self.is_held = false;
        let name = hello.server_name.as_deref();
        // Without a challenge, the library refuses the protocol.
        let challenge = name.filter(|_| hello.is_challenge);
        let challenge = challenge.and_then(|name| certificates.challenges().of(name));
        let config = match challenge {
            Some(config) => {
                self.is_challenge = true;
                config
            }
            None => {
                let host = match certificates.choose(name) {
                    Ok(host) => host,
                    Err(Without::Coming) if !hello.is_challenge => {
                        self.is_held = true;
                        return Ok(());
                    }
                    Err(without) => return Err(self.fail_without(without, out)),
                };
                self.demand = certificates.client_demand();
                host.choose(hello.prefers_chacha)
            }
        };
        self.server_name = hello.server_name;
        let connection = UnbufferedServerConnection::new(config).map_err(|error| {
            self.state = HandshakeState::Over;
            Failure::Ours {
                alert: Alert::INTERNAL_ERROR,
                why: error.to_string(),
            }
        })?;
        self.state = HandshakeState::Running(Box::new(connection));
        Ok(())
    }

    /// Fails with a clear-text alert, before any keys exist.
    fn fail(&mut self, alert: Alert, why: &str, out: &mut Vec<u8>) -> Failure {
        if !self.has_spoken {
            put_clear(alert, out);
        }
        self.state = HandshakeState::Over;
        Failure::Ours {
            alert,
            why: why.into(),
        }
    }

    /// Lets the library process the input. True when the handshake is finished.
    fn drive(
        &mut self,
        connection: &mut UnbufferedServerConnection,
        out: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        for _ in 0..HANDSHAKE_STEPS_MAX {
            // The library must not be called without the input that it has already inspected,
            // unless it has output: that comes first, and inspects no input.
            let input = match (connection.is_handshaking(), connection.wants_write()) {
                (true, _) => &mut self.input[..],
                (false, true) => &mut [],
                // Input after the handshake belongs to our own record layer.
                (false, false) => return Ok(true),
            };
            let UnbufferedStatus { discard, state } = connection.process_tls_records(input);
            let (mut is_waiting, mut is_writable) = (false, false);
            match state? {
                ConnectionState::EncodeTlsData(data) => encode(data, out),
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::ReadEarlyData(mut data) => {
                    while let Some(record) = data.next_record() {
                        self.early.extend_from_slice(record?.payload);
                    }
                }
                ConnectionState::ReadTraffic(mut data) => {
                    while let Some(record) = data.next_record() {
                        self.plain.extend_from_slice(record?.payload);
                    }
                }
                ConnectionState::PeerClosed | ConnectionState::Closed => self.is_closed = true,
                // Finished, or early data may be answered while the client has not finished.
                ConnectionState::WriteTraffic(_) => is_writable = true,
                _ => is_waiting = true,
            }
            self.discard(discard);
            if self.is_closed && connection.is_handshaking() {
                // Closed during the handshake: the peer has aborted.
                return Err(Error::AlertReceived(AlertDescription::CloseNotify));
            }
            if is_waiting || (is_writable && connection.is_handshaking()) {
                return Ok(false);
            }
        }
        Err(Error::General("the handshake makes no progress".into()))
    }

    fn protocol_of(&self, connection: &UnbufferedServerConnection) -> AlpnProtocol {
        match connection.alpn_protocol() {
            _ if self.is_challenge => AlpnProtocol::Challenge,
            Some(b"h2") => AlpnProtocol::H2,
            _ => AlpnProtocol::Http11,
        }
    }

    fn establish(
        &mut self,
        connection: UnbufferedServerConnection,
        out: &mut Vec<u8>,
    ) -> Result<Box<Established>, Failure> {
        let internal = |why: &str| Failure::Ours {
            alert: Alert::INTERNAL_ERROR,
            why: why.into(),
        };
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => TlsVersion::Tls13,
            Some(ProtocolVersion::TLSv1_2) => TlsVersion::Tls12,
            _ => return Err(internal("no version")),
        };
        let protocol = self.protocol_of(&connection);
        let kind = match connection.handshake_kind() {
            Some(rustls::HandshakeKind::Resumed) => HandshakeKind::Resumed,
            Some(rustls::HandshakeKind::FullWithHelloRetryRequest) => HandshakeKind::FullWithRetry,
            _ => HandshakeKind::Full,
        };
        let group = connection
            .negotiated_key_exchange_group()
            .map(|group| group.name());
        let negotiated = negotiated::of(&connection);
        let chain = connection.peer_certificates().unwrap_or_default();
        let is_required = self.demand == Some(Demand::Required);
        debug_assert!(!is_required || !chain.is_empty(), "required");
        let chain_bytes = chain.iter().map(|one| one.len()).sum();
        let client_certificate = chain.first().map(|leaf| leaf.as_ref().into());
        let (secrets, keys) = connection
            .dangerous_into_kernel_connection()
            .map_err(|error| internal(&error.to_string()))?;
        let ours = |(sequence, secrets): &(u64, _)| {
            secrets_of(*sequence, secrets).ok_or_else(|| internal("an unknown cipher"))
        };
        let (tx, rx) = (ours(&secrets.tx)?, ours(&secrets.rx)?);
        // In TLS 1.3 the client finishes last: our remaining output (tickets) can wait for the
        // first response. In TLS 1.2 the client waits for our `Finished`.
        let waiting = if version == TlsVersion::Tls13 {
            mem::take(out)
        } else {
            Vec::new()
        };
        Ok(Box::new(Established {
            session: Session::new(version, tx, rx, keys, chain_bytes, waiting),
            protocol,
            server_name: self.server_name.take(),
            client_certificate,
            kind,
            negotiated,
            group: group.map_or("none", group_name),
            early: mem::take(&mut self.early),
            plain: mem::take(&mut self.plain),
            rest: mem::take(&mut self.input),
            is_closed: self.is_closed,
        }))
    }
}

/// Appends a record that the library has ready.
fn encode<Side>(mut data: EncodeTlsData<'_, Side>, out: &mut Vec<u8>) {
    let start = out.len();
    if let Err(EncodeError::InsufficientSize(need)) = data.encode(&mut []) {
        out.resize(start + need.required_size, 0);
        let written = data.encode(&mut out[start..]).unwrap_or(0);
        out.truncate(start + written);
    }
}

/// Converts an error of the library to ours, with its alert in the output.
///
/// `is_silent`: there was no output before, so an alert can still be sent in clear text.
fn explain(
    error: Error,
    connection: &mut UnbufferedServerConnection,
    is_silent: bool,
    out: &mut Vec<u8>,
) -> Failure {
    if let Error::AlertReceived(alert) = error {
        return Failure::Peers(Alert(u8::from(alert)));
    }
    let start = out.len();
    // The library queues the alert before it returns the error. It is called only while it has
    // output: see `drive`.
    while connection.wants_write() {
        match connection.process_tls_records(&mut []).state {
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, out),
            Ok(ConnectionState::ReadTraffic(mut data)) => while data.next_record().is_some() {},
            Ok(ConnectionState::ReadEarlyData(mut data)) => while data.next_record().is_some() {},
            _ => break,
        }
    }
    let mut alert = likely_alert(&error);
    match out.get(start..) {
        // In clear text: this is the alert actually sent.
        Some([CLEAR_ALERT, 3, _, 0, 2, _, description]) => alert = Alert(*description),
        Some([]) if is_silent => put_clear(alert, out),
        _ => {}
    }
    Failure::Ours {
        alert,
        why: error.to_string(),
    }
}

const CLEAR_ALERT: u8 = ContentType::Alert as u8;

/// An alert record for a peer without common keys.
fn put_clear(alert: Alert, out: &mut Vec<u8>) {
    out.extend_from_slice(&[CLEAR_ALERT, 3, 3, 0, 2]);
    out.extend_from_slice(&alert.content());
}

/// The alert for an error, used when the library has encrypted the one it sent.
fn likely_alert(error: &Error) -> Alert {
    match error {
        Error::InvalidMessage(_) => Alert::DECODE_ERROR,
        Error::NoCertificatesPresented => Alert::CERTIFICATE_REQUIRED,
        Error::InvalidCertificate(why) => Alert(u8::from(AlertDescription::from(why.clone()))),
        Error::DecryptError => Alert::BAD_RECORD_MAC,
        Error::PeerSentOversizedRecord => Alert::RECORD_OVERFLOW,
        Error::NoApplicationProtocol => Alert::NO_APPLICATION_PROTOCOL,
        Error::PeerIncompatible(_) => Alert::HANDSHAKE_FAILURE,
        Error::PeerMisbehaved(_) => Alert::ILLEGAL_PARAMETER,
        Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            Alert::UNEXPECTED_MESSAGE
        }
        _ => Alert::INTERNAL_ERROR,
    }
}

/// The registry's name of an offered group.
fn group_name(group: NamedGroup) -> &'static str {
    match group {
        NamedGroup::X25519MLKEM768 => "X25519MLKEM768",
        NamedGroup::X25519 => "x25519",
        NamedGroup::secp256r1 => "secp256r1",
        NamedGroup::secp384r1 => "secp384r1",
        _ => "other",
    }
}
