//! One budget for all work that a peer can cause: frames cost points, content that it takes earns
//! them.
//!
//! The floods of HTTP/2 and HTTP/3 (resets by either side, settings, pings, empty frames, one-byte
//! windows and so on) use different frames and have one thing in common: work on our side for no
//! benefit on theirs. So there is one account per connection instead of a limit per flood. Below
//! zero the connection ends with ENHANCE_YOUR_CALM, in HTTP/3 with H3_EXCESSIVE_LOAD.
//!
//! Figures: a browser's page costs a few points per response and earns more; a user who leaves a
//! page with a hundred images under way costs 2,000 points, of 10,000; a client that keeps a
//! connection alive with a ping per second never runs out, because of the refill.

use crate::h2::Time;

/// Initial points of a connection, and the most it can have.
pub const BUDGET_MAX: i32 = 10_000;

/// Points added every [`REFILL_NANOS`].
pub const REFILL_POINTS: i32 = 1;

/// 20 ms: 50 points per second.
pub const REFILL_NANOS: u64 = 20_000_000;

/// Points earned by a response that was sent to its end.
pub const RESPONSE_POINTS: i32 = 20;

/// Bytes of content that earn a point. Even a WINDOW_UPDATE per stream and one per connection for
/// every kilobyte are covered.
pub const CONTENT_BYTES_PER_POINT: u32 = 512;

/// An action of the peer that costs points.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cost {
    /// A stream that ends before its response is complete, by RST_STREAM of the peer, or by ours
    /// because of something that the peer did (RFC 9113 section 10.5, "rapid reset" and its
    /// reverse).
    Reset,
    /// A CONTINUATION frame.
    Continuation,
    /// An empty CONTINUATION frame.
    EmptyContinuation,
    /// A PING, or the acknowledgement of one.
    Ping,
    /// A SETTINGS frame, or an acknowledgement.
    Settings,
    /// This many settings beyond the free ones of a frame.
    ManySettings(u16),
    /// A PRIORITY frame.
    Priority,
    /// A PRIORITY_UPDATE frame.
    PriorityUpdate,
    /// A WINDOW_UPDATE frame.
    WindowUpdate,
    /// A DATA frame without content that does not end the stream.
    EmptyData,
    /// A DATA frame of a few bytes that does not end the stream.
    SmallData,
    /// A DATA frame of ours that the peer's window made short.
    ShortFrame,
    /// A request that is decoded only to be refused, or is too large.
    WastedBlock,
    /// A frame of an unknown type, or for a stream that is closed.
    Ignored,
    /// The payload of a long frame of an unknown type, beyond its free part, counted as this many
    /// frames.
    LongIgnored(u32),
}

impl Cost {
    /// The price in points.
    #[must_use]
    pub const fn points(self) -> i32 {
        match self {
            Self::Reset | Self::WastedBlock => 20,
            Self::Continuation | Self::Settings => 10,
            Self::EmptyContinuation => 100,
            Self::Ping | Self::EmptyData => 5,
            Self::ManySettings(count) => count as i32,
            Self::LongIgnored(count) if count > BUDGET_MAX as u32 => BUDGET_MAX + 1,
            Self::LongIgnored(count) => 2 * count as i32,
            Self::PriorityUpdate | Self::ShortFrame | Self::Ignored => 2,
            Self::Priority | Self::WindowUpdate | Self::SmallData => 1,
        }
    }
}

/// The budget is used up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Spent;

/// The account of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    points: i32,
    refilled_at: Time,
}

impl Budget {
    /// A full account.
    #[must_use]
    pub fn new(now: Time) -> Self {
        Self {
            points: BUDGET_MAX,
            refilled_at: now,
        }
    }

    /// Points left; negative once it is spent.
    #[must_use]
    pub fn points(&self) -> i32 {
        self.points
    }

    /// Adds the points earned by time.
    #[inline]
    pub fn refill(&mut self, now: Time) {
        let elapsed = now.0.saturating_sub(self.refilled_at.0);
        if elapsed < REFILL_NANOS {
            return;
        }
        let steps = elapsed / REFILL_NANOS;
        self.refilled_at.0 += steps * REFILL_NANOS;
        self.earn((steps.min(BUDGET_MAX as u64) as i32).saturating_mul(REFILL_POINTS));
    }

    /// Adds the points earned by a finished response.
    #[inline]
    pub(crate) fn earn_response(&mut self) {
        self.earn(RESPONSE_POINTS);
    }

    /// Adds the points earned by content sent in one frame.
    #[inline]
    pub(crate) fn earn_content(&mut self, len: u32) {
        self.earn((len / CONTENT_BYTES_PER_POINT) as i32);
    }

    /// Charges the cost.
    ///
    /// # Errors
    /// [`Spent`] if the budget falls below zero.
    #[inline]
    pub(crate) fn charge(&mut self, cost: Cost) -> Result<(), Spent> {
        self.points = self.points.saturating_sub(cost.points());
        if self.points < 0 {
            return Err(Spent);
        }
        Ok(())
    }

    fn earn(&mut self, points: i32) {
        self.points = self.points.saturating_add(points).min(BUDGET_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_spent_comes_back_with_time_and_content_up_to_the_maximum() {
        let mut budget = Budget::new(Time(0));
        for _ in 0..500 {
            assert_eq!(budget.charge(Cost::Reset), Ok(()));
        }
        assert_eq!(budget.charge(Cost::Priority), Err(Spent));
        budget.refill(Time(REFILL_NANOS * 2 - 1));
        assert_eq!(budget.points(), 0);
        budget.refill(Time(REFILL_NANOS * 2));
        assert_eq!(budget.points(), 1);
        budget.earn_content(CONTENT_BYTES_PER_POINT * 3 - 1);
        budget.earn_response();
        assert_eq!(budget.points(), 3 + RESPONSE_POINTS);
        budget.refill(Time(u64::MAX));
        assert_eq!(budget.points(), BUDGET_MAX);
    }
}
