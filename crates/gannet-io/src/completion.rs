//! What an engine gives back: the ends of operations.

use rustix::io::Errno;

use crate::disk::Listed;
use crate::file::{File, OpenedFile};
use crate::operation::{Lease, Socket, Token};

/// An operation's end, or one of several for `accept` and `receive`.
#[derive(Debug)]
pub struct Completion {
    /// The token given with the operation.
    pub token: Token,
    /// Its result.
    pub result: Result<Done, Errno>,
    /// For `accept` and `receive`: the operation goes on and will complete again.
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
    /// A `send` went out whole (its byte count), or a `send_file` went out (fewer bytes than asked
    /// only if the file ended before the range did).
    Sent(u64),
    /// The answer to `open` when it was `Pending`.
    Opened(OpenedFile),
    /// The answer to `read` when it was `Pending`; shorter than asked only at
    /// the end of the file.
    Read(Vec<u8>),
    /// The answer to `list`.
    Listed(Listed),
    /// The answer to `copy`.
    Copied(File),
    /// `Waker::wake` was called.
    Woken,
}
