//! Boots a real systemd and tries what `gannet install` and the Debian package write.
//!
//! ```text
//!   a folder ──▶ overlay of / in memory ──▶ systemd-nspawn --boot ──▶ trial.service
//!      ▲          (own mount namespace)        (own network)            │ this program, --inside
//!      └──────────────────────────── the report ────────────────────────┘
//! ```
//!
//! Nothing of it is left on the machine: what the trials install, change and remove is in memory.

mod clients;
mod fleet;
mod machine;
mod package;
mod service;
mod socket;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use xtask::process;

use crate::acme;
use crate::dist;
use crate::program::Program;

use self::machine::Machine;

const HELP: &str = "\
cargo xtask systemd [--program FILE]

  Boots a systemd on a copy of this machine's files, in memory, and tries the service, the one with
  sockets of systemd, a follower, certificates and the Debian package: install, start, request, reload,
  restart, kill, upgrade, stop, install again, remove. Needs root, and systemd-nspawn, which is installed
  if it is missing (package systemd-container). Where that cannot run, it says why, and nothing is tried.

  --program FILE  the gannet to try, instead of building one for development
";

/// Where the folder is in the container.
const SHARED: &str = "/trial";

/// Starts the trials, and ends the container after them.
const TRIAL: &str = "\
[Unit]
Description=trials of gannet
After=basic.target dbus.socket systemd-journald.service
Wants=dbus.socket
SuccessAction=poweroff-immediate
FailureAction=poweroff-immediate

[Service]
Type=oneshot
ExecStart=/trial/xtask systemd --inside
StandardOutput=append:/trial/report
StandardError=append:/trial/report
TimeoutStartSec=600
";

/// Makes an overlay of the root, whose upper part is in memory, and boots it. What is mounted ends with
/// its namespace.
const BOOT: &str = "\
set -e
mount -t tmpfs -o mode=755 tmpfs \"$1/memory\"
mkdir \"$1/memory/upper\" \"$1/memory/work\" \"$1/memory/root\"
mount -t overlay -o \"lowerdir=/,upperdir=$1/memory/upper,workdir=$1/memory/work\" \\
    overlay \"$1/memory/root\"
: > \"$1/memory/root/etc/machine-id\"
exec systemd-nspawn --quiet --register=no --keep-unit --directory=\"$1/memory/root\" \\
    --machine=gannet-trial --private-network --link-journal=no --system-call-filter=@known \\
    --bind=\"$1/shared:/trial\" --bind-ro=\"$1/trial.service:/etc/systemd/system/trial.service\" \\
    --boot --console=pipe systemd.unit=trial.service
";

/// The last line of a report without a failure.
const ALL_PASSED: &str = "all passed";

pub(super) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    if parser
        .try_raw_args()
        .is_some_and(|mut it| it.next_if(|it| it == "--inside").is_some())
    {
        return inside();
    }
    let Some(program) = Program::parse(parser, HELP)? else {
        return Ok(());
    };
    if let Err(why) = is_possible() {
        println!("systemd: skipped: {why:#}");
        return Ok(());
    }
    let folder = process::target().join("systemd");
    let _ = fs::remove_dir_all(&folder);
    for part in ["shared", "memory"] {
        fs::create_dir_all(folder.join(part))?;
    }
    let folder = fs::canonicalize(folder)?;
    share(&program.path()?, &folder)?;
    boot(&folder)
}

/// Whether a container can be booted here.
fn is_possible() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "it takes root");
    process::find_or_install("systemd-nspawn", "systemd-container")?;
    let init = Path::new("/lib/systemd/systemd");
    ensure!(init.exists(), "'{}' is not there", init.display());
    let mut mount = Command::new("unshare");
    mount.args(["--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]);
    process::capture(&mut mount).context("file systems cannot be mounted here")?;
    Ok(())
}

/// Puts what the trials need into the folder.
fn share(program: &Path, folder: &Path) -> Result<()> {
    let shared = folder.join("shared");
    let gannet = shared.join("gannet");
    fs::copy(program, &gannet)?;
    // Without its tables, a program for debugging is packaged sooner.
    process::capture(Command::new("strip").arg("--strip-debug").arg(&gannet))?;
    fs::copy(std::env::current_exe()?, shared.join("xtask"))?;
    fs::write(folder.join("trial.service"), TRIAL)?;
    let package = dist::debian(&gannet, &folder.join("dist"))?;
    fs::copy(package, shared.join("gannet.deb"))?;
    for unit in fs::read_dir(process::root().join("deploy/systemd"))? {
        let unit = unit?;
        fs::copy(unit.path(), shared.join(unit.file_name()))?;
    }
    // Without a network there may be none.
    if let Ok(Some(pebble)) = acme::find("pebble") {
        fs::copy(pebble, shared.join("pebble"))?;
    }
    Ok(())
}

/// Runs the container to its end, and prints what the trials report.
fn boot(folder: &Path) -> Result<()> {
    let mut command = Command::new("unshare");
    command.args([
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        BOOT,
        "boot",
    ]);
    let output = command.arg(folder).stdin(Stdio::null()).output()?;
    let report = fs::read_to_string(folder.join("shared/report")).unwrap_or_default();
    print!("{report}");
    if report.is_empty() {
        let said = String::from_utf8_lossy(&output.stderr);
        // The kernel, or whoever runs this machine, forbids what a container takes.
        println!(
            "systemd: skipped: no container boots here: {}: {}",
            output.status,
            said.trim()
        );
        return Ok(());
    }
    match report.lines().next_back() == Some(ALL_PASSED) {
        true => Ok(()),
        false => bail!("a trial failed"),
    }
}

/// What the unit in the container starts.
fn inside() -> Result<()> {
    let machine = Machine::new(PathBuf::from(SHARED))?;
    println!(
        "systemd: {}",
        machine.run("systemctl --version | head -n 1")?
    );
    let mut failed = 0;
    for trials in [
        service::TRIALS,
        socket::TRIALS,
        fleet::TRIALS,
        package::TRIALS,
    ] {
        failed += machine.try_all(trials);
    }
    ensure!(failed == 0, "{failed} failed");
    println!("{ALL_PASSED}");
    Ok(())
}
