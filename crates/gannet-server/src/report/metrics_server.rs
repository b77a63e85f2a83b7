//! Metrics and health endpoints, served on their own address by one plain thread.
//!
//! ```text
//!            a whole request            all sent, late, failed
//!  Reading ──────────────────▶ Writing ────────────────────────▶ closed
//!     └── late, too long, failed, the oldest when there are too many ──▶ closed
//! ```
//!
//! The operator's machines request them a few times a minute, one request per connection. The
//! thread waits for all clients at once and never for a single one, so that no client delays
//! another one's health check, or process exit.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use gannet_http::h1::{Connection, Event};
use gannet_http::semantics::date::DateLine;
use gannet_http::semantics::request::Method;
use gannet_http::semantics::response::{ResponseHead, Status};
use gannet_io::readiness::{Interest, wait};

use crate::bounds::limits::{
    METRICS_CLIENT_MS, METRICS_CLIENTS_MAX, METRICS_REQUEST_MAX, METRICS_REQUEST_MS,
    METRICS_STOP_MS,
};
use crate::observe::metrics::WorkerCounts;
use crate::report::exposition::{About, prometheus};
use crate::report::health::health;
use crate::report::snapshots::Snapshots;

/// Pause before accepting is retried after a lack of descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// The listener, before and while it is served.
pub(crate) struct MetricsServer {
    listener: TcpListener,
    address: SocketAddr,
    /// Dropping the stream ends the thread; the receiver disconnects when it has ended.
    running: Option<(UnixStream, Receiver<()>)>,
}

impl MetricsServer {
    /// Binds the address, or takes a listener that another process has bound.
    pub(crate) fn bind(address: SocketAddr, inherited: Option<OwnedFd>) -> io::Result<Self> {
        let listener = match inherited {
            Some(listener) => TcpListener::from(listener),
            None => TcpListener::bind(address)?,
        };
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self {
            listener,
            address,
            running: None,
        })
    }

    /// The bound address; for port 0, with the port that the kernel chose.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the thread that serves requests.
    pub(crate) fn serve(mut self, snapshots: Snapshots, about: About) -> io::Result<Self> {
        let (held, stop) = UnixStream::pair()?;
        let (end, ended) = channel();
        let mut desk = MetricsThread {
            listener: self.listener.try_clone()?,
            stop,
            snapshots,
            about,
            clients: Vec::new(),
            accept_at: None,
        };
        std::thread::Builder::new()
            .name("gannet-metrics".into())
            .spawn(move || {
                while desk.turn() {}
                drop(end);
            })?;
        self.running = Some((held, ended));
        Ok(self)
    }

    /// A duplicate of the listener, to be handed over.
    pub(crate) fn listener(&self) -> io::Result<OwnedFd> {
        Ok(self.listener.try_clone()?.into())
    }

    /// Ends the thread; the wait is bounded by [`METRICS_STOP_MS`].
    pub(crate) fn stop(self) {
        if let Some((held, ended)) = self.running {
            drop(held);
            // The other end is dropped, never used.
            let _ = ended.recv_timeout(Duration::from_millis(METRICS_STOP_MS));
        }
    }
}

/// The thread's state.
struct MetricsThread {
    listener: TcpListener,
    /// Readable when the thread is to end.
    stop: UnixStream,
    snapshots: Snapshots,
    about: About,
    /// In order of arrival; at most [`METRICS_CLIENTS_MAX`].
    clients: Vec<Scraper>,
    /// Set while no descriptor is free.
    accept_at: Option<Instant>,
}

impl MetricsThread {
    /// Waits and serves whatever is ready; false at the end.
    fn turn(&mut self) -> bool {
        let Ok((is_stopping, can_accept, ready)) = self.wait() else {
            // If memory is too short to poll, it is too short to answer.
            std::thread::sleep(ACCEPT_AGAIN);
            return true;
        };
        if is_stopping {
            return false;
        }
        let now = Instant::now();
        for (client, is_ready) in self.clients.iter_mut().zip(ready) {
            if client.due() <= now {
                client.state = ScrapeState::Closed;
            } else if is_ready {
                client.proceed();
            }
        }
        self.clients.retain(Scraper::is_open);
        if can_accept {
            self.accept(now);
        }
        self.answer();
        self.clients.retain(Scraper::is_open);
        true
    }

    /// Whether to stop, whether there are new connections, and which clients are ready.
    fn wait(&self) -> io::Result<(bool, bool, Vec<bool>)> {
        let now = Instant::now();
        let is_accepting = self.accept_at.is_none_or(|at| at <= now);
        let mut watched = vec![(self.stop.as_fd(), Interest::Input)];
        watched.extend(self.clients.iter().map(Scraper::interest));
        if is_accepting {
            watched.push((self.listener.as_fd(), Interest::Input));
        }
        let pause = self.accept_at.filter(|_| !is_accepting);
        let next = self.clients.iter().map(Scraper::due).chain(pause).min();
        let mut ready = wait(&watched, next.map(|at| at.saturating_duration_since(now)))?;
        let can_accept = is_accepting && ready.pop().unwrap_or(false);
        let is_stopping = ready.remove(0);
        Ok((is_stopping, can_accept, ready))
    }

    /// Accepts new connections and reads what they have already sent: a request that arrives with
    /// its connection is answered before a newer client can displace it.
    fn accept(&mut self, now: Instant) {
        self.accept_at = None;
        for _ in 0..METRICS_CLIENTS_MAX {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if stream.set_nonblocking(true).is_err() {
                        continue;
                    }
                    if self.clients.len() == METRICS_CLIENTS_MAX {
                        self.make_room();
                    }
                    let mut client = Scraper::new(stream, now);
                    client.proceed();
                    self.clients.push(client);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // The peer has already gone (ECONNABORTED); any other error: no descriptor, or no
                // memory.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(_) => {
                    self.accept_at = Some(now + ACCEPT_AGAIN);
                    return;
                }
            }
        }
    }

    /// Closes one client: the oldest with an incomplete request, else the oldest.
    fn make_room(&mut self) {
        let is_reading = |client: &Scraper| matches!(client.state, ScrapeState::Reading { .. });
        let oldest = self.clients.iter().position(is_reading).unwrap_or(0);
        self.clients.remove(oldest);
    }

    /// Answers all complete requests; the workers are polled once for all of them.
    fn answer(&mut self) {
        let mut taken = None;
        for client in &mut self.clients {
            let ScrapeState::Asked { machine, question } = &mut client.state else {
                continue;
            };
            let counts = match question {
                MetricsResource::Metrics | MetricsResource::Health => taken
                    .get_or_insert_with(|| self.snapshots.take())
                    .as_slice(),
                MetricsResource::Other(..) => &[],
            };
            let out = question.answer(machine, counts, &self.about);
            client.state = ScrapeState::Writing { out, sent: 0 };
            client.proceed();
        }
    }
}

struct Scraper {
    stream: TcpStream,
    came: Instant,
    state: ScrapeState,
}

enum ScrapeState {
    /// The request is incomplete.
    Reading {
        machine: Connection,
        input: Vec<u8>,
    },
    /// The request is complete and is answered within the turn.
    Asked {
        machine: Connection,
        question: MetricsResource,
    },
    /// The response is being sent.
    Writing {
        out: Vec<u8>,
        sent: usize,
    },
    Closed,
}

/// The resource that a request names.
enum MetricsResource {
    Metrics,
    Health,
    Other(Status, &'static str),
}

impl Scraper {
    fn new(stream: TcpStream, now: Instant) -> Self {
        Self {
            stream,
            came: now,
            state: ScrapeState::Reading {
                machine: Connection::new(),
                input: Vec::new(),
            },
        }
    }

    fn is_open(&self) -> bool {
        !matches!(self.state, ScrapeState::Closed)
    }

    /// Deadline at which the client is closed, whatever its progress.
    fn due(&self) -> Instant {
        let after_ms = match self.state {
            ScrapeState::Reading { .. } => METRICS_REQUEST_MS,
            ScrapeState::Asked { .. } | ScrapeState::Writing { .. } | ScrapeState::Closed => {
                METRICS_CLIENT_MS
            }
        };
        self.came + Duration::from_millis(after_ms)
    }

    fn interest(&self) -> (std::os::fd::BorrowedFd<'_>, Interest) {
        let interest = match self.state {
            ScrapeState::Writing { .. } => Interest::Output,
            ScrapeState::Reading { .. } | ScrapeState::Asked { .. } | ScrapeState::Closed => {
                Interest::Input
            }
        };
        (self.stream.as_fd(), interest)
    }

    /// Reads or writes as much as possible without blocking.
    fn proceed(&mut self) {
        let done = match &mut self.state {
            ScrapeState::Reading { machine, input } => receive(&mut self.stream, machine, input),
            ScrapeState::Writing { out, sent } => send(&mut self.stream, out, sent),
            ScrapeState::Asked { .. } | ScrapeState::Closed => Ok(None),
        };
        match done {
            Ok(Some(question)) => {
                let reading = std::mem::replace(&mut self.state, ScrapeState::Closed);
                if let ScrapeState::Reading { machine, .. } = reading {
                    self.state = ScrapeState::Asked { machine, question };
                }
            }
            Ok(None) => {}
            Err(error) if is_later(&error) => {}
            Err(_) => self.state = ScrapeState::Closed,
        }
    }
}

/// Whether to retry when the socket is ready.
fn is_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Reads once; returns the question if the request is complete.
fn receive(
    stream: &mut TcpStream,
    machine: &mut Connection,
    input: &mut Vec<u8>,
) -> io::Result<Option<MetricsResource>> {
    let mut chunk = [0; 2048];
    let count = stream.read(&mut chunk)?;
    if count == 0 || input.len() + count > METRICS_REQUEST_MAX {
        return Err(ErrorKind::ConnectionAborted.into());
    }
    input.extend_from_slice(&chunk[..count]);
    loop {
        let step = machine.receive(input);
        let question = match step.event {
            // An empty line before a request.
            Event::Dropped => {
                let dropped = step.consumed;
                input.drain(..dropped);
                continue;
            }
            Event::NeedMore => None,
            Event::Closing => return Err(ErrorKind::ConnectionAborted.into()),
            Event::Reject(rejection) => Some(MetricsResource::Other(rejection.status, "refused\n")),
            Event::Request(request) => Some(match (request.method, request.target.path) {
                (Method::Get | Method::Head, b"/metrics") => MetricsResource::Metrics,
                (Method::Get | Method::Head, b"/health") => MetricsResource::Health,
                (Method::Get | Method::Head, _) => {
                    MetricsResource::Other(Status::NOT_FOUND, "try /metrics or /health\n")
                }
                _ => MetricsResource::Other(Status::METHOD_NOT_ALLOWED, "only GET and HEAD\n"),
            }),
        };
        return Ok(question);
    }
}

/// Writes once; also returns an error when finished, so that the caller closes the client.
fn send(
    stream: &mut TcpStream,
    out: &[u8],
    sent: &mut usize,
) -> io::Result<Option<MetricsResource>> {
    *sent += stream.write(&out[*sent..])?;
    if *sent == out.len() {
        return Err(ErrorKind::ConnectionAborted.into());
    }
    Ok(None)
}

const PLAIN: &[u8] = b"text/plain; charset=utf-8";
const EXPOSITION: &[u8] = b"text/plain; version=0.0.4; charset=utf-8";

impl MetricsResource {
    /// Head and content of the response, the last one on the connection.
    fn answer(&self, machine: &mut Connection, workers: &[WorkerCounts], about: &About) -> Vec<u8> {
        let (status, content_type, text) = match self {
            Self::Metrics => exposition(workers, about),
            Self::Health => {
                let (status, text) = health(workers, about);
                (status, PLAIN, text)
            }
            Self::Other(status, text) => (*status, PLAIN, (*text).to_owned()),
        };
        machine.drain();
        let date = DateLine::new(unix_now());
        let mut out = Vec::new();
        let head = ResponseHead {
            status,
            ready: None,
            content_length: Some(text.len() as u64),
            fields: &[
                ("content-type", content_type),
                ("cache-control", b"no-store"),
            ],
        };
        if machine.respond(&head, date.as_bytes(), &mut out) {
            out.extend_from_slice(text.as_bytes());
        }
        out
    }
}

/// The metrics; 503 until any worker has reported its counters.
fn exposition(workers: &[WorkerCounts], about: &About) -> (Status, &'static [u8], String) {
    if workers.iter().all(|worker| worker.counters.is_none()) {
        let text = "no worker has answered yet\n".to_owned();
        return (Status::SERVICE_UNAVAILABLE, PLAIN, text);
    }
    (Status::OK, EXPOSITION, prometheus(workers, about))
}

fn unix_now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
}
