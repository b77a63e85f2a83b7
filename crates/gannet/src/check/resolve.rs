//! From a URL as it stands in a page to a path of the site (RFC 3986 section 5, and what the URL
//! standard of browsers does on top of it).

use gannet_http::semantics::target_path::decode_path;

/// What a URL refers to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Resolved {
    /// Something of this site.
    Internal(Internal),
    /// Something elsewhere, over HTTP without TLS.
    Insecure,
    /// Something elsewhere, or no resource at all: `https:`, `mailto:`, `data:`.
    Elsewhere,
    /// Nothing that can be asked for, with the reason.
    Bad(&'static str),
}

/// A resource of this site.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Internal {
    /// The path in canonical form.
    pub(super) path: Vec<u8>,
    /// The query.
    pub(super) query: Option<String>,
    /// The fragment as it stands there.
    pub(super) fragment: Option<String>,
}

/// Resolves `reference` in a document whose path (percent-encoded) is `base`. `origins` are the
/// hosts that are this site.
pub(super) fn resolve(base: &str, reference: &str, origins: &[String]) -> Resolved {
    let reference: String = reference
        .trim_matches(|c: char| c <= ' ')
        .chars()
        .filter(|c| !matches!(c, '\t' | '\n' | '\r'))
        .collect();
    let (rest, fragment) = match reference.split_once('#') {
        Some((rest, fragment)) => (rest, Some(fragment.to_owned())),
        None => (reference.as_str(), None),
    };
    let (scheme, rest) = split_scheme(rest);
    let scheme = scheme.map(str::to_ascii_lowercase);
    if !matches!(scheme.as_deref(), None | Some("http" | "https")) {
        return Resolved::Elsewhere;
    }
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query.to_owned())),
        None => (rest, None),
    };
    // Browsers take a backslash for a slash in these schemes.
    let rest = rest.replace('\\', "/");
    let path = if let Some(after) = rest.strip_prefix("//") {
        let slash = after.find('/').unwrap_or(after.len());
        let (host, path) = after.split_at(slash);
        if host.is_empty() {
            return Resolved::Bad("it has no host");
        }
        if !origins.iter().any(|known| known.eq_ignore_ascii_case(host)) {
            return match scheme.as_deref() {
                Some("http") if !is_loopback(host) => Resolved::Insecure,
                _ => Resolved::Elsewhere,
            };
        }
        if path.is_empty() { "/" } else { path }.to_owned()
    } else if scheme.is_some() {
        // `http:path` means the same host to browsers, and nothing to RFC 3986.
        return Resolved::Bad("a scheme is followed by two slashes");
    } else if rest.is_empty() {
        base.to_owned()
    } else if rest.starts_with('/') {
        rest
    } else {
        let folder = base.rfind('/').map_or("/", |slash| &base[..=slash]);
        format!("{folder}{rest}")
    };
    let raw = encode(&without_dots(&path));
    let mut scratch = Vec::new();
    match decode_path(raw.as_bytes(), &mut scratch) {
        Ok(path) => Resolved::Internal(Internal {
            path: path.as_bytes().to_vec(),
            query,
            fragment,
        }),
        Err(_) => Resolved::Bad("no server takes this path"),
    }
}

/// RFC 3986 section 3.1.
fn split_scheme(text: &str) -> (Option<&str>, &str) {
    match text.split_once(':') {
        Some((scheme, rest))
            if scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.')) =>
        {
            (Some(scheme), rest)
        }
        _ => (None, text),
    }
}

/// Browsers do not go above the root, they stay there.
fn without_dots(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut is_folder = false;
    for segment in path.split('/').skip(1) {
        let plain = segment.to_ascii_lowercase().replace("%2e", ".");
        is_folder = matches!(plain.as_str(), "." | ".." | "");
        match plain.as_str() {
            "." | "" => {}
            ".." => {
                segments.pop();
            }
            _ => segments.push(segment),
        }
    }
    let mut path = String::from("/");
    path.push_str(&segments.join("/"));
    if is_folder && !path.ends_with('/') {
        path.push('/');
    }
    path
}

/// Encodes what clients encode: everything but visible ASCII.
fn encode(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        match byte {
            b'"' | b'<' | b'>' | b'`' | b'{' | b'}' | b'|' | b'^' | b'[' | b']' => {
                encoded.push_str(&format!("%{byte:02X}"));
            }
            b'!'..=b'~' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Browsers hold this machine to be secure.
fn is_loopback(host: &str) -> bool {
    let name = host.split(':').next().unwrap_or_default();
    matches!(name, "localhost" | "127.0.0.1") || host.starts_with("[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_come_to_paths() {
        let origins = ["example.org".to_owned()];
        let check = |base: &str, reference: &str, path: &str, query: Option<&str>| {
            let Resolved::Internal(found) = resolve(base, reference, &origins) else {
                panic!("{reference}: {:?}", resolve(base, reference, &origins));
            };
            assert_eq!(String::from_utf8_lossy(&found.path), path, "{reference}");
            assert_eq!(found.query.as_deref(), query, "{reference}");
        };
        let base = "/a/b.html";
        check(base, "c.html", "/a/c.html", None);
        check(base, "", "/a/b.html", None);
        check(base, "#x", "/a/b.html", None);
        check(base, "?q", "/a/b.html", Some("q"));
        check(base, "./", "/a/", None);
        check(base, "..", "/", None);
        check(base, "../../../c", "/c", None);
        check(base, "%2e%2e/c", "/c", None);
        check(base, "/c//d", "/c/d", None);
        check(base, " c\nd ", "/a/cd", None);
        check(base, "c d%20ü", "/a/c d ü", None);
        check(base, "\\c", "/c", None);
        check(base, "https://example.org/c?q#f", "/c", Some("q"));
        check(base, "//EXAMPLE.org", "/", None);
        check(base, "./c:d", "/a/c:d", None);
    }

    #[test]
    fn what_is_elsewhere_is_told_apart() {
        let check = |reference: &str, expect: Resolved| {
            assert_eq!(resolve("/", reference, &[]), expect, "{reference}");
        };
        check("http://a/", Resolved::Insecure);
        check("http://localhost:80/", Resolved::Elsewhere);
        check("https://a/", Resolved::Elsewhere);
        check("//a/", Resolved::Elsewhere);
        check("mailto:a@b", Resolved::Elsewhere);
        check("javascript:void(0)", Resolved::Elsewhere);
        check("data:,x", Resolved::Elsewhere);
        check("http:///x", Resolved::Bad("it has no host"));
        check(
            "http:x",
            Resolved::Bad("a scheme is followed by two slashes"),
        );
        check("a%2fb", Resolved::Bad("no server takes this path"));
        check("a%zz", Resolved::Bad("no server takes this path"));
    }
}
