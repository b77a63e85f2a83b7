//! The message header of a gathered send: where the kernel finds the parts.

use std::ptr;

use crate::driver::PIECES_MAX;
use crate::progress::Progress;

/// A `msghdr` with room for all parts of a send list. Boxed by its owner, so that it stays at its
/// address while the kernel may read it.
pub(crate) struct Gather {
    header: libc::msghdr,
    parts: [libc::iovec; PIECES_MAX],
}

// SAFETY: the pointers in it are never followed by us, only by the kernel, during a send whose
// `Progress` keeps alive what they point to; a `Gather` is not tied to a thread.
unsafe impl Send for Gather {}

impl std::fmt::Debug for Gather {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gather({} parts)", self.header.msg_iovlen)
    }
}

impl Gather {
    pub(crate) fn new() -> Box<Self> {
        // SAFETY: `msghdr` is plain old data: integers and pointers, for which zero is valid.
        let header = unsafe { std::mem::zeroed::<libc::msghdr>() };
        let empty = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        Box::new(Self {
            header,
            parts: [empty; PIECES_MAX],
        })
    }

    /// Fills in what is left to send, and returns the header's address. It may be given to the
    /// kernel as long as this box and `progress` are left as they are.
    pub(crate) fn fill(&mut self, progress: &Progress) -> *const libc::msghdr {
        let mut count = 0;
        for (room, part) in self.parts.iter_mut().zip(progress.parts()) {
            // The kernel only reads it; `iovec` has one type for both directions.
            *room = libc::iovec {
                iov_base: part.start.cast_mut().cast(),
                iov_len: part.len,
            };
            count += 1;
        }
        self.header.msg_iov = self.parts.as_mut_ptr();
        self.header.msg_iovlen = count;
        &raw const self.header
    }
}
