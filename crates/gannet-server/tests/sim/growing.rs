//! Files that grow while they are downloaded are downloaded whole, as they were when that began; files that
//! change otherwise never are.

use gannet_io::driver::Receipt;
use gannet_io::sim::{Client, End, Faults, SimHandle};

use crate::server::{RECEIPTS, Server, get};

/// Longer than several slices.
const LEN: usize = 1 << 20;

/// What is read at opening: the end of a version.
const END: u64 = 4 << 10;

/// Most bytes that are read again in a turn, and in one slice.
const TURN: u64 = 512 << 10;
const SLICE: u64 = 256 << 10;

/// A log of so many bytes, each part of which is unlike the others.
fn log(len: usize) -> Vec<u8> {
    let lines = (0..).map(|number| format!("{number:07} of a log\n").into_bytes());
    lines.flatten().take(len).collect()
}

/// A server with a log that was written so long ago.
fn server(age_ms: u64, receipt: Receipt) -> Server {
    let server = Server::new(Faults::none());
    server.disk.set_receipt(receipt);
    server.disk.put_file("log", log(LEN));
    server.disk.age_files(age_ms);
    server
}

/// A client that has begun to download the log, as far as it fits into what waits to be read.
fn downloading(server: &mut Server, request: &str) -> Client {
    let client = server.connect();
    client.write(request.as_bytes());
    server.until("the queue is full", || client.readable() >= 64 << 10);
    client
}

/// What arrives until nothing more does.
fn rest(server: &mut Server, client: &Client, mut after: impl FnMut(usize)) -> Vec<u8> {
    let mut got = Vec::new();
    let mut quiet = 0;
    server.until("the end", || {
        let more = client.read_at_most(10_000);
        quiet = if more.is_empty() { quiet + 1 } else { 0 };
        got.extend(more);
        after(got.len());
        client.end() != End::Open || quiet > 100
    });
    got
}

/// Head and body of what arrived.
fn parts(got: &[u8]) -> (String, &[u8]) {
    let at = got.windows(4).position(|four| four == b"\r\n\r\n");
    let (head, body) = got.split_at(at.expect("a head") + 4);
    (String::from_utf8_lossy(head).into_owned(), body)
}

fn request(range: &str) -> String {
    format!("GET /log HTTP/1.1\r\nhost: sim\r\nrange: bytes={range}\r\n\r\n")
}

/// Bytes that were read again.
fn reread(server: &mut Server) -> u64 {
    server.driven.counters().reread
}

#[test]
fn what_is_appended_to_a_log_ends_no_download() {
    for (age_ms, receipt) in RECEIPTS.iter().flat_map(|at| [(0, *at), (50_000, *at)]) {
        let mut server = server(age_ms, receipt);
        let request = String::from_utf8(get("log")).expect("a request");
        let client = downloading(&mut server, &request);
        let (disk, longer) = (server.disk.clone(), log(2 * LEN));
        let mut lines = 0;
        // A line for each part that was read.
        let got = rest(&mut server, &client, |_| {
            lines += 1;
            disk.overwrite_file("log", &longer[..LEN + 20 * lines]);
        });
        let (head, body) = parts(&got);
        assert!(
            head.contains(&format!("Content-Length: {LEN}\r\n")),
            "{head}"
        );
        assert!(body == &longer[..LEN], "{} bytes", body.len());
        assert_eq!(client.end(), End::Open);
        assert!(lines > 10);
        let again = reread(&mut server);
        let ends = again - LEN as u64;
        assert!(
            ends.is_multiple_of(END) && ends / END <= lines as u64,
            "{again} bytes"
        );
        assert_eq!(server.driven.counters().cut_short, 0);
    }
}

/// A writer that never pauses leaves no moment in which the metadata are the same twice.
#[test]
fn a_log_that_grows_at_every_look_is_downloaded_whole() {
    const LINE: &[u8] = b"one more line\n";
    let mut server = server(0, Receipt::Unknown);
    server.disk.append_at_each_call("log", LINE);
    let client = server.connect();
    client.write(&get("log"));
    let got = rest(&mut server, &client, |_| {});
    let (head, body) = parts(&got);
    let length = format!("Content-Length: {}\r\n", body.len());
    assert!(head.contains(&length), "{head}{} bytes", body.len());
    let (log_part, lines) = body.split_at(LEN);
    assert!(log_part == log(LEN));
    assert!(lines.len() > 2 * LINE.len() && lines.chunks(LINE.len()).all(|it| it == LINE));
    assert_eq!(client.end(), End::Open);
    assert_eq!(server.driven.counters().cut_short, 0);
}

/// The same for a part of it, and for several, which are compared together.
#[test]
fn parts_of_a_growing_log_are_of_one_version() {
    for range in ["300000-", "-600000", "0-299999,500000-899999"] {
        let mut server = server(0, Receipt::Unknown);
        let client = downloading(&mut server, &request(range));
        server.disk.overwrite_file("log", log(LEN + 20));
        let got = rest(&mut server, &client, |_| {});
        let (head, body) = parts(&got);
        assert!(head.starts_with("HTTP/1.1 206 "), "{head}");
        let length = format!("Content-Length: {}\r\n", body.len());
        assert!(head.contains(&length), "{range}: {head}");
        let all = log(LEN);
        let parts: &[&[u8]] = match range {
            "300000-" => &[&all[300_000..]],
            "-600000" => &[&all[LEN - 600_000..]],
            _ => &[&all[..300_000], &all[500_000..900_000]],
        };
        for part in parts {
            assert!(body.windows(part.len()).any(|it| it == *part), "{range}");
        }
        let sent: usize = parts.iter().map(|part| part.len()).sum();
        let ends = reread(&mut server) - sent as u64;
        assert!((1..=2).contains(&(ends / END)), "{ends} bytes of ends");
    }
}

/// What it is, the age of the file in ms, whether the download ends short, and how it is done.
type Change<'c> = (&'c str, u64, bool, &'c dyn Fn(&SimHandle));

/// A file that is no longer as it was is downloaded by nobody, and no byte of another version is sent if its
/// end is another one; what was settled for a minute is not read again.
#[test]
fn what_is_no_append_ends_a_download_short() {
    let mut other = log(LEN + 20);
    other[..1_000].fill(b'X');
    let changes: [Change<'_>; 8] = [
        ("cut", 0, true, &|disk| disk.truncate_file("log", 10)),
        ("cut a little", 0, true, &|disk| {
            disk.truncate_file("log", LEN as u64 - 1);
        }),
        ("overwritten", 0, true, &|disk| {
            disk.overwrite_file("log", vec![b'X'; LEN]);
        }),
        ("overwritten, longer", 0, true, &|disk| {
            disk.overwrite_file("log", vec![b'X'; LEN + 1]);
        }),
        ("cut and longer again", 0, true, &|disk| {
            disk.truncate_file("log", 0);
            disk.truncate_file("log", LEN as u64 + 10);
        }),
        ("its beginning overwritten, longer", 0, false, &|disk| {
            disk.overwrite_file("log", other.clone());
        }),
        ("a shorter one put in place", 0, true, &|disk| {
            disk.overwrite_file("log", log(LEN - 5));
        }),
        ("appended to after long", 61_000, true, &|disk| {
            disk.overwrite_file("log", log(LEN + 20));
        }),
    ];
    for (what, age_ms, is_short, change) in changes {
        let mut server = server(age_ms, Receipt::Unknown);
        let request = String::from_utf8(get("log")).expect("a request");
        let client = downloading(&mut server, &request);
        change(&server.disk);
        let got = rest(&mut server, &client, |_| {});
        assert_eq!(client.end(), End::Reset, "{what}");
        let (_, body) = parts(&got);
        assert!(
            body.len() < LEN && body == &log(LEN)[..body.len()],
            "{what}"
        );
        assert_eq!(reread(&mut server) <= END, is_short, "{what}");
        assert_eq!(server.driven.counters().cut_short, 1, "{what}");
        // Those who ask now get what is there now.
        let len = server.disk.file_len("log").expect("it is there") as usize;
        server.pass(1_000);
        server.body("log", len);
    }
}

/// The second half of a write changes the bytes and no metadata: what was being written is read again.
#[test]
fn half_a_write_never_makes_a_whole_download() {
    let mut server = server(0, Receipt::Unknown);
    let new = vec![b'n'; LEN];
    server.disk.begin_overwrite("log", new.clone());
    let request = String::from_utf8(get("log")).expect("a request");
    let client = downloading(&mut server, &request);
    server.disk.end_overwrite("log", new.clone());
    rest(&mut server, &client, |_| {});
    assert_eq!(client.end(), End::Reset);
    assert_eq!(server.body("log", LEN), new);
}

/// However many downloads end at once, a turn reads again no more than its budget, and others are answered
/// meanwhile.
#[test]
fn what_is_read_again_in_a_turn_is_bounded() {
    const MOST: usize = 30;
    let mut server = server(0, Receipt::Unknown);
    let clients: Vec<_> = (0..MOST).map(|_| server.connect()).collect();
    for client in &clients {
        client.write(&get("log"));
    }
    server.until("they have begun", || {
        clients.iter().all(|it| it.readable() > 0)
    });
    let mut got = [0; MOST];
    let (mut before, mut most) = (0, 0);
    server.disk.overwrite_file("log", log(LEN + 20));
    server.until_it("all downloads", |driven| {
        let all = driven.counters().reread;
        most = most.max(all - before);
        before = all;
        for (got, client) in got.iter_mut().zip(&clients) {
            *got += client.read().len();
        }
        got.iter().all(|got| *got > LEN)
    });
    assert!(before >= (MOST * LEN) as u64);
    // Each compares the end of the version once.
    let ends = MOST as u64 * END;
    assert!(most <= TURN + SLICE + ends, "{most} bytes in a turn");
    assert!(clients.iter().all(|client| client.end() == End::Open));
}

/// A client that leaves while its download is read again causes nothing more to be read.
#[test]
fn who_has_left_causes_no_more_reads() {
    let mut server = server(0, Receipt::Unknown);
    let clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    for client in &clients {
        client.write(&get("log"));
    }
    server.until("they have begun", || {
        clients.iter().all(|it| it.readable() > 0)
    });
    server.disk.overwrite_file("log", log(LEN + 20));
    server.until_it("some are read again", |driven| {
        clients.iter().for_each(|client| drop(client.read()));
        driven.counters().reread > 3 * SLICE
    });
    clients.iter().for_each(Client::reset);
    server.until("they are gone", || {
        clients.iter().all(Client::is_closed_by_server)
    });
    let before = reread(&mut server);
    server.pass(1_000);
    assert_eq!(reread(&mut server), before);
    assert!(before < 8 * LEN as u64);
    assert!(
        server.disk.leaks().files_open <= 1,
        "kept for the next request"
    );
}
