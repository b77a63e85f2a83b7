//! The page: a single file without scripts, for light and dark screens and for phones.

use std::fmt::Write;

use super::{
    CellReport, Report,
    glance::{self, Section, Tally},
    history::{self, Earlier},
    markdown, plot,
    plot::escape,
    standing,
};
use crate::bench::{scenario::Vary, statistics::Spread};

const STYLE: &str = "\
:root{color-scheme:light dark;--back:#fcfcfd;--card:#fff;--text:#1f2733;--dim:#667085;--line:#e4e7ec;
--good:#0b7a5c;--even:#8a6d1a;--bad:#b42336;--link:#0b6e8a}
@media(prefers-color-scheme:dark){:root{--back:#12161d;--card:#191f29;--text:#e6e9ef;--dim:#98a2b3;
--line:#2c3442;--good:#3ecf9f;--even:#e6c14a;--bad:#ff7b89;--link:#7cc7e0}}
*{box-sizing:border-box}html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--back);color:var(--text);font:16px/1.55 system-ui,sans-serif}
main,header,footer{max-width:1120px;margin:0 auto;padding:0 20px}
header{padding-top:48px}h1{font-size:2rem;line-height:1.2;margin:0 0 8px}
h2{font-size:1.5rem;margin:56px 0 8px;padding-top:20px;border-top:1px solid var(--line)}
h3{font-size:1.1rem;margin:36px 0 4px}h4{font-size:.95rem;margin:20px 0 6px}
h3+p{margin:0 0 10px}
.tiles{display:grid;grid-template-columns:repeat(3,1fr);gap:12px;max-width:620px;margin:18px 0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.tiles b{display:block;font-size:2rem;line-height:1.15;font-variant-numeric:tabular-nums}
.glance{max-width:620px}figure{margin:0;min-width:0}
figcaption{font-size:.92rem;font-weight:600;margin:6px 0}
p{max-width:72ch}a{color:var(--link)}.dim{color:var(--dim)}
.wide{overflow-x:auto;-webkit-overflow-scrolling:touch}
table{border-collapse:collapse;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:6px 10px;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:600;color:var(--dim);white-space:nowrap}td.n{white-space:nowrap}
td.notes{min-width:17em}
tr.own td:first-child{color:var(--good);font-weight:600}
.ahead{color:var(--good)}.level{color:var(--even)}.behind,.worse{color:var(--bad)}
.better{color:var(--good)}
.plots{display:grid;gap:18px;grid-template-columns:repeat(auto-fill,minmax(min(340px,100%),1fr));
align-items:start}
.plots svg,.glance svg{width:100%;height:auto;background:var(--card);border:1px solid var(--line);
border-radius:8px;padding:10px}
details{margin:8px 0}summary{cursor:pointer;color:var(--link)}
pre{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px;
padding:12px;font-size:.82rem}
nav{display:flex;flex-wrap:wrap;gap:4px 16px;font-size:.92rem}
figcaption small{font-weight:400;white-space:nowrap}
a,td,th,code,pre{overflow-wrap:break-word}
.note{border-left:3px solid var(--even);padding:4px 14px;margin:16px 0}
footer{padding:40px 20px 60px;color:var(--dim);font-size:.9rem}
@media(max-width:600px){h1{font-size:1.55rem}header{padding-top:28px}th,td{padding:5px 7px}}
";

/// The whole page of `report`.
pub(super) fn write(report: &Report, earlier: &[Earlier]) -> String {
    let mut page = String::new();
    let (date, machine) = (escape(&report.date), &report.machine);
    let (cpu, kernel) = (escape(&machine.cpu), escape(&machine.kernel));
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <title>gannet measured, {date}</title>\n<style>\n{STYLE}{}</style>\n</head>\n<body>\n\
         <header>\n<h1>gannet measured beside other servers</h1>\n\
         <p class=\"dim\">{date} · {} CPUs, {cpu} · Linux {kernel}</p>\n",
        plot::STYLE,
        machine.cpus
    );
    let standings = report.all_standings();
    if !standings.is_empty() && !report.quick {
        let sentence = escape(&glance::sentence(report));
        let _ = writeln!(page, "<p><strong>{sentence}</strong></p>");
    }
    page.push_str(
        "<p>The figure to compare is the CPU time that a server spends for a response, or for a \
         gigabyte: it says how much of a machine is left for everything else. Requests per second \
         depend on which side was the bottleneck and stand beside it. Whiskers are the smallest \
         and the largest of all rounds.</p>\n",
    );
    if report.quick {
        page.push_str(
            "<p class=\"note\">A quick run: it proves that everything runs. These are \
                       not figures.</p>\n",
        );
    }
    write_nav(&mut page, report, earlier);
    page.push_str("</header>\n<main>\n");
    write_standings(&mut page, report);
    write_ceiling(&mut page, report);
    write_sections(&mut page, report);
    write_history(&mut page, report, earlier);
    write_method(&mut page, report);
    page.push_str(
        "</main>\n<footer>Made by <code>cargo xtask bench</code> from report.json.gz, \
                   which has every run.</footer>\n</body>\n</html>\n",
    );
    page
}

/// The names of the scenarios of `section`.
fn scenarios(report: &Report, section: Section) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for cell in report.cells.iter().filter(|cell| section.has(cell)) {
        if !names.contains(&cell.scenario.name.as_str()) {
            names.push(&cell.scenario.name);
        }
    }
    names
}

fn write_nav(page: &mut String, report: &Report, earlier: &[Earlier]) {
    page.push_str("<nav>\n<a href=\"#standing\">How gannet stands</a>\n");
    if !report.over_ceiling().is_empty() {
        page.push_str("<a href=\"#ceiling\">What content costs</a>\n");
    }
    for section in Section::ALL {
        if !scenarios(report, section).is_empty() {
            let (id, title) = (section.id(), section.title());
            let _ = writeln!(page, "<a href=\"#{id}\">{title}</a>");
        }
    }
    if !history::changes(report, earlier).is_empty() {
        page.push_str("<a href=\"#history\">Against earlier results</a>\n");
    }
    page.push_str(
        "<a href=\"#method\">Method</a>\n<a href=\"#peers\">Configurations</a>\n</nav>\n",
    );
}

fn write_standings(page: &mut String, report: &Report) {
    let standings = report.all_standings();
    if standings.is_empty() {
        return;
    }
    let tally = Tally::of(&standings);
    let _ = write!(
        page,
        "<h2 id=\"standing\">How gannet stands</h2>\n<p>Each workload, from an archive and from a \
         directory, against the cheapest other server in the same round: below 1 gannet costs \
         less. <b class=\"ahead\">Ahead</b> means in every round, <b class=\"behind\">behind</b> in \
         every round or by more than a tenth in the median; otherwise it is <b \
         class=\"level\">level</b>.</p>\n\
         <div class=\"tiles\"><div><b class=\"ahead\">{}</b>ahead</div>\
         <div><b class=\"level\">{}</b>level</div>\
         <div><b class=\"behind\">{}</b>behind</div></div>\n",
        tally.ahead, tally.level, tally.behind
    );
    if let Some(plot) = glance::plot(report) {
        let about = glance::sentence(report);
        let _ = writeln!(page, "<div class=\"glance\">{}</div>", plot.inline(&about));
    }
    let lost = report.not_ahead();
    if !lost.is_empty() {
        let count = lost.len();
        let _ = writeln!(
            page,
            "<details><summary>The {count} in which gannet is not ahead</summary>\n<ul>"
        );
        for line in lost {
            let _ = writeln!(page, "<li>{}</li>", escape(&line));
        }
        page.push_str("</ul></details>\n");
    }
    page.push_str(
        "<details><summary>All comparisons</summary>\n<div class=\"wide\"><table>\n\
         <tr><th>workload</th><th>gannet</th><th></th><th>ratio to cheapest other</th>\
         <th>which</th><th>ratio to nginx</th></tr>\n",
    );
    for s in &standings {
        let nginx = markdown::spread(s.gannet.ratio, 2);
        let _ = writeln!(
            page,
            "<tr><td><a href=\"#{cell}\">{cell}</a></td><td>{}</td><td class=\"{word}\">{word}</td>\
             <td class=\"n\">{}</td><td>{}</td><td class=\"n\">{nginx}</td></tr>",
            escape(s.gannet.peer.trim_start_matches("gannet-")),
            standing::show(s.ratio),
            escape(&s.best.peer),
            cell = escape(&s.cell.name),
            word = s.verdict.word(),
        );
    }
    page.push_str("</table></div></details>\n");
}

fn write_ceiling(page: &mut String, report: &Report) {
    let all = report.over_ceiling();
    if all.is_empty() {
        return;
    }
    let median = Spread::of(all.iter().map(|(_, _, ratio)| ratio.median));
    let median = median.map_or(1.0, |spread| spread.median);
    let about = escape(standing::OVER_CEILING).replace("`--dummy`", "<code>--dummy</code>");
    let _ = writeln!(
        page,
        "<h2 id=\"ceiling\">What content costs</h2>\n<p>{about} The median of all is <b>{median:.2}</b>.</p>\n\
         <details><summary>Each workload</summary>\n<div class=\"wide\"><table>\n\
         <tr><th>workload</th><th>gannet</th><th>ratio to the constant</th></tr>"
    );
    for (cell, row, ratio) in all {
        let _ = writeln!(
            page,
            "<tr><td><a href=\"#{name}\">{name}</a></td><td>{}</td><td class=\"n\">{}</td></tr>",
            escape(row.peer.trim_start_matches("gannet-")),
            standing::show(ratio),
            name = escape(&cell.name)
        );
    }
    page.push_str("</table></div></details>\n");
}

fn write_sections(page: &mut String, report: &Report) {
    for section in Section::ALL {
        let names = scenarios(report, section);
        if names.is_empty() {
            continue;
        }
        let (id, title) = (section.id(), section.title());
        let _ = writeln!(page, "<h2 id=\"{id}\">{title}</h2>\n<nav>");
        for name in &names {
            let _ = writeln!(page, "<a href=\"#{0}\">{0}</a>", escape(name));
        }
        page.push_str("</nav>\n");
        for name in names {
            write_scenario(page, report, name);
        }
    }
}

/// A scenario: the costs of its cells side by side, with everything else collapsed.
fn write_scenario(page: &mut String, report: &Report, name: &str) {
    let cells = report.cells.iter().filter(|c| c.scenario.name == name);
    let cells: Vec<_> = cells.collect();
    let Some(first) = cells.first() else { return };
    let (title, origin) = (&first.scenario.title, &first.scenario.origin);
    let _ = writeln!(
        page,
        "<h3 id=\"{0}\">{0}: {1}</h3>\n<p class=\"dim\">{2}</p>\n<div class=\"plots\">",
        escape(name),
        escape(title),
        escape(origin)
    );
    if let Some(plot) = plot::scaling(report, name) {
        let _ = writeln!(
            page,
            "<figure><figcaption>All together</figcaption>{}</figure>",
            plot.inline(name)
        );
    }
    for cell in &cells {
        let (id, shape, pace) = (escape(&cell.name), shape(cell), report.pace_line(cell));
        let _ = writeln!(
            page,
            "<figure id=\"{id}\"><figcaption>{shape} <small class=\"dim\">{pace}</small>\
             </figcaption>{}</figure>",
            plot::cost(cell).inline(&cell.name)
        );
    }
    page.push_str("</div>\n<details><summary>Rates, latency, memory and notes</summary>\n");
    for cell in &cells {
        write_cell(page, cell);
    }
    page.push_str("</details>\n");
}

/// The parameters of a cell within its scenario, in words.
fn shape(cell: &CellReport) -> String {
    let streams = match cell.streams {
        1 => String::new(),
        n => format!(", {n} streams each"),
    };
    let connections = match cell.connections {
        1 => "1 connection".to_owned(),
        n => format!("{} connections", plot::grouped(n as f64, 0)),
    };
    let value = match (&cell.scenario.vary, cell.value) {
        (Some(Vary::Size(_)), Some(_)) => format!("{} a file, ", plot::shown_value(cell)),
        (Some(Vary::Files(_)), Some(n)) => format!("{} files, ", plot::grouped(n as f64, 0)),
        (None, _) | (_, None) => String::new(),
    };
    format!("{value}{connections}{streams}")
}

fn write_cell(page: &mut String, cell: &CellReport) {
    let _ = writeln!(page, "<h4>{}</h4>\n<div class=\"plots\">", shape(cell));
    page.push_str(&plot::rate(cell).inline(&cell.name));
    if let Some(plot) = plot::latency(cell) {
        page.push_str(&plot.inline(&cell.name));
    }
    page.push_str("</div>\n<div class=\"wide\"><table>\n<tr>");
    for heading in markdown::headings(cell.scenario.unit) {
        let _ = write!(page, "<th>{}</th>", escape(&heading));
    }
    page.push_str("</tr>\n");
    for row in &cell.rows {
        let class = if standing::is_gannet(&row.peer) {
            "own"
        } else {
            ""
        };
        let _ = write!(page, "<tr class=\"{class}\">");
        let columns = row.columns(cell.scenario.unit);
        for (index, text) in columns.iter().enumerate() {
            let class = if index == columns.len() - 1 {
                " class=\"notes\""
            } else {
                " class=\"n\""
            };
            let _ = write!(page, "<td{class}>{}</td>", escape(text));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></div>\n");
}

fn write_history(page: &mut String, report: &Report, earlier: &[Earlier]) {
    let changes = history::changes(report, earlier);
    if changes.is_empty() {
        return;
    }
    let count = |word: &str| changes.iter().filter(|c| c.word() == word).count();
    let (better, worse, all) = (count("better"), count("worse"), changes.len());
    let _ = write!(
        page,
        "<h2 id=\"history\">Against earlier results</h2>\n<p>Ratios to nginx on the same kind of \
         CPU: of {all} that were measured before, <b class=\"better\">{better} are better</b>, \
         <b class=\"worse\">{worse} worse</b>. A change is named where the medians differ by more \
         than 5 % and no rounds overlap.</p>\n<details><summary>Each of them</summary>\n\
         <div class=\"wide\"><table>\n<tr><th>cell</th><th>gannet</th><th>now</th>\
         <th>before</th><th>result</th><th></th></tr>\n"
    );
    for change in &changes {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td>\
             <td class=\"{word}\">{word}</td></tr>",
            escape(&change.cell),
            escape(change.peer.trim_start_matches("gannet-")),
            standing::show(change.now),
            standing::show(change.before.0),
            escape(&change.before.1),
            word = change.word()
        );
    }
    page.push_str("</table></div></details>\n");
}

fn write_method(page: &mut String, report: &Report) {
    page.push_str("<h2 id=\"method\">Method</h2>\n<ul>\n");
    for line in report.method_lines() {
        let _ = writeln!(page, "<li>{}</li>", escape(&line));
    }
    page.push_str("</ul>\n<h2 id=\"peers\">Configurations</h2>\n");
    for peer in &report.peers {
        let _ = writeln!(
            page,
            "<details><summary>{}: {}</summary><pre>{}</pre></details>",
            escape(&peer.name),
            escape(&peer.version),
            escape(peer.configuration.trim_end())
        );
    }
}
