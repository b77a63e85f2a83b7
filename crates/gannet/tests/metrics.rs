//! What is measured of responses, over every version of HTTP.

use std::path::Path;

use gannet_testkit::client::{Client, ask, metrics};
use gannet_testkit::content::pattern;
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::exposition::Exposition;
use gannet_testkit::h2::Peer;
use gannet_testkit::h3::request;
use gannet_testkit::process::until;
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, Gannet, command, gannet_in};

const FLAGS: [&str; 4] = ["--metrics", "127.0.0.1:0", "--workers", "2"];

const DURATION: &str = "http_server_request_duration_seconds";
const SIZE: &str = "http_server_response_body_size_bytes";
const FIRST_BYTE: &str = "gannet_time_to_first_byte_seconds";
const VERSION: &str = "network_protocol_version";
const METHOD: &str = "http_request_method";
const CLASS: &str = "http_response_status_class";

fn scrape(server: &Gannet) -> Exposition {
    Exposition::parse(metrics(server).text())
}

/// Waits until so many responses have ended: the kernel reports a send after its peer has it.
fn scrape_after(server: &Gannet, responses: f64) -> Exposition {
    let mut last = None;
    until("the responses have ended", || {
        let metrics = scrape(server);
        let is_whole = metrics.sum(DURATION, "_count", &[]) >= responses;
        last = Some(metrics);
        is_whole
    });
    let metrics = last.expect("it was asked for");
    assert_eq!(metrics.sum(DURATION, "_count", &[]), responses);
    metrics
}

/// A page, a short file, and one that is longer than what any socket takes at once.
const LONG: usize = 24 << 20;

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("index.html", "<h1>hello</h1>");
    folder.write("short.bin", pattern(5_000, 1));
    folder.write("long.bin", pattern(LONG, 2));
    folder
}

#[test]
fn responses_are_measured_by_method_version_and_class() {
    on_both_engines(|engine| {
        let folder = site();
        let secure = Secure::serve(engine, folder.path(), &FLAGS);
        let server = &secure.server;
        let mut client = secure.connect();
        client.get("/").expect(200);
        client.get("/short.bin").expect(200);
        client.get("/short.bin").expect(200);
        client.get("/nothing").expect(404);
        client.request("HEAD", "/long.bin", &[]).expect(200);
        client.request("OPTIONS", "/", &[]).expect(204);
        client.request("BREW", "/", &[]).expect(405);
        let mut peer = Peer::secure(&secure, &[]);
        for target in ["/short.bin", "/long.bin", "/nothing"] {
            let stream = peer.ask("GET", target, &[]);
            assert!(peer.answer(stream).is_ended, "{target}");
        }
        let mut quic = Quic::begin(server.address(), &secure.authority);
        for target in ["/short.bin", "/long.bin", "/nothing"] {
            let id = quic.ask(&request("GET", target, &[]));
            assert!(quic.answer(id).status >= 200, "{target}");
        }
        let metrics = scrape_after(server, 13.0);
        let count = |name, method, version, class| {
            let labels = [(METHOD, method), (VERSION, version), (CLASS, class)];
            metrics.sum(name, "_count", &labels)
        };
        for (method, version, class, expect) in [
            ("GET", "1.1", "2xx", 3.0),
            ("GET", "1.1", "4xx", 1.0),
            ("HEAD", "1.1", "2xx", 1.0),
            ("OPTIONS", "1.1", "2xx", 1.0),
            ("_OTHER", "1.1", "4xx", 1.0),
            ("GET", "2", "2xx", 2.0),
            ("GET", "2", "4xx", 1.0),
            ("GET", "3", "2xx", 2.0),
            ("GET", "3", "4xx", 1.0),
        ] {
            for name in [DURATION, SIZE] {
                let got = count(name, method, version, class);
                assert_eq!(got, expect, "{name} {method} {version} {class}");
            }
        }
        for (version, bytes) in [("2", LONG + 5_000), ("3", LONG + 5_000), ("1.1", 10_014)] {
            let labels = [(METHOD, "GET"), (VERSION, version), (CLASS, "2xx")];
            assert_eq!(metrics.sum(SIZE, "_sum", &labels), bytes as f64);
        }
        // A response without content is in the first bucket.
        let empty = [(METHOD, "HEAD"), ("le", "0")];
        assert_eq!(metrics.sum(SIZE, "_bucket", &empty), 1.0);
        for (version, responses) in [("1.1", 7.0), ("2", 3.0), ("3", 3.0)] {
            let of_version = [(VERSION, version)];
            assert_eq!(metrics.sum(FIRST_BYTE, "_count", &of_version), responses);
            // The first byte comes no later than the last one.
            let first = metrics.sum(FIRST_BYTE, "_sum", &of_version);
            let last = metrics.sum(DURATION, "_sum", &of_version);
            // Sums of decimal fractions.
            let most = last + 1e-9;
            assert!(first <= most, "{version}: {first} s, then {last} s");
            let longest = metrics.sum("gannet_request_duration_max_seconds", "", &of_version);
            assert!(
                longest <= most && longest * responses >= last - 1e-9,
                "{version}"
            );
        }
        let handshakes = "gannet_tls_handshake_duration_seconds";
        for (kind, least) in [("full", 2.0), ("quic", 1.0)] {
            let count = metrics.sum(handshakes, "_count", &[("kind", kind)]);
            assert_eq!(count, least, "{kind}");
        }
    });
}

/// Requests rejected before they have a method or a site are measured as well.
#[test]
fn a_rejected_request_is_measured() {
    on_both_engines(|engine| {
        let folder = site();
        let server = engine.serve(folder.path(), &FLAGS);
        let mut client = Client::new(&server);
        client.send("GET /\u{1} HTTP/1.1\r\nhost: a\r\n\r\n");
        client.response().expect(400);
        // A scanner is no failure of the server.
        let mut client = Client::new(&server);
        client.send("GET / HTTP/2.0\r\nhost: a\r\n\r\n");
        client.response().expect(505);
        let metrics = scrape_after(&server, 2.0);
        let labels = [(METHOD, "_OTHER"), (VERSION, "1.1"), (CLASS, "4xx")];
        assert_eq!(metrics.sum(DURATION, "_count", &labels), 2.0);
        assert_eq!(metrics.sum(DURATION, "_count", &[(CLASS, "5xx")]), 0.0);
        let codes = metrics.sum("gannet_responses_total", "", &[("status", "505")]);
        assert_eq!(codes, 1.0);
        let site = |name| metrics.sum("gannet_site_responses_total", "", &[("site", name)]);
        assert_eq!((site("other"), site("default")), (2.0, 0.0));
    });
}

/// Of a download that its client leaves, the size is what was sent.
#[test]
fn a_response_that_was_cut_short_has_the_size_that_was_sent() {
    on_both_engines(|engine| {
        let folder = site();
        let server = engine.serve(folder.path(), &FLAGS);
        let mut client = Client::slow(&server);
        client.send("GET /long.bin HTTP/1.1\r\nhost: a\r\n\r\n");
        client.head().expect(200);
        client.reset();
        let metrics = scrape_after(&server, 1.0);
        let sent = metrics.sum(SIZE, "_sum", &[]);
        assert!(0.0 < sent && sent < LONG as f64, "{sent}");
    });
}

fn serve_sites(engine: Engine, sites: &[(&str, &Path)]) -> Gannet {
    let mut command = command();
    command.args(["--engine", engine.name(), "--port", "0"]);
    command.args(FLAGS);
    for (hosts, path) in sites {
        let site = format!("{hosts}={}", path.display());
        command.args(["--site", &site]);
    }
    Gannet::start(&mut command)
}

/// Sites are counted by their first name, whichever name a request has.
#[test]
fn sites_are_counted_by_name() {
    on_both_engines(|engine| {
        let (one, two) = (site(), Folder::new());
        two.write("index.html", "two");
        let sites = [
            ("a.example,www.a.example", one.path()),
            ("b.example", two.path()),
        ];
        let server = serve_sites(engine, &sites);
        let hosts = [
            ("a.example", 200),
            ("WWW.A.example:80", 200),
            ("b.example", 200),
            ("c.example", 421),
        ];
        let mut client = Client::new(&server);
        for _ in 0..2 {
            for (host, status) in hosts {
                client.send(format!("GET / HTTP/1.1\r\nhost: {host}\r\n\r\n"));
                client.response().expect(status);
            }
        }
        let metrics = scrape_after(&server, 8.0);
        let of = |name, site| metrics.sum(name, "", &[("site", site)]);
        for (site, responses) in [("a.example", 4.0), ("b.example", 2.0), ("other", 2.0)] {
            assert_eq!(of("gannet_site_responses_total", site), responses, "{site}");
        }
        assert_eq!(of("gannet_site_body_bytes_total", "a.example"), 4.0 * 14.0);
        assert_eq!(of("gannet_site_body_bytes_total", "b.example"), 2.0 * 3.0);
    });
}

/// The names of more sites than are counted cannot fill the metrics.
#[test]
fn sites_beyond_the_bound_are_added_up() {
    /// As in the server.
    const COUNTED_MAX: usize = 100;
    let hosts = Folder::new();
    for number in 0..COUNTED_MAX + 3 {
        hosts.write(format!("s{number:03}.example/index.html"), "x");
    }
    let flags = ["--metrics", "127.0.0.1:0", "--workers", "1", "--hosts"];
    let server = Gannet::serve(hosts.path(), &flags);
    let mut client = Client::new(&server);
    for number in 0..COUNTED_MAX + 3 {
        let head = format!("GET / HTTP/1.1\r\nhost: s{number:03}.example\r\n\r\n");
        client.send(head);
        client.response().expect(200);
    }
    let metrics = scrape_after(&server, (COUNTED_MAX + 3) as f64);
    let samples = &metrics.metric("gannet_site_responses_total").samples;
    assert_eq!(samples.len(), COUNTED_MAX + 1);
    let other = metrics.sum("gannet_site_responses_total", "", &[("site", "other")]);
    assert_eq!(other, 3.0);
}

/// Requests answered in vain make no more label sets than methods, versions and classes allow.
#[test]
fn clients_cannot_fill_the_metrics() {
    let folder = site();
    let server = Gannet::serve(folder.path(), &FLAGS);
    let methods = ["GET", "HEAD", "OPTIONS", "POST", "PUT", "A", "B", "C", "D"];
    let mut asked = 0.0;
    for method in methods {
        for target in ["/", "/nothing", "/a", "/b", "/%2e%2e/x"] {
            ask(&server, method, target, &[]);
            asked += 1.0;
        }
    }
    let metrics = scrape_after(&server, asked);
    let samples = &metrics.metric(DURATION).samples;
    let sets = samples.iter().filter(|it| it.suffix == "_count").count();
    assert!(sets <= 4 * 3, "{sets} label sets of one version");
}

/// A report has the traffic of its interval.
#[test]
fn reports_are_written_at_an_interval() {
    on_both_engines(|engine| {
        let folder = site();
        let mut server = engine.serve(folder.path(), &["--report", "1s"]);
        let mut client = Client::new(&server);
        (0..20).for_each(|_| drop(client.get("/").expect(200)));
        // The requests may be in any of the first intervals.
        let line = loop {
            let line = server.next_error_line().expect("a report");
            assert!(line.starts_with("report: "), "{line}");
            if !line.contains("report: 0.0 requests/s") {
                break line;
            }
        };
        let parts: Vec<&str> = line["report: ".len()..].split(", ").collect();
        let ends = [" requests/s", "B/s", " connection", "", "", " %", " errors"];
        assert_eq!(parts.len(), ends.len(), "{line}");
        for (part, end) in parts.iter().zip(ends) {
            assert!(part.ends_with(end), "{part} of {line}");
        }
        assert!(
            parts[3].starts_with("p50 ") && parts[3].ends_with(" ms"),
            "{line}"
        );
        assert!(parts[4].starts_with("p99 "), "{line}");
        assert_eq!((parts[2], parts[6]), ("1 connection", "0 errors"), "{line}");
        server.stop().success();
    });
}

#[test]
fn a_report_has_an_interval_of_a_second_at_least() {
    let folder = site();
    let arguments = ["-p", "0", "--report", "900ms", "."];
    gannet_in(&folder, arguments).failure(
        2,
        "gannet: cannot use '--report 900ms': not a time of at least 1s\n\
         help: see 'gannet --help-all'\n",
    );
}

/// Whether an answer waited is in it, over every version, if that is wanted.
#[test]
fn answers_say_whether_they_waited() {
    on_both_engines(|engine| {
        let (folder, other) = (site(), Folder::new());
        let timing = other.write("gannet.toml", "server-timing = true\n");
        let timing = timing.to_str().expect("UTF-8");
        let secure = Secure::serve(
            engine,
            folder.path(),
            &["--config", timing, "--workers", "1"],
        );
        let check = |value: Option<&str>, is_hit: bool| {
            let value = value.expect("it is in every answer");
            match value.strip_prefix("cache;desc=miss, lookup;dur=") {
                None => assert!(is_hit && value == "cache;desc=hit", "{value}"),
                Some(ms) => {
                    assert!(!is_hit, "{value}");
                    let (ms, us) = ms.split_once('.').expect("microseconds");
                    assert!(ms.parse::<u64>().is_ok() && us.len() == 3, "{value}");
                }
            }
        };
        let mut client = secure.connect();
        let first = client.get("/short.bin").expect(200);
        check(first.field("server-timing"), false);
        // A file that has just changed is not kept.
        until("it is kept", || {
            let answer = client.get("/short.bin").expect(200);
            answer.field("server-timing") == Some("cache;desc=hit")
        });
        let head = client.request("HEAD", "/short.bin", &[]).expect(200);
        check(head.field("server-timing"), true);
        let mut peer = Peer::secure(&secure, &[]);
        let stream = peer.ask("GET", "/short.bin", &[]);
        check(peer.answer(stream).field("server-timing"), true);
        let mut quic = Quic::begin(secure.server.address(), &secure.authority);
        let id = quic.ask(&request("GET", "/short.bin", &[]));
        check(quic.answer(id).field("server-timing"), true);
    });
}

/// Nothing is said of it unless it is wanted.
#[test]
fn answers_say_nothing_of_their_cache_by_default() {
    let folder = site();
    let server = Gannet::serve(folder.path(), &[]);
    let answer = ask(&server, "GET", "/", &[]).expect(200);
    assert_eq!(answer.field("server-timing"), None);
}
