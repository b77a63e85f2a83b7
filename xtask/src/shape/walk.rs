//! The functions that one request executes: those of a warm GET from an archive, without optimisation.
//!
//! Callgrind counts the calls of two runs. A function that is called more often in the longer one is on
//! the way of a request.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

use xtask::process;

/// The workload of the example.
const WORKLOAD: &str = "request-h1-archive";

/// Requests of the two runs.
const REQUESTS: [usize; 2] = [10, 20];

/// Calls of functions, by file and name.
type Calls = BTreeMap<(String, String), u64>;

/// Prints how many functions of the project, in how many files, one warm request executes.
pub(super) fn print() -> Result<()> {
    if process::find("valgrind").is_none() {
        println!("walk: left out: valgrind is not installed");
        return Ok(());
    }
    let target = process::target().join("walk");
    let mut build = process::cargo();
    build.args([
        "build",
        "--package",
        "gannet-server",
        "--example",
        "server_instructions",
    ]);
    build
        .args(["--config", "profile.dev.opt-level=0", "--target-dir"])
        .arg(&target);
    let programs = process::programs(&mut build)?;
    let program = programs
        .get("server_instructions")
        .context("cargo named no example")?;
    let mut runs = Vec::new();
    for count in REQUESTS {
        let out = target.join(format!("walk.{count}"));
        let mut valgrind = std::process::Command::new("valgrind");
        valgrind.arg("--tool=callgrind");
        valgrind.arg(format!("--callgrind-out-file={}", out.display()));
        valgrind.arg(program).args([WORKLOAD, &count.to_string()]);
        process::capture(&mut valgrind)?;
        runs.push(calls(&std::fs::read_to_string(&out)?));
    }
    let walk: Vec<_> = runs[1]
        .iter()
        .filter(|(key, count)| runs[0].get(key) < Some(count))
        .collect();
    let files: BTreeSet<_> = walk.iter().map(|((file, _), _)| file).collect();
    println!("walk: {} functions in {} files", walk.len(), files.len());
    Ok(())
}

/// The calls of the product's functions in callgrind's output, which names files and functions once,
/// and by their numbers after that.
fn calls(profile: &str) -> Calls {
    let (mut files, mut functions) = (BTreeMap::new(), BTreeMap::new());
    let (mut here, mut there, mut callee) = (String::new(), None, String::new());
    let mut calls = Calls::new();
    for line in profile.lines() {
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        match key {
            "fl" | "fi" | "fe" => here = named(&mut files, value),
            "cfi" | "cfl" => there = Some(named(&mut files, value)),
            "fn" => {
                named(&mut functions, value);
            }
            "cfn" => callee = named(&mut functions, value),
            "calls" => {
                let file = there.take().unwrap_or_else(|| here.clone());
                let count = value
                    .split(' ')
                    .next()
                    .and_then(|it| it.parse::<u64>().ok());
                if let Some(file) = product_file(&file) {
                    *calls.entry((file.to_owned(), callee.clone())).or_default() +=
                        count.unwrap_or(0);
                }
            }
            _ => {}
        }
    }
    calls
}

/// The name in `(number) name`, or the one that the number had before.
fn named(names: &mut BTreeMap<String, String>, value: &str) -> String {
    match value.split_once(' ') {
        Some((number, name)) => {
            names.insert(number.to_owned(), name.to_owned());
            name.to_owned()
        }
        None => names.get(value).cloned().unwrap_or_default(),
    }
}

/// The path from the root of a file that a real server would execute as well.
fn product_file(path: &str) -> Option<&str> {
    let path = &path[path.find("crates/gannet-")?..];
    let is_ours = path.contains("/src/") && !path.starts_with("crates/gannet-testkit/");
    let is_simulated = path.contains("/src/sim") || path.contains("/src/driven");
    (is_ours && !is_simulated).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_added_up_by_file_and_name() {
        let profile = "fl=(1) /x/crates/gannet-server/src/worker/mod.rs\nfn=(1) turn\n12 3\n\
                       cfi=(2) /x/crates/gannet-http/src/h1/machine.rs\ncfn=(2) receive\ncalls=3 7\n12 9\n\
                       cfi=(2)\ncfn=(2)\ncalls=2 7\n13 9\ncfn=(1)\ncalls=1 5\n14 1\n\
                       cfi=(3) /x/crates/gannet-io/src/sim/disk.rs\ncfn=(3) read\ncalls=1 1\n15 1\n";
        let calls = calls(profile);
        let count =
            |file: &str, name: &str| calls.get(&(file.to_owned(), name.to_owned())).copied();
        assert_eq!(
            count("crates/gannet-http/src/h1/machine.rs", "receive"),
            Some(5)
        );
        assert_eq!(
            count("crates/gannet-server/src/worker/mod.rs", "turn"),
            Some(1)
        );
        assert_eq!(calls.len(), 2, "{calls:?}");
    }
}
