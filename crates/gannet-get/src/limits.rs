//! Bounds of a download, each with its reason.

/// Concurrent connections: with more, this machine would be the bottleneck, not the server.
pub const CONNECTIONS_MAX: usize = 1024;

/// Bytes of a response head, or of a field block: several times what servers send.
pub(super) const HEAD_MAX: usize = 64 << 10;

/// Redirections followed per URL; about as many as browsers follow.
pub(super) const REDIRECTS_MAX: usize = 10;

/// Bytes per read: large enough that system calls cost little compared with copying, and small
/// enough to stay in the second-level cache until used.
pub(super) const READ_LEN: usize = 256 << 10;

/// Bytes discarded per call: they are not copied, so that only the number of calls matters.
pub(super) const DISCARD_LEN: usize = 1 << 20;

/// Seconds without a byte received before a download fails.
pub(super) const SILENCE_S: u64 = 30;

/// Seconds without any answer over UDP: a client has sent its first datagram four times by then.
pub(super) const UDP_ANSWER_S: u64 = 10;

/// Interim responses (1xx) before the final one.
pub(super) const INTERIM_MAX: usize = 16;

/// States of the TLS machine without a byte of input: a handshake has fewer than ten, and each
/// record of a full buffer has one.
pub(super) const TLS_STATES_MAX: usize = 1 << 20;

/// Frames of HTTP/2 or 3 without content, before a response's head or since the last content: a
/// server that sends more is rejected.
pub(super) const FRAMES_IDLE_MAX: usize = 1024;

/// Bytes of the state file of a partial download: an entity tag, and at most 63 bytes per
/// connection.
pub(super) const TAG_LEN_MAX: u64 = 256 << 10;

/// Maximum length of a received datagram, in bytes.
pub(super) const DATAGRAM_MAX: usize = 65_535;

/// Maximum datagrams received before the connection sends.
pub(super) const DATAGRAMS_AT_ONCE: usize = 64;

/// QUIC's flow-control window, in bytes: enough for 1 Gbit/s with a round trip of an eighth of a
/// second.
pub(super) const QUIC_WINDOW: u32 = 16 << 20;

/// Socket receive buffer, in bytes; the kernel may permit less.
pub(super) const SOCKET_BUFFER: usize = 2 << 20;
