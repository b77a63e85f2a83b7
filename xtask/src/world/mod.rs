//! Other people's clients, and the hosts' own engines of rules, against a live directory and an archive.
//!
//! ```text
//!   fixtures.sh ──▶ site ──┬─▶ gannet, uring ──┐
//!                          ├─▶ gannet, epoll ──┼──▶ cases: a script each, with the client ──▶ table
//!                   pack ──┴─▶ ... archive ────┘
//! ```
//!
//! Each client is installed if possible. One that cannot be had is named with the reason and skipped;
//! no case fails for lack of a network.

mod cases;
mod oracles;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lexopt::prelude::*;
use xtask::process;
use xtask::served::Served;

use self::cases::{Case, Origin};
use crate::program::Program;

const HELP: &str = "\
cargo xtask world [--quick] [--program FILE]

  Other people's clients, and the engines of rules of Netlify and Cloudflare, against a live directory
  and an archive, on each engine. What is missing is installed by apt-get (as root), npm or pip, or
  skipped with the reason. At the end a table: client, case, what was served, result.

  --quick         only what is installed in two minutes, on one engine, without the hosts' engines
  --program FILE  the gannet to try, instead of building one for development
";

/// Makes the files of the site.
const FIXTURES: &str = include_str!("fixtures.sh");

/// How long one case may take, in seconds: some clients never give up.
const CASE_SECONDS: &str = "60";

/// How long `--quick` installs clients.
const INSTALLING: Duration = Duration::from_secs(100);

/// A row of the table.
struct Row {
    client: &'static str,
    case: &'static str,
    /// What was served, and by which engine; empty if the case was skipped.
    mode: String,
    outcome: Outcome,
}

enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Runs all cases.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let (mut is_quick, mut program) = (false, None);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("quick") => is_quick = true,
            Long("program") => program = Some(PathBuf::from(parser.value()?)),
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let gannet = Program::of(program).path()?;
    let folder = process::target().join("world");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let folder = fs::canonicalize(folder)?;
    let mut rows = of_clients(&gannet, &folder, is_quick)?;
    if !is_quick {
        rows.extend(oracles::rows(&gannet, &folder)?);
    }
    print_table(&rows)
}

/// The clients' rows.
fn of_clients(gannet: &Path, folder: &Path, is_quick: bool) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let began = Instant::now();
    let mut cases = Vec::new();
    let mut tried: Vec<(Vec<Origin>, Result<(), String>)> = Vec::new();
    for case in cases::all()? {
        if is_quick && !case.is_quick {
            continue;
        }
        let known = tried.iter().find(|(origins, _)| *origins == case.origins);
        let found = match known {
            Some((_, found)) => found.clone(),
            None => {
                let is_late = is_quick && began.elapsed() > INSTALLING;
                let found = have(&case, folder, is_late).map_err(|error| format!("{error:#}"));
                tried.push((case.origins.clone(), found.clone()));
                found
            }
        };
        match found {
            Ok(()) => cases.push(case),
            Err(why) => rows.push(Row::new(&case, String::new(), Outcome::Skipped(why))),
        }
    }
    make_site(folder)?;
    let site = folder.join("site");
    let archive = folder.join("site.gannet");
    let mut pack = Command::new(gannet);
    pack.args([
        "pack",
        "--fast",
        "--quiet",
        "--listing",
        "--include",
        "*.gz",
        "-o",
    ]);
    process::capture(pack.arg(&archive).arg(&site))?;
    let engines: &[&str] = if is_quick {
        &["auto"]
    } else {
        &["io_uring", "epoll"]
    };
    for (content, path) in [("directory", &site), ("archive", &archive)] {
        for engine in engines {
            let mut serve = Command::new(gannet);
            serve.arg("serve").arg(path);
            serve.args(["--port", "0", "--engine", engine, "--log", "off"]);
            let Some(server) = Served::start(&mut serve)? else {
                println!("{content}, {engine}: skipped: not available");
                continue;
            };
            let mode = format!("{content}, {engine}");
            for case in &cases {
                let outcome = run(case, folder, &mode, &server.port)?;
                rows.push(Row::new(case, mode.clone(), outcome));
            }
        }
    }
    Ok(rows)
}

impl Row {
    fn new(case: &Case, mode: String, outcome: Outcome) -> Self {
        Self {
            client: case.client,
            case: case.name,
            mode,
            outcome,
        }
    }
}

/// Finds all that a case needs, or installs it.
fn have(case: &Case, folder: &Path, is_late: bool) -> Result<()> {
    for origin in &case.origins {
        match *origin {
            Origin::Debian(packages) if process::find(case.client).is_none() => {
                if is_late {
                    bail!("'{packages}' is not installed, and two minutes are over");
                }
                packages.split(' ').try_for_each(process::install)?;
            }
            Origin::Debian(_) => {}
            Origin::Pip(package) => {
                let python = process::find_or_install("python3", "python3")?;
                let packages = folder.join("python");
                let mut pip = Command::new(python);
                pip.args(["-m", "pip", "install", "--quiet", "--target"]);
                pip.arg(&packages).arg(package).stdin(Stdio::null());
                process::capture(&mut pip)?;
            }
            Origin::Npm(package) => {
                let packages = folder.join("npm");
                fs::create_dir_all(&packages)?;
                oracles::install(&packages, &[package])?;
            }
        }
    }
    Ok(())
}

/// Makes the files that are served.
fn make_site(folder: &Path) -> Result<()> {
    let mut make = Command::new("bash");
    make.args(["-c", FIXTURES]).current_dir(folder);
    make.env("LC_ALL", "C.UTF-8");
    process::capture(make.stdin(Stdio::null())).context("the files of the site")?;
    Ok(())
}

/// Runs a case in a folder of its own.
fn run(case: &Case, folder: &Path, mode: &str, port: &str) -> Result<Outcome> {
    let own = folder.join("run");
    let _ = fs::remove_dir_all(&own);
    fs::create_dir_all(&own)?;
    let mut script = Command::new("timeout");
    script.args([CASE_SECONDS, "bash", "-euo", "pipefail", "-c", case.script]);
    script
        .current_dir(&own)
        .env("U", format!("http://127.0.0.1:{port}"))
        .env("HOST", format!("127.0.0.1:{port}"))
        .env("S", folder.join("site"))
        .env("OLD", folder.join("old"))
        .env("D", &own)
        .env("HOME", &own)
        .env("PYTHONPATH", folder.join("python"))
        .env("no_proxy", "127.0.0.1")
        // Some clients take names of files from it.
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null());
    let output = script.output().context("cannot start 'timeout'")?;
    if output.status.success() {
        return Ok(Outcome::Passed);
    }
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    println!("FAILED {}, {}, {mode}:\n{text}", case.client, case.name);
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    Ok(Outcome::Failed(last.unwrap_or("no output").to_owned()))
}

/// Prints all rows, and fails if one did.
fn print_table(rows: &[Row]) -> Result<()> {
    println!("| client | case | served | result |\n|---|---|---|---|");
    let mut failed = 0;
    for row in rows {
        let result = match &row.outcome {
            Outcome::Passed => "passed".to_owned(),
            Outcome::Skipped(why) => format!("skipped: {}", why.lines().next().unwrap_or("")),
            Outcome::Failed(why) => {
                failed += 1;
                format!("FAILED: {why}")
            }
        };
        println!(
            "| {} | {} | {} | {result} |",
            row.client, row.case, row.mode
        );
    }
    ensure!(failed == 0, "{failed} of {} failed", rows.len());
    Ok(())
}
