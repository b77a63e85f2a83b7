//! A simple QPACK (RFC 9204) without a dynamic table, and therefore without state.

use super::super::h2::hpack;

/// Encodes a field section: with entries of the static table if possible, else with uncompressed
/// literals.
pub fn encode(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in fields {
        let by_name = TABLE.iter().position(|entry| entry.0 == *name);
        let by_both = TABLE.iter().position(|entry| entry == &(*name, *value));
        match (by_both, by_name) {
            (Some(index), _) => integer(index, 0xc0, 6, &mut section),
            (None, Some(index)) => {
                integer(index, 0x50, 4, &mut section);
                string(value, 0, 7, &mut section);
            }
            (None, None) => section.extend(literal(name, value)),
        }
    }
    section
}

/// A field line with a literal name (RFC 9204 section 4.5.6).
pub fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut line = Vec::new();
    string(name, 0x20, 3, &mut line);
    string(value, 0, 7, &mut line);
    line
}

/// An integer with a prefix (RFC 7541 section 5.1).
pub fn integer(number: usize, first: u8, prefix: u32, out: &mut Vec<u8>) {
    let full = (1 << prefix) - 1;
    if number < full {
        out.push(first | number as u8);
        return;
    }
    out.push(first | full as u8);
    let mut rest = number - full;
    while rest > 127 {
        out.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    out.push(rest as u8);
}

fn string(text: &str, first: u8, prefix: u32, out: &mut Vec<u8>) {
    integer(text.len(), first, prefix, out);
    out.extend_from_slice(text.as_bytes());
}

/// Decodes a field section; `None` if it needs a dynamic table.
pub fn decode(section: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut rest = section;
    let required_insert_count = take_integer(&mut rest, 8)?;
    let is_base_negative = rest.first()? & 0x80 != 0;
    take_integer(&mut rest, 7)?;
    if required_insert_count != 0 || is_base_negative {
        return None;
    }
    let mut fields = Vec::new();
    while let Some(&first) = rest.first() {
        let is_static = |bit| first & bit != 0;
        fields.push(if first & 0x80 != 0 && is_static(0x40) {
            let (name, value) = TABLE.get(take_integer(&mut rest, 6)?)?;
            (name.as_bytes().to_vec(), value.as_bytes().to_vec())
        } else if first & 0xc0 == 0x40 && is_static(0x10) {
            let (name, _) = TABLE.get(take_integer(&mut rest, 4)?)?;
            (name.as_bytes().to_vec(), take_string(&mut rest, 7)?)
        } else if first & 0xe0 == 0x20 {
            (take_string(&mut rest, 3)?, take_string(&mut rest, 7)?)
        } else {
            return None;
        });
    }
    Some(fields)
}

fn take_integer(rest: &mut &[u8], prefix: u32) -> Option<usize> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    let full = (1 << prefix) - 1;
    let mut number = usize::from(*first) & full;
    if number < full {
        return Some(number);
    }
    for place in 0..8 {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        number += usize::from(byte & 127) << (7 * place);
        if *byte < 128 {
            return Some(number);
        }
    }
    None
}

fn take_string(rest: &mut &[u8], prefix: u32) -> Option<Vec<u8>> {
    let is_coded = rest.first()? >> prefix & 1 == 1;
    let len = take_integer(rest, prefix)?;
    let (bytes, after) = rest.split_at_checked(len)?;
    *rest = after;
    if !is_coded {
        return Some(bytes.to_vec());
    }
    // Strings are coded as in HPACK: the HPACK decoder reads it as the value of a literal.
    let mut block = vec![0, 1, b'x'];
    integer(len, 0x80, 7, &mut block);
    block.extend_from_slice(bytes);
    let fields = hpack::Decoder::new().decode(&block).ok()?;
    fields.into_iter().next().map(|(_, value)| value)
}

/// The static table (RFC 9204 appendix A).
#[rustfmt::skip]
pub const TABLE: [(&str, &str); 99] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_come_apart_as_they_were_made() {
        let long = "v".repeat(300);
        let fields = [
            (":status", "200"),
            (":status", "799"),
            ("x-frame-options", "sameorigin"),
            ("x", "y"),
            ("x-a-longer-name", &long),
        ];
        let section = encode(&fields);
        let expect = fields.map(|(n, v)| (n.as_bytes().to_vec(), v.as_bytes().to_vec()));
        assert_eq!(decode(&section).as_deref(), Some(&expect[..]));
        for end in 3..section.len() {
            // Complete field lines, or an error.
            let count = decode(&section[..end]).map_or(0, |fields| fields.len());
            assert!(count < fields.len());
        }
        assert_eq!(decode(&[0, 0, 0x80]), None, "of the dynamic table");
        assert_eq!(decode(&[2, 0]), None, "an insert count");
        // The string of RFC 7541 C.4.1.
        let huffman = b"\0\0\x50\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        let expect = (b":authority".to_vec(), b"www.example.com".to_vec());
        assert_eq!(decode(huffman), Some(vec![expect]));
    }
}
