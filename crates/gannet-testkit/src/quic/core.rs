//! A client's side of a connection without a socket: datagrams and time in, datagrams and bytes of
//! streams out.

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

/// What a connection begins with.
#[derive(Debug)]
pub struct Options {
    /// The client's side of TLS, with ALPN.
    pub tls: Arc<rustls::ClientConfig>,
    /// The name of the server.
    pub name: String,
    /// Windows, timeouts, and what else the library lets be chosen.
    pub transport: TransportConfig,
    /// Decides what the library leaves to chance; what its cryptography draws is chance still, and of
    /// the same length each time.
    pub seed: Option<[u8; 32]>,
    /// The longest datagrams are found out by trying.
    pub finds_mtu: bool,
}

impl Options {
    /// The usual ones: the server is `localhost`, eight unidirectional streams may be opened by the server.
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

/// See the module's description.
pub struct Core {
    endpoint: Endpoint,
    handle: ConnectionHandle,
    /// The library's connection, for what is not done here.
    pub connection: Connection,
    streams: BTreeMap<u64, Received>,
    /// Streams on which something has come that was not read.
    readable: BTreeSet<StreamId>,
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

impl Received {
    /// Whether nothing more will come, whole or not.
    pub fn is_over(&self) -> bool {
        self.is_finished || self.reset.is_some()
    }
}

impl Core {
    /// A connection to the server there, whose first datagram is ready to be sent.
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

    /// Whether the handshake is over.
    pub fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// A datagram has come.
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

    /// What is due is done.
    pub fn handle_time(&mut self, now: Instant) {
        self.connection.handle_timeout(now);
        self.take_events();
    }

    /// When something is due next.
    pub fn deadline(&mut self) -> Option<Instant> {
        self.connection.poll_timeout()
    }

    /// Gives all datagrams that may leave now to `send`: destination, bytes, ECN bits.
    pub fn transmit(&mut self, now: Instant, mut send: impl FnMut(SocketAddr, &[u8], u8)) {
        self.take_events();
        let mut buffer = Vec::new();
        while let Some(transmit) = self.connection.poll_transmit(now, 1, &mut buffer) {
            let ecn = transmit.ecn.map_or(0, |ecn| ecn as u8);
            send(transmit.destination, &buffer[..transmit.size], ecn);
            buffer.clear();
        }
    }

    /// Opens a stream; `None` while the server grants no more of them.
    pub fn open(&mut self, dir: Dir) -> Option<StreamId> {
        self.connection.streams().open(dir)
    }

    /// Writes the beginning of `bytes`; gives how many the windows allow.
    ///
    /// # Errors
    /// When the server wants no more of it.
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

    /// Wants no more of a stream.
    pub fn stop(&mut self, id: StreamId, code: u64) {
        let code = VarInt::from_u64(code).expect("a code");
        let _ = self.connection.recv_stream(id).stop(code);
    }

    /// Reads up to `most` bytes of what has come, on any stream; gives how many that were.
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

    /// The stream to be read next: control streams before answers, of which the first may have more
    /// than is ever read at once.
    fn next_readable(&self) -> Option<StreamId> {
        let control = self.readable.iter().find(|id| id.dir() == Dir::Uni);
        control.or_else(|| self.readable.first()).copied()
    }

    /// Reads all that has come on a stream, if so much may be read. Whether that was all.
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

    /// What has come on a stream so far, as far as it was read.
    pub fn received(&self, id: StreamId) -> Option<&Received> {
        self.streams.get(&u64::from(id))
    }

    /// The same, to be taken from.
    pub fn received_mut(&mut self, id: StreamId) -> Option<&mut Received> {
        self.streams.get_mut(&u64::from(id))
    }

    /// What has come on the server's first unidirectional stream so far.
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
            Event::ConnectionLost { reason } => self.lost = Some(reason),
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
