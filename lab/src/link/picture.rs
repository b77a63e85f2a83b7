//! The picture of page loads (SVG): a bar for each server and protocol, from the start of the
//! navigation to the last byte, with marks for the first byte and the first paint.

use std::fmt::Write;

use super::report::{FIGURES, Report};

const WIDTH: f64 = 640.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 64.0;
const BAR: f64 = 14.0;
const STEP: f64 = 19.0;

const STYLE: &str = "\
svg{--ink:#1f2733;--soft:#667085;--own:#0b7a5c;--other:#8fa1b8}\
@media(prefers-color-scheme:dark){svg{--ink:#e6e9ef;--soft:#98a2b3;--own:#3ecf9f;--other:#66788f}}\
text{font:11px system-ui,sans-serif;fill:var(--ink)}.soft{fill:var(--soft)}\
.title{font-weight:600;font-size:13px}.end{text-anchor:end}\
.own{fill:var(--own)}.other{fill:var(--other)}.s0{opacity:.3}.s1{opacity:.6}";

/// Draws the picture.
pub(crate) fn draw(report: &Report) -> String {
    let mut body = String::new();
    let mut y = 8.0;
    for (link, link_text) in report.links() {
        let of_link = || report.cells.iter().filter(|cell| cell.link == link);
        let last = |cell| super::report::Cell::spread(cell, FIGURES[2].1);
        let longest = of_link().filter_map(last).map(|it| it.median);
        let longest = longest.fold(1.0, f64::max);
        y += 16.0;
        let _ = write!(
            body,
            "<text class='title' x='8' y='{y}'>{link}: {link_text}</text>"
        );
        y += 8.0;
        let mut protocol = None;
        for cell in of_link() {
            if protocol.is_some_and(|before| before != cell.protocol) {
                y += 6.0;
            }
            protocol = Some(cell.protocol);
            let (x, middle) = (LEFT - 6.0, y + BAR - 3.0);
            let name = format!("{} {}", cell.protocol.name(), cell.server);
            let _ = write!(body, "<text class='end' x='{x}' y='{middle}'>{name}</text>");
            let class = match cell.server.as_str() {
                "gannet" => "own",
                _ => "other",
            };
            let mut from = 0.0;
            for (part, (_, figure)) in FIGURES.iter().enumerate() {
                let Some(spread) = cell.spread(*figure) else {
                    continue;
                };
                let scale = |time: f64| time / longest * (WIDTH - LEFT - RIGHT);
                let (x, width) = (LEFT + scale(from), scale((spread.median - from).max(0.0)));
                let _ = write!(
                    body,
                    "<rect class='{class} s{part}' x='{x:.1}' y='{y}' width='{width:.1}' \
                     height='{BAR}'/>"
                );
                from = spread.median;
            }
            let (x, text) = match &cell.left_out {
                Some(_) => (LEFT, "left out".to_owned()),
                None => {
                    let end = from / longest * (WIDTH - LEFT - RIGHT);
                    (LEFT + end + 4.0, format!("{from:.0} ms"))
                }
            };
            let _ = write!(
                body,
                "<text class='soft' x='{x:.1}' y='{middle}'>{text}</text>"
            );
            y += STEP;
        }
        y += 10.0;
    }
    let y = y + 8.0;
    let _ = write!(
        body,
        "<text class='soft' x='8' y='{y}'>Medians: to the first byte (faint), to the first paint, to the \
         last byte (full).</text>"
    );
    let height = y + 12.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">\
         <title>Page loads</title><style>{STYLE}</style>{body}</svg>\n"
    )
}
