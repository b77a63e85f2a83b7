//! Floods and bombs: each ends with ENHANCE_YOUR_CALM after bounded work in bounded memory.
//!
//! An attacker sends until the connection is closed. In comparison, a polite client does the same
//! kind of thing at its own pace and is never cut off.

use std::ops::ControlFlow;

use gannet_http::binary::limits::FIELD_BLOCK_MAX;
use gannet_http::h2::hpack::encoder::write_field;
use gannet_http::h2::limits::{CONTROL_MAX, MEMORY_MAX, STREAMS_MAX};
use gannet_http::h2::{ErrorCode, Why};

use super::h2_checks::peer::Peer;
use super::h2_checks::wire::{self, END_HEADERS, END_STREAM, frame, request};

/// A client that sends anything. The server's output is read after each step.
struct Attacker {
    peer: Peer,
}

impl Attacker {
    fn new(settings: &[(u16, u32)]) -> Self {
        let mut peer = Peer::new();
        peer.is_recording = false;
        peer.feed(&wire::opening(settings));
        peer.poll();
        Self { peer }
    }

    /// Sends; breaks when the connection has ended.
    fn send(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.peer.feed(bytes);
        self.peer.poll();
        let memory = self.peer.connection.memory();
        assert!(memory <= MEMORY_MAX, "bounded: {memory}");
        match self.peer.connection.error() {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    }

    /// Sends the result of `step` for each number until the connection has ended; at most
    /// `steps_max` times.
    fn flood(&mut self, steps_max: u32, mut step: impl FnMut(u32) -> Vec<u8>) {
        for index in 0..steps_max {
            if self.send(&step(index)).is_break() {
                let error = self.peer.connection.error().expect("it is over");
                assert_eq!(error.code, ErrorCode::ENHANCE_YOUR_CALM, "{:?}", error.why);
                assert!(self.peer.connection.is_closing());
                assert_eq!(self.peer.connection.stream_count(), 0);
                return;
            }
        }
        panic!("not stopped after {steps_max} steps");
    }

    /// Does the same politely: one step every `ms`, and is never cut off.
    fn is_polite(&mut self, steps: u32, ms: u64, mut step: impl FnMut(u32) -> Vec<u8>) {
        for index in 0..steps {
            self.peer.now = self.peer.now.plus_ms(ms);
            let flow = self.send(&step(index));
            assert!(
                flow.is_continue(),
                "cut off: {:?}",
                self.peer.connection.error()
            );
        }
    }
}

fn stream(index: u32) -> u32 {
    2 * index + 1
}

fn reset(stream: u32) -> Vec<u8> {
    wire::rst_stream(stream, 8)
}

#[test]
fn rapid_reset() {
    // The content does not fit the window, so the response is still under way.
    let step = |index| [request(stream(index), "/100000"), reset(stream(index))].concat();
    let no_windows = [(4, 0)];
    Attacker::new(&no_windows).flood(600, step);
    Attacker::new(&no_windows).is_polite(5_000, 500, step);
}

#[test]
fn resets_that_we_are_made_to_send() {
    // Each of these is a stream error by the client.
    let flaws: [fn(u32) -> Vec<u8>; 4] = [
        |stream| wire::window_update(stream, 0),
        |stream| wire::window_update(stream, 0x7fff_ffff),
        |stream| frame(wire::DATA, 0, stream, &[0; 10]),
        |stream| {
            frame(
                wire::PRIORITY,
                0,
                stream,
                &[&stream.to_be_bytes()[..], &[1]].concat(),
            )
        },
    ];
    for flaw in flaws {
        let step = |index| {
            let stream = stream(index);
            [request(stream, "/100000"), flaw(stream)].concat()
        };
        Attacker::new(&[(4, 1)]).flood(600, step);
        Attacker::new(&[(4, 1)]).is_polite(1_000, 1_000, step);
    }
}

#[test]
fn malformed_requests() {
    let block = wire::block(&[(":method", "GET"), ("connection", "close")]);
    let step = |index| wire::headers(stream(index), &block);
    Attacker::new(&[]).flood(600, step);
    Attacker::new(&[]).is_polite(1_000, 1_000, step);
}

#[test]
fn more_streams_than_allowed() {
    let mut attacker = Attacker::new(&[(4, 0)]);
    for index in 0..STREAMS_MAX {
        assert!(attacker.send(&request(stream(index), "/9")).is_continue());
    }
    assert_eq!(attacker.peer.connection.stream_count(), STREAMS_MAX);
    attacker.flood(600, |index| request(stream(STREAMS_MAX + index), "/9"));
}

#[test]
fn continuations_without_end() {
    for fragment in [&b""[..], &[0x82], &[0; 1024], &[0; 16_384]] {
        let mut attacker = Attacker::new(&[]);
        let begin = frame(wire::HEADERS, END_STREAM, 1, &wire::get("/"));
        assert!(attacker.send(&begin).is_continue());
        attacker.flood(9, |_| frame(wire::CONTINUATION, 0, 1, fragment));
    }
}

#[test]
fn many_blocks_in_many_pieces() {
    let block = wire::get("/9");
    let step = |index| {
        let mut bytes = frame(wire::HEADERS, END_STREAM, stream(index), &block);
        for _ in 0..7 {
            bytes.extend(frame(wire::CONTINUATION, 0, stream(index), &[]));
        }
        bytes.extend(frame(wire::CONTINUATION, END_HEADERS, stream(index), &[]));
        bytes
    };
    Attacker::new(&[]).flood(40, step);
}

#[test]
fn pings() {
    let step = |_| frame(wire::PING, 0, 0, b"question");
    Attacker::new(&[]).flood(2_001, step);
    Attacker::new(&[]).is_polite(10_000, 200, step);
    let answers = |_| frame(wire::PING, wire::ACK, 0, b"answer!!");
    Attacker::new(&[]).flood(2_001, answers);
}

#[test]
fn settings() {
    let step = |index| wire::settings_frame(&[(4, index)]);
    Attacker::new(&[]).flood(1_001, step);
    let answers = |_| frame(wire::SETTINGS, wire::ACK, 0, &[]);
    Attacker::new(&[]).flood(1_001, answers);
    Attacker::new(&[]).flood(1_001, |_| frame(wire::SETTINGS, 0, 0, &[]));
    let many = wire::settings_frame(&[(2, 0); 2_730]);
    Attacker::new(&[]).flood(5, |_| many.clone());
    Attacker::new(&[]).is_polite(1_000, 1_000, step);
}

#[test]
fn window_updates() {
    let step = |index: u32| wire::window_update(0, 1 + index % 2);
    Attacker::new(&[]).flood(10_001, step);
    Attacker::new(&[]).is_polite(20_000, 50, step);
}

#[test]
fn priorities() {
    let on_none = [0, 0, 0, 0, 1];
    Attacker::new(&[]).flood(10_001, |index| {
        frame(wire::PRIORITY, 0, stream(index), &on_none)
    });
    Attacker::new(&[]).flood(5_001, |index| {
        let update = [&stream(index).to_be_bytes()[..], b"u=1"].concat();
        frame(wire::PRIORITY_UPDATE, 0, 0, &update)
    });
}

#[test]
fn empty_data() {
    let mut attacker = Attacker::new(&[]);
    let begin = frame(wire::HEADERS, END_HEADERS, 1, &wire::get("/hold/1"));
    assert!(attacker.send(&begin).is_continue());
    attacker.flood(2_001, |_| frame(wire::DATA, 0, 1, &[]));
    // A frame with nothing but padding counts as empty.
    let mut attacker = Attacker::new(&[]);
    assert!(attacker.send(&begin).is_continue());
    attacker.flood(2_001, |_| frame(wire::DATA, 8, 1, &[3, 0, 0, 0]));
}

#[test]
fn small_data() {
    let mut attacker = Attacker::new(&[]);
    let begin = |index| {
        frame(
            wire::HEADERS,
            END_HEADERS,
            stream(index),
            &wire::get("/hold/1"),
        )
    };
    attacker.flood(10_100, |index| {
        let bytes = frame(wire::DATA, 0, stream(index / 1000), &[0]);
        if index % 1000 == 0 {
            return [begin(index / 1000), bytes].concat();
        }
        bytes
    });
}

#[test]
fn unknown_frames_and_frames_for_closed_streams() {
    Attacker::new(&[]).flood(5_001, |_| frame(0xfe, 0xff, 1, b"?"));
    let mut attacker = Attacker::new(&[]);
    assert!(attacker.send(&request(1, "/9")).is_continue());
    attacker.flood(10_100, |_| reset(1));
}

#[test]
fn one_byte_windows() {
    let mut attacker = Attacker::new(&[(4, 0)]);
    assert!(attacker.send(&request(1, "/1000000")).is_continue());
    attacker.flood(4_000, |_| wire::window_update(1, 1));
    // The same with settings, for many streams at once.
    let mut attacker = Attacker::new(&[(4, 0)]);
    for index in 0..STREAMS_MAX {
        assert!(
            attacker
                .send(&request(stream(index), "/1000000"))
                .is_continue()
        );
    }
    attacker.flood(100, |index| wire::settings_frame(&[(4, index + 1)]));
}

#[test]
fn windows_that_never_open() {
    let mut attacker = Attacker::new(&[(4, 0)]);
    for index in 0..STREAMS_MAX {
        assert!(
            attacker
                .send(&request(stream(index), "/1000000"))
                .is_continue()
        );
    }
    attacker.peer.wait_ms(59_999);
    assert_eq!(attacker.peer.connection.stream_count(), STREAMS_MAX);
    attacker.peer.wait_ms(1);
    assert_eq!(
        attacker.peer.connection.stream_count(),
        0,
        "all of them were reset"
    );
    attacker.peer.poll();
    attacker.peer.wait_ms(75_000);
    let error = attacker
        .peer
        .connection
        .error()
        .expect("the connection ended in an error");
    assert_eq!((error.code, error.why), (ErrorCode::NO_ERROR, Why::Idle));
}

/// One byte of window now and then, for each stream: cheap for the budget, but no progress.
#[test]
fn windows_that_trickle() {
    let mut attacker = Attacker::new(&[(4, 0)]);
    for index in 0..STREAMS_MAX {
        let bytes = request(stream(index), "/1000000");
        assert!(attacker.send(&bytes).is_continue());
    }
    for _ in 0..6 {
        attacker.peer.wait_ms(10_000);
        for index in 0..STREAMS_MAX {
            let update = wire::window_update(stream(index), 1);
            assert!(attacker.send(&update).is_continue());
        }
    }
    attacker.peer.wait_ms(1_000);
    assert_eq!(attacker.peer.connection.stream_count(), 0, "all were reset");
    assert_eq!(attacker.peer.connection.error(), None);
}

/// The same with the connection's window, for which all streams wait. New ones gain no time.
#[test]
fn a_connection_window_that_trickles() {
    let mut attacker = Attacker::new(&[(4, 1 << 30)]);
    let mut opened = 0;
    for _ in 0..100 {
        assert!(
            attacker
                .send(&request(stream(opened), "/1000000"))
                .is_continue()
        );
        opened += 1;
    }
    for second in 1..=180 {
        attacker.peer.wait_ms(1_000);
        assert!(attacker.send(&wire::window_update(0, 1)).is_continue());
        if second % 50 == 0 {
            assert!(
                attacker
                    .send(&request(stream(opened), "/1000000"))
                    .is_continue()
            );
            opened += 1;
        }
    }
    // The first window was used up before the trickle; the last request has had 30 seconds.
    let left = attacker.peer.connection.stream_count();
    assert!(left <= 2, "{left} of {opened} are left");
}

/// A peer that is slow but above the minimum rate stays: with windows of one stream, or of the
/// connection, while others wait.
#[test]
fn slow_peers_above_the_least_rate_stay() {
    let mut slow = Attacker::new(&[(4, 0)]);
    assert!(slow.send(&request(stream(0), "/1000000")).is_continue());
    for _ in 0..300 {
        slow.peer.wait_ms(1_000);
        let update = [0, stream(0)].map(|id| wire::window_update(id, 600));
        let update = update.concat();
        assert!(slow.send(&update).is_continue());
        assert_eq!(slow.peer.connection.stream_count(), 1);
    }
    let mut slow = Attacker::new(&[(4, 1 << 30)]);
    for index in 0..10 {
        assert!(slow.send(&request(stream(index), "/1000000")).is_continue());
    }
    for _ in 0..300 {
        slow.peer.wait_ms(1_000);
        assert!(slow.send(&wire::window_update(0, 600)).is_continue());
        assert_eq!(slow.peer.connection.stream_count(), 10);
    }
}

/// Request content that trickles keeps its stream no longer than none at all.
#[test]
fn request_content_that_trickles() {
    let mut attacker = Attacker::new(&[]);
    let open = frame(wire::HEADERS, END_HEADERS, 1, &wire::get("/9"));
    assert!(attacker.send(&open).is_continue());
    for second in 1..=61 {
        assert_eq!(attacker.peer.connection.stream_count(), 1, "at {second} s");
        attacker.peer.wait_ms(1_000);
        if attacker.peer.connection.stream_count() == 1 {
            assert!(attacker.send(&frame(wire::DATA, 0, 1, b"x")).is_continue());
        }
    }
    attacker.peer.wait_ms(1_000);
    assert_eq!(attacker.peer.connection.stream_count(), 0);
    assert_eq!(attacker.peer.connection.error(), None);
}

#[test]
fn requests_that_never_end() {
    let mut attacker = Attacker::new(&[]);
    for index in 0..STREAMS_MAX {
        let bytes = frame(wire::HEADERS, END_HEADERS, stream(index), &wire::get("/9"));
        assert!(attacker.send(&bytes).is_continue());
    }
    assert_eq!(attacker.peer.connection.stream_count(), STREAMS_MAX);
    attacker.peer.wait_ms(60_000);
    assert_eq!(attacker.peer.connection.stream_count(), 0);
    assert_eq!(attacker.peer.connection.error(), None);
}

#[test]
fn heads_that_never_end() {
    for bytes in [
        b"PRI * HT".to_vec(),
        wire::PREFACE.to_vec(),
        [wire::opening(&[]), vec![0, 0, 9]].concat(),
        [
            wire::opening(&[]),
            frame(wire::HEADERS, 0, 1, &wire::get("/")),
        ]
        .concat(),
    ] {
        let mut peer = Peer::new();
        peer.feed(&bytes);
        // A byte now and then is not progress.
        for byte in [0, 0, 9] {
            peer.wait_ms(5_000);
            if bytes.ends_with(&[0, 0, 9]) {
                peer.feed(&[byte]);
            }
        }
        peer.wait_ms(0);
        assert_eq!(
            peer.connection.error().map(|error| error.why),
            Some(Why::Stalled)
        );
    }
}

#[test]
fn hpack_bombs() {
    // A large entry, and references to it: 4 KB stand for 16 MB.
    let mut entry = vec![0x40, 1, b'x'];
    entry.extend([0x7f, 0xa1, 0x1e]);
    entry.extend([b'v'; 4000]);
    let first = [wire::get("/"), entry].concat();
    let bomb = [wire::get("/"), vec![0xbe; 4_000]].concat();
    let mut attacker = Attacker::new(&[]);
    let send = |index, block: &[u8]| wire::headers(stream(index), block);
    assert!(attacker.send(&send(0, &first)).is_continue());
    attacker.flood(1, |_| send(1, &bomb));
    let error = attacker.peer.connection.error().expect("it is over");
    assert_eq!(error.why, Why::FieldBlockTooLong);
}

#[test]
fn sections_that_are_too_large_again_and_again() {
    let mut block = wire::get("/");
    write_field("x", &[b'~'; 4_000], &mut block);
    for _ in 0..6 {
        let field = block[block.len() - 4_000..].to_vec();
        write_field("x", &field, &mut block);
    }
    assert!(block.len() < FIELD_BLOCK_MAX);
    let step = |index| {
        let (first, rest) = block.split_at(16_000);
        [
            frame(wire::HEADERS, END_STREAM, stream(index), first),
            frame(wire::CONTINUATION, END_HEADERS, stream(index), rest),
        ]
        .concat()
    };
    let mut attacker = Attacker::new(&[(4, 0)]);
    attacker.flood(1_100, step);
    Attacker::new(&[]).is_polite(200, 1_000, step);
}

#[test]
fn a_peer_that_never_reads() {
    let mut attacker = Attacker::new(&[]);
    let ping = frame(wire::PING, 0, 0, b"question");
    let mut count = 0;
    while attacker.peer.connection.wants_input() && count < 1_000 {
        attacker.peer.feed(&ping);
        count += 1;
    }
    assert!(!attacker.peer.connection.wants_input(), "it stops reading");
    assert_eq!(count, CONTROL_MAX.div_ceil(ping.len()));
    assert!(attacker.peer.connection.memory() <= MEMORY_MAX);
}
