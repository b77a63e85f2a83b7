//! Deadlines of a connection, and what happens when they expire.

use gannet_io::driver::{Driver, Nanos};

use super::{Active, Phase};
use crate::ground::timers::Tick;

impl<D: Driver> Active<'_, D> {
    /// Requires progress within `ms` milliseconds.
    pub(super) fn set_deadline(&mut self, ms: u64) {
        self.set_deadline_at(self.shared.driver.now().plus_ms(ms));
    }

    /// Requires progress until `at`.
    pub(super) fn set_deadline_at(&mut self, at: Nanos) {
        let deadline = Tick::at_or_after(at);
        let conn = &mut *self.conn;
        conn.deadline = deadline;
        if deadline < conn.scheduled {
            conn.scheduled = self.shared.wheel.insert(deadline, conn.id);
        }
    }

    /// Handles an entry of the wheel: the deadline may have expired.
    pub(crate) fn due(&mut self) {
        let now = self.shared.driver.now();
        let conn = &mut *self.conn;
        if conn.scheduled.start() > now {
            // A later entry of the same connection supersedes it.
            return;
        }
        conn.scheduled = Tick::NEVER;
        if conn.deadline.start() > now {
            conn.scheduled = self.shared.wheel.insert(conn.deadline, conn.id);
            return;
        }
        if conn.protocol.is_http2() && conn.phase != Phase::Lingering {
            return self.streams_due();
        }
        let counters = &mut self.shared.counters;
        match conn.phase {
            Phase::Free => {}
            Phase::Shaking if conn.is_held() => self.refuse_held(),
            Phase::Shaking => {
                counters.timeouts += 1;
                counters.tls.failed_by("timeout");
                self.close();
            }
            Phase::Proxied => {
                counters.timeouts += 1;
                self.close();
            }
            Phase::Reading => {
                counters.timeouts += 1;
                self.reading_timed_out();
            }
            Phase::Lingering => self.end_lingering(),
            Phase::Waiting => {
                counters.timeouts += 1;
                self.reset();
            }
            Phase::Sending => self.check_progress(),
        }
    }

    /// Handles a request that was not complete in time. A peer that had begun one gets a 408.
    fn reading_timed_out(&mut self) {
        if !self.conn.intake.is_empty() {
            self.refuse(gannet_http::semantics::response::Status::REQUEST_TIMEOUT);
        } else {
            self.close();
        }
    }

    /// Checks a long send: is the peer slow, or does it accept nothing?
    pub(super) fn check_progress(&mut self) {
        let limits = self.shared.settings.limits;
        if self.conn.is_in_line() {
            return self.set_deadline(limits.progress_timeout_ms);
        }
        let socket = self.conn.socket;
        let acknowledged = self.shared.driver.acknowledged(socket);
        let conn = &mut *self.conn;
        let taken = acknowledged.saturating_sub(conn.acknowledged);
        conn.acknowledged = acknowledged;
        let least = (limits.send_rate_min * limits.progress_timeout_ms / 1_000).max(1);
        if taken < least {
            self.shared.counters.timeouts += 1;
            self.shared.counters.cut_short += 1;
            self.reset();
        } else {
            self.set_deadline(limits.progress_timeout_ms);
        }
    }
}
