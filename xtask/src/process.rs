//! Starts the programs that chores are made of, and says what went wrong with them.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let xtask = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().map_or(xtask.clone(), PathBuf::from)
}

/// The cargo that runs this, or the one on the path.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs `command` to its end with its output shown; an exit other than 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start '{shown}'"))?;
    if !status.success() {
        bail!("'{shown}' failed: {status}");
    }
    Ok(())
}

/// Builds what `what` names and returns the program's path, as cargo tells it.
pub(crate) fn build(what: &[&str], profile: &str) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--profile", profile]).args(what);
    command
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit());
    let messages = capture(&mut command)?;
    let artifacts = messages
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let path = artifacts
        .filter_map(|message: serde_json::Value| Some(message["executable"].as_str()?.to_owned()))
        .next_back();
    path.map(PathBuf::from).context("cargo named no executable")
}

/// The trimmed standard output of a program, or its standard error where that is empty.
pub(crate) fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    capture(&mut command)
}

/// Runs `command` to its end and returns what it printed.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let output = command
        .output()
        .with_context(|| format!("cannot start '{shown}'"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    if !output.status.success() {
        bail!("'{shown}' failed: {}\n{err}", output.status);
    }
    Ok(if out.is_empty() { err } else { out })
}

/// Where `program` is, on the path or in the directories of system programs.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|d| d.join(program))
        .find(|p| p.is_file())
}

/// Finds `program`, installing `package` by apt-get where that is possible.
pub(crate) fn find_or_install(program: &str, package: &str) -> Result<PathBuf> {
    if let Some(path) = find(program) {
        return Ok(path);
    }
    install(package).with_context(|| format!("'{program}' is not installed"))?;
    find(program).with_context(|| format!("'{program}' is missing although it was installed"))
}

/// Finds `program`, also among those that cargo installed, and lets cargo install the crate of that
/// name below the build directory where it `may`.
pub(crate) fn find_or_cargo_install(program: &str, may: bool) -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from);
    let tools = target.join("tools");
    let places = home
        .iter()
        .chain([&tools])
        .map(|d| d.join("bin").join(program));
    let found = find(program).or_else(|| places.into_iter().find(|path| path.is_file()));
    if let Some(path) = found {
        return Ok(path);
    }
    if !may {
        bail!("'{program}' is not installed ('cargo install {program}')");
    }
    eprintln!("installing {program} by cargo into '{}'", tools.display());
    let mut install = cargo();
    install.args(["install", "--locked", program, "--root"]);
    install.arg(&tools).stdin(Stdio::null());
    capture(&mut install).with_context(|| format!("cannot install {program}"))?;
    Ok(tools.join("bin").join(program))
}

/// Installs `package` by apt-get, which only root can.
pub(crate) fn install(package: &str) -> Result<()> {
    if find("apt-get").is_none() || !rustix::process::geteuid().is_root() {
        bail!("only root with apt-get can install '{package}'");
    }
    eprintln!("installing {package}");
    let install = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        command
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive");
        command.stdin(Stdio::null());
        capture(&mut command)
    };
    let package = ["install", "-y", "-q", "--no-install-recommends", package];
    if install(&package).is_err() {
        install(&["update", "-q"])?;
        install(&package)?;
    }
    Ok(())
}

fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
