//! A client's QUIC connection over a socket. The test provides the bytes of its streams, which it
//! builds with [`crate::h3`], valid or not.

mod core;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::congestion::CubicConfig;
use quinn_proto::{ConnectionError, Dir, StreamId, VarInt};

pub use self::core::{Core, Options, Received};
use crate::DEADLINE;
use crate::h3::{self, Answer};
use crate::tls::{Abilities, Authority};

/// Maximum duration of one wait for a datagram.
const WAIT: Duration = Duration::from_millis(50);

/// A connection with the input of its streams.
pub struct Quic {
    socket: UdpSocket,
    core: Core,
}

impl Quic {
    /// Connects to `localhost` there.
    pub fn connect(to: SocketAddr, authority: &Authority) -> Self {
        let tls = authority.client(Abilities {
            alpn: vec![b"h3".to_vec()],
            ..Abilities::default()
        });
        let mut quic = Self::start(to, &tls, "localhost");
        quic.shake();
        quic
    }

    /// Starts a connection to a host of this name, with this TLS configuration, without sending
    /// anything yet.
    pub fn start(to: SocketAddr, tls: &Arc<rustls::ClientConfig>, name: &str) -> Self {
        let options = Options {
            name: name.into(),
            ..Options::new(Arc::clone(tls))
        };
        Self::with(to, options)
    }

    /// Begins to connect to `localhost`, and will send at once whatever the windows let through.
    pub fn start_hasty(to: SocketAddr, tls: &Arc<rustls::ClientConfig>) -> Self {
        let mut congestion = CubicConfig::default();
        congestion.initial_window(4 << 20);
        let mut options = Options::new(Arc::clone(tls));
        let transport = &mut options.transport;
        transport.congestion_controller_factory(Arc::new(congestion));
        // By which the library spreads over time what it sends.
        transport.initial_rtt(Duration::from_millis(1));
        Self::with(to, options)
    }

    /// Starts a connection with these options, without sending anything yet.
    pub fn with(to: SocketAddr, options: Options) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(WAIT)).expect("set");
        let core = Core::new(Instant::now(), to, options);
        Self { socket, core }
    }

    /// Waits until the handshake has completed.
    pub fn shake(&mut self) {
        self.until("the handshake", |quic| {
            quic.core.is_connected() || quic.core.lost.is_some()
        });
    }

    /// Whether bytes sent before the handshake completes are early data (RFC 9001 section 4.6).
    pub fn sends_early(&self) -> bool {
        self.core.connection.has_0rtt()
    }

    /// Whether the server has accepted the early data.
    pub fn was_taken_early(&self) -> bool {
        self.core.connection.accepted_0rtt()
    }

    /// The same, with a control stream and SETTINGS.
    pub fn begin(to: SocketAddr, authority: &Authority) -> Self {
        let mut quic = Self::connect(to, authority);
        quic.open_uni(&h3::control(&[]));
        quic
    }

    /// Opens a unidirectional stream with these bytes.
    pub fn open_uni(&mut self, bytes: &[u8]) -> StreamId {
        self.open(Dir::Uni, bytes)
    }

    /// Opens a request stream with these bytes.
    pub fn open_bi(&mut self, bytes: &[u8]) -> StreamId {
        self.open(Dir::Bi, bytes)
    }

    fn open(&mut self, dir: Dir, bytes: &[u8]) -> StreamId {
        let id = self.core.open(dir);
        let id = id.expect("the server grants more streams");
        self.write(id, bytes);
        id
    }

    /// Sends bytes on a stream.
    pub fn write(&mut self, id: StreamId, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.core.lost.is_none() {
            match self.core.write(id, bytes) {
                Ok(0) => self.step(),
                Ok(written) => bytes = &bytes[written..],
                Err(_) => return,
            }
        }
        self.flush();
    }

    /// Ends a stream.
    pub fn finish(&mut self, id: StreamId) {
        self.core.finish(id);
        self.flush();
    }

    /// Resets a stream.
    pub fn reset(&mut self, id: StreamId, code: u64) {
        self.core.reset(id, code);
        self.flush();
    }

    /// Stops a stream.
    pub fn stop(&mut self, id: StreamId, code: u64) {
        self.core.stop(id, code);
        self.flush();
    }

    /// Sends a whole request; the end of the stream is in the same datagram as its last bytes.
    pub fn ask(&mut self, bytes: &[u8]) -> StreamId {
        let id = self.core.open(Dir::Bi);
        let id = id.expect("the server grants more streams");
        let written = self.core.write(id, bytes);
        assert_eq!(written.unwrap_or(0), bytes.len(), "it fits the window");
        self.finish(id);
        id
    }

    /// Waits for the complete response on a stream.
    #[track_caller]
    pub fn answer(&mut self, id: StreamId) -> Answer {
        self.until("an answer", |quic| {
            let received = quic.core.received(id);
            quic.core.lost.is_some() || received.is_some_and(Received::is_over)
        });
        let received = self.received(id);
        assert!(received.is_finished, "{received:?}, {:?}", self.core.lost);
        Answer::parse(&received.bytes)
    }

    /// Requests a path and waits for the response, which is not held any longer.
    pub fn get(&mut self, path: &str) -> Answer {
        let id = self.ask(&h3::request("GET", path, &[]));
        let answer = self.answer(id);
        self.core.forget(id);
        answer
    }

    /// The input of a stream so far.
    pub fn received(&self, id: StreamId) -> Received {
        self.core.received(id).cloned().unwrap_or_default()
    }

    /// Whether no more bytes of a stream can arrive.
    pub fn is_over(&self, id: StreamId) -> bool {
        let received = self.core.received(id);
        self.is_lost() || received.is_some_and(Received::is_over)
    }

    /// The bytes of the server's first unidirectional stream so far.
    pub fn control(&self) -> Vec<u8> {
        self.core.control().to_vec()
    }

    /// Waits until the server closes the connection, and returns its error code.
    #[track_caller]
    pub fn closed_with(&mut self) -> u64 {
        self.until("the connection's end", |quic| quic.core.lost.is_some());
        match &self.core.lost {
            Some(ConnectionError::ApplicationClosed(close)) => close.error_code.into_inner(),
            other => panic!("closed in another way: {other:?}"),
        }
    }

    /// Waits until the server closes the connection for an error of QUIC or TLS, and returns its code
    /// (RFC 9000 section 20.1).
    #[track_caller]
    pub fn failed_with(&mut self) -> u64 {
        self.until("the connection's end", |quic| quic.core.lost.is_some());
        match &self.core.lost {
            Some(ConnectionError::ConnectionClosed(close)) => close.error_code.into(),
            other => panic!("closed in another way: {other:?}"),
        }
    }

    /// Whether the connection is lost, as far as is known.
    pub fn is_lost(&self) -> bool {
        self.core.lost.is_some()
    }

    /// Waits until the server resets a stream, and returns its error code.
    #[track_caller]
    pub fn reset_with(&mut self, id: StreamId) -> u64 {
        self.until("a reset", |quic| {
            let received = quic.core.received(id);
            quic.core.lost.is_some() || received.is_some_and(|it| it.reset.is_some())
        });
        let received = self.received(id);
        received
            .reset
            .unwrap_or_else(|| panic!("{:?}", self.core.lost))
    }

    /// Whether the server has sent an ACK_FREQUENCY frame.
    pub fn was_asked_for_fewer_acknowledgements(&self) -> bool {
        self.core.connection.stats().frame_rx.ack_frequency > 0
    }

    /// Changes the client's port, as a NAT does that has lost its state, and sends something from
    /// there: a client that only reads would wait for packets sent to the old port.
    pub fn rebind(&mut self) {
        self.socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        self.socket.set_read_timeout(Some(WAIT)).expect("set");
        self.core.connection.ping();
    }

    /// Opens a stream and sends bytes on it, as far as the windows go, without the first datagram;
    /// nothing if the connection has ended.
    pub fn send_but_first(&mut self, bytes: &[u8]) {
        let Some(id) = self.core.open(Dir::Bi) else {
            return;
        };
        // What does not fit is not sent.
        let _ = self.core.write(id, bytes);
        let (socket, mut is_first) = (&self.socket, true);
        self.core.transmit(Instant::now(), |to, bytes, _| {
            if !std::mem::take(&mut is_first) {
                let _ = socket.send_to(bytes, to);
            }
        });
    }

    /// Sends something that never arrives: another machine has caught it, and sends it to `to`. Returns
    /// that machine's socket.
    pub fn caught(&mut self, to: SocketAddr) -> UdpSocket {
        let catcher = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        self.core.connection.ping();
        self.core.transmit(Instant::now(), |_, bytes, _| {
            catcher.send_to(bytes, to).expect("sent");
        });
        catcher
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("bound")
    }

    /// Sends a raw datagram.
    pub fn send_raw(&self, to: SocketAddr, bytes: &[u8]) {
        self.socket.send_to(bytes, to).expect("sent");
    }

    /// Continues until a condition holds.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !is_so(self) {
            assert!(Instant::now() < end, "{what}: {:?}", self.core.lost);
            self.step();
        }
    }

    /// Sends pending datagrams, and processes those that arrive within [`WAIT`].
    fn step(&mut self) {
        self.flush();
        let mut buffer = [0; 65_536];
        if let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
            let now = Instant::now();
            self.core.receive(now, from, 0, &buffer[..len]);
        }
        self.core.handle_time(Instant::now());
        self.flush();
    }

    /// Sends pending datagrams.
    pub fn flush(&mut self) {
        self.core.read(usize::MAX);
        let socket = &self.socket;
        self.core.transmit(Instant::now(), |to, bytes, _| {
            // Lost datagrams are retransmitted.
            let _ = socket.send_to(bytes, to);
        });
    }
}

impl Drop for Quic {
    /// Says goodbye, as clients that end do: a server that stops would wait for one that is merely gone.
    fn drop(&mut self) {
        let code = VarInt::from_u32(h3::NO_ERROR as u32);
        (self.core.connection).close(Instant::now(), code, Default::default());
        self.flush();
    }
}
