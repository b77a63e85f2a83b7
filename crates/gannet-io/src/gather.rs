//! The message header of a gathered send, which points the kernel to the parts.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::operation::PIECES_MAX;
use crate::progress::Progress;
use crate::residency::last_errno;

/// A `msghdr` with room for all parts of a send list. Its address stays the same while the kernel
/// may read it, even if the `Gather` itself is moved.
pub(crate) struct Gather(Box<Message>);

struct Message {
    header: libc::msghdr,
    parts: [libc::iovec; PIECES_MAX],
}

// SAFETY: we never follow the pointers in it; only the kernel does, during a send whose `Progress`
// keeps alive what they point to; a `Gather` is not tied to a thread.
unsafe impl Send for Gather {}

impl std::fmt::Debug for Gather {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gather({} parts)", self.0.header.msg_iovlen)
    }
}

impl Gather {
    pub(crate) fn new() -> Self {
        // SAFETY: `msghdr` is plain old data: integers and pointers, for which zero is valid.
        let header = unsafe { std::mem::zeroed::<libc::msghdr>() };
        let empty = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        Self(Box::new(Message {
            header,
            parts: [empty; PIECES_MAX],
        }))
    }

    /// Fills in the parts that are left to send, and returns the header's address. The kernel may
    /// use it while this value is alive and not refilled, and `progress` is unchanged.
    pub(crate) fn fill(&mut self, progress: &Progress) -> *const libc::msghdr {
        let Message { header, parts } = &mut *self.0;
        let mut count = 0;
        for (room, part) in parts.iter_mut().zip(progress.parts()) {
            // The kernel only reads it; `iovec` has one type for both directions.
            *room = libc::iovec {
                iov_base: part.start.cast_mut().cast(),
                iov_len: part.len,
            };
            count += 1;
        }
        header.msg_iov = parts.as_mut_ptr();
        header.msg_iovlen = count;
        &raw const self.0.header
    }

    /// Sends what is left, as much as the socket takes at once.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        progress: &Progress,
        flags: SendFlags,
    ) -> Result<usize, Errno> {
        let header = self.fill(progress);
        // SAFETY: the header and its parts were just filled in and live until after the call; the
        // parts are in memory that `progress` keeps alive.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), header, flags.bits() as i32) };
        usize::try_from(sent).map_err(|_| last_errno())
    }
}
