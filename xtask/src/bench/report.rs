//! What a measurement says: a table for the terminal, Markdown and JSON for the results.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use anyhow::{Context, Result};
use serde::Serialize;

use super::{
    host::Machine,
    peers::{self, PeerEntry},
    run::{Client, Doubt, Figures, Flag, Method},
    scenario::{Cell, Scenario, Unit},
    statistics::{self, Spread},
};

/// A whole measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// Version of this structure.
    pub(crate) schema: u32,
    /// When it began.
    pub(crate) date: String,
    /// Where.
    pub(crate) machine: Machine,
    /// How each run was made.
    pub(crate) method: Method,
    /// Rounds.
    pub(crate) rounds: usize,
    /// Whether it only proves that everything runs.
    pub(crate) quick: bool,
    /// The congestion control, in words.
    pub(crate) congestion: String,
    /// Priority that both sides were given.
    pub(crate) nice: Option<i32>,
    /// Whether the files were in memory.
    pub(crate) in_memory: bool,
    /// Open files a process could have.
    pub(crate) file_limit: u64,
    /// What was left out, and why.
    pub(crate) skipped: Vec<String>,
    /// The servers.
    pub(crate) peers: Vec<PeerEntry>,
    /// The results.
    pub(crate) cells: Vec<CellReport>,
}

/// What became of one run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// It gave figures.
    Figures(Box<Figures>),
    /// It gave none, for this reason.
    Failed(String),
}

/// The runs of one cell.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CellReport {
    /// Its name.
    pub(crate) name: String,
    /// The scenario it belongs to.
    pub(crate) scenario: Scenario,
    /// Connections at the same time.
    pub(crate) connections: usize,
    /// A row for each peer.
    pub(crate) rows: Vec<Row>,
}

/// The runs of one peer in one cell, and what they come to.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// The peer.
    pub(crate) peer: String,
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

    /// One line for the terminal while runs go on.
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
                let saturated = f.saturated;
                format!("{cost:.2} {label}, {rate}, saturated: {saturated}{flags}")
            }
        }
    }
}

impl CellReport {
    /// Summarises the runs of `cell`; ratios are to the base peer in the same round.
    pub(crate) fn new<'a>(
        cell: &Cell<'_>,
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
            connections: cell.connections,
            rows: rows.collect(),
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

    /// What a reader must know about this row: failures, saturation, doubts and how many runs of
    /// it they concern.
    fn notes(&self) -> String {
        let mut notes: Vec<String> = Vec::new();
        let mut saturated: BTreeMap<&str, usize> = BTreeMap::new();
        let mut doubts: BTreeMap<Doubt, Vec<Flag>> = BTreeMap::new();
        for run in &self.runs {
            match run {
                Outcome::Failed(reason) => {
                    let note = format!("FAILED: {}", reason.replace('\n', " "));
                    if !notes.contains(&note) {
                        notes.push(note);
                    }
                }
                Outcome::Figures(f) => {
                    *saturated.entry(f.saturated).or_default() += 1;
                    for flag in &f.flags {
                        doubts.entry(flag.doubt).or_default().push(*flag);
                    }
                }
            }
        }
        let all = self.runs.len();
        let of = |count: usize| match count == all {
            true => String::new(),
            false => format!(" in {count} of {all} runs"),
        };
        for (side, count) in saturated.into_iter().filter(|(side, _)| *side != "neither") {
            notes.push(format!("{side} saturated{}", of(count)));
        }
        for flags in doubts.into_values() {
            let worst = flags.iter().max_by(|a, b| a.value.total_cmp(&b.value));
            let up_to = if flags.len() > 1 { "up to: " } else { "" };
            notes.extend(worst.map(|flag| format!("{up_to}{flag}{}", of(flags.len()))));
        }
        notes.join("; ")
    }

    fn columns(&self, unit: Unit) -> [String; 8] {
        let rate = match unit {
            Unit::Request => median(self.requests_per_s, 0),
            Unit::Gigabyte => median(self.gigabits_per_s, 1),
        };
        [
            self.peer.clone(),
            spread(self.cost, 2),
            spread(self.ratio, 2),
            rate,
            median(self.p50_us, 0),
            median(self.p99_us, 0),
            format!(
                "{} / {}",
                mebibytes(self.peak_memory),
                mebibytes(self.anonymous_memory)
            ),
            self.notes(),
        ]
    }
}

fn spread(spread: Option<Spread>, digits: usize) -> String {
    match spread {
        None => "-".into(),
        Some(s) if s.count == 1 => format!("{:.digits$}", s.median),
        Some(s) => format!(
            "{:.digits$} ({:.digits$}-{:.digits$})",
            s.median, s.min, s.max
        ),
    }
}

fn median(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| "-".into(), |s| format!("{:.digits$}", s.median))
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

fn headings(unit: Unit) -> [String; 8] {
    let rate = match unit {
        Unit::Request => "req/s",
        Unit::Gigabyte => "Gbit/s",
    };
    let cost = format!("CPU {}", unit.label());
    let ratio = format!("ratio to {}", peers::BASE);
    [
        "peer",
        &cost,
        &ratio,
        rate,
        "p50 µs",
        "p99 µs",
        "MiB peak / anon",
        "notes",
    ]
    .map(str::to_owned)
}

impl Report {
    /// Runs that gave no figure.
    pub(crate) fn failures(&self) -> usize {
        self.cells
            .iter()
            .flat_map(|cell| &cell.rows)
            .map(|row| row.failed)
            .sum()
    }

    /// Prints the tables.
    pub(crate) fn print(&self) {
        for cell in &self.cells {
            let unit = cell.scenario.unit;
            println!("\n{}: {}", cell.name, cell.scenario.title);
            let rows = cell.rows.iter().map(|row| row.columns(unit));
            let rows: Vec<_> = std::iter::once(headings(unit)).chain(rows).collect();
            let width = |column: usize| {
                rows.iter()
                    .map(|row| row[column].chars().count())
                    .max()
                    .unwrap_or(0)
            };
            let widths: Vec<usize> = (0..7).map(width).collect();
            for row in &rows {
                let cells = row
                    .iter()
                    .zip(&widths)
                    .map(|(text, &width)| format!("{text:width$}"));
                println!("  {}  {}", cells.collect::<Vec<_>>().join("  "), row[7]);
            }
        }
        if self.quick {
            println!("\na quick run: it proves that everything runs, and gives no figures");
        }
    }

    /// Writes `NAME.md` and `NAME.json` into `directory`.
    pub(crate) fn save(&self, directory: &Path, name: &str) -> Result<()> {
        fs::create_dir_all(directory)?;
        let path = directory.join(name);
        let json = serde_json::to_string_pretty(self)? + "\n";
        // Not `with_extension`: a name may hold a dot.
        for (suffix, text) in [("json", json), ("md", self.markdown())] {
            let file = format!("{}.{suffix}", path.display());
            fs::write(&file, text).with_context(|| format!("cannot write '{file}'"))?;
            println!("bench: wrote '{file}'");
        }
        Ok(())
    }

    fn markdown(&self) -> String {
        let mut text = String::new();
        self.write_method(&mut text);
        for cell in &self.cells {
            let unit = cell.scenario.unit;
            let _ = writeln!(text, "\n## {}: {}\n", cell.name, cell.scenario.title);
            let _ = writeln!(text, "| {} |", headings(unit).join(" | "));
            let _ = writeln!(text, "|{}", " --- |".repeat(8));
            for row in &cell.rows {
                let columns = row.columns(unit).map(|column| column.replace('|', "\\|"));
                let _ = writeln!(text, "| {} |", columns.join(" | "));
            }
        }
        text.push_str("\n## Peers\n");
        for peer in &self.peers {
            let (name, version) = (&peer.name, &peer.version);
            let configuration = peer.configuration.trim_end();
            let _ = writeln!(text, "\n{name}: {version}\n\n```\n{configuration}\n```");
        }
        text
    }

    fn write_method(&self, text: &mut String) {
        let (m, method) = (&self.machine, &self.method);
        let quick = if self.quick {
            " (quick: these are not figures)"
        } else {
            ""
        };
        let client = match method.client {
            Client::Own => {
                "the project's load client: one thread, every status and length checked, every \
                 file compared once before a run and samples of the responses during it"
            }
            Client::Wrk => "wrk, one thread: statuses checked, lengths and contents not",
        };
        let place = if self.in_memory {
            "in memory (tmpfs)"
        } else {
            "on disk, in the page cache"
        };
        let gib = m.memory as f64 / f64::from(1 << 30);
        let (server, client_cpu) = (method.cpus.server, method.cpus.client);
        let shared = if server == client_cpu {
            "; both share one CPU"
        } else {
            ""
        };
        let _ = write!(
            text,
            "# Measured {}{quick}

- machine: {}, {} CPUs, {gib:.0} GiB; {}, Linux {}; {}
- over loopback; server (one worker) pinned to CPU {server}, client to CPU {client_cpu}{shared}
- TCP congestion control: {}
- files {place}; {} open files a process
- {} rounds, each peer once a round; {} s counted after {} s of warm-up; servers started afresh
- client: {client}
- cost: user and system time of the server's whole process tree, per response or per 10^9 bytes
- ratio: to {} in the same round; medians, with the smallest and largest value in parentheses
- a run with a wrong response, an error or a dead server has no figure
",
            self.date,
            m.cpu,
            m.cpus,
            m.distribution,
            m.kernel,
            m.rustc,
            self.congestion,
            self.file_limit,
            self.rounds,
            method.duration_s,
            method.warm_up_s,
            peers::BASE,
        );
        if let Some(nice) = self.nice {
            let _ = writeln!(
                text,
                "- both sides ran at nice {nice}, ahead of what else ran"
            );
        }
        for skipped in &self.skipped {
            let _ = writeln!(text, "- left out: {}", skipped.replace('\n', " "));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::bench::{run::Cpus, scenario};

    fn figures(cost: f64) -> Outcome {
        Outcome::Figures(Box::new(Figures {
            cost,
            user_share: 0.5,
            requests: 1000,
            requests_per_s: 1000.0,
            gigabits_per_s: 1.0,
            p50_us: Some(10.0),
            p99_us: Some(20.0),
            mean_us: Some(11.0),
            peak_memory: 3 << 20,
            anonymous_memory: 1 << 20,
            server_cpu: 1.0,
            client_cpu: Some(0.5),
            others_cpu: 0.0,
            unserved: Some(0),
            served: Some((1, 2, 3)),
            reconnects: 0,
            handshakes: None,
            verified: 10,
            io_workers: 0,
            saturated: "server",
            flags: vec![Flag {
                doubt: Doubt::Unserved,
                value: 7.0,
            }],
        }))
    }

    fn report(rows: Vec<(&str, Vec<Outcome>)>) -> Report {
        let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../bench/scenarios");
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
            },
            rounds: 2,
            quick: false,
            congestion: "cubic".into(),
            nice: None,
            in_memory: true,
            file_limit: 1024,
            skipped: vec!["h: not there".into()],
            peers: Vec::new(),
            cells: vec![CellReport::new(&cell, rows.into_iter())],
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
}
