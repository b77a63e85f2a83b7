//! The field lines of a request: a compact table of those that a server of static content uses.
//!
//! Lines stay where they arrived, in HTTP/1's form (`name: value CRLF`). The table stores, for each
//! [`KnownField`], where its first line's value is; repeated lines are found by a second scan,
//! which is rarely needed.

use super::limits::FIELD_LINES_MAX;
use crate::scan;

/// A field that the server interprets.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum KnownField {
    /// `Host`
    Host,
    /// `Connection`
    Connection,
    /// `Content-Length`
    ContentLength,
    /// `Transfer-Encoding`
    TransferEncoding,
    /// `Expect`
    Expect,
    /// `Accept`
    Accept,
    /// `Accept-Encoding`
    AcceptEncoding,
    /// `Accept-Language`
    AcceptLanguage,
    /// `Authorization`
    Authorization,
    /// `If-Match`
    IfMatch,
    /// `If-Modified-Since`
    IfModifiedSince,
    /// `If-None-Match`
    IfNoneMatch,
    /// `If-Range`
    IfRange,
    /// `If-Unmodified-Since`
    IfUnmodifiedSince,
    /// `Origin`
    Origin,
    /// `Priority`
    Priority,
    /// `Range`
    Range,
    /// `Referer`
    Referer,
    /// `User-Agent`
    UserAgent,
    /// `Want-Content-Digest`
    WantContentDigest,
    /// `Want-Repr-Digest`
    WantReprDigest,
    /// `X-Forwarded-For`
    XForwardedFor,
}

impl KnownField {
    /// The number of known fields.
    pub const COUNT: usize = 22;

    /// The field's name in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Connection => "connection",
            Self::ContentLength => "content-length",
            Self::TransferEncoding => "transfer-encoding",
            Self::Expect => "expect",
            Self::Accept => "accept",
            Self::AcceptEncoding => "accept-encoding",
            Self::AcceptLanguage => "accept-language",
            Self::Authorization => "authorization",
            Self::IfMatch => "if-match",
            Self::IfModifiedSince => "if-modified-since",
            Self::IfNoneMatch => "if-none-match",
            Self::IfRange => "if-range",
            Self::IfUnmodifiedSince => "if-unmodified-since",
            Self::Origin => "origin",
            Self::Priority => "priority",
            Self::Range => "range",
            Self::Referer => "referer",
            Self::UserAgent => "user-agent",
            Self::WantContentDigest => "want-content-digest",
            Self::WantReprDigest => "want-repr-digest",
            Self::XForwardedFor => "x-forwarded-for",
        }
    }

    /// The known field of this name, in any case: by length, then by letters.
    #[inline]
    #[must_use]
    pub fn parse(name: &[u8]) -> Option<Self> {
        match name.len() {
            4 => pick(name, &[(b"host", Self::Host)]),
            5 => pick(name, &[(b"range", Self::Range)]),
            6 => pick(
                name,
                &[
                    (b"accept", Self::Accept),
                    (b"origin", Self::Origin),
                    (b"expect", Self::Expect),
                ],
            ),
            7 => pick(name, &[(b"referer", Self::Referer)]),
            8 => pick(
                name,
                &[
                    (b"priority", Self::Priority),
                    (b"if-range", Self::IfRange),
                    (b"if-match", Self::IfMatch),
                ],
            ),
            10 => pick(
                name,
                &[
                    (b"user-agent", Self::UserAgent),
                    (b"connection", Self::Connection),
                ],
            ),
            13 => pick(
                name,
                &[
                    (b"if-none-match", Self::IfNoneMatch),
                    (b"authorization", Self::Authorization),
                ],
            ),
            14 => pick(name, &[(b"content-length", Self::ContentLength)]),
            15 => pick(
                name,
                &[
                    (b"accept-encoding", Self::AcceptEncoding),
                    (b"accept-language", Self::AcceptLanguage),
                    (b"x-forwarded-for", Self::XForwardedFor),
                ],
            ),
            16 => pick(name, &[(b"want-repr-digest", Self::WantReprDigest)]),
            17 => pick(
                name,
                &[
                    (b"if-modified-since", Self::IfModifiedSince),
                    (b"transfer-encoding", Self::TransferEncoding),
                ],
            ),
            19 => pick(
                name,
                &[
                    (b"if-unmodified-since", Self::IfUnmodifiedSince),
                    (b"want-content-digest", Self::WantContentDigest),
                ],
            ),
            _ => None,
        }
    }
}

/// The candidate that `name` spells, in any case.
///
/// Lengths are constants here, so that a comparison is a few word operations.
#[inline]
fn pick<const N: usize>(name: &[u8], candidates: &[(&[u8; N], KnownField)]) -> Option<KnownField> {
    let name: &[u8; N] = name.try_into().ok()?;
    for &(lower, field) in candidates {
        let mut difference = 0;
        for (byte, &wanted) in name.iter().zip(lower) {
            // Only letters have a case: for a hyphen the bit would accept CR.
            let case_bit = if wanted.is_ascii_lowercase() { 0x20 } else { 0 };
            difference |= (byte | case_bit) ^ wanted;
        }
        if difference == 0 {
            return Some(field);
        }
    }
    None
}

/// A set of known fields.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FieldMask(pub u32);

impl FieldMask {
    /// `If-Match`, `If-Modified-Since`, `If-None-Match`, `If-Range`, `If-Unmodified-Since`,
    /// `Range`: a request with none of them is answered with the whole representation.
    pub const CONDITIONS_AND_RANGE: Self = Self::of(&[
        KnownField::IfMatch,
        KnownField::IfModifiedSince,
        KnownField::IfNoneMatch,
        KnownField::IfRange,
        KnownField::IfUnmodifiedSince,
        KnownField::Range,
    ]);

    /// The set of these fields.
    #[must_use]
    pub const fn of(fields: &[KnownField]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < fields.len() {
            bits |= 1 << fields[index] as u32;
            index += 1;
        }
        Self(bits)
    }
}

/// Why a field section is rejected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FieldError {
    /// A name that is empty, contains a byte not allowed in tokens, or is not followed by a colon;
    /// a space before the colon; a line that continues the previous one (RFC 9112 sections 5.1 and
    /// 5.2).
    Name,
    /// A control byte other than a tab, a bare CR, or a bare LF in or after a value.
    Value,
    /// More lines than allowed.
    TooMany,
}

/// How far a field section was parsed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Section {
    /// To its end: the offset after the empty line.
    End(usize),
    /// The line that begins at this offset is incomplete.
    Incomplete(usize),
}

/// The position of a value in the section.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u16,
    len: u16,
}

/// The table of [`Fields`] for a section that is still being written, one checked line at a time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FieldIndex {
    present: FieldMask,
    repeated: FieldMask,
    first: [Span; KnownField::COUNT],
}

impl FieldIndex {
    /// Adds a line: its value, without surrounding white space, is at `start` of the section, which
    /// is at most 64 KiB long.
    #[inline]
    pub(crate) fn note(&mut self, field: KnownField, start: usize, len: usize) {
        debug_assert!(start + len <= usize::from(u16::MAX), "sections are bounded");
        let bit = 1 << field as u32;
        if self.present.0 & bit != 0 {
            self.repeated.0 |= bit;
            return;
        }
        self.present.0 |= bit;
        self.first[field as usize] = Span {
            start: start as u16,
            len: len as u16,
        };
    }

    /// The value of the field's first line in `section`.
    #[inline]
    pub(crate) fn get<'a>(&self, section: &'a [u8], field: KnownField) -> Option<&'a [u8]> {
        if self.present.0 & 1 << field as u32 == 0 {
            return None;
        }
        let Span { start, len } = self.first[field as usize];
        let start = usize::from(start);
        section.get(start..start + usize::from(len))
    }

    /// Whether there is more than one line of this field.
    #[inline]
    pub(crate) fn is_repeated(&self, field: KnownField) -> bool {
        self.repeated.0 & 1 << field as u32 != 0
    }
}

/// The field lines of a request.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    /// The lines, without the empty line that ends the section.
    section: &'a [u8],
    present: FieldMask,
    repeated: FieldMask,
    first: [Span; KnownField::COUNT],
}

impl<'a> Fields<'a> {
    /// No field lines.
    pub const EMPTY: Self = Self::over(&[]);

    /// Parses lines in HTTP/1's form, each ended by CRLF, with or without the empty line that ends
    /// a section. For machines other than HTTP/1's, and for tests of code that uses fields.
    ///
    /// # Errors
    /// If the section is not well formed, or is longer than 64 KiB.
    pub fn parse(section: &'a [u8]) -> Result<Self, FieldError> {
        let mut fields = Self::over(section);
        let mut line_count = 0;
        if section.len() > usize::from(u16::MAX) {
            return Err(FieldError::TooMany);
        }
        match fields.read(0, &mut line_count)? {
            Section::End(_) => Ok(fields),
            Section::Incomplete(start) if start == section.len() => Ok(fields),
            Section::Incomplete(_) => Err(FieldError::Value),
        }
    }

    /// The value of the field's first line, without surrounding white space.
    #[inline]
    #[must_use]
    pub fn get(&self, field: KnownField) -> Option<&'a [u8]> {
        if !self.has(field) {
            return None;
        }
        let Span { start, len } = self.first[field as usize];
        let start = usize::from(start);
        self.section.get(start..start + usize::from(len))
    }

    /// Whether there is a line of this field.
    #[inline]
    #[must_use]
    pub fn has(&self, field: KnownField) -> bool {
        self.present.0 & 1 << field as u32 != 0
    }

    /// Whether there is more than one line of this field.
    #[inline]
    #[must_use]
    pub fn is_repeated(&self, field: KnownField) -> bool {
        self.repeated.0 & 1 << field as u32 != 0
    }

    /// Whether there is a line of any of these fields.
    #[inline]
    #[must_use]
    pub fn has_any(&self, mask: FieldMask) -> bool {
        self.present.0 & mask.0 != 0
    }

    /// The values of all lines of this field, in the order received.
    #[inline]
    #[must_use]
    pub fn lines(&self, field: KnownField) -> FieldLines<'a> {
        if self.is_repeated(field) {
            FieldLines {
                only: None,
                rest: self.iter(),
                field,
            }
        } else {
            FieldLines {
                only: self.get(field),
                rest: AllLines { rest: &[] },
                field,
            }
        }
    }

    /// Bytes of all lines in HTTP/1's form, each with its CRLF.
    #[must_use]
    pub fn section_len(&self) -> usize {
        self.section.len()
    }

    /// All lines, known or not: name as sent, value without surrounding white space.
    #[must_use]
    pub fn iter(&self) -> AllLines<'a> {
        AllLines { rest: self.section }
    }

    /// A section of lines that were checked and indexed one by one.
    #[inline]
    pub(crate) const fn indexed(section: &'a [u8], index: &FieldIndex) -> Self {
        Self {
            section,
            present: index.present,
            repeated: index.repeated,
            first: index.first,
        }
    }

    /// The section and its index, from which [`indexed`](Self::indexed) restores the value.
    pub(crate) const fn parts(&self) -> (&'a [u8], FieldIndex) {
        let index = FieldIndex {
            present: self.present,
            repeated: self.repeated,
            first: self.first,
        };
        (self.section, index)
    }

    pub(crate) const fn over(section: &'a [u8]) -> Self {
        Self {
            section,
            present: FieldMask(0),
            repeated: FieldMask(0),
            first: [Span { start: 0, len: 0 }; KnownField::COUNT],
        }
    }

    /// Parses lines from `start` (the beginning of a line) on; `line_count` counts those parsed.
    ///
    /// An error is a property of the line's bytes up to its LF: a line that has not ended yet is
    /// never rejected (except for being one too many), however invalid it looks. So the way in
    /// which the bytes are split makes no difference.
    #[inline]
    pub(crate) fn read(
        &mut self,
        start: usize,
        line_count: &mut u16,
    ) -> Result<Section, FieldError> {
        let section = self.section;
        let mut at = start;
        loop {
            let line = &section[at..];
            match line {
                [b'\r', b'\n', ..] => {
                    self.section = &section[..at];
                    return Ok(Section::End(at + 2));
                }
                [] | [b'\r'] => return Ok(Section::Incomplete(at)),
                _ => {}
            }
            if *line_count == FIELD_LINES_MAX {
                return Err(FieldError::TooMany);
            }
            let colon = scan::find_byte(line, b':');
            let known = KnownField::parse(&line[..colon]);
            if colon == line.len() || (known.is_none() && !is_token(&line[..colon])) {
                return incomplete_or(FieldError::Name, section, at);
            }
            let value = &line[colon + 1..];
            let mut end = scan::find_control(value);
            while value.get(end) == Some(&b'\t') {
                end += 1 + scan::find_control(&value[end + 1..]);
            }
            match &value[end..] {
                [b'\r', b'\n', ..] => {}
                [] | [b'\r'] => return Ok(Section::Incomplete(at)),
                _ => return incomplete_or(FieldError::Value, section, at),
            }
            if let Some(field) = known {
                self.note(field, &value[..end], at + colon + 1);
            }
            *line_count += 1;
            at += colon + 1 + end + 2;
        }
    }

    /// Adds a line's value, which begins at `offset` of the section, to the table.
    #[inline]
    fn note(&mut self, field: KnownField, value: &[u8], offset: usize) {
        let bit = 1 << field as u32;
        if self.present.0 & bit != 0 {
            self.repeated.0 |= bit;
            return;
        }
        self.present.0 |= bit;
        let is_space = |byte: u8| byte == b' ' || byte == b'\t';
        let (mut start, mut end) = (0, value.len());
        while start < end && is_space(value[start]) {
            start += 1;
        }
        while end > start && is_space(value[end - 1]) {
            end -= 1;
        }
        // Sections are at most 64 KiB long: see `parse` and the limits of the machines.
        self.first[field as usize] = Span {
            start: (offset + start) as u16,
            len: (end - start) as u16,
        };
    }
}

/// Rejects the line that begins at `at`, unless it has not ended yet.
#[cold]
fn incomplete_or(error: FieldError, section: &[u8], at: usize) -> Result<Section, FieldError> {
    match memchr::memchr(b'\n', &section[at..]) {
        Some(_) => Err(error),
        None => Ok(Section::Incomplete(at)),
    }
}

fn is_token(name: &[u8]) -> bool {
    // Without an early exit from the loop: names are short, and nearly all are tokens.
    !name.is_empty()
        && name
            .iter()
            .fold(true, |is, &byte| is & scan::is_token_byte(byte))
}

impl std::fmt::Debug for Fields<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        formatter
            .debug_map()
            .entries(self.iter().map(|(n, v)| (text(n), text(v))))
            .finish()
    }
}

/// The values of one field's lines: see [`Fields::lines`].
#[derive(Clone, Debug)]
pub struct FieldLines<'a> {
    only: Option<&'a [u8]>,
    rest: AllLines<'a>,
    field: KnownField,
}

impl<'a> Iterator for FieldLines<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        if let Some(only) = self.only.take() {
            return Some(only);
        }
        let name = self.field.name().as_bytes();
        self.rest
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

/// All lines of a section: see [`Fields::iter`].
#[derive(Clone, Debug)]
pub struct AllLines<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for AllLines<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.rest.is_empty() {
            true => None,
            false => self.next_line(),
        }
    }
}

impl<'a> AllLines<'a> {
    fn next_line(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let end = scan::find_byte(self.rest, b'\r');
        let line = &self.rest[..end];
        let colon = scan::find_byte(line, b':');
        let value = line.get(colon + 1..)?;
        self.rest = self.rest.get(end + 2..).unwrap_or_default();
        Some((&line[..colon], value.trim_ascii()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(section: &str) -> Fields<'_> {
        Fields::parse(section.as_bytes()).expect("a section of the test")
    }

    #[test]
    fn names_are_known_in_any_case_and_by_nothing_but_their_letters() {
        for field in ALL {
            let name = field.name();
            assert_eq!(KnownField::parse(name.as_bytes()), Some(field));
            assert_eq!(
                KnownField::parse(name.to_uppercase().as_bytes()),
                Some(field)
            );
            for index in 0..name.len() {
                for byte in 0..=255 {
                    let mut other = name.as_bytes().to_vec();
                    other[index] = byte;
                    let expect = ALL
                        .into_iter()
                        .find(|known| known.name().as_bytes().eq_ignore_ascii_case(&other));
                    assert_eq!(
                        KnownField::parse(&other),
                        expect,
                        "{}",
                        other.escape_ascii()
                    );
                }
            }
        }
    }

    #[test]
    fn the_first_line_is_found_at_once_and_repeated_ones_by_a_scan() {
        let fields = fields("Accept: a\r\nX: y\r\naccept:\t b \r\nACCEPT:\r\nRange: r\r\n\r\n");
        assert_eq!(fields.get(KnownField::Accept), Some(&b"a"[..]));
        assert!(fields.is_repeated(KnownField::Accept) && !fields.is_repeated(KnownField::Range));
        let lines: Vec<_> = fields.lines(KnownField::Accept).collect();
        assert_eq!(lines, [&b"a"[..], b"b", b""]);
        assert_eq!(fields.lines(KnownField::Range).collect::<Vec<_>>(), [b"r"]);
        assert_eq!(fields.lines(KnownField::Host).next(), None);
        assert!(fields.has_any(FieldMask::CONDITIONS_AND_RANGE));
        assert!(!fields.has_any(FieldMask::of(&[KnownField::Host, KnownField::IfRange])));
        assert_eq!(fields.iter().count(), 5);
    }

    #[test]
    fn malformed_sections_are_refused() {
        let check = |section: &str, expect| {
            assert_eq!(
                Fields::parse(section.as_bytes()).map(|_| ()),
                Err(expect),
                "{section:?}"
            );
        };
        check(" a: b\r\n", FieldError::Name);
        check("a: b\r\n c\r\n", FieldError::Name);
        check("a : b\r\n", FieldError::Name);
        check(": b\r\n", FieldError::Name);
        check("a\r\n", FieldError::Name);
        check("a\r\nb: c\r\n", FieldError::Name);
        check("if\rmatch: x\r\n", FieldError::Name);
        check("a: b\n", FieldError::Value);
        check("a: b\rc\r\n", FieldError::Value);
        check("a: b\0\r\n", FieldError::Value);
        check("a: b", FieldError::Value);
        check(&"a: b\r\n".repeat(257), FieldError::TooMany);
        check(&"a: 0123456789abcdef\r\n".repeat(9999), FieldError::TooMany);
    }

    const ALL: [KnownField; KnownField::COUNT] = [
        KnownField::Host,
        KnownField::Connection,
        KnownField::ContentLength,
        KnownField::TransferEncoding,
        KnownField::Expect,
        KnownField::Accept,
        KnownField::AcceptEncoding,
        KnownField::AcceptLanguage,
        KnownField::Authorization,
        KnownField::IfMatch,
        KnownField::IfModifiedSince,
        KnownField::IfNoneMatch,
        KnownField::IfRange,
        KnownField::IfUnmodifiedSince,
        KnownField::Origin,
        KnownField::Priority,
        KnownField::Range,
        KnownField::Referer,
        KnownField::UserAgent,
        KnownField::WantContentDigest,
        KnownField::WantReprDigest,
        KnownField::XForwardedFor,
    ];
}
