//! Which paths a pattern protects.
//!
//! A file is found under several paths: a page with its suffix and without, a folder by its index
//! page, a text by its compressed copy. A pattern that names one of them protects all.

use std::collections::BTreeSet;

use super::matcher::{Matcher, RuleInput};
use super::pattern::{Pattern, Scheme, Syntax};

/// Paths given by patterns.
#[derive(Clone, Debug)]
pub struct Paths(Matcher);

impl Paths {
    /// The paths of these patterns.
    #[must_use]
    pub fn new(patterns: &[Pattern]) -> Self {
        let sources = patterns
            .iter()
            .map(|pattern| (pattern, [].as_slice(), [].as_slice()));
        Self(Matcher::new(sources, true))
    }

    /// Whether one of them is this path, in any of its forms.
    #[must_use]
    pub fn cover(&self, path: &[u8]) -> bool {
        !matching(&self.0, path).is_empty()
    }
}

/// Parses a pattern as in `_headers`: `/staging/*`.
///
/// # Errors
/// What is wrong with it.
pub fn parse_path(text: &str) -> Result<Pattern, String> {
    let syntax = Syntax {
        has_wildcards: true,
        has_inner_placeholders: false,
        ignores_trailing_slash: true,
    };
    let wrong = |found: &str, expected: &str| format!("found {found}, expected {expected}");
    Pattern::parse_path(text, syntax).map_err(|it| wrong(&it.found, &it.expected))
}

/// The positions of the patterns that match a path in any of its forms.
pub(super) fn matching(matcher: &Matcher, path: &[u8]) -> BTreeSet<u32> {
    let mut found = Vec::new();
    for form in forms(path) {
        let input = RuleInput {
            scheme: Scheme::Https,
            host: b"",
            path: &form,
            query: None,
            language: b"",
        };
        matcher.all(&input, &mut found);
    }
    found.into_iter().collect()
}

/// The paths under which the content of a path may be found, at least.
fn forms(path: &[u8]) -> BTreeSet<Vec<u8>> {
    let mut suffixes = [".gz", ".br", ".zst"].into_iter();
    let plain = suffixes.find_map(|suffix| path.strip_suffix(suffix.as_bytes()));
    let plain = plain.unwrap_or(path);
    // A page's own name may be that of an index page without its suffix, and so on.
    let mut base = plain;
    while let Some(shorter) = ENDS.iter().find_map(|end| base.strip_suffix(*end)) {
        base = shorter;
    }
    let with = |suffix: &&[u8]| [base, suffix].concat();
    let mut forms = BTreeSet::from([path.to_vec(), plain.to_vec()]);
    forms.extend(INDEXES.iter().map(with));
    if !base.is_empty() {
        forms.extend([&b""[..], b".html"].iter().map(with));
    }
    forms
}

/// What paths of the same page may have at their end.
const ENDS: [&[u8]; 5] = [b"/", b".html", b".htm", b"/index", b"/_index"];

/// What paths of an index page have after that of its folder.
const INDEXES: [&[u8]; 6] = [
    b"/",
    b"/index",
    b"/index/",
    b"/index.html",
    b"/_index",
    b"/_index.html",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_protects_every_form_of_its_paths() {
        let check = |pattern: &str, covered: &[&str], open: &[&str]| {
            let paths = Paths::new(&[parse_path(pattern).expect("a pattern")]);
            for path in covered {
                assert!(paths.cover(path.as_bytes()), "{pattern} covers {path}");
            }
            for path in open {
                assert!(!paths.cover(path.as_bytes()), "{pattern} leaves {path}");
            }
        };
        let of_page = [
            "/a",
            "/a/",
            "/a.html",
            "/a.html.gz",
            "/a/index.html",
            "/a/index.html.br",
            "/a/index",
            "/a/index/",
            "/a/_index.html",
            "/a.html/",
            "/a.htm",
        ];
        check("/a", &of_page, &["/", "/ab", "/a/b", "/b/a", "/index.html"]);
        check("/a/index", &of_page, &["/a/b", "/index"]);
        check("/a.html", &of_page, &["/a/b", "/b"]);
        check("/a/", &of_page, &["/a/b"]);
        check("/a/index.html", &of_page, &["/a/b", "/index.html"]);
        check("/a/*", &of_page, &["/", "/ab", "/b"]);
        check("/a/*", &["/a/b", "/a/b/c.js", "/a/b.zst"], &["/ab/c"]);
        check(
            "/",
            &["/", "/index", "/index/", "/index.html", "/index.html.zst"],
            &["/a", "/a/"],
        );
        check("/*", &["/", "/a", "/a/b.js"], &[]);
        check("/a.js", &["/a.js", "/a.js.gz"], &["/a", "/a.json"]);
    }
}
