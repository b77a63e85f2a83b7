//! Builds the bytes of a response from a resolved request, for every version of HTTP.
//!
//! `gannet-content` evaluates preconditions and ranges; this module writes heads and references
//! bodies, in the cheapest form that their source allows. What differs between versions
//! is a [`Reply`].

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use gannet_content::answer;
use gannet_content::multipart::{Boundary, multipart};
use gannet_content::plan::{self, Outcome};
use gannet_content::policy::digest::{CONTENT_DIGEST, REPR_DIGEST};
use gannet_content::routing::{is_for_navigation, is_navigation};
use gannet_content::rules::headers::{FieldChanges, is_caching_field};
use gannet_content::rules::pattern::Scheme;
use gannet_content::rules::steps::Steps;
use gannet_http::semantics::date::DATE_LINE_LEN;
use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::range::ByteRange;
use gannet_http::semantics::ready_fields::{ReadyFields, ReadyFieldsError};
use gannet_http::semantics::request::{Method, Request, Version};
use gannet_http::semantics::response::{ReadyPart, ResponseHead, Status};
use gannet_http::semantics::target_path::decode_path;
use gannet_io::driver::Nanos;
use gannet_io::memory::Memory;

use crate::bounds::ledger::Ledger;
use crate::exchange::digests::Digests;
use crate::exchange::outgoing::Outgoing;
use crate::exchange::timing::{SERVER_TIMING, Timing};
use crate::observe::record::Answered;
use crate::release::bodies::Unloaded;
use crate::release::body::Body;
use crate::release::error_pages::ErrorPages;
use crate::release::opened::Policy;
use crate::release::own_fields::OwnFields;
use crate::release::redirect::Redirect;
use crate::release::rules::{FieldsUnknown, RequestRules};
use crate::release::{Selected, ServedFile, Source};

/// State common to all requests of a turn.
pub(crate) struct Turn<'a> {
    /// `date: ... CRLF`.
    pub(crate) date_line: &'a [u8; DATE_LINE_LEN],
    /// The real-time clock, seconds.
    pub(crate) unix: i64,
    /// The monotonic clock.
    pub(crate) now: Nanos,
    /// See [`WorkerSettings`](crate::ground::settings::WorkerSettings).
    pub(crate) secret: &'a [u8; 32],
    /// Fields that the operator configured for every response.
    pub(crate) fields: Vec<(&'a str, &'a [u8])>,
    /// Location of the HTTPS server.
    pub(crate) redirect: Redirect,
    /// Default fields of the server's own responses.
    pub(crate) defaults: &'a OwnFields,
    /// The scheme by which requests are sent: that of the connection, unless a trusted proxy names
    /// another.
    pub(crate) scheme: Scheme,
    /// The connection is not encrypted, whatever its scheme.
    pub(crate) is_clear: bool,
    /// Charges copies of content.
    pub(crate) ledger: &'a Ledger,
    /// What responses say in `server-timing`, if they have it.
    pub(crate) timing: Option<Timing>,
    /// Those that the site's rules may take for the request that is answered.
    pub(crate) steps: Steps,
}

impl<'a> Turn<'a> {
    /// Answers as over this scheme, with the fields that `policy` has for it. Returns the scheme and
    /// fields before, if they are others.
    pub(crate) fn sent_by(&mut self, scheme: Scheme, policy: &'a Policy) -> Option<Before<'a>> {
        (scheme != self.scheme).then(|| {
            let fields = std::mem::replace(&mut self.fields, policy.fields_of(scheme));
            (std::mem::replace(&mut self.scheme, scheme), fields)
        })
    }

    /// The configured fields for responses of this status: caching fields are meant for content,
    /// not for errors, and not for what only some may have.
    pub(super) fn configured(
        &self,
        status: Status,
        is_protected: bool,
    ) -> impl Iterator<Item = (&str, &[u8])> + Clone {
        let may_be_cached = status.0 < 400 && !is_protected;
        let fields = self.fields.iter().copied();
        fields.filter(move |(name, _)| may_be_cached || !is_caching_field(name))
    }
}

/// A scheme, and the fields that the operator configured for it.
type Before<'a> = (Scheme, Vec<(&'a str, &'a [u8])>);

/// The recipient of a response, of any version: writes its head and takes its content.
pub(crate) trait Reply {
    /// The version of the response. For HTTP/1 always 1.1, which a server that supports it names
    /// even to clients of 1.0 (RFC 9110 section 2.5).
    fn version(&self) -> Version;

    /// Writes the head of a response with `len` bytes of content; true if they are to follow.
    fn head(
        &mut self,
        head: &ResponseHead<'_>,
        date_line: &[u8; DATE_LINE_LEN],
        len: u64,
        out: &mut Outgoing,
    ) -> bool;

    /// Takes a range of a representation as the next content.
    fn content(&mut self, source: Source<'_>, range: Range<u64>, now: Nanos, out: &mut Outgoing);
}

/// Writes one response of a connection.
pub(crate) struct Answering<'a> {
    pub(crate) reply: &'a mut dyn Reply,
    pub(crate) turn: &'a Turn<'a>,
    pub(crate) out: &'a mut Outgoing,
    /// The site's own rules, if it has any and they apply to the request.
    pub(crate) ruling: Option<RequestRules<'a>>,
    /// The site's own error pages, where no rules apply.
    pub(crate) pages: Option<&'a ErrorPages>,
    /// Only some may have the path, one of whom has sent the request: no shared cache may keep it.
    pub(crate) is_protected: bool,
    /// What the paths of the site start with, which it does not know.
    pub(crate) prefix: &'a [u8],
}

impl<'a> Answering<'a> {
    /// Writes a response without rules and pages of a site.
    pub(crate) fn new(reply: &'a mut dyn Reply, turn: &'a Turn<'a>, out: &'a mut Outgoing) -> Self {
        Self {
            reply,
            turn,
            out,
            ruling: None,
            pages: None,
            is_protected: false,
            prefix: b"",
        }
    }
}

impl Answering<'_> {
    /// The same response, for a shorter time.
    pub(super) fn again(&mut self) -> Answering<'_> {
        Answering {
            reply: &mut *self.reply,
            turn: self.turn,
            out: &mut *self.out,
            ruling: self.ruling,
            pages: self.pages,
            is_protected: self.is_protected,
            prefix: self.prefix,
        }
    }

    /// Sends the selected representation, subject to preconditions and ranges.
    pub(crate) fn selected(&mut self, request: &Request<'_>, selected: &Selected<'_>) -> Answered {
        if selected.status == Status::NOT_FOUND && self.gives_icon(request) {
            return self.icon();
        }
        let changed = match self.changed(request, selected) {
            Ok(None) => return self.planned(request, selected),
            Ok(Some(changed)) => changed,
            // The rules make more fields than a response may have, or it is not known which:
            // omitting some that the site relies on would be worse.
            // In place of a page for an error: that error's own.
            Err(FieldsUnknown) => {
                let status = match selected.status.0 {
                    400.. => selected.status,
                    _ => Status::INTERNAL_SERVER_ERROR,
                };
                return self.error(status, None);
            }
        };
        let block = changed.as_block();
        let changed = Selected {
            block: block.into(),
            content_type: block.get("content-type").unwrap_or_default(),
            ..*selected
        };
        self.planned(request, &changed)
    }

    /// The fields of a representation, if rules or the operator change them.
    pub(super) fn changed(
        &self,
        request: &Request<'_>,
        selected: &Selected<'_>,
    ) -> Result<Option<ReadyFields>, FieldsUnknown> {
        let replaced = &self.turn.defaults.replaced;
        let narrower = narrower_cache_control(request, selected);
        let is_plain = self.ruling.is_none() && !selected.varies_by_type && !self.is_protected;
        let is_error = selected.status.0 >= 400;
        if is_plain && replaced.is_empty() && narrower.is_none() && !is_error {
            return Ok(None);
        }
        let mut ruling = self.ruling.filter(|_| !selected.is_ruled);
        if !selected.is_own || is_error {
            ruling = ruling.map(RequestRules::without_caching);
        }
        let changes = ruling.map(|ruling| ruling.changes()).transpose()?;
        let mut changes = changes.flatten();
        if selected.varies_by_type {
            let changes = changes.get_or_insert_default();
            changes.vary_by(answer::VARY_BY_TYPE);
        }
        let has_file = selected.is_own && !is_error;
        if self
            .ruling
            .is_some_and(|it| it.varies_by_language(has_file))
        {
            let changes = changes.get_or_insert_default();
            changes.vary_by(answer::VARY_BY_LANGUAGE);
        }
        if is_error {
            // Neither conditions nor ranges apply to an error's page (RFC 9110 section 13.2.1).
            let unused = ["accept-ranges", "etag", "last-modified"].map(str::to_owned);
            changes.get_or_insert_default().remove.extend(unused);
        }
        if self.is_protected {
            let changes = changes.unwrap_or_default();
            let changed = self.protected(changes, narrower, selected);
            return changed.map(Some).map_err(|_| FieldsUnknown);
        }
        let mut changes = changes.unwrap_or_default();
        if let Some(value) = narrower
            && !changes.touch(CACHE_CONTROL)
        {
            let value = value.as_bytes().to_vec();
            changes.set.push((CACHE_CONTROL.to_owned(), value));
        }
        let replaced = replaced.iter();
        for name in replaced.filter(|name| !is_error || !is_caching_field(name)) {
            changes.set.retain(|(set, _)| set != name);
            if selected.block.h1.get(name).is_some() {
                changes.remove.push(name.clone());
            }
        }
        if changes.is_empty() {
            return Ok(None);
        }
        let changed = changes.apply_to_block(selected.block.h1);
        changed.map(Some).map_err(|_| FieldsUnknown)
    }

    /// The fields of a representation that no shared cache may keep, whatever rules or the operator
    /// say.
    #[cold]
    fn protected(
        &self,
        mut changes: FieldChanges,
        narrower: Option<&'static str>,
        selected: &Selected<'_>,
    ) -> Result<ReadyFields, ReadyFieldsError> {
        let has = |name: &str| self.turn.defaults.replaced.iter().any(|it| it == name);
        let mut operators = self.turn.fields.iter();
        let of_operator = operators.find(|(name, _)| *name == CACHE_CONTROL && has(name));
        let of_rule = changes.set.iter().find(|(name, _)| name == CACHE_CONTROL);
        let value = of_operator
            .map(|(_, value)| *value)
            .filter(|_| selected.status.0 < 400)
            .or_else(|| of_rule.map(|(_, value)| value.as_slice()))
            .or(narrower.map(str::as_bytes))
            .or_else(|| selected.block.h1.get(CACHE_CONTROL))
            .unwrap_or_default();
        let value = answer::protected_cache_control(value).unwrap_or_else(|| value.to_vec());
        let is_caching = |name: &str| is_caching_field(name) && name != "expires";
        changes
            .set
            .retain(|(name, _)| !is_caching(name) && !has(name));
        changes.remove.retain(|name| name != CACHE_CONTROL);
        let block = selected.block.h1;
        for (name, _, _) in block.lines() {
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            if name != CACHE_CONTROL && (is_caching(&name) || has(&name)) {
                changes.remove.push(name);
            }
        }
        changes.set.push((CACHE_CONTROL.to_owned(), value));
        changes.apply_to_block(block)
    }

    /// The body that is not in memory whose bytes the response sends, and how many.
    #[inline]
    pub(crate) fn missing_body<'s>(
        &self,
        request: &Request<'_>,
        selected: &Selected<'s>,
    ) -> Option<(Unloaded<'s>, u64)> {
        let Source::Unloaded(body) = selected.source else {
            return None;
        };
        let needed = needed_bytes(request, selected, self.turn.unix)?;
        body.body().is_none().then_some((body, needed))
    }

    /// The first byte of the representation that the response sends.
    pub(crate) fn first_sent(&self, request: &Request<'_>, selected: &Selected<'_>) -> Range<u64> {
        let first = match self.outcome(request, selected) {
            Outcome::Partial(ranges) => ranges.as_slice().first().map(|one| bounds(*one)),
            _ => None,
        };
        first.unwrap_or(0..selected.representation.len)
    }

    /// Whether the response needs bytes of a live file that have not been read or decoded yet.
    #[inline]
    pub(crate) fn is_unread(&self, request: &Request<'_>, selected: &Selected<'_>) -> bool {
        !selected.is_at_hand() && needed_bytes(request, selected, self.turn.unix).is_some()
    }

    fn outcome(&self, request: &Request<'_>, selected: &Selected<'_>) -> Outcome {
        outcome(request, selected, self.turn.unix)
    }

    /// Sends the selected representation with its current fields.
    fn planned(&mut self, request: &Request<'_>, selected: &Selected<'_>) -> Answered {
        let outcome = self.outcome(request, selected);
        let loaded: Body;
        let in_memory: Selected<'_>;
        let mut selected = selected;
        if let Source::Unloaded(body) = selected.source
            && sends_content(request, &outcome)
        {
            // Loaded first, so that corruption is a 500, not a truncated body.
            let Some(body) = body.body() else {
                return self.error(Status::INTERNAL_SERVER_ERROR, None);
            };
            loaded = body;
            in_memory = Selected {
                source: loaded.as_source(),
                ..*selected
            };
            selected = &in_memory;
        }
        let own: Rc<ServedFile>;
        let of_own: Selected<'_>;
        if let Source::File(file, offset) = selected.source
            && let Some(file) = self.own_file(
                request,
                (file, offset),
                selected.representation.len,
                &outcome,
            )
        {
            own = file;
            of_own = Selected {
                source: Source::File(&own, offset),
                ..*selected
            };
            selected = &of_own;
        }
        match outcome {
            Outcome::Full => self.whole(selected, &self.digests(request, selected)),
            Outcome::NotModified => self.not_modified(selected),
            Outcome::PreconditionFailed => self.error(Status::PRECONDITION_FAILED, None),
            Outcome::Partial(ranges) => match ranges.as_slice() {
                [one] => {
                    let digests = self.digests(request, selected);
                    self.one_range(selected, *one, &digests)
                }
                many => self.many_ranges(selected, many),
            },
            Outcome::Unsatisfiable => self.unsatisfiable(selected),
        }
    }

    /// The file that a response is sent from, for it alone, if it may grow meanwhile or only a part of it is here.
    fn own_file(
        &self,
        request: &Request<'_>,
        (file, offset): (&Rc<ServedFile>, u64),
        len: u64,
        outcome: &Outcome,
    ) -> Option<Rc<ServedFile>> {
        if !sends_content(request, outcome) {
            return None;
        }
        if file.partial.is_some() {
            let own = file.partial_at(offset)?;
            if let (Some(view), Outcome::Partial(ranges)) = (&own.partial, outcome) {
                let ends = ranges.as_slice().iter().map(|one| one.end);
                view.is_needed_until(offset + ends.max().unwrap_or(0));
            }
            return Some(own);
        }
        let in_file = |range: Range<u64>| offset + range.start..offset + range.end;
        file.growing(self.turn.unix, || match outcome {
            Outcome::Partial(ranges) => {
                let ranges = ranges.as_slice().iter();
                ranges.map(|range| in_file(bounds(*range))).collect()
            }
            _ => vec![in_file(0..len)],
        })
    }

    /// The digests that a request wants, unless the operator configures the field.
    fn digests(&self, request: &Request<'_>, selected: &Selected<'_>) -> Digests {
        let mut replaced = self.turn.defaults.replaced.iter();
        match replaced.any(|name| [REPR_DIGEST, CONTENT_DIGEST].contains(&name.as_str())) {
            true => Digests::default(),
            false => Digests::asked(request, selected),
        }
    }

    fn whole(&mut self, selected: &Selected<'_>, digests: &Digests) -> Answered {
        let len = selected.representation.len;
        let with_digests: Vec<_>;
        let is_plain = digests.is_empty() && selected.status == Status::OK && !self.is_protected;
        let fields = if is_plain {
            &self.turn.fields
        } else {
            let own = self.turn.configured(selected.status, self.is_protected);
            with_digests = own.chain(digests.fields(true)).collect();
            &with_digests
        };
        let head = ResponseHead {
            status: selected.status,
            ready: Some((selected.block, ReadyPart::Whole)),
            content_length: None,
            fields,
        };
        if self.head(&head, len) {
            self.body(selected.source, 0..len);
            return Answered {
                status: selected.status,
                body_len: len,
            };
        }
        Answered {
            status: selected.status,
            body_len: 0,
        }
    }

    fn not_modified(&mut self, selected: &Selected<'_>) -> Answered {
        let status = Status::NOT_MODIFIED;
        let configured: Vec<_>;
        let fields = match self.is_protected {
            true => {
                configured = self.turn.configured(status, true).collect();
                &configured
            }
            false => &self.turn.fields,
        };
        let head = ResponseHead {
            status,
            ready: Some((selected.block, ReadyPart::Shared)),
            content_length: None,
            fields,
        };
        self.head(&head, 0);
        Answered {
            status: Status::NOT_MODIFIED,
            body_len: 0,
        }
    }

    fn one_range(
        &mut self,
        selected: &Selected<'_>,
        range: ByteRange,
        digests: &Digests,
    ) -> Answered {
        let mut content_range = Vec::new();
        range.write_content_range(selected.representation.len, &mut content_range);
        let mut fields = self.fields(Some(("content-range", &content_range)));
        fields.extend(digests.fields(false));
        let head = ResponseHead {
            status: Status::PARTIAL_CONTENT,
            ready: Some((selected.block, ReadyPart::WithoutLength)),
            content_length: Some(range.len()),
            fields: &fields,
        };
        let mut body_len = 0;
        if self.head(&head, range.len()) {
            self.body(selected.source, bounds(range));
            body_len = range.len();
        }
        Answered {
            status: Status::PARTIAL_CONTENT,
            body_len,
        }
    }

    /// Several ranges: the plan allows them only for content without a coding.
    fn many_ranges(&mut self, selected: &Selected<'_>, ranges: &[ByteRange]) -> Answered {
        let boundary = Boundary::new(unforeseeable(self.turn));
        let representation = &selected.representation;
        let content_type = Some(selected.content_type).filter(|value| !value.is_empty());
        let multipart = multipart(ranges, content_type, representation.len, &boundary);
        let outer_type = boundary.content_type();
        let fields = self.fields(Some(("content-type", &outer_type)));
        let head = ResponseHead {
            status: Status::PARTIAL_CONTENT,
            ready: Some((selected.block, ReadyPart::Shared)),
            content_length: Some(multipart.content_length),
            fields: &fields,
        };
        let status = Status::PARTIAL_CONTENT;
        if !self.head(&head, multipart.content_length) {
            return Answered {
                status,
                body_len: 0,
            };
        }
        // One memory for all parts, which wait with it while the peer opens no window.
        let framing = Arc::new(Memory::from_vec(multipart.framing));
        let in_framing = |range: Range<usize>| range.start as u64..range.end as u64;
        for part in multipart.parts {
            self.body(Source::Made(&framing, 0), in_framing(part.head));
            self.body(selected.source, bounds(part.body));
        }
        self.body(Source::Made(&framing, 0), in_framing(multipart.closing));
        Answered {
            status,
            body_len: multipart.content_length,
        }
    }

    fn unsatisfiable(&mut self, selected: &Selected<'_>) -> Answered {
        let mut content_range = Vec::new();
        let len = selected.representation.len;
        gannet_http::semantics::range::write_unsatisfied_range(len, &mut content_range);
        self.error(
            Status::RANGE_NOT_SATISFIABLE,
            Some(("content-range", &content_range)),
        )
    }

    /// Writes the head of a response with `len` bytes of content; true if they are to follow.
    #[inline]
    pub(super) fn head(&mut self, head: &ResponseHead<'_>, len: u64) -> bool {
        match self.turn.timing {
            None => self.head_with(head, len),
            Some(timing) => self.head_with_timing(timing, head, len),
        }
    }

    #[cold]
    fn head_with_timing(&mut self, timing: Timing, head: &ResponseHead<'_>, len: u64) -> bool {
        let value = timing.to_string();
        let mut fields = head.fields.to_vec();
        fields.push((SERVER_TIMING, value.as_bytes()));
        let head = ResponseHead {
            fields: &fields,
            ..*head
        };
        self.head_with(&head, len)
    }

    fn head_with(&mut self, head: &ResponseHead<'_>, len: u64) -> bool {
        self.out.count();
        self.reply.head(head, self.turn.date_line, len, self.out)
    }

    /// Adds bytes made for this response to its content.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.body(Source::Bytes(bytes), 0..bytes.len() as u64);
    }

    /// Adds a range of a representation to the response's content.
    #[inline]
    pub(super) fn body(&mut self, source: Source<'_>, range: Range<u64>) {
        self.reply.content(source, range, self.turn.now, self.out);
    }

    fn fields<'f>(&self, further: Option<(&'f str, &'f [u8])>) -> Vec<(&'f str, &'f [u8])>
    where
        Self: 'f,
    {
        let mut fields: Vec<(&'f str, &'f [u8])> = Vec::with_capacity(self.turn.fields.len() + 6);
        let own = self.turn.fields.iter().copied();
        fields.extend(own.filter(|(name, _)| !self.is_protected || !is_caching_field(name)));
        fields.extend(further);
        fields
    }
}

fn outcome(request: &Request<'_>, selected: &Selected<'_>, unix: i64) -> Outcome {
    match selected.status {
        Status::OK => plan::outcome(request, &selected.representation, unix),
        _ => Outcome::Full,
    }
}

/// The number of bytes of the representation that a response needs: to send them, or a digest of
/// them. `None` if it is made from metadata.
pub(crate) fn needed_bytes(
    request: &Request<'_>,
    selected: &Selected<'_>,
    unix: i64,
) -> Option<u64> {
    let len = selected.representation.len;
    if selected.sha256.is_some() && Digests::are_wanted(request) {
        return Some(len);
    }
    match outcome(request, selected, unix) {
        outcome if !sends_content(request, &outcome) => None,
        Outcome::Partial(ranges) => Some(ranges.as_slice().iter().map(ByteRange::len).sum()),
        _ => Some(len),
    }
}

const CACHE_CONTROL: &str = "cache-control";

/// A stricter `cache-control` for a representation, if its own would allow too much for this
/// request.
#[inline]
fn narrower_cache_control(request: &Request<'_>, selected: &Selected<'_>) -> Option<&'static str> {
    let is_plain = selected.is_own && selected.status.0 < 400;
    if is_plain && !request.fields.has(KnownField::Authorization) {
        return None;
    }
    let value = selected.block.h1.get(CACHE_CONTROL).unwrap_or_default();
    if selected.status.0 >= 400 || (!selected.is_own && is_for_navigation_alone(request)) {
        let narrower = answer::CACHE_NO_CACHE;
        return (value != narrower.as_bytes()).then_some(narrower);
    }
    match request.fields.has(KnownField::Authorization) {
        true => answer::private_cache_control(value),
        false => None,
    }
}

/// Whether a page substitutes for the path because the request is a navigation.
fn is_for_navigation_alone(request: &Request<'_>) -> bool {
    let mut scratch = Vec::new();
    let path = decode_path(request.target.path, &mut scratch);
    path.is_ok_and(|path| is_for_navigation(path.as_bytes(), is_navigation(&request.fields)))
}

/// Whether bytes of the representation are sent.
fn sends_content(request: &Request<'_>, outcome: &Outcome) -> bool {
    request.method == Method::Get && matches!(outcome, Outcome::Full | Outcome::Partial(_))
}

fn bounds(range: ByteRange) -> Range<u64> {
    range.start..range.end
}

/// Bytes that the author of a file cannot predict, and that do not reveal the worker's secret.
fn unforeseeable(turn: &Turn<'_>) -> [u8; 16] {
    let mut hash = Context::new(&SHA256);
    hash.update(turn.secret);
    hash.update(&turn.now.0.to_le_bytes());
    let mut out = [0; 16];
    out.copy_from_slice(&hash.finish().as_ref()[..16]);
    out
}
