//! An open loop: requests are due at times fixed in advance, and their latency counts from then, so
//! that a server that stalls cannot slow down its own clients.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use gannet_testkit::client::Client;
use hdrhistogram::Histogram;

/// Longest latency that can be told apart, in nanoseconds: a minute.
const LATENCY_MAX: u64 = 60_000_000_000;

/// The latencies of some requests, in nanoseconds.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    /// Those of none.
    pub(crate) fn new() -> Result<Self> {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX, 3);
        Ok(Self(histogram.map_err(|e| anyhow!("histogram: {e}"))?))
    }

    /// The latencies of both together.
    pub(crate) fn with(mut self, more: &Self) -> Result<Self> {
        self.0.add(&more.0).map_err(|e| anyhow!("histogram: {e}"))?;
        Ok(self)
    }

    /// Number of requests.
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that this many percent do not exceed, in milliseconds.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        self.0.value_at_percentile(percent) as f64 / 1e6
    }
}

/// How often is asked, and for how long.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    /// Requests a second, of all threads together.
    pub(crate) rate: u32,
    pub(crate) time: Duration,
}

/// Lets each client, on a thread of its own, exchange at the times of the pace. `exchange` is told
/// which request it is, counted over all clients, and returns the class to which its latency
/// belongs.
///
/// # Errors
///
/// A thread has failed: a response was wrong.
pub(crate) fn run<const CLASSES: usize>(
    clients: Vec<Client>,
    pace: Pace,
    exchange: impl Fn(&mut Client, u32) -> usize + Sync,
) -> Result<[Latencies; CLASSES]> {
    let mut all = Vec::new();
    for _ in 0..CLASSES {
        all.push(Latencies::new()?);
    }
    let (start, count) = (Instant::now(), clients.len() as u32);
    let results: Vec<_> = thread::scope(|scope| {
        let client = |(number, mut client): (u32, Client)| {
            let exchange = &exchange;
            scope.spawn(move || {
                let mut latencies = Vec::new();
                for request in (number..).step_by(count as usize) {
                    let after = Duration::from_secs(1) * request / pace.rate;
                    if after > pace.time {
                        break;
                    }
                    let due = start + after;
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                    let class = exchange(&mut client, request);
                    latencies.push((class, due.elapsed().as_nanos() as u64));
                }
                latencies
            })
        };
        let threads: Vec<_> = (0..).zip(clients).map(client).collect();
        threads.into_iter().map(|it| it.join()).collect()
    });
    for result in results {
        for (class, latency) in result.map_err(|_| anyhow!("a request failed, see above"))? {
            all[class].0.saturating_record(latency);
        }
    }
    all.try_into().map_err(|_| anyhow!("a class is missing"))
}
