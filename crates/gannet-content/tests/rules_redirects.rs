//! The file `_redirects` in its three dialects: rules, a request, its response.

mod rules;

use gannet_content::rules::Compat::{Cloudflare, Kawipiko, Netlify};
use gannet_content::rules::steps::Steps;
use gannet_content::rules::table::RedirectTable;
use gannet_content::rules::{SourceFile, redirects};

use rules::{Asked, answer, check, table, through_bytes};

#[test]
fn a_path_leads_to_a_path_or_a_url() {
    check(
        Netlify,
        "# moved\n\
         /home              /\n\
         /blog/my-post.php  /blog/my-post   # inline comment\n\
         \t/news\t\t/blog\t302\r\n\
         /search            https://search.example/\n\
         /bare              https://search.example\n\
         /shop              https://shop.example/?from=old#top\n\
         /port              http://shop.example:8080/x\n",
        &[
            ("/home", "301 /"),
            ("/blog/my-post.php", "301 /blog/my-post"),
            ("/blog/my-post", "-"),
            ("/news", "302 /blog"),
            ("/search", "301 https://search.example/"),
            ("/bare", "301 https://search.example/"),
            ("/shop", "301 https://shop.example/?from=old#top"),
            ("/shop?a=b", "301 https://shop.example/?from=old#top"),
            ("/port", "301 http://shop.example:8080/x"),
            ("/HOME", "-"),
            ("/", "-"),
        ],
    );
}

#[test]
fn every_status_of_a_dialect_is_taken() {
    for (compat, statuses) in [
        (Netlify, "200 301 302 303 307 308 404 410 451"),
        (Cloudflare, "200 301 302 303 307 308"),
        (Kawipiko, "301 302 303 307 308"),
    ] {
        for status in statuses.split(' ') {
            let rules = format!("/a /b {status}");
            let expect = format!("{status} /b");
            check(compat, &rules, &[("/a", &expect)]);
        }
    }
}

#[test]
fn the_default_status_is_that_of_the_dialect() {
    check(Netlify, "/a /b", &[("/a", "301 /b")]);
    check(Cloudflare, "/a /b", &[("/a", "302 /b")]);
}

#[test]
fn a_splat_takes_the_rest() {
    check(
        Netlify,
        "/news/*  /blog/:splat\n\
         /docs/*  https://docs.example/:splat/ 302\n\
         /app/*   /app/index.html 200\n\
         /drop/*  /elsewhere\n",
        &[
            ("/news/2004/01/my-story", "301 /blog/2004/01/my-story"),
            ("/news/2004/", "301 /blog/2004/"),
            ("/news/", "301 /blog/"),
            ("/news", "301 /blog/"),
            ("/newsletter", "-"),
            ("/docs/a/b", "302 https://docs.example/a/b/"),
            ("/app/any/view", "200 /app/index.html"),
            ("/drop/x/y", "301 /elsewhere"),
            ("/news/a%20b/%C3%A9", "301 /blog/a%20b/%C3%A9"),
            ("/news/a%3Fb%23c", "301 /blog/a%3Fb%23c"),
        ],
    );
}

#[test]
fn a_splat_may_stand_within_a_source() {
    check(
        Cloudflare,
        "/files/v*/latest/:name  /download/:splat/:name\n\
         /*.php                  /pages/:splat\n\
         /pre*                   /p/:splat\n\
         /*/print                /:splat?view=print\n",
        &[
            ("/files/v1.2/latest/x.zip", "302 /download/1.2/x.zip"),
            ("/files/v/latest/x", "302 /download//x"),
            ("/files/v1/a/b/latest/x", "302 /download/1/a/b/x"),
            ("/files/v1/latest", "-"),
            ("/files/v1/latest/", "-"),
            ("/a/b.php", "302 /pages/a/b"),
            ("/.php", "302 /pages/"),
            ("/prefix/more", "302 /p/fix/more"),
            ("/pre", "302 /p/"),
            ("/a/b/print", "302 /a/b?view=print"),
            ("/print", "-"),
        ],
    );
}

#[test]
fn placeholders_take_a_segment_each() {
    check(
        Netlify,
        "/news/:month/:date/:year/:slug  /blog/:year/:month/:date/:slug\n\
         /x/:id                          /blog-:id.html 302\n\
         /u/:name/*                      /people/:name/:splat\n",
        &[
            ("/news/02/12/2004/my-story", "301 /blog/2004/02/12/my-story"),
            ("/news/02/12/2004", "-"),
            ("/news/02/12/2004/a/b", "-"),
            ("/news/02/12/2004/a/", "301 /blog/2004/02/12/a"),
            ("/x/7", "302 /blog-7.html"),
            ("/x/", "-"),
            ("/u/ann/a/b", "301 /people/ann/a/b"),
            ("/u/ann", "301 /people/ann/"),
        ],
    );
}

#[test]
fn cloudflare_has_placeholders_within_segments() {
    check(
        Cloudflare,
        "/movies/:title.html      /film/:title\n\
         /blog-:year/*            /archive/:year/:splat\n\
         /products/:code/:name    /p?code=:code&name=:name\n",
        &[
            ("/movies/up.html", "302 /film/up"),
            ("/movies/a.b.html", "302 /film/a.b"),
            ("/movies/.html", "-"),
            ("/movies/up.htm", "-"),
            ("/blog-2020/x/y", "302 /archive/2020/x/y"),
            ("/blog-/x", "-"),
            ("/products/12/a%26b", "302 /p?code=12&name=a%26b"),
            ("/products/12/a=b", "302 /p?code=12&name=a%3Db"),
        ],
    );
    // There, such a name is text.
    check(
        Netlify,
        "/wiki/Talk:Page /talk\n/w https://wiki.example/wiki/Help:Contents",
        &[
            ("/wiki/Talk:Page", "301 /talk"),
            ("/wiki/Talk:Other", "-"),
            ("/w", "301 https://wiki.example/wiki/Help:Contents"),
        ],
    );
}

#[test]
fn the_first_rule_that_matches_counts() {
    check(
        Netlify,
        "/a/b     /1\n/a/*     /2\n/a/c     /3\n/:x/c    /4\n/*       /5\n/z /6",
        &[
            ("/a/b", "301 /1"),
            ("/a/c", "301 /2"),
            ("/b/c", "301 /4"),
            ("/z", "301 /5"),
            ("/", "301 /5"),
        ],
    );
    check(
        Netlify,
        "/:a/:b/:c /1\n/x/:b/z /2\n/x/y/* /3",
        &[
            ("/x/y/z", "301 /1"),
            ("/x/y/z/w", "301 /3"),
            ("/x/y", "301 /3"),
        ],
    );
}

#[test]
fn a_file_wins_unless_the_rule_is_forced_or_the_dialect_says_otherwise() {
    let rules = "/a /x 301\n/b /y 301!\n/c /z 200!\n/* /index.html 200";
    check(
        Netlify,
        rules,
        &[
            ("FILE /a", "-"),
            ("/a", "301 /x"),
            ("FILE /b", "301 /y"),
            ("FILE /c", "200 /z"),
            ("FILE /style.css", "-"),
            ("/style.css", "200 /index.html"),
        ],
    );
    check(Cloudflare, "/a /x 301", &[("FILE /a", "301 /x")]);
    check(
        Cloudflare,
        "/* /index.html 200",
        &[("FILE /app.js", "-"), ("/page", "200 /index.html")],
    );
    check(Cloudflare, "/* /start 200", &[("FILE /a", "200 /start")]);
    check(Kawipiko, "/a /x 301", &[("FILE /a", "-"), ("/a", "301 /x")]);
    // The first rule that matches decides; a forced one after it is never reached.
    check(Netlify, "/a /x\n/* /y 301!", &[("FILE /a", "-")]);
    assert!(!rules::table(Netlify, "/a /b").wins_over_files());
    assert!(rules::table(Netlify, "/a /b 301!").wins_over_files());
    assert!(rules::table(Cloudflare, "/a /b").wins_over_files());
}

#[test]
fn a_slash_at_the_end_counts_or_not() {
    check(
        Netlify,
        "/old /new\n/dir/ /d\n/ /start",
        &[
            ("/old", "301 /new"),
            ("/old/", "301 /new"),
            ("/dir", "301 /d"),
            ("/", "301 /start"),
        ],
    );
    check(
        Cloudflare,
        "/old /new\n/dir/ /d\n/all/* /x/:splat\n/ /start",
        &[
            ("/old", "302 /new"),
            ("/old/", "-"),
            ("/dir", "-"),
            ("/dir/", "302 /d"),
            ("/all", "-"),
            ("/all/", "302 /x/"),
            ("/", "302 /start"),
        ],
    );
    // A rule can neither add nor remove it where it does not count.
    check(Netlify, "/a /a/\n/b/ /b", &[("/a", "-"), ("/b", "-")]);
    check(Cloudflare, "/a /a/", &[("/a", "302 /a/"), ("/a/", "-")]);
}

#[test]
fn query_parameters_select_rules() {
    check(
        Netlify,
        "/articles  id=:id tag=:tag  /posts/:tag/:id\n\
         /articles  id=:id           /posts/:id 302\n\
         /articles  tag=:tag         /tags/:tag\n\
         /page.php  id=1             /first\n\
         /page.php  id=2  lang=de    /zweite\n\
         /page.php  q=:q             /search?term=:q\n\
         /page.php                   /other\n",
        &[
            ("/articles?id=7&tag=x", "301 /posts/x/7"),
            ("/articles?tag=x&id=7", "301 /posts/x/7"),
            ("/articles?id=7", "302 /posts/7"),
            ("/articles?tag=x", "301 /tags/x"),
            // Others do not undo a rule.
            ("/articles?tag=x&page=2", "301 /tags/x"),
            ("/articles?utm=1&id=7&tag=x&tag=y", "301 /posts/x/7"),
            ("/articles?id=", "-"),
            // The first of a name counts.
            ("/articles?id=1&id=2", "302 /posts/1"),
            ("/articles", "-"),
            ("/page.php?id=1", "301 /first"),
            ("/page.php?id=%31", "301 /first"),
            ("/page.php?lang=de&id=2", "301 /zweite"),
            ("/page.php?id=2", "301 /other?id=2"),
            ("/page.php?id=12", "301 /other?id=12"),
            ("/page.php?q=a%26b+c", "301 /search?term=a%26b%20c"),
            ("/page.php", "301 /other"),
            ("/articles?id=..%2F..%2Fx", "302 /posts/../../x"),
            ("/articles?&id=7&", "302 /posts/7"),
        ],
    );
}

/// Addresses have colons in them, and what hosts do not know as a placeholder they send as it is.
#[test]
fn colons_of_no_placeholder_are_text() {
    check(
        Netlify,
        "/share https://x.example/:w:/r/sites/a\n\
         /quote /page#:~:text=foo\n\
         /room https://matrix.to/#/:room\n\
         /some/:a /x/:b/:splat/:a\n\
         /pre-:x.html /new/:x\n",
        &[
            ("/share", "301 https://x.example/:w:/r/sites/a"),
            ("/quote", "301 /page#:~:text=foo"),
            ("/room", "301 https://matrix.to/#/:room"),
            ("/some/1", "301 /x/:b/:splat/1"),
            ("/pre-:x.html", "301 /new/:x"),
        ],
    );
    check(
        Cloudflare,
        "/pre-:x.html /new/:x/:y",
        &[("/pre-1.html", "302 /new/1/:y")],
    );
}

/// Rules that were copied from a page have spaces that do not break.
#[test]
fn columns_are_separated_by_any_space() {
    check(
        Netlify,
        "/a\u{a0}/b\u{a0}\u{a0}302\n\u{a0}\n\u{2003}/c \u{a0}/d\n",
        &[("/a", "302 /b"), ("/c", "301 /d")],
    );
}

#[test]
fn the_query_is_passed_on_unless_the_target_has_one() {
    check(
        Netlify,
        "/a /b\n/c /d?x=1\n/e /f#part\n/g/* https://h.example/:splat",
        &[
            ("/a?x=1&y=%20", "301 /b?x=1&y=%20"),
            ("/a?", "301 /b?"),
            ("/c?y=2", "301 /d?x=1"),
            ("/e?y=2", "301 /f?y=2#part"),
            ("/g/h?z", "301 https://h.example/h?z"),
            ("/a?\"<>\\^", "301 /b?%22%3C%3E%5C^"),
        ],
    );
}

#[test]
fn hosts_and_schemes_limit_rules() {
    check(
        Netlify,
        "http://blog.example.com/*   https://www.example.com/blog/:splat 301!\n\
         https://blog.example.com/*  https://www.example.com/blog/:splat 301!\n\
         https://shop.example.com/x  /only-tls\n\
         http://example.com          https://example.com/ 308!\n\
         /any                        /one\n",
        &[
            (
                "http://blog.example.com/a/b",
                "301 https://www.example.com/blog/a/b",
            ),
            (
                "https://blog.example.com/a",
                "301 https://www.example.com/blog/a",
            ),
            (
                "FILE https://blog.example.com/a",
                "301 https://www.example.com/blog/a",
            ),
            (
                "https://BLOG.example.com:8443/a",
                "301 https://www.example.com/blog/a",
            ),
            (
                "https://blog.example.com./a",
                "301 https://www.example.com/blog/a",
            ),
            ("https://other.example.com/a", "-"),
            ("https://shop.example.com/x", "301 /only-tls"),
            ("http://shop.example.com/x", "-"),
            ("http://example.com/", "308 https://example.com/"),
            ("https://example.com/", "-"),
            ("http://shop.example.com/any", "301 /one"),
        ],
    );
}

#[test]
fn a_redirect_to_where_the_request_is_gives_way() {
    check(
        Netlify,
        "/* https://www.example.com/:splat 301!\n/old /new\n/same /same\n/* /fallback 200",
        &[
            ("https://example.com/old", "301 https://www.example.com/old"),
            ("https://www.example.com/old", "301 /new"),
            ("https://www.example.com/same", "200 /fallback"),
            ("http://www.example.com/x", "301 https://www.example.com/x"),
        ],
    );
    check(
        Netlify,
        "/a x=1 /a\n/b x=1 /b?x=1\n/c /c?x=1\n/d /d#part",
        &[
            ("/a?x=1", "301 /a"),
            ("/b?x=1", "-"),
            ("/c?x=1", "-"),
            ("/d", "-"),
        ],
    );
}

#[test]
fn nothing_in_a_request_names_another_host_or_ends_the_field() {
    check(
        Cloudflare,
        "/to/*          /:splat\n\
         /x*            /:splat\n\
         /u/:name       https://u.example/:name\n\
         /q/:v          /find?q=:v\n\
         /f/:v          /page#:v\n",
        &[
            ("/to//evil.example/", "302 /evil.example/"),
            ("/x//evil.example", "302 /evil.example"),
            ("/to/@evil.example", "302 /@evil.example"),
            ("/to/https:evil.example", "302 /https:evil.example"),
            ("/q/a%26b%23c", "302 /find?q=a%26b%23c"),
            ("/f/%3Cb%3E", "302 /page#%3Cb%3E"),
        ],
    );
    let table = rules::table(
        Cloudflare,
        "/to/* /:splat\n/u/:name https://u.example/:name\n/* /:splat/",
    );
    // A path that no decoder returns, as if one had failed.
    for (path, expect) in [
        (b"/to//evil.example".as_slice(), "302 /evil.example"),
        (b"/to/\\evil.example", "302 /%5Cevil.example"),
        (b"/to/a\r\nset-cookie: x", "302 /a%0D%0Aset-cookie:%20x"),
        (b"/u/.evil.example", "302 https://u.example/.evil.example"),
        (b"/u/\xff\x00", "302 https://u.example/%FF%00"),
        (b"", "302 /"),
        (b"no-slash", "302 /no-slash/"),
    ] {
        let request = gannet_content::rules::matcher::RuleInput {
            prefix: b"",
            scheme: gannet_content::rules::pattern::Scheme::Https,
            host: b"example.org",
            path,
            query: None,
            language: b"",
        };
        let mut out = Vec::new();
        table.decide(&request, false, &Steps::default(), &mut out);
        assert_eq!(format!("302 {}", String::from_utf8_lossy(&out)), expect);
    }
}

#[test]
fn targets_are_written_as_uris() {
    check(
        Netlify,
        "/a /é/\"x\"\n/b /%C3%A9\n/c HTTPS://Example.COM/Path\n/d https://[2001:db8::1]:8080/\n/%C3%A9t%C3%A9 /summer\n/été2 /s2",
        &[
            ("/a", "301 /%C3%A9/%22x%22"),
            ("/b", "301 /%C3%A9"),
            ("/c", "301 https://example.com/Path"),
            ("/d", "301 https://[2001:db8::1]:8080/"),
            ("/%c3%a9t%C3%A9", "301 /summer"),
            ("/été2", "301 /s2"),
        ],
    );
}

#[test]
fn content_targets_are_paths_in_canonical_form() {
    check(
        Netlify,
        "/a /b/../c 200\n/p/* /:splat 404\n/q/* /d/:splat/index.html 200\n/up /../x 200",
        &[
            ("/a", "200 /c"),
            ("/p/x/y", "404 /x/y"),
            ("/q/caf%C3%A9", "200 /d/café/index.html"),
            ("/up", "-"),
        ],
    );
}

#[test]
fn the_ipfs_specification_of_the_file_is_followed() {
    // web-redirects-file: placeholders, splat, order, no forced rules needed, 404/410/451.
    check(
        Netlify,
        "/posts/:month/:day/:year/:slug  /articles/:year/:month/:day/:slug  301\n\
         /moved/*                        /articles/:splat\n\
         /en/*                           /en/404.html  404\n\
         /gone/*                         /gone.html    410\n\
         /legal/*                        /legal.html   451\n\
         /unicode/😀                     /smile\n\
         /*                              /index.html   200\n",
        &[
            (
                "/posts/06/15/2022/hello-world",
                "301 /articles/2022/06/15/hello-world",
            ),
            (
                "/moved/2022/06/15/hello-world",
                "301 /articles/2022/06/15/hello-world",
            ),
            ("/en/nothing/here", "404 /en/404.html"),
            ("/gone/x", "410 /gone.html"),
            ("/legal/x", "451 /legal.html"),
            ("/unicode/%F0%9F%98%80", "301 /smile"),
            ("/anything", "200 /index.html"),
            ("FILE /en/page", "-"),
            ("/posts/06/15/2022", "200 /index.html"),
        ],
    );
}

#[test]
fn kawipiko_has_hosts_folders_and_catch_alls() {
    let files = [
        (
            "_redirects",
            "/old /new 301\n\
             /a:b/* /:literal 302\n\
             /a:b/*/d* /star 302\n\
             /a:b/c/d/* /deeper 302\n\
             /a:b/c/e ../e?q 303\n\
             ://h.example/* /host 301\n\
             ://h.example/x https://other.example/y 303\n\
             ://*/any /host 301\n\
             http://i.example/x /plain 307\n\
             https://j.example /root 308\n\
             ./here /there 301\n",
        ),
        (
            "docs/v 1/_redirects.txt",
            "./intro ./start 302\n./ /docs/ 301\n./in/* /docs/* 301\n",
        ),
    ];
    let files = files.map(|(path, text)| SourceFile {
        path,
        text: text.as_bytes(),
    });
    let (redirects, problems) = redirects::parse(&files, Kawipiko);
    assert_eq!(problems, []);
    let table = through_bytes(RedirectTable::new(redirects));
    for (asked, expect) in [
        ("/old", "301 /new"),
        ("/old/", "-"),
        ("/a:b/*", "302 /:literal"),
        ("/a:b/c", "302 /:literal"),
        ("/a:b/", "302 /:literal"),
        ("/a:b", "-"),
        ("/a:b/*/d*", "302 /star"),
        ("/a:b/*/dx", "302 /:literal"),
        ("/a:b/c/d/f/g", "302 /deeper"),
        ("/a:b/c/e", "303 /a:b/e?q"),
        ("https://h.example/old", "301 /host"),
        ("FILE https://h.example/old", "301 /host"),
        ("FILE /old", "-"),
        ("https://h.example/x", "303 https://other.example/y"),
        ("http://h.example/x", "303 https://other.example/y"),
        ("https://i.example/x", "307 /plain"),
        ("http://j.example/", "308 /root"),
        ("https://k.example/any", "301 /host"),
        ("FILE https://h.example/any", "301 /host"),
        ("/x", "-"),
        ("/here", "301 /there"),
        ("/docs/v%201/intro", "302 /docs/v%201/start"),
        ("/docs/v%201/in/x", "301 /docs/*"),
        ("/docs/v%201/in", "-"),
        ("/docs/v%201/", "301 /docs/"),
        ("/old?q=1", "301 /new?q=1"),
    ] {
        assert_eq!(answer(&table, asked), expect, "{asked}");
    }
}

#[test]
fn only_the_file_at_the_root_counts_elsewhere() {
    let file = SourceFile {
        path: "docs/_redirects",
        text: b"nonsense",
    };
    for compat in [Netlify, Cloudflare] {
        let (redirects, problems) = redirects::parse(&[file], compat);
        assert_eq!((redirects.rules.len(), problems.len()), (0, 0));
    }
}

/// Netlify: the first language of the client, and its regions.
#[test]
fn rules_for_languages() {
    let rules = "/ /de/ 302! Language=de,gsw-ch\n\
                 /docs/* /de/:splat 200 Language=de\n\
                 /docs/* /zh/:splat 302 Language=ZH-Hant\n\
                 /docs/* /en/:splat 302\n\
                 /shop id=:id /de/shop/:id Language=de\n\
                 /shop id=:id /en/shop/:id\n\
                 /lower language=it /query\n\
                 /lower /it 302 language=IT\n";
    check(
        Netlify,
        rules,
        &[
            ("/", "-"),
            ("[de-AT] /", "302 /de/"),
            ("[de] FILE /", "302 /de/"),
            ("[GSW-CH] /", "302 /de/"),
            ("[gsw] /", "-"),
            ("[den] /", "-"),
            ("[de] /docs/a", "200 /de/a"),
            ("[de] FILE /docs/a", "-"),
            ("[zh-hant-TW] /docs/a", "302 /zh/a"),
            ("[zh] /docs/a", "302 /en/a"),
            ("/docs/a", "302 /en/a"),
            ("[de] /shop?id=7", "301 /de/shop/7"),
            ("[fr] /shop?id=7", "301 /en/shop/7"),
            ("[it] /lower", "302 /it"),
            ("/lower", "-"),
            ("/lower?language=it", "301 /query"),
        ],
    );
    let table = table(Netlify, rules);
    let varies = |asked: &str| {
        let asked = Asked::parse(asked);
        table.varies_by_language(&asked.request(), asked.has_file, &Steps::default())
    };
    assert!(varies("/") && varies("FILE /"), "a forced rule");
    assert!(varies("/docs/a") && varies("[de] /docs/a"));
    assert!(!varies("FILE /docs/b"), "the file wins in any language");
    assert!(!varies("/other"));
}

#[test]
fn bytes_with_languages_have_a_version_of_their_own() {
    let with = table(Netlify, "/a /b 302 Language=de\n").compile();
    let without = table(Netlify, "/a /b 302\n").compile();
    assert_eq!((with[4], without[4]), (2, 1));
    for (at, byte) in [(with.len() - 2, b'D'), (with.len() - 1, b'-'), (5, 1)] {
        let mut wrong = with.clone();
        wrong[at] = byte;
        assert!(RedirectTable::parse(&wrong).is_err(), "{at}");
    }
    let mut empty = without.clone();
    empty[4] = 2;
    empty.extend_from_slice(&[0; 4]);
    assert!(
        RedirectTable::parse(&empty).is_err(),
        "one form for each table"
    );
}

/// Clients write queries: a long one takes no rule away that hides a file.
#[test]
fn a_long_query_keeps_rules_without_parameters() {
    let long: String = (0..1_000).map(|number| format!("&abc{number}")).collect();
    let asked = format!("/secret/a.txt?{}", &long[1..]);
    check(
        Netlify,
        "/store id=:id /blog/:id 301\n/secret/* /nope 404!\n",
        &[("/secret/a.txt", "404 /nope"), (&asked, "404 /nope")],
    );
}
