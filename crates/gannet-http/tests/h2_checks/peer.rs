//! A server reduced to its loop: feeds a machine, answers every request, writes down what happens.
//!
//! `/N` has N bytes of content; `/hold/N` too, but is answered only when [`Peer::answer_held`] is
//! called; anything else has 2.

use gannet_http::h2::{Connection, Event, Output, Segment, StreamId, Time, Timeouts};
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
    output: Output,
    held: Vec<(StreamId, u64)>,
    decoder: Decoder<'static>,
    /// One line per event (`! ...`) and per frame of output (`< ...`).
    pub(crate) record: String,
    /// Whether requests are written down, and output.
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
            output: Output::default(),
            held: Vec::new(),
            decoder: Decoder::new(),
            record: String::new(),
            is_recording: true,
            has_closed: false,
        }
    }

    /// Hands over bytes and answers all requests that they complete.
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
                // Replies wait: there is no room for more before they are put out.
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
        let wire = &mut self.output.wire;
        self.connection
            .respond(stream, &head, date.as_bytes(), len, wire);
    }

    /// Puts out all that can be put out.
    pub(crate) fn poll(&mut self) {
        self.poll_up_to(u32::MAX);
    }

    /// Puts out so many bytes and one frame at the most.
    pub(crate) fn poll_up_to(&mut self, budget: u32) {
        let mut output = std::mem::take(&mut self.output);
        self.connection.poll_output(self.now, budget, &mut output);
        self.check(&output);
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

    /// Every DATA header is followed by exactly the content that it announces.
    fn check(&self, output: &Output) {
        let mut end = 0;
        let mut data = wire::frames(&output.wire)
            .into_iter()
            .filter(|f| f.kind == wire::DATA);
        for segment in &output.segments {
            match segment {
                Segment::Wire(range) => {
                    assert_eq!(range.start, end, "wire segments are in order, without gaps");
                    end = range.end;
                }
                Segment::Body(body) => {
                    let header = data.next().expect("a header before content");
                    assert_eq!(header.stream, body.stream.0);
                    assert_eq!(u64::from(header.len), body.range.end - body.range.start);
                    assert_eq!(header.flags & 1 != 0, body.is_last);
                    let start = end as usize - 9;
                    assert_eq!(output.wire[start + 3], wire::DATA, "right before it");
                }
            }
        }
        assert_eq!(end as usize, output.wire.len());
        assert_eq!(data.next(), None, "no header without content");
    }

    fn record_output(&mut self, output: &Output) {
        for frame in wire::frames(&output.wire) {
            let line = wire::describe(&frame, &mut self.decoder);
            self.note(format!(
                "< {}",
                line.replace("Thu, 01 Jan 1970 00:00:00 GMT", "D")
            ));
        }
    }

    /// Lets time pass, and the machine do what is due.
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
