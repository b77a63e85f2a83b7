//! Choice of the connections that are closed to make room: those idle longest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gannet_io::driver::Nanos;

use crate::bounds::limits::SHED_LOOKS_MAX;
use crate::ground::token::ConnId;

/// Whether a connection is idle.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Rest {
    /// It has ended.
    Gone,
    /// It has work in progress.
    Busy,
    /// It has been idle since this time.
    Since(Nanos),
}

/// Connections of one kind.
pub(crate) trait Resting {
    /// All of them, each with the approximate start of its idle time.
    fn all(&self) -> impl Iterator<Item = (Nanos, ConnId)>;

    /// Whether one of them is idle.
    fn rest(&mut self, id: ConnId) -> Rest;
}

/// Connections by idle time, to find the one idle longest.
///
/// The queue is built on first use, so that a server with room spends nothing on it. Each
/// connection has one entry, whose time may be outdated; it is corrected when the entry reaches the
/// top. Because times only increase, the first entry with a correct time is the oldest. Closing one
/// of many connections therefore costs their logarithm and the corrections since, not a scan of
/// all.
#[derive(Default)]
pub(crate) struct IdleQueue {
    heap: Option<BinaryHeap<Reverse<(Nanos, ConnId)>>>,
}

impl IdleQueue {
    /// Adds a connection idle since `since`: newly accepted, or not closed after all. `len` is the
    /// number of connections.
    pub(crate) fn add(&mut self, since: Nanos, id: ConnId, len: usize) {
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
    pub(crate) fn oldest(
        &mut self,
        conns: &mut impl Resting,
        now: Nanos,
    ) -> Option<(Nanos, ConnId)> {
        let heap = self
            .heap
            .get_or_insert_with(|| conns.all().map(Reverse).collect());
        let mut looks = 0;
        while looks < SHED_LOOKS_MAX {
            let Reverse((since, id)) = heap.pop()?;
            let later = match conns.rest(id) {
                Rest::Gone => continue,
                Rest::Since(at) if at == since => return Some((since, id)),
                Rest::Since(at) => at,
                Rest::Busy => now,
            };
            looks += 1;
            heap.push(Reverse((later, id)));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use gannet_io::driver::Socket;

    use super::*;
    use crate::connection::{Conn, Connections, Phase};
    use crate::ground::alive::Alive;

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
