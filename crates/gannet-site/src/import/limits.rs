//! The limits of importing, each with its reason: archives may come from untrusted sources.

/// Files per import; kawipiko's own maximum.
pub(super) const FILES_MAX: u64 = 1 << 24;

/// Total length in bytes that any archive, however small, may unpack to.
pub(super) const BYTES_FREE: u64 = 1 << 30;

/// Beyond that, unpacked bytes per byte of the archive. Pages compress to a tenth at best; higher
/// ratios are made to fill disks.
pub(super) const EXPANSION_MAX: u64 = 100;

/// Bytes of a path; the server's limit.
pub(super) const PATH_LEN_MAX: usize = 4096;

/// Bytes of a key or a metadata record of kawipiko; both are a path and a few words.
pub(super) const RECORD_LEN_MAX: u32 = 64 << 10;

/// Skipped entries named; further ones are only counted.
pub(super) const NAMED_MAX: usize = 100;

/// Bytes of a `_headers` file with the types of files without a suffix: enough for some ten
/// thousand files, and within the limit of a rules file.
pub(super) const HEADERS_LEN_MAX: usize = 2 << 20;
