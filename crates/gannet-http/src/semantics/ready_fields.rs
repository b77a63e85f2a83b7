//! Rendering a [`FieldBlock`]: the fields of a representation, checked once and turned into wire
//! bytes.

use super::coding::Coding;
use super::date::write_date;
use super::decimal::write_decimal;
use super::field_names::{is_lower_token, write_title};
use super::limits::READY_BLOCK_MAX;
use super::response::FieldBlock;
use crate::scan;

/// The fields of a representation. Absent ones are not sent.
///
/// Lines are rendered in the order of the members, so the same representation always has the same
/// bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct RepresentationFields<'a> {
    /// Length of the (coded) content in bytes: `content-length`.
    pub content_length: u64,
    /// `content-type`.
    pub content_type: Option<&'a [u8]>,
    /// `content-encoding`; identity sends no line.
    pub content_encoding: Option<Coding>,
    /// `content-language`.
    pub content_language: Option<&'a [u8]>,
    /// `content-disposition`.
    pub content_disposition: Option<&'a [u8]>,
    /// Further fields of the representation, which a 304 leaves out. Names in lower case.
    pub representation: &'a [(&'a str, &'a [u8])],
    /// `etag`, with its quotes. This and all later fields go into a 304 too.
    pub entity_tag: Option<&'a [u8]>,
    /// `last-modified`, in Unix seconds.
    pub last_modified: Option<i64>,
    /// `cache-control`.
    pub cache_control: Option<&'a [u8]>,
    /// `vary`.
    pub vary: Option<&'a [u8]>,
    /// `accept-ranges: bytes`.
    pub accept_ranges: bool,
    /// `x-content-type-options: nosniff`.
    pub nosniff: bool,
    /// Further fields. Names in lower case.
    pub further: &'a [(&'a str, &'a [u8])],
    /// Fields that many representations have, at the end.
    pub checked: Option<&'a CheckedLines>,
}

/// Lines of fields that were checked and rendered once, for many representations.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CheckedLines(Vec<u8>);

impl CheckedLines {
    /// Renders these fields, names in lower case.
    ///
    /// # Errors
    /// As [`RepresentationFields::render`].
    pub fn new<'a>(
        fields: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    ) -> Result<Self, ReadyFieldsError> {
        let mut bytes = Vec::new();
        for (name, value) in fields {
            write_checked_line(name, value, &mut bytes)?;
        }
        Ok(Self(bytes))
    }
}

impl RepresentationFields<'_> {
    /// Renders the block.
    ///
    /// # Errors
    /// A name that is not a token in lower case or that the protocol machine writes itself (`date`,
    /// `connection`, `content-length`, `transfer-encoding`), a value with a control byte other than
    /// a tab, or more than [`READY_BLOCK_MAX`] bytes.
    pub fn render(&self) -> Result<ReadyFields, ReadyFieldsError> {
        let further = self.representation.iter().chain(self.further);
        let further: usize = further
            .map(|(name, value)| name.len() + value.len() + 4)
            .sum();
        let further = further + self.checked.map_or(0, |checked| checked.0.len());
        let mut bytes = Vec::with_capacity(USUAL_LEN + further);
        bytes.extend_from_slice(b"Content-Length: ");
        write_decimal(self.content_length, &mut bytes);
        bytes.extend_from_slice(b"\r\n");
        let length_end = bytes.len();

        write_present("Content-Type", self.content_type, &mut bytes)?;
        let coding = self.content_encoding;
        if let Some(coding) = coding.filter(|it| *it != Coding::Identity) {
            write_own_line("Content-Encoding", coding.name().as_bytes(), &mut bytes);
        }
        write_present("Content-Language", self.content_language, &mut bytes)?;
        write_present("Content-Disposition", self.content_disposition, &mut bytes)?;
        for (name, value) in self.representation {
            write_checked_line(name, value, &mut bytes)?;
        }
        let shared_start = bytes.len();
        write_present("ETag", self.entity_tag, &mut bytes)?;
        if let Some(time) = self.last_modified {
            write_own_line("Last-Modified", &write_date(time), &mut bytes);
        }
        write_present("Cache-Control", self.cache_control, &mut bytes)?;
        write_present("Vary", self.vary, &mut bytes)?;
        if self.accept_ranges {
            bytes.extend_from_slice(b"Accept-Ranges: bytes\r\n");
        }
        if self.nosniff {
            bytes.extend_from_slice(b"X-Content-Type-Options: nosniff\r\n");
        }
        for (name, value) in self.further {
            write_checked_line(name, value, &mut bytes)?;
        }
        if let Some(checked) = self.checked {
            bytes.extend_from_slice(&checked.0);
        }
        if bytes.len() > READY_BLOCK_MAX {
            return Err(ReadyFieldsError::TooLong);
        }
        // Both are at most READY_BLOCK_MAX, which fits in 16 bits.
        Ok(ReadyFields {
            bytes,
            length_end: length_end as u16,
            shared_start: shared_start as u16,
        })
    }
}

/// An owned [`FieldBlock`].
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReadyFields {
    pub(crate) bytes: Vec<u8>,
    pub(crate) length_end: u16,
    pub(crate) shared_start: u16,
}

impl ReadyFields {
    /// The block, borrowed.
    #[must_use]
    pub fn as_block(&self) -> FieldBlock<'_> {
        FieldBlock {
            bytes: &self.bytes,
            length_end: self.length_end,
            shared_start: self.shared_start,
            common: &[],
            common_shared_start: 0,
        }
    }

    /// The bytes alone, to be stored together with the two offsets of the block.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Changes to a [`FieldBlock`]: lines to remove, and lines to add.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockChanges<'a> {
    /// Names of the lines to remove, sorted. The content length always stays.
    pub remove: &'a [&'a str],
    /// Added lines of the representation, which a 304 leaves out.
    pub representation: &'a [(&'a str, &'a [u8])],
    /// Added lines that a 304 carries too.
    pub shared: &'a [(&'a str, &'a [u8])],
}

impl BlockChanges<'_> {
    /// The block with the changes applied.
    ///
    /// # Errors
    /// As [`RepresentationFields::render`].
    pub fn apply(&self, block: FieldBlock<'_>) -> Result<ReadyFields, ReadyFieldsError> {
        let mut bytes = Vec::with_capacity(block.bytes.len() + block.common.len() + 128);
        let [length, before, own, behind] = block.pieces();
        let cut = usize::from(block.shared_start.saturating_sub(block.length_end));
        let (own, own_shared) = own.split_at_checked(cut).unwrap_or_default();
        bytes.extend_from_slice(length);
        let length_end = bytes.len();
        self.keep(before, &mut bytes);
        self.keep(own, &mut bytes);
        for (name, value) in self.representation {
            write_checked_line(name, value, &mut bytes)?;
        }
        let shared_start = bytes.len();
        self.keep(own_shared, &mut bytes);
        self.keep(behind, &mut bytes);
        for (name, value) in self.shared {
            write_checked_line(name, value, &mut bytes)?;
        }
        if bytes.len() > READY_BLOCK_MAX {
            return Err(ReadyFieldsError::TooLong);
        }
        Ok(ReadyFields {
            bytes,
            length_end: length_end as u16,
            shared_start: shared_start as u16,
        })
    }

    fn keep(&self, lines: &[u8], out: &mut Vec<u8>) {
        for (name, _, line) in block_lines(lines) {
            let lower = || name.iter().map(u8::to_ascii_lowercase);
            let found = self
                .remove
                .binary_search_by(|gone| gone.bytes().cmp(lower()));
            if found.is_err() {
                out.extend_from_slice(line);
            }
        }
    }
}

impl<'a> FieldBlock<'a> {
    /// The value of its first line with this name, in any case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        let mut lines = self.lines();
        let line = lines.find(|(it, ..)| it.eq_ignore_ascii_case(name.as_bytes()));
        line.map(|(_, value, _)| value)
    }

    /// Its lines, not in wire order: name as HTTP/1 spells it, value, and the whole line with its
    /// end.
    pub fn lines(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8], &'a [u8])> {
        block_lines(self.bytes).chain(block_lines(self.common))
    }
}

/// The lines of a block: name, value, and the whole line with its end.
pub fn block_lines(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8], &[u8])> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(|line| {
        let text = line.strip_suffix(b"\r\n").unwrap_or(line);
        let colon = text.iter().position(|byte| *byte == b':');
        let (name, value) = text.split_at(colon.unwrap_or(text.len()));
        (name, value.strip_prefix(b": ").unwrap_or_default(), line)
    })
}

/// Why fields cannot be rendered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReadyFieldsError {
    /// A name is not a token in lower case, or is one that the protocol machine writes.
    Name,
    /// A value has a CR, LF, NUL or another control byte, or white space at an end.
    Value,
    /// All lines together are longer than [`READY_BLOCK_MAX`].
    TooLong,
}

/// Whether a field with this name and value can be sent as part of a response.
///
/// # Errors
/// As [`RepresentationFields::render`], except for the length.
pub fn check_field(name: &str, value: &[u8]) -> Result<(), ReadyFieldsError> {
    check_name(name)?;
    check_value(value)
}

fn check_name(name: &str) -> Result<(), ReadyFieldsError> {
    if !is_lower_token(name.as_bytes()) || MACHINE_FIELDS.contains(&name) {
        return Err(ReadyFieldsError::Name);
    }
    Ok(())
}

fn check_value(value: &[u8]) -> Result<(), ReadyFieldsError> {
    let is_space = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_whitespace);
    if !scan::is_text(value) || is_space(value.first()) || is_space(value.last()) {
        return Err(ReadyFieldsError::Value);
    }
    Ok(())
}

/// Appends one line, whose name is in lower case.
fn write_checked_line(name: &str, value: &[u8], out: &mut Vec<u8>) -> Result<(), ReadyFieldsError> {
    check_field(name, value)?;
    write_title(name, out);
    for part in [b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
    Ok(())
}

/// Appends a line with a name that can be sent, as HTTP/1 spells it, if it has a value.
fn write_present(
    name: &'static str,
    value: Option<&[u8]>,
    out: &mut Vec<u8>,
) -> Result<(), ReadyFieldsError> {
    let Some(value) = value else { return Ok(()) };
    check_value(value)?;
    write_own_line(name, value, out);
    Ok(())
}

/// Appends one line that can be sent.
fn write_own_line(name: &'static str, value: &[u8], out: &mut Vec<u8>) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Bytes of the usual fields of a page: fewer than these.
const USUAL_LEN: usize = 272;

/// Fields that affect message framing: written only by the protocol machines.
const MACHINE_FIELDS: [&str; 4] = ["connection", "content-length", "date", "transfer-encoding"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_the_fixed_order_and_are_cut_at_the_two_offsets() {
        let checked = CheckedLines::new([("x-a", &b"1"[..])]).expect("a field that may be sent");
        let fields = RepresentationFields {
            content_length: 12,
            content_type: Some(b"text/html;charset=utf-8"),
            content_encoding: Some(Coding::Brotli),
            content_language: Some(b"en"),
            content_disposition: Some(b"inline"),
            representation: &[("link", b"</a.css>; rel=preload")],
            entity_tag: Some(b"\"x\""),
            last_modified: Some(784_111_777),
            cache_control: Some(b"no-cache"),
            vary: Some(b"accept-encoding"),
            accept_ranges: true,
            nosniff: true,
            further: &[("x-robots-tag", b"noindex")],
            checked: Some(&checked),
        };
        let ready = fields.render().expect("fields that may be sent");
        let block = ready.as_block();
        let (length_end, shared_start) = (block.length_end.into(), block.shared_start.into());
        assert_eq!(&block.bytes[..length_end], b"Content-Length: 12\r\n");
        assert_eq!(
            block.bytes[length_end..shared_start]
                .escape_ascii()
                .to_string(),
            "Content-Type: text/html;charset=utf-8\\r\\nContent-Encoding: br\\r\\n\
             Content-Language: en\\r\\nContent-Disposition: inline\\r\\n\
             Link: </a.css>; rel=preload\\r\\n"
        );
        assert_eq!(
            block.bytes[shared_start..].escape_ascii().to_string(),
            "ETag: \\\"x\\\"\\r\\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\\r\\n\
             Cache-Control: no-cache\\r\\nVary: accept-encoding\\r\\nAccept-Ranges: bytes\\r\\n\
             X-Content-Type-Options: nosniff\\r\\nX-Robots-Tag: noindex\\r\\nX-A: 1\\r\\n"
        );
    }

    #[test]
    fn what_could_split_a_response_is_refused() {
        use ReadyFieldsError::{Name, TooLong, Value};
        let check = |name: &str, value: &[u8], expect| {
            let further = [(name, value)];
            let fields = RepresentationFields {
                further: &further,
                ..Default::default()
            };
            assert_eq!(fields.render().map(|_| ()), expect, "{name:?}");
            let lines = CheckedLines::new(further);
            let expect = expect.or_else(|it| if it == TooLong { Ok(()) } else { Err(it) });
            assert_eq!(lines.map(|_| ()), expect, "{name:?}");
        };
        check("x-ok", b"a b\tc", Ok(()));
        check("x-empty", b"", Ok(()));
        for value in [
            &b"a\r\nB: c"[..],
            b"a\nb",
            b"a\rb",
            b"a\0b",
            b"a\x7fb",
            b" a",
            b"a ",
        ] {
            check("x-bad", value, Err(Value));
        }
        for name in [
            "",
            "X-Upper",
            "a b",
            "a:",
            "a\r\n",
            "é",
            "date",
            "connection",
            "content-length",
            "transfer-encoding",
        ] {
            check(name, b"1", Err(Name));
        }
        check("x-long", &vec![b'a'; READY_BLOCK_MAX], Err(TooLong));
    }

    #[test]
    fn lines_of_a_block_go_and_come() {
        let fields = RepresentationFields {
            content_length: 12,
            content_type: Some(b"text/html"),
            entity_tag: Some(b"\"x\""),
            cache_control: Some(b"no-cache"),
            nosniff: true,
            ..Default::default()
        };
        let ready = fields.render().expect("fields that may be sent");
        let changes = BlockChanges {
            remove: &["cache-control", "content-length", "content-type"],
            representation: &[("content-type", b"text/plain")],
            shared: &[("x-a", b"1"), ("cache-control", b"no-store")],
        };
        let changed = changes.apply(ready.as_block()).expect("they may be sent");
        let block = changed.as_block();
        let (length_end, shared_start) = (block.length_end.into(), block.shared_start.into());
        assert_eq!(&block.bytes[..length_end], b"Content-Length: 12\r\n");
        assert_eq!(
            &block.bytes[length_end..shared_start],
            b"Content-Type: text/plain\r\n"
        );
        assert_eq!(
            block.bytes[shared_start..].escape_ascii().to_string(),
            "ETag: \\\"x\\\"\\r\\nX-Content-Type-Options: nosniff\\r\\nX-A: 1\\r\\n\
             Cache-Control: no-store\\r\\n"
        );
        let same = BlockChanges::default().apply(ready.as_block());
        assert_eq!(same, Ok(ready));
        let bad = BlockChanges {
            shared: &[("x", b"a\r\nb")],
            ..BlockChanges::default()
        };
        assert_eq!(bad.apply(changed.as_block()), Err(ReadyFieldsError::Value));
    }

    #[test]
    fn the_usual_fields_fit_into_their_first_memory() {
        let fields = RepresentationFields {
            content_length: 4 << 20,
            content_type: Some(b"text/javascript; charset=utf-8"),
            entity_tag: Some(b"\"18a0c1b2d3e4f567-400000-01234567\""),
            last_modified: Some(784_111_777),
            cache_control: Some(b"no-cache"),
            vary: Some(b"accept-encoding"),
            accept_ranges: true,
            nosniff: true,
            further: &[("referrer-policy", b"strict-origin-when-cross-origin")],
            ..Default::default()
        };
        let ready = fields.render().expect("fields that may be sent");
        let [(name, value)] = fields.further else {
            panic!("it has one more");
        };
        let further = name.len() + value.len() + 4;
        assert_eq!(ready.bytes.capacity(), USUAL_LEN + further);
    }

    #[test]
    fn an_empty_representation_has_its_length_alone() {
        let ready = RepresentationFields::default()
            .render()
            .expect("nothing to refuse");
        assert_eq!(ready.as_block().bytes, b"Content-Length: 0\r\n");
        let fields = RepresentationFields {
            content_encoding: Some(Coding::Identity),
            ..Default::default()
        };
        assert_eq!(fields.render().expect("identity"), ready);
    }
}
