//! The code shared by both real engines: all of the disk, and the part of the network that makes
//! plain calls on a socket or tracks its send.
//!
//! ```text
//!   Network, Disk        what callers see
//!     └─ OsEngine        implemented here once, for every engine that fills in its hooks
//!          ├─ uring      the hooks submit to a ring
//!          └─ epoll      the hooks wait for events
//! ```

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};

use crate::clock::Clock;
use crate::completion::{Completion, Done};
use crate::disk::{Disk, Listed, Render};
use crate::endpoint::{Endpoint, Sending};
use crate::file::{File, OpenedFile};
use crate::file_send::{FileSend, Step};
use crate::fixed::Fixed;
use crate::gather::Gather;
use crate::helpers::{Owner, SlotKey};
use crate::ktls::{self, ControlRecord, ControlType, Stage, TxKeys};
use crate::limits;
use crate::meta::Meta;
use crate::net::Peer;
use crate::network::{EngineReport, IoCounters, Network, Receipt};
use crate::operation::{
    DatagramSocket, Lease, Listener, Nanos, SendList, Socket, Started, Token, Train,
};
use crate::os_disk::{OsDisk, Ready};
use crate::outputs::Outputs;
use crate::peer_queue::PeerQueues;
use crate::progress::Progress;
use crate::root::Root;
use crate::survey::{KeepName, Survey};
use crate::udp::DatagramEndpoint;
use crate::waker::Waker;

/// The state that both real engines own.
pub(crate) struct Parts {
    pub(crate) clock: Clock,
    pub(crate) disk: OsDisk,
    pub(crate) outputs: Outputs,
    /// Message headers for reuse.
    pub(crate) gathers: Vec<Gather>,
    /// Completions that arose outside of a wait; delivered by the next one.
    pub(crate) posted: Vec<Posted>,
    pub(crate) datagrams: Vec<DatagramEndpoint>,
    pub(crate) counters: IoCounters,
    pub(crate) peer_queues: PeerQueues,
}

/// A completion of a socket's operation that has not been delivered yet.
pub(crate) struct Posted {
    key: SlotKey,
    completion: Completion,
}

impl Parts {
    pub(crate) fn new(helpers_max: usize) -> Result<Self, Errno> {
        Ok(Self {
            clock: Clock::read(),
            disk: OsDisk::new(helpers_max)?,
            outputs: Outputs::default(),
            gathers: Vec::new(),
            posted: Vec::new(),
            datagrams: Vec::new(),
            counters: IoCounters::default(),
            peer_queues: PeerQueues::new(),
        })
    }

    /// Keeps the parts of a send for reuse.
    pub(crate) fn recycle(&mut self, sending: Sending) {
        match sending {
            Sending::Nothing | Sending::Control(..) => {}
            Sending::List {
                progress, gather, ..
            } => {
                self.outputs.give_back(progress.into_list().wire);
                self.keep_gather(gather);
            }
            Sending::File(sending) => self.outputs.give_back(sending.into_vec()),
        }
    }

    fn keep_gather(&mut self, gather: Option<Gather>) {
        let has_room = self.gathers.len() < limits::GATHERS_KEPT_MAX;
        self.gathers.extend(gather.filter(|_| has_room));
    }
}

/// A real engine: the parts in which engines differ. Sockets are named by their slots.
pub(crate) trait OsEngine {
    /// Room in a socket is announced only if the last call was refused, and not if it sent less
    /// than requested.
    const ROOM_FOLLOWS_REFUSAL: bool;

    fn parts(&self) -> &Parts;

    fn parts_mut(&mut self) -> &mut Parts;

    fn endpoint(&self, index: u32) -> &Endpoint;

    /// A socket, and the parts shared by all sockets.
    fn endpoint_mut(&mut self, index: u32) -> (&mut Endpoint, &mut Parts);

    /// Whether the slot still holds the socket that `key` names.
    fn is_current(&self, key: SlotKey) -> bool;

    /// Sends the list in the slot with the others of this turn, when it ends at the latest.
    fn send_with_others(&mut self, index: u32);

    /// Sends what is left of the list in the slot when, or as soon as, the socket has room.
    fn queue_list(&mut self, index: u32);

    /// Continues the file or the record in the slot as soon as the socket has room.
    fn await_room(&mut self, index: u32);

    /// Receives in the mode that the endpoint asks for.
    fn start_receiving(&mut self, index: u32);

    /// Receives datagrams, announces room, or closes the socket, after a change of its endpoint in
    /// the parts.
    fn datagrams_changed(&mut self, index: u32);

    // Methods of `Network` by these names, where the engines differ.

    fn report(&self) -> EngineReport;

    /// The engine's own counters, in addition to the parts'.
    fn counted(&self) -> IoCounters;

    fn accept(&mut self, listener: Listener, token: Token);

    fn stop_accepting(&mut self, listener: Listener);

    fn has_listeners(&self) -> bool;

    fn pause_receiving(&mut self, index: u32);

    fn received<'a>(&'a self, lease: &Lease) -> &'a [u8];

    fn release(&mut self, lease: Lease);

    /// Before the first step of a file's send: `sendfile` has no non-blocking flag.
    fn make_nonblocking(&self, index: u32);

    fn close(&mut self, index: u32);

    fn wait(&mut self, until: Option<Nanos>, out: &mut Vec<Completion>) -> Result<(), Errno>;
}

/// Methods built on the hooks.
pub(crate) trait OsSends: OsEngine {
    /// The socket of a slot in use.
    fn fd(&self, socket: Socket) -> BorrowedFd<'_> {
        self.endpoint(socket.0).socket()
    }

    /// Keeps a completion for the next wait.
    fn post(&mut self, index: u32, completion: Completion) {
        let key = SlotKey {
            slot: index,
            generation: self.endpoint(index).generation,
        };
        self.parts_mut().posted.push(Posted { key, completion });
    }

    fn deliver_posted(&mut self, out: &mut Vec<Completion>) {
        let mut posted = std::mem::take(&mut self.parts_mut().posted);
        for Posted { key, completion } in posted.drain(..) {
            if self.is_current(key) {
                out.push(completion);
            } else {
                self.parts_mut().counters.stale += 1;
            }
        }
        self.parts_mut().posted = posted;
    }

    /// Puts a send into its slot.
    fn begin(&mut self, index: u32, sending: Sending) {
        let (endpoint, _) = self.endpoint_mut(index);
        assert!(endpoint.is_quiet(), "one send at a time");
        endpoint.sending = sending;
    }

    /// Ends the send in the slot.
    fn end_send(&mut self, index: u32, token: Token, result: Result<u64, Errno>) -> Completion {
        let (endpoint, parts) = self.endpoint_mut(index);
        endpoint.sent += result.unwrap_or(0);
        let sending = std::mem::take(&mut endpoint.sending);
        parts.recycle(sending);
        self.shut_down_if_asked(index);
        Completion {
            token,
            result: result.map(Done::Sent),
            more: false,
        }
    }

    fn shut_down_if_asked(&self, index: u32) {
        let endpoint = self.endpoint(index);
        if endpoint.shuts_down {
            // No longer connected: the peer knows.
            let _ = rustix::net::shutdown(endpoint.socket(), Shutdown::Write);
        }
    }

    /// Continues the send in the slot, now that there is room.
    fn go_on(&mut self, index: u32) {
        match &self.endpoint(index).sending {
            Sending::List { .. } if Self::ROOM_FOLLOWS_REFUSAL => self.send_at_once(index),
            Sending::List { .. } => self.queue_list(index),
            Sending::Control(..) => self.step_control(index),
            // The event is not the one that it waits for.
            Sending::File(sending) if sending.is_helped => {}
            Sending::File(_) => self.step_file(index),
            Sending::Nothing => {}
        }
    }

    /// Sends the list in the slot by plain calls, as much as the socket takes.
    fn send_at_once(&mut self, index: u32) {
        let (endpoint, parts) = self.endpoint_mut(index);
        let Sending::List {
            token, progress, ..
        } = &mut endpoint.sending
        else {
            return;
        };
        let token = *token;
        let socket = endpoint
            .fd
            .as_ref()
            .expect("a slot in use has its descriptor");
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        flags.set(SendFlags::MORE, progress.has_more());
        let result = loop {
            if progress.is_done() {
                break Ok(progress.total());
            }
            parts.counters.submissions += 1;
            let sent = match progress.wire_left() {
                Some(bytes) => rustix::net::send(socket, bytes, flags),
                None => {
                    let mut gather = parts.gathers.pop().unwrap_or_else(Gather::new);
                    let sent = gather.send(socket.as_fd(), progress, flags);
                    parts.keep_gather(Some(gather));
                    sent
                }
            };
            match sent {
                Ok(count) => {
                    progress.advance(count as u64);
                    let is_short = !progress.is_done();
                    parts.counters.short_sends += u64::from(is_short);
                    if is_short && !Self::ROOM_FOLLOWS_REFUSAL {
                        return self.queue_list(index);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return self.queue_list(index),
                // EPIPE, ECONNRESET, ...
                Err(errno) => break Err(errno),
            }
        };
        let completion = self.end_send(index, token, result);
        self.post(index, completion);
    }

    /// Sends the control record in the slot, or waits for room: a plain call, which does not block.
    fn step_control(&mut self, index: u32) {
        let (endpoint, parts) = self.endpoint_mut(index);
        let Sending::Control(token, record) = &endpoint.sending else {
            return;
        };
        let token = *token;
        parts.counters.submissions += 1;
        match record.send(endpoint.socket()) {
            Err(Errno::AGAIN) => self.await_room(index),
            result => {
                let completion = self.end_send(index, token, result);
                self.post(index, completion);
            }
        }
    }

    /// Continues the file in the slot as far as possible.
    fn step_file(&mut self, index: u32) {
        let (endpoint, parts) = self.endpoint_mut(index);
        let key = SlotKey {
            slot: index,
            generation: endpoint.generation,
        };
        let now = parts.clock.now;
        let socket = endpoint
            .fd
            .as_ref()
            .expect("a slot in use has its descriptor");
        let Sending::File(sending) = &mut endpoint.sending else {
            return;
        };
        parts.counters.submissions += 1;
        let mut step = sending.step(socket.as_fd(), &mut parts.disk, key, now);
        while Self::ROOM_FOLLOWS_REFUSAL && matches!(step, Step::Room { refused: false }) {
            step = sending.step(socket.as_fd(), &mut parts.disk, key, now);
        }
        match step {
            Step::Done(result) => self.end_file(index, result),
            Step::Room { .. } => self.await_room(index),
            Step::Helper => {}
        }
    }

    fn end_file(&mut self, index: u32, result: Result<u64, Errno>) {
        let (endpoint, parts) = self.endpoint_mut(index);
        let Sending::File(sending) = &endpoint.sending else {
            return;
        };
        parts.counters.short_sends += sending.shorts;
        let token = sending.token;
        let completion = self.end_send(index, token, result);
        self.post(index, completion);
    }

    /// Handles a helper's answer for the file in a slot.
    fn on_helper(&mut self, key: SlotKey, answer: Result<Ready, Errno>) {
        if !self.is_current(key) {
            self.parts_mut().counters.stale += 1;
            return;
        }
        let (endpoint, _) = self.endpoint_mut(key.slot);
        let Sending::File(sending) = &mut endpoint.sending else {
            return;
        };
        match sending.receive(answer) {
            Ok(()) => self.step_file(key.slot),
            Err(errno) => self.end_file(key.slot, Err(errno)),
        }
    }

    fn receive_from(&mut self, socket: Socket, token: Token, once: bool) {
        let (endpoint, _) = self.endpoint_mut(socket.0);
        endpoint.wants = true;
        endpoint.wants_once = once;
        endpoint.receive_token = Some(token);
        self.start_receiving(socket.0);
    }
}

impl<E: OsEngine> OsSends for E {}

impl<E: OsEngine> Network for E {
    fn now(&self) -> Nanos {
        self.parts().clock.now
    }

    fn unix_ms(&self) -> i64 {
        self.parts().clock.unix_ms
    }

    fn report(&self) -> EngineReport {
        OsEngine::report(self)
    }

    fn counters(&self) -> IoCounters {
        IoCounters {
            helped: self.parts().disk.helped,
            ..self.counted()
        }
    }

    fn waker(&mut self, token: Token) -> Waker {
        self.parts_mut().disk.waker(token)
    }

    fn accept(&mut self, listener: Listener, token: Token) {
        OsEngine::accept(self, listener, token);
    }

    fn stop_accepting(&mut self, listener: Listener) {
        OsEngine::stop_accepting(self, listener);
    }

    fn may_accept(&self) -> bool {
        self.has_listeners() || !self.parts().posted.is_empty()
    }

    fn peer(&self, socket: Socket) -> Peer {
        crate::net::peer(self.fd(socket))
    }

    fn receive(&mut self, socket: Socket, token: Token) {
        self.receive_from(socket, token, false);
    }

    fn receive_once(&mut self, socket: Socket, token: Token) {
        self.receive_from(socket, token, true);
    }

    fn pause_receiving(&mut self, socket: Socket) {
        self.endpoint_mut(socket.0).0.wants = false;
        OsEngine::pause_receiving(self, socket.0);
    }

    fn received<'a>(&'a self, lease: &Lease) -> &'a [u8] {
        OsEngine::received(self, lease)
    }

    fn release(&mut self, lease: Lease) {
        OsEngine::release(self, lease);
    }

    fn output(&mut self) -> Vec<u8> {
        self.parts_mut().outputs.take()
    }

    fn output_of(&mut self, len: usize) -> Vec<u8> {
        self.parts_mut().outputs.take_of(len)
    }

    fn send(&mut self, socket: Socket, token: Token, list: SendList) {
        let progress = Progress::new(list);
        let is_long = progress.total() >= limits::SEND_AT_ONCE_MIN || progress.is_done();
        let gather = None;
        let sending = Sending::List {
            token,
            progress,
            gather,
        };
        self.begin(socket.0, sending);
        match is_long {
            true => self.send_at_once(socket.0),
            false => self.send_with_others(socket.0),
        }
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
        let sending = FileSend::new(token, head, file, offset, len);
        self.begin(socket.0, Sending::File(Box::new(sending)));
        self.make_nonblocking(socket.0);
        self.step_file(socket.0);
    }

    fn encrypt_in_kernel(&mut self, socket: Socket, keys: &TxKeys<'_>) -> Result<(), Errno> {
        let (endpoint, _) = self.endpoint_mut(socket.0);
        assert!(endpoint.is_quiet(), "keys change between sends");
        let fd = endpoint
            .fd
            .as_ref()
            .expect("a slot in use has its descriptor");
        ktls::encrypt(fd.as_fd(), &mut endpoint.kernel_tls, keys)
    }

    fn send_control(&mut self, socket: Socket, token: Token, control: ControlType, content: &[u8]) {
        let (endpoint, _) = self.endpoint_mut(socket.0);
        assert_eq!(
            endpoint.kernel_tls,
            Stage::Encrypting,
            "the kernel encrypts"
        );
        let record = ControlRecord::new(control, content);
        self.begin(socket.0, Sending::Control(token, record));
        self.step_control(socket.0);
    }

    fn shutdown_write(&mut self, socket: Socket) {
        let (endpoint, _) = self.endpoint_mut(socket.0);
        endpoint.shuts_down = true;
        // Otherwise when the send under way has ended.
        if endpoint.is_quiet() {
            self.shut_down_if_asked(socket.0);
        }
    }

    fn close(&mut self, socket: Socket) {
        OsEngine::close(self, socket.0);
    }

    fn reset(&mut self, socket: Socket) {
        crate::socket::reset_on_close(self.fd(socket));
        OsEngine::close(self, socket.0);
    }

    fn room(&mut self, socket: Socket, unsent_max: u32) -> u64 {
        crate::socket::room(self.fd(socket), unsent_max)
    }

    fn bound_unsent(&mut self, socket: Socket, bytes: u32) {
        crate::socket::bound_unsent(self.fd(socket), bytes);
    }

    fn pace(&mut self, socket: Socket, bytes_per_second: u64) {
        crate::socket::pace(self.fd(socket), bytes_per_second);
    }

    fn cork(&mut self, socket: Socket, on: bool) {
        crate::socket::cork(self.fd(socket), on);
    }

    fn acknowledge(&mut self, socket: Socket) {
        crate::socket::acknowledge(self.fd(socket));
    }

    fn acknowledged(&mut self, socket: Socket) -> u64 {
        crate::socket::acknowledged(self.fd(socket)).unwrap_or_else(|| {
            let endpoint = self.endpoint(socket.0);
            let sent = endpoint.sent + endpoint.sending.sent();
            sent.saturating_sub(crate::socket::unacknowledged(endpoint.socket()))
        })
    }

    fn unacknowledged(&self, socket: Socket) -> u64 {
        crate::socket::unacknowledged(self.fd(socket))
    }

    fn is_local(&self, socket: Socket) -> bool {
        crate::socket::is_local(self.fd(socket))
    }

    fn receipt(&self, socket: Socket) -> Receipt {
        let fd = self.fd(socket);
        if crate::net::peer(fd) == Peer::Unix || self.parts().peer_queues.unread(fd).is_some() {
            Receipt::Read
        } else if crate::route::leaves_by_device(fd) {
            Receipt::Acknowledged
        } else {
            Receipt::Unknown
        }
    }

    fn received_by_peer(&mut self, socket: Socket) -> u64 {
        // In this order: what is read meanwhile counts as unread.
        let acknowledged = self.acknowledged(socket);
        let fd = self.fd(socket);
        // A Unix socket's own queue holds what its peer has not read.
        if crate::net::peer(fd) == Peer::Unix || !crate::socket::is_local(fd) {
            return acknowledged;
        }
        let unread = self.parts().peer_queues.unread(fd);
        unread.map_or(0, |unread| acknowledged.saturating_sub(unread))
    }

    fn receive_datagrams(&mut self, socket: DatagramSocket, token: Token) {
        self.parts_mut().datagrams[socket.0 as usize].receive_token = Some(token);
        self.datagrams_changed(socket.0);
    }

    fn leave_datagrams(&mut self, socket: DatagramSocket) {
        self.parts_mut().datagrams[socket.0 as usize].receive_token = None;
        self.datagrams_changed(socket.0);
    }

    fn stop_datagrams(&mut self, socket: DatagramSocket) {
        self.parts_mut().datagrams[socket.0 as usize].stop();
        self.datagrams_changed(socket.0);
    }

    fn send_datagrams(
        &mut self,
        socket: DatagramSocket,
        bytes: &[u8],
        trains: &[Train],
    ) -> Result<usize, Errno> {
        let parts = self.parts_mut();
        let endpoint = &mut parts.datagrams[socket.0 as usize];
        endpoint.send(bytes, trains, &mut parts.counters)
    }

    fn when_sendable(&mut self, socket: DatagramSocket, token: Token) {
        self.parts_mut().datagrams[socket.0 as usize].sendable_token = Some(token);
        self.datagrams_changed(socket.0);
    }

    fn completed(&mut self, out: &mut Vec<Completion>) {
        let before = out.len();
        self.deliver_posted(out);
        self.parts_mut().counters.completions += (out.len() - before) as u64;
    }

    fn wait(&mut self, until: Option<Nanos>, out: &mut Vec<Completion>) -> Result<(), Errno> {
        OsEngine::wait(self, until, out)
    }
}

impl<E: OsEngine> Disk for E {
    fn start_helpers(&mut self) {
        self.parts_mut().disk.start_helpers();
    }

    fn open(&mut self, root: &Root, path: &[u8], token: Token) -> Started<OpenedFile> {
        self.parts_mut().disk.open(root, path, token)
    }

    fn open_plain(
        &mut self,
        root: &Root,
        path: &[u8],
        ahead: usize,
        token: Token,
    ) -> Started<OpenedFile> {
        let ahead = ahead.min(limits::READ_AHEAD_MAX);
        self.parts_mut().disk.open_plain(root, path, ahead, token)
    }

    fn survey(
        &mut self,
        root: &Root,
        path: &[u8],
        max_and_keep: (usize, KeepName),
        token: Token,
    ) -> Started<Survey> {
        self.parts_mut()
            .disk
            .survey(root, path, max_and_keep, token)
    }

    fn peek(&self, root: &Root, path: &[u8]) -> Option<Meta> {
        root.as_os().peek(path)
    }

    fn meta(&self, file: &File) -> Result<Meta, Errno> {
        file.as_os().meta()
    }

    fn read(&mut self, file: &File, offset: u64, len: usize, token: Token) -> Started<Vec<u8>> {
        let parts = self.parts_mut();
        let range = (offset, len);
        parts.disk.read(file, range, token, &mut parts.outputs)
    }

    fn list(
        &mut self,
        root: &Root,
        path: &[u8],
        limits: (usize, bool),
        render: Render,
        token: Token,
    ) -> Started<Listed> {
        self.parts_mut()
            .disk
            .list(root, path, limits, render, token)
    }

    fn cannot_change(&self, file: &File) -> bool {
        Fixed::of(file.as_os()).is_some()
    }

    fn copy(&mut self, file: &File, range: Range<u64>, token: Token) -> Started<File> {
        self.parts_mut().disk.copy(file, range, token)
    }

    fn share_copies(&mut self, max: u64) -> u64 {
        self.parts().disk.share_copies(max)
    }

    fn drop_unawaited(&mut self, is_awaited: &mut dyn FnMut(Token) -> bool) {
        self.parts().disk.drop_unawaited(|owner| match owner {
            Owner::Caller(token) => is_awaited(token),
            Owner::Socket(key) => self.is_current(key),
        });
    }

    fn give_back(&mut self, bytes: Vec<u8>) {
        self.parts_mut().disk.give_back(bytes);
    }
}
