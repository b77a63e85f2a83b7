//! What the server answers of its own: the fields of its pages, redirects and icon, and the constant
//! answers.

use gannet_content::policy::security::preflight_fields;
use gannet_http::semantics::ready_fields::{ReadyFields, RepresentationFields};

use crate::config::ContentOptions;

/// The icon for sites that have none: a bird on blue.
pub const FAVICON: &[u8] = include_bytes!("favicon.png");

/// Fields of answers that the server makes itself, unless somebody says otherwise.
#[derive(Debug)]
pub(crate) struct OwnFields {
    /// Of error pages and listings.
    pub(crate) page: Vec<(&'static str, String)>,
    /// Of redirects.
    pub(crate) redirect: Vec<(&'static str, String)>,
    /// Of answers to `OPTIONS`.
    pub(crate) options: Vec<(&'static str, String)>,
    /// Of the icon for sites that have none; `None` if they are to stay without.
    pub(crate) favicon: Option<Vec<(&'static str, String)>>,
    /// This path answers that the server is well.
    pub(crate) health: Option<Vec<u8>>,
    /// The constant answer to everything: its fields and content.
    pub(crate) dummy: Option<(ReadyFields, &'static str)>,
    /// Names of fields that the operator configures, which replace what is there, but for `vary`.
    pub(crate) replaced: Vec<String>,
}

impl OwnFields {
    /// The fields under these options. What the operator configures replaces them.
    pub(crate) fn new(options: &ContentOptions) -> Self {
        let is_free = |(name, _): &(&'static str, String)| {
            let mut configured = options.fields.iter();
            !configured.any(|(configured, _)| configured == name)
        };
        let free = |fields: Vec<_>| fields.into_iter().filter(is_free).collect();
        Self {
            favicon: options.favicon.then(|| free(options.defaults.of_icon())),
            // What the operator says of caching does not hold for errors.
            page: options.defaults.of_page(),
            redirect: free(options.defaults.of_redirect()),
            options: free(preflight_fields(&options.defaults.cors)),
            health: options.health.clone().map(String::into_bytes),
            dummy: options.dummy.map(|text| {
                let fields = RepresentationFields {
                    content_length: text.len() as u64,
                    content_type: (!text.is_empty()).then_some(b"text/plain"),
                    ..RepresentationFields::default()
                };
                (
                    fields.render().expect("constant fields are well formed"),
                    text,
                )
            }),
            replaced: options
                .fields
                .iter()
                .map(|(name, _)| name.clone())
                .filter(|name| name != "vary")
                .collect(),
        }
    }
}
