//! gannet, from this workspace or from a given binary.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use super::{Launch, Task, show};
use crate::bench::content::Site;
use xtask::process;

/// Distinguishes this build from others: its version, the revision of the workspace it was built
/// from (unknown for a given binary), and the first digits of its SHA-256.
pub(super) fn identity(program: &Path, version: &str, is_given: bool) -> String {
    let mut text = version.to_owned();
    if !is_given {
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command.arg("-C").arg(process::root()).args(arguments);
            process::capture(&mut command).ok()
        };
        if let Some(revision) = git(&["rev-parse", "--short=12", "HEAD"]) {
            let sources = [
                "status",
                "--porcelain",
                "-uno",
                "--",
                "crates",
                "Cargo.lock",
            ];
            let is_changed = git(&sources).is_none_or(|changes| !changes.is_empty());
            let changes = if is_changed { " with changes" } else { "" };
            text.push_str(&format!(", revision {revision}{changes}"));
        }
    }
    if let Ok(bytes) = fs::read(program) {
        let digest = Sha256::digest(&bytes);
        let digits: String = digest.iter().take(6).map(|b| format!("{b:02x}")).collect();
        text.push_str(&format!(", sha256 {digits}"));
    }
    text
}

pub(super) fn find(given: Option<&Path>, profile: &str) -> Result<(PathBuf, String)> {
    let program = match given {
        Some(path) => path
            .canonicalize()
            .with_context(|| format!("'{}'", path.display()))?,
        None => {
            eprintln!("bench: building gannet ({profile})");
            process::build(&["--package", "gannet", "--bin", "gannet"], profile)?
        }
    };
    ensure!(
        program.is_file(),
        "'{}' is not a program",
        program.display()
    );
    let version = process::output(&program.to_string_lossy(), &["--version"])?;
    let version = version.lines().next().unwrap_or_default().trim().to_owned();
    ensure!(
        !version.is_empty(),
        "'{} --version' prints nothing",
        program.display()
    );
    Ok((program, version))
}

/// gannet without content.
pub(super) fn launch_dummy(program: &Path, task: &Task<'_>) -> Launch {
    let mut command = Command::new(program);
    command.args(["serve", "--dummy", "--engine", "io_uring"]);
    command.args(["--workers", &task.workers.to_string()]);
    command.args(["--log", "off"]);
    command.args(["--listen", &format!("127.0.0.1:{}", task.port)]);
    add_tls(&mut command, task);
    let configuration = show(&command);
    Launch {
        command,
        input: None,
        configuration,
    }
}

fn add_tls(command: &mut Command, task: &Task<'_>) {
    let Some(certificate) = task.certificate else {
        return;
    };
    command.arg("--tls-cert").arg(&certificate.chain);
    command.arg("--tls-key").arg(&certificate.key);
    command.args(["--ktls", if task.ktls { "on" } else { "off" }]);
}

fn help(program: &Path) -> String {
    process::output(&program.to_string_lossy(), &["--help-all"]).unwrap_or_default()
}

/// Whether `program` has flags for TLS.
pub(super) fn has_tls(program: &Path) -> bool {
    help(program).contains("--tls-cert")
}

/// Whether `program` has HTTP/3.
pub(super) fn has_h3(program: &Path) -> bool {
    // The first is a flag of builds from before `--http`.
    let help = help(program);
    help.contains("--no-http3") || help.contains("--http VERSIONS")
}

pub(super) fn pack(program: &Path, site: &Site, output: &Path, is_fast: bool) -> Result<()> {
    let mut command = Command::new(program);
    command.arg("pack").arg(&site.root).arg("-o").arg(output);
    let help = process::output(&program.to_string_lossy(), &["pack", "--help"]);
    if is_fast && help.is_ok_and(|help| help.contains("--fast")) {
        command.arg("--fast");
    }
    command.stdin(Stdio::null());
    process::capture(&mut command).map(|_| ())
}

/// Whether the archive is a copy in memory, by the `text` that the server prints at its start.
pub(super) fn has_copied(text: &str) -> Result<bool> {
    let line = text.lines().find(|line| line.starts_with("serving "));
    let line = line.filter(|line| line.contains("(archive: "));
    let line = line.with_context(|| format!("gannet does not say what it serves: {text}"))?;
    Ok(line.contains(", in memory"))
}

pub(super) fn launch(program: &Path, archive: bool, engine: &str, task: &Task<'_>) -> Launch {
    let what = match task.archive {
        Some(path) if archive => path,
        _ => &task.site.root,
    };
    let mut command = Command::new(program);
    command.arg("serve").arg(what);
    command.args(["--workers", &task.workers.to_string()]);
    command.args(["--engine", engine, "--log", "off"]);
    command.args(["--listen", &format!("127.0.0.1:{}", task.port)]);
    add_tls(&mut command, task);
    let configuration = show(&command);
    Launch {
        command,
        input: None,
        configuration,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gannet_says_whether_it_has_copied_the_archive() {
        let said = |text: &str| has_copied(text).ok();
        let copied =
            "gannet 0.1.0\nserving  /s.gannet (archive: 7 files, 84.0 MiB, build 55, in memory)\n";
        assert_eq!(said(copied), Some(true));
        assert_eq!(said(&copied.replace(", in memory", "")), Some(false));
        assert_eq!(said("serving  /s (directory)"), None);
        assert_eq!(said(""), None);
    }
}
