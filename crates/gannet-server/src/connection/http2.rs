//! HTTP/2: takes requests from frames and answers them while other responses are being sent; frames of
//! many streams share a send.

use std::ops::Range;

use gannet_http::h2::limits::QUANTUM;
use gannet_http::h2::{Event, PREFACE, StreamId, Time, Why};
use gannet_http::semantics::date::DATE_LINE_LEN;
use gannet_http::semantics::request::Version;
use gannet_http::semantics::response::ResponseHead;
use gannet_io::driver::{Driver, Nanos};

use super::protocol::Protocol;
use super::streams::{Framed, Streams};
use super::{Active, Phase};
use crate::bounds::limits::{STREAM_UNSENT_MAX, TRIM_MS};
use crate::clients::Client;
use crate::exchange::answering::Reply;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::stream_waits::DiskStreams;
use crate::exchange::workbench::{Arrival, Workbench};
use crate::ground::delay::Arrived;
use crate::observe::record::End;
use crate::observe::stages::Stage;
use crate::release::Source;

/// The response of a stream.
pub(super) struct StreamReply<'a> {
    pub(super) streams: &'a mut Streams,
    pub(super) stream: StreamId,
}

impl Reply for StreamReply<'_> {
    fn version(&self) -> Version {
        Version::Http2
    }

    fn head(
        &mut self,
        head: &ResponseHead<'_>,
        date_line: &[u8; DATE_LINE_LEN],
        len: u64,
        out: &mut Outgoing,
    ) -> bool {
        let connection = &mut self.streams.connection;
        connection.respond(self.stream, head, date_line, len, out.wire())
    }

    fn content(&mut self, source: Source<'_>, range: Range<u64>, now: Nanos, out: &mut Outgoing) {
        self.streams
            .content(self.stream, source, range, Time(now.0), out);
    }
}

impl Streams {
    /// Answers the requests in `input`; returns the number of bytes used. Leaves bytes unused if a frame
    /// is incomplete, or if something has to be sent or read first.
    pub(super) fn run_frames<D: Driver>(
        &mut self,
        bench: &mut Workbench<'_, D>,
        client: Option<&Client>,
        input: &[u8],
        out: &mut Outgoing,
    ) -> usize {
        let mut fields = std::mem::take(bench.stream_fields);
        let used = self.answer_frames(bench, client, (input, &mut fields), out);
        *bench.stream_fields = fields;
        used
    }

    fn answer_frames<D: Driver>(
        &mut self,
        bench: &mut Workbench<'_, D>,
        client: Option<&Client>,
        (input, fields): (&[u8], &mut Vec<u8>),
        out: &mut Outgoing,
    ) -> usize {
        let now = Time(bench.turn.now.0);
        let mut used = 0;
        loop {
            if out.is_full() || self.disk.is_full() {
                return used;
            }
            let others = self.disk.requests();
            let received = self.connection.receive(now, &input[used..], fields);
            used += received.consumed;
            match received.event {
                Event::Request { stream, request } => {
                    bench.counters.h2_requests += 1;
                    let arrival = Arrival {
                        redirects: false,
                        is_early: self.is_early,
                        client,
                    };
                    let mut reply = StreamReply {
                        streams: self,
                        stream,
                    };
                    match bench.answer(&mut reply, &request, (arrival, others), out) {
                        Ok(record) => self.note(stream, record),
                        Err(waiting) => self.disk.missed.push((u64::from(stream.0), waiting)),
                    }
                }
                Event::Reject { stream, rejection } => {
                    let why = (rejection.status, rejection.why.name());
                    let mut reply = StreamReply {
                        streams: self,
                        stream,
                    };
                    let record = bench.reject(&mut reply, why, out);
                    self.note(stream, record);
                }
                Event::Reset { stream } => {
                    bench.counters.h2_resets += 1;
                    self.disk.forget(u64::from(stream.0));
                    let record = self.forget(stream);
                    self.cut.extend(record);
                }
                // The metrics are counted when the connection ends.
                Event::Closed(_) => self.end(),
                Event::NeedMore => {
                    if self.connection.wants_input() || self.connection.is_closing() {
                        return used;
                    }
                    // Pending replies block input; writing one allows more to be read.
                    self.connection.poll_frame(now, 0, out.wire());
                }
            }
        }
    }
}

impl<D: Driver> Active<'_, D> {
    /// Whether the first bytes of a connection determine its version: false if they may still
    /// become the preface of HTTP/2 (RFC 9113 section 3.4); in that case they were kept.
    pub(super) fn is_version_known(&mut self, arrived: &Arrived) -> bool {
        let bytes = arrived.bytes(&self.shared.driver);
        let conn = &mut *self.conn;
        if conn.phase != Phase::Reading {
            return true;
        }
        let rest = &PREFACE[conn.intake.bytes().len()..];
        let len = bytes.len().min(rest.len());
        if bytes[..len] != rest[..len] {
            conn.protocol.exclude_http2();
            self.enter(Stage::Http1);
            return true;
        }
        if len == rest.len() {
            self.begin_streams();
            return true;
        }
        conn.intake.add(bytes);
        self.arm_receive();
        false
    }

    /// Switches to HTTP/2; the preface is the first input.
    pub(super) fn begin_streams(&mut self) {
        let now = self.shared.driver.now();
        let is_secure = self.conn.is_secure();
        let mut streams = Streams::new(now, &self.shared.settings.limits, is_secure);
        if self.shared.stop_at.is_some() {
            streams.connection.drain(Time(now.0));
        }
        self.enter(match is_secure {
            true => Stage::Http2Tls,
            false => Stage::Http2,
        });
        let socket = self.conn.socket;
        self.shared.driver.bound_unsent(socket, STREAM_UNSENT_MAX);
        let conn = &mut *self.conn;
        conn.protocol = Protocol::Http2(Box::new(streams));
    }

    /// Handles plaintext from the peer.
    pub(super) fn streams_received(&mut self, arrived: Arrived<'_>) {
        let streams = self.conn.protocol.streams();
        let was_long = streams.is_some_and(Streams::has_content);
        if self.conn.intake.is_empty() {
            // Content in progress always advances a little.
            self.frame(u64::from(QUANTUM));
            self.answer_streams(arrived);
        } else {
            let bytes = arrived.bytes(&self.shared.driver);
            self.conn.intake.add(bytes);
            arrived.release(&mut self.shared.driver);
        }
        let streams = self.conn.protocol.streams();
        let may_send = streams.is_some_and(|it| it.connection.next_content().is_some());
        // What a window lets through of a long response is nothing new.
        if was_long && may_send && self.conn.phase == Phase::Reading {
            self.queue_up();
        }
        self.go_on_streams();
    }

    /// Answers `input`; returns the number of bytes used.
    fn answer_streams(&mut self, input: Arrived<'_>) -> usize {
        let mut out = self.stream_output();
        let (used, _) = self.answer_input(input, &mut out);
        if let Some(streams) = self.conn.protocol.streams_mut() {
            streams.out = Some(out);
        }
        used
    }

    /// Continues with held input. False if none of it could be used.
    fn answer_held_streams(&mut self) -> bool {
        if self.conn.intake.is_empty() || !self.conn.protocol.is_http2() {
            return false;
        }
        let input = self.conn.intake.take();
        self.answer_streams(Arrived::Held(input)) > 0
    }

    /// The contents of the next send so far.
    pub(super) fn stream_output(&mut self) -> Outgoing {
        let streams = self.conn.protocol.streams_mut();
        match streams.and_then(|streams| streams.out.take()) {
            Some(out) => out,
            None => self.shared.outgoing(),
        }
    }

    /// Does all that is possible: responses, frames, and a send if none is in progress.
    pub(super) fn go_on_streams(&mut self) {
        loop {
            self.ask_missed();
            self.frame(u64::MAX);
            if !self.answer_held_streams() {
                break;
            }
        }
        self.end_cut_streams();
        self.send_streams();
    }

    /// Writes frames of about `most` bytes at most, reading content where necessary.
    fn frame(&mut self, most: u64) {
        let conn = &mut *self.conn;
        let streams = conn.protocol.streams();
        // During a send, the contents of the next one are not fixed yet.
        if conn.phase == Phase::Sending
            || !streams.is_some_and(|streams| streams.connection.wants_output())
        {
            return;
        }
        let socket = conn.socket;
        let mut out = self.stream_output();
        let now = self.shared.driver.now();
        loop {
            let conn = &mut *self.conn;
            let Some(streams) = conn.protocol.streams_mut() else {
                return;
            };
            match streams.frames(now, most, &mut out) {
                Framed::All => {
                    let was_filled = streams.is_filled(&out);
                    if was_filled && most == u64::MAX {
                        let room = self.shared.driver.room(socket, STREAM_UNSENT_MAX);
                        streams.allow(room.min(Client::slice_most(conn.client.as_deref())));
                    }
                    if !was_filled || streams.is_filled(&out) {
                        streams.out = Some(out);
                        return;
                    }
                }
                Framed::Read {
                    stream,
                    file,
                    range,
                } => self.read_for_stream(stream, &file, range),
            }
        }
    }

    fn send_streams(&mut self) {
        let now = self.shared.driver.now();
        let progress_by = now.plus_ms(self.shared.settings.limits.progress_timeout_ms);
        let conn = &mut *self.conn;
        let Some(streams) = conn.protocol.streams_mut() else {
            return;
        };
        if conn.phase == Phase::Reading
            && let Some(out) = streams.take_out()
        {
            if out.is_empty() {
                self.shared.spare = out.finish().0.wire;
            } else {
                streams.progress_by = progress_by;
                if self.shared.is_recording() {
                    streams.begin_responses(now);
                }
                let records = std::mem::take(&mut streams.records);
                if !records.is_empty() {
                    conn.work().records = records;
                }
                self.send(out);
                if self.is_over() {
                    return;
                }
            }
        }
        let conn = &mut *self.conn;
        if conn.phase == Phase::Reading && conn.is_through() {
            return self.end_streams();
        }
        if conn.phase == Phase::Reading && self.sends_rest() {
            self.set_streams_deadline(now);
            return;
        }
        let conn = &mut *self.conn;
        if conn.intake.has_room() {
            self.arm_receive();
        } else {
            self.pause_receive();
        }
        self.set_streams_deadline(now);
    }

    /// Sets the next deadline of the machine, of the send in progress or of an idle connection.
    fn set_streams_deadline(&mut self, now: Nanos) {
        let conn = &mut *self.conn;
        let is_sending = conn.phase == Phase::Sending;
        let is_idle = conn.is_idle();
        let Some(streams) = conn.protocol.streams_mut() else {
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
            self.set_deadline_at(at);
        }
    }

    /// Handles an expired deadline of the connection.
    pub(super) fn streams_due(&mut self) {
        let now = self.shared.driver.now();
        self.excuse_slow(now);
        let conn = &mut *self.conn;
        let is_sending = conn.phase == Phase::Sending;
        let is_idle = conn.is_idle();
        let Some(streams) = conn.protocol.streams_mut() else {
            return;
        };
        while let Some(stream) = streams.connection.handle_timeout(Time(now.0)) {
            self.shared.counters.timeouts += 1;
            self.shared.counters.h2_resets += 1;
            let record = streams.forget(stream);
            streams.cut.extend(record);
        }
        if is_idle && streams.trim_at.is_some_and(|at| at <= now) {
            streams.trim();
            streams.trim_at = Some(Nanos(u64::MAX));
            conn.intake.clear();
        }
        if is_sending && streams.progress_by <= now {
            streams.progress_by = now.plus_ms(self.shared.settings.limits.progress_timeout_ms);
            self.check_progress();
            if self.is_over() {
                return;
            }
        }
        self.go_on_streams();
    }

    /// Streams of a slow peer wait for the bytes in its socket's queue: they are exempt from their
    /// timeout while the peer accepts enough of these.
    fn excuse_slow(&mut self, now: Nanos) {
        let rate_min = self.shared.settings.limits.send_rate_min;
        let conn = &mut *self.conn;
        let (socket, sent) = (conn.socket, conn.sent);
        let is_sending = conn.phase == Phase::Sending;
        let Some(streams) = conn.protocol.streams_mut() else {
            return;
        };
        let due = streams.connection.poll_timeout();
        if streams.connection.stream_count() == 0 || due.is_none_or(|at| at.0 > now.0) {
            return;
        }
        let acknowledged = self.shared.driver.acknowledged(socket);
        let (before, at) = streams.looked_at;
        let taken = acknowledged.saturating_sub(before);
        let seconds = (now.0 - at.0) / 1_000_000_000;
        streams.looked_at = (acknowledged, now);
        let is_under_way = is_sending || acknowledged < sent;
        if is_under_way && taken > 0 && taken >= rate_min.saturating_mul(seconds) {
            streams.connection.excuse(Time(now.0));
        }
    }

    /// Handles a completed send.
    pub(super) fn streams_sent(&mut self) {
        self.end_work(End::Whole);
        let conn = &mut *self.conn;
        conn.phase = Phase::Reading;
        if conn.has_fault() {
            return self.end_by_fault();
        }
        let streams = conn.protocol.streams();
        match streams.is_some_and(|streams| streams.connection.wants_output()) {
            true => self.queue_up(),
            false => self.go_on_streams(),
        }
    }

    /// Drains the connection because the server is stopping: open streams finish, new ones are
    /// rejected.
    pub(super) fn drain_streams(&mut self) {
        let now = Time(self.shared.driver.now().0);
        if let Some(streams) = self.conn.protocol.streams_mut() {
            streams.connection.drain(now);
        }
        self.go_on_streams();
    }

    /// Ends the connection after everything was sent and no request can follow.
    fn end_streams(&mut self) {
        let streams = self.conn.protocol.streams();
        if let Some(error) = streams.and_then(|streams| streams.connection.error()) {
            if matches!(error.why, Why::Idle | Why::Stalled) {
                self.shared.counters.timeouts += 1;
            }
            if error.why != Why::Idle {
                let key = (error.code.name(), error.why.name());
                *self.shared.counters.h2_errors.entry(key).or_default() += 1;
            }
        }
        self.drop_streams();
        // The peer may still be sending; a reset would destroy data that it has not read yet.
        self.conn.linger = true;
        self.finish();
    }

    /// Stops serving all streams of the connection.
    pub(super) fn drop_streams(&mut self) {
        if let Some(streams) = self.conn.protocol.streams_mut() {
            streams.abandon();
            self.end_cut_streams();
            self.conn.protocol = Protocol::Over;
        }
    }

    /// Logs and measures responses that ended early.
    pub(super) fn end_cut_streams(&mut self) {
        let Some(streams) = self.conn.protocol.streams_mut() else {
            return;
        };
        if streams.cut.is_empty() {
            return;
        }
        let cut = std::mem::take(&mut streams.cut);
        let named = Client::named(self.conn.client.as_deref());
        for record in cut {
            self.shared.record_ended(&record, named, End::CutShort);
        }
    }
}
