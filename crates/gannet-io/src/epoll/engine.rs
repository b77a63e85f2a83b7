//! The engine itself: what it owns, its events, and its hooks.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::clock::Clock;
use crate::completion::Completion;
use crate::endpoint::{Endpoint, Sending};
use crate::epoll::buffers::Buffers;
use crate::epoll::datagrams::DATAGRAMS;
use crate::epoll::slots::Slots;
use crate::helpers::SlotKey;
use crate::limits;
use crate::network::{EngineReport, IoCounters, PEER_QUERIES};
use crate::operation::{Lease, Listener, Nanos, Token};
use crate::options::EngineOptions;
use crate::os_engine::{OsEngine, OsSends, Parts};
use crate::udp::Batch;

/// A driver on epoll and plain system calls.
pub struct Epoll {
    pub(super) epoll: OwnedFd,
    pub(super) buffers: Buffers,
    pub(super) slots: Slots,
    pub(super) listeners: Vec<Listening>,
    pub(super) parts: Parts,
    /// Sockets that have, or may have, something to receive; each at most once (`is_listed`).
    pub(super) arrivals: VecDeque<u32>,
    /// Sockets whose lists are sent when the turn ends: one peer that wakes up finds the answers for all,
    /// and need not be woken for each.
    pub(super) queued: Vec<SlotKey>,
    /// Bytes of these lists.
    queued_bytes: u64,
    /// For receiving datagrams; `None` without datagram sockets.
    pub(super) batch: Option<Box<Batch>>,
    /// Buffers of datagrams that were not delivered; empty between calls.
    pub(super) refused: Vec<Lease>,
}

/// A listener.
pub(super) struct Listening {
    /// `None` once closed.
    pub(super) fd: Option<OwnedFd>,
    pub(super) token: Token,
}

/// Events taken from the kernel in one call.
const EVENTS_PER_CALL: usize = 256;

/// The kind of an event: `user data` of the registration. A socket is its slot.
pub(super) const LISTENER: u64 = 1 << 32;
const BELL: u64 = 1 << 33;

impl Epoll {
    /// Creates an engine that accepts from `listeners`.
    ///
    /// # Errors
    /// Those of `epoll_create`, `epoll_ctl` and `eventfd` (`EMFILE`, `ENOMEM`).
    pub fn new(listeners: Vec<OwnedFd>, options: &EngineOptions) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let parts = Parts::new(options.helpers)?;
        epoll::add(
            &epoll,
            parts.disk.bell.as_fd(),
            EventData::new_u64(BELL),
            EventFlags::IN,
        )?;
        for (index, listener) in listeners.iter().enumerate() {
            rustix::io::ioctl_fionbio(listener, true)?;
            let data = EventData::new_u64(LISTENER | index as u64);
            // No events before the first accept.
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
            parts,
            arrivals: VecDeque::new(),
            queued: Vec::new(),
            queued_bytes: 0,
            batch: None,
            refused: Vec::new(),
        })
    }

    fn list_arrival(&mut self, index: u32) {
        let slot = self.slots.get(index);
        if slot.endpoint.wants && slot.is_readable && !slot.is_listed {
            slot.is_listed = true;
            self.arrivals.push_back(index);
        }
    }

    /// Sends the lists that wait for the end of the turn.
    fn send_queued(&mut self) {
        let mut queued = std::mem::take(&mut self.queued);
        self.queued_bytes = 0;
        for key in queued.drain(..) {
            // It may have been closed since.
            if self.is_current(key) {
                self.send_at_once(key.slot);
            }
        }
        self.queued = queued;
    }

    /// Receives once from every socket in the list.
    fn receive_arrivals(&mut self, out: &mut Vec<Completion>) {
        for _ in 0..self.arrivals.len() {
            if !self.buffers.has_free() {
                // The rest stays in the list until buffers are returned.
                self.parts.counters.no_buffers += 1;
                return;
            }
            let Some(index) = self.arrivals.pop_front() else {
                return;
            };
            let slot = self.slots.get(index);
            slot.is_listed = false;
            if slot.endpoint.fd.is_some() && slot.endpoint.wants && slot.is_readable {
                self.receive_now(index, out);
                self.list_arrival(index);
            }
        }
    }

    fn handle_event(&mut self, event: Event, out: &mut Vec<Completion>) {
        let data = event.data.u64();
        let flags = event.flags;
        if data == BELL {
            for (key, answer) in self.parts.disk.hear(out) {
                self.on_helper(key, answer);
            }
        } else if data & LISTENER != 0 {
            self.accept_some(data as u32, out);
        } else if data & DATAGRAMS != 0 {
            self.handle_datagrams(data as u32, flags, out);
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
                self.go_on(index);
            }
        }
    }
}

impl OsEngine for Epoll {
    const ROOM_FOLLOWS_REFUSAL: bool = true;

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
        self.slots.peek(key.slot).endpoint.generation == key.generation
    }

    fn send_with_others(&mut self, index: u32) {
        let endpoint = self.endpoint(index);
        let len = match &endpoint.sending {
            Sending::List { progress, .. } => progress.total(),
            _ => 0,
        };
        self.queued.push(SlotKey {
            slot: index,
            generation: endpoint.generation,
        });
        self.queued_bytes += len;
        if self.queued_bytes >= limits::SEND_TOGETHER_MAX {
            self.send_queued();
        }
    }

    fn queue_list(&mut self, _index: u32) {
        // It continues when the kernel announces room.
    }

    fn await_room(&mut self, _index: u32) {
        // As above.
    }

    fn start_receiving(&mut self, index: u32) {
        debug_assert!(self.endpoint(index).fd.is_some(), "a socket in use");
        self.list_arrival(index);
    }

    fn datagrams_changed(&mut self, index: u32) {
        self.watch_datagrams(index);
    }

    fn report(&self) -> EngineReport {
        let mut report = EngineReport {
            name: "epoll",
            in_use: vec!["edge-triggered"],
            missing: Vec::new(),
        };
        match self.parts.peer_queues.is_open() {
            true => report.in_use.push(PEER_QUERIES),
            false => report
                .missing
                .push((PEER_QUERIES, "the kernel does not answer".to_owned())),
        }
        report
    }

    fn counted(&self) -> IoCounters {
        self.parts.counters
    }

    fn accept(&mut self, listener: Listener, token: Token) {
        let listening = &mut self.listeners[listener.0 as usize];
        listening.token = token;
        self.watch_listener(listener.0, EventFlags::IN);
    }

    fn stop_accepting(&mut self, listener: Listener) {
        self.drain_listener(listener.0);
    }

    fn has_listeners(&self) -> bool {
        self.listeners
            .iter()
            .any(|listening| listening.fd.is_some())
    }

    fn pause_receiving(&mut self, _index: u32) {
        // Never called for a socket that does not need it.
    }

    fn received<'a>(&'a self, lease: &Lease) -> &'a [u8] {
        self.buffers.bytes(lease)
    }

    fn release(&mut self, lease: Lease) {
        self.buffers.release(lease);
    }

    fn make_nonblocking(&self, _index: u32) {
        // They are accepted non-blocking.
    }

    fn close(&mut self, index: u32) {
        let sending = self.slots.remove(index);
        self.parts.recycle(sending);
    }

    fn wait(&mut self, until: Option<Nanos>, out: &mut Vec<Completion>) -> Result<(), Errno> {
        let before = out.len();
        self.send_queued();
        self.deliver_posted(out);
        let left = if out.len() > before || !self.arrivals.is_empty() {
            Some(0)
        } else {
            until.map(|until| until.0.saturating_sub(self.parts.clock.now.0))
        };
        let timeout = left.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000).try_into().unwrap_or(i64::MAX),
            tv_nsec: (ns % 1_000_000_000) as _,
        });
        self.parts.counters.enters += 1;
        let mut room = [const { MaybeUninit::<Event>::uninit() }; EVENTS_PER_CALL];
        let waited = epoll::wait(&self.epoll, room.as_mut_slice(), timeout.as_ref());
        self.parts.clock = Clock::read();
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
        self.parts.counters.completions += (out.len() - before) as u64;
        Ok(())
    }
}
