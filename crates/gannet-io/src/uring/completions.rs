//! Handling each kind of completion.

use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

use io_uring::cqueue;
use rustix::io::Errno;
use rustix::net::Shutdown;

use crate::completion::{Completion, Done};
use crate::endpoint::Sending;
use crate::operation::{Socket, Token};
use crate::os_engine::{OsEngine, OsSends};
use crate::socket::{accept_rest, is_of_one_connection};
use crate::uring::engine::Uring;
use crate::uring::ring::BATCH;
use crate::uring::slots::{Kind, Receiving, parse_user_data};

impl Uring {
    /// Handles all completions in the queue.
    pub(super) fn reap(&mut self, out: &mut Vec<Completion>) {
        let mut room = [const { MaybeUninit::uninit() }; BATCH];
        loop {
            let batch = self.ring.reap(&mut room);
            let count = batch.len();
            for entry in batch {
                self.complete(entry, out);
            }
            if count < BATCH {
                return;
            }
        }
    }

    fn complete(&mut self, entry: &cqueue::Entry, out: &mut Vec<Completion>) {
        let (kind, generation, index) = parse_user_data(entry.user_data());
        let more = cqueue::more(entry.flags());
        match kind {
            Kind::Receive => {
                debug_assert_eq!(self.slots.peek(index).endpoint.generation, generation);
                self.on_receive(index, entry, more, out);
            }
            Kind::Send => {
                debug_assert_eq!(self.slots.peek(index).endpoint.generation, generation);
                self.on_send(index, outcome(entry), out);
            }
            Kind::Accept => self.on_accept(index, outcome(entry), more, out),
            Kind::Room | Kind::Arrival => {
                debug_assert_eq!(self.slots.peek(index).endpoint.generation, generation);
                self.on_poll(index, kind);
            }
            Kind::CancelReceive | Kind::CancelSend => {
                self.on_cancel_failed(index, generation, kind);
            }
            // The accept has ended by itself, and reports that.
            Kind::CancelAccept => {}
            Kind::Bell => self.on_bell(more, out),
            Kind::Datagrams => self.on_datagrams(index, entry, more, out),
            Kind::Sendable => self.on_sendable(index, out),
            // The receive has ended by itself, and reports that.
            Kind::CancelDatagrams => {}
        }
    }

    /// Records the end of an operation. True if the socket is still wanted; otherwise the socket is
    /// closed with its last operation.
    fn ended(&mut self, index: u32) -> bool {
        let slot = self.slots.get(index);
        slot.in_flight -= 1;
        if !slot.is_closing {
            return true;
        }
        if slot.in_flight == 0 {
            self.let_go(index);
        }
        false
    }

    fn on_receive(
        &mut self,
        index: u32,
        entry: &cqueue::Entry,
        more: bool,
        out: &mut Vec<Completion>,
    ) {
        let lease = cqueue::buffer_select(entry.flags()).map(|buffer| {
            self.buffers
                .loan(buffer, u32::try_from(entry.result()).unwrap_or(0))
        });
        if self.slots.peek(index).is_closing {
            if let Some(lease) = lease {
                self.buffers.release(lease);
            }
            if more {
                self.parts.counters.stale += 1;
            } else {
                self.slots.get(index).receiving = Receiving::Idle;
                self.ended(index);
            }
            return;
        }
        if !more {
            let slot = self.slots.get(index);
            slot.in_flight -= 1;
            slot.receiving = Receiving::Idle;
        }
        let slot = self.slots.get(index);
        let token = slot
            .endpoint
            .receive_token
            .expect("only armed with a token");
        match outcome(entry) {
            Ok(0) => {
                if let Some(lease) = lease {
                    self.buffers.release(lease);
                }
                // A paused caller gets the end when it resumes.
                if self.slots.get(index).endpoint.wants {
                    self.slots.get(index).endpoint.wants = false;
                    out.push(Completion {
                        token,
                        result: Ok(Done::Ended),
                        more: false,
                    });
                }
            }
            Ok(_) => {
                let lease = lease.expect("received bytes are in a provided buffer");
                let goes_on = slot.endpoint.wants && !slot.endpoint.wants_once;
                if slot.endpoint.wants_once {
                    slot.endpoint.wants = false;
                }
                let result = Ok(Done::Received(lease));
                out.push(Completion {
                    token,
                    result,
                    more: goes_on,
                });
                if !more && goes_on {
                    // The kernel ended it (the completion queue was full).
                    self.arm_receive(index);
                } else if more && !goes_on {
                    // A single receive was requested while a multishot one was still with the
                    // kernel.
                    OsEngine::pause_receiving(self, index);
                }
            }
            Err(errno) => {
                if let Some(lease) = lease {
                    self.buffers.release(lease);
                }
                self.on_receive_error(index, token, errno, out);
            }
        }
    }

    fn on_receive_error(
        &mut self,
        index: u32,
        token: Token,
        errno: Errno,
        out: &mut Vec<Completion>,
    ) {
        let slot = self.slots.get(index);
        match errno {
            // Paused. If it was resumed before the kernel noticed, start again.
            Errno::CANCELED | Errno::INTR => {
                if slot.endpoint.wants {
                    self.arm_receive(index);
                }
            }
            // All buffers are on loan. The socket may have no data yet; it is tried again when
            // buffers have been returned.
            Errno::NOBUFS => {
                self.parts.counters.no_buffers += 1;
                slot.receiving = Receiving::Starved;
                self.starved.push_back(index);
            }
            // An old kernel that does not wait on non-blocking sockets.
            Errno::AGAIN => {
                if slot.endpoint.wants {
                    slot.receiving = Receiving::Polling;
                    self.arm_poll(index, Kind::Arrival, libc::POLLIN);
                }
            }
            // ECONNRESET, ETIMEDOUT, EHOSTUNREACH, ...: the connection is over.
            errno => {
                slot.endpoint.wants = false;
                out.push(Completion {
                    token,
                    result: Err(errno),
                    more: false,
                });
            }
        }
    }

    fn on_send(&mut self, index: u32, outcome: Result<u32, Errno>, out: &mut Vec<Completion>) {
        self.slots.get(index).send_op = None;
        if !self.ended(index) {
            return;
        }
        let slot = self.slots.get(index);
        let Sending::List {
            token, progress, ..
        } = &mut slot.endpoint.sending
        else {
            unreachable!("the list of a send stays until its completion")
        };
        let token = *token;
        let result = match outcome {
            Ok(count) => {
                progress.advance(u64::from(count));
                if !progress.is_done() {
                    self.parts.counters.short_sends += 1;
                    self.submit_list(index);
                    return;
                }
                Ok(progress.total())
            }
            Err(Errno::INTR) => {
                self.submit_list(index);
                return;
            }
            // An old kernel that does not wait on non-blocking sockets.
            Err(Errno::AGAIN) => {
                self.arm_poll(index, Kind::Room, libc::POLLOUT);
                return;
            }
            // EPIPE, ECONNRESET, ...
            Err(errno) => Err(errno),
        };
        let completion = self.end_send(index, token, result);
        out.push(completion);
    }

    fn on_poll(&mut self, index: u32, kind: Kind) {
        if kind == Kind::Room {
            self.slots.get(index).send_op = None;
        }
        if !self.ended(index) {
            return;
        }
        let slot = self.slots.get(index);
        if kind == Kind::Arrival {
            slot.receiving = Receiving::Idle;
            if slot.endpoint.wants {
                self.arm_receive(index);
            }
            return;
        }
        // Errors of the poll are left for the call that it was for to find.
        self.go_on(index);
    }

    fn on_accept(
        &mut self,
        index: u32,
        outcome: Result<u32, Errno>,
        more: bool,
        out: &mut Vec<Completion>,
    ) {
        let listening = &mut self.listeners[index as usize];
        if !more {
            listening.is_armed = false;
        }
        let token = listening.token;
        match outcome {
            Ok(raw) => {
                // SAFETY: the kernel created this descriptor for us with this completion, and
                // nothing else owns it.
                let fd = unsafe { OwnedFd::from_raw_fd(raw as i32) };
                let is_unix = listening.is_unix;
                let stops = listening.is_stopping;
                let socket = Socket(self.slots.insert(fd, is_unix));
                let result = Ok(Done::Accepted(socket));
                out.push(Completion {
                    token,
                    result,
                    more: !stops,
                });
            }
            Err(errno) if !listening.is_stopping && !is_of_one_connection(errno) => {
                // EMFILE, ENFILE, ENOBUFS, ENOMEM: the caller accepts again when it can.
                out.push(Completion {
                    token,
                    result: Err(errno),
                    more: false,
                });
                return;
            }
            Err(_) => {}
        }
        if !more {
            if self.listeners[index as usize].is_stopping {
                self.drain_listener(index);
            } else {
                self.arm_accept(index);
            }
        }
    }

    /// Accepts all connections still queued on a listener, then closes it.
    pub(super) fn drain_listener(&mut self, index: u32) {
        let listening = &mut self.listeners[index as usize];
        let Some(fd) = listening.fd.take() else {
            return;
        };
        let (token, is_unix) = (listening.token, listening.is_unix);
        // Another process that accepts from it as well does not mind: the ring waits all the same.
        if rustix::io::ioctl_fionbio(&fd, true).is_err() {
            return;
        }
        for socket in accept_rest(&fd) {
            let index = self.slots.insert(socket, is_unix);
            self.post(
                index,
                Completion {
                    token,
                    result: Ok(Done::Accepted(Socket(index))),
                    more: false,
                },
            );
        }
    }

    /// A cancellation found nothing: the operation had ended, and its completion came first. If it
    /// were still under way (no known kernel does that), it would end with the connection.
    fn on_cancel_failed(&mut self, index: u32, generation: u32, kind: Kind) {
        let slot = self.slots.peek(index);
        let remains = match kind {
            Kind::CancelReceive => slot.receiving == Receiving::Cancelling,
            _ => slot.send_op.is_some(),
        };
        if slot.endpoint.generation == generation
            && slot.is_closing
            && slot.in_flight > 0
            && remains
        {
            // The sandbox leaves only this direction. The peer ends its own, and what is sent to it
            // fails.
            let _ = rustix::net::shutdown(slot.endpoint.socket(), Shutdown::Write);
        }
    }

    fn on_bell(&mut self, more: bool, out: &mut Vec<Completion>) {
        for (key, answer) in self.parts.disk.hear(out) {
            self.on_helper(key, answer);
        }
        if !more {
            self.watch_bell();
        }
    }
}

pub(super) fn outcome(entry: &cqueue::Entry) -> Result<u32, Errno> {
    u32::try_from(entry.result()).map_err(|_| Errno::from_raw_os_error(-entry.result()))
}
