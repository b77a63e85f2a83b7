//! The connections of a worker.

use gannet_io::driver::Socket;
use gannet_io::heap;

use super::{Conn, Phase};
use crate::worker::token::ConnId;
use crate::worker::token::GENERATION_MAX;

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

/// The set of open connections, for code without access to the table.
#[derive(Default)]
pub(crate) struct Alive {
    tcp: Vec<Option<u32>>,
    quic: Vec<Option<u32>>,
}

impl Alive {
    /// Adds a new connection.
    pub(crate) fn insert(&mut self, id: ConnId) {
        let (slots, slot) = self.slots(id);
        if slot >= slots.len() {
            slots.resize(slot + 1, None);
        }
        slots[slot] = Some(id.generation);
    }

    /// Removes a connection that has ended.
    pub(crate) fn remove(&mut self, id: ConnId) {
        let (slots, slot) = self.slots(id);
        slots[slot] = None;
    }

    /// Whether a connection is open.
    pub(crate) fn has(&self, id: ConnId) -> bool {
        let (slots, slot) = match id.is_quic() {
            true => (&self.quic, id.quic_number()),
            false => (&self.tcp, id.slot as usize),
        };
        slots.get(slot) == Some(&Some(id.generation))
    }

    fn slots(&mut self, id: ConnId) -> (&mut Vec<Option<u32>>, usize) {
        match id.is_quic() {
            true => (&mut self.quic, id.quic_number()),
            false => (&mut self.tcp, id.slot as usize),
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
