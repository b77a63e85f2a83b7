//! Steers datagrams among sockets that share an address: to the worker whose number is in the
//! connection ID.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The bits of the first byte of a connection ID that name a worker.
pub const WORKER_MASK: u8 = 0x7f;

/// Has the kernel deliver each datagram to the worker that the first byte of its destination
/// connection ID names (RFC 9000 section 17: byte 1 of a short header, byte 6 of a long one),
/// masked by [`WORKER_MASK`], modulo the number of workers. A client's first packets, whose
/// connection ID the client chooses, are spread by that byte.
///
/// The program is attached to the group of all sockets that share the address with `socket`. They
/// must have been bound in the order of the workers, and it misroutes as soon as one of them leaves
/// the group: it makes forwarding rare, not unnecessary. Needs no privileges.
///
/// # Errors
/// `EINVAL` for no workers or for more than the mask can name; otherwise the kernel's error
/// (`ENOMEM`, `EPERM` in a sandbox). Nothing has changed then.
pub fn steer(socket: impl AsFd, workers: usize) -> io::Result<()> {
    /// One instruction of classic BPF.
    const fn instruction(code: u32, jump_true: u8, jump_false: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter {
            code: code as u16,
            jt: jump_true,
            jf: jump_false,
            k,
        }
    }
    const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const LONG_HEADER: u32 = 0x80;

    if workers == 0 || workers > usize::from(WORKER_MASK) + 1 {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // Offsets are those of the datagram's content. A load beyond its end ends the program with 0.
    let mut program = [
        instruction(LOAD_BYTE, 0, 0, 0),
        instruction(
            libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K,
            0,
            2,
            LONG_HEADER,
        ),
        instruction(LOAD_BYTE, 0, 0, 6),
        instruction(libc::BPF_JMP | libc::BPF_JA, 0, 0, 1),
        instruction(LOAD_BYTE, 0, 0, 1),
        instruction(
            libc::BPF_ALU | libc::BPF_AND | libc::BPF_K,
            0,
            0,
            WORKER_MASK.into(),
        ),
        instruction(
            libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K,
            0,
            0,
            workers as u32,
        ),
        instruction(libc::BPF_RET | libc::BPF_A, 0, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: program.len() as libc::c_ushort,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the descriptor is open while borrowed; the kernel reads one `sock_fprog` and the
    // instructions that it points to, which live until after the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use gannet_testkit::left_out;

    use super::*;
    use crate::{net, udp};

    /// Every first byte of a connection ID leads to its worker, with both forms of headers; a
    /// datagram that is too short goes to the first worker.
    #[test]
    fn steers_by_connection_id() {
        const WORKERS: usize = 4;
        let first = udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = net::local_addr(&first).unwrap().unwrap();
        let mut sockets = vec![UdpSocket::from(first)];
        for _ in 1..WORKERS {
            sockets.push(UdpSocket::from(udp::bind(address).unwrap()));
        }
        if let Err(error) = steer(&sockets[0], WORKERS) {
            left_out("steering of datagrams", error);
            return;
        }
        for socket in &sockets {
            let patience = Some(Duration::from_secs(20));
            socket.set_read_timeout(patience).unwrap();
        }
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let check = |datagram: &[u8], worker: usize| {
            client.send_to(datagram, address).unwrap();
            let mut room = [0; 64];
            let len = sockets[worker].recv(&mut room).unwrap();
            assert_eq!(&room[..len], datagram);
        };
        for byte in 0..=255u8 {
            let worker = usize::from(byte & WORKER_MASK) % WORKERS;
            check(&[0x40, byte, 1, 2, 3], worker);
            check(&[0xc0, 0, 0, 0, 1, 8, byte, 7, 7], worker);
        }
        check(&[], 0);
        check(&[0x40], 0);
        check(&[0xc0, 3, 3], 0);
    }

    /// A count that the connection ID cannot hold is refused, as is zero.
    #[test]
    fn refuses_wrong_counts() {
        let socket = udp::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        for count in [0, 129] {
            let error = steer(&socket, count).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        }
    }
}
