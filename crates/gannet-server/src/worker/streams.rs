//! HTTP/2: input becomes answers while others are being sent; frames of many share a send.

use gannet_http::h2::limits::QUANTUM;
use gannet_http::h2::{PREFACE, Time, Why};
use gannet_io::driver::{Driver, Nanos};

use super::Worker;
use super::delay::Arrived;
use super::receiving::{pump, turn};
use crate::conn::Phase;
use crate::limits::{HELD_MAX, STREAM_UNSENT_MAX, TRIM_MS};
use crate::log::End;
use crate::outgoing::Outgoing;
use crate::pump::Pump;
use crate::serve::Turn;
use crate::streams::{Framed, Streams};

impl<D: Driver> Worker<D> {
    /// Whether the first bytes of a connection can be looked at: false if they may become the
    /// preface of HTTP/2 (RFC 9113 section 3.4) and have to wait for more; they were taken then.
    pub(super) fn is_version_known(&mut self, slot: u32, arrived: &Arrived) -> bool {
        let bytes = arrived.bytes(&self.driver);
        let conn = self.conns.at(slot);
        if conn.phase != Phase::Reading {
            return true;
        }
        let rest = &PREFACE[conn.held.len()..];
        let len = bytes.len().min(rest.len());
        if bytes[..len] != rest[..len] {
            conn.is_fresh = false;
            return true;
        }
        if len == rest.len() {
            self.begin_streams(slot);
            return true;
        }
        conn.held.extend_from_slice(bytes);
        self.arm_receive(slot);
        false
    }

    /// The connection's peer speaks HTTP/2; its preface is the first that comes.
    pub(super) fn begin_streams(&mut self, slot: u32) {
        let now = self.driver.now();
        let is_secure = self.conns.at(slot).is_secure();
        let mut streams = Streams::new(now, &self.settings.limits, is_secure);
        if self.stop_at.is_some() {
            streams.connection.drain(Time(now.0));
        }
        self.counters.h2_connections += 1;
        let socket = self.conns.at(slot).socket;
        self.driver.bound_unsent(socket, STREAM_UNSENT_MAX);
        let conn = self.conns.at(slot);
        conn.is_fresh = false;
        conn.streams = Some(Box::new(streams));
    }

    /// Bytes have arrived.
    pub(super) fn streams_received(&mut self, slot: u32, arrived: Arrived) {
        if self.conns.at(slot).held.is_empty() {
            // What was begun goes on a little in any case.
            self.frame(slot, u64::from(QUANTUM));
            self.answer_stream_arrived(slot, &arrived);
        } else {
            let bytes = arrived.bytes(&self.driver);
            self.conns.at(slot).held.extend_from_slice(bytes);
        }
        arrived.release(&mut self.driver);
        self.go_on_streams(slot);
    }

    /// Bytes have arrived in TLS records, or its peer has closed its half.
    pub(super) fn streams_opened(&mut self, slot: u32, plain: &[u8]) {
        if plain.is_empty() {
            // Nothing new, or the end.
        } else if self.conns.at(slot).held.is_empty() {
            self.frame(slot, u64::from(QUANTUM));
            self.answer_stream_bytes(slot, plain);
        } else {
            self.conns.at(slot).held.extend_from_slice(plain);
        }
        self.go_on_streams(slot);
    }

    fn answer_stream_bytes(&mut self, slot: u32, input: &[u8]) {
        let mut out = self.stream_output(slot);
        let configured = self.settings.fields(true);
        let turn = turn!(self, configured);
        let conn = self.conns.at(slot);
        let Some(streams) = &mut conn.streams else {
            return;
        };
        let fields = &mut self.stream_fields;
        let used = pump!(self, turn).run_streams(streams, input, fields, &mut out);
        conn.held.extend_from_slice(&input[used..]);
        streams.out = Some(out);
    }

    fn answer_stream_arrived(&mut self, slot: u32, arrived: &Arrived) {
        let mut out = self.stream_output(slot);
        let configured = self.settings.fields(false);
        let turn = turn!(self, configured);
        let input = arrived.bytes(&self.driver);
        let conn = self.conns.at(slot);
        let Some(streams) = &mut conn.streams else {
            return;
        };
        let fields = &mut self.stream_fields;
        let used = pump!(self, turn).run_streams(streams, input, fields, &mut out);
        conn.held.extend_from_slice(&input[used..]);
        streams.out = Some(out);
    }

    /// Goes on with input that was held. False if none of it could be used.
    fn answer_stream_held(&mut self, slot: u32) -> bool {
        if self.conns.at(slot).held.is_empty() {
            return false;
        }
        let mut out = self.stream_output(slot);
        let configured = self.settings.fields(self.conns.at(slot).is_secure());
        let turn = turn!(self, configured);
        let conn = self.conns.at(slot);
        let Some(streams) = &mut conn.streams else {
            return false;
        };
        let fields = &mut self.stream_fields;
        let used = pump!(self, turn).run_streams(streams, &conn.held, fields, &mut out);
        streams.out = Some(out);
        conn.held.drain(..used);
        used > 0
    }

    /// What the next send will carry, so far.
    pub(super) fn stream_output(&mut self, slot: u32) -> Outgoing {
        let streams = self.conns.at(slot).streams.as_mut();
        match streams.and_then(|streams| streams.out.take()) {
            Some(out) => out,
            None => self.outgoing(),
        }
    }

    /// Does all that can be done: answers, frames, and a send if none is under way.
    pub(super) fn go_on_streams(&mut self, slot: u32) {
        loop {
            self.ask_missed(slot);
            self.frame(slot, u64::MAX);
            if !self.answer_stream_held(slot) {
                break;
            }
        }
        self.log_cut_streams(slot);
        self.send_streams(slot);
    }

    /// Writes frames of at most about `most` bytes, reading content where it has to be read.
    fn frame(&mut self, slot: u32, most: u64) {
        let conn = self.conns.at(slot);
        let streams = conn.streams.as_ref();
        // While a send is under way, what comes after it is not decided yet.
        if conn.phase == Phase::Sending
            || !streams.is_some_and(|streams| streams.connection.wants_output())
        {
            return;
        }
        let mut out = self.stream_output(slot);
        let now = self.driver.now();
        loop {
            let Some(streams) = &mut self.conns.at(slot).streams else {
                return;
            };
            match streams.frames(now, most, &mut out) {
                Framed::All => {
                    streams.out = Some(out);
                    return;
                }
                Framed::Read {
                    stream,
                    file,
                    range,
                } => self.read_for_stream(slot, stream, file, range),
            }
        }
    }

    fn send_streams(&mut self, slot: u32) {
        let now = self.driver.now();
        let progress_by = now.plus_ms(self.settings.limits.progress_timeout_ms);
        let conn = self.conns.at(slot);
        let Some(streams) = &mut conn.streams else {
            return;
        };
        if conn.phase == Phase::Reading
            && let Some(out) = streams.out.take()
        {
            if out.is_empty() {
                self.spare = out.finish().0.wire;
            } else {
                streams.progress_by = progress_by;
                let records = std::mem::take(&mut streams.records);
                if !records.is_empty() {
                    conn.work().records = records;
                }
                self.send(slot, out);
            }
        }
        let conn = self.conns.at(slot);
        if conn.phase == Phase::Reading && conn.is_through() {
            return self.end_streams(slot);
        }
        if conn.held.len() <= HELD_MAX {
            self.arm_receive(slot);
        } else if conn.receiving {
            conn.receiving = false;
            self.driver.pause_receiving(conn.socket);
        }
        self.set_streams_deadline(slot, now);
    }

    /// When the machine, the send under way or an idle connection has to be looked at.
    fn set_streams_deadline(&mut self, slot: u32, now: Nanos) {
        let conn = self.conns.at(slot);
        let is_sending = conn.phase == Phase::Sending;
        let is_idle = conn.is_idle();
        let Some(streams) = &mut conn.streams else {
            return;
        };
        if !is_idle {
            streams.trim_at = None;
        } else if streams.trim_at.is_none() {
            streams.trim_at = Some(now.plus_ms(TRIM_MS));
            conn.idle_since = now;
        }
        let machine = streams.connection.poll_timeout().map(|time| Nanos(time.0));
        let progress = is_sending.then_some(streams.progress_by);
        let all = [machine, progress, streams.trim_at];
        if let Some(at) = all.into_iter().flatten().min() {
            self.set_deadline_at(slot, at);
        }
    }

    /// A deadline of the connection may have passed.
    pub(super) fn streams_due(&mut self, slot: u32) {
        let now = self.driver.now();
        self.excuse_slow(slot, now);
        let conn = self.conns.at(slot);
        let (generation, is_sending) = (conn.generation, conn.phase == Phase::Sending);
        let is_idle = conn.is_idle();
        let Some(streams) = &mut conn.streams else {
            return;
        };
        while let Some(stream) = streams.connection.handle_timeout(Time(now.0)) {
            self.counters.timeouts += 1;
            self.counters.h2_resets += 1;
            let record = streams.forget(stream);
            streams.cut.extend(record);
        }
        if is_idle && streams.trim_at.is_some_and(|at| at <= now) {
            streams.trim();
            streams.trim_at = Some(Nanos(u64::MAX));
            conn.held = Vec::new();
        }
        if is_sending && streams.progress_by <= now {
            streams.progress_by = now.plus_ms(self.settings.limits.progress_timeout_ms);
            self.check_progress(slot);
            if self.conns.find(slot, generation).is_none() {
                return;
            }
        }
        self.go_on_streams(slot);
    }

    /// Streams of a peer that is slow, and not idle, wait for what is in its socket's queue: they
    /// are not held to a timeout as long as enough of that is taken.
    fn excuse_slow(&mut self, slot: u32, now: Nanos) {
        let rate_min = self.settings.limits.send_rate_min;
        let conn = self.conns.at(slot);
        let (socket, sent) = (conn.socket, conn.sent);
        let is_sending = conn.phase == Phase::Sending;
        let Some(streams) = &mut conn.streams else {
            return;
        };
        let due = streams.connection.poll_timeout();
        if streams.connection.stream_count() == 0 || due.is_none_or(|at| at.0 > now.0) {
            return;
        }
        let acknowledged = self.driver.acknowledged(socket);
        let (before, at) = streams.looked_at;
        let taken = acknowledged.saturating_sub(before);
        let seconds = (now.0 - at.0) / 1_000_000_000;
        streams.looked_at = (acknowledged, now);
        let is_under_way = is_sending || acknowledged < sent;
        if is_under_way && taken > 0 && taken >= rate_min.saturating_mul(seconds) {
            streams.connection.excuse(Time(now.0));
        }
    }

    /// A send has completed.
    pub(super) fn streams_sent(&mut self, slot: u32) {
        self.log_work(slot, End::Whole);
        let conn = self.conns.at(slot);
        conn.phase = Phase::Reading;
        if conn.has_fault() {
            return self.end_by_fault(slot);
        }
        self.go_on_streams(slot);
    }

    /// The server is stopping: open streams are finished, no new ones are taken.
    pub(super) fn drain_streams(&mut self, slot: u32) {
        let now = Time(self.driver.now().0);
        if let Some(streams) = &mut self.conns.at(slot).streams {
            streams.connection.drain(now);
        }
        self.go_on_streams(slot);
    }

    /// All is sent and nothing more will be asked for.
    fn end_streams(&mut self, slot: u32) {
        let streams = self.conns.at(slot).streams.as_ref();
        if let Some(error) = streams.and_then(|streams| streams.connection.error()) {
            if matches!(error.why, Why::Idle | Why::Stalled) {
                self.counters.timeouts += 1;
            }
            if error.why != Why::Idle {
                let key = (error.code.name(), error.why.name());
                *self.counters.h2_errors.entry(key).or_default() += 1;
            }
        }
        self.drop_streams(slot);
        // The peer may be sending still; a reset would destroy what it has not read yet.
        self.conns.at(slot).linger = true;
        self.finish(slot);
    }

    /// No stream of the connection is served any more.
    pub(super) fn drop_streams(&mut self, slot: u32) {
        if let Some(streams) = &mut self.conns.at(slot).streams {
            streams.abandon();
            self.log_cut_streams(slot);
            self.conns.at(slot).streams = None;
        }
    }

    /// Writes the log lines of responses that ended early.
    pub(super) fn log_cut_streams(&mut self, slot: u32) {
        let Some(streams) = &mut self.conns.at(slot).streams else {
            return;
        };
        if streams.cut.is_empty() {
            return;
        }
        let cut = std::mem::take(&mut streams.cut);
        let (now, unix) = (self.driver.now().0, self.driver.unix_seconds());
        let peer = self.conns.at(slot).peer.as_deref().unwrap_or("-");
        for record in cut {
            self.log.add(&record, peer, End::CutShort, now, unix);
        }
    }
}
