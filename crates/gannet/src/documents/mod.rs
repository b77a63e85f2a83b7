//! Texts made from the tables: help, manual page, reference, completions.

pub mod help;
pub mod manual_page;
mod passages;
pub mod reference;

use std::ffi::OsStr;

use clap::ValueEnum;
use clap_complete::Shell;

use crate::command_line::arguments::{Form, command};
use crate::command_line::nearest::nearest;
use crate::messages::Failure;

/// The completion script for a shell.
///
/// # Errors
/// There is no such shell.
pub fn completions(shell: &OsStr) -> Result<String, Failure> {
    let typed = shell.to_string_lossy();
    let names: Vec<String> = Shell::value_variants()
        .iter()
        .map(ToString::to_string)
        .collect();
    let Ok(shell) = Shell::from_str(&typed, false) else {
        let failure = Failure::usage(format!("unknown shell '{typed}'"));
        return Err(match nearest(&typed, names.iter().map(String::as_str)) {
            Some(meant) => failure.help(format!("did you mean '{meant}'?")),
            None => failure.help(format!("one of {}", names.join(", "))),
        });
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(Form::Completing), "gannet", &mut script);
    Ok(String::from_utf8_lossy(&script).into_owned())
}
