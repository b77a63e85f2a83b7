//! A QUIC connection (RFC 9000): a blocking socket and a sans-I/O library. Each connection has its
//! own thread.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use gannet_http::h3::ErrorCode;
use gannet_io::cause::cause;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, IdleTimeout, ReadError, StreamEvent, StreamId, TransportConfig,
    TransportErrorCode, VarInt,
};
use rustix::net::{RecvFlags, recv, sockopt};
use rustls::AlertDescription;

use super::binary::protocol_error;
use super::error::no_http3;
use super::limits::{
    DATAGRAM_MAX, DATAGRAMS_AT_ONCE, QUIC_WINDOW, SILENCE_S, SOCKET_BUFFER, UDP_ANSWER_S,
};
use super::transport::{Tls, silence};
use super::url::Url;

/// The transport error that carries TLS's alert of this number (RFC 9001 section 4.8).
const ALERTS: u64 = 0x100;
/// The TLS alert for ALPN without a common protocol (RFC 7301 section 3.2).
const NO_APPLICATION_PROTOCOL: u64 = ALERTS + 120;

/// The settings of new connections.
fn config(tls: &Tls) -> io::Result<ClientConfig> {
    let crypto = QuicClientConfig::try_from(tls.config.clone()).map_err(io::Error::other)?;
    let mut config = ClientConfig::new(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    let idle = Duration::from_secs(SILENCE_S);
    transport
        .stream_receive_window(VarInt::from_u32(QUIC_WINDOW))
        .receive_window(VarInt::from_u32(QUIC_WINDOW))
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(8))
        .datagram_receive_buffer_size(None)
        .max_idle_timeout(IdleTimeout::try_from(idle).ok());
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// A connection.
pub(super) struct Quic {
    socket: UdpSocket,
    address: SocketAddr,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    refusal: Arc<OnceLock<rustls::Error>>,
    is_connected: bool,
    /// When to give up if no datagram has arrived until then; `None` once one has.
    answer_by: Option<Instant>,
    lost: Option<ConnectionError>,
    buffer: Vec<u8>,
    outgoing: Vec<u8>,
}

/// The result of [`Quic::read`].
pub(super) enum Read {
    /// Bytes, which were passed to the caller.
    Bytes,
    /// The end of the stream.
    End,
}

impl Quic {
    /// Connects to the server of `url` and completes the handshake; tries its addresses in order.
    ///
    /// # Errors
    /// If the name cannot be resolved, the network fails, the certificate is refused, or the server
    /// does not speak HTTP/3. With several addresses, the error of the last one.
    pub(super) fn connect(url: &Url, tls: &Tls) -> io::Result<Self> {
        let addresses = (url.host.as_str(), url.port).to_socket_addrs()?;
        let mut result = Err(io::Error::other("the name has no address"));
        for address in addresses {
            result = Self::connect_to(address, &url.host, tls);
            if result.is_ok() {
                break;
            }
        }
        result
    }

    fn connect_to(address: SocketAddr, name: &str, tls: &Tls) -> io::Result<Self> {
        let any = match address {
            SocketAddr::V4(_) => "0.0.0.0:0",
            SocketAddr::V6(_) => "[::]:0",
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        // The kernel applies its own limit if that is smaller.
        sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER)?;
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
        let now = Instant::now();
        let connected = endpoint.connect(now, config(tls)?, address, name);
        let (handle, connection) = connected.map_err(io::Error::other)?;
        let mut quic = Self {
            socket,
            address,
            endpoint,
            handle,
            connection,
            refusal: Arc::clone(&tls.refusal),
            is_connected: false,
            answer_by: Some(now + Duration::from_secs(UDP_ANSWER_S)),
            lost: None,
            buffer: vec![0; DATAGRAM_MAX],
            outgoing: Vec::new(),
        };
        while !quic.is_connected {
            quic.step().map_err(|error| match error.kind() {
                io::ErrorKind::ConnectionRefused => no_http3(format!(
                    "no answer over UDP: {}: HTTP/3 is off there, or UDP is blocked",
                    cause(&error)
                )),
                _ => error,
            })?;
            if quic.answer_by.is_some_and(|by| by <= Instant::now()) {
                return Err(no_http3(format!(
                    "no answer over UDP for {UDP_ANSWER_S} s: HTTP/3 is off there, or UDP is \
                     blocked"
                )));
            }
        }
        Ok(quic)
    }

    /// Opens a stream and sends `bytes` on it; `ends` closes the stream after them.
    ///
    /// # Errors
    /// If the server permits no more streams, or its window is shorter than `bytes`.
    pub(super) fn open(&mut self, dir: Dir, bytes: &[u8], ends: bool) -> io::Result<StreamId> {
        let id = self.connection.streams().open(dir);
        let id = id.ok_or_else(|| io::Error::other("the server permits no request"))?;
        let mut stream = self.connection.send_stream(id);
        let written = stream.write(bytes).map_err(io::Error::other)?;
        if written < bytes.len() {
            return Err(io::Error::other("the server takes no whole request"));
        }
        if ends {
            stream.finish().map_err(io::Error::other)?;
        }
        Ok(id)
    }

    /// Waits for the next bytes of a stream and passes them to `take`.
    ///
    /// # Errors
    /// Those of the connection and of `take`, and if the server resets the stream.
    pub(super) fn read(
        &mut self,
        id: StreamId,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<Read> {
        loop {
            let mut has_come = false;
            let mut stream = self.connection.recv_stream(id);
            let Ok(mut chunks) = stream.read(true) else {
                // The end arrived with the last bytes.
                return Ok(Read::End);
            };
            let end = loop {
                match chunks.next(usize::MAX) {
                    Ok(Some(chunk)) => {
                        has_come = true;
                        take(&chunk.bytes)?;
                    }
                    end => break end,
                }
            };
            // The window update that this may require is sent in the next step.
            let _ = chunks.finalize();
            match end {
                Err(ReadError::Reset(code)) => {
                    let code = ErrorCode(code.into_inner());
                    let what = "the server reset the stream";
                    return Err(protocol_error(what, code.name(), code.0, b""));
                }
                _ if has_come => return Ok(Read::Bytes),
                Ok(_) => return Ok(Read::End),
                Err(ReadError::Blocked) => self.step()?,
            }
        }
    }

    /// Sends pending datagrams, then waits for datagrams or the library's timer.
    fn step(&mut self) -> io::Result<()> {
        self.flush()?;
        let now = Instant::now();
        let deadline = self.connection.poll_timeout().into_iter();
        let deadline = deadline.chain(self.answer_by).min();
        let wait = deadline.map(|at| at.saturating_duration_since(now));
        if wait.is_none_or(|wait| !wait.is_zero()) {
            // A timeout of zero would mean none.
            let wait = wait.unwrap_or(Duration::from_secs(SILENCE_S));
            let wait = wait.max(Duration::from_millis(1));
            self.socket.set_read_timeout(Some(wait))?;
            let mut flags = RecvFlags::empty();
            for _ in 0..DATAGRAMS_AT_ONCE {
                match recv(&self.socket, &mut self.buffer[..], flags) {
                    Ok((_, len)) => self.received(len),
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                    Err(error) => return Err(error.into()),
                }
                flags = RecvFlags::DONTWAIT;
            }
        }
        self.connection.handle_timeout(Instant::now());
        self.flush()
    }

    fn received(&mut self, len: usize) {
        self.answer_by = None;
        let bytes = BytesMut::from(&self.buffer[..len]);
        let (now, from) = (Instant::now(), self.address);
        self.outgoing.clear();
        let endpoint = &mut self.endpoint;
        let event = endpoint.handle(now, from, None, None, bytes, &mut self.outgoing);
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.connection.handle_event(event);
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        while let Some(event) = self.connection.poll() {
            match event {
                Event::Connected => self.is_connected = true,
                Event::ConnectionLost { reason } => self.lost = Some(reason),
                Event::Stream(StreamEvent::Opened { dir: Dir::Uni }) => self.ignore_opened(),
                Event::Stream(StreamEvent::Readable { id }) if id.dir() == Dir::Uni => {
                    self.ignore(id);
                }
                _ => {}
            }
        }
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        loop {
            self.outgoing.clear();
            let now = Instant::now();
            let transmit = self.connection.poll_transmit(now, 1, &mut self.outgoing);
            let Some(transmit) = transmit else { break };
            match self.socket.send(&self.outgoing[..transmit.size]) {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return Err(error);
                }
                // Lost datagrams are retransmitted.
                _ => {}
            }
        }
        match self.lost.take() {
            Some(reason) => Err(why(reason, self.refusal.get())),
            None => Ok(()),
        }
    }

    /// Reads and drops the server's own streams: its settings and GOAWAY do not concern a single
    /// request.
    fn ignore_opened(&mut self) {
        while let Some(id) = self.connection.streams().accept(Dir::Uni) {
            self.ignore(id);
        }
    }

    fn ignore(&mut self, id: StreamId) {
        let mut stream = self.connection.recv_stream(id);
        if let Ok(mut chunks) = stream.read(true) {
            while let Ok(Some(_)) = chunks.next(usize::MAX) {}
            let _ = chunks.finalize();
        }
    }
}

/// The error message for a lost connection.
fn why(reason: ConnectionError, refusal: Option<&rustls::Error>) -> io::Error {
    let of_transport = |what, code: TransportErrorCode, words: &[u8]| {
        let number = u64::from(code);
        if number == NO_APPLICATION_PROTOCOL {
            return no_http3("the server does not speak HTTP/3".into());
        }
        let name = match number {
            0..ALERTS => format!("{code:?}"),
            _ => format!("CRYPTO_ERROR, {:?}", AlertDescription::from(number as u8)),
        };
        protocol_error(what, &name, number, words)
    };
    let closed = "the server closed the connection";
    match (reason, refusal) {
        (ConnectionError::TransportError(_), Some(refusal)) => io::Error::other(refusal.clone()),
        (ConnectionError::TransportError(error), None) => {
            of_transport("the connection failed", error.code, error.reason.as_bytes())
        }
        (ConnectionError::ConnectionClosed(close), _) => {
            of_transport(closed, close.error_code, &close.reason)
        }
        (ConnectionError::ApplicationClosed(close), _) => {
            let code = ErrorCode(close.error_code.into_inner());
            protocol_error(closed, code.name(), code.0, &close.reason)
        }
        (ConnectionError::VersionMismatch, _) => {
            no_http3("the server does not speak version 1 of QUIC".into())
        }
        (ConnectionError::Reset, _) => io::ErrorKind::ConnectionReset.into(),
        (ConnectionError::TimedOut, _) => silence(),
        (reason, _) => io::Error::other(reason),
    }
}

impl Drop for Quic {
    fn drop(&mut self) {
        let code = VarInt::from_u32(ErrorCode::NO_ERROR.0 as u32);
        self.connection
            .close(Instant::now(), code, bytes::Bytes::new());
        // If the datagram is lost, the server's idle timeout ends the connection.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use quinn_proto::{ApplicationClose, ConnectionClose};

    use super::*;

    #[test]
    fn errors_have_their_registered_names() {
        let check = |reason, expect: &str| assert_eq!(why(reason, None).to_string(), expect);
        let application = |code| {
            ConnectionError::ApplicationClosed(ApplicationClose {
                error_code: VarInt::from_u32(code),
                reason: "enough".into(),
            })
        };
        let closed = "the server closed the connection: ";
        let expect = format!("{closed}H3_EXCESSIVE_LOAD (0x107): enough");
        check(application(0x107), &expect);
        check(
            application(0x4242),
            &format!("{closed}UNKNOWN (0x4242): enough"),
        );
        let transport = |error_code| {
            ConnectionError::ConnectionClosed(ConnectionClose {
                error_code,
                frame_type: None,
                reason: "".into(),
            })
        };
        let refused = TransportErrorCode::CONNECTION_REFUSED;
        check(
            transport(refused),
            &format!("{closed}CONNECTION_REFUSED (0x2)"),
        );
        let alert = TransportErrorCode::crypto(40);
        let expect = format!("{closed}CRYPTO_ERROR, HandshakeFailure (0x128)");
        check(transport(alert), &expect);
        let violation = TransportErrorCode::PROTOCOL_VIOLATION.into();
        let expect = "the connection failed: PROTOCOL_VIOLATION (0xa)";
        check(ConnectionError::TransportError(violation), expect);
        let unspoken = TransportErrorCode::crypto(120);
        check(transport(unspoken), "the server does not speak HTTP/3");
    }
}
