//! HTTP/3 (RFC 9114), the server's side, as a machine without I/O and without QUIC.
//!
//! QUIC gives streams; this says what their bytes mean. [`connection`] has what concerns the whole
//! connection: unidirectional streams, settings, the end. [`request`] has one request and its
//! response, on a bidirectional stream. [`qpack`] is field compression (RFC 9204), without a dynamic
//! table. What HTTP/2 has as well is in [`crate::binary`].

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

/// Identifies a stream of a QUIC connection: below 2^62, never used twice. The lowest bit says who
/// opened it (0: the client), the next one whether it is unidirectional (RFC 9000 section 2.1).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StreamId(pub u64);

impl StreamId {
    /// Whether it carries a request: a bidirectional stream that the client opened.
    #[must_use]
    pub const fn is_request(self) -> bool {
        self.0 & 3 == 0
    }
}
