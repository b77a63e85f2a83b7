//! Bodies on their way into memory: see `release/bodies`.
//!
//! A request for bytes of such a body waits until it is there. First what is stored is read, as other
//! content is: what the disk has to bring comes later. Then it is decoded, if it is stored in a coding;
//! other connections wait for so many bytes per turn. A body that several wait for is read and
//! decoded once.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use gannet_io::driver::{Done, Driver, Errno, Started, Token};
use gannet_io::memory::Memory;

use super::Wakeup;
use crate::limits::LOADS_MAX;
use crate::release::bodies::Load;
use crate::worker::Worker;
use crate::worker::ledger::Work;
use crate::worker::shared::Shared;
use crate::worker::token::{Kind, token};
use crate::worker::waiters::Line;

/// The bodies that a worker has to read or decode.
#[derive(Default)]
pub(crate) struct Loading {
    /// By file and number of the body: see [`Load::key`].
    jobs: HashMap<(usize, u32), Job>,
    /// Those that are still to be read, in the order in which they were asked for.
    queue: VecDeque<(usize, u32)>,
    /// Those that the disk was asked for, by the number that the question's token carries.
    reading: [Option<(usize, u32)>; LOADS_MAX],
    /// Those of which what is stored was read, or could not be.
    ready: VecDeque<BodyRead>,
}

struct BodyRead {
    key: (usize, u32),
    stored: Result<Vec<u8>, Errno>,
}

struct Job {
    load: Load,
    /// Who waits for the body, as for an answer of the disk.
    waiters: Line,
}

impl Loading {
    /// Whether there is something to do that needs no answer of the disk.
    pub(crate) fn is_due(&self) -> bool {
        // Whoever asks after this turn's bodies were read announces itself in no other way.
        !self.ready.is_empty() || !self.queue.is_empty() && self.place().is_some()
    }

    /// Bytes stored for these bodies that are held, or that are being read.
    pub(crate) fn held_bytes(&self) -> u64 {
        let reading = self.reading.iter().flatten();
        let reading = reading.filter_map(|key| Some(self.jobs.get(key)?.load.stored_len()));
        let ready = self.ready.iter();
        let ready = ready.map(|read| read.stored.as_ref().map_or(0, |stored| stored.len() as u64));
        reading.sum::<u64>() + ready.sum::<u64>()
    }

    /// Room to read one more body.
    fn place(&self) -> Option<usize> {
        let reading = self.reading.iter().flatten().count();
        if reading + self.ready.len() >= LOADS_MAX {
            return None;
        }
        self.reading.iter().position(Option::is_none)
    }
}

impl<D: Driver> Shared<D> {
    /// A request waits for a body. It is answered when the turn's completions have been looked at,
    /// or later.
    pub(crate) fn ask_for_body(&mut self, load: Load, waiter: Token) {
        let Loading { jobs, queue, .. } = &mut self.loading;
        let job = match jobs.entry(load.key()) {
            Entry::Occupied(job) => job.into_mut(),
            Entry::Vacant(free) => {
                queue.push_back(*free.key());
                free.insert(Job {
                    load,
                    waiters: Line::default(),
                })
            }
        };
        job.waiters.push(waiter, &mut self.waiters);
    }

    /// The disk has read what is stored for a body, or could not.
    pub(crate) fn body_read(&mut self, place: u32, result: Result<Done, Errno>) {
        let place = self.loading.reading.get_mut(place as usize);
        let Some(key) = place.and_then(Option::take) else {
            return;
        };
        let stored = result.and_then(|done| match done {
            Done::Read(bytes) => Ok(bytes),
            _ => Err(Errno::IO),
        });
        self.loading.ready.push_back(BodyRead { key, stored });
    }

    /// Reads as many bodies as there is room for.
    fn read_bodies(&mut self) {
        while !self.loading.queue.is_empty() {
            let Some(place) = self.loading.place() else {
                return;
            };
            let Loading {
                jobs,
                queue,
                reading,
                ready,
            } = &mut self.loading;
            let Some((key, job)) = queue
                .pop_front()
                .and_then(|key| Some((key, jobs.get_mut(&key)?)))
            else {
                continue;
            };
            if !job.waiters.prune(&mut self.waiters) {
                jobs.remove(&key);
                continue;
            }
            let waiter = token(Kind::Load, place as u32);
            match job.load.read(&mut self.driver, waiter) {
                Started::Now(stored) => ready.push_back(BodyRead { key, stored }),
                Started::Pending => reading[place] = Some(key),
            }
        }
    }

    /// Whether there may be a body of so many bytes more, if need be in the place of those that are
    /// cached.
    pub(crate) fn has_room_for_body(&mut self, len: u64) -> bool {
        if !self.ledger.has_room(len) {
            self.release.forget_bodies();
        }
        self.ledger.has_room(len)
    }

    /// Brings a body into memory; [`Errno::AGAIN`] if peers hold as many as there may be, else as
    /// [`Load::finish`].
    fn finish_load(&mut self, load: &Load, stored: Vec<u8>) -> Result<Arc<Memory>, Errno> {
        if let Some(body) = load.known() {
            return Ok(body);
        }
        let len = load.len();
        if !self.has_room_for_body(len) {
            return Err(Errno::AGAIN);
        }
        let body = load.finish(stored, &self.driver)?;
        self.counters.decoded += u64::from(load.is_coded());
        let charge = self.ledger.charge(body.len() as u64);
        Ok(load.keep(body, charge))
    }
}

impl<D: Driver> Worker<D> {
    /// Reads and decodes what there is time for in this turn, and answers who waited for it.
    pub(crate) fn load_bodies(&mut self) {
        loop {
            self.shared.read_bodies();
            let Loading { jobs, ready, .. } = &mut self.shared.loading;
            let Some(BodyRead { key, stored }) = ready.pop_front() else {
                return;
            };
            let Entry::Occupied(job) = jobs.entry(key) else {
                continue;
            };
            if !self.shared.budget.take(Work::Load, job.get().load.len()) {
                return ready.push_front(BodyRead { key, stored });
            }
            let Job { load, waiters } = job.remove();
            let body = stored.and_then(|stored| self.shared.finish_load(&load, stored));
            for waiter in waiters.0 {
                // `body` keeps it alive until every waiter has been answered.
                let wakeup = body.as_ref().map(|_| Wakeup::Loaded).map_err(|e| *e);
                self.wake(waiter, wakeup);
            }
        }
    }
}
