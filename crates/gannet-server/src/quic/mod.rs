//! The transport of HTTP/3: QUIC (RFC 9000), implemented by a sans-I/O library and driven by
//! gannet's own engines.
//!
//! ```text
//!   a datagram ─▶ routing: forwarded if it belongs to another worker
//!       │
//!   Endpoint (the library) ──▶ a new connection: accepted within a turn's handshake budget,
//!       │                      sent a Retry if many handshakes are in progress, refused if full
//!       ▼
//!   Connection, queued for its turn
//!       │  once per turn, after all datagrams:
//!       ├─ events ─▶ streams ─▶ gannet-http::h3 ─▶ exchange (as for other versions)
//!       ├─ content ─▶ the library's streams, within their windows
//!       ├─ packets ─▶ trains of datagrams, sent without waiting
//!       └─ timers
//! ```
//!
//! Each worker has one [`Quic`]; a connection never moves to another worker. Only this module and
//! `tls/quic` use the library's types.

mod allowance;
mod connection;
pub(crate) mod elders;
mod pace;
mod reads;
mod requests;
pub(crate) mod routing;
mod sending;
mod sent;
pub(crate) mod settings;
pub(crate) mod streams;
mod table;
mod worker;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gannet_io::driver::{DatagramSocket, Nanos};
use quinn_proto::{Endpoint, Incoming, ServerConfig};

use self::elders::Elders;
use self::routing::Issuer;
use self::sending::Trains;
use self::settings::TokenSecrets;
use self::table::Table;
use crate::config::Limits;
use crate::ground::idle_queue::IdleQueue;
use crate::ground::inbox::RoutedDatagram;
use crate::tls::certificates::Adopted;

/// QUIC version 1 (RFC 9000 section 15).
const VERSION: u32 = 1;

/// The QUIC settings of a worker, fixed at its start.
#[derive(Clone)]
pub(crate) struct QuicSettings {
    /// Shared by all workers.
    pub(crate) secrets: TokenSecrets,
    /// Distinguishes this process from those before and after it, as upgrades follow each other.
    pub(crate) generation: u8,
    /// The addresses with HTTP/3.
    pub(crate) addresses: Arc<[SocketAddr]>,
    /// The datagram sockets that its driver was created with: one for each address, by which it
    /// sends, and then any further ones that it only receives from.
    pub(crate) sockets: Vec<SocketOf>,
    /// The number of workers, if clients' first packets are not spread over them by the kernel.
    pub(crate) spread: Option<u8>,
    /// Earlier processes that finish their connections.
    pub(crate) elders: Elders,
}

/// A datagram socket of a worker.
#[derive(Clone, Copy)]
pub(crate) struct SocketOf {
    /// The index of its address.
    pub(crate) address: u32,
    /// Whether this worker receives from it: each socket has one worker that does.
    pub(crate) receives: bool,
}

/// The QUIC side of a worker.
///
/// The worker calls, on itself: `begin_quic` once at its start; `datagram` for each datagram
/// received and `handle` for each one forwarded to it; `quic_woken` for each lookup or read that
/// has completed, and `sendable` for each socket that accepts datagrams again; then, once per turn,
/// `run_quic`. `quic_deadline` limits the wait before the next turn.
pub(crate) struct Quic {
    endpoint: Endpoint,
    secrets: TokenSecrets,
    /// The configuration of new connections.
    config: Arc<ServerConfig>,
    /// The generation of its certificates.
    generation: u64,
    clock: Clock,
    table: Table,
    /// Idle connections, longest first: closed to make room for new ones.
    idle: IdleQueue,
    /// Clients whose handshake is deferred: the handshake budget of a turn was used up.
    incoming: VecDeque<FirstSeen>,
    /// Datagrams held back by `--delay`, with the time at which each is due.
    delayed: VecDeque<(Nanos, RoutedDatagram)>,
    /// Number of handshakes in progress.
    handshakes: usize,
    trains: Trains,
}

/// A client whose first datagram was received.
struct FirstSeen {
    /// The socket that received it.
    socket: DatagramSocket,
    /// Its length in bytes.
    len: usize,
    incoming: Incoming,
}

/// Converts between the engine's time and the library's.
#[derive(Clone, Copy)]
struct Clock {
    start: Instant,
    start_ns: u64,
}

impl Clock {
    fn at(self, now: Nanos) -> Instant {
        self.start + Duration::from_nanos(now.0.saturating_sub(self.start_ns))
    }

    fn nanos(self, at: Instant) -> Nanos {
        let since = at.saturating_duration_since(self.start).as_nanos();
        Nanos(self.start_ns + u64::try_from(since).unwrap_or(u64::MAX / 2))
    }
}

impl Quic {
    /// Creates the QUIC side of a worker, without connections.
    pub(crate) fn new(
        settings: &QuicSettings,
        worker: usize,
        limits: &Limits,
        certificates: &mut Adopted,
        now: Nanos,
    ) -> Self {
        let issuer = Issuer {
            worker: u8::try_from(worker).unwrap_or(u8::MAX),
            generation: settings.generation,
        };
        let secrets = settings.secrets.clone();
        let config = settings::server(&secrets, certificates.current(), limits);
        let endpoint = settings::endpoint(&secrets, issuer);
        Self {
            // The library may discover the path's MTU: the sockets never fragment.
            endpoint: Endpoint::new(endpoint, Some(Arc::clone(&config)), true, None),
            secrets,
            config,
            generation: certificates.generation(),
            clock: Clock {
                start: Instant::now(),
                start_ns: now.0,
            },
            table: Table::default(),
            idle: IdleQueue::default(),
            incoming: VecDeque::new(),
            delayed: VecDeque::new(),
            handshakes: 0,
            trains: Trains::new(settings.addresses.len()),
        }
    }

    /// Number of connections.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// The configuration for a connection accepted now, with the current certificates.
    fn adopt(&mut self, certificates: &mut Adopted, limits: &Limits) -> Arc<ServerConfig> {
        // Adopts certificates loaded since the last call.
        let _ = certificates.current();
        let generation = certificates.generation();
        if generation != self.generation {
            self.generation = generation;
            self.config = settings::server(&self.secrets, certificates.current(), limits);
            let config = Some(Arc::clone(&self.config));
            self.endpoint.set_server_config(config);
        }
        Arc::clone(&self.config)
    }
}
