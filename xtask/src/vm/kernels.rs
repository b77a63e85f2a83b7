//! The kernels to test on: Debian's for virtual machines, from the oldest supported to the newest.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::vm::apt::Apt;

/// An unpacked kernel.
pub(super) struct Kernel {
    /// The release as in `uname -r`.
    pub(super) release: String,
    /// The bootable image.
    pub(super) image: PathBuf,
    /// The folder tree of its modules.
    pub(super) modules: PathBuf,
}

/// Our name for it, the suite, and the beginning of its version.
const KERNELS: [(&str, &str, &str); 3] = [
    ("oldest", "bookworm", "6.1."),
    ("stable", "trixie", "6.12."),
    ("newest", "sid", ""),
];

/// The suite of the kernels for 64-bit ARM.
pub(super) const ARM_SUITE: &str = "trixie";

/// Those with pages of 4 and of 16 KiB: our name, the package that depends on the current one, and the
/// processor to emulate. Older ones have no pages of 16 KiB, newer ones have further instructions.
pub(super) const ARM_KERNELS: [(&str, &str, &str); 2] = [
    ("kernel", "linux-image-cloud-arm64", "cortex-a72"),
    ("kernel-16k", "linux-image-arm64-16k", "cortex-a76"),
];

/// A kernel for 64-bit ARM.
pub(super) fn of_arm(directory: &Path, name: &str, meta: &str) -> Result<Kernel> {
    one(directory, &(name, ARM_SUITE, "6.12."), "arm64", meta)
}

/// All kernels, or the named ones; downloads newer packages.
pub(super) fn all(directory: &Path, names: &[String]) -> Result<Vec<Kernel>> {
    if let Some(name) = names
        .iter()
        .find(|name| KERNELS.iter().all(|kernel| kernel.0 != *name))
    {
        bail!("no kernel is named '{name}': oldest, stable and newest are");
    }
    let wanted = |kernel: &&(&str, &str, &str)| {
        names.is_empty() || names.iter().any(|name| name == kernel.0)
    };
    KERNELS
        .iter()
        .filter(wanted)
        .map(|kernel| one(directory, kernel, "amd64", "linux-image-cloud-amd64"))
        .collect()
}

fn one(
    directory: &Path,
    &(name, suite, begin): &(&str, &str, &str),
    architecture: &'static str,
    meta: &str,
) -> Result<Kernel> {
    let directory = directory.join(name);
    let apt = Apt::new(&directory.join("apt"), &[suite], architecture);
    let apt = match apt {
        Ok(apt) => apt,
        // Without a network, use what was downloaded earlier.
        Err(error) => {
            let Some(kernel) = unpacked(&directory)? else {
                return Err(error);
            };
            println!(
                "vm: using kernel {}, cannot check for a newer one: {error:#}",
                kernel.release
            );
            return Ok(kernel);
        }
    };
    let package = image_package(&apt, meta)?;
    let mark = directory.join("package");
    if fs::read_to_string(&mark).is_ok_and(|known| known == package)
        && let Some(kernel) = unpacked(&directory)?
    {
        return Ok(kernel);
    }
    println!("vm: downloading {package} of {suite}");
    let root = directory.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    fs::create_dir_all(&root)?;
    for package in parts(&apt, &package)? {
        apt.unpack(&package, &root)?;
    }
    let kernel = unpacked(&directory)?.context("the package has no kernel in it")?;
    ensure!(
        kernel.release.starts_with(begin),
        "{suite} has kernel {}, not {begin}",
        kernel.release
    );
    fs::write(mark, package)?;
    Ok(kernel)
}

/// The package with the suite's kernel, on which `meta` depends.
fn image_package(apt: &Apt, meta: &str) -> Result<String> {
    dependencies(&apt.show(meta)?)
        .find(|name| name.starts_with("linux-image-"))
        .map(str::to_owned)
        .with_context(|| format!("{meta} depends on no kernel"))
}

/// The package itself, or those that it was split into (since Linux 7).
fn parts(apt: &Apt, package: &str) -> Result<Vec<String>> {
    let shown = apt.show(package)?;
    let split = dependencies(&shown)
        .filter(|name| name.starts_with("linux-binary-") || name.starts_with("linux-modules-"));
    let mut parts: Vec<String> = split.map(str::to_owned).collect();
    if parts.is_empty() {
        parts.push(package.to_owned());
    }
    Ok(parts)
}

/// The names in the first `Depends` field, without versions and alternatives.
fn dependencies(shown: &str) -> impl Iterator<Item = &str> {
    let field = shown
        .lines()
        .find_map(|line| line.strip_prefix("Depends: "))
        .unwrap_or_default();
    field
        .split(',')
        .filter_map(|item| item.split_whitespace().next())
}

/// The kernel left in the directory by an earlier run.
fn unpacked(directory: &Path) -> Result<Option<Kernel>> {
    let root = directory.join("root");
    for modules in [root.join("usr/lib/modules"), root.join("lib/modules")] {
        let Ok(entries) = fs::read_dir(&modules) else {
            continue;
        };
        for entry in entries {
            let modules = entry?.path();
            let release = modules
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let places = [
                root.join(format!("boot/vmlinuz-{release}")),
                modules.join("vmlinuz"),
            ];
            if let Some(image) = places.into_iter().find(|path| path.is_file()) {
                return Ok(Some(Kernel {
                    release,
                    image,
                    modules,
                }));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_names() {
        let shown = "Package: a\nDepends: b (= 7.2-1), c+deb14 (>= 1) | d, e\nDescription: x\n";
        assert_eq!(
            dependencies(shown).collect::<Vec<_>>(),
            ["b", "c+deb14", "e"]
        );
        assert_eq!(dependencies("Package: a\n").count(), 0);
    }
}
