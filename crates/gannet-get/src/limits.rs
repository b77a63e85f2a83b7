//! Bounds of a download, each with its reason.

/// Connections at a time: more says nothing about a server that this machine could not hold.
pub const CONNECTIONS_MAX: usize = 1024;

/// Bytes of a response head, or of a field block: several times what servers send.
pub(super) const HEAD_MAX: usize = 64 << 10;

/// Redirections followed for one URL (as many as browsers follow, about).
pub(super) const REDIRECTS_MAX: usize = 10;

/// Bytes taken from the kernel at once: enough that calls cost nothing beside copying, and no more
/// than stays in the second-level cache until it is used.
pub(super) const READ_LEN: usize = 256 << 10;

/// Bytes thrown away at once: they are not copied, so that only the number of calls counts.
pub(super) const DISCARD_LEN: usize = 1 << 20;

/// Seconds in which nothing arrives before a download has failed.
pub(super) const SILENCE_S: u64 = 30;

/// Interim responses (1xx) before the final one.
pub(super) const INTERIM_MAX: usize = 16;

/// States of the TLS machine without a byte of input: a handshake has fewer than ten, and each
/// record of a full buffer has one.
pub(super) const TLS_STATES_MAX: usize = 1 << 20;

/// Frames of HTTP/2 for a response's head: a server that sends more of other kinds is refused.
pub(super) const FRAMES_BEFORE_HEAD_MAX: usize = 1024;

/// Bytes of the file that says what a partial download holds: an entity tag and a line of at most 63
/// bytes for each connection.
pub(super) const TAG_LEN_MAX: u64 = 256 << 10;
