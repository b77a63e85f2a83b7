//! An HTTP/2 peer that writes its frames byte by byte, so that it can be polite or hostile.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use gannet_http::h2::hpack::Decoder;

use super::tls::{Abilities, Secure, connection};
use super::{DEADLINE, Gannet};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const ACK: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const INTERNAL_ERROR: u32 = 0x2;
pub const ENHANCE_YOUR_CALM: u32 = 0xb;

/// What came of a request.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Answer {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// It is complete.
    pub is_ended: bool,
    /// The server has reset the stream, with this code.
    pub reset: Option<u32>,
}

impl Answer {
    /// The value of a field that is there once.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.fields.iter().filter(|(n, _)| n == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} is there twice: {self:?}");
        value
    }

    /// The same, if it is complete and has this status.
    pub fn expect(self, status: u16) -> Self {
        let brief = (self.status, &self.fields, self.body.len(), self.reset);
        assert!(self.is_ended && self.status == status, "{brief:?}");
        self
    }
}

/// What bytes travel in.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// One connection.
pub struct Peer {
    stream: Box<dyn Stream>,
    scheme: &'static str,
    decoder: Decoder,
    got: Vec<u8>,
    next_stream: u32,
    answers: BTreeMap<u32, Answer>,
    /// Gives back what it has received.
    pub opens_windows: bool,
    /// The last GOAWAY: last stream and code.
    pub goaway: Option<(u32, u32)>,
    /// Acknowledged pings.
    pub pongs: usize,
}

impl Peer {
    /// Connects, with the settings that a client has if it says nothing.
    pub fn new(server: &Gannet) -> Self {
        Self::with_settings(server, &[])
    }

    /// Connects with settings.
    pub fn with_settings(server: &Gannet, settings: &[(u16, u32)]) -> Self {
        Self::over(Box::new(connect(server)), "http", settings)
    }

    /// Connects over TLS, with settings.
    pub fn secure(server: &Secure, settings: &[(u16, u32)]) -> Self {
        let config = server.authority.client(Abilities {
            alpn: vec![b"h2".to_vec()],
            ..Abilities::default()
        });
        let connection = connection(&config, "localhost");
        let stream = rustls::StreamOwned::new(connection, connect(&server.server));
        Self::over(Box::new(stream), "https", settings)
    }

    /// Connects with a small receive buffer: it takes little at a time.
    pub fn slow(server: &Gannet, settings: &[(u16, u32)]) -> Self {
        let stream = connect(server);
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
        let mut payload = Vec::new();
        for (id, value) in settings {
            payload.extend(id.to_be_bytes());
            payload.extend(value.to_be_bytes());
        }
        let mut first = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        first.extend(frame(SETTINGS, 0, 0, &payload));
        peer.send(&first);
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

    /// Asks without content, and does not wait. Gives the stream.
    pub fn ask(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> u32 {
        let stream = self.open();
        let block = request_by(self.scheme, method, path, fields);
        self.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream, &block));
        stream
    }

    /// Asks and waits for the answer.
    pub fn request(&mut self, method: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let stream = self.ask(method, path, fields);
        self.answer(stream)
    }

    /// `GET` and its answer.
    pub fn get(&mut self, path: &str) -> Answer {
        self.request("GET", path, &[])
    }

    /// Waits for the end of an answer.
    pub fn answer(&mut self, stream: u32) -> Answer {
        loop {
            let known = self.answers.get(&stream);
            if known.is_some_and(|answer| answer.is_ended || answer.reset.is_some()) {
                return self.answers.remove(&stream).expect("found above");
            }
            assert!(self.step(), "the connection ended: {:?}", self.goaway);
        }
    }

    /// What is there of an answer.
    pub fn so_far(&self, stream: u32) -> Answer {
        self.answers.get(&stream).cloned().unwrap_or_default()
    }

    /// How much content of an answer is there.
    pub fn so_far_len(&self, stream: u32) -> usize {
        self.answers
            .get(&stream)
            .map_or(0, |answer| answer.body.len())
    }

    /// Reads until the connection ends; gives the code of the last GOAWAY.
    pub fn ends(&mut self) -> Option<u32> {
        while self.step() {}
        self.goaway.map(|(_, code)| code)
    }

    /// Sends a PING and waits for its answer: everything sent before was handled by then.
    pub fn sync(&mut self) {
        let before = self.pongs;
        self.send(&frame(PING, 0, 0, b"12345678"));
        while self.pongs == before {
            assert!(self.step(), "the connection ended: {:?}", self.goaway);
        }
    }

    /// Takes one frame. False if the connection has ended.
    pub fn step(&mut self) -> bool {
        while self.got.len() < 9 || self.got.len() < 9 + payload_len(&self.got) {
            let mut chunk = vec![0; 64 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return false,
                Ok(count) => self.got.extend_from_slice(&chunk[..count]),
                Err(error) if ENDS.contains(&error.kind()) => return false,
                Err(error) => panic!("nothing in {DEADLINE:?} ({error})"),
            }
        }
        let len = payload_len(&self.got);
        let rest = self.got.split_off(9 + len);
        let whole = std::mem::replace(&mut self.got, rest);
        let (header, payload) = whole.split_at(9);
        let stream = number(&header[5..9]) & 0x7fff_ffff;
        self.take(header[3], header[4], stream, payload);
        true
    }

    fn take(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let is_end = flags & END_STREAM != 0;
        match kind {
            HEADERS => {
                assert_eq!(flags & END_HEADERS, END_HEADERS, "heads are short");
                let mut answer = Answer::default();
                let fields = &mut answer.fields;
                let result = self.decoder.decode_each(payload, |name, value| {
                    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("ASCII");
                    fields.push((text(name), text(value)));
                });
                assert_eq!(result, Ok(()));
                let (name, status) = answer.fields.remove(0);
                assert_eq!(name, ":status");
                answer.status = status.parse().expect("three digits");
                answer.is_ended = is_end;
                let before = self.answers.insert(stream, answer);
                assert_eq!(before, None, "one head per stream");
            }
            DATA => {
                let answer = self.answers.get_mut(&stream).expect("after its head");
                assert!(!answer.is_ended, "content after the end");
                answer.body.extend_from_slice(payload);
                answer.is_ended = is_end;
                if self.opens_windows && !payload.is_empty() {
                    let increment = (payload.len() as u32).to_be_bytes();
                    let mut updates = frame(WINDOW_UPDATE, 0, 0, &increment);
                    if !is_end {
                        updates.extend(frame(WINDOW_UPDATE, 0, stream, &increment));
                    }
                    // A server that has said everything may be gone already.
                    self.try_send(&updates);
                }
            }
            RST_STREAM => {
                self.answers.entry(stream).or_default().reset = Some(number(payload));
            }
            SETTINGS if flags & ACK == 0 => {
                self.try_send(&frame(SETTINGS, ACK, 0, &[]));
            }
            PING if flags & ACK != 0 => self.pongs += 1,
            PING => {
                self.try_send(&frame(PING, ACK, 0, payload));
            }
            GOAWAY => {
                let last = number(&payload[..4]) & 0x7fff_ffff;
                self.goaway = Some((last, number(&payload[4..8])));
            }
            SETTINGS | WINDOW_UPDATE => {}
            other => panic!("a frame of type {other}"),
        }
    }
}

/// How a connection ends early. Over TLS a reset may have overtaken `close_notify`.
const ENDS: [ErrorKind; 3] = [
    ErrorKind::ConnectionReset,
    ErrorKind::BrokenPipe,
    ErrorKind::UnexpectedEof,
];

fn connect(server: &Gannet) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("the server listens");
    stream.set_nodelay(true).expect("set");
    stream.set_read_timeout(Some(DEADLINE)).expect("set");
    stream.set_write_timeout(Some(DEADLINE)).expect("set");
    stream
}

/// A frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    let mut bytes = vec![len[1], len[2], len[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// The field block of a request: literals that are not indexed and not compressed.
pub fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    request_by("http", method, path, fields)
}

/// The same by a scheme.
fn request_by(scheme: &str, method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    let pseudo = [
        (":method", method),
        (":scheme", scheme),
        (":authority", "test"),
        (":path", path),
    ];
    for (name, value) in pseudo.iter().chain(fields) {
        block.push(0);
        for text in [name, value] {
            string(text.as_bytes(), &mut block);
        }
    }
    block
}

/// A string without compression (RFC 7541 section 5.2).
fn string(bytes: &[u8], out: &mut Vec<u8>) {
    if bytes.len() < 127 {
        out.push(bytes.len() as u8);
    } else {
        out.push(127);
        let mut rest = bytes.len() - 127;
        while rest >= 128 {
            out.push(rest as u8 | 128);
            rest >>= 7;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(bytes);
}

fn payload_len(header: &[u8]) -> usize {
    number(&[0, header[0], header[1], header[2]]) as usize
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().expect("four bytes"))
}
