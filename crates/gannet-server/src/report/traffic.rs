//! A line about the traffic on standard error, at an interval.
//!
//! A thread of its own asks the workers for their counters, as a scraper of the metrics does.

use std::fmt::{self, Display};
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use gannet_io::quantities::counted;

use crate::observe::measures::Histogram;
use crate::observe::metrics::Counters;
use crate::report::snapshots::Snapshots;
use crate::watch::notices::Channel;

/// Dropping it ends the thread.
pub(crate) struct Reporter {
    _held: Sender<()>,
}

impl Reporter {
    /// Starts the thread, which writes a line to `out` after each interval.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        every: Duration,
        snapshots: Snapshots,
        out: &'static Channel,
    ) -> io::Result<Self> {
        let (held, ended) = channel::<()>();
        let thread = std::thread::Builder::new().name("gannet-report".into());
        thread.spawn(move || {
            let mut last = (Instant::now(), Counters::sum(&snapshots.take()));
            let mut next = last.0 + every;
            loop {
                let wait = next.saturating_duration_since(Instant::now());
                if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                let now = (Instant::now(), Counters::sum(&snapshots.take()));
                let seconds = now.0.duration_since(last.0).as_secs_f64();
                out.log(line(&last.1, &now.1, seconds));
                last = now;
                next += every;
                // Intervals that were missed, because the machine slept, are left out.
                if next < last.0 {
                    next = last.0 + every;
                }
            }
        })?;
        Ok(Self { _held: held })
    }
}

/// The line for an interval between two states.
fn line(before: &Counters, after: &Counters, seconds: f64) -> String {
    let since = |count: fn(&Counters) -> u64| count(after).saturating_sub(count(before));
    let per_second = |count: u64| count as f64 / seconds.max(0.001);
    let durations = |counters: &Counters| match &counters.measures {
        Some(measures) => measures.durations(),
        None => Histogram::of_durations(),
    };
    let durations = durations(after).since(&durations(before));
    let at_most = |part| AtMost {
        bound_ns: durations.quantile(part),
        has_any: durations.count() > 0,
    };
    let (hits, misses) = (since(|it| it.cache_hits), since(|it| it.cache_misses));
    let cache = match hits + misses {
        0 => "-".to_owned(),
        all => format!("{:.1} %", 100.0 * hits as f64 / all as f64),
    };
    let errors = counted(since(|it| it.responses[4] + it.cut_short), "error");
    format!(
        "report: {:.1} requests/s, {}, {}, p50 {}, p99 {}, cache hits {cache}, {errors}",
        per_second(since(Counters::responses_total)),
        ByteRate(per_second(since(|it| it.bytes_sent))),
        counted(after.connections_now, "connection"),
        at_most(0.50),
        at_most(0.99),
    )
}

/// The bound of durations that so many are within.
struct AtMost {
    /// `None` if it is beyond all bounds.
    bound_ns: Option<u64>,
    has_any: bool,
}

impl Display for AtMost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound_ns {
            _ if !self.has_any => f.write_str("-"),
            Some(ns) => write!(f, "<= {} ms", ns as f64 / 1e6),
            None => f.write_str("> 10 s"),
        }
    }
}

/// Bytes in a second.
struct ByteRate(f64);

impl Display for ByteRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            rate if rate < 1e3 => write!(f, "{rate:.0} B/s"),
            rate if rate < 1e6 => write!(f, "{:.1} kB/s", rate / 1e3),
            rate if rate < 1e9 => write!(f, "{:.1} MB/s", rate / 1e6),
            rate => write!(f, "{:.2} GB/s", rate / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use gannet_http::semantics::request::{Method, Version};
    use gannet_http::semantics::status::Status;
    use gannet_io::driver::Nanos;

    use super::*;
    use crate::observe::measures::{Measured, Measures, ResponseKind};

    fn counters(responses: u64, took_ms: u64) -> Counters {
        let mut measures = Measures::default();
        let measured = Measured {
            kind: ResponseKind::new(Method::Get, Version::Http11, Status::OK),
            site: 0,
            body_len: 1,
            began: Nanos(0),
            first_byte: None,
        };
        for _ in 0..responses {
            measures.response(&measured, Nanos(took_ms * 1_000_000));
        }
        Counters {
            measures: Some(Box::new(measures)),
            ..Counters::default()
        }
    }

    #[test]
    fn a_line_has_what_happened_since_the_last_one() {
        let mut before = counters(100, 20_000);
        before.responses = [0, 100, 0, 0, 3];
        before.cache_hits = 50;
        let mut after = counters(150, 3);
        *after.measures.as_deref_mut().expect("measured") +=
            before.measures.as_deref().expect("too");
        after.responses = [0, 240, 8, 2, 5];
        (after.cache_hits, after.cache_misses) = (149, 1);
        (after.bytes_sent, after.connections_now, after.cut_short) = (12_000_000, 7, 1);
        assert_eq!(
            line(&before, &after, 10.0),
            "report: 15.2 requests/s, 1.2 MB/s, 7 connections, p50 <= 5 ms, p99 <= 5 ms, \
             cache hits 99.0 %, 3 errors"
        );
        assert_eq!(
            line(&after, &after, 10.0),
            "report: 0.0 requests/s, 0 B/s, 7 connections, p50 -, p99 -, cache hits -, 0 errors"
        );
        let mut failed = after.clone();
        failed.responses[4] += 1;
        assert!(line(&after, &failed, 10.0).ends_with(", 1 error"));
        let idle = Counters::default();
        assert!(line(&idle, &before, 10.0).contains("p50 > 10 s, p99 > 10 s"));
    }
}
