//! Constant answers from web frameworks; built in `lab/peers`, a separate workspace.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use super::{Framework, Launch, Task, show};
use xtask::process;

/// The manifest of the programs, relative to the root.
const MANIFEST: &str = "lab/peers/Cargo.toml";
/// Their lock file.
const LOCK: &str = "lab/peers/Cargo.lock";

/// The names of the program and its crate.
fn names(framework: Framework) -> (&'static str, &'static str) {
    match framework {
        Framework::Hyper => ("constant-hyper", "hyper"),
        Framework::Actix => ("constant-actix", "actix-web"),
    }
}

pub(super) fn find(framework: Framework) -> Result<(PathBuf, String)> {
    let (name, package) = names(framework);
    let lock = std::fs::read_to_string(process::root().join(LOCK))
        .with_context(|| format!("cannot read '{LOCK}'"))?;
    let version = version(&lock, package).with_context(|| format!("no {package} in '{LOCK}'"))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let target = target.join("bench-peers").to_string_lossy().into_owned();
    eprintln!("bench: building {name} (release)");
    let place = ["--manifest-path", MANIFEST, "--target-dir", &target];
    let what = [&place[..], &["--locked", "--bin", name]].concat();
    let program = process::build(&what, "dist")?;
    Ok((program, format!("{package} {version}")))
}

/// The version of `package` in the text of a lock file.
fn version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name);
    let version = lines.nth(1)?.strip_prefix("version = \"")?;
    version.strip_suffix('"')
}

pub(super) fn launch(program: &Path, task: &Task<'_>) -> Launch {
    let mut command = Command::new(program);
    command.arg(task.port.to_string());
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
    fn the_committed_lock_names_the_versions() {
        let path = process::root().join(LOCK);
        let lock = std::fs::read_to_string(path).expect("it is committed");
        for framework in [Framework::Hyper, Framework::Actix] {
            let (_, package) = names(framework);
            assert!(version(&lock, package).is_some(), "{package}");
        }
        assert_eq!(version(&lock, "apache"), None);
    }
}
