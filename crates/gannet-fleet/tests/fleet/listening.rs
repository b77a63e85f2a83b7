//! Receivers behind a socket, and clients that flood them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver as Inbox, channel};
use std::thread;
use std::time::{Duration, Instant};

use gannet_fleet::limits::REFUSALS_REPORTED;
use gannet_fleet::{
    Bounds, Counted, Identity, Listener, Outcome, PushError, Pushed, Report, Target,
};
use gannet_store::{Pointer, Publisher, Store};
use gannet_testkit::DEADLINE;

use crate::receiving::signed;
use crate::stores::{Fleet, now};

/// Of which nothing in a test is to come.
const NEVER: Duration = Duration::from_secs(3600);
/// Which passes soon.
const SOON: Duration = Duration::from_millis(500);

const PATIENT: Bounds = Bounds {
    greeting: NEVER,
    window: NEVER,
    least: 0,
    whole: NEVER,
};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nX: y\r\nUpgrade: Gannet-Publish\r\n\r\n";

/// Receives for the copy of a fleet until the process ends; returns where, and what is reported.
fn listen(fleet: &Fleet, bounds: Bounds, most: usize) -> (SocketAddr, Inbox<Report>) {
    listen_and_count(fleet, bounds, most, |_| {})
}

/// The same, with a counter.
fn listen_and_count(
    fleet: &Fleet,
    bounds: Bounds,
    most: usize,
    count: impl Fn(Counted<'_>) + Send + Sync + 'static,
) -> (SocketAddr, Inbox<Report>) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut listener = Listener::new(fleet.receiver(), Identity::default(), now);
    (listener.bounds, listener.most) = (bounds, most);
    let (sender, reports) = channel();
    thread::spawn(move || {
        let report = |report| {
            // A test that has ended reads no more.
            let _ = sender.send(report);
        };
        listener.run(&socket, &report, &count)
    });
    (address, reports)
}

fn push(fleet: &Fleet, pointer: &Pointer, address: SocketAddr) -> Result<Pushed, PushError> {
    push_text(fleet, pointer, &signed(fleet, pointer), address)
}

fn push_text(
    fleet: &Fleet,
    pointer: &Pointer,
    text: &str,
    address: SocketAddr,
) -> Result<Pushed, PushError> {
    let store = Store::open(&fleet.store(), None).unwrap();
    let file = File::open(store.release_path(pointer.release)).unwrap();
    let target = Target::parse(&format!("http://{address}/any/path")).unwrap();
    target.push(text, (&file, pointer.size), true)
}

fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).unwrap()
}

/// Sends this and returns what comes until the other side closes.
fn all(mut stream: TcpStream, sent: &[u8]) -> String {
    // It may close before it has read all.
    let _ = stream.write_all(sent);
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
    }
    String::from_utf8(answer).unwrap()
}

/// The connection of a publisher that has shown its pointer, and was asked for the first range.
fn uploading(fleet: &Fleet, pointer: &Pointer, address: SocketAddr) -> TcpStream {
    let text = signed(fleet, pointer);
    let mut stream = connect(address);
    stream.write_all(REQUEST).unwrap();
    let hello = format!("gannet publish 1 {}\n{text}", text.len());
    stream.write_all(hello.as_bytes()).unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"send 0 4096\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        seen.extend(byte);
    }
    assert!(seen.starts_with(b"HTTP/1.1 101 "));
    stream
}

#[test]
fn a_release_comes_by_http_and_what_is_known_costs_nothing() {
    let fleet = Fleet::signed();
    let (address, reports) = listen(&fleet, PATIENT, 4);
    let first = fleet.publish(b'a');
    let pushed = push(&fleet, &first, address).unwrap();
    assert!(pushed.bytes > 0);
    fleet.is_copied();
    let outcome = || match reports.recv().unwrap() {
        Report::Received(received) => received.outcome,
        other => panic!("{other:?}"),
    };
    assert_eq!(outcome(), Outcome::Activated);
    // Nor does it take the lock, which another one has.
    let second = fleet.publish(b'b');
    let _busy = uploading(&fleet, &second, address);
    assert_eq!(push(&fleet, &first, address).unwrap().bytes, 0);
    assert_eq!(outcome(), Outcome::NoNews);
    let refused = push(&fleet, &second, address).unwrap_err().to_string();
    assert!(
        refused.contains("another publisher is at work"),
        "{refused}"
    );
}

/// An upload takes long, and may be killed.
#[test]
fn bytes_are_counted_as_they_come() {
    let fleet = Fleet::signed();
    let (sender, counted) = channel();
    let count = move |event: Counted<'_>| {
        if let Counted::Bytes(len) = event {
            // A test that has ended reads no more.
            let _ = sender.send(len);
        }
    };
    let (address, _reports) = listen_and_count(&fleet, PATIENT, 4, count);
    let pointer = fleet.publish(b'a');
    let mut upload = uploading(&fleet, &pointer, address);
    upload.write_all(&[0; 1000]).unwrap();
    let mut bytes = 0;
    while bytes < 1000 {
        bytes += counted.recv_timeout(DEADLINE).unwrap();
    }
    assert_eq!(bytes, 1000);
}

/// Of those that bring the same one, the later ones find it in force.
#[test]
fn a_release_comes_into_force_once() {
    let fleet = Fleet::signed();
    let pointer = fleet.publish(b'a');
    let busy = Publisher::open(&fleet.copy(), "ann", now()).unwrap();
    let listening = [(); 2].map(|()| listen(&fleet, PATIENT, 4));
    thread::scope(|scope| {
        let pushed = listening.each_ref().map(|(address, _)| {
            let (sender, pushed) = channel();
            for sender in [sender.clone(), sender] {
                let (fleet, pointer, address) = (&fleet, &pointer, *address);
                scope.spawn(move || sender.send(push(fleet, pointer, address)).unwrap());
            }
            pushed
        });
        // Where one is refused, the other one waits.
        for pushed in &pushed {
            pushed.recv().unwrap().unwrap_err();
        }
        drop(busy);
        for pushed in &pushed {
            pushed.recv().unwrap().unwrap();
        }
    });
    let outcomes = listening.map(|(_, reports)| {
        reports
            .iter()
            .find_map(|report| match report {
                Report::Received(received) => Some(received.outcome),
                _ => None,
            })
            .expect("one is received")
    });
    assert!(outcomes.contains(&Outcome::Activated) && outcomes.contains(&Outcome::NoNews));
}

/// A publisher that has brought a release comes again at once, to activate it: the receiver may not have noticed that
/// the first conversation has ended. Those who have only seen a pointer do not have all places by waiting.
#[test]
fn one_waits_for_the_store_and_others_are_refused_at_once() {
    let fleet = Fleet::signed();
    let (address, _reports) = listen(&fleet, PATIENT, 4);
    let pointer = fleet.publish(b'a');
    let before = uploading(&fleet, &pointer, address);
    let text = signed(&fleet, &pointer);
    let hello = format!("gannet publish 1 {}\n{text}", text.len());
    let hello = [REQUEST, hello.as_bytes()].concat();
    let (sender, lines) = channel();
    for _ in 0..3 {
        let mut stream = connect(address);
        stream.write_all(&hello).unwrap();
        let sender = sender.clone();
        thread::spawn(move || {
            let mut said = BufReader::new(&stream).lines().map(Result::unwrap);
            said.find(String::is_empty).expect("the end of the answer");
            let line = said.next().expect("a line");
            sender.send((line, stream)).unwrap();
        });
    }
    for _ in 0..2 {
        let (line, _) = lines.recv().unwrap();
        assert!(line.starts_with("refused "), "{line}");
    }
    drop(before);
    let (line, _waiting) = lines.recv().unwrap();
    assert_eq!(line, "send 0 4096");
}

#[test]
fn what_asks_for_something_else_is_turned_away() {
    let fleet = Fleet::signed();
    let (address, _reports) = listen(&fleet, PATIENT, 4);
    let endless = [b"GET / HTTP/1.1\r\na: ".to_vec(), vec![b'a'; 1 << 20]].concat();
    let other = b"GET / HTTP/1.1\r\nupgrade: websocket\r\n\r\n".to_vec();
    for (request, is_answered) in [(other, true), (endless, false)] {
        let answer = all(connect(address), &request);
        let is_refusal = answer.starts_with("HTTP/1.1 426 Upgrade Required\r\n");
        assert!(is_refusal || !is_answered && answer.is_empty(), "{answer}");
    }
    let greeting = [REQUEST, b"gannet publish 2 10\n"].concat();
    let answer = all(connect(address), &greeting);
    let (_, line) = answer.split_once("\r\n\r\n").unwrap();
    assert!(line.starts_with("refused "), "{line}");
    // Nothing was made.
    assert!(!fleet.copy().exists());
}

#[test]
fn a_flood_of_clients_that_wait_keeps_no_publisher_out() {
    const MOST: usize = 4;
    let fleet = Fleet::signed();
    let (address, _reports) = listen(&fleet, PATIENT, MOST);
    let first = fleet.publish(b'a');
    let mut waiting: Vec<_> = (0..3 * MOST).map(|_| connect(address)).collect();
    // As many stay as there are places; the oldest others are ended.
    for ended in waiting.drain(..2 * MOST) {
        assert_eq!(all(ended, b""), "");
    }
    push(&fleet, &first, address).unwrap();
    fleet.is_copied();
    // One that uploads is never ended by those that come after it.
    let second = fleet.publish(b'b');
    let mut busy = uploading(&fleet, &second, address);
    let more: Vec<_> = (0..3 * MOST).map(|_| connect(address)).collect();
    for ended in more.into_iter().take(2 * MOST) {
        assert_eq!(all(ended, b""), "");
    }
    let store = Store::open(&fleet.store(), None).unwrap();
    let mut file = File::open(store.release_path(second.release)).unwrap();
    let mut superblock = vec![0; 4096];
    file.read_exact(&mut superblock).unwrap();
    busy.write_all(&superblock).unwrap();
    let mut line = [0; 5];
    busy.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"send ");
}

#[test]
fn an_address_that_comes_often_ends_its_own_connections() {
    const MOST: usize = 4;
    let fleet = Fleet::signed();
    let (address, _reports) = listen(&fleet, PATIENT, MOST);
    let first = fleet.publish(b'a');
    let text = signed(&fleet, &first);
    // All of 127.0.0.0/8 is this machine.
    let mut slow = TcpStream::connect(address).unwrap();
    let other: SocketAddr = "127.0.0.2:0".parse().unwrap();
    let flood = || {
        let socket = rustix::net::socket(
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
            None,
        );
        let socket = socket.unwrap();
        rustix::net::bind(&socket, &other).unwrap();
        rustix::net::connect(&socket, &address).unwrap();
        TcpStream::from(socket)
    };
    let more: Vec<_> = (0..3 * MOST).map(|_| flood()).collect();
    for ended in more.into_iter().take(2 * MOST) {
        assert_eq!(all(ended, b""), "");
    }
    slow.write_all(REQUEST).unwrap();
    let hello = format!("gannet publish 1 {}\n{text}", text.len());
    slow.write_all(hello.as_bytes()).unwrap();
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 101");
}

#[test]
fn who_holds_an_upload_by_an_older_pointer_gives_way() {
    let fleet = Fleet::signed();
    let (address, _reports) = listen(&fleet, PATIENT, 4);
    let first = fleet.publish(b'a');
    let held = uploading(&fleet, &first, address);
    push(&fleet, &first, address).unwrap_err();
    let second = fleet.publish(b'b');
    push(&fleet, &second, address).unwrap();
    let copy = Store::open(&fleet.copy(), None).unwrap();
    assert_eq!(copy.pointer().unwrap(), second);
    assert_eq!(all(held, b""), "");
}

#[test]
fn who_is_slow_is_ended_and_holds_nothing() {
    let fleet = Fleet::signed();
    let bounds = Bounds {
        greeting: SOON,
        ..PATIENT
    };
    let (address, _reports) = listen(&fleet, bounds, 4);
    assert_eq!(all(connect(address), &REQUEST[..REQUEST.len() - 1]), "");
    let pointer = fleet.publish(b'a');
    for bounds in [
        Bounds {
            window: SOON,
            least: 1 << 20,
            ..PATIENT
        },
        Bounds {
            whole: SOON,
            ..PATIENT
        },
    ] {
        let (address, reports) = listen(&fleet, bounds, 4);
        let text = signed(&fleet, &pointer);
        let hello = format!("gannet publish 1 {}\n{text}", text.len());
        // Less than it has to bring. On a busy machine it may be ended before it is asked for that.
        let sent = [REQUEST, hello.as_bytes(), &[0; 100]].concat();
        let end = Instant::now() + DEADLINE;
        while !all(connect(address), &sent).ends_with("send 0 4096\n") {
            assert!(Instant::now() < end, "it is never asked");
        }
        assert!(matches!(reports.recv().unwrap(), Report::Refused(_)));
    }
    // The store is free again, and nothing of that is in force.
    let (address, _reports) = listen(&fleet, PATIENT, 4);
    push(&fleet, &pointer, address).unwrap();
    fleet.is_copied();
}

#[test]
fn who_has_no_key_fills_no_log() {
    let fleet = Fleet::signed();
    let (address, reports) = listen(&fleet, PATIENT, 4);
    let pointer = fleet.publish(b'a');
    let text = signed(&fleet, &pointer);
    let foreign = Fleet::signed().text(&pointer);
    for _ in 0..2 * REFUSALS_REPORTED {
        for text in [
            &*foreign,
            &pointer.to_text(),
            &text.replace("serial 1", "serial 2"),
        ] {
            let refused = push_text(&fleet, &pointer, text, address).unwrap_err();
            assert!(matches!(refused, PushError::Refused(_)), "{refused}");
        }
    }
    push(&fleet, &pointer, address).unwrap();
    let mut unknown = 0;
    loop {
        match reports.recv().unwrap() {
            Report::Unknown(_) => unknown += 1,
            Report::Received(received) => break assert_eq!(received.pointer, pointer),
            Report::Refused(error) => panic!("{error}"),
        }
    }
    assert_eq!(unknown, 3);
    // Nor who has seen pointers that were in force, or the one that is.
    let second = fleet.publish(b'b');
    push(&fleet, &second, address).unwrap();
    // What was refused before it is in force is reported once more afterwards.
    let is_second = |it: &Report| matches!(it, Report::Received(it) if it.pointer == second);
    while !is_second(&reports.recv().unwrap()) {}
    for _ in 0..2 * REFUSALS_REPORTED {
        push(&fleet, &pointer, address).unwrap_err();
        assert_eq!(push(&fleet, &second, address).unwrap().bytes, 0);
    }
    let third = fleet.publish(b'c');
    push(&fleet, &third, address).unwrap();
    let mut known = Vec::new();
    loop {
        match reports.recv().unwrap() {
            Report::Refused(error) => known.push(error.to_string()),
            Report::Received(received) if received.pointer == third => break,
            Report::Received(_) | Report::Unknown(_) => {}
        }
    }
    assert_eq!(known.len(), 1, "{known:?}");
}

#[test]
fn a_target_is_https_or_on_this_machine() {
    for good in [
        "https://example.org",
        "https://example.org:8444/publish",
        "http://127.0.0.1:8444",
        "http://[::1]:8444/",
        "http://localhost:8444",
    ] {
        let shown = Target::parse(good).unwrap().to_string();
        assert_eq!(shown, good.trim_end_matches('/'));
    }
    for bad in [
        "",
        "example.org",
        "http://example.org",
        "http://192.0.2.1:80",
        "ftp://example.org",
        "https://ann:secret@example.org",
        "https://example.org/?key",
        "https://example.org/#key",
    ] {
        Target::parse(bad).unwrap_err();
    }
}
