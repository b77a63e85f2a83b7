//! Closing descriptors where `close` may block.

use std::fmt;
use std::os::fd::OwnedFd;

/// Closes a descriptor on a helper thread, as long as there are any.
pub(crate) struct Closer(Box<CloseFn>);

type CloseFn = dyn Fn(OwnedFd) + Send + Sync;

impl Closer {
    /// Closes by this function.
    pub(crate) fn new(close: impl Fn(OwnedFd) + Send + Sync + 'static) -> Self {
        Self(Box::new(close))
    }

    pub(crate) fn close(&self, fd: OwnedFd) {
        (self.0)(fd);
    }
}

impl fmt::Debug for Closer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closer")
    }
}
