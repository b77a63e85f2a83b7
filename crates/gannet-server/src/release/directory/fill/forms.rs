//! Other forms of the file found: which of them exist, and the lookup of one in place of it.

use gannet_content::directory::lookup::AtPath;
use gannet_content::directory::sidecars::SIDECARS;
use gannet_content::negotiation;
use gannet_http::semantics::request::Request;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{Errno, FileKind};

use super::super::copies::CopiesElsewhere;
use super::super::{Cached, OtherForm};
use super::at_path::at_path;
use super::{DiskLookup, Filled, FormChoice, State};
use crate::release::wakeup::Wakeup;

impl Filled {
    /// Whether the lookup has ended without content of its path.
    pub(crate) fn is_no_content(&self) -> bool {
        match self {
            Self::File(cached, status, _) => !cached.is_content(*status),
            Self::Short | Self::Undecoded(_) | Self::Unsurveyed(_) => false,
            Self::Redirect(_)
            | Self::Elsewhere(..)
            | Self::Directory(_)
            | Self::Listing(_)
            | Self::Error(_) => true,
        }
    }
}

impl DiskLookup {
    /// The same lookup for another form of what is at its path.
    pub(crate) fn turned_to(mut self, path: Vec<u8>) -> Self {
        self.turn_to(path);
        self
    }

    /// Whether another form than that at the requested path is being looked up.
    pub(crate) fn is_other_form(&self) -> bool {
        matches!(self.form, FormChoice::Other(_))
    }

    /// The canonical path of another form that the request prefers to the file found.
    pub(crate) fn better(
        &self,
        request: &Request<'_>,
        cached: &Cached,
        status: Status,
    ) -> Option<Vec<u8>> {
        let is_open = matches!(self.form, FormChoice::Any);
        cached.better(request, status).filter(|_| is_open)
    }

    /// Looks up another form of what is at the path.
    pub(crate) fn turn_to(&mut self, path: Vec<u8>) {
        self.wanted = None;
        self.form = FormChoice::Other(std::mem::replace(&mut self.request.path, path));
        self.start_over();
    }

    /// Looks up the requested path after all: the other form is gone.
    pub(crate) fn turn_back(&mut self) {
        if let FormChoice::Other(path) = &mut self.form {
            self.request.path = std::mem::take(path);
            self.form = FormChoice::Own;
            self.start_over();
        }
    }

    /// The path below its root of a sidecar or another form, numbered as in `absent`.
    pub(super) fn beside(&self, index: usize) -> Vec<u8> {
        match (index.checked_sub(SIDECARS.len()), self.copies(index)) {
            (None, Some(copies)) => copies.path_of(&self.file_path, SIDECARS[index].suffix),
            (None, None) => [&self.file_path, SIDECARS[index].suffix].concat(),
            (Some(form), _) => self.form_path(form),
        }
    }

    /// Where what is numbered so is, if not beside the file.
    pub(super) fn copies(&self, index: usize) -> Option<&CopiesElsewhere> {
        self.site.copies().filter(|_| index < SIDECARS.len())
    }

    /// Notes that a sidecar or another form, numbered as in `absent`, is there and cannot be read.
    pub(super) fn note_unreadable(&mut self, index: usize, result: &Result<Wakeup, Errno>) {
        if let Err(errno) = result
            && at_path(result) != AtPath::Missing
        {
            let path = match self.copies(index) {
                Some(copies) => copies.shown(&self.file_path, SIDECARS[index].suffix),
                None => self.beside(index),
            };
            self.failed(path, *errno);
        }
    }

    /// The path below the root of this one of the other forms.
    fn form_path(&self, index: usize) -> Vec<u8> {
        let form = negotiation::forms(&self.file_path).0[index];
        negotiation::name_of(&self.file_path, form)
    }

    /// Looks for the other forms from number `next` on, then makes the result.
    pub(super) fn next_form(&mut self, next: usize) -> Option<Filled> {
        let forms = negotiation::forms(&self.file_path).0;
        let is_wanted = self.findings.is_own
            && self.findings.status == Status::OK
            && self.findings.missing_in == 0
            && !self.is_other_form()
            && self.site.options.single.is_none();
        let mut rest = next..forms.len();
        if let Some(next) = rest.find(|it| self.findings.absent >> (SIDECARS.len() + it) & 1 == 0)
            && is_wanted
        {
            self.state = State::Form(next);
            return None;
        }
        self.made()
    }

    /// Takes the result of opening this one of the other forms.
    pub(super) fn form_opened(
        &mut self,
        index: usize,
        result: Result<Wakeup, Errno>,
    ) -> Option<Filled> {
        self.note_unreadable(SIDECARS.len() + index, &result);
        if let Ok(Wakeup::Opened(opened)) = result
            && opened.meta.kind == FileKind::Regular
            && opened.meta.len > 0
        {
            self.findings.forms.push(OtherForm {
                form: negotiation::forms(&self.file_path).0[index],
                path: self.form_path(index),
                meta: opened.meta,
            });
        }
        self.next_form(index + 1)
    }
}
