//! Closes a connection: with a last response, an alert, time to read, or none of these.

use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, Errno};

use super::{Active, Conn, Phase};
use crate::bounds::limits::{FRESH_MS, LINGER_MS};
use crate::exchange::answering::Answering;
use crate::observe::record::Answered;
use crate::observe::record::End;
use crate::release::body::Body;
use crate::tls::alert::Alert;

impl<D: Driver> Active<'_, D> {
    /// Ends the connection: at once, or after `close_notify`.
    pub(crate) fn close(&mut self) {
        if self.says_goodbye() {
            return;
        }
        self.shared.driver.close(self.conn.socket);
        self.forget();
    }

    /// Ends the connection with a reset: its response is incomplete.
    pub(crate) fn reset(&mut self) {
        self.shared.driver.reset(self.conn.socket);
        self.forget();
    }

    /// Handles an error of the socket, or of the disk below a file whose pages were being sent.
    pub(crate) fn send_failed(&mut self, errno: Errno) {
        if errno == Errno::IO {
            // What comes next is the rest of the file, if there is any.
            let next = self.conn.work.as_ref().and_then(|it| it.parts.front());
            let file = match next {
                Some(Body::File(file, _)) => Some(&**file),
                _ => None,
            };
            self.shared.note_cut_short(file, errno);
            return self.cut_short();
        }
        self.shared.counters.socket_errors += 1;
        if self.conn.phase == Phase::Shaking {
            self.shared.counters.tls.failed_by("reset");
        }
        self.reset();
    }

    /// Drops everything the connection owned. The table frees its slot.
    fn forget(&mut self) {
        self.end_work(End::CutShort);
        self.drop_streams();
        let stages = &mut self.shared.counters.stages;
        stages.move_on(&mut self.conn.stage, None);
        self.shared.waiters.connections.remove(self.conn.id);
        self.shared.fetching.clients.remove(&self.conn.id);
        self.shared.ended += 1;
        *self.conn = Conn::new(self.conn.id, self.conn.socket);
        self.conn.phase = Phase::Free;
        if !self.shared.starved.is_empty() {
            self.shared.accept_again();
        }
    }

    /// Answers with an error outside any request, then closes.
    pub(super) fn refuse(&mut self, status: Status) {
        let is_secure = self.conn.is_secure();
        self.answer_last(is_secure, |mut to| to.error(status, None));
    }

    /// Answers outside any request, as over TLS or not, and ends the connection afterwards.
    pub(super) fn answer_last(
        &mut self,
        is_secure: bool,
        answer: impl FnOnce(Answering<'_>) -> Answered,
    ) {
        let mut out = self.shared.outgoing();
        let conn = &mut *self.conn;
        let Some(http1) = conn.protocol.http1() else {
            return self.close();
        };
        http1.machine.reject();
        let bench = self.shared.workbench(is_secure, None);
        let answered = answer(Answering::new(&mut http1.machine, &bench.turn, &mut out));
        self.shared.counters.response(answered.status.0);
        conn.close_intake();
        conn.linger = true;
        self.send(out);
    }

    /// Ends the connection after everything was sent: at once if the peer cannot lose data,
    /// otherwise after it has had time to read.
    pub(super) fn finish(&mut self) {
        let conn = &mut *self.conn;
        if conn.is_secure() && self.says_last(Alert::CLOSE_NOTIFY) {
            return;
        }
        let is_kernel = self.is_kernel();
        let conn = &mut *self.conn;
        if conn.linger && (is_kernel || !conn.ended) {
            self.linger(LINGER_MS);
        } else {
            self.close();
        }
    }

    /// Shuts down our half, and discards further input. Where the kernel encrypts, `close_notify` has
    /// ended our half, and a FIN would overtake records that wait for room in the socket.
    pub(super) fn linger(&mut self, ms: u64) {
        let is_kernel = self.is_kernel();
        let conn = &mut *self.conn;
        conn.phase = Phase::Lingering;
        conn.close_intake();
        if is_kernel {
            conn.acknowledged = self.shared.driver.acknowledged(conn.socket);
        } else {
            self.shared.driver.shutdown_write(conn.socket);
        }
        self.arm_receive();
        self.set_deadline(ms);
    }

    /// Whether the kernel may hold records that an end of our half would lose: it takes a send as done when
    /// it has encrypted it, and queues the records as the peer acknowledges others.
    pub(crate) fn has_unacknowledged_records(&self) -> bool {
        self.is_kernel() && self.shared.driver.unacknowledged(self.conn.socket) > 0
    }

    /// The time to read is over.
    pub(super) fn end_lingering(&mut self) {
        if self.has_unacknowledged_records() {
            // A send like others, from the first look on.
            if std::mem::take(&mut self.conn.linger) {
                return self.set_deadline(self.shared.settings.limits.progress_timeout_ms);
            }
            return self.check_progress();
        }
        let is_kernel = self.is_kernel();
        let acknowledged = self.shared.driver.acknowledged(self.conn.socket);
        let before = std::mem::replace(&mut self.conn.acknowledged, acknowledged);
        if is_kernel && before < acknowledged {
            // It may be about to queue more.
            return self.set_deadline(LINGER_MS);
        }
        self.close();
    }

    /// Closes an idle connection to make room. Without `close_notify`, which would occupy the
    /// descriptor for a while longer; but one of which the kernel holds records ends once they have arrived.
    pub(crate) fn shed(&mut self) {
        if self.has_unacknowledged_records() {
            if self.conn.phase == Phase::Reading {
                self.close();
            }
            return;
        }
        self.silence();
        self.close();
    }

    /// Closes the connection because memory has run out and no connection is idle; it would be next
    /// to time out.
    pub(crate) fn give_up(&mut self) {
        match self.conn.phase {
            _ if self.conn.is_idle() => self.shed(),
            Phase::Waiting | Phase::Sending => self.cut_short(),
            _ => self.reset(),
        }
    }

    /// Drains the connection because the server is stopping: requests received are answered, no
    /// others.
    pub(crate) fn drain(&mut self) {
        let conn = &mut *self.conn;
        if conn.protocol.is_http2() && conn.phase != Phase::Lingering {
            return self.drain_streams();
        }
        conn.drain_http1();
        match conn.phase {
            Phase::Proxied | Phase::Shaking => self.set_deadline(FRESH_MS),
            // A partial head is not a request in progress.
            Phase::Reading if conn.is_untouched() || !conn.intake.is_empty() => {
                self.set_deadline(FRESH_MS);
            }
            // Its next request may be on the way.
            Phase::Reading if self.shared.is_handed_over => self.set_deadline(FRESH_MS),
            Phase::Reading => self.close(),
            Phase::Free | Phase::Waiting | Phase::Sending | Phase::Lingering => {}
        }
    }
}
