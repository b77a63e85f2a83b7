//! Output: response heads, and the frames of their content in the order of priorities.

use std::ops::Range;

use super::{Connection, End};
use crate::binary::budget::Cost;
use crate::h2::error::ErrorCode;
use crate::h2::frame::{FRAME_HEADER_LEN, FrameHeader, continuation, data, flags, headers};
use crate::h2::hpack::{encoder, ready};
use crate::h2::limits::{QUANTUM, SHORT_FRAME};
use crate::h2::streams::{Response, Slot};
use crate::h2::{StreamId, Time};
use crate::semantics::date::DATE_LINE_LEN;
use crate::semantics::response::{FieldBlock, ReadyPart, ResponseHead};

/// A range of a response's content that follows the frame header written last.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Body {
    /// The stream whose content it is.
    pub stream: StreamId,
    /// Which bytes of the content, counted from the first one that is sent (0 for a range response
    /// too). Never empty.
    pub range: Range<u64>,
    /// Whether the content ends here: the caller forgets the stream once these bytes are sent.
    pub is_last: bool,
}

impl Connection {
    /// Appends the head of a response to `wire`, as HEADERS and CONTINUATION frames, after pending
    /// control frames.
    ///
    /// `date_line` is a whole `date` line ([`crate::semantics::date::DateLine`]). `content_len` is
    /// the length of the response's content, even where none is sent: after `HEAD`, and with 204
    /// and 304. Returns whether content follows, which [`poll_frame`](Self::poll_frame) will name:
    /// if not, the response is complete. The response is final: no status below 200. For a stream
    /// that is no longer open nothing is written.
    #[inline]
    pub fn respond(
        &mut self,
        stream: StreamId,
        head: &ResponseHead<'_>,
        date_line: &[u8; DATE_LINE_LEN],
        content_len: u64,
        wire: &mut Vec<u8>,
    ) -> bool {
        debug_assert!(head.status.0 >= 200, "interim responses have no place here");
        let Some(slot) = self.streams.find(stream.0) else {
            return false;
        };
        let open = self.streams.get_mut(slot);
        if open.response != Response::Awaited {
            debug_assert!(false, "one response per request");
            return false;
        }
        let has_content = content_len > 0 && !open.is_head && !head.status.is_without_content();
        open.content_len = content_len;
        open.begin_anew(self.now, &self.pace, self.content_sent);
        open.response = if has_content {
            Response::Sending
        } else {
            Response::Done
        };
        self.write_control(wire);
        self.write_head(stream.0, head, date_line, !has_content, wire);
        if has_content {
            self.streams.requeue(slot);
        } else {
            self.budget.earn_response();
            self.settle(slot);
        }
        has_content
    }

    /// Gives up a stream: RST_STREAM with this code, if it is open. No event follows.
    pub fn abort(&mut self, stream: StreamId, code: ErrorCode) {
        if let Some(slot) = self.find_open(stream) {
            self.close_with(slot, code);
        }
    }

    /// Holds back a response's content while the caller does not have it available; other streams
    /// continue.
    pub fn pause(&mut self, stream: StreamId) {
        self.set_paused(stream, true);
    }

    /// Continues a response's content after [`pause`](Self::pause).
    pub fn resume(&mut self, stream: StreamId) {
        self.set_paused(stream, false);
    }

    /// The caller starts, or restarts, fetching what a response needs: its time limit counts from
    /// now. When it expires, [`handle_timeout`](Self::handle_timeout) ends the stream.
    pub fn defer(&mut self, stream: StreamId, now: Time) {
        if let Some(slot) = self.find_open(stream) {
            let seen = self.content_sent;
            self.streams.get_mut(slot).begin_anew(now, &self.pace, seen);
        }
    }

    fn set_paused(&mut self, stream: StreamId, is_paused: bool) {
        if let Some(slot) = self.find_open(stream) {
            self.streams.get_mut(slot).is_paused = is_paused;
            self.streams.requeue(slot);
        }
    }

    pub(super) fn find_open(&self, stream: StreamId) -> Option<Slot> {
        if stream.0 == 0 {
            return None;
        }
        self.streams.find(stream.0)
    }

    /// Whether [`poll_frame`](Self::poll_frame) has anything to append, given room.
    #[inline]
    #[must_use]
    pub fn wants_output(&self) -> bool {
        !self.control.is_empty()
            || (self.send_window.available() > 0 && self.streams.first_sendable().is_some())
    }

    /// The stream that [`poll_frame`](Self::poll_frame) would name next, given room, and how many
    /// bytes of its content the windows allow. `None` if no content can be sent now.
    ///
    /// For a caller that may have to fetch content first: it fetches, or calls
    /// [`pause`](Self::pause).
    #[inline]
    #[must_use]
    pub fn next_content(&self) -> Option<(StreamId, u64)> {
        let stream = self.streams.get(self.streams.first_sendable()?);
        let window = stream.send_window.available();
        let window = u64::from(window.min(self.send_window.available()));
        let len = window.min(stream.content_len - stream.sent);
        (len > 0).then_some((StreamId(stream.id), len))
    }

    /// Appends pending control frames, and the header of the next DATA frame, whose content is to
    /// be sent after it; `None` if no content can be sent now.
    ///
    /// `room` bounds the DATA frame, header and content, in bytes: for a TLS record to be filled
    /// exactly, or the rest of a budget. One frame has at most [`QUANTUM`] bytes of content, so
    /// that urgency and turns are re-evaluated.
    #[inline]
    pub fn poll_frame(&mut self, now: Time, room: u32, wire: &mut Vec<u8>) -> Option<Body> {
        self.now = self.now.max(now);
        self.write_control(wire);
        let slot = self.streams.first_sendable()?;
        let content_room = room.saturating_sub(FRAME_HEADER_LEN as u32);
        let connection_window = self.send_window.available();
        let stream = self.streams.get_mut(slot);
        let left = stream.content_len - stream.sent;
        let window = stream.send_window.available().min(connection_window);
        let most = content_room.min(self.peer.frame_payload_max).min(QUANTUM);
        // At most QUANTUM.
        let len = left.min(u64::from(window.min(most))) as u32;
        if len == 0 {
            return None;
        }
        let is_last = u64::from(len) == left;
        let range = stream.sent..stream.sent + u64::from(len);
        stream.sent = range.end;
        stream.send_window.consume(len);
        stream.progress(now, len, &self.pace);
        self.content_sent += u64::from(len);
        self.send_window.consume(len);
        let body = Body {
            stream: StreamId(stream.id),
            range,
            is_last,
        };
        data::write_header(stream.id, len, is_last, wire);
        self.budget.earn_content(len);
        if is_last {
            self.finish_response(slot);
        } else {
            self.go_on(slot, len, most.min(SHORT_FRAME) > window);
        }
        Some(body)
    }

    /// The content of a response was announced to its end.
    #[inline]
    fn finish_response(&mut self, slot: Slot) {
        self.streams.get_mut(slot).response = Response::Done;
        self.streams.requeue(slot);
        self.budget.earn_response();
        self.settle(slot);
    }

    /// Decides, after a frame of unfinished content, whether it is still this stream's turn.
    #[inline]
    fn go_on(&mut self, slot: Slot, len: u32, is_short_of_window: bool) {
        self.streams.requeue(slot);
        let stream = self.streams.get(slot);
        let quantum = u64::from(QUANTUM);
        let is_turn_over = stream.sent / quantum > (stream.sent - u64::from(len)) / quantum;
        if stream.priority.is_incremental && is_turn_over {
            self.streams.rotate(slot);
        }
        if is_short_of_window && len < SHORT_FRAME && self.budget.charge(Cost::ShortFrame).is_err()
        {
            self.fail(crate::h2::Why::BudgetSpent);
        }
    }

    /// Appends pending control frames.
    #[inline]
    fn write_control(&mut self, wire: &mut Vec<u8>) {
        if !self.control.is_empty() {
            wire.extend_from_slice(&self.control);
            self.control.clear();
        }
    }

    /// Appends HEADERS, and CONTINUATION if the block exceeds the frame size.
    #[inline]
    fn write_head(
        &mut self,
        stream: u32,
        head: &ResponseHead<'_>,
        date_line: &[u8; DATE_LINE_LEN],
        is_ended: bool,
        wire: &mut Vec<u8>,
    ) {
        debug_assert!(self.end != End::Over, "no stream is open after an error");
        wire.reserve(PLAIN_HEAD_LEN);
        let header_start = wire.len();
        wire.extend_from_slice(&[0; FRAME_HEADER_LEN]);
        let block_start = wire.len();
        if self.peer.owes_size_update {
            wire.push(encoder::SIZE_UPDATE_ZERO);
            self.peer.note_size_update();
        }
        write_fields(head, date_line, wire);
        let end_stream = if is_ended { flags::END_STREAM } else { 0 };
        let block_len = wire.len() - block_start;
        if block_len <= MAX_UNCUT {
            let header = headers::header(stream, block_len as u32, flags::END_HEADERS | end_stream);
            wire[header_start..block_start].copy_from_slice(&header.to_bytes());
        } else {
            cut_block(stream, end_stream, header_start, wire);
        }
    }
}

/// Appends the fields of a response.
#[inline]
fn write_fields(head: &ResponseHead<'_>, date_line: &[u8; DATE_LINE_LEN], out: &mut Vec<u8>) {
    encoder::write_status(head.status, out);
    encoder::write_date(date_line, out);
    let mut has_length = false;
    if let Some((block, part)) = head.ready {
        has_length = part == ReadyPart::Whole;
        match block.hpack {
            Some(hpack) => {
                for piece in hpack.part(part) {
                    out.extend_from_slice(piece);
                }
            }
            None => write_lines(block.h1, part, out),
        }
    }
    debug_assert!(
        !(has_length && head.content_length.is_some()),
        "the length is given once"
    );
    if let Some(len) = head.content_length
        && !head.status.is_without_content()
    {
        encoder::write_content_length(len, out);
    }
    for (name, value) in head.fields {
        debug_assert!(
            !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)),
            "values of fields are checked where they are made"
        );
        encoder::write_field(name, value, out);
    }
}

/// Encodes a ready block that was not encoded ahead of time.
#[cold]
fn write_lines(block: FieldBlock<'_>, part: ReadyPart, out: &mut Vec<u8>) {
    for piece in block.part(part) {
        let written = ready::write_lines(piece, out);
        debug_assert!(written.is_some(), "ready blocks are lines");
    }
}

/// Splits a block that exceeds the frame size into frames; it begins after the room for a header at
/// `header_start`.
#[cold]
fn cut_block(stream: u32, end_stream: u8, header_start: usize, wire: &mut Vec<u8>) {
    let block = wire.split_off(header_start + FRAME_HEADER_LEN);
    wire.truncate(header_start);
    let count = block.chunks(MAX_UNCUT).len();
    for (index, fragment) in block.chunks(MAX_UNCUT).enumerate() {
        let end_headers = if index + 1 == count {
            flags::END_HEADERS
        } else {
            0
        };
        let len = fragment.len() as u32;
        let header: FrameHeader = if index == 0 {
            headers::header(stream, len, end_stream | end_headers)
        } else {
            continuation::header(stream, len, end_headers)
        };
        header.write(wire);
        wire.extend_from_slice(fragment);
    }
}

/// The longest fragment of a field block in one frame, in bytes: what every peer accepts.
const MAX_UNCUT: usize = 16_384;

/// Room for the HEADERS frame of a usual response and the next DATA frame's header.
const PLAIN_HEAD_LEN: usize = 256;
