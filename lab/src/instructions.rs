//! Counts the instructions of the pure crates, and of the program for a request, to detect changes that
//! make them slower.
//!
//! Wall time is unreliable on a busy machine; callgrind's counts are reproducible. Each piece of
//! work is run some and more times: the difference excludes one-time costs. Counts depend on the
//! compiler and the CPU, hence the tolerances.

use std::{collections::BTreeMap, ffi::OsStr, fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;

use xtask::process;

mod requests;

/// The examples with the workloads, and their crates.
const EXAMPLES: [(&str, &str); 3] = [
    ("gannet-http", "http_instructions"),
    ("gannet-archive", "archive_instructions"),
    ("gannet-content", "content_instructions"),
];
/// What the names of the program's workloads begin with.
const OF_PROGRAM: &str = "request-";
/// The committed counts.
const FILE: &str = "lab/instructions.toml";
/// Runs of the two counts.
const COUNTS: [u64; 2] = [1000, 6000];
/// Starts differ by up to 10,000 instructions, which is 2 for each run, and counts are rounded.
const STARTS: f64 = 3.0;
/// The relative increase over the committed counts that is tolerated.
const TOLERANCE: f64 = 0.02;
/// The same with `--quick`, on machines that have another compiler and CPU than the committed counts.
const TOLERANCE_QUICK: f64 = 0.10;

/// `cargo xtask instructions`.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let (mut update, mut quick) = (false, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("update") => update = true,
            Long("quick") => quick = true,
            _ => return Err(argument.unexpected().into()),
        }
    }
    // Without valgrind this is an error: a skipped gate would let changes through.
    process::find_or_install("valgrind", "valgrind").context("counting needs valgrind")?;
    let mut what = Vec::new();
    for (package, example) in EXAMPLES {
        what.extend(["--package", package, "--example", example]);
    }
    let mut counts = BTreeMap::new();
    for program in process::build_all(&what, "instructions")?.values() {
        let names = process::capture(&mut Command::new(program))?;
        for name in names.lines() {
            let fewer = count(program, name, COUNTS[0])?;
            let more = count(program, name, COUNTS[1])?;
            let each = more.saturating_sub(fewer) / (COUNTS[1] - COUNTS[0]);
            counts.insert(name.to_owned(), each);
        }
    }
    match quick {
        true => println!(
            "instructions: without those of the program, which takes minutes to build (--quick)"
        ),
        false => {
            let gannet = process::build(&["--package", "gannet"], "instructions")?;
            counts.extend(requests::count_all(&gannet)?);
        }
    }
    let path = process::root().join(FILE);
    ensure!(
        !(update && quick),
        "--update counts everything: leave out --quick"
    );
    if update {
        let text = toml::to_string(&counts)?;
        let head = "# Instructions of one piece of work each: cargo xtask instructions --update\n";
        fs::write(&path, format!("{head}{text}"))?;
    }
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read '{FILE}'"))?;
    let mut committed: BTreeMap<String, u64> = toml::from_str(&text)?;
    committed.retain(|name, _| !quick || !name.starts_with(OF_PROGRAM));
    let tolerance = if quick { TOLERANCE_QUICK } else { TOLERANCE };
    let findings = judge(&committed, &counts, tolerance);
    for (name, count) in &counts {
        let before = committed.get(name).copied().unwrap_or(0);
        println!("instructions: {name:<28} {count:>8} (committed: {before})");
    }
    if let Some(hint) = looseness(&committed, &counts, tolerance) {
        println!("instructions: {hint}");
    }
    ensure!(
        findings.is_empty(),
        "the counts of {FILE} do not hold:\n  {}\nIf that is the price of something worth it, commit \
         what `cargo xtask instructions --update` writes, and say so in the message.",
        findings.join("\n  ")
    );
    Ok(())
}

/// The differences between `found` and `committed`, in words.
fn judge(
    committed: &BTreeMap<String, u64>,
    found: &BTreeMap<String, u64>,
    tolerance: f64,
) -> Vec<String> {
    let mut findings = Vec::new();
    for (name, &count) in found {
        match committed.get(name) {
            None => findings.push(format!("{name} has no committed count")),
            Some(&before) if count as f64 > before as f64 * (1.0 + tolerance) + STARTS => {
                let more = (count as f64 / before as f64 - 1.0) * 100.0;
                let allowed = tolerance * 100.0;
                findings.push(format!(
                    "{name} takes {count} instructions instead of {before}: {more:.0} % more \
                     (allowed: {allowed:.0} %)"
                ));
            }
            Some(_) => {}
        }
    }
    let gone = committed.keys().filter(|name| !found.contains_key(*name));
    findings.extend(gone.map(|name| format!("{name} is committed and not measured")));
    findings
}

/// Names counts so far below the committed ones that the gate no longer protects the gain.
fn looseness(
    committed: &BTreeMap<String, u64>,
    found: &BTreeMap<String, u64>,
    tolerance: f64,
) -> Option<String> {
    let is_less = |(name, before): &(&String, &u64)| {
        let count = found.get(*name).copied().unwrap_or(**before);
        (count as f64) < **before as f64 * (1.0 - tolerance)
    };
    let names: Vec<_> = committed
        .iter()
        .filter(is_less)
        .map(|(n, _)| n.as_str())
        .collect();
    let all = names.join(", ");
    (!names.is_empty()).then(|| format!("{all}: less than committed; --update keeps the gain"))
}

/// Instructions of `program NAME COUNT` in total.
fn count(program: &Path, name: &str, count: u64) -> Result<u64> {
    let output = callgrind(program).arg(name).arg(count.to_string()).output();
    let output = output.context("cannot start valgrind")?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name} failed under valgrind:\n{text}"
    );
    collected(&text)
}

/// A command that counts what a program executes.
fn callgrind(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(program);
    command
}

/// The sum of the numbers after `Collected :`, of which each process has one.
fn collected(text: &str) -> Result<u64> {
    let counts = text
        .lines()
        .filter_map(|line| line.split_once("Collected :"));
    let counts: Result<Vec<u64>, _> = counts.map(|(_, count)| count.trim().parse()).collect();
    let counts = counts.ok().filter(|counts| !counts.is_empty());
    let counts =
        counts.with_context(|| format!("valgrind's output has an unknown form:\n{text}"))?;
    Ok(counts.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_instructions_than_tolerated_are_found() {
        let counts = |list: &[(&str, u64)]| -> BTreeMap<String, u64> {
            list.iter()
                .map(|(name, count)| ((*name).to_owned(), *count))
                .collect()
        };
        let committed = counts(&[("a", 1000), ("b", 1000), ("gone", 1)]);
        let found = counts(&[("a", 1023), ("b", 1034), ("new", 1)]);
        let findings = judge(&committed, &found, 0.02);
        assert_eq!(findings.len(), 3, "{findings:?}");
        let expect = "b takes 1034 instructions instead of 1000: 3 % more (allowed: 2 %)";
        assert_eq!(findings[0], expect);
        assert!(judge(&committed, &committed, 0.02).is_empty());
        assert_eq!(
            looseness(&committed, &counts(&[("a", 980), ("b", 990)]), 0.02),
            None
        );
        let hint = looseness(&committed, &counts(&[("a", 970), ("b", 1034)]), 0.02);
        assert!(hint.is_some_and(|hint| hint.starts_with("a: less")));
    }

    /// Counts of examples, whose own level is 3, cannot show that, and CI counts no others.
    #[test]
    fn the_program_in_packages_is_inlined_across_crates() {
        let manifest = fs::read_to_string(process::root().join("Cargo.toml"));
        let manifest: toml::Table = manifest.expect("it is there").parse().expect("TOML");
        let profile = |name: &str| manifest["profile"].get(name);
        let level = |name: &str| {
            let packages = profile(name)?.get("package")?;
            packages.get("gannet")?.get("opt-level")?.as_integer()
        };
        let lto = profile("dist").and_then(|it| it.get("lto")?.as_str());
        assert_eq!(lto, Some("fat"));
        // What a profile does not set it inherits.
        let level = level("dist").or_else(|| level("release"));
        assert!(
            level.is_none_or(|level| level >= 2),
            "Cargo.toml: gannet has level {level:?} in the profile dist, and what is linked last gives its level to the \
             optimisation of the whole: set package.gannet.opt-level = 3 in [profile.dist]"
        );
    }

    #[test]
    fn valgrind_is_understood() {
        let two = "==1== Events    : Ir\n==1== Collected : 1234\n==2== Collected : 10\n";
        assert_eq!(collected(two).ok(), Some(1244));
        assert!(collected("==1== nothing").is_err());
    }
}
