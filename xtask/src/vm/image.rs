//! The initramfs of a VM: a shell, modules, test binaries, and their dependencies.
//!
//! The paths of the program and its folder are built into test binaries, so every file has the same
//! path in the image as on the host.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::vm::cpio::Cpio;
use crate::vm::kernels::Kernel;
use xtask::process;

/// What to run in the VM.
pub(super) struct Suites {
    /// Name and binary, in order.
    tests: Vec<(String, PathBuf)>,
    /// The program under test, if a suite runs it.
    program: Option<PathBuf>,
}

impl Suites {
    /// Those with these names.
    pub(super) fn only(&self, names: &[&str]) -> Self {
        let tests = self
            .tests
            .iter()
            .filter(|(name, _)| names.contains(&&**name));
        Self {
            tests: tests.cloned().collect(),
            program: self.program.clone(),
        }
    }
}

/// Test binaries that are useful in a VM. Tests that do not depend on the kernel are left out, since an
/// emulated machine is slow.
const TESTS: [&str; 15] = [
    "accept",
    "cancel",
    "datagrams",
    "kernel_tls",
    "open",
    "receive",
    "sandbox",
    "send",
    "send_file",
    "waker",
    "confinement",
    "ordinary_user",
    "ktls",
    "serve",
    "verity",
];

/// Those that take minutes under emulation.
const SLOW_TESTS: [&str; 7] = [
    "archive",
    "disk",
    "files",
    "late_readers",
    "limits",
    "stop",
    "tls",
];

/// Modules to load, by their names with `_`. Built-in ones have no file.
const MODULES: [&str; 19] = [
    "tls",
    "gcm",
    "ghash_generic",
    "ctr",
    "aesni_intel",
    "ghash_clmulni_intel",
    "aes_generic",
    "chacha20poly1305",
    "chacha",
    "chacha_generic",
    "chacha_x86_64",
    "poly1305_generic",
    "virtio_pci",
    "virtio_blk",
    "crc32c_generic",
    "crc32c_intel",
    "ext4",
    "loop",
    "tcp_diag",
];

/// Maximum time for a test binary, in seconds of the VM's clock.
const SUITE_SECONDS: u32 = 300;

/// Builds the named test binaries, or else the quick ones, or all.
pub(super) fn build_suites(names: &[String], is_all: bool) -> Result<Suites> {
    let is_wanted = |name: &str, by_default| match names {
        [] => by_default,
        names => names.iter().any(|wanted| wanted == name),
    };
    let quick = TESTS.iter().filter(|name| is_wanted(name, true));
    let slow = SLOW_TESTS.iter().filter(|name| is_wanted(name, is_all));
    let wanted: Vec<_> = quick.chain(slow).collect();
    ensure!(
        !wanted.is_empty(),
        "no test binary of the VM has one of these names"
    );
    let mut command = process::cargo();
    // With the features that all of the workspace's tests are built with, which are often built.
    command.args([
        "test",
        "--no-run",
        "--workspace",
        "--message-format=json-render-diagnostics",
    ]);
    for name in &wanted {
        command.args(["--test", name]);
    }
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context("cannot start cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    let mut built = HashMap::new();
    let mut program = None;
    for line in output.stdout.split(|&byte| byte == b'\n') {
        let Ok(message) = serde_json::from_slice::<Value>(line) else {
            continue;
        };
        let Some(path) = message["executable"].as_str().map(PathBuf::from) else {
            continue;
        };
        let name = message["target"]["name"].as_str().unwrap_or_default();
        match message["target"]["kind"][0].as_str() {
            Some("test") => {
                built.insert(name.to_owned(), path);
            }
            Some("bin") if message["profile"]["test"] == Value::Bool(false) => {
                program = Some(path);
            }
            _ => {}
        }
    }
    let mut tests = Vec::new();
    for name in wanted {
        let path = built.remove(*name);
        let path = path.with_context(|| format!("there is no test binary '{name}'"))?;
        tests.push(((*name).to_owned(), path));
    }
    Ok(Suites { tests, program })
}

/// Writes the image for a kernel; returns its path.
pub(super) fn write(directory: &Path, kernel: &Kernel, suites: &Suites) -> Result<PathBuf> {
    let path = directory.join(format!("{}.cpio", kernel.release));
    let mut cpio = Cpio::new(BufWriter::new(File::create(&path)?));
    let tests = suites.tests.iter().map(|(_, path)| path);
    // File systems of its own that a test makes.
    let mkfs = process::find_or_install("mkfs.ext4", "e2fsprogs")?;
    write_base(
        &mut cpio,
        kernel,
        tests.chain(&suites.program).chain([&mkfs]),
    )?;
    let mut list = String::new();
    for (name, path) in &suites.tests {
        list.push_str(&format!("{name} {}\n", text(path)));
    }
    cpio.bytes("/etc/suites", list.as_bytes())?;
    // Folders whose paths are built into the tests.
    for (_, path) in &suites.tests {
        if let Some(target) = path.ancestors().nth(3) {
            cpio.folder(&text(&target.join("tmp")))?;
        }
    }
    cpio.folder(&text(&process::root().join("crates/gannet")))?;
    let init = include_str!("init.sh").replace("SUITE_SECONDS", &SUITE_SECONDS.to_string());
    cpio.bytes("/init", init.as_bytes())?;
    cpio.finish()?
        .into_inner()
        .map_err(|error| error.into_error())?;
    Ok(path)
}

/// Adds a shell, the modules and programs to an image, with the libraries they need.
pub(super) fn write_base<'a, W: std::io::Write>(
    cpio: &mut Cpio<W>,
    kernel: &Kernel,
    programs: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<()> {
    let busybox = process::find_or_install("busybox", "busybox-static")?;
    write_system(cpio, kernel, &busybox)?;
    let mut libraries = BTreeSet::new();
    for program in programs {
        cpio.file(&text(program), program)?;
        libraries.extend(libraries_of(program)?);
    }
    libraries.extend(libraries_of(&busybox)?);
    for library in &libraries {
        cpio.file(library, Path::new(library))?;
    }
    Ok(())
}

/// Adds a shell and the modules to an image.
pub(super) fn write_system<W: std::io::Write>(
    cpio: &mut Cpio<W>,
    kernel: &Kernel,
    busybox: &Path,
) -> Result<()> {
    for folder in ["dev", "proc", "sys", "tmp", "root", "run"] {
        cpio.folder(folder)?;
    }
    cpio.file("/bin/busybox", busybox)?;
    cpio.link("/bin/sh", "busybox")?;
    let order = modules(cpio, kernel)?;
    cpio.bytes("/etc/modules", order.join("\n").as_bytes())?;
    Ok(())
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The absolute paths of a program's shared libraries and loader.
fn libraries_of(program: &Path) -> Result<Vec<String>> {
    let mut command = Command::new("ldd");
    command.arg(program).stdin(Stdio::null());
    let output = command.output().context("cannot start 'ldd'")?;
    // A failure means that it is statically linked.
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let paths = output
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    Ok(paths.map(str::to_owned).collect())
}

/// Adds the modules and their dependencies; returns their names in loading order.
fn modules<W: std::io::Write>(cpio: &mut Cpio<W>, kernel: &Kernel) -> Result<Vec<String>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![kernel.modules.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() {
                folders.push(path);
            } else if let Some((name, "ko" | "ko.xz")) = name.split_once('.') {
                files.insert(name.replace('-', "_"), path);
            }
        }
    }
    let mut order = Vec::new();
    for name in MODULES {
        add_module(cpio, &files, name, &mut order)?;
    }
    ensure!(
        order.iter().any(|name| name == "tls"),
        "the kernel has no module 'tls'"
    );
    Ok(order)
}

fn add_module<W: std::io::Write>(
    cpio: &mut Cpio<W>,
    files: &BTreeMap<String, PathBuf>,
    name: &str,
    order: &mut Vec<String>,
) -> Result<()> {
    let Some(path) = files
        .get(name)
        .filter(|_| !order.iter().any(|one| one == name))
    else {
        return Ok(());
    };
    let module = if path.extension().is_some_and(|extension| extension == "xz") {
        let mut command = Command::new("xz");
        command.arg("-dc").arg(path);
        let output = command.output().context("cannot start 'xz'")?;
        ensure!(
            output.status.success(),
            "xz cannot unpack '{}'",
            path.display()
        );
        output.stdout
    } else {
        fs::read(path)?
    };
    for needed in needs(&module) {
        add_module(cpio, files, &needed, order)?;
    }
    cpio.bytes(&format!("/lib/modules/{name}.ko"), &module)?;
    order.push(name.to_owned());
    Ok(())
}

/// The dependencies of a module, from its section `.modinfo`.
fn needs(module: &[u8]) -> Vec<String> {
    const MARK: &[u8] = b"\0depends=";
    let Some(at) = module.windows(MARK.len()).position(|window| window == MARK) else {
        return Vec::new();
    };
    let list = &module[at + MARK.len()..];
    let end = list.iter().position(|&byte| byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&list[..end])
        .split(',')
        .filter(|name| !name.is_empty())
        .map(|name| name.replace('-', "_"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_say_what_they_need() {
        let module = b"\x7fELF\0license=GPL\0depends=lib-chacha,libpoly1305\0name=x\0";
        assert_eq!(needs(module), ["lib_chacha", "libpoly1305"]);
        assert!(needs(b"\0depends=\0name=x\0").is_empty() && needs(b"ELF").is_empty());
    }
}
