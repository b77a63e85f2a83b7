//! Security fields that every answer has unless the site says otherwise, and the CORS switch.

/// What the fields are made of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SecurityOptions<'a> {
    /// The site is reached over TLS only: browsers are told to remember that for a year
    /// (RFC 6797), and to ask for everything over TLS.
    pub has_tls: bool,
    /// Who may show pages in a frame: the sources of `frame-ancestors` (CSP level 3), usually
    /// `'self'`.
    pub frame_ancestors: &'a str,
    /// Pages are not reachable from windows of other sites that opened them, and the reverse.
    pub has_opener_policy: bool,
}

impl Default for SecurityOptions<'_> {
    fn default() -> Self {
        Self {
            has_tls: false,
            frame_ancestors: "'self'",
            has_opener_policy: true,
        }
    }
}

/// What an answer is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AnswerKind {
    /// What a browser may show in a window or frame: pages, SVG, PDF, errors.
    Document,
    /// Scripts, styles, images and the like.
    Part,
    /// A redirect, which a browser does not show.
    Redirect,
}

impl AnswerKind {
    /// The kind of content by its type.
    #[must_use]
    pub fn of_content_type(content_type: &str) -> Self {
        let essence = content_type.split(';').next().unwrap_or_default().trim();
        let is_document = matches!(
            essence,
            "text/html"
                | "application/xhtml+xml"
                | "image/svg+xml"
                | "application/pdf"
                | "application/xml"
                | "text/xml"
                | "text/plain"
        );
        if is_document {
            Self::Document
        } else {
            Self::Part
        }
    }
}

/// The value of `strict-transport-security`: a year. Neither subdomains nor preloading, which
/// are promises about more than this site.
pub const HSTS: &str = "max-age=31536000";

/// The fields: names in lower case, in the order in which they are sent.
///
/// `policy` is what a page's own policy adds: see [`csp`](super::csp). It is `None` for content
/// that has none.
#[must_use]
pub fn fields(
    kind: AnswerKind,
    options: &SecurityOptions<'_>,
    policy: Option<&super::csp::Policy>,
) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("x-content-type-options", "nosniff".to_owned()),
        (
            "referrer-policy",
            "strict-origin-when-cross-origin".to_owned(),
        ),
    ];
    if options.has_tls {
        fields.push(("strict-transport-security", HSTS.to_owned()));
    }
    if kind == AnswerKind::Document {
        let mut enforced = format!("frame-ancestors {}", options.frame_ancestors);
        if options.has_tls {
            enforced.push_str("; upgrade-insecure-requests");
        }
        match policy {
            Some(policy) if policy.is_enforced => {
                enforced = format!("{}; {enforced}", policy.value);
            }
            Some(policy) => {
                fields.push(("content-security-policy-report-only", policy.value.clone()))
            }
            None => {}
        }
        fields.push(("content-security-policy", enforced));
        if options.has_opener_policy {
            fields.push(("cross-origin-opener-policy", "same-origin".to_owned()));
        }
    }
    fields
}

/// Who may read the site's content from scripts of other sites.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Cors {
    /// Nobody.
    #[default]
    Off,
    /// Everybody; never with cookies.
    Any,
    /// One other site: `https://app.example.org`.
    Origin(String),
}

/// The fields of every answer for cross-origin requests (Fetch standard, section 3.3).
#[must_use]
pub fn cors_fields(cors: &Cors) -> Vec<(&'static str, String)> {
    let origin = match cors {
        Cors::Off => return Vec::new(),
        Cors::Any => "*",
        Cors::Origin(origin) => origin,
    };
    vec![
        ("access-control-allow-origin", origin.to_owned()),
        // What a script cannot read unless it is named; the safelisted names need not be.
        (
            "access-control-expose-headers",
            "accept-ranges, content-encoding, content-range, etag, repr-digest".to_owned(),
        ),
        ("cross-origin-resource-policy", "cross-origin".to_owned()),
    ]
}

/// The fields of the answer to a preflight request: `OPTIONS` with
/// `access-control-request-method`.
#[must_use]
pub fn preflight_fields(cors: &Cors) -> Vec<(&'static str, String)> {
    let mut fields = cors_fields(cors);
    if !fields.is_empty() {
        fields.extend([
            (
                "access-control-allow-methods",
                "GET, HEAD, OPTIONS".to_owned(),
            ),
            (
                "access-control-allow-headers",
                "if-match, if-modified-since, if-none-match, if-range, if-unmodified-since, range, \
                 want-repr-digest"
                    .to_owned(),
            ),
            ("access-control-max-age", "86400".to_owned()),
        ]);
    }
    fields
}
