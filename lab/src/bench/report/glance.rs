//! The result at a glance: in how many comparisons gannet is ahead, level or behind, and where.

use std::fmt::Write;

use super::{
    CellReport, Report,
    standing::{self, Standing, Verdict},
};
use crate::bench::{
    programs::Program,
    scenario::{Protocol, Scenario},
    statistics::Spread,
};

/// The sections of a report, in order: cells of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    /// HTTP/1.1 in clear text.
    H1,
    /// HTTP/1.1 over TLS.
    Https,
    /// HTTP/2, in clear text and over TLS.
    H2,
    /// The same over HTTP/3.
    H3,
    /// The same with other load clients.
    Clients,
    /// Downloads of one large file.
    Downloads,
}

impl Section {
    /// All of them.
    pub(super) const ALL: [Self; 6] = [
        Self::H1,
        Self::Https,
        Self::H2,
        Self::H3,
        Self::Clients,
        Self::Downloads,
    ];

    /// The section of `scenario`.
    pub(super) fn of(scenario: &Scenario) -> Self {
        let load = &scenario.load;
        match (load.client, load.protocol, load.tls) {
            (Some(Program::Ab | Program::Oha | Program::Wrk), ..) => Self::Clients,
            (Some(_), ..) if scenario.name.starts_with("download") => Self::Downloads,
            (Some(_), ..) => Self::Clients,
            (None, Protocol::H2, _) => Self::H2,
            (None, Protocol::H3, _) => Self::H3,
            (None, Protocol::H1, Some(_)) => Self::Https,
            (None, Protocol::H1, None) => Self::H1,
        }
    }

    /// Its heading.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::H1 => "HTTP/1.1",
            Self::Https => "HTTPS",
            Self::H2 => "HTTP/2",
            Self::H3 => "HTTP/3",
            Self::Clients => "Other clients",
            Self::Downloads => "Downloads",
        }
    }

    /// Whether `cell` belongs in it.
    pub(super) fn has(self, cell: &CellReport) -> bool {
        Self::of(&cell.scenario) == self
    }
}

/// The number of comparisons with each verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// gannet costs less in every round.
    pub(super) ahead: usize,
    /// Rounds disagree.
    pub(super) level: usize,
    /// gannet costs more in every round, or much more in the median.
    pub(super) behind: usize,
}

impl Tally {
    /// Counts the verdicts of `standings`.
    pub(super) fn of<'a>(standings: impl IntoIterator<Item = &'a Standing<'a>>) -> Self {
        let mut tally = Self::default();
        for standing in standings {
            match standing.verdict {
                Verdict::Ahead => tally.ahead += 1,
                Verdict::Level => tally.level += 1,
                Verdict::Behind => tally.behind += 1,
            }
        }
        tally
    }

    /// The number of comparisons.
    pub(super) fn all(self) -> usize {
        self.ahead + self.level + self.behind
    }
}

/// One sentence: the verdicts, and the median cost as a ratio to nginx.
pub(super) fn sentence(report: &Report) -> String {
    let standings = report.all_standings();
    let tally = Tally::of(&standings);
    let Tally {
        ahead,
        level,
        behind,
    } = tally;
    let all = tally.all();
    let mut text = format!(
        "Of {all} comparisons with the cheapest other server gannet is ahead in {ahead}, level in \
         {level} and behind in {behind}."
    );
    let nginx = standings.iter().filter_map(|s| s.gannet.ratio);
    if let Some(middle) = Spread::of(nginx.map(|ratio| ratio.median)) {
        let _ = write!(
            text,
            " The median of its costs is {:.2} of nginx's.",
            middle.median
        );
    }
    text
}

/// What the picture shows.
pub(super) const TITLE: &str = "CPU cost as a ratio to the cheapest other server (logarithmic)";
/// Width of the picture. Its text has size 11, so that it is legible on a phone.
const WIDTH: f64 = 400.0;
/// Edges of its area, and the height of a row.
const LEFT: f64 = 92.0;
const RIGHT: f64 = 340.0;
const TOP: f64 = 46.0;
const ROW: f64 = 34.0;
/// Ratios at the ends of the axis; ratios beyond are drawn at the end.
const RATIO_MIN: f64 = 0.25;
const RATIO_MAX: f64 = 4.0;

/// Its colours follow the reader's light or dark scheme.
const STYLE: &str = "\
svg{--good:#0b7a5c;--even:#8a6d1a;--bad:#b42336;--ink:#1f2733;--soft:#667085;--grid:#e4e7ec}
@media(prefers-color-scheme:dark){svg{--good:#3ecf9f;--even:#e6c14a;--bad:#ff7b89;--ink:#e6e9ef;
--soft:#98a2b3;--grid:#2c3442}}
text{font:11px system-ui,sans-serif;fill:var(--ink)}.soft{fill:var(--soft)}
.title{font-weight:600;font-size:12px}.grid{stroke:var(--grid)}.end{text-anchor:end}
.middle{text-anchor:middle}.one{stroke:var(--ink);opacity:.7}
.ahead{fill:var(--good)}.level{fill:var(--even)}.behind{fill:var(--bad)}circle{fill-opacity:.75}
";

/// Draws every comparison as a dot on one axis, with a row per section, as SVG; `None` if there are
/// none.
pub(super) fn picture(report: &Report) -> Option<String> {
    let standings = report.all_standings();
    let rows: Vec<_> = Section::ALL
        .into_iter()
        .map(|section| {
            let of_it = standings.iter().filter(|s| section.has(s.cell));
            (section, of_it.collect::<Vec<_>>())
        })
        .filter(|(_, of_it)| !of_it.is_empty())
        .collect();
    if rows.is_empty() {
        return None;
    }
    let at = |ratio: f64| {
        let share = (ratio.clamp(RATIO_MIN, RATIO_MAX) / RATIO_MIN).ln();
        LEFT + share / (RATIO_MAX / RATIO_MIN).ln() * (RIGHT - LEFT)
    };
    let bottom = TOP + rows.len() as f64 * ROW;
    let mut body = axis(bottom, at);
    for (index, (section, of_it)) in rows.iter().enumerate() {
        let y = TOP + (index as f64 + 0.5) * ROW;
        let tally = Tally::of(of_it.iter().copied());
        let _ = writeln!(
            body,
            "<text class=\"end\" x=\"{}\" y=\"{}\">{}</text>\
             <text x=\"{}\" y=\"{}\"><tspan class=\"ahead\">{}</tspan> · \
             <tspan class=\"level\">{}</tspan> · <tspan class=\"behind\">{}</tspan></text>",
            LEFT - 10.0,
            y + 4.0,
            section.title(),
            RIGHT + 10.0,
            y + 4.0,
            tally.ahead,
            tally.level,
            tally.behind
        );
        for (turn, standing) in of_it.iter().enumerate() {
            // Spreads dots of similar ratios, which would hide each other on one line.
            let offset = (turn % 5) as f64 * 4.0 - 8.0;
            let (x, name) = (at(standing.ratio.median), &standing.cell.name);
            let (word, best) = (standing.verdict.word(), &standing.best.peer);
            let title = format!(
                "{name}, {}: {} of {best}, {word}",
                standing.gannet.peer,
                standing::show(standing.ratio)
            );
            let _ = writeln!(
                body,
                "<circle class=\"{word}\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"3\"><title>{}</title>\
                 </circle>",
                y + offset,
                escape(&title)
            );
        }
    }
    let height = bottom + 22.0;
    Some(format!(
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{TITLE}\" \
         xmlns=\"http://www.w3.org/2000/svg\"><style>{STYLE}</style>\
         <text class=\"title\" x=\"0\" y=\"14\">{TITLE}</text>\n{body}</svg>\n"
    ))
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

/// The axis of ratios with its labels.
fn axis(bottom: f64, at: impl Fn(f64) -> f64) -> String {
    let mut body = String::new();
    for ratio in [0.25, 0.5, 1.0, 2.0, 4.0] {
        let (x, class) = (at(ratio), if ratio == 1.0 { "one" } else { "grid" });
        let _ = writeln!(
            body,
            "<line class=\"{class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{}\" y2=\"{bottom}\"/>\
             <text class=\"soft middle\" x=\"{x:.1}\" y=\"{}\">{ratio}</text>",
            TOP - 4.0,
            bottom + 14.0
        );
    }
    let (less, more, y) = (at(0.5), at(2.0), TOP - 12.0);
    let _ = writeln!(
        body,
        "<text class=\"soft middle\" x=\"{less:.1}\" y=\"{y}\">gannet costs less</text>\
         <text class=\"soft middle\" x=\"{more:.1}\" y=\"{y}\">costs more</text>"
    );
    body
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::{
        Outcome,
        tests::{figures, report},
    };
    use super::*;
    use crate::bench::scenario;

    #[test]
    fn every_scenario_has_a_section() {
        let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let scenarios = scenario::read_all(&directory).expect("the project's own");
        for (name, section) in [
            ("plaintext", Section::H1),
            ("handshake-rsa", Section::Https),
            ("h2c-10k", Section::H2),
            ("wrk-connections", Section::Clients),
            ("oha-h2-plaintext", Section::Clients),
            ("curl-https-h2", Section::Clients),
            ("download-https-curl", Section::Downloads),
            ("download-h2-gannet", Section::Downloads),
        ] {
            let found = scenarios.iter().find(|s| s.name == name);
            assert_eq!(Section::of(found.expect("listed")), section, "{name}");
        }
    }

    #[test]
    fn verdicts_are_counted_and_drawn() {
        let clean = |cost: f64| {
            let Outcome::Figures(mut figures) = figures(cost) else {
                unreachable!("made so");
            };
            figures.flags.clear();
            Outcome::Figures(figures)
        };
        let report = report(vec![
            ("nginx", vec![clean(2.0), clean(2.0)]),
            ("gannet-archive", vec![clean(1.0), clean(1.0)]),
            ("gannet-directory", vec![clean(100.0), clean(100.0)]),
        ]);
        assert_eq!(
            sentence(&report),
            "Of 2 comparisons with the cheapest other server gannet is ahead in 1, level in 0 and \
             behind in 1. The median of its costs is 25.25 of nginx's."
        );
        let drawn = picture(&report).expect("two comparisons");
        assert_eq!(drawn.matches("<circle").count(), 2, "{drawn}");
        // A ratio of 50 is drawn at the end.
        assert!(drawn.contains("class=\"behind\" cx=\"340.0\""), "{drawn}");
        assert!(picture(&super::super::tests::report(Vec::new())).is_none());
    }
}
