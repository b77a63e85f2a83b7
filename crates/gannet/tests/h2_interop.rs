//! Independent HTTP/2 clients: the `h2` and `hyper` crates and Go's; many streams at once, large
//! bodies, resets; in clear text and over TLS.

use std::process::Command;
use std::sync::Arc;

use bytes::Bytes;
use gannet_testkit::client::metric;
use gannet_testkit::content::{assert_pattern, pattern};
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::until;
use gannet_testkit::tls::{Abilities, Secure};
use gannet_testkit::{DEADLINE, Folder, Gannet, tool};
use h2::client::SendRequest;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

const LARGE: usize = 6 << 20;

fn site() -> Folder {
    let site = Folder::site();
    site.write("large.bin", pattern(LARGE, 5));
    site.write("middle.bin", pattern(100_000, 6));
    site.write("ten.bin", pattern(10_240, 7));
    site
}

/// Runs a client to its end.
fn run(client: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let within = runtime.block_on(async { tokio::time::timeout(DEADLINE * 4, client).await });
    within.expect("nothing hangs");
}

async fn connect(server: &Gannet) -> TcpStream {
    let stream = TcpStream::connect(server.address()).await;
    stream.expect("the server listens")
}

async fn connect_securely(server: &Secure) -> impl AsyncRead + AsyncWrite + Unpin + use<> {
    let abilities = Abilities {
        alpn: vec![b"h2".to_vec()],
        ..Abilities::default()
    };
    let config: Arc<ClientConfig> = server.authority.client(abilities);
    let name = ServerName::try_from("localhost").expect("a name");
    let stream = connect(&server.server).await;
    let stream = TlsConnector::from(config).connect(name, stream).await;
    stream.expect("a handshake")
}

/// Paths with length and pattern of their content.
const PATHS: [(&str, usize, u8); 3] = [
    ("/ten.bin", 10_240, 7),
    ("/middle.bin", 100_000, 6),
    ("/large.bin", LARGE, 5),
];

async fn by_h2<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: T, scheme: &str) {
    // The value that RFC 9113 section 6.5.2 recommends until the server's SETTINGS arrive.
    let builder = h2::client::Builder::new()
        .initial_max_send_streams(100)
        .handshake(stream);
    let (sender, connection) = builder.await.expect("HTTP/2");
    tokio::spawn(connection);
    // Two hundred streams, more than may be open at once; every tenth body is large.
    let mut all = JoinSet::new();
    for number in 0..200 {
        let (path, len, seed) = PATHS[if number % 10 == 9 { 2 } else { number % 2 }];
        let request = Request::get(format!("{scheme}://localhost{path}")).body(());
        let request = request.expect("sound");
        let gives_up = number % 20 == 19;
        all.spawn(ask(sender.clone(), request, (len, seed), gives_up));
    }
    while let Some(result) = all.join_next().await {
        result.expect("no assertion failed");
    }
}

/// Sends a request, and reads the whole answer or cancels it after the first bytes.
async fn ask(
    sender: SendRequest<Bytes>,
    request: Request<()>,
    (len, seed): (usize, u8),
    gives_up: bool,
) {
    let mut sender = sender.ready().await.expect("a free stream");
    let (response, _) = sender.send_request(request, true).expect("sent");
    let response = response.await.expect("an answer");
    assert_eq!(response.status(), StatusCode::OK);
    let mut body = response.into_body();
    let mut got = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.expect("content");
        got.extend_from_slice(&piece);
        if gives_up {
            // Dropping it before its end resets the stream.
            assert_pattern(&got, seed);
            return;
        }
        let released = body.flow_control().release_capacity(piece.len());
        released.expect("it was received");
    }
    assert_eq!(got.len(), len);
    assert_pattern(&got, seed);
}

async fn by_hyper<T: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: T, scheme: &str) {
    let io = TokioIo::new(stream);
    let shaken = hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await;
    let (sender, connection) = shaken.expect("HTTP/2");
    tokio::spawn(connection);
    let mut all = JoinSet::new();
    for number in 0..100 {
        let (path, len, seed) = PATHS[if number % 10 == 9 { 2 } else { number % 2 }];
        let request = Request::get(format!("{scheme}://localhost{path}"));
        let request = request.body(Empty::<Bytes>::new()).expect("sound");
        let mut sender = sender.clone();
        all.spawn(async move {
            let response = sender.send_request(request).await.expect("an answer");
            assert_eq!(response.status(), StatusCode::OK);
            let body = response.into_body().collect().await.expect("content");
            let got = body.to_bytes();
            assert_eq!(got.len(), len);
            assert_pattern(&got, seed);
        });
    }
    while let Some(result) = all.join_next().await {
        result.expect("no assertion failed");
    }
}

#[test]
fn the_h2_and_hyper_crates_in_clear_text() {
    let site = site();
    on_both_engines(|engine| {
        let flags = ["--workers", "1", "--metrics", "127.0.0.1:0"];
        let server = engine.serve(site.path(), &flags);
        run(async { by_h2(connect(&server).await, "http").await });
        until("what was given up is reset", || {
            metric(&server, "gannet_h2_streams_reset_total") > 0
        });
        run(async { by_hyper(connect(&server).await, "http").await });
        assert_eq!(metric(&server, "gannet_h2_connections_total"), 2);
        let stage = |name: &str, end: &str| {
            metric(
                &server,
                &format!("gannet_stage_connections{end}{{stage=\"{name}\"}}"),
            )
        };
        assert_eq!(stage("http2", "_total"), 2);
        assert_eq!(stage("http1", "_total"), 0);
        until("both are closed", || stage("http2", "") == 0);
        assert_eq!(stage("http2", "_peak"), 1);
        assert_eq!(metric(&server, "gannet_h2_requests_total"), 300);
    });
}

#[test]
fn the_h2_and_hyper_crates_over_tls() {
    let site = site();
    on_both_engines(|engine| {
        let server = Secure::serve(engine, site.path(), &["--workers", "1"]);
        run(async { by_h2(connect_securely(&server).await, "https").await });
        run(async { by_hyper(connect_securely(&server).await, "https").await });
    });
}

/// Fifty concurrent downloads by Go's client, which reports the protocol.
const GO_CLIENT: &str = r#"package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
)

func main() {
	pem, _ := os.ReadFile(os.Args[1])
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, ServerName: "localhost"},
		ForceAttemptHTTP2: true,
	}}
	var group sync.WaitGroup
	var lock sync.Mutex
	counts := map[string]int{}
	for i := 0; i < 50; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			said := ""
			if answer, err := client.Get(os.Args[2]); err != nil {
				said = err.Error()
			} else {
				body, err := io.ReadAll(answer.Body)
				said = fmt.Sprint(answer.Proto, " ", answer.StatusCode, " ", len(body), " ", err)
			}
			lock.Lock()
			counts[said]++
			lock.Unlock()
		}()
	}
	group.Wait()
	fmt.Println(counts)
}
"#;

#[test]
fn go_over_tls() {
    if !tool("go", &["version"]) {
        return;
    }
    let site = site();
    let place = Folder::new();
    let source = place.write("main.go", GO_CLIENT);
    on_both_engines(|engine| {
        let server = Secure::serve(engine, site.path(), &[]);
        let port = server.server.address().port();
        let output = Command::new("go")
            .current_dir(place.path())
            .env("GOPROXY", "off")
            .env("GO111MODULE", "off")
            .arg("run")
            .arg(&source)
            .arg(server.authority.file())
            .arg(format!("https://127.0.0.1:{port}/middle.bin"))
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, "map[HTTP/2.0 200 100000 <nil>:50]\n", "{errors}");
    });
}
