//! Bounds of the engine, each with its reason.

/// Unparsed input held for a connection while a response is under way. A pipelining client may
/// send this much ahead; then receiving pauses and TCP holds it back.
pub(crate) const HELD_MAX: usize = 64 << 10;

/// Responses gathered into one send. More only adds latency for the first of them.
pub(crate) const RESPONSES_PER_SEND_MAX: u32 = 64;

/// Wire bytes gathered into one send: about a socket's initial send buffer.
pub(crate) const WIRE_MAX: usize = 64 << 10;

/// Bodies up to this length that user code may read are copied behind their head and leave in a
/// plain send; larger ones in memory go as a piece of their own. Set by `bench/`: the copy of
/// 4 KiB costs less than a second piece does.
pub(crate) const COPY_MAX: usize = 8 << 10;

/// Bytes of one HTTP/2 connection gathered for a send, content included, so that a more urgent
/// stream does not wait long behind what was begun.
pub(crate) const STREAM_SEND_MAX: u64 = 256 << 10;

/// Bytes that wait unsent in the socket of an HTTP/2 connection, beyond which it takes no more:
/// they cannot be overtaken. A socket's buffer grows to several megabytes otherwise.
pub(crate) const STREAM_UNSENT_MAX: u32 = 128 << 10;

/// A file's bytes read at a time for an HTTP/2 stream. Only what its windows allow is read, so
/// that a connection whose peer opens none holds none.
pub(crate) const STREAM_READ_MAX: u64 = 128 << 10;

/// Reads of content that wait for the disk at once, per HTTP/2 connection; they bound what is
/// held for it in memory.
pub(crate) const STREAM_READS_MAX: u32 = 8;

/// Lookups and reads for an HTTP/2 connection that wait for the disk at once, also on behalf of
/// streams that have ended; beyond, its input waits.
pub(crate) const STREAM_ASKED_MAX: u32 = 192;

/// When an idle HTTP/2 connection gives its tables back, milliseconds: a client that asks again at
/// once finds them still there.
pub(crate) const TRIM_MS: u64 = 1_000;

/// A file's bytes handed to the kernel in one operation, so that connections take turns; the
/// length that a driver tests best for being in memory.
pub(crate) const SLICE_MAX: u64 = gannet_io::limits::RESIDENT_CHUNK;

/// A file's bytes read into memory at a time where `sendfile` cannot be used safely.
pub(crate) const COPY_SLICE_MAX: u64 = 256 << 10;

/// Files up to this length are kept in memory in directory mode; also the most that an archive
/// answer sends from memory. Above it `sendfile` is cheaper than copying.
pub(crate) const SMALL_FILE_MAX: u64 = 32 << 10;

/// The longest archive that is copied into memory without being asked to. Copying takes a start about
/// 2 ms per MiB, if the archive is in the page cache.
pub(crate) const ARCHIVE_COPY_MAX: u64 = 64 << 20;

/// Such an archive is at most one of so many parts of the memory that is to be had: unlike the pages
/// of a mapped file, the system cannot take a copy back.
pub(crate) const ARCHIVE_COPY_PART: u64 = 8;

/// Bytes of a file that are sealed for one send, at most: they are read, sealed and copied by the
/// kernel while they are in the second-level cache, and a send costs little beside that. With it
/// 1 GB over HTTPS in one stream, by one worker, costs 240 to 320 ms of CPU from a directory and
/// 150 to 190 ms from an archive, where nginx takes 530 to 540 in the same run.
pub(crate) const SEALED_SLICE_MAX: u32 = 512 << 10;

/// The same for the first send of an answer: most files in one.
pub(crate) const SEALED_SLICE_FIRST: u32 = 128 << 10;

/// The same for a peer that takes its time. Thousands of slow downloads hold as much each.
pub(crate) const SEALED_SLICE_MIN: u32 = 64 << 10;

/// A peer that has taken a slice within this time gets the next one twice as long; 20 ms.
pub(crate) const SLICE_QUICK_NS: u64 = 20_000_000;

/// A connection over TLS that has sent nothing for this long begins its next long answer with small
/// records; 1 s. About as long as TCP takes to forget how much it may send at once.
pub(crate) const RESTED_NS: u64 = 1_000_000_000;

/// The beginning of a large file goes to a peer on this machine as copies. Over loopback the
/// peer's unread bytes are our own pages; a file that is truncated to little loses the rest of a
/// page group of up to 2 MiB to zeros.
pub(crate) const LOCAL_COPY_MAX: u64 = 4 << 20;

/// How long a cached file is believed before its path is looked up again, milliseconds. The
/// promise is that a change is seen within a second.
pub(crate) const BELIEVED_MS: u64 = 700;

/// How long a cached file is confirmed by its metadata alone, milliseconds. After that the whole
/// lookup is made again, so that a new file which goes before it, or a new sidecar, is noticed.
pub(crate) const CONFIRMED_MS: u64 = 4_000;

/// Request paths remembered by a worker in directory mode.
pub(crate) const CACHED_PATHS_MAX: usize = 65_536;

/// Descriptors of large files kept open by a worker in directory mode.
pub(crate) const OPEN_FILES_MAX: usize = 2_048;

/// Entries read of one directory for a listing.
pub(crate) const LISTING_MAX: usize = 20_000;

/// Bytes read and dropped from a peer after the last response of a connection, so that it can
/// read the answer before the connection is reset.
pub(crate) const LINGER_BYTES_MAX: u64 = 1 << 20;

/// How long such a peer may take, milliseconds.
pub(crate) const LINGER_MS: u64 = 2_000;

/// How often a connection that only waits for its peer to take the last pages of a file is looked
/// at, milliseconds: nothing announces that moment.
pub(crate) const DRAIN_CHECK_MS: u64 = 200;

/// A writer that opens a file which is being sent waits at most this long for the bytes already
/// queued to leave, milliseconds; connections that are slower are reset.
pub(crate) const GUARD_DRAIN_MS: u64 = 1_000;

/// Connections closed at once when descriptors run out.
pub(crate) const SHED_MAX: usize = 64;

/// When accepting is tried again although no connection of this worker has ended, milliseconds:
/// soon enough for a client that waits, and no busy loop.
pub(crate) const ACCEPT_AGAIN_MS: u64 = 100;

/// ClientHellos answered in one turn. Each costs a key exchange and a signature, 100 µs to 1 ms;
/// connections that are established wait for no more than so many of them.
pub(crate) const HELLOS_PER_TURN_MAX: u32 = 8;

/// Bytes inflated in one turn of bodies that are stored as gzip alone: the longest one, which takes
/// about 3 ms.
pub(crate) const INFLATED_PER_TURN_MAX: u64 = gannet_archive::limits::INFLATED_LEN_MAX;

/// Bodies whose gzip is read, or held until there is time to inflate it, at once and per worker:
/// at most so many MiB of memory, and as many reads as a driver has in flight.
pub(crate) const GZIPS_READ_MAX: usize = 16;

/// A buffer of opened records that grew beyond this is freed: what a peer sends is short.
pub(crate) const PLAIN_KEPT_MAX: usize = 64 << 10;

/// Batches of log lines waiting for the writer; beyond, lines are dropped and counted.
pub(crate) const LOG_QUEUE_MAX: usize = 1_024;

/// Bytes of log lines gathered before they go to the writer.
pub(crate) const LOG_BATCH_BYTES: usize = 32 << 10;

/// How long the end of the process waits for the log's writer, milliseconds: long enough for a
/// disk, and not for a pipe that nobody reads.
pub(crate) const LOG_FINISH_MS: u64 = 1_000;

/// Bytes read of a live directory's `_redirects` or `_headers`. A hundred thousand rules of the
/// usual length fit.
pub(crate) const RULES_FILE_MAX: u64 = 8 << 20;

/// Folders of a live directory that are looked into for kawipiko's `_redirects`: a second's work.
pub(crate) const RULES_FOLDERS_MAX: usize = 100_000;

/// The part of the time that looking for rules files in folders may take: one of so many.
pub(crate) const RULES_SEARCH_PART: u32 = 100;

/// How often a live directory's rules files are looked at, milliseconds. Every change of a site is
/// seen within a second.
pub(crate) const RULES_CHECK_MS: u64 = 500;
