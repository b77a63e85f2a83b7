//! The state that the ring engine keeps for each socket, and how a completion finds it.

use std::os::fd::OwnedFd;

use crate::endpoint::{Endpoint, Sending};
use crate::heap;

/// Which operation a completion belongs to: the top byte of its `user_data`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    /// Multishot accept of a listener (the slot is the listener's index).
    Accept,
    /// Multishot receive.
    Receive,
    /// Send of a list.
    Send,
    /// Poll for room to send.
    Room,
    /// Poll for something to receive.
    Arrival,
    /// Cancellation of an accept, a receive (or its poll), a send (or its poll); it completes only
    /// if it found nothing.
    CancelAccept,
    CancelReceive,
    CancelSend,
    /// Multishot poll of the bell.
    Bell,
    /// Multishot receive of datagrams (the slot is the socket's index).
    Datagrams,
    /// Poll for room to send datagrams.
    Sendable,
    /// Cancellation of either; it completes only if it found nothing.
    CancelDatagrams,
}

const KINDS: [Kind; 12] = [
    Kind::Accept,
    Kind::Receive,
    Kind::Send,
    Kind::Room,
    Kind::Arrival,
    Kind::CancelAccept,
    Kind::CancelReceive,
    Kind::CancelSend,
    Kind::Bell,
    Kind::Datagrams,
    Kind::Sendable,
    Kind::CancelDatagrams,
];

/// Bits of a generation that fit into `user_data`.
const GENERATION_MASK: u32 = 0x00ff_ffff;

/// `kind (8 bits) | generation (24 bits) | slot (32 bits)`.
pub(super) fn user_data(kind: Kind, generation: u32, slot: u32) -> u64 {
    (kind as u64) << 56 | u64::from(generation & GENERATION_MASK) << 32 | u64::from(slot)
}

/// The inverse of [`user_data`].
pub(super) fn parse_user_data(value: u64) -> (Kind, u32, u32) {
    let kind = KINDS[(value >> 56) as usize];
    (kind, (value >> 32) as u32 & GENERATION_MASK, value as u32)
}

/// A socket.
///
/// The slot is not reused before the kernel is done with this socket (`in_flight == 0`), so a
/// completion can never meet another socket; the generation only proves that.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) endpoint: Endpoint,
    /// Operations whose last completion has not been reaped.
    pub(super) in_flight: u32,
    /// The caller has forgotten the socket.
    pub(super) is_closing: bool,
    /// A Unix socket, for which the kernel does not report acknowledgements.
    pub(super) is_unix: bool,
    pub(super) receiving: Receiving,
    /// The operation of the send that is with the kernel: the send itself, a poll for room, or
    /// none.
    pub(super) send_op: Option<Kind>,
}

/// The state of a socket's multishot receive.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Receiving {
    /// None with the kernel.
    #[default]
    Idle,
    /// With the kernel.
    Armed,
    /// With the kernel, and being cancelled.
    Cancelling,
    /// Ended for lack of buffers; listed as starved.
    Starved,
    /// Waits for a poll, because the kernel refuses to wait on a non-blocking socket.
    Polling,
}

impl Slot {
    /// Whether the caller still uses the socket.
    pub(super) fn is_open(&self) -> bool {
        self.endpoint.fd.is_some() && !self.is_closing
    }
}

/// All sockets of a driver.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    /// Slots without a socket; the last freed is the first reused, while it is in the cache.
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn insert(&mut self, fd: OwnedFd, is_unix: bool) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            heap::grow(&mut self.slots);
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("descriptors number fewer than 2^31")
        });
        let slot = &mut self.slots[index as usize];
        slot.endpoint.fd = Some(fd);
        slot.is_unix = is_unix;
        index
    }

    /// Empties a slot with no operation in flight; dropping its descriptor closes the socket.
    pub(super) fn remove(&mut self, index: u32) -> Sending {
        let slot = &mut self.slots[index as usize];
        assert_eq!(slot.in_flight, 0, "the kernel has released the socket");
        let generation = slot.endpoint.generation.wrapping_add(1) & GENERATION_MASK;
        let old = std::mem::take(slot);
        slot.endpoint.generation = generation;
        self.free.push(index);
        old.endpoint.sending
    }

    pub(super) fn get(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    pub(super) fn peek(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `user_data` preserves every kind, generation and slot.
    #[test]
    fn user_data_round_trip() {
        for kind in KINDS {
            for generation in [0, 1, GENERATION_MASK] {
                for slot in [0, 7, u32::MAX] {
                    let value = user_data(kind, generation, slot);
                    assert_eq!(parse_user_data(value), (kind, generation, slot));
                }
            }
        }
    }
}
