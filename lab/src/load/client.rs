//! The loop of the load client: one epoll instance, edge-triggered, one slot per connection.
//!
//! `receive` has what becomes of the bytes that arrive.

use std::{
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use rustix::{
    buffer::spare_capacity,
    event::{Timespec, epoll},
    io::Errno,
    net::{AddressFamily, SendFlags, SocketFlags, SocketType, connect, send, socket_with, sockopt},
};

use super::{
    LoadError, Phase, Plan, Tally,
    choice::Choice,
    coded::{Forms, Incoming},
    counts::{Counts, histogram, thread_cpu},
    tls::Session,
};

mod receive;

/// Bytes read or discarded at once within a body.
const BODY_READ: usize = 1024 * 1024;
/// Connections being opened at the same time: below the smallest backlog in use, 511.
const OPENING_MAX: usize = 256;
/// Events taken from the kernel at once.
const EVENTS: usize = 1024;
/// Quiet between two bursts, in nanoseconds: the server has done all that the last one left it.
const QUIET: u64 = 3_000_000;

/// Runs `plan` on the calling thread; `observe` is called at the two ends of the counted window.
pub(crate) fn run(plan: &Plan<'_>, observe: &mut dyn FnMut(Phase)) -> Result<Tally, LoadError> {
    assert!(
        plan.connections > 0 && !plan.targets.is_empty(),
        "nothing to do"
    );
    let mut client = Client::new(plan).map_err(|e| LoadError::Client(format!("{e:#}")))?;
    client.run(observe)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unopened,
    Connecting,
    Handshaking,
    /// Open, and waiting for the others before the first request.
    Idle,
    AwaitingHead,
    InBody,
    /// The whole response is there.
    Finished,
    AwaitingClose,
}

struct Slot {
    socket: Option<OwnedFd>,
    state: State,
    /// Index of the target asked for.
    target: u32,
    /// Whether the server said it will close.
    closing: bool,
    verify: bool,
    /// Content bytes received of the current response.
    received: u64,
    /// When the current request began, in nanoseconds since the run began.
    started: u64,
    served: u64,
    /// The beginning of a head that came in pieces.
    partial: Vec<u8>,
    /// The TLS state, where the plan has TLS.
    session: Option<Box<Session>>,
    /// The content of the current response, where codings are accepted.
    incoming: Option<Incoming>,
}

struct Client<'a> {
    plan: &'a Plan<'a>,
    epoll: OwnedFd,
    slots: Vec<Slot>,
    requests: Vec<Box<[u8]>>,
    /// By target; empty if no codings are accepted.
    forms: Vec<Forms>,
    buffer: Vec<u8>,
    /// Slots whose reading was cut off for the sake of the others.
    again: Vec<u32>,
    origin: Instant,
    opened: usize,
    connecting: usize,
    /// Whether open connections wait for the others.
    holding: bool,
    choice: Choice,
    responses: u64,
    last_arrival: u64,
    counts: Counts,
    latency: Histogram<u64>,
    /// When the burst under way began, in nanoseconds since the run began.
    burst_began: u64,
    /// Its requests that have not been answered.
    outstanding: usize,
    last: Histogram<u64>,
}

impl<'a> Client<'a> {
    fn new(plan: &'a Plan<'a>) -> Result<Self> {
        let slot = || Slot {
            socket: None,
            state: State::Unopened,
            target: 0,
            closing: false,
            verify: false,
            received: 0,
            started: 0,
            served: 0,
            partial: Vec::new(),
            session: None,
            incoming: None,
        };
        let connection = if plan.keep_alive {
            ""
        } else {
            "Connection: close\r\n"
        };
        let accept = match plan.codings {
            "" => String::new(),
            codings => format!("Accept-Encoding: {codings}\r\n"),
        };
        let formed = match plan.codings {
            "" => 0,
            _ => plan.targets.len(),
        };
        let request = |path: &str| {
            let (host, fields) = (plan.address, plan.fields);
            let lines = format!("Host: {host}\r\n{connection}{accept}{fields}");
            format!("GET {path} HTTP/1.1\r\n{lines}\r\n").into_bytes()
        };
        Ok(Self {
            plan,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).context("epoll_create")?,
            slots: (0..plan.connections).map(|_| slot()).collect(),
            requests: plan
                .targets
                .iter()
                .map(|t| request(&t.path).into())
                .collect(),
            forms: std::iter::repeat_with(Forms::default)
                .take(formed)
                .collect(),
            buffer: vec![0; BODY_READ],
            again: Vec::new(),
            origin: Instant::now(),
            opened: 0,
            connecting: 0,
            holding: true,
            choice: Choice::new(plan),
            responses: 0,
            last_arrival: 0,
            counts: Counts::default(),
            latency: histogram()?,
            burst_began: 0,
            outstanding: 0,
            last: histogram()?,
        })
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    fn run(&mut self, observe: &mut dyn FnMut(Phase)) -> Result<Tally, LoadError> {
        let mut events = Vec::with_capacity(EVENTS);
        self.connect_all(&mut events)?;
        if self.plan.duration.is_zero() {
            let all = self.plan.targets.len() as u64;
            observe(Phase::Opens);
            let (wall, cpu) = (Instant::now(), thread_cpu());
            while self.responses < all {
                self.turn(&mut events)?;
            }
            let (wall, cpu) = (wall.elapsed(), thread_cpu().saturating_sub(cpu));
            observe(Phase::Closes);
            return Ok(self.tally(wall, cpu));
        }
        self.run_for(self.plan.warm_up, &mut events)?;
        self.counts = Counts::default();
        self.latency.reset();
        self.last.reset();
        observe(Phase::Opens);
        let (wall, cpu) = (Instant::now(), thread_cpu());
        self.run_for(self.plan.duration, &mut events)?;
        let (wall, cpu) = (wall.elapsed(), thread_cpu().saturating_sub(cpu));
        observe(Phase::Closes);
        Ok(self.tally(wall, cpu))
    }

    /// Opens every connection, a bounded number at a time, or gives up when time is up.
    ///
    /// Persistent connections are all opened before the first request: a server that is busy
    /// answering some would be slow to accept the others, which is not what is measured.
    fn connect_all(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), LoadError> {
        let deadline = Instant::now() + self.plan.connect;
        while self.opening() && Instant::now() < deadline {
            while self.opened < self.slots.len() && self.connecting < OPENING_MAX {
                let index = self.opened;
                self.opened += 1;
                self.open(index)?;
            }
            self.turn(events)?;
        }
        let unconnected = |slot: &Slot| {
            use State::{Connecting, Handshaking, Unopened};
            matches!(slot.state, Unopened | Connecting | Handshaking)
        };
        if self.responses == 0 && self.slots.iter().all(unconnected) {
            let time = self.plan.connect.as_millis();
            return Err(LoadError::Refused(format!(
                "no connection within {time} ms"
            )));
        }
        self.run_for(self.plan.settle, events)?;
        self.holding = false;
        if self.plan.bursts {
            return self.burst();
        }
        for index in 0..self.slots.len() {
            if self.slots[index].state == State::Idle {
                let now = self.now();
                self.send(index, now)?;
            }
        }
        self.last_arrival = self.now();
        Ok(())
    }

    /// Whether connections still have to be made before a run begins. With a connection per request
    /// some are always being made: once each was begun and one has answered, the others follow.
    fn opening(&self) -> bool {
        let follow = !self.plan.keep_alive && self.responses > 0;
        self.opened < self.slots.len() || (self.connecting > 0 && !follow)
    }

    fn run_for(&mut self, time: Duration, events: &mut Vec<epoll::Event>) -> Result<(), LoadError> {
        let start = Instant::now();
        while start.elapsed() < time {
            self.turn(events)?;
        }
        Ok(())
    }

    /// Asks on every connection at the same moment.
    fn burst(&mut self) -> Result<(), LoadError> {
        for index in 0..self.slots.len() {
            if self.slots[index].state == State::Idle {
                self.prepare(index)?;
                self.outstanding += 1;
            }
        }
        let now = self.now();
        (self.burst_began, self.last_arrival) = (now, now);
        for index in 0..self.slots.len() {
            if self.slots[index].state == State::AwaitingHead {
                self.slots[index].started = now;
                self.send_prepared(index)?;
            }
        }
        Ok(())
    }

    /// Whether the last burst is over, and it has been quiet since.
    fn burst_is_due(&self) -> bool {
        let is_over = self.plan.bursts && !self.holding && self.outstanding == 0;
        is_over && self.now() - self.last_arrival >= QUIET
    }

    /// Waits for events once and handles them all.
    fn turn(&mut self, events: &mut Vec<epoll::Event>) -> Result<(), LoadError> {
        if self.plan.interrupt.load(Ordering::Relaxed) {
            return Err(LoadError::Interrupted);
        }
        if self.burst_is_due() {
            self.burst()?;
        }
        let wait_ns = match self.plan.bursts && self.outstanding == 0 {
            _ if !self.again.is_empty() => 0,
            true => QUIET as i64,
            false => 10_000_000,
        };
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: wait_ns,
        };
        match epoll::wait(&self.epoll, spare_capacity(events), Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(LoadError::Client(format!("epoll_wait: {e}"))),
        }
        let again = std::mem::take(&mut self.again);
        for index in again {
            self.receive(index as usize, true)?;
        }
        // While connections are opened their own deadline holds.
        if events.is_empty() && !self.holding {
            let silent = Duration::from_nanos(self.now().saturating_sub(self.last_arrival));
            if silent > self.plan.stall {
                return Err(LoadError::Stalled(silent));
            }
        }
        for event in events.drain(..) {
            let (flags, index) = (event.flags, event.data.u64() as usize);
            if self.slots[index].state == State::Connecting {
                self.connected(index)?;
            } else if flags != epoll::EventFlags::OUT {
                use epoll::EventFlags as F;
                self.receive(index, flags.intersects(F::RDHUP | F::HUP | F::ERR))?;
            }
        }
        Ok(())
    }

    fn open(&mut self, index: usize) -> Result<(), LoadError> {
        let client = |what: &str, e: Errno| LoadError::Client(format!("{what}: {e}"));
        let family = match self.plan.address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)
            .map_err(|e| client("socket", e))?;
        sockopt::set_tcp_nodelay(&socket, true).map_err(|e| client("TCP_NODELAY", e))?;
        // The client ends thousands of connections at once: with a reset no port stays in TIME-WAIT.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO))
            .map_err(|e| client("SO_LINGER", e))?;
        let started = self.now();
        let pending = match connect(&socket, &self.plan.address) {
            Ok(()) => false,
            Err(Errno::INPROGRESS) => true,
            Err(Errno::ADDRNOTAVAIL) => return Err(client("connect", Errno::ADDRNOTAVAIL)),
            Err(e) => return Err(LoadError::Refused(e.to_string())),
        };
        use epoll::EventFlags as F;
        let interest = F::IN | F::OUT | F::RDHUP | F::ET;
        epoll::add(
            &self.epoll,
            &socket,
            epoll::EventData::new_u64(index as u64),
            interest,
        )
        .map_err(|e| client("epoll_ctl", e))?;
        let slot = &mut self.slots[index];
        slot.socket = Some(socket);
        slot.started = started;
        slot.state = State::Connecting;
        self.connecting += 1;
        if pending {
            Ok(())
        } else {
            self.connected(index)
        }
    }

    fn connected(&mut self, index: usize) -> Result<(), LoadError> {
        let socket = self.slots[index]
            .socket
            .as_ref()
            .expect("a connecting slot has a socket");
        match sockopt::socket_error(socket) {
            Ok(Ok(())) => {}
            Ok(Err(e)) | Err(e) => return Err(LoadError::Refused(e.to_string())),
        }
        let preface = self.plan.preface.as_bytes();
        // The buffer of a new socket has room for all of it.
        if !preface.is_empty() && send(socket, preface, SendFlags::NOSIGNAL) != Ok(preface.len()) {
            return Err(LoadError::Client(
                "a connection's first bytes are not taken".into(),
            ));
        }
        let Some(tls) = self.plan.tls else {
            return self.ready(index);
        };
        self.slots[index].session = Some(Box::new(Session::new(tls)?));
        self.slots[index].state = State::Handshaking;
        self.flush(index)
    }

    /// A connection is there, with its handshake where it has one.
    fn ready(&mut self, index: usize) -> Result<(), LoadError> {
        self.connecting -= 1;
        if self.plan.keep_alive && (self.holding || self.plan.bursts) {
            self.slots[index].state = State::Idle;
            return Ok(());
        }
        let started = self.slots[index].started;
        self.send(index, started)
    }

    /// Sends the next request on a connection that has none outstanding.
    fn send(&mut self, index: usize, started: u64) -> Result<(), LoadError> {
        self.prepare(index)?;
        self.slots[index].started = started;
        self.send_prepared(index)
    }

    /// Chooses what is asked for next on a connection, and seals the request where there is TLS.
    fn prepare(&mut self, index: usize) -> Result<(), LoadError> {
        let target = self.choice.next();
        let slot = &mut self.slots[index];
        slot.target = target;
        slot.received = 0;
        slot.state = State::AwaitingHead;
        match slot.session.as_mut() {
            Some(session) => session.seal(&self.requests[target as usize]),
            None => Ok(()),
        }
    }

    fn send_prepared(&mut self, index: usize) -> Result<(), LoadError> {
        let slot = &self.slots[index];
        if slot.session.is_some() {
            return self.flush(index);
        }
        let request = &self.requests[slot.target as usize];
        let socket = slot.socket.as_ref().expect("an open slot has a socket");
        let sent = send(socket, request, SendFlags::NOSIGNAL);
        self.check_sent(index, sent, request.len())
    }

    /// Sends what TLS has to send.
    fn flush(&mut self, index: usize) -> Result<(), LoadError> {
        let slot = &mut self.slots[index];
        let (Some(session), Some(socket)) = (slot.session.as_mut(), slot.socket.as_ref()) else {
            return Ok(());
        };
        if session.outgoing.is_empty() {
            return Ok(());
        }
        let sent = send(socket, &session.outgoing, SendFlags::NOSIGNAL);
        let len = session.outgoing.len();
        session.outgoing.clear();
        self.check_sent(index, sent, len)
    }

    fn check_sent(
        &self,
        index: usize,
        sent: Result<usize, Errno>,
        len: usize,
    ) -> Result<(), LoadError> {
        match sent {
            Ok(sent) if sent == len => Ok(()),
            Ok(_) => Err(LoadError::Client(
                "a request did not fit the socket buffer".into(),
            )),
            Err(e) => Err(self.broken(index, format!("send: {e}"))),
        }
    }

    fn path(&self, index: usize) -> String {
        self.plan.targets[self.slots[index].target as usize]
            .path
            .clone()
    }

    fn wrong(&self, index: usize, what: String) -> LoadError {
        LoadError::Wrong {
            path: self.path(index),
            what,
        }
    }

    fn broken(&self, index: usize, what: String) -> LoadError {
        LoadError::Broken {
            path: self.path(index),
            what,
        }
    }

    fn tally(&self, elapsed: Duration, client_cpu: Duration) -> Tally {
        let served = self.slots.iter().map(|slot| slot.served).collect();
        let measured = (&self.latency, &self.last);
        self.counts.tally(served, measured, (elapsed, client_cpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Content, Target};

    #[test]
    fn a_run_does_not_wait_for_connections_that_are_made_anew() {
        let interrupt = std::sync::atomic::AtomicBool::new(false);
        let targets = [Target {
            path: "/".into(),
            content: Content::new(b"Hello, World!"[..].into(), 0, 13),
        }];
        for (keep_alive, responses, expected) in
            [(true, 1, true), (false, 0, true), (false, 1, false)]
        {
            let mut plan =
                crate::load::tests::plan(([127, 0, 0, 1], 1).into(), &targets, &interrupt);
            plan.keep_alive = keep_alive;
            let mut client = Client::new(&plan).expect("a client");
            assert!(client.opening(), "none was begun");
            (client.opened, client.connecting) = (plan.connections, 1);
            client.responses = responses;
            assert_eq!(client.opening(), expected, "{keep_alive} {responses}");
        }
    }
}
