//! The epoll engine.

use std::io;
use std::os::fd::OwnedFd;

use crate::options::EngineOptions;

/// A driver on epoll and plain system calls.
pub struct Epoll {}

impl Epoll {
    /// Creates an engine that accepts from `listeners`.
    ///
    /// # Errors
    /// Those of `epoll_create` and `epoll_ctl`.
    pub fn new(_listeners: Vec<OwnedFd>, _options: &EngineOptions) -> io::Result<Self> {
        Ok(Self {})
    }
}
