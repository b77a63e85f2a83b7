//! What a client counts and measures, for its tally.

use std::time::Duration;

use anyhow::{Result, anyhow};
use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use super::Tally;

/// Longest latency that can be told apart, in nanoseconds: ten minutes.
const LATENCY_MAX: u64 = 600_000_000_000;

/// Counts since the counted window began: as in [`Tally`].
#[derive(Default)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) body_bytes: u64,
    pub(super) coded: u64,
    pub(super) wire_bytes: (u64, u64),
    pub(super) reconnects: u64,
    pub(super) verified: u64,
    pub(super) handshakes: u64,
    pub(super) resumed: u64,
}

impl Counts {
    /// The tally of a window with these counts; `served` has the responses of each connection slot, `times`
    /// the length of the window and the CPU time of the client's thread.
    pub(super) fn tally(
        &self,
        mut served: Vec<u64>,
        (latency, last): (&Histogram<u64>, &Histogram<u64>),
        times: (Duration, Duration),
    ) -> Tally {
        served.sort_unstable();
        let (fewest, most) = (served[0], served[served.len() - 1]);
        Tally {
            requests: self.requests,
            body_bytes: self.body_bytes,
            coded: self.coded,
            wire_bytes: self.wire_bytes,
            elapsed: times.0,
            latency: latency.clone(),
            last: last.clone(),
            served: (fewest, served[served.len() / 2], most),
            unserved: served.iter().filter(|&&count| count == 0).count(),
            reconnects: self.reconnects,
            verified: self.verified,
            handshakes: self.handshakes,
            resumed: self.resumed,
            client_cpu: times.1,
        }
    }
}

/// An empty histogram of latencies.
pub(super) fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_MAX, 3).map_err(|e| anyhow!("histogram: {e}"))
}

/// CPU time of the calling thread.
pub(super) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
