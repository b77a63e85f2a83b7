//! The limits of the process: descriptors and memory, and the least of both that a start needs.

use std::fs;

use gannet_server::config::{Config, Content};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::command_line::settings::Settings;
use crate::messages::{Failure, cause};
use crate::quantities::counted;

/// The most descriptors asked for. Some containers have a hard limit of a thousand million, and
/// tables are sized by the soft one.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// What the handling of signals has open: a pair of sockets.
const SIGNALS: u64 = 2;
/// What a worker has open beside listeners and content: its engine, and what wakes it.
const WORKER: u64 = 2;
/// For the first connection and its file, and for what io_uring is tried out with.
const FIRST_CONNECTION: u64 = 4;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The stack of a thread and its share of the heap.
const THREAD: u64 = 2 * MIB + 256 * KIB;
/// The buffers that a worker keeps for its connections.
const WORKER_BUFFERS: u64 = 2 * MIB + 512 * KIB;
/// For the first connections and the files that they ask for.
const FIRST_CONTENT: u64 = 4 * MIB;

/// What a start makes that takes descriptors and memory.
pub(super) struct Needs {
    workers: u64,
    addresses: u64,
    directories: u64,
    archives: u64,
    /// A log file has a thread of its own; metrics are answered by one, too.
    helpers: u64,
}

impl Needs {
    /// Of this configuration at so many addresses.
    pub(super) fn of(config: &Config, content: &[Content], addresses: usize) -> Self {
        let workers = match config.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        };
        let is_archive = |content: &&Content| matches!(content, Content::Archive(_));
        let archives = content.iter().filter(is_archive).count() as u64;
        Self {
            workers: workers as u64,
            addresses: addresses as u64,
            archives,
            directories: content.len() as u64 - archives,
            helpers: u64::from(config.log_file.is_some()) + u64::from(config.metrics.is_some()),
        }
    }

    /// What each worker opens: listeners are there twice until it has its own, an archive has one
    /// descriptor for its content and one for its tables.
    fn per_worker(&self) -> u64 {
        WORKER + 2 * self.addresses + self.directories + 2 * self.archives
    }

    fn descriptors(&self, open: u64) -> u64 {
        let shared = SIGNALS + self.directories + self.archives + 2 * self.helpers;
        open + shared + self.workers * self.per_worker() + FIRST_CONNECTION
    }

    /// In whole MiB. Beside the workers there are two threads, for signals and for the disk.
    fn memory(&self, used: u64) -> u64 {
        let threads = self.workers + self.helpers + 2;
        let bytes = used + threads * THREAD + self.workers * WORKER_BUFFERS + FIRST_CONTENT;
        bytes.next_multiple_of(MIB)
    }

    fn check_descriptors(&self, most: u64) -> Result<(), Failure> {
        let open = open_descriptors();
        let least = self.descriptors(open);
        if most >= least {
            return Ok(());
        }
        let workers = counted(self.workers, "worker");
        let of_workers = self.workers * self.per_worker();
        let rest = least - open - of_workers;
        Err(Failure::usage(format!(
            "--max-descriptors {most}: too few to start: at least {least} are needed ({open} are \
             open, {workers}: {of_workers}, content, signals and a connection: {rest})"
        ))
        .help(format!(
            "give {least} and two for each further connection, or leave the flag out; fewer \
             --workers need fewer"
        )))
    }

    fn check_memory(&self, most: u64) -> Result<(), Failure> {
        let least = self.memory(used_memory());
        if most >= least {
            return Ok(());
        }
        let workers = counted(self.workers, "worker");
        let mib = least / MIB;
        Err(Failure::usage(format!(
            "--max-memory {most}: too little to start: at least {mib}MiB are needed (stacks and \
             buffers of {workers}, further threads, the first connections)"
        ))
        .help(format!(
            "give {mib}MiB and what --cache-memory may take, or leave the flag out; sizes take K, \
             M, G; fewer --workers need less"
        )))
    }
}

/// Sets the limits of the process.
///
/// # Errors
/// A limit is less than a start needs, or more than the system allows.
pub(super) fn set(settings: &Settings, needs: &Needs) -> Result<(), Failure> {
    let limit = |resource, name: &str, value: u64| {
        let wanted = Rlimit {
            current: Some(value),
            maximum: getrlimit(resource).maximum,
        };
        setrlimit(resource, wanted)
            .map_err(|error| Failure::new("set the limit", name, cause(&error.into())))
    };
    match settings.max_descriptors {
        0 => raise_descriptor_limit(),
        most => {
            needs.check_descriptors(most)?;
            limit(Resource::Nofile, "--max-descriptors", most)?;
        }
    }
    match settings.max_memory {
        0 => Ok(()),
        most => {
            needs.check_memory(most)?;
            limit(Resource::Data, "--max-memory", most)
        }
    }
}

/// What to do if a start found no resources although there was the least: which flags may be why.
pub(super) fn help(settings: &Settings) -> Option<String> {
    match (settings.max_descriptors, settings.max_memory) {
        (0, 0) => None,
        (0, most) => Some(format!("raise --max-memory, which is {most}")),
        (most, 0) => Some(format!("raise --max-descriptors, which is {most}")),
        (_, _) => Some("raise --max-descriptors or --max-memory".into()),
    }
}

/// Every connection and open file is a descriptor; the soft limit is often 1024 for the sake of
/// programs that use `select`.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(DESCRIPTORS_MAX);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        // Refused in a sandbox: the server then has fewer connections, as the manual says.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// How many descriptors this process has; the three standard ones where nobody tells.
fn open_descriptors() -> u64 {
    // The folder itself is open while it is read.
    fs::read_dir("/proc/self/fd").map_or(3, |entries| (entries.count() as u64).saturating_sub(1))
}

/// Bytes of data that this process has; 0 where nobody tells.
fn used_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    kib.map_or(0, |kib: u64| kib * KIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_of_anything_needs_more() {
        let needs = |workers, addresses, archives, helpers| Needs {
            workers,
            addresses,
            directories: 1,
            archives,
            helpers,
        };
        let least = needs(1, 1, 0, 0);
        for more in [
            needs(2, 1, 0, 0),
            needs(1, 2, 0, 0),
            needs(1, 1, 1, 0),
            needs(1, 1, 0, 1),
        ] {
            assert!(more.descriptors(3) > least.descriptors(3));
        }
        assert!(needs(2, 1, 0, 0).memory(0) > least.memory(0));
        assert!(least.check_descriptors(u64::MAX).is_ok());
        assert!(least.check_memory(u64::MAX).is_ok());
        assert!(least.check_descriptors(1).is_err());
        assert!(least.check_memory(1).is_err());
    }
}
