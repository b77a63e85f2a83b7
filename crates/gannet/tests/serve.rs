//! HTTP/1 from the client's side: methods, connections, framing, conditions, ranges.

use std::fmt::Write as _;

use gannet_testkit::client::{Client, ask, get, head, metric};
use gannet_testkit::content::pattern;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::{DEADLINE, Folder};

const INDEX: &str = "<!doctype html><title>home</title><p>hello\n";

#[test]
fn get_head_options_and_nothing_else() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let page = get(&server, "/").expect(200);
        assert_eq!(page.text(), INDEX.repeat(40));
        assert_eq!(page.field("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(page.field("accept-ranges"), Some("bytes"));
        assert_eq!(page.field("x-content-type-options"), Some("nosniff"));

        // The same fields and no content.
        let head = ask(&server, "HEAD", "/", &[]).expect(200);
        let but_date = |fields: &[(String, String)]| {
            let rest = fields.iter().filter(|(name, _)| name != "date");
            rest.cloned().collect::<Vec<_>>()
        };
        assert_eq!(but_date(&head.fields), but_date(&page.fields));

        for target in ["/", "*", "/no/such/page"] {
            let options = ask(&server, "OPTIONS", target, &[]).expect(204);
            assert_eq!(options.field("allow"), Some("GET, HEAD, OPTIONS"));
        }
        for method in [
            "POST", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND", "get", "X-1",
        ] {
            let refused = ask(&server, method, "/", &[]).expect(405);
            assert_eq!(refused.field("allow"), Some("GET, HEAD, OPTIONS"));
        }
    });
}

#[test]
fn connections_persist_as_their_version_says() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        for target in ["/", "/about", "/missing", "/", "/docs/"] {
            assert_eq!(client.get(target).field("connection"), None);
        }
        let last = client.request("GET", "/", &["Connection: Close"]);
        assert_eq!(last.field("connection"), Some("close"));
        client.closes();

        // HTTP/1.0 closes the connection unless the client requests otherwise, as ab does.
        let mut client = Client::new(&server);
        for _ in 0..3 {
            client.send("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n");
            let kept = client.response().expect(200);
            assert_eq!(kept.field("connection"), Some("keep-alive"));
        }
        client.send("GET / HTTP/1.0\r\n\r\n");
        assert_eq!(
            client.response().expect(200).field("connection"),
            Some("close")
        );
        client.closes();
    });
}

#[test]
fn three_hundred_pipelined_requests_are_answered_in_order() {
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
        client.finish_sending();
        client.closes();
    });
}

#[test]
fn pipelined_requests_share_sends() {
    let site = Folder::new();
    site.write("a.txt", "a");
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--metrics", "127.0.0.1:0", "--workers", "1"]);
        let submissions = || metric(&server, "gannet_io_submissions_total");
        let mut client = Client::new(&server);
        client.get("/a.txt").expect(200);
        let before = submissions();
        client.send(head("GET", "/a.txt", &[]).repeat(300));
        for _ in 0..300 {
            assert_eq!(client.response().expect(200).text(), "a");
        }
        let used = submissions() - before;
        assert!(used <= 100, "{used} operations for 300 pipelined requests");
    });
}

#[test]
fn requests_may_arrive_in_any_pieces() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        let two = [
            head("GET", "/about", &[]),
            head("HEAD", "/docs/", &["x: y"]),
        ]
        .concat();
        for byte in two.as_bytes() {
            client.send([*byte]);
        }
        let about = "<!doctype html><title>about</title>\n";
        assert_eq!(client.response().expect(200).text(), about);
        client.response_to("HEAD").expect(200);
        // A complete request and half of the next one in one piece.
        let (first, second) = two.split_at(two.len() - 20);
        client.send(first);
        assert_eq!(client.response().expect(200).text(), about);
        client.send(second);
        client.response_to("HEAD").expect(200);
    });
}

#[test]
fn absolute_form_and_its_host() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        client.get("http://other.example/about?x=1").expect(200);
        client.get("http://other.example").expect(200);
        client.get("HTTP://[::1]:80/about").expect(200);
        client
            .get("http://other.example/about#fragment")
            .expect(400);
        client.closes();
    });
}

#[test]
fn expectations() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        // The content is not needed: the final answer is sent at once instead of a 100.
        let mut client = Client::new(&server);
        let lines = ["expect: 100-continue", "content-length: 5"];
        let refused = client.request("POST", "/", &lines).expect(405);
        assert_eq!(refused.field("connection"), Some("close"));
        client.closes();
        let mut client = Client::new(&server);
        client.request("GET", "/", &["expect: tea"]).expect(417);
        client.closes();
    });
}

#[test]
fn small_content_is_discarded_and_the_connection_goes_on() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        for (lines, content) in [
            (["content-length: 3"], "GET"),
            (["transfer-encoding: chunked"], "3;x=y\r\nGET\r\n0\r\n\r\n"),
            (["transfer-encoding: chunked"], "0\r\ntrailer: x\r\n\r\n"),
        ] {
            client.send(head("POST", "/", &lines) + content);
            client.response().expect(405);
            client.send(head("GET", "/about", &lines) + content);
            client.response().expect(200);
        }
        let long = "x".repeat(60_000);
        client.send(head("PUT", "/", &["content-length: 60000"]) + &long);
        client.response().expect(405);
        client.get("/about").expect(200);
    });
}

#[test]
fn content_of_a_hundred_megabytes_gets_an_answer_that_can_be_read() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
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
fn what_is_doubtful_is_refused_and_never_resynchronised() {
    let site = Folder::site();
    let good = head("GET", "/about", &[]);
    let host = "Host: a\r\n";
    let bad: Vec<(String, u16)> = [
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400),
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\rHost: a\r\n\r\n", 400),
        ("GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400),
        (" GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / http/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.10\r\nHost: a\r\n\r\n", 400),
        ("GET /\r\n\r\n", 400),
        ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        ("GET about HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("\x16\x03\x01\x02\x00\x01\x00\x01\x7c\x03\x03", 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ]
    .map(|(text, status)| (text.to_owned(), status))
    .into_iter()
    .chain(
        [
            ("X : y", 400),
            (" X: y", 400),
            ("\tX: y", 400),
            ("X: a\r\n folded", 400),
            ("X", 400),
            (": y", 400),
            ("X@: y", 400),
            ("X: a\0b", 400),
            ("X: a\rb", 400),
            ("X: a\x01b", 400),
            ("Content-Length: 1\r\nContent-Length: 1", 400),
            ("Content-Length: 1, 1", 400),
            ("Content-Length: +1", 400),
            ("Content-Length: -1", 400),
            ("Content-Length: 0x1", 400),
            ("Content-Length: ", 400),
            ("Content-Length: 99999999999999999999", 400),
            ("Content-Length: 1\r\nTransfer-Encoding: chunked", 400),
            ("Transfer-Encoding: chunked\r\nContent-Length: 1", 400),
            ("Transfer-Encoding: chunked, chunked", 400),
            ("Transfer-Encoding: chunked, gzip", 400),
            ("Transfer-Encoding: gzip, chunked", 501),
            ("Transfer-Encoding: xchunked", 400),
            ("Transfer-Encoding: \x0bchunked", 400),
            ("Transfer-Encoding:", 400),
        ]
        .map(|(line, status)| (format!("GET / HTTP/1.1\r\n{host}{line}\r\n\r\n"), status)),
    )
    .collect();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        for (bytes, status) in &bad {
            // Earlier requests are answered, and bytes that follow are not parsed as a request.
            let mut client = Client::new(&server);
            client.send([good.as_str(), bytes, &good].concat());
            client.response().expect(200);
            let refused = client.response();
            assert_eq!(refused.status, *status, "{bytes:?}");
            assert_eq!(refused.field("connection"), Some("close"), "{bytes:?}");
            let (rest, _) = client.rest();
            assert!(rest.is_empty(), "{bytes:?} was followed by {rest:?}");
        }
        // These chunks are invalid only after the answer: the connection just ends.
        for chunks in [
            "x\r\n",
            "3\r\nabcd\r\n",
            "1\na\r\n",
            "-1\r\n",
            "1 \r\na\r\n",
            "fffffffffffffffff\r\n",
        ] {
            let mut client = Client::new(&server);
            client.send(head("GET", "/", &["transfer-encoding: chunked"]) + chunks + &good);
            client.response();
            let (rest, _) = client.rest();
            assert!(rest.is_empty(), "{chunks:?} was followed by {rest:?}");
        }
    });
}

#[test]
fn lines_and_fields_that_are_too_long() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let check = |request: &str, status| {
            let mut client = Client::new(&server);
            client.send(request);
            client.response().expect(status);
            client.ends();
        };
        check(
            &format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(9_000)),
            414,
        );
        // Also rejected before it is complete.
        check(&format!("GET /{}", "x".repeat(9_000)), 414);
        check(&"M".repeat(100_000), 501);
        check("GET /\u{1} HTTP/1.1\r\nHost: a\r\n\r\n", 400);
        let lines = format!("X: {}\r\n", "y".repeat(900)).repeat(20);
        check(&format!("GET / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"), 431);
        check(
            &format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "y".repeat(20_000)),
            431,
        );
        check(
            &format!(
                "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
                "X: y\r\n".repeat(300)
            ),
            431,
        );
        // The largest requests of browsers are accepted.
        let mut client = Client::new(&server);
        let cookie = format!("cookie: {}", "c".repeat(8_000));
        client.request("GET", "/", &[&cookie]).expect(200);
        client.get(&format!("/?{}", "q".repeat(8_000))).expect(200);
    });
}

#[test]
fn conditions_in_the_order_of_the_standard() {
    let site = Folder::new();
    let path = site.write("a.txt", "0123456789");
    set_modified(&path, 1_700_000_000);
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        let whole = client.get("/a.txt").expect(200);
        let tag = whole.tag().to_owned();
        assert!(
            tag.starts_with('"') && tag.ends_with('"'),
            "a strong tag: {tag}"
        );
        let date = "Tue, 14 Nov 2023 22:13:20 GMT";
        assert_eq!(whole.field("last-modified"), Some(date));
        let before = "Tue, 14 Nov 2023 22:13:19 GMT";

        let same = format!("if-none-match: {tag}");
        let weak = format!("if-none-match: \"x\", W/{tag}");
        let since = format!("if-modified-since: {date}");
        let since_before = format!("if-modified-since: {before}");
        let unmodified = format!("if-unmodified-since: {date}");
        let unmodified_before = format!("if-unmodified-since: {before}");
        let matching = format!("if-match: {tag}");
        let other = "if-match: \"other\"";
        let check = |client: &mut Client, lines: &[&str], status| {
            for method in ["GET", "HEAD"] {
                let response = client.request(method, "/a.txt", lines);
                assert_eq!(response.status, status, "{lines:?}");
                if status == 304 {
                    assert_eq!(response.tag(), tag);
                    let asked = "max-age=1";
                    assert_eq!(response.field("cache-control"), Some(asked));
                }
            }
        };
        check(&mut client, &[&same], 304);
        check(&mut client, &[&weak], 304);
        check(&mut client, &["if-none-match: *"], 304);
        check(&mut client, &["if-none-match: \"other\""], 200);
        check(&mut client, &[&since], 304);
        check(&mut client, &[&since_before], 200);
        check(&mut client, &["if-modified-since: yesterday"], 200);
        check(&mut client, &["if-none-match: \"other\"", &since], 200);
        check(&mut client, &[&same, &since_before], 304);
        check(&mut client, &[&matching], 200);
        check(&mut client, &["if-match: *"], 200);
        check(&mut client, &[other], 412);
        check(&mut client, &[other, &same], 412);
        check(&mut client, &[&matching, &same], 304);
        check(&mut client, &[&unmodified], 200);
        check(&mut client, &[&unmodified_before], 412);
        check(&mut client, &[&matching, &unmodified_before], 200);
        check(&mut client, &[&unmodified_before, &same], 412);
        // Conditions do not apply to a 404.
        client
            .request("GET", "/missing", &["if-none-match: *"])
            .expect(404);
    });
}

#[test]
fn files_of_the_epoch_have_no_date() {
    let site = Folder::new();
    for (name, seconds) in [("zero.txt", 0), ("one.txt", 1), ("zip.txt", 315_532_800)] {
        set_modified(&site.write(name, "x"), seconds);
    }
    set_modified(&site.write("future.txt", "x"), 4_000_000_000);
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        for name in ["zero.txt", "one.txt", "zip.txt", "future.txt"] {
            let response = get(&server, &format!("/{name}")).expect(200);
            assert_eq!(response.field("last-modified"), None, "{name}");
            response.tag();
        }
    });
}

fn set_modified(path: &std::path::Path, unix: u64) {
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(unix);
    let file = std::fs::File::options()
        .write(true)
        .open(path)
        .expect("writable");
    file.set_modified(time).expect("a time that files can have");
}

#[test]
fn one_range() {
    let site = Folder::new();
    let content = pattern(100_000, 2);
    // A cached file and an uncached one.
    site.write("large.bin", &content);
    site.write("small.bin", &content[..1000]);
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        for (name, len) in [("/large.bin", 100_000_usize), ("/small.bin", 1000)] {
            let whole = &content[..len];
            for (range, start, end) in [
                ("0-0", 0, 1),
                ("0-99", 0, 100),
                ("500-", 500, len),
                ("-1", len - 1, len),
                ("-999999", 0, len),
                ("10-999999999999", 10, len),
                ("0-", 0, len),
            ] {
                let line = format!("range: bytes={range}");
                let part = client.request("GET", name, &[&line]).expect(206);
                let content_range = format!("bytes {start}-{}/{len}", end - 1);
                assert_eq!(part.field("content-range"), Some(content_range.as_str()));
                assert!(part.body == whole[start..end], "{name} {range}");
                // Range is defined for GET only.
                let head = client.request("HEAD", name, &[&line]).expect(200);
                assert_eq!(head.content_length(), Some(len as u64));
            }
            let beyond = format!("{len}-");
            for range in [beyond.as_str(), "99999999999999999999999-", "-0"] {
                let line = format!("range: bytes={range}");
                let refused = client.request("GET", name, &[&line]).expect(416);
                let content_range = format!("bytes */{len}");
                assert_eq!(refused.field("content-range"), Some(content_range.as_str()));
            }
            for line in [
                "range: bytes=",
                "range: lines=1-2",
                "range: bytes=2-1",
                "range: bytes=x",
            ] {
                assert!(
                    client.request("GET", name, &[line]).expect(200).body == whole,
                    "{line}"
                );
            }
        }
    });
}

#[test]
fn many_ranges() {
    let site = Folder::new();
    let content = pattern(100_000, 3);
    site.write("a.bin", &content);
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        let line = "range: bytes=0-9, 90000-90099,-5";
        let parts = client.request("GET", "/a.bin", &[line]).expect(206);
        let content_type = parts.field("content-type").expect("it has one");
        let boundary = content_type.strip_prefix("multipart/byteranges; boundary=");
        let boundary = boundary.expect("multipart");
        let mut expect = Vec::new();
        for (start, end) in [(0, 10), (90_000, 90_100), (99_995, 100_000)] {
            let last = end - 1;
            expect.extend_from_slice(
                format!(
                    "\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\n\
                     Content-Range: bytes {start}-{last}/100000\r\n\r\n"
                )
                .as_bytes(),
            );
            expect.extend_from_slice(&content[start..end]);
        }
        expect.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
        assert!(
            parts.body == expect,
            "{:?}",
            String::from_utf8_lossy(&parts.body)
        );

        // Ranges that overlap are joined; no set costs more than the file and its heads.
        let mut many = "range: bytes=0-0".to_owned();
        (1..200).for_each(|at| write!(many, ",{}-{}", at * 10, at * 10 + 1).expect("a string"));
        for line in [many.as_str(), "range: bytes=0-,0-,0-,0-,0-,0-,0-,0-,0-"] {
            let whole = client.request("GET", "/a.bin", &[line]);
            assert!(
                whole.body.len() <= content.len() + 1000,
                "{line}: {}",
                whole.body.len()
            );
        }
        // Unsatisfiable ranges are ignored.
        let line = "range: bytes=5-6,100000-";
        let part = client.request("GET", "/a.bin", &[line]).expect(206);
        assert_eq!(part.field("content-range"), Some("bytes 5-6/100000"));
    });
}

#[test]
fn a_range_only_of_the_version_that_is_known() {
    let site = Folder::new();
    let path = site.write("a.txt", "0123456789");
    set_modified(&path, 1_700_000_000);
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &[]);
        let mut client = Client::new(&server);
        let tag = client.get("/a.txt").tag().to_owned();
        let mut check = |if_range: &str, status| {
            let lines = ["range: bytes=0-1", &format!("if-range: {if_range}")];
            client.request("GET", "/a.txt", &lines).expect(status);
        };
        check(&tag, 206);
        check("\"other\"", 200);
        check(&format!("W/{tag}"), 200);
        check("Tue, 14 Nov 2023 22:13:20 GMT", 206);
        check("Tue, 14 Nov 2023 22:13:21 GMT", 200);
        check("Tue, 14 Nov 2023 22:13:19 GMT", 200);
        // A precondition that fails takes precedence over ranges.
        let lines = ["range: bytes=50-", &format!("if-none-match: {tag}")];
        client.request("GET", "/a.txt", &lines).expect(304);
    });
}
