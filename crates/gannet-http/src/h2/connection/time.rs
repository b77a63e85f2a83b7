//! The end of a connection, at the caller's request or for lack of progress.

use super::{Connection, End};
use crate::h2::error::{ErrorCode, Why};
use crate::h2::frame::{goaway, ping};
use crate::h2::limits::DRAIN_PING_MS;
use crate::h2::streams::{Response, Slot, Stream};
use crate::h2::{StreamId, Time};

impl Connection {
    /// Winds the connection down: no request is lost, and after a round trip no new one is served.
    ///
    /// In two steps (RFC 9113 section 6.8): a GOAWAY that excludes no stream, with a PING; when its
    /// answer arrives (or after [`DRAIN_PING_MS`]), another one that names the last stream served.
    /// When the last of these streams has ended, [`is_closing`](Self::is_closing) turns true.
    pub fn drain(&mut self, now: Time) {
        if self.end != End::None {
            return;
        }
        goaway::write(LAST_STREAM_MAX, ErrorCode::NO_ERROR, &mut self.control);
        ping::write(&DRAIN_PING, false, &mut self.control);
        self.end = End::Announced {
            until: now.plus_ms(DRAIN_PING_MS),
        };
    }

    /// The second step of [`drain`](Self::drain).
    pub(super) fn end_finally(&mut self) {
        goaway::write(self.last_stream, ErrorCode::NO_ERROR, &mut self.control);
        self.end = End::Final {
            last_stream: self.last_stream,
        };
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing else happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.end == End::Over {
            return None;
        }
        let partial = self
            .partial_since
            .map(|since| since.plus_ms(self.timeouts.head_ms));
        let idle =
            (self.streams.count() == 0).then(|| self.idle_since.plus_ms(self.timeouts.idle_ms));
        let drain = match self.end {
            End::Announced { until } => Some(until),
            _ => None,
        };
        let check = if self.streams.count() > 0 {
            self.check_at
        } else {
            None
        };
        [partial, idle, drain, check].into_iter().flatten().min()
    }

    /// Does what is due. Call it until it returns `None`: a stream that it returns was reset,
    /// because its peer opened no window for its content in time (`ENHANCE_YOUR_CALM`), or because
    /// the caller did not answer or fetch content in time (`INTERNAL_ERROR`). Then check
    /// [`is_closing`](Self::is_closing) and [`error`](Self::error).
    pub fn handle_timeout(&mut self, now: Time) -> Option<StreamId> {
        self.now = self.now.max(now);
        if let End::Announced { until } = self.end
            && now >= until
        {
            self.end_finally();
        }
        let is_over = |since: Time, ms| now >= since.plus_ms(ms);
        if self.end == End::Over {
            return None;
        }
        let head_ms = self.timeouts.head_ms;
        if self
            .partial_since
            .is_some_and(|since| is_over(since, head_ms))
        {
            self.fail(Why::Stalled);
            return None;
        }
        if self.streams.count() == 0 {
            if is_over(self.idle_since, self.timeouts.idle_ms) {
                self.fail(Why::Idle);
            }
            return None;
        }
        if self.check_at.is_none_or(|at| now < at) {
            return None;
        }
        self.check_streams(now)
    }

    /// Restarts the time limit of streams that wait for a peer which is slow but reads fast enough:
    /// bytes sent earlier are still on their way to it. For the caller, who knows the peer's
    /// buffers, before [`handle_timeout`](Self::handle_timeout).
    pub fn excuse(&mut self, now: Time) {
        let due = self.streams.iter().filter(|(_, stream)| {
            let waits = stream.response == Response::Sending && !stream.is_paused;
            waits && now >= stream.due_at()
        });
        let due: Vec<Slot> = due.map(|(slot, _)| slot).collect();
        for slot in due {
            let stream = self.streams.get_mut(slot);
            stream.begin_anew(now, &self.pace, self.content_sent);
        }
    }

    /// Ends streams that have waited for too long; returns the first of them that the caller knows.
    fn check_streams(&mut self, now: Time) -> Option<StreamId> {
        let due = self
            .streams
            .iter()
            .filter(|(_, stream)| now >= stream.due_at());
        let due: Vec<(Slot, u32, Option<Overdue>)> = due
            .map(|(slot, stream)| (slot, stream.id, self.overdue(stream)))
            .collect();
        for (slot, id, overdue) in due {
            let code = match overdue {
                None => {
                    // It waits for its turn, and is checked again after the same interval.
                    let stream = self.streams.get_mut(slot);
                    stream.begin_anew(now, &self.pace, self.content_sent);
                    continue;
                }
                Some(Overdue::Request) => {
                    self.close_with(slot, ErrorCode::NO_ERROR);
                    continue;
                }
                Some(Overdue::Window) => ErrorCode::ENHANCE_YOUR_CALM,
                Some(Overdue::Caller) => ErrorCode::INTERNAL_ERROR,
            };
            self.close_with(slot, code);
            return Some(StreamId(id));
        }
        self.check_at = self.streams.iter().map(|(_, stream)| stream.due_at()).min();
        None
    }

    /// What a stream without progress waits for; `None` if it waits for its turn.
    fn overdue(&self, stream: &Stream) -> Option<Overdue> {
        // A stream may wait long while more urgent ones use up the connection's window: as long as
        // enough bytes go through that, its peer is only slow.
        let is_shut = || {
            let sent = self.content_sent - stream.seen;
            self.send_window.available() == 0 && self.pace.is_too_slow(sent)
        };
        match stream.response {
            Response::Done => Some(Overdue::Request),
            Response::Awaited => Some(Overdue::Caller),
            Response::Sending if stream.is_paused => Some(Overdue::Caller),
            Response::Sending if stream.send_window.available() == 0 || is_shut() => {
                Some(Overdue::Window)
            }
            Response::Sending => None,
        }
    }
}

/// What a stream has waited for too long.
enum Overdue {
    /// The end of a request that was already answered.
    Request,
    /// The peer opens no window.
    Window,
    /// The caller neither answers nor continues with content.
    Caller,
}

/// The last stream that the first GOAWAY of a drain names.
const LAST_STREAM_MAX: u32 = 0x7fff_ffff;

/// The opaque bytes of the PING that follows it.
pub(super) const DRAIN_PING: [u8; 8] = *b"draining";
