//! Shutdown: responses in progress finish, then all connections are closed.

use gannet_io::driver::{Driver, Listener};

use super::Worker;
use crate::ground::token::ConnId;

impl<D: Driver> Worker<D> {
    /// Stops accepting; responses in progress may take the grace period.
    pub(super) fn stop(&mut self) {
        if self.shared.stop_at.is_some() {
            return;
        }
        self.stop_accepting();
        self.drain_all();
    }

    fn stop_accepting(&mut self) {
        for listener in 0..self.shared.settings.listener_count() {
            self.shared.driver.stop_accepting(Listener(listener));
        }
    }

    /// The same, while another process serves new clients; `taken` says for each address with HTTP/3
    /// whether that process receives its datagrams.
    pub(super) fn hand_over(&mut self, taken: &[bool]) {
        if self.shared.stop_at.is_some() {
            return;
        }
        self.shared.is_handed_over = true;
        self.stop_accepting();
        self.leave_quic(taken);
        self.drain_all();
    }

    fn drain_all(&mut self) {
        let shared = &mut self.shared;
        shared.starved.clear();
        shared.accept_at = None;
        let grace_ms = shared.settings.limits.grace_ms;
        shared.stop_at = Some(shared.driver.now().plus_ms(grace_ms));
        for id in self.all() {
            self.on(id, |conn| conn.drain());
        }
        for id in self.all_quic() {
            self.on_quic(id, |conn| conn.drain());
        }
    }

    /// Ends everything immediately.
    pub(super) fn stop_now(&mut self) {
        self.stop();
        for id in self.all() {
            let mut was_answering = false;
            self.on(id, |active| {
                was_answering = active.conn.is_answering();
                active.reset();
            });
            self.cut += u64::from(was_answering);
        }
        for id in self.all_quic() {
            let mut was_answering = false;
            self.on_quic(id, |conn| was_answering = conn.stop());
            self.cut += u64::from(was_answering);
        }
        // Sends the last datagrams, if possible.
        self.run_quic();
        self.over = true;
    }

    fn all(&self) -> Vec<ConnId> {
        self.conns.iter().map(|conn| conn.id).collect()
    }

    pub(super) fn check_stop(&mut self) {
        let Some(stop_at) = self.shared.stop_at else {
            return;
        };
        if self.conns.len() == 0 && !self.has_quic() && !self.shared.driver.may_accept() {
            self.over = true;
        } else if self.shared.driver.now() >= stop_at {
            self.stop_now();
        }
    }
}
