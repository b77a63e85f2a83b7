//! HTTP/3 as a client sees it, over both engines.

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use gannet_testkit::client::metric;
use gannet_testkit::content::pattern;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h3::{
    self, frame, headers, number_frame, request, settings_frame, take_varint, varint,
};
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, gannet};

const FLAGS: [&str; 2] = ["--metrics", "127.0.0.1:0"];
const LONG: usize = 6 << 20;

/// A site with a page, a file that is kept in memory, and a file that is read from disk.
fn site() -> Folder {
    let folder = Folder::new();
    folder.write("index.html", "<h1>hello</h1>");
    folder.write("mid.bin", pattern(300_000, 1));
    folder.write("long.bin", pattern(LONG, 2));
    folder
}

fn connect(secure: &Secure) -> Quic {
    Quic::begin(secure.server.address(), &secure.authority)
}

fn page() -> Vec<u8> {
    request("GET", "/", &[])
}

/// Files of all lengths, sequentially and concurrently, from a directory and from an archive.
#[test]
fn files_come_whole() {
    on_both_engines(|engine| {
        let folder = site();
        let archive = folder.path().with_extension("gannet");
        let arguments = ["pack".into(), folder.path().to_path_buf(), "-o".into()];
        let fast = "--fast".into();
        gannet(arguments.into_iter().chain([archive.clone(), fast])).success();
        for content in [folder.path(), &archive] {
            let secure = Secure::serve(engine, content, &FLAGS);
            let mut quic = connect(&secure);
            for (path, len, seed) in [("/mid.bin", 300_000, 1), ("/long.bin", LONG, 2)] {
                let answer = quic.get(path);
                assert_eq!(answer.status, 200);
                assert!(answer.body == pattern(len, seed), "{path}");
            }
            assert!(quic.was_asked_for_fewer_acknowledgements());
            let ids: Vec<_> = (0..90).map(|_| quic.ask(&page())).collect();
            for id in ids {
                assert_eq!(quic.answer(id).body, b"<h1>hello</h1>");
            }
            let requests = metric(&secure.server, "gannet_h3_requests_total");
            assert_eq!(requests, 92);
        }
        std::fs::remove_file(archive).expect("it was made");
    });
}

/// Methods, conditions, ranges and errors work as over the other versions.
#[test]
fn answers_are_those_of_other_versions() {
    on_both_engines(|engine| {
        let folder = site();
        let secure = Secure::serve(engine, folder.path(), &FLAGS);
        let mut quic = connect(&secure);
        let mut ask = |method, path, fields: &[(&str, &str)]| {
            let id = quic.ask(&request(method, path, fields));
            quic.answer(id)
        };
        let whole = ask("GET", "/mid.bin", &[]);
        let tag = whole.field("etag").expect("a validator").to_owned();
        assert_eq!(
            whole.field("alt-svc"),
            None,
            "no announcement over HTTP/3 itself"
        );
        let head = ask("HEAD", "/mid.bin", &[]);
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.field("content-length"), Some("300000"));
        let part = ask("GET", "/mid.bin", &[("range", "bytes=10-19")]);
        assert_eq!(part.status, 206);
        assert_eq!(part.body, pattern(300_000, 1)[10..20]);
        let same = ask("GET", "/mid.bin", &[("if-none-match", &tag)]);
        assert_eq!((same.status, same.body.len()), (304, 0));
        assert_eq!(ask("GET", "/none", &[]).status, 404);
        assert_eq!(ask("POST", "/", &[]).status, 405);
        assert_eq!(ask("OPTIONS", "/", &[]).status, 204);
        assert_eq!(ask("GET", "/%zz", &[]).status, 400);
        // The other versions announce HTTP/3.
        let port = secure.server.address().port();
        let answer = secure.connect().get("/").expect(200);
        let expect = format!("h3=\":{port}\"; ma=86400");
        assert_eq!(answer.field("alt-svc"), Some(expect.as_str()));
    });
}

/// The required reaction of a server.
enum Expect {
    /// The connection ends with this code.
    Close(u64),
    /// The stream is reset with this code, and the connection continues.
    Reset(u64),
    /// The request is answered with this status.
    Status(u16),
}

use Expect::{Close, Reset, Status};

/// The stream on which the bytes are sent.
enum On {
    /// A new unidirectional stream of this type, which stays open or ends.
    Uni(u64, bool),
    /// The control stream, after SETTINGS.
    Control,
    /// A request stream, which ends.
    Request,
}

struct Case {
    name: &'static str,
    on: On,
    bytes: Vec<u8>,
    expect: Expect,
}

fn case(name: &'static str, on: On, bytes: Vec<u8>, expect: Expect) -> Case {
    Case {
        name,
        on,
        bytes,
        expect,
    }
}

/// A request with these pseudo-header fields and other fields, unchecked.
fn raw(fields: &[(&str, &str)]) -> Vec<u8> {
    headers(fields)
}

const GET: [(&str, &str); 4] = [
    (":method", "GET"),
    (":scheme", "https"),
    (":authority", "localhost"),
    (":path", "/"),
];

fn with(field: (&'static str, &'static str)) -> Vec<u8> {
    raw(&[&GET[..], &[field]].concat())
}

/// Violations of RFC 9114 sections 4.1 to 4.3, 6.2, 7.2 and 8, RFC 9204 sections 3 to 4, and RFC
/// 9218 section 7.2.
fn wrong() -> Vec<Case> {
    let control = |name, bytes, code| case(name, On::Control, bytes, Close(code));
    let uni = |name, kind, bytes, code| case(name, On::Uni(kind, false), bytes, Close(code));
    let asked = |name, bytes, expect| case(name, On::Request, bytes, expect);
    let data = || frame(h3::DATA, b"x");
    vec![
        uni(
            "a second control stream",
            h3::CONTROL_STREAM,
            settings_frame(&[]),
            0x103,
        ),
        uni(
            "a push stream of a client",
            h3::PUSH_STREAM,
            varint(0),
            0x103,
        ),
        case(
            "the encoder stream ends",
            On::Uni(h3::ENCODER_STREAM, true),
            vec![],
            Close(0x104),
        ),
        case(
            "the decoder stream ends",
            On::Uni(h3::DECODER_STREAM, true),
            vec![],
            Close(0x104),
        ),
        uni(
            "a capacity of the dynamic table",
            h3::ENCODER_STREAM,
            vec![0x3f, 0x45],
            0x201,
        ),
        uni(
            "an insert",
            h3::ENCODER_STREAM,
            vec![0x41, b'a', 1, b'b'],
            0x201,
        ),
        uni("an increment of 0", h3::DECODER_STREAM, vec![0x00], 0x202),
        uni(
            "an increment of what was not sent",
            h3::DECODER_STREAM,
            vec![0x01],
            0x202,
        ),
        control("second settings", settings_frame(&[]), 0x105),
        control("DATA on the control stream", data(), 0x105),
        control("HEADERS on the control stream", page(), 0x105),
        control(
            "PUSH_PROMISE on the control stream",
            frame(h3::PUSH_PROMISE, &[0]),
            0x105,
        ),
        control("a PRIORITY frame of HTTP/2", frame(0x2, &[]), 0x105),
        control("a PING frame of HTTP/2", frame(0x6, &[0; 8]), 0x105),
        control(
            "a WINDOW_UPDATE frame of HTTP/2",
            frame(0x8, &[0; 4]),
            0x105,
        ),
        control("a CONTINUATION frame of HTTP/2", frame(0x9, &[]), 0x105),
        control("GOAWAY that is too long", frame(h3::GOAWAY, &[0, 0]), 0x106),
        control("GOAWAY that is empty", frame(h3::GOAWAY, &[]), 0x106),
        control(
            "MAX_PUSH_ID that is empty",
            frame(h3::MAX_PUSH_ID, &[]),
            0x106,
        ),
        control(
            "CANCEL_PUSH that is too long",
            frame(h3::CANCEL_PUSH, &[0, 0]),
            0x106,
        ),
        control(
            "a push that was never promised",
            number_frame(h3::CANCEL_PUSH, 1),
            0x108,
        ),
        control(
            "MAX_PUSH_ID that shrinks",
            [
                number_frame(h3::MAX_PUSH_ID, 5),
                number_frame(h3::MAX_PUSH_ID, 4),
            ]
            .concat(),
            0x108,
        ),
        control(
            "GOAWAY that grows",
            [number_frame(h3::GOAWAY, 4), number_frame(h3::GOAWAY, 8)].concat(),
            0x108,
        ),
        control(
            "a priority of no request",
            h3::priority_update(3, "u=1"),
            0x108,
        ),
        asked("DATA before HEADERS", data(), Close(0x105)),
        asked("SETTINGS on a request", settings_frame(&[]), Close(0x105)),
        asked(
            "GOAWAY on a request",
            number_frame(h3::GOAWAY, 0),
            Close(0x105),
        ),
        asked(
            "PUSH_PROMISE on a request",
            frame(h3::PUSH_PROMISE, &[0]),
            Close(0x105),
        ),
        asked(
            "HEADERS behind trailers",
            [page(), headers(&[("a", "b")]), page()].concat(),
            Close(0x105),
        ),
        asked(
            "a frame that is cut off",
            page()[..5].to_vec(),
            Close(0x106),
        ),
        asked(
            "a reference to the dynamic table",
            frame(h3::HEADERS, &[0, 0, 0x80]),
            Close(0x200),
        ),
        asked(
            "an insert count",
            frame(h3::HEADERS, &[2, 0, 0xd1]),
            Close(0x200),
        ),
        asked(
            "an index beyond the static table",
            frame(h3::HEADERS, &[0, 0, 0xff, 0x7f]),
            Close(0x200),
        ),
        asked("no request at all", vec![], Reset(0x10d)),
        asked("an upper-case name", with(("Accept", "x")), Reset(0x10e)),
        asked(
            "a connection field",
            with(("connection", "close")),
            Reset(0x10e),
        ),
        asked("te other than trailers", with(("te", "gzip")), Reset(0x10e)),
        asked(
            "a pseudo-header field behind others",
            with((":path", "/")),
            Reset(0x10e),
        ),
        asked(
            "an unknown pseudo-header field",
            with((":status", "200")),
            Reset(0x10e),
        ),
        asked("a line feed in a value", with(("a", "b\nc")), Reset(0x10e)),
        asked("no path", raw(&GET[..3]), Reset(0x10e)),
        asked("no method", raw(&GET[1..]), Reset(0x10e)),
        asked(
            "less content than announced",
            [with(("content-length", "2")), data()].concat(),
            Reset(0x10e),
        ),
        asked(
            "a pseudo-header field in trailers",
            [page(), headers(&[(":path", "/")])].concat(),
            Reset(0x10e),
        ),
    ]
}

/// Unusual input that is valid and must be accepted.
fn right() -> Vec<Case> {
    let asked = |name, bytes| case(name, On::Request, bytes, Status(200));
    let other = |name, on, bytes| case(name, on, bytes, Status(200));
    let grease = || frame(h3::GREASE, b"what means nothing");
    vec![
        asked(
            "a reserved frame before HEADERS",
            [grease(), page()].concat(),
        ),
        asked(
            "a reserved frame behind HEADERS",
            [page(), grease()].concat(),
        ),
        asked("trailers", [page(), headers(&[("a", "b")])].concat()),
        asked("empty DATA", [page(), frame(h3::DATA, &[])].concat()),
        asked("te: trailers", with(("te", "trailers"))),
        asked(
            "several cookies",
            raw(&[&GET[..], &[("cookie", "a=b"), ("cookie", "c=d")]].concat()),
        ),
        other(
            "a reserved stream",
            On::Uni(h3::GREASE, true),
            b"nothing".to_vec(),
        ),
        other(
            "a reserved frame of the control stream",
            On::Control,
            grease(),
        ),
        other("priorities", On::Control, h3::priority_update(0, "u=0, i")),
        other(
            "an empty encoder stream",
            On::Uni(h3::ENCODER_STREAM, false),
            vec![],
        ),
        other(
            "an empty decoder stream",
            On::Uni(h3::DECODER_STREAM, false),
            vec![],
        ),
        other(
            "GOAWAY of the client",
            On::Control,
            number_frame(h3::GOAWAY, 0),
        ),
        other("MAX_PUSH_ID", On::Control, number_frame(h3::MAX_PUSH_ID, 8)),
    ]
}

/// Every rule in turn; afterwards the server still answers other clients.
#[test]
fn rules_are_enforced_and_nothing_else_is() {
    on_both_engines(|engine| {
        let folder = site();
        let secure = Secure::serve(engine, folder.path(), &FLAGS);
        for Case {
            name,
            on,
            bytes,
            expect,
        } in wrong().into_iter().chain(right())
        {
            let mut quic = Quic::connect(secure.server.address(), &secure.authority);
            let control = quic.open_uni(&h3::control(&[]));
            let id = match on {
                On::Uni(kind, ends) => {
                    let id = quic.open_uni(&[varint(kind), bytes].concat());
                    if ends {
                        quic.finish(id);
                    }
                    None
                }
                On::Control => {
                    quic.write(control, &bytes);
                    None
                }
                On::Request => Some(quic.ask(&bytes)),
            };
            match expect {
                Close(code) => assert_eq!(quic.closed_with(), code, "{name}"),
                Reset(code) => {
                    let id = id.expect("a request");
                    assert_eq!(quic.reset_with(id), code, "{name}");
                    assert_eq!(quic.get("/").status, 200, "after {name}");
                }
                Status(status) => {
                    let id = id.unwrap_or_else(|| quic.ask(&page()));
                    assert_eq!(quic.answer(id).status, status, "{name}");
                }
            }
        }
        assert_eq!(connect(&secure).get("/").status, 200);
    });
}

/// A control stream without SETTINGS, ended or reset; invalid settings.
#[test]
fn the_control_stream_is_critical() {
    on_both_engines(|engine| {
        let folder = site();
        let secure = Secure::serve(engine, folder.path(), &FLAGS);
        let fresh = || Quic::connect(secure.server.address(), &secure.authority);
        let settings: [(&[(u64, u64)], u64); 4] = [
            (&[(0x2, 1)], 0x109),
            (&[(0x4, 1)], 0x109),
            (
                &[
                    (h3::MAX_FIELD_SECTION_SIZE, 1),
                    (h3::MAX_FIELD_SECTION_SIZE, 1),
                ],
                0x109,
            ),
            (&[(0x8, 2)], 0x109),
        ];
        for (settings, code) in settings {
            let mut quic = fresh();
            quic.open_uni(&h3::control(settings));
            assert_eq!(quic.closed_with(), code, "{settings:?}");
        }
        let mut quic = fresh();
        quic.open_uni(&[varint(h3::CONTROL_STREAM), number_frame(h3::GOAWAY, 0)].concat());
        assert_eq!(quic.closed_with(), 0x10a, "no settings");
        let mut quic = fresh();
        let id = quic.open_uni(&h3::control(&[]));
        quic.finish(id);
        assert_eq!(quic.closed_with(), 0x104, "ended");
        let mut quic = fresh();
        let id = quic.open_uni(&h3::control(&[]));
        assert_eq!(
            quic.get("/").status,
            200,
            "after a request, its type has arrived"
        );
        quic.reset(id, 0x100);
        assert_eq!(quic.closed_with(), 0x104, "reset");
    });
}

/// A request is answered before the client's SETTINGS arrive, and with its frames split anywhere.
#[test]
fn frames_may_be_cut_anywhere() {
    on_both_engines(|engine| {
        let folder = site();
        let secure = Secure::serve(engine, folder.path(), &FLAGS);
        let mut quic = Quic::connect(secure.server.address(), &secure.authority);
        let bytes = [page(), frame(h3::DATA, b""), frame(h3::GREASE, b"abc")].concat();
        for cut in 1..bytes.len() {
            let id = quic.open_bi(&bytes[..cut]);
            quic.write(id, &bytes[cut..]);
            quic.finish(id);
            assert_eq!(quic.answer(id).status, 200, "cut at {cut}");
        }
        quic.open_uni(&h3::control(&[]));
        assert_eq!(quic.get("/").status, 200);
    });
}

/// A client may change its port, read only a part of a response, or send datagrams that are not
/// QUIC.
#[test]
fn connections_survive_what_networks_do() {
    on_both_engines(|engine| {
        let folder = site();
        let secure = Secure::serve(engine, folder.path(), &FLAGS);
        let mut quic = connect(&secure);
        assert_eq!(quic.get("/").status, 200);
        quic.rebind();
        let answer = quic.get("/long.bin");
        assert!(answer.body == pattern(LONG, 2));
        for bytes in [&b""[..], b"x", &[0xff; 1200], &[0x40; 30], &[0xc0; 1200]] {
            quic.send_raw(secure.server.address(), bytes);
        }
        let id = quic.ask(&request("GET", "/long.bin", &[]));
        quic.stop(id, h3::REQUEST_CANCELLED);
        assert_eq!(quic.get("/").status, 200);
    });
}

/// A relay in front of a server that reports the length of each datagram the server sends.
fn relay(to: SocketAddr) -> (SocketAddr, Receiver<usize>) {
    let bind = || Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a free port"));
    let (front, back) = (bind(), bind());
    back.connect(to).expect("an address");
    let address = front.local_addr().expect("bound");
    let (tell, told) = channel();
    let (ahead, answers) = (Arc::clone(&back), Arc::clone(&front));
    let client = Arc::new(OnceLock::new());
    let known = Arc::clone(&client);
    thread::spawn(move || {
        let mut buffer = [0; 2_048];
        while let Ok((len, from)) = front.recv_from(&mut buffer) {
            let _ = known.set(from);
            let _ = ahead.send(&buffer[..len]);
        }
    });
    thread::spawn(move || {
        let mut buffer = [0; 2_048];
        while let (Ok(len), Some(client)) = (back.recv(&mut buffer), client.get()) {
            if tell.send(len).is_err() {
                return;
            }
            let _ = answers.send_to(&buffer[..len], client);
        }
    });
    (address, told)
}

/// The server sends 32 datagrams before any acknowledgement (decision 11). With ten, the remaining
/// ones would be probes, which take longer than this test waits.
#[test]
fn an_answer_begins_with_thirty_two_datagrams() {
    on_both_engines(|engine| {
        let folder = site();
        let secure = Secure::serve(engine, folder.path(), &FLAGS);
        let (address, told) = relay(secure.server.address());
        let mut quic = Quic::begin(address, &secure.authority);
        assert_eq!(quic.get("/").status, 200);
        while told.try_recv().is_ok() {}
        // Sends the request, then neither receives nor acknowledges anything.
        quic.ask(&request("GET", "/long.bin", &[]));
        // What is sent again after ever longer pauses adds little meanwhile.
        let end = Instant::now() + Duration::from_secs(20);
        let mut len = 0;
        while len < 32 * 1_200 {
            let left = end.saturating_duration_since(Instant::now());
            len += told
                .recv_timeout(left)
                .unwrap_or_else(|_| panic!("{len} bytes"));
        }
    });
}

/// On shutdown responses are completed, GOAWAY is sent, and no client is left waiting.
#[test]
fn a_stop_finishes_what_was_asked_for() {
    on_both_engines(|engine| {
        let folder = site();
        let secure = Secure::serve(engine, folder.path(), &FLAGS);
        let mut quic = connect(&secure);
        let id = quic.ask(&request("GET", "/long.bin", &[]));
        quic.until("a part of it", |quic| !quic.received(id).bytes.is_empty());
        secure.server.signal(gannet_testkit::Signal::TERM);
        let answer = quic.answer(id);
        assert!(answer.body == pattern(LONG, 2));
        assert_eq!(quic.closed_with(), h3::NO_ERROR);
        secure.server.wait().success();
        let control = quic.control();
        let mut rest = &control[..];
        assert_eq!(take_varint(&mut rest), Some(h3::CONTROL_STREAM));
        let mut frames = std::iter::from_fn(|| h3::Frame::take(&mut rest));
        assert!(frames.any(|frame| frame.kind == h3::GOAWAY), "{control:?}");
    });
}
