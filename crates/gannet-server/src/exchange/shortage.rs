//! Deferred lookups: this turn's budget for them is used up, they waited for the names of a folder, or
//! they found no descriptor, no memory or no room in the disk queue.
//!
//! A lookup of a path that names nothing takes many calls, and a burst of requests for an uncached
//! path makes thousands of lookups at once. Lookups beyond the limits are deferred, first come,
//! first served, and hold nothing; when they resume, the first ones have usually cached the path. A
//! resource that stays exhausted for [`SHORT_MS`] leads to a 503.

use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, Nanos, Token};

use crate::bounds::ledger::Work;
use crate::bounds::limits::{SHORT_AGAIN_MS, SHORT_MS, SHORT_PAUSE_MAX_MS};
use crate::exchange::shared::Shared;
use crate::exchange::waiters::Line;
use crate::release::directory::fill::{DiskLookup, Filled};
use crate::release::wakeup::Wakeup;
use crate::worker::Worker;

/// The deferred lookups.
#[derive(Default)]
pub(crate) struct Shortage {
    /// In the order of their deferral.
    line: Line,
    /// After a resource was exhausted: the earliest time of the next attempt.
    again_at: Nanos,
    /// The last pause: it doubles while every attempt finds a resource exhausted, so that fewer
    /// lookups in progress hold the resources that the others need.
    pause_ms: u64,
}

impl Shortage {
    /// Time of the next attempt, if any lookup is deferred.
    pub(crate) fn next_try(&self) -> Option<Nanos> {
        (!self.line.0.is_empty()).then_some(self.again_at)
    }

    /// A lookup has ended, so others may continue at once.
    pub(crate) fn ease(&mut self) {
        self.pause_ms = 0;
    }
}

impl<D: Driver> Shared<D> {
    /// Whether a lookup may begin in this turn; if not, `waiter` is woken when it may.
    pub(crate) fn may_look_up(&mut self, waiter: Token) -> bool {
        // Deferred lookups go first.
        let may = self.shortage.line.0.is_empty() && self.budget.take(Work::Lookup, 1);
        if !may {
            self.shortage.line.push(waiter, &mut self.waiters);
            self.counters.deferred_lookups += 1;
        }
        may
    }

    /// Has these lookups begin again, behind those that were deferred before.
    pub(crate) fn look_up_again(&mut self, line: Line) {
        for waiter in line.0 {
            self.shortage.line.push(waiter, &mut self.waiters);
        }
    }

    /// Defers a lookup that found a resource exhausted; `waiter` is woken to restart it. After
    /// [`SHORT_MS`] the result is an error.
    pub(crate) fn defer_short(&mut self, fill: &mut DiskLookup, waiter: Token) -> Option<Filled> {
        let now = self.driver.now();
        if now > fill.began().plus_ms(SHORT_MS) {
            return Some(Filled::Error(Status::SERVICE_UNAVAILABLE));
        }
        fill.defer();
        self.counters.deferred_lookups += 1;
        self.shortage.line.push(waiter, &mut self.waiters);
        // Concurrent deferrals do not prolong the pause.
        let shortage = &mut self.shortage;
        if shortage.again_at <= now {
            shortage.pause_ms = (2 * shortage.pause_ms).clamp(SHORT_AGAIN_MS, SHORT_PAUSE_MAX_MS);
            shortage.again_at = now.plus_ms(shortage.pause_ms);
        }
        None
    }
}

impl<D: Driver> Worker<D> {
    /// Resumes deferred lookups until a resource is exhausted again or the turn's budget is used
    /// up.
    pub(crate) fn try_short_again(&mut self) {
        self.admit(
            |shared| {
                let is_due = shared.shortage.again_at <= shared.driver.now();
                Some(&mut shared.shortage.line).filter(|_| is_due)
            },
            (Work::Lookup, 1),
            || Wakeup::Again,
        );
    }
}
