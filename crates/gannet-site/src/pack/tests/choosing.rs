//! Which files of a directory are packed: patterns, links, names.

use std::ffi::OsStr;

use gannet_content::routing::{Routing, TrailingSlash};
use gannet_content::rules::Compat;

use super::*;

#[test]
fn patterns_of_the_folders_and_of_the_command_line_choose() {
    let place = Place::new();
    for path in [
        "index.html",
        "a.map",
        "app.log",
        "docs/b.map",
        "docs/keep.map",
        "docs/drafts/x.html",
        "docs/drafts.html",
        "private/x.html",
        "extra.bin",
    ] {
        place.file(path, path);
    }
    place.file(".gannetignore", "*.map\n/private/\n# a comment\n");
    place.file("docs/.gannetignore", "!keep.map\ndrafts/\n");
    let options = PackOptions {
        exclude: vec!["*.bin".into()],
        include: vec!["*.log".into()],
        ..place.options()
    };
    let report = pack(&options, &mut NoProgress).expect("it packs");
    let skipped = rules(&report);
    let expect = [
        (".gannetignore", "patterns for gannet pack"),
        ("a.map", ".gannetignore: *.map"),
        (".gannetignore", "patterns for gannet pack"),
        ("b.map", ".gannetignore: *.map"),
        ("drafts", ".gannetignore: drafts/"),
        ("extra.bin", "*.bin"),
        ("private", ".gannetignore: /private/"),
    ];
    let expect = expect.map(|(name, rule)| (name.to_string(), rule.to_string()));
    assert_eq!(skipped, expect);
    let file = place.open();
    for path in ["/app.log", "/docs/keep.map", "/docs/drafts.html"] {
        assert!(get(&file, path).is_some(), "{path}");
    }
}

#[test]
fn a_malformed_pattern_names_its_file_and_line() {
    let place = Place::new();
    place.file("index.html", "x");
    place.file(".gannetignore", "*.map\na[z-b]\n");
    let error = pack(&place.options(), &mut NoProgress).expect_err("a pattern that is none");
    let message = error.to_string();
    assert!(message.contains("site/.gannetignore:2): "), "{message}");
}

#[test]
fn links_out_of_the_site_are_followed_on_request_alone() {
    let place = Place::new();
    place.file("index.html", "x");
    let outside = place.0.join("outside");
    fs::create_dir_all(&outside).expect("writable");
    fs::write(outside.join("shared.css"), "shared").expect("writable");
    symlink(&outside, place.site().join("theme")).expect("a link");
    symlink(outside.join("shared.css"), place.site().join("one.css")).expect("a link");
    // Back into the site: a cycle only where the site contains itself.
    symlink(place.site(), outside.join("again")).expect("a link");
    let options = place.options();
    let error = pack(&options, &mut NoProgress).expect_err("links out");
    let link = place.site().join("one.css");
    assert_eq!(
        error.to_string(),
        format!(
            "cannot pack '{}': a symbolic link leads out of the site (and 1 more)",
            link.display()
        )
    );
    assert!(!options.output.exists());
    let options = PackOptions {
        follow_links: true,
        ..options
    };
    let report = pack(&options, &mut NoProgress).expect("it packs");
    let file = place.open();
    assert_eq!(get(&file, "/theme/shared.css").as_deref(), Some("shared"));
    assert_eq!(get(&file, "/one.css").as_deref(), Some("shared"));
    assert_eq!(report.unique_count, 2, "one content under two names");
    assert_eq!(
        rules(&report),
        [("again".into(), "symbolic link loop".into())]
    );
    let warning = warnings(&report).join("\n");
    assert!(
        warning.contains("links out of the site are followed: 2, such as"),
        "{warning}"
    );
}

#[test]
fn names_that_are_not_utf8_are_packed_as_they_are() {
    let place = Place::new();
    let name = OsStr::from_bytes(b"caf\xe9.txt");
    fs::write(place.site().join(name), "latin").expect("writable");
    place.pack();
    let file = place.open();
    let found = answer(&file, Key::content(b"/caf\xe9.txt"));
    assert_eq!(found.as_deref(), Some("latin"));
}

#[test]
fn hard_links_and_equal_files_are_stored_once() {
    let place = Place::new();
    let text = "equal ".repeat(2000);
    let first = place.file("a.txt", &text);
    fs::hard_link(&first, place.site().join("b.txt")).expect("a link");
    place.file("c.txt", &text);
    let report = place.pack();
    assert_eq!((report.file_count, report.unique_count), (3, 1));
    assert_eq!(report.read_count, 2, "a hard link is not read again");
    let file = place.open();
    let blob = |path: &[u8]| {
        let entry = file.archive().lookup(Key::content(path)).expect("packed");
        entry
            .select(Coding::Identity.into())
            .expect("identity")
            .blob_offset()
    };
    assert_eq!(blob(b"/a.txt"), blob(b"/b.txt"));
    assert_eq!(blob(b"/a.txt"), blob(b"/c.txt"));
}

#[test]
fn two_files_for_one_path_are_reported() {
    let place = Place::new();
    place.file("index.html", "front");
    place.file("about.html", "the page");
    place.file("about/index.html", "the folder");
    place.file("both.html", "the same");
    place.file("both/index.html", "the same");
    place.file("plain", "a file without a suffix");
    place.file("plain.html", "a page");
    let report = place.pack();
    let warnings = warnings(&report);
    let site = place.site();
    let expect = |path: &str, winner: &str, loser: &str| {
        format!(
            "two files for '{path}': '{}' answers, '{}' does not",
            site.join(winner).display(),
            site.join(loser).display()
        )
    };
    assert_eq!(
        warnings,
        [
            expect("/plain", "plain", "plain.html"),
            expect("/about", "about.html", "about/index.html"),
        ]
    );
    let opened = place.open();
    let archive = opened.archive();
    let entry = archive.lookup(Key::content(b"/about")).expect("answered");
    let variant = entry.select(Coding::Identity.into()).expect("kept");
    assert_eq!(variant.digest(), gannet_archive::digest(b"the page"));
}

/// Both pages would have a redirect to the form with a slash.
#[test]
fn two_pages_that_differ_in_their_suffix_have_one_redirect() {
    let place = Place::new();
    for path in ["a.htm", "a.html", "b.htm", "b.html", "b/index.html"] {
        place.file(path, path);
    }
    let routing = Routing {
        trailing_slash: TrailingSlash::Always,
        ..Routing::new(Compat::Kawipiko)
    };
    let options = PackOptions {
        routing,
        ..place.options()
    };
    let report = pack(&options, &mut NoProgress).expect("it packs");
    let of_a = "two files for '/a/'";
    let claims: Vec<_> = warnings(&report)
        .into_iter()
        .filter(|it| it.starts_with(of_a))
        .collect();
    assert_eq!(claims.len(), 1, "{:?}", report.warnings);
    let file = place.open();
    let body = |path| get(&file, path).expect(path);
    assert_eq!(
        (body("/a/"), body("/b/")),
        ("a.html".into(), "b/index.html".into())
    );
}

#[test]
fn two_pages_for_all_of_a_folder_are_reported() {
    let place = Place::new();
    place.file("index.html", "front");
    place.file("404.html", "one");
    place.file("_404.html", "two");
    place.file("docs/_wildcard.html", "everything");
    place.file("docs/404.html", "never");
    place.file("blog/200.html", "the application");
    place.file("blog/404.html", "what it does not answer");
    let report = place.pack();
    let warnings = warnings(&report);
    let site = place.site();
    let expect = |path: &str, winner: &str, loser: &str| {
        let (winner, loser) = (site.join(winner), site.join(loser));
        let (winner, loser) = (winner.display(), loser.display());
        format!("two files for '{path}': '{winner}' answers, '{loser}' does not")
    };
    assert_eq!(
        warnings,
        [
            expect("/*", "_404.html", "404.html"),
            expect("/docs/*", "docs/_wildcard.html", "docs/404.html"),
        ]
    );
}

#[test]
fn of_many_double_claims_the_first_are_named() {
    let place = Place::new();
    place.file("index.html", "front");
    for number in 0..25 {
        place.file(&format!("p{number:02}.html"), "the page");
        place.file(&format!("p{number:02}/index.html"), "the folder");
    }
    let report = place.pack();
    let warnings = warnings(&report);
    assert_eq!(warnings.len(), 21);
    assert_eq!(warnings[20], "two files for one path: 5 further paths");
}
