//! Serves one constant body over HTTP/2 in clear text, to try the machine against real clients.
//!
//! `cargo run --release -p gannet-http --example h2_echo -- 127.0.0.1:8082 4096`
//!
//! A test vehicle: blocking sockets, a thread per connection, prior knowledge only. The real server
//! is another crate. `GET` and `HEAD` of any path get this many bytes, any other method 405.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant, SystemTime};

use gannet_http::h2::hpack::ready;
use gannet_http::h2::{Connection, Event, Time, Timeouts};
use gannet_http::semantics::date::DateLine;
use gannet_http::semantics::ready_fields::{ReadyFields, RepresentationFields};
use gannet_http::semantics::request::Method;
use gannet_http::semantics::response::{ReadyBlock, ReadyPart, ResponseHead};
use gannet_http::semantics::status::Status;

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:8082".to_owned());
    let len = arguments.next().map_or(Ok(4096), |len| len.parse());
    let len: usize = len.map_err(|_| io::Error::other("the second argument is a length"))?;
    let site: &'static Site = Box::leak(Box::new(Site::new(len)));
    let listener = TcpListener::bind(&address)?;
    eprintln!("{len} bytes at http://{}/", listener.local_addr()?);
    for socket in listener.incoming() {
        let socket = socket?;
        std::thread::spawn(move || {
            // A peer that disconnects is not an error.
            let _ = Peer::new(site, socket).serve();
        });
    }
    Ok(())
}

/// The content to serve.
struct Site {
    body: Vec<u8>,
    fields: ReadyFields,
    hpack: ReadyFields,
}

impl Site {
    fn new(len: usize) -> Self {
        let fields = RepresentationFields {
            content_length: len as u64,
            content_type: Some(b"text/plain;charset=utf-8"),
            entity_tag: Some(b"\"0123456789abcdef\""),
            ..Default::default()
        };
        let fields = fields.render().expect("fields that may be sent");
        let hpack = ready::render(fields.as_block()).expect("lines");
        Self {
            body: vec![b'x'; len],
            fields,
            hpack,
        }
    }

    fn head(&self) -> ResponseHead<'_> {
        let block = ReadyBlock {
            h1: self.fields.as_block(),
            hpack: Some(self.hpack.as_block()),
        };
        ResponseHead {
            status: Status::OK,
            ready: Some((block, ReadyPart::Whole)),
            content_length: None,
            fields: &[],
        }
    }
}

/// A client, and the output for it.
struct Peer {
    site: &'static Site,
    socket: TcpStream,
    connection: Connection,
    start: Instant,
    output: Vec<u8>,
}

impl Peer {
    fn new(site: &'static Site, socket: TcpStream) -> Self {
        Self {
            site,
            socket,
            connection: Connection::new(Time(0), Timeouts::default()),
            start: Instant::now(),
            output: Vec::with_capacity(1 << 18),
        }
    }

    fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut input = vec![0; 1 << 16];
        let mut filled = 0;
        let mut scratch = Vec::new();
        self.socket.set_nodelay(true)?;
        self.send()?;
        loop {
            match self.read(&mut input[filled..])? {
                Some(0) => return Ok(()),
                Some(len) => filled += len,
                None => while self.connection.handle_timeout(self.now()).is_some() {},
            }
            let mut consumed = 0;
            loop {
                consumed += self.receive(&input[consumed..filled], &mut scratch);
                self.send()?;
                let before = consumed;
                consumed += self.receive(&input[consumed..filled], &mut scratch);
                if before == consumed {
                    break;
                }
            }
            self.send()?;
            input.copy_within(consumed..filled, 0);
            filled -= consumed;
            if self.connection.is_closing() {
                return self.linger();
            }
        }
    }

    /// Bytes read, or `None` when the machine has to handle a timeout.
    fn read(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        let until = self.connection.poll_timeout().unwrap_or(self.now());
        let wait = Duration::from_nanos(until.0.saturating_sub(self.now().0));
        self.socket
            .set_read_timeout(Some(wait.max(Duration::from_millis(1))))?;
        match (&self.socket).read(room) {
            Ok(len) => Ok(Some(len)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads input and answers all requests in it; returns how many bytes were consumed.
    fn receive(&mut self, input: &[u8], scratch: &mut Vec<u8>) -> usize {
        let now = self.now();
        let seconds = SystemTime::UNIX_EPOCH.elapsed();
        let date = DateLine::new(seconds.map_or(0, |since| since.as_secs() as i64));
        let mut consumed = 0;
        loop {
            let received = self.connection.receive(now, &input[consumed..], scratch);
            consumed += received.consumed;
            let (stream, status) = match received.event {
                Event::NeedMore => return consumed,
                Event::Closed(error) => {
                    eprintln!("{} {:?}", error.code.name(), error.why);
                    continue;
                }
                Event::Reset { .. } => continue,
                Event::Reject { stream, rejection } => (stream, rejection.status),
                Event::Request { stream, request } => match request.method {
                    Method::Get | Method::Head => (stream, Status::OK),
                    _ => (stream, Status::METHOD_NOT_ALLOWED),
                },
            };
            let (head, len) = if status == Status::OK {
                (self.site.head(), self.site.body.len() as u64)
            } else {
                let head = ResponseHead {
                    status,
                    ready: None,
                    content_length: Some(0),
                    fields: &[],
                };
                (head, 0)
            };
            self.connection
                .respond(stream, &head, date.as_bytes(), len, &mut self.output);
        }
    }

    /// Sends all that can be sent.
    fn send(&mut self) -> io::Result<()> {
        loop {
            let now = self.now();
            let body = self.connection.poll_frame(now, u32::MAX, &mut self.output);
            if let Some(body) = &body {
                let range = body.range.start as usize..body.range.end as usize;
                self.output.extend_from_slice(&self.site.body[range]);
            }
            if self.output.len() >= 1 << 17 || body.is_none() {
                (&self.socket).write_all(&self.output)?;
                self.output.clear();
            }
            if body.is_none() {
                return Ok(());
            }
        }
    }

    /// Ends our half, then drops further input, so that the peer can read our last frames.
    fn linger(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)?;
        self.socket
            .set_read_timeout(Some(Duration::from_millis(500)))?;
        let mut rest = [0; 4096];
        while (&self.socket).read(&mut rest)? > 0 {}
        Ok(())
    }
}
