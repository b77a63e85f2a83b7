//! The contents of packages: the program, and what it writes about itself.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::Processor;

/// Everything that packages are made of.
pub(super) struct Stage {
    pub(super) version: String,
    /// A copy of the program, to be run.
    pub(super) placed: PathBuf,
    pub(super) program: Vec<u8>,
    pub(super) manual: Vec<u8>,
    pub(super) bash: Vec<u8>,
    pub(super) fish: Vec<u8>,
    pub(super) zsh: Vec<u8>,
    pub(super) bill: Vec<u8>,
    pub(super) licences: Vec<u8>,
    /// What `gannet install` writes for a program in `/usr/bin`: paths without the leading slash.
    pub(super) installed: Vec<(String, Vec<u8>)>,
}

impl Stage {
    /// Runs the program for all of it. `root` is a folder for its installation, which is recreated.
    pub(super) fn of(program: &Path, processor: Processor, root: &Path) -> Result<Self> {
        if root.exists() {
            fs::remove_dir_all(root).with_context(|| root.display().to_string())?;
        }
        let bin = root.join("usr/bin");
        fs::create_dir_all(&bin)?;
        let placed = bin.join("gannet");
        fs::copy(program, &placed)
            .with_context(|| format!("cannot copy '{}'", program.display()))?;
        fs::set_permissions(&placed, fs::Permissions::from_mode(0o755))?;
        let ask = |arguments: &[&str]| output(processor.command(&placed)?, arguments);
        let version = String::from_utf8(ask(&["version"])?)?;
        let version = version.trim().strip_prefix("gannet ");
        let root_text = root.to_str().context("the folder's path is not UTF-8")?;
        ask(&["install", "--root", root_text])?;
        let mut installed = Vec::new();
        collect(root, root, &mut installed)?;
        installed.retain(|(path, _)| path != "usr/bin/gannet");
        installed.sort();
        Ok(Self {
            version: version.context("the program names no version")?.to_owned(),
            manual: ask(&["help", "--man"])?,
            bash: ask(&["completions", "bash"])?,
            fish: ask(&["completions", "fish"])?,
            zsh: ask(&["completions", "zsh"])?,
            bill: ask(&["version", "--sbom"])?,
            licences: ask(&["version", "--licenses"])?,
            program: fs::read(&placed)?,
            placed,
            installed,
        })
    }
}

/// The files below `folder`, with their paths below `root`.
fn collect(root: &Path, folder: &Path, files: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(root, &path, files)?;
        } else {
            let name = path.strip_prefix(root)?.to_str().context("not UTF-8")?;
            files.push((name.to_owned(), fs::read(&path)?));
        }
    }
    Ok(())
}

fn output(mut command: Command, arguments: &[&str]) -> Result<Vec<u8>> {
    let program = command.get_program().to_string_lossy();
    let shown = format!("{program} {}", arguments.join(" "));
    let ended = command.args(arguments).stdin(Stdio::null()).output();
    let ended = ended.with_context(|| format!("cannot start '{shown}'"))?;
    if !ended.status.success() {
        let said = String::from_utf8_lossy(&ended.stderr);
        bail!("'{shown}' failed: {}\n{said}", ended.status);
    }
    Ok(ended.stdout)
}
