//! Bounds on what an HTTP/1 peer may send, each with its reason; [`crate::semantics::limits`]
//! bounds the number of field lines for all versions.

/// The longest request line in bytes, including its CRLF. RFC 9112 section 3 recommends at least
/// 8000.
pub const REQUEST_LINE_MAX: usize = 8 * 1024;

/// The longest field section in bytes, including the empty line that ends it. Browsers stay below 4
/// KiB without cookies and 8 KiB with many; twice that leaves room for tokens added by proxies.
pub const FIELD_SECTION_MAX: usize = 16 * 1024;

/// The most bytes of a head that a caller has to keep: an empty line, request line, field section.
pub const HEAD_MAX: usize = 2 + REQUEST_LINE_MAX + FIELD_SECTION_MAX;

/// The most bytes of request content, with its chunk framing, that are read and discarded to keep
/// a connection. There is no reason to send content to a static server; forms and beacons sent by
/// mistake are small, and a new connection is cheaper than reading more.
pub const DISCARD_MAX: u64 = 64 * 1024;
