//! What publishers and receivers of 0.1 say to each other, which every later version understands. Never change what
//! is said here.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;

use gannet_fleet::{Identity, Listener, PushError, Pushed, Receiver, Target};
use gannet_store::Store;
use gannet_testkit::Folder;

use crate::stores::now;

const OPENING: &str = "GET / HTTP/1.1\r\nhost: web1.example\r\nconnection: upgrade\r\nupgrade: gannet-publish\r\n\r\n";
const ACCEPTED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: gannet-publish\r\n\r\n";

fn frozen() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../gannet/tests/frozen/0.1")
}

/// The pointer in force of the store that 0.1 has made, as it was signed, and the file of its release.
fn release() -> (String, PathBuf) {
    let store = Store::open(&frozen().join("store"), None).unwrap();
    let text = fs::read_to_string(frozen().join("store/current")).unwrap();
    (text, store.release_path(store.pointer().unwrap().release))
}

/// One side of a conversation.
struct Side(BufReader<TcpStream>);

impl Side {
    fn connect(address: SocketAddr) -> Self {
        Self(BufReader::new(TcpStream::connect(address).unwrap()))
    }

    fn say(&mut self, text: &str) {
        self.send(text.as_bytes());
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line
    }

    fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let line = self.hear();
            assert!(!line.is_empty(), "{head}");
            head += &line;
        }
        head
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }
}

#[test]
fn a_publisher_of_0_1_is_understood() {
    let (text, file) = release();
    let file = fs::read(file).unwrap();
    let folder = Folder::new();
    let receiver = Receiver {
        folder: folder.join("store"),
        key: fs::read_to_string(frozen().join("key.pub")).unwrap(),
        disk_max: 1 << 30,
        name: "node".into(),
    };
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let listener = Listener::new(receiver, Identity::default(), now);
    thread::spawn(move || listener.run(&socket, &|_| {}, &|_| {}));
    let mut publisher = Side::connect(address);
    publisher.say(OPENING);
    let head = publisher.head();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("\r\nupgrade: gannet-publish\r\n"), "{head}");
    publisher.say(&format!("gannet publish 1 {}\n{text}", text.len()));
    loop {
        let line = publisher.hear();
        if line == "whole\n" {
            break;
        }
        let range = line.trim_end().strip_prefix("send ");
        let range = range.and_then(|it| it.split_once(' ')).expect(&line);
        let range = range.0.parse().unwrap()..range.1.parse().unwrap();
        publisher.send(&file[range]);
    }
    publisher.say("activate\n");
    assert_eq!(publisher.hear(), "active\n");
    let current = fs::read_to_string(folder.join("store/current")).unwrap();
    assert_eq!(current, text);
    // What is in force already.
    let mut publisher = Side::connect(address);
    publisher.say(OPENING);
    publisher.head();
    publisher.say(&format!("gannet publish 1 {}\n{text}", text.len()));
    assert_eq!(publisher.hear(), "active\n");
}

/// Brings the release to a receiver that does this once it has the pointer.
fn push_to(receive: impl FnOnce(&mut Side, &[u8])) -> Result<Pushed, PushError> {
    let (text, file) = release();
    let content = fs::read(&file).unwrap();
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = format!("http://{}/", socket.local_addr().unwrap());
    let (offered, size) = (text.clone(), content.len() as u64);
    let publisher = thread::spawn(move || {
        let file = File::open(file).unwrap();
        let target = Target::parse(&target).unwrap();
        target.push(&offered, (&file, size), true)
    });
    let mut receiver = Side(BufReader::new(socket.accept().unwrap().0));
    let head = receiver.head().to_lowercase();
    assert!(head.starts_with("get "), "{head}");
    assert!(head.contains("\r\nupgrade: gannet-publish\r\n"), "{head}");
    receiver.say(ACCEPTED);
    assert_eq!(
        receiver.hear(),
        format!("gannet publish 1 {}\n", text.len())
    );
    assert_eq!(receiver.bytes(text.len()), text.as_bytes());
    receive(&mut receiver, &content);
    publisher.join().unwrap()
}

#[test]
fn a_receiver_of_0_1_is_understood() {
    let pushed = push_to(|receiver, content| {
        receiver.say("send 0 4096\n");
        assert!(receiver.bytes(4096) == content[..4096]);
        let rest = content.len() - 4096;
        receiver.say(&format!("send 4096 {}\n", content.len()));
        assert!(receiver.bytes(rest) == content[4096..]);
        receiver.say("whole\n");
        assert_eq!(receiver.hear(), "activate\n");
        receiver.say("active\n");
    });
    let (_, file) = release();
    assert_eq!(pushed.unwrap().bytes, fs::metadata(file).unwrap().len());
    let refused = push_to(|receiver, _| receiver.say("refused there is no room\n"));
    match refused {
        Err(PushError::Refused(why)) => assert_eq!(why, "there is no room"),
        other => panic!("{other:?}"),
    }
}
