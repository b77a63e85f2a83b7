//! The limits of the process: descriptors and memory, and the minimum of both for a start.

use std::fs;

use gannet_io::{descriptors, reserve};
use gannet_server::config::{Config, Content, ContentOptions};
use gannet_server::{
    coder_threads, kept_memory, machine_memory, usual_cache_memory, usual_encoder_memory,
    usual_rules_memory,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::command_line::settings::Settings;
use crate::messages::{Failure, cause};
use crate::quantities::counted;

/// The highest descriptor limit requested. Some containers have a hard limit of a billion, and
/// tables are sized by the soft one.
const DESCRIPTORS_MAX: u64 = 1 << 20;

/// Descriptors for signals: a pair of sockets.
const SIGNALS: u64 = 2;
/// Descriptors for upgrades and for the service manager: one each.
const OTHERS: u64 = 2;
/// Descriptors per worker besides listeners and content: its engine, and its waker.
const WORKER: u64 = 2;
/// Descriptors for the first connection and its file, and for probing io_uring.
const FIRST_CONNECTION: u64 = 4;

/// The reserve is the memory limit divided by this, at most `RESERVE_MAX` bytes.
const RESERVE_PART: u64 = 16;
const RESERVE_MAX: u64 = 8 << 20;

/// Bytes with which encoders of pages of usual lengths work.
const ENCODERS_LEAST: u64 = 8 * MIB;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The stack of a thread and its share of the heap.
const THREAD: u64 = 2 * MIB + 256 * KIB;
/// The buffers that a worker keeps for its connections, bytes.
const WORKER_BUFFERS: u64 = 2 * MIB + 512 * KIB;
/// What a worker touches of its stack, its heap and these buffers when it begins to serve.
const WORKER_RESIDENT: u64 = 512 * KIB;
/// Data of the program before a start allocates: settings, certificates, site names. In practice
/// less, unless there are very many of these.
const PROGRAM: u64 = 3 * MIB;
/// For the first connections and the files that they request.
const FIRST_CONTENT: u64 = 4 * MIB;

/// What a start needs in descriptors and memory.
pub(super) struct Needs {
    workers: u64,
    addresses: u64,
    directories: u64,
    archives: u64,
    /// Threads of the log file, of the metrics and of reports, one each.
    helpers: u64,
    /// Threads that code text.
    coders: u64,
}

/// Threads that open the sites of a folder of hosts, answer for them, and follow them: four, and three.
const SITE_THREADS: u64 = 7;

impl Needs {
    /// The needs of this configuration with this number of addresses.
    pub(super) fn of(config: &Config, content: &[Content], addresses: usize) -> Self {
        let workers = match config.workers {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            count => count,
        };
        let is_archive =
            |content: &&Content| matches!(content, Content::Archive(_) | Content::Store(_));
        let archives = content.iter().filter(is_archive).count() as u64;
        let directories = content.len() as u64 - archives;
        let coders = match directories > 0 && config.content.codes_text() {
            true => coder_threads(),
            false => 0,
        };
        Self {
            workers: workers as u64,
            addresses: addresses as u64,
            archives,
            directories,
            coders,
            helpers: u64::from(config.log_file.is_some())
                + u64::from(config.metrics.is_some())
                + u64::from(config.report_every.is_some())
                + SITE_THREADS * u64::from(content.iter().any(|it| matches!(it, Content::Many(_)))),
        }
    }

    /// Descriptors per worker: listeners count twice until it has its own, and an archive has one
    /// descriptor for its content and one for its tables, and the same while another release of it
    /// replaces it.
    fn per_worker(&self) -> u64 {
        WORKER + 2 * self.addresses + self.directories + 4 * self.archives
    }

    fn descriptors(&self, open: u64) -> u64 {
        // The folder of a Unix socket stays open until its file is removed.
        let shared = SIGNALS + OTHERS + self.directories + self.archives;
        let shared = shared + 4 * self.helpers + self.addresses;
        open + shared + self.workers * self.per_worker() + FIRST_CONNECTION
    }

    /// In whole MiB. Besides the workers there are four threads: for signals, for the disk, and for
    /// messages on standard output and standard error; and those that code text.
    fn memory(&self, used: u64) -> u64 {
        let threads = self.workers + self.helpers + self.coders + 4;
        let bytes = used + threads * THREAD + self.workers * WORKER_BUFFERS + FIRST_CONTENT;
        bytes.next_multiple_of(MIB)
    }

    /// Bytes that a start takes, with what is in `used`.
    pub(super) fn memory_of_start(&self, used: UsedAtStart) -> u64 {
        self.memory(used.memory)
    }

    /// Of these, what the machine or a control group counts: pages that are in use.
    fn resident_at_start(&self, used: UsedAtStart) -> u64 {
        used.memory + self.workers * WORKER_RESIDENT + FIRST_CONTENT
    }

    /// `most` is the limit's value, `limit` its source.
    fn check_descriptors(&self, most: u64, open: u64, limit: &Limit) -> Result<(), Failure> {
        let least = self.descriptors(open);
        if most >= least {
            return Ok(());
        }
        let workers = counted(self.workers, "worker");
        let of_workers = self.workers * self.per_worker();
        let rest = least - open - of_workers;
        let (name, raise) = (limit.name, limit.raise);
        Err(Failure::usage(format!(
            "{name} {most}: too few to start: at least {least} are needed ({open} are open, \
             {workers}: {of_workers}, content, signals and a connection: {rest})"
        ))
        .help(format!(
            "give {least} and two for each further connection, or {raise}; fewer --workers need fewer"
        )))
    }

    fn check_memory(&self, most: u64, used: u64, limit: &Limit) -> Result<(), Failure> {
        let least = self.memory(used);
        if most >= least {
            return Ok(());
        }
        let workers = counted(self.workers, "worker");
        let mib = least / MIB;
        let Limit { name, raise, unit } = limit;
        let most = most / unit;
        Err(Failure::usage(format!(
            "{name} {most}: too little to start: at least {mib}MiB are needed (stacks and buffers of \
             {workers}, further threads, the first connections)"
        ))
        .help(match unit {
            1 => format!(
                "give {mib}MiB and what --cache-memory may take, or {raise}; sizes take K, M, G; \
                 fewer --workers need less"
            ),
            _ => format!(
                "give {} and what --cache-memory may take, or {raise}; fewer --workers need less",
                least / unit
            ),
        }))
    }
}

/// The source of a limit, and how to raise it.
struct Limit {
    name: &'static str,
    raise: &'static str,
    /// Bytes per unit in which the limit is given.
    unit: u64,
}

const BY_FLAG: [Limit; 2] = [
    Limit {
        name: "--max-descriptors",
        raise: "leave the flag out",
        unit: 1,
    },
    Limit {
        name: "--max-memory",
        raise: "leave the flag out",
        unit: 1,
    },
];
/// Limits set outside gannet, by `ulimit` or in a systemd unit.
const DESCRIPTORS_OUTSIDE: Limit = Limit {
    name: "ulimit -n",
    raise: "set LimitNOFILE= in a unit of systemd",
    unit: 1,
};
const DATA_OUTSIDE: Limit = Limit {
    name: "ulimit -d",
    raise: "set LimitDATA= in a unit of systemd",
    unit: KIB,
};
const ADDRESSES_OUTSIDE: Limit = Limit {
    name: "ulimit -v",
    raise: "set LimitAS= in a unit of systemd",
    unit: KIB,
};

/// What the process had before a start allocated anything, mainly for signals: recorded then, so
/// that `--check-config` and a start agree.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedAtStart {
    descriptors: u64,
    /// Bytes of data, at least what the program has at its start.
    memory: u64,
}

impl UsedAtStart {
    /// Measures now, before any thread starts.
    pub(super) fn now(settings: &Settings) -> Self {
        let limits = [Resource::Data, Resource::As].map(|resource| getrlimit(resource).current);
        if settings.max_memory > 0 || limits.iter().any(Option::is_some) {
            reserve::share_heap();
        }
        Self {
            descriptors: descriptors::open_now(),
            memory: status_bytes("VmData:").max(PROGRAM),
        }
    }
}

/// What may be kept in memory, in bytes: as set, or what suits the memory and the limits of the process.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Budget {
    /// For all caches.
    pub(crate) caches: u64,
    /// What slow peers may have besides included.
    pub(crate) kept: u64,
    /// For the encoders of text, while they work; `None` if nothing is coded.
    pub(crate) encoders: Option<u64>,
    /// What the narrowest limit leaves after a start, if that is known.
    pub(crate) left: Option<u64>,
    /// For caches that would fit, if those of this budget do not; `None` if there are too many workers for
    /// any.
    pub(crate) fitting: Option<u64>,
}

impl Budget {
    /// The same before limits are [set](set) and after.
    pub(super) fn of(settings: &Settings, needs: &Needs, used: UsedAtStart) -> Self {
        let data = match settings.max_memory {
            0 => getrlimit(Resource::Data).current,
            most => Some(most),
        };
        let addresses = getrlimit(Resource::As).current;
        let addresses = addresses.map(|most| most.saturating_sub(mapped_beside_data()));
        let memory = machine_memory();
        let without = |most: u64, start: u64| most.saturating_sub(start);
        let of_process = [data, addresses].into_iter().flatten().min();
        let of_process = of_process.map(|most| without(most, needs.memory_of_start(used)));
        let of_machine = memory.map(|most| without(most, needs.resident_at_start(used)));
        let left = [of_machine, of_process].into_iter().flatten().min();
        let usual = || usual_cache_memory(memory, left, needs.workers);
        let caches = settings.server.content.cache_memory.unwrap_or_else(usual);
        let fits = |usual: &u64| {
            *usual < caches && left.is_none_or(|left| kept_memory(*usual, needs.workers) <= left)
        };
        let encoders = usual_encoder_memory(caches, left, needs.workers);
        Self {
            caches,
            kept: kept_memory(caches, needs.workers),
            encoders: (needs.coders > 0).then_some(encoders),
            left,
            fitting: Some(usual()).filter(fits),
        }
    }

    /// Whether so little is left for encoders that pages of usual lengths are sent as they are.
    pub(crate) fn hardly_codes(&self) -> bool {
        self.encoders.is_some_and(|bytes| bytes < ENCODERS_LEAST)
    }

    /// Has `content` keep to it.
    pub(super) fn apply(self, content: &mut ContentOptions) {
        content.cache_memory = Some(self.caches);
        content.encoder_memory = self.encoders.unwrap_or(u64::MAX);
        content.rules_memory = usual_rules_memory(self.left);
    }
}

/// What [`set`] would find, without setting anything.
///
/// # Errors
/// A limit is lower than a start needs.
pub(super) fn check(settings: &Settings, needs: &Needs, used: UsedAtStart) -> Result<(), Failure> {
    let [of_descriptors, of_memory] = &BY_FLAG;
    let limit = getrlimit(Resource::Nofile);
    match settings.max_descriptors {
        0 => {
            let raised = limit.maximum.unwrap_or(u64::MAX).min(DESCRIPTORS_MAX);
            let most = raised.max(limit.current.unwrap_or(u64::MAX));
            needs.check_descriptors(most, used.descriptors, &DESCRIPTORS_OUTSIDE)?;
        }
        most => needs.check_descriptors(most, used.descriptors, of_descriptors)?,
    }
    match (settings.max_memory, getrlimit(Resource::Data).current) {
        (0, None) => Ok(()),
        (0, Some(most)) => needs.check_memory(most, used.memory, &DATA_OUTSIDE),
        (most, _) => needs.check_memory(most, used.memory, of_memory),
    }
}

/// Sets the limits of the process, and checks those imposed from outside.
///
/// # Errors
/// A limit is lower than a start needs, or higher than the system allows.
pub(super) fn set(settings: &Settings, needs: &Needs, used: UsedAtStart) -> Result<(), Failure> {
    let [of_descriptors, of_memory] = &BY_FLAG;
    let limit = |resource, name: &str, value: u64| {
        let wanted = Rlimit {
            current: Some(value),
            maximum: getrlimit(resource).maximum,
        };
        setrlimit(resource, wanted).map_err(|error| {
            Failure::new("set the limit", name, cause(&error.into())).help(
                "it exceeds the hard limit ('ulimit -H') of gannet's parent: choose a lower value",
            )
        })
    };
    match settings.max_descriptors {
        0 => {
            raise_descriptors();
            let most = getrlimit(Resource::Nofile).current;
            needs.check_descriptors(
                most.unwrap_or(u64::MAX),
                used.descriptors,
                &DESCRIPTORS_OUTSIDE,
            )?;
        }
        most => {
            needs.check_descriptors(most, used.descriptors, of_descriptors)?;
            limit(Resource::Nofile, "--max-descriptors", most)?;
        }
    }
    match settings.max_memory {
        0 => {
            if let Some(most) = getrlimit(Resource::Data).current {
                needs.check_memory(most, used.memory, &DATA_OUTSIDE)?;
            }
        }
        most => {
            needs.check_memory(most, used.memory, of_memory)?;
            limit(Resource::Data, "--max-memory", most)?;
        }
    }
    if let Some(most) = getrlimit(Resource::As).current {
        let mapped = mapped_beside_data();
        needs.check_memory(most, used.memory + mapped, &ADDRESSES_OUTSIDE)?;
    }
    keep_reserve();
    Ok(())
}

/// If memory is limited, by a flag or from outside (`ulimit -v`), sets part of it aside for when it
/// runs out. If that allocation fails, there is no reserve.
fn keep_reserve() {
    let limits = [Resource::Data, Resource::As].map(|resource| getrlimit(resource).current);
    if let Some(least) = limits.into_iter().flatten().min() {
        let bytes = (least / RESERVE_PART).min(RESERVE_MAX);
        reserve::keep(usize::try_from(bytes).unwrap_or(0));
    }
}

/// The next step if a start runs out of resources although the minimum is met: the flags to raise.
pub(super) fn help(settings: &Settings) -> Option<String> {
    match (settings.max_descriptors, settings.max_memory) {
        (0, 0) => None,
        (0, most) => Some(format!("raise --max-memory, which is {most}")),
        (most, 0) => Some(format!("raise --max-descriptors, which is {most}")),
        (_, _) => Some("raise --max-descriptors or --max-memory".into()),
    }
}

/// Every connection and open file is a descriptor; the soft limit is often 1024, for programs that
/// use `select`.
pub(super) fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(u64::MAX).min(DESCRIPTORS_MAX);
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        // A sandbox may refuse this: the server then accepts fewer connections, as the manual says.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Bytes of the address space that are no data: the program itself and its shared libraries.
fn mapped_beside_data() -> u64 {
    status_bytes("VmSize:").saturating_sub(status_bytes("VmData:"))
}

/// A number from `/proc/self/status` (see proc(5)); 0 if unknown.
fn status_bytes(name: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse().ok());
    kib.map_or(0, |kib: u64| kib * KIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a memory limit leaves decides, and caches that exceed it have some that would not beside them.
    #[test]
    fn caches_that_do_not_fit_are_told_which_would() {
        const LIMIT: u64 = 256 * MIB;
        let budget = |workers, coders, cache_memory| {
            let mut settings = Settings {
                max_memory: LIMIT,
                ..Settings::default()
            };
            settings.server.content.cache_memory = cache_memory;
            let needs = Needs {
                workers,
                addresses: 1,
                directories: 1,
                archives: 0,
                helpers: 0,
                coders,
            };
            let used = UsedAtStart {
                descriptors: 3,
                memory: PROGRAM,
            };
            let left = LIMIT.saturating_sub(needs.memory_of_start(used));
            (left, Budget::of(&settings, &needs, used))
        };
        let (left, usual) = budget(2, 1, None);
        assert_eq!((usual.left, usual.fitting), (Some(left), None));
        let encoders = usual.encoders.expect("something is coded");
        assert!(usual.kept + encoders <= left && !usual.hardly_codes());
        assert_eq!(budget(2, 0, None).1.encoders, None);
        let (_, most) = budget(2, 1, Some(LIMIT));
        assert_eq!((most.caches, most.fitting), (LIMIT, Some(usual.caches)));
        assert!(most.kept > left && most.hardly_codes());
        // Less than usual is what was requested.
        assert_eq!(budget(2, 1, Some(MIB)).1.fitting, None);
        // Their stacks and buffers leave nothing.
        let (left, many) = budget(1_000, 1, Some(LIMIT));
        assert_eq!((left, many.left, many.fitting), (0, Some(0), None));
    }

    #[test]
    fn more_of_anything_needs_more() {
        let needs = |workers, addresses, archives, helpers| Needs {
            workers,
            addresses,
            directories: 1,
            archives,
            helpers,
            coders: 0,
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
        let [descriptors, memory] = &BY_FLAG;
        assert!(least.check_descriptors(u64::MAX, 3, descriptors).is_ok());
        assert!(least.check_memory(u64::MAX, 0, memory).is_ok());
        assert!(least.check_descriptors(1, 3, descriptors).is_err());
        assert!(least.check_memory(1, 0, memory).is_err());
        // Limits from outside are reported in their own unit.
        let failure = least
            .check_memory(MIB, 0, &ADDRESSES_OUTSIDE)
            .expect_err("too little");
        assert!(failure.message.starts_with("ulimit -v 1024: "), "{failure}");
        assert!(failure.help.is_some_and(|help| help.contains("LimitAS=")));
    }
}
