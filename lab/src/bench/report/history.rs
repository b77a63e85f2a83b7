//! Earlier results, and figures that have become better or worse since.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Result, ensure};

use super::{Report, files::DATA, standing};
use crate::bench::statistics::Spread;

/// Minimum relative change of a median to be reported: ratios of the same program differ by that
/// much between measurements.
const CHANGE_MIN: f64 = 0.05;

/// The heading in the index below which nothing is regenerated.
const KEPT: &str = "\n## Notes\n";

/// A result and its name.
pub(super) struct Earlier {
    /// The name of its directory.
    pub(super) name: String,
    /// The result.
    pub(super) report: Report,
}

/// The ratio of one form of gannet in one cell, in two results.
pub(super) struct Change {
    /// The cell.
    pub(super) cell: String,
    /// The form of gannet.
    pub(super) peer: String,
    /// The earlier ratio, and the name of its result.
    pub(super) before: (Spread, String),
    /// The ratio now.
    pub(super) now: Spread,
}

impl Change {
    /// `better`, `worse`, or empty if the rounds overlap or the medians are close.
    pub(super) fn word(&self) -> &'static str {
        let (before, now) = (self.before.0, self.now);
        if now.median > before.median * (1.0 + CHANGE_MIN) && now.min > before.max {
            "worse"
        } else if now.median < before.median * (1.0 - CHANGE_MIN) && now.max < before.min {
            "better"
        } else {
            ""
        }
    }
}

/// Every result in `directory` except `name`, oldest first. Unreadable files are skipped.
pub(super) fn read_all(directory: &Path, name: &str) -> Vec<Earlier> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut results: Vec<Earlier> = names
        .filter(|found| found != name)
        .filter_map(|name| {
            let report = Report::read(directory, &name).ok().filter(|r| !r.quick)?;
            Some(Earlier { name, report })
        })
        .collect();
    results.sort_by(|a, b| a.report.date.cmp(&b.report.date));
    results
}

/// The ratios that `report` shares with the latest earlier result of the same files by the same
/// client, on the same kind of CPU.
pub(super) fn changes(report: &Report, earlier: &[Earlier]) -> Vec<Change> {
    let mut changes = Vec::new();
    for cell in &report.cells {
        for row in cell
            .rows
            .iter()
            .filter(|row| standing::is_gannet(&row.peer))
        {
            let Some(now) = row.ratio else { continue };
            let before = earlier.iter().rev().find_map(|e| {
                if e.report.machine.cpu != report.machine.cpu || e.report.date >= report.date {
                    return None;
                }
                let cell = e.report.cells.iter().find(|c| {
                    c.name == cell.name
                        && c.scenario.content == cell.scenario.content
                        && c.scenario.load.client == cell.scenario.load.client
                })?;
                let row = cell.rows.iter().find(|r| r.peer == row.peer)?;
                Some((row.ratio?, e.name.clone()))
            });
            changes.extend(before.map(|before| Change {
                cell: cell.name.clone(),
                peer: row.peer.clone(),
                before,
                now,
            }));
        }
    }
    changes
}

/// Writes `README.md` of `directory`: every result with a one-sentence summary, newest first. Its
/// text from [`KEPT`] on is kept: it is written by hand.
///
/// # Errors
///
/// The file cannot be written.
pub(super) fn write_index(directory: &Path) -> Result<()> {
    let mut text = format!(
        "# Results\n\nMade by `cargo xtask bench`; [how it measures](../README.md). \
         Each directory has tables\n(`report.md`) and every run (`{DATA}`, compressed JSON), from which \
         `cargo xtask bench --render NAME`\ngenerates tables and picture. `cargo xtask bench --compare` \
         lists figures that became worse. Do not compare\nabsolute figures of two results.\n\n\
         | result | measured | cells | rounds | |\n| --- | --- | --- | --- | --- |\n",
    );
    for Earlier { name, report } in read_all(directory, "").iter().rev() {
        let paces = report.cells.iter().map(|cell| report.pace_of(cell).rounds);
        let (least, most) = (paces.clone().min(), paces.max());
        let rounds = match (least.unwrap_or(0), most.unwrap_or(0)) {
            (least, most) if least == most => most.to_string(),
            (least, most) => format!("{least} to {most}"),
        };
        let (cells, sentence) = (report.cells.len(), super::glance::sentence(report));
        let (date, cpu) = (&report.date, &report.machine.cpu);
        let _ = writeln!(
            text,
            "| [{name}]({name}/report.md) | {date}, {cpu} | {cells} | {rounds} | {sentence} |"
        );
    }
    let mut others: Vec<(String, String)> = Vec::new();
    for entry in fs::read_dir(directory)?.flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        if file.ends_with(".md") && file != "README.md" {
            let page = fs::read_to_string(entry.path())?;
            let title = page.lines().next().unwrap_or_default();
            others.push((file, title.trim_start_matches('#').trim().to_owned()));
        }
    }
    others.sort();
    if !others.is_empty() {
        text.push_str("\nMeasured by other methods, described in each:\n\n");
        for (file, title) in others {
            let _ = writeln!(text, "- [{title}]({file})");
        }
    }
    let file = directory.join("README.md");
    let before = fs::read_to_string(&file).unwrap_or_default();
    if let Some(at) = before.find(KEPT) {
        text.push_str(&before[at..]);
    }
    fs::write(file, text)?;
    Ok(())
}

/// Prints how the newest result, or `name`, compares with earlier ones.
///
/// # Errors
///
/// There is no such result, or a figure became worse.
pub(crate) fn compare(directory: &Path, name: Option<&str>) -> Result<()> {
    let mut results = read_all(directory, "");
    let index = match name {
        Some(name) => results.iter().position(|result| result.name == name),
        None => results.len().checked_sub(1),
    };
    ensure!(
        index.is_some(),
        "no such result in '{}'",
        directory.display()
    );
    let newest = results.remove(index.unwrap_or(0));
    let changes = changes(&newest.report, &results);
    println!("{}: ratios to nginx, now and before", newest.name);
    if changes.is_empty() {
        println!("  no earlier result has a cell of it on the same kind of CPU");
    }
    let mut order: Vec<&Change> = changes.iter().collect();
    // Changes come first, since unchanged figures are many.
    order.sort_by_key(|change| match change.word() {
        "worse" => 0,
        "better" => 1,
        _ => 2,
    });
    for change in order {
        let (now, (before, from)) = (standing::show(change.now), &change.before);
        println!(
            "  {:<28} {:<22} {now:<18} {:<18} {from}  {}",
            change.cell,
            change.peer,
            standing::show(*before),
            change.word()
        );
    }
    let count = |word: &str| changes.iter().filter(|c| c.word() == word).count();
    let (worse, better) = (count("worse"), count("better"));
    println!(
        "{} figures compared: {worse} worse, {better} better (medians differ by more than {:.0} % and \
         no rounds overlap)",
        changes.len(),
        CHANGE_MIN * 100.0
    );
    ensure!(worse == 0, "{worse} of the figures became worse");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(before: (f64, f64, f64), now: (f64, f64, f64)) -> &'static str {
        let spread = |(min, median, max)| Spread {
            median,
            min,
            max,
            count: 3,
        };
        let change = Change {
            cell: "c".into(),
            peer: "p".into(),
            before: (spread(before), "before".into()),
            now: spread(now),
        };
        change.word()
    }

    #[test]
    fn the_index_names_every_result_and_other_pages() {
        use crate::bench::report::tests::{figures, report};
        let directory = std::env::temp_dir().join(format!("gannet-index-{}", std::process::id()));
        let runs = |cost| vec![figures(cost), figures(cost)];
        for name in ["one", "two"] {
            let rows = vec![("nginx", runs(4.0)), ("gannet-archive", runs(2.0))];
            let saved = report(rows).save(&directory, name);
            saved.expect("a writable temporary directory");
        }
        fs::write(directory.join("pack.md"), "# Packing\n\ntext").expect("ours");
        write_index(&directory).expect("ours");
        let index = fs::read_to_string(directory.join("README.md")).expect("written");
        fs::write(directory.join("README.md"), index + KEPT + "\nkept\n").expect("ours");
        write_index(&directory).expect("ours");
        let index = fs::read_to_string(directory.join("README.md")).expect("written");
        assert!(index.ends_with(&format!("{KEPT}\nkept\n")), "{index}");
        assert_eq!(index.matches("# Results").count(), 1, "{index}");
        for part in [
            "[one](one/report.md)",
            "[two](two/report.md)",
            "- [Packing](pack.md)",
        ] {
            assert!(index.contains(part), "{index}");
        }
        fs::remove_dir_all(directory).expect("ours");
    }

    #[test]
    fn a_cell_is_compared_with_one_of_the_same_files_and_client() {
        use crate::bench::programs::Program;
        use crate::bench::report::tests::{figures, report};
        let of = |date: &str| {
            let row = |name, cost| (name, vec![figures(cost), figures(cost)]);
            let mut report = report(vec![row("nginx", 4.0), row("gannet-archive", 2.0)]);
            report.date = date.into();
            report
        };
        let compared = |change: fn(&mut Report)| {
            let mut report = of("2000-01-01");
            change(&mut report);
            let name = "before".into();
            changes(&of("2000-01-02"), &[Earlier { name, report }]).len()
        };
        assert_eq!(compared(|_| {}), 1);
        assert_eq!(compared(|r| r.cells[0].scenario.content.files += 1), 0);
        let by_wrk = |r: &mut Report| r.cells[0].scenario.load.client = Some(Program::Wrk);
        assert_eq!(compared(by_wrk), 0);
    }

    #[test]
    fn only_what_the_rounds_agree_on_is_a_change() {
        assert_eq!(word((0.4, 0.5, 0.6), (0.7, 0.8, 0.9)), "worse");
        assert_eq!(word((0.7, 0.8, 0.9), (0.4, 0.5, 0.6)), "better");
        assert_eq!(word((0.4, 0.5, 0.6), (0.55, 0.6, 0.7)), "");
        assert_eq!(word((0.50, 0.50, 0.50), (0.51, 0.51, 0.52)), "");
    }
}
