//! The static table (RFC 7541 appendix A).

use crate::binary::static_table::{self, StaticEntry, entries};

/// Number of entries of the table; their indexes start with 1.
pub(crate) const STATIC_COUNT: usize = 61;

/// The entry of an index from 1 to [`STATIC_COUNT`].
#[inline]
pub(crate) fn get(index: u32) -> Option<&'static StaticEntry> {
    ENTRIES.get((index as usize).wrapping_sub(1))
}

/// The lowest index of an entry with this name, and that of the entry with this value too.
pub(crate) fn find(name: &str, value: &[u8]) -> (Option<usize>, Option<usize>) {
    let (by_name, by_both) = static_table::find(&ENTRIES, name, value);
    (by_name.map(index_of), by_both.map(index_of))
}

fn index_of(position: usize) -> usize {
    position + 1
}

static ENTRIES: [StaticEntry; STATIC_COUNT] = TABLE;

/// The table as a constant, for values derived from it at compile time.
pub(crate) const TABLE: [StaticEntry; STATIC_COUNT] = entries! {
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
    "cookie" "" Cookie;
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
            entry.check();
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
