//! Parses the command line with clap: makes clap's arguments from the tables of flags, and gannet's
//! messages from clap's errors.

use std::ffi::OsString;
use std::path::Path;

use clap::builder::{OsStringValueParser, PossibleValue, PossibleValuesParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command as ClapCommand, ValueEnum, ValueHint};
use clap_complete::Shell;

use crate::command_line::commands::{
    self, Argument, COMMANDS, Command, RECEIVE_COMMAND, REFERENCE_COMMAND, Shape, Table,
};
use crate::command_line::flag::{Description, Value};
use crate::command_line::layers::Origin;
use crate::command_line::nearest::nearest;
use crate::command_line::other_names;
use crate::documents::help;
use crate::messages::{Failure, printable};

/// Flags that exist on the command line only: they select the configuration, or replace the
/// command.
pub static ACTIONS: &[(&str, Option<char>, &str, &str)] = &[
    (
        "config",
        Some('c'),
        "FILE",
        "a TOML file; its keys are the flags' names",
    ),
    (
        "check-config",
        None,
        "",
        "check the configuration and all other settings, then exit",
    ),
    ("help", Some('h'), "", "this page"),
    (
        "help-all",
        None,
        "",
        "every flag, variable and configuration key",
    ),
    ("version", Some('V'), "", "the version"),
];

/// What the command tree is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Form {
    /// Reading a command line.
    Parsing,
    /// Making completions: switches are offered without their optional value, texts are included.
    Completing,
}

/// The outcome of parsing a command line.
#[derive(Debug)]
pub enum Parsed {
    /// A command to run.
    Matches(Box<ArgMatches>),
    /// A text to print, such as help.
    Text(String),
}

/// Reads the command line.
///
/// # Errors
/// The command line is invalid; the message names the nearest flag or command.
pub fn parse(typed: &[OsString]) -> Result<Parsed, Failure> {
    if let Some(command) = other_names::retired_command(typed.get(1)) {
        return Err(command);
    }
    // Answered first, even if the command lacks required arguments.
    if let Some(command) = asks_for_all_of(typed) {
        return Ok(Parsed::Text(help::all_of_command(command)));
    }
    match command(Form::Parsing).try_get_matches_from(typed) {
        Ok(matches) if wants_long_help(&matches) => Ok(Parsed::Text(help::long())),
        Ok(matches) => match late_command(&matches) {
            Some(name) => Err(command_too_late(name)),
            None => Ok(Parsed::Matches(Box::new(matches))),
        },
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Ok(Parsed::Text(error.render().to_string()))
            }
            _ => Err(explain(&error, typed)),
        },
    }
}

/// The tree of commands.
#[must_use]
pub fn command(form: Form) -> ClapCommand {
    let mut root = ClapCommand::new("gannet")
        .about("A static web server for Linux")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true)
        .args_conflicts_with_subcommands(true)
        .override_help(help::short())
        .args(flag_arguments(Table::Serve, form))
        .args(configuration_arguments())
        .arg(help_argument())
        .arg(
            Arg::new("version")
                .short('V')
                .long("version")
                .action(ArgAction::Version)
                .help("the version"),
        );
    for entry in COMMANDS {
        let mut sub = ClapCommand::new(entry.name)
            .about(entry.brief)
            .disable_help_flag(true)
            .disable_version_flag(true)
            .override_help(help::of_command(entry))
            .args(entry.arguments.iter().map(|it| argument(entry, it, form)))
            .args(flag_arguments(entry.table, form))
            .arg(help_argument());
        if entry.table != Table::None {
            sub = sub.args(configuration_arguments());
        }
        root = root.subcommand(sub);
    }
    let reference = ClapCommand::new(REFERENCE_COMMAND).hide(true);
    let receive = ClapCommand::new(RECEIVE_COMMAND).hide(true).arg(
        Arg::new("arguments")
            .num_args(1..)
            .value_parser(OsStringValueParser::new()),
    );
    if form == Form::Parsing {
        root.subcommand(reference).subcommand(receive)
    } else {
        root
    }
}

/// What `--version` prints.
#[must_use]
pub fn version() -> String {
    command(Form::Parsing).render_version()
}

/// The command behind `gannet COMMAND ... --help-all`.
fn asks_for_all_of(typed: &[OsString]) -> Option<&'static Command> {
    let command = COMMANDS
        .iter()
        .find(|it| typed.get(1).is_some_and(|word| word == it.name))?;
    let mut flags = typed.iter().skip(2).take_while(|word| *word != "--");
    let asks = command.table != Table::None && flags.any(|word| word == "--help-all");
    asks.then_some(command)
}

fn help_argument() -> Arg {
    Arg::new("help")
        .short('h')
        .long("help")
        .action(ArgAction::Help)
        .help("this page")
}

fn switch(name: &'static str, brief: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .overrides_with(name)
        .action(ArgAction::SetTrue)
        .help(brief)
}

fn configuration_arguments() -> [Arg; 3] {
    let config = Arg::new("config")
        .long("config")
        .short('c')
        .value_name("FILE")
        .value_hint(ValueHint::FilePath)
        .value_parser(OsStringValueParser::new())
        .overrides_with("config")
        .help("read a TOML configuration");
    [
        config,
        switch("check-config", "check the configuration, then exit"),
        switch("help-all", "every flag, variable and key"),
    ]
}

fn wants_long_help(matches: &ArgMatches) -> bool {
    matches!(matches.try_get_one("help-all"), Ok(Some(true)))
}

fn flag_arguments(table: Table, form: Form) -> Vec<Arg> {
    commands::typed_flags(table)
        .iter()
        .map(|flag| flag_argument(flag, form))
        .collect()
}

fn flag_argument(flag: &Description, form: Form) -> Arg {
    let arg = Arg::new(flag.name)
        .help(flag.brief)
        .hide(!flag.group.is_shown())
        .value_parser(OsStringValueParser::new());
    let named = |arg: Arg| arg.long(flag.name).short(flag.short);
    match flag.value {
        Value::Switch if form == Form::Completing => named(Arg::new(flag.name))
            .hide(!flag.group.is_shown())
            .action(ArgAction::SetTrue)
            .help(flag.brief),
        Value::Switch => named(arg)
            .action(ArgAction::Set)
            .overrides_with(flag.name)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
        Value::One {
            name,
            choices,
            hint,
        } => {
            let arg = named(arg)
                .value_name(name)
                .value_hint(hint)
                .allow_hyphen_values(is_free_text(name));
            let arg = last_counts(arg, flag.name);
            // When parsing, the table's own check also names the nearest choice.
            if form == Form::Completing && !choices.is_empty() {
                return arg.value_parser(choices.to_vec());
            }
            arg
        }
        Value::Many { name, hint, .. } => named(arg)
            .value_name(name)
            .value_hint(hint)
            .action(ArgAction::Append),
        Value::Positional { name } => arg.value_name(name).value_hint(ValueHint::AnyPath),
    }
}

/// The value may start with a hyphen, as one in 64 thumbprints does (base64url, RFC 4648 section 5).
/// Elsewhere that is a flag, and the value before it was forgotten.
fn is_free_text(value_name: &str) -> bool {
    value_name == "TEXT"
}

/// Of several values the last counts, but for keys: two of them could be taken to count both.
fn last_counts(arg: Arg, name: &'static str) -> Arg {
    match name {
        "require-signature" | "public-key" | "sign" => arg,
        _ => arg.overrides_with(name),
    }
}

/// The values that an argument takes, if they are a closed set.
fn choices(command: &Command, argument: &Argument) -> Vec<PossibleValue> {
    match (command.name, argument.name) {
        ("completions", _) => {
            let shells = Shell::value_variants().iter();
            shells.filter_map(Shell::to_possible_value).collect()
        }
        ("help", _) => {
            let names = COMMANDS.iter().map(|it| it.name);
            names.map(PossibleValue::new).collect()
        }
        _ => Vec::new(),
    }
}

fn argument(command: &Command, argument: &Argument, form: Form) -> Arg {
    let arg = Arg::new(argument.name)
        .help(argument.brief)
        .required(argument.is_required);
    let arg = match argument.shape {
        Shape::Letter(letter) => arg.short(letter).long(argument.name),
        Shape::Long => arg.long(argument.name),
        Shape::Positional => arg,
    };
    if argument.value_name.is_empty() {
        return arg.action(ArgAction::SetTrue);
    }
    let arg = arg
        .value_name(argument.value_name)
        .value_hint(argument.hint)
        .allow_hyphen_values(is_free_text(argument.value_name))
        .value_parser(OsStringValueParser::new());
    let choices = choices(command, argument);
    // When parsing, the command's own check also names the nearest choice.
    let arg = match form == Form::Completing && !choices.is_empty() {
        true => arg.value_parser(PossibleValuesParser::new(choices)),
        false => arg,
    };
    match (argument.is_repeatable, argument.is_flag()) {
        (true, false) => arg.num_args(1..).action(ArgAction::Append),
        (true, true) => arg.action(ArgAction::Append),
        (false, _) => last_counts(arg, argument.name),
    }
}

/// Converts clap's error to our form.
fn explain(error: &clap::Error, typed: &[OsString]) -> Failure {
    let used = typed
        .get(1)
        .and_then(|word| COMMANDS.iter().find(|c| word == c.name));
    let see = match used {
        Some(command) => format!("see 'gannet {} --help'", command.name),
        None => "see 'gannet --help'".to_owned(),
    };
    let object = context(error, ContextKind::InvalidArg).unwrap_or_default();
    match error.kind() {
        ErrorKind::UnknownArgument if is_negative(&object) => {
            let at = typed.iter().position(|word| *word == *object);
            let flag = at.and_then(|at| typed.get(at.checked_sub(1)?));
            let flag = flag.map_or_else(String::new, |it| printable(&it.to_string_lossy()) + " ");
            Failure::usage(format!("cannot use '{flag}{object}': a negative number")).help(see)
        }
        ErrorKind::UnknownArgument if object.starts_with('-') => {
            unknown_flag(&object, typed, used, see)
        }
        ErrorKind::ArgumentConflict => {
            let word = context(error, ContextKind::InvalidSubcommand);
            if let Some(command) = COMMANDS.iter().find(|c| word.as_deref() == Some(c.name)) {
                return command_too_late(command.name);
            }
            if let Some((flag, _)) = object.strip_prefix("--").and_then(|it| it.split_once(' ')) {
                return Failure::usage(format!("more than one --{flag}"))
                    .help("one key counts: leave the others out");
            }
            // Other flags override themselves, so what remains is a second PATH.
            let help = misplaced_address(typed).unwrap_or(see);
            mistyped_or(typed, Failure::usage("more than one path").help(help))
        }
        ErrorKind::UnknownArgument => {
            let serves = used.is_some_and(|command| command.table == Table::Serve);
            let help = misplaced_address(typed).filter(|_| serves).unwrap_or(see);
            let failure = Failure::usage(format!("unexpected argument '{object}'"));
            mistyped_or(typed, failure.help(help))
        }
        ErrorKind::MissingRequiredArgument => Failure::usage(format!("missing {object}")).help(see),
        ErrorKind::InvalidValue
            if context(error, ContextKind::InvalidValue).is_none_or(|v| v.is_empty()) =>
        {
            Failure::usage(format!("no value after '{object}'")).help(see)
        }
        _ => {
            let text = error.render().to_string();
            let line = text.lines().next().unwrap_or("wrong arguments");
            Failure::usage(line.trim_start_matches("error: ")).help(see)
        }
    }
}

fn is_negative(typed: &str) -> bool {
    let digits = typed.strip_prefix('-').unwrap_or_default();
    digits.starts_with(|first: char| first.is_ascii_digit())
}

/// A path that is the name of a command as well has to be written otherwise.
fn to_serve(used: Option<&Command>) -> Option<String> {
    let name = used.filter(|command| command.table != Table::Serve)?.name;
    let is_there = std::path::Path::new(name).is_dir();
    is_there.then(|| format!("to serve the folder of this name, write 'gannet ./{name}'"))
}

/// What to say of a flag that there is not.
fn unknown_flag(object: &str, typed: &[OsString], used: Option<&Command>, see: String) -> Failure {
    let serves = used.is_none_or(|command| command.table == Table::Serve);
    let flags = typed.iter().take_while(|word| *word != "--");
    let flags = flags.filter_map(|word| word.to_str()?.split('=').next());
    let retired = match serves {
        true => other_names::retired(object, Origin::CommandLine, flags),
        false => other_names::retired_letter(object, used),
    };
    if let Some((what, help)) = retired {
        return Failure::usage(what).help(help);
    }
    let failure = Failure::usage(format!("unknown flag '{object}'"));
    if let Some(help) = other_names::of_others(object).filter(|_| serves) {
        return failure.help(help);
    }
    match nearest_flag(object, used) {
        Some(meant) => failure.help(format!("did you mean '{meant}'?")),
        None => failure.help(to_serve(used).unwrap_or(see)),
    }
}

/// A port that stands where a path is expected, as with other servers.
#[must_use]
pub fn port(word: &str) -> Option<String> {
    let port = word.parse::<u16>().ok()?;
    Some(format!("for the port, write '--port {port}'"))
}

/// The same, or an address.
#[must_use]
pub fn address(word: &str) -> Option<String> {
    let of_address = || {
        let (_, number) = word.rsplit_once(':')?;
        port(number)?;
        Some(format!(
            "for the address, write '--listen {}'",
            printable(word)
        ))
    };
    port(word).or_else(of_address)
}

/// The same of the words that are not the value of a flag.
fn misplaced_address(typed: &[OsString]) -> Option<String> {
    let words = typed.iter().map(|word| word.to_str().unwrap_or_default());
    let mut pairs = words.clone().zip(words.skip(1));
    pairs.find_map(|(before, word)| match before.starts_with('-') {
        true => None,
        false => address(word).filter(|_| !Path::new(word).exists()),
    })
}

/// The path of `gannet --port 80 pack` is surely meant as a command.
fn late_command(matches: &ArgMatches) -> Option<&'static str> {
    let path = matches.get_one::<OsString>("path")?;
    COMMANDS
        .iter()
        .map(|command| command.name)
        .find(|name| path == name)
}

fn command_too_late(name: &str) -> Failure {
    Failure::usage(format!("arguments before the command '{name}'")).help(format!(
        "write them after it: 'gannet {name} ...'; a path is './{name}'"
    ))
}

/// Two words that are no flags: the first may be a mistyped command, unless it is one.
fn mistyped_or(typed: &[OsString], failure: Failure) -> Failure {
    let is_command = |word: &&OsString| COMMANDS.iter().any(|command| *word == command.name);
    match mistyped_command(typed.get(1).filter(|word| !is_command(word))) {
        Some(meant) => failure.help(format!("did you mean the command 'gannet {meant}'?")),
        None => failure,
    }
}

fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::Strings(texts) => Some(texts.join(", ")),
        _ => None,
    }
}

/// The flag that was meant, `--` included, or `-x` for a single letter with two dashes.
fn nearest_flag(typed: &str, command: Option<&Command>) -> Option<String> {
    let name = typed.trim_start_matches('-');
    let name = name.split('=').next().unwrap_or(name);
    let flags = commands::typed_flags(command.map_or(Table::Serve, |command| command.table));
    let flags = flags
        .iter()
        .filter(|flag| !matches!(flag.value, Value::Positional { .. }));
    let mut names: Vec<&str> = flags.map(|flag| flag.name).collect();
    match command {
        None => names.extend(ACTIONS.iter().map(|action| action.0)),
        Some(command) => {
            let own = command.arguments.iter().filter(|it| it.is_flag());
            names.extend(own.map(|argument| argument.name));
            names.push("help");
            if command.table != Table::None {
                names.extend(["config", "help-all"]);
            }
            if command.is_checked_alone() {
                names.push("check-config");
            }
        }
    }
    if typed.starts_with("--") || name.chars().count() > 1 {
        // Switches are also looked for under their positive names.
        let negative = format!("no-{name}");
        if let Some(name) = names.iter().find(|known| **known == negative) {
            return Some(format!("--{name}"));
        }
        return nearest(&name.replace('_', "-"), names).map(|name| format!("--{name}"));
    }
    None
}

/// The command that the first word was probably meant to be.
#[must_use]
pub fn mistyped_command(word: Option<&OsString>) -> Option<&'static str> {
    let word = word?.to_str()?;
    if word.starts_with('-') || Path::new(word).exists() {
        return None;
    }
    if other_names::SERVING.contains(&word) {
        return Some("serve");
    }
    nearest(word, COMMANDS.iter().map(|command| command.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_consistent() {
        command(Form::Parsing).debug_assert();
        command(Form::Completing).debug_assert();
    }

    #[test]
    fn closed_sets_are_completed() {
        let root = command(Form::Completing);
        for (name, word) in [("completions", "zsh"), ("help", "extract")] {
            let sub = root.find_subcommand(name).expect("it is a command");
            let mut values = sub.get_positionals().flat_map(Arg::get_possible_values);
            assert!(values.any(|it| it.get_name() == word), "{name}");
        }
    }

    #[test]
    fn a_text_may_begin_with_a_hyphen() {
        let parse = |typed: &[&str]| parse(&typed.iter().map(Into::into).collect::<Vec<_>>());
        parse(&["gannet", "publish", "--note", "-- first", "site", "store"]).expect("a text");
        parse(&["gannet", "acme", "a.test", "-d", "state", "-k", "-kid"]).expect("a text");
        parse(&["gannet", "--acme-server", "-x", "."]).expect_err("a flag");
    }

    #[test]
    fn mistakes_are_explained_with_the_next_step() {
        let check = |typed: &[&str], expect: &str| {
            let typed: Vec<OsString> = std::iter::once("gannet")
                .chain(typed.iter().copied())
                .map(Into::into)
                .collect();
            let failure = parse(&typed).expect_err(expect);
            assert_eq!(failure.to_string(), expect);
            assert_eq!(failure.exit.code(), 2);
        };
        let see = "help: see 'gannet --help'";
        check(
            &["--prot", "80"],
            "gannet: unknown flag '--prot'\nhelp: did you mean '--port'?",
        );
        check(
            &["--prot=80"],
            "gannet: unknown flag '--prot'\nhelp: did you mean '--port'?",
        );
        check(
            &["--host", "0.0.0.0"],
            "gannet: unknown flag '--host'\nhelp: did you mean '--listen ADDR:PORT', or '--expose'?",
        );
        check(
            &["--port", "-1"],
            &format!("gannet: cannot use '--port -1': a negative number\n{see}"),
        );
        check(
            &["--listing"],
            "gannet: unknown flag '--listing'\nhelp: folders without an index page are listed anyway; \
             '--no-listing' turns that off",
        );
        check(
            &["--help-al"],
            "gannet: unknown flag '--help-al'\nhelp: did you mean '--help-all'?",
        );
        check(
            &["--frobnicate"],
            &format!("gannet: unknown flag '--frobnicate'\n{see}"),
        );
        check(&["-y"], &format!("gannet: unknown flag '-y'\n{see}"));
        check(&["a", "b"], &format!("gannet: more than one path\n{see}"));
        check(
            &["inspekt", "site.gannet"],
            "gannet: more than one path\nhelp: did you mean the command \
             'gannet inspect'?",
        );
        check(
            &["http-server", "site"],
            "gannet: more than one path\nhelp: did you mean the command 'gannet serve'?",
        );
        check(
            &["--require-signature", "a", "--require-signature=b", "site"],
            "gannet: more than one --require-signature\nhelp: one key counts: leave the others out",
        );
        check(
            &["verify", "-p", "a", "-p", "b", "site.gannet"],
            "gannet: more than one --public-key\nhelp: one key counts: leave the others out",
        );
        check(
            &["verify", "site.gannet", "other"],
            "gannet: unexpected argument 'other'\nhelp: see 'gannet verify --help'",
        );
        check(
            &["--port"],
            &format!("gannet: no value after '--port <N>'\n{see}"),
        );
        check(
            &["pack"],
            "gannet: missing <SITE>\nhelp: see 'gannet pack --help'",
        );
        check(
            &["pack", "--ouptut", "x"],
            "gannet: unknown flag '--ouptut'\nhelp: did you mean '--output'?",
        );
        check(
            &["ls", "--jsn", "x"],
            "gannet: unknown flag '--jsn'\nhelp: did you mean '--json'?",
        );
        check(
            &["--port", "80", "serve"],
            "gannet: arguments before the command 'serve'\n\
             help: write them after it: 'gannet serve ...'; a path is './serve'",
        );
    }
}
