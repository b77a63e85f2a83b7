//! Decides how long each file may be cached, by the available evidence: conventions of bundlers,
//! digests in names, and contradictions in earlier archives.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, Read};

use gannet_archive::{Archive, Coding, EntryKind, Key, SectionKind};
use gannet_content::policy::cache::{Lifetime, Lifetimes, Reason, is_page};
use gannet_content::policy::content_digest::{Algorithm, ContentDigests};
use gannet_content::policy::hashed_name::{Groups, HashedForm, digest_tokens};
use gannet_content::policy::references::Mentions;

use super::host::SourceHost;
use super::limits::{
    COPY_CHUNK, DIGEST_FAILURES_MAX, DIGEST_FOLDER_FAILURES_MAX, MENTIONS_READ_MAX, STREAMED_FROM,
};
use super::memory;
use super::sources::{Source, Sources};
use super::{PackError, PackOptions};
use crate::archive::ArchiveFile;

/// Files that may be cached for a year by one kind of evidence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeptPattern {
    /// The folder and the form of the names.
    pub pattern: String,
    /// The evidence that names change with contents.
    pub evidence: String,
    /// The number of files.
    pub count: u64,
}

/// Assigns each file its lifetime; returns the findings to record in the archive.
///
/// # Errors
/// The previous release cannot be opened, or a file cannot be read.
pub(super) fn apply(sources: &mut Sources, options: &PackOptions) -> Result<Lifetimes, PackError> {
    let mut finder = Finder {
        sources,
        reasons: Vec::with_capacity(sources.files.len()),
        earlier: Earlier::default(),
        read_max: MENTIONS_READ_MAX,
    };
    let mut candidates = Vec::new();
    for host in &sources.hosts {
        candidates.push(finder.by_names(host));
    }
    let has_more = |it: &Source| !digest_tokens(path_of(it)).is_empty();
    let is_immutable = |reason: &Reason| reason.lifetime() == Lifetime::Immutable;
    let needs_earlier = candidates.iter().any(|of_host| !of_host.is_empty())
        || finder.reasons.iter().any(is_immutable)
        || sources.files.iter().any(has_more);
    if needs_earlier {
        finder.earlier = Earlier::open(options)?;
    }
    for (host, candidates) in sources.hosts.iter().zip(&candidates) {
        finder.by_mentions(host, candidates)?;
    }
    finder.by_digests()?;
    let changed = finder.without_changed();
    let reasons = finder.reasons;
    let kept_from = |reason: &Reason| {
        matches!(
            reason,
            Reason::Digest(_) | Reason::Referenced(_) | Reason::Changed
        )
    };
    let numbered = reasons.iter().enumerate();
    let found = numbered.filter(|(_, reason)| kept_from(reason));
    let found = found.map(|(number, reason)| (sources.shown(&sources.files[number]), *reason));
    let lifetimes = Lifetimes {
        reasons: found.collect(),
        changed,
    };
    for (source, reason) in sources.files.iter_mut().zip(reasons) {
        source.reason = reason;
    }
    Ok(lifetimes)
}

/// Patterns of files that may be cached for a year, most files first.
pub(super) fn patterns(sources: &Sources) -> Vec<KeptPattern> {
    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    for source in &sources.files {
        if let Some(pattern) = source.reason.pattern(&sources.shown(source)) {
            *counts
                .entry((pattern, source.reason.to_string()))
                .or_default() += 1;
        }
    }
    let kept = counts.into_iter();
    let kept = kept.map(|((pattern, evidence), count)| KeptPattern {
        pattern,
        evidence,
        count,
    });
    let mut kept: Vec<_> = kept.collect();
    kept.sort_by_key(|it| std::cmp::Reverse(it.count));
    kept
}

/// The path of a file relative to the root; empty if no bundler could have written it.
fn path_of(source: &Source) -> &str {
    let path = source.file.url.strip_prefix(b"/").unwrap_or_default();
    str::from_utf8(path).unwrap_or_default()
}

struct Finder<'s> {
    sources: &'s Sources,
    /// Indexed by file, as far as known.
    reasons: Vec<Reason>,
    earlier: Earlier,
    /// Remaining bytes of text that may be read to find names.
    read_max: u64,
}

impl Finder<'_> {
    /// Classifies the files of a host by name. Returns candidates that count as hashed if the site
    /// refers to them.
    fn by_names(&mut self, host: &SourceHost) -> Vec<(usize, HashedForm)> {
        let files = self.sources.of_host(host.number);
        let groups = Groups::of(files.iter().map(path_of));
        let mut candidates = Vec::new();
        for source in files {
            let path = path_of(source);
            let reason = Reason::of_name(path, &source.content_type);
            if reason == Reason::Plain
                && let Some(form) = groups.hashed(path)
            {
                candidates.push((self.reasons.len(), form));
            }
            self.reasons.push(reason);
        }
        candidates
    }

    /// The candidates that a page, script or style sheet of the host refers to.
    fn by_mentions(
        &mut self,
        host: &SourceHost,
        candidates: &[(usize, HashedForm)],
    ) -> Result<(), PackError> {
        let mut mentions = Mentions::default();
        for (number, form) in candidates {
            let known = self.earlier.reason_of(self.sources, *number);
            if known == Some(Reason::Referenced(*form)) {
                self.reasons[*number] = Reason::Referenced(*form);
                continue;
            }
            for name in names_of(self.sources, *number, *form) {
                mentions.want(name);
            }
        }
        if mentions.is_done() {
            return Ok(());
        }
        let files = self.sources.of_host(host.number);
        let mut texts: Vec<&Source> = files.iter().filter(|it| is_text(it)).collect();
        // Pages at the top refer to most files.
        texts.sort_by_key(|it| (rank(it), depth(it)));
        let mut seen = HashSet::new();
        for source in texts {
            if mentions.is_done() || self.read_max < source.file.len {
                break;
            }
            if seen.insert(source.content) {
                self.read_max -= source.file.len;
                let mut open = Vec::new();
                read(source, |bytes| mentions.read(bytes, &mut open))?;
                mentions.end(&mut open);
            }
        }
        for (number, form) in candidates {
            let mut names = names_of(self.sources, *number, *form).into_iter();
            if names.any(|name| mentions.has(name)) {
                self.reasons[*number] = Reason::Referenced(*form);
            }
        }
        Ok(())
    }

    /// Finds names that contain a digest of the content.
    fn by_digests(&mut self) -> Result<(), PackError> {
        let mut failures: HashMap<(u16, &str), usize> = HashMap::new();
        let mut failed = 0;
        for (number, source) in self.sources.files.iter().enumerate() {
            let path = path_of(source);
            let is_tried = self.reasons[number] == Reason::Plain
                && failed < DIGEST_FAILURES_MAX
                && source.file.len < STREAMED_FROM
                && !digest_tokens(path).is_empty();
            if !is_tried {
                continue;
            }
            if let Some(known @ Reason::Digest(_)) = self.earlier.reason_of(self.sources, number) {
                self.reasons[number] = known;
                continue;
            }
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            let in_folder = failures.entry((source.file.host, folder)).or_default();
            if *in_folder >= DIGEST_FOLDER_FAILURES_MAX {
                continue;
            }
            match digest_of(source, path)? {
                Some(algorithm) => self.reasons[number] = Reason::Digest(algorithm),
                None => {
                    *in_folder += 1;
                    failed += 1;
                }
            }
        }
        Ok(())
    }

    /// Revokes what an earlier archive disproves: a name whose content changed is not a hash, and
    /// its form is no evidence for its neighbours either. Returns the patterns.
    fn without_changed(&mut self) -> HashSet<String> {
        let is_convention =
            |reason: Reason| matches!(reason, Reason::Folder(_) | Reason::Referenced(_));
        let mut changed = self.earlier.changed();
        for number in 0..self.reasons.len() {
            let reason = self.reasons[number];
            if is_convention(reason) && self.earlier.has_changed(self.sources, number) {
                let shown = self.sources.shown(&self.sources.files[number]);
                changed.extend(reason.pattern(&shown));
                self.reasons[number] = Reason::Changed;
            }
        }
        if changed.is_empty() {
            return changed;
        }
        for (number, reason) in self.reasons.iter_mut().enumerate() {
            let shown = self.sources.shown(&self.sources.files[number]);
            let pattern = reason.pattern(&shown).filter(|_| is_convention(*reason));
            if pattern.is_some_and(|pattern| changed.contains(&pattern)) {
                *reason = Reason::ChangedBeside;
            }
        }
        changed
    }
}

/// The strings by which text may refer to a file: its name, and its hash if that is long enough,
/// since webpack composes names of chunks at run time, and VitePress those of pages.
fn names_of(sources: &Sources, number: usize, form: HashedForm) -> Vec<&str> {
    let path = path_of(&sources.files[number]);
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut names = vec![name];
    match form {
        HashedForm::Hex => {
            let mut tokens = name.split(['.', '-']);
            let is_hex = |token: &&str| {
                token.len() >= 8 && token.bytes().all(|byte| byte.is_ascii_hexdigit())
            };
            names.extend(tokens.rfind(is_hex));
        }
        HashedForm::Base64 => {
            let behind = name.split_once(".md.").map(|(_, behind)| behind);
            let hash = behind.and_then(|behind| behind.split('.').next());
            names.extend(hash.filter(|hash| hash.len() == 8));
        }
        HashedForm::Base32 => {}
    }
    names
}

/// Whether a file may refer to others.
fn is_text(source: &Source) -> bool {
    rank(source) < 3
}

fn rank(source: &Source) -> u8 {
    match &*source.content_type {
        it if is_page(it) => 0,
        it if it.starts_with("text/javascript") || it.starts_with("text/css") => 1,
        it if it.starts_with("application/json") || it.contains("manifest+json") => 2,
        _ => 3,
    }
}

fn depth(source: &Source) -> usize {
    source.file.url.iter().filter(|byte| **byte == b'/').count()
}

fn digest_of(source: &Source, path: &str) -> Result<Option<Algorithm>, PackError> {
    let mut digests = ContentDigests::default();
    read(source, |bytes| digests.update(bytes))?;
    Ok(digests.in_name_of(path))
}

/// Reads a file in chunks.
fn read(source: &Source, mut take: impl FnMut(&[u8])) -> Result<(), PackError> {
    let path = &source.file.path;
    let mut file = source.file.content()?;
    let len = usize::try_from(source.file.len).unwrap_or(COPY_CHUNK);
    let mut chunk = vec![0; len.clamp(1, COPY_CHUNK)];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => take(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(PackError::io("read", path)(error)),
        }
    }
}

/// The archives to compare the new one with.
#[derive(Default)]
struct Earlier {
    archives: Vec<(ArchiveFile, Lifetimes)>,
}

impl Earlier {
    /// Opens the archive to be replaced (or, if it is missing, the newest cached one) unless
    /// earlier builds are to be ignored, and the one named by the options.
    fn open(options: &PackOptions) -> Result<Self, PackError> {
        let mut archives = Vec::new();
        let paths = memory::archives(options);
        // A missing file, or one that is not an archive, is ignored.
        let mut paths = paths.iter().filter(|path| !options.previous.contains(path));
        archives.extend(paths.find_map(|path| ArchiveFile::open(path).ok()));
        archives.extend(open_previous(options)?);
        let archives = archives.into_iter().map(|file| {
            let text = file.archive().section(SectionKind::Lifetimes);
            let text = str::from_utf8(text.unwrap_or_default()).unwrap_or_default();
            let lifetimes = Lifetimes::parse(text);
            (file, lifetimes)
        });
        Ok(Self {
            archives: archives.collect(),
        })
    }

    /// The recorded finding for a file whose content has not changed.
    fn reason_of(&self, sources: &Sources, number: usize) -> Option<Reason> {
        let source = &sources.files[number];
        let digest = &sources.contents[source.content].digest;
        self.archives.iter().find_map(|(file, lifetimes)| {
            let reason = lifetimes.get(&sources.shown(source))?;
            let before = digest_in(file.archive(), sources, source)?;
            (before == digest).then_some(reason)
        })
    }

    /// Whether the content of a name has changed, now or earlier.
    fn has_changed(&self, sources: &Sources, number: usize) -> bool {
        let source = &sources.files[number];
        let digest = &sources.contents[source.content].digest;
        self.archives.iter().any(|(file, lifetimes)| {
            let before = digest_in(file.archive(), sources, source);
            before.is_some_and(|before| before != digest)
                || lifetimes.get(&sources.shown(source)) == Some(Reason::Changed)
        })
    }

    /// The patterns disproved earlier.
    fn changed(&self) -> HashSet<String> {
        let all = self.archives.iter();
        all.flat_map(|(_, lifetimes)| lifetimes.changed.clone())
            .collect()
    }
}

/// The archives of previous releases that were named.
///
/// # Errors
/// A file is not an archive.
pub(super) fn open_previous(options: &PackOptions) -> Result<Vec<ArchiveFile>, PackError> {
    let previous = options.previous.iter().map(|path| ArchiveFile::open(path));
    let previous: Result<_, _> = previous.collect();
    previous.map_err(PackError::Previous)
}

/// The digest of an archive's content at the path of a file.
fn digest_in<'a>(
    archive: &'a Archive<Vec<u8>>,
    sources: &Sources,
    source: &Source,
) -> Option<&'a [u8]> {
    let name = usize::from(source.file.host).checked_sub(1);
    let host = match name.and_then(|number| sources.host_names.get(number)) {
        Some(name) => archive.host_number(name.as_bytes())?,
        None => 0,
    };
    let entry = archive.lookup(Key::content(&source.file.url).on(host))?;
    let is_content = entry.kind() == EntryKind::Content;
    let variant = entry
        .select(Coding::Identity.into())
        .filter(|_| is_content)?;
    Some(variant.digest())
}
