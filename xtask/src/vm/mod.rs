//! Boots Debian's kernels in QEMU and runs the tests that depend on the kernel.
//!
//! ```text
//!   kernels   packages by apt, from the machine's sources, kept under target/vm
//!   image     initramfs: busybox, modules, test binaries, gannet, their libraries
//!   boot      QEMU with a serial console ─▶ report: counts per suite
//! ```
//!
//! This proves that gannet runs on the oldest kernel it supports and on the newest, and that kernel
//! TLS, which few machines have loaded, encrypts correctly.

pub(crate) mod apt;
pub(crate) mod arm;
mod bench;
mod boot;
mod cpio;
mod image;
mod kernels;
mod report;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use lexopt::prelude::*;

use crate::vm::image::Suites;
use crate::vm::kernels::Kernel;
use crate::vm::report::Report;
use xtask::process;

const HELP: &str = "\
cargo xtask vm [FLAGS]

  --kernel NAME   only this one (repeatable): oldest, stable, newest; default: all three
  --only SUITE    only test binaries of this name (repeatable)
  --all           also the slow test binaries
  --download      only have QEMU and the kernels, for a later run
  --bench         measure kernel TLS of gannet and nginx instead of testing; without KVM in
                  instructions, since emulated time is meaningless
  --gannet PATH   measure this binary instead of building a release
  --verbose       show the whole console
";

/// The parsed flags.
#[derive(Default)]
struct Options {
    kernels: Vec<String>,
    suites: Vec<String>,
    is_all: bool,
    is_download: bool,
    is_bench: bool,
    gannet: Option<PathBuf>,
    is_verbose: bool,
}

/// `cargo xtask vm`.
pub(crate) fn main(parser: &mut lexopt::Parser) -> Result<()> {
    let mut options = Options::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("kernel") => options.kernels.push(parser.value()?.string()?),
            Long("only") => options.suites.push(parser.value()?.string()?),
            Long("all") => options.is_all = true,
            Long("download") => options.is_download = true,
            Long("bench") => options.is_bench = true,
            Long("gannet") => options.gannet = Some(parser.value()?.into()),
            Long("verbose") => options.is_verbose = true,
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            _ => return Err(argument.unexpected().into()),
        }
    }
    let (qemu, kernels) = match prepare(&options) {
        Ok(prepared) => prepared,
        // Skipped if the tools are unavailable, as in fuzz-smoke; but in CI a skip must not look
        // like a pass.
        Err(why) if options.kernels.is_empty() && !process::is_ci() => {
            println!("vm: skipped: {why:#}");
            return Ok(());
        }
        Err(why) => return Err(why.context("the VM cannot run")),
    };
    if options.is_download {
        return Ok(());
    }
    let accelerator = boot::Accelerator::find();
    println!("vm: {accelerator}");
    if options.is_bench {
        let gannet = options.gannet.take();
        return bench::run(&qemu, accelerator, &kernels, gannet, options.is_verbose);
    }
    let suites = image::build_suites(&options.suites, options.is_all)?;
    // An emulated machine waits, too: one after the other, they would leave processors idle.
    process::side_by_side(&kernels, |kernel| {
        let boot = |suites: &Suites| -> Result<Report> {
            let started = Instant::now();
            let image = image::write(&directory(), kernel, suites)?;
            let report = run(&qemu, accelerator, kernel, &image, options.is_verbose)?;
            println!(
                "{report}vm: kernel {}: {} in {} s",
                kernel.release,
                report.summary(),
                started.elapsed().as_secs()
            );
            Ok(report)
        };
        let report = boot(&suites)?;
        if !report.is_success() && !is_unsteady(&report, &suites, boot)? {
            bail!("tests failed in the VM with kernel {}", kernel.release);
        }
        Ok(())
    })
}

/// Runs the suites that failed twice more, alone, as `.ci/test.py` does with tests: those that then pass
/// are unsteady, and named at the end of `.ci/run`.
fn is_unsteady(
    report: &Report,
    suites: &Suites,
    boot: impl Fn(&Suites) -> Result<Report>,
) -> Result<bool> {
    let failed = report.failed();
    if failed.is_empty() {
        return Ok(false);
    }
    let again = suites.only(&failed);
    for _ in 0..2 {
        if !boot(&again)?.is_success() {
            return Ok(false);
        }
    }
    let notes = failed
        .iter()
        .map(|name| format!("unsteady: {name} in the VM\n"))
        .collect::<String>()
        + &report.to_string();
    println!("vm: passed twice when run again: {}", failed.join(", "));
    if let Some(path) = std::env::var_os("GANNET_TESTS_UNSTEADY") {
        let mut file = OpenOptions::new().append(true).create(true).open(path)?;
        file.write_all(notes.as_bytes())?;
    }
    Ok(true)
}

/// Finds QEMU and the kernels, downloading them if necessary.
fn prepare(options: &Options) -> Result<(PathBuf, Vec<Kernel>)> {
    let qemu = process::find_or_install("qemu-system-x86_64", "qemu-system-x86")?;
    process::find_or_install("busybox", "busybox-static")?;
    Ok((qemu, kernels::all(&directory(), &options.kernels)?))
}

/// Boots, and again if the machine did not come up or the kernel died: no program can cause that,
/// but an emulated processor does (a double fault in an atomic instruction).
fn run(
    qemu: &std::path::Path,
    accelerator: boot::Accelerator,
    kernel: &Kernel,
    image: &std::path::Path,
    is_verbose: bool,
) -> Result<Report> {
    // An emulated machine panics occasionally for reasons of its own.
    const BOOTS_MAX: usize = 3;
    let mut last = Report::default();
    for nth in 1..=BOOTS_MAX {
        last = boot::run(qemu, accelerator, kernel, image, is_verbose)?;
        let has_died = !last.has_finished() && last.tail().contains("Kernel panic");
        if last.has_started && !has_died {
            break;
        }
        println!(
            "vm: kernel {}: boot {nth} of {BOOTS_MAX} did not reach the end of the tests:\n{}",
            kernel.release,
            last.tail()
        );
    }
    Ok(last)
}

/// Where downloads and images are kept between runs.
fn directory() -> PathBuf {
    process::target().join("vm")
}
