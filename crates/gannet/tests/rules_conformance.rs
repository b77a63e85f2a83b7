//! The manual's tables of whose file `_redirects` and `_headers` is, row by row over HTTP, in both
//! modes; and the example of the IPFS document (Web _redirects File Specification, appendix).

mod support;

use support::client::Client;
use support::{Folder, Gannet, gannet_in};

const COMPATS: [&str; 3] = ["netlify", "cloudflare", "kawipiko"];

/// A site as a directory and as an archive under one reading; the cause if it is refused.
fn both(site: &Folder, out: &Folder, compat: &str) -> Result<[Gannet; 2], String> {
    let archive = out.join("site.gannet");
    let text = archive.to_str().expect("UTF-8");
    let packed = gannet_in(
        site,
        ["pack", ".", "--fast", "-q", "--compat", compat, "-o", text],
    );
    if packed.status != Some(0) {
        let live = gannet_in(site, ["serve", ".", "--port", "0", "--compat", compat]);
        assert_eq!(live.status, Some(1), "serving takes what packing refuses");
        return Err(packed.err);
    }
    let live = ["--no-listing", "--compat", compat];
    Ok([
        Gannet::serve(site.path(), &live),
        Gannet::serve(&archive, &[]),
    ])
}

fn site(redirects: &str) -> Folder {
    let site = Folder::new();
    site.write("index.html", "front");
    site.write("kept.html", "kept");
    site.write("gone.html", "gone");
    site.write("_redirects", redirects);
    site
}

/// Answers in short, by host and target: status, then location or content.
fn answer(server: &Gannet, host: &str, target: &str) -> String {
    let mut client = Client::new(server);
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    let response = client.response();
    match (response.field("location"), response.status) {
        (Some(location), status) => format!("{status} {location}"),
        // A page of the server's own.
        (None, 404) if response.text().starts_with("<!doctype") => "404".to_owned(),
        (None, status) => format!("{status} {}", response.text()),
    }
}

/// What is refused when the site is packed, and when it is served.
const REFUSED: &str = "refused";

#[test]
fn each_row_of_the_table_of_redirects() {
    // A rule, a target, and the answers as netlify, cloudflare and kawipiko read the rule.
    let rows: &[(&str, &str, [&str; 3])] = &[
        ("/kept /x 302", "/kept", ["200 kept", "302 /x", "200 kept"]),
        ("/kept /x 302!", "/kept", ["302 /x", REFUSED, REFUSED]),
        ("/a /x", "/a", ["301 /x", "302 /x", REFUSED]),
        ("/a /x 303", "/a", ["303 /x"; 3]),
        ("/a /x 307", "/a", ["307 /x"; 3]),
        ("/a /x 308", "/a", ["308 /x"; 3]),
        ("/a /kept 200", "/a", ["200 kept", "200 kept", REFUSED]),
        ("/a /gone 404", "/a", ["404 gone", REFUSED, REFUSED]),
        ("/a /gone 410", "/a", ["410 gone", REFUSED, REFUSED]),
        ("/a /gone 451", "/a", ["451 gone", REFUSED, REFUSED]),
        ("/a /x 305", "/a", [REFUSED; 3]),
        ("/a /x 302", "/a/", ["302 /x", "404", "404"]),
        (
            "/b/* /c/:splat 302",
            "/b/d/e",
            ["302 /c/d/e", "302 /c/d/e", "404"],
        ),
        ("/b/* /c/ 302", "/b", ["302 /c/", "404", "404"]),
        ("/b/:id /c/:id 302", "/b/d", ["302 /c/d", "302 /c/d", "404"]),
        (
            "/b/p-:id /c/:id 302",
            "/b/p-7",
            [REFUSED, "302 /c/7", "404"],
        ),
        ("/:a-:b /c 302", "/x-y", [REFUSED, REFUSED, "404"]),
        (
            "/s id=:id /p/:id 302",
            "/s?id=7",
            ["302 /p/7", REFUSED, REFUSED],
        ),
        (
            "/s id=:id /p/:id 302",
            "/s?id=7&x=1",
            ["404", REFUSED, REFUSED],
        ),
        ("/a /x 302 Country=us", "/a", [REFUSED; 3]),
        ("/a https://other.example/ 200", "/a", [REFUSED; 3]),
        (
            "/a https://other.example/ 302",
            "/a",
            ["302 https://other.example/"; 3],
        ),
        (
            "http://h.example/a /x 302",
            "/a",
            ["302 /x", REFUSED, "302 /x"],
        ),
        (
            "https://h.example/a /x 302",
            "/a",
            ["404", REFUSED, "302 /x"],
        ),
        ("://h.example/a /x 302", "/a", [REFUSED, REFUSED, "302 /x"]),
    ];
    let out = Folder::new();
    let mut wrong = Vec::new();
    for (rule, target, expect) in rows {
        for (compat, expect) in COMPATS.iter().zip(expect) {
            let got = match both(&site(rule), &out, compat) {
                Err(cause) => {
                    assert!(cause.contains("_redirects:1:"), "{rule}: {cause}");
                    vec![REFUSED.to_owned()]
                }
                Ok(servers) => servers.map(|it| answer(&it, "h.example", target)).to_vec(),
            };
            if got.iter().any(|got| got != expect) {
                wrong.push(format!("{compat}: {rule}: {target}: {got:?}, not {expect}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_numbers_of_rules_and_characters() {
    let redirects = |count: usize| (0..count).map(|n| format!("/a{n} /x 302\n")).collect();
    let dynamic = |count: usize| (0..count).map(|n| format!("/a{n}/* /x 302\n")).collect();
    // A file, and whether netlify and cloudflare take it.
    let rows: [(String, [bool; 2]); 6] = [
        (redirects(2_000), [true, true]),
        (redirects(2_001), [true, false]),
        (dynamic(100), [true, true]),
        (dynamic(101), [true, false]),
        (format!("/{} /x 302\n", "a".repeat(980)), [true, true]),
        (format!("/{} /x 302\n", "a".repeat(1_000)), [true, false]),
    ];
    let out = Folder::new();
    for (file, expect) in rows {
        for (compat, is_taken) in COMPATS.iter().zip(expect) {
            let got = both(&site(&file), &out, compat).is_ok();
            assert_eq!(got, is_taken, "{compat}: {} bytes", file.len());
        }
    }
}

#[test]
fn each_row_of_the_table_of_fields() {
    // A source, a value, a target, and the values as the three read them.
    let rows: &[(&str, &str, &str, [Option<&str>; 3])] = &[
        ("/*", "all", "/nothing", [Some("all"); 3]),
        (
            "/b/*",
            "x:splat",
            "/b/c",
            [Some("x:splat"), Some("xc"), Some("x:splat")],
        ),
        ("/b", "v", "/b/", [Some("v"), None, None]),
        ("/:p/c", "v", "/b/c", [Some("v"); 3]),
        ("https://h.example/*", "v", "/b", [Some("v"); 3]),
        ("https://i.example/*", "v", "/b", [None; 3]),
    ];
    let out = Folder::new();
    for (source, value, target, expect) in rows {
        let site = site("");
        site.write("_headers", format!("{source}\n  X-Row: {value}\n"));
        for (compat, expect) in COMPATS.iter().zip(expect) {
            for server in both(&site, &out, compat).expect("sound") {
                let mut client = Client::new(&server);
                client.send(format!("GET {target} HTTP/1.1\r\nHost: h.example\r\n\r\n"));
                let response = client.response();
                assert_eq!(response.field("x-row"), *expect, "{compat}: {source}");
            }
        }
    }
}

#[test]
fn the_example_of_the_ipfs_document() {
    let site = Folder::new();
    for name in [
        "index.html",
        "one.html",
        "two.html",
        "404.html",
        "410.html",
        "451.html",
    ] {
        site.write(name, name);
    }
    // Lines may end with CR LF (section "Line Termination"); the first match wins ("Order").
    let rules = "# a comment\r\n/one-by-default /one.html\r\n/one /two.html 302\r\n\
        /rewritten /index.html 200\r\n/posts/:y/:m/:d/:t /articles/:y/:m/:d/:t 301\r\n\
        /splat/* /elsewhere/:splat 301\r\n/missing/* /404.html 404\r\n/gone/* /410.html 410\r\n\
        /banned/* /451.html 451\r\n/* /index.html 200\r\n";
    site.write("_redirects", rules);
    let out = Folder::new();
    for server in both(&site, &out, "netlify").expect("sound") {
        for (target, expect) in [
            ("/one-by-default", "301 /one.html"),
            ("/two.html", "200 two.html"),
            ("/rewritten", "200 index.html"),
            ("/posts/2022/06/15/x", "301 /articles/2022/06/15/x"),
            ("/splat/one.html", "301 /elsewhere/one.html"),
            ("/missing/x", "404 404.html"),
            ("/gone/x", "410 410.html"),
            ("/banned/x", "451 451.html"),
            ("/any/thing", "200 index.html"),
        ] {
            assert_eq!(answer(&server, "h.example", target), expect, "{target}");
        }
    }
}
