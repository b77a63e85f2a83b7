//! URLs of the schemes http and https, as far as a download needs them (RFC 3986).

use std::fmt;

/// A URL that names a server and a request target.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Url {
    /// Whether it is `https`.
    pub(crate) is_https: bool,
    /// Host name or address, IPv6 without brackets.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
    /// Path and query.
    pub(crate) target: String,
}

impl Url {
    /// Reads `text`; without a scheme it is `http`.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (is_https, rest) = match text.split_once("://") {
            None => (false, text),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => (false, rest),
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => (true, rest),
            Some((scheme, _)) => {
                return Err(format!("the scheme is '{scheme}' (expected http or https)"));
            }
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let (host, port) = split_authority(authority)?;
        let port = match port {
            None | Some("") => 80 + 363 * u16::from(is_https),
            Some(digits) => digits
                .parse()
                .map_err(|_| format!("'{digits}' is no port"))?,
        };
        let target = match target {
            "" => "/".to_owned(),
            query if query.starts_with('?') => format!("/{query}"),
            path => path.to_owned(),
        };
        // Nothing that is typed here may end a line of the request.
        if !target.bytes().all(|b| (0x21..0x7f).contains(&b)) {
            return Err("the path has characters that must be percent-encoded".into());
        }
        Ok(Self {
            is_https,
            host: host.to_owned(),
            port,
            target,
        })
    }

    /// Where `location`, a field value of this URL's response, leads (RFC 9110 section 10.2.2,
    /// RFC 3986 section 5.2). What servers should have percent-encoded is.
    pub(super) fn join(&self, location: &str) -> Result<Self, String> {
        let location = encoded(location.split('#').next().unwrap_or_default());
        if has_scheme(&location) {
            return Self::parse(&location);
        }
        let scheme = if self.is_https { "https" } else { "http" };
        if let Some(rest) = location.strip_prefix("//") {
            return Self::parse(&format!("{scheme}://{rest}"));
        }
        let (old, _) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let (path, query) = match location.split_once('?') {
            Some((path, query)) => (path, format!("?{query}")),
            None => (location.as_str(), String::new()),
        };
        let path = match path {
            "" => old.to_owned(),
            path if path.starts_with('/') => without_dots(path),
            path => {
                let folder = old.rsplit_once('/').map_or("", |(folder, _)| folder);
                without_dots(&format!("{folder}/{path}"))
            }
        };
        let authority = self.authority();
        Self::parse(&format!("{scheme}://{authority}{path}{query}"))
    }

    /// Host and port as the `host` field has them.
    pub(crate) fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.is_https, self.port) {
            (false, 80) | (true, 443) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

/// Whether `reference` begins with a scheme (RFC 3986 section 3.1): a colon in its path or query
/// does not make one.
fn has_scheme(reference: &str) -> bool {
    let Some((scheme, _)) = reference.split_once(':') else {
        return false;
    };
    let first = scheme.bytes().next();
    first.is_some_and(|b| b.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
}

/// `text` with what may not stand in a URL percent-encoded.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            0x21..=0x7e => out.push(byte.into()),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// `path` without its `.` and `..` segments (RFC 3986 section 5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                // What is left is a folder.
                if is_last {
                    kept.push("");
                }
            }
            _ => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.target)
    }
}

fn split_authority(authority: &str) -> Result<(&str, Option<&str>), String> {
    if authority.contains('@') {
        return Err("it names a user, which is not supported".into());
    }
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("a '[' without its ']'")?;
        (host, after.strip_prefix(':'))
    } else {
        match authority.split_once(':') {
            None => (authority, None),
            Some((host, port)) => (host, Some(port)),
        }
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
    if host.is_empty() {
        return Err("it names no host".into());
    }
    if !host.chars().all(plain) {
        return Err(format!("'{host}' is no host"));
    }
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: Result<(bool, &str, u16, &str), ()>) {
        let found = Url::parse(text);
        let found = found
            .as_ref()
            .map(|u| (u.is_https, u.host.as_str(), u.port, u.target.as_str()));
        assert_eq!(found.map_err(|_| ()), expect, "{text}");
    }

    #[test]
    fn urls() {
        check("example.org", Ok((false, "example.org", 80, "/")));
        check("HTTPS://h:8443/a?b#c", Ok((true, "h", 8443, "/a?b")));
        check("http://[::1]:8080?x", Ok((false, "::1", 8080, "/?x")));
        check("https://h:/", Ok((true, "h", 443, "/")));
        for bad in [
            "ftp://h/",
            "http:///a",
            "http://h:x/",
            "http://[::1/",
            "http://h/a b",
            "http://me:word@h/",
            "",
        ] {
            check(bad, Err(()));
        }
        check("http://h/\r\nx: y", Err(()));
        check("http://h\r\nx/", Err(()));
    }

    #[test]
    fn locations() {
        let url = Url::parse("https://h:8443/a/b?c").expect("good");
        for (location, expect) in [
            ("/x", "https://h:8443/x"),
            ("x", "https://h:8443/a/x"),
            ("//o/x", "https://o/x"),
            ("http://o/", "http://o/"),
            ("HTTP://o", "http://o/"),
            ("?y", "https://h:8443/a/b?y"),
            ("#y", "https://h:8443/a/b"),
            ("../x/./y", "https://h:8443/x/y"),
            ("../../../x", "https://h:8443/x"),
            ("..", "https://h:8443/"),
            (".", "https://h:8443/a/"),
            ("/x?next=http://o/", "https://h:8443/x?next=http://o/"),
            ("x y\u{e9}", "https://h:8443/a/x%20y%C3%A9"),
        ] {
            assert_eq!(url.join(location), Url::parse(expect), "{location}");
        }
    }
}
