//! TLS on the way of a connection: the handshake before its first request, records around
//! everything after it, and the alert at its end.
//!
//! What was received is opened here and handed to the pump as if it had come in clear text; what
//! is sent is sealed in `sending`, at the one place through which all sends go.

use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, SendList};

use super::delay::Arrived;
use super::receiving::{pump, turn};
use super::sending::list_len;
use super::stopping::FRESH_MS;
use super::{Kind, Worker, token};
use crate::conn::Phase;
use crate::limits::{COPY_SLICE_MAX, HELD_MAX, HELLOS_PER_TURN_MAX, LINGER_MS, PLAIN_KEPT_MAX};
use crate::log::End;
use crate::pump::Pump;
use crate::secure::{Secure, State};
use crate::serve::{Answering, Reply, Turn};
use crate::tls::alert::{Alert, Fault};
use crate::tls::config::Protocol;
use crate::tls::handshake::{Established, Failure, Kind as HandshakeKind, Step};
use crate::tls::session::Received;

/// What a client gets that speaks HTTP in clear text where TLS is spoken.
const CLEAR_HTTP: &[u8] = b"This port speaks HTTPS: use https:// instead of http://.\n";

impl<D: Driver> Worker<D> {
    /// A connection was accepted where TLS is spoken.
    pub(super) fn begin_handshake(&mut self, slot: u32) {
        let conn = self.conns.at(slot);
        conn.tls = Some(Box::default());
        conn.phase = Phase::Shaking;
        // The version of HTTP is agreed on in the handshake.
        conn.is_fresh = false;
        self.counters.tls.connections_now += 1;
    }

    /// Ciphertext has arrived.
    pub(super) fn received_sealed(&mut self, slot: u32, arrived: Arrived) {
        let conn = self.conns.at(slot);
        let Some(tls) = &mut conn.tls else { return };
        if tls.fault.is_some() || tls.is_over {
            // Our last record is made, or will be: nothing that follows counts any more.
            return arrived.release(&mut self.driver);
        }
        let input = arrived.bytes(&self.driver);
        let State::Open(session) = &mut tls.state else {
            tls.waiting.extend_from_slice(input);
            let is_much = tls.waiting.len() > HELD_MAX;
            arrived.release(&mut self.driver);
            if conn.is_early() {
                return self.shake_early(slot);
            }
            if is_much && conn.receiving {
                conn.receiving = false;
                self.driver.pause_receiving(conn.socket);
            }
            return self.shake(slot);
        };
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let result = session.receive(input, &mut plain);
        arrived.release(&mut self.driver);
        if self.note_received(slot, result) {
            self.opened(slot, &plain);
        }
        if plain.capacity() <= PLAIN_KEPT_MAX {
            self.plain = plain;
        }
    }

    /// Notes what received records have changed beside their content. False if the connection was
    /// ended.
    fn note_received(&mut self, slot: u32, result: Result<Received, Fault>) -> bool {
        let conn = self.conns.at(slot);
        let Some(tls) = &mut conn.tls else {
            return false;
        };
        if let State::Open(session) = &mut tls.state {
            self.counters.tls.updated(session.take_key_updates());
        }
        match result {
            Ok(Received::Open) => {}
            Ok(Received::Closed) => conn.ended = true,
            Err(Fault::Ours(alert)) => {
                tls.fault = Some(alert);
                conn.ended = true;
                self.counters.tls.faults += 1;
            }
            Err(Fault::Peers(_)) => {
                // RFC 8446 section 6.2: nothing is sent any more.
                self.counters.tls.faults += 1;
                self.reset(slot);
                return false;
            }
        }
        true
    }

    /// Plaintext has arrived, or an end, or only a part of a record.
    pub(super) fn opened(&mut self, slot: u32, plain: &[u8]) {
        let conn = self.conns.at(slot);
        match conn.phase {
            Phase::Reading if conn.has_fault() => self.end_by_fault(slot),
            Phase::Reading | Phase::Sending if conn.streams.is_some() => {
                self.streams_opened(slot, plain);
            }
            Phase::Reading if plain.is_empty() => {
                if conn.ended {
                    return self.close(slot);
                }
                self.arm_receive(slot);
            }
            Phase::Reading if conn.held.is_empty() => self.answer_bytes(slot, plain),
            Phase::Reading => {
                conn.held.extend_from_slice(plain);
                self.answer_held(slot);
            }
            Phase::Waiting | Phase::Sending => {
                conn.held.extend_from_slice(plain);
                if conn.held.len() > HELD_MAX && conn.receiving {
                    conn.receiving = false;
                    self.driver.pause_receiving(conn.socket);
                }
            }
            Phase::Free | Phase::Shaking | Phase::Lingering => {}
        }
    }

    /// Answers what `input` asks for; what is left of it is held.
    fn answer_bytes(&mut self, slot: u32, input: &[u8]) {
        let mut out = self.outgoing();
        let fields = self.settings.fields(true);
        let turn = turn!(self, fields);
        let conn = self.conns.at(slot);
        let (used, stop) = pump!(self, turn).run(conn, input, &mut out);
        let head = stop.head(&input[..used]);
        conn.held.extend_from_slice(&input[used..]);
        self.after_pump(slot, out, stop, head);
    }

    /// Goes on with a handshake, if there is something to go on with and nothing to wait for.
    pub(super) fn shake(&mut self, slot: u32) {
        let conn = self.conns.at(slot);
        let generation = conn.generation;
        let Some(tls) = &mut conn.tls else { return };
        let State::Shaking(handshake) = &mut tls.state else {
            return;
        };
        if tls.is_over || tls.is_sending || tls.is_queued || tls.waiting.is_empty() {
            return;
        }
        if handshake.is_at_hello() {
            // A key exchange and a signature: others are waiting for their answers, too.
            if self.hellos_left == 0 {
                tls.is_queued = true;
                self.hellos.push_back((slot, generation));
                return;
            }
            self.hellos_left -= 1;
        }
        let Some(certificates) = &mut self.certificates else {
            return self.reset(slot);
        };
        let input = std::mem::take(&mut tls.waiting);
        let mut out = self.driver.output();
        match handshake.receive(certificates.current(), &input, &mut out) {
            Ok(Step::NeedInput) => {
                let has_early = handshake.has_early();
                tls.is_sending = !out.is_empty();
                if !out.is_empty() {
                    self.send_raw(slot, out);
                } else if has_early {
                    self.spare = out;
                    return self.begin_early(slot);
                } else if conn.ended {
                    self.counters.tls.failed_by("closed");
                    return self.close(slot);
                } else {
                    self.spare = out;
                }
                self.arm_receive(slot);
            }
            Ok(Step::Done(established)) => self.established(slot, *established, out),
            Err(failure) => self.handshake_failed(slot, failure, out),
        }
    }

    /// Handshakes for which there was no time in the last turn.
    pub(super) fn shake_queued(&mut self) {
        while self.hellos_left > 0 {
            let Some((slot, generation)) = self.hellos.pop_front() else {
                return;
            };
            let Some(conn) = self.conns.find(slot, generation) else {
                continue;
            };
            if let Some(tls) = &mut conn.tls {
                tls.is_queued = false;
                self.shake(slot);
            }
        }
    }

    /// A new turn: how many handshakes there is time for.
    pub(super) fn allow_hellos(&mut self) {
        self.hellos_left = HELLOS_PER_TURN_MAX;
    }

    pub(super) fn established(&mut self, slot: u32, established: Established, out: Vec<u8>) {
        let Established {
            mut session,
            protocol,
            kind,
            early,
            plain,
            rest,
            is_closed,
            ..
        } = established;
        match kind {
            HandshakeKind::Full => self.counters.tls.full += 1,
            HandshakeKind::FullWithRetry => self.counters.tls.retried += 1,
            HandshakeKind::Resumed => self.counters.tls.resumed += 1,
        }
        let mut held = early;
        held.extend_from_slice(&plain);
        session.limit_records(self.settings.key_records_max);
        let mut result = session.receive(&rest, &mut held);
        if is_closed && result.is_ok() {
            result = Ok(Received::Closed);
        }
        let conn = self.conns.at(slot);
        let is_early = conn.is_early();
        let Some(tls) = &mut conn.tls else { return };
        if is_early {
            // Requests were answered already; what comes now is no replay.
            tls.state = State::Open(session);
            if let Some(streams) = &mut conn.streams {
                streams.is_early = false;
            }
            if self.note_received(slot, result) {
                self.opened(slot, &held);
            }
            return;
        }
        conn.held = held;
        tls.state = State::Open(session);
        tls.handshake_bytes = conn.sent + out.len() as u64;
        match protocol {
            Protocol::Http11 => {}
            Protocol::H2 => self.begin_streams(slot),
        }
        if !self.note_received(slot, result) {
            return;
        }
        let ms = match self.stop_at {
            Some(_) => FRESH_MS,
            None => self.settings.limits.head_timeout_ms,
        };
        self.set_deadline(slot, ms);
        if out.is_empty() {
            self.spare = out;
            return self.begin(slot);
        }
        // TLS 1.2: the client waits for the end of our side before it asks for anything.
        self.conns.at(slot).phase = Phase::Sending;
        self.send_raw(slot, out);
        self.arm_receive(slot);
    }

    /// The handshake is over: the first request may be there already.
    fn begin(&mut self, slot: u32) {
        let conn = self.conns.at(slot);
        conn.phase = Phase::Reading;
        if conn.has_fault() {
            return self.end_by_fault(slot);
        }
        if conn.streams.is_some() {
            return self.go_on_streams(slot);
        }
        if !conn.held.is_empty() {
            return self.answer_held(slot);
        }
        if conn.ended {
            return self.close(slot);
        }
        // The deadline of the first request runs.
        self.arm_receive(slot);
    }

    fn handshake_failed(&mut self, slot: u32, failure: Failure, out: Vec<u8>) {
        self.counters.tls.failed(&failure);
        let conn = self.conns.at(slot);
        if let Failure::ClearHttp(_) = failure {
            self.spare = out;
            conn.tls = None;
            self.counters.tls.connections_now -= 1;
            return self.answer_clear_http(slot);
        }
        conn.closing = true;
        conn.linger = true;
        if let Some(tls) = &mut conn.tls {
            tls.is_over = true;
        }
        if out.is_empty() {
            self.spare = out;
            return self.close(slot);
        }
        conn.phase = Phase::Sending;
        self.send_raw(slot, out);
        self.set_deadline(slot, LINGER_MS);
    }

    /// Somebody typed the wrong scheme: said in words, and in the protocol that was spoken.
    fn answer_clear_http(&mut self, slot: u32) {
        let mut out = self.outgoing();
        let fields = self.settings.fields(false);
        let turn = turn!(self, fields);
        let conn = self.conns.at(slot);
        conn.h1.reject();
        let answered = Answering {
            reply: Reply::H1(&mut conn.h1),
            turn: &turn,
            out: &mut out,
            ruling: None,
        }
        .generated(
            Status::BAD_REQUEST,
            b"text/plain; charset=utf-8",
            CLEAR_HTTP,
            None,
        );
        self.counters.response(answered.status.0);
        conn.closing = true;
        conn.linger = true;
        self.send(slot, out);
    }

    /// A send of the handshake has completed.
    pub(super) fn shaken(&mut self, slot: u32) {
        let conn = self.conns.at(slot);
        if let Some(tls) = &mut conn.tls {
            tls.is_sending = false;
            if matches!(&tls.state, State::Shaking(handshake) if handshake.has_early()) {
                self.arm_receive(slot);
                return self.begin_early(slot);
            }
        }
        if self.is_deserted(slot) {
            return self.close(slot);
        }
        self.arm_receive(slot);
        self.shake(slot);
    }

    /// The peer has closed its half although there was no handshake yet.
    pub(super) fn ended_shaking(&mut self, slot: u32) {
        if self.is_deserted(slot) {
            self.close(slot);
        }
    }

    /// Whether the peer will send no more, and has not sent what the handshake needs.
    fn is_deserted(&mut self, slot: u32) -> bool {
        let conn = self.conns.at(slot);
        let is_busy = |tls: &Secure| tls.is_sending || !tls.waiting.is_empty();
        let is_deserted = conn.ended && !conn.tls.as_deref().is_some_and(is_busy);
        if is_deserted {
            self.counters.tls.failed_by("closed");
        }
        is_deserted
    }

    /// Sends bytes as they are: records that are sealed already.
    pub(super) fn send_raw(&mut self, slot: u32, wire: Vec<u8>) {
        let list = SendList {
            wire,
            ..SendList::default()
        };
        self.send_records(slot, list);
    }

    /// The same for a list.
    fn send_records(&mut self, slot: u32, list: SendList) {
        let conn = self.conns.at(slot);
        conn.expected = list_len(&list);
        self.driver
            .send(conn.socket, token(Kind::Send, slot, conn.generation), list);
    }

    /// Seals a send. `None` if that is not possible: then the connection has been ended.
    pub(super) fn sealed(&mut self, slot: u32, list: SendList) -> Option<SendList> {
        if !self.conns.at(slot).is_secure() {
            return Some(list);
        }
        if self.is_kernel(slot) {
            return self.counted_for_kernel(slot, list);
        }
        self.before_sealing(slot, list_len(&list));
        let conn = self.conns.at(slot);
        let is_last = conn.closing && !list.more;
        let Some(tls) = &mut conn.tls else {
            return Some(list);
        };
        let driver = &mut self.driver;
        let output = |len| driver.output_of(len);
        let scratch = &mut self.read_back;
        let Ok(sealed) = tls.seal(&list, is_last, scratch, output) else {
            self.cut_short(slot);
            return None;
        };
        if let State::Open(session) = &mut tls.state {
            self.counters.tls.updated(session.take_key_updates());
        }
        self.keep_spare(list.wire);
        Some(sealed)
    }

    /// Decides how `len` bytes of plaintext are cut into records, and whether the connection ends
    /// with the answer that they belong to.
    fn before_sealing(&mut self, slot: u32, len: u64) {
        let now = self.driver.now();
        let conn = self.conns.at(slot);
        let Some(tls) = &mut conn.tls else { return };
        let begins_long = tls.begins_long(len as usize, now);
        let State::Open(session) = &mut tls.state else {
            return;
        };
        // Another connection will have another key.
        conn.closing |= session.wants_end() && conn.streams.is_none();
        // On this machine segments are as long as records.
        if begins_long && !self.driver.is_local(conn.socket) {
            session.sealer().begin_small();
        }
    }

    /// Tells a peer that broke the protocol, and ends the connection. Nothing is being sent.
    pub(super) fn end_by_fault(&mut self, slot: u32) {
        self.log_work(slot, End::CutShort);
        let conn = self.conns.at(slot);
        conn.work = None;
        conn.held = Vec::new();
        conn.linger = true;
        // So that what the peer still sends is read, and the alert not lost by a reset.
        conn.ended = false;
        let alert = conn.tls.as_mut().and_then(|tls| tls.fault.take());
        if !self.says_last(slot, alert.unwrap_or(Alert::INTERNAL_ERROR)) {
            self.close(slot);
        }
    }

    /// Has a connection end without a goodbye.
    pub(super) fn silence(&mut self, slot: u32) {
        if let Some(tls) = &mut self.conns.at(slot).tls {
            tls.is_over = true;
        }
    }

    /// Whether what this connection sends is sealed by our own record layer.
    pub(super) fn is_sealed_here(&mut self, slot: u32) -> bool {
        self.conns.at(slot).is_secure() && !self.is_kernel(slot)
    }

    /// Seals `head` and `bytes` as one stream and sends the records.
    pub(super) fn send_sealed(&mut self, slot: u32, head: Vec<u8>, bytes: &[u8], more: bool) {
        self.before_sealing(slot, (head.len() + bytes.len()) as u64);
        let driver = &mut self.driver;
        let conn = self.conns.at(slot);
        let is_last = conn.closing && !more;
        let Some(tls) = &mut conn.tls else { return };
        let slices: [&[u8]; 2] = [&head, bytes];
        match tls.seal_slices(&slices, is_last, |len| driver.output_of(len)) {
            Ok(list) => {
                if let State::Open(session) = &mut tls.state {
                    self.counters.tls.updated(session.take_key_updates());
                }
                self.send_records(slot, list);
            }
            Err(_) => return self.cut_short(slot),
        }
        self.keep_spare(head);
    }

    /// Keeps a buffer for the next pump.
    fn keep_spare(&mut self, mut used: Vec<u8>) {
        if self.spare.capacity() == 0 {
            used.clear();
            self.spare = used;
        }
    }

    /// How many bytes of a file are read or sealed at a time for this connection.
    pub(super) fn copy_slice_len(&mut self, slot: u32, is_first: bool) -> u64 {
        let now = self.driver.now();
        match &mut self.conns.at(slot).tls {
            Some(tls) => tls.next_slice(is_first, now),
            None => COPY_SLICE_MAX,
        }
    }

    /// Says goodbye before an orderly close (RFC 8446 section 6.1). True if that is under way: the
    /// connection closes when it has left.
    pub(super) fn says_goodbye(&mut self, slot: u32) -> bool {
        let conn = self.conns.at(slot);
        conn.phase == Phase::Reading && self.says_last(slot, Alert::CLOSE_NOTIFY)
    }

    /// Sends our last record. False if none can be sent.
    pub(super) fn says_last(&mut self, slot: u32, alert: Alert) -> bool {
        self.drop_streams(slot);
        let conn = self.conns.at(slot);
        let Some(Secure { state, is_over, .. }) = conn.tls.as_deref_mut() else {
            return false;
        };
        if matches!(state, State::Shaking(_)) || std::mem::replace(is_over, true) {
            return false;
        }
        let mut wire = self.driver.output();
        let is_kernel = match state {
            State::Shaking(_) => false,
            State::Early(handshake) => {
                // Only an orderly end can be told before the handshake is over.
                let _ = alert == Alert::CLOSE_NOTIFY && handshake.end_early(&mut wire);
                false
            }
            State::Open(session) => {
                session.end(alert, &mut wire);
                session.is_kernel()
            }
        };
        if wire.is_empty() && !is_kernel {
            return false;
        }
        conn.phase = Phase::Sending;
        conn.closing = true;
        if is_kernel {
            self.spare = wire;
            self.send_alert_by_kernel(slot, alert);
        } else {
            self.send_raw(slot, wire);
        }
        self.set_deadline(slot, LINGER_MS);
        true
    }
}
