//! A simulated HTTP/2 client: many streams, its own windows, and resets.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use gannet_io::sim::{End, Random, SimHandle};
use gannet_testkit::h2::hpack::Decoder;
use gannet_testkit::h2::{
    ACK, CANCEL, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE,
    NO_ERROR, PING, PRIORITY_UPDATE, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame, number,
    opening, rst_stream, settings_frame, window_update,
};
use rustls::ClientConfig;

use crate::client::{Actor, Allowed, Ask, Kind, RUDE_MAX, Seen, hashed};
use crate::exchange::{Exchange, Outcome, fields, some_priority};
use crate::files::Files;
use crate::wire::Wire;

const MS: u64 = 1_000_000;

/// Initial window of a connection (RFC 9113 section 6.9.2).
const CONNECTION_WINDOW: i64 = 65_535;

/// The behaviour of a client besides its requests.
#[derive(Clone, Debug)]
pub(crate) struct Manners {
    /// When it connects, nanoseconds.
    pub(crate) arrives_at: u64,
    /// Acts at this interval, nanoseconds.
    interval_ns: u64,
    /// Reads at most this much each time.
    read_max: usize,
    /// Maximum number of concurrent streams.
    at_once: usize,
    /// SETTINGS_INITIAL_WINDOW_SIZE.
    window: u32,
    /// A later SETTINGS changes it to this, after this many responses.
    window_later: Option<(usize, u32)>,
    /// Maximum increment of a stream's window at a time; 0 never opens one.
    opens: u32,
    /// Probability per content frame of resetting its stream, per mille.
    resets: u32,
    /// Probability per request of leaving it open, per mille.
    half_closed: u32,
    /// Never ends such requests.
    leaves_open: bool,
    /// Resets the connection after reading this many bytes.
    ends_after: Option<usize>,
    /// Gives up after this time, nanoseconds.
    gives_up_after: u64,
    /// Sends priorities, and changes them.
    has_priorities: bool,
    /// Stays after the last response, until the server ends the connection.
    stays: bool,
    is_patient: bool,
}

impl Manners {
    /// Random manners.
    pub(crate) fn random(is_rude: bool, random: &mut Random) -> Self {
        let most = if random.chance(300) { 100 } else { 8 };
        let mut manners = Self {
            arrives_at: 1_000 * MS + random.below(3_000) * random.below(1_000) * 1_000,
            interval_ns: 1 + random.below(20 * MS),
            read_max: 2_000 + random.below(30_000) as usize,
            at_once: 1 + random.below(most) as usize,
            window: 4_000 + random.below(70_000) as u32,
            window_later: None,
            opens: u32::MAX,
            resets: if random.chance(300) { 100 } else { 0 },
            half_closed: if random.chance(300) { 200 } else { 0 },
            leaves_open: false,
            ends_after: None,
            gives_up_after: u64::MAX,
            has_priorities: random.chance(500),
            stays: random.chance(200),
            is_patient: !is_rude,
        };
        if random.chance(200) {
            let window = 4_000 + random.below(70_000) as u32;
            manners.window_later = Some((random.below(6) as usize, window));
        }
        if is_rude {
            // A stream without window is reset after a time, and the next request waits as long.
            manners.gives_up_after = RUDE_MAX;
            match random.below(6) {
                0 => manners.opens = 0,
                // Very slow, but always making progress.
                1 => {
                    manners.opens = 1 + random.below(300) as u32;
                    manners.gives_up_after = 30_000 * MS;
                }
                2 => (manners.window, manners.opens) = (random.below(2_000) as u32, 0),
                3 => manners.ends_after = Some(random.below(60_000) as usize),
                4 => (manners.half_closed, manners.leaves_open) = (500, true),
                _ => {
                    manners.read_max = 1 + random.below(30) as usize;
                    manners.interval_ns = 100 * MS + random.below(100 * MS);
                }
            }
        }
        manners
    }
}

/// A request in progress.
struct Stream {
    exchange: Exchange,
    /// Bytes that the server may still send.
    window: i64,
    /// Bytes read whose window was not restored yet.
    owed: u32,
    /// The request has not ended.
    is_open: bool,
    /// Time of the last event that extends the server's deadline.
    moved_at: u64,
}

/// See the module documentation.
pub(crate) struct StreamsClient {
    manners: Manners,
    /// Requests not sent yet.
    asks: VecDeque<Ask>,
    outcome: Outcome,
    random: Random,
    tls: Option<Arc<ClientConfig>>,
    wire: Option<Wire>,
    decoder: Decoder<'static>,
    got: Vec<u8>,
    read: usize,
    next_stream: u32,
    streams: BTreeMap<u32, Stream>,
    window: i64,
    owed: u32,
    /// Initial windows announced by SETTINGS that the server has not acknowledged; the first is
    /// the one in force.
    initial: VecDeque<u32>,
    has_goaway: bool,
    acts_at: u64,
    last_move: u64,
    is_done: bool,
    trace: u64,
}

impl StreamsClient {
    pub(crate) fn new(
        manners: Manners,
        asks: VecDeque<Ask>,
        allowed: Allowed,
        random: Random,
        tls: Option<Arc<ClientConfig>>,
    ) -> Self {
        let tls = tls.map(|config| {
            let mut config = ClientConfig::clone(&config);
            config.alpn_protocols = vec![b"h2".to_vec()];
            Arc::new(config)
        });
        Self {
            acts_at: manners.arrives_at,
            outcome: Outcome::new(allowed, manners.is_patient),
            manners,
            asks,
            random,
            tls,
            wire: None,
            decoder: Decoder::new(),
            got: Vec::new(),
            read: 0,
            next_stream: 1,
            streams: BTreeMap::new(),
            window: CONNECTION_WINDOW,
            owed: 0,
            initial: VecDeque::from([65_535]),
            has_goaway: false,
            last_move: 0,
            is_done: false,
            trace: 0,
        }
    }

    /// Sends bytes if the connection is still open.
    fn send(&self, bytes: &[u8]) {
        let wire = self.wire.as_ref();
        let open = wire.filter(|w| w.end() == End::Open && !w.is_closed_by_server());
        if let Some(wire) = open.filter(|_| !bytes.is_empty()) {
            wire.write(bytes);
        }
    }

    fn connect(&mut self, now: u64, disk: &SimHandle) -> bool {
        self.wire = Wire::connect(disk, self.tls.as_ref(), usize::MAX);
        self.last_move = now;
        if self.wire.is_none() {
            // The server has stopped.
            self.is_done = true;
            self.outcome.is_cut_by_stop = true;
            return false;
        }
        self.send(&opening(&[(INITIAL_WINDOW_SIZE, self.manners.window)]));
        self.initial.push_back(self.manners.window);
        true
    }

    /// Opens streams, ends requests, updates windows, changes priorities.
    fn write(&mut self, now: u64) {
        let mut out = Vec::new();
        for (id, stream) in &mut self.streams {
            if stream.is_open && !self.manners.leaves_open {
                stream.is_open = false;
                stream.moved_at = now;
                out.extend(frame(DATA, END_STREAM, *id, b"x"));
            }
            let increment = stream.owed.min(self.manners.opens);
            if increment > 0 {
                stream.owed -= increment;
                stream.window += i64::from(increment);
                stream.moved_at = now;
                out.extend(window_update(*id, increment));
            }
            // Not each time, however often it acts.
            if increment > 0 && self.manners.has_priorities && self.random.chance(50) {
                let value = format!("u={}, i", self.random.below(8));
                let payload = [&id.to_be_bytes(), value.as_bytes()].concat();
                out.extend(frame(PRIORITY_UPDATE, 0, 0, &payload));
            }
        }
        if self.owed > 0 && self.manners.opens > 0 {
            out.extend(window_update(0, self.owed));
            self.window += i64::from(self.owed);
            self.owed = 0;
        }
        if let Some((_, window)) = self
            .manners
            .window_later
            .take_if(|(after, _)| *after <= self.outcome.answered)
        {
            out.extend(settings_frame(&[(INITIAL_WINDOW_SIZE, window)]));
            self.initial.push_back(window);
        }
        while !self.has_goaway && self.streams.len() < self.manners.at_once {
            let Some(ask) = self.asks.pop_front() else {
                break;
            };
            self.open(ask, now, &mut out);
        }
        self.send(&out);
    }

    fn open(&mut self, ask: Ask, now: u64, out: &mut Vec<u8>) {
        let id = self.next_stream;
        self.next_stream += 2;
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let priority = match self.manners.has_priorities {
            true => some_priority(&mut self.random),
            false => None,
        };
        let block = block(&fields(&ask, scheme, priority.as_deref()));
        let is_open = self.random.chance(self.manners.half_closed);
        let flags = END_HEADERS | if is_open { 0 } else { END_STREAM };
        out.extend(frame(HEADERS, flags, id, &block));
        if self.random.chance(100) {
            out.extend(frame(PING, 0, 0, b"sim sim "));
        }
        let stream = Stream {
            exchange: Exchange::new(ask, now),
            window: i64::from(self.initial[0]),
            owed: 0,
            is_open,
            moved_at: now,
        };
        self.streams.insert(id, stream);
        self.last_move = now;
    }

    /// Reads up to `max` bytes. Returns whether no bytes were available.
    fn read(&mut self, now: u64, max: usize, files: &mut Files) -> Result<bool, String> {
        let Some(wire) = &self.wire else {
            return Ok(true);
        };
        let bytes = wire.read_at_most(max)?;
        let end = wire.end();
        if !bytes.is_empty() {
            self.last_move = now;
            self.read += bytes.len();
            self.trace = hashed(self.trace, &bytes);
            self.trace ^= now;
        }
        let is_all = bytes.is_empty();
        self.got.extend(bytes);
        loop {
            let len = Frame::header(&self.got).map_or(0, |header| header.len);
            if len > 16_384 {
                return Err(format!("a frame of {len} bytes"));
            }
            let Some(frame) = Frame::take(&mut self.got) else {
                break;
            };
            self.take(&frame, now, files)
                .map_err(|why| format!("stream {}: {why}, {:?}", frame.stream, self.manners))?;
        }
        if end != End::Open {
            self.trace = self.trace.rotate_left(7) ^ end as u64;
            self.ended(now, end, files)?;
        }
        Ok(is_all)
    }

    fn take(&mut self, received: &Frame, now: u64, files: &mut Files) -> Result<(), String> {
        let (id, payload) = (received.stream, &received.payload[..]);
        match received.kind {
            HEADERS => self.head(received, now, files),
            DATA => self.content(received, now, files),
            RST_STREAM => {
                let Some(stream) = self.streams.remove(&id) else {
                    return Ok(());
                };
                self.cut(stream, &format!("reset with {}", number(payload)), files)
            }
            SETTINGS if !received.has(ACK) => {
                self.send(&frame(SETTINGS, ACK, 0, &[]));
                Ok(())
            }
            SETTINGS => {
                let before = self.initial.pop_front().ok_or("an ACK too many")?;
                let after = *self.initial.front().ok_or("an ACK too many")?;
                for stream in self.streams.values_mut() {
                    stream.window += i64::from(after) - i64::from(before);
                    stream.moved_at = now;
                }
                Ok(())
            }
            PING if !received.has(ACK) => {
                self.send(&frame(PING, ACK, 0, payload));
                Ok(())
            }
            PING => Ok(()),
            GOAWAY => {
                self.has_goaway = true;
                let code = number(&payload[4..8]);
                let is_excused = code == NO_ERROR || !self.manners.is_patient;
                let is_excused = is_excused || self.outcome.allowed.cuts;
                is_excused
                    .then_some(())
                    .ok_or_else(|| format!("GOAWAY with {code} for a polite client"))
            }
            WINDOW_UPDATE => Ok(()),
            other => Err(format!("a frame of type {other}")),
        }
    }

    fn head(&mut self, received: &Frame, now: u64, files: &mut Files) -> Result<(), String> {
        let id = received.stream;
        let fields = self.decoder.decode(&received.payload);
        let fields = fields.map_err(|error| format!("{error:?}"))?;
        let Some(stream) = self.streams.get_mut(&id) else {
            // This client has reset it.
            return Ok(());
        };
        if !received.has(END_HEADERS) || stream.exchange.reading.is_some() {
            return Err("a second head, or one in pieces".into());
        }
        let has_body = !received.has(END_STREAM);
        stream.exchange.take_head(fields, has_body, now)?;
        stream.moved_at = now;
        if has_body {
            return Ok(());
        }
        self.whole(id, files)
    }

    fn content(&mut self, received: &Frame, now: u64, files: &mut Files) -> Result<(), String> {
        let (id, bytes) = (received.stream, &received.payload[..]);
        self.window -= bytes.len() as i64;
        self.owed += bytes.len() as u32;
        if self.window < 0 {
            return Err("more than the connection's window".into());
        }
        let Some(stream) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        stream.window -= bytes.len() as i64;
        stream.owed += bytes.len() as u32;
        if stream.window < 0 && !bytes.is_empty() {
            return Err(format!("{} more than its window", -stream.window));
        }
        stream.moved_at = now;
        stream.exchange.take_content(bytes)?;
        if received.has(END_STREAM) {
            return self.whole(id, files);
        }
        if self.random.chance(self.manners.resets) {
            let stream = self.streams.remove(&id).expect("found above");
            self.send(&rst_stream(id, CANCEL));
            return self.outcome.given_up(&stream.exchange, files);
        }
        Ok(())
    }

    /// Handles the end of the server's part of a stream.
    fn whole(&mut self, id: u32, files: &mut Files) -> Result<(), String> {
        let stream = self.streams.remove(&id).expect("it was read");
        self.outcome.whole(&stream.exchange, files)?;
        if stream.is_open && !self.manners.leaves_open {
            self.send(&frame(DATA, END_STREAM, id, b"x"));
        }
        Ok(())
    }

    /// Handles the end of a stream before its response was complete.
    fn cut(&mut self, stream: Stream, how: &str, files: &mut Files) -> Result<(), String> {
        // The response to a request that is malformed in HTTP/2.
        let is_due = matches!(stream.exchange.ask.kind, Kind::Malformed);
        self.outcome.cut(&stream.exchange, is_due, how, files)
    }

    /// Handles the end of the connection by the server, with all bytes read.
    fn ended(&mut self, now: u64, end: End, files: &mut Files) -> Result<(), String> {
        self.is_done = true;
        self.wire = None;
        let open = std::mem::take(&mut self.streams);
        let left = open.len() + self.asks.len();
        for stream in open.into_values() {
            let how = format!("{end:?} at {now}");
            self.cut(stream, &how, files)?;
        }
        self.outcome.ended(left, &format!("{end:?} at {now}"))
    }

    /// Checks that nothing is inactive beyond its deadline: neither the connection, nor a stream
    /// without window.
    fn check_deadlines(&self, now: u64) -> Result<(), String> {
        let quiet_ns = self.outcome.allowed.quiet_ns;
        let is_over = |since: u64| now.saturating_sub(since) > quiet_ns;
        if is_over(self.last_move) {
            return Err(format!(
                "a quiet connection has outlived its deadline: {} streams open, {:?}",
                self.streams.len(),
                self.manners
            ));
        }
        let is_shut = |stream: &Stream| stream.window <= 0 || self.window <= 0;
        for (id, stream) in &self.streams {
            let is_sent = stream.exchange.reading.is_some();
            if is_sent && is_shut(stream) && is_over(stream.moved_at) {
                return Err(format!(
                    "stream {id} is shut and open for too long: {:?}",
                    self.manners
                ));
            }
        }
        Ok(())
    }
}

impl Actor for StreamsClient {
    fn act(&mut self, disk: &SimHandle, files: &mut Files) -> Result<(), String> {
        let now = disk.now().0;
        if self.is_done || now < self.acts_at {
            return Ok(());
        }
        self.acts_at = now + self.manners.interval_ns;
        if self.wire.is_none() && !self.connect(now, disk) {
            return Ok(());
        }
        let is_closed = self.wire.as_ref().is_some_and(Wire::is_closed_by_server);
        let most = if is_closed {
            usize::MAX
        } else {
            self.manners.read_max
        };
        let is_all = self.read(now, most, files)?;
        if self.is_done {
            return Ok(());
        }
        let has_enough = self.manners.ends_after.is_some_and(|end| self.read >= end);
        let lasted = now.saturating_sub(self.manners.arrives_at);
        if has_enough || lasted > self.manners.gives_up_after {
            self.wire.take().expect("connected above").reset();
            self.is_done = true;
            return Ok(());
        }
        self.write(now);
        let is_answered = self.streams.is_empty() && (self.asks.is_empty() || self.has_goaway);
        if is_answered && !self.manners.stays {
            self.wire = None;
            self.is_done = true;
        } else if is_all {
            self.check_deadlines(now)?;
        }
        Ok(())
    }

    fn read_rest(&mut self, now: u64, files: &mut Files) -> Result<(), String> {
        self.read(now, usize::MAX, files)?;
        for stream in std::mem::take(&mut self.streams).into_values() {
            self.outcome.judge(&stream.exchange, false, files)?;
        }
        self.wire = None;
        self.is_done = true;
        Ok(())
    }

    fn seen(&self) -> Seen {
        let acts_at = (!self.is_done).then_some(self.acts_at);
        let asks = (self.manners.resets, self.asks.is_empty());
        self.outcome.seen(acts_at, asks, self.trace)
    }

    fn cut_by_stop(&mut self) {
        self.outcome.is_cut_by_stop = true;
    }
}
