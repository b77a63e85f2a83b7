//! The static table (RFC 7541 appendix A).

use super::line::NameKind;
use crate::semantics::fields::KnownField;

/// How many entries the table has; their indexes begin with 1.
pub(crate) const STATIC_COUNT: usize = 61;

/// An entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StaticEntry {
    /// The line, `name: value CRLF`.
    pub(crate) line: &'static str,
    /// Bytes of the name.
    pub(crate) name_len: u8,
    /// Bytes of the value.
    pub(crate) value_len: u8,
    /// What the name means in a request.
    pub(crate) kind: NameKind,
}

impl StaticEntry {
    pub(crate) fn name(&self) -> &'static str {
        &self.line[..usize::from(self.name_len)]
    }

    /// Whether a request may have this line.
    #[inline]
    pub(crate) fn is_well_formed(&self) -> bool {
        let needs_value = matches!(
            self.kind,
            NameKind::Authority | NameKind::Known(KnownField::Host)
        );
        self.kind != NameKind::Refused && !needs_value
    }

    pub(crate) fn value(&self) -> &'static str {
        let start = usize::from(self.name_len) + 2;
        &self.line[start..start + usize::from(self.value_len)]
    }
}

/// The entry of an index from 1 to [`STATIC_COUNT`].
#[inline]
pub(crate) fn get(index: u32) -> Option<&'static StaticEntry> {
    ENTRIES.get((index as usize).wrapping_sub(1))
}

/// The lowest index of an entry with this name, and that of the one with this value too. Linear:
/// used when blocks are made ahead of time, and for the few fields of odd responses.
pub(crate) fn find(name: &str, value: &[u8]) -> (Option<usize>, Option<usize>) {
    let mut by_name = None;
    for (position, entry) in ENTRIES.iter().enumerate() {
        if entry.name() == name {
            by_name = by_name.or(Some(position + 1));
            if entry.value().as_bytes() == value {
                return (by_name, Some(position + 1));
            }
        }
    }
    (by_name, None)
}

macro_rules! entries {
    ($($name:literal $value:literal $kind:expr;)*) => {{
        use KnownField::*;
        use NameKind::*;
        [$(StaticEntry {
            line: concat!($name, ": ", $value, "\r\n"),
            name_len: $name.len() as u8,
            value_len: $value.len() as u8,
            kind: $kind,
        },)*]
    }};
}

static ENTRIES: [StaticEntry; STATIC_COUNT] = entries! {
    ":authority" "" Authority;
    ":method" "GET" Method;
    ":method" "POST" Method;
    ":path" "/" Path;
    ":path" "/index.html" Path;
    ":scheme" "http" Scheme;
    ":scheme" "https" Scheme;
    ":status" "200" Refused;
    ":status" "204" Refused;
    ":status" "206" Refused;
    ":status" "304" Refused;
    ":status" "400" Refused;
    ":status" "404" Refused;
    ":status" "500" Refused;
    "accept-charset" "" Other;
    "accept-encoding" "gzip, deflate" Known(AcceptEncoding);
    "accept-language" "" Known(AcceptLanguage);
    "accept-ranges" "" Other;
    "accept" "" Known(Accept);
    "access-control-allow-origin" "" Other;
    "age" "" Other;
    "allow" "" Other;
    "authorization" "" Known(Authorization);
    "cache-control" "" Other;
    "content-disposition" "" Other;
    "content-encoding" "" Other;
    "content-language" "" Other;
    "content-length" "" Known(ContentLength);
    "content-location" "" Other;
    "content-range" "" Other;
    "content-type" "" Other;
    "cookie" "" Other;
    "date" "" Other;
    "etag" "" Other;
    "expect" "" Known(Expect);
    "expires" "" Other;
    "from" "" Other;
    "host" "" Known(Host);
    "if-match" "" Known(IfMatch);
    "if-modified-since" "" Known(IfModifiedSince);
    "if-none-match" "" Known(IfNoneMatch);
    "if-range" "" Known(IfRange);
    "if-unmodified-since" "" Known(IfUnmodifiedSince);
    "last-modified" "" Other;
    "link" "" Other;
    "location" "" Other;
    "max-forwards" "" Other;
    "proxy-authenticate" "" Other;
    "proxy-authorization" "" Other;
    "range" "" Known(Range);
    "referer" "" Known(Referer);
    "refresh" "" Other;
    "retry-after" "" Other;
    "server" "" Other;
    "set-cookie" "" Other;
    "strict-transport-security" "" Other;
    "transfer-encoding" "" Refused;
    "user-agent" "" Known(UserAgent);
    "vary" "" Other;
    "via" "" Other;
    "www-authenticate" "" Other;
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_of_the_names() {
        for entry in &ENTRIES {
            assert_eq!(
                NameKind::of(entry.name().as_bytes()),
                entry.kind,
                "{entry:?}"
            );
            let is_well_formed = entry.kind.takes(entry.value().as_bytes());
            // An entry without a value exists for its name; no encoder may refer to the whole
            // entry.
            assert_eq!(is_well_formed, entry.is_well_formed(), "{entry:?}");
        }
    }

    #[test]
    fn entries_are_found() {
        assert_eq!(get(0).map(StaticEntry::name), None);
        assert_eq!(get(1).map(StaticEntry::name), Some(":authority"));
        assert_eq!(get(8).map(StaticEntry::value), Some("200"));
        assert_eq!(get(61).map(StaticEntry::name), Some("www-authenticate"));
        assert_eq!(get(62).map(StaticEntry::name), None);
        assert_eq!(find(":status", b"404"), (Some(8), Some(13)));
        assert_eq!(find("date", b"x"), (Some(33), None));
        assert_eq!(find("x", b""), (None, None));
        assert_eq!(find("etag", b""), (Some(34), Some(34)));
    }
}
