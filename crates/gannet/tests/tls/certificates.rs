//! Certificates: selection, reloading, development certificates, and mistakes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use rustls::crypto::aws_lc_rs;

use gannet_testkit::client::{Client, head};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::tls::{Abilities, Authority, KeyKind, Secure, connection};
use gannet_testkit::{Folder, Signal, gannet};

#[test]
fn the_certificate_is_chosen_by_name() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let authority = Authority::new();
        let names: [&[&str]; 3] = [&["first.test"], &["second.test"], &["*.wild.test"]];
        let files: Vec<_> = names
            .iter()
            .map(|names| authority.issue(&format!("{}.pem", names[0]), KeyKind::P256, names))
            .collect();
        let flags: Vec<&str> = files
            .iter()
            .flat_map(|file| ["--tls-cert", file.to_str().expect("UTF-8")])
            .collect();
        let server = engine.serve(site.path(), &flags);
        let config = authority.client(Abilities::default());
        for name in ["first.test", "second.test", "a.wild.test"] {
            let mut client = Client::tls(server.address(), connection(&config, name));
            client.get("/").expect(200);
        }
        // Without a server name, or with an unknown one, the first is sent. The client notices.
        let silent = authority.client(Abilities {
            sni: false,
            ..Abilities::default()
        });
        let mut client = Client::tls(server.address(), connection(&silent, "first.test"));
        client.get("/").expect(200);
        let mut client = Client::tls(server.address(), connection(&config, "other.test"));
        let refused = client.try_send(head("GET", "/", &[]));
        assert!(refused.is_err(), "the certificate is for another name");
    });
}

#[test]
fn certificates_are_swapped_under_load_and_nobody_notices() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &[]);
        let mut server = secure.server;
        let before = secure
            .authority
            .issued(KeyKind::P256, &["localhost", "old.test"]);
        secure.authority.replace("site.pem", &before.pem());
        server.signal(Signal::HUP);
        assert_eq!(server.next_line().as_deref(), Some("certificates reloaded"));
        let address = server.address();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let load = |name: &'static str| {
                let (config, is_over) = (&secure.config, &is_over);
                scope.spawn(move || {
                    let mut count = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let mut client = Client::tls(address, connection(config, name));
                        client.get("/").expect(200);
                        client.get("/about").expect(200);
                        count += 1;
                    }
                    count
                })
            };
            let clients = [load("localhost"), load("localhost")];
            let mut old = Client::tls(address, connection(&secure.config, "old.test"));
            old.get("/").expect(200);
            for round in 0..4 {
                let kind = [KeyKind::P384, KeyKind::Ed25519, KeyKind::Rsa, KeyKind::P256][round];
                let next = secure.authority.issued(kind, &["localhost", "new.test"]);
                secure.authority.replace("site.pem", &next.pem());
                server.signal(Signal::HUP);
                let line = server.next_line();
                assert_eq!(line.as_deref(), Some("certificates reloaded"));
            }
            // An existing connection survives, and an invalid file has no effect.
            old.get("/").expect(200);
            secure.authority.replace("site.pem", "no certificate");
            server.signal(Signal::HUP);
            let line = server.next_error_line().expect("a line");
            assert!(line.contains("the old certificates stay in use"), "{line}");
            let mut new = Client::tls(address, connection(&secure.config, "new.test"));
            new.get("/").expect(200);
            is_over.store(true, Ordering::Relaxed);
            for client in clients {
                assert!(client.join().expect("no failure") > 0);
            }
        });
    });
}

#[test]
fn a_changed_file_is_noticed_without_a_signal() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let mut secure = Secure::serve(engine, site.path(), &[]);
        let next = secure.authority.issued(KeyKind::P256, &["later.test"]);
        secure.authority.replace("site.pem", &next.pem());
        let line = secure.server.next_line();
        assert_eq!(line.as_deref(), Some("certificates reloaded"));
        secure
            .connect_with(&secure.config, "later.test")
            .get("/")
            .expect(200);
    });
}

#[test]
fn a_certificate_for_development_is_made_and_can_be_trusted() {
    let site = Folder::site();
    let home = Folder::new();
    let with_home = |command: &mut std::process::Command| {
        command.env("XDG_DATA_HOME", home.path());
    };
    let mut export = gannet_testkit::command();
    with_home(export.arg("cert"));
    let authority = gannet_testkit::run(&mut export).success();
    let pem = authority.text().to_owned();
    assert!(pem.starts_with("-----BEGIN CERTIFICATE-----"), "{pem}");
    let mut serve = gannet_testkit::command();
    serve.args(["--port", "0", "--tls"]).arg(site.path());
    with_home(&mut serve);
    let server = gannet_testkit::Gannet::start(&mut serve);
    assert!(
        server.urls()[0].starts_with("https://"),
        "{:?}",
        server.urls()
    );
    let lines = server.start_lines().join("\n");
    assert!(lines.contains("SHA-256 "), "{lines}");

    let mut roots = rustls::RootCertStore::empty();
    let der =
        <rustls::pki_types::CertificateDer as rustls::pki_types::pem::PemObject>::from_pem_slice(
            pem.as_bytes(),
        );
    roots.add(der.expect("PEM")).expect("a certificate");
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let config = Arc::new(config);
    for name in ["localhost", "127.0.0.1"] {
        let mut client = Client::tls(server.address(), connection(&config, name));
        client.get("/").expect(200);
    }
}

#[test]
fn mistakes_are_named_before_anything_is_served() {
    let site = Folder::site();
    let authority = Authority::new();
    let one = authority.issued(KeyKind::P256, &["localhost"]);
    let other = authority.issued(KeyKind::P256, &["localhost"]);
    let chain = site.write("chain.pem", one.chain);
    let wrong = site.write("wrong.pem", other.key);
    let run = |flags: &[&str]| {
        let site = site.path().to_str().expect("UTF-8");
        gannet([&["--port", "0"], flags, &[site]].concat())
    };
    let path = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    let (chain, wrong) = (path(&chain), path(&wrong));
    let check = |flags: &[&str], status: i32, part: &str| {
        let ended = run(flags);
        assert_eq!(ended.status, Some(status), "{flags:?}: {}", ended.err);
        assert!(ended.err.contains(part), "{flags:?}: {}", ended.err);
        assert!(ended.err.contains("help: "), "{flags:?}: {}", ended.err);
    };
    check(
        &["--tls-cert", &chain, "--tls-key", &wrong],
        1,
        "does not belong to",
    );
    check(
        &["--tls-cert", &chain],
        1,
        "a certificate and no private key",
    );
    check(
        &["--tls-cert", "/no/such.pem"],
        1,
        "cannot read '/no/such.pem'",
    );
    check(
        &["--tls-key", &wrong],
        2,
        "--tls-key is given without --tls-cert",
    );
    check(&["--hsts"], 2, "--hsts has no effect without HTTPS");
    let two = [
        "--tls-cert",
        &chain,
        "--tls-cert",
        &chain,
        "--tls-key",
        &wrong,
    ];
    check(
        &two,
        2,
        "there are 2 certificates (--tls-cert) and 1 key (--tls-key)",
    );
}
