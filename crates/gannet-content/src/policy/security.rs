//! Security fields that every response has unless the site overrides them, and the CORS switch.
//!
//! Only fields that break no site are sent by default. `cross-origin-opener-policy` is not one of
//! them: `same-origin` cuts pages off from the windows in which people log in or pay, and
//! `same-origin-allow-popups` cuts off the page that opened such a window. Nor is
//! `frame-ancestors`, which would break widgets, previews and slides embedded in other pages; a
//! static site has no sessions for a frame to abuse.

/// The fields: names in lower case, in the order in which they are sent.
///
/// `policy` adds the policy of a page: see [`csp`](super::csp). It is `None` for content without
/// one.
#[must_use]
pub fn fields(policy: Option<&super::csp::Policy>) -> Vec<(&'static str, String)> {
    let mut fields = vec![
        ("x-content-type-options", "nosniff".to_owned()),
        (
            "referrer-policy",
            "strict-origin-when-cross-origin".to_owned(),
        ),
    ];
    if let Some(policy) = policy {
        let name = match policy.is_enforced {
            true => "content-security-policy",
            false => "content-security-policy-report-only",
        };
        fields.push((name, policy.value.clone()));
    }
    fields
}

/// Which other sites' scripts may read the site's content.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Cors {
    /// None.
    #[default]
    Off,
    /// All; never with cookies.
    Any,
    /// One other site: `https://app.example.org`.
    Origin(String),
}

/// The fields of every response for cross-origin requests (Fetch standard, section 3.3).
#[must_use]
pub fn cors_fields(cors: &Cors) -> Vec<(&'static str, String)> {
    let origin = match cors {
        Cors::Off => return Vec::new(),
        Cors::Any => "*",
        Cors::Origin(origin) => origin,
    };
    vec![
        ("access-control-allow-origin", origin.to_owned()),
        // Fields that a script cannot read unless they are named; safelisted names need not be.
        (
            "access-control-expose-headers",
            "accept-ranges, content-encoding, content-range, etag, repr-digest".to_owned(),
        ),
        ("cross-origin-resource-policy", "cross-origin".to_owned()),
    ]
}

/// The fields of the response to a preflight request: `OPTIONS` with
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
