//! Reads the resource usage of a process tree from `/proc`: CPU time and memory.

use std::{collections::HashMap, fs, time::Duration};

use anyhow::{Context, Result};

/// The two measures of CPU time may differ by a tick of user and one of system time at either end.
const TICKS_APART_MAX: Duration = Duration::from_millis(40);

/// The usage of a process and all its descendants so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// CPU time in user mode, including reaped children.
    pub(crate) user: Duration,
    /// CPU time in the kernel, including reaped children.
    pub(crate) system: Duration,
    /// CPU time of the existing threads, in nanoseconds; zero if the kernel does not record it.
    pub(crate) exact: Duration,
    /// Sum of the peak resident sizes, in bytes; includes mapped file pages.
    pub(crate) peak_memory: u64,
    /// Sum of the resident anonymous memory now, in bytes.
    pub(crate) anonymous_memory: u64,
    /// Kernel threads for io_uring operations that would block.
    pub(crate) io_workers: usize,
    /// Processes in the tree.
    pub(crate) processes: usize,
}

impl Usage {
    /// CPU time since `earlier`: exact to the nanosecond if that agrees with the clock ticks, else
    /// in ticks, which also count threads that have ended.
    pub(crate) fn cpu_since(&self, earlier: &Self) -> Duration {
        self.exact_since(earlier)
            .unwrap_or_else(|| self.ticks_since(earlier))
    }

    /// The exact measure of [`cpu_since`](Self::cpu_since), if it is the one that counts.
    pub(crate) fn exact_since(&self, earlier: &Self) -> Option<Duration> {
        let exact = self.exact.saturating_sub(earlier.exact);
        let agrees = exact.abs_diff(self.ticks_since(earlier)) <= TICKS_APART_MAX;
        (agrees && !exact.is_zero()).then_some(exact)
    }

    fn ticks_since(&self, earlier: &Self) -> Duration {
        (self.user + self.system).saturating_sub(earlier.user + earlier.system)
    }
}

/// Reads the tree below and including the process `root`.
pub(crate) fn of_tree(root: u32) -> Result<Usage> {
    let tick = 1.0 / rustix::param::clock_ticks_per_second() as f64;
    let mut stats = HashMap::new();
    for entry in fs::read_dir("/proc").context("cannot read '/proc'")? {
        let Some(pid) = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        // A process may end between the listing and the reading.
        if let Ok(text) = fs::read_to_string(format!("/proc/{pid}/stat"))
            && let Some(stat) = parse_stat(&text)
        {
            stats.insert(pid, stat);
        }
    }
    let mut usage = Usage::default();
    let mut ticks = (0, 0);
    for pid in stats
        .keys()
        .copied()
        .filter(|&pid| descends(pid, root, &stats))
    {
        let stat = &stats[&pid];
        ticks.0 += stat.user;
        ticks.1 += stat.system;
        usage.processes += 1;
        if let Ok(text) = fs::read_to_string(format!("/proc/{pid}/status")) {
            usage.peak_memory += status_bytes(&text, "VmHWM");
            usage.anonymous_memory += status_bytes(&text, "RssAnon");
        }
        usage.exact += exact_time(pid);
        usage.io_workers += count_io_workers(pid);
    }
    usage.user = Duration::from_secs_f64(ticks.0 as f64 * tick);
    usage.system = Duration::from_secs_f64(ticks.1 as f64 * tick);
    Ok(usage)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// Ticks in user mode, own and of reaped children.
    user: u64,
    /// Ticks in the kernel, own and of reaped children.
    system: u64,
}

/// Parses `/proc/PID/stat`: the name in parentheses may itself contain spaces and parentheses.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        user: number(11)? + number(13)?,
        system: number(12)? + number(14)?,
    })
}

fn descends(mut pid: u32, root: u32, stats: &HashMap<u32, Stat>) -> bool {
    // No chain is longer than the table, even if the table changed while it was read.
    for _ in 0..=stats.len() {
        if pid == root {
            return true;
        }
        match stats.get(&pid) {
            Some(stat) if stat.parent > 1 => pid = stat.parent,
            _ => return false,
        }
    }
    false
}

/// The value of a line such as `VmHWM:    1234 kB`, in bytes; 0 if missing.
fn status_bytes(text: &str, key: &str) -> u64 {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let kib = value.and_then(|v| v.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// The CPU time of the threads of `pid`.
fn exact_time(pid: u32) -> Duration {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Duration::ZERO;
    };
    let texts = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok());
    // Nanoseconds on a CPU, nanoseconds waiting for one, times it got one.
    let times = texts.filter_map(|text| text.split(' ').next()?.parse::<u64>().ok());
    Duration::from_nanos(times.sum())
}

fn count_io_workers(pid: u32) -> usize {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    let names = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("comm")));
    names
        .flatten()
        .filter(|name| name.starts_with("iou-wrk"))
        .count()
}

/// CPU time of this process' children that have ended and were reaped, in ticks of 10 ms; zero if
/// it cannot be read.
pub(crate) fn of_ended_children() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let tick = 1.0 / rustix::param::clock_ticks_per_second() as f64;
    Duration::from_secs_f64(parse_children(&text).unwrap_or(0) as f64 * tick)
}

/// Ticks of reaped children in `/proc/PID/stat`, in user mode and in the kernel.
fn parse_children(text: &str) -> Option<u64> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(13);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// Busy time of some CPUs together, and the time of one, since the machine started, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuTime {
    busy: u64,
    total: u64,
}

impl CpuTime {
    /// How many of the CPUs were busy in the time since `earlier`, as a mean.
    pub(crate) fn share_since(&self, earlier: &Self) -> f64 {
        let total = self.total.saturating_sub(earlier.total).max(1);
        self.busy.saturating_sub(earlier.busy) as f64 / total as f64
    }
}

/// Reads the busy time of these CPUs, for all processes.
pub(crate) fn of_cpus(cpus: &[usize]) -> CpuTime {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let mut times = cpus.iter().map(|cpu| parse_cpu(&text, *cpu));
    let first = times.next().unwrap_or_default();
    CpuTime {
        busy: first.busy + times.map(|time| time.busy).sum::<u64>(),
        ..first
    }
}

fn parse_cpu(text: &str, index: usize) -> CpuTime {
    let label = format!("cpu{index} ");
    let Some(rest) = text.lines().find_map(|line| line.strip_prefix(&label)) else {
        return CpuTime::default();
    };
    // user nice system idle iowait irq softirq steal; guest time is part of user time.
    let ticks = rest.split_ascii_whitespace().take(8);
    let ticks: Vec<u64> = ticks.filter_map(|field| field.parse().ok()).collect();
    let total = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    CpuTime {
        busy: total - idle,
        total,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let text = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 5 6 7";
        assert_eq!(
            parse_stat(text),
            Some(Stat {
                parent: 7,
                user: 103,
                system: 24
            })
        );
        assert_eq!(parse_children(text), Some(7));
        assert_eq!(parse_stat("42 (cut off) S 7"), None);
        assert_eq!(parse_children("42 (cut off) S 7"), None);
    }

    #[test]
    fn descent_is_followed_and_ends() {
        let stat = |parent| Stat {
            parent,
            user: 0,
            system: 0,
        };
        let stats = HashMap::from([
            (10, stat(1)),
            (11, stat(10)),
            (12, stat(11)),
            (13, stat(1)),
            // A cycle can be read while the table changes.
            (20, stat(21)),
            (21, stat(20)),
        ]);
        let of_ten: Vec<bool> = [10, 11, 12, 13, 20]
            .map(|pid| descends(pid, 10, &stats))
            .to_vec();
        assert_eq!(of_ten, [true, true, true, false, false]);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        let text = "Name:\tx\nVmHWM:\t    12 kB\nRssAnon:\t 3 kB\n";
        assert_eq!(status_bytes(text, "VmHWM"), 12 * 1024);
        assert_eq!(status_bytes(text, "RssFile"), 0);
    }

    #[test]
    fn shares_of_a_cpu() {
        let before = parse_cpu("cpu  9 9\ncpu1 10 0 10 80 0 0 0 0 0 0\n", 1);
        let after = parse_cpu("cpu1 40 0 20 130 10 0 0 0 0 0\n", 1);
        assert_eq!(after.share_since(&before), 0.4);
    }

    #[test]
    fn exact_times_are_taken_where_they_fit_the_ticks() {
        let usage = |ticks, exact| Usage {
            user: Duration::from_millis(ticks),
            exact: Duration::from_micros(exact),
            ..Usage::default()
        };
        let start = usage(100, 100_000);
        let since = |ticks, exact| usage(ticks, exact).cpu_since(&start).as_micros();
        assert_eq!(since(110, 104_321), 4_321);
        assert_eq!(since(100, 100_000), 0);
        // A thread ended in between, and its nanoseconds are gone.
        assert_eq!(since(300, 120_000), 200_000);
    }

    #[test]
    fn this_process_is_in_its_own_tree() {
        let usage = of_tree(std::process::id()).expect("/proc is mounted");
        assert!(usage.processes >= 1 && usage.peak_memory > 0);
    }
}
