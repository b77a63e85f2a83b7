//! A response as passed to a protocol machine, before it has a wire form.

pub use super::status::Status;

/// Fields of a selected representation, rendered ahead of time: at pack time in an archive, in
/// directory mode when a file enters the cache.
///
/// A block is the concatenation of field lines in a fixed order, cut by two offsets:
///
/// ```text
/// 0            length_end              shared_start              len
/// | content-length | content-type, content-encoding, ... | etag, last-modified, vary, ... |
/// ```
///
/// A 200 carries all of it; a 206 with one range leaves out the first part; a 304, or a 206 with
/// several ranges, carries only the last (RFC 9110 sections 15.3.7 and 15.4.5). Invariant:
/// `length_end <= shared_start <= bytes.len()`.
///
/// Lines that many blocks have in common may be stored separately, once: those of `common` belong
/// after `content-length` (up to `common_shared_start`) and after all others (from there on). A
/// block then contains only its length and its entity tag, and the lines on the wire are the same,
/// in the same order. Invariant: `common_shared_start <= common.len()`.
///
/// `hpack` is the same block in HTTP/2's form, in the same order, with its own two offsets, made by
/// [`crate::h2::hpack::ready::render`]. Without it the HTTP/2 machine encodes the lines for every
/// response.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ReadyBlock<'a> {
    /// For HTTP/1: lines `name: value CRLF`. No status line, date or connection field, no
    /// closing empty line.
    pub bytes: &'a [u8],
    /// End of the `content-length` line.
    pub length_end: u16,
    /// Start of the fields that a 304 carries too.
    pub shared_start: u16,
    /// Lines shared with other blocks; empty if all are in `bytes`.
    pub common: &'a [u8],
    /// Start of the common lines that a 304 carries too.
    pub common_shared_start: u16,
    /// The same fields for HTTP/2, if they were rendered.
    pub hpack: Option<HpackBlock<'a>>,
}

/// A [`ReadyBlock`]'s fields as a stateless HPACK field block (RFC 7541).
///
/// Only indexed fields of the static table and literals without indexing: the block neither reads
/// nor changes a dynamic table, so the same bytes have the same meaning at any place of any
/// connection. Invariant: `length_end <= shared_start <= bytes.len()`, both at the start of a
/// representation; `common` is as in a [`ReadyBlock`].
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HpackBlock<'a> {
    /// The encoded fields. No `:status`, no `date`, no table size update.
    pub bytes: &'a [u8],
    /// End of `content-length`.
    pub length_end: u16,
    /// Start of the fields that a 304 carries too.
    pub shared_start: u16,
    /// Fields shared with other blocks.
    pub common: &'a [u8],
    /// Start of the common fields that a 304 carries too.
    pub common_shared_start: u16,
}

impl<'a> ReadyBlock<'a> {
    /// The lines that a response with this part carries: the pieces one after the other.
    #[inline]
    #[must_use]
    pub fn part(&self, part: ReadyPart) -> [&'a [u8]; 4] {
        let cuts = (self.length_end, self.shared_start, self.common_shared_start);
        pieces(self.bytes, self.common, cuts, part)
    }
}

impl<'a> HpackBlock<'a> {
    /// The encoded fields that a response with this part carries: the pieces one after the other.
    #[inline]
    #[must_use]
    pub fn part(&self, part: ReadyPart) -> [&'a [u8]; 4] {
        let cuts = (self.length_end, self.shared_start, self.common_shared_start);
        pieces(self.bytes, self.common, cuts, part)
    }
}

/// The pieces of a block with the cuts `length_end`, `shared_start` and `common_shared_start`.
#[inline]
fn pieces<'a>(
    own: &'a [u8],
    common: &'a [u8],
    (length_end, shared_start, common_shared_start): (u16, u16, u16),
    part: ReadyPart,
) -> [&'a [u8]; 4] {
    let from = |bytes: &'a [u8], start: u16| bytes.get(usize::from(start)..).unwrap_or_default();
    if part == ReadyPart::Shared {
        let (own, common) = (from(own, shared_start), from(common, common_shared_start));
        return [own, common, &[], &[]];
    }
    let is_whole = part == ReadyPart::Whole;
    if common.is_empty() {
        let own = if is_whole { own } else { from(own, length_end) };
        return [own, &[], &[], &[]];
    }
    let (length, own) = own.split_at_checked(length_end.into()).unwrap_or_default();
    let cut = common.split_at_checked(common_shared_start.into());
    let (before, behind) = cut.unwrap_or_default();
    let length = if is_whole { length } else { &[] };
    [length, before, own, behind]
}

/// Which part of a [`ReadyBlock`] a response carries.
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
        let whole = ReadyBlock {
            bytes: b"content-length: 5\r\na: b\r\netag: \"e\"\r\nvary: c\r\n",
            length_end: 19,
            shared_start: 25,
            ..ReadyBlock::default()
        };
        let split = ReadyBlock {
            bytes: b"content-length: 5\r\netag: \"e\"\r\n",
            length_end: 19,
            shared_start: 19,
            common: b"a: b\r\nvary: c\r\n",
            common_shared_start: 6,
            hpack: None,
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
            b"etag: \"e\"\r\nvary: c\r\n"
        );
    }
}
