//! Certificates that come while a server runs: into the folder of `gannet acme`, and because somebody asks
//! for a host.

use std::fs::{self, Permissions};
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use gannet_testkit::client::{Client, head, metric};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::until;
use gannet_testkit::quic::Quic;
use gannet_testkit::tls::{Abilities, Authority, Issued, KeyKind, connection};
use gannet_testkit::{Folder, gannet};
use rustls::ClientConfig;

/// Looks at a handshake that finds no answer: more than one takes that is refused.
const LOOKS_WHILE_HELD: usize = 50;

/// As in the server's limits.
const HELD_HELLOS_OF_CLIENT_MAX: usize = 32;

/// What a client sends besides its hello, for the sake of middleboxes (RFC 8446 section D.4).
const BEHIND_HELLO: &[u8] = &[20, 3, 3, 0, 1, 1];

fn put(folder: &Folder, path: &str, issued: &Issued) {
    let new = folder.write(format!("{path}.new"), issued.pem());
    // gannet warns about keys that others can read.
    fs::set_permissions(new, Permissions::from_mode(0o600)).expect("ours");
    fs::rename(folder.join(format!("{path}.new")), folder.join(path)).expect("renamed");
}

/// An ACME server that answers nothing.
struct Silent {
    listener: TcpListener,
    url: String,
}

impl Silent {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("ours");
        let url = format!("http://{}/dir", listener.local_addr().expect("bound"));
        Self { listener, url }
    }

    /// Waits until somebody comes.
    fn is_asked(&self) {
        until("it is asked", || self.listener.accept().is_ok());
    }
}

/// Why a server shows no certificate for a name that a client takes.
fn shown(address: SocketAddr, config: &Arc<ClientConfig>, name: &str) -> Result<(), String> {
    let mut client = Client::tls(address, connection(config, name));
    match client.try_send(head("GET", "/", &[])) {
        Ok(()) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn certificates_in_the_folder_are_served_as_they_come() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let state = Folder::new();
        fs::create_dir(state.join("certificates")).expect("made");
        // What is damaged at the start is waited for.
        state.write("certificates/damaged.test.pem", "half of a certificate");
        let folder = state.path().to_str().expect("UTF-8");
        let mut server = engine.serve(site.path(), &["--acme-dir", folder]);
        let lines = server.start_lines().join("\n");
        assert!(
            lines.contains("damaged.test.pem': cannot be used"),
            "{lines}"
        );
        let authority = Authority::new();
        let config = authority.client(Abilities::default());
        let address = server.address();
        for host in ["a.test", "b.test", "damaged.test", "localhost"] {
            let issued = authority.issued(KeyKind::P256, &[host]);
            put(&state, &format!("certificates/{host}.pem"), &issued);
            let line = server.next_line();
            assert_eq!(line.as_deref(), Some("certificates reloaded"), "{host}");
            assert_eq!(shown(address, &config, host), Ok(()), "{host}");
        }
        // Nobody knows this name: the certificate is that of another host.
        let why = shown(address, &config, "other.test").expect_err("refused");
        assert!(why.contains("not valid for name"), "{why}");
        // What is gone or damaged later stays in service.
        fs::remove_file(state.join("certificates/a.test.pem")).expect("removed");
        let line = server.next_error_line().expect("a line");
        assert!(line.contains("a certificate in use is gone"), "{line}");
        state.write("certificates/b.test.pem.new", "half of a certificate");
        let file = state.join("certificates/b.test.pem");
        fs::rename(state.join("certificates/b.test.pem.new"), file).expect("renamed");
        let line = server.next_error_line().expect("help");
        assert!(line.contains("help:"), "{line}");
        let line = server.next_error_line().expect("a line");
        assert!(line.contains("b.test.pem': cannot be used"), "{line}");
        for host in ["a.test", "b.test"] {
            assert_eq!(shown(address, &config, host), Ok(()), "{host}");
        }
        let mut quic = Quic::begin(address, &authority);
        assert_eq!(quic.get("/").status, 200);
    });
}

#[test]
fn a_name_that_is_ordered_never_gets_another_hosts_certificate() {
    let site = Folder::site();
    let authority = Authority::new();
    let file = authority.issue("site.pem", KeyKind::P256, &["localhost"]);
    on_both_engines(|engine| {
        let ca = Silent::start();
        let state = Folder::new();
        let flags = [
            "--acme",
            "a.test",
            "--acme-dir",
            state.path().to_str().expect("UTF-8"),
            "--acme-server",
            &ca.url,
            "--tls-cert",
            file.to_str().expect("UTF-8"),
        ];
        let server = engine.serve(site.path(), &flags);
        let config = authority.client(Abilities::default());
        let shown = |name: &str| shown(server.address(), &config, name);
        assert_eq!(shown("localhost"), Ok(()));
        let why = shown("a.test").expect_err("refused");
        assert!(why.contains("UnrecognisedName"), "{why}");
        let why = shown("other.test").expect_err("refused");
        assert!(why.contains("not valid for name"), "{why}");
        let mut quic = Quic::start(server.address(), &config, "a.test");
        assert_ne!(quic.failed_with(), 0);
        // Nobody orders the other file.
        drop(server);
        let mut wrong = flags;
        wrong[7] = "nowhere.pem";
        let all = wrong.iter().copied().chain(site.path().to_str());
        gannet(all).failure_with(1, "cannot read 'nowhere.pem'");
    });
}

/// A folder of sites with these hosts.
fn sites(hosts: &[&str]) -> Folder {
    let sites = Folder::new();
    for host in hosts {
        sites.write(format!("{host}/index.html"), host);
    }
    sites
}

#[test]
fn hosts_of_sites_get_certificates_when_they_are_asked_for() {
    on_both_engines(|engine| {
        let sites = sites(&["a.test", "b.test", "_default"]);
        let ca = Silent::start();
        let state = Folder::new();
        let folder = state.path().to_str().expect("UTF-8");
        let flags = ["--hosts", "--acme", "on-demand", "--acme-dir", folder];
        let flags = [&flags[..], &["--acme-server", &ca.url]].concat();
        let server = engine.serve(sites.path(), &flags);
        let authority = Authority::new();
        let config = authority.client(Abilities::default());
        let shown = |name: &str| shown(server.address(), &config, name);
        // There is no site for it, and nothing to show instead.
        let why = shown("other.test").expect_err("refused");
        assert!(why.contains("UnrecognisedName"), "{why}");
        let come = |host: &str| {
            let issued = authority.issued(KeyKind::P256, &[host]);
            put(&state, &format!("certificates/{host}.pem"), &issued);
        };
        thread::scope(|scope| {
            let first = scope.spawn(|| shown("a.test"));
            // The process beside the server was told.
            ca.is_asked();
            come("a.test");
            assert_eq!(first.join().expect("no panic"), Ok(()));
        });
        assert_eq!(shown("a.test"), Ok(()));
        // Over HTTP/3 nobody is held.
        let mut quic = Quic::start(server.address(), &config, "b.test");
        assert_ne!(quic.failed_with(), 0);
        come("b.test");
        until("it is served", || shown("b.test").is_ok());
        // A name that no site has gets no other certificate; a site that comes later is known.
        let why = shown("new.test").expect_err("refused");
        assert!(why.contains("UnrecognisedName"), "{why}");
        sites.write("new.test/index.html", "new");
        let tries = AtomicUsize::new(0);
        thread::scope(|scope| {
            // Until the folder is read again, it is a name that no site has.
            let first = scope.spawn(|| {
                loop {
                    tries.fetch_add(1, Ordering::SeqCst);
                    match shown("new.test") {
                        Err(why) if why.contains("UnrecognisedName") => thread::yield_now(),
                        shown => return shown,
                    }
                }
            });
            // The ACME server has answered nothing: it is left alone for a while.
            let (mut before, mut same) = (0, 0);
            until("it is held", || {
                let now = tries.load(Ordering::SeqCst);
                same = if now == before { same + 1 } else { 0 };
                before = now;
                same == LOOKS_WHILE_HELD
            });
            come("new.test");
            assert_eq!(first.join().expect("no panic"), Ok(()));
        });
    });
}

#[test]
fn who_holds_handshakes_leaves_places_for_others() {
    let names: Vec<String> = (0..2 * HELD_HELLOS_OF_CLIENT_MAX)
        .map(|it| format!("h{it}.many.test"))
        .collect();
    let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
    let sites = sites(&hosts);
    on_both_engines(|engine| {
        let ca = Silent::start();
        let state = Folder::new();
        let folder = state.path().to_str().expect("UTF-8");
        let flags = ["--hosts", "--acme", "on-demand", "--acme-dir", folder];
        let more = [
            "--acme-server",
            &ca.url,
            "--workers",
            "1",
            "--metrics",
            "127.0.0.1:0",
        ];
        let flags = [&flags[..], &more].concat();
        let server = engine.serve(sites.path(), &flags);
        let authority = Authority::new();
        let config = authority.client(Abilities::default());
        let greet = |name: &str, source: [u8; 4]| {
            let client = Client::connect_from(source.into(), server.address());
            let mut client = client.over_tls(connection(&config, name));
            let tls = client.secure();
            tls.conn.write_tls(&mut tls.sock).expect("the hello fits");
            tls.sock.write_all(BEHIND_HELLO).expect("it fits");
            client
        };
        let own = |name: &String| greet(name, [127, 0, 0, 1]);
        let (first, further) = names.split_at(HELD_HELLOS_OF_CLIENT_MAX);
        let mut held: Vec<Client> = first.iter().map(own).collect();
        // Those after them are refused at once, as are names of no site.
        for name in further {
            let why = shown(server.address(), &config, name).expect_err("refused");
            assert!(why.contains("UnrecognisedName"), "{why}");
        }
        for number in 0..100 {
            let name = format!("unknown{number}.test");
            let why = shown(server.address(), &config, &name).expect_err("refused");
            assert!(why.contains("UnrecognisedName"), "{why}");
        }
        // Whoever is elsewhere has a place, and who goes makes room, however it ends.
        held.push(greet(&names[0], [127, 0, 0, 2]));
        for (number, client) in held.drain(1..HELD_HELLOS_OF_CLIENT_MAX).enumerate() {
            if number % 2 == 0 {
                client.reset();
            }
        }
        until("their end is noticed", || {
            metric(&server, "gannet_connections") == 2
        });
        held.extend(first.iter().skip(1).map(own));
        let issued = authority.issued(KeyKind::P256, &["*.many.test"]);
        put(&state, "certificates/any.many.test.pem", &issued);
        // There is no site for what they ask for.
        for client in &mut held {
            client.get("/").expect(421);
        }
        assert_eq!(shown(server.address(), &config, &names[0]), Ok(()));
    });
}

#[test]
fn on_demand_needs_a_folder_of_hosts() {
    let site = Folder::site();
    let path = site.path().to_str().expect("UTF-8");
    let ended = gannet(["--acme", "on-demand", path]);
    let ended = ended.failure_with(2, "--acme on-demand has no effect without --hosts");
    assert!(
        ended.err.contains("name each host with --acme HOST"),
        "{}",
        ended.err
    );
    let ended = gannet([
        "--acme",
        "on-demand",
        "--hosts",
        "--unknown-host=ignore",
        path,
    ]);
    ended.failure_with(
        2,
        "--acme on-demand has no effect with --unknown-host ignore",
    );
}

#[test]
fn the_health_check_tells_of_certificates() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let state = Folder::new();
        let authority = Authority::new();
        let expired = authority.issued_for(KeyKind::P256, &["old.test"], (2020, 2021));
        put(&state, "certificates/old.test.pem", &expired);
        let good = authority.issued(KeyKind::P256, &["good.test"]);
        put(&state, "certificates/good.test.pem", &good);
        let folder = state.path().to_str().expect("UTF-8");
        let awaited = state.join("certificates/awaited.test.pem");
        let flags = [
            "--acme-dir",
            folder,
            "--tls-cert",
            awaited.to_str().expect("UTF-8"),
        ];
        let flags = [&flags[..], &["--metrics", "127.0.0.1:0"]].concat();
        let server = engine.serve(site.path(), &flags);
        let mut client = Client::connect(server.metrics().expect("enabled"));
        let answer = client.get("/health").expect(200);
        let text = answer.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..2],
            ["ok", "certificate of 'awaited.test': awaited"],
            "{text}"
        );
        assert!(
            lines[2].starts_with("certificate of 'old.test': expired on "),
            "{text}"
        );
        assert_eq!(lines.len(), 3, "{text}");
    });
}
