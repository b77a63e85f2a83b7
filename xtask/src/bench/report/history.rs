//! Earlier results, and what has become better or worse since.

use std::{fs, path::Path};

use anyhow::{Result, ensure};

use super::{Report, standing};
use crate::bench::statistics::Spread;

/// A median must move by more than this share before it is called a change: ratios of one and the
/// same program differ by as much between measurements.
const CHANGE_MIN: f64 = 0.05;

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
    /// The ratio before, and where it stands.
    pub(super) before: (Spread, String),
    /// The ratio now.
    pub(super) now: Spread,
}

impl Change {
    /// `better`, `worse`, or nothing where the rounds of both overlap or the medians are close.
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

/// Every result in `directory` but `name`, oldest first. What cannot be read is no result.
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

/// What `report` has in common with the latest earlier result on the same kind of CPU.
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
                let cell = e.report.cells.iter().find(|c| c.name == cell.name)?;
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

/// Prints how the newest result, or `name`, compares to those before it.
///
/// # Errors
///
/// When there is no such result, or something became worse.
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
    for change in &changes {
        let (now, (before, from)) = (standing::show(change.now), &change.before);
        println!(
            "  {:<28} {:<22} {now:<18} {:<18} {from}  {}",
            change.cell,
            change.peer,
            standing::show(*before),
            change.word()
        );
    }
    let worse = changes.iter().filter(|c| c.word() == "worse").count();
    println!("{} figures compared, {worse} worse", changes.len());
    ensure!(worse == 0, "{worse} figures are worse than before");
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
    fn only_what_the_rounds_agree_on_is_a_change() {
        assert_eq!(word((0.4, 0.5, 0.6), (0.7, 0.8, 0.9)), "worse");
        assert_eq!(word((0.7, 0.8, 0.9), (0.4, 0.5, 0.6)), "better");
        assert_eq!(word((0.4, 0.5, 0.6), (0.55, 0.6, 0.7)), "");
        assert_eq!(word((0.50, 0.50, 0.50), (0.51, 0.51, 0.52)), "");
    }
}
