//! Measures gannet and its peers side by side, in interleaved rounds on pinned CPUs.
//!
//! The figure to compare is the CPU time that the server's process tree spends per response:
//! requests per second depend on which side was the bottleneck, and are given beside it. Rounds
//! run every peer once, so that slow changes of the machine meet all alike; ratios are taken
//! within a round. A run that saw one wrong response, error or dead server has no figure.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context, Result, bail, ensure};

use self::{
    certificate::{Certificate, Key},
    content::Site,
    host::{Affinity, Machine, Setting, WorkDir},
    options::Options,
    peers::{Found, PeerEntry, Sources, Task},
    programs::Tools,
    report::{CellReport, Outcome, Report},
    run::Client,
    scenario::{Cell, ContentSpec, Protocol, Scenario},
};
use crate::process;

mod certificate;
mod content;
mod h2load;
mod host;
mod options;
mod peers;
mod programs;
mod report;
mod run;
mod scenario;
mod server;
mod statistics;
mod usage;
mod wrk;

/// Free space wanted beyond the files themselves, in bytes.
const SPARE: u64 = 64 << 20;
/// Descriptors a side needs beyond its connections.
const SPARE_FILES: u64 = 128;

/// `cargo xtask bench`.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let Some(options) = Options::parse(parser)? else {
        return Ok(());
    };
    let scenarios = scenario::read_all(&process::root().join("bench/scenarios"))?;
    let results = process::root().join("bench/results");
    match &options.task {
        None => {}
        Some(options::Task::Compare(name)) => return report::compare(&results, name.as_deref()),
        Some(options::Task::Render(name)) => {
            return Report::read(&results, name)?.save(&results, name);
        }
        Some(options::Task::Readme(names)) => {
            return report::write_readme(&process::root().join("README.md"), &results, names);
        }
    }
    if options.list {
        list(&scenarios);
        return Ok(());
    }
    if cfg!(debug_assertions) {
        println!(
            "bench: this client is not optimised and may be the bottleneck: use 'cargo xtask'"
        );
    }
    let cells = choose(&scenarios, &options.only)?;
    let interrupt = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, interrupt.clone())?;
    }
    let bench = Bench::prepare(&options, &cells, interrupt)?;
    let report = bench.run(&cells)?;
    report.print();
    save(&report, &options, &results)?;
    let failures = report.failures();
    ensure!(failures == 0, "{failures} runs failed; they are no figures");
    Ok(())
}

/// Writes the result where it was asked for; that of a quick run only to prove that it can be.
fn save(report: &Report, options: &Options, results: &Path) -> Result<()> {
    if let Some(name) = &options.save {
        return report.save(results, name);
    }
    if options.no_save {
        return Ok(());
    }
    if options.quick {
        let directory = std::env::temp_dir().join(format!("gannet-bench-{}", std::process::id()));
        report.save(&directory, "quick")?;
        return fs::remove_dir_all(&directory).context("cannot remove a quick run's report");
    }
    let day = report.date.split(' ').next().unwrap_or("undated");
    let host = host::name();
    let name = format!("{day}-{host}");
    let taken = |name: &String| results.join(name).exists();
    let more = (2..).map(|number| format!("{name}-{number}"));
    let name = std::iter::once(name.clone())
        .chain(more)
        .find(|name| !taken(name));
    report.save(results, &name.context("a free name")?)
}

fn list(scenarios: &[Scenario]) {
    println!("scenarios:");
    for scenario in scenarios {
        println!("  {:<24} {}", scenario.name, scenario.title);
        println!("  {:<24} from {}", "", scenario.origin);
        for cell in scenario.cells() {
            println!("  {:<24}   {}", "", cell.name());
        }
    }
    println!("peers (* unless --peers is given):");
    for name in peers::names() {
        let mark = if peers::DEFAULT.contains(&name) {
            "*"
        } else {
            " "
        };
        println!("  {mark} {name}");
    }
}

/// The cells that `only` names, in the scenarios' order.
fn choose<'a>(scenarios: &'a [Scenario], only: &[String]) -> Result<Vec<Cell<'a>>> {
    let named =
        |cell: &Cell<'_>, name: &String| *name == cell.scenario.name || *name == cell.name();
    let all: Vec<Cell<'a>> = scenarios.iter().flat_map(Scenario::cells).collect();
    for name in only {
        let known = all.iter().any(|cell| named(cell, name));
        ensure!(
            known,
            "--only {name}: no such scenario or cell (see --list)"
        );
    }
    let wanted = |cell: &Cell<'_>| only.is_empty() || only.iter().any(|name| named(cell, name));
    Ok(all.into_iter().filter(wanted).collect())
}

struct Bench<'a> {
    options: &'a Options,
    interrupt: Arc<AtomicBool>,
    work: WorkDir,
    certificates: Vec<(Key, Certificate)>,
    found: Vec<Found>,
    skipped: Vec<String>,
    tools: Tools,
    files: u64,
    congestion: String,
    // Dropped last to first: whatever happens, the machine is as it was.
    _setting: Option<Setting>,
    _affinity: Affinity,
}

impl<'a> Bench<'a> {
    fn prepare(
        options: &'a Options,
        cells: &[Cell<'_>],
        interrupt: Arc<AtomicBool>,
    ) -> Result<Self> {
        let need = cells
            .iter()
            .map(|c| content::size_of(&c.content, options.quick));
        // The site, its archive, and room for the pages of both while one replaces the other.
        let kawipiko = u64::from(options.peers.iter().any(|name| name == "kawipiko"));
        let need = need.max().unwrap_or(0) * (2 + kawipiko) + SPARE;
        let fallback = process::root().join("bench/work");
        let work = WorkDir::create(options.work.as_deref(), need, &fallback)?;
        let build = work.path.join("programs");
        fs::create_dir(&build)?;
        let sources = Sources::new(options, &build);
        let (mut found, mut skipped) = (Vec::new(), Vec::new());
        for (name, peer) in peers::names().filter_map(|name| Some((name, peers::by_name(name)?))) {
            if !options.peers.iter().any(|wanted| wanted == name) {
                continue;
            }
            match peer.find(name, &sources) {
                Ok(peer) => found.push(peer),
                // A gannet that does not build is not left out in silence; one engine may be.
                Err(e) if options.peers_given || is_broken(peer, &sources) => {
                    return Err(e.context(format!("peer {name}")));
                }
                Err(e) => skipped.push(format!("{name}: {e:#}")),
            }
        }
        for reason in &skipped {
            eprintln!("bench: skipping {reason}");
        }
        ensure!(!found.is_empty(), "no peer can be measured");
        if options.method.client == Client::Wrk {
            process::find_or_install("wrk", "wrk").context("--client wrk")?;
        }
        if cells
            .iter()
            .any(|c| c.scenario.load.client.is_none() && c.scenario.load.protocol == Protocol::H2)
        {
            process::find_or_install("h2load", "nghttp2-client").context("scenarios of HTTP/2")?;
        }
        let clients = cells.iter().filter_map(|cell| cell.scenario.load.client);
        let tools = Tools::find(clients, &sources);
        let mut certificates: Vec<(Key, Certificate)> = Vec::new();
        for key in cells.iter().filter_map(|cell| cell.scenario.load.tls) {
            if !certificates.iter().any(|(made, _)| *made == key) {
                certificates.push((key, Certificate::create(key, &work.path)?));
            }
        }
        if let Some(nice) = options.nice {
            rustix::process::setpriority_process(None, nice).context("--nice")?;
        }
        let affinity = Affinity::save()?;
        let (congestion, setting) = set_congestion();
        println!("bench: TCP congestion control: {congestion}");
        Ok(Self {
            options,
            interrupt,
            work,
            certificates,
            found,
            skipped,
            tools,
            files: host::raise_file_limit(),
            congestion,
            _setting: setting,
            _affinity: affinity,
        })
    }

    fn run(self, cells: &[Cell<'_>]) -> Result<Report> {
        let mut report = Report {
            schema: 1,
            date: process::output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_default(),
            machine: Machine::read(),
            method: self.options.method,
            rounds: self.options.rounds,
            quick: self.options.quick,
            congestion: self.congestion.clone(),
            nice: self.options.nice,
            in_memory: self.work.in_memory,
            file_limit: self.files,
            skipped: self.skipped.clone(),
            peers: Vec::new(),
            cells: Vec::new(),
        };
        let mut site: Option<(ContentSpec, Site, Option<PathBuf>)> = None;
        for cell in cells {
            // HTTP/1.1 has a connection where HTTP/2 has a stream.
            let need = (cell.connections * cell.streams) as u64 + SPARE_FILES;
            if need > self.files {
                let reason = format!("needs {need} open files (limit: {})", self.files);
                println!("bench: skipping {}: {reason}", cell.name());
                report.skipped.push(format!("{}: {reason}", cell.name()));
                continue;
            }
            let client = cell
                .scenario
                .load
                .client
                .map(|client| self.tools.get(client));
            if let Some(Err(reason)) = client {
                println!("bench: skipping {}: {reason}", cell.name());
                report.skipped.push(format!("{}: {reason}", cell.name()));
                continue;
            }
            if site
                .as_ref()
                .is_none_or(|(made, _, _)| *made != cell.content)
            {
                self.clear(site.take())?;
                site = Some(self.make_site(cell, &mut report)?);
            }
            let (_, files, archive) = site.as_ref().context("a site was made")?;
            let cell_report = self.run_cell(cell, files, archive.as_deref(), &mut report.peers)?;
            report.cells.push(cell_report);
        }
        Ok(report)
    }

    fn make_site(
        &self,
        cell: &Cell<'_>,
        report: &mut Report,
    ) -> Result<(ContentSpec, Site, Option<PathBuf>)> {
        let name = cell.name();
        let root = self.work.path.join("site");
        let site = content::create(&cell.content, &root, self.options.quick)?;
        let mut archive = None;
        if let Some(packer) = self.found.iter().find(|found| found.peer.wants_archive()) {
            let path = self.work.path.join("site.gannet");
            match packer.pack(&site, &path) {
                Ok(()) => archive = Some(path),
                Err(e) => {
                    println!("bench: {name}: no archive: {e:#}");
                    report.skipped.push(format!("{name}: no archive: {e:#}"));
                }
            }
        }
        let (files, bytes) = (site.targets.len(), site.bytes());
        println!("bench: {name}: {files} files, {bytes} bytes");
        Ok((cell.content.clone(), site, archive))
    }

    fn clear(&self, site: Option<(ContentSpec, Site, Option<PathBuf>)>) -> Result<()> {
        if let Some((_, site, archive)) = site {
            let packed = peers::kawipiko_archive_of(&site.root);
            if packed.exists() {
                fs::remove_file(packed)?;
            }
            fs::remove_dir_all(site.root)?;
            archive.map_or(Ok(()), fs::remove_file)?;
        }
        Ok(())
    }

    fn certificate(&self, key: Key) -> Option<&Certificate> {
        let found = self.certificates.iter().find(|(made, _)| *made == key);
        found.map(|(_, certificate)| certificate)
    }

    /// Runs every peer once per round.
    fn run_cell(
        &self,
        cell: &Cell<'_>,
        site: &Site,
        archive: Option<&Path>,
        entries: &mut Vec<PeerEntry>,
    ) -> Result<CellReport> {
        let mut outcomes: BTreeMap<&str, Vec<Outcome>> = BTreeMap::new();
        let mut taking_part = Vec::new();
        for found in &self.found {
            match found.unfit(cell) {
                Some(reason) => {
                    println!("bench: {}: {} left out: {reason}", cell.name(), found.name);
                }
                None => taking_part.push(found),
            }
        }
        for round in 1..=self.options.rounds {
            for found in &taking_part {
                let outcome = self.run_once(found, cell, site, archive, entries)?;
                println!(
                    "bench: {} round {round}: {:<22} {}",
                    cell.name(),
                    found.name,
                    outcome.line(cell.scenario.unit)
                );
                outcomes.entry(found.name).or_default().push(outcome);
            }
        }
        let order = taking_part.iter().map(|found| found.name);
        Ok(CellReport::new(
            cell,
            order.map(|name| (name, outcomes[name].clone())),
        ))
    }

    fn run_once(
        &self,
        found: &Found,
        cell: &Cell<'_>,
        site: &Site,
        archive: Option<&Path>,
        entries: &mut Vec<PeerEntry>,
    ) -> Result<Outcome> {
        if found.peer.wants_archive() && archive.is_none() {
            return Ok(Outcome::Failed("the site could not be packed".into()));
        }
        let work = self.work.path.join("run");
        fs::create_dir(&work)?;
        let port = server::free_port()?;
        let task = Task {
            site,
            archive,
            ktls: self.options.method.ktls,
            certificate: cell.scenario.load.tls.and_then(|key| self.certificate(key)),
            work: &work,
            port,
            files: self.files,
            tools: &self.tools,
            cell,
        };
        let result = run::measure(found, &task, &self.options.method, &self.interrupt);
        fs::remove_dir_all(&work)?;
        if self.interrupt.load(Ordering::Relaxed) {
            bail!("interrupted; what was measured so far is not reported");
        }
        match result {
            Ok((figures, configuration)) => {
                if !entries.iter().any(|entry| entry.name == found.name) {
                    // The report is about any machine: its paths are named for what they are.
                    let work = self.work.path.to_string_lossy().into_owned();
                    let program = found.program.to_string_lossy().into_owned();
                    let configuration = configuration.replace(&program, found.program_name());
                    entries.push(PeerEntry {
                        name: found.name.to_owned(),
                        version: found.version.clone(),
                        configuration: configuration.replace(&work, "WORK"),
                    });
                }
                Ok(Outcome::Figures(Box::new(figures)))
            }
            Err(e) => Ok(Outcome::Failed(format!("{e:#}"))),
        }
    }
}

/// Whether this is gannet and even its program cannot be had.
fn is_broken(peer: peers::Peer, sources: &Sources<'_>) -> bool {
    matches!(peer, peers::Peer::Gannet { .. }) && !sources.has_gannet()
}

/// Sets the congestion control to cubic: pacing timers of others distort what loopback costs.
fn set_congestion() -> (String, Option<Setting>) {
    match Setting::set(Path::new(host::CONGESTION), "cubic") {
        Ok(None) => ("cubic, as it was".into(), None),
        Ok(Some(setting)) => {
            let before = setting.before().to_owned();
            (
                format!("cubic for the runs ({before} before, put back afterwards)"),
                Some(setting),
            )
        }
        Err(e) => {
            let now = fs::read_to_string(host::CONGESTION).unwrap_or_default();
            (
                format!("{} (cannot be set to cubic: {e:#})", now.trim()),
                None,
            )
        }
    }
}
