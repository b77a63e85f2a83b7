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

use super::connection::Connection;
use super::error::{Fault, StreamError, Why};
use super::frame::{FrameHeader, FrameType, Partial, write_varint};
use super::limits::{CONTENT_MAX, SMALL_DATA};
use super::qpack;
use super::uni::charge_ignored;
use crate::binary::CodingError;
use crate::binary::budget::Cost;
use crate::binary::limits::FIELD_BLOCK_MAX;
use crate::binary::priority::Priority;
use crate::binary::rejection::{Rejection, RejectionWhy};
use crate::binary::request::{Accepted, Head, is_trailer};
use crate::semantics::date::DATE_LINE_LEN;
use crate::semantics::request::{Method, Request, Version};
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

/// What a step through the input leads to.
enum Step {
    Nothing,
    Request(Head, Accepted),
    Reject(Rejection),
}

/// What is wrong with the input.
enum Wrong {
    Connection(Why),
    Stream(Why),
}

impl<T: Into<Why>> From<T> for Wrong {
    /// A connection error, unless it is marked as a stream error.
    fn from(why: T) -> Self {
        Self::Connection(why.into())
    }
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

    /// Reads input until there is something to say.
    fn read(
        &mut self,
        connection: &mut Connection,
        rest: &mut &[u8],
        is_fin: bool,
        scratch: &mut Vec<u8>,
    ) -> Result<Step, Wrong> {
        if self.phase == Phase::Ended {
            *rest = &[];
            return Ok(Step::Nothing);
        }
        loop {
            match self.at {
                At::Header => {
                    let Some(header) = self.partial.read_header(rest) else {
                        break;
                    };
                    if let Some(rejection) = self.begin(header, connection)? {
                        return Ok(Step::Reject(rejection));
                    }
                }
                At::Section(len) => {
                    let missing = len - self.section.len();
                    let Some((bytes, after)) = rest.split_at_checked(missing) else {
                        self.keep(len, std::mem::take(rest));
                        break;
                    };
                    *rest = after;
                    self.at = At::Header;
                    let step = if self.section.is_empty() {
                        self.read_section(bytes, connection, scratch)?
                    } else {
                        let mut section = std::mem::take(&mut self.section);
                        section.extend_from_slice(bytes);
                        self.read_section(&section, connection, scratch)?
                    };
                    if !matches!(step, Step::Nothing) {
                        return Ok(step);
                    }
                }
                At::Data(left) => {
                    let len = left.min(rest.len() as u64);
                    *rest = &rest[len as usize..];
                    self.content_received += len;
                    if len < left {
                        self.at = At::Data(left - len);
                        break;
                    }
                    self.at = At::Header;
                }
                At::Ignored(left) => {
                    let len = left.min(rest.len() as u64);
                    *rest = &rest[len as usize..];
                    if len < left {
                        self.at = At::Ignored(left - len);
                        break;
                    }
                    self.at = At::Header;
                }
            }
        }
        if is_fin {
            self.finish()
        } else {
            Ok(Step::Nothing)
        }
    }

    /// What follows a frame header.
    #[inline]
    fn begin(
        &mut self,
        header: FrameHeader,
        connection: &mut Connection,
    ) -> Result<Option<Rejection>, Wrong> {
        match (header.kind, self.phase) {
            (FrameType::HEADERS, Phase::Head | Phase::Content) => {
                return self.begin_section(header.len, connection);
            }
            (FrameType::DATA, Phase::Content) => self.begin_data(header.len, connection)?,
            (
                FrameType::DATA
                | FrameType::HEADERS
                | FrameType::SETTINGS
                | FrameType::GOAWAY
                | FrameType::MAX_PUSH_ID
                | FrameType::CANCEL_PUSH
                | FrameType::PUSH_PROMISE
                | FrameType::PRIORITY_UPDATE_REQUEST
                | FrameType::PRIORITY_UPDATE_PUSH,
                _,
            ) => return Err(Why::FrameUnexpected.into()),
            (kind, _) if kind.is_reserved() => return Err(Why::FrameReserved.into()),
            _ => {
                charge_ignored(header.len, &mut connection.budget)?;
                self.at = At::Ignored(header.len);
            }
        }
        Ok(None)
    }

    #[inline]
    fn begin_section(
        &mut self,
        len: u64,
        connection: &mut Connection,
    ) -> Result<Option<Rejection>, Wrong> {
        if len <= FIELD_BLOCK_MAX as u64 {
            self.at = At::Section(len as usize);
            return Ok(None);
        }
        if self.phase == Phase::Content {
            return Err(Wrong::Stream(Why::TrailersTooLong));
        }
        // It is not kept, and so its method is not known.
        self.at = At::Ignored(len);
        self.reject_unread(connection).map(Some)
    }

    /// Refuses a request whose fields are too large to be read.
    #[cold]
    fn reject_unread(&mut self, connection: &mut Connection) -> Result<Rejection, Wrong> {
        connection.budget.charge(Cost::WastedBlock)?;
        self.phase = Phase::Content;
        self.is_without_content = true;
        Ok(Rejection::of(RejectionWhy::FieldSectionTooLarge))
    }

    fn begin_data(&mut self, len: u64, connection: &mut Connection) -> Result<(), Wrong> {
        if len < SMALL_DATA {
            let is_empty = len == 0;
            connection.budget.charge(if is_empty {
                Cost::EmptyData
            } else {
                Cost::SmallData
            })?;
        }
        if let Some(left) = &mut self.content_left {
            let after = left.checked_sub(len);
            *left = after.ok_or(Wrong::Stream(Why::Malformed))?;
        }
        self.at = At::Data(len);
        Ok(())
    }

    /// Keeps the part of a field section that has come.
    fn keep(&mut self, len: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.section.capacity() < self.section.len() + bytes.len() {
            // What has come is doubled, up to the whole: an announced length alone takes nothing.
            let most = len - self.section.len();
            let more = bytes.len().max(self.section.len()).max(KEPT_MIN).min(most);
            self.section.reserve_exact(more);
        }
        self.section.extend_from_slice(bytes);
    }

    /// A field section is complete.
    #[inline]
    fn read_section(
        &mut self,
        section: &[u8],
        connection: &mut Connection,
        scratch: &mut Vec<u8>,
    ) -> Result<Step, Wrong> {
        scratch.clear();
        if self.phase == Phase::Content {
            return self.read_trailers(section, scratch);
        }
        let mut head = Head::default();
        match qpack::decode(section, scratch, |line, _| head.add(line)) {
            Ok(()) => {}
            Err(CodingError::TooLarge) => {
                return self.reject_unread(connection).map(Step::Reject);
            }
            Err(error) => return Err(error.into()),
        }
        let accepted = head.finish(scratch, false);
        let accepted = accepted.map_err(|malformed| Wrong::Stream(malformed.into()))?;
        self.phase = Phase::Content;
        self.is_without_content = accepted.method == Method::Head;
        if let Some(rejection) = accepted.rejection {
            connection.budget.charge(Cost::WastedBlock)?;
            return Ok(Step::Reject(rejection));
        }
        self.content_left = accepted.content_length;
        // RFC 9218 7: the frame was sent with more knowledge than the field.
        if !self.is_priority_set
            && let Some(value) = head.priority(scratch)
        {
            self.priority = Priority::parse(value);
        }
        Ok(Step::Request(head, accepted))
    }

    /// Nothing in trailers matters, but they have to be well-formed (RFC 9114 section 4.1).
    fn read_trailers(&mut self, section: &[u8], scratch: &mut Vec<u8>) -> Result<Step, Wrong> {
        let mut are_trailers = true;
        let decoded = qpack::decode(section, scratch, |line, _| {
            are_trailers &= is_trailer(line);
            false
        });
        match decoded {
            Ok(()) if are_trailers => {
                self.phase = Phase::Trailed;
                Ok(Step::Nothing)
            }
            Ok(()) => Err(Wrong::Stream(Why::Malformed)),
            Err(CodingError::TooLarge) => Err(Wrong::Stream(Why::TrailersTooLong)),
            Err(error) => Err(error.into()),
        }
    }

    /// The stream has ended: is the request complete?
    fn finish(&mut self) -> Result<Step, Wrong> {
        if self.at != At::Header || !self.partial.is_empty() {
            return Err(Why::FrameCut.into());
        }
        if self.phase == Phase::Head {
            return Err(Wrong::Stream(Why::Incomplete));
        }
        if self.content_left.is_some_and(|left| left > 0) {
            return Err(Wrong::Stream(Why::Malformed));
        }
        Ok(Step::Nothing)
    }
}

/// The least that is kept of a field section at a time, in bytes.
const KEPT_MIN: usize = 256;
