//! Connections that send the end of a long live file only when the peer has the rest: see
//! `connection/tails`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use gannet_io::driver::Nanos;

use crate::ground::token::ConnId;

/// Connections whose last slice waits, by the time of their next check. One entry each.
#[derive(Default)]
pub(crate) struct Tails(pub(crate) BinaryHeap<Reverse<(Nanos, ConnId)>>);

impl Tails {
    /// Time of the next check.
    pub(crate) fn next_check(&self) -> Option<Nanos> {
        self.0.peek().map(|Reverse((at, _))| *at)
    }

    /// A connection whose check is due.
    pub(crate) fn take_due(&mut self, now: Nanos) -> Option<ConnId> {
        self.next_check().filter(|at| *at <= now)?;
        self.0.pop().map(|Reverse((_, id))| id)
    }
}
