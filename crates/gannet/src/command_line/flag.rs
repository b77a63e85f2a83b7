//! One flag, declared once: its command line form, environment variable, configuration key, texts.

use std::ffi::OsString;

use clap::ValueHint;

/// A flag of a command whose settings are an `S`.
///
/// Help, manual page, reference, completions, environment and configuration are all made from
/// these declarations, so they cannot disagree.
pub struct Flag<S: 'static> {
    /// The long name, without dashes; also the configuration key. In [`Group::Keys`] the key alone.
    pub name: &'static str,
    /// The one-letter form.
    pub short: Option<char>,
    /// What it takes.
    pub value: Value,
    /// The heading under which it is described.
    pub group: Group,
    /// The default, in the flag's own notation; empty if there is none.
    pub default: &'static str,
    /// One line for lists: lower case, no final stop.
    pub brief: &'static str,
    /// Sentences for the manual, after the brief one; may be empty.
    pub details: &'static str,
    /// Belongs to the help that fits one screen.
    pub is_common: bool,
    /// Stores the values in the settings; the error is the cause in words.
    pub apply: fn(&mut S, &[OsString]) -> Result<(), String>,
}

// Not derived, which would require `S: Clone`.
impl<S> Clone for Flag<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Flag<S> {}

/// Concatenates parts of a table in order, at compile time. `N` is the total number of flags.
#[must_use]
pub const fn joined<S, const N: usize>(parts: &[&[Flag<S>]]) -> [Flag<S>; N] {
    let mut all = [parts[0][0]; N];
    let (mut part, mut at, mut filled) = (0, 0, 0);
    while part < parts.len() {
        while at < parts[part].len() {
            all[filled] = parts[part][at];
            filled += 1;
            at += 1;
        }
        part += 1;
        at = 0;
    }
    assert!(filled == N, "not the number of all flags");
    all
}

/// What a flag takes.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// Nothing, or `=true` or `=false`: the latter switches off what a lower layer switched on.
    Switch,
    /// One value; the last one given counts.
    One {
        /// Placeholder in help.
        name: &'static str,
        /// The permitted values, if they are a closed set.
        choices: &'static [&'static str],
        /// What a shell may complete.
        hint: ValueHint,
    },
    /// Any number of values, each with the flag before it.
    Many {
        /// Placeholder for one value in help.
        name: &'static str,
        /// Separates values in the environment variable.
        separator: char,
        /// Joins key and value when the configuration gives a table; `None` permits a list only.
        joint: Option<&'static str>,
        /// What a shell may complete.
        hint: ValueHint,
    },
    /// A positional argument.
    Positional {
        /// Placeholder in help.
        name: &'static str,
    },
}

/// A flag with one free value.
#[must_use]
pub const fn one(name: &'static str) -> Value {
    Value::One {
        name,
        choices: &[],
        hint: ValueHint::Other,
    }
}

/// A flag with one value out of a closed set.
#[must_use]
pub const fn one_of(name: &'static str, choices: &'static [&'static str]) -> Value {
    Value::One {
        name,
        choices,
        hint: ValueHint::Other,
    }
}

/// A flag that takes a file name.
pub const FILE: Value = Value::One {
    name: "FILE",
    choices: &[],
    hint: ValueHint::FilePath,
};

/// A flag that takes several file names.
pub const FILES: Value = Value::Many {
    name: "FILE",
    separator: ',',
    joint: None,
    hint: ValueHint::FilePath,
};

/// Headings, in the order in which they are printed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Group {
    /// Where to listen.
    Addresses,
    /// HTTPS.
    Tls,
    /// What is served and how.
    Content,
    /// Memory.
    Memory,
    /// Timeouts and limits.
    Limits,
    /// Engine and threads.
    Engine,
    /// Output and logs.
    Output,
    /// Rare settings: keys of the configuration, without a flag and a variable.
    Keys,
    /// Measurements: in the reference alone.
    Measuring,
    /// Of `gannet pack`: the archive itself, and what is printed.
    Archive,
    /// Of `gannet pack`: codings and their levels.
    Compression,
    /// Of `gannet pack`: how the archive is answered from.
    Answers,
    /// Of `gannet pack`: which files are in it.
    Files,
    /// Of `gannet pack`: what is taken from before.
    Builds,
}

impl Group {
    /// All of them, in order.
    pub const ALL: [Self; 14] = [
        Self::Addresses,
        Self::Tls,
        Self::Content,
        Self::Memory,
        Self::Limits,
        Self::Engine,
        Self::Output,
        Self::Keys,
        Self::Measuring,
        Self::Archive,
        Self::Compression,
        Self::Answers,
        Self::Files,
        Self::Builds,
    ];

    /// Whether help and completions show its flags.
    #[must_use]
    pub fn is_shown(self) -> bool {
        self != Self::Measuring
    }

    /// The heading.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Addresses => "Addresses",
            Self::Tls => "HTTPS",
            Self::Content => "Content",
            Self::Memory => "Memory",
            Self::Limits => "Timeouts and limits",
            Self::Engine => "Engine",
            Self::Output => "Output and logs",
            Self::Keys => "Keys of the configuration alone",
            Self::Measuring => "Measurements of the server itself",
            Self::Archive => "Archive and output",
            Self::Compression => "Compression",
            Self::Answers => "Answers",
            Self::Files => "Files",
            Self::Builds => "Earlier builds and releases",
        }
    }
}

/// A flag's declaration without its settings type: all that help, manual and completions need.
#[derive(Clone, Copy)]
pub struct Description {
    /// As in [`Flag`].
    pub name: &'static str,
    /// As in [`Flag`].
    pub short: Option<char>,
    /// As in [`Flag`].
    pub value: Value,
    /// As in [`Flag`].
    pub group: Group,
    /// As in [`Flag`].
    pub default: &'static str,
    /// As in [`Flag`].
    pub brief: &'static str,
    /// As in [`Flag`].
    pub details: &'static str,
    /// As in [`Flag`].
    pub is_common: bool,
    /// The command's table in the configuration file; empty for `serve`, whose keys are top-level.
    pub section: &'static str,
}

impl<S> Flag<S> {
    /// Drops the settings type.
    #[must_use]
    pub fn describe(&self, section: &'static str) -> Description {
        Description {
            name: self.name,
            short: self.short,
            value: self.value,
            group: self.group,
            default: self.default,
            brief: self.brief,
            details: self.details,
            is_common: self.is_common,
            section,
        }
    }
}

impl Description {
    /// Whether it is a key of the configuration alone, without a flag and a variable.
    #[must_use]
    pub fn is_key(&self) -> bool {
        self.group == Group::Keys
    }

    /// The environment variable: `GANNET_HEAD_TIMEOUT`, `GANNET_PACK_OUTPUT`.
    #[must_use]
    pub fn variable(&self) -> String {
        let name = self.name.replace('-', "_").to_ascii_uppercase();
        match self.section {
            "" => format!("GANNET_{name}"),
            section => format!("GANNET_{}_{name}", section.to_ascii_uppercase()),
        }
    }

    /// The configuration key: `head-timeout`, `pack.output`.
    #[must_use]
    pub fn key(&self) -> String {
        match self.section {
            "" => self.name.to_owned(),
            section => format!("{section}.{}", self.name),
        }
    }

    /// The placeholder for its value in help; empty for a switch.
    #[must_use]
    pub fn value_name(&self) -> &'static str {
        match self.value {
            Value::Switch => "",
            Value::One { name, .. } | Value::Many { name, .. } | Value::Positional { name } => name,
        }
    }

    /// The permitted values; empty if they are not a closed set.
    #[must_use]
    pub fn choices(&self) -> &'static [&'static str] {
        match self.value {
            Value::One { choices, .. } => choices,
            _ => &[],
        }
    }

    /// As it is typed: `-p, --port N`; of a key `client.requests = RATE`.
    #[must_use]
    pub fn usage(&self) -> String {
        if let Value::Positional { name } = self.value {
            return name.to_owned();
        }
        if self.is_key() {
            let value = self.value_name();
            let value = if value.is_empty() { "true" } else { value };
            return format!("{} = {value}", self.name);
        }
        let mut text = match self.short {
            Some(letter) => format!("-{letter}, --{}", self.name),
            None => format!("--{}", self.name),
        };
        if !self.value_name().is_empty() {
            text.push(' ');
            text.push_str(self.value_name());
        }
        text
    }
}

/// Every choice that a flag describes is accepted, and a near miss suggests it.
#[cfg(test)]
pub(super) fn check_choices<S: Default>(flags: &[Flag<S>]) {
    for flag in flags {
        let choices = flag.describe("").choices();
        for choice in choices {
            (flag.apply)(&mut S::default(), &[OsString::from(choice)]).expect(choice);
        }
        if let Some(last) = choices.last() {
            let typed = OsString::from(format!("{last}x"));
            let cause = (flag.apply)(&mut S::default(), &[typed]).expect_err(flag.name);
            assert!(cause.contains(&format!("did you mean '{last}'")), "{cause}");
        }
    }
}
