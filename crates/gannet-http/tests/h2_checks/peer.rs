//! A minimal server loop: feeds a machine, answers every request, records what happens.
//!
//! `/N` has N bytes of content; so does `/hold/N`, which is answered only when
//! [`Peer::answer_held`] is called; anything else has 2.

use gannet_http::h2::limits::QUANTUM;
use gannet_http::h2::{Body, Connection, Event, StreamId, Time, Timeouts};
use gannet_http::semantics::date::DateLine;
use gannet_http::semantics::request::{Method, Request};
use gannet_http::semantics::response::ResponseHead;
use gannet_http::semantics::status::Status;
use gannet_testkit::h2::hpack::Decoder;

use super::wire;

/// A machine, the bytes it has not consumed, and the record of what it did.
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    pub(crate) now: Time,
    kept: Vec<u8>,
    scratch: Vec<u8>,
    output: Vec<u8>,
    held: Vec<(StreamId, u64)>,
    decoder: Decoder<'static>,
    /// One line per event (`! ...`) and per frame of output (`< ...`).
    pub(crate) record: String,
    /// Whether requests and output are recorded.
    pub(crate) is_recording: bool,
    has_closed: bool,
}

impl Peer {
    pub(crate) fn new() -> Self {
        Self {
            connection: Connection::new(Time(0), Timeouts::default()),
            now: Time(0),
            kept: Vec::new(),
            scratch: Vec::new(),
            output: Vec::new(),
            held: Vec::new(),
            decoder: Decoder::new(),
            record: String::new(),
            is_recording: true,
            has_closed: false,
        }
    }

    /// Passes bytes to the machine and answers all requests that they complete.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let mut input = std::mem::take(&mut self.kept);
        let mut scratch = std::mem::take(&mut self.scratch);
        input.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let received = self
                .connection
                .receive(self.now, &input[at..], &mut scratch);
            assert!(
                received.consumed <= input.len() - at,
                "no more than was given"
            );
            at += received.consumed;
            match received.event {
                Event::NeedMore if self.connection.wants_input() || at == input.len() => break,
                // Replies wait: there is no room for more before they are sent.
                Event::NeedMore => self.poll(),
                Event::Request { stream, request } => self.receive_request(stream, &request),
                Event::Reject { stream, rejection } => {
                    self.note(format!("! reject {} {:?}", stream.0, rejection.why));
                    self.respond(stream, rejection.status, 0);
                }
                Event::Reset { stream } => {
                    self.held.retain(|(held, _)| *held != stream);
                    self.note(format!("! reset {}", stream.0));
                }
                Event::Closed(error) => {
                    self.note(format!("! closed {} {:?}", error.code.name(), error.why));
                }
            }
        }
        self.scratch = scratch;
        input.drain(..at);
        assert!(
            input.len() <= gannet_http::h2::limits::INPUT_MAX,
            "a caller's buffer is enough"
        );
        self.kept = input;
    }

    fn receive_request(&mut self, stream: StreamId, request: &Request<'_>) {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        let path = text(request.target.path);
        if self.is_recording {
            self.note(format!(
                "! request {} {} {:?} {path}{} host={} {} content={:?} fields={}",
                stream.0,
                text(request.method_name),
                request.target.form,
                request
                    .target
                    .query
                    .map_or(String::new(), |query| format!(" ?{}", text(query))),
                request.authority.map_or("-".to_owned(), text),
                request.version.name(),
                request.content,
                request.fields.iter().count(),
            ));
        }
        let len = path.rsplit('/').next().and_then(|len| len.parse().ok());
        let len = len.unwrap_or(2);
        match request.method {
            Method::Get if path.starts_with("/hold/") => self.held.push((stream, len)),
            Method::Get | Method::Head => self.respond(stream, Status::OK, len),
            Method::Options => self.respond(stream, Status::NO_CONTENT, 0),
            Method::Other => self.respond(stream, Status::METHOD_NOT_ALLOWED, 0),
        }
    }

    /// Answers the requests that were held back.
    #[allow(dead_code, reason = "only conversations hold requests back")]
    pub(crate) fn answer_held(&mut self) {
        for (stream, len) in std::mem::take(&mut self.held) {
            self.respond(stream, Status::OK, len);
        }
    }

    fn respond(&mut self, stream: StreamId, status: Status, len: u64) {
        let head = ResponseHead {
            status,
            ready: None,
            content_length: Some(len),
            fields: &[],
        };
        let date = DateLine::new(0);
        self.connection
            .respond(stream, &head, date.as_bytes(), len, &mut self.output);
    }

    /// Takes all output.
    pub(crate) fn poll(&mut self) {
        self.poll_up_to(u32::MAX);
    }

    /// Takes this many bytes and at most one frame more.
    pub(crate) fn poll_up_to(&mut self, budget: u32) {
        let mut output = std::mem::take(&mut self.output);
        let (mut left, mut bodies) = (budget, Vec::new());
        while left > 0 {
            let before = output.len();
            let room = left.max(QUANTUM / 2);
            let Some(body) = self.connection.poll_frame(self.now, room, &mut output) else {
                break;
            };
            let written = (output.len() - before) as u64 + body.range.end - body.range.start;
            left = left.saturating_sub(u32::try_from(written).unwrap_or(u32::MAX));
            bodies.push((output.len(), body));
        }
        check(&output, &bodies);
        if self.is_recording {
            self.record_output(&output);
        }
        output.clear();
        self.output = output;
        if self.connection.is_closing() && !self.has_closed {
            self.has_closed = true;
            self.note("! closing".to_owned());
        }
    }

    fn record_output(&mut self, output: &[u8]) {
        for frame in wire::frames(output) {
            let line = wire::describe(&frame, &mut self.decoder);
            self.note(format!(
                "< {}",
                line.replace("Thu, 01 Jan 1970 00:00:00 GMT", "D")
            ));
        }
    }

    /// Advances the time, and lets the machine handle timeouts.
    #[allow(dead_code, reason = "only conversations wait")]
    pub(crate) fn wait_ms(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
        if self
            .connection
            .poll_timeout()
            .is_none_or(|at| at > self.now)
        {
            return;
        }
        while let Some(stream) = self.connection.handle_timeout(self.now) {
            self.note(format!("! timeout {}", stream.0));
        }
        if let Some(error) = self.connection.error() {
            self.note(format!("! timeout {:?}", error.why));
        }
    }

    fn note(&mut self, line: String) {
        if self.is_recording {
            self.record.push_str(&line);
            self.record.push('\n');
        }
    }
}

/// Every DATA header is followed by exactly the content that it announces: `bodies`, each with its
/// position.
fn check(output: &[u8], bodies: &[(usize, Body)]) {
    let frames = wire::frames(output);
    let mut data = frames.into_iter().filter(|f| f.kind == wire::DATA);
    for (end, body) in bodies {
        let header = data.next().expect("a header before content");
        assert_eq!(header.stream, body.stream.0);
        assert_eq!(u64::from(header.len), body.range.end - body.range.start);
        assert_eq!(header.flags & 1 != 0, body.is_last);
        assert_eq!(output[end - 9 + 3], wire::DATA, "right before it");
    }
    assert_eq!(data.next(), None, "no header without content");
}
