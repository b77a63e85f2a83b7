//! Runs each fuzz target briefly, to check that it builds and finds nothing quickly.

use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;

use xtask::process;

/// Default seconds per target.
const SECONDS: u64 = 10;

/// Little optimisation and no address sanitizer, to build faster. The fuzzed crates have no unsafe
/// code of their own; for longer campaigns, use plain `cargo fuzz run`.
const QUICK_BUILD: [&str; 3] = ["--dev", "--sanitizer", "none"];

/// `cargo xtask fuzz-smoke [--seconds N]`.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let mut seconds = SECONDS;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seconds") => seconds = parser.value()?.parse()?,
            _ => return Err(argument.unexpected().into()),
        }
    }
    // libFuzzer takes 0 for no limit.
    ensure!(seconds > 0, "--seconds must be at least 1");
    let directory = process::root().join("fuzz");
    if !directory.join("Cargo.toml").is_file() {
        println!("fuzz-smoke: skipped: there is no fuzz/Cargo.toml");
        return Ok(());
    }
    if let Some(reason) = prepare() {
        println!("fuzz-smoke: skipped: {reason}");
        return Ok(());
    }
    let targets = process::capture(fuzz().arg("list"))?;
    process::run(fuzz().arg("build").args(QUICK_BUILD)).context("the fuzz targets")?;
    for target in targets.lines() {
        println!("fuzz-smoke: {target}, {seconds} s");
        let mut command = fuzz();
        command.arg("run").args(QUICK_BUILD).arg(target);
        // New inputs are written to the first directory; the repository's seeds are only read.
        let seeds = directory.join("seeds").join(target);
        if seeds.is_dir() {
            let corpus = directory.join("corpus").join(target);
            std::fs::create_dir_all(&corpus)?;
            command.arg(corpus).arg(seeds);
        }
        command.args(["--", "-print_final_stats=0", "-verbosity=0"]);
        command.arg(format!("-max_total_time={seconds}"));
        command.stdin(Stdio::null());
        process::run(&mut command).with_context(|| format!("fuzz target {target}"))?;
    }
    let count = targets.lines().count();
    if count == 0 {
        bail!("fuzz/Cargo.toml has no target");
    }
    println!("fuzz-smoke: {count} targets, nothing found");
    Ok(())
}

/// Installs the tools for fuzzing; returns the reason if they are unavailable.
fn prepare() -> Option<String> {
    if process::output("cargo", &["fuzz", "--version"]).is_err() {
        eprintln!("fuzz-smoke: installing cargo-fuzz");
        let mut command = process::cargo();
        command.args(["install", "--quiet", "--locked", "cargo-fuzz"]);
        if let Err(e) = process::run(&mut command) {
            return Some(format!("cargo-fuzz is not installed and cannot be ({e})"));
        }
    }
    // libFuzzer is written in C++.
    process::find_or_install("c++", "g++")
        .err()
        .map(|e| format!("{e:#}"))
}

/// cargo-fuzz, allowed to use sanitizer flags with this stable toolchain.
fn fuzz() -> std::process::Command {
    let mut command = process::cargo();
    command.arg("fuzz").env("RUSTC_BOOTSTRAP", "1");
    command
}
