//! The chores that run a list of other programs: `check`, `deny`, `oldest`, `package`, `sim` and `upgrade`.

use std::fs;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;

use crate::{licenses, no_io, tidy};
use xtask::process;

/// Simulator seeds of `cargo xtask check`.
const CHECK_SEEDS: u64 = 20;
/// Simulator seeds of `cargo xtask sim`.
const SIM_SEEDS: u64 = 2000;

/// `cargo xtask check`: the checks that a change must pass before it is submitted.
pub(crate) fn check() -> Result<()> {
    let seeds = CHECK_SEEDS.to_string();
    step("fmt", || {
        process::run(process::cargo().args(["fmt", "--all", "--check"]))
    })?;
    step("clippy", || {
        let arguments = ["clippy", "--quiet", "--workspace", "--all-targets"];
        process::run(
            process::cargo()
                .args(arguments)
                .args(["--", "-D", "warnings"]),
        )
    })?;
    step("tidy", tidy::main)?;
    step("no-io", no_io::main)?;
    step("licenses", || licenses::run(true))?;
    step("test", || {
        let arguments = ["test", "--quiet", "--workspace"];
        process::run(
            process::cargo()
                .args(arguments)
                .env("GANNET_SIM_SEEDS", seeds),
        )
    })
}

fn step(name: &str, run: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("check: {name}");
    let start = Instant::now();
    run().with_context(|| format!("check: {name} failed"))?;
    println!(
        "check: {name} passed in {:.1} s",
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

/// `cargo xtask sim [--seeds N]`: more simulations than a test run has time for.
pub(crate) fn sim(parser: &mut lexopt::Parser) -> Result<()> {
    let mut seeds = SIM_SEEDS;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seeds") => seeds = parser.value()?.parse()?,
            _ => return Err(argument.unexpected().into()),
        }
    }
    ensure!(seeds > 0, "--seeds must be at least 1");
    ensure!(
        process::root()
            .join("crates/gannet-server/tests/sim.rs")
            .is_file(),
        "crates/gannet-server/tests/sim.rs does not exist"
    );
    println!("sim: {seeds} seeds");
    let mut command = process::cargo();
    command.args([
        "test",
        "--quiet",
        "--package",
        "gannet-server",
        "--test",
        "sim",
    ]);
    command.env("GANNET_SIM_SEEDS", seeds.to_string());
    process::run(&mut command)
}

/// Upgrades of `cargo xtask upgrade`.
const UPGRADES: u64 = 100;

/// `cargo xtask upgrade [--count N]`: upgrades under load, one after the other, over every version of
/// HTTP and both engines.
pub(crate) fn upgrade(parser: &mut lexopt::Parser) -> Result<()> {
    let mut count = UPGRADES;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("count") => count = parser.value()?.parse()?,
            _ => return Err(argument.unexpected().into()),
        }
    }
    ensure!(count > 0, "--count must be at least 1");
    println!("upgrade: {count} upgrades");
    let mut command = process::cargo();
    command.args(["test", "--package", "gannet", "--test", "upgrade"]);
    command.arg("no_client_notices");
    command.env("GANNET_UPGRADES", count.to_string());
    process::run(&mut command)
}

/// `cargo xtask deny`: licences and known vulnerabilities of the dependencies.
pub(crate) fn deny() -> Result<()> {
    if process::output("cargo", &["deny", "--version"]).is_err() {
        eprintln!("deny: installing cargo-deny");
        let mut command = process::cargo();
        command.args(["install", "--quiet", "--locked", "cargo-deny"]);
        if let Err(e) = process::run(&mut command) {
            println!("deny: skipped: cargo-deny is not installed and cannot be ({e})");
            return Ok(());
        }
    }
    process::run(process::cargo().args(["deny", "check", "licenses", "bans", "sources"]))?;
    let mut check = process::cargo();
    check.arg("deny");
    if let Err(e) = process::run(process::cargo().args(["deny", "fetch", "db"])) {
        let Some(age) = age_of_advisories() else {
            println!("deny: advisories skipped: the list cannot be fetched ({e})");
            return Ok(());
        };
        println!(
            "deny: the list of advisories cannot be fetched ({e}): its copy was last changed {age}"
        );
        check.arg("--offline");
    }
    process::run(check.args(["check", "advisories"]))
}

/// When the list that cargo-deny fetched earlier was last changed, in words. The time of the fetch does not tell: one
/// that fails is noted like any other.
fn age_of_advisories() -> Option<String> {
    let copies = fs::read_dir(process::cargo_home()?.join("advisory-dbs")).ok()?;
    let mut copies =
        copies.filter_map(|copy| copy.ok()?.path().into_os_string().into_string().ok());
    copies.find_map(|copy| process::output("git", &["-C", &copy, "log", "-1", "--format=%cr"]).ok())
}

/// `cargo xtask package`: every crate that is published compiles from its package, with the others as packaged, and a
/// generator of sites can pack without what it does not need.
pub(crate) fn package() -> Result<()> {
    let publish = ["publish", "--workspace", "--dry-run", "--allow-dirty"];
    process::run(process::cargo().args(publish))?;
    let site = ["check", "--package", "gannet-site", "--no-default-features"];
    process::run(process::cargo().args(site))
}

/// `cargo xtask oldest`: the oldest Rust that Cargo.toml names compiles the program.
pub(crate) fn oldest() -> Result<()> {
    let manifest = std::fs::read_to_string(process::root().join("Cargo.toml"))?;
    let version = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .context("Cargo.toml has no rust-version")?
        .trim_matches('"');
    let install = ["toolchain", "install", "--profile", "minimal", version];
    process::run(Command::new("rustup").args(install))?;
    for features in [&[][..], &["--no-default-features"]] {
        // Not by the cargo that runs this chore, which has a version of its own.
        let mut command = Command::new("rustup");
        command.args(["run", version, "cargo", "check", "--locked"]);
        command
            .args(["--target-dir", "target/oldest"])
            .args(features);
        process::run(command.current_dir(process::root()).env_remove("CARGO"))?;
    }
    Ok(())
}
