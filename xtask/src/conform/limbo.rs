//! x509-limbo: chains of certificates, against what `--tls-client-ca` lets pass.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use xtask::process;

use super::{Inputs, Outcome, Passed};

/// The public repository with the cases' program.
pub(super) const SOURCE: &str = "https://github.com/C2SP/x509-limbo";

/// Makes the cases.
const SCRIPT: &str = include_str!("limbo.py");

/// What the program of the cases needs.
const PACKAGES: [&str; 2] = ["cryptography==46.0.7", "pydantic==2.14.4"];

/// Cases that come out differently, each with its reason.
const DIFFERENCES: &str = include_str!("limbo.json");

/// Features of cases for which gannet has no setting.
const LACKING: [&str; 2] = ["has-crl", "max-chain-depth"];

/// The least number of cases that pass.
const PASSED_MIN: usize = 100;

/// What becomes of each chain, compared with what is expected.
pub(super) fn run(inputs: &Inputs) -> Result<Outcome> {
    let Some(source) = super::cloned(inputs, SOURCE, "x509-limbo") else {
        return Ok(super::without(SOURCE));
    };
    let suite = match made(&source) {
        Ok(suite) => suite,
        Err(why) => {
            return Ok(Outcome::Skipped(format!(
                "the cases cannot be made: {why:#}"
            )));
        }
    };
    let cases = suite["testcases"].as_array().context("no cases")?;
    let (cases, lacking): (Vec<_>, Vec<_>) = cases.iter().partition(|case| {
        let features = case["features"].as_array().into_iter().flatten();
        !features
            .into_iter()
            .any(|it| LACKING.iter().any(|name| it == name))
    });
    let folder = process::target().join("conform/limbo");
    lay(&folder, &cases)?;
    let results = verified(&folder)?;
    let reasons: Value = serde_json::from_str(DIFFERENCES)?;
    let (mut passed, mut others, mut failed) = (0, Vec::new(), String::new());
    for (case, result) in cases.iter().zip(results) {
        let id = case["id"].as_str().context("a case without a name")?;
        let is_right = (case["expected_result"] == "SUCCESS") == (result == "accepted");
        match (is_right, reasons[id].is_string()) {
            (true, false) => passed += 1,
            (false, true) => others.push(id),
            (true, true) => writeln!(failed, "{id} no longer differs")?,
            (false, false) => writeln!(failed, "{id}: {result}")?,
        }
    }
    ensure!(failed.is_empty(), "{failed}");
    ensure!(
        passed >= PASSED_MIN,
        "{passed} cases passed, which were {PASSED_MIN} once"
    );
    Ok(Outcome::Passed(Passed {
        cases: passed,
        version: super::commit(&source),
        differences: format!(
            "with leaves of clients; {} cases are of lists of revoked certificates and of bounds of chains, for \
             which gannet has no setting, {} have reasons in limbo.json",
            lacking.len(),
            others.len()
        ),
        table: String::new(),
    }))
}

/// The suite, made by its own program.
fn made(source: &Path) -> Result<Value> {
    let paths = [source.to_owned(), super::installed(&PACKAGES)?];
    let file = process::target().join("conform/limbo.json");
    let mut script = Command::new("python3");
    script.args(["-c", SCRIPT]).arg(&file);
    script.env("PYTHONPATH", std::env::join_paths(paths)?);
    process::capture(&mut script)?;
    Ok(serde_json::from_slice(&fs::read(&file)?)?)
}

/// Writes each case into a folder by its number.
fn lay(folder: &Path, cases: &[&Value]) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    for (number, case) in cases.iter().enumerate() {
        let folder = folder.join(number.to_string());
        fs::create_dir_all(&folder)?;
        let pem = |values: &Value| {
            let all = values.as_array().into_iter().flatten();
            all.filter_map(Value::as_str).collect::<String>()
        };
        let leaf = case["peer_certificate"].as_str().context("no leaf")?;
        let chain = format!("{leaf}{}", pem(&case["untrusted_intermediates"]));
        fs::write(folder.join("chain.pem"), chain)?;
        fs::write(folder.join("authorities.pem"), pem(&case["trusted_certs"]))?;
        fs::write(folder.join("now"), seconds(&case["validation_time"])?)?;
    }
    Ok(())
}

/// A time in Unix seconds, or now.
fn seconds(time: &Value) -> Result<String> {
    let mut date = Command::new("date");
    let text = process::capture(date.args(["+%s", "-d", time.as_str().unwrap_or("now")]))?;
    Ok(text.trim().to_owned())
}

/// What becomes of each case, by its number.
fn verified(folder: &Path) -> Result<Vec<String>> {
    let program: PathBuf =
        process::build(&["--package", "gannet-server", "--example", "limbo"], "dev")?;
    let text = process::capture(Command::new(program).arg(folder))?;
    let mut results = vec![String::new(); text.lines().count()];
    for line in text.lines() {
        let (number, result) = line.split_once(' ').context("a line without a result")?;
        match results.get_mut(number.parse::<usize>()?) {
            Some(place) => result.clone_into(place),
            None => bail!("case {number} is not there"),
        }
    }
    Ok(results)
}
