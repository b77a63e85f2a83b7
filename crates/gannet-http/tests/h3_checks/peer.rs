//! A minimal server: passes on the bytes of streams, answers every request, and records the events.
//!
//! `/N` has N bytes of content, anything else has 2.

use std::collections::BTreeMap;

use gannet_http::h2::Time;
use gannet_http::h3::connection::UniEvent;
use gannet_http::h3::limits::{MEMORY_MAX, REQUEST_MEMORY_MAX};
use gannet_http::h3::request::Event;
use gannet_http::h3::{Connection, ConnectionError, Fault, RequestStream, StreamId};
use gannet_http::semantics::date::DateLine;
use gannet_http::semantics::request::{Content, Method, Request};
use gannet_http::semantics::response::ResponseHead;
use gannet_http::semantics::status::Status;
use gannet_testkit::h3::Answer;

/// An event of a stream.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    /// Bytes arrive, and the end if the flag is set.
    Bytes(u64, Vec<u8>, bool),
    /// The client resets it.
    Reset(u64),
}

impl Given {
    pub(crate) fn bytes(stream: u64, bytes: &[u8]) -> Self {
        Self::Bytes(stream, bytes.to_vec(), false)
    }

    pub(crate) fn end(stream: u64, bytes: &[u8]) -> Self {
        Self::Bytes(stream, bytes.to_vec(), true)
    }
}

/// A connection and the record of its actions.
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    requests: BTreeMap<u64, RequestStream>,
    /// The next stream of each kind: requests, and unidirectional ones.
    next: [u64; 2],
    scratch: Vec<u8>,
    /// One line per event and response.
    pub(crate) record: Vec<String>,
    has_closed: bool,
}

impl Peer {
    pub(crate) fn new() -> Self {
        Self {
            connection: Connection::new(Time(0)),
            requests: BTreeMap::new(),
            next: [0, 2],
            scratch: Vec::new(),
            record: Vec::new(),
            has_closed: false,
        }
    }

    /// Processes an event.
    pub(crate) fn give(&mut self, given: &Given) {
        let stream = match given {
            Given::Bytes(stream, _, _) | Given::Reset(stream) => *stream,
        };
        self.open_up_to(stream);
        match given {
            Given::Bytes(stream, bytes, is_fin) if stream & 2 == 0 => {
                self.receive_request(*stream, bytes, *is_fin);
            }
            Given::Bytes(stream, bytes, is_fin) => self.receive_uni(*stream, bytes, *is_fin),
            Given::Reset(stream) if stream & 2 == 0 => {
                if self.requests.remove(stream).is_some() {
                    let result = self.connection.cancelled();
                    self.check(result);
                }
            }
            Given::Reset(stream) => {
                let result = self.connection.reset_uni(StreamId(*stream));
                self.check(result);
            }
        }
        assert!(self.connection.memory() <= MEMORY_MAX, "bounded");
    }

    /// QUIC opens streams in order.
    fn open_up_to(&mut self, stream: u64) {
        let next = usize::from(stream & 2 != 0);
        while self.next[next] <= stream {
            let id = StreamId(self.next[next]);
            self.next[next] += 4;
            if stream & 2 != 0 {
                let result = self.connection.open_uni(id);
                self.check(result);
                continue;
            }
            match self.connection.open_request(id) {
                Ok(request) => drop(self.requests.insert(id.0, request)),
                Err(fault) => self.take_fault(id.0, fault),
            }
        }
    }

    fn receive_uni(&mut self, stream: u64, bytes: &[u8], is_fin: bool) {
        let mut at = 0;
        loop {
            let result = self
                .connection
                .receive_uni(StreamId(stream), &bytes[at..], is_fin);
            let Some(received) = self.check(result) else {
                return;
            };
            at += received.consumed;
            match received.event {
                UniEvent::NeedMore => break,
                UniEvent::Unwanted => {
                    self.note(format!("unwanted {stream}"));
                    break;
                }
                UniEvent::Priority { stream, priority } => {
                    let incremental = if priority.is_incremental { " i" } else { "" };
                    self.note(format!(
                        "priority {} u={}{incremental}",
                        stream.0, priority.urgency
                    ));
                    if let Some(request) = self.requests.get_mut(&stream.0) {
                        request.prioritize(priority);
                        assert_eq!(request.priority(), priority);
                    }
                }
            }
        }
        assert_eq!(at, bytes.len(), "all is consumed");
    }

    fn receive_request(&mut self, stream: u64, bytes: &[u8], is_fin: bool) {
        // It no longer exists if it was refused or has failed.
        let Some(mut request) = self.requests.remove(&stream) else {
            return;
        };
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut at = 0;
        let fault = loop {
            let received =
                request.receive(&mut self.connection, &bytes[at..], is_fin, &mut scratch);
            assert!(request.memory() <= REQUEST_MEMORY_MAX, "bounded");
            let received = match received {
                Ok(received) => received,
                Err(fault) => break Some(fault),
            };
            at += received.consumed;
            match received.event {
                Event::NeedMore => break None,
                Event::End => {
                    self.note(format!("end {stream} after {}", request.content_received()));
                    assert!(!request.wants_input());
                    break None;
                }
                Event::Reject(rejection) => {
                    self.note(format!("reject {stream} {:?}", rejection.why));
                    self.respond(stream, &mut request, rejection.status, 2);
                }
                Event::Request(parsed) => {
                    self.note(describe(stream, &parsed, &request));
                    let path = std::str::from_utf8(parsed.target.path).unwrap_or_default();
                    let len = path.get(1..).and_then(|len| len.parse().ok()).unwrap_or(2);
                    let status = match parsed.method {
                        Method::Get | Method::Head => Status::OK,
                        Method::Options => Status::NO_CONTENT,
                        Method::Other => Status::METHOD_NOT_ALLOWED,
                    };
                    self.respond(stream, &mut request, status, len);
                }
            }
        };
        self.scratch = scratch;
        match fault {
            Some(fault) => self.take_fault(stream, fault),
            None => {
                assert_eq!(at, bytes.len(), "all is consumed");
                self.requests.insert(stream, request);
            }
        }
    }

    /// Answers, and verifies the response with an independent parser.
    fn respond(&mut self, stream: u64, request: &mut RequestStream, status: Status, len: u64) {
        let head = ResponseHead {
            status,
            ready: None,
            content_length: Some(len),
            fields: &[],
        };
        let date = DateLine::new(0);
        let mut wire = Vec::new();
        let has_content = request.respond(&head, date.as_bytes(), len, &mut wire);
        let (answer, rest) = Answer::parse_part(&wire);
        assert_eq!(rest.is_empty(), !has_content, "the head of a DATA frame");
        let mut rest = rest;
        if has_content {
            use gannet_testkit::h3::take_varint;
            let header = (take_varint(&mut rest), take_varint(&mut rest));
            assert_eq!(header, (Some(0), Some(len)));
        }
        assert!(rest.is_empty() && answer.body.is_empty());
        assert_eq!(answer.field("date"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
        let sent = if has_content { len } else { 0 };
        self.note(format!("answer {stream} {} {sent}", answer.status));
        self.connection.answered(sent);
    }

    fn take_fault(&mut self, stream: u64, fault: Fault) {
        match fault {
            Fault::Connection(error) => drop(self.check::<()>(Err(error))),
            Fault::Stream(error) => {
                self.note(format!(
                    "reset {stream} {} {}",
                    error.code.name(),
                    error.why.name()
                ));
            }
        }
    }

    /// Records the end of the connection; all later errors must be equal.
    pub(crate) fn check<T>(&mut self, result: Result<T, ConnectionError>) -> Option<T> {
        match result {
            Ok(value) => {
                assert!(!self.has_closed, "nothing is done after the end");
                Some(value)
            }
            Err(error) => {
                assert_eq!(self.connection.error(), Some(error));
                if !self.has_closed {
                    self.has_closed = true;
                    self.note(format!("close {} {}", error.code.name(), error.why.name()));
                }
                None
            }
        }
    }

    fn note(&mut self, line: String) {
        self.record.push(line);
    }
}

fn describe(stream: u64, request: &Request<'_>, state: &RequestStream) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    let mut line = format!(
        "request {stream} {} {} {}",
        text(request.method_name),
        text(request.target.raw),
        request.authority.map_or("-".to_owned(), text),
    );
    assert_eq!(request.version.name(), "HTTP/3.0");
    let count = request.fields.iter().count();
    if count > 0 {
        line += &format!(" fields={count}");
    }
    if let Content::Length(len) = request.content {
        line += &format!(" content={len}");
    }
    let priority = state.priority();
    if priority != Default::default() {
        let incremental = if priority.is_incremental { " i" } else { "" };
        line += &format!(" u={}{incremental}", priority.urgency);
    }
    line
}
