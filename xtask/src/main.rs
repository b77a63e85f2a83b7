//! The project's own chores, run as `cargo xtask NAME`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use anyhow::{Result, bail};
use lexopt::prelude::*;

mod bench;
mod browser;
mod check;
mod fuzz;
mod h2spec;
mod instructions;
mod licenses;
mod load;
mod no_io;
mod process;
mod served;
mod tidy;
mod vm;

const HELP: &str = "\
cargo xtask NAME

  check        fmt, clippy, tidy, no-io and tests: before a change is offered
  tidy         the rules that compiler and clippy do not know
  no-io        proof that the crates that must do no I/O do none
  sim          more simulator seeds (--seeds N)
  fuzz-smoke   each fuzz target for a short time (--seconds N)
  licenses     the bill of materials and licence texts in the program (--check: compare only)
  h2spec       HTTP/2's conformance tests, on each engine, over TLS and in clear text
  browser      a page of hundreds of assets in headless Chromium, its screenshot compared
  deny         licences and known vulnerabilities of dependencies
  instructions count the instructions of the pure crates (--update commits new counts)
  vm           tests on Debian's kernels in QEMU, kernel TLS among them (--help for its flags)
  bench        measure gannet and its peers side by side (--help for its flags)
";

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
        None | Some(Short('h') | Long("help")) => {
            print!("{HELP}");
            return Ok(());
        }
        Some(Value(name)) => name.string()?,
        Some(argument) => return Err(argument.unexpected().into()),
    };
    match name.as_str() {
        "bench" => return bench::main(&mut parser),
        "instructions" => return instructions::main(&mut parser),
        "fuzz-smoke" => return fuzz::main(&mut parser),
        "licenses" => return licenses::main(&mut parser),
        "sim" => return check::sim(&mut parser),
        "vm" => return vm::main(&mut parser),
        _ => {}
    }
    if let Some(argument) = parser.next()? {
        return Err(argument.unexpected().into());
    }
    match name.as_str() {
        "check" => check::check(),
        "tidy" => tidy::main(),
        "no-io" => no_io::main(),
        "browser" => browser::main(),
        "h2spec" => h2spec::main(),
        "deny" => check::deny(),
        other => bail!("no chore is named '{other}'; 'cargo xtask --help' lists them"),
    }
}
