//! Every bound of this crate, with its reason.

/// Entries of the submission queue. Several hundred sends per turn fit without an early flush;
/// the array of 64-byte entries stays at 64 KiB, so that it does not push content out of the
/// second-level cache.
pub const SUBMISSIONS: u32 = 1024;

/// Entries of the completion queue: a turn with thousands of ready connections fits. More than
/// these are kept by the kernel in a slower list and counted as overflows.
pub const COMPLETIONS: u32 = 16384;

/// Receive buffers of one driver. They are released within the turn that delivers them, so the
/// number bounds connections ready in one turn, not connections.
pub const RECEIVE_BUFFERS: u16 = 512;

/// Length of a receive buffer, in bytes: the request head of any browser in one piece, and 512
/// buffers in 2 MiB, the size of one huge page.
pub const RECEIVE_BUFFER_LEN: u32 = 4096;

/// Helper threads of one driver: so many reads may hang on a slow disk before other cold files
/// have to wait.
pub const HELPERS_MAX: usize = 16;

/// One of so many helper threads is never in a job on a file system of another machine or process,
/// so that those which hang for ever leave some to the disk.
pub const HELPERS_LOCAL_PART: usize = 4;

/// Jobs waiting for a helper thread, in each of the two queues. Beyond it the operation fails with `EAGAIN`, so that a disk
/// that hangs cannot collect memory.
pub const HELPER_QUEUE_MAX: usize = 4096;

/// Wire vectors kept for reuse.
pub const OUTPUTS_KEPT_MAX: usize = 256;

/// Capacity of a fresh wire vector: a response head and a few pipelined ones.
pub const OUTPUT_CAPACITY: usize = 1024;

/// A wire vector that grew beyond this is freed instead of kept, so that one large answer does
/// not stay in memory.
pub const OUTPUT_KEPT_CAPACITY_MAX: usize = 16 * 1024;

/// The longest wire vector that is kept for reuse: a megabyte of encrypted records and a little more.
pub const OUTPUT_LARGE_MAX: usize = (1 << 20) + (64 << 10);

/// Long wire vectors kept for reuse: as many as are filled and sent in one turn, usually.
pub const OUTPUTS_LARGE_KEPT_MAX: usize = 8;

/// Vectors of finished reads kept for reuse; each is used up before the next turn, usually.
pub const READS_KEPT_MAX: usize = 4;

/// Message headers of gathered sends kept for reuse, with as many sends in flight as usual.
pub const GATHERS_KEPT_MAX: usize = 64;

/// Lists of so many bytes the ring engine sends at once, by a plain call. In a turn with many of them
/// the last would be made before the first had left, in memory that is not in the processor's caches
/// any more. Shorter ones share a submission, which costs less than a call for each.
pub const SEND_AT_ONCE_MIN: u64 = 32 * 1024;

/// Connections accepted from one listener in one turn of the epoll engine, so that a flood of
/// connects does not starve those already accepted.
pub const ACCEPTS_PER_TURN: usize = 64;

/// Retries of a path lookup that raced with a rename inside the root (`EAGAIN` from
/// `RESOLVE_BENEATH`).
pub const OPEN_RETRIES: usize = 16;

/// Bytes of a file whose residency is remembered together. Sends that begin at a multiple of it
/// and have its length are tested best.
pub const RESIDENT_CHUNK: u64 = 2 << 20;

/// Chunks of a file that are remembered: of 2 TiB, in 8 MiB of memory. Later ones are counted for
/// each send.
pub const RESIDENT_CHUNKS_MAX: u64 = 1 << 20;

/// How long a chunk counts as resident after a test, in milliseconds.
pub const RESIDENT_FOR_MS: u32 = 1_000;

/// How long samples are enough after all pages of a chunk were counted, in milliseconds. Counting
/// costs as much as a fifteenth of sending.
pub const RESIDENT_COUNTED_FOR_MS: u32 = 30_000;

/// The most bytes read at a time from a file on a file system that may block (FUSE, NFS).
pub const FETCH_LEN: usize = 256 * 1024;

/// The most bytes handed to one `sendfile` call, so that connections take turns.
pub const SENDFILE_CALL_LEN: u64 = 1024 * 1024;

/// Receive and send buffer asked for by a datagram socket, in bytes: about a thousand datagrams, so
/// that a burst survives a turn of the worker. The kernel gives its own limit if that is smaller.
pub const DATAGRAM_SOCKET_BUFFER: usize = 2 << 20;

/// Datagrams received in one call, and from one socket in one turn, by the epoll engine.
pub const DATAGRAMS_PER_CALL: usize = 32;

/// Ports tried until one is free for TCP and for UDP.
pub const PORT_TRIES: usize = 64;

/// The listen queue: the kernel clamps it to `net.core.somaxconn` (4096 by default).
pub const BACKLOG: i32 = 4096;
