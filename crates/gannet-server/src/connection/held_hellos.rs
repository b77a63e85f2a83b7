//! Handshakes that wait for a certificate that was ordered just now.

use gannet_io::driver::Driver;

use super::Active;
use super::secure::TlsState;
use crate::bounds::limits::{HELD_HELLO_LEN_MAX, HELD_HELLO_MS};
use crate::clients::Client;

impl<D: Driver> Active<'_, D> {
    /// Waits for the certificate of the name that the client asks for, if not too many others do.
    pub(super) fn hold(&mut self) {
        let conn = &mut *self.conn;
        let Some(tls) = &mut conn.tls else { return };
        if conn.ended {
            // Its end has come with its hello, or while that was deferred.
            self.shared.counters.tls.failed_by("closed");
            return self.close();
        }
        let now = self.shared.driver.now();
        let shared = &mut *self.shared;
        let until = *tls.held_from.get_or_insert(now);
        let until = until.plus_ms(HELD_HELLO_MS);
        let has_time = now < until && shared.stop_at.is_none();
        let is_short = tls.held_bytes() <= HELD_HELLO_LEN_MAX;
        let client = match &conn.client {
            Some(client) => client.key(),
            // Nothing else had to be known of it.
            None => Client::new(None, shared.driver.peer(conn.socket)).key(),
        };
        let alive = &shared.waiters.connections;
        if !has_time || !is_short || !shared.held_hellos.add(conn.id, client, alive) {
            return self.refuse_held();
        }
        tls.held_until = Some(until);
        self.set_deadline_at(until);
        self.arm_receive();
    }

    /// Takes what has come after a hello that is held. The connection is received from all the time, so
    /// that its end is noticed.
    pub(super) fn received_while_held(&mut self) {
        let tls = self.conn.tls.as_deref();
        if tls.is_some_and(|tls| tls.held_bytes() > HELD_HELLO_LEN_MAX) {
            return self.refuse_held();
        }
        self.arm_receive();
    }

    /// Certificates were replaced: that of a held handshake may be there.
    pub(crate) fn resume_held(&mut self) {
        let held = self.conn.tls.as_mut().map(|tls| tls.held_until.take());
        if held.flatten().is_some() {
            self.set_deadline(self.shared.settings.limits.head_timeout_ms);
            self.shake();
        }
    }

    /// Ends a handshake whose certificate has not come.
    pub(super) fn refuse_held(&mut self) {
        let conn = &mut *self.conn;
        let Some(tls) = &mut conn.tls else { return };
        if tls.held_until.take().is_some() {
            self.shared.held_hellos.remove(conn.id);
        }
        let TlsState::Shaking(handshake) = &mut tls.state else {
            return;
        };
        let mut out = self.shared.driver.output();
        let failure = handshake.refuse(&mut out);
        self.handshake_failed(failure, out);
    }
}
