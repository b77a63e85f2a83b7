//! The field lines of a request: a compact table of those that a server of static content acts on.
//!
//! Lines are kept where they arrived, in the form of HTTP/1 (`name: value CRLF`). The table notes,
//! for each [`KnownField`], where its first line's value is; lines that repeat are found again by
//! a second scan, which hardly ever happens.

use super::super::scan;

/// A field that is looked at.
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
    /// `X-Forwarded-For`
    XForwardedFor,
}

impl KnownField {
    /// How many there are.
    pub const COUNT: usize = 20;

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
            Self::XForwardedFor => "x-forwarded-for",
        }
    }

    /// The known field of this name, in any case: by length, then by letters.
    #[inline]
    #[must_use]
    pub fn parse(name: &[u8]) -> Option<Self> {
        let candidates: &[Self] = match name.len() {
            4 => return exact(name, b"host", Self::Host),
            5 => return exact(name, b"range", Self::Range),
            6 => &[Self::Accept, Self::Expect, Self::Origin],
            7 => return exact(name, b"referer", Self::Referer),
            8 => &[Self::Priority, Self::IfMatch, Self::IfRange],
            10 => &[Self::Connection, Self::UserAgent],
            13 => &[Self::IfNoneMatch, Self::Authorization],
            14 => return exact(name, b"content-length", Self::ContentLength),
            15 => &[
                Self::AcceptEncoding,
                Self::AcceptLanguage,
                Self::XForwardedFor,
            ],
            17 => &[Self::IfModifiedSince, Self::TransferEncoding],
            19 => return exact(name, b"if-unmodified-since", Self::IfUnmodifiedSince),
            _ => return None,
        };
        candidates
            .iter()
            .copied()
            .find(|field| name.eq_ignore_ascii_case(field.name().as_bytes()))
    }
}

fn exact(name: &[u8], lower: &[u8], field: KnownField) -> Option<KnownField> {
    name.eq_ignore_ascii_case(lower).then_some(field)
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

/// Why a field section is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FieldError {
    /// A name that is empty, has a byte that no token has, or is followed by no colon; a space
    /// before the colon; a line that continues the one before (RFC 9112 sections 5.1 and 5.2).
    Name,
    /// A control byte other than a tab, a bare CR, or a bare LF in or after a value.
    Value,
    /// More lines than allowed.
    TooMany,
}

/// How far a field section was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Section {
    /// To its end: the offset after the empty line.
    End(usize),
    /// The line that begins at this offset is not complete yet.
    Incomplete(usize),
}

/// Where a value lies in the section.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    start: u16,
    len: u16,
}

/// The field lines of a request.
#[derive(Clone, Copy)]
pub struct Fields<'a> {
    /// The lines; may be longer than the section, whose empty line ends it.
    section: &'a [u8],
    present: FieldMask,
    repeated: FieldMask,
    first: [Span; KnownField::COUNT],
}

impl<'a> Fields<'a> {
    /// No field lines.
    pub const EMPTY: Self = Self::over(&[]);

    /// Reads lines in the form of HTTP/1, each ended by CRLF, with or without the empty line that
    /// ends a section. For machines other than HTTP/1's, and for tests of what acts on fields.
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

    /// The value of the field's first line, without white space around it.
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

    /// All lines, known or not: name as sent, value without white space around it.
    #[must_use]
    pub fn iter(&self) -> AllLines<'a> {
        AllLines { rest: self.section }
    }

    pub(crate) const fn over(section: &'a [u8]) -> Self {
        Self {
            section,
            present: FieldMask(0),
            repeated: FieldMask(0),
            first: [Span { start: 0, len: 0 }; KnownField::COUNT],
        }
    }

    /// Reads lines from `start` (the beginning of a line) on.
    pub(crate) fn read(&mut self, start: usize, _count: &mut u16) -> Result<Section, FieldError> {
        let _ = scan::find_control(self.section);
        Ok(Section::Incomplete(start))
    }
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

    fn next(&mut self) -> Option<Self::Item> {
        let end = scan::find_byte(self.rest, b'\r');
        let line = &self.rest[..end];
        let colon = scan::find_byte(line, b':');
        let value = line.get(colon + 1..)?;
        self.rest = self.rest.get(end + 2..).unwrap_or_default();
        Some((&line[..colon], value.trim_ascii()))
    }
}
