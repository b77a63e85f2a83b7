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
//! 1. Pass bytes to [`RequestStream::receive`] as they arrive, with `is_fin` for the last ones;
//!    call it again with the bytes not consumed until it returns [`Event::NeedMore`] or
//!    [`Event::End`].
//! 2. Answer [`Event::Request`] and [`Event::Reject`] with [`RequestStream::respond`], at once or
//!    later. Send its output, then the content, then the end of the stream; then call
//!    [`Connection::answered`].
//! 3. While [`RequestStream::wants_input`] is false the stream need not be read. If it has not
//!    ended when the response is complete, stop it with
//!    [`ErrorCode::NO_ERROR`](super::ErrorCode::NO_ERROR): the rest is not needed (RFC 9114 section
//!    4.1).
//! 4. After [`Fault::Stream`] reset the stream and stop it, with the code of the error. If
//!    announced content turns out to be unavailable, do the same with
//!    [`ErrorCode::INTERNAL_ERROR`](super::ErrorCode::INTERNAL_ERROR).
//!
//! Input may be split anywhere: this affects only the time of events. Content is dropped as it
//! arrives; at most one incomplete field section is buffered.

mod reading;

use self::reading::{ReadingStep, Wrong};
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

/// The result of receiving bytes of a request stream.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Number of input bytes processed.
    pub consumed: usize,
    /// What the caller has to do.
    pub event: Event<'a>,
}

/// What the caller has to do after bytes of a request stream.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one")]
pub enum Event<'a> {
    /// Nothing: all bytes are consumed.
    NeedMore,
    /// A request: call [`RequestStream::respond`].
    Request(Request<'a>),
    /// A request that must be refused: call [`RequestStream::respond`] with this status.
    Reject(Rejection),
    /// The request is complete, and its content has the announced length. Reported once; nothing
    /// follows.
    End,
}

/// A request and its response. See the module for the order of calls.
#[derive(Clone, Debug)]
pub struct RequestStream {
    partial: Partial,
    at: At,
    phase: Phase,
    /// The received part of an incomplete field section.
    section: Vec<u8>,
    /// Bytes of announced content still to be received; `None` if the request has no
    /// `content-length`.
    content_left: Option<u64>,
    content_received: u64,
    /// From a PRIORITY_UPDATE frame, else from the request's field.
    priority: Priority,
    is_priority_set: bool,
    /// The response has no content: the method is HEAD, or unknown because the section was not
    /// decoded.
    is_without_content: bool,
    has_responded: bool,
}

/// The position of the next byte in a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum At {
    Header,
    /// A field section of this length.
    Section(usize),
    /// Content, with this many bytes left.
    Data(u64),
    /// The payload of an unknown frame, with this many bytes left.
    Ignored(u64),
}

/// The part of the request received so far.
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
    /// Creates the state of a new stream, with the priority of an early PRIORITY_UPDATE frame.
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

    /// Receives bytes of the stream, and its end if `is_fin`.
    ///
    /// `scratch` receives the fields of a request, to which [`Event::Request`] refers. It belongs
    /// to the caller, so that many streams share one buffer. Its old content is discarded.
    ///
    /// # Errors
    /// The peer's error, which ends the stream or the connection.
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
                    Ok(ReadingStep::Nothing)
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
            ReadingStep::Request(head, accepted) => {
                let request = head.request(scratch, &accepted, Version::Http3, false);
                match request {
                    Some(request) => Event::Request(request),
                    None => unreachable!("a section is accepted only if it is a request"),
                }
            }
            ReadingStep::Reject(rejection) => Event::Reject(rejection),
            ReadingStep::Nothing if is_fin && self.phase != Phase::Ended => {
                self.phase = Phase::Ended;
                Event::End
            }
            ReadingStep::Nothing => Event::NeedMore,
        };
        Ok(Received { consumed, event })
    }

    /// Appends the head of the response to `wire`: a HEADERS frame and, if content follows, the
    /// header of a single DATA frame for all of it.
    ///
    /// `date_line` is a whole `date` line ([`crate::semantics::date::DateLine`]). `content_len` is
    /// the length of the content in bytes, even if none is sent because the method is `HEAD` or the
    /// status is 204 or 304. Returns whether content follows: if not, the caller ends the stream.
    /// The response must be final: a status of at least 200.
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

    /// Whether more input can have any effect: false after the end or an error, and once more than
    /// [`CONTENT_MAX`] bytes of content have been received. Passing more bytes is permitted even
    /// then.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.phase != Phase::Ended && self.content_received <= CONTENT_MAX
    }

    /// Whether the header section is still incomplete.
    #[must_use]
    pub fn awaits_head(&self) -> bool {
        self.phase == Phase::Head
    }

    /// Whether [`respond`](Self::respond) was called.
    #[must_use]
    pub fn has_responded(&self) -> bool {
        self.has_responded
    }

    /// Bytes of content received and dropped.
    #[must_use]
    pub fn content_received(&self) -> u64 {
        self.content_received
    }

    /// The priority of the response: from the last PRIORITY_UPDATE frame, else from the request's
    /// field.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Sets the priority that a PRIORITY_UPDATE frame has.
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
