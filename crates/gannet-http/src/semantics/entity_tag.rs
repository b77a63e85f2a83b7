//! Entity tags and their comparison (RFC 9110 sections 8.8.3 and 13.1).

/// An entity tag: `"abc"` (strong) or `W/"abc"` (weak).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EntityTag<'a> {
    /// Whether it is only a weak validator.
    pub is_weak: bool,
    /// The text between the quotes.
    pub opaque: &'a [u8],
}

/// How two entity tags are compared (RFC 9110 section 8.8.3.2).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Comparison {
    /// Equal only if neither is weak: `If-Match`, `If-Range`.
    Strong,
    /// Weakness is ignored: `If-None-Match`.
    Weak,
}

impl<'a> EntityTag<'a> {
    /// Reads a value that is one entity tag and nothing else.
    ///
    /// `None` if it is not: no quotes, bytes outside of `etagc`, or trailing bytes.
    #[must_use]
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (tag, rest) = Self::split(value)?;
        rest.is_empty().then_some(tag)
    }

    /// Appends the tag in its field value form.
    pub fn write(&self, out: &mut Vec<u8>) {
        if self.is_weak {
            out.extend_from_slice(b"W/");
        }
        out.push(b'"');
        out.extend_from_slice(self.opaque);
        out.push(b'"');
    }

    /// Whether both denote the same representation under this comparison.
    #[must_use]
    pub fn matches(&self, other: &EntityTag<'_>, how: Comparison) -> bool {
        let may_match = match how {
            Comparison::Strong => !self.is_weak && !other.is_weak,
            Comparison::Weak => true,
        };
        may_match && self.opaque == other.opaque
    }

    /// Parses the tag that `value` starts with; also returns the rest.
    fn split(value: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (is_weak, quoted) = match value.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, value),
        };
        let body = quoted.strip_prefix(b"\"")?;
        let end = body.iter().position(|&byte| !is_tag_byte(byte))?;
        let rest = body[end..].strip_prefix(b"\"")?;
        Some((
            Self {
                is_weak,
                opaque: &body[..end],
            },
            rest,
        ))
    }
}

/// Whether a list of entity tags, or `*`, matches the current representation.
///
/// `lines` are the values of an `If-Match` or `If-None-Match` field. `*` matches every
/// representation, tagged or not. A list is read up to its first malformed element; the rest
/// matches nothing, which is the safe side for both fields (412, or the whole content).
#[must_use]
pub fn list_matches<'a>(
    lines: impl Iterator<Item = &'a [u8]>,
    current: Option<EntityTag<'_>>,
    how: Comparison,
) -> bool {
    for line in lines {
        if line == b"*" {
            return true;
        }
        let Some(current) = current else { continue };
        let mut rest = line;
        loop {
            // RFC 9110 5.6.1.2: empty list elements are skipped.
            while let [b' ' | b'\t' | b',', tail @ ..] = rest {
                rest = tail;
            }
            let Some((tag, tail)) = EntityTag::split(rest) else {
                break;
            };
            let tail = tail.trim_ascii_start();
            if !matches!(tail.first(), None | Some(b',')) {
                break;
            }
            if tag.matches(&current, how) {
                return true;
            }
            rest = tail;
        }
    }
    false
}

/// `etagc` of RFC 9110 section 8.8.3: visible bytes except the quote, and bytes above 127.
fn is_tag_byte(byte: u8) -> bool {
    byte > b' ' && byte != b'"' && byte != 0x7f
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(text: &str) -> EntityTag<'_> {
        EntityTag::parse(text.as_bytes()).expect("a tag of the test")
    }

    #[test]
    fn the_comparison_table_of_the_rfc() {
        for (a, b, strong, weak) in [
            ("W/\"1\"", "W/\"1\"", false, true),
            ("W/\"1\"", "W/\"2\"", false, false),
            ("W/\"1\"", "\"1\"", false, true),
            ("\"1\"", "\"1\"", true, true),
        ] {
            assert_eq!(
                tag(a).matches(&tag(b), Comparison::Strong),
                strong,
                "{a} {b}"
            );
            assert_eq!(tag(a).matches(&tag(b), Comparison::Weak), weak, "{a} {b}");
        }
    }

    #[test]
    fn what_is_not_one_tag_is_refused() {
        for bad in [
            "", "abc", "\"", "\"a", "a\"", "w/\"a\"", "W/a", "\"a\"b", "\"a b\"", "\"a\" ",
        ] {
            assert_eq!(EntityTag::parse(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(tag("\"\"").opaque, b"");
        assert_eq!(tag("\"\u{e9}\"").opaque, "\u{e9}".as_bytes());
    }

    #[test]
    fn lists_are_searched() {
        let check = |lines: &[&str], current: &str, how, expect| {
            let lines_bytes = lines.iter().map(|line| line.as_bytes());
            assert_eq!(
                list_matches(lines_bytes, Some(tag(current)), how),
                expect,
                "{lines:?}"
            );
        };
        check(&["*"], "\"x\"", Comparison::Strong, true);
        check(&["\"a\", \"x\""], "\"x\"", Comparison::Strong, true);
        check(&["\"a\"", "\"x\""], "\"x\"", Comparison::Strong, true);
        check(&["\"a\" , ,W/\"x\""], "\"x\"", Comparison::Weak, true);
        check(&["\"a\",W/\"x\""], "\"x\"", Comparison::Strong, false);
        check(&["\"a,x\""], "\"x\"", Comparison::Weak, false);
        check(&["\"a, \"x\""], "\"x\"", Comparison::Weak, false);
        check(&["x"], "\"x\"", Comparison::Weak, false);
        check(&["\"a\" \"x\""], "\"x\"", Comparison::Weak, false);
        check(&["*, \"a\""], "\"x\"", Comparison::Weak, false);
        check(&[""], "\"x\"", Comparison::Weak, false);
        assert!(list_matches(
            [b"*".as_slice()].into_iter(),
            None,
            Comparison::Strong
        ));
        assert!(!list_matches(
            [b"\"a\"".as_slice()].into_iter(),
            None,
            Comparison::Weak
        ));
    }
}
