//! HTTP/2 from the client's side, in clear text with prior knowledge: answers, streams, windows,
//! and the end of a connection.

use gannet_testkit::client::{Client, get, metric};
use gannet_testkit::content::{assert_pattern, pattern};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::{
    CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, Peer, WIDE, frame,
    headers, opening, request, rst_stream, window_update,
};
use gannet_testkit::process::until;
use gannet_testkit::{Folder, Gannet, Signal, gannet_in};

const LARGE: usize = 6 << 20;

/// The most that one read of a file brings.
const LAST_SLICE: usize = 256 << 10;

fn site() -> Folder {
    let site = Folder::site();
    site.write("large.bin", pattern(LARGE, 5));
    site.write("middle.bin", pattern(100_000, 6));
    site.write("ten.bin", pattern(10_240, 7));
    site
}

#[test]
fn answers_are_those_of_http_1() {
    let site = site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--header", "x-extra: yes"]);
        let mut peer = Peer::new(&server);
        for path in [
            "/",
            "/about",
            "/assets/app.css",
            "/assets/empty.txt",
            "/ten.bin",
        ] {
            let one = get(&server, path).expect(200);
            let two = peer.get(path).expect(200);
            assert_eq!(two.body, one.body, "{path}");
            let fields = one.fields.into_iter();
            let mut fields: Vec<_> = fields
                .filter(|(name, _)| name != "connection" && name != "date")
                .collect();
            let mut others = two.fields.clone();
            others.retain(|(name, _)| name != "date");
            fields.sort();
            others.sort();
            assert_eq!(others, fields, "{path}");
            let head = peer.request("HEAD", path, &[]).expect(200);
            assert_eq!(head.body, b"");
            assert_eq!(head.field("content-length"), two.field("content-length"));
            let tag = two.field("etag").expect("a tag").to_owned();
            let same = peer
                .request("GET", path, &[("if-none-match", &tag)])
                .expect(304);
            assert_eq!((same.field("etag"), same.body.len()), (Some(&*tag), 0));
            assert_eq!(same.field("content-length"), None);
            peer.request("GET", path, &[("if-match", "\"no\"")])
                .expect(412);
        }
        assert_eq!(
            peer.get("/docs").expect(301).field("location"),
            Some("/docs/")
        );
        let missing = peer.get("/no/such").expect(404);
        assert!(
            missing
                .body
                .starts_with(b"<!doctype html><title>nothing here")
        );
        let refused = peer.request("POST", "/", &[]).expect(405);
        assert_eq!(refused.field("allow"), Some("GET, HEAD, OPTIONS"));
        peer.request("OPTIONS", "*", &[]).expect(204);
        peer.request("OPTIONS", "/", &[]).expect(204);
        peer.get("/%zz").expect(400);
        peer.get(&format!("/{}", "a".repeat(9_000))).expect(404);
        let long = "x".repeat(30_000);
        let stream = peer.open();
        let block = request("GET", "/", &[("x-long", &long)]);
        let (first, rest) = block.split_at(16_000);
        peer.send(&frame(HEADERS, END_STREAM, stream, first));
        peer.send(&frame(9, END_HEADERS, stream, rest));
        peer.answer(stream).expect(431);

        // Content of a request is read and dropped.
        let stream = peer.open();
        let block = request("POST", "/", &[]);
        peer.send(&frame(HEADERS, END_HEADERS, stream, &block));
        peer.send(&frame(DATA, 0, stream, &[b'x'; 10_000]));
        peer.send(&frame(DATA, END_STREAM, stream, &[b'x'; 10_000]));
        peer.answer(stream).expect(405);
        peer.get("/about").expect(200);
    });
}

#[test]
fn ranges_of_every_source() {
    let site = site();
    // Short enough to be packed quickly.
    let len = 600_000;
    site.write("large.bin", pattern(len, 5));
    let packed = Folder::new();
    let archive = packed.join("site.gannet");
    let archive_name = archive.to_str().expect("ASCII");
    gannet_in(&site, ["pack", "-q", "--fast", ".", "-o", archive_name]).success();
    on_both_engines(|engine| {
        let mapped = ["--cache-memory", "0"];
        for (content, flags) in [(site.path(), &[][..]), (&archive, &[]), (&archive, &mapped)] {
            let server = engine.serve(content, flags);
            let mut peer = Peer::new(&server);
            for (path, len, seed) in [
                ("/ten.bin", 10_240, 7),
                ("/middle.bin", 100_000, 6),
                ("/large.bin", len, 5),
            ] {
                let whole = pattern(len, seed);
                assert_eq!(peer.get(path).expect(200).body, whole);
                let part = peer
                    .request("GET", path, &[("range", "bytes=5000-9999")])
                    .expect(206);
                assert_eq!(part.body, &whole[5000..10_000]);
                let expect = format!("bytes 5000-9999/{len}");
                assert_eq!(part.field("content-range"), Some(&*expect));
                let last = peer
                    .request("GET", path, &[("range", "bytes=-1000")])
                    .expect(206);
                assert_eq!(last.body, &whole[len - 1000..]);
                let many = [("range", "bytes=0-9,200-2999,9000-9009")];
                let many = peer.request("GET", path, &many).expect(206);
                let holds = |part: &[u8]| many.body.windows(part.len()).any(|w| w == part);
                assert!(holds(&whole[..10]) && holds(&whole[200..3000]));
                let length = many.field("content-length").expect("known");
                assert_eq!(length, many.body.len().to_string());
                let beyond = [("range", "bytes=99999999-")];
                let beyond = peer.request("GET", path, &beyond).expect(416);
                let expect = format!("bytes */{len}");
                assert_eq!(beyond.field("content-range"), Some(&*expect));
            }
        }
    });
}

#[test]
fn a_hundred_streams_at_once_and_a_preface_in_pieces() {
    let site = site();
    on_both_engines(|engine| {
        let flags = ["--workers", "1", "--metrics", "127.0.0.1:0"];
        let server = engine.serve(site.path(), &flags);
        let mut peer = Peer::new(&server);
        for round in 0..3 {
            let mut all = Vec::new();
            let mut asked = Vec::new();
            for number in 0..100 {
                let path = ["/about", "/ten.bin", "/missing", "/middle.bin"][number % 4];
                let stream = peer.open();
                asked.push((stream, number));
                let block = request("GET", path, &[]);
                all.extend(headers(stream, &block));
            }
            // The first round in one piece, the others split anywhere.
            let cut = [all.len(), 7, 1_000][round];
            for piece in all.chunks(cut) {
                peer.send(piece);
            }
            for (stream, number) in asked {
                let answer = peer.answer(stream);
                match number % 4 {
                    0 => assert_eq!(answer.expect(200).body.len(), 36),
                    1 => assert_pattern(&answer.expect(200).body, 7),
                    2 => drop(answer.expect(404)),
                    _ => assert_eq!(answer.expect(200).body, pattern(100_000, 6)),
                }
            }
        }
        assert_eq!(metric(&server, "gannet_h2_requests_total"), 300);

        // The first bytes select the protocol, however few arrive at a time.
        let mut client = Client::new(&server);
        for byte in opening(&[]) {
            client.send([byte]);
        }
        until("the server's settings", || {
            client.fill();
            client.received().len() >= 9
        });
        assert_eq!(client.received()[3], 4);
        // Input that only begins like the preface is HTTP/1.
        let mut client = Client::new(&server);
        client.send("PRI");
        client.send(" / HTTP/1.1\r\nhost: test\r\n\r\n");
        assert_eq!(client.response().status, 405);
    });
}

#[test]
fn a_stalled_stream_holds_up_nobody() {
    let site = site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--workers", "1"]);
        let mut peer = Peer::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 1_000)]);
        peer.opens_windows = false;
        let slow: Vec<u32> = (0..20)
            .map(|_| peer.ask("GET", "/large.bin", &[]))
            .collect();
        peer.sync();
        for stream in &slow {
            while peer.so_far(*stream).body.len() < 1_000 {
                assert!(peer.step());
            }
        }
        for _ in 0..10 {
            assert_eq!(peer.get("/about").expect(200).body.len(), 36);
        }
        // Now these make progress, too, one after another and a few bytes at a time.
        peer.send(&window_update(0, WIDE));
        for (index, stream) in (1..).zip(&slow) {
            peer.send(&window_update(*stream, index));
        }
        peer.sync();
        for (index, stream) in (1..).zip(&slow) {
            while peer.so_far(*stream).body.len() < 1_000 + index {
                assert!(peer.step());
            }
            assert_pattern(&peer.so_far(*stream).body, 5);
        }
        // One stream is cancelled, the other received completely.
        peer.send(&rst_stream(slow[0], CANCEL));
        peer.send(&window_update(slow[1], WIDE));
        let whole = peer.answer(slow[1]).expect(200).body;
        assert_eq!(whole.len(), LARGE);
        assert_pattern(&whole, 5);
    });
}

/// A slow reader has requested more than buffers hold: a later and more urgent request is answered
/// before the rest.
#[test]
fn an_urgent_stream_overtakes_a_big_one() {
    let site = site();
    let big = 48 << 20;
    site.write("big.bin", pattern(big, 3));
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--workers", "1"]);
        let mut peer = Peer::slow(&server, &[(INITIAL_WINDOW_SIZE, 1 << 30)]);
        peer.opens_windows = false;
        peer.send(&window_update(0, WIDE));
        let slow = peer.ask("GET", "/big.bin", &[("priority", "u=5")]);
        while peer.so_far(slow).status == 0 {
            assert!(peer.step());
        }
        let urgent = peer.ask("GET", "/middle.bin", &[("priority", "u=0")]);
        let answer = peer.answer(urgent).expect(200);
        assert_eq!(answer.body, pattern(100_000, 6));
        let before = peer.so_far(slow);
        assert!(!before.is_ended, "it came after all of the other");
        assert!(before.body.len() < big / 2, "{} bytes", before.body.len());
        assert_pattern(&before.body, 3);
    });
}

/// Of one urgency, what was asked for first comes first; incremental answers come side by side, behind
/// the others.
#[test]
fn incremental_streams_share() {
    let site = site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--workers", "1"]);
        let mut peer = Peer::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 1 << 30)]);
        peer.opens_windows = false;
        // The connection's window, 65,535 bytes, is what can be sent of all of them.
        let [first, second, third] = ["u=2, i", "u=2, i", "u=2"]
            .map(|priority| peer.ask("GET", "/large.bin", &[("priority", priority)]));
        for stream in [first, second, third] {
            while peer.so_far(stream).status == 0 {
                assert!(peer.step());
            }
        }
        let mut more = |all: usize| {
            peer.send(&window_update(0, LARGE as u32));
            let come = |peer: &Peer| [first, second, third].map(|it| peer.so_far_len(it));
            while come(&peer).iter().sum::<usize>() < all {
                assert!(peer.step());
            }
            come(&peer)
        };
        let [one, two, rest] = more(65_535 + LARGE);
        assert_eq!(one + two + rest, 65_535 + LARGE);
        // The file was written just now: what was sent of it is read again before its last slice, and the
        // others go on meanwhile.
        assert!(one + two <= 65_535 + LAST_SLICE, "{one} {two}");
        let [one, two, _] = more(65_535 + 2 * LARGE);
        assert!(one.abs_diff(two) <= 65_535 + 16_384, "{one} {two}");
    });
}

/// Data unsent in a socket cannot be overtaken: it stays small, even if buffers grew while the peer
/// was fast.
#[test]
fn little_waits_in_the_socket_of_a_peer_that_stops_reading() {
    let site = site();
    site.write("big.bin", pattern(48 << 20, 3));
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--workers", "1"]);
        let mut peer = Peer::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 1 << 30)]);
        peer.opens_windows = false;
        peer.send(&window_update(0, WIDE));
        let stream = peer.ask("GET", "/big.bin", &[]);
        while peer.so_far_len(stream) < 8 << 20 {
            assert!(peer.step());
        }
        let (mut waiting, mut looks) = (0, 0);
        until("the socket holds what it may", || {
            waiting = unacknowledged(&server);
            looks += u32::from(waiting > 64 << 10);
            looks > 50
        });
        // The limit, one write beyond it, and the part not yet read by the peer's kernel.
        assert!(waiting <= 512 << 10, "{waiting} bytes");
        assert_eq!(peer.answer(stream).expect(200).body.len(), 48 << 20);
    });
}

/// Bytes in the send queue of the server's only connection. A peer that stops reading has
/// acknowledged all bytes sent once its own buffer is full.
fn unacknowledged(server: &Gannet) -> u64 {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("there");
    let port = server.address().port();
    let of_server = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        let local = words
            .next()
            .is_some_and(|local| local.ends_with(&format!(":{port:04X}")));
        local && words.nth(1) == Some("01")
    };
    let line = table.lines().find(of_server).expect("it is connected");
    let queues = line.split_whitespace().nth(4).expect("a column");
    u64::from_str_radix(&queues[..8], 16).expect("hexadecimal")
}

#[test]
fn a_stop_says_goodaway_and_finishes_what_was_asked() {
    let site = site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--workers", "1"]);
        let mut idle = Peer::new(&server);
        idle.get("/about").expect(200);
        let mut peer = Peer::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 1_000)]);
        peer.opens_windows = false;
        let stream = peer.ask("GET", "/large.bin", &[]);
        peer.sync();
        server.signal(Signal::TERM);
        assert_eq!(idle.ends(), Some(0));
        while peer.goaway.is_none() {
            assert!(peer.step());
        }
        peer.send(&window_update(0, WIDE));
        peer.send(&window_update(stream, WIDE));
        let body = peer.answer(stream).expect(200).body;
        assert_eq!(body.len(), LARGE);
        assert_pattern(&body, 5);
        assert_eq!(peer.ends(), Some(0));
        assert_eq!(peer.goaway, Some((stream, 0)));
        let ended = server.wait();
        assert_eq!((ended.status, ended.err.as_str()), (Some(0), ""));
    });
}

#[test]
fn a_file_that_shrinks_ends_its_stream_alone() {
    let site = site();
    on_both_engines(|engine| {
        let name = format!("shrinks-{}.bin", engine.name());
        let path = site.write(&name, pattern(LARGE, 9));
        let server = engine.serve(site.path(), &["--workers", "1"]);
        let mut peer = Peer::with_settings(&server, &[(INITIAL_WINDOW_SIZE, 1_000)]);
        peer.opens_windows = false;
        let stream = peer.ask("GET", &format!("/{name}"), &[]);
        peer.sync();
        let file = std::fs::OpenOptions::new().write(true).open(&path);
        file.and_then(|file| file.set_len(500_000))
            .expect("shortened");
        peer.send(&window_update(0, WIDE));
        peer.send(&window_update(stream, WIDE));
        let cut = peer.answer(stream);
        assert!(cut.reset.is_some() && !cut.is_ended);
        assert_pattern(&cut.body, 9);
        assert_eq!(peer.get("/about").expect(200).body.len(), 36);
    });
}
