//! The one interface between gannet and a kernel: operations in, completions out.
//!
//! Three engines implement [`Driver`]: `uring` (the default), `epoll` (does the call, keeps the
//! operation on `EAGAIN`, posts a completion) and `sim` (a virtual network, disk and clock). The
//! shape is that of completions, because readiness can emulate completions and not the reverse.
//!
//! An engine has two sides, [`Network`] and [`Disk`], each with its own contract: its calls and
//! their order. Both follow these rules:
//!
//! * An operation is plain owned data. All memory that the kernel may touch belongs to the driver
//!   until the kernel is done with it; the caller may forget a socket at any time.
//! * A completion carries the [`Token`] given with the operation. Drivers never interpret it.
//! * All completions come from [`Network::wait`].

pub use rustix::io::Errno;

pub use crate::completion::{Completion, Datagram, Done};
pub use crate::disk::{Disk, Listed, Render};
pub use crate::file::{File, OpenedFile, WeakFile};
pub use crate::meta::{DirectoryEntry, FileKind, Meta};
pub use crate::net::Peer;
pub use crate::network::{EngineReport, IoCounters, Network, RING_RESTRICTIONS, Receipt};
pub use crate::operation::{
    CONTROL_LEN_MAX, DatagramSocket, Lease, Listener, Nanos, PIECES_MAX, Piece, SendList, Socket,
    Started, Token, Train,
};
pub use crate::root::Root;
pub use crate::survey::{KeepName, Survey};
pub use crate::waker::Waker;

/// An engine: submits operations to a kernel (or to a simulation of one) and reaps completions.
pub trait Driver: Network + Disk {}

impl<E: Network + Disk> Driver for E {}
