//! The help texts of `--help` and `--help-all`.

use std::fmt::Write;

use crate::command_line::arguments::ACTIONS;
use crate::command_line::commands::{self, COMMANDS, Command, Shape, Table};
use crate::command_line::flag::{Description, Group, Value};
use crate::documents::passages::LAYERS;

/// Terminal columns that text is wrapped to.
const WIDTH: usize = 80;
/// The column where descriptions of flags begin.
const INDENT: usize = 31;

/// The text of `-h`; fits one screen.
#[must_use]
pub fn short() -> String {
    let mut text = String::from(
        "gannet serves a directory, a single file or a .gannet archive over HTTP.\n\
         usage: gannet [OPTIONS] [PATH]            serve PATH, or the current directory\n\
         \x20      gannet pack DIR -o SITE.gannet     compile a site into one archive\n\
         \x20      gannet ls|cat|extract|inspect|verify|diff|bundle ARCHIVE ...\n\
         \x20      gannet dev|check|explain|compress|publish|rollback|releases|follow ...\n\
         \x20      gannet install|doctor|acme|cert|health|keygen|password|get|help ...\n\n",
    );
    for flag in commands::flags(Table::Serve)
        .iter()
        .filter(|flag| flag.is_common)
    {
        row(&mut text, &shape(flag), &brief_with_default(flag));
    }
    for (name, letter, value, brief) in ACTIONS {
        if *name != "check-config" {
            row(&mut text, &action_shape(name, *letter, value), brief);
        }
    }
    text
}

/// The text of `--help-all`.
#[must_use]
pub fn long() -> String {
    let mut text = String::from(
        "gannet serves a directory, a single file or a .gannet archive over HTTP.\n\n\
         usage: gannet [OPTIONS] [PATH]\n",
    );
    for command in COMMANDS {
        let _ = writeln!(text, "       {}", command.usage());
    }
    text.push('\n');
    fold(&mut text, 0, LAYERS);
    for table in [Table::Serve, Table::Pack] {
        all_flags(&mut text, table);
    }
    text.push_str("\nConfiguration and help\n");
    for (name, letter, value, brief) in ACTIONS {
        row(&mut text, &action_shape(name, *letter, value), brief);
    }
    text.push_str("\nCommands\n");
    for command in COMMANDS {
        row(&mut text, command.name, command.brief);
    }
    text
}

/// Every flag of a table, with its texts.
fn all_flags(text: &mut String, table: Table) {
    if table != Table::Serve {
        text.push_str("\nFlags of gannet pack\n");
    }
    for group in Group::ALL {
        let flags = commands::flags(table);
        let flags: Vec<_> = flags.iter().filter(|flag| flag.group == group).collect();
        if flags.is_empty() || !group.is_shown() {
            continue;
        }
        let _ = write!(text, "\n{}\n", group.title());
        for flag in flags {
            let _ = writeln!(text, "  {}", flag.usage());
            fold(text, 6, &sentence(flag));
            if !flag.is_key() {
                let _ = writeln!(text, "      [{}; {}]", flag.variable(), flag.key());
            }
        }
    }
}

/// The text of `gannet COMMAND --help-all`.
#[must_use]
pub fn all_of_command(command: &Command) -> String {
    let mut text = opening(command);
    text.push('\n');
    fold(&mut text, 0, LAYERS);
    all_flags(&mut text, command.table);
    text.push_str("\nConfiguration and help\n");
    // `--version` applies to the program, not to commands.
    let applies = |name: &str| match name {
        "version" => false,
        "check-config" => command.is_checked_alone(),
        _ => true,
    };
    for (name, letter, value, brief) in ACTIONS.iter().filter(|action| applies(action.0)) {
        row(&mut text, &action_shape(name, *letter, value), brief);
    }
    if !command.variables.is_empty() {
        text.push_str("\nFurther variables of the environment\n");
        for (name, brief) in command.variables {
            row(&mut text, name, brief);
        }
    }
    let _ = write!(text, "\nexample: {}\n", command.example);
    text
}

/// The text of `gannet COMMAND -h`.
#[must_use]
pub fn of_command(command: &Command) -> String {
    let mut text = opening(command);
    if command.table != Table::None {
        if command.arguments.is_empty() {
            text.push('\n');
        }
        common_flags(&mut text, command);
        text.push_str("Configuration and help\n");
        let file = match command.is_checked_alone() {
            true => "a TOML file; --check-config checks it, and exits",
            false => "a TOML file; its keys are the flags' names",
        };
        row(&mut text, "-c, --config FILE", file);
        let all = "every flag, variable and configuration key";
        row(&mut text, "    --help-all", all);
    }
    let _ = write!(text, "\nexample: {}\n", command.example);
    text
}

/// What a command is for, and what it takes besides a table. A flag without a letter is below those with one.
fn opening(command: &Command) -> String {
    let mut text = format!("usage: {}\n\n", command.usage());
    fold(&mut text, 0, &capitalised(command.brief));
    if !command.details.is_empty() {
        fold(&mut text, 0, command.details);
    }
    if !command.arguments.is_empty() {
        text.push('\n');
    }
    for it in command.arguments {
        if !it.heading.is_empty() {
            let _ = writeln!(text, "{}", it.heading);
        }
        let indent = ["", "    "][usize::from(it.shape == Shape::Long)];
        row(&mut text, &[indent, &it.usage()].concat(), it.brief);
    }
    text
}

/// The common flags of a table, by what they are for. `publish` has those of `pack`, and `doctor` those of `serve`,
/// in the whole help alone.
fn common_flags(text: &mut String, command: &Command) {
    let has_own = command.table != Table::Publish && command.is_checked_alone();
    let mut flags = commands::flags(command.table);
    flags.retain(|flag| flag.is_common && has_own);
    for group in Group::ALL {
        let of_group = || flags.iter().filter(|flag| flag.group == group);
        if of_group().next().is_some() {
            let _ = writeln!(text, "{}", group.title());
        }
        for flag in of_group() {
            row(text, &shape(flag), &brief_with_default(flag));
        }
    }
}

/// The brief text and the details as sentences.
#[must_use]
pub fn sentence(flag: &Description) -> String {
    let mut text = capitalised(flag.brief);
    if !flag.details.is_empty() {
        text.push(' ');
        text.push_str(flag.details);
    }
    if !flag.default.is_empty() && !matches!(flag.value, Value::Switch) {
        let _ = write!(text, " Default: {}.", flag.default);
    }
    text
}

/// Adds a capital letter, unless the text starts with a path, and a final stop.
#[must_use]
pub fn capitalised(brief: &str) -> String {
    let mut letters = brief.chars();
    match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        None => String::new(),
    }
}

fn brief_with_default(flag: &Description) -> String {
    match flag.value {
        Value::One { .. } if !flag.default.is_empty() && flag.default != "0" => {
            format!("{} [{}]", flag.brief, flag.default)
        }
        _ => flag.brief.to_owned(),
    }
}

fn shape(flag: &Description) -> String {
    match flag.short {
        Some(_) => flag.usage(),
        None => format!("    {}", flag.usage()),
    }
}

fn action_shape(name: &str, letter: Option<char>, value: &str) -> String {
    let letter = letter.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
    format!("{letter}--{name} {value}").trim_end().to_owned()
}

/// Writes `shape` on the left, and `text` wrapped on the right.
fn row(out: &mut String, shape: &str, text: &str) {
    let mut right = String::new();
    fold(&mut right, INDENT, text);
    if shape.len() + 4 <= INDENT {
        let width = INDENT - 2;
        let _ = write!(out, "  {shape:<width$}{}", right.trim_start());
    } else {
        let _ = write!(out, "  {shape}\n{right}");
    }
}

/// Wraps `text` to [`WIDTH`] columns with an indent of `indent` spaces.
fn fold(out: &mut String, indent: usize, text: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if column == 0 {
            let _ = write!(out, "{:indent$}{word}", "");
            column = indent + len;
        } else if column + 1 + len > WIDTH {
            let _ = write!(out, "\n{:indent$}{word}", "");
            column = indent + len;
        } else {
            let _ = write!(out, " {word}");
            column += 1 + len;
        }
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_help_fits_one_screen() {
        let text = short();
        assert!(
            text.lines().count() <= 24,
            "{} lines:\n{text}",
            text.lines().count()
        );
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{line}");
        }
    }

    #[test]
    fn help_of_each_command_fits_one_screen_or_has_headings() {
        for command in COMMANDS {
            let text = of_command(command);
            let of_arguments = command.arguments.iter().map(|it| it.heading);
            let headings = of_arguments.chain(Group::ALL.map(Group::title));
            let has_headings = headings
                .filter(|it| !it.is_empty())
                .any(|it| text.lines().any(|line| line == it));
            let most = if has_headings { 30 } else { 24 };
            let count = text.lines().count();
            assert!(count <= most, "{count} lines:\n{text}");
            let is_short = |line: &str| line.chars().count() <= WIDTH;
            assert!(text.lines().all(is_short), "{text}");
        }
    }

    /// But `serve`, which goes without a name, and those that write documents.
    #[test]
    fn short_help_names_every_command() {
        let text = short();
        let words: Vec<&str> = text.split(['|', ' ']).collect();
        let documents = ["completions", "serve", "version"];
        for command in COMMANDS.iter().filter(|it| !documents.contains(&it.name)) {
            assert!(words.contains(&command.name), "{}", command.name);
        }
    }

    #[test]
    fn the_whole_help_of_a_command_has_all_that_it_takes() {
        for command in COMMANDS.iter().filter(|it| it.table != Table::None) {
            let text = all_of_command(command);
            for flag in commands::flags(command.table) {
                let is_there = text.contains(&format!("  {}\n", flag.usage()));
                assert_eq!(is_there, flag.group.is_shown(), "{}", flag.name);
            }
            for name in ["--config FILE", "--help", "--help-all"] {
                assert!(text.contains(name), "{name}");
            }
            for text in [&text, &of_command(command)] {
                let is_offered = text.contains("--check-config");
                assert_eq!(is_offered, command.name != "doctor", "{text}");
            }
            for (name, _) in command.variables {
                assert!(text.contains(name), "{name}");
            }
            let lines = || text.lines().map(|line| line.chars().count());
            assert!(lines().all(|len| len <= WIDTH), "{text}");
        }
    }

    #[test]
    fn long_help_names_every_flag_variable_and_key() {
        let text = long();
        for flag in commands::all_flags()
            .iter()
            .filter(|it| it.group.is_shown())
        {
            assert!(text.contains(&flag.usage()), "{}", flag.name);
            let names = format!("[{}; {}]", flag.variable(), flag.key());
            assert!(flag.is_key() || text.contains(&names), "{names}");
        }
        for command in COMMANDS {
            assert!(text.contains(&command.usage()), "{}", command.name);
        }
    }
}
