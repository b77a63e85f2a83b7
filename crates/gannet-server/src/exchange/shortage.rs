//! Lookups that have to wait: this turn's budget for them is used up, or they found no descriptor, no
//! memory or no room among what waits for the disk.
//!
//! Looking a path up takes many calls where it names nothing, and a crowd that asks for a path which
//! nobody has asked for before makes thousands of lookups at once. Those that do not fit are deferred,
//! first come, first served, and hold nothing; by the time they are told, the first ones have ended
//! and the path is mostly remembered. What stays short for [`SHORT_MS`] is told to the client.

use std::collections::VecDeque;

use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, Nanos, Token};

use super::Disk;
use crate::limits::{SHORT_AGAIN_MS, SHORT_MS, SHORT_PAUSE_MAX_MS};
use crate::release::directory::fill::{Fill, Filled};
use crate::worker::Worker;
use crate::worker::ledger::Work;
use crate::worker::shared::{Shared, forget_if_gone};

/// Who is deferred.
#[derive(Default)]
pub(crate) struct Shortage {
    /// In the order in which they were deferred.
    line: VecDeque<Token>,
    /// Something was short: not before this time does the next one try.
    again_at: Nanos,
    /// How long the last pause was: it doubles as long as all who try find something short, so that
    /// fewer of them are under way and hold what the others lack.
    pause_ms: u64,
}

impl Shortage {
    /// When somebody tries again, if anybody is deferred.
    pub(crate) fn next_try(&self) -> Option<Nanos> {
        (!self.line.is_empty()).then_some(self.again_at)
    }

    /// A lookup has ended: others may, too.
    pub(crate) fn ease(&mut self) {
        self.pause_ms = 0;
    }
}

impl<D: Driver> Shared<D> {
    /// Whether a lookup may begin in this turn; if not, `asker` will be told when it may.
    pub(crate) fn may_look_up(&mut self, asker: Token) -> bool {
        // Those who wait go first.
        let may = self.shortage.line.is_empty() && self.budget.take(Work::Lookup, 1);
        if !may {
            self.make_room_in_line();
            self.shortage.line.push_back(asker);
            self.counters.deferred_lookups += 1;
        }
        may
    }

    /// Something was short for a lookup: it begins again later, and `asker` will be told when. What
    /// has been short for too long is an error.
    pub(crate) fn defer_short(&mut self, fill: &mut Fill, asker: Token) -> Option<Filled> {
        let now = self.driver.now();
        if now > fill.began().plus_ms(SHORT_MS) {
            return Some(Filled::Error(Status::SERVICE_UNAVAILABLE));
        }
        fill.defer();
        self.counters.deferred_lookups += 1;
        self.make_room_in_line();
        self.shortage.line.push_back(asker);
        // Those who come meanwhile do not make the others wait longer.
        let shortage = &mut self.shortage;
        if shortage.again_at <= now {
            shortage.pause_ms = (2 * shortage.pause_ms).clamp(SHORT_AGAIN_MS, SHORT_PAUSE_MAX_MS);
            shortage.again_at = now.plus_ms(shortage.pause_ms);
        }
        None
    }

    /// Forgets who has gone, before the line takes more memory.
    fn make_room_in_line(&mut self) {
        let line = &mut self.shortage.line;
        if line.len() == line.capacity() {
            let (alive, asked) = (&self.alive, &mut self.asked);
            line.retain(|asker| !forget_if_gone(alive, asked, *asker));
        }
    }
}

impl<D: Driver> Worker<D> {
    /// Lets those go on who are deferred, until something is short again or the turn's budget is
    /// used up.
    pub(crate) fn try_short_again(&mut self) {
        let now = self.shared.driver.now();
        for _ in 0..self.shared.shortage.line.len() {
            let is_due = self.shared.shortage.again_at <= now;
            if !is_due || !self.shared.budget.has_left(Work::Lookup) || !self.has_room() {
                return;
            }
            let Some(asker) = self.shared.shortage.line.pop_front() else {
                return;
            };
            if !self.shared.forget_if_gone(asker) {
                self.shared.budget.take(Work::Lookup, 1);
                self.tell(asker, Ok(Disk::Again));
            }
        }
    }
}
