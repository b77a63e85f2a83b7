//! The URLs that two archives answer differently: what a cache in front of a server has to forget.
//!
//! ```text
//!   paths of both ─────────────┐
//!   paths of single rules ─────┼──▶ answered by both ──▶ differs: the URL
//!   with a slash, if redirected┘
//!   rules for many paths that differ ──▶ redirected before ──▶ all URLs that begin so
//! ```
//!
//! Only answers that a cache may have kept with a lifetime matter: content of a path itself, and the
//! redirects 301 and 308 ([`is_caching_field`] and where it applies). Errors and pages that stand in for
//! missing paths have none, so that no list of what is missing, which has no end, is needed.
//!
//! [`is_caching_field`]: gannet_content::rules::headers::is_caching_field

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use gannet_archive::{Coding, Entry, EntryKind, Namespace};
use gannet_content::archive::Resolution;
use gannet_content::negotiation;
use gannet_content::rules::headers::FieldChanges;
use gannet_content::rules::pattern::{Pattern, Scheme, Segment};
use gannet_content::rules::redirects::Redirect;
use gannet_content::rules::steps::Steps;

use super::diff::{fields, stored};
use super::{ArchiveFile, SiteError, host_name, host_number, rules_diff};
use crate::offline::{ArchivePlace, Place, RequestUrl, Rules, Site};
use crate::target::url;

/// Calls `report` with each URL that the later archive answers differently: `/path`, or `//host/path` on a
/// virtual host, in order; `/path*` for all that begin so. Returns their number.
///
/// Modification times are ignored. Immutable assets that come or go are left out: their names never had
/// other content, and an error is not kept.
///
/// # Errors
/// An archive cannot be opened or read, or `report` fails.
pub fn changed_urls(
    before: &Path,
    after: &Path,
    report: &mut dyn FnMut(&str) -> io::Result<()>,
) -> Result<u64, SiteError> {
    let old = Site::of_archive(before, false)?;
    let new = Site::of_archive(after, false)?;
    let (old_place, new_place) = (place_of(&old), place_of(&new));
    let mut names = BTreeSet::new();
    for file in [old_place.file(), new_place.file()] {
        let numbers = 0..=file.archive().hosts().len() as u16;
        names.extend(numbers.map(|number| host_name(file.archive(), number)));
    }
    let rules = rules_diff::rules(old_place.file(), new_place.file())?;
    let mut count = 0;
    for name in names {
        let sides = [
            Side::of(&old, old_place, name),
            Side::of(&new, new_place, name),
        ];
        let prefix = match name {
            "" => String::new(),
            name => format!("//{name}"),
        };
        let fields_file = match name {
            "" => "_headers".to_owned(),
            _ => format!("{prefix}/_headers"),
        };
        let fields_differ = rules.iter().any(|it| it.file == fields_file);
        for url in changed_on(&sides, fields_differ) {
            report(&format!("{prefix}{url}")).map_err(SiteError::Output)?;
            count += 1;
        }
    }
    Ok(count)
}

/// The URLs of one host, without its name.
fn changed_on([old, new]: &[Side<'_>; 2], fields_differ: bool) -> BTreeSet<String> {
    let has_hosts = |side: &Side<'_>| side.rules.headers().is_some_and(|it| it.has_hosts());
    if fields_differ && (has_hosts(old) || has_hosts(new)) {
        // An archive does not know all names that its server has.
        return BTreeSet::from(["/*".to_owned()]);
    }
    let mut urls = BTreeSet::new();
    by_rules(old.rules, new.rules, &mut urls);
    if fields_differ {
        // Redirects have fields of rules, too, and those of rules for many paths have no end.
        for begin in redirects(old.rules)
            .iter()
            .filter(is_lasting)
            .filter_map(many)
        {
            all_below(&begin, &mut urls);
        }
    }
    let mut paths: BTreeSet<Vec<u8>> = BTreeSet::new();
    old.paths(&mut paths);
    new.paths(&mut paths);
    let has_slash_redirects = old.has_slash_redirects() || new.has_slash_redirects();
    for path in paths {
        let (a, b) = (old.answer(&path), new.answer(&path));
        let comes = a.is_stand_in() && b.is_immutable();
        if comes || a.is_immutable() && b.is_stand_in() {
            continue;
        }
        if a != b {
            urls.insert(exact(&path));
        }
        if has_slash_redirects && !path.ends_with(b"/") {
            let slashed = [&path[..], b"/"].concat();
            if old.answer(&slashed) != new.answer(&slashed) {
                urls.insert(exact(&slashed));
            }
        }
    }
    urls
}

/// One host of an archive.
struct Side<'a> {
    place: &'a ArchivePlace,
    rules: &'a Rules,
    host: u16,
    host_name: &'a str,
}

/// What a path is answered with, as far as a cache keeps it. Times do not count, nor do entity tags,
/// which follow from content.
#[derive(PartialEq)]
enum Answered<'a> {
    /// Its own content, and its other forms.
    Content {
        forms: Vec<Form<'a>>,
        changes: FieldChanges,
        is_immutable: bool,
    },
    Redirect {
        status: u16,
        location: Vec<u8>,
        changes: FieldChanges,
    },
    /// A path for users alone: no shared cache keeps it.
    Protected,
    /// An error, or with 200 this content of another path.
    StandIn(u16, Option<Form<'a>>),
}

/// The stored codings with their digests, and the fields.
type Form<'a> = (Vec<(Coding, &'a [u8])>, Vec<(String, String)>);

impl Answered<'_> {
    fn is_immutable(&self) -> bool {
        matches!(self, Self::Content { is_immutable, .. } if *is_immutable)
    }

    fn is_stand_in(&self) -> bool {
        matches!(self, Self::StandIn(..))
    }
}

impl<'a> Side<'a> {
    /// A host that an archive does not name gets its answers for all other hosts.
    fn of(site: &'a Site, place: &'a ArchivePlace, host_name: &'a str) -> Self {
        let host = host_number(place.file().archive(), host_name.as_bytes());
        Self {
            place,
            rules: site.rules(host),
            host,
            host_name,
        }
    }

    fn file(&self) -> &'a ArchiveFile {
        self.place.file()
    }

    fn has_slash_redirects(&self) -> bool {
        self.file().archive().options().slash_redirects
    }

    /// The paths that it has, and those that rules name, with and without a slash at the end.
    fn paths(&self, paths: &mut BTreeSet<Vec<u8>>) {
        let entries = self.file().archive().entries();
        let own = entries
            .filter(|it| it.key().host == self.host && it.key().namespace == Namespace::Content);
        paths.extend(own.map(|it| it.path().to_vec()));
        for rule in redirects(self.rules) {
            if let Some(path) = rule.pattern.static_path() {
                paths.extend(with_slash_and_without(path));
            }
        }
    }

    fn answer(&self, path: &[u8]) -> Answered<'a> {
        let asked = RequestUrl {
            host: self.host,
            host_name: self.host_name,
            scheme: Scheme::Https,
            path,
            query: None,
            is_navigation: false,
            language: "",
        };
        let changes = || {
            let changes = self
                .rules
                .headers()
                .map(|table| table.changes(&asked.rule_input(), &Steps::default()));
            changes.and_then(Result::ok).unwrap_or_default()
        };
        let table = self.rules.headers();
        if table.is_some_and(|it| it.users(path, &Steps::default()).next().is_some()) {
            return Answered::Protected;
        }
        match self.place.resolve(&asked, self.rules, &mut |_| {}) {
            Resolution::Entry {
                entry,
                status,
                is_own,
            } => match entry.kind() {
                EntryKind::Redirect { status, location } => Answered::Redirect {
                    status,
                    location: location.to_vec(),
                    changes: changes(),
                },
                EntryKind::Content if is_own => Answered::Content {
                    forms: self.forms(&entry, path),
                    changes: changes(),
                    is_immutable: entry.is_immutable(),
                },
                EntryKind::Content => {
                    Answered::StandIn(status.0, (status.0 == 200).then(|| form(&entry)))
                }
            },
            Resolution::Redirect(location) => Answered::Redirect {
                status: 301,
                location,
                changes: changes(),
            },
            Resolution::Elsewhere {
                status, location, ..
            } => Answered::Redirect {
                status: status.0,
                location,
                changes: changes(),
            },
            Resolution::Kept => Answered::StandIn(404, None),
            Resolution::Missing(status) => Answered::StandIn(status.0, None),
        }
    }

    /// Content of a path, and the files beside it from which `accept` may choose.
    fn forms(&self, entry: &Entry<'a>, path: &[u8]) -> Vec<Form<'a>> {
        let others = negotiation::paths_of(path, || entry.content_type().starts_with(b"text/html"));
        let others = others
            .iter()
            .filter_map(|(_, path)| self.place.content(self.host, path));
        [*entry]
            .into_iter()
            .chain(others)
            .map(|it| form(&it))
            .collect()
    }
}

fn form<'a>(entry: &Entry<'a>) -> Form<'a> {
    (stored(entry), fields(entry))
}

fn place_of(site: &Site) -> &ArchivePlace {
    match site.place() {
        Place::Archive(place) => place,
        Place::Directory(_) => unreachable!("it was opened as an archive"),
    }
}

fn redirects(rules: &Rules) -> &[Redirect] {
    rules
        .redirects()
        .map_or(&[], |table| &table.redirects().rules)
}

/// The URLs that only rules for many paths, or for some requests, redirected or redirect.
fn by_rules(old: &Rules, new: &Rules, urls: &mut BTreeSet<String>) {
    let text = |rules: &Rules| {
        let table = rules.redirects().map(|table| table.redirects());
        let texts = table.into_iter().flat_map(|table| {
            let rules = table.rules.iter();
            rules.map(|it| {
                (
                    table.compat.name(),
                    it.source_text(),
                    it.outcome_text(table.compat),
                )
            })
        });
        texts.collect::<Vec<_>>()
    };
    let (old_texts, new_texts) = (text(old), text(new));
    let (in_old, in_new): (BTreeSet<_>, BTreeSet<_>) =
        (old_texts.iter().collect(), new_texts.iter().collect());
    let is_in_order = {
        let left = old_texts.iter().filter(|it| in_new.contains(it));
        left.eq(new_texts.iter().filter(|it| in_old.contains(it)))
    };
    let differing = |rules, texts: Vec<_>, others: &BTreeSet<_>| {
        let pairs = redirects(rules).iter().zip(texts);
        let differing = pairs.filter(|(_, text)| !is_in_order || !others.contains(text));
        differing.map(|(rule, _)| rule).collect::<Vec<_>>()
    };
    let gone = differing(old, old_texts.clone(), &in_new);
    let come = differing(new, new_texts.clone(), &in_old);
    for rule in gone.iter().chain(&come) {
        conditional(rule, urls);
    }
    let begins =
        |rules: &[&Redirect]| -> Vec<Vec<u8>> { rules.iter().copied().filter_map(many).collect() };
    let gone: Vec<_> = gone.into_iter().filter(is_lasting).collect();
    let kept: Vec<_> = redirects(old).iter().filter(is_lasting).collect();
    for begin in begins(&gone) {
        all_below(&begin, urls);
    }
    // A new rule takes paths from those that redirected them.
    let kept = begins(&kept);
    for begin in begins(&come) {
        for other in &kept {
            match (begin.starts_with(other), other.starts_with(&begin)) {
                (true, _) => all_below(&begin, urls),
                (false, true) => all_below(other, urls),
                (false, false) => {}
            }
        }
    }
}

/// Whether what a rule answers may be kept.
fn is_lasting(rule: &&Redirect) -> bool {
    matches!(rule.status, 301 | 308)
}

/// With what all paths of a rule for many begin.
fn many(rule: &Redirect) -> Option<Vec<u8>> {
    let pattern = &rule.pattern;
    pattern.static_path().is_none().then(|| beginning(pattern))
}

/// What a rule that also looks at the host, the scheme, the query or the language may answer.
fn conditional(rule: &Redirect, urls: &mut BTreeSet<String>) {
    let pattern = &rule.pattern;
    let asks_more =
        pattern.host.is_some() || pattern.scheme.is_some() || !rule.languages.is_empty();
    match pattern.static_path() {
        Some(path) => {
            for path in with_slash_and_without(path) {
                if !rule.query.is_empty() {
                    urls.insert(format!("{}?*", exact(&path)));
                }
                if asks_more {
                    urls.insert(exact(&path));
                }
            }
        }
        None if asks_more || !rule.query.is_empty() => all_below(&beginning(pattern), urls),
        None => {}
    }
}

/// All URLs that begin so; a folder is also named without its slash.
fn all_below(begin: &[u8], urls: &mut BTreeSet<String>) {
    urls.insert(format!("{}*", exact(begin)));
    if let Some(folder) = begin.strip_suffix(b"/").filter(|it| !it.is_empty()) {
        urls.insert(exact(folder));
    }
}

/// With what all paths of a pattern begin.
fn beginning(pattern: &Pattern) -> Vec<u8> {
    let mut begin = Vec::new();
    for segment in &pattern.head {
        begin.push(b'/');
        match segment {
            Segment::Literal(literal) => begin.extend_from_slice(literal),
            Segment::Placeholder { prefix, .. } => {
                begin.extend_from_slice(prefix);
                return begin;
            }
        }
    }
    begin.push(b'/');
    if let Some(splat) = &pattern.splat {
        begin.extend_from_slice(&splat.prefix);
    }
    begin
}

fn with_slash_and_without(path: Vec<u8>) -> Vec<Vec<u8>> {
    match path.strip_suffix(b"/") {
        Some(bare) if !bare.is_empty() => vec![bare.to_vec(), path],
        Some(_) => vec![path],
        None => vec![[&path[..], b"/"].concat(), path],
    }
}

/// A path as in a URL; a star is encoded, since one at the end of a line stands for more.
fn exact(path: &[u8]) -> String {
    url(path).replace('*', "%2A")
}
