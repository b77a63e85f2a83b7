//! Resolves URLs as written in a page to paths of the site, according to the URL standard of
//! browsers.

use gannet_http::semantics::target_path::decode_path;
use url::{Host, Position, Url};

/// What a URL refers to.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Resolved {
    /// A resource of this site.
    Internal(Internal),
    /// Another site, over HTTP without TLS.
    Insecure,
    /// Another site, or no resource at all: `https:`, `mailto:`, `data:`.
    Elsewhere,
    /// Not a valid URL or path, with the reason.
    Bad(&'static str),
}

/// A resource of this site.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Internal {
    /// The path in canonical form.
    pub(super) path: Vec<u8>,
    /// The query.
    pub(super) query: Option<String>,
    /// The fragment as written.
    pub(super) fragment: Option<String>,
}

/// The host of documents; no real site has this name (RFC 6761 section 6.4).
const OWN_HOST: &str = "own.invalid";

/// Where a site is found: its hosts, and the beginning of all its paths there (percent-encoded), which it
/// does not know itself.
#[derive(Clone, Copy, Default)]
pub(super) struct Origins<'a> {
    pub(super) hosts: &'a [String],
    pub(super) prefix: &'a str,
}

/// Resolves `reference` in a document whose path (percent-encoded) is `base`.
pub(super) fn resolve(base: &str, reference: &str, origins: Origins<'_>) -> Resolved {
    let trimmed = reference.trim_matches(|c: char| c <= ' ');
    let scheme = ["http:", "https:"].into_iter().find(|scheme| {
        let start = trimmed.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    // Browsers accept these URLs, but their authors cannot have meant them.
    let after = trimmed
        .get(scheme.map_or(0, str::len)..)
        .unwrap_or_default();
    match after.strip_prefix("//") {
        None if scheme.is_some() => return Resolved::Bad("two slashes must follow the scheme"),
        Some(authority) if authority.is_empty() || authority.starts_with(['/', '?', '#']) => {
            return Resolved::Bad("it has no host");
        }
        _ => {}
    }
    // Production sites are served over TLS: URLs without a scheme are secure.
    let document = Url::parse(&format!("https://{OWN_HOST}{}{base}", origins.prefix));
    let Ok(url) = document.and_then(|document| document.join(trimmed)) else {
        return Resolved::Bad("it is not a URL");
    };
    if !matches!(url.scheme(), "http" | "https") {
        return Resolved::Elsewhere;
    }
    let authority = &url[Position::BeforeHost..Position::AfterPort];
    let is_own = |known: &String| known.eq_ignore_ascii_case(authority);
    if authority != OWN_HOST && !origins.hosts.iter().any(is_own) {
        return match url.scheme() {
            "http" if !is_loopback(&url) => Resolved::Insecure,
            _ => Resolved::Elsewhere,
        };
    }
    let mut scratch = Vec::new();
    let path = without_empty(url.path());
    let path = match path.strip_prefix(origins.prefix) {
        Some("") => "/",
        Some(own) if own.starts_with('/') => own,
        // Another site of the host.
        _ => return Resolved::Elsewhere,
    };
    match decode_path(path.as_bytes(), &mut scratch) {
        Ok(path) => Resolved::Internal(Internal {
            path: path.as_bytes().to_vec(),
            query: url.query().map(str::to_owned),
            // As written: the page's identifiers are not percent-encoded.
            fragment: trimmed.split_once('#').map(|(_, it)| it.to_owned()),
        }),
        Err(_) => Resolved::Bad("no server accepts this path"),
    }
}

/// The path without empty segments, which servers ignore.
fn without_empty(path: &str) -> String {
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    let mut joined = segments.fold(String::new(), |joined, segment| joined + "/" + segment);
    if path.ends_with('/') {
        joined.push('/');
    }
    joined
}

/// Browsers treat loopback as secure.
fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_come_to_paths() {
        let hosts = ["example.org".to_owned()];
        let origins = Origins {
            hosts: &hosts,
            prefix: "",
        };
        let check = |base: &str, reference: &str, path: &str, query: Option<&str>| {
            let Resolved::Internal(found) = resolve(base, reference, origins) else {
                panic!("{reference}: {:?}", resolve(base, reference, origins));
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
    fn paths_of_a_part_of_a_host_are_those_below_its_prefix() {
        let hosts = ["example.org".to_owned()];
        let origins = Origins {
            hosts: &hosts,
            prefix: "/docs",
        };
        let check = |reference: &str, path: Option<&str>| {
            let found = match resolve("/a/b.html", reference, origins) {
                Resolved::Internal(found) => Some(found.path),
                _ => None,
            };
            assert_eq!(found.as_deref(), path.map(str::as_bytes), "{reference}");
        };
        check("c.html", Some("/a/c.html"));
        check("../", Some("/"));
        check("/docs/c", Some("/c"));
        check("/docs", Some("/"));
        check("https://example.org/docs/c", Some("/c"));
        check("/docs2/c", None);
        check("/c", None);
        check("../../c", None);
    }

    #[test]
    fn what_is_elsewhere_is_told_apart() {
        let check = |reference: &str, expect: Resolved| {
            assert_eq!(
                resolve("/", reference, Origins::default()),
                expect,
                "{reference}"
            );
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
            Resolved::Bad("two slashes must follow the scheme"),
        );
        check("a%5cb", Resolved::Bad("no server accepts this path"));
        check("a%zz", Resolved::Bad("no server accepts this path"));
    }
}
