//! Admission of new connections, and the choice of those closed to make room.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gannet_io::driver::{Driver, Listener, Nanos, Socket};
use gannet_io::reserve;

use super::Worker;
use crate::config::Scheme;
use crate::connection::{ConnId, Connections};
use crate::limits::{
    ACCEPT_AGAIN_MS, ACCEPTED_ALWAYS, ROOM_FOR_A_TURN, SHED_AGAIN_MS, SHED_LOOKS_MAX, SHED_MAX,
    SHED_REST_MS, SHORT_ALONE_MS,
};

/// Connections by idle time, to find the one idle longest.
///
/// The queue is built on first use, so that a server with room spends nothing on it. Each
/// connection has one entry, whose time may be outdated; it is corrected when the entry reaches the
/// top. Because times only increase, the first entry with a correct time is the oldest. Closing one
/// of many connections therefore costs their logarithm and the corrections since, not a scan of
/// all.
#[derive(Default)]
pub(super) struct IdleQueue {
    heap: Option<BinaryHeap<Reverse<(Nanos, ConnId)>>>,
}

impl IdleQueue {
    /// Adds a connection idle since `since`: newly accepted, or not closed after all. `len` is the
    /// number of connections.
    fn add(&mut self, since: Nanos, id: ConnId, len: usize) {
        let Some(heap) = &mut self.heap else { return };
        if heap.len() > 2 * len + SHED_LOOKS_MAX {
            // Mostly stale entries; rebuilt when next needed.
            self.heap = None;
            return;
        }
        heap.push(Reverse((since, id)));
    }

    /// Removes the connection that has been idle longest from the queue and returns it with the
    /// start of its idle time; `None` if there is none among the first [`SHED_LOOKS_MAX`]
    /// inspected.
    fn oldest(&mut self, conns: &mut Connections, now: Nanos) -> Option<(Nanos, ConnId)> {
        let heap = self.heap.get_or_insert_with(|| {
            let all = conns.iter();
            all.map(|conn| Reverse((conn.idle_since, conn.id)))
                .collect()
        });
        let mut looks = 0;
        while looks < SHED_LOOKS_MAX {
            let Reverse((since, id)) = heap.pop()?;
            let Some(conn) = conns.find(id) else {
                continue;
            };
            looks += 1;
            let is_idle = conn.may_be_shed();
            if is_idle && conn.idle_since == since {
                return Some((since, id));
            }
            // Busy until now, or idle since a later time.
            let since = if is_idle { conn.idle_since } else { now };
            heap.push(Reverse((since, id)));
        }
        None
    }
}

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
        let counters = &mut self.shared.counters;
        counters.connections_total += 1;
        counters.connections_max = counters.connections_max.max(count);
        self.idle.add(now, id, len);
        let listeners = &self.shared.settings.listeners;
        let scheme = listeners.get(listener.0 as usize).copied();
        self.on(id, |conn| conn.begin(scheme.unwrap_or(Scheme::Http)));
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
        let spare = self.conns.len().saturating_sub(ACCEPTED_ALWAYS);
        let shed = self.shed_idle(spare.min(SHED_MAX)) + self.shed_quic(SHED_MAX);
        if shed == 0 && is_short() {
            self.shed_late();
        }
        // The freed memory may suffice.
        reserve::restore();
    }

    /// Ends the connections with the nearest deadlines, all but the last one.
    fn shed_late(&mut self) {
        let most = SHED_MAX.min(self.conns.len().saturating_sub(1));
        let mut late = BinaryHeap::with_capacity(most + 1);
        for conn in self.conns.iter() {
            late.push((conn.deadline, conn.id));
            if late.len() > most {
                late.pop();
            }
        }
        self.shared.counters.shed += late.len() as u64;
        for (_, id) in late {
            self.on(id, |conn| conn.give_up());
        }
        for id in self.all_quic().into_iter().take(SHED_MAX) {
            self.on_quic(id, |conn| conn.give_up());
        }
    }

    /// Closes up to `count` of the connections that have been idle longest; returns how many. After
    /// the first one, only those idle for at least [`SHED_REST_MS`]: the others are about to send a
    /// request.
    pub(crate) fn shed_idle(&mut self, count: usize) -> usize {
        let now = self.shared.driver.now();
        let before = self.conns.len();
        for closed in 0..count {
            let Some((since, id)) = self.idle.oldest(&mut self.conns, now) else {
                break;
            };
            if closed > 0 && now < since.plus_ms(SHED_REST_MS) {
                self.idle.add(since, id, self.conns.len());
                break;
            }
            self.on(id, |conn| conn.shed());
        }
        let closed = before - self.conns.len();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::{Alive, Conn, Phase};

    /// A table of connections, numbered in the order of their addition.
    #[derive(Default)]
    struct Table {
        conns: Connections,
        alive: Alive,
        ids: Vec<ConnId>,
        queue: IdleQueue,
    }

    impl Table {
        fn add(&mut self, idle_since: Nanos) {
            let number = u32::try_from(self.ids.len()).expect("few");
            let conn = self.conns.add(Socket(number), &mut self.alive);
            conn.idle_since = idle_since;
            self.ids.push(conn.id);
            let id = conn.id;
            self.queue.add(idle_since, id, self.conns.len());
        }

        fn conn(&mut self, number: usize) -> &mut Conn {
            self.conns.find(self.ids[number]).expect("it is there")
        }

        fn remove(&mut self, number: usize) {
            let conn = self.conn(number);
            conn.phase = Phase::Free;
            let id = conn.id;
            self.alive.remove(id);
            self.conns.free(id.slot);
        }

        fn oldest(&mut self, now: Nanos) -> Option<usize> {
            let (_, id) = self.queue.oldest(&mut self.conns, now)?;
            self.ids.iter().position(|of| *of == id)
        }
    }

    /// The queue yields connections in the order of their idle times, whatever has happened since
    /// it was built, and without scanning all of them each time.
    #[test]
    fn the_longest_idle_comes_first() {
        let mut table = Table::default();
        let moment = |ms| Nanos(0).plus_ms(ms);
        let now = moment(10_000);
        for number in 0..1_000 {
            table.add(moment(number));
        }
        assert_eq!(table.oldest(now), Some(0));
        table.remove(0);
        // Connection 1 had a request meanwhile, 2 is busy, 3 has ended and its slot is reused.
        table.conn(1).idle_since = moment(5_000);
        table.conn(2).phase = Phase::Sending;
        table.remove(3);
        table.add(moment(5_001));
        for expect in 4..1_000 {
            assert_eq!(table.oldest(now), Some(expect));
            table.remove(expect);
        }
        assert_eq!(table.oldest(now), Some(1));
        assert_eq!(table.oldest(now), Some(1_000));
        assert_eq!(table.oldest(now), None, "the last one is busy");
        table.conn(2).phase = Phase::Reading;
        table.conn(2).idle_since = moment(20_000);
        assert_eq!(table.oldest(now), Some(2));
    }

    /// Of connections accepted in one turn, the newest stays.
    #[test]
    fn those_of_one_moment_go_in_the_order_of_their_coming() {
        let mut table = Table::default();
        for _ in 0..4 {
            table.add(Nanos(1));
        }
        for number in 0..20 {
            assert_eq!(table.oldest(Nanos(2)), Some(number));
            table.remove(number);
            table.add(Nanos(1));
        }
    }

    #[test]
    fn those_who_are_busy_are_not_all_looked_at() {
        let mut table = Table::default();
        for number in 0..10_000 {
            table.add(Nanos(0));
            table.conn(number).phase = Phase::Sending;
        }
        table.conn(9_999).phase = Phase::Reading;
        table.conn(9_999).idle_since = Nanos(1);
        let mut calls = 0;
        while table.oldest(Nanos(2)).is_none() {
            calls += 1;
            assert!(calls <= 10_000 / SHED_LOOKS_MAX + 1);
        }
        assert!(calls > 10);
    }

    /// The queue is empty until needed, and then bounded by the number of connections.
    #[test]
    fn the_queue_is_as_long_as_it_has_to_be() {
        let mut table = Table::default();
        table.add(Nanos(0));
        assert!(table.queue.heap.is_none());
        table.oldest(Nanos(1));
        for number in 0..10_000 {
            table.remove(number);
            table.add(Nanos(0));
            let len = table.queue.heap.as_ref().map_or(0, BinaryHeap::len);
            assert!(len <= 2 + SHED_LOOKS_MAX + 1, "{len}");
        }
    }
}
