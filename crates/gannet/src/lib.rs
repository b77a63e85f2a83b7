//! The gannet program: its command line, configuration, commands and messages.
//!
//! `main` hands everything to [`run`]. The library exists so that tests can look at the tables from
//! which help, manual, completions, environment and configuration are made; it is no public API.
#![forbid(unsafe_code)]

pub mod command_line;
pub mod documents;
pub mod messages;
pub mod quantities;
pub mod serve;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::Path;

use clap::ArgMatches;

use crate::command_line::arguments::{self, Asked};
use crate::command_line::commands::{self, REFERENCE_COMMAND};
use crate::command_line::config_file::{self, ConfigFile};
use crate::command_line::flag::Flag;
use crate::command_line::layers::{self, CONFIG_VARIABLE, Origins};
use crate::command_line::serve_flags::SERVE_FLAGS;
use crate::messages::Failure;

/// Does what the command line asks for and gives the exit status.
#[must_use]
pub fn run(typed: Vec<OsString>) -> u8 {
    messages::hide_panics();
    match dispatch(&typed) {
        Ok(status) => status,
        Err(failure) => {
            failure.report();
            failure.exit.code()
        }
    }
}

fn dispatch(typed: &[OsString]) -> Result<u8, Failure> {
    let matches = match arguments::parse(typed)? {
        Asked::Text(text) => return print(&text),
        Asked::Matches(matches) => matches,
    };
    match matches.subcommand() {
        None => serve(&matches),
        Some(("serve", matches)) => serve(matches),
        Some(("completions", matches)) => print(&documents::completions(text(matches, "shell"))?),
        Some(("man", _)) => print(&documents::manual_page::render()),
        Some((REFERENCE_COMMAND, _)) => print(&documents::reference::render()),
        Some((name, _)) => unreachable!("'{name}' is no command"),
    }
}

fn serve(matches: &ArgMatches) -> Result<u8, Failure> {
    let (settings, origins) = resolve(SERVE_FLAGS, "", matches)?;
    if matches.get_flag("check-config") {
        serve::check(&settings, &origins)?;
        return print("the configuration is valid\n");
    }
    serve::run(&settings, &origins)
}

/// The settings of a command from all layers.
fn resolve<S: Default>(
    flags: &'static [Flag<S>],
    section: &'static str,
    matches: &ArgMatches,
) -> Result<(S, Origins), Failure> {
    let known = commands::all_flags();
    let environment = layers::environment();
    for warning in layers::suspicious_variables(&environment, &known) {
        warning.report();
    }
    let named = matches.get_one::<OsString>("config");
    let file = match named.or_else(|| environment.get(CONFIG_VARIABLE)) {
        Some(path) if !path.is_empty() => config_file::read(Path::new(path), &known)?,
        _ => ConfigFile::default(),
    };
    layers::resolve(flags, section, matches, &environment, &file)
}

/// A required argument.
fn text<'a>(matches: &'a ArgMatches, name: &str) -> &'a OsString {
    matches
        .get_one::<OsString>(name)
        .expect("clap has refused a command line without it")
}

/// Writes to standard output; a closed pipe is success.
fn print(text: &str) -> Result<u8, Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(Failure::from_output)?;
    Ok(0)
}
