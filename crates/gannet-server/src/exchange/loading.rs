//! Loads bodies into memory: see `release/bodies`.
//!
//! A request for bytes of such a body waits until it is loaded. First the stored form is read,
//! possibly completing later. Then it is decoded, if it is stored in a coding, within a budget of
//! bytes per turn. A body with several waiters is read and decoded once.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use gannet_io::driver::{Done, Driver, Errno, Started, Token};
use gannet_io::memory::Memory;

use crate::bounds::ledger::Work;
use crate::bounds::limits::LOADS_MAX;
use crate::exchange::shared::Shared;
use crate::exchange::waiters::Line;
use crate::ground::token::{Kind, token};
use crate::release::bodies::Load;
use crate::release::wakeup::Wakeup;
use crate::worker::Worker;

/// The bodies that a worker is reading or decoding.
#[derive(Default)]
pub(crate) struct Loading {
    /// By file and number of the body: see [`Load::key`].
    jobs: HashMap<(usize, u32), LoadingJob>,
    /// Bodies not read yet, in the order of their requests.
    queue: VecDeque<(usize, u32)>,
    /// Bodies being read, by the number in their token.
    reading: [Option<(usize, u32)>; LOADS_MAX],
    /// Bodies whose stored form was read, or could not be.
    ready: VecDeque<BodyRead>,
}

struct BodyRead {
    key: (usize, u32),
    stored: Result<Vec<u8>, Errno>,
}

struct LoadingJob {
    load: Load,
    /// Requests that wait for the body.
    waiters: Line,
}

impl Loading {
    /// Whether a job can proceed without waiting for a completion.
    pub(crate) fn is_due(&self) -> bool {
        // No completion announces a job that was queued after this turn's reads.
        !self.ready.is_empty() || !self.queue.is_empty() && self.place().is_some()
    }

    /// Bytes of stored forms that are held or being read.
    pub(crate) fn held_bytes(&self) -> u64 {
        let reading = self.reading.iter().flatten();
        let reading = reading.filter_map(|key| Some(self.jobs.get(key)?.load.stored_len()));
        let ready = self.ready.iter();
        let ready = ready.map(|read| read.stored.as_ref().map_or(0, |stored| stored.len() as u64));
        reading.sum::<u64>() + ready.sum::<u64>()
    }

    /// A free place to read one more body.
    fn place(&self) -> Option<usize> {
        let reading = self.reading.iter().flatten().count();
        if reading + self.ready.len() >= LOADS_MAX {
            return None;
        }
        self.reading.iter().position(Option::is_none)
    }
}

impl<D: Driver> Shared<D> {
    /// Queues a body for `waiter`, which is woken after the turn's completions, or later.
    pub(crate) fn ask_for_body(&mut self, load: Load, waiter: Token) {
        let Loading { jobs, queue, .. } = &mut self.loading;
        let job = match jobs.entry(load.key()) {
            Entry::Occupied(job) => job.into_mut(),
            Entry::Vacant(free) => {
                queue.push_back(*free.key());
                free.insert(LoadingJob {
                    load,
                    waiters: Line::default(),
                })
            }
        };
        job.waiters.push(waiter, &mut self.waiters);
    }

    /// Handles the stored form of a body that was read, or could not be.
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

    /// Starts reading as many bodies as there are free places.
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

    /// Whether a body of `len` bytes fits, if necessary after dropping cached ones.
    pub(crate) fn has_room_for_body(&mut self, len: u64) -> bool {
        if !self.ledger.has_room(len) {
            self.release.forget_bodies();
        }
        self.ledger.has_room(len)
    }

    /// Loads a body into memory; [`Errno::AGAIN`] if bodies held by peers use up the limit,
    /// otherwise the errors of [`Load::finish`].
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
    /// Reads and decodes bodies within the turn's budget, and wakes their waiters.
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
            let LoadingJob { load, waiters } = job.remove();
            let body = stored.and_then(|stored| self.shared.finish_load(&load, stored));
            for waiter in waiters.0 {
                // `body` keeps it alive until every waiter has been woken.
                let wakeup = body.as_ref().map(|_| Wakeup::Loaded).map_err(|e| *e);
                self.wake(waiter, wakeup);
            }
        }
    }
}
