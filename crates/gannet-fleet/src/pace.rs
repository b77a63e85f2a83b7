//! How long to wait for whom: minimum rates of bodies, our own limit, and pauses after failures.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::Stream;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::error::Cause;
use crate::limits::{
    ANSWER_TIMEOUT, ATTEMPT_PAUSE, ATTEMPTS_MAX, BACK_OFF_LEAST, BACK_OFF_MOST, BODY_LEAST,
    BODY_WINDOW,
};

/// How long a follower waits for a store.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// For a connection, the begin of an answer, and all of a pointer.
    pub answer: Duration,
    /// A body has to bring `least` bytes within this time, again and again.
    pub window: Duration,
    /// See `window`.
    pub least: u64,
    /// Between two attempts at a request, times the number of those made.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            answer: ANSWER_TIMEOUT,
            window: BODY_WINDOW,
            least: BODY_LEAST,
            pause: ATTEMPT_PAUSE,
        }
    }
}

impl Patience {
    /// Tries again what fails for a moment, [`ATTEMPTS_MAX`] times in all.
    pub(crate) async fn attempts<T>(
        &self,
        mut attempt: impl AsyncFnMut() -> Result<T, Cause>,
    ) -> Result<T, Cause> {
        let mut attempts = 1;
        loop {
            match attempt().await {
                Err(cause) if cause.is_passing() && attempts < ATTEMPTS_MAX => {
                    sleep(self.pause * attempts).await;
                    attempts += 1;
                }
                ended => return ended,
            }
        }
    }
}

/// The wait after this many failures in a row, at least one: doubled each time, and of that a random
/// part, at least half, so that a fleet does not come back as one.
#[must_use]
pub fn back_off(failures: u32) -> Duration {
    let doubled = BACK_OFF_LEAST.saturating_mul(1 << failures.saturating_sub(1).min(16));
    between(doubled.min(BACK_OFF_MOST), 0.5, 1.0)
}

/// About this long, 20 % less or more: a fleet that was started as one does not poll as one.
#[must_use]
pub fn jittered(interval: Duration) -> Duration {
    between(interval, 0.8, 1.2)
}

/// A random part of a duration between two factors.
pub(crate) fn between(duration: Duration, least: f64, most: f64) -> Duration {
    // Keys of the standard library's hash tables are random.
    let random = RandomState::new().hash_one(0_u8) >> 32;
    let part = random as f64 / f64::from(u32::MAX);
    duration.mul_f64(least + (most - least) * part)
}

/// Counts what has been fetched, and keeps below a limit.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Bytes of releases that have arrived.
    pub(crate) bytes: u64,
    /// Bytes a second.
    rate_max: Option<u64>,
    /// When the bytes so far may have arrived at the earliest.
    free_at: Instant,
}

impl Meter {
    pub(crate) fn new(rate_max: Option<u64>) -> Self {
        Self {
            bytes: 0,
            rate_max,
            free_at: Instant::now(),
        }
    }

    /// Counts bytes that have arrived, and waits until the limit allows for more.
    async fn pass(&mut self, len: u64) {
        self.bytes += len;
        if let Some(rate_max) = self.rate_max {
            let takes = Duration::from_secs_f64(len as f64 / rate_max as f64);
            self.free_at = self.free_at.max(Instant::now()) + takes;
            sleep_until(self.free_at).await;
        }
    }
}

/// A body of a known length that has to keep up a rate.
pub(crate) struct Body<S> {
    stream: S,
    /// Bytes that are to come.
    left: u64,
    patience: Patience,
    window_ends: Instant,
    /// Bytes of this window.
    brought: u64,
}

impl<S, B> Body<S>
where
    S: Stream<Item = object_store::Result<B>> + Unpin,
    B: AsRef<[u8]>,
{
    pub(crate) fn new(stream: S, len: u64, patience: Patience) -> Self {
        Self {
            stream,
            left: len,
            patience,
            window_ends: Instant::now() + patience.window,
            brought: 0,
        }
    }

    /// The next piece; `None` once all have come.
    pub(crate) async fn next(&mut self, meter: &mut Meter) -> Result<Option<B>, Cause> {
        if self.left == 0 {
            return Ok(None);
        }
        let piece = loop {
            match timeout_at(self.window_ends, self.stream.next()).await {
                Ok(Some(piece)) => break piece.map_err(Cause::Objects)?,
                Ok(None) => return Err(Cause::Short),
                Err(_) if self.brought < self.patience.least => return Err(Cause::Slow),
                Err(_) => self.begin_window(),
            }
        };
        let len = piece.as_ref().len() as u64;
        self.left = self.left.checked_sub(len).ok_or(Cause::Long)?;
        self.brought += len;
        let before = Instant::now();
        meter.pass(len).await;
        // The limit is ours.
        self.window_ends += before.elapsed();
        Ok(Some(piece))
    }

    fn begin_window(&mut self) {
        self.brought = 0;
        self.window_ends = Instant::now() + self.patience.window;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;
    use tokio::runtime::Builder;

    /// Runs a body of pieces, each after a wait, on a clock that goes by itself while nothing else
    /// does; returns how it ended, and after how many seconds.
    fn run(
        rate_max: Option<u64>,
        piece: usize,
        count: u64,
        wait_ms: u64,
    ) -> (Result<(), Cause>, u64) {
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let pieces = stream::unfold((), |()| async move {
                sleep(Duration::from_millis(wait_ms)).await;
                Some((Ok(vec![0; piece]), ()))
            });
            let begun = Instant::now();
            let mut meter = Meter::new(rate_max);
            let len = piece as u64 * count;
            let mut body = Body::new(Box::pin(pieces), len, Patience::default());
            let ended = loop {
                match body.next(&mut meter).await {
                    Ok(Some(_)) => {}
                    Ok(None) => break Ok(()),
                    Err(cause) => break Err(cause),
                }
            };
            (ended, begun.elapsed().as_secs())
        })
    }

    #[test]
    fn a_limited_body_takes_as_long_as_the_limit_says() {
        assert!(matches!(run(Some(10_000), 5000, 100, 1), (Ok(()), 50)));
        // Nor is it slow because of a limit, be its pieces as large as they may.
        let least = crate::limits::RATE_LEAST;
        assert!(matches!(run(Some(least), 8 << 20, 2, 1), (Ok(()), 2048)));
        assert!(matches!(run(None, 5000, 100, 1), (Ok(()), 0)));
    }

    #[test]
    fn a_body_that_is_too_slow_is_ended_within_a_window() {
        let window = BODY_WINDOW.as_secs();
        let (ended, after) = run(None, 1, u64::MAX, 1000);
        assert!(matches!(ended, Err(Cause::Slow)));
        assert_eq!(after, window);
        // A little faster, it may go on for ever.
        let (ended, after) = run(None, 1100, 1000, 1000);
        assert!(ended.is_ok(), "{ended:?}");
        assert_eq!(after, 1000);
    }

    #[test]
    fn waits_grow_to_a_bound_and_differ() {
        for failures in 1..100 {
            let most = BACK_OFF_LEAST.as_secs_f64() * 2_f64.powi(failures - 1);
            let most = most.min(BACK_OFF_MOST.as_secs_f64());
            let wait = back_off(failures.unsigned_abs()).as_secs_f64();
            assert!((most * 0.5..=most).contains(&wait), "{failures}: {wait}");
        }
        let waits: Vec<_> = (0..8).map(|_| jittered(BACK_OFF_MOST)).collect();
        assert!(waits.iter().any(|it| *it != waits[0]), "{waits:?}");
        let near = |it: &&Duration| (240.0..=360.0).contains(&it.as_secs_f64());
        assert_eq!(waits.iter().filter(near).count(), 8, "{waits:?}");
    }
}
