//! The access log: one line per response, formatted by the worker, written by a thread of its own.
//!
//! A worker never waits for the log: lines travel in batches over a bounded queue. Lines that do
//! not fit, or cannot be written, are dropped and counted.

mod line;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::request::Request;
use gannet_io::driver::Nanos;
use gannet_io::reserve;

use crate::config::LogFormat;
use crate::exchange::answering::Answered;
use crate::exchange::body::Body;
use crate::limits::{LOG_BATCH_BYTES, LOG_FIELD_MAX, LOG_TARGET_MAX};

use line::Line;
pub(crate) use writer::{LogFactory, LogWriter};

/// The fields of a log line, copied while the request head is available.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) method: Vec<u8>,
    pub(crate) target: Vec<u8>,
    pub(crate) version: &'static str,
    pub(crate) referer: Option<Vec<u8>>,
    pub(crate) user_agent: Option<Vec<u8>>,
    pub(crate) host: Option<Vec<u8>>,
    pub(crate) status: u16,
    /// Bytes of the body to send; for a response that was cut short, those sent.
    pub(crate) body_len: u64,
    /// When the request's head was complete, monotonic nanoseconds.
    pub(crate) began: u64,
    /// The client that a trusted proxy has named.
    pub(crate) client: Option<Box<str>>,
}

impl Record {
    /// The record of a response.
    pub(crate) fn new(request: &Request<'_>, answered: Answered, now: Nanos) -> Self {
        let cut = |bytes: &[u8], most| bytes[..bytes.len().min(most)].to_vec();
        let field = |field| {
            let value = request.fields.get(field);
            value.map(|value| cut(value, LOG_FIELD_MAX))
        };
        Self {
            method: cut(request.method_name, LOG_FIELD_MAX),
            target: cut(request.target.raw, LOG_TARGET_MAX),
            version: request.version.name(),
            referer: field(KnownField::Referer),
            user_agent: field(KnownField::UserAgent),
            host: request.authority.map(|host| cut(host, LOG_FIELD_MAX)),
            status: answered.status.0,
            body_len: answered.body_len,
            began: now.0,
            client: None,
        }
    }

    /// Marks the response as cut short, before these parts of its body were sent.
    pub(crate) fn cut<'b>(&mut self, rest: impl IntoIterator<Item = &'b Body>) {
        let rest = rest.into_iter().map(Body::len).sum();
        self.body_len = self.body_len.saturating_sub(rest);
    }

    /// Bytes of memory the record occupies.
    pub(crate) fn memory(&self) -> u64 {
        let fields = [&self.referer, &self.user_agent, &self.host];
        let fields = fields.into_iter().flatten().map(Vec::capacity);
        let client = self.client.as_ref().map_or(0, |client| client.len());
        let bytes =
            self.method.capacity() + self.target.capacity() + client + fields.sum::<usize>();
        (size_of::<Self>() + bytes) as u64
    }

    /// The record of a response to an invalid request.
    pub(crate) fn rejected(answered: Answered, now: Nanos) -> Self {
        Self {
            method: b"-".to_vec(),
            target: b"-".to_vec(),
            version: "-",
            referer: None,
            user_agent: None,
            host: None,
            status: answered.status.0,
            body_len: answered.body_len,
            began: now.0,
            client: None,
        }
    }
}

/// How a response ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// Every byte was passed to the kernel.
    Whole,
    /// The connection ended first.
    CutShort,
}

/// A worker's end of the log.
pub(crate) struct LogSink {
    format: LogFormat,
    batch: Vec<u8>,
    queue: Option<SyncSender<Vec<u8>>>,
    /// Lines dropped for lack of room, and lines of failed writes that this sink has claimed.
    dropped: u64,
    /// Lines of failed writes, by any worker, that no sink has claimed yet.
    failed: Arc<AtomicU64>,
    lines: u64,
}

impl LogSink {
    fn new(format: LogFormat, queue: Option<SyncSender<Vec<u8>>>, failed: Arc<AtomicU64>) -> Self {
        Self {
            format,
            batch: Vec::new(),
            queue,
            dropped: 0,
            failed,
            lines: 0,
        }
    }

    /// Whether responses are logged: the only test on the hot path.
    pub(crate) fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Adds the line of one response.
    pub(crate) fn add(&mut self, record: &Record, peer: &str, end: End, now: u64, unix_ms: i64) {
        let took_us = now.saturating_sub(record.began) / 1_000;
        let line = Line {
            record,
            peer: record.client.as_deref().unwrap_or(peer),
            end,
            took_us,
            unix_ms,
        };
        match self.format {
            LogFormat::Off => return,
            LogFormat::Pretty { colour } => line.pretty(&mut self.batch, colour),
            LogFormat::Combined => line.combined(&mut self.batch),
            LogFormat::CombinedHost => line.combined_host(&mut self.batch),
            LogFormat::Json => line.json(&mut self.batch),
        }
        self.batch.push(b'\n');
        self.lines += 1;
        if self.batch.len() >= LOG_BATCH_BYTES {
            self.flush();
        }
    }

    /// Lines dropped: queue full or write failed. The first sink to call this claims all failed
    /// writes, so that the sum over workers is right.
    pub(crate) fn dropped(&mut self) -> u64 {
        self.dropped += self.failed.swap(0, Ordering::Relaxed);
        self.dropped
    }

    /// Passes the gathered lines to the writer; called once per turn of the loop.
    pub(crate) fn flush(&mut self) {
        let Some(queue) = &self.queue else { return };
        if self.batch.is_empty() {
            return;
        }
        if reserve::is_spent() {
            // Queued batches behind a slow writer would take memory that connections need.
            self.batch.clear();
            self.dropped += self.lines;
            self.lines = 0;
            return;
        }
        match queue.try_send(std::mem::take(&mut self.batch)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped += self.lines
            }
        }
        self.lines = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: LogFormat) -> String {
        let mut out = Vec::new();
        let record = Record {
            method: b"GET".to_vec(),
            target: b"/a\"b\x1b[31m\n".to_vec(),
            version: "HTTP/1.1",
            referer: None,
            user_agent: Some(b"x\\y".to_vec()),
            host: Some(b"h \"".to_vec()),
            status: 200,
            body_len: 13,
            began: 0,
            client: None,
        };
        let line = Line {
            record: &record,
            peer: "[::1]:99",
            end: End::Whole,
            took_us: 5,
            unix_ms: 951_827_696_042,
        };
        match format {
            LogFormat::Combined => line.combined(&mut out),
            LogFormat::CombinedHost => line.combined_host(&mut out),
            LogFormat::Json => line.json(&mut out),
            _ => line.pretty(&mut out, false),
        }
        String::from_utf8(out).expect("lines are ASCII here")
    }

    #[test]
    fn a_peer_cannot_forge_lines() {
        assert_eq!(
            line(LogFormat::Combined),
            "::1 - - [29/Feb/2000:12:34:56 +0000] \"GET /a\\x22b\\x1B[31m\\x0A HTTP/1.1\" 200 13 \
             \"-\" \"x\\x5Cy\""
        );
        assert_eq!(
            line(LogFormat::CombinedHost),
            format!("h\\x20\\x22 {}", line(LogFormat::Combined))
        );
        assert_eq!(
            line(LogFormat::Json),
            "{\"time\":\"2000-02-29T12:34:56.042Z\",\"peer\":\"[::1]:99\",\"method\":\"GET\",\
             \"target\":\"/a\\\"b\\u001b[31m\\u000a\",\"host\":\"h \\\"\",\"user_agent\":\"x\\\\y\",\
             \"protocol\":\"HTTP/1.1\",\"status\":200,\"body_bytes\":13,\"duration_us\":5,\
             \"whole\":true}"
        );
        assert!(!line(LogFormat::Off).contains('\x1b'));
    }

    /// Bidirectional controls and all other non-ASCII characters are escaped.
    #[test]
    fn lines_are_ascii() {
        let record = Record {
            target: "/\u{202e}gpj.😀\u{7f}".into(),
            ..record()
        };
        let line = Line {
            record: &record,
            peer: "unix",
            end: End::Whole,
            took_us: 0,
            unix_ms: 0,
        };
        let mut out = Vec::new();
        line.json(&mut out);
        let text = String::from_utf8(out).expect("ASCII");
        let target = "\"target\":\"/\\u202egpj.\\ud83d\\ude00\\u007f\"";
        assert!(text.contains(target), "{text}");
    }

    fn record() -> Record {
        Record {
            method: b"GET".to_vec(),
            target: b"/".to_vec(),
            version: "HTTP/1.1",
            referer: None,
            user_agent: None,
            host: None,
            status: 200,
            body_len: 0,
            began: 0,
            client: None,
        }
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (queue, inbox) = std::sync::mpsc::sync_channel(1);
        let mut sink = LogSink::new(LogFormat::Combined, Some(queue), Arc::default());
        for _ in 0..3 {
            sink.add(&record(), "unix", End::Whole, 0, 0);
            sink.flush();
        }
        assert_eq!(sink.dropped(), 2);
        drop(inbox);
    }

    /// Lines lost to a full disk are counted once, by one worker.
    #[test]
    fn a_failed_write_is_counted() {
        let full = std::path::Path::new("/dev/full");
        let (mut writer, factory) =
            LogWriter::start(LogFormat::Combined, Some(full), None).expect("it can be opened");
        writer.begin().expect("a thread");
        let (mut one, mut other) = (factory.sink(), factory.sink());
        drop(factory);
        for _ in 0..3 {
            one.add(&record(), "unix", End::Whole, 0, 0);
        }
        one.flush();
        let failed = Arc::clone(&one.failed);
        drop(one.queue.take());
        drop(other.queue.take());
        writer.finish();
        assert_eq!(failed.load(Ordering::Relaxed), 3);
        assert_eq!((one.dropped(), other.dropped()), (3, 0));
    }
}
