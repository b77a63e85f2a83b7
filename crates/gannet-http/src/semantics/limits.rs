//! Bounds on what semantics code keeps or loops over, each with its reason.

/// The most ranges of one `Range` field that are honoured; a field with more is ignored and the
/// whole representation is sent. Readers of documents ask for a handful; very many ranges are how
/// servers were once exhausted (RFC 9110 section 14.2 allows ignoring them).
pub const RANGES_MAX: usize = 16;

/// The longest decoded path in bytes, as Linux's `PATH_MAX`: nothing longer can name a file.
pub const PATH_MAX: usize = 4096;

/// The longest block of ready fields in bytes. Offsets into it are 16 bits wide and it goes out
/// with every response, so a longer one is a mistake of configuration.
pub const READY_BLOCK_MAX: usize = 16 * 1024;

/// The most field lines of a request. Browsers send 10 to 20, chains of proxies add a few each.
pub const FIELD_LINES_MAX: u16 = 100;
