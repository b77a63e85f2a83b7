//! The commands: their names, arguments and texts.

mod operation;
mod table;

use clap::ValueHint;

use crate::command_line::flag::Description;
use crate::command_line::pack_flags::PACK_FLAGS;
use crate::command_line::serve_flags::SERVE_FLAGS;

pub use table::COMMANDS;

/// One command of the program.
pub struct Command {
    /// As it is typed.
    pub name: &'static str,
    /// Positional arguments and flags that are in no table, in order.
    pub arguments: &'static [Argument],
    /// One line: lower case, no final stop.
    pub brief: &'static str,
    /// Sentences for the manual.
    pub details: &'static str,
    /// Environment variables that belong to no flag, with what each does.
    pub variables: &'static [(&'static str, &'static str)],
    /// An example to copy.
    pub example: &'static str,
    /// Which table of flags it takes.
    pub table: Table,
}

impl Command {
    /// Whether `--check-config` makes sense with it: what it does beside checking a configuration is more
    /// than that.
    #[must_use]
    pub fn is_checked_alone(&self) -> bool {
        self.table != Table::None && self.name != "doctor"
    }
}

/// Which table of flags a command takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Table {
    /// Those of `serve`.
    Serve,
    /// Those of `pack`.
    Pack,
    /// Those of `pack`, but the one that names the archive.
    Publish,
    /// None.
    None,
}

/// An argument of a command that is in no table: it has no variable and no configuration key.
pub struct Argument {
    /// Its name; of a flag, the long one.
    pub name: &'static str,
    /// How it is typed.
    pub shape: Shape,
    /// Placeholder in help; empty for a switch.
    pub value_name: &'static str,
    /// Must be given.
    pub is_required: bool,
    /// May be given several times.
    pub is_repeatable: bool,
    /// One line: lower case, no final stop.
    pub brief: &'static str,
    /// The heading above it in help, where a group begins; else empty.
    pub heading: &'static str,
    /// What a shell may complete.
    pub hint: ValueHint,
}

/// Writes the reference page of the manual; for contributors.
pub const REFERENCE_COMMAND: &str = "reference";

/// Receives releases beside a server; its arguments are those of [`crate::commands::receive`].
pub const RECEIVE_COMMAND: &str = "receive";

/// The longest usage that names each flag, in characters.
const USAGE_LEN_MAX: usize = 72;

/// The name of the table of `pack` in the configuration.
pub const PACK_SECTION: &str = "pack";

/// The flags of one table.
#[must_use]
pub fn flags(table: Table) -> Vec<Description> {
    match table {
        Table::Serve => SERVE_FLAGS.iter().map(|flag| flag.describe("")).collect(),
        Table::Pack => PACK_FLAGS
            .iter()
            .map(|flag| flag.describe(PACK_SECTION))
            .collect(),
        Table::Publish => {
            let mut flags = flags(Table::Pack);
            flags.retain(|flag| flag.name != "output");
            flags
        }
        Table::None => Vec::new(),
    }
}

/// The same without keys of the configuration alone.
#[must_use]
pub fn typed_flags(table: Table) -> Vec<Description> {
    let mut flags = flags(table);
    flags.retain(|flag| !flag.is_key());
    flags
}

/// The flags of all tables.
#[must_use]
pub fn all_flags() -> Vec<Description> {
    [Table::Serve, Table::Pack]
        .into_iter()
        .flat_map(flags)
        .collect()
}

/// How an argument is typed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// By its position.
    Positional,
    /// As a flag without a letter.
    Long,
    /// As a flag with a letter.
    Letter(char),
}

impl Argument {
    /// Whether it is a flag.
    #[must_use]
    pub fn is_flag(&self) -> bool {
        self.shape != Shape::Positional
    }

    /// As it is typed: `ARCHIVE`, `PATH...`, `[-l, --long]`.
    #[must_use]
    pub fn usage(&self) -> String {
        let dots = if self.is_repeatable { "..." } else { "" };
        let flag = match self.shape {
            Shape::Positional => return format!("{}{dots}", self.value_name),
            Shape::Long => format!("--{}", self.name),
            Shape::Letter(letter) => format!("-{letter}, --{}", self.name),
        };
        match self.value_name {
            "" => flag,
            value => format!("{flag} {value}{dots}"),
        }
    }
}

impl Command {
    /// `gannet cat ARCHIVE PATH...`; `[OPTIONS]` stands for the flags of a table, and for more than a line holds.
    #[must_use]
    pub fn usage(&self) -> String {
        let whole = self.usage_with(self.table == Table::None);
        match whole.len() <= USAGE_LEN_MAX {
            true => whole,
            false => self.usage_with(false),
        }
    }

    fn usage_with(&self, names_flags: bool) -> String {
        let mut text = format!("gannet {}", self.name);
        if !names_flags {
            text.push_str(" [OPTIONS]");
        }
        let is_shown = |it: &&Argument| names_flags || it.is_required || !it.is_flag();
        for argument in self.arguments.iter().filter(is_shown) {
            let usage = match argument.shape {
                Shape::Letter(letter) => format!("-{letter} {}", argument.value_name)
                    .trim_end()
                    .to_owned(),
                Shape::Long | Shape::Positional => argument.usage(),
            };
            let open = if argument.is_required {
                ("", "")
            } else {
                ("[", "]")
            };
            text.push_str(&format!(" {}{usage}{}", open.0, open.1));
        }
        if self.table == Table::Serve {
            text.push_str(" [PATH]");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_flag_has_a_variable_and_a_key_of_its_own() {
        let flags = all_flags();
        let variables: BTreeSet<String> = flags.iter().map(Description::variable).collect();
        let keys: BTreeSet<String> = flags.iter().map(Description::key).collect();
        assert_eq!((variables.len(), keys.len()), (flags.len(), flags.len()));
        for flag in &flags {
            let variable = flag.variable();
            assert!(
                variable.starts_with("GANNET_") && !variable.contains('-'),
                "{variable}"
            );
            assert_ne!(variable, crate::command_line::layers::CONFIG_VARIABLE);
            assert!(!flag.brief.is_empty(), "{}", flag.name);
            assert!(
                !flag.brief.ends_with('.'),
                "--{}: a brief text has no final stop",
                flag.name
            );
            let details = flag.details;
            assert!(
                details.is_empty() || details.ends_with('.'),
                "--{}",
                flag.name
            );
        }
    }

    #[test]
    fn no_key_of_serve_is_the_table_of_a_command() {
        assert!(
            flags(Table::Serve)
                .iter()
                .all(|flag| flag.name != PACK_SECTION)
        );
    }
}
