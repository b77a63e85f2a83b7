//! Runs each fuzz target briefly, to check that it builds and finds nothing quickly; or once over the inputs
//! that there are.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;

use xtask::process;

const HELP: &str = "\
cargo xtask fuzz-smoke [FLAGS] [TARGET]...

  TARGET        default: all, as many at once as there are processors
  --seconds N   for each; default: 10
";

/// Default seconds per target.
const SECONDS: u64 = 10;

/// A fuzz target and its program.
struct Target {
    name: String,
    program: PathBuf,
}

/// `cargo xtask fuzz-smoke`.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let (mut seconds, mut names) = (SECONDS, Vec::new());
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seconds") => seconds = parser.value()?.parse()?,
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            Value(name) => names.push(name.string()?),
            _ => return Err(argument.unexpected().into()),
        }
    }
    // libFuzzer takes 0 for no limit.
    ensure!(seconds > 0, "--seconds must be at least 1");
    // libFuzzer is written in C++.
    if let Err(reason) = process::find_or_install("c++", "g++") {
        println!("fuzz-smoke: skipped: {reason:#}");
        return Ok(());
    }
    let mut cargo = process::cargo();
    cargo.arg("build");
    let targets = build(&names, cargo)?;
    process::side_by_side(&targets, |target| {
        println!("fuzz-smoke: {}, {seconds} s", target.name);
        target.run(&format!("-max_total_time={seconds}"), &[])
    })?;
    println!("fuzz-smoke: {} targets, nothing found", targets.len());
    Ok(())
}

/// Runs all targets, which this `cargo build` makes, once over the inputs of the repository and of the corpus.
/// Returns how many targets there are.
pub(crate) fn replay(cargo: Command, environment: &[(&str, &str)]) -> Result<usize> {
    process::find_or_install("c++", "g++")?;
    let targets = build(&[], cargo)?;
    process::side_by_side(&targets, |target| target.run("-runs=0", environment))?;
    Ok(targets.len())
}

/// Builds the targets with these names, or all, by this `cargo build`.
fn build(names: &[String], mut command: Command) -> Result<Vec<Target>> {
    let folder = process::root().join("fuzz");
    let mut all = Vec::new();
    for entry in fs::read_dir(folder.join("fuzz_targets"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|it| it == "rs") {
            all.extend(path.file_stem().map(|it| it.to_string_lossy().into_owned()));
        }
    }
    ensure!(!all.is_empty(), "fuzz/fuzz_targets has no target");
    if let Some(name) = names.iter().find(|name| !all.contains(name)) {
        bail!(
            "no fuzz target is called '{name}'; there are {}",
            all.join(", ")
        );
    }
    // The whole workspace, with an example, has the features of its tests: what is built for those is used.
    command.args([
        "--workspace",
        "--features",
        "gannet-fuzz/libfuzzer",
        "--example",
        "as_tests",
    ]);
    let is_wanted = |name: &&String| names.is_empty() || names.contains(name);
    for name in all.iter().filter(is_wanted) {
        command.args(["--bin", name]);
    }
    command.env("RUSTC_WORKSPACE_WRAPPER", folder.join("rustc"));
    let mut programs = process::programs(&mut command).context("the fuzz targets")?;
    programs.retain(|name, _| all.contains(name));
    let target = |(name, program)| Target { name, program };
    Ok(programs.into_iter().map(target).collect())
}

impl Target {
    /// Runs it until this limit; an error has what it printed.
    fn run(&self, limit: &str, environment: &[(&str, &str)]) -> Result<()> {
        let folder = process::root().join("fuzz");
        let of_target = |kind: &str| folder.join(kind).join(&self.name);
        let (corpus, artifacts) = (of_target("corpus"), of_target("artifacts"));
        for folder in [&corpus, &artifacts] {
            fs::create_dir_all(folder)?;
        }
        let mut command = Command::new(&self.program);
        command.args(["-print_final_stats=0", "-verbosity=0"]);
        command.arg(limit).envs(environment.iter().copied());
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        // New inputs are written to the first directory; the repository's seeds are only read.
        command.arg(corpus).arg(of_target("seeds"));
        let name = &self.name;
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(
            output.status.success(),
            "fuzz target {name} failed: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }
}
