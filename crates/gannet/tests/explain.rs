//! `gannet explain`: the reasons it gives, and that a running server answers as predicted.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, Gannet, command_of_nobody, gannet, gannet_in, run};

fn site() -> Folder {
    let folder = Folder::site();
    folder.write("_redirects", "/old /about 302\n");
    folder.write(
        "_headers",
        "/*\n  X-All: 1\n  X-One: 1\n/about\n  ! X-Other\n  X-One: 2\n  X-One: 3\n  \
         Set-Cookie: a=1\n  Set-Cookie: b=2\n",
    );
    let copy = File::create(folder.join("assets/app.css.gz")).expect("new");
    let mut encoder = flate2::write::GzEncoder::new(copy, flate2::Compression::best());
    let css = std::fs::read(folder.join("assets/app.css")).expect("exists");
    std::io::Write::write_all(&mut encoder, &css).expect("room on the disk");
    encoder.finish().expect("room on the disk");
    folder
}

fn explain(site: &Path, more: &[&str]) -> gannet_testkit::Ended {
    let site = site.to_str().expect("UTF-8");
    gannet(["explain"].iter().chain(more).chain(&[site]))
}

#[test]
fn rules_files_variants_and_origins_are_told() {
    let folder = site();
    let check = |more: &[&str], lines: &[&str]| {
        let ended = explain(folder.path(), more).success();
        for line in lines {
            assert!(
                ended.text().lines().any(|it| it == *line),
                "{line}\n{}",
                ended.text()
            );
        }
    };
    check(
        &["/about"],
        &[
            "GET /about",
            "  nothing at 'about'",
            "  a file at 'about.html'",
            "file about.html",
            "status 200",
            "x-all: 1",
            "    _headers:2",
            "x-one: 2, 3",
            "    _headers:6, _headers:7",
            "set-cookie: a=1",
            "    _headers:8",
            "set-cookie: b=2",
            "    _headers:9",
        ],
    );
    check(
        &["/old?a=b"],
        &[
            "  _redirects:1: 302 to /about?a=b",
            "status 302",
            "location: /about?a=b",
            "    _redirects:1",
        ],
    );
    check(&["/docs"], &["status 301", "location: /docs/"]);
    let missing = ["  no redirect rule applies", "file 404.html", "status 404"];
    check(&["/none"], &missing);
    let gzip = ["/assets/app.css", "-H", "accept-encoding: gzip"];
    check(
        &gzip,
        &["content-encoding: gzip", "    there are several codings"],
    );
    // Without the field, a browser's value is assumed, with a note.
    let browser = "like a browser, with 'accept-encoding: gzip, deflate, br, zstd' (to change it: \
                   -H 'accept-encoding: identity')";
    check(&gzip[..1], &[browser, "content-encoding: gzip"]);
    let plain = ["/assets/app.css", "-H", "accept-encoding: identity"];
    let ended = explain(folder.path(), &plain).success();
    assert!(
        ended.text().contains("not accepted by the client"),
        "{ended:?}"
    );
    assert!(!ended.text().contains("content-encoding"), "{ended:?}");
}

/// A coding of the server's replaces that of a rule.
#[test]
fn a_coding_is_of_the_rule_or_of_the_bytes() {
    let (folder, out) = (site(), Folder::new());
    folder.write("_headers", "/assets/*\n  Content-Encoding: br\n");
    let archive = out.join("a.gannet");
    let name = archive.to_str().expect("UTF-8");
    gannet_in(&folder, ["pack", ".", "--fast", "-q", "-o", name]).success();
    for (accepted, value, origin) in [
        ("gzip", "gzip", "coding of the bytes sent"),
        ("identity", "br", "_headers:1"),
    ] {
        let accepted = format!("accept-encoding: {accepted}");
        let ended = explain(&archive, &["/assets/app.css", "-H", &accepted]).success();
        let expect = format!("\ncontent-encoding: {value}\n    {origin}\n");
        assert!(ended.text().contains(&expect), "{}", ended.text());
    }
}

#[test]
fn a_server_answers_as_foreseen() {
    let (folder, out) = (site(), Folder::new());
    let archive = out.join("site.gannet");
    let name = archive.to_str().expect("UTF-8");
    gannet_in(&folder, ["pack", ".", "-q", "--fast", "-o", name]).success();
    on_both_engines(|engine| {
        for (site, flags) in [(folder.path(), &["--no-listing"][..]), (&archive, &[])] {
            let server = engine.serve(site, flags);
            let address = format!("http://{}", server.address());
            for url in [
                "/",
                "/about",
                "/assets/app.css",
                "/assets/empty.txt",
                "/docs",
                "/old",
                "/none",
                "/favicon.ico",
                "/a%zz",
                "/..",
                "/a%5cb",
            ] {
                for coding in ["identity", "gzip", "br, zstd"] {
                    let field = format!("accept-encoding: {coding}");
                    let ended = explain(site, &[url, "-H", &field, "--server", &address]);
                    assert_eq!(ended.status, Some(0), "{url} {coding}: {}", ended.text());
                    assert!(ended.text().ends_with("\nthe server answers the same\n"));
                }
            }
        }
        // What a server codes is for its operator to say.
        let page = "<p>once more\n".repeat(200);
        let long = Folder::new();
        long.write("page.html", &page);
        for flags in [&[][..], &["--compress=stored"]] {
            let server = engine.serve(long.path(), flags);
            let address = format!("http://{}", server.address());
            for field in ["accept-encoding: br", "accept: */*"] {
                let arguments = ["/page.html", "-H", field, "--server", &address];
                let ended = explain(long.path(), &arguments);
                assert_eq!(ended.status, Some(0), "{flags:?}: {}", ended.text());
            }
        }
        // Effects of single requests are predicted, too.
        let requests = [
            ("/", "authorization: Basic dTpwdw==", "private, max-age=1"),
            ("/v1.2", "sec-fetch-mode: navigate", "no-cache"),
            ("/v1.2", "accept: text/html", "no-cache"),
            ("/view", "accept: text/html", "max-age=1"),
        ];
        let server = engine.serve(folder.path(), &["--spa"]);
        let address = format!("http://{}", server.address());
        for (url, field, value) in requests {
            let arguments = [url, "--spa", "-H", field, "--server", &address];
            let ended = explain(folder.path(), &arguments);
            assert_eq!(ended.status, Some(0), "{url} {field}: {}", ended.text());
            let line = format!("\ncache-control: {value}\n");
            assert!(
                ended.text().contains(&line),
                "{url} {field}: {}",
                ended.text()
            );
        }
        // A server with another site is reported.
        let other = Folder::new();
        other.write("about.html", "something else");
        let server = engine.serve(other.path(), &[]);
        let address = format!("http://{}", server.address());
        let ended = explain(folder.path(), &["/about", "--server", &address]);
        assert_eq!(ended.status, Some(1));
        assert!(
            ended
                .text()
                .contains("\nthe server answers differently:\n  content-length: 14 (")
        );
    });
}

#[test]
fn a_server_is_asked_over_tls() {
    let folder = site();
    folder.write("_redirects", "https://localhost/only-tls /about 302\n");
    let secure = Secure::serve(Engine::Epoll, folder.path(), &["--no-listing"]);
    let address = format!("https://localhost:{}", secure.server.address().port());
    let authority = secure.authority.file();
    let authority = authority.to_str().expect("UTF-8");
    for url in ["/about", "/none", "https://localhost/only-tls"] {
        for trust in [&["--cacert", authority][..], &["--insecure"]] {
            let arguments = [&[url, "--server", &address][..], trust].concat();
            let ended = explain(folder.path(), &arguments);
            assert_eq!(ended.status, Some(0), "{url}: {ended:?}");
            let port = secure.server.address().port();
            let same = format!("\nthe server answers the same\nHTTP/3 at UDP port {port}\n");
            assert!(ended.text().ends_with(&same), "{}", ended.text());
        }
    }
    // An address without a scheme has that of the URL.
    let bare = address.replace("https://", "");
    let url = "https://localhost/only-tls";
    explain(
        folder.path(),
        &[url, "--server", &bare, "--cacert", authority],
    )
    .success();
    // The owner of the record is the URL's, and its port that of HTTP/3.
    for (authority, record) in [
        (
            "www.example.org:PORT",
            "_PORT._https.www.example.org. 3600 IN HTTPS 1 www.example.org. \
             alpn=\"h3,h2,http/1.1\" port=PORT",
        ),
        (
            "www.example.org",
            "www.example.org. 3600 IN HTTPS 1 . alpn=\"h3\" no-default-alpn port=PORT",
        ),
        (
            "www.example.org:7",
            "_7._https.www.example.org. 3600 IN HTTPS 1 www.example.org. \
             alpn=\"h3\" no-default-alpn port=PORT",
        ),
    ] {
        let port = secure.server.address().port().to_string();
        let [authority, record] = [authority, record].map(|text| text.replace("PORT", &port));
        let url = format!("https://{authority}/about");
        let ended = explain(folder.path(), &[&url, "--server", &address, "--insecure"]);
        let expect = format!(" for the DNS: {record}\n");
        assert!(ended.text().ends_with(&expect), "{}", ended.text());
    }
    let ended = explain(folder.path(), &["/about", "--server", &address]);
    assert_eq!(ended.status, Some(2), "{ended:?}");
    assert!(
        ended.err.contains("help: name its authority with --cacert"),
        "{ended:?}"
    );
    let clear = address.replace("https", "http");
    let ended = explain(folder.path(), &["/about", "--server", &clear]);
    assert!(
        ended.text().contains("  status 400 (expected 200)"),
        "{ended:?}"
    );
    let plain = Engine::Epoll.serve(folder.path(), &[]);
    let address = format!("https://{}", plain.address());
    let ended = explain(folder.path(), &["/about", "--server", &address]);
    assert!(
        ended
            .err
            .contains("the server does not speak TLS there\nhelp: use http://"),
        "{ended:?}"
    );
}

#[test]
fn copies_elsewhere_and_what_compress_says_are_foreseen() {
    let (folder, cache) = (Folder::new(), Folder::new());
    folder.write("page.html", "<p>once and again</p>\n".repeat(200));
    let into = cache.path().to_str().expect("UTF-8");
    let path = folder.path().to_str().expect("UTF-8");
    gannet(["compress", path, "--into", into]).success();
    let server = Gannet::serve(folder.path(), &["--compress", into]);
    let address = format!("http://{}", server.address());
    let brotli = ["/page.html", "-H", "accept-encoding: br"];
    let ask = |more: &[&str]| explain(folder.path(), &[&brotli, more].concat());
    let has = |text: &str, line: &str| text.lines().any(|it| it == line);

    let known = ask(&["--compress", into, "--server", &address]).success();
    assert!(has(known.text(), "content-encoding: br"), "{known:?}");
    assert!(
        has(known.text(), "the server answers the same"),
        "{known:?}"
    );
    for (compress, expect) in [("auto", true), ("stored", false), ("off", false)] {
        let ended = ask(&["--compress", compress]).success();
        let is_made = ended.text().contains("made by the server");
        assert_eq!(is_made, expect, "{compress}: {ended:?}");
        assert!(!ended.text().contains("content-encoding"), "{ended:?}");
    }
    // A file of which something has changed since has no copy.
    let mode = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(folder.join("page.html"), mode).expect("ours");
    let changed = ask(&["--compress", into]).success();
    assert!(changed.text().contains("made by the server"), "{changed:?}");

    let none = cache.join("none");
    let none = none.to_str().expect("UTF-8");
    ask(&["--compress", none]).failure(
        2,
        &format!(
            "gannet: cannot open '{none}': no such file or directory (ENOENT)\n\
             help: 'gannet compress DIR --into CACHE' makes and fills it\n"
        ),
    );
}

#[test]
fn what_cannot_be_explained_is_told() {
    let folder = Folder::new();
    gannet_in(&folder, ["explain", "http:///x"]).failure(
        2,
        "gannet: cannot explain 'http:///x': it has no host\n\
         help: write it as /PATH or http://HOST/PATH\n",
    );
    for path in ["/..", "/a%zz", "/a%5cb"] {
        let ended = gannet_in(&folder, ["explain", path]).success();
        assert!(ended.text().ends_with("\n\nstatus 400\n"), "{ended:?}");
    }
    gannet_in(&folder, ["explain", "/", "-H", "x"]).failure(
        2,
        "gannet: 'x' is not a field\nhelp: write it as NAME: VALUE\n",
    );
    gannet_in(&folder, ["explain", "/", "-s", "ftp://localhost"]).failure(
        2,
        "gannet: cannot ask 'ftp://localhost': the scheme is 'ftp' (expected http or https)\n\
         help: name it as http://HOST:PORT or https://HOST:PORT\n",
    );
    gannet_in(
        &folder,
        [
            "explain",
            "/",
            "-s",
            "https://localhost",
            "--cacert",
            "none",
        ],
    )
    .failure(
        2,
        "gannet: cannot ask 'https://localhost': certificates: 'none': no such file or directory \
         (ENOENT)\n\
         help: name a file of certificates (PEM) with --cacert FILE\n",
    );
}

/// Files that the server may not open are answered with 403, and a missing icon with the built-in
/// one.
#[test]
fn what_may_not_be_read_and_what_the_server_has_itself_are_foreseen() {
    let folder = Folder::new();
    for name in [
        "closed.html",
        "shut/page.html",
        "names/page.html",
        "open.html",
    ] {
        folder.write(name, "x");
    }
    let set = |name: &str, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(folder.join(name), mode).expect("ours");
    };
    set("closed.html", 0o000);
    set("shut", 0o000);
    set("names", 0o744);
    let as_somebody = |arguments: &[&str]| {
        let mut command = command_of_nobody();
        command.current_dir(folder.path()).args(arguments);
        command
    };
    let server = Gannet::start(&mut as_somebody(&["--port", "0", "."]));
    let address = format!("http://{}", server.address());
    for (path, status) in [
        ("/closed.html", 403),
        ("/closed", 403),
        ("/shut", 403),
        ("/shut/", 403),
        ("/shut/page.html", 403),
        ("/shut/none", 403),
        ("/names/page.html", 403),
        ("/names/", 403),
        ("/open", 200),
        ("/none", 404),
        ("/favicon.ico", 200),
    ] {
        let ended = run(&mut as_somebody(&["explain", path, ".", "-s", &address]));
        let expect = format!("\nstatus {status}\n");
        assert!(ended.text().contains(&expect), "{path}: {ended:?}");
        assert_eq!(ended.status, Some(0), "{path}: {ended:?}");
    }
    let ended = run(&mut as_somebody(&[
        "explain",
        "/favicon.ico",
        ".",
        "--no-favicon",
    ]));
    assert!(ended.text().contains("\nstatus 404\n"), "{ended:?}");
    // Unreadable files cannot be checked.
    let ended = run(&mut as_somebody(&["check", "."]));
    assert_eq!(ended.status, Some(2), "{ended:?}");
    for name in ["shut", "names"] {
        set(name, 0o755);
    }
}

/// Of a directory for many hosts, the entry is asked that a server asks.
#[test]
fn a_host_has_its_entry() {
    let folder = Folder::new();
    folder.write("sites/a.example/index.html", "site a");
    folder.write("page/index.html", "stored");
    gannet_in(&folder, ["publish", "page", "sites/b.example"]).success();
    let path = folder.join("sites");
    let check = |url: &str, status: u16, line: &str| {
        let ended = explain(&path, &["--hosts", url]).success();
        let has = |line: &str| ended.text().lines().any(|it| it == line);
        assert!(has(&format!("status {status}")), "{}", ended.text());
        assert!(has(line), "{line}\n{}", ended.text());
    };
    check(
        "http://A.example/",
        200,
        "answered by the entry 'a.example'",
    );
    check("//b.example/", 200, "answered by the entry 'b.example'");
    let none = "  no entry is named after 'c.example', and there is none for all other hosts";
    check("//c.example/", 421, none);
    check(
        "/",
        421,
        "  there is no entry for all hosts: name one, as in //HOST/PATH",
    );
    let server = Gannet::serve(&path, &["--hosts"]);
    let address = server.address().to_string();
    for host in ["a.example", "b.example", "c.example"] {
        let url = format!("//{host}/");
        explain(&path, &["--hosts", &url, "--server", &address]).success();
    }
    folder.write("sites/_default/index.html", "others");
    check("//c.example/", 200, "answered by the entry '_default'");
    check("/", 200, "answered by the entry '_default'");
}
