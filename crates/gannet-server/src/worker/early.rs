//! Early data (0-RTT): requests that are answered before the client has finished its handshake.
//!
//! Somebody on the path may have recorded them and sent them again. A session is used once, which
//! keeps a replay from this server while it remembers the session; what is answered is `GET` and
//! `HEAD` of static content in any case, and 425 to the rest (RFC 8470).

use gannet_io::driver::Driver;

use super::Worker;
use crate::conn::Phase;
use crate::limits::LINGER_MS;
use crate::secure::State;
use crate::tls::config::Protocol;
use crate::tls::handshake::{Failure, Step};

impl<D: Driver> Worker<D> {
    /// Our side of the handshake is sent and the client's first requests are here.
    pub(super) fn begin_early(&mut self, slot: u32) {
        let conn = self.conns.at(slot);
        let generation = conn.generation;
        // The rest of its handshake may be on the way when we close.
        conn.linger = true;
        let sent = conn.sent;
        let Some(tls) = &mut conn.tls else { return };
        let State::Shaking(mut handshake) = std::mem::take(&mut tls.state) else {
            return;
        };
        let (plain, protocol) = (handshake.take_early(), handshake.protocol());
        tls.state = State::Early(handshake);
        tls.handshake_bytes = sent;
        conn.phase = Phase::Reading;
        self.counters.tls.early += 1;
        if protocol == Protocol::H2 {
            self.begin_streams(slot);
            if let Some(streams) = &mut self.conns.at(slot).streams {
                streams.is_early = true;
            }
        }
        self.set_deadline(slot, self.settings.limits.head_timeout_ms);
        self.opened(slot, &plain);
        let conn = self.conns.find(slot, generation);
        let tls = conn.and_then(|conn| conn.tls.as_deref());
        if tls.is_some_and(|tls| !tls.waiting.is_empty()) {
            self.shake_early(slot);
        }
    }

    /// More has arrived: early data, or the end of the handshake.
    pub(super) fn shake_early(&mut self, slot: u32) {
        let Some(tls) = &mut self.conns.at(slot).tls else {
            return;
        };
        let input = std::mem::take(&mut tls.waiting);
        let State::Early(handshake) = &mut tls.state else {
            return;
        };
        if tls.is_over {
            return;
        }
        let Some(certificates) = &mut self.certificates else {
            return self.reset(slot);
        };
        let mut out = Vec::new();
        match handshake.receive(certificates.current(), &input, &mut out) {
            Ok(Step::NeedInput) => {
                let plain = handshake.take_early();
                self.opened(slot, &plain);
            }
            Ok(Step::Done(established)) => self.established(slot, *established, out),
            Err(failure) => self.early_failed(slot, &failure, out),
        }
    }

    fn early_failed(&mut self, slot: u32, failure: &Failure, out: Vec<u8>) {
        self.counters.tls.failed(failure);
        self.drop_streams(slot);
        let conn = self.conns.at(slot);
        if conn.phase != Phase::Reading || out.is_empty() {
            // Nothing may go between the records of an answer.
            return self.reset(slot);
        }
        conn.closing = true;
        conn.held = Vec::new();
        if let Some(tls) = &mut conn.tls {
            tls.is_over = true;
        }
        conn.phase = Phase::Sending;
        self.send_raw(slot, out);
        self.set_deadline(slot, LINGER_MS);
    }
}
