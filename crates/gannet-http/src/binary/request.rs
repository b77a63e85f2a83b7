//! From a decoded field section to a request (RFC 9113 section 8, RFC 9114 section 4).
//!
//! The caller's scratch buffer holds the section as lines: pseudo-fields first, the others after
//! them, so that the latter form a section as in HTTP/1.

use super::limits::FIELD_SECTION_MAX;
use super::line::{Line, NameKind};
use super::rejection::{Rejection, RejectionWhy};
use crate::h1::target;
use crate::scan;
use crate::semantics::decimal::parse_decimal;
use crate::semantics::fields::{FieldIndex, Fields, KnownField};
use crate::semantics::limits::FIELD_LINES_MAX;
use crate::semantics::request::{Content, Method, Request, RequestTarget, TargetForm, Version};

/// The state of a section while its lines are decoded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SectionState {
    method: Option<SectionSpan>,
    scheme: Option<SectionSpan>,
    authority: Option<SectionSpan>,
    path: Option<SectionSpan>,
    /// Where the lines of regular fields begin.
    section_start: usize,
    index: FieldIndex,
    line_count: u16,
    /// Size as counted for SETTINGS_MAX_HEADER_LIST_SIZE.
    size: u32,
    has_fields: bool,
    has_cookie: bool,
    is_malformed: bool,
    rejection: Option<RejectionWhy>,
}

#[derive(Clone, Copy, Debug)]
struct SectionSpan {
    start: u32,
    len: u16,
}

impl SectionSpan {
    #[inline]
    fn of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        &bytes[start..start + usize::from(self.len)]
    }
}

/// A section that is not a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MalformedSection;

/// A section that is a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub(crate) method: Method,
    form: TargetForm,
    /// The content length that the request announces.
    pub(crate) content_length: Option<u64>,
    /// Set if the request has to be answered with an error.
    pub(crate) rejection: Option<Rejection>,
}

impl SectionState {
    /// Adds a line; returns whether it stays in the buffer.
    #[inline]
    pub(crate) fn add(&mut self, line: &Line) -> bool {
        self.size += line.size();
        if !line.is_well_formed {
            self.is_malformed = true;
            return false;
        }
        if line.kind.is_pseudo() {
            return self.add_pseudo(line);
        }
        self.has_fields = true;
        let is_crumb = line.kind == NameKind::Cookie && self.has_cookie;
        self.has_cookie |= line.kind == NameKind::Cookie;
        self.line_count += u16::from(!is_crumb);
        if self.size > FIELD_SECTION_MAX || self.line_count > FIELD_LINES_MAX {
            return self.drop_line();
        }
        if let NameKind::Known(field) = line.kind {
            let start = line.value_start() - self.section_start;
            self.index.note(field, start, line.value_len.into());
        }
        true
    }

    #[inline]
    fn add_pseudo(&mut self, line: &Line) -> bool {
        let span = match line.kind {
            NameKind::Method => &mut self.method,
            NameKind::Scheme => &mut self.scheme,
            NameKind::Authority => &mut self.authority,
            _ => &mut self.path,
        };
        // RFC 9113 8.3: once each, and before all other fields.
        if span.is_some() || self.has_fields {
            self.is_malformed = true;
            return false;
        }
        *span = Some(SectionSpan {
            start: line.value_start() as u32,
            len: line.value_len,
        });
        self.section_start = line.end();
        if self.size > FIELD_SECTION_MAX {
            // Kept, because the span covers it; no other line is.
            self.rejection = Some(RejectionWhy::FieldSectionTooLarge);
        }
        true
    }

    #[cold]
    fn drop_line(&mut self) -> bool {
        let why = if self.size > FIELD_SECTION_MAX {
            RejectionWhy::FieldSectionTooLarge
        } else {
            RejectionWhy::TooManyFieldLines
        };
        self.rejection.get_or_insert(why);
        // The decoder bounds the size, and thereby the count.
        self.line_count = FIELD_LINES_MAX;
        false
    }

    /// Checks the section once it is complete. Each value by itself was checked when it was decoded
    /// ([`NameKind::takes`]).
    ///
    /// # Errors
    /// [`MalformedSection`].
    #[inline]
    pub(crate) fn finish(
        &self,
        scratch: &[u8],
        is_ended: bool,
    ) -> Result<Accepted, MalformedSection> {
        if self.is_malformed {
            return Err(MalformedSection);
        }
        let method_name = self.method.ok_or(MalformedSection)?.of(scratch);
        let method = match method_name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"OPTIONS" => Method::Options,
            _ => Method::Other,
        };
        let mut accepted = Accepted {
            method,
            form: TargetForm::Origin,
            content_length: None,
            rejection: self.rejection.map(Rejection::of),
        };
        if accepted.rejection.is_some() {
            return Ok(accepted);
        }
        accepted.form = self.form(scratch, method, method_name)?;
        self.check_authority(scratch)?;
        let section = self.section(scratch);
        accepted.content_length = content_length(&self.index, section)?;
        if is_ended && accepted.content_length.is_some_and(|len| len > 0) {
            return Err(MalformedSection);
        }
        if self.index.get(section, KnownField::Expect).is_some() && !self.expects_continue(section)
        {
            accepted.rejection = Some(Rejection::of(RejectionWhy::ExpectationUnknown));
        }
        Ok(accepted)
    }

    /// The request, once [`finish`](Self::finish) has accepted it.
    #[inline]
    pub(crate) fn request<'s>(
        &self,
        scratch: &'s [u8],
        accepted: &Accepted,
        version: Version,
        is_ended: bool,
    ) -> Option<Request<'s>> {
        let section = self.section(scratch);
        let authority = match self.authority {
            Some(span) => Some(span.of(scratch)),
            None => self.index.get(section, KnownField::Host),
        };
        Some(Request {
            method: accepted.method,
            method_name: self.method?.of(scratch),
            target: self.target(scratch, accepted.form)?,
            authority,
            version,
            fields: Fields::indexed(section, &self.index),
            content: match accepted.content_length {
                _ if is_ended => Content::None,
                Some(0) => Content::None,
                Some(len) => Content::Length(len),
                None => Content::Chunked,
            },
        })
    }

    /// The value of the `priority` field, if there is one (RFC 9218 section 5).
    #[inline]
    pub(crate) fn priority<'s>(&self, scratch: &'s [u8]) -> Option<&'s [u8]> {
        self.index.get(self.section(scratch), KnownField::Priority)
    }

    /// The lines of regular fields.
    #[inline]
    fn section<'s>(&self, scratch: &'s [u8]) -> &'s [u8] {
        scratch.get(self.section_start..).unwrap_or_default()
    }

    /// The form of the request target (RFC 9113 section 8.3.1).
    #[inline]
    fn form(
        &self,
        scratch: &[u8],
        method: Method,
        method_name: &[u8],
    ) -> Result<TargetForm, MalformedSection> {
        if method == Method::Other && method_name == b"CONNECT" {
            return self.connect_form(scratch);
        }
        let (Some(_), Some(path)) = (self.scheme, self.path) else {
            return Err(MalformedSection);
        };
        match path.of(scratch) {
            [b'/', ..] => Ok(TargetForm::Origin),
            _ if method == Method::Options => Ok(TargetForm::Asterisk),
            _ => Err(MalformedSection),
        }
    }

    /// RFC 9113 8.5: an authority with its port, no scheme and no path.
    #[cold]
    fn connect_form(&self, scratch: &[u8]) -> Result<TargetForm, MalformedSection> {
        let authority = self.authority.ok_or(MalformedSection)?.of(scratch);
        if self.scheme.is_some() || self.path.is_some() {
            return Err(MalformedSection);
        }
        target::parse_target(authority, Method::Other, b"CONNECT")
            .map(|(target, _)| target.form)
            .map_err(|_| MalformedSection)
    }

    /// The request target, in the form found.
    #[inline]
    fn target<'s>(&self, scratch: &'s [u8], form: TargetForm) -> Option<RequestTarget<'s>> {
        let raw = match form {
            TargetForm::Authority => self.authority?.of(scratch),
            _ => self.path?.of(scratch),
        };
        let (path, query) = match form {
            TargetForm::Origin => match scan::find_byte(raw, b'?') {
                end if end < raw.len() => (&raw[..end], Some(&raw[end + 1..])),
                _ => (raw, None),
            },
            _ => (&raw[..0], None),
        };
        Some(RequestTarget {
            raw,
            form,
            path,
            query,
        })
    }

    /// Checks that there is an authority, in `:authority` or `host`; if in both, the same (RFC 9113
    /// section 8.3.1).
    #[inline]
    fn check_authority(&self, scratch: &[u8]) -> Result<(), MalformedSection> {
        let host = self.index.get(self.section(scratch), KnownField::Host);
        let is_good = match (self.authority, host) {
            (Some(_), None) => true,
            (None, None) => false,
            (None, Some(_)) => !self.index.is_repeated(KnownField::Host),
            (Some(authority), Some(host)) => {
                !self.index.is_repeated(KnownField::Host)
                    && authority.of(scratch).eq_ignore_ascii_case(host)
            }
        };
        if is_good {
            Ok(())
        } else {
            Err(MalformedSection)
        }
    }

    /// Whether the lines of `expect` contain no other expectation (RFC 9110 section 10.1.1).
    #[cold]
    fn expects_continue(&self, section: &[u8]) -> bool {
        Fields::indexed(section, &self.index)
            .lines(KnownField::Expect)
            .all(|line| line.eq_ignore_ascii_case(b"100-continue"))
    }
}

/// Whether a line may be among trailers (RFC 9113 section 8.1): pseudo-fields may not.
pub(crate) fn is_trailer(line: &Line) -> bool {
    line.is_well_formed && !line.kind.is_pseudo()
}

/// One number, in one line.
#[inline]
fn content_length(index: &FieldIndex, section: &[u8]) -> Result<Option<u64>, MalformedSection> {
    let Some(digits) = index.get(section, KnownField::ContentLength) else {
        return Ok(None);
    };
    if index.is_repeated(KnownField::ContentLength) {
        return Err(MalformedSection);
    }
    parse_decimal(digits).map(Some).ok_or(MalformedSection)
}
