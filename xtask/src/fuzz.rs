//! Runs each fuzz target for a short time, to see that it builds and finds nothing at once.

use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;

use xtask::process;

/// Seconds per target unless told otherwise.
const SECONDS: u64 = 10;

/// Little optimised and without the address sanitizer: built in less time.
/// What is fuzzed has no unsafe code of ours; whoever looks for faults for hours uses
/// `cargo fuzz run` as it is.
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
    // In libFuzzer 0 means for ever.
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
        // What is found goes into the first directory; the seeds of the repository are only read.
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

/// Installs what fuzzing needs; the reason when it cannot be had.
fn prepare() -> Option<String> {
    if process::output("cargo", &["fuzz", "--version"]).is_err() {
        eprintln!("fuzz-smoke: installing cargo-fuzz");
        let mut command = process::cargo();
        command.args(["install", "--quiet", "--locked", "cargo-fuzz"]);
        if let Err(e) = process::run(&mut command) {
            return Some(format!("cargo-fuzz is not installed and cannot be ({e})"));
        }
    }
    // libFuzzer is C++.
    process::find_or_install("c++", "g++")
        .err()
        .map(|e| format!("{e:#}"))
}

/// cargo-fuzz, allowed to use the sanitizer flags of this toolchain although it is stable.
fn fuzz() -> std::process::Command {
    let mut command = process::cargo();
    command.arg("fuzz").env("RUSTC_BOOTSTRAP", "1");
    command
}
