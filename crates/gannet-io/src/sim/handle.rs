//! The other side of a simulation: clients, the disk's owner, and the judge.

use std::sync::{Arc, Mutex};

use crate::driver::{Listener, Nanos, Root};
use crate::files::RootInner;
use crate::sim::disk::{Change, SimRoot, lock};
use crate::sim::network::{Connection, ServerEnd};
use crate::sim::world::World;
use crate::sim::{Faults, KernelTlsModel};

/// Drives everything in a simulation that is not the server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SimHandle(pub(super) Arc<Mutex<World>>);

/// What a finished run must not leave behind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Leaks {
    /// Sockets that the server has not closed.
    pub open_sockets: usize,
    /// Receive buffers on loan.
    pub leases_out: usize,
    /// Files that are still open (caches of the server included).
    pub files_open: usize,
    /// Operations under way.
    pub operations_in_flight: usize,
    /// Guards that were not ended.
    pub guards_held: usize,
}

impl Leaks {
    /// Whether nothing is left.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        *self == Self::default()
    }
}

impl SimHandle {
    /// The root directory of the virtual disk.
    #[must_use]
    pub fn root(&self) -> Root {
        Root(Arc::new(RootInner::Sim(SimRoot)))
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        lock(&self.0).now
    }

    /// The driver's wait does not pass this moment before it has returned once: the clients act
    /// then. One alarm at a time; `None` takes it back.
    pub fn wake_at(&self, moment: Option<Nanos>) {
        lock(&self.0).alarm = moment;
    }

    /// Changes what may go wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.0).faults = faults;
    }

    /// Loads the kernel's TLS module, so to say (`None` unloads it, for connections to come).
    /// Without it [`seal_in_kernel`](crate::driver::Driver::seal_in_kernel) fails with `ENOENT`.
    pub fn set_kernel_tls(&self, model: Option<KernelTlsModel>) {
        lock(&self.0).kernel_tls = model;
    }

    /// Moves the wall clock, and not the monotonic one.
    pub fn jump_wall_clock(&self, seconds: i64) {
        lock(&self.0).jump_wall_clock(seconds);
    }

    /// What is left behind now.
    #[must_use]
    pub fn leaks(&self) -> Leaks {
        lock(&self.0).leaks()
    }

    /// Connects a client. `None` when the listener is closed.
    #[must_use]
    pub fn connect(&self, listener: Listener) -> Option<Client> {
        let id = lock(&self.0).connect(listener)?;
        Some(Client {
            world: Arc::clone(&self.0),
            id,
        })
    }

    /// A new file at `path` (no leading slash): created, or in place of the old one by rename.
    pub fn put_file(&self, path: &str, content: impl Into<Vec<u8>>) {
        let mut world = lock(&self.0);
        let now_ns = world.wall_ns();
        world.disk.put(path.as_bytes(), content.into(), now_ns);
    }

    /// Deletes the file; those who have it open keep it.
    pub fn remove_file(&self, path: &str) {
        lock(&self.0).disk.remove(path.as_bytes());
    }

    /// Truncates (or extends with zeros) in place. Waits, as a writer would, for guards to end.
    /// Panics if there is no such file.
    pub fn truncate_file(&self, path: &str, len: u64) {
        self.change_file(path, Change::Truncate(len));
    }

    /// Replaces all bytes in place. Waits, as a writer would, for guards to end. Panics if there
    /// is no such file.
    pub fn overwrite_file(&self, path: &str, content: impl Into<Vec<u8>>) {
        self.change_file(path, Change::Overwrite(content.into()));
    }

    /// The length that the file has now; `None` if there is none at the path.
    #[must_use]
    pub fn file_len(&self, path: &str) -> Option<u64> {
        let world = lock(&self.0);
        let node = world.disk.node(path.as_bytes())?;
        Some(lock(node).meta.len)
    }

    fn change_file(&self, path: &str, change: Change) {
        let world = lock(&self.0);
        let node = world
            .disk
            .node(path.as_bytes())
            .expect("a file that the test has put");
        lock(node).change(change, world.wall_ns());
    }

    /// Has every read at or beyond `offset` fail with `EIO` (`None`: no more). Panics if there is
    /// no such file.
    pub fn break_file(&self, path: &str, offset: Option<u64>) {
        let world = lock(&self.0);
        let node = world
            .disk
            .node(path.as_bytes())
            .expect("a file that the test has put");
        lock(node).broken_at = offset;
    }

    /// Has every open and read take this long. Panics if there is no such file.
    pub fn slow_file(&self, path: &str, delay_ns: u64) {
        let world = lock(&self.0);
        let node = world
            .disk
            .node(path.as_bytes())
            .expect("a file that the test has put");
        lock(node).slow_ns = delay_ns;
    }
}

/// A simulated client. What it does not [`read`](Self::read) stays in the server's socket: a slow
/// reader is one that reads rarely.
#[derive(Debug)]
pub struct Client {
    world: Arc<Mutex<World>>,
    id: usize,
}

/// How a connection looks to its client, once all bytes are read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// More may come.
    Open,
    /// The server has sent all and finished.
    Finished,
    /// The connection was reset.
    Reset,
}

impl Client {
    fn with<T>(&self, act: impl FnOnce(&mut Connection) -> T) -> T {
        act(&mut lock(&self.world).connections[self.id])
    }

    /// Sends bytes to the server.
    pub fn write(&self, bytes: &[u8]) {
        let mut world = lock(&self.world);
        if world.connections[self.id].is_closed {
            // Nobody listens any more: the answer is a reset, which may overtake what was sent.
            world.reset_by_server(self.id);
        } else {
            world.connections[self.id].to_server.extend(bytes);
        }
    }

    /// Takes all bytes that have arrived.
    pub fn read(&self) -> Vec<u8> {
        self.read_at_most(usize::MAX)
    }

    /// Takes up to `max` of the bytes that have arrived.
    pub fn read_at_most(&self, max: usize) -> Vec<u8> {
        self.with(|connection| connection.take(max))
    }

    /// How many bytes have arrived and are not read.
    #[must_use]
    pub fn readable(&self) -> usize {
        self.with(|connection| connection.queued())
    }

    /// How the connection has ended, as known when all bytes are read.
    #[must_use]
    pub fn end(&self) -> End {
        self.with(|connection| {
            if connection.client_reset || connection.server_end == ServerEnd::Reset {
                End::Reset
            } else if connection.queued() == 0 && connection.server_end == ServerEnd::Finished {
                End::Finished
            } else {
                End::Open
            }
        })
    }

    /// Whether the server has let go of the connection; what it has sent can still be read.
    #[must_use]
    pub fn is_closed_by_server(&self) -> bool {
        self.with(|connection| connection.is_closed)
    }

    /// Sends the end of the stream; reading goes on.
    pub fn shutdown_write(&self) {
        self.with(|connection| connection.client_ended = true);
    }

    /// Resets the connection.
    pub fn reset(&self) {
        self.with(|connection| {
            connection.client_reset = true;
            connection.drop_queued();
        });
    }
}

impl Drop for Client {
    /// A client that goes away ends its half; if it left bytes unread, the server gets a reset.
    fn drop(&mut self) {
        self.with(|connection| {
            connection.client_ended = true;
            if connection.queued() > 0 {
                connection.client_reset = true;
                connection.drop_queued();
            }
        });
    }
}
