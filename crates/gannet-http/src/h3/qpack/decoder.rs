//! Decoding of field sections (RFC 9204 section 4.5).
//!
//! Every field is appended to a buffer in HTTP/1's line form, as by HPACK's decoder.

use super::static_table;
use crate::binary::limits::FIELD_SECTION_DECODED_MAX;
use crate::binary::line::{LINE_END, Line, NameKind};
use crate::binary::{CodingError, integer, string};

/// Decodes a whole section into `lines`. Calls `keep` with each line; a line for which it returns
/// false is removed again.
///
/// # Errors
/// [`CodingError::TooLarge`] if the decoded size exceeds [`FIELD_SECTION_DECODED_MAX`]; the rest
/// was not decoded. Any other error if the section is invalid.
#[inline]
pub(crate) fn decode(
    section: &[u8],
    lines: &mut Vec<u8>,
    mut keep: impl FnMut(&Line, &[u8]) -> bool,
) -> Result<(), CodingError> {
    let mut input = section;
    read_prefix(&mut input)?;
    let mut decoded = 0;
    while let Some((&first, rest)) = input.split_first() {
        input = rest;
        let line = match first >> 4 {
            // Indexed field line, static table.
            0b1100..=0b1111 => indexed(first, &mut input, lines)?,
            // Literal field line with a name from the static table.
            0b0101 | 0b0111 => {
                let index = integer::decode(first, 4, &mut input)?;
                let entry = static_table::get(index).ok_or(CodingError::Index)?;
                let start = lines.len();
                lines.extend_from_slice(entry.name().as_bytes());
                Line::read_value(entry.kind, start, &mut input, lines)?
            }
            // Literal field line with a literal name.
            0b0010 | 0b0011 => {
                let start = lines.len();
                string::read(first, 3, &mut input, lines)?;
                let kind = NameKind::of(&lines[start..]);
                Line::read_value(kind, start, &mut input, lines)?
            }
            // Representations that refer to the dynamic table, including the two with a post-base
            // index.
            _ => return Err(CodingError::Dynamic),
        };
        decoded += line.size();
        if !keep(&line, lines) {
            lines.truncate(line.start as usize);
        }
        if decoded > FIELD_SECTION_DECODED_MAX {
            return Err(CodingError::TooLarge);
        }
    }
    Ok(())
}

/// Decodes a section and calls `show` with each name and value, for clients and tests.
///
/// # Errors
/// If the section cannot be decoded; `show` was called for the fields before the error.
pub fn decode_each(section: &[u8], mut show: impl FnMut(&[u8], &[u8])) -> Result<(), CodingError> {
    decode(section, &mut Vec::new(), |line, bytes| {
        let start = line.start as usize;
        let name = &bytes[start..start + usize::from(line.name_len)];
        let value = &bytes[line.value_start()..line.end() - LINE_END.len()];
        show(name, value);
        false
    })
}

/// The Required Insert Count, which is 0 without a dynamic table, and the Base, which then cannot
/// be below it (RFC 9204 section 4.5.1).
#[inline]
fn read_prefix(input: &mut &[u8]) -> Result<(), CodingError> {
    if let Some(rest) = input.strip_prefix(&[0, 0]) {
        *input = rest;
        return Ok(());
    }
    let mut next = |prefix_len| {
        let (&first, rest) = input.split_first().ok_or(CodingError::Truncated)?;
        *input = rest;
        integer::decode(first, prefix_len, input).map(|number| (first, number))
    };
    let (_, required_insert_count) = next(8)?;
    if required_insert_count != 0 {
        return Err(CodingError::Dynamic);
    }
    let (first, _) = next(7)?;
    let is_negative = first & 0x80 != 0;
    if is_negative {
        return Err(CodingError::Dynamic);
    }
    Ok(())
}

/// An indexed field line (RFC 9204 section 4.5.2).
#[inline]
fn indexed(first: u8, input: &mut &[u8], lines: &mut Vec<u8>) -> Result<Line, CodingError> {
    let index = integer::decode(first, 6, input)?;
    let entry = static_table::get(index).ok_or(CodingError::Index)?;
    Ok(Line::of_entry(entry, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(section: &[u8]) -> Result<String, CodingError> {
        let mut text = String::new();
        decode_each(section, |name, value| {
            text += &format!("{}={};", name.escape_ascii(), value.escape_ascii());
        })?;
        Ok(text)
    }

    #[test]
    fn every_representation() {
        let check = |section: &[u8], expect: &str| {
            assert_eq!(decoded(section).as_deref(), Ok(expect), "{section:x?}");
        };
        check(&[0, 0], "");
        // A base to which no field line refers.
        check(&[0, 0x7f, 5, 0xc1], ":path=/;");
        // RFC 9204 B.1
        check(b"\0\0\x51\x0b/index.html", ":path=/index.html;");
        check(
            b"\0\0\xd1\xff\x23",
            ":method=GET;x-frame-options=sameorigin;",
        );
        // With the never-indexed bit.
        check(b"\0\0\x7f\x50\x01a", "user-agent=a;");
        check(b"\0\0\x22xy\x01z", "xy=z;");
        check(b"\0\0\x32xy\0", "xy=;");
        check(b"\0\0\x27\x00abcdefg\x01z", "abcdefg=z;");
        // Huffman: "x" is 1111001, "0" is 00000.
        check(b"\0\0\x29\xf3\x81\x07", "x=0;");
    }

    #[test]
    fn what_cannot_be_decoded_is_refused_for_its_reason() {
        use CodingError::{Dynamic, Huffman, Index, Integer, Truncated};
        let check = |section: &[u8], expect| {
            assert_eq!(decoded(section), Err(expect), "{section:x?}");
        };
        check(&[], Truncated);
        check(&[0], Truncated);
        check(&[0, 0x7f], Truncated);
        check(&[1, 0], Dynamic);
        check(&[0xff, 0, 0], Dynamic);
        check(&[0, 0x80], Dynamic);
        check(&[0, 0, 0xff, 0x24], Index);
        check(&[0, 0, 0x5f, 0x54, 0], Index);
        for dynamic in [0x00, 0x08, 0x10, 0x1f, 0x40, 0x60, 0x80, 0xbf] {
            check(&[0, 0, dynamic, 0, 0], Dynamic);
        }
        check(&[0, 0, 0xff], Truncated);
        check(&[0, 0, 0xff, 0x80, 0x80, 0x80, 0x80, 0], Integer);
        check(b"\0\0\x51", Truncated);
        check(b"\0\0\x51\x02/", Truncated);
        check(b"\0\0\x23ab", Truncated);
        check(b"\0\0\x21a", Truncated);
        check(b"\0\0\x51\x81\xff", Huffman);
        check(b"\0\0\x29\xff\x00", Huffman);
    }

    #[test]
    fn a_bomb_of_references_is_cut_off() {
        // The longest entry: 108 bytes, overhead included.
        let mut section = vec![0, 0];
        section.extend([0xff, 85 - 63].repeat(16_000));
        let mut count = 0;
        let result = decode_each(&section, |_, _| count += 1);
        assert_eq!(result, Err(CodingError::TooLarge));
        assert_eq!(count, FIELD_SECTION_DECODED_MAX / 108 + 1);
    }
}
