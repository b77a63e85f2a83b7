//! Content coded with a dictionary (RFC 9842), for the requests that may have it.

use gannet_archive::{Entry, Variant};
use gannet_content::policy::dictionary::{available, is_local, may_reveal_length};
use gannet_content::rules::pattern::Scheme;
use gannet_http::semantics::coding::accept_dictionary_encoding;
use gannet_http::semantics::fields::KnownField;

use super::Wanted;
use super::archive::ArchiveSite;

impl ArchiveSite {
    /// The variant of a path's own content that is coded with the dictionary that the client has.
    ///
    /// Only in secure contexts, which intermediaries cannot alter (section 8), and only if the
    /// answer's length may be revealed to the origin of the request (section 9.3.3).
    #[cold]
    pub(super) fn coded<'s>(&self, entry: &Entry<'s>, wanted: Wanted<'_>) -> Option<Variant<'s>> {
        let (request, turn) = (wanted.request, wanted.turn);
        let sha256 = available(&request.fields)?;
        let is_secure = turn.scheme == Scheme::Https || is_local(request.authority);
        // Rules by host may remove what caches have to know.
        let is_fixed = self.rules.as_ref().is_none_or(|it| it.fields_are_fixed());
        if !is_secure || !is_fixed {
            return None;
        }
        let lines = request.fields.lines(KnownField::AcceptEncoding);
        let found = entry.select_with_dictionary(accept_dictionary_encoding(lines), &sha256)?;
        let block = found.h1();
        let own = block.lines().map(|(name, value, _)| (name, value));
        let configured = turn
            .fields
            .iter()
            .map(|(name, value)| (name.as_bytes(), *value));
        // A configured field replaces that of the site.
        let mut fields = configured.chain(own);
        let allow_origin = fields.find(|(name, _)| *name == b"access-control-allow-origin");
        may_reveal_length(&request.fields, allow_origin.map(|(_, value)| value)).then_some(found)
    }
}
