//! What an engine returns: completions of operations.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;

use crate::disk::Listed;
use crate::file::{File, OpenedFile};
use crate::operation::{Lease, Socket, Token};
use crate::survey::Survey;

/// The completion of an operation, or one of several for `accept`, `receive` and
/// `receive_datagrams`.
#[derive(Debug)]
pub struct Completion {
    /// The token given with the operation.
    pub token: Token,
    /// Its result.
    pub result: Result<Done, Errno>,
    /// For `accept`, `receive` and `receive_datagrams`: the operation continues and will complete
    /// again.
    pub more: bool,
}

/// The result of an operation.
#[derive(Debug)]
pub enum Done {
    /// A connection was accepted.
    Accepted(Socket),
    /// Bytes arrived.
    Received(Lease),
    /// The peer will send no more (end of stream); `receive` is over.
    Ended,
    /// All bytes of a `send` were sent (their count), or those of a `send_file` (fewer than
    /// requested only if the file ended before the range did).
    Sent(u64),
    /// The answer to `open` when it was `Pending`.
    Opened(OpenedFile),
    /// The answer to `read` when it was `Pending`; shorter than requested only at the end of the
    /// file.
    Read(Vec<u8>),
    /// The answer to `survey`.
    Surveyed(Survey),
    /// The answer to `list`.
    Listed(Listed),
    /// The answer to `copy`.
    Copied(File),
    /// `Waker::wake` was called.
    Woken,
    /// A datagram arrived.
    Datagram(Datagram),
    /// A datagram socket takes datagrams again; the answer to `when_sendable`.
    Sendable,
}

/// A received datagram.
#[derive(Debug, Eq, PartialEq)]
pub struct Datagram {
    /// Its bytes, all of them.
    pub lease: Lease,
    /// Its source address.
    pub peer: SocketAddr,
    /// Its destination address, from which to send answers; `None` if the socket is bound to a
    /// single one.
    pub local: Option<IpAddr>,
    /// Its ECN bits (RFC 3168 section 5): 0 to 3.
    pub ecn: u8,
    /// How many datagrams the kernel has dropped so far because the socket's buffer was full. Wraps
    /// around.
    pub dropped: u32,
}
