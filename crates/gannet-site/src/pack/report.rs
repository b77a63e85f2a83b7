//! The report of packing.

use std::path::PathBuf;
use std::time::Duration;

use gannet_archive::{Coding, is_decodable};

use super::lifetimes::{self, KeptPattern};
use super::limits::LARGEST_COUNT;
use super::sources::{Source, Sources};
use super::store::StoredContent;
use super::walk::Skipped;
use super::warning::Warning;

/// The result of packing. Lengths are in bytes.
#[derive(Clone, Debug, Default)]
pub struct PackReport {
    /// The archive.
    pub output: PathBuf,
    /// Its length.
    pub archive_bytes: u64,
    /// Its build id.
    pub build_id: [u8; 32],
    /// Files packed.
    pub file_count: u64,
    /// Their total length.
    pub source_bytes: u64,
    /// Distinct contents.
    pub unique_count: u64,
    /// Their total length.
    pub unique_bytes: u64,
    /// Other names of files.
    pub alias_count: u64,
    /// Redirects.
    pub redirect_count: u64,
    /// Listings.
    pub listing_count: u64,
    /// Files that were read; the contents of the others were known from an earlier build.
    pub read_count: u64,
    /// Distinct contents copied entirely from an earlier archive.
    pub reused_count: u64,
    /// Files that are also coded with earlier versions as dictionaries.
    pub dictionary_count: u64,
    /// Files of earlier releases that are carried on.
    pub carried_count: u64,
    /// The total length of their stored codings.
    pub carried_bytes: u64,
    /// Distinct contents stored only in codings.
    pub decoded_count: u64,
    /// Their total uncoded length.
    pub decoded_bytes: u64,
    /// Distinct contents stored as gzip or Brotli that are stored uncoded, too: all of them, or, if
    /// others are stored in codings only, those that are too long for a server to decode.
    pub undropped_count: u64,
    /// Their total uncoded length.
    pub undropped_bytes: u64,
    /// Per coding, identity first.
    pub codings: Vec<CodingReport>,
    /// What a client loads that accepts every coding: the total of each file in its smallest form.
    pub best_bytes: u64,
    /// The largest files, largest first.
    pub largest: Vec<Largest>,
    /// Files that browsers may cache for a year, most files first.
    pub kept: Vec<KeptPattern>,
    /// Skipped files, with the rule for each.
    pub skipped: Vec<Skipped>,
    /// Warnings for the user.
    pub warnings: Vec<Warning>,
    /// The duration.
    pub elapsed: Duration,
}

/// Distinct contents in one coding.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CodingReport {
    /// The coding.
    pub coding: Coding,
    /// The number of contents stored in it.
    pub count: u64,
    /// Their total length in this coding.
    pub bytes: u64,
    /// The total uncoded length of the same contents.
    pub identity_bytes: u64,
}

/// A large file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Largest {
    /// Its path on the site, as text.
    pub url: String,
    /// Its length.
    pub len: u64,
    /// Its length in the smallest coding.
    pub best_len: u64,
}

impl PackReport {
    pub(super) fn of(sources: Sources, contents: &[StoredContent]) -> Self {
        let mut report = Self {
            unique_count: contents.len() as u64,
            ..Self::default()
        };
        for coding in Coding::ALL {
            let mut row = CodingReport {
                coding,
                count: 0,
                bytes: 0,
                identity_bytes: 0,
            };
            for content in contents {
                let identity_len = content.identity_len();
                for variant in content.variants.iter().filter(|one| one.coding == coding) {
                    row.count += 1;
                    row.bytes += variant.len;
                    row.identity_bytes += identity_len;
                }
            }
            report.codings.push(row);
        }
        for content in contents {
            let len = content.identity_len();
            if content.variants.first().is_some_and(|it| it.is_decoded) {
                report.decoded_count += 1;
                report.decoded_bytes += len;
            } else if content.variants.iter().any(|it| is_decodable(it.coding)) {
                report.undropped_count += 1;
                report.undropped_bytes += len;
            }
        }
        report.unique_bytes = contents.iter().map(StoredContent::identity_len).sum();
        let mut order: Vec<_> = sources.files.iter().collect();
        for source in &order {
            report.file_count += 1;
            report.source_bytes += source.file.len;
            report.best_bytes += best_len(source, contents);
        }
        let largest_first = |a: &&Source, b: &&Source| {
            let lens = b.file.len.cmp(&a.file.len);
            lens.then_with(|| a.file.url.cmp(&b.file.url))
        };
        if order.len() > LARGEST_COUNT {
            order.select_nth_unstable_by(LARGEST_COUNT, largest_first);
            order.truncate(LARGEST_COUNT);
        }
        order.sort_by(largest_first);
        let largest = order.into_iter().map(|source| Largest {
            url: sources.shown(source),
            len: source.file.len,
            best_len: best_len(source, contents),
        });
        report.largest = largest.collect();
        report.kept = lifetimes::patterns(&sources);
        report.read_count = sources.read_count;
        report.skipped = sources.skipped;
        report.warnings = sources.warnings;
        report
    }
}

/// The length of a file in its smallest coding.
fn best_len(source: &Source, contents: &[StoredContent]) -> u64 {
    let variants = contents[source.content].variants_as(source.is_compressible);
    variants
        .iter()
        .map(|variant| variant.len)
        .min()
        .unwrap_or(0)
}
