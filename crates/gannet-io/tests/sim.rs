//! The simulator: the same seed gives the same run, faults do no harm, and the checks detect harm.

use gannet_io::driver::{
    Completion, DirectoryEntry, Disk, Done, Errno, File, Listener, Nanos, Network, Render,
    SendList, Socket, Started, Token,
};
use gannet_io::options::EngineOptions;
use gannet_io::sim::{Client, End, Faults, Random, Sim, SimHandle};

const ACCEPT: Token = Token(u64::MAX);

fn options() -> EngineOptions {
    EngineOptions {
        buffers: 4,
        buffer_len: 512,
        ..EngineOptions::default()
    }
}

/// A server that answers each line `N` with the file `fN`, head first, and closes at the end.
struct Server {
    driver: Sim,
    handle: SimHandle,
    connections: Vec<Option<Connection>>,
    file: Option<File>,
    len: u64,
    trace: Vec<String>,
}

#[derive(Default)]
struct Connection {
    input: Vec<u8>,
    is_sending: bool,
    ended: bool,
}

impl Server {
    fn new(seed: u64, faults: Faults, content: &[u8]) -> Self {
        let mut driver = Sim::new(seed, 1, &options(), faults);
        let handle = driver.handle();
        handle.put_file("a/file", content);
        driver.accept(Listener(0), ACCEPT);
        let mut server = Self {
            driver,
            handle,
            connections: Vec::new(),
            file: None,
            len: 0,
            trace: Vec::new(),
        };
        server.open();
        server
    }

    fn open(&mut self) {
        let root = self.handle.root();
        match self.driver.open(&root, b"a/file", Token(u64::MAX - 1)) {
            Started::Now(Ok(opened)) => {
                self.len = opened.meta.len;
                self.file = Some(opened.file);
            }
            Started::Now(Err(_)) => self.open(),
            Started::Pending => {}
        }
    }

    fn turn(&mut self) {
        let mut out = Vec::new();
        let until = Nanos(self.driver.now().0 + 1_000_000_000);
        self.driver.wait(Some(until), &mut out).unwrap();
        for completion in out {
            self.trace
                .push(format!("{} {completion:?}", self.driver.now().0));
            self.handle(completion);
        }
    }

    fn handle(&mut self, completion: Completion) {
        let index = completion.token.0 as usize / 2;
        match completion.result {
            Ok(Done::Accepted(socket)) => {
                let index = socket.0 as usize;
                self.connections
                    .resize_with(self.connections.len().max(index + 1), || None);
                self.connections[index] = Some(Connection::default());
                self.driver.receive(socket, Token(index as u64 * 2));
            }
            Ok(Done::Opened(opened)) => {
                self.len = opened.meta.len;
                self.file = Some(opened.file);
            }
            Ok(Done::Received(lease)) => {
                let connection = self.connections[index].as_mut().unwrap();
                connection
                    .input
                    .extend_from_slice(self.driver.received(&lease));
                self.driver.release(lease);
            }
            Ok(Done::Ended) => self.connections[index].as_mut().unwrap().ended = true,
            Ok(Done::Sent(_)) => self.connections[index].as_mut().unwrap().is_sending = false,
            Ok(other) => panic!("{other:?}"),
            Err(_) if completion.token == ACCEPT => self.driver.accept(Listener(0), ACCEPT),
            Err(_) if completion.token == Token(u64::MAX - 1) => self.open(),
            Err(_) => {
                if self.connections[index].take().is_some() {
                    self.driver.close(Socket(index as u32));
                }
            }
        }
        for index in 0..self.connections.len() {
            self.pump(index);
        }
    }

    fn pump(&mut self, index: usize) {
        let (Some(connection), Some(file)) = (&mut self.connections[index], &self.file) else {
            return;
        };
        let socket = Socket(index as u32);
        if connection.is_sending {
            return;
        }
        if let Some(end) = connection.input.iter().position(|&byte| byte == b'\n') {
            connection.input.drain(..=end);
            connection.is_sending = true;
            let token = Token(index as u64 * 2 + 1);
            self.driver
                .send_file(socket, token, b"head\n".to_vec(), file, 0, self.len);
        } else if connection.ended {
            self.connections[index] = None;
            self.driver.close(socket);
        }
    }
}

/// A client that sends several requests, in pieces, and reads now and then.
struct SlotKey {
    client: Client,
    to_write: Vec<u8>,
    answers: usize,
    got: Vec<u8>,
}

fn run(seed: u64, faults: Faults) -> (Vec<String>, Vec<(End, bool)>) {
    let content: Vec<u8> = (0..20_000u32).map(|i| (i / 7) as u8).collect();
    let mut server = Server::new(seed, faults, &content);
    let mut random = Random::new(!seed);
    let mut keys: Vec<SlotKey> = (0..8)
        .map(|n| SlotKey {
            client: server.handle.connect(Listener(0)).unwrap(),
            to_write: b"give\n".repeat(n % 3 + 1),
            answers: n % 3 + 1,
            got: Vec::new(),
        })
        .collect();
    let answer = [b"head\n".as_slice(), &content].concat();
    for _ in 0..20_000 {
        let mut done = true;
        for key in &mut keys {
            if !key.to_write.is_empty() {
                let count = 1 + random.below(key.to_write.len() as u64) as usize;
                let piece: Vec<u8> = key.to_write.drain(..count).collect();
                key.client.write(&piece);
                if key.to_write.is_empty() {
                    key.client.shutdown_write();
                }
            }
            if random.chance(700) {
                let max = random.below(9000) as usize;
                key.got.extend(key.client.read_at_most(max));
            }
            done &= key.client.end() != End::Open;
        }
        if done {
            break;
        }
        server
            .handle
            .wake_at(Some(Nanos(server.handle.now().0 + 1_000_000)));
        server.turn();
    }
    let ends = keys
        .iter()
        .map(|key| {
            let expected = answer.repeat(key.answers);
            assert!(expected.starts_with(&key.got), "seed {seed}: wrong bytes");
            (key.client.end(), key.got.len() == expected.len())
        })
        .collect();
    drop(keys);
    for _ in 0..100 {
        server.turn();
    }
    server.file = None;
    let leaks = server.handle.leaks();
    assert!(leaks.is_clean(), "seed {seed}: {leaks:?}");
    (server.trace, ends)
}

/// Under faults that do not break connections every byte arrives, and nothing leaks.
#[test]
fn benign_faults_do_no_harm() {
    for seed in 0..200 {
        let (_, ends) = run(seed, Faults::benign());
        for end in ends {
            assert_eq!(end, (End::Finished, true), "seed {seed}");
        }
    }
}

/// Under resets and disk errors what arrives is still a correct prefix, and nothing leaks.
#[test]
fn harsh_faults_leave_true_bytes() {
    let mut cut = 0;
    for seed in 0..200 {
        let (_, ends) = run(seed, Faults::harsh());
        cut += ends.iter().filter(|(_, whole)| !whole).count();
    }
    assert!(cut > 0, "the faults have an effect");
}

/// The same seed gives the same run, to the nanosecond; another seed gives another run.
#[test]
fn a_seed_is_a_run() {
    let (first, _) = run(42, Faults::harsh());
    let (second, _) = run(42, Faults::harsh());
    assert_eq!(first, second);
    let (third, _) = run(43, Faults::harsh());
    assert_ne!(first, third);
}

/// Faults of datagrams change nothing in a run without datagrams.
#[test]
fn a_run_without_datagrams_is_as_ever() {
    let without = Faults {
        datagram_loss: 0,
        datagram_duplicate: 0,
        datagram_corrupt: 0,
        datagram_late: 0,
        datagram_full: 0,
        datagram_latency_ns: 0,
        ..Faults::benign()
    };
    assert_ne!(without, Faults::benign());
    assert_eq!(run(42, without).0, run(42, Faults::benign()).0);
}

/// The simulator shows what happens when a server sends pages of a file that changes.
#[test]
fn truncation_shows_as_zeros() {
    let mut server = Server::new(1, Faults::none(), &[7; 10_000]);
    let client = server.handle.connect(Listener(0)).unwrap();
    client.write(b"give\n");
    while client.readable() < 10_005 {
        server.turn();
    }
    server.handle.truncate_file("a/file", 100);
    let got = client.read();
    assert_eq!(
        (&got[5..105], &got[105..]),
        (&[7; 100][..], &[0; 9_900][..])
    );
}

/// The names of a directory, as text.
fn names() -> Render {
    Render::new(|entries, _| {
        let line = |entry: DirectoryEntry| [&entry.name, &b" "[..]].concat();
        entries.into_iter().flat_map(line).collect()
    })
}

/// Replacing a file keeps the old one for its readers; a broken one fails; a slow one is late.
#[test]
fn the_disk_is_as_told() {
    let mut driver = Sim::new(7, 1, &options(), Faults::none());
    let handle = driver.handle();
    let root = handle.root();
    handle.put_file("d/x", "old");
    handle.put_file("d/sub/y", "y");
    let Started::Now(Ok(old)) = driver.open(&root, b"d/x", Token(1)) else {
        panic!()
    };
    handle.put_file("d/x", "newer");
    let Started::Now(Ok(new)) = driver.open(&root, b"d/x", Token(1)) else {
        panic!()
    };
    assert_ne!(old.meta.identity, new.meta.identity);
    let mut read = |file: &File| match driver.read(file, 0, 10, Token(2)) {
        Started::Now(result) => result,
        Started::Pending => panic!("nothing is cold here"),
    };
    assert_eq!(read(&old.file).unwrap(), b"old");
    assert_eq!(read(&new.file).unwrap(), b"newer");
    handle.break_file("d/x", Some(2));
    assert_eq!(read(&new.file).unwrap_err(), Errno::IO);
    handle.slow_file("d/x", 3_000_000_000);
    assert!(matches!(
        driver.open(&root, b"d/x", Token(3)),
        Started::Pending
    ));
    assert!(matches!(
        driver.list(&root, b"d", (10, false), names(), Token(4)),
        Started::Pending
    ));
    let mut out = Vec::new();
    let start = driver.now().0;
    while out.len() < 2 {
        driver.wait(None, &mut out).unwrap();
    }
    assert!(driver.now().0 - start >= 3_000_000_000);
    let Ok(Done::Listed(listed)) = &out[0].result else {
        panic!("{out:?}")
    };
    assert_eq!(listed.rendered, b"sub x ");
    assert!(matches!(out[1].result, Ok(Done::Opened(_))));
    let errno = |started| match started {
        Started::Now(Err(errno)) => errno,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        errno(driver.open(&root, b"d/nothing", Token(5))),
        Errno::NOENT
    );
    assert_eq!(errno(driver.open(&root, b"d/x/y", Token(5))), Errno::NOTDIR);
    handle.remove_file("d/x");
    assert_eq!(errno(driver.open(&root, b"d/x", Token(5))), Errno::NOENT);
    assert_eq!(handle.leaks().files_open, 3);
}

/// Closing with unread bytes is a reset, as in the kernel; a jump of the wall clock moves nothing
/// else.
#[test]
fn ends_and_clocks() {
    let mut driver = Sim::new(9, 1, &options(), Faults::none());
    let handle = driver.handle();
    driver.accept(Listener(0), ACCEPT);
    let mut ends = Vec::new();
    for has_unread in [false, true] {
        let client = handle.connect(Listener(0)).unwrap();
        let mut out = Vec::new();
        driver.wait(None, &mut out).unwrap();
        let Ok(Done::Accepted(socket)) = out[0].result else {
            panic!("{out:?}")
        };
        let list = SendList {
            wire: b"bye".to_vec(),
            ..SendList::default()
        };
        driver.send(socket, Token(1), list);
        driver.wait(None, &mut out).unwrap();
        if has_unread {
            client.write(b"unread");
        }
        driver.close(socket);
        client.read();
        ends.push(client.end());
    }
    assert_eq!(ends, [End::Finished, End::Reset]);
    let (now, unix) = (driver.now(), driver.unix_seconds());
    handle.jump_wall_clock(-3600);
    driver.wait(Some(Nanos(0)), &mut Vec::new()).unwrap();
    assert!(driver.now() > now && driver.now().0 - now.0 < 1_000_000);
    assert_eq!(driver.unix_seconds(), unix - 3600);
    driver.waker(Token(5)).wake();
    let mut out = Vec::new();
    driver.wait(None, &mut out).unwrap();
    assert!(matches!(out[0].result, Ok(Done::Woken)));
}
