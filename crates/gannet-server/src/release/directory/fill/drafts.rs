//! The representations of a file as they are found, and the result that is made of them.

use std::cell::OnceCell;
use std::rc::Rc;

use gannet_content::rules::headers::FieldChanges;
use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::pattern::Scheme;
use gannet_content::stored_coding;
use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::status::Status;
use gannet_io::driver::OpenedFile;

use super::super::{Cached, Draft, Role, is_recent, is_settled};
use super::{DiskLookup, Filled};
use crate::bounds::limits::{CONFIRMED_MS, SMALL_FILE_MAX};
use crate::release::body::Body;
use crate::release::rules::FieldsUnknown;

impl DiskLookup {
    /// Takes a file as the representation in one coding, then opens sidecar number `next`.
    pub(super) fn take(
        &mut self,
        coding: Coding,
        mut opened: OpenedFile,
        next: usize,
    ) -> Option<Filled> {
        let meta = opened.meta;
        let is_settled = is_settled(&meta, self.unix);
        if !is_settled {
            // Perhaps it was changed after it was read, or while.
            opened.content = Vec::new();
        }
        let previous = self.previous();
        let end = self.end_of(coding, &meta);
        // The number of the sidecar that it is.
        let sidecar = next.checked_sub(1);
        let path = match sidecar {
            Some(index) => self.beside(index),
            None => self.variant_path(coding),
        };
        self.is_brief |= !is_settled;
        self.is_recent |= is_recent(&meta, self.unix);
        // A file that has just changed is sent from the disk, or read for the requests of one turn.
        let copy_max = match is_settled {
            true => self
                .site
                .copied_up_to(coding, &path, &self.content_type, meta.len),
            false => SMALL_FILE_MAX,
        };
        // A file that is being truncated is empty before its timestamps show it: it is checked at
        // each request.
        let is_copied = (1..=copy_max).contains(&meta.len);
        let same = |cached: &Rc<Cached>| {
            let body = cached.body(coding, &meta);
            let is_kept = |body: &Body| match is_copied {
                true => !body.is_live() && !cached.is_brief && !self.reads_again(cached),
                // One that was opened during a write may end in another way now.
                false => body.is_live_with(end),
            };
            body.filter(is_kept)
        };
        let long_copy = match is_settled && meta.len > copy_max {
            true => self.site.long_copy(&meta, self.began),
            false => None,
        };
        let is_long_copy = long_copy.is_some();
        let long_copy = long_copy.map(|file| Body::copy(file, meta.len));
        let body = match long_copy.or_else(|| previous.as_ref().and_then(same)) {
            Some(body) => Some(body),
            None if is_copied => {
                self.findings.unread.push((coding, opened));
                None
            }
            None => Some(Body::live(opened.file, meta, end)),
        };
        self.findings.drafts.push(Draft {
            path,
            is_elsewhere: sidecar.is_some_and(|index| self.copies(index).is_some()),
            coding,
            meta,
            len: meta.len,
            body: body.map_or_else(OnceCell::new, OnceCell::from),
            is_long_copy,
            coded: None,
        });
        self.next_sidecar(next)
    }

    /// The result: the file found, with its sidecars and other forms.
    pub(super) fn made(&mut self) -> Option<Filled> {
        let before = self.previous();
        // From now on it would only be kept alive.
        self.findings.before = None;
        let forms = std::mem::take(&mut self.findings.forms);
        let drafts = std::mem::take(&mut self.findings.drafts);
        let is_brief = self.is_brief;
        let again = self.began.plus_ms(CONFIRMED_MS);
        let read_again_at = self.is_recent.then_some(again);
        let is_lasting = |previous: &Cached| {
            !is_brief
                && !previous.is_brief
                && !self.reads_again(previous)
                && previous.is_made_of(&drafts, &forms)
        };
        let cached = match before {
            Some(previous) if is_lasting(&previous) => {
                // Perhaps not the entry that provided the bodies.
                for draft in drafts {
                    if let Some(body) = draft.body.into_inner() {
                        previous.set_body(draft.coding, body);
                    }
                }
                previous
            }
            before => {
                let Ok(changes) = self.changes() else {
                    return Some(Filled::Error(Status::INTERNAL_SERVER_ERROR));
                };
                let is_ruled = changes.is_some();
                let changes = stored_coding::with_coding(changes, &self.file_path, self.is_gzip);
                let role = Role {
                    is_own: self.findings.is_own,
                    is_ruled,
                    is_error: self.findings.status.0 >= 400,
                    name: &self.file_path,
                    changes: changes.as_ref(),
                    forms: &forms,
                };
                let content_type = std::mem::take(&mut self.content_type);
                match Cached::new(content_type, drafts, self.unix, &self.site, &role) {
                    Some(cached) => {
                        let cached = cached.after(before.as_deref());
                        let cached = Cached {
                            is_brief,
                            read_again_at,
                            ..cached
                        };
                        Rc::new(cached.with_known_codings())
                    }
                    None => return Some(Filled::Error(Status::INTERNAL_SERVER_ERROR)),
                }
            }
        };
        Some(Filled::File(cached, self.findings.status, None))
    }

    /// Whether cached bytes are no longer reliable: see [`is_recent`].
    fn reads_again(&self, cached: &Cached) -> bool {
        cached.read_again_at.is_some_and(|at| self.began > at)
    }

    /// The cached entry of the file found, or of the path that is being looked up.
    pub(super) fn previous(&mut self) -> Option<Rc<Cached>> {
        if !self.findings.is_own {
            return self.site.previous(&self.key());
        }
        let found = || self.site.previous(&self.request.path);
        self.findings.before.get_or_insert_with(found).clone()
    }

    /// The changes that the site's rules make to the fields of the path's own content, if they are
    /// the same for every request. (A substitute gets the fields of each requested path.)
    fn changes(&self) -> Result<Option<FieldChanges>, FieldsUnknown> {
        let rules = self.site.rules();
        let Some(rules) = rules.filter(|it| self.findings.is_own && it.fields_are_fixed()) else {
            return Ok(None);
        };
        let asked = RuleInput {
            prefix: b"",
            scheme: Scheme::Http,
            host: b"",
            path: &self.request.path,
            query: None,
            language: b"",
        };
        let changes = rules.changes(&asked, &self.steps)?;
        Ok(Some(changes.unwrap_or_default()))
    }
}
