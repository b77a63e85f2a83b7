//! Text that is coded while it is served: who gets which coding, and when.

use gannet_io::options::EngineOptions;
use gannet_io::sim::{Faults, Sim};
use gannet_server::config::ContentOptions;
use gannet_server::driven::{Driven, DrivenContent};
use gannet_server::ledger::Account;
use gannet_testkit::h1::{Response, head};

use crate::files::decode;
use crate::run::LIMITS;
use crate::server::{Server, directory};

/// What browsers accept over TLS.
const BROWSER: &str = "accept-encoding: gzip, deflate, br, zstd";

/// So old that its metadata identify its bytes, milliseconds.
const LONG_MS: u64 = 100_000;

fn page(word: &str) -> Vec<u8> {
    let line = |number: usize| format!("<p>{word} {number} of {}</p>\n", number * 7_919 % 1_003);
    (0..500).map(line).collect::<String>().into_bytes()
}

fn ask(server: &mut Server, method: &str, target: &str, lines: &[&str]) -> Response {
    let client = server.connect();
    client.write(head(method, target, lines).as_bytes());
    let (mut got, mut answer) = (Vec::new(), None);
    server.until("an answer", || {
        got.extend(client.read());
        let Some((response, len)) = Response::head(&got).expect("a response") else {
            return false;
        };
        let has_body = method != "HEAD" && response.status != 304;
        let body_len = response.content_length().filter(|_| has_body).unwrap_or(0) as usize;
        let is_whole = got.len() >= len + body_len;
        answer = Some(Response {
            body: got[len..].to_vec(),
            ..response
        });
        is_whole
    });
    answer.expect("it was read")
}

fn get(server: &mut Server, target: &str, lines: &[&str]) -> Response {
    ask(server, "GET", target, lines)
}

fn coding_of(response: &Response) -> &str {
    response.field("content-encoding").unwrap_or("identity")
}

/// A server of `page.html` and others, with these `_headers`.
fn server(headers: Option<&'static [u8]>, options: &ContentOptions) -> Server {
    let driver = Sim::new(1, 1, &EngineOptions::default(), Faults::none());
    let disk = driver.handle();
    for name in ["page.html", "404.html", "photo.jpg"] {
        disk.put_file(name, page(name));
    }
    disk.put_file("short.html", &page("short")[..1_000]);
    disk.age_files(LONG_MS);
    let content = match headers {
        Some(headers) => DrivenContent::Ruled(disk.root(), headers),
        None => directory(&disk),
    };
    let driven = Driven::new(driver, content, options, LIMITS, None).expect("no archive");
    Server { driven, disk }
}

fn plain_server() -> Server {
    server(None, &ContentOptions::default())
}

/// Has the page coded for browsers; returns its representations without and with it.
fn coded(server: &mut Server) -> (Response, Response) {
    let first = get(server, "/page.html", &[BROWSER]).expect(200);
    assert!(server.driven.code_next() && !server.driven.code_next());
    let second = get(server, "/page.html", &[BROWSER]).expect(200);
    (first, second)
}

#[test]
fn the_first_request_gets_the_file_and_later_ones_the_coding() {
    let mut server = plain_server();
    let (first, second) = coded(&mut server);
    let text = page("page.html");
    assert_eq!((coding_of(&first), &first.body), ("identity", &text));
    assert_eq!(coding_of(&second), "br");
    assert!(second.body.len() * 4 < text.len());
    assert_eq!(decode("br", &second.body).expect("sound"), text);
    for one in [&first, &second] {
        assert_eq!(one.field("vary"), Some("accept-encoding"));
        assert_eq!(one.field("last-modified"), first.field("last-modified"));
    }
    assert_ne!(first.tag(), second.tag());
    // Others get what they accept, and have it made.
    for (line, coding) in [
        ("accept-encoding: gzip", "gzip"),
        ("accept-encoding: zstd, gzip", "zstd"),
    ] {
        let before = get(&mut server, "/page.html", &[line]);
        assert!(["identity", "gzip"].contains(&coding_of(&before)), "{line}");
        assert!(server.driven.code_next(), "{line}");
        let after = get(&mut server, "/page.html", &[line]);
        let decoded = decode(coding_of(&after), &after.body).expect("sound");
        assert_eq!(decoded, text, "{line}");
        let names = [coding, "gzip"];
        assert!(names.contains(&coding_of(&after)), "{line}");
        assert!(!server.driven.code_next(), "{line}");
    }
    for lines in [
        &[][..],
        &["accept-encoding: identity"],
        &["accept-encoding: br;q=0"],
    ] {
        let plain = get(&mut server, "/page.html", lines);
        assert_eq!((coding_of(&plain), &plain.body), ("identity", &text));
        assert_eq!(plain.tag(), first.tag());
    }
    let old = ask(&mut server, "HEAD", "/page.html", &[BROWSER]);
    assert_eq!((coding_of(&old), old.tag()), ("br", second.tag()));
    assert_eq!(server.driven.coder_counts().made, 3);
}

#[test]
fn conditions_and_ranges_are_those_of_what_the_client_has() {
    let mut server = plain_server();
    let (first, second) = coded(&mut server);
    let if_none_match = |response: &Response| format!("if-none-match: {}", response.tag());
    let same = get(
        &mut server,
        "/page.html",
        &[BROWSER, &if_none_match(&second)],
    );
    assert_eq!((same.status, same.tag()), (304, second.tag()));
    assert_eq!(same.field("vary"), Some("accept-encoding"));
    let other = get(
        &mut server,
        "/page.html",
        &[BROWSER, &if_none_match(&first)],
    );
    assert_eq!((other.status, coding_of(&other)), (200, "br"));
    let plain = get(&mut server, "/page.html", &[&if_none_match(&first)]);
    assert_eq!(plain.status, 304);
    // A range continues what the client has, whether the coding was made meanwhile or not.
    let range = "range: bytes=1000-1999";
    let part = get(&mut server, "/page.html", &[BROWSER, range]);
    assert_eq!((part.status, part.tag()), (206, first.tag()));
    assert_eq!(part.body, first.body[1_000..2_000]);
    for (one, range) in [(&first, 1_000..2_000), (&second, 100..200)] {
        let bytes = format!("range: bytes={}-{}", range.start, range.end - 1);
        let tag = format!("if-range: {}", one.tag());
        let part = get(&mut server, "/page.html", &[BROWSER, &bytes, &tag]);
        assert_eq!((part.status, part.tag()), (206, one.tag()));
        assert_eq!(part.body, one.body[range]);
    }
    for one in [&first, &second] {
        let tag = format!("if-match: \"none\", {}", one.tag());
        let same = get(&mut server, "/page.html", &[BROWSER, &tag]);
        assert_eq!(
            (same.status, same.tag(), &same.body),
            (200, one.tag(), &one.body)
        );
        let bytes = "range: bytes=100-199";
        let range = format!("if-range: {}", one.tag());
        let part = get(&mut server, "/page.html", &[BROWSER, &tag, bytes, &range]);
        assert_eq!((part.status, part.tag()), (206, one.tag()));
        assert_eq!(part.body, one.body[100..200]);
        let weak = format!("if-match: W/{}", one.tag());
        assert_eq!(
            get(&mut server, "/page.html", &[BROWSER, &weak]).status,
            412
        );
    }
    let any = get(&mut server, "/page.html", &[BROWSER, "if-match: *"]);
    assert_eq!((any.status, any.tag()), (200, second.tag()));
}

/// A server may disregard that only codings are accepted while it has none (RFC 9110 section
/// 12.5.3); and the parts that a client gets are of one representation.
#[test]
fn ranges_for_clients_that_refuse_the_file_are_its_own() {
    let mut server = plain_server();
    let text = page("page.html");
    let lines = ["accept-encoding: identity;q=0, br", "range: bytes=100-199"];
    for _ in 0..2 {
        let part = get(&mut server, "/page.html", &lines);
        assert_eq!((part.status, coding_of(&part)), (206, "identity"));
        assert_eq!(part.body, text[100..200]);
        assert_eq!(
            part.field("content-range"),
            Some(&*format!("bytes 100-199/{}", text.len()))
        );
        assert_eq!(part.field("vary"), Some("accept-encoding"));
        assert!(!server.driven.code_next(), "a range has none made");
        coded_or_not(&mut server);
    }
}

/// Has the page coded, if it is not.
fn coded_or_not(server: &mut Server) {
    get(server, "/page.html", &[BROWSER]).expect(200);
    while server.driven.code_next() {}
}

#[test]
fn requests_that_would_not_have_used_it_have_nothing_made() {
    let mut server = plain_server();
    ask(&mut server, "HEAD", "/page.html", &[BROWSER]);
    get(&mut server, "/page.html", &[BROWSER, "range: bytes=0-99"]);
    get(&mut server, "/page.html", &[]);
    get(&mut server, "/page.html", &["accept-encoding: deflate"]);
    for name in ["/photo.jpg", "/short.html"] {
        assert_eq!(get(&mut server, name, &[BROWSER]).field("vary"), None);
    }
    assert!(!server.driven.code_next());
    // A file that has just been written may still be one of several versions.
    server.disk.put_file("new.html", page("new"));
    assert_eq!(
        coding_of(&get(&mut server, "/new.html", &[BROWSER])),
        "identity"
    );
    assert!(!server.driven.code_next());
}

#[test]
fn pages_that_stand_in_are_coded_too() {
    let mut server = plain_server();
    get(&mut server, "/none/at/all", &[BROWSER]).expect(404);
    assert!(server.driven.code_next());
    let page_404 = get(&mut server, "/another", &[BROWSER]).expect(404);
    let decoded = decode(coding_of(&page_404), &page_404.body);
    assert_eq!(decoded.expect("sound"), page("404.html"));
}

#[test]
fn rules_and_the_operator_can_forbid_it() {
    let check = |headers: Option<&'static [u8]>, options: &ContentOptions| {
        let mut server = server(headers, options);
        for _ in 0..2 {
            let page = get(&mut server, "/page.html", &[BROWSER]);
            assert_eq!(page.body, self::page("page.html"));
            assert_eq!(page.field("vary"), None);
            assert!(!server.driven.code_next());
        }
    };
    let usual = ContentOptions::default();
    for headers in [
        &b"/*\n  Cache-Control: max-age=60, No-Transform\n"[..],
        b"/page.html\n  Content-Encoding: gzip\n",
        b"https://example.org/*\n  Cache-Control: no-transform\n",
    ] {
        check(Some(headers), &usual);
    }
    let fields = vec![("cache-control".to_owned(), "no-transform".to_owned())];
    let forbidden = ContentOptions {
        fields,
        ..usual.clone()
    };
    check(None, &forbidden);
    let off = ContentOptions {
        compress: false,
        ..usual
    };
    check(None, &off);
}

#[test]
fn a_sidecar_wins() {
    let mut server = plain_server();
    server.disk.put_file("page.html.br", "a sidecar");
    server.disk.age_files(LONG_MS);
    assert_eq!(
        get(&mut server, "/page.html", &[BROWSER]).body,
        b"a sidecar"
    );
    assert!(!server.driven.code_next());
    // The original has not been read; whoever needs it has another coding made.
    let plain = get(&mut server, "/page.html", &["accept-encoding: gzip"]);
    assert_eq!(coding_of(&plain), "identity");
    assert!(server.driven.code_next());
    let gzip = get(&mut server, "/page.html", &["accept-encoding: gzip"]);
    assert_eq!(
        decode(coding_of(&gzip), &gzip.body).expect("sound"),
        page("page.html")
    );
    assert_eq!(
        get(&mut server, "/page.html", &[BROWSER]).body,
        b"a sidecar"
    );
}

/// Paths to the same file share what is made of it, even if only one was looked up since there is a
/// sidecar.
#[test]
fn a_sidecar_wins_over_what_another_path_had_made() {
    let mut server = plain_server();
    coded(&mut server);
    let sidecar = vec![b's'; 10_000];
    server.disk.put_file("page.html.br", sidecar.clone());
    (0..LONG_MS / 1_000).for_each(|_| server.pass(1_000));
    get(&mut server, "/page", &["accept-encoding: gzip"]).expect(200);
    while server.driven.code_next() {}
    let found = get(&mut server, "/page", &["accept-encoding: br"]);
    assert_eq!((coding_of(&found), &found.body), ("br", &sidecar));
}

/// Whenever the file changes, no bytes of one version come with the tag or length of another.
#[test]
fn a_coding_goes_with_its_version() {
    let mut server = plain_server();
    get(&mut server, "/page.html", &[BROWSER]);
    // Queued, and not made yet.
    server.disk.put_file("page.html", page("second"));
    server.disk.age_files(LONG_MS);
    server.pass(1_000);
    assert_eq!(
        get(&mut server, "/page.html", &[BROWSER]).body,
        page("second")
    );
    while server.driven.code_next() {}
    let counts = server.driven.coder_counts();
    assert_eq!(
        (counts.made, counts.dropped),
        (1, 1),
        "nobody has the first"
    );
    let second = get(&mut server, "/page.html", &[BROWSER]);
    assert_eq!(decode("br", &second.body).expect("sound"), page("second"));
    server.disk.overwrite_file("page.html", page("third!"));
    server.pass(1_000);
    let third = get(&mut server, "/page.html", &[BROWSER]);
    assert_eq!(
        (coding_of(&third), &third.body),
        ("identity", &page("third!"))
    );
}

/// A file that changed within the last minute is read again every few seconds. What was made of the
/// same bytes remains.
#[test]
fn what_is_read_again_keeps_its_coding() {
    let mut server = plain_server();
    server.disk.put_file("page.html", page("new"));
    server.disk.age_files(10_000);
    let (_, coded) = coded(&mut server);
    assert_eq!(decode("br", &coded.body).expect("sound"), page("new"));
    let has = format!("if-none-match: {}", coded.tag());
    for pause_ms in [5_000, 2_200, 2_200, 2_200] {
        server.pass(pause_ms);
        let again = get(&mut server, "/page.html", &[BROWSER, &has]);
        assert_eq!((again.status, again.tag()), (304, coded.tag()));
        assert!(!server.driven.code_next());
    }
    assert_eq!(server.driven.coder_counts().made, 1);
}

/// Text that is coded may be twice as long as other files that are copied for their first request: it is
/// copied then, and queued. Other files of its length, and longer text, are neither. (A copy on the
/// simulated disk is not memory that an encoder could read.)
#[test]
fn long_text_is_copied_to_be_coded_and_nothing_else_of_its_length() {
    const LIMIT: usize = 64 << 10;
    let options = ContentOptions {
        snapshot_max: LIMIT as u64,
        ..ContentOptions::default()
    };
    let mut server = server(None, &options);
    let text: Vec<u8> = page("long").into_iter().cycle().take(3 * LIMIT).collect();
    let (most, more) = (&text[..2 * LIMIT], &text[..=2 * LIMIT]);
    server.disk.put_file("index.js", most.to_vec());
    server.disk.put_file("more.js", more.to_vec());
    server.disk.put_file("long.jpg", most.to_vec());
    server.disk.put_file("long.bin", most.to_vec());
    server.disk.age_files(LONG_MS);
    for (target, content) in [("/more.js", more), ("/long.jpg", most), ("/long.bin", most)] {
        let answer = get(&mut server, target, &[BROWSER]).expect(200);
        assert_eq!(
            (coding_of(&answer), &answer.body[..]),
            ("identity", content)
        );
        assert!(!server.driven.code_next(), "{target}");
    }
    assert_eq!(server.disk.copied_bytes(), 0);
    let first = get(&mut server, "/index.js", &[BROWSER]).expect(200);
    assert_eq!((coding_of(&first), &first.body[..]), ("identity", most));
    assert_eq!(server.disk.copied_bytes(), most.len() as u64);
    assert!(server.driven.code_next() && !server.driven.code_next());
    let plain = get(&mut server, "/index.js", &[]).expect(200);
    assert_eq!(&plain.body[..], most);
    assert_eq!(server.disk.copied_bytes(), most.len() as u64, "copied once");
}

/// The copy of a long text counts for the cache's limit, as any other: with room for two of them,
/// files that are requested in turns displace each other instead of staying for ever.
#[test]
fn copies_of_long_text_count_for_the_cache() {
    const LIMIT: usize = 64 << 10;
    let options = ContentOptions {
        snapshot_max: LIMIT as u64,
        cache_memory: Some(7 * LIMIT as u64),
        ..ContentOptions::default()
    };
    let mut server = server(None, &options);
    for number in 0..40u8 {
        let text: Vec<u8> = page("long").into_iter().cycle().take(2 * LIMIT).collect();
        server.disk.put_file(&format!("{number}.js"), text);
    }
    server.disk.age_files(LONG_MS);
    for number in 0..40 {
        get(&mut server, &format!("/{number}.js"), &[]).expect(200);
    }
    let holdings = server.driven.holdings();
    let copies = holdings.iter().find(|it| it.account == Account::Copies);
    let held = copies.expect("every account is there").held;
    assert!(
        (2 * LIMIT as u64..=9 * LIMIT as u64).contains(&held),
        "{held}"
    );
}

/// A file that the cache could not keep, or not with its codings, is not copied or coded over and over:
/// it would be gone each time that others are asked for.
#[test]
fn what_does_not_fit_is_neither_copied_nor_coded_again() {
    const ROOM: usize = 600 << 10;
    let options = ContentOptions {
        cache_memory: Some(ROOM as u64),
        ..ContentOptions::default()
    };
    let mut server = server(None, &options);
    let text = |len| {
        page("long")
            .into_iter()
            .cycle()
            .take(len)
            .collect::<Vec<u8>>()
    };
    let (huge, large) = (text(ROOM), text(ROOM / 3 * 2));
    server.disk.put_file("huge.js", huge.clone());
    server.disk.put_file("large.js", large.clone());
    server.disk.age_files(LONG_MS);
    for target in ["/page.html", "/photo.jpg"] {
        get(&mut server, target, &[]).expect(200);
    }
    let read = |server: &mut Server| server.driven.counters().first_reads;
    for (target, content, copies) in [("/huge.js", huge, 0), ("/large.js", large, 1)] {
        let mut copied = 0;
        for number in 0..20 {
            let before = read(&mut server);
            let answer = get(&mut server, target, &[BROWSER]).expect(200);
            copied += read(&mut server) - before;
            assert_eq!(coding_of(&answer), "identity");
            assert!(answer.body == content, "{target}, request {number}");
            get(&mut server, "/page.html", &[]).expect(200);
            get(&mut server, "/photo.jpg", &[]).expect(200);
        }
        assert_eq!(copied, copies, "{target}");
    }
    let counts = server.driven.coder_counts();
    assert_eq!((counts.queued, counts.made, counts.refused), (0, 0, 0));
    // What fits is, as before.
    let (_, coded) = coded(&mut server);
    assert_eq!(coding_of(&coded), "br");
}

/// A cache with room for a file and one coding, but not for two: the first stays.
#[test]
fn codings_do_not_displace_each_other() {
    let options = ContentOptions {
        cache_memory: Some(68_000),
        ..ContentOptions::default()
    };
    let mut server = server(None, &options);
    // Of decimal digits, 42 % are left.
    let mut number = 1_u64;
    let digits = std::iter::from_fn(|| {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        Some(b'0' + (number >> 33) as u8 % 10)
    });
    let text = digits.take(30_000).collect::<Vec<u8>>();
    server.disk.put_file("digits.txt", text);
    server.disk.age_files(LONG_MS);
    get(&mut server, "/digits.txt", &[BROWSER]).expect(200);
    while server.driven.code_next() {}
    let reads = server.driven.counters().first_reads;
    for _ in 0..20 {
        let gzip = get(&mut server, "/digits.txt", &["accept-encoding: gzip"]);
        assert_eq!(coding_of(&gzip), "identity");
        while server.driven.code_next() {}
        assert_eq!(
            coding_of(&get(&mut server, "/digits.txt", &[BROWSER])),
            "br"
        );
    }
    assert_eq!(server.driven.counters().first_reads, reads);
    assert_eq!(server.driven.coder_counts().made, 1);
}

/// Many distinct files: no account exceeds its bound (checked in every turn), and what the cache has
/// dropped is not coded.
#[test]
pub(crate) fn a_flood_of_distinct_files_is_bounded() {
    const FILES: u64 = 1_500;
    let options = ContentOptions {
        cache_memory: Some(1 << 20),
        ..ContentOptions::default()
    };
    let mut server = server(None, &options);
    for number in 0..FILES {
        server
            .disk
            .put_file(&format!("{number}.html"), page(&format!("{number}")));
    }
    server.disk.age_files(LONG_MS);
    for number in 0..FILES {
        let target = format!("/{number}.html");
        get(&mut server, &target, &[BROWSER]).expect(200);
    }
    let counts = server.driven.coder_counts();
    let all = counts.queued + counts.dropped + counts.refused;
    assert!(all == FILES && counts.queued < FILES / 2, "{counts:?}");
    while server.driven.code_next() {}
    let counts = server.driven.coder_counts();
    assert!(counts.dropped > 200, "{counts:?}");
    // What is left is still found.
    let last = format!("/{}.html", FILES - 1);
    get(&mut server, &last, &[BROWSER]).expect(200);
    while server.driven.code_next() {}
    assert_eq!(coding_of(&get(&mut server, &last, &[BROWSER])), "br");
}
