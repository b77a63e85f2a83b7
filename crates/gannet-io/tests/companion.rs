//! A process beside a server: it starts when it is told, again after it has ended, and ends with the
//! server, however that ends.
//!
//! This program plays all parts: the test, the server, and its companion.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gannet_io::companion::Companion;
use gannet_testkit::DEADLINE;
use rustix::process::{Pid, Resource, Rlimit, Signal};

const SERVER: &str = "as-the-server";
const COMPANION: &str = "as-the-companion";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[1..] {
        [SERVER, "refused", notes] => {
            refuse_close_range();
            serve(notes);
        }
        [SERVER, _, notes] => serve(notes),
        [COMPANION, notes] => accompany(notes),
        // Whatever a test is called with.
        _ => {
            test("closed", |scene| drop(scene.server.stdin.take()));
            test("killed", |scene| scene.server.kill().expect("it runs"));
            // The system is old, or a container does not let processes close all at once.
            test("refused", |scene| scene.server.kill().expect("it runs"));
            // The keeper can wait for nobody: neither it nor the companion stays behind.
            test("unattended", |scene| have_polls_fail(scene.keeper));
            test("asked", ask_the_companion_to_end);
            test("stopped", stop_all);
            println!("companions start, start again, and end with their servers");
        }
    }
}

/// Has the kernel refuse `close_range` to this process and those that it starts.
fn refuse_close_range() {
    let step = |code: u32, jt, jf, k| libc::sock_filter {
        code: u16::try_from(code).expect("a code"),
        jt,
        jf,
        k,
    };
    let call = u32::try_from(libc::SYS_close_range).expect("a number");
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    let mut steps = [
        // The number of the call comes first.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, refused),
        step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: u16::try_from(steps.len()).expect("few"),
        filter: steps.as_mut_ptr(),
    };
    rustix::thread::set_no_new_privs(true).expect("allowed");
    // SAFETY: the kernel copies the program, which outlives the call.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            std::ptr::from_ref(&program),
        )
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// Takes a process its right to any descriptors, and has it repeat the call that it waits in.
fn have_polls_fail(id: u32) {
    let process = Pid::from_raw(id.cast_signed()).expect("a number");
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    rustix::process::prlimit(Some(process), Resource::Nofile, none).expect("it runs");
    for each in [Signal::STOP, Signal::CONT] {
        signal(id, each);
        let state = |it: &str| {
            let stat = fs::read_to_string(format!("/proc/{id}/stat"));
            stat.is_ok_and(|stat| stat.contains(it))
        };
        until("it stops, and goes on", || {
            state(") T ") == (each == Signal::STOP)
        });
    }
}

/// Somebody asks the companion alone to end: it is started again, and that is told.
fn ask_the_companion_to_end(scene: &mut Scene) {
    let before = read(&scene.error);
    signal(scene.companion, Signal::TERM);
    until("it has started a third time", || scene.starts() == 3);
    let told = "gannet: helper has ended (signal: 15 (SIGTERM)); started again now\na word\n";
    assert_eq!(read(&scene.error), format!("{before}{told}"));
    drop(scene.server.stdin.take());
}

/// All processes of a service are asked to end, and the companion is the first to do so: that is told
/// only if it is started again.
fn stop_all(scene: &mut Scene) {
    signal(scene.companion, Signal::TERM);
    let stat = format!("/proc/{}/stat", scene.companion);
    until("the keeper knows", || fs::metadata(&stat).is_err());
    scene.server.kill().expect("it runs");
    until("the keeper ends", || has_ended(scene.keeper));
    let told = read(&scene.error).matches("has ended").count();
    // Two starts and the first end, unless the machine was busy for as long as the pause takes.
    assert_eq!(told, scene.starts() - 1, "{}", read(&scene.error));
}

fn signal(process: u32, signal: Signal) {
    let process = Pid::from_raw(process.cast_signed()).expect("a number");
    rustix::process::kill_process(process, signal).expect("it runs");
}

/// Begins at a first byte on standard input, and ends with it.
fn serve(notes: &str) {
    let companion =
        Companion::fork("helper", [COMPANION, notes], &[], [None, None], None).expect("one thread");
    println!("the log");
    let mut byte = [0];
    std::io::stdin().read_exact(&mut byte).expect("the first");
    companion.begin();
    let _ = std::io::stdin().read(&mut byte);
}

/// Notes its process ID and that of its keeper; ends the first time.
fn accompany(notes: &str) {
    let known = fs::read_to_string(notes).unwrap_or_default();
    println!("a word");
    let keeper = std::os::unix::process::parent_id();
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(notes)
        .expect("ours");
    // One write, so that nobody reads half of it.
    let line = format!("{} {keeper}\n", std::process::id());
    file.write_all(line.as_bytes()).expect("written");
    if known.is_empty() {
        std::process::exit(3);
    }
    loop {
        std::thread::park();
    }
}

/// A server whose companion has started twice.
struct Scene {
    server: Child,
    companion: u32,
    keeper: u32,
    /// A line for each start of the companion.
    notes: PathBuf,
    /// What the companion and its keeper have said.
    error: PathBuf,
}

impl Scene {
    fn starts(&self) -> usize {
        read(&self.notes).lines().count()
    }
}

/// `end` ends the server or the keeper.
fn test(name: &str, end: impl FnOnce(&mut Scene)) {
    let folder =
        std::env::temp_dir().join(format!("gannet-companion-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("ours");
    let path = |name: &str| folder.join(name);
    let [notes, out, error] = ["notes", "out", "error"].map(path);
    let file = |path: &Path| Stdio::from(File::create(path).expect("ours"));
    let mut server = Command::new(std::env::current_exe().expect("it runs"))
        .args([SERVER, name])
        .arg(&notes)
        .stdin(Stdio::piped())
        .stdout(file(&out))
        .stderr(file(&error))
        .spawn()
        .expect("it starts");
    until("the keeper waits", || read(&out) == "the log\n");
    assert_eq!(read(&notes), "", "nothing has begun");
    let input = server.stdin.as_mut().expect("piped");
    input.write_all(b"b").expect("it reads");
    until("it has started again", || read(&notes).lines().count() == 2);
    let expect =
        "a word\ngannet: helper has ended (exit status: 3); started again in 1 s\na word\n";
    assert_eq!(read(&error), expect);
    assert_eq!(read(&out), "the log\n", "standard output is the server's");
    let both = read(&notes);
    let [first, second] = [0, 1].map(|line| both.lines().nth(line).expect("two"));
    let ids = |line: &str| -> Vec<u32> {
        line.split(' ')
            .map(|id| id.parse().expect("a number"))
            .collect()
    };
    assert_eq!(ids(first)[1], ids(second)[1], "the same keeper");
    let mut scene = Scene {
        server,
        companion: ids(second)[0],
        keeper: ids(second)[1],
        notes,
        error,
    };
    end(&mut scene);
    for id in ids(second) {
        until(&format!("{name}: it ends"), || has_ended(id));
    }
    drop(scene.server.stdin.take());
    scene.server.wait().expect("it ends");
    fs::remove_dir_all(folder).expect("ours");
}

fn read(path: &PathBuf) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn has_ended(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}
