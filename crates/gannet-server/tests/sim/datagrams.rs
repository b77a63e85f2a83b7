//! A simulated client that speaks HTTP/3: many streams over a network that loses, reorders and
//! corrupts, from addresses that change.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use gannet_io::sim::{Random, SimHandle};
use gannet_testkit::h3::{
    self, DATA, HEADERS, REQUEST_CANCELLED, control, frame, headers, priority_update, qpack,
    take_varint,
};
use quinn_proto::{Dir, StreamId};
use rustls::ClientConfig;

use crate::client::{Actor, Allowed, Ask, RUDE_MAX, Seen, hashed};
use crate::exchange::{Exchange, Outcome, fields, some_priority};
use crate::files::Files;
use crate::link::{Link, Opening};

const MS: u64 = 1_000_000;

/// A client's behaviour beyond making requests and reading.
#[derive(Clone, Debug)]
pub(crate) struct Manners {
    /// Connects at this time.
    pub(crate) arrives_at: u64,
    /// Acts this often, nanoseconds.
    interval_ns: u64,
    /// Reads at most this much each time.
    read_max: usize,
    /// Makes this many requests at once.
    at_once: usize,
    /// Windows of a stream and of the connection.
    windows: (u32, u32),
    /// Cancels a response at this share of reads with content, per mille.
    resets: u32,
    /// Leaves requests open at this share, per mille.
    half_closed: u32,
    /// Never ends these request streams.
    leaves_open: bool,
    /// Stops reading after this many bytes.
    stalls_after: Option<usize>,
    /// Changes its address each time after this many bytes.
    moves_after: Option<usize>,
    /// Closes the connection after this many bytes.
    ends_after: Option<usize>,
    /// Disappears without closing after this many bytes.
    vanishes_after: Option<usize>,
    /// Gives up after this time, nanoseconds.
    gives_up_after: u64,
    /// Sets and changes priorities.
    has_priorities: bool,
    /// Stays connected after the last response, until the server ends the connection.
    stays: bool,
    is_patient: bool,
}

impl Manners {
    /// Random behaviour.
    pub(crate) fn random(is_rude: bool, random: &mut Random) -> Self {
        let most = if random.chance(300) { 100 } else { 8 };
        let window = 4_000 + random.below(200_000) as u32;
        let mut manners = Self {
            arrives_at: 1_000 * MS + random.below(3_000) * random.below(1_000) * 1_000,
            interval_ns: 1 + random.below(5 * MS),
            read_max: 2_000 + random.below(100_000) as usize,
            at_once: 1 + random.below(most) as usize,
            windows: (window, window + random.below(400_000) as u32),
            resets: if random.chance(300) { 50 } else { 0 },
            half_closed: if random.chance(300) { 200 } else { 0 },
            leaves_open: false,
            stalls_after: None,
            moves_after: None,
            ends_after: None,
            vanishes_after: None,
            gives_up_after: u64::MAX,
            has_priorities: random.chance(500),
            stays: random.chance(200),
            is_patient: !is_rude,
        };
        if random.chance(300) {
            manners.moves_after = Some(2_000 + random.below(60_000) as usize);
        }
        if is_rude {
            let some = |random: &mut Random| Some(random.below(60_000) as usize);
            manners.gives_up_after = RUDE_MAX;
            match random.below(6) {
                0 => manners.stalls_after = some(random),
                1 => {
                    // Very slow, but with steady progress.
                    manners.windows = (1_000, 1_000);
                    manners.read_max = 1 + random.below(300) as usize;
                    manners.interval_ns = 50 * MS;
                    manners.gives_up_after = 30_000 * MS;
                }
                2 => manners.ends_after = some(random),
                3 => manners.vanishes_after = some(random),
                4 => (manners.half_closed, manners.leaves_open) = (500, true),
                _ => {
                    manners.read_max = 1 + random.below(30) as usize;
                    manners.interval_ns = 100 * MS + random.below(100 * MS);
                    // Whole answers may wait in its windows: the server has done its part.
                    manners.gives_up_after = 30_000 * MS;
                }
            }
        }
        manners
    }
}

/// A request in progress.
struct Stream {
    exchange: Exchange,
    /// Received bytes not yet parsed as frames.
    got: Vec<u8>,
    /// Bytes left of the current DATA frame.
    data_left: u64,
    /// The request stream has not been ended.
    is_open: bool,
}

/// A simulated HTTP/3 client.
pub(crate) struct DatagramsClient {
    number: u16,
    manners: Manners,
    /// Requests not made yet.
    asks: VecDeque<Ask>,
    outcome: Outcome,
    random: Random,
    tls: Arc<ClientConfig>,
    link: Option<Link>,
    control: Option<StreamId>,
    streams: BTreeMap<StreamId, Stream>,
    read: usize,
    has_goaway: bool,
    acts_at: u64,
    prioritizes_at: u64,
    last_move: u64,
    is_done: bool,
    trace: u64,
}

impl DatagramsClient {
    pub(crate) fn new(
        number: u16,
        manners: Manners,
        asks: VecDeque<Ask>,
        allowed: Allowed,
        random: Random,
        tls: Arc<ClientConfig>,
    ) -> Self {
        Self {
            number,
            acts_at: manners.arrives_at,
            outcome: Outcome::new(allowed, manners.is_patient),
            manners,
            asks,
            random,
            tls,
            link: None,
            control: None,
            streams: BTreeMap::new(),
            read: 0,
            has_goaway: false,
            prioritizes_at: 0,
            last_move: 0,
            is_done: false,
            trace: 0,
        }
    }

    fn connect(&mut self, now: u64, disk: &SimHandle) {
        let opening = Opening {
            number: self.number,
            seed: self.random.next_u64(),
            windows: self.manners.windows,
        };
        // The server learns of the move only from the client's own packets, and a client that only
        // reads sends none.
        let keeps_alive = self.manners.moves_after.map(|_| Duration::from_secs(1));
        let link = Link::connect_with(disk, &self.tls, &opening, |transport| {
            transport.keep_alive_interval(keeps_alive);
        });
        self.link = Some(link);
        self.last_move = now;
    }

    /// Opens streams, ends requests, changes priorities.
    fn write(&mut self, now: u64) {
        let Some(link) = &mut self.link else { return };
        if !link.core.is_connected() || link.core.lost.is_some() {
            return;
        }
        if self.control.is_none() {
            self.control = link.open(Dir::Uni, &control(&[]), false);
        }
        for (id, stream) in &mut self.streams {
            if stream.is_open && !self.manners.leaves_open {
                stream.is_open = false;
                // The server may have stopped it.
                if link.core.write(*id, &frame(DATA, b"x")).is_ok() {
                    link.core.finish(*id);
                }
                self.last_move = now;
            }
        }
        if self.manners.has_priorities && self.prioritizes_at <= now {
            self.prioritizes_at = now + 50 * MS;
            let ids: Vec<_> = self.streams.keys().collect();
            let some = ids.get(self.random.below(1 + ids.len() as u64) as usize);
            if let (Some(id), Some(control)) = (some, self.control) {
                let value = format!("u={}, i", self.random.below(8));
                let update = priority_update(u64::from(**id), &value);
                let written = link.core.write(control, &update);
                assert_eq!(written, Ok(update.len()), "the server reads it");
            }
        }
        while !self.has_goaway && self.streams.len() < self.manners.at_once {
            let Some(ask) = self.asks.pop_front() else {
                break;
            };
            if let Some(ask) = self.open(ask, now) {
                self.asks.push_front(ask);
                break;
            }
        }
    }

    /// Makes a request; returns it if the server permits no more streams for now.
    fn open(&mut self, ask: Ask, now: u64) -> Option<Ask> {
        let link = self.link.as_mut().expect("connected");
        let priority = match self.manners.has_priorities {
            true => some_priority(&mut self.random),
            false => None,
        };
        let head = headers(&fields(&ask, "https", priority.as_deref()));
        let is_open = self.random.chance(self.manners.half_closed);
        let Some(id) = link.open(Dir::Bi, &head, !is_open) else {
            return Some(ask);
        };
        let stream = Stream {
            exchange: Exchange::new(ask, now),
            got: Vec::new(),
            data_left: 0,
            is_open,
        };
        self.streams.insert(id, stream);
        self.last_move = now;
        None
    }

    /// Reads up to `max` bytes.
    fn read(&mut self, now: u64, max: usize, files: &mut Files) -> Result<(), String> {
        let Some(link) = &mut self.link else {
            return Ok(());
        };
        let stall = self.manners.stalls_after.filter(|_| max < usize::MAX);
        let most = stall.map_or(max, |after| max.min(after.saturating_sub(self.read)));
        let count = link.core.read(most);
        self.read += count;
        if count > 0 {
            self.last_move = now;
            self.trace ^= now;
        }
        let mut said = link.core.control();
        let _ = take_varint(&mut said);
        while let Some(frame) = h3::Frame::take(&mut said) {
            self.has_goaway |= frame.kind == h3::GOAWAY;
        }
        let ids: Vec<_> = self.streams.keys().copied().collect();
        for id in ids {
            self.take(id, now, files).map_err(|why| {
                let manners = &self.manners;
                format!("client {}, stream {id}: {why}, {manners:?}", self.number)
            })?;
        }
        self.check_lost(now, files)
    }

    fn check_lost(&mut self, now: u64, files: &mut Files) -> Result<(), String> {
        let link = self.link.as_ref();
        let Some(why) = link.and_then(|link| link.core.lost.clone()) else {
            return Ok(());
        };
        self.is_done = true;
        self.link = None;
        self.trace = self.trace.rotate_left(7) ^ now;
        let open = std::mem::take(&mut self.streams);
        let left = open.len() + self.asks.len();
        let how = format!("{why:?} at {now}");
        for stream in open.into_values() {
            self.outcome.cut(&stream.exchange, false, &how, files)?;
        }
        self.outcome.ended(left, &how)
    }

    /// Handles the available bytes of a stream.
    fn take(&mut self, id: StreamId, now: u64, files: &mut Files) -> Result<(), String> {
        let link = self.link.as_mut().expect("connected");
        let Some(received) = link.core.received_mut(id) else {
            return Ok(());
        };
        let bytes = std::mem::take(&mut received.bytes);
        let (is_finished, reset) = (received.is_finished, received.reset);
        self.trace = hashed(self.trace, &bytes);
        let stream = self.streams.get_mut(&id).expect("it is asked for");
        stream.got.extend_from_slice(&bytes);
        stream.take_frames(now)?;
        if let Some(code) = reset {
            let stream = self.streams.remove(&id).expect("found above");
            let how = format!("reset with {code:#x}");
            return self.outcome.cut(&stream.exchange, false, &how, files);
        }
        if is_finished {
            if !stream.got.is_empty() {
                return Err(format!("{} bytes that are no frame", stream.got.len()));
            }
            let stream = self.streams.remove(&id).expect("found above");
            return self.outcome.whole(&stream.exchange, files);
        }
        let has_content = stream.exchange.reading.is_some() && !bytes.is_empty();
        if has_content && self.random.chance(self.manners.resets) {
            let stream = self.streams.remove(&id).expect("found above");
            link.core.stop(id, REQUEST_CANCELLED);
            link.core.reset(id, REQUEST_CANCELLED);
            return self.outcome.given_up(&stream.exchange, files);
        }
        Ok(())
    }
}

impl Stream {
    /// Parses the frames received so far.
    fn take_frames(&mut self, now: u64) -> Result<(), String> {
        loop {
            if self.data_left > 0 {
                let len = self.data_left.min(self.got.len() as u64);
                self.exchange.take_content(&self.got[..len as usize])?;
                self.got.drain(..len as usize);
                self.data_left -= len;
                if self.data_left > 0 {
                    return Ok(());
                }
            }
            let mut rest = &self.got[..];
            let (kind, len) = (take_varint(&mut rest), take_varint(&mut rest));
            let (Some(kind), Some(len)) = (kind, len) else {
                return Ok(());
            };
            let header_len = self.got.len() - rest.len();
            match kind {
                DATA => {
                    self.got.drain(..header_len);
                    self.data_left = len;
                }
                HEADERS if self.exchange.reading.is_none() => {
                    let Some(section) = rest.get(..len as usize) else {
                        return Ok(());
                    };
                    let fields = qpack::decode(section).ok_or("a section that is none")?;
                    self.exchange.take_head(fields, true, now)?;
                    self.got.drain(..header_len + len as usize);
                }
                other => return Err(format!("a frame of type {other:#x}")),
            }
        }
    }
}

impl Actor for DatagramsClient {
    fn act(&mut self, disk: &SimHandle, files: &mut Files) -> Result<(), String> {
        let now = disk.now().0;
        if self.is_done || now < self.acts_at {
            return Ok(());
        }
        if self.link.is_none() {
            self.connect(now, disk);
        }
        self.link.as_mut().expect("connected above").step();
        self.read(now, self.manners.read_max, files)?;
        if self.is_done {
            return Ok(());
        }
        self.write(now);
        let link = self.link.as_mut().expect("connected above");
        if self.manners.moves_after.is_some_and(|it| self.read >= it) && link.core.is_connected() {
            self.manners.moves_after = self.manners.moves_after.map(|it| 2 * it);
            link.rebind();
        }
        link.send();
        let due = link.deadline().unwrap_or(u64::MAX);
        self.acts_at = (now + self.manners.interval_ns).min(due).max(now + 1);
        let is_past = |end: Option<usize>| end.is_some_and(|end| self.read >= end);
        let lasted = now.saturating_sub(self.manners.arrives_at);
        let is_answered = self.streams.is_empty() && (self.asks.is_empty() || self.has_goaway);
        if is_past(self.manners.vanishes_after) {
            (self.link, self.is_done) = (None, true);
        } else if is_past(self.manners.ends_after)
            || lasted > self.manners.gives_up_after
            || (is_answered && !self.manners.stays && link.core.is_connected())
        {
            link.close();
            (self.link, self.is_done) = (None, true);
        } else if now.saturating_sub(self.last_move) > self.outcome.allowed.quiet_ns {
            return Err(format!(
                "a quiet connection has outlived its deadline: {} streams open, {:?}",
                self.streams.len(),
                self.manners
            ));
        }
        Ok(())
    }

    fn read_rest(&mut self, now: u64, files: &mut Files) -> Result<(), String> {
        if let Some(link) = &mut self.link {
            link.step();
        }
        self.read(now, usize::MAX, files)?;
        for stream in std::mem::take(&mut self.streams).into_values() {
            // The server's grace period ended first.
            self.outcome.lost += 1;
            self.outcome.judge(&stream.exchange, false, files)?;
        }
        self.link = None;
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
