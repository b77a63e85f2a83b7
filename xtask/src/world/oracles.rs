//! The hosts' own engines of rules, over files made by chance: what they answer is what gannet answers,
//! from a directory and from an archive.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Result;
use xtask::process;

use super::{Outcome, Row};

/// Compares one engine with gannet.
const SCRIPT: &str = include_str!("oracle.mjs");

/// The engines: what the script calls them, and their packages.
const ENGINES: [(&str, &str, &[&str]); 3] = [
    ("netlify", "_redirects", &["netlify-redirector"]),
    ("netlify", "_headers", &["@netlify/headers-parser"]),
    (
        "cloudflare",
        "_redirects and _headers",
        &["@cloudflare/pages-shared"],
    ),
];

/// A row for each engine.
pub(super) fn rows(gannet: &Path, folder: &Path) -> Result<Vec<Row>> {
    let folder = folder.join("oracles");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("oracle.mjs"), SCRIPT)?;
    let mut rows = Vec::new();
    for (client, case, packages) in ENGINES {
        let outcome = match install(&folder, packages) {
            Ok(()) => compare(gannet, &folder, (client, case))?,
            Err(error) => Outcome::Skipped(format!("{error:#}")),
        };
        rows.push(Row {
            client,
            case,
            mode: "directory, archive".to_owned(),
            outcome,
        });
    }
    Ok(rows)
}

/// Installs packages of npm below a folder.
pub(super) fn install(folder: &Path, packages: &[&str]) -> Result<()> {
    let manifest = folder.join("package.json");
    // npm removes what it does not name.
    if !manifest.exists() {
        fs::write(manifest, "{\"private\": true}\n")?;
    }
    let npm = process::find_or_install("npm", "npm")?;
    let mut install = Command::new(npm);
    install.current_dir(folder).stdin(Stdio::null());
    install.args([
        "install",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
        "--ignore-scripts",
    ]);
    process::capture(install.args(packages)).map(drop)
}

fn compare(gannet: &Path, folder: &Path, (client, case): (&str, &str)) -> Result<Outcome> {
    let mut node = Command::new("node");
    node.current_dir(folder).stdin(Stdio::null());
    let output = node
        .arg("oracle.mjs")
        .args([client, case])
        .arg(gannet)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}{}", String::from_utf8_lossy(&output.stderr));
    let last = text.lines().next_back().unwrap_or("no output").to_owned();
    Ok(match output.status.success() {
        true => Outcome::Passed,
        false => Outcome::Failed(last),
    })
}
