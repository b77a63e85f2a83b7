//! Bounds on what semantics code holds or loops over, each with its reason.

/// The most ranges of one `Range` field that are honoured; a field with more is ignored and the
/// whole representation is sent. Document viewers request a handful; very many ranges were once
/// used to exhaust servers (RFC 9110 section 14.2 allows ignoring them).
pub const RANGES_MAX: usize = 16;

/// The longest decoded path in bytes, as Linux's `PATH_MAX`: no longer one can name a file.
pub const PATH_MAX: usize = 4096;

/// The longest block of ready fields in bytes. Offsets into it are 16 bits wide and it is sent with
/// every response, so a longer one is a configuration error.
pub const READY_BLOCK_MAX: usize = 16 * 1024;

/// The most field lines of a request. Browsers send 10 to 20, chains of proxies add a few each.
pub const FIELD_LINES_MAX: u16 = 100;
