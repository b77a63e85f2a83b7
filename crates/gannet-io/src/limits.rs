//! Every bound of this crate, with its reason.

/// Entries of the submission queue. Several hundred sends per turn fit without an early flush;
/// the array of 64-byte entries stays at 64 KiB, so that it does not push content out of the
/// second-level cache.
pub const SUBMISSIONS: u32 = 1024;

/// Entries of the completion queue: enough for a turn with thousands of ready connections. The
/// kernel keeps any more in a slower list, and they are counted as overflows.
pub const COMPLETIONS: u32 = 16384;

/// The least entries of the completion queue where memory is in small pieces: fewer would not help,
/// because these need no larger piece than the submission queue.
pub const COMPLETIONS_MIN: u32 = 2048;

/// Receive buffers of one driver. They are released within the turn that delivers them, so their
/// number bounds the connections ready in one turn, not all connections.
pub const RECEIVE_BUFFERS: u16 = 512;

/// Length of a receive buffer, in bytes: the request head of any browser fits, and 512 buffers fill
/// 2 MiB, the size of one huge page.
pub const RECEIVE_BUFFER_LEN: u32 = 4096;

/// Helper threads of one driver: this many reads may hang on a slow disk before other cold files
/// have to wait.
pub const HELPERS_MAX: usize = 16;

/// One in this many helper threads never runs a job on a file system of another machine or process,
/// so that jobs that hang leave some threads for the disk.
pub const HELPERS_LOCAL_PART: usize = 4;

/// Jobs waiting for a helper thread, in each of the two queues. Beyond it the operation fails with
/// `EAGAIN`, so that jobs for a disk that hangs do not pile up in memory.
pub const HELPER_QUEUE_MAX: usize = 4096;

/// Bytes of the names that are read of one directory, in total: 100,000 of 80 bytes.
pub const LISTED_NAMES_MAX: usize = 8 << 20;

/// Wire vectors kept for reuse.
pub const OUTPUTS_KEPT_MAX: usize = 256;

/// Capacity of a fresh wire vector: a few pipelined response heads.
pub const OUTPUT_CAPACITY: usize = 1024;

/// A wire vector that grew beyond this is freed instead of kept, so that one large response does
/// not stay in memory.
pub const OUTPUT_KEPT_CAPACITY_MAX: usize = 16 * 1024;

/// The longest wire vector kept for reuse: a megabyte of encrypted records and a little more.
pub const OUTPUT_LARGE_MAX: usize = (1 << 20) + (64 << 10);

/// Long wire vectors kept for reuse: usually as many as are filled and sent in one turn.
pub const OUTPUTS_LARGE_KEPT_MAX: usize = 8;

/// Bytes of a file that are read before its length is known, at most: in vain, if it is longer.
pub const READ_AHEAD_MAX: usize = 16 * 1024;

/// Vectors of finished reads kept for reuse; each is usually consumed before the next turn.
pub const READS_KEPT_MAX: usize = 4;

/// Message headers of gathered sends kept for reuse: the usual number of sends in flight.
pub const GATHERS_KEPT_MAX: usize = 64;

/// Lists of at least this many bytes are sent at once, by a plain call. Otherwise, in a turn with many
/// of them, the last would be built before the first is sent, in memory that is no longer in the
/// processor's caches. Shorter ones are sent together when the turn ends: they share a submission to
/// the ring, and a peer that wakes up for the first need not be woken for each.
pub const SEND_AT_ONCE_MIN: u64 = 32 * 1024;

/// The epoll engine does not wait for the end of the turn once lists of this many bytes are to be sent
/// together: they are in a second-level cache, and a peer that wakes up for them has something to do.
pub const SEND_TOGETHER_MAX: u64 = 256 * 1024;

/// Connections accepted from one listener in one turn of the epoll engine, so that a flood of
/// connects does not starve those already accepted.
pub const ACCEPTS_PER_TURN: usize = 64;

/// Retries of a path lookup that raced with a rename inside the root (`EAGAIN` from
/// `RESOLVE_BENEATH`).
pub const OPEN_RETRIES: usize = 16;

/// Symbolic links that a lookup in user space follows: as many as the kernel (`MAXSYMLINKS`).
pub const WALK_LINKS_MAX: usize = 40;

/// Folders that a lookup in user space opens: 10 ms of a helper thread. A path of 4096 bytes names half
/// as many; only the author of a site can make links that need more.
pub const WALK_STEPS_MAX: usize = 4096;

/// Bytes of a path, as in the kernel (`PATH_MAX`, which counts the final zero).
pub const PATH_LEN_MAX: usize = 4095;

/// Bytes of a file whose residency is remembered together. Checks work best for sends that are
/// aligned to it and have its length.
pub const RESIDENT_CHUNK: u64 = 2 << 20;

/// Chunks of a file that are remembered: 2 TiB, in 8 MiB of memory. Chunks beyond that are counted
/// for each send.
pub const RESIDENT_CHUNKS_MAX: u64 = 1 << 20;

/// How long a chunk counts as resident after a check, in milliseconds.
pub const RESIDENT_FOR_MS: u32 = 1_000;

/// How long samples suffice after all pages of a chunk were counted, in milliseconds. Counting
/// costs up to a fifteenth of what sending costs.
pub const RESIDENT_COUNTED_FOR_MS: u32 = 30_000;

/// The most bytes read at a time from a file system that may block (FUSE, NFS).
pub const FETCH_LEN: usize = 256 * 1024;

/// Receive and send buffer requested for a datagram socket, in bytes: about a thousand datagrams,
/// so that a burst survives one turn of the worker. The kernel applies its own limit if that is
/// smaller.
pub const DATAGRAM_SOCKET_BUFFER: usize = 2 << 20;

/// Datagrams received in one call, and from one socket in one turn, by the epoll engine; trains sent in one call.
pub const DATAGRAMS_PER_CALL: usize = 32;

/// Ports tried until one is free for TCP and for UDP.
pub const PORT_TRIES: usize = 64;

/// The listen queue: the kernel clamps it to `net.core.somaxconn` (4096 by default).
pub const BACKLOG: i32 = 4096;

/// Bytes of short copies that get memory of their own before others share huge pages: few files shall not take
/// 2 MiB, nor shall the kernel be asked for a huge page at each copy while it has none.
pub const COPIES_APART: u64 = 4 << 20;

/// How long a shared page whose copies are gone counts as used. A peer that takes no byte is cut off after a minute,
/// and what its socket had is free soon after.
pub const PAGE_GONE_AFTER: std::time::Duration = std::time::Duration::from_secs(120);

/// Shared pages with room that are filled at the same time: a copy that does not fit into one may fit into
/// another.
pub const SHARED_PAGES_OPEN: usize = 4;

/// Bytes of sealed memory that the thread of their last user frees itself: 0.1 ms in ordinary pages. A
/// helper thread frees more.
pub const FREED_AT_ONCE_MAX: i64 = 1 << 20;

/// Sockets taken from a service manager: one for each address of a host with many of them.
pub const INHERITED_MAX: usize = 1024;
