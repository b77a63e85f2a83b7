//! The client side of a connection, without a socket: datagrams and time in, datagrams and stream
//! bytes out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::BytesMut;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, EcnCodepoint,
    Endpoint, EndpointConfig, Event, ReadError, StreamEvent, StreamId, TransportConfig, VarInt,
    WriteError,
};

/// The options of a connection.
#[derive(Debug)]
pub struct Options {
    /// The client's TLS configuration, with ALPN.
    pub tls: Arc<rustls::ClientConfig>,
    /// The name of the server.
    pub name: String,
    /// Windows, timeouts, and the library's other settings.
    pub transport: TransportConfig,
    /// Seeds the library's random choices. The cryptography still draws random bytes, always of the
    /// same length.
    pub seed: Option<[u8; 32]>,
    /// Enables discovery of the path's MTU.
    pub finds_mtu: bool,
}

impl Options {
    /// The default options: the server is `localhost` and may open eight unidirectional streams.
    pub fn new(tls: Arc<rustls::ClientConfig>) -> Self {
        let mut transport = TransportConfig::default();
        transport.max_concurrent_uni_streams(VarInt::from_u32(8));
        Self {
            tls,
            name: "localhost".into(),
            transport,
            seed: None,
            finds_mtu: false,
        }
    }
}

/// The client side of a connection.
pub struct Core {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    /// The library's connection, for operations that have no method here.
    pub connection: Connection,
    streams: BTreeMap<u64, Received>,
    /// Streams with unread bytes.
    readable: BTreeSet<StreamId>,
    is_connected: bool,
    /// Why the connection was lost, if it was.
    pub lost: Option<ConnectionError>,
}

/// The input of a stream.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// All bytes were received.
    pub is_finished: bool,
    /// The peer has reset it, with this code.
    pub reset: Option<u64>,
    /// The peer has stopped our direction of it, with this code.
    pub stopped: Option<u64>,
}

impl Received {
    /// Whether no more bytes can arrive: it has finished or was reset.
    pub fn is_over(&self) -> bool {
        self.is_finished || self.reset.is_some()
    }
}

impl Core {
    /// Starts a connection to the server at this address; its first datagram is ready to be sent.
    pub fn new(now: Instant, to: SocketAddr, options: Options) -> Self {
        let tls = QuicClientConfig::try_from(options.tls).expect("TLS 1.3 with AES-128-GCM");
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(options.transport));
        let mut endpoint = EndpointConfig::default();
        endpoint.rng_seed(options.seed);
        let mut endpoint = Endpoint::new(Arc::new(endpoint), None, options.finds_mtu, None);
        let connected = endpoint.connect(now, config, to, &options.name);
        let (handle, connection) = connected.expect("a valid name");
        Self {
            endpoint,
            handle,
            connection,
            streams: BTreeMap::new(),
            readable: BTreeSet::new(),
            is_connected: false,
            lost: None,
        }
    }

    /// Whether the handshake has completed.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Processes a received datagram.
    pub fn receive(&mut self, now: Instant, from: SocketAddr, ecn: u8, bytes: &[u8]) {
        let mut reply = Vec::new();
        let (bytes, ecn) = (BytesMut::from(bytes), EcnCodepoint::from_bits(ecn));
        let endpoint = &mut self.endpoint;
        let event = endpoint.handle(now, from, None, ecn, bytes, &mut reply);
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.connection.handle_event(event);
        }
        self.take_events();
    }

    /// Handles the timers that have expired.
    pub fn handle_time(&mut self, now: Instant) {
        self.connection.handle_timeout(now);
        self.take_events();
    }

    /// The next timer.
    pub fn deadline(&mut self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    /// Passes all datagrams that may be sent now to `send`: destination, bytes, ECN bits.
    pub fn transmit(&mut self, now: Instant, mut send: impl FnMut(SocketAddr, &[u8], u8)) {
        self.take_events();
        let mut buffer = Vec::new();
        while let Some(transmit) = self.connection.poll_transmit(now, 1, &mut buffer) {
            let ecn = transmit.ecn.map_or(0, |ecn| ecn as u8);
            send(transmit.destination, &buffer[..transmit.size], ecn);
            buffer.clear();
        }
    }

    /// Opens a stream; `None` while the server permits no more of them.
    pub fn open(&mut self, dir: Dir) -> Option<StreamId> {
        self.connection.streams().open(dir)
    }

    /// Writes as many of `bytes` as the windows permit, and returns how many.
    ///
    /// # Errors
    /// If the server has stopped the stream.
    pub fn write(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, WriteError> {
        match self.connection.send_stream(id).write(bytes) {
            Err(WriteError::Blocked) => Ok(0),
            written => written,
        }
    }

    /// Ends a stream.
    pub fn finish(&mut self, id: StreamId) {
        // The server may have stopped it.
        let _ = self.connection.send_stream(id).finish();
    }

    /// Resets a stream.
    pub fn reset(&mut self, id: StreamId, code: u64) {
        let code = VarInt::from_u64(code).expect("a code");
        let _ = self.connection.send_stream(id).reset(code);
    }

    /// Stops a stream.
    pub fn stop(&mut self, id: StreamId, code: u64) {
        let code = VarInt::from_u64(code).expect("a code");
        let _ = self.connection.recv_stream(id).stop(code);
    }

    /// Reads up to `most` available bytes of all streams; returns how many were read.
    pub fn read(&mut self, most: usize) -> usize {
        let mut left = most;
        while let Some(id) = self.next_readable() {
            if !self.read_stream(id, &mut left) {
                break;
            }
            self.readable.remove(&id);
        }
        most - left
    }

    /// The next stream to read: unidirectional streams before responses, because the first response
    /// may always have more bytes than are read at once.
    fn next_readable(&self) -> Option<StreamId> {
        let control = self.readable.iter().find(|id| id.dir() == Dir::Uni);
        control.or_else(|| self.readable.first()).copied()
    }

    /// Reads the available bytes of a stream, up to the limit. Returns whether these were all.
    fn read_stream(&mut self, id: StreamId, left: &mut usize) -> bool {
        let received = self.streams.entry(u64::from(id)).or_default();
        let mut stream = self.connection.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else {
            return true;
        };
        while *left > 0 {
            match chunks.next(*left) {
                Ok(Some(chunk)) => {
                    *left -= chunk.bytes.len();
                    received.bytes.extend_from_slice(&chunk.bytes);
                    continue;
                }
                Ok(None) => received.is_finished = true,
                Err(ReadError::Blocked) => {}
                Err(ReadError::Reset(code)) => received.reset = Some(code.into_inner()),
            }
            return true;
        }
        false
    }

    /// The input read from a stream so far.
    pub fn received(&self, id: StreamId) -> Option<&Received> {
        self.streams.get(&u64::from(id))
    }

    /// The same, mutable.
    pub fn received_mut(&mut self, id: StreamId) -> Option<&mut Received> {
        self.streams.get_mut(&u64::from(id))
    }

    /// Forgets the input of a stream.
    pub fn forget(&mut self, id: StreamId) {
        self.streams.remove(&u64::from(id));
    }

    /// The bytes read from the server's first unidirectional stream so far.
    pub fn control(&self) -> &[u8] {
        let first = self.streams.iter().find(|(id, _)| *id & 3 == 3);
        first.map_or(&[], |(_, received)| &received.bytes)
    }

    fn take_events(&mut self) {
        while let Some(event) = self.connection.poll() {
            self.event(event);
        }
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Connected => self.is_connected = true,
            // What is said of it later is no news.
            Event::ConnectionLost { reason } => _ = self.lost.get_or_insert(reason),
            Event::Stream(StreamEvent::Opened { dir }) => {
                while let Some(id) = self.connection.streams().accept(dir) {
                    self.readable.insert(id);
                }
            }
            Event::Stream(StreamEvent::Readable { id }) => {
                self.readable.insert(id);
            }
            Event::Stream(StreamEvent::Stopped { id, error_code }) => {
                let received = self.streams.entry(u64::from(id)).or_default();
                received.stopped = Some(error_code.into_inner());
            }
            _ => {}
        }
    }
}
