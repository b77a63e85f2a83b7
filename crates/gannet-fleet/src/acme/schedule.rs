//! When a certificate is renewed, and when a failed order is tried again.

use std::time::Duration;

use crate::limits::{
    LOOKS_PAUSE_S, LOOKS_TIME, ON_DEMAND_HOSTS_ORDERS_PER_HOUR, ORDER_BACK_OFF_LEAST,
    ORDER_BACK_OFF_MOST, ORDERS_PER_MINUTE,
};
use crate::pace::between;

/// When to renew a certificate of which the server says nothing, in Unix seconds: at two thirds of its
/// lifetime, or a little later.
pub(super) fn renewal_of((not_before, not_after): (i64, i64)) -> i64 {
    let lifetime = (not_after - not_before).max(0);
    within(
        not_before + lifetime * 2 / 3,
        not_before + lifetime * 7 / 10,
    )
}

/// The latest time to renew a certificate, whatever the server says of it: when a tenth of its lifetime is
/// left.
pub(super) fn latest_renewal_of((not_before, not_after): (i64, i64)) -> i64 {
    not_after - (not_after - not_before).max(0) / 10
}

/// A random second within a window (RFC 9773 section 4.2).
pub(super) fn within(start: i64, end: i64) -> i64 {
    let length = Duration::from_secs((end - start).max(0).unsigned_abs());
    start + between(length, 0.0, 1.0).as_secs().cast_signed()
}

/// Whether less than a third of the lifetime is left.
pub(super) fn is_late((not_before, not_after): (i64, i64), now: i64) -> bool {
    not_after - now < (not_after - not_before) / 3
}

/// The wait after this many failures in a row, at least one: doubled each time, and up to half of that
/// more. Of each name an hour has fewer attempts than the five failures that Let's Encrypt allows.
pub(super) fn back_off(failures: u32) -> Duration {
    let doubled = ORDER_BACK_OFF_LEAST.saturating_mul(1 << failures.saturating_sub(1).min(16));
    between(doubled.min(ORDER_BACK_OFF_MOST), 1.0, 1.5)
}

/// As long as a server asks for, within reason.
pub(super) fn asked_wait(asked: Option<Duration>) -> Duration {
    asked.unwrap_or_default().min(ORDER_BACK_OFF_MOST * 4)
}

/// Orders of the last minute, or of another time.
#[derive(Debug)]
pub(super) struct Orders {
    made: Vec<i64>,
    seconds: i64,
    most: usize,
}

impl Default for Orders {
    fn default() -> Self {
        Self {
            made: Vec::new(),
            seconds: 60,
            most: ORDERS_PER_MINUTE,
        }
    }
}

impl Orders {
    /// Those of the last hour for hosts that clients request, of which these were made.
    pub(super) fn of_on_demand(made: Vec<i64>) -> Self {
        Self {
            made,
            seconds: 3600,
            most: ON_DEMAND_HOSTS_ORDERS_PER_HOUR,
        }
    }

    /// When they were made, Unix seconds: at most as many as are made in this time.
    pub(super) fn made(&self) -> &[i64] {
        &self.made
    }

    /// How many seconds to wait before another order; none if it may be made now.
    pub(super) fn wait(&mut self, now: i64) -> Option<u64> {
        let first = now - self.seconds + 1;
        self.made.retain(|made| (first..=now).contains(made));
        if self.made.len() < self.most {
            return None;
        }
        let oldest = self.made.iter().min().copied().unwrap_or(now);
        Some((oldest + self.seconds - now).max(1).unsigned_abs())
    }

    /// An order is made now.
    pub(super) fn count(&mut self, now: i64) {
        self.made.push(now);
    }

    /// The one that was counted last was not made.
    pub(super) fn uncount(&mut self) {
        self.made.pop();
    }
}

/// What looks at a server's renewal information cost, which is bounded: they are for later, and orders wait
/// for them.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// By the looks of this round.
    spent: Duration,
    /// None before this time, Unix seconds.
    from: i64,
}

impl Looks {
    /// A round begins.
    pub(super) fn begin(&mut self) {
        self.spent = Duration::ZERO;
    }

    /// Whether this round has had its time for looks.
    pub(super) fn is_over(&self) -> bool {
        self.spent >= LOOKS_TIME
    }

    /// Whether the server may be asked.
    pub(super) fn may_ask(&self, now: i64) -> bool {
        // A clock that was ahead has no say.
        !(self.from - LOOKS_PAUSE_S..self.from).contains(&now)
    }

    /// A look took so long, and had an answer or none.
    pub(super) fn count(&mut self, took: Duration, is_answered: bool, now: i64) {
        self.spent += took;
        if !is_answered {
            self.from = now + LOOKS_PAUSE_S;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;

    #[test]
    fn renewals_are_at_two_thirds_of_every_lifetime() {
        for days in [6, 45, 90] {
            let validity = (1000, 1000 + days * DAY);
            let at = renewal_of(validity);
            let part = (at - 1000) as f64 / (days * DAY) as f64;
            assert!((0.66..=0.71).contains(&part), "{days}: {part}");
            assert!(!is_late(validity, 1000 + days * DAY * 6 / 10));
            assert!(is_late(validity, 1000 + days * DAY * 68 / 100));
        }
        // What makes no sense is renewed at once, and nothing overflows.
        assert_eq!(renewal_of((1000, 0)), 1000);
        assert_eq!(within(5, 3), 5);
    }

    #[test]
    fn failures_back_off_to_a_bound_and_servers_may_ask_for_more() {
        let mut attempts_of_an_hour = 1;
        let mut at = Duration::ZERO;
        for failures in 1..60 {
            let wait = back_off(failures);
            assert!(wait >= ORDER_BACK_OFF_LEAST && wait <= ORDER_BACK_OFF_MOST * 3 / 2);
            at += wait;
            attempts_of_an_hour += u32::from(at < Duration::from_secs(3600));
        }
        assert!(attempts_of_an_hour <= 5, "{attempts_of_an_hour}");
        let day = Duration::from_secs(86_400);
        assert_eq!(asked_wait(None), Duration::ZERO);
        assert_eq!(asked_wait(Some(day / 2)), day / 2);
        assert_eq!(asked_wait(Some(day * 1000)), ORDER_BACK_OFF_MOST * 4);
    }

    #[test]
    fn orders_are_counted_by_the_minute() {
        let mut orders = Orders::default();
        for _ in 0..ORDERS_PER_MINUTE {
            assert_eq!(orders.wait(100), None);
            orders.count(100);
        }
        assert_eq!(orders.wait(100), Some(60));
        assert_eq!(orders.wait(159), Some(1));
        assert_eq!(orders.wait(160), None);
        // A clock that is set back does not stop them.
        assert_eq!(orders.wait(10), None);
    }

    #[test]
    fn looks_of_a_round_are_bounded_and_pause_where_nobody_answers() {
        let mut looks = Looks::default();
        looks.begin();
        let slow = LOOKS_TIME / 4;
        let mut count = 0;
        while !looks.is_over() {
            assert!(looks.may_ask(1000));
            looks.count(slow, true, 1000);
            count += 1;
        }
        assert_eq!(count, 4);
        looks.begin();
        assert!(!looks.is_over() && looks.may_ask(1000));
        looks.count(LOOKS_TIME, false, 1000);
        looks.begin();
        for (now, may_ask) in [
            (1000, false),
            (999 + LOOKS_PAUSE_S, false),
            (1000 + LOOKS_PAUSE_S, true),
            (1, true),
        ] {
            assert_eq!(looks.may_ask(now), may_ask, "{now}");
        }
    }
}
