//! Text of a directory that is compressed while it is served.

use gannet_testkit::Folder;
use gannet_testkit::client::{Client, Response, ask, metric};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::Peer;
use gannet_testkit::process::until;

use std::io::Read;

/// Text of `len` bytes.
fn text(len: usize) -> String {
    let line = |number: usize| format!("<p>number {number}, {}</p>\n", number * 7_919 % 10_007);
    let mut text: String = (0..len / 10).map(line).collect();
    text.truncate(len);
    text
}

fn decoded(response: &Response) -> Vec<u8> {
    let mut content = Vec::new();
    match response.field("content-encoding") {
        Some("br") => {
            let mut decoder = brotli::Decompressor::new(&response.body[..], 4_096);
            decoder.read_to_end(&mut content).expect("sound");
        }
        Some("zstd") => content = zstd::decode_all(&response.body[..]).expect("sound"),
        Some("gzip") => {
            let mut decoder = flate2::read::GzDecoder::new(&response.body[..]);
            decoder.read_to_end(&mut content).expect("sound");
        }
        _ => content.clone_from(&response.body),
    }
    content
}

/// A file in the worker's memory and a longer one, of which it has a sealed copy, in each coding,
/// for every version of HTTP in clear text.
#[test]
fn text_is_compressed_for_later_requests() {
    let site = Folder::new();
    // Not longer than the largest short file, and longer.
    let files = [("page.html", text(20_000)), ("long.txt", text(900_000))];
    for (name, content) in &files {
        site.write(name, content);
    }
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--workers", "2", "--metrics", "127.0.0.1:0"]);
        for (name, content) in &files {
            let target = format!("/{name}");
            for coding in ["gzip", "zstd", "br"] {
                let line = format!("accept-encoding: {coding}");
                let mut client = Client::new(&server);
                let mut response = None;
                // A file that has just been written is left alone for some seconds.
                until("it is compressed", || {
                    let one = client.request("GET", &target, &[&line]).expect(200);
                    assert_eq!(one.field("vary"), Some("accept-encoding"), "{name}");
                    assert!(decoded(&one) == content.as_bytes(), "{name} {coding}");
                    let is_coded = one.field("content-encoding") == Some(coding);
                    response = Some(one);
                    is_coded
                });
                let response = response.expect("it was read");
                assert!(response.body.len() * 3 < content.len(), "{name} {coding}");
                assert!(response.tag().contains(&format!("-{coding}")), "{name}");
                let plain = client.get(&target).expect(200);
                assert!(plain.body == content.as_bytes(), "{name}");
                assert_eq!(plain.field("content-encoding"), None, "{name}");
            }
            let mut peer = Peer::new(&server);
            until("the other worker has it as well", || {
                let fields = [("accept-encoding", "gzip")];
                let answer = peer.request("GET", &target, &fields).expect(200);
                answer.field("content-encoding") == Some("gzip")
            });
        }
        let made = metric(&server, "gannet_codings_total{result=\"made\"}");
        assert!(made >= 6, "{made}");
        let coded = metric(&server, "gannet_codings_bytes_total{of=\"coded\"}");
        let source = metric(&server, "gannet_codings_bytes_total{of=\"source\"}");
        assert!(coded * 3 < source, "{coded} of {source}");
    });
}

#[test]
fn it_can_be_turned_off() {
    let site = Folder::new();
    site.write("page.html", text(20_000));
    on_both_engines(|engine| {
        for flag in ["--compress=stored", "--cache-memory=0"] {
            let server = engine.serve(site.path(), &[flag]);
            let line = "accept-encoding: gzip, deflate, br, zstd";
            let one = ask(&server, "GET", "/page.html", &[line]).expect(200);
            assert_eq!(one.field("vary"), None, "{flag}");
            assert_eq!(one.field("content-encoding"), None, "{flag}");
        }
    });
}

/// Where each allocation may fail, the encoders that can do without work.
#[test]
fn at_a_memory_limit_text_is_compressed_as_well() {
    let site = Folder::new();
    site.write("page.html", text(20_000));
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--max-memory=128M", "--workers=1"]);
        for (accepted, coding) in [("gzip, deflate, br, zstd", "zstd"), ("gzip, br", "gzip")] {
            let line = format!("accept-encoding: {accepted}");
            until("it is compressed", || {
                let answer = ask(&server, "GET", "/page.html", &[&line]).expect(200);
                answer.field("content-encoding") == Some(coding)
            });
        }
        let only = ask(&server, "GET", "/page.html", &["accept-encoding: br"]).expect(200);
        assert_eq!(only.field("content-encoding"), None);
    });
}

/// The search index of a large documentation: longer than other files that are copied for their first
/// request, and than what Brotli is made of.
#[test]
fn a_search_index_is_compressed() {
    let site = Folder::new();
    let index = text(5_000_000);
    site.write("searchindex.js", &index);
    // Longer than any text that is compressed.
    site.write("dump.txt", text(9_000_000));
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--workers", "1", "--metrics", "127.0.0.1:0"]);
        let mut client = Client::new(&server);
        for (accepted, coding) in [
            ("gzip, deflate, br, zstd", "zstd"),
            ("gzip, deflate, br", "gzip"),
        ] {
            let line = format!("accept-encoding: {accepted}");
            until("it is compressed", || {
                let dump = client.request("GET", "/dump.txt", &[&line]).expect(200);
                assert_eq!(dump.field("content-encoding"), None);
                let one = client
                    .request("GET", "/searchindex.js", &[&line])
                    .expect(200);
                assert!(decoded(&one) == index.as_bytes());
                let is_coded = one.field("content-encoding") == Some(coding);
                assert!(!is_coded || one.body.len() * 3 < index.len());
                is_coded
            });
        }
        client.request("GET", "/searchindex.js", &["accept-encoding: br"]);
        let made = metric(&server, "gannet_codings_total{result=\"made\"}");
        assert_eq!(made, 2, "nothing else");
    });
}
