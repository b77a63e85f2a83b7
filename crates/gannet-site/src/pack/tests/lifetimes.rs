//! Which files may be cached for a year, by what evidence, and what revokes it.

use super::*;

/// `Cache-Control` of a path.
fn lifetime(file: &ArchiveFile, path: &str) -> String {
    let entry = file.archive().lookup(Key::content(path.as_bytes()));
    let variant = entry.expect("packed").variants().next().expect("one");
    let block = variant.h1().whole();
    let block = String::from_utf8_lossy(&block);
    let field = block
        .lines()
        .find_map(|line| line.strip_prefix("Cache-Control: "));
    field.expect("a lifetime").to_owned()
}

const KEPT: &str = "max-age=31536000, immutable";
const ASKED: &str = "max-age=1";

fn check(place: &Place, step: &str, expect: &[(&str, &str)]) {
    let file = place.open();
    for (path, expect) in expect {
        assert_eq!(lifetime(&file, path), *expect, "{step}: {path}");
    }
}

/// SHA-256 of "abc", truncated as generators do.
const PROVEN: &str = "css/theme.ba7816bf8f01cfea.css";

#[test]
fn evidence_is_a_digest_a_folder_or_a_name_that_the_site_refers_to() {
    let place = Place::new();
    place.file("_astro/hero.png", "picture");
    place.file(PROVEN, "abc");
    place.file("css/other.ba7816bf8f01cfea.css", "abd");
    place.file("img/photo.ba7816bf8f01.png", "abc");
    place.file("img/photo.ba7816bf.png", "abc");
    let script = "import('./chunk-CsGmk6Qp.js')";
    place.file(
        "index.html",
        "<script src=/assets/index-BxY3k9Zq.js></script>",
    );
    place.file("assets/index-BxY3k9Zq.js", script);
    place.file("assets/chunk-CsGmk6Qp.js", "1");
    place.file("assets/lonely-DkXz1a2B.js", "nothing refers to it");
    place.file("assets/AvenirNextLTPro-MediumCn.woff2", "font");
    place.file(
        "main.3f2a9c1b.js",
        "n={17:\"b6a4b1a8\"}[e]+\".b6a4b1a8.js\"; AvenirNextLTPro-MediumCn.woff2",
    );
    place.file("17.b6a4b1a8.js", "2");
    let pages = r#"<script>map=JSON.parse("{\"a.md\":\"Cw8U3yUo\"}")</script>"#;
    place.file("docs/index.html", pages);
    place.file("docs/assets/a.md.Cw8U3yUo.js", "4");
    place.file("docs/assets/b.md.DkXz1a2B.js", "5");
    place.file("invoice-2024a001.pdf", "3");
    let report = place.pack();
    let expect = [
        ("/_astro/hero.png", KEPT),
        ("/css/theme.ba7816bf8f01cfea.css", KEPT),
        ("/css/other.ba7816bf8f01cfea.css", ASKED),
        ("/img/photo.ba7816bf8f01.png", KEPT),
        ("/img/photo.ba7816bf.png", ASKED),
        ("/assets/index-BxY3k9Zq.js", KEPT),
        ("/assets/chunk-CsGmk6Qp.js", KEPT),
        ("/assets/lonely-DkXz1a2B.js", ASKED),
        ("/assets/AvenirNextLTPro-MediumCn.woff2", ASKED),
        ("/main.3f2a9c1b.js", ASKED),
        ("/17.b6a4b1a8.js", KEPT),
        ("/docs/assets/a.md.Cw8U3yUo.js", KEPT),
        ("/docs/assets/b.md.DkXz1a2B.js", ASKED),
        ("/invoice-2024a001.pdf", ASKED),
        ("/", ASKED),
    ];
    check(&place, "first", &expect);
    let kept = report.kept.iter();
    let mut kept: Vec<_> = kept.map(|it| (it.pattern.as_str(), it.count)).collect();
    kept.sort_unstable();
    let patterns = [
        ("NAME.HEX", 1),
        ("_astro/*", 1),
        ("assets/NAME-BASE64", 2),
        ("css/NAME.DIGEST", 1),
        ("docs/assets/NAME-BASE64", 1),
        ("img/NAME.DIGEST", 1),
    ];
    assert_eq!(kept, patterns);
    let by_form = report.kept.iter().find(|it| it.count == 2).expect("kept");
    let evidence = &by_form.evidence;
    assert!(evidence.starts_with("the name has the form"), "{evidence}");
    // The findings recorded in one release do not change the next.
    let before = fs::read(place.archive()).expect("written");
    place.pack();
    assert!(before == fs::read(place.archive()).expect("written"));
}

#[test]
fn a_name_whose_content_changed_since_the_release_before_is_no_hash() {
    let place = Place::new();
    let page = "<script src=/assets/a-BxY3k9Zq.js></script><script src=/assets/b-CsGmk6Qp.js>";
    place.file("index.html", page);
    place.file("assets/a-BxY3k9Zq.js", "one");
    place.file("assets/b-CsGmk6Qp.js", "two");
    place.file("_astro/c.js", "three");
    place.file("_astro/deep/d.js", "four");
    place.file(PROVEN, "abc");
    place.pack();
    let all = |a, b, c, d| {
        [
            ("/assets/a-BxY3k9Zq.js", a),
            ("/assets/b-CsGmk6Qp.js", b),
            ("/_astro/c.js", c),
            ("/_astro/deep/d.js", d),
            ("/css/theme.ba7816bf8f01cfea.css", KEPT),
        ]
    };
    check(&place, "first", &all(KEPT, KEPT, KEPT, KEPT));
    place.file("assets/a-BxY3k9Zq.js", "edited");
    place.file("_astro/c.js", "edited");
    place.pack();
    // The form is no evidence for its neighbours either; a digest is.
    let second = all(ASKED, ASKED, ASKED, KEPT);
    check(&place, "second", &second);
    let before = fs::read(place.archive()).expect("written");
    place.pack();
    check(&place, "third, with nothing changed", &second);
    assert!(before == fs::read(place.archive()).expect("written"));
    let mut options = place.options();
    options.memory.is_fresh = true;
    pack(&options, &mut NoProgress).expect("it packs");
    check(&place, "fresh", &all(KEPT, KEPT, KEPT, KEPT));
}

#[test]
fn the_release_before_may_lie_elsewhere_but_must_be_there() {
    let place = Place::new();
    place.file("_astro/c.js", "one");
    let elsewhere = place.0.join("old.gannet");
    let options = PackOptions {
        previous: vec![elsewhere.clone()],
        ..place.options()
    };
    let refused = pack(&options, &mut NoProgress);
    assert!(
        matches!(refused, Err(PackError::Previous(_))),
        "{refused:?}"
    );
    place.pack();
    fs::rename(place.archive(), &elsewhere).expect("moved");
    place.file("_astro/c.js", "two");
    pack(&options, &mut NoProgress).expect("it packs");
    check(&place, "second", &[("/_astro/c.js", ASKED)]);
}

#[test]
fn what_stands_in_for_others_is_kept_for_no_year() {
    let place = Place::new();
    place.file("_astro/c.js", "one");
    place.file("404.html", "no");
    place.file("_redirects", "/latest.js /_astro/c.js 200\n");
    place.file("_headers", "/x\n  X-A: b\n");
    place.pack();
    let file = place.open();
    let of = |key: Key<'_>| {
        let entry = file.archive().lookup(key).expect("packed");
        let block = entry.variants().next().expect("one").h1().whole();
        String::from_utf8(block.to_vec()).expect("text")
    };
    assert!(of(Key::content(b"/_astro/c.js")).contains(KEPT));
    let unruled = Key::content(b"/_astro/c.js").within(gannet_archive::Namespace::Unruled);
    assert!(of(unruled).contains(ASKED));
    assert!(of(Key::not_found_page(b"/")).contains("Cache-Control: no-cache\r\n"));
}

#[test]
fn the_newest_archive_that_was_kept_stands_for_one_that_is_gone() {
    let place = Place::new();
    place.file("_astro/c.js", "one");
    let mut options = place.options();
    options.memory.folder = Some(place.0.join("cache"));
    options.memory.keeps_archives = true;
    pack(&options, &mut NoProgress).expect("it packs");
    place.file("_astro/c.js", "two");
    fs::remove_file(place.archive()).expect("there");
    pack(&options, &mut NoProgress).expect("it packs");
    check(&place, "second", &[("/_astro/c.js", ASKED)]);
    // That it changed in the second release is recorded, too.
    fs::remove_file(place.archive()).expect("there");
    pack(&options, &mut NoProgress).expect("it packs");
    check(&place, "third", &[("/_astro/c.js", ASKED)]);
}

#[test]
fn immutable_entries_are_those_whose_own_answer_says_so() {
    let place = Place::new();
    place.file("_astro/hero.css", "a{}");
    place.file("_astro/ruled.css", "b{}");
    place.file("index.html", "<p>");
    place.file("fixed.html", "<b>");
    place.file("404.html", "<i>");
    place.file(
        "_headers",
        "/fixed*\n  cache-control: public, immutable\n/404*\n  cache-control: immutable\n\
         /_astro/ruled.css\n  ! cache-control\n",
    );
    place.pack();
    let file = place.open();
    let entries = file.archive().entries();
    let found: Vec<_> = entries
        .filter(gannet_archive::Entry::is_immutable)
        .map(|entry| String::from_utf8_lossy(entry.path()).into_owned())
        .collect();
    // `/fixed` and `/404` are other names; the not-found page answers other paths.
    assert_eq!(found, ["/404.html", "/_astro/hero.css", "/fixed.html"]);
    assert_eq!(file.archive().stats().immutable_count, 3);
}
