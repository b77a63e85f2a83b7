//! A worker: one thread, one engine, its own listeners, connections and view of the content.
//!
//! One turn of the loop: submit and wait; dispatch each completion to its owner; run deferred work
//! within the turn's budget; fire timers. Other threads reach a worker through its inbox. How a
//! connection handles its completions: see [`connection`](crate::connection).

mod accepting;
mod deferred;
mod giving_back;
mod holding;
mod incidents;
pub(crate) mod stopping;

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use gannet_http::semantics::date::DateLine;
use gannet_io::driver::{Completion, DatagramSocket, Done, Driver, Errno, Listener, Nanos, Token};

use crate::bounds::ledger::{Budget, Ledger, Work};
use crate::bounds::limits::{OPEN_IDLE_MS, ROOM_AGAIN_MS, UNAWAITED_MAX};
use crate::connection::{Active, Connections};
use crate::exchange::fetching::Fetching;
use crate::exchange::first_reads::FirstReads;
use crate::exchange::listing::Listing;
use crate::exchange::loading::Loading;
use crate::exchange::shared::Shared;
use crate::exchange::shortage::Shortage;
use crate::exchange::surveying::Surveying;
use crate::exchange::unopened::Unopened;
use crate::exchange::waiters::{Line, Waiters};
use crate::ground::delay::Delays;
use crate::ground::held_hellos::HeldHellos;
use crate::ground::idle_queue::IdleQueue;
use crate::ground::inbox::Message;
use crate::ground::inbox::Peers;
use crate::ground::settings::WorkerSettings;
use crate::ground::tails::Tails;
use crate::ground::timers::Wheel;
use crate::ground::token::ConnId;
use crate::ground::token::{Kind, number, token};
use crate::ground::turns::Turns;
use crate::observe::log::LogSink;
use crate::observe::measures::Measures;
use crate::observe::metrics::Counters;
use crate::passwords::PasswordCache;
use crate::passwords::checker::Checked;
use crate::quic::Quic;
use crate::release::Release;
use crate::release::wakeup::Wakeup;
use crate::tls::certificates::Adopted;

/// See the module documentation.
pub(crate) struct Worker<D: Driver> {
    pub(crate) shared: Shared<D>,
    conns: Connections,
    /// HTTP/3, if enabled.
    pub(crate) quic: Option<Quic>,
    /// Destinations for datagrams of other workers' connections.
    pub(crate) peers: Peers,
    inbox: Receiver<Message>,
    /// Completions; some remain if the last turn had too little memory for them.
    completions: Vec<Completion>,
    /// Connections whose timers have fired, likewise.
    due: Vec<ConnId>,
    peaks: holding::Peaks,
    /// Candidates to close for new connections.
    idle: IdleQueue,
    /// Earliest time at which connections may again be closed for lack of memory.
    pub(crate) shed_at: Nanos,
    /// Since when memory has been too short for a turn.
    short_since: Option<Nanos>,
    giving_back: giving_back::GivingBack,
    /// Next time to close idle files, if any may be open.
    close_idle_at: Option<Nanos>,
    over: bool,
    /// Connections that were cut off in the middle of an answer when it stopped.
    cut: u64,
}

impl<D: Driver> Worker<D> {
    /// A worker ready for its first turn.
    pub(crate) fn new(
        driver: D,
        settings: WorkerSettings,
        release: Release,
        measures: Option<Box<Measures>>,
        log: LogSink,
        inbox: Receiver<Message>,
    ) -> Self {
        let now = driver.now();
        let counters = Counters {
            archive_copied: settings.archive_copied,
            measures,
            ..Counters::default()
        };
        let shared = Shared {
            waiters: Waiters::default(),
            wheel: Wheel::new(now),
            counters,
            log,
            date: DateLine::new(driver.unix_seconds()),
            scratch: Vec::new(),
            stream_fields: Vec::new(),
            spare: Vec::new(),
            plain: Vec::new(),
            certificates: settings.certificates.as_ref().map(Adopted::new),
            hellos: VecDeque::new(),
            held_hellos: HeldHellos::default(),
            budget: Budget::whole(),
            ledger: Ledger::new(
                release.cache_memory,
                release.directory_count(),
                release.long_max(),
            ),
            first_reads: FirstReads::default(),
            rereads: Line::default(),
            lengths: Line::default(),
            look_at: Nanos(0),
            turns: Turns::default(),
            shortage: Shortage::default(),
            ended: 0,
            fetching: Fetching::new(settings.supply.clone(), settings.workers),
            loading: Loading::default(),
            listing: Listing::default(),
            surveying: Surveying::default(),
            passwords: PasswordCache::new(Arc::clone(&settings.checker), settings.number),
            sites: Unopened::default(),
            starved: Vec::new(),
            accept_at: None,
            tails: Tails::default(),
            stop_at: None,
            is_handed_over: false,
            delays: Delays::new(settings.limits.delay_ms),
            driver,
            settings,
            release: Rc::new(release),
        };
        let mut worker = Self {
            shared,
            conns: Connections::default(),
            quic: None,
            peers: Peers::default(),
            inbox,
            completions: Vec::new(),
            due: Vec::new(),
            peaks: holding::Peaks::default(),
            idle: IdleQueue::default(),
            shed_at: Nanos(0),
            short_since: None,
            giving_back: giving_back::GivingBack::default(),
            close_idle_at: None,
            over: false,
            cut: 0,
        };
        for listener in 0..worker.shared.settings.listener_count() {
            worker.shared.accept(Listener(listener));
        }
        worker.begin_quic();
        worker
    }

    /// The token of wake-up completions from this worker's driver.
    pub(crate) fn wake_token() -> Token {
        token(Kind::Wake, 0)
    }

    /// Runs until a stop. Returns how many connections were cut off in the middle of an answer.
    ///
    /// # Errors
    /// The engine failed and cannot continue.
    pub(crate) fn run(mut self) -> Result<u64, Errno> {
        while !self.is_over() {
            self.turn(None)?;
        }
        self.shared.settings.incidents.sum_up(Nanos(u64::MAX));
        Ok(self.cut)
    }

    /// Whether the worker has stopped for good.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// One turn of the loop; waits until `until` at the latest.
    ///
    /// # Errors
    /// The engine failed and cannot continue.
    pub(crate) fn turn(&mut self, until: Option<Nanos>) -> Result<(), Errno> {
        let was_held_up = !self.completions.is_empty() || !self.due.is_empty();
        let quic = self.quic_deadline();
        let shared = &mut self.shared;
        let until = [
            until,
            shared.wheel.next_deadline(),
            shared.stop_at,
            shared.accept_at,
            self.close_idle_at,
            shared.settings.incidents.due(),
            shared.tails.next_check(),
            shared.shortage.next_try(),
            (!shared.lengths.0.is_empty()).then_some(shared.look_at),
            shared.delays.next_due(),
            shared.fetching.due(),
            self.giving_back.next(),
            quic,
            was_held_up.then(|| shared.driver.now().plus_ms(ROOM_AGAIN_MS)),
            shared.has_deferred_work().then(|| shared.driver.now()),
        ]
        .into_iter()
        .flatten()
        .min();
        let mut completions = std::mem::take(&mut self.completions);
        shared.driver.wait(until, &mut completions)?;
        shared.date.at(shared.driver.unix_seconds());
        shared.budget = Budget::whole();
        shared.sites.begin_turn();
        self.shake_queued();
        self.complete_all(completions);
        self.run_quic();
        // Before the timers: input that arrived in time is not late because `--delay` held it back.
        self.hand_on();
        self.give_up_fetches();
        self.load_bodies();
        self.read_directories();
        self.admit_first_reads();
        self.look_at_lengths();
        self.admit_rereads();
        self.drop_unawaited();
        self.try_short_again();
        self.fire_timers();
        self.check_tails();
        self.serve_long();
        self.close_idle_files();
        self.check_accept();
        let lost = self.shared.release.fit_caches(&mut self.shared.driver);
        self.shared.ledger.set_lost(lost);
        self.sum_up_incidents();
        self.make_room();
        self.give_back();
        self.check_stop();
        self.shared.log.flush();
        Ok(())
    }

    /// The engine, for tests that drive a simulated one.
    pub(crate) fn driver(&mut self) -> &mut D {
        &mut self.shared.driver
    }

    /// Runs `act` on a connection, unless it has ended, and frees its slot if it ends now.
    pub(crate) fn on(&mut self, id: ConnId, act: impl FnOnce(&mut Active<'_, D>)) {
        let Some(conn) = self.conns.find(id) else {
            return;
        };
        let shared = &mut self.shared;
        let mut active = Active { conn, shared };
        act(&mut active);
        if active.is_over() {
            self.conns.free(id.slot);
        }
    }

    /// Dispatches completions while memory lasts; the rest wait until memory has been freed.
    fn complete_all(&mut self, mut completions: Vec<Completion>) {
        let mut all = completions.drain(..);
        while self.has_room()
            && let Some(completion) = all.next()
        {
            self.complete(completion);
        }
        let mut rest = Vec::new();
        for completion in all {
            match Kind::of(completion.token) {
                // A stop must not wait.
                Kind::Wake => self.complete(completion),
                _ => rest.push(completion),
            }
        }
        completions.extend(rest);
        self.completions = completions;
    }

    fn complete(&mut self, completion: Completion) {
        let Completion {
            token,
            result,
            more,
        } = completion;
        let id = ConnId::of(token);
        match Kind::of(token) {
            Kind::Accept => {
                let listener = Listener(number(token));
                match result {
                    Ok(Done::Accepted(socket)) => self.accepted(listener, socket, more),
                    Ok(_) => debug_assert!(false, "a listener accepts"),
                    Err(_) => self.accept_failed(listener, more),
                }
            }
            Kind::Receive | Kind::Send => self.connection_completed(id, result, more),
            Kind::Disk => self.wake_connection(id, result.and_then(Wakeup::try_from)),
            Kind::StreamDisk => {
                let answer = result.and_then(Wakeup::try_from);
                self.wake_stream(number(token), answer);
            }
            Kind::Load => self.shared.body_read(number(token), result),
            Kind::FirstRead => self.first_read_ended(number(token), result),
            Kind::Listing => self.listed(number(token), result),
            Kind::Survey => self.shared.surveyed(number(token), result),
            Kind::Wake => self.read_inbox(),
            Kind::Datagram => match result {
                Ok(Done::Datagram(datagram)) => {
                    self.datagram(DatagramSocket(number(token)), datagram);
                }
                Ok(_) => debug_assert!(false, "a socket receives datagrams"),
                Err(_) => self.shared.counters.socket_errors += 1,
            },
            Kind::Sendable => self.sendable(DatagramSocket(number(token))),
        }
    }

    fn connection_completed(&mut self, id: ConnId, result: Result<Done, Errno>, more: bool) {
        if self.conns.find(id).is_none() {
            // One wait may report further input for a connection that was closed just now; its slot
            // may already be reused.
            if let Ok(Done::Received(lease)) = result {
                self.shared.driver.release(lease);
            }
            return;
        }
        self.on(id, |conn| match result {
            Ok(Done::Received(lease)) => conn.received(lease, more),
            Ok(Done::Ended) => conn.ended(),
            Ok(Done::Sent(bytes)) => conn.sent(bytes),
            Ok(_) => debug_assert!(false, "a socket receives and sends"),
            Err(errno) => conn.send_failed(errno),
        });
    }

    /// Delivers a disk result to a connection, or drops it, with any descriptor in it, if the
    /// connection is gone.
    fn wake_connection(&mut self, id: ConnId, answer: Result<Wakeup, Errno>) {
        self.on(id, |conn| conn.woken(answer));
    }

    /// The same for a stream.
    fn wake_stream(&mut self, number: u32, answer: Result<Wakeup, Errno>) {
        let Some(question) = self.shared.waiters.streams.take(number) else {
            return;
        };
        if question.conn.is_quic() {
            self.quic_woken(question, answer);
        } else {
            self.on(question.conn, |conn| conn.stream_woken(question, answer));
        }
    }

    /// Wakes a connection, or one of its streams, with the result it waits for. A result may wake
    /// many and cannot be deferred: those without memory for a turn end.
    pub(crate) fn wake(&mut self, waiter: Token, wakeup: Result<Wakeup, Errno>) {
        if !self.has_room() {
            return self.give_up(waiter);
        }
        match Kind::of(waiter) {
            Kind::StreamDisk => self.wake_stream(number(waiter), wakeup),
            _ => self.wake_connection(ConnId::of(waiter), wakeup),
        }
    }

    fn give_up(&mut self, waiter: Token) {
        let id = match Kind::of(waiter) {
            Kind::StreamDisk => match self.shared.waiters.streams.take(number(waiter)) {
                Some(question) => question.conn,
                None => return,
            },
            _ => ConnId::of(waiter),
        };
        match id.is_quic() {
            true => self.on_quic(id, |conn| conn.give_up()),
            false => self.on(id, |conn| conn.give_up()),
        }
    }

    /// Number of connections, including HTTP/3.
    pub(crate) fn connection_count(&self) -> usize {
        self.conns.len() + self.quic.as_ref().map_or(0, Quic::len)
    }

    /// Makes the disk's threads skip operations for connections that have ended. Not for each
    /// single one, because it scans everything that is queued.
    fn drop_unawaited(&mut self) {
        if self.shared.ended < UNAWAITED_MAX {
            return;
        }
        let Shared {
            driver,
            waiters,
            ended,
            ..
        } = &mut self.shared;
        *ended = 0;
        driver.drop_unawaited(&mut |waiter| match Kind::of(waiter) {
            Kind::Disk | Kind::StreamDisk => !waiters.forget_if_gone(waiter),
            // Operations with many waiters are bounded where they are submitted.
            _ => true,
        });
    }

    pub(crate) fn read_inbox(&mut self) {
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Stop => self.stop(),
                Message::HandOver(taken) => self.hand_over(&taken),
                Message::StopNow => self.stop_now(),
                Message::Release(opened, _applying) => self.shared.serve(&opened),
                Message::Peers(peers) => self.peers = peers,
                Message::Datagram(datagram) => {
                    self.peers.taken(self.shared.settings.number);
                    self.handle(*datagram);
                }
                Message::PasswordChecked(key, checked) => {
                    for waiter in self
                        .shared
                        .passwords
                        .checked(&key, checked == Checked::Right)
                    {
                        self.wake(waiter, Ok(Wakeup::PasswordChecked(checked)));
                    }
                }
                Message::SiteOpened(host, opened) => {
                    for waiter in self.shared.sites.take(&host) {
                        self.wake(waiter, Ok(Wakeup::SiteOpened(opened)));
                    }
                }
                Message::Supplied(reply) => {
                    if let Some(fetched) = self.shared.fetched(reply) {
                        self.wake_fetched(fetched);
                    }
                }
                Message::Certificates => {
                    for id in self.shared.held_hellos.take() {
                        self.on(id, |conn| conn.resume_held());
                    }
                }
                Message::Snapshot(reply) => {
                    // The requester may have stopped waiting.
                    let _ = reply.send(self.snapshot());
                }
            }
        }
    }

    /// A copy of the counters, brought up to date.
    pub(crate) fn snapshot(&mut self) -> Counters {
        if let Some(measures) = &mut self.shared.counters.measures {
            measures.roll(self.shared.driver.now());
        }
        Counters {
            connections_now: self.connection_count() as u64,
            log_dropped: self.shared.log.dropped(),
            io: self.shared.driver.counters(),
            held: self.holdings(),
            ..self.shared.counters.clone()
        }
    }

    /// Runs handshakes deferred by earlier turns.
    fn shake_queued(&mut self) {
        while self.shared.budget.has_left(Work::Hello) && self.has_room() {
            let Some(id) = self.shared.hellos.pop_front() else {
                return;
            };
            self.on(id, |conn| conn.shake_deferred());
        }
    }

    /// Handles connections whose deadlines may have passed.
    fn fire_timers(&mut self) {
        let shared = &mut self.shared;
        let now = shared.driver.now();
        if shared.wheel.next_deadline().is_some_and(|at| at <= now) {
            shared.wheel.fire(now, &mut self.due);
        }
        while self.has_room()
            && let Some(id) = self.due.pop()
        {
            self.on(id, |conn| conn.due());
        }
    }

    /// Resumes responses whose peers have acknowledged all pages of a long file.
    fn check_tails(&mut self) {
        let now = self.shared.driver.now();
        while self.has_room()
            && let Some(id) = self.shared.tails.take_due(now)
        {
            self.on(id, |conn| conn.check_tail());
        }
    }

    /// Closes files of live directories that have not been requested for a while.
    fn close_idle_files(&mut self) {
        let now = self.shared.driver.now();
        if self.close_idle_at.is_some_and(|at| at <= now) {
            self.close_idle_at = None;
            self.shared.release.close_idle(now);
        }
        if self.close_idle_at.is_none() && self.shared.release.has_live() {
            self.close_idle_at = Some(now.plus_ms(OPEN_IDLE_MS));
        }
    }
}
