//! Field compression for HTTP/2, HPACK (RFC 7541).
//!
//! [`decoder`] reads field blocks with a bounded dynamic table, into the line form that
//! [`crate::semantics::fields`] reads. [`encoder`] writes stateless ones: static table and literals
//! without indexing, so that a block can be rendered once and sent on any connection, at any time
//! ([`ready`]).

pub mod decoder;
mod dynamic_table;
pub mod encoder;
pub mod ready;
pub(crate) mod static_table;

pub use decoder::Decoder;
