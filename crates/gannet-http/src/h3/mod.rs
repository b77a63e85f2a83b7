//! The server side of HTTP/3 (RFC 9114), as a state machine without I/O and without QUIC.
//!
//! The caller passes in the bytes of QUIC's streams. [`connection`] handles what concerns the whole
//! connection: unidirectional streams, settings, shutdown. [`request`] handles one request and its
//! response, on a bidirectional stream. [`qpack`] is field compression (RFC 9204), without a
//! dynamic table. [`crate::binary`] has what HTTP/2 and HTTP/3 share.

pub mod connection;
pub mod error;
pub mod frame;
pub mod limits;
pub mod qpack;
pub mod request;

mod settings;
mod uni;

pub use connection::Connection;
pub use error::{ConnectionError, ErrorCode, Fault, StreamError, Why};
pub use request::{Event, RequestStream};

/// Identifies a stream of a QUIC connection: below 2^62, never reused. The lowest bit is 0 if the
/// client opened it; the next one is 1 if it is unidirectional (RFC 9000 section 2.1).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StreamId(pub u64);

impl StreamId {
    /// Whether it carries a request: a bidirectional stream that the client opened.
    #[must_use]
    pub const fn is_request(self) -> bool {
        self.0 & 3 == 0
    }
}
