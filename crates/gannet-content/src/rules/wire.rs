//! Rules as bytes, for an archive to carry, and back, with every rule checked again.
//!
//! The bytes hold the rules in parsed form, not the index over them: the index is rebuilt when they
//! are read, in a few microseconds per rule. So nothing in them could send a lookup in a circle or
//! out of bounds. All numbers are little-endian; a text is its length as `u32` and its bytes; a
//! list is its count as `u32` and its items.

use std::fmt;

use gannet_http::semantics::ready_fields::check_field;

use super::headers::{FieldOperation, HeaderRule, Headers, RuleLines, ValuePart};
use super::limits::{
    CAPTURES_MAX, FIELD_NAME_MAX, FIELDS_MAX, HOST_MAX, LANGUAGE_RULES_MAX, LANGUAGES_MAX,
    LINE_MAX, QUERY_PARAMETERS_MAX, RULES_MAX, SEGMENTS_MAX, USERS_MAX,
};
use super::memory::{MemoryRoom, TooMuchMemory, header_rule_len, redirect_len};
use super::pattern::{Pattern, Scheme, Segment, Splat, name_len};
use super::redirects::{QueryParameter, QueryValue, Redirect, Redirects};
use super::target::{Target, TargetPart};
use super::users::{self, Secret, User};
use super::{Compat, Place, language};

/// Why bytes are not a valid table of rules.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TableError {
    /// They do not start with the magic of this kind of table.
    Magic,
    /// Their version is unknown.
    Version,
    /// They end too early, or have trailing bytes.
    Length,
    /// A number or a text that no rule can have.
    Value,
    /// Rules for fields that are [too much](super::evaluation::TooMuch) for any response.
    TooMuch,
    /// Rules that hold more than [`RULES_MEMORY_MAX`](super::limits::RULES_MEMORY_MAX) bytes.
    Memory,
    /// Rules that hold more memory than other sites leave.
    MemoryOfSites,
}

impl From<TooMuchMemory> for TableError {
    fn from(too_much: TooMuchMemory) -> Self {
        match too_much {
            TooMuchMemory::OfFile => Self::Memory,
            TooMuchMemory::OfSites => Self::MemoryOfSites,
        }
    }
}

impl fmt::Display for TableError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Magic => "not a table of rules",
            Self::Version => "a table of rules of an unknown version",
            Self::Length => "a table of rules that is cut or has more than its rules",
            Self::Value => "a table of rules with a value that no rule has",
            Self::TooMuch => "a table of rules with more or longer fields than an answer may have",
            Self::Memory => "a table of rules that hold too much memory",
            Self::MemoryOfSites => "a table of rules that hold more memory than other sites leave",
        })
    }
}

impl std::error::Error for TableError {}

const REDIRECTS_MAGIC: &[u8; 4] = b"gnrd";
const HEADERS_MAGIC: &[u8; 4] = b"gnhd";
const VERSION: u8 = 1;
/// Rules with users, or for languages, which an older server would ignore.
const VERSION_WITH_MORE: u8 = 2;

pub(crate) fn write_redirects(redirects: &Redirects) -> Vec<u8> {
    let mut out = Writer::new(REDIRECTS_MAGIC, redirects.compat);
    let has_languages = redirects
        .rules
        .iter()
        .any(|rule| !rule.languages.is_empty());
    if has_languages {
        out.bytes[REDIRECTS_MAGIC.len()] = VERSION_WITH_MORE;
    }
    out.list(&redirects.rules, |out, rule| {
        out.place(rule.place);
        out.pattern(&rule.pattern);
        out.list(&rule.query, |out, parameter| {
            out.text(&parameter.name);
            match &parameter.value {
                QueryValue::Literal(value) => out.tagged(0, value),
                QueryValue::Placeholder(name) => out.tagged(1, name.as_bytes()),
            }
        });
        out.target(&rule.target);
        out.bytes.extend_from_slice(&rule.status.to_le_bytes());
        out.bytes.push(u8::from(rule.is_forced));
        if has_languages {
            out.list(&rule.languages, |out, range| out.text(range));
        }
    });
    out.bytes
}

pub(crate) fn write_headers(headers: &Headers) -> Vec<u8> {
    let mut out = Writer::new(HEADERS_MAGIC, headers.compat);
    let has_users = headers.rules.iter().any(|rule| !rule.users.is_empty());
    if has_users {
        out.bytes[HEADERS_MAGIC.len()] = VERSION_WITH_MORE;
    }
    out.list(&headers.rules, |out, rule| {
        out.place(rule.place);
        out.pattern(&rule.pattern);
        out.list(&rule.operations, |out, operation| match operation {
            FieldOperation::Remove { name } => out.tagged(0, name.as_bytes()),
            FieldOperation::Set { name, value } => {
                out.tagged(1, name.as_bytes());
                out.list(value, |out, part| match part {
                    ValuePart::Literal(text) => out.tagged(0, text),
                    ValuePart::Capture(index) => out.bytes.extend_from_slice(&[1, *index]),
                });
            }
        });
        if has_users {
            out.list(&rule.users, |out, user| out.text(user.text().as_bytes()));
        }
    });
    out.bytes
}

pub(crate) fn read_redirects(bytes: &[u8], room: &mut MemoryRoom) -> Result<Redirects, TableError> {
    let (mut input, compat, has_languages) = Reader::new(bytes, REDIRECTS_MAGIC)?;
    room.begin_file();
    let rules = input.list(RULES_MAX, |input| {
        let rule = input.redirect(compat, has_languages)?;
        room.take(redirect_len(&rule))?;
        Ok(rule)
    })?;
    input.finish()?;
    let for_languages = rules.iter().filter(|rule| !rule.languages.is_empty());
    let count = for_languages.count();
    // One form for each table.
    let is_whole = (count > 0) == has_languages && count <= LANGUAGE_RULES_MAX;
    check(is_whole, TableError::Value)?;
    Ok(Redirects { compat, rules })
}

pub(crate) fn read_headers(bytes: &[u8], room: &mut MemoryRoom) -> Result<Headers, TableError> {
    let (mut input, compat, has_users) = Reader::new(bytes, HEADERS_MAGIC)?;
    room.begin_file();
    let rules = input.list(RULES_MAX, |input| {
        let rule = input.header_rule(has_users)?;
        room.take(header_rule_len(&rule))?;
        Ok(rule)
    })?;
    input.finish()?;
    // One form for each table.
    let are_there = rules.iter().any(|rule: &HeaderRule| !rule.users.is_empty());
    check(are_there == has_users, TableError::Value)?;
    Ok(Headers { compat, rules })
}

struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    fn new(magic: &[u8; 4], compat: Compat) -> Self {
        let mut bytes = magic.to_vec();
        let compat = match compat {
            Compat::Netlify => 0,
            Compat::Cloudflare => 1,
            Compat::Kawipiko => 2,
        };
        bytes.extend_from_slice(&[VERSION, compat]);
        Self { bytes }
    }

    fn count(&mut self, count: usize) {
        self.bytes.extend_from_slice(&(count as u32).to_le_bytes());
    }

    fn text(&mut self, text: &[u8]) {
        self.count(text.len());
        self.bytes.extend_from_slice(text);
    }

    fn tagged(&mut self, tag: u8, text: &[u8]) {
        self.bytes.push(tag);
        self.text(text);
    }

    fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.count(items.len());
        for item in items {
            write(self, item);
        }
    }

    fn option<T>(&mut self, item: Option<&T>, write: impl FnOnce(&mut Self, &T)) {
        self.bytes.push(u8::from(item.is_some()));
        if let Some(item) = item {
            write(self, item);
        }
    }

    fn place(&mut self, place: Place) {
        self.bytes.extend_from_slice(&place.file.to_le_bytes());
        self.bytes.extend_from_slice(&place.line.to_le_bytes());
    }

    fn pattern(&mut self, pattern: &Pattern) {
        self.bytes.push(match pattern.scheme {
            None => 0,
            Some(Scheme::Http) => 1,
            Some(Scheme::Https) => 2,
        });
        self.option(pattern.host.as_ref(), |out, labels| {
            out.list(labels, Self::segment);
        });
        self.list(&pattern.head, Self::segment);
        self.option(pattern.splat.as_ref(), |out, splat| {
            out.text(&splat.prefix);
            out.text(&splat.suffix);
            out.list(&splat.tail, Self::segment);
        });
    }

    fn segment(&mut self, segment: &Segment) {
        match segment {
            Segment::Literal(literal) => self.tagged(0, literal),
            Segment::Placeholder {
                prefix,
                name,
                suffix,
            } => {
                self.tagged(1, prefix);
                self.text(name.as_bytes());
                self.text(suffix);
            }
        }
    }

    fn target(&mut self, target: &Target) {
        self.option(target.origin.as_ref(), |out, origin| {
            out.text(origin.as_bytes());
        });
        self.list(&target.path, Self::part);
        self.option(target.query.as_ref(), |out, parts| {
            out.list(parts, Self::part);
        });
        self.option(target.fragment.as_ref(), |out, parts| {
            out.list(parts, Self::part);
        });
    }

    fn part(&mut self, part: &TargetPart) {
        match part {
            TargetPart::Literal(text) => self.tagged(0, text.as_bytes()),
            TargetPart::Capture(index) => self.bytes.extend_from_slice(&[1, *index]),
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// The table's rules, its dialect, and whether its rules have what version 2 added.
    fn new(bytes: &'a [u8], magic: &[u8; 4]) -> Result<(Self, Compat, bool), TableError> {
        let rest = bytes.strip_prefix(magic).ok_or(TableError::Magic)?;
        let mut input = Self { rest };
        let has_more = match input.byte()? {
            VERSION => false,
            VERSION_WITH_MORE => true,
            _ => return Err(TableError::Version),
        };
        let compat = match input.byte()? {
            0 => Compat::Netlify,
            1 => Compat::Cloudflare,
            2 => Compat::Kawipiko,
            _ => return Err(TableError::Value),
        };
        Ok((input, compat, has_more))
    }

    fn finish(self) -> Result<(), TableError> {
        check(self.rest.is_empty(), TableError::Length)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TableError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(TableError::Length)?;
        self.rest = rest;
        Ok(*array)
    }

    fn byte(&mut self) -> Result<u8, TableError> {
        let [byte] = self.array()?;
        Ok(byte)
    }

    fn flag(&mut self) -> Result<bool, TableError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(TableError::Value),
        }
    }

    fn count(&mut self) -> Result<usize, TableError> {
        Ok(u32::from_le_bytes(self.array()?) as usize)
    }

    fn text(&mut self) -> Result<&'a [u8], TableError> {
        let len = self.count()?;
        check(len <= LINE_MAX, TableError::Value)?;
        let (text, rest) = self.rest.split_at_checked(len).ok_or(TableError::Length)?;
        self.rest = rest;
        Ok(text)
    }

    fn string(&mut self) -> Result<String, TableError> {
        let text = str::from_utf8(self.text()?);
        Ok(text.map_err(|_| TableError::Value)?.to_owned())
    }

    fn list<T>(
        &mut self,
        max: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, TableError>,
    ) -> Result<Vec<T>, TableError> {
        let count = self.count()?;
        check(count <= max, TableError::Value)?;
        // An item takes at least a byte, which bounds the allocation.
        let mut items = Vec::with_capacity(count.min(self.rest.len()));
        for _ in 0..count {
            items.push(read(self)?);
        }
        Ok(items)
    }

    fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, TableError>,
    ) -> Result<Option<T>, TableError> {
        self.flag()?.then(|| read(self)).transpose()
    }

    fn place(&mut self) -> Result<Place, TableError> {
        Ok(Place {
            file: u16::from_le_bytes(self.array()?),
            line: u32::from_le_bytes(self.array()?),
        })
    }

    fn redirect(&mut self, compat: Compat, has_languages: bool) -> Result<Redirect, TableError> {
        let place = self.place()?;
        let pattern = self.pattern()?;
        let query = self.list(QUERY_PARAMETERS_MAX, Self::parameter)?;
        let names = query.iter().map(|parameter| &parameter.name);
        check(names.is_sorted_by(|a, b| a < b), TableError::Value)?;
        let mut rule = Redirect {
            place,
            pattern,
            query,
            languages: Vec::new(),
            target: Target::default(),
            status: 0,
            is_forced: false,
        };
        let names: Vec<&str> = rule.names().collect();
        let captures = check_names(&names)?;
        rule.target = self.target(captures)?;
        rule.status = u16::from_le_bytes(self.array()?);
        rule.is_forced = self.flag()?;
        let is_known = compat.statuses().contains(&rule.status);
        let has_content = rule.is_redirect() || rule.target.is_path();
        check(is_known && has_content, TableError::Value)?;
        if has_languages {
            rule.languages = self.list(LANGUAGES_MAX, |input| Ok(input.text()?.to_vec()))?;
            let are_ranges = rule.languages.iter().all(|it| language::is_range(it));
            let may_have = compat == Compat::Netlify || rule.languages.is_empty();
            check(are_ranges && may_have, TableError::Value)?;
        }
        Ok(rule)
    }

    fn header_rule(&mut self, has_users: bool) -> Result<HeaderRule, TableError> {
        let place = self.place()?;
        let pattern = self.pattern()?;
        let names: Vec<&str> = pattern.names().collect();
        let captures = check_names(&names)?;
        let operations = self.list(FIELDS_MAX, |input| input.operation(captures))?;
        let users = match has_users {
            true => self.list(USERS_MAX, Self::user)?,
            false => Vec::new(),
        };
        let is_for_path = pattern.host.is_none() || users.is_empty();
        check(is_for_path, TableError::Value)?;
        Ok(HeaderRule {
            place,
            pattern,
            operations,
            users,
            lines: RuleLines::default(),
        })
    }

    /// A user with a hash: passwords in the clear are in no archive.
    fn user(&mut self) -> Result<User, TableError> {
        let text = self.string()?;
        let users = users::parse_value(&text).map_err(|_| TableError::Value)?;
        match <[User; 1]>::try_from(users) {
            Ok([user]) if matches!(user.secret, Secret::Hash(_)) && user.text() == text => Ok(user),
            _ => Err(TableError::Value),
        }
    }

    fn operation(&mut self, captures: usize) -> Result<FieldOperation, TableError> {
        let is_set = self.flag()?;
        let name = self.string()?;
        let may_be = super::headers::may_be_set(&name) && name.len() <= FIELD_NAME_MAX;
        check(may_be, TableError::Value)?;
        if !is_set {
            check(check_field(&name, b"").is_ok(), TableError::Value)?;
            return Ok(FieldOperation::Remove { name });
        }
        let value = self.list(LINE_MAX, |input| {
            Ok(match input.flag()? {
                false => ValuePart::Literal(input.text()?.to_vec()),
                true => ValuePart::Capture(input.capture(captures)?),
            })
        })?;
        // Captured bytes are percent-encoded: any character of a URL may represent them.
        let with_captures = value.iter().flat_map(|part| match part {
            ValuePart::Literal(text) => text.as_slice(),
            ValuePart::Capture(_) => b"x",
        });
        let with_captures: Vec<u8> = with_captures.copied().collect();
        check(
            check_field(&name, &with_captures).is_ok(),
            TableError::Value,
        )?;
        Ok(FieldOperation::Set { name, value })
    }

    fn capture(&mut self, captures: usize) -> Result<u8, TableError> {
        let index = self.byte()?;
        check(usize::from(index) < captures, TableError::Value)?;
        Ok(index)
    }

    fn parameter(&mut self) -> Result<QueryParameter, TableError> {
        let name = self.text()?.to_vec();
        let value = match self.flag()? {
            false => QueryValue::Literal(self.text()?.to_vec()),
            true => QueryValue::Placeholder(self.name()?),
        };
        Ok(QueryParameter { name, value })
    }

    fn name(&mut self) -> Result<String, TableError> {
        let name = self.string()?;
        let is_name = !name.is_empty() && name_len(&name) == name.len();
        check(is_name, TableError::Value)?;
        Ok(name)
    }

    fn pattern(&mut self) -> Result<Pattern, TableError> {
        let scheme = match self.byte()? {
            0 => None,
            1 => Some(Scheme::Http),
            2 => Some(Scheme::Https),
            _ => return Err(TableError::Value),
        };
        let host = self.option(|input| input.list(HOST_MAX, |input| input.segment(b'.')))?;
        let head = self.list(SEGMENTS_MAX, |input| input.segment(b'/'))?;
        let splat = self.option(|input| {
            Ok(Splat {
                prefix: input.around(b'/')?,
                suffix: input.around(b'/')?,
                tail: input.list(SEGMENTS_MAX, |input| input.segment(b'/'))?,
            })
        })?;
        let tail = splat.as_ref().map_or(0, |splat| splat.tail.len());
        let has_scheme_of_host = scheme.is_none() || host.is_some();
        let is_short = head.len() + tail <= SEGMENTS_MAX;
        check(has_scheme_of_host && is_short, TableError::Value)?;
        Ok(Pattern {
            scheme,
            host,
            head,
            splat,
        })
    }

    fn segment(&mut self, separator: u8) -> Result<Segment, TableError> {
        if !self.flag()? {
            return Ok(Segment::Literal(self.around(separator)?));
        }
        Ok(Segment::Placeholder {
            prefix: self.around(separator)?,
            name: self.name()?,
            suffix: self.around(separator)?,
        })
    }

    /// A text within a segment.
    fn around(&mut self, separator: u8) -> Result<Vec<u8>, TableError> {
        let text = self.text()?;
        check(!text.contains(&separator), TableError::Value)?;
        Ok(text.to_vec())
    }

    fn target(&mut self, captures: usize) -> Result<Target, TableError> {
        let target = Target {
            origin: self.option(Self::string)?,
            path: self.parts(captures)?,
            query: self.option(|input| input.parts(captures))?,
            fragment: self.option(|input| input.parts(captures))?,
        };
        check(target.is_sound(), TableError::Value)?;
        Ok(target)
    }

    fn parts(&mut self, captures: usize) -> Result<Vec<TargetPart>, TableError> {
        self.list(LINE_MAX, |input| {
            Ok(match input.flag()? {
                false => TargetPart::Literal(input.string()?),
                true => TargetPart::Capture(input.capture(captures)?),
            })
        })
    }
}

/// The number of names, if they are distinct and not too many.
fn check_names(names: &[&str]) -> Result<usize, TableError> {
    let mut sorted = names.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let are_distinct = sorted.len() == names.len();
    check(
        are_distinct && names.len() <= CAPTURES_MAX,
        TableError::Value,
    )?;
    Ok(names.len())
}

fn check(holds: bool, error: TableError) -> Result<(), TableError> {
    if holds { Ok(()) } else { Err(error) }
}
