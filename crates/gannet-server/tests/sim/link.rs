//! A connection of QUIC over the simulated network, its client's side.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gannet_io::driver::Nanos;
use gannet_io::sim::{DatagramClient, SimHandle};
use gannet_testkit::h3;
use gannet_testkit::quic::{Core, Options};
use quinn_proto::{Dir, StreamId, TransportConfig, VarInt};
use rustls::ClientConfig;

/// What the server's socket is bound to: every address.
pub(crate) const BOUND: &str = "0.0.0.0:443";

/// Where clients reach it.
pub(crate) fn server_address() -> SocketAddr {
    SocketAddr::new([192, 0, 2, 1].into(), 443)
}

/// Where a client is that has moved so many times.
pub(crate) fn client_address(number: u16, moves: u8) -> SocketAddr {
    SocketAddr::new([198, 51, 100, 1 + moves].into(), 1_024 + number)
}

/// How a client's connection begins.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    /// Decides where it is; no two clients have the same.
    pub(crate) number: u16,
    pub(crate) seed: u64,
    /// Bytes that the server may send ahead on a stream, and on all of them.
    pub(crate) windows: (u32, u32),
}

impl Opening {
    /// A client that reads whatever comes.
    pub(crate) fn new(number: u16) -> Self {
        Self {
            number,
            seed: u64::from(number),
            windows: (1 << 20, 4 << 20),
        }
    }
}

/// See the module's description.
pub(crate) struct Link {
    pub(crate) core: Core,
    pub(crate) socket: DatagramClient,
    disk: SimHandle,
    /// The library's time at the simulation's beginning.
    start: Instant,
    number: u16,
    moves: u8,
    /// The first datagram that was sent.
    pub(crate) first: Vec<u8>,
    /// The server's connection ID in the packets that are sent behind the handshake.
    pub(crate) server_id: Vec<u8>,
}

impl Link {
    /// Its first datagram is on its way.
    pub(crate) fn connect(disk: &SimHandle, tls: &Arc<ClientConfig>, opening: &Opening) -> Self {
        Self::connect_with(disk, tls, opening, |_| {})
    }

    /// The same, with something else chosen.
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

    /// Takes what has come, does what is due, sends what may leave.
    pub(crate) fn step(&mut self) {
        let now = at(self.start, self.disk.now());
        while let Some(arrived) = self.socket.receive() {
            self.core
                .receive(now, arrived.from, arrived.ecn, &arrived.bytes);
        }
        if self.core.deadline().is_some_and(|at| at <= now) {
            self.core.handle_time(now);
        }
        self.send();
    }

    /// Sends what may leave.
    pub(crate) fn send(&mut self) {
        let now = at(self.start, self.disk.now());
        let (socket, server_id) = (&self.socket, &mut self.server_id);
        let first = &mut self.first;
        self.core.transmit(now, |to, bytes, ecn| {
            if first.is_empty() {
                *first = bytes.to_vec();
            }
            if bytes[0] & 0x80 == 0 {
                *server_id = bytes[1..9].to_vec();
            }
            socket.send(to, bytes, ecn);
        });
    }

    /// When the library has something to do next.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        let at = self.core.deadline()?;
        let since = at.saturating_duration_since(self.start);
        Some(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// It gets another address, as behind a NAT that has forgotten it.
    pub(crate) fn rebind(&mut self) {
        self.moves += 1;
        self.socket.rebind(client_address(self.number, self.moves));
    }

    /// Opens a stream with these bytes; its end comes with them if `is_fin`. `None` while the server
    /// grants no more of them.
    pub(crate) fn open(&mut self, dir: Dir, bytes: &[u8], is_fin: bool) -> Option<StreamId> {
        let id = self.core.open(dir)?;
        assert_eq!(self.core.write(id, bytes), Ok(bytes.len()), "it fits");
        if is_fin {
            self.core.finish(id);
        }
        Some(id)
    }

    /// Asks for a path.
    pub(crate) fn get(&mut self, path: &str) -> StreamId {
        let request = h3::request("GET", path, &[]);
        let id = self.open(Dir::Bi, &request, true);
        self.send();
        id.expect("the server grants more streams")
    }

    /// Says good-bye.
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
