//! A response as passed to a protocol machine, before it has a wire form.

use std::borrow::Cow;

pub use super::status::Status;

/// Fields of a selected representation, rendered ahead of time: at pack time in an archive, in
/// directory mode when a file enters the cache.
///
/// A block is the concatenation of fields in a fixed order, cut by two offsets:
///
/// ```text
/// 0            length_end              shared_start              len
/// | Content-Length | Content-Type, Content-Encoding, ... | ETag, Last-Modified, Vary, ... |
/// ```
///
/// A 200 carries all of it; a 206 with one range leaves out the first part; a 304, or a 206 with
/// several ranges, carries only the last (RFC 9110 sections 15.3.7 and 15.4.5). Invariant:
/// `length_end <= shared_start <= bytes.len()`, both at the start of a field.
///
/// Fields that many blocks have in common may be stored separately, once: those of `common` belong
/// after `content-length` (up to `common_shared_start`) and after all others (from there on). A
/// block then contains only its length and its entity tag, and the fields on the wire are the same,
/// in the same order. Invariant: `common_shared_start <= common.len()`.
///
/// For HTTP/1 the fields are lines `Name: value CRLF`, names as
/// [`write_title`](super::field_names::write_title) spells them, without status line, date or
/// connection field, and without a closing empty line. For HTTP/2 they are a stateless HPACK field block (RFC
/// 7541): indexed fields of the static table and literals without indexing, no `:status`, no
/// `date`, no table size update. It neither reads nor changes a dynamic table, so the same bytes
/// have the same meaning at any place of any connection.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct FieldBlock<'a> {
    /// The fields.
    pub bytes: &'a [u8],
    /// End of `content-length`.
    pub length_end: u16,
    /// Start of the fields that a 304 carries too.
    pub shared_start: u16,
    /// Fields shared with other blocks; empty if all are in `bytes`.
    pub common: &'a [u8],
    /// Start of the common fields that a 304 carries too.
    pub common_shared_start: u16,
}

impl<'a> FieldBlock<'a> {
    /// The fields that a response with this part carries: the pieces one after the other.
    #[inline]
    #[must_use]
    pub fn part(&self, part: ReadyPart) -> [&'a [u8]; 4] {
        let (own, common) = (self.bytes, self.common);
        let from =
            |bytes: &'a [u8], start: u16| bytes.get(usize::from(start)..).unwrap_or_default();
        if part == ReadyPart::Shared {
            let common = from(common, self.common_shared_start);
            return [from(own, self.shared_start), common, &[], &[]];
        }
        let is_whole = part == ReadyPart::Whole;
        if common.is_empty() {
            let own = if is_whole {
                own
            } else {
                from(own, self.length_end)
            };
            return [own, &[], &[], &[]];
        }
        let [length, before, own, behind] = self.pieces();
        let length = if is_whole { length } else { &[] };
        [length, before, own, behind]
    }

    /// Its pieces in wire order: the length, common fields that a 304 leaves out, its own fields
    /// (those that a 304 leaves out first), and common fields that a 304 carries.
    #[inline]
    #[must_use]
    pub fn pieces(&self) -> [&'a [u8]; 4] {
        let split =
            |bytes: &'a [u8], at: u16| bytes.split_at_checked(at.into()).unwrap_or_default();
        let (length, own) = split(self.bytes, self.length_end);
        let (before, behind) = split(self.common, self.common_shared_start);
        [length, before, own, behind]
    }

    /// The whole block, in one piece, in wire order.
    #[must_use]
    pub fn whole(&self) -> Cow<'a, [u8]> {
        if self.common.is_empty() {
            return Cow::Borrowed(self.bytes);
        }
        Cow::Owned(self.pieces().concat())
    }
}

/// A block for every version of HTTP.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReadyBlock<'a> {
    /// For HTTP/1.
    pub h1: FieldBlock<'a>,
    /// For HTTP/2, made by [`crate::h2::hpack::ready::render`]. Without it the lines are encoded
    /// for every response.
    pub hpack: Option<FieldBlock<'a>>,
}

impl<'a> From<FieldBlock<'a>> for ReadyBlock<'a> {
    /// A block for HTTP/1 alone.
    fn from(h1: FieldBlock<'a>) -> Self {
        Self { h1, hpack: None }
    }
}

/// Which part of a [`FieldBlock`] a response carries.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ReadyPart {
    /// All of it (200, and 404 pages).
    Whole,
    /// All but the content length, which differs (206 with one range).
    WithoutLength,
    /// Only the fields that a 304 carries (304, and 206 with several ranges).
    Shared,
}

/// The head of a response. Date and connection fields are added by the protocol machine.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The status code.
    pub status: Status,
    /// Fields rendered ahead of time, if there is a selected representation.
    pub ready: Option<(ReadyBlock<'a>, ReadyPart)>,
    /// The content length, where it is not part of `ready`. `None` with no `ready` or with
    /// [`ReadyPart::Shared`] means that none is sent (304, 204).
    pub content_length: Option<u64>,
    /// Further fields: names in lower case, values without CR, LF or NUL.
    pub fields: &'a [(&'a str, &'a [u8])],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_with_common_lines_is_that_without() {
        let whole = FieldBlock {
            bytes: b"Content-Length: 5\r\nA: b\r\nETag: \"e\"\r\nVary: c\r\n",
            length_end: 19,
            shared_start: 25,
            ..FieldBlock::default()
        };
        let split = FieldBlock {
            bytes: b"Content-Length: 5\r\nETag: \"e\"\r\n",
            length_end: 19,
            shared_start: 19,
            common: b"A: b\r\nVary: c\r\n",
            common_shared_start: 6,
        };
        for part in [
            ReadyPart::Whole,
            ReadyPart::WithoutLength,
            ReadyPart::Shared,
        ] {
            assert_eq!(
                split.part(part).concat(),
                whole.part(part).concat(),
                "{part:?}"
            );
        }
        assert_eq!(
            split.part(ReadyPart::Shared).concat(),
            b"ETag: \"e\"\r\nVary: c\r\n"
        );
    }
}
