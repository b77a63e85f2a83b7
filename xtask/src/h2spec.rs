//! Runs h2spec in strict mode against the server, on each engine, over TLS and in clear text.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use xtask::process;
use xtask::served::Served;

use crate::program::Program;

const HELP: &str = "\
cargo xtask h2spec [--program FILE]

  --program FILE   a gannet that is built already
";

/// The module to install if h2spec is missing, through the machine's Go module proxy.
const SOURCE: &str = "github.com/summerwind/h2spec/cmd/h2spec@latest";

/// Cases that fail in clear text: on a port that also speaks HTTP/1, input that is not a preface is
/// answered as an HTTP/1 request.
const EXPECTED_IN_CLEAR: &[&str] = &["2: Sends invalid connection preface"];

/// Runs all cases; if that is impossible here, prints why.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let Some(program) = Program::parse(parser, HELP)? else {
        return Ok(());
    };
    let Some(h2spec) = find()? else {
        println!("skipped: h2spec is not installed, and neither is Go, which would install it");
        return Ok(());
    };
    let gannet = program.path()?;
    let folder = process::target().join("h2spec");
    std::fs::create_dir_all(folder.join("site"))?;
    std::fs::write(folder.join("site/index.html"), "<p>hello\n".repeat(100))?;
    for engine in ["io_uring", "epoll"] {
        for scheme in ["http", "https"] {
            run(&h2spec, &gannet, &folder, engine, scheme)
                .with_context(|| format!("h2spec over {scheme} on {engine}"))?;
        }
    }
    Ok(())
}

fn find() -> Result<Option<PathBuf>> {
    let works = |path: &Path| {
        let mut command = Command::new(path);
        let command = command.arg("--version").stdout(Stdio::null());
        command.stderr(Stdio::null()).status().is_ok()
    };
    let output = Command::new("go").args(["env", "GOPATH"]).output();
    let installed = output.ok().map(|output| {
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Path::new(&text).join("bin/h2spec")
    });
    let in_path = PathBuf::from("h2spec");
    if works(&in_path) {
        return Ok(Some(in_path));
    }
    let Some(installed) = installed else {
        return Ok(None);
    };
    if !works(&installed) {
        let status = Command::new("go").args(["install", SOURCE]).status()?;
        ensure!(status.success(), "go install {SOURCE} failed");
    }
    Ok(Some(installed))
}

fn run(h2spec: &Path, gannet: &Path, folder: &Path, engine: &str, scheme: &str) -> Result<()> {
    let Some(server) = start(gannet, folder, engine, scheme == "https")? else {
        println!("{engine}, {scheme}: skipped, the engine does not start here");
        return Ok(());
    };
    let mut command = Command::new(h2spec);
    command.args(["--strict", "--host", "127.0.0.1", "--port", &server.port]);
    if scheme == "https" {
        command.args(["--tls", "--insecure"]);
    }
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let failed: Vec<&str> = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("× "))
        .collect();
    let summary = text.lines().rev().find(|line| line.contains("tests, "));
    let summary = summary.context("h2spec printed no summary")?;
    let expected: &[&str] = if scheme == "http" {
        EXPECTED_IN_CLEAR
    } else {
        &[]
    };
    println!("{engine}, {scheme}: {summary}; expected to fail: {expected:?}");
    // Failures are listed in place and again at the end.
    if let Some(case) = failed.iter().find(|case| !expected.contains(case)) {
        println!("{text}");
        bail!("failed: {case}");
    }
    if let Some(case) = expected.iter().find(|case| !failed.contains(case)) {
        bail!("passes, and is listed as one that fails: {case}");
    }
    ensure!(
        summary.contains("146 tests"),
        "not the 146 cases that are known"
    );
    Ok(())
}

fn start(gannet: &Path, folder: &Path, engine: &str, tls: bool) -> Result<Option<Served>> {
    let mut command = Command::new(gannet);
    command.args(["serve", "--engine", engine, "--listen", "127.0.0.1:0"]);
    command.args(["--workers", "1", "--log", "off"]);
    // Keeps the development certificate of this run inside the folder.
    command.env("XDG_DATA_HOME", folder.join("data"));
    if tls {
        command.arg("--tls");
    }
    Served::start(command.arg(folder.join("site")))
}
