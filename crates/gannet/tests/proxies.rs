//! gannet behind proxies: who the client of a connection and of a request is.

use std::fs;

use gannet_testkit::client::{Client, Response, metric};
use gannet_testkit::configuration::Configuration;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::h2::{self, END_STREAM, Peer};
use gannet_testkit::h3;
use gannet_testkit::process::datagram_ports;
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::{Abilities, Authority, KeyKind, Secure, connection};
use gannet_testkit::{Folder, Gannet, Signal, command, gannet_in};

const V1: &str = "PROXY TCP4 203.0.113.7 198.51.100.1 56324 443\r\n";
const V2: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x07\xc6\x33\x64\x01\xdc\x04\x01\xbb";
/// Its client is the proxy itself.
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

fn site() -> Folder {
    let folder = Folder::new();
    folder.write("index.html", "hello");
    folder.write(
        "_redirects",
        "http://a.example/old https://b.example/new 301\n",
    );
    folder
}

/// Serves the folder with these flags only; the log is written to `log` in it.
fn start(engine: &str, folder: &Folder, flags: &[&str]) -> Gannet {
    start_sites(engine, folder, &[flags, &["."]].concat())
}

/// The same for the sites that the flags name.
fn start_sites(engine: &str, folder: &Folder, flags: &[&str]) -> Gannet {
    let log = folder.join("log");
    let _ = fs::remove_file(&log);
    let mut command = command();
    command.args([
        "serve",
        "--engine",
        engine,
        "--workers",
        "1",
        "--log",
        "json",
    ]);
    command.args(["--metrics", "127.0.0.1:0", "--log-file", "log"]);
    command.args(flags).current_dir(folder.path());
    Gannet::start(&mut command)
}

/// The clients of all logged requests, once the server has ended.
fn logged(server: Gannet, folder: &Folder) -> Vec<String> {
    // What was turned away is said on standard error: see `incidents`.
    assert_eq!(server.stop().status, Some(0));
    let log = fs::read_to_string(folder.join("log")).expect("written");
    let peer = |line: &str| {
        let (_, rest) = line.split_once("\"peer\":\"").expect("a peer");
        rest.split('"').next().unwrap_or_default().to_owned()
    };
    log.lines().map(peer).collect()
}

#[test]
fn a_proxy_names_the_client_of_a_connection() {
    on_both_engines(|engine| {
        let folder = site();
        let flags = ["--listen", "127.0.0.1:0,proxy", "--trust", "loopback"];
        let server = start(engine.name(), &folder, &flags);
        // No browser can use it.
        let url = format!("{}  (for proxies)", server.urls()[0]);
        let mut lines = server.start_lines().iter();
        assert!(lines.any(|line| line.contains(&url)), "{url}");
        for header in [V1.as_bytes(), V2, LOCAL] {
            let mut client = Client::new(&server);
            client.send(header);
            client.get("/").expect(200);
            client.get("/").expect(200);
        }
        let mut client = Client::new(&server);
        client.send("GET / HTTP/1.1\r\n");
        client.closes();
        assert_eq!(metric(&server, "gannet_proxied_connections_total"), 3);
        assert_eq!(metric(&server, "gannet_proxied_malformed_total"), 1);
        let peers = logged(server, &folder);
        assert_eq!(peers[..4], ["203.0.113.7:56324"; 4]);
        assert!(peers[4..].iter().all(|peer| peer.starts_with("127.0.0.1:")));
        assert_eq!(peers.len(), 6);
    });
}

#[test]
fn strangers_are_turned_away_from_a_proxied_address() {
    on_both_engines(|engine| {
        let folder = site();
        let flags = ["--listen", "127.0.0.1:0,proxy", "--trust", "192.0.2.1"];
        let server = start(engine.name(), &folder, &flags);
        let mut client = Client::new(&server);
        let _ = client.try_send(V1);
        client.ends();
        assert_eq!(client.received(), b"");
        assert_eq!(metric(&server, "gannet_proxied_untrusted_total"), 1);
    });
}

/// The header comes before the handshake, and there is no HTTP/3 at such an address.
#[test]
fn a_header_comes_before_tls() {
    on_both_engines(|engine| {
        let folder = site();
        let authority = Authority::new();
        let certificate = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
        let certificate = certificate.to_str().expect("UTF-8");
        let listen = ["--listen", "127.0.0.1:0,proxy", "--trust", "loopback"];
        let flags = [&listen[..], &["--tls-cert", certificate]].concat();
        let server = start(engine.name(), &folder, &flags);
        let address = server.address();
        let config = authority.client(Abilities::default());
        for header in [V1.as_bytes(), V2] {
            let mut client = Client::connect(address);
            client.send(header);
            let mut client = client.over_tls(connection(&config, "localhost"));
            let answer = client.get("/").expect(200);
            assert_eq!(answer.text(), "hello");
            assert_eq!(answer.field("alt-svc"), None);
        }
        assert_eq!(datagram_ports(&server), [0; 0]);
    });
}

/// Whoever may connect to a Unix socket may name the client, without `--trust`.
#[test]
fn unix_sockets_may_be_proxied() {
    on_both_engines(|engine| {
        let folder = site();
        let listen = [
            "--listen",
            "127.0.0.1:0",
            "--listen",
            "unix:socket,mode=0600,proxy",
        ];
        let server = start(engine.name(), &folder, &listen);
        let mut client = Client::unix(&folder.join("socket"));
        client.send(V2);
        client.get("/").expect(200);
        let mut client = Client::unix(&folder.join("socket"));
        client.send("PROXY UNKNOWN\r\n");
        client.get("/").expect(200);
        assert_eq!(logged(server, &folder), ["203.0.113.7:56324", "unknown"]);
    });
}

fn ask(client: &mut Client, target: &str, lines: &[&str]) -> Response {
    let lines = lines.join("\r\n");
    client.send(format!(
        "GET {target} HTTP/1.1\r\nHost: x\r\n{lines}\r\n\r\n"
    ));
    client.response()
}

/// What trusted proxies tell of a request is logged, and decides on rules.
#[test]
fn trusted_proxies_tell_of_their_clients() {
    on_both_engines(|engine| {
        let folder = site();
        let flags = [
            "--listen",
            "127.0.0.1:0",
            "--trust",
            "127.0.0.0/8",
            "--trust",
            "10.0.0.0/8",
            "--trust-host",
        ];
        let server = start(engine.name(), &folder, &flags);
        let mut client = Client::new(&server);
        let chain = "x-forwarded-for: 192.0.2.66, 203.0.113.7, 10.0.0.1";
        ask(&mut client, "/", &[chain]).expect(200);
        let standard = "forwarded: for=192.0.2.66, for=\"[2001:db8::7]:1\";proto=https";
        ask(&mut client, "/", &[standard]).expect(200);
        // In the middle of others that say nothing.
        ask(&mut client, "/no", &[]).expect(404);
        let host = "x-forwarded-host: a.example";
        let moved = ask(&mut client, "/old", &["x-forwarded-for: 203.0.113.8", host]);
        assert_eq!(
            moved.expect(301).field("location"),
            Some("https://b.example/new")
        );
        ask(&mut client, "/old", &[host, "x-forwarded-proto: https"]).expect(404);
        ask(&mut client, "/old", &["forwarded: host=a.example"]).expect(301);
        ask(&mut client, "/old", &[]).expect(404);
        ask(&mut client, "/", &[chain, standard]).expect(400);
        assert_eq!(metric(&server, "gannet_forwarded_conflicts_total"), 1);
        let own = client.local_address().to_string();
        let expect = [
            "203.0.113.7",
            "2001:db8::7",
            &own,
            "203.0.113.8",
            &own,
            &own,
            &own,
            &own,
        ];
        assert_eq!(logged(server, &folder), expect);
    });
}

/// The host in the log is the one that selects the site, whether the answer had to wait for the disk or
/// not.
#[test]
fn the_host_that_a_proxy_tells_of_is_logged() {
    on_both_engines(|engine| {
        let folder = site();
        let limits = Configuration::new("client.requests = '1/s'");
        let [config, limits] = limits.flags();
        let flags = [
            "--listen",
            "127.0.0.1:0",
            config,
            limits,
            "--trust",
            "loopback",
            "--trust-host",
        ];
        let server = start(engine.name(), &folder, &flags);
        let mut client = Client::new(&server);
        for _ in 0..3 {
            ask(&mut client, "/", &["x-forwarded-host: a.example"]).expect(200);
        }
        ask(&mut client, "/", &[]).expect(200);
        server.stop().success();
        let log = fs::read_to_string(folder.join("log")).expect("written");
        let hosts: Vec<_> = log
            .lines()
            .map(|line| {
                let (_, rest) = line.split_once("\"host\":\"").expect("a host");
                rest.split('"').next().unwrap_or_default()
            })
            .collect();
        assert_eq!(hosts, ["a.example", "a.example", "a.example", "x"]);
    });
}

/// A client of a proxy that passes on `X-Forwarded-Host`, as most do, chooses neither another site than
/// that of `Host`, nor its rules, nor where redirects lead, in any version of HTTP.
#[test]
fn clients_of_proxies_choose_no_site() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        folder.write("a/index.html", "a");
        folder.write("b/index.html", "b");
        folder.write("b/_redirects", "/old /new 301\n");
        let sites = ["--site", "a.example=a", "--site", "b.example=b"];
        let flags = [
            &["--listen", "127.0.0.1:0", "--trust", "loopback"],
            &sites[..],
        ]
        .concat();
        let told = ["x-forwarded-host: b.example", "forwarded: host=b.example"];
        for (is_trusted, expect) in [(false, ("a", 404)), (true, ("b", 301))] {
            let flags = match is_trusted {
                false => flags.clone(),
                true => [&flags[..], &["--trust-host"]].concat(),
            };
            let server = start_sites(engine.name(), &folder, &flags);
            let mut client = Client::new(&server);
            for line in told {
                let ask = |client: &mut Client, target: &str| {
                    let host = "Host: a.example";
                    client.send(format!("GET {target} HTTP/1.1\r\n{host}\r\n{line}\r\n\r\n"));
                    client.response()
                };
                assert_eq!(ask(&mut client, "/").expect(200).text(), expect.0, "{line}");
                ask(&mut client, "/old").expect(expect.1);
            }
            let mut peer = Peer::new(&server);
            for line in told {
                let (name, value) = line.split_once(": ").expect("a field");
                let fields = [("host", "a.example"), (name, value)];
                let block = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
                let block = h2::block(&[&block[..], &fields].concat());
                let stream = peer.open();
                peer.send(&h2::headers(stream, &block));
                let answer = peer.answer(stream).expect(200);
                assert_eq!(answer.body, expect.0.as_bytes(), "{line}");
            }
        }
    });
}

/// A request that is refused has the page, the rules and the fields of the site and the scheme that the proxy
/// tells of.
#[test]
fn refusals_are_those_of_the_site_that_a_proxy_tells_of() {
    on_both_engines(|engine| {
        let folder = Folder::new();
        for name in ["a", "b"] {
            folder.write(format!("{name}/index.html"), name);
            for status in ["403", "429"] {
                folder.write(format!("{name}/{status}.html"), name);
            }
            let rules = format!("https://{name}.example/*\n  X-Robots-Tag: {name}\n");
            folder.write(format!("{name}/_headers"), rules);
        }
        let limits = Configuration::new("client.requests = '1/s'");
        let [config, limits] = limits.flags();
        let flags = [
            "--listen",
            "127.0.0.1:0",
            config,
            limits,
            "--trust",
            "loopback",
            "--trust-host",
            "--site",
            "a.example=a",
            "--site",
            "b.example=b",
            "--deny",
            "203.0.113.0/24",
            "--hsts",
        ];
        let server = start_sites(engine.name(), &folder, &flags);
        let mut client = Client::new(&server);
        let mut ask = |lines: &[&str]| {
            let lines = lines.join("\r\n");
            let host = "Host: b.example";
            client.send(format!("GET / HTTP/1.1\r\n{host}\r\n{lines}\r\n\r\n"));
            client.response()
        };
        let told = ["x-forwarded-host: a.example", "x-forwarded-proto: https"];
        let denied = "x-forwarded-for: 203.0.113.9";
        let limited = "x-forwarded-for: 192.0.2.9";
        let check = |answer: Response, status, site: &str, has_hsts: bool| {
            let answer = answer.expect(status);
            // There is no page of a site for a bad request.
            if status != 400 {
                assert_eq!(answer.text(), site);
            }
            assert_eq!(answer.field("x-robots-tag"), Some(site), "{answer:?}");
            let hsts = answer.field("strict-transport-security");
            assert_eq!(hsts.is_some(), has_hsts, "{answer:?}");
        };
        check(ask(&[denied]), 403, "b", false);
        check(ask(&[denied, told[0]]), 403, "a", false);
        check(ask(&[denied, told[1]]), 403, "b", true);
        check(ask(&[denied, told[0], told[1]]), 403, "a", true);
        // The next one is as it says again.
        check(ask(&[denied]), 403, "b", false);
        loop {
            let answer = ask(&[limited, told[0], told[1]]);
            if answer.status != 200 {
                check(answer, 429, "a", true);
                break;
            }
        }
        // Where fields name different clients, nothing in them is believed.
        let other = "forwarded: for=192.0.2.1;proto=http";
        let conflict = [limited, told[0], told[1], other];
        check(ask(&conflict), 400, "b", false);
    });
}

/// A client can neither hide behind its proxy, nor speak for it.
#[test]
fn clients_of_proxies_cannot_hide() {
    on_both_engines(|engine| {
        let folder = site();
        let flags = [
            "--listen",
            "127.0.0.1:0,proxy",
            "--listen",
            "127.0.0.1:0",
            "--trust",
            "loopback",
            "--trust-host",
        ];
        let denying = [&flags[..], &["--deny", "203.0.113.7"]].concat();
        let server = start(engine.name(), &folder, &denying);
        let plain = server.urls()[1]
            .trim_start_matches("http://")
            .trim_end_matches('/');
        let mut client = Client::connect(plain.parse().expect("an address"));
        let mut check = |line: &str, status| {
            ask(&mut client, "/", &[line]).expect(status);
        };
        check("x-forwarded-for: 203.0.113.8", 200);
        for begun in ["\"", "for=\"x", "unknown", ""] {
            check(&format!("x-forwarded-for: {begun}, 203.0.113.7"), 403);
        }
        check("forwarded: for=\"x, for=203.0.113.7", 400);
        for hidden in ["unknown", "_x", "fe80::1%eth0"] {
            check(&format!("x-forwarded-for: {hidden}"), 403);
            check(&format!("forwarded: for=\"{hidden}\""), 403);
        }
        check("forwarded: for=\"203.0.113.7:_x\"", 403);
        check("accept: */*", 200);
        let mut unknown = Client::new(&server);
        unknown.send("PROXY UNKNOWN\r\n");
        unknown.closes();
        let err = server.stop().err;
        let denied = "gannet: an unknown client is not allowed to connect: ";
        assert!(err.starts_with(denied), "{err}");

        // A client that is not known is no proxy.
        let server = start(engine.name(), &folder, &flags);
        let mut unknown = Client::new(&server);
        unknown.send("PROXY UNKNOWN\r\n");
        let spoofed = [
            "x-forwarded-for: 203.0.113.9",
            "x-forwarded-host: a.example",
        ];
        ask(&mut unknown, "/old", &spoofed).expect(404);
        let mut local = Client::new(&server);
        local.send(LOCAL);
        ask(&mut local, "/old", &spoofed).expect(301);
        assert_eq!(logged(server, &folder), ["unknown", "203.0.113.9"]);
    });
}

/// Anyone can send such fields: they count for nothing.
#[test]
fn strangers_cannot_tell_anything() {
    on_both_engines(|engine| {
        let folder = site();
        for trust in [&[][..], &["--trust", "192.0.2.1,unix"]] {
            let flags = [&["--listen", "127.0.0.1:0"], trust].concat();
            let server = start(engine.name(), &folder, &flags);
            let mut client = Client::new(&server);
            let spoofed = [
                "forwarded: for=192.0.2.66;proto=https;host=a.example",
                "x-forwarded-for: 192.0.2.67",
                "x-forwarded-host: a.example",
            ];
            ask(&mut client, "/", &spoofed).expect(200);
            ask(&mut client, "/old", &spoofed).expect(404);
            let own = client.local_address().to_string();
            assert_eq!(logged(server, &folder), [own.as_str(), &own]);
        }
    });
}

/// The clients of Unix sockets are trusted only if they are named.
#[test]
fn clients_of_unix_sockets_may_be_trusted() {
    on_both_engines(|engine| {
        let folder = site();
        for (trust, expect) in [("loopback", "unix"), ("unix", "203.0.113.7")] {
            let flags = [
                "--listen",
                "127.0.0.1:0",
                "--listen",
                "unix:socket",
                "--trust",
                trust,
            ];
            let server = start(engine.name(), &folder, &flags);
            let mut client = Client::unix(&folder.join("socket"));
            ask(&mut client, "/", &["x-forwarded-for: 203.0.113.7"]).expect(200);
            assert_eq!(logged(server, &folder), [expect]);
        }
    });
}

/// The scheme of the client decides on HSTS and on the redirect to HTTPS, also for answers that had
/// to wait for the disk, and the fields of the connection's other requests are as before.
#[test]
fn the_scheme_is_the_clients() {
    on_both_engines(|engine| {
        let folder = site();
        folder.write("second.html", "second");
        let flags = [
            "--hsts",
            "--http-redirect",
            "127.0.0.1:0",
            "--trust",
            "loopback",
        ];
        let secure = Secure::serve(engine, folder.path(), &flags);
        let mut client = secure.connect();
        for _ in 0..2 {
            let plain = ask(&mut client, "/", &["x-forwarded-proto: http"]).expect(200);
            assert_eq!(plain.field("strict-transport-security"), None);
            let own = ask(&mut client, "/second", &[]).expect(200);
            assert!(own.field("strict-transport-security").is_some());
            assert!(own.field("alt-svc").is_some());
        }
        let redirecting = secure.server.urls().last().expect("its address");
        let address = redirecting
            .trim_start_matches("http://")
            .trim_end_matches('/');
        let mut client = Client::connect(address.parse().expect("an address"));
        ask(&mut client, "/", &[]).expect(301);
        ask(&mut client, "/", &["x-forwarded-proto: http"]).expect(301);
        for _ in 0..2 {
            let content = ask(&mut client, "/", &["forwarded: proto=https"]).expect(200);
            assert!(content.field("strict-transport-security").is_some());
            assert_eq!(content.text(), "hello");
        }
    });
}

/// Without TLS of its own, a server sends it for those who come over TLS to the proxy.
#[test]
fn hsts_is_sent_behind_a_proxy_that_ends_tls() {
    on_both_engines(|engine| {
        let folder = site();
        let flags = ["--hsts", "--trust", "loopback"];
        let server = start(engine.name(), &folder, &flags);
        let mut client = Client::connect(server.address());
        let secure = ask(&mut client, "/", &["x-forwarded-proto: https"]).expect(200);
        assert!(secure.field("strict-transport-security").is_some());
        for fields in [&["x-forwarded-proto: http"][..], &[]] {
            let clear = ask(&mut client, "/", fields).expect(200);
            assert_eq!(clear.field("strict-transport-security"), None);
        }
    });
}

/// HTTP/2 and HTTP/3 as HTTP/1.1.
#[test]
fn every_version_tells_of_clients() {
    on_both_engines(|engine| {
        let folder = site();
        let flags = ["--listen", "127.0.0.1:0", "--trust", "loopback"];
        let server = start(engine.name(), &folder, &flags);
        let mut peer = Peer::new(&server);
        for client in ["203.0.113.7", "203.0.113.8"] {
            peer.request("GET", "/", &[("x-forwarded-for", client)])
                .expect(200);
        }
        drop(peer);
        assert_eq!(logged(server, &folder), ["203.0.113.7", "203.0.113.8"]);

        let flags = ["--listen", "127.0.0.1:0,proxy", "--trust", "loopback"];
        let server = start(engine.name(), &folder, &flags);
        let mut client = Client::new(&server);
        let request = h2::headers(1, &h2::request("GET", "/", &[]));
        client.send([V1.as_bytes(), &h2::wide_opening(), &request].concat());
        let is_last = |frame: &h2::Frame| frame.stream == 1 && frame.has(END_STREAM);
        while !h2::frames(client.received()).iter().any(is_last) {
            assert_eq!(client.fill(), None, "it is answered");
        }
        drop(client);
        assert_eq!(logged(server, &folder), ["203.0.113.7:56324"]);

        let log = folder.join("h3.log");
        let log = log.to_str().expect("UTF-8");
        let flags = [
            "--log",
            "combined",
            "--log-file",
            log,
            "--trust",
            "loopback",
        ];
        let secure = Secure::serve(engine, folder.path(), &flags);
        let mut quic = Quic::begin(secure.server.address(), &secure.authority);
        for client in ["203.0.113.7", "2001:db8::8"] {
            let request = h3::request("GET", "/", &[("x-forwarded-for", client)]);
            let id = quic.ask(&request);
            assert_eq!(quic.answer(id).status, 200);
        }
        // Who goes without a word is waited for.
        secure.server.signal(Signal::TERM);
        quic.closed_with();
        secure.server.wait().success();
        let log = fs::read_to_string(log).expect("written");
        let clients: Vec<_> = log.lines().map(|it| it.split(' ').next()).collect();
        assert_eq!(clients, [Some("203.0.113.7"), Some("2001:db8::8")]);
    });
}

#[test]
fn a_proxied_address_needs_its_proxies() {
    let folder = site();
    let check = |flags: &[&str], err: &str| {
        let flags = [&["serve", "--check-config", "."], flags].concat();
        gannet_in(&folder, flags).failure(2, err);
    };
    check(
        &["--listen", "127.0.0.1:0,proxy", "--trust", "unix"],
        "gannet: --listen 127.0.0.1:0,proxy needs --trust\n\
         help: name the proxy's address with --trust CIDR: no other peer may name clients\n",
    );
    check(
        &["--trust", "192.0.2.1/24"],
        "gannet: cannot use '--trust 192.0.2.1/24': '192.0.2.1/24' is an address within \
         192.0.2.0/24: write that\nhelp: see 'gannet --help-all'\n",
    );
}
