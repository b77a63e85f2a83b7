//! The state that both real engines keep for each datagram socket, and how they send.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use crate::completion::{Completion, Datagram, Done};
use crate::limits::DATAGRAMS_PER_CALL;
use crate::network::IoCounters;
use crate::operation::{Lease, Token, Train};
use crate::udp::envelope::{Envelope, Outgoing};
use crate::udp::{TRAIN_LEN_MAX, TRAIN_SEGMENTS_MAX};

/// A datagram socket: what its caller wants from it.
#[derive(Debug)]
pub(crate) struct DatagramEndpoint {
    /// `None` once the kernel no longer uses it.
    pub(crate) fd: Option<OwnedFd>,
    /// The caller has closed it.
    pub(crate) is_stopped: bool,
    /// Set while the caller wants datagrams.
    pub(crate) receive_token: Option<Token>,
    /// Set while the caller waits for room.
    pub(crate) sendable_token: Option<Token>,
    /// The kernel segments trains into datagrams.
    segments: bool,
    /// The kernel's drop counter, as last reported.
    dropped: u32,
    /// What the trains of a call say, kept for its memory.
    outgoing: Vec<Outgoing>,
}

impl DatagramEndpoint {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self {
            fd: Some(fd),
            is_stopped: false,
            receive_token: None,
            sendable_token: None,
            segments: true,
            dropped: 0,
            outgoing: Vec::new(),
        }
    }

    /// The descriptor of a socket that is not closed.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        assert!(
            !self.is_stopped,
            "a datagram socket is stopped once, and last"
        );
        let fd = self.fd.as_ref();
        fd.expect("closed only when stopped").as_fd()
    }

    /// The caller has closed it.
    pub(crate) fn stop(&mut self) {
        assert!(
            !self.is_stopped,
            "a datagram socket is stopped once, and last"
        );
        self.receive_token = None;
        self.sendable_token = None;
        self.is_stopped = true;
    }

    /// The completion for a datagram that was received into the lease.
    pub(crate) fn received(
        &mut self,
        token: Token,
        envelope: Envelope,
        lease: Lease,
        counters: &mut IoCounters,
    ) -> Completion {
        counters.datagrams_received += 1;
        // The kernel's counter wraps around and skips zero.
        let dropped = match envelope.dropped {
            0 => self.dropped,
            dropped => dropped,
        };
        counters.datagrams_dropped += u64::from(dropped.wrapping_sub(self.dropped));
        self.dropped = dropped;
        Completion {
            token,
            result: Ok(Done::Datagram(Datagram {
                lease,
                peer: envelope.peer,
                local: envelope.local,
                ecn: envelope.ecn,
                dropped,
            })),
            more: true,
        }
    }

    /// Whether an error of receiving has to be reported, which ends the operation. All others
    /// belong to earlier datagrams, rejected by a router or the peer (ICMP).
    pub(crate) fn ends_receiving(&mut self, errno: Errno) -> bool {
        let is_of_one_datagram = matches!(
            errno,
            Errno::CONNREFUSED
                | Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::MSGSIZE
                | Errno::PROTO
                | Errno::NOPROTOOPT
                | Errno::INTR
                | Errno::AGAIN
        );
        if !is_of_one_datagram {
            self.receive_token = None;
        }
        !is_of_one_datagram
    }

    /// See [`Network::send_datagrams`](crate::network::Network::send_datagrams).
    pub(crate) fn send(
        &mut self,
        bytes: &[u8],
        trains: &[Train],
        counters: &mut IoCounters,
    ) -> Result<usize, Errno> {
        let trains = of_one_call(trains);
        let is_for_kernel = |train: &&Train| check_train(train) == 1 || self.segments;
        let whole = trains.iter().take_while(is_for_kernel).count();
        let first = &trains[0];
        if whole == 0 {
            return self.send_apart(&bytes[..first.len], first, false, counters);
        }
        self.outgoing.clear();
        self.outgoing
            .extend(trains[..whole].iter().map(Outgoing::of));
        counters.submissions += 1;
        match Outgoing::send_all(self.socket(), &self.outgoing, bytes, trains) {
            Ok(sent) => {
                let trains = trains[..sent].iter();
                counters.datagrams_sent += trains.map(|it| check_train(it) as u64).sum::<u64>();
                Ok(sent)
            }
            // EIO: the route cannot segment, because of IPsec or missing checksum offload.
            // EINVAL: nor can the kernel; or the datagrams are too long for an old one.
            Err(Errno::IO | Errno::INVAL) if check_train(first) > 1 => {
                self.send_apart(&bytes[..first.len], first, true, counters)
            }
            // A filter of system calls may allow `sendmsg` alone. (A firewall refuses it as well.)
            Err(Errno::NOSYS | Errno::PERM) if whole > 1 => {
                self.send(bytes, &trains[..1], counters)
            }
            Err(errno) => lost_if_too_long(errno).map(|()| 1),
        }
    }

    /// Sends the datagrams of one train by a call each; the kernel may have `refused` to segment it.
    fn send_apart(
        &mut self,
        bytes: &[u8],
        train: &Train,
        is_refused: bool,
        counters: &mut IoCounters,
    ) -> Result<usize, Errno> {
        for datagram in bytes.chunks(train.segment) {
            let alone = Train {
                len: datagram.len(),
                ..*train
            };
            counters.submissions += 1;
            match Outgoing::send_all(self.socket(), &[Outgoing::of(&alone)], datagram, &[alone]) {
                Ok(_) => {
                    counters.datagrams_sent += 1;
                    // The refusal was not about the datagrams.
                    counters.segmentation_refused += u64::from(is_refused && self.segments);
                    self.segments &= !is_refused;
                }
                Err(errno) => lost_if_too_long(errno)?,
            }
        }
        Ok(1)
    }
}

/// The trains that one call takes. Checked here for every engine.
pub(crate) fn of_one_call(trains: &[Train]) -> &[Train] {
    assert!(!trains.is_empty(), "a call is for a train");
    let trains = &trains[..trains.len().min(DATAGRAMS_PER_CALL)];
    for train in trains {
        check_train(train);
    }
    trains
}

/// The number of datagrams of a train.
fn check_train(train: &Train) -> usize {
    assert!(
        train.segment > 0 && train.len > 0 && train.len <= TRAIN_LEN_MAX,
        "a train is not empty and fits a packet"
    );
    let count = train.len.div_ceil(train.segment);
    assert!(
        count <= TRAIN_SEGMENTS_MAX,
        "a train has at most 64 datagrams"
    );
    count
}

/// Longer than the interface's MTU: counts as lost, as on a path with a smaller one.
fn lost_if_too_long(errno: Errno) -> Result<(), Errno> {
    match errno {
        Errno::MSGSIZE => Ok(()),
        errno => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    /// Where the kernel does not segment trains, the same datagrams arrive.
    #[test]
    fn sends_one_by_one() {
        let wanted = "127.0.0.1:0".parse().unwrap();
        let mut endpoint = DatagramEndpoint::new(crate::udp::bind(wanted).unwrap());
        endpoint.segments = false;
        let client = UdpSocket::bind(wanted).unwrap();
        let bytes: Vec<u8> = (0..=250).collect();
        let train = Train {
            len: bytes.len(),
            segment: 100,
            to: client.local_addr().unwrap(),
            from: None,
            ecn: 0,
        };
        let mut counters = IoCounters::default();
        assert_eq!(endpoint.send(&bytes, &[train], &mut counters), Ok(1));
        assert_eq!((counters.submissions, counters.datagrams_sent), (3, 3));
        for expected in bytes.chunks(100) {
            let mut room = [0; 200];
            let len = client.recv(&mut room).unwrap();
            assert_eq!(&room[..len], expected);
        }
    }
}
