//! The version of HTTP on a connection, and its machine.

use gannet_http::h1;

use super::streams::Streams;

/// See the module documentation.
pub(crate) enum Protocol {
    /// HTTP/1, or not known yet.
    Http1(Http1),
    Http2(Box<Streams>),
    /// All streams have ended, and no others will follow.
    Over,
}

/// The HTTP/1 side of a connection.
pub(crate) struct Http1 {
    pub(crate) machine: h1::Connection,
    /// In clear text HTTP/2 starts with its preface (RFC 9113 section 3.3): all input so far is a
    /// prefix of it.
    pub(crate) may_become_http2: bool,
    /// Every request is redirected to its URL under `https`.
    pub(crate) redirects: bool,
}

impl Protocol {
    /// The state of a connection before any input.
    pub(super) fn new() -> Self {
        Self::Http1(Http1 {
            machine: h1::Connection::new(),
            may_become_http2: true,
            redirects: false,
        })
    }

    pub(crate) fn http1(&mut self) -> Option<&mut Http1> {
        match self {
            Self::Http1(http1) => Some(http1),
            Self::Http2(_) | Self::Over => None,
        }
    }

    pub(crate) fn streams(&self) -> Option<&Streams> {
        match self {
            Self::Http2(streams) => Some(streams),
            Self::Http1(_) | Self::Over => None,
        }
    }

    pub(crate) fn streams_mut(&mut self) -> Option<&mut Streams> {
        match self {
            Self::Http2(streams) => Some(streams),
            Self::Http1(_) | Self::Over => None,
        }
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.streams().is_some()
    }

    /// Whether it is idle between requests.
    pub(crate) fn is_idle(&self) -> bool {
        match self {
            Self::Http1(http1) => http1.machine.is_idle(),
            Self::Http2(streams) => streams.is_idle(),
            Self::Over => true,
        }
    }

    /// Whether the first bytes may yet become the preface of HTTP/2.
    pub(crate) fn may_become_http2(&self) -> bool {
        matches!(self, Self::Http1(http1) if http1.may_become_http2)
    }

    /// Excludes clear-text HTTP/2: the connection speaks HTTP/1, or negotiates its version.
    pub(crate) fn exclude_http2(&mut self) {
        if let Self::Http1(http1) = self {
            http1.may_become_http2 = false;
        }
    }
}
