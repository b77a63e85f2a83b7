//! Responses whose content is not the site's: error pages, redirects, listings, and status
//! information of the server.

use gannet_content::directory::listing;
use gannet_content::policy::defaults::ICON_PATH;
use gannet_content::policy::security::{Cors, preflight_fields};
use gannet_content::rules::headers::{is_caching_field, may_be_cached};
use gannet_content::{answer, error_page};
use gannet_http::semantics::ready_fields::ReadyFields;
use gannet_http::semantics::request::{Request, TargetForm};
use gannet_http::semantics::response::{ReadyPart, ResponseHead, Status};
use gannet_http::semantics::target_path::encode_path;

use super::answering::Answering;
use crate::observe::record::Answered;
use crate::release::Source;
use crate::release::challenges;
use crate::release::directory::listings::ListingPage;
use crate::release::error_pages::ErrorPage;
use crate::release::own_fields::FAVICON;
use crate::release::own_fields::UPGRADE;
use crate::release::rules::RequestRules;

/// One realm for all, since browsers show it: it does not show which users may have a path. Passwords are
/// sent in UTF-8.
const CHALLENGE: &[u8] = b"Basic realm=\"restricted\", charset=\"UTF-8\"";

/// Whose scripts may read an answer (Fetch standard, section 3.3).
pub(super) const ALLOW_ORIGIN: &str = "access-control-allow-origin";

/// Seconds until a missing or busy resource may be available again.
const RETRY_AFTER: (&str, &[u8]) = ("retry-after", b"1");

impl Answering<'_> {
    /// Answers with the site's page for an error, or a built-in one.
    pub(crate) fn error(
        &mut self,
        status: Status,
        further: Option<(&'static str, &[u8])>,
    ) -> Answered {
        // RFC 9110 section 15.6.4: tells the client to retry soon.
        let again = (status == Status::SERVICE_UNAVAILABLE).then_some(RETRY_AFTER);
        let further = further.or(again);
        let own = self.pages.or_else(|| self.ruling?.pages());
        if let Some(page) = own.and_then(|pages| pages.of(status))
            && self.knows_fields()
        {
            return self.own_page(page, status, further);
        }
        let page = error_page::page(status);
        self.generated(status, error_page::CONTENT_TYPE, page, further)
    }

    /// Whether the fields of the site's own content are known, such as a policy that it relies on.
    fn knows_fields(&self) -> bool {
        self.ruling.is_none_or(|ruling| ruling.changes().is_ok())
    }

    /// Answers with a page of the site for an error.
    #[cold]
    fn own_page(
        &mut self,
        page: &ErrorPage,
        status: Status,
        further: Option<(&'static str, &[u8])>,
    ) -> Answered {
        let mut own = self.turn.defaults.own_page.clone();
        own.extend(page.policy.clone());
        let mut fields = vec![("content-type", error_page::CONTENT_TYPE)];
        fields.extend(further);
        let len = page.content.len() as u64;
        let mut body_len = 0;
        if self.made(status, Some(len), &own, &fields) {
            self.body(Source::Memory(&page.content, 0), 0..len);
            body_len = len;
        }
        Answered { status, body_len }
    }

    /// Answers a client that has used more than it may, and may continue in so many nanoseconds.
    pub(crate) fn too_many(&mut self, wait_ns: u64) -> Answered {
        // RFC 6585 section 4: whole seconds.
        let seconds = wait_ns.div_ceil(1_000_000_000).max(1).to_string();
        let again = ("retry-after", seconds.as_bytes());
        self.error(Status::TOO_MANY_REQUESTS, Some(again))
    }

    /// Answers a client that has to say who it is (RFC 7617 section 2).
    #[cold]
    pub(crate) fn unauthorized(&mut self) -> Answered {
        let challenge = ("www-authenticate", CHALLENGE);
        self.error(Status::UNAUTHORIZED, Some(challenge))
    }

    /// Answers for an unavailable resource.
    pub(crate) fn missing(&mut self, request: &Request<'_>, status: Status) -> Answered {
        if status == Status::NOT_FOUND && self.gives_icon(request) {
            return self.icon();
        }
        self.error(status, None)
    }

    pub(super) fn gives_icon(&self, request: &Request<'_>) -> bool {
        let path = request.target.path.strip_prefix(self.prefix);
        self.turn.defaults.favicon.is_some() && path == Some(ICON_PATH)
    }

    /// Answers with the built-in icon, for sites without one.
    pub(super) fn icon(&mut self) -> Answered {
        let fields = [("content-type", &b"image/png"[..])];
        // It substitutes for the site's own.
        self.ruling = self.ruling.map(RequestRules::without_caching);
        let own = self.turn.defaults.favicon.as_deref().unwrap_or_default();
        self.own(Status::OK, own, FAVICON, &fields)
    }

    /// Answers with a body made for this response.
    pub(crate) fn generated(
        &mut self,
        status: Status,
        content_type: &[u8],
        content: &[u8],
        further: Option<(&'static str, &[u8])>,
    ) -> Answered {
        let mut fields = vec![("content-type", content_type)];
        fields.extend(further);
        self.own(status, &self.turn.defaults.page, content, &fields)
    }

    /// Answers with a directory's listing.
    pub(crate) fn listing(&mut self, page: &ListingPage) -> Answered {
        // It names the site's files, and the site may keep it from search engines.
        if !self.knows_fields() {
            return self.error(Status::INTERNAL_SERVER_ERROR, None);
        }
        let fields = [("content-type", page.format.content_type()), listing::VARY];
        let (status, len) = (Status::OK, page.content.len() as u64);
        let mut body_len = 0;
        if self.made(status, Some(len), &self.turn.defaults.listing, &fields) {
            self.body(Source::Memory(&page.content, 0), 0..len);
            body_len = len;
        }
        Answered { status, body_len }
    }

    fn own(
        &mut self,
        status: Status,
        own: &[(&'static str, String)],
        content: &[u8],
        fields: &[(&'static str, &[u8])],
    ) -> Answered {
        let mut body_len = 0;
        if self.made(status, Some(content.len() as u64), own, fields) {
            self.bytes(content);
            body_len = content.len() as u64;
        }
        Answered { status, body_len }
    }

    /// Answers the health check.
    pub(crate) fn healthy(&mut self) -> Answered {
        let now = self.turn.unix.cast_unsigned();
        let (status, text): (_, &[u8]) = match self.turn.defaults.late.is_at(now) {
            false => (Status::OK, b"ok\n"),
            true => (Status::SERVICE_UNAVAILABLE, b"a release is late\n"),
        };
        self.generated(status, b"text/plain; charset=utf-8", text, None)
    }

    /// Answers a challenge of an ACME server.
    #[cold]
    pub(crate) fn challenge(&mut self, answer: &[u8]) -> Answered {
        self.generated(Status::OK, challenges::CONTENT_TYPE, answer, None)
    }

    /// Answers with the constant response.
    pub(crate) fn constant(&mut self, (fields, text): &(ReadyFields, &'static str)) -> Answered {
        let status = Status::OK;
        let len = text.len() as u64;
        let head = ResponseHead {
            status,
            ready: Some((fields.as_block().into(), ReadyPart::Whole)),
            content_length: None,
            fields: &self.turn.fields,
        };
        let has_body = self.head(&head, len);
        if has_body {
            self.bytes(text.as_bytes());
        }
        Answered {
            status,
            body_len: if has_body { len } else { 0 },
        }
    }

    /// Answers with the allowed methods.
    pub(super) fn allowed(&mut self, allow: (&'static str, &[u8])) -> Answered {
        let status = Status::NO_CONTENT;
        self.made(status, None, &self.turn.defaults.options, &[allow]);
        Answered {
            status,
            body_len: 0,
        }
    }

    /// The same as [`allowed`](Self::allowed), for a path that other sites' scripts may read: by the site's
    /// rules, by the operator's own fields, or because its content was `packed` for an origin.
    pub(crate) fn preflight(
        &mut self,
        packed: Option<String>,
        allow: (&'static str, &[u8]),
    ) -> Answered {
        let changes = self.ruling.and_then(|ruling| ruling.changes().ok()?);
        let set = changes.as_ref().map_or(&[][..], |changes| &changes.set);
        let set = set
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()));
        let mut configured = self.turn.fields.iter().copied().chain(set);
        let ruled = configured.find(|(name, _)| *name == ALLOW_ORIGIN);
        let ruled = ruled.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
        let is_removed = changes.is_some_and(|it| it.remove.iter().any(|it| it == ALLOW_ORIGIN));
        let mut own = match ruled.or(packed) {
            Some(origin) => preflight_fields(&Cors::Origin(origin)),
            None if is_removed => Vec::new(),
            None => self.turn.defaults.options.clone(),
        };
        let replaced = &self.turn.defaults.replaced;
        own.retain(|(name, _)| !replaced.iter().any(|it| it == name));
        self.ruling = self.ruling.map(RequestRules::without_caching);
        let status = Status::NO_CONTENT;
        self.made(status, None, &own, &[allow]);
        Answered {
            status,
            body_len: 0,
        }
    }

    /// Redirects the client to another path of this host, keeping the query.
    pub(crate) fn redirect(&mut self, request: &Request<'_>, path: &[u8]) -> Answered {
        let location = answer::location(path, request.target.query);
        self.elsewhere(Status::MOVED_PERMANENTLY, &location)
    }

    /// Redirects the client to a location; a path is one of the site's own.
    pub(crate) fn elsewhere(&mut self, status: Status, location: &[u8]) -> Answered {
        if !self.prefix.is_empty() && location.starts_with(b"/") && !location.starts_with(b"//") {
            let mut below = Vec::new();
            encode_path(std::mem::take(&mut self.prefix), &mut below);
            below.extend_from_slice(location);
            return self.elsewhere(status, &below);
        }
        let own = &self.turn.defaults.redirect;
        self.made(status, Some(0), own, &[("location", location)]);
        Answered {
            status,
            body_len: 0,
        }
    }

    /// Writes the head of a response that is not the site's content: mandatory fields, the default
    /// fields as changed by the site's rules, and the fields configured by the operator. True if a
    /// body is to follow.
    fn made(
        &mut self,
        status: Status,
        content_length: Option<u64>,
        own: &[(&'static str, String)],
        further: &[(&'static str, &[u8])],
    ) -> bool {
        let turn = self.turn;
        let mut ruling = self.ruling;
        if !may_be_cached(status.0) || self.is_protected {
            ruling = ruling.map(RequestRules::without_caching);
        }
        // Where they are not known, no content of the site is sent that could rely on them.
        let changes = ruling.and_then(|ruling| ruling.changes().ok()?);
        let configured = turn.configured(status, self.is_protected);
        let is_kept = |name: &str| {
            let mut configured = configured.clone();
            if is_caching_field(name) && configured.any(|(set, _)| set == name) {
                return false;
            }
            let Some(changes) = &changes else { return true };
            let is_set = changes.set.iter().any(|(set, _)| set == name);
            !is_set && !changes.remove.iter().any(|gone| gone == name)
        };
        let is_of_operator =
            |(name, value): &(&str, &[u8])| (*name, *value) != (UPGRADE.0, UPGRADE.1.as_bytes());
        let is_free = |name: &str| {
            let mut configured = configured.clone().filter(is_of_operator);
            !configured.any(|(set, _)| set == name)
        };
        let mut fields: Vec<(&str, &[u8])> = configured.clone().collect();
        let own = own.iter().filter(|(name, _)| is_kept(name));
        fields.extend(own.map(|(name, value)| (*name, value.as_bytes())));
        fields.extend_from_slice(further);
        let set = changes.iter().flat_map(|changes| &changes.set);
        // The content is not the site's, so fields that describe the site's content do not apply.
        let describes = |name: &str| matches!(name, "content-type" | "content-encoding");
        let set = set.filter(|(name, _)| !describes(name) && is_free(name));
        fields.extend(set.map(|(name, value)| (name.as_str(), value.as_slice())));
        if self.ruling.is_some_and(|it| it.varies_by_language(false)) {
            fields.push(("vary", answer::VARY_BY_LANGUAGE.as_bytes()));
        }
        // The operator's is not sent, and has replaced the default.
        if self.is_protected && !fields.iter().any(|(name, _)| *name == "cache-control") {
            fields.push(("cache-control", answer::CACHE_NO_CACHE.as_bytes()));
        }
        let head = ResponseHead {
            status,
            ready: None,
            content_length,
            fields: &fields,
        };
        self.head(&head, content_length.unwrap_or(0))
    }

    /// Redirects the client to the same URL under `https`.
    pub(crate) fn redirect_to_https(&mut self, request: &Request<'_>) -> Answered {
        if !matches!(
            request.target.form,
            TargetForm::Origin | TargetForm::Absolute
        ) {
            return self.error(Status::BAD_REQUEST, None);
        }
        let authority = request
            .authority
            .and_then(|asked| self.turn.redirect.authority(asked));
        let Some(authority) = authority else {
            return self.error(Status::BAD_REQUEST, None);
        };
        let mut location = b"https://".to_vec();
        location.extend_from_slice(&authority);
        let mut path = Vec::new();
        answer::write_raw(request.target.path, &mut path);
        location.extend_from_slice(&answer::location(&path, request.target.query));
        self.elsewhere(Status::MOVED_PERMANENTLY, &location)
    }
}
