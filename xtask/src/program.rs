//! The gannet that a chore runs.

use std::path::PathBuf;

use anyhow::{Context, Result};
use lexopt::prelude::*;
use xtask::process;

/// The gannet to run.
pub(crate) struct Program(Option<PathBuf>);

impl Program {
    /// Reads the arguments of a chore that takes `--program` alone. `None` if it was asked for its help,
    /// which is printed.
    pub(crate) fn parse(parser: &mut lexopt::Parser, help: &str) -> Result<Option<Self>> {
        let mut program = None;
        while let Some(argument) = parser.next()? {
            match argument {
                Long("program") => program = Some(PathBuf::from(parser.value()?)),
                Short('h') | Long("help") => {
                    print!("{help}");
                    return Ok(None);
                }
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(Some(Self(program)))
    }

    /// What was named, if anything.
    pub(crate) fn of(program: Option<PathBuf>) -> Self {
        Self(program)
    }

    /// The absolute path of what was named, or else of what is built for development.
    pub(crate) fn path(self) -> Result<PathBuf> {
        self.path_or(|| process::build(&["--package", "gannet", "--bin", "gannet"], "dev"))
    }

    /// The absolute path of what was named, or else of what this builds.
    pub(crate) fn path_or(self, build: impl FnOnce() -> Result<PathBuf>) -> Result<PathBuf> {
        let path = self.0.map_or_else(build, Ok)?;
        let found = path.canonicalize();
        found.with_context(|| format!("--program {}", path.display()))
    }
}
