//! `gannet get --http3`: whole files, parts, resumption, and error messages.

use std::fs::{self, File};
use std::io::{self, Read};
use std::net::UdpSocket;
use std::process::Stdio;

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

/// UDP without an answer: the message names the next steps, also for the bytes that are there.
#[test]
fn without_an_answer_over_udp_another_version_is_the_next_step() {
    let folder = Folder::new();
    folder.write("copy.part", "half");
    folder.write("copy.part.tag", "\"a\"");
    let silent = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let url = format!("https://{}/", silent.local_addr().expect("bound"));
    let get = |rest: &[&str]| gannet_in(&folder, [&["get", "--http3", "-k", &url], rest].concat());
    get(&["-C", "-o", "copy"]).failure(
        1,
        &format!(
            "gannet: cannot download '{url}': no answer over UDP for 10 s: HTTP/3 is off there, or \
             UDP is blocked\n\
             help: try without --http3; --continue resumes from there\n"
        ),
    );
    assert_eq!(fs::read(folder.join("copy.part")).expect("kept"), b"half");
    // A port that the kernel gives to nobody who asks for any.
    let refusing = "https://127.0.0.1:1/";
    gannet_in(&folder, ["get", "--http3", "-k", refusing]).failure(
        1,
        &format!(
            "gannet: cannot download '{refusing}': no answer over UDP: connection refused \
             (ECONNREFUSED): HTTP/3 is off there, or UDP is blocked\nhelp: try without --http3\n"
        ),
    );
}

/// A file that shrinks while it is sent: the stream is reset, with an error that has a name.
#[test]
fn errors_of_http3_are_named() {
    let site = site(&[]);
    let path = site.folder.join("site/long.bin");
    // The client asks for at most a quarter of this before it writes.
    let file = File::create(path).expect("a new file");
    file.set_len(64 << 20).expect("a sparse file");
    let url = format!("{}/long.bin", site.url);
    let mut get = gannet_testkit::command();
    get.args(["get", "--http3", "-A", &site.authority, &url, "-o", "-"]);
    get.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut get = get.spawn().expect("the program");
    let mut out = get.stdout.take().expect("piped");
    out.read_exact(&mut [0]).expect("the download has begun");
    file.set_len(1).expect("an open file");
    io::copy(&mut out, &mut io::sink()).expect("until it ends");
    let ended = get.wait_with_output().expect("it ends");
    assert_eq!(
        String::from_utf8_lossy(&ended.stderr),
        format!(
            "gannet: cannot download '{url}': the server reset the stream: H3_INTERNAL_ERROR \
             (0x102)\n"
        )
    );
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
