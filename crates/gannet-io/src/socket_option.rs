//! Setting options of sockets for which rustix has no function.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use crate::residency::last_errno;

/// Sets an option whose value is plain bytes: `to_ne_bytes` of a number, as long as the kernel expects it.
///
/// # Errors
/// Those of `setsockopt`: `ENOPROTOOPT` or `EOPNOTSUPP` for an option that the socket does not have.
pub(crate) fn set(
    socket: impl AsFd,
    level: c_int,
    option: c_int,
    value: &[u8],
) -> Result<(), Errno> {
    let len = libc::socklen_t::try_from(value.len()).expect("options are short");
    // SAFETY: the descriptor is open while borrowed; the kernel reads `len` bytes, all of `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            value.as_ptr().cast(),
            len,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}
