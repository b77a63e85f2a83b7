//! The two clocks of a turn, read together once per wait.

use rustix::time::ClockId;

use crate::operation::Nanos;

/// The clocks as last read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: Nanos,
    pub(crate) unix_ms: i64,
}

impl Clock {
    pub(crate) fn read() -> Self {
        let now = rustix::time::clock_gettime(ClockId::Monotonic);
        // Coarse: a few milliseconds behind at most, which is precise enough for dates and logs.
        let real = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
        let ns = (now.tv_sec as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(now.tv_nsec as u64);
        Self {
            now: Nanos(ns),
            unix_ms: real.tv_sec * 1_000 + real.tv_nsec as i64 / 1_000_000,
        }
    }
}
