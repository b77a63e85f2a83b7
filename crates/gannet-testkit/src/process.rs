//! Inspects running servers through `/proc`, and waits for conditions.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::{DEADLINE, Gannet};

/// Waits until a condition holds, or fails at the deadline. Polls often enough that tests lose no
/// time, and rarely enough to leave the processor to the server.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "never in {DEADLINE:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Waits until a process has ended, whether or not its parent knows.
pub fn until_gone(pid: &str) {
    let stat = format!("/proc/{}/stat", pid.trim());
    until("the process ends", || {
        let state = fs::read_to_string(&stat).unwrap_or_default();
        state.is_empty() || state.contains(") Z ")
    });
}

/// The number of descriptors that a server has open.
pub fn descriptors(server: &Gannet) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.pid()))
        .expect("it runs")
        .count()
}

/// A kind of a server's memory (`VmRSS`, `RssAnon`, ... of proc_pid_status(5)), in KiB.
pub fn memory_kib(server: &Gannet, kind: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let mut lines = status.lines();
    let value = lines.find_map(|line| line.strip_prefix(kind)?.strip_prefix(':'));
    let number = value.and_then(|value| value.split_whitespace().next());
    number.expect("it has memory").parse().expect("a number")
}

/// The ports of a server's datagram sockets over IPv4 (proc_pid_net(5)). Whether the ports can be bound
/// is another question: anybody may have them.
pub fn datagram_ports(server: &Gannet) -> Vec<u16> {
    let process = format!("/proc/{}", server.pid());
    let descriptors = fs::read_dir(format!("{process}/fd")).expect("it runs");
    let names = descriptors.filter_map(|it| fs::read_link(it.ok()?.path()).ok());
    let names: Vec<_> = names.collect();
    let table = fs::read_to_string(format!("{process}/net/udp")).expect("it runs");
    let sockets = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let name = format!("socket:[{}]", fields.get(9)?);
        let (_, port) = fields[1].split_once(':')?;
        let port = u16::from_str_radix(port, 16).ok()?;
        let is_ours = names.iter().any(|it| it.as_os_str() == &*name);
        is_ours.then_some(port)
    });
    sockets.collect()
}

/// The names of a server's threads.
pub fn threads(server: &Gannet) -> Vec<String> {
    fs::read_dir(format!("/proc/{}/task", server.pid()))
        .expect("it runs")
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .collect()
}

/// The values of a line of all threads' statuses (proc_pid_status(5)), each once.
pub fn of_threads(pid: u32, name: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let mut values: Vec<String> = tasks
        // A thread may have ended meanwhile.
        .filter_map(|task| {
            let task = task.expect("it runs").path();
            let status = fs::read_to_string(task.join("status")).ok()?;
            (!is_ending(&task)?).then_some(status)
        })
        .map(|status| {
            let mut lines = status.lines();
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value.unwrap_or_default().trim().replace('\t', " ")
        })
        .collect();
    values.sort();
    values.dedup();
    values
}

/// Whether a thread runs nothing of its program any more (`PF_EXITING` of proc_pid_stat(5), field
/// 9): one that was joined may stay listed for a moment. None if it is listed no longer.
fn is_ending(task: &Path) -> Option<bool> {
    const EXITING: u32 = 0x4;
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    // The name, in parentheses, may have any of these in it.
    let (_, fields) = stat.rsplit_once(')')?;
    let flags: u32 = fields.split_ascii_whitespace().nth(6)?.parse().ok()?;
    Some(flags & EXITING != 0)
}

/// Raises the descriptor limit of this process to the hard limit.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("up to the hard limit");
}
