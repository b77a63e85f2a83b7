//! A server serves, follows changes and stops whether or not its messages are read.

use std::fs::{self, File};
use std::io::{PipeReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use gannet_testkit::client::{Client, get};
use gannet_testkit::content::pattern;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::until;
use gannet_testkit::{Folder, Gannet, Signal, command, gannet_in};
use rustix::fs::OFlags;

/// A full pipe, and its reading end, which is never read.
fn stuck() -> (Stdio, Option<PipeReader>) {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let mut writer = File::from(OwnedFd::from(writer));
    let flags = rustix::fs::fcntl_getfl(&writer).expect("it is open");
    rustix::fs::fcntl_setfl(&writer, flags | OFlags::NONBLOCK).expect("it is open");
    while writer.write(&[b'x'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).expect("it is open");
    (writer.into(), Some(reader))
}

/// A pipe without a reader.
fn abandoned() -> (Stdio, Option<PipeReader>) {
    let (_, writer) = std::io::pipe().expect("a pipe");
    (writer.into(), None)
}

/// A file on a full disk.
fn full() -> (Stdio, Option<PipeReader>) {
    let file = File::options().write(true).open("/dev/full");
    (file.expect("exists").into(), None)
}

type Stream = fn() -> (Stdio, Option<PipeReader>);

const STREAMS: [(&str, Stream); 3] = [("stuck", stuck), ("abandoned", abandoned), ("full", full)];

fn make(path: &Path, version: &str) {
    fs::create_dir_all(path).expect("made");
    fs::write(path.join("page.txt"), version).expect("written");
    fs::write(path.join("_redirects"), format!("/which /{version} 302\n")).expect("written");
}

fn is_served(server: &Gannet, version: &str) {
    let location = format!("/{version}");
    let mut client = Client::new(server);
    until("the new version is served", || {
        let page = client.get("/page.txt");
        let redirect = client.get("/which");
        page.text() == version && redirect.field("location") == Some(&*location)
    });
}

#[test]
fn a_server_whose_messages_are_lost_serves_follows_and_stops() {
    on_both_engines(|engine| {
        for (what, stream) in STREAMS {
            let folder = Folder::new();
            let site = folder.join("site");
            make(&site, "one");
            let (errors, _reader) = stream();
            let mut command = command();
            command.args(["--port", "0", "--workers", "1", "--engine", engine.name()]);
            let server = Gannet::start_with(command.arg(&site), errors);
            is_served(&server, "one");
            for signal in [Signal::USR1, Signal::HUP] {
                server.signal(signal);
            }
            fs::rename(&site, folder.join("old")).expect("moved");
            make(&site, "two");
            is_served(&server, "two");
            // Rejected, reported and corrected.
            fs::write(site.join("_redirects"), "nonsense here\n").expect("written");
            server.signal(Signal::HUP);
            make(&site, "three");
            is_served(&server, "three");
            let ended = server.stop();
            assert_eq!(ended.status, Some(0), "{what}: {ended:?}");
        }
    });
}

/// Anywhere but in the journal, a line is the message alone.
#[test]
fn in_the_journal_a_line_has_a_priority() {
    let folder = Folder::new();
    let file = File::create(folder.join("errors")).expect("made");
    let metadata = file.metadata().expect("open");
    let here = format!("{}:{}", metadata.dev(), metadata.ino());
    for (stream, start) in [
        (here.as_str(), "<3>gannet: cannot "),
        ("1:2", "gannet: cannot "),
    ] {
        let mut command = command();
        let errors = File::create(folder.join("errors")).expect("made");
        command
            .args(["none", "--port", "0"])
            .env("JOURNAL_STREAM", stream);
        let status = command.current_dir(folder.path()).stderr(errors).status();
        assert_eq!(status.expect("it ends").code(), Some(1));
        let said = fs::read_to_string(folder.join("errors")).expect("text");
        assert!(said.starts_with(start), "{said}");
    }
}

const LEN: usize = 200_000;

/// A message from a worker itself.
#[test]
fn a_worker_that_has_something_to_tell_goes_on() {
    on_both_engines(|engine| {
        for (what, stream) in STREAMS {
            let folder = Folder::new();
            for number in 0..2 {
                let content = pattern(LEN, number);
                folder.write(format!("site/{number}.bin"), content);
            }
            gannet_in(&folder, ["pack", "site", "--fast", "--quiet"]).success();
            let archive = folder.join("site.gannet");
            let (errors, _reader) = stream();
            let mut command = command();
            command.args(["--port", "0", "--workers", "1", "--engine", engine.name()]);
            command.args(["--cache-memory", "0", "--health", "/healthz"]);
            let server = Gannet::start_with(command.arg(&archive), errors);
            get(&server, "/0.bin").expect(200);
            let file = File::options().write(true).open(&archive);
            let file = file.expect("exists");
            file.write_all_at(b"changed", LEN as u64).expect("written");
            let mut client = Client::new(&server);
            client.send("GET /1.bin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
            let (answer, _) = client.rest();
            assert!(answer.len() < LEN, "{what}: the archive has changed");
            get(&server, "/healthz").expect(200);
            assert_eq!(server.stop().status, Some(0), "{what}");
        }
    });
}

/// The first lines, too: unread standard output delays no signal.
#[test]
fn first_lines_that_nobody_reads_hold_up_nothing() {
    on_both_engines(|engine| {
        for (what, stream) in STREAMS {
            let folder = Folder::site();
            let socket: PathBuf = folder.join("socket");
            let ((output, _one), (errors, _other)) = (stream(), stream());
            let mut command = command();
            command.args(["--engine", engine.name(), "--listen"]);
            command.arg(format!("unix:{}", socket.display()));
            command.arg(folder.path()).stdout(output).stderr(errors);
            let mut child = command.spawn().expect("the binary starts");
            until("it listens", || socket.exists());
            Client::unix(&socket).get("/about").expect(200);
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, Signal::TERM).expect("it runs");
            let mut status = None;
            until("it ends", || {
                status = child.try_wait().expect("it is our child");
                status.is_some()
            });
            let code = status.and_then(|it| it.code());
            // Before it serves, a signal ends it at once.
            assert!(matches!(code, Some(0 | 143)), "{what}: {status:?}");
        }
    });
}
