//! From a resolved request to the bytes of its answer, for every version of HTTP.
//!
//! Conditions and ranges were decided by `gannet-content`; here heads are written and bodies are
//! named, in the cheapest form that their source allows. What differs by version is in
//! [`Reply`].

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use gannet_content::multipart::{Boundary, multipart};
use gannet_content::plan::{self, Outcome};
use gannet_content::policy::digest::{CONTENT_DIGEST, REPR_DIGEST};
use gannet_content::policy::security::{Cors, preflight_fields};
use gannet_content::rules::pattern::Scheme;
use gannet_content::{answer, error_page};
use gannet_http::h1;
use gannet_http::h2::{StreamId, Time};
use gannet_http::semantics::date::DATE_LINE_LEN;
use gannet_http::semantics::range::ByteRange;
use gannet_http::semantics::ready_fields::{ReadyFields, ReadyFieldsError};
use gannet_http::semantics::request::{Method, Request, TargetForm};
use gannet_http::semantics::response::{ReadyPart, ResponseHead, Status};
use gannet_io::driver::Nanos;
use gannet_io::memory::Memory;

use crate::conn::Part;
use crate::digests::Digests;
use crate::limits::COPY_MAX;
use crate::outgoing::Outgoing;
use crate::own_fields::{FAVICON, OwnFields};
use crate::redirect::Redirect;
use crate::site::rules::Ruling;
use crate::site::{Selected, Source};
use crate::start::UPGRADE;
use crate::streams::Streams;

/// What is the same for all requests of a turn.
pub(crate) struct Turn<'a> {
    /// `date: ... CRLF`.
    pub(crate) date_line: &'a [u8; DATE_LINE_LEN],
    /// The real-time clock, seconds.
    pub(crate) unix: i64,
    /// The monotonic clock.
    pub(crate) now: Nanos,
    /// A secret of the worker.
    pub(crate) seed: u64,
    /// Fields that every answer carries, as the operator configured them.
    pub(crate) fields: &'a [(&'a str, &'a [u8])],
    /// Where HTTPS is.
    pub(crate) redirect: Redirect,
    /// Fields that the server's own answers have by default.
    pub(crate) defaults: &'a OwnFields,
    /// The scheme of the connection.
    pub(crate) scheme: Scheme,
}

/// What was answered, for counters and log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Answered {
    pub(crate) status: Status,
    /// Bytes of body that follow the head.
    pub(crate) body_len: u64,
}

/// Whose answer it is: what writes its head and takes its content.
pub(crate) enum Reply<'a> {
    /// The next one of an HTTP/1 connection.
    H1(&'a mut h1::Connection),
    /// That of a stream of an HTTP/2 connection.
    H2(&'a mut Streams, StreamId),
}

impl Reply<'_> {
    /// The same for a first attempt.
    pub(crate) fn again(&mut self) -> Reply<'_> {
        match self {
            Self::H1(h1) => Reply::H1(h1),
            Self::H2(streams, stream) => Reply::H2(streams, *stream),
        }
    }
}

/// Writes one answer of a connection.
pub(crate) struct Answering<'a> {
    pub(crate) reply: Reply<'a>,
    pub(crate) turn: &'a Turn<'a>,
    pub(crate) out: &'a mut Outgoing,
    /// The site's own rules, if it has any and the request is one that they can be asked about.
    pub(crate) ruling: Option<Ruling<'a>>,
}

impl Answering<'_> {
    /// Sends the selected representation, or what its conditions and ranges make of it.
    pub(crate) fn selected(&mut self, request: &Request<'_>, selected: &Selected<'_>) -> Answered {
        if selected.status == Status::NOT_FOUND && self.gives_icon(request) {
            return self.icon();
        }
        let changed = match self.changed(selected) {
            Ok(None) => return self.planned(request, selected),
            Ok(Some(changed)) => changed,
            // Rules that make more fields than an answer may have: leaving out some that the site
            // relies on would be worse.
            Err(_) => return self.error(Status::INTERNAL_SERVER_ERROR, None),
        };
        let block = changed.as_block();
        let mut lines = block.lines();
        let content_type = lines.find(|(name, _, _)| *name == b"content-type");
        let changed = Selected {
            block,
            content_type: content_type.map_or(b"", |(_, value, _)| value),
            ..*selected
        };
        self.planned(request, &changed)
    }

    /// The fields of a representation, if rules or the operator change them.
    fn changed(&self, selected: &Selected<'_>) -> Result<Option<ReadyFields>, ReadyFieldsError> {
        let ruling = self.ruling.filter(|_| !selected.is_ruled);
        let changes = ruling.and_then(|ruling| ruling.changes());
        let replaced = &self.turn.defaults.replaced;
        if changes.is_none() && replaced.is_empty() {
            return Ok(None);
        }
        let mut changes = changes.unwrap_or_default();
        for name in replaced {
            changes.set.retain(|(set, _)| set != name);
            let mut lines = selected.block.lines();
            if lines.any(|(line, _, _)| line == name.as_bytes()) {
                changes.remove.push(name.clone());
            }
        }
        if changes.is_empty() {
            return Ok(None);
        }
        changes.apply_to_block(selected.block).map(Some)
    }

    /// Whether the answer needs bytes of a body that is stored as gzip alone and is not in memory.
    pub(crate) fn needs_inflation(&self, request: &Request<'_>, selected: &Selected<'_>) -> bool {
        let Source::Gzip(body) = selected.source else {
            return false;
        };
        sends_content(request, &self.outcome(request, selected)) && body.body().is_none()
    }

    fn outcome(&self, request: &Request<'_>, selected: &Selected<'_>) -> Outcome {
        match selected.status {
            Status::OK => plan::outcome(request, &selected.representation, self.turn.unix),
            _ => Outcome::Full,
        }
    }

    /// Sends the selected representation with the fields it has now.
    fn planned(&mut self, request: &Request<'_>, selected: &Selected<'_>) -> Answered {
        let outcome = self.outcome(request, selected);
        let inflated: Arc<Memory>;
        let in_memory: Selected<'_>;
        let mut selected = selected;
        if let Source::Gzip(body) = selected.source
            && sends_content(request, &outcome)
        {
            // It was inflated before, so that an archive that lies is not begun to be believed.
            let Some(body) = body.body() else {
                return self.error(Status::INTERNAL_SERVER_ERROR, None);
            };
            inflated = body;
            in_memory = Selected {
                source: Source::Memory(&inflated, 0),
                ..*selected
            };
            selected = &in_memory;
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

    /// The digests that a request asks for, unless the operator configures the field.
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
        let fields = if digests.is_empty() {
            self.turn.fields
        } else {
            let own = self.turn.fields.iter().copied();
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
        let head = ResponseHead {
            status: Status::NOT_MODIFIED,
            ready: Some((selected.block, ReadyPart::Shared)),
            content_length: None,
            fields: self.turn.fields,
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

    /// Several ranges: only of content without a coding, as the plan has it.
    fn many_ranges(&mut self, selected: &Selected<'_>, ranges: &[ByteRange]) -> Answered {
        let boundary = Boundary::new(random(self.turn));
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
        for part in &multipart.parts {
            self.bytes(&multipart.framing[part.head.clone()]);
            self.body(selected.source, bounds(part.body));
        }
        self.bytes(&multipart.framing[multipart.closing.clone()]);
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

    /// Answers with a page of our own.
    pub(crate) fn error(
        &mut self,
        status: Status,
        further: Option<(&'static str, &[u8])>,
    ) -> Answered {
        let page = error_page::page(status);
        self.generated(status, error_page::CONTENT_TYPE, page, further)
    }

    /// Answers for a resource that cannot be had.
    pub(crate) fn missing(&mut self, request: &Request<'_>, status: Status) -> Answered {
        if status == Status::NOT_FOUND && self.gives_icon(request) {
            return self.icon();
        }
        self.error(status, None)
    }

    fn gives_icon(&self, request: &Request<'_>) -> bool {
        self.turn.defaults.favicon.is_some() && request.target.path == b"/favicon.ico"
    }

    /// Answers with the icon for sites that have none.
    fn icon(&mut self) -> Answered {
        let fields = [("content-type", &b"image/png"[..])];
        let own = self.turn.defaults.favicon.as_deref().unwrap_or_default();
        self.own(Status::OK, own, FAVICON, &fields)
    }

    /// Answers with a body made for it.
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

    /// Answers that the server is well.
    pub(crate) fn healthy(&mut self) -> Answered {
        self.generated(Status::OK, b"text/plain; charset=utf-8", b"ok\n", None)
    }

    /// Answers with what is always the same.
    pub(crate) fn constant(&mut self, (fields, text): &(ReadyFields, &'static str)) -> Answered {
        let status = Status::OK;
        let len = text.len() as u64;
        let head = ResponseHead {
            status,
            ready: Some((fields.as_block(), ReadyPart::Whole)),
            content_length: None,
            fields: self.turn.fields,
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

    /// Answers that the resource has these methods.
    pub(crate) fn options(&mut self, allow: (&'static str, &[u8])) -> Answered {
        let status = Status::NO_CONTENT;
        self.made(status, None, &self.turn.defaults.options, &[allow]);
        Answered {
            status,
            body_len: 0,
        }
    }

    /// The same for a resource whose own fields may allow an origin to read it.
    pub(crate) fn preflight(
        &mut self,
        selected: &Selected<'_>,
        allow: (&'static str, &[u8]),
    ) -> Answered {
        // The fields as a `GET` would have them; those of the operator are not among them.
        let changed = self.changed(selected).ok().flatten();
        let block = changed
            .as_ref()
            .map_or(selected.block, ReadyFields::as_block);
        let mut lines = block.lines();
        let origin = lines.find(|(name, _, _)| *name == b"access-control-allow-origin");
        let origin = origin.and_then(|(_, value, _)| std::str::from_utf8(value).ok());
        // The rest of what rules change is about the content, and none is sent.
        self.ruling = None;
        let Some(origin) = origin else {
            return self.options(allow);
        };
        let mut own = preflight_fields(&Cors::Origin(origin.to_owned()));
        let configured = &self.turn.defaults.replaced;
        own.retain(|(name, _)| !configured.iter().any(|it| it == name));
        let status = Status::NO_CONTENT;
        self.made(status, None, &own, &[allow]);
        Answered {
            status,
            body_len: 0,
        }
    }

    /// Sends the client to another path of this host, keeping the query.
    pub(crate) fn redirect(&mut self, request: &Request<'_>, path: &[u8]) -> Answered {
        let location = answer::location(path, request.target.query);
        self.elsewhere(Status::PERMANENT_REDIRECT, &location)
    }

    /// Sends the client to a location.
    pub(crate) fn elsewhere(&mut self, status: Status, location: &[u8]) -> Answered {
        let own = &self.turn.defaults.redirect;
        self.made(status, Some(0), own, &[("location", location)]);
        Answered {
            status,
            body_len: 0,
        }
    }

    /// Writes the head of an answer that is made here: what it must have, the default fields as
    /// the site's rules change them, and what the operator configures. True if a body is to follow.
    fn made(
        &mut self,
        status: Status,
        content_length: Option<u64>,
        own: &[(&'static str, String)],
        further: &[(&'static str, &[u8])],
    ) -> bool {
        let changes = self.ruling.and_then(|ruling| ruling.changes());
        let is_kept = |name: &str| {
            let Some(changes) = &changes else { return true };
            let is_set = changes.set.iter().any(|(set, _)| set == name);
            !is_set && !changes.remove.iter().any(|gone| gone == name)
        };
        let turn = self.turn;
        let is_of_operator =
            |(name, value): &(&str, &[u8])| (*name, *value) != (UPGRADE.0, UPGRADE.1.as_bytes());
        let configured = turn.fields.iter().filter(|field| is_of_operator(field));
        let is_free = |name: &str| !configured.clone().any(|(set, _)| *set == name);
        let mut fields: Vec<(&str, &[u8])> = turn.fields.to_vec();
        let own = own.iter().filter(|(name, _)| is_kept(name));
        fields.extend(own.map(|(name, value)| (*name, value.as_bytes())));
        fields.extend_from_slice(further);
        let set = changes.iter().flat_map(|changes| &changes.set);
        // The content is not the site's, so what describes the site's content does not fit.
        let set = set.filter(|(name, _)| name != "content-type" && is_free(name));
        fields.extend(set.map(|(name, value)| (name.as_str(), value.as_slice())));
        let head = ResponseHead {
            status,
            ready: None,
            content_length,
            fields: &fields,
        };
        self.head(&head, content_length.unwrap_or(0))
    }

    /// Sends the client to the same URL under `https`.
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
        location.extend_from_slice(request.target.path);
        if let Some(query) = request.target.query {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        self.elsewhere(Status::PERMANENT_REDIRECT, &location)
    }

    /// Writes the head of an answer with `len` bytes of content; true if they are to follow.
    #[inline]
    fn head(&mut self, head: &ResponseHead<'_>, len: u64) -> bool {
        self.out.count();
        let date_line = self.turn.date_line;
        match &mut self.reply {
            Reply::H1(h1) => h1.respond(head, date_line, self.out.wire()),
            Reply::H2(streams, stream) => {
                let connection = &mut streams.connection;
                connection.respond(*stream, head, date_line, len, self.out.wire())
            }
        }
    }

    /// Adds bytes made for this answer to its content.
    fn bytes(&mut self, bytes: &[u8]) {
        self.body(Source::Bytes(bytes), 0..bytes.len() as u64);
    }

    /// Adds a range of a representation to the answer's content.
    #[inline]
    fn body(&mut self, source: Source<'_>, range: Range<u64>) {
        match &mut self.reply {
            Reply::H1(_) => body(self.out, source, range),
            Reply::H2(streams, stream) => {
                let now = Time(self.turn.now.0);
                streams.content(*stream, source, range, now, self.out);
            }
        }
    }

    fn fields<'f>(&self, further: Option<(&'f str, &'f [u8])>) -> Vec<(&'f str, &'f [u8])>
    where
        Self: 'f,
    {
        let mut fields: Vec<(&'f str, &'f [u8])> = Vec::with_capacity(self.turn.fields.len() + 6);
        fields.extend(self.turn.fields.iter().copied());
        fields.extend(further);
        fields
    }
}

/// Whether bytes of the representation are sent.
fn sends_content(request: &Request<'_>, outcome: &Outcome) -> bool {
    request.method == Method::Get && matches!(outcome, Outcome::Full | Outcome::Partial(_))
}

fn bounds(range: ByteRange) -> Range<u64> {
    range.start..range.end
}

/// What makes a delimiter that the author of a file cannot foresee: it comes from a secret of the worker and
/// the clock, mixed by the steps of SplitMix64.
fn random(turn: &Turn<'_>) -> [u8; 16] {
    let mut out = [0; 16];
    for (half, bytes) in (1u64..).zip(out.chunks_exact_mut(8)) {
        let mut z = turn.seed
            ^ turn
                .now
                .0
                .wrapping_add(half.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    out
}

/// Adds wire bytes in order: to the send being gathered, or after the parts that follow it.
fn wire(out: &mut Outgoing, bytes: &[u8]) {
    match out.parts.back_mut() {
        None => out.wire().extend_from_slice(bytes),
        Some(Part::Wire(last)) => last.extend_from_slice(bytes),
        Some(_) => out.part(Part::Wire(bytes.to_vec())),
    }
}

/// Names the bytes of a body in the cheapest way.
fn body(out: &mut Outgoing, source: Source<'_>, range: Range<u64>) {
    if range.is_empty() {
        return;
    }
    let bounds = || range.start as usize..range.end as usize;
    match source {
        Source::Bytes(bytes) => wire(out, &bytes[bounds()]),
        Source::Memory(memory, offset) => {
            let range = offset + bounds().start..offset + bounds().end;
            match memory.as_heap_slice() {
                Some(bytes) if range.len() <= COPY_MAX => wire(out, &bytes[range]),
                _ if out.parts.is_empty() && !out.is_full() => out.memory(memory, range),
                _ => out.part(Part::Memory(Arc::clone(memory), range)),
            }
        }
        Source::File(file, offset) => {
            out.part(Part::File(
                Rc::clone(file),
                offset + range.start..offset + range.end,
            ));
        }
        Source::Gzip(_) => debug_assert!(false, "bodies are inflated first"),
    }
}
