//! Bounds on what an HTTP/2 peer may send or make us hold, each with its reason.

use super::frame::FRAME_HEADER_LEN;
use crate::binary::limits::FIELD_BLOCK_MAX;

/// The longest frame payload that is accepted: SETTINGS_MAX_FRAME_SIZE at its initial value, the
/// lowest that RFC 9113 section 4.2 allows. Requests without content need no more.
pub const FRAME_PAYLOAD_MAX: u32 = 16_384;

/// The most input bytes that a caller has to keep for another call: one frame.
pub const INPUT_MAX: usize = FRAME_HEADER_LEN + FRAME_PAYLOAD_MAX as usize;

/// The most streams open at once: SETTINGS_MAX_CONCURRENT_STREAMS. RFC 9113 section 5.1.2
/// recommends at least 100; browsers use no more.
pub const STREAMS_MAX: u32 = 128;

/// The most CONTINUATION frames of one field block. With frames of 16 KiB two are enough; only test
/// suites send shorter fragments.
pub const CONTINUATIONS_MAX: u32 = 8;

/// The size of the decoder's dynamic table: SETTINGS_HEADER_TABLE_SIZE at its initial value.
pub const DYNAMIC_TABLE_MAX: u32 = 4096;

/// Request content that may be in flight on one stream: its window, which is never replenished, so
/// this is also the most content of one request that is read and discarded.
pub const STREAM_WINDOW: u32 = 65_535;

/// Request content that may be in flight on the connection: replenished as it is discarded, so that
/// streams do not block each other.
pub const CONNECTION_WINDOW: u32 = 65_535;

/// Request content above which a stream is assumed not to end within its window. Some clients stop
/// short of the whole window, so this is three quarters of it.
pub const CONTENT_UNWELCOME: u32 = 49_152;

/// How long a stream lasts whose response is complete and whose request cannot end within its
/// window, in milliseconds without progress; then RST_STREAM (NO_ERROR) tells the client that the
/// rest is not wanted (RFC 9113 section 8.1). Not at once: there are clients in use (curl 7.88)
/// that report an error instead of the response if they read both at once.
pub const CONTENT_LINGER_MS: u64 = 500;

/// Bytes of control frames waiting to be sent at which reading stops. Every reply to a frame is at
/// most 17 bytes; a peer that does not read cannot make us hold more.
pub const CONTROL_MAX: usize = 4096;

/// The most settings of one SETTINGS frame that are free of charge; ten are defined.
pub const SETTINGS_FREE: usize = 16;

/// The most closed streams that are remembered, to distinguish late frames from invalid ones.
pub const CLOSED_MAX: usize = 64;

/// Also the most content in one DATA frame: what every peer accepts.
pub use crate::binary::limits::QUANTUM;

/// A DATA frame shorter than this, because of the peer's windows and not because the content ends,
/// is charged: byte-by-byte delivery is the peer's choice and our cost.
pub const SHORT_FRAME: u32 = 512;

/// How long a peer has to acknowledge the PING that follows the first GOAWAY of a drain, in
/// milliseconds; then the second GOAWAY is sent anyway.
pub const DRAIN_PING_MS: u64 = 1_000;

/// The most memory that a connection holds beyond its own size, in bytes: the arriving field block
/// (twice its bound, as a vector grows), tables of streams, the dynamic table, replies.
pub const MEMORY_MAX: usize = 2 * FIELD_BLOCK_MAX + 64 * 1024;
