//! The calls triggered by events and by the caller.

use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::completion::{Completion, Done};
use crate::epoll::engine::{Epoll, LISTENER};
use crate::limits;
use crate::operation::Socket;
use crate::os_engine::OsSends;
use crate::socket::{accept, accept_rest, is_of_one_connection};

impl Epoll {
    pub(super) fn watch_listener(&mut self, index: u32, events: EventFlags) {
        let Some(fd) = &self.listeners[index as usize].fd else {
            return;
        };
        let data = EventData::new_u64(LISTENER | u64::from(index));
        let watched = epoll::modify(&self.epoll, fd, data, events);
        debug_assert!(watched.is_ok(), "a registration of ours can be changed");
    }

    /// Accepts a bounded number of connections; the kernel announces the rest again.
    pub(super) fn accept_some(&mut self, index: u32, out: &mut Vec<Completion>) {
        let token = self.listeners[index as usize].token;
        for _ in 0..limits::ACCEPTS_PER_TURN {
            let Some(fd) = &self.listeners[index as usize].fd else {
                return;
            };
            self.parts.counters.submissions += 1;
            match accept(fd) {
                Ok(socket) => match self.register(socket) {
                    Ok(socket) => {
                        let result = Ok(Done::Accepted(socket));
                        out.push(Completion {
                            token,
                            result,
                            more: true,
                        });
                    }
                    // No memory for the registration: treated as for the connection itself.
                    Err(errno) => return self.stop_after(index, errno, out),
                },
                Err(Errno::AGAIN) => return,
                Err(errno) if is_of_one_connection(errno) => {}
                // EMFILE, ENFILE, ENOBUFS, ENOMEM: the caller accepts again when it can.
                Err(errno) => return self.stop_after(index, errno, out),
            }
        }
    }

    fn stop_after(&mut self, index: u32, errno: Errno, out: &mut Vec<Completion>) {
        // Otherwise every wait would announce the listener.
        self.watch_listener(index, EventFlags::empty());
        let token = self.listeners[index as usize].token;
        out.push(Completion {
            token,
            result: Err(errno),
            more: false,
        });
    }

    fn register(&mut self, fd: OwnedFd) -> Result<Socket, Errno> {
        let index = self.slots.insert(fd);
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let data = EventData::new_u64(u64::from(index));
        match epoll::add(
            &self.epoll,
            self.slots.peek(index).endpoint.socket(),
            data,
            flags,
        ) {
            Ok(()) => Ok(Socket(index)),
            Err(errno) => {
                self.slots.remove(index);
                Err(errno)
            }
        }
    }

    /// Ends the registration of a listener, even if others have the socket open; returns its
    /// descriptor, to be closed.
    fn close_listener(&mut self, index: u32) -> Option<OwnedFd> {
        let fd = self.listeners[index as usize].fd.take()?;
        let _ = epoll::delete(&self.epoll, &fd);
        Some(fd)
    }

    /// Accepts all connections still queued on a listener, then closes it.
    pub(super) fn drain_listener(&mut self, index: u32) {
        let token = self.listeners[index as usize].token;
        let Some(fd) = self.close_listener(index) else {
            return;
        };
        for socket in accept_rest(&fd) {
            let Ok(socket) = self.register(socket) else {
                return;
            };
            self.post(
                socket.0,
                Completion {
                    token,
                    result: Ok(Done::Accepted(socket)),
                    more: false,
                },
            );
        }
    }

    pub(super) fn receive_now(&mut self, index: u32, out: &mut Vec<Completion>) {
        let slot = self.slots.get(index);
        let token = slot
            .endpoint
            .receive_token
            .expect("set when receiving was asked for");
        let room = self.buffers.next().expect("the caller has looked");
        let room_len = room.len();
        self.parts.counters.submissions += 1;
        match rustix::net::recv(slot.endpoint.socket(), room, RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                slot.endpoint.wants = false;
                out.push(Completion {
                    token,
                    result: Ok(Done::Ended),
                    more: false,
                });
            }
            Ok((len, _)) => {
                // A short read has emptied the socket: further bytes bring a new event. Only the
                // end of the stream may follow, announced already.
                slot.is_readable = len == room_len || slot.has_ended;
                slot.endpoint.wants = !slot.endpoint.wants_once;
                let more = slot.endpoint.wants;
                let lease = self.buffers.lend(len);
                out.push(Completion {
                    token,
                    result: Ok(Done::Received(lease)),
                    more,
                });
            }
            Err(Errno::AGAIN) => slot.is_readable = false,
            // The socket stays readable and is tried again.
            Err(Errno::INTR) => {}
            // ECONNRESET, ETIMEDOUT, EHOSTUNREACH, ...: the connection is over.
            Err(errno) => {
                slot.endpoint.wants = false;
                out.push(Completion {
                    token,
                    result: Err(errno),
                    more: false,
                });
            }
        }
    }
}
