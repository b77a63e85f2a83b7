//! The kernel: one completion-shaped [`Driver`](driver::Driver) trait and its three engines.
//!
//! All `unsafe` code of the project is in this crate.
//!
//! * [`uring`]: io_uring with multishot operations and provided buffers (the default).
//! * [`epoll`]: plain system calls, everywhere on Linux.
//! * [`sim`]: a virtual network, disk and clock, driven by a seed.
//!
//! The program ignores SIGPIPE, as Rust programs do from their start: `sendfile` has no flag of its
//! own against it.

pub(crate) mod clock;
pub(crate) mod disk;
pub mod driver;
pub mod epoll;
pub(crate) mod file_send;
pub mod files;
pub(crate) mod gather;
pub(crate) mod guard;
pub(crate) mod helpers;
pub mod ktls;
pub mod limits;
pub mod memory;
pub mod net;
pub mod options;
pub(crate) mod outputs;
pub mod probe;
pub(crate) mod progress;
pub(crate) mod residency;
pub mod sim;
pub(crate) mod socket;
pub mod uring;
pub(crate) mod waker;
