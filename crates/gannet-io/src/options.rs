//! The parameters of an engine: sizes of its queues and buffers.

use crate::limits;

/// The parameters of one driver. `Default` is what the program uses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EngineOptions {
    /// Entries of the submission queue (a power of two, 16 to 32768); `uring` only.
    pub entries: u32,
    /// Entries of the completion queue (a power of two, at least `entries`); `uring` only.
    pub completions: u32,
    /// Receive buffers (a power of two, 1 to 32768).
    pub buffers: u16,
    /// Length of one receive buffer, in bytes (256 to 65536).
    pub buffer_len: u32,
    /// The most helper threads for slow files (1 to 64). They start when first needed.
    pub helpers: usize,
    /// The ring takes only the operations that the engine uses, if the kernel can ensure that;
    /// `uring` only.
    pub restricts: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            entries: limits::SUBMISSIONS,
            completions: limits::COMPLETIONS,
            buffers: limits::RECEIVE_BUFFERS,
            buffer_len: limits::RECEIVE_BUFFER_LEN,
            helpers: limits::HELPERS_MAX,
            restricts: true,
        }
    }
}
