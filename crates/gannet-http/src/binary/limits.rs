//! Bounds on field sections of HTTP/2 and HTTP/3, each with its reason.

/// The largest decoded field section, counted as RFC 9113 section 6.5.2 and RFC 9114 section 4.2.2
/// count it (32 bytes per line on top of name and value): SETTINGS_MAX_HEADER_LIST_SIZE and
/// SETTINGS_MAX_FIELD_SECTION_SIZE. The same as HTTP/1's section, plus the overhead of its 256
/// lines. Larger ones are answered with 431.
pub const FIELD_SECTION_MAX: u32 = 24 * 1024;

/// Decoded size at which decoding stops. Up to here sections above [`FIELD_SECTION_MAX`] are still
/// decoded, without keeping the result: in HTTP/2 because the dynamic table must stay in step, in
/// both to learn the method. A few kilobytes of references can stand for megabytes, so there must
/// be a limit: beyond it, HTTP/2 ends the connection.
pub const FIELD_SECTION_DECODED_MAX: u32 = 4 * FIELD_SECTION_MAX;

/// The longest encoded field section in bytes: in HTTP/2 over all frames of a field block, in
/// HTTP/3 a HEADERS frame. Literals without Huffman coding are hardly longer encoded than decoded.
pub const FIELD_BLOCK_MAX: usize = 32 * 1024;

/// The most priorities kept for streams that are not open yet (RFC 9218 section 7).
pub const EARLY_PRIORITIES_MAX: usize = 32;

/// Content bytes of an incremental response before the next one of its level gets its turn: about
/// one TLS record.
pub const QUANTUM: u32 = 16_384;
