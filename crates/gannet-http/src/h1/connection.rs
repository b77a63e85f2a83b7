//! The machine of one HTTP/1 connection.

use super::error::Rejection;
use crate::semantics::date::DATE_LINE_LEN;
use crate::semantics::request::Request;
use crate::semantics::response::ResponseHead;

/// What became of input.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// Bytes that are done with. The caller drops them, once it is done with `event`.
    pub consumed: usize,
    /// What they were.
    pub event: Event<'a>,
}

/// What input amounts to.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "the large one is the usual one")]
pub enum Event<'a> {
    /// Nothing yet: call again with the bytes not consumed and more behind them.
    NeedMore,
    /// A request: call [`Connection::respond`] next.
    Request(Request<'a>),
    /// A request that must be refused: call [`Connection::respond`] with this status next.
    Reject(Rejection),
    /// No more requests are read from this connection; input is dropped.
    Closing,
}

/// One HTTP/1 connection, server's side.
#[derive(Clone, Debug, Default)]
pub struct Connection {}

impl Connection {
    /// A connection on which nothing was received yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads input. Must not be called between a request (or rejection) and its response.
    pub fn receive<'a>(&mut self, input: &'a [u8]) -> Step<'a> {
        let _ = input;
        Step {
            consumed: 0,
            event: Event::NeedMore,
        }
    }

    /// Appends the head of the response to the request (or rejection) last delivered.
    ///
    /// `date_line` is a whole `date` line ([`crate::semantics::date::DateLine`]). Gives whether
    /// content follows the head: not after `HEAD`, nor with 204 and 304.
    pub fn respond(
        &mut self,
        head: &ResponseHead<'_>,
        date_line: &[u8; DATE_LINE_LEN],
        out: &mut Vec<u8>,
    ) -> bool {
        let _ = (head, date_line, out);
        true
    }

    /// Gives up on the request that is arriving, because of something only the caller knows
    /// (a timeout): call [`respond`](Self::respond) next. The connection closes after it.
    pub fn reject(&mut self) {}

    /// Lets the connection end: the next response says `connection: close`. An idle one may be
    /// closed at once.
    pub fn drain(&mut self) {}

    /// Whether no request is under way, not even a part of its head.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        true
    }

    /// Whether the connection goes on after the response to the current request.
    #[must_use]
    pub fn is_persistent(&self) -> bool {
        true
    }

    /// Whether the last response was the last one: close once it is sent.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        false
    }

    /// Whether the peer may still be sending when the connection closes. Then a plain close
    /// could reset the connection and lose the response: end the sending half, drop input for a
    /// short while, close then.
    #[must_use]
    pub fn is_lingering(&self) -> bool {
        false
    }

    /// Whether the machine can do something with more input now.
    #[must_use]
    pub fn wants_input(&self) -> bool {
        true
    }
}
