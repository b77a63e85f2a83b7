//! A log is downloaded whole while it is written, as it was when the download began, over every protocol.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use gannet_testkit::Folder;
use gannet_testkit::client::{Client, End, head};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::{INITIAL_WINDOW_SIZE, Peer};
use gannet_testkit::h3;
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::Secure;

/// Longer than files that are copied, and than socket buffers.
const LONG: usize = 12 << 20;

/// What a client keeps open of its window, over HTTP/2.
const WINDOW: u32 = 200_000;

/// A log that is being written.
struct Log {
    path: PathBuf,
    file: File,
    lines: usize,
}

fn line(number: usize) -> String {
    format!("{number:09} what a server has to tell of a request, its client, and its answer\n")
}

impl Log {
    fn new(site: &Folder) -> Self {
        let path = site.join("app.log");
        let lines = LONG / line(0).len();
        let text: String = (0..lines).map(line).collect();
        fs::write(&path, text).expect("written");
        let file = File::options().append(true).open(&path);
        let file = file.expect("it is there");
        Self { path, file, lines }
    }

    fn append(&mut self) {
        let line = line(self.lines);
        self.file.write_all(line.as_bytes()).expect("appended");
        self.lines += 1;
    }

    /// Checks a download of the end of the log, or of all of it: it ends where the log ended once, before it
    /// grew, and is what the log has there.
    fn check(&self, protocol: &str, (length, body): (Option<&str>, &[u8]), begins_at: usize) {
        let length = length.expect("it is announced");
        assert_eq!(length, body.len().to_string(), "{protocol}");
        let now = fs::read(&self.path).expect("it is there");
        let end = begins_at + body.len();
        assert!(end < now.len(), "{protocol}: it did not grow");
        assert!(body == &now[begins_at..end], "{protocol}");
    }
}

/// Downloads over HTTP/1.1, with a line appended after each part that arrived.
fn download_h1(
    mut client: Client,
    log: &mut Log,
    range: Option<&str>,
) -> (Option<String>, Vec<u8>) {
    let lines: Vec<_> = range
        .map(|range| format!("range: {range}"))
        .into_iter()
        .collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    client.send(head("GET", "/app.log", &lines));
    let answer = client.head();
    let length = answer.content_length().expect("announced");
    let mut body = Vec::new();
    while (body.len() as u64) < length {
        log.append();
        body.extend(client.take((length - body.len() as u64).min(40_000)));
    }
    (answer.field("content-length").map(str::to_owned), body)
}

/// The same over HTTP/2, after each frame.
fn download_h2(mut peer: Peer, log: &mut Log, range: Option<&str>) -> (Option<String>, Vec<u8>) {
    let fields: Vec<_> = range.map(|range| ("range", range)).into_iter().collect();
    let stream = peer.ask("GET", "/app.log", &fields);
    while !peer.is_over(stream) {
        log.append();
        assert!(peer.step(), "{:?}", peer.goaway);
    }
    let answer = peer.answer(stream);
    assert_eq!(answer.reset, None);
    (
        answer.field("content-length").map(str::to_owned),
        answer.body,
    )
}

/// The same over HTTP/3, after each datagram.
fn download_h3(mut quic: Quic, log: &mut Log, range: Option<&str>) -> (Option<String>, Vec<u8>) {
    let fields: Vec<_> = range.map(|range| ("range", range)).into_iter().collect();
    let id = quic.ask(&h3::request("GET", "/app.log", &fields));
    quic.until("its end", |quic| {
        log.append();
        quic.is_over(id)
    });
    let answer = quic.answer(id);
    (
        answer.field("content-length").map(str::to_owned),
        answer.body,
    )
}

#[test]
fn a_log_is_downloaded_whole_while_it_is_written() {
    on_both_engines(|engine| {
        let site = Folder::new();
        let mut log = Log::new(&site);
        let clear = engine.serve(site.path(), &["--workers", "1"]);
        let secure = Secure::serve(engine, site.path(), &["--workers", "1"]);
        let window = [(INITIAL_WINDOW_SIZE, WINDOW)];
        for (range, begins_at) in [(None, 0), (Some("bytes=5000000-"), 5_000_000)] {
            let log = &mut log;
            let got = [
                ("1.1", download_h1(Client::slow(&clear), log, range)),
                ("1.1, TLS", download_h1(secure.connect(), log, range)),
                (
                    "2",
                    download_h2(Peer::with_settings(&clear, &window), log, range),
                ),
                (
                    "2, TLS",
                    download_h2(Peer::secure(&secure, &window), log, range),
                ),
                ("3", {
                    let quic = Quic::begin(secure.server.address(), &secure.authority);
                    download_h3(quic, log, range)
                }),
            ];
            for (protocol, (length, body)) in got {
                log.check(protocol, (length.as_deref(), &body), begins_at);
            }
        }
    });
}

/// What logrotate's `copytruncate` does, and an overwrite by something longer that leaves the end as it was.
#[test]
fn a_log_that_is_emptied_or_rewritten_is_never_downloaded_whole() {
    on_both_engines(|engine| {
        let site = Folder::new();
        let secure = Secure::serve(engine, site.path(), &["--workers", "1"]);
        let empty = |log: &Log| {
            let file = File::options().write(true).open(&log.path);
            file.and_then(|file| file.set_len(0)).expect("truncated");
            let rest: String = (0..2 * log.lines).map(line).collect();
            fs::write(&log.path, rest.replace('0', "o")).expect("written");
        };
        let rewrite = |log: &Log| {
            let mut now = fs::read(&log.path).expect("it is there");
            now[..100].fill(b'X');
            now.extend_from_slice(b"more\n");
            fs::write(&log.path, now).expect("written");
        };
        for change in [&empty as &dyn Fn(&Log), &rewrite] {
            let log = Log::new(&site);
            let mut client = secure.connect();
            client.send(head("GET", "/app.log", &[]));
            let length = client.head().content_length().expect("announced");
            client.take(100_000);
            change(&log);
            let (rest, end) = client.rest();
            assert!(end != End::Closed && 100_000 + (rest.len() as u64) < length);

            let log = Log::new(&site);
            let mut quic = Quic::begin(secure.server.address(), &secure.authority);
            let id = quic.ask(&h3::request("GET", "/app.log", &[]));
            quic.until("its beginning", |quic| !quic.received(id).bytes.is_empty());
            change(&log);
            quic.reset_with(id);
        }
    });
}

/// A file that was replaced is sent to its end, unless it is overwritten by a program that still has it open, even
/// if that restores its time.
#[test]
fn a_replaced_file_that_is_overwritten_is_never_downloaded_whole() {
    on_both_engines(|engine| {
        let site = Folder::new();
        let server = engine.serve(site.path(), &["--workers", "1"]);
        let log = Log::new(&site);
        let old = File::options().write(true).open(&log.path);
        let old = old.expect("it is there");
        let modified = old.metadata().and_then(|it| it.modified());
        let mut client = Client::slow(&server);
        client.send(head("GET", "/app.log", &[]));
        let length = client.head().content_length().expect("announced");
        client.take(100_000);
        site.write("new", "new");
        fs::rename(site.join("new"), &log.path).expect("replaced");
        // Until slices were read of what has no name any more.
        client.take(4 << 20);
        old.write_all_at(b"other", LONG as u64 - (1 << 20))
            .expect("overwritten");
        old.set_modified(modified.expect("a time"))
            .expect("restored");
        let (rest, end) = client.rest();
        let got = 100_000 + (4 << 20) + rest.len() as u64;
        assert!(end != End::Closed && got < length);
    });
}
