//! Delays received bytes: `--delay` simulates network latency.
//!
//! Received bytes and the end of input are held back before any processing, so that each round trip
//! takes that much longer: a request and its response, a flight of a TLS handshake, an HTTP/2
//! window update. The delay is constant, so one queue in order of arrival suffices; the worker's
//! turn ends when the first entry is due, as precisely as its engine can wait. The timer wheel
//! would be too coarse.

use std::collections::{HashMap, VecDeque};

use gannet_io::driver::{Driver, Lease, Nanos};

use crate::ground::token::ConnId;

/// Bytes to be processed.
pub(crate) enum Arrived<'a> {
    /// In the engine's buffer.
    Lease(Lease),
    /// Kept until now: by `--delay`, or until the connection could process it.
    Held(Vec<u8>),
    /// Decrypted from records.
    Opened(&'a [u8]),
}

impl Arrived<'_> {
    /// The bytes.
    pub(crate) fn bytes<'a, D: Driver>(&'a self, driver: &'a D) -> &'a [u8] {
        match self {
            Self::Lease(lease) => driver.received(lease),
            Self::Held(bytes) => bytes,
            Self::Opened(bytes) => bytes,
        }
    }

    /// Returns a leased buffer to the engine.
    pub(crate) fn release<D: Driver>(self, driver: &mut D) {
        if let Self::Lease(lease) = self {
            driver.release(lease);
        }
    }
}

/// A worker's delayed input.
#[derive(Default)]
pub(crate) struct Delays {
    /// Milliseconds; 0 disables the delay.
    delay_ms: u64,
    queue: VecDeque<HeldBack>,
    /// Bytes in the queue by connection: at most about [`HELD_MAX`](crate::bounds::limits::HELD_MAX) each.
    bytes: HashMap<ConnId, usize>,
}

/// Input of a connection, held back.
pub(crate) struct HeldBack {
    due: Nanos,
    pub(crate) id: ConnId,
    /// `None`: the end of the peer's input.
    pub(crate) bytes: Option<Vec<u8>>,
}

impl Delays {
    pub(crate) fn new(delay_ms: u64) -> Self {
        Self {
            delay_ms,
            ..Self::default()
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.delay_ms > 0
    }

    /// Bytes held back for a connection.
    pub(crate) fn held_bytes(&self, id: ConnId) -> u64 {
        self.bytes.get(&id).map_or(0, |bytes| *bytes as u64)
    }

    /// When the first entry is due.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.queue.front().map(|held| held.due)
    }

    /// Holds back input of a connection; `None` is the end of its peer's input. Returns the number
    /// of bytes queued for the connection.
    pub(crate) fn push(&mut self, now: Nanos, id: ConnId, bytes: Option<Vec<u8>>) -> usize {
        let len = bytes.as_ref().map_or(0, Vec::len);
        self.queue.push_back(HeldBack {
            due: now.plus_ms(self.delay_ms),
            id,
            bytes,
        });
        let total = self.bytes.entry(id).or_default();
        *total += len;
        *total
    }

    /// Takes the first input that is due.
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<HeldBack> {
        if self.next_due()? > now {
            return None;
        }
        let held = self.queue.pop_front()?;
        let len = held.bytes.as_ref().map_or(0, Vec::len);
        if let Some(total) = self.bytes.get_mut(&held.id) {
            *total -= len;
            if *total == 0 {
                self.bytes.remove(&held.id);
            }
        }
        Some(held)
    }
}
