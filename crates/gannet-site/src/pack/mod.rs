//! Packs a directory into one archive file.
//!
//! ```text
//! walk ──▶ hash (all cores) ──▶ one body per digest ──▶ compress (all cores) ──▶ output
//!                                                                                  │
//!          site (entries, aliases, redirects) ──▶ field blocks ──▶ gannet_archive::Writer
//! ```
//!
//! **The same input gives the same bytes**, independent of the order of the file system, the number
//! of cores and the clock. The input is names, contents and modification times; times affect
//! `Last-Modified` only. A checkout sets them to the current time: with `SOURCE_DATE_EPOCH`
//! ([`PackOptions::source_date_epoch`]), later times are replaced by that one.
//!
//! **Names.** Every file has its own path. `index.html` also answers its folder's path,
//! `about.html` answers `/about` (clean URLs), `404.html` answers missing paths below its folder;
//! `/folder` redirects to `/folder/` with 301. A live directory gives the same answers. Other index
//! names, suffixes, fallbacks and slashes are those of a [`Routing`].
//!
//! **Rules.** `_redirects` and `_headers` are not files of the site. Effects that depend on the
//! path alone are in the field blocks; the others are sections that the server evaluates.
//!
//! **Sidecars.** The archive holds codings made here, which are never out of date. A file `x.br`,
//! `x.gz` or `x.zst` beside `x` is left out, unless a pattern asks for it.

mod carry;
mod compress;
mod compressed_only;
mod compressible;
mod dictionaries;
mod dictionary_coding;
mod double_claims;
pub mod encoders;
mod error;
mod fields;
mod host;
mod ignore_rules;
mod lifetimes;
mod limits;
mod memory;
mod names;
mod output;
mod parallel;
mod previous;
mod progress;
mod recipe;
mod report;
mod rules;
mod script_needs;
mod secrets;
pub mod sidecars;
#[cfg(feature = "sign")]
mod sign;
mod site;
mod sources;
mod spool;
mod stamps;
mod store;
#[cfg(not(feature = "sign"))]
mod unsigned;
mod walk;
mod warning;

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use gannet_archive::limits::PACKED_FROM;
use gannet_archive::{HostRules, Options, SectionKind, Superblock, Writer};
use gannet_content::archive::FRONT_PAGE;
use gannet_content::mime::Types;
use gannet_content::policy::csp::PolicyOptions;
use gannet_content::policy::defaults::DefaultFields;
use gannet_content::routing::{Fallback, Routing};
use gannet_content::stored_coding;
use gannet_http::semantics::status::Status;

pub(crate) use compress::decoder;
pub use compressible::Compressible;
pub(crate) use dictionary_coding::decode as decode_with_dictionary;
pub use encoders::{Effort, Encoder};
pub use error::{KEEP, PackError, READ, READ_KEY, WRITE};
pub use lifetimes::KeptPattern;
#[cfg(feature = "bundle")]
pub(crate) use output::Temporary;
pub use output::temporary_of;
pub use progress::{NoProgress, Phase, Progress};
pub use report::{CodingReport, Largest, PackReport};
#[cfg(feature = "sign")]
pub use sign::{PASSWORD_VARIABLE, Signer, is_secret_key};
pub(crate) use store::sha256;
#[cfg(not(feature = "sign"))]
pub use unsigned::Signer;
pub use walk::Skipped;
pub use warning::{Remedy, Warning};

use carry::Carry;
use dictionaries::Releases;
use host::SourceHost;
use limits::LIFETIMES_LISTED_MAX;
use memory::Memory;
use output::Output;
use recipe::Recipe;
use site::SiteBuilder;
use sources::{Source, Sources};
use spool::DiskSpool;
use store::{ContentTarget, store};
use walk::SourceFile;

/// What to pack, and how.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct PackOptions {
    /// The directory that holds the site.
    pub source: PathBuf,
    /// The directory has a folder for each host instead.
    pub hosts: bool,
    /// The archive to write. An existing one is replaced when the new one is complete.
    pub output: PathBuf,
    /// Encoders to try on each file; a coding is stored if it makes the file sufficiently smaller.
    pub encoders: Vec<Encoder>,
    /// Files that exist only compressed are also packed decompressed.
    pub compressed_only: bool,
    /// Bodies stored as gzip or Brotli are not stored uncoded: a server decodes them for clients
    /// that accept no stored coding.
    pub drop_identity: bool,
    /// Content types to compress.
    pub compressible: Compressible,
    /// Unknown paths that do not look like an asset are answered with `/index.html`.
    pub spa: bool,
    /// Folders without an index page get a listing.
    pub listing: bool,
    /// `/about` answers `about.html`.
    pub clean_urls: bool,
    /// Index names, slashes, fallback pages, and the dialect of the rules files.
    pub routing: Routing,
    /// The default fields of answers.
    pub defaults: DefaultFields,
    /// Every answer carries the SHA-256 of its representation (RFC 9530).
    pub repr_digest: bool,
    /// Pages get a content security policy made from their scripts and styles.
    pub csp: Option<PolicyOptions>,
    /// Dotfiles are packed.
    pub dotfiles: bool,
    /// Symbolic links that lead out of the site are followed, which packs what they lead to. Without
    /// this, such a link is an error.
    pub follow_links: bool,
    /// Patterns to exclude, in the syntax of `.gitignore`.
    pub exclude: Vec<String>,
    /// Patterns to include, overriding all exclusions.
    pub include: Vec<String>,
    /// What to reuse from earlier builds.
    pub memory: BuildMemory,
    /// The archives of earlier releases, newest first, besides the one being replaced: names whose
    /// content has changed since are not content hashes, and their files are the dictionaries of new
    /// versions (RFC 9842).
    pub previous: Vec<PathBuf>,
    /// For how many seconds after they were last part of the site immutable files of `previous` are
    /// still packed. Time is that of the site: `source_date_epoch`, or else the newest
    /// modification time of a file.
    pub carry: Option<u64>,
    /// The secret key to sign with.
    pub sign: Option<PathBuf>,
    /// Content types by file name suffix (without the dot), overriding the built-in table.
    pub types: Vec<(String, String)>,
    /// Threads; 0 means one per core that this process may use.
    pub threads: usize,
    /// Later modification times are replaced by this one, in seconds since the Unix epoch; from the
    /// environment variable of that name.
    pub source_date_epoch: Option<i64>,
}

/// What to reuse from earlier builds. This affects how long packing takes, never the archive.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct BuildMemory {
    /// A directory for the stamps of files; without one, all files are read.
    pub folder: Option<PathBuf>,
    /// The directory also keeps archives, besides the one being replaced.
    pub keeps_archives: bool,
    /// Read files even if their stamps match.
    pub verify_sources: bool,
    /// Reuse nothing.
    pub is_fresh: bool,
}

impl PackOptions {
    /// Packs `source` into `output`, with defaults for everything else.
    pub fn new(source: impl Into<PathBuf>, output: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            hosts: false,
            output: output.into(),
            encoders: Encoder::all(Effort::default()),
            drop_identity: false,
            compressed_only: false,
            compressible: Compressible::default(),
            spa: false,
            listing: false,
            clean_urls: true,
            routing: Routing::default(),
            defaults: DefaultFields::default(),
            repr_digest: false,
            csp: None,
            dotfiles: false,
            follow_links: false,
            exclude: Vec::new(),
            include: Vec::new(),
            memory: BuildMemory::default(),
            previous: Vec::new(),
            carry: None,
            sign: None,
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
            slash_redirects: self.routing.trailing_slash.removes(),
        }
    }
}

/// Packs a site.
///
/// # Errors
///
/// A [`PackError`] that names the file. An archive that existed before is then untouched, and no
/// other file is left behind.
pub fn pack(options: &PackOptions, progress: &mut dyn Progress) -> Result<PackReport, PackError> {
    let signer = options.sign.as_deref().map(Signer::open).transpose()?;
    pack_signed(options, signer.as_ref(), progress)
}

/// As [`pack`], with a key that has been opened: [`PackOptions::sign`] is ignored.
///
/// # Errors
/// As for [`pack`].
pub fn pack_signed(
    options: &PackOptions,
    signer: Option<&Signer>,
    progress: &mut dyn Progress,
) -> Result<PackReport, PackError> {
    let started = Instant::now();
    let types = prepare(options)?;
    let mut memory = Memory::open(options);
    let mut sources = Sources::read(options, &types, memory.known(), progress)
        .inspect_err(|error| memory.doubt(error))?;
    if sources.files.is_empty() && sources.hosts.iter().all(|host| host.rules.is_empty()) {
        return Err(PackError::Empty(options.source.clone()));
    }
    let previous = memory.previous(options);
    memory.forget();
    let mut output = Output::create(&options.output)?;
    let (spool, spool_error) = DiskSpool::new(output.temporary());
    let mut writer = writer(options, &sources, spool);
    let mut target = ContentTarget::new(&mut writer, &mut output);
    let stored = store(&sources, options, &previous, &mut target, progress)
        .inspect_err(|error| memory.doubt(error))?;
    drop(previous);
    let earlier = Releases::new(lifetimes::open_previous(options)?, &sources);
    let dictionaries = dictionaries::store(
        (&sources, &stored.contents),
        options,
        &earlier,
        &mut target,
        progress,
    )?;
    let mut carry = Carry::new(options, &sources, unix_now())?;
    let warning = not_utf8(&sources, &stored.not_utf8);
    sources.warnings.extend(warning);
    let hosts = std::mem::take(&mut sources.hosts);
    store_rules(&hosts, &mut writer);
    let no_host = SourceHost::default();
    let mut site = SiteBuilder::new(options, &no_host, unix_now());
    site.dictionaries = dictionaries;
    if options.csp.is_some() {
        let (needs, warnings) = script_needs::find(&sources)?;
        site.script_needs = needs;
        sources
            .warnings
            .extend(warnings.into_iter().map(Warning::from));
    }
    for host in &hosts {
        site.begin(host);
        site.add_files(&sources, &stored.contents, &mut writer, &mut output)?;
        carry.add_host(host, &earlier, &site, &mut writer, &mut output)?;
        let warnings = host_warnings(host, &site, options, sources.of_host(host.number));
        sources.warnings.extend(warnings);
    }
    sources.warnings.extend(site_warnings(&site, &carry));
    let stamps = std::mem::take(&mut sources.stamps);
    let mut report = PackReport {
        output: options.output.clone(),
        alias_count: site.alias_count,
        redirect_count: site.redirect_count,
        listing_count: site.listing_count,
        reused_count: stored.reused_count,
        dictionary_count: site.dictionaries.file_count(),
        carried_count: carry.count,
        carried_bytes: carry.bytes,
        ..PackReport::of(sources, &stored.contents)
    };
    // Frees memory: on a large site these are large, and so is the next step.
    drop(site);
    drop(stored);
    let spooled = || spool_error.check();
    let (archive_bytes, build_id) = publish(output, writer, spooled, (options, signer))?;
    report.archive_bytes = archive_bytes;
    report.build_id = build_id;
    let kept = memory.keep(options, stamps, &build_id);
    report.warnings.extend(kept.map(Warning::from));
    report.elapsed = started.elapsed();
    Ok(report)
}

/// A writer with the sections that do not depend on files.
fn writer(options: &PackOptions, sources: &Sources, spool: DiskSpool) -> Writer {
    let mut writer = Writer::with_spool(options.archive_options(), Box::new(spool));
    writer.pack_metadata_from(PACKED_FROM);
    let recipe = Recipe::new(&options.encoders, &options.compressible);
    writer.set_section(SectionKind::Recipe, recipe.to_section());
    let lifetimes = sources.lifetimes.to_text(LIFETIMES_LISTED_MAX);
    writer.set_section(SectionKind::Lifetimes, lifetimes.into_bytes());
    writer.set_index_names(options.routing.own_index_names());
    writer
}

/// What an author may want to correct of a host with these files.
fn host_warnings(
    host: &SourceHost,
    site: &SiteBuilder<'_>,
    options: &PackOptions,
    files: &[Source],
) -> Vec<Warning> {
    let has_content = |path: &[u8]| site.has_content(path);
    let folder = host.folder.display();
    let mut warnings = Vec::new();
    let is_fallback = |fallback: &Fallback| {
        fallback.kind.status(b"/", true) == Some(Status::OK)
            && site.has_content(&[b"/", fallback.name.as_slice()].concat())
    };
    let has_fallback = options.routing.fallbacks.iter().any(is_fallback);
    if !site.has_content(b"/") && !host.rules.answer(b"/") && !has_fallback {
        let names = options.routing.index_names.iter();
        let name = names.map(|name| String::from_utf8_lossy(name)).next();
        let text = format!(
            "'{folder}' has no {}: '/' is answered with 404; is the site in a folder below it?",
            name.unwrap_or_default(),
        );
        warnings.push(text.into());
    }
    if options.spa && !files.iter().any(|source| source.file.url == FRONT_PAGE) {
        let text = format!("'{folder}' has no index.html to serve");
        warnings.push(Warning::with(text, Remedy::NoApplication));
    }
    let problems = host.rules.lint(&has_content).into_iter();
    let shown = problems.map(|problem| problem.of_site(&host.folder).to_string().into());
    warnings.extend(shown);
    warnings
}

/// The same of all hosts together.
fn site_warnings(site: &SiteBuilder<'_>, carry: &Carry) -> Vec<Warning> {
    let broken = broken_pages(&site.broken_pages).map(Warning::from);
    let further = [
        broken,
        foreign_scripts(&site.foreign_scripts),
        carry.warning(),
    ];
    let claims = site.double_claims.warnings().into_iter();
    let further = further.into_iter().flatten();
    further.chain(claims.map(Warning::from)).collect()
}

/// Finishes, signs and publishes an archive. Returns its length and build identifier.
fn publish(
    mut output: Output,
    writer: Writer,
    spooled: impl FnOnce() -> io::Result<()>,
    (options, signer): (&PackOptions, Option<&Signer>),
) -> Result<(u64, [u8; 32]), PackError> {
    let refuse = |error| PackError::Archive(options.output.clone(), error);
    let (mut finished, written) = output.finish(writer).map_err(refuse)?;
    written
        .and_then(|()| spooled())
        .map_err(PackError::io(WRITE, &options.output))?;
    if let Some(signer) = signer {
        signer.sign(&mut finished)?;
    }
    output.reopen(&finished)?.map_err(refuse)?;
    let len = output.pack_metadata(&finished);
    let len = len.map_err(PackError::io(WRITE, &options.output))?;
    output.publish(&finished)?;
    let superblock = Superblock::parse(&finished.superblock, finished.file_len).map_err(refuse)?;
    Ok((len, *superblock.build_id()))
}

/// Performs the checks of [`pack`] without reading contents, compressing or writing: every file can
/// be opened, rules and patterns are valid, the key can sign, and the archive can be created.
///
/// # Errors
/// As for [`pack`].
pub fn check(options: &PackOptions) -> Result<(), PackError> {
    options.sign.as_deref().map(Signer::open).transpose()?;
    prepare(options)?;
    let (tree, hosts) = host::walk_all(options, &mut NoProgress)?;
    if tree.files.is_empty() && hosts.iter().all(|host| host.rules.is_empty()) {
        return Err(PackError::Empty(options.source.clone()));
    }
    for file in &tree.files {
        sources::open(&file.path)?;
    }
    // The temporary file is removed on drop.
    Output::create(&options.output).map(drop)
}

/// Done before any work.
fn prepare(options: &PackOptions) -> Result<Types, PackError> {
    let types = types(options)?;
    memory::check(options)?;
    lifetimes::open_previous(options)?;
    Ok(types)
}

/// Stores the names of the hosts and their rules; a site without hosts has only its own rules.
fn store_rules(hosts: &[SourceHost], writer: &mut Writer) {
    if let [only] = hosts
        && only.name.is_none()
    {
        return only.rules.store(writer);
    }
    let names = hosts.iter().filter_map(|host| host.name.as_deref());
    writer.set_hosts(names.map(str::as_bytes));
    let rules = hosts.iter().map(|host| (host.number, host.rules.compile()));
    let rules: Vec<_> = rules
        .filter(|(_, (redirects, fields))| !redirects.is_empty() || !fields.is_empty())
        .collect();
    writer.set_host_rules(rules.iter().map(|(number, (redirects, fields))| {
        let rules = HostRules { redirects, fields };
        (*number, rules)
    }));
}

/// Warns about text that browsers would decode incorrectly.
fn not_utf8(sources: &Sources, contents: &[usize]) -> Option<Warning> {
    let is_ruled = |file: &SourceFile| {
        let host = sources.hosts.iter().find(|host| host.number == file.host);
        let changes = host.and_then(|host| host.rules.changes(&file.url));
        changes.is_some_and(|it| it.touch("content-type") || it.touch("content-encoding"))
    };
    // The same bytes may be text under one name and data under another.
    let mut found = sources.files.iter().filter(|source| {
        contents.binary_search(&source.content).is_ok()
            && source.content_type.ends_with("charset=utf-8")
            && !stored_coding::is_possible(&source.file.url)
            && !is_ruled(&source.file)
    });
    let first = sources.shown(found.next()?);
    let count = 1 + found.count();
    let text = format!("text that is sent as UTF-8, but is not UTF-8: {count}, such as '{first}'");
    Some(Warning::with(text, Remedy::Types))
}

/// Warns about pages that their content security policy would break.
fn broken_pages(pages: &[String]) -> Option<String> {
    let first = pages.first()?;
    Some(format!(
        "pages that a content security policy would break (event handlers, 'style=' attributes, \
         'javascript:' links), or whose markup takes too many steps to read: {}, such as '{first}'",
        pages.len()
    ))
}

/// Warns about pages with scripts of other hosts, which may load resources that no page shows.
fn foreign_scripts(origins: &BTreeSet<String>) -> Option<Warning> {
    let first = origins.first()?;
    let text = format!(
        "the content security policy cannot know what scripts of other hosts load or run: {}, such \
         as '{first}'",
        origins.len()
    );
    Some(Warning::with(text, Remedy::ReportOnly))
}

/// The table of content types. Pairs are checked one by one, to name the invalid one.
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
