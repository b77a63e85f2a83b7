//! Other people's conformance suites, from their public sources: nothing of them is in the project but
//! the lists of cases that do not hold, with reasons.

mod bogo;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use lexopt::prelude::*;

const HELP: &str = "\
cargo xtask conform [NAME...] [--source DIR]

  NAME             a suite; all without a name
                     bogo   BoringSSL's tests of TLS: handshake and record layer of the server
  --source DIR     a copy of the suite's repository, which is cloned otherwise
";

/// A suite, by its name.
type Suite = (&'static str, fn(Option<&Path>) -> Result<Outcome>);

const SUITES: [Suite; 1] = [("bogo", bogo::run)];

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
