//! How long a response may be stored: `cache-control` (RFC 9111, RFC 8246).
//!
//! Content under a name that changes whenever the content does is stored for a year. That requires
//! evidence, since it cannot be taken back from browsers: a digest of the content in the name, or a
//! convention of the tool that wrote the file. Everything else is stored too, but revalidated after
//! a second, which costs a round trip and no body while it is unchanged. Errors are not stored,
//! whatever a rule says: a script requested a moment too early would stay broken in that browser
//! until the rule's lifetime expires.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::content_digest::Algorithm;
use super::hashed_name::{HashedForm, framework_folder};
use crate::answer::{CACHE_IMMUTABLE, CACHE_NO_CACHE, CACHE_REVALIDATE};
use crate::mime;

/// `cache-control` of errors.
pub const CACHE_NOTHING: &str = "no-store";

/// How long a response may be stored.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Lifetime {
    /// A year, without revalidation.
    Immutable,
    /// Revalidated once it is a second old.
    Revalidate,
    /// Revalidated before each use, and not for shared caches.
    NoCache,
    /// Not at all.
    Nothing,
}

impl Lifetime {
    /// The value of `cache-control`.
    #[must_use]
    pub const fn cache_control(self) -> &'static str {
        match self {
            Self::Immutable => CACHE_IMMUTABLE,
            Self::Revalidate => CACHE_REVALIDATE,
            Self::NoCache => CACHE_NO_CACHE,
            Self::Nothing => CACHE_NOTHING,
        }
    }
}

/// Why a file has its lifetime.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// Its name contains a digest of its content.
    Digest(Algorithm),
    /// A framework uses its folder only for files named by their hash.
    Folder(&'static str),
    /// Its name has a hash in a form that bundlers write, and the site refers to it by that name.
    Referenced(HashedForm),
    /// It would be one of the above, but its content has changed under its name.
    Changed,
    /// It would be one of the above, but the content of another file of the same folder and form
    /// has changed under its name.
    ChangedBeside,
    /// It is a page.
    Page,
    /// There is no evidence that its name changes with its content.
    Plain,
}

impl Reason {
    /// The lifetime of the content, sent with 200 or 206.
    #[must_use]
    pub const fn lifetime(self) -> Lifetime {
        match self {
            Self::Digest(_) | Self::Folder(_) | Self::Referenced(_) => Lifetime::Immutable,
            Self::Changed | Self::ChangedBeside | Self::Page | Self::Plain => Lifetime::Revalidate,
        }
    }

    /// The evidence in the name of a file alone. `path` is relative to the root.
    #[must_use]
    pub fn of_name(path: &str, content_type: &str) -> Self {
        if is_page(content_type) {
            return Self::Page;
        }
        framework_folder(path).map_or(Self::Plain, Self::Folder)
    }

    /// The files that share this evidence with the one at `path`, as a pattern; `None` if there is
    /// no evidence.
    #[must_use]
    pub fn pattern(self, path: &str) -> Option<String> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let slash = if folder.is_empty() { "" } else { "/" };
        let names = match self {
            Self::Digest(_) => "NAME.DIGEST",
            Self::Folder(_) => "*",
            Self::Referenced(form) => form.shown(),
            Self::Changed | Self::ChangedBeside | Self::Page | Self::Plain => return None,
        };
        Some(format!("{folder}{slash}{names}"))
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digest(algorithm) => {
                write!(out, "the name has the {} of the content", algorithm.name())
            }
            Self::Folder(folder) => write!(out, "names in {folder} change with the content"),
            Self::Referenced(form) => write!(
                out,
                "the name has the form {} of bundlers, and the site refers to it",
                form.shown()
            ),
            Self::Changed => out.write_str("revalidated: the content changed under this name"),
            Self::ChangedBeside => out.write_str(
                "revalidated: the content of another file of this folder and form changed under \
                 its name",
            ),
            Self::Page => out.write_str("revalidated: a page"),
            Self::Plain => {
                out.write_str("revalidated: nothing proves that the name changes with the content")
            }
        }
    }
}

/// Whether content of a type is a page: its address stays, whatever it looks like.
#[must_use]
pub fn is_page(content_type: &str) -> bool {
    matches!(
        mime::essence(content_type),
        "text/html" | "application/xhtml+xml"
    )
}

/// The lifetimes that an archive records, for the packer that replaces it and for people: the
/// evidence that names alone do not show, and what invalidated it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Lifetimes {
    /// By path: `/name`, or `//host/name`.
    pub reasons: HashMap<String, Reason>,
    /// Patterns of which a name remained while its content changed.
    pub changed: HashSet<String>,
}

/// The first line of the text.
const TITLE: &str = "gannet-lifetimes 1";

impl Lifetimes {
    /// The reason recorded for a path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<Reason> {
        self.reasons.get(path).copied()
    }

    /// As text, with the same bytes for the same findings; lists at most `max` paths, since any
    /// others are found again. Empty if there is nothing to record.
    #[must_use]
    pub fn to_text(&self, max: usize) -> String {
        let mut lines: Vec<String> = Vec::new();
        for (path, reason) in &self.reasons {
            let what = match reason {
                Reason::Digest(algorithm) => format!("digest {}", algorithm.name()),
                Reason::Referenced(form) => format!("referenced {}", form.shown()),
                Reason::Changed => "changed -".to_owned(),
                _ => continue,
            };
            lines.push(format!("{what} {path}"));
        }
        // Changes must not be forgotten: they sort first.
        lines.sort_unstable();
        lines.truncate(max);
        let patterns = self.changed.iter();
        let mut patterns: Vec<_> = patterns.map(|it| format!("pattern - {it}")).collect();
        patterns.sort_unstable();
        patterns.truncate(max);
        lines.append(&mut patterns);
        if lines.is_empty() {
            return String::new();
        }
        format!("{TITLE}\n{}\n", lines.join("\n"))
    }

    /// Reads the text of an archive. Unknown lines are skipped: the only consequence is that the
    /// evidence is searched for again.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        let mut lines = text.lines();
        if lines.next() != Some(TITLE) {
            return found;
        }
        for line in lines {
            let mut words = line.splitn(3, ' ');
            let (Some(what), Some(how), Some(path)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let reason = match what {
                "digest" => Algorithm::parse(how).map(Reason::Digest),
                "referenced" => HashedForm::parse(how).map(Reason::Referenced),
                "changed" => Some(Reason::Changed),
                "pattern" => {
                    found.changed.insert(path.to_owned());
                    None
                }
                _ => None,
            };
            found.reasons.extend(reason.map(|it| (path.to_owned(), it)));
        }
        found
    }
}
