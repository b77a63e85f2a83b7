//! Which names are recognised as hashes of their content: none of a list of others, and nearly all
//! that generators write.

use gannet_content::policy::cache::{Lifetime, Lifetimes, Reason};
use gannet_content::policy::content_digest::Algorithm;
use gannet_content::policy::hashed_name::{Groups, HashedForm, framework_folder, hash_range};
use gannet_content::policy::references::Mentions;
use gannet_testkit::content::Numbers;

const PLAIN: &str = include_str!("names/plain.txt");
const HASHED: &str = include_str!("names/hashed.txt");

/// The names of a list, without comments and without the text after a tab.
fn names(list: &'static str) -> Vec<&'static str> {
    let lines = list
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split('\t').next().unwrap_or(line))
        .collect()
}

/// The sites of a list: a title, and its names.
fn sites() -> Vec<(&'static str, Vec<&'static str>)> {
    let parts = HASHED.split("\n# site: ").skip(1);
    let site = |part: &'static str| {
        let (title, list) = part.split_once('\n').expect("a title and names");
        (title, names(list))
    };
    parts.map(site).collect()
}

/// Whether a name counts, if the site refers to all of its files.
fn is_hashed(groups: &Groups, path: &str) -> bool {
    framework_folder(path).is_some() || groups.hashed(path).is_some()
}

#[test]
fn no_plain_name_is_taken_for_a_hash_alone_or_beside_hashes() {
    let all = names(PLAIN);
    assert!(all.len() > 80);
    let bundle = sites().into_iter().flat_map(|(_, names)| names);
    let together: Vec<&str> = all.iter().copied().chain(bundle).collect();
    let together = Groups::of(together.iter().copied());
    let is_taken = |path: &&str| {
        let alone = Groups::of(std::iter::once(*path));
        is_hashed(&alone, path) || is_hashed(&together, path)
    };
    let taken: Vec<&str> = all.into_iter().filter(is_taken).collect();
    assert!(taken.is_empty(), "{taken:#?}");
}

#[test]
fn nearly_all_names_of_generators_are_taken_for_hashes() {
    let (mut count, mut found) = (0, 0);
    let mut missed = Vec::new();
    for (title, names) in sites() {
        let groups = Groups::of(names.iter().copied());
        for path in names {
            let is_hashed = is_hashed(&groups, path);
            count += 1;
            found += usize::from(is_hashed);
            if !is_hashed {
                missed.push(format!("{title}: {path}"));
            }
        }
    }
    assert!(count > 180, "{count}");
    assert!(
        found * 100 >= count * 98,
        "{found} of {count}; not: {missed:#?}"
    );
}

/// As Vite and Rollup make them: any eight characters of base 64.
#[test]
fn nearly_all_names_of_vite_are_taken_for_hashes() {
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut numbers = Numbers(7);
    let mut hash = || -> String {
        let digits = (0..8).map(|_| alphabet[numbers.below(64) as usize]);
        digits.map(char::from).collect()
    };
    let (mut count, mut missed) = (0, Vec::new());
    for _ in 0..400 {
        let stems = ["index", "vendor", "Home", "logo", "font"];
        let suffixes = ["js", "css", "js", "svg", "woff2"];
        let parts = stems.iter().zip(suffixes).cycle().take(60);
        let names = parts.map(|(stem, suffix)| format!("assets/{stem}-{}.{suffix}", hash()));
        let names: Vec<String> = names.collect();
        let groups = Groups::of(names.iter().map(String::as_str));
        count += names.len();
        missed.extend(names.into_iter().filter(|it| groups.hashed(it).is_none()));
    }
    let part = &missed[..missed.len().min(100)];
    assert!(
        missed.len() * 50 <= count,
        "{} of {count}: {part:?}",
        missed.len()
    );
}

/// A word with digits may look like a hash: it counts beside a name that can be nothing else.
#[test]
fn a_certain_neighbour_is_evidence_and_a_lookalike_is_not() {
    let check = |paths: &[&str], expect: &[&str]| {
        let groups = Groups::of(paths.iter().copied());
        let hashed = paths.iter().filter(|path| groups.hashed(path).is_some());
        let hashed: Vec<_> = hashed.copied().collect();
        assert_eq!(hashed, expect, "{paths:?}");
    };
    check(&["form-W2B4USER.js"], &[]);
    check(&["form-W2B4USER.js", "app.js"], &[]);
    check(&["assets/form-W2B4USER.js"], &[]);
    check(&["assets/form-W2B4User.js"], &[]);
    let doubtful = "assets/logo-gpdyi3i-.svg";
    check(&[doubtful], &[]);
    let numbered = "assets/lang-pt_BR-v2.js";
    check(
        &[numbered, "assets/Home-B2x9kQ7z.js"],
        &["assets/Home-B2x9kQ7z.js"],
    );
    check(&[doubtful, "assets/form-W2B4User.js"], &[]);
    let certain = "assets/Home-B2x9kQ7z.js";
    let beside = [doubtful, certain, "assets/font-MediumCn.woff2"];
    check(&beside, &[doubtful, certain]);
    check(
        &[doubtful, "other/assets/Home-B2x9kQ7z.js"],
        &["other/assets/Home-B2x9kQ7z.js"],
    );
    check(
        &["chunk-7XK2L3QZ.js", "chunk-W2B4USER.js"],
        &["chunk-7XK2L3QZ.js", "chunk-W2B4USER.js"],
    );
}

#[test]
fn a_name_alone_is_evidence_only_in_a_folder_of_a_framework() {
    let lifetime = |path| {
        let content_type = gannet_content::mime::content_type(str::as_bytes(path));
        Reason::of_name(path, content_type).lifetime()
    };
    for path in [
        "_next/static/chunks/framework-2c79e2a64abdb08b.js",
        "docs/_next/static/css/app.css",
        "_nuxt/entry.js",
        "_app/immutable/entry/start.js",
        "_astro/hero.png",
        "static/js/main.787c3ba9.js",
        "app/static/js/2.4e1f9a7c.chunk.js",
        "static/media/logo.6ce24c58023cc2f8fd88fe9d219db6c6.svg",
    ] {
        assert_eq!(lifetime(path), Lifetime::Immutable, "{path}");
    }
    for path in [
        "assets/index-BxY3k9Zq.js",
        "app.3f2a9c1b.js",
        "chunk-7XK2L3QZ.js",
        "static/js/main.js",
        "static/js/main.787c3ba9.png",
        "static/pdf/main.787c3ba9.js",
        "x_next/static/a.js",
        "_next/data/a.3f2a9c1b.js",
    ] {
        assert_eq!(lifetime(path), Lifetime::Revalidate, "{path}");
    }
}

#[test]
fn a_chunk_is_referred_to_by_its_name_or_by_its_hash_in_a_script() {
    let mut mentions = Mentions::default();
    mentions.want("main.3f2a9c1b.js");
    mentions.want("b6a4b1a8");
    let mut open = Vec::new();
    let script = br#"<script src="/static/main.3f2a9c1b.js"></script> {17:"b6a4b1a8"}[e]+".js""#;
    mentions.read(script, &mut open);
    mentions.end(&mut open);
    assert!(mentions.is_done());
}

#[test]
fn what_an_archive_keeps_of_lifetimes_is_read_back() {
    let all = [
        (
            "/css/a.9e107d9d372bb682.css",
            Reason::Digest(Algorithm::Md5),
        ),
        (
            "/assets/index-BxY3k9Zq.js",
            Reason::Referenced(HashedForm::Base64),
        ),
        (
            "//example.org/chunk-7XK2L3QZ.js",
            Reason::Referenced(HashedForm::Base32),
        ),
        ("/assets/a name-BxY3k9Zq.js", Reason::Changed),
    ];
    let mut lifetimes = Lifetimes::default();
    lifetimes
        .reasons
        .extend(all.map(|(path, reason)| (path.to_owned(), reason)));
    lifetimes.changed.insert("assets/NAME-BASE64".to_owned());
    let text = lifetimes.to_text(100);
    assert_eq!(Lifetimes::parse(&text), lifetimes);
    // Evidence from names alone, and unknown reasons, are not recorded.
    let folder = ("/_astro/a.js".to_owned(), Reason::Folder("_astro"));
    lifetimes.reasons.insert(folder.0, folder.1);
    lifetimes.reasons.insert("/a.js".to_owned(), Reason::Plain);
    assert_eq!(lifetimes.to_text(100), text);
    let cut = Lifetimes::parse(&lifetimes.to_text(1));
    assert_eq!(cut.reasons.len(), 1, "bounded");
    assert_eq!(cut.get("/assets/a name-BxY3k9Zq.js"), Some(Reason::Changed));
    assert_eq!(Lifetimes::default().to_text(100), "");
    for damaged in [
        "",
        "gannet-lifetimes 2\ndigest MD5 /a",
        "gannet-lifetimes 1\nx\ndigest Y /a",
    ] {
        assert_eq!(Lifetimes::parse(damaged), Lifetimes::default(), "{damaged}");
    }
}

#[test]
fn patterns_name_the_folder_and_the_form() {
    for (reason, path, expect) in [
        (
            Reason::Referenced(HashedForm::Base64),
            "/assets/a-BxY3k9Zq.js",
            Some("assets/NAME-BASE64"),
        ),
        (
            Reason::Folder("_astro"),
            "/docs/_astro/a.js",
            Some("docs/_astro/*"),
        ),
        (
            Reason::Digest(Algorithm::Sha1),
            "/a.da39a3ee.js",
            Some("NAME.DIGEST"),
        ),
        (Reason::Plain, "/a.js", None),
        (Reason::Page, "/", None),
    ] {
        assert_eq!(reason.pattern(path).as_deref(), expect, "{path}");
    }
}

#[test]
fn the_hash_of_a_name_is_what_versions_differ_in() {
    let check = |path: &str, expect: Option<&str>| {
        let found = hash_range(path).map(|range| {
            let (before, after) = (&path[..range.start], &path[range.end..]);
            format!("{before}*{after}")
        });
        assert_eq!(found.as_deref(), expect, "{path}");
    };
    check("assets/index-BxY3k9Zq.js", Some("assets/index-*.js"));
    check("main.3f2a9c1b.chunk.js", Some("main.*.chunk.js"));
    check("static/js/main.3f2a9c1b.js", Some("static/js/main.*.js"));
    check("chunk-7XK2L3QZ.js", Some("chunk-*.js"));
    check("_astro/hero.BxY3k9Zq.css", Some("_astro/hero.*.css"));
    check("css/theme.ba7816bf8f01cfea.css", Some("css/theme.*.css"));
    check(
        "docs/assets/a.md.Cw8U3yUo.lean.js",
        Some("docs/assets/a.md.*.lean.js"),
    );
    check("lib/app-ba7816bf8f01.js", Some("lib/app-*.js"));
    check("17.b6a4b1a8.js", Some("17.*.js"));
    // Nothing but a hash, and none.
    check("_nuxt/BxY3k9Zq.js", None);
    check("_next/static/3f2a9c1b3f2a9c1b.js", None);
    check("_astro/hero-sections.css", None);
    check("_next/static/build/_buildManifest.js", None);
    check("assets/", None);
    check("", None);
}
