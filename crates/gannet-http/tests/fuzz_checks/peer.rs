//! A minimal server loop: feeds a machine, answers every request, records what happens.

use gannet_http::h1::{Connection, Event};
use gannet_http::semantics::date::DateLine;
use gannet_http::semantics::request::{Method, Request};
use gannet_http::semantics::response::{FieldBlock, ReadyPart, ResponseHead};
use gannet_http::semantics::status::Status;

/// A machine, the bytes it has not consumed, and the record of what it did.
pub(crate) struct Peer {
    pub(crate) connection: Connection,
    kept: Vec<u8>,
    /// One line per event (`! ...`) and per line of output (`< ...`).
    pub(crate) record: String,
    has_closed: bool,
}

impl Peer {
    pub(crate) fn new() -> Self {
        Self {
            connection: Connection::new(),
            kept: Vec::new(),
            record: String::new(),
            has_closed: false,
        }
    }

    /// Passes bytes to the machine and answers all requests that they complete.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let mut input = std::mem::take(&mut self.kept);
        input.extend_from_slice(bytes);
        loop {
            let step = self.connection.receive(&input);
            let consumed = step.consumed;
            assert!(
                consumed <= input.len(),
                "no more is consumed than was given"
            );
            match step.event {
                Event::NeedMore => {
                    assert_eq!(consumed, 0, "incomplete input is kept");
                    break;
                }
                Event::Closing => {
                    assert_eq!(consumed, input.len(), "nothing is kept at the end");
                    input.clear();
                    break;
                }
                Event::Dropped => assert!(
                    consumed > 0,
                    "an event without progress would repeat forever"
                ),
                Event::Request(request) => {
                    assert!(
                        input[..consumed].starts_with(request.method_name),
                        "a request consumes its head and nothing before it"
                    );
                    assert!(input[..consumed].ends_with(b"\r\n\r\n"), "and all of it");
                    self.record_request(&request);
                    self.answer(status_for(&request));
                }
                Event::Reject(rejection) => {
                    self.record
                        .push_str(&format!("! reject {:?}\n", rejection.why));
                    self.answer(rejection.status);
                    assert!(self.connection.is_closing(), "a rejection is the last");
                }
            }
            input.drain(..consumed);
        }
        self.record_close();
        self.kept = input;
    }

    /// The head did not arrive in time.
    #[allow(dead_code, reason = "only conversations wait")]
    pub(crate) fn time_out(&mut self) {
        self.connection.reject();
        self.answer(Status::REQUEST_TIMEOUT);
        self.record_close();
    }

    fn record_request(&mut self, request: &Request<'_>) {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        self.record.push_str(&format!(
            "! request {} {:?} {}{} host={} {} content={:?} fields={}\n",
            text(request.method_name),
            request.target.form,
            text(request.target.path),
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

    fn answer(&mut self, status: Status) {
        let ready = (status == Status::OK).then_some((OK_BLOCK.into(), ReadyPart::Whole));
        let content_length = status.is_error().then_some(0);
        let head = ResponseHead {
            status,
            ready,
            content_length,
            fields: &[],
        };
        let mut out = Vec::new();
        let has_content = self
            .connection
            .respond(&head, DateLine::new(0).as_bytes(), &mut out);
        if has_content && status == Status::OK {
            out.extend_from_slice(b"ok");
        }
        for line in out.split_inclusive(|&byte| byte == b'\n') {
            self.record
                .push_str(&format!("< {}\n", line.escape_ascii()));
        }
    }

    fn record_close(&mut self) {
        if self.connection.is_closing() && !self.has_closed {
            self.has_closed = true;
            let how = if self.connection.is_lingering() {
                " after lingering"
            } else {
                ""
            };
            self.record.push_str(&format!("! close{how}\n"));
        }
    }
}

fn status_for(request: &Request<'_>) -> Status {
    match request.method {
        Method::Get | Method::Head => Status::OK,
        Method::Options => Status::NO_CONTENT,
        Method::Other => Status::METHOD_NOT_ALLOWED,
    }
}

const OK_BLOCK: FieldBlock<'_> = FieldBlock {
    bytes: b"Content-Length: 2\r\n",
    length_end: 19,
    shared_start: 19,
    common: b"",
    common_shared_start: 0,
};
