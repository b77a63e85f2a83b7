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

const SERVER: &str = "as-the-server";
const COMPANION: &str = "as-the-companion";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[1..] {
        [SERVER, notes] => serve(notes),
        [COMPANION, notes] => accompany(notes),
        // Whatever a test is called with.
        _ => {
            // Closed, and killed.
            test("closed", |server| drop(server.stdin.take()));
            test("killed", |server| server.kill().expect("it runs"));
            println!("companions start, start again, and end with their servers");
        }
    }
}

/// Begins at a first byte on standard input, and ends with it.
fn serve(notes: &str) {
    let companion = Companion::fork("helper", [COMPANION, notes], &[], None).expect("one thread");
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

fn test(name: &str, end: impl FnOnce(&mut Child)) {
    let folder =
        std::env::temp_dir().join(format!("gannet-companion-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("ours");
    let path = |name: &str| folder.join(name);
    let [notes, out, error] = ["notes", "out", "error"].map(path);
    let file = |path: &Path| Stdio::from(File::create(path).expect("ours"));
    let mut server = Command::new(std::env::current_exe().expect("it runs"))
        .arg(SERVER)
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
    end(&mut server);
    server.wait().expect("it ends");
    for id in ids(second) {
        until("it ends with the server", || has_ended(id));
    }
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
