//! Decoded field lines, and what is known of them once and for all.

use crate::scan;
use crate::semantics::fields::KnownField;

/// What a field name means in a request (RFC 9113 section 8).
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
    /// A field that is looked at.
    Known(KnownField),
    /// `te`, which may say nothing but `trailers`.
    Te,
    /// A field that is passed on.
    Other,
    /// No name in lower case, a pseudo-field that requests do not have, or a field of the
    /// connection: any of them makes a request malformed.
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
            // RFC 9113 8.2.2
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => return Self::Refused,
            _ => {}
        }
        let is_lower_token = !name.is_empty()
            && name
                .iter()
                .all(|&byte| scan::is_token_byte(byte) && !byte.is_ascii_uppercase());
        if !is_lower_token {
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

    /// Whether a field of this kind may have this value: no control byte but tabs, no white space
    /// at the ends (RFC 9113 section 8.2.1).
    #[inline]
    pub(crate) fn takes(self, value: &[u8]) -> bool {
        let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        if is_space(value.first()) || is_space(value.last()) {
            return false;
        }
        let mut end = scan::find_control(value);
        while value.get(end) == Some(&b'\t') {
            end += 1 + scan::find_control(&value[end + 1..]);
        }
        end == value.len() && (self != Self::Te || value.eq_ignore_ascii_case(b"trailers"))
    }
}

/// A field line that was written into a buffer as `name: value CRLF`. The lengths say where name
/// and value are, whatever bytes they have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// What the name means.
    pub(crate) kind: NameKind,
    /// Whether a request may have the line.
    pub(crate) is_well_formed: bool,
    /// Where the line begins.
    pub(crate) start: usize,
    /// Bytes of the name.
    pub(crate) name_len: usize,
    /// Bytes of the value.
    pub(crate) value_len: usize,
}

impl Line {
    /// Where the value begins.
    #[inline]
    pub(crate) fn value_start(&self) -> usize {
        self.start + self.name_len + SEPARATOR.len()
    }

    /// Where the line ends, after its CRLF.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.value_start() + self.value_len + LINE_END.len()
    }

    /// What the line counts towards the size of a table or a section (RFC 7541 section 4.1, RFC
    /// 9113 section 6.5.2).
    #[inline]
    pub(crate) fn size(&self) -> u32 {
        // Both are below 2^28: see `integer::decode`.
        (self.name_len + self.value_len) as u32 + ENTRY_OVERHEAD
    }
}

/// Bytes that each entry of a table counts beyond name and value.
pub(crate) const ENTRY_OVERHEAD: u32 = 32;

/// What is between name and value.
pub(crate) const SEPARATOR: &[u8; 2] = b": ";

/// What ends a line.
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
        check("cookie", NameKind::Other);
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
        assert!(NameKind::Te.takes(b"trailers") && !NameKind::Te.takes(b"gzip"));
    }
}
