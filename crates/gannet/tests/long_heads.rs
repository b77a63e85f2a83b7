//! Sites whose rules make heads as long and as dear as they may be, and longer ones.

use gannet_testkit::client::{Client, head, metric};
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::process::until;
use gannet_testkit::{Folder, Gannet, Signal, gannet_in, hostile, long_heads};

/// Requests that are sent at once.
const PIPELINED: usize = 200;

fn site() -> Folder {
    let site = Folder::site();
    site.write("_headers", long_heads::headers());
    site
}

/// Waits for a line of standard error with this part.
fn says(server: &mut Gannet, part: &str) {
    until(part, || {
        let line = server.next_error_line().expect("it says something");
        line.contains(part)
    });
}

/// The answers to pages, errors and redirects have all fields of the site, and a head within its bound.
#[test]
fn the_longest_heads_are_sent() {
    let site = site();
    site.write("_redirects", "/old /new 301\n");
    on_both_engines(|engine| {
        let server = engine.serve(site.path(), &["--no-listing"]);
        let mut client = Client::new(&server);
        for (path, status) in [("/", 200), ("/none", 404), ("/old", 301)] {
            let response = client.get(path).expect(status);
            let lens = response
                .fields
                .iter()
                .map(|(name, value)| name.len() + value.len());
            let len: usize = lens.sum();
            assert!((24_000..32_000).contains(&len), "{path}: {len}");
        }
    });
}

/// A stop is not delayed by what rules cost: nobody reads the answers.
#[test]
fn a_stop_does_not_wait_for_dear_rules() {
    let mut sites = vec![site()];
    for [redirects, headers] in hostile::sites() {
        let site = Folder::site();
        site.write("_redirects", redirects);
        site.write("_headers", headers);
        sites.push(site);
    }
    on_both_engines(|engine| {
        sites.iter().for_each(|site| stops(engine, site));
    });
}

fn stops(engine: Engine, site: &Folder) {
    let flags = ["--no-listing", "--workers", "1", "--grace", "100ms"];
    let server = engine.serve(site.path(), &flags);
    let address = server.address();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let mut client = Client::slow(&server);
            client.send(head("GET", "/none", &[]).repeat(PIPELINED));
            client
        })
        .collect();
    server.signal(Signal::TERM);
    until("newcomers are refused", || {
        std::net::TcpStream::connect(address).is_err()
    });
    assert_eq!(server.wait().status, Some(0));
    drop(clients);
}

/// One line more is refused with its place, and a running server keeps the rules that it has.
#[test]
fn longer_heads_are_refused_with_their_place() {
    let site = Folder::site();
    let out = Folder::new();
    let archive = out.join("a.gannet");
    let archive = archive.to_str().expect("UTF-8");
    let long = format!(
        "/*\n{}",
        format!("  Set-Cookie: {}\n", "v".repeat(8_000)).repeat(10)
    );
    site.write("_headers", &long);
    for arguments in [
        vec!["pack", ".", "--fast", "-o", archive],
        vec!["serve", ".", "--port", "0"],
        vec!["check", "."],
    ] {
        let ended = gannet_in(&site, &arguments);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        let said = format!("{}{}", ended.err, ended.text());
        let parts = ["_headers:5:1", "found too long fields in one answer"];
        assert!(parts.iter().all(|it| said.contains(it)), "{said}");
    }
    // Both engines run at once, each with a site of its own.
    on_both_engines(|engine| {
        let site = Folder::site();
        site.write("_headers", "/*\n  X-A: 1\n");
        let mut server = engine.serve(site.path(), &[]);
        assert_eq!(Client::new(&server).get("/").field("x-a"), Some("1"));
        site.write("_headers", &long);
        says(&mut server, "_headers:5:1: found too long fields");
        assert_eq!(Client::new(&server).get("/").field("x-a"), Some("1"));
    });
}

/// Where fields that depend on the path are too long, no content of the site is sent, which is reported once.
#[test]
fn content_whose_fields_a_path_makes_too_long_is_not_sent() {
    let site = Folder::site();
    let rule = "/:a/*\n  X-A: :splat:splat:splat:splat\n  X-B: b\nhttps://h.example/*\n  X-C: c\n";
    site.write("_headers", rule);
    on_both_engines(|engine| {
        let flags = [
            "--compat",
            "cloudflare",
            "--no-listing",
            "--metrics",
            "127.0.0.1:0",
        ];
        let mut server = engine.serve(site.path(), &flags);
        let mut client = Client::new(&server);
        assert_eq!(client.get("/a/b").expect(404).field("x-b"), Some("b"));
        let long = format!("/a/{}", "%22".repeat(2_600));
        for _ in 0..3 {
            let response = client.get(&long).expect(404);
            assert_eq!((response.field("x-a"), response.field("x-b")), (None, None));
        }
        says(&mut server, "fields of an answer cannot be sent: ");
        assert!(metric(&server, "gannet_answers_without_site_fields_total") >= 3);
    });
}
