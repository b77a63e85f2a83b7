//! How many descriptors this process has open, and may have.

use rustix::process::{Resource, getrlimit};

/// The most that may be open at once (`RLIMIT_NOFILE`, the soft limit).
#[must_use]
pub fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many are open now; three, the standard ones, if unknown.
#[must_use]
pub fn open_now() -> u64 {
    // The folder itself is open while it is read.
    std::fs::read_dir("/proc/self/fd")
        .map_or(3, |entries| (entries.count() as u64).saturating_sub(1))
}
