//! What lookups know about folders: it hides no sidecar for long, costs one look for all files of a
//! folder, and has a bound.

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Faults, Sim};
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
    const SLOW_MS: u64 = 10;
    let faults = Faults {
        cold: 1_000,
        delay_max_ns: SLOW_MS * MS,
        ..Faults::none()
    };
    let driver = Sim::new(1, 1, &EngineOptions::default(), faults);
    let disk = driver.handle();
    for number in 0..200 {
        disk.put_file(&format!("d/{number}.html"), "content");
        disk.put_file(&format!("{number}/a.html"), "content");
    }
    disk.age_files(10_000);
    let content = DrivenContent::Directory(disk.root());
    let options = ContentOptions::default();
    let driven = Driven::new(driver, content, &options, LIMITS, None).expect("no archive");
    let mut server = Server { driven, disk };
    server.pass(5_000);
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
