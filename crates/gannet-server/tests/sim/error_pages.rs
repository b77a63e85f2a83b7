//! A site's own error pages: they need no disk.

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Faults, Sim};
use gannet_server::config::ContentOptions;
use gannet_server::driven::{Driven, DrivenContent};

use crate::run::LIMITS;
use crate::server::{Server, get};

const PAGES: &[(&str, &[u8])] = &[
    ("405.html", b"<p>only to be read"),
    ("416.html", b"<p>no such part"),
    ("50x.html", b"<p>the disk is broken"),
];

/// The response to a request on its own connection.
fn answer(server: &mut Server, request: &[u8]) -> String {
    let client = server.connect();
    client.write(request);
    server.until("an answer", || client.readable() > 0);
    server.pass(100);
    String::from_utf8(client.read()).expect("text")
}

#[test]
fn errors_are_answered_by_the_sites_pages_from_memory() {
    let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    disk.put_file("a.txt", "text");
    disk.put_file("broken.txt", "text");
    disk.break_file("broken.txt", Some(0));
    disk.age_files(10_000);
    let content = DrivenContent::Paged(disk.root(), PAGES);
    let options = ContentOptions::default();
    let driven = Driven::new(driver, content, &options, LIMITS, None).expect("no archive");
    let mut server = Server { driven, disk };
    let check = |answer: &str, status: &str, page: &str, field: &str| {
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
        assert!(answer.ends_with(&format!("\r\n\r\n{page}")), "{answer}");
        assert!(answer.contains(field), "{answer}");
        assert!(answer.contains("cache-control: no-store\r\n"), "{answer}");
        assert!(answer.contains("content-type: text/html; charset=utf-8\r\n"));
        assert!(!answer.contains("content-security-policy"), "{answer}");
    };
    let broken = answer(&mut server, &get("broken.txt"));
    check(&broken, "500", "<p>the disk is broken", "");
    let head = answer(
        &mut server,
        b"HEAD /broken.txt HTTP/1.1\r\nhost: sim\r\nrange: bytes=9-\r\n\r\n",
    );
    assert!(head.starts_with("HTTP/1.1 200 "), "from metadata: {head}");
    let posted = answer(
        &mut server,
        b"POST /a.txt HTTP/1.1\r\nhost: sim\r\ncontent-length: 0\r\n\r\n",
    );
    check(
        &posted,
        "405",
        "<p>only to be read",
        "allow: GET, HEAD, OPTIONS\r\n",
    );
    let range = b"GET /a.txt HTTP/1.1\r\nhost: sim\r\nrange: bytes=9-\r\n\r\n";
    let beyond = answer(&mut server, range);
    check(
        &beyond,
        "416",
        "<p>no such part",
        "content-range: bytes */4\r\n",
    );
    let missing = answer(&mut server, &get("none"));
    assert!(missing.contains("There is nothing at this address."));
}
