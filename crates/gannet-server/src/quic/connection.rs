//! A QUIC connection: what the library says of it becomes requests, and answers become content of
//! its streams.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use gannet_http::binary::priority::Priority;
use gannet_http::h2::Time;
use gannet_http::h3::ErrorCode;
use gannet_io::driver::{DatagramSocket, Driver, Nanos};
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, Dir, Event, StreamEvent, StreamId,
};

use super::limits::{
    END_AFTER_MS, SEND_WINDOW, SEND_WINDOW_MIN, SEND_WINDOW_READ, VENTURED_BY_MOVE,
};
use super::streams::{Streams, code};
use crate::config::Limits;
use crate::connection::ConnId;
use crate::observe::log::{End, Record};
use crate::worker::shared::Shared;

/// See the module's description.
pub(crate) struct QuicConn {
    pub(super) id: ConnId,
    pub(super) handle: ConnectionHandle,
    /// Where its last datagram came in.
    pub(super) socket: DatagramSocket,
    pub(super) quic: Connection,
    pub(super) streams: Streams,
    /// It is among those that have something to do.
    pub(super) is_marked: bool,
    /// Its socket did not take what it had to send.
    pub(super) waits_for_socket: bool,
    /// Its handshake is under way.
    pub(super) is_shaking: bool,
    /// It is closed, and ends with its turn.
    is_over: bool,
    /// It ends without a word.
    pub(super) is_silent: bool,
    /// When something must have happened, library included; no entry of the timers is later.
    pub(super) deadline: Nanos,
    /// Its earliest entry among the timers.
    pub(super) scheduled: Nanos,
    /// When something must have happened that the library knows nothing of.
    pub(super) own_deadline: Option<Nanos>,
    /// When it was accepted, or its last answer was finished.
    pub(super) idle_since: Nanos,
    /// Bytes of datagrams received.
    received: u64,
    /// Bytes that may have been sent to addresses which had not shown that they are the peer's.
    ventured: u64,
    /// Bytes sent beyond what every datagram has: content, and what was lost of it.
    pub(super) sent: u64,
    /// Since when its answers wait for their peer, or when it was last found to take enough of them;
    /// and how much had been sent by then.
    stalled: Option<(Nanos, u64)>,
    /// When no more requests are taken: its end was announced.
    end_at: Option<Nanos>,
    /// No more requests are taken.
    is_ending: bool,
    /// It goes on in the next turn, whatever happens.
    pub(super) has_more: bool,
    /// The peer's address, if requests are logged.
    peer: Option<Box<str>>,
}

impl QuicConn {
    /// A connection whose first datagram was just received.
    pub(super) fn new(
        id: ConnId,
        handle: ConnectionHandle,
        socket: DatagramSocket,
        quic: Connection,
        now: Nanos,
        logs: bool,
    ) -> Self {
        let peer = logs.then(|| quic.remote_address().to_string().into());
        Self {
            id,
            handle,
            socket,
            quic,
            streams: Streams::new(now),
            is_marked: false,
            waits_for_socket: false,
            is_shaking: true,
            is_over: false,
            is_silent: false,
            deadline: Nanos(u64::MAX),
            scheduled: Nanos(u64::MAX),
            own_deadline: None,
            idle_since: now,
            received: 0,
            ventured: 0,
            sent: 0,
            stalled: None,
            end_at: None,
            is_ending: false,
            has_more: false,
            peer,
        }
    }

    /// Whether it is closed, and ends with its turn.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether a datagram counts that says to come from there. The library answers one from a new
    /// address with more than three times as much: what is sent to addresses that may be a victim's
    /// stays below three times what the peer has sent in all (RFC 9000 section 8).
    pub(super) fn may_come_from(&mut self, address: SocketAddr, len: usize) -> bool {
        self.received += len as u64;
        if address == self.quic.remote_address() {
            return true;
        }
        let may = self.ventured + VENTURED_BY_MOVE <= 3 * self.received;
        self.ventured += if may { VENTURED_BY_MOVE } else { 0 };
        may
    }

    /// By when its peer, for which an answer waits, must have taken enough.
    fn progress_by(&self, limits: &Limits) -> Option<Nanos> {
        let (since, _) = self.stalled?;
        // Answers that were begun since then are no sign of a peer that takes nothing.
        let since = since.max(self.streams.oldest_untaken()?);
        Some(since.plus_ms(limits.progress_timeout_ms))
    }

    /// Whether its peer has taken enough, if that is due. What leaves is what its congestion window
    /// allows, and that moves with its acknowledgements.
    fn goes_on(&mut self, now: Nanos, limits: &Limits) -> bool {
        let is_due = self.progress_by(limits).is_some_and(|by| by <= now);
        let before = self.stalled.filter(|_| is_due).map(|(_, before)| before);
        let Some(before) = before else { return true };
        let least = (limits.send_rate_min * limits.progress_timeout_ms / 1_000).max(1);
        self.stalled = Some((now, self.sent));
        self.sent - before >= least
    }

    /// Whether nothing is under way on it.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_over && !self.is_shaking && self.streams.is_idle()
    }

    /// The peer has changed the priority of an answer.
    pub(super) fn prioritize(&mut self, id: StreamId, priority: Priority) {
        if let Some(stream) = self.streams.find(id) {
            stream.machine.prioritize(priority);
            self.set_priority(id);
        }
    }

    /// Lets the library have no more content than the path takes soon: what it has goes before what is
    /// asked for later, however urgent.
    pub(super) fn set_send_window(&mut self) {
        let most = match self.streams.has_read {
            true => SEND_WINDOW_READ,
            false => SEND_WINDOW,
        };
        let soon = 2 * self.quic.congestion_state().window();
        let least = SEND_WINDOW_MIN.min(most);
        self.quic.set_send_window(soon.clamp(least, most));
    }

    /// Has the library send answers in the order of their priorities.
    pub(super) fn set_priority(&mut self, id: StreamId) {
        if let Some(rank) = self.streams.arrange(id) {
            // A stream that is gone has none.
            let _ = self.quic.send_stream(id).set_priority(rank);
        }
    }
}

/// A connection in its turn, with what all connections of its worker share.
pub(crate) struct Active<'a, D: Driver> {
    pub(super) conn: &'a mut QuicConn,
    pub(super) shared: &'a mut Shared<D>,
    /// The time as the library has it.
    pub(super) now: Instant,
}

impl<D: Driver> Active<'_, D> {
    /// All that follows from what has happened.
    pub(super) fn run(&mut self) {
        self.conn.has_more = false;
        let now = self.shared.driver.now();
        self.conn.streams.machine.refill(Time(now.0));
        while let Some(event) = self.conn.quic.poll() {
            self.event(event);
        }
        self.conn.streams.drop_acknowledged();
        if !self.conn.is_over {
            self.check_deadlines(now);
        }
        if !self.conn.is_over {
            self.accept_requests();
            self.ask_missed();
            self.feed();
            self.set_deadline();
        }
        self.log_finished();
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => {}
            Event::Connected => {
                self.conn.is_shaking = false;
                self.shared.counters.quic.connections += 1;
                self.open_control();
            }
            Event::ConnectionLost { reason } => self.lost(&reason),
            Event::Stream(_) if self.conn.is_over => {}
            Event::Stream(event) => match event {
                // Before the bytes that came on them.
                StreamEvent::Opened { dir: Dir::Uni } => self.accept_uni(),
                // Accepted when all that has happened is known.
                StreamEvent::Opened { dir: Dir::Bi } => {}
                StreamEvent::Readable { id } => self.readable(id),
                StreamEvent::Writable { id } if self.conn.streams.is_control(id) => {
                    self.write_control();
                }
                StreamEvent::Writable { id } => self.conn.streams.writable(id),
                StreamEvent::Finished { id } => self.conn.streams.acknowledged(id),
                StreamEvent::Stopped { id, .. } => self.stopped(id),
                StreamEvent::Available { dir: Dir::Uni } => self.open_control(),
                StreamEvent::Available { dir: Dir::Bi } => {}
            },
        }
    }

    /// Opens our control stream, once the peer lets us.
    fn open_control(&mut self) {
        let conn = &mut *self.conn;
        if conn.streams.has_control() {
            return;
        }
        let Some(id) = conn.quic.streams().open(Dir::Uni) else {
            return;
        };
        // Nothing goes before it; it was opened just now.
        let _ = conn.quic.send_stream(id).set_priority(i32::MAX);
        conn.streams.control_opened(id);
        self.write_control();
    }

    /// Sends what the machine has to say on the control stream.
    fn write_control(&mut self) {
        let conn = &mut *self.conn;
        let Some((id, bytes)) = conn.streams.take_control() else {
            return;
        };
        let written = conn.quic.send_stream(id).write(&bytes).unwrap_or(0);
        conn.streams.say(&bytes[written..]);
    }

    /// Ends the connection.
    pub(super) fn close(&mut self, error: ErrorCode, reason: &'static str) {
        let reason = Bytes::from_static(reason.as_bytes());
        self.conn.quic.close(self.now, code(error), reason);
        self.forget();
    }

    fn lost(&mut self, reason: &ConnectionError) {
        let counters = &mut self.shared.counters;
        match reason {
            ConnectionError::TimedOut => counters.timeouts += 1,
            ConnectionError::Reset => counters.socket_errors += 1,
            ConnectionError::TransportError(_) | ConnectionError::VersionMismatch => {
                let key = match self.conn.is_shaking {
                    true => ("transport", "handshake"),
                    false => ("transport", "protocol"),
                };
                *counters.quic.errors.entry(key).or_default() += 1;
            }
            _ => {}
        }
        self.forget();
    }

    /// Drops what only answers need.
    fn forget(&mut self) {
        let conn = &mut *self.conn;
        conn.streams.abandon();
        conn.own_deadline = None;
        conn.is_over = true;
        self.log_finished();
    }

    /// Writes the log lines of responses that were finished, or ended early.
    fn log_finished(&mut self) {
        let whole = std::mem::take(&mut self.conn.streams.whole);
        self.log(whole, End::Whole);
        let cut = std::mem::take(&mut self.conn.streams.cut);
        self.log(cut, End::CutShort);
    }

    fn log(&mut self, records: Vec<Record>, end: End) {
        let (now, unix_ms) = (self.shared.driver.now().0, self.shared.driver.unix_ms());
        let peer = self.conn.peer.as_deref().unwrap_or("-");
        for record in records {
            self.shared.log.add(&record, peer, end, now, unix_ms);
        }
    }

    /// What should have happened by now.
    fn check_deadlines(&mut self, now: Nanos) {
        if self.conn.own_deadline.is_none_or(|at| at > now) {
            return;
        }
        let limits = self.shared.settings.limits;
        let is_late = |since: Nanos, ms| since.plus_ms(ms) <= now;
        let conn = &mut *self.conn;
        if conn.is_shaking {
            if is_late(conn.idle_since, limits.head_timeout_ms) {
                self.shared.counters.timeouts += 1;
                self.shared.counters.tls.failed_by("timeout");
                // Its address may be another's, which has got enough (RFC 9000 section 8.1).
                self.conn.is_silent = true;
                self.close(ErrorCode::NO_ERROR, "handshake timeout");
            }
            return;
        }
        if conn.end_at.is_some_and(|at| at <= now) {
            conn.end_at = None;
            conn.is_ending = true;
            let mut bytes = Vec::new();
            conn.streams.machine.end(&mut bytes);
            conn.streams.say(&bytes);
            self.write_control();
        }
        for id in self.conn.streams.late_requests(now, limits.head_timeout_ms) {
            self.shared.counters.timeouts += 1;
            self.give_up_stream(id, ErrorCode::REQUEST_INCOMPLETE);
        }
        let conn = &mut *self.conn;
        if conn.streams.is_idle() {
            let is_late = is_late(conn.idle_since, limits.idle_timeout_ms);
            if conn.is_ending || is_late {
                self.shared.counters.timeouts += u64::from(is_late);
                self.close(ErrorCode::NO_ERROR, "");
            }
        } else if !conn.goes_on(now, &limits) {
            self.shared.counters.timeouts += 1;
            self.shared.counters.cut_short += 1;
            self.close(ErrorCode::REQUEST_CANCELLED, "stalled");
        }
    }

    /// When the next of these is to happen.
    fn set_deadline(&mut self) {
        let limits = self.shared.settings.limits;
        let now = self.shared.driver.now();
        let conn = &mut *self.conn;
        if conn.is_ending && conn.streams.is_idle() {
            return self.close(ErrorCode::NO_ERROR, "");
        }
        match conn.streams.oldest_untaken() {
            Some(_) => _ = conn.stalled.get_or_insert((now, conn.sent)),
            None => conn.stalled = None,
        }
        let all = if conn.is_shaking {
            [
                Some(conn.idle_since.plus_ms(limits.head_timeout_ms)),
                None,
                None,
            ]
        } else if conn.streams.is_idle() {
            [
                conn.end_at,
                Some(conn.idle_since.plus_ms(limits.idle_timeout_ms)),
                None,
            ]
        } else {
            let began = conn.streams.oldest_request();
            [
                conn.end_at,
                conn.progress_by(&limits),
                began.map(|at| at.plus_ms(limits.head_timeout_ms)),
            ]
        };
        conn.own_deadline = all.into_iter().flatten().min();
    }

    /// The server is stopping: requests under way are finished, and those that the peer has sent
    /// before it knows.
    pub(crate) fn drain(&mut self) {
        let now = self.shared.driver.now();
        let conn = &mut *self.conn;
        if conn.is_over || conn.end_at.is_some() || conn.is_ending {
            return;
        }
        if conn.is_shaking {
            return self.close(ErrorCode::NO_ERROR, "");
        }
        let round_trip = u64::try_from(conn.quic.rtt().as_millis()).unwrap_or(u64::MAX);
        conn.end_at = Some(now.plus_ms((2 * round_trip).clamp(1, END_AFTER_MS)));
        let mut bytes = Vec::new();
        conn.streams.machine.announce_end(&mut bytes);
        conn.streams.say(&bytes);
        self.write_control();
    }

    /// The end, now. Whether answers were under way.
    pub(crate) fn stop(&mut self) -> bool {
        if self.conn.is_over {
            return false;
        }
        let was_sending = !self.conn.streams.is_idle();
        self.close(ErrorCode::NO_ERROR, "");
        was_sending
    }

    /// Another connection needs the room of this one, which is idle.
    pub(crate) fn shed(&mut self) {
        self.shared.counters.shed += 1;
        self.close(ErrorCode::NO_ERROR, "");
    }

    /// Memory has run out, and this one is given up.
    pub(crate) fn give_up(&mut self) {
        if !self.conn.is_over {
            self.shared.counters.shed += 1;
            self.close(ErrorCode::INTERNAL_ERROR, "");
        }
    }
}
