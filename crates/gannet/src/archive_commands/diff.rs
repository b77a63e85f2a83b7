//! `gannet diff`: which URLs one archive has that another has not, or has differently.

use std::cmp::Ordering;
use std::io::{self, Read, Write};
use std::path::PathBuf;

use gannet_archive::{Coding, Entry, EntryKind, Namespace};
use gannet_content::rules::pattern::Scheme;

use super::{ArchiveFile, CommandError, entry_name, host_name, host_number, json_string};
use crate::offline::{Asked, Located, Place, Site};
use crate::pack::size;

/// What to compare, and how to show it.
#[derive(Clone, Debug)]
pub struct DiffOptions {
    /// The archive that is there.
    pub before: PathBuf,
    /// The archive that is to come.
    pub after: PathBuf,
    /// As a JSON object.
    pub json: bool,
}

/// What became of a URL.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Change {
    Added,
    Removed,
    /// What is different: `content`, `type`, a field's name, ...
    Changed(Vec<String>),
    /// It had content and leads elsewhere now.
    Redirected(String),
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    added: u64,
    changed: u64,
    redirected: u64,
    removed: u64,
}

/// Compares the URLs of two archives: both are read once, in the order of their paths. Times of
/// modification make no difference.
///
/// Gives whether anything differs.
///
/// # Errors
///
/// An archive cannot be opened or read, or `out` takes no more.
pub fn diff(options: &DiffOptions, out: &mut dyn Write) -> Result<bool, CommandError> {
    let before = ArchiveFile::open(&options.before)?;
    let site = Site::of_archive(&options.after, false)?;
    let Place::Archive(after) = site.place() else {
        unreachable!("it was opened as an archive");
    };
    let mut diff = Diff {
        before: &before,
        after: after.file(),
        site: &site,
        json: options.json,
        counts: Counts::default(),
        out,
    };
    diff.walk()?;
    diff.end().map_err(CommandError::Output)?;
    let counts = diff.counts;
    Ok(counts.added + counts.changed + counts.redirected + counts.removed > 0)
}

struct Diff<'a> {
    before: &'a ArchiveFile,
    after: &'a ArchiveFile,
    /// The later one, as it answers.
    site: &'a Site,
    json: bool,
    counts: Counts,
    out: &'a mut dyn Write,
}

impl<'a> Diff<'a> {
    /// Both lists are in the order of their keys.
    fn walk(&mut self) -> Result<(), CommandError> {
        // What rules send in place of a path is no URL of its own.
        let is_url = |entry: &Entry<'_>| entry.key().namespace != Namespace::Unruled;
        let mut old = self.before.archive().entries().filter(is_url).peekable();
        let mut new = self.after.archive().entries().filter(is_url).peekable();
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => self.order(a, b),
            };
            match order {
                Ordering::Less => {
                    if let Some(entry) = old.next() {
                        let change = self.removed(&entry);
                        self.tell(self.before, &entry, &change)?;
                    }
                }
                Ordering::Greater => {
                    if let Some(entry) = new.next() {
                        self.tell(self.after, &entry, &Change::Added)?;
                    }
                }
                Ordering::Equal => {
                    if let (Some(a), Some(b)) = (old.next(), new.next())
                        && let Some(change) = self.compare(&a, &b)?
                    {
                        self.tell(self.after, &b, &change)?;
                    }
                }
            }
        }
    }

    /// What is gone may lead elsewhere, by a rule or without its slash.
    fn removed(&self, entry: &Entry<'_>) -> Change {
        let key = entry.key();
        let host_name = host_name(self.before.archive(), key.host);
        let asked = Asked {
            // A host that is no longer named is answered like all others.
            host: host_number(self.after.archive(), host_name.as_bytes()),
            host_name,
            scheme: Scheme::Https,
            path: key.path,
            query: None,
            is_navigation: false,
        };
        match self.site.locate(asked) {
            Located::Redirect { location, .. } if key.namespace == Namespace::Content => {
                Change::Redirected(location)
            }
            _ => Change::Removed,
        }
    }

    /// Hosts are in the order of their names, whatever their numbers.
    fn order(&self, a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
        let (old, new) = (a.key(), b.key());
        let old_host = host_name(self.before.archive(), old.host);
        let host = old_host.cmp(host_name(self.after.archive(), new.host));
        host.then(old.on(0).cmp(&new.on(0)))
    }

    fn compare(&self, a: &Entry<'a>, b: &Entry<'a>) -> Result<Option<Change>, CommandError> {
        let mut what = Vec::new();
        match (a.kind(), b.kind()) {
            (EntryKind::Redirect { .. }, EntryKind::Redirect { .. }) => {
                if a.kind() != b.kind() {
                    what.push("redirect".to_owned());
                }
            }
            (EntryKind::Content, EntryKind::Redirect { location, .. }) => {
                let location = String::from_utf8_lossy(location).into_owned();
                return Ok(Some(Change::Redirected(location)));
            }
            (EntryKind::Redirect { .. }, EntryKind::Content) => what.push("content".to_owned()),
            (EntryKind::Content, EntryKind::Content) => {
                if content_digest(self.before, a)? != content_digest(self.after, b)? {
                    what.push("content".to_owned());
                } else if stored(a) != stored(b) {
                    what.push("codings".to_owned());
                }
                what.extend(changed_fields(a, b));
            }
        }
        Ok((!what.is_empty()).then_some(Change::Changed(what)))
    }

    fn tell(
        &mut self,
        file: &ArchiveFile,
        entry: &Entry<'_>,
        change: &Change,
    ) -> Result<(), CommandError> {
        let name = entry_name(file.archive(), entry);
        let is_first = self.counts.sum() == 0;
        let counter = match change {
            Change::Added => &mut self.counts.added,
            Change::Removed => &mut self.counts.removed,
            Change::Changed(_) => &mut self.counts.changed,
            Change::Redirected(_) => &mut self.counts.redirected,
        };
        *counter += 1;
        let written = if self.json {
            write_json(self.out, is_first, &name, change)
        } else {
            write_line(self.out, &name, change)
        };
        written.map_err(CommandError::Output)
    }

    fn end(&mut self) -> io::Result<()> {
        let (old, new) = (self.before.archive().stats(), self.after.archive().stats());
        let Counts {
            added,
            changed,
            redirected,
            removed,
        } = self.counts;
        let out = &mut *self.out;
        if self.json {
            let open = if self.counts.sum() == 0 {
                "{\"changes\": ["
            } else {
                "\n"
            };
            write!(out, "{open}], \"added\": {added}, \"changed\": {changed}, ")?;
            write!(
                out,
                "\"redirected\": {redirected}, \"removed_without_redirect\": {removed}"
            )?;
            write!(out, ", \"codings\": {{")?;
            for (number, coding) in Coding::ALL.into_iter().enumerate() {
                let comma = if number > 0 { ", " } else { "" };
                let (a, b) = (old.coding(coding).bytes, new.coding(coding).bytes);
                let name = coding.name();
                write!(
                    out,
                    "{comma}\"{name}\": {{\"before\": {a}, \"after\": {b}}}"
                )?;
            }
            return writeln!(out, "}}}}");
        }
        if self.counts.sum() == 0 {
            return writeln!(out, "no differences");
        }
        writeln!(
            out,
            "\n{added} added, {changed} changed, {redirected} redirected, {removed} removed without \
             redirect\n"
        )?;
        writeln!(
            out,
            "{:<10}{:>12}{:>12}{:>13}",
            "coding", "before", "after", "difference"
        )?;
        for coding in Coding::ALL {
            let (a, b) = (old.coding(coding).bytes, new.coding(coding).bytes);
            let sign = if b < a { "-" } else { "+" };
            let difference = format!("{sign}{}", size(a.abs_diff(b)));
            let (a, b) = (size(a), size(b));
            writeln!(out, "{:<10}{a:>12}{b:>12}{difference:>13}", coding.name())?;
        }
        Ok(())
    }
}

impl Counts {
    fn sum(self) -> u64 {
        self.added + self.changed + self.redirected + self.removed
    }
}

/// The digest of the content without coding.
fn content_digest(file: &ArchiveFile, entry: &Entry<'_>) -> Result<[u8; 32], CommandError> {
    if let Some(identity) = entry.select(Coding::Identity.bit())
        && let Ok(digest) = identity.digest().try_into()
    {
        return Ok(digest);
    }
    let refuse = |error| CommandError::io("read", file.path())(error);
    let mut hasher = blake3::Hasher::new();
    if let Some(content) = file.content(entry).map_err(refuse)? {
        // What comes out of a decoder may be much: it is hashed as it comes.
        io::copy(&mut content.take(u64::MAX), &mut hasher).map_err(refuse)?;
    }
    Ok(*hasher.finalize().as_bytes())
}

/// Codings and the digests of what is stored in them.
fn stored<'a>(entry: &Entry<'a>) -> Vec<(Coding, &'a [u8])> {
    let variants = entry.variants();
    let mut stored: Vec<_> = variants.map(|it| (it.coding(), it.digest())).collect();
    stored.sort_unstable();
    stored
}

/// Names of fields that differ, but for those that follow from content, coding and time.
fn changed_fields(a: &Entry<'_>, b: &Entry<'_>) -> Vec<String> {
    let (old, new) = (fields(a), fields(b));
    let mut names: Vec<String> = Vec::new();
    for (name, value) in old.iter().chain(&new) {
        let line = (name.clone(), value.clone());
        if (!old.contains(&line) || !new.contains(&line)) && !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

fn fields(entry: &Entry<'_>) -> Vec<(String, String)> {
    const FOLLOWING: [&str; 7] = [
        "content-length",
        "content-encoding",
        "etag",
        "last-modified",
        "vary",
        "repr-digest",
        "content-digest",
    ];
    let block = entry.variants().next().map(|variant| variant.h1().whole());
    let block = block.unwrap_or_default();
    let text = String::from_utf8_lossy(&block);
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    lines
        .filter(|(name, _)| !FOLLOWING.contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn write_line(out: &mut dyn Write, name: &str, change: &Change) -> io::Result<()> {
    match change {
        Change::Added => writeln!(out, "+ {name}"),
        Change::Removed => writeln!(out, "- {name}"),
        Change::Changed(what) => writeln!(out, "~ {name}  ({})", what.join(", ")),
        Change::Redirected(to) => writeln!(out, "> {name}  (to {to})"),
    }
}

fn write_json(out: &mut dyn Write, is_first: bool, name: &str, change: &Change) -> io::Result<()> {
    let open = if is_first { "{\"changes\": [" } else { "," };
    let (word, more) = match change {
        Change::Added => ("added", String::new()),
        Change::Removed => ("removed", String::new()),
        Change::Changed(what) => {
            let what = crate::json::strings(what);
            ("changed", format!(", \"what\": {what}"))
        }
        Change::Redirected(to) => ("redirected", format!(", \"location\": {}", json_string(to))),
    };
    let url = json_string(name);
    write!(
        out,
        "{open}\n  {{\"change\": \"{word}\", \"url\": {url}{more}}}"
    )
}
