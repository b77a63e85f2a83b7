//! Frames of requests: HEADERS, CONTINUATION, DATA.

use super::receive::{FrameFault, Outcome};
use super::{Connection, End, PartialBlock};
use crate::binary::CodingError;
use crate::binary::budget::Cost;
use crate::binary::limits::FIELD_BLOCK_MAX;
use crate::binary::priority::Priority;
use crate::binary::request::{SectionState, is_trailer};
use crate::h2::Time;
use crate::h2::error::{StreamError, Why};
use crate::h2::frame::{FrameHeader, data, flags, headers, window_update};
use crate::h2::limits::CONTINUATIONS_MAX;
use crate::h2::streams::{Closed, Response, Slot, Stream};
use crate::semantics::request::Method;

/// A complete field block.
struct Block<'b> {
    stream: u32,
    is_ended: bool,
    depends_on_itself: bool,
    bytes: &'b [u8],
}

impl Connection {
    pub(super) fn receive_headers(
        &mut self,
        now: Time,
        header: FrameHeader,
        payload: &[u8],
        scratch: &mut Vec<u8>,
        head: &mut SectionState,
    ) -> Result<Outcome, FrameFault> {
        // RFC 9113 5.1.1: streams that clients open are odd.
        if header.stream & 1 == 0 {
            return Err(Why::StreamIdentifier.into());
        }
        let frame = headers::parse(header, payload)?;
        if !header.has(flags::END_HEADERS) {
            self.block = Some(Box::new(PartialBlock {
                stream: header.stream,
                is_ended: header.has(flags::END_STREAM),
                depends_on_itself: frame.depends_on_itself,
                bytes: frame.fragment.to_vec(),
                continuations: 0,
            }));
            return Ok(Outcome::Nothing);
        }
        let block = Block {
            stream: header.stream,
            is_ended: header.has(flags::END_STREAM),
            depends_on_itself: frame.depends_on_itself,
            bytes: frame.fragment,
        };
        self.receive_block(now, &block, scratch, head)
    }

    pub(super) fn receive_continuation(
        &mut self,
        now: Time,
        header: FrameHeader,
        payload: &[u8],
        scratch: &mut Vec<u8>,
        head: &mut SectionState,
    ) -> Result<Outcome, FrameFault> {
        self.budget.charge(if payload.is_empty() {
            Cost::EmptyContinuation
        } else {
            Cost::Continuation
        })?;
        let mut block = self.block.take().ok_or(Why::ContinuationUnexpected)?;
        if block.stream != header.stream {
            return Err(Why::ContinuationExpected.into());
        }
        block.continuations += 1;
        let is_too_long = block.bytes.len() + payload.len() > FIELD_BLOCK_MAX;
        if is_too_long || block.continuations > CONTINUATIONS_MAX {
            return Err(Why::FieldBlockTooLong.into());
        }
        block.bytes.extend_from_slice(payload);
        if !header.has(flags::END_HEADERS) {
            self.block = Some(block);
            return Ok(Outcome::Nothing);
        }
        let block = Block {
            stream: block.stream,
            is_ended: block.is_ended,
            depends_on_itself: block.depends_on_itself,
            bytes: &block.bytes,
        };
        self.receive_block(now, &block, scratch, head)
    }

    /// Decodes a field block, whatever its purpose: the decoder has to stay in step.
    fn receive_block(
        &mut self,
        now: Time,
        block: &Block<'_>,
        scratch: &mut Vec<u8>,
        head: &mut SectionState,
    ) -> Result<Outcome, FrameFault> {
        scratch.clear();
        // It may still hold lines of a block that was given up.
        *head = SectionState::default();
        if block.stream > self.last_stream {
            self.decoder
                .decode(block.bytes, scratch, |line, _| head.add(line))
                .map_err(block_cause)?;
            return self.open(now, block, scratch, head);
        }
        let open = self.streams.find(block.stream);
        let mut are_trailers = true;
        self.decoder
            .decode(block.bytes, scratch, |line, _| {
                are_trailers &= is_trailer(line);
                false
            })
            .map_err(block_cause)?;
        match open {
            Some(slot) => self.receive_trailers(now, block, slot, are_trailers),
            None => self.receive_late_block(block.stream),
        }
    }

    /// A new stream.
    fn open(
        &mut self,
        now: Time,
        block: &Block<'_>,
        scratch: &[u8],
        head: &SectionState,
    ) -> Result<Outcome, FrameFault> {
        if let End::Final { last_stream } = self.end
            && block.stream > last_stream
        {
            // RFC 9113 6.8: the peer learns from the GOAWAY that nothing was done for it.
            self.budget.charge(Cost::WastedBlock)?;
            return Ok(Outcome::Nothing);
        }
        self.last_stream = block.stream;
        let fault = |why| FrameFault::Stream(block.stream, StreamError::of(why));
        let early_priority = self.early_priorities.take(block.stream);
        self.early_priorities.drop_below(block.stream);
        if self.streams.is_full() {
            return Err(fault(Why::TooManyStreams));
        }
        if block.depends_on_itself {
            return Err(fault(Why::SelfDependency));
        }
        let accepted = head.finish(scratch, block.is_ended);
        let accepted = accepted.map_err(|malformed| fault(malformed.into()))?;
        if accepted.rejection.is_some() {
            self.budget.charge(Cost::WastedBlock)?;
        }
        let deadline = self.pace.anew(now);
        let mut stream = Stream::new(block.stream, self.peer.initial_window, now, deadline);
        stream.is_request_ended = block.is_ended;
        stream.is_head = accepted.method == Method::Head;
        stream.request_left = accepted.content_length;
        // RFC 9218 7: the frame overrides the field, because it was sent with more knowledge.
        stream.priority = match (early_priority, head.priority(scratch)) {
            (Some(priority), _) => priority,
            (None, Some(value)) if accepted.rejection.is_none() => Priority::parse(value),
            _ => Priority::default(),
        };
        self.streams.insert(stream);
        self.check_at.get_or_insert(deadline);
        Ok(Outcome::Request {
            stream: block.stream,
            accepted,
            is_ended: block.is_ended,
        })
    }

    /// Trailers are ignored, but they end the request (RFC 9113 section 8.1).
    fn receive_trailers(
        &mut self,
        now: Time,
        block: &Block<'_>,
        slot: Slot,
        are_trailers: bool,
    ) -> Result<Outcome, FrameFault> {
        let fault = |why| FrameFault::Stream(block.stream, StreamError::of(why));
        let stream = self.streams.get(slot);
        if stream.is_request_ended {
            return Err(fault(Why::HalfClosed));
        }
        if block.depends_on_itself {
            return Err(fault(Why::SelfDependency));
        }
        if !block.is_ended || !are_trailers {
            return Err(fault(Why::Malformed));
        }
        self.end_request(now, slot).map_err(fault)?;
        Ok(Outcome::Nothing)
    }

    /// A field block for a stream that is no longer open.
    fn receive_late_block(&mut self, stream: u32) -> Result<Outcome, FrameFault> {
        match self.closed.find(stream) {
            Some(Closed::ByUs) => {
                self.budget.charge(Cost::WastedBlock)?;
                Ok(Outcome::Nothing)
            }
            Some(Closed::ByPeer) => Err(Why::StreamClosed.into()),
            // RFC 9113 5.1.1: identifiers only grow.
            None => Err(Why::StreamIdentifier.into()),
        }
    }

    pub(super) fn receive_data(
        &mut self,
        now: Time,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Outcome, FrameFault> {
        self.check_not_idle(header.stream)?;
        let content_len = data::content_len(header, payload)?;
        // Counted whatever the state of the stream (RFC 9113 section 6.9).
        if let Some(increment) = self.receive_window.receive(header.len)? {
            window_update::write(0, increment, &mut self.control);
        }
        let is_ended = header.has(flags::END_STREAM);
        if !is_ended && content_len < SMALL_DATA {
            let is_empty = content_len == 0;
            self.budget.charge(if is_empty {
                Cost::EmptyData
            } else {
                Cost::SmallData
            })?;
        }
        let Some(slot) = self.streams.find(header.stream) else {
            if self.closed.find(header.stream) == Some(Closed::ByPeer) {
                return Err(Why::StreamClosed.into());
            }
            self.budget.charge(Cost::Ignored)?;
            return Ok(Outcome::Nothing);
        };
        let fault = |why| FrameFault::Stream(header.stream, StreamError::of(why));
        let stream = self.streams.get_mut(slot);
        if stream.is_request_ended {
            return Err(fault(Why::HalfClosed));
        }
        stream.receive_left = stream
            .receive_left
            .checked_sub(header.len)
            .ok_or(fault(Why::WindowExceeded))?;
        if let Some(left) = &mut stream.request_left {
            *left = left
                .checked_sub(content_len.into())
                .ok_or(fault(Why::Malformed))?;
        }
        if content_len > 0 {
            stream.progress(now, content_len, &self.pace);
        }
        if is_ended {
            self.end_request(now, slot).map_err(fault)?;
        } else if stream.response == Response::Done {
            self.settle(slot);
        }
        Ok(Outcome::Nothing)
    }

    /// The request has ended; the stream ends with it if the response is complete.
    fn end_request(&mut self, now: Time, slot: Slot) -> Result<(), Why> {
        let stream = self.streams.get_mut(slot);
        if stream.request_left.is_some_and(|left| left > 0) {
            return Err(Why::Malformed);
        }
        stream.is_request_ended = true;
        stream.begin_anew(now, &self.pace, self.content_sent);
        if stream.response == Response::Done {
            self.settle(slot);
        }
        Ok(())
    }

    /// Closes a stream whose response is complete, if its request has ended too. If the request
    /// cannot end within its window, the stream is reset a little later: see
    /// [`CONTENT_LINGER_MS`](crate::h2::limits::CONTENT_LINGER_MS).
    #[inline]
    pub(super) fn settle(&mut self, slot: Slot) {
        let stream = self.streams.get(slot);
        if stream.is_request_ended {
            self.close_stream(slot, Closed::ByPeer);
            return;
        }
        let due = stream.due_at();
        self.check_at = Some(self.check_at.map_or(due, |at| at.min(due)));
    }

    /// A stream that was never opened accepts only HEADERS and PRIORITY (RFC 9113 5.1).
    pub(super) fn check_not_idle(&self, stream: u32) -> Result<(), Why> {
        if stream == 0 {
            return Err(Why::StreamIdentifier);
        }
        if stream & 1 == 0 || stream > self.last_stream {
            if let End::Final { last_stream } = self.end
                && stream > last_stream
                && stream & 1 == 1
            {
                return Ok(());
            }
            return Err(Why::IdleStream);
        }
        Ok(())
    }
}

fn block_cause(error: CodingError) -> FrameFault {
    FrameFault::Connection(match error {
        CodingError::TooLarge => Why::FieldBlockTooLong,
        _ => Why::FieldBlock,
    })
}

/// Content of a DATA frame below this is small, if the stream continues.
const SMALL_DATA: u32 = 64;
