//! Content on its way.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use gannet_io::memory::Memory;

/// Content that the library holds until the peer has acknowledged it.
pub(super) struct Sent {
    memory: Arc<Memory>,
    range: Range<usize>,
    /// What it adds to, if it was read or made for this connection.
    own_bytes: Option<Arc<AtomicU64>>,
}

impl Sent {
    /// What others have as well.
    pub(super) fn shared(memory: Arc<Memory>, range: Range<usize>) -> Bytes {
        Bytes::from_owner(Self {
            memory,
            range,
            own_bytes: None,
        })
    }

    /// What was read or made for one connection: it is added to `own_bytes` as long as it is held.
    pub(super) fn own(
        memory: Arc<Memory>,
        range: Range<usize>,
        own_bytes: &Arc<AtomicU64>,
    ) -> Bytes {
        own_bytes.fetch_add(memory.len() as u64, Ordering::Relaxed);
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
            all.fetch_sub(self.memory.len() as u64, Ordering::Relaxed);
        }
    }
}
