//! The load client for HTTP/3: one thread and one UDP socket for all connections, with the same
//! sans-I/O QUIC library as gannet. It checks the status and length of every response, and the
//! content of some byte by byte.
//!
//! ```text
//!   datagrams, many per call ─▶ Endpoint ─▶ connections ─▶ streams ─▶ `response`
//!                                              │  once after all of them
//!                                              └─ next requests, acknowledgements ─▶ trains
//! ```
//!
//! Requests are made in a closed loop, with a fixed number outstanding on each connection, or in an
//! open loop: at times fixed in advance, from which latency is measured, whatever the server does.
//! The kernel delivers a train of datagrams as one buffer (UDP_GRO): otherwise, on loopback,
//! segmenting it and delivering each datagram would count as CPU time of the server.

use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytes::BytesMut;
use hdrhistogram::Histogram;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, DatagramEvent, Endpoint, EndpointConfig, TransportConfig, VarInt};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;

use self::{connection::Slot, parameters::WithoutAckFrequency};
use super::{
    LoadError, Phase, Plan, Tally,
    choice::Choice,
    counts::{Counts, histogram, thread_cpu},
};

mod connection;
mod parameters;
mod response;

/// Socket buffers for each direction, in bytes: more than all connections have in flight.
const SOCKET_BUFFER: usize = 32 << 20;
/// Maximum bytes of a train of datagrams.
const TRAIN: usize = 64 << 10;
/// The flow-control window of a stream, in bytes: about as large as that of browsers.
const STREAM_WINDOW: u32 = 8 << 20;
/// Maximum wait for an event: interruptions are checked this often.
const WAIT_MAX: Duration = Duration::from_millis(10);
/// An acknowledgement is sent after at most this many datagrams of a connection (RFC 9000 section
/// 13.2.2). One per train would be unrealistic: no network delivers a whole train at once.
const ACKNOWLEDGED_EVERY: u32 = 2;
/// Maximum concurrent handshakes while a run opens its connections.
const OPENING_MAX: usize = 64;

/// When the requests of an HTTP/3 run are made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// Closed loop: each connection always has this many requests outstanding.
    Closed(usize),
    /// Open loop: this many requests per second, on all connections in turn.
    Open(f64),
    /// Each connection makes one request and stays open.
    Once,
}

/// Runs `plan`, which must have TLS, on the calling thread; `observe` is called at both ends of the
/// counted window.
pub(crate) fn run(
    plan: &Plan<'_>,
    shape: Shape,
    observe: &mut dyn FnMut(Phase),
) -> Result<Tally, LoadError> {
    let client = Client::new(plan, shape);
    let mut client = client.map_err(|e| LoadError::Client(format!("{e:#}")))?;
    client.run(observe)
}

/// The state of a run.
pub(crate) struct Client<'a> {
    plan: &'a Plan<'a>,
    shape: Shape,
    socket: UdpSocket,
    udp: UdpSocketState,
    endpoint: Endpoint,
    config: ClientConfig,
    slots: Vec<Slot>,
    /// Maps the library's number of a connection to its slot.
    by_number: Vec<usize>,
    /// Slots that have to be served.
    due: Vec<usize>,
    /// The encoded request for each target.
    requests: Vec<Vec<u8>>,
    received: Vec<u8>,
    sent: Vec<u8>,
    origin: Instant,
    opened: usize,
    connecting: usize,
    /// Whether open connections wait for the others.
    holding: bool,
    choice: Choice,
    responses: u64,
    last_arrival: u64,
    /// In an open loop: when it began, in nanoseconds since the run began.
    began: u64,
    /// Requests made due since then.
    scheduled: u64,
    counts: Counts,
    latency: Histogram<u64>,
    /// Empty: this client makes no bursts.
    bursts: Histogram<u64>,
}

impl<'a> Client<'a> {
    /// Creates a client without connections.
    pub(crate) fn new(plan: &'a Plan<'a>, shape: Shape) -> Result<Self> {
        let tls = plan.tls.context("HTTP/3 is spoken over TLS")?;
        let crypto = QuicClientConfig::try_from(tls.for_quic()).context("TLS settings")?;
        let mut transport = TransportConfig::default();
        transport
            .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(16))
            .datagram_receive_buffer_size(None)
            .max_idle_timeout(None);
        let crypto = Arc::new(crypto);
        let mut config = match plan.ack_frequency {
            true => ClientConfig::new(crypto),
            false => ClientConfig::new(Arc::new(WithoutAckFrequency(crypto))),
        };
        config.transport_config(Arc::new(transport));
        let any = match plan.address.is_ipv4() {
            true => "0.0.0.0:0",
            false => "[::]:0",
        };
        let socket = UdpSocket::bind(any).context("bind")?;
        // Only root may exceed the system's limit; other users get that limit.
        let _ = sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER);
        let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER);
        let udp = UdpSocketState::new((&socket).into()).context("UDP")?;
        let port = plan.address.port();
        let request = |path: &str| connection::request(&format!("localhost:{port}"), path);
        let targets = plan.targets.iter();
        Ok(Self {
            plan,
            shape,
            socket,
            udp,
            endpoint: Endpoint::new(Arc::new(EndpointConfig::default()), None, true, None),
            config,
            slots: Vec::new(),
            by_number: Vec::new(),
            due: Vec::new(),
            requests: targets.map(|target| request(&target.path)).collect(),
            received: vec![0; BATCH_SIZE * TRAIN],
            sent: Vec::with_capacity(TRAIN),
            origin: Instant::now(),
            opened: 0,
            connecting: 0,
            holding: true,
            choice: Choice::new(plan),
            responses: 0,
            last_arrival: 0,
            began: 0,
            scheduled: 0,
            counts: Counts::default(),
            latency: histogram()?,
            bursts: histogram()?,
        })
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    fn run(&mut self, observe: &mut dyn FnMut(Phase)) -> Result<Tally, LoadError> {
        self.connect_all()?;
        if self.plan.duration.is_zero() {
            let all = self.plan.targets.len() as u64;
            while self.responses < all {
                self.turn()?;
            }
            return Ok(self.tally(Duration::from_nanos(self.now()), Duration::ZERO));
        }
        self.run_for(self.plan.warm_up)?;
        self.counts = Counts::default();
        self.latency.reset();
        observe(Phase::Opens);
        let (wall, cpu) = (Instant::now(), thread_cpu());
        self.run_for(self.plan.duration)?;
        let (wall, cpu) = (wall.elapsed(), thread_cpu().saturating_sub(cpu));
        observe(Phase::Closes);
        Ok(self.tally(wall, cpu))
    }

    /// Opens every connection before the first request, a bounded number at a time.
    fn connect_all(&mut self) -> Result<(), LoadError> {
        let deadline = Instant::now() + self.plan.connect;
        while self.opening() {
            if Instant::now() > deadline {
                let time = self.plan.connect.as_millis();
                let (open, all) = (self.opened - self.connecting, self.plan.connections);
                let what = format!("{open} of {all} connections within {time} ms");
                return Err(LoadError::Refused(what));
            }
            while self.opened < self.plan.connections && self.connecting < OPENING_MAX {
                self.opened += 1;
                let slot = self.connect(self.opened - 1)?;
                self.slots.push(slot);
                self.mark(self.opened - 1);
            }
            self.turn()?;
        }
        self.run_for(self.plan.settle)?;
        self.holding = false;
        self.last_arrival = self.now();
        self.began = self.last_arrival;
        for index in 0..self.slots.len() {
            if matches!(self.shape, Shape::Once) {
                self.slots[index].waiting.push_back(self.began);
            }
            self.mark(index);
        }
        Ok(())
    }

    /// Opens every connection and makes one request on each.
    pub(crate) fn ask_once(&mut self) -> Result<(), LoadError> {
        self.connect_all()?;
        let start = Instant::now();
        while self.responses < self.plan.connections as u64 {
            if start.elapsed() > self.plan.stall {
                return Err(LoadError::Stalled(start.elapsed()));
            }
            self.turn()?;
        }
        Ok(())
    }

    /// Whether connections still have to be opened before the run begins. With a connection per
    /// request, opening never ends: the run begins once all were started and a response was
    /// received.
    fn opening(&self) -> bool {
        let follow = !self.plan.keep_alive && self.responses > 0;
        self.opened < self.plan.connections || (self.connecting > 0 && !follow)
    }

    /// Continues for `time`.
    pub(crate) fn run_for(&mut self, time: Duration) -> Result<(), LoadError> {
        let start = Instant::now();
        while start.elapsed() < time {
            self.turn()?;
        }
        Ok(())
    }

    /// Queues a slot to be served.
    fn mark(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        if !slot.is_due {
            slot.is_due = true;
            self.due.push(index);
        }
    }

    /// Serves the connections that are due, then waits once for datagrams and processes them.
    fn turn(&mut self) -> Result<(), LoadError> {
        if self.plan.interrupt.load(Ordering::Relaxed) {
            return Err(LoadError::Interrupted);
        }
        self.ask_on_schedule();
        self.time_out();
        while let Some(index) = self.due.pop() {
            self.slots[index].is_due = false;
            self.serve(index)?;
        }
        if !self.wait()? && !self.holding && matches!(self.shape, Shape::Closed(_)) {
            let silent = Duration::from_nanos(self.now().saturating_sub(self.last_arrival));
            if silent > self.plan.stall {
                return Err(LoadError::Stalled(silent));
            }
        }
        Ok(())
    }

    /// In an open loop: assigns the requests that are due to the connections, in turn.
    fn ask_on_schedule(&mut self) {
        let Shape::Open(rate) = self.shape else {
            return;
        };
        if self.holding {
            return;
        }
        let since = self.now() - self.began;
        let due = (since as f64 * rate / 1e9) as u64;
        while self.scheduled < due {
            let at = self.began + (self.scheduled as f64 * 1e9 / rate) as u64;
            let index = (self.scheduled % self.slots.len() as u64) as usize;
            self.scheduled += 1;
            self.slots[index].waiting.push_back(at);
            self.mark(index);
        }
    }

    /// Handles the timers that have expired.
    fn time_out(&mut self) {
        let now = Instant::now();
        for index in 0..self.slots.len() {
            let slot = &mut self.slots[index];
            if slot.deadline.is_some_and(|at| at <= now) {
                slot.quic.handle_timeout(now);
                self.mark(index);
            }
        }
    }

    /// Waits for datagrams until the next timer, and passes them to their connections. Returns
    /// whether there were any.
    fn wait(&mut self) -> Result<bool, LoadError> {
        let client =
            |what: &str, e: &dyn std::fmt::Display| LoadError::Client(format!("{what}: {e}"));
        let now = Instant::now();
        let first = self.slots.iter().filter_map(|slot| slot.deadline).min();
        let mut wait = first.map_or(WAIT_MAX, |at| at.saturating_duration_since(now));
        if let Shape::Open(rate) = self.shape {
            wait = wait.min(Duration::from_secs_f64(1.0 / rate));
        }
        let wait = wait.min(WAIT_MAX);
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: wait.subsec_nanos().into(),
        };
        let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(e) => return Err(client("poll", &e)),
        }
        let mut received = std::mem::take(&mut self.received);
        let mut metas = [RecvMeta::default(); BATCH_SIZE];
        let mut buffers = received.chunks_exact_mut(TRAIN).map(IoSliceMut::new);
        let mut buffers: [_; BATCH_SIZE] =
            std::array::from_fn(|_| buffers.next().expect("as many as there are"));
        let count = self
            .udp
            .recv((&self.socket).into(), &mut buffers, &mut metas);
        let count = match count {
            Ok(count) => count,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(e) => return Err(client("recvmmsg", &e)),
        };
        for (meta, train) in metas[..count].iter().zip(received.chunks_exact(TRAIN)) {
            for datagram in train[..meta.len].chunks(meta.stride.max(1)) {
                self.take(meta, datagram);
            }
        }
        self.received = received;
        Ok(count > 0)
    }

    /// Passes a datagram to its connection.
    fn take(&mut self, meta: &RecvMeta, datagram: &[u8]) {
        let mut reply = std::mem::take(&mut self.sent);
        let ecn = meta
            .ecn
            .and_then(|ecn| quinn_proto::EcnCodepoint::from_bits(ecn as u8));
        let bytes = BytesMut::from(datagram);
        let now = Instant::now();
        let event = self
            .endpoint
            .handle(now, meta.addr, None, ecn, bytes, &mut reply);
        reply.clear();
        self.sent = reply;
        // Other events belong to closed connections.
        if let Some(DatagramEvent::ConnectionEvent(handle, event)) = event
            && let Some(&index) = self.by_number.get(handle.0)
            && let Some(slot) = self.slots.get_mut(index)
            && slot.handle == handle
        {
            slot.quic.handle_event(event);
            slot.unanswered += 1;
            if slot.unanswered == ACKNOWLEDGED_EVERY {
                self.flush(index);
            }
            self.mark(index);
        }
    }

    fn tally(&self, elapsed: Duration, client_cpu: Duration) -> Tally {
        let served = self.slots.iter().map(|slot| slot.served).collect();
        let measured = (&self.latency, &self.bursts);
        self.counts.tally(served, measured, (elapsed, client_cpu))
    }
}
