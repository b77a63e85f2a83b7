//! Requests and responses on streams: what clients of HTTP/2 and HTTP/3 have in common.

use gannet_io::sim::Random;

use crate::client::{Allowed, Ask, Reading, Seen, judge_answer};
use crate::files::Files;
use crate::response::Head;

/// A request, and its response as far as it was read.
pub(crate) struct Exchange {
    pub(crate) ask: Ask,
    pub(crate) reading: Option<Reading>,
}

impl Exchange {
    /// A request sent now.
    pub(crate) fn new(ask: Ask, now: u64) -> Self {
        let sent_at = Some(now);
        Self {
            ask: Ask { sent_at, ..ask },
            reading: None,
        }
    }

    /// Takes the decoded head of the response.
    pub(crate) fn take_head(
        &mut self,
        fields: Vec<(Vec<u8>, Vec<u8>)>,
        has_body: bool,
        now: u64,
    ) -> Result<(), String> {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let fields = fields.into_iter();
        let mut fields = fields.map(|(name, value)| (text(name), text(value)));
        let (name, status) = fields.next().ok_or("an empty head")?;
        let status = status.parse().map_err(|_| format!("{name}: {status}"))?;
        let head = Head::of_fields(status, fields.collect())?;
        let body_len = match has_body {
            true => head.body_len(self.ask.is_head)?,
            false => 0,
        };
        self.reading = Some(Reading {
            head,
            ask: 0,
            body_len,
            read_at: now,
            body: Vec::new(),
        });
        Ok(())
    }

    /// Takes content of the response.
    pub(crate) fn take_content(&mut self, bytes: &[u8]) -> Result<(), String> {
        let reading = self.reading.as_mut().ok_or("content before the head")?;
        reading.body.extend_from_slice(bytes);
        if reading.body.len() as u64 > reading.body_len {
            return Err(format!("more than announced: {:?}", reading.head));
        }
        Ok(())
    }
}

/// The fields of a request.
pub(crate) fn fields<'a>(
    ask: &'a Ask,
    scheme: &'a str,
    priority: Option<&'a str>,
) -> Vec<(&'a str, &'a str)> {
    let (method, target, lines) = &ask.parts;
    let mut fields = vec![
        (":method", &**method),
        (":scheme", scheme),
        (":authority", "localhost"),
        (":path", &**target),
    ];
    fields.extend(lines.lines().filter_map(|line| line.split_once(": ")));
    fields.extend(priority.map(|priority| ("priority", priority)));
    fields
}

/// A priority for half of the requests.
pub(crate) fn some_priority(random: &mut Random) -> Option<String> {
    let is_urgent = random.chance(500);
    is_urgent.then(|| format!("u={}", random.below(8)))
}

/// What became of a client's requests.
pub(crate) struct Outcome {
    pub(crate) allowed: Allowed,
    pub(crate) is_patient: bool,
    pub(crate) is_cut_by_stop: bool,
    pub(crate) answered: usize,
    /// Streams that ended without a complete response.
    pub(crate) lost: usize,
}

impl Outcome {
    pub(crate) fn new(allowed: Allowed, is_patient: bool) -> Self {
        Self {
            allowed,
            is_patient,
            is_cut_by_stop: false,
            answered: 0,
            lost: 0,
        }
    }

    /// What the client reports; without `acts_at` it is done.
    pub(crate) fn seen(
        &self,
        acts_at: Option<u64>,
        (resets, has_asked_all): (u32, bool),
        trace: u64,
    ) -> Seen {
        Seen {
            acts_at,
            // A client that resets streams may have read no complete response.
            is_patient: self.is_patient && resets == 0,
            answered: self.answered as u64,
            has_read_all: self.is_patient && acts_at.is_none() && self.lost == 0 && has_asked_all,
            trace,
        }
    }

    fn is_excused(&self) -> bool {
        self.allowed.cuts || !self.is_patient || self.is_cut_by_stop
    }

    /// Judges what was read of a response.
    pub(crate) fn judge(
        &self,
        exchange: &Exchange,
        is_whole: bool,
        files: &mut Files,
    ) -> Result<(), String> {
        match &exchange.reading {
            Some(reading) => judge_answer(&exchange.ask, reading, is_whole, self.allowed, files),
            None => Ok(()),
        }
    }

    /// The server has ended its part of a stream.
    pub(crate) fn whole(&mut self, exchange: &Exchange, files: &mut Files) -> Result<(), String> {
        let reading = exchange.reading.as_ref().ok_or("an end without a head")?;
        if reading.body.len() as u64 != reading.body_len {
            let len = reading.body.len();
            return Err(format!("{len} bytes of {}", reading.body_len));
        }
        self.judge(exchange, true, files)?;
        self.answered += 1;
        Ok(())
    }

    /// The client has given up a stream.
    pub(crate) fn given_up(
        &mut self,
        exchange: &Exchange,
        files: &mut Files,
    ) -> Result<(), String> {
        self.lost += 1;
        self.judge(exchange, false, files)
    }

    /// A stream has ended before its response was complete, which `is_due` to its request.
    pub(crate) fn cut(
        &mut self,
        exchange: &Exchange,
        is_due: bool,
        how: &str,
        files: &mut Files,
    ) -> Result<(), String> {
        self.given_up(exchange, files)?;
        let is_excused = is_due || self.is_excused();
        is_excused.then_some(()).ok_or_else(|| {
            let (_, target, lines) = &exchange.ask.parts;
            format!("{target} {lines:?} was cut short for a polite client: {how}")
        })
    }

    /// The connection has ended, with so many requests left.
    pub(crate) fn ended(&self, left: usize, how: &str) -> Result<(), String> {
        if left > 0 && !self.is_excused() {
            return Err(format!("{how}, {left} requests not answered"));
        }
        Ok(())
    }
}
