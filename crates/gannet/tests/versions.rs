//! A complete answer is one version of its file, whatever happens to the file, over every protocol.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use gannet_testkit::client::{Client, End, ask, get, head};
use gannet_testkit::content::{assert_pattern, pattern, unlike_pattern};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::{INITIAL_WINDOW_SIZE, Peer, WIDE, window_update};
use gannet_testkit::process::until;
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, Gannet, gannet_in};

/// Longer than socket buffers.
const LARGE: usize = 24 << 20;

/// Writes another version into the same file, as `cp` does.
fn copy_over(path: &Path, len: usize) {
    fs::write(path, pattern(len, 77)).expect("written");
}

/// Reads the rest of an HTTP/1 answer after the file was overwritten in the middle of it.
fn check_h1(mut client: Client, path: &Path, len: usize) {
    client.send(head("GET", "/large.bin", &[]));
    let announced = client.head().expect(200).content_length();
    assert_eq!(announced, Some(LARGE as u64));
    let mut got = client.take(100_000);
    copy_over(path, len);
    let (rest, end) = client.rest();
    got.extend(rest);
    assert_ne!(end, End::Closed, "it pretends to be whole");
    assert!(got.len() < LARGE, "{len}: {} bytes", got.len());
    assert_pattern(&got, 5);
}

/// The same over HTTP/2.
fn check_h2(mut peer: Peer, path: &Path, len: usize) {
    peer.opens_windows = false;
    let stream = peer.ask("GET", "/large.bin", &[]);
    while peer.so_far_len(stream) < 1_000 {
        peer.step();
    }
    copy_over(path, len);
    peer.send(&window_update(0, WIDE));
    peer.send(&window_update(stream, WIDE));
    let cut = peer.answer(stream);
    assert!(cut.reset.is_some() && !cut.is_ended, "{len}");
    assert_pattern(&cut.body, 5);
}

#[test]
fn an_overwritten_file_never_makes_a_whole_answer() {
    on_both_engines(|engine| {
        for len in [LARGE - 1, LARGE, LARGE + 1] {
            let site = Folder::new();
            let path = site.join("large.bin");
            let renew = || fs::write(&path, pattern(LARGE, 5)).expect("written");
            let clear = engine.serve(site.path(), &["--workers", "1"]);
            let secure = Secure::serve(engine, site.path(), &["--workers", "1"]);
            renew();
            check_h1(Client::slow(&clear), &path, len);
            renew();
            check_h1(secure.connect(), &path, len);
            let settings = [(INITIAL_WINDOW_SIZE, 1_000)];
            renew();
            check_h2(Peer::with_settings(&clear, &settings), &path, len);
            renew();
            check_h2(Peer::secure(&secure, &settings), &path, len);
        }
    });
}

const PACKED: usize = 9 << 20;

/// An archive whose bodies are derived from a seed.
fn pack(out: &Folder, seed: u8, more: &[&str]) -> PathBuf {
    let site = Folder::new();
    site.write("large.bin", pattern(PACKED, seed));
    site.write("middle.bin", pattern(300_000, seed));
    site.write("small.bin", pattern(20_000, seed));
    site.write("other.bin", pattern(21_000, seed));
    let path = out.join(format!("{seed}.gannet"));
    let path_text = path.to_str().expect("UTF-8");
    let arguments = ["pack", ".", "-q", "--compress", "none", "-o", path_text];
    let ended = gannet_in(&site, arguments.iter().chain(more));
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    path
}

const TARGETS: [(&str, usize); 3] = [
    ("/large.bin", PACKED),
    ("/middle.bin", 300_000),
    ("/small.bin", 20_000),
];

/// Sends requests until `is_over`, and checks that every answer is of the version that its tag names, or
/// an error: `tags` are those of the opened one. Counts the answers in `answered`; returns the number of
/// complete ones.
fn download(
    server: &Gannet,
    tags: &[String],
    is_over: &AtomicBool,
    answered: &AtomicUsize,
) -> usize {
    let mut whole = 0;
    while !is_over.load(Ordering::Relaxed) {
        for ((target, len), tag) in TARGETS.into_iter().zip(tags) {
            let mut client = Client::new(server);
            client.send(head("GET", target, &["connection: close"]));
            answered.fetch_add(1, Ordering::Relaxed);
            let response = match client.head_or_end() {
                Ok(response) => response,
                // The head was delayed to be sent with its content, which is gone.
                Err(end) => {
                    assert_eq!(end, End::Reset);
                    continue;
                }
            };
            if response.status != 200 {
                assert!(matches!(response.status, 500 | 503), "{}", response.status);
                continue;
            }
            let (body, end) = client.rest();
            let is_whole = body.len() == len && end == End::Closed;
            let seed = if response.tag() == tag { 5 } else { 77 };
            if let Some(wrong) = unlike_pattern(&body, seed).filter(|_| is_whole) {
                panic!("{target}: {wrong}");
            }
            whole += usize::from(is_whole);
        }
    }
    whole
}

/// An archive that is not copied into memory for lack of room, without room for bodies and with it.
#[test]
fn an_archive_that_is_overwritten_sends_nothing_of_the_other() {
    let packed = Folder::new();
    let old = pack(&packed, 5, &["--fast"]);
    let new = pack(&packed, 77, &["--fast"]);
    for room in [0, 16 << 20] {
        let len = fs::metadata(&old).expect("packed").len();
        assert!(len > room / 2, "it would be copied");
        let flags = ["--cache-memory", &room.to_string()];
        on_both_engines(|engine| {
            let out = Folder::new();
            let served = out.join("served.gannet");
            fs::copy(&old, &served).expect("copied");
            let mut server = engine.serve(&served, &flags);
            overwrite(&server, &served, &new);
            let line = server.next_error_line().expect("a message");
            assert!(line.contains("it was changed while it is served"), "{line}");
            let help = server.next_error_line().expect("and what to do");
            assert!(help.starts_with("help: "), "{help}");
            let err = server.stop().err;
            assert!(!err.contains("while it is served"), "once: {err}");
        });
    }
}

/// Writes another archive into the same file under load. Once that is whole, it may be served.
fn overwrite(server: &Gannet, served: &Path, new: &Path) {
    assert_pattern(&get(server, "/other.bin").expect(200).body, 5);
    let tag = |(target, _)| ask(server, "HEAD", target, &[]).tag().to_owned();
    let tags = TARGETS.map(tag);
    let (is_over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let whole: usize = thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| download(server, &tags, &is_over, &answered)))
            .collect();
        let count = || answered.load(Ordering::Relaxed);
        until("some are answered", || count() >= 24);
        fs::copy(new, served).expect("copied");
        let before = count();
        until("more are answered", || count() >= before + 48);
        is_over.store(true, Ordering::Relaxed);
        clients
            .into_iter()
            .map(|client| client.join().unwrap())
            .sum()
    });
    assert!(whole > 0, "nothing was answered before");
    let after = get(server, "/large.bin");
    if after.status != 503 {
        assert_pattern(&after.expect(200).body, 77);
    }
}

/// Changes of metadata only, and proper replacement, do not interrupt service.
#[test]
fn an_archive_outlives_changes_that_leave_its_bytes() {
    on_both_engines(|engine| {
        let out = Folder::new();
        let old = pack(&out, 5, &["--fast"]);
        let new = pack(&out, 77, &["--fast"]);
        let server = engine.serve(&old, &["--cache-memory", "0"]);
        let check = || {
            for target in ["/large.bin", "/middle.bin", "/small.bin", "/other.bin"] {
                assert_pattern(&get(&server, target).expect(200).body, 5);
            }
        };
        check();
        rustix::fs::chmod(&old, rustix::fs::Mode::from_raw_mode(0o600)).expect("ours");
        check();
        fs::rename(&new, &old).expect("renamed");
        // From some moment on, it is served.
        until("the other one is served", || {
            let body = get(&server, "/middle.bin").expect(200).body;
            let other = unlike_pattern(&body, 77);
            assert!(other.is_none() || unlike_pattern(&body, 5).is_none());
            other.is_none()
        });
    });
}

#[test]
fn a_required_signature_holds_for_every_byte() {
    on_both_engines(|engine| {
        let out = Folder::new();
        let ended = gannet_in(&out, ["keygen", "release"]);
        assert_eq!(ended.status, Some(0), "{}", ended.err);
        let (key, public) = (out.join("release.key"), out.join("release.pub"));
        let signed = ["--fast", "--sign", key.to_str().expect("UTF-8")];
        let (old, new) = (pack(&out, 5, &signed), pack(&out, 77, &["--fast"]));
        let public = public.to_str().expect("UTF-8");
        let flags = ["--require-signature", public, "--cache-memory", "0"];
        let server = engine.serve(&old, &flags);
        fs::copy(&new, &old).expect("copied");
        for target in ["/large.bin", "/middle.bin", "/small.bin", "/other.bin"] {
            assert_pattern(&get(&server, target).expect(200).body, 5);
        }
    });
}
