//! Passwords: what a worker remembers, and a flood of wrong ones.

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Client, Faults, Sim};
use gannet_server::config::ContentOptions;
use gannet_server::driven::{Driven, DrivenContent};

use crate::run::LIMITS;
use crate::server::{Server, get};

/// The password of `bob` is `U*U`.
const RULES: &[u8] = b"/p/*\n  Basic-Auth: \
    bob:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";

/// `bob:U*U`
const RIGHT: &str = "Ym9iOlUqVQ==";

/// Passwords that wait to be checked, at most.
const QUEUE_MAX: usize = 64;

pub(crate) fn start() -> Server {
    start_with(RULES)
}

fn start_with(rules: &'static [u8]) -> Server {
    let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    disk.put_file("p/a.txt", "text");
    disk.put_file("free", "free");
    disk.age_files(10_000);
    let content = DrivenContent::Ruled(disk.root(), rules);
    let options = ContentOptions::default();
    let driven = Driven::new(driver, content, &options, LIMITS, None).expect("no archive");
    Server { driven, disk }
}

fn ask(server: &Server, credentials: &str) -> Client {
    let client = server.connect();
    let head =
        format!("GET /p/a.txt HTTP/1.1\r\nhost: sim\r\nauthorization: Basic {credentials}\r\n\r\n");
    client.write(head.as_bytes());
    client
}

/// `bob` with a wrong password of this number: letters that are Base64 of other letters.
pub(crate) fn wrong(number: usize) -> String {
    let letter = |index: usize| char::from(b'A' + u8::try_from(index % 26).expect("small"));
    format!("Ym9iOnh4{}{}AB", letter(number), letter(number / 26))
}

/// The status of an answer, once there is one.
fn status(server: &mut Server, client: &Client) -> u16 {
    server.until("an answer", || client.readable() > 0);
    status_now(client)
}

fn status_now(client: &Client) -> u16 {
    let answer = String::from_utf8_lossy(&client.read()).into_owned();
    let status = answer.split(' ').nth(1).and_then(|it| it.parse().ok());
    let status = status.unwrap_or_else(|| panic!("{answer}"));
    if status == 401 {
        assert!(
            answer.contains("WWW-Authenticate: Basic realm="),
            "{answer}"
        );
    }
    if status == 503 {
        assert!(answer.contains("Retry-After: 1\r\n"), "{answer}");
    }
    status
}

#[test]
fn a_right_password_is_checked_once_for_all_who_wait_for_it() {
    let mut server = start();
    let client = server.connect();
    client.write(&get("p/a.txt"));
    assert_eq!(status(&mut server, &client), 401);
    assert!(!server.driven.check_password(), "nothing to compare");
    let clients = [(); 10].map(|()| ask(&server, RIGHT));
    let gone = ask(&server, RIGHT);
    server.pass(50);
    assert!(clients.iter().all(|client| client.readable() == 0));
    gone.reset();
    server.pass(50);
    assert!(server.driven.check_password());
    for client in &clients {
        assert_eq!(status(&mut server, client), 200);
    }
    assert!(!server.driven.check_password(), "it was the same one");
    let later = ask(&server, RIGHT);
    assert_eq!(status(&mut server, &later), 200);
    assert!(!server.driven.check_password(), "it is remembered");
}

/// The steps of a request go on after it has waited for its password: it may take no more of them in all.
#[test]
fn steps_are_counted_through_a_wait() {
    const RULES: &[u8] =
        b"/p/*\n  Basic-Auth: bob:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW \
        ann:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";
    /// `ann:U*U`
    const OTHER: &str = "YW5uOlUqVQ==";
    let mut server = start_with(RULES);
    let mut steps = |credentials: &str, waits: bool| {
        let before = server.driven.counters().rule_steps;
        let client = ask(&server, credentials);
        server.pass(50);
        assert_eq!(server.driven.check_password(), waits);
        assert_eq!(status(&mut server, &client), 200);
        server.driven.counters().rule_steps - before
    };
    steps(OTHER, true);
    let known = steps(OTHER, false);
    let waited = steps(RIGHT, true);
    assert!(known > 0 && waited > known, "{known}, {waited}");
    assert_eq!(steps(RIGHT, false), known);
}

/// Wrong passwords fill the queue, and nothing else: who is known is answered at once, as is what
/// needs no password. When the queue is empty again, others get in.
#[test]
fn a_flood_of_wrong_passwords_delays_nobody_who_is_known() {
    const FLOOD: usize = 100;
    let mut server = start();
    let known = ask(&server, RIGHT);
    server.pass(50);
    assert!(server.driven.check_password());
    assert_eq!(status(&mut server, &known), 200);
    let flood: Vec<_> = (0..FLOOD)
        .map(|number| ask(&server, &wrong(number)))
        .collect();
    server.pass(100);
    let refused: Vec<_> = flood.iter().filter(|it| it.readable() > 0).collect();
    assert_eq!(refused.len(), FLOOD - QUEUE_MAX);
    for client in refused {
        assert_eq!(status_now(client), 503);
    }
    for _ in 0..3 {
        let client = ask(&server, RIGHT);
        let took_ms = server.until("the known one", || client.readable() > 0);
        assert_eq!(status_now(&client), 200);
        let free = server.connect();
        free.write(&get("free"));
        let free_ms = server.until("free content", || free.readable() > 0);
        assert!(took_ms <= 20 && free_ms <= 20, "{took_ms} ms, {free_ms} ms");
    }
    let mut checked = 0;
    while server.driven.check_password() {
        checked += 1;
    }
    assert_eq!(checked, QUEUE_MAX);
    server.pass(100);
    let answered: Vec<_> = flood.iter().filter(|it| it.readable() > 0).collect();
    assert_eq!(answered.len(), QUEUE_MAX);
    for client in answered {
        assert_eq!(status_now(client), 401);
    }
    // A wrong one is not remembered, either.
    let again = ask(&server, &wrong(0));
    server.pass(50);
    assert!(server.driven.check_password());
    assert_eq!(status(&mut server, &again), 401);
}
