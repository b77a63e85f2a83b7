//! Other people's conformance suites, from their public sources: nothing of them is in the project but
//! the lists of cases that do not hold, with reasons.

mod bogo;
mod vectors;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use lexopt::prelude::*;
use xtask::process;

const HELP: &str = "\
cargo xtask conform [NAME...] [--source DIR]

  NAME             a suite; all without a name
                     bogo        BoringSSL's tests of TLS: handshake and record layer of the server
                     hpack       stories of ten encoders for HTTP/2's field compression
                     qpack       the same for HTTP/3
                     structured  the working group's cases of structured fields
  --source DIR     a copy of the suite's repository, which is cloned otherwise
";

/// A suite, by its name.
type Suite = (&'static str, fn(Option<&Path>) -> Result<Outcome>);

const SUITES: [Suite; 4] = [
    ("bogo", bogo::run),
    ("hpack", vectors::hpack),
    ("qpack", vectors::qpack),
    ("structured", vectors::structured),
];

/// What came of a suite.
pub(crate) enum Outcome {
    /// No case failed that was expected to pass.
    Passed {
        /// Cases that passed.
        cases: usize,
        /// What was not compared, or is known to differ.
        differences: String,
    },
    /// It cannot run here.
    Skipped(String),
}

/// Runs suites, and prints a line for each.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let (mut names, mut source) = (Vec::new(), None::<PathBuf>);
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            Long("source") => source = Some(parser.value()?.into()),
            Value(name) => names.push(name.string()?),
            _ => return Err(argument.unexpected().into()),
        }
    }
    if let Some(name) = names
        .iter()
        .find(|it| SUITES.iter().all(|(known, _)| known != it))
    {
        bail!("no suite is named '{name}'; 'cargo xtask conform --help' lists them");
    }
    for (name, run) in SUITES {
        if !names.is_empty() && !names.iter().any(|it| it == name) {
            continue;
        }
        match run(source.as_deref()).with_context(|| format!("suite {name}"))? {
            Outcome::Passed { cases, differences } => {
                println!("{name}: {cases} cases passed; {differences}");
            }
            Outcome::Skipped(why) => println!("{name}: skipped: {why}"),
        }
    }
    Ok(())
}

/// A copy of a public repository, made once.
fn cloned(url: &str, name: &str) -> Option<PathBuf> {
    let copy = process::target().join("conform").join(name);
    if copy.is_dir() {
        return Some(copy);
    }
    let mut command = Command::new("git");
    command.args([
        "clone",
        "--quiet",
        "--depth",
        "1",
        "--filter=blob:none",
        url,
    ]);
    let status = command.arg(&copy).status().ok()?;
    status.success().then_some(copy)
}

/// That suites need a copy of a repository that cannot be had.
fn without(url: &str) -> Outcome {
    Outcome::Skipped(format!("{url} cannot be cloned; name a copy by --source"))
}
