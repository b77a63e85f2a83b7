//! The file `_headers`: blocks of a source and its fields.
//!
//! ```text
//! /*
//!   X-Frame-Options: DENY
//! /assets/*
//!   Cache-Control: public, max-age=31536000, immutable
//!   ! X-Frame-Options
//! ```

use std::borrow::Cow;

use gannet_http::semantics::ready_fields::{
    BlockChanges, ReadyFields, ReadyFieldsError, check_field,
};
use gannet_http::semantics::response::FieldBlock;

use super::evaluation::line_len;
use super::limits::{
    CLOUDFLARE_HEADER_LINE_MAX, CLOUDFLARE_HEADERS_MAX, FIELD_NAME_MAX, FIELDS_MAX, LINE_MAX,
    RULED_FIELDS_LEN_MAX, RULES_MAX,
};
use super::lines::{Line, Report, Wrong, is_space, lines};
use super::memory::{MemoryRoom, operation_len, protected_len, source_len, users_len};
use super::pattern::{Pattern, Source, Syntax, name_len, shift};
use super::percent;
use super::problem::Problem;
use super::target::Captured;
use super::users::User;
use super::{Compat, Place, SourceFile, basic_auth};

/// The rules of a site. All that match a request apply, in this order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Headers {
    /// The dialect.
    pub compat: Compat,
    /// The rules.
    pub rules: Vec<HeaderRule>,
}

/// One source and its fields.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HeaderRule {
    /// Where it begins.
    pub place: Place,
    /// The paths and hosts it applies to.
    pub pattern: Pattern,
    /// Its operations: first all removals, then all fields that it sets.
    pub operations: Vec<FieldOperation>,
    /// If there are any, only they may have the paths.
    pub users: Vec<User>,
    /// Where its lines are.
    pub lines: RuleLines,
}

/// Where the lines of a rule are in its file, for messages. An archive does not carry this, and rules that
/// do the same are equal without it.
#[derive(Clone, Debug, Default)]
pub struct RuleLines {
    /// The line of each operation, in their order, from 1; empty if the rules are from an archive.
    pub(super) operations: Vec<u32>,
    /// Line and column of the first password in the clear.
    pub(super) clear_password: Option<(u32, u32)>,
}

impl PartialEq for RuleLines {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for RuleLines {}

impl HeaderRule {
    /// The line of the operation at this position, from 1; where the rule begins if that is not known.
    pub(super) fn line_of(&self, at: usize) -> u32 {
        let line = self.lines.operations.get(at);
        line.copied().unwrap_or(self.place.line)
    }
}

/// One line of a rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FieldOperation {
    /// The field is not sent, whether it comes from an earlier rule or from the server.
    Remove {
        /// Its name in lower case.
        name: String,
    },
    /// The field is sent with this value, which replaces that of an earlier rule and of the server.
    /// The values of one rule are joined by a comma, those of several rules on Cloudflare.
    Set {
        /// Its name in lower case.
        name: String,
        /// Its value.
        value: Vec<ValuePart>,
    },
}

impl FieldOperation {
    /// The name of its field, in lower case.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Remove { name } | Self::Set { name, .. } => name,
        }
    }
}

/// A piece of a field value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum ValuePart {
    /// Text.
    Literal(Vec<u8>),
    /// The capture of the placeholder at this position.
    Capture(u8),
}

/// The changes of the rules to the fields of one response.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct FieldChanges {
    /// Fields to send, replacing any of the same name. Names are in lower case and distinct, except
    /// for `set-cookie`, whose values cannot be joined (RFC 6265 section 3).
    pub set: Vec<(String, Vec<u8>)>,
    /// Fields not to send, none of which is in `set`.
    pub remove: Vec<String>,
}

impl FieldChanges {
    /// Whether nothing changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty()
    }

    /// Whether they forbid to code content while it is served: it is coded already, or must not be
    /// transformed (RFC 9111 section 5.2.2.6).
    #[must_use]
    pub fn forbid_coding(&self) -> bool {
        let mut set = self.set.iter();
        set.any(|(name, value)| is_coding_forbidden(name, value))
    }

    /// Whether they set or remove a field.
    #[must_use]
    pub fn touch(&self, name: &str) -> bool {
        self.removes(name) || self.set.iter().any(|(set, _)| set == name)
    }

    /// Has the response vary by a field of requests.
    pub fn vary_by(&mut self, field: &str) {
        match self.set.iter_mut().find(|(known, _)| known == VARY) {
            Some((_, known)) => join(known, field.as_bytes()),
            None => self.set.push((VARY.to_owned(), field.as_bytes().to_vec())),
        }
    }

    /// Without changes to fields that control caching or describe the coding of content: those are
    /// meant for the content of a path, not for an error or a page that stands in for it.
    #[must_use]
    pub fn without_caching(mut self) -> Self {
        let is_meant = |name: &str| !is_caching_field(name) && name != CODING;
        self.set.retain(|(name, _)| is_meant(name));
        self.remove.retain(|name| !is_caching_field(name));
        self
    }

    /// Only the changes to security policies, which concern whatever is sent: other fields may tell what
    /// the path has, and the client may not know that.
    #[must_use]
    pub fn policies(mut self) -> Self {
        self.set.retain(|(name, _)| is_policy(name));
        self.remove.retain(|name| is_policy(name));
        self
    }

    /// Changes the fields that a response would have without rules. Values of `vary` are added,
    /// because caches rely on the server's own.
    pub fn apply_to(&self, fields: &mut Vec<(String, Vec<u8>)>) {
        let is_coded = fields.iter().any(|(name, _)| name == CODING);
        let changes = self.fitting(is_coded);
        let replaced = changes.names();
        let is_kept = |name: &str| name == VARY && !changes.removes(VARY);
        fields.retain(|(name, _)| is_kept(name) || replaced.binary_search(&name.as_str()).is_err());
        for (name, value) in &changes.set {
            let known = match name == VARY {
                true => fields.iter_mut().find(|(known, _)| known == VARY),
                false => None,
            };
            match known {
                Some((_, known)) => join(known, value),
                None => fields.push((name.clone(), value.clone())),
            }
        }
    }

    /// The names of the fields that they set or remove, sorted.
    fn names(&self) -> Vec<&str> {
        let set = self.set.iter().map(|(name, _)| name);
        let mut names: Vec<&str> = set.chain(&self.remove).map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    fn removes(&self, name: &str) -> bool {
        self.remove.iter().any(|removed| removed == name)
    }

    /// Changes the ready fields of a representation, which has its own `vary`, as
    /// [`apply_to`](Self::apply_to) does.
    ///
    /// # Errors
    /// The result is too long.
    pub fn apply_to_block(&self, block: FieldBlock<'_>) -> Result<ReadyFields, ReadyFieldsError> {
        let is_coded = block.get(CODING).is_some();
        let changes = self.fitting(is_coded);
        let remove = changes.names();
        let mut vary = block.get(VARY).map(<[u8]>::to_vec);
        let (mut representation, mut shared) = (Vec::new(), Vec::new());
        for (name, value) in &changes.set {
            match (&mut vary, name.as_str()) {
                (Some(known), VARY) => join(known, value),
                (_, name) if name.starts_with("content-") && !name.starts_with(POLICY) => {
                    representation.push((name, value.as_slice()));
                }
                (_, name) => shared.push((name, value.as_slice())),
            }
        }
        if let Some(vary) = vary
            .as_deref()
            .filter(|_| remove.binary_search(&VARY).is_ok())
            && !changes.removes(VARY)
        {
            shared.push((VARY, vary));
        }
        let changes = BlockChanges {
            remove: &remove,
            representation: &representation,
            shared: &shared,
        };
        changes.apply(block)
    }

    /// The changes that apply to a representation: one that the server has coded keeps its own
    /// coding.
    fn fitting(&self, is_coded: bool) -> Cow<'_, Self> {
        let is_coding = |(name, _): &(String, Vec<u8>)| name == CODING;
        if !is_coded || !self.set.iter().any(is_coding) {
            return Cow::Borrowed(self);
        }
        let mut fitting = self.clone();
        fitting.set.retain(|field| !is_coding(field));
        Cow::Owned(fitting)
    }
}

/// Parses the rules of a site. Finds all problems, not only the first; lines with problems have no
/// effect.
#[must_use]
pub fn parse(file: &SourceFile<'_>, compat: Compat) -> (Headers, Vec<Problem>) {
    parse_within(file, compat, &mut MemoryRoom::default())
}

/// The same for one of several sites, with this room for what its rules hold.
#[must_use]
pub fn parse_within(
    file: &SourceFile<'_>,
    compat: Compat,
    room: &mut MemoryRoom,
) -> (Headers, Vec<Problem>) {
    let mut headers = Headers {
        compat,
        rules: Vec::new(),
    };
    let mut problems = Vec::new();
    let mut report = Report::new(file.path, &mut problems);
    let max = match compat {
        Compat::Cloudflare => CLOUDFLARE_HEADER_LINE_MAX,
        Compat::Netlify | Compat::Kawipiko => LINE_MAX,
    };
    room.begin_file();
    // The rule that fields belong to: an invalid rule invalidates its fields.
    let mut block = Block::None;
    for line in lines(file, max, &mut report) {
        if room.is_used_up() {
            break;
        }
        let place = Place {
            file: 0,
            line: line.number,
        };
        if is_source(&line) {
            let checked = check_count(headers.rules.len(), compat);
            let rule = checked.and_then(|()| parse_source(&line, compat, room));
            block = match rule {
                Ok(pattern) => {
                    headers.rules.push(HeaderRule::new(place, pattern));
                    Block::Rule
                }
                Err((column, wrong)) => {
                    report.error(line.number, column, wrong);
                    Block::Broken
                }
            };
            continue;
        }
        let added = match (&block, headers.rules.last_mut()) {
            (Block::Rule, Some(rule)) => add_line(rule, &line, compat, room),
            (Block::Broken, _) => continue,
            (Block::None | Block::Rule, _) => {
                let column = line.column(indent(line.text));
                let wrong = Wrong::new(line.text.trim(), "a path or URL before any field");
                Err((column, wrong))
            }
        };
        if let Err((column, wrong)) = added {
            report.error(line.number, column, wrong);
        }
    }
    report.finish();
    headers
        .rules
        .iter_mut()
        .for_each(HeaderRule::sort_operations);
    (headers, problems)
}

/// Adds the field, or the users, of a line to its rule.
fn add_line(
    rule: &mut HeaderRule,
    line: &Line<'_>,
    compat: Compat,
    room: &mut MemoryRoom,
) -> Result<(), HeaderProblem> {
    if let Some(value) = basic_auth::value_of(line) {
        return add_users(rule, line, value, room);
    }
    let operation = parse_field(line, rule, compat)?;
    room.take_line(operation_len(&operation))?;
    rule.operations.push(operation);
    rule.lines.operations.push(line.number);
    Ok(())
}

/// Adds the users of a line to its rule.
fn add_users(
    rule: &mut HeaderRule,
    line: &Line<'_>,
    value: &str,
    room: &mut MemoryRoom,
) -> Result<(), HeaderProblem> {
    let before = rule.users.len();
    basic_auth::add(rule, line, value)?;
    let of_paths = match before {
        0 => protected_len(&rule.pattern),
        _ => 0,
    };
    room.take_line(of_paths + users_len(&rule.users[before..], line.text.len()))
}

impl HeaderRule {
    fn new(place: Place, pattern: Pattern) -> Self {
        Self {
            place,
            pattern,
            operations: Vec::new(),
            users: Vec::new(),
            lines: RuleLines::default(),
        }
    }

    /// Removes fields before it sets others.
    fn sort_operations(&mut self) {
        let is_set = |operation: &FieldOperation| matches!(operation, FieldOperation::Set { .. });
        let lines = self.lines.operations.drain(..);
        let mut operations: Vec<_> = self.operations.drain(..).zip(lines).collect();
        operations.sort_by_key(|(operation, _)| is_set(operation));
        (self.operations, self.lines.operations) = operations.into_iter().unzip();
    }
}

impl Headers {
    /// Bytes of the fields that they give one response, at most.
    #[must_use]
    pub fn fields_len_max(&self) -> usize {
        let operations = self.rules.iter().flat_map(|rule| &rule.operations);
        let lens = operations.map(|operation| match operation {
            FieldOperation::Set { name, value } => {
                let parts = value.iter().map(|part| match part {
                    ValuePart::Literal(text) => text.len(),
                    ValuePart::Capture(_) => RULED_FIELDS_LEN_MAX,
                });
                line_len(name, parts.sum())
            }
            FieldOperation::Remove { .. } => 0,
        });
        lens.sum::<usize>().min(RULED_FIELDS_LEN_MAX)
    }

    /// Whether the changes for any request may [forbid](FieldChanges::forbid_coding) coding.
    #[must_use]
    pub fn may_forbid_coding(&self) -> bool {
        let operations = self.rules.iter().flat_map(|rule| &rule.operations);
        let mut set = operations.filter_map(|operation| match operation {
            FieldOperation::Set { name, value } => Some((name, value)),
            FieldOperation::Remove { .. } => None,
        });
        set.any(|(name, value)| match value.as_slice() {
            [ValuePart::Literal(text)] => is_coding_forbidden(name, text),
            // A path may have any directive in it, or a part of one.
            _ => name == CODING || name == "cache-control",
        })
    }
}

/// Whether a field with this value forbids to code content while it is served. Its name is in lower
/// case.
#[must_use]
pub fn is_coding_forbidden(name: &str, value: &[u8]) -> bool {
    let mut directives = value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    name == CODING
        || name == "cache-control" && directives.any(|it| it.eq_ignore_ascii_case(b"no-transform"))
}

/// Whether a field controls caching in browsers or intermediaries (RFC 9111, RFC 9213). Its name is
/// in lower case.
#[must_use]
pub fn is_caching_field(name: &str) -> bool {
    let is_known = matches!(
        name,
        "cache-control" | "expires" | "pragma" | "surrogate-control"
    );
    // `cdn-cache-control`, and those of single networks.
    is_known || name.ends_with("cdn-cache-control")
}

/// Whether a field restricts what a browser does with a response, whatever is in it. Its name is in
/// lower case.
fn is_policy(name: &str) -> bool {
    let is_known = matches!(
        name,
        "content-security-policy"
            | "content-security-policy-report-only"
            | "permissions-policy"
            | "referrer-policy"
            | "strict-transport-security"
            | "x-content-type-options"
            | "x-frame-options"
            | "x-robots-tag"
    );
    is_known || name.starts_with("cross-origin-")
}

/// Whether a caching rule may be meant for a response of this status, if it belongs to the path
/// itself: others are errors, or temporary redirects.
#[must_use]
pub const fn may_be_cached(status: u16) -> bool {
    matches!(status, 200 | 203 | 206 | 301 | 304 | 308)
}

/// Whether a rule may set or remove a field. The server computes the others: a foreign value would
/// break the message, its caching, or its coding.
pub(crate) fn may_be_set(name: &str) -> bool {
    FORBIDDEN.binary_search(&name).is_err()
}

/// Fields that only the server sets, sorted.
const FORBIDDEN: &[&str] = &[
    "accept-ranges",
    "age",
    "allow",
    "connection",
    "content-length",
    "content-range",
    "date",
    "etag",
    "host",
    "keep-alive",
    "last-modified",
    "location",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

const VARY: &str = "vary";
/// Policies are not metadata of the content, despite the name: a 304 has them too.
const POLICY: &str = "content-security-policy";
pub(crate) const CODING: &str = "content-encoding";
/// Codings that a rule may declare for a file.
const CODINGS: [&str; 3] = ["br", "gzip", "zstd"];
pub(super) const SET_COOKIE: &str = "set-cookie";

enum Block {
    None,
    Rule,
    Broken,
}

/// A problem and its column.
pub(super) type HeaderProblem = (u32, Wrong);

fn indent(text: &str) -> usize {
    text.len() - text.trim_start_matches(is_space).len()
}

/// Whether a line is a source: it has no indent, or looks like a path or a URL nevertheless.
fn is_source(line: &Line<'_>) -> bool {
    let text = line.text.trim();
    let (first, _) = text.split_once(is_space).unwrap_or((text, ""));
    first.starts_with('/')
        || first.contains("://") && !first.ends_with(':')
        || (indent(line.text) == 0 && !text.starts_with('!') && !is_field(text))
}

fn is_field(text: &str) -> bool {
    let name = text.split(':').next().unwrap_or_default().trim_end();
    let is_token_byte = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.contains(':') && !name.is_empty() && name.bytes().all(is_token_byte)
}

fn check_count(count: usize, compat: Compat) -> Result<(), HeaderProblem> {
    let max = match compat {
        Compat::Cloudflare => CLOUDFLARE_HEADERS_MAX,
        Compat::Netlify | Compat::Kawipiko => RULES_MAX,
    };
    if count < max {
        return Ok(());
    }
    let wrong = Wrong::words(format!("more than {max} rules"), "fewer");
    Err((1, wrong))
}

fn parse_source(
    line: &Line<'_>,
    compat: Compat,
    room: &mut MemoryRoom,
) -> Result<Pattern, HeaderProblem> {
    let tokens = line.tokens();
    let Some((source, rest)) = tokens.split_first() else {
        return Err((1, Wrong::words("nothing", "a source")));
    };
    let at = |wrong| (source.column, wrong);
    if let Some(token) = rest.first().filter(|token| !token.text.starts_with('#')) {
        let wrong = Wrong::new(token.text, "the end of the line after the path");
        return Err((token.column, wrong));
    }
    let syntax = Syntax {
        has_wildcards: true,
        has_inner_placeholders: compat == Compat::Cloudflare,
        ignores_trailing_slash: compat.ignores_trailing_slash(),
    };
    let text = source.text;
    let lower = text.to_ascii_lowercase();
    let prefix = ["https://", "http://"]
        .iter()
        .find(|prefix| lower.starts_with(**prefix));
    let pattern = match prefix {
        None => Pattern::parse_path(text, syntax).map_err(at)?,
        Some(prefix) => {
            // Scheme and port make no difference.
            let rest = &text[prefix.len()..];
            let slash = rest.find('/').unwrap_or(rest.len());
            let (host, path) = rest.split_at(slash);
            let move_to = |offset| move |wrong| at(shift(wrong, text, offset));
            let host = Pattern::parse_host(host, true).map_err(move_to(prefix.len()))?;
            let path = if path.is_empty() { "/" } else { path };
            let pattern = Pattern::parse_path(path, syntax);
            Pattern {
                host: Some(host),
                ..pattern.map_err(move_to(prefix.len() + slash))?
            }
        }
    };
    let names = pattern.distinct_names(std::iter::empty());
    names.map_err(at)?;
    room.take_line(source_len(&pattern))?;
    Ok(pattern)
}

fn parse_field(
    line: &Line<'_>,
    rule: &HeaderRule,
    compat: Compat,
) -> Result<FieldOperation, HeaderProblem> {
    let start = indent(line.text);
    let text = line.text.trim();
    let at = |offset: usize| line.column(start + offset);
    if rule.operations.len() >= FIELDS_MAX {
        let wrong = Wrong::words("more fields", format!("at most {FIELDS_MAX} in a rule"));
        return Err((at(0), wrong));
    }
    if let Some(name) = text.strip_prefix('!') {
        let trimmed = name.trim_start();
        let offset = text.len() - trimmed.len();
        let name = check_name(trimmed).map_err(|wrong| (at(offset), wrong))?;
        if name == CODING {
            let wrong = Wrong::new(trimmed, "a field that is not the server's own");
            return Err((
                at(offset),
                wrong.help("its value follows from what is sent"),
            ));
        }
        return Ok(FieldOperation::Remove { name });
    }
    let Some((name, value)) = text.split_once(':') else {
        let wrong = Wrong::new(text, "a field, 'Name: value', or '! Name'");
        return Err((
            at(0),
            wrong.help("a path starts with '/', a URL with its scheme"),
        ));
    };
    let value_offset = text.len() - value.trim_start().len();
    let name = check_name(name.trim_end()).map_err(|wrong| (at(0), wrong))?;
    let value = value.trim();
    if value.is_empty() {
        let wrong = Wrong::words("no value", "a value after the colon");
        return Err((at(value_offset), wrong.help("'! Name' takes a field away")));
    }
    if name == CODING && !CODINGS.contains(&value) {
        let wrong = Wrong::new(value, "'br', 'gzip' or 'zstd', as the file is coded");
        return Err((at(value_offset), wrong));
    }
    if check_field(&name, value.as_bytes()).is_err() {
        let wrong = Wrong::new(value, "a value that a field can have");
        return Err((at(value_offset), wrong));
    }
    let names: Vec<&str> = match compat {
        Compat::Cloudflare => rule.pattern.names().collect(),
        Compat::Netlify | Compat::Kawipiko => Vec::new(),
    };
    Ok(FieldOperation::Set {
        name,
        value: parse_value(value, &names),
    })
}

/// The name in lower case, if a rule may set it.
fn check_name(name: &str) -> Result<String, Wrong> {
    let lower = name.to_ascii_lowercase();
    if lower == basic_auth::NAME {
        let wrong = Wrong::new(name, "users after it: 'Basic-Auth: user:password'");
        return Err(wrong.help("a rule for an inner folder cannot open what an outer one protects"));
    }
    if !may_be_set(&lower) {
        let wrong = Wrong::new(name, "a field that is not the server's own");
        return Err(wrong.help("its value follows from the file and the connection"));
    }
    if check_field(&lower, b"").is_err() || lower.len() > FIELD_NAME_MAX {
        let expected = format!("a field name of letters, digits and '-', at most {FIELD_NAME_MAX}");
        return Err(Wrong::new(name, expected));
    }
    Ok(lower)
}

/// Known placeholders are substituted; other colons are text.
fn parse_value(value: &str, names: &[&str]) -> Vec<ValuePart> {
    let mut parts = Vec::new();
    let mut literal = Vec::new();
    let mut rest = value;
    while let Some(first) = rest.chars().next() {
        let name = match rest.strip_prefix(':') {
            Some(after) => &after[..name_len(after)],
            None => "",
        };
        let position = names.iter().position(|known| *known == name);
        if let Some(position) = position.filter(|_| !name.is_empty()) {
            if !literal.is_empty() {
                parts.push(ValuePart::Literal(std::mem::take(&mut literal)));
            }
            parts.push(ValuePart::Capture(position as u8));
            rest = &rest[1 + name.len()..];
        } else {
            let (text, after) = rest.split_at(first.len_utf8());
            literal.extend_from_slice(text.as_bytes());
            rest = after;
        }
    }
    if !literal.is_empty() {
        parts.push(ValuePart::Literal(literal));
    }
    parts
}

/// Appends the value. Captured bytes are percent-encoded as in a URL: they cannot end the field. Stops
/// once `out` is longer than the fields of a response may be.
pub(super) fn expand(value: &[ValuePart], from: Captured<'_>, out: &mut Vec<u8>) {
    for part in value {
        if out.len() > RULED_FIELDS_LEN_MAX {
            return;
        }
        match part {
            ValuePart::Literal(text) => out.extend_from_slice(text),
            ValuePart::Capture(index) => {
                let capture = from.captures.as_slice().get(usize::from(*index));
                let bytes = capture.and_then(|capture| {
                    let range = capture.start as usize..capture.end as usize;
                    match capture.source {
                        Source::Host => from.host.get(range),
                        Source::Path => from.path.get(range),
                        Source::Query => None,
                    }
                });
                for &byte in bytes.unwrap_or_default() {
                    percent::encode(byte, percent::is_query_value_byte, out);
                }
            }
        }
    }
}

pub(super) fn join(known: &mut Vec<u8>, more: &[u8]) {
    known.extend_from_slice(b", ");
    known.extend_from_slice(more);
}
