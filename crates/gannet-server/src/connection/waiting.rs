//! An HTTP/1 request that has to wait, and those behind it.

use gannet_io::driver::{Driver, Errno};

use super::http1::Stop;
use super::{Active, Parked, Phase};
use crate::exchange::outgoing::Outgoing;
use crate::exchange::waiting::{Found, WaitingRequest};
use crate::ground::delay::Arrived;
use crate::ground::token::Kind;
use crate::release::wakeup::Wakeup;

impl<D: Driver> Active<'_, D> {
    /// Handles a result: for the waiting request, or the next bytes of a body.
    pub(crate) fn woken(&mut self, answer: Result<Wakeup, Errno>) {
        match (self.conn.phase, answer) {
            (Phase::Waiting, answer) => {
                if let Some(parked) = self.conn.work().parked.take() {
                    let Parked { waiting, out } = *parked;
                    self.ask_disk(waiting, out, Some(answer));
                }
            }
            (_, answer) => self.copy_read(answer),
        }
    }

    /// Continues a waiting request until it is pending again, or there are responses to send. `out`
    /// has the responses to the requests before it; `answer` is the result it waited for, if any.
    pub(super) fn ask_disk(
        &mut self,
        mut waiting: Box<WaitingRequest>,
        mut out: Outgoing,
        mut answer: Option<Result<Wakeup, Errno>>,
    ) {
        let waiter = self.conn.id.token(Kind::Disk);
        loop {
            let Some(found) = self.shared.find_out(&mut waiting, waiter, answer.take()) else {
                let conn = &mut *self.conn;
                conn.phase = Phase::Waiting;
                conn.work().parked = Some(Box::new(Parked { waiting, out }));
                self.listen_for_end();
                return self.set_deadline(self.shared.settings.limits.progress_timeout_ms);
            };
            if let Some(next) = self.answer_found(&waiting, found, &mut out) {
                waiting = next;
                continue;
            }
            match self.answer_behind(&mut out) {
                Some(next) => waiting = next,
                None => return self.send(out),
            }
        }
    }

    /// Answers the requests behind the one that waited, until one has to wait in turn, which is
    /// returned.
    fn answer_behind(&mut self, out: &mut Outgoing) -> Option<Box<WaitingRequest>> {
        if self.conn.intake.is_empty() {
            return None;
        }
        let input = self.conn.intake.take();
        match self.answer_input(Arrived::Held(input), out).1 {
            Stop::Wait(waiting) => Some(waiting),
            Stop::NeedInput | Stop::Full | Stop::Closing => None,
        }
    }

    /// Answers the request that waited, or returns it if it has to wait for something else.
    fn answer_found(
        &mut self,
        waiting: &WaitingRequest,
        found: Found,
        out: &mut Outgoing,
    ) -> Option<Box<WaitingRequest>> {
        let conn = &mut *self.conn;
        let release = Some(waiting.release());
        let mut bench = self.shared.workbench(conn.is_secure(), release);
        let http1 = conn.protocol.http1()?;
        let answered = bench.answer_waiting(&mut http1.machine, waiting, found, out);
        self.shared.driver.give_back(std::mem::take(&mut out.spare));
        match answered {
            Ok(record) => {
                conn.close_with_machine();
                conn.note(record);
                None
            }
            Err(next) => Some(next),
        }
    }
}
