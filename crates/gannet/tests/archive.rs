//! Archive mode: serves exactly what was packed, and no corrupt data.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use gannet_archive::{SUPERBLOCK_LEN, Superblock};
use gannet_testkit::client::{Client, ask, get, metric};
use gannet_testkit::content::{Numbers, assert_pattern, pattern, unlike_pattern};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::until;
use gannet_testkit::{Folder, Gannet, command, gannet_in, run};

/// A tree with all kinds of files: compressible text, noise, empty, small, large and equal ones,
/// odd names.
fn tree() -> Folder {
    let folder = Folder::site();
    let mut numbers = Numbers(42);
    for number in 0..120 {
        let len = [0, 1, 13, 700, 5_000, 33_000, 70_000, 300_000][number % 8];
        let content: Vec<u8> = match number % 3 {
            0 => (0..len).map(|_| numbers.below(256) as u8).collect(),
            1 => (0..len).map(|at| b"lorem ipsum dolor "[at % 18]).collect(),
            _ => (0..len)
                .map(|_| b"abcdefgh\n"[numbers.below(9) as usize])
                .collect(),
        };
        let suffix = ["html", "css", "bin", "txt", "png"][number % 5];
        folder.write(format!("d{}/f{number}.{suffix}", number % 7), content);
    }
    folder.write("odd/ü b%20c.txt", "odd".repeat(100));
    folder.write("large.bin", pattern(3 << 20, 3));
    folder
}

/// With no memory for copies, an archive is mapped.
const MAPPED: [&str; 2] = ["--cache-memory", "0"];

fn pack(folder: &Folder, out: &Folder, more: &[&str]) -> PathBuf {
    let path = out.join("site.gannet");
    let arguments = ["pack", ".", "--fast", "--quiet", "-o"];
    let mut arguments: Vec<&str> = arguments.to_vec();
    let path_text = path.to_str().expect("UTF-8").to_owned();
    arguments.push(&path_text);
    arguments.extend(more);
    let ended = gannet_in(folder, arguments);
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    path
}

fn target(path: &Path) -> String {
    let mut target = String::new();
    for part in path {
        target.push('/');
        for byte in part.as_encoded_bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' => target.push(*byte as char),
                _ => target.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    target
}

/// The decoded content.
fn decode(coding: Option<&str>, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let result = match coding {
        None => return body.to_vec(),
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_end(&mut out),
        Some("br") => brotli::Decompressor::new(body, 4096).read_to_end(&mut out),
        Some("zstd") => zstd::Decoder::new(body).and_then(|mut d| d.read_to_end(&mut out)),
        Some(other) => panic!("coding {other}"),
    };
    result.expect("it is well-formed");
    out
}

#[test]
fn every_file_in_every_coding_byte_for_byte() {
    let folder = tree();
    let files = folder.files();
    let out = Folder::new();
    let archive = pack(&folder, &out, &[]);
    on_both_engines(|engine| {
        for flags in [&[][..], &MAPPED] {
            let server = engine.serve(&archive, flags);
            let mut client = Client::new(&server);
            let mut coded = 0;
            for accept in ["", "gzip", "br", "zstd", "gzip, br, zstd", "br;q=0, gzip"] {
                let line = format!("accept-encoding: {accept}");
                for (path, content) in &files {
                    let target = target(path);
                    let response = client.request("GET", &target, &[&line]).expect(200);
                    let coding = response.field("content-encoding");
                    assert!(
                        coding.is_none_or(|c| accept.contains(c)),
                        "{target}: {coding:?}"
                    );
                    assert!(
                        decode(coding, &response.body) == *content,
                        "{target} as {accept}"
                    );
                    assert!(response.body.len() <= content.len(), "{target} as {accept}");
                    coded += u32::from(coding.is_some());
                }
            }
            assert!(coded > 100, "only {coded} were coded");
        }
    });
}

#[test]
fn the_smallest_acceptable_variant_with_its_own_validators() {
    let folder = tree();
    let out = Folder::new();
    let archive = pack(&folder, &out, &[]);
    on_both_engines(|engine| {
        let server = engine.serve(&archive, &[]);
        let sized = |accept: &str| {
            let line = format!("accept-encoding: {accept}");
            ask(&server, "GET", "/assets/app.css", &[&line]).expect(200)
        };
        let all = sized("gzip, br, zstd");
        // A client that accepts no stored form gets identity.
        for accept in ["*;q=0", "identity;q=0", "identity;q=0, x-own"] {
            assert_eq!(sized(accept).field("content-encoding"), None, "{accept}");
        }
        let mut tags = Vec::new();
        for accept in ["gzip", "br", "zstd", "identity"] {
            let one = sized(accept);
            assert!(one.body.len() >= all.body.len(), "{accept}");
            assert_eq!(one.field("vary"), Some("accept-encoding"));
            assert!(one.tag().starts_with('"'));
            tags.push(one.tag().to_owned());
            let lines = [
                format!("accept-encoding: {accept}"),
                format!("if-none-match: {}", one.tag()),
            ];
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            ask(&server, "GET", "/assets/app.css", &lines).expect(304);
            let head = ask(&server, "HEAD", "/assets/app.css", &lines[..1]).expect(200);
            assert_eq!(head.content_length(), Some(one.body.len() as u64));
        }
        tags.sort();
        tags.dedup();
        assert_eq!(tags.len(), 4);

        // Ranges of content sent from memory and from the file.
        let whole = get(&server, "/large.bin").expect(200);
        assert_pattern(&whole.body, 3);
        for range in ["100-199", "1000000-2999999", "-5"] {
            let line = format!("range: bytes={range}");
            let part = ask(&server, "GET", "/large.bin", &[&line]).expect(206);
            let content_range = part.field("content-range").expect("a 206 has one");
            let start = content_range["bytes ".len()..]
                .split('-')
                .next()
                .expect("a number");
            let start: usize = start.parse().expect("a number");
            assert!(whole.body[start..].starts_with(&part.body), "{range}");
        }
        let line = "range: bytes=0-9,2000000-2000009";
        let parts = ask(&server, "GET", "/large.bin", &[line]).expect(206);
        assert!(
            parts
                .body
                .windows(10)
                .any(|w| w == &whole.body[2_000_000..2_000_010])
        );
    });
}

#[test]
fn pages_redirects_and_errors_as_in_a_directory() {
    let folder = tree();
    folder.write("docs/404.html", "not in the docs");
    let out = Folder::new();
    let archive = pack(&folder, &out, &[]);
    on_both_engines(|engine| {
        let server = engine.serve(&archive, &[]);
        get(&server, "/").expect(200);
        get(&server, "/about").expect(200);
        get(&server, "/docs/").expect(200);
        let redirect = get(&server, "/docs?q=1").expect(301);
        assert_eq!(redirect.field("location"), Some("/docs/?q=1"));
        let missing = get(&server, "/no/such").expect(404);
        assert_eq!(
            missing.text(),
            "<!doctype html><title>nothing here</title>\n"
        );
        assert_eq!(
            get(&server, "/docs/x/y").expect(404).text(),
            "not in the docs"
        );
        // Listings exist only if they were packed.
        get(&server, "/assets/").expect(404);
        for bad in ["/%00", "/..", "/%zz", "/a%5cb", "/a%2f..%2f.."] {
            get(&server, bad).expect(400);
        }
        ask(&server, "POST", "/", &[]).expect(405);
        ask(&server, "OPTIONS", "/", &[]).expect(204);
        let server = engine.serve(&archive, &["--spa"]);
        get(&server, "/some/view").expect(200);
        get(&server, "/some/view.js").expect(404);
    });
}

/// Navigation to a path with a dot in its last segment gets the application; subresource requests
/// do not, not even from a cache. Without HTTPS, `Accept` tells them apart.
#[test]
fn a_navigation_to_a_name_with_a_dot_is_the_applications() {
    let (folder, out) = (Folder::site(), Folder::new());
    let archive = pack(&folder, &out, &["--spa"]);
    on_both_engines(|engine| {
        let (packed, live) = (
            engine.serve(&archive, &[]),
            engine.serve(folder.path(), &["--spa"]),
        );
        for server in [&packed, &live] {
            let accepts_page = "Accept: text/html,application/xhtml+xml,*/*;q=0.8";
            for path in ["/docs/v1.2", "/@jane.doe"] {
                for navigate in ["Sec-Fetch-Mode: navigate", accepts_page] {
                    let page = ask(server, "GET", path, &[navigate]).expect(200);
                    assert!(page.text().contains("<title>home</title>"), "{path}");
                    assert_eq!(page.field("cache-control"), Some("no-cache"), "{path}");
                    let head = ask(server, "HEAD", path, &[navigate]).expect(200);
                    assert_eq!(head.field("cache-control"), Some("no-cache"), "{path}");
                }
                get(server, path).expect(404);
                ask(server, "GET", path, &["Sec-Fetch-Mode: no-cors"]).expect(404);
                ask(
                    server,
                    "GET",
                    path,
                    &["Sec-Fetch-Mode: no-cors", accepts_page],
                )
                .expect(404);
                ask(server, "GET", path, &["Accept: image/avif,*/*;q=0.8"]).expect(404);
            }
            // These are answered whatever the request.
            for path in ["/", "/some/view", "/assets/app.css"] {
                let got = ask(server, "GET", path, &[accepts_page]).expect(200);
                assert_eq!(got.field("cache-control"), Some("max-age=1"), "{path}");
            }
            ask(server, "GET", "/.env", &["Sec-Fetch-Mode: navigate"]).expect(404);
        }
    });
}

#[test]
fn a_file_may_have_the_name_of_the_json_of_a_listing() {
    let (folder, out) = (Folder::new(), Folder::new());
    folder.write("?format=json", "its own");
    let server = Gannet::serve(pack(&folder, &out, &["--listing"]), &[]);
    assert_eq!(
        ask(&server, "GET", "/%3Fformat=json", &[]).text(),
        "its own"
    );
    let page = ask(&server, "GET", "/?format=json", &[]);
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
}

/// A folder of an archive is listed in the same two forms as a live one.
#[test]
fn a_packed_listing_answers_json_too() {
    let (folder, out) = (Folder::site(), Folder::new());
    let archive = pack(&folder, &out, &["--listing"]);
    on_both_engines(|engine| {
        let (packed, live) = (
            engine.serve(&archive, &[]),
            engine.serve(folder.path(), &[]),
        );
        for (path, accept) in [
            ("/assets/", "Accept: application/json"),
            ("/assets/?format=json", "Accept: */*"),
        ] {
            let [packed, live] = [&packed, &live].map(|it| ask(it, "GET", path, &[accept]));
            assert_eq!(
                packed.field("content-type"),
                Some("application/json"),
                "{path}"
            );
            assert_eq!(packed.text(), live.text(), "{path}");
            let vary = packed.field("vary").expect("it depends on accept");
            assert!(vary.split(", ").any(|name| name == "accept"), "{vary}");
        }
        let page = ask(
            &packed,
            "GET",
            "/assets/",
            &["Accept: text/html, application/json"],
        );
        assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
        // Folders with an index page are not listed in either form.
        let page = ask(&packed, "GET", "/docs/?format=json", &[]);
        assert!(page.text().contains("<title>docs</title>"));
    });
}

#[test]
fn damaged_archives_are_refused_with_the_reason() {
    let folder = Folder::site();
    let out = Folder::new();
    let good = fs::read(pack(&folder, &out, &[])).expect("packed");
    let refused = |name: &str, bytes: &[u8]| {
        let path = out.write(format!("{name}.gannet"), bytes);
        let ended = run(command().args(["--port", "0"]).arg(&path));
        assert_eq!(ended.status, Some(1), "{name}: {ended:?}");
        let start = format!("gannet: cannot open archive '{}': ", path.display());
        assert!(ended.err.starts_with(&start), "{name}: {}", ended.err);
        ended.err[start.len()..]
            .lines()
            .next()
            .expect("a reason")
            .to_owned()
    };
    let mut newer = good.clone();
    newer[8] = newer[8].wrapping_add(1);
    let mut zip = good.clone();
    zip[..4].copy_from_slice(b"PK\x03\x04");
    let longer = [good.as_slice(), &[0; 100]].concat();
    let reasons = [
        refused("empty", b""),
        refused("half", &good[..good.len() / 2]),
        refused("one-byte-less", &good[..good.len() - 1]),
        refused("short", &good[..100]),
        refused("newer", &newer),
        refused("zip", &zip),
        refused("longer", &longer),
    ];
    for reason in reasons {
        assert!(reason.len() > 10 && !reason.contains("Error"), "{reason}");
    }
    // Bits of the superblock and of the index.
    for at in [20, 40, 100, 4095, 4096, 4200, 4500] {
        let mut flipped = good.clone();
        flipped[at] ^= 0x10;
        refused(&format!("flipped-{at}"), &flipped);
    }
}

/// What is copied into memory is verified whole, so that no wrong byte is served.
#[test]
fn a_damaged_body_is_refused_at_the_start() {
    // Longer than what is stored with the index, which has a checksum of its own.
    let body = pattern(20_000, 1);
    let folder = Folder::new();
    folder.write("body.bin", &body);
    let out = Folder::new();
    let good = fs::read(pack(&folder, &out, &[])).expect("packed");
    let mut places = good.windows(body.len());
    let place = places.position(|bytes| bytes == body);
    let mut bad = good;
    bad[place.expect("stored as it is") + 9] ^= 1;
    let path = out.write("bad.gannet", bad);
    let ended = run(command().args(["--port", "0"]).arg(&path));
    assert_eq!(ended.status, Some(1), "{ended:?}");
    let start = format!(
        "gannet: archive '{}' is damaged: the body at offset ",
        path.display()
    );
    assert!(ended.err.starts_with(&start), "{}", ended.err);
    assert!(ended.err.contains("'gannet verify'"), "{}", ended.err);
}

#[test]
fn an_archive_is_in_service_until_that_which_replaced_it_is() {
    on_both_engines(|engine| {
        let folder = Folder::site();
        let out = Folder::new();
        let archive = pack(&folder, &out, &[]);
        for flags in [&[][..], &MAPPED] {
            folder.write("about.html", "old");
            folder.write("large.bin", pattern(1 << 20, 8));
            pack(&folder, &out, &[]);
            let flags = [flags, &["--workers", "1"]].concat();
            let server = engine.serve(&archive, &flags);
            assert_eq!(get(&server, "/about").expect(200).text(), "old");
            folder.write("about.html", "new");
            folder.write("large.bin", pattern(1 << 20, 9));
            // By a rename.
            pack(&folder, &out, &[]);
            until("the other one is", || {
                let about = get(&server, "/about").expect(200);
                let is_new = about.text() == "new";
                assert!(is_new || about.text() == "old", "{about:?}");
                let large = get(&server, "/large.bin").expect(200).body;
                let is_old = !is_new && unlike_pattern(&large, 8).is_none();
                assert!(is_old || unlike_pattern(&large, 9).is_none());
                is_new
            });
            fs::remove_file(&archive).expect("there");
            assert_eq!(get(&server, "/about").expect(200).text(), "new");
            assert_pattern(&get(&server, "/large.bin").expect(200).body, 9);
        }
    });
}

#[test]
fn nothing_that_happens_to_the_file_is_seen_in_memory() {
    on_both_engines(|engine| {
        let folder = tree();
        let out = Folder::new();
        let archive = pack(&folder, &out, &[]);
        let servers =
            [&[][..], &["--cache-memory", "1G"]].map(|flags| engine.serve(&archive, flags));
        fs::File::options()
            .write(true)
            .open(&archive)
            .and_then(|file| file.set_len(0))
            .expect("truncated");
        for (path, content) in folder.files() {
            for server in &servers {
                assert!(get(server, &target(&path)).expect(200).body == content);
            }
        }
    });
}

#[test]
fn only_what_fits_the_budget_is_copied_into_memory() {
    let folder = tree();
    let out = Folder::new();
    let archive = pack(&folder, &out, &[]);
    let len = fs::metadata(&archive).expect("it was packed").len();
    let (fits, short) = ((2 * len).to_string(), (2 * len - 1).to_string());
    let cases: [(&[&str], u64); 4] = [
        (&["--workers", "2"], len),
        (&["--cache-memory", &fits], len),
        (&["--cache-memory", &short], 0),
        (&MAPPED, 0),
    ];
    on_both_engines(|engine| {
        for (flags, expect) in cases {
            let flags = [flags, &["--metrics", "127.0.0.1:0"]].concat();
            let server = engine.serve(&archive, &flags);
            assert_pattern(&get(&server, "/large.bin").expect(200).body, 3);
            let copied = metric(&server, "gannet_archive_memory_bytes");
            assert_eq!(copied, expect, "{flags:?}");
        }
    });
}

/// The packed index of many files is for copies of the archive elsewhere.
#[test]
fn what_follows_an_archive_is_not_copied_into_memory() {
    let folder = Folder::site();
    let mut numbers = Numbers(7);
    for number in 0..1200 {
        let content: Vec<u8> = (0..4000).map(|_| numbers.below(256) as u8).collect();
        folder.write(format!("{number}.bin"), content);
    }
    let out = Folder::new();
    let archive = pack(&folder, &out, &["--compress", "none"]);
    let bytes = fs::read(&archive).expect("it was packed");
    let file_len = bytes.len() as u64;
    let superblock = Superblock::parse(&bytes[..SUPERBLOCK_LEN], file_len).expect("sound");
    assert!(superblock.archive_len() < file_len, "it has a tail");
    on_both_engines(|engine| {
        let server = engine.serve(&archive, &["--metrics", "127.0.0.1:0"]);
        let copied = metric(&server, "gannet_archive_memory_bytes");
        assert_eq!(copied, superblock.archive_len());
        assert_eq!(get(&server, "/7.bin").expect(200).body.len(), 4000);
    });
}

#[test]
fn an_archive_truncated_by_mistake_makes_no_whole_answer() {
    on_both_engines(|engine| {
        let folder = Folder::site();
        folder.write("large.bin", pattern(8 << 20, 6));
        folder.write("small.bin", pattern(20_000, 6));
        let out = Folder::new();
        let archive = pack(&folder, &out, &["--compress", "none"]);
        let flags = [&MAPPED[..], &["--workers", "1"]].concat();
        let server = engine.serve(&archive, &flags);
        let mut client = Client::slow(&server);
        client.send(gannet_testkit::client::head("GET", "/large.bin", &[]));
        client.head().expect(200);
        let got = client.take(10_000);
        assert_pattern(&got, 6);
        fs::File::options()
            .write(true)
            .open(&archive)
            .and_then(|file| file.set_len(0))
            .expect("truncated");
        let (rest, _) = client.rest();
        assert!(got.len() + rest.len() < 8 << 20, "it pretends to be whole");
        // The server still runs, and sends an error for content that is gone.
        let mut client = Client::new(&server);
        client.send(gannet_testkit::client::head(
            "GET",
            "/small.bin",
            &["connection: close"],
        ));
        client.head().expect(500);
    });
}
