//! Input of a connection's streams, and the actions it leads to.

use std::ops::Range;

use bytes::Bytes;
use gannet_http::h3::connection::UniEvent;
use gannet_http::h3::{ConnectionError, ErrorCode, Event, Fault, StreamId as H3StreamId};
use gannet_http::semantics::date::DATE_LINE_LEN;
use gannet_http::semantics::limits::RESPONSE_HEAD_MAX;
use gannet_http::semantics::request::Version;
use gannet_http::semantics::response::ResponseHead;
use gannet_io::driver::{Driver, Nanos};
use quinn_proto::{Connection, Dir, ReadError, StreamId, VarInt};

use super::connection::ActiveQuic;
use super::streams::{FeedEnd, RequestStreams, Stream, code};
use crate::bounds::quic::{READ_AT_ONCE_MAX, READS_PER_TURN_MAX};
use crate::exchange::answering::Reply;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::workbench::{Arrival, Workbench};
use crate::release::Source;

/// The result of reading a stream.
enum Read {
    /// Bytes, none if the end came alone, and whether the stream ends after them.
    Bytes(Bytes, bool),
    /// Nothing more for now.
    Blocked,
    /// The peer has reset the stream, or it no longer exists.
    Reset,
}

fn read_next(quic: &mut Connection, id: StreamId) -> Read {
    let mut stream = quic.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else {
        return Read::Reset;
    };
    match chunks.next(READ_AT_ONCE_MAX) {
        // No more bytes are taken: only whether there are any, or the end.
        Ok(Some(chunk)) => Read::Bytes(chunk.bytes, matches!(chunks.next(0), Ok(None))),
        Ok(None) => Read::Bytes(Bytes::new(), true),
        Err(ReadError::Blocked) => Read::Blocked,
        Err(ReadError::Reset(_)) => Read::Reset,
    }
}

fn h3_id(id: StreamId) -> H3StreamId {
    H3StreamId(u64::from(id))
}

/// The response of the stream.
impl Reply for Stream {
    fn version(&self) -> Version {
        Version::Http3
    }

    fn head(
        &mut self,
        head: &ResponseHead<'_>,
        date_line: &[u8; DATE_LINE_LEN],
        len: u64,
        out: &mut Outgoing,
    ) -> bool {
        self.respond(head, date_line, len, out.wire())
    }

    fn content(&mut self, source: Source<'_>, range: Range<u64>, _now: Nanos, out: &mut Outgoing) {
        Self::content(self, source, range, out.wire());
    }
}

impl RequestStreams {
    /// Answers the request of a stream, of which `input` was received, and its end if `is_fin`.
    ///
    /// # Errors
    /// A protocol error by the peer.
    fn run_request<D: Driver>(
        &mut self,
        bench: &mut Workbench<'_, D>,
        index: usize,
        input: (&[u8], bool),
        arrival: Arrival<'_>,
        out: &mut Outgoing,
    ) -> Result<(), Fault> {
        let mut fields = std::mem::take(bench.stream_fields);
        let result = self.answer_events(bench, (index, &mut fields), input, arrival, out);
        *bench.stream_fields = fields;
        result
    }

    fn answer_events<D: Driver>(
        &mut self,
        bench: &mut Workbench<'_, D>,
        (index, fields): (usize, &mut Vec<u8>),
        (mut input, is_fin): (&[u8], bool),
        arrival: Arrival<'_>,
        out: &mut Outgoing,
    ) -> Result<(), Fault> {
        loop {
            let others = self.disk.requests();
            let (machine, stream) = self.request(index);
            let id = u64::from(stream.id);
            let received = stream.machine.receive(machine, input, is_fin, fields)?;
            input = &input[received.consumed..];
            match received.event {
                Event::NeedMore => return Ok(()),
                Event::End => {
                    stream.is_received = true;
                    return Ok(());
                }
                Event::Request(request) => {
                    bench.counters.quic.requests += 1;
                    match bench.answer(stream, &request, (arrival, others), out) {
                        Ok(record) => stream.record = record,
                        Err(waiting) => self.disk.missed.push((id, waiting)),
                    }
                }
                Event::Reject(rejection) => {
                    let why = (rejection.status, rejection.why.name());
                    stream.record = bench.reject(stream, why, out);
                }
            }
        }
    }
}

impl<D: Driver> ActiveQuic<'_, D> {
    /// Accepts the unidirectional streams that the peer has opened.
    pub(super) fn accept_uni(&mut self) {
        while let Some(id) = self.conn.quic.streams().accept(Dir::Uni) {
            match self.conn.streams.machine.open_uni(h3_id(id)) {
                Ok(()) => self.read_uni(id),
                Err(error) => self.fail(error),
            }
        }
    }

    /// Accepts the request streams that the peer has opened, as long as its
    /// queue for the disk is not full, and the answers that the
    /// peer has not acknowledged leave room.
    pub(super) fn accept_requests(&mut self) {
        for id in std::mem::take(&mut self.conn.streams.postponed) {
            self.read_request(id);
        }
        loop {
            let streams = &self.conn.streams;
            if streams.disk.is_full() || !streams.has_room_for(RESPONSE_HEAD_MAX as u64) {
                return;
            }
            let Some(id) = self.conn.quic.streams().accept(Dir::Bi) else {
                return;
            };
            match self.conn.streams.machine.open_request(h3_id(id)) {
                Ok(machine) => {
                    let now = self.shared.driver.now();
                    self.conn.streams.add(Stream::new(id, machine, now));
                    self.read_request(id);
                }
                Err(fault) => self.fault(id, fault),
            }
        }
    }

    /// Reads a stream on which bytes, its end or a reset have arrived.
    pub(super) fn readable(&mut self, id: StreamId) {
        match id.dir() {
            Dir::Uni => self.read_uni(id),
            Dir::Bi => self.read_request(id),
        }
    }

    fn read_uni(&mut self, id: StreamId) {
        loop {
            let conn = &mut *self.conn;
            let read = read_next(&mut conn.quic, id);
            let (bytes, is_fin) = match &read {
                Read::Bytes(bytes, is_fin) => (&bytes[..], *is_fin),
                Read::Blocked => return,
                Read::Reset => {
                    if let Err(error) = conn.streams.machine.reset_uni(h3_id(id)) {
                        self.fail(error);
                    }
                    return;
                }
            };
            conn.pieces_read += 1;
            let mut rest = bytes;
            loop {
                let machine = &mut self.conn.streams.machine;
                let received = match machine.receive_uni(h3_id(id), rest, is_fin) {
                    Ok(received) => received,
                    Err(error) => return self.fail(error),
                };
                rest = &rest[received.consumed..];
                match received.event {
                    UniEvent::NeedMore => break,
                    UniEvent::Priority { stream, priority } => {
                        let Ok(stream) = VarInt::from_u64(stream.0) else {
                            continue;
                        };
                        self.conn.prioritize(StreamId::from(stream), priority);
                    }
                    UniEvent::Unwanted => {
                        let code = code(ErrorCode::STREAM_CREATION_ERROR);
                        let _ = self.conn.quic.recv_stream(id).stop(code);
                        return;
                    }
                }
            }
            if is_fin {
                return;
            }
        }
    }

    fn read_request(&mut self, id: StreamId) {
        let is_early = self.conn.quic.is_handshaking();
        loop {
            let conn = &mut *self.conn;
            let Some(index) = conn.streams.position(id) else {
                return;
            };
            if !conn.streams.open[index].machine.wants_input() {
                // `feed` stops it once it is answered.
                return;
            }
            if conn.streams.open[index].machine.awaits_head()
                && !conn.streams.has_room_for(RESPONSE_HEAD_MAX as u64)
            {
                conn.streams.postponed.push(id);
                return;
            }
            let read = read_next(&mut conn.quic, id);
            let (bytes, is_fin) = match &read {
                Read::Bytes(bytes, is_fin) => (&bytes[..], *is_fin),
                Read::Blocked => return,
                Read::Reset => return self.cancelled(id),
            };
            conn.pieces_read += 1;
            let mut out = self.shared.outgoing();
            let conn = &mut *self.conn;
            let mut bench = self.shared.workbench_h3(None);
            let streams = &mut conn.streams;
            let arrival = Arrival {
                redirects: false,
                is_early,
                client: conn.client.as_deref(),
            };
            let result = streams.run_request(&mut bench, index, (bytes, is_fin), arrival, &mut out);
            let wire = out.finish().0.wire;
            if let Err(fault) = result {
                self.shared.keep_spare(wire);
                return self.fault(id, fault);
            }
            if let Err(error) = self.conn.streams.check_sections(index) {
                return self.fail(error);
            }
            self.conn.set_priority(id);
            self.hand_over(id, wire);
            if is_fin {
                return;
            }
        }
    }

    /// Passes the head and short content of a response to the library.
    pub(super) fn hand_over(&mut self, id: StreamId, wire: Vec<u8>) {
        let conn = &mut *self.conn;
        if !wire.is_empty()
            && let Some(stream) = conn.streams.find(id)
        {
            let taken = stream.hand_over(&mut conn.quic, &wire);
            conn.pace.take(conn.rate(), taken, self.shared.driver.now());
        }
        self.shared.keep_spare(wire);
    }

    /// The peer has reset a request stream.
    fn cancelled(&mut self, id: StreamId) {
        let conn = &mut *self.conn;
        let Some(stream) = conn.streams.find(id) else {
            return;
        };
        if stream.is_answered() {
            // The rest of the request would have been dropped anyway.
            return;
        }
        self.give_up_stream(id, ErrorCode::REQUEST_CANCELLED);
        if let Err(error) = self.conn.streams.machine.cancelled() {
            self.fail(error);
        }
    }

    /// The peer has sent STOP_SENDING for a stream.
    pub(super) fn stopped(&mut self, id: StreamId) {
        let result = if self.conn.streams.is_control(id) {
            self.conn.streams.machine.stop_control()
        } else if self.conn.streams.find(id).is_some() {
            self.give_up_stream(id, ErrorCode::REQUEST_CANCELLED);
            self.conn.streams.machine.cancelled()
        } else {
            Ok(())
        };
        if let Err(error) = result {
            self.fail(error);
        }
    }

    /// Passes content to the library, and starts reads of what is not in memory.
    pub(super) fn feed(&mut self) {
        self.conn.set_send_window();
        let now = self.shared.driver.now();
        let rate = self.conn.rate();
        let mut room = self.conn.pace.room(rate, now);
        let mut reads = 0;
        loop {
            let conn = &mut *self.conn;
            let fed = conn.streams.feed(&mut conn.quic, room, now);
            room -= fed.taken;
            conn.pace.take(rate, fed.taken, now);
            conn.pace.note_waits(room == 0 && conn.streams.has_output());
            // Responses to early data do not extend the time for the handshake.
            if fed.has_finished && !self.conn.is_shaking() {
                self.conn.idle_since = now;
            }
            match fed.rest {
                None => return,
                Some((id, FeedEnd::Read(file, range))) => {
                    // A read from the page cache completes at once, and the loop continues with it,
                    // up to a limit.
                    reads += u32::from(self.read_for_stream(id, &file, range));
                }
                Some((id, _)) => self.stopped(id),
            }
            if reads >= READS_PER_TURN_MAX || self.conn.is_over() {
                self.conn.has_more = !self.conn.is_over();
                return;
            }
        }
    }

    /// Handles a protocol error found on a request stream.
    fn fault(&mut self, id: StreamId, fault: Fault) {
        match fault {
            Fault::Connection(error) => self.fail(error),
            Fault::Stream(error) => {
                self.shared.counters.quic.stream_errors += 1;
                self.give_up_stream(id, error.code);
            }
        }
    }

    /// Resets a stream, asks the peer to stop sending on it, and forgets its request.
    pub(super) fn give_up_stream(&mut self, id: StreamId, error: ErrorCode) {
        let conn = &mut *self.conn;
        let _ = conn.quic.send_stream(id).reset(code(error));
        let _ = conn.quic.recv_stream(id).stop(code(error));
        conn.streams.forget(id);
        self.shared.counters.quic.resets += 1;
    }

    /// Closes the connection: the peer has violated the protocol or exceeded its budget.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        if self.conn.is_over() {
            return;
        }
        let key = (error.code.name(), error.why.name());
        *self.shared.counters.quic.errors.entry(key).or_default() += 1;
        self.close(error.code, error.why.name());
    }
}
