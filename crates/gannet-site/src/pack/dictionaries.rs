//! Codes new versions of files with their earlier versions as dictionaries (RFC 9842).
//!
//! Only immutable files have versions: names that differ in their hash alone. Every answer of one
//! says for which paths it is a dictionary, also in a first release, or no client would have any
//! when the second comes. A new version is coded with those that earlier releases have; each result
//! is decoded and compared before it is stored.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io::Read;

use gannet_archive::limits::DICTIONARY_LEN_MAX;
use gannet_archive::{
    Archive, Coding, DictionaryId, Entry, EntryKind, Key, digest, says_immutable,
};
use gannet_content::policy::cache::Lifetime;
use gannet_content::policy::dictionary::{self, USE_AS_DICTIONARY};
use gannet_content::rules::headers::FieldChanges;

use super::dictionary_coding::{decode, encode};
use super::host::SourceHost;
use super::limits::{
    ALIKE_MAX, DICTIONARIES_MAX, DICTIONARY_LEN_MIN, DICTIONARY_PERCENT_MAX, IN_FLIGHT_MAX,
};
use super::parallel::{Work, in_order};
use super::progress::{Phase, Progress};
use super::sources::{Source, SourceContent, Sources};
use super::store::{ContentTarget, StoredContent, StoredVariant, read_whole, sha256};
use super::{PackError, PackOptions};
use crate::archive::ArchiveFile;

/// The path of a file's versions, if it may be a dictionary of later ones. `changes` are those by
/// the site's rules.
fn versions(source: &Source, changes: Option<&FieldChanges>) -> Option<Vec<u8>> {
    let is_fit = is_fit(source) && is_immutable(source, changes);
    // Clients must know what the content is coded with, and caches what it depends on.
    let is_kept = changes.is_none_or(|changes| {
        let removed = changes.remove.iter().any(|name| name == "vary");
        !removed && !changes.touch("content-encoding") && !changes.touch(USE_AS_DICTIONARY)
    });
    match is_fit && is_kept {
        true => dictionary::versions(&source.file.url),
        false => None,
    }
}

/// Whether it is worth coding with a dictionary, or being one.
fn is_fit(source: &Source) -> bool {
    let len = source.file.len;
    source.is_compressible && (DICTIONARY_LEN_MIN..=DICTIONARY_LEN_MAX).contains(&len)
}

/// The paths of versions of a host's files that are dictionaries: only those of which the host has
/// few enough files.
#[derive(Debug, Default)]
pub(super) struct Offered(HashSet<Vec<u8>>);

impl Offered {
    pub(super) fn of_host(host: &SourceHost, sources: &Sources) -> Self {
        let mut counts: HashMap<Vec<u8>, usize> = HashMap::new();
        let files = sources.of_host(host.number).iter();
        for source in files.filter(|source| is_fit(source)) {
            let changes = host.rules.changes(&source.file.url);
            if let Some(versions) = versions(source, changes.as_ref()) {
                *counts.entry(versions).or_default() += 1;
            }
        }
        counts.retain(|_, count| *count <= ALIKE_MAX);
        Self(counts.into_keys().collect())
    }

    /// The path of a file's versions, if it is a dictionary of later ones. `changes` are those by
    /// the site's rules.
    pub(super) fn versions(
        &self,
        source: &Source,
        changes: Option<&FieldChanges>,
    ) -> Option<Vec<u8>> {
        versions(source, changes).filter(|versions| self.0.contains(versions))
    }
}

fn is_immutable(source: &Source, changes: Option<&FieldChanges>) -> bool {
    match changes.filter(|changes| changes.touch("cache-control")) {
        Some(changes) => {
            let mut set = changes.set.iter();
            set.any(|(name, value)| name == "cache-control" && says_immutable(value))
        }
        None => source.reason.lifetime() == Lifetime::Immutable,
    }
}

/// A file in its codings with dictionaries.
type DictionaryForms = Vec<(StoredVariant, DictionaryId)>;

/// Files coded with dictionaries.
#[derive(Debug, Default)]
pub(super) struct Dictionaries {
    /// By host and path.
    by_path: HashMap<(u16, Vec<u8>), DictionaryForms>,
    file_count: u64,
}

impl Dictionaries {
    /// The results for a file.
    pub(super) fn take(&mut self, host: u16, path: &[u8]) -> DictionaryForms {
        let found = self.by_path.remove(&(host, path.to_vec()));
        found.unwrap_or_default()
    }

    /// The number of files coded with dictionaries.
    pub(super) fn file_count(&self) -> u64 {
        self.file_count
    }
}

/// Earlier releases.
pub(super) struct Releases {
    /// The archives, each with its number of each of the new site's hosts, if it has that host.
    pub(super) all: Vec<(ArchiveFile, Vec<Option<u16>>)>,
}

impl Releases {
    pub(super) fn new(files: Vec<ArchiveFile>, sources: &Sources) -> Self {
        let numbers = |file: &ArchiveFile| {
            let archive = file.archive();
            let named = sources.host_names.iter();
            let named = named.map(|name| archive.host_number(name.as_bytes()));
            std::iter::once(Some(0)).chain(named).collect()
        };
        let files = files.into_iter();
        let all = files.map(|file| {
            let hosts = numbers(&file);
            (file, hosts)
        });
        Self { all: all.collect() }
    }

    /// The immutable files of a host of the new site in each release.
    pub(super) fn immutable(&self, host: u16) -> impl Iterator<Item = (&ArchiveFile, Entry<'_>)> {
        (0..self.all.len()).flat_map(move |release| self.immutable_of(host, release))
    }

    /// Those in one release.
    fn immutable_of(
        &self,
        host: u16,
        release: usize,
    ) -> impl Iterator<Item = (&ArchiveFile, Entry<'_>)> {
        let (file, hosts) = &self.all[release];
        let number = hosts.get(usize::from(host)).copied().flatten();
        let is_it = move |entry: &Entry<'_>| {
            Some(entry.key().host) == number
                && entry.kind() == EntryKind::Content
                && entry.is_immutable()
        };
        let entries = file.archive().entries().filter(is_it);
        entries.map(move |entry| (file, entry))
    }

    /// The releases that have this content at this path of a host of the new site, as an immutable
    /// file.
    fn with<'r>(
        &'r self,
        host: u16,
        path: &[u8],
        digest: &[u8; 32],
    ) -> Vec<(&'r ArchiveFile, Entry<'r>)> {
        let find = |release: &'r (ArchiveFile, Vec<Option<u16>>)| {
            let (file, hosts) = release;
            let number = hosts.get(usize::from(host)).copied().flatten()?;
            let entry = file.archive().lookup(Key::content(path).on(number))?;
            let identity = entry.select(Coding::Identity.into())?;
            Some((file, entry)).filter(|_| entry.is_immutable() && identity.digest() == digest)
        };
        self.all.iter().filter_map(find).collect()
    }

    /// Files that clients may have as dictionaries, by the host and path of their versions, in the
    /// order of the releases.
    fn dictionaries(
        &self,
        hosts: impl Iterator<Item = u16>,
    ) -> HashMap<(u16, Vec<u8>), Vec<OldFile<'_>>> {
        let mut found: HashMap<_, Vec<OldFile<'_>>> = HashMap::new();
        for host in hosts {
            for release in 0..self.all.len() {
                for (versions, mut olds) in self.dictionaries_of(host, release) {
                    // The newest first: its own files before those that it carries on.
                    olds.sort_by_key(|old| (old.age(), old.number));
                    let own_count = olds.partition_point(|old| old.since.is_none());
                    if own_count <= ALIKE_MAX {
                        olds.truncate(own_count + DICTIONARIES_MAX);
                        found.entry((host, versions)).or_default().extend(olds);
                    }
                }
            }
        }
        found
    }

    /// Those of one release, by the path of their versions.
    fn dictionaries_of(&self, host: u16, release: usize) -> HashMap<Vec<u8>, Vec<OldFile<'_>>> {
        let mut found: HashMap<_, Vec<OldFile<'_>>> = HashMap::new();
        for (file, entry) in self.immutable_of(host, release) {
            let identity = entry.select(Coding::Identity.into());
            let identity = identity.filter(|it| it.blob_len() <= DICTIONARY_LEN_MAX);
            if let Some(identity) = identity
                && was_offered(&entry)
                && let Some(versions) = dictionary::versions(entry.path())
            {
                found.entry(versions).or_default().push(OldFile {
                    file,
                    release,
                    number: entry.number(),
                    len: identity.blob_len(),
                    since: entry.carried_since(),
                });
            }
        }
        found
    }
}

/// Whether it was offered to clients as a dictionary; otherwise none of them has it.
fn was_offered(entry: &Entry<'_>) -> bool {
    let block = entry.variants().next().map(|variant| variant.h1());
    block.is_some_and(|block| block.get(USE_AS_DICTIONARY).is_some())
}

/// A file of an earlier release.
#[derive(Clone, Copy)]
struct OldFile<'r> {
    file: &'r ArchiveFile,
    /// The place of the release, in the order given.
    release: usize,
    /// The number of its entry.
    number: u32,
    len: u64,
    /// When it was last part of a site, if the release carries it on.
    since: Option<i64>,
}

impl OldFile<'_> {
    /// For an order by age: the release's own files, then what it carries on, the newest first.
    fn age(&self) -> (bool, Reverse<Option<i64>>) {
        (self.since.is_some(), Reverse(self.since))
    }

    fn archive(&self) -> &Archive<Vec<u8>> {
        self.file.archive()
    }

    /// Its path and content; `None` if the archive is damaged there, which costs a dictionary.
    fn read(&self) -> Option<(&[u8], Vec<u8>)> {
        let entry = self.archive().entry(self.number)?;
        let identity = entry.select(Coding::Identity.into())?;
        let mut content = Vec::new();
        let mut reader = self.file.stored(&identity).ok()?;
        reader.read_to_end(&mut content).ok()?;
        (digest(&content) == identity.digest()).then(|| (entry.path(), content))
    }

    /// The digest of its content.
    fn digest(&self) -> Option<&[u8]> {
        let entry = self.archive().entry(self.number)?;
        Some(entry.select(Coding::Identity.into())?.digest())
    }
}

/// A file and its earlier versions.
struct Job<'j> {
    /// The same file in an earlier release, which has it coded with dictionaries already.
    kept: Option<(&'j ArchiveFile, Entry<'j>)>,
    source: &'j Source,
    content: &'j SourceContent,
    /// The length of its smallest coding without a dictionary.
    best_len: u64,
    olds: Vec<OldFile<'j>>,
}

/// A file coded with a dictionary.
struct Delta {
    coding: Coding,
    bytes: Vec<u8>,
    sha256: [u8; 32],
    path: Vec<u8>,
    len: u64,
}

/// Codes the files that have earlier versions, and writes the results.
pub(super) fn store(
    (sources, contents): (&Sources, &[StoredContent]),
    options: &PackOptions,
    releases: &Releases,
    target: &mut ContentTarget<'_>,
    progress: &mut dyn Progress,
) -> Result<Dictionaries, PackError> {
    let jobs = jobs(sources, contents, releases);
    let mut dictionaries = Dictionaries::default();
    if jobs.is_empty() {
        return Ok(dictionaries);
    }
    let total = jobs.iter().map(|job| job.content.len).sum();
    progress.begin(Phase::Compressing, total);
    let work = Work {
        items: &jobs,
        threads: options.threads,
        cost_max: IN_FLIGHT_MAX,
    };
    // Encoders need about eight times the input and the dictionary.
    let cost = |job: &Job<'_>| {
        let longest = job.olds.iter().map(|old| old.len).max();
        8 * (job.content.len + longest.unwrap_or(0))
    };
    let run = |job: &Job<'_>| code(job, options);
    let take = |job: &Job<'_>, made: Result<Vec<Delta>, PackError>| {
        let mut stored = Vec::new();
        for made in made? {
            let variant = target.place_bytes(made.coding, &made.bytes, digest(&made.bytes))?;
            let variant = StoredVariant {
                sha256: options.repr_digest.then(|| Box::new(sha256(&made.bytes))),
                ..variant
            };
            stored.push((
                variant,
                target.add_dictionary(&made.sha256, &made.path, made.len),
            ));
        }
        if !stored.is_empty() {
            let file = &job.source.file;
            let key = (file.host, file.url.clone());
            dictionaries.by_path.insert(key, stored);
            dictionaries.file_count += 1;
        }
        progress.advance(job.content.len);
        Ok::<(), PackError>(())
    };
    in_order(&work, cost, run, take, || {})?;
    progress.end();
    Ok(dictionaries)
}

/// The files that have earlier versions, in their order.
fn jobs<'j>(
    sources: &'j Sources,
    contents: &[StoredContent],
    releases: &'j Releases,
) -> Vec<Job<'j>> {
    let mut jobs = Vec::new();
    if releases.all.is_empty() {
        return jobs;
    }
    let hosts = || {
        sources
            .hosts
            .iter()
            .filter(|host| !host.rules.has_host_fields())
    };
    let olds = releases.dictionaries(hosts().map(|host| host.number));
    for host in hosts() {
        let offered = Offered::of_host(host, sources);
        for source in sources.of_host(host.number) {
            let changes = host.rules.changes(&source.file.url);
            let Some(versions) = offered.versions(source, changes.as_ref()) else {
                continue;
            };
            let content = &sources.contents[source.content];
            let has_it = releases.with(host.number, &source.file.url, &content.digest);
            let coded = |(_, entry): &&(_, Entry<'_>)| entry.has_dictionary_variants();
            let kept = has_it.iter().find(coded).copied();
            let mut found: Vec<OldFile<'_>> = Vec::new();
            for old in olds.get(&(host.number, versions)).into_iter().flatten() {
                // Clients of a release that has this very file need no dictionary for it.
                let is_needless = has_it.iter().any(|(file, _)| std::ptr::eq(*file, old.file));
                let is_known = |known: &OldFile<'_>| known.digest() == old.digest();
                let is_same = old.digest() == Some(content.digest.as_slice());
                if !is_needless && !is_same && !found.iter().any(is_known) {
                    found.push(*old);
                }
            }
            // Most clients have the newest. Several files of a release may have names that differ
            // in the hash alone: the most similar length is the best guess.
            found.sort_by_key(|old| {
                let difference = old.len.abs_diff(content.len);
                (old.release, old.age(), difference, old.number)
            });
            found.truncate(DICTIONARIES_MAX);
            if !found.is_empty() || kept.is_some() {
                let stored = contents[source.content].variants_as(source.is_compressible);
                let best_len = stored.iter().map(|variant| variant.len).min();
                jobs.push(Job {
                    kept,
                    source,
                    content,
                    best_len: best_len.unwrap_or(content.len),
                    olds: found,
                });
            }
        }
    }
    jobs
}

/// The codings that an earlier release has of the same file, with dictionaries that it may not have:
/// they were decoded when they were made, and match their digests.
fn kept(job: &Job<'_>, options: &PackOptions) -> Vec<Delta> {
    let Some((file, entry)) = job.kept else {
        return Vec::new();
    };
    let is_wanted = |coding: Coding| {
        let encoders = options.encoders.iter().map(|encoder| encoder.coding());
        encoders.into_iter().any(|it| match coding {
            Coding::DictionaryBrotli => it == Coding::Brotli,
            _ => it == Coding::Zstd,
        })
    };
    let made = entry.dictionary_variants().filter_map(|variant| {
        let (coding, dictionary) = (variant.coding(), variant.dictionary()?);
        let mut bytes = Vec::new();
        let mut reader = file.stored(&variant).ok()?;
        reader.read_to_end(&mut bytes).ok()?;
        let is_sound = digest(&bytes) == variant.digest();
        (is_sound && is_wanted(coding)).then(|| Delta {
            coding,
            bytes,
            sha256: dictionary.sha256.try_into().unwrap_or_default(),
            path: dictionary.path.to_vec(),
            len: dictionary.len,
        })
    });
    made.collect()
}

/// Codes a file with each of its dictionaries; returns the worthwhile results. Runs on any thread.
fn code(job: &Job<'_>, options: &PackOptions) -> Result<Vec<Delta>, PackError> {
    let file = &job.source.file;
    let mut all = kept(job, options);
    let room = DICTIONARIES_MAX.saturating_sub(all.len());
    if room == 0 || job.olds.is_empty() {
        all.truncate(DICTIONARIES_MAX);
        return Ok(all);
    }
    let body = read_whole(file, job.content)?;
    for old in job.olds.iter().take(room) {
        let Some((path, dictionary)) = old.read() else {
            continue;
        };
        let sha256 = sha256(&dictionary);
        if all.iter().any(|made: &Delta| made.sha256 == sha256) {
            continue;
        }
        let mut best: Option<(Coding, Vec<u8>)> = None;
        for encoder in &options.encoders {
            let coded = encode(*encoder, &body, &dictionary, &sha256);
            let coded = coded.map_err(PackError::io("compress", &file.path))?;
            let Some((coding, bytes)) = coded else {
                continue;
            };
            let len = bytes.len() as u64;
            let is_smaller = best.as_ref().is_none_or(|best| bytes.len() < best.1.len());
            let pays = len * 100 <= job.best_len * DICTIONARY_PERCENT_MAX;
            if is_smaller && pays {
                let decoded = decode(coding, &bytes, (&dictionary, &sha256), job.content.len);
                // Never wrong bytes, whatever an encoder makes.
                if decoded.is_ok_and(|decoded| decoded == body) {
                    best = Some((coding, bytes));
                }
            }
        }
        all.extend(best.map(|(coding, bytes)| Delta {
            coding,
            bytes,
            sha256,
            path: path.to_vec(),
            len: dictionary.len() as u64,
        }));
    }
    Ok(all)
}
