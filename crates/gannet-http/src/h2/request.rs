//! From a decoded field section to a request (RFC 9113 section 8).
//!
//! The caller's scratch buffer holds the section as lines: those of the pseudo-fields first, the
//! others after them, so that the latter are a section as HTTP/1 has it.

use super::error::{Rejection, RejectionWhy, Why};
use super::hpack::line::{Line, NameKind};
use super::limits::FIELD_SECTION_MAX;
use crate::h1::target;
use crate::scan;
use crate::semantics::decimal::parse_decimal;
use crate::semantics::fields::{FieldIndex, Fields, KnownField};
use crate::semantics::limits::FIELD_LINES_MAX;
use crate::semantics::request::{Content, Method, Request, RequestTarget, TargetForm, Version};

/// What is known of a section while its lines come in.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head {
    method: Option<Span>,
    scheme: Option<Span>,
    authority: Option<Span>,
    path: Option<Span>,
    /// Where the lines begin that are not of pseudo-fields.
    section_start: usize,
    index: FieldIndex,
    line_count: u16,
    /// As SETTINGS_MAX_HEADER_LIST_SIZE counts.
    size: u32,
    has_fields: bool,
    is_malformed: bool,
    rejection: Option<RejectionWhy>,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    len: usize,
}

impl Span {
    #[inline]
    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start..self.start + self.len]
    }
}

/// A section that is a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    pub(crate) method: Method,
    /// What the request says about the length of its content.
    pub(crate) content_length: Option<u64>,
    /// It is to be answered with an error.
    pub(crate) rejection: Option<Rejection>,
}

impl Head {
    /// Takes in a line; says whether it stays in the buffer.
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
        self.line_count += 1;
        if self.size > FIELD_SECTION_MAX || self.line_count > FIELD_LINES_MAX {
            return self.drop_line();
        }
        if let NameKind::Known(field) = line.kind {
            let start = line.value_start() - self.section_start;
            self.index.note(field, start, line.value_len);
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
        *span = Some(Span {
            start: line.value_start(),
            len: line.value_len,
        });
        self.section_start = line.end();
        if self.size > FIELD_SECTION_MAX {
            // Kept, because the span says so; nothing more is.
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
        // The decoder bounds the size; the count is bounded by it.
        self.line_count = FIELD_LINES_MAX;
        false
    }

    /// Judges the section when all of it is there.
    ///
    /// # Errors
    /// [`Why::Malformed`].
    #[inline]
    pub(crate) fn finish(&self, scratch: &[u8], is_ended: bool) -> Result<Accepted, Why> {
        if self.is_malformed {
            return Err(Why::Malformed);
        }
        let method = self.method.ok_or(Why::Malformed)?.of(scratch);
        let method = match method {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"OPTIONS" => Method::Options,
            name if is_token(name) => Method::Other,
            _ => return Err(Why::Malformed),
        };
        if let Some(why) = self.rejection {
            return Ok(Accepted {
                method,
                content_length: None,
                rejection: Some(Rejection::of(why)),
            });
        }
        let fields = self.fields(scratch);
        self.target(scratch, method)?;
        self.check_authority(scratch, &fields, method)?;
        let content_length = content_length(&fields)?;
        if is_ended && content_length.is_some_and(|len| len > 0) {
            return Err(Why::Malformed);
        }
        let has_unknown_expectation = fields.has(KnownField::Expect)
            && fields
                .lines(KnownField::Expect)
                .any(|line| !line.eq_ignore_ascii_case(b"100-continue"));
        Ok(Accepted {
            method,
            content_length,
            rejection: has_unknown_expectation
                .then_some(Rejection::of(RejectionWhy::ExpectationUnknown)),
        })
    }

    /// The request, once [`finish`](Self::finish) has found it good.
    #[inline]
    pub(crate) fn request<'s>(
        &self,
        scratch: &'s [u8],
        accepted: &Accepted,
        is_ended: bool,
    ) -> Option<Request<'s>> {
        let fields = self.fields(scratch);
        let authority = self.authority.map(|span| span.of(scratch));
        Some(Request {
            method: accepted.method,
            method_name: self.method?.of(scratch),
            target: self.target(scratch, accepted.method).ok()?,
            authority: authority.or_else(|| fields.get(KnownField::Host)),
            version: Version::Http2,
            fields,
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
        self.fields(scratch).get(KnownField::Priority)
    }

    #[inline]
    fn fields<'s>(&self, scratch: &'s [u8]) -> Fields<'s> {
        let section = scratch.get(self.section_start..).unwrap_or_default();
        Fields::indexed(section, &self.index)
    }

    /// The request target (RFC 9113 section 8.3.1): of CONNECT, the authority.
    #[inline]
    fn target<'s>(&self, scratch: &'s [u8], method: Method) -> Result<RequestTarget<'s>, Why> {
        let method_name = self.method.ok_or(Why::Malformed)?.of(scratch);
        if method == Method::Other && method_name == b"CONNECT" {
            return self.connect_target(scratch);
        }
        let (Some(scheme), Some(path)) = (self.scheme, self.path) else {
            return Err(Why::Malformed);
        };
        let raw = path.of(scratch);
        let is_origin_or_asterisk = matches!(raw, [b'/', ..] | [b'*']);
        let is_visible = scan::find_not_visible(raw) == raw.len();
        if !is_scheme(scheme.of(scratch)) || !is_origin_or_asterisk || !is_visible {
            return Err(Why::Malformed);
        }
        let (target, _) =
            target::parse_target(raw, method, method_name).map_err(|_| Why::Malformed)?;
        Ok(target)
    }

    /// RFC 9113 8.5: an authority, no scheme and no path.
    #[cold]
    fn connect_target<'s>(&self, scratch: &'s [u8]) -> Result<RequestTarget<'s>, Why> {
        if self.scheme.is_some() || self.path.is_some() {
            return Err(Why::Malformed);
        }
        let raw = self.authority.ok_or(Why::Malformed)?.of(scratch);
        let (target, _) =
            target::parse_target(raw, Method::Other, b"CONNECT").map_err(|_| Why::Malformed)?;
        debug_assert!(
            target.form == TargetForm::Authority,
            "CONNECT has that form"
        );
        Ok(target)
    }

    /// There is an authority, in `:authority` or `host`; if in both, the same (RFC 9113 section
    /// 8.3.1). CONNECT's was looked at with its target.
    #[inline]
    fn check_authority(
        &self,
        scratch: &[u8],
        fields: &Fields<'_>,
        method: Method,
    ) -> Result<(), Why> {
        let host = fields.get(KnownField::Host);
        let authority = self.authority.map(|span| span.of(scratch));
        let is_good = match (authority, host) {
            (None, None) => false,
            (Some(authority), None) => {
                (method == Method::Other && self.path.is_none()) || target::is_authority(authority)
            }
            (None, Some(host)) => {
                !fields.is_repeated(KnownField::Host) && target::is_authority(host)
            }
            (Some(authority), Some(host)) => {
                !fields.is_repeated(KnownField::Host)
                    && target::is_authority(authority)
                    && authority.eq_ignore_ascii_case(host)
            }
        };
        if is_good { Ok(()) } else { Err(Why::Malformed) }
    }
}

/// Whether a line may be among trailers (RFC 9113 section 8.1): no pseudo-field is.
pub(crate) fn is_trailer(line: &Line) -> bool {
    line.is_well_formed && !line.kind.is_pseudo()
}

/// One number, in one line.
#[inline]
fn content_length(fields: &Fields<'_>) -> Result<Option<u64>, Why> {
    let Some(digits) = fields.get(KnownField::ContentLength) else {
        return Ok(None);
    };
    if fields.is_repeated(KnownField::ContentLength) {
        return Err(Why::Malformed);
    }
    parse_decimal(digits).map(Some).ok_or(Why::Malformed)
}

/// RFC 3986 3.1.
#[inline]
fn is_scheme(scheme: &[u8]) -> bool {
    match scheme {
        b"http" | b"https" => true,
        [first, rest @ ..] => {
            first.is_ascii_alphabetic()
                && rest
                    .iter()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte))
        }
        [] => false,
    }
}

fn is_token(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|&byte| scan::is_token_byte(byte))
}
