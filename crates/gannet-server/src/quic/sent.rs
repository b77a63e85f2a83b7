//! Content in flight.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use gannet_io::memory::Memory;

/// Content that the library holds until the peer has acknowledged it.
pub(super) struct Sent {
    memory: Arc<Memory>,
    range: Range<usize>,
    /// The sum that it is counted in, if it was read or made for this connection alone.
    own_bytes: Option<Arc<AtomicU64>>,
}

impl Sent {
    /// Content in shared memory.
    pub(super) fn shared(memory: Arc<Memory>, range: Range<usize>) -> Bytes {
        Bytes::from_owner(Self {
            memory,
            range,
            own_bytes: None,
        })
    }

    /// Content that was read or made for one connection: counted in `own_bytes` until it is
    /// dropped.
    pub(super) fn own(
        memory: Arc<Memory>,
        range: Range<usize>,
        own_bytes: &Arc<AtomicU64>,
    ) -> Bytes {
        own_bytes.fetch_add(range.len() as u64, Ordering::Relaxed);
        Bytes::from_owner(Self {
            memory,
            range,
            own_bytes: Some(Arc::clone(own_bytes)),
        })
    }
}

impl AsRef<[u8]> for Sent {
    fn as_ref(&self) -> &[u8] {
        &self.memory.bytes()[self.range.clone()]
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if let Some(all) = &self.own_bytes {
            all.fetch_sub(self.range.len() as u64, Ordering::Relaxed);
        }
    }
}
