//! The source of a rule: the requests it applies to.
//!
//! A path pattern is segments between slashes. A segment is literal text or has one placeholder,
//! with text before and after it; one `*`, the splat, matches any text, slashes included:
//!
//! ```text
//! /news/:year/post-:id.html     head: news, :year, post- :id .html
//! /files/v*/latest/:name        head: files    splat: v *    tail: latest, :name
//! ```
//!
//! A placeholder matches a segment or a part of it, never nothing; the splat may match nothing.
//! Because the head is counted from the start and the tail from the end, there is never more than
//! one way to match.

use super::limits::{CAPTURES_MAX, HOST_MAX, SEGMENTS_MAX};
use super::lines::Wrong;
use super::percent;

/// The scheme that a rule is restricted to.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Scheme {
    /// `http`.
    Http,
    /// `https`.
    Https,
}

/// The requests that a rule applies to, except for their query.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Pattern {
    /// Only requests over this scheme.
    pub scheme: Option<Scheme>,
    /// Only requests to this host: its labels.
    pub host: Option<Vec<Segment>>,
    /// The segments counted from the start.
    pub head: Vec<Segment>,
    /// The rest of the path; without it, nothing may follow.
    pub splat: Option<Splat>,
}

/// A segment of a path, or a label of a host.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Segment {
    /// Exactly these bytes, decoded.
    Literal(Vec<u8>),
    /// A placeholder.
    Placeholder {
        /// The bytes before it.
        prefix: Vec<u8>,
        /// Its name, without the colon.
        name: String,
        /// The bytes after it.
        suffix: Vec<u8>,
    },
}

/// A `*` and the pattern after it.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Splat {
    /// The bytes before it in its segment.
    pub prefix: Vec<u8>,
    /// The bytes after it up to the next slash.
    pub suffix: Vec<u8>,
    /// The segments counted from the end.
    pub tail: Vec<Segment>,
}

/// The name by which a target refers to the match of `*`.
pub const SPLAT: &str = "splat";

/// How a source is parsed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Syntax {
    /// `*` and `:name` are special.
    pub(crate) has_wildcards: bool,
    /// `:name` is a placeholder within a segment too, not only at its start.
    pub(crate) has_inner_placeholders: bool,
    /// A trailing slash is dropped.
    pub(crate) ignores_trailing_slash: bool,
}

impl Pattern {
    /// Parses a path that starts with a slash.
    pub(crate) fn parse_path(text: &str, syntax: Syntax) -> Result<Self, Wrong> {
        let Some(rest) = text.strip_prefix('/') else {
            return Err(Wrong::new(text, "a path that starts with '/'"));
        };
        let mut pattern = Self::default();
        let mut offset = 1;
        let count = rest.split('/').count();
        for (index, segment) in rest.split('/').enumerate() {
            let is_last = index + 1 == count;
            if segment.is_empty() && !is_last {
                let wrong = Wrong::words("two slashes in a row", "one slash");
                return Err(wrong.at(text, offset));
            }
            if segment.is_empty() && syntax.ignores_trailing_slash {
                break;
            }
            let part = parse_segment(segment, syntax);
            let part = part.map_err(|wrong| shift(wrong, text, offset))?;
            match (part, &mut pattern.splat) {
                (Part::Segment(segment), None) => pattern.head.push(segment),
                (Part::Segment(segment), Some(splat)) => splat.tail.push(segment),
                (Part::Splat(splat), None) => pattern.splat = Some(splat),
                (Part::Splat(_), Some(_)) => {
                    let wrong = Wrong::words("a second '*'", "at most one in a source");
                    return Err(wrong.at(text, offset));
                }
            }
            offset += segment.len() + 1;
        }
        let tail = pattern.splat.as_ref().map_or(0, |splat| splat.tail.len());
        if pattern.head.len() + tail > SEGMENTS_MAX {
            let found = format!("{} segments", pattern.head.len() + tail);
            return Err(Wrong::words(found, format!("at most {SEGMENTS_MAX}")));
        }
        Ok(pattern)
    }

    /// Parses a host name, with placeholders for whole labels if allowed.
    pub(crate) fn parse_host(text: &str, has_placeholders: bool) -> Result<Vec<Segment>, Wrong> {
        if text.is_empty() || text.len() > HOST_MAX {
            return Err(Wrong::new(text, "a host name"));
        }
        if let Some(colon) = text.rfind(':') {
            let port = &text[colon + 1..];
            if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) {
                let wrong = Wrong::new(&text[colon..], "a host without port");
                return Err(wrong.at(text, colon));
            }
        }
        let mut labels = Vec::new();
        let mut offset = 0;
        for label in text.split('.') {
            if let Some(name) = label.strip_prefix(':').filter(|_| has_placeholders)
                && name_len(name) == name.len()
                && !name.is_empty()
            {
                labels.push(Segment::Placeholder {
                    prefix: Vec::new(),
                    name: name.to_owned(),
                    suffix: Vec::new(),
                });
            } else if let Ok(label) = crate::host_name::label(&label.to_lowercase())
                && is_label(&label)
            {
                let lower = label.to_ascii_lowercase();
                labels.push(Segment::Literal(lower.into_bytes()));
            } else {
                let expected = if label.contains('*') {
                    "a host without '*'"
                } else {
                    "a host name of letters, digits, '-' and '.'"
                };
                return Err(Wrong::new(label, expected).at(text, offset));
            }
            offset += label.len() + 1;
        }
        let lens = labels.iter().map(|label| match label {
            Segment::Literal(label) => label.len(),
            // One byte at least.
            Segment::Placeholder { .. } => 1,
        });
        if lens.sum::<usize>() + labels.len() - 1 > HOST_MAX {
            return Err(Wrong::new(
                text,
                format!("a host name of at most {HOST_MAX} bytes"),
            ));
        }
        Ok(labels)
    }

    /// The names of its captures: those of the host, then those of the path from left to right.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let host = self.host.iter().flatten().filter_map(Segment::name);
        let head = self.head.iter().filter_map(Segment::name);
        let splat = self.splat.iter().map(|_| SPLAT);
        let tail = self.splat.iter().flat_map(|splat| &splat.tail);
        let tail = tail.filter_map(Segment::name);
        host.chain(head).chain(splat).chain(tail)
    }

    /// Whether it has neither placeholder nor splat.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.names().next().is_none()
    }

    /// The one path that it matches, if there is only one: decoded, with its slash.
    #[must_use]
    pub fn static_path(&self) -> Option<Vec<u8>> {
        if self.splat.is_some() {
            return None;
        }
        let mut path = Vec::from(b"/");
        for (index, segment) in self.head.iter().enumerate() {
            let Segment::Literal(literal) = segment else {
                return None;
            };
            if index > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(literal);
        }
        Some(path)
    }

    /// The host and path of a request that it matches, with captures of one byte; the host is empty if
    /// it names none.
    pub(crate) fn example(&self) -> (Vec<u8>, Vec<u8>) {
        let texts =
            |segments: &[Segment]| segments.iter().map(Segment::example).collect::<Vec<_>>();
        let host = texts(self.host.as_deref().unwrap_or_default()).join(&b'.');
        let mut path = texts(&self.head);
        if let Some(splat) = &self.splat {
            path.push([&splat.prefix, &b"x"[..], &splat.suffix].concat());
            path.extend(texts(&splat.tail));
        }
        (host, [&b"/"[..], &path.join(&b'/')].concat())
    }

    /// The pattern of the same paths without this suffix, if all of its paths have it; and whether their
    /// last segment is one name, rather than any. A slash at the end does not count.
    pub(crate) fn without_suffix(&self, suffix: &[u8]) -> Option<(Self, bool)> {
        let mut shorter = self.clone();
        let (segments, after_splat) = match &mut shorter.splat {
            Some(splat) => (&mut splat.tail, Some(&mut splat.suffix)),
            None => (&mut shorter.head, None),
        };
        segments.pop_if(|it| matches!(it, Segment::Literal(name) if name.is_empty()));
        let (end, is_name) = match segments.last_mut() {
            Some(Segment::Literal(name)) => (name, true),
            Some(Segment::Placeholder { suffix: end, .. }) => (end, false),
            None => (after_splat?, false),
        };
        end.truncate(end.strip_suffix(suffix)?.len());
        let is_nothing = is_name && end.is_empty();
        (!is_nothing).then_some((shorter, is_name))
    }

    /// The names of its captures, if they are distinct and not too many.
    pub(crate) fn distinct_names<'a>(
        &'a self,
        more: impl Iterator<Item = &'a str>,
    ) -> Result<Vec<&'a str>, Wrong> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.names().chain(more) {
            if names.contains(&name) {
                let found = format!("':{name}' twice");
                return Err(Wrong::words(found, "each placeholder once"));
            }
            names.push(name);
        }
        if names.len() > CAPTURES_MAX {
            let found = format!("{} placeholders", names.len());
            return Err(Wrong::words(found, format!("at most {CAPTURES_MAX}")));
        }
        Ok(names)
    }

    /// Appends its captures of a path. Returns whether it matches, and how many bytes it took to find
    /// out.
    pub(crate) fn capture_path(
        &self,
        subject: &Subject<'_>,
        captures: &mut Captures,
    ) -> (bool, usize) {
        let len = subject.bytes.len();
        let mut at = subject.first();
        for segment in &self.head {
            let Some(start) = at else {
                return (false, len);
            };
            let (end, next) = subject.segment(start);
            if !segment.capture(subject, start..end, Source::Path, captures) {
                return (false, end);
            }
            at = next;
        }
        let gone = at.unwrap_or(len);
        match &self.splat {
            None => (at.is_none(), gone),
            Some(splat) => {
                // Texts around the splat are compared; segments after it are searched for.
                let rest = match splat.tail.is_empty() {
                    true => splat.prefix.len() + splat.suffix.len(),
                    false => len - gone,
                };
                (splat.capture(subject, at, captures), gone + rest)
            }
        }
    }

    /// Appends its captures of a host name, if it matches.
    pub(crate) fn capture_host(&self, host: &[u8], captures: &mut Captures) -> bool {
        let Some(labels) = &self.host else {
            return true;
        };
        let subject = Subject::host(host);
        let mut at = subject.first();
        for label in labels {
            let Some(start) = at else { return false };
            let (end, next) = subject.segment(start);
            if !label.capture(&subject, start..end, Source::Host, captures) {
                return false;
            }
            at = next;
        }
        at.is_none()
    }
}

impl Segment {
    /// The name of its placeholder.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Literal(_) => None,
            Self::Placeholder { name, .. } => Some(name),
        }
    }

    /// A text that it matches.
    fn example(&self) -> Vec<u8> {
        match self {
            Self::Literal(literal) => literal.clone(),
            Self::Placeholder { prefix, suffix, .. } => [prefix, &b"x"[..], suffix].concat(),
        }
    }

    fn capture(
        &self,
        subject: &Subject<'_>,
        range: std::ops::Range<usize>,
        source: Source,
        captures: &mut Captures,
    ) -> bool {
        let bytes = &subject.bytes[range.clone()];
        match self {
            Self::Literal(literal) => equal(bytes, literal),
            Self::Placeholder { prefix, suffix, .. } => {
                let start = range.start + prefix.len();
                let end = range.end.saturating_sub(suffix.len());
                start < end
                    && is_around(prefix, suffix, bytes)
                    && captures.push(source, subject.base + start..subject.base + end)
            }
        }
    }
}

impl Splat {
    fn capture(&self, subject: &Subject<'_>, at: Option<usize>, captures: &mut Captures) -> bool {
        let len = subject.bytes.len();
        let is_all = self.tail.is_empty() && self.suffix.is_empty();
        let Some(start) = at else {
            // `/blog/*` matches `/blog` if slashes do not count.
            let is_empty = is_all && self.prefix.is_empty() && subject.ignores_trailing_slash;
            return is_empty && captures.push(Source::Path, subject.base + len..subject.base + len);
        };
        let mut end = len;
        let mut cuts = [0; SEGMENTS_MAX];
        for cut in cuts.iter_mut().take(self.tail.len()) {
            let slash = subject.bytes[start..end]
                .iter()
                .rposition(|&byte| byte == subject.separator);
            let Some(slash) = slash else { return false };
            *cut = end;
            end = start + slash;
        }
        let region = &subject.bytes[start..end];
        let from = start + self.prefix.len();
        let to = end.saturating_sub(self.suffix.len());
        if from > to || !is_around(&self.prefix, &self.suffix, region) {
            return false;
        }
        // A trailing slash that does not count for matching is still captured.
        let slash = usize::from(subject.has_trailing_slash && is_all && start < len);
        let mut fits = captures.push(Source::Path, subject.base + from..subject.base + to + slash);
        let mut segment_start = end + 1;
        for (index, segment) in self.tail.iter().enumerate() {
            let segment_end = cuts[self.tail.len() - 1 - index];
            let range = segment_start..segment_end;
            fits = fits && segment.capture(subject, range, Source::Path, captures);
            segment_start = segment_end + 1;
        }
        fits
    }
}

/// The part of the request that a capture belongs to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Source {
    /// The host.
    Host,
    /// The path, decoded.
    Path,
    /// The query, as it was sent.
    Query,
}

/// The captures of a rule's placeholders in a request, in the order of their names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Captures {
    captures: [Capture; CAPTURES_MAX],
    count: usize,
}

/// The capture of one placeholder: a range of bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Capture {
    /// The part of the request.
    pub source: Source,
    /// Its first byte.
    pub start: u32,
    /// The byte after its last one.
    pub end: u32,
}

impl Captures {
    pub(crate) const NONE: Self = Self {
        captures: [Capture {
            source: Source::Path,
            start: 0,
            end: 0,
        }; CAPTURES_MAX],
        count: 0,
    };

    /// All of them.
    #[must_use]
    pub fn as_slice(&self) -> &[Capture] {
        &self.captures[..self.count]
    }

    /// Adds a capture; returns whether there was room.
    pub(crate) fn push(&mut self, source: Source, range: std::ops::Range<usize>) -> bool {
        let Some(slot) = self.captures.get_mut(self.count) else {
            return false;
        };
        let (Ok(start), Ok(end)) = (u32::try_from(range.start), u32::try_from(range.end)) else {
            return false;
        };
        *slot = Capture { source, start, end };
        self.count += 1;
        true
    }
}

/// A path or a host name, as it is matched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    /// Without the first slash, and without the last one if that does not count.
    pub(crate) bytes: &'a [u8],
    pub(crate) separator: u8,
    /// Offset of `bytes` in the request's path.
    base: usize,
    pub(crate) ignores_trailing_slash: bool,
    has_trailing_slash: bool,
}

impl<'a> Subject<'a> {
    /// A decoded path. A path without a leading slash is treated as if it had one.
    pub(crate) fn path(path: &'a [u8], ignores_trailing_slash: bool) -> Self {
        let (bytes, base) = match path.strip_prefix(b"/") {
            Some(bytes) => (bytes, 1),
            None => (path, 0),
        };
        let stripped = bytes.strip_suffix(b"/").filter(|_| ignores_trailing_slash);
        Self {
            bytes: stripped.unwrap_or(bytes),
            separator: b'/',
            base,
            ignores_trailing_slash,
            has_trailing_slash: stripped.is_some(),
        }
    }

    pub(crate) fn host(bytes: &'a [u8]) -> Self {
        Self {
            bytes,
            separator: b'.',
            base: 0,
            ignores_trailing_slash: false,
            has_trailing_slash: false,
        }
    }

    /// The start of the first segment, if there is one.
    pub(crate) fn first(&self) -> Option<usize> {
        let is_none = self.bytes.is_empty() && self.ignores_trailing_slash;
        (!is_none).then_some(0)
    }

    /// The number of its segments.
    pub(crate) fn count(&self) -> usize {
        let separators = self.bytes.iter().filter(|&&byte| byte == self.separator);
        self.first().map_or(0, |_| separators.count() + 1)
    }

    /// Its segments; an empty one if it has none.
    pub(crate) fn segments(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let separator = self.separator;
        self.bytes.split(move |&byte| byte == separator)
    }

    /// The end of the segment that begins here, and the start of the next one.
    pub(crate) fn segment(&self, start: usize) -> (usize, Option<usize>) {
        let rest = &self.bytes[start..];
        match rest.iter().position(|&byte| byte == self.separator) {
            Some(len) => (start + len, Some(start + len + 1)),
            None => (self.bytes.len(), None),
        }
    }
}

enum Part {
    Segment(Segment),
    Splat(Splat),
}

fn parse_segment(text: &str, syntax: Syntax) -> Result<Part, Wrong> {
    if matches!(text, "." | "..") {
        return Err(Wrong::new(text, "a path without '.' and '..'"));
    }
    if let Some(offset) = text.find(['?', '#']) {
        let wrong = Wrong::new(&text[offset..], "a path without query and fragment");
        let help = match text[offset..].starts_with('#') {
            true => "clients do not send what follows '#', so no request matches: remove the rule",
            false => "a query is matched by its parameters, as in '/store id=:id /blog/:id'",
        };
        return Err(wrong.at(text, offset).help(help));
    }
    let literal = |range: std::ops::Range<usize>| {
        let decoded = percent::decode_segment(&text[range.clone()]);
        decoded.map_err(|wrong| shift(wrong, text, range.start))
    };
    let Some((start, end)) = find_wildcard(text, syntax, true) else {
        return Ok(Part::Segment(Segment::Literal(literal(0..text.len())?)));
    };
    // `/:a-:b` means two placeholders, wherever they may be allowed.
    let anywhere = Syntax {
        has_inner_placeholders: true,
        ..syntax
    };
    if let Some((second, _)) = find_wildcard(&text[end..], anywhere, false) {
        let found = &text[start..];
        let wrong = Wrong::new(found, "at most one '*' or placeholder between slashes");
        return Err(wrong.at(text, end + second));
    }
    let prefix = literal(0..start)?;
    let suffix = literal(end..text.len())?;
    Ok(if &text[start..end] == "*" {
        Part::Splat(Splat {
            prefix,
            suffix,
            tail: Vec::new(),
        })
    } else {
        Part::Segment(Segment::Placeholder {
            prefix,
            name: text[start + 1..end].to_owned(),
            suffix,
        })
    })
}

/// The first `*` or `:name`.
fn find_wildcard(text: &str, syntax: Syntax, is_start: bool) -> Option<(usize, usize)> {
    if !syntax.has_wildcards {
        return None;
    }
    text.match_indices(['*', ':']).find_map(|(index, found)| {
        let may_be_placeholder = syntax.has_inner_placeholders || (is_start && index == 0);
        let len = name_len(&text[index + 1..]);
        match found {
            "*" => Some((index, index + 1)),
            _ if may_be_placeholder && len > 0 => Some((index, index + 1 + len)),
            _ => None,
        }
    })
}

/// The length of the placeholder name at the start, 0 if there is none.
pub(crate) fn name_len(text: &str) -> usize {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !text.starts_with(|first: char| first.is_ascii_alphabetic()) {
        return 0;
    }
    text.bytes()
        .position(|byte| !is_name(byte))
        .unwrap_or(text.len())
}

/// Translates a problem found in a part to the whole.
pub(crate) fn shift(mut wrong: Wrong, text: &str, offset: usize) -> Wrong {
    let before = text.get(..offset).unwrap_or_default();
    wrong.offset += before.chars().count() as u32;
    wrong
}

/// Whether two texts are equal. An empty one has no memory, and the C library compares zero bytes
/// by a masked read there, whose suppressed fault costs processors a microsecond.
#[inline]
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && (a.is_empty() || a == b)
}

/// Whether a text begins and ends with these, without overlap.
fn is_around(prefix: &[u8], suffix: &[u8], text: &[u8]) -> bool {
    let Some(rest) = text.len().checked_sub(prefix.len() + suffix.len()) else {
        return false;
    };
    let start = &text[..prefix.len()];
    equal(start, prefix) && equal(&text[prefix.len() + rest..], suffix)
}

fn is_label(label: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    !label.is_empty() && label.len() <= 63 && label.bytes().all(is_allowed)
}
