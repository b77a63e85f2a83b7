//! The file `_headers`: rules, a request, and the fields of its response.

mod rules;

use gannet_content::rules::Compat::{Cloudflare, Kawipiko, Netlify};
use gannet_content::rules::evaluation::TooMuch;
use gannet_content::rules::limits::{FIELD_NAME_MAX, RULED_FIELDS_LEN_MAX, RULED_LINES_MAX};
use gannet_content::rules::matcher::RuleInput;
use gannet_content::rules::problem::Severity;
use gannet_content::rules::steps::Steps;
use gannet_content::rules::table::HeaderTable;
use gannet_content::rules::{Compat, SourceFile, headers};

use rules::Asked;

fn parsed(compat: Compat, text: &str) -> HeaderTable {
    let file = SourceFile {
        path: "_headers",
        text: text.as_bytes(),
    };
    let (headers, problems) = headers::parse(&file, compat);
    assert!(problems.is_empty(), "{}", problems[0]);
    HeaderTable::new(headers)
}

/// Through the bytes that an archive carries.
fn table(compat: Compat, text: &str) -> HeaderTable {
    let table = parsed(compat, text);
    let bytes = table.compile();
    let read = HeaderTable::parse(&bytes).expect("what was compiled is read");
    assert_eq!(read.headers(), table.headers());
    read
}

/// Each row is a request and the fields that result from `defaults`.
fn check_over(compat: Compat, text: &str, defaults: &[(&str, &str)], rows: &[(&str, &str)]) {
    let table = table(compat, text);
    for (asked, expect) in rows {
        let changes = table.changes(&Asked::parse(asked).request(), &Steps::default());
        let changes = changes.expect("not too much");
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), value.as_bytes().to_vec());
        let mut fields: Vec<_> = defaults.iter().map(own).collect();
        changes.apply_to(&mut fields);
        let lines: Vec<String> = fields
            .iter()
            .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)))
            .collect();
        assert_eq!(lines.join(" | "), *expect, "{asked} with {text}");
    }
}

fn check(compat: Compat, text: &str, rows: &[(&str, &str)]) {
    check_over(compat, text, &[], rows);
}

#[test]
fn blocks_give_fields_to_paths() {
    check(
        Netlify,
        "# a comment\n\
         /templates/index.html\n  # another\n  X-Frame-Options: DENY\n\n  X-XSS-Protection: 1; mode=block\n\
         /templates/other.html\n\tX-Frame-Options: SAMEORIGIN\n",
        &[
            (
                "/templates/index.html",
                "x-frame-options: DENY | x-xss-protection: 1; mode=block",
            ),
            ("/templates/other.html", "x-frame-options: SAMEORIGIN"),
            ("/templates/", ""),
        ],
    );
}

/// As the hosts' own libraries have it: Netlify's merges the rules that match by overwriting, and
/// Cloudflare's appends.
#[test]
fn the_last_rule_that_has_a_field_decides_and_on_cloudflare_rules_join() {
    let text = "/*\n  X-A: 1\n  Set-Cookie: a=1\n/assets/*\n  X-A: 2\n  X-B: b\n/*.js\n  X-A: 3\n  X-A: 4\n\
                /assets/:file\n  X-C: c\n  Set-Cookie: b=2\n  Set-Cookie: c=3\n";
    check(
        Netlify,
        text,
        &[
            ("/", "set-cookie: a=1 | x-a: 1"),
            ("/app.js", "set-cookie: a=1 | x-a: 3, 4"),
            ("/assets/a/app.js", "set-cookie: a=1 | x-a: 3, 4 | x-b: b"),
            (
                "/assets/app.css",
                "set-cookie: b=2 | set-cookie: c=3 | x-a: 2 | x-b: b | x-c: c",
            ),
        ],
    );
    check(
        Cloudflare,
        text,
        &[
            (
                "/assets/a/app.js",
                "set-cookie: a=1 | x-a: 1, 2, 3, 4 | x-b: b",
            ),
            (
                "/assets/app.css",
                "set-cookie: a=1 | set-cookie: b=2 | set-cookie: c=3 | x-a: 1, 2 | x-b: b | x-c: c",
            ),
        ],
    );
}

#[test]
fn lines_of_one_rule_are_joined_but_cookies_are_not() {
    for compat in [Netlify, Cloudflare, Kawipiko] {
        check(
            compat,
            "/*\n  cache-control: max-age=0\n  Cache-Control: no-cache\n  cache-control: no-store\n\
             \x20 Set-Cookie: a=1\n  Set-Cookie: b=2\n  Vary: Origin\n  Vary: Cookie\n\
             \x20 Link: </a.css>; rel=preload\n  Link: <https://x.example/>; rel=preconnect\n",
            &[(
                "/x",
                "cache-control: max-age=0, no-cache, no-store | \
                 link: </a.css>; rel=preload, <https://x.example/>; rel=preconnect | \
                 set-cookie: a=1 | set-cookie: b=2 | vary: Origin, Cookie",
            )],
        );
    }
}

/// Text copied from a web page has no-break spaces; some editors align colons.
#[test]
fn white_space_is_before_colons_and_comes_from_web_pages() {
    check(
        Netlify,
        "/*\u{a0}\n\u{a0}\u{a0}X-A : 1\u{a0}\n\t\u{a0}X-B\u{a0}:\u{a0}b c\n\u{a0}\n\u{a0}! X-C\n",
        &[("/x", "x-a: 1 | x-b: b c")],
    );
}

/// A rule that removes a field and a later one that sets it, and the other way round.
#[test]
fn removals_and_later_rules_follow_each_other() {
    let text = "/*\n  X-A: 1\n/a/*\n  ! X-A\n/a/b/*\n  X-A: 2\n/a/b/c/*\n  ! X-A\n";
    for compat in [Netlify, Cloudflare] {
        let rows = [
            ("/x", "x-a: 1"),
            ("/a/x", ""),
            ("/a/b/x", "x-a: 2"),
            ("/a/b/c/x", ""),
        ];
        check_over(compat, text, &[("x-a", "0")], &rows);
    }
}

#[test]
fn a_name_is_removed_and_may_be_set_again() {
    check(
        Cloudflare,
        "/*\n  X-Robots-Tag: noindex\n  X-A: a\n/public/*\n  ! X-Robots-Tag\n/public/again\n  ! X-A\n  X-A: b\n",
        &[
            ("/x", "x-a: a | x-robots-tag: noindex"),
            ("/public/x", "x-a: a"),
            ("/public/again", "x-a: b"),
        ],
    );
}

#[test]
fn rules_replace_and_remove_what_the_server_would_send() {
    check_over(
        Netlify,
        "/*\n  Cache-Control: no-transform\n  ! X-Content-Type-Options\n  Vary: Origin\n/plain/*\n  ! Vary\n",
        &[
            ("cache-control", "no-cache"),
            ("x-content-type-options", "nosniff"),
            ("vary", "accept-encoding"),
            ("referrer-policy", "no-referrer"),
        ],
        &[
            (
                "/x",
                "vary: accept-encoding, Origin | referrer-policy: no-referrer | cache-control: no-transform",
            ),
            (
                "/plain/x",
                "referrer-policy: no-referrer | cache-control: no-transform",
            ),
        ],
    );
}

#[test]
fn urls_limit_rules_to_a_host() {
    let text = "https://myproject.pages.example/*\n  X-Robots-Tag: noindex\n\
                https://:version.:project.pages.example/*\n  X-Version: :version of :project at :splat\n\
                /*\n  X-A: a\n";
    check(
        Cloudflare,
        text,
        &[
            (
                "https://myproject.pages.example/x",
                "x-a: a | x-robots-tag: noindex",
            ),
            (
                "http://MYPROJECT.pages.example:80/x",
                "x-a: a | x-robots-tag: noindex",
            ),
            (
                "https://v1.site.pages.example/a b/c",
                "x-a: a | x-version: v1 of site at a%20b/c",
            ),
            ("https://example.org/", "x-a: a"),
        ],
    );
    assert!(table(Cloudflare, text).has_hosts());
    assert!(!table(Cloudflare, "/*\n  X-A: a").has_hosts());
}

#[test]
fn values_have_placeholders_only_where_the_dialect_has_them() {
    let text = "/movies/:title\n  X-Movie-Name: You are watching \":title\" :other\n";
    let asked = "/movies/a%0D%0Ab";
    assert!(std::panic::catch_unwind(|| Asked::parse(asked)).is_err());
    check(
        Cloudflare,
        text,
        &[
            ("/movies/up", "x-movie-name: You are watching \"up\" :other"),
            (
                "/movies/%22;x",
                "x-movie-name: You are watching \"%22%3Bx\" :other",
            ),
        ],
    );
    check(
        Netlify,
        text,
        &[(
            "/movies/up",
            "x-movie-name: You are watching \":title\" :other",
        )],
    );
    // Bytes that a path cannot have, captured nevertheless, do not end the field.
    let request = RuleInput {
        prefix: b"",
        scheme: gannet_content::rules::pattern::Scheme::Https,
        host: b"x",
        path: b"/movies/a\r\nset-cookie: b",
        query: None,
        language: b"",
    };
    let changes = table(Cloudflare, text).changes(&request, &Steps::default());
    let changes = changes.expect("not too much");
    let value = String::from_utf8_lossy(&changes.set[0].1).into_owned();
    assert!(value.contains("\"a%0D%0Aset-cookie:%20b\""), "{value}");
}

/// What the rules themselves make too much is an error with its line, and no table carries it; what a
/// request makes too much gives it none of the fields.
#[test]
fn fields_of_an_answer_are_bounded() {
    let check = |compat, text: &str, expect: Option<(u32, TooMuch)>| {
        let table = parsed(compat, text);
        let found = table.excess().map(|excess| (excess.line, excess.what));
        assert_eq!(found, expect);
        let problem = table.problem("_headers").map(|it| (it.line, it.severity));
        assert_eq!(problem, expect.map(|(line, _)| (line, Severity::Error)));
        let is_read = HeaderTable::parse(&table.compile()).is_ok();
        assert_eq!(is_read, expect.is_none());
    };
    // Eight bytes for the rest of a line, four for the name.
    let value = |len: usize| "v".repeat(len);
    let third = value(8_180);
    let rest = |more| value(RULED_FIELDS_LEN_MAX - 2 * 8_192 - 12 - 4_108 + more);
    let fields = |more: usize| {
        let (four, last) = (value(4_096), rest(more));
        format!("  x-a1: {third}\n  x-a2: {third}\n  x-a3: {four}\n  x-a4: {last}\n")
    };
    check(Netlify, &format!("/*\n{}", fields(0)), None);
    let excess = Some((5, TooMuch::Bytes));
    check(Netlify, &format!("/*\n{}", fields(1)), excess);
    // In several rules whose paths have one in common.
    let split = fields(1).replacen("  x-a3", "/a/:b\n  x-a3", 1);
    check(Netlify, &format!("/*\n{split}"), Some((6, TooMuch::Bytes)));
    check(Netlify, &format!("/b/*\n{split}"), None);
    // The same field again is no more in one dialect, and joined in the other.
    let again = format!("/a\n  X-A: {}\n", value(1_900)).repeat(20);
    check(Netlify, &again, None);
    check(Cloudflare, &again, Some((26, TooMuch::Bytes)));
    // Cookies count, too, and what is removed does not.
    let cookies = format!("  Set-Cookie: {}\n", value(8_000));
    check(
        Netlify,
        &format!("/*\n{}", cookies.repeat(4)),
        Some((5, TooMuch::Bytes)),
    );
    let removed = format!("/*\n{}/:a\n  ! x-a1\n", fields(1));
    check(Netlify, &removed, excess);
    // Rules that do almost nothing, and very many of them.
    let many = |count: usize| "/*\n  ! X-A\n".repeat(count);
    check(Netlify, &many(RULED_LINES_MAX / 2), None);
    let line = RULED_LINES_MAX as u32 + 2;
    check(
        Netlify,
        &many(RULED_LINES_MAX / 2 + 1),
        Some((line, TooMuch::Lines)),
    );
    // So many that finding them takes more steps than an evaluation has.
    check(Netlify, &many(5_000), Some((2, TooMuch::Steps)));
    // The site of the server's floods is as dear as one may be.
    let dearest = gannet_testkit::long_heads::headers();
    let kind = |text: &str| parsed(Netlify, text).excess().map(|excess| excess.what);
    assert_eq!(kind(&dearest), None);
    let longer = dearest.replacen("x-0: v", "x-0: vv", 1);
    assert_eq!(kind(&longer), Some(TooMuch::Bytes));
    assert_eq!(kind(&(dearest + "  ! x-more\n")), Some(TooMuch::Lines));
    // By the length of a path alone.
    let text = "/:a/*\n  X-A: :splat:splat:splat:splat\n  X-B: b\n";
    check(Cloudflare, text, None);
    let table = parsed(Cloudflare, text);
    let asked = |len: usize| {
        let path = format!("/a/{}", "%\u{e9}".repeat(len));
        let root = Asked::parse("/");
        let request = RuleInput {
            path: path.as_bytes(),
            ..root.request()
        };
        let changes = table.changes(&request, &Steps::default());
        changes.map(|changes| changes.set.len())
    };
    assert_eq!(asked(600), Ok(2));
    let excess = asked(1_200).expect_err("it is too long");
    assert_eq!((excess.line, excess.what), (2, TooMuch::Bytes));
}

#[test]
fn names_of_fields_are_bounded() {
    let name = |len: usize| format!("/*\n  {}: a\n", "n".repeat(len));
    let problems = |text: &str| {
        let file = SourceFile {
            path: "_headers",
            text: text.as_bytes(),
        };
        headers::parse(&file, Netlify).1.len()
    };
    assert_eq!(problems(&name(FIELD_NAME_MAX)), 0);
    assert_eq!(problems(&name(FIELD_NAME_MAX + 1)), 1);
}

/// Where lines join, a field with one value would have several.
#[test]
fn a_joined_field_that_has_one_value_is_reported() {
    let check = |compat, text: &str, expect: &[&str]| {
        let warnings = parsed(compat, text).lint("_headers");
        let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings, expect, "{compat:?} {text}");
    };
    let text = "/*\n  X-Frame-Options: DENY\n  Cache-Control: no-cache\n\
                /embed/*\n  X-Frame-Options: SAMEORIGIN\n  Cache-Control: max-age=1\n";
    let warning = "_headers:5:1: 'x-frame-options' has one value: joined with that of line 2 it means nothing";
    check(Cloudflare, text, &[warning]);
    check(Netlify, text, &[]);
    let removed = text.replace("/embed/*\n", "/embed/*\n  ! X-Frame-Options\n");
    check(Cloudflare, &removed, &[]);
    let same = "/a\n  Content-Type: text/html\n  Content-Type: text/plain\n";
    let warning =
        "_headers:3:1: 'content-type' has one value: joined with that of line 2 it means nothing";
    check(Netlify, same, &[warning]);
}

#[test]
fn a_slash_at_the_end_counts_or_not() {
    let text = "/about\n  X-A: a\n/dir/*\n  X-B: b";
    check(Netlify, text, &[("/about/", "x-a: a"), ("/dir", "x-b: b")]);
    check(
        Cloudflare,
        text,
        &[("/about/", ""), ("/dir", ""), ("/dir/", "x-b: b")],
    );
}

#[test]
fn a_block_changes_as_a_list_of_fields_does() {
    use gannet_content::answer::{Resource, ready_fields};
    use gannet_http::semantics::coding::Coding;
    use gannet_http::semantics::ready_fields::block_lines;
    let ready = ready_fields(&Resource {
        content_type: "text/html",
        coding: Coding::Gzip,
        len: 7,
        entity_tag: "\"x\"",
        last_modified: Some(1_000_000_000),
        vary: Some("accept-encoding"),
        cache_control: Some("no-cache"),
        fields: &[("content-security-policy", b"frame-ancestors 'self'")],
        common: None,
    });
    let ready = ready.expect("fields that may be sent");
    let files = [
        "/*\n  Cache-Control: no-store\n  Vary: Cookie\n  X-A: 1\n",
        "/*\n  ! Vary\n  Content-Type: text/plain\n  Content-Language: de\n",
        "/*\n  ! Content-Security-Policy\n  ! X-Content-Type-Options\n",
        "/*\n  Content-Security-Policy: default-src 'self'\n  Set-Cookie: a=1\n  Set-Cookie: b=2\n",
        "/other\n  X-A: 1\n",
        // Content coded by the server keeps its coding.
        "/*\n  Content-Encoding: br\n  Content-Language: de\n",
    ];
    for text in files {
        let table = table(Netlify, text);
        let changes = table.changes(
            &RuleInput {
                prefix: b"",
                scheme: gannet_content::rules::pattern::Scheme::Http,
                host: b"example.org",
                path: b"/page",
                query: None,
                language: b"",
            },
            &Steps::default(),
        );
        let changes = changes.expect("not too much");
        let fields = |bytes: &[u8]| -> Vec<(String, Vec<u8>)> {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ASCII");
            block_lines(bytes)
                .map(|(name, value, _)| (text(&name.to_ascii_lowercase()), value.to_vec()))
                .collect()
        };
        let mut expect = fields(ready.as_block().bytes);
        changes.apply_to(&mut expect);
        let changed = changes.apply_to_block(ready.as_block()).expect("short");
        let mut found = fields(changed.as_block().bytes);
        expect.sort();
        found.sort();
        assert_eq!(found, expect, "{text}");
    }
}

/// Whatever a path puts into a field counts as what it may put there.
#[test]
fn rules_that_may_forbid_coding_are_known_before_a_request() {
    let check = |compat, value: &str, expect| {
        let text = format!("https://example.org/:word/*\n  Cache-Control: {value}\n");
        let found = table(compat, &text).headers().may_forbid_coding();
        assert_eq!(found, expect, "{compat:?} {value}");
    };
    check(Cloudflare, "max-age=60", false);
    check(Cloudflare, "public, no-transform", true);
    check(Cloudflare, ":word", true);
    check(Cloudflare, "public, no-:word", true);
    // Text, there.
    check(Netlify, ":word", false);
}

/// Users are carried by an archive with their hashes, in a version that an older server refuses;
/// passwords in the clear are not.
#[test]
fn users_are_carried_with_hashes_alone() {
    const HASH: &str = "$2y$10$abcdefghijklmnopqrstuuabcdefghijklmnopqrstuuabcdefghi";
    let text = format!("/in/*\n  Basic-Auth: anna:{HASH} bob:{HASH}\n  X-A: b\n/x\n  X-A: c\n");
    let table = table(Netlify, &text);
    assert_eq!(table.compile()[4], 2, "the version");
    let names = |path: &[u8]| {
        let lists = table.users(path, &Steps::default()).map(|users| {
            let names = users.iter().map(|user| user.name.as_str());
            names.collect::<Vec<_>>().join(",")
        });
        lists.collect::<Vec<_>>()
    };
    assert_eq!(names(b"/in/a"), ["anna,bob"]);
    assert_eq!(names(b"/in"), ["anna,bob"]);
    assert_eq!(names(b"/x"), [""; 0]);
    let again = table.headers().text().expect("a file can say it");
    let expect = format!("/in/*\n  basic-auth: anna:{HASH} bob:{HASH}\n  x-a: b\n/x\n  x-a: c\n");
    assert_eq!(again, expect);
    assert!(table.headers().clear_password("_headers").is_none());
    let mut bytes = table.compile();
    let at = bytes
        .windows(4)
        .position(|it| it == b"$2y$")
        .expect("a hash");
    bytes[at] = b'x';
    assert!(
        HeaderTable::parse(&bytes).is_err(),
        "a password in the clear"
    );
    let file = SourceFile {
        path: "_headers",
        text: b"/a\n  X-A: b\n/b\n  Basic-Auth: a:b\n",
    };
    let (headers, problems) = headers::parse(&file, Netlify);
    assert!(problems.is_empty());
    let problem = headers
        .clear_password("_headers")
        .expect("it is in the clear");
    assert!(
        problem
            .to_string()
            .starts_with("_headers:4:15: found a password in the clear")
    );
}

/// A host is longer in the form that is compared than as it is written.
#[test]
fn an_international_host_that_is_too_long_is_a_problem() {
    let host = ["ü"; 80].join(".");
    let text = format!("https://{host}/*\n  X-A: :splat\n");
    let file = SourceFile {
        path: "_headers",
        text: text.as_bytes(),
    };
    let (headers, problems) = headers::parse(&file, Cloudflare);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(HeaderTable::new(headers).excess().is_none());
}
