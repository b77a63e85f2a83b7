//! Visitors of a site while its releases are swapped: threads, each with a connection of every kind.
//!
//! A visitor asks for the page on one of its connections, and for assets of the page's release on
//! the others right afterwards; at times, for one of a page that it has had open for longer. Every
//! body has to be whole and of one release: whatever else happens ends the run.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gannet_testkit::client::Client;
use gannet_testkit::h2::Peer;
use gannet_testkit::h3;
use gannet_testkit::quic::{Options, Quic};
use gannet_testkit::tls::{Abilities, Authority, connection};
use rustls::ClientConfig;

use super::site::{ASSETS, asset, check_asset, release_of_page};

/// The kinds of connections.
pub(super) const KINDS: [&str; 5] = [
    "HTTP/1.1",
    "HTTP/2",
    "HTTP/1.1 over TLS",
    "HTTP/2 over TLS",
    "HTTP/3",
];

/// Maximum time for all visitors to connect.
const CONNECTED_WITHIN: Duration = Duration::from_secs(120);

/// The mean pause of a visitor between two pages, in milliseconds.
const PAUSE_MS: u64 = 1_000;

/// Index of the asset that one visitor alone asks for, always: 100 MB take long.
const HUGE: usize = 4;
/// Index of the asset that is asked for on one page in this many.
const LARGE: usize = 3;
const LARGE_EVERY: u64 = 8;

/// The server, and how to reach it.
pub(super) struct Server {
    /// Its address for clear text.
    pub(super) clear: SocketAddr,
    /// Its address for TLS and QUIC.
    pub(super) tls: SocketAddr,
    configs: [Arc<ClientConfig>; 3],
}

impl Server {
    pub(super) fn new(clear: SocketAddr, tls: SocketAddr, authority: &Authority) -> Self {
        let config = |alpn: &[u8]| {
            authority.client(Abilities {
                alpn: vec![alpn.to_vec()],
                ..Abilities::default()
            })
        };
        let configs = [config(b"http/1.1"), config(b"h2"), config(b"h3")];
        Self {
            clear,
            tls,
            configs,
        }
    }

    fn connect(&self, kind: usize) -> Connection {
        let [h1, h2, h3] = &self.configs;
        let named = |config| connection(config, "localhost");
        match kind {
            0 => Connection::H1(Client::connect(self.clear)),
            1 => Connection::H2(Peer::connect(self.clear)),
            2 => Connection::H1(Client::tls(self.tls, named(h1))),
            3 => Connection::H2(Peer::tls(self.tls, named(h2))),
            _ => {
                let mut options = Options::new(Arc::clone(h3));
                options.transport.max_idle_timeout(None);
                options.finds_mtu = true;
                let mut quic = Quic::with(self.tls, options);
                quic.shake();
                quic.open_uni(&h3::control(&[]));
                Connection::H3(Box::new(quic))
            }
        }
    }
}

enum Connection {
    H1(Client),
    H2(Peer),
    H3(Box<Quic>),
}

impl Connection {
    /// The body of a 200 response.
    fn get(&mut self, path: &str) -> Vec<u8> {
        let (status, body) = match self {
            Self::H1(client) => {
                let response = client.get(path);
                (response.status, response.body)
            }
            Self::H2(peer) => {
                let answer = peer.get(path);
                assert_eq!((answer.is_ended, answer.reset), (true, None), "cut off");
                (answer.status, answer.body)
            }
            Self::H3(quic) => {
                let answer = quic.get(path);
                (answer.status, answer.body)
            }
        };
        assert_eq!(status, 200, "status");
        body
    }
}

/// What visitors have counted and are told.
#[derive(Default)]
pub(super) struct Shared {
    /// Held for writing while visitors must not ask.
    pub(super) pause: RwLock<()>,
    connected: AtomicUsize,
    is_over: AtomicBool,
    has_failed: AtomicBool,
    /// Whole pages, by the kind of connection.
    pub(super) pages: [AtomicU64; KINDS.len()],
    /// Whole assets, by the kind of connection.
    pub(super) assets: [AtomicU64; KINDS.len()],
    /// Those of the assets that belonged to an earlier release than the visitor's last page.
    pub(super) earlier: AtomicU64,
    /// Bytes of all bodies.
    pub(super) bytes: AtomicU64,
}

impl Shared {
    /// # Errors
    ///
    /// A request has failed.
    pub(super) fn check(&self) -> Result<()> {
        let has_failed = self.has_failed.load(Ordering::SeqCst);
        ensure!(!has_failed, "a request failed, see above");
        Ok(())
    }
}

/// All visitors.
pub(super) struct Visitors {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Visitors {
    /// Starts as many visitors as there are connections for, and waits until they are connected.
    pub(super) fn start(server: Server, connections: usize, shared: &Arc<Shared>) -> Result<Self> {
        let count = connections.div_ceil(KINDS.len());
        let server = Arc::new(server);
        let spawn = |number| {
            let (server, shared) = (Arc::clone(&server), Arc::clone(shared));
            let visitor = thread::Builder::new().name(format!("visitor {number}"));
            visitor.spawn(move || Visitor::new(number, &server, shared).run())
        };
        let mut threads = Vec::new();
        for number in 0..count {
            threads.push(spawn(number).context("cannot start a thread")?);
        }
        let start = Instant::now();
        while shared.connected.load(Ordering::SeqCst) < count {
            shared.check()?;
            ensure!(start.elapsed() < CONNECTED_WITHIN, "clients do not connect");
            thread::sleep(Duration::from_millis(10));
        }
        let shared = Arc::clone(shared);
        Ok(Self { shared, threads })
    }

    /// Ends all visitors after their current page.
    ///
    /// # Errors
    ///
    /// A request has failed.
    pub(super) fn end(self) -> Result<()> {
        let shared = Arc::clone(&self.shared);
        drop(self);
        shared.check()
    }
}

impl Drop for Visitors {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            // Has it failed, the visitor itself has said so.
            let _ = thread.join();
        }
    }
}

struct Visitor {
    number: usize,
    connections: Vec<Connection>,
    shared: Arc<Shared>,
    random: u64,
    /// The connection for the next page.
    next: usize,
    /// The release of a page that has been open for longer.
    open: Option<usize>,
    /// What it asks for, for messages.
    asking: String,
}

impl Visitor {
    fn new(number: usize, server: &Server, shared: Arc<Shared>) -> Self {
        let mut visitor = Self {
            number,
            connections: Vec::new(),
            shared,
            random: 0x9e37_79b9_7f4a_7c15 ^ (number as u64) << 20,
            next: number % KINDS.len(),
            open: None,
            asking: "a connection".into(),
        };
        for kind in 0..KINDS.len() {
            visitor.connections.push(server.connect(kind));
        }
        visitor.shared.connected.fetch_add(1, Ordering::SeqCst);
        visitor
    }

    fn run(&mut self) {
        while !self.shared.is_over.load(Ordering::SeqCst) {
            let pause = PAUSE_MS / 2 + self.below(PAUSE_MS);
            thread::sleep(Duration::from_millis(pause));
            let shared = Arc::clone(&self.shared);
            let _may_ask = shared.pause.read().unwrap_or_else(PoisonError::into_inner);
            self.visit();
        }
    }

    fn visit(&mut self) {
        let at = self.next;
        self.next = (at + 1) % KINDS.len();
        let page = self.get(at, "/");
        let release = release_of_page(&page);
        self.shared.pages[at].fetch_add(1, Ordering::Relaxed);
        let others = (1..KINDS.len()).map(|step| (at + step) % KINDS.len());
        for (step, kind) in others.enumerate() {
            let wanted = match step {
                LARGE if self.number == 0 => HUGE,
                LARGE if self.below(LARGE_EVERY) > 0 => continue,
                _ => step,
            };
            self.get_asset(kind, release, wanted);
        }
        if let Some(open) = self.open.filter(|open| *open != release) {
            let wanted = self.below(LARGE as u64) as usize;
            self.get_asset(at, open, wanted);
            self.shared.earlier.fetch_add(1, Ordering::Relaxed);
        }
        if self.open.is_none() || self.below(4) == 0 {
            self.open = Some(release);
        }
    }

    fn get_asset(&mut self, kind: usize, release: usize, wanted: usize) {
        let body = self.get(kind, &asset(release, wanted));
        check_asset(&body, release, wanted);
        self.shared.assets[kind].fetch_add(1, Ordering::Relaxed);
    }

    fn get(&mut self, kind: usize, path: &str) -> Vec<u8> {
        self.asking = format!("{path} by {}", KINDS[kind]);
        let body = self.connections[kind].get(path);
        let bytes = &self.shared.bytes;
        bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
        body
    }

    /// A random number below `end` (xorshift64).
    fn below(&mut self, end: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % end
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("swap: visitor {} asked for {}", self.number, self.asking);
            self.shared.has_failed.store(true, Ordering::SeqCst);
        }
    }
}

const _: () = assert!(ASSETS.len() == HUGE + 1 && KINDS.len() == LARGE + 2);
