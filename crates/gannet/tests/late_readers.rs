//! Pages of files are under way to a peer that reads late: what changes meanwhile makes no whole answer, and
//! what cannot change goes to every peer, on each file system.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use gannet_store::{Publisher, Store};
use gannet_testkit::client::{Client, head};
use gannet_testkit::content::pattern;
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::process::until;
use gannet_testkit::{DEADLINE, Folder, Gannet, gannet, gannet_in, left_out, run, tool};
use rustix::fs::{AtFlags, CWD, FallocateFlags, StatxAttributes, StatxFlags, fallocate, statx};
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

/// A file system that is mounted in a folder, until it is dropped.
struct Mount {
    folder: Folder,
    path: PathBuf,
}

impl Mount {
    /// Mounts what `make` has put into the file `image`, or nothing. `None` if this machine has no such thing.
    fn new(kind: &str, options: &str, make: impl FnOnce(&Path)) -> Option<Self> {
        let folder = Folder::new();
        let (path, image) = (folder.join("mounted"), folder.join("image"));
        fs::create_dir(&path).expect("made");
        fs::write(&image, "").expect("made");
        make(&image);
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", options]).arg(&image);
        let ended = run(mount.arg(&path));
        if ended.status == Some(0) {
            return Some(Self { folder, path });
        }
        left_out(
            "mounting file systems",
            format!("{kind}: {}", ended.err.trim()),
        );
        None
    }

    fn tmpfs() -> Option<Self> {
        Self::new("tmpfs", "size=64m", |_| {})
    }

    /// With the features, which begin with a comma.
    fn ext4(features: &str) -> Option<Self> {
        if !tool("mkfs.ext4", &["-V"]) {
            return None;
        }
        Self::new("ext4", "loop", |image| {
            let file = fs::File::options().write(true).open(image);
            file.and_then(|file| file.set_len(96 << 20)).expect("ours");
            let features = format!("extent{features}");
            must(
                Command::new("mkfs.ext4")
                    .args(["-q", "-F", "-b", "4096", "-O"])
                    .arg(features)
                    .arg(image),
            );
        })
    }

    /// With the files of a folder, and their times.
    fn erofs(of: &Folder) -> Option<Self> {
        if !tool("mkfs.erofs", &["--help"]) {
            return None;
        }
        Self::new("erofs", "loop,ro", |image| {
            let mut make = Command::new("mkfs.erofs");
            must(make.arg("--quiet").arg(image).arg(of.path()));
        })
    }

    /// The same.
    fn squashfs(of: &Folder) -> Option<Self> {
        if !tool("mksquashfs", &["-version"]) {
            return None;
        }
        Self::new("squashfs", "loop,ro", |image| {
            let mut make = Command::new("mksquashfs");
            make.arg(of.path()).arg(image);
            must(make.args(["-noappend", "-quiet", "-no-progress"]));
        })
    }

    fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Of a failed test a server may still be at work.
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
    }
}

fn must(command: &mut Command) {
    let ended = run(command.stdin(Stdio::null()));
    assert_eq!(ended.status, Some(0), "{}", ended.err);
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

/// Bytes that a server has handed on without having read them itself: `sendfile` counts them as written, a
/// send does not.
fn lent(server: &Gannet) -> u64 {
    let text = fs::read_to_string(format!("/proc/{}/io", server.pid())).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "));
    line.expect("it is counted").parse().expect("a number")
}

/// An archive at this path that is changed in place, while pages of it are under way: a whole answer is of one version.
/// Without a change it ends as soon as its pages are read.
fn check_changes(served: &Path, archive: &Path, engine: Engine) {
    for how in [None].into_iter().chain(CHANGES.map(Some)) {
        fs::copy(archive, served).expect("copied");
        let server = engine.serve(served, &["--cache-memory", "0"]);
        let before = lent(&server);
        let Some(reader) = LateReader::new(&server) else {
            return;
        };
        reader.wait();
        let pages = lent(&server) - before;
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
    let mut places: Vec<_> = mounts.iter().flatten().map(|it| &*it.path).collect();
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
            let before = lent(&server);
            let mut client = Client::unix(&path);
            client.send(head("GET", "/large.bin", &["connection: close"]));
            until("its queue has pages", || lent(&server) - before > 100 << 10);
            if let Some(how) = how {
                change(&served, how);
            }
            assert_eq!(client.head().content_length(), Some(LEN as u64));
            let (body, _) = client.rest();
            let is_whole = body.len() == LEN;
            assert!(!is_whole || body == *BODY, "it pretends to be whole");
            if how.is_none() {
                assert!(is_whole, "nothing has changed: {} bytes", body.len());
                let pages = lent(&server) - before;
                assert!(pages > LEN as u64 / 2, "{pages} bytes as pages");
            }
        }
    });
}

/// Whether this peer, of which nobody knows what it has read, gets pages: then all has arrived before any of it
/// is read.
fn check_pages(server: &Gannet, expect: bool, meanwhile: impl FnOnce()) {
    let before = lent(server);
    let Some(reader) = LateReader::new(server) else {
        return;
    };
    reader.wait_for_all();
    let pages = lent(server) - before;
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
                let is_archive = served.ends_with(".gannet");
                if is_archive {
                    says(&server, "fixed by its file system)");
                }
                check_pages(&server, true, || {
                    for how in CHANGES.into_iter().rev() {
                        change(&mount.folder.join("image"), how);
                    }
                });
            }
        }
        let server = engine.serve(packed.join("site.gannet"), &UNKNOWN);
        check_pages(&server, false, || {});
    });
}

fn has_verity(path: &Path) -> bool {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::empty()).expect("it is there");
    found.stx_attributes.contains(StatxAttributes::VERITY)
}

/// The files in a store's folder of releases.
fn releases(store: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(store.join("releases")).expect("a store");
    entries.map(|it| it.expect("listed").path()).collect()
}

/// Takes over what a store has, as a follower does that has fetched it.
fn adopt(store: &Path, copy: &Path) {
    let store = Store::open(store, None).expect("a store");
    let pointer = store.pointer().expect("in force");
    let publisher = Publisher::open(copy, "test", pointer.published).expect("a store");
    let part = publisher.part_path(pointer.release);
    fs::copy(store.release_path(pointer.release), part).expect("copied");
    publisher
        .adopt_release(&pointer)
        .expect("it is the release");
    publisher
        .adopt(&pointer, &pointer.to_text())
        .expect("adopted");
}

/// Publishing gives releases fs-verity, and following does; their pages go to every peer then.
#[test]
fn releases_with_verity_go_to_every_peer() {
    let Some(mount) = Mount::ext4(",verity") else {
        return;
    };
    let packed = packed();
    let archive = packed.join("site.gannet");
    let (store, copy) = (mount.join("store"), mount.join("copy"));
    let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    gannet(["publish", "-q", &text(&archive), &text(&store)]).success();
    adopt(&store, &copy);
    for store in [&store, &copy] {
        let [release] = &releases(store)[..] else {
            panic!("one release");
        };
        if !has_verity(release) {
            return left_out("fs-verity", "the kernel has none");
        }
        let refused = fs::File::options().write(true).open(release);
        let refused = refused.expect_err("nobody may write it").kind();
        assert_eq!(refused, io::ErrorKind::PermissionDenied);
        let found = gannet(["doctor", "--port", "0", &text(store)]);
        assert!(
            found.text().contains("on ext4, fixed by fs-verity"),
            "{}",
            found.text()
        );
        on_both_engines(|engine| {
            let server = engine.serve(store, &UNKNOWN);
            says(&server, "fixed by fs-verity)");
            check_pages(&server, true, || {});
        });
    }
    // A release that is there already stays, and is removed like any other.
    gannet(["publish", "-q", &text(&archive), &text(&store)]).success();
    for release in releases(&store) {
        fs::remove_file(release).expect("removed");
    }
}
