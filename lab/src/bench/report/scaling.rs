//! How rate and cost of a server change with the number of its workers.

use super::{CellReport, Report, Row, markdown::median};
use crate::bench::statistics::Spread;

impl Report {
    /// A list of the cells that were measured with several numbers of workers; empty if there are none. Rates and
    /// costs are compared with those of the first number.
    pub(super) fn scaling(&self) -> String {
        let mut text = String::new();
        for first in &self.cells {
            let Some(shape) = first.shape() else { continue };
            let of_shape = self.cells.iter().filter(|it| it.shape() == Some(shape));
            let cells: Vec<_> = of_shape.collect();
            if cells.len() < 2 || cells[0].name != first.name {
                continue;
            }
            for row in &first.rows {
                let steps = cells.iter().filter_map(|cell| {
                    let own = cell.rows.iter().find(|own| own.peer == row.peer)?;
                    Some(step(cell.workers?, own, row))
                });
                let steps: Vec<_> = steps.collect();
                text.push_str(&format!("- {shape}, {}: {}\n", row.peer, steps.join("; ")));
            }
        }
        match text.is_empty() {
            true => text,
            false => format!(
                "\n## Scaling\n\nRequests per second with so many workers, and how many times the rate and the CPU time \
                 per request of the first number that is.\n\n{text}"
            ),
        }
    }
}

impl CellReport {
    /// Its name without the number of workers, if that varies.
    fn shape(&self) -> Option<&str> {
        self.name.strip_suffix(&format!("-w{}", self.workers?))
    }
}

fn step(workers: usize, own: &Row, first: &Row) -> String {
    let times = |own: Option<Spread>, first: Option<Spread>| match own.zip(first) {
        Some((own, first)) => format!("{:.2}", own.median / first.median),
        None => "-".to_owned(),
    };
    format!(
        "{workers}: {} ({}, CPU {})",
        median(own.requests_per_s, 0),
        times(own.requests_per_s, first.requests_per_s),
        times(own.cost, first.cost)
    )
}

#[cfg(test)]
mod tests {
    use crate::bench::report::tests::{figures, report};

    #[test]
    fn rates_and_costs_are_compared_with_those_of_the_first_number() {
        let mut all = report(vec![("nginx", vec![figures(4.0)])]);
        assert!(all.scaling().is_empty());
        let mut other = report(vec![("nginx", vec![figures(5.0)])]).cells.remove(0);
        for (cell, workers) in [(&mut all.cells[0], 1), (&mut other, 2)] {
            cell.name = format!("{}-w{workers}", cell.name);
            cell.workers = Some(workers);
        }
        all.cells.push(other);
        let text = all.scaling();
        assert!(text.contains("CPU 1.00); 2: "), "{text}");
        assert!(text.contains("CPU 1.25)\n"), "{text}");
        assert!(all.markdown().contains(&text));
    }
}
