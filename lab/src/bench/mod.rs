//! Measures gannet and its peers side by side, in interleaved rounds on pinned CPUs.
//!
//! The figure to compare is the CPU time of the server's process tree per response: requests per
//! second depend on which side was the bottleneck, and are reported as well. A round runs every
//! peer once, so that slow changes of the machine affect all alike; ratios are taken within a
//! round. A run with a wrong response, an error or a dead server has no figure.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use anyhow::{Context, Result, anyhow, bail, ensure};

use self::{
    estimate::{Past, Took},
    host::{Affinity, Machine, Setting, WorkDir},
    options::Options,
    peers::{Found, PeerEntry, Sources, Task},
    plan::{Clock, Job},
    programs::Tools,
    report::{CellReport, Outcome, Report},
    run::Client,
    scenario::{Cell, KeyKind, Protocol, Scenario},
    sites::{Made, Sites},
};
use crate::load::Order;
use xtask::{certificate::Certificate, process, running::free_port};

mod content;
mod estimate;
#[cfg(test)]
mod faults;
mod h2load;
pub(crate) mod host;
mod options;
mod peers;
mod plan;
mod programs;
mod report;
mod run;
mod scenario;
mod server;
mod sites;
pub(crate) mod statistics;
pub(crate) mod usage;
mod wrk;

/// Free space required beyond the files themselves, in bytes.
const SPARE: u64 = 64 << 20;
/// Descriptors a side needs beyond its connections.
const SPARE_FILES: u64 = 128;

/// `cargo xtask bench`.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let Some(options) = Options::parse(parser)? else {
        return Ok(());
    };
    let scenarios = scenario::read_all(&process::root().join("lab/scenarios"))?;
    let results = process::root().join("lab/results");
    match &options.task {
        None => {}
        Some(options::Task::Compare(name)) => return report::compare(&results, name.as_deref()),
        Some(options::Task::Render(name)) => {
            Report::read(&results, name)?.render(&results, name)?;
            print_place(&results, name);
            return Ok(());
        }
        Some(options::Task::Readme(names)) => {
            return report::write_readme(&process::root().join("README.md"), &results, names);
        }
    }
    if options.list {
        list(&scenarios);
        return Ok(());
    }
    let presets = process::root().join("lab/presets");
    let jobs = plan::jobs(&options, &scenarios, &presets)?;
    let mtu = plan::loopback_mtu(&options, &presets)?;
    if options.plan {
        return show_plan(jobs, &options, &results);
    }
    if cfg!(debug_assertions) {
        println!(
            "bench: this client is not optimised and may be the bottleneck: use 'cargo xtask'"
        );
    }
    let place = Place::of(&options, results)?;
    let earlier = match (&options.resume, &place) {
        (true, Some(place)) => Some(Report::read(&place.directory, &place.name)?),
        _ => None,
    };
    let interrupt = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, interrupt.clone())?;
    }
    let bench = Bench::prepare(&options, &jobs, mtu, interrupt)?;
    let (report, ended) = bench.run(jobs, earlier, place.as_ref())?;
    report.print();
    if let Some(place) = &place {
        report.save(&place.directory, &place.name)?;
        match options.quick && options.save.is_none() {
            true => fs::remove_dir_all(&place.directory).context("cannot remove a quick report")?,
            false => print_place(&place.directory, &place.name),
        }
    }
    ended?;
    let failures = report.failures();
    ensure!(failures == 0, "{failures} runs failed and give no figures");
    Ok(())
}

/// Prints where the tables of the result `name` in `directory` are.
fn print_place(directory: &Path, name: &str) {
    let tables = directory.join(name).join("report.md");
    println!("bench: tables are '{}'", tables.display());
}

/// Where the result is written.
struct Place {
    directory: PathBuf,
    name: String,
}

impl Place {
    /// From `options`; a quick run writes only to prove that it can. `None` for no result.
    fn of(options: &Options, results: PathBuf) -> Result<Option<Self>> {
        let at = |directory, name: &str| {
            let name = name.to_owned();
            Ok(Some(Self { directory, name }))
        };
        if let Some(name) = &options.save {
            return at(results, name);
        }
        if options.no_save {
            return Ok(None);
        }
        if options.quick {
            let name = format!("gannet-bench-{}", std::process::id());
            return at(std::env::temp_dir().join(name), "quick");
        }
        let day = process::output("date", &["-u", "+%Y-%m-%d"]).unwrap_or("undated".into());
        let name = format!("{day}-{}", host::name());
        let more = (2..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(more);
        let free = names.find(|name| !results.join(name).exists());
        at(results, &free.context("a free name")?)
    }
}

fn list(scenarios: &[Scenario]) {
    println!("scenarios:");
    for scenario in scenarios {
        let on_demand = if scenario.on_demand {
            " (on demand)"
        } else {
            ""
        };
        println!("  {:<24} {}{on_demand}", scenario.name, scenario.title);
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

/// Prints what would be measured and how long that would take with every peer. For a resumed
/// result, only what is missing.
fn show_plan(mut jobs: Vec<Job<'_>>, options: &Options, results: &Path) -> Result<()> {
    let earlier = match (options.resume, &options.save) {
        (true, Some(name)) => Some(Report::read(results, name)?),
        _ => None,
    };
    let is_left_out = |what: &str| earlier.as_ref().is_some_and(|e| e.leaves_out(what));
    let peers_of = |job: &Job<'_>| -> Vec<&'static str> {
        let named = peers::names().filter(|name| job.peers.iter().any(|peer| peer == name));
        let fits = |name: &&'static str| {
            let peer = peers::by_name(name);
            peer.is_some_and(|peer| peer.unfit(&job.cell).is_none()) && !is_left_out(name)
        };
        named.filter(fits).collect()
    };
    jobs.retain(|job| {
        let name = job.cell.name();
        let has = |e: &Report| e.has(&name, &peers_of(job), job.pace.rounds);
        !is_left_out(&name) && !earlier.as_ref().is_some_and(has)
    });
    let peers = |job: &Job<'_>| peers_of(job).len();
    let past = Past::of(&Report::all(results), &Machine::read());
    let (client, quick) = (options.method.client, options.quick);
    let estimates = estimate::estimates(&jobs, peers, client, quick, &past);
    for (job, seconds) in jobs.iter().zip(&estimates) {
        println!(
            "{:<40} {:>2} peers, {} rounds of {} s: {}",
            job.cell.name(),
            peers(job),
            job.pace.rounds,
            job.pace.duration_s,
            plan::words(*seconds)
        );
    }
    let sum = estimates.iter().sum();
    println!("{} cells: about {}", jobs.len(), plan::words(sum));
    Ok(())
}

struct Bench<'a> {
    options: &'a Options,
    interrupt: Arc<AtomicBool>,
    work: WorkDir,
    certificates: Vec<(KeyKind, Certificate)>,
    found: Vec<Found>,
    skipped: Vec<String>,
    tools: Tools,
    files: u64,
    congestion: String,
    loopback_mtu: Option<String>,
    kernel_tls: bool,
    // Dropping these restores the machine, whatever happens.
    _settings: Vec<Setting>,
    affinity: Affinity,
}

impl<'a> Bench<'a> {
    fn prepare(
        options: &'a Options,
        jobs: &[Job<'_>],
        mtu: Option<u32>,
        interrupt: Arc<AtomicBool>,
    ) -> Result<Self> {
        let cells: Vec<&Cell<'_>> = jobs.iter().map(|job| &job.cell).collect();
        let need = cells
            .iter()
            .map(|c| content::size_of(&c.content, options.quick));
        // A site and its archive, plus those kept for later cells.
        let kawipiko = u64::from(options.peers.iter().any(|name| name == "kawipiko"));
        let need = need.max().unwrap_or(0) * (2 + kawipiko);
        let need = need + need.min(2 * sites::KEPT) + SPARE;
        let on_disk = cells.iter().any(|cell| cell.content.sparse);
        let fallback = process::root().join("lab/work");
        let work = WorkDir::create(options.work.as_deref(), need, &fallback, on_disk)?;
        let build = work.path.join("programs");
        fs::create_dir(&build)?;
        let sources = Sources::new(options, &build);
        let (found, skipped) = find_peers(options, jobs, &sources)?;
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
        let mut certificates: Vec<(KeyKind, Certificate)> = Vec::new();
        for key in cells.iter().filter_map(|cell| cell.scenario.load.tls) {
            if !certificates.iter().any(|(made, _)| *made == key) {
                certificates.push((key, Certificate::create(key.key(), &work.path)?));
            }
        }
        if let Some(nice) = options.nice {
            rustix::process::setpriority_process(None, nice).context("--nice")?;
        }
        let affinity = Affinity::save()?;
        // Pacing timers of other algorithms distort the cost over loopback.
        let (congestion, setting) = set_for_the_runs(host::CONGESTION, "cubic");
        println!("bench: TCP congestion control: {congestion}");
        let mtu = mtu.map(|mtu| set_for_the_runs(host::LOOPBACK_MTU, &mtu.to_string()));
        let (loopback_mtu, packets) = mtu.unzip();
        if let Some(mtu) = &loopback_mtu {
            println!("bench: MTU of loopback: {mtu}");
        }
        let most = cells.iter().map(|c| c.connections * c.streams).max();
        let ports = host::widen_ports(most.unwrap_or(0)).unwrap_or_else(|e| {
            eprintln!("bench: opening {most:?} connections will take long: {e:#}");
            None
        });
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
            loopback_mtu,
            kernel_tls: host::has_kernel_tls(),
            _settings: setting
                .into_iter()
                .chain(packets.flatten())
                .chain(ports)
                .collect(),
            affinity,
        })
    }

    /// Measures `jobs`, except for those in `earlier`, and updates `place`. The second result is an
    /// error if not all of them were measured.
    fn run(
        self,
        jobs: Vec<Job<'_>>,
        earlier: Option<Report>,
        place: Option<&Place>,
    ) -> Result<(Report, Result<()>)> {
        let fresh = self.empty_report();
        let mut report = match earlier {
            None => fresh,
            Some(earlier) => earlier.go_on(&fresh)?,
        };
        let (done, mut jobs): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| {
            let peers: Vec<_> = self.taking_part(job).iter().map(|f| f.name).collect();
            report.has(&job.cell.name(), &peers, job.pace.rounds)
        });
        jobs.retain(|job| match self.obstacle(&job.cell) {
            None => true,
            Some(reason) => {
                report.leave_out(format!("{}: {reason}", job.cell.name()));
                false
            }
        });
        let peers = |job: &Job<'_>| self.taking_part(job).len();
        let (client, quick) = (self.options.method.client, self.options.quick);
        let results = process::root().join("lab/results");
        let past = Past::of(&Report::all(&results), &report.machine);
        let estimates = estimate::estimates(&jobs, peers, client, quick, &past);
        let mut clock = Clock::new(estimates, self.options.budget);
        if !done.is_empty() {
            println!("bench: {} cells are already measured", done.len());
        }
        let mut sites = Sites::new(&self.work.path, self.options.quick);
        let (mut late, mut ended) = (Vec::new(), Ok(()));
        for job in &jobs {
            if self.interrupt.load(Ordering::Relaxed) {
                break;
            }
            let name = job.cell.name();
            if !clock.begin(&name) {
                late.push(name);
                continue;
            }
            match self.run_cell(job, &mut sites, &mut report) {
                Ok(cell) => report.add(cell),
                Err(_) if self.interrupt.load(Ordering::Relaxed) => break,
                Err(e) => {
                    ended = Err(e.context(name));
                    break;
                }
            }
            clock.end();
            if let Some(place) = place {
                report.write_data(&place.directory, &place.name)?;
            }
        }
        let again = match place {
            Some(place) if !self.options.quick => {
                format!("; '--save {} --resume' measures the rest", place.name)
            }
            _ => String::new(),
        };
        if self.interrupt.load(Ordering::Relaxed) {
            let (have, all) = (report.cells.len(), done.len() + jobs.len());
            ended = Err(anyhow!(
                "interrupted: {have} of {all} cells are measured{again}"
            ));
        } else if !late.is_empty() {
            let count = late.len();
            report.leave_out(format!("{}{}", report::LATE, late.join(", ")));
            ended = Err(anyhow!("no time was left for {count} cells{again}"));
        }
        Ok((report, ended))
    }

    fn empty_report(&self) -> Report {
        Report {
            schema: 1,
            date: process::output("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_default(),
            machine: Machine::read(),
            method: self.options.method,
            rounds: self.options.rounds,
            quick: self.options.quick,
            congestion: self.congestion.clone(),
            loopback_mtu: self.loopback_mtu.clone(),
            environment: host::gannet_variables(std::env::vars_os()),
            nice: self.options.nice,
            in_memory: self.work.in_memory,
            file_limit: self.files,
            skipped: self.skipped.clone(),
            peers: Vec::new(),
            cells: Vec::new(),
        }
    }

    /// Why `cell` cannot be measured here, if so.
    fn obstacle(&self, cell: &Cell<'_>) -> Option<String> {
        // HTTP/1.1 uses a connection where HTTP/2 uses a stream.
        let need = (cell.connections * cell.streams) as u64 + SPARE_FILES;
        let reason = match cell
            .scenario
            .load
            .client
            .map(|client| self.tools.get(client))
        {
            _ if need > self.files => format!("needs {need} open files (limit: {})", self.files),
            Some(Err(reason)) => reason.to_owned(),
            _ if cell.scenario.load.ktls && !self.kernel_tls => {
                "this kernel has no TLS (see /proc/sys/net/ipv4/tcp_available_ulp)".to_owned()
            }
            _ => return None,
        };
        println!("bench: skipping {}: {reason}", cell.name());
        Some(reason)
    }

    /// The peers for `job`.
    fn taking_part(&self, job: &Job<'_>) -> Vec<&Found> {
        let wanted = |found: &&Found| {
            job.peers.iter().any(|name| name == found.name) && found.unfit(&job.cell).is_none()
        };
        self.found.iter().filter(wanted).collect()
    }

    fn certificate(&self, key: KeyKind) -> Option<&Certificate> {
        let found = self.certificates.iter().find(|(made, _)| *made == key);
        found.map(|(_, certificate)| certificate)
    }

    /// Runs every peer once per round.
    fn run_cell(
        &self,
        job: &Job<'_>,
        sites: &mut Sites,
        report: &mut Report,
    ) -> Result<CellReport> {
        let cell = &job.cell;
        let name = cell.name();
        for found in &self.found {
            if let Some(reason) = found.unfit(cell)
                && job.peers.iter().any(|name| name == found.name)
            {
                println!("bench: {name}: {} left out: {reason}", found.name);
            }
        }
        let mut taking_part = self.taking_part(job);
        self.affinity.restore();
        let began = Instant::now();
        let packer = taking_part.iter().find(|found| found.peer.wants_archive());
        let was_there = sites.has(&cell.content, packer.is_some());
        let made = sites.get(&cell.content, packer.copied())?;
        if let (Some(_), Err(reason)) = (packer, made.archive()) {
            println!("bench: {name}: no archive: {reason}");
            report.leave_out(format!("{name}: no archive: {reason}"));
            taking_part.retain(|found| !found.peer.wants_archive());
        }
        let made_s = began.elapsed().as_secs_f64();
        let began = Instant::now();
        let mut outcomes: BTreeMap<&str, Vec<Outcome>> = BTreeMap::new();
        for round in 1..=job.pace.rounds {
            for found in &taking_part {
                let outcome = self.run_once(found, job, made, round, &mut report.peers)?;
                println!(
                    "bench: {name} round {round}: {:<22} {}",
                    found.name,
                    outcome.line(cell.scenario.unit)
                );
                outcomes.entry(found.name).or_default().push(outcome);
            }
        }
        let order = taking_part.iter().map(|found| found.name);
        let rows = order.map(|name| (name, outcomes[name].clone()));
        let mut report = CellReport::new(cell, job.pace, rows);
        report.note_builds(&taking_part);
        report.took = Some(Took {
            made_s: if was_there { 0.0 } else { made_s },
            runs_s: began.elapsed().as_secs_f64(),
            runs: outcomes.values().map(Vec::len).sum(),
        });
        Ok(report)
    }

    fn run_once(
        &self,
        found: &Found,
        job: &Job<'_>,
        made: &Made,
        round: usize,
        entries: &mut Vec<PeerEntry>,
    ) -> Result<Outcome> {
        let cell = &job.cell;
        let work = self.work.path.join("run");
        fs::create_dir(&work)?;
        let port = free_port()?;
        // The run before has pinned this thread.
        self.affinity.restore();
        let method = run::Method {
            duration_s: job.pace.duration_s,
            warm_up_s: job.pace.warm_up_s,
            ..self.options.method
        };
        // An earlier run has left names in the kernel's caches that a first one does not find there,
        // those of missing files among them.
        let fresh = match cell.scenario.load.order {
            Order::Once => Some(made.site.linked(&work.join("site"))?),
            _ => None,
        };
        let task = Task {
            site: fresh.as_ref().unwrap_or(&made.site),
            archive: made.archive().ok(),
            ktls: method.ktls || cell.scenario.load.ktls,
            first: round == 1,
            certificate: cell.scenario.load.tls.and_then(|key| self.certificate(key)),
            workers: cell.workers.unwrap_or(1),
            work: &work,
            port,
            files: self.files,
            tools: &self.tools,
            cell,
        };
        let result = run::measure(found, &task, &method, &self.interrupt);
        fs::remove_dir_all(&work)?;
        if self.interrupt.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        match result {
            Ok((figures, configuration)) => {
                if !entries.iter().any(|entry| entry.name == found.name) {
                    // Paths are replaced by placeholders, so that the report is independent of the
                    // machine.
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

/// Finds the peers of all `jobs`, and the reasons for those left out.
fn find_peers(
    options: &Options,
    jobs: &[Job<'_>],
    sources: &Sources<'_>,
) -> Result<(Vec<Found>, Vec<String>)> {
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    for (name, peer) in peers::names().filter_map(|name| Some((name, peers::by_name(name)?))) {
        let wanted = |job: &Job<'_>| job.peers.iter().any(|wanted| wanted == name);
        if !jobs.iter().any(wanted) {
            continue;
        }
        match peer.find(name, sources) {
            Ok(peer) => found.push(peer),
            // A gannet that does not build is an error; a single engine may be unavailable.
            Err(e) if options.peers_given || is_broken(peer, sources) => {
                return Err(e.context(format!("peer {name}")));
            }
            Err(e) => skipped.push(format!("{name}: {e:#}")),
        }
    }
    for reason in &skipped {
        eprintln!("bench: skipping {reason}");
    }
    ensure!(!found.is_empty(), "no peer can be measured");
    Ok((found, skipped))
}

/// Whether this is gannet and its program is unavailable.
fn is_broken(peer: peers::Peer, sources: &Sources<'_>) -> bool {
    matches!(peer, peers::Peer::Gannet { .. }) && !sources.has_gannet()
}

/// Sets the kernel's setting at `path` to `value`; says so in words.
fn set_for_the_runs(path: &str, value: &str) -> (String, Option<Setting>) {
    match Setting::set(Path::new(path), value) {
        Ok(None) => (format!("{value}, as it was"), None),
        Ok(Some(setting)) => {
            let before = setting.before().to_owned();
            (
                format!("{value} for the runs ({before} before, restored afterwards)"),
                Some(setting),
            )
        }
        Err(e) => {
            let now = fs::read_to_string(path).unwrap_or_default();
            let now = now.trim();
            (format!("{now} (cannot be set to {value}: {e:#})"), None)
        }
    }
}
