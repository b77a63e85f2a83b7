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
    /// Connections start with a header of the PROXY protocol. [`bind`] leaves it false.
    pub is_proxied: bool,
    sockets: Vec<OwnedFd>,
    /// The file of a Unix socket, which is put in place only when the server serves.
    file: Option<SocketFile>,
    /// UDP sockets at the same address that another process has bound, for HTTP/3.
    datagrams: Vec<OwnedFd>,
}

impl Bound {
    /// Listeners that another process has bound, all at this address. Their number need not be that
    /// of the workers.
    ///
    /// # Errors
    /// Those of `setsockopt` and `listen`.
    ///
    /// # Panics
    /// There is no listener.
    pub fn inherited(
        address: ListenAddress,
        scheme: Scheme,
        sockets: Vec<OwnedFd>,
        file: Option<SocketFile>,
    ) -> io::Result<Self> {
        assert!(!sockets.is_empty(), "an inherited address has a listener");
        if matches!(address, ListenAddress::Tcp(_)) {
            sockets.iter().try_for_each(net::adopt)?;
        }
        Ok(Self {
            address,
            scheme,
            is_proxied: false,
            sockets,
            file,
            datagrams: Vec::new(),
        })
    }

    /// Adds UDP sockets at the same address that another process has bound.
    #[must_use]
    pub fn with_datagrams(mut self, sockets: Vec<OwnedFd>) -> Self {
        self.datagrams = sockets;
        self
    }

    /// Takes them out.
    pub(crate) fn take_datagrams(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.datagrams)
    }

    /// Duplicates of a worker's sockets: workers share them if there are fewer, and have several if
    /// there are more.
    pub(crate) fn of_worker(&self, worker: usize, workers: usize) -> io::Result<Vec<OwnedFd>> {
        shares(self.sockets.len(), worker, workers)
            .map(|at| self.sockets[at].as_fd().try_clone_to_owned())
            .collect()
    }

    /// How many these are.
    pub(crate) fn count_of(&self, worker: usize, workers: usize) -> usize {
        shares(self.sockets.len(), worker, workers).count()
    }

    /// Puts the file of a Unix socket in place. The file is removed when the returned value is
    /// dropped.
    pub(crate) fn publish(&mut self) -> Result<Option<SocketFile>, StartError> {
        let Some(mut file) = self.file.take() else {
            return Ok(None);
        };
        match file.publish() {
            Ok(()) => Ok(Some(file)),
            Err(error) => Err(StartError::Listen(self.address.clone(), error)),
        }
    }

    /// Its address and sockets, to be handed over.
    pub(crate) fn into_sockets(self) -> (ListenAddress, Vec<OwnedFd>) {
        (self.address, self.sockets)
    }
}

/// Which of `count` sockets belong to a worker: each socket to one worker at least, each worker to
/// one socket at least.
pub(crate) fn shares(count: usize, worker: usize, workers: usize) -> impl Iterator<Item = usize> {
    (worker % count..count).step_by(workers)
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
                datagrams: Vec::new(),
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
                datagrams: Vec::new(),
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
        datagrams: Vec::new(),
    };
    Ok((bound, address))
}

/// The address with a port that no other server has.
fn free(wanted: SocketAddr, scheme: Scheme) -> io::Result<SocketAddr> {
    if wanted.port() == 0 && scheme == Scheme::Https {
        match udp::free_for_both(wanted) {
            Ok(real) => return Ok(real),
            Err((Transport::Tcp, error)) => return Err(error),
            // HTTPS continues without HTTP/3.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_has_a_worker_and_every_worker_a_socket() {
        for count in 1..6 {
            for workers in 1..6 {
                let all = (0..workers).map(|worker| shares(count, worker, workers).collect());
                let all: Vec<Vec<usize>> = all.collect();
                assert!(all.iter().all(|own| !own.is_empty()), "{count} {workers}");
                let mut sockets = all.concat();
                sockets.sort_unstable();
                sockets.dedup();
                assert_eq!(sockets, Vec::from_iter(0..count), "{count} {workers}");
            }
        }
        let same: Vec<_> = shares(3, 1, 3).collect();
        assert_eq!(same, [1]);
    }
}
