//! The client against servers that answer wrongly, stall or die: each must fail the run.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    thread,
};

use super::*;

/// Of a run that must fail: a busy machine may not answer the first request within the time of others.
const UNTIL_IT_FAILS: Duration = Duration::from_secs(3600);

/// How the fake server treats a request, by its number over all connections.
type Behaviour = fn(&mut TcpStream, u64) -> bool;

fn good(stream: &mut TcpStream, _: u64) -> bool {
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, World!")
        .is_ok()
}

/// Serves connections one after the other in a thread until the client has gone.
fn serve(behave: Behaviour, connections: usize) -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
    let address = listener.local_addr().expect("bound");
    let server = thread::spawn(move || {
        thread::scope(|scope| {
            for _ in 0..connections {
                let Ok((stream, _)) = listener.accept() else {
                    return;
                };
                scope.spawn(move || converse(stream, behave));
            }
        });
    });
    (address, server)
}

fn converse(mut stream: TcpStream, behave: Behaviour) {
    let mut pending = Vec::new();
    let mut chunk = [0; 1024];
    let mut number = 0;
    while let Ok(count @ 1..) = stream.read(&mut chunk) {
        pending.extend_from_slice(&chunk[..count]);
        while let Some(end) = pending.windows(4).position(|w| w == b"\r\n\r\n") {
            pending.drain(..end + 4);
            if !behave(&mut stream, number) {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
            number += 1;
        }
    }
}

fn targets() -> Vec<Target> {
    let pool: Arc<[u8]> = Arc::from(&b"Hello, World!"[..]);
    vec![Target {
        path: "/hello".into(),
        content: Content::new(pool, 0, 13),
    }]
}

pub(super) fn plan<'a>(
    address: SocketAddr,
    targets: &'a [Target],
    interrupt: &'a AtomicBool,
) -> Plan<'a> {
    Plan {
        connections: 2,
        duration: Duration::from_millis(500),
        ..Plan::one_pass(address, targets, Duration::from_secs(5), interrupt)
    }
}

fn outcome(behave: Behaviour, change: fn(&mut Plan<'_>)) -> Result<Tally, LoadError> {
    let (address, server) = serve(behave, 2);
    let (targets, interrupt) = (targets(), AtomicBool::new(false));
    let mut plan = plan(address, &targets, &interrupt);
    change(&mut plan);
    let result = run(&plan, &mut |_| {});
    // Connections that were never made would keep the server waiting.
    for _ in 0..2 {
        drop(TcpStream::connect(address));
    }
    server.join().expect("the fake server does not panic");
    result
}

fn check_fails(behave: Behaviour, expect: &str) {
    let error = outcome(behave, |plan| plan.duration = UNTIL_IT_FAILS)
        .expect_err("the run must fail")
        .to_string();
    assert!(
        error.contains(expect),
        "{error:?} does not contain {expect:?}"
    );
}

#[test]
fn a_good_server_gives_figures() {
    let mut phases = Vec::new();
    let (address, server) = serve(good, 2);
    let (targets, interrupt) = (targets(), AtomicBool::new(false));
    let plan = plan(address, &targets, &interrupt);
    let tally = run(&plan, &mut |phase| phases.push(phase)).expect("a good server");
    server.join().expect("the fake server does not panic");
    assert_eq!(phases, [Phase::Opens, Phase::Closes]);
    assert!(tally.requests > 0);
    assert_eq!(tally.requests, tally.verified);
    assert_eq!(tally.body_bytes, tally.requests * 13);
    assert_eq!(tally.latency.len(), tally.requests);
    assert_eq!((tally.unserved, tally.reconnects), (0, 0));
}

#[test]
fn a_run_without_duration_asks_for_each_target_once() {
    let tally = outcome(good, |plan| plan.duration = Duration::ZERO).expect("a good server");
    assert!(tally.requests >= 1);
}

#[test]
fn a_burst_asks_on_all_connections_and_waits_for_the_last() {
    let tally = outcome(good, |plan| plan.bursts = true).expect("a good server");
    assert!(!tally.last.is_empty(), "a burst has ended");
    let (fewest, _, most) = tally.served;
    assert!(most - fewest <= 1, "all connections take part in each");
    assert!(tally.last.max() >= tally.latency.min());
}

#[test]
fn wrong_answers_fail_the_run() {
    check_fails(
        |s, _| {
            s.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                .is_ok()
        },
        "status 404 (expected 200)",
    );
    check_fails(
        |s, _| {
            s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nHello, World")
                .is_ok()
        },
        "length 12 (expected 13)",
    );
    check_fails(
        |s, _| {
            s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, Wurld!")
                .is_ok()
        },
        "content differs in bytes 0 to 13",
    );
    check_fails(
        |s, _| {
            s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, World!!")
                .is_ok()
        },
        "1 bytes more than announced",
    );
    check_fails(
        |s, _| s.write_all(b"220 ready\r\n").is_ok(),
        "head: StatusLine",
    );
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain).expect("memory");
    encoder.finish().expect("memory")
}

fn send_gzip(stream: &mut TcpStream, plain: &[u8]) -> bool {
    let coded = gzip(plain);
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        coded.len()
    );
    stream
        .write_all(&[head.as_bytes(), &coded].concat())
        .is_ok()
}

/// The same in chunks of five bytes, in separate writes.
fn send_chunks(stream: &mut TcpStream, plain: &[u8]) -> bool {
    let head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n";
    let coded = gzip(plain);
    let chunk = |chunk: &[u8]| {
        let size = format!("{:x}\r\n", chunk.len());
        [size.as_bytes(), chunk, b"\r\n"].concat()
    };
    let mut writes = vec![head.to_vec()];
    writes.extend(coded.chunks(5).map(chunk));
    writes.push(b"0\r\n\r\n".to_vec());
    writes.iter().all(|bytes| stream.write_all(bytes).is_ok())
}

#[test]
fn codings_that_were_asked_for_are_counted_and_compared() {
    let behaviours: [(Behaviour, u64); 3] = [
        (|s, _| send_gzip(s, b"Hello, World!"), 1),
        (|s, _| send_chunks(s, b"Hello, World!"), 1),
        (good, 0),
    ];
    for (behave, coded) in behaviours {
        let tally = outcome(behave, |plan| plan.codings = "gzip, br").expect("a good server");
        assert!(tally.requests > 0);
        assert_eq!(
            (tally.coded, tally.verified),
            (coded * tally.requests, tally.requests)
        );
        let len = match coded {
            0 => 13,
            _ => gzip(b"Hello, World!").len() as u64,
        };
        assert_eq!(
            tally.wire_bytes,
            (len * tally.requests, 13 * tally.requests)
        );
    }
}

#[test]
fn wrong_coded_answers_fail_the_run() {
    let check = |behave: Behaviour, expect: &str| {
        let error = outcome(behave, |plan| {
            plan.codings = "gzip";
            plan.duration = UNTIL_IT_FAILS;
        })
        .expect_err("wrong");
        assert!(error.to_string().contains(expect), "{error}");
    };
    // The same form over and over, and then another one of the same length.
    check(
        |s, number| {
            send_gzip(
                s,
                if number < 5 {
                    b"Hello, World!"
                } else {
                    b"Hello, Wurld!"
                },
            )
        },
        "Gzip: content differs",
    );
    check(|s, _| send_chunks(s, b"Hello, Wurld!"), "content differs");
    check(|s, _| send_gzip(s, b"Hello, World"), "length 12");
    check(|s, _| send_gzip(s, b"Hello, World!!"), "length 14");
    check(
        |s, _| {
            s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, Wurld!")
                .is_ok()
        },
        "content differs",
    );
    check(
        |s, _| {
            s.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nHello, Wo",
            )
            .is_ok()
        },
        "Gzip: ",
    );
    check(
        |s, _| {
            s.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 9\r\n\r\nHello, Wo",
            )
            .is_ok()
        },
        "Brotli: ",
    );
    // What nobody asked for.
    check_fails(|s, _| send_gzip(s, b"Hello, World!"), "head: ContentCoding");
}

/// The first answers are right, a later one is not: it is found though nothing else is wrong.
#[test]
fn a_late_wrong_answer_fails_the_run() {
    check_fails(
        |stream, number| match number {
            0..5 => good(stream, number),
            _ => stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello, World?")
                .is_ok(),
        },
        "content differs",
    );
}

#[test]
fn a_server_that_dies_fails_the_run() {
    check_fails(|_, _| false, "connection lost at '/hello'");
    check_fails(
        |stream, number| number < 3 && good(stream, number),
        "connection lost at '/hello'",
    );
    check_fails(
        |s, _| {
            let _ = s.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nHello");
            false
        },
        "closed after 5 of 13 content bytes",
    );
}

#[test]
fn a_server_that_stalls_fails_the_run() {
    let stalls: Behaviour = |stream, number| number > 2 || good(stream, number);
    let result = outcome(stalls, |plan| {
        plan.duration = Duration::from_secs(3600);
        plan.stall = Duration::from_millis(30);
    });
    assert!(matches!(result, Err(LoadError::Stalled(_))), "{result:?}");
}

#[test]
fn nobody_listening_fails_the_run() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let (targets, interrupt) = (targets(), AtomicBool::new(false));
    let result = run(&plan(address, &targets, &interrupt), &mut |_| {});
    assert!(matches!(result, Err(LoadError::Refused(_))), "{result:?}");
}

#[test]
fn an_interrupt_ends_the_run() {
    let (targets, interrupt) = (targets(), AtomicBool::new(true));
    let (address, server) = serve(good, 2);
    let result = run(&plan(address, &targets, &interrupt), &mut |_| {});
    for _ in 0..2 {
        drop(TcpStream::connect(address));
    }
    server.join().expect("the fake server does not panic");
    assert_eq!(result.expect_err("interrupted"), LoadError::Interrupted);
}

/// A connection that is accepted but never answered is counted, not averaged away.
#[test]
fn an_unanswered_connection_is_counted() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
    let address = listener.local_addr().expect("bound");
    let server = thread::spawn(move || {
        let (first, _) = listener.accept().expect("the client comes");
        let (silent, _) = listener.accept().expect("and comes again");
        converse(first, good);
        drop(silent);
    });
    let (targets, interrupt) = (targets(), AtomicBool::new(false));
    let tally = run(&plan(address, &targets, &interrupt), &mut |_| {}).expect("figures");
    server.join().expect("the fake server does not panic");
    assert_eq!(tally.unserved, 1);
    assert_eq!(tally.served.0, 0);
}

/// With a connection per request the server's close is part of the answer.
#[test]
fn a_connection_per_request_counts_at_the_close() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
    let address = listener.local_addr().expect("bound");
    let (targets, interrupt) = (targets(), Arc::new(AtomicBool::new(false)));
    let stop = interrupt.clone();
    let server = thread::spawn(move || {
        for _ in 0..8 {
            let (mut stream, _) = listener.accept().expect("the client comes");
            let mut request = [0; 1024];
            let count = stream.read(&mut request).expect("a request");
            let text = String::from_utf8_lossy(&request[..count]).into_owned();
            assert!(text.contains("Connection: close\r\n"), "{text:?}");
            good(&mut stream, 0);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        drop(listener);
    });
    let mut plan = plan(address, &targets, &interrupt);
    plan.keep_alive = false;
    plan.duration = Duration::from_secs(3600);
    let result = run(&plan, &mut |_| {});
    server
        .join()
        .expect("eight connections with a request each");
    // The listener has gone: the client says so, whichever way it noticed first.
    assert!(result.is_err());
}

#[test]
fn content_wraps_around_its_pool() {
    let content = Content::new(Arc::from(&b"abcde"[..]), 3, 9);
    let whole: Vec<u8> = content.pieces(0).flatten().copied().collect();
    assert_eq!(whole, b"deabcdeab");
    for from in 0..9 {
        for to in from..=9 {
            assert!(
                content.matches(from as u64, &whole[from..to]),
                "{from}..{to}"
            );
        }
    }
    assert!(!content.matches(0, b"dea#"));
    assert!(!content.matches(8, b"bc"), "past the end");
}

/// An answer in clear text to a TLS handshake is an error, never a figure.
#[test]
fn a_server_without_tls_fails_the_run() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is there");
    let address = listener.local_addr().expect("bound");
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let (mut stream, _) = listener.accept().expect("the client comes");
            let mut hello = [0; 1024];
            let _ = stream.read(&mut hello);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let (targets, interrupt) = (targets(), AtomicBool::new(false));
    let tls = Tls::new(b"a certificate", false, true).expect("settings are good");
    let mut plan = plan(address, &targets, &interrupt);
    plan.tls = Some(&tls);
    let error = run(&plan, &mut |_| {}).expect_err("the run must fail");
    for _ in 0..2 {
        drop(TcpStream::connect(address));
    }
    server.join().expect("the fake server does not panic");
    assert!(matches!(error, LoadError::Tls(_)), "{error:?}");
}
