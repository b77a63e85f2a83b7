//! The caches of many sites share one room: a busy site uses what others do not need, floods stay within
//! the bound, and a site that is closed gives all back.

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Faults, Sim};
use gannet_server::config::ContentOptions;
use gannet_server::driven::{Driven, DrivenContent};
use gannet_server::ledger::Account;
use gannet_testkit::h1::Response;

use crate::run::{LIMITS, Packing, open};
use crate::server::{Server, directory_at};

const SITES: usize = 64;

/// The length of each short file.
const SHORT: usize = 10_000;

/// The room of the caches. An equal part is 64 KiB.
const ROOM: u64 = 4 << 20;

/// A server of [`SITES`] directories, with so many short files each.
fn server(files: usize, options: &ContentOptions) -> Server {
    let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    let mut sites = Vec::new();
    for site in 0..SITES {
        for file in 0..files {
            disk.put_file(&format!("{site}/{file}"), vec![site as u8; SHORT]);
        }
        disk.put_file(&format!("{site}/index.html"), "short");
        sites.push(directory_at(disk.root_at(&site.to_string())));
    }
    disk.age_files(100_000);
    let driven = Driven::with_sites(driver, sites, options, LIMITS).expect("no archive");
    Server { driven, disk }
}

fn with_room() -> ContentOptions {
    ContentOptions {
        cache_memory: Some(ROOM),
        ..ContentOptions::default()
    }
}

fn get(server: &mut Server, site: usize, target: &str) -> Response {
    get_with(server, site, target, "accept-encoding: gzip, br, zstd\r\n")
}

fn get_with(server: &mut Server, site: usize, target: &str, fields: &str) -> Response {
    let client = server.connect();
    let head = format!("GET {target} HTTP/1.1\r\nhost: h{site}.example\r\n{fields}\r\n");
    client.write(head.as_bytes());
    let (mut got, mut answer) = (Vec::new(), None);
    server.until("an answer", || {
        got.extend(client.read());
        answer = Response::head(&got).expect("a response");
        let len = answer
            .as_ref()
            .and_then(|(head, len)| Some(head.content_length()? as usize + len));
        len.is_some_and(|len| got.len() >= len)
    });
    let (head, len) = answer.expect("it was read");
    let body = got.split_off(len);
    Response { body, ..head }.expect(200)
}

/// Bytes of the files that are cached.
fn held(driven: &Driven<Sim>) -> u64 {
    let holdings = driven.holdings();
    let copies = holdings.iter().find(|it| it.account == Account::Copies);
    copies.expect("every account is there").held
}

/// Requests files of a site.
fn ask_for(server: &mut Server, site: usize, files: std::ops::Range<usize>) {
    for file in files {
        let answer = get(server, site, &format!("/{file}"));
        assert!(answer.body == vec![site as u8; SHORT]);
        assert!(
            held(&server.driven) <= ROOM,
            "{} bytes",
            held(&server.driven)
        );
    }
}

#[test]
fn a_busy_site_uses_what_others_do_not_need_until_it_is_closed() {
    const FILES: usize = 300;
    let mut server = server(FILES, &with_room());
    ask_for(&mut server, 1, 0..2);
    ask_for(&mut server, 0, 0..FILES);
    assert_eq!(held(&server.driven), (FILES + 2) as u64 * SHORT as u64);
    server.driven.close_site(0);
    server.pass(10);
    assert_eq!(held(&server.driven), 2 * SHORT as u64);
    // All that it had is there for another one.
    ask_for(&mut server, 2, 0..FILES);
    assert_eq!(held(&server.driven), (FILES + 2) as u64 * SHORT as u64);
}

/// The bounds are checked in every turn.
#[test]
pub(crate) fn a_flood_over_all_sites_stays_within_the_room() {
    let mut server = server(20, &with_room());
    for file in 0..20 {
        for site in 0..SITES {
            ask_for(&mut server, site, file..file + 1);
        }
    }
    assert!(
        held(&server.driven) > ROOM / 4,
        "{} bytes",
        held(&server.driven)
    );
    // What is asked for now has room at once.
    ask_for(&mut server, 0, 0..20);
    for file in 0..20 {
        server.disk.break_file(&format!("0/{file}"), Some(0));
    }
    ask_for(&mut server, 0, 0..20);
}

/// Its own part of half the room is two of these files.
#[test]
pub(crate) fn a_flood_of_one_site_leaves_another_its_own_part() {
    const FILES: usize = 1_000;
    let mut server = server(FILES, &with_room());
    ask_for(&mut server, 1, 0..2);
    ask_for(&mut server, 0, 0..FILES);
    // What has to be read again cannot be.
    for file in 0..2 {
        server.disk.break_file(&format!("1/{file}"), Some(0));
    }
    ask_for(&mut server, 1, 0..2);
}

/// Both fit, however often one of them is asked for.
#[test]
fn hits_of_one_site_cost_another_nothing() {
    const FILES: usize = 180;
    let mut server = server(FILES, &with_room());
    ask_for(&mut server, 0, 0..FILES);
    ask_for(&mut server, 1, 0..FILES);
    for _ in 0..3 {
        ask_for(&mut server, 1, 0..FILES);
    }
    for file in 0..FILES {
        server.disk.break_file(&format!("0/{file}"), Some(0));
    }
    ask_for(&mut server, 0, 0..FILES);
}

/// Each archive keeps a decoded body while it is asked for, and together they have more than the room.
#[test]
fn archives_share_the_room_as_well() {
    const ARCHIVES: usize = 16;
    const LEN: usize = 400_000;
    let mut driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    let mut sites = Vec::new();
    for site in 0..ARCHIVES {
        let mut packing = Packing::new();
        for name in ["first", "second"] {
            let of_name = name.len() as u8;
            packing.add_decoded(name, &vec![site as u8 ^ of_name << 5; LEN]);
        }
        let bytes = packing.finish();
        // The name says that bodies are not charged to a file of the disk.
        let name = match site {
            0 => "site.gannet".to_owned(),
            _ => format!("{site}.gannet"),
        };
        disk.put_file(&name, bytes.clone());
        sites.push(DrivenContent::Archive(bytes, open(&mut driver, &name)));
    }
    for file in 0..100 {
        disk.put_file(&format!("d/{file}"), vec![ARCHIVES as u8; SHORT]);
    }
    sites.push(DrivenContent::Directory(disk.root_at("d")));
    disk.age_files(100_000);
    let driven = Driven::with_sites(driver, sites, &with_room(), LIMITS).expect("sound archives");
    let mut server = Server { driven, disk };
    let body = |server: &mut Server, site: usize, name: &str| {
        let answer = get_with(server, site, &format!("/{name}"), "");
        assert!(answer.body == vec![site as u8 ^ (name.len() as u8) << 5; LEN]);
        let held = held(&server.driven);
        assert!(held <= ROOM, "{held} bytes");
    };
    body(&mut server, 0, "first");
    body(&mut server, 0, "second");
    for site in 1..ARCHIVES {
        body(&mut server, site, "first");
        body(&mut server, 0, "first");
    }
    // What is asked for again and again was decoded once.
    assert_eq!(server.driven.counters().decoded, 2 + ARCHIVES as u64 - 1);
    // Those that nobody asks for any more make room.
    ask_for(&mut server, ARCHIVES, 0..100);
    for file in 0..100 {
        server.disk.break_file(&format!("d/{file}"), Some(0));
    }
    ask_for(&mut server, ARCHIVES, 0..100);
}

/// A worker that caches no file of a directory learns as well that the room is less.
#[test]
fn copies_of_longer_files_take_room_from_archives() {
    const LONG: usize = 800_000;
    const BODIES: usize = 150;
    const LEN: usize = 30_000;
    let mut driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    disk.put_file("d/long", vec![b'L'; LONG]);
    let mut packing = Packing::new();
    for number in 0..BODIES {
        packing.add_decoded(&number.to_string(), &[number as u8; LEN]);
    }
    let bytes = packing.finish();
    disk.put_file("site.gannet", bytes.clone());
    let archive = open(&mut driver, "site.gannet");
    disk.age_files(100_000);
    let sites = vec![
        DrivenContent::Archive(bytes, archive),
        DrivenContent::Directory(disk.root_at("d")),
    ];
    let options = ContentOptions {
        snapshot_max: 64 << 10,
        ..with_room()
    };
    let driven = Driven::with_sites(driver, sites, &options, LIMITS).expect("a sound archive");
    let mut server = Server { driven, disk };
    for number in 0..BODIES - 20 {
        get_with(&mut server, 0, &format!("/{number}"), "");
    }
    for _ in 0..3 {
        get(&mut server, 1, "/long");
    }
    server.pass(100);
    let holdings = server.driven.holdings();
    let copies = holdings.iter().find(|it| it.account == Account::LongCopies);
    let long = copies.expect("every account is there").held;
    assert_eq!(long, LONG as u64);
    assert!(held(&server.driven) + long <= ROOM);
}

/// Dropping tens of thousands of entries takes time that other requests wait.
#[test]
fn no_turn_drops_all_that_is_old() {
    drop_in_turns(false);
}

/// Others begin with an empty cache and need nothing at once.
#[test]
fn nor_does_one_in_which_a_site_is_closed() {
    drop_in_turns(true);
}

fn drop_in_turns(closes_sites: bool) {
    const LEN: u64 = 1 << 20;
    const ROOM: u64 = 60 * LEN;
    const TURN_MAX: u64 = 18 * LEN;
    let options = ContentOptions {
        cache_memory: Some(ROOM),
        ..ContentOptions::default()
    };
    let mut server = server(0, &options);
    for site in 0..SITES {
        let path = format!("{site}/long.png");
        server.disk.put_file(&path, vec![site as u8; LEN as usize]);
    }
    server.disk.age_files(100_000);
    let (mut before, mut dropped) = (0, 0);
    let mut old = 0..SITES;
    for site in 0..SITES {
        let client = server.connect();
        let head = format!("GET /long.png HTTP/1.1\r\nhost: h{site}.example\r\n\r\n");
        client.write(head.as_bytes());
        let mut got = Vec::new();
        server.until_it("an answer", |driven| {
            got.extend(client.read());
            let now = held(driven);
            assert!(now + TURN_MAX >= before, "{before} bytes, and then {now}");
            dropped += before.saturating_sub(now);
            if closes_sites && now < before {
                driven.close_site(old.next().expect("few turns"));
            }
            before = now;
            got.len() > LEN as usize
        });
    }
    assert!(dropped > TURN_MAX && before <= ROOM, "{dropped} bytes");
}

/// A file that an equal part would not have room for is copied once, and has its coding made: it is kept.
#[test]
fn long_text_is_copied_and_coded_however_many_sites_are_open() {
    const LEN: usize = 1 << 20;
    let options = ContentOptions {
        cache_memory: Some(8 << 20),
        ..ContentOptions::default()
    };
    let mut server = server(1, &options);
    for site in 0..SITES {
        get(&mut server, site, "/0");
    }
    let line = b"all of one line\n".iter().copied();
    let text: Vec<u8> = line.cycle().take(LEN).collect();
    let before = server.driven.counters().first_reads;
    server.disk.put_file("5/long.txt", text.clone());
    server.disk.age_files(100_000);
    for _ in 0..3 {
        assert!(get(&mut server, 5, "/long.txt").body == text);
    }
    assert_eq!(server.driven.counters().first_reads, before + 1);
    assert_eq!(server.disk.copied_bytes(), LEN as u64);
    assert!(server.driven.code_next());
}
