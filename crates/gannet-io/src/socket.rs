//! Calls on one socket that both real engines make in the same way.

use std::iter;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};

use crate::{limits, socket_option};

/// Makes the next close send a reset and drop unsent bytes.
pub(crate) fn reset_on_close(socket: BorrowedFd<'_>) {
    // Fails only on a socket that cannot be reset (Unix): a plain close follows.
    let _ = sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

/// Bytes queued and not yet acknowledged; none after a reset, which leaves the kernel's count as it was.
pub(crate) fn unacknowledged(socket: BorrowedFd<'_>) -> u64 {
    /// `TCP_CLOSE` (`linux/tcp_states.h`).
    const CLOSED: u8 = 7;
    if tcp_info(socket).is_some_and(|info| info[0] == CLOSED) {
        return 0;
    }
    let mut queued: libc::c_int = 0;
    // SAFETY: the descriptor is open while borrowed; `TIOCOUTQ` (the same number as `SIOCOUTQ`)
    // writes one int.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued) };
    if result == 0 {
        u64::try_from(queued).unwrap_or(0)
    } else {
        0
    }
}

/// Bytes that can be written without waiting: see
/// [`Network::room`](crate::network::Network::room).
pub(crate) fn room(socket: BorrowedFd<'_>, unsent_max: u32) -> u64 {
    /// 32-bit numbers that `SO_MEMINFO` returns (`linux/sock_diag.h`), and their indices.
    const NUMBERS: usize = 9;
    const WRITE_ALLOCATED: usize = 2;
    const SEND_BUFFER: usize = 3;
    const WRITE_QUEUED: usize = 5;
    let mut info = [0u32; NUMBERS];
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the descriptor is open while borrowed; the kernel writes at most `len` bytes, the
    // length of `info`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return 0;
    }
    // TCP counts the bytes in its queue, a Unix socket the allocated ones.
    let queued = info[WRITE_QUEUED].max(info[WRITE_ALLOCATED]);
    // The kernel's overhead per queued segment counts as well: up to 29 % of it.
    let room = info[SEND_BUFFER].saturating_sub(queued) / 3 * 2;
    if unsent_max == u32::MAX {
        return u64::from(room);
    }
    u64::from(room.min(unsent_max.saturating_sub(not_sent(socket))))
}

/// Bytes queued and never sent yet.
fn not_sent(socket: BorrowedFd<'_>) -> u32 {
    /// `SIOCOUTQNSD` (`linux/sockios.h`).
    const NOT_SENT: libc::Ioctl = 0x894b;
    let mut queued: libc::c_int = 0;
    // SAFETY: the descriptor is open while borrowed; the call writes one int. On a socket that is
    // not TCP it fails, and nothing counts as unsent.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), NOT_SENT, &raw mut queued) };
    match result {
        0 => u32::try_from(queued).unwrap_or(0),
        _ => 0,
    }
}

/// Bounds the rate at which the kernel sends.
pub(crate) fn pace(socket: BorrowedFd<'_>, bytes_per_second: u64) {
    let rate = bytes_per_second.to_ne_bytes();
    // Fails only on a socket that has no such rate.
    let _ = socket_option::set(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate);
}

/// Holds partial segments back, or releases them.
pub(crate) fn cork(socket: BorrowedFd<'_>, on: bool) {
    // Fails on a socket that is not TCP, which has no segments.
    let _ = rustix::net::sockopt::set_tcp_cork(socket, on);
}

/// Acknowledges received bytes that are not acknowledged yet.
pub(crate) fn acknowledge(socket: BorrowedFd<'_>) {
    // Fails on a socket that is not TCP, which has no acknowledgements.
    let _ = rustix::net::sockopt::set_tcp_quickack(socket, true);
}

/// Makes writes wait while this many queued bytes are unsent.
pub(crate) fn bound_unsent(socket: BorrowedFd<'_>, bytes: u32) {
    let bound = bytes.to_ne_bytes();
    // Fails on a socket that is not TCP, which then has no such bound.
    let _ = socket_option::set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &bound);
}

/// Bytes acknowledged since the connection began; `None` if the socket is not TCP.
pub(crate) fn acknowledged(socket: BorrowedFd<'_>) -> Option<u64> {
    let info = tcp_info(socket)?;
    Some(u64::from_ne_bytes(*info.last_chunk()?))
}

/// The offset of `tcpi_bytes_acked` in `struct tcp_info` (`linux/tcp.h`, since Linux 4.1): 8
/// flag bytes, 24 numbers of 32 bits, two pacing rates of 64 bits.
const BYTES_ACKED: usize = 8 + 24 * 4 + 2 * 8;

/// `struct tcp_info` up to that, which starts with the connection's state; `None` if the socket is not TCP.
fn tcp_info(socket: BorrowedFd<'_>) -> Option<[u8; BYTES_ACKED + 8]> {
    let mut info = [0u8; BYTES_ACKED + 8];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: the descriptor is open while borrowed; the kernel writes at most `len` bytes, the
    // length of `info`, and then the written length into `len`.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    (result == 0 && len as usize == info.len()).then_some(info)
}

/// Accepts a connection.
///
/// # Errors
/// Those of `accept4(2)`; see [`is_of_one_connection`].
pub(crate) fn accept(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

/// Accepts the connections still queued on a non-blocking listener, at most [`limits::BACKLOG`].
/// Called before a listener is closed, which would reset them.
pub(crate) fn accept_rest(listener: &OwnedFd) -> impl Iterator<Item = OwnedFd> {
    let mut calls = 0..limits::BACKLOG;
    iter::from_fn(move || {
        loop {
            calls.next()?;
            match accept(listener) {
                Ok(socket) => return Some(socket),
                Err(errno) if errno != Errno::AGAIN && is_of_one_connection(errno) => {}
                Err(_) => return None,
            }
        }
    })
}

/// Errors of `accept` that belong to the connection and not to the listener: `accept(2)` lists them
/// under "Error handling".
pub(crate) fn is_of_one_connection(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNABORTED
            | Errno::INTR
            | Errno::AGAIN
            | Errno::CANCELED
            | Errno::NETDOWN
            | Errno::PROTO
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::OPNOTSUPP
            | Errno::NETUNREACH
            | Errno::PERM
    )
}
/// Whether the peer is on this machine: a Unix socket, loopback, or our own address.
pub(crate) fn is_local(socket: BorrowedFd<'_>) -> bool {
    let address = |any: rustix::net::SocketAddrAny| {
        std::net::SocketAddr::try_from(any)
            .ok()
            .map(|address| address.ip())
    };
    let peer = rustix::net::getpeername(socket)
        .ok()
        .flatten()
        .and_then(address);
    let own = || rustix::net::getsockname(socket).ok().and_then(address);
    match peer {
        // A Unix socket, or a connection that is gone.
        None => true,
        Some(peer) => peer.to_canonical().is_loopback() || Some(peer) == own(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    /// The kernel's own count stays as it was.
    #[test]
    fn nothing_is_unacknowledged_after_a_reset() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut socket = listener.accept().unwrap().0;
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[7; 65_536]).is_ok() {}
        assert!(unacknowledged(socket.as_fd()) > 0);
        reset_on_close(peer.as_fd());
        drop(peer);
        // The reset arrives soon.
        while unacknowledged(socket.as_fd()) > 0 {
            std::thread::yield_now();
        }
    }
}
