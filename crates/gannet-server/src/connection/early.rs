//! Early data (0-RTT): requests answered before the client has finished its handshake.
//!
//! An attacker on the path may have recorded and replayed them. A session is single-use, which
//! rejects replays while this server remembers the session; in any case only `GET` and `HEAD` of
//! static content are answered, all others with 425 (RFC 8470).

use gannet_io::driver::Driver;

use super::secure::TlsState;
use super::{Active, Phase};
use crate::bounds::limits::LINGER_MS;
use crate::tls::config::AlpnProtocol;
use crate::tls::handshake::{Failure, Step};

impl<D: Driver> Active<'_, D> {
    /// Our side of the handshake is sent, and the client's first requests have arrived.
    pub(super) fn begin_early(&mut self) {
        let conn = &mut *self.conn;
        // The rest of its handshake may be in flight when we close.
        conn.linger = true;
        let sent = conn.sent;
        let Some(tls) = &mut conn.tls else { return };
        let TlsState::Shaking(mut handshake) = std::mem::take(&mut tls.state) else {
            return;
        };
        if let Some(client) = &mut conn.client {
            client.secured(handshake.negotiated());
        }
        let (plain, protocol) = (handshake.take_early(), handshake.protocol());
        tls.state = TlsState::Early(handshake);
        tls.handshake_bytes = sent;
        conn.phase = Phase::Reading;
        self.shared.counters.tls.early += 1;
        if protocol == AlpnProtocol::H2 {
            self.begin_streams();
            if let Some(streams) = self.conn.protocol.streams_mut() {
                streams.is_early = true;
            }
        }
        self.set_deadline(self.shared.settings.limits.head_timeout_ms);
        self.decrypted(&plain);
        let tls = self.conn.tls.as_deref();
        if tls.is_some_and(|tls| !tls.waiting.is_empty()) {
            self.shake_early();
        }
    }

    /// Handles more input: early data, or the end of the handshake.
    pub(super) fn shake_early(&mut self) {
        let Some(tls) = &mut self.conn.tls else {
            return;
        };
        let input = std::mem::take(&mut tls.waiting);
        let TlsState::Early(handshake) = &mut tls.state else {
            return;
        };
        if tls.is_over {
            return;
        }
        let Some(certificates) = &mut self.shared.certificates else {
            return self.reset();
        };
        let mut out = Vec::new();
        match handshake.receive(certificates.current(), &input, &mut out) {
            // It has begun, with a certificate.
            Ok(Step::NeedInput | Step::Held) => {
                let plain = handshake.take_early();
                self.decrypted(&plain);
            }
            Ok(Step::Done(established)) => self.established(*established, out),
            Err(failure) => self.early_failed(&failure, out),
        }
    }

    fn early_failed(&mut self, failure: &Failure, out: Vec<u8>) {
        self.shared.counters.tls.failed(failure);
        self.drop_streams();
        let conn = &mut *self.conn;
        if conn.phase != Phase::Reading || out.is_empty() {
            // No alert may interrupt the records of a response.
            return self.reset();
        }
        conn.close_intake();
        if let Some(tls) = &mut conn.tls {
            tls.is_over = true;
        }
        conn.phase = Phase::Sending;
        self.send_raw(out);
        self.set_deadline(LINGER_MS);
    }
}
