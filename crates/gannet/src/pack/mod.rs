//! Packing: from a directory to one archive file.
//!
//! ```text
//! walk ──▶ hash (all cores) ──▶ one body per digest ──▶ compress (all cores) ──▶ output
//!                                                                                  │
//!          site (entries, aliases, redirects) ──▶ field blocks ──▶ gannet_archive::Writer
//! ```
//!
//! **The same input gives the same bytes**, whatever the order of the file system, the number of
//! cores or the clock. Input are names, contents and modification times; times go into
//! `Last-Modified` only. A checkout sets them to the moment of the checkout: set
//! `SOURCE_DATE_EPOCH` ([`PackOptions::source_date_epoch`]), and later times become that one.
//!
//! **Names.** Every file has its own path. `index.html` answers its folder's path too, `about.html`
//! answers `/about` (clean URLs), `404.html` answers what is missing below its folder; `/folder`
//! redirects to `/folder/` with 308. That is what a live directory answers.
//!
//! **Sidecars.** A file `x.br`, `x.gz` or `x.zst` beside `x` is left out if it decodes to exactly
//! `x`: the archive holds codings made here, which are never out of date. If it decodes to anything
//! else, it is a file like others.

mod compress;
mod error;
mod fields;
mod ignore_rules;
mod limits;
mod output;
mod parallel;
mod progress;
mod report;
mod site;
mod sources;
mod walk;

use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use gannet_archive::{Coding, Options, Superblock, Writer};
use gannet_content::mime::Types;

pub use compress::Effort;
pub(crate) use compress::decoder;
pub use error::PackError;
pub use progress::{Bar, NoProgress, Phase, Progress};
pub(crate) use report::size;
pub use report::{CodingReport, Largest, PackReport};
pub use walk::Skipped;

use output::Output;
use site::Site;
use sources::Sources;

/// What to pack, and how.
#[derive(Clone, Debug)]
pub struct PackOptions {
    /// The directory that holds the site.
    pub source: PathBuf,
    /// The archive to write. One that is there is replaced when the new one is complete.
    pub output: PathBuf,
    /// How hard to compress.
    pub effort: Effort,
    /// Which codings to try; identity is always stored.
    pub codings: Vec<Coding>,
    /// Paths that name nothing and do not look like an asset are answered with `/index.html`.
    pub spa: bool,
    /// Folders without an index page get a listing.
    pub listing: bool,
    /// `/about` answers `about.html`.
    pub clean_urls: bool,
    /// Dotfiles are packed.
    pub dotfiles: bool,
    /// Content types by file name suffix (without the dot), before the built-in table.
    pub types: Vec<(String, String)>,
    /// Threads; 0 means one per core that this process may use.
    pub threads: usize,
    /// Modification times after this one become this one. Seconds since the Unix epoch; the
    /// environment variable of that name.
    pub source_date_epoch: Option<i64>,
}

impl PackOptions {
    /// Packs `source` into `output`, everything else by default.
    pub fn new(source: impl Into<PathBuf>, output: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            output: output.into(),
            effort: Effort::default(),
            codings: Coding::ALL.to_vec(),
            spa: false,
            listing: false,
            clean_urls: true,
            dotfiles: false,
            types: Vec::new(),
            threads: 0,
            source_date_epoch: None,
        }
    }

    fn archive_options(&self) -> Options {
        Options {
            spa: self.spa,
            listing: self.listing,
            clean_urls: self.clean_urls,
        }
    }
}

/// Packs a site.
///
/// # Errors
///
/// A [`PackError`] that names the file. The archive that was there before is untouched then, and
/// nothing else is left behind.
pub fn pack(options: &PackOptions, progress: &mut dyn Progress) -> Result<PackReport, PackError> {
    let started = Instant::now();
    let types = types(options)?;
    let sources = Sources::read(options, &types, progress)?;
    if sources.files.is_empty() {
        return Err(PackError::Empty(options.source.clone()));
    }
    let mut output = Output::create(&options.output)?;
    let mut writer = Writer::new(options.archive_options());
    let bodies = sources.store(options, &mut writer, &mut output, progress)?;
    let mut site = Site::new(options, unix_now());
    site.add_files(&sources, &bodies, &mut writer, &mut output)?;
    let refuse = |error| PackError::Archive(options.output.clone(), error);
    let parts = writer.finish().map_err(refuse)?;
    output.publish(&parts)?;
    let superblock = Superblock::parse(&parts.superblock, parts.file_len).map_err(refuse)?;
    Ok(PackReport {
        output: options.output.clone(),
        archive_bytes: parts.file_len,
        build_id: *superblock.build_id(),
        alias_count: site.alias_count,
        redirect_count: site.redirect_count,
        listing_count: site.listing_count,
        elapsed: started.elapsed(),
        ..PackReport::of(sources, &bodies)
    })
}

/// The table of content types. Pairs are tried one by one, to name the one that is wrong.
fn types(options: &PackOptions) -> Result<Types, PackError> {
    let pairs = || {
        options
            .types
            .iter()
            .map(|(suffix, kind)| (&**suffix, &**kind))
    };
    for (suffix, kind) in pairs() {
        let refused = |_| PackError::Types(format!("{suffix}={kind}"));
        Types::new([(suffix, kind)]).map_err(refused)?;
    }
    Types::new(pairs()).map_err(|_| PackError::Types(String::new()))
}

fn unix_now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

#[cfg(test)]
mod tests;
