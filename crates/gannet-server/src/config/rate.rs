//! Rates with a burst: the generic cell rate algorithm, by the theoretical arrival time.
//!
//! For each client there is one number: when it will have paid for all it has used. That time is in
//! the past for a client that uses less than it may; it may be ahead of now by the burst.

use std::sync::atomic::{AtomicU64, Ordering};

use gannet_io::driver::Nanos;

use crate::bounds::clients::BURST_NS;

/// So many in so much time, and so many at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rate {
    /// Time that one takes, in nanoseconds; at least 1.
    pub interval_ns: u64,
    /// How many may come at once; at least 1.
    pub burst: u32,
}

impl Rate {
    /// `count` in `period_ns` nanoseconds. Without a `burst`, what the rate gives in ten seconds may
    /// come at once. `None` if that is no rate.
    #[must_use]
    pub fn new(count: u32, period_ns: u64, burst: Option<u32>) -> Option<Self> {
        let interval_ns = period_ns.checked_div(u64::from(count))?.max(1);
        let usual = (BURST_NS / interval_ns).clamp(1, u64::from(u32::MAX)) as u32;
        let burst = burst.unwrap_or(usual);
        (burst > 0).then_some(Self { interval_ns, burst })
    }

    fn burst_ns(self) -> u64 {
        self.interval_ns.saturating_mul(u64::from(self.burst))
    }

    /// Takes one, if the client may have it.
    ///
    /// # Errors
    /// How many nanoseconds the client has to wait.
    pub(crate) fn take(self, paid_at: &AtomicU64, now: Nanos) -> Result<(), u64> {
        let most = now.0.saturating_add(self.burst_ns());
        let next = |before: u64| before.max(now.0).saturating_add(self.interval_ns);
        let taken = paid_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
            Some(next(before)).filter(|next| *next <= most)
        });
        match taken {
            Ok(_) => Ok(()),
            Err(before) => Err(next(before) - most),
        }
    }
}

/// Counts `cost_ns` that a client has used already.
pub(crate) fn charge(paid_at: &AtomicU64, cost_ns: u64, now: Nanos) {
    // Never fails: there is always a next value.
    let _ = paid_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
        Some(before.max(now.0).saturating_add(cost_ns))
    });
}

/// How many nanoseconds are left until a client that is ahead by more than the burst is so no
/// longer; 0 if it is not.
pub(crate) fn excess_ns(paid_at: &AtomicU64, now: Nanos) -> u64 {
    let most = now.0.saturating_add(BURST_NS);
    paid_at.load(Ordering::Relaxed).saturating_sub(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn taken(rate: Rate, paid_at: &AtomicU64, now: u64) -> u32 {
        let mut count = 0;
        while rate.take(paid_at, Nanos(now)).is_ok() {
            count += 1;
        }
        count
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let rate = Rate::new(20, S, None).expect("a rate");
        assert_eq!((rate.interval_ns, rate.burst), (S / 20, 200));
        let paid_at = AtomicU64::new(0);
        assert_eq!(taken(rate, &paid_at, 100 * S), 200);
        assert_eq!(rate.take(&paid_at, Nanos(100 * S)), Err(S / 20));
        assert_eq!(taken(rate, &paid_at, 101 * S), 20);
        assert_eq!(taken(rate, &paid_at, 101 * S + S / 40), 0);
        assert_eq!(rate.take(&paid_at, Nanos(101 * S + S / 40)), Err(S / 40));
        assert_eq!(taken(rate, &paid_at, 101 * S + S / 20), 1);
        // What is not used for longer is lost.
        assert_eq!(taken(rate, &paid_at, 1_000 * S), 200);
        // A clock of another worker that is slightly behind.
        assert_eq!(taken(rate, &paid_at, 1_000 * S - 1), 0);
    }

    #[test]
    fn rates_are_sensible() {
        let check = |count, period_s, burst, expect: Option<(u64, u32)>| {
            let rate = Rate::new(count, period_s * S, burst);
            assert_eq!(rate.map(|it| (it.interval_ns, it.burst)), expect);
        };
        check(600, 60, None, Some((S / 10, 100)));
        check(600, 60, Some(5), Some((S / 10, 5)));
        check(1, 3_600, None, Some((3_600 * S, 1)));
        check(u32::MAX, 1, None, Some((1, u32::MAX)));
        check(0, 1, None, None);
        check(1, 1, Some(0), None);
    }

    #[test]
    fn what_is_used_ahead_has_to_be_waited_for() {
        let paid_at = AtomicU64::new(0);
        charge(&paid_at, 9 * S, Nanos(100 * S));
        assert_eq!(excess_ns(&paid_at, Nanos(100 * S)), 0);
        charge(&paid_at, 4 * S, Nanos(100 * S));
        assert_eq!(excess_ns(&paid_at, Nanos(100 * S)), 3 * S);
        assert_eq!(excess_ns(&paid_at, Nanos(102 * S)), S);
        assert_eq!(excess_ns(&paid_at, Nanos(103 * S)), 0);
        charge(&paid_at, u64::MAX, Nanos(103 * S));
        charge(&paid_at, u64::MAX, Nanos(103 * S));
        assert!(excess_ns(&paid_at, Nanos(103 * S)) > S);
    }
}
