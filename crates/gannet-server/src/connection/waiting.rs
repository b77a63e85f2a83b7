//! An HTTP/1 request that has to wait, and those behind it.

use gannet_http::semantics::kept::KeptRequest;
use gannet_io::driver::{Driver, Errno};

use super::{Active, Parked, Phase};
use crate::exchange::Disk;
use crate::exchange::answering::Reply;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::pump::Stop;
use crate::exchange::waiting::{Found, Waits, answer};
use crate::worker::token::Kind;

impl<D: Driver> Active<'_, D> {
    /// Asks the disk on behalf of a request. `out` has the answers to the requests before it.
    pub(super) fn ask_disk(&mut self, request: Box<KeptRequest>, out: Outgoing) {
        match self.park(request, out) {
            Some(parked) => self.ask_on(parked, None),
            None => self.reset(),
        }
    }

    fn park(&mut self, request: Box<KeptRequest>, out: Outgoing) -> Option<Box<Parked>> {
        let scheme = self.conn.scheme();
        let waits = self.shared.waits(&request.as_request(), scheme);
        debug_assert!(
            waits.is_some(),
            "a site was selected and the path decoded before"
        );
        Some(Box::new(Parked {
            request,
            waits: waits?,
            out,
        }))
    }

    /// An answer of the disk: for the request that waits, or the next bytes of a body.
    pub(crate) fn disk(&mut self, answer: Result<Disk, Errno>) {
        match (self.conn.phase, answer) {
            (Phase::Waiting, answer) => {
                if let Some(parked) = self.conn.work().parked.take() {
                    self.ask_on(parked, Some(answer));
                }
            }
            (_, Ok(Disk::Read(bytes))) => self.copy_read(bytes),
            (_, _) => self.cut_short(),
        }
    }

    /// Asks until an answer has to be awaited, or there are answers to send.
    fn ask_on(&mut self, mut parked: Box<Parked>, mut answer: Option<Result<Disk, Errno>>) {
        let asker = self.conn.id.token(Kind::Disk);
        loop {
            let Some(found) = self.shared.find_out(
                &parked.request.as_request(),
                &mut parked.waits,
                asker,
                answer.take(),
            ) else {
                let conn = &mut *self.conn;
                conn.phase = Phase::Waiting;
                conn.work().parked = Some(parked);
                self.listen_for_end();
                return self.set_deadline(self.shared.settings.limits.progress_timeout_ms);
            };
            let Parked {
                request,
                waits,
                mut out,
            } = *parked;
            self.answer_found(&request, &waits, found, &mut out);
            match self.pump_held(&mut out) {
                Some(request) => match self.park(request, out) {
                    Some(next) => parked = next,
                    None => return self.reset(),
                },
                None => return self.send(out),
            }
        }
    }

    /// Answers the requests behind the one that waited, as far as that goes. Returns one that has
    /// to wait in turn.
    fn pump_held(&mut self, out: &mut Outgoing) -> Option<Box<KeptRequest>> {
        if self.conn.intake.is_empty() {
            return None;
        }
        let input = self.conn.intake.take();
        let mut pump = self.shared.pump(self.conn.is_secure());
        let (used, stop) = pump.run(self.conn, &input, out);
        self.conn.intake.keep(input, used);
        match stop {
            Stop::Wait(request) => Some(request),
            Stop::NeedInput | Stop::Full | Stop::Closing => None,
        }
    }

    /// Answers the request that waited.
    fn answer_found(
        &mut self,
        request: &KeptRequest,
        waits: &Waits,
        found: Found,
        out: &mut Outgoing,
    ) {
        let request = request.as_request();
        let conn = &mut *self.conn;
        let is_early = conn.is_early();
        let mut pump = self.shared.pump(conn.is_secure());
        let Some(http1) = conn.protocol.http1() else {
            return;
        };
        let reply = Reply::H1(&mut http1.machine);
        let answered = answer(&mut pump, reply, &request, is_early, (waits, found), out);
        conn.close_with_machine();
        pump.done(conn, &request, answered);
    }
}
