//! A strict HTTP/1 client: it sends exact bytes, and rejects answers that violate the protocol.
//!
//! Every read has a deadline, so a server that does not answer fails the test at once.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

pub use crate::h1::{Response, head};
use crate::process::until;
use crate::{DEADLINE, Gannet};

/// How a connection ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// Gracefully (FIN).
    Closed,
    /// With a reset.
    Reset,
    /// Over TLS: with a FIN but no `close_notify`, which would rule out truncation.
    Truncated,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
}

/// TLS by rustls.
pub type TlsStream = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

/// One connection.
pub struct Client {
    stream: Stream,
    /// Received but not yet consumed.
    buffer: Vec<u8>,
}

impl Client {
    /// Connects to a server's first TCP address.
    pub fn new(server: &Gannet) -> Self {
        Self::connect(server.address())
    }

    /// Connects to an address.
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).expect("the server listens")
    }

    /// Tries to connect to an address.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, DEADLINE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        Ok(Self {
            stream: Stream::Tcp(stream),
            buffer: Vec::new(),
        })
    }

    /// Connects with the smallest possible receive buffer.
    pub fn slow(server: &Gannet) -> Self {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with, sockopt};
        let address = server.address();
        assert!(address.is_ipv4());
        let (inet, stream) = (AddressFamily::INET, SocketType::STREAM);
        let socket = socket_with(inet, stream, SocketFlags::CLOEXEC, None).expect("a socket");
        // Before connecting: the handshake announces the window.
        sockopt::set_socket_recv_buffer_size(&socket, 4096).expect("set");
        connect(&socket, &address).expect("the server listens");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        Self {
            stream: Stream::Tcp(stream),
            buffer: Vec::new(),
        }
    }

    /// Connects from an address of this machine.
    pub fn connect_from(source: Ipv4Addr, address: SocketAddr) -> Self {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
        let (inet, stream) = (AddressFamily::INET, SocketType::STREAM);
        let socket = socket_with(inet, stream, SocketFlags::CLOEXEC, None).expect("a socket");
        bind(&socket, &SocketAddr::from((source, 0))).expect("an address of this machine");
        connect(&socket, &address).expect("the server listens");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        Self::over_stream(stream)
    }

    /// Wraps an existing connection.
    pub fn over_stream(stream: TcpStream) -> Self {
        Self {
            stream: Stream::Tcp(stream),
            buffer: Vec::new(),
        }
    }

    /// Connects to a Unix socket.
    pub fn unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).expect("the server listens");
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        stream.set_write_timeout(Some(DEADLINE)).expect("set");
        Self {
            stream: Stream::Unix(stream),
            buffer: Vec::new(),
        }
    }

    /// Speaks TLS over a fresh connection.
    pub fn tls(address: SocketAddr, connection: rustls::ClientConnection) -> Self {
        Self::connect(address).over_tls(connection)
    }

    /// Speaks TLS from now on.
    pub fn over_tls(self, connection: rustls::ClientConnection) -> Self {
        let stream = Stream::Tls(Box::new(TlsStream::new(connection, self.writer())));
        Self {
            stream,
            buffer: Vec::new(),
        }
    }

    /// Wraps an existing connection and speaks TLS on it.
    pub fn over(socket: TcpStream, connection: rustls::ClientConnection) -> Self {
        Self {
            stream: Stream::Tls(Box::new(TlsStream::new(connection, socket))),
            buffer: Vec::new(),
        }
    }

    /// The client's side of TLS.
    pub fn secure(&mut self) -> &mut TlsStream {
        match &mut self.stream {
            Stream::Tls(stream) => stream,
            Stream::Tcp(_) | Stream::Unix(_) => panic!("not over TLS"),
        }
    }

    /// Sends exactly these bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the server takes it");
    }

    /// Sends these bytes, unless the server has ended the connection.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes.as_ref()),
            Stream::Unix(stream) => stream.write_all(bytes.as_ref()),
            Stream::Tls(stream) => stream
                .write_all(bytes.as_ref())
                .and_then(|()| stream.flush()),
        }
    }

    /// Sends a request with HTTP/1.1 and additional field lines; returns the answer.
    pub fn request(&mut self, method: &str, target: &str, lines: &[&str]) -> Response {
        self.send(head(method, target, lines));
        self.response_to(method)
    }

    /// Sends a `GET` with HTTP/1.1; returns the answer.
    pub fn get(&mut self, target: &str) -> Response {
        self.request("GET", target, &[])
    }

    /// Reads the answer to a request whose method is not `HEAD`.
    pub fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// Reads the answer to a request.
    pub fn response_to(&mut self, method: &str) -> Response {
        let mut response = self.head();
        let has_body = method != "HEAD" && response.status >= 200 && response.status != 304;
        let length = response.content_length();
        match (response.status, length) {
            (100..200 | 204, length) => assert_eq!(length, None, "{response:?}"),
            (304, _) => {}
            (_, length) => assert!(length.is_some(), "no length: {response:?}"),
        }
        if has_body {
            response.body = self.take(length.unwrap_or(0));
        }
        response
    }

    /// Reads the head of an answer, but not its content.
    pub fn head(&mut self) -> Response {
        self.head_or_end().unwrap_or_else(|end| {
            let got = String::from_utf8_lossy(&self.buffer);
            panic!("the connection ended ({end:?}) instead of an answer, after {got:?}")
        })
    }

    /// The same, or how the connection ended before the head was complete.
    pub fn head_or_end(&mut self) -> Result<Response, End> {
        loop {
            match Response::head(&self.buffer) {
                Ok(Some((response, len))) => {
                    self.buffer.drain(..len);
                    return Ok(response);
                }
                Ok(None) => {}
                Err(why) => panic!("{why}"),
            }
            if let Some(end) = self.fill() {
                return Err(end);
            }
        }
    }

    /// Reads `len` bytes of content.
    pub fn take(&mut self, len: u64) -> Vec<u8> {
        let len = usize::try_from(len).expect("it fits into memory");
        while self.buffer.len() < len {
            if let Some(end) = self.fill() {
                panic!("{end:?} after {} of {len} bytes", self.buffer.len());
            }
        }
        let rest = self.buffer.split_off(len);
        std::mem::replace(&mut self.buffer, rest)
    }

    /// Reads until the connection ends; returns the bytes and how it ended.
    pub fn rest(&mut self) -> (Vec<u8>, End) {
        let end = loop {
            if let Some(end) = self.fill() {
                break end;
            }
        };
        (std::mem::take(&mut self.buffer), end)
    }

    /// Expects the end of the connection, and no bytes before it.
    pub fn ends(&mut self) -> End {
        let (rest, end) = self.rest();
        assert!(
            rest.is_empty(),
            "more: {:?}",
            String::from_utf8_lossy(&rest)
        );
        end
    }

    /// Expects a graceful end of the connection, and no bytes before it.
    pub fn closes(&mut self) {
        assert_eq!(self.ends(), End::Closed);
    }

    /// Receives once, blocking; `Some` if the connection has ended.
    pub fn fill(&mut self) -> Option<End> {
        let mut chunk = vec![0; 64 << 10];
        let result = match &mut self.stream {
            Stream::Tcp(stream) => stream.read(&mut chunk),
            Stream::Unix(stream) => stream.read(&mut chunk),
            Stream::Tls(stream) => stream.read(&mut chunk),
        };
        match result {
            Ok(0) => Some(End::Closed),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                None
            }
            // A read over TLS may first have to write.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ) =>
            {
                Some(End::Reset)
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => None,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Some(End::Truncated),
            Err(error) => panic!("nothing in {DEADLINE:?} ({error})"),
        }
    }

    /// Bytes received but not yet consumed.
    pub fn received(&self) -> &[u8] {
        &self.buffer
    }

    /// Shuts down our direction: no more requests will follow. Has no effect if the server has
    /// reset the connection.
    pub fn finish_sending(&mut self) {
        let done = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
            Stream::Tls(stream) => stream.sock.shutdown(Shutdown::Write),
        };
        if let Err(error) = done {
            assert_eq!(error.kind(), ErrorKind::NotConnected, "it was open");
        }
    }

    /// Ends the connection with a reset.
    pub fn reset(self) {
        let fd = match &self.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tls(stream) => stream.sock.as_fd(),
        };
        rustix::net::sockopt::set_socket_linger(fd, Some(Duration::ZERO)).expect("set");
    }

    /// A second handle of the connection, for sending from another thread.
    pub fn writer(&self) -> TcpStream {
        match &self.stream {
            Stream::Tcp(stream) => stream.try_clone().expect("descriptors are left"),
            Stream::Tls(stream) => stream.sock.try_clone().expect("descriptors are left"),
            Stream::Unix(_) => panic!("only for TCP"),
        }
    }

    /// Our address.
    pub fn local_address(&self) -> SocketAddr {
        self.writer().local_addr().expect("connected")
    }
}

/// One `GET` on a connection of its own.
pub fn get(server: &Gannet, target: &str) -> Response {
    ask(server, "GET", target, &[])
}

/// One request on a connection of its own, which ends after it.
pub fn ask(server: &Gannet, method: &str, target: &str, lines: &[&str]) -> Response {
    let mut client = Client::new(server);
    let lines: Vec<&str> = lines.iter().copied().chain(["connection: close"]).collect();
    let response = client.request(method, target, &lines);
    assert_eq!(response.field("connection"), Some("close"), "{response:?}");
    client.closes();
    response
}

/// The metrics. On a busy machine no worker may have reported its counters in the time that a request has; then
/// the answer is 503 until one has.
pub fn metrics(server: &Gannet) -> Response {
    let address = server.metrics().expect("metrics are enabled");
    let mut answer = Client::connect(address).get("/metrics");
    until("a worker has reported", || {
        let is_early = answer.status == 503;
        if is_early {
            answer = Client::connect(address).get("/metrics");
        }
        !is_early
    });
    answer.expect(200)
}

/// The value of a metric.
pub fn metric(server: &Gannet, name: &str) -> u64 {
    let text = metrics(server);
    let mut lines = text.text().lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.expect("the metric exists").parse().expect("a number")
}
