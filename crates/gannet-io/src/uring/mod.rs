//! The io_uring engine: multishot accept and receive, provided buffers, one enter per turn.
//!
//! A small answer costs one receive completion and one send submission. A long one leaves at once, by a
//! plain call, and what the socket does not take of it by the ring. What the ring is bad at
//! (it gives `splice`, `statx` and `shutdown` to worker threads) is done by plain system calls:
//! `sendfile`, `openat2`, `fstat`, `shutdown`, which do not block in the way they are used here.
//!
//! # Teardown
//!
//! `close` cancels what the kernel has of the socket, by `user_data` (a look-up by descriptor
//! would walk over all operations), and the descriptor is closed when the last completion has come:
//! usually within the same turn. The slot is not used for another socket before that.

mod buffers;
mod completions;
mod datagrams;
mod engine;
mod operations;
mod ring;
mod slots;

pub use crate::uring::engine::Uring;
