//! Connection state: the peer's unidirectional streams, our control stream, and the peer's cost
//! budget.
//!
//! # Order of calls
//!
//! ```text
//!  new ─▶ opening: the bytes of our control stream, at once; the client's settings are not awaited
//!   │
//!   ├─ a unidirectional stream ─▶ open_uni ─▶ receive_uni, until NeedMore ... ─▶ reset_uni
//!   │                                           │ Priority: RequestStream::prioritize
//!   │                                           └ Unwanted: STOP_SENDING
//!   │
//!   ├─ a bidirectional stream ──▶ open_request ─▶ RequestStream::receive ... respond
//!   │                              └ Refused: RESET_STREAM, STOP_SENDING
//!   │                                            ─▶ answered, or cancelled
//!   │
//!   └─ announce_end ─▶ (a round trip later) end ─▶ close with NO_ERROR when no stream is left
//! ```
//!
//! 1. Call [`Connection::refill`] once in each turn before other functions.
//! 2. Open one unidirectional stream and send [`Connection::opening`] on it, later the output of
//!    [`announce_end`](Connection::announce_end) and [`end`](Connection::end). Never close it. Open
//!    no other stream: there is no push, and QPACK works without its streams (RFC 9204 section
//!    4.2).
//! 3. Report every stream that the peer opens, in the order of identifiers, before its bytes.
//! 4. An `Err` ends the connection: close it with [`ConnectionError::code`]. Every later call
//!    returns the same error.

use super::StreamId;
use super::error::{ConnectionError, Fault, StreamError, Why};
use super::frame::{FrameType, write_varint};
use super::limits::{REQUEST_STREAMS_MAX, SECTIONS_MAX, UNI_STREAMS_MAX, UNI_STREAMS_TOTAL_MAX};
use super::request::RequestStream;
use super::settings;
use super::uni::{
    ControlFrame, ControlStream, DecoderStream, UniKind, UniStream, receive_encoder, stream_types,
};
use crate::binary::budget::{Budget, Cost};
use crate::binary::priority::{EarlyPriorities, Priority};
use crate::h2::Time;

/// The result of receiving bytes of a unidirectional stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UniReceived {
    /// Number of input bytes processed.
    pub consumed: usize,
    /// What the caller has to do.
    pub event: UniEvent,
}

/// What the caller has to do after bytes of a unidirectional stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UniEvent {
    /// Nothing: all bytes are consumed.
    NeedMore,
    /// The priority of an open request has changed: call [`RequestStream::prioritize`] if the
    /// request still exists. Then call [`Connection::receive_uni`] again with the rest.
    Priority {
        /// Its stream.
        stream: StreamId,
        /// The new one.
        priority: Priority,
    },
    /// The stream is of an unknown type: stop it with
    /// [`ErrorCode::STREAM_CREATION_ERROR`](super::ErrorCode::STREAM_CREATION_ERROR) and do not
    /// read it further (RFC 9114 section 6.2). All bytes are consumed.
    Unwanted,
}

/// The server side of one HTTP/3 connection. See the module for the order of calls.
#[derive(Clone, Debug)]
pub struct Connection {
    pub(super) budget: Budget,
    /// The peer's unidirectional streams that are being read, at most [`UNI_STREAMS_MAX`].
    uni: Vec<UniStream>,
    uni_total: u32,
    has_control: bool,
    has_encoder: bool,
    has_decoder: bool,
    max_push_id: u64,
    /// The identifier in the peer's last GOAWAY.
    peer_goaway: Option<u64>,
    early_priorities: EarlyPriorities<StreamId>,
    /// The lowest request stream that the peer has not opened yet.
    next_request: StreamId,
    /// Requests from this stream on are refused.
    refused_from: Option<StreamId>,
    error: Option<ConnectionError>,
}

impl Connection {
    /// Creates the state of a new connection.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self {
            budget: Budget::new(now),
            uni: Vec::new(),
            uni_total: 0,
            has_control: false,
            has_encoder: false,
            has_decoder: false,
            max_push_id: 0,
            peer_goaway: None,
            early_priorities: EarlyPriorities::new(),
            next_request: StreamId(0),
            refused_from: None,
            error: None,
        }
    }

    /// The first bytes of our control stream: its type and our SETTINGS.
    #[must_use]
    pub fn opening(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(24);
        write_varint(stream_types::CONTROL, &mut bytes);
        settings::write(&mut bytes);
        bytes
    }

    /// Refills the budget for the time that has passed.
    pub fn refill(&mut self, now: Time) {
        self.budget.refill(now);
    }

    /// Takes note of a unidirectional stream that the peer has opened.
    ///
    /// # Errors
    /// If there are too many, now or over the connection's life.
    pub fn open_uni(&mut self, id: StreamId) -> Result<(), ConnectionError> {
        self.checked(|connection| {
            connection.uni_total += 1;
            let is_full = connection.uni.len() == UNI_STREAMS_MAX;
            if is_full || connection.uni_total > UNI_STREAMS_TOTAL_MAX {
                return Err(Why::TooManyStreams);
            }
            let kind = UniKind::Unknown(super::frame::Partial::default());
            connection.uni.push(UniStream { id, kind });
            Ok(())
        })
    }

    /// Receives bytes of a unidirectional stream, and its end if `is_fin`. Call it again with the
    /// bytes not consumed until it returns [`UniEvent::NeedMore`] or [`UniEvent::Unwanted`].
    ///
    /// # Errors
    /// Every error of the peer there ends the connection.
    pub fn receive_uni(
        &mut self,
        id: StreamId,
        input: &[u8],
        is_fin: bool,
    ) -> Result<UniReceived, ConnectionError> {
        self.checked(|connection| {
            let mut rest = input;
            let event = connection.read_uni(id, &mut rest, is_fin)?;
            let consumed = input.len() - rest.len();
            Ok(UniReceived { consumed, event })
        })
    }

    /// Takes note that the peer has reset a unidirectional stream.
    ///
    /// # Errors
    /// If the stream is critical (RFC 9114 section 6.2.1).
    pub fn reset_uni(&mut self, id: StreamId) -> Result<(), ConnectionError> {
        self.checked(|connection| connection.close_uni(id))
    }

    /// Takes note that the peer has sent STOP_SENDING for our control stream.
    ///
    /// # Errors
    /// Always: the stream is critical (RFC 9114 section 6.2.1).
    pub fn stop_control(&mut self) -> Result<(), ConnectionError> {
        self.checked(|_| Err(Why::CriticalStreamClosed))
    }

    /// Takes note of a bidirectional stream that the peer has opened.
    ///
    /// # Errors
    /// [`Fault::Stream`] if the request arrives after [`end`](Self::end): reset the stream and stop
    /// it, as it was not processed. [`Fault::Connection`] if the connection has ended, or too many
    /// requests arrive after `end`.
    pub fn open_request(&mut self, id: StreamId) -> Result<RequestStream, Fault> {
        debug_assert!(id.is_request(), "a stream that a client opens");
        if self.refused_from.is_some_and(|from| id >= from) {
            self.checked(|connection| Ok(connection.budget.charge(Cost::WastedBlock)?))?;
            return Err(Fault::Stream(StreamError::of(Why::Refused)));
        }
        self.checked(|_| Ok(()))?;
        self.next_request = self.next_request.max(StreamId(id.0 + REQUEST_STEP));
        Ok(RequestStream::new(self.early_priorities.take(id)))
    }

    /// Credits the budget for a response that was sent to its end, with `content_len` bytes of
    /// content.
    pub fn answered(&mut self, content_len: u64) {
        self.budget.earn_response();
        let len = u32::try_from(content_len).unwrap_or(u32::MAX);
        self.budget.earn_content(len);
    }

    /// Charges for a request stream that the peer has reset or stopped before its response was
    /// complete. Reset it with
    /// [`ErrorCode::REQUEST_CANCELLED`](super::ErrorCode::REQUEST_CANCELLED).
    ///
    /// # Errors
    /// If the budget is exhausted.
    pub fn cancelled(&mut self) -> Result<(), ConnectionError> {
        self.checked(|connection| Ok(connection.budget.charge(Cost::Reset)?))
    }

    /// Checks the memory of incomplete field sections: `bytes` is the sum of
    /// [`RequestStream::memory`] over all requests. To be called after a request has received
    /// bytes.
    ///
    /// # Errors
    /// If it exceeds [`SECTIONS_MAX`].
    pub fn check_sections(&mut self, bytes: usize) -> Result<(), ConnectionError> {
        self.checked(|_| match bytes > SECTIONS_MAX {
            true => Err(Why::TooManySections),
            false => Ok(()),
        })
    }

    /// The first step of shutdown: appends a GOAWAY that excludes no request to `control`, the
    /// output of our control stream (RFC 9114 section 5.2). Requests that the peer sends before it
    /// receives this arrive within a round trip.
    pub fn announce_end(&self, control: &mut Vec<u8>) {
        if self.refused_from.is_none() {
            write_goaway(LAST_REQUEST, control);
        }
    }

    /// The last step of shutdown: appends a GOAWAY that names the first request not served. It and
    /// later ones are refused; requests in progress are to be completed.
    pub fn end(&mut self, control: &mut Vec<u8>) {
        if self.refused_from.is_none() {
            self.refused_from = Some(self.next_request);
            write_goaway(self.next_request, control);
        }
    }

    /// The error that has ended the connection, if any.
    #[must_use]
    pub fn error(&self) -> Option<ConnectionError> {
        self.error
    }

    /// Bytes of memory held beyond the connection's own size: always at most
    /// [`MEMORY_MAX`](super::limits::MEMORY_MAX).
    #[must_use]
    pub fn memory(&self) -> usize {
        let streams: usize = self.uni.iter().map(UniStream::memory).sum();
        streams + self.uni.capacity() * size_of::<UniStream>() + self.early_priorities.memory()
    }

    /// Runs `act` unless the connection has ended; ends the connection if `act` fails.
    #[inline]
    pub(super) fn checked<T>(
        &mut self,
        act: impl FnOnce(&mut Self) -> Result<T, Why>,
    ) -> Result<T, ConnectionError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        act(self).map_err(|why| {
            let error = ConnectionError::of(why);
            self.error = Some(error);
            // No more input is read.
            self.uni = Vec::new();
            self.early_priorities = EarlyPriorities::new();
            error
        })
    }

    fn read_uni(&mut self, id: StreamId, rest: &mut &[u8], is_fin: bool) -> Result<UniEvent, Why> {
        let Some(index) = self.uni.iter().position(|stream| stream.id == id) else {
            // It was stopped or has ended.
            *rest = &[];
            return Ok(UniEvent::NeedMore);
        };
        if let UniKind::Unknown(partial) = &mut self.uni[index].kind {
            match partial.read_varint(rest) {
                Some(kind) => match self.begin_uni(kind)? {
                    Some(kind) => self.uni[index].kind = kind,
                    None => {
                        self.uni.swap_remove(index);
                        self.budget.charge(Cost::Ignored)?;
                        *rest = &[];
                        return Ok(UniEvent::Unwanted);
                    }
                },
                // RFC 9114 6.2: it may end before its type is complete.
                None if is_fin => {
                    self.uni.swap_remove(index);
                    return Ok(UniEvent::NeedMore);
                }
                None => return Ok(UniEvent::NeedMore),
            }
        }
        let event = match &mut self.uni[index].kind {
            UniKind::Control(_) => self.read_control(index, rest)?,
            UniKind::Encoder => {
                receive_encoder(rest, &mut self.budget)?;
                None
            }
            UniKind::Decoder(stream) => {
                stream.receive(rest, &mut self.budget)?;
                None
            }
            UniKind::Unknown(_) => unreachable!("its type was read above"),
        };
        match event {
            Some(event) => Ok(event),
            None if is_fin => Err(Why::CriticalStreamClosed),
            None => Ok(UniEvent::NeedMore),
        }
    }

    /// The kind of a stream of this type; `None` for an unknown type.
    fn begin_uni(&mut self, stream_type: u64) -> Result<Option<UniKind>, Why> {
        let (is_there, kind) = match stream_type {
            stream_types::CONTROL => {
                let control = Box::<ControlStream>::default();
                (&mut self.has_control, UniKind::Control(control))
            }
            stream_types::ENCODER => (&mut self.has_encoder, UniKind::Encoder),
            stream_types::DECODER => {
                let decoder = DecoderStream::default();
                (&mut self.has_decoder, UniKind::Decoder(decoder))
            }
            stream_types::PUSH => return Err(Why::PushStream),
            _ => return Ok(None),
        };
        if std::mem::replace(is_there, true) {
            return Err(Why::SecondCriticalStream);
        }
        Ok(Some(kind))
    }

    /// Reads frames of the control stream until there is an event.
    fn read_control(&mut self, index: usize, rest: &mut &[u8]) -> Result<Option<UniEvent>, Why> {
        loop {
            let UniKind::Control(control) = &mut self.uni[index].kind else {
                unreachable!("the caller has seen to it");
            };
            let update = control.receive(rest, &mut self.budget, |frame| match frame {
                ControlFrame::Settings(payload) => settings::check(payload).map(|()| None),
                ControlFrame::Goaway(id) => {
                    if self.peer_goaway.is_some_and(|before| id > before) {
                        return Err(Why::GoawayRaised);
                    }
                    self.peer_goaway = Some(id);
                    Ok(None)
                }
                ControlFrame::MaxPushId(id) => {
                    if id < self.max_push_id {
                        return Err(Why::PushIdLowered);
                    }
                    self.max_push_id = id;
                    Ok(None)
                }
                // This server never promises a push.
                ControlFrame::CancelPush => Err(Why::PushUnknown),
                ControlFrame::PriorityUpdate(FrameType::PRIORITY_UPDATE_PUSH, _, _) => {
                    Err(Why::PushUnknown)
                }
                ControlFrame::PriorityUpdate(_, id, value) => {
                    Ok(Some((StreamId(id), Priority::parse(value))))
                }
            })?;
            match update {
                None => return Ok(None),
                Some(None) => {}
                Some(Some((stream, priority))) => {
                    if let Some(event) = self.note_priority(stream, priority)? {
                        return Ok(Some(event));
                    }
                }
            }
        }
    }

    /// Takes a PRIORITY_UPDATE frame (RFC 9218 section 7.2).
    fn note_priority(
        &mut self,
        stream: StreamId,
        priority: Priority,
    ) -> Result<Option<UniEvent>, Why> {
        // Higher streams cannot be open, even if all opened ones were closed.
        let limit = self.next_request.0 + REQUEST_STREAMS_MAX * REQUEST_STEP;
        if !stream.is_request() || stream.0 >= limit {
            return Err(Why::PriorityTarget);
        }
        if stream < self.next_request {
            return Ok(Some(UniEvent::Priority { stream, priority }));
        }
        self.early_priorities.set(stream, priority);
        Ok(None)
    }

    /// Removes a unidirectional stream that was reset.
    fn close_uni(&mut self, id: StreamId) -> Result<(), Why> {
        let Some(index) = self.uni.iter().position(|stream| stream.id == id) else {
            return Ok(());
        };
        match self.uni.swap_remove(index).kind {
            UniKind::Unknown(_) => Ok(()),
            UniKind::Control(_) | UniKind::Encoder | UniKind::Decoder(_) => {
                Err(Why::CriticalStreamClosed)
            }
        }
    }
}

fn write_goaway(first_refused: StreamId, out: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(8);
    write_varint(first_refused.0, &mut payload);
    write_varint(FrameType::GOAWAY.0, out);
    write_varint(payload.len() as u64, out);
    out.extend_from_slice(&payload);
}

/// The difference between the identifiers of consecutive request streams.
const REQUEST_STEP: u64 = 4;

/// The highest possible request stream.
const LAST_REQUEST: StreamId = StreamId((1 << 62) - REQUEST_STEP);
