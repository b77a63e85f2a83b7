//! The rate of a client's connection, which TCP's sockets keep by themselves.

use gannet_io::driver::Nanos;

use crate::bounds::quic::{PACED_MIN, PACED_PER_SECOND};

const SECOND_NS: u64 = 1_000_000_000;

/// Passes content to the library in portions, as many in a second as a client's rate allows.
///
/// The library spreads packets over a round trip; what it has not been given, it cannot send.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When what was passed on is paid for.
    paid_at: u64,
    /// Something waits for that.
    waits: bool,
}

impl Pace {
    /// How many bytes may be passed on now at this rate.
    pub(super) fn room(&self, rate: Option<u64>, now: Nanos) -> u64 {
        match rate {
            None => u64::MAX,
            Some(_) if self.paid_at > now.0 => 0,
            Some(rate) => (rate / PACED_PER_SECOND).max(PACED_MIN),
        }
    }

    /// Bytes were passed on.
    pub(super) fn take(&mut self, rate: Option<u64>, bytes: u64, now: Nanos) {
        if let Some(rate) = rate {
            let cost = u128::from(bytes) * u128::from(SECOND_NS) / u128::from(rate.max(1));
            let cost = u64::try_from(cost).unwrap_or(u64::MAX);
            self.paid_at = self.paid_at.max(now.0).saturating_add(cost);
        }
    }

    /// Notes whether there is more to pass on.
    pub(super) fn note_waits(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// When more can be passed on, if something waits for that.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.waits.then_some(Nanos(self.paid_at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_come_at_the_rate() {
        let rate = Some(100_000);
        let mut pace = Pace::default();
        let (mut now, mut sum) = (Nanos(5), 0);
        for _ in 0..100 {
            let room = pace.room(rate, now);
            assert_eq!(room, 10_000);
            pace.take(rate, room, now);
            assert_eq!(pace.room(rate, now), 0);
            assert_eq!(pace.next(), None, "nothing waits");
            pace.note_waits(true);
            sum += room;
            now = pace.next().expect("something waits");
            pace.note_waits(false);
        }
        assert_eq!((sum, now.0), (1_000_000, 10 * SECOND_NS + 5));
        // Unused time is not made up for.
        let later = Nanos(now.0 + 60 * SECOND_NS);
        pace.take(rate, 10_000, later);
        assert_eq!(pace.room(rate, later), 0);
        // Heads and short content are passed on at once.
        pace.take(rate, 200_000, later);
        assert_eq!(pace.room(rate, Nanos(later.0 + 2 * SECOND_NS)), 0);
        assert_eq!(pace.room(None, later), u64::MAX);
        assert_eq!(pace.room(Some(1), Nanos(u64::MAX)), PACED_MIN);
    }
}
