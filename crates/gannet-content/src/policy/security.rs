//! Security fields that every answer has unless the site says otherwise, and the CORS switch.
//!
//! Only fields that break no site are sent by default. `cross-origin-opener-policy` is not among
//! them: `same-origin` cuts pages off from the windows in which people log in or pay, and
//! `same-origin-allow-popups` cuts off the page that such a window ends with. Nor is
//! `frame-ancestors`, which would take widgets, previews and slides away from the pages that embed
//! them; a static site has no sessions for a frame to abuse.

/// The fields: names in lower case, in the order in which they are sent.
///
/// `policy` is what a page's own policy adds: see [`csp`](super::csp). It is `None` for content
/// that has none.
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
