//! Receive buffers of the epoll engine.

use crate::operation::Lease;

/// Buffers of one length. The last released is the first reused: it is still in the cache.
#[derive(Debug)]
pub(super) struct Buffers {
    bytes: Box<[u8]>,
    buffer_len: usize,
    free: Vec<u32>,
}

impl Buffers {
    pub(super) fn new(count: u16, buffer_len: u32) -> Self {
        let buffer_len = buffer_len as usize;
        let bytes = vec![0; usize::from(count) * buffer_len].into_boxed_slice();
        Self {
            bytes,
            buffer_len,
            free: (0..u32::from(count)).rev().collect(),
        }
    }

    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// The buffer that [`lend`](Self::lend) returns next, to be filled.
    pub(super) fn next(&mut self) -> Option<&mut [u8]> {
        let start = *self.free.last()? as usize * self.buffer_len;
        Some(&mut self.bytes[start..start + self.buffer_len])
    }

    /// The starts of the buffers that the next calls of [`lend`](Self::lend) return, in that order,
    /// and their length. They are distinct, and unused while the borrow lasts.
    pub(super) fn upcoming(&mut self) -> impl Iterator<Item = (*mut u8, usize)> {
        let base = self.bytes.as_mut_ptr();
        let len = self.buffer_len;
        let free = self.free.iter().rev();
        free.map(move |&buffer| (base.wrapping_add(buffer as usize * len), len))
    }

    /// Lends the buffer just filled with `len` bytes.
    pub(super) fn lend(&mut self, len: usize) -> Lease {
        let buffer = self
            .free
            .pop()
            .expect("next() has just shown a free buffer");
        Lease {
            buffer,
            start: 0,
            len: len as u32,
        }
    }

    pub(super) fn bytes(&self, lease: &Lease) -> &[u8] {
        let start = lease.buffer as usize * self.buffer_len;
        &self.bytes[start..start + lease.len as usize]
    }

    pub(super) fn release(&mut self, lease: Lease) {
        debug_assert!(
            !self.free.contains(&lease.buffer),
            "a lease is released once"
        );
        self.free.push(lease.buffer);
    }
}
