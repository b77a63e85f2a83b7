//! The HTTP/2 side of a connection: its machine, and the content that its streams have yet to send.
//!
//! ```text
//!   a response's head is written ──▶ content at once, if no other is queued and it is in memory
//!                                      │ else
//!                                      ▼
//!                                   contents ──▶ frames, in the order of priorities ──▶ a send
//!                                      ▲                  │ a file's bytes are needed
//!                                      └── read from disk ┘ (the stream pauses, others continue)
//! ```
//!
//! A send gathers frames of many streams: small content copied behind its headers, larger content
//! as pieces of shared memory. The length of a send is bounded, and nothing is framed during the
//! send in progress, so that a more urgent stream soon has its turn.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use gannet_http::h2::frame::FRAME_HEADER_LEN;
use gannet_http::h2::limits::QUANTUM;
use gannet_http::h2::{Connection, ErrorCode, StreamId, Time, Timeouts};
use gannet_io::driver::Nanos;
use gannet_io::memory::Memory;

use crate::bounds::limits::{HEADS_HELD_MAX, STREAM_READ_MAX, STREAM_SEND_MAX, UNTAKEN_MAX};
use crate::bounds::tls::PLAINTEXT_MAX;
use crate::config::Limits;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::stream_waits::DiskQueue;
use crate::observe::record::Record;
use crate::release::body::Body;
use crate::release::{ServedFile, Source};

/// See the module documentation.
pub(crate) struct Streams {
    pub(crate) connection: Connection,
    /// Output is cut into TLS records of [`PLAINTEXT_MAX`] bytes.
    is_secure: bool,
    /// Requests received now arrived in TLS early data, so they may be replays.
    pub(crate) is_early: bool,
    /// Maximum length of the next send, content included: see [`Streams::allow`].
    send_max: u64,
    /// Content not in any send yet, of at most `STREAMS_MAX` streams.
    contents: Vec<StreamContent>,
    /// The next send so far.
    pub(crate) out: Option<Outgoing>,
    /// What its requests wait for.
    pub(crate) disk: DiskQueue,
    /// Open streams whose reads were postponed because of too many others.
    pub(crate) waiting: Vec<StreamId>,
    /// Responses whose last byte is in `out`, for the log.
    pub(crate) records: Vec<Record>,
    /// Responses that ended before their last byte was sent, for the log.
    pub(crate) cut: Vec<Record>,
    /// Deadline for the peer to accept part of the send in progress.
    pub(crate) progress_by: Nanos,
    /// Bytes acknowledged by the peer when its streams were last checked, and the time of that.
    pub(crate) looked_at: (u64, Nanos),
    /// When an idle connection frees memory, and the end of time once it has; `None` if it is not
    /// idle.
    pub(crate) trim_at: Option<Nanos>,
}

/// The unsent content of a response.
struct StreamContent {
    stream: StreamId,
    parts: VecDeque<Body>,
    record: Option<Record>,
}

impl StreamContent {
    /// The log record for content that will not be sent further.
    fn cut(self) -> Option<Record> {
        let mut record = self.record?;
        record.cut(Body::len_of(&self.parts));
        Some(record)
    }
}

/// The reason that no more frames were written.
pub(crate) enum Framed {
    /// Nothing to send, or no room.
    All,
    /// The next bytes of this stream have to be read first.
    Read {
        stream: StreamId,
        file: Rc<ServedFile>,
        range: Range<u64>,
    },
}

impl Streams {
    /// The state of a connection that starts with the preface.
    pub(crate) fn new(now: Nanos, limits: &Limits, is_secure: bool) -> Self {
        let timeouts = Timeouts {
            head_ms: limits.head_timeout_ms,
            idle_ms: limits.idle_timeout_ms,
            progress_ms: limits.progress_timeout_ms,
            rate_min: limits.send_rate_min,
        };
        Self {
            connection: Connection::new(Time(now.0), timeouts),
            is_secure,
            is_early: false,
            send_max: UNTAKEN_MAX,
            contents: Vec::new(),
            out: None,
            disk: DiskQueue::default(),
            waiting: Vec::new(),
            records: Vec::new(),
            cut: Vec::new(),
            progress_by: now,
            looked_at: (0, now),
            trim_at: None,
        }
    }

    /// Whether nothing but control frames is in progress.
    pub(crate) fn is_idle(&self) -> bool {
        self.connection.is_idle() && self.contents.is_empty() && self.disk.asked == 0
    }

    /// Whether content of a response is left.
    pub(crate) fn has_content(&self) -> bool {
        !self.contents.is_empty()
    }

    /// Whether only lookups are in progress.
    pub(crate) fn waits(&self) -> bool {
        self.disk.asked > 0 && self.contents.is_empty() && self.out.is_none()
    }

    /// Takes content of a response whose head was just written. It is framed at once if nothing
    /// else is queued; the rest follows in its turn.
    pub(crate) fn content(
        &mut self,
        stream: StreamId,
        source: Source<'_>,
        range: Range<u64>,
        now: Time,
        out: &mut Outgoing,
    ) {
        let Range { mut start, end } = range;
        let is_first = self.contents.is_empty() && !matches!(source, Source::File(..));
        while is_first && start < end && !out.is_full() && out.len() < self.send_max {
            let room = room_for(end - start).min(self.record_room(out));
            let Some(body) = self.connection.poll_frame(now, room, out.wire()) else {
                break;
            };
            debug_assert_eq!(body.stream, stream, "no other stream has anything to send");
            let len = body.range.end - body.range.start;
            let range = start as usize..(start + len) as usize;
            match source {
                Source::Bytes(bytes) => out.wire().extend_from_slice(&bytes[range]),
                Source::Made(memory, offset) => {
                    let range = offset + range.start..offset + range.end;
                    out.wire().extend_from_slice(&memory.bytes()[range]);
                }
                Source::Memory(memory, offset) => {
                    out.memory(memory, offset + range.start..offset + range.end);
                }
                _ => debug_assert!(false, "bytes are at hand, and files are read first"),
            }
            start += len;
        }
        if start < end {
            self.store(stream, source, start..end);
        }
    }

    /// The room for a frame: to the end of the TLS record that it begins in, so that a peer can use
    /// a record's frames as soon as it has the record. A remainder of a few bytes is not used.
    fn record_room(&self, out: &Outgoing) -> u32 {
        if !self.is_secure {
            return u32::MAX;
        }
        let left = PLAINTEXT_MAX as u32 - (out.len() % PLAINTEXT_MAX as u64) as u32;
        if left >= FRAME_IN_RECORD_MIN {
            left
        } else {
            left + PLAINTEXT_MAX as u32
        }
    }

    /// Keeps content for later.
    fn store(&mut self, stream: StreamId, source: Source<'_>, range: Range<u64>) {
        let Some(body) = Body::of(source, range).map(Body::in_memory) else {
            return debug_assert!(false, "bytes are at hand");
        };
        match self.position(stream) {
            Some(index) => self.contents[index].parts.push_back(body),
            None => self.contents.push(StreamContent {
                stream,
                parts: VecDeque::from([body]),
                record: None,
            }),
        }
    }

    /// Whether a request may be looked up whose answer has a head of at most this length: together
    /// with those before it there is room for it, or there are none.
    pub(crate) fn has_room_for(&self, head: u64) -> bool {
        let gathered = self.out.as_ref().map_or(0, Outgoing::len);
        let held = gathered + self.disk.heads;
        held == 0 || held + head <= HEADS_HELD_MAX
    }

    /// Adds the log record of a response, which is complete when its last byte is sent.
    pub(crate) fn note(&mut self, stream: StreamId, record: Option<Record>) {
        let Some(record) = record else { return };
        match self.position(stream) {
            Some(index) => self.contents[index].record = Some(record),
            None => self.records.push(record),
        }
    }

    /// The next send begins: it has the first bytes of the responses whose heads were written.
    pub(crate) fn begin_responses(&mut self, now: Nanos) {
        let records = self.contents.iter_mut().filter_map(|it| it.record.as_mut());
        records.for_each(|record| record.sends(now));
    }

    /// Writes frames of about `most` bytes at most, as far as their content is in memory.
    pub(crate) fn frames(&mut self, now: Nanos, most: u64, out: &mut Outgoing) -> Framed {
        let now = Time(now.0);
        let end = out.len().saturating_add(most).min(self.send_max);
        loop {
            let left = end.saturating_sub(out.len());
            if left == 0 || out.is_full() {
                return Framed::All;
            }
            let Some((stream, len)) = self.connection.next_content() else {
                // Control frames may still be pending.
                self.connection.poll_frame(now, 0, out.wire());
                return Framed::All;
            };
            let Some(index) = self.position(stream) else {
                debug_assert!(false, "content was promised and is not there");
                self.connection.abort(stream, ErrorCode::INTERNAL_ERROR);
                continue;
            };
            let at_hand = match self.contents[index].parts.front() {
                Some(Body::Own(_, range) | Body::Shared(_, range)) => range.len() as u64,
                Some(Body::File(file, range)) => {
                    // Bytes read but not sent stay in memory while the peer stalls, per stream;
                    // with several streams, only one frame's worth is read.
                    let frame = self.record_room(out).min(QUANTUM + FRAME_HEADER_LEN as u32);
                    let most = match self.contents.len() {
                        1 => left.clamp(u64::from(QUANTUM), STREAM_READ_MAX),
                        _ => u64::from(frame - FRAME_HEADER_LEN as u32),
                    };
                    let len = len.min(range.end - range.start).min(most);
                    return Framed::Read {
                        stream,
                        file: Rc::clone(file),
                        range: range.start..range.start + len,
                    };
                }
                None => 0,
            };
            // The bound cuts no frame shorter than half a quantum.
            let room = room_for(at_hand.min(left.max(u64::from(QUANTUM / 2))));
            let room = room.min(self.record_room(out));
            let Some(body) = self.connection.poll_frame(now, room, out.wire()) else {
                return Framed::All;
            };
            self.take(index, body.range.end - body.range.start, out);
            if body.is_last {
                let content = self.contents.swap_remove(index);
                self.records.extend(content.record);
            }
        }
    }

    /// Moves bytes of a content's first part to the send.
    fn take(&mut self, index: usize, len: u64, out: &mut Outgoing) {
        let parts = &mut self.contents[index].parts;
        let Some((memory, range)) = parts.front_mut().and_then(|body| body.take(len)) else {
            return debug_assert!(false, "frames are cut to what is at hand");
        };
        out.memory(&memory, range);
        if parts.front().is_some_and(Body::is_empty) {
            parts.pop_front();
        }
    }

    /// Adds bytes read from a stream's file.
    pub(crate) fn read(&mut self, stream: StreamId, bytes: Vec<u8>) {
        let Some(index) = self.position(stream) else {
            return;
        };
        let parts = &mut self.contents[index].parts;
        let Some(Body::File(_, range)) = parts.front_mut() else {
            debug_assert!(false, "one read at a time, of the first part");
            return;
        };
        range.start += bytes.len() as u64;
        if range.start == range.end {
            parts.pop_front();
        }
        parts.push_front(Body::own(bytes));
    }

    /// Whether `out` has reached the length allowed without querying the socket's room.
    pub(crate) fn is_filled(&self, out: &Outgoing) -> bool {
        out.len() >= self.send_max && self.send_max < STREAM_SEND_MAX
    }

    /// Allows the next send to become as long as the socket accepts at once.
    pub(crate) fn allow(&mut self, room: u64) {
        self.send_max = room.clamp(UNTAKEN_MAX, STREAM_SEND_MAX);
    }

    /// Takes the next send.
    pub(crate) fn take_out(&mut self) -> Option<Outgoing> {
        self.send_max = UNTAKEN_MAX;
        self.out.take()
    }

    /// Drops a stream's content and postponed read. Returns its log record.
    pub(crate) fn forget(&mut self, stream: StreamId) -> Option<Record> {
        self.waiting.retain(|waiting| *waiting != stream);
        let index = self.position(stream)?;
        self.contents.swap_remove(index).cut()
    }

    /// Ends all streams.
    pub(crate) fn end(&mut self) {
        self.disk.missed.clear();
        self.waiting.clear();
        let rest = self.contents.drain(..);
        self.cut.extend(rest.filter_map(StreamContent::cut));
    }

    /// Ends all streams of a lost connection: gathered output is not sent, either.
    pub(crate) fn abandon(&mut self) {
        self.end();
        self.cut.append(&mut self.records);
    }

    /// Bytes made or read only for its streams.
    pub(crate) fn held_bytes(&self) -> u64 {
        let parts = self.contents.iter().map(|it| Body::held_by(&it.parts));
        let entries = (self.contents.capacity() * size_of::<StreamContent>()) as u64;
        self.out.as_ref().map_or(0, Outgoing::wire_len) + entries + parts.sum::<u64>()
    }

    /// Bytes of pending log records.
    pub(crate) fn log_bytes(&self) -> u64 {
        let contents = self.contents.iter().filter_map(|it| it.record.as_ref());
        let records = self.records.iter().chain(&self.cut).chain(contents);
        records.map(Record::memory).sum()
    }

    /// Shared bodies that its streams are sending.
    pub(crate) fn shared(&self) -> impl Iterator<Item = &Arc<Memory>> {
        let parts = self.contents.iter().flat_map(|content| &content.parts);
        parts.filter_map(Body::shared)
    }

    /// Frees memory that an idle connection does not need.
    pub(crate) fn trim(&mut self) {
        self.connection.trim();
        self.contents = Vec::new();
        self.disk.missed = Vec::new();
        self.waiting = Vec::new();
        self.records = Vec::new();
    }

    fn position(&self, stream: StreamId) -> Option<usize> {
        self.contents.iter().position(|c| c.stream == stream)
    }
}

/// The shortest DATA frame that is cut to end with its TLS record.
const FRAME_IN_RECORD_MIN: u32 = 1_024;

/// The room of a DATA frame with this much content.
fn room_for(len: u64) -> u32 {
    let room = len.saturating_add(FRAME_HEADER_LEN as u64);
    u32::try_from(room).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Postponed reads belong to open streams: a stream that was reset is removed.
    #[test]
    fn what_is_forgotten_waits_no_more() {
        let mut streams = Streams::new(Nanos(0), &Limits::default(), false);
        let (reset, open) = (StreamId(1), StreamId(3));
        streams.waiting.extend([reset, open]);
        assert!(streams.forget(reset).is_none(), "no content, no record");
        assert_eq!(streams.waiting, [open]);
    }
}
