//! Folders, and listings of those without an index page.

use std::collections::{BTreeMap, BTreeSet};

use gannet_archive::{Coding, Content, Writer, digest};
use gannet_content::answer::CACHE_REVALIDATE;
use gannet_content::directory::listing::{self, Format};

use super::answers::{Answer, AskedSite};
use super::{SiteBuilder, split};
use crate::pack::PackError;
use crate::pack::compress::{Coded, compress};
use crate::pack::fields::{Representation, add_variants};
use crate::pack::output::Output;
use crate::pack::sources::Source;
use crate::pack::store::{ContentTarget, StoredVariant, coding_alone, sha256};

/// Folders by path, with a slash at the end.
pub(super) type Folders<'f> = BTreeMap<&'f [u8], Folder<'f>>;

/// A folder of the site.
#[derive(Debug, Default)]
pub(super) struct Folder<'f> {
    /// The numbers of its files.
    files: Vec<usize>,
    /// The names of its subfolders.
    folders: BTreeSet<&'f [u8]>,
    /// The newest modification time in it or below it, in seconds.
    modified: Option<i64>,
}

impl SiteBuilder<'_> {
    /// Adds listings of the folders without an index page.
    pub(super) fn add_listings(
        &mut self,
        files: &[Source],
        asked: &AskedSite<'_>,
        writer: &mut Writer,
        output: &mut Output,
    ) -> Result<(), PackError> {
        if !self.options.listing {
            return Ok(());
        }
        for (url, folder) in asked.folders {
            if self.names.contains(url)
                || !matches!(asked.answer(&self.names, files, url), Answer::Listing)
            {
                continue;
            }
            for format in [Format::Html, Format::Json] {
                // A file may have the name under which the archive keeps the JSON.
                if format == Format::Json && self.names.contains(&listing::json_path(url)) {
                    continue;
                }
                let page = self.render_listing(url, folder, (asked.folders, files), format);
                self.add_listing(url, &page, format, writer, output)?;
            }
            self.names.insert(url, None);
            self.listing_count += 1;
        }
        Ok(())
    }

    /// All folders with a file in them or below them.
    pub(super) fn folders<'f>(&self, files: &'f [Source]) -> Folders<'f> {
        let mut folders = Folders::new();
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
        (folders, files): (&Folders<'_>, &[Source]),
        format: Format,
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
            format,
            dotfiles: self.options.dotfiles,
            ..listing::ListingRequest::default()
        };
        listing::render(&request, inner_folders.chain(inner_files).collect())
    }

    fn add_listing(
        &mut self,
        url: &[u8],
        page: &listing::Page,
        format: Format,
        writer: &mut Writer,
        output: &mut Output,
    ) -> Result<(), PackError> {
        let coded = compress(&page.content, &self.options.encoders, &|_| {}).map_err(
            PackError::io("compress the listings of", &self.options.source),
        )?;
        let mut target = ContentTarget::new(writer, output);
        let plain = digest(&page.content);
        let has_digest = self.options.repr_digest;
        let with_sha256 = |variants: &mut Vec<StoredVariant>, bytes: &[u8]| {
            let last = variants.last_mut().filter(|_| has_digest);
            if let Some(last) = last {
                last.sha256 = Some(Box::new(sha256(bytes)));
            }
        };
        let bytes_in = |wanted| {
            let found = coded.iter().find(|one| one.coding == wanted);
            found.map(|one| one.bytes.as_slice())
        };
        let alone = match self.options.drop_identity {
            true => coding_alone(&page.content, bytes_in),
            false => None,
        };
        let mut variants = Vec::with_capacity(coded.len() + 1);
        if alone.is_none() {
            variants.push(target.place_bytes(Coding::Identity, &page.content, plain)?);
            with_sha256(&mut variants, &page.content);
        }
        for Coded { coding, bytes } in coded {
            variants.push(target.place_bytes(coding, &bytes, digest(&bytes))?);
            with_sha256(&mut variants, &bytes);
        }
        if let Some(alone) = alone {
            variants.push(target.place_identity(&page.content, plain, (&variants, alone))?);
            with_sha256(&mut variants, &page.content);
        }
        let content_type = str::from_utf8(page.content_type)
            .map_err(|_| PackError::Types(String::from_utf8_lossy(page.content_type).into()))?;
        let defaults = self.options.defaults.of_listing();
        let fields: Vec<_> = defaults
            .iter()
            // Packed content cannot change before the archive does.
            .filter(|(name, _)| *name != "cache-control" && *name != "x-content-type-options")
            .map(|(name, value)| (*name, value.as_bytes()))
            .collect();
        let mut changes = self.host.rules.changes(url).unwrap_or_default();
        let further = page.further.iter();
        let further = further.map(|(name, value)| ((*name).to_owned(), value.to_vec()));
        changes.set.extend(further);
        let representation = Representation {
            use_as: None,
            has_dictionaries: false,
            content_type,
            last_modified: None,
            cache_control: CACHE_REVALIDATE,
            fields: &fields,
            changes: Some(&changes),
        };
        let common = &mut self.common_fields;
        let variants =
            add_variants(&representation, &variants, common, writer).map_err(PackError::Types)?;
        let content = Content {
            content_type: content_type.as_bytes(),
            is_generated: true,
            // The HTML page is the folder's entry; JSON is its other form.
            is_alias: format == Format::Json,
            variants,
            ..Content::default()
        };
        let path = match format {
            Format::Html => url.to_vec(),
            Format::Json => listing::json_path(url),
        };
        writer.add_content(self.key(&path), &content);
        Ok(())
    }
}
