//! Early data (0-RTT) from the client's side: answers before its handshake is complete, and
//! requests that get none.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use gannet_testkit::client::{Client, head, metric};
use gannet_testkit::content::pattern;
use gannet_testkit::engine::on_both_engines;
use gannet_testkit::process::until;
use gannet_testkit::tls::{Abilities, Secure, connection};
use gannet_testkit::{DEADLINE, Folder, h2};
use rustls::{ClientConfig, ClientConnection};

const FLAGS: [&str; 3] = ["--early-data", "--metrics", "127.0.0.1:0"];
const TAKEN: &str = "gannet_tls_early_data_total";

/// A client that has connected once and may send early data.
fn known(secure: &Secure) -> Arc<ClientConfig> {
    let config = secure.authority.client(Abilities {
        early_data: true,
        ..Abilities::default()
    });
    secure
        .connect_with(&config, "localhost")
        .get("/")
        .expect(200);
    config
}

/// Sends requests as early data, and nothing after them.
fn send_early(secure: &Secure, config: &Arc<ClientConfig>, bytes: impl AsRef<[u8]>) -> Early {
    let mut client = connection(config, "localhost");
    let mut early = client.early_data().expect("the session allows it");
    early.write_all(bytes.as_ref()).expect("it is short");
    let mut flight = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut flight).expect("in memory");
    }
    let mut socket = TcpStream::connect(secure.server.address()).expect("it listens");
    socket.set_read_timeout(Some(DEADLINE)).expect("set");
    socket.write_all(&flight).expect("sent");
    Early {
        client,
        socket,
        flight,
    }
}

/// A client that withholds the end of its handshake.
struct Early {
    client: ClientConnection,
    socket: TcpStream,
    /// The bytes it has sent.
    flight: Vec<u8>,
}

impl Early {
    /// Reads `len` bytes of the answer; sends nothing.
    fn take(&mut self, len: usize) -> Vec<u8> {
        let mut answer = Vec::new();
        let mut chunk = vec![0; 64 << 10];
        while answer.len() < len {
            match self.client.reader().read(&mut chunk) {
                Ok(count) if count > 0 => answer.extend_from_slice(&chunk[..count]),
                _ => {
                    let count = self.client.read_tls(&mut self.socket).expect("in time");
                    assert!(count > 0, "the end after {} bytes", answer.len());
                    self.client.process_new_packets().expect("TLS");
                }
            }
        }
        answer
    }

    /// Reads the head of an answer byte by byte.
    fn head(&mut self) -> String {
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            let next = self.client.reader().fill_or_none();
            match next {
                Some(byte) => text.push(byte),
                None => {
                    let count = self.client.read_tls(&mut self.socket).expect("in time");
                    assert!(count > 0, "the end after {text:?}");
                    self.client.process_new_packets().expect("TLS");
                }
            }
        }
        String::from_utf8(text).expect("ASCII")
    }

    /// Completes the handshake and continues as an ordinary client.
    fn finish(mut self) -> Client {
        assert!(self.client.is_early_data_accepted());
        while self.client.wants_write() {
            self.client.write_tls(&mut self.socket).expect("sent");
        }
        Client::over(self.socket, self.client)
    }
}

/// Reads one byte, if there is one.
trait FillOrNone {
    fn fill_or_none(&mut self) -> Option<u8>;
}

impl<R: Read> FillOrNone for R {
    fn fill_or_none(&mut self) -> Option<u8> {
        let mut byte = [0];
        matches!(self.read(&mut byte), Ok(1)).then_some(byte[0])
    }
}

#[test]
fn get_is_answered_before_the_handshake_is_over() {
    let site = Folder::site();
    let sizes = [10, 20_000, 1_000_000];
    for size in sizes {
        site.write(format!("{size}.bin"), pattern(size, 5));
    }
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &FLAGS);
        let config = known(&secure);
        let mut taken = 0;
        for size in sizes {
            let request = head("GET", &format!("/{size}.bin"), &[]);
            let mut early = send_early(&secure, &config, &request);
            assert!(early.head().starts_with("HTTP/1.1 200 OK\r\n"));
            assert!(early.take(size) == pattern(size, 5), "{size}");
            taken += 1;
            assert_eq!(metric(&secure.server, TAKEN), taken);
            // The handshake completes, and the connection is used further.
            let mut client = early.finish();
            for _ in 0..3 {
                let page = client.get(&format!("/{size}.bin")).expect(200);
                assert!(page.body == pattern(size, 5), "{size}");
            }
        }
        // The client receives `connection: close`, and then close_notify.
        let request = head("GET", "/10.bin", &["connection: close"]);
        let mut early = send_early(&secure, &config, &request);
        early.head();
        early.take(10);
        early.finish().closes();
    });
}

#[test]
fn streams_are_answered_early_too() {
    let site = Folder::site();
    let page = std::fs::read(site.join("index.html")).expect("readable");
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &FLAGS);
        let config = secure.authority.client(Abilities {
            early_data: true,
            alpn: vec![b"h2".to_vec()],
            ..Abilities::default()
        });
        let opening = |method: &str| {
            let block = h2::request(method, "/", &[]);
            [h2::opening(&[]), h2::headers(1, &block)].concat()
        };
        let mut first = secure.connect_with(&config, "localhost");
        first.send(opening("GET"));
        while !contains(first.received(), &page) {
            assert_eq!(first.fill(), None);
        }
        let mut early = send_early(&secure, &config, opening("GET"));
        let mut answer = Vec::new();
        while !contains(&answer, &page) {
            answer.extend(early.take(1));
        }
        assert_eq!(metric(&secure.server, TAKEN), 1);
        let mut client = early.finish();
        client.send(h2::headers(3, &h2::request("GET", "/", &[])));
        while !contains(client.received(), &page) {
            assert_eq!(client.fill(), None);
        }
        let mut early = send_early(&secure, &config, opening("POST"));
        let mut answer = Vec::new();
        while !contains(&answer, b"425 Too Early") {
            answer.extend(early.take(1));
        }
    });
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn what_is_not_safe_is_too_early() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &FLAGS);
        for method in ["POST", "DELETE", "OPTIONS"] {
            let config = known(&secure);
            let request = head(method, "/about", &["content-length: 0"]);
            let mut early = send_early(&secure, &config, &request);
            let answer = early.head();
            assert!(answer.starts_with("HTTP/1.1 425 Too Early\r\n"), "{answer}");
        }
        // After the handshake, the same method gets its usual answer.
        let config = known(&secure);
        let mut early = send_early(&secure, &config, head("HEAD", "/about", &[]));
        assert!(early.head().starts_with("HTTP/1.1 200 OK\r\n"));
        let mut client = early.finish();
        client
            .request("POST", "/about", &["content-length: 0"])
            .expect(405);
    });
}

#[test]
fn a_request_cut_by_the_end_of_early_data_waits_for_the_rest() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &FLAGS);
        let config = known(&secure);
        let request = head("POST", "/about", &["content-length: 0"]);
        let (begin, end) = request.split_at(20);
        let mut early = send_early(&secure, &config, begin);
        while early.client.is_handshaking() {
            early.client.read_tls(&mut early.socket).expect("in time");
            early.client.process_new_packets().expect("TLS");
        }
        let mut client = early.finish();
        client.send(end);
        // Complete only now, when it cannot be a replay: not 425.
        client.response().expect(405);
    });
}

#[test]
fn the_same_bytes_again_are_not_answered() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &FLAGS);
        let config = known(&secure);
        let mut early = send_early(&secure, &config, head("GET", "/", &[]));
        assert!(early.head().starts_with("HTTP/1.1 200 OK\r\n"));
        let responses = "gannet_responses_total{status=\"200\"}";
        // That of the first connection, and this one. A busy worker may be asked in vain.
        until("the answers are counted", || {
            metric(&secure.server, responses) == 2
        });
        let mut replay = TcpStream::connect(secure.server.address()).expect("it listens");
        replay.set_read_timeout(Some(DEADLINE)).expect("set");
        replay.write_all(&early.flight).expect("sent");
        let mut header = [0; 5];
        replay.read_exact(&mut header).expect("a ServerHello");
        assert_eq!(metric(&secure.server, TAKEN), 1);
        assert_eq!(metric(&secure.server, responses), 2);
        // The original client of the session is unaffected.
        early.finish();
    });
}

#[test]
fn it_is_off_unless_asked_for() {
    let site = Folder::site();
    on_both_engines(|engine| {
        let secure = Secure::serve(engine, site.path(), &[]);
        let config = known(&secure);
        let mut client = connection(&config, "localhost");
        assert!(client.early_data().is_none(), "no session allows it");
        let mut client = secure.connect_with(&config, "localhost");
        client.get("/").expect(200);
        // Requests that a proxy received as early data get 425, unless their methods are safe.
        let lines = ["early-data: 1", "content-length: 0"];
        client.request("POST", "/", &lines).expect(425);
        client.request("GET", "/", &lines).expect(200);
        client.request("POST", "/", &lines[1..]).expect(405);
    });
}

/// The log has version and suite of TLS before the handshake is complete, too.
#[test]
fn the_log_knows_tls_of_early_answers() {
    on_both_engines(|engine| {
        let folder = Folder::site();
        let log = folder.join("log");
        let format = "$request_uri $ssl_protocol $ssl_cipher";
        let log_file = log.to_str().expect("UTF-8");
        let flags = ["--log", format, "--log-file", log_file];
        let secure = Secure::serve(engine, folder.path(), &[&FLAGS[..], &flags].concat());
        let config = known(&secure);
        let request = "GET /about HTTP/1.1\r\nhost: localhost\r\n\r\n";
        let mut early = send_early(&secure, &config, request);
        assert!(early.head().starts_with("HTTP/1.1 200 OK\r\n"));
        let line = "/about TLSv1.3 TLS_AES_128_GCM_SHA256\n";
        until("the answer is logged", || {
            fs::read_to_string(&log).is_ok_and(|text| text.contains(line))
        });
        early.finish();
    });
}
