//! Which paths a pattern protects.
//!
//! A file is found under several paths: a page with its suffix and without, a folder by its index
//! page, a text by its compressed copy. A pattern that names one of them protects all.

use std::collections::BTreeSet;

use super::matcher::{Matcher, RuleInput};
use super::pattern::{Pattern, Scheme, Syntax};
use crate::routing::Routing;

/// Paths given by patterns.
#[derive(Clone, Debug)]
pub struct Paths {
    matcher: Matcher,
    forms: Forms,
}

impl Paths {
    /// The paths of these patterns, in these forms.
    #[must_use]
    pub fn new(patterns: &[Pattern], forms: Forms) -> Self {
        let sources = patterns
            .iter()
            .map(|pattern| (pattern, [].as_slice(), [].as_slice()));
        Self {
            matcher: Matcher::new(sources, true),
            forms,
        }
    }

    /// Whether one of them is this path, in any of its forms.
    #[must_use]
    pub fn cover(&self, path: &[u8]) -> bool {
        self.cover_in(&self.forms, path)
    }

    /// Whether one of them is this path in any of these forms, instead of its own.
    #[must_use]
    pub fn cover_in(&self, forms: &Forms, path: &[u8]) -> bool {
        !matching(&self.matcher, forms, path).is_empty()
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
pub(super) fn matching(matcher: &Matcher, forms: &Forms, path: &[u8]) -> BTreeSet<u32> {
    let mut found = Vec::new();
    for form in forms.of(path) {
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

/// Under which paths the same content may be found, where files answer paths as some [`Routing`] says.
#[derive(Clone, Debug)]
pub struct Forms {
    /// What paths of an index page have after that of its folder.
    indexes: BTreeSet<Vec<u8>>,
    /// What the path of a page may have at its end.
    pages: BTreeSet<Vec<u8>>,
}

impl Forms {
    /// Those of all these routings together, at least: a page called `index` counts as one of its folder,
    /// whatever the index names are.
    #[must_use]
    pub fn new<'r>(routings: impl IntoIterator<Item = &'r Routing>) -> Self {
        let mut pages = BTreeSet::from([b".html".to_vec(), b".htm".to_vec()]);
        let mut names = BTreeSet::from([b"index.html".to_vec(), b"_index.html".to_vec()]);
        for routing in routings {
            pages.extend(routing.page_suffixes.iter().cloned());
            names.extend(routing.index_names.iter().cloned());
        }
        let mut indexes = BTreeSet::from([b"/".to_vec()]);
        for name in &names {
            indexes.insert([b"/", name.as_slice()].concat());
            let stems = pages
                .iter()
                .filter_map(|page| name.strip_suffix(page.as_slice()));
            for stem in stems.filter(|stem| !stem.is_empty()) {
                indexes.insert([b"/", stem].concat());
                indexes.insert([b"/", stem, b"/"].concat());
            }
        }
        Self { indexes, pages }
    }

    /// The paths under which the content of a path may be found, at least.
    fn of(&self, path: &[u8]) -> BTreeSet<Vec<u8>> {
        let mut suffixes = [".gz", ".br", ".zst"].into_iter();
        let plain = suffixes.find_map(|suffix| path.strip_suffix(suffix.as_bytes()));
        let plain = plain.unwrap_or(path);
        let own = plain.strip_suffix(b"/").unwrap_or(plain);
        // What it names may be a page, or an index page, of each of these; its own name may be that of a folder
        // which has one.
        let ends = self.indexes.iter().chain(&self.pages);
        let shorter = ends.filter_map(|end| own.strip_suffix(end.as_slice()));
        let mut forms = BTreeSet::from([path.to_vec(), plain.to_vec()]);
        for base in shorter.chain([own]) {
            let with = |suffix: &Vec<u8>| [base, suffix.as_slice()].concat();
            forms.extend(self.indexes.iter().map(with));
            if !base.is_empty() {
                forms.insert(base.to_vec());
                forms.extend(self.pages.iter().map(with));
            }
        }
        forms
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Compat;

    /// Folders that are called like a page, or like an index page without its suffix.
    #[test]
    fn index_pages_of_folders_with_names_of_pages_are_protected() {
        for (pattern, path) in [
            ("/book/index/index.html", "/book/index/"),
            ("/book/index/index.html", "/book/index/index"),
            ("/book/index/index", "/book/index/index.html"),
            ("/a.htm/index.html", "/a.htm/"),
            ("/a.htm/index.html", "/a.htm/index"),
            ("/a.html/", "/a.html/index.html"),
        ] {
            let parsed = parse_path(pattern).expect("a pattern");
            let paths = Paths::new(&[parsed], Forms::new([&Routing::default()]));
            assert!(paths.cover(path.as_bytes()), "{pattern} covers {path}");
        }
        for (pattern, path) in [("/*/index.html", "/"), ("/docs/*/index.html", "/docs/")] {
            let parsed = parse_path(pattern).expect("a pattern");
            let paths = Paths::new(&[parsed], Forms::new([&Routing::default()]));
            assert!(!paths.cover(path.as_bytes()), "{pattern} leaves {path}");
        }
        let forms = Forms::new([&Routing::default()]);
        let count = forms.of("/index".repeat(600).as_bytes()).len();
        assert!(count <= 2 * 10 + 2, "{count}");
    }

    #[test]
    fn a_pattern_protects_every_form_of_its_paths() {
        let check = |pattern: &str, covered: &[&str], open: &[&str]| {
            let forms = Forms::new([&Routing::default()]);
            let paths = Paths::new(&[parse_path(pattern).expect("a pattern")], forms);
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
        // Nobody knows here which of them is a folder: its index page is protected, other files are not.
        check(
            "/index.html",
            &["/", "/index.html", "/index.html/", "/index.html/index"],
            &["/index.html/a", "/a"],
        );
    }

    /// Every file that a dialect or `--index` sends for a path has that path's protection, and the other
    /// way round.
    #[test]
    fn pages_and_indexes_of_a_routing_are_protected() {
        let kawipiko = Routing::new(Compat::Kawipiko);
        let with_index = Routing {
            index_names: vec![b"home.htm.html".to_vec(), b"start.cgi".to_vec()],
            ..Routing::default()
        };
        for routing in [&kawipiko, &with_index] {
            let mut folder: Vec<_> = [&b"/a"[..], b"/a/"].map(<[u8]>::to_vec).into();
            for name in &routing.index_names {
                folder.push([b"/a/", name.as_slice()].concat());
                folder.push([b"/a/", name.as_slice(), b".br"].concat());
                let mut pages = routing.page_suffixes.iter();
                let stem = pages.find_map(|page| name.strip_suffix(page.as_slice()));
                folder.extend(stem.map(|stem| [b"/a/", stem].concat()));
            }
            for page in &routing.page_suffixes {
                folder.push([b"/a", page.as_slice()].concat());
                folder.push([b"/a", page.as_slice(), b".gz"].concat());
            }
            for pattern in &folder {
                let text = String::from_utf8_lossy(pattern);
                let parsed = parse_path(&text).expect("a pattern");
                let paths = Paths::new(&[parsed], Forms::new([routing]));
                // Nothing is found under the name of another's compressed copy.
                let is_copy = text.ends_with(".br") || text.ends_with(".gz");
                for path in folder.iter().filter(|path| !is_copy || *path == pattern) {
                    let shown = String::from_utf8_lossy(path);
                    assert!(paths.cover(path), "{text} covers {shown}");
                }
                assert!(!paths.cover(b"/a/b") && !paths.cover(b"/") && !paths.cover(b"/a.pdf"));
            }
        }
        // An index page, and the page of something else.
        let page = parse_path("/a/home").expect("a pattern");
        let paths = Paths::new(&[page], Forms::new([&with_index]));
        assert!(paths.cover(b"/a/home.htm") && paths.cover(b"/a/home/home.htm.html"));
        let only = Paths::new(
            &[parse_path("/a").expect("a pattern")],
            Forms::new([&with_index]),
        );
        assert!(
            !only.cover(b"/a.txt"),
            "another file, without kawipiko's suffixes"
        );
    }
}
