//! Bounds on what semantics code holds or loops over, each with its reason.

/// The most ranges of one `Range` field that are honoured; a field with more is ignored and the
/// whole representation is sent. Programs that update a file from its previous version request
/// some dozens at once. Ranges that overlap or touch are joined, so a response has at most the
/// bytes of the file and a head of some 150 bytes for each range.
pub const RANGES_MAX: usize = 256;

/// The longest decoded path in bytes, as Linux's `PATH_MAX`: no longer one can name a file.
pub const PATH_MAX: usize = 4096;

/// The longest block of ready fields in bytes. Offsets into it are 16 bits wide and it is sent with
/// every response, so a longer one is a configuration error.
pub const READY_BLOCK_MAX: usize = 16 * 1024;

/// The most fields of a request: lines, but the crumbs of a cookie in HTTP/2 and 3 are one field.
/// Browsers send 10 to 20, chains of proxies add a few each, gateways of some clouds a hundred. The
/// limits in bytes bound the memory; this one bounds the loops over lines.
pub const FIELD_LINES_MAX: u16 = 256;
