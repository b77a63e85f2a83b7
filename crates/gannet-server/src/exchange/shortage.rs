//! Requests whose lookup found no descriptor, no memory or no room among what waits for the disk.
//!
//! A crowd that asks for a path which nobody has asked for before makes thousands of lookups at once.
//! Those that do not fit are deferred and hold nothing; by the time they are told, the first ones have
//! ended and the path is mostly remembered. What stays short for [`SHORT_MS`] is told to the client.

use std::collections::VecDeque;

use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, Nanos, Token};

use super::Disk;
use crate::limits::{SHORT_AGAIN_MS, SHORT_MS};
use crate::release::directory::fill::{Fill, Filled};
use crate::worker::Worker;
use crate::worker::ledger::Work;
use crate::worker::shared::{Shared, is_awaited};

/// Who is deferred.
#[derive(Default)]
pub(crate) struct Shortage {
    /// In the order in which something was short for them.
    line: VecDeque<Token>,
    /// When the next one tries again.
    again_at: Nanos,
}

impl Shortage {
    /// When somebody tries again, if anybody is deferred.
    pub(crate) fn next_try(&self) -> Option<Nanos> {
        (!self.line.is_empty()).then_some(self.again_at)
    }
}

impl<D: Driver> Shared<D> {
    /// Something was short for a lookup: it begins again later, and `asker` will be told when. What
    /// has been short for too long is an error.
    pub(crate) fn defer_short(&mut self, fill: &mut Fill, asker: Token) -> Option<Filled> {
        let now = self.driver.now();
        if now > fill.began().plus_ms(SHORT_MS) {
            return Some(Filled::Error(Status::SERVICE_UNAVAILABLE));
        }
        fill.defer();
        self.counters.deferred_lookups += 1;
        let line = &mut self.shortage.line;
        if line.len() == line.capacity() {
            // Before more memory is used.
            let (alive, asked) = (&self.alive, &mut self.asked);
            line.retain(|asker| is_awaited(alive, asked, *asker));
        }
        line.push_back(asker);
        self.shortage.again_at = now.plus_ms(SHORT_AGAIN_MS);
        None
    }
}

impl<D: Driver> Worker<D> {
    /// Lets those go on for whom something was short, until it is short again.
    pub(crate) fn try_short_again(&mut self) {
        let now = self.shared.driver.now();
        for _ in 0..self.shared.shortage.line.len() {
            let is_due = self.shared.shortage.next_try().is_some_and(|at| at <= now);
            if !is_due || !self.shared.budget.has_left(Work::Lookup) {
                return;
            }
            let Some(asker) = self.shared.shortage.line.pop_front() else {
                return;
            };
            if self.shared.is_awaited(asker) {
                self.shared.budget.take(Work::Lookup, 1);
                self.tell(asker, Ok(Disk::Again));
            }
        }
    }
}
