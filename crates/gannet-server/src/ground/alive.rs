//! Which connections are open.

use crate::ground::token::ConnId;

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
