use super::*;
use crate::limits::NOT_FOUND_FOLDERS_MAX;
use crate::rules::Compat;

/// One index name, one suffix, one fallback, no redirect rules.
fn plain_routing() -> Routing {
    let mut routing = Routing {
        rules: None,
        ..Routing::default()
    };
    routing.fallbacks.retain(|one| one.name == b"404.html");
    routing
}

/// Everything on, dotfiles off.
const ALL: LookupOptions = LookupOptions {
    clean_urls: true,
    spa: false,
    listing: true,
    dotfiles: false,
};
const PLAIN: LookupOptions = LookupOptions {
    clean_urls: false,
    spa: false,
    listing: false,
    dotfiles: false,
};
const SPA: LookupOptions = LookupOptions { spa: true, ..PLAIN };

/// The content of a tree, by relative path.
const TREE: &[(&str, AtPath)] = &[
    ("", AtPath::Directory),
    ("index.html", AtPath::Regular),
    ("404.html", AtPath::Regular),
    ("a", AtPath::Regular),
    ("about.html", AtPath::Regular),
    ("both.html", AtPath::Regular),
    ("both", AtPath::Directory),
    ("docs", AtPath::Directory),
    ("docs/index.html", AtPath::Regular),
    ("docs/404.html", AtPath::Regular),
    ("docs/api.html", AtPath::Regular),
    ("docs/deep", AtPath::Directory),
    ("empty", AtPath::Directory),
    ("fifo", AtPath::Other),
    ("fifo.html", AtPath::Regular),
    ("secret", AtPath::Denied),
    ("locked", AtPath::Directory),
    ("locked/index.html", AtPath::Denied),
    ("broken", AtPath::Failed),
    ("link", AtPath::Escapes),
    ("page.html", AtPath::Directory),
    ("odd", AtPath::Directory),
    ("odd/index.html", AtPath::Directory),
    (".git", AtPath::Directory),
    (".git/config", AtPath::Regular),
    (".git/404.html", AtPath::Regular),
    (".well-known", AtPath::Directory),
    (".well-known/x", AtPath::Regular),
    (".well-known/.y", AtPath::Regular),
    ("d e?", AtPath::Directory),
];

fn at(tree: &[(&str, AtPath)], path: &[u8]) -> AtPath {
    let is_folder = |name: &&(&str, AtPath)| {
        let rest = name.0.as_bytes().strip_prefix(path);
        rest.is_some_and(|rest| rest.starts_with(b"/"))
    };
    match tree.iter().find(|(name, _)| name.as_bytes() == path) {
        Some(&(_, at_path)) => at_path,
        None if tree.iter().any(|name| is_folder(&name)) => AtPath::Directory,
        None => AtPath::Missing,
    }
}

/// Runs a lookup; returns the paths queried (folders with a slash) and the result in words.
fn run(tree: &[(&str, AtPath)], path: &[u8], options: LookupOptions) -> (Vec<Vec<u8>>, String) {
    finish(tree, Lookup::new(path, options, &Arc::new(plain_routing())))
}

fn finish(tree: &[(&str, AtPath)], mut lookup: Lookup) -> (Vec<Vec<u8>>, String) {
    let mut asked = Vec::new();
    loop {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let done = match lookup.step() {
            Step::Open(path) => {
                let at_path = at(tree, path);
                let slash: &[u8] = if lookup.wants_folder() { b"/" } else { b"" };
                asked.push([path, slash].concat());
                lookup.found(at_path);
                continue;
            }
            Step::Done(Found::File { path, status, .. }) => format!("{} {}", status.0, text(path)),
            Step::Done(Found::Redirect { location }) => format!("301 {}", text(location)),
            Step::Done(Found::Elsewhere {
                status, location, ..
            }) => format!("{} to {}", status.0, text(location)),
            Step::Done(Found::Listing { path }) => format!("list {}", text(path)),
            Step::Done(Found::Unclaimed) => "unclaimed".to_string(),
            Step::Done(Found::Missing(Status::NOT_FOUND)) => "missing".to_string(),
            Step::Done(Found::Missing(status)) => format!("{} without a page", status.0),
            Step::Done(Found::Forbidden) => "forbidden".to_string(),
            Step::Done(Found::Failed) => "failed".to_string(),
        };
        return (asked, done);
    }
}

/// Compares the queries other than for folders, and the result.
fn check(path: &str, options: LookupOptions, asked: &[&str], expect: &str) {
    let (found_asked, found) = run(TREE, path.as_bytes(), options);
    let found_asked: Vec<_> = found_asked
        .iter()
        .filter(|path| !path.ends_with(b"/"))
        .map(|path| String::from_utf8_lossy(path))
        .collect();
    assert_eq!(
        (found_asked, found.as_str()),
        (asked.iter().map(|&path| path.into()).collect(), expect),
        "{path}"
    );
}

#[test]
fn files_are_found_by_their_exact_name() {
    check("/a", ALL, &["a"], "200 a");
    check("/about.html", ALL, &["about.html"], "200 about.html");
    check(
        "/docs/api.html",
        ALL,
        &["docs/api.html"],
        "200 docs/api.html",
    );
    check("/index.html", ALL, &["index.html"], "200 index.html");
    check("/404.html", ALL, &["404.html"], "200 404.html");
}

#[test]
fn folders_answer_with_their_index_page_or_redirect_to_it() {
    check("/", ALL, &["index.html"], "200 index.html");
    check("/docs/", ALL, &["docs/index.html"], "200 docs/index.html");
    check("/docs", PLAIN, &["docs"], "301 /docs/");
    check("/docs", ALL, &["docs", "docs.html"], "301 /docs/");
    check("/docs/deep", PLAIN, &["docs/deep"], "301 /docs/deep/");
    check("/page.html", ALL, &["page.html"], "301 /page.html/");
}

#[test]
fn redirects_are_encoded() {
    check("/d e?", PLAIN, &["d e?"], "301 /d%20e%3F/");
}

#[test]
fn clean_urls_find_pages() {
    check("/about", ALL, &["about", "about.html"], "200 about.html");
    check("/both", ALL, &["both", "both.html"], "200 both.html");
    check("/both", PLAIN, &["both"], "301 /both/");
    check(
        "/docs/api",
        ALL,
        &["docs/api", "docs/api.html"],
        "200 docs/api.html",
    );
    check("/about", PLAIN, &["about", "404.html"], "404 404.html");
    check(
        "/about/",
        ALL,
        &["about/index.html", "about", "about.html"],
        "301 /about",
    );
    check(
        "/about/",
        PLAIN,
        &["about/index.html", "about", "404.html"],
        "404 404.html",
    );
    check("/no.html", ALL, &["no.html", "404.html"], "404 404.html");
}

#[test]
fn folders_without_index_are_listed_if_wanted() {
    check(
        "/empty/",
        ALL,
        &["empty/index.html", "empty", "empty.html"],
        "list empty",
    );
    // The page precedes the listing.
    check(
        "/both/",
        ALL,
        &["both/index.html", "both", "both.html"],
        "301 /both",
    );
    check(
        "/empty/",
        PLAIN,
        &["empty/index.html", "empty", "empty/404.html", "404.html"],
        "404 404.html",
    );
    check(
        "/odd/",
        ALL,
        &["odd/index.html", "odd", "odd.html"],
        "list odd",
    );
    let (asked, found) = run(&[("", AtPath::Directory)], b"/", ALL);
    assert_eq!((asked.len(), found.as_str()), (2, "list "));
}

#[test]
fn a_slash_after_a_file_is_one_too_many() {
    check("/a/", ALL, &["a/index.html", "a"], "301 /a");
}

#[test]
fn the_nearest_error_page_is_found() {
    let asked = ["docs/deep/no", "docs/deep/404.html", "docs/404.html"];
    check("/docs/deep/no", PLAIN, &asked, "404 docs/404.html");
    check(
        "/docs/no",
        PLAIN,
        &["docs/no", "docs/404.html"],
        "404 docs/404.html",
    );
    check("/no", PLAIN, &["no", "404.html"], "404 404.html");
    let (_, found) = run(&[], b"/x/y", ALL);
    assert_eq!(found, "missing");
}

#[test]
fn a_single_page_application_answers_pages_and_never_assets() {
    check("/user/7", SPA, &["user/7", "index.html"], "200 index.html");
    check(
        "/user/",
        SPA,
        &["user/index.html", "user", "index.html"],
        "200 index.html",
    );
    check(
        "/no.html",
        SPA,
        &["no.html", "index.html"],
        "200 index.html",
    );
    check(
        "/app.3f2a.js",
        SPA,
        &["app.3f2a.js", "404.html"],
        "404 404.html",
    );
    check("/.env", SPA, &["404.html"], "404 404.html");
    let (asked, found) = run(&[], b"/x", SPA);
    assert_eq!((asked.len(), found.as_str()), (3, "missing"));
}

#[test]
fn a_navigation_finds_the_application_under_a_name_with_a_dot() {
    let check = |path: &str, is_navigation, expect: &str| {
        let lookup = Lookup::new(path.as_bytes(), SPA, &Arc::new(plain_routing()));
        let lookup = lookup.of_navigation(is_navigation);
        assert_eq!(finish(TREE, lookup).1, expect, "{path}");
    };
    for path in ["/docs/v1.2", "/@jane.doe"] {
        check(path, true, "200 index.html");
    }
    check("/@jane.doe", false, "404 404.html");
    check("/a", true, "200 a");
    check("/.env", true, "404 404.html");
}

#[test]
fn what_must_not_be_revealed_is_not_found() {
    check("/link", PLAIN, &["link", "404.html"], "404 404.html");
    check("/fifo", PLAIN, &["fifo", "404.html"], "404 404.html");
    check("/.git/config", ALL, &["404.html"], "404 404.html");
    check("/.git/", ALL, &["404.html"], "404 404.html");
    check("/docs/.x/y", ALL, &["docs/404.html"], "404 docs/404.html");
    check(
        "/.well-known/.y",
        ALL,
        &[".well-known/404.html", "404.html"],
        "404 404.html",
    );
    check(
        "/docs/.well-known/x",
        ALL,
        &["docs/404.html"],
        "404 docs/404.html",
    );
    check(
        "/.well-known/x",
        ALL,
        &[".well-known/x"],
        "200 .well-known/x",
    );
    let dotfiles = LookupOptions {
        dotfiles: true,
        ..ALL
    };
    check(
        "/.git/config",
        dotfiles,
        &[".git/config"],
        "200 .git/config",
    );
}

#[test]
fn what_may_not_be_read_is_forbidden_and_what_fails_fails() {
    check("/secret", ALL, &["secret"], "forbidden");
    check("/locked/", ALL, &["locked/index.html"], "forbidden");
    check("/broken", ALL, &["broken"], "failed");
    let tree = [("404.html", AtPath::Denied), ("x/404.html", AtPath::Failed)];
    assert_eq!(run(&tree, b"/y", ALL).1, "missing");
    assert_eq!(run(&tree, b"/x/y", ALL).1, "failed");
}

#[test]
fn paths_that_are_not_canonical_ask_nothing() {
    for path in [
        "", "a", "//", "//a", "/a//b", "/a//", "/..", "/a/../b", "/.", "/./a", "/a/..", "/a\0",
    ] {
        check(
            path,
            LookupOptions {
                dotfiles: true,
                ..ALL
            },
            &[],
            "missing",
        );
    }
}

#[test]
fn deep_paths_ask_a_bounded_number_of_times() {
    let deep = "/d".repeat(2000);
    // Six folders show that none of 63 exists.
    let (asked, found) = run(&[], deep.as_bytes(), ALL);
    assert_eq!((asked.len(), found.as_str()), (2 + 6 + 1, "missing"));
    let (asked, found) = run(&[("404.html", AtPath::Regular)], deep.as_bytes(), ALL);
    assert_eq!((asked.len(), found.as_str()), (2 + 6 + 1, "404 404.html"));
}

/// However many of a path's folders exist, and whichever of them has the page.
#[test]
fn the_nearest_fallback_answers() {
    let folder = |level: usize| "d/".repeat(level);
    for there in (0..10).chain(60..70) {
        let folders: Vec<_> = (1..=there).map(folder).collect();
        for page in 0..=there {
            let page = format!("{}404.html", folder(page));
            let mut tree = vec![(page.as_str(), AtPath::Regular)];
            tree.extend(
                folders
                    .iter()
                    .map(|it| (it.trim_end_matches('/'), AtPath::Directory)),
            );
            let path = format!("/{}x", "d/".repeat(there.max(5)));
            let (asked, found) = run(&tree, path.as_bytes(), PLAIN);
            let level = page.matches('/').count();
            let expected = match level < NOT_FOUND_FOLDERS_MAX {
                true => format!("404 {page}"),
                false => "missing".to_owned(),
            };
            assert_eq!(found, expected, "{there} folders exist");
            assert!(asked.len() <= 1 + 6 + there + 1, "{asked:?}");
        }
    }
    // This process may be allowed to open its files, though not the folder.
    let tree = [("d", AtPath::Denied), ("d/404.html", AtPath::Regular)];
    assert_eq!(run(&tree, b"/d/x", PLAIN).1, "404 d/404.html");
}

/// Paths made of awkward pieces in every order of up to five: every query is relative and clean,
/// whatever the disk answers; and every lookup ends.
#[test]
fn what_is_asked_is_always_a_clean_relative_path() {
    const PIECES: [&[u8]; 8] = [b"/", b"a", b"..", b".", b"\0", b".html", b"//", b"\xff"];
    const ANSWERS: [AtPath; 7] = [
        AtPath::Regular,
        AtPath::Directory,
        AtPath::Other,
        AtPath::Missing,
        AtPath::Denied,
        AtPath::Escapes,
        AtPath::Failed,
    ];
    for number in 0..8usize.pow(5) {
        let mut routing = if number & 16 == 0 {
            plain_routing()
        } else {
            Routing::default()
        };
        routing.trailing_slash = [
            TrailingSlash::Auto,
            TrailingSlash::Always,
            TrailingSlash::Never,
            TrailingSlash::Off,
        ][number >> 5 & 3];
        let routing = Arc::new(routing);
        let mut path = b"/".to_vec();
        for place in 0..5 {
            path.extend_from_slice(PIECES[number >> (3 * place) & 7]);
        }
        let options = LookupOptions {
            clean_urls: number & 1 != 0,
            spa: number & 2 != 0,
            listing: number & 4 != 0,
            dotfiles: number & 8 != 0,
        };
        let mut lookup = Lookup::new(&path, options, &routing);
        let mut count = 0;
        loop {
            let asked = match lookup.step() {
                Step::Open(asked) => asked,
                Step::Done(Found::Unclaimed) => {
                    lookup.go_on();
                    continue;
                }
                Step::Done(_) => break,
            };
            let is_clean = asked.is_empty()
                || asked
                    .split(|&byte| byte == b'/')
                    .all(|segment| !matches!(segment, b"" | b"." | b".."));
            assert!(is_clean && !asked.contains(&0), "{}", asked.escape_ascii());
            // Mostly missing, so that long lookups occur too.
            let answer = ANSWERS[(number * 31 + count * 7) % 13 % 7];
            lookup.found(if count % 2 == 0 {
                AtPath::Missing
            } else {
                answer
            });
            count += 1;
            assert!(count <= 6 + 5 * NOT_FOUND_FOLDERS_MAX, "a lookup ends");
        }
        if let Step::Done(Found::Redirect { location }) = lookup.step() {
            assert!(location.starts_with(b"/") && !location.starts_with(b"//"));
        }
    }
}

#[test]
fn slashes_are_added_removed_or_left_alone() {
    let check = |slash: TrailingSlash, path: &str, expect: &str| {
        let mut routing = plain_routing();
        routing.trailing_slash = slash;
        let options = LookupOptions {
            listing: false,
            ..ALL
        };
        let lookup = Lookup::new(path.as_bytes(), options, &Arc::new(routing));
        assert_eq!(finish(TREE, lookup).1, expect, "{slash:?} {path}");
    };
    use TrailingSlash::{Always, Auto, Never, Off};
    for (path, auto, always, never, off) in [
        (
            "/",
            "200 index.html",
            "200 index.html",
            "200 index.html",
            "200 index.html",
        ),
        (
            "/docs",
            "301 /docs/",
            "301 /docs/",
            "200 docs/index.html",
            "200 docs/index.html",
        ),
        (
            "/docs/",
            "200 docs/index.html",
            "200 docs/index.html",
            "301 /docs",
            "200 docs/index.html",
        ),
        (
            "/about",
            "200 about.html",
            "301 /about/",
            "200 about.html",
            "200 about.html",
        ),
        (
            "/about/",
            "301 /about",
            "200 about.html",
            "301 /about",
            "404 404.html",
        ),
        (
            "/both",
            "200 both.html",
            "301 /both/",
            "200 both.html",
            "200 both.html",
        ),
        (
            "/both/",
            "301 /both",
            "200 both.html",
            "301 /both",
            "404 404.html",
        ),
        ("/a/", "301 /a", "301 /a", "301 /a", "404 404.html"),
        ("/a", "200 a", "200 a", "200 a", "200 a"),
        (
            "/about.html/",
            "301 /about.html",
            "301 /about.html",
            "301 /about.html",
            "404 404.html",
        ),
        (
            "/empty/",
            "404 404.html",
            "404 404.html",
            "404 404.html",
            "404 404.html",
        ),
        (
            "/no/",
            "404 404.html",
            "404 404.html",
            "404 404.html",
            "404 404.html",
        ),
    ] {
        check(Auto, path, auto);
        check(Always, path, always);
        check(Never, path, never);
        check(Off, path, off);
    }
}

#[test]
fn the_deepest_fallback_answers_and_pages_never_stand_in_for_assets() {
    let tree = [
        ("", AtPath::Directory),
        ("200.html", AtPath::Regular),
        ("404.html", AtPath::Regular),
        ("wild/_wildcard.html", AtPath::Regular),
        ("wild/404.html", AtPath::Regular),
        ("deep/404.html", AtPath::Regular),
    ];
    let check = |path: &str, expect: &str| {
        let routing = Routing {
            rules: None,
            ..Routing::default()
        };
        let lookup = Lookup::new(path.as_bytes(), PLAIN, &Arc::new(routing));
        assert_eq!(finish(&tree, lookup).1, expect, "{path}");
    };
    check("/x", "200 200.html");
    check("/x.js", "404 404.html");
    check("/wild/x", "200 wild/_wildcard.html");
    check("/wild/x.js", "200 wild/_wildcard.html");
    check("/deep/er/x", "404 deep/404.html");
}

#[test]
fn rules_are_asked_for_what_nothing_claims() {
    let routing = Arc::new(Routing {
        trailing_slash: TrailingSlash::Auto,
        ..Routing::default()
    });
    let check = |path: &str, expect: &str| {
        let lookup = Lookup::new(path.as_bytes(), PLAIN, &routing);
        assert_eq!(finish(TREE, lookup).1, expect, "{path}");
    };
    check("/a", "200 a");
    check("/docs", "301 /docs/");
    check("/empty", "unclaimed");
    check("/no", "unclaimed");
    check("/_redirects", "unclaimed");
    check("/.git/config", "unclaimed");
    // Rules precede listings.
    for (path, expect) in [
        ("/empty/", "list empty"),
        ("/empty", "301 /empty/"),
        ("/", "list "),
    ] {
        let tree = &[("", AtPath::Directory), ("empty", AtPath::Directory)];
        let mut lookup = Lookup::new(path.as_bytes(), ALL, &routing);
        assert_eq!(finish(tree, lookup.clone()).1, "unclaimed", "{path}");
        while let Step::Open(name) = lookup.step() {
            let at_path = at(tree, name);
            lookup.found(at_path);
        }
        lookup.go_on();
        assert_eq!(finish(tree, lookup).1, expect, "{path}");
    }
    // Missing content of a rule has the status of the rule.
    for (status, expect) in [(Status(410), "410 404.html"), (Status(200), "404 404.html")] {
        let mut lookup = Lookup::new(b"/no", PLAIN, &routing);
        let path = b"/none".to_vec();
        lookup.claim(Ruled::Content {
            status,
            path,
            rule: 0,
        });
        assert_eq!(finish(TREE, lookup.clone()).1, expect);
        if status == Status(410) {
            assert_eq!(finish(&[], lookup).1, "410 without a page");
        }
    }
    let mut lookup = Lookup::new(b"/docs/no", PLAIN, &routing);
    while let Step::Open(path) = lookup.step() {
        let at_path = at(TREE, path);
        lookup.found(at_path);
    }
    lookup.go_on();
    assert_eq!(finish(TREE, lookup).1, "404 docs/404.html");
    let of_rule = |path: &str, status, expect: &str| {
        let mut lookup = Lookup::new(b"/x", ALL, &routing);
        lookup.claim(Ruled::Content {
            status,
            path: path.into(),
            rule: 0,
        });
        assert_eq!(finish(TREE, lookup).1, expect, "{path}");
    };
    of_rule("/docs", Status::OK, "200 docs/index.html");
    of_rule("/about", Status(410), "410 about.html");
    of_rule("/about/", Status::OK, "200 about.html");
    of_rule("/about.html/", Status(410), "410 about.html");
    of_rule("/empty", Status::OK, "301 /empty/");
    of_rule("/empty/", Status::OK, "list empty");
    // Given up, whatever folder the rule names.
    of_rule("/empty/", Status(410), "410 404.html");
    of_rule("/empty", Status::NOT_FOUND, "404 404.html");
    of_rule("/no", Status::OK, "404 404.html");
    let mut lookup = Lookup::new(b"/a", ALL, &routing);
    lookup.claim(Ruled::Elsewhere {
        status: Status(302),
        location: b"https://example.org/".into(),
        rule: 3,
    });
    assert_eq!(finish(TREE, lookup).1, "302 to https://example.org/");
}

/// A slash, or a suffix that a path may leave out, does not lead to a rules file, and the answer is that
/// of a path where there is none.
#[test]
fn rules_files_are_not_there_in_any_form() {
    let tree = [
        ("", AtPath::Directory),
        ("_headers", AtPath::Regular),
        ("_redirects", AtPath::Denied),
        ("_redirects.txt", AtPath::Regular),
        ("sub", AtPath::Directory),
        ("sub/_redirects.txt", AtPath::Regular),
    ];
    for compat in [Compat::Netlify, Compat::Kawipiko] {
        for trailing_slash in [
            TrailingSlash::Auto,
            TrailingSlash::Always,
            TrailingSlash::Never,
            TrailingSlash::Off,
        ] {
            let routing = Arc::new(Routing {
                trailing_slash,
                ..Routing::new(compat)
            });
            let found = |path: &str| {
                let lookup = Lookup::new(path.as_bytes(), PLAIN, &routing);
                finish(&tree, lookup).1
            };
            let mut paths = vec!["/_headers", "/_headers/", "/_redirects/"];
            match compat {
                Compat::Kawipiko => paths.extend(["/_redirects.txt/", "/sub/_redirects/"]),
                _ => assert_eq!(found("/_redirects.txt"), "200 _redirects.txt"),
            }
            for path in paths {
                let shown = format!("{path} {compat:?} {trailing_slash:?}");
                assert_eq!(found(path), found("/missing/"), "{shown}");
            }
        }
    }
}
