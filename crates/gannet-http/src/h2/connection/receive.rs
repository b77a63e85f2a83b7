//! Input: bytes to frames, and the handling of each frame.

use super::{Connection, End, Event, Expects, Received};
use crate::binary::budget::{Cost, Spent};
use crate::binary::request::{Accepted, SectionState};
use crate::h2::error::{ErrorCode, StreamError, Why};
use crate::h2::frame::{FRAME_HEADER_LEN, FrameHeader, FrameType, flags, push_promise, rst_stream};
use crate::h2::limits::{CONTROL_MAX, FRAME_PAYLOAD_MAX};
use crate::h2::streams::{Closed, Slot};
use crate::h2::{StreamId, Time};
use crate::semantics::request::Version;

/// The result of a frame for the caller.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    Nothing,
    Request {
        stream: u32,
        accepted: Accepted,
        is_ended: bool,
    },
    Reset {
        stream: u32,
    },
}

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug)]
pub(super) enum FrameFault {
    Connection(Why),
    Stream(u32, StreamError),
}

impl From<Why> for FrameFault {
    /// A connection error, unless it is marked as a stream error.
    fn from(why: Why) -> Self {
        Self::Connection(why)
    }
}

impl From<Spent> for FrameFault {
    fn from(spent: Spent) -> Self {
        Self::Connection(spent.into())
    }
}

impl Connection {
    /// Reads input: all bytes received and not consumed. At most
    /// [`INPUT_MAX`](crate::h2::limits::INPUT_MAX) bytes have to be kept for another call.
    ///
    /// `scratch` takes the fields of a request; it belongs to the caller, so that many connections
    /// can share one buffer. Its previous content is lost.
    pub fn receive<'a>(
        &mut self,
        now: Time,
        input: &[u8],
        scratch: &'a mut Vec<u8>,
    ) -> Received<'a> {
        self.now = self.now.max(now);
        self.budget.refill(now);
        let mut head = SectionState::default();
        let mut consumed = 0;
        let outcome = loop {
            if self.end == End::Over {
                consumed = input.len();
                break Ok(Outcome::Nothing);
            }
            if self.control.len() >= CONTROL_MAX {
                break Ok(Outcome::Nothing);
            }
            match self.receive_frame(now, &input[consumed..], scratch, &mut head) {
                Ok(None) => break Ok(Outcome::Nothing),
                Ok(Some((taken, outcome))) => {
                    consumed += taken;
                    if !matches!(outcome, Outcome::Nothing) {
                        break Ok(outcome);
                    }
                }
                Err(why) => {
                    consumed = input.len();
                    break Err(why);
                }
            }
        };
        self.note_partial(now, consumed, input.len());
        if let Err(why) = outcome {
            self.fail(why);
        }
        let event = match outcome {
            Err(_) | Ok(Outcome::Nothing) => self.error_event(),
            Ok(Outcome::Reset { stream }) => Event::Reset {
                stream: StreamId(stream),
            },
            Ok(Outcome::Request {
                stream,
                accepted,
                is_ended,
            }) => request_event(StreamId(stream), &head, scratch, &accepted, is_ended),
        };
        Received { consumed, event }
    }

    /// The event to return if no frame has caused one.
    #[inline]
    fn error_event<'a>(&mut self) -> Event<'a> {
        match self.error {
            Some(error) if !self.is_error_told => {
                self.is_error_told = true;
                Event::Closed(error)
            }
            _ => Event::NeedMore,
        }
    }

    /// Tracks, for the timeout, since when something is incomplete.
    fn note_partial(&mut self, now: Time, consumed: usize, len: usize) {
        let is_partial = consumed < len || self.block.is_some() || self.expects != Expects::Frames;
        if self.end == End::Over || !is_partial {
            self.partial_since = None;
        } else if self.partial_since.is_none() || (consumed > 0 && self.block.is_none()) {
            self.partial_since = Some(now);
        }
    }

    /// Reads the preface or one frame, if complete: returns its length and its result.
    #[inline]
    fn receive_frame(
        &mut self,
        now: Time,
        input: &[u8],
        scratch: &mut Vec<u8>,
        head: &mut SectionState,
    ) -> Result<Option<(usize, Outcome)>, Why> {
        if self.expects == Expects::Preface {
            return Ok(self
                .receive_preface(input)?
                .map(|len| (len, Outcome::Nothing)));
        }
        let Some((header, rest)) = input.split_first_chunk() else {
            return Ok(None);
        };
        let header = FrameHeader::parse(header);
        // Checked before the payload has arrived: it would not fit the caller's buffer.
        if header.len > FRAME_PAYLOAD_MAX {
            return Err(Why::FrameTooLong);
        }
        let Some(payload) = rest.get(..header.len as usize) else {
            return Ok(None);
        };
        let outcome = match self.dispatch(now, header, payload, scratch, head) {
            Ok(outcome) => outcome,
            Err(FrameFault::Connection(why)) => return Err(why),
            Err(FrameFault::Stream(stream, error)) => self.reset(stream, error)?,
        };
        Ok(Some((FRAME_HEADER_LEN + payload.len(), outcome)))
    }

    /// RFC 9113 3.4.
    fn receive_preface(&mut self, input: &[u8]) -> Result<Option<usize>, Why> {
        let len = input.len().min(PREFACE.len());
        if input[..len] != PREFACE[..len] {
            return Err(Why::Preface);
        }
        if len < PREFACE.len() {
            return Ok(None);
        }
        self.expects = Expects::Settings;
        Ok(Some(len))
    }

    fn dispatch(
        &mut self,
        now: Time,
        header: FrameHeader,
        payload: &[u8],
        scratch: &mut Vec<u8>,
        head: &mut SectionState,
    ) -> Result<Outcome, FrameFault> {
        if self.expects == Expects::Settings {
            if header.kind != FrameType::SETTINGS || header.has(flags::ACK) {
                return Err(Why::SettingsExpected.into());
            }
            self.expects = Expects::Frames;
        }
        if self.block.is_some() && header.kind != FrameType::CONTINUATION {
            return Err(Why::ContinuationExpected.into());
        }
        match header.kind {
            FrameType::HEADERS => self.receive_headers(now, header, payload, scratch, head),
            FrameType::DATA => self.receive_data(now, header, payload),
            FrameType::WINDOW_UPDATE => self.receive_window_update(header, payload),
            FrameType::RST_STREAM => self.receive_rst_stream(header, payload),
            FrameType::CONTINUATION => {
                self.receive_continuation(now, header, payload, scratch, head)
            }
            FrameType::SETTINGS => self.receive_settings(header, payload),
            FrameType::PING => self.receive_ping(header, payload),
            FrameType::PRIORITY => self.receive_priority(header, payload),
            FrameType::PRIORITY_UPDATE => self.receive_priority_update(header, payload),
            FrameType::GOAWAY => self.receive_goaway(header, payload),
            FrameType::PUSH_PROMISE => Err(push_promise::FROM_CLIENT.into()),
            // RFC 9113 4.1: unknown types are ignored.
            _ => {
                self.budget.charge(Cost::Ignored)?;
                Ok(Outcome::Nothing)
            }
        }
    }

    /// Resets a stream because of an error of the peer.
    #[cold]
    fn reset(&mut self, stream: u32, error: StreamError) -> Result<Outcome, Why> {
        self.budget.charge(Cost::Reset)?;
        rst_stream::write(stream, error.code, &mut self.control);
        let Some(slot) = self.streams.find(stream) else {
            self.closed.note(stream, Closed::ByUs);
            return Ok(Outcome::Nothing);
        };
        let is_callers = self.is_callers(slot);
        self.close_stream(slot, Closed::ByUs);
        Ok(if is_callers {
            Outcome::Reset { stream }
        } else {
            Outcome::Nothing
        })
    }

    /// Takes a stream out of the table.
    #[inline]
    pub(super) fn close_stream(&mut self, slot: Slot, how: Closed) {
        self.closed.note(self.streams.get(slot).id, how);
        self.streams.remove(slot);
        if self.streams.count() == 0 {
            self.idle_since = self.now;
            self.check_at = None;
        }
    }

    /// Ends a stream by RST_STREAM of our own accord.
    pub(super) fn close_with(&mut self, slot: Slot, code: ErrorCode) {
        rst_stream::write(self.streams.get(slot).id, code, &mut self.control);
        self.close_stream(slot, Closed::ByUs);
    }
}

/// The event for an accepted request.
#[inline]
fn request_event<'a>(
    stream: StreamId,
    head: &SectionState,
    scratch: &'a [u8],
    accepted: &Accepted,
    is_ended: bool,
) -> Event<'a> {
    if let Some(rejection) = accepted.rejection {
        return Event::Reject { stream, rejection };
    }
    match head.request(scratch, accepted, Version::Http2, is_ended) {
        Some(request) => Event::Request { stream, request },
        None => unreachable!("a section is accepted only if it is a request"),
    }
}

/// What a client sends before its first frame (RFC 9113 section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
