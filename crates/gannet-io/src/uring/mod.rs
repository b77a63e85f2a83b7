//! The io_uring engine: multishot accept and receive, provided buffers, one enter per turn.
//!
//! A small answer costs one receive completion and one send submission. What the ring is bad at
//! (it gives `splice`, `statx` and `shutdown` to worker threads) is done by plain system calls:
//! `sendfile`, `openat2`, `fstat`, `shutdown`, which do not block in the way they are used here.
//!
//! # Teardown
//!
//! `close` cancels what the kernel has of the socket, by `user_data` (a look-up by descriptor
//! would walk over all operations), and the descriptor is closed when the last completion has come:
//! usually within the same turn. The slot is not used for another socket before that.

mod buffers;
mod completions;
mod ring;
mod slots;

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use io_uring::types::{CancelBuilder, Fd, Timespec};
use io_uring::{opcode, squeue};
use rustix::io::Errno;

use crate::clock::Clock;
use crate::disk::Disk;
use crate::driver::{
    Completion, DirectoryEntry, Done, Driver, EngineReport, File, IoCounters, Lease, Listener,
    Meta, Nanos, OpenedFile, Root, SendList, Socket, Started, Token, Waker,
};
use crate::file_send::{FileSend, Step};
use crate::gather::Gather;
use crate::helpers::Asker;
use crate::options::EngineOptions;
use crate::outputs::Outputs;
use crate::probe::Unavailable;
use crate::progress::Progress;
use crate::uring::buffers::Buffers;
use crate::uring::ring::Ring;
use crate::uring::slots::{Kind, Receiving, Sending, Slots, user_data};

/// A driver on io_uring. To be created on the thread that uses it.
pub struct Uring {
    // The order matters to drop: the ring goes before the buffers that it may write to. (Rust
    // drops fields in the order of their declaration.)
    ring: Ring,
    buffers: Buffers,
    slots: Slots,
    listeners: Vec<Listening>,
    disk: Disk,
    clock: Clock,
    /// Ends of operations that needed no kernel completion; delivered by the next wait.
    posted: Vec<Posted>,
    /// Sockets that want to receive and found no buffer.
    starved: VecDeque<u32>,
    outputs: Outputs,
    gathers: Vec<Gather>,
    counters: IoCounters,
    /// Whether the kernel waits for a non-blocking socket as for a blocking one. If so, sockets are
    /// accepted non-blocking, as `sendfile` needs them.
    waits_nonblocking: bool,
}

/// A listener.
struct Listening {
    /// `None` once closed.
    fd: Option<OwnedFd>,
    token: Token,
    /// An accept is with the kernel.
    is_armed: bool,
    /// The caller wants no more connections.
    is_stopping: bool,
    is_unix: bool,
}

/// The end of an operation of a socket, not delivered yet.
struct Posted {
    asker: Asker,
    completion: Completion,
}

/// Gathers kept for reuse.
const GATHERS_KEPT_MAX: usize = 64;

impl Uring {
    /// Sets up a ring that accepts from `listeners`, and tries it out.
    ///
    /// # Errors
    /// [`Unavailable`] tells what this kernel lacks or forbids, and what to do about it.
    /// [`probe::check`](crate::probe::check) finds that out without giving listeners away.
    pub fn new(listeners: Vec<OwnedFd>, options: &EngineOptions) -> Result<Self, Unavailable> {
        let ring = Ring::new(options.entries, options.completions)?;
        let buffers = Buffers::new(ring.uring(), options.buffers, options.buffer_len)
            .map_err(|errno| Unavailable::explain("provided buffer ring", errno))?;
        let disk =
            Disk::new(options.helpers).map_err(|errno| Unavailable::explain("eventfd", errno))?;
        let mut engine = Self {
            ring,
            buffers,
            slots: Slots::default(),
            listeners: listeners.into_iter().map(Listening::new).collect(),
            disk,
            clock: Clock::read(),
            posted: Vec::new(),
            starved: VecDeque::new(),
            outputs: Outputs::default(),
            gathers: Vec::new(),
            counters: IoCounters::default(),
            waits_nonblocking: false,
        };
        engine
            .try_out()
            .map_err(|errno| Unavailable::explain("multishot receive", errno))?;
        engine.watch_bell();
        Ok(engine)
    }

    /// Receives twice on a non-blocking socket with one submission, in order to learn whether the
    /// kernel does multishot receives from provided buffers, and waits on such sockets.
    fn try_out(&mut self) -> Result<(), Errno> {
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK,
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

    fn watch_bell(&mut self) {
        let fd = Fd(self.disk.bell.as_fd().as_raw_fd());
        let entry = opcode::PollAdd::new(fd, libc::POLLIN as u32)
            .multi(true)
            .build()
            .user_data(user_data(Kind::Bell, 0, 0));
        // SAFETY: a poll names no memory.
        unsafe { self.ring.push(entry) };
    }

    fn arm_accept(&mut self, index: u32) {
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

    fn arm_receive(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let fd = Fd(slot.socket().as_raw_fd());
        slot.receiving = Receiving::Armed;
        slot.in_flight += 1;
        let entry = opcode::RecvMulti::new(fd, buffers::GROUP)
            .build()
            .user_data(user_data(Kind::Receive, slot.generation, index));
        // SAFETY: the memory it writes to is that of the buffer ring, which outlives the ring and
        // in which we do not touch what is offered.
        unsafe { self.ring.push(entry) };
    }

    fn arm_poll(&mut self, index: u32, kind: Kind, events: libc::c_short) {
        let slot = self.slots.get(index);
        slot.in_flight += 1;
        let entry = opcode::PollAdd::new(Fd(slot.socket().as_raw_fd()), events as u32)
            .build()
            .user_data(user_data(kind, slot.generation, index));
        // SAFETY: a poll names no memory.
        unsafe { self.ring.push(entry) };
    }

    fn cancel(&mut self, index: u32, kind: Kind) {
        let generation = self.slots.peek(index).generation;
        let target = user_data(kind, generation, index);
        let entry = opcode::AsyncCancel2::new(CancelBuilder::user_data(target))
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(user_data(Kind::Cancel, generation, index));
        // SAFETY: a cancellation names no memory.
        unsafe { self.ring.push(entry) };
    }

    /// Submits what is left of the list in the slot.
    fn submit_list(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let fd = Fd(slot.socket().as_raw_fd());
        let Sending::List {
            progress, gather, ..
        } = &mut slot.sending
        else {
            unreachable!("the caller has put a list there")
        };
        let mut flags = libc::MSG_NOSIGNAL;
        if !slot.is_unix {
            // The kernel continues a short send by itself. Not on a Unix socket, where progress
            // can only be seen from completions.
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
        let entry = entry.user_data(user_data(Kind::Send, slot.generation, index));
        // SAFETY: the bytes belong to `progress` (its vector and its shared memory), the header
        // to the boxed `gather`; both stay in the slot, untouched, until the completion of this
        // send takes them out, and the slot stays with the socket until then. Growing the table of
        // slots moves neither the vector's bytes nor the box's content.
        unsafe { self.ring.push(entry) };
    }

    /// Goes on with the file send of the slot as far as possible.
    fn step_file(&mut self, index: u32) {
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

    fn end_file(&mut self, index: u32, sending: FileSend, result: Result<u64, Errno>) {
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

    fn post(&mut self, index: u32, completion: Completion) {
        let asker = Asker {
            slot: index,
            generation: self.slots.peek(index).generation,
        };
        self.posted.push(Posted { asker, completion });
    }

    fn shut_down_if_asked(&mut self, index: u32) {
        let slot = self.slots.peek(index);
        if slot.shuts_down {
            // Not connected any more: the peer knows.
            let _ = rustix::net::shutdown(slot.socket(), rustix::net::Shutdown::Write);
        }
    }

    /// Takes the send of a slot apart for reuse.
    fn recycle(&mut self, sending: Sending) {
        match sending {
            Sending::Nothing => {}
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

    fn forget(&mut self, socket: Socket, resets: bool) {
        let index = socket.0;
        let slot = self.slots.get(index);
        assert!(slot.is_open(), "a socket is closed once");
        if resets {
            crate::socket::reset_on_close(slot.socket());
        }
        slot.is_closing = true;
        slot.wants = false;
        let receiving = slot.receiving;
        let kind_sending = match &slot.sending {
            Sending::Nothing => None,
            Sending::List { .. } => Some(Kind::Send),
            Sending::File(_) => Some(Kind::Room),
        };
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
        if let Some(kind) = kind_sending {
            self.cancel(index, kind);
            if kind == Kind::Send {
                // It may be waiting for room after `EAGAIN`.
                self.cancel(index, Kind::Room);
            }
        }
    }

    /// Closes the descriptor of a slot that the kernel has let go of.
    fn let_go(&mut self, index: u32) {
        let sending = self.slots.remove(index);
        self.recycle(sending);
    }

    fn deliver_posted(&mut self, out: &mut Vec<Completion>) {
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
    fn rearm_starved(&mut self) {
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
    fn timeout(&self, until: Option<Nanos>) -> Option<Timespec> {
        let left = until?.0.saturating_sub(self.clock.now.0);
        Some(
            Timespec::new()
                .sec(left / 1_000_000_000)
                .nsec((left % 1_000_000_000) as u32),
        )
    }
}

impl Listening {
    fn new(fd: OwnedFd) -> Self {
        let is_unix = crate::net::local_addr(&fd).is_ok_and(|address| address.is_none());
        Self {
            fd: Some(fd),
            token: Token(0),
            is_armed: false,
            is_stopping: false,
            is_unix,
        }
    }
}

impl Driver for Uring {
    fn now(&self) -> Nanos {
        self.clock.now
    }

    fn unix_seconds(&self) -> i64 {
        self.clock.unix_seconds
    }

    fn report(&self) -> EngineReport {
        let mut in_use = vec![
            "multishot accept",
            "multishot receive",
            "provided buffers",
            "deferred task work",
        ];
        let mut missing = Vec::new();
        let mut optional = |has, name, why: &str| {
            if has {
                in_use.push(name);
            } else {
                missing.push((name, why.to_owned()));
            }
        };
        optional(
            self.ring.is_registered(),
            "registered ring",
            "the kernel refused it",
        );
        optional(
            self.ring.is_direct,
            "direct submission queue",
            "needs Linux 6.6",
        );
        EngineReport {
            name: "io_uring",
            in_use,
            missing,
        }
    }

    fn counters(&self) -> IoCounters {
        IoCounters {
            enters: self.ring.enters,
            submissions: self.ring.submissions,
            queue_full: self.ring.queue_full,
            completion_overflows: self.ring.overflows,
            helped: self.disk.helped,
            ..self.counters
        }
    }

    fn waker(&mut self, token: Token) -> Waker {
        self.disk.waker(token)
    }

    fn accept(&mut self, listener: Listener, token: Token) {
        let listening = &mut self.listeners[listener.0 as usize];
        listening.token = token;
        if !listening.is_armed && !listening.is_stopping {
            self.arm_accept(listener.0);
        }
    }

    fn stop_accepting(&mut self, listener: Listener) {
        let listening = &mut self.listeners[listener.0 as usize];
        listening.is_stopping = true;
        if listening.is_armed {
            let target = user_data(Kind::Accept, 0, listener.0);
            let entry = opcode::AsyncCancel2::new(CancelBuilder::user_data(target))
                .build()
                .flags(squeue::Flags::SKIP_SUCCESS)
                .user_data(user_data(Kind::Cancel, 0, u32::MAX));
            // SAFETY: a cancellation names no memory.
            unsafe { self.ring.push(entry) };
        } else {
            self.drain_listener(listener.0);
        }
    }

    fn peer(&self, socket: Socket) -> String {
        crate::net::peer(self.slots.peek(socket.0).socket())
    }

    fn receive(&mut self, socket: Socket, token: Token) {
        let slot = self.slots.get(socket.0);
        debug_assert!(slot.is_open(), "a socket in use");
        slot.wants = true;
        slot.receive_token = Some(token);
        if slot.receiving == Receiving::Idle {
            self.arm_receive(socket.0);
        }
    }

    fn pause_receiving(&mut self, socket: Socket) {
        let slot = self.slots.get(socket.0);
        slot.wants = false;
        if slot.receiving == Receiving::Armed {
            slot.receiving = Receiving::Cancelling;
            self.cancel(socket.0, Kind::Receive);
        }
    }

    fn received<'a>(&'a self, lease: &Lease) -> &'a [u8] {
        self.buffers.bytes(lease)
    }

    fn release(&mut self, lease: Lease) {
        self.buffers.release(lease);
    }

    fn output(&mut self) -> Vec<u8> {
        self.outputs.take()
    }

    fn send(&mut self, socket: Socket, token: Token, list: SendList) {
        let index = socket.0;
        let slot = self.slots.get(index);
        debug_assert!(slot.is_open(), "a socket in use");
        assert!(
            matches!(slot.sending, Sending::Nothing),
            "one send at a time"
        );
        let progress = Progress::new(list);
        if progress.is_done() {
            self.outputs.give_back(progress.into_list().wire);
            self.post(
                index,
                Completion {
                    token,
                    result: Ok(Done::Sent(0)),
                    more: false,
                },
            );
            return;
        }
        slot.sending = Sending::List {
            token,
            progress,
            gather: None,
        };
        self.submit_list(index);
    }

    fn send_file(
        &mut self,
        socket: Socket,
        token: Token,
        head: Vec<u8>,
        file: &File,
        offset: u64,
        len: u64,
    ) {
        let slot = self.slots.get(socket.0);
        assert!(
            matches!(slot.sending, Sending::Nothing),
            "one send at a time"
        );
        if !self.waits_nonblocking {
            // `sendfile` has no flag of its own for not waiting.
            let _ = rustix::io::ioctl_fionbio(slot.socket(), true);
        }
        slot.sending = Sending::File(Box::new(FileSend::new(token, head, file, offset, len)));
        self.step_file(socket.0);
    }

    fn shutdown_write(&mut self, socket: Socket) {
        let slot = self.slots.get(socket.0);
        slot.shuts_down = true;
        // Otherwise when the send that is under way has ended.
        if matches!(slot.sending, Sending::Nothing) {
            self.shut_down_if_asked(socket.0);
        }
    }

    fn close(&mut self, socket: Socket) {
        self.forget(socket, false);
    }

    fn reset(&mut self, socket: Socket) {
        self.forget(socket, true);
    }

    fn unsent(&mut self, socket: Socket) -> u64 {
        crate::socket::unsent(self.slots.peek(socket.0).socket())
    }

    fn acknowledged(&mut self, socket: Socket) -> u64 {
        let slot = self.slots.peek(socket.0);
        crate::socket::acknowledged(slot.socket()).unwrap_or_else(|| {
            let under_way = match &slot.sending {
                Sending::Nothing => 0,
                Sending::List { progress, .. } => progress.sent(),
                Sending::File(sending) => sending.sent(),
            };
            (slot.sent + under_way).saturating_sub(crate::socket::unsent(slot.socket()))
        })
    }

    fn open(&mut self, root: &Root, path: &[u8], token: Token) -> Started<OpenedFile> {
        self.disk.open(root, path, token)
    }

    fn meta(&mut self, file: &File) -> Result<Meta, Errno> {
        file.as_real().meta()
    }

    fn read(&mut self, file: &File, offset: u64, len: usize, token: Token) -> Started<Vec<u8>> {
        self.disk.read(file, offset, len, token)
    }

    fn list(
        &mut self,
        root: &Root,
        path: &[u8],
        max: usize,
        token: Token,
    ) -> Started<Vec<DirectoryEntry>> {
        self.disk.list(root, path, max, token)
    }

    fn guard(&mut self, file: &File, token: Token) -> Result<(), Errno> {
        self.disk.guard(file, token)
    }

    fn unguard(&mut self, file: &File) {
        self.disk.unguard(file);
    }

    fn wait(&mut self, until: Option<Nanos>, out: &mut Vec<Completion>) -> Result<(), Errno> {
        let before = out.len();
        self.rearm_starved();
        self.deliver_posted(out);
        if out.len() > before || self.ring.has_completions() {
            // Something is there to be handled: look what else is, but do not wait for it.
            self.ring.enter(0, None)?;
        } else {
            let timeout = self.timeout(until);
            self.ring.enter(1, timeout)?;
        }
        self.clock = Clock::read();
        self.reap(out);
        self.deliver_posted(out);
        self.counters.completions += (out.len() - before) as u64;
        Ok(())
    }
}

impl Drop for Uring {
    /// Cancels everything and waits until the kernel has let go of all memory.
    fn drop(&mut self) {
        let everything = opcode::AsyncCancel2::new(CancelBuilder::any())
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS)
            .user_data(user_data(Kind::Cancel, 0, u32::MAX));
        // SAFETY: a cancellation names no memory.
        unsafe { self.ring.push(everything) };
        let mut out = Vec::new();
        for listening in &mut self.listeners {
            listening.is_stopping = true;
        }
        for index in 0..self.slots.len() as u32 {
            if self.slots.peek(index).is_open() {
                self.forget(Socket(index), false);
            }
        }
        let in_flight =
            |slots: &Slots| (0..slots.len() as u32).any(|i| slots.peek(i).in_flight > 0);
        const TURNS_MAX: usize = 1000;
        for _ in 0..TURNS_MAX {
            if !in_flight(&self.slots) {
                return;
            }
            let later = Nanos(Clock::read().now.0.saturating_add(1_000_000));
            if self.wait(Some(later), &mut out).is_err() {
                break;
            }
            for completion in out.drain(..) {
                if let Ok(Done::Received(lease)) = completion.result {
                    self.release(lease);
                }
            }
        }
        // Rather lose the memory than free what the kernel may still read or write.
        std::mem::forget(std::mem::take(&mut self.slots));
        self.buffers.leak();
    }
}
