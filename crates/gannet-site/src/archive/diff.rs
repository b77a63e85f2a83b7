//! Compares two archives: the URLs that only one has or that are answered differently, the rules
//! and the options.

use std::cmp::Ordering;
use std::io::{self, Read};
use std::path::Path;

use gannet_archive::{Coding, Entry, EntryKind, Key, Namespace};
use gannet_content::rules::pattern::Scheme;

use super::rules_diff::{self, OptionChange, RuleChange};
use super::{ArchiveFile, SiteError, entry_name, host_name, host_number};
use crate::offline::{Located, Place, RequestUrl, Site};

/// How a URL differs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// Only the later archive has it.
    Added,
    /// Only the earlier archive has it.
    Removed {
        /// The earlier archive said that it never changes, so that no new page refers to it.
        was_immutable: bool,
    },
    /// It is answered differently.
    Changed {
        /// What differs: `content`, `type`, a field's name, ...
        what: Vec<String>,
        /// Its content differs although the earlier archive said that it never does: browsers
        /// that have it will not ask again.
        was_immutable: bool,
    },
    /// It had content and now redirects.
    Redirected(String),
    /// It is no longer part of the site, but carried on.
    Carried,
    /// It was carried on, and is no longer.
    Expired,
}

/// How two archives differ.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Differences {
    /// New URLs.
    pub added: u64,
    /// URLs that are answered differently.
    pub changed: u64,
    /// URLs that had content and now redirect.
    pub redirected: u64,
    /// URLs that are no longer part of the site, but carried on.
    pub carried: u64,
    /// URLs that were carried on, and are no longer.
    pub expired: u64,
    /// URLs that are gone without a redirect.
    pub removed: u64,
    /// URLs of the earlier archive that are to last: part of the site, and not said never to change,
    /// as are names with a digest of the content.
    pub lasting: u64,
    /// Those of the changed URLs that were sent as immutable.
    pub immutable_changed: u64,
    /// Rules that differ.
    pub rules: Vec<RuleChange>,
    /// Options that differ.
    pub options: Vec<OptionChange>,
    /// The bytes of each coding, before and after; of those with a dictionary if there are any.
    pub codings: Vec<(Coding, u64, u64)>,
}

impl Differences {
    /// The number of URLs that differ.
    #[must_use]
    pub fn url_count(&self) -> u64 {
        self.added + self.changed + self.redirected + self.removed + self.carried + self.expired
    }

    /// Whether both archives answer alike.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.url_count() == 0 && self.rules.is_empty() && self.options.is_empty()
    }
}

/// Compares two archives: their URLs in one pass in the order of their paths, then their rules and
/// the options that affect answers. Modification times are ignored. Calls `report` for each URL that
/// differs.
///
/// # Errors
/// An archive cannot be opened or read, or `report` fails.
pub fn diff(
    before: &Path,
    after: &Path,
    report: &mut dyn FnMut(&str, &Change) -> io::Result<()>,
) -> Result<Differences, SiteError> {
    let before = ArchiveFile::open(before)?;
    let site = Site::of_archive(after, false)?;
    let Place::Archive(after) = site.place() else {
        unreachable!("it was opened as an archive");
    };
    let after = after.file();
    let mut diff = Diff {
        before: &before,
        after,
        site: &site,
        found: Differences {
            rules: rules_diff::rules(&before, after)?,
            options: rules_diff::options(&before, after),
            ..Differences::default()
        },
        report,
    };
    diff.walk()?;
    let mut found = diff.found;
    let is_lasting =
        |it: &Entry<'_>| is_url(it) && it.carried_since().is_none() && !it.is_immutable();
    found.lasting = before.archive().entries().filter(is_lasting).count() as u64;
    let (old, new) = (before.archive().stats(), after.archive().stats());
    let codings = Coding::ALL.into_iter().chain(Coding::WITH_DICTIONARY);
    found.codings = codings
        .map(|it| (it, old.coding(it).bytes, new.coding(it).bytes))
        .filter(|(it, a, b)| !it.has_dictionary() || a + b > 0)
        .collect();
    Ok(found)
}

struct Diff<'a> {
    before: &'a ArchiveFile,
    after: &'a ArchiveFile,
    /// The later archive, as it is served.
    site: &'a Site,
    found: Differences,
    report: &'a mut dyn FnMut(&str, &Change) -> io::Result<()>,
}

impl<'a> Diff<'a> {
    /// Merges both lists, which are in the order of their keys.
    fn walk(&mut self) -> Result<(), SiteError> {
        let mut old = self.before.archive().entries().peekable();
        let mut new = self.after.archive().entries().peekable();
        loop {
            let order = match (old.peek(), new.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some(a), Some(b)) => self.order(a, b),
            };
            match order {
                Ordering::Less => {
                    if let Some(entry) = old.next().filter(is_url) {
                        let change = self.removed(&entry);
                        self.report(self.before, &entry, &change)?;
                    }
                }
                Ordering::Greater => {
                    if let Some(entry) = new.next().filter(is_url) {
                        let change = match entry.carried_since() {
                            Some(_) => Change::Carried,
                            None => Change::Added,
                        };
                        self.report(self.after, &entry, &change)?;
                    }
                }
                Ordering::Equal => {
                    if let (Some(a), Some(b)) = (old.next(), new.next())
                        && let Some(change) = self.compare(&a, &b)?
                    {
                        self.report(self.after, &b, &change)?;
                    }
                }
            }
        }
    }

    /// A removed entry may redirect now, by a rule or by a missing slash.
    fn removed(&self, entry: &Entry<'_>) -> Change {
        if entry.carried_since().is_some() {
            return Change::Expired;
        }
        let key = entry.key();
        let host_name = host_name(self.before.archive(), key.host);
        let asked = RequestUrl {
            // A host that is no longer named gets the answers for all other hosts.
            host: host_number(self.after.archive(), host_name.as_bytes()),
            host_name,
            scheme: Scheme::Https,
            path: key.path,
            query: None,
            is_navigation: false,
            language: "",
        };
        match self.site.locate(asked) {
            Located::Redirect { location, .. } if key.namespace == Namespace::Content => {
                Change::Redirected(location)
            }
            _ => Change::Removed {
                was_immutable: entry.is_immutable(),
            },
        }
    }

    /// Hosts are ordered by their names, whatever their numbers.
    fn order(&self, a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
        let (old, new) = (a.key(), b.key());
        let old_host = host_name(self.before.archive(), old.host);
        let host = old_host.cmp(host_name(self.after.archive(), new.host));
        host.then(old.on(0).cmp(&new.on(0)))
    }

    fn compare(&self, a: &Entry<'a>, b: &Entry<'a>) -> Result<Option<Change>, SiteError> {
        if b.key().namespace == Namespace::Unruled {
            let what = self.compare_behind_rules(a, b);
            let was_immutable = false;
            return Ok((!what.is_empty()).then_some(Change::Changed {
                what,
                was_immutable,
            }));
        }
        match (a.carried_since(), b.carried_since()) {
            (None, Some(_)) => return Ok(Some(Change::Carried)),
            (Some(_), None) => return Ok(Some(Change::Added)),
            _ => {}
        }
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
        let was_immutable = a.is_immutable() && what.iter().any(|it| it == "content");
        Ok((!what.is_empty()).then_some(Change::Changed {
            what,
            was_immutable,
        }))
    }

    /// Fields of content served for other paths, unless those of its own path differ, too.
    fn compare_behind_rules(&self, a: &Entry<'a>, b: &Entry<'a>) -> Vec<String> {
        let own = |file: &'a ArchiveFile, entry: &Entry<'a>| {
            let key = Key::content(entry.key().path).on(entry.key().host);
            file.archive().lookup(key)
        };
        let is_told = match (own(self.before, a), own(self.after, b)) {
            (Some(a), Some(b)) => !changed_fields(&a, &b).is_empty(),
            _ => true,
        };
        match is_told {
            true => Vec::new(),
            false => changed_fields(a, b),
        }
    }

    fn report(
        &mut self,
        file: &ArchiveFile,
        entry: &Entry<'_>,
        change: &Change,
    ) -> Result<(), SiteError> {
        let name = entry_name(file.archive(), entry);
        let counter = match change {
            Change::Added => &mut self.found.added,
            Change::Removed { .. } => &mut self.found.removed,
            Change::Changed { .. } => &mut self.found.changed,
            Change::Redirected(_) => &mut self.found.redirected,
            Change::Carried => &mut self.found.carried,
            Change::Expired => &mut self.found.expired,
        };
        *counter += 1;
        if let Change::Changed {
            was_immutable: true,
            ..
        } = change
        {
            self.found.immutable_changed += 1;
        }
        (self.report)(&name, change).map_err(SiteError::Output)
    }
}

/// Bodies that only rules refer to have no URL of their own.
fn is_url(entry: &Entry<'_>) -> bool {
    entry.key().namespace != Namespace::Unruled
}

/// The digest of the uncoded content.
fn content_digest(file: &ArchiveFile, entry: &Entry<'_>) -> Result<[u8; 32], SiteError> {
    if let Some(identity) = entry.select(Coding::Identity.into())
        && let Ok(digest) = identity.digest().try_into()
    {
        return Ok(digest);
    }
    let refuse = |error| SiteError::io("read", file.path())(error);
    let mut hasher = blake3::Hasher::new();
    if let Some(content) = file.content(entry).map_err(refuse)? {
        // Decoded content may be large: it is hashed in a stream.
        io::copy(&mut content.take(u64::MAX), &mut hasher).map_err(refuse)?;
    }
    Ok(*hasher.finalize().as_bytes())
}

/// The stored codings with their digests.
pub(super) fn stored<'a>(entry: &Entry<'a>) -> Vec<(Coding, &'a [u8])> {
    let variants = entry.variants();
    let mut stored: Vec<_> = variants.map(|it| (it.coding(), it.digest())).collect();
    stored.sort_unstable();
    stored
}

/// Names of differing fields, except those that follow from content, coding and time. Digests
/// follow, too, but whether they are sent is an option of packing.
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

/// The fields, except those that follow from content, coding and time.
pub(super) fn fields(entry: &Entry<'_>) -> Vec<(String, String)> {
    const FOLLOWING: [&str; 5] = [
        "content-length",
        "content-encoding",
        "etag",
        "last-modified",
        "vary",
    ];
    const DIGESTS: [&str; 2] = ["repr-digest", "content-digest"];
    let block = entry.variants().next().map(|variant| variant.h1().whole());
    let block = block.unwrap_or_default();
    let text = String::from_utf8_lossy(&block);
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    lines
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| !FOLLOWING.contains(&name.as_str()))
        .map(|(name, value)| {
            let is_digest = DIGESTS.contains(&name.as_str());
            (name, if is_digest { "" } else { value }.to_owned())
        })
        .collect()
}
