//! Runs the built program: commands to their end, and servers until they are stopped.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;

pub use rustix::process::Signal;

use crate::{DEADLINE, Folder};

/// The path of the binary: from cargo in tests of its crate, else relative to the test binary.
///
/// # Panics
///
/// If it does not exist: only tests of crate `gannet` can rely on it being built.
pub fn program() -> PathBuf {
    let path = std::env::var_os("CARGO_BIN_EXE_gannet").map_or_else(beside_tests, PathBuf::from);
    assert!(path.is_file(), "no program at {}", path.display());
    path
}

/// Test binaries are in `deps`, programs in its parent folder.
fn beside_tests() -> PathBuf {
    let test = std::env::current_exe().expect("the test binary has a path");
    let folder = test.ancestors().nth(2).expect("a file in 'deps'");
    folder.join("gannet")
}

/// A command for the binary with a clean environment, in `/`, without a terminal.
pub fn command() -> Command {
    clean(Command::new(program()))
}

/// The same for a program that starts it.
pub fn clean(mut command: Command) -> Command {
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if name_text.starts_with("GANNET_") || name_text == "SOURCE_DATE_EPOCH" {
            command.env_remove(name);
        }
    }
    command.current_dir("/").stdin(Stdio::null());
    command
}

/// A command for gannet that finds these sockets, each with its name, as a service manager passes
/// them. The shell knows its process ID, which gannet then has.
///
/// # Panics
///
/// There are no descriptors left.
pub fn passed(sockets: Vec<(OwnedFd, &str)>, arguments: &[&str]) -> (Command, Vec<OwnedFd>) {
    let mut script = String::new();
    let mut names = Vec::new();
    let mut kept = Vec::new();
    for (number, (socket, name)) in sockets.into_iter().enumerate() {
        // Above those that the shell uses.
        let high = rustix::io::fcntl_dupfd_cloexec(socket.as_fd(), 100).expect("free");
        rustix::io::fcntl_setfd(&high, rustix::io::FdFlags::empty()).expect("open");
        let (to, from) = (number + 3, high.as_raw_fd());
        script += &format!("exec {to}<&{from} {from}<&-; ");
        names.push(name);
        kept.push(high);
    }
    let mut bash = Command::new("bash");
    let (count, names) = (names.len(), names.join(":"));
    script += &format!(
        "export LISTEN_PID=${{PASSED_TO:-$$}} LISTEN_FDS={count} LISTEN_FDNAMES={names}; exec \"$@\""
    );
    bash.args(["-c", &script, "bash"])
        .arg(program())
        .args(arguments);
    bash.current_dir("/").stdin(Stdio::null());
    (bash, kept)
}

/// The same as an unprivileged user, since root may read everything.
pub fn command_of_nobody() -> Command {
    of_nobody(command())
}

/// Makes a command that of an unprivileged user.
pub fn of_nobody(mut command: Command) -> Command {
    if rustix::process::geteuid().is_root() {
        command.uid(65_534).gid(65_534);
    }
    command
}

/// The result of a run.
#[derive(Debug)]
pub struct Ended {
    /// The exit status; `None` if a signal ended it.
    pub status: Option<i32>,
    /// Standard output.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: String,
}

impl Ended {
    /// Standard output as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).expect("the output is UTF-8")
    }

    /// Asserts status 0 and an empty standard error; returns the result. The lines that tell how far
    /// packing has come, on a machine that is slow or busy, do not count.
    pub fn success(self) -> Self {
        let is_progress = |line: &&str| {
            let phases = ["gannet: reading: ", "gannet: compressing: "];
            phases.iter().any(|phase| line.starts_with(phase))
        };
        let message = self.err.lines().find(|line| !is_progress(line));
        assert_eq!((self.status, message), (Some(0), None), "{}", self.shown());
        self
    }

    /// Asserts this status and exactly these lines on standard error; returns the result.
    pub fn failure(self, status: i32, err: &str) -> Self {
        same(&self.err, err);
        assert_eq!(self.status, Some(status), "{}", self.shown());
        self
    }

    /// Asserts this status, and a part of what is on standard error; returns the result.
    #[track_caller]
    pub fn failure_with(self, status: i32, part: &str) -> Self {
        assert_eq!(self.status, Some(status), "{}", self.shown());
        let is_said = self.err.contains(part);
        assert!(is_said, "not '{part}': {}", self.shown());
        self
    }

    fn shown(&self) -> String {
        let out = String::from_utf8_lossy(&self.out);
        format!(
            "status {:?}\n--- output\n{out}--- errors\n{}---",
            self.status, self.err
        )
    }
}

/// Runs a command to its end.
pub fn run(command: &mut Command) -> Ended {
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.expect("the binary starts");
    let out = child.stdout.take().map(collect).expect("piped");
    let err = child.stderr.take().map(collect).expect("piped");
    let status = wait(&mut child);
    let ended = Ended {
        status: status.code(),
        out: out
            .recv_timeout(DEADLINE)
            .expect("the pipe ends with the process"),
        err: String::from_utf8(err.recv_timeout(DEADLINE).expect("the pipe ends"))
            .expect("messages are UTF-8"),
    };
    assert!(!ended.err.contains("panicked"), "{}", ended.shown());
    ended
}

/// Runs gannet in a folder.
pub fn gannet_in<I: AsRef<OsStr>>(
    folder: &Folder,
    arguments: impl IntoIterator<Item = I>,
) -> Ended {
    run(command().current_dir(folder.path()).args(arguments))
}

/// Runs gannet.
pub fn gannet<I: AsRef<OsStr>>(arguments: impl IntoIterator<Item = I>) -> Ended {
    run(command().args(arguments))
}

/// Asserts that texts are equal; a failure shows both and the first different line.
pub fn same(got: &str, expect: &str) {
    if got == expect {
        return;
    }
    let line = got
        .lines()
        .zip(expect.lines())
        .take_while(|(a, b)| a == b)
        .count();
    let nth = |text: &str| {
        text.lines()
            .nth(line)
            .unwrap_or("(no such line)")
            .to_owned()
    };
    panic!(
        "the texts differ in line {}\n  got:    {}\n  expect: {}\n\
         ======== got\n{got}\n======== expect\n{expect}\n========",
        line + 1,
        nth(got),
        nth(expect),
    );
}

/// Reads a pipe to its end in a thread.
fn collect(mut pipe: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // The pipe of a killed process simply ends.
        let _ = pipe.read_to_end(&mut bytes);
        let _ = sender.send(bytes);
    });
    receiver
}

/// Waits for a process to end; at the deadline, kills it and fails the test.
fn wait(child: &mut Child) -> ExitStatus {
    let pid = process(child);
    let (sender, ended) = channel::<()>();
    let watch = thread::spawn(move || {
        if ended.recv_timeout(DEADLINE) == Err(RecvTimeoutError::Timeout) {
            // Not reaped yet, so the process ID is still valid.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            return false;
        }
        true
    });
    let status = child.wait().expect("it is our child");
    drop(sender);
    assert!(
        watch.join().expect("does not panic"),
        "the process did not end by itself"
    );
    status
}

fn process(child: &Child) -> rustix::process::Pid {
    rustix::process::Pid::from_child(child)
}

/// A running server, killed when dropped.
#[derive(Debug)]
pub struct Gannet {
    child: Child,
    start: Vec<String>,
    urls: Vec<String>,
    output: Lines,
    errors: Lines,
}

impl Gannet {
    /// Serves a path on a free loopback port, with additional flags before it.
    pub fn serve(path: impl AsRef<Path>, flags: &[&str]) -> Self {
        let mut command = command();
        command.args(["--port", "0"]).args(flags).arg(path.as_ref());
        Self::start(&mut command)
    }

    /// Starts a command that serves and prints its first lines on standard output.
    pub fn start(command: &mut Command) -> Self {
        Self::start_with(command, Stdio::piped())
    }

    /// The same with another standard error. Its lines can be read only if it is a pipe created
    /// here.
    pub fn start_with(command: &mut Command, errors: Stdio) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(errors).spawn();
        let mut child = child.expect("the binary starts");
        let output = lines(child.stdout.take().expect("piped"));
        let errors = match child.stderr.take() {
            Some(errors) => lines(errors),
            None => lines(std::io::empty()),
        };
        let mut gannet = Self {
            child,
            start: Vec::new(),
            urls: Vec::new(),
            output,
            errors,
        };
        loop {
            let Some(line) = gannet.next_line() else {
                let err = rest(&gannet.errors);
                panic!(
                    "it does not serve\n--- output\n{:#?}\n--- errors\n{err}",
                    gannet.start
                );
            };
            let mut ends = ["Ctrl-C to stop", "SIGTERM to stop"].iter();
            let is_last = ends.any(|end| line.starts_with(end));
            gannet.start.push(line);
            if is_last {
                break;
            }
        }
        gannet.urls = urls(&gannet.start);
        assert!(!gannet.urls.is_empty(), "no URL in {:#?}", gannet.start);
        gannet
    }

    /// The first lines of output, including the one that says how to stop.
    pub fn start_lines(&self) -> &[String] {
        &self.start
    }

    /// Every address, as printed: `http://127.0.0.1:43210/`, `unix:/run/socket`.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The first TCP address.
    pub fn address(&self) -> SocketAddr {
        let authority = |url: &String| Some(url.split_once("://")?.1.trim_end_matches('/').parse());
        let address = self
            .urls
            .iter()
            .find_map(authority)
            .expect("it listens on TCP");
        address.expect("the URL names address and port")
    }

    /// The address of the metrics.
    pub fn metrics(&self) -> Option<SocketAddr> {
        let line = self
            .start
            .iter()
            .find(|line| line.starts_with("metrics "))?;
        let url = line.split_whitespace().nth(1)?.strip_prefix("http://")?;
        url.strip_suffix("/metrics")?.parse().ok()
    }

    /// The process ID, for signals and `/proc`.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Bytes that it has handed on without having read them itself: `sendfile` counts them as written, a
    /// send does not.
    pub fn lent(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/io", self.pid())).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
        line.expect("it is counted").parse().expect("a number")
    }

    /// The next line of output; `None` at the end.
    pub fn next_line(&mut self) -> Option<String> {
        next(&self.output)
    }

    /// The next line of standard error; `None` at the end.
    pub fn next_error_line(&mut self) -> Option<String> {
        next(&self.errors)
    }

    /// Asserts a part of the next line of standard error.
    #[track_caller]
    pub fn says_next(&mut self, part: &str) {
        let line = self.next_error_line().expect("it says something");
        assert!(line.contains(part), "not '{part}': {line}");
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let sent = rustix::process::kill_process(process(&self.child), signal);
        sent.expect("it is our child and not waited for");
    }

    /// Waits until it ends by itself, as after a signal. The output is what followed the first
    /// lines.
    pub fn wait(mut self) -> Ended {
        let status = wait(&mut self.child);
        let out = rest(&self.output).into_bytes();
        Ended {
            status: status.code(),
            out,
            err: rest(&self.errors),
        }
    }

    /// Sends SIGTERM and waits for the end.
    pub fn stop(self) -> Ended {
        self.signal(Signal::TERM);
        self.wait()
    }
}

impl Drop for Gannet {
    fn drop(&mut self) {
        // Both have no effect on a process that was reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(pipe: impl Read + Send + 'static) -> Lines {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Mutex::new(receiver)
}

/// The lines of a pipe as they arrive; locked, so that threads of a test can share a server.
type Lines = Mutex<Receiver<String>>;

fn next(lines: &Lines) -> Option<String> {
    let lines = lines
        .lock()
        .expect("no reader panics before the test fails");
    match lines.recv_timeout(DEADLINE) {
        Ok(line) => Some(line),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("no line in {DEADLINE:?}"),
    }
}

/// All remaining lines of a process that has ended.
fn rest(lines: &Lines) -> String {
    std::iter::from_fn(|| next(lines))
        .map(|line| line + "\n")
        .collect()
}

fn urls(lines: &[String]) -> Vec<String> {
    lines
        .iter()
        .filter(|line| line.starts_with("at ") || line.starts_with(' '))
        .filter_map(|line| {
            line.split_whitespace()
                .find(|word| word.contains("://") || word.starts_with("unix:"))
        })
        .map(str::to_owned)
        .collect()
}
