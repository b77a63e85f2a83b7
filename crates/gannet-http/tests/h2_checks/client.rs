//! A client in memory that obeys the protocol while a list of bytes directs it: opens streams,
//! moves windows, resets, prioritizes, lets the server send a little or a lot.
//!
//! It tracks every window and every stream, and checks each range of content against its records:
//! delivered once, in order, within both windows, to the end.

use std::collections::BTreeMap;

use gannet_http::h2::limits::{MEMORY_MAX, STREAMS_MAX};
use gannet_http::h2::{Body, Connection, Event, StreamId, Time, Timeouts};
use gannet_http::semantics::date::DateLine;
use gannet_http::semantics::request::Content;
use gannet_http::semantics::response::ResponseHead;
use gannet_http::semantics::status::Status;
use gannet_testkit::h2::hpack;

use super::wire;

/// A stream in the client's records.
#[derive(Debug)]
struct Expected {
    len: u64,
    received: u64,
    window: i64,
    /// Request content still to be sent.
    request_left: u32,
    is_request_ended: bool,
    is_response_ended: bool,
}

/// The client, and the server's machine with what it needs.
pub(crate) struct Client {
    connection: Connection,
    encoder: hpack::Encoder<'static>,
    oracle: hpack::Decoder<'static>,
    streams: BTreeMap<u32, Expected>,
    next_stream: u32,
    window: i64,
    initial_window: i64,
    upload_window: i64,
    input: Vec<u8>,
    wire: Vec<u8>,
    paused: Vec<u32>,
    now: Time,
    finished: u32,
}

impl Client {
    /// Performs the operations, then opens all windows and completes every stream.
    pub(crate) fn run(bytes: &[u8]) -> u32 {
        let mut client = Self::new();
        for operation in bytes.chunks_exact(3) {
            client.operate(
                operation[0],
                u16::from_le_bytes([operation[1], operation[2]]),
            );
            assert!(client.connection.memory() <= MEMORY_MAX, "bounded");
        }
        client.finish();
        client.finished
    }

    fn new() -> Self {
        let mut client = Self {
            connection: Connection::new(Time(0), Timeouts::default()),
            encoder: hpack::Encoder::new(),
            oracle: hpack::Decoder::new(),
            streams: BTreeMap::new(),
            next_stream: 1,
            window: 65_535,
            initial_window: 65_535,
            upload_window: 65_535,
            input: wire::opening(&[]),
            wire: Vec::new(),
            paused: Vec::new(),
            now: Time(0),
            finished: 0,
        };
        client.deliver(usize::MAX);
        client
    }

    fn operate(&mut self, operation: u8, number: u16) {
        // Enough time between operations that no mix of them is a flood.
        self.now = self.now.plus_ms(2_000);
        let small = u32::from(number);
        match operation % 16 {
            0..=3 => self.open(u64::from(number) * 7, operation >= 128, small),
            4 => self.reset(number),
            5 => self.grow(number),
            6 => {
                self.window += i64::from(small) + 1;
                self.input.extend(wire::window_update(0, small + 1));
            }
            7 => self.set_initial_window(small),
            8 => self.reprioritize(number),
            9 => self.input.extend(wire::frame(wire::PING, 0, 0, &[7; 8])),
            10 => self.upload(number),
            11 => self.pause_or_resume(number),
            12 => self.deliver(usize::from(number % 200)),
            13 => self.deliver(usize::MAX),
            14 => self.put_out(small * 2),
            _ => self.put_out(small / 64),
        }
    }

    /// Opens a stream for content of this length, unless the limit is reached.
    fn open(&mut self, len: u64, has_content: bool, number: u32) {
        let open = self
            .streams
            .values()
            .filter(|stream| !stream.is_closed())
            .count();
        if open >= STREAMS_MAX as usize - 1 {
            return;
        }
        let stream = self.next_stream;
        self.next_stream += 2;
        let path = format!("/{len}");
        let priority = format!(
            "u={}{}",
            number % 8,
            if number & 8 == 0 { "" } else { ", i" }
        );
        let fields: [(&[u8], &[u8]); 6] = [
            (b":method", b"GET"),
            (b":scheme", b"https"),
            (b":authority", b"example.org"),
            (b":path", path.as_bytes()),
            (b"priority", priority.as_bytes()),
            (b"user-agent", b"a client of the tests"),
        ];
        let block = self.encoder.encode(fields);
        let end_stream = u8::from(!has_content);
        // Sometimes in two frames.
        if number.is_multiple_of(5) {
            let (first, rest) = block.split_at(block.len() / 2);
            self.input
                .extend(wire::frame(wire::HEADERS, end_stream, stream, first));
            self.input
                .extend(wire::frame(wire::CONTINUATION, 4, stream, rest));
        } else {
            self.input
                .extend(wire::frame(wire::HEADERS, 4 | end_stream, stream, &block));
        }
        let expected = Expected {
            len,
            received: 0,
            window: self.initial_window,
            request_left: if has_content { number % 5000 } else { 0 },
            is_request_ended: !has_content,
            is_response_ended: false,
        };
        self.streams.insert(stream, expected);
    }

    /// An open stream, chosen by a number.
    fn choose(&self, number: u16) -> Option<u32> {
        let open: Vec<_> = self
            .streams
            .iter()
            .filter(|(_, s)| !s.is_closed())
            .collect();
        let index = usize::from(number).checked_rem(open.len())?;
        Some(*open[index].0)
    }

    fn reset(&mut self, number: u16) {
        if let Some(stream) = self.choose(number) {
            let code = wire::frame(wire::RST_STREAM, 0, stream, &8u32.to_be_bytes());
            self.input.extend(code);
            // Anything in flight for it is irrelevant.
            self.deliver(usize::MAX);
            self.streams.remove(&stream);
        }
    }

    fn grow(&mut self, number: u16) {
        if let Some(stream) = self.choose(number) {
            let increment = 1 + u32::from(number) * 3;
            self.input.extend(wire::window_update(stream, increment));
            let expected = self.streams.get_mut(&stream).expect("an open stream");
            expected.window += i64::from(increment);
        }
    }

    fn set_initial_window(&mut self, size: u32) {
        self.input.extend(wire::settings_frame(&[(4, size)]));
        for stream in self.streams.values_mut() {
            stream.window += i64::from(size) - self.initial_window;
        }
        self.initial_window = size.into();
        // Client and server must agree before the server sends more.
        self.deliver(usize::MAX);
    }

    fn reprioritize(&mut self, number: u16) {
        let stream = self.choose(number).unwrap_or(self.next_stream);
        let mut payload = stream.to_be_bytes().to_vec();
        payload.extend(format!("u={}, i=?{}", number % 8, number >> 8 & 1).as_bytes());
        self.input
            .extend(wire::frame(wire::PRIORITY_UPDATE, 0, 0, &payload));
    }

    /// Sends some request content, or ends it.
    fn upload(&mut self, number: u16) {
        let Some(stream) = self.choose(number) else {
            return;
        };
        let upload_window = self.upload_window;
        let expected = self.streams.get_mut(&stream).expect("an open stream");
        if expected.is_request_ended {
            return;
        }
        let len = expected
            .request_left
            .min(u32::from(number))
            .min(upload_window as u32);
        expected.request_left -= len;
        expected.is_request_ended = expected.request_left == 0;
        self.upload_window -= i64::from(len);
        let flags = u8::from(expected.is_request_ended);
        self.input.extend(wire::frame(
            wire::DATA,
            flags,
            stream,
            &vec![0; len as usize],
        ));
        self.forget_closed(stream);
    }

    fn pause_or_resume(&mut self, number: u16) {
        if let Some(stream) = self.paused.pop() {
            self.connection.resume(StreamId(stream));
        } else if let Some(stream) = self.choose(number) {
            self.connection.pause(StreamId(stream));
            self.paused.push(stream);
        }
    }

    /// Delivers this many bytes to the server.
    fn deliver(&mut self, count: usize) {
        let mut scratch = Vec::new();
        let end = count.min(self.input.len());
        let mut at = 0;
        loop {
            let received = self
                .connection
                .receive(self.now, &self.input[at..end], &mut scratch);
            at += received.consumed;
            match received.event {
                Event::NeedMore if self.connection.wants_input() => break,
                Event::NeedMore => self.put_out(0),
                Event::Request { stream, request } => {
                    let len = request.target.path[1..]
                        .iter()
                        .fold(0, |len, digit| len * 10 + u64::from(digit - b'0'));
                    assert_eq!(request.authority, Some(&b"example.org"[..]));
                    assert_eq!(request.fields.iter().count(), 2);
                    assert!(matches!(request.content, Content::None | Content::Chunked));
                    self.respond(stream, len);
                }
                Event::Reset { stream } => {
                    assert!(self.streams.contains_key(&stream.0), "a stream of ours");
                }
                other => panic!("the client keeps to the protocol: {other:?}"),
            }
        }
        self.input.drain(..at);
    }

    fn respond(&mut self, stream: StreamId, len: u64) {
        let head = ResponseHead {
            status: Status::OK,
            ready: None,
            content_length: Some(len),
            fields: &[("x-stream", b"a value")],
        };
        let date = DateLine::new(0);
        let has_content =
            self.connection
                .respond(stream, &head, date.as_bytes(), len, &mut self.wire);
        assert_eq!(has_content, len > 0);
    }

    /// Takes this many bytes from the server, and reads them.
    fn put_out(&mut self, budget: u32) {
        let mut left = i64::from(budget);
        loop {
            let room = u32::try_from(left.max(0)).unwrap_or(0);
            let body = self.connection.poll_frame(self.now, room, &mut self.wire);
            let wire = std::mem::take(&mut self.wire);
            for frame in wire::frames(&wire) {
                self.read(&frame, body.as_ref());
            }
            left -= wire.len() as i64;
            match body {
                Some(body) => left -= (body.range.end - body.range.start) as i64,
                None => return,
            }
        }
    }

    fn read(&mut self, frame: &wire::Frame, body: Option<&Body>) {
        let known = self.streams.get_mut(&frame.stream);
        match (frame.kind, known) {
            (wire::HEADERS, known) => {
                let fields = self
                    .oracle
                    .decode(&frame.payload)
                    .expect("a block that decodes");
                assert_eq!(fields[0], (b":status".to_vec(), b"200".to_vec()));
                if let Some(expected) = known {
                    let length = (b"content-length".to_vec(), expected.len.to_string().into());
                    assert!(fields.contains(&length));
                    assert_eq!(frame.flags & 1 != 0, expected.len == 0);
                    expected.is_response_ended = expected.len == 0;
                }
                self.forget_closed(frame.stream);
            }
            (wire::DATA, None) => self.window -= i64::from(frame.len),
            (wire::DATA, Some(expected)) => {
                let body = body.expect("content is named with its header");
                assert_eq!(body.stream, StreamId(frame.stream));
                assert_eq!(
                    body.range,
                    expected.received..expected.received + u64::from(frame.len)
                );
                assert!(frame.len > 0 && i64::from(frame.len) <= expected.window);
                expected.window -= i64::from(frame.len);
                self.window -= i64::from(frame.len);
                assert!(self.window >= 0, "within the connection's window");
                expected.received = body.range.end;
                assert_eq!(body.is_last, expected.received == expected.len);
                expected.is_response_ended = body.is_last;
                self.forget_closed(frame.stream);
            }
            (wire::WINDOW_UPDATE, _) => {
                assert_eq!(frame.stream, 0, "a stream's window is not given back");
                self.upload_window += i64::from(wire::number(&frame.payload));
            }
            (wire::SETTINGS | wire::PING, _) => {}
            _ => panic!("the client keeps to the protocol: {frame:?}"),
        }
    }

    fn forget_closed(&mut self, stream: u32) {
        if self.streams.get(&stream).is_some_and(Expected::is_closed) {
            self.streams.remove(&stream);
            self.finished += 1;
        }
    }

    /// Opens every closed window, and waits for everything under way.
    fn finish(&mut self) {
        for stream in std::mem::take(&mut self.paused) {
            self.connection.resume(StreamId(stream));
        }
        self.deliver(usize::MAX);
        let unended: Vec<_> = self
            .streams
            .iter()
            .filter(|(_, s)| !s.is_request_ended)
            .collect();
        for stream in unended.into_iter().map(|(id, _)| *id).collect::<Vec<_>>() {
            self.input.extend(wire::frame(wire::DATA, 1, stream, &[]));
            let expected = self
                .streams
                .get_mut(&stream)
                .expect("a stream in the books");
            expected.is_request_ended = true;
            self.forget_closed(stream);
        }
        let streams: Vec<_> = self.streams.keys().copied().collect();
        for stream in streams {
            self.input.extend(wire::window_update(stream, 1 << 24));
            let expected = self
                .streams
                .get_mut(&stream)
                .expect("a stream in the books");
            expected.window += 1 << 24;
        }
        self.window += 1 << 29;
        self.input.extend(wire::window_update(0, 1 << 29));
        self.deliver(usize::MAX);
        self.put_out(u32::MAX);
        assert!(self.streams.is_empty(), "not delivered: {:?}", self.streams);
        assert_eq!(self.connection.stream_count(), 0);
        assert!(self.connection.is_idle() && !self.connection.wants_output());
    }
}

impl Expected {
    fn is_closed(&self) -> bool {
        self.is_request_ended && self.is_response_ended
    }
}
