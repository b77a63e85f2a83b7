//! HTTP/1 from the client's side: methods, connections, framing, conditions, ranges.

use gannet_testkit::client::{Client, ask, get, head, metric};
use gannet_testkit::content::pattern;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::{DEADLINE, Folder, Gannet};

const INDEX: &str = "<!doctype html><title>home</title><p>hello\n";

#[test]
fn requests_have_the_answers_of_the_standard() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        get_head_options_and_nothing_else(&server);
        connections_persist_as_their_version_says(&server);
        absolute_forms_are_answered(&server);
        what_is_doubtful_is_refused_and_never_resynchronised(&server);
    });
}

fn get_head_options_and_nothing_else(server: &Gannet) {
    let page = get(server, "/").expect(200);
    assert_eq!(page.text(), INDEX.repeat(40));
    assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.field("accept-ranges"), Some("bytes"));
    assert_eq!(page.field("x-content-type-options"), Some("nosniff"));

    // The same fields and no content.
    let head = ask(server, "HEAD", "/", &[]).expect(200);
    let but_date = |fields: &[(String, String)]| {
        let rest = fields.iter().filter(|(name, _)| name != "date");
        rest.cloned().collect::<Vec<_>>()
    };
    assert_eq!(but_date(&head.fields), but_date(&page.fields));

    for target in ["/", "*", "/no/such/page"] {
        let options = ask(server, "OPTIONS", target, &[]).expect(204);
        assert_eq!(options.field("allow"), Some("GET, HEAD, OPTIONS"));
    }
    for method in [
        "POST", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND", "get", "X-1",
    ] {
        let refused = ask(server, method, "/", &[]).expect(405);
        assert_eq!(refused.field("allow"), Some("GET, HEAD, OPTIONS"));
    }
}

fn connections_persist_as_their_version_says(server: &Gannet) {
    let mut client = Client::new(server);
    for target in ["/", "/about", "/missing", "/", "/docs/"] {
        assert_eq!(client.get(target).field("connection"), None);
    }
    let last = client.request("GET", "/", &["Connection: Close"]);
    assert_eq!(last.field("connection"), Some("close"));
    client.closes();

    // HTTP/1.0 closes the connection unless the client requests otherwise, as ab does.
    let mut client = Client::new(server);
    for _ in 0..3 {
        client.send("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
        let kept = client.response().expect(200);
        assert_eq!(kept.field("connection"), Some("keep-alive"));
    }
    client.send("GET / HTTP/1.0\r\n\r\n");
    let last = client.response().expect(200);
    assert_eq!(last.field("connection"), Some("close"));
    client.closes();
}

/// Of another host, too: this server has one site.
fn absolute_forms_are_answered(server: &Gannet) {
    let mut client = Client::new(server);
    client.get("http://other.example/about?x=1").expect(200);
    client.get("http://other.example").expect(200);
    client.get("HTTP://[::1]:80/about").expect(200);
}

/// One of each kind; which requests are doubtful, `gannet-http/tests/h1` shows.
fn what_is_doubtful_is_refused_and_never_resynchronised(server: &Gannet) {
    let good = head("GET", "/about", &[]);
    for (bytes, status) in [
        (head("GET", "/about#fragment", &[]), 400),
        (head("CONNECT", "a:443", &[]), 405),
        (format!("GET /{}", "x".repeat(9_000)), 414),
        (head("GET", "/", &["expect: tea"]), 417),
        (
            head("GET", "/", &[&format!("x: {}", "y".repeat(20_000))]),
            431,
        ),
        (head("GET", "/", &["transfer-encoding: gzip, chunked"]), 501),
        // The preface of HTTP/2 is one only at the beginning of a connection.
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), 505),
    ] {
        // Earlier requests are answered, and bytes that follow are not parsed as a request.
        let mut client = Client::new(server);
        client.send([good.as_str(), &bytes, &good].concat());
        client.response().expect(200);
        let refused = client.response();
        assert_eq!(refused.status, status, "{bytes:?}");
        assert_eq!(refused.field("connection"), Some("close"), "{bytes:?}");
        let (rest, _) = client.rest();
        assert!(rest.is_empty(), "{bytes:?} was followed by {rest:?}");
    }
    // The final answer is sent at once instead of a 100.
    let mut client = Client::new(server);
    let lines = ["expect: 100-continue", "content-length: 5"];
    let refused = client.request("POST", "/", &lines).expect(405);
    assert_eq!(refused.field("connection"), Some("close"));
    client.closes();
    // The largest requests of browsers are accepted.
    let mut client = Client::new(server);
    let cookie = format!("cookie: {}", "c".repeat(8_000));
    client.request("GET", "/", &[&cookie]).expect(200);
    client.get(&format!("/?{}", "q".repeat(8_000))).expect(200);
}

#[test]
fn three_hundred_pipelined_requests_are_answered_in_order_and_share_sends() {
    let site = Folder::new();
    for number in 0..300 {
        site.write(format!("{number}.txt"), format!("this is file {number}\n"));
    }
    // A large file in between must not be overtaken.
    let large = pattern(300_000, 1);
    site.write("large.bin", &large);
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--metrics", "127.0.0.1:0", "--workers", "1"]);
        let mut requests = String::new();
        for number in 0..300 {
            requests.push_str(&head("GET", &format!("/{number}.txt"), &[]));
            if number % 100 == 50 {
                requests.push_str(&head("GET", "/large.bin", &[]));
            }
        }
        // Twice on one connection: from the disk, then from the cache.
        let mut client = Client::new(&server);
        for _ in 0..2 {
            client.send(&requests);
            for number in 0..300 {
                let response = client.response().expect(200);
                assert_eq!(response.text(), format!("this is file {number}\n"));
                if number % 100 == 50 {
                    assert!(
                        client.response().expect(200).body == large,
                        "after {number}"
                    );
                }
            }
        }
        let submissions = || metric(&server, "gannet_io_submissions_total");
        let before = submissions();
        client.send(head("GET", "/0.txt", &[]).repeat(300));
        for _ in 0..300 {
            client.response().expect(200);
        }
        let used = submissions() - before;
        assert!(used <= 100, "{used} operations for 300 pipelined requests");
        client.finish_sending();
        client.closes();
    });
}

#[test]
fn content_is_discarded_or_ends_the_connection_after_an_answer_that_can_be_read() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        let long = "x".repeat(60_000);
        client.send(head("PUT", "/", &["content-length: 60000"]) + &long);
        client.response().expect(405);
        client.get("/about").expect(200);

        // A hundred megabytes are too much to be discarded.
        let lines = ["content-length: 104857600"];
        // A client that reads while sending.
        let mut client = Client::new(&server);
        let mut writer = client.writer();
        client.send(head("POST", "/upload", &lines));
        let sender = std::thread::spawn(move || send_content(&mut writer));
        let answer = client.response().expect(405);
        assert_eq!(answer.field("connection"), Some("close"));
        client.ends();
        let sent = sender.join().expect("does not panic");
        assert!(sent < 50 << 20, "{sent} bytes were taken");

        // A client that reads only when it cannot send any more.
        let mut client = Client::new(&server);
        client.send(head("POST", "/upload", &lines));
        send_content(&mut client.writer());
        client.response().expect(405);
        client.ends();

        // Chunked, with an unknown length.
        let mut client = Client::new(&server);
        client.send(head("POST", "/", &["transfer-encoding: chunked"]));
        let mut writer = client.writer();
        let sender = std::thread::spawn(move || {
            let chunk = ["10000\r\n", &"x".repeat(0x10000), "\r\n"].concat();
            (0..1600).all(|_| std::io::Write::write_all(&mut writer, chunk.as_bytes()).is_ok())
        });
        client.response().expect(405);
        client.ends();
        assert!(!sender.join().expect("does not panic"), "it took all of it");
    });
}

/// Sends up to 100 MB, or until the server closes the connection.
fn send_content(writer: &mut std::net::TcpStream) -> u64 {
    let chunk = vec![b'x'; 64 << 10];
    let mut sent = 0;
    while sent < 100 << 20 {
        match std::io::Write::write(writer, &chunk) {
            Ok(count) => sent += count as u64,
            Err(error) => {
                assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "{DEADLINE:?}");
                break;
            }
        }
    }
    sent
}

#[test]
fn dates_conditions_and_ranges_are_those_of_the_file() {
    let site = Folder::new();
    for (name, seconds) in [("zero.txt", 0), ("one.txt", 1), ("zip.txt", 315_532_800)] {
        set_modified(&site.write(name, "x"), seconds);
    }
    set_modified(&site.write("future.txt", "x"), 4_000_000_000);
    let content = pattern(100_000, 2);
    // A cached file and an uncached one.
    for (name, len) in [("large.bin", 100_000), ("small.bin", 1_000)] {
        set_modified(&site.write(name, &content[..len]), 1_700_000_000);
    }
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        files_of_the_epoch_have_no_date(&server);
        conditions_and_ranges_are_those_of_the_file(&server, &content);
    });
}

fn files_of_the_epoch_have_no_date(server: &Gannet) {
    for name in ["zero.txt", "one.txt", "zip.txt", "future.txt"] {
        let response = get(server, &format!("/{name}")).expect(200);
        assert_eq!(response.field("last-modified"), None, "{name}");
        response.tag();
    }
}

/// Which conditions hold, and which ranges there are, `gannet-content/tests/plan` shows.
fn conditions_and_ranges_are_those_of_the_file(server: &Gannet, content: &[u8]) {
    let mut client = Client::new(server);
    for (name, len) in [("/large.bin", 100_000_usize), ("/small.bin", 1_000)] {
        let whole = client.get(name).expect(200);
        let tag = whole.tag().to_owned();
        assert!(
            tag.starts_with('"') && tag.ends_with('"'),
            "a strong tag: {tag}"
        );
        let date = "Tue, 14 Nov 2023 22:13:20 GMT";
        assert_eq!(whole.field("last-modified"), Some(date));
        for method in ["GET", "HEAD"] {
            for line in [
                format!("if-none-match: {tag}"),
                format!("if-modified-since: {date}"),
            ] {
                let same = client.request(method, name, &[&line]).expect(304);
                assert_eq!(same.tag(), tag);
                assert_eq!(same.field("cache-control"), Some("max-age=1"));
            }
            client
                .request(method, name, &["if-match: \"other\""])
                .expect(412);
        }
        let line = format!("range: bytes=500-{}", len + 1);
        let part = client.request("GET", name, &[&line]).expect(206);
        let content_range = format!("bytes 500-{}/{len}", len - 1);
        assert_eq!(part.field("content-range"), Some(content_range.as_str()));
        assert!(part.body == content[500..len], "{name}");
        // Range is defined for GET only.
        let head = client.request("HEAD", name, &[&line]).expect(200);
        assert_eq!(head.content_length(), Some(len as u64));
        let refused = client
            .request("GET", name, &["range: bytes=-0"])
            .expect(416);
        let content_range = format!("bytes */{len}");
        assert_eq!(refused.field("content-range"), Some(content_range.as_str()));
        let ignored = client
            .request("GET", name, &["range: lines=1-2"])
            .expect(200);
        assert!(ignored.body == content[..len], "{name}");
    }
    // Conditions do not apply to a 404.
    let line = "if-none-match: *";
    client.request("GET", "/missing", &[line]).expect(404);
}

fn set_modified(path: &std::path::Path, unix: u64) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix);
    let file = std::fs::File::options()
        .write(true)
        .open(path)
        .expect("writable");
    file.set_modified(time).expect("a time that files can have");
}
