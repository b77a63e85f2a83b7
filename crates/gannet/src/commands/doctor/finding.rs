//! Findings, as text for people and as JSON.

use std::fmt::Write;

use super::facts::Lack;
use crate::json;
use crate::messages::printable;
use crate::quantities::counted;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// The server starts, and does without.
    Note,
    /// The server does not start, or does not do what the configuration says.
    Bad,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Bad => "bad",
        }
    }
}

/// One line of the report.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// What was looked at.
    pub(super) subject: &'static str,
    /// What was found: lower case, no final stop.
    pub(super) text: String,
    /// What fixes it.
    pub(super) help: Option<String>,
}

impl Finding {
    pub(super) fn ok(subject: &'static str, text: impl Into<String>) -> Self {
        Self {
            level: Level::Ok,
            subject,
            text: text.into(),
            help: None,
        }
    }

    pub(super) fn note(subject: &'static str, text: impl Into<String>) -> Self {
        Self {
            level: Level::Note,
            ..Self::ok(subject, text)
        }
    }

    pub(super) fn bad(subject: &'static str, text: impl Into<String>) -> Self {
        Self {
            level: Level::Bad,
            ..Self::ok(subject, text)
        }
    }

    /// Something is lacking.
    pub(super) fn lacking(level: Level, subject: &'static str, lack: &Lack) -> Self {
        Self {
            level,
            help: lack.help.clone(),
            ..Self::ok(subject, &*lack.why)
        }
    }

    pub(super) fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// For people: a line for each finding, and one with the numbers of them.
pub(super) fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|one| one.subject.len()).max();
    let width = width.unwrap_or(0);
    let mut text = String::new();
    for Finding {
        level,
        subject,
        text: found,
        help,
    } in findings
    {
        let (level, found) = (level.name(), printable(found));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{level:<4}  {subject:<width$}  {found}");
        if let Some(help) = help {
            let _ = writeln!(text, "      help: {}", printable(help));
        }
    }
    let (notes, bad) = numbers(findings);
    let ok = findings.len() as u64 - notes - bad;
    let _ = writeln!(text, "{ok} ok, {}, {bad} bad", counted(notes, "note"));
    text
}

/// The same for programs.
pub(super) fn json(findings: &[Finding]) -> String {
    let one = |one: &Finding| {
        let help = one.help.as_deref().map_or("null".into(), json::string);
        format!(
            "    {{\"level\": \"{}\", \"subject\": {}, \"text\": {}, \"help\": {help}}}",
            one.level.name(),
            json::string(one.subject),
            json::string(&one.text),
        )
    };
    let all: Vec<String> = findings.iter().map(one).collect();
    let (notes, bad) = numbers(findings);
    format!(
        "{{\n  \"version\": {},\n  \"findings\": [\n{}\n  ],\n  \"notes\": {notes},\n  \"bad\": {bad}\n}}\n",
        json::string(env!("CARGO_PKG_VERSION")),
        all.join(",\n")
    )
}

/// How many are notes, and how many bad.
fn numbers(findings: &[Finding]) -> (u64, u64) {
    let of = |level| findings.iter().filter(|one| one.level == level).count() as u64;
    (of(Level::Note), of(Level::Bad))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> [Finding; 3] {
        [
            Finding::ok("kernel", "Linux 6.18"),
            Finding::note("root", "as \u{1b}[1mroot").help("add --user"),
            Finding::bad("address", "port \"80\" is busy").help("stop nginx"),
        ]
    }

    #[test]
    fn people_get_columns_and_no_control_characters() {
        let lines = "ok    kernel   Linux 6.18\n\
                     note  root     as \\u{1b}[1mroot\n      help: add --user\n\
                     bad   address  port \"80\" is busy\n      help: stop nginx\n\
                     1 ok, 1 note, 1 bad\n";
        assert_eq!(text(&findings()), lines);
    }

    #[test]
    fn programs_get_json() {
        let got = json(&findings());
        assert!(got.contains(
            "{\"level\": \"note\", \"subject\": \"root\", \"text\": \"as \\u001b[1mroot\", \
             \"help\": \"add --user\"},\n"
        ));
        assert!(got.contains("\"text\": \"port \\\"80\\\" is busy\""));
        assert!(got.contains("\"text\": \"Linux 6.18\", \"help\": null}"));
        assert!(got.ends_with("\"notes\": 1,\n  \"bad\": 1\n}\n"), "{got}");
    }
}
