//! The lines of `_redirects` as kawipiko reads them: `source target status`, and nothing else.
//!
//! Its server checks the host first, which is never part of a file, the exact path before a
//! catch-all (`/old/*`), and a deeper catch-all before a shallower one, whatever the order of the
//! lines; `://*/old` is for any host. It sends the target unchanged as `location`, which may be relative to the requested path.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::SourceFile;
use super::lines::{Line, Wrong};
use super::pattern::{Pattern, Segment, Splat, Syntax};
use super::percent;
use super::redirects::{Problems, Redirect, at, parse_host_and_path, parse_status};
use super::target::Target;
use super::{Compat, Place};

/// Reads a line.
pub(super) fn parse(line: &Line<'_>, file: &SourceFile<'_>) -> Result<Redirect, Problems> {
    let tokens = line.tokens();
    let [source, target, status] = tokens.as_slice() else {
        let ending = if tokens.len() == 1 { "" } else { "s" };
        let found = format!("{} field{ending}", tokens.len());
        let column = tokens.get(3).map_or(1, |token| token.column);
        let wrong = Wrong::words(found, "exactly three: source, target, status");
        return Err((column, wrong));
    };
    let (pattern, base) = parse_source(source.text, file).map_err(at(source))?;
    let is_of_any_host = source.text.starts_with(ANY_HOST);
    let is_relative = !target.text.starts_with('/') && scheme_len(target.text).is_none();
    if is_relative && pattern.splat.is_some() {
        let wrong = Wrong::new(target.text, "a target that starts with '/', or a URL");
        let wrong = wrong.help("below a catch-all, a relative one leads elsewhere at each depth");
        return Err((target.column, wrong));
    }
    let location = match is_relative {
        true => Cow::Owned(resolve(&base, target.text)),
        false => Cow::Borrowed(target.text),
    };
    let target = Target::parse(&location, None).map_err(at(target))?;
    let (status, _) = parse_status(status.text, Compat::Kawipiko).map_err(at(status))?;
    // Files have no host there, and rules with a host precede those without.
    let is_forced = pattern.host.is_some() || is_of_any_host;
    Ok(Redirect {
        place: Place::default(),
        pattern,
        query: Vec::new(),
        languages: Vec::new(),
        target,
        status,
        is_forced,
    })
}

/// Sorts rules into the order in which they are matched.
pub(super) fn sort(rules: &mut [Redirect]) {
    rules.sort_by_key(|rule| {
        let pattern = &rule.pattern;
        let has_splat = pattern.splat.is_some();
        let depth = if has_splat { pattern.head.len() } else { 0 };
        let of_host = (!rule.is_forced, pattern.host.is_none());
        (of_host, has_splat, Reverse(depth))
    });
}

/// The source, and the path against which its target is resolved.
fn parse_source(text: &str, file: &SourceFile<'_>) -> Result<(Pattern, String), Wrong> {
    let folder = file.folder();
    if let Some(relative) = text.strip_prefix("./") {
        // The folder is a file name, not rule text: it is taken literally.
        let mut pattern = catch_all(Pattern::parse_path(&format!("/{relative}"), SYNTAX)?);
        let names = folder.split('/').filter(|name| !name.is_empty());
        let head = names.map(|name| Segment::Literal(name.as_bytes().to_vec()));
        pattern.head = head.chain(pattern.head).collect();
        let mut base = Vec::new();
        for byte in folder.bytes() {
            percent::encode(byte, percent::is_path_byte, &mut base);
        }
        let base = String::from_utf8_lossy(&base);
        return Ok((pattern, format!("{base}{relative}")));
    }
    if folder != "/" {
        let wrong = Wrong::new(text, "a source relative to its folder, './...'");
        return Err(wrong.help("paths and hosts can be named in the file at the root"));
    }
    if text.starts_with('/') && !text.starts_with("//") {
        return Ok((catch_all(Pattern::parse_path(text, SYNTAX)?), text.into()));
    }
    if let Some(path) = text.strip_prefix(ANY_HOST).filter(|it| it.starts_with('/')) {
        return Ok((catch_all(Pattern::parse_path(path, SYNTAX)?), path.into()));
    }
    let rest = ["://", "http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    let Some(rest) = rest else {
        return Err(Wrong::new(
            text,
            "a source: '/...', './...', '://host/...', 'http://host/...' or 'https://host/...'",
        ));
    };
    // The scheme makes no difference in kawipiko, so it makes none here.
    let pattern = catch_all(parse_host_and_path(text, rest, SYNTAX)?);
    let base = rest.find('/').map_or("/", |slash| &rest[slash..]);
    Ok((pattern, base.into()))
}

/// What the source of a rule for any host starts with.
const ANY_HOST: &str = "://*";

const SYNTAX: Syntax = Syntax {
    has_wildcards: false,
    has_inner_placeholders: false,
    ignores_trailing_slash: false,
};

/// A star is special only as the whole last segment.
fn catch_all(mut pattern: Pattern) -> Pattern {
    if pattern.head.last() == Some(&Segment::Literal(b"*".to_vec())) {
        pattern.head.pop();
        pattern.splat = Some(Splat::default());
    }
    pattern
}

/// The length of the scheme that a reference starts with (RFC 3986 section 3.1).
fn scheme_len(reference: &str) -> Option<usize> {
    let end = reference.find(['/', '?', '#', ':'])?;
    (reference[end..].starts_with(':') && end > 0).then_some(end)
}

/// The path that a relative reference denotes at `base` (RFC 3986 section 5.2). It has neither
/// scheme nor host and does not start with a slash.
fn resolve(base: &str, reference: &str) -> String {
    let path_len = reference.find(['?', '#']).unwrap_or(reference.len());
    let (path, rest) = reference.split_at(path_len);
    if path.is_empty() {
        return format!("{base}{rest}");
    }
    let folder = base.rfind('/').map_or("", |slash| &base[..slash]);
    let joined = format!("{folder}/{path}");
    let mut segments: Vec<&str> = Vec::new();
    let mut parts = joined.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        match part {
            "." => {}
            ".." => {
                segments.pop();
            }
            part => segments.push(part),
        }
        if matches!(part, "." | "..") && parts.peek().is_none() {
            segments.push("");
        }
    }
    format!("/{}{rest}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_at_the_path_that_sends_them() {
        for (reference, expect) in [
            ("x", "/docs/x"),
            ("./x?q#f", "/docs/x?q#f"),
            ("../x", "/x"),
            ("../../x", "/x"),
            (".", "/docs/"),
            ("..", "/"),
            ("./a/../b/.", "/docs/b/"),
            ("a//b", "/docs/a//b"),
            ("?q", "/docs/old?q"),
            ("#f", "/docs/old#f"),
            ("x?a=/../b", "/docs/x?a=/../b"),
        ] {
            assert_eq!(resolve("/docs/old", reference), expect, "{reference}");
        }
        assert_eq!(resolve("/", "x"), "/x");
    }

    #[test]
    fn a_scheme_ends_before_the_path() {
        assert_eq!(scheme_len("mailto:a@h.example"), Some(6));
        assert_eq!(scheme_len("./a:b"), None);
        assert_eq!(scheme_len("x?a:b"), None);
        assert_eq!(scheme_len(":x"), None);
        assert_eq!(scheme_len("x"), None);
    }
}
