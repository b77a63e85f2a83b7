//! Parses what users type as a URL: a path of a site, or a complete `http` URL.

use std::borrow::Cow;

use gannet_http::semantics::target_path::{decode_path, encode_path};

/// A path and the other parts of its URL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Target {
    /// The scheme is `https`; without a scheme, it is `http`.
    pub is_https: bool,
    /// The host with its port, if there is one.
    pub host: Option<String>,
    /// The path as sent, beginning with a slash.
    pub raw_path: String,
    /// The path in canonical form: decoded, normalised.
    pub path: Vec<u8>,
    /// The part after the question mark.
    pub query: Option<String>,
}

impl Target {
    /// The host name in lower case, without its port; empty if there is no host.
    #[must_use]
    pub fn host_name(&self) -> String {
        let host = self.host.as_deref().unwrap_or_default();
        let name = host.split(':').next().unwrap_or_default();
        name.to_ascii_lowercase()
    }

    /// Parses `/path`, `path`, `//host/path`, `http://host/path?query#fragment`. A fragment is not
    /// part of a request and is dropped.
    ///
    /// # Errors
    /// The path is not acceptable to a server; the reason in words.
    pub fn parse(typed: &str) -> Result<Self, &'static str> {
        let mut target = Self::undecoded(typed)?;
        match target.decode() {
            true => Ok(target),
            false => Err("no server would accept this path"),
        }
    }

    /// Parses without decoding the path, which is left as it is sent, acceptable or not.
    ///
    /// # Errors
    /// The URL has a scheme but no host.
    pub fn undecoded(typed: &str) -> Result<Self, &'static str> {
        let typed = typed.split('#').next().unwrap_or_default();
        let (is_https, rest) = match (
            typed.strip_prefix("https://"),
            typed.strip_prefix("http://"),
        ) {
            (Some(rest), _) => (true, Some(rest)),
            (None, rest) => (false, rest.or_else(|| typed.strip_prefix("//"))),
        };
        let (host, path) = match rest {
            None => (None, Cow::Borrowed(typed)),
            Some(rest) => {
                let end = rest.find(['/', '?']).unwrap_or(rest.len());
                (Some(rest[..end].to_owned()), Cow::Borrowed(&rest[end..]))
            }
        };
        if host.as_deref() == Some("") {
            return Err("it has no host");
        }
        let (path, query) = match path.split_once('?') {
            Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
            None => (path.into_owned(), None),
        };
        // Encodes characters that people type and clients encode.
        let mut raw_path = String::with_capacity(path.len() + 1);
        if !path.starts_with('/') {
            raw_path.push('/');
        }
        for letter in path.chars() {
            match letter {
                '!'..='~' => raw_path.push(letter),
                _ => {
                    let bytes = letter.encode_utf8(&mut [0; 4]).as_bytes().to_vec();
                    raw_path.extend(bytes.iter().map(|byte| format!("%{byte:02X}")));
                }
            }
        }
        Ok(Self {
            is_https,
            host,
            path: raw_path.clone().into_bytes(),
            raw_path,
            query,
        })
    }

    /// Decodes the path to its canonical form. Returns false if a server answers 400 instead.
    pub fn decode(&mut self) -> bool {
        let mut scratch = Vec::new();
        let Ok(path) = decode_path(self.raw_path.as_bytes(), &mut scratch) else {
            return false;
        };
        self.path = path.as_bytes().to_vec();
        true
    }

    /// Path and query as sent.
    #[must_use]
    pub fn path_and_query(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.raw_path),
            None => self.raw_path.clone(),
        }
    }
}

/// A path as in a URL: visible ASCII, whatever the file's name.
#[must_use]
pub fn url(path: &[u8]) -> String {
    let mut encoded = Vec::with_capacity(path.len());
    encode_path(path, &mut encoded);
    String::from_utf8_lossy(&encoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_urls_are_read() {
        let check = |typed: &str, host: Option<&str>, path: &str, query: Option<&str>| {
            let target = Target::parse(typed).expect(typed);
            assert_eq!(target.host.as_deref(), host, "{typed}");
            assert_eq!(target.path, path.as_bytes(), "{typed}");
            assert_eq!(target.query.as_deref(), query, "{typed}");
        };
        check("a/b.html", None, "/a/b.html", None);
        check("/a%20b?x=1#top", None, "/a b", Some("x=1"));
        check("/ü b", None, "/ü b", None);
        check("https://h:8/", Some("h:8"), "/", None);
        check("http://h", Some("h"), "/", None);
        check("http://h?q", Some("h"), "/", Some("q"));
        for bad in ["/..", "/%zz", "http:///x", "/a%5cb"] {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }
}
