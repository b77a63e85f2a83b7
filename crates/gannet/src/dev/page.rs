//! Puts the script of `gannet dev` into a page.

use super::limits::PLACE_MAX;

/// Where the script belongs in a page: as the first element of its head, so that it runs even if
/// the rest of the page is broken, and changes neither the page's mode nor its structure. That is
/// behind the doctype, comments, and the tags `<html>` and `<head>`, as far as the page has them.
///
/// `None` for a page in an encoding of 16 bits, and for one that does not get to its head soon.
pub(super) fn place(page: &[u8]) -> Option<usize> {
    if page.starts_with(b"\xff\xfe") || page.starts_with(b"\xfe\xff") {
        return None;
    }
    let page = &page[..page.len().min(PLACE_MAX)];
    let mut at = if page.starts_with(b"\xef\xbb\xbf") {
        3
    } else {
        0
    };
    loop {
        let rest = &page[at..];
        let blank = rest
            .iter()
            .take_while(|it| it.is_ascii_whitespace())
            .count();
        let next = &rest[blank..];
        let len = if next.starts_with(b"<!--") {
            find(next, b"-->")? + 3
        } else if next.starts_with(b"<!") || next.starts_with(b"<?") {
            find(next, b">")? + 1
        } else if is_tag(next, b"html") {
            tag_len(next)?
        } else if is_tag(next, b"head") {
            return Some(at + blank + tag_len(next)?);
        } else {
            return Some(at);
        };
        at += blank + len;
    }
}

/// Whether a start tag of this name begins here.
fn is_tag(text: &[u8], name: &[u8]) -> bool {
    let Some(rest) = text.strip_prefix(b"<") else {
        return false;
    };
    let Some((found, rest)) = rest.split_at_checked(name.len()) else {
        return false;
    };
    let ends = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b'>' | b'/');
    found.eq_ignore_ascii_case(name) && rest.first().is_some_and(ends)
}

/// The length of a tag. A `>` in a quoted value does not end it.
fn tag_len(tag: &[u8]) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in tag.iter().enumerate() {
        match (quote, *byte) {
            (None, b'>') => return Some(at + 1),
            (None, b'"' | b'\'') => quote = Some(*byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    None
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|it| it == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `|` marks the place.
    fn check(page: &str) {
        let bare = page.replacen('|', "", 1);
        assert_eq!(place(bare.as_bytes()), page.find('|'), "{page}");
    }

    #[test]
    fn the_script_is_the_first_element_of_the_head() {
        check("<!doctype html>|<title>a</title>");
        check("<!DOCTYPE html>\n<html lang=\"en\">\n<head>|\n<meta charset=utf-8>");
        check("\u{feff}<!doctype html><html><HEAD data-a='>'>|<title>");
        check("<!-- <head> -->\n<html data-b=\"'>\"><!-- x -->|<body>");
        check("|plain text");
        check("|");
        check("<?xml version='1.0'?><html>|\n<header>");
        check("<html><!-- no end");
        check("<html lang=en");
        assert_eq!(place(b"\xff\xfe<\0h\0"), None);
        assert_eq!(place(" ".repeat(PLACE_MAX + 9).as_bytes()), Some(0));
    }
}
