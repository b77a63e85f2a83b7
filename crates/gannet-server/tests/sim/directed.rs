//! Directed scenarios: situations that random runs rarely reach, with exact expectations.

use gannet_io::driver::{Listener, Receipt};
use gannet_io::sim::{Client, End, Faults, SimHandle};
use gannet_server::config::Limits;
use gannet_server::tls::limits::{ENCRYPTED_RECORDS_MAX, SMALL_RECORD_LEN, SMALL_RECORDS};
use gannet_testkit::h2::{
    DATA, INITIAL_WINDOW_SIZE, INTERNAL_ERROR, RST_STREAM, frames, headers, opening, request,
    window_update,
};

use crate::run::{LIMITS, Tls};
use crate::server::{LARGE, LATE_MS, RECEIPTS, Server, check_about, get};
use crate::wire::Wire;

const MS: u64 = 1_000_000;

/// Larger than one read of a file.
const HUGE: usize = 1 << 20;

/// A server, and a client that has begun to download a huge file: as much of it waits to be read as fits.
fn downloading(receipt: Receipt) -> (Server, Client) {
    let mut server = Server::new(Faults::none());
    server.disk.set_receipt(receipt);
    server.disk.put_file("huge", vec![b'L'; HUGE]);
    server.disk.age_files(100_000);
    let client = server.connect();
    client.write(&get("huge"));
    server.until("the queue is full", || client.readable() >= 64 << 10);
    (server, client)
}

/// However a long file that had not changed for a minute changes in place while a slow reader downloads it: the writer does not wait,
/// and the reader gets a reset; in a container, after bytes of the announced version only.
#[test]
fn a_change_in_place_ends_a_download_short() {
    let changes: [&dyn Fn(&SimHandle); 5] = [
        &|disk| disk.truncate_file("huge", 10),
        &|disk| disk.truncate_file("huge", 1 + HUGE as u64),
        &|disk| disk.overwrite_file("huge", vec![b'X'; HUGE - 1]),
        &|disk| disk.overwrite_file("huge", vec![b'X'; HUGE]),
        &|disk| disk.overwrite_file("huge", vec![b'X'; HUGE + 1]),
    ];
    for (change, receipt) in changes.iter().flat_map(|it| RECEIPTS.map(|at| (it, at))) {
        let (mut server, client) = downloading(receipt);
        change(&server.disk);
        let mut got = Vec::new();
        server.until("the download ends", || {
            got.extend(client.read_at_most(10_000));
            client.end() != End::Open
        });
        assert_eq!(client.end(), End::Reset);
        assert!(got.len() < HUGE);
        let body = got.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let is_copied = receipt == Receipt::Unknown;
        assert!(!is_copied || got[body..].iter().all(|byte| *byte == b'L'));
        // A new request gets the new version.
        let other = server.connect();
        other.write(&get("huge"));
        let len = server.disk.file_len("huge").unwrap();
        let line = format!("Content-Length: {len}\r\n");
        server.until("an answer", || {
            String::from_utf8_lossy(&other.read()).contains(&line)
        });
    }
}

/// A long file that is deleted or replaced by rename during a download is still downloaded
/// completely.
#[test]
fn a_change_of_names_ends_no_download() {
    let changes: [&dyn Fn(&SimHandle); 2] = [&|disk| disk.remove_file("huge"), &|disk| {
        disk.put_file("huge", vec![b'X'; HUGE])
    }];
    for (change, receipt) in changes.iter().flat_map(|it| RECEIPTS.map(|at| (it, at))) {
        let (mut server, client) = downloading(receipt);
        change(&server.disk);
        let mut got = Vec::new();
        server.until("all of it", || {
            got.extend(client.read_at_most(10_000));
            got.len() > HUGE
        });
        assert!(got.ends_with(&[b'L'; HUGE]));
        assert_eq!(client.end(), End::Open);
    }
}

/// Pages of a file that nobody can change are sent wherever the client is, however young the file is, and nothing
/// waits for it: they are the file's until the client reads them, as the impossible change shows.
#[test]
fn a_file_that_cannot_change_is_sent_as_its_pages() {
    for age_ms in [0, 10_000, 100_000] {
        let mut server = Server::new(Faults::none());
        server.disk.set_receipt(Receipt::Unknown);
        server.disk.put_file("huge", vec![b'L'; HUGE]);
        server.disk.fix_file("huge");
        server.disk.age_files(age_ms);
        let client = server.connect();
        client.write(&get("huge"));
        server.until("the queue is full", || client.readable() >= 64 << 10);
        server.disk.overwrite_file("huge", vec![b'X'; HUGE]);
        let mut got = Vec::new();
        server.until("all of it", || {
            got.extend(client.read_at_most(10_000));
            got.len() > HUGE
        });
        assert!(got.ends_with(&[b'X'; HUGE / 2]) && client.end() == End::Open);
    }
}

/// A client that resets during a disk read for its response is dropped at once.
#[test]
fn a_reset_is_noticed_while_content_is_read() {
    let mut server = Server::new(Faults::none());
    server.disk.set_receipt(Receipt::Unknown);
    server.body("large", LARGE);
    server.disk.slow_file("large", 600_000 * MS);
    let client = server.connect();
    client.write(&get("large"));
    server.pass(50);
    assert_eq!(client.readable(), 0, "the first slice is pending");
    client.reset();
    let took = server.until("it is let go", || client.is_closed_by_server());
    assert!(took <= 10, "{took} ms");
}

/// Peers that close while a hung disk delays them make room for others.
#[test]
fn who_has_closed_while_the_disk_hangs_makes_room() {
    const MOST: u32 = 8;
    let limits = Limits {
        connections_max: MOST,
        ..LIMITS
    };
    let (mut server, _) =
        Server::with_tls(Faults::none(), limits, Tls::None, ENCRYPTED_RECORDS_MAX);
    server.disk.slow_file("large", 600_000 * MS);
    let gone: Vec<_> = (0..MOST).map(|_| server.connect()).collect();
    for client in &gone {
        client.write(&get("large"));
        client.shutdown_write();
    }
    server.pass(50);
    for _ in 0..MOST {
        let client = server.connect();
        client.write(&get("small"));
        let took = server.until("an answer", || client.readable() > 0);
        assert!(took <= 10, "{took} ms");
    }
}

/// The last slice of a file sent as pages waits until the peer has them all, and no longer.
#[test]
fn the_tail_waits_for_the_pages() {
    let mut server = Server::new(Faults::none());
    server.disk.put_file("huge", vec![b'L'; HUGE]);
    server.disk.age_files(100_000);
    let client = server.connect();
    client.write(&get("huge"));
    let mut got = 0;
    // Everything except what the socket holds.
    server.until("nearly all", || {
        let room = (HUGE - 60_000_usize).saturating_sub(got).min(10_000);
        got += client.read_at_most(room).len();
        got + client.readable() > HUGE - 8_000
    });
    server.pass(1_000);
    let queued = got + client.readable();
    assert!(queued < HUGE, "the tail is held back: {queued}");
    let took = server.until("the rest", || {
        got += client.read().len();
        got > HUGE
    });
    // An eighth of the time waited, plus a margin.
    assert!(took < 300, "{took} ms");
    assert_eq!(client.end(), End::Open);
}

/// Replaced large files release their descriptors.
#[test]
fn replaced_files_are_let_go() {
    let mut server = Server::new(Faults::none());
    for _ in 0..50 {
        let client = server.connect();
        client.write(&get("large"));
        let mut got = 0;
        server.until("it is read", || {
            got += client.read().len();
            got > LARGE
        });
        server.disk.put_file("large", vec![b'L'; LARGE]);
        drop(client);
        server.pass(1_000);
        let leaks = server.disk.leaks();
        assert!(leaks.files_open <= 3, "{leaks:?}");
    }
}

/// A deleted file is not kept open, with or without requests for it.
#[test]
fn a_deleted_file_is_let_go() {
    for asks in [false, true] {
        let mut server = Server::new(Faults::none());
        server.body("large", LARGE);
        assert_eq!(server.disk.leaks().files_open, 1);
        server.disk.remove_file("large");
        for _ in 0..10 {
            if asks {
                let client = server.connect();
                client.write(&get("large"));
                server.until("an answer", || client.readable() > 0);
            }
            server.pass(1_000);
        }
        assert_eq!(server.disk.leaks().files_open, 0, "asked for: {asks}");
    }
}

/// Content read during a write is no longer served when the write is over, and a file that is no
/// longer written is cached again.
#[test]
fn half_a_write_is_not_kept() {
    for len in [20_000, LARGE] {
        let mut server = Server::copying();
        server.disk.put_file("page", vec![b'a'; len]);
        server.disk.age_files(10_000);
        assert_eq!(server.body("page", len), vec![b'a'; len]);
        server.disk.begin_overwrite("page", vec![b'b'; len]);
        server.pass(1_000);
        server.body("page", len);
        server.disk.end_overwrite("page", vec![b'b'; len]);
        assert!(server.body("page", len) == vec![b'b'; len], "{len}");
        server.pass(4_000);
        server.body("page", len);
        let before = server.driven.counters();
        for _ in 0..10 {
            assert_eq!(server.body("page", len), vec![b'b'; len]);
        }
        let after = server.driven.counters();
        assert_eq!(after.cache_hits - before.cache_hits, 10, "{len}");
    }
}

/// A write so long that its beginning looks settled: content read meanwhile is read again at the
/// next whole lookup.
#[test]
fn a_write_that_takes_long_is_noticed() {
    for len in [20_000, LARGE] {
        let mut server = Server::copying();
        server.disk.put_file("page", vec![b'a'; len]);
        server.disk.age_files(100_000);
        assert_eq!(server.body("page", len), vec![b'a'; len]);
        server.disk.begin_overwrite("page", vec![b'b'; len]);
        server.pass(5_000);
        assert!(server.body("page", len) != vec![b'a'; len], "half of it");
        server.disk.end_overwrite("page", vec![b'b'; len]);
        server.pass(5_000);
        assert!(server.body("page", len) == vec![b'b'; len], "{len}");
    }
}

/// A truncated file may be empty before its timestamps show it: an empty file is never fresh.
#[test]
fn an_empty_file_is_looked_at_for_each_request() {
    let mut server = Server::copying();
    server.disk.put_file("page", "");
    server.disk.age_files(100_000);
    assert_eq!(server.body("page", 0), b"");
    server.disk.overwrite_file("page", "full");
    assert_eq!(server.body("page", 4), b"full");
}

/// The same for a file that was written just before it was opened by a lookup that began long
/// before, and for one whose change time is in the future.
#[test]
fn half_a_write_is_not_kept_whatever_the_clock_said() {
    const LEN: usize = 20_000;
    for jump_s in [0, -100] {
        let mut server = Server::copying();
        server.disk.put_file("page", vec![b'a'; LEN]);
        server.disk.age_files(10_000);
        server.disk.slow_file("page", 3_600 * MS);
        let client = server.connect();
        client.write(&get("page"));
        server.pass(3_300);
        server.disk.begin_overwrite("page", vec![b'b'; LEN]);
        server.disk.slow_file("page", 0);
        server.disk.jump_wall_clock(jump_s);
        server.until("half of it is sent", || client.readable() > LEN);
        server.disk.end_overwrite("page", vec![b'b'; LEN]);
        assert!(server.body("page", LEN) == vec![b'b'; LEN], "{jump_s}");
    }
}

/// A failing accept does not end service: idle connections make room, and without any, accepting is
/// retried.
#[test]
fn descriptors_that_run_out_come_back() {
    let starving = Faults {
        accept_fails: 1000,
        ..Faults::none()
    };
    let mut server = Server::new(starving.clone());
    let first = server.connect();
    first.write(&get("small"));
    server.pass(2_000);
    assert_eq!(first.readable(), 0);
    server.disk.set_faults(Faults::none());
    server.until("the first is served", || first.readable() > 0);
    first.read();
    server.disk.set_faults(starving);
    let second = server.connect();
    second.write(&get("small"));
    server.until("the idle one makes room", || first.end() == End::Finished);
    assert_eq!(server.driven.counters().shed, 1);
    server.disk.set_faults(Faults::none());
    server.until("the second is served", || second.readable() > 0);
}

/// An incomplete head is answered with 408, also the second of a connection; a connection without any request
/// is closed without an answer.
#[test]
fn heads_have_a_deadline() {
    let mut server = Server::new(Faults::none());
    let second = server.connect();
    second.write(&get("small"));
    server.until("it is served", || second.readable() > 0);
    second.read();
    second.write(b"GET /sma");
    let (slow, silent) = (server.connect(), server.connect());
    let mut trickle = b"GET /small HTTP/1.1\r\nx-slow: ".to_vec();
    trickle.extend([b'a'; 1000]);
    let mut sent = 0;
    let (disk, start) = (server.disk.clone(), server.disk.now().0);
    let took = server.until("408", || {
        // One byte every 50 ms does not move the deadline.
        if (disk.now().0 - start) / (50 * MS) > sent {
            slow.write(&trickle[sent as usize..=sent as usize]);
            sent += 1;
        }
        slow.readable() > 0
    });
    check_about(took, LIMITS.head_timeout_ms);
    assert!(slow.read().starts_with(b"HTTP/1.1 408 "));
    assert!(second.read().starts_with(b"HTTP/1.1 408 "));
    assert_eq!((silent.read(), silent.end()), (Vec::new(), End::Finished));
    server.until("they are closed", || {
        slow.is_closed_by_server() && second.is_closed_by_server()
    });
}

/// A connection without a request is kept for the idle timeout; over TLS it ends with `close_notify`.
#[test]
fn idle_connections_have_a_deadline() {
    for tls in [Tls::None, Tls::Own, Tls::Kernel { can_update: true }] {
        let (mut server, config) =
            Server::with_tls(Faults::none(), LIMITS, tls, ENCRYPTED_RECORDS_MAX);
        let wire = Wire::connect(&server.disk, config.as_ref(), usize::MAX).expect("it listens");
        ask(&mut server, &wire, "small", 100);
        let took = server.until("it is closed", || {
            let more = wire.read_at_most(1 << 20).expect("true records");
            assert!(more.is_empty(), "nothing after the response");
            wire.end() != End::Open
        });
        assert_eq!(wire.end(), End::Finished);
        check_about(took, LIMITS.idle_timeout_ms);
    }
}

/// A peer that accepts nothing is reset; one that accepts enough is not, however long it takes.
#[test]
fn sends_have_to_get_on() {
    let mut server = Server::new(Faults {
        socket_capacity: 4_096,
        ..Faults::none()
    });
    let (stuck, slow) = (server.connect(), server.connect());
    stuck.write(&get("large"));
    slow.write(&get("large"));
    let mut got = 0;
    let took = server.until("the stalled one is reset", || {
        got += slow.read_at_most(50).len();
        stuck.end() == End::Reset
    });
    check_about(took, LIMITS.progress_timeout_ms);
    assert_eq!(slow.end(), End::Open);
    server.until("the slow one is served", || {
        got += slow.read_at_most(500).len();
        got > LARGE
    });
}

/// A client that pipelines without reading is held back; all requests are answered once it reads.
#[test]
fn pipelining_too_much_is_held_back() {
    let mut server = Server::new(Faults {
        socket_capacity: 4_096,
        ..Faults::none()
    });
    let client = server.connect();
    let count = 20_000;
    client.write(&get("small").repeat(count));
    server.pass(1_000);
    let answered = server.driven.counters().responses_total();
    // As many as fit a send and the socket; the rest of the input waits in the peer's queue.
    assert!(answered > 0 && answered < 200, "{answered}");
    let (mut got, mut ends) = (Vec::new(), 0);
    server.until("all are answered", || {
        got.extend(client.read());
        let found = got.windows(5).filter(|five| five == b"small").count();
        ends += found;
        let kept = got.len().saturating_sub(4);
        got.drain(..kept);
        ends == count
    });
}

/// A server, and a client that has received the beginning of a large file.
fn begun() -> (Server, Client) {
    let mut server = Server::new(Faults {
        socket_capacity: 4_096,
        ..Faults::none()
    });
    let client = server.connect();
    client.write(&get("large"));
    server.until("it has begun", || client.readable() > 0);
    (server, client)
}

/// A stop lets a download in progress finish, and accepts no connections.
#[test]
fn a_stop_finishes_what_is_running() {
    let (mut server, client) = begun();
    server.driven.stop();
    let mut got = 0;
    server.until("it is served", || {
        got += client.read().len();
        client.end() == End::Finished
    });
    assert!(got > LARGE);
    server.pass(500);
    assert!(server.driven.is_over());
    assert!(server.disk.connect(Listener(0)).is_none());
}

/// A stalled reader delays a stop by the grace period, and no longer.
#[test]
fn a_stop_ends_within_the_grace() {
    let (mut server, client) = begun();
    // Its send began just now: its progress deadline precedes the end of the grace period.
    server.driven.stop();
    let took = server.until("the server is over", || client.end() == End::Reset);
    let most = LIMITS.grace_ms.min(2 * LIMITS.progress_timeout_ms) + LATE_MS;
    assert!(took <= most, "{took} ms");
    server.pass(20);
    assert!(server.driven.is_over());
}

/// A hung disk ends the streams that wait for it at their deadline, with or without a head sent;
/// other streams of the connection are answered meanwhile and afterwards.
#[test]
fn a_stream_does_not_wait_for_a_hung_disk_for_ever() {
    let mut server = Server::new(Faults {
        // Nothing is in memory: each lookup and read is a separate operation.
        cold: 1_000,
        ..Faults::none()
    });
    let connect = |server: &Server| {
        let client = server.connect();
        client.write(&opening(&[]));
        (client, Vec::new())
    };
    let ask = |client: &Client, id: u32, path: &str| {
        client.write(&headers(id, &request("GET", path, &[])));
    };
    let (client, mut got) = connect(&server);
    let mut has = |kind: u8, id: u32, payload: Option<&[u8]>| {
        got.extend(client.read());
        frames(&got).iter().any(|frame| {
            let is_it = (frame.kind, frame.stream) == (kind, id);
            is_it && payload.is_none_or(|payload| payload == frame.payload)
        })
    };
    ask(&client, 1, "/small");
    server.until("the first answer", || has(DATA, 1, Some(b"small")));
    // One new request, and one response in progress.
    ask(&client, 3, "/large");
    server.until("content of a large file", || has(DATA, 3, None));
    server.disk.slow_file("large", 50_000 * MS);
    ask(&client, 5, "/large");
    client.write(&window_update(0, LARGE as u32));
    client.write(&window_update(3, LARGE as u32));
    ask(&client, 7, "/small");
    server.until("an answer beside it", || has(DATA, 7, Some(b"small")));
    let internal_error = INTERNAL_ERROR.to_be_bytes();
    let took = server.until("the stream that had begun is reset", || {
        has(RST_STREAM, 3, Some(&internal_error))
    });
    assert!(
        took <= 2 * LIMITS.progress_timeout_ms + LATE_MS,
        "{took} ms"
    );
    let took = server.until("the other stream is reset, too", || {
        has(RST_STREAM, 5, Some(&internal_error))
    });
    assert!(
        took <= 2 * LIMITS.progress_timeout_ms + LATE_MS,
        "{took} ms"
    );
    ask(&client, 9, "/small");
    server.until("an answer after it", || has(DATA, 9, Some(b"small")));
}

/// Streams whose client never opens a window are reset one by one, each at its own deadline, however many
/// it makes one after the other; the connection goes on.
#[test]
fn each_stream_without_window_has_its_own_deadline() {
    let mut server = Server::new(Faults::none());
    let client = server.connect();
    client.write(&opening(&[(INITIAL_WINDOW_SIZE, 0)]));
    let mut got = Vec::new();
    for id in (1..20).step_by(2) {
        client.write(&headers(id, &request("GET", "/large", &[])));
        let took = server.until("it is reset", || {
            got.extend(client.read());
            let mut frames = frames(&got).into_iter();
            frames.any(|frame| (frame.kind, frame.stream) == (RST_STREAM, id))
        });
        let most = LIMITS.progress_timeout_ms + LATE_MS;
        assert!(took <= most, "stream {id}: {took} ms");
    }
    assert_eq!(client.end(), End::Open);
}

/// With a delay, responses arrive that much later, to the millisecond, over HTTP/1 and HTTP/2;
/// delays of different connections overlap, and pipelined requests share one.
#[test]
fn a_delay_is_kept_by_each_connection_for_itself() {
    const DELAY_MS: u64 = 250;
    let mut server = Server::delayed(Faults::none(), DELAY_MS);
    let first = server.connect();
    let second = server.connect();
    let streams = server.connect();
    let began = server.disk.now().0;
    first.write(&[get("small"), get("small")].concat());
    server.pass(100);
    second.write(&get("small"));
    let block = request("GET", "/small", &[]);
    streams.write(&[opening(&[]), headers(1, &block)].concat());
    let since = |server: &Server| (server.disk.now().0 - began) / MS;

    let disk = server.disk.clone();
    server.until("the first answers", || first.readable() > 0);
    let took = since(&server);
    assert!((DELAY_MS..DELAY_MS + 20).contains(&took), "{took} ms");
    assert_eq!((second.readable(), streams.readable()), (0, 0), "{took} ms");
    server.until("both of them", || {
        let text = String::from_utf8_lossy(&first.read()).into_owned();
        text.is_empty() || text.matches("HTTP/1.1 200").count() == 2
    });
    server.until("the other", || second.readable() > 0);
    let took = since(&server);
    assert!(
        (DELAY_MS + 100..DELAY_MS + 120).contains(&took),
        "{took} ms"
    );
    let mut got = Vec::new();
    server.until("the stream", || {
        got.extend(streams.read());
        got.windows(5).any(|bytes| bytes == b"small")
    });
    let took = since(&server);
    assert!(
        (DELAY_MS + 100..DELAY_MS + 120).contains(&took),
        "{took} ms"
    );
    // The end of a client's input is delayed as well, and follows its request.
    second.read();
    second.write(&get("small"));
    second.shutdown_write();
    let ended = disk.now().0;
    server.until("it is let go", || second.is_closed_by_server());
    assert!(String::from_utf8_lossy(&second.read()).starts_with("HTTP/1.1 200"));
    assert!(disk.now().0 - ended >= DELAY_MS * MS);
}

/// A client that sends without reading is held back as without a delay.
#[test]
pub(crate) fn what_a_delay_holds_back_is_bounded() {
    let mut server = Server::delayed(Faults::none(), 1_000);
    let client = server.connect();
    // More than is held for a connection, and more than the simulated network holds.
    let count = 8_000;
    let requests = get("small").repeat(count);
    client.write(&requests);
    let mut answers = 0;
    server.until("all are answered", || {
        let got = client.read();
        answers += got.windows(12).filter(|it| *it == b"HTTP/1.1 200").count();
        // A head split between reads is not counted: some are missed.
        answers > count * 9 / 10
    });
}

/// Requests a file and reads more than `len` bytes; returns the lengths of the records.
pub(crate) fn ask(server: &mut Server, wire: &Wire, path: &str, len: usize) -> Vec<usize> {
    wire.write(&get(path));
    let mut got = Vec::new();
    server.until("an answer", || {
        got.extend(wire.read_at_most(1 << 20).expect("true records"));
        got.len() > len
    });
    wire.take_record_lens()
}

/// The kernel's key is replaced after its limit of records. A kernel that cannot replace it
/// finishes the response in progress, and the connection ends in order.
#[test]
fn a_key_of_the_kernel_is_replaced_or_the_connection_ends() {
    for can_update in [true, false] {
        let tls = Tls::Kernel { can_update };
        let (mut server, config) = Server::with_tls(Faults::none(), LIMITS, tls, 40);
        let wire = Wire::connect(&server.disk, config.as_ref(), usize::MAX).expect("it listens");
        // 13 records each, and each send counts one more.
        ask(&mut server, &wire, "large", LARGE);
        ask(&mut server, &wire, "large", LARGE);
        server.pass(LATE_MS);
        assert_eq!(wire.end(), End::Open);
        ask(&mut server, &wire, "large", LARGE);
        if can_update {
            for _ in 0..10 {
                ask(&mut server, &wire, "large", LARGE);
            }
            assert_eq!(wire.end(), End::Open);
        } else {
            server.until("the end", || {
                let more = wire.read_at_most(1 << 20).expect("true records");
                assert!(more.is_empty(), "nothing after the response");
                wire.end() != End::Open
            });
            assert_eq!(wire.end(), End::Finished, "with close_notify");
        }
    }
}

/// A client that ends its half without `close_notify` may still read: the answers of which the kernel holds
/// records reach it, and `close_notify` after them.
#[test]
fn the_end_of_a_half_loses_no_records_of_the_kernel() {
    let tls = Tls::Kernel { can_update: true };
    let (mut server, config) = Server::with_tls(Faults::none(), LIMITS, tls, 1_000);
    let wire = Wire::connect(&server.disk, config.as_ref(), usize::MAX).expect("it listens");
    // From here on the kernel encrypts, and what is not read yet leaves no room for the second answer.
    ask(&mut server, &wire, "large", LARGE);
    for _ in 0..2 {
        wire.write(&get("small"));
        server.pass(20);
    }
    wire.client().shutdown_write();
    server.pass(20);
    let mut got = Vec::new();
    server.until("the end", || {
        got.extend(wire.read_at_most(1_000).expect("true records"));
        wire.end() != End::Open
    });
    let got = String::from_utf8_lossy(&got);
    assert_eq!(got.matches("HTTP/1.1 200").count(), 2, "{got}");
    assert_eq!(wire.end(), End::Finished, "with close_notify");
}

/// Neither does an idle connection lose them that makes room for others, of which it is the only one.
#[test]
fn a_connection_that_makes_room_loses_no_records_of_the_kernel() {
    let tls = Tls::Kernel { can_update: true };
    let (mut server, config) = Server::with_tls(Faults::none(), LIMITS, tls, 1_000);
    let wire = Wire::connect(&server.disk, config.as_ref(), usize::MAX).expect("it listens");
    ask(&mut server, &wire, "large", LARGE);
    for _ in 0..2 {
        wire.write(&get("small"));
        server.pass(20);
    }
    server.disk.set_faults(Faults {
        accept_fails: 1000,
        ..Faults::none()
    });
    let second = server.connect();
    server.pass(2_000);
    server.disk.set_faults(Faults::none());
    let mut got = Vec::new();
    server.until("the end", || {
        got.extend(wire.read_at_most(1_000).expect("true records"));
        wire.end() != End::Open
    });
    let got = String::from_utf8_lossy(&got);
    assert_eq!(got.matches("HTTP/1.1 200").count(), 2, "{got}");
    assert_eq!(wire.end(), End::Finished, "with close_notify");
    second.write(&get("small"));
    server.until("the second is served", || second.readable() > 0);
}

/// On a connection that is new or has rested, the first bytes use records that fit a segment; all
/// others use full records.
#[test]
fn what_comes_after_a_rest_is_in_small_records_first() {
    let (mut server, config) =
        Server::with_tls(Faults::none(), LIMITS, Tls::Own, ENCRYPTED_RECORDS_MAX);
    let wire = Wire::connect(&server.disk, config.as_ref(), usize::MAX).expect("it listens");
    let encrypted = SMALL_RECORD_LEN + 22;
    let small = |lens: &[usize]| lens.iter().filter(|len| **len == encrypted).count();
    let first = ask(&mut server, &wire, "large", LARGE);
    assert_eq!(small(&first), SMALL_RECORDS as usize, "{first:?}");
    assert_eq!(first.iter().max(), Some(&(16_384 + 22)));
    let next = ask(&mut server, &wire, "large", LARGE);
    assert_eq!((small(&next), next[0]), (0, 16_384 + 22), "{next:?}");
    assert_eq!(ask(&mut server, &wire, "small", 100).len(), 1);
    server.pass(1_100);
    let rested = ask(&mut server, &wire, "large", LARGE);
    assert_eq!(rested[..10], [encrypted; 10], "{rested:?}");
    // Even if it would fit one record, and a short response precedes it, as do HTTP/2 settings.
    server.disk.put_file("page", vec![b'P'; 12_000]);
    server.pass(1_100);
    ask(&mut server, &wire, "small", 100);
    let page = ask(&mut server, &wire, "page", 12_000);
    assert!(page.iter().all(|len| *len <= encrypted), "{page:?}");
}

/// Input after a rejected hello has no effect: only the alert is sent.
#[test]
fn what_follows_a_refused_hello_is_dropped() {
    // Sends begin late, so that more input arrives during the alert.
    let faults = Faults {
        queue_full: 1_000,
        delay_max_ns: 500 * MS,
        ..Faults::none()
    };
    let (mut server, config) = Server::with_tls(faults, LIMITS, Tls::Own, ENCRYPTED_RECORDS_MAX);
    // The second is part of a hello that announces 16 MiB, longer than the limit of a handshake.
    let endless = [&b"\x16\x03\x01\x1f\x40\x01\xff\xff\xff"[..], &[0; 7_996]].concat();
    for garbage in [&b"\0garbage"[..], &endless].repeat(8) {
        let client = server.connect();
        client.write(&garbage.repeat(80));
        let mut got = Vec::new();
        server.until("an alert", || {
            got.extend(client.read());
            got.len() >= 7
        });
        assert_eq!((got.len(), got[0]), (7, 21), "one alert: {got:?}");
        client.shutdown_write();
        server.until("it is let go", || client.is_closed_by_server());
    }
    let wire = Wire::connect(&server.disk, config.as_ref(), usize::MAX).expect("it listens");
    ask(&mut server, &wire, "small", 100);
}

/// More files than descriptors: cached open files make room.
#[test]
fn files_that_are_kept_open_make_room_for_others() {
    const LEN: usize = 40_000;
    let mut server = Server::new(Faults {
        files_max: 8,
        ..Faults::none()
    });
    let name = |number| format!("f{number}.bin");
    for number in 0..60 {
        server.disk.put_file(&name(number), vec![b'F'; LEN]);
    }
    let client = server.connect();
    for number in (0..60).chain(0..60) {
        client.write(&get(&name(number)));
        let mut answer = Vec::new();
        server.until("the answer is there", || {
            answer.extend(client.read());
            answer.len() > LEN
        });
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{number}");
        assert!(server.disk.leaks().files_open <= 8);
    }
}

/// A page that substitutes for paths without lookup changes while it is read.
#[test]
fn an_error_page_that_changes_while_it_is_read_is_read_again() {
    let mut server = Server::copying();
    server.disk.put_file("404.html", vec![b'1'; LARGE]);
    server.disk.slow_file("404.html", 50 * MS);
    server.disk.age_files(10_000);
    let client = server.connect();
    client.write(&get(".hidden"));
    // It was opened and is being copied.
    server.pass(75);
    server
        .disk
        .overwrite_file("404.html", vec![b'2'; LARGE - 1]);
    let mut got = Vec::new();
    server.until("an answer", || {
        got.extend(client.read());
        got.ends_with(&[b'2'; LARGE - 1])
    });
    assert!(got.starts_with(b"HTTP/1.1 404 "));
}
