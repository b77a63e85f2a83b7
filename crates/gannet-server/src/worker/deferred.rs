//! Resumes what earlier turns have put off.

use std::cmp::Reverse;

use gannet_io::driver::{Completion, Driver};

use super::Worker;
use crate::bounds::ledger::Work;
use crate::bounds::limits::{GROWING_END_LEN, GROWING_LOOK_MS, REREAD_SLICE_MAX};
use crate::exchange::fetching::Fetched;
use crate::exchange::shared::Shared;
use crate::exchange::waiters::Line;
use crate::ground::delay::Arrived;
use crate::ground::token::Kind;
use crate::release::wakeup::Wakeup;

impl<D: Driver> Worker<D> {
    /// Passes on the input that is due.
    pub(super) fn hand_on(&mut self) {
        let now = self.shared.driver.now();
        while self.has_room()
            && let Some(held) = self.shared.delays.pop(now)
        {
            self.on(held.id, |conn| match held.bytes {
                Some(bytes) => conn.arrived(Arrived::Held(bytes)),
                None => conn.arrived_end(),
            });
        }
    }

    /// Wakes those that wait for parts of releases which do not come.
    pub(super) fn give_up_fetches(&mut self) {
        while let Some(late) = self.shared.late_fetch() {
            self.wake_fetched(late);
        }
    }

    /// Wakes those that have waited for a part of a release.
    pub(super) fn wake_fetched(&mut self, fetched: Fetched) {
        for waiter in fetched.waiters {
            self.wake(waiter, Ok(Wakeup::Fetched(fetched.result)));
        }
    }

    /// Continues with the responses that wait to read again what was sent of a growing file.
    pub(super) fn admit_rereads(&mut self) {
        let work = (Work::Reread, REREAD_SLICE_MAX);
        self.admit(|it| Some(&mut it.rereads), work, || Wakeup::Admitted);
    }

    /// Continues with the responses from files that were being written, if their time has come.
    pub(super) fn look_at_lengths(&mut self) {
        let now = self.shared.driver.now();
        if self.shared.look_at <= now {
            self.shared.look_at = now.plus_ms(GROWING_LOOK_MS);
            let work = (Work::Reread, GROWING_END_LEN);
            self.admit(|it| Some(&mut it.lengths), work, || Wakeup::Again);
        }
    }

    /// Continues with the long responses that wait for their turn, while the budget lasts: last, since what
    /// is new is shorter.
    pub(super) fn serve_long(&mut self) {
        let mut others = Vec::new();
        self.shared.driver.completed(&mut others);
        self.complete_also(&mut others);
        while self.shared.budget.has_left(Work::Long)
            && self.has_room()
            && let Some(Reverse((_, id))) = self.shared.turns.waiting.pop()
        {
            self.on(id, |conn| conn.take_turn());
            // If its slice has left, the next one follows: the share is the same. Others, whose next requests may
            // be there already, have one more send each: the budget bounds the turn.
            let (from, sent) = (others.len(), id.token(Kind::Send));
            self.shared.driver.completed(&mut others);
            if let Some(at) = others[from..].iter().position(|it| it.token == sent) {
                let completion = others.remove(from + at);
                self.complete(completion);
            }
        }
        self.complete_also(&mut others);
    }

    /// Dispatches these completions behind those that wait for memory.
    fn complete_also(&mut self, more: &mut Vec<Completion>) {
        if !more.is_empty() {
            let mut completions = std::mem::take(&mut self.completions);
            completions.append(more);
            self.complete_all(completions);
        }
    }

    /// Wakes the waiters now in a line, while the line is due and the budget lasts.
    pub(crate) fn admit(
        &mut self,
        line: fn(&mut Shared<D>) -> Option<&mut Line>,
        (work, cost): (Work, u64),
        wake_with: fn() -> Wakeup,
    ) {
        let len = line(&mut self.shared).map_or(0, |line| line.0.len());
        for _ in 0..len {
            if !self.shared.budget.has_left(work) || !self.has_room() {
                return;
            }
            let Some(waiter) = line(&mut self.shared).and_then(|line| line.0.pop_front()) else {
                return;
            };
            if !self.shared.waiters.forget_if_gone(waiter) {
                self.shared.budget.take(work, cost);
                self.wake(waiter, Ok(wake_with()));
            }
        }
    }
}
