//! Bounds on what an HTTP/3 peer may send or make this server keep, each with its reason. Those on
//! field sections are in [`crate::binary::limits`].

use crate::binary::limits::EARLY_PRIORITIES_MAX;

/// Maximum concurrent request streams, as QUIC must grant them: RFC 9114 section 6.1 recommends at
/// least 100, and each permitted stream can take memory.
pub const REQUEST_STREAMS_MAX: u64 = 100;

/// Maximum concurrent unidirectional streams, as QUIC must grant them: three are needed, and RFC
/// 9114 section 6.2 recommends room for extensions.
pub const UNI_STREAMS_MAX: usize = 8;

/// Maximum unidirectional streams over the life of a connection: a client needs three, and may open
/// a few of reserved types (RFC 9114 section 6.2.3), each of which costs a STOP_SENDING.
pub const UNI_STREAMS_TOTAL_MAX: u32 = 100;

/// Maximum payload of a control stream frame, which is buffered until it is complete, in bytes:
/// settings and priorities take a few dozen. Frames of unknown types are not buffered.
pub const CONTROL_FRAME_MAX: u64 = 1024;

/// Maximum settings in a SETTINGS frame: five are defined, and reserved ones are ignored. Each is
/// compared with all others to detect repetition.
pub const SETTINGS_MAX: usize = 64;

/// Payload bytes of a frame of an unknown type that one charge covers: the maximum of an HTTP/2
/// frame.
pub const IGNORED_PER_CHARGE: u64 = 16_384;

/// A DATA frame with less content than this, in bytes, is charged for: parsing a request sent byte
/// by byte is expensive.
pub const SMALL_DATA: u64 = 64;

/// Content of one request that is read and discarded, in bytes. Beyond it the stream need not be
/// read; it is stopped when the response is complete.
pub const CONTENT_MAX: u64 = 65_536;

/// Maximum memory that a connection holds beyond its own size, in bytes, without its requests: a
/// frame of the control stream, the table of unidirectional streams, early priorities. Doubled,
/// because a growing vector doubles its capacity.
pub const MEMORY_MAX: usize =
    2 * (CONTROL_FRAME_MAX as usize + UNI_STREAMS_MAX * 64 + EARLY_PRIORITIES_MAX * 16);

/// Maximum memory that a request stream holds beyond its own size, in bytes: an incomplete field
/// section.
pub const REQUEST_MEMORY_MAX: usize = crate::binary::limits::FIELD_BLOCK_MAX;

/// Maximum memory for the incomplete field sections of all requests of a connection, in bytes:
/// enough for a client that sends 100 requests with large cookies at once.
pub const SECTIONS_MAX: usize = 256 << 10;

/// Maximum memory that a connection and its requests hold together beyond their own size, in bytes.
/// One section may exceed [`SECTIONS_MAX`] before the check that ends the connection.
pub const HELD_MAX: usize = MEMORY_MAX + SECTIONS_MAX + REQUEST_MEMORY_MAX;
