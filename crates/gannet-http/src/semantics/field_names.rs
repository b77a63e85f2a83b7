//! How HTTP/1 responses spell field names.
//!
//! Names mean the same in any case, and HTTP/2 and 3 send them in lower case. Over HTTP/1 every
//! server writes `Content-Length`, and programs that compare bytes rely on it: firmware, boot
//! loaders, drivers of geographic data.

use crate::scan;

/// Appends a name that is in lower case as HTTP/1 spells it: a capital after each hyphen, except
/// where the registered spelling differs.
///
/// ```
/// # use gannet_http::semantics::field_names::write_title;
/// let mut out = Vec::new();
/// write_title("content-length", &mut out);
/// write_title("etag", &mut out);
/// assert_eq!(out, b"Content-LengthETag");
/// ```
#[inline]
pub fn write_title(name: &str, out: &mut Vec<u8>) {
    if let Some(spelled) = registered(name) {
        out.extend_from_slice(spelled.as_bytes());
        return;
    }
    let start = out.len();
    out.extend_from_slice(name.as_bytes());
    let mut is_first = true;
    for byte in &mut out[start..] {
        if is_first {
            byte.make_ascii_uppercase();
        }
        is_first = *byte == b'-';
    }
}

/// The registered spelling of a name, where it is not one capital after each hyphen.
#[inline]
fn registered(name: &str) -> Option<&'static str> {
    Some(match name {
        "accept-ch" => "Accept-CH",
        "content-md5" => "Content-MD5",
        "critical-ch" => "Critical-CH",
        "dav" => "DAV",
        "dnt" => "DNT",
        "etag" => "ETag",
        "expect-ct" => "Expect-CT",
        "mime-version" => "MIME-Version",
        "nel" => "NEL",
        "p3p" => "P3P",
        "sourcemap" => "SourceMap",
        "te" => "TE",
        "www-authenticate" => "WWW-Authenticate",
        "x-dns-prefetch-control" => "X-DNS-Prefetch-Control",
        "x-sourcemap" => "X-SourceMap",
        "x-ua-compatible" => "X-UA-Compatible",
        "x-xss-protection" => "X-XSS-Protection",
        _ => return None,
    })
}

/// Whether this is a field name in lower case.
#[must_use]
pub fn is_lower_token(name: &[u8]) -> bool {
    !name.is_empty()
        && name
            .iter()
            .all(|&byte| scan::is_token_byte(byte) && !byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_spelled_as_other_servers_do() {
        for spelled in [
            "Content-Length",
            "Date",
            "ETag",
            "WWW-Authenticate",
            "X-Content-Type-Options",
            "Strict-Transport-Security",
            "Accept-CH",
            "X-2fa--B-",
            "Sec-GPC-9",
        ] {
            let mut out = b"before".to_vec();
            write_title(&spelled.to_ascii_lowercase(), &mut out);
            let expect = match spelled {
                "Sec-GPC-9" => "Sec-Gpc-9",
                spelled => spelled,
            };
            assert_eq!(out, [b"before", expect.as_bytes()].concat());
        }
    }
}
