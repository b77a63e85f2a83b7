//! Datagrams by the ring: a multishot `recvmsg` per socket, and a poll when one is full.
//!
//! The kernel writes a datagram's address and control messages, then its bytes, into a provided
//! buffer, as the constant message header specifies. Multishot `recvmsg` came with multishot `recv`
//! in Linux 6.0, which the ring engine requires anyway.

use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::types::{Fd, RecvMsgOut};
use io_uring::{cqueue, opcode};
use rustix::io::Errno;

use crate::completion::{Completion, Done};
use crate::udp::{CONTROL_LEN, DatagramEndpoint, Envelope, NAME_LEN};
use crate::uring::buffers;
use crate::uring::completions::outcome;
use crate::uring::engine::Uring;
use crate::uring::slots::{Kind, user_data};

/// Where the bytes of a datagram begin in its buffer: after `io_uring_recvmsg_out` (four numbers of
/// 32 bits), the name and the control messages.
const START: usize = 4 * size_of::<u32>() + NAME_LEN + CONTROL_LEN;

/// The operations on datagram sockets that are with the kernel.
#[derive(Default)]
pub(super) struct Datagrams {
    sockets: Vec<InKernel>,
    /// Specifies how much room there is for name and control messages. The kernel reads it while a
    /// receive is submitted; it is never changed or moved. `None` without sockets.
    header: Option<Box<libc::msghdr>>,
}

/// The operations on one socket that are with the kernel.
#[derive(Clone, Copy, Debug, Default)]
struct InKernel {
    receive: Receive,
    /// A poll for room is with the kernel.
    polls: bool,
}

/// The state of a multishot receive.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Receive {
    /// None with the kernel.
    #[default]
    Idle,
    Armed,
    /// Ended for lack of buffers.
    Starved,
}

impl Datagrams {
    pub(super) fn are_in_flight(&self) -> bool {
        let mut sockets = self.sockets.iter();
        sockets.any(|socket| socket.receive == Receive::Armed || socket.polls)
    }
}

impl Uring {
    /// Adds bound datagram sockets (see [`udp::bind`](crate::udp::bind)), which the caller names by
    /// their positions in this list. To be called once, before anything else.
    #[must_use]
    pub fn with_datagrams(mut self, sockets: Vec<OwnedFd>) -> Self {
        // SAFETY: `msghdr` is plain old data: integers and pointers, for which zero is valid.
        let mut header = unsafe { std::mem::zeroed::<libc::msghdr>() };
        header.msg_namelen = NAME_LEN as libc::socklen_t;
        header.msg_controllen = CONTROL_LEN as _;
        self.datagrams = Datagrams {
            sockets: vec![InKernel::default(); sockets.len()],
            header: Some(Box::new(header)),
        };
        let endpoints = sockets.into_iter().map(DatagramEndpoint::new);
        self.parts.datagrams = endpoints.collect();
        self
    }

    /// Submits what the caller wants of a socket, and cancels what it does not.
    pub(super) fn steer_datagrams(&mut self, index: u32) {
        let endpoint = &self.parts.datagrams[index as usize];
        let in_kernel = self.datagrams.sockets[index as usize];
        if endpoint.is_stopped {
            if in_kernel.receive == Receive::Armed {
                self.cancel_datagrams(index, Kind::Datagrams);
            }
            if in_kernel.polls {
                self.cancel_datagrams(index, Kind::Sendable);
            }
            self.let_go_of_datagrams(index);
            return;
        }
        let (wants, waits) = (endpoint.receive_token, endpoint.sendable_token);
        match in_kernel.receive {
            Receive::Idle if wants.is_some() => self.arm_datagrams(index),
            Receive::Armed if wants.is_none() => self.cancel_datagrams(index, Kind::Datagrams),
            _ => {}
        }
        if waits.is_some() && !in_kernel.polls {
            self.arm_sendable(index);
        }
    }

    fn arm_datagrams(&mut self, index: u32) {
        let fd = Fd(self.parts.datagrams[index as usize].socket().as_raw_fd());
        let header = self.datagrams.header.as_deref();
        let header = &raw const *header.expect("made with the sockets");
        self.datagrams.sockets[index as usize].receive = Receive::Armed;
        let entry = opcode::RecvMsgMulti::new(fd, header, buffers::GROUP)
            .build()
            .user_data(user_data(Kind::Datagrams, 0, index));
        // SAFETY: the header is boxed, is not written to, and lives until the ring is dropped; it
        // names no memory. The kernel writes to the buffer ring, which outlives the ring and in
        // which we do not touch offered buffers.
        unsafe { self.ring.push(entry) };
    }

    fn arm_sendable(&mut self, index: u32) {
        let fd = Fd(self.parts.datagrams[index as usize].socket().as_raw_fd());
        self.datagrams.sockets[index as usize].polls = true;
        let entry = opcode::PollAdd::new(fd, libc::POLLOUT as u32)
            .build()
            .user_data(user_data(Kind::Sendable, 0, index));
        // SAFETY: a poll names no memory.
        unsafe { self.ring.push(entry) };
    }

    fn cancel_datagrams(&mut self, index: u32, kind: Kind) {
        let reply = user_data(Kind::CancelDatagrams, 0, index);
        self.push_cancel(user_data(kind, 0, index), reply);
    }

    /// Closes the descriptor of a stopped socket once the kernel has no operation on it.
    fn let_go_of_datagrams(&mut self, index: u32) {
        let in_kernel = self.datagrams.sockets[index as usize];
        let endpoint = &mut self.parts.datagrams[index as usize];
        if endpoint.is_stopped && in_kernel.receive != Receive::Armed && !in_kernel.polls {
            endpoint.fd = None;
        }
    }

    pub(super) fn on_datagrams(
        &mut self,
        index: u32,
        entry: &cqueue::Entry,
        more: bool,
        out: &mut Vec<Completion>,
    ) {
        if !more {
            self.datagrams.sockets[index as usize].receive = Receive::Idle;
        }
        match outcome(entry) {
            Ok(len) => {
                let buffer = cqueue::buffer_select(entry.flags());
                let buffer = buffer.expect("a received datagram is in a provided buffer");
                self.deliver_datagram(index, buffer, len, out);
            }
            // All buffers are on loan; tried again when some have been returned. If the kernel was
            // short of memory, it may have some again then.
            Err(Errno::NOBUFS | Errno::NOMEM) => {
                self.parts.counters.no_buffers += 1;
                if !more {
                    self.datagrams.sockets[index as usize].receive = Receive::Starved;
                }
            }
            // Stopped.
            Err(Errno::CANCELED) => {}
            Err(errno) => {
                let endpoint = &mut self.parts.datagrams[index as usize];
                let token = endpoint.receive_token;
                if let Some(token) = token
                    && endpoint.ends_receiving(errno)
                {
                    out.push(Completion {
                        token,
                        result: Err(errno),
                        more: false,
                    });
                }
            }
        }
        self.go_on_with_datagrams(index);
    }

    pub(super) fn on_sendable(&mut self, index: u32, out: &mut Vec<Completion>) {
        self.datagrams.sockets[index as usize].polls = false;
        // Errors of the poll are left for the next send to find.
        let endpoint = &mut self.parts.datagrams[index as usize];
        if let Some(token) = endpoint.sendable_token.take() {
            out.push(Completion {
                token,
                result: Ok(Done::Sendable),
                more: false,
            });
        }
        self.let_go_of_datagrams(index);
    }

    /// Receives again on sockets that found no buffer.
    pub(super) fn rearm_starved_datagrams(&mut self) {
        for index in 0..self.datagrams.sockets.len() {
            let socket = &mut self.datagrams.sockets[index];
            if socket.receive == Receive::Starved && self.buffers.offered() > 0 {
                socket.receive = Receive::Idle;
                self.go_on_with_datagrams(index as u32);
            }
        }
    }

    /// Receives again if the kernel has ended the operation: without buffers, after an empty
    /// datagram, or because the completion queue was full.
    fn go_on_with_datagrams(&mut self, index: u32) {
        let endpoint = &self.parts.datagrams[index as usize];
        let in_kernel = self.datagrams.sockets[index as usize];
        if endpoint.is_stopped {
            self.let_go_of_datagrams(index);
        } else if endpoint.receive_token.is_some() && in_kernel.receive == Receive::Idle {
            self.arm_datagrams(index);
        }
    }

    fn deliver_datagram(&mut self, index: u32, buffer: u16, len: u32, out: &mut Vec<Completion>) {
        let mut lease = self.buffers.loan(buffer, len);
        let endpoint = &mut self.parts.datagrams[index as usize];
        let counters = &mut self.parts.counters;
        let Some(token) = endpoint.receive_token else {
            counters.stale += 1;
            self.buffers.release(lease);
            return;
        };
        let header = self.datagrams.header.as_deref();
        let header = header.expect("made with the sockets");
        let Ok(parts) = RecvMsgOut::parse(self.buffers.bytes(&lease), header) else {
            unreachable!("the kernel fills in what it was asked for")
        };
        let envelope = Envelope::parse(parts.name_data(), parts.control_data());
        match envelope {
            Some(envelope) if !parts.is_payload_truncated() => {
                lease.start = START as u32;
                lease.len = parts.payload_data().len() as u32;
                out.push(endpoint.received(token, envelope, lease, counters));
            }
            _ => {
                counters.datagrams_truncated += u64::from(parts.is_payload_truncated());
                self.buffers.release(lease);
            }
        }
    }
}
