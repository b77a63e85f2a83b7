//! The engine itself: what it owns, and its hooks.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use io_uring::types::CancelBuilder;
use io_uring::{opcode, squeue};
use rustix::io::Errno;

use crate::clock::Clock;
use crate::completion::{Completion, Done};
use crate::endpoint::Endpoint;
use crate::helpers::SlotKey;
use crate::network::{EngineReport, IoCounters, PEER_QUERIES, RING_RESTRICTIONS};
use crate::operation::{Lease, Listener, Nanos, Token};
use crate::options::EngineOptions;
use crate::os_engine::{OsEngine, OsSends, Parts};
use crate::unavailable::Unavailable;
use crate::uring::buffers::Buffers;
use crate::uring::datagrams::Datagrams;
use crate::uring::ring::Ring;
use crate::uring::slots::{Kind, Receiving, Slots, user_data};

/// A driver on io_uring. To be created on the thread that uses it.
pub struct Uring {
    // The order matters for dropping: the ring goes before the buffers that it may write to. (Rust
    // drops fields in the order of their declaration.)
    pub(super) ring: Ring,
    pub(super) buffers: Buffers,
    pub(super) slots: Slots,
    pub(super) listeners: Vec<Listening>,
    pub(super) parts: Parts,
    /// Sockets that want to receive and found no buffer.
    pub(super) starved: VecDeque<u32>,
    /// The operations on each datagram socket that are with the kernel.
    pub(super) datagrams: Datagrams,
    /// Whether the kernel waits on a non-blocking socket as on a blocking one. If so, sockets are
    /// accepted non-blocking, as `sendfile` needs them.
    pub(super) waits_nonblocking: bool,
}

/// A listener.
pub(super) struct Listening {
    /// `None` once closed.
    pub(super) fd: Option<OwnedFd>,
    pub(super) token: Token,
    /// An accept is with the kernel.
    pub(super) is_armed: bool,
    /// The caller wants no more connections.
    pub(super) is_stopping: bool,
    pub(super) is_unix: bool,
}

impl Uring {
    /// Sets up a ring that accepts from `listeners`, and tries it out.
    ///
    /// # Errors
    /// [`Unavailable`] says what this kernel lacks or forbids, and how to fix it.
    /// [`probe::check`](crate::probe::check) tests the kernel without giving listeners away.
    pub fn new(listeners: Vec<OwnedFd>, options: &EngineOptions) -> Result<Self, Unavailable> {
        let mut ring = Ring::new(options.entries, options.completions)?;
        let buffers = Buffers::new(ring.uring(), options.buffers, options.buffer_len)
            .map_err(|errno| Unavailable::explain("provided buffer ring", errno))?;
        ring.start(options.restricts)
            .map_err(|errno| Unavailable::explain("io_uring_register", errno))?;
        let parts =
            Parts::new(options.helpers).map_err(|errno| Unavailable::explain("eventfd", errno))?;
        let mut engine = Self {
            ring,
            buffers,
            slots: Slots::default(),
            listeners: listeners.into_iter().map(Listening::new).collect(),
            parts,
            starved: VecDeque::new(),
            datagrams: Datagrams::default(),
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

impl OsEngine for Uring {
    // A poll reports room whenever there is some.
    const ROOM_FOLLOWS_REFUSAL: bool = false;

    fn parts(&self) -> &Parts {
        &self.parts
    }

    fn parts_mut(&mut self) -> &mut Parts {
        &mut self.parts
    }

    fn endpoint(&self, index: u32) -> &Endpoint {
        &self.slots.peek(index).endpoint
    }

    fn endpoint_mut(&mut self, index: u32) -> (&mut Endpoint, &mut Parts) {
        (&mut self.slots.get(index).endpoint, &mut self.parts)
    }

    fn is_current(&self, key: SlotKey) -> bool {
        let slot = self.slots.peek(key.slot);
        slot.endpoint.generation == key.generation && slot.is_open()
    }

    fn send_with_others(&mut self, index: u32) {
        self.queue_list(index);
    }

    fn queue_list(&mut self, index: u32) {
        self.submit_list(index);
    }

    fn await_room(&mut self, index: u32) {
        self.arm_poll(index, Kind::Room, libc::POLLOUT);
    }

    fn start_receiving(&mut self, index: u32) {
        let slot = self.slots.peek(index);
        debug_assert!(slot.is_open(), "a socket in use");
        if slot.receiving == Receiving::Idle {
            self.arm_receive(index);
        }
    }

    fn datagrams_changed(&mut self, index: u32) {
        self.steer_datagrams(index);
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
        if let Some(restricted) = self.ring.restricted {
            optional(
                restricted.is_ok(),
                RING_RESTRICTIONS,
                "the kernel refused them",
            );
        }
        optional(
            self.parts.peer_queues.is_open(),
            PEER_QUERIES,
            "the kernel does not answer",
        );
        EngineReport {
            name: "io_uring",
            in_use,
            missing,
        }
    }

    fn counted(&self) -> IoCounters {
        let counters = self.parts.counters;
        IoCounters {
            enters: self.ring.enters,
            submissions: self.ring.submissions + counters.submissions,
            queue_full: self.ring.queue_full,
            completion_overflows: self.ring.overflows,
            ..counters
        }
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

    fn has_listeners(&self) -> bool {
        self.listeners
            .iter()
            .any(|listening| listening.fd.is_some())
    }

    fn pause_receiving(&mut self, index: u32) {
        let slot = self.slots.get(index);
        if slot.receiving == Receiving::Armed {
            slot.receiving = Receiving::Cancelling;
            self.cancel(index, Kind::Receive);
        }
    }

    fn received<'a>(&'a self, lease: &Lease) -> &'a [u8] {
        self.buffers.bytes(lease)
    }

    fn release(&mut self, lease: Lease) {
        self.buffers.release(lease);
    }

    fn make_nonblocking(&self, index: u32) {
        if !self.waits_nonblocking {
            let _ = rustix::io::ioctl_fionbio(self.endpoint(index).socket(), true);
        }
    }

    fn close(&mut self, index: u32) {
        self.forget(index);
    }

    fn wait(&mut self, until: Option<Nanos>, out: &mut Vec<Completion>) -> Result<(), Errno> {
        let before = out.len();
        self.rearm_starved();
        self.deliver_posted(out);
        if out.len() > before || self.ring.has_completions() {
            // There is work already: collect further completions, but do not wait for any.
            self.ring.enter(0, None)?;
        } else {
            let timeout = self.timeout(until);
            self.ring.enter(1, timeout)?;
        }
        self.parts.clock = Clock::read();
        self.reap(out);
        self.deliver_posted(out);
        self.parts.counters.completions += (out.len() - before) as u64;
        Ok(())
    }
}

impl Drop for Uring {
    /// Cancels everything and waits until the kernel has released all memory.
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
                self.forget(index);
            }
        }
        for endpoint in &mut self.parts.datagrams {
            if !endpoint.is_stopped {
                endpoint.stop();
            }
        }
        let in_flight =
            |slots: &Slots| (0..slots.len() as u32).any(|i| slots.peek(i).in_flight > 0);
        const TURNS_MAX: usize = 1000;
        for _ in 0..TURNS_MAX {
            if !in_flight(&self.slots) && !self.datagrams.are_in_flight() {
                return;
            }
            let later = Nanos(Clock::read().now.0.saturating_add(1_000_000));
            if OsEngine::wait(self, Some(later), &mut out).is_err() {
                break;
            }
            for completion in out.drain(..) {
                if let Ok(Done::Received(lease)) = completion.result {
                    self.buffers.release(lease);
                }
            }
        }
        // Leak the memory rather than free what the kernel may still read or write.
        std::mem::forget(std::mem::take(&mut self.slots));
        std::mem::forget(std::mem::take(&mut self.datagrams));
        self.buffers.leak();
    }
}
