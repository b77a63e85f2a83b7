//! HTTP/1.0 and HTTP/1.1 (RFC 9112), the server side, as a machine without I/O.
//!
//! [`connection`] has the machine, its states and the order of calls.

mod chunked;
pub mod connection;
pub mod error;
mod framing;
mod head;
pub mod limits;
pub(crate) mod target;
mod write;

pub use connection::{Connection, Event, Step};
pub use error::{Rejection, Why};
pub use target::is_authority;
