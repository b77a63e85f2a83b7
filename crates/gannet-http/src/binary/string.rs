//! Strings of field compression (RFC 7541 section 5.2, RFC 9204 section 4.1.2): a bit that marks
//! Huffman coding, a length with a prefix, and bytes.

use super::{CodingError, huffman, integer};

/// Appends the string at the beginning of `input`, whose length has a prefix of `prefix_len` bits.
#[inline]
pub(crate) fn read_next(
    input: &mut &[u8],
    prefix_len: u8,
    out: &mut Vec<u8>,
) -> Result<(), CodingError> {
    let (&first, rest) = input.split_first().ok_or(CodingError::Truncated)?;
    *input = rest;
    read(first, prefix_len, input, out)
}

/// Appends a string whose first byte is `first`: the bit before the prefix of its length marks
/// Huffman coding.
#[inline]
pub(crate) fn read(
    first: u8,
    prefix_len: u8,
    input: &mut &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CodingError> {
    let len = integer::decode(first, prefix_len, input)?;
    let (string, rest) = input
        .split_at_checked(len as usize)
        .ok_or(CodingError::Truncated)?;
    *input = rest;
    if first & 1 << prefix_len != 0 {
        return huffman::decode(string, out);
    }
    out.extend_from_slice(string);
    Ok(())
}

/// Appends a string, Huffman-coded if that is shorter. `first` holds the bits before that mark,
/// followed by zeros.
pub(crate) fn write(plain: &[u8], first: u8, prefix_len: u8, out: &mut Vec<u8>) {
    let coded_len = huffman::coded_len(plain);
    if coded_len < plain.len() {
        integer::encode(coded_len, first | 1 << prefix_len, prefix_len, out);
        huffman::encode(plain, out);
    } else {
        integer::encode(plain.len(), first, prefix_len, out);
        out.extend_from_slice(plain);
    }
}
