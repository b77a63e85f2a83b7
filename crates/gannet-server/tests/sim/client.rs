//! A simulated client: sends requests, reads at its own speed, and checks every response.

use std::sync::Arc;

use gannet_io::sim::{End, Random, SimHandle};
use rustls::ClientConfig;

use crate::files::{Files, Slice};
use crate::response::{Head, parts};
use crate::wire::Wire;

/// How long a rude client goes on at most, nanoseconds: shorter than a run may be, and longer than any
/// deadline. The server bounds each of its requests, but not how many it makes one after the other.
pub(crate) const RUDE_MAX: u64 = 100_000_000_000;

/// The subject of a request.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    /// A file: its path on disk, and the options of the request.
    File(String, Asked),
    /// A path without a file.
    Missing,
    /// A folder without its slash.
    Folder,
    /// A folder with its slash, which has no index page.
    Listing,
    Options,
    /// An unsupported method.
    OtherMethod,
    /// An invalid request.
    Malformed,
}

/// The options of a request for a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// `bytes=A-B`, both ends included.
    pub(crate) range: Option<(u64, u64)>,
    pub(crate) has_many_ranges: bool,
    pub(crate) if_none_match: Option<String>,
    pub(crate) if_match: Option<String>,
    pub(crate) if_range: Option<String>,
    /// Its `accept-encoding`.
    pub(crate) accepts: &'static str,
    /// By HEAD, for which there are no ranges (RFC 9110 section 14.2).
    pub(crate) is_head: bool,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) kind: Kind,
    pub(crate) raw: Vec<u8>,
    /// The HTTP/2 form: method, target, and fields as lines.
    pub(crate) parts: (String, String, String),
    pub(crate) is_head: bool,
    /// No later request is answered.
    pub(crate) closes: bool,
    /// When its last byte was written.
    pub(crate) sent_at: Option<u64>,
}

/// The behaviour of a client besides its requests.
#[derive(Clone, Debug)]
pub(crate) struct Manners {
    /// When it connects, nanoseconds.
    pub(crate) arrives_at: u64,
    /// Waits up to this long between requests, nanoseconds; 0 pipelines them.
    pub(crate) pause_ns: u64,
    /// Acts at this interval, nanoseconds.
    pub(crate) interval_ns: u64,
    /// Reads at most this much each time.
    pub(crate) read_max: usize,
    /// Stops reading after this many bytes.
    pub(crate) stalls_after: Option<usize>,
    /// Stops writing after this many bytes.
    pub(crate) falls_silent_after: Option<usize>,
    /// Resets after reading this many bytes.
    pub(crate) resets_after: Option<usize>,
    /// Closes its half as soon as everything is written.
    pub(crate) half_closes: bool,
    /// Over TLS: updates its keys, and requests an update by the server, after this many bytes.
    pub(crate) updates_after: usize,
    /// Stays after the last response, until the server ends the connection.
    pub(crate) stays: bool,
}

impl Manners {
    /// Whether it does nothing for which a server may disconnect it.
    pub(crate) fn is_patient(&self) -> bool {
        self.stalls_after.is_none()
            && self.falls_silent_after.is_none()
            && self.resets_after.is_none()
            && self.read_max >= 1_000
    }
}

/// Deviations that the run allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// Responses may end early; connections may be refused or closed.
    pub(crate) cuts: bool,
    /// Responses 500 and 503 are allowed.
    pub(crate) failures: bool,
    /// The received part of a response that ends early must be correct as well.
    pub(crate) parts: bool,
    /// Maximum duration of a connection without activity by the client, nanoseconds.
    pub(crate) quiet_ns: u64,
}

/// A client of a run.
pub(crate) trait Actor {
    /// Acts if it is due. The error describes the server's fault.
    fn act(&mut self, disk: &SimHandle, files: &mut Files) -> Result<(), String>;

    /// Reads the remaining bytes after the server has ended.
    fn read_rest(&mut self, now: u64, files: &mut Files) -> Result<(), String>;

    /// The results so far.
    fn seen(&self) -> Seen;

    /// The server is stopped before this client is done.
    fn cut_by_stop(&mut self);
}

/// The results of a client.
pub(crate) struct Seen {
    /// When it next acts; `None` once it is done.
    pub(crate) acts_at: Option<u64>,
    /// It does nothing for which a server may disconnect it.
    pub(crate) is_patient: bool,
    /// Complete responses.
    pub(crate) answered: u64,
    /// The client has read every response that the server sent.
    pub(crate) has_read_all: bool,
    /// A hash of everything received.
    pub(crate) trace: u64,
}

/// A trace that has received these bytes.
pub(crate) fn hashed(trace: u64, bytes: &[u8]) -> u64 {
    let add = |trace: u64, byte: &u8| (trace ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(trace, add)
}

/// A response being read.
pub(crate) struct Reading {
    pub(crate) head: Head,
    /// Index of its request.
    pub(crate) ask: usize,
    pub(crate) body_len: u64,
    /// When its head was read.
    pub(crate) read_at: u64,
    pub(crate) body: Vec<u8>,
}

/// See the module documentation.
pub(crate) struct Client {
    pub(crate) manners: Manners,
    asks: Vec<Ask>,
    allowed: Allowed,
    random: Random,
    wire: Option<Wire>,
    tls: Option<Arc<ClientConfig>>,
    to_write: Vec<u8>,
    written: usize,
    got: Vec<u8>,
    read: usize,
    reading: Option<Reading>,
    /// Complete responses.
    pub(crate) answered: usize,
    has_closed: bool,
    is_half_closed: bool,
    /// When it next acts.
    pub(crate) acts_at: u64,
    last_move: u64,
    writes_at: u64,
    /// It is done.
    pub(crate) is_done: bool,
    /// The server was stopped before it was done.
    pub(crate) is_cut_by_stop: bool,
    /// A hash of everything received.
    pub(crate) trace: u64,
}

impl Actor for Client {
    fn act(&mut self, disk: &SimHandle, files: &mut Files) -> Result<(), String> {
        self.act_now(disk, files)
    }

    fn read_rest(&mut self, now: u64, files: &mut Files) -> Result<(), String> {
        self.read_rest_now(now, files)
    }

    fn seen(&self) -> Seen {
        Seen {
            acts_at: (!self.is_done).then_some(self.acts_at),
            is_patient: self.manners.is_patient(),
            answered: self.answered as u64,
            has_read_all: self.has_read_all(),
            trace: self.trace,
        }
    }

    fn cut_by_stop(&mut self) {
        self.is_cut_by_stop = true;
    }
}

impl Client {
    pub(crate) fn new(
        manners: Manners,
        asks: Vec<Ask>,
        allowed: Allowed,
        random: Random,
        tls: Option<Arc<ClientConfig>>,
    ) -> Self {
        Self {
            acts_at: manners.arrives_at,
            to_write: asks.iter().flat_map(|ask| ask.raw.clone()).collect(),
            manners,
            asks,
            allowed,
            random,
            wire: None,
            tls,
            written: 0,
            got: Vec::new(),
            read: 0,
            reading: None,
            answered: 0,
            has_closed: false,
            is_half_closed: false,
            last_move: 0,
            writes_at: 0,
            is_done: false,
            is_cut_by_stop: false,
            trace: 0,
        }
    }

    /// Acts if it is due.
    fn act_now(&mut self, disk: &SimHandle, files: &mut Files) -> Result<(), String> {
        let now = disk.now().0;
        if self.is_done || now < self.acts_at {
            return Ok(());
        }
        self.acts_at = now + self.manners.interval_ns;
        if self.wire.is_none() {
            self.wire = Wire::connect(disk, self.tls.as_ref(), self.manners.updates_after);
            self.last_move = now;
            if self.wire.is_none() {
                // The server has stopped.
                self.is_done = true;
                self.is_cut_by_stop = true;
                return Ok(());
            }
        }
        self.write(now);
        // A connection that the server has dropped has no deadline any more: the rest is read at
        // once.
        let is_closed = self
            .wire
            .as_ref()
            .is_some_and(|wire| wire.is_closed_by_server());
        let most = if is_closed {
            usize::MAX
        } else {
            self.manners.read_max
        };
        self.read(now, most, files)?;
        if self.is_done {
            return Ok(());
        }
        if self
            .manners
            .resets_after
            .is_some_and(|after| self.read >= after)
        {
            self.wire.take().expect("connected above").reset();
            self.is_done = true;
            return Ok(());
        }
        let expected = self.expected();
        let is_answered = self.to_write.is_empty() && self.answered >= expected;
        if is_answered && !self.manners.stays && !self.has_closed {
            self.wire = None;
            self.is_done = true;
        } else if now.saturating_sub(self.last_move) > self.allowed.quiet_ns {
            return Err(format!(
                "a quiet connection has outlived its deadline: {} answers of {expected}, {:?}",
                self.answered, self.manners
            ));
        }
        Ok(())
    }

    /// The number of responses expected in the end.
    pub(crate) fn expected(&self) -> usize {
        let last = self.asks.iter().position(|ask| ask.closes);
        last.map_or(self.asks.len(), |last| last + 1)
    }

    fn write(&mut self, now: u64) {
        let wire = self.wire.as_ref().expect("connected");
        if wire.end() != End::Open {
            return;
        }
        let silent = self.manners.falls_silent_after;
        let most = silent.map_or(usize::MAX, |after| after.saturating_sub(self.written));
        let most = most.min(self.to_write.len()).min(self.writable(now));
        if most > 0 {
            let mut count = most;
            if self.random.chance(500) {
                count = 1 + self.random.below(most as u64) as usize;
            }
            let piece: Vec<u8> = self.to_write.drain(..count).collect();
            wire.write(&piece);
            self.written += count;
            self.last_move = now;
            if self.is_between_asks() {
                self.writes_at = now + self.random.below(self.manners.pause_ns);
            }
            let mut end = 0;
            for ask in &mut self.asks {
                end += ask.raw.len();
                if end <= self.written && ask.sent_at.is_none() {
                    ask.sent_at = Some(now);
                }
            }
        }
        if self.to_write.is_empty() && self.manners.half_closes && !self.is_half_closed {
            self.is_half_closed = true;
            wire.shutdown_write();
        }
    }

    /// Number of bytes that may be written now: up to the end of the current request, if it pauses.
    fn writable(&self, now: u64) -> usize {
        if self.manners.pause_ns == 0 {
            return usize::MAX;
        }
        if now < self.writes_at {
            return 0;
        }
        let mut end = 0;
        for ask in &self.asks {
            end += ask.raw.len();
            if end > self.written {
                return end - self.written;
            }
        }
        0
    }

    fn is_between_asks(&self) -> bool {
        let mut end = 0;
        self.asks.iter().any(|ask| {
            end += ask.raw.len();
            end == self.written
        })
    }

    /// Reads up to `max` bytes, within its manners.
    pub(crate) fn read(&mut self, now: u64, max: usize, files: &mut Files) -> Result<(), String> {
        let Some(wire) = &self.wire else {
            return Ok(());
        };
        let stall = self.manners.stalls_after.filter(|_| max < usize::MAX);
        let most = stall.map_or(max, |after| max.min(after.saturating_sub(self.read)));
        let bytes = wire.read_at_most(most)?;
        let end = wire.end();
        if !bytes.is_empty() {
            self.last_move = now;
            self.read += bytes.len();
            self.trace = hashed(self.trace, &bytes);
            self.trace ^= now;
            self.got.extend(bytes);
        }
        self.take_answers(now, files)?;
        if end != End::Open {
            self.trace = self.trace.rotate_left(7) ^ end as u64;
            self.ended(now, end, files)?;
        }
        Ok(())
    }

    fn take_answers(&mut self, now: u64, files: &mut Files) -> Result<(), String> {
        loop {
            if self.reading.is_none() {
                if self.got.is_empty() {
                    return Ok(());
                }
                if self.has_closed {
                    return Err(format!("bytes after the end: {}", self.got.escape_ascii()));
                }
                let Some(head) = Head::parse(&self.got)? else {
                    return Ok(());
                };
                self.got.drain(..head.len);
                self.begin(head, now)?;
            }
            let reading = self.reading.as_mut().expect("begun above");
            let missing = reading.body_len - reading.body.len() as u64;
            let count = missing.min(self.got.len() as u64) as usize;
            reading.body.extend(self.got.drain(..count));
            if (reading.body.len() as u64) < reading.body_len {
                return Ok(());
            }
            let whole = self.reading.take().expect("begun above");
            self.judge(&whole, true, files)?;
            self.has_closed = whole.head.closes();
            self.answered += 1;
        }
    }

    fn begin(&mut self, head: Head, now: u64) -> Result<(), String> {
        let ask = self.answered;
        // A timeout may be reported instead of a response, or without a request.
        let is_unasked = head.status == 408;
        if ask >= self.asks.len() && !is_unasked {
            return Err(format!("more answers than requests: {head:?}"));
        }
        let is_head = self.asks.get(ask).is_some_and(|ask| ask.is_head) && !is_unasked;
        let body_len = head.body_len(is_head)?;
        self.reading = Some(Reading {
            head,
            ask,
            body_len,
            read_at: now,
            body: Vec::new(),
        });
        Ok(())
    }

    /// Checks the received part of a response.
    fn judge(&self, reading: &Reading, is_whole: bool, files: &mut Files) -> Result<(), String> {
        let Reading {
            head, ask, body, ..
        } = reading;
        if head.status == 408 || !is_whole && !self.allowed.parts {
            return Ok(());
        }
        let ask = &self.asks[*ask];
        let wrong = |why: String| {
            let raw = ask.raw.escape_ascii();
            format!(
                "{why}\n  request: {raw}\n  answer: {head:?}, {} bytes",
                body.len()
            )
        };
        let sent_at = match (&ask.kind, ask.sent_at) {
            (_, Some(at)) => at,
            // The server need not read an invalid request to its end.
            (Kind::Malformed | Kind::OtherMethod, None) => 0,
            _ => return Err(wrong("answered before it was asked".into())),
        };
        let window = (sent_at, reading.read_at);
        match (&ask.kind, head.status) {
            (Kind::File(path, asked), _) => {
                let is_excused = self.allowed.failures && matches!(head.status, 500 | 503);
                if is_excused {
                    return Ok(());
                }
                judge_file(path, asked, window, reading, is_whole, files).map_err(wrong)
            }
            (Kind::Missing, 404)
            | (Kind::Folder, 301 | 404)
            | (Kind::Listing, 200 | 404)
            | (Kind::Options, 204)
            | (Kind::OtherMethod, 405) => Ok(()),
            (_, 500) if self.allowed.failures => Ok(()),
            (Kind::Malformed, 400..=499 | 501 | 505) if head.closes() => Ok(()),
            _ => Err(wrong("an unexpected status".into())),
        }
    }

    /// Handles the end of the connection by the server, with all bytes read.
    fn ended(&mut self, now: u64, end: End, files: &mut Files) -> Result<(), String> {
        self.is_done = true;
        if let Some(reading) = self.reading.take() {
            self.judge(&reading, false, files)?;
        } else if !self.got.is_empty() && end == End::Finished && !self.allowed.cuts {
            return Err(format!("half a head: {}", self.got.escape_ascii()));
        }
        self.wire = None;
        let is_excused = self.allowed.cuts || !self.manners.is_patient() || self.is_cut_by_stop;
        let expected = self.expected();
        if self.answered < expected && !is_excused {
            return Err(format!(
                "{end:?} at {now} after {} of {expected} answers, {} bytes read, {:?}",
                self.answered, self.read, self.manners
            ));
        }
        Ok(())
    }

    /// Whether every response sent by the server was read.
    fn has_read_all(&self) -> bool {
        self.is_done && self.manners.is_patient() && self.answered == self.expected()
    }

    /// Reads the remaining bytes after the server has ended.
    fn read_rest_now(&mut self, now: u64, files: &mut Files) -> Result<(), String> {
        self.read(now, usize::MAX, files)?;
        if let Some(reading) = self.reading.take() {
            self.judge(&reading, false, files)?;
        }
        self.wire = None;
        self.is_done = true;
        Ok(())
    }
}

/// Checks the bytes received of a response on its own stream.
pub(crate) fn judge_answer(
    ask: &Ask,
    reading: &Reading,
    is_whole: bool,
    allowed: Allowed,
    files: &mut Files,
) -> Result<(), String> {
    let sent_at = ask.sent_at.expect("it was asked");
    match (&ask.kind, reading.head.status) {
        (_, 500 | 503) if allowed.failures => Ok(()),
        (Kind::File(path, asked), _) => {
            let window = (sent_at, reading.read_at);
            judge_file(path, asked, window, reading, is_whole, files)
        }
        (Kind::Missing, 404)
        | (Kind::Folder, 301 | 404)
        | (Kind::Listing, 200 | 404)
        | (Kind::Options, 204)
        | (Kind::OtherMethod, 405)
        | (Kind::Malformed, 400..=499) => Ok(()),
        _ => Err("an unexpected status".into()),
    }
    .map_err(|why| {
        let (request, head) = (&ask.parts, &reading.head);
        format!("{why}\n  request: {request:?}\n  answer: {head:?}")
    })
}

/// Checks the received part of a response to a request for a file.
pub(crate) fn judge_file(
    path: &str,
    asked: &Asked,
    window: (u64, u64),
    reading: &Reading,
    is_whole: bool,
    files: &mut Files,
) -> Result<(), String> {
    let Reading { head, body, .. } = reading;
    let tag = head.field("etag");
    let coding = head.field("content-encoding");
    if let Some(coding) = coding.filter(|coding| !asked.accepts.contains(*coding)) {
        return Err(format!("content-encoding: {coding}"));
    }
    // The tag of a coding that the server itself has made says so.
    let made = coding.filter(|coding| tag.is_some_and(|it| it.contains(&format!("-{coding}"))));
    let coded = match coding {
        Some("gzip") if made.is_none() => format!("{path}.gz"),
        Some(other) if made.is_none() => return Err(format!("content-encoding: {other}")),
        _ => path.to_owned(),
    };
    let modified = head.field("last-modified").filter(|_| coded == path);
    let mut check = |total: u64, offset: u64, bytes: &[u8]| {
        let tag = tag.ok_or("no entity tag")?;
        let slice = Slice {
            path: &coded,
            window,
            total,
            offset,
            bytes,
            tag,
            modified,
        };
        match made {
            None => files.judge(&slice),
            Some(coding) => files.judge_coded(&slice, coding),
        }
    };
    let is_matched = |list: &Option<String>| list.is_some() && list.as_deref() == tag;
    match head.status {
        // A folder's listing, while its index page is gone.
        200 if tag.is_none() && path.ends_with("index.html") => {
            let is_gone = files.may_be_missing(path, window);
            is_gone
                .then_some(())
                .ok_or_else(|| "a listing in place of a page".into())
        }
        200 => {
            // Any range of nothing is all of it.
            let is_empty = head.content_length() == Some(0);
            let wants_range = asked.range.is_some() && !asked.is_head && !is_empty;
            if wants_range && asked.if_range.is_some() && is_matched(&asked.if_range) {
                return Err("If-Range matched: a range was due".into());
            }
            if is_matched(&asked.if_none_match) {
                return Err("If-None-Match matched: 304 was due".into());
            }
            check(head.content_length().ok_or("no length")?, 0, body)
        }
        206 if asked.has_many_ranges && head.boundary().is_some() => {
            if !is_whole {
                return Ok(());
            }
            let boundary = head.boundary().unwrap_or_default();
            if body.is_empty() {
                return Ok(());
            }
            for (first, total, bytes) in parts(body, boundary)? {
                check(total, first, bytes)?;
            }
            Ok(())
        }
        206 => {
            let (first, end, total) = head.content_range().ok_or("no range")?;
            if Some(end - first) != head.content_length() {
                return Err("length and range differ".into());
            }
            if let Some((from, to)) = asked.range
                && (first, end) != (from, (to + 1).min(total))
            {
                return Err("another range than asked for".into());
            }
            if asked.if_range.is_some() && !is_matched(&asked.if_range) {
                return Err("If-Range did not match".into());
            }
            if coding.is_some() && asked.if_range.is_none() {
                return Err("a range of a coding that the client has not named".into());
            }
            check(total, first, body)
        }
        304 if is_matched(&asked.if_none_match) => Ok(()),
        412 if asked.if_match.is_some() => Ok(()),
        416 if asked.range.is_some() || asked.has_many_ranges => Ok(()),
        404 if files.may_be_missing(path, window) => Ok(()),
        _ => Err("an unexpected status".into()),
    }
}
