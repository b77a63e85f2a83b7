//! A mirror of Debian packages in a store: real clients, while releases are published. The site keeps
//! packages that a release no longer has by a rule; without it, clients that have older lists miss them.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Result;
use xtask::process;

const SCRIPT: &str = include_str!("mirror.sh");
const RELEASES: &str = "40";
const CLIENTS: &str = "3";

/// What the script needs, and Debian's packages of it.
const TOOLS: [(&str, &str); 4] = [
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
    ("dpkg-scanpackages", "dpkg-dev"),
    ("apt-ftparchive", "apt-utils"),
];

/// Runs it, or prints why it is skipped.
pub(super) fn main(program: &Path, folder: &Path) -> Result<()> {
    for (tool, package) in TOOLS {
        match process::find_or_install(tool, package) {
            Ok(_) => {}
            Err(error) if !process::is_ci() => {
                println!("a mirror of packages skipped: {error:#}");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
    let folder = folder.join("mirror");
    fs::create_dir_all(&folder)?;
    let script = folder.join("mirror.sh");
    fs::write(&script, SCRIPT)?;
    let mut command = Command::new("sh");
    command.arg(script).arg(program).arg(folder);
    process::run(command.args([RELEASES, CLIENTS]))
}
