//! The epoll engine: does the call, keeps the operation on `EAGAIN`, posts a completion.
//!
//! One edge-triggered registration per socket, made when it is accepted and ended by closing it.
//! A small answer costs one `recv`, one `send`, and its share of an `epoll_wait`.

mod buffers;
mod calls;
mod slots;

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::Timespec;

use crate::clock::Clock;
use crate::disk::Disk;
use crate::driver::{
    Completion, DirectoryEntry, Driver, EngineReport, File, IoCounters, Lease, Listener, Meta,
    Nanos, OpenedFile, Root, SendList, Socket, Started, Token, Waker,
};
use crate::epoll::buffers::Buffers;
use crate::epoll::slots::{Sending, Slots};
use crate::file_send::FileSend;
use crate::gather::Gather;
use crate::helpers::Asker;
use crate::ktls::{self, ControlRecord, ControlType, Stage, TxKeys};
use crate::options::EngineOptions;
use crate::outputs::Outputs;
use crate::progress::Progress;

/// A driver on epoll and plain system calls.
pub struct Epoll {
    epoll: OwnedFd,
    buffers: Buffers,
    slots: Slots,
    listeners: Vec<Listening>,
    disk: Disk,
    clock: Clock,
    /// Ends of operations, delivered by the next wait.
    posted: Vec<Posted>,
    /// Sockets with something to receive, or perhaps; each at most once (`is_listed`).
    arrivals: VecDeque<u32>,
    outputs: Outputs,
    gather: Gather,
    counters: IoCounters,
}

/// A listener.
struct Listening {
    /// `None` once closed.
    fd: Option<OwnedFd>,
    token: Token,
}

/// The end of an operation of a socket, not delivered yet.
struct Posted {
    asker: Asker,
    completion: Completion,
}

/// Events taken from the kernel in one call.
const EVENTS_PER_CALL: usize = 256;

/// What an event is about: `user data` of the registration. Sockets are their slots.
const LISTENER: u64 = 1 << 32;
const BELL: u64 = 1 << 33;

impl Epoll {
    /// Creates an engine that accepts from `listeners`.
    ///
    /// # Errors
    /// Those of `epoll_create`, `epoll_ctl` and `eventfd` (`EMFILE`, `ENOMEM`).
    pub fn new(listeners: Vec<OwnedFd>, options: &EngineOptions) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let disk = Disk::new(options.helpers)?;
        epoll::add(
            &epoll,
            disk.bell.as_fd(),
            EventData::new_u64(BELL),
            EventFlags::IN,
        )?;
        for (index, listener) in listeners.iter().enumerate() {
            rustix::io::ioctl_fionbio(listener, true)?;
            let data = EventData::new_u64(LISTENER | index as u64);
            // No events before somebody accepts.
            epoll::add(&epoll, listener, data, EventFlags::empty())?;
        }
        let listening = |fd| Listening {
            fd: Some(fd),
            token: Token(0),
        };
        Ok(Self {
            epoll,
            buffers: Buffers::new(options.buffers, options.buffer_len),
            slots: Slots::default(),
            listeners: listeners.into_iter().map(listening).collect(),
            disk,
            clock: Clock::read(),
            posted: Vec::new(),
            arrivals: VecDeque::new(),
            outputs: Outputs::default(),
            gather: Gather::new(),
            counters: IoCounters::default(),
        })
    }

    fn post(&mut self, index: u32, completion: Completion) {
        let asker = Asker {
            slot: index,
            generation: self.slots.peek(index).generation,
        };
        self.posted.push(Posted { asker, completion });
    }

    fn deliver_posted(&mut self, out: &mut Vec<Completion>) {
        for Posted { asker, completion } in self.posted.drain(..) {
            if self.slots.peek(asker.slot).generation == asker.generation {
                out.push(completion);
            } else {
                self.counters.stale += 1;
            }
        }
    }

    fn start_receiving(&mut self, socket: Socket, token: Token, once: bool) {
        let slot = self.slots.get(socket.0);
        debug_assert!(slot.fd.is_some(), "a socket in use");
        slot.wants = true;
        slot.wants_once = once;
        slot.receive_token = Some(token);
        self.list_arrival(socket.0);
    }

    fn list_arrival(&mut self, index: u32) {
        let slot = self.slots.get(index);
        if slot.wants && slot.is_readable && !slot.is_listed {
            slot.is_listed = true;
            self.arrivals.push_back(index);
        }
    }

    /// Receives once from every socket in the list.
    fn receive_arrivals(&mut self, out: &mut Vec<Completion>) {
        for _ in 0..self.arrivals.len() {
            if !self.buffers.has_free() {
                // The rest stays in the list until buffers have returned.
                self.counters.no_buffers += 1;
                return;
            }
            let Some(index) = self.arrivals.pop_front() else {
                return;
            };
            let slot = self.slots.get(index);
            slot.is_listed = false;
            if slot.fd.is_some() && slot.wants && slot.is_readable {
                self.receive_once(index, out);
                self.list_arrival(index);
            }
        }
    }

    fn handle_event(&mut self, event: Event, out: &mut Vec<Completion>) {
        let data = event.data.u64();
        let flags = event.flags;
        if data == BELL {
            for (asker, answer) in self.disk.hear(out) {
                self.on_helper(asker, answer);
            }
        } else if data & LISTENER != 0 {
            self.accept_some(data as u32, out);
        } else {
            let index = data as u32;
            let ends = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
            let slot = self.slots.get(index);
            if flags.intersects(ends) {
                slot.has_ended = true;
            }
            if flags.intersects(EventFlags::IN | ends) {
                slot.is_readable = true;
                self.list_arrival(index);
            }
            if flags.intersects(EventFlags::OUT | ends) {
                self.on_room(index);
            }
        }
    }
}

impl Driver for Epoll {
    fn now(&self) -> Nanos {
        self.clock.now
    }

    fn unix_seconds(&self) -> i64 {
        self.clock.unix_seconds
    }

    fn report(&self) -> EngineReport {
        EngineReport {
            name: "epoll",
            in_use: vec!["edge-triggered"],
            missing: Vec::new(),
        }
    }

    fn counters(&self) -> IoCounters {
        IoCounters {
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
        self.watch_listener(listener.0, EventFlags::IN);
    }

    fn stop_accepting(&mut self, listener: Listener) {
        self.drain_listener(listener.0);
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
        self.slots.get(socket.0).wants = false;
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
        let slot = self.slots.get(socket.0);
        assert!(
            matches!(slot.sending, Sending::Nothing),
            "one send at a time"
        );
        slot.sending = Sending::List(token, Progress::new(list));
        self.step_list(socket.0);
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
        let send = Box::new(FileSend::new(token, head, file, offset, len));
        slot.sending = Sending::File {
            send,
            is_helped: false,
        };
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
        let sending = self.slots.remove(socket.0);
        self.recycle(sending);
    }

    fn reset(&mut self, socket: Socket) {
        crate::socket::reset_on_close(self.slots.peek(socket.0).socket());
        self.close(socket);
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
                Sending::List(_, progress) => progress.sent(),
                Sending::File { send, .. } => send.sent(),
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
        self.deliver_posted(out);
        let left = if out.len() > before || !self.arrivals.is_empty() {
            Some(0)
        } else {
            until.map(|until| until.0.saturating_sub(self.clock.now.0))
        };
        let timeout = left.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000).try_into().unwrap_or(i64::MAX),
            tv_nsec: (ns % 1_000_000_000) as _,
        });
        self.counters.enters += 1;
        let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENTS_PER_CALL];
        let waited = epoll::wait(&self.epoll, room.as_mut_slice(), timeout.as_ref());
        self.clock = Clock::read();
        let events = match waited {
            Ok((events, _)) => &*events,
            Err(Errno::INTR) => &[],
            Err(errno) => return Err(errno),
        };
        for &event in events {
            self.handle_event(event, out);
        }
        self.receive_arrivals(out);
        self.deliver_posted(out);
        self.counters.completions += (out.len() - before) as u64;
        Ok(())
    }
}
