//! The state that the epoll engine keeps for each socket.

use std::os::fd::OwnedFd;

use crate::endpoint::{Endpoint, Sending};
use crate::heap;

/// A socket.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) endpoint: Endpoint,
    /// There may be bytes: an event announced some, and no call has found the socket empty since.
    pub(super) is_readable: bool,
    /// The end of the stream (or an error) has arrived, after the bytes: no further event will
    /// follow.
    pub(super) has_ended: bool,
    /// It is in the list of sockets to receive from.
    pub(super) is_listed: bool,
}

/// All sockets of a driver.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Slots {
    pub(super) fn insert(&mut self, fd: OwnedFd) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            heap::grow(&mut self.slots);
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).expect("descriptors number fewer than 2^31")
        });
        self.slots[index as usize].endpoint.fd = Some(fd);
        index
    }

    /// Empties a slot; dropping its descriptor closes the socket and ends its registration.
    pub(super) fn remove(&mut self, index: u32) -> Sending {
        let slot = &mut self.slots[index as usize];
        assert!(slot.endpoint.fd.is_some(), "a socket is closed once");
        let generation = slot.endpoint.generation.wrapping_add(1);
        let old = std::mem::take(slot);
        slot.endpoint.generation = generation;
        // Its entry remains in the list, and then counts for the slot's next socket.
        slot.is_listed = old.is_listed;
        self.free.push(index);
        old.endpoint.sending
    }

    pub(super) fn get(&mut self, index: u32) -> &mut Slot {
        &mut self.slots[index as usize]
    }

    pub(super) fn peek(&self, index: u32) -> &Slot {
        &self.slots[index as usize]
    }
}
