//! Closing files where that may take long: on a file system that may hang, or of much memory.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::memory::Memory;

/// What is left of a file whose last user has dropped it.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) fd: OwnedFd,
    /// Its mapping. The memory is free when both are gone.
    #[expect(dead_code, reason = "it is dropped with the descriptor")]
    pub(crate) mapping: Option<Arc<Memory>>,
}

/// Closes files on a helper thread, as long as there are any.
pub(crate) struct Closer(Box<CloseFn>);

type CloseFn = dyn Fn(Closing) + Send + Sync;

impl Closer {
    /// Closes by this function.
    pub(crate) fn new(close: impl Fn(Closing) + Send + Sync + 'static) -> Self {
        Self(Box::new(close))
    }

    pub(crate) fn close(&self, closing: Closing) {
        (self.0)(closing);
    }
}

impl fmt::Debug for Closer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closer")
    }
}
