//! How long requests take while others swap releases: an open loop, whose requests are due at
//! times fixed in advance and whose latency counts from then.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use gannet_testkit::client::Client;
use hdrhistogram::Histogram;

use super::site::{FILES, file};

/// Connections that make the requests.
const CLIENTS: u32 = 8;

/// Requests a second, of all of them together.
const RATE: u32 = 800;

/// Longest latency that can be told apart, in nanoseconds: a minute.
const LATENCY_MAX: u64 = 60_000_000_000;

/// The latencies of some requests, in nanoseconds.
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    fn new() -> Result<Self> {
        let histogram = Histogram::new_with_bounds(1, LATENCY_MAX, 3);
        Ok(Self(histogram.map_err(|e| anyhow!("histogram: {e}"))?))
    }

    /// Number of requests.
    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The latency that this many percent do not exceed, in milliseconds.
    pub(super) fn percentile(&self, percent: f64) -> f64 {
        self.0.value_at_percentile(percent) as f64 / 1e6
    }
}

/// Asks for files of the site for `time`. Returns the latencies of requests that were under way
/// while `is_swapping`, and those of all others.
///
/// # Errors
///
/// A thread has failed: a response was wrong.
pub(super) fn run(
    address: SocketAddr,
    time: Duration,
    is_swapping: &AtomicBool,
) -> Result<[Latencies; 2]> {
    let mut all = [Latencies::new()?, Latencies::new()?];
    let start = Instant::now();
    let results: Vec<_> = thread::scope(|scope| {
        let client = |number| scope.spawn(move || ask(address, number, (start, time), is_swapping));
        let threads: Vec<_> = (0..CLIENTS).map(client).collect();
        threads.into_iter().map(|it| it.join()).collect()
    });
    for result in results {
        let result = result.map_err(|_| anyhow!("a request failed, see above"))??;
        for (sum, one) in all.iter_mut().zip(result) {
            let added = sum.0.add(one.0);
            added.map_err(|e| anyhow!("histogram: {e}"))?;
        }
    }
    Ok(all)
}

/// What one client does.
fn ask(
    address: SocketAddr,
    number: u32,
    (start, time): (Instant, Duration),
    is_swapping: &AtomicBool,
) -> Result<[Latencies; 2]> {
    let mut latencies = [Latencies::new()?, Latencies::new()?];
    let mut client = Client::connect(address);
    let mut wanted = number as usize;
    for turn in 0.. {
        let after = Duration::from_secs(1) * (turn * CLIENTS + number) / RATE;
        if after > time {
            break;
        }
        let due = start + after;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // A prime, so that files of all folders come one after the other.
        wanted = (wanted + 7_919) % FILES;
        let (path, content) = file(wanted);
        let was_swapping = is_swapping.load(Ordering::SeqCst);
        let response = client.get(&path).expect(200);
        assert_eq!(response.text(), content, "{path}");
        let latency = due.elapsed().as_nanos() as u64;
        let is_calm = !was_swapping && !is_swapping.load(Ordering::SeqCst);
        latencies[usize::from(is_calm)].0.saturating_record(latency);
    }
    Ok(latencies)
}
