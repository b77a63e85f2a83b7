//! What each path of the site answers: files, their other names, redirects, listings.
//!
//! The same questions that a live directory answers at each request are answered here once
//! (`gannet_content::directory::lookup`), with the same results.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use gannet_archive::{Coding, Content, Key, VariantsId, Writer, digest};
use gannet_content::answer::{CACHE_REVALIDATE, PAGE_POLICY};
use gannet_content::directory::listing;
use gannet_content::policy::cache::{self, Lifetime};
use gannet_content::validators::last_modified;
use gannet_http::semantics::target_path::encode_path;

use super::compress::{Coded, compress};
use super::fields::{Representation, add_variants};
use super::output::Output;
use super::sources::{Source, Sources};
use super::store::{StoredContent, Target};
use super::{PackError, PackOptions};

/// Makes the entries.
pub(super) struct Site<'o> {
    options: &'o PackOptions,
    now: i64,
    /// Equal representations have one set of variants.
    representations: HashMap<RepresentationKey, VariantsId>,
    pub(super) alias_count: u64,
    pub(super) redirect_count: u64,
    pub(super) listing_count: u64,
}

/// Content, type and modification time.
type RepresentationKey = (usize, String, Option<i64>, Lifetime);

/// A folder of the site.
#[derive(Debug, Default)]
struct Folder<'f> {
    /// The numbers of its files.
    files: Vec<usize>,
    /// The names of its folders.
    folders: BTreeSet<&'f [u8]>,
    /// The newest modification time below it, in seconds.
    modified: Option<i64>,
}

impl<'o> Site<'o> {
    /// A site without entries. `now` is in Unix seconds: dates after it are not sent.
    pub(super) fn new(options: &'o PackOptions, now: i64) -> Self {
        Self {
            options,
            now,
            representations: HashMap::new(),
            alias_count: 0,
            redirect_count: 0,
            listing_count: 0,
        }
    }

    /// Adds every entry of the site.
    pub(super) fn add_files(
        &mut self,
        sources: &Sources,
        contents: &[StoredContent],
        writer: &mut Writer,
        output: &mut Output,
    ) -> Result<(), PackError> {
        let files = &sources.files;
        let mut taken: BTreeSet<&[u8]> = files
            .iter()
            .map(|source| source.file.url.as_slice())
            .collect();
        for source in files {
            let content = self.content(source, contents, writer)?;
            writer.add_content(Key::content(&source.file.url), &content);
        }
        for source in files {
            let (folder, name) = split(&source.file.url);
            let content = self.content(source, contents, writer)?;
            let content = Content {
                is_alias: true,
                ..content
            };
            if name == b"index.html" && taken.insert(folder) {
                writer.add_content(Key::content(folder), &content);
                self.alias_count += 1;
            }
            if let Some(clean) = self
                .clean_url(&source.file.url)
                .filter(|url| taken.insert(url))
            {
                writer.add_content(Key::content(clean), &content);
                self.alias_count += 1;
            }
            if name == b"404.html" {
                writer.add_content(Key::not_found_page(folder), &content);
                self.alias_count += 1;
            }
        }
        self.add_folders(files, &taken, writer, output)
    }

    /// Redirects `/folder` to `/folder/`, and lists the folders that have no page.
    fn add_folders(
        &mut self,
        files: &[Source],
        taken: &BTreeSet<&[u8]>,
        writer: &mut Writer,
        output: &mut Output,
    ) -> Result<(), PackError> {
        let folders = self.folders(files);
        for (url, folder) in &folders {
            let without_slash = url.strip_suffix(b"/").unwrap_or(url);
            if !without_slash.is_empty() && !taken.contains(without_slash) {
                let mut location = Vec::new();
                encode_path(url, &mut location);
                writer.add_redirect(Key::content(without_slash), 308, &location);
                self.redirect_count += 1;
            }
            if self.options.listing && !taken.contains(url) {
                let page = self.render_listing(url, folder, &folders, files);
                self.add_listing(url, &page, writer, output)?;
            }
        }
        Ok(())
    }

    /// Every folder that has a file in it or below it.
    fn folders<'f>(&self, files: &'f [Source]) -> BTreeMap<&'f [u8], Folder<'f>> {
        let mut folders: BTreeMap<&[u8], Folder<'_>> = BTreeMap::new();
        for (number, source) in files.iter().enumerate() {
            let modified = self.last_modified(source);
            let (mut url, _) = split(&source.file.url);
            let folder = folders.entry(url).or_default();
            folder.files.push(number);
            folder.modified = folder.modified.max(modified);
            while let Some(inner) = url.strip_suffix(b"/").filter(|inner| !inner.is_empty()) {
                let (outer, name) = split(inner);
                let folder = folders.entry(outer).or_default();
                folder.folders.insert(name);
                folder.modified = folder.modified.max(modified);
                url = outer;
            }
        }
        folders
    }

    fn render_listing(
        &self,
        url: &[u8],
        folder: &Folder<'_>,
        folders: &BTreeMap<&[u8], Folder<'_>>,
        files: &[Source],
    ) -> listing::Page {
        let inner_folders = folder.folders.iter().map(|name| {
            let inner = [url, name, b"/"].concat();
            let modified = folders
                .get(inner.as_slice())
                .and_then(|inner| inner.modified);
            listing::Entry {
                name: name.to_vec(),
                is_directory: true,
                len: 0,
                modified,
            }
        });
        let inner_files = folder.files.iter().map(|number| {
            let source = &files[*number];
            listing::Entry {
                name: split(&source.file.url).1.to_vec(),
                is_directory: false,
                len: source.file.len,
                modified: self.last_modified(source),
            }
        });
        let request = listing::ListingRequest {
            path: url,
            dotfiles: self.options.dotfiles,
            ..listing::ListingRequest::default()
        };
        listing::render(&request, inner_folders.chain(inner_files).collect())
    }

    fn add_listing(
        &mut self,
        url: &[u8],
        page: &listing::Page,
        writer: &mut Writer,
        output: &mut Output,
    ) -> Result<(), PackError> {
        let coded = compress(&page.content, &self.options.encoders).map_err(PackError::io(
            "compress the listings of",
            &self.options.source,
        ))?;
        let mut target = Target { writer, output };
        let plain = digest(&page.content);
        let mut variants = vec![target.place_bytes(Coding::Identity, &page.content, plain)?];
        for Coded { coding, bytes } in coded {
            variants.push(target.place_bytes(coding, &bytes, digest(&bytes))?);
        }
        let content_type = str::from_utf8(page.content_type)
            .map_err(|_| PackError::Types(String::from_utf8_lossy(page.content_type).into()))?;
        let fields = [("content-security-policy", PAGE_POLICY.as_bytes())];
        let representation = Representation {
            content_type,
            last_modified: None,
            cache_control: CACHE_REVALIDATE,
            fields: &fields,
        };
        let variants =
            add_variants(&representation, &variants, writer).map_err(PackError::Types)?;
        let content = Content {
            content_type: content_type.as_bytes(),
            is_generated: true,
            variants,
            ..Content::default()
        };
        writer.add_content(Key::content(url), &content);
        self.listing_count += 1;
        Ok(())
    }

    fn clean_url<'u>(&self, url: &'u [u8]) -> Option<&'u [u8]> {
        let clean = url.strip_suffix(b".html")?;
        (self.options.clean_urls && !clean.ends_with(b"/")).then_some(clean)
    }

    /// An entry of a file, with its variants added if no entry before had the same.
    fn content<'s>(
        &mut self,
        source: &'s Source,
        contents: &[StoredContent],
        writer: &mut Writer,
    ) -> Result<Content<'s>, PackError> {
        let last_modified = self.last_modified(source);
        let name = String::from_utf8_lossy(source.file.url.strip_prefix(b"/").unwrap_or_default());
        let (lifetime, _) = cache::lifetime(&name, &source.content_type, None);
        let key = (
            source.content,
            source.content_type.clone(),
            last_modified,
            lifetime,
        );
        let variants = match self.representations.get(&key) {
            Some(variants) => *variants,
            None => {
                let representation = Representation {
                    content_type: &source.content_type,
                    last_modified,
                    cache_control: lifetime.cache_control(),
                    fields: &[],
                };
                let stored = contents[source.content].variants_as(source.is_compressible);
                let variants =
                    add_variants(&representation, stored, writer).map_err(PackError::Types)?;
                self.representations.insert(key, variants);
                variants
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
