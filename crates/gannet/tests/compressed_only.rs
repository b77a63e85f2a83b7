//! Files that exist only compressed, with `--compressed-only`: to a client that accepts no coding,
//! directories and archives answer as if the decompressed files existed.

use std::fs;
use std::io::{Read, Write};

use gannet_testkit::client::{Client, Response};
use gannet_testkit::content::Numbers;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::Peer;
use gannet_testkit::process::until;
use gannet_testkit::{Folder, gannet_in};

/// Moderately compressible text, different for each seed.
fn words(len: usize, seed: u64) -> Vec<u8> {
    let mut numbers = Numbers(seed);
    (0..)
        .flat_map(|_| format!("{} ", numbers.below(5_000)).into_bytes())
        .take(len)
        .collect()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    coder.write_all(content).expect("in memory");
    coder.finish().expect("in memory")
}

fn brotli(content: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    let mut coder = brotli::CompressorReader::new(content, 4096, 5, 22);
    coder.read_to_end(&mut coded).expect("in memory");
    coded
}

/// The contents of the site by path; none of them exists uncompressed.
fn contents() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("index.html", words(3_000, 1)),
        ("about.html", words(90_000, 2)),
        ("docs/index.html", words(9_000, 3)),
        ("tiny.txt", b"hello".to_vec()),
        ("empty.txt", Vec::new()),
        ("data.json", words(1 << 20, 4)),
        ("404.html", words(500, 5)),
    ]
}

const TARGETS: [&str; 10] = [
    "/",
    "/about",
    "/about.html",
    "/docs/",
    "/docs",
    "/tiny.txt",
    "/empty.txt",
    "/data.json",
    "/no/such/page",
    "/about/",
];

const ASKED: [&[&str]; 8] = [
    &[],
    &["accept-encoding: identity"],
    &["accept-encoding: zstd"],
    &["range: bytes=1-3"],
    &["range: bytes=-7"],
    &["range: bytes=0-1,3-4"],
    &["range: bytes=5000000-"],
    &["if-match: \"other\""],
];

/// The parts of an answer that must not depend on the source.
fn essence(response: &Response) -> (u16, Vec<(String, String)>, Vec<u8>) {
    let names = [
        "content-type",
        "content-length",
        "content-encoding",
        "content-range",
        "location",
        "cache-control",
    ];
    let fields = response.fields.iter();
    let fields = fields
        .filter(|(name, value)| names.contains(&name.as_str()) && !value.starts_with("multipart"));
    // Boundaries of parts differ.
    let body = match response.field("content-type") {
        Some(value) if value.starts_with("multipart") => Vec::new(),
        _ => response.body.clone(),
    };
    (response.status, fields.cloned().collect(), body)
}

#[test]
fn clients_without_codings_see_no_difference() {
    let (plain, coded, out) = (Folder::new(), Folder::new(), Folder::new());
    let brotlied = Folder::new();
    for (path, content) in contents() {
        plain.write(path, &content);
        coded.write(format!("{path}.gz"), gzip(&content));
        brotlied.write(format!("{path}.br"), brotli(&content));
    }
    // A Brotli file beside it is just another coding.
    coded.write("data.json.br", brotli(&words(1 << 20, 4)));
    let archive = out.join("site.gannet");
    let path = archive.to_str().expect("UTF-8");
    let flags = ["--compressed-only", "--drop-identity", "--compress", "gzip"];
    let to = ["-q", "-o", path];
    gannet_in(&coded, [&["pack", "."], &flags[..], &to].concat()).success();
    on_both_engines(|engine| {
        let server = engine.serve(plain.path(), &["--no-listing", "--compress=stored"]);
        let others = [
            engine.serve(coded.path(), &["--no-listing", "--compressed-only"]),
            engine.serve(brotlied.path(), &["--no-listing", "--compressed-only"]),
            engine.serve(&archive, &[]),
        ];
        let mut expect = Client::new(&server);
        for other in others {
            let (mut got, mut h2) = (Client::new(&other), Peer::new(&other));
            for target in TARGETS {
                for lines in ASKED {
                    for method in ["GET", "HEAD"] {
                        let (one, two) = (
                            expect.request(method, target, lines),
                            got.request(method, target, lines),
                        );
                        let (one, two) = (essence(&one), essence(&two));
                        assert_eq!((one.0, &one.1), (two.0, &two.1), "{target} {lines:?}");
                        assert!(one.2 == two.2, "{method} {target} {lines:?}");
                    }
                }
                let (one, two) = (expect.get(target), h2.get(target));
                assert_eq!(one.status, two.status, "{target}");
                assert!(one.body == two.body, "{target}");
            }
        }
    });
}

#[test]
fn who_accepts_a_coding_gets_what_lies_there() {
    let site = Folder::new();
    let contents = contents();
    for (path, content) in &contents {
        site.write(format!("{path}.gz"), gzip(content));
    }
    let brotlied = brotli(&words(1 << 20, 4));
    site.write("data.json.br", &brotlied);
    // Too long to be decompressed: every client gets gzip.
    let long = gzip(&words((1 << 20) + 1, 6));
    site.write("long.txt.gz", &long);
    // Its trailer announces other content.
    let mut lie = gzip(&words(5_000, 7));
    let end = lie.len() - 4;
    lie[end] ^= 1;
    site.write("lie.txt.gz", &lie);
    let only = words(70_000, 8);
    let only_brotli = brotli(&only);
    site.write("only.txt.br", &only_brotli);
    site.write("both.txt.br", brotli(b"both"));
    site.write("both.txt.gz", gzip(b"both"));
    let long_brotli = brotli(&words((1 << 20) + 1, 9));
    site.write("longer.txt.br", &long_brotli);
    let mut damaged = brotli(&words(5_000, 10));
    damaged.truncate(1_000);
    site.write("damaged.txt.br", &damaged);
    site.write("_redirects.gz", gzip(b"/a /b"));
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--compressed-only"]);
        let mut client = Client::new(&server);
        let mut ask = |target: &str, lines: &[&str]| client.request("GET", target, lines);
        for (path, content) in &contents {
            let target = format!("/{path}");
            let one = ask(&target, &["accept-encoding: gzip"]).expect(200);
            let is_coded = one.field("content-encoding").is_some();
            let gzip = gzip(content);
            assert!(is_coded && one.body == gzip, "{target}");
            assert_eq!(one.field("vary"), Some("accept-encoding"), "{target}");
            let two = ask(&target, &[]).expect(200);
            assert_ne!(one.tag() == two.tag(), is_coded, "{target}");
            let tag = format!("if-none-match: {}", two.tag());
            ask(&target, &[&tag]).expect(304);
        }
        let all = ask("/data.json", &["accept-encoding: br, gzip"]).expect(200);
        assert_eq!(all.field("content-encoding"), Some("br"));
        assert!(all.body == brotlied);
        let all = ask("/long.txt", &[]).expect(200);
        assert_eq!(all.field("content-encoding"), Some("gzip"));
        assert!(all.body == long);
        assert_eq!(all.field("content-type"), Some("text/plain; charset=utf-8"));
        // Under its own name it is an ordinary file.
        let own = ask("/long.txt.gz", &[]).expect(200);
        assert_eq!(own.field("content-encoding"), None);
        assert_eq!(own.field("content-type"), Some("application/gzip"));
        for _ in 0..2 {
            ask("/lie.txt", &[]).expect(500);
            assert!(ask("/lie.txt", &["accept-encoding: gzip"]).expect(200).body == lie);
        }
        for _ in 0..2 {
            let coded = ask("/only.txt", &["accept-encoding: br, gzip"]).expect(200);
            assert_eq!(coded.field("content-encoding"), Some("br"));
            assert!(coded.body == only_brotli);
            let plain = ask("/only.txt", &["accept-encoding: gzip"]).expect(200);
            assert_eq!(plain.field("content-encoding"), None);
            assert_eq!(plain.field("content-length"), Some("70000"));
            assert!(plain.body == only);
            assert_ne!(plain.tag(), coded.tag());
            let part = ask("/only.txt", &["range: bytes=500-508"]).expect(206);
            assert_eq!(part.body, only[500..509]);
            for (name, bytes) in [("longer", &long_brotli), ("damaged", &damaged)] {
                let all = ask(&format!("/{name}.txt"), &[]).expect(200);
                assert_eq!(all.field("content-encoding"), Some("br"), "{name}");
                assert!(all.body == *bytes, "{name}");
            }
        }
        assert_eq!(ask("/both.txt", &[]).expect(200).text(), "both");
        let own = ask("/only.txt.br", &["accept-encoding: gzip"]).expect(200);
        assert!(own.body == only_brotli);
        ask("/_redirects", &[]).expect(404);
        let server = engine.serve(site.path(), &[]);
        Client::new(&server).get("/about.html").expect(404);
    });
}

#[test]
fn what_is_replaced_is_sent_as_it_is_now() {
    on_both_engines(|engine| {
        let site = Folder::new();
        site.write("a.txt.gz", gzip(b"one"));
        let server = engine.serve(site.path(), &["--compressed-only", "--workers", "1"]);
        let mut client = Client::new(&server);
        assert_eq!(client.get("/a.txt").expect(200).text(), "one");
        site.write("new", gzip(b"the other"));
        fs::rename(site.join("new"), site.join("a.txt.gz")).expect("beside it");
        until("the other content", || {
            client.get("/a.txt").expect(200).text() == "the other"
        });
        // The uncompressed file takes precedence.
        site.write("a.txt", "three");
        until("the file itself", || {
            client.get("/a.txt").expect(200).text() == "three"
        });
        fs::remove_file(site.join("a.txt")).expect("there");
        until("gzip again", || {
            client.get("/a.txt").expect(200).text() == "the other"
        });
        fs::remove_file(site.join("a.txt.gz")).expect("there");
        until("nothing", || client.get("/a.txt").status == 404);
    });
}

/// The year-long lifetime of a framework's file name applies although only its compressed form
/// exists, until its content changes.
#[test]
fn a_framework_s_name_counts_by_itself() {
    on_both_engines(|engine| {
        for (suffix, code) in [("gz", gzip as fn(&[u8]) -> Vec<u8>), ("br", brotli)] {
            let site = Folder::new();
            let name = format!("_astro/app.js.{suffix}");
            site.write(&name, code(b"one"));
            let flags = ["--compressed-only", "--workers", "1"];
            let server = engine.serve(site.path(), &flags);
            let mut client = Client::new(&server);
            let mut lifetime = || {
                let got = client.get("/_astro/app.js").expect(200);
                got.field("cache-control").map(str::to_owned)
            };
            assert_eq!(
                lifetime().as_deref(),
                Some("max-age=31536000, immutable"),
                "{suffix}"
            );
            site.write("new", code(b"another"));
            fs::rename(site.join("new"), site.join(&name)).expect("beside it");
            until("a second", || lifetime().as_deref() == Some("max-age=1"));
        }
    });
}

#[test]
fn without_the_flag_explain_and_the_server_say_that_it_is_missing() {
    let site = Folder::new();
    site.write("a.txt.gz", gzip(b"one"));
    site.write("b.txt.br", brotli(b"two"));
    site.write("c.txt.zst", b"three");
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let address = format!("http://{}", server.address());
        for (path, why) in [
            ("/a.txt", "--compressed-only serves it"),
            ("/b.txt", "--compressed-only serves it"),
            ("/c.txt", "pack --compressed-only decompresses it"),
        ] {
            let told = gannet_in(&site, ["explain", path, ".", "--server", &address]);
            let told = told.success().text().to_owned();
            assert!(told.contains("404") && told.contains(why), "{told}");
        }
    });
}

#[test]
fn an_archive_has_what_compressed_files_come_to() {
    let (site, out) = (Folder::new(), Folder::new());
    site.write("a.txt.br", brotli(b"brotli"));
    site.write("b.txt.gz", gzip(b"gzip"));
    site.write("b.txt.br", brotli(b"another"));
    site.write("c.txt", "plain");
    site.write("c.txt.gz", gzip(b"stale"));
    site.write("folder.gz", gzip(b"a folder has the name"));
    site.write("folder/d.txt", "in it");
    site.write("_headers.gz", gzip(b"/*\n  X-A: b\n"));
    let path = out.join("site.gannet");
    let path = path.to_str().expect("UTF-8");
    let pack = |flags: &[&str]| {
        let arguments = [&["pack", ".", "-q", "-o", path], flags].concat();
        gannet_in(&site, arguments)
    };
    // Also with the state of an earlier build.
    for flags in [&["--compressed-only"][..], &[], &["--compressed-only"]] {
        pack(flags).success();
        let cat = |name: &str| {
            let got = gannet_testkit::gannet(["cat", path, name]);
            (got.status == Some(0)).then_some(got.out)
        };
        let expect = |text: &str| (!flags.is_empty()).then(|| text.as_bytes().to_vec());
        assert_eq!(cat("a.txt"), expect("brotli"));
        assert_eq!(cat("b.txt"), expect("gzip"));
        assert_eq!(cat("b.txt.gz"), Some(gzip(b"gzip")));
        assert_eq!(cat("c.txt").as_deref(), Some(&b"plain"[..]));
        assert_eq!(cat("_headers"), None);
        assert_eq!(cat("folder"), None);
    }
    let mut damaged = gzip(b"gzip");
    let end = damaged.len() - 5;
    damaged[end] ^= 1;
    site.write("b.txt.gz", damaged);
    let refused = pack(&["--compressed-only"]);
    assert_eq!(refused.status, Some(1));
    assert!(refused.err.contains("cannot decompress"), "{}", refused.err);
}

/// A few bytes of Brotli announce 16 MiB. With limited memory this is refused: the server survives,
/// and no other client is delayed.
#[test]
fn brotli_of_more_than_may_be_decoded_takes_no_memory() {
    let site = Folder::new();
    // The beginning of a meta-block of 16 MiB (RFC 7932 section 9.2), and the coding of 20 MiB of
    // zeros.
    let announced = b"\xcf\xff\xff\x7f\x00\x20\x82\x02\x81\x00\x00";
    let zeros = brotli(&vec![0; 20 << 20]);
    assert!(zeros.len() < 1_000);
    site.write("announced.txt.br", announced);
    site.write("zeros.txt.br", &zeros);
    let fits = words(1 << 20, 1);
    site.write("fits.txt.br", brotli(&fits));
    on_both_engines(|engine| {
        let flags = ["--compressed-only", "--workers", "1", "--max-memory", "28M"];
        let server = engine.serve(site.path(), &flags);
        let mut client = Client::new(&server);
        for _ in 0..3 {
            for (target, bytes) in [("/announced.txt", &announced[..]), ("/zeros.txt", &zeros)] {
                let got = client.get(target).expect(200);
                assert_eq!(got.field("content-encoding"), Some("br"));
                assert!(got.body == bytes, "{target}");
            }
            assert!(client.get("/fits.txt").expect(200).body == fits);
        }
    });
}
