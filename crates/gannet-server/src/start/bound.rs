//! Bound addresses: the sockets of all workers, before any of them serves.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix;

use gannet_io::net;
use gannet_io::udp::{self, Transport};
use gannet_io::unix_socket::{self, Access, SocketFile};

use crate::config::{ListenAddress, Scheme, UnixAddress};
use crate::start::start_error::StartError;

/// A bound address: one listening socket per worker.
#[derive(Debug)]
pub struct Bound {
    /// The bound address; for port 0, with the port that the kernel chose.
    pub address: ListenAddress,
    /// The protocol there.
    pub scheme: Scheme,
    /// Connections begin with a header of the PROXY protocol. [`bind`] leaves it false.
    pub is_proxied: bool,
    sockets: Vec<OwnedFd>,
    /// The file of a Unix socket, which is put in place only when the server serves.
    file: Option<SocketFile>,
}

impl Bound {
    /// Makes the kernel report connections only once their first bytes have arrived; TCP only.
    pub(crate) fn defer_accept(&self) -> Result<(), StartError> {
        match self.address {
            ListenAddress::Tcp(address) => {
                let refuse = |error| StartError::DeferAccept(address, error);
                let mut sockets = self.sockets.iter();
                sockets.try_for_each(net::defer_accept).map_err(refuse)
            }
            ListenAddress::Unix(_) => Ok(()),
        }
    }

    /// A duplicate of one of its sockets for a worker; workers share sockets if there are fewer.
    pub(crate) fn socket(&self, worker: usize) -> io::Result<OwnedFd> {
        let socket = &self.sockets[worker % self.sockets.len()];
        socket.as_fd().try_clone_to_owned()
    }

    /// Puts the file of a Unix socket in place. The file is removed when the returned value is
    /// dropped.
    pub(crate) fn publish(self) -> Result<Option<SocketFile>, StartError> {
        let Some(mut file) = self.file else {
            return Ok(None);
        };
        match file.publish() {
            Ok(()) => Ok(Some(file)),
            Err(error) => Err(StartError::Listen(self.address, error)),
        }
    }
}

/// Binds an address for a number of workers (0: as many as [`prepare`](crate::prepare) would use). For
/// HTTPS, port 0 takes one whose UDP side is free as well, for HTTP/3.
///
/// # Errors
/// The kernel's error: `EADDRINUSE`, `EACCES`, `EADDRNOTAVAIL`, ...
pub fn bind(address: &ListenAddress, scheme: Scheme, workers: usize) -> io::Result<Bound> {
    let count = worker_count(workers);
    match address {
        ListenAddress::Tcp(wanted) => {
            let real = free(*wanted, scheme)?;
            let sockets = (0..count)
                .map(|_| net::bind(real))
                .collect::<io::Result<_>>()?;
            Ok(Bound {
                address: ListenAddress::Tcp(real),
                scheme,
                is_proxied: false,
                sockets,
                file: None,
            })
        }
        ListenAddress::Unix(unix) => {
            let (first, file) = unix_socket::bind(&unix.path, &unix.access)?;
            let mut sockets = Vec::with_capacity(count);
            for _ in 1..count {
                sockets.push(first.as_fd().try_clone_to_owned()?);
            }
            sockets.push(first);
            Ok(Bound {
                address: address.clone(),
                scheme,
                is_proxied: false,
                sockets,
                file: Some(file),
            })
        }
    }
}

/// Binds a Unix socket without a file, for one worker and clients in this process. Also returns the
/// address for these: one that no other socket has, and that programs of other users can find.
///
/// # Errors
/// The kernel's error.
pub fn bind_unnamed() -> io::Result<(Bound, unix::net::SocketAddr)> {
    let (socket, address) = unix_socket::bind_unnamed()?;
    let bound = Bound {
        address: ListenAddress::Unix(UnixAddress {
            path: "(no file)".into(),
            access: Access::default(),
        }),
        scheme: Scheme::Http,
        is_proxied: false,
        sockets: vec![socket],
        file: None,
    };
    Ok((bound, address))
}

/// The address with a port that no other server has.
fn free(wanted: SocketAddr, scheme: Scheme) -> io::Result<SocketAddr> {
    if wanted.port() == 0 && scheme == Scheme::Https {
        match udp::free_for_both(wanted) {
            Ok(real) => return Ok(real),
            Err((Transport::Tcp, error)) => return Err(error),
            // HTTPS goes on without HTTP/3.
            Err((Transport::Udp, _)) => {}
        }
    }
    // Alone: SO_REUSEPORT would let a second server of the same user silently share the port.
    let first = net::bind_exclusive(wanted)?;
    Ok(net::local_addr(&first)?.unwrap_or(wanted))
}

/// The number of workers for a configured value; 0 means one per core.
pub(crate) fn worker_count(configured: usize) -> usize {
    match configured {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    }
}
