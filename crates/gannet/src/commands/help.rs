//! `gannet help`: shows the help of the program or of a command.

use std::ffi::OsString;

use clap::ArgMatches;

use super::print;
use crate::command_line::commands::COMMANDS;
use crate::command_line::nearest::nearest;
use crate::documents::{help, manual_page};
use crate::messages::{Failure, printable};

/// Shows help.
///
/// # Errors
/// There is no such command.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    if matches.get_flag("man") {
        return print(&manual_page::render());
    }
    let Some(name) = matches.get_one::<OsString>("command") else {
        return print(&help::short());
    };
    if let Some(known) = COMMANDS.iter().find(|command| name == command.name) {
        return print(&help::of_command(known));
    }
    let shown = printable(&name.to_string_lossy());
    let names = COMMANDS.iter().map(|command| command.name);
    let failure = Failure::usage(format!("'{shown}' is not a command"));
    Err(match nearest(&shown, names) {
        Some(meant) => failure.help(format!("did you mean 'gannet help {meant}'?")),
        None => failure.help("'gannet --help-all' lists all of them"),
    })
}
