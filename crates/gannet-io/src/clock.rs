//! The two clocks of a turn, read together once per wait; and whether the machine's clock is right.

use std::time::Duration;

use crate::operation::Nanos;

/// The clocks as last read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now: Nanos,
    pub(crate) unix_ms: i64,
}

impl Clock {
    pub(crate) fn read() -> Self {
        let now = read(libc::CLOCK_MONOTONIC);
        // Coarse: a few milliseconds behind at most, which is precise enough for dates and logs.
        let real = read(libc::CLOCK_REALTIME_COARSE);
        let ns = (now.tv_sec as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(now.tv_nsec as u64);
        Self {
            now: Nanos(ns),
            unix_ms: real.tv_sec * 1_000 + real.tv_nsec / 1_000_000,
        }
    }
}

/// Time since some moment before the machine's start, without that of suspension (`CLOCK_MONOTONIC`).
#[must_use]
pub fn monotonic() -> Duration {
    duration(read(libc::CLOCK_MONOTONIC))
}

/// Processor time of this process so far, that of the user and of the system.
#[must_use]
pub fn processor_time() -> Duration {
    duration(read(libc::CLOCK_PROCESS_CPUTIME_ID))
}

fn duration(time: libc::timespec) -> Duration {
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

/// By the C library, which finds the kernel's function for it on the stack of the new process: no system
/// call. Others look for it in `/proc/self/auxv` where Linux is older than 6.4, which a process that may
/// not be traced cannot read: one with capabilities of its file, or after
/// [`forbid_privileges`](crate::sandbox::forbid_privileges).
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one `time`, which is alive.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(result, 0, "each Linux has these clocks");
    time
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
