//! Bounds of a pointer, so that all of its lines and a signature fit into [`POINTER_LEN_MAX`].

/// Bytes of a pointer with its signature. A reader never has to read more, and a file of this
/// length is written by one call.
pub const POINTER_LEN_MAX: usize = 1024;

/// The highest serial: 12 digits, one pointer a second for 30,000 years.
pub const SERIAL_MAX: u64 = 999_999_999_999;

/// The latest moment in a pointer: 9999-12-31 23:59:59, the last that a timestamp can name.
pub const TIME_MAX: u64 = 253_402_300_799;

/// The longest duration in a pointer, in seconds: ten years.
pub const DURATION_MAX_S: u64 = 3650 * 86_400;

/// Stages of an activation.
pub const STAGES_MAX: usize = 4;

/// Void releases that a pointer names. Their files are removed, so older ones need no mention.
pub const VOID_MAX: usize = 6;

/// Bytes of a note.
pub const NOTE_LEN_MAX: usize = 100;

/// Bytes of the name of a publisher.
pub const PUBLISHER_LEN_MAX: usize = 32;

/// Releases that `keep` can name.
pub const KEEP_MAX: u32 = 1000;

/// Entries of the log that are followed back from the pointer in force, to find what is kept and
/// what may be removed: more than [`KEEP_MAX`] releases, each of them published four times.
pub const FOLLOWED_MAX: usize = 4096;

/// How long a copy of a store may be behind it, in seconds: a server that follows the copy may still
/// activate a release that was superseded that long ago.
pub const COPY_LAG_S: u64 = 600;

/// By how many bytes two files of one release may differ in length: one is signed, or its signature
/// has a longer comment. A file of another length is not read to find out.
pub const SIGNATURES_DIFFER_MAX: u64 = 64 << 10;
