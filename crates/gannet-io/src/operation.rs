//! The types of an engine's interface: the requester, the socket, what to send.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::memory::Memory;

/// Nanoseconds of a monotonic clock with an arbitrary start.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Nanos(pub u64);

impl Nanos {
    /// This moment plus `ms` milliseconds, saturating.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }

    /// The time from `earlier` to this moment; zero if it is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Identifies an operation to its requester, who alone interprets the bits.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Token(pub u64);

/// A listening socket, named by its position in the list that the driver was created with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Listener(pub u32);

/// A connected socket of this driver.
///
/// Valid only from its `Done::Accepted` until the call of `close` or `reset`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Socket(pub u32);

/// A datagram socket, named by its position in the list that the driver was created with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct DatagramSocket(pub u32);

/// Datagrams to one peer, all of `segment` bytes except the last, which may be shorter.
#[derive(Clone, Copy, Debug)]
pub struct Train {
    /// Their bytes together.
    pub len: usize,
    /// The bytes of each.
    pub segment: usize,
    /// The peer.
    pub to: SocketAddr,
    /// Their source address, if the socket has several.
    pub from: Option<IpAddr>,
    /// Their ECN bits.
    pub ecn: u8,
}

/// Bytes received, on loan from the driver's buffers until `release`.
///
/// A lease is to be released within the same turn of the loop: the buffers are few and shared, and
/// while all are on loan nothing more is received. Only a worker without memory for a turn holds on
/// to them.
#[derive(Debug, Eq, PartialEq)]
#[must_use = "a lease that is not released starves other connections"]
pub struct Lease {
    /// The buffer's number.
    pub(crate) buffer: u32,
    /// Where in the buffer they begin.
    pub(crate) start: u32,
    /// How many bytes were received.
    pub(crate) len: u32,
}

/// What to send: bytes of `wire`, and ranges of shared memory, in the order of `pieces`.
#[derive(Debug, Default)]
pub struct SendList {
    /// Bytes made for this send; taken from `output`, given back when it completes.
    pub wire: Vec<u8>,
    /// The order of the pieces. Empty means all of `wire` and nothing else (the usual case). At
    /// most [`PIECES_MAX`].
    pub pieces: Vec<Piece>,
    /// More bytes follow at once (`MSG_MORE`): do not push a partial segment out.
    pub more: bool,
}

/// One piece of a [`SendList`].
#[derive(Clone, Debug)]
pub enum Piece {
    /// A range of the list's `wire`.
    Wire(Range<u32>),
    /// A range of shared memory.
    Memory(Arc<Memory>, Range<usize>),
}

/// The most pieces that one [`SendList`] may have. Half of what `sendmsg` takes without allocating
/// in the kernel would be 4; 32 lets sixteen pipelined responses (head and body) share a send.
pub const PIECES_MAX: usize = 32;

/// The most content of a control record, in bytes: an alert has 2, a `KeyUpdate` 5.
pub const CONTROL_LEN_MAX: usize = 8;

/// The result of starting an operation that often ends at once.
#[derive(Debug)]
pub enum Started<T> {
    /// It has ended; no completion follows.
    Now(Result<T, Errno>),
    /// A completion with the token will follow.
    Pending,
}

impl<T> Started<T> {
    /// The same with its value changed, if it has one.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Started<U> {
        match self {
            Self::Now(result) => Started::Now(result.map(change)),
            Self::Pending => Started::Pending,
        }
    }
}
