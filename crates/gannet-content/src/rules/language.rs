//! Languages that clients prefer, and rules for some of them.
//!
//! Netlify looks at the first language of a request alone, whatever weight it has; browsers list them
//! in the order of their users' preference.

use super::limits::LANGUAGE_LEN_MAX;

/// The first language tag of a line of `Accept-Language` (RFC 9110 section 12.5.4); empty if it has
/// none.
#[must_use]
pub fn first_language(line: &[u8]) -> &[u8] {
    let end = line.iter().position(|byte| matches!(byte, b',' | b';'));
    let first = line[..end.unwrap_or(line.len())].trim_ascii();
    match first.len() <= LANGUAGE_LEN_MAX {
        true => first,
        false => b"",
    }
}

/// Whether a tag is in one of these ranges, which are in lower case (basic filtering, RFC 4647 section
/// 3.3.1): `en` has `en-GB`, too.
pub(super) fn is_in(tag: &[u8], ranges: &[Vec<u8>]) -> bool {
    ranges.iter().any(|range| {
        tag.get(..range.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(range))
            && matches!(tag.get(range.len()), None | Some(b'-'))
    })
}

/// Whether this is a language range of a rule, in lower case: letters, then parts of letters and digits
/// (RFC 4647 section 2.1).
pub(super) fn is_range(text: &[u8]) -> bool {
    let is_lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut parts = text.split(|byte| *byte == b'-');
    let first = parts.next().unwrap_or_default();
    let is_part =
        |part: &[u8]| (1..=8).contains(&part.len()) && part.iter().all(|it| is_lower(*it));
    text.len() <= LANGUAGE_LEN_MAX
        && is_part(first)
        && first.iter().all(u8::is_ascii_lowercase)
        && parts.all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_language_counts() {
        let check = |line: &str, expect: &str| {
            assert_eq!(first_language(line.as_bytes()), expect.as_bytes(), "{line}");
        };
        check("de", "de");
        check(" de-AT ;q=0.5, en", "de-AT");
        check("en;q=0.1,de;q=0.9", "en");
        check("", "");
        check(", de", "");
        check(&"x".repeat(LANGUAGE_LEN_MAX + 1), "");
    }

    #[test]
    fn a_range_has_its_regions() {
        let ranges = [b"de".to_vec(), b"zh-hant".to_vec()];
        let check = |tag: &str, expect| assert_eq!(is_in(tag.as_bytes(), &ranges), expect, "{tag}");
        check("de", true);
        check("DE-at", true);
        check("den", false);
        check("d", false);
        check("zh-Hant-TW", true);
        check("zh", false);
        check("*", false);
        check("", false);
        let check = |text: &str, expect| assert_eq!(is_range(text.as_bytes()), expect, "{text}");
        check("de", true);
        check("de-1996", true);
        check("zh-hant-tw", true);
        check("", false);
        check("DE", false);
        check("1de", false);
        check("de-", false);
        check("de_at", false);
        check("*", false);
        check("abcdefghi", false);
        check(&["abcdefgh"; 5].join("-"), false);
    }
}
