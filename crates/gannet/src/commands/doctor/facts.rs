//! What is known about the machine, and what the configuration asks of it.

use std::net::SocketAddr;

use gannet_io::fixed::Fixed;
use gannet_server::config::{EngineChoice, SandboxChoice};
use gannet_server::tls::kernel::Choice;

use crate::commands::serve::Budget;

/// Something that is missing or does not work, and what fixes it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Lack {
    pub(super) why: String,
    pub(super) help: Option<String>,
}

/// Everything that findings are made from.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) wishes: ConfiguredFacts,
    /// Parts of the configuration that no server starts with.
    pub(super) refusals: Vec<Lack>,
    pub(super) kernel: Kernel,
    pub(super) limits: Limits,
    pub(super) network: Network,
    pub(super) addresses: Vec<Address>,
    pub(super) sites: Vec<Site>,
    /// `None` without HTTPS.
    pub(super) certificates: Option<Certificates>,
    pub(super) clock: Clock,
    pub(super) memory: Memory,
    pub(super) process: Process,
    /// What the unit of the service forbids.
    pub(super) unit: Option<Lack>,
}

/// The configuration, as far as findings depend on it.
#[derive(Clone, Debug, Default)]
pub(super) struct ConfiguredFacts {
    pub(super) engine: EngineChoice,
    pub(super) sandbox: SandboxChoice,
    pub(super) kernel_tls: Choice,
    pub(super) http3: bool,
    /// Paths of the site are for users alone.
    pub(super) passwords: bool,
    /// What it means that every client may say who has sent a request, if that is so.
    pub(super) trusts_every_peer: Option<&'static str>,
}

/// What the kernel can do.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// As `uname -r`.
    pub(super) release: String,
    pub(super) machine: String,
    /// The calls without which no file is served.
    pub(super) files: Result<(), Lack>,
    /// Whether the kernel resolves paths below live directories, if there are any.
    pub(super) lookups: Result<(), Lack>,
    /// The features of io_uring in use, and those that are missing.
    pub(super) ring: Result<(Vec<&'static str>, Vec<&'static str>), Lack>,
    /// Whether keys can be replaced.
    pub(super) kernel_tls: Result<bool, Lack>,
    /// The version of Landlock.
    pub(super) landlock: Result<u32, Lack>,
    pub(super) seccomp: Result<(), Lack>,
}

/// Limits of the process.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    /// Soft and hard; `None` is no limit.
    pub(super) descriptors: [Option<u64>; 2],
    /// Bytes, soft; `None` is no limit.
    pub(super) locked_memory: Option<u64>,
    /// Whether a server can start within them.
    pub(super) start: Result<(), Lack>,
}

/// Settings of the kernel's network; `None` where they cannot be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Network {
    /// `net.core.somaxconn`.
    pub(super) backlog: Option<u64>,
    /// `net.core.rmem_max` and `wmem_max`, bytes.
    pub(super) buffers: [Option<u64>; 2],
    /// The algorithm of TCP, and those that could be chosen.
    pub(super) congestion: Option<(String, String)>,
}

/// An address that a server would bind.
#[derive(Clone, Debug)]
pub(super) struct Address {
    /// `TCP 0.0.0.0:80`, `unix:/run/socket`.
    pub(super) name: String,
    pub(super) tcp: Option<SocketAddr>,
    pub(super) state: AddressState,
}

/// Whether it could be bound.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum AddressState {
    Free,
    /// A process named gannet has it, perhaps this very server.
    Ours(String),
    /// Another one has it, and the next free port is taken.
    Moves(Lack),
    /// Another one has it, or it cannot be bound.
    Refused(Lack),
    /// The machine has no IPv6: IPv4 covers all interfaces.
    WithoutIpv6,
}

/// Something that is served.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// The path, and its kind.
    pub(super) name: String,
    /// Files are read while it is served.
    pub(super) is_live: bool,
    pub(super) state: Result<FileSystem, Lack>,
}

/// The file system that it is on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FileSystem {
    /// The number of its type, as in statfs(2).
    pub(super) magic: u64,
    /// `About` opens `about`.
    pub(super) folds_case: bool,
    /// Why the bytes of what is served cannot be changed.
    pub(super) fixed: Option<Fixed>,
    /// The release in force could have fs-verity, if the file system had the feature.
    pub(super) lacks_verity: bool,
}

/// The certificates, or why they cannot be used.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Certificates {
    /// Made at the first start.
    Development,
    Named(CertificateFiles),
    Unusable(Lack),
}

/// Certificates from files.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct CertificateFiles {
    /// Each with its names, seconds until it expires, below 0 if it has, and that date.
    pub(super) each: Vec<(String, i64, String)>,
    pub(super) warnings: Vec<Lack>,
    /// What clients have to show.
    pub(super) asked: Option<String>,
}

/// The clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Unix time, seconds.
    pub(super) now: i64,
    /// When the program's file was written, Unix time.
    pub(super) written: Option<i64>,
    pub(super) is_synchronised: Option<bool>,
}

/// Memory, bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Available on the machine, or the limit of the control group.
    pub(super) available: Option<u64>,
    /// What a server needs to start.
    pub(super) least: u64,
    /// What may be kept in addition.
    pub(super) budget: Budget,
}

/// The process as it would serve.
#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub(super) is_root: bool,
    /// `--user`.
    pub(super) user: Option<String>,
    /// The folders below which confined workers can open files.
    pub(super) worker_folders: Vec<String>,
    /// Keys, passwords and logs that they could open, in words.
    pub(super) within_reach: Vec<String>,
    /// What that user cannot do while it serves.
    pub(super) denied: Vec<Lack>,
    /// What kind of container this is.
    pub(super) container: Option<&'static str>,
}
