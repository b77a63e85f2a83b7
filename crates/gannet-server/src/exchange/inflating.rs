//! Bodies of archives on their way into memory: see `release/inflated`.
//!
//! A request for bytes of such a body waits until it is there. First its gzip is read, as other
//! content is: what the disk has to bring comes later. Then it is inflated (if it is stored as
//! gzip), so that other connections wait for at most one body per turn. A body that several wait
//! for is read and inflated once.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use gannet_io::driver::{Done, Driver, Errno, Started, Token};

use super::Disk;
use crate::limits::GZIPS_READ_MAX;
use crate::release::inflated::Inflation;
use crate::worker::Worker;
use crate::worker::ledger::{Account, Work};
use crate::worker::shared::{Shared, is_awaited};
use crate::worker::token::{Kind, token};

/// What a worker has to inflate.
#[derive(Default)]
pub(crate) struct Inflating {
    /// By file and number of the body: see [`Inflation::key`].
    jobs: HashMap<(usize, u32), Job>,
    /// Those whose gzip is still to be read, in the order in which they were asked for.
    queue: VecDeque<(usize, u32)>,
    /// Those that the disk was asked for, by the number that the question's token carries.
    reading: [Option<(usize, u32)>; GZIPS_READ_MAX],
    /// Those whose gzip was read, or could not be.
    ready: VecDeque<GzipRead>,
}

struct GzipRead {
    key: (usize, u32),
    gzip: Result<Vec<u8>, Errno>,
}

struct Job {
    inflation: Inflation,
    /// Who waits for the body, as for an answer of the disk.
    askers: Vec<Token>,
}

impl Inflating {
    /// Whether there is something to do that needs no answer of the disk.
    pub(crate) fn is_due(&self) -> bool {
        // Whoever asks after this turn's bodies were read announces itself in no other way.
        !self.ready.is_empty() || !self.queue.is_empty() && self.place().is_some()
    }

    /// Bytes of gzip that are held, or that are being read.
    pub(crate) fn held_bytes(&self) -> u64 {
        let reading = self.reading.iter().flatten();
        let reading = reading.filter_map(|key| Some(self.jobs.get(key)?.inflation.stored_len()));
        let ready = self.ready.iter();
        let ready = ready.map(|read| read.gzip.as_ref().map_or(0, |gzip| gzip.len() as u64));
        reading.sum::<u64>() + ready.sum::<u64>()
    }

    /// Room for the gzip of one more body.
    fn place(&self) -> Option<usize> {
        let reading = self.reading.iter().flatten().count();
        if reading + self.ready.len() >= GZIPS_READ_MAX {
            return None;
        }
        self.reading.iter().position(Option::is_none)
    }
}

impl<D: Driver> Shared<D> {
    /// A request waits for a body. It is answered when the turn's completions have been looked at,
    /// or later.
    pub(crate) fn ask_for_body(&mut self, inflation: Inflation, asker: Token) {
        let Inflating { jobs, queue, .. } = &mut self.inflating;
        let job = match jobs.entry(inflation.key()) {
            Entry::Occupied(job) => job.into_mut(),
            Entry::Vacant(free) => {
                queue.push_back(*free.key());
                free.insert(Job {
                    inflation,
                    askers: Vec::new(),
                })
            }
        };
        if job.askers.len() == job.askers.capacity() {
            // Before more memory is used.
            let (alive, asked) = (&self.alive, &mut self.asked);
            job.askers.retain(|asker| is_awaited(alive, asked, *asker));
        }
        job.askers.push(asker);
    }

    /// The disk has read the gzip of a body, or could not.
    pub(crate) fn gzip_read(&mut self, place: u32, result: Result<Done, Errno>) {
        let place = self.inflating.reading.get_mut(place as usize);
        let Some(key) = place.and_then(Option::take) else {
            return;
        };
        let gzip = result.and_then(|done| match done {
            Done::Read(bytes) => Ok(bytes),
            _ => Err(Errno::IO),
        });
        self.inflating.ready.push_back(GzipRead { key, gzip });
    }

    /// Reads the gzip of as many bodies as there is room for.
    fn read_gzips(&mut self) {
        while !self.inflating.queue.is_empty() {
            let Some(place) = self.inflating.place() else {
                return;
            };
            let Inflating {
                jobs,
                queue,
                reading,
                ready,
            } = &mut self.inflating;
            let Some((key, job)) = queue
                .pop_front()
                .and_then(|key| Some((key, jobs.get_mut(&key)?)))
            else {
                continue;
            };
            let (alive, asked) = (&self.alive, &mut self.asked);
            job.askers.retain(|asker| is_awaited(alive, asked, *asker));
            if job.askers.is_empty() {
                jobs.remove(&key);
                continue;
            }
            let asker = token(Kind::Inflation, place as u32);
            match job.inflation.read(&mut self.driver, asker) {
                Started::Now(gzip) => ready.push_back(GzipRead { key, gzip }),
                Started::Pending => reading[place] = Some(key),
            }
        }
    }
}

impl<D: Driver> Worker<D> {
    /// Reads and inflates what there is time for in this turn, and answers who waited for it.
    pub(crate) fn inflate(&mut self) {
        loop {
            self.shared.read_gzips();
            let Inflating { jobs, ready, .. } = &mut self.shared.inflating;
            let Some(GzipRead { key, gzip }) = ready.pop_front() else {
                return;
            };
            let Entry::Occupied(job) = jobs.entry(key) else {
                continue;
            };
            let len = job.get().inflation.len();
            if !self.shared.budget.take(Work::Inflation, len) {
                return ready.push_front(GzipRead { key, gzip });
            }
            let Job { inflation, askers } = job.remove();
            let (driver, ledger) = (&self.shared.driver, &self.shared.ledger);
            let is_live = inflation.is_live();
            let body = match is_live && !ledger.has_room(Account::Copies, len) {
                true => Err(Errno::AGAIN),
                false => gzip.and_then(|gzip| {
                    let charge = is_live.then(|| ledger.charge(Account::Copies, len));
                    inflation.inflate(gzip, driver, charge).ok_or(Errno::IO)
                }),
            };
            self.shared.counters.inflated += u64::from(body.is_ok() && inflation.is_gzip());
            for asker in askers {
                // `body` keeps it alive until every waiter has been answered.
                let told = body.as_ref().map(|_| Disk::Inflated).map_err(|e| *e);
                self.tell(asker, told);
            }
        }
    }
}
