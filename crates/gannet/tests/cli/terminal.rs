//! The program at a terminal.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::Stdio;

use gannet_testkit::process::until;
use gannet_testkit::{Folder, Gannet, Signal, command, same};
use rustix::fs::OFlags;

/// Both ends of a pseudoterminal: the first shows what is written to the second.
fn terminal() -> (fs::File, fs::File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let outer =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
    grantpt(&outer).expect("granted");
    unlockpt(&outer).expect("unlocked");
    let name = ptsname(&outer, Vec::new())
        .expect("a name")
        .into_string()
        .expect("ASCII");
    // It must not become that of this process, if this one has none and is the first of its session.
    let inner = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlags::NOCTTY.bits().cast_signed())
        .open(name)
        .expect("opened");
    (outer.into(), inner)
}

#[test]
fn the_current_directory_is_served_with_and_without_a_terminal() {
    let site = Folder::site();
    let (_outer, inner) = terminal();
    for (input, stop) in [(inner.into(), "Ctrl-C"), (Stdio::null(), "SIGTERM")] {
        let mut command = command();
        command.args(["-p", "0"]).current_dir(site.path());
        let server = Gannet::start(command.stdin(input));
        let expect = format!("serving  {} (directory)", site.path().display());
        same(&server.start_lines()[1], &expect);
        let last = server.start_lines().last().expect("lines");
        same(
            last.split(';').next().expect("text"),
            &format!("{stop} to stop"),
        );
        server.stop().success();
    }
}

/// Its output is enough, as in a loop of a shell that reads a list.
#[test]
fn ctrl_c_stops_what_reads_no_terminal_but_writes_to_one() {
    let site = Folder::site();
    let (outer, inner) = terminal();
    let mut command = command();
    command.args(["-p", "0"]).arg(site.path()).stdout(inner);
    let mut child = command.spawn().expect("it starts");
    let mut lines = BufReader::new(outer).lines().map_while(Result::ok);
    let last = lines.find(|line| line.contains(" to stop"));
    child.kill().expect("ours");
    child.wait().expect("ours");
    let last = last.expect("lines");
    assert!(last.contains("Ctrl-C to stop"), "{last}");
}

#[test]
fn a_closed_terminal_ends_the_server_and_a_rotated_log_does_not() {
    let site = Folder::site();
    let log = site.join("log");
    let flags = ["-p", "0", "--log-file", log.to_str().expect("UTF-8")];
    let (outer, inner) = terminal();
    let mut beside = inner.try_clone().expect("descriptors are left");
    let mut server = Gannet::start(command().args(flags).arg(site.path()).stdin(inner));
    fs::remove_file(&log).expect("it was made at the start");
    server.signal(Signal::HUP);
    server.signal(Signal::USR1);
    server.next_error_line().expect("it still serves");
    drop(outer);
    // A process that another test starts has it, too, until it runs its own program.
    until("it is closed", || beside.write(b"?").is_err());
    server.signal(Signal::HUP);
    assert_eq!(server.wait().status, Some(0));
    assert!(log.exists(), "the log was not reopened");
}

/// A code is printed if it is wanted, or if others can connect and somebody sees it.
#[test]
fn the_code_of_the_address_is_printed_for_those_who_can_use_it() {
    let site = Folder::site();
    let is_code = |line: &&String| line.chars().count() == 33 && line.contains('▄');
    let codes = |flags: &[&str]| {
        let server = Gannet::start(command().args(["-p", "0"]).args(flags).arg(site.path()));
        let count = server.start_lines().iter().filter(is_code).count();
        server.stop().success();
        count
    };
    assert_eq!(codes(&[]), 0);
    assert_eq!(codes(&["--expose"]), 0, "standard output is no terminal");
    assert!(codes(&["--qr"]) > 8);
    assert_eq!(codes(&["--expose", "--qr=false"]), 0);

    let (outer, inner) = terminal();
    let mut child = command()
        .args(["-p", "0"])
        .arg(site.path())
        .stdout(inner)
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(outer).lines().map_while(Result::ok);
    let lines: Vec<String> = lines
        .take_while(|line| !line.contains(" to stop"))
        .collect();
    assert!(lines.iter().any(|line| line.contains("http://127.0.0.1:")));
    assert!(!lines.iter().any(|line| line.contains('▄')), "{lines:#?}");
    child.kill().expect("ours");
    child.wait().expect("ours");
}
