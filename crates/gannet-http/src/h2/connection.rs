//! The machine of one HTTP/2 connection: frames in, requests out; responses in, frames out.
//!
//! # Order of calls
//!
//! ```text
//!  new ──▶ Preface ──▶ Settings ──▶ Frames ◀───────────────┐
//!             │            │          │  receive: Request, Reject, Reset, NeedMore
//!             │            │          │  respond, abort, pause, resume, poll_frame
//!             │            │          └────────────────────┘
//!             │            │          │ drain, the peer's GOAWAY      the last stream ends
//!             │            │          ├──────────────▶ Draining ─────────────┐
//!             ▼            ▼          ▼                   ▼                  ▼
//!             └────────────┴── receive: Closed, handle_timeout ────────▶ closing
//!
//!  a stream (RFC 9113 5.1):
//!
//!               receive: Request                respond, no content
//!       idle ──────────────────────▶ Awaited ──────────────────────────▶ Done
//!                                      │   respond                        ▲
//!                                      └──────────▶ Sending ──────────────┘
//!                                                        poll_frame: is_last
//!       Done and the request has ended ─▶ closed; receive: Reset, abort: closed at any moment
//! ```
//!
//! 1. Call [`Connection::receive`] with all unconsumed bytes, first those left over, then those
//!    that arrived; drop [`Received::consumed`] of them; repeat until it returns
//!    [`Event::NeedMore`].
//! 2. Answer each [`Event::Request`] and [`Event::Reject`] with [`Connection::respond`], at once or
//!    later, in any order. It appends the response's head to the output.
//! 3. Call [`Connection::poll_frame`] after every `receive` that consumed something, and whenever
//!    there is room to send: it appends control frames, and headers of DATA frames whose content
//!    the caller then sends.
//! 4. Output is one sequence: `respond` and `poll_frame` append to the earlier output, content
//!    included. After [`Body::is_last`](super::Body::is_last), or if `respond` returns that no
//!    content follows, or after [`Event::Reset`], the machine does not mention the stream any more.
//! 5. If unconsumed input is left and [`Connection::wants_input`] has turned true again after
//!    output, call `receive` again: replies to control frames wait in a bounded buffer, and nothing
//!    is read while that is full.
//! 6. When [`Connection::is_closing`], close once all output is sent, after lingering: the peer may
//!    have sent more, and a reset would destroy what it has not read yet.
//!
//! The machine never sees content. If content becomes unavailable (a file that shrank), call
//! [`Connection::abort`]; once `poll_frame` has named the range, close the connection instead,
//! because the frame header has promised it. The request's host is not checked here: hosts share
//! connections, so the caller answers 421 for a host that it does not serve (RFC 9113 section
//! 9.1.1).
//!
//! Request content is discarded. Each stream may send one window of 64 KiB, which is never
//! replenished; a request that announces or sends more is answered all the same, and a moment later
//! its stream ends with RST_STREAM (NO_ERROR), as RFC 9113 section 8.1 allows.

mod control;
mod receive;
mod requests;
mod send;
mod time;

pub use receive::PREFACE;
pub use send::Body;

use super::error::{ConnectionError, Why};
use super::flow::{ReceiveWindow, SendWindow};
use super::frame::{goaway, settings as settings_frame};
use super::hpack::Decoder;
use super::limits::{CONNECTION_WINDOW, CONTROL_MAX};
use super::pace::Pace;
use super::settings::{self, PeerSettings};
use super::streams::{ClosedStreams, Response, Streams};
use super::{StreamId, Time};
use crate::binary::budget::Budget;
use crate::binary::priority::EarlyPriorities;
use crate::binary::rejection::Rejection;
use crate::semantics::request::Request;

/// The result of reading input.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// Bytes that are no longer needed. The caller drops them.
    pub consumed: usize,
    /// What the bytes were.
    pub event: Event<'a>,
}

/// What was read.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one")]
pub enum Event<'a> {
    /// Nothing that concerns the caller: call again with the unconsumed bytes and more appended.
    NeedMore,
    /// A request: call [`Connection::respond`] for this stream. Call `receive` again for the rest
    /// of the input.
    Request {
        /// Its stream.
        stream: StreamId,
        /// The request; it borrows from the scratch buffer.
        request: Request<'a>,
    },
    /// A request that must be refused: call [`Connection::respond`] with this status.
    Reject {
        /// Its stream.
        stream: StreamId,
        /// The answer to send.
        rejection: Rejection,
    },
    /// A delivered stream whose response is not complete has ended: do not respond, or stop
    /// sending.
    Reset {
        /// Its stream.
        stream: StreamId,
    },
    /// The connection is broken: all streams have ended. Reported once; input is dropped from now
    /// on. Output and time can break it too: then the next call reports it.
    Closed(ConnectionError),
}

/// How long the machine waits for a peer, in milliseconds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Timeouts {
    /// For the preface, or a frame or field block that has begun, to become complete.
    pub head_ms: u64,
    /// For a request, while no stream is open.
    pub idle_ms: u64,
    /// For a window to open, or for request content to end.
    pub progress_ms: u64,
    /// The minimum rate of content on a stream, in bytes per second, so that a byte now and then
    /// does not count as progress; 0 for none.
    pub rate_min: u64,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head_ms: 15_000,
            idle_ms: 75_000,
            progress_ms: 60_000,
            rate_min: 500,
        }
    }
}

/// What the next frame must be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Expects {
    /// The preface, before all frames.
    Preface,
    /// The SETTINGS frame that completes the preface.
    Settings,
    /// Any frame.
    Frames,
}

/// How close the connection is to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// No end in sight.
    None,
    /// The first GOAWAY was sent, without a limit, followed by a PING: once its answer arrives, so
    /// have all streams that the peer opened before it saw the GOAWAY.
    Announced { until: Time },
    /// The final GOAWAY was sent: later streams are ignored.
    Final { last_stream: u32 },
    /// After a connection error or the idle timeout: no stream is served any more.
    Over,
}

/// A field block that continues in CONTINUATION frames.
#[derive(Clone, Debug)]
struct PartialBlock {
    stream: u32,
    is_ended: bool,
    depends_on_itself: bool,
    bytes: Vec<u8>,
    continuations: u32,
}

/// The server side of one HTTP/2 connection. See the module for the order of calls.
#[derive(Clone, Debug)]
pub struct Connection {
    streams: Streams,
    decoder: Decoder,
    /// Control frames not yet appended to the output, up to about [`CONTROL_MAX`] bytes.
    control: Vec<u8>,
    send_window: SendWindow,
    receive_window: ReceiveWindow,
    peer: PeerSettings,
    budget: Budget,
    closed: ClosedStreams,
    early_priorities: EarlyPriorities<u32>,
    block: Option<Box<PartialBlock>>,
    /// The highest stream that the peer has opened.
    last_stream: u32,
    expects: Expects,
    end: End,
    has_peer_goaway: bool,
    timeouts: Timeouts,
    pace: Pace,
    /// Since when a preface, frame or field block is incomplete.
    partial_since: Option<Time>,
    /// Since when no stream is open.
    idle_since: Time,
    /// The latest time given by the caller.
    now: Time,
    /// When to check streams for lack of progress: no later than the first deadline.
    check_at: Option<Time>,
    /// Content announced in DATA frames so far, in bytes.
    content_sent: u64,
    error: Option<ConnectionError>,
    /// The caller has received the event for the error.
    is_error_told: bool,
}

impl Connection {
    /// A connection that has received nothing yet. Our SETTINGS are waiting to be sent.
    #[must_use]
    pub fn new(now: Time, timeouts: Timeouts) -> Self {
        let mut control = Vec::with_capacity(64);
        settings_frame::write(&settings::OURS, &mut control);
        Self {
            streams: Streams::new(),
            decoder: Decoder::new(),
            control,
            send_window: SendWindow::new(PeerSettings::default().initial_window),
            receive_window: ReceiveWindow::new(CONNECTION_WINDOW),
            peer: PeerSettings::default(),
            budget: Budget::new(now),
            closed: ClosedStreams::default(),
            early_priorities: EarlyPriorities::new(),
            block: None,
            last_stream: 0,
            expects: Expects::Preface,
            end: End::None,
            has_peer_goaway: false,
            timeouts,
            pace: Pace::new(timeouts),
            partial_since: Some(now),
            idle_since: now,
            now,
            check_at: None,
            content_sent: 0,
            error: None,
            is_error_told: false,
        }
    }

    /// Whether no request is under way, not even a part of one.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.streams.count() == 0 && self.partial_since.is_none()
    }

    /// Whether a stream is open: its response is awaited or being sent.
    #[must_use]
    pub fn is_open(&self, stream: StreamId) -> bool {
        self.find_open(stream).is_some()
    }

    /// How many streams are open.
    #[must_use]
    pub fn stream_count(&self) -> u32 {
        self.streams.count()
    }

    /// Whether no more requests are served and no response is under way: close once all output is
    /// sent.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        match self.end {
            End::Over => true,
            End::Final { .. } => self.streams.count() == 0,
            End::None | End::Announced { .. } => self.has_peer_goaway && self.streams.count() == 0,
        }
    }

    /// Whether more input can have any effect now: not after an error, nor while too many replies
    /// wait to be sent.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        self.end != End::Over && self.control.len() < CONTROL_MAX
    }

    /// The error that has ended the connection, if one has.
    #[must_use]
    pub fn error(&self) -> Option<ConnectionError> {
        self.error
    }

    /// Bytes of memory held beyond the connection's own size: at most
    /// [`MEMORY_MAX`](super::limits::MEMORY_MAX), whatever the peer does.
    #[must_use]
    pub fn memory(&self) -> usize {
        let block = self.block.as_ref().map_or(0, |block| {
            size_of::<PartialBlock>() + block.bytes.capacity()
        });
        self.control.capacity()
            + self.decoder.memory()
            + block
            + self.early_priorities.memory()
            + self.streams.memory()
            + self.closed.memory()
    }

    /// Releases memory that an idle connection does not need, such as the table of streams. The
    /// next request allocates again.
    pub fn trim(&mut self) {
        if self.streams.count() == 0 {
            self.streams = Streams::new();
        }
        if self.control.is_empty() {
            self.control = Vec::new();
        }
        self.early_priorities.trim();
    }

    /// Ends the connection because of an error: sends GOAWAY, and forgets all streams.
    #[cold]
    fn fail(&mut self, why: Why) {
        let error = ConnectionError::of(why);
        self.error = Some(error);
        goaway::write(self.last_stream, error.code, &mut self.control);
        self.end = End::Over;
        self.streams = Streams::new();
        self.block = None;
        self.partial_since = None;
        self.check_at = None;
    }

    /// Whether the caller still has to answer on this stream, or is sending.
    fn is_callers(&self, slot: super::streams::Slot) -> bool {
        self.streams.get(slot).response != Response::Done
    }
}

#[cfg(test)]
mod tests;
