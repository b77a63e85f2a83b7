//! Memory and work that clients can cause: floods of each kind, and their effect on other clients.

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Client, Faults, Sim};
use gannet_server::config::ContentOptions;
use gannet_server::driven::Driven;
use gannet_server::ledger::Account;
use gannet_testkit::h2::{INITIAL_WINDOW_SIZE, headers, opening, request};

use crate::run::{LIMITS, check_holdings};
use crate::server::{Server, directory, get};

pub(crate) const MS: u64 = 1_000_000;

/// Longer than a worker itself reads.
const LONG: usize = 40_000;

/// Files that a worker copies concurrently, and short files that it reads in a turn.
pub(crate) const COPIES_AT_ONCE: u64 = 4;
const READS_IN_A_TURN: u64 = 16;

/// A directory with `hot`, which is already cached.
pub(crate) fn server() -> Server {
    server_with(ContentOptions::default())
}

fn server_with(options: ContentOptions) -> Server {
    let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    disk.put_file("hot", "hot");
    let content = directory(&disk);
    let driven = Driven::new(driver, content, &options, LIMITS, None).expect("no archive");
    let mut server = Server { driven, disk };
    let client = server.connect();
    client.write(&get("hot"));
    server.until("the first answer", || client.readable() > 0);
    server
}

fn head(path: &str, fields: &str) -> Vec<u8> {
    format!("HEAD /{path} HTTP/1.1\r\nhost: sim\r\n{fields}\r\n").into_bytes()
}

/// The status of a response, once its head is complete.
pub(crate) fn status(server: &mut Server, client: &Client) -> (u16, Vec<u8>) {
    let mut got = Vec::new();
    server.until("an answer", || {
        got.extend(client.read());
        got.windows(4).any(|end| end == b"\r\n\r\n")
    });
    let text = String::from_utf8_lossy(&got[9..12]).into_owned();
    (text.parse().expect("a status"), got)
}

fn held(server: &Server, account: Account) -> u64 {
    let holdings = server.driven.holdings();
    let mut found = holdings.iter().filter(|it| it.account == account);
    found.next().expect("every account is there").held
}

/// Files of a length that leaves much of a page which short copies share: what is lost so is room for no other.
#[test]
fn what_shared_pages_lose_counts_like_copies() {
    const ROOM: u64 = 2 << 20;
    const LEN: usize = 100_000;
    let mut server = server_with(ContentOptions {
        cache_memory: Some(ROOM),
        ..ContentOptions::default()
    });
    let names: Vec<_> = (0..40).map(|number| format!("{number}")).collect();
    for name in &names {
        server.disk.put_file(name, vec![b'x'; LEN]);
    }
    server.disk.age_files(100_000);
    for name in names.iter().chain(&names) {
        server.body(name, LEN);
    }
    server.pass(1_000);
    let (copied, lost) = (server.disk.copied_bytes(), server.disk.lost_bytes());
    assert!(lost > LEN as u64, "{lost} bytes are lost");
    assert!(
        copied > ROOM / 2 && copied + lost <= ROOM,
        "{copied} and {lost}"
    );
}

#[test]
fn a_directory_is_listed_once_for_all_who_wait() {
    let mut server = server();
    for number in 0..1_000 {
        server.disk.put_file(&format!("d/{number}"), "x");
    }
    server.pass(5_000);
    let clients: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for (number, client) in clients.iter().enumerate() {
        // No client reads the pages, whose length exceeds the socket's capacity.
        match number % 2 {
            0 => client.write(&get("d/")),
            _ => client.write(&head("d/", "")),
        }
    }
    server.until("all are answered", || {
        clients.iter().all(|client| client.readable() > 0)
    });
    assert_eq!(server.driven.counters().listings, 1);
    let page = held(&server, Account::Listings);
    assert!(
        (64 << 10..1 << 20).contains(&page),
        "{page} bytes of one page"
    );
    // Another order is another page.
    let other = server.connect();
    other.write(&head("d/?sort=size", ""));
    assert_eq!(status(&mut server, &other).0, 200);
    assert_eq!(server.driven.counters().listings, 2);
    // A minute of requests: the page is made again occasionally, for the sizes and dates of files;
    // in the simulation also when, at random, the directory cannot be peeked at.
    for _ in 0..60 {
        server.pass(1_000);
        let client = server.connect();
        client.write(&head("d/", ""));
        assert_eq!(status(&mut server, &client).0, 200);
    }
    let made = server.driven.counters().listings;
    assert!((10..55).contains(&made), "{made}");
}

#[test]
fn a_listing_shows_a_change_within_a_second() {
    let mut server = server();
    server.disk.put_file("d/a", "x");
    for (number, wait_ms) in [1_100, 3_000, 1_100, 9_000, 1_100, 1_200]
        .into_iter()
        .enumerate()
    {
        let client = server.connect();
        client.write(&get("d/"));
        status(&mut server, &client);
        server.pass(wait_ms % 2_000);
        let name = format!("d/new-{number}");
        server.disk.put_file(&name, "x");
        server.pass(1_100);
        let client = server.connect();
        client.write(&get("d/?format=json"));
        let (_, json) = status(&mut server, &client);
        let shows = |bytes: &[u8]| String::from_utf8_lossy(bytes).contains(&name[2..]);
        let mut got = json;
        server.until("the name", || {
            got.extend(client.read());
            shows(&got)
        });
    }
}

#[test]
pub(crate) fn listings_that_are_not_taken_have_a_bound() {
    let mut server = server();
    for directory in 0..5 {
        for number in 0..3_150 {
            let name = format!("d{directory}/{}{number}", "&".repeat(240));
            server.disk.put_file(&name, "x");
        }
    }
    let clients: Vec<_> = (0..5).map(|_| server.connect()).collect();
    let mut statuses = Vec::new();
    for (directory, client) in clients.iter().enumerate() {
        client.write(&get(&format!("d{directory}/")));
        server.until("an answer", || client.readable() >= 1_000);
        statuses.push(status(&mut server, client).0);
        check_holdings(&server.driven, &server.disk).expect("within bounds");
    }
    assert_eq!(statuses, [200, 200, 200, 503, 503], "of almost 8 MiB each");
    // Short ones are made nevertheless.
    server.disk.put_file("short/file", "x");
    let other = server.connect();
    other.write(&get("short/"));
    assert_eq!(status(&mut server, &other).0, 200);
    // A client that disconnects makes room, as does one that reads its page.
    for client in &clients {
        client.reset();
    }
    server.pass(1_000);
    let again = server.connect();
    again.write(&head("d4/", ""));
    assert_eq!(status(&mut server, &again).0, 200);
}

/// They come one after the other, so that the listing is made again for each.
#[test]
pub(crate) fn slow_readers_of_one_listing_leave_room_for_others() {
    let mut server = server();
    for directory in 0..2 {
        for number in 0..3_150 {
            let name = format!("d{directory}/{}{number}", "&".repeat(240));
            server.disk.put_file(&name, "x");
        }
    }
    let mut slow = Vec::new();
    for _ in 0..5 {
        // However long it took to make, it is made again by then.
        server.pass(1_000);
        server.disk.put_file("d0/gone", "x");
        server.disk.remove_file("d0/gone");
        let client = server.connect();
        client.write(&get("d0/"));
        server.until("an answer", || client.readable() >= 1_000);
        assert_eq!(status(&mut server, &client).0, 200);
        slow.push(client);
    }
    assert_eq!(server.driven.counters().listings, 5);
    let other = server.connect();
    other.write(&get("d1/"));
    assert_eq!(status(&mut server, &other).0, 200);
}

#[test]
fn what_metadata_answer_reads_nothing() {
    let mut server = server();
    for (name, len) in [("short", 1_000), ("long", LONG)] {
        server.disk.put_file(name, vec![b'x'; len]);
        server.pass(5_000);
        // Any read of its content fails.
        server.disk.break_file(name, Some(0));
        let ask = |server: &mut Server, method: &str, fields: &str| {
            let client = server.connect();
            let request = format!("{method} /{name} HTTP/1.1\r\nhost: sim\r\n{fields}\r\n");
            client.write(request.as_bytes());
            status(server, &client)
        };
        let (ok, head) = ask(&mut server, "HEAD", "");
        assert_eq!(ok, 200);
        let head = String::from_utf8_lossy(&head).into_owned();
        let tag = head.lines().find_map(|line| line.strip_prefix("ETag: "));
        let tag = tag.expect("a validator").to_owned();
        let same = format!("if-none-match: {tag}\r\n");
        assert_eq!(ask(&mut server, "GET", &same).0, 304);
        assert_eq!(ask(&mut server, "GET", "if-match: \"other\"\r\n").0, 412);
        assert_eq!(ask(&mut server, "GET", "range: bytes=99999-\r\n").0, 416);
        assert_eq!(ask(&mut server, "GET", "").0, 500, "content is needed");
        server.disk.break_file(name, None);
        assert_eq!(ask(&mut server, "GET", "range: bytes=0-0\r\n").0, 206);
        assert_eq!(ask(&mut server, "GET", "").0, 200);
    }
}

#[test]
pub(crate) fn cold_files_are_copied_a_few_at_a_time_and_nobody_waits_for_them() {
    let mut server = server();
    for number in 0..100 {
        let name = format!("cold{number}");
        server.disk.put_file(&name, vec![b'x'; LONG]);
        server.disk.slow_file(&name, 10 * MS);
    }
    // A file that has just changed would not be cached.
    server.disk.age_files(100_000);
    let clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for (number, client) in clients.iter().enumerate() {
        client.write(&get(&format!("cold{number}")));
    }
    let mut turns = 0;
    while clients.iter().any(|client| client.readable() == 0) {
        server.driven.turn(None).expect("it goes on");
        check_holdings(&server.driven, &server.disk).expect("within bounds");
        let copying = held(&server, Account::FirstReads);
        assert!(copying <= COPIES_AT_ONCE * LONG as u64, "{copying}");
        if turns % 10 == 0 {
            let other = server.connect();
            other.write(&get("hot"));
            let took = server.until("another client's response", || other.readable() > 0);
            assert!(took <= 10, "{took} ms");
        }
        turns += 1;
    }
    // Two are of `hot`, before and after its change of age. The others were sent directly.
    assert_eq!(server.driven.counters().first_reads, COPIES_AT_ONCE + 2);
}

#[test]
fn one_cold_file_is_copied_once_for_all_who_want_it() {
    let mut server = server();
    server.disk.put_file("cold", vec![b'x'; LONG]);
    server.disk.slow_file("cold", 100 * MS);
    server.disk.age_files(100_000);
    let clients: Vec<_> = (0..50).map(|_| server.connect()).collect();
    for client in &clients {
        client.write(&get("cold"));
    }
    server.pass(150);
    let open = server.disk.leaks().files_open;
    assert!(open <= 2, "{open} descriptors of one file");
    // Clients that disconnect, even the first one, leave the copy to the others.
    let (gone, clients) = clients.split_at(10);
    gone.iter().for_each(Client::reset);
    for client in clients {
        let mut got = 0;
        server.until("the content", || {
            got += client.read().len();
            got > LONG
        });
    }
    assert_eq!(server.driven.counters().first_reads - 1, 1, "copies");
    assert_eq!(server.disk.copied_bytes(), LONG as u64);
}

#[test]
fn files_for_clients_that_have_gone_are_not_copied() {
    let mut server = server();
    for number in 0..100 {
        let name = format!("cold{number}");
        server.disk.put_file(&name, vec![b'x'; LONG]);
    }
    // The first ones occupy all copy places for a while.
    for number in 0..100 {
        server.disk.slow_file(&format!("cold{number}"), 20 * MS);
    }
    server.disk.age_files(100_000);
    let clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for (number, client) in clients.iter().enumerate() {
        client.write(&get(&format!("cold{number}")));
    }
    server.pass(40);
    for client in &clients {
        client.reset();
    }
    server.pass(3_000);
    let copied = server.driven.counters().first_reads - 1;
    assert!(copied <= 2 * COPIES_AT_ONCE, "{copied} files were copied");
}

#[test]
fn short_files_are_read_so_many_in_a_turn_in_the_order_of_requests() {
    let mut server = server();
    for number in 0..100 {
        server
            .disk
            .put_file(&format!("cold{number}"), vec![b'x'; 32 << 10]);
    }
    let clients: Vec<_> = (0..100).map(|_| server.connect()).collect();
    server.pass(100);
    for (number, client) in clients.iter().enumerate() {
        client.write(&get(&format!("cold{number}")));
    }
    let mut before = server.driven.counters().first_reads;
    while clients.iter().any(|client| client.readable() == 0) {
        server.driven.turn(None).expect("it goes on");
        let now = server.driven.counters().first_reads;
        assert!(
            now - before <= READS_IN_A_TURN,
            "{} in a turn",
            now - before
        );
        before = now;
    }
}

/// Copies held by stalled clients are bounded; beyond that, files are sent from the disk.
#[test]
pub(crate) fn copies_that_are_not_taken_have_a_bound() {
    const COUNT: usize = 60;
    const LEN: usize = 1 << 20;
    // With half as much beside it.
    let mut server = server_with(ContentOptions {
        cache_memory: Some(20 << 20),
        ..ContentOptions::default()
    });
    for number in 0..COUNT {
        server
            .disk
            .put_file(&format!("file{number}"), vec![b'x'; LEN]);
    }
    // A file that was just written is not cached.
    server.pass(3_000);
    let clients: Vec<_> = (0..COUNT).map(|_| server.connect()).collect();
    for (number, client) in clients.iter().enumerate() {
        client.write(&get(&format!("file{number}")));
    }
    server.until("all are answered", || {
        clients.iter().all(|client| client.readable() > 0)
    });
    let copies = held(&server, Account::Copies);
    assert!((24 << 20..=30 << 20).contains(&copies), "{copies}");
    for client in &clients {
        let mut got = 0;
        server.until("it is whole", || {
            got += client.read().len();
            got > LEN
        });
    }
    server.pass(1_000);
    let remembered = held(&server, Account::Copies);
    assert!(remembered <= 20 << 20, "{remembered}");
}

/// The requests of an HTTP/2 client without a window for content.
fn streams(paths: &[&str]) -> Vec<u8> {
    let mut requests = opening(&[(INITIAL_WINDOW_SIZE, 0)]);
    for (path, id) in paths.iter().zip((1..).step_by(2)) {
        requests.extend(headers(id, &request("GET", &format!("/{path}"), &[])));
    }
    requests
}

/// The same for short files, on streams without a window; without room they are sent from the disk.
#[test]
pub(crate) fn short_files_that_are_not_taken_have_a_bound() {
    const CONNECTIONS: usize = 2;
    const STREAMS: usize = 100;
    const LEN: usize = 30_000;
    let mut server = server_with(ContentOptions {
        cache_memory: Some(0),
        ..ContentOptions::default()
    });
    for number in 0..CONNECTIONS * STREAMS {
        let name = format!("file{number}");
        server.disk.put_file(&name, vec![b'x'; LEN]);
    }
    server.disk.age_files(100_000);
    let before = server.driven.counters().first_reads;
    let clients: Vec<_> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    for (connection, client) in clients.iter().enumerate() {
        let numbers = connection * STREAMS..(connection + 1) * STREAMS;
        let paths: Vec<_> = numbers.map(|number| format!("file{number}")).collect();
        let paths: Vec<_> = paths.iter().map(String::as_str).collect();
        client.write(&streams(&paths));
    }
    server.pass(2_000);
    let read = server.driven.counters().first_reads - before;
    let copies = held(&server, Account::Copies);
    assert!((1 << 20..=2 << 20).contains(&copies), "{copies}");
    assert!(read < (CONNECTIONS * STREAMS) as u64, "{read}");
    // Other requests are answered from the disk.
    let other = server.connect();
    other.write(&get("file0"));
    let mut got = 0;
    server.until("it is whole", || {
        got += other.read().len();
        got > LEN
    });
    for client in &clients {
        client.reset();
    }
    server.pass(1_000);
    let remembered = held(&server, Account::Copies);
    assert!(remembered <= 2 * LEN as u64, "{remembered}");
}

/// A foreign folder that hangs does not delay listings of others.
#[test]
fn a_folder_that_hangs_does_not_hold_up_other_listings() {
    let mut server = server();
    for name in ["far/a/file", "far/b/file", "near/file"] {
        server.disk.put_file(name, "x");
    }
    server.disk.mount_foreign("far", 400 * MS);
    let far: Vec<_> = ["far/a/", "far/b/"]
        .map(|path| {
            let client = server.connect();
            client.write(&get(path));
            client
        })
        .into();
    server.pass(100);
    let near = server.connect();
    near.write(&get("near/"));
    let took = server.until("the listing", || near.readable() > 0);
    assert!(took < 200, "{took} ms");
    assert_eq!(status(&mut server, &near).0, 200);
    assert!(far.iter().all(|client| client.readable() == 0), "they hang");
    for client in &far {
        assert_eq!(status(&mut server, client).0, 200);
    }
}

/// A hundred long responses from memory are sent in turns that leave room for others, even if
/// sockets accept everything.
#[test]
pub(crate) fn many_long_answers_share_a_turn() {
    const MIB: u64 = 1 << 20;
    const CLIENTS: u64 = 100;
    const IN_A_TURN: u64 = 16 * MIB;
    const SLICE: u64 = 256 << 10;
    let driver = Sim::new(
        1,
        1,
        &EngineOptions::default(),
        Faults {
            socket_capacity: 16 << 20,
            ..Faults::none()
        },
    );
    let disk = driver.handle();
    for number in 0..10_000 {
        disk.put_file(&format!("listing/a-file-with-a-name-{number:0100}"), "");
    }
    disk.age_files(100_000);
    let content = directory(&disk);
    let options = ContentOptions::default();
    let driven = Driven::new(driver, content, &options, LIMITS, None).expect("no archive");
    let mut server = Server { driven, disk };
    let clients: Vec<_> = (0..CLIENTS).map(|_| server.connect()).collect();
    // One connection is accepted per turn.
    server.pass(100);
    clients
        .iter()
        .for_each(|client| client.write(&get("listing/")));
    let readable = || {
        let each = clients.iter().map(|client| client.readable() as u64);
        each.sum::<u64>()
    };
    let (mut got, mut most) = (readable(), 0);
    while got < CLIENTS * 3 * MIB {
        // First sends are not limited, and lookups have several turns.
        let have_begun = clients.iter().all(|client| client.readable() > 0);
        server.driven.turn(None).unwrap();
        let now = readable();
        if have_begun {
            most = most.max(now - got);
        }
        got = now;
    }
    assert!(most > MIB, "{most} bytes");
    assert!(most <= IN_A_TURN + SLICE, "{most} bytes");
}

/// Clients that disconnect during a hanging lookup leave nothing that would delay others.
#[test]
pub(crate) fn lookups_for_clients_that_have_gone_are_dropped() {
    let mut server = server();
    for number in 0..300 {
        let name = format!("cold{number}");
        server.disk.put_file(&name, "x");
        server.disk.slow_file(&name, 600_000 * MS);
    }
    let mut most = 0;
    for number in 0..300 {
        let client = server.connect();
        let path = format!("cold{number}");
        match number % 2 {
            0 => client.write(&get(&path)),
            _ => client.write(&streams(&[&path, &format!("{path}/")])),
        }
        server.pass(10);
        client.reset();
        let took = server.until("it is let go", || client.is_closed_by_server());
        assert!(took <= 10, "{took} ms");
        most = most.max(server.disk.leaks().operations_in_flight);
    }
    assert!((10..100).contains(&most), "{most} at once");
    let other = server.connect();
    other.write(&get("hot"));
    assert_eq!(status(&mut server, &other).0, 200);
}

/// A request that waits for the disk is answered if its client has closed its half, but not after a
/// reset.
#[test]
fn half_a_close_is_no_disconnect() {
    let mut server = server();
    server.disk.put_file("cold", "x");
    server.disk.slow_file("cold", 500 * MS);
    let (half, gone) = (server.connect(), server.connect());
    for client in [&half, &gone] {
        client.write(&get("cold"));
    }
    server.pass(50);
    half.shutdown_write();
    server.pass(50);
    gone.reset();
    server.pass(50);
    assert!(gone.is_closed_by_server() && !half.is_closed_by_server());
    assert_eq!(status(&mut server, &half).0, 200);
    server.until("it is closed", || half.is_closed_by_server());
}
