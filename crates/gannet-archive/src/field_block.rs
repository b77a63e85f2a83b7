//! The form of field blocks and entity tags: nothing that could break a message.

use crate::error::Rule;
use crate::limits::FIELD_BLOCK_LEN_MAX;

/// Fields that affect message framing or that the server writes itself. A block must not carry
/// them: a second content length enables request smuggling (RFC 9112 section 11.2).
const FORBIDDEN: [&[u8]; 8] = [
    b"connection",
    b"content-length",
    b"date",
    b"keep-alive",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
];

const CONTENT_LENGTH: &[u8] = b"Content-Length: ";

/// Checks a block for HTTP/1: lines `Name: value CRLF` (RFC 9112 section 5), `Content-Length` first
/// and only there, equal to `blob_len`; the cuts at line starts.
pub(crate) fn check(
    block: &[u8],
    length_end: u16,
    shared_start: u16,
    blob_len: u64,
) -> Result<(), Rule> {
    let (length_end, shared_start) = (usize::from(length_end), usize::from(shared_start));
    if block.len() > FIELD_BLOCK_LEN_MAX {
        return Err(Rule::Limit);
    }
    let length_line = block.get(..length_end).ok_or(Rule::FieldBlock)?;
    let digits = length_line
        .strip_prefix(CONTENT_LENGTH)
        .and_then(|rest| rest.strip_suffix(b"\r\n"))
        .ok_or(Rule::FieldBlock)?;
    if parse_length(digits) != Some(blob_len) {
        return Err(Rule::ContentLength);
    }
    check_lines(block, length_end, shared_start)
}

/// Checks common lines: like those of [`check`], without a length.
pub(crate) fn check_common(lines: &[u8], shared_start: u16) -> Result<(), Rule> {
    if lines.len() > FIELD_BLOCK_LEN_MAX {
        return Err(Rule::Limit);
    }
    check_lines(lines, 0, shared_start.into())
}

/// Checks the lines from `start` on, and that a line starts, or all lines end, at `cut`.
fn check_lines(block: &[u8], start: usize, cut: usize) -> Result<(), Rule> {
    let mut at = start;
    let mut cut_is_line_start = cut == at;
    while at < block.len() {
        let line_len = check_line(&block[at..]).ok_or(Rule::FieldBlock)?;
        at += line_len;
        cut_is_line_start |= cut == at;
    }
    if cut_is_line_start {
        Ok(())
    } else {
        Err(Rule::FieldBlock)
    }
}

/// The length of the field line at the start of `rest`, including CRLF.
fn check_line(rest: &[u8]) -> Option<usize> {
    let colon = rest.iter().position(|byte| !is_name_byte(*byte))?;
    let name = &rest[..colon];
    let is_forbidden = || FORBIDDEN.iter().any(|it| it.eq_ignore_ascii_case(name));
    if name.is_empty() || is_forbidden() {
        return None;
    }
    let value = rest[colon..].strip_prefix(b": ")?;
    let len = value.iter().position(|byte| !is_value_byte(*byte))?;
    let is_trimmed = value[..len].trim_ascii().len() == len;
    (is_trimmed && value[len..].starts_with(b"\r\n")).then_some(colon + 2 + len + 2)
}

/// Decimal digits without a leading zero: each number has one spelling.
fn parse_length(digits: &[u8]) -> Option<u64> {
    let is_canonical = !digits.is_empty() && (digits == b"0" || digits[0] != b'0');
    if !is_canonical {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Token bytes (RFC 9110 section 5.6.2).
fn is_name_byte(byte: u8) -> bool {
    NAME_BYTES[usize::from(byte)]
}

static NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let allowed = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz\
                    ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut at = 0;
    while at < allowed.len() {
        table[allowed[at] as usize] = true;
        at += 1;
    }
    table
};

/// Field value bytes (RFC 9110 section 5.5).
pub(crate) fn is_value_byte(byte: u8) -> bool {
    byte >= 0x20 && byte != 0x7f || byte == b'\t'
}

/// Whether `tag` is an entity tag (RFC 9110 section 8.8.3), weak or strong, or empty for none.
pub(crate) fn is_entity_tag(tag: &[u8]) -> bool {
    if tag.is_empty() {
        return true;
    }
    let quoted = tag.strip_prefix(b"W/").unwrap_or(tag);
    quoted
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""))
        .is_some_and(|opaque| {
            opaque
                .iter()
                .all(|b| matches!(b, 0x21 | 0x23..=0x7e | 0x80..))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks() {
        let check = |block: &str, length_end: u16, shared: u16, expect: Result<(), Rule>| {
            let found = super::check(block.as_bytes(), length_end, shared, 12);
            assert_eq!(found, expect, "{block:?} {length_end} {shared}");
        };
        let good = "Content-Length: 12\r\nContent-Type: a/b\r\nETag: \"x\"\r\n";
        check(good, 20, 39, Ok(()));
        check(good, 20, 20, Ok(()));
        check(good, 20, 50, Ok(()));
        check("Content-Length: 12\r\n", 20, 20, Ok(()));
        check(good, 20, 40, Err(Rule::FieldBlock));
        check(good, 20, 19, Err(Rule::FieldBlock));
        check(good, 20, 51, Err(Rule::FieldBlock));
        check(good, 19, 39, Err(Rule::FieldBlock));
        check("Content-Length: 13\r\n", 20, 20, Err(Rule::ContentLength));
        check("Content-Length: 012\r\n", 21, 21, Err(Rule::ContentLength));
        check("Content-Length: +12\r\n", 21, 21, Err(Rule::ContentLength));
        check(
            "Content-Length: 18446744073709551628\r\n",
            38,
            38,
            Err(Rule::ContentLength),
        );
        check("", 0, 0, Err(Rule::FieldBlock));
        for line in [
            "Content-Length: 12\r\n",
            "CONTENT-LENGTH: 12\r\n",
            "transfer-encoding: chunked\r\n",
            "connection: close\r\n",
            "x:y\r\n",
            "x : y\r\n",
            ": y\r\n",
            "x: y\n",
            "x: y\r",
            "x: y\rz\r\n",
            "x: y\0\r\n",
            "x: y \r\n",
            "\r\n",
            "x",
        ] {
            let block = format!("Content-Length: 12\r\n{line}");
            check(&block, 20, 20, Err(Rule::FieldBlock));
        }
    }

    #[test]
    fn entity_tags() {
        for good in ["", "\"\"", "\"a\"", "W/\"a\""] {
            assert!(is_entity_tag(good.as_bytes()), "{good}");
        }
        for bad in [
            "a", "\"", "W/a", "\"a b\"", "\"a\"\"", "\"\r\n\"", "w/\"a\"",
        ] {
            assert!(!is_entity_tag(bad.as_bytes()), "{bad}");
        }
    }
}
