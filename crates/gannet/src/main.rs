#![forbid(unsafe_code)]
//! The gannet program.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gannet::command_line::arguments::{self, Parsed};
use gannet::command_line::commands::{RECEIVE_COMMAND, REFERENCE_COMMAND};
use gannet::commands::{
    acme, bundle, cat, check, compress, dev, diff, doctor, explain, extract, follow, get, health,
    help, inspect, install, keygen, ls, pack, password, print, publish, receive, releases,
    rollback, serve, text, verify, version,
};
use gannet::messages::{Failure, hide_panics};
use gannet::{documents, room};
use gannet_io::reserve::WithReserve;
use gannet_server::notices;
use signal_hook::consts::SIGXFSZ;
use signal_hook::flag;

/// Under a memory limit, lets a server refuse clients instead of aborting.
#[global_allocator]
static ALLOCATOR: WithReserve = WithReserve;

fn main() -> ExitCode {
    if !room::is_enough() {
        return ExitCode::from(2);
    }
    hide_panics();
    // Makes a file size limit an error like a full disk, instead of a fatal signal. If no handler
    // can be installed, the signal stays fatal.
    let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    let typed: Vec<OsString> = std::env::args_os().collect();
    let status = run(&typed).unwrap_or_else(|failure| {
        failure.report();
        failure.exit.code()
    });
    notices::settle();
    ExitCode::from(status)
}

/// Runs the command line; returns the exit status.
fn run(typed: &[OsString]) -> Result<u8, Failure> {
    let matches = match arguments::parse(typed)? {
        Parsed::Text(text) => return print(&text),
        Parsed::Matches(matches) => matches,
    };
    match matches.subcommand() {
        None => serve::run(&matches),
        Some(("serve", matches)) => serve::run(matches),
        Some(("dev", matches)) => dev::run(matches),
        Some(("doctor", matches)) => doctor::run(matches),
        Some(("health", matches)) => health::run(matches),
        Some(("install", matches)) => install::run(matches),
        Some(("pack", matches)) => pack::run(matches),
        Some(("publish", matches)) => publish::run(matches),
        Some(("rollback", matches)) => rollback::run(matches),
        Some(("releases", matches)) => releases::run(matches),
        Some(("follow", matches)) => follow::run(matches),
        Some(("acme", matches)) => acme::run(matches),
        Some(("ls", matches)) => ls::run(matches),
        Some(("cat", matches)) => cat::run(matches),
        Some(("check", matches)) => check::run(matches),
        Some(("compress", matches)) => compress::run(matches),
        Some(("diff", matches)) => diff::run(matches),
        Some(("explain", matches)) => explain::run(matches),
        Some(("bundle", matches)) => bundle::run(matches),
        Some(("extract", matches)) => extract::run(matches),
        Some(("inspect", matches)) => inspect::run(matches),
        Some(("verify", matches)) => verify::run(matches),
        Some(("keygen", matches)) => keygen::run(matches),
        Some(("password", matches)) => password::run(matches),
        Some(("get", matches)) => get::run(matches),
        Some(("cert", _)) => print(&serve::tls::authority()?),
        Some(("help", matches)) => help::run(matches),
        Some(("version", matches)) => version::run(matches),
        Some(("completions", matches)) => print(&documents::completions(text(matches, "shell"))?),
        Some((RECEIVE_COMMAND, matches)) => receive::run(matches),
        Some((REFERENCE_COMMAND, _)) => print(&documents::reference::render()),
        Some((name, _)) => unreachable!("'{name}' is not a command"),
    }
}
