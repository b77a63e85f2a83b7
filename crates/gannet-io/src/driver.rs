//! The one interface between gannet and a kernel: operations in, completions out.
//!
//! Three engines implement [`Driver`]: `uring` (the default), `epoll` (does the call, keeps the
//! operation on `EAGAIN`, posts a completion) and `sim` (a virtual network, disk and clock). The
//! shape is that of completions, because readiness can emulate completions and not the reverse.
//!
//! # Contract
//!
//! * An operation is plain owned data. Whatever the kernel may touch belongs to the driver until
//!   the kernel is done with it; the caller never has to wait before it forgets a socket.
//! * A completion carries the [`Token`] given with the operation. Drivers never interpret it.
//! * After [`Driver::close`] or [`Driver::reset`] no later wait delivers a completion for that
//!   socket, not even one already queued. What the *same* wait has handed out beside the
//!   completion being handled is with the caller already: it has to recognise those tokens, and to
//!   release their leases. A new socket with the same number comes from a later wait at the
//!   earliest.
//! * At most one `send`, `send_file` or `send_control` is under way per socket, and at most one
//!   `receive`.
//! * Completions of one `wait` are delivered in the order in which they happened, per socket.

use std::ops::Range;
use std::sync::Arc;

use crate::ktls::{ControlType, TxKeys};
use crate::memory::Memory;
pub use rustix::io::Errno;

/// Nanoseconds of a monotonic clock with an arbitrary start.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Nanos(pub u64);

impl Nanos {
    /// This moment plus `ms` milliseconds, saturating.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }
}

/// Names the asker of an operation; the caller decides what the bits mean.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Token(pub u64);

/// A listening socket, named by its position in the list that the driver was created with.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Listener(pub u32);

/// A connected socket of this driver.
///
/// Only valid between its [`Done::Accepted`] and the call of [`Driver::close`] or
/// [`Driver::reset`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Socket(pub u32);

/// Bytes received, on loan from the driver's buffers until [`Driver::release`].
///
/// A lease must be released within the same turn of the loop: the buffers are few and shared.
#[derive(Debug, Eq, PartialEq)]
#[must_use = "a lease that is not released starves other connections"]
pub struct Lease {
    /// The buffer's number.
    pub(crate) buffer: u32,
    /// How many bytes were received.
    pub(crate) len: u32,
}

/// What to send: bytes of `wire`, and ranges of shared memory, in the order of `pieces`.
#[derive(Debug, Default)]
pub struct SendList {
    /// Bytes made for this send; taken from [`Driver::output`], given back when it completes.
    pub wire: Vec<u8>,
    /// The order of the pieces. Empty means: all of `wire` and nothing else (the usual case).
    /// At most [`PIECES_MAX`].
    pub pieces: Vec<Piece>,
    /// More bytes follow at once (`MSG_MORE`): do not push a partial segment out.
    pub more: bool,
}

/// One piece of a [`SendList`].
#[derive(Clone, Debug)]
pub enum Piece {
    /// A range of the list's `wire`.
    Wire(Range<u32>),
    /// A range of shared memory. Reading it may fail with `EFAULT` when it is a mapping whose
    /// file was truncated; the kernel then sends nothing of it and the send ends with that error.
    Memory(Arc<Memory>, Range<usize>),
}

/// The most pieces that one [`SendList`] may have: half of what `sendmsg` takes without allocating
/// in the kernel would be 4; 32 lets sixteen pipelined answers (head and body) share a send.
pub const PIECES_MAX: usize = 32;

/// The most content of a control record, in bytes: an alert has 2, a `KeyUpdate` 5.
pub const CONTROL_LEN_MAX: usize = 8;

/// An operation's end, or one of several for `accept` and `receive`.
#[derive(Debug)]
pub struct Completion {
    /// The token given with the operation.
    pub token: Token,
    /// What came of it.
    pub result: Result<Done, Errno>,
    /// For `accept` and `receive`: the operation goes on and will complete again.
    pub more: bool,
}

/// What came of an operation.
#[derive(Debug)]
pub enum Done {
    /// A connection was accepted.
    Accepted(Socket),
    /// Bytes arrived.
    Received(Lease),
    /// The peer will send no more (end of stream); `receive` is over.
    Ended,
    /// A `send` went out whole (its byte count), or a `send_file` went out (fewer bytes than asked
    /// only if the file ended before the range did).
    Sent(u64),
    /// The answer to [`Driver::open`] when it was [`Started::Pending`].
    Opened(OpenedFile),
    /// The answer to [`Driver::read`] when it was [`Started::Pending`]; shorter than asked only at
    /// the end of the file.
    Read(Vec<u8>),
    /// The answer to [`Driver::list`].
    Listed(Vec<DirectoryEntry>),
    /// A guarded file is about to be opened for writing or truncated: see [`Driver::guard`].
    GuardBroken,
    /// Somebody called [`Waker::wake`].
    Woken,
}

/// The beginning of an operation that often ends at once.
#[derive(Debug)]
pub enum Started<T> {
    /// It has ended; no completion follows.
    Now(Result<T, Errno>),
    /// A completion with the token will follow.
    Pending,
}

/// An open file. Cheap to clone; the descriptor is closed when the last clone is dropped.
///
/// Real engines hold a descriptor, the simulator a virtual file.
#[derive(Clone, Debug)]
pub struct File(pub(crate) Arc<crate::files::FileInner>);

/// A directory descriptor below which paths are resolved. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Root(pub(crate) Arc<crate::files::RootInner>);

/// What kind of thing a path names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A FIFO, socket or device: never served.
    Other,
}

/// An open file with its metadata, read from the very descriptor (`fstat`).
#[derive(Clone, Debug)]
pub struct OpenedFile {
    /// The descriptor.
    pub file: File,
    /// Its metadata.
    pub meta: Meta,
}

/// Metadata of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Meta {
    /// Regular file, directory or neither.
    pub kind: FileKind,
    /// Length in bytes.
    pub len: u64,
    /// Last modification, nanoseconds since the Unix epoch (negative before it).
    pub mtime_ns: i128,
    /// Last status change, nanoseconds since the Unix epoch.
    pub ctime_ns: i128,
    /// Device and inode: the file's identity.
    pub identity: (u64, u64),
}

/// One entry of a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DirectoryEntry {
    /// Its name: one segment, not necessarily UTF-8.
    pub name: Vec<u8>,
    /// What it is, with symbolic links followed inside the root; an entry that cannot be resolved
    /// inside the root is left out of a listing.
    pub meta: Meta,
}

/// Wakes a driver from another thread.
#[derive(Clone, Debug)]
pub struct Waker(pub(crate) Arc<crate::waker::WakerInner>);

impl Waker {
    /// Makes the driver's `wait` return with [`Done::Woken`]. Several calls may become one.
    pub fn wake(&self) {
        self.0.wake();
    }
}

/// What an engine says of itself for the first lines of output and for `/metrics`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EngineReport {
    /// `io_uring`, `epoll` or `sim`.
    pub name: &'static str,
    /// Kernel features in use, in words (`multishot receive`, `provided buffers`, ...).
    pub in_use: Vec<&'static str>,
    /// Features not in use, each with the reason.
    pub missing: Vec<(&'static str, String)>,
}

/// Plain counts since the start, of one driver.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct IoCounters {
    /// Calls that entered the kernel to submit or to wait.
    pub enters: u64,
    /// Operations submitted (`epoll`: system calls made for operations).
    pub submissions: u64,
    /// Completions delivered.
    pub completions: u64,
    /// Sends that the kernel took only in part and that had to be continued.
    pub short_sends: u64,
    /// Times that no receive buffer was free.
    pub no_buffers: u64,
    /// Times that the submission queue was full and had to be flushed early.
    pub queue_full: u64,
    /// Times that the kernel reported an overflown completion queue.
    pub completion_overflows: u64,
    /// Completions dropped because their socket was already closed.
    pub stale: u64,
    /// Operations handed to the helper threads for slow files.
    pub helped: u64,
}

/// An engine: submits operations to a kernel (or to a simulation of one) and reaps completions.
pub trait Driver {
    /// The monotonic clock, read once per [`wait`](Self::wait).
    fn now(&self) -> Nanos;

    /// The real-time clock in seconds since the Unix epoch, read once per [`wait`](Self::wait).
    fn unix_seconds(&self) -> i64;

    /// What this engine is and uses.
    fn report(&self) -> EngineReport;

    /// Counts since the start.
    fn counters(&self) -> IoCounters;

    /// A handle that wakes this driver from other threads; wakes complete with `token`.
    fn waker(&mut self, token: Token) -> Waker;

    /// Accepts connections until an error (`EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM`) or
    /// [`stop_accepting`](Self::stop_accepting): a completion with `more == false` ends it, and a
    /// new call is needed. Errors of single connections (`ECONNABORTED`) are swallowed. Accepted
    /// TCP sockets have `TCP_NODELAY` set (on the listener, so that they inherit it).
    fn accept(&mut self, listener: Listener, token: Token);

    /// Stops accepting on the listener and closes its descriptor. No further `Accepted` for it
    /// is delivered; connections still in its queue are accepted before the close, if any, and
    /// delivered by the next wait.
    fn stop_accepting(&mut self, listener: Listener);

    /// The peer's address as text (`192.0.2.1:443`, `[2001:db8::1]:80`, `unix`), for logs.
    fn peer(&self, socket: Socket) -> String;

    /// Receives until the end of the stream or an error. Running out of buffers is not an error:
    /// the driver starts again when buffers return.
    fn receive(&mut self, socket: Socket, token: Token);

    /// Receives once: a completion with `more == false` follows. For the first request of a
    /// connection, which may be its only one: nothing has to be cancelled when it closes.
    fn receive_once(&mut self, socket: Socket, token: Token) {
        self.receive(socket, token);
    }

    /// Stops receiving for now (the caller holds enough unparsed input). Bytes that had already
    /// arrived may still be delivered by the next wait. [`receive`](Self::receive) resumes.
    fn pause_receiving(&mut self, socket: Socket);

    /// The bytes of a lease.
    fn received<'a>(&'a self, lease: &Lease) -> &'a [u8];

    /// Gives a lease back.
    fn release(&mut self, lease: Lease);

    /// An empty vector with some capacity for [`SendList::wire`], recycled from earlier sends.
    fn output(&mut self) -> Vec<u8>;

    /// As [`output`](Self::output), at least `len` bytes long and with any content in it, for those
    /// who overwrite what they send of it: one [`Piece::Wire`] tells how much that is.
    fn output_of(&mut self, len: usize) -> Vec<u8> {
        let mut vec = self.output();
        vec.resize(len, 0);
        vec
    }

    /// Gives back what [`read`](Self::read) has delivered, for reuse.
    fn give_back(&mut self, bytes: Vec<u8>) {
        drop(bytes);
    }

    /// Sends the whole list: short sends are continued by the driver. Completes once.
    fn send(&mut self, socket: Socket, token: Token, list: SendList);

    /// Sends `head` (bytes made for this response, possibly empty; taken from
    /// [`output`](Self::output) and recycled), then `len` bytes of `file` from `offset` by
    /// `sendfile`, waiting for room in the socket as often as needed. The head leaves with
    /// `MSG_MORE`, so that it shares a segment with the file's first bytes; both are plain system
    /// calls on this thread, made at once where nothing has to be waited for.
    ///
    /// Completes once with [`Done::Sent`] of head and file bytes together, when all is sent or the
    /// file has ended early. Ranges that are not in memory are read in by a helper thread first.
    /// Callers keep `len` at or below 2 MiB, so that progress can be seen and connections take
    /// turns.
    fn send_file(
        &mut self,
        socket: Socket,
        token: Token,
        head: Vec<u8>,
        file: &File,
        offset: u64,
        len: u64,
    );

    /// Has the kernel seal everything that is sent on this socket from now on, with these keys
    /// (kernel TLS, transmit only): `send` and `send_file` then take plaintext, and what is
    /// received stays as it came. All that was sealed elsewhere must have been sent, and nothing
    /// may be in a send. Whether this can work is told once at the start by
    /// [`ktls::probe`](crate::ktls::probe).
    ///
    /// A second call replaces the key; a `KeyUpdate` has to be sent by
    /// [`send_control`](Self::send_control) before it.
    ///
    /// # Errors
    /// Those of [`ktls::attach`](crate::ktls::attach) and [`ktls::install`](crate::ktls::install);
    /// sending goes on as before this call: in the clear, or with the earlier key (`EBUSY` where
    /// the kernel cannot replace one).
    ///
    /// # Panics
    /// If a send is under way, or the key has not the length that its cipher asks for.
    fn seal_in_kernel(&mut self, socket: Socket, keys: &TxKeys<'_>) -> Result<(), Errno>;

    /// Sends a record that is not application data on a socket whose records the kernel seals: at
    /// most [`CONTROL_LEN_MAX`] bytes of content, in a record of their own, after all that was
    /// sent before. Completes once with [`Done::Sent`] of the content's length.
    ///
    /// # Panics
    /// If a send is under way, or the kernel does not seal: the content would go in the clear.
    fn send_control(&mut self, socket: Socket, token: Token, control: ControlType, content: &[u8]);

    /// Ends the sending half of the connection (FIN after what is queued). Never blocks.
    fn shutdown_write(&mut self, socket: Socket);

    /// Forgets the socket: cancels its operations, closes it once the kernel has let go of it.
    fn close(&mut self, socket: Socket);

    /// As [`close`](Self::close), but the peer gets a reset and unsent bytes are dropped.
    fn reset(&mut self, socket: Socket);

    /// Bytes queued in the socket and not yet acknowledged by the peer (`SIOCOUTQ`). Where the
    /// kernel seals, these are bytes of sealed records, as in
    /// [`acknowledged`](Self::acknowledged).
    fn unsent(&mut self, socket: Socket) -> u64;

    /// Has the socket take bytes only as long as less than about so many of them wait to be sent
    /// (`TCP_NOTSENT_LOWAT`), so that what is more urgent need not wait behind a full buffer. What
    /// is on its way to the peer does not count. A Unix socket, whose buffer is small, stays as
    /// it is.
    fn bound_unsent(&mut self, socket: Socket, bytes: u32);

    /// From now on only whole segments leave (`TCP_CORK`), or again all that there is. For large
    /// files, which are sent in several operations that would end in a small segment each. The
    /// kernel holds the rest back for 200 ms at most. A Unix socket stays as it is.
    fn cork(&mut self, socket: Socket, on: bool);

    /// Bytes that the peer has acknowledged since the connection began (`TCP_INFO`,
    /// `tcpi_bytes_acked`); for a Unix socket, bytes sent less bytes queued. Asked only when a
    /// deadline passes, to tell a slow peer from one that takes nothing.
    fn acknowledged(&mut self, socket: Socket) -> u64;

    /// Opens `path` (relative, no leading slash, `""` for the root itself) below `root`, following
    /// symbolic links only inside it (`openat2`: `RESOLVE_BENEATH`, no magic links), without
    /// blocking on FIFOs or devices, and reads its metadata from the descriptor. Only regular
    /// files and directories are opened for reading; others come back as [`FileKind::Other`].
    ///
    /// Errors: `ENOENT`, `ENOTDIR`, `EACCES`, `ELOOP`, `ENAMETOOLONG`, `EXDEV` (left the root),
    /// `EMFILE`, `EIO`, ...
    fn open(&mut self, root: &Root, path: &[u8], token: Token) -> Started<OpenedFile>;

    /// The metadata of what `path` names below `root` at this moment, if that can be told at once
    /// and without a descriptor. Symbolic links are followed wherever they lead, so this is only
    /// good for comparing with what [`open`](Self::open) found: the same identity is the same
    /// file. `None` if it is not there, or cannot be told without waiting.
    fn peek(&self, root: &Root, path: &[u8]) -> Option<Meta>;

    /// The metadata of an open file, now.
    fn meta(&mut self, file: &File) -> Result<Meta, Errno>;

    /// Reads `len` bytes at `offset` (fewer only at the end of the file).
    fn read(&mut self, file: &File, offset: u64, len: usize, token: Token) -> Started<Vec<u8>>;

    /// Lists the directory `path` below `root` (at most `max` entries, in no order), always on a
    /// helper thread.
    fn list(
        &mut self,
        root: &Root,
        path: &[u8],
        max: usize,
        token: Token,
    ) -> Started<Vec<DirectoryEntry>>;

    /// A file in memory that nobody can change, holding these bytes: pages of it may sit in any
    /// queue for any time.
    ///
    /// # Errors
    /// `EMFILE`, `ENFILE`, `ENOMEM`.
    fn snapshot(&mut self, bytes: &[u8]) -> Result<File, Errno>;

    /// Whether the peer is on this machine. Over loopback, bytes that the peer has acknowledged
    /// and not yet read are still our own pages.
    fn is_local(&self, socket: Socket) -> bool;

    /// Asks to be told *before* anybody changes the file's bytes (a read lease): on
    /// [`Done::GuardBroken`] the writer is held up by the kernel until [`unguard`](Self::unguard)
    /// or a system-wide limit (45 s). While a guard stands, no byte of the file can change, so
    /// page-cache pages of it may sit in socket queues.
    ///
    /// Errors: `EAGAIN` somebody has it open for writing now; `EACCES` not the owner; `EINVAL`
    /// the file system has no leases. The caller then copies instead of using `send_file`.
    fn guard(&mut self, file: &File, token: Token) -> Result<(), Errno>;

    /// Ends a guard, letting a waiting writer go on.
    fn unguard(&mut self, file: &File);

    /// Submits what is prepared and waits for at least one completion, or until `until`.
    /// Completions are appended to `out`. `None` waits without a limit.
    ///
    /// # Errors
    /// Only when the engine cannot go on at all.
    fn wait(&mut self, until: Option<Nanos>, out: &mut Vec<Completion>) -> Result<(), Errno>;
}
