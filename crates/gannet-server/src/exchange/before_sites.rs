//! Requests that are answered before a site is asked: other methods than `GET` and `HEAD`, redirects to `https`,
//! and what the operator has answered first.

use std::rc::Rc;

use gannet_content::answer;
use gannet_http::semantics::request::{Method, Request, Version};
use gannet_http::semantics::status::Status;
use gannet_http::semantics::target_path::{CanonicalPath, PathError};

use super::answering::Answering;
use super::own_answers::ALLOW_ORIGIN;
use super::workbench::{Arrival, Decoded, pages_of, ruling_of};
use crate::observe::record::Answered;
use crate::release::access;
use crate::release::rules::RequestRules;
use crate::release::{NoSite, Release, RequestView, Resolved, Site};

impl<'a> Answering<'a> {
    /// Returns the path of a request that is for a site.
    ///
    /// # Errors
    /// It is not: the answer.
    #[inline(never)]
    pub(super) fn before_sites(
        &mut self,
        release: &'a Rc<Release>,
        request: &'a Request<'a>,
        path: Decoded<'a>,
        arrival: Arrival<'_>,
    ) -> Result<CanonicalPath<'a>, Answered> {
        let first = self.turn.defaults.first.as_ref();
        let redirects = arrival.redirects;
        let may_be_replay = || arrival.is_early || has_early_data(request);
        let is_refused = first.is_some_and(|it| it.refuses_http1)
            && !redirects
            && self.reply.version() == Version::Http11;
        if request.method == Method::Options && !redirects && !is_refused && !may_be_replay() {
            return Err(self.options(release, request, path));
        }
        if let Some(challenges) = first.and_then(|it| it.challenges.as_ref())
            && request.is_for_content()
            && let Some(answer) = challenges.answer(request.target.path)
        {
            return Err(self.challenge(&answer));
        }
        if redirects {
            return Err(self.sent_to_https(release, request, path));
        }
        if is_refused {
            return Err(self.error(Status::HTTP_VERSION_NOT_SUPPORTED, None));
        }
        if !request.is_for_content() {
            // RFC 8470 section 5.2: the client, or its intermediary, retries the request.
            if may_be_replay() {
                return Err(self.error(Status::TOO_EARLY, None));
            }
            self.pages = pages_of(release, request, path);
            self.ruling = ruling_of(release, self.turn, request, path);
            return Err(self.error(Status::METHOD_NOT_ALLOWED, Some(ALLOW)));
        }
        let path = path.map_err(|error| match error {
            // The request line is within its limit, but no file has such a path.
            PathError::TooLong => self.error(Status::NOT_FOUND, None),
            // That of another form of the target is empty.
            _ => self.error(Status::BAD_REQUEST, None),
        })?;
        let Some(first) = first else {
            return Ok(path);
        };
        if let Some(dummy) = &first.dummy {
            return Err(self.constant(dummy));
        }
        if first.health.as_deref() == Some(path.as_bytes()) {
            return Err(self.healthy());
        }
        Ok(path)
    }

    /// Redirects to the same URL under `https`, unless the host is unknown: clients choose it.
    fn sent_to_https(
        &mut self,
        release: &Release,
        request: &Request<'_>,
        path: Decoded<'_>,
    ) -> Answered {
        let path = path.unwrap_or(CanonicalPath::ROOT).as_bytes();
        let first = self.turn.defaults.first.as_ref();
        let has_dummy = first.is_some_and(|it| it.dummy.is_some());
        match release.number(request.authority, path) {
            Err(NoSite::Unknown(status)) if !has_dummy => self.error(status, None),
            _ => self.redirect_to_https(request),
        }
    }

    /// Answers `OPTIONS` with the methods of a resource, and the fields that rules set for its path: they may
    /// allow other sites' scripts to read it. So may those that an archive was packed with.
    fn options(
        &mut self,
        release: &'a Rc<Release>,
        request: &'a Request<'a>,
        path: Decoded<'a>,
    ) -> Answered {
        // Without one for other forms of the target.
        let Ok(path) = path.map(|path| path.as_bytes()) else {
            return self.allowed(ALLOW);
        };
        let Ok(number) = release.number(request.authority, path) else {
            return self.allowed(ALLOW);
        };
        let site = release.site(number);
        let path = &path[release.prefix(number).len()..];
        // It would reveal what is there. (Browsers send no password with it.)
        let rules = site.rules();
        if access::lists((release, number), rules, path, &self.turn.steps).is_some() {
            return self.allowed(ALLOW);
        }
        let view = RequestView {
            request,
            path,
            scheme: self.turn.scheme,
            fields: &self.turn.fields,
            release,
            steps: &self.turn.steps,
            site: number,
        };
        self.ruling = rules.map(|rules| RequestRules::new(rules, view.input(), view.steps));
        let mut packed = None;
        if let Site::Archive(archive) = site {
            // The origin does not depend on the selected coding.
            let (_, resolved) = archive.resolve(&view, &mut self.ruling);
            if let Resolved::Selected(selected) = resolved {
                let origin = selected.block.h1.get(ALLOW_ORIGIN);
                packed = origin.map(|it| String::from_utf8_lossy(it).into_owned());
            }
        }
        self.preflight(packed, ALLOW)
    }
}

/// Whether an intermediary received the request in early data. All values of the field have the
/// same meaning (RFC 8470 section 5.1).
fn has_early_data(request: &Request<'_>) -> bool {
    let mut lines = request.fields.iter();
    lines.any(|(name, _)| name.eq_ignore_ascii_case(b"early-data"))
}

/// The methods of every resource.
const ALLOW: (&str, &[u8]) = ("allow", answer::ALLOW);
