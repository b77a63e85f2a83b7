//! A blocking server over loopback that exercises the TLS module with third-party clients.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use gannet_server::tls::alert::{Alert, TlsFault};
use gannet_server::tls::certificates::CertificateStore;
use gannet_server::tls::handshake::{Failure, Handshake, HandshakeKind, Step};
use gannet_server::tls::session::{Received, Session};

/// The outcome of a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Visit {
    pub version: String,
    pub cipher: String,
    pub group: String,
    pub kind: HandshakeKind,
    pub server_name: Option<String>,
    pub requests: usize,
}

pub struct Server {
    pub address: SocketAddr,
    visits: Arc<Mutex<Vec<Result<Visit, String>>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers every request with a body of the length in its path, `/12345`.
    pub fn start(store: Arc<CertificateStore>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let visits = Arc::new(Mutex::new(Vec::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let (noted, over) = (Arc::clone(&visits), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::SeqCst) {
                    return;
                }
                let visit = serve(stream.unwrap(), &store);
                noted.lock().unwrap().push(visit);
            }
        });
        Self {
            address,
            visits,
            is_over,
            thread: Some(thread),
        }
    }

    /// Stops the server and returns the outcomes of its connections.
    pub fn stop(mut self) -> Vec<Result<Visit, String>> {
        self.is_over.store(true, Ordering::SeqCst);
        TcpStream::connect(self.address).unwrap();
        self.thread.take().unwrap().join().unwrap();
        std::mem::take(&mut self.visits.lock().unwrap())
    }
}

/// The body of a response.
pub fn body(len: usize) -> Vec<u8> {
    (0..len).map(|i| b'a' + (i % 26) as u8).collect()
}

fn serve(mut stream: TcpStream, store: &CertificateStore) -> Result<Visit, String> {
    let set = store.current();
    let mut handshake = Handshake::new();
    let mut buffer = vec![0; 16 << 10];
    let mut out = Vec::new();
    let mut done = loop {
        let len = stream
            .read(&mut buffer)
            .map_err(|error| error.to_string())?;
        if len == 0 {
            return Err("closed in the handshake".into());
        }
        let step = handshake.receive(&set, &buffer[..len], &mut out);
        stream.write_all(&out).map_err(|error| error.to_string())?;
        out.clear();
        match step {
            Ok(Step::NeedInput | Step::Held) => {}
            Ok(Step::Done(done)) => break done,
            Err(Failure::ClearHttp(_)) => {
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
                return Err("clear_http".into());
            }
            Err(failure) => return Err(failure.to_string()),
        }
    };
    let mut visit = Visit {
        version: done.session.version().to_string(),
        cipher: done.session.cipher().to_string(),
        group: done.group.into(),
        kind: done.kind,
        server_name: done.server_name.as_deref().map(str::to_owned),
        requests: 0,
    };
    let mut plain = std::mem::take(&mut done.plain);
    let rest = std::mem::take(&mut done.rest);
    let mut received = done.session.receive(&rest, &mut plain);
    loop {
        while let Some(end) = plain.windows(4).position(|window| window == b"\r\n\r\n") {
            let request: Vec<_> = plain.drain(..end + 4).collect();
            answer(&mut done.session, &request, &mut stream)?;
            visit.requests += 1;
        }
        match received {
            Ok(Received::Open) => {}
            Ok(Received::Closed) => break,
            Err(TlsFault::Peers(alert)) => return Err(alert.to_string()),
            Err(TlsFault::Ours(alert)) => {
                done.session.end(alert, &mut out);
                let _ = stream.write_all(&out);
                return Err(format!("{alert}"));
            }
        }
        let len = stream
            .read(&mut buffer)
            .map_err(|error| error.to_string())?;
        if len == 0 {
            break;
        }
        received = done.session.receive(&buffer[..len], &mut plain);
    }
    done.session.end(Alert::CLOSE_NOTIFY, &mut out);
    // The client may be gone.
    let _ = stream.write_all(&out);
    Ok(visit)
}

fn answer(session: &mut Session, request: &[u8], stream: &mut TcpStream) -> Result<(), String> {
    let text = String::from_utf8_lossy(request);
    let len = text
        .split(['/', ' '])
        .nth(2)
        .and_then(|len| len.parse().ok())
        .unwrap_or(0);
    let is_last = text.contains("Connection: close");
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\n\r\n");
    let body = body(len);
    let (first, second) = body.split_at(len / 2);
    let mut out = Vec::new();
    let encrypted = session.encrypt(&[head.as_bytes(), first], &mut out);
    encrypted.map_err(|_| "exhausted".to_owned())?;
    // A key update in the middle of the body, which the client has to follow.
    session
        .update_keys(false, &mut out)
        .map_err(|_| "exhausted".to_owned())?;
    session
        .encrypt(&[second], &mut out)
        .map_err(|_| "exhausted".to_owned())?;
    if is_last {
        session.end(Alert::CLOSE_NOTIFY, &mut out);
    }
    stream.write_all(&out).map_err(|error| error.to_string())
}
