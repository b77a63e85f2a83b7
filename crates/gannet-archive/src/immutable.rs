//! Whether a field block says that its content never changes (RFC 8246 section 2).

use gannet_http::semantics::ready_fields::block_lines;
use gannet_http::semantics::response::FieldBlock;

/// Whether `cache-control` of an HTTP/1 block has the directive `immutable`. In a quoted argument
/// of another directive the word means nothing.
pub(crate) fn is_immutable(block: FieldBlock<'_>) -> bool {
    let lines = block_lines(block.bytes).chain(block_lines(block.common));
    lines
        .filter(|(name, ..)| name.eq_ignore_ascii_case(b"cache-control"))
        .any(|(_, value, _)| says_immutable(value))
}

/// Whether a value of `cache-control` has the directive `immutable` (RFC 8246).
#[must_use]
pub fn says_immutable(value: &[u8]) -> bool {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let mut directives = value.split(|byte| {
        let is_end = *byte == b',' && !is_quoted;
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_quoted,
            b'"' => is_quoted = !is_quoted,
            _ => {}
        }
        is_end
    });
    directives.any(|one| one.trim_ascii().eq_ignore_ascii_case(b"immutable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directive_is_found_wherever_it_may_stand() {
        let check = |lines: &str, expect: bool| {
            let (own, common) = lines.split_once('|').unwrap_or((lines, ""));
            let block = FieldBlock {
                bytes: own.as_bytes(),
                common: common.as_bytes(),
                ..FieldBlock::default()
            };
            assert_eq!(is_immutable(block), expect, "{lines:?}");
        };
        check("Content-Length: 1\r\n", false);
        check("Cache-Control: max-age=31536000, immutable\r\n", true);
        check("Content-Length: 1\r\n|cache-control: immutable\r\n", true);
        check("Cache-Control: Immutable ,public\r\n", true);
        check(
            "Cache-Control: public\r\nCache-Control: immutable\r\n",
            true,
        );
        check("Cache-Control: immutable=1, mutable\r\n", false);
        check("x-cache-control: immutable\r\n", false);
        check("Cache-Control: private=\"a, immutable, b\"\r\n", false);
        check(
            "Cache-Control: private=\"\\\", immutable\", max-age=1\r\n",
            false,
        );
        check("Cache-Control: private=\"a\", immutable\r\n", true);
        check("Cache-Control: x=a\\, immutable\r\n", true);
    }
}
