//! Counts and sizes of an archive.

use gannet_http::semantics::coding::Coding;

use crate::archive::Archive;
use crate::entry::EntryKind;

/// Variants in one coding.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CodingStats {
    /// Number of variants, without aliases.
    pub variant_count: u64,
    /// Their total length, as if each were stored separately.
    pub bytes: u64,
}

/// Counts and sizes of an archive. Lengths are in bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// All entries.
    pub entry_count: u64,
    /// Entries that are files: neither redirect nor alias, neither generated nor carried.
    pub file_count: u64,
    /// Files, carried or not, whose content never changes ([`Entry::is_immutable`](crate::Entry)).
    pub immutable_count: u64,
    /// Redirects.
    pub redirect_count: u64,
    /// Other names of files.
    pub alias_count: u64,
    /// Entries without a source file.
    pub generated_count: u64,
    /// Distinct bodies that are stored in a coding alone.
    pub decoded_count: u64,
    /// Their total length when decoded.
    pub decoded_bytes: u64,
    /// Distinct blobs that are stored.
    pub blob_count: u64,
    /// Their total length.
    pub blob_bytes: u64,
    /// Blobs in the metadata region.
    pub tiny_count: u64,
    /// Their total length.
    pub tiny_bytes: u64,
    /// Files of earlier releases that are carried on.
    pub carried_count: u64,
    /// Dictionaries with which content is coded.
    pub dictionary_count: u64,
    /// By coding, in the order of their numbers.
    pub codings: [CodingStats; 6],
    /// The cost for a client that accepts everything: the total length of the shortest variant of
    /// each file.
    pub best_bytes: u64,
}

impl Stats {
    pub(crate) fn of<B: AsRef<[u8]>>(archive: &Archive<B>) -> Self {
        let mut stats = Self {
            dictionary_count: archive.dictionaries().len() as u64,
            ..Self::default()
        };
        for blob in archive.blobs() {
            if blob.coded.is_some() {
                stats.decoded_count += 1;
                stats.decoded_bytes += blob.len;
                continue;
            }
            stats.blob_count += 1;
            stats.blob_bytes += blob.len;
            stats.tiny_count += u64::from(blob.is_tiny);
            stats.tiny_bytes += if blob.is_tiny { blob.len } else { 0 };
        }
        for entry in archive.entries() {
            stats.entry_count += 1;
            if matches!(entry.kind(), EntryKind::Redirect { .. }) {
                stats.redirect_count += 1;
            } else if entry.is_alias() {
                stats.alias_count += 1;
                continue;
            } else if entry.is_generated() {
                stats.generated_count += 1;
            } else {
                match entry.carried_since() {
                    Some(_) => stats.carried_count += 1,
                    None => stats.file_count += 1,
                }
                stats.immutable_count += u64::from(entry.is_immutable());
            }
            for (order, variant) in entry.variants().enumerate() {
                let coding = &mut stats.codings[variant.coding() as usize];
                coding.variant_count += 1;
                // Lengths of files that share a blob may add up to more than 64 bits.
                coding.bytes = coding.bytes.saturating_add(variant.blob_len());
                if order == 0 {
                    stats.best_bytes = stats.best_bytes.saturating_add(variant.blob_len());
                }
            }
            for variant in entry.dictionary_variants() {
                let coding = &mut stats.codings[variant.coding() as usize];
                coding.variant_count += 1;
                coding.bytes = coding.bytes.saturating_add(variant.blob_len());
            }
        }
        stats
    }

    /// The variants in `coding`.
    pub fn coding(&self, coding: Coding) -> CodingStats {
        self.codings[coding as usize]
    }
}
