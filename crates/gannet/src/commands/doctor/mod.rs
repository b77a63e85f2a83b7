//! `gannet doctor`: what the machine has and lacks for a configuration.
//!
//! ```text
//!  probe: the machine, serve's outlook ─▶ Facts ─▶ judge: Vec<Finding> ─▶ report: text, JSON
//! ```
//!
//! Only `probe` looks at the machine, and changes nothing there. The rest are pure functions.

mod facts;
mod finding;
mod judge;
mod probe;
mod unit;

use clap::ArgMatches;

use self::finding::Level;
use super::{judge as verdict, resolve};
use crate::command_line::serve_flags::SERVE_FLAGS;
use crate::messages::Failure;

/// Prints the findings; returns 1 if one is bad.
///
/// # Errors
/// The configuration cannot be read, with status 2.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    verdict(|out| {
        if matches.get_flag("check-config") {
            let twice = Failure::usage("--check-config makes no sense with doctor");
            return Err(twice.help("doctor serves nothing either: leave it out"));
        }
        let (settings, origins) = resolve(SERVE_FLAGS, "", matches)?;
        let findings = judge::judge(&probe::look(&settings, &origins));
        let text = match matches.get_flag("json") {
            true => finding::json(&findings),
            false => finding::text(&findings),
        };
        out.write_all(text.as_bytes())
            .map_err(Failure::from_output)?;
        Ok(findings.iter().any(|one| one.level == Level::Bad))
    })
}
