//! HTTPS with independent clients: OpenSSL, curl, GnuTLS and Go, where they are installed.
//!
//! A test whose tool is missing is left out.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use gannet_testkit::client::{Client, head, metric};
use gannet_testkit::content::pattern;
use gannet_testkit::engine::{Engine, on_both_engines};
use gannet_testkit::tls::{Authority, KeyKind};
use gannet_testkit::{Folder, Gannet, left_out, tool};

const SIZES: [usize; 4] = [1, 16_385, 125_000, 3_000_000];

/// A server, its site, and the authority that its clients trust.
struct Place {
    server: Gannet,
    site: Folder,
    /// Owns the files that the server uses.
    _authority: Authority,
    root: PathBuf,
}

impl Place {
    fn new(engine: Engine) -> Self {
        let site = Folder::site();
        for size in SIZES {
            site.write(format!("{size}.bin"), pattern(size, size as u8));
        }
        let authority = Authority::new();
        let names = ["localhost", "127.0.0.1"];
        let file = authority.issue("site.pem", KeyKind::P256, &names);
        let flags = ["--tls-cert", file.to_str().expect("UTF-8")];
        let server = engine.serve(
            site.path(),
            &[&flags[..], &["--metrics", "127.0.0.1:0"]].concat(),
        );
        let root = authority.file();
        Self {
            server,
            site,
            _authority: authority,
            root,
        }
    }

    fn port(&self) -> String {
        self.server.address().port().to_string()
    }

    fn url(&self, size: usize) -> String {
        format!("https://127.0.0.1:{}/{size}.bin", self.port())
    }

    /// `s_client`, reading requests from standard input.
    fn s_client(&self) -> Command {
        let mut command = Command::new("openssl");
        let address = format!("127.0.0.1:{}", self.port());
        command.args(["s_client", "-connect", &address, "-servername", "localhost"]);
        command.arg("-CAfile").arg(&self.root);
        command.args(["-verify_return_error", "-nocommands"]);
        command
    }
}

/// An interactive program, which ends with the test.
struct Talk {
    child: Child,
    input: Option<ChildStdin>,
    output: ChildStdout,
    got: Vec<u8>,
}

impl Talk {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it was found");
        let input = child.stdin.take();
        let output = child.stdout.take().expect("a pipe");
        Self {
            child,
            input,
            output,
            got: Vec::new(),
        }
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let input = self.input.as_mut().expect("it is open");
        input.write_all(bytes.as_ref()).expect("it reads");
        input.flush().expect("it reads");
    }

    /// Reads until this output, and discards everything up to its end.
    fn until(&mut self, part: &[u8]) -> Vec<u8> {
        let mut chunk = vec![0; 64 << 10];
        let mut from = 0;
        loop {
            let mut windows = self.got[from..].windows(part.len());
            if let Some(at) = windows.position(|window| window == part) {
                let rest = self.got.split_off(from + at + part.len());
                return std::mem::replace(&mut self.got, rest);
            }
            from = (self.got.len() + 1).saturating_sub(part.len());
            let count = self.output.read(&mut chunk).expect("a pipe");
            let said = String::from_utf8_lossy(&self.got);
            assert!(count > 0, "it ended after {said:?}");
            self.got.extend_from_slice(&chunk[..count]);
        }
    }

    fn end(mut self) -> Vec<u8> {
        self.input = None;
        self.output.read_to_end(&mut self.got).expect("a pipe");
        self.child.wait().expect("ours");
        std::mem::take(&mut self.got)
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(size: usize, lines: &[&str]) -> String {
    head("GET", &format!("/{size}.bin"), lines)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn openssl_gets_files_in_both_versions() {
    if !tool("openssl", &["version"]) {
        return;
    }
    on_both_engines(|engine| {
        let place = Place::new(engine);
        for version in ["-tls1_3", "-tls1_2"] {
            for size in SIZES {
                let mut talk = Talk::start(place.s_client().args([version, "-quiet"]));
                talk.send(get(size, &["connection: close"]));
                talk.until(b"\r\n\r\n");
                let content = talk.end();
                assert!(content == pattern(size, size as u8), "{version} {size}");
            }
        }
    });
}

#[test]
fn openssl_updates_keys() {
    if !tool("openssl", &["version"]) {
        return;
    }
    on_both_engines(|engine| {
        let place = Place::new(engine);
        let mut command = place.s_client();
        // With commands: a line K updates the key and requests an update of ours, k only updates.
        // Confirmations appear on standard error.
        let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
        command = Command::new("sh");
        command.args(["-c", "exec openssl \"$@\" 2>&1", "sh"]);
        command.args(arguments.iter().filter(|one| *one != "-nocommands"));
        let mut talk = Talk::start(command.arg("-tls1_3"));
        for update in ["", "k\n", "K\n", "K\n"] {
            talk.send(update);
            if !update.is_empty() {
                talk.until(b"KEYUPDATE\n");
            }
            talk.send(get(125_000, &[]));
            talk.until(b"\r\n\r\n");
            talk.until(&pattern(125_000, 125_000u32 as u8));
        }
        let by = |whose: &str| {
            let name = format!("gannet_tls_key_updates_total{{by=\"{whose}\"}}");
            metric(&place.server, &name)
        };
        assert_eq!((by("peer"), by("server")), (3, 2));
    });
}

#[test]
fn openssl_resumes_sessions() {
    if !tool("openssl", &["version"]) {
        return;
    }
    on_both_engines(|engine| {
        let place = Place::new(engine);
        for version in ["-tls1_3", "-tls1_2"] {
            let session = place.site.join(format!("session{version}"));
            for (flag, expect) in [("-sess_out", "New, "), ("-sess_in", "Reused, ")] {
                let mut command = place.s_client();
                command.args([version, "-ign_eof", flag]).arg(&session);
                let mut talk = Talk::start(&mut command);
                talk.send(get(16_385, &["connection: close"]));
                let said = talk.end();
                assert!(contains(&said, expect.as_bytes()), "{version} {flag}");
                assert!(contains(&said, &pattern(16_385, 16_385u32 as u8)));
            }
        }
        let name = "gannet_tls_handshakes_total{kind=\"resumed\"}";
        assert_eq!(metric(&place.server, name), 2);
    });
}

#[test]
fn curl_gets_files_in_both_versions_of_http() {
    if !tool("curl", &["--version"]) {
        return;
    }
    let features = Command::new("curl").arg("--version").output().expect("run");
    let has_h2 = contains(&features.stdout, b"HTTP2");
    if !has_h2 {
        left_out("curl with HTTP/2", "this one has none");
    }
    on_both_engines(|engine| {
        let place = Place::new(engine);
        for version in ["--http1.1", "--http2"] {
            if version == "--http2" && !has_h2 {
                continue;
            }
            let mut command = Command::new("curl");
            command.args(["-sS", "--fail", "--max-time", "60", version]);
            command.args(["-w", "%{http_version} %{http_code} "]);
            command.arg("--cacert").arg(&place.root);
            let files = SIZES.map(|size| place.site.join(format!("got{size}")));
            for (size, file) in SIZES.iter().zip(&files) {
                command.arg("-o").arg(file).arg(place.url(*size));
            }
            let output = command.output().expect("it was found");
            let one = if version == "--http2" {
                "2 200 "
            } else {
                "1.1 200 "
            };
            let said = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(said, one.repeat(SIZES.len()), "{errors}");
            for (size, file) in SIZES.iter().zip(&files) {
                let content = fs::read(file).expect("it was written");
                assert!(content == pattern(*size, *size as u8), "{version} {size}");
            }
        }
    });
}

#[test]
fn gnutls_gets_files_in_both_versions() {
    if !tool("gnutls-cli", &["--version"]) {
        return;
    }
    on_both_engines(|engine| {
        let place = Place::new(engine);
        for version in ["TLS1.3", "TLS1.2"] {
            let mut command = Command::new("gnutls-cli");
            let priority = format!("NORMAL:-VERS-ALL:+VERS-{version}");
            command.args(["--priority", &priority, "--port", &place.port()]);
            command.arg("--x509cafile").arg(&place.root);
            command.args(["--logfile", "/dev/null", "127.0.0.1"]);
            let mut talk = Talk::start(&mut command);
            talk.send(get(125_000, &[]));
            talk.until(b"\r\n\r\n");
            let content = talk.until(&pattern(125_000, 125_000u32 as u8));
            assert_eq!(content.len(), 125_000, "{version}");
        }
    });
}

const GO_CLIENT: &str = r#"package main

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	pem, err := os.ReadFile(os.Args[1])
	check(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2: os.Args[2] == "HTTP/2.0",
	}}
	for at := 3; at < len(os.Args); at += 2 {
		answer, err := client.Get(os.Args[at])
		check(err)
		if answer.StatusCode != 200 || answer.Proto != os.Args[2] {
			panic(answer.Status + " " + answer.Proto)
		}
		content, err := io.ReadAll(answer.Body)
		check(err)
		check(os.WriteFile(os.Args[at+1], content, 0o600))
	}
}
"#;

#[test]
fn go_gets_files_in_both_versions_of_http() {
    if !tool("go", &["version"]) {
        return;
    }
    let folder = Folder::new();
    let source = folder.write("main.go", GO_CLIENT);
    let program = folder.join("client");
    let mut build = Command::new("go");
    build.env("GOPROXY", "off").env("GO111MODULE", "off");
    let built = build.arg("build").arg("-o").arg(&program).arg(&source);
    let built = built.output().expect("it was found");
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{errors}");
    on_both_engines(|engine| {
        let place = Place::new(engine);
        for version in ["HTTP/1.1", "HTTP/2.0"] {
            let mut command = Command::new(&program);
            command.arg(&place.root).arg(version);
            let files = SIZES.map(|size| place.site.join(format!("got{size}")));
            for (size, file) in SIZES.iter().zip(&files) {
                command.arg(place.url(*size)).arg(file);
            }
            let output = command.output().expect("built");
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{version}: {errors}");
            compare(&files);
        }
    });
}

fn compare(files: &[impl AsRef<Path>]) {
    for (size, file) in SIZES.iter().zip(files) {
        let content = fs::read(file).expect("it was written");
        assert!(content == pattern(*size, *size as u8), "{size}");
    }
}

#[test]
fn an_outdated_client_is_told_the_reason() {
    on_both_engines(|engine| {
        let place = Place::new(engine);
        // A TLS 1.1 ClientHello with one suite and no extensions.
        let mut hello = vec![22, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2];
        hello.extend([7; 32]);
        hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
        let mut client = Client::new(&place.server);
        client.send(hello);
        let (alert, _) = client.rest();
        assert_eq!(alert, [21, 3, 3, 0, 2, 2, 70]);
        let name = "gannet_tls_handshakes_failed_total{reason=\"protocol_version\"}";
        assert_eq!(metric(&place.server, name), 1);
    });
}
