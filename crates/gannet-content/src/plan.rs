//! Preconditions and ranges: the outcome of a request for an existing representation.
//!
//! The order is that of RFC 9110 section 13.2.2, the same for every version of the protocol. A
//! response whose status would not be 200 without conditions (a 404 page, a redirect) must not be
//! planned here: conditions and ranges do not apply to it (RFC 9110 sections 13.2.1 and 14.2).

use gannet_http::semantics::coding::{Coding, CodingSet};
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
#[derive(Clone, Debug, Eq, PartialEq)]
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
    // Steps 3 and 4: If-Modified-Since counts only without If-None-Match (section 13.1.3). Another
    // date than that of the file means another file: a release that was rolled back is older.
    let is_known = if fields.has(KnownField::IfNoneMatch) {
        current.is_listed(fields, KnownField::IfNoneMatch, Comparison::Weak)
    } else {
        current.has_date(fields, KnownField::IfModifiedSince, now)
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

    /// Whether both dates are known and equal.
    fn has_date(&self, fields: &Fields<'_>, field: KnownField, now: i64) -> bool {
        let date = single_date(fields, field, now);
        date.is_some() && date == self.last_modified
    }

    /// The outcome of `Range`, unless `If-Range` cancels it.
    ///
    /// A range of a coding is sent only to a client that names the coding's tag: others count bytes
    /// of the file, and would join those of two forms ([`select_for_range`]).
    fn range(&self, fields: &Fields<'_>, now: i64) -> Outcome {
        let is_plain = self.coding == Coding::Identity;
        let is_meant = (is_plain && self.is_if_range_met(fields, now)) || self.is_tag_named(fields);
        if fields.is_repeated(KnownField::Range) || !is_meant {
            return Outcome::Full;
        }
        let value = fields.get(KnownField::Range).unwrap_or_default();
        match parse_range(value, self.len) {
            RangeRequest::Ignore => Outcome::Full,
            RangeRequest::Unsatisfiable => Outcome::Unsatisfiable,
            // Content-Encoding beside multipart/byteranges would mean that the delimiters are coded
            // too: clients would decode them. A range may always be ignored.
            RangeRequest::Satisfiable(set) if set.as_slice().len() > 1 && !is_plain => {
                Outcome::Full
            }
            RangeRequest::Satisfiable(set) => Outcome::Partial(set),
        }
    }

    /// Whether `If-Range` is the current tag.
    fn is_tag_named(&self, fields: &Fields<'_>) -> bool {
        names_tag(fields, self.tag)
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
        if EntityTag::parse(value).is_some() {
            return self.is_tag_named(fields);
        }
        // RFC 9110 8.8.2.2: a date is strong only if the second it names is over, since the file
        // may change again within it. It must be equal, not merely later.
        let date = parse_date(value, now);
        date.is_some() && date == self.last_modified && date < Some(now)
    }
}

/// The codings that may answer, of those that a client accepts: for a range, the one whose tag
/// `If-Range` has, and otherwise only the plain file, unless `If-Match` excludes that.
///
/// A client that asks for a range without `If-Range` has bytes of the file from somewhere: a
/// download that broke off, an index, another server. Bytes of a coding, which depends on the
/// encoder, would not fit them, which would go unnoticed. `variants` are the resource's codings and
/// tags.
#[inline]
#[must_use]
pub fn select_for_range<'v>(
    request: &Request<'_>,
    accepted: CodingSet,
    variants: impl Iterator<Item = (Coding, &'v [u8])>,
) -> CodingSet {
    let fields = &request.fields;
    if !asks_range(request) {
        return accepted;
    }
    // With `If-Match`, a client wants what it has, too.
    let mut matched = CodingSet::EMPTY;
    for (coding, tag) in variants.filter(|(coding, _)| accepted.contains(*coding)) {
        let tag = EntityTag::parse(tag);
        if names_tag(fields, tag) {
            return coding.into();
        }
        // A range of what the client has whole is answered as the whole would be: 304 (RFC 9110, 14.2).
        if list_matches(fields.lines(KnownField::IfMatch), tag, Comparison::Strong)
            || list_matches(fields.lines(KnownField::IfNoneMatch), tag, Comparison::Weak)
        {
            matched = matched.with(coding);
        }
    }
    match matched.is_empty() || matched.contains(Coding::Identity) {
        true => CodingSet::IDENTITY,
        false => matched,
    }
}

/// Whether a coding with this tag may answer: not if the request is for a range and does not name it.
#[must_use]
pub fn may_be_of(request: &Request<'_>, tag: &[u8]) -> bool {
    let (fields, tag) = (&request.fields, EntityTag::parse(tag));
    !asks_range(request)
        || names_tag(fields, tag)
        || list_matches(fields.lines(KnownField::IfNoneMatch), tag, Comparison::Weak)
}

fn asks_range(request: &Request<'_>) -> bool {
    request.method == Method::Get && request.fields.has(KnownField::Range)
}

/// Whether `If-Range` is this tag, and both are strong.
fn names_tag(fields: &Fields<'_>, tag: Option<EntityTag<'_>>) -> bool {
    let named = fields.get(KnownField::IfRange).and_then(EntityTag::parse);
    let is_one = !fields.is_repeated(KnownField::IfRange);
    is_one && matches!((named, tag), (Some(a), Some(b)) if a.matches(&b, Comparison::Strong))
}

/// The date of a field that has one line with a valid date; otherwise the field is ignored (RFC
/// 9110 sections 13.1.3 and 13.1.4).
fn single_date(fields: &Fields<'_>, field: KnownField, now: i64) -> Option<i64> {
    if fields.is_repeated(field) {
        return None;
    }
    parse_date(fields.get(field)?, now)
}
