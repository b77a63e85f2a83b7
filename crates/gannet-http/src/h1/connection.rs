//! The machine of one HTTP/1 connection: requests in, response heads out, one after the other.
//!
//! # Order of calls
//!
//! ```text
//!               receive: Request, Reject
//!  new ──▶ Head ────────────────────────────▶ Respond
//!          ▲  ▲ └─ reject (timeout) ────────▶ │  │  │
//!          │  └──── respond ──────────────────┘  │  │
//!          │                                     │  │ respond, for the last time
//!          │       ┌─ respond, content to come ──┘  │
//!          │       ▼                                ▼
//!          └─── Discard ────────────────────────▶ Closing
//!    content ended      malformed, too much
//! ```
//!
//! 1. Call [`Connection::receive`] with all unconsumed bytes, first those left over, then those
//!    that arrived; drop [`Step::consumed`] of them. These are exactly the bytes of the event: a
//!    request consumes its head and nothing else. [`Event::NeedMore`] asks for more.
//! 2. After [`Event::Request`] or [`Event::Reject`] write the response with
//!    [`Connection::respond`], once; send content after it if the result says so.
//! 3. If [`Connection::is_closing`] then, nothing more is read: close when all is sent, after
//!    lingering if [`Connection::is_lingering`]. Otherwise continue with 1; the rest of the input
//!    may hold the next request (pipelining).
//!
//! A request is delivered when its head is complete, without waiting for its content: a server of
//! static content has no use for it. Up to [`DISCARD_MAX`] bytes of content are discarded after the
//! response, so that a connection survives a stray form. Content announced as longer, or held back
//! by the client until a 100 (Continue), ends the connection after the response, which announces
//! that with `connection: close`.
//!
//! After a rejection the connection always closes: once framing is in doubt, so is the start of the
//! next request. Malformed or overlong chunks are detected only after the response was sent; the
//! client could not interpret a second response, so the connection just closes.

use super::chunked::Chunked;
use super::error::Rejection;
use super::head::{self, Head, Progress};
use super::limits::DISCARD_MAX;
use super::write::{ConnectionLine, write_head};
use crate::semantics::date::DATE_LINE_LEN;
use crate::semantics::request::{Content, Method, Request, TargetForm, Version};
use crate::semantics::response::ResponseHead;

/// The result of reading input.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The length of the bytes that `event` describes, at the beginning of the input; 0 if more is
    /// needed. The caller drops these bytes once it is done with `event`.
    pub consumed: usize,
    /// What the bytes were.
    pub event: Event<'a>,
}

impl<'a> Step<'a> {
    const NEED_MORE: Self = Self {
        consumed: 0,
        event: Event::NeedMore,
    };

    /// After the last response all input is dropped.
    fn closing(input: &'a [u8]) -> Self {
        Self {
            consumed: input.len(),
            event: Event::Closing,
        }
    }
}

/// What was read.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one")]
pub enum Event<'a> {
    /// Nothing yet: call again with the same bytes and more appended.
    NeedMore,
    /// Content of the last request, or the empty line before the next: not needed by a server of
    /// static content. Call again with the rest.
    Dropped,
    /// A request, whose head is the bytes consumed: call [`Connection::respond`] next.
    Request(Request<'a>),
    /// A request that must be refused: call [`Connection::respond`] with this status next.
    Reject(Rejection),
    /// No more requests are read from this connection; input is dropped.
    Closing,
}

/// What the machine waits for: see the diagram of the module.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// A head, or more of it.
    Head,
    /// The caller's response.
    Respond,
    /// Content of a request that has been answered.
    Discard,
    /// Nothing: the last response was written.
    Closing,
}

/// Content still to come.
#[derive(Clone, Copy, Debug)]
enum Pending {
    None,
    Length(u64),
    Chunked(Chunked),
}

/// The server side of one HTTP/1 connection. It keeps no bytes; see the module for the order of
/// calls.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Content of the current request, or what is left of it.
    pending: Pending,
    /// How much of the arriving head was read.
    progress: Progress,
    /// Bytes of chunked content already discarded, at most [`DISCARD_MAX`].
    discarded: u32,
    state: State,
    /// What the response to the current request says about the connection.
    line: ConnectionLine,
    /// The current request is a `HEAD`.
    is_head: bool,
    /// The empty line that may precede a request was skipped.
    has_skipped_line: bool,
    /// The current response will be the last.
    is_draining: bool,
    is_lingering: bool,
}

impl Default for Connection {
    fn default() -> Self {
        Self::new()
    }
}

impl Connection {
    /// A connection that has received nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            pending: Pending::None,
            progress: Progress::default(),
            discarded: 0,
            state: State::Head,
            line: ConnectionLine::None,
            is_head: false,
            has_skipped_line: false,
            is_draining: false,
            is_lingering: false,
        }
    }

    /// Reads input: all bytes received and not consumed.
    ///
    /// Must not be called between a request (or rejection) and its response. At most
    /// [`HEAD_MAX`](super::limits::HEAD_MAX) bytes have to be kept for another call.
    #[inline]
    pub fn receive<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        debug_assert!(
            self.state != State::Respond,
            "respond comes before the next receive"
        );
        if self.state == State::Head && input.first() != Some(&b'\r') {
            return self.receive_head(input);
        }
        self.receive_other(input)
    }

    /// Reads the head that the input starts with.
    #[inline]
    fn receive_head<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        match head::parse(input, &mut self.progress) {
            Ok(Some(head)) => {
                self.accept(&head);
                Step {
                    consumed: head.len,
                    event: Event::Request(head.request),
                }
            }
            Ok(None) => {
                // The caller may give up on it.
                self.is_head = input.starts_with(b"HEAD ");
                Step::NEED_MORE
            }
            Err(why) => {
                self.is_head = input.starts_with(b"HEAD ");
                self.reject();
                Step {
                    consumed: input.len(),
                    event: Event::Reject(Rejection::of(why)),
                }
            }
        }
    }

    /// Handles input that does not start with a head: content to discard, an empty line, or bytes
    /// after the last request.
    #[cold]
    fn receive_other<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        match self.state {
            State::Discard if input.is_empty() => Step::NEED_MORE,
            State::Discard => match self.discard(input) {
                Some(consumed) => Step {
                    consumed,
                    event: Event::Dropped,
                },
                None => {
                    self.state = State::Closing;
                    self.is_lingering = true;
                    Step::closing(input)
                }
            },
            State::Closing => Step::closing(input),
            State::Head | State::Respond => self.receive_empty_line(input),
        }
    }

    /// RFC 9112 section 2.2: one empty line before a request line is skipped.
    fn receive_empty_line<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        if !self.progress.is_none() || self.has_skipped_line {
            return self.receive_head(input);
        }
        match input {
            [b'\r', b'\n', ..] => {
                self.has_skipped_line = true;
                Step {
                    consumed: 2,
                    event: Event::Dropped,
                }
            }
            [b'\r'] => {
                self.is_head = false;
                Step::NEED_MORE
            }
            _ => self.receive_head(input),
        }
    }

    /// Records a request.
    #[inline]
    fn accept(&mut self, head: &Head<'_>) {
        let request = &head.request;
        self.progress = Progress::default();
        self.has_skipped_line = false;
        self.is_head = request.method == Method::Head;
        self.line = match request.version {
            _ if self.is_draining || !head.is_persistent => ConnectionLine::Close,
            Version::Http10 => ConnectionLine::KeepAlive,
            Version::Http11 | Version::Http2 | Version::Http3 => ConnectionLine::None,
        };
        if request.content != Content::None || request.target.form == TargetForm::Authority {
            self.accept_content(head);
        }
        self.state = State::Respond;
    }

    /// Records a request with content, or one (`CONNECT`) that may be followed by bytes that are
    /// not a request.
    #[cold]
    fn accept_content(&mut self, head: &Head<'_>) {
        self.discarded = 0;
        self.pending = match head.request.content {
            Content::None => Pending::None,
            Content::Length(len) => Pending::Length(len),
            Content::Chunked => Pending::Chunked(Chunked::new()),
        };
        let is_unwelcome = match head.request.content {
            _ if head.request.target.form == TargetForm::Authority => true,
            Content::None => false,
            Content::Length(len) => len > DISCARD_MAX || head.expects_continue,
            Content::Chunked => head.expects_continue,
        };
        if is_unwelcome {
            self.line = ConnectionLine::Close;
            self.is_lingering = true;
        }
    }

    /// Discards content: returns how many bytes of the input it took; `None` if it is malformed or
    /// too long. The state shows whether it ended.
    fn discard(&mut self, input: &[u8]) -> Option<usize> {
        let (consumed, is_end) = match &mut self.pending {
            Pending::None => (0, true),
            Pending::Length(remaining) => {
                let taken = (*remaining).min(input.len() as u64);
                *remaining -= taken;
                (taken as usize, *remaining == 0)
            }
            Pending::Chunked(chunked) => {
                let (taken, is_end) = chunked.receive(input).ok()?;
                let discarded = u64::from(self.discarded) + taken as u64;
                if discarded > DISCARD_MAX {
                    return None;
                }
                self.discarded = discarded as u32;
                (taken, is_end)
            }
        };
        if is_end {
            self.pending = Pending::None;
            self.state = State::Head;
        }
        Some(consumed)
    }

    /// Appends the head of the response to the request (or rejection) last delivered.
    ///
    /// `date_line` is a whole `date` line ([`crate::semantics::date::DateLine`]). Returns whether
    /// content follows the head: not after `HEAD`, nor with 204 and 304. The response is final: no
    /// status below 200.
    #[inline]
    pub fn respond(
        &mut self,
        head: &ResponseHead<'_>,
        date_line: &[u8; DATE_LINE_LEN],
        out: &mut Vec<u8>,
    ) -> bool {
        debug_assert!(self.state == State::Respond, "one response per request");
        debug_assert!(head.status.0 >= 200, "interim responses have no place here");
        if self.is_draining {
            self.line = ConnectionLine::Close;
        }
        write_head(head, date_line, self.line, out);
        self.state = match self.pending {
            _ if self.line == ConnectionLine::Close => {
                self.is_lingering |= !matches!(self.pending, Pending::None);
                State::Closing
            }
            Pending::None => State::Head,
            Pending::Length(_) | Pending::Chunked(_) => State::Discard,
        };
        !self.is_head && !head.status.is_without_content()
    }

    /// Gives up on the arriving request, for a reason that only the caller knows (a timeout): call
    /// [`respond`](Self::respond) next. The connection closes after it.
    #[cold]
    pub fn reject(&mut self) {
        debug_assert!(
            self.state == State::Head,
            "a request that was delivered is answered"
        );
        self.progress = Progress::default();
        self.line = ConnectionLine::Close;
        self.is_lingering = true;
        self.state = State::Respond;
    }

    /// Winds the connection down: the next response says `connection: close`. An idle connection
    /// may be closed at once.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Whether no request is under way, not even a part of its head.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.state == State::Head && self.progress.is_none()
    }

    /// Whether the last response was written: close when it is sent.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.state == State::Closing
    }

    /// Whether the peer may still be sending when the connection closes. A plain close could then
    /// reset the connection and lose the response (RFC 9112 section 9.6): end the sending half,
    /// drop input for a short while, then close.
    #[must_use]
    pub fn is_lingering(&self) -> bool {
        self.is_lingering
    }

    /// Whether more input can have any effect: not before a response, nor after the last one.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        matches!(self.state, State::Head | State::Discard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semantics::date::DateLine;
    use crate::semantics::response::Status;

    #[test]
    fn a_connection_stays_small() {
        assert!(size_of::<Connection>() <= 64, "{}", size_of::<Connection>());
    }

    /// The response to a request that is given up is that to its own method, if that has arrived, and
    /// not to the method of the request before it.
    #[test]
    fn what_is_given_up_has_its_own_method() {
        let date = DateLine::new(0);
        let respond = |connection: &mut Connection, status| {
            let head = ResponseHead {
                status,
                ready: None,
                content_length: Some(3),
                fields: &[],
            };
            connection.respond(&head, date.as_bytes(), &mut Vec::new())
        };
        for (before, begun, has_content) in [
            ("HEAD", "GET /ind", true),
            ("GET", "HEAD /ind", false),
            ("HEAD", "G", true),
            ("HEAD", "\r", true),
            ("HEAD", "\r\nGET /", true),
            ("GET", "\r\nHEAD /", false),
            ("GET", "HEADER /", true),
        ] {
            let mut connection = Connection::new();
            let request = format!("{before} / HTTP/1.1\r\nhost: x\r\n\r\n");
            let step = connection.receive(request.as_bytes());
            assert!(matches!(step.event, Event::Request(_)));
            assert_eq!(respond(&mut connection, Status::OK), before == "GET");
            let mut input = begun.as_bytes();
            loop {
                let step = connection.receive(input);
                input = &input[step.consumed..];
                match step.event {
                    Event::NeedMore => break,
                    Event::Dropped => {}
                    event => panic!("no request yet: {event:?}"),
                }
            }
            connection.reject();
            let sends = respond(&mut connection, Status::REQUEST_TIMEOUT);
            assert_eq!(sends, has_content, "{before}, then {begun:?}");
        }
    }
}
