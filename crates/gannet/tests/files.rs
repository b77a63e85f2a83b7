//! A live directory: how paths are resolved, what is hidden, and what happens when files change.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use gannet_testkit::client::{Client, ask, get, head};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::until;
use gannet_testkit::{Folder, Gannet, command_of_nobody, left_out};
use rustix::fs::{CWD, Dev, FileType, Mode};

#[test]
fn content_types_and_charset() {
    let site = Folder::new();
    let expect = [
        ("a.html", "text/html; charset=utf-8"),
        ("a.css", "text/css; charset=utf-8"),
        ("a.js", "text/javascript; charset=utf-8"),
        ("a.mjs", "text/javascript; charset=utf-8"),
        ("a.txt", "text/plain; charset=utf-8"),
        ("A.TXT", "text/plain; charset=utf-8"),
        ("a.svg", "image/svg+xml"),
        ("a.json", "application/json"),
        ("a.map", "application/json"),
        ("a.webmanifest", "application/manifest+json"),
        ("a.wasm", "application/wasm"),
        ("a.avif", "image/avif"),
        ("a.png", "image/png"),
        ("a.woff2", "font/woff2"),
        ("a.pdf", "application/pdf"),
        ("a.mine", "text/x-mine"),
        ("a.unheard-of", "application/octet-stream"),
        ("none", "application/octet-stream"),
    ];
    for (name, _) in expect {
        site.write(name, "x");
    }
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--type", "mine=text/x-mine"]);
        let mut client = Client::new(&server);
        for (name, content_type) in expect {
            let response = client.get(&format!("/{name}")).expect(200);
            assert_eq!(response.field("content-type"), Some(content_type), "{name}");
            assert_eq!(response.field("x-content-type-options"), Some("nosniff"));
        }
    });
}

#[test]
fn index_pages_redirects_and_clean_urls() {
    let site = Folder::site();
    site.write("both.html", "page both");
    site.write("both/x.txt", "x");
    site.write("a b/index.html", "spaced");
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        assert_eq!(
            client.get("/docs/").expect(200).text(),
            "<!doctype html><title>docs</title>\n"
        );
        client.get("/docs/index.html").expect(200);
        client.get("/about").expect(200);
        client.get("/about.html").expect(200);
        let response = client.get("/about/").expect(301);
        assert_eq!(response.field("location"), Some("/about"));
        assert_eq!(client.get("/both").expect(200).text(), "page both");

        // A target is never taken for a host, and the query is kept.
        for (target, location) in [
            ("/docs", "/docs/"),
            ("/docs?a=b&c=//d", "/docs/?a=b&c=//d"),
            ("//docs", "/docs/"),
            ("///docs?x", "/docs/?x"),
            ("/x/..//docs", "/docs/"),
            ("/a%20b", "/a%20b/"),
            ("http://other.example/docs?q", "/docs/?q"),
        ] {
            let response = client.get(target).expect(301);
            assert_eq!(response.field("location"), Some(location), "{target}");
            assert_eq!(response.content_length(), Some(0));
        }
        for target in [
            "//other.example/docs",
            "//other.example",
            "/%2fother.example/docs/..",
        ] {
            let response = client.get(target);
            assert_eq!(response.field("location"), None, "{target}");
            assert!(
                matches!(response.status, 400 | 404),
                "{target}: {}",
                response.status
            );
        }
        let server = engine.serve(site.path(), &["--no-clean-urls"]);
        get(&server, "/about").expect(404);
    });
}

#[test]
fn the_nearest_404_page_and_applications() {
    let site = Folder::site();
    site.write("docs/404.html", "not in the docs");
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let root_page = "<!doctype html><title>nothing here</title>\n";
        for (target, text) in [
            ("/x", root_page),
            ("/x/y/z", root_page),
            ("/docs/x", "not in the docs"),
            ("/docs/x/y", "not in the docs"),
            ("/docs/../x", root_page),
        ] {
            assert_eq!(get(&server, target).expect(404).text(), text, "{target}");
        }
        // Conditions and ranges apply as to a 200.
        let lines = ["range: bytes=0-3"];
        assert_eq!(
            ask(&server, "GET", "/x", &lines).expect(404).text(),
            root_page
        );
        ask(&server, "HEAD", "/x", &[]).expect(404);

        let server = engine.serve(site.path(), &["--spa"]);
        let front = get(&server, "/").expect(200).body;
        assert!(get(&server, "/users/42").expect(200).body == front);
        get(&server, "/users/42.js").expect(404);
        get(&server, "/assets/missing.css").expect(404);
        get(&server, "/about").expect(200);

        let plain = Folder::new();
        plain.write("a.txt", "a");
        let server = engine.serve(plain.path(), &[]);
        let page = get(&server, "/missing").expect(404);
        assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
        assert!(page.text().contains("404"));
    });
}

/// A folder whose items are hard to list.
fn folder_to_list() -> Folder {
    let site = Folder::new();
    site.write("list/b.txt", "12345");
    site.write("list/sub/x", "");
    site.write("list/<script>&\"'.txt", "");
    site.write("list/.hidden", "");
    site.write(OsStr::from_bytes(b"list/not-\xff-utf8"), "");
    rustix::fs::mknodat(
        CWD,
        site.join("list/fifo"),
        FileType::Fifo,
        Mode::RWXU,
        Dev::default(),
    )
    .expect("a FIFO");
    site
}

#[test]
fn listings_as_page_and_as_json() {
    on_both_engines(|engine| {
        let site = folder_to_list();
        let server = engine.serve(site.path(), &[]);
        let page = get(&server, "/list/").expect(200);
        assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
        let policy = page
            .field("content-security-policy")
            .expect("a page has a policy");
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(policy.contains("script-src 'sha256-"), "{policy}");
        let text = page.text();
        assert!(text.contains("href=\"./b.txt\""), "{text}");
        assert!(text.contains("href=\"./sub/\""), "{text}");
        assert!(text.contains("&lt;script&gt;&amp;&quot;"), "{text}");
        assert_eq!(text.matches("<script").count(), 1, "{text}");
        assert!(
            !text.contains(".hidden") && !text.contains("fifo"),
            "{text}"
        );
        assert!(text.contains("not-%FF-utf8"), "{text}");

        let json = ask(&server, "GET", "/list/", &["accept: application/json"]).expect(200);
        assert_eq!(json.field("content-type"), Some("application/json"));
        assert!(
            json.field("vary")
                .is_some_and(|vary| vary.contains("accept"))
        );
        let text = json.text();
        assert!(
            text.contains("{\"name\":\"b.txt\",\"type\":\"file\",\"size\":5,"),
            "{text}"
        );
        assert!(
            text.contains("{\"name\":\"sub\",\"type\":\"directory\""),
            "{text}"
        );
        assert!(text.contains("<script>&\\\"'.txt"), "{text}");
        assert_eq!(text.lines().count(), 2 + 4, "{text}");
        assert!(get(&server, "/list/?format=json").expect(200).body == json.body);
        ask(&server, "HEAD", "/list/", &[]).expect(200);

        // Unknown parameters are ignored, and JSON is always in the order of names.
        let sorted = "sort=size&order=desc";
        let page = get(&server, &format!("/list/?x=1&{sorted}&page=2")).expect(200);
        let place = |name: &str| page.text().find(&format!("href=\"./{name}")).expect(name);
        assert!(place("sub/") < place("b.txt") && place("b.txt") < place("not-%FF-utf8"));
        let json = get(&server, &format!("/list/?format=json&{sorted}")).expect(200);
        let place = |name: &str| json.text().find(&format!("\"{name}")).expect(name);
        assert!(place("sub") < place("<script>") && place("<script>") < place("b.txt"));

        // A change of the folder is noticed soon.
        site.write("list/new.txt", "");
        until("the new file is listed", || {
            get(&server, "/list/").text().contains("new.txt")
        });

        let server = engine.serve(site.path(), &["--no-listing"]);
        get(&server, "/list/").expect(404);
    });
}

#[test]
fn dotfiles_are_not_there() {
    let site = Folder::new();
    for path in [
        ".env",
        ".git/config",
        "a/.secret",
        ".well-known/ok.txt",
        ".well-known/.no",
    ] {
        site.write(path, "content");
    }
    site.write("a/.well-known/no.txt", "content");
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        for target in [
            "/.env",
            "/%2eenv",
            "/.git/config",
            "/.git/",
            "/.git",
            "/a/.secret",
            "/a/%2esecret",
            "/.well-known/.no",
            "/a/.well-known/no.txt",
            "/a//.secret",
            "/x/../.env",
        ] {
            get(&server, target).expect(404);
        }
        assert_eq!(
            get(&server, "/.well-known/ok.txt").expect(200).text(),
            "content"
        );
        let server = engine.serve(site.path(), &["--dotfiles"]);
        get(&server, "/.env").expect(200);
        get(&server, "/a/.secret").expect(200);
    });
}

#[test]
fn sidecars_by_what_the_client_accepts() {
    let site = Folder::new();
    let original = "function original() {}\n".repeat(20);
    site.write("app.js", &original);
    site.write("app.js.gz", "the gzip sidecar of forty bytes or so....");
    site.write("app.js.br", "br sidecar");
    site.write("app.js.zst", "the zstd sidecar");
    site.write("stale.js", &original);
    site.write("stale.js.br", "stale");
    set_modified(
        &site.join("stale.js.br"),
        SystemTime::now() - Duration::from_secs(60),
    );
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let check = |accept: &str, coding: Option<&str>, len: usize| {
            for method in ["GET", "HEAD"] {
                let line = format!("accept-encoding: {accept}");
                let response = ask(&server, method, "/app.js", &[&line]).expect(200);
                assert_eq!(response.field("content-encoding"), coding, "{accept}");
                assert_eq!(response.content_length(), Some(len as u64), "{accept}");
                assert_eq!(response.field("vary"), Some("accept-encoding"));
                let content_type = response.field("content-type");
                assert_eq!(content_type, Some("text/javascript; charset=utf-8"));
            }
        };
        let (gz, br, zst, identity) = (41, 10, 16, original.len());
        check("gzip", Some("gzip"), gz);
        check("br", Some("br"), br);
        check("zstd", Some("zstd"), zst);
        check("gzip, deflate, br, zstd", Some("br"), br);
        check("gzip, zstd", Some("zstd"), zst);
        check("*", Some("gzip"), gz);
        check("br;q=0, *", Some("gzip"), gz);
        check("br;q=0, gzip;q=0.5", Some("gzip"), gz);
        check("BR", Some("br"), br);
        check("identity", None, identity);
        check("deflate", None, identity);
        check("br;q=0", None, identity);
        check("", None, identity);

        let plain = get(&server, "/app.js").expect(200);
        assert_eq!(plain.text(), original);
        assert_eq!(plain.field("vary"), Some("accept-encoding"));
        // Each coding is a representation with its own tag and ranges.
        let line = "accept-encoding: br";
        let coded = ask(&server, "GET", "/app.js", &[line]);
        assert_ne!(coded.tag(), plain.tag());
        let same = format!("if-none-match: {}", coded.tag());
        let known = ask(&server, "GET", "/app.js", &[line, &same]).expect(304);
        assert_eq!(known.field("vary"), Some("accept-encoding"));
        ask(&server, "GET", "/app.js", &[&same]).expect(200);
        // Bytes of a coding are sent only to clients that have its tag.
        let range = "range: bytes=3-";
        let same = format!("if-range: {}", coded.tag());
        let part = ask(&server, "GET", "/app.js", &[line, range, &same]).expect(206);
        assert_eq!(part.text(), "sidecar");
        assert_eq!(part.field("content-encoding"), Some("br"));
        let part = ask(&server, "GET", "/app.js", &[line, range]).expect(206);
        assert_eq!(part.text(), &original[3..]);
        assert_eq!(part.field("content-encoding"), None);

        let stale = ask(&server, "GET", "/stale.js", &[line]).expect(200);
        assert_eq!(stale.text(), original);
        // A sidecar requested by its own name is an ordinary file.
        let itself = get(&server, "/app.js.gz").expect(200);
        assert_eq!(itself.field("content-encoding"), None);

        let server = engine.serve(site.path(), &["--compress=off"]);
        let response = ask(&server, "GET", "/app.js", &[line]).expect(200);
        assert_eq!(response.text(), original);
        assert_eq!(response.field("vary"), None);
    });
}

#[test]
fn a_site_without_an_icon_is_given_one() {
    on_both_engines(|engine| {
        let site = Folder::new();
        site.write("index.html", "page");
        let archives = Folder::new();
        let icon = |server: &Gannet| {
            let response = get(server, "/favicon.ico").expect(200);
            assert_eq!(response.field("content-type"), Some("image/png"));
            assert_eq!(response.field("cache-control"), Some("max-age=3600"));
            assert_eq!(response.field("x-content-type-options"), Some("nosniff"));
            assert!(response.body.starts_with(b"\x89PNG"));
            ask(server, "HEAD", "/favicon.ico", &[]).expect(200);
            get(server, "/folder/favicon.ico").expect(404);
        };
        let server = engine.serve(site.path(), &[]);
        icon(&server);
        icon(&engine.serve(packed(&site, &archives), &[]));
        get(
            &engine.serve(site.path(), &["--no-favicon"]),
            "/favicon.ico",
        )
        .expect(404);
        // A 404 page does not replace the built-in icon; an icon of the site does.
        site.write("404.html", "not here");
        icon(&engine.serve(site.path(), &[]));
        icon(&engine.serve(packed(&site, &archives), &[]));
        site.write("favicon.ico", "its own");
        let own = || get(&server, "/favicon.ico").body == b"its own";
        until("the site's own icon is served", own);
    });
}

/// Packs the folder into an archive in another folder.
fn packed(site: &Folder, archives: &Folder) -> std::path::PathBuf {
    let archive = archives.join("site.gannet");
    let mut pack = gannet_testkit::command();
    pack.arg("pack").arg(site.path()).arg("-o").arg(&archive);
    gannet_testkit::run(&mut pack).success();
    archive
}

fn set_modified(path: &Path, time: SystemTime) {
    let file = fs::File::options()
        .write(true)
        .open(path)
        .expect("writable");
    file.set_modified(time).expect("a time that files can have");
}

#[test]
fn changes_are_seen() {
    on_both_engines(|engine| {
        let site = Folder::new();
        site.write("edited.txt", "one");
        site.write("same-time.txt", "one");
        site.write("replaced.txt", "one");
        site.write("deleted.txt", "one");
        site.write("large.txt", "1".repeat(100_000));
        site.write("app.js", "original ".repeat(10));
        site.write("sub/x.txt", "x");
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        let mut first = |target: &str| client.get(target);
        assert_eq!(first("/edited.txt").expect(200).text(), "one");
        assert_eq!(first("/same-time.txt").text(), "one");
        assert_eq!(first("/replaced.txt").text(), "one");
        assert_eq!(first("/deleted.txt").text(), "one");
        assert_eq!(first("/large.txt").body.len(), 100_000);
        first("/app.js").expect(200);
        first("/created.txt").expect(404);
        first("/moved/x.txt").expect(404);

        site.write("edited.txt", "two, and longer");
        // An edit is noticed even if length and time are unchanged.
        let old_time = fs::metadata(site.join("same-time.txt"))
            .expect("there")
            .modified();
        site.write("same-time.txt", "two");
        set_modified(&site.join("same-time.txt"), old_time.expect("it has one"));
        site.write("new", "two");
        fs::rename(site.join("new"), site.join("replaced.txt")).expect("renamed");
        fs::remove_file(site.join("deleted.txt")).expect("deleted");
        site.write("large.txt", "2".repeat(120_000));
        site.write("app.js.br", "br");
        site.write("created.txt", "now");
        fs::rename(site.join("sub"), site.join("moved")).expect("renamed");

        let mut body = |target: &str| client.get(target).body;
        until("edited", || body("/edited.txt") == b"two, and longer");
        until("edited, same time", || body("/same-time.txt") == b"two");
        until("replaced", || body("/replaced.txt") == b"two");
        until("large", || {
            body("/large.txt") == "2".repeat(120_000).as_bytes()
        });
        let line = ["accept-encoding: br"];
        until("sidecar", || {
            client.request("GET", "/app.js", &line).body == b"br"
        });
        let mut status = |target: &str| client.get(target).status;
        until("deleted", || status("/deleted.txt") == 404);
        until("created", || status("/created.txt") == 200);
        until("moved", || {
            status("/moved/x.txt") == 200 && status("/sub/x.txt") == 404
        });
    });
}

#[test]
fn a_storm_of_renames_never_mixes_versions() {
    on_both_engines(|engine| {
        // Lengths below and above the cache limit.
        for (old_len, new_len) in [(10_000, 11_000), (200_000, 300_000)] {
            let site = Folder::new();
            site.write("page.txt", "a".repeat(old_len));
            // Without a cache every request looks up the file, so that each may observe a change.
            let server = engine.serve(site.path(), &["--cache-memory", "0"]);
            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                scope.spawn(|| {
                    for count in 0.. {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        let (letter, len) = match count % 2 {
                            0 => ("b", new_len),
                            _ => ("a", old_len),
                        };
                        site.write("new.tmp", letter.repeat(len));
                        let target = site.join("page.txt");
                        fs::rename(site.join("new.tmp"), target).expect("renamed");
                    }
                });
                let _over = SetOnDrop(&is_over);
                ask_for_versions(&server, old_len, new_len);
            });
        }
    });
}

/// Stops another thread, even if the test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends requests until there were 600 and several versions have been seen.
fn ask_for_versions(server: &Gannet, old_len: usize, new_len: usize) {
    let mut seen: HashMap<String, u8> = HashMap::new();
    let mut client = Client::new(server);
    let mut count = 0;
    until("600 answers and several versions", || {
        let response = client.get("/page.txt").expect(200);
        let letter = response.body[0];
        assert!(response.body.iter().all(|b| *b == letter), "a mixture");
        let len = if letter == b'a' { old_len } else { new_len };
        assert_eq!(response.body.len(), len);
        let tag = response.tag().to_owned();
        let tagged = *seen.entry(tag).or_insert(letter);
        assert_eq!(tagged, letter, "a tag of another version");
        count += 1;
        count >= 600 && seen.len() > 5
    });
}

#[test]
fn symbolic_links_inside_the_root_only() {
    let outside = Folder::new();
    outside.write("secret.txt", "secret");
    outside.write("folder/secret.txt", "secret");
    let site = Folder::new();
    site.write("real/a.txt", "inside");
    let link = |target: &Path, name: &str| symlink(target, site.join(name)).expect("a link");
    link(&outside.join("secret.txt"), "absolute.txt");
    link(outside.path(), "folder");
    let name = outside.path().file_name().expect("a name");
    link(
        &Path::new("..").join(name).join("secret.txt"),
        "relative.txt",
    );
    link(Path::new("/proc/self/root/etc/passwd"), "proc.txt");
    link(Path::new("/proc/self/cwd"), "proc");
    link(Path::new("/dev/zero"), "device.txt");
    link(Path::new("loop.txt"), "loop.txt");
    link(Path::new("nowhere"), "dangling.txt");
    link(Path::new("real/a.txt"), "inside.txt");
    link(Path::new("real"), "inside");
    link(Path::new("../real/a.txt"), "real/up.txt");
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        for target in [
            "/absolute.txt",
            "/folder/secret.txt",
            "/folder/folder/secret.txt",
            "/folder/",
            "/folder",
            "/relative.txt",
            "/proc.txt",
            "/proc/etc/passwd",
            "/device.txt",
            "/loop.txt",
            "/dangling.txt",
        ] {
            let response = get(&server, target).expect(404);
            assert!(!response.text().contains("secret"), "{target}");
        }
        for target in ["/inside.txt", "/inside/a.txt", "/real/up.txt"] {
            assert_eq!(
                get(&server, target).expect(200).text(),
                "inside",
                "{target}"
            );
        }
    });
}

#[test]
fn a_folder_swapped_with_a_link_never_leaks() {
    const FILES: usize = 100;
    let outside = Folder::new();
    for file in 0..FILES {
        outside.write(format!("{file}.txt"), "secret");
    }
    on_both_engines(|engine| {
        let site = Folder::new();
        for file in 0..FILES {
            site.write(format!("own/{file}.txt"), "own");
        }
        symlink(outside.path(), site.join("link")).expect("a link");
        // Without a cache every request looks up the file.
        let server = engine.serve(site.path(), &["--cache-memory", "0"]);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let swapping = scope.spawn(|| {
                let (own, link) = (site.join("own"), site.join("link"));
                let mut count = 0_u32;
                while !is_over.load(Ordering::Relaxed) {
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(CWD, &own, CWD, &link, flags).expect("exchanged");
                    count += 1;
                }
                count
            });
            let over = SetOnDrop(&is_over);
            let mut client = Client::new(&server);
            let mut own = 0;
            for round in 0..100 {
                let file = |n: usize| format!("/own/{}.txt", (round + n) % FILES);
                let requests: String = (0..100).map(|n| head("GET", &file(n), &[])).collect();
                client.send(requests);
                for _ in 0..100 {
                    let response = client.response();
                    assert!(!response.text().contains("secret"), "a leak");
                    match response.status {
                        200 => own += u32::from(response.text() == "own"),
                        status => assert_eq!(status, 404),
                    }
                }
            }
            drop(over);
            let swaps = swapping.join().expect("does not panic");
            assert!(own > 100 && swaps > 100, "{own} found, {swaps} swaps");
        });
    });
}

#[test]
fn what_is_no_regular_file_is_404_at_once() {
    let site = Folder::new();
    let node =
        |name: &str, kind, dev| rustix::fs::mknodat(CWD, site.join(name), kind, Mode::RWXU, dev);
    node("fifo", FileType::Fifo, 0).expect("a FIFO");
    let _socket = UnixListener::bind(site.join("socket")).expect("a socket");
    let mut names = vec!["fifo", "socket"];
    // /dev/zero and a terminal; creating devices needs privileges.
    for (name, dev) in [
        ("zero", rustix::fs::makedev(1, 5)),
        ("tty", rustix::fs::makedev(5, 0)),
    ] {
        match node(name, FileType::CharacterDevice, dev) {
            Ok(()) => names.push(name),
            Err(error) => left_out("device files", error),
        }
    }
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        for name in &names {
            get(&server, &format!("/{name}")).expect(404);
            get(&server, &format!("/{name}/")).expect(404);
        }
    });
}

#[test]
fn odd_names_get_an_answer() {
    let site = Folder::new();
    let long = format!("{}.txt", "n".repeat(246));
    site.write(&long, "long");
    site.write(OsStr::from_bytes(b"high-\xe9\xff"), "high");
    site.write("grüße.txt", "utf-8");
    site.write("a b+c%20d&e=f;g?.txt", "special");
    site.write("file", "file");
    site.write("back\\slash", "x");
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        for (target, text) in [
            (format!("/{long}").as_str(), "long"),
            ("/high-%E9%ff", "high"),
            ("/gr%C3%BC%c3%9fe.txt", "utf-8"),
            ("/a%20b+c%2520d&e=f;g%3F.txt", "special"),
            ("/%66%69%6C%65", "file"),
            ("/./x/../file", "file"),
            ("/x/%2e%2e/file", "file"),
            ("//file", "file"),
            ("/file?a?b#", "file"),
        ] {
            let response = client.get(target);
            if target.ends_with('#') {
                assert_eq!(response.status, 400);
                client = Client::new(&server);
                continue;
            }
            assert_eq!((response.status, response.text()), (200, text), "{target}");
        }
        let levels = "/a".repeat(1500);
        for (target, status) in [
            (format!("/{}", "n".repeat(300)), 404),
            (format!("/{}", "n".repeat(255)), 404),
            (levels.clone(), 404),
            (format!("{levels}/"), 404),
            (format!("/{}", "n".repeat(6000)), 404),
            ("/xy".repeat(2000), 404),
            ("/%00".into(), 400),
            ("/file%00.txt".into(), 400),
            ("/%".into(), 400),
            ("/%zz".into(), 400),
            ("/file%2".into(), 400),
            ("/docs%2ffile".into(), 404),
            ("/docs%2f..%2Ffile".into(), 200),
            ("/..".into(), 400),
            ("/%2e%2e/file".into(), 400),
            ("/..%2ffile".into(), 400),
            ("/..%5cfile".into(), 400),
            ("/back%5cslash".into(), 400),
            ("/file/".into(), 301),
            ("/file/x".into(), 404),
            ("/%0d%0ax".into(), 400),
            ("/%ff%fe".into(), 404),
            ("/%F0%9F".into(), 404),
        ] {
            let mut client = Client::new(&server);
            let response = client.get(&target);
            assert_eq!(
                response.status,
                status,
                "{}",
                &target[..target.len().min(60)]
            );
            // The connection survives.
            client.get("/file").expect(200);
        }
        // Bytes that are not allowed in a target.
        let mut client = Client::new(&server);
        client.send(b"GET /high-\xe9\xff HTTP/1.1\r\nhost: a\r\n\r\n");
        let response = client.response();
        assert!(matches!(response.status, 200 | 400), "{}", response.status);
    });
}

#[test]
fn a_file_that_may_not_be_read() {
    let site = Folder::new();
    let path = site.write("private.txt", "private");
    rustix::fs::chmod(&path, Mode::empty()).expect("ours");
    on_both_engines(|engine| {
        let mut serve = command_of_nobody();
        serve
            .args(["--port", "0", "--engine", engine.name()])
            .arg(site.path());
        let server = Gannet::start(&mut serve);
        get(&server, "/private.txt").expect(403);
    });
}

#[test]
fn one_file_at_the_root_and_at_its_name() {
    let site = Folder::new();
    let path = site.write(".named file.html", "<p>one");
    site.write("other.txt", "other");
    on_both_engines(|engine| {
        let server = engine.serve(&path, &[]);
        assert_eq!(get(&server, "/").expect(200).text(), "<p>one");
        assert_eq!(
            get(&server, "/.named%20file.html").expect(200).text(),
            "<p>one"
        );
        for target in [
            "/other.txt",
            "/x/",
            "/.named%20file",
            "/.named%20file.html/",
        ] {
            get(&server, target).expect(404);
        }
    });
}

#[test]
fn the_tag_tells_versions_of_the_same_content_apart() {
    on_both_engines(|engine| {
        let site = Folder::new();
        let path = site.write("a.txt", "content");
        let server = engine.serve(site.path(), &["--cache-memory", "0"]);
        let before = get(&server, "/a.txt").tag().to_owned();
        assert_eq!(get(&server, "/a.txt").tag(), before);
        let past = SystemTime::UNIX_EPOCH + Duration::new(1_600_000_000, 7);
        set_modified(&path, past);
        until("another tag", || get(&server, "/a.txt").tag() != before);
    });
}

#[test]
fn configured_fields_are_on_every_answer() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let flags = ["--header", "X-Frame-Options: DENY", "--header", "x-a: b"];
        let server = engine.serve(site.path(), &flags);
        for target in ["/", "/missing", "/docs", "/%00"] {
            let response = get(&server, target);
            assert_eq!(response.field("x-frame-options"), Some("DENY"), "{target}");
            assert_eq!(response.field("x-a"), Some("b"));
        }
        let tag = format!("if-none-match: {}", get(&server, "/").tag());
        let response = ask(&server, "GET", "/", &[&tag]).expect(304);
        assert_eq!(response.field("x-a"), Some("b"));
    });
}
