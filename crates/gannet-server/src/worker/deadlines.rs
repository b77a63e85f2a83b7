//! When something must have happened on a connection, and what follows if it has not.

use gannet_io::driver::{Driver, Nanos};

use super::Worker;
use crate::conn::Phase;
use crate::timers::{Tick, Timed};

impl<D: Driver> Worker<D> {
    /// The connection must get on within `ms` milliseconds.
    pub(super) fn set_deadline(&mut self, slot: u32, ms: u64) {
        self.set_deadline_at(slot, self.driver.now().plus_ms(ms));
    }

    /// The connection must get on until this moment.
    pub(super) fn set_deadline_at(&mut self, slot: u32, at: Nanos) {
        let deadline = Tick::at_or_after(at);
        let conn = self.conns.at(slot);
        conn.deadline = deadline;
        if deadline < conn.scheduled {
            let timed = Timed {
                slot,
                generation: conn.generation,
            };
            conn.scheduled = self.wheel.insert(deadline, timed);
        }
    }

    pub(super) fn fire_timers(&mut self) {
        let now = self.driver.now();
        if self.wheel.next_deadline().is_none_or(|at| at > now) {
            return;
        }
        let mut due = std::mem::take(&mut self.due);
        self.wheel.fire(now, &mut due);
        for timed in due.drain(..) {
            self.fire(timed);
        }
        self.due = due;
    }

    fn fire(&mut self, timed: Timed) {
        let now = self.driver.now();
        let Some(conn) = self.conns.find(timed.slot, timed.generation) else {
            return;
        };
        if conn.scheduled.start() > now {
            // A later entry of the same connection stands for it.
            return;
        }
        conn.scheduled = Tick::NEVER;
        if conn.deadline.start() > now {
            conn.scheduled = self.wheel.insert(conn.deadline, timed);
            return;
        }
        if conn.streams.is_some() && conn.phase != Phase::Lingering {
            return self.streams_due(timed.slot);
        }
        match conn.phase {
            Phase::Free => {}
            Phase::Shaking => {
                self.counters.timeouts += 1;
                self.counters.tls.failed_by("timeout");
                self.close(timed.slot);
            }
            Phase::Reading => {
                self.counters.timeouts += 1;
                self.reading_timed_out(timed.slot);
            }
            Phase::Lingering => self.close(timed.slot),
            Phase::Waiting => {
                self.counters.timeouts += 1;
                self.reset(timed.slot);
            }
            Phase::Sending => self.check_progress(timed.slot),
        }
    }

    /// No request in time. A peer that had begun one is told so.
    fn reading_timed_out(&mut self, slot: u32) {
        if !self.conns.at(slot).held.is_empty() {
            self.refuse(
                slot,
                gannet_http::semantics::response::Status::REQUEST_TIMEOUT,
            );
        } else {
            self.close(slot);
        }
    }

    /// A send has lasted long: is the peer slow, or does it take nothing?
    pub(super) fn check_progress(&mut self, slot: u32) {
        let limits = self.settings.limits;
        let socket = self.conns.at(slot).socket;
        let acknowledged = self.driver.acknowledged(socket);
        let conn = self.conns.at(slot);
        let taken = acknowledged.saturating_sub(conn.acknowledged);
        conn.acknowledged = acknowledged;
        let least = (limits.send_rate_min * limits.progress_timeout_ms / 1_000).max(1);
        if taken < least {
            self.counters.timeouts += 1;
            self.counters.cut_short += 1;
            self.reset(slot);
        } else {
            self.set_deadline(slot, limits.progress_timeout_ms);
        }
    }
}
