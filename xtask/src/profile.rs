//! A flame graph of one worker under load: what it spends its time on, by perf.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;
use xtask::process;
use xtask::served::Served;

use crate::program::Program;

const HELP: &str = "\
cargo xtask profile [FLAGS] [SITE]

  SITE             what is served: docs
  --path PATH      what is requested: /manual/index.md
  --seconds N      for how long: 10
  --out FILE       the picture: target/profile.svg
  --program FILE   a gannet that is built already, with its symbols
";

/// What is measured.
struct Options {
    site: String,
    path: String,
    seconds: u32,
    out: PathBuf,
    program: Option<PathBuf>,
}

/// Draws the flame graph, or says what is missing for it.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let mut options = Options {
        site: "docs".into(),
        path: "/manual/index.md".into(),
        seconds: 10,
        out: process::target().join("profile.svg"),
        program: None,
    };
    while let Some(argument) = parser.next()? {
        match argument {
            Value(site) => options.site = site.string()?,
            Long("path") => options.path = parser.value()?.string()?,
            Long("seconds") => options.seconds = parser.value()?.parse()?,
            Long("out") => options.out = parser.value()?.into(),
            Long("program") => options.program = Some(parser.value()?.into()),
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let perf = process::find_or_install("perf", "linux-perf")?;
    let client = process::find_or_install("wrk", "wrk")?;
    let what = ["--package", "gannet", "--bin", "gannet"];
    let gannet = Program::of(options.program.take());
    let gannet = gannet.path_or(|| process::build(&what, "instructions"))?;
    let mut serve = Command::new(gannet);
    serve.args(["serve", &options.site, "--listen", "127.0.0.1:0"]);
    serve.args(["--workers", "1", "--log", "off"]);
    let served = Served::start(&mut serve)?.context("gannet does not serve")?;
    let url = format!("http://127.0.0.1:{}{}", served.port, options.path);
    let seconds = options.seconds.to_string();
    let samples = process::target().join("profile.perf");
    let mut load = Command::new(client);
    // Longer than what is recorded: perf takes a while to begin.
    let longer = format!("-d{}s", options.seconds.saturating_add(2));
    load.args(["-t1", "-c64", &longer, &url]);
    let load = std::thread::spawn(move || process::capture(&mut load));
    let mut record = Command::new(&perf);
    // Machines without counters have a clock.
    record.args(["record", "-q", "-e", "cpu-clock", "-F", "499"]);
    record
        .args(["--call-graph", "dwarf,8192", "-o"])
        .arg(&samples);
    record.args(["-p", &served.pid().to_string(), "--", "sleep", &seconds]);
    process::capture(&mut record).context("perf may need root, or kernel.perf_event_paranoid=1")?;
    let load = load
        .join()
        .map_err(|_| anyhow::anyhow!("the client ended"))??;
    ensure!(!load.contains("Non-2xx"), "not what was requested:\n{load}");
    drop(served);
    let mut script = Command::new(&perf);
    script.args(["script", "--no-inline", "-F", "comm,ip,sym", "-i"]);
    let text = process::capture(script.arg(&samples))?;
    let flames = Flames::of(&text);
    ensure!(flames.count > 0, "perf has no samples");
    fs::write(&options.out, flames.picture())?;
    println!("{load}");
    println!("{}: {} samples", options.out.display(), flames.count);
    Ok(())
}

/// Samples of stacks, by their common beginnings.
#[derive(Default)]
struct Flames {
    count: u64,
    below: BTreeMap<String, Flames>,
}

/// A stack is cut there: deeper ones are loops of the unwinder.
const DEPTH_MAX: usize = 96;

impl Flames {
    /// Reads what `perf script` prints: of each sample a line with its thread, then its frames, the innermost
    /// first.
    fn of(text: &str) -> Self {
        let mut all = Self::default();
        let mut stack = Vec::new();
        for line in text.lines().chain([""]) {
            let is_frame = line.starts_with([' ', '\t']);
            match line.trim().split_once(' ') {
                Some((_, symbol)) if is_frame => stack.push(name_of(symbol)),
                _ if is_frame => stack.push("[unknown]".into()),
                _ => {
                    all.add(&stack);
                    stack.clear();
                    if !line.is_empty() {
                        continue;
                    }
                }
            }
        }
        all
    }

    /// Adds a sample, innermost frame first.
    fn add(&mut self, stack: &[String]) {
        if stack.is_empty() {
            return;
        }
        self.count += 1;
        let mut at = self;
        for frame in stack.iter().rev().take(DEPTH_MAX) {
            at = at.below.entry(frame.clone()).or_default();
            at.count += 1;
        }
    }

    fn depth(&self) -> usize {
        self.below
            .values()
            .map(|it| 1 + it.depth())
            .max()
            .unwrap_or(0)
    }

    /// An SVG: the widths are shares of the samples, and what calls is below what it calls.
    fn picture(&self) -> String {
        let height = (self.depth() as f64 + 1.0) * ROW;
        let mut svg = format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' \
             font-family='monospace' font-size='11'>\n"
        );
        self.draw(&mut svg, (0.0, height - ROW), WIDTH / self.count as f64);
        svg.push_str("</svg>\n");
        svg
    }

    fn draw(&self, svg: &mut String, (mut left, top): (f64, f64), each: f64) {
        for (name, flames) in &self.below {
            let width = flames.count as f64 * each;
            if width >= WIDTH_MIN {
                let hue = name.bytes().map(u32::from).sum::<u32>() % 50;
                let shown: String = name.chars().take((width / 7.0) as usize).collect();
                let (name, shown) = (escaped(name), escaped(&shown));
                let percent = width * 100.0 / WIDTH;
                let _ = writeln!(
                    svg,
                    "<g><title>{name}: {percent:.1} %</title><rect x='{left:.1}' y='{top}' \
                     width='{width:.1}' height='{}' fill='hsl({hue} 80% 65%)'/>\
                     <text x='{:.1}' y='{}'>{shown}</text></g>",
                    ROW - 1.0,
                    left + 2.0,
                    top + 12.0
                );
                flames.draw(svg, (left, top - ROW), each);
            }
            left += width;
        }
    }
}

const WIDTH: f64 = 1600.0;
/// Narrower ones cannot be seen.
const WIDTH_MIN: f64 = 0.5;
const ROW: f64 = 16.0;

/// A symbol without its offset and its hash.
fn name_of(symbol: &str) -> String {
    let name = symbol.split("+0x").next().unwrap_or(symbol);
    let hash = name.rsplit_once("::h");
    let is_hash = |it: &str| it.len() == 16 && it.bytes().all(|byte| byte.is_ascii_hexdigit());
    hash.filter(|(_, it)| is_hash(it))
        .map_or(name, |(name, _)| name)
        .to_owned()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "gannet\n\t  55d0 write::h0123456789abcdef\n\t  55d1 turn+0x12\n\t  55d2 main\n\n\
                        gannet\n\t  55d3 <a>::read\n\t  55d1 turn\n\t  55d2 main\n\n";

    #[test]
    fn stacks_are_joined_where_they_begin_alike() {
        let flames = Flames::of(TEXT);
        assert_eq!((flames.count, flames.depth()), (2, 3));
        let turn = &flames.below["main"].below["turn"];
        assert_eq!(turn.count, 2);
        let names: Vec<&str> = turn.below.keys().map(String::as_str).collect();
        assert_eq!(names, ["<a>::read", "write"]);
    }

    #[test]
    fn a_picture_has_a_rectangle_for_each_function() {
        let svg = Flames::of(TEXT).picture();
        assert_eq!(svg.matches("<rect ").count(), 4);
        assert!(svg.contains("<title>turn: 100.0 %</title>"), "{svg}");
        assert!(
            svg.contains("<title>&lt;a&gt;::read: 50.0 %</title>"),
            "{svg}"
        );
    }
}
