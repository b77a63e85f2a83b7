//! A worker: one thread, one engine, its own listeners, connections and view of the content.
//!
//! One turn of the loop: wait; for each completion find its owner by token; fire timers; submit.
//! Workers share nothing that changes, except through their inboxes.

mod deadlines;
mod delay;
mod disk;
mod early;
mod guard;
mod inflating;
mod kernel_tls;
mod receiving;
mod sending;
mod stopping;
mod stream_disk;
mod streams;
mod tls;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use gannet_content::rules::pattern::Scheme as UrlScheme;
use gannet_http::semantics::date::DateLine;
use gannet_io::driver::{
    Completion, Done, Driver, Errno, Listener, Nanos, OpenedFile, Socket, Token,
};

use crate::config::{Limits, Scheme};
use crate::conn::{Conns, Phase};
use crate::limits::{ACCEPT_AGAIN_MS, SHED_MAX};
use crate::log::LogSink;
use crate::metrics::Counters;
use crate::own_fields::OwnFields;
use crate::redirect::Redirect;
use crate::site::rules::SiteRules;
use crate::site::sites::Sites;
use crate::timers::{Timed, Wheel};
use crate::tls::certificates::{Adopted, CertificateStore};
use crate::tls::kernel::KernelTls;

/// What other threads tell a worker.
pub(crate) enum Message {
    /// Stop accepting, finish running responses within the grace period.
    Stop,
    /// End at once.
    StopNow,
    /// The rules of the live directory of this number are these from now on.
    Rules(u32, Option<Arc<SiteRules>>),
    /// Send a copy of the counters.
    Snapshot(std::sync::mpsc::Sender<Counters>),
}

/// What a worker is made with.
pub(crate) struct WorkerSettings {
    /// Timeouts and limits.
    pub(crate) limits: Limits,
    /// The most connections of this worker.
    pub(crate) connections_max: usize,
    /// What is spoken at each of the listeners that its driver was created with.
    pub(crate) listeners: Vec<Scheme>,
    /// Fields that every answer carries.
    pub(crate) fields: Arc<Vec<(String, String)>>,
    /// The same for answers over TLS.
    pub(crate) secure_fields: Arc<Vec<(String, String)>>,
    /// Where HTTPS is, for connections that are sent there.
    pub(crate) redirect: Redirect,
    /// The certificates, if any listener speaks TLS.
    pub(crate) certificates: Option<Arc<CertificateStore>>,
    /// Fields that the server's own answers have by default.
    pub(crate) defaults: Arc<OwnFields>,
    /// What the kernel does for connections over TLS.
    pub(crate) kernel_tls: Option<KernelTls>,
    /// Records that a key of a connection seals before it is replaced.
    pub(crate) key_records_max: u64,
    /// Bytes of archives in memory that this worker tells of: one of those that share them does.
    pub(crate) archive_copied: u64,
    /// A secret, for multipart delimiters.
    pub(crate) seed: u64,
}

impl WorkerSettings {
    fn listener_count(&self) -> u32 {
        u32::try_from(self.listeners.len()).expect("listeners are few")
    }

    /// The configured fields as the protocol machine wants them.
    fn fields(&self, is_secure: bool) -> ConnectionFields<'_> {
        let (fields, scheme) = if is_secure {
            (&self.secure_fields, UrlScheme::Https)
        } else {
            (&self.fields, UrlScheme::Http)
        };
        let lines = fields.iter();
        ConnectionFields {
            lines: lines
                .map(|(name, value)| (name.as_str(), value.as_bytes()))
                .collect(),
            scheme,
        }
    }
}

/// What depends on whether a connection speaks TLS.
struct ConnectionFields<'a> {
    lines: Vec<(&'a str, &'a [u8])>,
    scheme: UrlScheme,
}

/// See the module's description.
pub(crate) struct Worker<D: Driver> {
    driver: D,
    settings: WorkerSettings,
    conns: Conns,
    wheel: Wheel,
    sites: Sites,
    counters: Counters,
    log: LogSink,
    inbox: Receiver<Message>,
    date: DateLine,
    /// Where decoded paths are put together.
    scratch: Vec<u8>,
    /// Where the fields of HTTP/2's requests are put together.
    stream_fields: Vec<u8>,
    /// What the disk was asked on behalf of streams.
    stream_disk: stream_disk::Asked,
    completions: Vec<Completion>,
    due: Vec<Timed>,
    /// A buffer that the last pump did not need.
    spare: Vec<u8>,
    /// Where received records are opened.
    plain: Vec<u8>,
    /// Where mapped bytes are read to before they are sealed.
    read_back: Vec<u8>,
    /// The certificates in use.
    certificates: Option<Adopted>,
    /// Connections whose ClientHello waits for a turn with time for it.
    hellos: VecDeque<(u32, u32)>,
    /// How many there is time for in this turn.
    hellos_left: u32,
    /// Bodies on their way into memory.
    inflating: inflating::Inflating,
    /// Accepting ended for lack of descriptors; these listeners start again when one is free.
    starved: Vec<Listener>,
    /// When that is tried again at the latest.
    accept_at: Option<Nanos>,
    /// Guards that writers wait for.
    breaking: Vec<guard::Breaking>,
    /// Set by a stop: when the grace period is over.
    stop_at: Option<Nanos>,
    /// What has arrived and is looked at later.
    delays: delay::Delays,
    over: bool,
    /// No response was cut off by the end of the grace period.
    clean: bool,
}

/// What a token asks for; the rest of the token names who asked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
enum Kind {
    Accept = 1,
    Receive = 2,
    Send = 3,
    Disk = 4,
    Wake = 5,
    Guard = 6,
    /// The disk, on behalf of a stream: the slot is one of `stream_disk`.
    StreamDisk = 7,
    /// The disk, for a body that is to be inflated.
    Inflation = 8,
}

impl Kind {
    fn is_of(self, token: Token) -> bool {
        token.0 >> 56 == self as u64
    }
}

/// kind (8 bits) | generation (24) | slot (32).
fn token(kind: Kind, slot: u32, generation: u32) -> Token {
    Token(u64::from(kind as u8) << 56 | u64::from(generation) << 32 | u64::from(slot))
}

/// The slot and generation of a token.
fn owner(token: Token) -> (u32, u32) {
    (
        token.0 as u32,
        (token.0 >> 32) as u32 & crate::conn::GENERATION_MAX,
    )
}

impl<D: Driver> Worker<D> {
    /// A worker that is ready for its first turn.
    pub(crate) fn new(
        driver: D,
        settings: WorkerSettings,
        sites: Sites,
        log: LogSink,
        inbox: Receiver<Message>,
    ) -> Self {
        let now = driver.now();
        let date = DateLine::new(driver.unix_seconds());
        let certificates = settings.certificates.as_ref().map(Adopted::new);
        let delays = delay::Delays::new(settings.limits.delay_ms);
        let counters = Counters {
            archive_copied: settings.archive_copied,
            ..Counters::default()
        };
        let mut worker = Self {
            driver,
            settings,
            conns: Conns::default(),
            wheel: Wheel::new(now),
            sites,
            counters,
            log,
            inbox,
            date,
            scratch: Vec::new(),
            stream_fields: Vec::new(),
            stream_disk: stream_disk::Asked::default(),
            completions: Vec::new(),
            due: Vec::new(),
            spare: Vec::new(),
            plain: Vec::new(),
            read_back: Vec::new(),
            certificates,
            hellos: VecDeque::new(),
            hellos_left: 0,
            inflating: inflating::Inflating::default(),
            starved: Vec::new(),
            accept_at: None,
            breaking: Vec::new(),
            stop_at: None,
            delays,
            over: false,
            clean: true,
        };
        for listener in 0..worker.settings.listener_count() {
            worker
                .driver
                .accept(Listener(listener), token(Kind::Accept, listener, 0));
        }
        worker.guard_archive();
        worker
    }

    /// The token that wakes of this worker's driver carry.
    pub(crate) fn wake_token() -> Token {
        token(Kind::Wake, 0, 0)
    }

    /// Runs until a stop. True if no response was cut off.
    ///
    /// # Errors
    /// When the engine cannot go on.
    pub(crate) fn run(mut self) -> Result<bool, Errno> {
        while !self.is_over() {
            self.turn(None)?;
        }
        Ok(self.clean)
    }

    /// Whether the worker has stopped for good.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// One turn of the loop; waits until `until` at the latest.
    ///
    /// # Errors
    /// When the engine cannot go on.
    pub(crate) fn turn(&mut self, until: Option<Nanos>) -> Result<(), Errno> {
        let until = [
            until,
            self.wheel.next_deadline(),
            self.stop_at,
            self.next_guard_check(),
            self.accept_at,
            self.delays.next_due(),
            (!self.hellos.is_empty() || self.inflating.is_due()).then(|| self.driver.now()),
        ]
        .into_iter()
        .flatten()
        .min();
        let mut completions = std::mem::take(&mut self.completions);
        self.driver.wait(until, &mut completions)?;
        self.date.at(self.driver.unix_seconds());
        self.allow_hellos();
        self.shake_queued();
        for completion in completions.drain(..) {
            self.complete(completion);
        }
        self.completions = completions;
        // Before the timers: what has come in time is not late because it was held back.
        self.hand_on();
        self.inflate();
        self.fire_timers();
        self.check_guards();
        self.end_guards();
        self.check_accept();
        self.check_stop();
        self.log.flush();
        Ok(())
    }

    /// The engine, for tests that drive a simulated one.
    pub(crate) fn driver(&mut self) -> &mut D {
        &mut self.driver
    }

    fn complete(&mut self, completion: Completion) {
        let Completion {
            token,
            result,
            more,
        } = completion;
        let (slot, generation) = owner(token);
        let kind = token.0 >> 56;
        let is_of_connection = kind == Kind::Receive as u64 || kind == Kind::Send as u64;
        if is_of_connection && self.conns.find(slot, generation).is_none() {
            // The same wait brought more for a connection that was closed just now; its slot may
            // have another one already.
            if let Ok(Done::Received(lease)) = result {
                self.driver.release(lease);
            }
            return;
        }
        if kind == Kind::StreamDisk as u64 {
            return self.stream_disk_answered(slot, result);
        }
        if kind == Kind::Inflation as u64 {
            return self.gzip_read(slot, result);
        }
        match result {
            Ok(Done::Received(lease)) => self.received(slot, lease, more),
            Ok(Done::Sent(bytes)) => self.sent(slot, bytes),
            Ok(Done::Accepted(socket)) => self.accepted(Listener(slot), socket, more),
            Ok(Done::Ended) => self.ended(slot),
            Ok(Done::Opened(opened)) => self.disk(slot, generation, Ok(Disk::Opened(opened))),
            Ok(Done::Read(bytes)) => self.disk(slot, generation, Ok(Disk::Read(bytes))),
            Ok(Done::Listed(entries)) => self.disk(slot, generation, Ok(Disk::Listed(entries))),
            Ok(Done::GuardBroken) => self.guard_broken(slot),
            Ok(Done::Woken) => self.read_inbox(),
            Err(errno) => match kind {
                k if k == Kind::Accept as u64 => self.accept_failed(Listener(slot), errno, more),
                k if k == Kind::Disk as u64 => self.disk(slot, generation, Err(errno)),
                _ => self.socket_failed(slot),
            },
        }
    }

    pub(crate) fn read_inbox(&mut self) {
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Stop => self.stop(),
                Message::StopNow => self.stop_now(),
                Message::Rules(site, rules) => self.sites.set_rules(site, rules),
                Message::Snapshot(reply) => {
                    // Whoever asked may have stopped waiting.
                    let _ = reply.send(self.snapshot());
                }
            }
        }
    }

    /// A copy of the counters, brought up to date.
    pub(crate) fn snapshot(&mut self) -> Counters {
        Counters {
            connections_now: self.conns.len() as u64,
            log_dropped: self.log.dropped(),
            io: self.driver.counters(),
            ..self.counters.clone()
        }
    }

    fn accepted(&mut self, listener: Listener, socket: Socket, more: bool) {
        if !more {
            self.driver
                .accept(listener, token(Kind::Accept, listener.0, 0));
        }
        if self.conns.len() >= self.settings.connections_max && self.shed_idle(1) == 0 {
            self.counters.shed += 1;
            self.driver.close(socket);
            return;
        }
        let slot = self.conns.add(socket);
        self.counters.connections_total += 1;
        self.counters.connections_max = self.counters.connections_max.max(self.conns.len() as u64);
        if self.log.is_on() {
            let peer = self.driver.peer(socket);
            self.conns.at(slot).peer = Some(peer.into());
        }
        if self.stop_at.is_some() {
            self.conns.at(slot).h1.drain();
        }
        match self.settings.listeners.get(listener.0 as usize) {
            Some(Scheme::Https) => self.begin_handshake(slot),
            Some(Scheme::Redirect) => {
                let conn = self.conns.at(slot);
                conn.redirects = true;
                conn.is_fresh = false;
            }
            Some(Scheme::Http) | None => {}
        }
        self.conns.at(slot).idle_since = self.driver.now();
        self.arm_first_receive(slot);
        self.set_deadline(slot, self.settings.limits.head_timeout_ms);
    }

    /// Descriptors or memory ran out: idle connections make room, and accepting goes on; with
    /// nobody idle it goes on when a connection ends, or after a while: another worker or another
    /// thread may have what is missing.
    fn accept_failed(&mut self, listener: Listener, _errno: Errno, more: bool) {
        if more {
            return;
        }
        if self.shed_idle(SHED_MAX) > 0 {
            self.driver
                .accept(listener, token(Kind::Accept, listener.0, 0));
        } else {
            self.starved.push(listener);
            self.accept_at = Some(self.driver.now().plus_ms(ACCEPT_AGAIN_MS));
        }
    }

    /// Tries again to accept where that failed before.
    fn accept_again(&mut self) {
        self.accept_at = None;
        for listener in std::mem::take(&mut self.starved) {
            self.driver
                .accept(listener, token(Kind::Accept, listener.0, 0));
        }
    }

    fn check_accept(&mut self) {
        if self.accept_at.is_some_and(|at| at <= self.driver.now()) {
            self.accept_again();
        }
    }

    /// Closes up to `count` of the connections that have been idle longest. Returns how many. At
    /// most half of them, rounded up: the youngest are about to ask for something.
    fn shed_idle(&mut self, count: usize) -> usize {
        let mut idle: Vec<_> = self
            .conns
            .used()
            .filter(|(_, c)| c.is_idle() || c.phase == Phase::Shaking)
            // Several may have come in one turn: slots are used in turn then.
            .map(|(slot, c)| (c.idle_since, c.generation, slot))
            .collect();
        idle.sort_unstable();
        idle.truncate(count.min(idle.len().div_ceil(2)));
        let before = self.conns.len();
        for (_, _, slot) in &idle {
            // Without a goodbye, which would keep the descriptor for a while.
            self.silence(*slot);
            self.close(*slot);
        }
        let closed = before - self.conns.len();
        self.counters.shed += closed as u64;
        closed
    }

    /// Ends a connection and frees its slot: at once, or when pages of files have left its queue.
    fn close(&mut self, slot: u32) {
        if self.drains(slot) || self.says_goodbye(slot) {
            return;
        }
        self.driver.close(self.conns.at(slot).socket);
        self.forget(slot);
    }

    /// Ends a connection with a reset: its answer is incomplete.
    fn reset(&mut self, slot: u32) {
        self.driver.reset(self.conns.at(slot).socket);
        self.forget(slot);
    }

    fn forget(&mut self, slot: u32) {
        self.log_work(slot, crate::log::End::CutShort);
        self.drop_streams(slot);
        self.counters.tls.connections_now -= u64::from(self.conns.at(slot).is_secure());
        self.conns.remove(slot);
        if !self.starved.is_empty() {
            self.accept_again();
        }
    }

    fn socket_failed(&mut self, slot: u32) {
        self.counters.socket_errors += 1;
        if self.conns.at(slot).phase == Phase::Shaking {
            self.counters.tls.failed_by("reset");
        }
        // Pages that are still queued may be changed by a writer once nobody guards them.
        self.reset(slot);
    }
}

/// An answer of the disk.
pub(crate) enum Disk {
    Opened(OpenedFile),
    Read(Vec<u8>),
    Listed(Vec<gannet_io::driver::DirectoryEntry>),
    /// The body that was waited for is in memory.
    Inflated,
}
