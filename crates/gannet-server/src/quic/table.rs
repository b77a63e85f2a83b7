//! The QUIC connections of a worker, with the queue of those that are due for a turn, and their
//! timers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use gannet_io::driver::Nanos;

use super::connection::QuicConn;
use crate::ground::idle_queue::{Rest, Resting};
use crate::ground::token::ConnId;
use crate::ground::token::GENERATION_MAX;

/// All connections, by the number that the library assigned.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Slot>,
    len: usize,
    /// Connections due for a turn, each at most once.
    due: VecDeque<ConnId>,
    /// Timers, the earliest first. An entry may be stale: [`Self::next_due`] compares it with the
    /// connection's own deadline, and schedules a later one again.
    timers: BinaryHeap<Reverse<(Nanos, ConnId)>>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    conn: Option<Box<QuicConn>>,
}

impl Table {
    /// The ID for a new connection with this number. Called before [`Self::add`].
    pub(super) fn next_id(&mut self, number: usize) -> ConnId {
        if number >= self.slots.len() {
            self.slots.resize_with(number + 1, Slot::default);
        }
        let slot = &mut self.slots[number];
        slot.generation = slot.generation.wrapping_add(1) & GENERATION_MAX;
        ConnId::of_quic(number, slot.generation)
    }

    /// Adds a connection under its ID.
    pub(super) fn add(&mut self, conn: Box<QuicConn>) {
        let slot = &mut self.slots[conn.id.quic_number()];
        debug_assert!(slot.conn.is_none(), "the library gives each number once");
        slot.conn = Some(conn);
        self.len += 1;
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, id: ConnId) -> Option<Box<QuicConn>> {
        let conn = self.slots[id.quic_number()].conn.take()?;
        self.len -= 1;
        Some(conn)
    }

    /// The connection with this ID, unless it has ended.
    pub(super) fn find(&mut self, id: ConnId) -> Option<&mut QuicConn> {
        let slot = self.slots.get_mut(id.quic_number())?;
        slot.conn.as_deref_mut().filter(|conn| conn.id == id)
    }

    /// The ID of the connection with this number.
    pub(super) fn id_of(&self, number: usize) -> Option<ConnId> {
        let conn = self.slots.get(number)?.conn.as_deref()?;
        Some(conn.id)
    }

    /// Number of connections.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// All connections.
    pub(super) fn iter(&self) -> impl Iterator<Item = &QuicConn> {
        self.slots.iter().filter_map(|slot| slot.conn.as_deref())
    }

    /// Queues a connection for its turn, unless it is queued already.
    pub(super) fn mark(&mut self, id: ConnId) {
        if let Some(conn) = self.find(id)
            && !conn.is_marked
        {
            conn.is_marked = true;
            self.due.push_back(id);
        }
    }

    /// Number of connections due for a turn.
    pub(super) fn marked(&self) -> usize {
        self.due.len()
    }

    /// Takes the next connection due for a turn off the queue.
    pub(super) fn next_marked(&mut self) -> Option<ConnId> {
        loop {
            let id = self.due.pop_front()?;
            if let Some(conn) = self.find(id) {
                conn.is_marked = false;
                return Some(id);
            }
        }
    }

    /// Sets the deadline of a connection; `None`: it has none.
    pub(super) fn schedule(&mut self, id: ConnId, deadline: Option<Nanos>) {
        let Some(conn) = self.find(id) else { return };
        conn.deadline = deadline.unwrap_or(Nanos(u64::MAX));
        if conn.deadline < conn.scheduled {
            conn.scheduled = conn.deadline;
            let at = conn.scheduled;
            self.timers.push(Reverse((at, id)));
            if self.timers.len() > 4 * self.len + 64 {
                self.rebuild_timers();
            }
        }
    }

    /// Drops stale entries. They are few unless deadlines keep moving to earlier times.
    fn rebuild_timers(&mut self) {
        let entries = self.slots.iter_mut().filter_map(|slot| {
            let conn = slot.conn.as_deref_mut()?;
            conn.scheduled = conn.deadline;
            (conn.deadline != Nanos(u64::MAX)).then_some(Reverse((conn.deadline, conn.id)))
        });
        self.timers = entries.collect();
    }

    /// The earliest timer; it may be stale.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        self.timers.peek().map(|Reverse((at, _))| *at)
    }

    /// The next connection whose deadline has passed.
    pub(super) fn next_due(&mut self, now: Nanos) -> Option<ConnId> {
        while let Some(Reverse((at, id))) = self.timers.peek().copied()
            && at <= now
        {
            self.timers.pop();
            let Some(conn) = self.find(id) else { continue };
            if conn.scheduled != at {
                // Stale: an earlier entry has replaced it.
                continue;
            }
            conn.scheduled = Nanos(u64::MAX);
            let deadline = conn.deadline;
            if deadline <= now {
                return Some(id);
            }
            self.schedule(id, Some(deadline));
        }
        None
    }
}

impl Resting for Table {
    fn all(&self) -> impl Iterator<Item = (Nanos, ConnId)> {
        self.iter().map(|conn| (conn.idle_since, conn.id))
    }

    fn rest(&mut self, id: ConnId) -> Rest {
        match self.find(id) {
            Some(conn) if conn.is_idle() => Rest::Since(conn.idle_since),
            Some(_) => Rest::Busy,
            None => Rest::Gone,
        }
    }
}
