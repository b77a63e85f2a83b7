//! Packages for machines without Rust: a static program, a `.deb`, a container image, provenance and
//! checksums.
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
mod processor;
mod provenance;
mod stage;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use lexopt::prelude::*;
use sha2::{Digest, Sha256};

use crate::process;

use self::archive::Entry;
pub(super) use self::processor::Processor;
use self::stage::Stage;

const HELP: &str = "\
cargo xtask dist [--target PROCESSOR] [--out DIR] [--program FILE] [--twice]

  Makes packages of this checkout below target/dist/PROCESSOR, or DIR: a static program (musl) in a
  tarball, a Debian package, an image for containers (OCI and Docker in one tar), a bill of materials,
  what they were made from (provenance), and SHA256SUMS. The date of every file is
  SOURCE_DATE_EPOCH, or that of the last commit. Needs the Rust target
  PROCESSOR-unknown-linux-musl, and musl-gcc (package musl-tools); for another processor than
  this machine's a cross compiler (package gcc-aarch64-linux-gnu), musl's headers, which apt downloads,
  and qemu-user, which runs the program for the texts that it writes about itself.

  --target PROCESSOR  x86_64 or aarch64; without it, that of this machine
  --out DIR           where to
  --program FILE      package this program instead of building one
  --twice             make all again, and compare; without --program, by a second build from nothing
";

/// What all packages are about.
struct Release {
    version: String,
    processor: Processor,
    /// Unix time of every file.
    date: u64,
    out: PathBuf,
}

impl Release {
    /// The name of a file that is for the processor.
    fn name(&self, what: &str) -> String {
        format!("gannet-{}-{}-{what}", self.version, self.processor.name)
    }
}

pub(super) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let (mut out, mut given, mut processor) = (None, None, Processor::of_machine());
    let mut is_twice = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Long("target") => {
                let name = parser.value()?.string()?;
                let found = Processor::named(&name);
                processor = found.with_context(|| format!("no packages are made for '{name}'"))?;
            }
            Long("out") => out = Some(PathBuf::from(parser.value()?)),
            Long("twice") => is_twice = true,
            Long("program") => given = Some(PathBuf::from(parser.value()?)),
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let target = process::target();
    let out = out.unwrap_or_else(|| target.join("dist").join(processor.name));
    let make = |target: &Path, out: &Path| {
        let program = match &given {
            Some(program) => program.clone(),
            None => build_in(target, processor, date()?)?,
        };
        make(&program, processor, out, given.is_some())
    };
    make(&target, &out)?;
    if is_twice {
        let again = target.join("dist-again");
        if again.exists() {
            fs::remove_dir_all(&again)?;
        }
        make(&again, &again.join("packages"))?;
        same(&out.join(SUMS), &again.join("packages").join(SUMS))?;
        println!("made twice, the same each time");
    }
    Ok(())
}

/// The list of checksums, which covers all other files.
const SUMS: &str = "SHA256SUMS";

/// Compares two lists of checksums; the error shows the lines of the second that differ.
fn same(first: &Path, second: &Path) -> Result<()> {
    let (first, second) = (fs::read_to_string(first)?, fs::read_to_string(second)?);
    let other: Vec<_> = (second
        .lines()
        .filter(|it| !first.lines().any(|line| line == *it)))
    .collect();
    if first != second {
        bail!("the second time, other bytes came: {}", other.join("; "));
    }
    Ok(())
}

/// The packages that are unpacked somewhere.
pub(super) struct Made {
    /// What the program calls its version.
    pub(super) version: String,
    pub(super) tarball: PathBuf,
    pub(super) debian: PathBuf,
}

/// Makes all packages of a given program in this folder.
pub(super) fn package(program: &Path, processor: Processor, out: &Path) -> Result<Made> {
    make(program, processor, out, true)
}

fn make(program: &Path, processor: Processor, out: &Path, is_given: bool) -> Result<Made> {
    let (release, stage) = staged(program, processor, out)?;
    let (tarball, debian) = (tarball(&release, &stage)?, deb::make(&release, &stage)?);
    let others = [image(&release, &stage)?, bill(&release, &stage)?];
    let mut made = [&[tarball.clone(), debian.clone()][..], &others].concat();
    let named = made.iter().map(|it| provenance::named(it));
    let named = named.collect::<Result<Vec<_>>>()?;
    made.push(provenance::write(&release, &named, is_given)?);
    sums(&release, &made)?;
    Ok(Made {
        version: release.version,
        tarball,
        debian,
    })
}

/// Makes the Debian package of a program in this folder, and nothing else.
pub(super) fn debian(program: &Path, out: &Path) -> Result<PathBuf> {
    let (release, stage) = staged(program, Processor::of_machine(), out)?;
    deb::make(&release, &stage)
}

fn staged(program: &Path, processor: Processor, out: &Path) -> Result<(Release, Stage)> {
    fs::create_dir_all(out).with_context(|| format!("cannot make '{}'", out.display()))?;
    let stage = Stage::of(program, processor, &out.join("stage"))?;
    let release = Release {
        version: stage.version.clone(),
        processor,
        date: date()?,
        out: out.to_owned(),
    };
    Ok((release, stage))
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

/// Builds the static program for a processor, without paths of this machine in it.
pub(super) fn build(processor: Processor, date: u64) -> Result<PathBuf> {
    build_in(&process::target(), processor, date)
}

/// The same, below a target directory.
fn build_in(folder: &Path, processor: Processor, date: u64) -> Result<PathBuf> {
    let target = processor.target();
    let targets = process::output("rustc", &["--print", "target-libdir", "--target", &target])?;
    if !Path::new(&targets).is_dir() {
        bail!("no Rust for {target}: 'rustup target add {target}'");
    }
    let root = process::root();
    let home = process::cargo_home().context("neither CARGO_HOME nor HOME is set")?;
    let map = |path: &Path, name: &str| format!("{}={name}", path.display());
    let (sources, crates) = (map(&root, "gannet"), map(&home, "cargo"));
    let mut command = process::cargo();
    command.args(["build", "--profile", "dist", "--locked"]);
    command.args(["--package", "gannet", "--target", &target]);
    let maps = format!("-ffile-prefix-map={crates} -ffile-prefix-map={sources}");
    processor.compile_for(&mut command, &maps)?;
    command
        .env("CARGO_TARGET_DIR", folder)
        // Separated by a control character, so that paths may have spaces.
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            format!("--remap-path-prefix={sources}\u{1f}--remap-path-prefix={crates}"),
        )
        .env("SOURCE_DATE_EPOCH", date.to_string());
    process::run(&mut command)?;
    Ok(folder.join(target).join("dist/gannet"))
}

/// A folder to unpack anywhere.
fn tarball(release: &Release, stage: &Stage) -> Result<PathBuf> {
    let name = release.name("linux");
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
    let path = release.out.join(release.name("image.tar"));
    let mut command = release.processor.command(&stage.placed)?;
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
        let (name, digest) = provenance::named(path)?;
        text.push_str(&format!("{digest}  {name}\n"));
        println!(
            "{} ({} KiB)",
            path.display(),
            fs::metadata(path)?.len() >> 10
        );
    }
    let path = write(release, SUMS, text.as_bytes())?;
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
