//! The processors that packages are for: what compiles for them, and what runs their programs here.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;
use crate::vm::apt::Apt;

/// A processor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Processor {
    /// As the compiler calls it.
    pub(crate) name: &'static str,
    /// As Debian calls it.
    pub(super) debian: &'static str,
}

const ALL: [Processor; 2] = [
    Processor {
        name: "x86_64",
        debian: "amd64",
    },
    Processor {
        name: "aarch64",
        debian: "arm64",
    },
];

impl Processor {
    /// The one of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|it| it.name == name)
    }

    /// That of this machine, or the first where it is another one.
    pub(crate) fn of_machine() -> Self {
        Self::named(std::env::consts::ARCH).unwrap_or(ALL[0])
    }

    /// What a program runs on: every Linux of this processor, with any C library or none.
    pub(super) fn target(self) -> String {
        format!("{}-unknown-linux-musl", self.name)
    }

    /// A command that runs a program for this processor.
    pub(crate) fn command(self, program: &Path) -> Result<Command> {
        if self == Self::of_machine() {
            return Ok(Command::new(program));
        }
        let mut command = Command::new(self.emulator()?);
        command.arg(program);
        Ok(command)
    }

    /// What runs programs for this processor on others.
    pub(crate) fn emulator(self) -> Result<PathBuf> {
        process::find_or_install(&format!("qemu-{}", self.name), "qemu-user")
    }

    /// A compiler that compiles for this processor on others.
    pub(crate) fn cross_compiler(self) -> Result<PathBuf> {
        let package = format!("gcc-{}-linux-gnu", self.name.replace('_', "-"));
        process::find_or_install(&format!("{}-linux-gnu-gcc", self.name), &package)
    }

    /// Has cargo compile C for this processor, with the further `flags`.
    pub(super) fn compile_for(self, cargo: &mut Command, flags: &str) -> Result<()> {
        let target = self.target();
        let (compiler, flags) = match self == Self::of_machine() {
            true => (
                process::find_or_install("musl-gcc", "musl-tools")?,
                flags.to_owned(),
            ),
            false => {
                let compiler = self.cross_compiler()?;
                let headers = self.headers(&compiler)?;
                (compiler, format!("{headers} {flags}"))
            }
        };
        let of_cargo = target.to_uppercase().replace('-', "_");
        let target = target.replace('-', "_");
        cargo
            .env(format!("CC_{target}"), &compiler)
            .env(format!("CFLAGS_{target}"), flags);
        if self != Self::of_machine() {
            cargo.env(format!("CARGO_TARGET_{of_cargo}_LINKER"), compiler);
        }
        Ok(())
    }

    /// Flags for a cross compiler, which knows the headers of another C library: those of musl, and its own.
    fn headers(self, compiler: &Path) -> Result<String> {
        let folder = process::target().join("musl").join(self.name);
        let (musl, name) = (folder.join("root"), self.name);
        let headers = musl.join(format!("usr/include/{name}-linux-musl"));
        if !headers.is_dir() {
            let apt = Apt::new(&folder.join("apt"), &["stable"], self.debian)?;
            apt.unpack("musl-dev", &musl)
                .context("the headers of musl")?;
        }
        let program = compiler.display().to_string();
        let own = process::output(&program, &["-print-file-name=include"])?;
        let paths = [headers, PathBuf::from(own.trim())];
        let includes = paths.map(|path| format!("-isystem {}", path.display()));
        // Without the checks of glibc, and its atomic operations that look for a faster processor.
        let further = match name {
            "aarch64" => "-nostdinc -U_FORTIFY_SOURCE -mno-outline-atomics",
            _ => "-nostdinc -U_FORTIFY_SOURCE",
        };
        Ok(format!("{further} {}", includes.join(" ")))
    }
}
