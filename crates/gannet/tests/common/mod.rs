//! For the tests of pages that are under way: files that change in place, and peers that read late.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;

use gannet_testkit::client::{Client, head};
use gannet_testkit::content::pattern;
use gannet_testkit::mount::Mount;
use gannet_testkit::process::until;
use gannet_testkit::{DEADLINE, Folder, Gannet, gannet_in};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};

/// Destroys what is below a file system.
pub(crate) fn destroy(mount: &Mount) {
    for how in CHANGES.into_iter().rev() {
        change(&mount.image(), how);
    }
}

/// A folder with a site of a long file, and an archive of it.
pub(crate) fn packed(content: &[u8]) -> Folder {
    let folder = Folder::new();
    folder.write("site/large.bin", content);
    let arguments = ["pack", "site", "-q", "--compress", "none", "--fast", "-o"];
    let ended = gannet_in(&folder, arguments.iter().chain(&["site.gannet"]));
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    folder
}

/// What happens to a file in place.
#[derive(Clone, Copy)]
pub(crate) struct Change {
    pub(crate) name: &'static str,
    /// What was announced before is still in the file.
    pub(crate) only_grows: bool,
    make: fn(&File, u64),
}

const fn breaking(name: &'static str, make: fn(&File, u64)) -> Change {
    Change {
        name,
        only_grows: false,
        make,
    }
}

const fn growing(name: &'static str, make: fn(&File, u64)) -> Change {
    Change {
        name,
        only_grows: true,
        make,
    }
}

pub(crate) const CHANGES: [Change; 8] = [
    breaking("emptied", |file, _| file.set_len(0).expect("truncated")),
    breaking("zeroed by its length", |file, len| {
        file.set_len(0).expect("truncated");
        file.set_len(len).expect("extended");
    }),
    breaking("cut", |file, _| file.set_len(50_000).expect("truncated")),
    growing("extended", |file, len| {
        file.set_len(len + 1).expect("extended");
    }),
    growing("appended to", |file, len| {
        file.write_all_at(&pattern(100_000, 99), len)
            .expect("written");
    }),
    breaking("overwritten", overwrite),
    breaking("written anew", |file, len| {
        file.set_len(0).expect("truncated");
        overwrite(file, len);
    }),
    breaking("punched", |file, len| {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, flags, 0, len).expect("punched");
    }),
];

fn overwrite(file: &File, len: u64) {
    let other = pattern(len as usize, 77);
    file.write_all_at(&other, 0).expect("written");
}

pub(crate) fn change(path: &Path, how: Change) {
    let file = File::options().write(true).open(path).expect("ours");
    (how.make)(&file, file.metadata().expect("open").len());
}

/// Connects to an address, with a receive buffer that has room for so many bytes and their bookkeeping.
///
/// # Errors
/// This user may not have so much.
pub(crate) fn connect_with_room(address: SocketAddr, room: usize) -> Result<TcpStream, Errno> {
    let made = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    sockopt::set_socket_recv_buffer_size_force(&made, room)?;
    connect(&made, &address).expect("the server listens");
    let stream = TcpStream::from(made);
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    Ok(stream)
}

/// A client that reads late: until then what has arrived is in its queue, all of it acknowledged.
pub(crate) struct LateReader {
    client: Client,
    queue: TcpStream,
}

impl LateReader {
    /// Asks for a file over a connection.
    pub(crate) fn new(stream: TcpStream, target: &str, lines: &[&str]) -> Self {
        let queue = stream.try_clone().expect("descriptors are left");
        let mut client = Client::over_stream(stream);
        let lines = [lines, &["connection: close"]].concat();
        client.send(head("GET", target, &lines));
        Self { client, queue }
    }

    /// Waits until the head has arrived, and this many bytes of the body.
    pub(crate) fn wait(&self, bytes: usize) {
        let mut start = [0; 4096];
        until("it has arrived", || {
            let len = self.queue.peek(&mut start).expect("connected");
            let head = start[..len].windows(4).position(|it| it == b"\r\n\r\n");
            let arrived = rustix::io::ioctl_fionread(&self.queue).expect("a socket");
            head.is_some_and(|head| arrived >= (head + 4 + bytes) as u64)
        });
    }

    /// Reads all; returns the announced length, too.
    pub(crate) fn read(mut self) -> (usize, Vec<u8>) {
        let announced = self.client.head().content_length();
        let (body, _) = self.client.rest();
        (announced.expect("it has a length") as usize, body)
    }
}

/// Asks for a file that changes, at this path, while its pages are under way to a peer that can be asked what it has
/// read: the answer ends short. Without a change it ends as soon as its pages are read.
pub(crate) fn check_late(
    server: &Gannet,
    (stream, target): (TcpStream, &str),
    content: &[u8],
    how: Option<(&Path, Change)>,
) {
    println!("{target}, {:?}", how.map(|(_, how)| how.name));
    let (before, all) = (server.lent(), content.len());
    let reader = LateReader::new(stream, target, &[]);
    // All but what is held back.
    reader.wait(all - (300 << 10));
    let pages = server.lent() - before;
    assert!(pages > all as u64 / 2, "{pages} bytes as pages");
    if let Some((path, how)) = how {
        change(path, how);
    }
    let (announced, body) = reader.read();
    assert_eq!(announced, all);
    let may_be_whole = how.is_none_or(|(_, how)| how.only_grows);
    match body.len() == all {
        true => assert!(may_be_whole && body == content, "it pretends to be whole"),
        false => assert!(how.is_some(), "only {} bytes", body.len()),
    }
}

/// Whether this reader, of which nobody knows what it has read, gets a file as pages: then all has arrived before
/// any of it is read.
pub(crate) fn check_pages(
    server: &Gannet,
    (stream, content): (TcpStream, &[u8]),
    expect: bool,
    meanwhile: impl FnOnce(),
) {
    let before = server.lent();
    let reader = LateReader::new(stream, "/large.bin", &[]);
    reader.wait(content.len());
    let pages = server.lent() - before;
    assert_eq!(
        pages >= content.len() as u64,
        expect,
        "{pages} bytes as pages"
    );
    meanwhile();
    assert!(reader.read().1 == content, "nothing has changed");
}
