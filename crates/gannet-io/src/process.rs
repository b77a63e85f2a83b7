//! What the kernel reports about this process: processor time, memory, descriptors.

use std::fs;

use rustix::io;
use rustix::process::{Resource, getpriority_process, getrlimit, setpriority_process};

use crate::clock;
use crate::residency::last_errno;

/// Facts about this process. Those that `/proc` does not provide, as in a chroot without it, are
/// absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessFacts {
    /// User and system time, seconds.
    pub cpu_seconds: f64,
    /// Memory that is mapped, bytes.
    pub virtual_bytes: Option<u64>,
    /// Memory that is resident, bytes.
    pub resident_bytes: Option<u64>,
    /// Open descriptors, without the one that counts them.
    pub descriptors: Option<u64>,
    /// The soft limit of descriptors; `None` if there is none.
    pub descriptors_max: Option<u64>,
    /// When it started, seconds of Unix time.
    pub started_at: Option<f64>,
}

/// The length of a page, bytes.
///
/// By the C library, which has it from the stack of the new process. Others read `/proc/self/auxv` where
/// Linux is older than 6.4, which a process that may not be traced cannot: one with capabilities of its
/// file, or after [`forbid_privileges`](crate::sandbox::forbid_privileges).
#[must_use]
pub(crate) fn page_size() -> usize {
    // SAFETY: no memory is involved.
    let len = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(len).expect("each Linux has pages")
}

/// The unit of times in `/proc`: ticks in a second. By the C library, as [`page_size`].
fn clock_ticks_per_second() -> i64 {
    // SAFETY: no memory is involved.
    unsafe { libc::sysconf(libc::_SC_CLK_TCK) }
}

/// Random bytes of the kernel, for a secret. A library of cryptography may first gather randomness of
/// its own, which takes one 50 ms: too long for a start.
#[must_use]
pub fn random_bytes() -> [u8; 32] {
    let mut bytes = [0; 32];
    let mut count = -1;
    while count < 0 {
        // SAFETY: the kernel writes at most `len()` bytes to the array, which is alive during the
        // call.
        count = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        let is_retried = count >= 0 || last_errno() == io::Errno::INTR;
        assert!(is_retried, "the kernel has random bytes");
    }
    // Up to 256 bytes are never cut short (getrandom(2)).
    assert_eq!(count as usize, bytes.len(), "all bytes are random");
    bytes
}

/// Lowers the priority of the calling thread below that of the threads that answer requests, so that
/// it takes little of a busy processor and all of an idle one.
///
/// # Errors
/// The kernel refused.
pub fn lower_priority() -> io::Result<()> {
    // On Linux, a nice value belongs to a thread, and without a process ID to the calling one.
    let nice = getpriority_process(None)?;
    setpriority_process(None, nice + NICE_OF_HELPERS)
}

/// A tenth of the weight of a thread with the default nice value. Not less: when a process ends, each
/// of its threads has to get the processor once more.
const NICE_OF_HELPERS: i32 = 10;

impl ProcessFacts {
    /// Reads them now.
    #[must_use]
    pub fn read() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let stat = Stat::parse(&stat);
        let boot = fs::read_to_string("/proc/stat").unwrap_or_default();
        let started_at = stat.as_ref().zip(boot_time(&boot)).map(|(stat, boot)| {
            boot as f64 + stat.started_ticks as f64 / clock_ticks_per_second() as f64
        });
        let entries = fs::read_dir("/proc/self/fd").ok();
        Self {
            cpu_seconds: clock::processor_time().as_secs_f64(),
            virtual_bytes: stat.as_ref().map(|stat| stat.virtual_bytes),
            resident_bytes: stat
                .as_ref()
                .map(|stat| stat.resident_pages * page_size() as u64),
            descriptors: entries.map(|entries| (entries.count() as u64).saturating_sub(1)),
            descriptors_max: getrlimit(Resource::Nofile).current,
            started_at,
        }
    }
}

/// From `/proc/self/stat` (proc_pid_stat(5)).
#[derive(Debug, Eq, PartialEq)]
struct Stat {
    started_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The second field is the name in parentheses, which may contain any character.
        let (_, rest) = text.rsplit_once(')')?;
        // The first of these is field 3 in the manual page's count.
        let mut fields = rest.split_ascii_whitespace().skip(22 - 3);
        let mut next = || fields.next()?.parse().ok();
        Some(Self {
            started_ticks: next()?,
            virtual_bytes: next()?,
            resident_pages: next()?,
        })
    }
}

/// The line `btime` of `/proc/stat`: when the machine started, seconds of Unix time.
fn boot_time(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_bytes_differ() {
        assert_ne!(random_bytes(), random_bytes());
        assert_ne!(random_bytes(), [0; 32]);
    }

    #[test]
    fn fields_are_counted_behind_the_name() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 3 4 0 0 20 0 2 0 991 4096000 250 \
                    18446744073709551615 1 1";
        let expect = Stat {
            started_ticks: 991,
            virtual_bytes: 4_096_000,
            resident_pages: 250,
        };
        assert_eq!(Stat::parse(text), Some(expect));
        assert_eq!(Stat::parse("7 (a"), None);
        assert_eq!(
            boot_time("cpu 1 2\nbtime 1700000000\nprocesses 3\n"),
            Some(1_700_000_000)
        );
    }

    /// This process is alive, has memory and standard descriptors, and started before now.
    #[test]
    fn this_process_has_facts() {
        let facts = ProcessFacts::read();
        assert!(facts.cpu_seconds > 0.0);
        assert!(facts.resident_bytes > Some(0) && facts.virtual_bytes > facts.resident_bytes);
        assert!(facts.descriptors > Some(0), "{facts:?}");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.expect("after 1970").as_secs_f64();
        // The kernel's boot time is rounded down to a second.
        assert!(
            facts
                .started_at
                .is_some_and(|at| at > 1e9 && at < now + 1.0)
        );
    }
}
