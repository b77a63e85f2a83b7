//! Boots Debian's kernels for 64-bit ARM, and serves in them: what an emulator of a processor alone cannot do.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use crate::vm::apt::Apt;
use crate::vm::cpio::Cpio;
use crate::vm::kernels::{self, Kernel};
use crate::vm::{boot, directory, image, run};
use xtask::process;

/// Serves with a static program for that processor, with each size of pages.
pub(crate) fn serve(program: &Path, is_verbose: bool) -> Result<()> {
    let qemu = process::find_or_install("qemu-system-aarch64", "qemu-system-arm")?;
    let folder = directory().join("aarch64");
    for (name, meta, processor) in kernels::ARM_KERNELS {
        let kernel = kernels::of_arm(&folder, name, meta)?;
        let image = write_image(&folder, &kernel, program)?;
        let machine = boot::Accelerator::Arm { processor };
        let report = run(&qemu, machine, &kernel, &image, is_verbose)?;
        let (release, summary) = (&kernel.release, report.summary());
        println!("{report}vm: kernel {release}: {summary}");
        ensure!(
            report.is_success(),
            "gannet failed in the VM with kernel {release}"
        );
    }
    Ok(())
}

fn write_image(folder: &Path, kernel: &Kernel, program: &Path) -> Result<PathBuf> {
    let root = folder.join("busybox");
    let busybox = root.join("bin/busybox");
    let merged = root.join("usr/bin/busybox");
    if !busybox.is_file() && !merged.is_file() {
        fs::create_dir_all(&root)?;
        Apt::new(&folder.join("apt"), &[kernels::ARM_SUITE], "arm64")?
            .unpack("busybox-static", &root)?;
    }
    let path = folder.join(format!("{}.cpio", kernel.release));
    let mut cpio = Cpio::new(BufWriter::new(File::create(&path)?));
    let busybox = if merged.is_file() { merged } else { busybox };
    image::write_system(&mut cpio, kernel, &busybox)?;
    cpio.file("/bin/gannet", program)?;
    cpio.bytes("/init", include_bytes!("arm.sh"))?;
    cpio.finish()?
        .into_inner()
        .map_err(|error| error.into_error())?;
    Ok(path)
}
