//! HTTP/3 as an operator sees it: when and where it is enabled, and how responses announce it.

use std::net::UdpSocket;

use gannet_testkit::client::Client;
use gannet_testkit::configuration::Configuration;
use gannet_testkit::content::pattern;
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::h2::Peer;
use gannet_testkit::h3::{self, request};
use gannet_testkit::process::datagram_ports;
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, FreePort, Signal, gannet};

fn connect(secure: &Secure) -> Quic {
    Quic::begin(secure.server.address(), &secure.authority)
}

fn line<'a>(secure: &'a Secure, start: &str) -> Option<&'a str> {
    let mut lines = secure.server.start_lines().iter();
    lines.find_map(|line| line.strip_prefix(start))
}

/// The `alt-svc` field of responses over HTTP/1.1 and HTTP/2, which must be equal.
fn announced(secure: &Secure) -> Option<String> {
    let one = secure.connect().get("/").expect(200);
    let two = Peer::secure(secure, &[]).get("/").expect(200);
    let [one, two] = [one.field("alt-svc"), two.field("alt-svc")].map(|it| it.map(str::to_owned));
    assert_eq!(one, two);
    one
}

/// It is enabled wherever HTTPS is, unless turned off, and announced as configured.
#[test]
fn it_is_spoken_and_announced() {
    let folder = Folder::site();
    on_both_engines(|engine| {
        let serve = |flags: &[&str]| Secure::serve(engine, folder.path(), flags);
        let announcing = |value: &str, flags: &[&str]| {
            let config = Configuration::new(&format!("alt-svc = '{value}'"));
            serve(&[&config.flags(), flags].concat())
        };
        let secure = serve(&[]);
        let address = secure.server.address();
        let at = format!("http3    at UDP {address}");
        assert!(secure.server.start_lines().contains(&at));
        assert!(datagram_ports(&secure.server).contains(&address.port()));
        assert_eq!(connect(&secure).get("/").status, 200);
        let port = address.port();
        assert_eq!(
            announced(&secure),
            Some(format!("h3=\":{port}\"; ma=86400"))
        );
        let secure = announcing("h3=\":443\"; ma=60", &[]);
        assert_eq!(announced(&secure).as_deref(), Some("h3=\":443\"; ma=60"));
        let secure = announcing("", &[]);
        assert_eq!(announced(&secure), None);
        assert_eq!(connect(&secure).get("/").status, 200);
        let secure = serve(&["--header", "alt-svc: h3=\":9\""]);
        assert_eq!(announced(&secure).as_deref(), Some("h3=\":9\""));
        let secure = serve(&["--http=1,2"]);
        assert_eq!((announced(&secure), line(&secure, "http3 ")), (None, None));
        assert_eq!(datagram_ports(&secure.server), [0; 0]);
        let secure = announcing("clear", &["--http=1,2"]);
        assert_eq!(announced(&secure).as_deref(), Some("clear"));
        // With cleartext listeners only, there is no HTTP/3 and no announcement.
        let server = engine.serve(folder.path(), &[]);
        let answer = Client::new(&server).get("/").expect(200);
        assert_eq!(answer.field("alt-svc"), None);
        assert_eq!(datagram_ports(&server), [0; 0]);
    });
}

/// A port that is free for TCP, and taken for UDP.
fn taken_by_udp() -> (UdpSocket, FreePort) {
    loop {
        let free = FreePort::new();
        if let Ok(taken) = UdpSocket::bind(free.address()) {
            return (taken, free);
        }
    }
}

/// What to do then.
const TAKEN: &str = "another program has the UDP port: stop it ('ss -ulnp' lists it), choose another \
                     --port, or leave HTTP/3 out with --http 1,2";

/// If the UDP port is taken, HTTPS works without HTTP/3 and the reason is reported; port 0 gives a
/// port that is free for both.
#[test]
fn a_taken_port_leaves_https() {
    let folder = Folder::site();
    on_both_engines(|engine| {
        let (_taken, free) = taken_by_udp();
        let address = free.address();
        let port = address.port().to_string();
        let secure = Secure::serve(engine, folder.path(), &["--port", &port]);
        let expect = format!(
            "http3    without HTTP/3 at UDP {address}: address already in use (EADDRINUSE)"
        );
        let lines = secure.server.start_lines();
        let at = lines.iter().position(|line| *line == expect);
        let at = at.unwrap_or_else(|| panic!("{lines:?}"));
        assert_eq!(lines[at + 1], format!("           {TAKEN}"));
        assert_eq!(announced(&secure), None);
    });
}

/// A check of the configuration reports the same.
#[test]
fn a_check_tells_of_a_taken_port() {
    let folder = Folder::site();
    let (_taken, free) = taken_by_udp();
    let address = free.address();
    let authority = gannet_testkit::tls::Authority::new();
    let kind = gannet_testkit::tls::KeyKind::P256;
    let file = authority.issue("site.pem", kind, &["localhost"]);
    let arguments = ["serve", "--check-config", "--port"].map(std::ffi::OsString::from);
    let port = address.port().to_string();
    let rest = [
        port.into(),
        "--tls-cert".into(),
        file.into(),
        folder.path().into(),
    ];
    let ended = gannet(arguments.into_iter().chain(rest)).success();
    let note = format!(
        "note     without HTTP/3 at UDP {address}: address already in use (EADDRINUSE); {TAKEN}\n\
         the configuration is valid\n"
    );
    assert!(ended.text().ends_with(&note), "{}", ended.text());
}

/// Flags that could have no effect are refused.
#[test]
fn flags_need_https_and_each_other() {
    let folder = Folder::site();
    let serve = |flags: &[&str]| {
        let path = folder.path().to_str().expect("UTF-8");
        gannet([&["serve", path][..], flags].concat())
    };
    let clear = Configuration::new("alt-svc = 'clear'");
    serve(&clear.flags()).failure(
        2,
        "gannet: 'alt-svc' makes no sense without HTTPS\nhelp: add --tls-cert FILE, or --tls\n",
    );
    serve(&["--http", "3"]).failure(
        2,
        "gannet: --http 3 leaves no version for clear text\nhelp: add 1 or 2, or --tls-cert FILE\n",
    );
    let wrong = Configuration::new("tls = true\nalt-svc = 'h3=:443'");
    let file = wrong.path().display();
    let expect = format!(
        "gannet: cannot use '{file}': line 2: alt-svc: :443 must be in quotation marks: h3=\":443\"\n\
         help: 'gannet --help-all' lists the values of each key\n"
    );
    serve(&wrong.flags()).failure(2, &expect);
    let twice = Configuration::new("tls = true\nalt-svc = 'clear'\nheader = 'alt-svc: clear'");
    serve(&twice.flags()).failure(
        2,
        "gannet: 'alt-svc' in the configuration has no effect with --header 'alt-svc: ...'\nhelp: leave one of them out\n",
    );
}

/// The summary for SIGUSR1 includes HTTP/3.
#[test]
fn the_summary_has_it() {
    let folder = Folder::site();
    on_both_engines(|engine| {
        let mut secure = Secure::serve(engine, folder.path(), &["--quiet=false"]);
        let mut quic = connect(&secure);
        assert_eq!(quic.get("/").status, 200);
        assert_eq!(quic.get("/about").status, 200);
        secure.server.signal(Signal::USR1);
        loop {
            let line = secure.server.next_error_line().expect("a line of it");
            if line.starts_with("tls: ") {
                assert!(line.contains("handshakes 1, resumed 0, failed 0"), "{line}");
            }
            if line.starts_with("HTTP/3: ") {
                let expect = "HTTP/3: requests 2, streams reset 0, errors 0; datagrams ";
                assert!(line.starts_with(expect), "{line}");
                return;
            }
        }
    });
}

/// With an address that other machines can reach, the record for the DNS is shown.
#[test]
fn the_record_for_the_dns() {
    let folder = Folder::site();
    let authority = gannet_testkit::tls::Authority::new();
    let kind = gannet_testkit::tls::KeyKind::P256;
    let names = ["*.example.org", "example.org", "www.example.org"];
    let file = authority.issue("site.pem", kind, &names);
    let file = file.to_str().expect("UTF-8");
    let serve = |flags: &[&str]| {
        let flags = [&["--tls-cert", file], flags].concat();
        Engine::Epoll.serve(folder.path(), &flags)
    };
    let server = serve(&["--expose"]);
    let port = server.address().port();
    let expect = [
        format!(
            "         for the DNS: _{port}._https.example.org. 3600 IN HTTPS 1 example.org. \
             alpn=\"h3,h2,http/1.1\" port={port}"
        ),
        "         and the same for 1 other name".to_owned(),
    ];
    let lines = server.start_lines();
    let at = format!("http3    at UDP 0.0.0.0:{port}");
    let at = lines.iter().position(|line| line.starts_with(&at));
    let at = at.unwrap_or_else(|| panic!("{lines:?}"));
    assert_eq!(lines[at + 1..at + 3], expect);
    let silent = Configuration::new("expose = true\nalt-svc = ''");
    for flags in [&[][..], &silent.flags()] {
        let lines = serve(flags).start_lines().join("\n");
        assert!(!lines.contains("for the DNS"), "{lines}");
    }
}

const LONG: usize = 6 << 20;

fn long_files() -> Folder {
    let folder = Folder::site();
    folder.write("image.bin", pattern(LONG, 2));
    folder.write("photo.bin", pattern(LONG, 3));
    folder.write("style.css", pattern(40_000, 4));
    folder
}

/// An urgent response overtakes an earlier one that is being sent, whether its priority comes from
/// the field or from a later frame. Only bytes already sent come before it.
#[test]
fn urgent_answers_overtake() {
    let folder = long_files();
    let archive = folder.path().with_extension("gannet");
    let arguments = ["pack".into(), folder.path().to_path_buf(), "-o".into()];
    gannet(
        arguments
            .into_iter()
            .chain([archive.clone(), "--fast".into()]),
    )
    .success();
    on_both_engines(|engine| {
        let come = |quic: &Quic, id| quic.received(id).bytes.len();
        for content in [folder.path(), &archive] {
            let secure = Secure::serve(engine, content, &["--workers", "1"]);
            let mut quic = Quic::connect(secure.server.address(), &secure.authority);
            let control = quic.open_uni(&h3::control(&[]));
            let get = |path, priority| request("GET", path, &[("priority", priority)]);
            let image = quic.ask(&get("/image.bin", "u=4"));
            quic.until("a part of it", |quic| come(quic, image) > 20_000);
            let style = quic.ask(&get("/style.css", "u=0"));
            assert!(quic.answer(style).body == pattern(40_000, 4));
            assert!(come(&quic, image) < LONG / 4, "{}", come(&quic, image));
            let photo = quic.ask(&get("/photo.bin", "u=6"));
            let number = u64::from(photo);
            quic.write(control, &h3::priority_update(number, "u=1"));
            assert!(quic.answer(photo).body == pattern(LONG, 3));
            assert!(come(&quic, image) < LONG / 2, "{}", come(&quic, image));
            assert!(quic.answer(image).body == pattern(LONG, 2));
        }
    });
    std::fs::remove_file(archive).expect("it was made");
}

/// With equal urgency, responses are sent in the order of requests; incremental responses share the
/// path.
#[test]
fn incremental_answers_share() {
    let folder = long_files();
    on_both_engines(|engine| {
        let come = |quic: &Quic, id| quic.received(id).bytes.len();
        let secure = Secure::serve(engine, folder.path(), &["--workers", "1"]);
        for (priority, least) in [("u=2", 0), ("u=2, i", LONG / 2)] {
            let mut quic = connect(&secure);
            let get = |path| request("GET", path, &[("priority", priority)]);
            let image = quic.ask(&get("/image.bin"));
            let photo = quic.ask(&get("/photo.bin"));
            assert!(quic.answer(image).body == pattern(LONG, 2));
            let other = come(&quic, photo);
            let most = if least == 0 { LONG / 4 } else { LONG + 1_000 };
            assert!((least..most).contains(&other), "{priority}: {other}");
            assert!(quic.answer(photo).body == pattern(LONG, 3));
        }
    });
}
