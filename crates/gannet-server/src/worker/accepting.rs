//! Admission of new connections, and the choice of those closed to make room.

use std::collections::BinaryHeap;

use gannet_io::driver::{Driver, Listener, Nanos, Socket};
use gannet_io::reserve;

use super::Worker;
use crate::bounds::limits::{
    ACCEPT_AGAIN_MS, ACCEPTED_ALWAYS, ROOM_FOR_A_TURN, SHED_AGAIN_MS, SHED_LATER_MAX, SHED_MAX,
    SHED_REST_MS, SHORT_ALONE_MS,
};

impl<D: Driver> Worker<D> {
    pub(super) fn accepted(&mut self, listener: Listener, socket: Socket, more: bool) {
        if !more {
            self.shared.accept(listener);
        }
        let is_full = self.connection_count() >= self.shared.settings.connections_max;
        if is_full && self.shed_idle(1) == 0 && self.shed_quic(1) == 0 {
            self.shared.counters.shed += 1;
            self.shared.driver.close(socket);
            return;
        }
        let now = self.shared.driver.now();
        let conn = self.conns.add(socket, &mut self.shared.waiters.connections);
        conn.idle_since = now;
        let id = conn.id;
        let len = self.conns.len();
        let count = self.connection_count() as u64;
        self.shared.counters.connected(count);
        self.idle.add(now, id, len);
        let listeners = &self.shared.settings.listeners;
        let kind = listeners.get(listener.0 as usize).copied();
        self.on(id, |conn| conn.begin(kind.unwrap_or_default()));
    }

    /// Handles a lack of descriptors or memory: idle connections are closed and accepting resumes;
    /// without idle ones it resumes when a connection ends, or after [`ACCEPT_AGAIN_MS`]: another
    /// worker or another thread may hold the missing resource.
    pub(super) fn accept_failed(&mut self, listener: Listener, more: bool) {
        if more {
            return;
        }
        // Files kept open for later requests go first: no request waits for them.
        if self.shared.release.drop_descriptors() || self.shed_idle(SHED_MAX) > 0 {
            self.shared.accept(listener);
        } else {
            self.shared.starved.push(listener);
            let at = self.shared.driver.now().plus_ms(ACCEPT_AGAIN_MS);
            self.shared.accept_at = Some(at);
        }
    }

    pub(super) fn check_accept(&mut self) {
        let now = self.shared.driver.now();
        if self.shared.accept_at.is_some_and(|at| at <= now) {
            self.shared.accept_again();
        }
    }

    /// Whether there is memory for one more turn of a connection. Checked before each of them: many
    /// connections allocate more in one turn of the worker than any reserve holds. The last
    /// connection continues with half of the reserve, and after [`SHORT_ALONE_MS`] with less: freed
    /// memory may be fragmented.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        !reserve::is_spent() || !is_short() || self.connection_count() <= 1 && self.may_be_short()
    }

    fn may_be_short(&self) -> bool {
        let now = self.shared.driver.now();
        let is_over = |since: Nanos| now >= since.plus_ms(SHORT_ALONE_MS);
        !reserve::is_low() || self.short_since.is_some_and(is_over)
    }

    /// When memory runs out, drops caches and closes connections, so that others can finish: idle
    /// ones, or without these, the ones whose deadlines are nearest. Peers that hold memory without
    /// reading their responses are among them.
    pub(super) fn make_room(&mut self) {
        if !is_short() {
            self.short_since = None;
            return;
        }
        let now = self.shared.driver.now();
        self.short_since.get_or_insert(now);
        if now < self.shed_at {
            return;
        }
        // The kernel may take a moment to release the buffers of sends.
        self.shed_at = now.plus_ms(SHED_AGAIN_MS);
        self.shared.release.forget();
        self.shared.listing.forget();
        // A new connection counts as idle until its request arrives.
        let spare = self.connection_count().saturating_sub(ACCEPTED_ALWAYS);
        let shed = self.shed_idle(spare.min(SHED_MAX));
        let shed = shed + self.shed_quic((spare - shed).min(SHED_MAX));
        if shed == 0 && is_short() {
            self.shed_late();
        }
        // The freed memory may suffice.
        reserve::restore();
    }

    /// Ends the connections with the nearest deadlines, all but the last one.
    fn shed_late(&mut self) {
        let most = SHED_MAX.min(self.connection_count().saturating_sub(1));
        let mut late = BinaryHeap::with_capacity(most + 1);
        let quic = self
            .quic_deadlines()
            .map(|(deadline, id)| (deadline, id, true));
        let others = self
            .conns
            .iter()
            .map(|conn| (conn.deadline, conn.id, false));
        for candidate in others.chain(quic) {
            late.push(candidate);
            if late.len() > most {
                late.pop();
            }
        }
        for (_, id, is_quic) in late {
            if is_quic {
                self.on_quic(id, |conn| conn.give_up());
            } else {
                self.shared.counters.shed += 1;
                self.on(id, |conn| conn.give_up());
            }
        }
    }

    /// Closes up to `count` of the connections that have been idle longest; returns how many. After
    /// the first one, only those idle for at least [`SHED_REST_MS`]: the others are about to send a
    /// request. Of those that end later, because their answers are still on the way, few are closed; others
    /// are passed over.
    pub(crate) fn shed_idle(&mut self, count: usize) -> usize {
        let now = self.shared.driver.now();
        let before = self.conns.len();
        let (mut closed, mut later) = (0, 0);
        let mut spared = Vec::new();
        for tried in 0..SHED_MAX + SHED_LATER_MAX {
            if closed == count {
                break;
            }
            let Some((since, id)) = self.idle.oldest(&mut self.conns, now) else {
                break;
            };
            if tried > 0 && now < since.plus_ms(SHED_REST_MS) {
                spared.push((since, id));
                break;
            }
            let mut ends_later = false;
            self.on(id, |conn| ends_later = conn.has_unacknowledged_records());
            if ends_later && later == count + SHED_LATER_MAX {
                spared.push((since, id));
                continue;
            }
            self.on(id, |conn| conn.shed());
            later += usize::from(ends_later);
            closed = before - self.conns.len();
        }
        for (since, id) in spared {
            self.idle.add(since, id, self.conns.len());
        }
        self.shared.counters.shed += closed as u64;
        closed
    }
}

/// Whether memory has run out and has not been freed since.
///
/// A reserve that stays spent does not prove that memory is short: freed memory may be fragmented
/// and still belong to the allocator. The test is whether there is room for one more turn, and
/// whether half of the reserve is left for larger allocations.
fn is_short() -> bool {
    reserve::is_spent()
        && !reserve::restore()
        && (reserve::is_low() || !reserve::has_room(ROOM_FOR_A_TURN))
}
