//! Runs the programs of chores, and reports what went wrong with them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, OnceLock},
    thread,
};

use anyhow::{Context, Result, bail};

/// The root of the workspace: the one containing the current directory, so that a program built in
/// another checkout works on this one; outside of any, the one it was built from.
pub fn root() -> PathBuf {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    let find = || {
        let here = std::env::current_dir().ok();
        let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
        let built_from = xtask.parent().unwrap_or(xtask);
        here.and_then(|directory| workspace_of(&directory))
            .unwrap_or_else(|| built_from.to_owned())
    };
    ROOT.get_or_init(find).clone()
}

/// The project's workspace containing `directory`, ignoring nested ones such as that of
/// `lab/peers`.
fn workspace_of(directory: &Path) -> Option<PathBuf> {
    let is_workspace = |directory: &&Path| {
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap_or_default();
        let has_members = manifest.lines().any(|line| line.trim() == "[workspace]");
        has_members && directory.join("xtask/Cargo.toml").is_file()
    };
    directory.ancestors().find(is_workspace).map(Path::to_owned)
}

/// Cargo's target directory, which chores use, too.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The cargo that runs this program, or the one in PATH.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs `command` to its end with its output shown; an exit status other than 0 is an error.
///
/// # Errors
///
/// The program cannot be started, or fails.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start '{shown}'"))?;
    if !status.success() {
        bail!("'{shown}' failed: {status}");
    }
    Ok(())
}

/// Whether this runs in CI, where a skipped check must not look like a passed one.
pub fn is_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !matches!(&value[..], "" | "0" | "false"))
}

/// Builds `what` and returns the program's path as reported by cargo.
///
/// # Errors
///
/// It does not build, or is not a program.
pub fn build(what: &[&str], profile: &str) -> Result<PathBuf> {
    let programs = build_all(what, profile)?;
    programs
        .into_values()
        .next_back()
        .context("cargo named no executable")
}

/// Builds `what` and returns the paths of all programs as reported by cargo, by their names.
///
/// # Errors
///
/// It does not build.
pub fn build_all(what: &[&str], profile: &str) -> Result<BTreeMap<String, PathBuf>> {
    let mut command = cargo();
    command.args(["build", "--profile", profile]).args(what);
    programs(&mut command)
}

/// Runs a build of cargo's, and returns the paths of all programs that it reports, by their names.
///
/// # Errors
///
/// It fails.
pub fn programs(build: &mut Command) -> Result<BTreeMap<String, PathBuf>> {
    build
        .args(["--message-format", "json-render-diagnostics"])
        .stderr(Stdio::inherit());
    let messages = capture(build)?;
    let artifacts = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let path = PathBuf::from(message["executable"].as_str()?);
        Some((message["target"]["name"].as_str()?.to_owned(), path))
    });
    Ok(artifacts.collect())
}

/// The trimmed standard output of a program, or its standard error if that is empty.
///
/// # Errors
///
/// The program cannot be started, or fails.
pub fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    capture(&mut command)
}

/// Runs `command` to its end and returns its output.
///
/// # Errors
///
/// The program cannot be started, or fails.
pub fn capture(command: &mut Command) -> Result<String> {
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

/// The path of `program`, in PATH or in the directories of system programs.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(system)
        .map(|d| d.join(program))
        .find(|p| p.is_file())
}

/// Finds `program`; if necessary and possible, installs `package` with apt-get.
///
/// # Errors
///
/// The program is missing and cannot be installed.
pub fn find_or_install(program: &str, package: &str) -> Result<PathBuf> {
    if let Some(path) = find(program) {
        return Ok(path);
    }
    install(package).with_context(|| format!("'{program}' is not installed"))?;
    find(program).with_context(|| format!("'{program}' is missing although it was installed"))
}

/// The folder in which cargo keeps what it has fetched.
pub fn cargo_home() -> Option<PathBuf> {
    let named = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}

/// Finds `program`, also among those installed by cargo. If `may`, installs the crate of that name
/// with cargo below the target directory.
///
/// # Errors
///
/// The program is missing and must not, or cannot, be installed.
pub fn find_or_cargo_install(program: &str, may: bool) -> Result<PathBuf> {
    let tools = target().join("tools");
    let places = cargo_home();
    let places = places
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

/// Installs `package` with apt-get, which requires root.
///
/// # Errors
///
/// The package cannot be installed.
pub fn install(package: &str) -> Result<()> {
    if find("apt-get").is_none() || !rustix::process::geteuid().is_root() {
        bail!("only root with apt-get can install '{package}'");
    }
    eprintln!("installing {package}");
    // Chores may run side by side, and apt-get does not wait for itself.
    fs::create_dir_all(target())?;
    let alone = fs::File::create(target().join("apt.lock"))?;
    rustix::fs::flock(&alone, rustix::fs::FlockOperation::LockExclusive)?;
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

/// Does `work` with each of `items`, with as many at once as there are processors.
///
/// # Errors
///
/// One that `work` returned, once all of it has ended; what had not begun may have been left out.
pub fn side_by_side<T: Sync>(items: &[T], work: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let rest = Mutex::new(items.iter());
    let work_on_rest = || -> Result<()> {
        loop {
            let next = rest.lock().expect("nothing panics with it").next();
            let Some(item) = next else {
                return Ok(());
            };
            work(item)?;
        }
    };
    thread::scope(|scope| {
        let count = thread::available_parallelism()?.get();
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(work_on_rest)).collect();
        let ends = threads.into_iter().map(|it| it.join());
        // All are waited for before one's error is returned.
        let ends: Vec<_> = ends.collect();
        ends.into_iter()
            .try_for_each(|end| end.expect("errors are returned"))
    })
}

/// The command line as text.
#[must_use]
pub fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_looked_for_above_the_directory() {
        let base = std::env::temp_dir().join(format!("gannet-workspace-{}", std::process::id()));
        let inner = base.join("lab/peers/src");
        fs::create_dir_all(&inner).expect("a writable temporary directory");
        fs::create_dir_all(base.join("xtask")).expect("writable");
        let write = |path: &str, text: &str| fs::write(base.join(path), text).expect("writable");
        write("lab/peers/Cargo.toml", "[workspace]\n");
        write("xtask/Cargo.toml", "[package]\n");
        assert_eq!(
            workspace_of(&inner),
            None,
            "no manifest above says [workspace]"
        );
        write("Cargo.toml", "[workspace]\nmembers = []\n");
        assert_eq!(workspace_of(&inner), Some(base.clone()));
        fs::remove_dir_all(base).expect("ours");
    }

    #[test]
    fn the_root_is_this_project() {
        assert!(root().join("lab/scenarios").is_dir());
    }
}
