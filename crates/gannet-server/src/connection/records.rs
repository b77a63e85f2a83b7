//! TLS records around everything after the handshake, and the alert at the end.
//!
//! Received records are decrypted here and processed further like clear text; output is encrypted
//! in `sending`, at the one place through which all sends pass.

use gannet_http::h2::Time;
use gannet_io::driver::{Driver, SendList};

use super::secure::{Secure, TlsState};
use super::sending::list_len;
use super::{Active, Phase};
use crate::bounds::limits::{
    COPY_SLICE_MAX, ENCRYPTED_SLICE_FIRST, ENCRYPTED_SLICE_MAX, HELD_MAX, LINGER_MS,
    PLAIN_KEPT_MAX, UNTAKEN_MAX,
};
use crate::bounds::tls::PLAINTEXT_MAX;
use crate::clients::Client;
use crate::ground::delay::Arrived;
use crate::ground::token::Kind;
use crate::observe::record::End;
use crate::tls::alert::{Alert, TlsFault};
use crate::tls::session::Received;

impl<D: Driver> Active<'_, D> {
    /// Handles received ciphertext.
    pub(super) fn received_encrypted(&mut self, arrived: Arrived) {
        let conn = &mut *self.conn;
        let Some(tls) = &mut conn.tls else { return };
        if tls.fault.is_some() || tls.is_over {
            // Our last record is made, or will be: further input is ignored.
            return arrived.release(&mut self.shared.driver);
        }
        let input = arrived.bytes(&self.shared.driver);
        let TlsState::Open(session) = &mut tls.state else {
            tls.waiting.extend_from_slice(input);
            let is_much = tls.waiting.len() > HELD_MAX;
            arrived.release(&mut self.shared.driver);
            if conn.is_early() {
                return self.shake_early();
            }
            if is_much {
                self.pause_receive();
            }
            return self.shake();
        };
        let mut plain = std::mem::take(&mut self.shared.plain);
        plain.clear();
        let result = session.receive(input, &mut plain);
        arrived.release(&mut self.shared.driver);
        if self.note_received(result) {
            self.decrypted(&plain);
        }
        if plain.capacity() <= PLAIN_KEPT_MAX {
            self.shared.plain = plain;
        }
    }

    /// Applies the effects of received records besides their content. False if the connection was
    /// ended.
    pub(super) fn note_received(&mut self, result: Result<Received, TlsFault>) -> bool {
        let conn = &mut *self.conn;
        let Some(tls) = &mut conn.tls else {
            return false;
        };
        if let TlsState::Open(session) = &mut tls.state {
            self.shared.counters.tls.updated(session.take_key_updates());
        }
        match result {
            Ok(Received::Open) => {}
            Ok(Received::Closed) => conn.ended = true,
            Err(TlsFault::Ours(alert)) => {
                tls.fault = Some(alert);
                conn.ended = true;
                self.shared.counters.tls.faults += 1;
            }
            Err(TlsFault::Peers(_)) => {
                // RFC 8446 section 6.2: nothing more is sent.
                self.shared.counters.tls.faults += 1;
                self.reset();
                return false;
            }
        }
        true
    }

    /// Processes plaintext, an end, or an incomplete record.
    pub(super) fn decrypted(&mut self, plain: &[u8]) {
        let conn = &mut *self.conn;
        match conn.phase {
            Phase::Reading if conn.has_fault() => self.end_by_fault(),
            Phase::Reading if plain.is_empty() && !conn.protocol.is_http2() => {
                if conn.ended {
                    return self.close();
                }
                if !self.sends_rest() {
                    self.arm_receive();
                }
            }
            Phase::Reading | Phase::Waiting | Phase::Sending => {
                self.arrived_plain(Arrived::Opened(plain));
            }
            Phase::Free | Phase::Proxied | Phase::Shaking | Phase::Lingering => {}
        }
    }

    /// Sends bytes unchanged: records that are already encrypted.
    pub(super) fn send_raw(&mut self, wire: Vec<u8>) {
        let list = SendList {
            wire,
            ..SendList::default()
        };
        self.send_records(list);
    }

    /// The same for a list.
    fn send_records(&mut self, list: SendList) {
        self.note_send(list_len(&list));
        let conn = &mut *self.conn;
        conn.sends(list.wire.capacity());
        self.shared
            .driver
            .send(conn.socket, conn.id.token(Kind::Send), list);
    }

    /// Encrypts a send. `None` if that fails: the connection has been ended.
    pub(super) fn encrypted(&mut self, list: SendList) -> Option<SendList> {
        if !self.conn.is_secure() {
            return Some(list);
        }
        if self.is_kernel() {
            return self.counted_for_kernel(list);
        }
        self.before_encrypting();
        let conn = &mut *self.conn;
        let is_last = conn.intake.is_closed() && !list.more;
        let Some(tls) = &mut conn.tls else {
            return Some(list);
        };
        let driver = &mut self.shared.driver;
        let output = |len| driver.output_of(len);
        let Ok(encrypted) = tls.encrypt(&list, is_last, output) else {
            self.cut_short();
            return None;
        };
        if let TlsState::Open(session) = &mut tls.state {
            self.shared.counters.tls.updated(session.take_key_updates());
        }
        self.shared.keep_spare(list.wire);
        Some(encrypted)
    }

    /// Chooses how the next send is cut into records, and whether the connection ends with the
    /// response that it belongs to.
    fn before_encrypting(&mut self) {
        let now = self.shared.driver.now();
        let conn = &mut *self.conn;
        let Some(tls) = &mut conn.tls else { return };
        let has_rested = tls.has_rested(now);
        let TlsState::Open(session) = &mut tls.state else {
            return;
        };
        // The next connection gets another key.
        let wants_end = session.wants_end();
        // Local connections have segments as long as records.
        if has_rested && !self.shared.driver.is_local(conn.socket) {
            session.encryptor().begin_small();
        }
        if wants_end {
            match conn.protocol.streams_mut() {
                Some(streams) => streams.connection.drain(Time(now.0)),
                None => conn.close_intake(),
            }
        }
    }

    /// Sends the alert to a peer that violated the protocol, and ends the connection. No send is in
    /// progress.
    pub(super) fn end_by_fault(&mut self) {
        self.end_work(End::CutShort);
        let conn = &mut *self.conn;
        conn.work = None;
        conn.close_intake();
        conn.linger = true;
        // Keeps reading the peer's input, so that a reset does not destroy the alert.
        conn.ended = false;
        let alert = conn.tls.as_mut().and_then(|tls| tls.fault.take());
        if !self.says_last(alert.unwrap_or(Alert::INTERNAL_ERROR)) {
            self.close();
        }
    }

    /// Makes the connection end without `close_notify`.
    pub(super) fn silence(&mut self) {
        if let Some(tls) = &mut self.conn.tls {
            tls.is_over = true;
        }
    }

    /// Whether our own record layer encrypts the output of this connection.
    pub(super) fn is_encrypted_here(&mut self) -> bool {
        self.conn.is_secure() && !self.is_kernel()
    }

    /// Encrypts `head` and `bytes` as one stream and sends the records.
    pub(super) fn send_encrypted(&mut self, head: Vec<u8>, bytes: &[u8], more: bool) {
        self.before_encrypting();
        let driver = &mut self.shared.driver;
        let conn = &mut *self.conn;
        let is_last = conn.intake.is_closed() && !more;
        let Some(tls) = &mut conn.tls else { return };
        let slices: [&[u8]; 2] = [&head, bytes];
        match tls.encrypt_slices(&slices, is_last, |len| driver.output_of(len)) {
            Ok(list) => {
                if let TlsState::Open(session) = &mut tls.state {
                    self.shared.counters.tls.updated(session.take_key_updates());
                }
                self.send_records(list);
            }
            Err(_) => return self.cut_short(),
        }
        self.shared.keep_spare(head);
    }

    /// Number of bytes of a file to read, and encrypt if necessary, for the next send: as many as
    /// the socket accepts at once. The rest is held until the peer accepts more, possibly forever.
    pub(super) fn copy_slice_len(&mut self, is_first: bool) -> u64 {
        let conn = &mut *self.conn;
        let most = match conn.is_secure() {
            true if is_first => ENCRYPTED_SLICE_FIRST,
            true => ENCRYPTED_SLICE_MAX,
            false => COPY_SLICE_MAX,
        };
        let most = most.min(Client::slice_most(conn.client.as_deref()));
        let room = self.shared.driver.room(conn.socket, u32::MAX);
        // Whole records.
        let room = room - room % PLAINTEXT_MAX as u64;
        room.clamp(UNTAKEN_MAX, most)
    }

    /// Sends `close_notify` before an orderly close (RFC 8446 section 6.1). True if the send is in
    /// progress: the connection closes when it completes.
    pub(super) fn says_goodbye(&mut self) -> bool {
        let conn = &mut *self.conn;
        conn.phase == Phase::Reading && self.says_last(Alert::CLOSE_NOTIFY)
    }

    /// Sends our last record. False if none can be sent.
    pub(super) fn says_last(&mut self, alert: Alert) -> bool {
        self.drop_streams();
        let conn = &mut *self.conn;
        let Some(Secure { state, is_over, .. }) = conn.tls.as_deref_mut() else {
            return false;
        };
        if matches!(state, TlsState::Shaking(_)) || std::mem::replace(is_over, true) {
            return false;
        }
        let mut wire = self.shared.driver.output();
        let is_kernel = match state {
            TlsState::Shaking(_) => false,
            TlsState::Early(handshake) => {
                // Before the handshake is over, only an orderly end can be signalled.
                let _ = alert == Alert::CLOSE_NOTIFY && handshake.end_early(&mut wire);
                false
            }
            TlsState::Open(session) => {
                session.end(alert, &mut wire);
                session.is_kernel()
            }
        };
        if wire.is_empty() && !is_kernel {
            return false;
        }
        conn.phase = Phase::Sending;
        conn.close_intake();
        if is_kernel {
            self.shared.spare = wire;
            self.conn.linger |= self.has_unacknowledged_records();
            self.send_alert_by_kernel(alert);
        } else {
            self.send_raw(wire);
        }
        // Before it, the peer may have much of a response to take.
        self.set_deadline(match alert {
            Alert::CLOSE_NOTIFY => self.shared.settings.limits.progress_timeout_ms,
            _ => LINGER_MS,
        });
        true
    }
}
