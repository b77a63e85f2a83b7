//! The form of a ready field block for HTTP/2: stateless HPACK (RFC 7541).

use gannet_http::semantics::response::FieldBlock;

use crate::error::Rule;
use crate::limits::FIELD_BLOCK_LEN_MAX;

/// Entries of the static table (RFC 7541 appendix A) used in this file.
mod index {
    /// The first that is not a pseudo-field.
    pub(super) const FIRST_FIELD: usize = 15;
    pub(super) const CONTENT_LENGTH: usize = 28;
    pub(super) const DATE: usize = 33;
    pub(super) const TRANSFER_ENCODING: usize = 57;
    pub(super) const LAST: usize = 61;
}

/// Checks that a block has the same meaning wherever it is sent: every field is one of the static
/// table or a literal that is not indexed, none is a pseudo-field, `content-length` comes first and
/// only there, `date` and `transfer-encoding` do not occur, and both cuts are between fields.
///
/// Strings may be Huffman-coded and are not decoded here: `gannet verify` decodes them, and
/// compares them with the lines of HTTP/1.
pub(crate) fn check(block: FieldBlock<'_>) -> Result<(), Rule> {
    let FieldBlock {
        bytes,
        length_end,
        shared_start,
        ..
    } = block;
    check_fields(bytes, Some(length_end), shared_start)
}

/// Checks common fields: like those of [`check`], without a length.
pub(crate) fn check_common(bytes: &[u8], shared_start: u16) -> Result<(), Rule> {
    check_fields(bytes, None, shared_start)
}

fn check_fields(bytes: &[u8], length_end: Option<u16>, shared_start: u16) -> Result<(), Rule> {
    if bytes.len() > FIELD_BLOCK_LEN_MAX {
        return Err(Rule::Limit);
    }
    let mut rest = bytes;
    let mut cuts_found = usize::from(length_end.is_none() && shared_start == 0);
    while !rest.is_empty() {
        let is_first = rest.len() == bytes.len() && length_end.is_some();
        let name = take_field(&mut rest).ok_or(Rule::FieldBlock)?;
        let is_allowed = match name {
            index::CONTENT_LENGTH => is_first,
            index::DATE | index::TRANSFER_ENCODING => false,
            0 | index::FIRST_FIELD..=index::LAST => !is_first,
            _ => false,
        };
        if !is_allowed {
            return Err(Rule::FieldBlock);
        }
        let at = bytes.len() - rest.len();
        if is_first && length_end.map(usize::from) != Some(at) {
            return Err(Rule::FieldBlock);
        }
        cuts_found += usize::from(at == usize::from(shared_start));
    }
    // Fields are not empty, so each position is passed once.
    if cuts_found == 1 {
        Ok(())
    } else {
        Err(Rule::FieldBlock)
    }
}

/// Takes a field off; returns the number of its name in the static table, 0 for a literal name.
fn take_field(rest: &mut &[u8]) -> Option<usize> {
    let first = *rest.first()?;
    if first & 0x80 != 0 {
        return take_integer(rest, 7).filter(|index| *index > 0);
    }
    // Literals without indexing (0000) or never indexed (0001). All others change a table.
    if first & 0xe0 != 0 {
        return None;
    }
    let name = take_integer(rest, 4)?;
    if name == 0 {
        take_string(rest)?;
    }
    take_string(rest)?;
    Some(name)
}

/// Skips a string (RFC 7541 section 5.2).
fn take_string(rest: &mut &[u8]) -> Option<()> {
    let len = take_integer(rest, 7)?;
    *rest = rest.get(len..)?;
    Some(())
}

/// Takes an integer with a prefix of this many bits (RFC 7541 section 5.1), up to about 2^21: no
/// block is that long.
fn take_integer(rest: &mut &[u8], prefix: u32) -> Option<usize> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    let most = (1 << prefix) - 1;
    let mut value = usize::from(*first) & most;
    if value < most {
        return Some(value);
    }
    for shift in [0, 7, 14] {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value += (usize::from(*byte) & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks() {
        let check = |bytes: &[u8], length_end, shared_start, expect| {
            let block = FieldBlock {
                bytes,
                length_end,
                shared_start,
                ..FieldBlock::default()
            };
            assert_eq!(super::check(block), expect, "{bytes:x?}");
        };
        let (good, bad) = (Ok(()), Err(Rule::FieldBlock));
        // content-length: 6, then content-type (31), then a literal name.
        let block = b"\x0f\x0d\x016\x0f\x10\x01a\x00\x01x\x01y";
        check(block, 4, 8, good);
        check(block, 4, 4, good);
        check(block, 4, 13, good);
        check(block, 4, 9, bad);
        check(block, 4, 14, bad);
        check(block, 8, 8, bad);
        check(block, 0, 0, bad);
        for len in 1..block.len() {
            let is_cut_between = len == 4 || len == 8;
            let expect = if is_cut_between { good } else { bad };
            check(&block[..len], 4, 4, expect);
        }
        check(b"", 0, 0, bad);
        // accept-encoding: gzip, deflate is a whole entry of the table; vary: x with a long
        // integer.
        check(b"\x0f\x0d\x016\x90", 4, 4, good);
        check(b"\x0f\x0d\x016\x0f\x2c\x01x", 4, 4, good);
        for field in [
            &b"\x88"[..],            // :status
            b"\xbe",                 // of the dynamic table
            b"\x80",                 // no index
            b"\x40\x01x\x01y",       // enters the dynamic table
            b"\x20",                 // a size update
            b"\x0f\x0d\x016",        // content-length again
            b"\x0f\x12\x01x",        // date
            b"\x0f\x2a\x01x",        // transfer-encoding
            b"\x04\x01x",            // :path
            b"\x0f\xff\xff\xff\x0f", // an endless integer
            b"\x00\x01x",            // no value
            b"\x00\x05x\x01y",       // a name that is longer than the block
        ] {
            let block = [&b"\x0f\x0d\x016"[..], field].concat();
            check(&block, 4, 4, bad);
        }
    }
}
