//! The operations that the ring engine submits to the kernel and cancels.

use std::os::fd::{AsFd, AsRawFd};

use io_uring::types::{CancelBuilder, Fd, Timespec};
use io_uring::{opcode, squeue};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::clock::Clock;
use crate::completion::Done;
use crate::endpoint::Sending;
use crate::gather::Gather;
use crate::ktls::Stage;
use crate::network::IoCounters;
use crate::operation::{Nanos, Socket, Token};
use crate::os_engine::{OsEngine, OsSends};
use crate::uring::buffers;
use crate::uring::engine::Uring;
use crate::uring::slots::{Kind, Receiving, user_data};

impl Uring {
    /// Receives twice on a non-blocking socket with one submission, to find out whether the kernel
    /// supports multishot receives from provided buffers, and waits on such sockets.
    pub(super) fn try_out(&mut self) -> Result<(), Errno> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        self.waits_nonblocking = true;
        let index = self.slots.insert(ours, true);
        self.receive_from(Socket(index), Token(0), false);
        let mut out = Vec::new();
        // Submits; a kernel that refuses to wait fails at once, and then a poll is armed.
        let soon = Nanos(self.parts.clock.now.0.saturating_add(1));
        OsEngine::wait(self, Some(soon), &mut out)?;
        let mut received = 0;
        for text in [b"one", b"two"] {
            rustix::io::write(&theirs, text)?;
            let late = Nanos(Clock::read().now.0.saturating_add(1_000_000_000));
            OsEngine::wait(self, Some(late), &mut out)?;
            for completion in out.drain(..) {
                if let Done::Received(lease) = completion.result? {
                    received += usize::from(self.buffers.bytes(&lease) == text);
                    self.buffers.release(lease);
                }
            }
        }
        self.forget(index);
        let soon = Nanos(Clock::read().now.0.saturating_add(1));
        OsEngine::wait(self, Some(soon), &mut out)?;
        self.parts.counters = IoCounters::default();
        if received == 2 {
            Ok(())
        } else {
            Err(Errno::OPNOTSUPP)
        }
    }

    pub(super) fn watch_bell(&mut self) {
        let fd = Fd(self.parts.disk.bell.as_fd().as_raw_fd());
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32)
            .multi(true)
            .build()
            .user_data(user_data(Kind::Bell, 0, 0));
        // SAFETY: a poll names no memory.
        unsafe { self.ring.push(entry) };
    }

    pub(super) fn arm_accept(&mut self, index: u32) {
        let listening = &mut self.listeners[index as usize];
        let Some(fd) = &listening.fd else { return };
        let nonblocking = if self.waits_nonblocking {
            libc::SOCK_NONBLOCK
        } else {
            0
        };
        let entry = opcode::AcceptMulti::new(Fd(fd.as_raw_fd()))
            .flags(libc::SOCK_CLOEXEC | nonblocking)
            .build()
            .user_data(user_data(Kind::Accept, 0, index));
        listening.is_armed = true;
        // SAFETY: a multishot accept names no memory.
        unsafe { self.ring.push(entry) };
    }

    pub(super) fn arm_receive(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let fd = Fd(slot.endpoint.socket().as_raw_fd());
        slot.receiving = Receiving::Armed;
        slot.in_flight += 1;
        let entry = if slot.endpoint.wants_once {
            // A length of zero means that of the buffer that the kernel picks.
            opcode::Recv::new(fd, std::ptr::null_mut(), 0)
                .buf_group(buffers::GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT)
        } else {
            opcode::RecvMulti::new(fd, buffers::GROUP).build()
        };
        let entry = entry.user_data(user_data(Kind::Receive, slot.endpoint.generation, index));
        // SAFETY: the kernel writes to the buffer ring, which outlives the ring and in which we do
        // not touch offered buffers.
        unsafe { self.ring.push(entry) };
    }

    pub(super) fn arm_poll(&mut self, index: u32, kind: Kind, events: libc::c_short) {
        let slot = self.slots.get(index);
        slot.in_flight += 1;
        if kind == Kind::Room {
            slot.send_op = Some(kind);
        }
        let entry = opcode::PollAdd::new(Fd(slot.endpoint.socket().as_raw_fd()), events as u32)
            .build()
            .user_data(user_data(kind, slot.endpoint.generation, index));
        // SAFETY: a poll names no memory.
        unsafe { self.ring.push(entry) };
    }

    /// Cancels an operation of a socket.
    pub(super) fn cancel(&mut self, index: u32, kind: Kind) {
        let reply = match kind {
            Kind::Receive | Kind::Arrival => Kind::CancelReceive,
            _ => Kind::CancelSend,
        };
        let generation = self.slots.peek(index).endpoint.generation;
        self.push_cancel(
            user_data(kind, generation, index),
            user_data(reply, generation, index),
        );
    }

    pub(super) fn cancel_accept(&mut self, index: u32) {
        let reply = user_data(Kind::CancelAccept, 0, index);
        self.push_cancel(user_data(Kind::Accept, 0, index), reply);
    }

    pub(super) fn push_cancel(&mut self, target: u64, reply: u64) {
        let entry = opcode::AsyncCancel2::new(CancelBuilder::user_data(target))
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(reply);
        // SAFETY: a cancellation names no memory.
        unsafe { self.ring.push(entry) };
    }

    /// Submits what is left of the list in the slot.
    pub(super) fn submit_list(&mut self, index: u32) {
        let kept = &mut self.parts.gathers;
        let slot = self.slots.get(index);
        let fd = Fd(slot.endpoint.socket().as_raw_fd());
        let Sending::List {
            progress, gather, ..
        } = &mut slot.endpoint.sending
        else {
            unreachable!("the caller has put a list there")
        };
        let mut flags = libc::MSG_NOSIGNAL;
        if !slot.is_unix && slot.endpoint.kernel_tls == Stage::Plain {
            // The kernel continues a short send by itself. Not on a Unix socket, where only
            // completions show progress; and kernel TLS refuses the flag (EOPNOTSUPP).
            flags |= libc::MSG_WAITALL;
        }
        if progress.has_more() {
            flags |= libc::MSG_MORE;
        }
        let entry = match progress.as_one() {
            Some(part) => opcode::Send::new(fd, part.start, part.len as u32)
                .flags(flags)
                .build(),
            None => {
                let gather = gather.get_or_insert_with(|| kept.pop().unwrap_or_else(Gather::new));
                opcode::SendMsg::new(fd, gather.fill(progress))
                    .flags(flags as u32)
                    .build()
            }
        };
        slot.in_flight += 1;
        slot.send_op = Some(Kind::Send);
        let entry = entry.user_data(user_data(Kind::Send, slot.endpoint.generation, index));
        // SAFETY: the bytes belong to `progress` (its vector and its shared memory), the header to
        // the boxed `gather`; both stay in the slot, untouched, until the completion of this send
        // takes them out, and the slot stays with the socket until then. Growing the table of slots
        // moves neither the vector's bytes nor the box's content.
        unsafe { self.ring.push(entry) };
    }

    /// Cancels all operations on a socket, and closes it when the kernel is done with them.
    pub(super) fn forget(&mut self, index: u32) {
        let slot = self.slots.get(index);
        assert!(slot.is_open(), "a socket is closed once");
        slot.is_closing = true;
        slot.endpoint.wants = false;
        let (receiving, send_op) = (slot.receiving, slot.send_op);
        if slot.in_flight == 0 {
            self.let_go(index);
            return;
        }
        match receiving {
            Receiving::Armed => {
                slot.receiving = Receiving::Cancelling;
                self.cancel(index, Kind::Receive);
            }
            Receiving::Polling => self.cancel(index, Kind::Arrival),
            Receiving::Idle | Receiving::Cancelling | Receiving::Starved => {}
        }
        if let Some(kind) = send_op {
            self.cancel(index, kind);
        }
    }

    /// Closes the descriptor of a slot that the kernel is done with.
    pub(super) fn let_go(&mut self, index: u32) {
        let sending = self.slots.remove(index);
        self.parts.recycle(sending);
    }

    /// Receives again on sockets that found no buffer, as many as there are buffers now.
    pub(super) fn rearm_starved(&mut self) {
        self.rearm_starved_datagrams();
        let mut room = self.buffers.offered();
        while room > 0 {
            let Some(index) = self.starved.pop_front() else {
                return;
            };
            let slot = self.slots.peek(index);
            // Closed, paused or resumed meanwhile; the slot may even belong to another socket.
            if slot.receiving == Receiving::Starved {
                if slot.is_open() && slot.endpoint.wants {
                    self.arm_receive(index);
                    room -= 1;
                } else {
                    self.slots.get(index).receiving = Receiving::Idle;
                }
            }
        }
    }

    /// How long the kernel may wait; `None` for no limit.
    pub(super) fn timeout(&self, until: Option<Nanos>) -> Option<Timespec> {
        let left = until?.0.saturating_sub(self.parts.clock.now.0);
        Some(
            Timespec::new()
                .sec(left / 1_000_000_000)
                .nsec((left % 1_000_000_000) as u32),
        )
    }
}
