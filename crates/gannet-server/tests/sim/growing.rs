//! Files that grow while they are downloaded are downloaded whole, as they were when that began; files that
//! change otherwise never are.

use gannet_io::driver::Receipt;
use gannet_io::sim::{Client, End, Faults, SimHandle};
use gannet_server::tls::limits::ENCRYPTED_RECORDS_MAX;
use gannet_testkit::h2::{
    self, DATA, INITIAL_WINDOW_SIZE, RST_STREAM, frames, headers, opening, window_update,
};
use gannet_testkit::h3::{self, take_varint};
use gannet_testkit::quic::Received;
use quinn_proto::StreamId;

use crate::link::{Link, Opening};
use crate::quic_deadlines::connected;
use crate::run::{LIMITS, Tls};
use crate::server::{RECEIPTS, Server, get};
use crate::wire::Wire;

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
        // Longer than a write may take to set the length: looks are at least 5 ms apart.
        client.end() != End::Open || quiet > 300
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

/// The content in the frames of HTTP/3 that have arrived so far.
pub(crate) fn content(mut frames: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while let (Some(kind), Some(len)) = (take_varint(&mut frames), take_varint(&mut frames)) {
        let (payload, rest) = frames.split_at(frames.len().min(len as usize));
        if kind == h3::DATA {
            content.extend_from_slice(payload);
        }
        frames = rest;
    }
    content
}

/// How the log is downloaded.
enum Download {
    Http1(Wire),
    Http2(Wire),
    Http3(Box<Link>, StreamId),
}

impl Download {
    /// One way after the other; `None` after the last.
    fn begin(way: usize) -> Option<(Server, Self)> {
        let faults = Faults {
            datagram_latency_ns: 1_000_000,
            ..Faults::none()
        };
        let (mut server, config) = match way {
            0 | 1 => (Server::new(faults), None),
            2 => Server::with_tls(faults, LIMITS, Tls::Own, ENCRYPTED_RECORDS_MAX),
            3 => {
                let (server, config) = Server::with_datagrams(faults, LIMITS);
                (server, Some(config))
            }
            _ => return None,
        };
        server.disk.put_file("log", log(LEN));
        let wire = |config| Wire::connect(&server.disk, config, usize::MAX).expect("it listens");
        let download = match way {
            0 | 2 => {
                let wire = wire(config.as_ref());
                wire.write(&get("log"));
                Self::Http1(wire)
            }
            1 => {
                let wire = wire(None);
                let window = 2 * LEN as u32;
                let ask = headers(1, &h2::request("GET", "/log", &[]));
                let opening = opening(&[(INITIAL_WINDOW_SIZE, window)]);
                wire.write(&[opening, window_update(0, window), ask].concat());
                Self::Http2(wire)
            }
            _ => {
                let config = config.expect("it speaks TLS");
                let mut link = connected(&mut server, &config, &Opening::new(0));
                let id = link.get("/log");
                Self::Http3(Box::new(link), id)
            }
        };
        Some((server, download))
    }

    /// Adds what has arrived to `got`; returns whether that is anything, or the response may be over.
    fn read(&mut self, got: &mut Vec<u8>) -> bool {
        let before = got.len();
        match self {
            Self::Http3(link, id) => {
                link.step();
                link.core.read(usize::MAX);
                let Some(received) = link.core.received(*id) else {
                    return false;
                };
                got.extend_from_slice(&received.bytes[before..]);
                got.len() > before || received.is_over()
            }
            Self::Http1(wire) | Self::Http2(wire) => {
                got.extend(wire.read_at_most(usize::MAX).expect("sound records"));
                got.len() > before || wire.end() != End::Open
            }
        }
    }

    /// The body as far as it has arrived, and whether it is whole, if the response is over.
    fn body(&self, got: &[u8]) -> (Vec<u8>, Option<bool>) {
        let (body, is_over) = match self {
            Self::Http1(wire) => {
                let has_head = got.windows(4).any(|four| four == b"\r\n\r\n");
                let body = if has_head { parts(got).1 } else { &[] };
                (body.to_vec(), wire.end() != End::Open)
            }
            Self::Http2(_) => {
                let frames = frames(got);
                let data = frames.iter().filter(|frame| frame.kind == DATA);
                let body: Vec<u8> = data.flat_map(|frame| frame.payload.clone()).collect();
                (body, frames.iter().any(|frame| frame.kind == RST_STREAM))
            }
            Self::Http3(link, id) => {
                let received = link.core.received(*id);
                (content(got), received.is_some_and(Received::is_over))
            }
        };
        let is_whole = body.len() >= LEN;
        let end = (is_over || is_whole).then_some(is_whole);
        (body, end)
    }
}

/// A write sets the times before the length, and its process may be stopped in between: a download that sees that
/// sends nothing and waits, over every version of HTTP. It is completed if the file was appended to, and ends after
/// bytes of its version alone if it was overwritten, or nothing follows.
#[test]
fn a_write_that_has_set_no_length_yet_ends_no_download() {
    let overwritten = vec![b'X'; LEN + 20];
    for next in [Some(log(LEN + 20)), Some(overwritten), None] {
        for way in 0.. {
            let Some((mut server, mut download)) = Download::begin(way) else {
                break;
            };
            // When it was opened, and some of it was read.
            server.disk.overwrite_file_after(9, "log", log(LEN));
            let mut got = Vec::new();
            server.pass_while(100, || {
                download.read(&mut got);
            });
            let (begun, end) = download.body(&got);
            assert!(
                (1..LEN).contains(&begun.len()) && end.is_none(),
                "{way}: {} bytes, {end:?}",
                begun.len()
            );
            if let Some(next) = &next {
                server.disk.overwrite_file("log", next.clone());
            }
            let (mut body, mut end) = (begun.clone(), None);
            server.until("the end", || {
                if download.read(&mut got) {
                    (body, end) = download.body(&got);
                }
                end.is_some()
            });
            let is_whole = next.as_ref().is_some_and(|next| next.starts_with(&begun));
            assert_eq!(end, Some(is_whole), "{way}");
            let len = if is_whole { LEN } else { begun.len() };
            assert!(body == log(LEN)[..len], "{way}: {} bytes", body.len());
            assert_eq!(server.driven.counters().cut_short, u64::from(!is_whole));
        }
    }
}

/// However many downloads wait for the length of a write, looks at the file are few, others are answered meanwhile, and
/// all go on.
#[test]
fn downloads_that_wait_for_a_length_cost_little() {
    const MOST: usize = 400;
    const PART: usize = 100_000;
    let mut server = server(0, Receipt::Unknown);
    let clients: Vec<_> = (0..MOST).map(|_| server.connect()).collect();
    for client in &clients {
        client.write(request(&format!("0-{}", PART - 1)).as_bytes());
    }
    server.until("they have begun", || {
        clients.iter().all(|it| it.readable() > 0)
    });
    server.disk.overwrite_file("log", log(LEN));
    // All would look 8,000 times, if it were not for the bound of 128 looks each 5 ms; and each reads some slices
    // before. The file is longer once it has been looked at more often.
    let most = 128 * 100 / 5 + 4 * MOST as u32;
    server.disk.overwrite_file_after(most, "log", log(LEN + 20));
    let mut got = [0; MOST];
    let mut read = || {
        for (got, client) in got.iter_mut().zip(&clients) {
            *got += client.read().len();
        }
        got.iter().filter(|got| **got > PART).count()
    };
    server.pass_while(100, || assert_eq!(read(), 0));
    assert_eq!(server.disk.file_len("log"), Some(LEN as u64));
    server.body("small", 5);
    server.disk.overwrite_file("log", log(LEN + 20));
    server.until("all of them", || read() == MOST);
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
pub(crate) fn what_is_read_again_in_a_turn_is_bounded() {
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
