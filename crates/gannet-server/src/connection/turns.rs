//! Long responses take turns: none waits for more than a share of each of the others.
//!
//! After its first slice a response waits for each further one, until all that is new has been served. Then
//! the one that started its share ([`SHARE_MAX`]) first sends slice after slice, as far as the budget of the worker's
//! turn lasts. Its next share starts with the last slice of this one, so that the order is that of service,
//! whichever slice leaves first.

use gannet_io::driver::Driver;

use super::{Active, Phase};
use crate::bounds::ledger::Work;
use crate::bounds::limits::SHARE_MAX;

impl<D: Driver> Active<'_, D> {
    /// Waits for the next turn, as during a send.
    pub(super) fn queue_up(&mut self) {
        self.spend_share(0);
        let (conn, shared) = (&mut *self.conn, &mut *self.shared);
        conn.phase = Phase::Sending;
        conn.expected = 0;
        let (turns, alive) = (&mut shared.turns, &shared.waiters.connections);
        turns.push(conn.share.0, conn.id, alive);
    }

    /// Sends more, now that it is its turn.
    pub(crate) fn take_turn(&mut self) {
        if self.conn.has_fault() {
            return self.end_by_fault();
        }
        self.conn.expected = 0;
        if self.conn.protocol.is_http2() {
            self.conn.phase = Phase::Reading;
            self.go_on_streams();
        } else {
            self.send_next_part();
        }
        let sent = self.conn.expected;
        self.shared.budget.take_rest(Work::Long, sent);
        self.spend_share(sent);
    }

    /// Begins another share when nothing is left of this one.
    fn spend_share(&mut self, bytes: u64) {
        let ((number, left), turns) = (&mut self.conn.share, &mut self.shared.turns);
        *left = left.saturating_sub(bytes);
        if *left == 0 {
            turns.shares += 1;
            (*number, *left) = (turns.shares, SHARE_MAX);
        }
    }
}
