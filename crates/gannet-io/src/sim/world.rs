//! The state of a simulation, and the one event that happens next in it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::driver::{
    Completion, Done, File, IoCounters, KeepName, Listener, Nanos, Peer, Receipt, Render, Socket,
    Token,
};
use crate::ktls::ControlRecord;
use crate::outputs::Outputs;
use crate::progress::Progress;
use crate::sim::buffers::Buffers;
use crate::sim::datagrams::{Arrived, Datagrams, Event};
use crate::sim::disk::{DiskTree, SimFile, lock};
use crate::sim::faults::Faults;
use crate::sim::kernel_tls::{Encrypting, KernelTlsModel};
use crate::sim::leaks::Leaks;
use crate::sim::network::{Connection, ServerEnd};
use crate::sim::random::Random;

/// Where the wall clock starts: the first second of 2026.
const WALL_START_NS: i128 = 1_767_225_600 * 1_000_000_000;

/// How many bytes to send a socket holds, unless the faults specify it.
const SOCKET_CAPACITY: usize = 64 * 1024;

/// Everything that both sides of a simulation see.
#[derive(Debug)]
pub(crate) struct World {
    pub(super) now: Nanos,
    wall_jumped_ns: i128,
    pub(super) alarm: Option<Nanos>,
    pub(super) random: Random,
    pub(super) faults: Faults,
    pub(super) connections: Vec<Connection>,
    pub(super) listeners: Vec<Listening>,
    pub(super) sockets: Vec<SimSocket>,
    free_sockets: Vec<u32>,
    pub(super) disk: DiskTree,
    pub(super) jobs: Vec<DiskJob>,
    /// How many there were.
    pub(super) jobs_begun: u64,
    pub(super) leases_out: usize,
    /// Where clients are.
    pub(super) receipt: Receipt,
    pub(super) counters: IoCounters,
    pub(super) kernel_tls: Option<KernelTlsModel>,
    pub(super) datagrams: Datagrams,
}

#[derive(Debug, Default)]
pub(super) struct Listening {
    queue: VecDeque<usize>,
    pub(super) accepting: Option<Token>,
    pub(super) is_closed: bool,
}

/// A socket of the server.
#[derive(Debug, Default)]
pub(super) struct SimSocket {
    /// `None` while the slot is free.
    pub(super) connection: Option<usize>,
    pub(super) receiving: Option<Token>,
    /// The receive ends with its first bytes.
    receives_once: bool,
    pub(super) sending: Option<SimSend>,
    pub(super) shuts_down: bool,
    /// Encrypts sent bytes, if the kernel does.
    pub(super) encrypting: Option<Encrypting>,
    receive_from: Nanos,
    send_from: Nanos,
}

/// A send under way.
#[derive(Debug)]
pub(super) enum SimSend {
    List(Token, Progress),
    Control(Token, ControlRecord),
    File {
        token: Token,
        head: Vec<u8>,
        head_sent: usize,
        file: File,
        offset: u64,
        len: u64,
        sent: u64,
    },
}

/// A disk operation that ends later.
#[derive(Debug)]
pub(super) struct DiskJob {
    pub(super) due: Nanos,
    pub(super) token: Token,
    pub(super) what: JobKind,
}

#[derive(Debug)]
pub(super) enum JobKind {
    Open(Vec<u8>),
    Read(File, u64, usize),
    Survey(Vec<u8>, usize, KeepName),
    List(Vec<u8>, usize, Render),
    Copy(File, Range<u64>),
}

/// Something that can happen now.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Accept(usize),
    Receive(usize),
    Send(usize),
    Job(usize),
    Datagrams(Event),
}

impl World {
    pub(super) fn new(seed: u64, listeners: usize, faults: Faults) -> Self {
        Self {
            now: Nanos(1_000_000_000),
            wall_jumped_ns: 0,
            alarm: None,
            random: Random::new(seed),
            faults,
            connections: Vec::new(),
            listeners: (0..listeners).map(|_| Listening::default()).collect(),
            sockets: Vec::new(),
            free_sockets: Vec::new(),
            disk: DiskTree::default(),
            jobs: Vec::new(),
            jobs_begun: 0,
            leases_out: 0,
            receipt: Receipt::Acknowledged,
            counters: IoCounters::default(),
            kernel_tls: None,
            datagrams: Datagrams::new(seed),
        }
    }

    pub(super) fn wall_ns(&self) -> i128 {
        WALL_START_NS + i128::from(self.now.0) + self.wall_jumped_ns
    }

    pub(super) fn jump_wall_clock(&mut self, seconds: i64) {
        self.wall_jumped_ns += i128::from(seconds) * 1_000_000_000;
    }

    pub(super) fn leaks(&self) -> Leaks {
        let open = || {
            self.sockets
                .iter()
                .filter(|socket| socket.connection.is_some())
        };
        let operations = |socket: &SimSocket| {
            usize::from(socket.receiving.is_some()) + usize::from(socket.sending.is_some())
        };
        Leaks {
            open_sockets: open().count(),
            leases_out: self.leases_out,
            files_open: self.disk.open_count.load(Ordering::Relaxed),
            operations_in_flight: open().map(operations).sum::<usize>() + self.jobs.len(),
        }
    }

    /// A connection by `peer`; `None` is a client of its own port at one address.
    pub(super) fn connect(&mut self, listener: Listener, peer: Option<Peer>) -> Option<usize> {
        let listening = &mut self.listeners[listener.0 as usize];
        if listening.is_closed {
            return None;
        }
        let id = self.connections.len();
        listening.queue.push_back(id);
        let peer = peer.unwrap_or_else(|| {
            let port = u16::try_from(id % 65_536).expect("a remainder");
            Peer::Ip(SocketAddr::from(([192, 0, 2, 1], port)))
        });
        self.connections.push(Connection::new(peer));
        Some(id)
    }

    /// Takes a connection out of the queue of a listener.
    pub(super) fn accept_next(&mut self, listener: usize) -> Option<Socket> {
        let id = self.listeners[listener].queue.pop_front()?;
        let index = self.free_sockets.pop().unwrap_or_else(|| {
            self.sockets.push(SimSocket::default());
            self.sockets.len() as u32 - 1
        });
        self.sockets[index as usize].connection = Some(id);
        Some(Socket(index))
    }

    pub(super) fn reset_by_server(&mut self, id: usize) {
        let connection = &mut self.connections[id];
        connection.server_end = ServerEnd::Reset;
        // A reset overtakes bytes that the client has not read yet, or arrives just after them.
        if self.random.chance(500) {
            self.connections[id].drop_queued();
        }
    }

    /// Forgets a socket; returns its send, whose vector can be reused.
    pub(super) fn close(&mut self, socket: Socket, resets: bool) -> Option<SimSend> {
        if !resets {
            self.lose_held_records(socket);
        }
        let endpoint = std::mem::take(&mut self.sockets[socket.0 as usize]);
        let id = endpoint.connection.expect("a socket is closed once");
        self.free_sockets.push(socket.0);
        self.connections[id].is_closed = true;
        if resets {
            self.connections[id].server_end = ServerEnd::Reset;
            self.connections[id].drop_queued();
        } else if !self.connections[id].to_server.is_empty() {
            // Closing with unread bytes is a reset in the kernel as well.
            self.reset_by_server(id);
        } else if self.connections[id].server_end == ServerEnd::Open {
            self.connections[id].server_end = ServerEnd::Finished;
        }
        endpoint.sending
    }

    pub(super) fn connection(&mut self, socket: Socket) -> &mut Connection {
        let id = self.sockets[socket.0 as usize]
            .connection
            .expect("a socket in use");
        &mut self.connections[id]
    }

    /// What a peer on the same machine has read, if it can be asked.
    pub(super) fn read_by_peer(&mut self, socket: Socket) -> u64 {
        let is_lost = self.random.chance(self.faults.peer_unknown);
        let connection = self.connection(socket);
        connection.is_unknown |= is_lost;
        match connection.is_unknown {
            true => 0,
            false => connection.read,
        }
    }

    /// When an operation submitted now starts.
    fn start(&mut self) -> Nanos {
        if self.random.chance(self.faults.queue_full) {
            self.counters.queue_full += 1;
            return self.later();
        }
        self.now
    }

    fn later(&mut self) -> Nanos {
        Nanos(self.now.0 + 1 + self.random.below(self.faults.delay_max_ns))
    }

    pub(super) fn arm_receive(&mut self, socket: Socket, token: Token, once: bool) {
        let from = self.start();
        let endpoint = &mut self.sockets[socket.0 as usize];
        endpoint.receiving = Some(token);
        endpoint.receives_once = once;
        endpoint.receive_from = from;
    }

    pub(super) fn arm_send(&mut self, socket: Socket, sending: SimSend) {
        let from = match &sending {
            SimSend::File { file, .. } => {
                let slow = lock(&sim_file(file).node).slow_ns;
                let cold = self.random.chance(self.faults.cold);
                let from = if cold { self.later() } else { self.start() };
                Nanos(from.0 + slow)
            }
            SimSend::List(..) | SimSend::Control(..) => self.start(),
        };
        let endpoint = &mut self.sockets[socket.0 as usize];
        assert!(endpoint.sending.is_none(), "one send at a time");
        endpoint.sending = Some(sending);
        endpoint.send_from = from;
    }

    /// When a disk job ends: `None` for at once.
    pub(super) fn due(&mut self, slow_ns: u64) -> Option<Nanos> {
        if slow_ns > 0 {
            return Some(Nanos(self.now.0 + slow_ns));
        }
        self.random.chance(self.faults.cold).then(|| self.later())
    }

    /// The same for opening a path.
    pub(super) fn due_at(&mut self, path: &[u8]) -> Option<Nanos> {
        let slow_ns = self.disk.node(path).map_or(0, |node| lock(node).slow_ns);
        self.due(slow_ns)
    }

    /// All actions possible now, and when the next one becomes possible.
    pub(super) fn actions(&self) -> (Vec<Action>, Option<Nanos>) {
        let mut actions = Vec::new();
        let mut next: Option<Nanos> = None;
        let mut at = |from: Nanos, action| {
            if from <= self.now {
                actions.push(action);
            } else {
                next = Some(next.map_or(from, |earliest| earliest.min(from)));
            }
        };
        for (index, listening) in self.listeners.iter().enumerate() {
            if listening.accepting.is_some() && !listening.queue.is_empty() {
                at(Nanos(0), Action::Accept(index));
            }
        }
        for (index, endpoint) in self.sockets.iter().enumerate() {
            let Some(id) = endpoint.connection else {
                continue;
            };
            let connection = &self.connections[id];
            let arrived = !connection.to_server.is_empty() || connection.client_ended;
            if endpoint.receiving.is_some() && (arrived || connection.client_reset) {
                at(endpoint.receive_from, Action::Receive(index));
            }
            let has_room = connection.queued() < self.capacity();
            if endpoint.sending.is_some() && (has_room || connection.client_reset) {
                at(endpoint.send_from, Action::Send(index));
            }
        }
        for (index, job) in self.jobs.iter().enumerate() {
            at(job.due, Action::Job(index));
        }
        let datagrams = &self.datagrams;
        datagrams.events(|from, event| at(from, Action::Datagrams(event)));
        (actions, next)
    }

    fn capacity(&self) -> usize {
        if self.faults.socket_capacity == 0 {
            SOCKET_CAPACITY
        } else {
            self.faults.socket_capacity
        }
    }

    /// Bytes in sends under way.
    pub(super) fn untaken(&self) -> u64 {
        let sends = self.sockets.iter().filter_map(|it| it.sending.as_ref());
        let bytes = sends.map(|sending| match sending {
            SimSend::List(_, progress) => progress.total() - progress.sent(),
            SimSend::Control(_, record) => record.content().len() as u64,
            SimSend::File {
                head, head_sent, ..
            } => (head.len() - head_sent) as u64,
        });
        bytes.sum()
    }

    /// How many bytes a socket takes now.
    pub(super) fn room(&mut self, socket: Socket) -> usize {
        self.capacity()
            .saturating_sub(self.connection(socket).queued())
    }

    /// Performs one action (or delays it).
    pub(super) fn perform(
        &mut self,
        action: Action,
        buffers: &mut Buffers,
        outputs: &mut Outputs,
        out: &mut Vec<Completion>,
    ) {
        match action {
            Action::Accept(index) => self.perform_accept(index, out),
            Action::Receive(index) => {
                self.reset_by_chance(index);
                self.perform_receive(index, buffers, out);
            }
            Action::Send(index) => {
                self.reset_by_chance(index);
                self.perform_send(index, outputs, out);
            }
            Action::Job(index) => self.perform_job(index, out),
            Action::Datagrams(event) => self.perform_datagrams(event, buffers, out),
        }
    }

    fn reset_by_chance(&mut self, index: usize) {
        if self.random.chance(self.faults.reset) {
            let connection = self.connection(Socket(index as u32));
            connection.client_reset = true;
            connection.drop_queued();
        }
    }

    fn perform_accept(&mut self, index: usize, out: &mut Vec<Completion>) {
        let token = self.listeners[index]
            .accepting
            .expect("checked by the caller");
        if self.random.chance(self.faults.accept_fails) {
            self.listeners[index].accepting = None;
            out.push(Completion {
                token,
                result: Err(Errno::MFILE),
                more: false,
            });
        } else if let Some(socket) = self.accept_next(index) {
            out.push(Completion {
                token,
                result: Ok(Done::Accepted(socket)),
                more: true,
            });
        }
    }

    fn perform_receive(&mut self, index: usize, buffers: &mut Buffers, out: &mut Vec<Completion>) {
        let token = self.sockets[index]
            .receiving
            .expect("checked by the caller");
        if self.random.chance(self.faults.delay) {
            self.sockets[index].receive_from = self.later();
            return;
        }
        let socket = Socket(index as u32);
        if self.connection(socket).client_reset {
            self.sockets[index].receiving = None;
            out.push(Completion {
                token,
                result: Err(Errno::CONNRESET),
                more: false,
            });
            return;
        }
        let there = self.connection(socket).to_server.len();
        if there == 0 {
            self.sockets[index].receiving = None;
            out.push(Completion {
                token,
                result: Ok(Done::Ended),
                more: false,
            });
            return;
        }
        if self.random.chance(self.faults.no_buffers) || !buffers.has_free() {
            self.counters.no_buffers += 1;
            self.sockets[index].receive_from = self.later();
            return;
        }
        let mut len = there.min(buffers.buffer_len());
        if self.random.chance(self.faults.short_receive) {
            len = 1 + self.random.below(len as u64) as usize;
        }
        let more = !self.sockets[index].receives_once;
        if !more {
            self.sockets[index].receiving = None;
        }
        let lease = buffers.fill(self.connection(socket).to_server.drain(..len));
        self.leases_out += 1;
        out.push(Completion {
            token,
            result: Ok(Done::Received(lease)),
            more,
        });
    }

    fn perform_send(&mut self, index: usize, outputs: &mut Outputs, out: &mut Vec<Completion>) {
        if self.random.chance(self.faults.delay) {
            self.sockets[index].send_from = self.later();
            return;
        }
        let socket = Socket(index as u32);
        let mut sending = self.sockets[index]
            .sending
            .take()
            .expect("checked by the caller");
        let result = if self.connection(socket).client_reset {
            Err(Errno::PIPE)
        } else {
            match self.send_some(socket, &mut sending) {
                Ok(None) => {
                    self.counters.short_sends += 1;
                    self.sockets[index].sending = Some(sending);
                    return;
                }
                Ok(Some(total)) => Ok(Done::Sent(total)),
                Err(errno) => Err(errno),
            }
        };
        let token = sending.token();
        outputs.give_back(sending.into_vec());
        out.push(Completion {
            token,
            result,
            more: false,
        });
        if self.sockets[index].shuts_down {
            self.finish(socket);
        }
    }

    pub(super) fn finish(&mut self, socket: Socket) {
        self.lose_held_records(socket);
        let connection = self.connection(socket);
        if connection.server_end == ServerEnd::Open {
            connection.server_end = ServerEnd::Finished;
        }
    }

    /// Moves some bytes; returns the total once the last have moved.
    fn send_some(&mut self, socket: Socket, sending: &mut SimSend) -> Result<Option<u64>, Errno> {
        let mut room = self.room(socket);
        if room > 0 && self.random.chance(self.faults.short_send) {
            room = 1 + self.random.below(room as u64) as usize;
        }
        match sending {
            SimSend::List(_, progress) => {
                let mut left = room;
                for part in progress.parts() {
                    let count = part.len.min(left);
                    // SAFETY: the part is in memory that `progress` keeps alive; a simulated server
                    // sends heap memory, or mappings of files that its test leaves alone.
                    let bytes = unsafe { std::slice::from_raw_parts(part.start, count) };
                    self.queue(socket, bytes);
                    left -= count;
                }
                progress.advance((room - left) as u64);
                Ok(progress.is_done().then(|| progress.total()))
            }
            SimSend::Control(_, record) => {
                self.queue_control(socket, record);
                Ok(Some(record.content().len() as u64))
            }
            SimSend::File {
                head,
                head_sent,
                file,
                offset,
                len,
                sent,
                ..
            } => {
                let from_head = room.min(head.len() - *head_sent);
                let bytes = &head[*head_sent..*head_sent + from_head];
                self.queue(socket, bytes);
                *head_sent += from_head;
                *sent += from_head as u64;
                if *head_sent < head.len() {
                    return Ok(None);
                }
                let room = (room - from_head) as u64;
                if *len == 0 {
                    return Ok(Some(*sent));
                }
                if self.random.chance(self.faults.io_error) {
                    return Err(Errno::IO);
                }
                let node = &sim_file(file).node;
                let count = {
                    let node = lock(node);
                    let readable = node.read(*offset, *len)?.len() as u64;
                    if readable == 0 {
                        // The file ended before the range did.
                        return Ok(Some(*sent));
                    }
                    readable.min(room)
                };
                if self.sockets[socket.0 as usize].encrypting.is_some() {
                    // Encryption reads the pages: the queue keeps no reference to the file.
                    let bytes = lock(node).read(*offset, count)?.to_vec();
                    self.queue(socket, &bytes);
                } else {
                    self.connection(socket)
                        .queue_pages(node, *offset, count as usize);
                }
                *offset += count;
                *len -= count;
                *sent += count;
                Ok((*len == 0).then_some(*sent))
            }
        }
    }

    fn perform_datagrams(
        &mut self,
        event: Event,
        buffers: &mut Buffers,
        out: &mut Vec<Completion>,
    ) {
        let (now, faults) = (self.now, &self.faults);
        match event {
            Event::Arrive => self.datagrams.arrive(now, faults),
            Event::Receive(index) => {
                let counters = &mut self.counters;
                let socket = (index, now);
                let leases = self
                    .datagrams
                    .receive(socket, faults, buffers, counters, out);
                self.leases_out += leases;
                self.counters.datagrams_dropped = self.datagrams.dropped();
            }
            Event::Sendable(index) => {
                let token = self.datagrams.sockets[index].sendable_token.take();
                out.push(Completion {
                    token: token.expect("checked by the caller"),
                    result: Ok(Done::Sendable),
                    more: false,
                });
            }
        }
    }

    /// Sends a client's datagram on its way.
    pub(super) fn launch_datagram(&mut self, datagram: Arrived) {
        self.datagrams.launch(self.now, &self.faults, datagram);
    }
}

impl SimSend {
    fn token(&self) -> Token {
        match self {
            Self::List(token, _) | Self::Control(token, _) | Self::File { token, .. } => *token,
        }
    }

    pub(super) fn into_vec(self) -> Vec<u8> {
        match self {
            Self::List(_, progress) => progress.into_list().wire,
            Self::File { head, .. } => head,
            Self::Control(..) => Vec::new(),
        }
    }
}

/// The virtual file behind a handle. Panics on a real one, which the simulator never returns.
pub(super) fn sim_file(file: &File) -> &SimFile {
    file.as_virtual().expect("a file of the virtual disk")
}
