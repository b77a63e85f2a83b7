//! A QUIC connection of a client over a socket: the bytes of its streams are up to the test, which
//! makes them with [`h3`](crate::h3), well-formed or not.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint,
    EndpointConfig, Event, ReadError, StreamEvent, StreamId, TransportConfig, VarInt, WriteError,
};

use crate::DEADLINE;
use crate::h3::{self, Answer};
use crate::tls::{Abilities, Authority};

/// How long one wait for a datagram lasts, at most.
const WAIT: Duration = Duration::from_millis(50);

/// A connection, with what has come on its streams.
pub struct Quic {
    socket: UdpSocket,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    connection: Connection,
    streams: BTreeMap<u64, Received>,
    is_connected: bool,
    /// How it has ended, if it has.
    pub lost: Option<ConnectionError>,
}

/// What has come on a stream.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Nothing more will come.
    pub is_finished: bool,
    /// The peer has reset it, with this code.
    pub reset: Option<u64>,
    /// The peer wants no more of what is sent, and says so with this code.
    pub stopped: Option<u64>,
}

impl Quic {
    /// Connects to `localhost` there.
    pub fn connect(to: SocketAddr, authority: &Authority) -> Self {
        let tls = authority.client(Abilities {
            alpn: vec![b"h3".to_vec()],
            ..Abilities::default()
        });
        let crypto = QuicClientConfig::try_from(tls).expect("TLS 1.3 with AES-128-GCM");
        let mut config = ClientConfig::new(Arc::new(crypto));
        let mut transport = TransportConfig::default();
        transport.max_concurrent_uni_streams(VarInt::from_u32(8));
        config.transport_config(Arc::new(transport));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(WAIT)).expect("set");
        let mut endpoint = Endpoint::new(Arc::new(EndpointConfig::default()), None, false, None);
        let connected = endpoint.connect(Instant::now(), config, to, "localhost");
        let (handle, connection) = connected.expect("a valid name");
        let mut quic = Self {
            socket,
            endpoint,
            handle,
            connection,
            streams: BTreeMap::new(),
            is_connected: false,
            lost: None,
        };
        quic.until("the handshake", |quic| {
            quic.is_connected || quic.lost.is_some()
        });
        quic
    }

    /// The same with a control stream and settings, as clients begin.
    pub fn begin(to: SocketAddr, authority: &Authority) -> Self {
        let mut quic = Self::connect(to, authority);
        quic.open_uni(&h3::control(&[]));
        quic
    }

    /// Opens a unidirectional stream with these bytes.
    pub fn open_uni(&mut self, bytes: &[u8]) -> StreamId {
        self.open(Dir::Uni, bytes)
    }

    /// Opens a request's stream with these bytes.
    pub fn open_bi(&mut self, bytes: &[u8]) -> StreamId {
        self.open(Dir::Bi, bytes)
    }

    fn open(&mut self, dir: Dir, bytes: &[u8]) -> StreamId {
        let id = self.connection.streams().open(dir);
        let id = id.expect("the server grants more streams");
        self.write(id, bytes);
        id
    }

    /// Sends bytes on a stream.
    pub fn write(&mut self, id: StreamId, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.lost.is_none() {
            match self.connection.send_stream(id).write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(WriteError::Blocked) => self.step(),
                Err(WriteError::Stopped(_) | WriteError::ClosedStream) => return,
            }
        }
        self.flush();
    }

    /// Ends a stream.
    pub fn finish(&mut self, id: StreamId) {
        // The server may have stopped it.
        let _ = self.connection.send_stream(id).finish();
        self.flush();
    }

    /// Resets a stream.
    pub fn reset(&mut self, id: StreamId, code: u64) {
        let code = VarInt::from_u64(code).expect("a code");
        let _ = self.connection.send_stream(id).reset(code);
        self.flush();
    }

    /// Wants no more of a stream.
    pub fn stop(&mut self, id: StreamId, code: u64) {
        let code = VarInt::from_u64(code).expect("a code");
        let _ = self.connection.recv_stream(id).stop(code);
        self.flush();
    }

    /// Sends a whole request, whose end comes with its last bytes.
    pub fn ask(&mut self, bytes: &[u8]) -> StreamId {
        let id = self.connection.streams().open(Dir::Bi);
        let id = id.expect("the server grants more streams");
        let written = self.connection.send_stream(id).write(bytes);
        assert_eq!(written.unwrap_or(0), bytes.len(), "it fits the window");
        self.finish(id);
        id
    }

    /// The answer on a stream, whole.
    #[track_caller]
    pub fn answer(&mut self, id: StreamId) -> Answer {
        let number = u64::from(id);
        self.until("an answer", |quic| {
            let received = quic.streams.get(&number);
            quic.lost.is_some() || received.is_some_and(|it| it.is_finished || it.reset.is_some())
        });
        let received = self.received(id);
        assert!(received.is_finished, "{received:?}, {:?}", self.lost);
        Answer::parse(&received.bytes)
    }

    /// The answer to a request for a path.
    pub fn get(&mut self, path: &str) -> Answer {
        let id = self.ask(&h3::request("GET", path, &[]));
        self.answer(id)
    }

    /// What has come on a stream so far.
    pub fn received(&self, id: StreamId) -> Received {
        let received = self.streams.get(&u64::from(id));
        received.cloned().unwrap_or_default()
    }

    /// What has come on the server's first unidirectional stream so far.
    pub fn control(&self) -> Vec<u8> {
        let first = self.streams.iter().find(|(id, _)| *id & 3 == 3);
        first.map_or_else(Vec::new, |(_, received)| received.bytes.clone())
    }

    /// The code with which the server has closed the connection, once it has.
    #[track_caller]
    pub fn closed_with(&mut self) -> u64 {
        self.until("the connection's end", |quic| quic.lost.is_some());
        match &self.lost {
            Some(ConnectionError::ApplicationClosed(close)) => close.error_code.into_inner(),
            other => panic!("closed in another way: {other:?}"),
        }
    }

    /// The code with which the server has reset a stream, once it has.
    #[track_caller]
    pub fn reset_with(&mut self, id: StreamId) -> u64 {
        let number = u64::from(id);
        self.until("a reset", |quic| {
            let received = quic.streams.get(&number);
            quic.lost.is_some() || received.is_some_and(|it| it.reset.is_some())
        });
        let received = self.received(id);
        received.reset.unwrap_or_else(|| panic!("{:?}", self.lost))
    }

    /// The client gets another port, as behind a NAT that has forgotten it.
    pub fn rebind(&mut self) {
        self.socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        self.socket.set_read_timeout(Some(WAIT)).expect("set");
    }

    /// Sends a datagram as it is.
    pub fn send_raw(&self, to: SocketAddr, bytes: &[u8]) {
        self.socket.send_to(bytes, to).expect("sent");
    }

    /// Goes on until something is so.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !is_so(self) {
            assert!(Instant::now() < end, "{what}: {:?}", self.lost);
            self.step();
        }
    }

    /// Sends what is to be sent, and takes what comes in a moment.
    fn step(&mut self) {
        self.flush();
        let mut buffer = [0; 65_536];
        if let Ok((len, from)) = self.socket.recv_from(&mut buffer) {
            let mut reply = Vec::new();
            let bytes = BytesMut::from(&buffer[..len]);
            let now = Instant::now();
            let endpoint = &mut self.endpoint;
            let event = endpoint.handle(now, from, None, None, bytes, &mut reply);
            if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
                self.connection.handle_event(event);
            }
        }
        self.connection.handle_timeout(Instant::now());
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(event) = self.connection.poll() {
            self.event(event);
        }
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            let transmit = self
                .connection
                .poll_transmit(Instant::now(), 1, &mut buffer);
            let Some(transmit) = transmit else { return };
            // What is lost is sent again.
            let _ = self
                .socket
                .send_to(&buffer[..transmit.size], transmit.destination);
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected => self.is_connected = true,
            Event::ConnectionLost { reason } => self.lost = Some(reason),
            Event::Stream(StreamEvent::Opened { dir }) => {
                while let Some(id) = self.connection.streams().accept(dir) {
                    self.read(id);
                }
            }
            Event::Stream(StreamEvent::Readable { id }) => self.read(id),
            Event::Stream(StreamEvent::Stopped { id, error_code }) => {
                let received = self.streams.entry(u64::from(id)).or_default();
                received.stopped = Some(error_code.into_inner());
            }
            _ => {}
        }
    }

    fn read(&mut self, id: StreamId) {
        let received = self.streams.entry(u64::from(id)).or_default();
        let mut stream = self.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else {
            return;
        };
        loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => received.bytes.extend_from_slice(&chunk.bytes),
                Ok(None) => {
                    received.is_finished = true;
                    return;
                }
                Err(ReadError::Blocked) => return,
                Err(ReadError::Reset(code)) => {
                    received.reset = Some(code.into_inner());
                    return;
                }
            }
        }
    }
}
