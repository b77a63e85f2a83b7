//! Problems of a rules file: where, what was found, and what was expected.

use std::fmt;
use std::path::Path;

/// Whether a problem stops the build.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Severity {
    /// The rule would not do what it says; the build stops.
    Error,
    /// The rule works, but probably not as intended.
    Warning,
}

/// One problem of one line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// Whether the build stops.
    pub severity: Severity,
    /// The path of the file, relative to the root of the site; after [`Problem::of_site`] a path
    /// that can be opened.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// What is wrong.
    pub what: What,
}

/// The kinds of problems.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum What {
    /// Something else than expected.
    Unexpected {
        /// The text found, truncated if it is long.
        found: String,
        /// What is allowed there.
        expected: String,
        /// How to fix it, if known.
        help: Option<&'static str>,
    },
    /// An earlier rule matches every request that this one matches.
    Shadowed {
        /// The line of the earlier rule.
        by_line: u32,
        /// Its file.
        by_file: String,
    },
    /// An earlier rule has the same source.
    Duplicate {
        /// The line of the earlier rule.
        of_line: u32,
        /// Its file.
        of_file: String,
    },
    /// Following the redirect leads back to it.
    Loop {
        /// The paths passed, from the first on.
        through: Vec<String>,
    },
    /// Following the redirect leads to another redirect.
    Chain {
        /// The paths passed, from the first to the last.
        through: Vec<String>,
    },
    /// A file has the path of the rule and is sent instead.
    FileWins {
        /// The path.
        path: String,
    },
    /// The rule has the path of a file, which is never sent.
    FileHidden {
        /// The path.
        path: String,
    },
    /// Cloudflare ignores the rule; here it answers where there is no file.
    Fallback,
    /// The target has the text of a placeholder that the source lacks.
    Lookalike {
        /// It, with its colon.
        text: String,
    },
    /// The page that the rule sends does not exist.
    TargetMissing {
        /// Its path.
        path: String,
    },
    /// A field that has one value is sent with that of another line, too.
    Joined {
        /// Its name in lower case.
        field: String,
        /// The other line.
        with_line: u32,
    },
}

impl What {
    /// A short name for machines: `shadowed-rule`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unexpected { .. } => "syntax",
            Self::Shadowed { .. } => "shadowed-rule",
            Self::Duplicate { .. } => "duplicate-rule",
            Self::Loop { .. } => "redirect-loop",
            Self::Chain { .. } => "redirect-chain",
            Self::FileWins { .. } => "file-wins",
            Self::FileHidden { .. } => "file-hidden",
            Self::Fallback => "fallback-rule",
            Self::Lookalike { .. } => "placeholder-text",
            Self::TargetMissing { .. } => "target-missing",
            Self::Joined { .. } => "joined-field",
        }
    }

    /// How to fix it, if known.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Unexpected { help, .. } => *help,
            Self::Shadowed { .. } => Some("move it above the other rule, or remove it"),
            Self::Duplicate { .. } => Some("only the first rule of a source counts: remove one"),
            Self::Loop { .. } => Some("let one of the targets lead elsewhere"),
            Self::Chain { .. } => Some("name the last path as the target"),
            Self::FileWins { .. } => Some("force the rule by '!' after its status, or remove it"),
            Self::FileHidden { .. } => Some("remove the rule or the file"),
            Self::Fallback => Some("remove it, and use '--spa': then missing files stay missing"),
            Self::Lookalike { .. } => Some("write '%3A' for a colon that is meant"),
            Self::TargetMissing { .. } => None,
            Self::Joined { .. } => {
                Some("keep one of the lines, or remove the other by '! Name' first")
            }
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unexpected {
                found, expected, ..
            } => write!(out, "found {found}, expected {expected}"),
            Self::Shadowed { by_line, by_file } => {
                write!(
                    out,
                    "never matches: {by_file}:{by_line} takes all its requests"
                )
            }
            Self::Duplicate { of_line, of_file } => {
                write!(
                    out,
                    "never matches: {of_file}:{of_line} has the same source"
                )
            }
            Self::Loop { through } => write!(out, "redirects in a loop: {}", through.join(" → ")),
            Self::Chain { through } => {
                write!(
                    out,
                    "redirects to another redirect: {}",
                    through.join(" → ")
                )
            }
            Self::FileWins { path } => {
                write!(out, "never matches: the file at '{path}' is sent instead")
            }
            Self::FileHidden { path } => {
                write!(
                    out,
                    "hides a file: the one at '{path}' can never be reached"
                )
            }
            Self::Fallback => write!(
                out,
                "Cloudflare leaves this rule out; here it answers what no file is for"
            ),
            Self::Lookalike { text } => {
                write!(
                    out,
                    "sends '{text}' as it is: the source has no such placeholder"
                )
            }
            Self::TargetMissing { path } => {
                write!(out, "there is nothing at the target '{path}'")
            }
            Self::Joined { field, with_line } => write!(
                out,
                "'{field}' has one value: joined with that of line {with_line} it means nothing"
            ),
        }
    }
}

impl Problem {
    /// The same with the folder of the site before the name of the file, so that the path can be
    /// opened from the current directory.
    #[must_use]
    pub fn of_site(mut self, root: &Path) -> Self {
        let path = root.join(&self.file);
        let path = path.strip_prefix(".").unwrap_or(&path);
        self.file = path.to_string_lossy().into_owned();
        self
    }
}

/// `_redirects:3:12: found '399', expected a status: 200, 301, ...`
impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file, line, column, ..
        } = self;
        write!(out, "{file}:{line}:{column}: {}", self.what)
    }
}

/// Whether any of the problems stops the build.
#[must_use]
pub fn has_errors(problems: &[Problem]) -> bool {
    problems
        .iter()
        .any(|problem| problem.severity == Severity::Error)
}
