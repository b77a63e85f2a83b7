//! Bounds of the HTTP/3 transport, each with its reason.

use crate::bounds::tls::CLIENT_CHAIN_BYTES_MAX;

/// Concurrent requests per connection: RFC 9114 section 6.1 recommends at least 100, and each
/// permitted request can take memory.
pub(crate) const REQUESTS_MAX: u32 = 100;

/// Concurrent unidirectional streams of a peer: the control stream, two for QPACK, and a few of
/// extensions (RFC 9114 section 6.2).
pub(crate) const UNI_STREAMS_MAX: u32 = 8;

/// QUIC's flow-control window of a stream: the bytes that a peer may send on it before this server
/// has read them. Twice the longest encoded field section that is accepted
/// ([`FIELD_BLOCK_MAX`](gannet_http::binary::limits::FIELD_BLOCK_MAX)), so a request head
/// is never blocked by it; more would only speed up uploads, whose content is dropped.
pub(crate) const STREAM_WINDOW: u32 = 64 << 10;

/// The same for all streams of a connection together, in bytes.
pub(crate) const CONNECTION_WINDOW: u32 = 256 << 10;

/// The initial congestion window, in bytes, sent paced: 32 datagrams, as in the QUIC of Chromium
/// and of Caddy. RFC 9002 section 7.2 recommends ten. See decision 11.
pub(crate) const INITIAL_WINDOW: u64 = 32 * 1_452;

/// Maximum bytes that the library holds for a connection until the peer has acknowledged them, as
/// long as all content comes from shared memory or was short enough to be copied.
pub(crate) const SEND_WINDOW: u64 = 2 << 20;

/// The same once content is read from disk for this connection alone: here every byte in flight
/// takes memory of its own.
pub(crate) const SEND_WINDOW_READ: u64 = 512 << 10;

/// Minimum of that window, however small the congestion window is, in bytes: about one train.
pub(crate) const SEND_WINDOW_MIN: u64 = 64 << 10;

/// In how many portions a second content is passed on to a client whose rate is limited: few timers,
/// and no portion that anyone would notice.
pub(crate) const PACED_PER_SECOND: u64 = 10;

/// The smallest portion, in bytes: about a datagram, whatever the rate.
pub(crate) const PACED_MIN: u64 = PACKET_LEN;

/// Maximum datagrams that `--delay`, an option for tests, holds back per worker; more are dropped.
/// About 6 MB if all are full.
pub(crate) const DELAYED_MAX: usize = 4_096;

/// Packets that a client is asked to leave unacknowledged at a time, if it supports
/// draft-ietf-quic-ack-frequency. Other clients acknowledge every second packet, and each
/// acknowledgement costs this server about as much as sending three packets.
pub(crate) const UNACKNOWLEDGED_MAX: u32 = 9;

/// Clients per worker whose handshake waits for budget; the library refuses more.
pub(crate) const INCOMING_MAX: usize = 256;

/// Bytes of datagrams held for each of them.
pub(crate) const INCOMING_HELD_MAX: u64 = 16 << 10;

/// The same for all of them together, in bytes.
pub(crate) const INCOMING_HELD_ALL_MAX: u64 = 1 << 20;

/// Once this many handshakes of a worker are in progress or waiting, a new client must first
/// validate its address: it gets a Retry packet (RFC 9000 section 8.1.2).
pub(crate) const HANDSHAKES_UNVALIDATED_MAX: usize = 128;

/// The same, as a part of the connections that a worker may have: an eighth. Their addresses may be
/// spoofed, and their places are missing to others.
pub(crate) const HANDSHAKES_UNVALIDATED_PART: usize = 8;

/// Bytes that a connection sends in one turn before the others have theirs: four trains.
pub(crate) const SENT_PER_TURN_MAX: usize = 256 << 10;

/// Maximum datagrams in a train, which one system call sends: as many as every kernel can segment,
/// `UDP_MAX_SEGMENTS` before Linux 6.9.
pub(crate) const TRAIN_MAX: usize = 64;

/// Maximum bytes in a train: the largest UDP payload of an IPv4 packet. The kernel refuses longer
/// trains.
pub(crate) const TRAIN_LEN_MAX: usize = 65_507;

/// Trains of one datagram that leave together, by one call: at most 46 KB for each address of a worker. While its
/// socket is full, one longer train waits behind them.
pub(crate) const GATHERED_MAX: usize = 32;

/// Bytes of a file per read, if the connection has only one unfinished response.
pub(crate) const READ_MAX: u64 = 128 << 10;

/// The same while other responses are unfinished: a peer that stops reading a stream makes this
/// server hold what was read for it.
pub(crate) const READ_AMONG_OTHERS_MAX: u64 = 16 << 10;

/// Maximum bytes held that were read for one connection: those in flight, and those of each stream
/// that wait for the library.
pub(crate) const READ_HELD_MAX: u64 = 2 << 20;

/// Maximum bytes of content passed to the library as one piece. It frees a piece, and so accepts
/// more content, only when the whole piece is acknowledged.
pub(crate) const PIECE_MAX: usize = 64 << 10;

/// Concurrent disk reads of content per connection.
pub(crate) const READS_MAX: u32 = 4;

/// Reads for one connection that complete at once, from the page cache, in one turn. After them the
/// connection waits for its next turn, so that a client with a fast path does not delay the others.
pub(crate) const READS_PER_TURN_MAX: u32 = 4;

/// Maximum bytes of a stream that are taken from the library and parsed at a time.
pub(crate) const READ_AT_ONCE_MAX: usize = 16 << 10;

/// After the first GOAWAY, new requests are accepted for two round trips, which the announcement
/// and the requests that cross it need; at most this long, in milliseconds.
pub(crate) const END_AFTER_MS: u64 = 1_000;

/// Bytes of a datagram that are not content: header, acknowledgements, authentication tag. Only
/// bytes beyond these count as progress of a response.
pub(crate) const BARE_MAX: usize = 64;

/// Bytes of the longest datagram that is sent: the largest probe of a path's MTU.
pub(crate) const DATAGRAM_MAX: u16 = 1_452;

/// Bytes that must be left of the limit for unvalidated addresses to permit a migration: two
/// datagrams of full length, of which the first has the path challenge (RFC 9000 section 9.3).
pub(crate) const VENTURED_BY_MOVE: u64 = 2 * DATAGRAM_MAX as u64;

/// Bytes that the library holds for an idle connection, with the state of all permitted streams:
/// measured.
const CONNECTION_HELD: u64 = 26 << 10;

/// Bytes of bookkeeping per unread STREAM frame: an entry of a heap whose capacity may be twice its
/// length.
const FRAME_HELD: u64 = 2 * 56;

/// Maximum unread STREAM frames of a connection; more end it. Those of uploads and of heads that
/// arrive in any order have 16 bytes at least before this is reached.
pub(crate) const FRAMES_MAX: u64 = CONNECTION_WINDOW as u64 / 16;

/// Datagrams of a connection after which its unread frames are counted.
pub(crate) const DATAGRAMS_UNCHECKED_MAX: u32 = 16;

/// Maximum bytes of a datagram, which an unread frame in it keeps in memory: the announced
/// `max_udp_payload_size`.
const RECEIVED_MAX: u64 = 1_472;

/// Maximum bytes of datagrams kept in memory by unread frames: the library copies the frames of a
/// stream together once 32 KiB, or one and a half times their bytes, are wasted.
const RECEIVED_HELD_MAX: u64 =
    (REQUESTS_MAX + UNI_STREAMS_MAX) as u64 * (32 << 10) + CONNECTION_WINDOW as u64 * 5 / 2;

/// Bytes of bookkeeping per packet that is not acknowledged.
const PACKET_HELD: u64 = 256;

/// Bytes of such a packet: the smallest MTU of QUIC.
const PACKET_LEN: u64 = 1_200;

/// The maximum of [`held`], with the client's certificates.
pub(crate) const TRANSPORT_HELD_MAX: u64 =
    held(FRAMES_MAX, SEND_WINDOW) + CLIENT_CHAIN_BYTES_MAX as u64;

/// Upper bound of the bytes that the library holds for a connection with this many unread STREAM
/// frames and unacknowledged bytes, without the content that it sends.
pub(crate) const fn held(frames: u64, sent: u64) -> u64 {
    let frames = if frames < FRAMES_MAX {
        frames
    } else {
        FRAMES_MAX
    };
    let sent = if sent < SEND_WINDOW {
        sent
    } else {
        SEND_WINDOW
    };
    let received = frames * RECEIVED_MAX;
    let received = if received < RECEIVED_HELD_MAX {
        received
    } else {
        RECEIVED_HELD_MAX
    };
    CONNECTION_HELD + frames * FRAME_HELD + received + sent.div_ceil(PACKET_LEN) * PACKET_HELD
}
