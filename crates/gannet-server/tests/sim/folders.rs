//! What lookups know about folders: it hides no sidecar for long, costs one look for all files of a
//! folder, and has a bound.

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Faults, Sim, SimHandle};
use gannet_server::config::ContentOptions;
use gannet_server::driven::{Driven, DrivenContent};
use gannet_server::ledger::{Account, AccountBound};

use crate::budget::{MS, server, status};
use crate::run::LIMITS;
use crate::server::{Server, get};

/// The longest time for which a new sidecar may stay unnoticed, in milliseconds.
const UNNOTICED_MS: u64 = 4_000;

/// Requests a file; whether the answer is its sidecar.
fn is_coded(server: &mut Server, path: &str) -> bool {
    let client = server.connect();
    client.write(
        format!("GET /{path} HTTP/1.1\r\nhost: sim\r\naccept-encoding: br\r\n\r\n").as_bytes(),
    );
    let (status, head) = status(server, &client);
    assert_eq!(status, 200);
    String::from_utf8_lossy(&head).contains("Content-Encoding: br")
}

#[test]
fn a_new_sidecar_is_found_as_soon_as_without_surveys() {
    for rested_ms in [0, 1_500, 10_000] {
        let mut server = server();
        for number in 0..20 {
            server.disk.put_file(&format!("d/{number}.html"), "content");
        }
        server.disk.age_files(10_000);
        server.pass(rested_ms);
        for number in 0..10 {
            assert!(!is_coded(&mut server, &format!("d/{number}.html")));
        }
        server.pass(50);
        // One that was requested before, and one that was not.
        server.disk.put_file("d/0.html.br", "coded");
        server.disk.put_file("d/19.html.br", "coded");
        let is_found_at = |server: &mut Server, path: &str, within_ms: u64| {
            let start = server.disk.now();
            while !is_coded(server, path) {
                let took_ms = (server.disk.now().0 - start.0) / MS;
                assert!(took_ms <= within_ms, "{path} after {rested_ms} ms of rest");
                server.pass(20);
            }
        };
        // What is known of the folder counts for a tenth of a second.
        is_found_at(&mut server, "d/19.html", UNNOTICED_MS + 200);
        is_found_at(&mut server, "d/0.html", UNNOTICED_MS + 200);
    }
}

/// Every operation takes 10 ms: a file's sidecars are three, the names of its folder one for all.
#[test]
fn one_look_at_a_folder_is_for_all_of_its_files() {
    let mut server = slow_server(10, |disk| {
        for number in 0..200 {
            disk.put_file(&format!("d/{number}.html"), "content");
            disk.put_file(&format!("{number}/a.html"), "content");
        }
    });
    let ask = |server: &mut Server, path: &str| {
        let client = server.connect();
        client.write(&get(path));
        let start = server.disk.now();
        assert_eq!(status(server, &client).0, 200);
        server.disk.now().0 - start.0
    };
    let (mut one, mut many) = (0, 0);
    for number in 0..200 {
        one += ask(&mut server, &format!("d/{number}.html"));
        many += ask(&mut server, &format!("{number}/a.html"));
    }
    assert!(one < many, "{one} ns in one folder, {many} ns in many");
}

/// Files in many folders with long names: what is known about them stays within its bound.
#[test]
pub(crate) fn what_is_known_of_folders_has_a_bound() {
    let mut server = server();
    let path = |number: usize| {
        let folder = format!("{number}/{}", format!("{}/", "f".repeat(250)).repeat(12));
        format!("{folder}a.html")
    };
    for number in 0..1_000 {
        server.disk.put_file(&path(number), "content");
    }
    server.disk.age_files(10_000);
    let client = server.connect();
    let mut peak = 0;
    for number in 0..1_000 {
        client.write(&get(&path(number)));
        status(&mut server, &client);
        server.pass(1);
        client.read();
        let holdings = server.driven.holdings();
        let mut found = holdings.iter().filter(|it| it.account == Account::Folders);
        let holding = found.next().expect("every account is there");
        let (AccountBound::Connection(most) | AccountBound::Worker(most)) = holding.bound;
        assert!(holding.held <= most, "{holding:?}");
        peak = peak.max(holding.held);
    }
    assert!(peak > 1 << 20, "{peak}");
}

/// A server whose disk has this content and answers after at most so long.
fn slow_server(slow_ms: u64, put: impl FnOnce(&SimHandle)) -> Server {
    let faults = Faults {
        cold: 1_000,
        delay_max_ns: slow_ms * MS,
        ..Faults::none()
    };
    let driver = Sim::new(1, 1, &EngineOptions::default(), faults);
    let disk = driver.handle();
    put(&disk);
    disk.age_files(10_000);
    let content = DrivenContent::Directory(disk.root());
    let options = ContentOptions::default();
    let driven = Driven::new(driver, content, &options, LIMITS, None).expect("no archive");
    let mut server = Server { driven, disk };
    server.pass(5_000);
    server
}

/// Requests all paths at once, each on a connection of its own, and awaits the answers.
fn ask_together(server: &mut Server, paths: &[String], mut meanwhile: impl FnMut(&mut Server)) {
    let clients: Vec<_> = paths.iter().map(|_| server.connect()).collect();
    for (client, path) in clients.iter().zip(paths) {
        client.write(&get(path));
    }
    for client in &clients {
        let mut got = Vec::new();
        server.until("the answer", || {
            got.extend(client.read());
            got.ends_with(b"content")
        });
        meanwhile(server);
    }
}

/// The first requests for a folder come together: its names are read once, and nobody asks for sidecars.
#[test]
fn lookups_wait_for_the_names_of_their_folder() {
    const FILES: u64 = 50;
    let path = |number| format!("d/{number}.html");
    let mut server = slow_server(10, |disk| {
        for number in 0..FILES {
            disk.put_file(&path(number), "content");
        }
    });
    let before = server.disk.jobs_begun();
    let paths: Vec<_> = (0..FILES).map(path).collect();
    ask_together(&mut server, &paths, |_| ());
    let jobs = server.disk.jobs_begun() - before;
    // Each file is opened, opened again when the names are known, and read.
    assert!(jobs <= 3 * FILES + 1, "{jobs} for {FILES} files");
}

/// More new folders at once than surveys at a time, whose names never stop to change and are known no longer
/// than it takes to read them.
#[test]
fn surveys_have_a_bound_and_no_lookup_waits_for_two() {
    const FOLDERS: u64 = 100;
    const SURVEYS_MAX: usize = 32;
    let path = |number| format!("{number}/a.html");
    let mut server = slow_server(400, |disk| {
        for number in 0..FOLDERS {
            disk.put_file(&path(number), "content");
        }
    });
    let before = server.disk.jobs_begun();
    let mut peak = 0;
    let mut changes = 0;
    let paths: Vec<_> = (0..FOLDERS).chain(0..FOLDERS).map(path).collect();
    ask_together(&mut server, &paths, |server| {
        peak = peak.max(server.disk.surveys_in_progress());
        changes += 1;
        for number in 0..FOLDERS {
            server.disk.put_file(&format!("{number}/{changes}"), "new");
        }
    });
    assert!((1..=SURVEYS_MAX).contains(&peak), "{peak}");
    // Two opens, a survey, three sidecars and a read for each.
    let jobs = server.disk.jobs_begun() - before;
    assert!(jobs <= 7 * 2 * FOLDERS, "{jobs}");
}
