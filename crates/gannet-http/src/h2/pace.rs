//! The minimum rate of a peer: content that moves earns time for the next bytes.
//!
//! A stream starts with a progress timeout. Each byte that its peer takes or sends adds the time of
//! a byte at the minimum rate, up to the whole timeout again. So a peer above that rate stays for
//! any length of time, and one that moves a byte now and then ends as if it had moved none.

use super::Time;
use super::connection::Timeouts;

/// See the module's description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// The whole timeout.
    progress_ms: u64,
    /// What a byte earns, in nanoseconds; the whole timeout, if there is no minimum rate.
    nanos_per_byte: u64,
    /// Bytes in a whole timeout at the minimum rate; at least 1.
    bytes_min: u64,
}

impl Pace {
    pub(crate) fn new(timeouts: Timeouts) -> Self {
        let rate = timeouts.rate_min;
        Self {
            progress_ms: timeouts.progress_ms,
            nanos_per_byte: 1_000_000_000_u64.checked_div(rate).unwrap_or(u64::MAX),
            bytes_min: (rate.saturating_mul(timeouts.progress_ms) / 1_000).max(1),
        }
    }

    /// The end of a timeout that begins now.
    #[inline]
    pub(crate) fn anew(&self, now: Time) -> Time {
        now.plus_ms(self.progress_ms)
    }

    /// Extends a deadline for content of this many bytes.
    #[inline]
    pub(crate) fn after(&self, deadline: Time, now: Time, len: u32) -> Time {
        let earned = self.nanos_per_byte.saturating_mul(u64::from(len));
        self.anew(now).min(Time(deadline.0.saturating_add(earned)))
    }

    /// Whether this many bytes in at least one timeout are too few.
    pub(crate) fn is_too_slow(&self, bytes: u64) -> bool {
        bytes < self.bytes_min
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn pace(rate_min: u64) -> Pace {
        Pace::new(Timeouts {
            progress_ms: 60_000,
            rate_min,
            ..Timeouts::default()
        })
    }

    #[test]
    fn bytes_earn_time_up_to_the_whole_timeout() {
        let pace = pace(500);
        let begun = pace.anew(Time(0));
        assert_eq!(begun, Time(60 * SECOND));
        let now = Time(50 * SECOND);
        assert_eq!(pace.after(begun, now, 1_000), Time(62 * SECOND));
        assert_eq!(pace.after(begun, now, 1 << 20), Time(110 * SECOND));
        assert!(pace.is_too_slow(29_999) && !pace.is_too_slow(30_000));
    }

    #[test]
    fn without_a_rate_every_byte_is_enough() {
        let pace = pace(0);
        let now = Time(50 * SECOND);
        assert_eq!(pace.after(Time(60 * SECOND), now, 1), Time(110 * SECOND));
        assert!(pace.is_too_slow(0) && !pace.is_too_slow(1));
    }
}
