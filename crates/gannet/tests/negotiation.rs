//! Other forms of a file, chosen by `accept`: a directory and its archive give the same answers.

use std::fs;
use std::path::PathBuf;

use gannet_testkit::client::{Client, Response};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::h2::Peer;
use gannet_testkit::process::until;
use gannet_testkit::{Folder, gannet_in};

/// What a browser sends for a picture.
const BROWSER: &str = "Accept: image/avif,image/webp,image/apng,image/svg+xml,image/*,*/*;q=0.8";

fn site() -> Folder {
    let site = Folder::new();
    site.write("photo.jpg", "j".repeat(3_000));
    site.write("photo.avif", "a".repeat(1_000));
    site.write("photo.webp", "w".repeat(1_200));
    site.write("big.png", "p".repeat(500));
    site.write("big.webp", "w".repeat(900));
    site.write("alone.jpg", "j".repeat(2_000));
    site.write("page.html", "<p>page ".repeat(300));
    site.write("page.md", "# page ".repeat(100));
    site.write("docs/index.html", "<p>docs ".repeat(10));
    site.write("docs/index.md", "# docs");
    site.write("index.html", "front");
    site
}

fn pack(site: &Folder, out: &Folder, engine: Engine) -> PathBuf {
    let path = out.join(format!("{}.gannet", engine.name()));
    let path_text = path.to_str().expect("UTF-8");
    gannet_in(site, ["pack", ".", "-q", "-o", path_text]).success();
    path
}

fn varies_by_type(response: &Response) -> bool {
    let vary = response.field("vary").unwrap_or_default();
    vary.split(", ").any(|name| name == "accept")
}

#[test]
fn the_form_that_a_client_names_is_sent() {
    on_both_engines(|engine| {
        let (site, out) = (site(), Folder::new());
        let stored = pack(&site, &out, engine);
        for path in [site.path(), &stored] {
            let server = engine.serve(path, &["--workers", "1"]);
            let mut client = Client::new(&server);
            for _ in 0..2 {
                for (target, accept, content_type, start) in [
                    ("/photo.jpg", BROWSER, "image/avif", "aaa"),
                    ("/photo.jpg", "Accept: image/webp, */*", "image/webp", "www"),
                    (
                        "/photo.jpg",
                        "Accept: image/avif;q=0.1, */*",
                        "image/jpeg",
                        "jjj",
                    ),
                    ("/photo.jpg", "Accept: */*", "image/jpeg", "jjj"),
                    ("/photo.jpg", "X-Y: z", "image/jpeg", "jjj"),
                    ("/big.png", BROWSER, "image/png", "ppp"),
                    (
                        "/big.png",
                        "Accept: image/webp, */*;q=0.1",
                        "image/webp",
                        "www",
                    ),
                    (
                        "/page",
                        "Accept: text/markdown",
                        "text/markdown; charset=utf-8",
                        "# page",
                    ),
                    (
                        "/page.html",
                        "Accept: text/markdown",
                        "text/markdown; charset=utf-8",
                        "# page",
                    ),
                    (
                        "/docs/",
                        "Accept: text/markdown",
                        "text/markdown; charset=utf-8",
                        "# docs",
                    ),
                    (
                        "/page",
                        "Accept: text/html, */*",
                        "text/html; charset=utf-8",
                        "<p>page",
                    ),
                ] {
                    let identity = "Accept-Encoding: identity";
                    let got = client
                        .request("GET", target, &[accept, identity])
                        .expect(200);
                    assert_eq!(
                        got.field("content-type"),
                        Some(content_type),
                        "{target} {accept}"
                    );
                    assert!(got.text().starts_with(start), "{target} {accept}");
                    assert!(varies_by_type(&got), "{target} {accept}: {got:?}");
                }
            }
            let plain = client.request("GET", "/alone.jpg", &[BROWSER]).expect(200);
            assert_eq!(plain.field("vary"), None);
            // By its own path a form is a file like any other.
            let own = client.request("GET", "/photo.avif", &[BROWSER]).expect(200);
            assert_eq!(own.field("vary"), None);
            let front = client
                .request("GET", "/", &["Accept: text/markdown"])
                .expect(200);
            assert!(!varies_by_type(&front));
            let mut peer = Peer::new(&server);
            let got = peer
                .request("GET", "/photo.jpg", &[("accept", "image/avif")])
                .expect(200);
            assert_eq!(got.field("content-type"), Some("image/avif"));
        }
    });
}

#[test]
fn conditions_and_ranges_are_those_of_the_form() {
    on_both_engines(|engine| {
        let (site, out) = (site(), Folder::new());
        let stored = pack(&site, &out, engine);
        for path in [site.path(), &stored] {
            let server = engine.serve(path, &["--workers", "1"]);
            let mut client = Client::new(&server);
            let jpeg = client.get("/photo.jpg").expect(200).tag().to_owned();
            let avif = client.request("GET", "/photo.jpg", &[BROWSER]).expect(200);
            let avif = avif.tag().to_owned();
            assert_ne!(jpeg, avif);
            let if_none = |tag: &str| format!("If-None-Match: {tag}");
            let same = client.request("GET", "/photo.jpg", &[BROWSER, &if_none(&avif)]);
            assert!(varies_by_type(&same.expect(304)));
            let other = client.request("GET", "/photo.jpg", &[BROWSER, &if_none(&jpeg)]);
            assert_eq!(other.expect(200).tag(), avif);
            let part = client.request("GET", "/photo.jpg", &[BROWSER, "Range: bytes=990-"]);
            let part = part.expect(206);
            assert_eq!(part.field("content-range"), Some("bytes 990-999/1000"));
            assert!(varies_by_type(&part));
            let head = client.request("HEAD", "/photo.jpg", &[BROWSER]).expect(200);
            assert_eq!(head.field("content-length"), Some("1000"));
        }
    });
}

/// Forms of a live directory come and go.
#[test]
fn new_forms_are_found_and_old_ones_forgotten() {
    on_both_engines(|engine| {
        let site = site();
        let server = engine.serve(site.path(), &["--workers", "1"]);
        let mut client = Client::new(&server);
        let mut type_of = |target: &str| {
            let got = client.request("GET", target, &[BROWSER]).expect(200);
            got.field("content-type")
                .map(str::to_owned)
                .expect("a type")
        };
        assert_eq!(type_of("/photo.jpg"), "image/avif");
        fs::remove_file(site.join("photo.avif")).expect("removed");
        until("the other form", || type_of("/photo.jpg") == "image/webp");
        fs::remove_file(site.join("photo.webp")).expect("removed");
        until("the file itself", || type_of("/photo.jpg") == "image/jpeg");
        assert_eq!(type_of("/alone.jpg"), "image/jpeg");
        site.write("alone.webp", "w");
        until("a new form", || type_of("/alone.jpg") == "image/webp");
    });
}

/// Asks until the answer comes from memory: a file that has just been written is not kept.
fn ask(client: &mut Client, target: &str, fields: &[&str]) -> Response {
    let mut answer = None;
    until("an answer from memory", || {
        let got = client.request("GET", target, fields);
        let is_hit = got.field("server-timing") == Some("cache;desc=hit");
        answer = Some(got);
        is_hit
    });
    answer.expect("it was asked")
}

/// A form is sent only where its own path has the same users and no rule, with its own fields; what an
/// encoder left empty is none. The first answers are made of lookups, the later ones from memory.
#[test]
fn forms_obey_the_rules_of_their_own_paths() {
    let rules = "\
/for-a.jpg
  Basic-Auth: a:b
/for-a.avif
  Basic-Auth: c:d
/both.*
  Basic-Auth: a:b
/only.avif
  Basic-Auth: a:b
/photo.avif
  X-Form: avif
/photo.jpg
  X-Form: jpg
https://elsewhere.example/x
  X-Y: z
";
    let redirects = "/gone.avif /404.html 404!\n/moved.md /elsewhere 302!\n";
    on_both_engines(|engine| {
        let (site, out) = (site(), Folder::new());
        for name in ["for-a", "both", "only", "gone", "flag"] {
            site.write(format!("{name}.jpg"), "j".repeat(3_000));
            site.write(format!("{name}.avif"), "a".repeat(1_000));
        }
        site.write("moved.html", "<p>moved");
        site.write("moved.md", "# m");
        site.write("empty.jpg", "jjj");
        site.write("empty.avif", "");
        site.write("LICENSE", "text of a licence");
        site.write("LICENSE.md", "# L");
        site.write("v1.2.html", "<p>version");
        site.write("v1.2.md", "# v");
        site.write("_redirects", redirects);
        let users = out.join("users");
        let hash = "$2y$04$abcdefghijklmnopqrstuO2jYz5Zcyyn1Oae2v7W0A1n3dOQnP0bq";
        fs::write(&users, format!("x:{hash}\n")).expect("written");
        let stored = pack(&site, &out, engine);
        // Archives take no passwords in the clear: these are for the directory.
        site.write("_headers", rules);
        let users = users.to_str().expect("UTF-8");
        let timing = out.write("gannet.toml", "server-timing = true\n");
        let flags = [
            "--workers",
            "1",
            "--config",
            timing.to_str().expect("UTF-8"),
            "--password-file",
            users,
        ];
        let flags = [&flags[..], &["--password-path", "/flag.avif"]].concat();
        for path in [site.path(), &stored] {
            let server = engine.serve(path, &flags);
            let mut client = Client::new(&server);
            let wants = "Accept: image/avif, text/markdown, */*;q=0.1";
            let mut check = |target: &str, fields: &[&str], start: &str| {
                let fields = [&[wants], fields].concat();
                let got = ask(&mut client, target, &fields).expect(200);
                assert!(got.text().starts_with(start), "{target}: {got:?}");
                got
            };
            check("/flag.jpg", &[], "jjj");
            check("/gone.jpg", &[], "jjj");
            check("/moved", &[], "<p>moved");
            check("/empty.jpg", &[], "jjj");
            check("/LICENSE", &[], "text");
            check("/v1.2", &[], "# v");
            let photo = check("/photo.jpg", &[], "aaa");
            if path == site.path() {
                assert_eq!(photo.field("x-form"), Some("avif"));
                let password = "Authorization: Basic YTpi";
                check("/for-a.jpg", &[password], "jjj");
                check("/both.jpg", &[password], "aaa");
                check("/only.jpg", &[], "jjj");
            }
            client.request("GET", "/flag.avif", &[]).expect(401);
        }
    });
}

/// The same for an archive with users and with fields that depend on the host.
#[test]
fn forms_in_archives_obey_the_rules_of_their_own_paths() {
    on_both_engines(|engine| {
        let (site, out) = (site(), Folder::new());
        site.write("only.jpg", "j".repeat(3_000));
        site.write("only.avif", "a".repeat(1_000));
        let hash = "$2y$04$abcdefghijklmnopqrstuO2jYz5Zcyyn1Oae2v7W0A1n3dOQnP0bq";
        let rules = format!(
            "/only.avif\n  Basic-Auth: a:{hash}\n/photo.avif\n  X-Form: avif\n/photo.jpg\n  \
             X-Form: jpg\nhttps://elsewhere.example/x\n  X-Y: z\n"
        );
        site.write("_headers", rules);
        let stored = pack(&site, &out, engine);
        let server = engine.serve(&stored, &[]);
        let mut client = Client::new(&server);
        let got = client.request("GET", "/only.jpg", &[BROWSER]).expect(200);
        assert_eq!(got.field("content-type"), Some("image/jpeg"));
        let got = client.request("GET", "/photo.jpg", &[BROWSER]).expect(200);
        assert_eq!(got.field("x-form"), Some("avif"));
        let got = client.request("GET", "/photo.jpg", &[]).expect(200);
        assert_eq!(got.field("x-form"), Some("jpg"));
    });
}

#[test]
fn explain_foresees_the_form() {
    on_both_engines(|engine| {
        let (site, out) = (site(), Folder::new());
        site.write("v1.2.html", "<p>version");
        site.write("v1.2.md", "# v");
        site.write("gone.jpg", "j".repeat(3_000));
        site.write("gone.avif", "a".repeat(1_000));
        site.write("_redirects", "/gone.avif /404.html 404!\n");
        let stored = pack(&site, &out, engine);
        for path in [site.path(), &stored] {
            let server = engine.serve(path, &[]);
            let url = format!("http://{}", server.address());
            let path = path.to_str().expect("UTF-8");
            for target in [
                "/photo.jpg",
                "/big.png",
                "/alone.jpg",
                "/page",
                "/docs/",
                "/page.md",
                "/v1.2",
                "/gone.jpg",
            ] {
                for line in ["x-y: z", "accept: image/avif, text/markdown", BROWSER] {
                    let flags = ["explain", target, path, "--server", &url, "-H", line];
                    let ended = gannet_in(&out, flags);
                    assert_eq!(ended.status, Some(0), "{}{}", ended.text(), ended.err);
                }
            }
        }
    });
}
