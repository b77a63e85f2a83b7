//! Boots one kernel in QEMU and reads its serial console.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::vm::kernels::Kernel;
use crate::vm::report::Report;

/// How the VM's processor is provided.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Accelerator {
    /// By the host's virtualization.
    Kvm,
    /// By emulation: ten times slower, but the tests are the same.
    Emulation {
        /// Why KVM is not used.
        why: &'static str,
    },
    /// By emulation of another processor, 64-bit ARM.
    Arm {
        /// Its name.
        processor: &'static str,
    },
    /// By emulation of one processor, with one nanosecond per instruction, so that the VM's time is
    /// the number of instructions.
    Counting,
}

/// Maximum time until the tests begin.
const BOOT_TIME_MAX: Duration = Duration::from_secs(120);

/// Maximum time for everything.
const RUN_TIME_MAX: Duration = Duration::from_secs(900);

impl Accelerator {
    pub(super) fn find() -> Self {
        let is_there = |path: &str| Path::new(path).exists();
        let why = if !is_there("/dev/kvm") {
            "there is no /dev/kvm"
        } else if rustix::fs::access(
            "/dev/kvm",
            rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK,
        )
        .is_err()
        {
            "/dev/kvm may not be opened"
        } else if !is_there("/sys/module/kvm_intel") && !is_there("/sys/module/kvm_amd") {
            // KVM without the processor's support runs only specially built kernels.
            "/dev/kvm is not that of the processor (neither kvm_intel nor kvm_amd is loaded)"
        } else {
            return Self::Kvm;
        };
        Self::Emulation { why }
    }

    /// The accelerator for measuring: under emulation, counting replaces time.
    pub(super) fn counting(self) -> Self {
        match self {
            Self::Kvm => Self::Kvm,
            Self::Emulation { .. } | Self::Arm { .. } | Self::Counting => Self::Counting,
        }
    }

    fn arguments(self) -> Vec<&'static str> {
        match self {
            Self::Kvm => vec!["-accel", "kvm", "-cpu", "host", "-smp", "2"],
            Self::Emulation { .. } => {
                // Without `cmpxchg16b`, whose flags QEMU 7.2 emulates incorrectly when two
                // processors run concurrently: the kernel's allocator then dies of a double fault.
                vec![
                    "-accel",
                    "tcg,thread=multi",
                    "-cpu",
                    "max,cx16=off",
                    "-smp",
                    "2",
                ]
            }
            Self::Arm { processor } => {
                vec![
                    "-machine",
                    "virt",
                    "-accel",
                    "tcg,thread=multi",
                    "-cpu",
                    processor,
                    "-smp",
                    "2",
                ]
            }
            Self::Counting => {
                vec![
                    "-accel",
                    "tcg,thread=single",
                    "-cpu",
                    "max",
                    "-smp",
                    "1",
                    "-icount",
                    "shift=0,sleep=off",
                ]
            }
        }
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kvm => f.write_str("QEMU with KVM"),
            Self::Arm { .. } => f.write_str("QEMU that emulates 64-bit ARM"),
            Self::Counting => f.write_str("QEMU that counts instructions"),
            Self::Emulation { why } => write!(f, "QEMU without KVM, which is slower: {why}"),
        }
    }
}

/// Boots, and reads the console until the VM is off or its time is over.
pub(super) fn run(
    qemu: &Path,
    accelerator: Accelerator,
    kernel: &Kernel,
    image: &Path,
    is_verbose: bool,
) -> Result<Report> {
    let mut command = Command::new(qemu);
    command.args(accelerator.arguments());
    command.args([
        "-m",
        "4096",
        "-nodefaults",
        "-display",
        "none",
        "-no-reboot",
    ]);
    command.args(["-serial", "stdio"]);
    command.arg("-kernel").arg(&kernel.image);
    command.arg("-initrd").arg(image);
    let console = match accelerator {
        Accelerator::Arm { .. } => "ttyAMA0",
        _ => "ttyS0",
    };
    // On a busy machine an emulated timer comes too late for the check whether there is one.
    let further = "panic=-1 quiet loglevel=3 mitigations=off no_timer_check";
    command
        .arg("-append")
        .arg(format!("console={console} {further}"));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let child = command.spawn().context("cannot start QEMU")?;
    let mut machine = Machine(child);
    let lines = lines(&mut machine.0);
    let started = Instant::now();
    let mut report = Report::default();
    loop {
        let limit = if report.has_started {
            RUN_TIME_MAX
        } else {
            BOOT_TIME_MAX
        };
        let left = limit.saturating_sub(started.elapsed());
        // An error is either the end of the console or a timeout.
        let Ok(line) = lines.recv_timeout(left) else {
            return Ok(report);
        };
        if is_verbose {
            println!("    {:>4} {line}", started.elapsed().as_secs());
        }
        report.line(&line);
    }
}

/// A running QEMU, killed on drop.
struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        // Both have no effect on a process that was reaped.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn lines(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = channel();
    let console = child.stdout.take();
    thread::spawn(move || {
        let Some(console) = console else { return };
        for line in BufReader::new(console).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
