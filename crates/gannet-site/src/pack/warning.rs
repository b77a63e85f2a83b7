//! Warnings of packing.

use std::fmt;

/// A warning for the user.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Warning {
    /// In words.
    pub text: String,
    /// An option that resolves it, if there is one.
    pub remedy: Option<Remedy>,
}

/// An option that resolves a warning.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Remedy {
    /// These patterns in [`exclude`](super::PackOptions::exclude).
    Exclude(Vec<String>),
    /// A [policy](super::PackOptions::csp) that is not enforced, but reported.
    ReportOnly,
    /// No [`spa`](super::PackOptions::spa), which has no effect.
    NoApplication,
    /// A shorter time to [`carry`](super::PackOptions::carry) files on.
    CarryLess,
    /// Other [`types`](super::PackOptions::types), without charset.
    Types,
}

impl Warning {
    pub(super) fn with(text: String, remedy: Remedy) -> Self {
        Self {
            text,
            remedy: Some(remedy),
        }
    }
}

impl From<String> for Warning {
    fn from(text: String) -> Self {
        Self { text, remedy: None }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}
