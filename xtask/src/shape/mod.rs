//! `cargo xtask shape`: the figures of the project's structure, and the bounds that they may not exceed.
//!
//! `figures.txt` has the order of the server's rooms and a bound for each figure. `cargo xtask tidy`
//! compares: a figure above its bound is a finding. A change that lowers one lowers its bound with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;

use crate::tidy::{self, Finding, source};
use xtask::process;

mod functions;
mod imports;
mod names;
mod walk;

/// The order of rooms, and the bounds.
const FIGURES: &str = "xtask/src/shape/figures.txt";

/// The crate whose rooms have an order.
const SERVER: &str = "gannet-server";

/// Simulator seeds whose traces are printed.
const SEEDS: u64 = 200;

/// A file of the product: its code without comments, contents of strings, and tests.
struct Source {
    /// Path from the root.
    path: PathBuf,
    /// One for each line; that of a test is empty.
    lines: Vec<String>,
}

impl Source {
    fn new(path: &Path, text: &str) -> Self {
        let split = source::split(text);
        let tests = source::test_lines(path, &split);
        let lines = split.into_iter().zip(tests).zip(text.lines().chain([""]));
        let code = lines.map(|((line, is_test), text)| {
            let is_text = line.code.trim().is_empty() && line.comment.is_empty();
            match is_text && !text.trim().is_empty() && !text.trim().starts_with("//") {
                _ if is_test => String::new(),
                // A line within a string.
                true => "\"".to_owned(),
                false => line.code,
            }
        });
        Self {
            path: path.to_owned(),
            lines: code.collect(),
        }
    }

    /// The name of its crate.
    fn owner(&self) -> String {
        let owner = self.path.iter().nth(1).unwrap_or_default();
        owner.to_string_lossy().into_owned()
    }

    /// Its path below the crate's `src`.
    fn in_crate(&self) -> PathBuf {
        self.path.iter().skip(3).collect()
    }

    fn code_lines(&self) -> usize {
        self.lines
            .iter()
            .filter(|line| !line.trim().is_empty())
            .count()
    }
}

/// The order of the server's rooms, from the lowest up, and the bounds of figures by name.
struct Bounds {
    rooms: Vec<String>,
    most: BTreeMap<String, usize>,
}

impl Bounds {
    fn parse(text: &str) -> Result<Self> {
        let mut bounds = Self {
            rooms: Vec::new(),
            most: BTreeMap::new(),
        };
        for line in text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            match line.split_once(": ") {
                Some(("rooms", names)) => {
                    bounds.rooms = names.split(' ').map(str::to_owned).collect()
                }
                Some((name, most)) => {
                    let most = most.parse().with_context(|| format!("'{line}'"))?;
                    bounds.most.insert(name.to_owned(), most);
                }
                None => bail!("{FIGURES}: '{line}' is no figure"),
            }
        }
        Ok(bounds)
    }
}

/// A figure, and what it counts.
struct Figure {
    name: String,
    value: usize,
    /// Where each is.
    places: Vec<String>,
}

impl Figure {
    fn of(name: impl Into<String>, places: Vec<String>) -> Self {
        Self {
            name: name.into(),
            value: places.len(),
            places,
        }
    }
}

/// The figures that cost little to find.
fn figures(root: &Path, rooms: &[String]) -> Result<(Vec<Figure>, Vec<Finding>)> {
    let mut sources = Vec::new();
    for path in tidy::files(root)? {
        if path.extension().is_some_and(|it| it == "rs") && tidy::is_product(&path) {
            sources.push(Source::new(&path, &fs::read_to_string(root.join(&path))?));
        }
    }
    let server: Vec<&Source> = sources.iter().filter(|it| it.owner() == SERVER).collect();
    let imports = imports::Imports::of(&server);
    let (up, findings) = imports.up(rooms);
    let circle = imports.circle();
    let long = functions::long(&sources);
    let mut figures: Vec<Figure> = up
        .into_iter()
        .map(|((from, to), places)| Figure::of(format!("imports up, {from} to {to}"), places))
        .collect();
    figures.push(Figure::of("files in a circle", circle));
    figures.push(Figure::of("long functions", long));
    for (owner, names) in names::doubled(&sources) {
        figures.push(Figure::of(format!("double names, {owner}"), names));
    }
    figures.push(Figure {
        name: "lines".into(),
        value: sources.iter().map(Source::code_lines).sum(),
        places: Vec::new(),
    });
    Ok((figures, findings))
}

/// Adds a finding for each figure above its bound, and for each room without a place in the order.
pub(crate) fn check(root: &Path, findings: &mut Vec<Finding>) -> Result<()> {
    let bounds = Bounds::parse(&fs::read_to_string(root.join(FIGURES))?)?;
    let (figures, unplaced) = figures(root, &bounds.rooms)?;
    findings.extend(unplaced);
    for figure in figures {
        let most = bounds.most.get(&figure.name).copied().unwrap_or(0);
        if figure.value > most {
            let (name, value) = (figure.name, figure.value);
            findings.push(Finding {
                file: FIGURES.into(),
                line: 0,
                what: format!(
                    "{name}: {value}, at most {most} allowed; 'cargo xtask shape {name}' lists them"
                ),
            });
        }
    }
    Ok(())
}

/// `cargo xtask shape [--seeds N] [--walk] [FIGURE]`: prints the figures, or what one of them counts.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let (mut seeds, mut has_walk, mut words) = (SEEDS, false, Vec::new());
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seeds") => seeds = parser.value()?.parse()?,
            Long("walk") => has_walk = true,
            Value(word) => words.push(word.string()?),
            _ => return Err(argument.unexpected().into()),
        }
    }
    let root = process::root();
    let bounds = Bounds::parse(&fs::read_to_string(root.join(FIGURES))?)?;
    let (figures, _) = figures(&root, &bounds.rooms)?;
    if !words.is_empty() {
        return list(&figures, &words.join(" "));
    }
    let up: Vec<&Figure> = figures
        .iter()
        .filter(|it| it.name.starts_with("imports up"))
        .collect();
    let sum: usize = up.iter().map(|it| it.value).sum();
    println!("imports up: {sum}");
    for figure in &figures {
        println!("{}: {}", figure.name, figure.value);
    }
    if has_walk {
        walk::print()?;
    }
    match seeds {
        0 => Ok(()),
        seeds => print_traces(seeds),
    }
}

fn list(figures: &[Figure], name: &str) -> Result<()> {
    let mut chosen = figures
        .iter()
        .filter(|it| it.name.starts_with(name))
        .peekable();
    ensure!(
        chosen.peek().is_some(),
        "no figure is named '{name}'; 'cargo xtask shape' lists them"
    );
    for place in chosen.flat_map(|it| &it.places) {
        println!("{place}");
    }
    Ok(())
}

/// Prints a hash of what all clients of the simulator receive, and when, for each list of seeds: equal
/// hashes of two trees mean the same behaviour.
fn print_traces(seeds: u64) -> Result<()> {
    let mut command = process::cargo();
    command.args(["test", "--quiet", "--package", SERVER, "--test", "sim"]);
    command.args(["seeds", "--", "--nocapture", "--test-threads", "1"]);
    command.env("GANNET_SIM_SEEDS", seeds.to_string());
    for line in process::capture(&mut command)?.lines() {
        if let Some(at) = line.find("traces of ") {
            println!("{}", &line[at..]);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The file that tidy reads names each figure once, and no room twice.
    #[test]
    fn the_bounds_are_well_formed() {
        let bounds = Bounds::parse(include_str!("figures.txt")).expect("bounds");
        let mut rooms = bounds.rooms.clone();
        rooms.sort();
        rooms.dedup();
        assert_eq!(rooms.len(), bounds.rooms.len());
        assert!(bounds.most.contains_key("long functions"));
        assert!(Bounds::parse("lines 3").is_err());
        assert!(Bounds::parse("lines: many").is_err());
    }
}
