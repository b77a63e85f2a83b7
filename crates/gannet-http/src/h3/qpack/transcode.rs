//! Conversion from HPACK to QPACK: from a stateless field block, as archives store it, to field
//! lines.
//!
//! Both encode strings alike, so they are copied unchanged; only the bits before them and the
//! indexes of names differ.

use super::encoder::{LITERAL, LITERAL_WITH_NAME, write_field};
use super::static_table::{STATIC_COUNT, TABLE};
use crate::binary::{integer, string};
use crate::h2::hpack::static_table as hpack_table;
use crate::h2::hpack::static_table::STATIC_COUNT as HPACK_COUNT;

/// Appends the fields of a block; `None` if it is not stateless (RFC 7541 sections 6.1, 6.2.2 and
/// 6.2.3, with the static table alone).
#[inline]
#[must_use]
pub fn transcode(block: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut rest = block;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first & 0x80 != 0 {
            let index = integer::decode(first, 7, &mut rest).ok()?;
            let entry = hpack_table::get(index)?;
            // The two tables have different entries with values.
            write_field(entry.name(), entry.value().as_bytes(), out);
            continue;
        }
        if first & 0x60 != 0 {
            return None;
        }
        let index = integer::decode(first, 4, &mut rest).ok()? as usize;
        if index == 0 {
            let (first, len, name) = take_string(&mut rest)?;
            // The Huffman bit precedes the three-bit prefix of the length.
            integer::encode(len, LITERAL | (first & 0x80) >> 4, 3, out);
            out.extend_from_slice(&name[name.len() - len..]);
        } else {
            match *NAMES.get(index)? {
                NO_NAME => {
                    let entry = hpack_table::get(index as u32)?;
                    string::write(entry.name().as_bytes(), LITERAL, 3, out);
                }
                name => integer::encode(name.into(), LITERAL_WITH_NAME, 4, out),
            }
        }
        let (_, _, value) = take_string(&mut rest)?;
        out.extend_from_slice(value);
    }
    Some(())
}

/// Takes a string off a block. Returns its first byte, its length without the prefix, and all of
/// its bytes including the prefix.
#[inline]
fn take_string<'b>(rest: &mut &'b [u8]) -> Option<(u8, usize, &'b [u8])> {
    let whole = *rest;
    let (&first, mut after) = whole.split_first()?;
    let len = integer::decode(first, 7, &mut after).ok()? as usize;
    *rest = after.get(len..)?;
    Some((first, len, &whole[..whole.len() - rest.len()]))
}

/// Maps an index of HPACK's static table to the index of the same name in QPACK's, or to
/// [`NO_NAME`].
static NAMES: [u8; HPACK_COUNT + 1] = make_names();

const NO_NAME: u8 = u8::MAX;

const fn make_names() -> [u8; HPACK_COUNT + 1] {
    let mut names = [NO_NAME; HPACK_COUNT + 1];
    let mut from = 0;
    while from < HPACK_COUNT {
        let mut to = STATIC_COUNT;
        // Backwards, so that the first entry of a name remains.
        while to > 0 {
            to -= 1;
            if hpack_table::TABLE[from].has_name_of(&TABLE[to]) {
                names[from + 1] = to as u8;
            }
        }
        from += 1;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::decode_each;
    use super::*;
    use crate::h2::hpack::{Decoder, encoder};

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn by_hpack(block: &[u8]) -> Pairs {
        let mut pairs = Vec::new();
        Decoder::new()
            .decode_each(block, |name, value| pairs.push((name.into(), value.into())))
            .expect("a block");
        pairs
    }

    fn by_qpack(block: &[u8]) -> Pairs {
        let mut out = vec![0, 0];
        transcode(block, &mut out).expect("a stateless block");
        let mut pairs = Vec::new();
        decode_each(&out, |name, value| pairs.push((name.into(), value.into())))
            .expect("a section");
        pairs
    }

    #[test]
    fn every_name_and_every_length_of_a_string_keeps_its_meaning() {
        for index in 1..=HPACK_COUNT as u32 {
            let entry = hpack_table::get(index).expect("an entry");
            let mut block = Vec::new();
            integer::encode(index as usize, 0x80, 7, &mut block);
            for never_indexed in [0, 0x10] {
                integer::encode(index as usize, never_indexed, 4, &mut block);
                block.extend_from_slice(b"\x01v");
            }
            assert_eq!(by_qpack(&block), by_hpack(&block), "{entry:?}");
        }
        for len in [0, 1, 5, 6, 7, 8, 9, 126, 127, 128, 200, 300] {
            // Longer, and shorter, when Huffman-coded.
            for byte in ["~", "a"] {
                let mut block = Vec::new();
                let string = byte.repeat(len);
                let name = format!("x{string}");
                encoder::write_field(&name, string.as_bytes(), &mut block);
                encoder::write_field("etag", string.as_bytes(), &mut block);
                assert_eq!(by_qpack(&block), by_hpack(&block), "{len} of {byte}");
            }
        }
    }

    #[test]
    fn what_has_a_state_or_no_end_is_refused() {
        let check = |block: &[u8]| {
            assert_eq!(transcode(block, &mut Vec::new()), None, "{block:x?}");
        };
        check(&[0x80]);
        check(&[0xbe]);
        check(b"\x40\x01x\x01y");
        check(&[0x20]);
        check(b"\x0f\x2f\x01y");
        check(b"\x0f");
        check(b"\x00\x02x");
        check(b"\x00\x01x");
        check(b"\x01\x02x");
    }
}
