//! Limits per client, and who is a client at all.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use gannet_testkit::client::{Client, Response, metric};
use gannet_testkit::configuration::Configuration;
use gannet_testkit::content::pattern;
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::h2::Peer;
use gannet_testkit::h3;
use gannet_testkit::process::until;
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::Secure;
use gannet_testkit::{Folder, Gannet, gannet_in};

/// Serves with limits, which are keys of the configuration.
fn limited(engine: Engine, folder: &Folder, limits: &str, flags: &[&str]) -> Gannet {
    let config = Configuration::new(limits);
    serve(engine, folder, &[&config.flags(), flags].concat())
}

fn serve(engine: Engine, folder: &Folder, flags: &[&str]) -> Gannet {
    let common = ["--metrics", "127.0.0.1:0", "--workers", "2"];
    engine.serve(folder.path(), &[&common, flags].concat())
}

fn ask(client: &mut Client, lines: &[&str]) -> Response {
    client.request("GET", "/", lines)
}

/// Over all workers, connections and versions together.
#[test]
fn requests_of_a_client_are_limited() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        folder.write("index.html", "hello");
        let server = limited(engine, &folder, "client.requests = '1/h,burst=5'", &[]);
        for _ in 0..2 {
            ask(&mut Client::new(&server), &[]).expect(200);
        }
        let mut kept = Client::new(&server);
        ask(&mut kept, &[]).expect(200);
        let mut peer = Peer::new(&server);
        peer.get("/").expect(200);
        peer.get("/").expect(200);
        let refused = peer.get("/").expect(429);
        let seconds: u64 = refused
            .field("retry-after")
            .expect("a time")
            .parse()
            .expect("seconds");
        assert!((1..=3_600).contains(&seconds), "{seconds}");
        for _ in 0..3 {
            // The connection goes on.
            assert!(
                ask(&mut kept, &[])
                    .expect(429)
                    .text()
                    .contains("Please wait")
            );
        }
        kept.send("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
        kept.response().expect(429);
        assert_eq!(metric(&server, "gannet_clients_limited_requests_total"), 5);
        assert_eq!(metric(&server, "gannet_clients_unenforced_total"), 0);
    });
}

/// Behind a trusted proxy each client has its own requests, the proxy itself has no limit, and who is
/// denied gets 403.
#[test]
fn clients_behind_a_proxy_are_limited_one_by_one() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        folder.write("index.html", "hello");
        let flags = ["--trust", "loopback", "--deny", "198.51.100.0/24"];
        let limits = "client.requests = '1/h,burst=2'";
        let server = limited(engine, &folder, limits, &flags);
        let mut client = Client::new(&server);
        let mut peer = Peer::new(&server);
        for one in ["203.0.113.1", "203.0.113.2", "2001:db8::1"] {
            let line = format!("X-Forwarded-For: {one}");
            ask(&mut client, &[&line]).expect(200);
            let fields = [("x-forwarded-for", one)];
            peer.request("GET", "/", &fields).expect(200);
            ask(&mut client, &[&line]).expect(429);
            peer.request("GET", "/", &fields).expect(429);
        }
        for _ in 0..5 {
            ask(&mut client, &[]).expect(200);
            ask(&mut client, &["X-Forwarded-For: 127.0.0.2"]).expect(200);
        }
        ask(&mut client, &["X-Forwarded-For: 198.51.100.7"]).expect(403);
        peer.request("GET", "/", &[("x-forwarded-for", "198.51.100.7")])
            .expect(403);
        assert_eq!(metric(&server, "gannet_clients_denied_requests_total"), 2);
    });
}

#[test]
fn only_allowed_clients_may_connect() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        folder.write("index.html", "hello");
        for (flags, is_allowed) in [
            (&["--allow", "192.0.2.0/24"][..], false),
            (&["--allow", "192.0.2.0/24,loopback"], true),
            (&["--deny", "loopback"], false),
            (&["--deny", "loopback", "--allow", "127.0.0.1"], true),
        ] {
            let server = serve(engine, &folder, flags);
            let mut client = Client::new(&server);
            let _ = client.try_send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
            match is_allowed {
                true => assert_eq!(client.response().status, 200),
                false => {
                    client.ends();
                    assert_eq!(client.received(), b"");
                }
            }
            let denied = metric(&server, "gannet_clients_denied_connections_total");
            assert_eq!(denied, u64::from(!is_allowed));
        }
    });
}

/// Who resets connections instead of taking whole answers has taken something, too.
#[test]
fn bytes_of_answers_that_are_cut_off_count() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        folder.write("long.bin", pattern(8 << 20, 1));
        let server = limited(engine, &folder, "client.rate = '10K'", &[]);
        until("the client is ten seconds ahead", || {
            let mut client = Client::slow(&server);
            client.send("GET /long.bin HTTP/1.1\r\nHost: x\r\n\r\n");
            let status = client.head().status;
            client.reset();
            status == 429
        });
        assert!(metric(&server, "gannet_clients_limited_bytes_total") > 0);
    });
}

/// A proxy may take an answer at once that its client takes slowly: one answer is at most ten seconds of
/// its client's rate, and the proxy is not slowed down.
#[test]
fn answers_to_clients_of_proxies_count_for_a_burst_at_most() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        folder.write("index.html", pattern(8_000, 1));
        folder.write("long.bin", pattern(4 << 20, 2));
        let flags = ["--trust", "loopback"];
        let server = limited(engine, &folder, "client.rate = '10K'", &flags);
        let mut client = Client::new(&server);
        let line = "X-Forwarded-For: 203.0.113.1";
        let long = client.request("GET", "/long.bin", &[line]).expect(200);
        assert_eq!(long.body.len(), 4 << 20);
        let mut refused = None;
        until("its client is ten seconds ahead", || {
            let answer = ask(&mut client, &[line]);
            refused = Some(answer).filter(|it| it.status == 429);
            refused.is_some()
        });
        let after = refused.and_then(|it| it.field("retry-after")?.parse::<u64>().ok());
        assert!(after.is_some_and(|seconds| seconds <= 10), "{after:?}");
    });
}

/// No part of an answer comes sooner than the rate allows, over HTTP/3 as by the sockets of TCP.
#[test]
fn http3_is_slowed_down_to_the_rate() {
    const LEN: usize = 60_000;
    let folder = Folder::new();
    folder.write("long.bin", pattern(LEN, 1));
    on_both_engines(|engine| {
        let config = Configuration::new("client.rate = '40K'");
        let secure = Secure::serve(engine, folder.path(), &config.flags());
        let mut quic = Quic::begin(secure.server.address(), &secure.authority);
        let began = Instant::now();
        let answer = quic.get("/long.bin");
        assert_eq!((answer.status, answer.body.len()), (200, LEN));
        assert!(
            began.elapsed() >= Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
    });
}

/// HTTP/3: requests as over TCP, and connections together with those.
#[test]
fn http3_has_the_same_limits() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        folder.write("index.html", "hello");
        let serve = |limits: &str| {
            let config = Configuration::new(limits);
            let flags = [["--metrics", "127.0.0.1:0"], config.flags()].concat();
            Secure::serve(engine, folder.path(), &flags)
        };
        let connect = |secure: &Secure| {
            let address: SocketAddr = secure.server.address();
            Quic::begin(address, &secure.authority)
        };
        let get = |quic: &mut Quic| {
            let id = quic.ask(&h3::request("GET", "/", &[]));
            quic.answer(id)
        };
        let secure = serve("client.requests = '1/h,burst=2'");
        let mut quic = connect(&secure);
        assert_eq!(get(&mut quic).status, 200);
        assert_eq!(get(&mut quic).status, 200);
        let refused = get(&mut quic);
        assert_eq!(refused.status, 429);
        assert!(refused.field("retry-after").is_some());

        let secure = serve("client.connections = 1");
        let mut first = connect(&secure);
        assert_eq!(get(&mut first).status, 200);
        let second = connect(&secure);
        until("the second is refused", || {
            metric(&secure.server, "gannet_clients_limited_connections_total") == 1
        });
        // One over TCP would be another one, too.
        Client::new(&secure.server).ends();
        until("the third is refused", || {
            metric(&secure.server, "gannet_clients_limited_connections_total") == 2
        });
        assert_eq!(get(&mut first).status, 200);
        drop((first, second));
        let err = secure.server.stop().err;
        let expect =
            "gannet: 127.0.0.1 has as many connections as one client may: another one was closed\n";
        assert!(err.contains(expect), "{err}");
    });
}

#[test]
fn limits_are_checked() {
    let folder = Folder::new();
    let check = |key: &str, value: &str, cause: &str| {
        folder.write("limits.toml", format!("{key} = '{value}'"));
        let ended = gannet_in(
            &folder,
            ["serve", "--check-config", "-c", "limits.toml", "."],
        );
        let help = "help: 'gannet --help-all' lists the values of each key";
        let err = format!("gannet: cannot use 'limits.toml': line 1: {key}: {cause}\n{help}\n");
        ended.failure(2, &err);
    };
    let rate = "not a rate such as 20/s, 600/m or 20/s,burst=50";
    for value in ["20", "0/s", "20/d", "20/s,50", "20/s,burst=0", "-1/s"] {
        check("client.requests", value, rate);
    }
    check("client.rate", "1000", "less than 1K in a second");
}
