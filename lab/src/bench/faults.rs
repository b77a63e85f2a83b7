//! Tests every client with servers that answer incorrectly, truncate, hang or die: no run may give
//! a figure. `load/tests.rs` has further cases for the project's own client.
//!
//! A client that is not installed is skipped, with a message.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Result, ensure};

use super::{
    h2load::{self, Shape},
    programs::{self, Driver, Program},
    run,
    scenario::Protocol,
};
use crate::load::{self, Content, Plan, Target};
use xtask::process;

/// Requests answered correctly before a server begins to fail: few, since a client that starts a
/// process for each request makes few in the time of a run on a busy machine.
const BEFORE: usize = 4;

/// The fault of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Nothing.
    None,
    /// It answers 500.
    Status,
    /// Contents are shorter than the file.
    Length,
    /// Contents are shorter than their `content-length`.
    Cut,
    /// It accepts and never answers.
    Hangs,
    /// It answers for a while, then hangs.
    HangsLater,
    /// It answers for a while, then dies.
    Dies,
}

const FAULTS: [Fault; 7] = [
    Fault::None,
    Fault::Status,
    Fault::Length,
    Fault::Cut,
    Fault::Hangs,
    Fault::HangsLater,
    Fault::Dies,
];

/// A server with a fault.
struct Server {
    fault: Fault,
    address: SocketAddr,
    asked: AtomicUsize,
    is_over: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Server {
    fn start(fault: Fault) -> Arc<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback is available");
        let server = Arc::new(Self {
            fault,
            address: listener.local_addr().expect("bound"),
            asked: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let accepting = server.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.is_over.load(Ordering::SeqCst) {
                    // The listener is closed when this thread ends.
                    return;
                }
                let server = accepting.clone();
                let kept = stream.try_clone().expect("a descriptor is left");
                server.open.lock().expect("no panics").push(kept);
                thread::spawn(move || server.converse(stream));
            }
        });
        server
    }

    /// Closes every connection and the listener.
    fn stop(&self) {
        if self.is_over.swap(true, Ordering::SeqCst) {
            return;
        }
        for stream in self.open.lock().expect("no panics").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Any connection wakes up the listener.
        drop(TcpStream::connect(self.address));
    }

    fn converse(&self, mut stream: TcpStream) {
        let (mut pending, mut chunk) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut chunk) {
            pending.extend_from_slice(&chunk[..count]);
            while let Some(end) = pending.windows(4).position(|w| w == b"\r\n\r\n") {
                pending.drain(..end + 4);
                if !self.answer(&mut stream) {
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
            }
        }
    }

    /// Answers one request; false closes the connection.
    fn answer(&self, stream: &mut TcpStream) -> bool {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        let text = match self.fault {
            Fault::Status => {
                "HTTP/1.1 500 Oh\r\nconnection: keep-alive\r\ncontent-length: 13\r\n\r\n\
                              Hello, World!"
            }
            Fault::Length => {
                "HTTP/1.1 200 OK\r\nconnection: keep-alive\r\ncontent-length: 5\r\n\r\nHello"
            }
            Fault::Cut => "HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\nHello",
            Fault::Hangs => return true,
            Fault::HangsLater if asked >= BEFORE => return true,
            Fault::Dies if asked >= BEFORE => {
                self.stop();
                return false;
            }
            Fault::None | Fault::HangsLater | Fault::Dies => {
                "HTTP/1.1 200 OK\r\nconnection: keep-alive\r\ncontent-length: 13\r\n\r\n\
                 Hello, World!"
            }
        };
        stream.write_all(text.as_bytes()).is_ok() && self.fault != Fault::Cut
    }
}

/// A client as used by runs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Own,
    H2load,
    Program(Program),
}

/// The program of `kind`; `None` if it is not installed.
fn find(kind: Kind, work: &Path) -> Option<PathBuf> {
    match kind {
        Kind::Own => Some(PathBuf::new()),
        Kind::H2load => process::find("h2load"),
        Kind::Program(Program::Oha) => process::find("oha"),
        Kind::Program(Program::Wrk) => process::find("wrk"),
        Kind::Program(Program::Ab) => process::find("ab"),
        Kind::Program(Program::Curl) => process::find("curl"),
        Kind::Program(Program::Go) => programs::build_go(&work.join("download")).ok(),
        // Building the tests of the workspace places it beside this test.
        Kind::Program(Program::Gannet) => {
            let test = std::env::current_exe().ok()?;
            let program = test.parent()?.parent()?.join("gannet");
            program.exists().then_some(program)
        }
    }
}

/// Runs the client at `path` with a server that has `fault`; returns the number of requests
/// counted.
fn requests(kind: Kind, path: &Path, fault: Fault, work: &Path) -> Result<u64> {
    let server = Server::start(fault);
    let pool: Arc<[u8]> = Arc::from(&b"Hello, World!"[..]);
    let targets = [Target {
        path: "/hello".into(),
        content: Content::new(pool, 0, 13),
    }];
    let interrupt = AtomicBool::new(false);
    let second = Duration::from_secs(1);
    let plan = Plan {
        connections: 2,
        duration: second,
        ..Plan::one_pass(server.address, &targets, 2 * second, &interrupt)
    };
    let shape = Shape {
        protocol: Protocol::H1,
        streams: 1,
        certificate: None,
        threads: 1,
    };
    let counted = match kind {
        Kind::Own => load::run(&plan, &mut |_| {})
            .map(|tally| tally.requests)
            .map_err(anyhow::Error::from),
        Kind::H2load => {
            h2load::run(&plan, shape, work, &mut |_| {}).map(|printed| printed.requests)
        }
        Kind::Program(program) => {
            let driver = Driver {
                program,
                path,
                shape,
                work,
            };
            let printed = driver.run(&plan, &mut |_| {});
            printed.map(|printed| printed.requests)
        }
    };
    let result = counted.and_then(|count| {
        ensure!(count > 0, "not one response was counted");
        run::answers_still(&plan, run::Asker::Own, None, work).map(|()| count)
    });
    server.stop();
    result
}

/// `client` gives figures for a correct server, and for none with a fault.
fn check(kind: Kind) {
    let name = format!("gannet-faults-{}-{kind:?}", std::process::id());
    let work = std::env::temp_dir().join(name.replace(['(', ')'], "-"));
    fs::create_dir_all(&work).expect("a writable temporary directory");
    match find(kind, &work) {
        None => println!("skipped: {kind:?} is not installed"),
        Some(path) => {
            // Each waits for most of its time.
            thread::scope(|scope| {
                for fault in FAULTS {
                    let (path, work) = (&path, work.join(format!("{fault:?}")));
                    scope.spawn(move || {
                        fs::create_dir(&work).expect("a writable temporary directory");
                        let found = requests(kind, path, fault, &work);
                        let is_right = found.is_ok() == (fault == Fault::None);
                        assert!(is_right, "{kind:?}, {fault:?}: {found:?}");
                    });
                }
            });
        }
    }
    fs::remove_dir_all(work).expect("ours");
}

#[test]
fn the_own_client_gives_no_figure_of_a_faulty_server() {
    check(Kind::Own);
}

#[test]
fn h2load_gives_no_figure_of_a_faulty_server() {
    check(Kind::H2load);
}

#[test]
fn oha_gives_no_figure_of_a_faulty_server() {
    check(Kind::Program(Program::Oha));
}

/// wrk ignores lengths: short content is detected by the comparison after the run.
#[test]
fn wrk_gives_no_figure_of_a_faulty_server() {
    check(Kind::Program(Program::Wrk));
}

#[test]
fn ab_gives_no_figure_of_a_faulty_server() {
    check(Kind::Program(Program::Ab));
}

#[test]
fn curl_gives_no_figure_of_a_faulty_server() {
    check(Kind::Program(Program::Curl));
}

#[test]
fn go_gives_no_figure_of_a_faulty_server() {
    check(Kind::Program(Program::Go));
}

#[test]
fn gannet_get_gives_no_figure_of_a_faulty_server() {
    check(Kind::Program(Program::Gannet));
}
