//! Packages for machines without Rust: a static program, a `.deb`, a container image, checksums.
//!
//! ```text
//!  program (musl) ─▶ stage: texts by the program itself ─┬─▶ tarball ─┐
//!                                                        ├─▶ deb     ─┼─▶ SHA256SUMS
//!                                                        └─▶ image   ─┘
//! ```
//!
//! The same sources, compilers and `SOURCE_DATE_EPOCH` make the same bytes. No Docker, dpkg or root
//! is needed.

mod archive;
mod deb;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use lexopt::prelude::*;
use sha2::{Digest, Sha256};

use crate::process;

use self::archive::Entry;
use self::stage::Stage;

const HELP: &str = "\
cargo xtask dist [--out DIR] [--program FILE]

  Makes packages of this checkout for x86_64 below target/dist, or DIR: a static program (musl) in a
  tarball, a Debian package, an image for containers (OCI and Docker in one tar), a bill of materials
  and SHA256SUMS. The date of every file is SOURCE_DATE_EPOCH, or that of the last commit. Needs the
  Rust target x86_64-unknown-linux-musl and musl-gcc (package musl-tools).

  --out DIR       where to
  --program FILE  package this program instead of building one
";

/// What the program runs on: every Linux of this processor, with any C library or none.
const TARGET: &str = "x86_64-unknown-linux-musl";

/// What all packages are about.
struct Release {
    version: String,
    /// Unix time of every file.
    date: u64,
    out: PathBuf,
}

pub(super) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let (mut out, mut program) = (process::target().join("dist"), None);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("out") => out = parser.value()?.into(),
            Long("program") => program = Some(PathBuf::from(parser.value()?)),
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let program = match program {
        Some(program) => program,
        None => build(date()?)?,
    };
    package(&program, &out).map(drop)
}

/// The packages that are unpacked somewhere.
pub(super) struct Made {
    /// What the program calls its version.
    pub(super) version: String,
    pub(super) tarball: PathBuf,
    pub(super) debian: PathBuf,
}

/// Makes all packages of a program in this folder.
pub(super) fn package(program: &Path, out: &Path) -> Result<Made> {
    let date = date()?;
    fs::create_dir_all(out).with_context(|| format!("cannot make '{}'", out.display()))?;
    let stage = Stage::of(program, &out.join("stage"))?;
    let release = Release {
        version: stage.version.clone(),
        date,
        out: out.to_owned(),
    };
    let (tarball, debian) = (tarball(&release, &stage)?, deb::make(&release, &stage)?);
    let others = [image(&release, &stage)?, bill(&release, &stage)?];
    let made = [&[tarball.clone(), debian.clone()][..], &others].concat();
    sums(&release, &made)?;
    Ok(Made {
        version: release.version,
        tarball,
        debian,
    })
}

/// Makes the Debian package of a program in this folder, and nothing else.
pub(super) fn debian(program: &Path, out: &Path) -> Result<PathBuf> {
    fs::create_dir_all(out)?;
    let stage = Stage::of(program, &out.join("stage"))?;
    let release = Release {
        version: stage.version.clone(),
        date: date()?,
        out: out.to_owned(),
    };
    deb::make(&release, &stage)
}

/// The date of every file.
pub(super) fn date() -> Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => process::output("git", &["log", "-1", "--format=%ct"])?,
    };
    let date = text.trim().parse();
    date.with_context(|| format!("SOURCE_DATE_EPOCH '{text}' is not a number of seconds"))
}

/// Builds the static program, without paths of this machine in it.
pub(super) fn build(date: u64) -> Result<PathBuf> {
    let targets = process::output("rustc", &["--print", "target-libdir", "--target", TARGET])?;
    if !Path::new(&targets).is_dir() {
        bail!("no Rust for {TARGET}: 'rustup target add {TARGET}'");
    }
    let compiler = process::find_or_install("musl-gcc", "musl-tools")?;
    let root = process::root();
    let home = std::env::var("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|_| std::env::var("HOME").map(|home| Path::new(&home).join(".cargo")));
    let home = home.context("neither CARGO_HOME nor HOME is set")?;
    let map = |path: &Path, name: &str| format!("{}={name}", path.display());
    let (sources, crates) = (map(&root, "gannet"), map(&home, "cargo"));
    let mut command = process::cargo();
    command.args(["build", "--profile", "dist", "--locked"]);
    command.args(["--package", "gannet", "--target", TARGET]);
    command
        .env("CC_x86_64_unknown_linux_musl", &compiler)
        .env(
            "CFLAGS_x86_64_unknown_linux_musl",
            format!("-ffile-prefix-map={crates} -ffile-prefix-map={sources}"),
        )
        // Separated by a control character, so that paths may have spaces.
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            format!("--remap-path-prefix={sources}\u{1f}--remap-path-prefix={crates}"),
        )
        .env("SOURCE_DATE_EPOCH", date.to_string());
    process::run(&mut command)?;
    Ok(process::target().join(TARGET).join("dist/gannet"))
}

/// A folder to unpack anywhere.
fn tarball(release: &Release, stage: &Stage) -> Result<PathBuf> {
    let name = format!("gannet-{}-x86_64-linux", release.version);
    let mut entries = vec![Entry::file("gannet", 0o755, stage.program.clone())];
    let texts = [
        ("gannet.1", &stage.manual),
        ("completions/gannet.bash", &stage.bash),
        ("completions/gannet.fish", &stage.fish),
        ("completions/_gannet", &stage.zsh),
        ("gannet.cdx.json", &stage.bill),
        ("licenses.txt", &stage.licences),
    ];
    let texts = texts.map(|(path, text)| Entry::file(path, 0o644, text.clone()));
    entries.extend(texts);
    for text in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        let content = fs::read(process::root().join(text)).with_context(|| text.to_owned())?;
        entries.push(Entry::file(text, 0o644, content));
    }
    for entry in &mut entries {
        entry.path = format!("{name}/{}", entry.path);
    }
    let bytes = archive::compress(&archive::tar(&entries, release.date)?)?;
    write(release, &format!("{name}.tar.gz"), &bytes)
}

/// The image for containers, which the program makes of itself.
fn image(release: &Release, stage: &Stage) -> Result<PathBuf> {
    let path = release
        .out
        .join(format!("gannet-{}-image.tar", release.version));
    let mut command = Command::new(&stage.placed);
    command.args(["bundle", "--output"]).arg(&path);
    command.env("SOURCE_DATE_EPOCH", release.date.to_string());
    process::run(&mut command)?;
    Ok(path)
}

/// The bill of materials by itself, for those who collect them.
fn bill(release: &Release, stage: &Stage) -> Result<PathBuf> {
    let name = format!("gannet-{}.cdx.json", release.version);
    write(release, &name, &stage.bill)
}

/// What `sha256sum --check` reads.
fn sums(release: &Release, made: &[PathBuf]) -> Result<()> {
    let mut text = String::new();
    for path in made {
        let bytes = fs::read(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        text.push_str(&format!("{}  {name}\n", digest(&bytes)));
        println!("{} ({} KiB)", path.display(), bytes.len() >> 10);
    }
    let path = write(release, "SHA256SUMS", text.as_bytes())?;
    println!("{}", path.display());
    Ok(())
}

/// SHA-256 in hexadecimal digits.
fn digest(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes);
    digits.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn write(release: &Release, name: &str, bytes: &[u8]) -> Result<PathBuf> {
    let path = release.out.join(name);
    fs::write(&path, bytes).with_context(|| format!("cannot write '{}'", path.display()))?;
    Ok(path)
}
