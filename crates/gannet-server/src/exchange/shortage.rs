//! Lookups that have to wait: this turn's budget for them is used up, or they found no descriptor, no
//! memory or no room among what waits for the disk.
//!
//! Looking a path up takes many calls where it names nothing, and a crowd that asks for a path which
//! nobody has asked for before makes thousands of lookups at once. Those that do not fit are deferred,
//! first come, first served, and hold nothing; by the time they are told, the first ones have ended
//! and the path is mostly remembered. What stays short for [`SHORT_MS`] is told to the client.

use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, Nanos, Token};

use super::Wakeup;
use crate::limits::{SHORT_AGAIN_MS, SHORT_MS, SHORT_PAUSE_MAX_MS};
use crate::release::directory::fill::{Fill, Filled};
use crate::worker::Worker;
use crate::worker::ledger::Work;
use crate::worker::shared::Shared;
use crate::worker::waiters::Line;

/// Who is deferred.
#[derive(Default)]
pub(crate) struct Shortage {
    /// In the order in which they were deferred.
    line: Line,
    /// Something was short: not before this time does the next one try.
    again_at: Nanos,
    /// How long the last pause was: it doubles as long as all who try find something short, so that
    /// fewer of them are under way and hold what the others lack.
    pause_ms: u64,
}

impl Shortage {
    /// When somebody tries again, if anybody is deferred.
    pub(crate) fn next_try(&self) -> Option<Nanos> {
        (!self.line.0.is_empty()).then_some(self.again_at)
    }

    /// A lookup has ended: others may, too.
    pub(crate) fn ease(&mut self) {
        self.pause_ms = 0;
    }
}

impl<D: Driver> Shared<D> {
    /// Whether a lookup may begin in this turn; if not, `waiter` is woken when it may.
    pub(crate) fn may_look_up(&mut self, waiter: Token) -> bool {
        // Those who wait go first.
        let may = self.shortage.line.0.is_empty() && self.budget.take(Work::Lookup, 1);
        if !may {
            self.shortage.line.push(waiter, &mut self.waiters);
            self.counters.deferred_lookups += 1;
        }
        may
    }

    /// Something was short for a lookup: it begins again later, and `waiter` is woken for it. What
    /// has been short for too long is an error.
    pub(crate) fn defer_short(&mut self, fill: &mut Fill, waiter: Token) -> Option<Filled> {
        let now = self.driver.now();
        if now > fill.began().plus_ms(SHORT_MS) {
            return Some(Filled::Error(Status::SERVICE_UNAVAILABLE));
        }
        fill.defer();
        self.counters.deferred_lookups += 1;
        self.shortage.line.push(waiter, &mut self.waiters);
        // Those who come meanwhile do not make the others wait longer.
        let shortage = &mut self.shortage;
        if shortage.again_at <= now {
            shortage.pause_ms = (2 * shortage.pause_ms).clamp(SHORT_AGAIN_MS, SHORT_PAUSE_MAX_MS);
            shortage.again_at = now.plus_ms(shortage.pause_ms);
        }
        None
    }
}

impl<D: Driver> Worker<D> {
    /// Lets those go on who are deferred, until something is short again or the turn's budget is
    /// used up.
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
