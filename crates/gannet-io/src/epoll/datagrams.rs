//! Datagrams: registrations of their sockets, and the handling of their events.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use crate::completion::{Completion, Done};
use crate::epoll::engine::Epoll;
use crate::udp::{Batch, DatagramEndpoint};

/// The kind of an event, beside the index of the socket: `user data` of the registration.
pub(super) const DATAGRAMS: u64 = 1 << 34;

impl Epoll {
    /// Adds bound datagram sockets (see [`udp::bind`](crate::udp::bind)), which the caller names by
    /// their positions in this list. To be called once, before anything else.
    ///
    /// # Errors
    /// Those of `epoll_ctl` (`ENOMEM`, `ENOSPC`).
    pub fn with_datagrams(mut self, sockets: Vec<OwnedFd>) -> io::Result<Self> {
        for (index, socket) in sockets.iter().enumerate() {
            let data = EventData::new_u64(DATAGRAMS | index as u64);
            // No events before the caller wants any.
            epoll::add(&self.epoll, socket, data, EventFlags::empty())?;
        }
        if !sockets.is_empty() {
            self.batch = Some(Batch::new());
        }
        let endpoints = sockets.into_iter().map(DatagramEndpoint::new);
        self.parts.datagrams = endpoints.collect();
        Ok(self)
    }

    /// Has the kernel announce what the caller waits for. Level-triggered: an edge for room would
    /// fire for every datagram sent.
    pub(super) fn watch_datagrams(&mut self, index: u32) {
        let endpoint = &mut self.parts.datagrams[index as usize];
        if endpoint.is_stopped {
            // Also ends the registration, even if others have the socket open.
            if let Some(fd) = endpoint.fd.take() {
                let _ = epoll::delete(&self.epoll, &fd);
            }
            return;
        }
        let mut events = EventFlags::empty();
        events.set(EventFlags::IN, endpoint.receive_token.is_some());
        events.set(EventFlags::OUT, endpoint.sendable_token.is_some());
        let data = EventData::new_u64(DATAGRAMS | u64::from(index));
        let watched = epoll::modify(&self.epoll, endpoint.socket(), data, events);
        debug_assert!(watched.is_ok(), "a registration of ours can be changed");
    }

    pub(super) fn handle_datagrams(
        &mut self,
        index: u32,
        flags: EventFlags,
        out: &mut Vec<Completion>,
    ) {
        let wrong = EventFlags::ERR | EventFlags::HUP;
        if flags.intersects(EventFlags::OUT | wrong) {
            let endpoint = &mut self.parts.datagrams[index as usize];
            if let Some(token) = endpoint.sendable_token.take() {
                out.push(Completion {
                    token,
                    result: Ok(Done::Sendable),
                    more: false,
                });
                self.watch_datagrams(index);
            }
        }
        if flags.intersects(EventFlags::IN | wrong) {
            self.receive_datagrams_now(index, out);
        }
    }

    /// Receives as many datagrams as one call takes; the kernel announces the rest again.
    fn receive_datagrams_now(&mut self, index: u32, out: &mut Vec<Completion>) {
        let endpoint = &mut self.parts.datagrams[index as usize];
        let Some(token) = endpoint.receive_token else {
            return;
        };
        let counters = &mut self.parts.counters;
        if !self.buffers.has_free() {
            counters.no_buffers += 1;
            return;
        }
        let batch = self.batch.as_mut().expect("made with the first socket");
        let fd = endpoint.fd.as_ref().expect("closed only when stopped");
        counters.submissions += 1;
        // SAFETY: the buffers are valid and distinct, and borrowed until after the call.
        let received = unsafe { batch.receive(fd.as_fd(), self.buffers.upcoming()) };
        let count = match received {
            Ok(count) => count,
            // No other thread takes datagrams, but the kernel may have dropped one for a wrong
            // checksum.
            Err(Errno::AGAIN | Errno::INTR) => return,
            Err(errno) => {
                if endpoint.ends_receiving(errno) {
                    self.watch_datagrams(index);
                    out.push(Completion {
                        token,
                        result: Err(errno),
                        more: false,
                    });
                }
                return;
            }
        };
        for place in 0..count {
            let (slot, envelope) = batch.datagram(place);
            // In the order of the buffers that were filled; returned below if not delivered.
            let lease = self.buffers.lend(slot.len);
            match envelope {
                Some(envelope) if !slot.is_truncated => {
                    out.push(endpoint.received(token, envelope, lease, counters));
                }
                _ => {
                    counters.datagrams_truncated += u64::from(slot.is_truncated);
                    self.refused.push(lease);
                }
            }
        }
        // Only after all are lent: a released buffer is the next to be lent.
        for lease in self.refused.drain(..) {
            self.buffers.release(lease);
        }
    }
}
