//! Loads bodies into memory: see `release/bodies`.
//!
//! A request for bytes of such a body waits until it is loaded. First the stored form is read,
//! possibly completing later. Then it is decoded, if it is stored in a coding, within a budget of
//! bytes per turn. A body with several waiters is read and decoded once.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use gannet_io::driver::{Done, Driver, Errno, Started, Token};

use crate::bounds::ledger::Work;
use crate::bounds::limits::{LOADS_HELD_MAX, LOADS_MAX};
use crate::exchange::shared::Shared;
use crate::exchange::waiters::Line;
use crate::ground::token::{Kind, token};
use crate::release::bodies::{Load, Loaded};
use crate::release::body::Body;
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
    /// Bodies whose stored form was read or copied, or could not be.
    ready: VecDeque<BodyRead>,
}

struct BodyRead {
    key: (usize, u32),
    stored: Result<Loaded, Errno>,
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
        !self.ready.is_empty() || self.next_place().is_some()
    }

    /// Bytes of stored forms that are held or being read, and of copies being made.
    pub(crate) fn held_bytes(&self) -> u64 {
        let reading = self.reading.iter().flatten();
        let reading = reading.filter_map(|key| Some(self.jobs.get(key)?.load.stored_len()));
        let ready = self.ready.iter();
        let ready = ready.map(|read| read.stored.as_ref().map_or(0, Loaded::held_bytes));
        reading.sum::<u64>() + ready.sum::<u64>()
    }

    /// A free place to read the next body.
    fn next_place(&self) -> Option<usize> {
        let reading = self.reading.iter().flatten().count();
        let next = self.jobs.get(self.queue.front()?);
        let next = next.map_or(0, |job| job.load.stored_len());
        let has_room =
            reading + self.ready.len() < LOADS_MAX && self.held_bytes() + next <= LOADS_HELD_MAX;
        let place = self.reading.iter().position(Option::is_none);
        place.filter(|_| has_room)
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
        let stored = result.and_then(Loaded::try_from);
        self.loading.ready.push_back(BodyRead { key, stored });
    }

    /// Starts reading as many bodies as there are free places.
    fn read_bodies(&mut self) {
        while !self.loading.queue.is_empty() {
            let Some(place) = self.loading.next_place() else {
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
            let started = match job.load.is_copied() && !self.ledger.has_room(job.load.len()) {
                // It is sent from its file rather than that others are dropped for it.
                true => Started::Now(Err(Errno::AGAIN)),
                false => job.load.read(&mut self.driver, waiter),
            };
            match started {
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
    fn finish_load(&mut self, load: &Load, read: Loaded) -> Result<Body, Errno> {
        if let Some(body) = load.known() {
            return Ok(body);
        }
        let len = load.len();
        if !self.has_room_for_body(len) {
            return Err(Errno::AGAIN);
        }
        let content = load.finish(read, &self.driver)?;
        self.counters.decoded += u64::from(load.is_coded());
        Ok(load.keep(content, |len| self.ledger.charge(len)))
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
            let load = &job.get().load;
            // A copy was made elsewhere.
            if !load.is_copied() && !self.shared.budget.take(Work::Load, load.len()) {
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
