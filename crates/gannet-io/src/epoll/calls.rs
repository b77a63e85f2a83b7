//! The calls that events and the caller lead to.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

use crate::disk::Ready;
use crate::driver::{Completion, Done, Socket};
use crate::epoll::slots::Sending;
use crate::epoll::{Epoll, LISTENER};
use crate::file_send::{FileSend, Step};
use crate::gather::Gather;
use crate::helpers::Asker;
use crate::limits;
use crate::progress::Progress;
use crate::residency::last_errno;
use crate::socket::is_of_one_connection;

impl Epoll {
    pub(super) fn watch_listener(&mut self, index: u32, events: EventFlags) {
        let Some(fd) = &self.listeners[index as usize].fd else {
            return;
        };
        let data = EventData::new_u64(LISTENER | u64::from(index));
        let watched = epoll::modify(&self.epoll, fd, data, events);
        debug_assert!(watched.is_ok(), "a registration of ours can be changed");
    }

    /// Accepts a bounded number of connections; the rest are announced again.
    pub(super) fn accept_some(&mut self, index: u32, out: &mut Vec<Completion>) {
        let token = self.listeners[index as usize].token;
        for _ in 0..limits::ACCEPTS_PER_TURN {
            let Some(fd) = &self.listeners[index as usize].fd else {
                return;
            };
            self.counters.submissions += 1;
            match accept_one(fd) {
                Ok(socket) => match self.register(socket) {
                    Ok(socket) => {
                        let result = Ok(Done::Accepted(socket));
                        out.push(Completion {
                            token,
                            result,
                            more: true,
                        });
                    }
                    // No memory for the registration: as for the connection itself.
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
        // The listener would be announced in every wait.
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
        match epoll::add(&self.epoll, self.slots.peek(index).socket(), data, flags) {
            Ok(()) => Ok(Socket(index)),
            Err(errno) => {
                self.slots.remove(index);
                Err(errno)
            }
        }
    }

    /// Accepts what is still in the queue of a listener, then closes it.
    pub(super) fn drain_listener(&mut self, index: u32) {
        let listening = &mut self.listeners[index as usize];
        let token = listening.token;
        let Some(fd) = listening.fd.take() else {
            return;
        };
        for _ in 0..limits::BACKLOG {
            match accept_one(&fd) {
                Ok(socket) => {
                    let Ok(Socket(index)) = self.register(socket) else {
                        return;
                    };
                    let result = Ok(Done::Accepted(Socket(index)));
                    self.post(
                        index,
                        Completion {
                            token,
                            result,
                            more: false,
                        },
                    );
                }
                Err(errno) if errno != Errno::AGAIN && is_of_one_connection(errno) => {}
                Err(_) => return,
            }
        }
    }

    pub(super) fn receive_once(&mut self, index: u32, out: &mut Vec<Completion>) {
        let slot = self.slots.get(index);
        let token = slot
            .receive_token
            .expect("set when receiving was asked for");
        let room = self.buffers.next().expect("the caller has looked");
        let room_len = room.len();
        self.counters.submissions += 1;
        match rustix::net::recv(slot.socket(), room, RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                slot.wants = false;
                out.push(Completion {
                    token,
                    result: Ok(Done::Ended),
                    more: false,
                });
            }
            Ok((len, _)) => {
                // A short read has emptied the socket: the next bytes bring a new event. Only the
                // end of the stream may lie behind it, announced already.
                slot.is_readable = len == room_len || slot.has_ended;
                slot.wants = !slot.wants_once;
                let more = slot.wants;
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
                slot.wants = false;
                out.push(Completion {
                    token,
                    result: Err(errno),
                    more: false,
                });
            }
        }
    }

    /// Sends what is left of the list in the slot, until the socket is full.
    pub(super) fn step_list(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let Sending::List(token, progress) = &mut slot.sending else {
            return;
        };
        let token = *token;
        let socket = slot.fd.as_ref().expect("a slot in use has its descriptor");
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        flags.set(SendFlags::MORE, progress.has_more());
        let result = loop {
            if progress.is_done() {
                break Ok(progress.total());
            }
            self.counters.submissions += 1;
            let sent = match progress.wire_left() {
                Some(bytes) => rustix::net::send(socket, bytes, flags),
                None => send_gathered(socket, &mut self.gather, progress, flags),
            };
            match sent {
                Ok(count) => {
                    progress.advance(count as u64);
                    self.counters.short_sends += u64::from(!progress.is_done());
                }
                Err(Errno::INTR) => {}
                // Goes on when the kernel announces room.
                Err(Errno::AGAIN) => return,
                Err(errno) => break Err(errno),
            }
        };
        slot.sent += result.unwrap_or(0);
        let sending = std::mem::take(&mut slot.sending);
        self.recycle(sending);
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

    /// Sends the control record in the slot, unless the socket is full.
    pub(super) fn step_control(&mut self, index: u32) {
        let slot = self.slots.get(index);
        let Sending::Control(token, record) = &slot.sending else {
            return;
        };
        let token = *token;
        self.counters.submissions += 1;
        let result = match record.send(slot.socket()) {
            // Goes on when the kernel announces room.
            Err(Errno::AGAIN) => return,
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
        let Sending::File { mut send, .. } = std::mem::take(&mut slot.sending) else {
            return;
        };
        self.counters.submissions += 1;
        let mut step = send.step(slot.socket(), &mut self.disk, asker, self.clock.now);
        // Room is announced only to those whose call was refused, which a short one was not.
        while let Step::Room { refused: false } = step {
            step = send.step(slot.socket(), &mut self.disk, asker, self.clock.now);
        }
        match step {
            Step::Done(result) => self.end_file(index, *send, result),
            Step::Room { .. } => {
                slot.sending = Sending::File {
                    send,
                    is_helped: false,
                }
            }
            Step::Helper => {
                slot.sending = Sending::File {
                    send,
                    is_helped: true,
                }
            }
        }
    }

    fn end_file(&mut self, index: u32, send: FileSend, result: Result<u64, Errno>) {
        self.counters.short_sends += send.shorts;
        let token = send.token;
        self.outputs.give_back(send.into_vec());
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

    pub(super) fn on_room(&mut self, index: u32) {
        match &self.slots.peek(index).sending {
            Sending::List(..) => self.step_list(index),
            Sending::Control(..) => self.step_control(index),
            Sending::File {
                is_helped: false, ..
            } => self.step_file(index),
            Sending::File { .. } | Sending::Nothing => {}
        }
    }

    pub(super) fn on_helper(&mut self, asker: Asker, answer: Result<Ready, Errno>) {
        let slot = self.slots.get(asker.slot);
        if slot.generation != asker.generation {
            self.counters.stale += 1;
            return;
        }
        let Sending::File { send, .. } = &mut slot.sending else {
            return;
        };
        match send.receive(answer) {
            Ok(()) => self.step_file(asker.slot),
            Err(errno) => {
                if let Sending::File { send, .. } = std::mem::take(&mut slot.sending) {
                    self.end_file(asker.slot, *send, Err(errno));
                }
            }
        }
    }

    pub(super) fn shut_down_if_asked(&mut self, index: u32) {
        let slot = self.slots.peek(index);
        if slot.shuts_down {
            // Not connected any more: the peer knows.
            let _ = rustix::net::shutdown(slot.socket(), rustix::net::Shutdown::Write);
        }
    }

    /// Takes the send of a slot apart for reuse.
    pub(super) fn recycle(&mut self, sending: Sending) {
        match sending {
            Sending::Nothing | Sending::Control(..) => {}
            Sending::List(_, progress) => self.outputs.give_back(progress.into_list().wire),
            Sending::File { send, .. } => self.outputs.give_back(send.into_vec()),
        }
    }
}

fn accept_one(listener: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
}

fn send_gathered(
    socket: &OwnedFd,
    gather: &mut Gather,
    progress: &Progress,
    flags: SendFlags,
) -> Result<usize, Errno> {
    let header = gather.fill(progress);
    // SAFETY: the header and its parts were just filled in and live until after the call; the
    // parts lie in memory that `progress` keeps alive. Where that is a mapping of a truncated
    // file, the kernel answers EFAULT.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), header, flags.bits() as i32) };
    usize::try_from(sent).map_err(|_| last_errno())
}
