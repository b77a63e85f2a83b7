//! The bounds of importing, each with its reason: what is imported may come from anywhere.

/// Files of one import. kawipiko has room for as many.
pub(super) const FILES_MAX: u64 = 1 << 24;

/// Bytes of all files that may come out of a small archive.
pub(super) const BYTES_FREE: u64 = 1 << 30;

/// Beyond that, bytes of files per byte of the archive. Pages become ten times smaller at most;
/// what promises more is made to fill disks.
pub(super) const EXPANSION_MAX: u64 = 100;

/// Bytes of a path: what a server takes.
pub(super) const PATH_LEN_MAX: usize = 4096;

/// Bytes of a key or a metadata record of kawipiko; both are a path and a few words.
pub(super) const RECORD_LEN_MAX: u32 = 64 << 10;

/// Things that are left out and named; more are only counted.
pub(super) const NAMED_MAX: usize = 100;

/// Bytes of a file `_headers` that says which types files without a suffix have: for some ten
/// thousand files, within what a rules file may have.
pub(super) const HEADERS_LEN_MAX: usize = 2 << 20;
