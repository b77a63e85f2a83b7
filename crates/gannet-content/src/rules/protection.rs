//! Which paths a pattern protects.
//!
//! A file is found under several paths: a page with its suffix and without, a folder by its index
//! page, a text by its compressed copy, which may be the only file there is. A pattern that names one of
//! them protects all.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::matcher::{Matcher, RuleInput, captures};
use super::pattern::{Pattern, Scheme, Syntax};
use super::steps::{OutOfSteps, Steps};
use crate::directory::sidecars::SIDECARS;
use crate::routing::Routing;

/// Paths given by patterns.
#[derive(Clone, Debug)]
pub struct Paths {
    matcher: Matcher,
    ignores_trailing_slash: bool,
    /// Each with the number of the one that it stems from.
    patterns: Vec<(Pattern, u32)>,
    forms: Forms,
}

impl Paths {
    /// The paths of these patterns, in these forms.
    #[must_use]
    pub fn new(patterns: &[Pattern], forms: Forms) -> Self {
        Self::numbered((0..).zip(patterns), true, forms)
    }

    /// The paths of these patterns, each with its number.
    pub(super) fn numbered<'p>(
        patterns: impl IntoIterator<Item = (u32, &'p Pattern)>,
        ignores_trailing_slash: bool,
        forms: Forms,
    ) -> Self {
        let mut all = Vec::new();
        for (number, pattern) in patterns {
            all.push((pattern.clone(), number));
            let suffixes = SIDECARS.iter().map(|it| it.suffix);
            let same = suffixes.filter_map(|it| forms.of_copies(pattern, it));
            all.extend(same.map(|same| (same, number)));
        }
        let sources = all.iter().map(|(it, _)| (it, [].as_slice()));
        Self {
            matcher: Matcher::new(sources, ignores_trailing_slash),
            ignores_trailing_slash,
            patterns: all,
            forms,
        }
    }

    /// The steps that it took to index the patterns.
    pub(super) fn read_steps(&self) -> u32 {
        self.matcher.read_steps()
    }

    /// Whether one of them is this path, in any of its forms.
    #[must_use]
    pub fn cover(&self, path: &[u8]) -> bool {
        self.cover_in(&self.forms, path)
    }

    /// Whether one of them is this path in any of these forms, instead of its own. Out of steps it
    /// is taken to be.
    #[must_use]
    pub fn cover_in(&self, forms: &Forms, path: &[u8]) -> bool {
        let found = Steps::default().evaluate(|steps| self.matching_in(forms, path, steps));
        found.map_or(true, |found| !found.is_empty())
    }

    /// The numbers of the patterns that match a path in any of its forms.
    pub(super) fn matching(&self, path: &[u8], steps: &Steps) -> Result<BTreeSet<u32>, OutOfSteps> {
        self.matching_in(&self.forms, path, steps)
    }

    fn matching_in(
        &self,
        forms: &Forms,
        path: &[u8],
        steps: &Steps,
    ) -> Result<BTreeSet<u32>, OutOfSteps> {
        let mut found = BTreeSet::new();
        for form in forms.of(path) {
            let input = RuleInput {
                prefix: b"",
                scheme: Scheme::Https,
                host: b"",
                path: &form,
                query: None,
                language: b"",
            };
            let slash = self.ignores_trailing_slash;
            self.matcher.candidates(&input, steps, |index| {
                let (pattern, number) = &self.patterns[index as usize];
                steps.at(*number);
                let matched = captures(pattern, &[], (&input, b""), slash, steps)?;
                found.extend(matched.map(|_| *number));
                Ok(ControlFlow::<()>::Continue(()))
            })?;
        }
        Ok(found)
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

/// Under which paths the same content may be found, where files answer paths as some [`Routing`] says.
#[derive(Clone, Debug)]
pub struct Forms {
    /// What paths of an index page have after that of its folder.
    indexes: BTreeSet<Vec<u8>>,
    /// What the path of a page may have at its end.
    pages: BTreeSet<Vec<u8>>,
    /// A compressed copy may be all that there is of a file.
    are_copies_alone: bool,
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
        Self {
            indexes,
            pages,
            are_copies_alone: false,
        }
    }

    /// The same where compressed copies may answer for files that do not exist: then a pattern of copies
    /// with any name, such as `/*.gz`, is one of all that may be stored so. Elsewhere it is one of files to
    /// download, beside others.
    #[must_use]
    pub fn with_copies_alone(self, are_copies_alone: bool) -> Self {
        Self {
            are_copies_alone: self.are_copies_alone || are_copies_alone,
            ..self
        }
    }

    /// The pattern of what these copies hold, if those of a pattern have this suffix.
    fn of_copies(&self, pattern: &Pattern, suffix: &[u8]) -> Option<Pattern> {
        let (shorter, is_name) = pattern.without_suffix(suffix)?;
        (is_name || self.are_copies_alone).then_some(shorter)
    }

    /// The paths under which the content of a path may be found, at least; except for those of its
    /// compressed copies, for which patterns stand themselves: see [`of_copies`](Self::of_copies).
    fn of(&self, path: &[u8]) -> BTreeSet<Vec<u8>> {
        let mut forms = BTreeSet::from([path.to_vec()]);
        self.add_pages(path, &mut forms);
        let mut suffixes = SIDECARS.iter().map(|it| it.suffix);
        if let Some(plain) = suffixes.find_map(|suffix| path.strip_suffix(suffix)) {
            forms.insert(plain.to_vec());
            self.add_pages(plain, &mut forms);
        }
        forms
    }

    /// Adds those under which a page or an index page of this path may be found.
    fn add_pages(&self, path: &[u8], forms: &mut BTreeSet<Vec<u8>>) {
        let own = path.strip_suffix(b"/").unwrap_or(path);
        // What it names may be a page, or an index page, of each of these; its own name may be that of a folder
        // which has one.
        let ends = self.indexes.iter().chain(&self.pages);
        let shorter = ends.filter_map(|end| own.strip_suffix(end.as_slice()));
        for base in shorter.chain([own]) {
            let with = |suffix: &Vec<u8>| [base, suffix.as_slice()].concat();
            forms.extend(self.indexes.iter().map(with));
            if !base.is_empty() {
                forms.insert(base.to_vec());
                forms.extend(self.pages.iter().map(with));
            }
        }
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
            // Called like a compressed copy.
            ("/a.gz.html", "/a.gz"),
            ("/a.gz", "/a.gz.html"),
            ("/v1.br/index.html", "/v1.br"),
            ("/v1.br/", "/v1.br/index.html"),
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
        // It is unknown here which of them is a folder: its index page is protected, other files are not.
        check(
            "/index.html",
            &["/", "/index.html", "/index.html/", "/index.html/index"],
            &["/index.html/a", "/a"],
        );
        let copies = ["/a.js", "/a.js.gz", "/a.js.br"];
        check("/a.js.gz", &copies, &["/a", "/a.json", "/"]);
        check("/a.js.gz/", &copies, &["/a", "/a.json", "/"]);
        check("/a.html.br", &of_page, &["/a/b", "/b"]);
        check("/a/index.html.zst", &of_page, &["/a/b", "/index.html"]);
        check("/*/a.js.gz", &["/x/a.js"], &["/x/b.js", "/a.js"]);
        check("/.gz", &["/.gz"], &["/", "/a"]);
        check("/*/.gz", &["/a/.gz"], &["/", "/a", "/a/"]);
    }

    /// `/*.gz` means downloads, unless such files may be all that there is of others.
    #[test]
    fn a_pattern_of_copies_with_any_name_counts_where_they_may_be_alone() {
        for (pattern, copy, original, other) in [
            ("/*.gz", "/a.js.gz", "/a.js", None),
            ("/in/*.br", "/in/a/b.br", "/in/a/b", Some("/a.js")),
            (
                "/in/:name.gz",
                "/in/a.js.gz",
                "/in/a.js",
                Some("/in/a/b.js"),
            ),
            ("/*/:n.zst", "/a/v1.zst", "/a/v1", None),
        ] {
            for are_alone in [false, true] {
                let parsed = parse_path(pattern).expect("a pattern");
                let forms = Forms::new([&Routing::default()]).with_copies_alone(are_alone);
                let paths = Paths::new(&[parsed], forms);
                let covers = |path: &str| paths.cover(path.as_bytes());
                assert!(covers(copy), "{pattern}");
                assert_eq!(covers(original), are_alone, "{pattern}");
                assert!(!other.is_some_and(covers), "{pattern}");
            }
        }
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
                for path in &folder {
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
