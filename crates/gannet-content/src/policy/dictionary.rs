//! Compression dictionaries (RFC 9842): which answers may become one, and for which requests content
//! may be coded with one.
//!
//! The dictionary of a file is an earlier version of it, under a name that differs only in its
//! hash. An answer announces itself as the dictionary of the versions to come by
//! [`USE_AS_DICTIONARY`]; a client that has it sends its SHA-256 with a request for one of those.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use gannet_archive::{Entry, Variant};
use gannet_http::semantics::coding::accept_dictionary_encoding;
use gannet_http::semantics::fields::{Fields, KnownField};
use gannet_http::semantics::structured::{self, Value};
use gannet_http::semantics::target_path::encode_path;

use super::hashed_name::hash_range;
use super::limits::DICTIONARY_PATH_MAX;

/// The field of an answer that may be a dictionary (RFC 9842 section 2.1).
pub const USE_AS_DICTIONARY: &str = "use-as-dictionary";

/// `vary` of all answers for a path with content that is coded with a dictionary (RFC 9842 section
/// 6.2).
pub const VARY_BY_DICTIONARY: &str = "accept-encoding, available-dictionary";

/// The path of the versions of a file: its own with `*` in place of the hash. `None` if versions
/// cannot be distinguished from other files.
#[must_use]
pub fn versions(path: &[u8]) -> Option<Vec<u8>> {
    let text = str::from_utf8(path).ok()?;
    let hash = hash_range(text).filter(|_| text.len() <= DICTIONARY_PATH_MAX)?;
    // A star of its own would stand for anything, too; a colon, escaped or not, for a scheme or a name.
    (!text.contains(['*', ':'])).then(|| [&path[..hash.start], b"*", &path[hash.end..]].concat())
}

/// The value of [`USE_AS_DICTIONARY`] for the path of [`versions`]: a URL pattern for them, on any
/// destination, since a script may be preloaded, imported, or fetched by a worker.
#[must_use]
pub fn use_as_dictionary(versions: &[u8]) -> String {
    let mut encoded = Vec::with_capacity(versions.len());
    encode_path(versions, &mut encoded);
    let mut value = String::from("match=\"");
    for byte in encoded {
        // What a URL pattern would interpret, escaped; in a string (RFC 9651 section 3.3.3) the
        // backslash itself is escaped. `encode_path` leaves no quote and no backslash.
        if b"+()".contains(&byte) {
            value.push_str("\\\\");
        }
        value.push(char::from(byte));
    }
    value.push('"');
    value
}

/// What decides about a request with a dictionary.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// All of its fields.
    pub fields: &'r Fields<'r>,
    /// It came over TLS.
    pub is_https: bool,
    /// The host that it asks, with a port if it names one.
    pub authority: Option<&'r [u8]>,
}

/// The variant of a path's own content that is coded with the dictionary that the client has.
/// `configured` are fields of the operator, which replace those of the site.
///
/// Only in secure contexts, which intermediaries cannot alter (RFC 9842 section 8), and only if the
/// answer's length may be revealed to the origin of the request (section 9.3.3).
pub fn select<'e, 'c>(
    entry: &Entry<'e>,
    request: Request<'_>,
    mut configured: impl Iterator<Item = (&'c [u8], &'c [u8])>,
) -> Option<Variant<'e>> {
    let sha256 = available(request.fields)?;
    if !request.is_https && !is_local(request.authority) {
        return None;
    }
    let lines = request.fields.lines(KnownField::AcceptEncoding);
    let found = entry.select_with_dictionary(accept_dictionary_encoding(lines), &sha256)?;
    let block = found.h1();
    let configured = configured.find(|(name, _)| *name == ALLOW_ORIGIN.as_bytes());
    let allow_origin = match configured {
        Some((_, value)) => Some(value),
        None => block.get(ALLOW_ORIGIN),
    };
    may_reveal_length(request.fields, allow_origin).then_some(found)
}

/// The SHA-256 of the dictionary that a client has for its request.
fn available(fields: &Fields<'_>) -> Option<[u8; 32]> {
    named(only(fields, "available-dictionary")?)
}

/// The SHA-256 that a value of `available-dictionary` names (RFC 9842 section 2.2): one byte sequence
/// (RFC 9651 section 3.3.5) of 32 bytes.
#[must_use]
pub fn named(value: &[u8]) -> Option<[u8; 32]> {
    let Ok(Value::Binary(text)) = structured::item(value) else {
        return None;
    };
    let mut hash = [0; 32];
    // A longer text does not fit, and is not decoded.
    match LENIENT.decode_slice(text, &mut hash) {
        Ok(32) => Some(hash),
        _ => None,
    }
}

/// Parsers should not fail where padding is missing, or its bits are not zero (RFC 9651 section
/// 4.2.7).
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Whether an answer may be coded with a dictionary as far as its length could reveal something to
/// another origin (RFC 9842 section 9.3.3). `allow_origin` is its `access-control-allow-origin`.
fn may_reveal_length(fields: &Fields<'_>, allow_origin: Option<&[u8]>) -> bool {
    let Some(site) = value(fields, "sec-fetch-site") else {
        return true;
    };
    if site == b"same-origin" {
        return true;
    }
    match value(fields, "sec-fetch-mode") {
        None | Some(b"navigate" | b"same-origin") => true,
        Some(b"cors") => {
            let origin = fields.get(KnownField::Origin);
            let origin = origin.filter(|_| !fields.is_repeated(KnownField::Origin));
            match (allow_origin, origin) {
                (Some(allowed), Some(origin)) => allowed == b"*" || allowed == origin,
                _ => false,
            }
        }
        Some(_) => false,
    }
}

/// Whether a request for this authority is in a secure context without TLS: browsers trust names
/// that never leave the machine.
fn is_local(authority: Option<&[u8]>) -> bool {
    let authority = str::from_utf8(authority.unwrap_or_default()).unwrap_or_default();
    if let Some(rest) = authority.strip_prefix('[') {
        return rest.split_once(']').is_some_and(|(host, _)| host == "::1");
    }
    let host = authority
        .split_once(':')
        .map_or(authority, |(host, _)| host);
    let is_loopback = host
        .parse()
        .is_ok_and(|it: std::net::Ipv4Addr| it.is_loopback());
    let name = host.to_ascii_lowercase();
    is_loopback || name == "localhost" || name.ends_with(".localhost")
}

/// The value of a field: the first line's.
fn value<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a [u8]> {
    let mut lines = fields.iter();
    let found = lines.find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()))?;
    Some(found.1)
}

/// The value of a field that has one line.
fn only<'a>(fields: &Fields<'a>, name: &str) -> Option<&'a [u8]> {
    let lines = fields.iter();
    let mut lines = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
    let (_, first) = lines.next()?;
    lines.next().is_none().then_some(first)
}

const ALLOW_ORIGIN: &str = "access-control-allow-origin";

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    fn fields(text: &str) -> Fields<'_> {
        Fields::parse(text.as_bytes()).expect("fields")
    }

    #[test]
    fn versions_are_matched_by_a_pattern() {
        let check = |path: &str, expect: Option<&str>| {
            let value = versions(path.as_bytes()).map(|path| use_as_dictionary(&path));
            assert_eq!(value.as_deref(), expect, "{path}");
        };
        check(
            "/assets/app-BxY3k9Zq.js",
            Some("match=\"/assets/app-*.js\""),
        );
        check(
            "/_next/(main)/a+b/c-3f2a9c1b.js",
            Some(r#"match="/_next/\\(main\\)/a\\+b/c-*.js""#),
        );
        check(
            "/d\u{fc}/{x}?/a.3f2a9c1b.js",
            Some("match=\"/d%C3%BC/%7Bx%7D%3F/a.*.js\""),
        );
        check("/a*b/a.3f2a9c1b.js", None);
        check("/a:b/a.3f2a9c1b.js", None);
        check("/app.js", None);
        check("/3f2a9c1b.js", None);
        check(&format!("/{}/a.3f2a9c1b.js", "d".repeat(2000)), None);
    }

    #[test]
    fn a_dictionary_is_named_by_one_byte_sequence_of_32_bytes() {
        let hash = STANDARD.encode([7; 32]);
        let check = |text: String, expect: bool| {
            let found = available(&fields(&text));
            assert_eq!(found, expect.then_some([7; 32]), "{text}");
        };
        check(format!("Available-Dictionary: :{hash}:\r\n"), true);
        check(format!("available-dictionary:  :{hash}: \r\n"), true);
        check(format!("Available-Dictionary: {hash}\r\n"), false);
        check(format!("Available-Dictionary: \":{hash}:\"\r\n"), false);
        check(
            format!("Available-Dictionary: :{hash}:, :{hash}:\r\n"),
            false,
        );
        let line = format!("Available-Dictionary: :{hash}:\r\n");
        check(format!("{line}{line}"), false);
        let short = STANDARD.encode([7; 31]);
        check(format!("Available-Dictionary: :{short}:\r\n"), false);
        let unpadded = hash.trim_end_matches('=');
        check(format!("Available-Dictionary: :{unpadded}:\r\n"), true);
        check(format!("Available-Dictionary: :{hash}=:\r\n"), false);
        check(format!("Available-Dictionary: :{hash}:;a=1\r\n"), true);
        check(format!("Available-Dictionary: :{hash} :\r\n"), false);
        let long = STANDARD.encode([7; 7_500]);
        check(format!("Available-Dictionary: :{long}:\r\n"), false);
        check("Available-Dictionary: ::\r\n".into(), false);
        check("Available-Dictionary: :\r\n".into(), false);
        check("X: y\r\n".into(), false);
    }

    #[test]
    fn only_those_who_may_read_an_answer_learn_its_length() {
        let check = |text: &str, allowed: Option<&str>, expect| {
            let allowed = allowed.map(str::as_bytes);
            let found = may_reveal_length(&fields(text), allowed);
            assert_eq!(found, expect, "{text:?} {allowed:?}");
        };
        check("", None, true);
        check("Sec-Fetch-Site: same-origin\r\n", None, true);
        check("Sec-Fetch-Site: cross-site\r\n", None, true);
        let mode = |mode: &str| format!("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: {mode}\r\n");
        check(&mode("navigate"), None, true);
        check(&mode("same-origin"), None, true);
        check(&mode("no-cors"), Some("*"), false);
        check(&mode("websocket"), Some("*"), false);
        check(&mode("cors"), Some("*"), false);
        let from = |origin: &str| format!("{}Origin: {origin}\r\n", mode("cors"));
        check(&from("https://a.example"), None, false);
        check(&from("https://a.example"), Some("*"), true);
        check(&from("https://a.example"), Some("https://a.example"), true);
        check(&from("https://a.example"), Some("https://b.example"), false);
        let same_site = "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: no-cors\r\n";
        check(same_site, None, false);
    }

    #[test]
    fn contexts_without_tls_are_secure_on_this_machine_alone() {
        let check = |authority: &str, expect| {
            let found = is_local(Some(authority.as_bytes()));
            assert_eq!(found, expect, "{authority}");
        };
        check("localhost", true);
        check("LocalHost:8080", true);
        check("app.localhost:1", true);
        check("127.0.0.1:80", true);
        check("127.9.9.9", true);
        check("[::1]:443", true);
        check("[::2]", false);
        check("[::1", false);
        check("localhost.example", false);
        check("notlocalhost", false);
        check("10.0.0.1", false);
        check("", false);
        assert!(!is_local(None));
    }
}
