//! The packages of `cargo xtask dist`, unpacked into folders of their own and tried there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use flate2::read::GzDecoder;
use xtask::process;

use super::rooted::Rooted;
use super::{Checked, HOME};
use crate::dist::{self, Processor};

/// Makes the packages of this program, and tries the tarball and the Debian package.
pub(super) fn packages(program: &Path, folder: &Path) -> Result<Checked> {
    let made = dist::package(program, Processor::of_machine(), &folder.join("dist"))?;
    if !Rooted::is_possible() {
        let why = anyhow::anyhow!("they were made, but not started, which takes root for chroot");
        return Ok(Checked::LeftOut(why));
    }
    let root = |name: &str| -> Result<PathBuf> {
        let root = folder.join(name);
        let www = root.join("srv/www");
        fs::create_dir_all(&www)?;
        fs::write(www.join("index.html"), HOME)?;
        Ok(root)
    };
    let tarball = root("tarball")?;
    let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(&made.tarball)?));
    archive.set_preserve_permissions(true);
    archive.unpack(&tarball)?;
    let name = made
        .tarball
        .file_name()
        .context("a file")?
        .to_string_lossy();
    let name = name.strip_suffix(".tar.gz").context("no tarball")?;
    let of_tarball = format!("/{name}/gannet");
    tried(tarball, &of_tarball, &made.version).context("the tarball")?;
    let Some(dpkg) = process::find("dpkg-deb") else {
        return Ok(Checked::Passed(
            "the tarball serves and is well; dpkg-deb, for the Debian package, is not installed"
                .into(),
        ));
    };
    let debian = root("debian")?;
    // Its scripts are not run: they would make a user of this machine.
    let mut extract = Command::new(&dpkg);
    process::capture(extract.arg("--extract").arg(&made.debian).arg(&debian))?;
    let field = |name: &str| {
        let mut command = Command::new(&dpkg);
        process::capture(command.arg("--field").arg(&made.debian).arg(name))
    };
    ensure!(field("Version")?.trim() == made.version, "another version");
    for path in ["etc/gannet/gannet.toml", "usr/share/man/man1/gannet.1.gz"] {
        ensure!(debian.join(path).is_file(), "no {path} in the package");
    }
    tried(debian, "/usr/bin/gannet", &made.version).context("the Debian package")?;
    Ok(Checked::Passed(
        "the tarball and the Debian package, unpacked, serve and are well".into(),
    ))
}

fn tried(root: PathBuf, program: &str, version: &str) -> Result<()> {
    let rooted = Rooted {
        root,
        variables: Vec::new(),
    };
    let typed = |arguments: &[&str]| -> Vec<String> {
        let all = [&[program][..], arguments].concat();
        all.into_iter().map(str::to_owned).collect()
    };
    let said = process::capture(&mut rooted.command(&typed(&["--version"]))?)?;
    ensure!(said.contains(version), "--version says {said}");
    rooted.serves(&typed(&["/srv/www"]), &typed(&["health"]))
}
