//! `gannet version`: the version, the components or the licences of this program.

use clap::ArgMatches;

use super::{print, write};
use crate::command_line::arguments;
use crate::components;
use crate::messages::Failure;

/// Prints what is requested.
///
/// # Errors
/// More than one thing is requested, or standard output cannot be written.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let flags = ["sbom", "licenses", "license-names"];
    let mut given = flags.into_iter().filter(|flag| matches.get_flag(flag));
    match (given.next(), given.next()) {
        (Some(one), Some(another)) => {
            Err(Failure::usage(format!("both --{one} and --{another}"))
                .help("leave one of them out"))
        }
        (Some("sbom"), _) => write(components::write_sbom),
        (Some(flag), _) => write(|out| components::write_licenses(flag == "license-names", out)),
        (None, _) => print(&arguments::version()),
    }
}
