//! The two clocks of a turn, read together once per wait.

use rustix::time::ClockId;

use crate::driver::Nanos;

/// What the clocks showed when last read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: Nanos,
    pub(crate) unix_seconds: i64,
}

impl Clock {
    pub(crate) fn read() -> Self {
        let now = rustix::time::clock_gettime(ClockId::Monotonic);
        // Coarse: a few milliseconds behind at most, and only seconds are wanted.
        let real = rustix::time::clock_gettime(ClockId::RealtimeCoarse);
        let ns = (now.tv_sec as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(now.tv_nsec as u64);
        Self {
            now: Nanos(ns),
            unix_seconds: real.tv_sec,
        }
    }
}
