//! BoGo: BoringSSL's tests of TLS, against gannet's handshake and record layer.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use xtask::process;

use super::{Inputs, Outcome, Passed};

/// The public repository with the runner.
pub(super) const SOURCE: &str = "https://github.com/google/boringssl";

/// Cases that do not hold, each with its reason.
const CONFIG: &str = include_str!("bogo.json");

/// The least number of cases that pass: fewer, and the shim refuses what it once did.
const PASSED_MIN: usize = 250;

/// Runs all cases against the shim.
pub(super) fn run(inputs: &Inputs) -> Result<Outcome> {
    if process::output("go", &["version"]).is_err() {
        return Ok(Outcome::Skipped(
            "Go, which builds the runner, is not installed".into(),
        ));
    }
    let folder = process::target().join("conform/bogo");
    fs::create_dir_all(&folder)?;
    let Some(source) = super::cloned(inputs, SOURCE, "boringssl") else {
        return Ok(super::without(SOURCE));
    };
    let runner = folder.join("runner");
    let mut build = Command::new("go");
    build.args(["test", "-mod=mod", "-c", "-o"]).arg(&runner);
    process::run(build.arg(".").current_dir(source.join("ssl/test/runner")))?;
    let shim = process::build(
        &["--package", "gannet-server", "--example", "bogo_shim"],
        "dev",
    )?;
    let config = folder.join("config.json");
    fs::write(&config, CONFIG)?;
    let results = folder.join("results.json");
    let mut command = Command::new(&runner);
    command.current_dir(source.join("ssl/test/runner"));
    // The words of errors are BoringSSL's own; the alerts, which are compared, are the standard's.
    command.args(["-allow-unimplemented", "-loose-errors", "-pipe"]);
    command.arg("-shim-path").arg(&shim);
    command.arg("-shim-config").arg(&config);
    command.arg("-json-output").arg(&results);
    let output = command.output().context("cannot start the runner")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let cases = Cases::read(&results)?;
    let (passed, failed) = (cases.of("PASS", ""), cases.of("FAIL", ""));
    if failed > 0 || !output.status.success() {
        println!("{}", failures(&text));
    }
    ensure!(failed == 0, "bogo: {failed} cases failed");
    ensure!(
        output.status.success(),
        "bogo: the runner failed: {}",
        output.status
    );
    ensure!(
        passed >= PASSED_MIN,
        "bogo: {passed} cases passed, which were {PASSED_MIN} once"
    );
    let reasons: Value = serde_json::from_str(CONFIG)?;
    let reasons = reasons["DisabledTests"]
        .as_object()
        .map_or(0, |it| it.len());
    let [dtls, quic] = ["DTLS", "-QUIC"].map(|name| cases.of("SKIP", name));
    let others = cases.of("SKIP", "") - dtls - quic;
    Ok(Outcome::Passed(Passed {
        version: super::commit(&source),
        cases: passed,
        table: String::new(),
        differences: format!(
            "not run: {dtls} cases of DTLS, {quic} of QUIC, {others} of clients and of what gannet lacks or has no \
             setting for (raw keys, ...); {reasons} patterns have reasons in bogo.json"
        ),
    }))
}

/// The name and the result of each case.
struct Cases(Vec<(String, String)>);

impl Cases {
    fn read(results: &Path) -> Result<Self> {
        let text = fs::read_to_string(results).context("the runner has written no results")?;
        let results: Value = serde_json::from_str(&text)?;
        let cases = results["tests"].as_object().context("no cases")?.iter();
        let result = |case: &Value| case["actual"].as_str().unwrap_or("FAIL").to_owned();
        Ok(Self(
            cases
                .map(|(name, case)| (name.clone(), result(case)))
                .collect(),
        ))
    }

    /// How many have this result, of those that have this in their name.
    fn of(&self, result: &str, name: &str) -> usize {
        let cases = self.0.iter();
        cases
            .filter(|(it, had)| had == result && it.contains(name))
            .count()
    }
}

/// What the runner says of the cases that failed.
fn failures(text: &str) -> String {
    let mut is_shown = false;
    let lines = text.lines().filter(|line| {
        let is_case = ["PASSED (", "UNIMPLEMENTED (", "DISABLED ("]
            .iter()
            .any(|start| line.starts_with(start));
        is_shown = (is_shown || line.starts_with("FAILED (")) && !is_case;
        is_shown
    });
    lines.collect::<Vec<_>>().join("\n")
}
