//! Between network namespaces, as with containers, unread data of a peer may be the very pages of
//! the file, so pages are never sent.
//!
//! Needs root and iproute2.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use gannet_testkit::client::{Client, head};
use gannet_testkit::content::{pattern, unlike_pattern};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::process::until;
use gannet_testkit::{DEADLINE, Folder, Gannet, left_out};
use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
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

    /// Serves a folder at the server's end.
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
        Gannet::start(command.args(["--listen", "10.77.0.1:0"]).arg(path))
    }

    /// Connects from the other end, with a large receive buffer.
    fn client(&self, address: SocketAddr) -> TcpStream {
        let open = || {
            let network = File::open(format!("/run/netns/{}", self.client)).expect("exists");
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), kind).expect("as root");
            let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
            sockopt::set_socket_recv_buffer_size_force(&socket, UNREAD).expect("as root");
            connect(&socket, &address).expect("the server listens");
            TcpStream::from(socket)
        };
        // In a separate thread, since that stays in the namespace.
        let stream = thread::scope(|scope| scope.spawn(open).join().expect("connected"));
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        stream
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

/// The file.
fn content() -> &'static [u8] {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    CONTENT.get_or_init(|| pattern(LARGE, 5))
}

/// Another version of it.
fn other() -> &'static [u8] {
    static OTHER: OnceLock<Vec<u8>> = OnceLock::new();
    OTHER.get_or_init(|| pattern(LARGE, 77))
}

/// Changes the file in place.
type Change = fn(&Path);

const CHANGES: [(&str, Change); 4] = [
    ("overwritten", |path| {
        let file = File::options().write(true).open(path).expect("opened");
        file.write_all_at(other(), 0).expect("written");
    }),
    ("written anew", |path| {
        fs::write(path, other()).expect("written")
    }),
    ("emptied", |path| {
        let file = File::options().write(true).open(path).expect("opened");
        file.set_len(0).expect("truncated");
    }),
    ("cut", |path| {
        let file = File::options().write(true).open(path).expect("opened");
        file.set_len(50_000).expect("truncated");
    }),
];

/// Requests a range without reading it, waits until all that can arrive has arrived, and changes
/// the file. The bytes received must be of one version of the file, to the last one.
fn check(cable: &Cable, server: &Gannet, path: &Path, change: Change, range: Option<usize>) {
    fs::write(path, content()).expect("written");
    let stream = cable.client(server.address());
    let queue = stream.try_clone().expect("descriptors are left");
    let mut client = Client::over_stream(stream);
    let line = range.map(|len| format!("range: bytes=0-{}", len - 1));
    let lines: Vec<_> = line.iter().map(String::as_str).collect();
    let lines = [&lines[..], &["connection: close"]].concat();
    client.send(head("GET", "/large.bin", &lines));
    let arrived = || rustix::io::ioctl_fionread(&queue).expect("a socket") as usize;
    let most = range.unwrap_or(UNREAD / 2);
    until("it has arrived", || arrived() >= most);
    change(path);
    let response = client.head();
    let len = response.content_length().expect("it has a length") as usize;
    assert_eq!(len, range.unwrap_or(LARGE));
    let (body, _) = client.rest();
    if !content().starts_with(&body) {
        let wrong = unlike_pattern(&body, 5).expect("it differs");
        panic!("{range:?}, {} of {len} bytes: {wrong}", body.len());
    }
    // A range that had arrived completely before the change is complete; the whole file never is.
    assert_eq!(
        body.len() == len,
        range.is_some(),
        "{} of {len}",
        body.len()
    );
}

fn check_all(engine: Engine, device: &str, way: Way) {
    let Some(cable) = Cable::new(device) else {
        return;
    };
    let site = Folder::new();
    let path = site.write("large.bin", content());
    let server = cable.serve(engine, site.path(), way);
    for (name, change) in CHANGES {
        for range in [Some(100_000), Some(3_000_000), None] {
            println!("{way:?}, {name}, {range:?}");
            check(&cable, &server, &path, change, range);
        }
    }
}

#[test]
fn nothing_foreign_comes_out_of_a_cable_between_namespaces() {
    on_both_engines(|engine| check_all(engine, "near", Way::Container));
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
    on_both_engines(|engine| check_all(engine, &name, Way::NetworkAlone));
}
