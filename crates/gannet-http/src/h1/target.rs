//! Request targets in their four forms, and authorities (RFC 9112 section 3.2).

use super::error::Why;
use crate::scan;
use crate::semantics::request::{Method, RequestTarget, TargetForm};

/// Reads a target without spaces and control bytes. Also returns the authority that it names.
///
/// # Errors
/// [`Why::Target`] for a target in no known form, in one that the method does not allow, or with a
/// fragment.
#[inline]
pub(crate) fn parse_target<'a>(
    raw: &'a [u8],
    method: Method,
    method_name: &[u8],
) -> Result<(RequestTarget<'a>, Option<&'a [u8]>), Why> {
    if raw.first() == Some(&b'/') && (method != Method::Other || method_name != b"CONNECT") {
        let (path, query) = split_query(raw)?;
        return Ok((
            RequestTarget {
                raw,
                form: TargetForm::Origin,
                path,
                query,
            },
            None,
        ));
    }
    parse_other_form(raw, method, method_name)
}

/// Reads a target in a form other than origin-form.
#[cold]
fn parse_other_form<'a>(
    raw: &'a [u8],
    method: Method,
    method_name: &[u8],
) -> Result<(RequestTarget<'a>, Option<&'a [u8]>), Why> {
    if method_name == b"CONNECT" {
        // RFC 9110 9.3.6: host and port, both.
        let has_port = raw.last().is_some_and(u8::is_ascii_digit) && raw.contains(&b':');
        if !has_port || !is_authority(raw) {
            return Err(Why::Target);
        }
        let target = RequestTarget {
            raw,
            form: TargetForm::Authority,
            path: b"",
            query: None,
        };
        return Ok((target, Some(raw)));
    }
    if raw == b"*" && method == Method::Options {
        let target = RequestTarget {
            raw,
            form: TargetForm::Asterisk,
            path: b"",
            query: None,
        };
        return Ok((target, None));
    }
    let after_scheme = strip_prefix_ignoring_case(raw, b"http://")
        .or_else(|| strip_prefix_ignoring_case(raw, b"https://"))
        .ok_or(Why::Target)?;
    let is_end = |byte: &u8| matches!(byte, b'/' | b'?' | b'#');
    let end = after_scheme
        .iter()
        .position(is_end)
        .unwrap_or(after_scheme.len());
    let (authority, rest) = after_scheme.split_at(end);
    if !is_authority(authority) {
        return Err(Why::Target);
    }
    let (path, query) = split_query(rest)?;
    let path = if path.is_empty() { b"/" } else { path };
    Ok((
        RequestTarget {
            raw,
            form: TargetForm::Absolute,
            path,
            query,
        },
        Some(authority),
    ))
}

/// Path and query. A fragment is never sent (RFC 9112 section 3.2): a client that sends one
/// disagrees about where the target ends.
#[inline]
fn split_query(target: &[u8]) -> Result<(&[u8], Option<&[u8]>), Why> {
    let end = scan::find_path_end(target);
    match target[end..] {
        [] => Ok((target, None)),
        [b'?', ref query @ ..] if scan::find_byte(query, b'#') == query.len() => {
            Ok((&target[..end], Some(query)))
        }
        _ => Err(Why::Target),
    }
}

/// Whether this is `uri-host [ ":" port ]` (RFC 9110 section 7.2) with a non-empty host.
///
/// Two restrictions: no comma in a name, because two joined `Host` lines look like that; no IP
/// literals other than IPv6 addresses without a zone.
#[inline]
#[must_use]
pub fn is_authority(value: &[u8]) -> bool {
    let host_len = match value.first() {
        Some(b'[') => match ip_literal_len(value) {
            Some(len) => len,
            None => return false,
        },
        _ => name_len(value),
    };
    match value[host_len..] {
        _ if host_len == 0 => false,
        [] => true,
        [b':', ref port @ ..] => is_port(port),
        _ => false,
    }
}

/// Length of `[...]` at the beginning of `value`.
#[cold]
fn ip_literal_len(value: &[u8]) -> Option<usize> {
    let end = value.iter().position(|&byte| byte == b']')?;
    let address = &value[1..end];
    let is_address_byte = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
    let is_address = (2..=IPV6_TEXT_MAX).contains(&address.len())
        && address.iter().all(is_address_byte)
        && address.contains(&b':');
    is_address.then_some(end + 1)
}

/// Whether these are the decimal digits of a number up to 65535, or empty.
fn is_port(digits: &[u8]) -> bool {
    let is_small = digits.len() < 5 || digits.len() == 5 && digits <= b"65535";
    is_small && digits.iter().all(u8::is_ascii_digit)
}

/// Length of the name or IPv4 address that `value` starts with.
#[inline]
fn name_len(value: &[u8]) -> usize {
    let mut len = 0;
    loop {
        let rest = &value[len..];
        let end = rest.iter().position(|&byte| !NAME[usize::from(byte)]);
        len += end.unwrap_or(rest.len());
        match &value[len..] {
            [b'%', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                len += 3
            }
            _ => return len,
        }
    }
}

fn strip_prefix_ignoring_case<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// The longest text of an IPv6 address: six groups and a dotted quad.
const IPV6_TEXT_MAX: usize = 45;

/// Bytes allowed unencoded in a `reg-name` (RFC 3986 section 3.2.2), except the comma.
const NAME: [bool; 256] = scan::letters_digits_and(b"-._~!$&'()*+;=");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authorities() {
        for good in [
            "a",
            "example.com",
            "example.com:80",
            "example.com:",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:443",
            "[::ffff:1.2.3.4]",
            "a_b",
            "xn--nxasmq6b",
            "a%20b",
            "a:65535",
        ] {
            assert!(is_authority(good.as_bytes()), "{good:?}");
        }
        for bad in [
            "",
            ":80",
            "a:b",
            "a:65536",
            "a:123456",
            "a b",
            "a,b",
            "a/b",
            "u@a",
            "a?b",
            "a#b",
            "a\\b",
            "[::1",
            "::1",
            "[]",
            "[::1]x",
            "[::g]",
            "[v1.x]",
            "[1.2]",
            "a%2",
            "a%zz",
            "a:80:80",
            "a\"",
            "é",
            "[fe80::1%25eth0]",
            "a:+80",
            "<a>",
        ] {
            assert!(!is_authority(bad.as_bytes()), "{bad:?}");
        }
    }

    /// `expect`: form, path, query and authority; empty if refused.
    fn check(method: &str, raw: &str, expect: &str) {
        let known = match method {
            "GET" => Method::Get,
            "OPTIONS" => Method::Options,
            _ => Method::Other,
        };
        let found = match parse_target(raw.as_bytes(), known, method.as_bytes()) {
            Err(why) => {
                assert_eq!(why, Why::Target);
                String::new()
            }
            Ok((target, authority)) => {
                let text = |bytes: Option<&[u8]>| match bytes {
                    Some(bytes) => bytes.escape_ascii().to_string(),
                    None => "-".to_owned(),
                };
                let RequestTarget {
                    form, path, query, ..
                } = target;
                format!(
                    "{form:?} {} {} {}",
                    text(Some(path)),
                    text(query),
                    text(authority)
                )
            }
        };
        assert_eq!(found, expect, "{method} {raw}");
    }

    #[test]
    fn the_four_forms() {
        check("GET", "/", "Origin / - -");
        check("GET", "//h/x", "Origin //h/x - -");
        check("GET", "/a?b?c", "Origin /a b?c -");
        check("GET", "/a?", "Origin /a  -");
        check("GET", "/#f", "");
        check("GET", "/?a#f", "");
        check("GET", "http://h", "Absolute / - h");
        check("GET", "HTTP://h:80/a?b", "Absolute /a b h:80");
        check("GET", "https://h?b", "Absolute / b h");
        check("GET", "http://u@h/", "");
        check("GET", "http:///a", "");
        check("GET", "http:/a", "");
        check("GET", "ftp://h/", "");
        check("GET", "http://h/#f", "");
        check("GET", "a", "");
        check("GET", "?a", "");
        check("GET", "*", "");
        check("GET", "h:80", "");
        check("OPTIONS", "*", "Asterisk  - -");
        check("OPTIONS", "**", "");
        check("OPTIONS", "/a", "Origin /a - -");
        check("CONNECT", "h:80", "Authority  - h:80");
        check("CONNECT", "h", "");
        check("CONNECT", "h:", "");
        check("CONNECT", "/", "");
        check("CONNECT", "http://h/", "");
        check("DELETE", "*", "");
        check("DELETE", "/x", "Origin /x - -");
    }
}
