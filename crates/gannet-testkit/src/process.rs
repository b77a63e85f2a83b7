//! What the kernel tells of a running server, and waiting for something to become true.

use std::fs;
use std::time::{Duration, Instant};

use crate::{DEADLINE, Gannet};

/// Waits until something is true; fails if it never is. Looks often enough that a test loses no
/// time, and not so often that the server loses the processor.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "never in {DEADLINE:?}: {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// How many descriptors a server has open.
pub fn descriptors(server: &Gannet) -> usize {
    fs::read_dir(format!("/proc/{}/fd", server.pid()))
        .expect("it runs")
        .count()
}

/// The names of a server's threads.
pub fn threads(server: &Gannet) -> Vec<String> {
    fs::read_dir(format!("/proc/{}/task", server.pid()))
        .expect("it runs")
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok())
        .map(|name| name.trim_end().to_owned())
        .collect()
}

/// Lets this process open as many descriptors as it may.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, raised).expect("up to the hard limit");
}
