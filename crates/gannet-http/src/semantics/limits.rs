//! Bounds on what semantics code holds or loops over, each with its reason.

/// The most ranges of one `Range` field that are honoured; a field with more is ignored and the
/// whole representation is sent. Programs that update a file from its previous version request
/// some dozens at once. Ranges that overlap or touch are joined, so a response has at most the
/// bytes of the file and a head of some 150 bytes for each range.
pub const RANGES_MAX: usize = 256;

/// The longest decoded path in bytes, as Linux's `PATH_MAX`: no longer one can name a file.
pub const PATH_MAX: usize = 4096;

/// The longest head of a response in bytes, in every version, as it is sent: HPACK and QPACK included.
/// A client that reads nothing has such heads held. Browsers accept 256 KiB, Node.js 16 KiB.
pub const RESPONSE_HEAD_MAX: usize = 64 * 1024;

/// The most bytes of the fields that the operator has added to every response.
pub const OPERATOR_FIELDS_LEN_MAX: usize = 8 * 1024;

/// The longest block of ready fields in bytes. As HPACK, which takes more for long values, it fits into
/// an archive's block of 32 KiB, and offsets into it into 16 bits.
pub const READY_BLOCK_MAX: usize = 31 * 1024;

/// The most fields of a request: lines, but the crumbs of a cookie in HTTP/2 and 3 are one field.
/// Browsers send 10 to 20, chains of proxies add a few each, gateways of some clouds a hundred. The
/// limits in bytes bound the memory; this one bounds the loops over lines.
pub const FIELD_LINES_MAX: u16 = 256;
