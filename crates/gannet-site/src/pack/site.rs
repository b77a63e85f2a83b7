//! Builds the entries of a site: files, their other names, redirects, listings.
//!
//! A live directory resolves each request; here every path is resolved once, by the same lookup
//! (`gannet_content::directory::lookup`). The names of the files determine which paths those are.

mod answers;
mod folders;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use gannet_archive::{Content, Key, Namespace, VariantsId, Writer};
use gannet_content::archive::FRONT_PAGE;
use gannet_content::policy::cache::Lifetime;
use gannet_content::policy::csp::{self, Policy, PolicyOptions, ScriptNeeds};
use gannet_content::policy::dictionary::use_as_dictionary;
use gannet_content::policy::page;
use gannet_content::routing::{FallbackKind, TrailingSlash};
use gannet_content::rules::headers::FieldChanges;
use gannet_content::stored_coding;
use gannet_content::validators::last_modified;
use gannet_http::semantics::target_path::encode_path;

use super::dictionaries::{Dictionaries, Offered};
use super::double_claims::DoubleClaims;
use super::fields::{CommonFields, Representation, add_dictionary_variants, add_variants};
use super::host::SourceHost;
use super::limits::POLICY_PAGE_MAX;
use super::names::Names;
use super::output::Output;
use super::rules::RuleContents;
use super::sources::{Source, SourceContent, Sources};
use super::store::{StoredContent, read_whole};
use super::{PackError, PackOptions};

use answers::{Answer, AskedSite};

/// Builds the entries.
pub(super) struct SiteBuilder<'o> {
    options: &'o PackOptions,
    /// The host whose entries are being added.
    host: &'o SourceHost,
    now: i64,
    /// The variants of files whose content no other file has, shared by all their names.
    of_files: Vec<Option<VariantsId>>,
    /// Equal representations share one set of variants.
    representations: HashMap<RepresentationKey, VariantsId>,
    common_fields: CommonFields,
    /// The policies of pages, by content.
    policies: HashMap<usize, Option<Policy>>,
    /// Paths with content, and the number of the file that has it; `None` for a listing.
    names: Names,
    /// Paths that redirect to themselves with a slash added.
    redirects: HashSet<Vec<u8>>,
    pub(super) alias_count: u64,
    pub(super) redirect_count: u64,
    pub(super) listing_count: u64,
    /// What the site's scripts need from the policies.
    pub(super) script_needs: ScriptNeeds,
    /// Other hosts from which pages load scripts.
    pub(super) foreign_scripts: BTreeSet<String>,
    /// Pages that their policy would break.
    pub(super) broken_pages: Vec<String>,
    /// Paths that several files could answer.
    pub(super) double_claims: DoubleClaims,
    /// Files coded with dictionaries.
    pub(super) dictionaries: Dictionaries,
    /// Files of the host that are dictionaries themselves.
    offered: Offered,
}

/// Content, type, modification time, lifetime, and changes to the fields.
type RepresentationKey = (usize, Arc<str>, Option<i64>, Lifetime, Option<ChangesKey>);
type ChangesKey = (Vec<(String, Vec<u8>)>, Vec<String>);

/// What a file answers.
#[derive(Clone, Copy)]
enum Role<'a> {
    /// A path of its own: this one.
    Own(&'a [u8]),
    /// Other paths, in place of missing content.
    StandIn,
    /// The same, with status 404.
    NotFound,
}

/// The input of entries, and the writer.
struct Adding<'s> {
    files: &'s [Source],
    contents: &'s [StoredContent],
    /// The same files' contents, as read.
    read: &'s [SourceContent],
    writer: &'s mut Writer,
}

impl<'o> SiteBuilder<'o> {
    /// Without entries. `now` is in Unix seconds: later dates are not sent.
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
            redirects: HashSet::new(),
            alias_count: 0,
            redirect_count: 0,
            listing_count: 0,
            script_needs: ScriptNeeds::default(),
            foreign_scripts: BTreeSet::new(),
            broken_pages: Vec::new(),
            double_claims: DoubleClaims::default(),
            dictionaries: Dictionaries::default(),
            offered: Offered::default(),
        }
    }

    /// Begins another host. Representations shared with earlier hosts are reused.
    pub(super) fn begin(&mut self, host: &'o SourceHost) {
        self.host = host;
        self.names = Names::default();
        self.redirects.clear();
        // File numbers change.
        self.of_files.clear();
    }

    /// Whether a path of the host has content.
    pub(super) fn has_content(&self, path: &[u8]) -> bool {
        self.names.contains(path)
    }

    /// Whether a path of the host has an entry of its own.
    pub(super) fn has_entry(&self, path: &[u8]) -> bool {
        self.names.contains(path) || self.redirects.contains(path)
    }

    /// Adds all entries of the host.
    pub(super) fn add_files(
        &mut self,
        sources: &Sources,
        contents: &[StoredContent],
        writer: &mut Writer,
        output: &mut Output,
    ) -> Result<(), PackError> {
        self.offered = Offered::of_host(self.host, sources);
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
        let folders = self.folders(files);
        let asked = AskedSite::new(self.options, &folders);
        self.add_further(&mut to, &asked)?;
        self.add_fallbacks(&mut to)?;
        self.add_listings(files, &asked, writer, output)?;
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

    /// Adds an entry of a file under a free path.
    fn add_free(
        &mut self,
        to: &mut Adding<'_>,
        url: &[u8],
        number: usize,
        is_alias: bool,
    ) -> Result<(), PackError> {
        let content = self.content(to, number, Role::Own(url))?;
        let content = Content {
            is_alias,
            ..content
        };
        to.writer.add_content(self.key(url), &content);
        self.names.insert(url, Some(number));
        self.alias_count += u64::from(is_alias);
        Ok(())
    }

    /// Adds the other paths of the files as a directory resolves them: without a page's suffix, for
    /// a folder, with a slash added or removed.
    fn add_further(&mut self, to: &mut Adding<'_>, asked: &AskedSite<'_>) -> Result<(), PackError> {
        let routing = &self.options.routing;
        let suffixes = match self.options.clean_urls {
            true => routing.page_suffixes.len(),
            false => 0,
        };
        // Suffixes are in the order in which a directory tries them.
        for position in 0..suffixes {
            for number in 0..to.files.len() {
                let Some(clean) = routing.clean_path(&to.files[number].file.url, position) else {
                    continue;
                };
                self.add_answer(to, asked, clean)?;
                self.claim(to, clean, number);
                if routing.trailing_slash == TrailingSlash::Always {
                    let folder = [clean, b"/"].concat();
                    self.add_answer(to, asked, &folder)?;
                    self.claim(to, &folder, number);
                }
            }
        }
        for folder in asked.folders.keys().copied() {
            let bare = folder.strip_suffix(b"/").unwrap_or_default();
            self.add_answer(to, asked, folder)?;
            if !bare.is_empty() {
                self.add_answer(to, asked, bare)?;
            }
            let path = if self.names.contains(folder) {
                folder
            } else {
                bare
            };
            let indexes = routing.index_names.iter();
            let indexes =
                indexes.filter_map(|name| self.names.get(&[folder, name.as_slice()].concat())?);
            let indexes: Vec<usize> = indexes.collect();
            for number in &indexes {
                self.claim(to, path, *number);
            }
            // Without the slash, the path would be the folder's, unless a page has that name.
            if let Some(first) = indexes.first().filter(|_| path != bare) {
                self.claim(to, bare, *first);
            }
        }
        Ok(())
    }

    /// Adds a directory's answer for a path, unless it has one: an entry of a file, or a redirect.
    /// Listings are added later, and redirects that remove a slash are left to the server.
    fn add_answer(
        &mut self,
        to: &mut Adding<'_>,
        asked: &AskedSite<'_>,
        path: &[u8],
    ) -> Result<(), PackError> {
        if self.names.contains(path) {
            return Ok(());
        }
        match asked.answer(&self.names, to.files, path) {
            Answer::File(number) => self.add_free(to, path, number, true),
            Answer::AddsSlash => {
                if self.redirects.insert(path.to_vec()) {
                    self.add_redirect(to.writer, path, &[path, b"/"].concat());
                }
                Ok(())
            }
            Answer::Listing | Answer::Nothing => Ok(()),
        }
    }

    /// Records that a file could answer a path that another one answers.
    fn claim(&mut self, to: &Adding<'_>, path: &[u8], number: usize) {
        if let Some(winner) = self
            .names
            .get(path)
            .filter(|winner| *winner != Some(number))
        {
            self.double_claims.add(to.files, path, winner, number);
        }
    }

    /// Adds pages that answer missing paths below their folders.
    fn add_fallbacks(&mut self, to: &mut Adding<'_>) -> Result<(), PackError> {
        let mut taken: BTreeMap<(Namespace, &[u8]), usize> = BTreeMap::new();
        for fallback in &self.options.routing.fallbacks {
            let namespace = match fallback.kind {
                FallbackKind::Wildcard => Namespace::Wildcard,
                FallbackKind::Application => Namespace::ApplicationPage,
                FallbackKind::NotFound => Namespace::NotFoundPage,
            };
            let role = match fallback.kind {
                FallbackKind::NotFound => Role::NotFound,
                FallbackKind::Wildcard | FallbackKind::Application => Role::StandIn,
            };
            for number in 0..to.files.len() {
                let (folder, name) = split(&to.files[number].file.url);
                if name != fallback.name {
                    continue;
                }
                // A wildcard takes precedence over all other fallback pages.
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
                    ..self.content(to, number, role)?
                };
                let key = self.key(folder).within(namespace);
                to.writer.add_content(key, &content);
                self.alias_count += 1;
            }
        }
        Ok(())
    }

    /// Adds content that answers for other paths, with the fields for those.
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
            paths.insert(FRONT_PAGE.to_vec());
        }
        for path in paths {
            let Some(Some(number)) = self.names.get(&path) else {
                continue;
            };
            let content = Content {
                is_alias: true,
                ..self.content(to, number, Role::StandIn)?
            };
            let key = self.key(&path).within(Namespace::Unruled);
            to.writer.add_content(key, &content);
        }
        Ok(())
    }

    fn add_redirect(&mut self, writer: &mut Writer, from: &[u8], to: &[u8]) {
        let mut location = Vec::new();
        encode_path(to, &mut location);
        writer.add_redirect(self.key(from), 301, &location);
        self.redirect_count += 1;
    }

    /// An entry of a file; adds its variants unless an earlier entry has the same.
    fn content<'s>(
        &mut self,
        to: &mut Adding<'s>,
        number: usize,
        role: Role<'_>,
    ) -> Result<Content<'s>, PackError> {
        let source: &'s Source = &to.files[number];
        let last_modified = self.last_modified(source);
        let lifetime = match role {
            Role::Own(_) => source.reason.lifetime(),
            Role::StandIn => Lifetime::Revalidate,
            Role::NotFound => Lifetime::NoCache,
        };
        let url = match role {
            Role::Own(url) => Some(url),
            Role::StandIn | Role::NotFound => None,
        };
        let changes = url.and_then(|url| {
            let changes = self.host.rules.changes(url);
            stored_coding::with_coding(changes, &source.file.url, source.is_gzip)
        });
        let changes = changes.filter(|changes| !changes.is_empty());
        let versions = url
            .filter(|url| *url == source.file.url)
            .and_then(|_| self.offered.versions(source, changes.as_ref()));
        if let Some(versions) = versions {
            return self.content_of_version(to, source, &versions, changes.as_ref());
        }
        // All names of the file then share its variants, so that a million files need no map.
        let is_alone = url.is_some() && changes.is_none() && !to.contents[source.content].is_shared;
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

    /// The entry of a file that is the dictionary of its next version, and may be coded with earlier
    /// ones. Its fields have its own path, so no other entry shares its variants.
    fn content_of_version<'s>(
        &mut self,
        to: &mut Adding<'s>,
        source: &'s Source,
        versions: &[u8],
        changes: Option<&FieldChanges>,
    ) -> Result<Content<'s>, PackError> {
        let coded = self.dictionaries.take(self.host.number, &source.file.url);
        let use_as = use_as_dictionary(versions);
        let lifetime = source.reason.lifetime();
        let mut dictionary_variants = VariantsId::default();
        let mut add = |representation: Representation<'_>, common: &mut CommonFields| {
            let representation = Representation {
                use_as: Some(&use_as),
                has_dictionaries: !coded.is_empty(),
                ..representation
            };
            let stored = to.contents[source.content].variants_as(source.is_compressible);
            let variants = add_variants(&representation, stored, common, to.writer)?;
            dictionary_variants =
                add_dictionary_variants(&representation, &coded, common, to.writer)?;
            Ok(variants)
        };
        let content = &to.read[source.content];
        let variants = self.represent((source, content), lifetime, changes, &mut add)?;
        Ok(Content {
            content_type: source.content_type.as_bytes(),
            last_modified: self.last_modified(source),
            variants,
            dictionary_variants,
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
        let stored = to.contents[source.content].variants_as(source.is_compressible);
        let content = &to.read[source.content];
        let mut add = |representation: Representation<'_>, common: &mut CommonFields| {
            add_variants(&representation, stored, common, to.writer)
        };
        self.represent((source, content), lifetime, changes, &mut add)
    }

    /// Has `add` add the variants of a file.
    fn represent(
        &mut self,
        (source, content): (&Source, &SourceContent),
        lifetime: Lifetime,
        changes: Option<&FieldChanges>,
        add: &mut dyn FnMut(Representation<'_>, &mut CommonFields) -> Result<VariantsId, String>,
    ) -> Result<VariantsId, PackError> {
        let policy = self.policy(source, content)?;
        let defaults = &self.options.defaults;
        let fields = defaults.of_content(policy.as_ref());
        let fields: Vec<_> = fields.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        let representation = Representation {
            content_type: &source.content_type,
            last_modified: self.last_modified(source),
            cache_control: lifetime.cache_control(),
            fields: &fields,
            changes,
            use_as: None,
            has_dictionaries: false,
        };
        add(representation, &mut self.common_fields).map_err(PackError::Types)
    }

    /// The content security policy of a page, if enabled.
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
        // Made from the stored bytes: a policy for other scripts would block them all.
        let Ok(page) = page::read(&read_whole(&source.file, content)?) else {
            self.broken_pages
                .push(source.file.path.display().to_string());
            self.policies.insert(source.content, None);
            return Ok(None);
        };
        let wanted = PolicyOptions {
            scripts: self.script_needs,
            ..wanted.clone()
        };
        self.foreign_scripts
            .extend(page.script_origins.iter().cloned());
        let policy = csp::policy(&page, &wanted);
        if policy.is_none() || !page.findings.is_empty() {
            self.broken_pages
                .push(source.file.path.display().to_string());
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
