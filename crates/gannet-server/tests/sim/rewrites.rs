//! Rules that map one path to several places, depending on their other input.

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Client, Faults, Sim};
use gannet_server::config::ContentOptions;
use gannet_server::driven::{Driven, DrivenContent};

use crate::run::LIMITS;
use crate::server::Server;

const RULES: &[u8] = b"\
http://a.test/shared/ /a/ 200
http://b.test/shared/ /b/ 200
/chosen id=:id /:id/ 200
/top / 200
";

/// Listings and files of two folders, at the same path.
fn start() -> Server {
    let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    for name in ["a/only-a", "b/only-b", "_redirects"] {
        disk.put_file(name, name);
    }
    disk.age_files(10_000);
    let content = DrivenContent::Redirected(disk.root(), RULES);
    let options = ContentOptions::default();
    let driven = Driven::new(driver, content, &options, LIMITS, None).expect("no archive");
    Server { driven, disk }
}

fn ask(server: &Server, host: &str, target: &str) -> Client {
    let client = server.connect();
    let request = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n");
    client.write(request.as_bytes());
    client
}

/// The known names that a response lists.
fn listed(server: &mut Server, client: &Client) -> Vec<&'static str> {
    server.until("an answer", || client.readable() > 0);
    server.pass(100);
    let answer = String::from_utf8(client.read()).expect("a page");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let names = ["a/", "b/", "only-a", "only-b", "_redirects"];
    let is_listed = |name: &&str| answer.contains(&format!("href=\"./{name}\""));
    names.into_iter().filter(is_listed).collect()
}

/// The page of one folder is never sent for another, whether it is cached or being made.
#[test]
fn listings_are_those_of_the_folder() {
    let mut server = start();
    let asked = [
        ("a.test", "/shared/", "only-a"),
        ("b.test", "/shared/", "only-b"),
        ("c.test", "/chosen?id=a", "only-a"),
        ("c.test", "/chosen?id=b", "only-b"),
    ];
    for _ in 0..2 {
        let clients = asked.map(|(host, target, _)| ask(&server, host, target));
        for (client, (host, target, name)) in clients.iter().zip(asked) {
            assert_eq!(listed(&mut server, client), [name], "{host}{target}");
        }
    }
}

/// No listing contains rules files, whichever path leads to their folder.
#[test]
fn rules_files_are_not_listed() {
    let mut server = start();
    for target in ["/", "/top"] {
        let client = ask(&server, "c.test", target);
        assert_eq!(listed(&mut server, &client), ["a/", "b/"], "{target}");
    }
}
