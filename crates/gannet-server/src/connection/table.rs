//! The connections of a worker.

use gannet_io::driver::{Nanos, Socket};
use gannet_io::heap;

use super::{Conn, Phase};
use crate::ground::alive::Alive;
use crate::ground::idle_queue::{Rest, Resting};
use crate::ground::token::ConnId;
use crate::ground::token::GENERATION_MAX;

/// All connections of a worker, by slot.
#[derive(Default)]
pub(crate) struct Connections {
    slots: Vec<Conn>,
    free: Vec<u32>,
}

impl Connections {
    /// Takes a slot for a new connection.
    pub(crate) fn add(&mut self, socket: Socket, alive: &mut Alive) -> &mut Conn {
        let slot = self.free.pop().unwrap_or_else(|| {
            let slot = u32::try_from(self.slots.len()).expect("descriptors are numbered by i32");
            let id = ConnId {
                slot,
                generation: GENERATION_MAX,
            };
            heap::grow(&mut self.slots);
            self.slots.push(Conn::new(id, socket));
            slot
        });
        let conn = &mut self.slots[slot as usize];
        let generation = conn.id.generation.wrapping_add(1) & GENERATION_MAX;
        let id = ConnId { slot, generation };
        *conn = Conn::new(id, socket);
        alive.insert(id);
        conn
    }

    /// Frees the slot of a connection that has ended.
    pub(crate) fn free(&mut self, slot: u32) {
        debug_assert_eq!(self.slots[slot as usize].phase, Phase::Free);
        self.free.push(slot);
    }

    /// The open connection with this identifier.
    pub(crate) fn find(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.slots
            .get_mut(id.slot as usize)
            .filter(|conn| conn.phase != Phase::Free && conn.id == id)
    }

    /// Number of connections.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// All open connections.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.slots.iter().filter(|conn| conn.phase != Phase::Free)
    }
}

impl Resting for Connections {
    fn all(&self) -> impl Iterator<Item = (Nanos, ConnId)> {
        self.iter().map(|conn| (conn.idle_since, conn.id))
    }

    fn rest(&mut self, id: ConnId) -> Rest {
        match self.find(id) {
            None => Rest::Gone,
            Some(conn) if conn.may_be_shed() => Rest::Since(conn.idle_since),
            Some(_) => Rest::Busy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_slot_has_another_generation() {
        let (mut conns, mut alive) = (Connections::default(), Alive::default());
        let old = conns.add(Socket(1), &mut alive).id;
        assert!(alive.has(old) && conns.find(old).is_some());
        conns.find(old).expect("it is there").phase = Phase::Free;
        alive.remove(old);
        conns.free(old.slot);
        assert!(conns.find(old).is_none() && !alive.has(old));
        let new = conns.add(Socket(2), &mut alive).id;
        assert_eq!(new.slot, old.slot);
        assert!(conns.find(old).is_none() && !alive.has(old));
        assert!(alive.has(new));
        assert_eq!(conns.len(), 1);
    }
}
