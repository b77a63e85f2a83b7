//! Field compression for HTTP/2, HPACK (RFC 7541).
//!
//! [`decoder`] reads field blocks with a bounded dynamic table, into the line form that
//! [`crate::semantics::fields`] knows. [`encoder`] writes stateless ones: static table and
//! literals without indexing, so that a block can be made once and sent on any connection, at any
//! time ([`ready`]).

pub mod decoder;
mod dynamic_table;
pub mod encoder;
pub mod huffman;
pub mod integer;
pub(crate) mod line;
pub mod ready;
mod static_table;

pub use decoder::Decoder;

/// Why a field block cannot be decoded.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum HpackError {
    /// The block ends within a field.
    Truncated,
    /// An integer beyond 2^28 or with needless bytes without end.
    Integer,
    /// An index of 0, or beyond both tables.
    Index,
    /// A string that is not Huffman-coded as it says.
    Huffman,
    /// A table size update that is not at the beginning, is one too many, or is above the limit.
    SizeUpdate,
    /// More was decoded than anybody may want: see [`super::limits::FIELD_SECTION_DECODED_MAX`].
    TooLarge,
}
