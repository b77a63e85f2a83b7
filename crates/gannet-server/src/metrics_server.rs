//! Metrics and health, answered on an address of their own by plain threads.
//!
//! They are asked a few times a minute by machines of the operator: few connections at a time, one
//! request each, bounded in bytes and time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use gannet_http::h1::{Connection, Event};
use gannet_http::semantics::date::DateLine;
use gannet_http::semantics::request::Method;
use gannet_http::semantics::response::{ResponseHead, Status};

use crate::metrics;
use crate::running::{Remote, snapshots};

/// How long a client may take for its request, and to take the answer.
const CLIENT_MAX: Duration = Duration::from_secs(5);

/// Clients answered at once, each by a thread, so that one that says nothing does not keep a
/// health check waiting. The others wait in the listener's queue.
const CLIENTS_MAX: usize = 16;

/// Bytes of a request; a scraper's head has a few hundred.
const REQUEST_MAX: usize = 16 << 10;

/// The listener, before and while it is served.
pub(crate) struct MetricsServer {
    listener: TcpListener,
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Binds the address.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok(Self {
            listener,
            address,
            stopping: Arc::default(),
            thread: None,
        })
    }

    /// The address, with the port that the kernel chose if it was asked to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Begins to answer.
    pub(crate) fn serve(mut self, remotes: Vec<Remote>) -> Self {
        let Ok(listener) = self.listener.try_clone() else {
            return self;
        };
        let stopping = Arc::clone(&self.stopping);
        let busy = Arc::new(AtomicUsize::new(0));
        let thread = std::thread::Builder::new()
            .name("gannet-metrics".into())
            .spawn(move || {
                for stream in listener.incoming() {
                    if stopping.load(Ordering::Relaxed) {
                        return;
                    }
                    if let Ok(stream) = stream {
                        answer_beside(stream, &remotes, &busy);
                    }
                }
            });
        self.thread = thread.ok();
        self
    }

    /// Ends the thread.
    pub(crate) fn stop(mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // The thread is waiting for a connection: this is one.
        let poke = TcpStream::connect_timeout(&self.address, CLIENT_MAX);
        if let (Ok(_), Some(thread)) = (poke, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// Answers on a thread of its own; on this one if there are enough.
fn answer_beside(stream: TcpStream, remotes: &[Remote], busy: &Arc<AtomicUsize>) {
    // A client that fails is its own problem.
    if busy.load(Ordering::Relaxed) >= CLIENTS_MAX {
        let _ = answer(stream, remotes);
        return;
    }
    busy.fetch_add(1, Ordering::Relaxed);
    let (remotes, done) = (remotes.to_vec(), Arc::clone(busy));
    let spawned = std::thread::Builder::new()
        .name("gannet-metrics".into())
        .spawn(move || {
            let _ = answer(stream, &remotes);
            done.fetch_sub(1, Ordering::Relaxed);
        });
    if spawned.is_err() {
        // The connection was closed with the closure that had it.
        busy.fetch_sub(1, Ordering::Relaxed);
    }
}

fn answer(mut stream: TcpStream, remotes: &[Remote]) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_MAX))?;
    stream.set_write_timeout(Some(CLIENT_MAX))?;
    let mut machine = Connection::new();
    let mut input = Vec::new();
    loop {
        let mut chunk = [0; 2048];
        let count = stream.read(&mut chunk)?;
        if count == 0 || input.len() > REQUEST_MAX {
            return Ok(());
        }
        input.extend_from_slice(&chunk[..count]);
        let (status, content_type, text) = match machine.receive(&input).event {
            Event::NeedMore => continue,
            Event::Closing => return Ok(()),
            Event::Reject(rejection) => (rejection.status, PLAIN, "refused\n".to_owned()),
            Event::Request(request) => match (request.method, request.target.path) {
                (Method::Get | Method::Head, b"/metrics") => (
                    Status::OK,
                    EXPOSITION,
                    metrics::prometheus(&snapshots(remotes)),
                ),
                (Method::Get | Method::Head, b"/health") => health(remotes),
                (Method::Get | Method::Head, _) => (
                    Status::NOT_FOUND,
                    PLAIN,
                    "try /metrics or /health\n".to_owned(),
                ),
                _ => (
                    Status::METHOD_NOT_ALLOWED,
                    PLAIN,
                    "only GET and HEAD\n".to_owned(),
                ),
            },
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
        return stream.write_all(&out);
    }
}

const PLAIN: &[u8] = b"text/plain; charset=utf-8";
const EXPOSITION: &[u8] = b"text/plain; version=0.0.4; charset=utf-8";

/// Healthy: every worker has just answered.
fn health(remotes: &[Remote]) -> (Status, &'static [u8], String) {
    let answering = snapshots(remotes).len();
    if answering == remotes.len() {
        (Status::OK, PLAIN, "ok\n".to_owned())
    } else {
        let text = format!("{answering} of {} workers answer\n", remotes.len());
        (Status::SERVICE_UNAVAILABLE, PLAIN, text)
    }
}

fn unix_now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX))
}
