//! The parts shared by the binary versions of HTTP: HTTP/2 and HTTP/3.
//!
//! Strings and integers of field compression ([`integer`], [`huffman`]), the rules that make a
//! decoded field section a request, priorities (RFC 9218, [`priority`]), and the budget for the
//! work that a peer can cause ([`budget`]).

pub mod budget;
pub mod huffman;
pub mod integer;
pub mod limits;
pub mod priority;
pub mod rejection;

pub(crate) mod line;
pub(crate) mod request;
pub(crate) mod static_table;
pub(crate) mod string;

/// Why a field block (HPACK, RFC 7541) or a field section (QPACK, RFC 9204) cannot be decoded.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum CodingError {
    /// It ends within a field.
    Truncated,
    /// An integer beyond 2^28, or with endless padding bytes.
    Integer,
    /// An index that is in no table.
    Index,
    /// A string that is not valid Huffman code although marked as such.
    Huffman,
    /// HPACK: a table size update that is not at the beginning, is one too many, or exceeds the
    /// limit.
    SizeUpdate,
    /// QPACK: it refers to a dynamic table, and there is none.
    Dynamic,
    /// More was decoded than any request needs: see [`limits::FIELD_SECTION_DECODED_MAX`].
    TooLarge,
}
