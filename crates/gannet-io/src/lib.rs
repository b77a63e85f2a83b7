//! The kernel: one completion-shaped [`Driver`](driver::Driver) trait, of a network and a disk, and
//! its three engines.
//!
//! All `unsafe` code of the project is in this crate.
//!
//! * [`uring`]: io_uring with multishot operations and provided buffers (the default).
//! * [`epoll`]: plain system calls, everywhere on Linux.
//! * [`sim`]: a virtual network, disk and clock, driven by a seed.
//!
//! The program ignores SIGPIPE, as Rust programs do by default: `sendfile` has no flag to prevent
//! it.

pub mod cause;
pub mod clock;
pub(crate) mod closer;
pub mod companion;
pub(crate) mod completion;
pub mod descriptors;
pub(crate) mod disk;
pub mod driver;
pub(crate) mod endpoint;
pub mod epoll;
pub(crate) mod file;
pub(crate) mod file_send;
pub mod fixed;
pub mod folder;
pub(crate) mod gather;
pub mod heap;
pub(crate) mod helpers;
pub(crate) mod how;
pub mod inherited;
pub mod ktls;
pub mod limits;
pub mod links;
pub mod lookups;
pub mod memory;
pub(crate) mod meta;
pub mod named_file;
pub mod net;
pub(crate) mod netlink;
pub(crate) mod network;
pub(crate) mod operation;
pub mod options;
pub(crate) mod os_disk;
pub(crate) mod os_engine;
pub(crate) mod outputs;
pub mod parcels;
pub(crate) mod peer_queue;
pub mod probe;
pub mod process;
pub(crate) mod progress;
pub mod quantities;
pub mod readiness;
pub mod reserve;
pub(crate) mod residency;
pub(crate) mod root;
pub(crate) mod route;
pub mod sandbox;
pub(crate) mod shared_pages;
pub mod sim;
pub(crate) mod socket;
pub(crate) mod socket_option;
pub mod standard;
pub mod starter;
pub(crate) mod store;
mod survey;
pub mod udp;
pub(crate) mod unavailable;
pub mod unix_socket;
pub mod uring;
pub mod user;
pub(crate) mod waker;
mod walk;
