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
mod operations;
mod ring;
mod slots;

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use io_uring::types::CancelBuilder;
use io_uring::{opcode, squeue};
use rustix::io::Errno;

use crate::clock::Clock;
use crate::disk::Disk;
use crate::driver::{
    Completion, DirectoryEntry, Done, Driver, EngineReport, File, IoCounters, Lease, Listener,
    Meta, Nanos, OpenedFile, Root, SendList, Socket, Started, Token, Waker,
};
use crate::file_send::FileSend;
use crate::gather::Gather;
use crate::helpers::Asker;
use crate::ktls::{self, ControlRecord, ControlType, Stage, TxKeys};
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
            self.cancel_accept(listener.0);
        } else {
            self.drain_listener(listener.0);
        }
    }

    fn peer(&self, socket: Socket) -> String {
        crate::net::peer(self.slots.peek(socket.0).socket())
    }

    fn receive(&mut self, socket: Socket, token: Token) {
        self.start_receiving(socket, token, false);
    }

    fn receive_once(&mut self, socket: Socket, token: Token) {
        self.start_receiving(socket, token, true);
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

    fn output_of(&mut self, len: usize) -> Vec<u8> {
        self.outputs.take_of(len)
    }

    fn give_back(&mut self, bytes: Vec<u8>) {
        self.disk.give_back(bytes);
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

    fn seal_in_kernel(&mut self, socket: Socket, keys: &TxKeys<'_>) -> Result<(), Errno> {
        let slot = self.slots.get(socket.0);
        assert!(
            matches!(slot.sending, Sending::Nothing),
            "keys change between sends"
        );
        let fd = slot.fd.as_ref().expect("a slot in use has its descriptor");
        ktls::seal(fd.as_fd(), &mut slot.kernel_tls, keys)
    }

    fn send_control(&mut self, socket: Socket, token: Token, control: ControlType, content: &[u8]) {
        let slot = self.slots.get(socket.0);
        assert!(
            matches!(slot.sending, Sending::Nothing),
            "one send at a time"
        );
        assert_eq!(slot.kernel_tls, Stage::Sealing, "the kernel seals");
        slot.sending = Sending::Control(token, ControlRecord::new(control, content));
        self.step_control(socket.0);
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

    fn bound_unsent(&mut self, socket: Socket, bytes: u32) {
        crate::socket::bound_unsent(self.slots.peek(socket.0).socket(), bytes);
    }

    fn cork(&mut self, socket: Socket, on: bool) {
        crate::socket::cork(self.slots.peek(socket.0).socket(), on);
    }

    fn acknowledged(&mut self, socket: Socket) -> u64 {
        let slot = self.slots.peek(socket.0);
        crate::socket::acknowledged(slot.socket()).unwrap_or_else(|| {
            let under_way = match &slot.sending {
                Sending::Nothing | Sending::Control(..) => 0,
                Sending::List { progress, .. } => progress.sent(),
                Sending::File(sending) => sending.sent(),
            };
            (slot.sent + under_way).saturating_sub(crate::socket::unsent(slot.socket()))
        })
    }

    fn open(&mut self, root: &Root, path: &[u8], token: Token) -> Started<OpenedFile> {
        self.disk.open(root, path, token)
    }

    fn peek(&self, root: &Root, path: &[u8]) -> Option<Meta> {
        root.as_real().peek(path)
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

    fn snapshot(&mut self, bytes: &[u8]) -> Result<File, Errno> {
        crate::memory::sealed_bytes(bytes)
    }

    fn is_local(&self, socket: Socket) -> bool {
        crate::socket::is_local(self.slots.peek(socket.0).socket())
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
            .user_data(user_data(Kind::CancelAccept, 0, 0));
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
