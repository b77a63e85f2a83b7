//! `Repr-Digest` and `Content-Digest` (RFC 9530): which answers have them, what they cover, and how
//! they are verified.

use gannet_testkit::client::{Client, Response};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::until;
use gannet_testkit::{Folder, Gannet, gannet_in};

/// The content of a small file, and its digest.
const TEXT: &str = "Hello";
const DIGEST: &str = "sha-256=:GF+NsyJx/iX1Yab8k4suJkMG7DBO2lGAB9F2SCY4GWk=:";

fn site() -> (Folder, Folder) {
    let site = Folder::new();
    site.write("hello.txt", TEXT);
    site.write("page.css", "p { color: red }\n".repeat(500));
    site.write("large.bin", vec![7; 5_000_000]);
    (site, Folder::new())
}

fn pack(site: &Folder, out: &Folder, flags: &[&str]) -> std::path::PathBuf {
    let path = out.join("site.gannet");
    let text = path.to_str().expect("UTF-8");
    let arguments = [
        &["pack", ".", "--fast", "--quiet", "--fresh", "-o", text],
        flags,
    ]
    .concat();
    gannet_in(site, arguments).success();
    path
}

fn ask(client: &mut Client, target: &str, fields: &str) -> Response {
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    client.response()
}

const WANT_REPR: &str = "Want-Repr-Digest: sha-512=9, sha-256=5\r\n";
const WANT_CONTENT: &str = "Want-Content-Digest: sha-256=10\r\n";

/// A row has target, request fields, status, `repr-digest` and `content-digest`.
type Row<'a> = (&'a str, String, u16, Option<&'a str>, Option<&'a str>);

fn check(server: &Gannet, rows: &[Row<'_>]) {
    let mut client = Client::new(server);
    for (target, fields, status, repr, content) in rows {
        let response = ask(&mut client, target, fields);
        let got = (
            response.status,
            response.field("repr-digest"),
            response.field("content-digest"),
        );
        assert_eq!(got, (*status, *repr, *content), "{target} {fields}");
    }
}

#[test]
fn a_live_directory_has_digests_of_small_files_for_who_asks() {
    on_both_engines(|engine| {
        let (site, _) = site();
        let server = engine.serve(site.path(), &[]);
        let (repr, content) = (WANT_REPR.to_owned(), WANT_CONTENT.to_owned());
        let part = format!("{repr}{content}Range: bytes=1-2\r\n");
        let weightless = "Want-Repr-Digest: sha-256=0\r\n".to_owned();
        check(
            &server,
            &[
                ("/hello.txt", String::new(), 200, None, None),
                ("/hello.txt", repr.clone(), 200, Some(DIGEST), None),
                ("/hello.txt", content.clone(), 200, None, Some(DIGEST)),
                ("/hello.txt", part, 206, Some(DIGEST), None),
                ("/hello.txt", weightless, 200, None, None),
                ("/large.bin", repr.clone(), 200, None, None),
                ("/nothing", repr + &content, 404, None, None),
            ],
        );
        // Another file of the same name has another digest.
        site.write("hello.txt", "Hello!");
        let mut client = Client::new(&server);
        until("the change is seen", || {
            let response = ask(&mut client, "/hello.txt", WANT_REPR);
            response.text() == "Hello!" && response.field("repr-digest") != Some(DIGEST)
        });
    });
}

#[test]
fn an_archive_has_the_digests_that_it_was_packed_with() {
    let (site, out) = site();
    let archive = pack(&site, &out, &["--digest", "sha-256"]);
    on_both_engines(|engine| {
        let server = engine.serve(&archive, &[]);
        let content = WANT_CONTENT.to_owned();
        let part = format!("{content}Range: bytes=1-2\r\n");
        check(
            &server,
            &[
                ("/hello.txt", String::new(), 200, Some(DIGEST), None),
                ("/hello.txt", WANT_REPR.to_owned(), 200, Some(DIGEST), None),
                ("/hello.txt", content, 200, Some(DIGEST), Some(DIGEST)),
                ("/hello.txt", part, 206, Some(DIGEST), None),
            ],
        );
        // Each coding is a representation of its own.
        let mut client = Client::new(&server);
        let mut found = Vec::new();
        for coding in ["identity", "gzip", "br", "zstd"] {
            let fields = format!("Accept-Encoding: {coding}\r\n{WANT_CONTENT}");
            let response = ask(&mut client, "/page.css", &fields);
            let repr = response.field("repr-digest").expect("packed with it");
            assert_eq!(response.field("content-digest"), Some(repr), "{coding}");
            let sha256 = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &response.body);
            let sha256: [u8; 32] = sha256.as_ref().try_into().expect("32 bytes");
            assert_eq!(
                repr,
                gannet_content::policy::digest::value(&sha256),
                "{coding}"
            );
            found.push(repr.to_owned());
        }
        found.dedup();
        assert_eq!(found.len(), 4);
    });
}

#[test]
fn get_checks_what_both_modes_say() {
    let (site, out) = site();
    let archive = pack(&site, &out, &["--digest", "sha-256"]);
    for (path, file) in [
        (archive.as_path(), "large.bin"),
        (archive.as_path(), "hello.txt"),
        (site.path(), "hello.txt"),
    ] {
        let get = |flags: &[&str]| {
            let server = Gannet::serve(path, &[&["--log", "off"], flags].concat());
            let url = format!("http://{}/{file}", server.address());
            gannet_in(&out, ["get", "-q", &url, "-o", "copy"])
        };
        get(&[]).success();
        let copied = std::fs::read(out.join("copy")).expect("complete");
        assert!(
            copied == std::fs::read(site.join(file)).expect("ours"),
            "{file}"
        );
        std::fs::remove_file(out.join("copy")).expect("ours");
        // A wrong digest replaces the right one.
        let ended = get(&["--header", "repr-digest: sha-256=:AAAA:"]);
        assert_eq!(ended.status, Some(1), "{file}");
        assert!(ended.err.contains("(expected AAAA)"), "{}", ended.err);
        assert!(!out.join("copy").exists(), "{file}");
    }
}
