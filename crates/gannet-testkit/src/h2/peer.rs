//! An HTTP/2 peer that builds its frames byte by byte, so that it can be well-behaved or hostile.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::hpack::Decoder;
use super::{
    ACK, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, frame, headers, number, opening, request_by, window_update,
};
use crate::tls::{Abilities, Secure, connection};
use crate::{DEADLINE, Gannet};

/// The answer to a request, as far as it has arrived.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Answer {
    /// The status code; 0 before the head.
    pub status: u16,
    /// Names and values, in order, without `:status`.
    pub fields: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
    /// It is complete.
    pub is_ended: bool,
    /// The error code if the server has reset the stream.
    pub reset: Option<u32>,
}

impl Answer {
    /// The value of a field that occurs at most once.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(n, _)| n == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} occurs twice: {self:?}");
        value
    }

    /// Asserts that the answer is complete and has this status; returns it.
    pub fn expect(self, status: u16) -> Self {
        let brief = (self.status, &self.fields, self.body.len(), self.reset);
        assert!(self.is_ended && self.status == status, "{brief:?}");
        self
    }
}

/// The transport.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// One connection.
pub struct Peer {
    stream: Box<dyn Stream>,
    scheme: &'static str,
    decoder: Decoder<'static>,
    got: Vec<u8>,
    next_stream: u32,
    answers: BTreeMap<u32, Answer>,
    /// Whether it sends WINDOW_UPDATE for the content it receives.
    pub opens_windows: bool,
    /// The last GOAWAY: last stream and code.
    pub goaway: Option<(u32, u32)>,
    /// Acknowledged pings.
    pub pongs: usize,
}

impl Peer {
    /// Connects with default settings.
    pub fn new(server: &Gannet) -> Self {
        Self::with_settings(server, &[])
    }

    /// Connects with settings.
    pub fn with_settings(server: &Gannet, settings: &[(u16, u32)]) -> Self {
        Self::over(Box::new(connect(server.address())), "http", settings)
    }

    /// Connects to an address, with default settings.
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(Box::new(connect(address)), "http", &[])
    }

    /// Speaks TLS over a fresh connection, with default settings.
    pub fn tls(address: SocketAddr, connection: rustls::ClientConnection) -> Self {
        let stream = rustls::StreamOwned::new(connection, connect(address));
        Self::over(Box::new(stream), "https", &[])
    }

    /// Connects over TLS, with settings.
    pub fn secure(server: &Secure, settings: &[(u16, u32)]) -> Self {
        let config = server.authority.client(Abilities {
            alpn: vec![b"h2".to_vec()],
            ..Abilities::default()
        });
        let connection = connection(&config, "localhost");
        let stream = rustls::StreamOwned::new(connection, connect(server.server.address()));
        Self::over(Box::new(stream), "https", settings)
    }

    /// Connects with the smallest possible receive buffer.
    pub fn slow(server: &Gannet, settings: &[(u16, u32)]) -> Self {
        let stream = connect(server.address());
        rustix::net::sockopt::set_socket_recv_buffer_size(&stream, 64 << 10).expect("set");
        Self::over(Box::new(stream), "http", settings)
    }

    fn over(stream: Box<dyn Stream>, scheme: &'static str, settings: &[(u16, u32)]) -> Self {
        let mut peer = Self {
            stream,
            scheme,
            decoder: Decoder::new(),
            got: Vec::new(),
            next_stream: 1,
            answers: BTreeMap::new(),
            opens_windows: true,
            goaway: None,
            pongs: 0,
        };
        peer.send(&opening(settings));
        peer
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        assert!(self.try_send(bytes), "the server takes it");
    }

    /// Sends bytes, unless the server has ended the connection.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        let result = self.stream.write_all(bytes);
        result.and_then(|()| self.stream.flush()).is_ok()
    }

    /// The number of the next stream.
    pub fn open(&mut self) -> u32 {
        self.next_stream += 2;
        self.next_stream - 2
    }

    /// Sends a request without content; returns the stream without waiting.
    pub fn ask(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> u32 {
        let stream = self.open();
        let block = request_by(self.scheme, method, path, fields);
        self.send(&headers(stream, &block));
        stream
    }

    /// Sends a request and waits for the answer.
    pub fn request(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let stream = self.ask(method, path, fields);
        self.answer(stream)
    }

    /// Sends a `GET` and waits for the answer.
    pub fn get(&mut self, path: &str) -> Answer {
        self.request("GET", path, &[])
    }

    /// Waits until an answer is complete.
    pub fn answer(&mut self, stream: u32) -> Answer {
        loop {
            if self.is_over(stream) {
                return self.answers.remove(&stream).expect("found above");
            }
            assert!(self.step(), "the connection ended: {:?}", self.goaway);
        }
    }

    /// The part of an answer received so far.
    pub fn so_far(&self, stream: u32) -> Answer {
        self.answers.get(&stream).cloned().unwrap_or_default()
    }

    /// The length of the content received so far.
    pub fn so_far_len(&self, stream: u32) -> usize {
        self.answers
            .get(&stream)
            .map_or(0, |answer| answer.body.len())
    }

    /// Whether an answer is complete, or its stream was reset.
    pub fn is_over(&self, stream: u32) -> bool {
        let known = self.answers.get(&stream);
        known.is_some_and(|answer| answer.is_ended || answer.reset.is_some())
    }

    /// Reads until the connection ends; returns the error code of the last GOAWAY.
    pub fn ends(&mut self) -> Option<u32> {
        while self.step() {}
        self.goaway.map(|(_, code)| code)
    }

    /// Sends a PING and waits for its acknowledgement: all frames sent before have then been
    /// processed.
    pub fn sync(&mut self) {
        let before = self.pongs;
        self.send(&frame(PING, 0, 0, b"12345678"));
        while self.pongs == before {
            assert!(self.step(), "the connection ended: {:?}", self.goaway);
        }
    }

    /// Processes one frame. Returns false if the connection has ended.
    pub fn step(&mut self) -> bool {
        loop {
            if let Some(frame) = Frame::take(&mut self.got) {
                self.take(&frame);
                return true;
            }
            let mut chunk = vec![0; 64 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return false,
                Ok(count) => self.got.extend_from_slice(&chunk[..count]),
                Err(error) if ENDS.contains(&error.kind()) => return false,
                Err(error) => panic!("nothing in {DEADLINE:?} ({error})"),
            }
        }
    }

    fn take(&mut self, received: &Frame) {
        let (stream, payload) = (received.stream, &received.payload[..]);
        let is_end = received.has(END_STREAM);
        match received.kind {
            HEADERS => {
                assert!(received.has(END_HEADERS), "heads are short");
                let fields = self.decoder.decode(payload);
                let fields = fields.expect("a block that decodes").into_iter();
                let text = |bytes| String::from_utf8(bytes).expect("ASCII");
                let mut fields = fields.map(|(name, value)| (text(name), text(value)));
                let (name, status) = fields.next().expect("a first field");
                assert_eq!(name, ":status");
                let answer = Answer {
                    status: status.parse().expect("three digits"),
                    fields: fields.collect(),
                    is_ended: is_end,
                    ..Answer::default()
                };
                let before = self.answers.insert(stream, answer);
                assert_eq!(before, None, "one head per stream");
            }
            DATA => {
                let answer = self.answers.get_mut(&stream).expect("after its head");
                assert!(!answer.is_ended, "content after the end");
                answer.body.extend_from_slice(payload);
                answer.is_ended = is_end;
                if self.opens_windows && !payload.is_empty() {
                    let mut updates = window_update(0, received.len);
                    if !is_end {
                        updates.extend(window_update(stream, received.len));
                    }
                    // The server may already have closed the connection.
                    self.try_send(&updates);
                }
            }
            RST_STREAM => {
                self.answers.entry(stream).or_default().reset = Some(number(payload));
            }
            SETTINGS if !received.has(ACK) => {
                self.try_send(&frame(SETTINGS, ACK, 0, &[]));
            }
            PING if received.has(ACK) => self.pongs += 1,
            PING => {
                self.try_send(&frame(PING, ACK, 0, payload));
            }
            GOAWAY => {
                let last = number(payload) & 0x7fff_ffff;
                self.goaway = Some((last, number(&payload[4..])));
            }
            SETTINGS | WINDOW_UPDATE => {}
            other => panic!("a frame of type {other}"),
        }
    }
}

/// Errors at the end of a connection. Over TLS, a reset may overtake `close_notify`.
const ENDS: [ErrorKind; 3] = [
    ErrorKind::ConnectionReset,
    ErrorKind::BrokenPipe,
    ErrorKind::UnexpectedEof,
];

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server listens");
    stream.set_nodelay(true).expect("set");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    stream.set_write_timeout(Some(DEADLINE)).expect("set");
    stream
}
