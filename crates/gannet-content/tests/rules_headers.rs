//! The file `_headers`: rules, a request, and the fields of its response.

mod rules;

use gannet_content::rules::Compat::{Cloudflare, Netlify};
use gannet_content::rules::table::HeaderTable;
use gannet_content::rules::{Compat, SourceFile, headers};

use rules::Asked;

fn table(compat: Compat, text: &str) -> HeaderTable {
    let file = SourceFile {
        path: "_headers",
        text: text.as_bytes(),
    };
    let (headers, problems) = headers::parse(&file, compat);
    assert!(problems.is_empty(), "{}", problems[0]);
    let table = HeaderTable::new(headers);
    let bytes = table.compile();
    let read = HeaderTable::parse(&bytes).expect("what was compiled is read");
    assert_eq!(read.headers(), table.headers());
    read
}

/// Each row is a request and the fields that result from `defaults`.
fn check_over(compat: Compat, text: &str, defaults: &[(&str, &str)], rows: &[(&str, &str)]) {
    let table = table(compat, text);
    for (asked, expect) in rows {
        let changes = table.changes(&Asked::parse(asked).request());
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

#[test]
fn all_rules_that_match_apply_in_order() {
    check(
        Netlify,
        "/*\n  X-A: 1\n/assets/*\n  X-A: 2\n  X-B: b\n/*.js\n  X-A: 3\n/assets/:file\n  X-C: c\n",
        &[
            ("/", "x-a: 1"),
            ("/app.js", "x-a: 1, 3"),
            ("/assets/a/app.js", "x-a: 1, 2, 3 | x-b: b"),
            ("/assets/app.css", "x-a: 1, 2 | x-b: b | x-c: c"),
        ],
    );
}

#[test]
fn repeated_names_are_joined_but_cookies_are_not() {
    check(
        Netlify,
        "/*\n  cache-control: max-age=0\n  Cache-Control: no-cache\n  cache-control: no-store\n\
         \x20 Set-Cookie: a=1\n  Set-Cookie: b=2\n  Link: </a.css>; rel=preload\n  Link: <https://x.example/>; rel=preconnect\n",
        &[(
            "/x",
            "cache-control: max-age=0, no-cache, no-store | set-cookie: a=1 | set-cookie: b=2 | \
             link: </a.css>; rel=preload, <https://x.example/>; rel=preconnect",
        )],
    );
}

#[test]
fn a_name_is_removed_and_may_be_set_again() {
    check(
        Cloudflare,
        "/*\n  X-Robots-Tag: noindex\n  X-A: a\n/public/*\n  ! X-Robots-Tag\n/public/again\n  ! X-A\n  X-A: b\n",
        &[
            ("/x", "x-robots-tag: noindex | x-a: a"),
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
                "x-robots-tag: noindex | x-a: a",
            ),
            (
                "http://MYPROJECT.pages.example:80/x",
                "x-robots-tag: noindex | x-a: a",
            ),
            (
                "https://v1.site.pages.example/a b/c",
                "x-version: v1 of site at a%20b/c | x-a: a",
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
    let request = gannet_content::rules::matcher::RuleInput {
        scheme: gannet_content::rules::pattern::Scheme::Https,
        host: b"x",
        path: b"/movies/a\r\nset-cookie: b",
        query: None,
        language: b"",
    };
    let changes = table(Cloudflare, text).changes(&request);
    let value = String::from_utf8_lossy(&changes.set[0].1).into_owned();
    assert!(value.contains("\"a%0D%0Aset-cookie:%20b\""), "{value}");
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
        let changes = table.changes(&gannet_content::rules::matcher::RuleInput {
            scheme: gannet_content::rules::pattern::Scheme::Http,
            host: b"example.org",
            path: b"/page",
            query: None,
            language: b"",
        });
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
        let lists = table.users(path).map(|users| {
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
