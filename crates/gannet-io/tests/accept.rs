//! Accepting: connections arrive, listeners stop, descriptors run out.

mod desk;

use std::io::{ErrorKind, Read};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

use desk::{ACCEPT, Desk, Folder, each};
use gannet_io::driver::{Done, Errno, Listener, Peer, Receipt, SendList, Token};
use gannet_io::epoll::Epoll;
use gannet_io::net;
use gannet_io::options::EngineOptions;
use gannet_io::unix_socket::{self, Access};
use gannet_io::uring::Uring;
use gannet_testkit::left_out;
use rustix::net::{RecvFlags, recv};

/// Every connection is accepted once, with its peer's address.
#[test]
fn accepts_many() {
    each(|mut desk| {
        let clients: Vec<_> = (0..300)
            .map(|_| TcpStream::connect(desk.address).unwrap())
            .collect();
        let mut peers: Vec<_> = (0..300)
            .map(|_| {
                let socket = desk.accepted();
                desk.driver.peer(socket).to_string()
            })
            .collect();
        let mut expected: Vec<_> = clients
            .iter()
            .map(|client| client.local_addr().unwrap().to_string())
            .collect();
        peers.sort();
        expected.sort();
        assert_eq!(peers, expected);
        assert!(desk.settle().is_empty());
    });
}

/// Connections in the queue are delivered before the listener closes; later ones are refused.
#[test]
fn stops_accepting() {
    each(|mut desk| {
        let queued: Vec<_> = (0..20)
            .map(|_| TcpStream::connect(desk.address).unwrap())
            .collect();
        desk.driver.stop_accepting(Listener(0));
        for _ in &queued {
            desk.accepted();
        }
        let address = desk.address;
        desk.turn_until("the listener closed", |_| {
            TcpStream::connect(address)
                .is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
        // A connection made while the listener closed may still have been accepted.
        for completion in desk.settle() {
            assert!(
                matches!(completion.result, Ok(Done::Accepted(_))),
                "{completion:?}"
            );
        }
    });
}

/// A listener that another process has as well, and made non-blocking, is accepted from; after the
/// stop, connections wait in its queue for the other process.
#[test]
fn leaves_a_listener_to_another_process() {
    let options = EngineOptions::default();
    let run = |mut desk: Desk, other: TcpListener| {
        let _first = TcpStream::connect(desk.address).unwrap();
        desk.accepted();
        let waiting = TcpStream::connect(desk.address).unwrap();
        desk.driver.stop_accepting(Listener(0));
        // Until the connection is delivered.
        assert!(desk.driver.may_accept());
        let socket = desk.accepted();
        assert!(!desk.driver.may_accept());
        let peer = waiting.local_addr().unwrap().to_string();
        assert_eq!(desk.driver.peer(socket).to_string(), peer);
        assert!(desk.settle().is_empty());
        let second = TcpStream::connect(desk.address).unwrap();
        assert!(desk.settle().is_empty());
        let mut waiting = None;
        // The kernel may deliver the end of the handshake a moment later.
        desk.turn_until("it waits for the other process", |_| {
            waiting = other.accept().ok();
            waiting.is_some()
        });
        let peer = waiting.map(|(_, peer)| peer);
        assert_eq!(peer, Some(second.local_addr().unwrap()));
    };
    let shared = || {
        let listener = net::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let other = TcpListener::from(listener.try_clone().unwrap());
        other.set_nonblocking(true).unwrap();
        (listener, other)
    };
    let (listener, other) = shared();
    let address = other.local_addr().unwrap();
    match Uring::new(vec![listener], &options) {
        Ok(driver) => run(Desk::new(Box::new(driver), "uring", address), other),
        Err(why) => left_out("io_uring", why),
    }
    let (listener, other) = shared();
    let address = other.local_addr().unwrap();
    let driver = Epoll::new(vec![listener], &options).unwrap();
    run(Desk::new(Box::new(driver), "epoll", address), other);
}

/// Unix sockets: the peer is `unix`, bytes go both ways.
#[test]
fn accepts_unix() {
    let folder = Folder::new("accept-unix");
    let options = EngineOptions::default();
    let path = folder.path().join("socket");
    let run = |mut desk: Desk| {
        let mut client = UnixStream::connect(&path).unwrap();
        let socket = desk.accepted();
        assert_eq!(desk.driver.peer(socket), Peer::Unix);
        desk.driver.receive(socket, Token(1));
        std::io::Write::write_all(&mut client, b"hello").unwrap();
        assert_eq!(desk.received(Token(1)), b"hello");
        let list = SendList {
            wire: b"world".to_vec(),
            ..SendList::default()
        };
        desk.driver.send(socket, Token(2), list);
        assert_eq!(desk.sent(Token(2)), Ok(5));
        // Pages may be lent: it is known when the peer has read them, and looking at them is not reading.
        assert_eq!(desk.driver.receipt(socket), Receipt::Read);
        let mut answer = [0; 5];
        for flags in [RecvFlags::PEEK, RecvFlags::empty()] {
            assert_eq!(desk.driver.received_by_peer(socket), 0);
            let (count, _) = recv(&client, &mut answer, flags).unwrap();
            assert_eq!((count, &answer), (5, b"world"));
        }
        desk.turn_until("everything was acknowledged", |desk| {
            desk.driver.acknowledged(socket) == 5 && desk.driver.received_by_peer(socket) == 5
        });
        // More than the socket holds: progress is visible before the send has ended.
        let content = desk::pattern(2 << 20);
        let list = SendList {
            wire: content.clone(),
            ..SendList::default()
        };
        desk.driver.send(socket, Token(3), list);
        let first = std::thread::spawn(move || {
            let mut got = vec![0; 1 << 20];
            client.read_exact(&mut got).unwrap();
            (client, got)
        });
        desk.turn_until("a part was read", |_| first.is_finished());
        assert!(desk.driver.acknowledged(socket) > 1 << 19);
        let (mut client, mut got) = first.join().unwrap();
        let second = std::thread::spawn(move || {
            let mut rest = vec![0; 1 << 20];
            client.read_exact(&mut rest).unwrap();
            got.extend(rest);
            got
        });
        assert_eq!(desk.sent(Token(3)), Ok(2 << 20));
        assert!(second.join().unwrap() == content);
    };
    let nowhere = "0.0.0.0:0".parse().unwrap();
    let listener = || {
        let (socket, mut file) = unix_socket::bind(&path, &Access::default()).unwrap();
        file.publish().unwrap();
        (socket, file)
    };
    let (socket, file) = listener();
    match Uring::new(vec![socket], &options) {
        Ok(driver) => run(Desk::new(Box::new(driver), "uring", nowhere)),
        Err(why) => left_out("io_uring", why),
    }
    drop(file);
    let (socket, _file) = listener();
    let driver = Epoll::new(vec![socket], &options).unwrap();
    run(Desk::new(Box::new(driver), "epoll", nowhere));
}

/// Without free descriptors accepting ends with EMFILE, and continues on the next call.
#[test]
fn survives_running_out_of_descriptors() {
    if std::env::var_os("GANNET_TEST_CHILD").is_none() {
        // The limit applies to the process: it must not affect other tests.
        let output = desk::in_child("survives_running_out_of_descriptors", "limit");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&output.stdout)
        );
        return;
    }
    let resource = rustix::process::Resource::Nofile;
    let old = rustix::process::getrlimit(resource);
    let limit = rustix::process::Rlimit {
        current: Some(80),
        ..old
    };
    rustix::process::setrlimit(resource, limit).unwrap();
    each(|mut desk| {
        // Clients take all descriptors, then return one: not enough for all connections in the
        // queue.
        let mut clients = Vec::new();
        let refused = loop {
            match TcpStream::connect(desk.address) {
                Ok(client) => clients.push(client),
                Err(error) => break error,
            }
        };
        assert_eq!(refused.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
        clients.pop();
        let first = desk.accepted();
        let completion = desk.next();
        assert_eq!(completion.token, ACCEPT);
        assert!(
            matches!(completion.result, Err(Errno::MFILE)),
            "{completion:?}"
        );
        assert!(!completion.more);
        assert!(desk.settle().is_empty(), "{}: no busy loop", desk.engine);
        desk.driver.close(first);
        desk.driver.accept(Listener(0), ACCEPT);
        desk.accepted();
    });
}
