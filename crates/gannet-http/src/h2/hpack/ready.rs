//! Ready blocks for HTTP/2: encoded from HTTP/1's lines, once, when a file is packed or cached.

use super::encoder::write_field;
use crate::binary::line::lines;
use crate::semantics::ready_fields::ReadyFields;
use crate::semantics::response::FieldBlock;

/// Encodes a block's own lines, cut at the same fields; common lines are skipped.
///
/// `None` if they are not lines `name: value CRLF`, if an offset is not at the beginning of a line,
/// or if the result is longer than 64 KiB; never for the result of
/// [`crate::semantics::ready_fields::RepresentationFields::render`].
#[must_use]
pub fn render(block: FieldBlock<'_>) -> Option<ReadyFields> {
    let (length_end, shared_start) = (block.length_end.into(), block.shared_start.into());
    let mut bytes = Vec::with_capacity(block.bytes.len());
    let mut render_to = |from: usize, to: usize| {
        write_lines(block.bytes.get(from..to)?, &mut bytes)?;
        u16::try_from(bytes.len()).ok()
    };
    let hpack_length_end = render_to(0, length_end)?;
    let hpack_shared_start = render_to(length_end, shared_start)?;
    render_to(shared_start, block.bytes.len())?;
    Some(ReadyFields {
        bytes,
        length_end: hpack_length_end,
        shared_start: hpack_shared_start,
    })
}

/// Appends the fields of lines in HTTP/1's form, as [`render`] does.
pub(crate) fn write_lines(block: &[u8], out: &mut Vec<u8>) -> Option<()> {
    lines(block, |name, value| write_field(name, value, out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h2::hpack::Decoder;
    use crate::semantics::field_names::write_title;
    use crate::semantics::ready_fields::RepresentationFields;
    use crate::semantics::response::ReadyPart;

    #[test]
    fn every_part_has_the_fields_of_its_lines() {
        let fields = RepresentationFields {
            content_length: 1234,
            content_type: Some(b"text/html;charset=utf-8"),
            entity_tag: Some(b"\"0123456789abcdef\""),
            last_modified: Some(784_111_777),
            vary: Some(b"accept-encoding"),
            further: &[("x-empty", b"")],
            ..Default::default()
        };
        let ready = fields.render().expect("fields that may be sent");
        let block = ready.as_block();
        let hpack = render(block).expect("lines");
        for (part, start) in [
            (ReadyPart::Whole, 0),
            (ReadyPart::WithoutLength, block.length_end),
            (ReadyPart::Shared, block.shared_start),
        ] {
            let mut lines = Vec::new();
            Decoder::new()
                .decode_each(&hpack.as_block().part(part).concat(), |name, value| {
                    let name = std::str::from_utf8(name).expect("a name of ours");
                    write_title(name, &mut lines);
                    lines.extend_from_slice(&[b": ", value, b"\r\n"].concat());
                })
                .expect("a block of ours");
            assert_eq!(lines, &block.bytes[usize::from(start)..], "{part:?}");
        }
        assert!(hpack.into_bytes().len() < block.bytes.len());
    }

    #[test]
    fn what_is_not_lines_is_refused() {
        let check = |bytes: &[u8], length_end, shared_start| {
            let block = FieldBlock {
                bytes,
                length_end,
                shared_start,
                ..FieldBlock::default()
            };
            render(block).is_some()
        };
        assert!(check(b"A: b\r\nC: d\r\n", 6, 6));
        assert!(!check(b"A: b\r\nC: d\r\n", 5, 6));
        assert!(!check(b"A: b\r\nC: d\r\n", 6, 5));
        assert!(!check(b"A: b\r\nC: d\r\n", 6, 13));
        assert!(!check(b"A: b", 0, 0));
        assert!(!check(b"a:b\r\n", 0, 0));
        assert!(!check(b"ab\r\n", 0, 0));
        assert!(!check(b"A: b\rc\r\n", 0, 0));
    }
}
