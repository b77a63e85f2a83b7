//! HTTP/2 (RFC 9113), the server side, as a machine without I/O.
//!
//! [`connection`] has the machine, its states and the order of calls. [`hpack`] is field
//! compression (RFC 7541). The parts shared with HTTP/3 are in [`crate::binary`].

pub mod connection;
pub mod error;
pub mod frame;
pub mod hpack;
pub mod limits;

mod flow;
mod pace;
mod settings;
mod streams;

pub use connection::{Body, Connection, Event, PREFACE, Received, Timeouts};
pub use error::{ConnectionError, ErrorCode, Why};

/// Identifies a stream of a connection: odd, below 2^31, never used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct StreamId(pub u32);

/// A moment in nanoseconds on a monotonic clock with an arbitrary start.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Time(pub u64);

impl Time {
    /// This moment plus `ms` milliseconds, saturating.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }
}
