//! http and https URLs as a download needs them: parsed according to the URL standard of browsers,
//! restricted to what a request can carry.

use std::fmt;

use url::{Host, Position};

/// A URL that names a server and a request target.
#[derive(Clone, Debug)]
pub struct Url {
    /// As it was typed.
    typed: String,
    /// Whether it is `https`.
    pub is_https: bool,
    /// Host name or address, IPv6 without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query, percent-encoded.
    pub target: String,
}

impl Url {
    /// Parses `text`; without a scheme it is `http`.
    ///
    /// # Errors
    /// Describes in words what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        // The URL standard would drop some of them.
        if text.contains(char::is_control) {
            return Err("it has control characters".into());
        }
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        // The URL standard would skip further slashes.
        if rest.is_empty() || rest.starts_with(['/', '?', '#']) {
            return Err("it has no host".into());
        }
        Self::of(text, url::Url::parse(&format!("{scheme}://{rest}")))
    }

    /// As it was typed, for messages.
    #[must_use]
    pub fn typed(&self) -> &str {
        &self.typed
    }

    /// Resolves `location`, a field of the response from this URL (RFC 9110 section 10.2.2).
    pub(super) fn join(&self, location: &str) -> Result<Self, String> {
        let base = url::Url::parse(&self.to_string()).map_err(|cause| cause.to_string())?;
        Self::of(location, base.join(location))
    }

    fn of(typed: &str, parsed: Result<url::Url, url::ParseError>) -> Result<Self, String> {
        let url = parsed.map_err(|cause| cause.to_string())?;
        let is_https = match url.scheme() {
            "http" => false,
            "https" => true,
            scheme => return Err(format!("the scheme is '{scheme}' (expected http or https)")),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err("user names in URLs are not supported".into());
        }
        let host = match url.host() {
            Some(Host::Ipv6(address)) => address.to_string(),
            Some(host) => host.to_string(),
            None => return Err("it has no host".into()),
        };
        Ok(Self {
            typed: typed.to_owned(),
            is_https,
            host,
            port: url.port_or_known_default().unwrap_or(80),
            target: url[Position::BeforePath..Position::AfterQuery].to_owned(),
        })
    }

    /// Host and port in the form of the `host` field.
    #[must_use]
    pub fn authority(&self) -> String {
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

/// Compares what is requested, not how it was typed.
impl PartialEq for Url {
    fn eq(&self, other: &Self) -> bool {
        let parts = |url: &Self| (url.is_https, url.port);
        parts(self) == parts(other) && self.host == other.host && self.target == other.target
    }
}

impl Eq for Url {}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.target)
    }
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
        check("http://h/a b", Ok((false, "h", 80, "/a%20b")));
        check(
            "http://B\u{fc}cher.example",
            Ok((false, "xn--bcher-kva.example", 80, "/")),
        );
        for bad in [
            "ftp://h/",
            "http:///a",
            "http://h:x/",
            "http://[::1/",
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
            ("#y", "https://h:8443/a/b?c"),
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
