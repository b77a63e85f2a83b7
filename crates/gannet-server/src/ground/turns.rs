//! The order of long responses: see `connection/turns`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ground::alive::Alive;
use crate::ground::token::ConnId;

/// Connections with more to send.
#[derive(Default)]
pub(crate) struct Turns {
    /// By the numbers of their shares: the one with the lowest goes first. One entry each.
    pub(crate) waiting: BinaryHeap<Reverse<(u64, ConnId)>>,
    /// Shares begun so far.
    pub(crate) shares: u64,
}

impl Turns {
    /// Adds a connection. Before the queue grows, those that are gone are removed.
    pub(crate) fn push(&mut self, share: u64, id: ConnId, alive: &Alive) {
        if self.waiting.len() == self.waiting.capacity() {
            self.waiting.retain(|Reverse((_, id))| alive.has(*id));
        }
        self.waiting.push(Reverse((share, id)));
    }
}
