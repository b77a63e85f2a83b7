//! The findings of a check.

use gannet_content::rules::problem::{Problem, Severity as RuleSeverity, What};

use crate::offline::WhyNot;

/// Whether a finding makes a check fail.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// Visible to visitors.
    Error,
    /// Works, but probably not as intended, or not everywhere.
    Warning,
}

impl Severity {
    /// The name in one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// The next step after a finding. Programs name the flag for it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Help {
    /// In words.
    Text(String),
    /// Serve folders without an index page as listings.
    Listing,
    /// Serve what exists and is not served for this reason.
    Unserved(WhyNot),
    /// The site has this path: name the place below its host that it is for, if this is it.
    Below {
        /// That place, without a slash at the end.
        prefix: String,
        /// The rest of the path.
        path: String,
    },
    /// Convert the file to UTF-8, or let it be sent without charset.
    Encoding,
}

/// One finding.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The severity.
    pub severity: Severity,
    /// A short name for machines: `dead-link`.
    pub kind: &'static str,
    /// What is wrong, and why; equal mistakes have equal messages.
    pub message: String,
    /// The next step, if known.
    pub help: Option<Help>,
    /// The file with the mistake.
    pub file: String,
    /// The line, from 1; 0 if unknown.
    pub line: u64,
    /// The column in characters, from 1; 0 if unknown, as in pages.
    pub column: u32,
    /// The URL as written, and its element; empty for rules.
    pub source: String,
}

impl From<&Problem> for Finding {
    fn from(problem: &Problem) -> Self {
        // A loop never ends in an answer.
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
            help: problem.what.help().map(|help| Help::Text(help.into())),
            file: problem.file.clone(),
            line: u64::from(problem.line),
            column: problem.column,
            source: String::new(),
        }
    }
}
