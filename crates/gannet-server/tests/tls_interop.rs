//! Third-party clients: OpenSSL, curl, Go and GnuTLS, where installed.

mod tls_support;

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use gannet_server::tls::config::Options;
use gannet_server::tls::handshake::HandshakeKind;
use gannet_testkit::tool;
use tls_support::server::{Server, Visit, body};
use tls_support::*;

/// A directory of the test with the authority's certificate.
struct Place {
    path: PathBuf,
    authority: Authority,
}

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gannet-tls-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        let authority = Authority::new();
        std::fs::write(path.join("ca.pem"), authority.pem()).unwrap();
        Self { path, authority }
    }

    fn file(&self, name: &str) -> String {
        self.path.join(name).to_str().unwrap().to_owned()
    }

    fn server(&self, kind: KeyKind) -> Server {
        let issued = self.authority.issued(kind, &["localhost", "127.0.0.1"]);
        Server::start(store(&issued, &Options::default()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn run(mut command: Command, input: &[u8]) -> Output {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

const KINDS: [KeyKind; 3] = [KeyKind::P256, KeyKind::Rsa, KeyKind::Ed25519];

#[test]
fn openssl_speaks_with_every_suite_and_group() {
    if !tool("openssl", &["version"]) {
        return;
    }
    let place = Place::new("openssl");
    let tls13 = [
        ("TLS_AES_128_GCM_SHA256", "AES-128-GCM"),
        ("TLS_AES_256_GCM_SHA384", "AES-256-GCM"),
        ("TLS_CHACHA20_POLY1305_SHA256", "ChaCha20-Poly1305"),
    ];
    let tls12 = [
        ("AES128-GCM-SHA256", "AES-128-GCM"),
        ("AES256-GCM-SHA384", "AES-256-GCM"),
        ("CHACHA20-POLY1305", "ChaCha20-Poly1305"),
    ];
    for kind in KINDS {
        let server = place.server(kind);
        let mut expected = Vec::new();
        let mut ask = |version: &str, suite: [&str; 2], group: &str, cipher: &str| {
            let mut command = s_client(&server, &place);
            command.args(suite).args(["-groups", group]);
            command.arg(if version == "TLSv1.3" {
                "-tls1_3"
            } else {
                "-tls1_2"
            });
            let request = b"GET /40000 HTTP/1.1\r\nConnection: close\r\n\r\n";
            let output = run(command, request);
            let text = String::from_utf8_lossy(&output.stdout);
            let whole = String::from_utf8(body(40_000)).unwrap();
            assert!(
                text.contains(&whole),
                "{suite:?} {}",
                String::from_utf8_lossy(&output.stderr)
            );
            let group = if group == "P-256" {
                "secp256r1"
            } else {
                "x25519"
            };
            expected.push((version.to_owned(), cipher.to_owned(), group.to_owned()));
        };
        for (suite, cipher) in tls13 {
            ask("TLSv1.3", ["-ciphersuites", suite], "X25519", cipher);
        }
        ask(
            "TLSv1.3",
            ["-ciphersuites", tls13[0].0],
            "P-256",
            tls13[0].1,
        );
        for (suite, cipher) in tls12 {
            let sign = if kind == KeyKind::Rsa { "RSA" } else { "ECDSA" };
            let suite = format!("ECDHE-{sign}-{suite}");
            ask("TLSv1.2", ["-cipher", &suite], "X25519:P-256", cipher);
        }
        let visits: Vec<Visit> = server.stop().into_iter().map(Result::unwrap).collect();
        let got: Vec<_> = visits
            .into_iter()
            .map(|visit| (visit.version, visit.cipher, visit.group))
            .collect();
        assert_eq!(got, expected, "{kind:?}");
    }
}

/// `openssl s_client` that verifies the certificate.
fn s_client(server: &Server, place: &Place) -> Command {
    let mut command = Command::new("openssl");
    let address = server.address.to_string();
    command.args(["s_client", "-connect", &address, "-servername", "localhost"]);
    command.args([
        "-CAfile",
        &place.file("ca.pem"),
        "-verify_return_error",
        "-quiet",
        "-ign_eof",
    ]);
    command
}

#[test]
fn openssl_resumes() {
    if !tool("openssl", &["version"]) {
        return;
    }
    let place = Place::new("resume");
    let server = place.server(KeyKind::P256);
    let session = place.file("session");
    for version in ["-tls1_3", "-tls1_2"] {
        for direction in ["-sess_out", "-sess_in"] {
            let mut command = s_client(&server, &place);
            command.args([version, direction, &session]);
            run(command, b"GET /10 HTTP/1.1\r\nConnection: close\r\n\r\n");
        }
    }
    let kinds: Vec<_> = server
        .stop()
        .into_iter()
        .map(|visit| visit.unwrap().kind)
        .collect();
    assert_eq!(
        kinds,
        [
            HandshakeKind::Full,
            HandshakeKind::Resumed,
            HandshakeKind::Full,
            HandshakeKind::Resumed
        ]
    );
}

#[test]
fn openssl_updates_its_keys() {
    if !tool("openssl", &["version"]) {
        return;
    }
    let place = Place::new("update");
    let server = place.server(KeyKind::P256);
    let mut command = Command::new("sh");
    // "K" requests an update of ours, "k" only announces the client's own. Only the first letter of
    // each read counts, so each command waits for the word that confirms it.
    let line = format!(
        "exec openssl s_client -connect {} -CAfile '{}' -tls1_3 2>&1",
        server.address,
        place.file("ca.pem")
    );
    command
        .args(["-c", &line])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut text = Vec::new();
    let mut wait_for = |words: &str, count: usize| {
        let mut piece = [0; 4096];
        while String::from_utf8_lossy(&text).matches(words).count() < count {
            let len = stdout.read(&mut piece).unwrap();
            assert!(len > 0, "{}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&piece[..len]);
        }
    };
    let whole = String::from_utf8(body(500)).unwrap();
    for (round, letter) in [b"K\n", b"k\n", b"K\n"].into_iter().enumerate() {
        stdin.write_all(b"GET /500 HTTP/1.1\r\n\r\n").unwrap();
        wait_for(&whole, round + 1);
        stdin.write_all(letter).unwrap();
        wait_for("KEYUPDATE", round + 1);
    }
    stdin.write_all(b"GET /500 HTTP/1.1\r\n\r\n").unwrap();
    wait_for(&whole, 4);
    drop(stdin);
    child.wait().unwrap();
    let visits = server.stop();
    assert_eq!(
        visits[0].as_ref().map(|visit| visit.requests),
        Ok(4),
        "{visits:?}"
    );
}

#[test]
fn curl_downloads() {
    if !tool("curl", &["--version"]) {
        return;
    }
    let place = Place::new("curl");
    for kind in KINDS {
        let server = place.server(kind);
        let port = server.address.port();
        for (version, len) in [("1.3", 3_000_000), ("1.2", 1_000_000)] {
            let mut command = Command::new("curl");
            command.args([
                "-sS",
                "--noproxy",
                "*",
                "--cacert",
                &place.file("ca.pem"),
                "--http1.1",
            ]);
            command.args(["--tls-max", version]);
            // Two requests on one connection.
            let url = |len| format!("https://127.0.0.1:{port}/{len}");
            command.args([url(len), url(100)]);
            let output = run(command, b"");
            let error = String::from_utf8_lossy(&output.stderr);
            let expected = [body(len), body(100)].concat();
            assert!(output.stdout == expected, "{kind:?} {version} {error}");
        }
        let visits: Vec<_> = server.stop().into_iter().map(Result::unwrap).collect();
        let got: Vec<_> = visits
            .iter()
            .map(|visit| (visit.version.as_str(), visit.requests))
            .collect();
        assert_eq!(got, [("TLSv1.3", 2), ("TLSv1.2", 2)], "{kind:?}");
    }
}

#[test]
fn curl_refuses_who_it_does_not_know() {
    if !tool("curl", &["--version"]) {
        return;
    }
    let place = Place::new("refuse");
    let server = place.server(KeyKind::P256);
    let port = server.address.port();
    let mut command = Command::new("curl");
    command.args([
        "-sS",
        "--noproxy",
        "*",
        &format!("https://127.0.0.1:{port}/"),
    ]);
    assert!(!run(command, b"").status.success());
    let mut command = Command::new("curl");
    command.args([
        "-sS",
        "--noproxy",
        "*",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
    ]);
    command.arg(format!("http://127.0.0.1:{port}/"));
    assert_eq!(run(command, b"").stdout, b"400", "clear HTTP is answered");
    let visits = server.stop();
    assert_eq!(visits[0], Err("alert_received=unknown_ca(48)".into()));
    assert_eq!(visits[1], Err("clear_http".into()));
}

const GO_CLIENT: &str = r#"package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	pem, _ := os.ReadFile(os.Args[1])
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	for _, version := range []uint16{tls.VersionTLS13, tls.VersionTLS12} {
		config := &tls.Config{RootCAs: roots, MaxVersion: version,
			ClientSessionCache: tls.NewLRUClientSessionCache(4)}
		for round := 0; round < 2; round++ {
			transport := &http.Transport{TLSClientConfig: config}
			client := &http.Client{Transport: transport}
			answer, err := client.Get(os.Args[2])
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			body, err := io.ReadAll(answer.Body)
			fmt.Println(len(body), err, answer.TLS.DidResume)
			transport.CloseIdleConnections()
		}
	}
}
"#;

#[test]
fn go_downloads_and_resumes() {
    if !tool("go", &["version"]) {
        return;
    }
    let place = Place::new("go");
    let server = place.server(KeyKind::P256);
    let source = place.file("main.go");
    std::fs::write(&source, GO_CLIENT).unwrap();
    let mut command = Command::new("go");
    let url = format!("https://127.0.0.1:{}/700000", server.address.port());
    command
        .current_dir(Path::new(&place.path))
        .env("GOPROXY", "off")
        .env("GO111MODULE", "off");
    command.args(["run", &source, &place.file("ca.pem"), &url]);
    let output = run(command, b"");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    let expected = "700000 <nil> false\n700000 <nil> true\n".repeat(2);
    assert_eq!(text, expected, "{errors}");
    let visits: Vec<_> = server.stop().into_iter().map(Result::unwrap).collect();
    let kinds: Vec<_> = visits.iter().map(|visit| visit.kind).collect();
    assert_eq!(
        kinds,
        [
            HandshakeKind::Full,
            HandshakeKind::Resumed,
            HandshakeKind::Full,
            HandshakeKind::Resumed
        ]
    );
    println!("groups: {} and {}", visits[0].group, visits[2].group);
}

#[test]
fn gnutls_speaks() {
    if !tool("gnutls-cli", &["--version"]) {
        return;
    }
    let place = Place::new("gnutls");
    let server = place.server(KeyKind::P256);
    for priority in [
        "NORMAL:-VERS-ALL:+VERS-TLS1.3",
        "NORMAL:-VERS-ALL:+VERS-TLS1.2",
    ] {
        let mut command = Command::new("gnutls-cli");
        let port = server.address.port().to_string();
        command.args(["--x509cafile", &place.file("ca.pem"), "--port", &port]);
        command.args([
            "--priority",
            priority,
            "--logfile",
            "/dev/null",
            "127.0.0.1",
        ]);
        let output = run(command, b"GET /30000 HTTP/1.1\r\nConnection: close\r\n\r\n");
        let text = String::from_utf8_lossy(&output.stdout);
        let whole = String::from_utf8(body(30_000)).unwrap();
        assert!(text.contains(&whole), "{priority} {text}");
    }
    let visits: Vec<_> = server.stop().into_iter().map(Result::unwrap).collect();
    let versions: Vec<_> = visits.iter().map(|visit| visit.version.as_str()).collect();
    assert_eq!(versions, ["TLSv1.3", "TLSv1.2"]);
}
