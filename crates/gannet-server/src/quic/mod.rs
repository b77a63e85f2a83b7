//! HTTP/3's transport: QUIC (RFC 9000) by a library without I/O, on gannet's own engines.
//!
//! ```text
//!   a datagram ─▶ routing: another worker's? forwarded
//!       │
//!   Endpoint (the library) ──▶ a new connection: accepted within a turn's handshake budget,
//!       │                      answered by Retry when many are under way, refused when full
//!       ▼
//!   Connection, marked as having something to do
//!       │  once per turn, after all datagrams:
//!       ├─ events ─▶ streams ─▶ gannet-http::h3 ─▶ exchange (as for the other versions)
//!       ├─ content ─▶ the library's streams, as far as their windows go
//!       ├─ packets ─▶ trains of datagrams, sent at once
//!       └─ timers
//! ```
//!
//! A worker has one [`Quic`], and a connection never leaves its worker. The library's types stay in
//! this module and in `tls/quic`.

mod connection;
mod limits;
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
use std::sync::Arc;
use std::time::{Duration, Instant};

use gannet_io::driver::{DatagramSocket, Nanos};
use quinn_proto::{Endpoint, Incoming, ServerConfig};

use self::routing::Forwarded;
use self::sending::Trains;
use self::settings::Secrets;
use self::table::Table;
use crate::config::Limits;
use crate::tls::certificates::Adopted;
use crate::worker::idle_queue::IdleQueue;

/// QUIC version 1 (RFC 9000 section 15).
const VERSION: u32 = 1;

/// What QUIC needs at the start of a worker.
#[derive(Clone)]
pub(crate) struct QuicSettings {
    /// Shared by all workers.
    pub(crate) secrets: Secrets,
    /// How many sockets its driver was created with.
    pub(crate) sockets: u32,
}

/// The QUIC side of a worker.
pub(crate) struct Quic {
    endpoint: Endpoint,
    secrets: Secrets,
    /// What new connections are accepted with.
    config: Arc<ServerConfig>,
    /// Which set of certificates that has.
    generation: u64,
    clock: Clock,
    table: Table,
    /// Who makes room for new connections.
    idle: IdleQueue,
    /// Clients that wait for the handshake budget of a turn.
    incoming: VecDeque<(DatagramSocket, Incoming)>,
    /// Datagrams held back by `--delay`, each until when.
    delayed: VecDeque<(Nanos, Forwarded)>,
    /// Handshakes under way.
    handshakes: usize,
    trains: Trains,
}

/// Turns the engine's time into the library's.
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
    /// Without any connection.
    pub(crate) fn new(
        settings: &QuicSettings,
        worker: usize,
        limits: &Limits,
        certificates: &mut Adopted,
        now: Nanos,
    ) -> Self {
        let worker = u8::try_from(worker).unwrap_or(u8::MAX);
        let secrets = settings.secrets.clone();
        let config = settings::server(&secrets, certificates.current(), limits);
        let endpoint = settings::endpoint(&secrets, worker);
        Self {
            // Sockets never fragment, so that the path's MTU can be found out.
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
            trains: Trains::new(settings.sockets),
        }
    }

    /// How many connections there are.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// What to accept a connection with: the certificates that are in use now.
    fn adopt(&mut self, certificates: &mut Adopted, limits: &Limits) -> Arc<ServerConfig> {
        // Takes over what was loaded since.
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
