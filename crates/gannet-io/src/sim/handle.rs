//! The other side of a simulation: the clients, the owner of the disk, and the judge.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use crate::driver::{Listener, Nanos, Peer, Receipt, Root};
use crate::sim::disk::{Change, lock};
use crate::sim::faults::Faults;
use crate::sim::kernel_tls::KernelTlsModel;
use crate::sim::leaks::Leaks;
use crate::sim::network::{Connection, ServerEnd};
use crate::sim::world::{DiskJob, JobKind, World};

/// Drives everything in a simulation except the server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SimHandle(pub(super) Arc<Mutex<World>>);

impl SimHandle {
    /// The root directory of the virtual disk.
    #[must_use]
    pub fn root(&self) -> Root {
        Root::of_virtual(b"")
    }

    /// A folder of it as a root: paths below it begin there.
    #[must_use]
    pub fn root_at(&self, folder: &str) -> Root {
        Root::of_virtual(format!("{folder}/").as_bytes())
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        lock(&self.0).now
    }

    /// The driver's wait does not pass this moment without returning once, so that the clients can
    /// act. One alarm at a time; `None` cancels it.
    pub fn wake_at(&self, moment: Option<Nanos>) {
        lock(&self.0).alarm = moment;
    }

    /// Changes what may go wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        lock(&self.0).faults = faults;
    }

    /// Loads the kernel's TLS module, so to speak (`None` unloads it, for connections to come).
    /// Without it [`encrypt_in_kernel`](crate::driver::Network::encrypt_in_kernel) fails with
    /// `ENOENT`.
    pub fn set_kernel_tls(&self, model: Option<KernelTlsModel>) {
        lock(&self.0).kernel_tls = model;
    }

    /// Sets where clients are: on another machine, unless it is set otherwise; in the same namespace, where
    /// they can be asked what they have read of what has arrived; or in a container.
    pub fn set_receipt(&self, receipt: Receipt) {
        lock(&self.0).receipt = receipt;
    }

    /// A file cannot be changed from now on. Panics if there is no such file.
    pub fn fix_file(&self, path: &str) {
        let world = lock(&self.0);
        let node = world.disk.node(path.as_bytes());
        lock(node.expect("a file that the test has put")).cannot_change = true;
    }

    /// Moves the wall clock, but not the monotonic one.
    pub fn jump_wall_clock(&self, seconds: i64) {
        lock(&self.0).jump_wall_clock(seconds);
    }

    /// What would be left behind now.
    #[must_use]
    pub fn leaks(&self) -> Leaks {
        lock(&self.0).leaks()
    }

    /// Bytes that the server has passed to sends and that no socket has taken: the memory it holds
    /// for peers that read nothing. Files do not count, since they are not held in memory.
    #[must_use]
    pub fn untaken(&self) -> u64 {
        lock(&self.0).untaken()
    }

    /// Connects a client. `None` when the listener is closed.
    #[must_use]
    pub fn connect(&self, listener: Listener) -> Option<Client> {
        self.connect_as(listener, None)
    }

    /// The same, by a client at this address.
    #[must_use]
    pub fn connect_from(&self, listener: Listener, peer: Peer) -> Option<Client> {
        self.connect_as(listener, Some(peer))
    }

    fn connect_as(&self, listener: Listener, peer: Option<Peer>) -> Option<Client> {
        let id = lock(&self.0).connect(listener, peer)?;
        Some(Client {
            world: Arc::clone(&self.0),
            id,
        })
    }

    /// A new file at `path` (no leading slash): created, or replacing the old one as by rename.
    pub fn put_file(&self, path: &str, content: impl Into<Vec<u8>>) {
        let mut world = lock(&self.0);
        let now_ns = world.wall_ns();
        world.disk.put(path.as_bytes(), content.into(), now_ns);
    }

    /// Deletes the file; open files stay readable.
    pub fn remove_file(&self, path: &str) {
        let mut world = lock(&self.0);
        let now_ns = world.wall_ns();
        world.disk.remove(path.as_bytes(), now_ns);
    }

    /// Truncates (or extends with zeros) in place. Panics if there is no such file.
    pub fn truncate_file(&self, path: &str, len: u64) {
        self.change_file(path, Change::Truncate(len));
    }

    /// Replaces all bytes in place. Panics if there is no such file.
    pub fn overwrite_file(&self, path: &str, content: impl Into<Vec<u8>>) {
        self.change_file(path, Change::Overwrite(content.into()));
    }

    /// Bytes of all open copies of files ([`Disk::copy`](crate::driver::Disk::copy)).
    #[must_use]
    pub fn copied_bytes(&self) -> u64 {
        lock(&self.0).disk.copied.load(Ordering::Relaxed)
    }

    /// Bytes of the pages that short copies share which no copy has.
    #[must_use]
    pub fn lost_bytes(&self) -> u64 {
        lock(&self.0).disk.pages.lost()
    }

    /// Begins to replace all bytes in place by the same number of others, in one write: half of
    /// them are written when it returns. Panics if there is no such file.
    pub fn begin_overwrite(&self, path: &str, content: impl Into<Vec<u8>>) {
        self.change_file(path, Change::Begin(content.into()));
    }

    /// Finishes what [`begin_overwrite`](Self::begin_overwrite) has begun. As in a kernel, the
    /// times of the file are not set again.
    pub fn end_overwrite(&self, path: &str, content: impl Into<Vec<u8>>) {
        self.change_file(path, Change::End(content.into()));
    }

    /// As [`overwrite_file`](Self::overwrite_file), once further `calls` have seen the file: opened it,
    /// read it or queried its metadata. Panics if there is no such file.
    pub fn overwrite_file_after(&self, calls: u32, path: &str, content: impl Into<Vec<u8>>) {
        let world = lock(&self.0);
        let node = world
            .disk
            .node(path.as_bytes())
            .expect("a file that the test has put");
        lock(node).change_after(calls, Change::Overwrite(content.into()));
    }

    /// Appends this to a file each time that a call has seen it: a writer that never pauses. Panics if
    /// there is no such file.
    pub fn append_at_each_call(&self, path: &str, bytes: impl Into<Vec<u8>>) {
        let world = lock(&self.0);
        let node = world
            .disk
            .node(path.as_bytes())
            .expect("a file that the test has put");
        lock(node).appended = bytes.into();
    }

    /// Makes every file older by `ms`.
    pub fn age_files(&self, ms: u64) {
        lock(&self.0).disk.age(i128::from(ms) * 1_000_000);
    }

    /// The current length of the file; `None` if there is none at the path.
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

    /// Makes every read at or beyond `offset` fail with `EIO` (`None`: no longer). Panics if there
    /// is no such file.
    pub fn break_file(&self, path: &str, offset: Option<u64>) {
        let world = lock(&self.0);
        let node = world
            .disk
            .node(path.as_bytes())
            .expect("a file that the test has put");
        lock(node).broken_at = offset;
    }

    /// Makes every open and read take this long. Panics if there is no such file.
    pub fn slow_file(&self, path: &str, delay_ns: u64) {
        let world = lock(&self.0);
        let node = world
            .disk
            .node(path.as_bytes())
            .expect("a file that the test has put");
        lock(node).slow_ns = delay_ns;
    }

    /// Disk operations so far that could not be answered at once.
    pub fn jobs_begun(&self) -> u64 {
        lock(&self.0).jobs_begun
    }

    /// Folders whose names are being read.
    pub fn surveys_in_progress(&self) -> usize {
        let world = lock(&self.0);
        let is_survey = |job: &&DiskJob| matches!(job.what, JobKind::Survey(..));
        world.jobs.iter().filter(is_survey).count()
    }

    /// Makes each copy of a file take this long at least.
    pub fn slow_copies(&self, delay_ns: u64) {
        lock(&self.0).disk.copy_ns = delay_ns;
    }

    /// Places a folder on another machine, where each listing takes this long.
    pub fn mount_foreign(&self, folder: &str, delay_ns: u64) {
        lock(&self.0).disk.foreign = Some((folder.into(), delay_ns));
    }
}

/// A simulated client. Bytes that it does not [`read`](Self::read) stay in the server's socket: a
/// slow reader is one that reads rarely.
#[derive(Debug)]
pub struct Client {
    world: Arc<Mutex<World>>,
    id: usize,
}

/// The state of a connection as seen by its client, once all bytes are read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// More may arrive.
    Open,
    /// The server has sent everything and ended its half.
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
            // The peer is gone: the answer is a reset, which may overtake sent bytes.
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

    /// How many bytes have arrived and have not been read.
    #[must_use]
    pub fn readable(&self) -> usize {
        self.with(|connection| connection.queued())
    }

    /// How many sent bytes the server has not received.
    #[must_use]
    pub fn unreceived(&self) -> usize {
        self.with(|connection| connection.to_server.len())
    }

    /// How the connection has ended, once all bytes are read.
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

    /// The most bytes a second that the server wants to be sent.
    #[must_use]
    pub fn paced(&self) -> Option<u64> {
        self.with(|connection| connection.paced)
    }

    /// Whether the server has closed the connection; the bytes it sent can still be read.
    #[must_use]
    pub fn is_closed_by_server(&self) -> bool {
        self.with(|connection| connection.is_closed)
    }

    /// Sends the end of the stream; reading continues.
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
    /// A client that is dropped ends its half; if it left bytes unread, the server gets a reset.
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
