//! Bounds of HTTP/3's transport, each with its reason.

/// Requests open at once on a connection. RFC 9114 section 6.1 asks for at least 100, and each one
/// that is permitted takes memory.
pub(super) const REQUESTS_MAX: u32 = 100;

/// Unidirectional streams that a peer may have open: control, two of QPACK, and some to come.
pub(super) const UNI_STREAMS_MAX: u32 = 8;

/// Bytes that a peer may send ahead on one stream: the longest head four times. Content is dropped.
pub(super) const STREAM_WINDOW: u32 = 64 << 10;

/// The same for all streams of a connection together.
pub(super) const CONNECTION_WINDOW: u32 = 256 << 10;

/// Bytes on their way before the first acknowledgement, paced: 32 datagrams, as Chromium's and Caddy's
/// QUIC have it. RFC 9002 section 7.2 recommends ten. See decision 11.
pub(super) const INITIAL_WINDOW: u64 = 32 * 1_452;

/// Bytes of content that a connection may have on the way to its peer. They are in memory that others
/// use, too, or were copied once.
pub(super) const SEND_WINDOW: u64 = 2 << 20;

/// The same once bytes are read for this connection alone: these are held until the peer has
/// acknowledged them.
pub(super) const SEND_WINDOW_READ: u64 = 512 << 10;

/// The least of both, however little the path takes: a turn's worth.
pub(super) const SEND_WINDOW_MIN: u64 = 64 << 10;

/// Datagrams that `--delay`, which is for tests, holds back in a worker: 6 MB of full ones.
pub(super) const DELAYED_MAX: usize = 4_096;

/// Packets that clients are asked to leave unacknowledged, if they know how
/// (draft-ietf-quic-ack-frequency); otherwise they acknowledge every second one, and each
/// acknowledgement costs the server about as much as three packets that it sends.
pub(super) const UNACKNOWLEDGED_MAX: u32 = 9;

/// Handshakes that wait for time to begin, per worker.
pub(super) const INCOMING_MAX: usize = 256;

/// Bytes of datagrams held for each of these.
pub(super) const INCOMING_HELD_MAX: u64 = 16 << 10;

/// The same for all of them together.
pub(super) const INCOMING_HELD_ALL_MAX: u64 = 1 << 20;

/// With so many handshakes under way, a client has to show first that it receives at its address
/// (RFC 9000 section 8.1.2).
pub(super) const HANDSHAKES_UNVALIDATED_MAX: usize = 128;

/// Bytes of a connection's datagrams that leave in one turn before others have theirs: four trains.
pub(super) const SENT_PER_TURN_MAX: usize = 256 << 10;

/// Datagrams in a train: more than the kernel takes (`UDP_MAX_SEGMENTS` of older kernels).
pub(super) const TRAIN_MAX: usize = 64;

/// Bytes in a train: what fits an IPv4 packet. The kernel drops longer ones whole.
pub(super) const TRAIN_LEN_MAX: usize = 65_507;

/// A file's bytes read at a time for a stream.
pub(super) const READ_MAX: u64 = 128 << 10;

/// The same while other answers are under way: it is held as long as the peer lets that stream wait.
pub(super) const READ_AMONG_OTHERS_MAX: u64 = 16 << 10;

/// Bytes read for a connection that are held: its window of them on their way, and what each of its
/// streams has at hand.
pub(super) const READ_HELD_MAX: u64 = 2 << 20;

/// Bytes of content that the library is given as a piece: it takes others for them when all of it is
/// acknowledged.
pub(super) const PIECE_MAX: usize = 64 << 10;

/// Reads that wait for the disk at once, per connection.
pub(super) const READS_MAX: u32 = 4;

/// Bytes read of a stream at a time.
pub(super) const READ_AT_ONCE_MAX: usize = 16 << 10;

/// How long after a stop was announced requests are still taken, at most, milliseconds: the two round
/// trips that the announcement and what crosses it need.
pub(super) const END_AFTER_MS: u64 = 1_000;

/// Bytes of a datagram without content: header, acknowledgements, tag. What a peer is sent beyond
/// that is what it takes of its answers.
pub(super) const BARE_MAX: usize = 64;

/// Bytes that a client's move to another address has sent to addresses which have not answered yet: a
/// datagram of the longest kind to the new one, and what asks the old one whether it is still there.
pub(super) const VENTURED_BY_MOVE: u64 = 1_500 + 1_200;
