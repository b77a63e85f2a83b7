//! Ranges with each coding, condition and kind of site: what a client gets is a part of what it has,
//! over every version of HTTP.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use gannet_testkit::client::Response;
use gannet_testkit::content::{Numbers, pattern};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::tls::Secure;
use gannet_testkit::versions::Versions;
use gannet_testkit::{Folder, gannet_in};

const LEN: usize = 20_000;

/// Text that has codings.
fn text() -> Vec<u8> {
    let mut numbers = Numbers(7);
    let words = (0..).flat_map(|_| format!("{} ", numbers.below(5_000)).into_bytes());
    words.take(LEN).collect()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut coder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    coder.write_all(content).expect("in memory");
    coder.finish().expect("in memory")
}

fn site() -> Folder {
    let site = Folder::new();
    site.write("page.txt", text());
    site.write("page.txt.gz", gzip(&text()));
    site.write("empty.txt", "");
    site.write("a.bin", pattern(LEN, 3));
    // A date names a version only once its second is over.
    let earlier = SystemTime::now() - Duration::from_secs(3_600);
    for name in ["page.txt", "page.txt.gz"] {
        let file = File::options().write(true).open(site.join(name));
        file.and_then(|file| file.set_modified(earlier))
            .expect("ours");
    }
    site
}

fn pack(site: &Folder, out: &Folder, name: &str, more: &[&str]) -> PathBuf {
    let path = out.join(name);
    let path_text = path.to_str().expect("UTF-8");
    let arguments = ["pack", ".", "-q", "--fast", "-o", path_text];
    gannet_in(site, arguments.iter().chain(more)).success();
    path
}

/// The answer to the same request over HTTP/1, HTTP/2 and HTTP/3, which agree on it.
fn ask(versions: &mut Versions, method: &str, target: &str, lines: &[&str]) -> Response {
    let fields: Vec<_> = lines.iter().filter_map(|it| it.split_once(": ")).collect();
    let [one, others @ ..] = versions.request(method, target, &fields);
    let is_multipart = (one.field("content-type")).is_some_and(|it| it.starts_with("multipart/"));
    for other in others {
        let why = format!("{target} {lines:?} over {}", other.version);
        assert_eq!(
            (one.status, one.body.len()),
            (other.status, other.body.len()),
            "{why}"
        );
        let names = [
            "content-length",
            "content-range",
            "content-encoding",
            "etag",
        ];
        for name in names {
            assert_eq!(one.field(name), other.field(name), "{why}");
        }
        // Each answer in parts has a boundary of its own.
        assert!(is_multipart || one.body == other.body, "{why}");
    }
    one
}

#[test]
fn a_part_is_one_of_what_the_client_has() {
    on_both_engines(|engine| {
        let (site, out) = (site(), Folder::new());
        let stored = pack(&site, &out, "stored.gannet", &[]);
        let alone = pack(&site, &out, "alone.gannet", &["--drop-identity"]);
        for path in [site.path(), &stored, &alone] {
            let secure = Secure::serve(engine, path, &["--workers", "1"]);
            let mut versions = Versions::new(&secure);
            let plain = ask(&mut versions, "GET", "/page.txt", &[]).expect(200);
            assert!(plain.body == text(), "{path:?}");
            let accept = "accept-encoding: gzip";
            let coded = ask(&mut versions, "GET", "/page.txt", &[accept]).expect(200);
            assert_eq!(coded.field("content-encoding"), Some("gzip"), "{path:?}");
            assert_ne!(coded.tag(), plain.tag());
            let date = plain.field("last-modified").expect("it has one").to_owned();
            let mut check = |lines: &[String], expect: Option<&Response>| {
                let mut all = vec![accept, "range: bytes=100-299"];
                all.extend(lines.iter().map(String::as_str));
                let part = ask(&mut versions, "GET", "/page.txt", &all);
                let Some(whole) = expect else {
                    part.expect(200);
                    return;
                };
                let part = part.expect(206);
                assert_eq!(part.tag(), whole.tag(), "{path:?} {lines:?}");
                assert_eq!(
                    part.field("content-encoding"),
                    whole.field("content-encoding")
                );
                assert!(part.body == whole.body[100..300], "{path:?} {lines:?}");
                let range = format!("bytes 100-299/{}", whole.body.len());
                assert_eq!(part.field("content-range"), Some(&*range));
            };
            check(&[], Some(&plain));
            check(&[format!("if-range: {}", plain.tag())], Some(&plain));
            check(&[format!("if-range: {}", coded.tag())], Some(&coded));
            check(&[format!("if-range: {date}")], Some(&plain));
            check(&["if-range: \"other\"".to_owned()], None);
            check(&[format!("if-range: W/{}", coded.tag())], None);
            check(
                &["if-range: Sun, 06 Nov 1994 08:49:37 GMT".to_owned()],
                None,
            );
            check(&[format!("if-match: {}", plain.tag())], Some(&plain));
            // What it has is the coding, of which it does not say that the range is.
            check(&[format!("if-match: {}", coded.tag())], None);
            // A client that refuses the file gets it in parts all the same, as it would without a range.
            let refused = ["accept-encoding: br, identity;q=0", "range: bytes=100-299"];
            let part = ask(&mut versions, "GET", "/page.txt", &refused).expect(206);
            assert!(part.body == plain.body[100..300], "{path:?}");
            // Nothing but GET has ranges.
            let lines = [accept, "range: bytes=100-299"];
            let head = ask(&mut versions, "HEAD", "/page.txt", &lines).expect(200);
            assert_eq!(head.tag(), coded.tag());
        }
    });
}

#[test]
fn any_range_of_an_empty_file_is_all_of_it() {
    on_both_engines(|engine| {
        let (site, out) = (site(), Folder::new());
        let stored = pack(&site, &out, "stored.gannet", &[]);
        for path in [site.path(), &stored] {
            let secure = Secure::serve(engine, path, &["--workers", "1"]);
            let mut versions = Versions::new(&secure);
            for range in ["range: bytes=0-", "range: bytes=5-9,20-", "range: bytes=-1"] {
                let empty = ask(&mut versions, "GET", "/empty.txt", &[range]).expect(200);
                assert_eq!(empty.content_length(), Some(0));
                assert_eq!(empty.field("content-range"), None);
            }
        }
    });
}

/// As many ranges as a program that updates a file requests, in parts that are those of the file; and
/// no set of them costs more than the file and a head for each.
#[test]
fn many_ranges_cost_the_bytes_that_they_name() {
    on_both_engines(|engine| {
        let (site, out) = (site(), Folder::new());
        let stored = pack(&site, &out, "stored.gannet", &[]);
        let content = pattern(LEN, 3);
        for path in [site.path(), &stored] {
            let secure = Secure::serve(engine, path, &["--workers", "1"]);
            let mut versions = Versions::new(&secure);
            let ranges: Vec<_> = (0..256).map(|at| (at * 70, at * 70 + 9)).collect();
            let specs: Vec<_> = ranges.iter().map(|(a, b)| format!("{a}-{b}")).collect();
            let range = format!("range: bytes={}", specs.join(","));
            let parts = ask(&mut versions, "GET", "/a.bin", &[&range]).expect(206);
            let content_type = parts.field("content-type").expect("it has one");
            let boundary = content_type.strip_prefix("multipart/byteranges; boundary=");
            let boundary = boundary.expect("multipart");
            let mut expect = Vec::new();
            for (first, last) in ranges {
                let head = format!(
                    "\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\n\
                     Content-Range: bytes {first}-{last}/{LEN}\r\n\r\n"
                );
                expect.extend_from_slice(head.as_bytes());
                expect.extend_from_slice(&content[first..=last]);
            }
            expect.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
            assert!(parts.body == expect, "{path:?}");
            let all = format!("range: bytes={}", ["0-"; 256].join(","));
            let whole = ask(&mut versions, "GET", "/a.bin", &[&all]).expect(206);
            assert!(whole.body == content, "{path:?}");
            let odd = (0..256).map(|at| format!("{}-{}", at * 50, at * 50 + 60));
            let odd: Vec<_> = odd.collect();
            let joined = format!("range: bytes={}", odd.join(","));
            let joined = ask(&mut versions, "GET", "/a.bin", &[&joined]).expect(206);
            assert!(joined.body == content[..255 * 50 + 61], "{path:?}");
            let more = format!("{all},0-");
            ask(&mut versions, "GET", "/a.bin", &[&more]).expect(200);
        }
    });
}

/// A program that reads a file by ranges learns its length from `HEAD`, with or without codings.
#[test]
fn what_is_read_by_ranges_has_one_length() {
    on_both_engines(|engine| {
        let (site, out) = (Folder::new(), Folder::new());
        let database = [&b"SQLite format 3\0"[..], &b"page ".repeat(10_000)].concat();
        let names = [
            "a.sqlite",
            "a.mbtiles",
            "a.tar",
            "a.fits",
            "a.arrow",
            "a.db",
            "data.bin",
        ];
        for name in names {
            let longer = if name == "data.bin" { 2 } else { 1 };
            site.write(name, database.repeat(longer));
            site.write(format!("{name}.gz"), gzip(&database.repeat(longer)));
        }
        site.write("short.bin", "page ".repeat(1_000));
        let stored = pack(&site, &out, "stored.gannet", &[]);
        for path in [site.path(), &stored] {
            let secure = Secure::serve(engine, path, &["--workers", "1"]);
            let mut versions = Versions::new(&secure);
            for name in &names {
                let lines = ["accept-encoding: gzip, deflate, br, zstd"];
                for method in ["HEAD", "GET", "GET"] {
                    let answer =
                        ask(&mut versions, method, &format!("/{name}"), &lines).expect(200);
                    let len = database.len() * if *name == "data.bin" { 2 } else { 1 };
                    assert_eq!(answer.content_length(), Some(len as u64), "{path:?} {name}");
                    assert_eq!(answer.field("content-encoding"), None, "{path:?} {name}");
                }
            }
        }
        let secure = Secure::serve(engine, &stored, &[]);
        let mut versions = Versions::new(&secure);
        let lines = ["accept-encoding: gzip"];
        let short = ask(&mut versions, "GET", "/short.bin", &lines).expect(200);
        assert_eq!(short.field("content-encoding"), Some("gzip"));
    });
}

/// A release that is rolled back makes files older: only the very date means the same file.
#[test]
fn a_date_is_known_or_not() {
    on_both_engines(|engine| {
        let (site, out) = (site(), Folder::new());
        let stored = pack(&site, &out, "stored.gannet", &[]);
        for path in [site.path(), &stored] {
            let secure = Secure::serve(engine, path, &["--workers", "1"]);
            let mut versions = Versions::new(&secure);
            let date = ask(&mut versions, "GET", "/a.bin", &[]).expect(200);
            let date = date.field("last-modified").expect("it has one").to_owned();
            let mut check = |date: &str, status| {
                let line = format!("if-modified-since: {date}");
                ask(&mut versions, "GET", "/a.bin", &[&line]).expect(status);
            };
            check(&date, 304);
            check("Fri, 01 Jan 2100 00:00:00 GMT", 200);
            check("Sun, 06 Nov 1994 08:49:37 GMT", 200);
        }
    });
}
