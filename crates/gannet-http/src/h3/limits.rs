//! Bounds on what an HTTP/3 peer may send or make us keep, each with its reason. Those on field
//! sections are in [`crate::binary::limits`].

use crate::binary::limits::EARLY_PRIORITIES_MAX;

/// The most request streams open at once, to be granted by QUIC: RFC 9114 section 6.1 asks for at
/// least 100, and each one more costs memory whether it is used or not.
pub const REQUEST_STREAMS_MAX: u64 = 100;

/// The most unidirectional streams open at once, to be granted by QUIC: three are needed, RFC 9114
/// section 6.2 asks for room for more.
pub const UNI_STREAMS_MAX: usize = 8;

/// The most unidirectional streams over the life of a connection: a client has three, and a few of
/// reserved types that keep servers honest (RFC 9114 section 6.2.3). Each costs a STOP_SENDING.
pub const UNI_STREAMS_TOTAL_MAX: u32 = 100;

/// The longest frame of the control stream that is kept until it is complete, in bytes: settings
/// and priorities take a few dozen. Frames of unknown types are not kept.
pub const CONTROL_FRAME_MAX: u64 = 1024;

/// The most settings of a SETTINGS frame: there are five kinds, and a few reserved ones that are
/// ignored. All are compared with each other to find repeated ones.
pub const SETTINGS_MAX: usize = 64;

/// Payload of a frame of an unknown type that one charge pays for: what a whole frame of HTTP/2 has
/// at the most.
pub const IGNORED_PER_CHARGE: u64 = 16_384;

/// Content of a DATA frame below this is small, and charged for: sending a request byte by byte is
/// the peer's choice and our cost.
pub const SMALL_DATA: u64 = 64;

/// Content of one request that is read and discarded, in bytes; after it the stream need not be
/// read until the response is complete, and then it is stopped.
pub const CONTENT_MAX: u64 = 65_536;

/// The most memory that a connection holds beyond its own size, in bytes, requests aside: a frame
/// of the control stream, the table of unidirectional streams, priorities that came early. Twice,
/// as vectors grow.
pub const MEMORY_MAX: usize =
    2 * (CONTROL_FRAME_MAX as usize + UNI_STREAMS_MAX * 64 + EARLY_PRIORITIES_MAX * 16);

/// The most memory that a request stream holds beyond its own size, in bytes: a field section that
/// is not complete.
pub const REQUEST_MEMORY_MAX: usize = crate::binary::limits::FIELD_BLOCK_MAX;

/// The most memory that all requests of a connection take for field sections that are not complete,
/// in bytes: as much as a client that begins 100 requests at once, each with large cookies, may have on
/// the way.
pub const SECTIONS_MAX: usize = 256 << 10;

/// What a connection and its requests hold together, in bytes, beyond their own size: what goes beyond
/// [`SECTIONS_MAX`] ends the connection.
pub const HELD_MAX: usize = MEMORY_MAX + SECTIONS_MAX + REQUEST_MEMORY_MAX;
