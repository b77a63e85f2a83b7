//! Carries on files of earlier releases: pages that are open in browsers still ask for them, and a
//! node without history has only this archive.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::io::{self, Read};

use gannet_archive::limits::TINY_MAX;
use gannet_archive::{BlobId, Body, Content, Entry, Key, Variant, VariantDraft, Writer};
use gannet_content::policy::cache::is_page;
use gannet_content::validators::last_modified;

use super::dictionaries::Releases;
use super::host::SourceHost;
use super::limits::CARRIED_BYTES_MAX;
use super::output::Output;
use super::site::SiteBuilder;
use super::sources::Sources;
use super::{PackError, PackOptions, Remedy, Warning};
use crate::archive::{ArchiveFile, SiteError};
use crate::target::url;

/// What is carried on.
#[derive(Debug, Default)]
pub(super) struct Carry {
    /// The time of the site, and the oldest at which a file was part of one that is carried on, in
    /// Unix seconds.
    times: Option<(i64, i64)>,
    /// Files carried on.
    pub(super) count: u64,
    /// The total length of their stored codings.
    pub(super) bytes: u64,
    /// Files beyond the limit.
    dropped_count: u64,
}

/// A file of an earlier release.
struct Old<'r> {
    file: &'r ArchiveFile,
    entry: Entry<'r>,
    /// When it was last part of a site.
    since: i64,
}

impl Old<'_> {
    fn bytes(&self) -> u64 {
        self.entry
            .variants()
            .map(|variant| variant.blob_len())
            .sum()
    }
}

impl Carry {
    /// Determines the time of the site. `now` is in Unix seconds.
    ///
    /// # Errors
    /// The site has no time.
    pub(super) fn new(
        options: &PackOptions,
        sources: &Sources,
        now: i64,
    ) -> Result<Self, PackError> {
        let Some(seconds) = options.carry.filter(|_| !options.previous.is_empty()) else {
            return Ok(Self::default());
        };
        let dates = sources.files.iter();
        let newest = || {
            dates
                .filter_map(|it| last_modified(it.file.mtime_ns, now))
                .max()
        };
        let time = options.source_date_epoch.or_else(newest);
        let time = time.ok_or_else(|| PackError::NoTime(options.source.clone()))?;
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        Ok(Self {
            times: Some((time, time.saturating_sub(seconds))),
            ..Self::default()
        })
    }

    /// Adds the files of a host that its `site` no longer has. Those of the first release that has
    /// a name are taken; the most recent ones, if there are too many, after those of other hosts.
    pub(super) fn add_host(
        &mut self,
        host: &SourceHost,
        releases: &Releases,
        site: &SiteBuilder<'_>,
        writer: &mut Writer,
        output: &mut Output,
    ) -> Result<(), PackError> {
        let Some((time, oldest)) = self.times else {
            return Ok(());
        };
        let mut seen: HashSet<&[u8]> = HashSet::new();
        let mut olds: Vec<Old<'_>> = Vec::new();
        for (file, entry) in releases.immutable(host.number) {
            let content_type = str::from_utf8(entry.content_type()).unwrap_or_default();
            if is_page(content_type) || site.has_entry(entry.path()) || !seen.insert(entry.path()) {
                continue;
            }
            let since = entry.carried_since().unwrap_or(time);
            if since >= oldest {
                olds.push(Old { file, entry, since });
            }
        }
        olds.sort_by_key(|old| (Reverse(old.since), old.entry.path()));
        for old in olds {
            let bytes = self.bytes + old.bytes();
            if bytes > CARRIED_BYTES_MAX {
                self.dropped_count += 1;
                continue;
            }
            add(host.number, &old, writer, output)?;
            self.count += 1;
            self.bytes = bytes;
        }
        Ok(())
    }

    /// Warns about files that are too many.
    pub(super) fn warning(&self) -> Option<Warning> {
        let text = format!(
            "files of earlier releases that are not carried on, since all of them together are \
             longer than {} MiB: {}",
            CARRIED_BYTES_MAX >> 20,
            self.dropped_count
        );
        (self.dropped_count > 0).then(|| Warning::with(text, Remedy::CarryLess))
    }
}

/// Adds a file with its own fields and stored codings.
fn add(
    host: u16,
    old: &Old<'_>,
    writer: &mut Writer,
    output: &mut Output,
) -> Result<(), PackError> {
    let mut variants: Vec<Variant<'_>> = old.entry.variants().collect();
    // A body that is decoded from another one is added after that.
    variants.sort_by_key(|variant| variant.stored_as().is_some());
    let mut blobs: Vec<(u64, BlobId)> = Vec::new();
    let mut drafts = Vec::with_capacity(variants.len());
    for variant in &variants {
        let blob = add_blob(old, variant, &blobs, writer, output)?;
        blobs.push((variant.blob_offset(), blob));
        let block = variant.h1();
        drafts.push(VariantDraft {
            coding: variant.coding(),
            blob,
            entity_tag: variant.entity_tag(),
            h1: block,
            hpack: variant.hpack(),
        });
    }
    let content = Content {
        content_type: old.entry.content_type(),
        last_modified: old.entry.last_modified(),
        carried_since: Some(old.since),
        variants: writer.add_variants(&drafts),
        ..Content::default()
    };
    writer.add_content(Key::content(old.entry.path()).on(host), &content);
    Ok(())
}

/// Adds the bytes of a variant. `blobs` are those added before, by their offset in the earlier
/// archive.
fn add_blob(
    old: &Old<'_>,
    variant: &Variant<'_>,
    blobs: &[(u64, BlobId)],
    writer: &mut Writer,
    output: &mut Output,
) -> Result<BlobId, PackError> {
    let digest: [u8; 32] = variant.digest().try_into().unwrap_or_default();
    let len = variant.blob_len();
    if let Body::Decoded { coding, .. } = variant.body()
        && let Some((_, coded)) = blobs.iter().find(|(at, _)| *at == variant.blob_offset())
        && let Some(blob) = writer.add_decoded(digest, len, (coding, *coded))
    {
        return Ok(blob);
    }
    let path = old.file.path();
    let damaged = || {
        let what = format!("wrong digest of '{}'", url(old.entry.path()));
        let archive = path.to_path_buf();
        PackError::Previous(SiteError::Damaged { archive, what })
    };
    let read = |error: io::Error| PackError::io("read", path)(error);
    let mut reader = old.file.stored(variant).map_err(read)?;
    if len <= TINY_MAX {
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(read)?;
        if gannet_archive::digest(&bytes) != digest {
            return Err(damaged());
        }
        let placed = writer.add_digested(&bytes, digest);
        if let Some(offset) = placed.write_at {
            output.write_at(offset, &bytes)?;
        }
        return Ok(placed.id);
    }
    let placed = writer.add_hashed(digest, len);
    if let Some(offset) = placed.write_at {
        let (found_len, found, tree) = output.copy_at(offset, &mut reader, path)?;
        if (found_len, found) != (len, digest) {
            return Err(damaged());
        }
        writer.set_tree(placed.id, tree);
    }
    Ok(placed.id)
}
