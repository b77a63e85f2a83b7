//! The tables: on the terminal after a measurement, and in Markdown.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use super::{
    CellReport, Outcome, Report, Row,
    files::{DATA, PICTURE},
    glance, standing,
};
use crate::bench::{
    peers,
    plan::Pace,
    run::{Client, CodedLen, Doubt, Figures, Flag},
    scenario::{Protocol, Unit},
    statistics::Spread,
};

/// The build in results that do not record builds.
const UNNOTED: &str = "a build that was not noted";

impl Row {
    /// Notes for the reader: failures, saturation, doubts, and how many runs they concern.
    pub(super) fn notes(&self, unit: Unit) -> String {
        let mut notes: Vec<String> = Vec::new();
        if unit == Unit::Gigabyte {
            notes.extend(self.shares());
        }
        notes.extend(self.last());
        notes.extend(self.coded());
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
                    *saturated.entry(f.saturated.as_str()).or_default() += 1;
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

    /// The time of the last response of a burst, in words.
    fn last(&self) -> Option<String> {
        let values = self.runs.iter().filter_map(Outcome::figures);
        let last = Spread::of(values.filter_map(|f| f.last_us))?;
        Some(format!(
            "last of a burst after {} µs",
            spread(Some(last), 0)
        ))
    }

    /// The content of a response as sent, in words.
    fn coded(&self) -> Option<String> {
        let median = |of: fn(CodedLen) -> f64| {
            let values = self.runs.iter().filter_map(Outcome::figures);
            Spread::of(values.filter_map(|f| f.coded).map(of)).map(|s| s.median)
        };
        let (len, share) = (median(|it| it.len)?, median(|it| it.share)?);
        Some(format!("{share:.3} of the files, {:.1} KB each", len / 1e3))
    }

    /// CPU shares of both sides of a download, in words.
    fn shares(&self) -> Option<String> {
        let share = |of: fn(&Figures) -> Option<f64>| {
            let values = self.runs.iter().filter_map(Outcome::figures).filter_map(of);
            Spread::of(values).map(|s| format!("{:.0} %", s.median * 100.0))
        };
        let server = share(|f| Some(f.server_cpu))?;
        Some(match share(|f| f.client_cpu) {
            Some(client) => format!("server {server}, client {client} of a CPU"),
            None => format!("server {server} of a CPU"),
        })
    }

    pub(super) fn columns(&self, unit: Unit) -> [String; 8] {
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
            self.notes(unit),
        ]
    }
}

/// What was left out, one line per reason.
fn left_out(skipped: &[String]) -> Vec<String> {
    let mut reasons: Vec<(String, Vec<&str>)> = Vec::new();
    for what in skipped {
        let (name, reason) = what.split_once(": ").unwrap_or((what, ""));
        let reason = reason.replace('\n', " ");
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) if !reason.is_empty() => names.push(name),
            _ => reasons.push((reason, vec![name])),
        }
    }
    let lines = reasons.into_iter();
    let line = |(reason, names): (String, Vec<&str>)| match reason.as_str() {
        "" => format!("left out: {}", names.join(", ")),
        reason => format!("left out: {}: {reason}", names.join(", ")),
    };
    lines.map(line).collect()
}

pub(super) fn spread(spread: Option<Spread>, digits: usize) -> String {
    match spread {
        None => "-".into(),
        Some(s) if s.count == 1 => format!("{:.digits$}", s.median),
        Some(s) => format!(
            "{:.digits$} ({:.digits$}-{:.digits$})",
            s.median, s.min, s.max
        ),
    }
}

pub(super) fn median(spread: Option<Spread>, digits: usize) -> String {
    spread.map_or_else(|| "-".into(), |s| format!("{:.digits$}", s.median))
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / f64::from(1 << 20))
}

pub(super) fn headings(unit: Unit) -> [String; 8] {
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
        print!("{}", self.scaling());
        if self.quick {
            println!("\na quick run: it proves that everything runs, and gives no figures");
        }
    }

    pub(super) fn markdown(&self) -> String {
        let mut text = String::new();
        let quick = if self.quick {
            " (quick: these are not figures)"
        } else {
            ""
        };
        let _ = writeln!(text, "# Measured {}{quick}\n", self.date);
        for line in self.method_lines() {
            let _ = writeln!(text, "- {line}");
        }
        let _ = writeln!(text, "\nEvery run is in `{DATA}`.");
        if !self.all_standings().is_empty() {
            let _ = writeln!(text, "\n![{}]({PICTURE})", glance::TITLE);
        }
        text.push_str(&self.standings());
        text.push_str(&self.ceiling());
        text.push_str(&self.scaling());
        for cell in &self.cells {
            let unit = cell.scenario.unit;
            let _ = writeln!(text, "\n## {}: {}\n", cell.name, cell.scenario.title);
            let _ = writeln!(text, "{}.\n", self.pace_line(cell));
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

    /// Rounds and times in words: of one cell, or the range over all.
    fn paces(&self) -> String {
        let paces: Vec<_> = self.cells.iter().map(|cell| self.pace_of(cell)).collect();
        let range = |of: fn(&Pace) -> f64| match Spread::of(paces.iter().map(of)) {
            None => "no".to_owned(),
            Some(s) if s.min == s.max => s.min.to_string(),
            Some(s) => format!("{} to {}", s.min, s.max),
        };
        let differ = paces.windows(2).any(|pair| pair[0] != pair[1]);
        let where_ = if differ { " as each cell says" } else { "" };
        format!(
            "{} rounds; {} s counted after {} s of warm-up{where_}",
            range(|p| p.rounds as f64),
            range(|p| p.duration_s),
            range(|p| p.warm_up_s)
        )
    }

    /// The pace of `cell` in words.
    pub(super) fn pace_line(&self, cell: &CellReport) -> String {
        let pace = self.pace_of(cell);
        let plural = if pace.rounds == 1 { "" } else { "s" };
        format!("{} round{plural} of {} s", pace.rounds, pace.duration_s)
    }

    /// The builds of gannet that were measured, and in which cells if there were several.
    pub(super) fn builds_line(&self) -> Option<String> {
        let mut builds: Vec<(&str, Vec<&str>)> = Vec::new();
        for cell in &self.cells {
            let rows = cell.rows.iter();
            let gannet = rows.filter(|row| standing::is_gannet(&row.peer));
            let names = gannet.map(|row| row.build.as_deref().unwrap_or(UNNOTED));
            for name in names.collect::<BTreeSet<_>>() {
                match builds.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, cells)) => cells.push(&cell.name),
                    None => builds.push((name, vec![&cell.name])),
                }
            }
        }
        // The build of most cells is named first, and the others with their cells.
        builds.sort_by_key(|(_, cells)| cells.len());
        let (most, _) = builds.pop()?;
        if builds.is_empty() {
            return (most != UNNOTED).then(|| format!("build: {most}"));
        }
        let exceptions = builds
            .iter()
            .map(|(name, cells)| format!("{name} ({})", cells.join(", ")));
        let exceptions = exceptions.collect::<Vec<_>>().join("; ");
        Some(format!(
            "gannet was measured in more than one build: {most}, but for these cells: {exceptions}"
        ))
    }

    /// The method, line by line.
    pub(super) fn method_lines(&self) -> Vec<String> {
        let (m, method) = (&self.machine, &self.method);
        let client = match method.client {
            Client::Own => {
                "the project's load client: one thread, every status and length checked, every \
                 file compared once before a run and samples of the responses during it"
            }
            Client::Wrk => {
                "wrk, one thread for each of its CPUs: statuses checked, lengths and contents not"
            }
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
        let (cpu, cpus, system) = (&m.cpu, m.cpus, &m.distribution);
        let (kernel, rustc) = (&m.kernel, &m.rustc);
        let mut lines = vec![
            format!("machine: {cpu}, {cpus} CPUs, {gib:.0} GiB; {system}, Linux {kernel}; {rustc}"),
            match self.cells.iter().any(|cell| cell.workers.is_some()) {
                true => "over loopback; as many workers as a cell's name says (-w), on as many CPUs; the \
                         client on the others, or on the same if there are none"
                    .to_owned(),
                false => format!(
                    "over loopback; server (one worker) pinned to CPU {server}, client to CPU \
                     {client_cpu}{shared}"
                ),
            },
            format!("TCP congestion control: {}", self.congestion),
            format!("files {place}; {} open files a process", self.file_limit),
            format!(
                "{}, each peer once a round; servers started afresh",
                self.paces()
            ),
            format!("client: {client}"),
        ];
        let mtu = self.loopback_mtu.iter();
        lines.extend(mtu.map(|mtu| format!("MTU of loopback: {mtu}")));
        if !self.environment.is_empty() {
            let variables = self.environment.join(" ");
            lines.push(format!("environment of the servers: {variables}"));
        }
        lines.extend(self.builds_line());
        let has = |protocol| {
            self.cells
                .iter()
                .any(|cell| cell.scenario.load.protocol == protocol)
        };
        if has(Protocol::H2) {
            lines.push(
                "client of HTTP/2: h2load, one thread for each of its CPUs; curl compared every file once \
                 before a run; asked by HTTP/1.1, a server has a connection for each stream"
                    .into(),
            );
        }
        if self
            .cells
            .iter()
            .any(|cell| cell.scenario.load.tls.is_some())
        {
            lines.push(
                match method.ktls {
                    false => {
                        "TLS: 1.3, X25519 and AES-128-GCM; in user space, but in the kernel for \
                         nginx and gannet where a scenario says kernel TLS"
                    }
                    true => "TLS: 1.3, X25519 and AES-128-GCM; in the kernel for nginx and gannet",
                }
                .into(),
            );
        }
        lines.push(
            "cost: user and system time of the server's whole process tree, per response or per \
             10^9 bytes"
                .into(),
        );
        lines.push(format!(
            "ratio: to {} in the same round; medians, with the smallest and largest value in \
             parentheses",
            peers::BASE
        ));
        lines.push("a run with a wrong response, an error or a dead server has no figure".into());
        if let Some(nice) = self.nice {
            lines.push(format!(
                "both sides ran at nice {nice}, ahead of what else ran"
            ));
        }
        lines.extend(left_out(&self.skipped));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::{figures, report};

    fn add(all: &mut Report, name: &str, build: Option<&str>) {
        let runs = vec![figures(2.0)];
        let mut cell = report(vec![("gannet-archive", runs)]).cells.remove(0);
        cell.name = name.to_owned();
        cell.rows[0].build = build.map(str::to_owned);
        all.cells.push(cell);
    }

    #[test]
    fn a_report_of_two_builds_says_which_cells_are_whose() {
        let mut all = report(vec![("nginx", vec![figures(4.0)])]);
        assert_eq!(all.builds_line(), None);
        add(&mut all, "a-c1", Some("gannet 1"));
        add(&mut all, "b-c1", Some("gannet 1"));
        assert_eq!(all.builds_line().as_deref(), Some("build: gannet 1"));
        add(&mut all, "c-c1", Some("gannet 2"));
        add(&mut all, "d-c1", None);
        let line = all.builds_line().expect("three builds");
        for part in [
            "gannet 2 (c-c1)",
            "not noted (d-c1)",
            "build: gannet 1, but",
        ] {
            assert!(line.contains(part), "{line}");
        }
        assert!(all.markdown().contains(&line));
    }

    #[test]
    fn the_mtu_and_the_environment_are_named_where_they_were_set() {
        let mut all = report(vec![("nginx", vec![figures(4.0)])]);
        let text = all.markdown();
        assert!(!text.contains("MTU") && !text.contains("environment"));
        all.environment = vec!["GANNET_GRACE=1s".into(), "GANNET_SANDBOX=off".into()];
        let expect = "- environment of the servers: GANNET_GRACE=1s GANNET_SANDBOX=off\n";
        assert!(all.markdown().contains(expect));
        all.loopback_mtu = Some("1500, as it was".into());
        assert!(
            all.markdown()
                .contains("- MTU of loopback: 1500, as it was")
        );
    }

    #[test]
    fn what_was_left_out_for_one_reason_stands_in_one_line() {
        let skipped = ["a: no TLS", "h2o: not there", "b: no TLS", "late"].map(str::to_owned);
        assert_eq!(
            left_out(&skipped),
            [
                "left out: a, b: no TLS",
                "left out: h2o: not there",
                "left out: late"
            ]
        );
    }
}
