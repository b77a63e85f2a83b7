//! Downloads Debian packages with the host's apt, from the host's Debian source but for other
//! suites, and with separate lists: nothing is installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use xtask::process;

/// An apt configured with other suites than the host's.
pub(crate) struct Apt {
    directory: PathBuf,
    /// Debian's name of the processor that packages are for.
    architecture: &'static str,
}

/// Debian's keys, which sign the archive, whoever mirrors it.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

impl Apt {
    /// Fetches the lists of the suites and verifies their signatures.
    pub(crate) fn new(
        directory: &Path,
        suites: &[&str],
        architecture: &'static str,
    ) -> Result<Self> {
        ensure!(
            process::find("apt-get").is_some() && process::find("dpkg-deb").is_some(),
            "packages of Debian are needed: 'apt-get' and 'dpkg-deb' are missing"
        );
        ensure!(
            Path::new(KEYRING).is_file(),
            "the keys of Debian's archive are missing: install 'debian-archive-keyring'"
        );
        let apt = Self {
            directory: directory.to_owned(),
            architecture,
        };
        for folder in ["lists/partial", "cache/archives/partial", "packages"] {
            fs::create_dir_all(directory.join(folder))?;
        }
        let archive = apt.archive()?;
        let sources: String = suites
            .iter()
            .map(|suite| format!("deb [signed-by={KEYRING}] {archive} {suite} main\n"))
            .collect();
        fs::write(directory.join("sources.list"), sources)?;
        process::capture(apt.command("apt-get").args(["update", "--quiet"]))?;
        Ok(apt)
    }

    /// The fields of a package, as `apt-cache show` prints them.
    pub(crate) fn show(&self, package: &str) -> Result<String> {
        process::capture(self.command("apt-cache").args(["show", package]))
    }

    /// Downloads a package and unpacks it into `into`.
    pub(crate) fn unpack(&self, package: &str, into: &Path) -> Result<()> {
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

    /// The URL of this machine's source of Debian's archive.
    fn archive(&self) -> Result<String> {
        let known = process::capture(Command::new("apt-get").arg("indextargets"))?;
        if let Some(archive) = archive_of(&known) {
            return Ok(archive.to_owned());
        }
        // The origin of a source is in its lists, which container images lack.
        let host = |arguments: &[&str]| {
            let mut command = Command::new("apt-get");
            self.set_directories(&mut command);
            process::capture(command.args(arguments))
        };
        // Failures of other sources do not matter.
        let updated = host(&["update", "--quiet"]);
        if let Some(archive) = archive_of(&host(&["indextargets"])?) {
            return Ok(archive.to_owned());
        }
        updated?;
        bail!(
            "apt has no source of Debian's archive: add one for 'main' to /etc/apt/sources.list.d"
        )
    }

    /// Makes apt store its downloads in our directory.
    fn set_directories(&self, command: &mut Command) {
        let at = |name: &str| self.directory.join(name).display().to_string();
        set(command, "Dir::State::lists", &at("lists"));
        set(command, "Dir::Cache", &at("cache"));
        set(command, "APT::Sandbox::User", "root");
        set(command, "Acquire::Languages", "none");
        set(
            command,
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled",
            "false",
        );
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        self.set_directories(&mut command);
        let sources = self.directory.join("sources.list").display().to_string();
        set(&mut command, "Dir::Etc::sourcelist", &sources);
        set(&mut command, "Dir::Etc::sourceparts", "-");
        set(&mut command, "APT::Architecture", self.architecture);
        set(&mut command, "APT::Architectures", self.architecture);
        command
    }
}

fn set(command: &mut Command, name: &str, value: &str) {
    command.arg("-o").arg(format!("{name}={value}"));
}

/// The URL of Debian's archive in the output of `apt-get indextargets`: a paragraph for each list
/// of each source.
fn archive_of(targets: &str) -> Option<&str> {
    targets.split("\n\n").find_map(|target| {
        let field = |name: &str| {
            let mut lines = target.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        // The security archive has another label.
        let is_debian = field("Origin") == Some("Debian") && field("Label") == Some("Debian");
        let is_main = field("Component") == Some("main");
        field("Repo-URI").filter(|_| is_debian && is_main)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_that_of_the_machine() {
        let target = |label: &str, component: &str, uri: &str| {
            format!(
                "MetaKey: {component}/binary-amd64/Packages\nLabel: {label}\nOrigin: Debian\n\
                 Component: {component}\nRepo-URI: {uri}\nSite: x\n"
            )
        };
        let other = "Origin: Other\nLabel: Debian\nComponent: main\nRepo-URI: http://o/\n";
        let security = target("Debian-Security", "main", "http://s/");
        let contrib = target("Debian", "contrib", "http://c/");
        let main = target("Debian", "main", "http://mirror.example/debian/");
        let all = [other, &security, &contrib, &main].join("\n");
        assert_eq!(archive_of(&all), Some("http://mirror.example/debian/"));
        assert_eq!(archive_of(&[other, &security].join("\n")), None);
        assert_eq!(archive_of(""), None);
    }
}
