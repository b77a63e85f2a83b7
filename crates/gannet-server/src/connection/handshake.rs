//! The TLS handshake before the first request of a connection.

use gannet_http::semantics::status::Status;
use gannet_io::driver::Driver;

use super::secure::{Secure, TlsState};
use super::{Active, Phase};
use crate::bounds::ledger::Work;
use crate::bounds::limits::{FRESH_MS, LINGER_MS};
use crate::observe::stages::Stage;
use crate::tls::alert::Alert;
use crate::tls::config::AlpnProtocol;
use crate::tls::handshake::{Established, Failure, HandshakeKind, Step};
use crate::tls::session::{Received, Session};

/// The response to a client that speaks clear-text HTTP on a TLS port.
const CLEAR_HTTP: &[u8] = b"This port requires HTTPS; use https://.\n";

impl<D: Driver> Active<'_, D> {
    /// Begins the handshake of a connection accepted by a TLS listener.
    pub(super) fn begin_handshake(&mut self) {
        let conn = &mut *self.conn;
        conn.tls = Some(Box::default());
        conn.phase = Phase::Shaking;
        // The version of HTTP is agreed on in the handshake.
        conn.protocol.exclude_http2();
        self.enter(Stage::TlsHandshake);
    }

    /// Continues a handshake, if there is input for it and no pending send.
    pub(super) fn shake(&mut self) {
        let conn = &mut *self.conn;
        let Some(tls) = &mut conn.tls else { return };
        let TlsState::Shaking(handshake) = &mut tls.state else {
            return;
        };
        if tls.is_over || tls.is_sending || tls.is_queued {
            return;
        }
        if tls.held_until.is_some() {
            return self.received_while_held();
        }
        if tls.waiting.is_empty() && !handshake.is_held() {
            return;
        }
        if handshake.is_costly() {
            // A key exchange and a signature, or the client's certificates, while others wait for
            // responses.
            if !self.shared.budget.take(Work::Hello, 1) {
                tls.is_queued = true;
                self.shared.hellos.push_back(conn.id);
                return;
            }
        }
        let Some(certificates) = &mut self.shared.certificates else {
            return self.reset();
        };
        let input = std::mem::take(&mut tls.waiting);
        let mut out = self.shared.driver.output();
        match handshake.receive(certificates.current(), &input, &mut out) {
            Ok(Step::NeedInput) => {
                let has_early = handshake.has_early();
                tls.is_sending = !out.is_empty();
                if !out.is_empty() {
                    self.send_raw(out);
                } else if has_early {
                    self.shared.spare = out;
                    return self.begin_early();
                } else if conn.ended {
                    self.shared.counters.tls.failed_by("closed");
                    return self.close();
                } else {
                    self.shared.spare = out;
                }
                self.arm_receive();
            }
            Ok(Step::Held) => {
                self.shared.spare = out;
                self.hold();
            }
            Ok(Step::Done(established)) => self.established(*established, out),
            Err(failure) => self.handshake_failed(failure, out),
        }
    }

    /// Continues a handshake that was deferred until this turn.
    pub(crate) fn shake_deferred(&mut self) {
        if let Some(tls) = &mut self.conn.tls {
            tls.is_queued = false;
            self.shake();
        }
    }

    fn count_handshake(&mut self, kind: HandshakeKind) {
        match kind {
            HandshakeKind::Full => self.shared.counters.tls.full += 1,
            HandshakeKind::FullWithRetry => self.shared.counters.tls.retried += 1,
            HandshakeKind::Resumed => self.shared.counters.tls.resumed += 1,
        }
        if let Some(measures) = &mut self.shared.counters.measures {
            // Idle since it was accepted.
            let took = self.shared.driver.now().0 - self.conn.idle_since.0;
            measures.handshake(kind, took);
        }
    }

    pub(super) fn established(&mut self, established: Established, out: Vec<u8>) {
        let Established {
            mut session,
            protocol,
            client_certificate,
            kind,
            negotiated,
            early,
            plain,
            rest,
            is_closed,
            ..
        } = established;
        self.count_handshake(kind);
        if protocol == AlpnProtocol::Challenge {
            return self.end_challenge(session, out);
        }
        let mut client = self.conn.client.as_deref_mut();
        if let Some(client) = &mut client {
            client.secured(negotiated);
        }
        self.shared
            .note_certificate(client_certificate.as_deref(), client);
        let mut held = early;
        held.extend_from_slice(&plain);
        session.limit_records(self.shared.settings.key_records_max);
        let mut result = session.receive(&rest, &mut held);
        if is_closed && result.is_ok() {
            result = Ok(Received::Closed);
        }
        let conn = &mut *self.conn;
        let is_early = conn.is_early();
        let Some(tls) = &mut conn.tls else { return };
        if is_early {
            // Requests were answered already; further ones cannot be replays.
            tls.state = TlsState::Open(session);
            if let Some(streams) = conn.protocol.streams_mut() {
                streams.is_early = false;
            }
            if self.note_received(result) {
                self.decrypted(&held);
            }
            return;
        }
        conn.intake.add(&held);
        tls.state = TlsState::Open(session);
        tls.handshake_bytes = conn.sent + out.len() as u64;
        match protocol {
            AlpnProtocol::Http11 | AlpnProtocol::Challenge => self.enter(Stage::Http1Tls),
            AlpnProtocol::H2 => self.begin_streams(),
        }
        if !self.note_received(result) {
            return;
        }
        let ms = match self.shared.stop_at {
            Some(_) => FRESH_MS,
            None => self.shared.settings.limits.head_timeout_ms,
        };
        self.set_deadline(ms);
        if out.is_empty() {
            self.shared.spare = out;
            return self.begin_requests();
        }
        // TLS 1.2: the client sends no request before it has received the end of our side.
        self.conn.phase = Phase::Sending;
        self.send_raw(out);
        self.arm_receive();
    }

    /// Closes a connection whose peer wanted to see a certificate (RFC 8737 section 3).
    fn end_challenge(&mut self, mut session: Session, mut out: Vec<u8>) {
        session.end(Alert::CLOSE_NOTIFY, &mut out);
        self.end_handshake(out);
    }

    /// Sends the rest of our side of the handshake (tickets), because the peer moves next. A client
    /// without `TCP_NODELAY` sends no request before the end of its handshake is acknowledged.
    /// False if there is nothing to send.
    #[inline]
    pub(super) fn sends_rest(&mut self) -> bool {
        self.conn.is_secure() && self.sends_rest_of_handshake()
    }

    fn sends_rest_of_handshake(&mut self) -> bool {
        let conn = &mut *self.conn;
        let is_untouched = conn.is_untouched();
        let Some(tls) = &mut conn.tls else {
            return false;
        };
        let TlsState::Open(session) = &mut tls.state else {
            return false;
        };
        if !session.has_waiting() || tls.is_over {
            return false;
        }
        let mut wire = Vec::new();
        session.take_waiting(&mut wire);
        if is_untouched {
            tls.handshake_bytes += wire.len() as u64;
        }
        if let Some(streams) = conn.protocol.streams_mut() {
            let now = self.shared.driver.now();
            streams.progress_by = now.plus_ms(self.shared.settings.limits.progress_timeout_ms);
        }
        conn.phase = Phase::Sending;
        self.send_raw(wire);
        self.arm_receive();
        true
    }

    /// Starts with requests after the handshake; the first one may have been received already.
    fn begin_requests(&mut self) {
        let conn = &mut *self.conn;
        conn.phase = Phase::Reading;
        if conn.has_fault() {
            return self.end_by_fault();
        }
        if conn.protocol.is_http2() {
            return self.go_on_streams();
        }
        if !conn.intake.is_empty() {
            return self.answer_held();
        }
        self.wait_for_input();
        // There is no output that acknowledges the client's last flight: a resumed TLS 1.2 session
        // ends with the client's message, and not all clients accept tickets.
        let conn = &mut *self.conn;
        if conn.phase == Phase::Reading {
            self.shared.driver.acknowledge(conn.socket);
        }
    }

    pub(super) fn handshake_failed(&mut self, failure: Failure, out: Vec<u8>) {
        self.shared.counters.tls.failed(&failure);
        if let Failure::Ours { alert, .. } = failure {
            self.shared.count_refused_client(alert);
        }
        let conn = &mut *self.conn;
        if let Failure::ClearHttp(_) = failure {
            self.shared.spare = out;
            conn.tls = None;
            self.enter(Stage::Http1);
            return self.answer_clear_http();
        }
        self.end_handshake(out);
    }

    /// Sends the last bytes of a connection that will speak no HTTP, and closes it.
    fn end_handshake(&mut self, out: Vec<u8>) {
        let conn = &mut *self.conn;
        conn.close_intake();
        conn.linger = true;
        if let Some(tls) = &mut conn.tls {
            tls.is_over = true;
        }
        if out.is_empty() {
            self.shared.spare = out;
            return self.close();
        }
        conn.phase = Phase::Sending;
        self.send_raw(out);
        self.set_deadline(LINGER_MS);
    }

    /// Explains a wrong scheme, in the protocol that the client speaks.
    fn answer_clear_http(&mut self) {
        self.answer_last(false, |mut to| {
            let content_type = b"text/plain; charset=utf-8";
            to.generated(Status::BAD_REQUEST, content_type, CLEAR_HTTP, None)
        });
    }

    /// A send of the handshake has completed.
    pub(super) fn shaken(&mut self) {
        let conn = &mut *self.conn;
        if let Some(tls) = &mut conn.tls {
            tls.is_sending = false;
            if matches!(&tls.state, TlsState::Shaking(handshake) if handshake.has_early()) {
                self.arm_receive();
                return self.begin_early();
            }
        }
        if self.is_deserted() {
            return self.close();
        }
        self.arm_receive();
        self.shake();
    }

    /// The peer has closed its half before the handshake completed.
    pub(super) fn ended_shaking(&mut self) {
        if self.is_deserted() {
            self.close();
        }
    }

    /// Whether the peer has closed its half without completing its part of the handshake.
    fn is_deserted(&mut self) -> bool {
        let conn = &mut *self.conn;
        // What waits behind a held hello is of no use to a peer that has gone.
        let is_busy =
            |tls: &Secure| tls.is_sending || (!tls.waiting.is_empty() && tls.held_until.is_none());
        let is_deserted = conn.ended && !conn.tls.as_deref().is_some_and(is_busy);
        if is_deserted {
            self.shared.counters.tls.failed_by("closed");
        }
        is_deserted
    }
}
