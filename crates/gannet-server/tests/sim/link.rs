//! The client side of a QUIC connection over the simulated network.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gannet_io::driver::Nanos;
use gannet_io::sim::{DatagramClient, SimHandle};
use gannet_testkit::h3;
use gannet_testkit::quic::{Core, Options};
use quinn_proto::{Dir, StreamId, TransportConfig, VarInt};
use rustls::ClientConfig;

/// The address to which the server's socket is bound: every interface.
pub(crate) const BOUND: &str = "0.0.0.0:443";

/// The address at which clients reach it.
pub(crate) fn server_address() -> SocketAddr {
    SocketAddr::new([192, 0, 2, 1].into(), 443)
}

/// The address of a client that has moved this many times.
pub(crate) fn client_address(number: u16, moves: u8) -> SocketAddr {
    SocketAddr::new([198, 51, 100, 1 + moves].into(), 1_024 + number)
}

/// The parameters of a client's connection.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    /// Determines its address; unique per client.
    pub(crate) number: u16,
    pub(crate) seed: u64,
    /// Flow-control windows in bytes, of a stream and of the connection.
    pub(crate) windows: (u32, u32),
}

impl Opening {
    /// A client with large windows.
    pub(crate) fn new(number: u16) -> Self {
        Self {
            number,
            seed: u64::from(number),
            windows: (1 << 20, 4 << 20),
        }
    }
}

/// A client's QUIC connection.
pub(crate) struct Link {
    pub(crate) core: Core,
    pub(crate) socket: DatagramClient,
    disk: SimHandle,
    /// The library's time at the start of the simulation.
    start: Instant,
    number: u16,
    moves: u8,
    /// The first datagram that was sent.
    pub(crate) first: Vec<u8>,
    /// The server's connection ID in packets sent after the handshake.
    pub(crate) server_id: Vec<u8>,
}

impl Link {
    /// Starts a connection and sends its first datagram.
    pub(crate) fn connect(disk: &SimHandle, tls: &Arc<ClientConfig>, opening: &Opening) -> Self {
        Self::connect_with(disk, tls, opening, |_| {})
    }

    /// The same, with other transport settings.
    pub(crate) fn connect_with(
        disk: &SimHandle,
        tls: &Arc<ClientConfig>,
        opening: &Opening,
        choose: impl FnOnce(&mut TransportConfig),
    ) -> Self {
        let mut tls = ClientConfig::clone(tls);
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let mut options = Options::new(Arc::new(tls));
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&opening.seed.to_le_bytes());
        options.seed = Some(seed);
        options.finds_mtu = true;
        let (stream, connection) = opening.windows;
        options
            .transport
            .stream_receive_window(VarInt::from_u32(stream))
            .receive_window(VarInt::from_u32(connection));
        choose(&mut options.transport);
        let start = Instant::now();
        let now = at(start, disk.now());
        let mut link = Self {
            core: Core::new(now, server_address(), options),
            socket: disk.datagram_client(client_address(opening.number, 0)),
            disk: disk.clone(),
            start,
            number: opening.number,
            moves: 0,
            first: Vec::new(),
            server_id: Vec::new(),
        };
        link.step();
        link
    }

    /// Receives datagrams, handles timers, and sends.
    pub(crate) fn step(&mut self) {
        let now = at(self.start, self.disk.now());
        while let Some(arrived) = self.socket.receive() {
            self.core
                .receive(now, arrived.from, arrived.ecn, &arrived.bytes);
        }
        self.step_deaf();
    }

    /// Handles timers, and sends; what arrives is not read.
    pub(crate) fn step_deaf(&mut self) {
        let now = at(self.start, self.disk.now());
        if self.core.deadline().is_some_and(|at| at <= now) {
            self.core.handle_time(now);
        }
        self.send();
    }

    /// Sends pending datagrams.
    pub(crate) fn send(&mut self) {
        let now = at(self.start, self.disk.now());
        let (socket, server_id) = (&self.socket, &mut self.server_id);
        let first = &mut self.first;
        self.core.transmit(now, |to, bytes, ecn| {
            if first.is_empty() {
                *first = bytes.to_vec();
            }
            if bytes[0] & 0x80 == 0 {
                *server_id = bytes[1..11].to_vec();
            }
            socket.send(to, bytes, ecn);
        });
    }

    /// The library's next timer.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        let at = self.core.deadline()?;
        let since = at.saturating_duration_since(self.start);
        Some(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Changes the client's address, as a NAT does that has lost its state.
    pub(crate) fn rebind(&mut self) {
        self.moves += 1;
        self.socket.rebind(client_address(self.number, self.moves));
    }

    /// Opens a stream with these bytes, and ends it if `is_fin`. `None` while the server permits no
    /// more streams.
    pub(crate) fn open(&mut self, dir: Dir, bytes: &[u8], is_fin: bool) -> Option<StreamId> {
        let id = self.core.open(dir)?;
        assert_eq!(self.core.write(id, bytes), Ok(bytes.len()), "it fits");
        if is_fin {
            self.core.finish(id);
        }
        Some(id)
    }

    /// Requests a path.
    pub(crate) fn get(&mut self, path: &str) -> StreamId {
        let request = h3::request("GET", path, &[]);
        let id = self.open(Dir::Bi, &request, true);
        self.send();
        id.expect("the server grants more streams")
    }

    /// Closes the connection.
    pub(crate) fn close(&mut self) {
        let now = at(self.start, self.disk.now());
        let code = VarInt::from_u64(h3::NO_ERROR).expect("a code");
        self.core.connection.close(now, code, Vec::new().into());
        self.send();
    }
}

fn at(start: Instant, now: Nanos) -> Instant {
    start + Duration::from_nanos(now.0)
}
