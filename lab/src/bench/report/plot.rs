//! Plots as SVG: bars for costs and rates, lines for latency and scaling.
//!
//! Drawn 400 units wide with text of size 11, so that they are legible on a phone; the colours
//! follow the reader's light or dark scheme. Costs of zero cannot be shown on a logarithmic axis
//! and are omitted there.

use std::fmt::Write;

use super::{CellReport, Outcome, Report, Row, standing};
use crate::bench::{
    scenario::{Unit, Vary},
    statistics::Spread,
};

/// Width of every plot, in its own units.
const WIDTH: f64 = 400.0;
/// Height of one bar with its gap.
const BAR: f64 = 18.0;
/// Where bars begin, after their labels.
const BARS_LEFT: f64 = 136.0;
/// Space for the figure after the longest bar.
const BARS_RIGHT: f64 = 64.0;
/// The edges of the area of lines.
const LEFT: f64 = 44.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 34.0;
/// Height of the area of lines.
const AREA: f64 = 170.0;
/// Colours that lines can have; `STYLE` defines as many.
const COLOURS: usize = 10;

/// The colours as a style sheet; the page includes it once, each plot file has its own copy.
pub(super) const STYLE: &str = "\
.plot{--good:#0b7a5c;--even:#8a6d1a;--bad:#b42336;--ink:#1f2733;--soft:#667085;--grid:#e4e7ec;--own:#0b7a5c;--other:#8fa1b8;--apart:#cfd6df;
--l0:#0b7a5c;--l1:#43b08f;--l2:#d1495b;--l3:#30638e;--l4:#b8860b;--l5:#7d4fa0;--l6:#c26a2d;
--l7:#4a7c2c;--l8:#667085;--l9:#c43c8b}
@media(prefers-color-scheme:dark){.plot{--good:#3ecf9f;--even:#e6c14a;--bad:#ff7b89;--ink:#e6e9ef;--soft:#98a2b3;--grid:#2c3442;--own:#3ecf9f;
--other:#66788f;--apart:#3a4454;--l0:#3ecf9f;--l1:#1f8f6c;--l2:#ff7b89;--l3:#6fb1e8;--l4:#e6c14a;
--l5:#bd96e0;--l6:#f09a5c;--l7:#96cc72;--l8:#98a2b3;--l9:#ff86c8}}
.plot text{font:11px system-ui,sans-serif;fill:var(--ink)}.plot .soft{fill:var(--soft)}
.plot .title{font-weight:600;font-size:12px}.plot .grid{stroke:var(--grid);stroke-width:1}
.plot .whisker{stroke:var(--ink);stroke-width:1;opacity:.6}.plot .end{text-anchor:end}
.plot .middle{text-anchor:middle}.plot .one{stroke:var(--ink);stroke-width:1;opacity:.7}
.plot .ahead{fill:var(--good)}.plot .level{fill:var(--even)}.plot .behind{fill:var(--bad)}
.plot circle{fill-opacity:.75}.plot path{fill:none;stroke-width:1.8;stroke-linejoin:round}
";

/// One plot.
pub(super) struct Plot {
    title: String,
    height: f64,
    body: String,
}

impl Plot {
    /// A plot of `body`, which is `height` units high.
    pub(super) fn new(title: &str, height: f64, body: String) -> Self {
        let title = title.to_owned();
        Self {
            title,
            height,
            body,
        }
    }

    /// As part of a page that includes [`STYLE`]; `about` describes it for screen readers.
    pub(super) fn inline(&self, about: &str) -> String {
        let (title, height, body) = (escape(&self.title), self.height, &self.body);
        let about = match about {
            "" => String::new(),
            about => format!("{}: ", escape(about)),
        };
        format!(
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" \
             aria-label=\"{about}{title}\" xmlns=\"http://www.w3.org/2000/svg\">\
             <text class=\"title\" x=\"0\" y=\"14\">{title}</text>\n{body}</svg>\n"
        )
    }

    /// As a separate file.
    pub(super) fn file(&self, about: &str) -> String {
        let style = format!("<style>{STYLE}</style>");
        self.inline(about).replacen(
            "<text class=\"title\"",
            &format!("{style}<text class=\"title\""),
            1,
        )
    }
}

/// Every plot of `report`, with its file name.
pub(super) fn of_report(report: &Report) -> Vec<(String, Plot)> {
    let mut plots = Vec::new();
    plots.extend(super::glance::plot(report).map(|plot| ("glance".to_owned(), plot)));
    for cell in &report.cells {
        let named = |kind: &str| format!("{}-{kind}", cell.name);
        plots.push((named("cost"), cost(cell)));
        plots.push((named("rate"), rate(cell)));
        plots.extend(latency(cell).map(|plot| (named("latency"), plot)));
    }
    let mut names: Vec<&str> = report
        .cells
        .iter()
        .map(|c| c.scenario.name.as_str())
        .collect();
    names.dedup();
    for name in names {
        plots.extend(scaling(report, name).map(|plot| (format!("{name}-scaling"), plot)));
    }
    plots
}

/// CPU cost of each peer.
pub(super) fn cost(cell: &CellReport) -> Plot {
    let unit = cell.scenario.unit.label();
    bars(
        &format!("Server CPU, {unit}: less is better"),
        cell,
        |row| row.cost,
        2,
    )
}

/// Throughput of each peer.
pub(super) fn rate(cell: &CellReport) -> Plot {
    match cell.scenario.unit {
        Unit::Request => bars("Responses per second", cell, |row| row.requests_per_s, 0),
        Unit::Gigabyte => bars("Gbit/s", cell, |row| row.gigabits_per_s, 1),
    }
}

/// Latency quantiles of each peer, from its median round.
pub(super) fn latency(cell: &CellReport) -> Option<Plot> {
    let mut series = Vec::new();
    for row in &cell.rows {
        let figures = row.runs.iter().filter_map(Outcome::figures);
        let mut runs: Vec<_> = figures.filter(|f| !f.latency_us.is_empty()).collect();
        runs.sort_by(|a, b| a.cost.total_cmp(&b.cost));
        if let Some(run) = runs.get(runs.len() / 2) {
            let points = run.latency_us.iter().enumerate();
            let points: Vec<_> = points.map(|(i, &(_, us))| (i as f64, us)).collect();
            series.push((row.peer.clone(), points, run.latency_us.clone()));
        }
    }
    let (_, _, quantiles) = series.first()?;
    let ticks = quantiles.iter().enumerate().map(|(i, &(q, _))| {
        let label = match q {
            1.0 => "max".to_owned(),
            q => format!("p{}", (q * 1000.0).round() / 10.0),
        };
        (i as f64, label)
    });
    let ticks: Vec<_> = ticks.collect();
    let series = series.into_iter().map(|(name, points, _)| (name, points));
    let series: Vec<_> = series.collect();
    let label = "quantile (vertical axis logarithmic)";
    lines("Latency, µs, by quantile", label, &ticks, &series)
}

/// The cost of each peer as a function of what varies between the cells of the scenario `name`.
pub(super) fn scaling(report: &Report, name: &str) -> Option<Plot> {
    let cells: Vec<_> = report
        .cells
        .iter()
        .filter(|c| c.scenario.name == name)
        .collect();
    let first = cells.first()?;
    // HTTP/2 cells differ in two dimensions: no line connects them.
    if cells.len() < 3 || cells.iter().any(|cell| cell.streams > 1) {
        return None;
    }
    let x = |cell: &CellReport| cell.value.unwrap_or(cell.connections as u64) as f64;
    let label = match &first.scenario.vary {
        Some(vary) => vary.label(),
        None => "connections",
    };
    let tick = |cell: &&CellReport| (x(cell).log10(), shown_value(cell));
    let mut ticks: Vec<_> = cells.iter().map(tick).collect();
    ticks.dedup_by(|a, b| a.1 == b.1);
    let mut series: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for cell in &cells {
        for row in &cell.rows {
            let Some(cost) = row.cost else { continue };
            let point = (x(cell).log10(), cost.median);
            match series.iter_mut().find(|(peer, _)| *peer == row.peer) {
                Some((_, points)) => points.push(point),
                None => series.push((row.peer.clone(), vec![point])),
            }
        }
    }
    let title = format!("Server CPU, {}, by {label}", first.scenario.unit.label());
    lines(
        &title,
        &format!("{label} (both axes logarithmic)"),
        &ticks,
        &series,
    )
}

/// The varying value of the cell, for an axis: bytes in units of 1024, or a count.
pub(super) fn shown_value(cell: &CellReport) -> String {
    let Some(value) = cell.value else {
        return grouped(cell.connections as f64, 0);
    };
    let sizes = [(1 << 20, "MiB"), (1 << 10, "KiB")];
    let size = sizes
        .into_iter()
        .find(|(unit, _)| value >= *unit && value % unit == 0);
    match (&cell.scenario.vary, size) {
        (Some(Vary::Size(_)), Some((unit, name))) => format!("{} {name}", value / unit),
        _ => short(value as f64),
    }
}

fn bars(title: &str, cell: &CellReport, value: fn(&Row) -> Option<Spread>, digits: usize) -> Plot {
    let rows: Vec<_> = cell
        .rows
        .iter()
        .filter_map(|r| Some((r, value(r)?)))
        .collect();
    let most = rows
        .iter()
        .map(|(_, spread)| spread.max)
        .fold(0.0, f64::max);
    let scale = (WIDTH - BARS_LEFT - BARS_RIGHT) / if most > 0.0 { most } else { 1.0 };
    let mut body = String::new();
    for (index, (row, spread)) in rows.iter().enumerate() {
        let y = 24.0 + index as f64 * BAR;
        let colour = if standing::is_gannet(&row.peer) {
            "own"
        } else if standing::is_apart(&row.peer) {
            "apart"
        } else {
            "other"
        };
        let (middle, width) = (y + 7.0, spread.median * scale);
        let (from, to) = (
            BARS_LEFT + spread.min * scale,
            BARS_LEFT + spread.max * scale,
        );
        let (name, text_y) = (escape(&row.peer), y + 11.0);
        let (label, figure) = (BARS_LEFT - 6.0, to.max(BARS_LEFT + width) + 5.0);
        let _ = writeln!(
            body,
            "<text class=\"end\" x=\"{label}\" y=\"{text_y}\">{name}</text>\
             <rect x=\"{BARS_LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"14\" rx=\"2\" \
             fill=\"var(--{colour})\"/>\
             <line class=\"whisker\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{middle}\" \
             y2=\"{middle}\"/>\
             <text class=\"soft\" x=\"{figure:.1}\" y=\"{text_y}\">{}</text>",
            grouped(spread.median, digits)
        );
    }
    Plot {
        title: title.to_owned(),
        height: 28.0 + rows.len() as f64 * BAR,
        body,
    }
}

type Series = (String, Vec<(f64, f64)>);

/// Lines over `ticks`, with a logarithmic vertical axis; `None` if there is nothing to draw.
fn lines(title: &str, x_label: &str, ticks: &[(f64, String)], series: &[Series]) -> Option<Plot> {
    let all = || {
        series
            .iter()
            .flat_map(|(_, points)| points)
            .filter(|(_, y)| *y > 0.0)
    };
    let low = all()
        .map(|p| p.1)
        .fold(f64::INFINITY, f64::min)
        .log10()
        .floor();
    let high = all()
        .map(|p| p.1)
        .fold(0.0, f64::max)
        .log10()
        .ceil()
        .max(low + 1.0);
    let (first, last) = (ticks.first()?.0, ticks.last()?.0);
    if !low.is_finite() || !high.is_finite() || last <= first {
        return None;
    }
    let at_x = |x: f64| LEFT + (x - first) / (last - first) * (WIDTH - LEFT - RIGHT);
    let at_y = |y: f64| TOP + AREA - (y.log10() - low) / (high - low) * AREA;
    let mut body = String::new();
    for decade in low as i32..=high as i32 {
        let value = 10f64.powi(decade);
        let (y, right, label) = (at_y(value), WIDTH - RIGHT, short(value));
        let _ = writeln!(
            body,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text class=\"soft end\" x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
            LEFT - 6.0,
            y + 4.0
        );
    }
    for (x, label) in ticks {
        let (x, y) = (at_x(*x), TOP + AREA + 15.0);
        // A long label at the right edge would be cut off.
        let (x, anchor) = match x + 3.0 * label.len() as f64 > WIDTH {
            true => (WIDTH, "end"),
            false => (x, "middle"),
        };
        let _ = writeln!(
            body,
            "<text class=\"soft {anchor}\" x=\"{x:.1}\" y=\"{y}\">{}</text>",
            escape(label)
        );
    }
    let _ = writeln!(
        body,
        "<text class=\"soft middle\" x=\"{}\" y=\"{}\">{}</text>",
        WIDTH / 2.0,
        TOP + AREA + 29.0,
        escape(x_label)
    );
    let legend = TOP + AREA + BOTTOM + 8.0;
    for (index, (name, points)) in series.iter().enumerate() {
        let colour = colour_of(name, index);
        let mut path = String::new();
        for (x, y) in points.iter().filter(|(_, y)| *y > 0.0) {
            let command = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{command}{:.1} {:.1}", at_x(*x), at_y(*y));
        }
        let (column, row) = (index % 2, index / 2);
        let (x, y) = (LEFT + column as f64 * 176.0, legend + row as f64 * 16.0);
        // The two forms of gannet have similar colours, and so have peers beyond the last colour.
        let again = index >= COLOURS && name_colour(name).is_none();
        let dash = match again || name == "gannet-directory" {
            true => " stroke-dasharray=\"5 3\"",
            false => "",
        };
        let _ = writeln!(
            body,
            "<path d=\"{path}\" stroke=\"var(--l{colour})\"{dash}/>\
             <path d=\"M{x} {y}h16\" stroke=\"var(--l{colour})\"{dash}/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            x + 22.0,
            y + 4.0,
            escape(name)
        );
    }
    Some(Plot {
        title: title.to_owned(),
        height: legend + series.len().div_ceil(2) as f64 * 16.0,
        body,
    })
}

/// The servers with fixed colours in every plot.
const NAMED: [&str; 6] = [
    "gannet-archive",
    "gannet-directory",
    "nginx",
    "h2o",
    "lighttpd",
    "caddy",
];

fn name_colour(name: &str) -> Option<usize> {
    NAMED.iter().position(|known| *known == name)
}

fn colour_of(name: &str, index: usize) -> usize {
    let rest = COLOURS - NAMED.len();
    name_colour(name).unwrap_or(NAMED.len() + index % rest)
}

/// A number with digits grouped in thousands: `170 207`, `5.84`. The space is a narrow one.
pub(super) fn grouped(value: f64, digits: usize) -> String {
    let plain = format!("{value:.digits$}");
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    let mut text = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 && whole.len() > 4 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text + rest
}

/// A short form of a number: `1k`, `10M`, `0.1`.
pub(super) fn short(value: f64) -> String {
    let (scaled, suffix) = match value {
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e3 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let text = match scaled {
        s if s >= 100.0 || s.fract() == 0.0 => format!("{s:.0}"),
        s => format!("{s:.2}")
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned(),
    };
    text + suffix
}

/// Escapes `text` for HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::{figures, report};

    #[test]
    fn numbers_are_short() {
        for (value, expect) in [
            (1.0, "1"),
            (0.1, "0.1"),
            (1024.0, "1.02k"),
            (104_857_600.0, "105M"),
            (1e6, "1M"),
        ] {
            assert_eq!(short(value), expect);
        }
        for (value, digits, expect) in [
            (170_207.4, 0, "170\u{202f}207"),
            (1_234_567.0, 0, "1\u{202f}234\u{202f}567"),
            (1234.0, 0, "1234"),
            (12_345.67, 1, "12\u{202f}345.7"),
            (5.844, 2, "5.84"),
        ] {
            assert_eq!(grouped(value, digits), expect);
        }
    }

    #[test]
    fn failed_runs_are_not_drawn_and_names_are_escaped() {
        let failed = Outcome::Failed("dead".into());
        let report = report(vec![
            ("a<b", vec![figures(4.0), figures(5.0)]),
            ("gone", vec![failed.clone(), failed]),
        ]);
        let plots = of_report(&report);
        let names: Vec<_> = plots.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "plaintext-c1-cost",
                "plaintext-c1-rate",
                "plaintext-c1-latency"
            ]
        );
        for (name, plot) in &plots {
            let text = plot.file("here");
            assert!(
                text.contains("a&lt;b") && !text.contains("gone"),
                "{name}: {text}"
            );
        }
    }
}
