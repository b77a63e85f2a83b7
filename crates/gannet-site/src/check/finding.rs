//! What a check finds.

use gannet_content::rules::problem::{Problem, Severity as RuleSeverity, What};

/// Whether a finding makes a check fail.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// Something that visitors run into.
    Error,
    /// Something that works, but hardly as it is meant, or not everywhere.
    Warning,
}

impl Severity {
    /// In one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// A short name for machines: `dead-link`.
    pub kind: &'static str,
    /// What is wrong, and why, in words; the same for the same mistake at several places.
    pub message: String,
    /// What to do about it, if that is known.
    pub help: Option<String>,
    /// The file it stands in.
    pub file: String,
    /// The line, from 1; 0 if it is not known.
    pub line: u64,
    /// The column in characters, from 1; 0 if it is not known, as in pages.
    pub column: u32,
    /// The URL as it stands there, and in which element; empty for rules.
    pub source: String,
}

impl From<&Problem> for Finding {
    fn from(problem: &Problem) -> Self {
        // A loop never answers.
        let is_error =
            problem.severity == RuleSeverity::Error || matches!(problem.what, What::Loop { .. });
        Self {
            severity: if is_error {
                Severity::Error
            } else {
                Severity::Warning
            },
            kind: problem.what.name(),
            message: problem.what.to_string(),
            help: problem.what.help().map(str::to_owned),
            file: problem.file.clone(),
            line: u64::from(problem.line),
            column: problem.column,
            source: String::new(),
        }
    }
}
