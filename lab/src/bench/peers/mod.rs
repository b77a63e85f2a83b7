//! The servers that are measured: how each is found, configured fairly and started.
//!
//! Every peer gets one worker, the same files, persistent connections without a limit on their
//! requests, no access log and a backlog of [`BACKLOG`]. What else is set is in its report entry.

use std::{
    cell::OnceCell,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{
    content::Site,
    options::Options,
    programs::Tools,
    scenario::{Cell, Protocol, Sizes},
};
use xtask::certificate::Certificate;

mod caddy;
mod constant;
mod floor;
mod gannet;
mod given;
mod h2o;
mod lighttpd;
mod nginx;
mod static_web_server;

/// Connections that may wait to be accepted, for every peer that can be told.
pub(crate) const BACKLOG: u32 = 4096;

/// A server that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// nginx; with its open-file cache holding every file, or without.
    Nginx {
        /// Whether `open_file_cache` is on.
        cached: bool,
    },
    /// lighttpd.
    Lighttpd,
    /// h2o.
    H2o,
    /// Caddy.
    Caddy,
    /// gannet.
    Gannet {
        /// Serves an archive made of the site, or the site's directory.
        archive: bool,
        /// The engine's name on its command line.
        engine: &'static str,
        /// Asked by HTTP/1.1 where the scenario is of HTTP/2.
        h1: bool,
    },
    /// gannet with a constant answer instead of content: the ceiling of its engine and protocols.
    Dummy,
    /// static-web-server.
    StaticWebServer,
    /// A constant answer over a framework.
    Constant(Framework),
    /// A program that the user built.
    Given(GivenProgram),
    /// A program that shows what the kernel alone costs.
    Floor(Floor),
}

/// The frameworks that programs in `lab/peers` answer over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framework {
    /// hyper.
    Hyper,
    /// actix-web.
    Actix,
}

/// The programs that `--peer-binary` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenProgram {
    /// kawipiko, of which the server is named and the archiver is beside it.
    Kawipiko,
    /// ianic's httpd.
    Httpd,
    /// A program around faf, with the port as its argument and the constant answer.
    Faf,
}

/// The floor programs in `lab/floor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Floor {
    /// A constant response over epoll.
    Epoll,
    /// A constant response over io_uring.
    Uring,
    /// Files opened beforehand, bodies by sendfile.
    Files,
    /// The same, with bodies of up to 16 KiB from memory.
    Memory,
}

/// Every peer by its name; the first is what the others are compared to.
const PEERS: [(&str, Peer); 21] = [
    ("nginx", Peer::Nginx { cached: false }),
    ("nginx-cached", Peer::Nginx { cached: true }),
    ("lighttpd", Peer::Lighttpd),
    ("h2o", Peer::H2o),
    ("caddy", Peer::Caddy),
    ("static-web-server", Peer::StaticWebServer),
    ("kawipiko", Peer::Given(GivenProgram::Kawipiko)),
    ("ianic-httpd", Peer::Given(GivenProgram::Httpd)),
    ("faf", Peer::Given(GivenProgram::Faf)),
    ("hyper", Peer::Constant(Framework::Hyper)),
    ("actix-web", Peer::Constant(Framework::Actix)),
    (
        "gannet-archive",
        Peer::Gannet {
            archive: true,
            engine: "uring",
            h1: false,
        },
    ),
    (
        "gannet-directory",
        Peer::Gannet {
            archive: false,
            engine: "uring",
            h1: false,
        },
    ),
    (
        "gannet-archive-epoll",
        Peer::Gannet {
            archive: true,
            engine: "epoll",
            h1: false,
        },
    ),
    (
        "gannet-directory-epoll",
        Peer::Gannet {
            archive: false,
            engine: "epoll",
            h1: false,
        },
    ),
    (
        "gannet-archive-h1",
        Peer::Gannet {
            archive: true,
            engine: "uring",
            h1: true,
        },
    ),
    ("gannet-dummy", Peer::Dummy),
    ("floor-epoll", Peer::Floor(Floor::Epoll)),
    ("floor-uring", Peer::Floor(Floor::Uring)),
    ("floor-files", Peer::Floor(Floor::Files)),
    ("floor-memory", Peer::Floor(Floor::Memory)),
];

/// The peer that ratios are taken to.
pub(crate) const BASE: &str = "nginx";

/// The peers of a run that names none.
pub(crate) const DEFAULT: [&str; 8] = [
    "nginx",
    "lighttpd",
    "h2o",
    "gannet-archive",
    "gannet-directory",
    "gannet-archive-epoll",
    "gannet-directory-epoll",
    "gannet-archive-h1",
];

/// The peers of a quick run that names none: enough to prove that every scenario runs.
pub(crate) const QUICK: [&str; 3] = ["nginx", "gannet-archive", "gannet-directory"];

/// The names of all peers.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PEERS.iter().map(|(name, _)| *name)
}

/// The peer of that name.
pub(crate) fn by_name(name: &str) -> Option<Peer> {
    PEERS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, peer)| *peer)
}

/// A peer that is there to be started.
pub(crate) struct Found {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) peer: Peer,
    /// Its program.
    pub(crate) program: PathBuf,
    /// What it says its version is.
    pub(crate) version: String,
    /// What tells it from other builds of the same: more than the version for gannet and for
    /// programs that the user built.
    pub(crate) identity: String,
    /// Whether it can be given a certificate.
    pub(crate) has_tls: bool,
    /// Whether it speaks HTTP/3.
    has_h3: bool,
}

/// What a peer is given for one run.
pub(crate) struct Task<'a> {
    /// The files.
    pub(crate) site: &'a Site,
    /// The archive made of them, for peers that want one.
    pub(crate) archive: Option<&'a Path>,
    /// The certificate, in a cell with TLS.
    pub(crate) certificate: Option<&'a Certificate>,
    /// Whether servers that have kernel TLS use it.
    pub(crate) ktls: bool,
    /// A directory for configuration and temporary files.
    pub(crate) work: &'a Path,
    /// Port to listen on at 127.0.0.1.
    pub(crate) port: u16,
    /// Open files the process may have.
    pub(crate) files: u64,
    /// The clients that scenarios name.
    pub(crate) tools: &'a Tools,
    /// Whether it is the peer's first run in this cell: later ones do not compare every file.
    pub(crate) first: bool,
    /// What will be asked.
    pub(crate) cell: &'a Cell<'a>,
}

/// How to start a peer.
pub(crate) struct Launch {
    /// The command; its output goes to a file of the run.
    pub(crate) command: Command,
    /// Text for its standard input.
    pub(crate) input: Option<String>,
    /// Its configuration file, or the command line where that is all: for the report.
    pub(crate) configuration: String,
}

/// Where things are that peers may need.
pub(crate) struct Sources<'a> {
    /// The gannet binary given with `--gannet`.
    pub(crate) gannet: Option<&'a Path>,
    /// The programs given with `--peer-binary`, by the names of their peers.
    pub(crate) binaries: &'a [(String, PathBuf)],
    /// A directory for programs built here.
    pub(crate) build: &'a Path,
    /// Whether cargo may install programs that are missing, which takes minutes.
    pub(crate) installs: bool,
    /// The profile that gannet is built with.
    profile: &'static str,
    /// What was found of gannet: it is built once, however many peers it is.
    found: OnceCell<(PathBuf, String)>,
    /// What tells it from other builds.
    identity: OnceCell<String>,
}

impl<'a> Sources<'a> {
    /// With the programs that `options` name, and others compiled into `build`; a quick run
    /// builds gannet in less time, and a little slower.
    pub(crate) fn new(options: &'a Options, build: &'a Path) -> Self {
        let profile = match options.quick {
            true => "bench-dev",
            false => "release",
        };
        Self {
            gannet: options.gannet.as_deref(),
            binaries: &options.peer_binaries,
            build,
            installs: !options.quick,
            profile,
            found: OnceCell::new(),
            identity: OnceCell::new(),
        }
    }

    /// Whether gannet's program is there, or can be built.
    pub(crate) fn has_gannet(&self) -> bool {
        self.gannet().is_ok()
    }

    /// gannet's program.
    pub(crate) fn program(&self) -> Result<PathBuf> {
        Ok(self.gannet()?.0)
    }

    fn identity(&self, program: &Path, version: &str) -> String {
        let identify = || gannet::identity(program, version, self.gannet.is_some());
        self.identity.get_or_init(identify).clone()
    }

    fn gannet(&self) -> Result<(PathBuf, String)> {
        if let Some(found) = self.found.get() {
            return Ok(found.clone());
        }
        let found = gannet::find(self.gannet, self.profile)?;
        Ok(self.found.get_or_init(|| found).clone())
    }
}

impl Peer {
    /// Finds, installs or builds the peer's program; the error is the reason to skip it.
    pub(crate) fn find(self, name: &'static str, sources: &Sources<'_>) -> Result<Found> {
        if self.wants_uring() {
            floor::probe_uring(sources.build).context("io_uring cannot be used here")?;
        }
        let (program, version) = match self {
            Self::Nginx { .. } => nginx::find()?,
            Self::Lighttpd => lighttpd::find()?,
            Self::H2o => h2o::find()?,
            Self::Caddy => caddy::find()?,
            Self::Gannet { .. } | Self::Dummy => sources.gannet()?,
            Self::StaticWebServer => static_web_server::find(sources.installs)?,
            Self::Constant(framework) => constant::find(framework)?,
            Self::Given(given) => {
                let mut binaries = sources.binaries.iter();
                let path = binaries.find(|(peer, _)| peer == name);
                given::find(given, path.map(|(_, path)| path.as_path()))?
            }
            Self::Floor(floor) => floor::find(floor, sources.build)?,
        };
        let has_tls = match self {
            Self::Gannet { .. } | Self::Dummy => gannet::has_tls(&program),
            Self::Floor(_) | Self::Constant(_) => false,
            Self::Given(given) => given == GivenProgram::Kawipiko,
            _ => true,
        };
        let has_h3 = match self {
            Self::Gannet { .. } | Self::Dummy => gannet::has_h3(&program),
            Self::Nginx { .. } => nginx::has_h3(&program),
            Self::H2o => h2o::has_h3(&program),
            Self::Caddy => true,
            _ => false,
        };
        let identity = match self {
            Self::Gannet { .. } | Self::Dummy => sources.identity(&program, &version),
            Self::Given(_) => gannet::identity(&program, &version, true),
            _ => version.clone(),
        };
        Ok(Found {
            name,
            peer: self,
            has_tls,
            has_h3,
            program,
            version,
            identity,
        })
    }

    /// Why this peer cannot take part in `cell`, whichever program it is.
    pub(crate) fn unfit(self, cell: &Cell<'_>) -> Option<&'static str> {
        let constant = matches!(cell.content.sizes, Sizes::Text { .. });
        let load = &cell.scenario.load;
        match self {
            Self::Floor(_)
            | Self::Constant(_)
            | Self::Given(GivenProgram::Httpd | GivenProgram::Faf)
                if load.tls.is_some() || load.protocol != Protocol::H1 =>
            {
                Some("speaks HTTP/1.1 in clear text")
            }
            Self::Lighttpd | Self::StaticWebServer | Self::Given(_)
                if load.protocol == Protocol::H3 =>
            {
                Some("does not speak HTTP/3")
            }
            Self::Constant(_) | Self::Given(GivenProgram::Faf) if !constant => {
                Some("answers a constant")
            }
            Self::Gannet { archive: true, .. } if cell.content.sparse => {
                Some("files of holes are not packed")
            }
            Self::Gannet { h1: true, .. } if load.protocol != Protocol::H2 => {
                Some("is gannet-archive here")
            }
            Self::Floor(Floor::Epoll | Floor::Uring) if !constant => Some("answers a constant"),
            Self::Floor(Floor::Files | Floor::Memory) if !cell.scenario.load.keep_alive => {
                Some("keeps connections open")
            }
            Self::Dummy if !constant => Some("answers a constant"),
            Self::StaticWebServer | Self::Given(GivenProgram::Kawipiko)
                if load.protocol == Protocol::H2 && load.tls.is_none() =>
            {
                Some("speaks HTTP/2 over TLS only")
            }
            Self::Given(GivenProgram::Faf) if !load.keep_alive => Some("never closes a connection"),
            Self::Given(given) if cell.connections > given::connections_max(given) => {
                Some("has too few descriptors for so many connections")
            }
            Self::Lighttpd if cell.connections > 1024 => {
                Some("holds a tenth of its descriptor limit in connections")
            }
            _ => None,
        }
    }

    fn wants_uring(self) -> bool {
        matches!(
            self,
            Self::Gannet {
                engine: "uring",
                ..
            } | Self::Dummy
                | Self::Floor(Floor::Uring)
        )
    }

    /// What it answers where that is not the site's content.
    pub(crate) fn constant(self) -> Option<&'static str> {
        matches!(self, Self::Dummy).then_some("hello world!\n")
    }

    /// The protocol it is asked by where the scenario says `protocol`.
    pub(crate) fn protocol(self, protocol: Protocol) -> Protocol {
        match self {
            Self::Gannet { h1: true, .. } => Protocol::H1,
            _ => protocol,
        }
    }

    /// Whether the peer serves an archive.
    pub(crate) fn wants_archive(self) -> bool {
        matches!(self, Self::Gannet { archive: true, .. })
    }
}

impl Found {
    /// Prepares the start of this peer for one run.
    pub(crate) fn launch(&self, task: &Task<'_>) -> Result<Launch> {
        match self.peer {
            Peer::Nginx { cached } => nginx::launch(&self.program, cached, task),
            Peer::Lighttpd => lighttpd::launch(&self.program, task),
            Peer::H2o => h2o::launch(&self.program, task),
            Peer::Caddy => caddy::launch(&self.program, task),
            Peer::Gannet {
                archive, engine, ..
            } => Ok(gannet::launch(&self.program, archive, engine, task)),
            Peer::Dummy => Ok(gannet::launch_dummy(&self.program, task)),
            Peer::StaticWebServer => static_web_server::launch(&self.program, task),
            Peer::Constant(_) => Ok(constant::launch(&self.program, task)),
            Peer::Given(given) => given::launch(given, &self.program, task),
            Peer::Floor(floor) => Ok(floor::launch(&self.program, floor, task)),
        }
    }

    /// Why this peer cannot take part in `cell`, if it cannot.
    pub(crate) fn unfit(&self, cell: &Cell<'_>) -> Option<&'static str> {
        let load = &cell.scenario.load;
        if matches!(self.peer, Peer::Gannet { .. }) && load.tls.is_some() && !self.has_tls {
            return Some("this build has no --tls-cert");
        }
        if load.protocol == Protocol::H3 && !self.has_h3 {
            return Some("this build has no HTTP/3");
        }
        self.peer.unfit(cell)
    }

    /// The program's name without its directory.
    pub(crate) fn program_name(&self) -> &str {
        self.program
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or(self.name)
    }

    /// Packs `site` into the archive `output`.
    pub(crate) fn pack(&self, site: &Site, output: &Path) -> Result<()> {
        gannet::pack(&self.program, site, output)
    }
}

/// A peer as the report names it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct PeerEntry {
    /// Its name.
    pub(crate) name: String,
    /// What it says its version is.
    pub(crate) version: String,
    /// The configuration of its first run, with the run's own paths and port.
    pub(crate) configuration: String,
}

pub(crate) use given::archive_of as kawipiko_archive_of;

/// Whether `--peer-binary` can name a program for the peer of that name.
pub(crate) fn takes_binary(name: &str) -> bool {
    matches!(by_name(name), Some(Peer::Given(_)))
}

/// The command line as text.
fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
