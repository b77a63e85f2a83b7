//! The operations that the ring engine gives to the kernel, and takes back.

use std::os::fd::{AsFd, AsRawFd};

use io_uring::types::{CancelBuilder, Fd, Timespec};
use io_uring::{opcode, squeue};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};

use crate::clock::Clock;
use crate::driver::{Completion, Done, Driver, IoCounters, Nanos, Socket, Token};
use crate::file_send::{FileSend, Step};
use crate::gather::Gather;
use crate::helpers::Asker;
use crate::ktls::Stage;
use crate::uring::slots::{Kind, Receiving, Sending, user_data};
use crate::uring::{GATHERS_KEPT_MAX, Posted, Uring, buffers};

impl Uring {
    /// Receives twice on a non-blocking socket with one submission, in order to learn whether the
    /// kernel does multishot receives from provided buffers, and waits on such sockets.
    pub(super) fn try_out(&mut self) -> Result<(), Errno> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )?;
        self.waits_nonblocking = true;
        let socket = Socket(self.slots.insert(ours, true));
        self.receive(socket, Token(0));
        let mut out = Vec::new();
        // Submits; a kernel that refuses to wait answers at once, and then a poll is armed.
        let soon = Nanos(self.clock.now.0.saturating_add(1));
        self.wait(Some(soon), &mut out)?;
        let mut received = 0;
        for text in [b"one", b"two"] {
            rustix::io::write(&theirs, text)?;
            let late = Nanos(Clock::read().now.0.saturating_add(1_000_000_000));
            self.wait(Some(late), &mut out)?;
            for completion in out.drain(..) {
                if let Done::Received(lease) = completion.result? {
                    received += usize::from(self.received(&lease) == text);
                    self.release(lease);
                }
            }
        }
        self.close(socket);
        let soon = Nanos(Clock::read().now.0.saturating_add(1));
        self.wait(Some(soon), &mut out)?;
        self.counters = IoCounters::default();
        if received == 2 {
            Ok(())
        } else {
            Err(Errno::OPNOTSUPP)
        }
    }

    pub(super) fn watch_bell(&mut self) {
        let fd = Fd(self.disk.bell.as_fd().as_raw_fd());
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

    pub(super) fn start_receiving(&mut self, socket: Socket, token: Token, once: bool) {
        let slot = self.slots.get(socket.0);
        debug_assert!(slot.is_open(), "a socket in use");
        slot.wants = true;
        slot.wants_once = once;
        slot.receive_token = Some(token);
        if slot.receiving == Receiving::Idle {
            self.arm_receive(socket.0);
        }
    }

    pub(super) fn arm_receive(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let fd = Fd(slot.socket().as_raw_fd());
        slot.receiving = Receiving::Armed;
        slot.in_flight += 1;
        let entry = if slot.wants_once {
            // A length of zero stands for that of the buffer that the kernel takes.
            opcode::Recv::new(fd, std::ptr::null_mut(), 0)
                .buf_group(buffers::GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT)
        } else {
            opcode::RecvMulti::new(fd, buffers::GROUP).build()
        };
        let entry = entry.user_data(user_data(Kind::Receive, slot.generation, index));
        // SAFETY: the memory it writes to is that of the buffer ring, which outlives the ring and
        // in which we do not touch what is offered.
        unsafe { self.ring.push(entry) };
    }

    pub(super) fn arm_poll(&mut self, index: u32, kind: Kind, events: libc::c_short) {
        let slot = self.slots.get(index);
        slot.in_flight += 1;
        if kind == Kind::Room {
            slot.send_op = Some(kind);
        }
        let entry = opcode::PollAdd::new(Fd(slot.socket().as_raw_fd()), events as u32)
            .build()
            .user_data(user_data(kind, slot.generation, index));
        // SAFETY: a poll names no memory.
        unsafe { self.ring.push(entry) };
    }

    /// Asks an operation of a socket back.
    pub(super) fn cancel(&mut self, index: u32, kind: Kind) {
        let reply = match kind {
            Kind::Receive | Kind::Arrival => Kind::CancelReceive,
            _ => Kind::CancelSend,
        };
        let generation = self.slots.peek(index).generation;
        self.push_cancel(
            user_data(kind, generation, index),
            user_data(reply, generation, index),
        );
    }

    pub(super) fn cancel_accept(&mut self, index: u32) {
        let reply = user_data(Kind::CancelAccept, 0, index);
        self.push_cancel(user_data(Kind::Accept, 0, index), reply);
    }

    fn push_cancel(&mut self, target: u64, reply: u64) {
        let entry = opcode::AsyncCancel2::new(CancelBuilder::user_data(target))
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(reply);
        // SAFETY: a cancellation names no memory.
        unsafe { self.ring.push(entry) };
    }

    /// Submits what is left of the list in the slot.
    pub(super) fn submit_list(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let fd = Fd(slot.socket().as_raw_fd());
        let Sending::List {
            progress, gather, ..
        } = &mut slot.sending
        else {
            unreachable!("the caller has put a list there")
        };
        let mut flags = libc::MSG_NOSIGNAL;
        if !slot.is_unix && slot.kernel_tls == Stage::Plain {
            // The kernel continues a short send by itself. Not on a Unix socket, where progress
            // can only be seen from completions; and kernel TLS refuses the flag (EOPNOTSUPP).
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
                let gather =
                    gather.get_or_insert_with(|| self.gathers.pop().unwrap_or_else(Gather::new));
                opcode::SendMsg::new(fd, gather.fill(progress))
                    .flags(flags as u32)
                    .build()
            }
        };
        slot.in_flight += 1;
        slot.send_op = Some(Kind::Send);
        let entry = entry.user_data(user_data(Kind::Send, slot.generation, index));
        // SAFETY: the bytes belong to `progress` (its vector and its shared memory), the header
        // to the boxed `gather`; both stay in the slot, untouched, until the completion of this
        // send takes them out, and the slot stays with the socket until then. Growing the table of
        // slots moves neither the vector's bytes nor the box's content.
        unsafe { self.ring.push(entry) };
    }

    /// Sends the control record in the slot, or waits for room: a plain call, which does not block.
    pub(super) fn step_control(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let Sending::Control(token, record) = &slot.sending else {
            return;
        };
        let token = *token;
        let result = match record.send(slot.socket()) {
            Err(Errno::AGAIN) => {
                self.arm_poll(index, Kind::Room, libc::POLLOUT);
                return;
            }
            result => result,
        };
        slot.sending = Sending::Nothing;
        slot.sent += result.unwrap_or(0);
        self.post(
            index,
            Completion {
                token,
                result: result.map(Done::Sent),
                more: false,
            },
        );
        self.shut_down_if_asked(index);
    }

    /// Goes on with the file send of the slot as far as possible.
    pub(super) fn step_file(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let asker = Asker {
            slot: index,
            generation: slot.generation,
        };
        let Sending::File(mut sending) = std::mem::take(&mut slot.sending) else {
            return;
        };
        let step = sending.step(slot.socket(), &mut self.disk, asker, self.clock.now);
        match step {
            Step::Done(result) => self.end_file(index, *sending, result),
            Step::Room { .. } => {
                slot.sending = Sending::File(sending);
                self.arm_poll(index, Kind::Room, libc::POLLOUT);
            }
            Step::Helper => slot.sending = Sending::File(sending),
        }
    }

    pub(super) fn end_file(&mut self, index: u32, sending: FileSend, result: Result<u64, Errno>) {
        self.counters.short_sends += sending.shorts;
        let token = sending.token;
        self.outputs.give_back(sending.into_vec());
        self.slots.get(index).sent += result.unwrap_or(0);
        self.post(
            index,
            Completion {
                token,
                result: result.map(Done::Sent),
                more: false,
            },
        );
        self.shut_down_if_asked(index);
    }

    pub(super) fn post(&mut self, index: u32, completion: Completion) {
        let asker = Asker {
            slot: index,
            generation: self.slots.peek(index).generation,
        };
        self.posted.push(Posted { asker, completion });
    }

    pub(super) fn shut_down_if_asked(&mut self, index: u32) {
        let slot = self.slots.peek(index);
        if slot.shuts_down {
            // Not connected any more: the peer knows.
            let _ = rustix::net::shutdown(slot.socket(), Shutdown::Write);
        }
    }

    /// Takes the send of a slot apart for reuse.
    pub(super) fn recycle(&mut self, sending: Sending) {
        match sending {
            Sending::Nothing | Sending::Control(..) => {}
            Sending::List {
                progress, gather, ..
            } => {
                self.outputs.give_back(progress.into_list().wire);
                if let Some(gather) = gather.filter(|_| self.gathers.len() < GATHERS_KEPT_MAX) {
                    self.gathers.push(gather);
                }
            }
            Sending::File(sending) => self.outputs.give_back(sending.into_vec()),
        }
    }

    pub(super) fn forget(&mut self, socket: Socket, resets: bool) {
        let index = socket.0;
        let slot = self.slots.get(index);
        assert!(slot.is_open(), "a socket is closed once");
        if resets {
            crate::socket::reset_on_close(slot.socket());
        }
        slot.is_closing = true;
        slot.wants = false;
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

    /// Closes the descriptor of a slot that the kernel has let go of.
    pub(super) fn let_go(&mut self, index: u32) {
        let sending = self.slots.remove(index);
        self.recycle(sending);
    }

    pub(super) fn deliver_posted(&mut self, out: &mut Vec<Completion>) {
        for Posted { asker, completion } in self.posted.drain(..) {
            let slot = self.slots.peek(asker.slot);
            if slot.generation == asker.generation && slot.is_open() {
                out.push(completion);
            } else {
                self.counters.stale += 1;
            }
        }
    }

    /// Receives again for sockets that found no buffer, as many as there are buffers now.
    pub(super) fn rearm_starved(&mut self) {
        let mut room = self.buffers.offered();
        while room > 0 {
            let Some(index) = self.starved.pop_front() else {
                return;
            };
            let slot = self.slots.peek(index);
            // Closed, paused or resumed meanwhile; its slot may even be another socket's.
            if slot.receiving == Receiving::Starved {
                if slot.is_open() && slot.wants {
                    self.arm_receive(index);
                    room -= 1;
                } else {
                    self.slots.get(index).receiving = Receiving::Idle;
                }
            }
        }
    }

    /// How long the kernel may wait: `None` for as long as it takes.
    pub(super) fn timeout(&self, until: Option<Nanos>) -> Option<Timespec> {
        let left = until?.0.saturating_sub(self.clock.now.0);
        Some(
            Timespec::new()
                .sec(left / 1_000_000_000)
                .nsec((left % 1_000_000_000) as u32),
        )
    }
}
