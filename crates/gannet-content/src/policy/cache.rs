//! How long an answer may be kept: `cache-control` (RFC 9111, RFC 8246).
//!
//! Content under a name that changes whenever the content does is kept for a year. Everything
//! else is kept too, but asked for again each time, which costs a round trip and no body as long
//! as it is unchanged. Errors are not kept.

use std::collections::{HashMap, HashSet};

use super::fingerprint::{has_content_hash, split_token};
use crate::answer::{CACHE_IMMUTABLE, CACHE_REVALIDATE};

/// `cache-control` of errors.
pub const CACHE_NOTHING: &str = "no-store";

/// How long an answer may be kept.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Lifetime {
    /// A year, without asking again.
    Immutable,
    /// Until it is asked for, and then if it has not changed.
    Revalidate,
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
            Self::Nothing => CACHE_NOTHING,
        }
    }
}

/// Why a file has its lifetime, for `explain`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// Its name has a content hash in a form that bundlers write.
    HashedName,
    /// Its name changed with its content since the previous release.
    RenamedWithContent,
    /// Its content changed under its name since the previous release.
    ChangedUnderName,
    /// It is a page.
    Page,
    /// Nothing says that its name changes with its content.
    PlainName,
}

/// The lifetime of the content at a path of a site, sent with 200 or 206, and the reason.
///
/// `path` is relative to the root, without a slash at the start; `releases` is a comparison with
/// the previous release, if there is one.
#[must_use]
pub fn lifetime(path: &str, content_type: &str, releases: Option<&Releases>) -> (Lifetime, Reason) {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if matches!(essence, "text/html" | "application/xhtml+xml") {
        return (Lifetime::Revalidate, Reason::Page);
    }
    match releases.map(|releases| releases.verdict(path)) {
        Some(Verdict::ChangedUnderName | Verdict::StillAskedFor) => {
            (Lifetime::Revalidate, Reason::ChangedUnderName)
        }
        Some(Verdict::RenamedWithContent | Verdict::StillImmutable) => {
            (Lifetime::Immutable, Reason::RenamedWithContent)
        }
        Some(Verdict::Unknown) | None if has_content_hash(path) => {
            (Lifetime::Immutable, Reason::HashedName)
        }
        Some(Verdict::Unknown) | None => (Lifetime::Revalidate, Reason::PlainName),
    }
}

/// The lifetime of an answer that is not the content of a path: redirects and errors. A redirect
/// is asked for again, even a permanent one: browsers would otherwise keep it for ever.
#[must_use]
pub const fn lifetime_of_status(status: u16) -> Lifetime {
    match status {
        200..=399 => Lifetime::Revalidate,
        _ => Lifetime::Nothing,
    }
}

/// What two releases of a site say about the names in the new one.
#[derive(Clone, Debug, Default)]
pub struct Releases {
    verdicts: HashMap<String, Verdict>,
}

/// What two releases say about a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The name came when the content did, in place of a name that differs in one token only.
    RenamedWithContent,
    /// The content changed and the name did not.
    ChangedUnderName,
    /// Nothing changed, and the previous release had found that the name changes with the content.
    StillImmutable,
    /// Nothing changed, and the previous release had it asked for although the name has a hash.
    StillAskedFor,
    /// None of these.
    Unknown,
}

impl Releases {
    /// Compares two releases, each as paths relative to the root and digests of the content; the
    /// previous one with what its answers said.
    ///
    /// A new file whose name is that of a file that is gone, but for one token of letters and
    /// digits, was renamed with its content, if the contents differ, and if no name of that form
    /// has kept its name while its content changed. What such a comparison found before holds as
    /// long as name and content stay.
    #[must_use]
    pub fn compare<'a>(
        previous: impl IntoIterator<Item = (&'a str, [u8; 32], Lifetime)>,
        current: impl IntoIterator<Item = (&'a str, [u8; 32])>,
    ) -> Self {
        let previous: HashMap<&str, ([u8; 32], Lifetime)> = previous
            .into_iter()
            .map(|(path, digest, lifetime)| (path, (digest, lifetime)))
            .collect();
        let current: Vec<(&str, [u8; 32])> = current.into_iter().collect();
        let mut verdicts = HashMap::new();
        let mut unstable = HashSet::new();
        for (path, digest) in &current {
            let verdict = match previous.get(path) {
                Some((before, _)) if before != digest => {
                    unstable.extend(form(path));
                    Some(Verdict::ChangedUnderName)
                }
                Some((_, lifetime)) => still(path, *lifetime),
                None => None,
            };
            verdicts.extend(verdict.map(|verdict| ((*path).to_owned(), verdict)));
        }
        let present: HashSet<&str> = current.iter().map(|(path, _)| *path).collect();
        let mut gone: HashMap<Form<'_>, Vec<[u8; 32]>> = HashMap::new();
        for (path, (digest, _)) in &previous {
            if !present.contains(path)
                && let Some(form) = form(path)
            {
                gone.entry(form).or_default().push(*digest);
            }
        }
        for (path, digest) in &current {
            let Some(form) = form(path).filter(|_| !previous.contains_key(path)) else {
                continue;
            };
            let before = gone.get(&form).map(Vec::as_slice).unwrap_or_default();
            let is_new_content = !before.is_empty() && !before.contains(digest);
            if is_new_content && !unstable.contains(&form) {
                verdicts.insert((*path).to_owned(), Verdict::RenamedWithContent);
            }
        }
        Self { verdicts }
    }

    /// What the releases say about a path of the new one.
    #[must_use]
    pub fn verdict(&self, path: &str) -> Verdict {
        self.verdicts.get(path).copied().unwrap_or(Verdict::Unknown)
    }
}

/// What holds on for a file that is the same as before, if its name alone does not say so.
fn still(path: &str, lifetime: Lifetime) -> Option<Verdict> {
    match (lifetime, has_content_hash(path)) {
        (Lifetime::Immutable, false) => form(path).map(|_| Verdict::StillImmutable),
        (Lifetime::Revalidate, true) => Some(Verdict::StillAskedFor),
        _ => None,
    }
}

/// A path without the token in its name: folder, what is before it, what is after it.
type Form<'a> = (&'a str, &'a str, &'a str);

fn form(path: &str) -> Option<Form<'_>> {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let (before, _, after) = split_token(name)?;
    Some((folder, before, after))
}
