//! Percent-encoding, for the parts of rules and for what requests substitute in them.

use std::borrow::Cow;

use super::lines::Wrong;

/// Decodes a part of a source path. Bytes that a request's path can never contain are refused.
pub(crate) fn decode_segment(text: &str) -> Result<Vec<u8>, Wrong> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let mut byte = bytes[index];
        let mut len = 1;
        if byte == b'%' {
            let Some(decoded) = hex_pair(bytes.get(index + 1..index + 3)) else {
                let wrong = Wrong::new(cut(text, index, 3), "'%' and two hexadecimal digits");
                return Err(wrong.at(text, index).help("write '%25' for a percent sign"));
            };
            byte = decoded;
            len = 3;
        }
        if byte < 0x20 || matches!(byte, 0x7f | b'\\' | b'/') {
            let wrong = Wrong::new(cut(text, index, len), "a character that a path can have");
            return Err(wrong.at(text, index));
        }
        out.push(byte);
        index += len;
    }
    Ok(out)
}

/// Decodes a name or a value of a query: percent signs, and `+` as a space. Invalid escapes stand
/// for themselves, as in browsers.
pub(crate) fn decode_query(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    decode_query_into(raw, |byte| {
        out.push(byte);
        true
    });
    Cow::Owned(out)
}

/// Passes the decoded bytes to `take` until it returns false; returns whether it took all.
pub(crate) fn decode_query_into(raw: &[u8], mut take: impl FnMut(u8) -> bool) -> bool {
    let mut index = 0;
    while index < raw.len() {
        let (byte, len) = match raw[index] {
            b'+' => (b' ', 1),
            b'%' => match hex_pair(raw.get(index + 1..index + 3)) {
                Some(byte) => (byte, 3),
                None => (b'%', 1),
            },
            byte => (byte, 1),
        };
        if !take(byte) {
            return false;
        }
        index += len;
    }
    true
}

/// Whether the decoded bytes are these.
pub(crate) fn query_equals(raw: &[u8], expect: &[u8]) -> bool {
    let mut rest = expect;
    let fits = decode_query_into(raw, |byte| match rest {
        [first, tail @ ..] if *first == byte => {
            rest = tail;
            true
        }
        _ => false,
    });
    fits && rest.is_empty()
}

/// Appends a byte, percent-encoded unless `is_allowed` accepts it.
pub(crate) fn encode(byte: u8, is_allowed: fn(u8) -> bool, out: &mut Vec<u8>) {
    if is_allowed(byte) {
        out.push(byte);
    } else {
        let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble & 15)];
        out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
    }
}

/// `pchar` of RFC 3986 section 3.3 and the slash: bytes allowed in a path.
pub(crate) fn is_path_byte(byte: u8) -> bool {
    is_unreserved(byte) || is_sub_delim(byte) || matches!(byte, b':' | b'@' | b'/')
}

/// Bytes allowed in a query or a fragment (RFC 3986 sections 3.4 and 3.5).
pub(crate) fn is_query_byte(byte: u8) -> bool {
    is_path_byte(byte) || byte == b'?'
}

/// Bytes allowed in a name or value of a query that have no special meaning there.
pub(crate) fn is_query_value_byte(byte: u8) -> bool {
    is_unreserved(byte) || matches!(byte, b'/' | b':' | b'@' | b',')
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn is_sub_delim(byte: u8) -> bool {
    matches!(
        byte,
        b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
    )
}

pub(crate) fn hex_pair(digits: Option<&[u8]>) -> Option<u8> {
    let &[high, low] = digits? else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

/// Up to `len` bytes of a text, at character boundaries.
fn cut(text: &str, start: usize, len: usize) -> &str {
    let mut end = (start + len).min(text.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    text.get(start..end).unwrap_or_default()
}
