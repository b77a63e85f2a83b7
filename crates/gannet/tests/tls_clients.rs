//! Clients that need a certificate, or may show one, over every version of HTTP.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use gannet_testkit::client::{Client, End, get, head, metric, metrics};
use gannet_testkit::configuration::Configuration;
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::h2::Peer;
use gannet_testkit::h3;
use gannet_testkit::process::until;
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::{Abilities, Authority, Issued, KeyKind, connection};
use gannet_testkit::{Folder, Gannet, Signal, command, gannet, tool};
use rcgen::{CustomExtension, DnType, SerialNumber};
use rustls::crypto::aws_lc_rs::cipher_suite as suites;
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion};

/// A server that asks clients for a certificate of `clients`.
struct Place {
    server: Gannet,
    /// Has issued the server's certificate, as `site.pem`.
    authority: Authority,
    /// Issues those of clients, and owns `root.pem`.
    clients: Authority,
}

impl Place {
    fn new(engine: Engine, site: &Folder) -> Self {
        Self::with(engine, site, &[])
    }

    /// The same with more flags.
    fn with(engine: Engine, site: &Folder, more: &[&str]) -> Self {
        let (authority, clients) = (Authority::new(), Authority::named("clients"));
        let file = authority.issue("site.pem", KeyKind::P256, &["localhost", "127.0.0.1"]);
        let ca = clients.file();
        let flags = [
            ["--tls-cert", text(&file)],
            ["--tls-client-ca", text(&ca)],
            ["--metrics", "127.0.0.1:0"],
        ];
        let flags = [flags.as_flattened(), more].concat();
        let server = engine.serve(site.path(), &flags);
        Self {
            server,
            authority,
            clients,
        }
    }

    fn config(&self, alpn: &str, identity: Option<Issued>) -> Arc<ClientConfig> {
        self.authority.client(Abilities {
            alpn: vec![alpn.into()],
            identity,
            ..Abilities::default()
        })
    }

    fn client(&self, identity: Option<Issued>) -> Client {
        let config = self.config("http/1.1", identity);
        Client::tls(self.server.address(), connection(&config, "localhost"))
    }

    fn quic(&self, identity: Option<Issued>) -> Quic {
        let config = self.config("h3", identity);
        Quic::start(self.server.address(), &config, "localhost")
    }

    /// The answers to a request for `target` over each version of HTTP.
    fn answers(&self, target: &str, identity: Option<&Issued>) {
        let identity = || identity.cloned();
        self.client(identity()).get(target).expect(200);
        let config = self.config("h2", identity());
        let h2 = connection(&config, "localhost");
        Peer::tls(self.server.address(), h2).get(target).expect(200);
        let mut quic = self.quic(identity());
        quic.shake();
        quic.open_uni(&h3::control(&[]));
        assert_eq!(quic.get(target).status, 200);
    }

    fn good(&self) -> Option<Issued> {
        Some(self.clients.issued_to_client(KeyKind::P256))
    }

    fn count(&self, result: &str) -> u64 {
        let name = format!("gannet_tls_client_certificates_total{{result=\"{result}\"}}");
        metric(&self.server, &name)
    }

    /// Whether the metrics tell when this authority expires.
    fn tells_end_of(&self, name: &str) -> bool {
        let answer = metrics(&self.server);
        let series = format!("gannet_certificate_not_after_timestamp_seconds{{name=\"CN={name}\",");
        answer.text().contains(&series)
    }

    fn failed(&self, reason: &str) -> u64 {
        let name = format!("gannet_tls_handshakes_failed_total{{reason=\"{reason}\"}}");
        metric(&self.server, &name)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// All lines of a log, of which there are so many; then it is removed.
fn logged(log: &Path, count: u64) -> Vec<String> {
    let mut lines = String::new();
    until("all lines", || {
        lines = fs::read_to_string(log).unwrap_or_default();
        lines.ends_with('\n') && lines.lines().count() as u64 == count
    });
    fs::remove_file(log).expect("ours");
    lines.lines().map(str::to_owned).collect()
}

/// A client without the right certificate sends its request at once, and is told this alert instead
/// of an answer.
fn is_refused(mut client: Client, alert: &str) {
    let stream = client.secure();
    let request = head("GET", "/", &[]);
    let sent = stream.write_all(request.as_bytes());
    let ended = sent.and_then(|()| stream.read_to_end(&mut Vec::new()));
    let error = ended.expect_err("no answer").to_string();
    assert!(error.contains(alert), "{error}");
}

/// The same over HTTP/3: the alert is in the error code.
fn is_refused_h3(mut quic: Quic, alert: u64) {
    quic.shake();
    // The handshake is over for the client, unless it has been told already.
    let asked = (!quic.is_lost()).then(|| quic.ask(&h3::request("GET", "/", &[])));
    assert_eq!(quic.failed_with(), 0x100 + alert);
    let answer = asked.map(|id| quic.received(id).bytes);
    assert_eq!(answer.unwrap_or_default(), b"");
}

#[test]
fn only_clients_with_a_certificate_are_served() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let place = Place::new(engine, &site);
        let lines = place.server.start_lines();
        let named = |line: &String| line.contains("clients need a certificate of: CN=clients");
        assert!(lines.iter().any(named), "{lines:?}");
        let answer = place.client(place.good()).get("/").expect(200);
        let why = "browsers send none over HTTP/3";
        assert_eq!(answer.field("alt-svc"), None, "{why}");
        place.answers("/", place.good().as_ref());
        assert_eq!(place.count("accepted"), 4);

        is_refused(place.client(None), "CertificateRequired");
        is_refused_h3(place.quic(None), 116);
        assert_eq!(place.count("missing"), 2);
        let foreign = || Some(Authority::named("others").issued_to_client(KeyKind::P256));
        is_refused(place.client(foreign()), "UnknownCA");
        is_refused_h3(place.quic(foreign()), 48);
        let expired = || Some(place.clients.issued_for(KeyKind::P256, &[], (2020, 2021)));
        is_refused(place.client(expired()), "CertificateExpired");
        is_refused_h3(place.quic(expired()), 45);
        assert_eq!(place.count("refused"), 4);
        let reasons = ["certificate_required", "unknown_ca", "certificate_expired"];
        assert_eq!(reasons.map(|reason| place.failed(reason)), [2, 2, 2]);
        assert_eq!(place.count("accepted"), 4);
        place.client(place.good()).get("/").expect(200);
    });
}

/// Who shows none is served, who shows a good one as well, and who shows a bad one gets the same alert as
/// where everybody needs one.
#[test]
fn an_optional_certificate_has_to_be_right() {
    let site = Folder::site();
    // For the kernel to encrypt, where it can.
    site.write("long.bin", vec![7; 300 << 10]);
    on_both_engines(|engine| {
        let place = Place::with(engine, &site, &["--tls-client-auth", "optional"]);
        let lines = place.server.start_lines();
        let named = |line: &String| line.contains("clients may show a certificate of: CN=clients");
        assert!(lines.iter().any(named), "{lines:?}");
        place.answers("/long.bin", None);
        assert_eq!((place.count("missing"), place.count("accepted")), (3, 0));
        place.answers("/long.bin", place.good().as_ref());
        assert_eq!((place.count("missing"), place.count("accepted")), (3, 3));
        let answer = place.client(None).get("/").expect(200);
        let why = "a browser would show no certificate over HTTP/3";
        assert_eq!(answer.field("alt-svc"), None, "{why}");

        let foreign = Authority::named("others").issued_to_client(KeyKind::P256);
        let expired = place.clients.issued_for(KeyKind::P256, &[], (2020, 2021));
        // Of an authority of the same name.
        let forged = Authority::named("clients").issued_to_client(KeyKind::P256);
        for (identity, alert, number) in [
            (foreign, "UnknownCA", 48),
            (expired, "CertificateExpired", 45),
            (forged, "DecryptError", 51),
        ] {
            is_refused(place.client(Some(identity.clone())), alert);
            is_refused_h3(place.quic(Some(identity)), number);
        }
        assert_eq!(place.count("refused"), 6);
        assert_eq!((place.count("missing"), place.count("accepted")), (4, 3));
    });
}

/// An ACME server that looks at a challenge is asked for nothing, gets nothing, and counts as nobody,
/// whether or not others need a certificate.
#[test]
fn challenges_are_asked_for_nothing() {
    let site = Folder::site();
    on_both_engines(|engine| {
        for demand in ["required", "optional"] {
            let state = Folder::new();
            fs::create_dir(state.join("challenges")).expect("made");
            let flags = [
                "--tls-client-auth",
                demand,
                "--acme-dir",
                text(state.path()),
            ];
            let place = Place::with(engine, &site, &flags);
            let proof = place.authority.issued(KeyKind::P256, &["asked.test"]);
            fs::write(state.join("proof"), proof.pem()).expect("written");
            let file = state.join("challenges/asked.test.pem");
            fs::rename(state.join("proof"), file).expect("renamed");
            let config = place.config("acme-tls/1", None);
            let look = || {
                let client = connection(&config, "asked.test");
                let mut client = Client::tls(place.server.address(), client);
                client.try_send(b"").is_ok().then_some(client)
            };
            let mut client = None;
            until("the challenge is answered", || {
                client = look();
                client.is_some()
            });
            let mut client = client.expect("answered");
            assert_eq!(client.ends(), End::Closed, "{demand}: nothing is spoken");
            let results = ["accepted", "missing", "refused"];
            assert_eq!(results.map(|it| place.count(it)), [0; 3], "{demand}");
        }
    });
}

/// Each protocol's lines in every format: subjects by RFC 2253, serial numbers, or that there is none.
#[test]
fn the_log_names_clients() {
    const OWN: &str = "$request_uri $server_protocol $ssl_client_verify \"$ssl_client_s_dn\" \
                       $ssl_client_serial $ssl_client_fingerprint $remote_user";
    let site = Folder::site();
    on_both_engines(|engine| {
        let lines = |format: &[&str]| {
            let log = site.join(format!("log-{}", engine.name()));
            let to = ["--log-file", text(&log), "--tls-client-auth", "optional"];
            let place = Place::with(engine, &site, &[format, &to].concat());
            let alice = place.clients.issued_with(KeyKind::P256, &[], |params| {
                let name = &mut params.distinguished_name;
                name.push(DnType::CommonName, "alice \"a\"");
                name.push(DnType::OrganizationName, "Staff, é");
                params.serial_number = Some(SerialNumber::from_slice(&[0x0a, 0xff]));
            });
            place.answers("/", None);
            place.answers("/about", Some(&alice));
            logged(&log, 6)
        };
        let subject = "O=Staff\\x5C, \\x5CC3\\x5CA9,CN=alice \\x5C\\x22a\\x5C\\x22";
        let own = lines(&["--log", OWN]);
        for version in ["1.1", "2.0", "3.0"] {
            let none = format!("/ HTTP/{version} NONE \"-\" - - -");
            assert!(own.contains(&none), "{own:?}");
            let begin = format!("/about HTTP/{version} SUCCESS \"{subject}\" 0AFF ");
            let mut rests = own.iter().filter_map(|line| line.strip_prefix(&begin));
            let rest = rests.next().unwrap_or_else(|| panic!("{begin}: {own:?}"));
            let sha1 = rest.strip_suffix(" -").expect("no password");
            let is_hex = |letter: u8| matches!(letter, b'0'..=b'9' | b'a'..=b'f');
            assert!(sha1.len() == 40 && sha1.bytes().all(is_hex), "{sha1}");
        }
        let json = lines(&["--log", "json"]);
        let named = ",\"tls_client\":\"O=Staff\\\\, \\\\C3\\\\A9,CN=alice \\\\\\\"a\\\\\\\"\",\
                     \"tls_client_serial\":\"0AFF\",\"protocol\":";
        for line in json {
            let is_named = line.contains("\"target\":\"/about\"");
            assert_eq!(line.contains(named), is_named, "{line}");
            assert_eq!(line.contains("tls_client"), is_named, "{line}");
        }
        let masked = Configuration::new("[log]\nformat = 'json'\nmask = true");
        for format in [
            &["--log", "combined"][..],
            &["--log", "vcombined"],
            &["--log", "pretty"],
            &masked.flags(),
        ] {
            let lines = lines(format);
            let names = |line: &String| line.contains("alice") || line.contains("tls_client");
            assert!(!lines.iter().any(names), "{lines:?}");
        }
    });
}

/// The client of a connection over HTTP/3 stays who it is when it comes from another address.
#[test]
fn a_client_that_moves_keeps_its_name() {
    let site = Folder::site();
    site.write("long.bin", vec![7; 300 << 10]);
    on_both_engines(|engine| {
        let log = site.join(format!("moved-{}", engine.name()));
        let to = ["--log", "json", "--log-file", text(&log)];
        let place = Place::with(engine, &site, &to);
        let mut quic = place.quic(place.good());
        quic.shake();
        quic.open_uni(&h3::control(&[]));
        quic.rebind();
        // Longer than what is sent to an address that is not validated.
        assert_eq!(quic.get("/long.bin").status, 200);
        let second = quic.address();
        assert_eq!(quic.get("/about").status, 200);
        let lines = logged(&log, 2);
        let last = &lines[1];
        let of_second = format!("\"peer\":\"{second}\"");
        let named = "\"tls_client\":\"CN=test leaf\"";
        assert!(last.contains(&of_second) && last.contains(named), "{last}");
    });
}

/// Many connections whose clients have names of 15,000 bytes: of each a beginning is kept, once for all
/// its requests.
#[test]
fn long_names_have_a_bound() {
    const CONNECTIONS: u64 = 20;
    const REQUESTS: u64 = 5;
    // With the mark at the end.
    const NAME_MAX: usize = (1 << 10) + 3;
    let site = Folder::site();
    on_both_engines(|engine| {
        let log = site.join(format!("long-{}", engine.name()));
        let to = ["--log", "json", "--log-file", text(&log)];
        let place = Place::with(engine, &site, &to);
        let long = place.clients.issued_with(KeyKind::P256, &[], |params| {
            let name = "name \"".repeat(15_000 / 6);
            params.distinguished_name.push(DnType::CommonName, name);
        });
        let mut open = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut client = place.client(Some(long.clone()));
            let mut quic = place.quic(Some(long.clone()));
            quic.shake();
            quic.open_uni(&h3::control(&[]));
            for _ in 0..REQUESTS {
                client.get("/").expect(200);
                assert_eq!(quic.get("/").status, 200);
            }
            open.push((client, quic));
        }
        let held = |name: &str, labels: &str| {
            let name = format!("gannet_held_bytes{name}{{account=\"log\"{labels}}}");
            metric(&place.server, &name)
        };
        let (now, most) = (held("", ""), 2 * CONNECTIONS * 2_048);
        assert!((2 * CONNECTIONS * 1_024..=most).contains(&now), "{now}");
        let [peak, bound] = ["_peak", "_bound"].map(|name| held(name, ",per=\"connection\""));
        assert!(1_024 <= peak && peak <= bound, "{peak}");
        for line in logged(&log, 2 * CONNECTIONS * REQUESTS) {
            let (_, rest) = line.split_once("\"tls_client\":\"").expect("a name");
            let (name, _) = rest.split_once("...\",").expect("a mark");
            // JSON doubles the backslash and escapes the quotation mark.
            let name = name.replace("\\\\", "\\").replace("\\\"", "\"");
            assert!(name.starts_with("CN=name \\\"name"), "{name}");
            assert!((1_000..=NAME_MAX).contains(&name.len()), "{}", name.len());
        }
    });
}

/// A request that arrives with the last flight of the handshake is not answered before the client's
/// certificate was verified, nor is its session resumed later.
#[test]
fn every_connection_shows_the_certificate() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let place = Place::new(engine, &site);
        let config = place.config("http/1.1", place.good());
        let h3 = place.config("h3", place.good());
        for _ in 0..3 {
            let mut client = Client::tls(place.server.address(), connection(&config, "localhost"));
            client.get("/").expect(200);
            let kind = client.secure().conn.handshake_kind();
            assert_eq!(kind, Some(HandshakeKind::Full));
            let mut quic = Quic::start(place.server.address(), &h3, "localhost");
            quic.shake();
            quic.open_uni(&h3::control(&[]));
            assert_eq!(quic.get("/").status, 200);
        }
        assert_eq!(place.count("accepted"), 6);
        let resumed = "gannet_tls_handshakes_total{kind=\"resumed\"}";
        assert_eq!(metric(&place.server, resumed), 0);
    });
}

#[test]
fn authorities_are_replaced_while_it_serves() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let mut place = Place::new(engine, &site);
        let mut old = place.client(place.good());
        old.get("/").expect(200);
        assert!(place.tells_end_of("clients"));
        let next = Authority::named("next");
        place.clients.replace("root.pem", next.pem());
        place.server.signal(Signal::HUP);
        let line = place.server.next_line();
        assert_eq!(line.as_deref(), Some("certificates reloaded"));
        assert!(place.tells_end_of("next") && !place.tells_end_of("clients"));
        is_refused(place.client(place.good()), "UnknownCA");
        is_refused_h3(place.quic(place.good()), 48);
        let new = || Some(next.issued_to_client(KeyKind::Rsa));
        place.client(new()).get("/").expect(200);
        // Its handshake was valid.
        old.get("/about").expect(200);
        place.clients.replace("root.pem", "no certificate");
        // Without a signal.
        let line = place.server.next_error_line().expect("a line");
        assert!(line.contains("not a PEM file"), "{line}");
        assert!(line.contains("the old certificates stay in use"), "{line}");
        place.client(new()).get("/").expect(200);
        is_refused(place.client(None), "CertificateRequired");
    });
}

/// Many clients at once send the longest certificates that a handshake may have, and parts of ones
/// that never end.
#[test]
fn long_certificates_have_a_bound() {
    const FLOOD: usize = 40;
    let site = Folder::site();
    on_both_engines(|engine| {
        let place = Place::new(engine, &site);
        let long = place.clients.issued_with(KeyKind::P256, &[], |params| {
            let filler = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 1], vec![4; 60_000]);
            params.custom_extensions.push(filler);
        });
        let config = place.config("http/1.1", Some(long.clone()));
        let unfinished: Vec<_> = (0..FLOOD)
            .map(|_| {
                let mut client = connection(&config, "localhost");
                let mut socket = TcpStream::connect(place.server.address()).unwrap();
                client.write_tls(&mut socket).unwrap();
                while client.is_handshaking() {
                    client.read_tls(&mut socket).unwrap();
                    client.process_new_packets().unwrap();
                }
                let mut flight = Vec::new();
                while client.wants_write() {
                    client.write_tls(&mut flight).unwrap();
                }
                // All but the last record of the certificate, at least.
                socket.write_all(&flight[..45_000]).unwrap();
                socket
            })
            .collect();
        for _ in 0..FLOOD / 4 {
            is_refused(place.client(Some(long.clone())), "BadCertificate");
            is_refused_h3(place.quic(Some(long.clone())), 42);
            place.client(place.good()).get("/").expect(200);
        }
        let held = |name: &str| {
            let labels = "{account=\"input\",per=\"connection\"}";
            let name = format!("gannet_held_bytes_{name}{labels}");
            metric(&place.server, &name)
        };
        assert!(held("peak") >= 45_000, "{}", held("peak"));
        assert!(held("peak") <= held("bound"), "{}", held("peak"));
        assert_eq!(place.count("refused"), FLOOD as u64 / 2);
        drop(unfinished);
        place.client(place.good()).get("/").expect(200);
    });
}

#[test]
fn addresses_in_clear_text_are_for_everybody() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let authority = Authority::new();
        let file = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
        let ca = authority.file();
        let flags = [
            ["--listen", "http://127.0.0.1:0"],
            ["--listen", "https://127.0.0.1:0"],
            ["--tls-cert", text(&file)],
            ["--tls-client-ca", text(&ca)],
        ];
        let mut serve = command();
        serve.args(["--engine", engine.name()]);
        serve.args(flags.as_flattened()).arg(site.path());
        let server = Gannet::start(&mut serve);
        let address = |scheme: &str| {
            let urls = server.urls();
            let url = urls.iter().find_map(|url| url.strip_prefix(scheme));
            let address = url.expect("printed at start").trim_end_matches('/');
            address.parse().expect("an address")
        };
        Client::connect(address("http://")).get("/").expect(200);
        let config = authority.client(Abilities::default());
        let client = Client::tls(address("https://"), connection(&config, "localhost"));
        is_refused(client, "CertificateRequired");
    });
}

#[test]
fn mistakes_with_authorities_are_named() {
    let site = Folder::site();
    let authority = Authority::new();
    let issued = authority.issued(KeyKind::P256, &["localhost"]);
    let key = site.write("key.pem", &issued.key);
    let pair = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    let (pair, key) = (text(&pair), text(&key));
    let check = |flags: &[&str], status: i32, part: &str| {
        let last = text(site.path());
        let ended = gannet([&["--port", "0"], flags, &[last]].concat());
        assert_eq!(ended.status, Some(status), "{flags:?}: {}", ended.err);
        assert!(ended.err.contains(part), "{flags:?}: {}", ended.err);
    };
    let with = |ca| ["--tls-cert", pair, "--tls-client-ca", ca];
    let found = "no certificate of an authority in the file (found a private key)\nhelp: ";
    check(&with(key), 1, found);
    check(&with("/no/such.pem"), 1, "cannot read '/no/such.pem'");
    check(&with(pair), 1, "is not one of an authority\nhelp: ");
    let judged = gannet([&["doctor"], &with(pair)[..], &[text(site.path())]].concat());
    assert_eq!(judged.status, Some(1));
    let said = judged.text();
    assert!(said.contains("bad   certificate"), "{said}");
    assert!(said.contains("is not one of an authority"), "{said}");
    let alone = "--tls-client-ca has no effect without HTTPS\nhelp: ";
    check(&["--tls-client-ca", key], 2, alone);
    for demand in ["required", "optional"] {
        let flag = ["--tls-client-auth", demand];
        let why = "--tls-client-auth has no effect without HTTPS\nhelp: ";
        check(&flag, 2, why);
        let why =
            "--tls-client-auth is given without --tls-client-ca\nhelp: add --tls-client-ca FILE";
        let flags = [&["--tls-cert", pair], &flag[..]].concat();
        check(&flags, 2, why);
        let flags = [&["--check-config"], &flags[..]].concat();
        check(&flags, 2, why);
        let early = [&with(pair)[..], &flag, &["--early-data"]].concat();
        let why =
            "--early-data has no effect with --tls-client-ca, which resumes no sessions\nhelp: ";
        check(&early, 2, why);
    }
    let flags = [&with(pair)[..], &["--tls-client-auth", "perhaps"]].concat();
    check(&flags, 2, "not one of required, optional");
}

#[test]
fn what_clients_are_asked_for_is_said_before_the_start() {
    let site = Folder::site();
    let (authority, clients) = (Authority::new(), Authority::named("clients"));
    let pair = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    let ca = clients.file();
    let flags = ["--tls-cert", text(&pair), "--tls-client-ca", text(&ca)];
    for (more, expect) in [
        (&[][..], "clients need a certificate of: CN=clients"),
        (
            &["--tls-client-auth", "optional"],
            "clients may show a certificate of: CN=clients",
        ),
    ] {
        let given = [&flags[..], more, &["--port", "0", text(site.path())]].concat();
        let checked = gannet([&["--check-config"], &given[..]].concat());
        let said = checked.text();
        assert!(said.contains(&format!("note     {expect}\n")), "{said}");
        let judged = gannet([&["doctor"], &given[..]].concat());
        let said = judged.text();
        let is_it = |line: &str| line.starts_with("ok    certificate ") && line.ends_with(expect);
        assert!(said.lines().any(is_it), "{said}");
    }
}

#[test]
fn curl_and_openssl_show_their_certificates() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let place = Place::new(engine, &site);
        let own = place.clients.issue("own.pem", KeyKind::Rsa, &["client"]);
        let (root, port) = (place.authority.file(), place.server.address().port());
        if tool("curl", &["--version"]) {
            let curl = |more: &[&str]| {
                let mut command = Command::new("curl");
                command.args(["-sS", "--max-time", "60", "-o", "/dev/null"]);
                command.args(["-w", "%{http_code}", "--cacert"]).arg(&root);
                command.arg(format!("https://127.0.0.1:{port}/")).args(more);
                let output = command.output().expect("it was found");
                String::from_utf8_lossy(&output.stdout).into_owned()
            };
            assert_eq!(curl(&["--cert", text(&own)]), "200");
            assert_eq!(curl(&["--cert", text(&own), "--tls-max", "1.2"]), "200");
            assert_eq!(curl(&[]), "000");
        }
        if tool("openssl", &["version"]) {
            for version in ["-tls1_3", "-tls1_2"] {
                let mut command = Command::new("openssl");
                command.args(["s_client", "-connect", &format!("127.0.0.1:{port}")]);
                command.args([version, "-ign_eof", "-CAfile"]).arg(&root);
                command.arg("-cert").arg(&own).arg("-key").arg(&own);
                let request = head("GET", "/", &["connection: close"]);
                let said = answered(&mut command, request.as_bytes());
                assert!(said.contains("HTTP/1.1 200 OK"), "{said}");
                // The authority is named, so that a browser offers the right certificates.
                assert!(
                    said.contains("CN=clients") || said.contains("CN = clients"),
                    "{said}"
                );
            }
        }
    });
}

/// One that shows none is served, over TLS 1.3 and 1.2, and one that shows a foreign one is not.
#[test]
fn curl_may_leave_an_optional_certificate_out() {
    let site = Folder::site();
    on_both_engines(|engine| {
        if !tool("curl", &["--version"]) {
            return;
        }
        let optional = Place::with(engine, &site, &["--tls-client-auth", "optional"]);
        let own = optional
            .clients
            .issue("own.pem", KeyKind::P256, &["client"]);
        let other = Authority::named("others");
        let foreign = other.issue("foreign.pem", KeyKind::P256, &["client"]);
        let port = optional.server.address().port();
        let root = optional.authority.file();
        for version in ["1.2", "1.3"] {
            let curl = |more: &[&str]| {
                let mut command = Command::new("curl");
                command.args(["-sS", "--max-time", "60", "-o", "/dev/null"]);
                command.args(["--tls-max", version, "-w", "%{http_code}", "--cacert"]);
                command.arg(&root).args(more);
                command.arg(format!("https://127.0.0.1:{port}/"));
                let output = command.output().expect("it was found");
                String::from_utf8_lossy(&output.stdout).into_owned()
            };
            assert_eq!(curl(&[]), "200");
            assert_eq!(curl(&["--cert", text(&own)]), "200");
            assert_eq!(curl(&["--cert", text(&foreign)]), "000");
        }
        assert_eq!(optional.count("missing"), 2);
        assert_eq!(optional.count("accepted"), 2);
        assert_eq!(optional.count("refused"), 2);
    });
}

/// The output of a program with this input.
fn answered(command: &mut Command, input: &[u8]) -> String {
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().expect("it was found");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input).expect("it reads");
    let output = child.wait_with_output().expect("ours");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn tls12_can_be_left_out() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let authority = Authority::new();
        let file = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
        let flags = ["--tls-cert", text(&file), "--tls-min", "1.3"];
        let server = engine.serve(site.path(), &flags);
        let config = authority.client(Abilities::default());
        let mut client = Client::tls(server.address(), connection(&config, "localhost"));
        client.get("/").expect(200);
        let version = client.secure().conn.protocol_version();
        assert_eq!(version, Some(ProtocolVersion::TLSv1_3));
        let config = authority.client(Abilities::only(
            suites::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        ));
        let client = Client::tls(server.address(), connection(&config, "localhost"));
        is_refused(client, "ProtocolVersion");
    });
}

#[test]
fn http2_can_be_left_out() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let authority = Authority::new();
        let file = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
        let flags = ["--tls-cert", text(&file), "--http=1,3"];
        let server = engine.serve(site.path(), &flags);
        let client = |alpn: &[&str]| {
            let config = authority.client(Abilities {
                alpn: alpn.iter().map(|name| name.as_bytes().to_vec()).collect(),
                ..Abilities::default()
            });
            Client::tls(server.address(), connection(&config, "localhost"))
        };
        let mut both = client(&["h2", "http/1.1"]);
        both.get("/").expect(200);
        let chosen = both.secure().conn.alpn_protocol().map(<[u8]>::to_vec);
        assert_eq!(chosen.as_deref(), Some(&b"http/1.1"[..]));
        is_refused(client(&["h2"]), "NoApplicationProtocol");
        let mut quic = Quic::begin(server.address(), &authority);
        assert_eq!(quic.get("/").status, 200);

        let clear = engine.serve(site.path(), &["--http=1"]);
        get(&clear, "/").expect(200);
        // The preface with which a client begins that knows what the server speaks: in one piece, and
        // in two.
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        for cut in [preface.len(), 5] {
            let mut client = Client::new(&clear);
            client.send(&preface[..cut]);
            client.send(&preface[cut..]);
            let answer = client.head();
            assert_eq!(answer.status, 505, "{answer:?}");
            assert_eq!(client.rest().1, End::Closed);
        }
    });
}

#[test]
fn http1_can_be_left_out() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let authority = Authority::new();
        let file = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
        let server = engine.serve(site.path(), &["--tls-cert", text(&file), "--http=2,3"]);
        let client = |alpn: &[&str]| {
            let config = authority.client(Abilities {
                alpn: alpn.iter().map(|name| name.as_bytes().to_vec()).collect(),
                ..Abilities::default()
            });
            Client::tls(server.address(), connection(&config, "localhost"))
        };
        is_refused(client(&["http/1.1"]), "NoApplicationProtocol");
        // Who does not negotiate speaks HTTP/1.
        client(&[]).get("/").expect(505);
        let mut quic = Quic::begin(server.address(), &authority);
        assert_eq!(quic.get("/").status, 200);

        let clear = engine.serve(site.path(), &["--http=2"]);
        for method in ["GET", "HEAD", "OPTIONS"] {
            let mut client = Client::new(&clear);
            client.send(format!("{method} / HTTP/1.1\r\nhost: a.test\r\n\r\n"));
            assert_eq!(client.response_to(method).status, 505, "{method}");
        }
        Peer::new(&clear).get("/").expect(200);
    });
}
