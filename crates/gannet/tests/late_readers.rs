//! Pages of files are under way to a peer that reads late: what changes meanwhile makes no whole answer, and
//! what cannot change goes to every peer, on each file system.

mod common;

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use common::{CHANGES, change, check_late, check_pages, connect_with_room, destroy, packed};
use gannet_testkit::client::{Client, head};
use gannet_testkit::content::pattern;
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::mount::Mount;
use gannet_testkit::process::until;
use gannet_testkit::{Gannet, left_out};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};

const LEN: usize = 5 << 20;
static BODY: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(LEN, 5));

/// A connection over loopback that has room for the whole body: until it is read, pages of the file are in its
/// queue. `None` if this user may not have so much room.
fn roomy(server: &Gannet) -> Option<std::net::TcpStream> {
    let made = connect_with_room(server.address(), 4 * LEN);
    made.map_err(|why| left_out("a late reader", why)).ok()
}

/// An archive at this path that is changed in place, while pages of it are under way.
fn check_archive(served: &Path, archive: &Path, engine: Engine) {
    for how in [None].into_iter().chain(CHANGES.map(Some)) {
        fs::copy(archive, served).expect("copied");
        let server = engine.serve(served, &["--cache-memory", "0"]);
        if let Some(stream) = roomy(&server) {
            let how = how.map(|how| (served, how));
            check_late(&server, (stream, "/large.bin"), &BODY, how);
        }
    }
}

#[test]
fn what_changes_while_its_pages_are_unread_makes_no_whole_answer() {
    let packed = packed(&BODY);
    let archive = packed.join("site.gannet");
    let mounts = [Mount::tmpfs(), Mount::ext4("")];
    let mut places: Vec<_> = mounts.iter().flatten().map(Mount::path).collect();
    if places.is_empty() {
        places.push(packed.path());
    }
    on_both_engines(|engine| {
        for place in &places {
            let served = place.join(format!("{}.gannet", engine.name()));
            check_archive(&served, &archive, engine);
        }
    });
}

/// The same of a live directory, whose files have not changed for a minute.
#[test]
fn a_live_file_that_changes_while_its_pages_are_unread_makes_no_whole_answer() {
    on_both_engines(|engine| {
        let Some(site) = Mount::old_files(CHANGES.len() + 1, &BODY) else {
            return;
        };
        let server = engine.serve(site.path(), &["--cache-memory", "0"]);
        let changes = CHANGES.into_iter().map(Some).chain([None]);
        for (number, how) in changes.enumerate() {
            let name = format!("{number}.bin");
            let path = site.join(&name);
            if let Some(stream) = roomy(&server) {
                let how = how.map(|how| (&*path, how));
                check_late(&server, (stream, &format!("/{name}")), &BODY, how);
            }
        }
    });
}

/// At the other end of a Unix socket, whose queue holds what it has not read: as above.
#[test]
fn a_reader_at_a_unix_socket_that_is_late_gets_no_mixed_answer() {
    let packed = packed(&BODY);
    let archive = packed.join("site.gannet");
    on_both_engines(|engine| {
        let path = packed.join(format!("{}.sock", engine.name()));
        let listen = format!("unix:{}", path.display());
        for how in [None].into_iter().chain(CHANGES.map(Some)) {
            let served = packed.join(format!("{}.gannet", engine.name()));
            fs::copy(&archive, &served).expect("copied");
            let server = engine.serve(&served, &["--cache-memory", "0", "--listen", &listen]);
            let before = server.lent();
            let mut client = Client::unix(&path);
            client.send(head("GET", "/large.bin", &["connection: close"]));
            until("its queue has pages", || server.lent() - before > 100 << 10);
            if let Some(how) = how {
                change(&served, how);
            }
            assert_eq!(client.head().content_length(), Some(LEN as u64));
            let (body, _) = client.rest();
            let is_whole = body.len() == LEN;
            assert!(!is_whole || body == *BODY, "it pretends to be whole");
            if how.is_none() {
                assert!(is_whole, "nothing has changed: {} bytes", body.len());
                let pages = server.lent() - before;
                assert!(pages > LEN as u64 / 2, "{pages} bytes as pages");
            }
        }
    });
}

/// Whether a peer of which nobody knows what it has read gets pages.
fn check_unknown(server: &Gannet, expect: bool, meanwhile: impl FnOnce()) {
    if let Some(stream) = roomy(server) {
        check_pages(server, (stream, &BODY), expect, meanwhile);
    }
}

/// Such a peer: it may be a proxy, which passes pages on.
const UNKNOWN: [&str; 4] = ["--cache-memory", "0", "--trust", "127.0.0.1"];

fn says(server: &Gannet, part: &str) {
    let lines = server.start_lines();
    assert!(lines.iter().any(|it| it.contains(part)), "{lines:?}");
}

/// From a directory whose files have just changed, and from an archive; what is below the file system is destroyed
/// meanwhile.
#[test]
fn pages_on_file_systems_that_are_never_written_go_to_every_peer() {
    let packed = packed(&BODY);
    on_both_engines(|engine| {
        for mount in [Mount::erofs, Mount::squashfs] {
            for served in ["site", "site.gannet"] {
                let Some(mount) = mount(&packed) else {
                    continue;
                };
                let server = engine.serve(mount.join(served), &UNKNOWN);
                says(&server, "fixed by its file system)");
                check_unknown(&server, true, || destroy(&mount));
            }
        }
        let server = engine.serve(packed.join("site.gannet"), &UNKNOWN);
        check_unknown(&server, false, || {});
    });
}

/// Sets or clears the immutable flag of a file, as `chattr` does.
fn set_immutable(path: &Path, on: bool) {
    let file = fs::File::open(path).expect("ours");
    let mut flags = ioctl_getflags(&file).expect("it has flags");
    flags.set(IFlags::IMMUTABLE, on);
    ioctl_setflags(&file, flags).expect("as root");
}

/// As long as nobody may change them, whoever it is: files that have just changed, too, and an archive.
#[test]
fn immutable_files_go_to_every_peer() {
    let Some(mount) = Mount::ext4("") else {
        return;
    };
    let packed = packed(&BODY);
    let [file, archive] = ["large.bin", "site.gannet"].map(|name| mount.join(name));
    fs::copy(packed.join("site/large.bin"), &file).expect("copied");
    fs::copy(packed.join("site.gannet"), &archive).expect("copied");
    for is_fixed in [true, false] {
        for path in [&file, &archive] {
            set_immutable(path, is_fixed);
        }
        on_both_engines(|engine| {
            let server = engine.serve(mount.path(), &UNKNOWN);
            check_unknown(&server, is_fixed, || {});
            let server = engine.serve(&archive, &UNKNOWN);
            let lines = server.start_lines();
            let fixed = |line: &String| line.contains("fixed by the immutable flag)");
            assert_eq!(lines.iter().any(fixed), is_fixed, "{lines:?}");
            check_unknown(&server, is_fixed, || {});
        });
    }
}
