//! Bytes from a peer become requests.

use gannet_http::semantics::response::Status;
use gannet_io::driver::{Driver, Lease};

use super::delay::Arrived;
use super::{Kind, Worker, token};
use crate::conn::{Conn, Phase};
use crate::limits::{HELD_MAX, LINGER_BYTES_MAX, LINGER_MS};
use crate::outgoing::Outgoing;
use crate::pump::{Pump, Stop};
use crate::serve::{Answering, Reply, Turn};
use crate::tls::alert::Alert;

/// Lends the parts of a worker that make answers, beside its connections and its driver: what is
/// the same for all requests of a turn, and the pump.
macro_rules! turn {
    ($worker:ident, $fields:ident) => {
        Turn {
            date_line: $worker.date.as_bytes(),
            unix: $worker.driver.unix_seconds(),
            now: $worker.driver.now(),
            seed: $worker.settings.seed,
            fields: &$fields.lines,
            scheme: $fields.scheme,
            redirect: $worker.settings.redirect,
            defaults: &$worker.settings.defaults,
        }
    };
}
macro_rules! pump {
    ($worker:ident, $turn:ident) => {
        Pump {
            sites: &mut $worker.sites,
            driver: &$worker.driver,
            turn: &$turn,
            counters: &mut $worker.counters,
            scratch: &mut $worker.scratch,
            is_logging: $worker.log.is_on(),
        }
    };
}
pub(super) use {pump, turn};

impl<D: Driver> Worker<D> {
    /// Receives the first request of a connection. It may be the only one: what follows is asked
    /// for when its answer is on the way.
    pub(super) fn arm_first_receive(&mut self, slot: u32) {
        let conn = self.conns.at(slot);
        conn.receiving = true;
        self.driver
            .receive_once(conn.socket, token(Kind::Receive, slot, conn.generation));
    }

    pub(super) fn arm_receive(&mut self, slot: u32) {
        let conn = self.conns.at(slot);
        if !conn.receiving && !conn.ended {
            conn.receiving = true;
            self.driver
                .receive(conn.socket, token(Kind::Receive, slot, conn.generation));
        }
    }

    /// An empty send, with a buffer that was used before.
    pub(super) fn outgoing(&mut self) -> Outgoing {
        let spare = std::mem::take(&mut self.spare);
        Outgoing::new(if spare.capacity() == 0 {
            self.driver.output()
        } else {
            spare
        })
    }

    /// Bytes have come from the engine.
    pub(super) fn received(&mut self, slot: u32, lease: Lease, more: bool) {
        self.conns.at(slot).receiving = more;
        if self.delays.is_on() {
            self.hold_back(slot, lease);
        } else {
            self.arrived(slot, Arrived::Lease(lease));
        }
    }

    /// Bytes are there to be looked at.
    pub(super) fn arrived(&mut self, slot: u32, arrived: Arrived) {
        let conn = self.conns.at(slot);
        if conn.is_fresh && !self.is_version_known(slot, &arrived) {
            arrived.release(&mut self.driver);
            return;
        }
        let conn = self.conns.at(slot);
        match conn.phase {
            _ if conn.is_secure() && conn.phase != Phase::Lingering => {
                self.received_sealed(slot, arrived);
            }
            Phase::Free | Phase::Reading | Phase::Waiting | Phase::Sending
                if conn.streams.is_some() =>
            {
                self.streams_received(slot, arrived);
            }
            Phase::Reading if conn.held.is_empty() => self.answer_arrived(slot, arrived),
            Phase::Lingering => {
                conn.dropped += arrived.bytes(&self.driver).len() as u64;
                let is_over = conn.dropped > LINGER_BYTES_MAX;
                arrived.release(&mut self.driver);
                if is_over {
                    return self.close(slot);
                }
                self.arm_receive(slot);
            }
            Phase::Free | Phase::Shaking | Phase::Reading | Phase::Waiting | Phase::Sending => {
                conn.held.extend_from_slice(arrived.bytes(&self.driver));
                arrived.release(&mut self.driver);
                if conn.phase == Phase::Reading {
                    return self.answer_held(slot);
                }
                if conn.held.len() > HELD_MAX && conn.receiving {
                    conn.receiving = false;
                    self.driver.pause_receiving(conn.socket);
                }
            }
        }
    }

    /// The common case: whole requests in the engine's own buffer, answered without a copy.
    fn answer_arrived(&mut self, slot: u32, arrived: Arrived) {
        let mut out = self.outgoing();
        let fields = self.settings.fields(false);
        let turn = turn!(self, fields);
        let input = arrived.bytes(&self.driver);
        let conn = self.conns.at(slot);
        let (used, stop) = pump!(self, turn).run(conn, input, &mut out);
        let head = stop.head(&input[..used]);
        conn.held.extend_from_slice(&input[used..]);
        arrived.release(&mut self.driver);
        self.after_pump(slot, out, stop, head);
    }

    /// Goes on with input that was held.
    pub(super) fn answer_held(&mut self, slot: u32) {
        let mut out = self.outgoing();
        let fields = self.settings.fields(self.conns.at(slot).is_secure());
        let turn = turn!(self, fields);
        let conn = self.conns.at(slot);
        let input = std::mem::take(&mut conn.held);
        let (used, stop) = pump!(self, turn).run(conn, &input, &mut out);
        let head = stop.head(&input[..used]);
        keep_rest(conn, input, used);
        self.after_pump(slot, out, stop, head);
    }

    pub(super) fn after_pump(
        &mut self,
        slot: u32,
        out: Outgoing,
        stop: Stop,
        head: Option<Vec<u8>>,
    ) {
        if let Some(head) = head {
            // Answers gathered before go out with the parked one.
            return self.ask_disk(slot, head, out);
        }
        if !out.is_empty() {
            return self.send(slot, out);
        }
        self.spare = out.finish().0.wire;
        debug_assert_ne!(stop, Stop::Full, "only answers fill a send");
        self.wait_for_input(slot);
    }

    /// Nothing to send: the next move is the peer's.
    pub(super) fn wait_for_input(&mut self, slot: u32) {
        let conn = self.conns.at(slot);
        conn.phase = Phase::Reading;
        if conn.ended {
            // RFC 9112 section 8: a request cut off by the end of the stream is not answered.
            return self.close(slot);
        }
        let is_idle = conn.h1.is_idle() && conn.held.is_empty();
        if is_idle && self.stop_at.is_some() {
            return self.close(slot);
        }
        let limits = self.settings.limits;
        if is_idle {
            conn.idle_since = self.driver.now();
            self.set_deadline(slot, limits.idle_timeout_ms);
        } else if !conn.is_head_timed {
            conn.is_head_timed = true;
            self.set_deadline(slot, limits.head_timeout_ms);
        }
        self.arm_receive(slot);
    }

    /// The engine has met the end of what the peer sends.
    pub(super) fn ended(&mut self, slot: u32) {
        self.conns.at(slot).receiving = false;
        if self.delays.is_on() {
            self.hold_back_end(slot);
        } else {
            self.arrived_end(slot);
        }
    }

    /// The peer has closed its half: what it asked for is still answered.
    pub(super) fn arrived_end(&mut self, slot: u32) {
        let conn = self.conns.at(slot);
        conn.ended = true;
        if conn.streams.is_some() && conn.phase != Phase::Lingering {
            return self.go_on_streams(slot);
        }
        match conn.phase {
            Phase::Shaking => self.ended_shaking(slot),
            Phase::Reading | Phase::Lingering => {
                if let Some(tls) = &mut conn.tls {
                    // Without a close_notify the peer has gone away: it hears no goodbye.
                    tls.is_over = true;
                }
                self.close(slot);
            }
            Phase::Free | Phase::Waiting | Phase::Sending => {}
        }
    }

    /// Answers with an error outside any request, then closes.
    pub(super) fn refuse(&mut self, slot: u32, status: Status) {
        let mut out = self.outgoing();
        let fields = self.settings.fields(self.conns.at(slot).is_secure());
        let turn = turn!(self, fields);
        let conn = self.conns.at(slot);
        conn.h1.reject();
        let answered = Answering {
            reply: Reply::H1(&mut conn.h1),
            turn: &turn,
            out: &mut out,
            ruling: None,
        }
        .error(status, None);
        self.counters.response(answered.status.0);
        conn.closing = true;
        conn.linger = true;
        self.send(slot, out);
    }

    /// All is sent and the connection is to end: at once if the peer cannot miss anything, else
    /// after it has had time to read.
    pub(super) fn finish(&mut self, slot: u32) {
        let conn = self.conns.at(slot);
        if conn.is_secure() && self.says_last(slot, Alert::CLOSE_NOTIFY) {
            return;
        }
        let conn = self.conns.at(slot);
        if conn.linger && !conn.ended {
            self.linger(slot, LINGER_MS);
        } else {
            self.close(slot);
        }
    }

    /// Ends our half, and drops what the peer still sends.
    pub(super) fn linger(&mut self, slot: u32, ms: u64) {
        let conn = self.conns.at(slot);
        conn.phase = Phase::Lingering;
        conn.held = Vec::new();
        self.driver.shutdown_write(conn.socket);
        self.arm_receive(slot);
        self.set_deadline(slot, ms);
    }
}

fn keep_rest(conn: &mut Conn, mut input: Vec<u8>, used: usize) {
    if used < input.len() {
        input.drain(..used);
        conn.held = input;
    }
}
