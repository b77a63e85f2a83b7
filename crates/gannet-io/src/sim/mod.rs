//! A virtual network, disk and clock, driven by a seed: the third engine.
//!
//! The server and its clients run in one thread. The server calls [`Network::wait`] on a [`Sim`];
//! the test acts as clients and as the disk's owner through a [`SimHandle`], between the server's
//! turns. The same seed and the same calls give the same run, to the byte.
//!
//! Time stands still except in `wait`. There, possible events happen (some of them, in some order);
//! if there are none, the clock jumps to the earliest of: a delayed operation, the clients' alarm
//! ([`SimHandle::wake_at`]), the server's own deadline. A wait that moved bytes without completing
//! anything returns at once, so that clients that read after every turn are never passed over;
//! clients that are slow on purpose set an alarm.
//!
//! Datagrams travel one by one, with their own faults; a [`DatagramClient`] sends and receives
//! them, and [`SimHandle::exchanged`] has the byte counts for the anti-amplification limit.
//!
//! `sendfile` queues references to the file, as in the kernel: the client receives zeros for bytes
//! of a file that is truncated in place while they are queued, and bytes of both versions of a file
//! that is overwritten.

mod buffers;
mod datagram_client;
mod datagrams;
mod disk;
mod encrypted_sends;
mod faults;
mod handle;
mod jobs;
mod kernel_tls;
mod leaks;
mod network;
mod random;
mod shared_pages;
mod world;

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::driver::{
    Completion, DatagramSocket, Disk, Done, EngineReport, File, IoCounters, KeepName, Lease,
    Listed, Listener, Meta, Nanos, Network, OpenedFile, Peer, Receipt, Render, Root, SendList,
    Socket, Started, Survey, Token, Train, Waker,
};
use crate::ktls::{ControlRecord, ControlType, TxKeys};
use crate::options::EngineOptions;
use crate::outputs::Outputs;
use crate::progress::Progress;
use crate::sim::buffers::Buffers;
use crate::sim::disk::lock;
use crate::sim::world::{DiskJob, JobKind, SimSend, World, sim_file};
use crate::udp::of_one_call;
use crate::waker::WakerInner;

pub use crate::sim::datagram_client::DatagramClient;
pub use crate::sim::datagrams::{Arrived, Exchanged};
pub use crate::sim::faults::Faults;
pub use crate::sim::handle::{Client, End, SimHandle};
pub use crate::sim::kernel_tls::{KernelTlsModel, RecordEncryptor};
pub use crate::sim::leaks::Leaks;
pub use crate::sim::random::Random;

/// The simulated engine.
pub struct Sim {
    world: Arc<Mutex<World>>,
    /// As read by the last wait.
    now: Nanos,
    unix_ms: i64,
    buffers: Buffers,
    outputs: Outputs,
    /// Completions that arose outside of a wait, each with its socket.
    posted: Vec<(Option<Socket>, Completion)>,
    woken: Arc<AtomicBool>,
    wake_token: Option<Token>,
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sim(at {} ns)", self.now.0)
    }
}

impl Sim {
    /// A simulation with this many listeners. Every random decision follows from `seed`.
    #[must_use]
    pub fn new(seed: u64, listeners: usize, options: &EngineOptions, faults: Faults) -> Self {
        let world = World::new(seed, listeners, faults);
        Self {
            now: world.now,
            unix_ms: milliseconds(world.wall_ns()),
            world: Arc::new(Mutex::new(world)),
            buffers: Buffers::new(options.buffers, options.buffer_len),
            outputs: Outputs::default(),
            posted: Vec::new(),
            woken: Arc::new(AtomicBool::new(false)),
            wake_token: None,
        }
    }

    /// Adds datagram sockets of the server, which names them by their positions in this list. To be
    /// called once, before anything else.
    #[must_use]
    pub fn with_datagrams(self, addresses: &[SocketAddr]) -> Self {
        for &address in addresses {
            lock(&self.world).datagrams.add_socket(address);
        }
        self
    }

    /// The other side of the simulation.
    #[must_use]
    pub fn handle(&self) -> SimHandle {
        SimHandle(Arc::clone(&self.world))
    }

    fn forget(&mut self, socket: Socket, resets: bool) {
        let sending = lock(&self.world).close(socket, resets);
        if let Some(sending) = sending {
            self.outputs.give_back(sending.into_vec());
        }
        self.posted.retain(|(owner, _)| *owner != Some(socket));
    }

    /// Lets events happen until there is a completion to deliver, or something for clients to see.
    fn advance(&mut self, until: Option<Nanos>, out: &mut Vec<Completion>) {
        let mut world = lock(&self.world);
        loop {
            let (mut actions, next) = world.actions();
            if !actions.is_empty() {
                let reorder = world.faults.reorder;
                if world.random.chance(reorder) {
                    world.random.shuffle(&mut actions);
                    let kept = 1 + world.random.below(actions.len() as u64) as usize;
                    actions.truncate(kept);
                }
                // Jobs are removed from their list by index: from the last to the first.
                let mut jobs: Vec<usize> = Vec::new();
                for action in actions {
                    match action {
                        world::Action::Job(index) => jobs.push(index),
                        other => {
                            world.perform(other, &mut self.buffers, &mut self.outputs, out);
                        }
                    }
                }
                jobs.sort_unstable();
                for &index in jobs.iter().rev() {
                    let action = world::Action::Job(index);
                    world.perform(action, &mut self.buffers, &mut self.outputs, out);
                }
                return;
            }
            if !out.is_empty() {
                return;
            }
            let alarm = world.alarm;
            let Some(moment) = [until, alarm, next].into_iter().flatten().min() else {
                return;
            };
            world.now = world.now.max(moment);
            if alarm.is_some_and(|alarm| alarm <= world.now) {
                world.alarm = None;
                return;
            }
            if until.is_some_and(|until| until <= world.now) {
                return;
            }
        }
    }

    fn is_wake_late(&self) -> bool {
        let mut world = lock(&self.world);
        let late_wake = world.faults.late_wake;
        // Runs without this fault draw as many numbers as ever.
        late_wake > 0 && world.random.chance(late_wake)
    }

    fn let_clocks_run(&mut self) {
        let world = &mut *lock(&self.world);
        let mut passed = 1 + world.random.below(20_000);
        if world.random.chance(world.faults.late_wait) {
            passed += world.random.below(world.faults.delay_max_ns);
        }
        world.now = Nanos(world.now.0 + passed);
        if world.random.chance(world.faults.clock_jump) {
            let seconds = world.random.below(7201) as i64 - 3600;
            world.jump_wall_clock(seconds);
        }
        self.now = world.now;
        self.unix_ms = milliseconds(world.wall_ns());
    }

    fn pend(&mut self, due: Nanos, token: Token, what: JobKind) {
        let mut world = lock(&self.world);
        world.counters.helped += 1;
        world.jobs_begun += 1;
        world.jobs.push(DiskJob { due, token, what });
    }
}

/// Where a path below a root is on the disk.
fn below(root: &Root, path: &[u8]) -> Vec<u8> {
    let start = root.virtual_start();
    match (path, start.strip_suffix(b"/")) {
        (b"", Some(folder)) => folder.to_vec(),
        _ => [start, path].concat(),
    }
}

fn milliseconds(ns: i128) -> i64 {
    ns.div_euclid(1_000_000) as i64
}

impl Network for Sim {
    fn now(&self) -> Nanos {
        self.now
    }

    fn unix_ms(&self) -> i64 {
        self.unix_ms
    }

    fn report(&self) -> EngineReport {
        EngineReport {
            name: "sim",
            in_use: vec!["virtual clock"],
            missing: Vec::new(),
        }
    }

    fn counters(&self) -> IoCounters {
        lock(&self.world).counters
    }

    fn waker(&mut self, token: Token) -> Waker {
        self.wake_token = Some(token);
        Waker(Arc::new(WakerInner::Flag(Arc::clone(&self.woken))))
    }

    fn accept(&mut self, listener: Listener, token: Token) {
        let mut world = lock(&self.world);
        let listening = &mut world.listeners[listener.0 as usize];
        if !listening.is_closed {
            listening.accepting = Some(token);
        }
    }

    fn stop_accepting(&mut self, listener: Listener) {
        let mut world = lock(&self.world);
        let index = listener.0 as usize;
        world.listeners[index].is_closed = true;
        let Some(token) = world.listeners[index].accepting.take() else {
            return;
        };
        while let Some(socket) = world.accept_next(index) {
            let result = Ok(Done::Accepted(socket));
            self.posted.push((
                Some(socket),
                Completion {
                    token,
                    result,
                    more: false,
                },
            ));
        }
    }

    fn may_accept(&self) -> bool {
        let world = lock(&self.world);
        world.listeners.iter().any(|listening| !listening.is_closed) || !self.posted.is_empty()
    }

    fn peer(&self, socket: Socket) -> Peer {
        lock(&self.world).connection(socket).peer
    }

    fn receive(&mut self, socket: Socket, token: Token) {
        lock(&self.world).arm_receive(socket, token, false);
    }

    fn receive_once(&mut self, socket: Socket, token: Token) {
        lock(&self.world).arm_receive(socket, token, true);
    }

    fn pause_receiving(&mut self, socket: Socket) {
        lock(&self.world).sockets[socket.0 as usize].receiving = None;
    }

    fn received<'a>(&'a self, lease: &Lease) -> &'a [u8] {
        self.buffers.bytes(lease)
    }

    fn release(&mut self, lease: Lease) {
        lock(&self.world).leases_out -= 1;
        self.buffers.release(lease);
    }

    fn output(&mut self) -> Vec<u8> {
        self.outputs.take()
    }

    fn send(&mut self, socket: Socket, token: Token, list: SendList) {
        let progress = Progress::new(list);
        if progress.is_done() {
            let completion = Completion {
                token,
                result: Ok(Done::Sent(0)),
                more: false,
            };
            self.posted.push((Some(socket), completion));
            return;
        }
        lock(&self.world).arm_send(socket, SimSend::List(token, progress));
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
        let file = file.clone();
        let sending = SimSend::File {
            token,
            head,
            head_sent: 0,
            file,
            offset,
            len,
            sent: 0,
        };
        lock(&self.world).arm_send(socket, sending);
    }

    fn encrypt_in_kernel(&mut self, socket: Socket, keys: &TxKeys<'_>) -> Result<(), Errno> {
        lock(&self.world).encrypt_in_kernel(socket, keys)
    }

    fn send_control(&mut self, socket: Socket, token: Token, control: ControlType, content: &[u8]) {
        let record = ControlRecord::new(control, content);
        let mut world = lock(&self.world);
        let is_encrypting = world.sockets[socket.0 as usize].encrypting.is_some();
        assert!(is_encrypting, "the kernel encrypts");
        world.arm_send(socket, SimSend::Control(token, record));
    }

    fn shutdown_write(&mut self, socket: Socket) {
        let mut world = lock(&self.world);
        let endpoint = &mut world.sockets[socket.0 as usize];
        endpoint.shuts_down = true;
        if endpoint.sending.is_none() {
            world.finish(socket);
        }
    }

    fn close(&mut self, socket: Socket) {
        self.forget(socket, false);
    }

    fn reset(&mut self, socket: Socket) {
        self.forget(socket, true);
    }

    fn room(&mut self, socket: Socket, unsent_max: u32) -> u64 {
        let room = lock(&self.world).room(socket) as u64;
        room.min(u64::from(unsent_max))
    }

    fn bound_unsent(&mut self, _socket: Socket, _bytes: u32) {
        // Its sockets hold less than any bound.
    }

    fn pace(&mut self, socket: Socket, bytes_per_second: u64) {
        lock(&self.world).connection(socket).paced = Some(bytes_per_second);
    }

    fn cork(&mut self, _socket: Socket, _on: bool) {
        // It splits sent bytes at random.
    }

    fn acknowledge(&mut self, _socket: Socket) {
        // Its clients do not wait for that.
    }

    fn acknowledged(&mut self, socket: Socket) -> u64 {
        let mut world = lock(&self.world);
        let receipt = world.receipt;
        let connection = world.connection(socket);
        match receipt {
            // It has read it when it has it.
            Receipt::Acknowledged => connection.read,
            // On the same machine all that is in the queue has arrived.
            Receipt::Read | Receipt::Unknown => connection.read + connection.queued() as u64,
        }
    }

    fn unacknowledged(&self, socket: Socket) -> u64 {
        lock(&self.world).connection(socket).queued() as u64
    }

    fn receipt(&self, _socket: Socket) -> Receipt {
        lock(&self.world).receipt
    }

    fn received_by_peer(&mut self, socket: Socket) -> u64 {
        let mut world = lock(&self.world);
        match world.receipt {
            Receipt::Unknown => 0,
            Receipt::Acknowledged => world.connection(socket).read,
            Receipt::Read => world.read_by_peer(socket),
        }
    }

    fn is_local(&self, _socket: Socket) -> bool {
        // It matters only to how soon records are long.
        false
    }

    fn receive_datagrams(&mut self, socket: DatagramSocket, token: Token) {
        lock(&self.world).datagrams.sockets[socket.0 as usize].receive_token = Some(token);
    }

    fn leave_datagrams(&mut self, socket: DatagramSocket) {
        lock(&self.world).datagrams.sockets[socket.0 as usize].receive_token = None;
    }

    fn stop_datagrams(&mut self, socket: DatagramSocket) {
        lock(&self.world).datagrams.stop(socket.0 as usize);
    }

    fn send_datagrams(
        &mut self,
        socket: DatagramSocket,
        bytes: &[u8],
        trains: &[Train],
    ) -> Result<usize, Errno> {
        let world = &mut *lock(&self.world);
        let (index, now) = (socket.0 as usize, world.now);
        let (mut count, mut rest) = (0, bytes);
        world.counters.submissions += 1;
        for train in of_one_call(trains) {
            let (bytes, next) = rest.split_at(train.len);
            let (datagrams, faults) = (&mut world.datagrams, &world.faults);
            match datagrams.send((index, now), faults, bytes, train) {
                Ok(sent) => world.counters.datagrams_sent += sent,
                Err(errno) if count == 0 => return Err(errno),
                Err(_) => break,
            }
            count += 1;
            rest = next;
        }
        Ok(count)
    }

    fn when_sendable(&mut self, socket: DatagramSocket, token: Token) {
        lock(&self.world).datagrams.sockets[socket.0 as usize].sendable_token = Some(token);
    }

    fn wait(&mut self, until: Option<Nanos>, out: &mut Vec<Completion>) -> Result<(), Errno> {
        let mut happened = Vec::new();
        happened.extend(self.posted.drain(..).map(|(_, completion)| completion));
        if self.woken.load(Ordering::Acquire)
            && !self.is_wake_late()
            && self.woken.swap(false, Ordering::AcqRel)
            && let Some(token) = self.wake_token
        {
            happened.push(Completion {
                token,
                result: Ok(Done::Woken),
                more: false,
            });
        }
        self.advance(until, &mut happened);
        self.let_clocks_run();
        let mut world = lock(&self.world);
        world.counters.enters += 1;
        world.counters.completions += happened.len() as u64;
        drop(world);
        out.append(&mut happened);
        Ok(())
    }
}

impl Disk for Sim {
    fn open(&mut self, root: &Root, path: &[u8], token: Token) -> Started<OpenedFile> {
        let path = &below(root, path);
        let due = {
            let mut world = lock(&self.world);
            match world.due_at(path) {
                Some(due) => due,
                None => return Started::Now(world.open(path, 0)),
            }
        };
        self.pend(due, token, JobKind::Open(path.to_vec()));
        Started::Pending
    }

    fn open_plain(
        &mut self,
        root: &Root,
        path: &[u8],
        ahead: usize,
        token: Token,
    ) -> Started<OpenedFile> {
        let path = &below(root, path);
        let due = {
            let mut world = lock(&self.world);
            match world.due_at(path) {
                Some(due) => due,
                None => return Started::Now(world.open(path, ahead)),
            }
        };
        self.pend(due, token, JobKind::Open(path.to_vec()));
        Started::Pending
    }

    fn peek(&self, root: &Root, path: &[u8]) -> Option<Meta> {
        lock(&self.world).peek(&below(root, path))
    }

    fn meta(&self, file: &File) -> Result<Meta, Errno> {
        Ok(lock(&self.world).query(file))
    }

    fn read(&mut self, file: &File, offset: u64, len: usize, token: Token) -> Started<Vec<u8>> {
        let due = {
            let slow_ns = lock(&sim_file(file).node).slow_ns;
            let mut world = lock(&self.world);
            match world.due(slow_ns) {
                Some(due) => due,
                None => return Started::Now(world.read(file, offset, len)),
            }
        };
        self.pend(due, token, JobKind::Read(file.clone(), offset, len));
        Started::Pending
    }

    fn survey(
        &mut self,
        root: &Root,
        path: &[u8],
        (max, keep): (usize, KeepName),
        token: Token,
    ) -> Started<Survey> {
        let path = below(root, path);
        let due = {
            let mut world = lock(&self.world);
            if world.disk.foreign_ns(&path).is_some() {
                return Started::Now(Err(Errno::XDEV));
            }
            let now = world.now;
            world.due(0).unwrap_or(now)
        };
        self.pend(due, token, JobKind::Survey(path, max, keep));
        Started::Pending
    }

    fn list(
        &mut self,
        root: &Root,
        path: &[u8],
        (max, may_hang): (usize, bool),
        render: Render,
        token: Token,
    ) -> Started<Listed> {
        let path = &below(root, path);
        let due = {
            let mut world = lock(&self.world);
            let now = world.now;
            let slow_ns = world.disk.foreign_ns(path);
            if slow_ns.is_some() && !may_hang {
                return Started::Now(Err(Errno::XDEV));
            }
            world.due(slow_ns.unwrap_or(0)).unwrap_or(now)
        };
        self.pend(due, token, JobKind::List(path.to_vec(), max, render));
        Started::Pending
    }

    fn cannot_change(&self, file: &File) -> bool {
        lock(&sim_file(file).node).cannot_change
    }

    fn copy(&mut self, file: &File, range: Range<u64>, token: Token) -> Started<File> {
        let slow_ns = lock(&sim_file(file).node).slow_ns;
        let due = {
            let mut world = lock(&self.world);
            let now = world.now;
            let slow_ns = slow_ns.max(world.disk.copy_ns);
            world.due(slow_ns).unwrap_or(now)
        };
        self.pend(due, token, JobKind::Copy(file.clone(), range));
        Started::Pending
    }

    fn share_copies(&mut self, max: u64) -> u64 {
        let pages = &mut lock(&self.world).disk.pages;
        pages.max = max;
        pages.lost()
    }

    fn drop_unawaited(&mut self, is_awaited: &mut dyn FnMut(Token) -> bool) {
        let jobs = &mut lock(&self.world).jobs;
        jobs.retain(|job| is_awaited(job.token));
    }
}
