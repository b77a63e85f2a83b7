//! The access log: one line per response, made by the worker, written by a thread of its own.
//!
//! A worker never waits for the log: lines travel in batches over a bounded queue, and what finds
//! no room is dropped and counted.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError};
use std::thread::JoinHandle;

use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::request::Request;
use gannet_io::driver::Nanos;

use crate::config::LogFormat;
use crate::limits::{LOG_BATCH_BYTES, LOG_FINISH_MS, LOG_QUEUE_MAX};
use crate::serve::Answered;

/// What a log line says of a request, copied while its head is at hand.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) method: Vec<u8>,
    pub(crate) target: Vec<u8>,
    pub(crate) version: &'static str,
    pub(crate) referer: Option<Vec<u8>>,
    pub(crate) user_agent: Option<Vec<u8>>,
    pub(crate) host: Option<Vec<u8>>,
    pub(crate) status: u16,
    /// Bytes of the body that are to go out.
    pub(crate) body_len: u64,
    /// When the request's head was complete, monotonic nanoseconds.
    pub(crate) began: u64,
}

impl Record {
    /// What is to be said of an answer.
    pub(crate) fn new(request: &Request<'_>, answered: Answered, now: Nanos) -> Self {
        let field = |field| request.fields.get(field).map(<[u8]>::to_vec);
        Self {
            method: request.method_name.to_vec(),
            target: request.target.raw.to_vec(),
            version: request.version.name(),
            referer: field(KnownField::Referer),
            user_agent: field(KnownField::UserAgent),
            host: request.authority.map(<[u8]>::to_vec),
            status: answered.status.0,
            body_len: answered.body_len,
            began: now.0,
        }
    }

    /// What is to be said of the answer to something that was no request.
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
        }
    }
}

/// How a response ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum End {
    /// Every byte was handed to the kernel.
    Whole,
    /// The connection ended before.
    CutShort,
}

/// A worker's end of the log.
pub(crate) struct LogSink {
    format: LogFormat,
    batch: Vec<u8>,
    queue: Option<SyncSender<Vec<u8>>>,
    /// Lines dropped for lack of room.
    pub(crate) dropped: u64,
    lines: u64,
}

impl LogSink {
    /// Whether responses are logged at all: the one test on the hot path.
    pub(crate) fn is_on(&self) -> bool {
        self.queue.is_some()
    }

    /// Adds the line of one response.
    pub(crate) fn add(&mut self, record: &Record, peer: &str, end: End, now: u64, unix: i64) {
        let took_us = now.saturating_sub(record.began) / 1_000;
        let line = Line {
            record,
            peer,
            end,
            took_us,
            unix,
        };
        match self.format {
            LogFormat::Off => return,
            LogFormat::Pretty { colour } => line.pretty(&mut self.batch, colour),
            LogFormat::Combined => line.combined(&mut self.batch),
            LogFormat::Json => line.json(&mut self.batch),
        }
        self.batch.push(b'\n');
        self.lines += 1;
        if self.batch.len() >= LOG_BATCH_BYTES {
            self.flush();
        }
    }

    /// Hands what was gathered to the writer; called once per turn of the loop.
    pub(crate) fn flush(&mut self) {
        let Some(queue) = &self.queue else { return };
        if self.batch.is_empty() {
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

struct Line<'a> {
    record: &'a Record,
    peer: &'a str,
    end: End,
    took_us: u64,
    unix: i64,
}

impl Line<'_> {
    /// The address without the port, as the combined format wants it.
    fn peer_address(&self) -> &str {
        self.peer
            .rsplit_once(':')
            .map_or(self.peer, |(address, _)| {
                address.trim_start_matches('[').trim_end_matches(']')
            })
    }

    fn combined(&self, out: &mut Vec<u8>) {
        let r = self.record;
        out.extend_from_slice(self.peer_address().as_bytes());
        out.extend_from_slice(b" - - [");
        let t = Civil::from_unix(self.unix);
        let month = MONTHS[usize::from(t.month - 1)];
        push(
            out,
            format_args!(
                "{:02}/{month}/{:04}:{:02}:{:02}:{:02} +0000] \"",
                t.day, t.year, t.hour, t.minute, t.second
            ),
        );
        escape_combined(&r.method, out);
        out.push(b' ');
        escape_combined(&r.target, out);
        push(
            out,
            format_args!(" {}\" {} {} \"", r.version, r.status, r.body_len),
        );
        escape_combined(r.referer.as_deref().unwrap_or(b"-"), out);
        out.extend_from_slice(b"\" \"");
        escape_combined(r.user_agent.as_deref().unwrap_or(b"-"), out);
        out.push(b'"');
    }

    fn json(&self, out: &mut Vec<u8>) {
        let r = self.record;
        let t = Civil::from_unix(self.unix);
        push(
            out,
            format_args!(
                "{{\"time\":\"{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z\",\"peer\":",
                t.year, t.month, t.day, t.hour, t.minute, t.second
            ),
        );
        json_string(self.peer.as_bytes(), out);
        for (key, value) in [
            ("method", Some(&r.method)),
            ("target", Some(&r.target)),
            ("host", r.host.as_ref()),
            ("referer", r.referer.as_ref()),
            ("user_agent", r.user_agent.as_ref()),
        ] {
            if let Some(value) = value {
                push(out, format_args!(",\"{key}\":"));
                json_string(value, out);
            }
        }
        push(
            out,
            format_args!(
                ",\"protocol\":\"{}\",\"status\":{},\"body_bytes\":{},\"duration_us\":{},\"whole\":{}}}",
                r.version,
                r.status,
                r.body_len,
                self.took_us,
                self.end == End::Whole
            ),
        );
    }

    fn pretty(&self, out: &mut Vec<u8>, colour: bool) {
        let r = self.record;
        let t = Civil::from_unix(self.unix);
        let paint = match r.status {
            _ if !colour => ("", ""),
            200..=299 => ("\x1b[32m", "\x1b[0m"),
            300..=399 => ("\x1b[36m", "\x1b[0m"),
            400..=499 => ("\x1b[33m", "\x1b[0m"),
            _ => ("\x1b[31m", "\x1b[0m"),
        };
        push(
            out,
            format_args!("{:02}:{:02}:{:02}  ", t.hour, t.minute, t.second),
        );
        push(out, format_args!("{}{}{}  ", paint.0, r.status, paint.1));
        escape_combined(&r.method, out);
        out.push(b' ');
        escape_combined(&r.target, out);
        push(
            out,
            format_args!("  {}  {}", Size(r.body_len), Duration(self.took_us)),
        );
        if self.end == End::CutShort {
            out.extend_from_slice(b"  (cut short)");
        }
    }
}

fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing into a vector cannot fail.
    let _ = out.write_fmt(text);
}

/// Bytes in a unit that people read.
struct Size(u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let n = self.0 as f64;
        match self.0 {
            0..1_000 => write!(f, "{} B", self.0),
            1_000..1_000_000 => write!(f, "{:.1} kB", n / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{:.1} MB", n / 1e6),
            _ => write!(f, "{:.2} GB", n / 1e9),
        }
    }
}

/// Microseconds in a unit that people read.
struct Duration(u64);

impl std::fmt::Display for Duration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0..1_000 => write!(f, "{} µs", self.0),
            1_000..1_000_000 => write!(f, "{:.1} ms", self.0 as f64 / 1e3),
            _ => write!(f, "{:.1} s", self.0 as f64 / 1e6),
        }
    }
}

/// Bytes that could break a line or a quoted string become `\xHH`, so a peer cannot forge lines
/// or send control sequences to a terminal.
fn escape_combined(bytes: &[u8], out: &mut Vec<u8>) {
    for &b in bytes {
        match b {
            b'"' | b'\\' | 0..=0x1f | 0x7f..=0xff => push(out, format_args!("\\x{b:02X}")),
            _ => out.push(b),
        }
    }
}

fn json_string(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for c in String::from_utf8_lossy(bytes).chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            c if c.is_control() => push(out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// A moment of UTC, taken apart.
struct Civil {
    year: i64,
    month: u8,
    day: u8,
    hour: u8,
    minute: u8,
    second: u8,
}

impl Civil {
    /// Days are counted in eras of 400 years that begin on 1 March, so that the leap day is the
    /// last of its year.
    fn from_unix(unix: i64) -> Self {
        let (days, seconds) = (unix.div_euclid(86_400), unix.rem_euclid(86_400));
        let days = days + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = (month_from_march + 2) % 12 + 1;
        Self {
            year: era * 400 + year_of_era + i64::from(month <= 2),
            month: month as u8,
            day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u8,
            hour: (seconds / 3_600) as u8,
            minute: (seconds / 60 % 60) as u8,
            second: (seconds % 60) as u8,
        }
    }
}

/// What the writer thread is told besides lines.
enum Order {
    Reopen,
}

/// The writer thread and the way to it.
pub(crate) struct LogWriter {
    queue: Option<SyncSender<Vec<u8>>>,
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
    /// Its other end is dropped when the thread has ended.
    ended: Receiver<()>,
}

impl LogWriter {
    /// Starts the writer; with [`LogFormat::Off`] there is no thread.
    ///
    /// # Errors
    /// When the log file cannot be opened.
    pub(crate) fn start(format: LogFormat, path: Option<&Path>) -> io::Result<(Self, LogFactory)> {
        let (orders, order_inbox) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel();
        if format == LogFormat::Off {
            let writer = Self {
                queue: None,
                orders,
                thread: None,
                ended,
            };
            return Ok((
                writer,
                LogFactory {
                    format,
                    queue: None,
                },
            ));
        }
        let target = Target::open(path)?;
        let (queue, lines) = std::sync::mpsc::sync_channel::<Vec<u8>>(LOG_QUEUE_MAX);
        let thread = std::thread::Builder::new()
            .name("gannet-log".into())
            .spawn(move || {
                write_lines(target, &lines, &order_inbox);
                drop(end);
            })?;
        let factory = LogFactory {
            format,
            queue: Some(queue.clone()),
        };
        Ok((
            Self {
                queue: Some(queue),
                orders,
                thread: Some(thread),
                ended,
            },
            factory,
        ))
    }

    /// Has the writer open its file anew (after a rotation).
    pub(crate) fn reopen(&self) {
        // The writer is gone only when the server is.
        let _ = self.orders.send(Order::Reopen);
        if let Some(queue) = &self.queue {
            let _ = queue.try_send(Vec::new());
        }
    }

    /// Waits until everything handed over is written; not for ever, because whoever reads a pipe
    /// may have stopped doing so. All sinks must be gone.
    pub(crate) fn finish(mut self) {
        drop(self.queue.take());
        let patience = std::time::Duration::from_millis(LOG_FINISH_MS);
        if self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
            return;
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Makes the sinks of the workers.
#[derive(Clone)]
pub(crate) struct LogFactory {
    format: LogFormat,
    queue: Option<SyncSender<Vec<u8>>>,
}

impl LogFactory {
    /// A sink for one worker.
    pub(crate) fn sink(&self) -> LogSink {
        LogSink {
            format: self.format,
            batch: Vec::new(),
            queue: self.queue.clone(),
            dropped: 0,
            lines: 0,
        }
    }
}

enum Target {
    Stdout,
    File { path: PathBuf, file: std::fs::File },
}

impl Target {
    fn open(path: Option<&Path>) -> io::Result<Self> {
        let Some(path) = path else {
            return Ok(Self::Stdout);
        };
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self::File {
            path: path.to_owned(),
            file,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => io::stdout().lock().write_all(bytes),
            Self::File { file, .. } => file.write_all(bytes),
        }
    }

    fn reopen(&mut self) {
        let Self::File { path, file } = self else {
            return;
        };
        match OpenOptions::new().create(true).append(true).open(&*path) {
            Ok(new) => *file = new,
            Err(error) => complain(&error, "reopen"),
        }
    }
}

fn complain(error: &io::Error, doing: &str) {
    let _ = writeln!(
        io::stderr(),
        "gannet: cannot {doing} the access log: {error}"
    );
}

fn write_lines(mut target: Target, lines: &Receiver<Vec<u8>>, orders: &Receiver<Order>) {
    // A full disk must not fill standard error as well: one complaint until a write succeeds.
    let mut complained = false;
    while let Ok(batch) = lines.recv() {
        if let Ok(Order::Reopen) = orders.try_recv() {
            target.reopen();
        }
        match target.write(&batch) {
            Ok(()) => complained = false,
            Err(error) if !complained => {
                complained = true;
                complain(&error, "write");
            }
            Err(_) => {}
        }
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
            host: Some(b"h".to_vec()),
            status: 200,
            body_len: 13,
            began: 0,
        };
        let line = Line {
            record: &record,
            peer: "[::1]:99",
            end: End::Whole,
            took_us: 5,
            unix: 951_827_696,
        };
        match format {
            LogFormat::Combined => line.combined(&mut out),
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
            line(LogFormat::Json),
            "{\"time\":\"2000-02-29T12:34:56Z\",\"peer\":\"[::1]:99\",\"method\":\"GET\",\
             \"target\":\"/a\\\"b\\u001b[31m\\u000a\",\"host\":\"h\",\"user_agent\":\"x\\\\y\",\
             \"protocol\":\"HTTP/1.1\",\"status\":200,\"body_bytes\":13,\"duration_us\":5,\
             \"whole\":true}"
        );
        assert!(!line(LogFormat::Off).contains('\x1b'));
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let (queue, inbox) = std::sync::mpsc::sync_channel(1);
        let factory = LogFactory {
            format: LogFormat::Combined,
            queue: Some(queue),
        };
        let mut sink = factory.sink();
        let record = Record {
            method: b"GET".to_vec(),
            target: b"/".to_vec(),
            version: "HTTP/1.1",
            referer: None,
            user_agent: None,
            host: None,
            status: 200,
            body_len: 0,
            began: 0,
        };
        for _ in 0..3 {
            sink.add(&record, "unix", End::Whole, 0, 0);
            sink.flush();
        }
        assert_eq!(sink.dropped, 2);
        drop(inbox);
    }
}
