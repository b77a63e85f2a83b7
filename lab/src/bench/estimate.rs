//! Estimates how long cells will take: from earlier results on such a machine, or else by a guess.
//!
//! Every cell of a result records how long it took. The time that a run takes besides its warm-up
//! and counted time (starting and stopping a server, comparing the files, opening connections, a
//! download that exceeds its time) is reused for the same cell. For a cell that was never measured
//! here it is guessed from round figures, corrected by the error of the guesses for measured cells.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{
    content,
    host::Machine,
    plan::{Job, Pace},
    programs::Program,
    report::{CellReport, Report},
    run::Client,
    scenario::{Cell, ContentSpec, Protocol, Sizes},
    sites::KEPT,
    statistics::Spread,
};

/// Time to start and stop a server, and to settle, in seconds.
const START: f64 = 0.4;
/// Bytes per second fetched and compared, in clear text and over TLS.
const CHECKED: (f64, f64) = (0.8e9, 0.4e9);
/// Bytes per second sent by one core, in clear text and over TLS.
const SENT: (f64, f64) = (2.0e9, 0.8e9);
/// Bytes per second at which sites are generated, and incompressible files are packed.
const MADE: f64 = 0.3e9;
/// Time to generate and pack one more file, in seconds.
const FILE_MADE: f64 = 0.0003;
/// Time for a curl process to fetch a file, in seconds.
const CURL: f64 = 0.015;
/// Connections opened per second.
const OPENED: f64 = 10_000.0;
/// Measured cells needed before guesses for others are corrected.
const LEARNT_MIN: usize = 3;
/// Limits of the correction.
const RIGHT: (f64, f64) = (0.3, 5.0);

/// The time that measuring a cell took.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Took {
    /// Generating the site and its archive, in seconds; 0 if they already existed.
    pub(crate) made_s: f64,
    /// All runs of all peers, in seconds.
    pub(crate) runs_s: f64,
    /// The number of runs.
    pub(crate) runs: usize,
}

/// The times of earlier measurements.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// By cell name: seconds of a run besides its warm-up and counted time.
    besides: HashMap<String, f64>,
    /// Seconds that generating content took.
    made: Vec<(ContentSpec, f64)>,
    /// The ratio of actual to guessed times on this machine.
    right: Option<f64>,
}

impl Past {
    /// Collects the times in `reports` of machines like `machine`; the latest takes precedence.
    pub(crate) fn of(reports: &[Report], machine: &Machine) -> Self {
        let alike = |report: &&Report| {
            let other = &report.machine;
            !report.quick && (&other.cpu, other.cpus) == (&machine.cpu, machine.cpus)
        };
        let mut reports: Vec<&Report> = reports.iter().filter(alike).collect();
        reports.sort_by(|a, b| a.date.cmp(&b.date));
        let mut past = Self::default();
        let mut factors: HashMap<&str, f64> = HashMap::new();
        for report in reports {
            for cell in &report.cells {
                if let Some(factor) = past.learn(cell, report.pace_of(cell), report.method.client) {
                    factors.insert(&cell.name, factor);
                }
            }
        }
        if factors.len() >= LEARNT_MIN {
            let middle = Spread::of(factors.into_values()).map(|s| s.median);
            past.right = middle.map(|factor| factor.clamp(RIGHT.0, RIGHT.1));
        }
        past
    }

    /// Records the times in `report`; returns the ratio of actual to guessed time, if known.
    fn learn(&mut self, report: &CellReport, pace: Pace, client: Client) -> Option<f64> {
        let took = report.took.filter(|took| took.runs > 0)?;
        let mut cells = report.scenario.cells();
        let cell = cells.find(|cell| cell.name() == report.name)?;
        if took.made_s > 0.0 {
            let spec = &cell.content;
            self.made.retain(|(known, _)| known != spec);
            self.made.push((spec.clone(), took.made_s));
        }
        let a_run = took.runs_s / took.runs as f64;
        let besides = (a_run - pace.warm_up_s - pace.duration_s).max(0.0);
        self.besides.insert(report.name.clone(), besides);
        let peers = took.runs as f64 / pace.rounds.max(1) as f64;
        Some(took.runs_s / (peers * guess_runs(&cell, pace, client, false)))
    }

    /// Seconds that `peers` servers will take in `job`, once its site exists.
    fn runs_s(&self, job: &Job<'_>, peers: usize, client: Client, quick: bool) -> f64 {
        let pace = job.pace;
        match self.besides.get(&job.cell.name()) {
            Some(besides) if !quick => {
                let a_run = besides + pace.warm_up_s + pace.duration_s;
                (peers * pace.rounds) as f64 * a_run
            }
            _ => {
                let right = self.right.unwrap_or(1.0);
                peers as f64 * right * guess_runs(&job.cell, pace, client, quick)
            }
        }
    }

    /// Seconds that generating and packing the site of `cell` will take.
    fn made_s(&self, cell: &Cell<'_>, quick: bool) -> f64 {
        let known = self.made.iter().find(|(spec, _)| *spec == cell.content);
        match known {
            Some((_, seconds)) if !quick => *seconds,
            _ => guess_made(cell, quick),
        }
    }
}

/// Seconds that each of `jobs` will take, with as many `peers` as that says.
pub(crate) fn estimates(
    jobs: &[Job<'_>],
    peers: impl Fn(&Job<'_>) -> usize,
    client: Client,
    quick: bool,
    past: &Past,
) -> Vec<f64> {
    // Sites are kept as long as they are small, as in `Sites`.
    let mut kept: Vec<&ContentSpec> = Vec::new();
    let mut seconds = Vec::new();
    for job in jobs {
        let spec = &job.cell.content;
        let mut made = 0.0;
        if !kept.contains(&spec) {
            made = past.made_s(&job.cell, quick);
            let size = |spec: &&ContentSpec| content::size_of(spec, quick);
            if kept.iter().map(size).sum::<u64>() + size(&spec) > KEPT {
                kept.clear();
            }
            kept.push(spec);
        }
        seconds.push(made + past.runs_s(job, peers(job), client, quick));
    }
    seconds
}

/// Seconds that one server's runs of `cell` will take; a guess from round figures of one present-day
/// machine.
fn guess_runs(cell: &Cell<'_>, pace: Pace, client: Client, quick: bool) -> f64 {
    let load = &cell.scenario.load;
    let (files, bytes) = content::extent_of(&cell.content, quick);
    let (files, bytes) = (files as f64, bytes as f64);
    let of = |(clear, tls): (f64, f64)| if load.tls.is_some() { tls } else { clear };
    let whole_seconds = matches!(load.client, Some(Program::Wrk | Program::Ab | Program::Oha))
        || load.client.is_none() && client == Client::Wrk;
    let download = matches!(
        load.client,
        Some(Program::Curl | Program::Go | Program::Gannet)
    );
    // At least one response must arrive.
    let least = match (whole_seconds, download) {
        (true, _) => 1.0,
        (_, true) => cell.connections as f64 * bytes / of(SENT),
        _ => 0.0,
    };
    let timed = |time: f64| if time > 0.0 { time.max(least) } else { 0.0 };
    let opening = (cell.connections * cell.streams) as f64 / OPENED;
    let run = START + timed(pace.warm_up_s) + timed(pace.duration_s) + 2.0 * opening;
    let curls = load.protocol == Protocol::H2 && load.tls.is_none();
    let each = if curls { CURL } else { 1.0 / 30_000.0 };
    let check = bytes / of(CHECKED) + files * each;
    // Large files are compared in the first round only.
    let checks = match bytes / files > content::LARGE as f64 || curls {
        true => 1,
        false => pace.rounds,
    };
    run * pace.rounds as f64 + check * checks as f64
}

/// Seconds that generating and packing the site of `cell` will take; a guess.
fn guess_made(cell: &Cell<'_>, quick: bool) -> f64 {
    let (files, bytes) = content::extent_of(&cell.content, quick);
    let (files, bytes) = (files as f64, bytes as f64);
    match &cell.content.sizes {
        Sizes::Text { .. } => 0.0,
        _ if cell.content.sparse => 0.0,
        _ => bytes / MADE + files * FILE_MADE,
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::bench::{
        plan::{
            self,
            tests::{options, presets, scenarios},
        },
        report::tests as reports,
    };

    /// Seconds for a single cell with `peers` servers, given `past`.
    fn seconds(name: &str, peers: usize, past: &Past, rounds: &str) -> f64 {
        let scenarios = scenarios();
        let options = options(&["--only", name, "--rounds", rounds]);
        let jobs = plan::jobs(&options, &scenarios, &presets()).expect("good");
        assert_eq!(jobs.len(), 1);
        let all = estimates(&jobs, |_| peers, Client::Own, false, past);
        all[0]
    }

    /// A report on a cell that took this long.
    fn noted(name: &str, took: Took) -> Report {
        let mut report = reports::report(Vec::new());
        let scenarios = scenarios();
        let mut cells = scenarios.iter().flat_map(|s| s.cells());
        let cell = cells.find(|cell| cell.name() == name).expect("is a cell");
        let pace = Pace {
            rounds: 2,
            duration_s: 1.0,
            warm_up_s: 0.5,
        };
        let mut cell = CellReport::new(&cell, pace, std::iter::empty());
        cell.took = Some(took);
        report.cells = vec![cell];
        report
    }

    #[test]
    fn guesses_grow_with_what_there_is_to_do() {
        let none = Past::default();
        let plain = seconds("plaintext-c64", 2, &none, "5");
        // Five rounds of 4 s after 1 s, for two servers, plus overhead.
        assert!(plain > 50.0 && plain < 60.0, "{plain}");
        assert_eq!(seconds("plaintext-c64", 4, &none, "5"), 2.0 * plain);
        let (many, few) = ("site-size-n1000000-c64", "site-size-n10-c64");
        assert!(seconds(many, 2, &none, "5") > seconds(few, 2, &none, "5"));
    }

    #[test]
    fn a_site_is_made_once_while_it_is_kept() {
        let scenarios = scenarios();
        let of = |names: &str| {
            let options = options(&["--only", names]);
            let jobs = plan::jobs(&options, &scenarios, &presets()).expect("good");
            estimates(&jobs, |_| 1, Client::Own, false, &Past::default())
        };
        let mix = of("site-mix-c1,site-mix-c100");
        assert!(mix[0] > mix[1], "{mix:?}");
        // Files of 1 GiB are not kept once another site is served.
        let big = of("big-file-c1,https-site-mix-c1,https-big-file-c1");
        let alone = of("https-big-file-c1");
        assert_eq!(big.last(), alone.last());
    }

    #[test]
    fn what_a_cell_took_is_what_it_will_take() {
        let took = Took {
            made_s: 7.0,
            runs_s: 8.0,
            runs: 4,
        };
        let name = "site-mix-c100";
        let report = noted(name, took);
        let past = Past::of(slice::from_ref(&report), &report.machine);
        // A run took 2 s, of which 1.5 s were nominal: with another nominal time, the difference is
        // the same.
        let found = seconds(name, 3, &past, "10");
        assert!((found - (7.0 + 30.0 * (0.5 + 5.0))).abs() < 1e-9, "{found}");
        let mut elsewhere = report.machine.clone();
        elsewhere.cpu = "another".into();
        let strange = Past::of(slice::from_ref(&report), &elsewhere);
        assert_ne!(seconds(name, 3, &strange, "10"), found);
        let mut later = noted(
            name,
            Took {
                runs_s: 16.0,
                ..took
            },
        );
        later.date = "2001-01-01".into();
        let both = Past::of(&[later, report.clone()], &report.machine);
        assert!(seconds(name, 3, &both, "10") > found, "the latest counts");
    }

    #[test]
    fn other_guesses_are_put_right_by_what_was_measured() {
        let guess = |name: &str| seconds(name, 2, &Past::default(), "2");
        let names = ["plaintext-c1", "plaintext-c64", "plaintext-c500"];
        let slow = |name: &&str| {
            let runs_s = 100.0;
            noted(
                name,
                Took {
                    made_s: 0.0,
                    runs_s,
                    runs: 2,
                },
            )
        };
        let reports: Vec<_> = names.iter().map(slow).collect();
        let past = Past::of(&reports, &reports[0].machine);
        let other = "many-connections-c2048";
        assert!(seconds(other, 2, &past, "2") > 2.0 * guess(other));
        let few = Past::of(&reports[..2], &reports[0].machine);
        assert_eq!(seconds(other, 2, &few, "2"), guess(other));
    }
}
