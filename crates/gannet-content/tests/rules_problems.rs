//! Problems of a rules file: line and column, what was found, what was expected.

use gannet_content::rules::Compat::{Cloudflare, Kawipiko, Netlify};
use gannet_content::rules::problem::{Problem, Severity};
use gannet_content::rules::{Compat, SourceFile, headers, redirects};

fn problems(compat: Compat, path: &str, text: &[u8]) -> Vec<Problem> {
    let file = SourceFile { path, text };
    if path.contains("_headers") {
        headers::parse(&file, compat).1
    } else {
        redirects::parse(&[file], compat).1
    }
}

/// The only problem of a text, and the beginning of its message.
fn check(compat: Compat, path: &str, text: &str, expect: &str) {
    let problems = problems(compat, path, text.as_bytes());
    let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 1, "{text:?}: {shown:?}");
    assert_eq!(problems[0].severity, Severity::Error);
    assert!(
        shown[0].contains(expect),
        "{text:?}: {}, not {expect}",
        shown[0]
    );
    assert!(!shown[0].contains('\n'));
}

#[test]
fn problems_of_netlify_redirects() {
    for (text, expect) in [
        ("/a", "_redirects:1:3: found nothing, expected a target"),
        ("/a # /b", "expected a target"),
        (
            "a /b",
            ":1:1: found 'a', expected a path that starts with '/'",
        ),
        (
            "/a b",
            ":1:4: found 'b', expected a path that starts with '/', or",
        ),
        ("/a  //b", ":1:5: found '//b'"),
        ("/a /\\b", ":1:4: found '/\\\\b'"),
        ("/a ftp://b/", "'http://' or 'https://' URL"),
        ("/a javascript:alert(1)", "found 'javascript:alert(1)'"),
        ("/a https:///x", "a host name"),
        ("/a https://:x.example/", "without placeholders"),
        ("/a https://u:p@h/", "a host name"),
        (
            "/a /b 399",
            ":1:7: found '399', expected a status: 200, 301, 302, 303, 307, 308, 404",
        ),
        ("/a /b moved", "expected a status"),
        (
            "/a /b 301 /c",
            ":1:11: found '/c', expected the end of the line",
        ),
        ("/a /b 301!!", "expected a status"),
        ("/a/:x/:x /b", "':x' twice"),
        ("/a/*/b/* /c", ":1:8: found a second '*'"),
        ("/a//b /c", ":1:4: found two slashes"),
        ("/a/../b /c", "without '.' and '..'"),
        (
            "/a?x=1 /c",
            ":1:3: found '?x=1', expected a path without query",
        ),
        ("/a%zz /c", ":1:3: found '%zz'"),
        ("/a%2fb /c", "a character that a path can have"),
        ("/a /b%", "two hexadecimal digits"),
        (
            "/api/* https://api.example/:splat 200",
            "a path of this site with the status 200",
        ),
        ("/a https://e.example/404.html 404", "with the status 404"),
        (
            "/a /b 302 Country=de,at",
            ":1:11: found 'Country=de,at', expected no condition",
        ),
        (
            "/a /b 302 Language=de_AT",
            ":1:11: found 'Language=de_AT', expected languages such as 'Language=en,zh-hant'",
        ),
        ("/a /b Role=admin", ":1:7: found 'Role=admin'"),
        (
            "/a /b 302 country=de",
            ":1:11: found 'country=de', expected no",
        ),
        ("/a /b 302 language=de_AT", "expected languages such as"),
        ("/admin/* 200! Role=admin", ":1:15: found 'Role=admin'"),
        ("/a Country=de /b", ":1:4: found 'Country=de'"),
        ("/a id=1 id=2 /b", "'id' twice"),
        ("/a =1 /b", "a query parameter"),
        ("./a /b", "found './a'"),
        (
            "http://h.example:80/ /b",
            "found ':80', expected a host without port",
        ),
        ("http://*.example/ /b", "a host without '*'"),
        ("/a /b\u{1}", "no control characters"),
        ("/:a*/x /b", "at most one '*' or placeholder"),
    ] {
        check(Netlify, "_redirects", text, expect);
    }
}

#[test]
fn what_no_request_can_match_is_explained() {
    for (text, expect) in [
        ("/a?x=1 /c", "a query is matched by its parameters"),
        ("/a/#x?y=1 /c", "clients do not send what follows '#'"),
    ] {
        let found = problems(Netlify, "_redirects", text.as_bytes());
        let help = found[0].what.help().expect(text);
        assert!(help.starts_with(expect), "{help}");
    }
}

#[test]
fn problems_of_the_other_dialects() {
    for (text, expect) in [
        (
            "/a id=:id /b",
            "found 'id=:id', expected a target: Cloudflare matches no queries",
        ),
        (
            "/a /b 404",
            "expected a status: 200, 301, 302, 303, 307, 308",
        ),
        (
            "/a /b 301!",
            ":1:10: found '!', expected a status without '!'",
        ),
        (
            "https://h.example/ /b",
            "Cloudflare has no sources with a host",
        ),
        ("/:a-:b /b", "at most one '*' or placeholder"),
    ] {
        check(Cloudflare, "_redirects", text, expect);
    }
    for (text, expect) in [
        ("/a /b", "found 2 fields, expected exactly three"),
        ("/a /b 301 x", ":1:11: found 4 fields"),
        ("/a /b 200", "expected a status: 301, 302, 303, 307, 308"),
        ("/a /b 301!", "found '!'"),
        ("a /b 301", "expected a source"),
        ("//h/a /b 301", "expected a source"),
        ("://h:80/a /b 301", "a host without port"),
    ] {
        check(Kawipiko, "_redirects", text, expect);
    }
    check(
        Kawipiko,
        "docs/_redirects",
        "/a /b 301",
        "a source relative to its folder",
    );
}

#[test]
fn the_limits_of_cloudflare_hold() {
    let line = format!("/{} /b", "a".repeat(1000));
    check(
        Cloudflare,
        "_redirects",
        &line,
        "a line of 1004 characters, expected at most 1000",
    );
    assert_eq!(problems(Netlify, "_redirects", line.as_bytes()), []);

    let mut rules: String = (0..2000).map(|n| format!("/{n} /x\n")).collect();
    assert_eq!(problems(Cloudflare, "_redirects", rules.as_bytes()), []);
    rules.push_str("/last /x\n");
    check(
        Cloudflare,
        "_redirects",
        &rules,
        "_redirects:2001:1: found more than 2000 static",
    );

    // From the first dynamic rule on, all count as dynamic.
    let mut rules = String::from("/a/* /x\n");
    rules.extend((1..100).map(|n| format!("/{n} /x\n")));
    assert_eq!(problems(Cloudflare, "_redirects", rules.as_bytes()), []);
    rules.push_str("/last /x\n");
    check(
        Cloudflare,
        "_redirects",
        &rules,
        ":101:1: found more than 100 rules from",
    );
}

#[test]
fn all_problems_are_found_and_good_lines_kept() {
    let file = SourceFile {
        path: "_redirects",
        text: b"\xef\xbb\xbf/a /b\n/bad\n\n# note\n/c /d 999\n\xff /x\n/e /f\n",
    };
    let (redirects, problems) = redirects::parse(&[file], Netlify);
    let lines: Vec<(u32, u32)> = problems.iter().map(|it| (it.line, it.column)).collect();
    assert_eq!(lines, [(2, 5), (5, 7), (6, 1)]);
    let lines: Vec<u32> = redirects.rules.iter().map(|rule| rule.place.line).collect();
    assert_eq!(lines, [1, 7]);
    let noise = b"x\n".repeat(5000);
    assert_eq!(self::problems(Netlify, "_redirects", &noise).len(), 1000);
}

#[test]
fn columns_count_characters() {
    check(
        Netlify,
        "_redirects",
        "/é\u{4e00}  /b  9",
        ":1:10: found '9'",
    );
}

#[test]
fn problems_of_headers() {
    for (text, expect) in [
        (
            "  X-A: b",
            "_headers:1:3: found 'X-A: b', expected a path or URL before any field",
        ),
        (
            "/a\n  nonsense",
            ":2:3: found 'nonsense', expected a field, 'Name: value'",
        ),
        ("/a\n  X-A:", ":2:7: found no value"),
        ("/a\n  X A: b", ":2:3: found 'X A', expected a field name"),
        ("/a\n  : b", "expected a field name"),
        (
            "/a\n  Content-Length: 5",
            ":2:3: found 'Content-Length', expected a field that is not",
        ),
        ("/a\n  transfer-encoding: chunked", "the server's own"),
        ("/a\n  Connection: close", "the server's own"),
        ("/a\n  Date: today", "the server's own"),
        (
            "/a\n  ! ETag",
            ":2:5: found 'ETag', expected a field that is not",
        ),
        (
            "/a\n  Basic-Auth: a:b c",
            ":2:19: found no colon, expected 'user:password'",
        ),
        (
            "/a\n  Basic-Auth: a:b\n  basic-auth: c:d a:e",
            ":3:14: found the same user again",
        ),
        (
            "https://h.example/a\n  Basic-Auth: a:b",
            ":2:1: found passwords for a host, expected a rule for a path alone",
        ),
        ("/a\n  ! Basic-Auth", "expected users after it"),
        (
            "/a b\n  X-A: b",
            ":1:4: found 'b', expected the end of the line",
        ),
        ("/a/*/*\n  X-A: b", "a second '*'"),
        ("https://h.example:8080/\n  X-A: b", "a host without port"),
        ("https://*.example/\n  X-A: b", "a host without '*'"),
        ("/a\n  !\n", "expected a field name"),
    ] {
        check(Netlify, "_headers", text, expect);
    }
    let mut rules: String = (0..100).map(|n| format!("/{n}\n  X-A: b\n")).collect();
    assert_eq!(problems(Cloudflare, "_headers", rules.as_bytes()), []);
    rules.push_str("/last\n  X-A: b\n");
    check(Cloudflare, "_headers", &rules, "more than 100 rules");
    let line = format!("/a\n  X-A: {}", "b".repeat(2000));
    check(Cloudflare, "_headers", &line, "expected at most 2000");
    let many: String = (0..65).map(|n| format!("  X-{n}: b\n")).collect();
    check(
        Netlify,
        "_headers",
        &format!("/a\n{many}"),
        "at most 64 in a rule",
    );
}
