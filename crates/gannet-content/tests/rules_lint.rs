//! Warnings about redirects that work, but probably not as intended.

use gannet_content::rules::Compat::{Cloudflare, Netlify};
use gannet_content::rules::lint::lint;
use gannet_content::rules::problem::{Severity, has_errors};
use gannet_content::rules::table::RedirectTable;
use gannet_content::rules::{Compat, SourceFile, redirects};

/// The warnings as `line name`, and a part of the first message.
fn check(compat: Compat, rules: &str, content: &[&str], expect: &[&str], message: &str) {
    let file = SourceFile {
        path: "_redirects",
        text: rules.as_bytes(),
    };
    let (redirects, problems) = redirects::parse(&[file], compat);
    assert!(problems.is_empty(), "{}", problems[0]);
    let has_content = |path: &[u8]| content.iter().any(|known| known.as_bytes() == path);
    let problems = lint(
        &RedirectTable::new(redirects),
        &["_redirects"],
        &has_content,
    );
    let found: Vec<String> = problems
        .iter()
        .map(|problem| format!("{} {}", problem.line, problem.what.name()))
        .collect();
    assert_eq!(found, expect, "{rules}");
    assert!(!has_errors(&problems));
    assert!(problems.iter().all(|it| it.severity == Severity::Warning));
    let shown = problems
        .first()
        .map(ToString::to_string)
        .unwrap_or_default();
    assert!(shown.contains(message), "{shown}");
}

#[test]
fn good_rules_have_no_warnings() {
    check(
        Netlify,
        "/old /new\n/a/b /x\n/a/* /y/:splat\n/* /index.html 200",
        &["/new", "/index.html"],
        &[],
        "",
    );
    check(
        Netlify,
        "/* https://www.example.com/:splat 301!\n/old /new",
        &[],
        &[],
        "",
    );
    // Content that a rule names is found with and without the slash.
    check(Netlify, "/a /b 200\n/c /d/ 404", &["/b/", "/d"], &[], "");
    check(Netlify, "/a x=1 /b\n/a x=:y /c\n/a /d", &[], &[], "");
}

#[test]
fn a_fallback_that_cloudflare_leaves_out_is_told() {
    for rule in [
        "/* /index.html 200",
        "/* /index 200",
        "/app/* /app/index.html 200",
    ] {
        let content = ["/index.html", "/index", "/app/index.html"];
        check(Netlify, rule, &content, &[], "");
        let expect = "Cloudflare leaves this rule out";
        check(Cloudflare, rule, &content, &["1 fallback-rule"], expect);
    }
    check(Cloudflare, "/* /start 200", &["/start"], &[], "");
}

#[test]
fn shadowed_rules_are_found() {
    for (rules, expect) in [
        ("/a/* /x\n/a/b /y", "2 shadowed-rule"),
        ("/:a/:b /x\n/a/b /y", "2 shadowed-rule"),
        ("/:a/:b /x\n/a/:z /y", "2 shadowed-rule"),
        ("/a/* /x\n/a/:b/* /y", "2 shadowed-rule"),
        ("/*/z /x\n/a/:b/z /y", "2 shadowed-rule"),
        ("/* /i 200\n/*/b /y", "2 shadowed-rule"),
        ("/a /x\nhttps://h.example/a /y", "2 shadowed-rule"),
        ("/a /x\n/a id=1 /y", "2 shadowed-rule"),
        ("/a id=:x /x\n/a id=1 /y", "2 shadowed-rule"),
        ("/a /x 301\n/a/ /y 301!", "2 duplicate-rule"),
        ("/a/:x /1\n/a/:y /2", "2 duplicate-rule"),
        ("/a id=1 b=2 /x\n/a b=2 id=1 /y", "2 duplicate-rule"),
    ] {
        check(
            Netlify,
            rules,
            &["/i"],
            &[expect],
            "never matches: _redirects:1 ",
        );
    }
}

#[test]
fn loops_and_chains_are_found() {
    check(
        Netlify,
        "/a /b\n/b /a",
        &[],
        &["1 redirect-loop"],
        "/a → /b → /a",
    );
    check(
        Netlify,
        "/a/* /b/:splat\n/b/* /a/:splat",
        &[],
        &["1 redirect-loop"],
        "in a loop",
    );
    check(
        Netlify,
        "/start /a\n/a /b\n/b /c\n/c /a",
        &[],
        &["2 redirect-loop"],
        "/a → /b → /c → /a",
    );
    check(
        Netlify,
        "/a /b\n/b /c\n/c /d",
        &["/d"],
        &["1 redirect-chain", "2 redirect-chain"],
        "/a → /b → /c → /d",
    );
    // A rule that makes its path longer forever.
    check(Netlify, "/x/* /x/y/:splat", &[], &["1 redirect-loop"], "");
    // A file ends it.
    check(Netlify, "/a /b\n/b /c", &["/b"], &["2 file-wins"], "");
    check(
        Netlify,
        "https://h.example/a https://h.example/b\n/b /c",
        &[],
        &["1 redirect-chain"],
        "",
    );
}

#[test]
fn files_that_win_or_are_hidden_are_found() {
    check(
        Netlify,
        "/a /b",
        &["/a"],
        &["1 file-wins"],
        "the file at '/a' is sent instead",
    );
    check(Netlify, "/a /b 301!", &["/a"], &[], "");
    check(
        Cloudflare,
        "/a /b",
        &["/a"],
        &["1 file-hidden"],
        "hides a file",
    );
    check(
        Netlify,
        "/a /gone.html 404",
        &[],
        &["1 target-missing"],
        "'/gone.html'",
    );
    check(Netlify, "/a /gone.html 404", &["/gone.html"], &[], "");
    for target in ["/b/:x", "/b/:splat", "https://matrix.to/#/:x", "/b?c=:x"] {
        let rules = format!("/a/:y {target}");
        check(
            Netlify,
            &rules,
            &[],
            &["1 placeholder-text"],
            "the source has no such",
        );
    }
    check(Netlify, "/a /wiki/Talk:Page#:~:text=x", &[], &[], "");
}
