//! The target of a redirect: its location, with the captures of the source substituted.
//!
//! Whatever a request captures, the result remains what the rule says: a path of this host, or a
//! URL whose scheme and host are in the rule. Captured bytes are percent-encoded for the place
//! where they are substituted, so they cannot end a field, begin a query, or name another host.

use gannet_http::semantics::target_path::decode_path;

use super::limits::{HOST_MAX, LOCATION_MAX};
use super::lines::Wrong;
use super::pattern::{Captures, Source, name_len, shift};
use super::percent;
use crate::host_name::label;

/// The location that a rule leads to.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Target {
    /// `https://example.org`, without trailing slash, for a URL; `None` for a path.
    pub origin: Option<String>,
    /// The path, which starts with a slash.
    pub path: Vec<TargetPart>,
    /// The query, without question mark.
    pub query: Option<Vec<TargetPart>>,
    /// The fragment, without number sign.
    pub fragment: Option<Vec<TargetPart>>,
}

/// A piece of a target.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum TargetPart {
    /// Text, percent-encoded.
    Literal(String),
    /// The capture of the placeholder at this position.
    Capture(u8),
}

/// The parts of a request that a target may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captured<'a> {
    pub(crate) host: &'a [u8],
    pub(crate) path: &'a [u8],
    pub(crate) query: &'a [u8],
    pub(crate) captures: &'a Captures,
}

impl Target {
    /// Parses a target. `names` are the captures of the source, in order; other colons have no
    /// special meaning: addresses have `/:w:/` and `#:~:text=` in them.
    pub(crate) fn parse(text: &str, names: Option<&[&str]>) -> Result<Self, Wrong> {
        let (origin, rest) = split_origin(text)?;
        let offset = text.len() - rest.len();
        let (rest, fragment) = split_at(rest, '#');
        let (path, query) = split_at(rest, '?');
        let read = |part: &str, from: usize, is_allowed: fn(u8) -> bool| {
            parse_parts(part, names, is_allowed).map_err(|wrong| shift(wrong, text, from))
        };
        let query_offset = offset + path.len() + 1;
        let fragment_offset = offset + rest.len() + 1;
        let path = match path {
            "" => vec![TargetPart::Literal("/".to_owned())],
            path => read(path, offset, percent::is_path_byte)?,
        };
        let query = query.map(|query| read(query, query_offset, percent::is_query_byte));
        let fragment =
            fragment.map(|fragment| read(fragment, fragment_offset, percent::is_query_byte));
        Ok(Self {
            origin,
            path,
            query: query.transpose()?,
            fragment: fragment.transpose()?,
        })
    }

    /// Whether it could result from [`parse`](Self::parse): for one from another source.
    pub(crate) fn is_sound(&self) -> bool {
        let has_origin = self.origin.as_ref().is_none_or(
            |origin| matches!(split_origin(origin), Ok((Some(normal), "")) if normal == *origin),
        );
        let are_texts = |parts: &[TargetPart], is_allowed: fn(u8) -> bool| {
            parts.iter().all(|part| match part {
                TargetPart::Literal(text) => {
                    let read = parse_parts(text, None, is_allowed);
                    read.is_ok_and(|read| read == std::slice::from_ref(part))
                }
                TargetPart::Capture(_) => true,
            })
        };
        let begins_with_slash = matches!(
            self.path.first(),
            Some(TargetPart::Literal(text)) if text.starts_with('/')
        );
        let rest = [&self.query, &self.fragment];
        has_origin
            && begins_with_slash
            && are_texts(&self.path, percent::is_path_byte)
            && rest
                .iter()
                .filter_map(|parts| parts.as_ref())
                .all(|parts| are_texts(parts, percent::is_query_byte))
    }

    /// A part of its text that looks like a placeholder which the source lacks: `:pgae`, but not
    /// the colon of `/wiki/Talk:Page` or of `#:~:text=`.
    #[must_use]
    pub fn lookalike(&self) -> Option<&str> {
        let rest = [&self.query, &self.fragment].into_iter().flatten();
        let parts = [&self.path].into_iter().chain(rest).flatten();
        let mut texts = parts.filter_map(|part| match part {
            TargetPart::Literal(text) => Some(text.as_str()),
            TargetPart::Capture(_) => None,
        });
        texts.find_map(|text| {
            text.match_indices(':').find_map(|(at, _)| {
                let len = name_len(&text[at + 1..]);
                let is_inner =
                    text[..at].ends_with(|last: char| last.is_alphanumeric() || last == '~');
                (len > 0 && !is_inner).then(|| &text[at..=at + len])
            })
        })
    }

    /// Whether it leads to a path of the requested host.
    #[must_use]
    pub fn is_path(&self) -> bool {
        self.origin.is_none()
    }

    /// The decoded path, if it is one of this host and has no placeholder.
    #[must_use]
    pub fn static_path(&self) -> Option<Vec<u8>> {
        match (&self.origin, self.path.as_slice()) {
            (None, [TargetPart::Literal(path)]) => decoded(path.as_bytes()),
            _ => None,
        }
    }

    /// Replaces the content of `out` by the value of `location`. The query of the request is passed
    /// on unless the target has one. `None` if it becomes longer than [`LOCATION_MAX`].
    pub(crate) fn write_location(
        &self,
        from: Captured<'_>,
        passed_on: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        out.clear();
        out.extend_from_slice(self.origin.as_deref().unwrap_or_default().as_bytes());
        let path_start = out.len();
        write_parts(&self.path, from, percent::is_path_byte, out)?;
        keep_one_slash(out, path_start);
        if let Some(query) = &self.query {
            out.push(b'?');
            write_parts(query, from, percent::is_query_value_byte, out)?;
        } else if let Some(query) = passed_on {
            out.push(b'?');
            write_query(query, out);
        }
        if let Some(fragment) = &self.fragment {
            out.push(b'#');
            write_parts(fragment, from, percent::is_query_byte, out)?;
        }
        (out.len() <= LOCATION_MAX).then_some(())
    }

    /// Writes the path in canonical form, decoded: the path to answer with instead of the requested
    /// one. `None` if it has none, or leads out of the site.
    pub(crate) fn write_path(&self, from: Captured<'_>, out: &mut Vec<u8>) -> Option<()> {
        let mut encoded = Vec::new();
        write_parts(&self.path, from, percent::is_path_byte, &mut encoded)?;
        keep_one_slash(&mut encoded, 0);
        let mut scratch = Vec::new();
        let path = decode_path(&encoded, &mut scratch).ok()?;
        out.clear();
        out.extend_from_slice(path.as_bytes());
        Some(())
    }
}

/// The canonical form of a percent-encoded path.
pub(crate) fn decoded(path: &[u8]) -> Option<Vec<u8>> {
    let mut scratch = Vec::new();
    let path = decode_path(path, &mut scratch).ok()?;
    Some(path.as_bytes().to_vec())
}

/// Appends a query as sent, except that bytes not allowed in a URI are percent-encoded.
fn write_query(query: &[u8], out: &mut Vec<u8>) {
    let is_kept =
        |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'#' | b'<' | b'>' | b'\\');
    for &byte in query {
        percent::encode(byte, is_kept, out);
    }
}

/// A path that starts with two slashes names a host (RFC 3986 section 4.2).
fn keep_one_slash(out: &mut Vec<u8>, start: usize) {
    let path = &out[start..];
    let count = path.iter().take_while(|&&byte| byte == b'/').count();
    if count == 0 {
        out.insert(start, b'/');
    } else {
        out.drain(start..start + count - 1);
    }
}

fn write_parts(
    parts: &[TargetPart],
    from: Captured<'_>,
    is_allowed: fn(u8) -> bool,
    out: &mut Vec<u8>,
) -> Option<()> {
    for part in parts {
        match part {
            TargetPart::Literal(text) => out.extend_from_slice(text.as_bytes()),
            TargetPart::Capture(index) => {
                let capture = from.captures.as_slice().get(usize::from(*index))?;
                let range = capture.start as usize..capture.end as usize;
                match capture.source {
                    Source::Host => encode_all(from.host.get(range)?, is_allowed, out),
                    Source::Path => encode_all(from.path.get(range)?, is_allowed, out),
                    Source::Query => {
                        let decoded = percent::decode_query(from.query.get(range)?);
                        encode_all(&decoded, is_allowed, out);
                    }
                }
            }
        }
        if out.len() > LOCATION_MAX {
            return None;
        }
    }
    Some(())
}

fn encode_all(bytes: &[u8], is_allowed: fn(u8) -> bool, out: &mut Vec<u8>) {
    for &byte in bytes {
        percent::encode(byte, is_allowed, out);
    }
}

/// The origin of a URL, and the rest.
fn split_origin(text: &str) -> Result<(Option<String>, &str), Wrong> {
    if text.starts_with("//") || text.starts_with("/\\") {
        let wrong = Wrong::new(text, "a path that starts with one '/', or a URL");
        return Err(wrong.help("write the scheme: 'https://...'"));
    }
    if text.starts_with('/') {
        return Ok((None, text));
    }
    let (scheme, rest) = text.split_once("://").unwrap_or_default();
    let scheme = scheme.to_ascii_lowercase();
    if !matches!(scheme.as_str(), "http" | "https") {
        return Err(Wrong::new(
            text,
            "a path that starts with '/', or an 'http://' or 'https://' URL",
        ));
    }
    let offset = text.len() - rest.len();
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => (host, Some(port)),
        _ => (authority, None),
    };
    let lower = host.to_lowercase();
    let labels: Result<Vec<String>, String> = lower.split('.').map(label).collect();
    let host = labels.map_or_else(|_| host.to_owned(), |labels| labels.join("."));
    let is_name_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let is_name = !host.is_empty() && host.bytes().all(is_name_byte);
    let is_address = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|host| host.parse::<core::net::Ipv6Addr>().is_ok());
    if host.len() > HOST_MAX || !(is_name || is_address) {
        let wrong = Wrong::new(authority, "a host name, without placeholders");
        return Err(wrong
            .at(text, offset)
            .help("a request must not choose the host it is sent to"));
    }
    let port = port.map_or(String::new(), |port| format!(":{port}"));
    Ok((Some(format!("{scheme}://{host}{port}")), rest))
}

fn split_at(text: &str, separator: char) -> (&str, Option<&str>) {
    match text.split_once(separator) {
        Some((before, after)) => (before, Some(after)),
        None => (text, None),
    }
}

fn parse_parts(
    text: &str,
    names: Option<&[&str]>,
    is_allowed: fn(u8) -> bool,
) -> Result<Vec<TargetPart>, Wrong> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let bytes = text.as_bytes();
    let mut index = 0;
    while index < bytes.len() {
        if let Some(names) = names.filter(|_| bytes[index] == b':') {
            let len = name_len(&text[index + 1..]);
            let name = &text[index + 1..index + 1 + len];
            if let Some(position) = names.iter().position(|known| *known == name) {
                if !literal.is_empty() {
                    parts.push(TargetPart::Literal(std::mem::take(&mut literal)));
                }
                parts.push(TargetPart::Capture(position as u8));
                index += 1 + len;
                continue;
            }
        }
        let byte = bytes[index];
        let is_escape =
            byte == b'%' && percent::hex_pair(bytes.get(index + 1..index + 3)).is_some();
        if byte == b'%' && !is_escape {
            let wrong = Wrong::new("%", "'%' and two hexadecimal digits");
            return Err(wrong.at(text, index).help("write '%25' for a percent sign"));
        }
        if is_escape || is_allowed(byte) {
            literal.push(char::from(byte));
        } else {
            let mut encoded = Vec::new();
            percent::encode(byte, is_allowed, &mut encoded);
            literal.extend(encoded.into_iter().map(char::from));
        }
        index += 1;
    }
    if !literal.is_empty() {
        parts.push(TargetPart::Literal(literal));
    }
    Ok(parts)
}
