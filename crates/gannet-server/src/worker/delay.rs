//! What arrives is looked at later: `--delay` imitates the latency of a network.
//!
//! Received bytes and their end are held back in front of everything else, so that each round
//! trip takes that much longer: a request and its answer, a flight of a TLS handshake, the update
//! of a window of HTTP/2. All wait equally long, so one queue in the order of arrival does; the
//! worker's turn ends when the first in it is due, as precisely as its engine can wait. The
//! wheel of timers would be too coarse.

use std::collections::{HashMap, VecDeque};

use gannet_io::driver::{Driver, Lease, Nanos};

use super::Worker;
use crate::limits::HELD_MAX;

/// Received bytes.
pub(super) enum Arrived {
    /// In the engine's buffer.
    Lease(Lease),
    /// Held back until now.
    Held(Vec<u8>),
}

impl Arrived {
    /// The bytes.
    pub(super) fn bytes<'a, D: Driver>(&'a self, driver: &'a D) -> &'a [u8] {
        match self {
            Self::Lease(lease) => driver.received(lease),
            Self::Held(bytes) => bytes,
        }
    }

    /// Gives the engine back what is its own.
    pub(super) fn release<D: Driver>(self, driver: &mut D) {
        if let Self::Lease(lease) = self {
            driver.release(lease);
        }
    }
}

/// What is held back by a worker.
#[derive(Default)]
pub(super) struct Delays {
    /// Milliseconds; 0: nothing is held back.
    delay_ms: u64,
    queue: VecDeque<HeldBack>,
    /// Bytes in the queue by slot and generation: at most about [`HELD_MAX`] each.
    bytes: HashMap<(u32, u32), usize>,
}

struct HeldBack {
    due: Nanos,
    slot: u32,
    generation: u32,
    /// None: the end of what the peer sends.
    bytes: Option<Vec<u8>>,
}

impl Delays {
    pub(super) fn new(delay_ms: u64) -> Self {
        Self {
            delay_ms,
            ..Self::default()
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.delay_ms > 0
    }

    /// When the first is due.
    pub(super) fn next_due(&self) -> Option<Nanos> {
        self.queue.front().map(|held| held.due)
    }

    fn push(&mut self, now: Nanos, owner: (u32, u32), bytes: Option<Vec<u8>>) -> usize {
        let len = bytes.as_ref().map_or(0, Vec::len);
        self.queue.push_back(HeldBack {
            due: now.plus_ms(self.delay_ms),
            slot: owner.0,
            generation: owner.1,
            bytes,
        });
        let total = self.bytes.entry(owner).or_default();
        *total += len;
        *total
    }

    fn pop(&mut self, now: Nanos) -> Option<HeldBack> {
        if self.next_due()? > now {
            return None;
        }
        let held = self.queue.pop_front()?;
        let owner = (held.slot, held.generation);
        let len = held.bytes.as_ref().map_or(0, Vec::len);
        if let Some(total) = self.bytes.get_mut(&owner) {
            *total -= len;
            if *total == 0 {
                self.bytes.remove(&owner);
            }
        }
        Some(held)
    }
}

impl<D: Driver> Worker<D> {
    /// Copies what has come, since the engine's buffers are few, and keeps it until it is due.
    pub(super) fn hold_back(&mut self, slot: u32, lease: Lease) {
        let bytes = self.driver.received(&lease).to_vec();
        self.driver.release(lease);
        let now = self.driver.now();
        let conn = self.conns.at(slot);
        let total = self.delays.push(now, (slot, conn.generation), Some(bytes));
        if total > HELD_MAX && conn.receiving {
            // Whoever looks at the bytes receives again.
            conn.receiving = false;
            self.driver.pause_receiving(conn.socket);
        }
    }

    /// Keeps the end of what the peer sends until it is due.
    pub(super) fn hold_back_end(&mut self, slot: u32) {
        let now = self.driver.now();
        let generation = self.conns.at(slot).generation;
        self.delays.push(now, (slot, generation), None);
    }

    /// Hands on what is due.
    pub(super) fn hand_on(&mut self) {
        let now = self.driver.now();
        while let Some(held) = self.delays.pop(now) {
            // The connection may be over by now.
            if self.conns.find(held.slot, held.generation).is_none() {
                continue;
            }
            match held.bytes {
                Some(bytes) => self.arrived(held.slot, Arrived::Held(bytes)),
                None => self.arrived_end(held.slot),
            }
        }
    }
}
