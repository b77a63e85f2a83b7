//! The server's own fields and responses: the fields of its pages, redirects and icon, and the
//! constant responses.

use std::sync::Arc;

use gannet_content::policy::security::preflight_fields;
use gannet_http::semantics::ready_fields::{ReadyFields, RepresentationFields};

use super::challenges::Challenges;
use crate::config::ContentOptions;
use crate::observe::board::OverdueSince;

/// A separate policy, which browsers enforce in addition to those of the page. Like `--hsts`, not
/// with a development certificate: pages under development on a machine without TLS may well use
/// `http` URLs.
pub(crate) const UPGRADE: (&str, &str) = ("content-security-policy", "upgrade-insecure-requests");

/// The field whose value [`alt_svc`] makes.
pub(crate) const ALT_SVC: &str = "alt-svc";

/// The built-in icon, for sites without one: a bird on blue.
pub const FAVICON: &[u8] = include_bytes!("favicon.png");

/// Default fields of responses that the server makes itself.
#[derive(Debug)]
pub(crate) struct OwnFields {
    /// Of error pages.
    pub(crate) page: Vec<(&'static str, String)>,
    /// Of a site's own error pages.
    pub(crate) own_page: Vec<(&'static str, String)>,
    /// Of listings.
    pub(crate) listing: Vec<(&'static str, String)>,
    /// Of redirects.
    pub(crate) redirect: Vec<(&'static str, String)>,
    /// Of answers to `OPTIONS`.
    pub(crate) options: Vec<(&'static str, String)>,
    /// Of the built-in icon; `None` if it is disabled.
    pub(crate) favicon: Option<Vec<(&'static str, String)>>,
    /// What is answered before any site is asked, if anything is.
    pub(crate) first: Option<FirstAnswers>,
    /// If a release should be current by now, and is not, the health check fails.
    pub(crate) late: Arc<OverdueSince>,
    /// Names of fields configured by the operator, which replace existing ones, except `vary`.
    pub(crate) replaced: Vec<String>,
}

/// Answers that some requests get whatever the sites have.
#[derive(Debug)]
pub(crate) struct FirstAnswers {
    /// HTTP/1 is not spoken.
    pub(crate) refuses_http1: bool,
    /// The path of the health check.
    pub(crate) health: Option<Vec<u8>>,
    /// Answers challenges by HTTP-01.
    pub(crate) challenges: Option<Challenges>,
    /// The constant response to every request: its fields and content.
    pub(crate) dummy: Option<(ReadyFields, &'static str)>,
}

impl FirstAnswers {
    /// `None` if these options want none.
    fn new(options: &ContentOptions) -> Option<Self> {
        let constant = |text: &'static str| {
            let fields = RepresentationFields {
                content_length: text.len() as u64,
                content_type: (!text.is_empty()).then_some(b"text/plain"),
                ..RepresentationFields::default()
            };
            let fields = fields.render();
            (fields.expect("constant fields are well formed"), text)
        };
        let first = Self {
            refuses_http1: options.refuses_http1,
            health: options.health.clone().map(String::into_bytes),
            challenges: options.acme_thumbprint.as_deref().map(Challenges::new),
            dummy: options.dummy.map(constant),
        };
        let Self {
            refuses_http1,
            health,
            challenges,
            dummy,
        } = &first;
        let is_any = *refuses_http1 || health.is_some() || challenges.is_some() || dummy.is_some();
        is_any.then_some(first)
    }
}

impl OwnFields {
    /// The fields under these options. Fields configured by the operator replace them.
    pub(crate) fn new(options: &ContentOptions, late: Arc<OverdueSince>) -> Self {
        let is_free = |(name, _): &(&'static str, String)| {
            let mut configured = options.fields.iter();
            !configured.any(|(configured, _)| configured == name)
        };
        let free = |fields: Vec<_>| fields.into_iter().filter(is_free).collect();
        Self {
            favicon: options.favicon.then(|| free(options.defaults.of_icon())),
            // Configured caching fields do not apply to errors.
            page: options.defaults.of_page(),
            own_page: options.defaults.of_own_page(),
            listing: options.defaults.of_listing(),
            redirect: free(options.defaults.of_redirect()),
            options: free(preflight_fields(&options.defaults.cors)),
            first: FirstAnswers::new(options),
            late,
            replaced: options
                .fields
                .iter()
                .map(|(name, _)| name.clone())
                .filter(|name| name != "vary")
                .collect(),
        }
    }
}
