//! The end: running responses are finished, then nothing is left.

use gannet_io::driver::{Driver, Listener};

use super::Worker;
use crate::conn::Phase;

/// How long a connection that has not asked for anything yet may stay after a stop, milliseconds:
/// its first request may be on the way.
pub(super) const FRESH_MS: u64 = 500;

impl<D: Driver> Worker<D> {
    /// No new connections; running responses may take the grace period.
    pub(super) fn stop(&mut self) {
        if self.stop_at.is_some() {
            return;
        }
        for listener in 0..self.settings.listener_count() {
            self.driver.stop_accepting(Listener(listener));
        }
        self.starved.clear();
        self.accept_at = None;
        self.stop_at = Some(self.driver.now().plus_ms(self.settings.limits.grace_ms));
        let slots: Vec<u32> = self.conns.used().map(|(slot, _)| slot).collect();
        for slot in slots {
            let conn = self.conns.at(slot);
            if conn.streams.is_some() && conn.phase != Phase::Lingering {
                self.drain_streams(slot);
                continue;
            }
            conn.h1.drain();
            if conn.phase == Phase::Shaking {
                self.set_deadline(slot, FRESH_MS);
                continue;
            }
            if conn.phase != Phase::Reading || !conn.held.is_empty() {
                continue;
            }
            if conn.is_untouched() {
                self.set_deadline(slot, FRESH_MS);
            } else {
                self.close(slot);
            }
        }
    }

    /// The end, now.
    pub(super) fn stop_now(&mut self) {
        self.stop();
        let slots: Vec<u32> = self.conns.used().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.clean &= self.conns.at(slot).phase != Phase::Sending;
            self.reset(slot);
        }
        self.over = true;
    }

    pub(super) fn check_stop(&mut self) {
        let Some(stop_at) = self.stop_at else { return };
        if self.conns.len() == 0 {
            self.over = true;
        } else if self.driver.now() >= stop_at {
            self.stop_now();
        }
    }
}
