//! Page loads in headless Chromium over a link with configured delay, rate, queue and loss: gannet
//! and other servers, over HTTP/1.1, HTTP/2 and HTTP/3.
//!
//! ```text
//!   browser ─ client0 ═ relay, one pipe each way ═ server0 ─ servers      (namespaces.rs)
//! ```
//!
//! Every load uses a new connection and an empty cache, and every received byte is verified. Rounds
//! are interleaved: each one loads the page once from every server over every protocol.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;
use serde::{Deserialize, Serialize};
use xtask::process;

use self::browser::Browser;
use self::certificate::Chain;
use self::pipe::Shape;
use self::relay::Relay;
use self::report::{Cell, Report, Run};
use self::servers::{Found, Kind, Protocol};

mod browser;
mod certificate;
mod namespaces;
mod page;
mod picture;
mod pipe;
mod relay;
mod report;
mod servers;

const HELP: &str = "\
cargo xtask link [FLAG]...

Loads a page in headless Chromium over links with delay, rate and loss, from gannet and other servers,
by HTTP/1.1, HTTP/2 and HTTP/3. Needs root: it makes namespaces and TUN devices, and removes them.

  --rounds N          loads of each kind (default: 5)
  --links NAMES       of slow, fast, loss-1, loss-3 (default: all)
  --servers NAMES     of gannet, nginx, caddy, h2o (default: all)
  --protocols NAMES   of h1, h2, h3 (default: all)
  --gannet PATH       this program instead of a release build of the workspace
  --save NAME         keep tables, picture and data as lab/results/NAME.*
";

/// A link with its description for reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Its name.
    pub(crate) name: &'static str,
    /// Its description.
    pub(crate) text: &'static str,
    shape: Shape,
}

const fn link(name: &'static str, text: &'static str, shape: [u64; 4]) -> Link {
    let [rtt_ms, kbits, queue_max, loss] = shape;
    let shape = Shape {
        delay: rtt_ms * 500_000,
        rate: kbits * 1_000,
        queue_max,
        loss: loss as u32,
    };
    Link { name, text, shape }
}

/// The links: round trip in ms, rate in kbit/s, queue in bytes, lost packets per million; both
/// directions alike. A queue holds about 0.2 s of traffic, or the bandwidth-delay product.
const LINKS: [Link; 4] = [
    link("slow", "100 ms, 1.6 Mbit/s", [100, 1_600, 40_000, 0]),
    link("fast", "40 ms, 20 Mbit/s", [40, 20_000, 150_000, 0]),
    link(
        "loss-1",
        "40 ms, 20 Mbit/s, 1 % lost",
        [40, 20_000, 150_000, 10_000],
    ),
    link(
        "loss-3",
        "40 ms, 20 Mbit/s, 3 % lost",
        [40, 20_000, 150_000, 30_000],
    ),
];

/// The link while servers start.
const OPEN: Shape = Shape {
    delay: 0,
    rate: 10_000_000_000,
    queue_max: 1 << 30,
    loss: 0,
};

/// Required programs, with their Debian packages.
const TOOLS: [(&str, &str); 5] = [
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("cc", "gcc"),
    ("openssl", "openssl"),
    ("chromium", "chromium"),
];

/// Other servers, with their Debian packages; another build that comes first in `PATH` is
/// preferred.
const PEERS: [(&str, &str); 3] = [("nginx", "nginx-light"), ("caddy", "caddy"), ("h2o", "h2o")];

/// The options of a measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Options {
    rounds: usize,
    links: Vec<String>,
    servers: Vec<String>,
    protocols: Vec<String>,
    gannet: Option<PathBuf>,
    save: Option<String>,
}

/// `cargo xtask link`.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let Some(options) = parse(parser)? else {
        return Ok(());
    };
    ensure!(
        rustix::process::geteuid().is_root(),
        "namespaces and TUN devices need root"
    );
    for (program, package) in TOOLS {
        process::find_or_install(program, package)?;
    }
    // Nothing can be installed from within the namespaces. The measurement reports missing servers.
    for (program, package) in PEERS {
        if options.servers.iter().any(|name| name == program) {
            let _ = process::find_or_install(program, package);
        }
    }
    let gannet = match &options.gannet {
        Some(path) => path.clone(),
        None => process::build(&["-p", "gannet"], "dist")?,
    };
    let interrupt = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, interrupt.clone())?;
    }
    let work = Work::create()?;
    fs::write(work.0.join("options.json"), serde_json::to_vec(&options)?)?;
    let tun = namespaces::build_tun(&work.0)?;
    let paths = [&work.0, &gannet].map(|path| path.to_string_lossy().into_owned());
    let mut command = namespaces::command(&tun, &["link", "--inside", &paths[0], &paths[1]])?;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if interrupt.load(Ordering::Relaxed) {
            child.kill()?;
            child.wait()?;
            bail!("interrupted");
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    ensure!(status.success(), "the measurement failed ({status})");
    let report: Report = serde_json::from_slice(&fs::read(work.0.join("report.json"))?)?;
    let (folder, name) = match &options.save {
        Some(name) => (process::root().join("lab/results"), name.as_str()),
        None => (process::target().join("reports"), "link"),
    };
    report.save(&folder, name)?;
    println!("{}", report.markdown(name));
    println!(
        "link: tables are '{0}/{name}.md', a picture is '{0}/{name}.svg'",
        folder.display()
    );
    Ok(())
}

fn parse(parser: &mut lexopt::Parser) -> Result<Option<Options>> {
    let mut options = Options {
        rounds: 5,
        links: LINKS.map(|link| link.name.to_owned()).to_vec(),
        servers: Kind::ALL.map(|kind| kind.name().to_owned()).to_vec(),
        protocols: Protocol::ALL
            .map(|protocol| protocol.name().to_owned())
            .to_vec(),
        gannet: None,
        save: None,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(None);
            }
            Long("inside") => {
                let (work, gannet): (PathBuf, PathBuf) =
                    (parser.value()?.into(), parser.value()?.into());
                inside(&work, &gannet)?;
                return Ok(None);
            }
            Long("rounds") => options.rounds = parser.value()?.parse()?,
            Long("links") => options.links = names(parser, &options.links)?,
            Long("servers") => options.servers = names(parser, &options.servers)?,
            Long("protocols") => options.protocols = names(parser, &options.protocols)?,
            Long("gannet") => {
                let path = PathBuf::from(parser.value()?);
                let absolute = path.canonicalize();
                options.gannet = Some(absolute.with_context(|| path.display().to_string())?);
            }
            Long("save") => options.save = Some(parser.value()?.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    ensure!(options.rounds > 0, "no rounds are no figures");
    Ok(Some(options))
}

/// Parses names separated by commas, each of which must be in `known`.
fn names(parser: &mut lexopt::Parser, known: &[String]) -> Result<Vec<String>> {
    let value = parser.value()?.string()?;
    let names: Vec<String> = value.split(',').map(str::to_owned).collect();
    for name in &names {
        ensure!(
            known.contains(name),
            "'{name}' is none of {}",
            known.join(", ")
        );
    }
    Ok(names)
}

/// Maximum time until all processes have stopped writing to the folder of a run.
const REMOVE_MAX: Duration = Duration::from_secs(5);

/// The folder of a run; removed when dropped.
struct Work(PathBuf);

impl Work {
    fn create() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("gannet-link-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let start = Instant::now();
        // After an interruption, the processes that write to it take a moment to end.
        while let Err(error) = fs::remove_dir_all(&self.0) {
            if start.elapsed() > REMOVE_MAX {
                return eprintln!("link: cannot remove '{}': {error}", self.0.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The path of a program that should be installed.
fn find(program: &str) -> Result<PathBuf> {
    process::find(program).with_context(|| format!("'{program}' is not installed"))
}

/// The part that runs in the namespaces: measures, and writes the report to `work`.
fn inside(work: &Path, gannet: &Path) -> Result<()> {
    let options: Options = serde_json::from_slice(&fs::read(work.join("options.json"))?)?;
    let addresses = Kind::ALL.map(|kind| kind.address().to_string());
    namespaces::configure(&addresses)?;
    let relay = Relay::start(rustix::stdio::stdin(), rustix::stdio::stdout(), OPEN)?;
    let chromium = find("chromium")?;
    let chain = Chain::create(work)?;
    let site = work.join("site");
    let files = page::write(&site)?;
    let task = servers::Task {
        site: &site,
        chain: &chain,
        folder: work,
    };
    let mut found = Vec::new();
    let mut running = Vec::new();
    let kinds = Kind::ALL.into_iter();
    for kind in kinds.filter(|kind| options.servers.iter().any(|name| name == kind.name())) {
        let program = servers::find(kind, gannet).and_then(|program| {
            let server = servers::start(kind, &program, &task)?;
            running.push((kind, program.has_h3, server));
            Ok(program)
        });
        let program = program.map_err(|error| format!("{error:#}"));
        if let Err(reason) = &program {
            eprintln!("link: {} is left out: {reason}", kind.name());
        }
        let name = kind.name().to_owned();
        found.push(Found { name, program });
    }
    let resolve: Vec<String> = Kind::ALL
        .map(|kind| format!("MAP {} {}", kind.host(), kind.address()))
        .to_vec();
    let setting = browser::Setting {
        program: &chromium,
        folder: work,
        resolve: &resolve.join(","),
        hosts: &Kind::ALL.map(Kind::host),
        spki: &chain.spki,
    };
    let mut browsers = Vec::new();
    for protocol in Protocol::ALL {
        if options.protocols.iter().any(|name| name == protocol.name()) {
            browsers.push((protocol, Browser::start(&setting, protocol)?));
        }
    }
    let mut report = Report::new(found, chain.len, &files, &chromium)?;
    for link in LINKS
        .iter()
        .filter(|link| options.links.iter().any(|name| name == link.name))
    {
        for (protocol, _) in &browsers {
            for (kind, has_h3, _) in &running {
                let left_out = (*protocol == Protocol::H3 && !has_h3)
                    .then(|| "this build has no HTTP/3".to_owned());
                report.cells.push(Cell {
                    link: link.name.to_owned(),
                    link_text: link.text.to_owned(),
                    server: kind.name().to_owned(),
                    protocol: *protocol,
                    left_out,
                    runs: Vec::new(),
                });
            }
        }
    }
    for round in 0..options.rounds {
        eprintln!("link: round {} of {}", round + 1, options.rounds);
        for cell in &mut report.cells {
            let Some(link) = LINKS.iter().find(|link| link.name == cell.link) else {
                continue;
            };
            let browser = browsers
                .iter_mut()
                .find(|(protocol, _)| *protocol == cell.protocol);
            let Some((_, browser)) = browser else {
                continue;
            };
            if cell.left_out.is_some() {
                continue;
            }
            let url = format!("https://{}.link.test/", cell.server);
            // The link is unrestricted between loads. The first load is not measured: it also
            // starts parts of the browser and the server.
            let warm = match round {
                0 => browser.load(&url, cell.protocol, &files).map(drop),
                _ => Ok(()),
            };
            relay.reset(link.shape, 1 + round as u64);
            let load = warm.and_then(|()| browser.load(&url, cell.protocol, &files));
            let [up, down] = relay.counts()?;
            match load {
                Ok(load) => cell.runs.push(Run { load, up, down }),
                Err(error) => cell.left_out = Some(format!("{error:#}")),
            }
            relay.reset(OPEN, 0);
        }
    }
    fs::write(work.join("report.json"), serde_json::to_vec(&report)?)?;
    Ok(())
}
