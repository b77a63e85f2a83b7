//! The lab: measures gannet, alone and beside other servers. Run as `cargo xtask NAME`.
//!
//! ```text
//!   bench         scenarios, peers, rounds ─▶ report
//!     load        the load client
//!   cost          what features of the server cost, as ratios of CPU time
//!   flood         what one visitor waits while others flood the server
//!   idle          memory of idle connections
//!   instructions  what the pure crates execute for a piece of work, and the program for a request
//!   caches        whether caches in front do as the manual says
//!   link          page loads over a link with delay, rate and loss
//!   swap          releases that are swapped under load
//!   wire          text that is compressed while it is served, in bytes
//! ```
//!
//! It runs gannet as a program and shares no code with it, so that it cannot share its defects.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Result, bail};
use lexopt::prelude::*;

mod bench;
mod caches;
mod cost;
mod flood;
mod idle;
mod instructions;
mod link;
mod load;
mod open_loop;
mod same_certificate;
mod swap;
mod wire;

fn main() -> ExitCode {
    match dispatch() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch() -> Result<()> {
    let mut parser = lexopt::Parser::from_env();
    let name = match parser.next()? {
        Some(Value(name)) => name.string()?,
        _ => bail!("this is run by 'cargo xtask NAME'; 'cargo xtask --help' lists the names"),
    };
    match name.as_str() {
        "bench" => bench::main(&mut parser),
        "caches" => caches::main(&mut parser),
        "cost" => cost::main(&mut parser),
        "flood" => flood::main(&mut parser),
        "idle" => idle::main(&mut parser),
        "instructions" => instructions::main(&mut parser),
        "link" => link::main(&mut parser),
        "swap" => swap::main(&mut parser),
        "wire" => wire::main(&mut parser),
        other => bail!("the lab has no '{other}'; 'cargo xtask --help' lists what there is"),
    }
}
