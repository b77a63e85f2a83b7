//! Packages of Debian by the host's apt, with sources and lists of our own: nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process;

/// An apt that knows other sources than the host's.
pub(super) struct Apt {
    directory: PathBuf,
}

/// Debian's own archive; a proxy, if there is one, is that of the host's apt.
const ARCHIVE: &str = "http://deb.debian.org/debian";

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

impl Apt {
    /// Reads the lists of the suites, signatures checked.
    pub(super) fn new(directory: &Path, suites: &[&str]) -> Result<Self> {
        ensure!(
            process::find("apt-get").is_some() && process::find("dpkg-deb").is_some(),
            "the kernels come as packages of Debian: 'apt-get' and 'dpkg-deb' are needed"
        );
        ensure!(
            Path::new(KEYRING).is_file(),
            "the keys of Debian's archive are missing: install 'debian-archive-keyring'"
        );
        let apt = Self {
            directory: directory.to_owned(),
        };
        for folder in ["lists/partial", "cache/archives/partial", "packages"] {
            fs::create_dir_all(directory.join(folder))?;
        }
        let sources: String = suites
            .iter()
            .map(|suite| format!("deb [signed-by={KEYRING}] {ARCHIVE} {suite} main\n"))
            .collect();
        fs::write(directory.join("sources.list"), sources)?;
        process::capture(apt.command("apt-get").args(["update", "--quiet"]))?;
        Ok(apt)
    }

    /// The fields of a package in a suite's version of it, as `apt-cache show` prints them.
    pub(super) fn show(&self, package: &str) -> Result<String> {
        process::capture(self.command("apt-cache").args(["show", package]))
    }

    /// Downloads a package and unpacks it into `into`.
    pub(super) fn unpack(&self, package: &str, into: &Path) -> Result<()> {
        let folder = self.directory.join("packages").join(package);
        fs::create_dir_all(&folder)?;
        let mut command = self.command("apt-get");
        command.args(["download", "--quiet", package]);
        process::capture(command.current_dir(&folder))?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let mut command = Command::new("dpkg-deb");
            command.arg("-x").arg(&path).arg(into);
            process::capture(&mut command).with_context(|| format!("package {package}"))?;
        }
        fs::remove_dir_all(&folder)?;
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let mut set = |name: &str, value: &str| {
            command.arg("-o").arg(format!("{name}={value}"));
        };
        let at = |name: &str| self.directory.join(name).display().to_string();
        set("Dir::Etc::sourcelist", &at("sources.list"));
        set("Dir::Etc::sourceparts", "-");
        set("Dir::State::lists", &at("lists"));
        set("Dir::Cache", &at("cache"));
        set("APT::Architecture", "amd64");
        set("APT::Sandbox::User", "root");
        set("Acquire::Languages", "none");
        set(
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled",
            "false",
        );
        command
    }
}
