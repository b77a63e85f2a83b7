//! Plans what to measure, how often and for how long, and estimates the total time.
//!
//! A preset is a file in `lab/presets`: groups of scenarios, each with its own peers, rounds and
//! times. Without a preset, there is a single group with everything.

use std::{collections::HashSet, fs, path::Path, time::Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::{
    options::Options,
    peers,
    scenario::{Cell, Scenario},
};

/// Rounds and times of one cell.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Pace {
    /// Rounds in which every peer runs once.
    pub(crate) rounds: usize,
    /// Counted time of a run, in seconds.
    pub(crate) duration_s: f64,
    /// Warm-up before it, in seconds.
    pub(crate) warm_up_s: f64,
}

/// A cell, and the peers to measure in it.
#[derive(Clone, Debug)]
pub(crate) struct Job<'a> {
    /// The cell.
    pub(crate) cell: Cell<'a>,
    /// Names of peers.
    pub(crate) peers: Vec<String>,
    /// Rounds and times.
    pub(crate) pace: Pace,
}

/// A file of `lab/presets`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Preset {
    /// The MTU of loopback for the runs; unchanged if there is none.
    #[serde(default)]
    loopback_mtu: Option<u32>,
    /// In the order of measurement.
    group: Vec<Group>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Group {
    /// Scenarios or cells.
    only: Vec<String>,
    peers: Vec<String>,
    rounds: usize,
    duration: f64,
    warm_up: f64,
}

/// The jobs selected by `options`, in order.
pub(crate) fn jobs<'a>(
    options: &Options,
    scenarios: &'a [Scenario],
    presets: &Path,
) -> Result<Vec<Job<'a>>> {
    let all: Vec<Cell<'a>> = scenarios.iter().flat_map(Scenario::cells).collect();
    for name in &options.only {
        ensure!(
            all.iter().any(|cell| is_named(cell, name)),
            "--only {name}: no such scenario or cell (see --list)"
        );
    }
    let jobs = match &options.preset {
        None => default_jobs(options, &all),
        Some(name) => preset_jobs(options, &all, &read(presets, name)?, name)?,
    };
    let wanted = |job: &Job<'_>| options.only.is_empty() || is_any(&job.cell, &options.only);
    let jobs: Vec<_> = jobs.into_iter().filter(wanted).collect();
    let jobs = match options.workers.is_empty() {
        true => jobs,
        false => scaled(&jobs, &options.workers)?,
    };
    ensure!(!jobs.is_empty(), "nothing to measure: see --list");
    Ok(jobs)
}

/// The MTU that the preset of `options` sets for its runs, if any.
pub(crate) fn loopback_mtu(options: &Options, presets: &Path) -> Result<Option<u32>> {
    match &options.preset {
        None => Ok(None),
        Some(name) => Ok(read(presets, name)?.loopback_mtu),
    }
}

/// Each of `jobs` with each of these numbers of workers.
fn scaled<'a>(jobs: &[Job<'a>], workers: &[usize]) -> Result<Vec<Job<'a>>> {
    let mut all = Vec::new();
    for job in jobs {
        ensure!(
            job.cell.scenario.takes_threads(),
            "{}: its client has one thread; --workers takes scenarios of wrk and h2load",
            job.cell.name()
        );
        all.extend(workers.iter().map(|workers| {
            let mut job = job.clone();
            job.cell.workers = Some(*workers);
            job
        }));
    }
    Ok(all)
}

fn is_named(cell: &Cell<'_>, name: &str) -> bool {
    name == cell.scenario.name || name == cell.name()
}

fn is_any(cell: &Cell<'_>, names: &[String]) -> bool {
    names.iter().any(|name| is_named(cell, name))
}

fn default_jobs<'a>(options: &Options, all: &[Cell<'a>]) -> Vec<Job<'a>> {
    let mut seen = HashSet::new();
    let wanted = |cell: &&Cell<'a>| {
        if !options.only.is_empty() {
            return is_any(cell, &options.only);
        }
        // A quick run measures one cell of each scenario.
        let first = seen.insert(cell.scenario.name.clone());
        !cell.scenario.on_demand && (first || !options.quick)
    };
    let cells = all.iter().filter(wanted);
    let job = |cell: &Cell<'a>| Job {
        cell: cell.clone(),
        peers: options.peers.clone(),
        pace: options.pace(None),
    };
    cells.map(job).collect()
}

fn read(directory: &Path, name: &str) -> Result<Preset> {
    let path = directory.join(format!("{name}.toml"));
    let shown = path.display();
    let text = fs::read_to_string(&path).with_context(|| format!("--preset {name}: '{shown}'"))?;
    toml::from_str(&text).with_context(|| format!("preset '{shown}'"))
}

fn preset_jobs<'a>(
    options: &Options,
    all: &[Cell<'a>],
    preset: &Preset,
    name: &str,
) -> Result<Vec<Job<'a>>> {
    let mut jobs: Vec<Job<'a>> = Vec::new();
    for group in &preset.group {
        for name in &group.only {
            ensure!(
                all.iter().any(|cell| is_named(cell, name)),
                "the preset names '{name}', which is neither a scenario nor a cell"
            );
        }
        let known = |peer: &String| peers::by_name(peer).is_some();
        let stranger = group.peers.iter().find(|peer| !known(peer));
        ensure!(
            stranger.is_none(),
            "preset {name}: '{stranger:?}' is not a peer"
        );
        let peers = match options.peers_given {
            true => options.peers.clone(),
            false => {
                let given = options.peer_binaries.iter().map(|(name, _)| name.clone());
                group.peers.iter().cloned().chain(given).collect()
            }
        };
        let pace = options.pace(Some(Pace {
            rounds: group.rounds,
            duration_s: group.duration,
            warm_up_s: group.warm_up,
        }));
        for cell in all.iter().filter(|cell| is_any(cell, &group.only)) {
            if !jobs.iter().any(|job| job.cell.name() == cell.name()) {
                jobs.push(Job {
                    cell: cell.clone(),
                    peers: peers.clone(),
                    pace,
                });
            }
        }
    }
    Ok(jobs)
}

/// Tracks the progress of a measurement, and how long it will still take.
pub(crate) struct Clock {
    begin: Instant,
    budget_s: Option<f64>,
    estimates: Vec<f64>,
    /// The cell begun last, and when.
    cell: (usize, Instant),
    begun: usize,
    /// Expected and actual seconds of the finished cells.
    past: (f64, f64),
}

impl Clock {
    /// Starts now, with the expected seconds of each cell, and prints them; `budget` is in minutes.
    pub(crate) fn new(estimates: Vec<f64>, budget: Option<f64>) -> Self {
        let (count, sum) = (estimates.len(), estimates.iter().sum());
        println!("bench: {count} cells to measure, about {}", words(sum));
        Self {
            begin: Instant::now(),
            budget_s: budget.map(|minutes| minutes * 60.0),
            estimates,
            cell: (0, Instant::now()),
            begun: 0,
            past: (0.0, 0.0),
        }
    }

    /// Begins the next cell, unless there is no time left for it.
    pub(crate) fn begin(&mut self, name: &str) -> bool {
        let index = self.begun;
        self.begun += 1;
        self.cell = (index, Instant::now());
        let (pace, elapsed) = (self.pace(), self.begin.elapsed().as_secs_f64());
        let this = self.estimates[index] * pace;
        if self.budget_s.is_some_and(|budget| elapsed + this > budget) {
            println!(
                "bench: {name}: no time left for the {} it takes",
                words(this)
            );
            return false;
        }
        let left = self.estimates[index..].iter().sum::<f64>() * pace;
        let (number, count) = (index + 1, self.estimates.len());
        println!(
            "bench: {name}: cell {number} of {count}, about {} left",
            words(left)
        );
        true
    }

    /// Ends the current cell.
    pub(crate) fn end(&mut self) {
        let (index, begin) = self.cell;
        self.past.0 += self.estimates[index];
        self.past.1 += begin.elapsed().as_secs_f64();
    }

    /// The ratio of actual to expected time so far, once known.
    fn pace(&self) -> f64 {
        let (expected, took) = self.past;
        match expected > 30.0 {
            true => (took / expected).clamp(0.2, 20.0),
            false => 1.0,
        }
    }
}

/// `seconds` in words.
pub(crate) fn words(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::bench::{programs::Program, scenario};

    pub(in crate::bench) fn options(arguments: &[&str]) -> Options {
        let mut parser = lexopt::Parser::from_args(arguments);
        let options = Options::parse(&mut parser).expect("good");
        options.expect("no --help")
    }

    pub(in crate::bench) fn scenarios() -> Vec<Scenario> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        scenario::read_all(&directory).expect("the project's own")
    }

    pub(in crate::bench) fn presets() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("presets")
    }

    fn names(jobs: &[Job<'_>]) -> Vec<String> {
        jobs.iter().map(|job| job.cell.name()).collect()
    }

    #[test]
    fn the_reference_has_every_cell_that_is_not_on_demand() {
        let scenarios = scenarios();
        let found = jobs(&options(&["--preset", "reference"]), &scenarios, &presets());
        let found = names(&found.expect("good"));
        let all = scenarios.iter().filter(|s| !s.on_demand);
        for cell in all.flat_map(Scenario::cells) {
            assert!(found.contains(&cell.name()), "{}", cell.name());
        }
        let distinct: HashSet<_> = found.iter().collect();
        assert_eq!(distinct.len(), found.len());
    }

    #[test]
    fn the_preset_arena_has_wrk_and_packets_as_long_as_on_ethernet() {
        let mtu = |preset| loopback_mtu(&options(&["--preset", preset]), &presets()).expect("good");
        assert_eq!((mtu("arena"), mtu("reference")), (Some(1500), None));
        let scenarios = scenarios();
        let found = jobs(&options(&["--preset", "arena"]), &scenarios, &presets());
        let found = found.expect("good");
        let loads = found.iter().map(|job| &job.cell.scenario.load);
        let mut h1 = loads.filter(|load| load.protocol == scenario::Protocol::H1);
        assert!(h1.all(|load| load.client == Some(Program::Wrk) && !load.codings.is_empty()));
    }

    #[test]
    fn flags_go_before_the_preset_and_only_chooses_from_it() {
        let scenarios = scenarios();
        let options = options(&[
            "--preset",
            "reference",
            "--rounds",
            "7",
            "--peers",
            "nginx",
            "--only",
            "plaintext",
        ]);
        let jobs = jobs(&options, &scenarios, &presets()).expect("good");
        assert_eq!(
            names(&jobs),
            ["plaintext-c1", "plaintext-c64", "plaintext-c500"]
        );
        for job in &jobs {
            assert_eq!((job.pace.rounds, job.peers.len()), (7, 1));
        }
    }

    #[test]
    fn a_quick_run_has_one_cell_of_each_scenario() {
        let scenarios = scenarios();
        let found = jobs(&options(&["--quick"]), &scenarios, &presets()).expect("good");
        let usual = scenarios.iter().filter(|s| !s.on_demand).count();
        assert_eq!(found.len(), usual);
        let named = jobs(
            &options(&["--quick", "--only", "plaintext"]),
            &scenarios,
            &presets(),
        );
        assert_eq!(named.expect("good").len(), 3);
    }

    #[test]
    fn a_cell_is_measured_with_each_number_of_workers() {
        let scenarios = scenarios();
        let found = |only| {
            let options = options(&["--only", only, "--workers", "1,1"]);
            jobs(&options, &scenarios, &presets())
        };
        let names = names(&found("plaintext-c64").expect("good"));
        assert_eq!(names, ["plaintext-c64-w1", "plaintext-c64-w1"]);
        assert!(found("h3-plaintext").is_err() && found("oha-plaintext").is_err());
        assert!(found("https-site-mix-saturated").is_ok());
    }

    #[test]
    fn what_nobody_has_is_refused() {
        let scenarios = scenarios();
        for arguments in [["--only", "nothing"], ["--preset", "nothing"]] {
            let found = jobs(&options(&arguments), &scenarios, &presets());
            assert!(found.is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn a_cell_that_does_not_fit_the_budget_is_not_begun() {
        let mut clock = Clock::new(vec![20.0, 90.0, 20.0], Some(1.0));
        assert!(clock.begin("a"));
        clock.end();
        assert!(!clock.begin("b"));
        assert!(clock.begin("c"));
        let mut clock = Clock::new(vec![1e9], None);
        assert!(clock.begin("a"));
    }

    #[test]
    fn the_time_that_is_left_follows_that_which_was_taken() {
        let mut clock = Clock::new(vec![40.0, 40.0], None);
        assert_eq!(clock.pace(), 1.0);
        clock.past = (40.0, 80.0);
        assert_eq!(clock.pace(), 2.0);
    }
}
