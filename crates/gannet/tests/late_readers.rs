//! Pages of files are under way to a peer that reads late: what changes meanwhile makes no whole answer, and
//! what cannot change goes to every peer, on each file system.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::LazyLock;

use gannet_testkit::client::{Client, head};
use gannet_testkit::content::pattern;
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::mount::Mount;
use gannet_testkit::process::until;
use gannet_testkit::{DEADLINE, Folder, Gannet, gannet_in, left_out};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};

const LEN: usize = 5 << 20;
static BODY: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(LEN, 5));

/// A client over loopback that has room for the whole body, and reads late: until then it has pages of the
/// file in its queue, all of them acknowledged.
struct LateReader {
    client: Client,
    queue: TcpStream,
}

impl LateReader {
    /// Asks for the long body. `None` if this user may not have so much room.
    fn new(server: &Gannet) -> Option<Self> {
        let made = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        if let Err(why) = sockopt::set_socket_recv_buffer_size_force(&made, 4 * LEN) {
            left_out("a late reader", why);
            return None;
        }
        connect(&made, &server.address()).expect("it listens");
        let stream = TcpStream::from(made);
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        let queue = stream.try_clone().expect("descriptors are left");
        let mut client = Client::over_stream(stream);
        client.send(head("GET", "/large.bin", &["connection: close"]));
        Some(Self { client, queue })
    }

    fn arrived(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.queue).expect("a socket")
    }

    /// Waits until everything has arrived but what is held back.
    fn wait(&self) {
        let most = LEN as u64 - (300 << 10);
        until("it has arrived", || self.arrived() > most);
    }

    /// Waits until everything has arrived, since nothing is held back.
    fn wait_for_all(&self) {
        until("all has arrived", || self.arrived() > LEN as u64);
    }

    /// Reads all, and returns it if it is a whole answer.
    fn whole(mut self) -> Option<Vec<u8>> {
        assert_eq!(self.client.head().content_length(), Some(LEN as u64));
        let (body, _) = self.client.rest();
        (body.len() == LEN).then_some(body)
    }
}

/// A folder with the long file, and an archive of it.
fn packed() -> Folder {
    let folder = Folder::new();
    folder.write("site/large.bin", &*BODY);
    let arguments = ["pack", "site", "-q", "--compress", "none", "--fast", "-o"];
    let ended = gannet_in(&folder, arguments.iter().chain(&["site.gannet"]));
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    folder
}

type Change = fn(&fs::File, u64);

/// What happens to a file in place.
const CHANGES: [Change; 5] = [
    |file, _| file.set_len(0).expect("truncated"),
    |file, len| {
        file.set_len(0).expect("truncated");
        file.set_len(len).expect("extended");
    },
    |file, len| file.set_len(len + 1).expect("extended"),
    |file, len| {
        let zeros = vec![0; len as usize];
        file.write_all_at(&zeros, 0).expect("written");
    },
    |file, len| {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, flags, 0, len).expect("punched");
    },
];

fn change(path: &Path, how: Change) {
    let file = fs::File::options().write(true).open(path).expect("ours");
    how(&file, file.metadata().expect("open").len());
}

/// An archive at this path that is changed in place, while pages of it are under way: a whole answer is of one version.
/// Without a change it ends as soon as its pages are read.
fn check_changes(served: &Path, archive: &Path, engine: Engine) {
    for how in [None].into_iter().chain(CHANGES.map(Some)) {
        fs::copy(archive, served).expect("copied");
        let server = engine.serve(served, &["--cache-memory", "0"]);
        let before = server.lent();
        let Some(reader) = LateReader::new(&server) else {
            return;
        };
        reader.wait();
        let pages = server.lent() - before;
        assert!(pages > LEN as u64 / 2, "{pages} bytes as pages");
        if let Some(how) = how {
            change(served, how);
            // No other version of it is an archive.
            let whole = reader.whole();
            assert!(
                whole.is_none_or(|it| it == *BODY),
                "it pretends to be whole"
            );
        } else {
            assert!(reader.whole().expect("nothing has changed") == *BODY);
        }
    }
}

#[test]
fn what_changes_while_its_pages_are_unread_makes_no_whole_answer() {
    let packed = packed();
    let archive = packed.join("site.gannet");
    let mounts = [Mount::tmpfs(), Mount::ext4("")];
    let mut places: Vec<_> = mounts.iter().flatten().map(Mount::path).collect();
    if places.is_empty() {
        places.push(packed.path());
    }
    on_both_engines(|engine| {
        for place in &places {
            let served = place.join(format!("{}.gannet", engine.name()));
            check_changes(&served, &archive, engine);
        }
    });
}

/// At the other end of a Unix socket, whose queue holds what it has not read: as above.
#[test]
fn a_reader_at_a_unix_socket_that_is_late_gets_no_mixed_answer() {
    let packed = packed();
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

/// Whether this peer, of which nobody knows what it has read, gets pages: then all has arrived before any of it
/// is read.
fn check_pages(server: &Gannet, expect: bool, meanwhile: impl FnOnce()) {
    let before = server.lent();
    let Some(reader) = LateReader::new(server) else {
        return;
    };
    reader.wait_for_all();
    let pages = server.lent() - before;
    assert_eq!(pages >= LEN as u64, expect, "{pages} bytes as pages");
    meanwhile();
    assert!(reader.whole().expect("nothing has changed") == *BODY);
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
    let packed = packed();
    on_both_engines(|engine| {
        for mount in [Mount::erofs, Mount::squashfs] {
            for served in ["site", "site.gannet"] {
                let Some(mount) = mount(&packed) else {
                    continue;
                };
                let server = engine.serve(mount.join(served), &UNKNOWN);
                says(&server, "fixed by its file system)");
                check_pages(&server, true, || {
                    for how in CHANGES.into_iter().rev() {
                        change(&mount.image(), how);
                    }
                });
            }
        }
        let server = engine.serve(packed.join("site.gannet"), &UNKNOWN);
        check_pages(&server, false, || {});
    });
}
