//! What each path of the site answers: files, their other names, redirects, listings.
//!
//! The same questions that a live directory answers at each request are answered here once
//! (`gannet_content::directory::lookup`), with the same results.

mod folders;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use gannet_archive::{Content, Key, Namespace, VariantsId, Writer};
use gannet_content::policy::cache::Lifetime;
use gannet_content::policy::csp::{self, Policy};
use gannet_content::policy::page;
use gannet_content::routing::{FallbackKind, TrailingSlash};
use gannet_content::rules::headers::FieldChanges;
use gannet_content::validators::last_modified;
use gannet_http::semantics::target_path::encode_path;

use super::double_claims::DoubleClaims;
use super::fields::{CommonFields, Representation, add_variants};
use super::host::SourceHost;
use super::limits::POLICY_PAGE_MAX;
use super::names::Names;
use super::output::Output;
use super::rules::RuleContents;
use super::sources::{Source, SourceContent, Sources};
use super::store::{StoredContent, read_whole};
use super::{PackError, PackOptions};

/// Makes the entries.
pub(super) struct Site<'o> {
    options: &'o PackOptions,
    /// The host whose entries are added.
    host: &'o SourceHost,
    now: i64,
    /// The variants of files that have a content for themselves, under all their names.
    of_files: Vec<Option<VariantsId>>,
    /// Equal representations have one set of variants.
    representations: HashMap<RepresentationKey, VariantsId>,
    common_fields: CommonFields,
    /// The policies of pages, by content.
    policies: HashMap<usize, Option<Policy>>,
    /// Paths that have content, and the number of the file that they have it from; none for a
    /// listing.
    names: Names,
    pub(super) alias_count: u64,
    pub(super) redirect_count: u64,
    pub(super) listing_count: u64,
    /// Pages with something that their policy would break.
    pub(super) broken_pages: Vec<String>,
    /// Paths that several files could answer.
    pub(super) double_claims: DoubleClaims,
}

/// Content, type and modification time, and what changes in the fields.
type RepresentationKey = (usize, Arc<str>, Option<i64>, Lifetime, Option<ChangesKey>);
type ChangesKey = (Vec<(String, Vec<u8>)>, Vec<String>);

/// What entries are made of, and where they go.
struct Adding<'s> {
    files: &'s [Source],
    contents: &'s [StoredContent],
    /// The same, as they were read.
    read: &'s [SourceContent],
    writer: &'s mut Writer,
}

impl<'o> Site<'o> {
    /// Without entries. `now` is in Unix seconds: dates after it are not sent.
    pub(super) fn new(options: &'o PackOptions, first: &'o SourceHost, now: i64) -> Self {
        Self {
            options,
            host: first,
            now,
            of_files: Vec::new(),
            representations: HashMap::new(),
            common_fields: CommonFields::default(),
            policies: HashMap::new(),
            names: Names::default(),
            alias_count: 0,
            redirect_count: 0,
            listing_count: 0,
            broken_pages: Vec::new(),
            double_claims: DoubleClaims::default(),
        }
    }

    /// Goes on to a host. What it has in common with those before is not made again.
    pub(super) fn begin(&mut self, host: &'o SourceHost) {
        self.host = host;
        self.names = Names::default();
        // Files are numbered anew.
        self.of_files.clear();
    }

    /// Whether a path of the host has content.
    pub(super) fn has_content(&self, path: &[u8]) -> bool {
        self.names.contains(path)
    }

    /// Adds every entry of the host.
    pub(super) fn add_files(
        &mut self,
        sources: &Sources,
        contents: &[StoredContent],
        writer: &mut Writer,
        output: &mut Output,
    ) -> Result<(), PackError> {
        let files = sources.of_host(self.host.number);
        let mut to = Adding {
            files,
            contents,
            read: &sources.contents,
            writer,
        };
        for (number, source) in files.iter().enumerate() {
            // Every file has a path of its own.
            self.add_free(&mut to, &source.file.url, number, false)?;
        }
        self.add_pages(&mut to)?;
        self.add_indexes(&mut to)?;
        self.add_fallbacks(&mut to)?;
        self.add_folders(files, writer, output)?;
        let mut to = Adding {
            files,
            contents,
            read: &sources.contents,
            writer,
        };
        self.add_unruled(&mut to)
    }

    /// The key of a path of the host.
    fn key<'k>(&self, path: &'k [u8]) -> Key<'k> {
        Key::content(path).on(self.host.number)
    }

    /// Adds an entry of a file under a path, unless the path is taken.
    fn add(
        &mut self,
        to: &mut Adding<'_>,
        url: &[u8],
        number: usize,
        is_alias: bool,
    ) -> Result<(), PackError> {
        if self.names.contains(url) {
            return Ok(());
        }
        self.add_free(to, url, number, is_alias)
    }

    /// Adds an entry of a file under a path that is not taken.
    fn add_free(
        &mut self,
        to: &mut Adding<'_>,
        url: &[u8],
        number: usize,
        is_alias: bool,
    ) -> Result<(), PackError> {
        let content = self.content(to, number, Some(url))?;
        let content = Content {
            is_alias,
            ..content
        };
        to.writer.add_content(self.key(url), &content);
        self.names.insert(url, Some(number));
        self.alias_count += u64::from(is_alias);
        Ok(())
    }

    /// Pages answer without their suffix.
    fn add_pages(&mut self, to: &mut Adding<'_>) -> Result<(), PackError> {
        let suffixes = &self.options.routing.page_suffixes;
        let is_page = |url: &[u8]| suffixes.iter().any(|suffix| url.ends_with(suffix));
        if !self.options.clean_urls {
            return Ok(());
        }
        for (position, suffix) in suffixes.iter().enumerate() {
            for number in 0..to.files.len() {
                let url = &to.files[number].file.url;
                let Some(clean) = url.strip_suffix(suffix.as_slice()) else {
                    continue;
                };
                if clean.ends_with(b"/") || is_page(clean) {
                    continue;
                }
                if let Some(taken) = self.names.get(clean) {
                    self.double_claims.add(to.files, clean, taken, number);
                    continue;
                }
                if self.options.routing.trailing_slash != TrailingSlash::Always {
                    self.add_free(to, clean, number, true)?;
                    continue;
                }
                let folder = [clean, b"/"].concat();
                let mut earlier = suffixes[..position].iter();
                let earlier = earlier.find_map(|it| self.names.get(&[clean, it].concat()));
                match self.index_of(to, &folder).or(earlier.flatten()) {
                    None => self.add(to, &folder, number, true)?,
                    winner => self.double_claims.add(to.files, &folder, winner, number),
                }
                // The page with an earlier suffix has brought it already.
                if earlier.is_none() {
                    self.add_redirect(to.writer, clean, &folder);
                }
            }
        }
        Ok(())
    }

    /// The file that answers for a folder.
    fn index_of(&self, to: &Adding<'_>, folder: &[u8]) -> Option<usize> {
        let names = self.options.routing.index_names.iter();
        let mut found = names.filter_map(|name| self.names.get(&[folder, name].concat())?);
        found.next().filter(|number| *number < to.files.len())
    }

    /// Index pages answer for their folders.
    fn add_indexes(&mut self, to: &mut Adding<'_>) -> Result<(), PackError> {
        let folders: BTreeSet<&[u8]> = to.files.iter().map(|one| split(&one.file.url).0).collect();
        for folder in folders {
            let Some(number) = self.index_of(to, folder) else {
                continue;
            };
            for name in &self.options.routing.index_names {
                let other = self.names.get(&[folder, name].concat());
                if let Some(other) = other.flatten() {
                    self.double_claims
                        .add(to.files, folder, Some(number), other);
                }
            }
            let slash = self.options.routing.trailing_slash;
            let bare = folder.strip_suffix(b"/").unwrap_or_default();
            // With a slash at its end it is the folder's: but for that the page has the name.
            if let Some(taken) = self.names.get(bare).filter(|_| !bare.is_empty()) {
                self.double_claims.add(to.files, bare, taken, number);
            }
            if slash != TrailingSlash::Never || bare.is_empty() {
                self.add(to, folder, number, true)?;
            }
            if !slash.adds() && !bare.is_empty() {
                self.add(to, bare, number, true)?;
            }
        }
        Ok(())
    }

    /// Pages that answer for what is not found below their folders.
    fn add_fallbacks(&mut self, to: &mut Adding<'_>) -> Result<(), PackError> {
        let mut taken: BTreeMap<(Namespace, &[u8]), usize> = BTreeMap::new();
        for fallback in &self.options.routing.fallbacks {
            let namespace = match fallback.kind {
                FallbackKind::Wildcard => Namespace::Wildcard,
                FallbackKind::Application => Namespace::ApplicationPage,
                FallbackKind::NotFound => Namespace::NotFoundPage,
            };
            for number in 0..to.files.len() {
                let (folder, name) = split(&to.files[number].file.url);
                if name != fallback.name {
                    continue;
                }
                // What a wildcard answers, no other page is asked for.
                let winner = [namespace, Namespace::Wildcard].map(|it| taken.get(&(it, folder)));
                if let Some(winner) = winner.into_iter().flatten().next() {
                    let path = [folder, b"*"].concat();
                    self.double_claims
                        .add(to.files, &path, Some(*winner), number);
                }
                if taken.contains_key(&(namespace, folder)) {
                    continue;
                }
                taken.insert((namespace, folder), number);
                let content = Content {
                    is_alias: true,
                    ..self.content(to, number, None)?
                };
                let key = self.key(folder).within(namespace);
                to.writer.add_content(key, &content);
                self.alias_count += 1;
            }
        }
        Ok(())
    }

    /// Content that answers for other paths, with the fields that those have.
    fn add_unruled(&mut self, to: &mut Adding<'_>) -> Result<(), PackError> {
        if !self.host.rules.has_fixed_fields() {
            return Ok(());
        }
        let mut paths: BTreeSet<Vec<u8>> = match self.host.rules.contents() {
            RuleContents::Any => self.names.iter().map(<[u8]>::to_vec).collect(),
            RuleContents::Paths(paths) => {
                let other = |path: &Vec<u8>| match path.strip_suffix(b"/") {
                    Some(bare) => bare.to_vec(),
                    None => [path, b"/".as_slice()].concat(),
                };
                let others: Vec<_> = paths.iter().map(other).collect();
                paths.into_iter().chain(others).collect()
            }
        };
        if self.options.spa {
            paths.insert(b"/".to_vec());
        }
        for path in paths {
            let Some(Some(number)) = self.names.get(&path) else {
                continue;
            };
            let content = Content {
                is_alias: true,
                ..self.content(to, number, None)?
            };
            let key = self.key(&path).within(Namespace::Unruled);
            to.writer.add_content(key, &content);
        }
        Ok(())
    }

    fn add_redirect(&mut self, writer: &mut Writer, from: &[u8], to: &[u8]) {
        let mut location = Vec::new();
        encode_path(to, &mut location);
        writer.add_redirect(self.key(from), 308, &location);
        self.redirect_count += 1;
    }

    /// An entry of a file, with its variants added if no entry before had the same. `url` is the
    /// path that it is the content of; without one it answers for others.
    fn content<'s>(
        &mut self,
        to: &mut Adding<'s>,
        number: usize,
        url: Option<&[u8]>,
    ) -> Result<Content<'s>, PackError> {
        let source: &'s Source = &to.files[number];
        let last_modified = self.last_modified(source);
        let lifetime = source.lifetime;
        let changes = url.and_then(|url| self.host.rules.changes(url));
        let changes = changes.filter(|changes| !changes.is_empty());
        // Its names differ in nothing then, and a million of them need no map.
        let is_alone = changes.is_none() && !to.contents[source.content].is_shared;
        if self.of_files.len() <= number && is_alone {
            self.of_files.resize(to.files.len(), None);
        }
        let known = self.of_files.get(number).copied().flatten();
        let variants = match known.filter(|_| is_alone) {
            Some(variants) => variants,
            None if is_alone => {
                let variants = self.variants(to, source, lifetime, None)?;
                self.of_files[number] = Some(variants);
                variants
            }
            None => {
                let key = (
                    source.content,
                    Arc::clone(&source.content_type),
                    last_modified,
                    lifetime,
                    changes.clone().map(|changes| (changes.set, changes.remove)),
                );
                match self.representations.get(&key) {
                    Some(variants) => *variants,
                    None => {
                        let variants = self.variants(to, source, lifetime, changes.as_ref())?;
                        self.representations.insert(key, variants);
                        variants
                    }
                }
            }
        };
        let content_type = source.content_type.as_bytes();
        Ok(Content {
            content_type,
            last_modified,
            variants,
            ..Content::default()
        })
    }

    /// Adds the variants of a file with their fields.
    fn variants(
        &mut self,
        to: &mut Adding<'_>,
        source: &Source,
        lifetime: Lifetime,
        changes: Option<&FieldChanges>,
    ) -> Result<VariantsId, PackError> {
        let policy = self.policy(source, &to.read[source.content])?;
        let defaults = &self.options.defaults;
        let fields = defaults.of_content(&source.content_type, policy.as_ref());
        let fields: Vec<_> = fields.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        let representation = Representation {
            content_type: &source.content_type,
            last_modified: self.last_modified(source),
            cache_control: lifetime.cache_control(),
            fields: &fields,
            changes,
        };
        let stored = to.contents[source.content].variants_as(source.is_compressible);
        let common = &mut self.common_fields;
        add_variants(&representation, stored, common, to.writer).map_err(PackError::Types)
    }

    /// The content security policy of a page, if pages are to have one.
    fn policy(
        &mut self,
        source: &Source,
        content: &SourceContent,
    ) -> Result<Option<Policy>, PackError> {
        let Some(wanted) = &self.options.csp else {
            return Ok(None);
        };
        if !source.content_type.starts_with("text/html") || source.file.len > POLICY_PAGE_MAX {
            return Ok(None);
        }
        if let Some(policy) = self.policies.get(&source.content) {
            return Ok(policy.clone());
        }
        let path = &source.file.path;
        // A policy for other scripts than those that were stored would stop them all.
        let page = page::read(&read_whole(path, content)?);
        let policy = csp::policy(&page, wanted);
        if policy.is_none() || !page.findings.is_empty() {
            self.broken_pages.push(path.display().to_string());
        }
        self.policies.insert(source.content, policy.clone());
        Ok(policy)
    }

    fn last_modified(&self, source: &Source) -> Option<i64> {
        let mtime_ns = source.file.mtime_ns;
        let latest = self
            .options
            .source_date_epoch
            .map(|epoch| i128::from(epoch) * 1_000_000_000);
        last_modified(
            latest.map_or(mtime_ns, |latest| mtime_ns.min(latest)),
            self.now,
        )
    }
}

/// A path's folder, with the slash at its end, and its last segment.
fn split(url: &[u8]) -> (&[u8], &[u8]) {
    let slash = url
        .iter()
        .rposition(|byte| *byte == b'/')
        .map_or(0, |slash| slash + 1);
    url.split_at(slash)
}
