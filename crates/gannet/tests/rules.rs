//! Redirects, field rules and routing: a directory and its archive give the same answers.

use std::path::PathBuf;

use gannet_testkit::client::{Client, Response};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::{Folder, Gannet, command, gannet_in, run};

/// Serves a site as a directory and as an archive, with the same flags.
fn both(engine: Engine, site: &Folder, out: &Folder, flags: &[&str]) -> [Gannet; 2] {
    let archive = pack(site, out, engine, flags);
    let live = [&["--no-listing"], flags].concat();
    let own: Vec<&str> = match flags.contains(&"--no-security-fields") {
        true => vec!["--no-security-fields"],
        false => Vec::new(),
    };
    [
        engine.serve(site.path(), &live),
        engine.serve(archive, &own),
    ]
}

fn pack(site: &Folder, out: &Folder, engine: Engine, flags: &[&str]) -> PathBuf {
    let path = out.join(format!("{}.gannet", engine.name()));
    let path_text = path.to_str().expect("UTF-8");
    let arguments = [&["pack", ".", "--fast", "--quiet", "-o", path_text], flags].concat();
    let ended = gannet_in(site, arguments);
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    path
}

/// A short form of the answer: status, then location or the first line of the content.
fn short(response: &Response) -> String {
    let text = match response.field("location") {
        Some(location) => location.to_owned(),
        None => response.text().lines().next().unwrap_or("").to_owned(),
    };
    format!("{} {text}", response.status)
}

/// Rows have host, target, and the short form of the answer. An empty host is the server's own.
fn table(site: &Folder, flags: &[&str], rows: &[(&str, &str, &str)]) {
    let out = Folder::new();
    on_both_engines(|engine| {
        for (mode, server) in both(engine, site, &out, flags).iter().enumerate() {
            let mut client = Client::new(server);
            for (host, target, expect) in rows {
                let response = get(&mut client, host, target);
                let mode = ["directory", "archive"][mode];
                assert_eq!(short(&response), *expect, "{mode} {host} {target}");
            }
        }
    });
}

fn get(client: &mut Client, host: &str, target: &str) -> Response {
    let host = if host.is_empty() { "localhost" } else { host };
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    client.response()
}

fn site() -> Folder {
    let site = Folder::new();
    site.write("index.html", "front");
    site.write("about.html", "about");
    site.write("404.html", "nothing here");
    site.write("kept.html", "kept");
    site.write("won.html", "won");
    site.write("blog/index.html", "blog");
    site.write("blog/2020/first.html", "first post");
    site.write("en/404.html", "nothing in English");
    site.write("gone.html", "it is gone");
    site.write("pics/a.png", "a picture");
    site
}

#[test]
fn redirects_as_netlify_reads_them() {
    let site = site();
    site.write(
        "_redirects",
        "# moved\n\
         /old            /new\n\
         /temporary      /new               302\n\
         /see            /new               303\n\
         /keep           /new               307\n\
         /keep-for-good  /new               308\n\
         /kept           /lost\n\
         /won            /forced            301!\n\
         /news/*         /blog/:splat       301\n\
         /u/:name/:page  /people/:name?page=:page\n\
         /store id=:id   /product/:id       301\n\
         /app/*          /about             200\n\
         /w/*            /blog/2020/:splat  200\n\
         /missing        /nowhere           200\n\
         /private/*      /gone.html         410\n\
         /pics           /gallery\n\
         http://example.org/*  https://www.example.org/:splat  301!\n\
         /ex             https://other.example/x?y=1#z\n\
         /en/*           /en/404.html       404\n",
    );
    table(
        &site,
        &[],
        &[
            ("", "/old", "301 /new"),
            ("", "/old/", "301 /new"),
            ("", "/old?a=b", "301 /new?a=b"),
            ("", "/temporary", "302 /new"),
            ("", "/see", "303 /new"),
            ("", "/keep", "307 /new"),
            ("", "/keep-for-good", "308 /new"),
            ("", "/kept", "200 kept"),
            ("", "/won", "301 /forced"),
            ("", "/news/a/b%20c", "301 /blog/a/b%20c"),
            ("", "/news", "301 /blog/"),
            ("", "/u/ann/7", "301 /people/ann?page=7"),
            ("", "/u/a%0d%0ab/7", "400 <!doctype html>"),
            (
                "",
                "/u/%2F%2Fevil.example/7",
                "301 /people/evil.example?page=7",
            ),
            ("", "/store?id=17", "301 /product/17"),
            ("", "/store?id=17&x=1", "301 /product/17"),
            ("", "/app/anything", "200 about"),
            ("", "/w/first", "200 first post"),
            ("", "/w/first/", "200 first post"),
            ("", "/w/first.html/", "200 first post"),
            ("", "/w/no", "404 nothing here"),
            ("", "/missing", "404 nothing here"),
            ("", "/private/x", "410 it is gone"),
            ("", "/pics", "301 /gallery"),
            ("", "/pics/a.png", "200 a picture"),
            (
                "example.org",
                "/blog/?q",
                "301 https://www.example.org/blog/?q",
            ),
            ("EXAMPLE.org:8080", "/", "301 https://www.example.org/"),
            ("www.example.org", "/", "200 front"),
            ("", "/ex", "301 https://other.example/x?y=1#z"),
            ("", "/en/no", "404 nothing in English"),
            ("", "/_redirects", "404 nothing here"),
            ("", "/no", "404 nothing here"),
            ("", "/blog", "301 /blog/"),
            ("", "/about/", "301 /about"),
        ],
    );
}

/// Rules precede listings, which both modes may have; a status of a rule needs no content.
#[test]
fn rules_precede_listings_and_need_no_content() {
    let site = Folder::new();
    site.write("docs/intro.html", "intro");
    site.write("plain/a.html", "a");
    site.write("blog.html", "blog");
    site.write("blog/b.html", "b");
    site.write(
        "_redirects",
        "/docs /docs/intro 301\n/ https://new.example/ 301\n/past /none 410\n/lost /none 200\n",
    );
    // A folder without an index precedes the page of its name, where a slash is not removed.
    let named = Folder::new();
    named.write("a.html", "a");
    named.write("a/b.html", "b");
    named.write("c/d.html", "d");
    named.write("404.html", "none");
    named.write("_redirects", "/w/* /:splat 200\n/gone/* /:splat 410\n");
    let moved = Folder::new();
    moved.write("_redirects", "/* https://new.example/:splat 301\n");
    let out = Folder::new();
    on_both_engines(|engine| {
        let archive = pack(&site, &out, engine, &["--listing"]);
        let servers = [engine.serve(site.path(), &[]), engine.serve(archive, &[])];
        for server in &servers {
            let mut client = Client::new(server);
            for (target, expect) in [
                ("/docs/", "301 /docs/intro"),
                ("/", "301 https://new.example/"),
                ("/plain", "301 /plain/"),
                ("/plain/", "200 <!doctype html>"),
                ("/blog/", "301 /blog"),
                ("/past", "410 <!doctype html>"),
                ("/lost", "404 <!doctype html>"),
            ] {
                let response = get(&mut client, "", target);
                assert_eq!(short(&response), expect, "{target}");
            }
        }
        let flags = ["--trailing-slash", "off"];
        let archive = pack(&named, &out, engine, &[&flags[..], &["--listing"]].concat());
        for server in [
            engine.serve(named.path(), &flags),
            engine.serve(archive, &[]),
        ] {
            let mut client = Client::new(&server);
            for (target, expect) in [
                ("/a/", "200 <!doctype html>"),
                ("/w/a/", "200 <!doctype html>"),
                ("/w/a", "200 a"),
                // A listing is no page of what is gone.
                ("/gone/a/", "410 a"),
                ("/gone/a", "410 a"),
                ("/gone/c/", "410 none"),
                ("/gone/c", "410 none"),
            ] {
                let response = get(&mut client, "", target);
                assert_eq!(short(&response), expect, "{target}");
            }
        }
        for server in &both(engine, &moved, &out, &[]) {
            let mut client = Client::new(server);
            for target in ["/", "/a/b"] {
                let response = get(&mut client, "", target);
                let expect = format!("301 https://new.example{target}");
                assert_eq!(short(&response), expect);
            }
        }
    });
}

#[test]
fn redirects_as_cloudflare_reads_them() {
    let site = site();
    site.write(
        "_redirects",
        "/kept      /lost\n\
         /about/    /with-slash 301\n\
         /p-:id/x   /product/:id\n\
         /blog/*    /news/:splat\n",
    );
    table(
        &site,
        &["--compat", "cloudflare"],
        &[
            ("", "/kept", "302 /lost"),
            ("", "/about", "200 about"),
            ("", "/about/", "301 /with-slash"),
            ("", "/p-7/x", "302 /product/7"),
            ("", "/blog/2020/first", "302 /news/2020/first"),
        ],
    );
}

#[test]
fn a_site_for_kawipiko_is_served_as_it_was() {
    let site = site();
    site.write(
        "_redirects",
        "/old /new 301\n/kept /lost 302\n://a.example/h /b 307\n://b.example/* /a 308\n",
    );
    site.write("docs/_index.txt", "documents");
    site.write("docs/readme.txt", "read me");
    site.write("docs/_wildcard.html", "anything");
    site.write("api/_200.json", "{}");
    site.write("api/deep/_404.txt", "no such thing");
    table(
        &site,
        &["--compat", "kawipiko"],
        &[
            ("", "/old", "301 /new"),
            ("", "/old/", "404 nothing here"),
            ("", "/kept", "200 kept"),
            ("b.example", "/kept", "308 /a"),
            ("a.example", "/h", "307 /b"),
            ("", "/h", "404 nothing here"),
            ("", "/docs/", "200 documents"),
            ("", "/docs", "301 /docs/"),
            ("", "/docs/readme", "200 read me"),
            ("", "/docs/any/thing.js", "200 anything"),
            ("", "/api/x", "200 {}"),
            ("", "/api/x.js", "200 {}"),
            ("", "/api/deep/x", "404 no such thing"),
        ],
    );
}

#[test]
fn slashes_and_index_names_as_asked() {
    let site = site();
    site.write("blog/start.html", "start");
    site.write("_redirects", "/w/* /:splat 200\n");
    table(
        &site,
        &[
            "--trailing-slash",
            "always",
            "--index",
            "start.html,index.html",
        ],
        &[
            ("", "/about", "301 /about/"),
            ("", "/about/", "200 about"),
            ("", "/blog", "301 /blog/"),
            ("", "/blog/", "200 start"),
            ("", "/", "200 front"),
            ("", "/pics/a.png/", "301 /pics/a.png"),
            ("", "/w/about/", "200 about"),
        ],
    );
    table(
        &site,
        &["--trailing-slash", "never"],
        &[
            ("", "/w/about/", "200 about"),
            ("", "/about/?q", "301 /about?q"),
            ("", "/about", "200 about"),
            ("", "/blog/", "301 /blog"),
            ("", "/blog", "200 blog"),
            ("", "/", "200 front"),
        ],
    );
    table(
        &site,
        &["--trailing-slash", "off"],
        &[
            ("", "/about/", "404 nothing here"),
            ("", "/blog/", "200 blog"),
            ("", "/blog", "200 blog"),
            ("", "/w/about/", "200 about"),
        ],
    );
}

#[test]
fn an_application_answers_its_paths_and_no_missing_asset() {
    let site = site();
    site.write("200.html", "the application");
    table(
        &site,
        &[],
        &[
            ("", "/user/7", "200 the application"),
            ("", "/assets/app.3f2a.js", "404 nothing here"),
            ("", "/en/no", "404 nothing in English"),
        ],
    );
}

/// The fields of an answer that rules may change, sorted by name.
fn fields(response: &Response) -> Vec<String> {
    let names = [
        "cache-control",
        "content-type",
        "referrer-policy",
        "set-cookie",
        "vary",
    ];
    let mut lines: Vec<String> = response
        .fields
        .iter()
        .filter(|(name, _)| names.contains(&name.as_str()) || name.starts_with("x-"))
        .filter(|(name, _)| name != "x-content-type-options")
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    lines.sort();
    lines
}

#[test]
fn fields_by_path_in_every_answer() {
    let site = site();
    site.write(
        "_headers",
        "/*\n  X-All: 1\n  ! Referrer-Policy\n\
         /about\n  X-All: 2\n  Cache-Control: max-age=60\n\
         /blog/*\n  Set-Cookie: a=1\n  Set-Cookie: b=2\n  Vary: Cookie\n\
         /app/*\n  X-App: yes\n",
    );
    site.write("_redirects", "/app/* /about 200\n/old /new\n");
    let asked = "cache-control: max-age=1";
    let html = "content-type: text/html; charset=utf-8";
    let rows: &[(&str, &[&str])] = &[
        ("/", &[asked, html, "x-all: 1"]),
        ("/about", &["cache-control: max-age=60", html, "x-all: 2"]),
        // The fields are those of the requested path.
        ("/about.html", &[asked, html, "x-all: 1"]),
        ("/app/x", &[asked, html, "x-all: 1", "x-app: yes"]),
        ("/no", &["cache-control: no-cache", html, "x-all: 1"]),
        ("/old", &["cache-control: no-cache", "x-all: 1"]),
        (
            "/blog/",
            &[
                asked,
                html,
                "set-cookie: a=1",
                "set-cookie: b=2",
                "vary: Cookie",
                "x-all: 1",
            ],
        ),
    ];
    let out = Folder::new();
    on_both_engines(|engine| {
        for (mode, server) in both(engine, &site, &out, &[]).iter().enumerate() {
            let mut client = Client::new(server);
            for (target, expect) in rows {
                let response = get(&mut client, "", target);
                assert_eq!(fields(&response), *expect, "{mode} {target}");
            }
            // A 304 has these fields, too, except for those of the content.
            let tag = get(&mut client, "", "/about").tag().to_owned();
            let line = format!("If-None-Match: {tag}");
            let response = client.request("GET", "/about", &[&line]).expect(304);
            assert_eq!(fields(&response), ["cache-control: max-age=60", "x-all: 2"]);
        }
    });
}

#[test]
fn fields_by_host() {
    let site = site();
    site.write(
        "_headers",
        "https://preview.example.org/*\n  X-Robots-Tag: noindex\n/about\n  X-A: 1\n",
    );
    let out = Folder::new();
    on_both_engines(|engine| {
        for server in &both(engine, &site, &out, &["--no-security-fields"]) {
            let mut client = Client::new(server);
            let robots = |response: Response| response.field("x-robots-tag").map(str::to_owned);
            let preview = "preview.example.org";
            for target in ["/", "/about", "/no", "/blog"] {
                let response = get(&mut client, preview, target);
                assert_eq!(robots(response).as_deref(), Some("noindex"), "{target}");
                assert_eq!(
                    robots(get(&mut client, "www.example.org", target)),
                    None,
                    "{target}"
                );
            }
            assert_eq!(get(&mut client, preview, "/about").field("x-a"), Some("1"));
        }
    });
}

#[test]
fn security_fields_are_everywhere_and_can_be_switched_off() {
    let site = site();
    let out = Folder::new();
    on_both_engines(|engine| {
        for server in &both(engine, &site, &out, &["--cors", "any"]) {
            let mut client = Client::new(server);
            for target in ["/", "/no", "/blog", "/pics/a.png"] {
                let response = get(&mut client, "", target);
                assert_eq!(response.field("x-content-type-options"), Some("nosniff"));
                let policy = response.field("referrer-policy");
                assert_eq!(policy, Some("strict-origin-when-cross-origin"), "{target}");
                // They can break sites, so they need a rule.
                for name in ["content-security-policy", "cross-origin-opener-policy"] {
                    assert_eq!(response.field(name), None, "{target}");
                }
            }
            let allowed = get(&mut client, "", "/")
                .field("access-control-allow-origin")
                .is_some();
            assert!(allowed);
        }
        for server in &both(engine, &site, &out, &["--no-security-fields"]) {
            let mut client = Client::new(server);
            for target in ["/", "/no", "/blog"] {
                let response = get(&mut client, "", target);
                assert_eq!(response.field("referrer-policy"), None, "{target}");
                assert_eq!(response.field("access-control-allow-origin"), None);
            }
        }
    });
}

/// The answer to a preflight request for this target, without common fields.
fn preflight(client: &mut Client, target: &str) -> [Option<String>; 3] {
    client.send(format!(
        "OPTIONS {target} HTTP/1.1\r\nHost: h\r\nOrigin: https://app.example.org\r\n\
         Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: range\r\n\r\n"
    ));
    let response = client.response().expect(204);
    assert!(response.field("allow").is_some(), "{target}");
    [
        "access-control-allow-origin",
        "access-control-allow-methods",
        "access-control-allow-headers",
    ]
    .map(|name| response.field(name).map(str::to_owned))
}

#[test]
fn preflights_are_answered_as_the_content_is() {
    const APP: &str = "https://app.example.org";
    let site = site();
    let out = Folder::new();
    on_both_engines(|engine| {
        for server in &both(engine, &site, &out, &["--cors", APP]) {
            let mut client = Client::new(server);
            for target in ["/", "/about", "/pics/a.png"] {
                let [origin, methods, names] = preflight(&mut client, target);
                assert_eq!(origin.as_deref(), Some(APP), "{target}");
                assert_eq!(methods.as_deref(), Some("GET, HEAD, OPTIONS"), "{target}");
                assert!(
                    names.is_some_and(|names| names.contains("range")),
                    "{target}"
                );
                let response = get(&mut client, "h", target);
                let origin = response.field("access-control-allow-origin");
                assert_eq!(origin, Some(APP), "{target}");
            }
        }
        for server in &both(engine, &site, &out, &[]) {
            let mut client = Client::new(server);
            for target in ["/", "/none", "*", "/%zz"] {
                assert_eq!(
                    preflight(&mut client, target),
                    [None, None, None],
                    "{target}"
                );
            }
        }
        // Flags of the operator take precedence, as for every field.
        let archive = pack(&site, &out, engine, &["--cors", APP]);
        let other = "access-control-allow-origin: https://other.example";
        let server = engine.serve(archive, &["--header", other]);
        let [origin, ..] = preflight(&mut Client::new(&server), "/about");
        assert_eq!(origin.as_deref(), Some("https://other.example"));
    });
}

#[test]
fn preflights_have_the_fields_of_rules() {
    let site = site();
    site.write(
        "_headers",
        "/about*\n  Access-Control-Allow-Origin: *\n  Access-Control-Allow-Headers: x-key\n  Cache-Control: no-cache\n\
         /won\n  ! Access-Control-Allow-Origin\n",
    );
    let out = Folder::new();
    on_both_engines(|engine| {
        for flags in [&[][..], &["--cors", "https://app.example.org"]] {
            for server in &both(engine, &site, &out, flags) {
                let mut client = Client::new(server);
                let some = |text: &str| Some(text.to_owned());
                // Whether there is such a file or not.
                for target in ["/about", "/about-none"] {
                    let expect = [some("*"), some("GET, HEAD, OPTIONS"), some("x-key")];
                    assert_eq!(preflight(&mut client, target), expect, "{target}");
                }
                assert_eq!(preflight(&mut client, "/won"), [None, None, None]);
                let [origin, ..] = preflight(&mut client, "/kept");
                assert_eq!(origin.as_deref(), flags.get(1).copied());
                client.send("OPTIONS /about HTTP/1.1\r\nHost: h\r\n\r\n");
                assert_eq!(client.response().expect(204).field("cache-control"), None);
            }
        }
    });
}

#[test]
fn mistakes_stop_the_build_and_the_start_with_their_places() {
    let site = site();
    site.write("_redirects", "/a /b 399\n/c\n/d /e :x\n");
    site.write("_headers", "/*\n  Content-Length: 5\n");
    let out = Folder::new();
    let archive = out.join("a.gannet");
    let archive = archive.to_str().expect("UTF-8");
    for arguments in [vec!["pack", ".", "-o", archive], vec!["serve", "."]] {
        let ended = gannet_in(&site, &arguments);
        assert_eq!(ended.status, Some(1), "{}", ended.err);
        for place in [
            "_redirects:1:7: ",
            "_redirects:2:",
            "_redirects:3:7: ",
            "_headers:2:3: ",
        ] {
            assert!(ended.err.contains(place), "{place}: {}", ended.err);
        }
        assert!(ended.err.contains("help: "), "{}", ended.err);
    }
    // From another directory, the printed names can be opened as they are.
    let parent = site.path().parent().expect("it is in a folder");
    let name = site.path().file_name().expect("it has a name");
    let name = name.to_str().expect("UTF-8");
    let inner = format!("./{name}");
    for arguments in [
        vec!["pack", &inner, "-o", archive],
        vec!["serve", name],
        vec!["check", name],
    ] {
        let ended = run(command().args(&arguments).current_dir(parent));
        assert_eq!(ended.status, Some(1), "{ended:?}");
        let told = format!("{}{}", ended.err, ended.text());
        for place in ["_redirects:1:7", "_headers:2:3"] {
            let line = format!("\n  {name}/{place}");
            assert!(told.contains(&line), "{line}: {told}");
        }
    }
    assert!(!out.join("a.gannet").exists(), "no archive is left behind");
    let ended = gannet_in(&site, ["pack", ".", "--no-rules", "--fast", "-o", archive]);
    assert_eq!(ended.status, Some(0), "{}", ended.err);
}

#[test]
fn warnings_name_rules_that_hardly_mean_what_they_say() {
    let site = site();
    site.write("_redirects", "/about /x\n/a /b\n/b /a\n/t /nowhere 200\n");
    let out = Folder::new();
    let archive = out.join("a.gannet");
    let ended = gannet_in(
        &site,
        [
            "pack",
            ".",
            "--fast",
            "-o",
            archive.to_str().expect("UTF-8"),
        ],
    );
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    for part in [
        "_redirects:1:1: never matches",
        "loop",
        "_redirects:4:1: there is nothing",
    ] {
        assert!(ended.text().contains(part), "{part}: {}", ended.text());
    }
}

#[test]
fn a_live_directory_follows_its_rules_files() {
    let site = site();
    site.write("_redirects", "/old /first\n");
    on_both_engines(|engine| {
        let folder = Folder::new();
        folder.write("index.html", "front");
        folder.write("_redirects", "/old /first\n");
        let server = engine.serve(folder.path(), &[]);
        let mut client = Client::new(&server);
        assert_eq!(short(&get(&mut client, "", "/old")), "301 /first");
        folder.write("_redirects", "/old /second-place\n");
        await_answer(&mut client, "/old", "301 /second-place");
        // A mistake leaves the old rules in effect.
        folder.write("_redirects", "/old /third 999\n");
        folder.write("_headers", "/*\n  X-A: 1\n");
        assert_eq!(short(&get(&mut client, "", "/old")), "301 /second-place");
        folder.write("_redirects", "/old /third-place-now\n");
        await_answer(&mut client, "/old", "301 /third-place-now");
        assert_eq!(get(&mut client, "", "/").field("x-a"), Some("1"));
    });
}

#[test]
fn rules_in_folders_hold_in_both_modes_and_are_read_again() {
    let site = Folder::site();
    site.write("_redirects", "/first /root 301\n");
    site.write("docs/_redirects", "./intro /docs/start 302\n");
    site.write("docs/deep/_redirects.txt", "./x /deepest 307\n");
    site.write("docs/deep/page.html", "deep page");
    let flags = ["--compat", "kawipiko"];
    let rows = [
        ("", "/first", "301 /root"),
        ("", "/docs/intro", "302 /docs/start"),
        ("", "/docs/deep/x", "307 /deepest"),
        ("", "/docs/deep/page", "200 deep page"),
        (
            "",
            "/docs/_redirects",
            "404 <!doctype html><title>nothing here</title>",
        ),
    ];
    table(&site, &flags, &rows);
    let explained = gannet_testkit::gannet(
        ["explain", "/docs/intro", "--compat", "kawipiko"]
            .iter()
            .chain(&[site.path().to_str().expect("UTF-8")]),
    );
    let text = explained.success().text().to_owned();
    assert!(text.contains("docs/_redirects:1"), "{text}");
    on_both_engines(|engine| {
        let site = Folder::site();
        site.write("docs/_redirects", "./a /one 301\n");
        let server = engine.serve(site.path(), &flags);
        let mut client = Client::new(&server);
        await_answer(&mut client, "/docs/a", "301 /one");
        site.write("docs/_redirects", "./a /two 301\n");
        await_answer(&mut client, "/docs/a", "301 /two");
        // In a folder that had no rules, and in a new folder.
        site.write("assets/_redirects", "./b /three 301\n");
        await_answer(&mut client, "/assets/b", "301 /three");
        site.write("new/folder/_redirects", "./c /four 301\n");
        await_answer(&mut client, "/new/folder/c", "301 /four");
    });
}

/// Polls until the answer is the expected one.
fn await_answer(client: &mut Client, target: &str, expect: &str) {
    let begin = std::time::Instant::now();
    loop {
        let answer = short(&get(client, "", target));
        if answer == expect {
            return;
        }
        assert!(begin.elapsed() < gannet_testkit::DEADLINE, "{answer}");
        std::thread::park_timeout(std::time::Duration::from_millis(5));
    }
}

/// Netlify's `Language=`: caches are told that another client may get another answer.
#[test]
fn rules_for_languages_vary_by_them() {
    let site = Folder::new();
    site.write(
        "_redirects",
        "/ /de/ 302! Language=de\n/docs/* /de/docs/:splat 200 Language=de\n\
         /photo.jpg /de/ 302! Language=de\n",
    );
    // The answer for one path is the other file, whose own path has no rule.
    site.write("photo.jpg", "a long picture");
    site.write("photo.avif", "short");
    site.write("index.html", "home");
    site.write("de/index.html", "daheim");
    site.write("de/docs/page.html", "Seite");
    site.write("docs/own.html", "own");
    site.write("app.js", "run()");
    let out = Folder::new();
    on_both_engines(|engine| {
        let servers = both(engine, &site, &out, &[]);
        for server in &servers {
            let mut client = Client::new(server);
            let mut ask = |path: &str, languages: &str| {
                client.send(format!(
                    "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: image/avif\r\n\
                     Accept-Language: {languages}\r\n\r\n"
                ));
                let answer = client.response();
                let mut lines = answer.fields.iter();
                let varies =
                    lines.any(|(name, value)| name == "vary" && value.contains("accept-language"));
                (short(&answer), varies)
            };
            // Twice, so that what is cached is asked for as well.
            for _ in 0..2 {
                let mut check = |path: &str, languages: &str, expect: &str, varies| {
                    let (got, does) = ask(path, languages);
                    assert_eq!((got.as_str(), does), (expect, varies), "{path} {languages}");
                };
                check("/", "de-AT,en;q=0.9", "302 /de/", true);
                check("/", "en,de;q=0.9", "200 home", true);
                check("/", "", "200 home", true);
                check("/docs/page", "de", "200 Seite", true);
                check("/docs/page", "fr", "404 <!doctype html>", true);
                check("/docs/own", "de", "200 own", false);
                check("/photo.jpg", "fr", "200 short", true);
                check("/photo.jpg", "de", "302 /de/", true);
                check("/de/", "de", "200 daheim", false);
                check("/app.js", "de", "200 run()", false);
            }
        }
        for (path, languages) in [
            ("/", "de"),
            ("/", "en"),
            ("/docs/page", "de"),
            ("/app.js", "de"),
        ] {
            let (field, url) = (
                format!("accept-language: {languages}"),
                &servers[0].urls()[0],
            );
            let foreseen = [
                "explain",
                path,
                ".",
                "-H",
                &field,
                "--server",
                url,
                "--no-listing",
            ];
            let told = gannet_in(&site, foreseen);
            assert_eq!(told.status, Some(0), "{path} {languages}: {told:?}");
        }
    });
}
