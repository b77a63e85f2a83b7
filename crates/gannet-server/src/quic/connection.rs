//! A QUIC connection: turns the library's events into requests, and responses into stream content.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use gannet_http::binary::priority::Priority;
use gannet_http::h2::Time;
use gannet_http::h3::{self, ErrorCode, Why};
use gannet_io::driver::{DatagramSocket, Driver, Nanos, Peer};
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, ConnectionStats, Dir, Event, StreamEvent,
    StreamId, Transmit, TransportErrorCode,
};

use super::allowance::Allowance;
use super::pace::Pace;
use super::sending::Trains;
use super::streams::{RequestStreams, code};
use crate::bounds::ledger::{Account, BytesByAccount};
use crate::bounds::quic::{
    self as bounds, DATAGRAM_MAX, DATAGRAMS_UNCHECKED_MAX, END_AFTER_MS, FRAMES_MAX, SEND_WINDOW,
    SEND_WINDOW_MIN, SEND_WINDOW_READ,
};
use crate::bounds::tls::CLIENT_CHAIN_BYTES_MAX;
use crate::clients::Client;
use crate::config::Limits;
use crate::exchange::shared::Shared;
use crate::exchange::stream_waits::DiskStreams;
use crate::ground::token::ConnId;
use crate::observe::metrics::ClientCounters;
use crate::observe::record::{End, Record};
use crate::observe::stages::Stage;
use crate::tls::alert::Alert;
use crate::tls::quic::client_certificate;

/// A QUIC connection with its HTTP/3 streams.
pub(crate) struct QuicConn {
    pub(super) id: ConnId,
    pub(super) handle: ConnectionHandle,
    /// The socket by which it sends: the one that received its first datagram, or the first one
    /// from its current address.
    pub(super) socket: DatagramSocket,
    /// The same for its last validated address, to which it returns if a migration fails (RFC 9000
    /// section 9.3.2).
    pub(super) validated_socket: DatagramSocket,
    pub(super) quic: Connection,
    pub(super) streams: RequestStreams,
    /// It is queued for a turn.
    pub(super) is_marked: bool,
    /// Its socket was full; it is queued again when the socket accepts datagrams.
    pub(super) waits_for_socket: bool,
    phase: QuicPhase,
    /// As what it is counted.
    pub(super) stage: Option<Stage>,
    /// The library holds the client's certificates.
    has_client_certificate: bool,
    /// How it was closed, if it was; it is removed at the end of its turn.
    closed: Option<Closing>,
    /// When it needs a turn even if no datagram arrives: the earlier of the library's timeout and
    /// `own_deadline`; `u64::MAX` if there is neither. Set by
    /// [`Table::schedule`](super::table::Table::schedule), which ensures that `scheduled` is not
    /// later.
    pub(super) deadline: Nanos,
    /// Its earliest entry among the timers of the table, `u64::MAX` if it has none.
    pub(super) scheduled: Nanos,
    /// The earliest of the deadlines that this server adds to the library's: for the handshake, for
    /// a request's head, for progress, for idleness, for a client's rate, and for the end of a stop.
    pub(super) own_deadline: Option<Nanos>,
    /// When it was accepted, or its last response was completed.
    pub(super) idle_since: Nanos,
    /// STREAM frames read from the library.
    pub(super) pieces_read: u64,
    /// Datagrams received since the unread ones were counted.
    pub(super) datagrams_unchecked: u32,
    /// The limit on bytes sent to an address that is not validated.
    pub(super) allowance: Allowance,
    /// Bytes sent in datagrams with STREAM frames, retransmissions included,
    /// [`BARE_MAX`](crate::bounds::quic::BARE_MAX) of each datagram excepted.
    pub(super) sent: u64,
    /// STREAM frames sent so far.
    pub(super) streams_sent: u64,
    /// The start of the current progress period, and the value of `sent` then. `None` while no
    /// response waits for the peer.
    stalled: Option<(Nanos, u64)>,
    /// When it stops accepting requests, after the first GOAWAY was sent.
    end_at: Option<Nanos>,
    /// The limit on its client's rate.
    pub(super) pace: Pace,
    /// It needs the next turn as well, whether or not anything arrives.
    pub(super) has_more: bool,
    /// The client at its last validated address, if requests are logged or there are rules about
    /// clients.
    pub(super) client: Option<Box<Client>>,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum QuicPhase {
    /// Its handshake is in progress.
    Shaking,
    /// It accepts requests.
    Open,
    /// The last GOAWAY was sent: new requests are refused.
    Ending,
}

/// How a connection was closed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Closing {
    /// Its last packet has a CONNECTION_CLOSE.
    Announced,
    /// It sends nothing more.
    Silent,
}

impl QuicConn {
    /// Creates a connection that the endpoint has just accepted.
    pub(super) fn new(
        id: ConnId,
        handle: ConnectionHandle,
        socket: DatagramSocket,
        quic: Connection,
        allowance: Allowance,
        now: Nanos,
        client: Option<Box<Client>>,
    ) -> Self {
        Self {
            id,
            handle,
            socket,
            validated_socket: socket,
            quic,
            streams: RequestStreams::new(now),
            is_marked: false,
            waits_for_socket: false,
            phase: QuicPhase::Shaking,
            stage: None,
            has_client_certificate: false,
            closed: None,
            deadline: Nanos(u64::MAX),
            scheduled: Nanos(u64::MAX),
            own_deadline: None,
            idle_since: now,
            pieces_read: 0,
            datagrams_unchecked: 0,
            allowance,
            sent: 0,
            streams_sent: 0,
            stalled: None,
            end_at: None,
            pace: Pace::default(),
            has_more: false,
            client,
        }
    }

    /// Whether it is closed. The end of its turn then removes it.
    pub(super) fn is_over(&self) -> bool {
        self.closed.is_some()
    }

    /// Whether it is closed without a CONNECTION_CLOSE.
    pub(super) fn is_silent(&self) -> bool {
        self.closed == Some(Closing::Silent)
    }

    /// Whether its handshake is in progress, or was when it was closed.
    pub(super) fn is_shaking(&self) -> bool {
        self.phase == QuicPhase::Shaking
    }

    /// Whether to process a datagram of `len` bytes from this source address, which may be spoofed.
    /// `has_our_id`: it carries a connection ID chosen by this server, so its sender has received a
    /// packet of the handshake (RFC 9000 section 8.1).
    ///
    /// Until the handshake completes, bytes from other addresses do not count.
    pub(super) fn may_come_from(
        &mut self,
        address: SocketAddr,
        len: usize,
        has_our_id: bool,
    ) -> bool {
        let is_there = address == self.quic.remote_address();
        if is_there || !self.is_shaking() {
            self.allowance.receive(len);
        }
        if is_there && self.is_shaking() && has_our_id {
            self.allowance.show();
        }
        is_there || self.allowance.lets_move()
    }

    /// Maximum datagrams of the next train; 0 while the limit of an unvalidated address is reached.
    pub(super) fn datagrams_max(&self) -> usize {
        let longest = match self.is_shaking() {
            true => self.quic.current_mtu(),
            // Probes of the path's MTU are longer than the MTU known so far.
            false => DATAGRAM_MAX.max(self.quic.current_mtu()),
        };
        let allowed = self.allowance.datagrams(longest);
        Trains::datagrams_max(self.quic.current_mtu()).min(allowed)
    }

    /// Writes the library's next packets, at most `most` datagrams, and counts their bytes.
    pub(super) fn next_packets(
        &mut self,
        now: Instant,
        most: usize,
        buffer: &mut Vec<u8>,
        counters: &mut ClientCounters,
    ) -> Option<Transmit> {
        let challenges = |stats: ConnectionStats| {
            // Every packet has a challenge, except probes of the MTU.
            stats.frame_tx.path_challenge + stats.path.sent_plpmtud_probes
        };
        let is_shown = self.allowance.is_shown();
        let before = (!is_shown).then(|| challenges(self.quic.stats()));
        let transmit = self.quic.poll_transmit(now, most, buffer)?;
        let has_challenge = before.is_some_and(|before| challenges(self.quic.stats()) != before);
        match transmit.destination == self.quic.remote_address() {
            true if is_shown => {}
            // After a migration, the library sends PATH_CHALLENGE with every packet until it is
            // answered, except with CONNECTION_CLOSE.
            true if self.is_shaking() || has_challenge || self.is_over() => {
                self.allowance.sent(transmit.size);
            }
            true => self.validated(counters),
            // A challenge to the previous address goes to one that was validated.
            false if has_challenge => {}
            // An answer to a challenge from an address that the client only probes.
            false => self.allowance.strayed(transmit.size),
        }
        Some(transmit)
    }

    /// The address after a migration is validated: from now on the log names it.
    fn validated(&mut self, counters: &mut ClientCounters) {
        self.allowance.has_answered();
        self.validated_socket = self.socket;
        if let Some(client) = &mut self.client {
            client.moved(self.quic.remote_address(), counters);
        }
    }

    /// No client answered at the address of a migration: the library has returned to the previous one.
    pub(super) fn returned(&mut self) {
        self.allowance.show();
        self.socket = self.validated_socket;
    }

    /// The socket for datagrams to this address: a challenge may go to the previous one.
    pub(super) fn socket_for(&self, destination: SocketAddr) -> DatagramSocket {
        match destination == self.quic.remote_address() {
            true => self.socket,
            false => self.validated_socket,
        }
    }

    /// The end of the current progress period, if a response waits for the peer.
    fn progress_by(&self, limits: &Limits) -> Option<Nanos> {
        let (since, _) = self.stalled?;
        // A response begun since then has had less time.
        let since = since.max(self.streams.oldest_untaken()?);
        Some(since.plus_ms(limits.progress_timeout_ms))
    }

    /// Whether the peer makes progress; starts the next period if the current one has ended. Bytes
    /// sent are a measure of what the peer accepts, because the congestion window moves only with
    /// its acknowledgements.
    fn goes_on(&mut self, now: Nanos, limits: &Limits) -> bool {
        let is_due = self.progress_by(limits).is_some_and(|by| by <= now);
        let before = self.stalled.filter(|_| is_due).map(|(_, before)| before);
        let Some(before) = before else { return true };
        let least = (limits.send_rate_min * limits.progress_timeout_ms / 1_000).max(1);
        self.stalled = Some((now, self.sent));
        self.sent - before >= least
    }

    /// Bytes a second that its client is sent at most.
    pub(super) fn rate(&self) -> Option<u64> {
        self.client.as_ref()?.pace()
    }

    /// The memory that it holds. The library does not report its own, so an upper bound is computed:
    /// STREAM frames of abandoned streams, for example, count as unread.
    pub(super) fn held(&self) -> BytesByAccount {
        let stats = self.quic.stats();
        let pieces = self.pieces_unread(&stats);
        let sent = match self.streams.is_idle() {
            true => 0,
            false => stats.path.cwnd,
        };
        let mut held = self.streams.held();
        held[Account::Transport] = bounds::held(pieces, sent);
        if self.has_client_certificate {
            held[Account::Transport] += CLIENT_CHAIN_BYTES_MAX as u64;
        }
        held[Account::Log] += Client::identity_bytes(self.client.as_deref());
        held
    }

    /// STREAM frames received and not read: an upper bound, which includes duplicates and those of
    /// abandoned streams since it was last idle.
    fn pieces_unread(&self, stats: &ConnectionStats) -> u64 {
        stats.frame_rx.stream.saturating_sub(self.pieces_read)
    }

    /// Whether it is connected and has no request.
    pub(super) fn is_idle(&self) -> bool {
        !self.is_over() && !self.is_shaking() && self.streams.is_idle()
    }

    /// The peer has changed the priority of a response.
    pub(super) fn prioritize(&mut self, id: StreamId, priority: Priority) {
        if let Some(stream) = self.streams.find(id) {
            stream.machine.prioritize(priority);
            self.set_priority(id);
        }
    }

    /// Limits the content passed to the library to about two round trips' worth: a more urgent
    /// response cannot overtake it there.
    pub(super) fn set_send_window(&mut self) {
        let most = match self.streams.has_read {
            true => SEND_WINDOW_READ,
            false => SEND_WINDOW,
        };
        let soon = 2 * self.quic.congestion_state().window();
        let least = SEND_WINDOW_MIN.min(most);
        self.quic.set_send_window(soon.clamp(least, most));
    }

    /// Passes the rank of a stream to the library, if it has changed.
    pub(super) fn set_priority(&mut self, id: StreamId) {
        if let Some(rank) = self.streams.arrange(id) {
            // Fails only if the stream has ended.
            let _ = self.quic.send_stream(id).set_priority(rank);
        }
    }
}

/// A connection together with what all connections of its worker share, for the time of a turn or a
/// call.
pub(crate) struct ActiveQuic<'a, D: Driver> {
    pub(super) conn: &'a mut QuicConn,
    pub(super) shared: &'a mut Shared<D>,
    /// The current time, as the library counts it.
    pub(super) now: Instant,
}

impl<D: Driver> ActiveQuic<'_, D> {
    /// Handles the library's events and the deadlines that have passed, starts lookups, passes
    /// content to the library, and sets the next deadline. Called once per turn; the packets are
    /// sent afterwards.
    pub(super) fn run(&mut self) {
        self.conn.has_more = false;
        let now = self.shared.driver.now();
        self.conn.streams.machine.refill(Time(now.0));
        while let Some(event) = self.conn.quic.poll() {
            self.event(event);
        }
        self.conn.streams.drop_acknowledged();
        if !self.conn.is_over() {
            self.check_deadlines(now);
        }
        if !self.conn.is_over() {
            self.accept_requests();
            self.ask_missed();
            self.feed();
            self.set_deadline();
        }
        if !self.conn.is_over() && self.conn.datagrams_unchecked >= DATAGRAMS_UNCHECKED_MAX {
            self.check_pieces();
        }
        self.end_finished();
    }

    /// Ends the connection if too many STREAM frames wait for others before them.
    fn check_pieces(&mut self) {
        let conn = &mut *self.conn;
        conn.datagrams_unchecked = 0;
        let stats = conn.quic.stats();
        if conn.streams.is_idle() {
            conn.pieces_read = stats.frame_rx.stream;
        } else if conn.pieces_unread(&stats) > FRAMES_MAX {
            self.fail(h3::ConnectionError::of(Why::TooManyPieces));
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::HandshakeDataReady | Event::DatagramReceived | Event::DatagramsUnblocked => {}
            Event::Connected => {
                self.conn.phase = QuicPhase::Open;
                let stages = &mut self.shared.counters.stages;
                stages.move_on(&mut self.conn.stage, Some(Stage::Http3));
                let tls = &mut self.shared.counters.tls;
                tls.quic += 1;
                tls.early += u64::from(self.conn.quic.has_0rtt());
                if let Some(measures) = &mut self.shared.counters.measures {
                    let took = self.shared.driver.now().0 - self.conn.idle_since.0;
                    measures.quic_handshake(took);
                }
                self.note_certificate();
                if !self.counts_client() {
                    return self.close(ErrorCode::EXCESSIVE_LOAD, "too many connections");
                }
                self.open_control();
                if self.shared.stop_at.is_some() {
                    self.drain();
                }
            }
            Event::ConnectionLost { reason } => self.lost(&reason),
            Event::Stream(_) if self.conn.is_over() => {}
            Event::Stream(event) => match event {
                // Reported before their bytes.
                StreamEvent::Opened { dir: Dir::Uni } => self.accept_uni(),
                // Accepted after all events of the turn.
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

    /// Notes the certificate of its client, if clients are asked for one.
    fn note_certificate(&mut self) {
        if !self.shared.asks_clients() {
            return;
        }
        let certificate = client_certificate(&self.conn.quic);
        self.conn.has_client_certificate = certificate.is_some();
        let client = self.conn.client.as_deref_mut();
        self.shared.note_certificate(certificate.as_deref(), client);
    }

    /// Counts the connection of its client, whose address is validated now. False if that has too
    /// many.
    fn counts_client(&mut self) -> bool {
        let counters = &mut self.shared.counters.clients;
        let now = self.shared.driver.now();
        let Some(client) = &mut self.conn.client else {
            return true;
        };
        let may_have_one_more = client.connect(now, counters);
        if !may_have_one_more {
            let peer = Peer::Ip(self.conn.quic.remote_address());
            self.shared.note_too_many(peer, client.key());
        }
        self.shared.note_client(self.conn.id, client);
        may_have_one_more
    }

    /// Opens our control stream and writes SETTINGS. Called when the handshake completes and, in
    /// case the peer permitted no unidirectional stream then, whenever it raises that limit. Does
    /// nothing if the stream is open.
    fn open_control(&mut self) {
        let conn = &mut *self.conn;
        if conn.streams.has_control() {
            return;
        }
        let Some(id) = conn.quic.streams().open(Dir::Uni) else {
            return;
        };
        // Before all other streams. Cannot fail: the stream was opened just now.
        let _ = conn.quic.send_stream(id).set_priority(i32::MAX);
        conn.streams.control_opened(id);
        self.write_control();
    }

    /// Passes the bytes waiting for our control stream to the library, which may accept only a
    /// part.
    fn write_control(&mut self) {
        let conn = &mut *self.conn;
        let Some((id, bytes)) = conn.streams.take_control() else {
            return;
        };
        let written = conn.quic.send_stream(id).write(&bytes).unwrap_or(0);
        conn.streams.say(&bytes[written..]);
    }

    /// Closes the connection. It sends CONNECTION_CLOSE with this code at the end of its turn.
    pub(super) fn close(&mut self, error: ErrorCode, reason: &'static str) {
        let reason = Bytes::from_static(reason.as_bytes());
        self.conn.quic.close(self.now, code(error), reason);
        self.forget();
    }

    fn lost(&mut self, reason: &ConnectionError) {
        if self.conn.is_shaking() {
            self.shared.counters.tls.failed_by(failure(reason));
            if let ConnectionError::TransportError(error) = reason
                && let Some(alert) = alert(error.code)
            {
                self.shared.count_refused_client(alert);
            }
        }
        let counters = &mut self.shared.counters;
        match reason {
            ConnectionError::TimedOut => counters.timeouts += 1,
            ConnectionError::Reset => counters.socket_errors += 1,
            ConnectionError::TransportError(_) | ConnectionError::VersionMismatch => {
                let key = match self.conn.is_shaking() {
                    true => ("transport", "handshake"),
                    false => ("transport", "protocol"),
                };
                *counters.quic.errors.entry(key).or_default() += 1;
            }
            _ => {}
        }
        self.forget();
    }

    /// Marks it as over, and drops its requests and responses.
    fn forget(&mut self) {
        let conn = &mut *self.conn;
        conn.streams.abandon();
        conn.own_deadline = None;
        conn.closed.get_or_insert(Closing::Announced);
        self.end_finished();
    }

    /// Logs and measures responses that were completed or cut short.
    fn end_finished(&mut self) {
        let whole = std::mem::take(&mut self.conn.streams.whole);
        self.end(whole, End::Whole);
        let cut = std::mem::take(&mut self.conn.streams.cut);
        self.end(cut, End::CutShort);
    }

    fn end(&mut self, records: Vec<Record>, end: End) {
        let named = Client::named(self.conn.client.as_deref());
        for record in records {
            self.shared.record_ended(&record, named, end);
        }
    }

    /// Enforces the deadlines that have passed.
    fn check_deadlines(&mut self, now: Nanos) {
        if self.conn.own_deadline.is_none_or(|at| at > now) {
            return;
        }
        let limits = self.shared.settings.limits;
        let is_late = |since: Nanos, ms| since.plus_ms(ms) <= now;
        let conn = &mut *self.conn;
        if conn.is_shaking() {
            if is_late(conn.idle_since, limits.head_timeout_ms) {
                self.shared.counters.timeouts += 1;
                self.shared.counters.tls.failed_by("timeout");
                // Its address may be spoofed: send no more (RFC 9000 section 8.1).
                self.conn.closed = Some(Closing::Silent);
                self.close(ErrorCode::NO_ERROR, "handshake timeout");
            }
            return;
        }
        if conn.end_at.is_some_and(|at| at <= now) {
            conn.end_at = None;
            conn.phase = QuicPhase::Ending;
            let mut bytes = Vec::new();
            conn.streams.machine.end(&mut bytes);
            conn.streams.say(&bytes);
            self.write_control();
        }
        for id in self.conn.streams.late_requests(now, limits.head_timeout_ms) {
            self.shared.counters.timeouts += 1;
            self.give_up_stream(id, ErrorCode::REQUEST_INCOMPLETE);
        }
        // As over HTTP/2, a disk that hangs has the time of a peer that does.
        for id in self
            .conn
            .streams
            .late_waits(now, limits.progress_timeout_ms)
        {
            self.shared.counters.timeouts += 1;
            self.give_up_stream(id, ErrorCode::INTERNAL_ERROR);
        }
        let conn = &mut *self.conn;
        if conn.streams.is_idle() {
            let is_late = is_late(conn.idle_since, limits.idle_timeout_ms);
            if conn.phase == QuicPhase::Ending || is_late {
                self.shared.counters.timeouts += u64::from(is_late);
                self.close(ErrorCode::NO_ERROR, "");
            }
        } else if !conn.goes_on(now, &limits) {
            self.shared.counters.timeouts += 1;
            self.shared.counters.cut_short += 1;
            self.close(ErrorCode::REQUEST_CANCELLED, "stalled");
        }
    }

    /// Sets `own_deadline`; closes a connection that is stopping and idle.
    fn set_deadline(&mut self) {
        let limits = self.shared.settings.limits;
        let now = self.shared.driver.now();
        let conn = &mut *self.conn;
        if conn.phase == QuicPhase::Ending && conn.streams.is_idle() {
            return self.close(ErrorCode::NO_ERROR, "");
        }
        match conn.streams.oldest_untaken() {
            Some(_) => _ = conn.stalled.get_or_insert((now, conn.sent)),
            None => conn.stalled = None,
        }
        let all = if conn.is_shaking() {
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
        let wait = conn.streams.oldest_wait();
        let wait = wait.map(|since| since.plus_ms(limits.progress_timeout_ms));
        let all = all.into_iter().chain([conn.pace.next(), wait]);
        conn.own_deadline = all.flatten().min();
    }

    /// Called once when the server begins to stop: sends the first GOAWAY. Requests in progress are
    /// completed, and so are those that the peer sends before it receives the GOAWAY.
    pub(crate) fn drain(&mut self) {
        let now = self.shared.driver.now();
        let conn = &mut *self.conn;
        if conn.is_over() || conn.end_at.is_some() || conn.phase == QuicPhase::Ending {
            return;
        }
        if conn.is_shaking() {
            // After a hand-over it is drained once it is established.
            if !self.shared.is_handed_over {
                self.close(ErrorCode::NO_ERROR, "");
            }
            return;
        }
        let round_trip = u64::try_from(conn.quic.rtt().as_millis()).unwrap_or(u64::MAX);
        // Its first request may be on the way.
        let least = if self.shared.is_handed_over {
            END_AFTER_MS
        } else {
            1
        };
        conn.end_at = Some(now.plus_ms((2 * round_trip).clamp(least, END_AFTER_MS)));
        let mut bytes = Vec::new();
        conn.streams.machine.announce_end(&mut bytes);
        conn.streams.say(&bytes);
        self.write_control();
    }

    /// Closes it at once: the grace period is over, or the stop is forced. Returns whether requests
    /// were in progress.
    pub(crate) fn stop(&mut self) -> bool {
        if self.conn.is_over() {
            return false;
        }
        let was_sending = !self.conn.streams.is_idle();
        self.close(ErrorCode::NO_ERROR, "");
        was_sending
    }

    /// Closes an idle connection to make room for another one: the worker is at its limit of
    /// connections, or short of memory.
    pub(crate) fn shed(&mut self) {
        self.shared.counters.shed += 1;
        self.close(ErrorCode::NO_ERROR, "");
    }

    /// Closes it because memory has run out.
    pub(crate) fn give_up(&mut self) {
        if !self.conn.is_over() {
            self.shared.counters.shed += 1;
            self.close(ErrorCode::INTERNAL_ERROR, "");
        }
    }
}

/// The reason of a failed handshake for the metrics: the TLS alert of either side, if there is one.
pub(super) fn failure(reason: &ConnectionError) -> &'static str {
    match reason {
        ConnectionError::TransportError(error) => alert(error.code).map_or("quic", Alert::name),
        ConnectionError::ConnectionClosed(close) => {
            alert(close.error_code).map_or("closed", Alert::name)
        }
        ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed => "closed",
        ConnectionError::TimedOut => "timeout",
        ConnectionError::Reset => "reset",
        ConnectionError::VersionMismatch | ConnectionError::CidsExhausted => "quic",
    }
}

/// The TLS alert in an error code (RFC 9001 section 4.8).
fn alert(code: TransportErrorCode) -> Option<Alert> {
    let alert = u64::from(code).checked_sub(0x100)?;
    u8::try_from(alert).ok().map(Alert)
}
