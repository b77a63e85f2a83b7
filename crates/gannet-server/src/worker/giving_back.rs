//! Returns free memory to the system after connections have ended.

use gannet_io::driver::{Driver, Nanos};
use gannet_io::heap;

use super::Worker;
use crate::bounds::limits::{GIVE_BACK_MIN, GIVE_BACK_MS};

/// When to give back memory. The memory that peers can cause a worker to hold is bounded per
/// connection, so ended connections indicate that memory was freed, and counting them costs
/// nothing.
#[derive(Default)]
pub(super) struct GivingBack {
    /// The most connections since memory was last given back.
    most: usize,
    /// When to do so next, once enough of them have ended.
    at: Option<Nanos>,
}

impl GivingBack {
    pub(super) fn next(&self) -> Option<Nanos> {
        self.at
    }

    /// Whether to give back memory now that there are `len` connections.
    fn is_due(&mut self, now: Nanos, len: usize) -> bool {
        self.most = self.most.max(len);
        let ended = self.most - len;
        if self.at.is_none() && ended >= len.max(GIVE_BACK_MIN) {
            self.at = Some(now.plus_ms(GIVE_BACK_MS));
        }
        if self.at.is_none_or(|at| at > now) {
            return false;
        }
        self.at = None;
        self.most = len;
        true
    }
}

impl<D: Driver> Worker<D> {
    /// Gives back free memory if many connections have ended.
    pub(super) fn give_back(&mut self) {
        let now = self.shared.driver.now();
        let is_due = self.giving_back.is_due(now, self.connection_count());
        if is_due && !heap::give_back() {
            // Another worker has just given memory back, perhaps too early for the connections that
            // ended here.
            self.giving_back.at = Some(now.plus_ms(GIVE_BACK_MS));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_time_once_after_half_of_a_crowd_has_gone() {
        let moment = |ms| Nanos(0).plus_ms(ms);
        let mut giving = GivingBack::default();
        assert!(!giving.is_due(moment(0), 1_000));
        assert!(!giving.is_due(moment(1), 501) && giving.next().is_none());
        assert!(!giving.is_due(moment(2), 500));
        assert_eq!(giving.next(), Some(moment(2 + GIVE_BACK_MS)));
        assert!(!giving.is_due(moment(3), 600));
        assert!(giving.is_due(moment(2 + GIVE_BACK_MS), 100));
        assert!(!giving.is_due(moment(9_000), 51) && giving.next().is_none());
        assert!(!giving.is_due(moment(9_000), 50) && giving.next().is_some());
        // A few short-lived connections are not worth it.
        let mut giving = GivingBack::default();
        for len in [GIVE_BACK_MIN - 1, 0, GIVE_BACK_MIN - 1, 0] {
            assert!(!giving.is_due(moment(0), len) && giving.next().is_none());
        }
    }
}
