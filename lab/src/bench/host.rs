//! The machine: its properties, and the settings that a measurement changes and restores.

use std::{
    ffi::OsString,
    fs::{self, File},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};
use rustix::{
    fs::{FlockOperation, flock, statfs},
    process::{Resource, Rlimit, getrlimit, setrlimit},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use serde::{Deserialize, Serialize};

/// Facts about the machine, for the report.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Machine {
    /// Model name of the first CPU.
    pub(crate) cpu: String,
    /// CPUs this process may use.
    pub(crate) cpus: usize,
    /// Memory, in bytes.
    pub(crate) memory: u64,
    /// Kernel release.
    pub(crate) kernel: String,
    /// Name of the distribution.
    pub(crate) distribution: String,
    /// `rustc --version`.
    pub(crate) rustc: String,
}

impl Machine {
    /// Reads the properties; those that cannot be read are empty or zero.
    pub(crate) fn read() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = value_of(&meminfo, "MemTotal", ':')
            .trim_end_matches(" kB")
            .parse();
        Self {
            cpu: value_of(&cpuinfo, "model name", ':'),
            cpus: allowed_cpus().len(),
            memory: kib.unwrap_or(0u64) * 1024,
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            distribution: value_of(&release, "PRETTY_NAME", '=')
                .trim_matches('"')
                .to_owned(),
            rustc: xtask::process::output("rustc", &["--version"]).unwrap_or_default(),
        }
    }
}

/// The machine's name, restricted to characters allowed in file names.
pub(crate) fn name() -> String {
    let uname = rustix::system::uname();
    let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '-';
    let name: String = uname
        .nodename()
        .to_string_lossy()
        .chars()
        .filter(plain)
        .collect();
    if name.is_empty() {
        "unnamed".into()
    } else {
        name
    }
}

/// The value of the first line `KEY SEPARATOR VALUE`.
fn value_of(text: &str, key: &str, separator: char) -> String {
    let values = text.lines().filter_map(|line| line.split_once(separator));
    let found = values.into_iter().find(|(name, _)| name.trim() == key);
    found
        .map(|(_, value)| value.trim().to_owned())
        .unwrap_or_default()
}

/// The CPUs this process may run on, in order.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return vec![0];
    };
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

/// Whether two CPUs are threads of one core, which each makes slower for the other.
pub(crate) fn share_core(one: usize, other: usize) -> bool {
    let path = format!("/sys/devices/system/cpu/cpu{one}/topology/thread_siblings_list");
    fs::read_to_string(path).is_ok_and(|list| has_cpu(&list, other))
}

/// Whether a list such as `0-3,8` has this CPU.
fn has_cpu(list: &str, cpu: usize) -> bool {
    list.trim().split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let bounds = first.parse::<usize>().ok().zip(last.parse().ok());
        bounds.is_some_and(|(first, last)| (first..=last).contains(&cpu))
    })
}

/// Pins the calling thread, and its future children, to these CPUs.
pub(crate) fn pin(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        ensure!(cpu < CpuSet::MAX_CPU, "--cpus {cpu}: no such CPU");
        set.set(cpu);
    }
    sched_setaffinity(None, &set).with_context(|| format!("cannot pin to CPUs {cpus:?}"))
}

/// Restores the calling thread's CPU affinity on drop.
pub(crate) struct Affinity(CpuSet);

impl Affinity {
    /// Saves the calling thread's affinity.
    pub(crate) fn save() -> Result<Self> {
        Ok(Self(sched_getaffinity(None).context("sched_getaffinity")?))
    }
}

impl Affinity {
    /// Restores the affinity: work that is not measured may use every CPU.
    pub(crate) fn restore(&self) {
        // Failure costs only time.
        let _ = sched_setaffinity(None, &self.0);
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        self.restore();
    }
}

/// Raises the limit of open files to the hard limit, for the client and the servers it starts.
pub(crate) fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Those of `variables` that change how gannet runs, as `NAME=VALUE`; without the value where that may be a secret.
pub(crate) fn gannet_variables(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Vec<String> {
    let pair = |(name, value): (OsString, OsString)| {
        let name = name
            .into_string()
            .ok()
            .filter(|name| name.starts_with("GANNET_"))?;
        let is_secret = name.contains("PASSWORD") || name.contains("URL");
        let value = if is_secret {
            "...".into()
        } else {
            value.to_string_lossy()
        };
        Some(format!("{name}={value}"))
    };
    let mut all: Vec<String> = variables.filter_map(pair).collect();
    all.sort();
    all
}

/// Whether the kernel has TLS, after trying to load its module.
pub(crate) fn has_kernel_tls() -> bool {
    let can = || {
        let names = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_ulp");
        names.is_ok_and(|names| names.split_whitespace().any(|name| name == "tls"))
    };
    // Fails without such a module or without privileges, which the second check shows.
    let load = || xtask::process::output("modprobe", &["tls"]);
    can() || (load().is_ok() && can())
}

/// Changes a kernel setting and restores the old value on drop.
pub(crate) struct Setting {
    path: PathBuf,
    before: String,
}

/// The congestion control of new TCP connections.
pub(crate) const CONGESTION: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// The MTU of loopback.
pub(crate) const LOOPBACK_MTU: &str = "/sys/class/net/lo/mtu";

/// The range of local ports, as `first last`.
pub(crate) const PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// The range set if there are too few ports for many connections.
const PORTS_WIDE: &str = "10240 65535";
/// Ports needed per connection. The kernel first looks for a free one among every second port: once
/// those are taken, it scans all of them again for every connection, which takes longer than a run.
const PORTS_PER_CONNECTION: usize = 3;

/// The number of ports in the text of [`PORTS`].
fn count_ports(text: &str) -> usize {
    let mut ends = text.split_whitespace().map(str::parse::<usize>);
    match (ends.next(), ends.next()) {
        (Some(Ok(first)), Some(Ok(last))) => (last + 1).saturating_sub(first),
        _ => 0,
    }
}

/// Ensures that `connections` concurrent connections find ports; returns `None` if they already do.
///
/// # Errors
///
/// There are too few ports, and the kernel's setting cannot be changed.
pub(crate) fn widen_ports(connections: usize) -> Result<Option<Setting>> {
    let ports = count_ports(&fs::read_to_string(PORTS).unwrap_or_default());
    match ports >= connections * PORTS_PER_CONNECTION {
        true => Ok(None),
        false => Setting::set(Path::new(PORTS), PORTS_WIDE),
    }
}

impl Setting {
    /// Writes `value` to `path`; returns `None` if that is already the value.
    pub(crate) fn set(path: &Path, value: &str) -> Result<Option<Self>> {
        let shown = path.display();
        let before = fs::read_to_string(path).with_context(|| format!("cannot read '{shown}'"))?;
        let before = before.trim().to_owned();
        if before == value {
            return Ok(None);
        }
        fs::write(path, value).with_context(|| format!("cannot set '{shown}' to {value}"))?;
        Ok(Some(Self {
            path: path.to_owned(),
            before,
        }))
    }

    /// The value to be restored.
    pub(crate) fn before(&self) -> &str {
        &self.before
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        let shown = self.path.display();
        match fs::write(&self.path, &self.before) {
            Ok(()) => eprintln!("bench: '{shown}' is {} again", self.before),
            Err(e) => eprintln!("bench: cannot put '{shown}' back to {}: {e}", self.before),
        }
    }
}

/// The directory for sites, archives and configurations; removed when dropped.
pub(crate) struct WorkDir {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Whether it is in memory.
    pub(crate) in_memory: bool,
    /// Prevents a second measurement while this one runs.
    _lock: File,
}

/// Magic number of tmpfs in `statfs(2)`.
const TMPFS_MAGIC: i64 = 0x0102_1994;

impl WorkDir {
    /// In `given`, or in `/dev/shm` if that is in memory with `need` bytes free, or in `fallback`;
    /// never in memory if it must be `on_disk`.
    pub(crate) fn create(
        given: Option<&Path>,
        need: u64,
        fallback: &Path,
        on_disk: bool,
    ) -> Result<Self> {
        let shm = Path::new("/dev/shm");
        let base = match given {
            Some(path) => path,
            None if !on_disk && is_tmpfs(shm) && free_bytes(shm) > need => shm,
            None => fallback,
        };
        fs::create_dir_all(base)?;
        let shown = base.display();
        // In tmpfs all holes are the same page of zeros, which is cheaper to send than a file.
        ensure!(
            !(on_disk && is_tmpfs(base)),
            "'{shown}' is in memory: files of holes belong on a disk (see --work)"
        );
        let free = free_bytes(base);
        if free <= need {
            bail!("'{shown}' has {free} bytes free (needed: {need}); choose another with --work");
        }
        // The lock file stays after a run and may be another user's: locking needs read access
        // only.
        let lock = base.join("gannet-bench.lock");
        let lock = File::open(&lock)
            .or_else(|_| File::create(&lock))
            .with_context(|| format!("cannot write '{}' (see --work)", lock.display()))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .context("another measurement is running on this machine")?;
        let path = base.join(format!("gannet-bench-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot create '{}'", path.display()))?;
        Ok(Self {
            path,
            in_memory: is_tmpfs(base),
            _lock: lock,
        })
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.path) {
            eprintln!("bench: cannot remove '{}': {e}", self.path.display());
        }
    }
}

fn is_tmpfs(path: &Path) -> bool {
    statfs(path).is_ok_and(|s| s.f_type == TMPFS_MAGIC)
}

fn free_bytes(path: &Path) -> u64 {
    statfs(path).map_or(0, |s| s.f_bavail * s.f_bsize.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_comes_back_even_after_a_panic() {
        let path = std::env::temp_dir().join(format!("gannet-setting-{}", std::process::id()));
        fs::write(&path, "bbr\n").expect("a writable temporary directory");
        let while_set = std::panic::catch_unwind(|| {
            let setting = Setting::set(&path, "cubic")
                .expect("writable")
                .expect("differs");
            assert_eq!(setting.before(), "bbr");
            assert_eq!(fs::read_to_string(&path).expect("there"), "cubic");
            panic!("a measurement goes wrong");
        });
        assert!(while_set.is_err());
        assert_eq!(fs::read_to_string(&path).expect("there"), "bbr");
        assert!(
            Setting::set(&path, "bbr").expect("readable").is_none(),
            "nothing to change"
        );
        fs::remove_file(path).expect("ours");
    }

    #[test]
    fn variables_of_gannet_are_told_and_no_secrets() {
        let all = [
            ("PATH", "/bin"),
            ("GANNET_SANDBOX", "off"),
            ("GANNET_KEY_PASSWORD", "s3cret"),
            ("GANNET_CACHE_MEMORY", "256M"),
        ];
        let all = all.map(|(name, value)| (name.into(), value.into()));
        let told = gannet_variables(all.into_iter());
        let expect = [
            "GANNET_CACHE_MEMORY=256M",
            "GANNET_KEY_PASSWORD=...",
            "GANNET_SANDBOX=off",
        ];
        assert_eq!(told, expect);
    }

    #[test]
    fn lists_of_cpus_are_read() {
        for (list, cpu, expect) in [
            ("0-1\n", 1, true),
            ("0,4\n", 4, true),
            ("0,4\n", 3, false),
            ("0-1,8-11\n", 10, true),
            ("2\n", 12, false),
            ("", 0, false),
        ] {
            assert_eq!(has_cpu(list, cpu), expect, "{list:?} {cpu}");
        }
    }

    #[test]
    fn ports_are_counted() {
        assert_eq!(count_ports("32768\t60999\n"), 28_232);
        assert!(count_ports(PORTS_WIDE) >= 16_384 * PORTS_PER_CONNECTION);
        assert_eq!(count_ports(""), 0);
        assert!(widen_ports(0).expect("nothing to change").is_none());
    }

    #[test]
    fn values_of_proc_files() {
        assert_eq!(value_of("a b\t: x y\nc: z", "a b", ':'), "x y");
        assert_eq!(value_of("", "a", ':'), "");
    }
}
