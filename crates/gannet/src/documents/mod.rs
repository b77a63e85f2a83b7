//! Texts generated from the tables: help, manual page, reference, completions.

pub mod help;
pub mod manual_page;
mod passages;
pub mod reference;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;

use clap::ValueEnum;
use clap_complete::Shell;

use crate::command_line::arguments::{Form, command};
use crate::command_line::nearest::nearest;
use crate::messages::{Failure, printable};

/// Real shells, for which no near name is suggested.
const OTHER_SHELLS: [&str; 11] = [
    "ash", "csh", "dash", "ksh", "mksh", "nu", "nushell", "sh", "tcsh", "xonsh", "yash",
];

/// The completion script for a shell.
///
/// # Errors
/// The shell is unknown, or not supported.
pub fn completions(shell: &OsStr) -> Result<String, Failure> {
    let typed = shell.to_string_lossy();
    let names: Vec<String> = Shell::value_variants()
        .iter()
        .map(ToString::to_string)
        .collect();
    let Ok(shell) = Shell::from_str(&typed, false) else {
        let shown = printable(&typed);
        if OTHER_SHELLS.contains(&&*typed) {
            return Err(
                Failure::usage(format!("no completions are made for {shown}"))
                    .help(format!("they are made for {}", names.join(", "))),
            );
        }
        let failure = Failure::usage(format!("unknown shell '{shown}'"));
        return Err(match nearest(&typed, names.iter().map(String::as_str)) {
            Some(meant) => failure.help(format!("did you mean '{meant}'?")),
            None => failure.help(format!("one of {}", names.join(", "))),
        });
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(Form::Completing), "gannet", &mut script);
    Ok(String::from_utf8_lossy(&script).into_owned())
}
