//! The static table (RFC 9204 appendix A).

use crate::binary::static_table::{self, StaticEntry, entries};

/// Number of entries; indexes start at 0.
pub(super) const STATIC_COUNT: usize = 99;

/// The entry of an index below [`STATIC_COUNT`].
#[inline]
pub(super) fn get(index: u32) -> Option<&'static StaticEntry> {
    ENTRIES.get(index as usize)
}

/// The lowest index of an entry with this name, and the index of the entry with this name and
/// value.
pub(super) fn find(name: &str, value: &[u8]) -> (Option<usize>, Option<usize>) {
    static_table::find(&ENTRIES, name, value)
}

pub(super) static ENTRIES: [StaticEntry; STATIC_COUNT] = TABLE;

/// The same table for computations at compile time.
pub(super) const TABLE: [StaticEntry; STATIC_COUNT] = entries! {
    ":authority" "" Authority;
    ":path" "/" Path;
    "age" "0" Other;
    "content-disposition" "" Other;
    "content-length" "0" Known(ContentLength);
    "cookie" "" Cookie;
    "date" "" Other;
    "etag" "" Other;
    "if-modified-since" "" Known(IfModifiedSince);
    "if-none-match" "" Known(IfNoneMatch);
    "last-modified" "" Other;
    "link" "" Other;
    "location" "" Other;
    "referer" "" Known(Referer);
    "set-cookie" "" Other;
    ":method" "CONNECT" Method;
    ":method" "DELETE" Method;
    ":method" "GET" Method;
    ":method" "HEAD" Method;
    ":method" "OPTIONS" Method;
    ":method" "POST" Method;
    ":method" "PUT" Method;
    ":scheme" "http" Scheme;
    ":scheme" "https" Scheme;
    ":status" "103" Refused;
    ":status" "200" Refused;
    ":status" "304" Refused;
    ":status" "404" Refused;
    ":status" "503" Refused;
    "accept" "*/*" Known(Accept);
    "accept" "application/dns-message" Known(Accept);
    "accept-encoding" "gzip, deflate, br" Known(AcceptEncoding);
    "accept-ranges" "bytes" Other;
    "access-control-allow-headers" "cache-control" Other;
    "access-control-allow-headers" "content-type" Other;
    "access-control-allow-origin" "*" Other;
    "cache-control" "max-age=0" Other;
    "cache-control" "max-age=2592000" Other;
    "cache-control" "max-age=604800" Other;
    "cache-control" "no-cache" Other;
    "cache-control" "no-store" Other;
    "cache-control" "public, max-age=31536000" Other;
    "content-encoding" "br" Other;
    "content-encoding" "gzip" Other;
    "content-type" "application/dns-message" Other;
    "content-type" "application/javascript" Other;
    "content-type" "application/json" Other;
    "content-type" "application/x-www-form-urlencoded" Other;
    "content-type" "image/gif" Other;
    "content-type" "image/jpeg" Other;
    "content-type" "image/png" Other;
    "content-type" "text/css" Other;
    "content-type" "text/html; charset=utf-8" Other;
    "content-type" "text/plain" Other;
    "content-type" "text/plain;charset=utf-8" Other;
    "range" "bytes=0-" Known(Range);
    "strict-transport-security" "max-age=31536000" Other;
    "strict-transport-security" "max-age=31536000; includesubdomains" Other;
    "strict-transport-security" "max-age=31536000; includesubdomains; preload" Other;
    "vary" "accept-encoding" Other;
    "vary" "origin" Other;
    "x-content-type-options" "nosniff" Other;
    "x-xss-protection" "1; mode=block" Other;
    ":status" "100" Refused;
    ":status" "204" Refused;
    ":status" "206" Refused;
    ":status" "302" Refused;
    ":status" "400" Refused;
    ":status" "403" Refused;
    ":status" "421" Refused;
    ":status" "425" Refused;
    ":status" "500" Refused;
    "accept-language" "" Known(AcceptLanguage);
    "access-control-allow-credentials" "FALSE" Other;
    "access-control-allow-credentials" "TRUE" Other;
    "access-control-allow-headers" "*" Other;
    "access-control-allow-methods" "get" Other;
    "access-control-allow-methods" "get, post, options" Other;
    "access-control-allow-methods" "options" Other;
    "access-control-expose-headers" "content-length" Other;
    "access-control-request-headers" "content-type" Other;
    "access-control-request-method" "get" Other;
    "access-control-request-method" "post" Other;
    "alt-svc" "clear" Other;
    "authorization" "" Known(Authorization);
    "content-security-policy" "script-src 'none'; object-src 'none'; base-uri 'none'" Other;
    "early-data" "1" Other;
    "expect-ct" "" Other;
    "forwarded" "" Other;
    "if-range" "" Known(IfRange);
    "origin" "" Known(Origin);
    "purpose" "prefetch" Other;
    "server" "" Other;
    "timing-allow-origin" "*" Other;
    "upgrade-insecure-requests" "1" Other;
    "user-agent" "" Known(UserAgent);
    "x-forwarded-for" "" Known(XForwardedFor);
    "x-frame-options" "deny" Other;
    "x-frame-options" "sameorigin" Other;
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
        assert_eq!(get(0).map(StaticEntry::name), Some(":authority"));
        assert_eq!(get(25).map(StaticEntry::value), Some("200"));
        assert_eq!(get(98).map(StaticEntry::value), Some("sameorigin"));
        assert_eq!(get(99).map(StaticEntry::name), None);
        assert_eq!(find(":status", b"404"), (Some(24), Some(27)));
        assert_eq!(find("vary", b"x"), (Some(59), None));
        assert_eq!(find("x", b""), (None, None));
    }
}
