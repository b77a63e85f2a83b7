//! Bodies of archives that are stored as gzip alone, on their way into memory.
//!
//! A request for bytes of such a body waits until it is there. First its gzip is read, as other
//! content is: what the disk has to bring comes later. Then it is inflated, so much in each turn
//! that other connections wait for one body at the most, whoever asks for how many. A body that
//! several wait for is read and inflated once.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};

use gannet_io::driver::{Done, Driver, Errno, Started, Token};

use super::{Disk, Kind, Worker, owner, token};
use crate::limits::{GZIPS_READ_MAX, INFLATED_PER_TURN_MAX};
use crate::site::inflated::Inflation;

/// What a worker has to inflate.
#[derive(Default)]
pub(super) struct Inflating {
    /// By the numbers of file and body.
    jobs: HashMap<(u32, u32), Job>,
    /// Those whose gzip is still to be read, in the order in which they were asked for.
    queue: VecDeque<(u32, u32)>,
    /// Those that the disk was asked for, by the number that the question's token carries.
    reading: [Option<(u32, u32)>; GZIPS_READ_MAX],
    /// Those whose gzip was read, or could not be.
    ready: VecDeque<GzipRead>,
}

struct GzipRead {
    key: (u32, u32),
    gzip: Result<Vec<u8>, Errno>,
}

struct Job {
    inflation: Inflation,
    /// Who waits for the body, as for an answer of the disk.
    askers: Vec<Token>,
}

impl Inflating {
    /// Whether there is something to do that needs no answer of the disk.
    pub(super) fn is_due(&self) -> bool {
        !self.ready.is_empty()
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

impl<D: Driver> Worker<D> {
    /// A request waits for a body. It is answered when the turn's completions have been looked at,
    /// or later.
    pub(super) fn ask_for_body(&mut self, inflation: Inflation, asker: Token) {
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
            // Before more memory is used: those are let go whose connection has ended meanwhile.
            // A stream's question is counted by its connection until it is answered.
            let conns = &mut self.conns;
            job.askers.retain(|asker| {
                let (slot, generation) = owner(*asker);
                Kind::Disk.is_of(*asker) && conns.find(slot, generation).is_some()
                    || Kind::StreamDisk.is_of(*asker)
            });
        }
        job.askers.push(asker);
    }

    /// The disk has read the gzip of a body, or could not.
    pub(super) fn gzip_read(&mut self, place: u32, result: Result<Done, Errno>) {
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

    /// Reads and inflates what there is time for in this turn, and answers who waited for it.
    pub(super) fn inflate(&mut self) {
        let mut inflated = 0;
        loop {
            self.read_gzips();
            let Inflating { jobs, ready, .. } = &mut self.inflating;
            let Some(GzipRead { key, gzip }) = ready.pop_front() else {
                return;
            };
            let Entry::Occupied(job) = jobs.entry(key) else {
                continue;
            };
            inflated += job.get().inflation.len();
            if inflated > INFLATED_PER_TURN_MAX {
                return ready.push_front(GzipRead { key, gzip });
            }
            let Job { inflation, askers } = job.remove();
            self.counters.inflated += 1;
            let body = gzip.and_then(|gzip| inflation.inflate(&gzip).ok_or(Errno::IO));
            for asker in askers {
                // It is found in memory, since we hold it until all have their answers.
                let told = body.as_ref().map(|_| Disk::Inflated).map_err(|e| *e);
                let (slot, generation) = owner(asker);
                match Kind::StreamDisk.is_of(asker) {
                    true => self.stream_disk_told(slot, told),
                    false => self.disk(slot, generation, told),
                }
            }
        }
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
            let asker = token(Kind::Inflation, place as u32, 0);
            match job.inflation.read(&mut self.driver, asker) {
                Started::Now(gzip) => ready.push_back(GzipRead { key, gzip }),
                Started::Pending => reading[place] = Some(key),
            }
        }
    }
}
