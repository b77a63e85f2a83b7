//! Receiving several datagrams in one call (`recvmmsg`), for the engine without a ring.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use rustix::io::Errno;

use crate::limits::DATAGRAMS_PER_CALL;
use crate::residency::last_errno;
use crate::udp::envelope::{CONTROL_LEN, Envelope, NAME_LEN};

/// Where one call puts the addresses and control messages. The bytes go to the caller's buffers.
pub(crate) struct Batch {
    names: [[u8; NAME_LEN]; DATAGRAMS_PER_CALL],
    controls: [[u8; CONTROL_LEN]; DATAGRAMS_PER_CALL],
    results: [DatagramSlot; DATAGRAMS_PER_CALL],
}

/// One received datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramSlot {
    pub(crate) len: usize,
    /// It was longer than its buffer.
    pub(crate) is_truncated: bool,
    name_len: usize,
    control_len: usize,
}

impl Batch {
    pub(crate) fn new() -> Box<Self> {
        let nothing = DatagramSlot {
            len: 0,
            is_truncated: false,
            name_len: 0,
            control_len: 0,
        };
        Box::new(Self {
            names: [[0; NAME_LEN]; DATAGRAMS_PER_CALL],
            controls: [[0; CONTROL_LEN]; DATAGRAMS_PER_CALL],
            results: [nothing; DATAGRAMS_PER_CALL],
        })
    }

    /// Receives at most one datagram for each buffer, without waiting; returns how many.
    ///
    /// # Safety
    /// * Each buffer, a start and a length, is valid for writes until this returns.
    /// * No two of them overlap, and nothing else uses them meanwhile.
    pub(crate) unsafe fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: impl Iterator<Item = (*mut u8, usize)>,
    ) -> Result<usize, Errno> {
        let nowhere = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        let mut parts = [nowhere; DATAGRAMS_PER_CALL];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::zeroed() }; DATAGRAMS_PER_CALL];
        let mut count = 0;
        for (part, (start, len)) in parts.iter_mut().zip(buffers) {
            *part = libc::iovec {
                iov_base: start.cast(),
                iov_len: len,
            };
            count += 1;
        }
        for (index, header) in headers[..count].iter_mut().enumerate() {
            // SAFETY: `mmsghdr` is plain old data: integers and pointers, for which the zeros
            // that it is made of are valid.
            let header = unsafe { &mut header.assume_init_mut().msg_hdr };
            header.msg_name = self.names[index].as_mut_ptr().cast();
            header.msg_namelen = NAME_LEN as libc::socklen_t;
            header.msg_iov = &raw mut parts[index];
            header.msg_iovlen = 1;
            header.msg_control = self.controls[index].as_mut_ptr().cast();
            header.msg_controllen = CONTROL_LEN as _;
        }
        // SAFETY: the descriptor is open while borrowed. The first `count` headers are filled in;
        // names, controls and parts have as many entries, live until after the call, and are
        // named with their lengths. The buffers are the caller's responsibility.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr().cast(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| last_errno())?;
        for (header, result) in headers[..received].iter().zip(&mut self.results) {
            // SAFETY: as above.
            let header = unsafe { header.assume_init_ref() };
            #[allow(clippy::unnecessary_cast, reason = "musl has 32 bits for this length")]
            let control_len = header.msg_hdr.msg_controllen as usize;
            *result = DatagramSlot {
                len: header.msg_len as usize,
                is_truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
                name_len: (header.msg_hdr.msg_namelen as usize).min(NAME_LEN),
                control_len: control_len.min(CONTROL_LEN),
            };
        }
        Ok(received)
    }

    /// The datagram at `index` of the last call, below its count.
    pub(crate) fn datagram(&self, index: usize) -> (DatagramSlot, Option<Envelope>) {
        let slot = self.results[index];
        let name = &self.names[index][..slot.name_len];
        let control = &self.controls[index][..slot.control_len];
        (slot, Envelope::parse(name, control))
    }
}
