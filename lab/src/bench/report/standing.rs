//! Compares gannet with the cheapest other server, cell by cell.

use std::fmt::Write;

use super::{CellReport, Outcome, Report, Row};
use crate::bench::{
    run::Doubt,
    statistics::{self, Spread},
};

/// The forms of gannet that are compared.
const JUDGED: [&str; 2] = ["gannet-archive", "gannet-directory"];
/// gannet with a constant answer, without content.
const CEILING: &str = "gannet-dummy";
/// The introduction to the table of ratios to it.
pub(super) const OVER_CEILING: &str = "CPU cost as a ratio to that of a constant answer of gannet's \
    own engine and protocols (`--dummy`) in the same round: what is above 1 is the price of looking \
    up and sending real content.";
/// Servers that answer constants, or are not servers: shown, but not compared.
const APART: [&str; 5] = ["floor", "gannet-dummy", "faf", "actix", "hyper"];

/// A median above this is behind, whatever single rounds show; only being ahead requires all
/// rounds.
const BEHIND: f64 = 1.1;

/// Which of two costs is lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// gannet costs less in every round.
    Ahead,
    /// Rounds disagree.
    Level,
    /// gannet costs more in every round, or by more than [`BEHIND`] in the median.
    Behind,
}

impl Verdict {
    /// The verdict for the ratio of gannet's cost to the other's.
    fn of(ratio: Spread) -> Self {
        if ratio.max < 1.0 {
            Self::Ahead
        } else if ratio.min > 1.0 || ratio.median > BEHIND {
            Self::Behind
        } else {
            Self::Level
        }
    }

    /// One word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ahead => "ahead",
            Self::Level => "level",
            Self::Behind => "behind",
        }
    }
}

/// One form of gannet in one cell, compared with the cheapest other server.
pub(super) struct Standing<'a> {
    /// The cell.
    pub(super) cell: &'a CellReport,
    /// gannet's row.
    pub(super) gannet: &'a Row,
    /// The other server's row.
    pub(super) best: &'a Row,
    /// gannet's cost as a ratio to the other's in the same round.
    pub(super) ratio: Spread,
    /// The verdict on the ratio.
    pub(super) verdict: Verdict,
}

/// Whether `peer` is gannet.
pub(super) fn is_gannet(peer: &str) -> bool {
    peer.starts_with("gannet") && peer != "gannet-dummy"
}

/// Whether `peer` is shown but not compared.
pub(super) fn is_apart(peer: &str) -> bool {
    APART.iter().any(|name| peer.starts_with(name))
}

/// The cheapest server of `cell` that is not gannet, serves files and left no connection unserved.
pub(super) fn best_other(cell: &CellReport) -> Option<&Row> {
    let fair = |row: &&Row| {
        !is_gannet(&row.peer) && !is_apart(&row.peer) && row.failed == 0 && !leaves_unserved(row)
    };
    let cost = |row: &&Row| row.cost.map_or(f64::INFINITY, |cost| cost.median);
    let rows = cell
        .rows
        .iter()
        .filter(fair)
        .filter(|row| row.cost.is_some());
    rows.min_by(|a, b| cost(a).total_cmp(&cost(b)))
}

fn leaves_unserved(row: &Row) -> bool {
    let figures = row.runs.iter().filter_map(Outcome::figures);
    figures
        .flat_map(|f| &f.flags)
        .any(|flag| flag.doubt == Doubt::Unserved)
}

fn costs(row: &Row) -> Vec<Option<f64>> {
    let cost = |run: &Outcome| run.figures().map(|f| f.cost);
    row.runs.iter().map(cost).collect()
}

/// Every form of gannet in a cell with another server.
pub(super) fn standings_of(cell: &CellReport) -> Vec<Standing<'_>> {
    let Some(best) = best_other(cell) else {
        return Vec::new();
    };
    let judged = cell
        .rows
        .iter()
        .filter(|row| JUDGED.contains(&row.peer.as_str()));
    let standing = |gannet| {
        let ratio = statistics::ratios(&costs(gannet), &costs(best))?;
        Some(Standing {
            cell,
            gannet,
            best,
            ratio,
            verdict: Verdict::of(ratio),
        })
    };
    judged.filter_map(standing).collect()
}

impl Report {
    /// Every form of gannet in every cell with another server.
    pub(super) fn all_standings(&self) -> Vec<Standing<'_>> {
        self.cells.iter().flat_map(standings_of).collect()
    }

    /// The cost of real content over a constant answer of the same engine and protocols: each form
    /// of gannet in each cell that also has the constant answer, as a ratio in the same round.
    pub(super) fn over_ceiling(&self) -> Vec<(&CellReport, &Row, Spread)> {
        let mut all = Vec::new();
        for cell in &self.cells {
            let Some(ceiling) = cell.rows.iter().find(|row| row.peer == CEILING) else {
                continue;
            };
            let judged = cell.rows.iter();
            for row in judged.filter(|row| JUDGED.contains(&row.peer.as_str())) {
                let ratio = statistics::ratios(&costs(row), &costs(ceiling));
                all.extend(ratio.map(|ratio| (cell, row, ratio)));
            }
        }
        all
    }

    /// A Markdown table of these ratios; empty if there are none.
    pub(super) fn ceiling(&self) -> String {
        let all = self.over_ceiling();
        if all.is_empty() {
            return String::new();
        }
        let mut text = format!(
            "\n## What content costs\n\n{OVER_CEILING}\n\n| cell | gannet | ratio to the constant |\n\
             | --- | --- | --- |\n"
        );
        for (cell, row, ratio) in all {
            let _ = writeln!(text, "| {} | {} | {} |", cell.name, row.peer, show(ratio));
        }
        text
    }

    /// A Markdown table of the comparisons, and a list of those in which gannet is not ahead.
    pub(super) fn standings(&self) -> String {
        let mut text = String::from("\n## How gannet stands\n\n");
        text.push_str(
            "CPU cost against the cheapest other server of the cell in the same round: below 1 \
             gannet costs less. *Ahead* means in every round, *behind* in every round or by more \
             than a tenth in the median; otherwise it is *level*.\n",
        );
        let _ = writeln!(text, "\n{}", super::glance::sentence(self));
        text.push_str("\n| cell | gannet | cheapest other | ratio to it | |\n|");
        text.push_str(&" --- |".repeat(5));
        text.push('\n');
        for standing in self.all_standings() {
            let (cell, gannet) = (&standing.cell.name, &standing.gannet.peer);
            let (best, ratio) = (&standing.best.peer, show(standing.ratio));
            let word = standing.verdict.word();
            let _ = writeln!(text, "| {cell} | {gannet} | {best} | {ratio} | {word} |");
        }
        let lost = self.not_ahead();
        if lost.is_empty() {
            text.push_str("\nWhere gannet is not ahead: nowhere in this measurement.\n");
        } else {
            text.push_str("\nWhere gannet is not ahead:\n\n");
            for line in lost {
                let _ = writeln!(text, "- {line}");
            }
        }
        text
    }

    /// The comparisons in which gannet costs more or rounds disagree, in words.
    pub(super) fn not_ahead(&self) -> Vec<String> {
        let all = self.all_standings();
        let lost = all.iter().filter(|s| s.verdict != Verdict::Ahead);
        lost.map(|s| {
            let (gannet, cell, best) = (&s.gannet.peer, &s.cell.name, &s.best.peer);
            let (word, ratio) = (s.verdict.word(), s.ratio.median);
            let with = if s.verdict == Verdict::Level {
                " with"
            } else {
                ""
            };
            format!("{gannet} is {word}{with} {best} in {cell} ({ratio:.2})")
        })
        .collect()
    }
}

/// A ratio with its spread.
pub(super) fn show(ratio: Spread) -> String {
    super::markdown::spread(Some(ratio), 2)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{figures, report};

    #[test]
    fn rounds_that_disagree_are_level_and_floors_do_not_compete() {
        let report = report(vec![
            ("nginx", vec![clean(4.0), clean(4.0)]),
            ("h2o", vec![clean(2.0), clean(2.0)]),
            // It leaves connections unserved, so its cost is not that of the full load.
            ("lighttpd", vec![figures(1.0), figures(1.0)]),
            ("floor-epoll", vec![clean(0.5), clean(0.5)]),
            ("gannet-archive", vec![clean(1.0), clean(1.5)]),
            ("gannet-directory", vec![clean(1.9), clean(2.1)]),
            ("gannet-archive-epoll", vec![clean(9.0), clean(9.0)]),
        ]);
        let standings = report.all_standings();
        let found: Vec<_> = standings
            .iter()
            .map(|s| {
                (
                    s.gannet.peer.as_str(),
                    s.best.peer.as_str(),
                    s.verdict.word(),
                )
            })
            .collect();
        assert_eq!(
            found,
            [
                ("gannet-archive", "h2o", "ahead"),
                ("gannet-directory", "h2o", "level")
            ]
        );
    }

    #[test]
    fn being_behind_is_said() {
        let of = |archive: [f64; 2], directory: [f64; 2]| {
            report(vec![
                ("nginx", vec![clean(2.0), clean(2.0)]),
                ("gannet-archive", archive.map(clean).to_vec()),
                ("gannet-directory", directory.map(clean).to_vec()),
            ])
            .markdown()
        };
        let text = of([3.0, 2.5], [1.9, 2.1]);
        assert!(text.contains("gannet-archive is behind nginx"), "{text}");
        assert!(
            text.contains("gannet-directory is level with nginx"),
            "{text}"
        );
        // Much more in the median is behind, even if one round disagrees.
        let text = of([1.9, 3.0], [1.9, 2.0]);
        assert!(text.contains("gannet-archive is behind nginx"), "{text}");
        assert!(text.contains("gannet-directory is level with"), "{text}");
    }

    #[test]
    fn what_content_costs_is_told_where_there_is_a_constant_answer() {
        let archive = || ("gannet-archive", vec![clean(3.0), clean(4.0)]);
        let both = report(vec![
            ("gannet-dummy", vec![clean(2.0), clean(2.0)]),
            archive(),
            ("gannet-archive-epoll", vec![clean(2.0), clean(2.0)]),
        ]);
        let ratios: Vec<_> = both
            .over_ceiling()
            .iter()
            .map(|(_, _, s)| s.median)
            .collect();
        assert_eq!(ratios, [1.75]);
        assert!(both.markdown().contains("## What content costs"));
        assert_eq!(report(vec![archive()]).ceiling(), "");
    }

    fn clean(cost: f64) -> super::Outcome {
        let super::Outcome::Figures(mut figures) = figures(cost) else {
            unreachable!("made so");
        };
        figures.flags.clear();
        super::Outcome::Figures(figures)
    }
}
