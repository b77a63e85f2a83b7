//! Cache lifetimes: rules and flags apply to the content of a path, never to errors or
//! replacements; over both versions of HTTP, live and packed.

use gannet_testkit::client::Client;
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::h2::Peer;
use gannet_testkit::process::until;
use gannet_testkit::{Folder, Gannet, gannet_in};

const KEPT: &str = "max-age=31536000, immutable";
const ASKED: &str = "max-age=1";

/// Serves a site as a directory and as an archive.
fn both(
    engine: Engine,
    site: &Folder,
    out: &Folder,
    flags: &[&str],
) -> [(&'static str, Gannet); 2] {
    let path = out.join(format!("{}.gannet", engine.name()));
    let path_text = path.to_str().expect("UTF-8");
    let spa: &[&str] = if flags.contains(&"--spa") {
        &["--spa"]
    } else {
        &[]
    };
    let arguments = [
        &["pack", ".", "--fast", "--quiet", "--fresh", "-o", path_text],
        spa,
    ]
    .concat();
    let ended = gannet_in(site, arguments);
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    let packed: Vec<&str> = flags
        .iter()
        .copied()
        .filter(|flag| !["--spa", "--no-listing"].contains(flag))
        .collect();
    [
        ("directory", engine.serve(site.path(), flags)),
        ("archive", engine.serve(path, &packed)),
    ]
}

/// Status and caching fields of an answer, which are the same over both versions of HTTP.
fn caching(server: &Gannet, target: &str, field: Option<(&str, &str)>) -> (u16, Vec<String>) {
    let lines: Vec<String> = field.iter().map(|(n, v)| format!("{n}: {v}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let one = Client::new(server).request("GET", target, &lines);
    let fields: Vec<(&str, &str)> = field.into_iter().collect();
    let two = Peer::new(server).request("GET", target, &fields);
    let caching = |fields: &[(String, String)]| {
        let is_caching = |name: &str| {
            name.ends_with("cache-control")
                || matches!(name, "expires" | "surrogate-control" | "x-a")
        };
        let found = fields.iter().filter(|(name, _)| is_caching(name));
        let mut found: Vec<String> = found
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        found.sort_unstable();
        found
    };
    let (first, second) = (caching(&one.fields), caching(&two.fields));
    assert_eq!((one.status, &first), (two.status, &second), "{target}");
    (one.status, first)
}

fn site() -> Folder {
    let site = Folder::new();
    site.write("index.html", "front");
    site.write("404.html", "not here");
    site.write("assets/app.js", "0123456789");
    site.write("gone.html", "it is gone");
    site.write(
        "_headers",
        "/*\n  X-A: b\n/assets/*\n  Cache-Control: public, max-age=31536000, immutable\n  \
         Expires: Thu, 01 Dec 2050 16:00:00 GMT\n  CDN-Cache-Control: max-age=9\n  \
         Surrogate-Control: max-age=9\n  Netlify-CDN-Cache-Control: max-age=9\n",
    );
    site.write(
        "_redirects",
        "/assets/gone.js /gone.html 410\n/assets/old.js /assets/app.js 301\n\
         /assets/while.js /assets/app.js 302\n/assets/as.js /assets/app.js 200\n",
    );
    site
}

/// The fields set by the rule for `/assets/*`.
fn ruled() -> Vec<String> {
    let lines = [
        "cache-control: public, max-age=31536000, immutable",
        "cdn-cache-control: max-age=9",
        "expires: Thu, 01 Dec 2050 16:00:00 GMT",
        "netlify-cdn-cache-control: max-age=9",
        "surrogate-control: max-age=9",
        "x-a: b",
    ];
    lines.map(str::to_owned).to_vec()
}

/// The default `cache-control` of an answer, with an unrelated field.
fn plain(cache_control: &str) -> Vec<String> {
    vec![
        format!("cache-control: {cache_control}"),
        "x-a: b".to_owned(),
    ]
}

#[test]
fn rules_for_caching_touch_no_error_and_nothing_that_stands_in() {
    let site = site();
    let out = Folder::new();
    on_both_engines(|engine| {
        for (mode, server) in both(engine, &site, &out, &["--no-listing"]) {
            let tag = Client::new(&server).get("/assets/app.js").tag().to_owned();
            let rows = [
                ("/assets/app.js", None, 200, ruled()),
                ("/assets/app.js", Some(("range", "bytes=2-4")), 206, ruled()),
                (
                    "/assets/app.js",
                    Some(("if-none-match", tag.as_str())),
                    304,
                    ruled(),
                ),
                ("/assets/old.js", None, 301, ruled()),
                (
                    "/assets/app.js",
                    Some(("range", "bytes=99-")),
                    416,
                    plain("no-store"),
                ),
                (
                    "/assets/app.js",
                    Some(("if-match", "\"x\"")),
                    412,
                    plain("no-store"),
                ),
                ("/assets/chunk.js", None, 404, plain("no-cache")),
                ("/assets/gone.js", None, 410, plain("no-cache")),
                ("/assets/while.js", None, 302, plain("no-cache")),
                ("/assets/as.js", None, 200, plain(ASKED)),
                ("/no", None, 404, plain("no-cache")),
                ("/", None, 200, plain(ASKED)),
            ];
            for (target, field, status, expect) in rows {
                let got = caching(&server, target, field);
                assert_eq!(got, (status, expect), "{mode} {target} {field:?}");
            }
        }
    });
}

#[test]
fn the_page_of_an_application_is_not_kept_by_the_rule_of_an_asset() {
    let site = site();
    std::fs::remove_file(site.join("404.html")).expect("there");
    std::fs::remove_file(site.join("_redirects")).expect("there");
    let out = Folder::new();
    on_both_engines(|engine| {
        for (mode, server) in both(engine, &site, &out, &["--spa", "--no-listing"]) {
            let check = |target: &str, status, expect: Vec<String>| {
                assert_eq!(
                    caching(&server, target, None),
                    (status, expect),
                    "{mode} {target}"
                );
            };
            check("/assets/view", 200, plain(ASKED));
            check("/assets/chunk.js", 404, plain("no-store"));
            check("/assets/app.js", 200, ruled());
        }
    });
}

/// A proxy may check passwords, so a cache in front of it must not store the answer. The directives
/// that would permit that (RFC 9111 section 3.5) are removed, and `private` is added for nginx,
/// which does not require them.
#[test]
fn what_is_sent_with_a_password_is_private() {
    let site = Folder::new();
    site.write("index.html", "front");
    site.write("long.bin", vec![b'x'; 100_000]);
    site.write("_astro/app.js", "0123456789");
    site.write("ruled/app.js", "by a rule");
    site.write(
        "_headers",
        "/ruled/*\n  Cache-Control: public, max-age=60\n",
    );
    let out = Folder::new();
    let password = ("authorization", "Basic dTpwdw==");
    on_both_engines(|engine| {
        for (mode, server) in both(engine, &site, &out, &["--spa"]) {
            let rows = [
                ("/", "max-age=1", "private, max-age=1"),
                ("/long.bin", "max-age=1", "private, max-age=1"),
                ("/view", "max-age=1", "private, max-age=1"),
                (
                    "/_astro/app.js",
                    "max-age=31536000, immutable",
                    "private, max-age=31536000, immutable",
                ),
                ("/ruled/app.js", "public, max-age=60", "public, max-age=60"),
            ];
            for (target, open, closed) in rows {
                let expect = |value: &str| (200, vec![format!("cache-control: {value}")]);
                // With the password first: its answer must not affect the others.
                let got = caching(&server, target, Some(password));
                assert_eq!(got, expect(closed), "{mode} {target}");
                assert_eq!(
                    caching(&server, target, None),
                    expect(open),
                    "{mode} {target}"
                );
            }
            let mut client = Client::new(&server);
            let tag = client.get("/").tag().to_owned();
            let same = format!("If-None-Match: {tag}");
            let password = "Authorization: Basic dTpwdw==";
            for (line, status) in [(same.as_str(), 304), ("Range: bytes=0-1", 206)] {
                let got = client.request("GET", "/", &[password, line]).expect(status);
                assert_eq!(
                    got.field("cache-control"),
                    Some("private, max-age=1"),
                    "{mode}"
                );
            }
        }
    });
}

#[test]
fn rules_for_hosts_and_the_flag_spare_errors_too() {
    let site = site();
    site.write(
        "_headers",
        "https://site.example/assets/*\n  Cache-Control: public, max-age=31536000, immutable\n",
    );
    let out = Folder::new();
    on_both_engines(|engine| {
        for (mode, server) in both(engine, &site, &out, &["--no-listing"]) {
            for (target, status, expect) in [
                ("/assets/chunk.js", 404, "no-cache"),
                ("/assets/app.js", 200, "public, max-age=31536000, immutable"),
            ] {
                let mut client = Client::new(&server);
                client.send(format!(
                    "GET {target} HTTP/1.1\r\nHost: site.example\r\n\r\n"
                ));
                let got = client.response().expect(status);
                assert_eq!(got.field("cache-control"), Some(expect), "{mode} {target}");
            }
        }
        let flags = ["--no-listing", "--header", "Cache-Control: max-age=77"];
        for (mode, server) in both(engine, &site, &out, &flags) {
            let expect = |target: &str, status, value: &str| {
                let expect = (status, vec![format!("cache-control: {value}")]);
                assert_eq!(caching(&server, target, None), expect, "{mode} {target}");
            };
            expect("/assets/app.js", 200, "max-age=77");
            expect("/assets/old.js", 301, "max-age=77");
            expect("/assets/chunk.js", 404, "no-cache");
            let post = Client::new(&server).request("POST", "/", &[]).expect(405);
            assert_eq!(post.field("cache-control"), Some("no-store"), "{mode}");
        }
    });
}

#[test]
fn a_rule_says_how_a_file_is_coded_that_is_stored_so() {
    let site = site();
    site.write("Build/g.wasm.br", "not really brotli");
    site.write(
        "_headers",
        "/Build/*\n  Content-Type: application/wasm\n  Content-Encoding: br\n",
    );
    let out = Folder::new();
    on_both_engines(|engine| {
        for (mode, server) in both(engine, &site, &out, &["--no-listing"]) {
            let ask = |target: &str| {
                let one = Client::new(&server).get(target);
                let two = Peer::new(&server).get(target);
                let coding = one.field("content-encoding").map(str::to_owned);
                assert_eq!(coding.as_deref(), two.field("content-encoding"), "{mode}");
                (
                    one.status,
                    coding,
                    one.field("content-type").map(str::to_owned),
                    one.body,
                )
            };
            let (status, coding, content_type, body) = ask("/Build/g.wasm.br");
            assert_eq!((status, coding.as_deref()), (200, Some("br")), "{mode}");
            assert_eq!(content_type.as_deref(), Some("application/wasm"), "{mode}");
            assert_eq!(body, b"not really brotli", "{mode}");
            // The page for missing paths has no coding.
            let (status, coding, ..) = ask("/Build/none.wasm.br");
            assert_eq!((status, coding), (404, None), "{mode}");
        }
    });
}

/// A Unity web build is served as its loader expects, without a rule.
#[test]
fn files_of_a_unity_build_are_what_they_come_to() {
    let site = site();
    // Compressible content, which must not be coded a second time.
    let content = "compressed already ".repeat(500);
    let names = [
        ("Build/g.wasm.br", Some("br"), "application/wasm"),
        ("Build/g.data.gz", Some("gzip"), "application/octet-stream"),
        (
            "play/Build/g.framework.js.br",
            Some("br"),
            "text/javascript; charset=utf-8",
        ),
        ("Build/notes.txt.gz", None, "application/gzip"),
        ("sitemap.xml.gz", None, "application/gzip"),
    ];
    for (name, ..) in names {
        site.write(name, &content);
    }
    // Sidecars of such a file are ignored.
    site.write("Build/g.wasm.br.gz", "short");
    let out = Folder::new();
    on_both_engines(|engine| {
        for (mode, server) in both(engine, &site, &out, &["--no-listing"]) {
            for (name, coding, content_type) in names {
                let target = format!("/{name}");
                let lines = ["accept-encoding: br, gzip, zstd"];
                let one = Client::new(&server)
                    .request("GET", &target, &lines)
                    .expect(200);
                assert_eq!(one.field("content-encoding"), coding, "{mode}: {name}");
                assert_eq!(
                    one.field("content-type"),
                    Some(content_type),
                    "{mode}: {name}"
                );
                assert!(one.field("vary").is_none(), "{mode}: {name}");
                assert!(one.body == content.as_bytes(), "{mode}: {name}");
                let two = Peer::new(&server).get(&target);
                assert_eq!(two.field("content-encoding"), coding, "{mode}: {name}");
                let part = Client::new(&server).request("GET", &target, &["range: bytes=0-9"]);
                assert_eq!(part.expect(206).field("content-encoding"), coding, "{mode}");
            }
            // A page served in place of such a path has no coding.
            let missing = Client::new(&server).get("/Build/none.wasm.br").expect(404);
            assert_eq!(missing.field("content-encoding"), None, "{mode}");
        }
    });
}

/// Compressed SVG is one that browsers show, and plain SVG under its name stays plain.
#[test]
fn compressed_pictures_are_told_by_their_first_bytes() {
    let site = site();
    let gzip = [b"\x1f\x8b\x08", &[b'x'; 5_000][..]].concat();
    let long = [b"\x1f\x8b\x08", &[b'x'; 200_000][..]].concat();
    let plain = b"<svg xmlns='http://www.w3.org/2000/svg'/>".repeat(50);
    let names: [(&str, &[u8], Option<&str>); 5] = [
        ("logo.svgz", &gzip, Some("gzip")),
        ("LONG.SVGZ", &long, Some("gzip")),
        ("plain.svgz", &plain, None),
        ("short.svgz", b"\x1f", None),
        ("logo.svg", &plain, None),
    ];
    for (name, content, _) in names {
        site.write(name, content);
    }
    site.write("logo.svgz.br", "short");
    site.write("Build/g.data.gz", &gzip);
    // Not the same for every request, since one of them is for a host.
    let rules = "/*\n  X-A: b\nhttps://other.test/*\n  X-B: c\n";
    site.write("_headers", rules);
    let rules = "/picture /logo.svgz 200\n/data /Build/g.data.gz 200\n";
    site.write("_redirects", rules);
    let out = Folder::new();
    on_both_engines(|engine| {
        let asked = ["HEAD", "GET", "GET"];
        for (mode, server) in both(engine, &site, &out, &["--no-listing"]) {
            for ((name, content, coding), method) in
                names.iter().flat_map(|it| asked.map(|method| (it, method)))
            {
                let target = format!("/{name}");
                let one = Client::new(&server).request(method, &target, &[]);
                let one = one.expect(200);
                assert_eq!(one.field("content-encoding"), *coding, "{mode}: {name}");
                let content_type = one.field("content-type");
                assert_eq!(content_type, Some("image/svg+xml"), "{mode}: {name}");
                assert!(method == "HEAD" || one.body == *content, "{mode}: {name}");
                let two = Peer::new(&server).request(method, &target, &[]);
                assert_eq!(two.field("content-encoding"), *coding, "{mode}: {name}");
            }
            let part = ["range: bytes=0-9", "accept-encoding: gzip"];
            let part = Client::new(&server).request("GET", "/logo.svgz", &part);
            let part = part.expect(206);
            assert_eq!(part.field("content-encoding"), Some("gzip"), "{mode}");
            assert!(part.body == gzip[..10], "{mode}");
            for target in ["/logo.svgz", "/picture", "/Build/g.data.gz", "/data"] {
                let one = Client::new(&server).get(target).expect(200);
                let coding = one.field("content-encoding");
                assert_eq!(coding, Some("gzip"), "{mode}: {target}");
                assert_eq!(one.field("x-a"), Some("b"), "{mode}: {target}");
            }
        }
    });
}

#[test]
fn a_live_name_is_kept_by_evidence_until_its_content_changes() {
    // Both engines run concurrently.
    on_both_engines(|engine| {
        let site = Folder::new();
        site.write("_astro/small.js", "one");
        site.write("_astro/large.js", vec![b'x'; 100_000]);
        site.write("assets/index-BxY3k9Zq.js", "a");
        let page = "<script src=/assets/index-BxY3k9Zq.js></script>";
        site.write("index.html", page);
        let server = engine.serve(site.path(), &["--workers", "2"]);
        let lifetime = |target: &str| {
            let response = Client::new(&server).get(target).expect(200);
            let field = response.field("cache-control").map(str::to_owned);
            (response.body, field.expect("a lifetime"))
        };
        // Connections are distributed over the workers.
        for _ in 0..8 {
            assert_eq!(lifetime("/_astro/small.js").1, KEPT);
            assert_eq!(lifetime("/_astro/large.js").1, KEPT);
            assert_eq!(lifetime("/assets/index-BxY3k9Zq.js").1, ASKED);
        }
        site.write("_astro/small.js", "other");
        // Every worker sends the new lifetime with the new content.
        let mut count = 0;
        until("the new content", || {
            let (body, field) = lifetime("/_astro/small.js");
            let is_new = body == b"other";
            assert_eq!(field, if is_new { ASKED } else { KEPT });
            count += u32::from(is_new);
            count >= 8
        });
        // The name no longer counts as a hash, even if the old content returns.
        site.write("_astro/small.js", "one");
        until("the old content again", || {
            let (body, field) = lifetime("/_astro/small.js");
            assert_eq!(field, ASKED);
            body == b"one"
        });
    });
}
