//! The io_uring engine.

use std::os::fd::OwnedFd;

use crate::options::EngineOptions;
use crate::probe::Unavailable;

/// A driver on io_uring. To be created on the thread that uses it.
pub struct Uring {}

impl Uring {
    /// Sets up a ring that accepts from `listeners`.
    ///
    /// # Errors
    /// [`Unavailable`] tells what this kernel lacks or forbids.
    pub fn new(_listeners: Vec<OwnedFd>, _options: &EngineOptions) -> Result<Self, Unavailable> {
        Ok(Self {})
    }
}
