//! Passwords: rules of a site, the operator's file, and what caches are told.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use gannet_testkit::client::{Client, Response, ask};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::h2::Peer;
use gannet_testkit::process::until;
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, Gannet, Signal, command, gannet_in, h3};

/// `bob:U*U` by bcrypt.
const BOB: &str = "bob:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";
/// `bob:U*U`
const RIGHT: &str = "Authorization: Basic Ym9iOlUqVQ==";
/// `bob:no`
const WRONG: &str = "Authorization: Basic Ym9iOm5v";
/// `carl:U*U`
const UNKNOWN: &str = "Authorization: Basic Y2FybDpVKlU=";
/// `anna:secret`
const ANNA: &str = "Authorization: Basic YW5uYTpzZWNyZXQ=";

fn site(users: &str) -> Folder {
    let site = Folder::new();
    site.write("index.html", "front");
    site.write("secret.html", "s".repeat(2_000));
    site.write("secret.html.gz", "not gzip");
    site.write("staging/index.html", "staging");
    site.write("staging/list/a.txt", "a");
    site.write("401.html", "<title>who</title>");
    let rules = format!(
        "/staging/*\n  Basic-Auth: {users}\n  Cache-Control: public, max-age=60, s-maxage=9\n\
         /secret\n  basic-auth: {users}\n\
         /*\n  X-Frame-Options: DENY\n  Link: </secret/plan.css>; rel=preload\n  X-Token: abc\n"
    );
    site.write("_headers", rules);
    site.write("_redirects", "/staging/old /new 301\n");
    site
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    coder.write_all(content).expect("in memory");
    coder.finish().expect("in memory")
}

fn pack(site: &Folder, out: &Folder, engine: Engine) -> PathBuf {
    let path = out.join(format!("{}.gannet", engine.name()));
    let path_text = path.to_str().expect("UTF-8");
    gannet_in(site, ["pack", ".", "-q", "-o", path_text]).success();
    path
}

/// Who has proved nothing gets no field that may tell what is there.
fn check_stranger(response: &Response) {
    assert_eq!(response.field("x-frame-options"), Some("DENY"));
    assert_eq!(response.field("link"), None);
    assert_eq!(response.field("x-token"), None);
}

/// The site's page asks for a password.
fn check_refusal(response: &Response) {
    assert_eq!(response.status, 401, "{response:?}");
    let challenge = response.field("www-authenticate").expect("a challenge");
    assert_eq!(challenge, "Basic realm=\"restricted\", charset=\"UTF-8\"");
    assert_eq!(response.field("cache-control"), Some("no-store"));
    check_stranger(response);
    assert_eq!(response.text(), "<title>who</title>");
}

#[test]
fn only_users_get_what_a_rule_protects() {
    on_both_engines(|engine| {
        let (site, out) = (site(BOB), Folder::new());
        let stored = pack(&site, &out, engine);
        for path in [site.path(), &stored] {
            let server = engine.serve(path, &["--workers", "2"]);
            let mut client = Client::new(&server);
            client.get("/").expect(200);
            let closed = [
                "/secret",
                "/secret/",
                "/secret.html",
                "/secret.html.gz",
                "/secret/index.html",
                "/staging",
                "/staging/",
                "/staging/index.html",
                "/staging/list/",
                "/staging/old",
                "/staging/none",
                "/%73taging/",
                "/staging//x/..",
            ];
            for path in closed {
                let answer = client.get(path);
                if answer.status != 400 {
                    check_refusal(&answer);
                }
            }
            for wrong in [WRONG, UNKNOWN, ANNA, "Authorization: Bearer x"] {
                check_refusal(&client.request("GET", "/secret", &[wrong]));
            }
            check_refusal(&client.request("GET", "/secret", &[RIGHT, RIGHT]));
            for _ in 0..3 {
                client.request("GET", "/secret", &[RIGHT]).expect(200);
            }
            client.request("GET", "/staging/none", &[RIGHT]).expect(404);
            client.request("GET", "/staging/old", &[RIGHT]).expect(301);
            check_refusal(&client.get("/secret"));
            let posted = client.request("POST", "/secret", &["Content-Length: 0"]);
            check_stranger(&posted.expect(405));
            let open = client.get("/").expect(200);
            assert_eq!(open.field("x-token"), Some("abc"));
        }
    });
}

/// An encoded slash is one: neither kind of rule is got around, and a user gets the file.
#[test]
fn an_encoded_slash_opens_nothing() {
    on_both_engines(|engine| {
        let (site, out) = (site(BOB), Folder::new());
        let stored = pack(&site, &out, engine);
        let users = out.write("users", format!("{BOB}\n"));
        let users = users.to_str().expect("UTF-8");
        site.write("_headers", "");
        let open = out.join("open.gannet");
        let open_text = open.to_str().expect("UTF-8");
        gannet_in(&site, ["pack", ".", "-q", "-o", open_text]).success();
        let by_operator = [
            "--password-file",
            users,
            "--password-path=/staging/*",
            "--password-path=/secret",
        ];
        let closed = [
            "/staging%2f",
            "/staging%2Findex.html",
            "/staging%2flist/a.txt",
            "/staging/list%2Fa.txt",
            "/%2Fstaging%2F",
            "/%2f%2fstaging/list%2f%2fa.txt",
            "/x%2f..%2fstaging/",
            "/x/..%2Fstaging%2Flist%2Fa.txt",
            "/staging%2f.%2flist%2fa.txt",
            "/staging%2flist%2f..%2f",
            "/%2fsecret",
            "/x%2F%2e%2e%2fsecret.html",
        ];
        let check = |path: &Path, flags: &[&str]| {
            let server = engine.serve(path, &[&["--workers", "1"], flags].concat());
            let mut peer = Peer::new(&server);
            for target in closed {
                ask(&server, "GET", target, &[]).expect(401);
                ask(&server, "HEAD", target, &[WRONG]).expect(401);
                peer.get(target).expect(401);
                let inside = ask(&server, "GET", target, &[RIGHT]);
                assert!([200, 301].contains(&inside.status), "{target} {inside:?}");
            }
            let file = ask(&server, "GET", "/staging%2Flist%2Fa.txt", &[RIGHT]).expect(200);
            assert_eq!(file.text(), "a");
            // Decoded once: this names a file with a percent sign.
            ask(&server, "GET", "/staging%252flist", &[]).expect(404);
            ask(&server, "GET", "/staging%2f..%2f", &[]).expect(200);
        };
        check(&stored, &[]);
        check(site.path(), &by_operator);
        check(&open, &by_operator);
        let directory = self::site(BOB);
        check(directory.path(), &[]);
    });
}

#[test]
fn no_shared_cache_may_keep_what_is_protected() {
    on_both_engines(|engine| {
        let (site, out) = (site(BOB), Folder::new());
        let stored = pack(&site, &out, engine);
        for path in [site.path(), &stored] {
            for (flags, staging, secret) in [
                (&[][..], "private, max-age=60", "private, max-age=1"),
                (
                    &["--header", "cache-control: public, max-age=5"],
                    "private, max-age=5",
                    "private, max-age=5",
                ),
            ] {
                let server = engine.serve(path, flags);
                let mut client = Client::new(&server);
                let whole = client.request("GET", "/secret", &[RIGHT]).expect(200);
                assert_eq!(whole.field("cache-control"), Some(secret));
                let tag = whole.field("etag").expect("a tag").to_owned();
                let same = format!("If-None-Match: {tag}");
                let kept = client.request("GET", "/secret", &[RIGHT, &same]);
                assert_eq!(kept.expect(304).field("cache-control"), Some(secret));
                let range = ["Range: bytes=2-5", RIGHT, "Accept-Encoding: identity"];
                let part = client.request("GET", "/secret", &range).expect(206);
                assert_eq!(part.field("cache-control"), Some(secret));
                assert_eq!(part.text(), "ssss");
                let head = client.request("HEAD", "/staging/", &[RIGHT]).expect(200);
                assert_eq!(head.field("cache-control"), Some(staging));
                let head = client.request("HEAD", "/staging/", &[]).expect(401);
                assert!(head.field("www-authenticate").is_some());
                let moved = client.request("GET", "/staging/old", &[RIGHT]).expect(301);
                assert_eq!(moved.field("cache-control"), Some("no-cache"));
            }
        }
    });
}

/// Over TLS by every version, some of whose requests arrive together.
#[test]
fn every_version_asks_for_the_password() {
    on_both_engines(|engine| {
        let site = site(BOB);
        let secure = Secure::serve(engine, site.path(), &["--workers", "2"]);
        let mut peer = Peer::secure(&secure, &[]);
        let fields = [("authorization", "Basic Ym9iOlUqVQ==")];
        let streams: Vec<_> = (0..20)
            .map(|_| peer.ask("GET", "/secret", &fields))
            .collect();
        for stream in streams {
            peer.answer(stream).expect(200);
        }
        peer.get("/secret").expect(401);
        let wrong = [("authorization", "Basic Ym9iOm5v")];
        peer.request("GET", "/secret", &wrong).expect(401);
        let mut quic = Quic::connect(secure.server.address(), &secure.authority);
        for (fields, status) in [
            (&fields[..], 200),
            (&wrong, 401),
            (&[], 401),
            (&fields, 200),
        ] {
            let id = quic.ask(&h3::request("GET", "/secret", fields));
            assert_eq!(quic.answer(id).status, status, "{fields:?}");
        }
        let mut client = secure.connect();
        // What follows in the pipeline waits with it.
        let request =
            |line: &str| format!("GET /secret HTTP/1.1\r\nHost: localhost\r\n{line}\r\n\r\n");
        client.send([request(WRONG), request(RIGHT), request("X-Y: z")].concat());
        for status in [401, 200, 401] {
            client.response().expect(status);
        }
    });
}

#[test]
fn passwords_in_the_clear_are_for_directories_alone() {
    on_both_engines(|engine| {
        let site = site("anna:secret");
        let server = engine.serve(site.path(), &[]);
        ask(&server, "GET", "/secret", &[ANNA]).expect(200);
        check_refusal(&ask(&server, "GET", "/secret", &[RIGHT]));
        let ended = gannet_in(&site, ["pack", ".", "-q", "-o", "x.gannet"]);
        assert_eq!(ended.status, Some(1), "{}", ended.err);
        assert!(
            ended
                .err
                .contains("_headers:2:15: found a password in the clear"),
            "{}",
            ended.err
        );
        assert!(ended.err.contains("gannet password USER"), "{}", ended.err);
        assert!(!ended.err.contains("secret"), "{}", ended.err);
        ask(&server, "GET", "/_headers", &[]).expect(404);
    });
}

/// The password of a folder is that of its index page, by whatever name an archive was packed; and the other
/// way round.
#[test]
fn an_archive_knows_the_names_of_its_index_pages() {
    on_both_engines(|engine| {
        let site = Folder::new();
        for name in [
            "index.html",
            "plan/start.htm",
            "plan/open.html",
            "draft/start.htm",
        ] {
            site.write(name, name);
        }
        let rules = format!("/plan/\n  Basic-Auth: {BOB}\n/draft/start.htm\n  Basic-Auth: {BOB}\n");
        let out = Folder::new();
        let users = out.join("users");
        out.write("users", format!("{BOB}\n"));
        let users = users.to_str().expect("UTF-8");
        let archive = out.join("site.gannet");
        let archive_name = archive.to_str().expect("UTF-8");
        let check = |flags: &[&str]| {
            let names = ["--index", "start.htm,index.html"];
            gannet_in(
                &site,
                [&["pack", ".", "-q", "-o", archive_name], &names[..]].concat(),
            )
            .success();
            let server = engine.serve(&archive, flags);
            for path in [
                "/plan/",
                "/plan/start.htm",
                "/plan/start",
                "/draft/",
                "/draft/start.htm",
            ] {
                ask(&server, "GET", path, &[]).expect(401);
                ask(&server, "GET", path, &[WRONG]).expect(401);
            }
            ask(&server, "GET", "/plan/", &[RIGHT]).expect(200);
            ask(&server, "GET", "/plan/open", &[]).expect(200);
            ask(&server, "GET", "/", &[]).expect(200);
        };
        let paths = [
            "--password-path",
            "/plan/",
            "--password-path",
            "/draft/start.htm",
        ];
        check(&[&["--password-file", users], &paths[..]].concat());
        site.write("_headers", rules);
        check(&[]);
    });
}

/// A user has to be in every list that holds for a path.
#[test]
fn an_inner_rule_opens_nothing() {
    on_both_engines(|engine| {
        let site = Folder::new();
        site.write("a.txt", "a");
        site.write("in/a.txt", "a");
        let both = "bob:U*U anna:secret";
        site.write(
            "_headers",
            format!("/*\n  Basic-Auth: {both}\n/in/*\n  Basic-Auth: bob:U*U carl:U*U\n"),
        );
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        for (path, line, status) in [
            ("/a.txt", RIGHT, 200),
            ("/a.txt", ANNA, 200),
            ("/a.txt", UNKNOWN, 401),
            ("/in/a.txt", RIGHT, 200),
            ("/in/a.txt", ANNA, 401),
            ("/in/a.txt", UNKNOWN, 401),
        ] {
            client.request("GET", path, &[line]).expect(status);
        }
    });
}

/// A directory that is being built anew has no `_headers` for a while.
#[test]
fn a_missing_rules_file_opens_nothing() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        for version in ["one", "two"] {
            folder.write(format!("{version}/index.html"), version);
        }
        let rules = format!("/*\n  Basic-Auth: {BOB}\n");
        folder.write("one/_headers", &rules);
        let current = folder.join("current");
        symlink("one", &current).expect("linked");
        let mut server = engine.serve(&current, &["--workers", "2"]);
        fs::remove_file(folder.join("one/_headers")).expect("there");
        server.says_next("no longer has '_headers'; its passwords");
        server.says_next("help: SIGHUP");
        ask(&server, "GET", "/", &[]).expect(401);
        symlink("two", folder.join("next")).expect("linked");
        fs::rename(folder.join("next"), &current).expect("switched");
        server.says_next("was replaced");
        server.says_next("no longer has '_headers'; its passwords");
        server.says_next("help: SIGHUP");
        ask(&server, "GET", "/", &[]).expect(401);
        assert_eq!(ask(&server, "GET", "/", &[RIGHT]).expect(200).text(), "two");
        server.signal(Signal::HUP);
        until("it is open", || ask(&server, "GET", "/", &[]).status == 200);
    });
}

/// Assets of another release are not sent past its users.
#[test]
fn assets_of_another_release_keep_their_users() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        let name = |version: &str| format!("_astro/plan.{version}Ab12Cd34.js");
        for (version, users) in [("one", BOB), ("two", BOB), ("three", "")] {
            folder.write(format!("{version}/index.html"), version);
            folder.write(
                format!("{version}/{}", name(version)),
                version.repeat(9_000),
            );
            if !users.is_empty() {
                let rules = format!("/_astro/*\n  Basic-Auth: {users}\n");
                folder.write(format!("{version}/_headers"), rules);
            }
            let stored = format!("{version}.gannet");
            gannet_in(&folder, ["pack", version, "-q", "-o", &stored]).success();
        }
        let served = folder.join("served.gannet");
        let put = |version: &str| {
            let new = folder.join("new.gannet");
            fs::copy(folder.join(format!("{version}.gannet")), &new).expect("copied");
            fs::rename(new, &served).expect("renamed");
        };
        put("one");
        let server = engine.serve(&served, &["--workers", "1"]);
        let becomes = |version: &str| {
            put(version);
            until("the release", || {
                ask(&server, "GET", "/", &[]).expect(200).text() == version
            });
        };
        let asset = |version: &str, fields: &[&str]| {
            ask(&server, "GET", &format!("/{}", name(version)), fields)
        };
        becomes("two");
        for version in ["one", "two"] {
            asset(version, &[]).expect(401);
            let got = asset(version, &[RIGHT]).expect(200);
            let lifetime = got.field("cache-control").expect("it is sent");
            assert!(lifetime.contains("private"), "{lifetime}");
        }
        becomes("three");
        asset("three", &[]).expect(200);
        for version in ["one", "two"] {
            asset(version, &[]).expect(404);
            asset(version, &[RIGHT]).expect(404);
        }
    });
}

#[test]
fn the_operators_file_protects_paths_and_follows_changes() {
    on_both_engines(|engine| {
        let (site, out) = (Folder::new(), Folder::new());
        site.write("index.html", "front");
        site.write("plan.html", "plan");
        let users = out.write("users", format!("# people\n{BOB}\n"));
        let file = users.to_str().expect("UTF-8");
        let all = engine.serve(site.path(), &["--password-file", file]);
        ask(&all, "GET", "/", &[]).expect(401);
        ask(&all, "GET", "/none", &[]).expect(401);
        ask(&all, "GET", "/", &[RIGHT]).expect(200);
        drop(all);
        let flags = [
            "--password-file",
            file,
            "--password-path",
            "/plan",
            "--workers",
            "2",
        ];
        let mut server = engine.serve(site.path(), &flags);
        ask(&server, "GET", "/", &[]).expect(200);
        ask(&server, "GET", "/plan.html", &[]).expect(401);
        ask(&server, "GET", "/plan", &[RIGHT]).expect(200);
        fs::write(&users, "bob:plain\n").expect("written");
        server.signal(Signal::HUP);
        server.says_next("cannot use the new passwords; keeping the old ones:");
        server.says_next("1:5: found no such hash");
        ask(&server, "GET", "/plan", &[RIGHT]).expect(200);
        let mut made = command();
        made.args(["password", "bob"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut made = made.spawn().expect("started");
        let mut input = made.stdin.take().expect("piped");
        input.write_all(b"no\n").expect("it reads");
        drop(input);
        let line = made.wait_with_output().expect("it ends").stdout;
        fs::write(&users, line).expect("written");
        // The old password is forgotten by all workers, and the new one works.
        until("the new password", || {
            ask(&server, "GET", "/plan", &[WRONG]).status == 200
        });
        for _ in 0..8 {
            ask(&server, "GET", "/plan", &[RIGHT]).expect(401);
        }
        // The last user can be revoked without a restart, and a restart does not fail for that.
        fs::write(&users, "# nobody\n").expect("written");
        let nobody = format!("'{file}' names no user: no client may have what it protects");
        // What was said of the reload before comes first.
        while !server
            .next_error_line()
            .expect("it says so")
            .contains(&nobody)
        {}
        until("nobody", || {
            ask(&server, "GET", "/plan", &[WRONG]).status == 401
        });
        ask(&server, "GET", "/", &[]).expect(200);
        drop(server);
        let mut server = engine.serve(site.path(), &flags);
        server.says_next(&nobody);
        ask(&server, "GET", "/plan", &[RIGHT]).expect(401);
    });
}

/// Pages and index pages have more names in kawipiko's dialect, and with `--index`: all of them need the
/// password of the page, from a directory and from an archive, by either kind of rule.
#[test]
fn every_name_of_a_page_needs_its_password() {
    on_both_engines(|engine| {
        let (site, out) = (Folder::new(), Folder::new());
        site.write("plan.txt", "plan");
        site.write("px.xhtml", "px");
        site.write("f/index.txt", "f");
        site.write("g/_index.json", "g");
        site.write("open.txt", "open");
        let users = out.write("users", format!("{BOB}\n"));
        let users = users.to_str().expect("UTF-8");
        let kawipiko = ["--compat", "kawipiko"];
        let check = |server: &Gannet| {
            for path in [
                "/plan",
                "/plan.txt",
                "/px",
                "/px.xhtml",
                "/f/",
                "/f/index.txt",
                "/g/",
                "/g/_index.json",
            ] {
                ask(server, "GET", path, &[]).expect(401);
                ask(server, "GET", path, &[RIGHT]).expect(200);
            }
            ask(server, "GET", "/open.txt", &[]).expect(200);
        };
        let pack = |name: &str| {
            let path = out.join(format!("{name}-{}.gannet", engine.name()));
            let text = path.to_str().expect("UTF-8");
            let arguments = ["pack", ".", "-q", "-o", text];
            gannet_in(&site, [&arguments[..], &kawipiko].concat()).success();
            path
        };
        let mut by_file = vec!["--password-file", users];
        for path in ["/plan", "/px", "/f", "/g"] {
            by_file.extend(["--password-path", path]);
        }
        check(&engine.serve(site.path(), &[&by_file[..], &kawipiko].concat()));
        check(&engine.serve(pack("file"), &by_file));
        let rules =
            ["/plan", "/px", "/f", "/g"].map(|path| format!("{path}\n  Basic-Auth: {BOB}\n"));
        site.write("_headers", rules.concat());
        check(&engine.serve(site.path(), &kawipiko));
        check(&engine.serve(pack("rules"), &[]));

        let site = Folder::new();
        site.write("f/start.html", "f");
        site.write("_headers", format!("/f\n  Basic-Auth: {BOB}\n"));
        let server = engine.serve(site.path(), &["--index", "start.html"]);
        for path in ["/f/", "/f/start.html", "/f/start"] {
            ask(&server, "GET", path, &[]).expect(401);
            ask(&server, "GET", path, &[RIGHT]).expect(200);
        }
    });
}

/// All names of the same content, of files that may exist only compressed: a pattern that is one of them
/// protects all, in a directory, an archive, and a folder of hosts, by either kind of rule.
#[test]
fn every_name_of_content_needs_its_password() {
    let contents: [&[&str]; 5] = [
        &["/secret.txt", "/secret.txt.gz"],
        &["/page", "/page.html", "/page.html.gz"],
        &["/f/", "/f/index", "/f/index.html", "/f/index.html.gz"],
        &["/notes.gz", "/notes.gz.html"],
        &["/v1.br/", "/v1.br/index.html"],
    ];
    let site = |host: &str, rules: &str| {
        let site = Folder::new();
        for name in ["secret.txt.gz", "page.html.gz", "f/index.html.gz"] {
            site.write(format!("{host}{name}"), gzip(b"content"));
        }
        for name in ["notes.gz.html", "v1.br/index.html", "open.txt"] {
            site.write(format!("{host}{name}"), "content");
        }
        site.write(format!("{host}_headers"), rules);
        site
    };
    let out = Folder::new();
    let users = out.write("users", format!("{BOB}\n"));
    let users = users.to_str().expect("UTF-8");
    let packed = out.join("site.gannet");
    let packed = packed.to_str().expect("UTF-8");
    let alone = &["--compressed-only"][..];
    let of_hosts = &["--compressed-only", "--hosts"][..];
    // Where the site is, and the flags of the archive or else of the server.
    let kinds = [
        ("", alone, false),
        ("", alone, true),
        ("_default/", of_hosts, false),
        ("_default/", of_hosts, true),
    ];
    let check = |(host, flags, is_packed): (&str, &[&str], bool), rank: usize, by_file: bool| {
        let patterns = contents.iter().filter_map(|names| names.get(rank));
        let rule = |pattern: &&str| format!("{pattern}\n  Basic-Auth: {BOB}\n");
        let (operator, rules) = match by_file {
            true => {
                let paths = patterns.flat_map(|it| ["--password-path", it]);
                let operator = ["--password-file", users].into_iter().chain(paths);
                (operator.collect::<Vec<_>>(), String::new())
            }
            false => (Vec::new(), patterns.map(rule).collect()),
        };
        let site = site(host, &rules);
        let server = match is_packed {
            true => {
                let pack = [&["pack", ".", "-q", "-o", packed], flags].concat();
                gannet_in(&site, pack).success();
                Gannet::serve(packed, &operator)
            }
            false => Gannet::serve(site.path(), &[&operator[..], flags].concat()),
        };
        let mut client = Client::new(&server);
        for name in contents
            .iter()
            .filter_map(|names| names.get(rank).and(Some(*names)))
            .flatten()
        {
            let what = format!("{name}: {host} {is_packed} {rank} {by_file}");
            assert_eq!(client.get(name).status, 401, "{what}");
            let granted = client.request("GET", name, &[RIGHT]).status;
            assert_ne!(granted, 401, "{what}");
        }
        client.get("/open.txt").expect(200);
    };
    for kind in kinds {
        for rank in 0..4 {
            check(kind, rank, false);
            check(kind, rank, true);
        }
    }
}

/// Which file is decompressed is known when an archive is packed: it is not open to others than its copy.
#[test]
fn what_an_archive_decompresses_has_the_users_of_the_compressed_file() {
    let (site, out) = (Folder::new(), Folder::new());
    site.write("secret.txt.gz", gzip(b"content"));
    let path = out.join("site.gannet");
    let path = path.to_str().expect("UTF-8");
    let pack = |rules: String| {
        site.write("_headers", rules);
        gannet_in(&site, ["pack", ".", "-q", "-o", path, "--compressed-only"])
    };
    let rule = format!("/*.gz\n  Basic-Auth: {BOB}\n");
    pack(rule.clone()).failure(
        1,
        "gannet: cannot pack '/secret.txt': it is decompressed from '/secret.txt.gz', which has other \
         users in '_headers'\n\
         help: give '/secret.txt' a rule with the same 'Basic-Auth'\n",
    );
    pack(format!("{rule}/secret.txt\n  Basic-Auth: {BOB}\n")).success();
    pack(format!("/*\n  Basic-Auth: {BOB}\n")).success();
    let server = Gannet::serve(path, &[]);
    for name in ["/secret.txt", "/secret.txt.gz"] {
        ask(&server, "GET", name, &[]).expect(401);
        ask(&server, "GET", name, &[RIGHT]).expect(200);
    }
}

/// A single file is at `/` and at its name.
#[test]
fn a_single_file_needs_its_password_by_both_names() {
    let (site, out) = (Folder::new(), Folder::new());
    let file = site.write("report.pdf", "content");
    let users = out.write("users", format!("{BOB}\n"));
    let users = users.to_str().expect("UTF-8");
    for pattern in ["/", "/report.pdf"] {
        let flags = ["--password-file", users, "--password-path", pattern];
        let server = Gannet::serve(&file, &flags);
        for name in ["/", "/report.pdf"] {
            ask(&server, "GET", name, &[]).expect(401);
            ask(&server, "GET", name, &[RIGHT]).expect(200);
        }
    }
}

#[test]
fn files_that_protect_nothing_are_refused() {
    let (site, out) = (Folder::new(), Folder::new());
    site.write("index.html", "front");
    let inside = site.write("users", BOB);
    let weak = out.write("weak", "anna:$apr1$x$y\nbob\n");
    let refuse = |file: &std::path::Path, part: &str| {
        let file = file.to_str().expect("UTF-8");
        let site = site.path().to_str().expect("UTF-8");
        let flags = ["serve", site, "--password-file", file, "--check-config"];
        let ended = gannet_in(&out, flags);
        assert_ne!(ended.status, Some(0), "{}", ended.err);
        assert!(ended.err.contains(part), "{}", ended.err);
        assert!(ended.err.contains("\nhelp: "), "{}", ended.err);
    };
    refuse(
        &weak,
        "weak:1:6: found a hash by MD5 (apr1), expected a hash by argon2id or bcrypt",
    );
    refuse(&weak, "weak:2:1: found no colon");
    refuse(
        &inside,
        "everyone could get it, as it is in the served directory",
    );
    refuse(&out.join("none"), "cannot read the password file");
    let ended = gannet_in(
        &site,
        ["serve", ".", "--password-path", "/a", "--check-config"],
    );
    ended.failure(
        2,
        "gannet: --password-path has no effect without --password-file\n\
         help: add --password-file FILE, or leave it out\n",
    );
    let ended = gannet_in(&site, ["password", "a:b"]);
    assert_eq!(ended.status, Some(2));
}

/// Only where passwords can be read on the way.
#[test]
fn clear_text_is_noted_at_the_start() {
    on_both_engines(|engine| {
        let site = site(BOB);
        let is_noted = |flags: &[&str]| {
            let server = engine.serve(site.path(), flags);
            let lines = server.start_lines().join("\n");
            lines.contains("passwords cross the network in clear text")
        };
        let anywhere = ["--expose"];
        assert!(is_noted(&anywhere));
        assert!(!is_noted(
            &[&anywhere[..], &["--trust", "10.0.0.0/8"]].concat()
        ));
        assert!(!is_noted(&[]));
    });
}

#[test]
fn explain_foresees_what_a_server_answers() {
    on_both_engines(|engine| {
        let (site, out) = (site(BOB), Folder::new());
        let stored = pack(&site, &out, engine);
        for path in [site.path(), &stored] {
            let server = engine.serve(path, &[]);
            let url = format!("http://{}", server.address());
            let path = path.to_str().expect("UTF-8");
            for target in ["/secret", "/staging/", "/staging/old", "/"] {
                for line in ["x-y: z", RIGHT] {
                    let flags = ["explain", target, path, "--server", &url, "-H", line];
                    let ended = gannet_in(&out, flags);
                    assert_eq!(
                        ended.status,
                        Some(0),
                        "{target} {line}: {}{}",
                        ended.text(),
                        ended.err
                    );
                }
            }
        }
    });
}
