//! Limits of the engine, each with its reason.

use gannet_content::directory::coding::CODED_UP_TO;

/// Unparsed input held for a connection while a response is in progress: one head of maximum
/// length, or dozens of usual ones. A pipelining client may send this much ahead; then receiving
/// pauses and TCP applies back-pressure. Bytes that the engine has already received are held as
/// well: at most what it takes from one socket in one wait, with io_uring 32 buffers of 4 KiB.
pub(crate) const HELD_MAX: usize = gannet_http::h1::limits::HEAD_MAX;

/// Responses gathered into one send. More would only delay the first of them.
pub(crate) const RESPONSES_PER_SEND_MAX: u32 = 64;

/// Bytes gathered into one encrypted send: with one more body it is no longer than [`UNTAKEN_MAX`].
/// Encryption copies bytes that clear text sends in place.
pub(crate) const ENCRYPTED_GATHERED_MAX: u64 = UNTAKEN_MAX - SMALL_FILE_MAX;

/// Wire bytes gathered into one send: about a socket's initial send buffer.
pub(crate) const WIRE_MAX: usize = 64 << 10;

/// Bodies up to this length in memory that user code may read are copied behind their head and sent
/// with it; larger ones are sent as a piece of their own. Measured with `lab/`: copying 4 KiB costs
/// less than a second piece.
pub(crate) const COPY_MAX: usize = 8 << 10;

/// Bytes of one HTTP/2 connection gathered for a send, content included, so that a more urgent
/// stream does not wait long behind content already queued. Beyond [`UNTAKEN_MAX`], only as many as
/// the socket accepts at once.
pub(crate) const STREAM_SEND_MAX: u64 = 256 << 10;

/// Unsent bytes in the socket of an HTTP/2 connection beyond which it accepts no more, because
/// queued bytes cannot be overtaken. Otherwise a socket's buffer grows to several megabytes.
pub(crate) const STREAM_UNSENT_MAX: u32 = 128 << 10;

/// Bytes of a file read at a time for an HTTP/2 stream. Only bytes that the flow-control windows
/// allow are read, so that a peer that opens no window costs no memory.
pub(crate) const STREAM_READ_MAX: u64 = 128 << 10;

/// Concurrent disk reads of content per HTTP/2 connection; they bound the memory held for it.
pub(crate) const STREAM_READS_MAX: u32 = 8;

/// Concurrent lookups and reads per HTTP/2 connection, including those of streams that have ended;
/// beyond that, its input waits.
pub(crate) const STREAM_ASKED_MAX: u32 = 192;

/// Free memory returns to the system once this many connections of a worker have ended, if they are
/// at least half of all it had. Fewer cannot hold much.
pub(crate) const GIVE_BACK_MIN: usize = 16;

/// Delay before that, milliseconds: the other connections of a burst end as well.
pub(crate) const GIVE_BACK_MS: u64 = 1_000;

/// Idle time after which an HTTP/2 connection frees its tables, milliseconds: a client that sends
/// its next request at once still finds them.
pub(crate) const TRIM_MS: u64 = 1_000;

/// Bytes of a file passed to the kernel in one operation, so that connections take turns; also the
/// length for which a driver's residency test works best.
pub(crate) const SLICE_MAX: u64 = gannet_io::limits::RESIDENT_CHUNK;

/// Delay before the first check whether a peer has acknowledged the pages of a live file,
/// nanoseconds: a round trip in a local network. Each later check follows after this long plus an
/// eighth of the time waited so far.
pub(crate) const ACKNOWLEDGED_FIRST_NS: u64 = 250_000;

/// The last slice of a live file, which waits for that acknowledgement, is its tail divided by this.
pub(crate) const LAST_SLICE_PART: u64 = 4;

/// Bytes of a file read into memory at a time where `sendfile` is not safe.
pub(crate) const COPY_SLICE_MAX: u64 = 256 << 10;

/// Files up to this length are kept in memory in directory mode; also the maximum that an archive
/// response sends from memory. Above it, `sendfile` is cheaper than copying.
pub(crate) const SMALL_FILE_MAX: u64 = 32 << 10;

/// The longest archive that is copied into memory by default. Copying delays a start by up to 2 ms
/// per MiB if the archive is in the page cache.
pub(crate) const ARCHIVE_COPY_MAX: u64 = 256 << 20;

/// Such an archive is at most the available memory divided by this: unlike the pages of a file, the
/// system cannot reclaim a copy.
pub(crate) const ARCHIVE_COPY_PART: u64 = 8;

/// Unless the operator says, the caches may take the memory that the process can expect divided by this.
pub(crate) const CACHE_MEMORY_PART: u64 = 8;

/// But at least this many bytes, where half of the memory is more: room for two copies of files of 64 MiB.
pub(crate) const CACHE_MEMORY_LEAST: u64 = 256 << 20;

/// And at most this many: room for eight of them. What is copied is in the page cache as well.
pub(crate) const CACHE_MEMORY_MOST: u64 = 1 << 30;

/// But at most this part, of 8, of what limits leave to it: half as much is for what slow peers have of
/// caches that were emptied, and the rest for encoders and connections.
pub(crate) const CACHE_MEMORY_OF_LEFT: (u64, u64) = (3, 8);

/// Without a bound by the operator, caches may take this many bytes however little is left: none would
/// have each text sent as it is, and each archive read from its file.
pub(crate) const CACHE_MEMORY_FLOOR: u64 = 4 << 20;

/// Maximum bytes of a file encrypted for one send: they are read, encrypted and copied by the
/// kernel while they are in the second-level cache, and the cost of a send is small in comparison.
/// With it 1 GB over HTTPS in one stream, by one worker, costs 240 to 320 ms of CPU from a
/// directory and 150 to 190 ms from an archive, where nginx takes 530 to 540 in the same run.
pub(crate) const ENCRYPTED_SLICE_MAX: u64 = 512 << 10;

/// The same for the first send of a response: covers most files, and sends the first bytes soon.
pub(crate) const ENCRYPTED_SLICE_FIRST: u64 = 128 << 10;

/// Bytes of content prepared for one send (read from a file, encrypted) that the socket does not
/// accept at once: an unresponsive peer pins no more than this. A lower limit would cost an extra
/// system call every few records of a download that is slower than this machine.
pub(crate) const UNTAKEN_MAX: u64 = 48 << 10;

/// A TLS connection that has sent nothing for this long resumes with small records; 1 s. About as
/// long as TCP takes to reset its congestion window.
pub(crate) const RESTED_NS: u64 = 1_000_000_000;

/// Bytes of live files that a worker itself reads in one turn for first responses with their
/// content: a fraction of a millisecond. Helper threads copy longer files.
pub(crate) const READ_PER_TURN_MAX: u64 = 512 << 10;

/// Bytes of datagrams in one turn: 2 to 4 ms, while other requests wait. Beyond that, each connection is
/// limited to [`UNTAKEN_MAX`].
pub(crate) const SENT_PER_TURN_MAX: u64 = 8 << 20;

/// Bytes of long responses after their first slices in one turn: 3 to 5 ms over TLS. What exceeds it waits
/// for the next turn.
pub(crate) const LONG_PER_TURN_MAX: u64 = 16 << 20;

/// Bytes of one connection after which all others that wait go first: a longer share would make them wait
/// longer, a shorter one would make a response of this length wait for them several times.
pub(crate) const SHARE_MAX: u64 = SLICE_MAX;

/// Lookups that begin or resume in one turn. A lookup that has to open more than one path, such as that of
/// a missing one, counts for as many.
pub(crate) const LOOKUPS_PER_TURN_MAX: u64 = 64;

/// Live files that a worker copies into memory concurrently: a limit each for local disks and for
/// foreign file systems. Each copy occupies a helper thread, about 3 ms for a file of 4 MiB. Beyond
/// that, files are sent from the disk.
pub(crate) const COPIES_AT_ONCE_MAX: usize = 4;

/// Bytes of the copies in progress, per worker.
pub(crate) const FIRST_READS_HELD_MAX: u64 = 2 * COPIES_AT_ONCE_MAX as u64 * CODED_UP_TO;

/// The longest live file copied into memory for its first request; of text that is coded, [`CODED_UP_TO`].
pub(crate) const SNAPSHOT_MAX: u64 = 4 << 20;

/// How many times as long text may be that is coded.
pub(crate) const CODED_PART: u64 = CODED_UP_TO / SNAPSHOT_MAX;

/// Longer ones are copied in the background once so many requests have followed the first: a copy costs about one.
pub(crate) const LONG_COPY_AFTER: u64 = 2;

/// Their copies take at most the caches' room divided by this, of all sites and workers, and a single one
/// that divided by it again.
pub(crate) const LONG_COPY_PART: u64 = 2;

/// A copy that was requested within this time makes no room for others, in milliseconds.
pub(crate) const LONG_COPY_IDLE_MS: u64 = 10_000;

/// One that was not requested for so long is dropped, in milliseconds.
pub(crate) const LONG_COPY_UNUSED_MS: u64 = 60_000;

/// Huge pages that short copies share have at most a worker's room divided by this. At worst one copy keeps each.
pub(crate) const SHARED_PAGES_PART: u64 = 4;

/// The room of a worker's caches divided by this is divided equally among the sites: each keeps its part of
/// it, whatever is asked for of others.
pub(crate) const CACHE_OWN_PART: usize = 2;

/// Bytes of the caches that age in one turn before the others wait for the next one: 16,384 entries at most,
/// which take a few milliseconds. A single site's may be more.
pub(crate) const AGED_PER_TURN_MAX: u64 = 16 << 20;

/// A file is coded only if a worker's cache of the site has room for so many times its length: for the
/// file, and a coding that is being made, which counts as much. Otherwise it would be gone before that is
/// made, and be copied and coded over and over.
pub(crate) const CODED_WEIGHT: u64 = 2;

/// Bytes of copies that have left the cache but are still being sent to slow peers, in addition to
/// the cache's own limit: at most this part of that limit. Beyond that, files are sent from the disk like
/// long ones.
pub(crate) const COPIES_SPARE_PART: u64 = 2;

/// At least so many, for bodies of which an archive has a coding alone: one being sent, and one more.
pub(crate) const COPIES_SPARE_MIN: u64 = 2 * gannet_archive::limits::DECODED_LEN_MAX;

/// At most so many.
pub(crate) const COPIES_SPARE_MAX: u64 = 32 << 20;

/// Live files queued to be coded, some 150 bytes each, whose content the caches keep; beyond that,
/// requests for further ones ask again later. One client that fetches a whole documentation is faster
/// than the coder.
pub(crate) const CODER_QUEUE_MAX: usize = 16_384;

/// Files queued to be coded, and their codings, leave this part of that room to others.
pub(crate) const CODER_ROOM_LEFT_PART: u64 = 2;

/// Versions of live files whose codings workers share: as many as one of them caches.
pub(crate) const CODED_FILES_MAX: usize = CACHED_PATHS_MAX;

/// How long a cached file is fresh before its metadata are compared again, in milliseconds. Every
/// change is visible within a second.
pub(crate) const BELIEVED_MS: u64 = 700;

/// How long metadata alone may revalidate a cached file, milliseconds. After that the whole lookup
/// is repeated, so that a new file that takes precedence, or a new sidecar, is noticed.
pub(crate) const CONFIRMED_MS: u64 = 4_000;

/// Last bytes of a file that are read when it is opened, if it has changed recently: a line or two of any log,
/// and more than any two versions of a file end with alike.
pub(crate) const GROWING_END_LEN: u64 = 4 << 10;

/// How often that is tried while the file grows: between the two calls that take a few microseconds, a
/// thousand writes a second fall once in hundreds of times; on a busy machine far more often.
pub(crate) const GROWING_ENDS_MAX: u32 = 32;

/// How long in milliseconds a response waits for a write that has set the times of such a file to set its length,
/// too: the scheduler of a busy machine may stop the writer in between, for a few of the others' turns. An overwrite
/// looks the same: its response is reset that much later, or completed if an append follows within this time.
pub(crate) const GROWING_WAIT_MS: u64 = 250;

/// How long in milliseconds until their metadata are read again, for 128 responses at a time: each costs
/// [`GROWING_END_LEN`] of [`REREAD_PER_TURN_MAX`].
pub(crate) const GROWING_LOOK_MS: u64 = 5;

/// Responses of a worker that wait so at once, each with a slice of up to [`ENCRYPTED_SLICE_MAX`] in memory; others
/// are reset as if the file had been overwritten. Each is looked at every 20 ms.
pub(crate) const GROWING_WAITS_MAX: usize = 512;

/// Bytes of a response from a growing file that are read again in one operation.
pub(crate) const REREAD_SLICE_MAX: u64 = COPY_SLICE_MAX;

/// The same in one turn of a worker, for all responses: a fraction of a millisecond. The others wait for the next
/// turn. In all a peer causes at most as many to be read again as it has taken, but for the last slice.
pub(crate) const REREAD_PER_TURN_MAX: u64 = 512 << 10;

/// Seconds that a file must have been unchanged before its bytes are kept in memory: longer than
/// any write call, and than the timestamp granularity of any file system.
pub(crate) const SETTLED_S: i64 = 2;

/// Maximum duration in seconds of a write whose end leaves no trace in the timestamps: content read
/// within this many seconds of a change is read again at each whole lookup ([`CONFIRMED_MS`]).
pub(crate) const RECENT_S: i64 = 60;

/// How long a file that may change stays open without requests for it, milliseconds: it may have
/// been deleted, and occupies disk space until it is closed. The same for entries with copies of longer
/// files, which occupy the room for others.
pub(crate) const OPEN_IDLE_MS: u64 = 4_000;

/// Request paths cached by a worker in directory mode.
pub(crate) const CACHED_PATHS_MAX: usize = 65_536;

/// Paths that a site's cache admits at their first request; beyond that, short files enter at their second.
pub(crate) const ADMITTED_FREELY_MAX: usize = 1_024;

/// Paths of a site remembered as requested once, four bytes each.
pub(crate) const ASKED_ONCE_MAX: usize = 32_768;

/// How long what is known of a folder's names counts before its metadata are compared, in
/// milliseconds: a lookup's result counts from then, so it may be this much older than the lookup.
pub(crate) const FOLDER_FRESH_MS: u64 = 100;

/// How long a folder counts as one of regular files alone, in milliseconds. A FIFO that is put there
/// meanwhile is opened before it is recognized.
pub(crate) const FOLDER_PLAIN_MS: u64 = 1_000;

/// Files of a folder in a row that had at most [`READ_AHEAD_MAX`](gannet_io::limits::READ_AHEAD_MAX)
/// bytes, before others are read ahead: where one in ten is longer, that costs about as much as it saves.
pub(crate) const SHORT_FILES_SEEN: u32 = 8;

/// Names that the first survey of a folder reads: 0.1 ms of a helper thread.
pub(crate) const FOLDER_NAMES_FIRST: usize = 2_048;

/// Surveys in progress at a time; lookups in other folders ask for their sidecars meanwhile.
pub(crate) const SURVEYS_MAX: usize = 32;

/// Names that a survey reads at most: 10 ms of a helper thread.
pub(crate) const FOLDER_NAMES_MAX: usize = 131_072;

/// Names that a survey may read for each lookup that missed it: they take as long as the lookups of
/// three sidecars that it replaces.
pub(crate) const FOLDER_NAMES_PER_MISS: usize = 64;

/// Bytes of what is known about the folders of a site, per worker: the longest survey of sidecars,
/// and thousands of folders.
pub(crate) const FOLDERS_HELD_MAX: u64 = 2 << 20;

/// Descriptors of large files kept open by a worker in directory mode.
pub(crate) const OPEN_FILES_MAX: usize = 2_048;

/// They take at most a worker's share of the process's descriptors divided by this, and are closed
/// to make room for connections.
pub(crate) const OPEN_FILES_PART: u64 = 4;

/// Connections leave free a worker's share divided by this: for files opened for responses in
/// progress, and for everything else that opens files.
pub(crate) const SPARE_DESCRIPTORS_PART: u64 = 8;

/// How often a lookup closes kept files and retries when no descriptor is free: once for those
/// unused for long, once for the others.
pub(crate) const DESCRIPTOR_TRIES_MAX: u32 = 2;

/// How long a request waits for descriptors, memory or room in the disk queue before it is answered
/// with 503, milliseconds.
pub(crate) const SHORT_MS: u64 = 2_000;

/// Delay of the first retry of a lookup that found a resource exhausted, milliseconds.
pub(crate) const SHORT_AGAIN_MS: u64 = 1;

/// The longest pause between two such retries, in milliseconds: a disk answers within it, and
/// requests that waited for the disk have released what they held.
pub(crate) const SHORT_PAUSE_MAX_MS: u64 = 64;

/// Connections whose disk operations may stay queued after the connections have ended.
pub(crate) const UNAWAITED_MAX: u32 = 32;

/// Entries read of one directory for a listing: it is sorted and counted as a whole, so those that
/// are not read are as if they were not there.
pub(crate) const LISTING_MAX: usize = 100_000;

/// Directories that a worker reads concurrently: one on local disks, one on foreign file systems,
/// so that a file system that hangs delays only requests to foreign ones. Each occupies a thread
/// for up to 0.4 s of CPU time, and at most [`LISTING_MAKING_MAX`] of memory; further requests queue.
pub(crate) const LISTINGS_READ_MAX: usize = 2;

/// The longest listing.
pub(crate) const LISTING_BYTES_MAX: u64 = gannet_content::limits::LISTING_BYTES_MAX as u64;

/// Bytes of a listing that is being made: itself, the names, and for each entry 192 bytes: a record of
/// what was read (40) and one of what is shown (56), in vectors that double as they grow, and the
/// allocation of its name.
pub(crate) const LISTING_MAKING_MAX: u64 =
    LISTING_BYTES_MAX + gannet_io::limits::LISTED_NAMES_MAX as u64 + LISTING_MAX as u64 * 192;

/// Bytes of finished listings in memory, per worker: cached (within a quarter of a site's cache), and
/// being sent. That is room for all listings of a folder of 100,000 entries with names of usual length.
/// Cached ones make room for new ones; a request for a listing that does not fit then gets 503 until a
/// peer has received its page.
pub(crate) const LISTINGS_PAGES_MAX: u64 = 2 * LISTING_BYTES_MAX;

/// Bytes of all listings, including those being made, which have room of their own.
pub(crate) const LISTINGS_HELD_MAX: u64 =
    LISTINGS_PAGES_MAX + LISTINGS_READ_MAX as u64 * LISTING_MAKING_MAX;

/// A kept listing of a folder with the same names is made again at the earliest after so many times the
/// time that it took: a fiftieth of a processor makes it, and a folder has seven listings at most (JSON,
/// and a page in six orders).
pub(crate) const LISTING_REST: u64 = 50;

/// The longest such time, milliseconds: sizes and dates in a listing are never older.
pub(crate) const LISTING_REST_MAX_MS: u64 = 30_000;

/// Metadata whose change time is more recent than this when they are read may stand for several
/// versions: file systems take their timestamps from a clock with coarse ticks, and a write sets
/// the time when it begins; 2 s, as in git.
pub(crate) const RACY_NS: i128 = 2_000_000_000;

/// Bytes read and discarded after the last response of a connection, so that the peer can read the
/// response before the connection is reset.
pub(crate) const LINGER_BYTES_MAX: u64 = 1 << 20;

/// How long such a peer is waited for, milliseconds.
pub(crate) const LINGER_MS: u64 = 2_000;

/// The rules of all sites may hold together what limits leave a start, divided by this: caches and encoders
/// shrink when memory is short, rules do not.
pub(crate) const RULES_MEMORY_PART: u64 = 4;

/// But at least this many bytes, however little is left: thousands of rules of one site.
pub(crate) const RULES_MEMORY_FLOOR: u64 = 8 << 20;

/// What they may hold where no limit is known, in bytes: five sites as large as one may be.
pub(crate) const RULES_MEMORY_USUAL: u64 = 1 << 30;

/// Bytes that rules may hold for each byte of their text, at most: a source of two letters takes the most.
pub(crate) const RULES_MEMORY_PER_BYTE: usize = 256;

/// Unparsed input held for one connection: pipelined requests sent ahead, the buffers received
/// before receiving paused, and an incomplete TLS record.
pub(crate) const INPUT_HELD_MAX: u64 = 256 << 10;

/// Requests that wait, of all connections of a worker: half of it is for those that wait for the disk, a
/// quarter each for passwords and sites. Beyond that, a connection may have one, or [`WAITING_USUAL`] short
/// ones, and further ones get 503. HTTP/2 lets a client refer to 4 KiB of a field with one byte, so that the
/// requests are hundreds of times longer than what it sends. Thousands of usual ones fit.
pub(crate) const WAITING_MAX: u64 = 16 << 20;

/// At most the memory of the caches divided by this.
pub(crate) const WAITING_PART: u64 = 4;

/// But at least this.
pub(crate) const WAITING_MIN: u64 = 1 << 20;

/// One of these requests: a head of maximum length, of HTTP/1; again its host, language and query, for rules;
/// four times its path; and what belongs to it.
pub(crate) const WAITING_ONE_MAX: u64 = (gannet_http::h1::limits::HEAD_MAX
    + gannet_http::h1::limits::FIELD_SECTION_MAX
    + gannet_http::h1::limits::REQUEST_LINE_MAX
    + 3 * gannet_http::semantics::limits::PATH_MAX) as u64
    + (2 << 10);

/// So many that are as long as one divided by this number may wait, too: what a page of a site needs.
pub(crate) const WAITING_USUAL: u64 = 8;

/// Bytes of heads of responses gathered for an HTTP/2 connection before further requests are looked up
/// whose heads may not fit, one excepted: the longest of a site, or of many sites those that wait for one
/// send. A client that reads nothing makes a worker hold twice as many.
pub(crate) const HEADS_HELD_MAX: u64 = 256 << 10;

/// The same for an HTTP/3 connection with its short content, which the library keeps until it is
/// acknowledged: more than a hundred pages of the longest that are copied.
pub(crate) const H3_ANSWERED_MAX: u64 = 1 << 20;

/// Bytes of a head to which neither rules nor an archive have added anything, at most for most.
pub(crate) const HEAD_USUAL: u64 = 2 << 10;

/// Responses prepared for one connection: one send, and the content read for its streams.
pub(crate) const ANSWERS_HELD_MAX: u64 = 4 << 20;

/// Bytes of a request target that are logged; longer ones are truncated.
pub(crate) const LOG_TARGET_MAX: usize = 4 << 10;

/// The same for the method, host, user, referer and user agent, each.
pub(crate) const LOG_FIELD_MAX: usize = 1 << 10;

/// Bytes of an `x-request-id` that is logged; usual ones have 16 to 36. A longer one is left out, since its
/// beginning would be another one.
pub(crate) const LOG_REQUEST_ID_MAX: usize = 128;

/// Bytes of the subject of a client's certificate that are logged; of a longer one, which may have 16 KiB,
/// the beginning and a mark.
pub(crate) const LOG_SUBJECT_MAX: usize = 1 << 10;

/// The same for the octets of its serial number, two digits each: no more are allowed (RFC 5280 section
/// 4.1.2.2).
pub(crate) const LOG_SERIAL_OCTETS_MAX: usize = 20;

/// Log records pending for one connection: those of its streams, and of the responses in two sends; and
/// who its client is by its certificate.
pub(crate) const LOG_HELD_MAX: u64 = (gannet_http::h2::limits::STREAMS_MAX as u64
    + 2 * RESPONSES_PER_SEND_MAX as u64)
    * (LOG_TARGET_MAX + 5 * LOG_FIELD_MAX + LOG_REQUEST_ID_MAX + 512) as u64
    + (LOG_SUBJECT_MAX + 2 * LOG_SERIAL_OCTETS_MAX + 512) as u64;

/// Bytes the engine is sending for one connection, excluding shared memory and pages of files: the
/// longest slice in records, in a buffer that may have been allocated for more.
pub(crate) const SENDS_HELD_MAX: u64 = 2 * ENCRYPTED_SLICE_MAX;

/// Tables and control frames of HTTP/2, or incomplete requests of HTTP/3.
pub(crate) const STREAMS_HELD_MAX: u64 = {
    let (h2, h3) = (
        gannet_http::h2::limits::MEMORY_MAX,
        gannet_http::h3::limits::HELD_MAX,
    );
    if h2 > h3 { h2 as u64 } else { h3 as u64 }
};

/// Bytes of stored bodies being read, or held until this turn's budget allows decoding them; a
/// coded body is no longer than [`DECODED_LEN_MAX`](gannet_archive::limits::DECODED_LEN_MAX),
/// either.
pub(crate) const LOADS_HELD_MAX: u64 = LOADS_MAX as u64 * LOADED_PER_TURN_MAX;

/// How long a connection without any request may stay open after a stop, milliseconds: its first
/// request may be on its way, over a link with long round trips as well.
pub(crate) const FRESH_MS: u64 = 2_000;

/// Connections closed at once when descriptors or memory run out.
pub(crate) const SHED_MAX: usize = 64;

/// Connections closed beyond those that are to make room, because some end later: the kernel holds records for their
/// peers. A newcomer is not worth more of them, but up to [`SHED_MAX`] are passed over in search of another.
pub(crate) const SHED_LATER_MAX: usize = 3;

/// Idle connections per worker that a memory shortage leaves open: so few are not what holds it.
pub(crate) const ACCEPTED_ALWAYS: usize = 8;

/// Memory required for one more turn of a connection once memory has run out: requests, their
/// responses and a few slices over TLS.
pub(crate) const ROOM_FOR_A_TURN: usize = 1 << 20;

/// Interval at which available memory is checked again, milliseconds, if nothing else happens.
pub(crate) const ROOM_AGAIN_MS: u64 = 1;

/// Delay after closing connections for lack of memory before more may be closed, milliseconds:
/// io_uring releases the buffers of their sends in a later turn.
pub(crate) const SHED_AGAIN_MS: u64 = 5;

/// How long the last connection of a worker waits for memory, milliseconds.
pub(crate) const SHORT_ALONE_MS: u64 = 500;

/// Connections inspected in search of an idle one to close. Busy ones are inspected again only
/// occasionally, so that a server full of downloads does not scan all of them at each accept.
pub(crate) const SHED_LOOKS_MAX: usize = 64;

/// Among connections that could be closed to make room, those idle for less than this stay,
/// milliseconds: they are about to send a request.
pub(crate) const SHED_REST_MS: u64 = 100;

/// Interval at which accepting is retried although no connection of this worker has ended,
/// milliseconds: soon enough for a waiting client, without a busy loop.
pub(crate) const ACCEPT_AGAIN_MS: u64 = 100;

/// ClientHellos answered in one turn. Each costs a key exchange and a signature, 100 µs to 1 ms;
/// established connections wait for no more than these.
pub(crate) const HELLOS_PER_TURN_MAX: u64 = 8;

/// Bytes of stored bodies loaded into memory in one turn: the longest body, about 3 ms if it must
/// be decoded.
pub(crate) const LOADED_PER_TURN_MAX: u64 = gannet_archive::limits::DECODED_LEN_MAX;

/// Concurrent stored bodies per worker, being read or held until this turn's budget allows decoding
/// them: at most this many MiB of memory, and as many reads as a driver has in flight.
pub(crate) const LOADS_MAX: usize = 16;

/// Decrypted-record buffers larger than this are freed: requests are short.
pub(crate) const PLAIN_KEPT_MAX: usize = 64 << 10;

/// Batches of log lines queued for the writer; beyond that, lines are dropped and counted.
pub(crate) const LOG_QUEUE_MAX: usize = 1_024;

/// Bytes of log lines gathered before they are passed to the writer.
pub(crate) const LOG_BATCH_BYTES: usize = 32 << 10;

/// How long process exit waits for the log's writer, milliseconds: long enough for a disk, and
/// bounded for a pipe without a reader.
pub(crate) const LOG_FINISH_MS: u64 = 1_000;

/// Most messages a minute about incidents of one kind, such as files that cannot be read; peers cause them.
/// Enough for the files of a page.
pub(crate) const INCIDENT_LINES_MAX: u64 = 10;

/// That minute, in nanoseconds.
pub(crate) const INCIDENT_MINUTE_NS: u64 = 60_000_000_000;

/// Bytes of a path or host in such a message.
pub(crate) const INCIDENT_NAME_MAX: usize = 256;

/// Messages queued for standard error or standard output; beyond that, they are dropped and
/// counted.
pub(crate) const NOTICES_MAX: usize = 256;

/// How long process exit waits for each of the two streams, milliseconds; see [`LOG_FINISH_MS`].
pub(crate) const NOTICES_FINISH_MS: u64 = 1_000;

/// Searching folders for rules files uses at most one part in this many of the time.
pub(crate) const RULES_SEARCH_PART: u32 = 100;

/// Interval at which the path of a live directory and its rules files are checked, milliseconds. A
/// change takes effect when two checks agree, and every change of a site is seen within a second.
pub(crate) const FOLLOW_MS: u64 = 400;

/// Interval at which archives' paths and stores' pointers are checked, milliseconds. An archive counts
/// as replaced when two checks agree: one that is copied there, not renamed, takes a while.
pub(crate) const RELEASES_LOOK_MS: u64 = 200;

/// After a refusal that may pass by itself, a store's pointer, or the archive at a path, is read again in
/// this many milliseconds: what is missing may still arrive. If reading takes long, the pause is
/// [`REFUSED_PART`] times as long.
pub(crate) const REFUSED_AGAIN_MS: u64 = 5_000;

/// See [`REFUSED_AGAIN_MS`].
pub(crate) const REFUSED_PART: u32 = 10;

/// How long one check waits for all workers to have a release, milliseconds. A turn takes far less; a
/// later check waits again.
pub(crate) const APPLIED_MS: u64 = 1_000;

/// A staged release is late if the workers do not have it this many seconds after its activation.
pub(crate) const LATE_S: u64 = 2;

/// Releases beside the current one that answer for their immutable assets: as many as a store keeps
/// at most by default, and the staged one.
pub(crate) const OTHER_RELEASES_MAX: usize = 21;

/// How long a directory that was replaced answers for its immutable assets: as long as shared caches
/// may hold pages, and more.
pub(crate) const KEPT_DIRECTORY: std::time::Duration = std::time::Duration::from_secs(7 * 86_400);

/// Bytes of replaced archives, which no path leads to any more, that are kept on disk for their
/// immutable assets.
pub(crate) const UNLINKED_BYTES_MAX: u64 = 4 << 30;

/// Bytes of the copies in memory of a content's kept releases, where the operator wants archives to be
/// sent from copies alone.
pub(crate) const KEPT_COPIES_BYTES_MAX: u64 = 1 << 30;

/// The rules of a content's kept releases may hold what those of all sites may, divided by this: they must
/// not keep the next release from being read.
pub(crate) const KEPT_RULES_PART: usize = 8;

/// Sites with counts of their own in the metrics; those of others are added up. Each is two samples for
/// their collector.
pub(crate) const SITES_COUNTED_MAX: usize = 100;

/// How long all workers together may take to report their counters, milliseconds: a turn takes far
/// less, and health checks usually give up after a second.
pub(crate) const SNAPSHOT_MS: u64 = 800;

/// Concurrent clients of the metrics address. A scraper and a few health checks are usual; the
/// oldest one is closed to admit another.
pub(crate) const METRICS_CLIENTS_MAX: usize = 64;

/// How long such a client may take to send its request, milliseconds.
pub(crate) const METRICS_REQUEST_MS: u64 = 2_000;

/// The same for request and response together.
pub(crate) const METRICS_CLIENT_MS: u64 = 5_000;

/// Bytes of such a request; a scraper's head has a few hundred.
pub(crate) const METRICS_REQUEST_MAX: usize = 16 << 10;

/// How long process exit waits for the metrics thread, which may poll workers ([`SNAPSHOT_MS`]), milliseconds.
pub(crate) const METRICS_STOP_MS: u64 = 1_500;

/// Threads that follow live directories; beyond that, directories share threads.
pub(crate) const FOLLOWERS_MAX: usize = 32;

/// Such a thread uses at most one part in this many of a processor, however many directories it
/// follows.
pub(crate) const LOOKS_PART: u32 = 10;

/// The longest pause that this limit causes.
pub(crate) const LOOKS_PAUSE_MAX: std::time::Duration = std::time::Duration::from_secs(4);

/// Names of a live directory that browsers may cache for a year: such a name has to be remembered
/// so that the promise can be withdrawn when its content changes. Some 200 bytes each.
pub(crate) const KEPT_NAMES_MAX: usize = 1 << 15;

/// Passwords that wait to be compared with their hashes, of all workers: one comparison takes up to a
/// second, mostly a tenth, and who waits longer than a minute has gone.
pub(crate) const PASSWORD_QUEUE_MAX: usize = 64;

/// Requests of a worker that wait for such a comparison: a browser sends several with the same password
/// before the first is answered.
pub(crate) const PASSWORD_WAITERS_MAX: usize = 1_024;

/// Right passwords that a worker remembers, in some hundred kilobytes. Only those who know one can add
/// to them.
pub(crate) const PASSWORDS_REMEMBERED_MAX: usize = 2_048;

/// The longest password file: a thousand users with long hashes.
pub(crate) const PASSWORD_FILE_MAX: u64 = 1 << 20;

/// Earlier processes to which a process passes datagrams of HTTP/3: upgrades within the grace period of
/// one. The connections of older ones end by their timeouts.
pub(crate) const ELDERS_MAX: usize = 8;

/// Sites of a folder of hosts that are opened at the start: as many as people make by hand, whose
/// mistakes they want reported then.
pub(crate) const SITES_AT_START_MAX: usize = 64;

/// Maximum number of other sites of such a folder that are open. Each costs its rules, caches, and a descriptor
/// or two for each worker.
pub(crate) const OPEN_SITES_MAX: usize = 256;

/// No matter how few descriptors there are.
pub(crate) const OPEN_SITES_MIN: usize = 8;

/// The part of the process's descriptors that these sites may take.
pub(crate) const SITE_DESCRIPTORS_PART: u64 = 4;

/// Descriptors that an open site has besides one for each worker.
pub(crate) const SITE_DESCRIPTORS: u64 = 4;

/// Such a site is closed after this many seconds without a request: a reader who turns a page finds it
/// open.
pub(crate) const SITE_IDLE_S: u64 = 600;

/// A site that could not be opened is not tried again for this many seconds.
pub(crate) const SITE_FAILED_S: u64 = 5;

/// Interval at which a folder of hosts is looked at, and the open sites in it, milliseconds. While
/// nothing comes or goes there, its own metadata is all that is read.
pub(crate) const SITES_LOOK_MS: u64 = 500;

/// Sites that are being opened at a time, besides those that take longer than [`SITE_SLOW_MS`].
pub(crate) const SITE_OPENERS: usize = 4;

/// An opening that takes so long makes room for another one, milliseconds: its file system may hang.
pub(crate) const SITE_SLOW_MS: u64 = 250;

/// Threads that open sites. If each of them hangs in a file system, no other site is opened.
pub(crate) const SITE_OPENERS_MAX: usize = 64;

/// A request waits for its site for so long, seconds: as long as a disk takes that has to begin to turn.
pub(crate) const SITE_WAIT_S: u64 = 10;

/// A start that has waited for its content for so long, seconds, says so, and continues to wait: a disk that has
/// to begin to turn, or a large archive, may well take that long.
pub(crate) const START_WAIT_TOLD_S: u64 = 5;

/// Interval at which requests are looked at that wait for a site, milliseconds.
pub(crate) const SITE_WAITS_LOOK_MS: u64 = 100;

/// Threads that look for changes of open sites: one, and those that hang in a file system.
pub(crate) const SITE_LOOKERS_MAX: usize = 64;

/// Hosts whose sites are to be opened, of all workers. Opening one takes a millisecond: a longer queue
/// means that the disk is slow.
pub(crate) const SITE_QUEUE_MAX: usize = 1_024;

/// Certificates that the health check has a line for. Others are counted.
pub(crate) const HEALTH_LINES_MAX: usize = 20;

/// Handshakes of a worker that wait for a certificate that was ordered just now. More of them are refused.
pub(crate) const HELD_HELLOS_MAX: usize = 256;

/// Those of one client: an IPv4 address, or the /64 network of an IPv6 address. A browser opens six for a name
/// at most, and others behind the same address have room. Proxies count as no client.
pub(crate) const HELD_HELLOS_OF_CLIENT_MAX: usize = HELD_HELLOS_MAX / 8;

/// Bytes of such a handshake, with what follows the hello. A client has little to say before an answer, unless
/// it sends early data (0-RTT); it is received from all the time, so that its end is noticed.
pub(crate) const HELD_HELLO_LEN_MAX: u64 = 64 << 10;

/// How long a handshake waits so, milliseconds: an order takes some ten seconds, and browsers give up after
/// more than this.
pub(crate) const HELD_HELLO_MS: u64 = 30_000;

/// Requests of a worker that wait for their sites.
pub(crate) const SITE_WAITERS_MAX: usize = 4_096;

/// Parts of releases on demand that all workers have asked for and wait for, some 200 bytes each; every worker has
/// an equal part of it. A page of a hundred files for ten clients that come at the same time.
pub(crate) const FETCHES_MAX: usize = 1_024;

/// How long a request waits for such a part, milliseconds: longer than a store takes that is only slow, and
/// visitors wait.
pub(crate) const FETCH_WAIT_MS: u64 = 10_000;

/// How old the oldest question may be while what needs no answer is sent as well, milliseconds: a process that is
/// started anew would find the pipe full of that.
pub(crate) const FETCH_HINTS_MS: u64 = 1_000;

/// How long the error pages of such a release are waited for when it is opened, milliseconds: without them it
/// has built-in ones, and the site should not wait for their sake.
pub(crate) const ERROR_PAGES_MS: u64 = 2_000;

/// How often such pages are said to be used, 64 at a time, and asked for again if they could not be had, seconds.
pub(crate) const ERROR_PAGES_SAID_S: u64 = 10;

/// Bytes that are asked for at a time, and ahead of a long response: what a store with a round trip of 50 ms
/// sends at 160 Mbit/s meanwhile.
pub(crate) const FETCH_AHEAD: u64 = 1 << 20;

/// How often a slice of a response is begun to be read, when it is not present or is dropped meanwhile: more
/// would be in vain, since there is less room than what is requested at one time.
pub(crate) const SLICE_READS_MAX: u32 = 8;

/// Parts that were used, which a worker reports together: a pipe takes them as a whole.
pub(crate) const USED_PARTS_MAX: usize = 64;

/// Bytes of the token of a challenge by HTTP-01: at least 128 bits in base64url (RFC 8555 section 8.3).
pub(crate) const ACME_TOKEN_LEN_MIN: usize = 22;

/// The longest token: three times the usual. It is part of the answer.
pub(crate) const ACME_TOKEN_LEN_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::bounds::tls::{ASKED_MAX, COMPRESSED_MAX, FOLDER_PAIRS_MAX, NEWS_MAX};

    /// Rows of SECURITY.md that name a bound have its value.
    #[test]
    fn what_is_said_of_certificates_on_demand_is_so() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = fs::read_to_string(root.join("SECURITY.md")).expect("it is there");
        let number = |number: usize| match number / 1000 {
            0 => number.to_string(),
            thousands => format!("{thousands},{:03}", number % 1000),
        };
        let bytes = format!("{} KiB", HELD_HELLO_LEN_MAX >> 10);
        let time = format!("{} s", HELD_HELLO_MS / 1000);
        for (name, value) in [
            ("HELD_HELLOS_MAX", number(HELD_HELLOS_MAX)),
            (
                "HELD_HELLOS_OF_CLIENT_MAX",
                number(HELD_HELLOS_OF_CLIENT_MAX),
            ),
            ("HELD_HELLO_LEN_MAX", bytes),
            ("HELD_HELLO_MS", time),
            ("ASKED_MAX", number(ASKED_MAX)),
            ("NEWS_MAX", number(NEWS_MAX)),
            ("FOLDER_PAIRS_MAX", number(FOLDER_PAIRS_MAX)),
            ("COMPRESSED_MAX", number(COMPRESSED_MAX)),
        ] {
            let said = format!("{value} (`{name}`");
            assert!(text.contains(&said), "no '{said})'");
        }
        let all = (HELD_HELLOS_MAX as u64 * HELD_HELLO_LEN_MAX) >> 20;
        assert!(text.contains(&format!("a worker holds {all} MiB in the account `input`")));
    }
}
