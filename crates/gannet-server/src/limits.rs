//! Bounds of the engine, each with its reason.

/// Unparsed input held for a connection while a response is under way: a head of the greatest
/// length, or dozens of usual ones. A pipelining client may send this much ahead; then receiving
/// pauses and TCP holds it back. What the engine has received by then is held, too: at most what
/// it takes from one socket in one wait, which with io_uring is 32 buffers of 4 KiB.
pub(crate) const HELD_MAX: usize = gannet_http::h1::limits::HEAD_MAX;

/// Responses gathered into one send. More only adds latency for the first of them.
pub(crate) const RESPONSES_PER_SEND_MAX: u32 = 64;

/// Bytes gathered into one send that is encrypted: with a body more it is no longer than
/// [`UNTAKEN_MAX`]. Encryption copies what would go as it is in clear text.
pub(crate) const ENCRYPTED_GATHERED_MAX: u64 = UNTAKEN_MAX - SMALL_FILE_MAX;

/// Wire bytes gathered into one send: about a socket's initial send buffer.
pub(crate) const WIRE_MAX: usize = 64 << 10;

/// Bodies up to this length that user code may read are copied behind their head and leave in a
/// plain send; larger ones in memory go as a piece of their own. Set by `lab/`: the copy of
/// 4 KiB costs less than a second piece does.
pub(crate) const COPY_MAX: usize = 8 << 10;

/// Bytes of one HTTP/2 connection gathered for a send, content included, so that a more urgent
/// stream does not wait long behind what was begun. Beyond [`UNTAKEN_MAX`] only as many as the
/// socket takes at once.
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

/// When so many connections of a worker, and at least half of all there were, have ended, free memory
/// goes back to the system. Fewer cannot hold much.
pub(crate) const GIVE_BACK_MIN: usize = 16;

/// How long after that, milliseconds: others of a crowd end as well.
pub(crate) const GIVE_BACK_MS: u64 = 1_000;

/// When an idle HTTP/2 connection gives its tables back, milliseconds: a client that asks again at
/// once finds them still there.
pub(crate) const TRIM_MS: u64 = 1_000;

/// A file's bytes handed to the kernel in one operation, so that connections take turns; the
/// length that a driver tests best for being in memory.
pub(crate) const SLICE_MAX: u64 = gannet_io::limits::RESIDENT_CHUNK;

/// When it is looked at first whether a peer has acknowledged the pages of a live file, nanoseconds: a
/// round trip in a local network. After that each wait is an eighth longer than it would have to be.
pub(crate) const ACKNOWLEDGED_FIRST_NS: u64 = 250_000;

/// The last slice of a live file, which waits for that, is one of so many parts of its tail.
pub(crate) const LAST_SLICE_PART: u64 = 4;

/// A file's bytes read into memory at a time where `sendfile` cannot be used safely.
pub(crate) const COPY_SLICE_MAX: u64 = 256 << 10;

/// Files up to this length are kept in memory in directory mode; also the most that an archive
/// answer sends from memory. Above it `sendfile` is cheaper than copying.
pub(crate) const SMALL_FILE_MAX: u64 = 32 << 10;

/// The longest archive that is copied into memory without being asked to. Copying takes a start about
/// 2 ms per MiB, if the archive is in the page cache.
pub(crate) const ARCHIVE_COPY_MAX: u64 = 64 << 20;

/// Such an archive is at most one of so many parts of the memory that is to be had: unlike the pages
/// of a file, the system cannot take a copy back.
pub(crate) const ARCHIVE_COPY_PART: u64 = 8;

/// Bytes of a file that are encrypted for one send, at most: they are read, encrypted and copied by the
/// kernel while they are in the second-level cache, and a send costs little beside that. With it
/// 1 GB over HTTPS in one stream, by one worker, costs 240 to 320 ms of CPU from a directory and
/// 150 to 190 ms from an archive, where nginx takes 530 to 540 in the same run.
pub(crate) const ENCRYPTED_SLICE_MAX: u64 = 512 << 10;

/// The same for the first send of an answer: most files in one, and the first bytes soon.
pub(crate) const ENCRYPTED_SLICE_FIRST: u64 = 128 << 10;

/// Bytes of content made for one send (read from a file, encrypted) that the socket does not take at
/// once: a connection whose peer takes nothing holds no more of it. Less would be a system call
/// more for every few records of a download that is slower than this machine.
pub(crate) const UNTAKEN_MAX: u64 = 48 << 10;

/// A connection over TLS that has sent nothing for this long goes on with small records; 1 s. About as long as TCP takes to forget how much it may send at once.
pub(crate) const RESTED_NS: u64 = 1_000_000_000;

/// Bytes of live files that a worker reads itself in one turn, for the first answer with their
/// content: a fraction of a millisecond. Longer files are copied by helper threads.
pub(crate) const READ_PER_TURN_MAX: u64 = 512 << 10;

/// Bytes copied or encrypted in one turn for the further sends of long answers: 2 to 4 ms, while the
/// requests of others wait. Beyond that each send is of [`UNTAKEN_MAX`].
pub(crate) const SENT_PER_TURN_MAX: u64 = 8 << 20;

/// Lookups that begin, or begin again, in one turn; each is a few opens.
pub(crate) const LOOKUPS_PER_TURN_MAX: u64 = 32;

/// Live files that a worker has copied into memory at once, of those on its machine's disks and of
/// those on foreign file systems. As many helper threads are busy with that; each copies a file of
/// 4 MiB in about 3 ms. Beyond that, files are sent from the disk.
pub(crate) const COPIES_AT_ONCE_MAX: usize = 4;

/// Bytes of the copies that are being made, per worker.
pub(crate) const FIRST_READS_HELD_MAX: u64 = 2 * COPIES_AT_ONCE_MAX as u64 * SNAPSHOT_MAX;

/// The longest live file that is copied into memory.
pub(crate) const SNAPSHOT_MAX: u64 = 4 << 20;

/// Bytes of copies that are not remembered any more, and still on their way to slow peers, beyond
/// what a worker may remember. With more, files are sent from the disk as if they were long.
pub(crate) const COPIES_SPARE: u64 = 32 << 20;

/// How long a cached file is fresh before its metadata are compared again, in milliseconds. The
/// promise is that a change is seen within a second.
pub(crate) const BELIEVED_MS: u64 = 700;

/// How long a cached file is confirmed by its metadata alone, milliseconds. After that the whole
/// lookup is made again, so that a new file which goes before it, or a new sidecar, is noticed.
pub(crate) const CONFIRMED_MS: u64 = 4_000;

/// Seconds that a file must have been unchanged before its bytes are kept in memory: more than any
/// write call lasts, and than the times of any file system are coarse.
pub(crate) const SETTLED_S: i64 = 2;

/// How long a write may take that is not noticed by its beginning, in seconds: contents read within so
/// many seconds of a change are read again at each whole lookup ([`CONFIRMED_MS`]).
pub(crate) const RECENT_S: i64 = 60;

/// How long a file that may change stays open although nobody asks for it, milliseconds: it may have
/// been deleted, and takes room on the disk until then.
pub(crate) const OPEN_IDLE_MS: u64 = 4_000;

/// Request paths remembered by a worker in directory mode.
pub(crate) const CACHED_PATHS_MAX: usize = 65_536;

/// Descriptors of large files kept open by a worker in directory mode.
pub(crate) const OPEN_FILES_MAX: usize = 2_048;

/// They are at most one of so many parts of a worker's share of the process's descriptors, and make
/// room for connections.
pub(crate) const OPEN_FILES_PART: u64 = 4;

/// One of so many parts of a worker's share is taken by no connection: files that are opened for
/// running answers, and what else opens files.
pub(crate) const SPARE_DESCRIPTORS_PART: u64 = 8;

/// How often a lookup closes files that are kept open and begins again, when no descriptor is free:
/// once for those that were not used for long, once for the others.
pub(crate) const DESCRIPTOR_TRIES_MAX: u32 = 2;

/// How long a request waits for descriptors, memory or room among what waits for the disk, before it
/// is answered with 503, milliseconds.
pub(crate) const SHORT_MS: u64 = 2_000;

/// How long after such a thing was short the next lookup tries again, milliseconds.
pub(crate) const SHORT_AGAIN_MS: u64 = 1;

/// The longest pause between two lookups that find something short, in milliseconds: a disk that is
/// asked has answered by then, and whoever waited for it has given back what it held.
pub(crate) const SHORT_PAUSE_MAX_MS: u64 = 64;

/// Connections whose questions may stay in the disk's queue after they have ended.
pub(crate) const UNAWAITED_MAX: u32 = 32;

/// Entries read of one directory for a listing.
pub(crate) const LISTING_MAX: usize = 20_000;

/// Directories that a worker has read at once: one of its machine's disks, one of foreign file
/// systems, so that one that hangs holds up only others there. Each occupies a thread for up to 0.1 s, and
/// memory of [`LISTING_BYTES_MAX`] at the most; requests for others wait in line.
pub(crate) const LISTINGS_READ_MAX: usize = 2;

/// The longest listing.
pub(crate) const LISTING_BYTES_MAX: u64 = gannet_content::limits::LISTING_BYTES_MAX as u64;

/// Bytes of finished listings in memory, per worker: kept, and on their way to peers. Who asks for
/// one that does not fit gets 503 until a peer has its page.
pub(crate) const LISTINGS_PAGES_MAX: u64 = 3 * LISTING_BYTES_MAX;

/// Bytes of all listings, with those that are being made, which have room of their own.
pub(crate) const LISTINGS_HELD_MAX: u64 =
    LISTINGS_PAGES_MAX + LISTINGS_READ_MAX as u64 * LISTING_BYTES_MAX;

/// Bytes of listings that are kept to be sent again, within a quarter of a site's cache.
pub(crate) const LISTINGS_KEPT_MAX: u64 = LISTING_BYTES_MAX;

/// Metadata with a time of change that is more recent than this when they are read may stand for
/// several versions: file systems take their times from a clock with coarse ticks, and a write sets
/// its time when it begins; 2 s, as in git.
pub(crate) const RACY_NS: i128 = 2_000_000_000;

/// Bytes read and dropped from a peer after the last response of a connection, so that it can
/// read the answer before the connection is reset.
pub(crate) const LINGER_BYTES_MAX: u64 = 1 << 20;

/// How long such a peer may take, milliseconds.
pub(crate) const LINGER_MS: u64 = 2_000;

/// Input held for one connection that is not parsed yet: what a pipelining client may send ahead,
/// the buffers that were received before receiving paused, and a TLS record that is not whole.
pub(crate) const INPUT_HELD_MAX: u64 = 256 << 10;

/// Requests of one connection that wait for the disk, with the answers to those before them: as
/// many as may be asked for an HTTP/2 connection, of the longest head each.
pub(crate) const WAITING_HELD_MAX: u64 = STREAM_ASKED_MAX as u64 * (32 << 10);

/// Answers made for one connection: a send, and the content that is read for its streams.
pub(crate) const ANSWERS_HELD_MAX: u64 = 4 << 20;

/// Bytes of a request's target that are logged; the rest is cut off.
pub(crate) const LOG_TARGET_MAX: usize = 4 << 10;

/// The same for its method, host, referer and user agent, each.
pub(crate) const LOG_FIELD_MAX: usize = 1 << 10;

/// What is to be logged for one connection: streams, and the answers of two sends.
pub(crate) const LOG_HELD_MAX: u64 = (gannet_http::h2::limits::STREAMS_MAX as u64
    + 2 * RESPONSES_PER_SEND_MAX as u64)
    * (LOG_TARGET_MAX + 4 * LOG_FIELD_MAX + 512) as u64;

/// What the engine sends for one connection, shared memory and pages of files aside: the longest
/// slice in records, in a buffer that may have been made for more.
pub(crate) const SENDS_HELD_MAX: u64 = 2 * ENCRYPTED_SLICE_MAX;

/// Stored bodies that are being read, or held until there is time to decode them, in bytes: what is
/// coded is no longer than [`DECODED_LEN_MAX`](gannet_archive::limits::DECODED_LEN_MAX), either.
pub(crate) const LOADS_HELD_MAX: u64 = LOADS_MAX as u64 * LOADED_PER_TURN_MAX;

/// How long a connection that has not asked for anything yet may stay after a stop, milliseconds:
/// its first request may be on the way.
pub(crate) const FRESH_MS: u64 = 500;

/// Connections closed at once when descriptors or memory run out.
pub(crate) const SHED_MAX: usize = 64;

/// So few idle connections of a worker are not what holds memory, and stay when it has run out.
pub(crate) const ACCEPTED_ALWAYS: usize = 8;

/// Memory that there has to be for one more turn of a connection, once memory has run out: requests,
/// their answers and a few slices over TLS.
pub(crate) const ROOM_FOR_A_TURN: usize = 1 << 20;

/// When it is looked again whether there is that much, milliseconds, if nothing else happens.
pub(crate) const ROOM_AGAIN_MS: u64 = 1;

/// How long after connections were closed for lack of memory more may have to follow, milliseconds:
/// io_uring lets go of what it was sending in a later turn.
pub(crate) const SHED_AGAIN_MS: u64 = 5;

/// How long the last connection of a worker waits for memory, milliseconds.
pub(crate) const SHORT_ALONE_MS: u64 = 500;

/// Connections looked at in search of an idle one to close. Busy ones are looked at once in a while,
/// so that a server full of downloads does not go through all of them at each accept.
pub(crate) const SHED_LOOKS_MAX: usize = 64;

/// Of several connections that could make room, those that have been idle for less than this stay,
/// milliseconds: they are about to ask for something.
pub(crate) const SHED_REST_MS: u64 = 100;

/// When accepting is tried again although no connection of this worker has ended, milliseconds:
/// soon enough for a client that waits, and no busy loop.
pub(crate) const ACCEPT_AGAIN_MS: u64 = 100;

/// ClientHellos answered in one turn. Each costs a key exchange and a signature, 100 µs to 1 ms;
/// connections that are established wait for no more than so many of them.
pub(crate) const HELLOS_PER_TURN_MAX: u64 = 8;

/// Bytes of stored bodies brought into memory in one turn: the longest one, which takes about 3 ms
/// if it has to be decoded.
pub(crate) const LOADED_PER_TURN_MAX: u64 = gannet_archive::limits::DECODED_LEN_MAX;

/// Stored bodies being read, or held until there is time to decode them, at once and per worker:
/// at most so many MiB of memory, and as many reads as a driver has in flight.
pub(crate) const LOADS_MAX: usize = 16;

/// A buffer of opened records that grew beyond this is freed: what a peer sends is short.
pub(crate) const PLAIN_KEPT_MAX: usize = 64 << 10;

/// Batches of log lines waiting for the writer; beyond, lines are dropped and counted.
pub(crate) const LOG_QUEUE_MAX: usize = 1_024;

/// Bytes of log lines gathered before they go to the writer.
pub(crate) const LOG_BATCH_BYTES: usize = 32 << 10;

/// How long the end of the process waits for the log's writer, milliseconds: long enough for a
/// disk, and not for a pipe that nobody reads.
pub(crate) const LOG_FINISH_MS: u64 = 1_000;

/// Messages waiting for standard error or standard output; beyond, they are lost and counted.
pub(crate) const NOTICES_MAX: usize = 256;

/// How long the end of the process waits for each of both, milliseconds; see [`LOG_FINISH_MS`].
pub(crate) const NOTICES_FINISH_MS: u64 = 1_000;

/// The part of the time that looking for rules files in folders may take: one of so many.
pub(crate) const RULES_SEARCH_PART: u32 = 100;

/// How often the path of a live directory and its rules files are looked at, milliseconds. A change
/// counts when two looks have seen the same, and every change of a site is seen within a second.
pub(crate) const FOLLOW_MS: u64 = 400;

/// How long all workers together may take to answer a question for their counters, milliseconds: a
/// turn takes far less, and health checks usually give up after a second.
pub(crate) const SNAPSHOT_MS: u64 = 800;

/// Clients of the metrics address at once. A scraper and a few health checks are usual; the oldest
/// one makes room for a further one.
pub(crate) const METRICS_CLIENTS_MAX: usize = 64;

/// How long such a client may take for its request, milliseconds.
pub(crate) const METRICS_REQUEST_MS: u64 = 2_000;

/// The same for request and answer together.
pub(crate) const METRICS_CLIENT_MS: u64 = 5_000;

/// Bytes of such a request; a scraper's head has a few hundred.
pub(crate) const METRICS_REQUEST_MAX: usize = 16 << 10;

/// How long the end of the process waits for the thread that answers there, milliseconds. It may be
/// asking the workers, which takes it `SNAPSHOT_MS` at most.
pub(crate) const METRICS_STOP_MS: u64 = 1_500;

/// Threads that follow live directories; more directories than that share them.
pub(crate) const FOLLOWERS_MAX: usize = 32;

/// The part of a processor that such a thread takes at most, if it has very many: one of so many.
pub(crate) const LOOKS_PART: u32 = 10;

/// The longest pause that follows from that.
pub(crate) const LOOKS_PAUSE_MAX: std::time::Duration = std::time::Duration::from_secs(4);

/// Names of a live directory that browsers may be told to keep for a year: what was said of a name
/// has to be remembered, to be taken back when its content changes. Some 200 bytes each.
pub(crate) const KEPT_NAMES_MAX: usize = 1 << 15;
