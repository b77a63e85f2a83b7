//! A driver under test: one engine with a listener, and what tests need to talk to it.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gannet_io::driver::{
    Completion, Datagram, Done, Driver, Errno, File, Lease, Listener, Nanos, Socket, Token, Waker,
};
use gannet_io::epoll::Epoll;
use gannet_io::options::EngineOptions;
use gannet_io::uring::Uring;
use gannet_io::{net, probe};
use gannet_testkit::{DEADLINE, left_out};

pub(crate) const ACCEPT: Token = Token(u64::MAX);
const SETTLE: Token = Token(u64::MAX - 1);

pub(crate) struct Desk {
    pub(crate) driver: Box<dyn Driver>,
    pub(crate) engine: &'static str,
    pub(crate) address: SocketAddr,
    pending: VecDeque<Completion>,
    waker: Waker,
}

/// Runs the body on every engine that this machine can run.
pub(crate) fn each(body: impl Fn(Desk)) {
    each_with(&EngineOptions::default(), body);
}

pub(crate) fn each_with(options: &EngineOptions, body: impl Fn(Desk)) {
    each_of(options, listener, Vec::new, body);
}

/// Runs the body on every engine; accepted sockets have a send buffer of about this many bytes.
pub(crate) fn each_with_send_buffer(bytes: usize, body: impl Fn(Desk)) {
    // Accepted sockets inherit it.
    let narrow = || {
        let (listener, address) = listener();
        rustix::net::sockopt::set_socket_send_buffer_size(&listener, bytes).unwrap();
        (listener, address)
    };
    each_of(&EngineOptions::default(), narrow, Vec::new, body);
}

/// Runs the body on every engine, each with datagram sockets of its own.
pub(crate) fn each_with_datagrams(
    options: &EngineOptions,
    sockets: impl Fn() -> Vec<OwnedFd>,
    body: impl Fn(Desk),
) {
    each_of(options, listener, sockets, body);
}

fn each_of(
    options: &EngineOptions,
    listener: impl Fn() -> (OwnedFd, SocketAddr),
    sockets: impl Fn() -> Vec<OwnedFd>,
    body: impl Fn(Desk),
) {
    match probe::check(options) {
        Ok(()) => {
            let (listener, address) = listener();
            let driver = Uring::new(vec![listener], options).expect("just probed");
            let driver = driver.with_datagrams(sockets());
            body(Desk::new(Box::new(driver), "uring", address));
        }
        Err(why) => left_out("io_uring", why),
    }
    let (listener, address) = listener();
    let driver = Epoll::new(vec![listener], options).unwrap();
    let driver = driver.with_datagrams(sockets()).unwrap();
    body(Desk::new(Box::new(driver), "epoll", address));
}

fn listener() -> (OwnedFd, SocketAddr) {
    let listener = net::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = net::local_addr(&listener).unwrap().unwrap();
    (listener, address)
}

impl Desk {
    pub(crate) fn new(
        mut driver: Box<dyn Driver>,
        engine: &'static str,
        address: SocketAddr,
    ) -> Self {
        let waker = driver.waker(SETTLE);
        driver.accept(Listener(0), ACCEPT);
        Self {
            driver,
            engine,
            address,
            pending: VecDeque::new(),
            waker,
        }
    }

    /// The next completion, whatever it is.
    pub(crate) fn next(&mut self) -> Completion {
        let start = Instant::now();
        loop {
            if let Some(completion) = self.pending.pop_front() {
                return completion;
            }
            assert!(start.elapsed() < DEADLINE, "{}: no completion", self.engine);
            self.turn();
        }
    }

    /// One wait, limited to 50 ms.
    pub(crate) fn turn(&mut self) {
        let until = Nanos(self.driver.now().0 + 50_000_000);
        let mut out = Vec::new();
        self.driver.wait(Some(until), &mut out).unwrap();
        self.pending.extend(out);
    }

    /// All completions that are available or caused by earlier calls of this thread.
    pub(crate) fn settle(&mut self) -> Vec<Completion> {
        let mut seen = Vec::new();
        // Twice: the bell may be heard before operations submitted with it.
        for _ in 0..2 {
            self.waker.wake();
            loop {
                let completion = self.next();
                if completion.token == SETTLE {
                    break;
                }
                seen.push(completion);
            }
        }
        seen
    }

    /// Takes turns until the condition holds.
    pub(crate) fn turn_until(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !condition(self) {
            assert!(
                start.elapsed() < DEADLINE,
                "{}: {what}: timed out",
                self.engine
            );
            self.turn();
        }
    }

    pub(crate) fn connect(&mut self) -> (TcpStream, Socket) {
        let client = TcpStream::connect(self.address).unwrap();
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        client.set_nodelay(true).unwrap();
        (client, self.accepted())
    }

    pub(crate) fn accepted(&mut self) -> Socket {
        let completion = self.next();
        assert_eq!(completion.token, ACCEPT, "{completion:?}");
        match completion.result {
            Ok(Done::Accepted(socket)) => socket,
            other => panic!("{}: {other:?}", self.engine),
        }
    }

    /// The next completion, which must be a receive of this token.
    pub(crate) fn received(&mut self, token: Token) -> Vec<u8> {
        let completion = self.next();
        assert_eq!(completion.token, token, "{completion:?}");
        match completion.result {
            Ok(Done::Received(lease)) => self.take(lease),
            other => panic!("{}: {other:?}", self.engine),
        }
    }

    /// The next completion, which must be a datagram of this token: its bytes, and the rest.
    pub(crate) fn datagram(&mut self, token: Token) -> (Vec<u8>, Datagram) {
        let completion = self.next();
        assert_eq!(completion.token, token, "{completion:?}");
        assert!(completion.more, "{completion:?}");
        match completion.result {
            Ok(Done::Datagram(datagram)) => {
                let bytes = self.driver.received(&datagram.lease).to_vec();
                (bytes, datagram)
            }
            other => panic!("{}: {other:?}", self.engine),
        }
    }

    pub(crate) fn take(&mut self, lease: Lease) -> Vec<u8> {
        let bytes = self.driver.received(&lease).to_vec();
        self.driver.release(lease);
        bytes
    }

    /// The next completion, which must end a send of this token.
    pub(crate) fn sent(&mut self, token: Token) -> Result<u64, Errno> {
        let completion = self.next();
        assert_eq!(completion.token, token, "{completion:?}");
        match completion.result {
            Ok(Done::Sent(count)) => Ok(count),
            Ok(other) => panic!("{}: {other:?}", self.engine),
            Err(errno) => Err(errno),
        }
    }

    /// Collects `len` bytes of the token, in any number of pieces.
    pub(crate) fn received_whole(&mut self, token: Token, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            bytes.extend(self.received(token));
        }
        bytes
    }

    pub(crate) fn wake(&self) {
        self.waker.wake();
    }
}

/// Waits until the condition holds. What was closed may be open for a moment more in a process that
/// another test starts, until that runs its own program.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "{what}: timed out");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Bytes that reveal their position.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8) ^ (i >> 16)) as u8).collect()
}

/// A folder that is removed when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// In the target directory, which is on a disk, while the temporary directory may be in memory.
    pub(crate) fn new(name: &str) -> Self {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A file that is opened with this content, and cut to `len` bytes after that.
    pub(crate) fn cut_file(&self, content: &[u8], len: u64) -> File {
        let mut options = std::fs::File::options();
        let path = self.file("content", content);
        let opened = options.read(true).write(true).open(path).unwrap();
        let file = File::from(opened.try_clone().unwrap());
        opened.set_len(len).unwrap();
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Open descriptors of this process.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Bytes that a client has written and that have not been acknowledged.
pub(crate) fn unacknowledged(client: &TcpStream) -> i32 {
    let mut bytes = 0;
    // SAFETY: the descriptor is open while borrowed; `TIOCOUTQ` writes one int.
    let result = unsafe { libc::ioctl(client.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    assert_eq!(result, 0);
    bytes
}

/// Runs this test binary's one test `name` in a separate process, marked by an environment
/// variable.
pub(crate) fn in_child(name: &str, mark: &str) -> std::process::Output {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("GANNET_TEST_CHILD", mark)
        .output()
        .unwrap()
}
