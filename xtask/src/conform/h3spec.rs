//! h3spec: errors of clients that QUIC and HTTP/3 servers have to notice.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use xtask::process;
use xtask::served::Served;

use super::{Inputs, Outcome, Passed, packages};

/// The cases, which aioquic sends.
const SCRIPT: &str = include_str!("h3spec.py");

/// The checked version.
const PACKAGE: &str = "aioquic==1.7.2";

pub(super) const SOURCE: &str = "https://github.com/kazu-yamamoto/h3spec";

pub(super) fn run(inputs: &Inputs) -> Result<Outcome> {
    let packages = match packages(inputs, &[PACKAGE]) {
        Ok(packages) => packages,
        Err(why) => return Ok(Outcome::Skipped(why)),
    };
    let gannet = inputs.gannet()?;
    let mut serve = Command::new(&gannet);
    serve
        .arg("serve")
        .arg(process::root().join("docs"))
        .args(["-p", "0", "--tls"]);
    let server = Served::start(&mut serve)?.context("the server needs a port")?;
    let cases = ask(&packages, &server.port)?;
    Ok(Outcome::Passed(Passed {
        version: PACKAGE.replace("==", " "),
        cases: cases.trim().parse().context("no count")?,
        table: String::new(),
        differences: "none; what a server need not notice is no case".to_owned(),
    }))
}

fn ask(packages: &Path, port: &str) -> Result<String> {
    let mut script = Command::new("python3");
    script
        .args(["-c", SCRIPT, port])
        .env("PYTHONPATH", packages);
    process::capture(&mut script)
}
