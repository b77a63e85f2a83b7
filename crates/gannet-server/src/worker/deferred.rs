//! Resumes what earlier turns have put off.

use gannet_io::driver::Driver;

use super::Worker;
use crate::bounds::ledger::Work;
use crate::bounds::limits::REREAD_SLICE_MAX;
use crate::exchange::shared::Shared;
use crate::exchange::waiters::Line;
use crate::ground::delay::Arrived;
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

    /// Continues with the responses that wait to read again what was sent of a growing file.
    pub(super) fn admit_rereads(&mut self) {
        let work = (Work::Reread, REREAD_SLICE_MAX);
        self.admit(|it| Some(&mut it.rereads), work, || Wakeup::Admitted);
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
