//! Between network namespaces, as with containers, unread data of a peer may be the very pages of
//! the file, so pages of what may change are never sent.
//!
//! Needs root and iproute2.

mod common;

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use common::{
    CHANGES, Change, LateReader, change, check_late, check_pages, connect_with_room, destroy,
    packed,
};
use gannet_testkit::content::{pattern, unlike_pattern};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::mount::Mount;
use gannet_testkit::{Folder, Gannet, left_out};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Longer than the copies in memory, and than any socket buffer.
const LARGE: usize = 16 << 20;

/// The client's socket buffer: together with the server's it is smaller than the file, but larger
/// than the requested ranges.
const UNREAD: usize = 4 << 20;

/// Two network namespaces connected by a veth pair; deleted on drop.
struct Cable {
    server: String,
    client: String,
}

impl Cable {
    /// Creates the pair; the server's interface has this name. `None` if this is not permitted: the
    /// test is left out.
    fn new(device: &str) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |side| format!("gannet-{}-{count}-{side}", std::process::id());
        let (server, client) = (name("server"), name("client"));
        let made = ip(&["netns", "add", &server]).and_then(|()| ip(&["netns", "add", &client]));
        // From here on, drop deletes them.
        let cable = Self { server, client };
        let made = made.and_then(|()| cable.connect(device));
        if let Err(why) = made {
            left_out("network namespaces", why);
            return None;
        }
        Some(cable)
    }

    fn connect(&self, device: &str) -> Result<(), String> {
        let (server, client) = (self.server.as_str(), self.client.as_str());
        let peer = ["peer", "name", "far", "netns", client];
        let ends = ["link", "add", device, "netns", server, "type", "veth"];
        ip(&[&ends[..], &peer].concat())?;
        for (side, device, address) in [
            (server, device, "10.77.0.1/24"),
            (client, "far", "10.77.0.2/24"),
        ] {
            ip(&["-n", side, "address", "add", address, "dev", device])?;
            ip(&["-n", side, "link", "set", device, "up"])?;
        }
        Ok(())
    }

    /// Serves a folder or an archive at the server's end. Nothing is copied before it is asked for.
    fn serve(&self, engine: Engine, path: &Path, way: Way) -> Gannet {
        let mut command = match way {
            Way::Container => Command::new("ip"),
            Way::NetworkAlone => Command::new("nsenter"),
        };
        match way {
            Way::Container => command.args(["netns", "exec", &self.server]),
            Way::NetworkAlone => command.arg(format!("--net=/run/netns/{}", self.server)),
        };
        command.arg(gannet_testkit::command().get_program());
        command.args(["--engine", engine.name(), "--workers", "1"]);
        command.args(["--cache-memory", "0"]);
        Gannet::start(command.args(["--listen", "10.77.0.1:0"]).arg(path))
    }

    /// Connects from one of the namespaces, with so much room for what is not read.
    fn connect_from(&self, side: &str, address: SocketAddr, room: usize) -> TcpStream {
        let open = || {
            let network = File::open(format!("/run/netns/{side}")).expect("exists");
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), kind).expect("as root");
            connect_with_room(address, room).expect("as root")
        };
        // In a separate thread, since that stays in the namespace.
        thread::scope(|scope| scope.spawn(open).join().expect("connected"))
    }

    /// The same from the other end.
    fn client(&self, address: SocketAddr, room: usize) -> TcpStream {
        self.connect_from(&self.client, address, room)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for side in [&self.server, &self.client] {
            // Fails if the namespace was never created.
            let _ = ip(&["netns", "del", side]);
        }
    }
}

/// How a server enters its namespace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Way {
    /// With the namespace's own `/sys`, as in a container.
    Container,
    /// With the machine's `/sys`, which shows other devices.
    NetworkAlone,
}

/// Runs `ip`; the error is its output.
fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| pattern(LARGE, 5));

/// What is asked for of a file: a range that arrives whole before the file changes, or all of it.
const RANGES: [Option<usize>; 3] = [Some(100_000), Some(3_000_000), None];

/// Requests a range without reading it, waits until all that can arrive has arrived, and changes
/// the file. The bytes received must be of one version of the file, to the last one.
fn check(
    (cable, server): (&Cable, &Gannet),
    target: &str,
    (path, how): (&Path, Change),
    range: Option<usize>,
) {
    println!("{target}, {}, {range:?}", how.name);
    let stream = cable.client(server.address(), UNREAD);
    let line = range.map(|len| format!("range: bytes=0-{}", len - 1));
    let lines: Vec<_> = line.iter().map(String::as_str).collect();
    let reader = LateReader::new(stream, target, &lines);
    reader.wait(range.unwrap_or(UNREAD / 2));
    change(path, how);
    let (len, body) = reader.read();
    assert_eq!(len, range.unwrap_or(LARGE));
    if !CONTENT.starts_with(&body) {
        let wrong = unlike_pattern(&body, 5).expect("it differs");
        panic!("{range:?}, {} of {len} bytes: {wrong}", body.len());
    }
    // A range that had arrived completely before the change is complete; the whole file is only if it has grown.
    let is_whole = body.len() == len;
    let may_be = how.only_grows && range.is_none();
    assert!(may_be || is_whole == range.is_some(), "{}", body.len());
}

/// A live directory.
fn check_directory(engine: Engine, device: &str, way: Way) {
    let Some(cable) = Cable::new(device) else {
        return;
    };
    let site = Folder::new();
    let path = site.join("large.bin");
    let server = cable.serve(engine, site.path(), way);
    for how in CHANGES {
        for range in RANGES {
            fs::write(&path, &*CONTENT).expect("written");
            check((&cable, &server), "/large.bin", (&path, how), range);
        }
    }
    // A file that has just changed is not sent as pages to anyone.
    let Some(site) = Mount::old_files(CHANGES.len(), &CONTENT) else {
        return;
    };
    let server = cable.serve(engine, site.path(), way);
    for (number, how) in CHANGES.into_iter().enumerate() {
        let name = format!("{number}.bin");
        let path = site.join(&name);
        check((&cable, &server), &format!("/{name}"), (&path, how), None);
    }
}

#[test]
fn nothing_foreign_comes_out_of_a_cable_between_namespaces() {
    on_both_engines(|engine| check_directory(engine, "near", Way::Container));
}

/// The same of an archive.
#[test]
fn nothing_foreign_of_an_archive_comes_out_of_a_cable() {
    let packed = packed(&CONTENT);
    on_both_engines(|engine| {
        let Some(cable) = Cable::new("near") else {
            return;
        };
        let served = packed.join(format!("{}.gannet", engine.name()));
        for how in CHANGES {
            for range in [RANGES[1], None] {
                fs::copy(packed.join("site.gannet"), &served).expect("copied");
                let server = cable.serve(engine, &served, Way::Container);
                check((&cable, &server), "/large.bin", (&served, how), range);
            }
        }
    });
}

/// What nothing can change goes through it as pages, of which none is held back.
#[test]
fn pages_on_file_systems_that_are_never_written_go_through_a_cable() {
    let content = &CONTENT[..5 << 20];
    let packed = packed(content);
    on_both_engines(|engine| {
        let Some(cable) = Cable::new("near") else {
            return;
        };
        let check = |path: &Path, expect, meanwhile: &dyn Fn()| {
            let server = cable.serve(engine, path, Way::Container);
            let stream = cable.client(server.address(), 4 * content.len());
            check_pages(&server, (stream, content), expect, meanwhile);
        };
        for served in ["site", "site.gannet"] {
            for mount in [Mount::erofs, Mount::squashfs] {
                if let Some(mount) = mount(&packed) {
                    check(&mount.join(served), true, &|| destroy(&mount));
                }
            }
            check(&packed.join(served), false, &|| {});
        }
    });
}

/// A peer in the server's own namespace, by its own address, is asked what it has read, as over loopback.
#[test]
fn a_peer_at_an_own_address_can_be_asked() {
    let content = &CONTENT[..5 << 20];
    let packed = packed(content);
    on_both_engines(|engine| {
        let Some(cable) = Cable::new("near") else {
            return;
        };
        // Local addresses are reached by it.
        ip(&["-n", &cable.server, "link", "set", "lo", "up"]).expect("as before");
        let served = packed.join(format!("{}.gannet", engine.name()));
        for how in [None].into_iter().chain(CHANGES.map(Some)) {
            fs::copy(packed.join("site.gannet"), &served).expect("copied");
            let server = cable.serve(engine, &served, Way::Container);
            let room = 4 * content.len();
            let stream = cable.connect_from(&cable.server, server.address(), room);
            assert!(
                !server.address().ip().is_loopback(),
                "an address of the cable"
            );
            let how = how.map(|how| (&*served, how));
            check_late(&server, (stream, "/large.bin"), content, how);
        }
    });
}

/// The interface has the same name as a network card of the machine, which is what `/sys` shows.
#[test]
fn a_cable_is_not_taken_for_the_card_of_the_same_name() {
    let entries = fs::read_dir("/sys/class/net").expect("Linux has it");
    let mut cards = entries
        .flatten()
        .filter(|it| it.path().join("device").exists());
    let Some(card) = cards.next() else {
        left_out("a network card", "no interface has a device");
        return;
    };
    let name = card.file_name().into_string().expect("names are ASCII");
    on_both_engines(|engine| check_directory(engine, &name, Way::NetworkAlone));
}
