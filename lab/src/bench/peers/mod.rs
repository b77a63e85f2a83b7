//! The servers to measure: how each is found, configured fairly and started.
//!
//! Every peer gets as many workers (one, without `--workers`), the same files, persistent connections
//! without a request limit, no access log, and a backlog of [`BACKLOG`]. Other settings are in its
//! report entry.

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
use xtask::process::show;

mod caddy;
mod constant;
mod floor;
mod gannet;
mod given;
mod h2o;
mod lighttpd;
mod nginx;
mod static_web_server;

/// The listen backlog of every peer that supports setting it.
pub(crate) const BACKLOG: u32 = 4096;

/// A server to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// nginx, with or without an open-file cache for all files.
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
        /// Serves an archive of the site instead of its directory.
        archive: bool,
        /// The engine's name on its command line.
        engine: &'static str,
        /// Uses HTTP/1.1 even if the scenario has HTTP/2.
        h1: bool,
    },
    /// gannet with a constant answer instead of content: the ceiling of its engine and protocols.
    Dummy,
    /// static-web-server.
    StaticWebServer,
    /// A constant answer from a framework.
    Constant(Framework),
    /// A program that the user built.
    Given(GivenProgram),
    /// A program that measures the kernel's cost alone.
    Floor(Floor),
}

/// The frameworks of the programs in `lab/peers`.
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
    /// kawipiko: names the server; the archiver is beside it.
    Kawipiko,
    /// ianic's httpd.
    Httpd,
    /// A program around faf that takes a port and gives the constant answer.
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

/// Every peer by name; the first is the base of comparisons.
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
            engine: "io_uring",
            h1: false,
        },
    ),
    (
        "gannet-directory",
        Peer::Gannet {
            archive: false,
            engine: "io_uring",
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
            engine: "io_uring",
            h1: true,
        },
    ),
    ("gannet-dummy", Peer::Dummy),
    ("floor-epoll", Peer::Floor(Floor::Epoll)),
    ("floor-uring", Peer::Floor(Floor::Uring)),
    ("floor-files", Peer::Floor(Floor::Files)),
    ("floor-memory", Peer::Floor(Floor::Memory)),
];

/// The base of ratios.
pub(crate) const BASE: &str = "nginx";

/// The default peers.
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

/// The default peers of a quick run: enough to prove that every scenario runs.
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

/// A peer whose program was found.
pub(crate) struct Found {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it is.
    pub(crate) peer: Peer,
    /// Its program.
    pub(crate) program: PathBuf,
    /// The version it reports.
    pub(crate) version: String,
    /// Distinguishes it from other builds of the same version, for gannet and for programs that the
    /// user built.
    pub(crate) identity: String,
    /// Whether it supports TLS.
    pub(crate) has_tls: bool,
    /// Whether it supports HTTP/3.
    has_h3: bool,
}

/// The parameters of one run of a peer.
pub(crate) struct Task<'a> {
    /// The files.
    pub(crate) site: &'a Site,
    /// The archive of the files, for peers that serve one.
    pub(crate) archive: Option<&'a Path>,
    /// The certificate, in a cell with TLS.
    pub(crate) certificate: Option<&'a Certificate>,
    /// Whether servers that have kernel TLS use it.
    pub(crate) ktls: bool,
    /// Workers of the server.
    pub(crate) workers: usize,
    /// A directory for configuration and temporary files.
    pub(crate) work: &'a Path,
    /// Port to listen on at 127.0.0.1.
    pub(crate) port: u16,
    /// Open files the process may have.
    pub(crate) files: u64,
    /// The clients named by scenarios.
    pub(crate) tools: &'a Tools,
    /// Whether it is the peer's first run in this cell: later ones do not compare every file.
    pub(crate) first: bool,
    /// The cell to measure.
    pub(crate) cell: &'a Cell<'a>,
}

/// How to start a peer.
pub(crate) struct Launch {
    /// The command; its output is written to a file of the run.
    pub(crate) command: Command,
    /// Text for its standard input.
    pub(crate) input: Option<String>,
    /// Its configuration file, or the command line if there is none: for the report.
    pub(crate) configuration: String,
}

/// Sources of the peers' programs.
pub(crate) struct Sources<'a> {
    /// The gannet binary given with `--gannet`.
    pub(crate) gannet: Option<&'a Path>,
    /// The programs given with `--peer-binary`, by peer name.
    pub(crate) binaries: &'a [(String, PathBuf)],
    /// The directory for programs built here.
    pub(crate) build: &'a Path,
    /// Whether cargo may install missing programs, which takes minutes.
    pub(crate) installs: bool,
    /// The cargo profile for building gannet.
    profile: &'static str,
    /// gannet's program and version: it is built once for all of its peers.
    found: OnceCell<(PathBuf, String)>,
    /// Distinguishes it from other builds.
    identity: OnceCell<String>,
}

impl<'a> Sources<'a> {
    /// Uses the programs named by `options`, and builds others into `build`; a quick run builds
    /// gannet faster, with slightly less optimisation.
    pub(crate) fn new(options: &'a Options, build: &'a Path) -> Self {
        let profile = match options.quick {
            true => "release",
            false => "dist",
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

    /// Whether gannet's program exists or can be built.
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

    /// Why this kind of peer cannot take part in `cell`, if so.
    pub(crate) fn unfit(self, cell: &Cell<'_>) -> Option<&'static str> {
        let constant = matches!(cell.content.sizes, Sizes::Text { .. });
        let load = &cell.scenario.load;
        match self {
            Self::Nginx { .. } | Self::H2o | Self::Gannet { .. } | Self::Dummy => {}
            _ if cell.workers.is_some() => return Some("has one worker here"),
            _ => {}
        }
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
            Self::Floor(_) | Self::Lighttpd | Self::StaticWebServer | Self::Given(_)
                if !load.codings.is_empty() =>
            {
                Some("is not set up to compress")
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
                engine: "io_uring",
                ..
            } | Self::Dummy
                | Self::Floor(Floor::Uring)
        )
    }

    /// Its constant answer, if it does not serve the site's content.
    pub(crate) fn constant(self) -> Option<&'static str> {
        matches!(self, Self::Dummy).then_some("hello world!\n")
    }

    /// The protocol for a scenario with `protocol`.
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

    /// Whether it has copied the archive it serves, by the `text` that it prints at its start.
    pub(crate) fn has_copied(self, text: &str) -> Result<bool> {
        match self.wants_archive() {
            true => gannet::has_copied(text),
            false => Ok(false),
        }
    }
}

impl Found {
    /// Prepares a start of this peer for one run.
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

    /// Why this peer cannot take part in `cell`, if so.
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

    /// Packs `site` into the archive `output`, at low levels if `is_fast`.
    pub(crate) fn pack(&self, site: &Site, output: &Path, is_fast: bool) -> Result<()> {
        gannet::pack(&self.program, site, output, is_fast)
    }
}

/// A peer as named in the report.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct PeerEntry {
    /// Its name.
    pub(crate) name: String,
    /// The version it reports.
    pub(crate) version: String,
    /// The configuration of its first run, with that run's paths and port.
    pub(crate) configuration: String,
}

pub(crate) use given::archive_of as kawipiko_archive_of;

/// Whether `--peer-binary` accepts a program for the named peer.
pub(crate) fn takes_binary(name: &str) -> bool {
    matches!(by_name(name), Some(Peer::Given(_)))
}
