//! A request and its response, on a bidirectional stream.
//!
//! ```text
//!             HEADERS            DATA ...      HEADERS (trailers)      the stream ends
//!   Head ───────────────▶ Content ──────────────▶ Trailed ───────────────────▶ Ended
//!    │  Request, Reject       └───────────────── the stream ends ──────────────▲
//!    │
//!    └─ Fault::Stream, at any moment ─▶ Ended: what still comes is dropped
//! ```
//!
//! 1. Pass bytes to [`RequestStream::receive`] as they come, and with the last ones that they are;
//!    call it again with those not consumed until it says [`Event::NeedMore`] or [`Event::End`].
//! 2. Answer [`Event::Request`] and [`Event::Reject`] with [`RequestStream::respond`], at once or
//!    later. Send what it writes, then the content, then the end of the stream; then call
//!    [`Connection::answered`].
//! 3. While [`RequestStream::wants_input`] is false the stream need not be read. If it has not ended
//!    when the response is complete, stop it with
//!    [`ErrorCode::NO_ERROR`](super::ErrorCode::NO_ERROR): the rest is not wanted (RFC 9114 section
//!    4.1).
//! 4. After [`Fault::Stream`] reset the stream and stop it, with the code of the error. If content
//!    that was announced is unavailable, do so with
//!    [`ErrorCode::INTERNAL_ERROR`](super::ErrorCode::INTERNAL_ERROR).
//!
//! Frames may be cut anywhere: nothing but the time of an event depends on it. Content is dropped
//! as it comes; of all else a field section at most is kept until it is complete.

mod reading;

use self::reading::{Step, Wrong};
use super::connection::Connection;
use super::error::{Fault, StreamError};
use super::frame::{FrameType, Partial, write_varint};
use super::limits::CONTENT_MAX;
use super::qpack;
use crate::binary::budget::Cost;
use crate::binary::priority::Priority;
use crate::binary::rejection::Rejection;
use crate::semantics::date::DATE_LINE_LEN;
use crate::semantics::request::{Request, Version};
use crate::semantics::response::ResponseHead;

/// What became of bytes of a request stream.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Bytes that are done with.
    pub consumed: usize,
    /// What they were.
    pub event: Event<'a>,
}

/// What bytes of a request stream amount to.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one")]
pub enum Event<'a> {
    /// Nothing that the caller has to know: all bytes are consumed.
    NeedMore,
    /// A request: call [`RequestStream::respond`].
    Request(Request<'a>),
    /// A request that must be refused: call [`RequestStream::respond`] with this status.
    Reject(Rejection),
    /// The request has ended, and is complete: its content has the length that it announced. Said
    /// once; nothing follows.
    End,
}

/// A request and its response. See the module for the order of calls.
#[derive(Clone, Debug)]
pub struct RequestStream {
    partial: Partial,
    at: At,
    phase: Phase,
    /// The part of a field section that has come.
    section: Vec<u8>,
    /// What is still to come of the content that was announced.
    content_left: Option<u64>,
    content_received: u64,
    /// As a frame has it, or the request's field.
    priority: Priority,
    is_priority_set: bool,
    /// The response has no content: to HEAD, or to a request whose method is not known.
    is_without_content: bool,
    has_responded: bool,
}

/// Where in a frame the next byte is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum At {
    Header,
    /// A field section of this length.
    Section(usize),
    /// Content of which so much is left.
    Data(u64),
    /// So many bytes that mean nothing.
    Ignored(u64),
}

/// What has come so far.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Phase {
    /// Nothing.
    Head,
    /// The header section.
    Content,
    /// The trailer section.
    Trailed,
    /// The end, or an error.
    Ended,
}

impl RequestStream {
    /// A stream on which nothing was received, whose priority is known if a frame said it.
    pub(super) fn new(early_priority: Option<Priority>) -> Self {
        Self {
            partial: Partial::default(),
            at: At::Header,
            phase: Phase::Head,
            section: Vec::new(),
            content_left: None,
            content_received: 0,
            priority: early_priority.unwrap_or_default(),
            is_priority_set: early_priority.is_some(),
            is_without_content: false,
            has_responded: false,
        }
    }

    /// Bytes of the stream have come, and its end if `is_fin`.
    ///
    /// `scratch` takes the fields of a request; it belongs to the caller, so that one buffer does
    /// for many streams. What was in it is lost.
    ///
    /// # Errors
    /// What the peer has done wrong, and whether the stream ends or the connection.
    pub fn receive<'a>(
        &mut self,
        connection: &mut Connection,
        input: &[u8],
        is_fin: bool,
        scratch: &'a mut Vec<u8>,
    ) -> Result<Received<'a>, Fault> {
        let mut rest = input;
        let mut fault = None;
        let step = connection.checked(|connection| {
            match self.read(connection, &mut rest, is_fin, scratch) {
                Ok(step) => Ok(step),
                Err(Wrong::Connection(why)) => Err(why),
                Err(Wrong::Stream(why)) => {
                    fault = Some(why);
                    connection.budget.charge(Cost::Reset)?;
                    Ok(Step::Nothing)
                }
            }
        });
        let is_over = step.is_err() || fault.is_some();
        if is_over {
            self.phase = Phase::Ended;
            self.section = Vec::new();
        }
        let step = step?;
        if let Some(why) = fault {
            return Err(Fault::Stream(StreamError::of(why)));
        }
        let consumed = input.len() - rest.len();
        let event = match step {
            Step::Request(head, accepted) => {
                let request = head.request(scratch, &accepted, Version::Http3, false);
                match request {
                    Some(request) => Event::Request(request),
                    None => unreachable!("a section is accepted only if it is a request"),
                }
            }
            Step::Reject(rejection) => Event::Reject(rejection),
            Step::Nothing if is_fin && self.phase != Phase::Ended => {
                self.phase = Phase::Ended;
                Event::End
            }
            Step::Nothing => Event::NeedMore,
        };
        Ok(Received { consumed, event })
    }

    /// Appends the head of the response to `wire`: a HEADERS frame, and the header of a DATA frame
    /// if content follows, which is all of it.
    ///
    /// `date_line` is a whole `date` line ([`crate::semantics::date::DateLine`]). `content_len` is
    /// how many bytes of content the response has; after `HEAD` and with 204 and 304 none are sent
    /// all the same. Gives whether content follows: if not, the stream ends here. The response is
    /// final: no status below 200.
    #[inline]
    pub fn respond(
        &mut self,
        head: &ResponseHead<'_>,
        date_line: &[u8; DATE_LINE_LEN],
        content_len: u64,
        wire: &mut Vec<u8>,
    ) -> bool {
        debug_assert!(head.status.0 >= 200, "interim responses have no place here");
        debug_assert!(!self.has_responded, "one response per request");
        self.has_responded = true;
        qpack::write_head(head, date_line, wire);
        let has_content =
            content_len > 0 && !self.is_without_content && !head.status.is_without_content();
        if has_content {
            write_varint(FrameType::DATA.0, wire);
            write_varint(content_len, wire);
        }
        has_content
    }

    /// Whether more input can lead to anything: not after its end or an error, nor when so much
    /// content has come that the rest is not wanted ([`CONTENT_MAX`]). Bytes that come all the same
    /// may be passed on.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.phase != Phase::Ended && self.content_received <= CONTENT_MAX
    }

    /// Whether the request has not come yet.
    #[must_use]
    pub fn awaits_head(&self) -> bool {
        self.phase == Phase::Head
    }

    /// Whether [`respond`](Self::respond) was called.
    #[must_use]
    pub fn has_responded(&self) -> bool {
        self.has_responded
    }

    /// Bytes of content that have come and were dropped.
    #[must_use]
    pub fn content_received(&self) -> u64 {
        self.content_received
    }

    /// The priority of the response: what a frame said last, else the request's field.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// The peer has changed the priority by a frame.
    pub fn prioritize(&mut self, priority: Priority) {
        self.priority = priority;
        self.is_priority_set = true;
    }

    /// Bytes of memory held beyond the stream's own size: at most
    /// [`REQUEST_MEMORY_MAX`](super::limits::REQUEST_MEMORY_MAX).
    #[must_use]
    pub fn memory(&self) -> usize {
        self.section.capacity()
    }
}
