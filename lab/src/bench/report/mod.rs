//! The report of a measurement: tables for the terminal and in Markdown, data, and a picture.
//!
//! The data, as compressed JSON, are the result; everything else is generated from them.

use std::path::Path;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::{
    estimate::Took,
    host::Machine,
    peers::{self, Found, PeerEntry},
    plan::Pace,
    run::{Figures, Method},
    scenario::{Cell, Scenario, Unit},
    statistics::{self, Spread},
};

mod files;
mod glance;
mod history;
mod markdown;
mod readme;
mod scaling;
mod standing;

pub(crate) use self::{history::compare, readme::write as write_readme};

/// A whole measurement.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    /// Version of this structure.
    pub(crate) schema: u32,
    /// The time it began.
    pub(crate) date: String,
    /// The machine.
    pub(crate) machine: Machine,
    /// The method of each run.
    pub(crate) method: Method,
    /// Rounds.
    pub(crate) rounds: usize,
    /// Whether it only proves that everything runs.
    pub(crate) quick: bool,
    /// The congestion control, in words.
    pub(crate) congestion: String,
    /// The MTU of loopback, in words, where a preset sets it.
    #[serde(default)]
    pub(crate) loopback_mtu: Option<String>,
    /// The variables of gannet in the environment of the servers.
    #[serde(default)]
    pub(crate) environment: Vec<String>,
    /// Priority that both sides were given.
    pub(crate) nice: Option<i32>,
    /// Whether the files were in memory.
    pub(crate) in_memory: bool,
    /// Maximum open files per process.
    pub(crate) file_limit: u64,
    /// What was left out, and why.
    pub(crate) skipped: Vec<String>,
    /// The servers.
    pub(crate) peers: Vec<PeerEntry>,
    /// The results.
    pub(crate) cells: Vec<CellReport>,
}

/// The beginning of a line in [`Report::skipped`] that names cells for which no time was left.
pub(crate) const LATE: &str = "not measured yet: ";

fn one() -> usize {
    1
}

/// The outcome of one run.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// It gave figures.
    Figures(Box<Figures>),
    /// It gave none, for this reason.
    Failed(String),
}

/// The runs of one cell.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct CellReport {
    /// Its name.
    pub(crate) name: String,
    /// The scenario it belongs to.
    pub(crate) scenario: Scenario,
    /// The value of the scenario's varying property.
    #[serde(default)]
    pub(crate) value: Option<u64>,
    /// Concurrent connections.
    pub(crate) connections: usize,
    /// Requests outstanding on each of them.
    #[serde(default = "one")]
    pub(crate) streams: usize,
    /// Workers of each server, if their number varies.
    #[serde(default)]
    pub(crate) workers: Option<usize>,
    /// Rounds and times; `None` for those of the report.
    #[serde(default)]
    pub(crate) pace: Option<Pace>,
    /// How long measuring it took.
    #[serde(default)]
    pub(crate) took: Option<Took>,
    /// One row per peer.
    pub(crate) rows: Vec<Row>,
}

/// The runs of one peer in one cell, and their summary.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Row {
    /// The peer.
    pub(crate) peer: String,
    /// The build that was measured: its version, and for gannet revision and digest; `None` in
    /// results that do not record it.
    #[serde(default)]
    pub(crate) build: Option<String>,
    /// CPU time, in the unit of the scenario.
    pub(crate) cost: Option<Spread>,
    /// Its ratio to [`peers::BASE`] in the same round.
    pub(crate) ratio: Option<Spread>,
    /// Responses per second.
    pub(crate) requests_per_s: Option<Spread>,
    /// Content, in 10^9 bits per second.
    pub(crate) gigabits_per_s: Option<Spread>,
    /// Median latency, in microseconds.
    pub(crate) p50_us: Option<Spread>,
    /// 99th percentile of the latency, in microseconds.
    pub(crate) p99_us: Option<Spread>,
    /// Largest peak memory, in bytes.
    pub(crate) peak_memory: u64,
    /// Largest anonymous memory, in bytes.
    pub(crate) anonymous_memory: u64,
    /// Runs without a figure.
    pub(crate) failed: usize,
    /// Each run, in the order of the rounds.
    pub(crate) runs: Vec<Outcome>,
}

impl Outcome {
    /// The figures, if there are any.
    fn figures(&self) -> Option<&Figures> {
        match self {
            Self::Figures(figures) => Some(figures),
            Self::Failed(_) => None,
        }
    }

    /// One line for the terminal during the measurement.
    pub(crate) fn line(&self, unit: Unit) -> String {
        match self {
            Self::Failed(reason) => format!("FAILED: {reason}"),
            Self::Figures(f) => {
                let (cost, label) = (f.cost, unit.label());
                let rate = match unit {
                    Unit::Request => format!("{:.0} req/s", f.requests_per_s),
                    Unit::Gigabyte => format!("{:.1} Gbit/s", f.gigabits_per_s),
                };
                let flags = f
                    .flags
                    .iter()
                    .map(|flag| format!("; {flag}"))
                    .collect::<String>();
                let saturated = &f.saturated;
                format!("{cost:.2} {label}, {rate}, saturated: {saturated}{flags}")
            }
        }
    }
}

impl CellReport {
    /// Summarises the runs of `cell`; ratios are to the base peer in the same round.
    pub(crate) fn new<'a>(
        cell: &Cell<'_>,
        pace: Pace,
        rows: impl Iterator<Item = (&'a str, Vec<Outcome>)>,
    ) -> Self {
        let rows: Vec<_> = rows.collect();
        let costs = |runs: &[Outcome]| -> Vec<Option<f64>> {
            runs.iter()
                .map(|run| run.figures().map(|f| f.cost))
                .collect()
        };
        let base = rows.iter().find(|(name, _)| *name == peers::BASE);
        let base = base.map(|(_, runs)| costs(runs)).unwrap_or_default();
        let rows = rows
            .iter()
            .map(|(name, runs)| Row::new(name, runs, &costs(runs), &base));
        Self {
            name: cell.name(),
            scenario: cell.scenario.clone(),
            value: cell.value,
            connections: cell.connections,
            streams: cell.streams,
            workers: cell.workers,
            pace: Some(pace),
            took: None,
            rows: rows.collect(),
        }
    }

    /// Records the measured build of each of `peers`.
    pub(crate) fn note_builds(&mut self, peers: &[&Found]) {
        for row in &mut self.rows {
            let found = peers.iter().find(|found| found.name == row.peer);
            row.build = found.map(|found| found.identity.clone());
        }
    }
}

impl Row {
    fn new(name: &str, runs: &[Outcome], costs: &[Option<f64>], base: &[Option<f64>]) -> Self {
        let spread = |of: fn(&Figures) -> Option<f64>| {
            Spread::of(runs.iter().filter_map(Outcome::figures).filter_map(of))
        };
        let most = |of: fn(&Figures) -> u64| {
            runs.iter()
                .filter_map(Outcome::figures)
                .map(of)
                .max()
                .unwrap_or(0)
        };
        Self {
            peer: name.to_owned(),
            build: None,
            cost: spread(|f| Some(f.cost)),
            ratio: statistics::ratios(costs, base),
            requests_per_s: spread(|f| Some(f.requests_per_s)),
            gigabits_per_s: spread(|f| Some(f.gigabits_per_s)),
            p50_us: spread(|f| f.p50_us),
            p99_us: spread(|f| f.p99_us),
            peak_memory: most(|f| f.peak_memory),
            anonymous_memory: most(|f| f.anonymous_memory),
            failed: runs.iter().filter(|run| run.figures().is_none()).count(),
            runs: runs.to_vec(),
        }
    }
}

impl Report {
    /// Continues this result under the conditions of `now`.
    ///
    /// # Errors
    ///
    /// The conditions differ in a way that affects figures.
    pub(crate) fn go_on(mut self, now: &Self) -> Result<Self> {
        let circumstances = |report: &Self| {
            let (machine, method) = (&report.machine, &report.method);
            let (cpu, kernel) = (machine.cpu.clone(), machine.kernel.clone());
            let files = (report.in_memory, report.nice, report.quick);
            let mtu = report.loopback_mtu.as_deref();
            let mtu = mtu.and_then(|words| words.split([',', ' ']).next());
            let mtu = mtu.map(str::to_owned);
            let set = (mtu, report.environment.clone());
            (
                cpu,
                kernel,
                files,
                method.cpus,
                method.client,
                method.ktls,
                set,
            )
        };
        let (before, after) = (circumstances(&self), circumstances(now));
        ensure!(
            before == after,
            "the result was measured otherwise, use another name: {before:?}, now {after:?}"
        );
        self.skipped.retain(|line| !line.starts_with(LATE));
        for line in &now.skipped {
            self.leave_out(line.clone());
        }
        Ok(self)
    }

    /// Whether `what`, a cell or a peer, was left out for a reason of its own.
    pub(crate) fn leaves_out(&self, what: &str) -> bool {
        let reason_of =
            |line: &String| line.strip_prefix(what).is_some_and(|r| r.starts_with(": "));
        self.skipped.iter().any(reason_of)
    }

    /// Records that something was left out, and why.
    pub(crate) fn leave_out(&mut self, what: String) {
        if !self.skipped.contains(&what) {
            self.skipped.push(what);
        }
    }

    /// Whether the cell `name` was measured with all of `peers` in `rounds` rounds, without
    /// failures.
    pub(crate) fn has(&self, name: &str, peers: &[&str], rounds: usize) -> bool {
        let Some(cell) = self.cells.iter().find(|cell| cell.name == name) else {
            return false;
        };
        let whole = |row: &&Row| row.failed == 0 && row.runs.len() >= rounds;
        peers.iter().all(|peer| {
            let mut rows = cell.rows.iter().filter(whole);
            rows.any(|row| row.peer == *peer)
        })
    }

    /// The results in `directory`; unreadable ones are skipped.
    pub(crate) fn all(directory: &Path) -> Vec<Self> {
        let results = history::read_all(directory, "");
        results.into_iter().map(|earlier| earlier.report).collect()
    }

    /// Adds a cell in the order of the scenarios, replacing an earlier one of that name.
    pub(crate) fn add(&mut self, cell: CellReport) {
        self.cells.retain(|known| known.name != cell.name);
        self.cells.push(cell);
        let order = |cell: &CellReport| {
            let scenario = &cell.scenario;
            let load = &scenario.load;
            // In the order of the scenario: by value, then by connections.
            let at = (cell.connections, cell.streams);
            let shapes = load
                .connections
                .iter()
                .enumerate()
                .map(|(index, connections)| {
                    (*connections, load.streams.get(index).copied().unwrap_or(1))
                });
            let shape = shapes.into_iter().position(|shape| shape == at);
            (scenario.rank, scenario.name.clone(), cell.value, shape)
        };
        self.cells.sort_by_key(order);
    }

    /// The pace of `cell`.
    pub(super) fn pace_of(&self, cell: &CellReport) -> Pace {
        cell.pace.unwrap_or(Pace {
            rounds: self.rounds,
            duration_s: self.method.duration_s,
            warm_up_s: self.method.warm_up_s,
        })
    }

    /// Runs without a figure.
    pub(crate) fn failures(&self) -> usize {
        self.cells
            .iter()
            .flat_map(|cell| &cell.rows)
            .map(|row| row.failed)
            .sum()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::bench::{
        run::{Client, Cpus, Doubt, Flag},
        scenario,
    };

    pub(in crate::bench) fn figures(cost: f64) -> Outcome {
        Outcome::Figures(Box::new(Figures {
            cost,
            user_share: 0.5,
            requests: 1000,
            requests_per_s: 1000.0,
            gigabits_per_s: 1.0,
            p50_us: Some(10.0),
            p99_us: Some(20.0),
            latency_us: vec![(0.5, 10.0), (0.99, 20.0)],
            mean_us: Some(11.0),
            last_us: None,
            peak_memory: 3 << 20,
            anonymous_memory: 1 << 20,
            server_cpu: 1.0,
            client_cpu: Some(0.5),
            others_cpu: 0.0,
            unserved: Some(0),
            served: Some((1, 2, 3)),
            reconnects: 0,
            handshakes: None,
            coded: None,
            verified: 10,
            io_workers: 0,
            saturated: "server".into(),
            flags: vec![Flag {
                doubt: Doubt::Unserved,
                value: 7.0,
            }],
        }))
    }

    const PACE: Pace = Pace {
        rounds: 2,
        duration_s: 1.0,
        warm_up_s: 0.0,
    };

    pub(in crate::bench) fn report(rows: Vec<(&str, Vec<Outcome>)>) -> Report {
        let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let scenarios = scenario::read_all(&directory).expect("the project's own");
        let cell = scenarios[0].cells().next().expect("has a cell");
        let cpus = Cpus {
            server: 0,
            client: 1,
        };
        Report {
            schema: 1,
            date: "2000-01-01".into(),
            machine: Machine::read(),
            method: Method {
                duration_s: 1.0,
                warm_up_s: 0.0,
                cpus,
                client: Client::Own,
                ktls: false,
            },
            rounds: 2,
            quick: false,
            congestion: "cubic".into(),
            loopback_mtu: None,
            environment: Vec::new(),
            nice: None,
            in_memory: true,
            file_limit: 1024,
            skipped: vec!["h: not there".into()],
            peers: Vec::new(),
            cells: vec![CellReport::new(&cell, PACE, rows.into_iter())],
        }
    }

    #[test]
    fn a_failed_run_is_never_a_figure() {
        let failed = || Outcome::Failed("status 404 (expected 200)".into());
        let report = report(vec![
            ("nginx", vec![figures(4.0), failed()]),
            ("gannet-archive", vec![figures(2.0), figures(1.0)]),
            ("gannet-directory", vec![failed(), failed()]),
        ]);
        assert_eq!(report.failures(), 3);
        let rows = &report.cells[0].rows;
        assert_eq!(rows[0].cost.expect("one run").count, 1);
        // The second round has no base, so it has no ratio.
        let ratio = rows[1].ratio.expect("the first round has both");
        assert_eq!((ratio.median, ratio.count), (0.5, 1));
        assert_eq!(
            (rows[2].cost, rows[2].ratio, rows[2].peak_memory),
            (None, None, 0)
        );
        let text = report.markdown();
        assert!(
            text.contains("| gannet-directory | - | - | - | - | - |"),
            "{text}"
        );
        assert!(text.contains("FAILED: status 404 (expected 200)"), "{text}");
    }

    #[test]
    fn doubts_are_shown_and_the_json_is_whole() {
        let report = report(vec![("nginx", vec![figures(4.0), figures(5.0)])]);
        let text = report.markdown();
        assert!(
            text.contains("server saturated; up to: 7 connections unserved"),
            "{text}"
        );
        assert!(text.contains("4.50 (4.00-5.00)") && text.contains("left out: h: not there"));
        let json = serde_json::to_value(&report).expect("serialises");
        assert_eq!(
            json["cells"][0]["rows"][0]["runs"][1]["figures"]["cost"],
            5.0
        );
    }

    #[test]
    fn a_result_that_was_measured_otherwise_is_not_gone_on_with() {
        let mut earlier = report(vec![("nginx", vec![figures(4.0), figures(5.0)])]);
        earlier.skipped = vec![format!("{LATE}site-mix-c1"), "h: not there".into()];
        let now = report(Vec::new());
        let whole = earlier.clone().go_on(&now).expect("the same machine");
        assert_eq!(whole.skipped, ["h: not there"]);
        assert_eq!(whole.cells[0].rows.len(), 1);
        let mut other = earlier.clone();
        other.loopback_mtu = Some("1500, as it was".into());
        assert!(other.go_on(&now).is_err());
        let mut other = earlier.clone();
        other.environment = vec!["GANNET_SANDBOX=off".into()];
        assert!(other.go_on(&now).is_err());
        earlier.method.ktls = true;
        assert!(earlier.go_on(&now).is_err());
    }

    #[test]
    fn a_cell_that_is_measured_again_replaces_the_first_and_stands_in_order() {
        let mut all = report(vec![("nginx", vec![figures(4.0), figures(4.0)])]);
        let mut cell = |connections, cost| {
            let mut cell = report(vec![("nginx", vec![figures(cost)])]).cells.remove(0);
            cell.connections = connections;
            cell.name = format!("plaintext-c{connections}");
            all.add(cell);
        };
        cell(500, 3.0);
        cell(64, 3.0);
        cell(500, 2.0);
        let found: Vec<_> = all.cells.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(found, ["plaintext-c1", "plaintext-c64", "plaintext-c500"]);
        let cost = all.cells[2].rows[0].cost.expect("one run");
        assert_eq!(cost.median, 2.0);
        assert!(all.has("plaintext-c64", &[], 1) && !all.has("plaintext-c65", &[], 1));
    }
}
