//! HTTP/1.0 and HTTP/1.1 (RFC 9112), the server's side, as a machine without I/O.

pub mod chunked;
pub mod connection;
pub mod error;
pub mod head;
pub mod limits;
mod write;

pub use connection::{Connection, Event, Step};
pub use error::{Rejection, Why};
