//! Preconditions and ranges: the outcome of a request for an existing representation.
//!
//! The order is that of RFC 9110 section 13.2.2, the same for every version of the protocol. A
//! response whose status would not be 200 without conditions (a 404 page, a redirect) must not be
//! planned here: conditions and ranges do not apply to it (RFC 9110 sections 13.2.1 and 14.2).

use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::date::parse_date;
use gannet_http::semantics::entity_tag::{Comparison, EntityTag, list_matches};
use gannet_http::semantics::fields::{FieldMask, Fields, KnownField};
use gannet_http::semantics::range::{RangeRequest, RangeSet, parse_range};
use gannet_http::semantics::request::{Method, Request};

/// What conditions and ranges are evaluated against: the selected representation.
#[derive(Clone, Copy, Debug)]
pub struct Representation<'a> {
    /// Length of the content in its coding, in bytes.
    pub len: u64,
    /// The coding that was selected.
    pub coding: Coding,
    /// The entity tag as it is sent, quotes and `W/` included.
    pub entity_tag: Option<&'a [u8]>,
    /// When it was last modified, in Unix seconds; `None` if unknown or not sent.
    pub last_modified: Option<i64>,
}

/// The kind of response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "short-lived, on the stack, and free of allocation"
)]
pub enum Outcome {
    /// 200 with all of it.
    Full,
    /// 304 without content.
    NotModified,
    /// 412.
    PreconditionFailed,
    /// 206 with these ranges: one is sent alone, several as `multipart/byteranges`.
    Partial(RangeSet),
    /// 416: no requested range is satisfiable.
    Unsatisfiable,
}

/// The outcome of the request for this representation.
///
/// `now` (Unix seconds) settles the century of two-digit years, whether a date can be a strong
/// validator, and that a modification date in the future does not count.
#[inline]
#[must_use]
pub fn outcome(request: &Request<'_>, representation: &Representation<'_>, now: i64) -> Outcome {
    if !request.fields.has_any(FieldMask::CONDITIONS_AND_RANGE) {
        return Outcome::Full;
    }
    evaluate(request.method, &request.fields, representation, now)
}

/// The steps of RFC 9110 section 13.2.2, for requests that have any of the fields.
fn evaluate(
    method: Method,
    fields: &Fields<'_>,
    representation: &Representation<'_>,
    now: i64,
) -> Outcome {
    if !matches!(method, Method::Get | Method::Head) {
        return Outcome::Full;
    }
    let current = Current::new(representation, now);
    // Steps 1 and 2.
    let is_as_expected = if fields.has(KnownField::IfMatch) {
        current.is_listed(fields, KnownField::IfMatch, Comparison::Strong)
    } else {
        !current.is_modified_since(fields, KnownField::IfUnmodifiedSince, now)
    };
    if !is_as_expected {
        return Outcome::PreconditionFailed;
    }
    // Steps 3 and 4: If-Modified-Since counts only without If-None-Match (section 13.1.3).
    let is_known = if fields.has(KnownField::IfNoneMatch) {
        current.is_listed(fields, KnownField::IfNoneMatch, Comparison::Weak)
    } else {
        current.is_unmodified_since(fields, KnownField::IfModifiedSince, now)
    };
    if is_known {
        return Outcome::NotModified;
    }
    // Step 5.
    if method == Method::Get && fields.has(KnownField::Range) {
        return current.range(fields, now);
    }
    Outcome::Full
}

/// The selected representation with its validators in comparable form.
struct Current<'a> {
    len: u64,
    coding: Coding,
    tag: Option<EntityTag<'a>>,
    last_modified: Option<i64>,
}

impl<'a> Current<'a> {
    fn new(representation: &Representation<'a>, now: i64) -> Self {
        Self {
            len: representation.len,
            coding: representation.coding,
            tag: representation.entity_tag.and_then(EntityTag::parse),
            // RFC 9110 8.8.2.1: a date later than now is never sent, so no client can have received
            // it.
            last_modified: representation.last_modified.filter(|&date| date <= now),
        }
    }

    /// Whether the field's list, or its `*`, matches the current tag.
    fn is_listed(&self, fields: &Fields<'_>, field: KnownField, how: Comparison) -> bool {
        list_matches(fields.lines(field), self.tag, how)
    }

    /// Whether both dates are known and the representation is newer than the field's.
    fn is_modified_since(&self, fields: &Fields<'_>, field: KnownField, now: i64) -> bool {
        let (date, last_modified) = (single_date(fields, field, now), self.last_modified);
        matches!((date, last_modified), (Some(date), Some(modified)) if modified > date)
    }

    /// Whether both dates are known and the representation is not newer than the field's.
    fn is_unmodified_since(&self, fields: &Fields<'_>, field: KnownField, now: i64) -> bool {
        let (date, last_modified) = (single_date(fields, field, now), self.last_modified);
        matches!((date, last_modified), (Some(date), Some(modified)) if modified <= date)
    }

    /// The outcome of `Range`, unless `If-Range` cancels it.
    fn range(&self, fields: &Fields<'_>, now: i64) -> Outcome {
        if fields.is_repeated(KnownField::Range) || !self.is_if_range_met(fields, now) {
            return Outcome::Full;
        }
        let value = fields.get(KnownField::Range).unwrap_or_default();
        match parse_range(value, self.len) {
            RangeRequest::Ignore => Outcome::Full,
            RangeRequest::Unsatisfiable => Outcome::Unsatisfiable,
            // Content-Encoding beside multipart/byteranges would mean that the delimiters are coded
            // too: clients would decode them. A range may always be ignored.
            RangeRequest::Satisfiable(set)
                if set.as_slice().len() > 1 && self.coding != Coding::Identity =>
            {
                Outcome::Full
            }
            RangeRequest::Satisfiable(set) => Outcome::Partial(set),
        }
    }

    /// Whether `If-Range` is absent or names the current representation by a strong validator
    /// (RFC 9110 section 13.1.5).
    fn is_if_range_met(&self, fields: &Fields<'_>, now: i64) -> bool {
        if !fields.has(KnownField::IfRange) {
            return true;
        }
        if fields.is_repeated(KnownField::IfRange) {
            return false;
        }
        let value = fields.get(KnownField::IfRange).unwrap_or_default();
        if let Some(tag) = EntityTag::parse(value) {
            return self
                .tag
                .is_some_and(|current| tag.matches(&current, Comparison::Strong));
        }
        // RFC 9110 8.8.2.2: a date is strong only if the second it names is over, since the file
        // may change again within it. It must be equal, not merely later.
        let date = parse_date(value, now);
        date.is_some() && date == self.last_modified && date < Some(now)
    }
}

/// The date of a field that has one line with a valid date; otherwise the field is ignored (RFC
/// 9110 sections 13.1.3 and 13.1.4).
fn single_date(fields: &Fields<'_>, field: KnownField, now: i64) -> Option<i64> {
    if fields.is_repeated(field) {
        return None;
    }
    parse_date(fields.get(field)?, now)
}
