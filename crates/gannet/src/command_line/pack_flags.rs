//! The table of `gannet pack`: every flag with its texts and what it sets.

use std::path::PathBuf;

use clap::ValueHint;

use crate::command_line::flag::{Flag, Group, Value};
use crate::command_line::values::path;

/// The settings of `pack`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PackSettings {
    /// The archive to write.
    pub output: Option<PathBuf>,
}

/// Every flag of `gannet pack`.
pub static PACK_FLAGS: &[Flag<PackSettings>] = &[Flag {
    name: "output",
    short: Some('o'),
    value: Value::One {
        name: "FILE",
        choices: &[],
        hint: ValueHint::FilePath,
    },
    group: Group::Packing,
    default: "",
    brief: "the archive to write; the directory's name with .gannet if absent",
    details: "",
    is_common: true,
    apply: |settings, values| {
        settings.output = Some(path(values)?);
        Ok(())
    },
}];
