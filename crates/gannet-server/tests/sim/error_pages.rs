//! A site's own error pages: they need no disk.

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Faults, Sim};
use gannet_server::config::ContentOptions;
use gannet_server::driven::{Driven, DrivenContent};
use gannet_testkit::h2::{self, END_HEADERS, HEADERS, headers, wide_opening};

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
        assert!(answer.contains("Cache-Control: no-store\r\n"), "{answer}");
        assert!(answer.contains("Content-Type: text/html; charset=utf-8\r\n"));
        assert!(!answer.contains("Content-Security-Policy"), "{answer}");
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
        "Allow: GET, HEAD, OPTIONS\r\n",
    );
    let range = b"GET /a.txt HTTP/1.1\r\nhost: sim\r\nrange: bytes=9-\r\n\r\n";
    let beyond = answer(&mut server, range);
    check(
        &beyond,
        "416",
        "<p>no such part",
        "Content-Range: bytes */4\r\n",
    );
    let missing = answer(&mut server, &get("none"));
    assert!(missing.contains("There is nothing at this address."));
}

/// A request that is turned away since too many wait has the security policies of the site.
#[test]
fn a_request_that_may_not_wait_has_the_policies_of_the_site() {
    const STREAMS: u32 = 100;
    let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    disk.put_file("hangs", "hangs");
    disk.slow_file("hangs", 5_000_000_000);
    disk.age_files(10_000);
    let rules = b"/*\n  X-Robots-Tag: noindex\n  X-Other: one\n";
    let content = DrivenContent::Ruled(disk.root(), rules);
    let options = ContentOptions::default();
    let driven = Driven::new(driver, content, &options, LIMITS, None).expect("no archive");
    let mut server = Server { driven, disk };
    let flood: Vec<_> = (0..60).map(|_| server.connect()).collect();
    for client in &flood {
        let mut bytes = wide_opening();
        for stream in 0..STREAMS {
            let mut block = h2::request("GET", "/hangs", &[]);
            match stream {
                0 => block.extend(h2::indexed("x-flood", &[b'f'; 3_900])),
                // By references to the table.
                _ => block.extend([0xbe; 5]),
            }
            bytes.extend(headers(2 * stream + 1, &block));
        }
        client.write(&bytes);
    }
    server.until("some are turned away", || {
        flood.iter().any(|client| client.readable() > 1_000)
    });
    let client = flood.iter().find(|client| client.readable() > 1_000);
    let received = client.expect("one of them").read();
    let mut decoder = h2::hpack::Decoder::new();
    let mut answers = h2::frames(&received).into_iter();
    let answer = answers.find(|it| it.kind == HEADERS && it.has(END_HEADERS));
    let fields = decoder.decode(&answer.expect("an answer").payload);
    let fields = fields.expect("a block that decodes");
    let has = |name: &[u8], value: &[u8]| fields.iter().any(|it| it.0 == name && it.1 == value);
    assert!(has(b":status", b"503"), "{fields:?}");
    assert!(has(b"x-robots-tag", b"noindex"), "{fields:?}");
    assert!(!has(b"x-other", b"one"), "{fields:?}");
}
