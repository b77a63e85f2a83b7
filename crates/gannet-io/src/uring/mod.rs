//! The io_uring engine: multishot accept and receive, provided buffers, one enter per turn.
//!
//! A small response costs one receive completion and one send submission. A long one is sent at
//! once by a plain call; whatever the socket does not take is sent by the ring. Operations at which
//! the ring is bad (it hands `splice`, `statx` and `shutdown` to worker threads) are plain system
//! calls: `sendfile`, `openat2`, `fstat`, `shutdown`, none of which blocks as used here.
//!
//! # Teardown
//!
//! `close` cancels all operations on the socket, by `user_data` (a look-up by descriptor would walk
//! over all operations), and the descriptor is closed after the last completion: usually within the
//! same turn. The slot is not reused before that.

mod buffers;
mod completions;
mod datagrams;
mod engine;
mod operations;
mod ring;
mod slots;

pub use crate::uring::engine::Uring;
