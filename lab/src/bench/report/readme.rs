//! Updates the README's figures from results.

use std::{fmt::Write, fs, path::Path};

use anyhow::{Context, Result, ensure};

use super::standing::{self, Standing, Verdict};
use super::{CellReport, Report, Row};
use crate::bench::{peers, statistics::Spread};

const BEGIN: &str = "<!-- bench:begin -->\n";
const END: &str = "<!-- bench:end -->";

/// Writes the figures of the results `names` in `directory` into the README at `path`; if several
/// have the same cell, the first one is used.
///
/// # Errors
///
/// A result cannot be read, has no cell for the README, or the README has no markers.
pub(crate) fn write(path: &Path, directory: &Path, names: &[String]) -> Result<()> {
    let mut reports = Vec::new();
    for name in names {
        reports.push((name.as_str(), Report::read(directory, name)?));
    }
    let before = fs::read_to_string(path)?;
    let after = replace(&before, &block(&reports)?)?;
    fs::write(path, after).with_context(|| format!("cannot write '{}'", path.display()))?;
    println!(
        "bench: figures of {} are in '{}'",
        names.join(", "),
        path.display()
    );
    Ok(())
}

fn replace(text: &str, block: &str) -> Result<String> {
    let begin = text.find(BEGIN).map(|at| at + BEGIN.len());
    let end = text.find(END);
    let (Some(begin), Some(end)) = (begin, end) else {
        anyhow::bail!(
            "the README has no markers for figures: {} to {END}",
            BEGIN.trim()
        );
    };
    ensure!(begin <= end, "the README's {END} is before its beginning");
    Ok(format!("{}{block}{}", &text[..begin], &text[end..]))
}

/// A result, with what it was measured with.
fn link((name, report): &(&str, Report)) -> String {
    let nginx = report.peers.iter().find(|peer| peer.name == peers::BASE);
    let nginx = nginx.map_or(peers::BASE, |peer| peer.version.as_str());
    let m = &report.machine;
    format!(
        "[{name}](lab/results/{name}/report.md) ({nginx}; {} CPUs, {}; Linux {})",
        m.cpus, m.cpu, m.kernel
    )
}

/// The text between the markers.
fn block(reports: &[(&str, Report)]) -> Result<String> {
    let (_, newest) = reports.first().context("no result")?;
    let cells = chosen(reports);
    ensure!(
        !cells.is_empty(),
        "no cell of these results belongs in the README"
    );
    let rounds = reports.iter().flat_map(|(_, report)| {
        let cells = report
            .cells
            .iter()
            .filter(|cell| cells.iter().any(|c| c.name == cell.name));
        cells.map(|cell| report.pace_of(cell).rounds as f64)
    });
    let rounds = match Spread::of(rounds) {
        Some(s) if s.min < s.max => format!("{} to {}", s.min, s.max),
        Some(s) => s.min.to_string(),
        None => newest.rounds.to_string(),
    };
    let mut text = format!(
        "Server CPU time per response (per gigabyte for large files), as a ratio to nginx in the\n\
         same interleaved rounds: below 1 is less work than nginx. Medians of {rounds} rounds, loopback,\n\
         one worker each. A dash: none served each connection in the time of a run.\n\n\
         | workload | archive | directory | cheapest other server |\n|---|---|---|---|\n"
    );
    for cell in &cells {
        let row = |peer: &str| cell.rows.iter().find(|row| row.peer == peer);
        let other = standing::best_other(cell);
        let other = other.map_or_else(
            || "-".to_owned(),
            |row| match row.peer.as_str() {
                peers::BASE => "nginx".to_owned(),
                name => format!("{name} {}", ratio(Some(row))),
            },
        );
        let _ = writeln!(
            text,
            "| {} | {} | {} | {other} |",
            workload(cell),
            ratio(row("gannet-archive")),
            ratio(row("gannet-directory"))
        );
    }
    let standings = cells.iter().flat_map(|cell| standing::standings_of(cell));
    let (ahead, others): (Vec<_>, Vec<_>) = standings.partition(|it| it.verdict == Verdict::Ahead);
    let named: Vec<_> = others.iter().map(not_ahead).collect();
    let named = match named.is_empty() {
        true => String::new(),
        false => format!(" The others are\n{}.", named.join("; ")),
    };
    let links: Vec<_> = reports.iter().map(link).collect();
    let _ = write!(
        text,
        "\nOf {} comparisons with the cheapest other server gannet is ahead in every round of {}.{named}\nThe reports have spread, throughput, latency and memory: {}.\n\
         [How it measures](lab/README.md) has the method. Measure it on your own machine:\n\n\
         ```sh\ncargo xtask bench\n```\n",
        ahead.len() + others.len(),
        ahead.len(),
        links.join(", ")
    );
    Ok(text)
}

/// A comparison in which gannet is not ahead.
fn not_ahead(standing: &Standing<'_>) -> String {
    let form = standing.gannet.peer.trim_start_matches("gannet-");
    let (cell, best, ratio) = (&standing.cell.name, &standing.best.peer, standing.ratio);
    format!("`{cell}`, {form}: {:.2} of {best}", ratio.median)
}

/// The cells for the README, in the order of the scenarios.
fn chosen<'a>(reports: &'a [(&str, Report)]) -> Vec<&'a CellReport> {
    let mut cells: Vec<&CellReport> = Vec::new();
    for cell in reports.iter().flat_map(|(_, report)| &report.cells) {
        let wanted = cell.scenario.readme.contains(&cell.connections);
        let has = cell
            .rows
            .iter()
            .any(|row| standing::is_gannet(&row.peer) && row.ratio.is_some());
        if wanted && has && !cells.iter().any(|known| known.name == cell.name) {
            cells.push(cell);
        }
    }
    cells.sort_by_key(|cell| (cell.scenario.rank, cell.connections));
    cells
}

fn workload(cell: &CellReport) -> String {
    let (title, connections) = (&cell.scenario.title, cell.connections);
    let streams = match cell.streams {
        1 => String::new(),
        n => format!(" x {n} streams"),
    };
    let plural = if connections == 1 { "" } else { "s" };
    format!("{title}: {connections} connection{plural}{streams}")
}

fn ratio(row: Option<&Row>) -> String {
    let ratio = row.and_then(|row| row.ratio);
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{:.2}", ratio.median))
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{figures, report},
        *,
    };

    #[test]
    fn figures_come_from_the_result_and_the_rest_stays() {
        let mut report = report(vec![
            ("nginx", vec![figures(4.0), figures(4.0)]),
            ("gannet-archive", vec![figures(1.0), figures(2.0)]),
        ]);
        report.cells[0].scenario.readme = vec![report.cells[0].connections];
        let block = block(&[("one", report)]).expect("one cell");
        assert!(
            block.contains("| 0.38 | - |") && block.contains("lab/results/one/"),
            "{block}"
        );
        let text = format!("before\n{BEGIN}old\n{END}\nafter\n");
        let text = replace(&text, &block).expect("has a place");
        assert!(
            text.starts_with("before\n<!--") && text.ends_with("-->\nafter\n"),
            "{text}"
        );
        assert!(!text.contains("old"), "{text}");
        assert!(replace("no place", &block).is_err());
    }
}
