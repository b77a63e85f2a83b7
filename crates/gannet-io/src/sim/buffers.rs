//! Receive buffers of the simulator.

use crate::driver::Lease;

/// Buffers of at most one length.
#[derive(Debug)]
pub(super) struct Buffers {
    buffers: Vec<Vec<u8>>,
    free: Vec<u32>,
    buffer_len: usize,
}

impl Buffers {
    pub(super) fn new(count: u16, buffer_len: u32) -> Self {
        Self {
            buffers: vec![Vec::new(); usize::from(count)],
            free: (0..u32::from(count)).rev().collect(),
            buffer_len: buffer_len as usize,
        }
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn buffer_len(&self) -> usize {
        self.buffer_len
    }

    pub(super) fn fill(&mut self, bytes: impl Iterator<Item = u8>) -> Lease {
        let buffer = self.free.pop().expect("the caller has looked");
        let room = &mut self.buffers[buffer as usize];
        room.clear();
        room.extend(bytes);
        Lease {
            buffer,
            start: 0,
            len: room.len() as u32,
        }
    }

    pub(super) fn bytes(&self, lease: &Lease) -> &[u8] {
        &self.buffers[lease.buffer as usize]
    }

    pub(super) fn release(&mut self, lease: Lease) {
        assert!(
            !self.free.contains(&lease.buffer),
            "a lease is released once"
        );
        // A reader that still used it would notice.
        self.buffers[lease.buffer as usize].fill(0xdd);
        self.free.push(lease.buffer);
    }
}
