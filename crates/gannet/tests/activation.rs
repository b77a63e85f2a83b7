//! Sockets and notifications of a service manager, in whose place the test is.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::thread;

use gannet_testkit::client::{Client, ask, get, metric};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::{Abilities, Authority, KeyKind, connection};
use gannet_testkit::{DEADLINE, Folder, Gannet, Signal, command, left_out, passed, run, tool};

fn serve(sockets: Vec<(OwnedFd, &str)>, engine: Engine, arguments: &[&str]) -> Gannet {
    let all = [&["--engine", engine.name(), "--workers", "2"], arguments].concat();
    let (mut command, _kept) = passed(sockets, &all);
    Gannet::start(&mut command)
}

fn has_bash() -> bool {
    tool("bash", &["--version"])
}

fn tcp() -> (OwnedFd, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("free");
    let address = listener.local_addr().expect("bound");
    (listener.into(), address)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Without names and without `--listen` every listener is served, by all workers.
#[test]
fn all_listeners_are_served() {
    if !has_bash() {
        return;
    }
    let site = Folder::site();
    on_both_engines(|engine| {
        let (first, one) = tcp();
        let (second, other) = tcp();
        let path = site.join(format!("{}.sock", engine.name()));
        let unix = UnixListener::bind(&path).expect("free").into();
        let sockets = vec![(first, ""), (second, "gannet.socket"), (unix, "")];
        let server = serve(sockets, engine, &[text(site.path())]);
        for address in [one, other] {
            for _ in 0..20 {
                Client::connect(address).get("/about").expect(200);
            }
        }
        Client::unix(&path).get("/about").expect(200);
        server.stop().success();
        assert!(path.exists(), "the file belongs to the service manager");
        std::fs::remove_file(&path).expect("made");
    });
}

/// Names say what is spoken; HTTP/3 uses the UDP socket beside HTTPS.
#[test]
fn names_say_what_is_spoken() {
    if !has_bash() {
        return;
    }
    let site = Folder::site();
    let authority = Authority::new();
    let certificate = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    on_both_engines(|engine| {
        // A port that is free for both.
        let (https, udp, secure) = loop {
            let (listener, address) = tcp();
            if let Ok(udp) = UdpSocket::bind(address) {
                break (listener, udp.into(), address);
            }
        };
        let (http, clear) = tcp();
        let (redirect, redirecting) = tcp();
        let (metrics, measured) = tcp();
        let sockets = vec![
            (http, "http"),
            (https, "https"),
            (udp, "quic"),
            (redirect, "redirect"),
            (metrics, "metrics"),
        ];
        let flags = ["--tls-cert", text(&certificate), text(site.path())];
        let server = serve(sockets, engine, &flags);
        assert_eq!(server.metrics(), Some(measured));
        Client::connect(clear).get("/about").expect(200);
        Client::connect(redirecting).get("/about").expect(301);
        let config = authority.client(Abilities::default());
        let tls = connection(&config, "localhost");
        Client::tls(secure, tls).get("/about").expect(200);
        // Both workers get connections, although there is one socket.
        let mut clients: Vec<_> = (0..8).map(|_| Quic::begin(secure, &authority)).collect();
        for client in &mut clients {
            assert_eq!(client.get("/about").status, 200);
        }
        assert_eq!(metric(&server, "gannet_h3_requests_total"), 8);
    });
}

/// `--listen` takes the socket of its address; a socket that nothing uses is an error.
#[test]
fn addresses_take_their_sockets() {
    if !has_bash() {
        return;
    }
    let site = Folder::site();
    on_both_engines(|engine| {
        let (listener, address) = tcp();
        let kept = listener.try_clone().expect("a duplicate");
        let listen = address.to_string();
        let arguments = ["--listen", &*listen, text(site.path())];
        let server = serve(vec![(listener, "")], engine, &arguments);
        assert_eq!(server.address(), address);
        get(&server, "/about").expect(200);
        drop(kept);
        server.stop().success();
    });
    let (listener, address) = tcp();
    let arguments = ["--port", "0", text(site.path())];
    let (mut command, _kept) = passed(vec![(listener, "web")], &arguments);
    run(&mut command).failure(
        2,
        &format!(
            "gannet: nothing uses the service manager's socket '{address}' (named 'web')\n\
             help: without --listen, --port and --expose gannet uses every listener; with them, \
             add --listen with this address, or remove the socket from the unit\n"
        ),
    );
    let path = site.join("own.sock");
    let unix = UnixListener::bind(&path).expect("free").into();
    let listen = format!("unix:{},mode=0660", text(&path));
    let arguments = ["--listen", &listen, text(site.path())];
    let (mut command, _kept) = passed(vec![(unix, "")], &arguments);
    let ended = run(&mut command);
    let expect = "the service manager has made this socket, and decides who may connect";
    assert!(ended.err.contains(expect), "{}", ended.err);
    let connected = UnixDatagram::unbound().expect("a socket");
    let (mut command, _kept) = passed(vec![(connected.into(), "")], &[text(site.path())]);
    let ended = run(&mut command);
    let expect = "gannet: cannot use socket 1 of the service manager: protocol not supported";
    assert!(ended.err.starts_with(expect), "{}", ended.err);
}

/// Sockets for another process are not touched.
#[test]
fn sockets_of_another_process_are_left_alone() {
    if !has_bash() {
        return;
    }
    let site = Folder::site();
    let (listener, address) = tcp();
    let arguments = ["--port", "0", text(site.path())];
    let (mut command, _kept) = passed(vec![(listener, "")], &arguments);
    let server = Gannet::start(command.env("PASSED_TO", "1"));
    assert_ne!(server.address(), address);
    get(&server, "/about").expect(200);
}

/// What a server has told; waits for one that contains the word.
fn told(socket: &UnixDatagram, word: &str) -> String {
    let mut room = [0; 4096];
    loop {
        let len = socket.recv(&mut room).expect("it tells in time");
        let text = String::from_utf8_lossy(&room[..len]).into_owned();
        if text.contains(word) {
            return text;
        }
    }
}

/// The service manager is told of start, reload and stop, at a path and in the abstract namespace.
#[test]
fn the_service_manager_is_told() {
    let site = Folder::site();
    let name = format!("gannet-test-{}", std::process::id());
    let check = |socket: UnixDatagram, name: &str| {
        socket.set_read_timeout(Some(DEADLINE)).expect("a socket");
        let mut command = command();
        command.args(["--port", "0"]).arg(site.path());
        command.env("NOTIFY_SOCKET", name);
        // Another process's.
        command
            .env("WATCHDOG_USEC", "1000")
            .env("WATCHDOG_PID", "1");
        let server = Gannet::start(&mut command);
        assert!(told(&socket, "").starts_with("READY=1\n"));
        server.signal(Signal::HUP);
        let text = told(&socket, "");
        let at = text
            .lines()
            .find_map(|line| line.strip_prefix("MONOTONIC_USEC="));
        assert!(text.starts_with("RELOADING=1\n"), "{text}");
        at.expect(&text).parse::<u64>().expect("a number");
        assert!(told(&socket, "").starts_with("READY=1\n"));
        ask(&server, "GET", "/about", &[]).expect(200);
        server.signal(Signal::TERM);
        assert!(told(&socket, "").starts_with("STOPPING=1\n"));
        server.wait().success();
    };
    let path = site.join("notify");
    check(UnixDatagram::bind(&path).expect("free"), text(&path));
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name);
    match address.and_then(|address| UnixDatagram::bind_addr(&address)) {
        Ok(socket) => check(socket, &format!("@{name}")),
        Err(error) => left_out("abstract Unix addresses", error),
    }
}

/// The watchdog is reset again and again while the workers work, without any request.
#[test]
fn the_watchdog_is_reset() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let path = site.join(format!("watchdog-{}", engine.name()));
        let socket = UnixDatagram::bind(&path).expect("free");
        socket.set_read_timeout(Some(DEADLINE)).expect("a socket");
        let mut command = command();
        command.args(["--engine", engine.name(), "--port", "0"]);
        command.arg(site.path()).env("NOTIFY_SOCKET", &path);
        command.env("WATCHDOG_USEC", "20000");
        let server = Gannet::start(&mut command);
        for _ in 0..3 {
            assert_eq!(told(&socket, "WATCHDOG"), "WATCHDOG=1\n");
        }
        // What comes later must not fill the queue that the end is told in.
        let listener = thread::spawn(move || told(&socket, "STOPPING"));
        server.stop().success();
        listener.join().expect("told");
    });
}
