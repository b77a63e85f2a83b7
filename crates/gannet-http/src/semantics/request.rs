//! A request as every version of the protocol delivers it.

use super::fields::{Fields, KnownField};

/// A request method (RFC 9110 section 9): those that a server of static content answers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Method {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `OPTIONS`
    Options,
    /// Any other, known or unknown: answered with 405 (or 501).
    Other,
}

/// A version of HTTP.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1, and later minor versions.
    Http11,
    /// HTTP/2
    Http2,
    /// HTTP/3
    Http3,
}

impl Version {
    /// The name used in logs: `HTTP/1.1`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
            Self::Http3 => "HTTP/3.0",
        }
    }
}

/// The form of a request target (RFC 9112 section 3.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TargetForm {
    /// `/path?query`
    Origin,
    /// `http://authority/path?query`
    Absolute,
    /// `authority`, for `CONNECT` only.
    Authority,
    /// `*`, for `OPTIONS` only.
    Asterisk,
}

/// A request target, split into its parts; nothing is decoded yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RequestTarget<'a> {
    /// All of it, as sent.
    pub raw: &'a [u8],
    /// Which form it has.
    pub form: TargetForm,
    /// The path, still percent-encoded. Starts with `/` in origin-form and absolute-form (where
    /// an empty one reads as `/`), is empty otherwise.
    pub path: &'a [u8],
    /// The part after the first `?`, if there is one.
    pub query: Option<&'a [u8]>,
}

/// How a request's content is framed, if it has any.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Content {
    /// It has none.
    None,
    /// This many bytes, never 0.
    Length(u64),
    /// Chunks (or, in HTTP/2 and HTTP/3, DATA frames) of unknown total.
    Chunked,
}

/// A request's head. It borrows from the bytes received.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: Method,
    /// The method as sent.
    pub method_name: &'a [u8],
    /// The request target.
    pub target: RequestTarget<'a>,
    /// The requested host and port: the target's own in absolute-form and authority-form, otherwise
    /// the `Host` field's (RFC 9112 section 3.2.2); in HTTP/2 and HTTP/3 `:authority`, otherwise
    /// `Host`. `None` only in HTTP/1.0.
    pub authority: Option<&'a [u8]>,
    /// The version of the protocol.
    pub version: Version,
    /// Its field lines.
    pub fields: Fields<'a>,
    /// Its content. The machine discards it after the response.
    pub content: Content,
}

impl Request<'_> {
    /// Whether it is a `GET` or a `HEAD`.
    #[must_use]
    pub fn is_for_content(&self) -> bool {
        matches!(self.method, Method::Get | Method::Head)
    }

    /// Bytes of the head in HTTP/1: of the request line, the field lines and the empty line. That of
    /// HTTP/2 and HTTP/3 is counted as if it had come by HTTP/1, before its compression: `:scheme` is left
    /// out, and `:authority` is a `host`.
    #[must_use]
    pub fn head_len(&self) -> usize {
        let line = self.method_name.len() + 1 + self.target.raw.len() + " HTTP/1.1\r\n".len();
        let is_pseudo = matches!(self.version, Version::Http2 | Version::Http3)
            && !self.fields.has(KnownField::Host);
        let host = self.authority.filter(|_| is_pseudo);
        let host = host.map_or(0, |host| "host: \r\n".len() + host.len());
        line + host + self.fields.section_len() + "\r\n".len()
    }
}
