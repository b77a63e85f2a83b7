//! Servers whose place new processes take, and clients that must not notice.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gannet_testkit::client::Client;
use gannet_testkit::content::{assert_pattern, pattern};
use gannet_testkit::process::until;
use gannet_testkit::{DEADLINE, Folder, Gannet, Signal};
use rustix::process::{Pid, kill_process};

/// The length of `long.bin`.
pub(crate) const LONG: usize = 6 << 20;
/// The length of `middle.bin`.
pub(crate) const MIDDLE: usize = 300_000;

/// A site with two files of some length.
pub(crate) fn site() -> Folder {
    let site = Folder::site();
    site.write("long.bin", pattern(LONG, 5));
    site.write("middle.bin", pattern(MIDDLE, 6));
    site
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// A server and the processes that have taken its place.
pub(crate) struct Server {
    pub(crate) first: Gannet,
    /// The process that serves.
    pub(crate) pid: u32,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The later ones are no children of this process.
        kill(self.pid, Signal::KILL);
    }
}

pub(crate) fn kill(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.try_into().expect("small")).expect("not zero");
    // It may have ended.
    let _ = kill_process(pid, signal);
}

/// Whether a process has ended, reaped or not.
pub(crate) fn has_ended(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}

/// Waits until a process has ended. If it does not, the failure says what its threads do.
pub(crate) fn until_ended(pid: u32) {
    let end = Instant::now() + DEADLINE;
    while !has_ended(pid) {
        assert!(
            Instant::now() < end,
            "process {pid} does not end: {}",
            doing(pid)
        );
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// The threads of a process, with where they wait, and its descriptors.
fn doing(pid: u32) -> String {
    let entries = |name: &str| {
        let entries = fs::read_dir(format!("/proc/{pid}/{name}"))
            .into_iter()
            .flatten();
        entries.filter_map(|it| Some(it.ok()?.path()))
    };
    let read = |path: &Path| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let threads = entries("task").map(|task| {
        let [name, place, call] = ["comm", "wchan", "syscall"].map(|it| read(&task.join(it)));
        format!("\n  {name}: {place}, {call}")
    });
    let files =
        entries("fd").filter_map(|it| Some(format!("\n  {}", fs::read_link(it).ok()?.display())));
    threads.chain(files).collect()
}

impl Server {
    pub(crate) fn new(first: Gannet) -> Self {
        let pid = first.pid();
        Self { first, pid }
    }

    /// Asks for a new process by this signal, and waits until it serves.
    pub(crate) fn renew(&mut self, signal: Signal) {
        let old = self.pid;
        kill(old, signal);
        self.replaced();
        assert_ne!(self.pid, old);
    }

    /// Waits for the lines of both processes.
    fn replaced(&mut self) {
        let mut has_begun = false;
        let mut successor = None;
        while !has_begun || successor.is_none() {
            let line = self.first.next_line().expect("they run");
            has_begun |= line.starts_with("SIGTERM to stop");
            if let Some(rest) = line.strip_prefix("process ") {
                let pid = rest.split(' ').next().and_then(|pid| pid.parse().ok());
                successor = Some(pid.expect("a process ID"));
            }
        }
        self.pid = successor.expect("named");
    }

    /// Stops the process that serves, and waits for its end.
    pub(crate) fn stop(self) {
        kill(self.pid, Signal::TERM);
        until_ended(self.pid);
    }
}

/// Clients that come again and again until this is dropped; none of them may fail.
pub(crate) struct Load {
    ends: Arc<AtomicBool>,
    threads: Vec<thread::JoinHandle<()>>,
    rounds: Vec<Arc<AtomicU64>>,
}

impl Load {
    pub(crate) fn new() -> Self {
        Self {
            ends: Arc::default(),
            threads: Vec::new(),
            rounds: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, mut visit: impl FnMut() + Send + 'static) {
        let ends = Arc::clone(&self.ends);
        let count = Arc::new(AtomicU64::new(0));
        self.rounds.push(Arc::clone(&count));
        self.threads.push(thread::spawn(move || {
            while !ends.load(Ordering::Relaxed) {
                visit();
                count.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }

    /// Waits until each client has come a few times more.
    pub(crate) fn goes_on(&self) {
        let before: Vec<u64> = self.counts();
        until("all clients are served", || {
            assert!(
                self.threads.iter().all(|it| !it.is_finished()),
                "a client failed"
            );
            let now = self.counts();
            now.iter()
                .zip(&before)
                .all(|(now, before)| *now > before + 2)
        });
    }

    fn counts(&self) -> Vec<u64> {
        let rounds = self.rounds.iter();
        rounds.map(|it| it.load(Ordering::Relaxed)).collect()
    }

    pub(crate) fn end(self) {
        self.ends.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("no client fails");
        }
    }
}

/// A new connection for each request.
pub(crate) fn newcomers(load: &mut Load, address: SocketAddr) {
    load.add(move || {
        let got = Client::connect(address).get("/middle.bin").expect(200);
        assert_pattern(&got.body, 6);
        assert_eq!(got.body.len(), MIDDLE);
    });
}

/// A persistent connection, until the server announces its end.
pub(crate) fn regulars(load: &mut Load, address: SocketAddr) {
    let mut client = None;
    load.add(move || {
        let current = client.get_or_insert_with(|| Client::connect(address));
        let got = current.get("/about").expect(200);
        if got.field("connection") == Some("close") {
            client = None;
        }
    });
}
