//! Decoded field lines, and their properties, determined once.

use super::static_table::StaticEntry;
use super::{CodingError, string};
use crate::h1::target;
use crate::scan;
use crate::semantics::field_names::is_lower_token;
use crate::semantics::fields::KnownField;

/// What a field name means in a request (RFC 9113 section 8, RFC 9114 section 4).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NameKind {
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// A field that the server interprets.
    Known(KnownField),
    /// `te`, whose only allowed value is `trailers`.
    Te,
    /// `cookie`, whose crumbs are one field (RFC 9113 section 8.2.3, RFC 9114 section 4.2.1).
    Cookie,
    /// Any other field.
    Other,
    /// A name that is not in lower case, an unknown pseudo-field, or a connection-specific field:
    /// each of them makes a request malformed.
    Refused,
}

impl NameKind {
    /// The kind of this name.
    pub(crate) fn of(name: &[u8]) -> Self {
        match name {
            b":method" => return Self::Method,
            b":scheme" => return Self::Scheme,
            b":authority" => return Self::Authority,
            b":path" => return Self::Path,
            b"te" => return Self::Te,
            b"cookie" => return Self::Cookie,
            // RFC 9113 8.2.2
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => return Self::Refused,
            _ => {}
        }
        if !is_lower_token(name) {
            return Self::Refused;
        }
        KnownField::parse(name).map_or(Self::Other, Self::Known)
    }

    /// Whether the name is that of a pseudo-field.
    #[inline]
    pub(crate) fn is_pseudo(self) -> bool {
        matches!(
            self,
            Self::Method | Self::Scheme | Self::Authority | Self::Path
        )
    }

    /// Whether a field of this kind may have this value, judging by the value alone. Checked once
    /// per literal; an entry of the dynamic table stores the result.
    pub(crate) fn takes(self, value: &[u8]) -> bool {
        match self {
            Self::Method => is_token(value),
            Self::Scheme => is_scheme(value),
            Self::Authority | Self::Known(KnownField::Host) => target::is_authority(value),
            Self::Path => is_path(value),
            Self::Te => value.eq_ignore_ascii_case(b"trailers"),
            Self::Cookie | Self::Known(_) | Self::Other => is_field_value(value),
            Self::Refused => false,
        }
    }
}

/// No control byte but tabs, no white space at the ends (RFC 9113 section 8.2.1).
fn is_field_value(value: &[u8]) -> bool {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    if is_space(value.first()) || is_space(value.last()) {
        return false;
    }
    let mut end = scan::find_control(value);
    while value.get(end) == Some(&b'\t') {
        end += 1 + scan::find_control(&value[end + 1..]);
    }
    end == value.len()
}

fn is_token(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|&byte| scan::is_token_byte(byte))
}

/// RFC 3986 3.1.
fn is_scheme(value: &[u8]) -> bool {
    match value {
        b"http" | b"https" => true,
        [first, rest @ ..] => {
            first.is_ascii_alphabetic()
                && rest
                    .iter()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
        }
        [] => false,
    }
}

/// A path with its query, or the asterisk of OPTIONS (RFC 9113 section 8.3.1): without spaces,
/// control bytes and fragment. Bytes above 0x7f are taken as they are, though a client should
/// encode them.
fn is_path(value: &[u8]) -> bool {
    matches!(value, [b'/', ..] | b"*")
        && scan::find_not_visible(value) == value.len()
        && scan::find_byte(value, b'#') == value.len()
}

/// A field line written into a buffer as `name: value CRLF`. The lengths give the positions of name
/// and value, whatever bytes they contain.
///
/// The lengths fit because a field block is at most
/// [`FIELD_BLOCK_MAX`](super::limits::FIELD_BLOCK_MAX) bytes long and Huffman coding saves at
/// most three eighths; longer lines are refused.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// The meaning of the name.
    pub(crate) kind: NameKind,
    /// Whether a request may have the line.
    pub(crate) is_well_formed: bool,
    /// Where the line begins.
    pub(crate) start: u32,
    /// Length of the name, in bytes.
    pub(crate) name_len: u16,
    /// Length of the value, in bytes.
    pub(crate) value_len: u16,
}

impl Line {
    /// Appends a whole entry of a static table.
    #[inline]
    pub(crate) fn of_entry(entry: &StaticEntry, lines: &mut Vec<u8>) -> Self {
        let start = lines.len() as u32;
        lines.extend_from_slice(entry.line.as_bytes());
        Self {
            kind: entry.kind,
            is_well_formed: entry.is_well_formed(),
            start,
            name_len: entry.name_len.into(),
            value_len: entry.value_len.into(),
        }
    }

    /// Reads the value that follows a name, which was written to `lines` from `start` on.
    ///
    /// # Errors
    /// As [`string::read_next`], and [`CodingError::TooLarge`] for a line longer than [`Line`] can
    /// describe.
    #[inline]
    pub(crate) fn read_value(
        kind: NameKind,
        start: usize,
        input: &mut &[u8],
        lines: &mut Vec<u8>,
    ) -> Result<Self, CodingError> {
        let name_len = lines.len() - start;
        lines.extend_from_slice(SEPARATOR);
        let value_start = lines.len();
        string::read_next(input, 7, lines)?;
        let value_len = lines.len() - value_start;
        let line = Self {
            kind,
            is_well_formed: kind.takes(&lines[value_start..]),
            start: start as u32,
            name_len: u16::try_from(name_len).map_err(|_| CodingError::TooLarge)?,
            value_len: u16::try_from(value_len).map_err(|_| CodingError::TooLarge)?,
        };
        lines.extend_from_slice(LINE_END);
        Ok(line)
    }

    /// Where the value begins.
    #[inline]
    pub(crate) fn value_start(&self) -> usize {
        self.start as usize + usize::from(self.name_len) + SEPARATOR.len()
    }

    /// Where the line ends, after its CRLF.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.value_start() + usize::from(self.value_len) + LINE_END.len()
    }

    /// The size of the line as part of a table or a section (RFC 7541 section 4.1, RFC 9113 section
    /// 6.5.2).
    #[inline]
    pub(crate) fn size(&self) -> u32 {
        u32::from(self.name_len) + u32::from(self.value_len) + ENTRY_OVERHEAD
    }
}

/// Calls `show` with name, in lower case, and value of each line in HTTP/1's form; `None` if they
/// are not lines `name: value CRLF`.
pub(crate) fn lines(block: &[u8], mut show: impl FnMut(&str, &[u8])) -> Option<()> {
    let mut rest = block;
    let mut lower = String::new();
    while !rest.is_empty() {
        let end = memchr::memchr(b'\r', rest)?;
        let (line, after) = rest.split_at(end);
        rest = after.strip_prefix(LINE_END)?;
        let colon = memchr::memchr(b':', line)?;
        let name = std::str::from_utf8(&line[..colon]).ok()?;
        let value = line[colon..].strip_prefix(SEPARATOR)?;
        lower.clear();
        lower.push_str(name);
        lower.make_ascii_lowercase();
        show(&lower, value);
    }
    Some(())
}

/// Overhead of each table entry beyond name and value, in bytes.
pub(crate) const ENTRY_OVERHEAD: u32 = 32;

/// The separator of name and value.
pub(crate) const SEPARATOR: &[u8; 2] = b": ";

/// The end of a line.
pub(crate) const LINE_END: &[u8; 2] = b"\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let check = |name: &str, expect| {
            assert_eq!(NameKind::of(name.as_bytes()), expect, "{name:?}");
        };
        check(":path", NameKind::Path);
        check("accept", NameKind::Known(KnownField::Accept));
        check("cookie", NameKind::Cookie);
        check("cookie2", NameKind::Other);
        check("te", NameKind::Te);
        for refused in [
            "",
            "Accept",
            "x-Y",
            "a b",
            "a:",
            ":",
            ":status",
            ":protocol",
            ":PATH",
            "connection",
            "keep-alive",
            "proxy-connection",
            "transfer-encoding",
            "upgrade",
            "é",
            "a\0",
        ] {
            check(refused, NameKind::Refused);
        }
    }

    #[test]
    fn values() {
        let other = NameKind::Other;
        for good in ["", "a", "a b", "a\tb\t\tc", "é"] {
            assert!(other.takes(good.as_bytes()), "{good:?}");
        }
        for bad in [
            " ",
            " a",
            "a ",
            "\ta",
            "a\t",
            "a\rb",
            "a\nb",
            "a\0",
            "a\tb\x01c",
        ] {
            assert!(!other.takes(bad.as_bytes()), "{bad:?}");
        }
        let check = |kind: NameKind, good: &[&str], bad: &[&str]| {
            for (values, expect) in [(good, true), (bad, false)] {
                for value in values {
                    assert_eq!(kind.takes(value.as_bytes()), expect, "{kind:?} {value:?}");
                }
            }
        };
        check(NameKind::Te, &["trailers"], &["gzip", "trailers, gzip", ""]);
        check(NameKind::Method, &["GET", "a"], &["", "G T", "G:"]);
        check(NameKind::Scheme, &["https", "a+b"], &["", "1a", "a_"]);
        check(NameKind::Authority, &["a:80"], &["", "u@a", "a b"]);
        check(NameKind::Known(KnownField::Host), &["a:80"], &["", "a,a"]);
        check(
            NameKind::Path,
            &["/", "/a?b", "*", "/é"],
            &["", "a", "/a b", "/#", "**", "http://a/", "/\u{7f}"],
        );
        check(NameKind::Refused, &[], &["", "a"]);
    }
}
