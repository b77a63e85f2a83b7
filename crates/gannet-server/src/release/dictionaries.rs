//! Content coded with a dictionary (RFC 9842), for the requests that may have it.

use gannet_archive::{Entry, Variant};
use gannet_content::policy::dictionary::{self, Request};
use gannet_content::rules::pattern::Scheme;

use super::RequestView;
use super::archive::ArchiveSite;

impl ArchiveSite {
    /// The variant of a path's own content that is coded with the dictionary that the client has.
    #[cold]
    pub(super) fn coded<'s>(
        &self,
        entry: &Entry<'s>,
        view: &RequestView<'_>,
    ) -> Option<Variant<'s>> {
        let request = view.request;
        // Rules by host may remove what caches have to know.
        if self.rules.as_ref().is_some_and(|it| !it.fields_are_fixed()) {
            return None;
        }
        let request = Request {
            fields: &request.fields,
            is_https: view.scheme == Scheme::Https,
            authority: request.authority,
        };
        let configured = view.fields.iter();
        let configured = configured.map(|(name, value)| (name.as_bytes(), *value));
        dictionary::select(entry, request, configured)
    }
}
