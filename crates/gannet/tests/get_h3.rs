//! `gannet get --http3`: whole files, parts, resumption, and error messages.

use std::fs;
use std::net::UdpSocket;

use gannet_testkit::content::pattern;
use gannet_testkit::engine::Engine;
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, gannet_in};

/// A length that is not a multiple of any buffer's.
const LEN: usize = 3_000_017;

struct Site {
    folder: Folder,
    secure: Secure,
    url: String,
    authority: String,
}

fn site(flags: &[&str]) -> Site {
    let folder = Folder::new();
    folder.write("site/file.bin", pattern(LEN, 7));
    folder.write("site/empty.bin", "");
    folder.write("site/_redirects", "/moved /file.bin 301\n");
    let secure = Secure::serve(Engine::Epoll, folder.join("site"), flags);
    let authority = secure.authority.file();
    Site {
        url: format!("https://localhost:{}", secure.server.address().port()),
        authority: authority.to_str().expect("UTF-8").to_owned(),
        folder,
        secure,
    }
}

impl Site {
    fn get(&self, path: &str, rest: &[&str]) -> gannet_testkit::Ended {
        let url = format!("{}{path}", self.url);
        let arguments = [&["get", "--http3", "-A", &self.authority, &url], rest].concat();
        gannet_in(&self.folder, arguments)
    }

    fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.join(name)).expect("the download is complete")
    }
}

#[test]
fn a_file_arrives_whole_in_one_part_and_in_several() {
    let site = site(&[]);
    for connections in ["1", "4"] {
        site.get("/file.bin", &["-q", "-c", connections, "-o", "copy"])
            .success();
        assert!(site.file("copy") == pattern(LEN, 7), "{connections}");
        fs::remove_file(site.folder.join("copy")).expect("ours");
    }
    site.get("/empty.bin", &["-q", "-o", "copy"]).success();
    assert_eq!(site.file("copy"), b"");
    let ended = site.get("/moved", &["-o", "-"]).success();
    assert!(ended.out == pattern(LEN, 7));
    let ended = site.get("/file.bin", &["-j", "-c", "3"]).success();
    assert_eq!(
        ended.text().matches("\"HTTP/3\"").count(),
        3,
        "{}",
        ended.text()
    );
}

/// As over the other versions: bytes present of the same content are not fetched again; those of
/// other content are discarded.
#[test]
fn a_download_goes_on_where_it_stopped() {
    let site = site(&[]);
    let response = site.secure.connect().get("/file.bin");
    let half = vec![b'x'; LEN / 2];
    for (tag, kept) in [(response.tag(), true), ("\"another\"", false)] {
        site.folder.write("copy.part", &half);
        site.folder.write("copy.part.tag", tag);
        site.get("/file.bin", &["-C", "-o", "copy"]).success();
        let got = site.file("copy");
        let last = half.len() - 1;
        assert!(got[last..] == pattern(LEN, 7)[last..], "{tag}");
        assert_eq!(got[..last] == half[..last], kept, "{tag}");
    }
}

/// The content is verified against the server's digest.
#[test]
fn what_arrives_is_verified() {
    let site = site(&["--header", "repr-digest: sha-256=:AAAA:"]);
    let ended = site.get("/file.bin", &["-o", "copy"]);
    assert_eq!(ended.status, Some(1), "{}", ended.err);
    assert!(
        ended.err.contains("the sha-256 digest is "),
        "{}",
        ended.err
    );
    assert!(!site.folder.join("copy").exists());
}

/// Errors are reported as over the other versions.
#[test]
fn failures_are_named() {
    let site = site(&[]);
    let missing = format!("{}/missing", site.url);
    site.get("/missing", &[]).failure(
        1,
        &format!(
            "gannet: cannot download '{missing}': the server answers 404 (expected the content)\n\
             help: nothing is at this URL: check its path\n"
        ),
    );
    // Without the authority: the same message as over TCP.
    let url = format!("{}/file.bin", site.url);
    let over = |version| gannet_in(&site.folder, ["get", version, &url]);
    let expect = over("--http2");
    assert_eq!(expect.status, Some(1), "{}", expect.err);
    over("--http3").failure(1, &expect.err);
    // No server listens there.
    let other = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let nobody = format!("https://{}/", other.local_addr().expect("bound"));
    drop(other);
    let ended = gannet_in(&site.folder, ["get", "--http3", "-k", &nobody]);
    assert_eq!(ended.status, Some(1), "{}", ended.err);
    assert!(
        ended.err.contains("help: nothing listens there"),
        "{}",
        ended.err
    );
    gannet_in(&site.folder, ["get", "--http3", "http://h/"]).failure(
        2,
        "gannet: --http3 makes no sense with 'http://h/'\n\
         help: HTTP/3 is always encrypted: write it as https://HOST/PATH\n",
    );
    gannet_in(&site.folder, ["get", "--http3", "--http2", "https://h/"]).failure(
        2,
        "gannet: --http2 and --http3 contradict each other\nhelp: leave one of them out\n",
    );
}
