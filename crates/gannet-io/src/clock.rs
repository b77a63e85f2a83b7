//! The two clocks of a turn, read together once per wait; and whether the machine's clock is right.

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

/// Whether a time service keeps the machine's clock right (adjtimex(2)); `None` if the kernel does not
/// say, as in some sandboxes.
#[must_use]
pub fn is_synchronised() -> Option<bool> {
    /// `STA_UNSYNC` of `linux/timex.h`.
    const UNSYNCHRONISED: libc::c_int = 0x40;
    // SAFETY: an all-zero timex is a valid one.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: `state` is alive; without modes the kernel changes nothing and only fills it.
    let result = unsafe { libc::adjtimex(&raw mut state) };
    (result >= 0).then_some(state.status & UNSYNCHRONISED == 0)
}
