//! The load client: one thread that keeps many HTTP/1.1 connections busy, in clear text or over
//! TLS, and believes nothing. `h3` is its counterpart for HTTP/3.
//!
//! Each connection has one request outstanding at all times (a closed loop without think time),
//! so requests per second times mean latency equals the number of connections that are served. In
//! bursts all ask at once instead, and wait for the last answer.
//! Every response's status and length is checked, every `verify_every`-th response's content too;
//! the first thing that is wrong ends the run with an error instead of a figure.
//!
//! Where it asks for content codings (`coded`), every answer is compared: it is one of the forms that were
//! decoded before. It does not pipeline and does not retry.

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use hdrhistogram::Histogram;

pub(crate) use self::{client::run, tls::Tls};

mod choice;
mod client;
mod coded;
mod counts;
pub(crate) mod h3;
mod response;
#[cfg(test)]
mod tests;
mod tls;

/// The content a path must answer with: `len` bytes of an endlessly repeated pool.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pool: Arc<[u8]>,
    start: u64,
    len: u64,
}

impl Content {
    /// Content of `len` bytes that starts `start` bytes into the repeated, non-empty `pool`.
    pub(crate) fn new(pool: Arc<[u8]>, start: u64, len: u64) -> Self {
        assert!(!pool.is_empty(), "content needs a pool");
        Self { pool, start, len }
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The content in order, piece by piece from `offset` on, up to its end.
    pub(crate) fn pieces(&self, offset: u64) -> impl Iterator<Item = &[u8]> {
        let period = self.pool.len() as u64;
        let mut at = offset;
        std::iter::from_fn(move || {
            let from = ((self.start + at) % period) as usize;
            let take = (self.len.saturating_sub(at)).min(period - from as u64) as usize;
            at += take as u64;
            (take > 0).then(|| &self.pool[from..from + take])
        })
    }

    /// Whether `bytes` are what stands at `offset`.
    pub(crate) fn matches(&self, offset: u64, mut bytes: &[u8]) -> bool {
        for piece in self.pieces(offset) {
            let take = piece.len().min(bytes.len());
            if bytes[..take] != piece[..take] {
                return false;
            }
            bytes = &bytes[take..];
            if bytes.is_empty() {
                return true;
            }
        }
        bytes.is_empty()
    }
}

/// One thing to ask for and what must come back.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The request's path, starting with a slash.
    pub(crate) path: String,
    /// What the response must contain.
    pub(crate) content: Content,
}

/// In which order paths are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Order {
    /// One after the other over all connections.
    RoundRobin,
    /// Drawn by a generator of fixed seed: the same sequence in every run.
    Random,
    /// Each once, scattered over all of them: the run ends when all have been answered.
    Once,
}

/// What to do to a server, and for how long.
#[derive(Clone, Debug)]
pub(crate) struct Plan<'a> {
    /// Where the server listens.
    pub(crate) address: SocketAddr,
    /// Paths and contents; at least one.
    pub(crate) targets: &'a [Target],
    /// Connections held at the same time; at least one.
    pub(crate) connections: usize,
    /// Order of the paths.
    pub(crate) order: Order,
    /// False: each request takes a connection of its own, which the server must close.
    pub(crate) keep_alive: bool,
    /// All connections ask at the same moment, and again when the last of them has been answered;
    /// otherwise each asks again as soon as it has been. For persistent connections.
    pub(crate) bursts: bool,
    /// TLS on every connection; clear text where there is none.
    pub(crate) tls: Option<&'a Tls>,
    /// What begins each connection, before TLS; a few bytes.
    pub(crate) preface: &'a str,
    /// Lines of each request, each with its end.
    pub(crate) fields: &'a str,
    /// Content codings that each request accepts: `gzip`, `br` and `zstd` are understood. Over
    /// HTTP/1.1; empty for none.
    pub(crate) codings: &'a str,
    /// Over HTTP/3: offer draft-ietf-quic-ack-frequency.
    pub(crate) ack_frequency: bool,
    /// Compare the whole content of one response in this many; zero never does.
    pub(crate) verify_every: u64,
    /// Time after connecting that is not counted.
    pub(crate) warm_up: Duration,
    /// Time that is counted; zero ends the run when every target has been answered once.
    pub(crate) duration: Duration,
    /// Longest time in which nothing at all may arrive.
    pub(crate) stall: Duration,
    /// Longest time for connecting; connections not open by then count as unserved.
    pub(crate) connect: Duration,
    /// Time between opening the last connection and the first request, for accepting.
    pub(crate) settle: Duration,
    /// Set when the run must end early.
    pub(crate) interrupt: &'a AtomicBool,
}

impl<'a> Plan<'a> {
    /// Every target once over a persistent connection in clear text, each answer compared; it may take `limit`
    /// to connect, and that long nothing may arrive.
    pub(crate) fn one_pass(
        address: SocketAddr,
        targets: &'a [Target],
        limit: Duration,
        interrupt: &'a AtomicBool,
    ) -> Self {
        Self {
            address,
            targets,
            connections: 1,
            order: Order::RoundRobin,
            keep_alive: true,
            bursts: false,
            tls: None,
            preface: "",
            fields: "",
            codings: "",
            ack_frequency: true,
            verify_every: 1,
            warm_up: Duration::ZERO,
            duration: Duration::ZERO,
            stall: limit,
            connect: limit,
            settle: Duration::ZERO,
            interrupt,
        }
    }
}

/// The moments at which the caller takes its own readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Warm-up is over; counting starts.
    Opens,
    /// Counting has ended; all connections are still open.
    Closes,
}

/// What was counted between [`Phase::Opens`] and [`Phase::Closes`].
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Complete, correct responses.
    pub(crate) requests: u64,
    /// Content bytes received, those of incomplete responses included.
    pub(crate) body_bytes: u64,
    /// Where codings are accepted: complete responses that were coded.
    pub(crate) coded: u64,
    /// And the content bytes of complete responses, coded or not, and of the files they were made of.
    pub(crate) wire_bytes: (u64, u64),
    /// Length of the window.
    pub(crate) elapsed: Duration,
    /// Nanoseconds from sending a request (or starting to connect, or from when it was due in an open
    /// loop) to the last byte.
    pub(crate) latency: Histogram<u64>,
    /// Nanoseconds from the beginning of a burst to the last byte of its last response.
    pub(crate) last: Histogram<u64>,
    /// Responses per connection slot over warm-up and window: fewest, median, most.
    pub(crate) served: (u64, u64, u64),
    /// Connection slots that never got a response, in warm-up or window.
    pub(crate) unserved: usize,
    /// Connections opened again because the server closed a persistent one in good order.
    pub(crate) reconnects: u64,
    /// Responses whose content was compared byte for byte.
    pub(crate) verified: u64,
    /// TLS handshakes.
    pub(crate) handshakes: u64,
    /// Those of them that resumed an earlier connection.
    pub(crate) resumed: u64,
    /// CPU time of the client's thread.
    pub(crate) client_cpu: Duration,
}

/// Why a run gave no figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LoadError {
    /// The answer to `path` was not what it must be.
    Wrong {
        /// The path asked for.
        path: String,
        /// What was wrong.
        what: String,
    },
    /// The connection ended or failed where a response was due.
    Broken {
        /// The path asked for.
        path: String,
        /// What the kernel said, or at which byte the stream ended.
        what: String,
    },
    /// A record or the handshake was not what it must be.
    Tls(String),
    /// Nothing arrived for this long.
    Stalled(Duration),
    /// No connection could be opened.
    Refused(String),
    /// The client itself could not go on.
    Client(String),
    /// Asked to stop.
    Interrupted,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong { path, what } => write!(f, "wrong response to '{path}': {what}"),
            Self::Broken { path, what } => write!(f, "connection lost at '{path}': {what}"),
            Self::Tls(what) => write!(f, "TLS: {what}"),
            Self::Stalled(time) => write!(f, "nothing arrived for {} ms", time.as_millis()),
            Self::Refused(what) => write!(f, "cannot connect: {what}"),
            Self::Client(what) => write!(f, "load client: {what}"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for LoadError {}
