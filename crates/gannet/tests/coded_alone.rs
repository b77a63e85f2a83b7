//! Archives that store bodies in one coding only: clients see no difference from other archives,
//! even if a stored body is corrupt.

use std::fs;
use std::path::{Path, PathBuf};

use gannet_testkit::client::{Client, Response, ask, get};
use gannet_testkit::content::pattern;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::Peer;
use gannet_testkit::process::memory_kib;
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, gannet_in};

/// Bodies that are decoded (tiny, some kilobytes, some hundred kilobytes), too long to be decoded,
/// and incompressible.
fn site() -> Folder {
    let folder = Folder::site();
    folder.write("tiny.txt", "tiny ".repeat(100));
    folder.write("small.txt", words(9_000, 1));
    folder.write("middle.html", words(90_000, 2));
    folder.write("large.txt", words(900_000, 3));
    folder.write("longest.txt", words(1 << 20, 4));
    folder.write("too-long.txt", words((1 << 20) + 1, 5));
    folder.write("noise.bin", pattern(50_000, 6));
    // The same bytes under a name with an incompressible type.
    folder.write("small.png", words(9_000, 1));
    folder.write("404.html", "nothing here ".repeat(50));
    folder
}

/// Moderately compressible text, different for each seed.
fn words(len: usize, seed: u64) -> Vec<u8> {
    let mut numbers = gannet_testkit::content::Numbers(seed);
    let words: Vec<u8> = (0..)
        .flat_map(|_| format!("{} ", numbers.below(5_000)).into_bytes())
        .take(len)
        .collect();
    words
}

fn pack(folder: &Folder, out: &Folder, name: &str, more: &[&str]) -> PathBuf {
    let path = out.join(name);
    let mut arguments = vec!["pack", ".", "--quiet", "--fresh", "-o"];
    arguments.push(path.to_str().expect("UTF-8"));
    arguments.extend(more);
    if !more.contains(&"--compress") {
        arguments.push("--fast");
    }
    gannet_in(folder, arguments).success();
    path
}

const FILES: [&str; 9] = [
    "/tiny.txt",
    "/small.txt",
    "/small.png",
    "/middle.html",
    "/large.txt",
    "/longest.txt",
    "/too-long.txt",
    "/noise.bin",
    "/no/such/page",
];

/// Request fields; `TAG` and `DATE` are replaced with the file's own.
const ASKED: [&[(&str, &str)]; 17] = [
    &[],
    &[("accept-encoding", "identity")],
    &[("accept-encoding", "gzip")],
    &[("accept-encoding", "br, zstd")],
    &[("accept-encoding", "x-own, deflate")],
    &[("accept-encoding", "identity;q=0, *;q=0")],
    &[("range", "bytes=0-0")],
    &[("range", "bytes=100-199")],
    &[("range", "bytes=-7")],
    &[("range", "bytes=400-")],
    &[("range", "bytes=5000000-")],
    &[("range", "bytes=0-9,100-109")],
    &[("range", "bytes=1-3"), ("if-range", "TAG")],
    &[("range", "bytes=1-3"), ("if-range", "\"other\"")],
    &[("if-none-match", "TAG")],
    &[("if-modified-since", "DATE")],
    &[("if-match", "\"other\"")],
];

type Answer = (u16, Vec<(String, String)>, Vec<u8>);

/// Removes what differs between answers: the date, and boundaries of parts.
fn plain(status: u16, fields: Vec<(String, String)>, body: Vec<u8>) -> Answer {
    let mut fields = fields;
    // The port is each server's own.
    fields.retain(|(name, _)| name != "date" && name != "alt-svc");
    let boundary = fields
        .iter_mut()
        .find(|(_, value)| value.contains("boundary="));
    match boundary {
        None => (status, fields, body),
        Some((_, value)) => {
            let boundary = value.split_once("boundary=").expect("exists").1.to_owned();
            *value = value.replace(&boundary, "-");
            let text = String::from_utf8_lossy(&body).replace(&boundary, "-");
            (status, fields, text.into_bytes())
        }
    }
}

/// All answers of a server, given a function that sends a request.
fn answers(mut ask: impl FnMut(&str, &str, &[(&str, &str)]) -> Answer) -> Vec<Answer> {
    let mut answers = Vec::new();
    for path in FILES {
        let (_, fields, _) = ask("HEAD", path, &[]);
        let own = |name: &str| {
            let field = fields.iter().find(|(field, _)| field == name);
            field.map_or(String::new(), |(_, value)| value.clone())
        };
        let (tag, date) = (own("etag"), own("last-modified"));
        for asked in ASKED {
            let asked: Vec<_> = asked
                .iter()
                .map(|(name, value)| match *value {
                    "TAG" => (*name, tag.as_str()),
                    "DATE" => (*name, date.as_str()),
                    value => (*name, value),
                })
                .collect();
            for method in ["GET", "HEAD"] {
                answers.push(ask(method, path, &asked));
            }
        }
    }
    answers
}

fn over_h1(client: &mut Client) -> Vec<Answer> {
    answers(|method, path, fields| {
        let lines: Vec<_> = fields.iter().map(|(n, v)| format!("{n}: {v}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let Response {
            status,
            fields,
            body,
            ..
        } = client.request(method, path, &lines);
        plain(status, fields, body)
    })
}

fn over_h2(peer: &mut Peer) -> Vec<Answer> {
    answers(|method, path, fields| {
        let answer = peer.request(method, path, fields);
        assert!(answer.is_ended, "{method} {path} {fields:?}");
        plain(answer.status, answer.fields, answer.body)
    })
}

fn compare(got: &[Answer], expect: &[Answer]) {
    assert_eq!(got.len(), expect.len());
    for (number, (got, expect)) in got.iter().zip(expect).enumerate() {
        let asked = ASKED[number / 2 % ASKED.len()];
        let path = FILES[number / 2 / ASKED.len()];
        assert_eq!((got.0, &got.1), (expect.0, &expect.1), "{path} {asked:?}");
        assert!(got.2 == expect.2, "{path} {asked:?}: another body");
    }
}

#[test]
fn answers_are_those_of_an_archive_that_stores_everything() {
    let folder = site();
    let out = Folder::new();
    let stored = pack(&folder, &out, "stored.gannet", &[]);
    let inflated = pack(&folder, &out, "inflated.gannet", &["--drop-identity"]);
    let len = |path: &Path| fs::metadata(path).expect("packed").len();
    assert!(len(&inflated) + 2_000_000 < len(&stored));
    same_answers(&stored, &inflated);
}

#[test]
fn brotli_alone_is_as_good() {
    let folder = site();
    let out = Folder::new();
    let brotli = ["--compress", "br=5"];
    let stored = pack(&folder, &out, "stored.gannet", &brotli);
    let flags = [&brotli[..], &["--drop-identity"]].concat();
    let decoded = pack(&folder, &out, "decoded.gannet", &flags);
    let len = |path: &Path| fs::metadata(path).expect("packed").len();
    assert!(len(&decoded) + 2_000_000 < len(&stored));
    same_answers(&stored, &decoded);
    let path = decoded.to_str().expect("UTF-8");
    gannet_testkit::gannet(["verify", path]).success();
    let got = gannet_testkit::gannet(["cat", path, "middle.html"]).success();
    assert!(got.out == words(90_000, 2));
    // The next build reuses what it can, with the same result.
    let again = out.join("decoded.gannet");
    let before = fs::read(&again).expect("packed");
    let to = ["pack", ".", "--quiet", "-o", path];
    gannet_in(&folder, [&to[..], &flags].concat()).success();
    assert!(fs::read(&again).expect("packed") == before);
}

/// Two archives of the same content give the same answers.
fn same_answers(stored: &Path, inflated: &Path) {
    on_both_engines(|engine| {
        let server = engine.serve(stored, &[]);
        let (h1, h2) = (
            over_h1(&mut Client::new(&server)),
            over_h2(&mut Peer::new(&server)),
        );
        // With decoded bodies cached, or decoded for each request.
        for flags in [&[][..], &["--cache-memory", "0"]] {
            let server = engine.serve(inflated, flags);
            compare(&over_h1(&mut Client::new(&server)), &h1);
            compare(&over_h2(&mut Peer::new(&server)), &h2);
        }
        let stored = Secure::serve(engine, stored, &[]);
        let inflated = Secure::serve(engine, inflated, &[]);
        compare(
            &over_h1(&mut inflated.connect()),
            &over_h1(&mut stored.connect()),
        );
        compare(
            &over_h2(&mut Peer::secure(&inflated, &[])),
            &over_h2(&mut Peer::secure(&stored, &[])),
        );
    });
}

#[test]
fn gzip_that_lies_is_an_error_and_nothing_else() {
    let folder = site();
    let out = Folder::new();
    let sound = pack(&folder, &out, "sound.gannet", &["--drop-identity"]);
    let sound = fs::read(sound).expect("packed");
    let gzip = gzip_of(&sound, &words(90_000, 2));
    // Corrupts the magic, the middle, the checksum and the length; and truncates with zeros.
    let places = [0, gzip.len() / 2, gzip.len() - 8, gzip.len() - 1];
    let flipped = places.map(|place| {
        let mut file = sound.clone();
        file[gzip.start + place] ^= 0xff;
        file
    });
    let mut zeros = sound.clone();
    zeros[gzip.clone()].fill(0);
    for (number, file) in flipped.into_iter().chain([zeros]).enumerate() {
        let damaged = out.write(format!("damaged-{number}.gannet"), &file);
        let damaged = damaged.to_str().expect("UTF-8");
        let verified = gannet_testkit::gannet(["verify", damaged]);
        assert_eq!(verified.status, Some(1), "{verified:?}");
        on_both_engines(|engine| {
            // Not copied: a copy is verified at the start.
            let server = engine.serve(damaged, &["--cache-memory", "0"]);
            let mut client = Client::new(&server);
            for _ in 0..2 {
                client.request("GET", "/middle.html", &[]).expect(500);
                let part = client.request("GET", "/middle.html", &["range: bytes=5-9"]);
                part.expect(500);
                // Heads are answered as announced; other files are unaffected.
                client.request("HEAD", "/middle.html", &[]).expect(200);
                let small = client.get("/small.txt").expect(200);
                assert!(small.body == words(9_000, 1));
            }
            let mut peer = Peer::new(&server);
            assert_eq!(peer.get("/middle.html").status, 500);
            assert!(peer.get("/small.txt").expect(200).body == words(9_000, 1));
        });
    }
}

#[test]
fn damaged_brotli_is_an_error_although_it_has_no_checksum() {
    let folder = site();
    let out = Folder::new();
    let flags = ["--drop-identity", "--compress", "br=5"];
    let sound = pack(&folder, &out, "sound.gannet", &flags);
    let path = sound.to_str().expect("UTF-8");
    let coded = gannet_testkit::gannet(["cat", "--coding", "br", path, "middle.html"]).success();
    let sound = fs::read(sound).expect("packed");
    let len = coded.out.len();
    let start = sound.windows(len).position(|bytes| bytes == coded.out);
    let start = start.expect("stored as it is sent");
    for place in [0, len / 3, len / 2, len - 20, len - 1] {
        let mut file = sound.clone();
        file[start + place] ^= 0x10;
        let damaged = out.write("damaged.gannet", &file);
        let damaged = damaged.to_str().expect("UTF-8");
        let verified = gannet_testkit::gannet(["verify", damaged]);
        assert_eq!(verified.status, Some(1), "{verified:?}");
        on_both_engines(|engine| {
            // Not copied: a copy is verified at the start.
            let server = engine.serve(damaged, &["--cache-memory", "0"]);
            let mut client = Client::new(&server);
            for _ in 0..2 {
                client.request("GET", "/middle.html", &[]).expect(500);
                let small = client.get("/small.txt").expect(200);
                assert!(small.body == words(9_000, 1));
            }
        });
    }
}

/// The range of a body's gzip in the file.
fn gzip_of(archive: &[u8], body: &[u8]) -> std::ops::Range<usize> {
    let len = (body.len() as u32).to_le_bytes();
    let crc = flate2::Crc::new();
    let mut crc = crc;
    crc.update(body);
    let trailer = [crc.sum().to_le_bytes(), len].concat();
    let end = archive
        .windows(8)
        .position(|bytes| bytes == trailer)
        .expect("stored as gzip")
        + 8;
    let start = archive[..end]
        .windows(3)
        .rposition(|bytes| bytes == b"\x1f\x8b\x08")
        .expect("it begins somewhere");
    start..end
}

#[test]
fn the_tools_see_the_files_as_they_are() {
    let folder = site();
    let out = Folder::new();
    let stored = pack(&folder, &out, "stored.gannet", &[]);
    let inflated = pack(&folder, &out, "inflated.gannet", &["--drop-identity"]);
    let (stored, inflated) = (
        stored.to_str().expect("UTF-8"),
        inflated.to_str().expect("UTF-8"),
    );
    gannet_testkit::gannet(["verify", inflated]).success();
    let same = gannet_testkit::gannet(["diff", stored, inflated]).success();
    assert!(!same.text().contains("middle"), "{}", same.text());
    for path in ["tiny.txt", "middle.html", "small.png", "too-long.txt"] {
        let content = fs::read(folder.join(path)).expect("written");
        let got = gannet_testkit::gannet(["cat", inflated, path]).success();
        assert!(got.out == content, "{path}");
        let got = gannet_testkit::gannet(["cat", "--coding", "identity", inflated, path]).success();
        assert!(got.out == content, "{path}");
    }
    let extracted = out.join("extracted");
    let to = extracted.to_str().expect("UTF-8");
    gannet_testkit::gannet(["extract", inflated, "-o", to]).success();
    for (path, content) in folder.files() {
        let got = fs::read(extracted.join(&path)).expect("extracted");
        assert!(got == content, "{}", path.display());
    }
    let lines = |arguments: &[&str]| {
        gannet_testkit::gannet(arguments)
            .success()
            .text()
            .to_owned()
    };
    assert_eq!(lines(&["ls", "-l", stored]), lines(&["ls", "-l", inflated]));
    let json = lines(&["ls", "--json", inflated]);
    assert!(
        json.contains(r#""coding": "identity", "stored_as": "gzip", "size": 90000"#),
        "{json}"
    );
    let counts = lines(&["inspect", inflated]);
    assert!(counts.contains("decompressed"), "{counts}");
    let explained = lines(&["explain", "/middle.html", inflated]);
    assert!(explained.contains("87.9 KiB"), "{explained}");
    assert!(
        explained.contains("decompressed from the gzip"),
        "{explained}"
    );
}

#[test]
fn without_gzip_and_brotli_there_is_nothing_to_decompress() {
    let folder = Folder::site();
    let refused = gannet_in(
        &folder,
        ["pack", ".", "--drop-identity", "--compress", "zstd"],
    );
    assert_eq!(refused.status, Some(2));
    assert!(
        refused.err.contains("--drop-identity needs gzip or br"),
        "{}",
        refused.err
    );
    let out = Folder::new();
    let path = out.join("site.gannet");
    let path = path.to_str().expect("UTF-8");
    folder.write("long.txt", words((1 << 20) + 1, 9));
    let table = gannet_in(
        &folder,
        ["pack", ".", "--fast", "--drop-identity", "-o", path],
    );
    let table = table.success().text().to_owned();
    assert!(table.contains("dropped"), "{table}");
    assert!(
        table.contains("too long              1     1.0 MiB"),
        "{table}"
    );
}

#[test]
fn many_bodies_do_not_take_more_memory_than_they_may() {
    let folder = Folder::new();
    for number in 0..40 {
        folder.write(format!("{number}.txt"), words(500_000, number));
    }
    let out = Folder::new();
    let archive = pack(&folder, &out, "site.gannet", &["--drop-identity"]);
    on_both_engines(|engine| {
        let flags = ["--workers", "1", "--cache-memory", "4M"];
        let server = engine.serve(&archive, &flags);
        get(&server, "/0.txt").expect(200);
        for _ in 0..3 {
            for number in 0..40 {
                let part = ask(
                    &server,
                    "GET",
                    &format!("/{number}.txt"),
                    &["range: bytes=9-9"],
                );
                part.expect(206);
            }
        }
        // There are 20 MB of bodies: the cache holds four, and the rest of the process is small.
        assert!(
            memory_kib(&server, "RssAnon") < 16 << 10,
            "{} KiB",
            memory_kib(&server, "RssAnon")
        );
    });
}
