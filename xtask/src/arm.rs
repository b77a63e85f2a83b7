//! gannet for another processor, in an emulator: the tests of what depends on one, and the whole program.
//!
//! The emulator of a processor has the kernel of this machine. It passes on neither `preadv2`, without which no
//! file can be served, nor io_uring and seccomp: what serves is tried in an emulated machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use lexopt::prelude::*;
use xtask::process;

use crate::dist::{self, Processor};
use crate::vm;

const HELP: &str = "\
cargo xtask arm [--program FILE] [--no-tests]

  Runs gannet for aarch64 by qemu-user: the tests of its crates that do no I/O, and the static
  program of 'cargo xtask dist --target aarch64', which packs, verifies and extracts a site and writes
  its own manual. It cannot serve there: qemu-user lacks preadv2. So it serves in emulated machines
  with Debian's kernels, of pages of 4 and of 16 KiB: on io_uring and epoll, a folder and an archive,
  over HTTP/1, 2 and 3, with kernel TLS. Needs a cross compiler (package gcc-aarch64-linux-gnu), the Rust targets
  aarch64-unknown-linux-musl and -gnu, qemu-user and qemu-system-arm.

  --program FILE  this program instead of building one
  --no-tests      the program alone
  --verbose       show the console of the machine
";

/// Crates whose tests run in the emulator.
const TESTED: [&str; 3] = ["gannet-http", "gannet-archive", "gannet-content"];

pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let (mut program, mut has_tests, mut is_verbose) = (None, true, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Long("program") => program = Some(PathBuf::from(parser.value()?)),
            Long("no-tests") => has_tests = false,
            Long("verbose") => is_verbose = true,
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            other => return Err(other.unexpected().into()),
        }
    }
    let processor = Processor::named("aarch64").context("it is known")?;
    if has_tests {
        tests(processor)?;
    }
    let program = match program {
        Some(program) => program,
        None => dist::build(processor, dist::date()?)?,
    };
    let program = program.canonicalize()?;
    whole(processor, &program)?;
    vm::arm::serve(&program, is_verbose)
}

/// Compiles tests for the C library of a cross compiler, and runs them in the emulator.
fn tests(processor: Processor) -> Result<()> {
    let target = format!("{}-unknown-linux-gnu", processor.name);
    let mut command = process::cargo();
    command.args(["test", "--target", &target]);
    for package in TESTED {
        command.args(["--package", package]);
    }
    let emulator = processor.emulator()?;
    let variable = format!("CARGO_TARGET_{}", target.to_uppercase().replace('-', "_"));
    let libraries = format!("/usr/{}-linux-gnu", processor.name);
    command
        .env(format!("{variable}_LINKER"), processor.cross_compiler()?)
        .env(
            format!("{variable}_RUNNER"),
            format!("{} -L {libraries}", emulator.display()),
        );
    process::run(&mut command)
}

/// What the whole program does without a server.
fn whole(processor: Processor, program: &Path) -> Result<()> {
    let folder = process::target().join("arm");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    let site = folder.join("site");
    fs::create_dir_all(&site)?;
    let page = "<!doctype html><title>Page</title>\n".repeat(400);
    let long: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    fs::write(site.join("index.html"), &page)?;
    fs::write(site.join("long.bin"), &long)?;
    let gannet = |arguments: &[&str]| -> Result<Command> {
        let mut command = processor.command(program)?;
        command.current_dir(&folder).args(arguments);
        Ok(command)
    };
    let run = |arguments: &[&str]| process::capture(&mut gannet(arguments)?);
    println!("program: {}", run(&["version"])?);
    ensure!(run(&["help", "--man"])?.contains(".TH"), "no manual page");
    run(&["pack", "site", "--quiet", "-o", "site.gannet"])?;
    run(&["verify", "site.gannet"])?;
    run(&["extract", "site.gannet", "-o", "extracted"])?;
    for (name, content) in [("index.html", page.as_bytes()), ("long.bin", &long)] {
        let extracted = fs::read(folder.join("extracted").join(name))?;
        ensure!(extracted == content, "{name}: other bytes");
    }
    println!("packed, verified and extracted");
    Ok(())
}
