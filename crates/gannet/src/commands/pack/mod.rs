//! `gannet pack`: the settings become options, the report becomes a table.

mod effects;
pub(super) mod progress;
mod table;

use std::io;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use gannet_archive::is_decodable;
use gannet_content::policy::csp::PolicyOptions;
use gannet_content::rules::Compat;
use gannet_server::notices::ERRORS;
use gannet_site::import;
use gannet_site::pack::{
    self, BuildMemory, Compressible, Encoder, NoProgress, PackError, PackOptions, PackReport,
    Signer,
};

use super::removal::{RemovalOnSignal, remove_folder, unpack};
use super::serve::content_kind::is_archive;
use super::serve::output::Terminal;
use super::{archive_at, file_in_force, print, resolve, text};
use crate::command_line::commands::PACK_SECTION;
use crate::command_line::layers::Origins;
use crate::command_line::pack_flags::{PACK_FLAGS, PackSettings};
use crate::messages::{Failure, cause, printable};

/// Converts the settings to packing options.
fn options(
    directory: &Path,
    mut settings: PackSettings,
    origins: &Origins,
) -> Result<PackOptions, Failure> {
    let effort = effects::effort(&settings, origins)?;
    let kind = check_source(directory)?;
    if kind == Some(import::Kind::Kawipiko) {
        settings.site.compat.get_or_insert(Compat::Kawipiko);
    }
    let output = match settings.output {
        Some(output) => output,
        None => output_name(directory)?,
    };
    check_output(&output)?;
    check_replaced(&output)?;
    let mut codings = settings.compress.iter().map(|(coding, _)| *coding);
    if settings.drop_identity && !codings.any(is_decodable) {
        return Err(Failure::usage(
            "--drop-identity needs gzip or br, and --compress leaves out both",
        )
        .help("add one to --compress: the server decompresses it for clients that need that"));
    }
    if settings.carry.is_some() && settings.previous.is_empty() {
        return Err(
            Failure::usage("--carry has no effect without an earlier release")
                .help("name its archive with --previous"),
        );
    }
    let previous = settings.previous.into_iter().map(|path| {
        let path = file_in_force(path, gannet_store::Store::intact_file)?;
        archive_at(path)
    });
    Ok(PackOptions {
        source: directory.to_owned(),
        hosts: settings.hosts,
        output,
        encoders: Encoder::chosen(&settings.compress, effort),
        drop_identity: settings.drop_identity,
        compressed_only: settings.compressed_only,
        compressible: Compressible::new(settings.compress_types),
        spa: settings.spa,
        listing: settings.listing,
        clean_urls: settings.clean_urls,
        routing: settings.site.routing(),
        defaults: settings.site.defaults(),
        repr_digest: settings.repr_digest,
        csp: settings.csp.map(|is_enforced| PolicyOptions {
            is_enforced,
            ..PolicyOptions::default()
        }),
        dotfiles: settings.dotfiles,
        follow_links: settings.follow_links,
        exclude: settings.exclude,
        include: settings.include,
        previous: previous.collect::<Result<_, _>>()?,
        carry: settings.carry,
        sign: settings.sign,
        memory: BuildMemory {
            keeps_archives: settings.cache.is_some(),
            folder: settings.cache.or_else(cache_folder),
            verify_sources: settings.verify_sources,
            is_fresh: settings.fresh,
        },
        types: settings.types,
        threads: settings.threads,
        source_date_epoch: super::source_date_epoch()?,
    })
}

/// Packs with a progress bar on a terminal, and prints the table unless quiet.
///
/// # Errors
/// Packing failed.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let (settings, origins) = resolve(PACK_FLAGS, PACK_SECTION, matches)?;
    let directory = Path::new(text(matches, "directory"));
    if matches.get_flag("check-config") {
        check(directory, settings, &origins)?;
        return print("the configuration is valid\n");
    }
    let shown = Shown::of(&settings);
    let report = build(directory, settings, &origins, None)?;
    shown.print(&report)
}

/// Checks a configuration, and the rules of the site.
///
/// # Errors
/// What packing would refuse.
pub(super) fn check(
    source: &Path,
    settings: PackSettings,
    origins: &Origins,
) -> Result<(), Failure> {
    let job = Job::begin(source, settings, origins)?;
    job.explained(pack::check(&job.options))?;
    Ok(())
}

/// What of a report is shown, and how.
pub(super) struct Shown {
    quiet: bool,
    colour: bool,
    list_skipped: bool,
}

impl Shown {
    pub(super) fn of(settings: &PackSettings) -> Self {
        Self {
            quiet: settings.quiet,
            colour: Terminal::look(settings.colour).colour,
            list_skipped: settings.list_skipped,
        }
    }

    /// Prints the table, unless quiet.
    pub(super) fn print(&self, report: &PackReport) -> Result<u8, Failure> {
        self.text(&table::table(report, self.colour, self.list_skipped))
    }

    /// Prints a text, unless quiet.
    pub(super) fn text(&self, text: &str) -> Result<u8, Failure> {
        match self.quiet {
            true => Ok(0),
            false => print(text),
        }
    }

    /// Only the warnings, one per line.
    pub(super) fn warnings(&self, report: &PackReport) -> String {
        table::warnings(report, self.colour)
    }
}

/// Packs, with a key that has been opened or that of the settings.
pub(super) fn build(
    source: &Path,
    settings: PackSettings,
    origins: &Origins,
    signer: Option<&Signer>,
) -> Result<PackReport, Failure> {
    let quiet = settings.quiet;
    // Explicit levels mean that the user has already chosen.
    let levels = settings.compress.iter().any(|(_, level)| level.is_some());
    let offers_fast = !settings.fast && !levels;
    let job = Job::begin(source, settings, origins)?;
    let mut shown = match quiet {
        true => Box::new(NoProgress),
        false => progress::shown(offers_fast),
    };
    let packed = match signer {
        Some(signer) => pack::pack_signed(&job.options, Some(signer), &mut *shown),
        None => pack::pack(&job.options, &mut *shown),
    };
    let packed = job.explained(packed)?;
    Ok(match &job.imported {
        Some(imported) => imported.report(source, packed, job.options.hosts),
        None => packed,
    })
}

/// A prepared pack operation.
struct Job {
    source: PathBuf,
    options: PackOptions,
    /// The unpacked source, if it is a foreign archive.
    imported: Option<Imported>,
    _removal: RemovalOnSignal,
}

impl Job {
    fn begin(source: &Path, settings: PackSettings, origins: &Origins) -> Result<Self, Failure> {
        let mut options = options(source, settings, origins)?;
        let unfinished = pack::temporary_of(&options.output);
        let folder = Scratch::path_beside(&options.output);
        let removal = RemovalOnSignal::by(move || {
            // A file that is missing or cannot be removed must not keep the process alive.
            let _ = unfinished.as_ref().map(std::fs::remove_file);
            remove_folder(&folder);
        })?;
        let imported = imported(source, &options.output)?;
        if let Some(imported) = &imported {
            options.source = imported.scratch.path().to_path_buf();
            // Inodes and times of files just unpacked do not identify their content.
            options.memory.verify_sources = true;
        }
        Ok(Self {
            source: source.to_path_buf(),
            options,
            imported,
            _removal: removal,
        })
    }

    /// Rewrites an error in terms of the source that the user named.
    fn explained<T>(&self, result: Result<T, PackError>) -> Result<T, Failure> {
        result.map_err(|error| {
            let failure = Failure::from(error);
            match &self.imported {
                Some(imported) => Failure {
                    message: imported.in_archive(&self.source, &failure.message),
                    ..failure
                },
                None => failure,
            }
        })
    }
}

/// Unpacks a foreign archive beside the output, if the source is one.
fn imported(source: &Path, output: &Path) -> Result<Option<Imported>, Failure> {
    let is_file = std::fs::metadata(source).is_ok_and(|it| it.is_file());
    if !is_file {
        return Ok(None);
    }
    let refuse = |error: io::Error| Failure::of_system("extract", source.display(), &error);
    let Some(kind) = import::kind_of(source).map_err(refuse)? else {
        return Ok(None);
    };
    let scratch = Scratch::beside(output)?;
    let unpacked = unpack(source, kind, scratch.path())?;
    for left_out in &unpacked.left_out {
        let left_out = printable(left_out);
        ERRORS.log(format_args!("gannet: left out {left_out}"));
    }
    Ok(Some(Imported {
        only_folder: unpacked.only_folder,
        scratch,
    }))
}

/// An unpacked foreign archive.
struct Imported {
    scratch: Scratch,
    /// The only top-level folder, if all files are in one.
    only_folder: Option<String>,
}

impl Imported {
    /// Rewrites a message in terms of the archive `source` that the user packs, since the temporary
    /// directory is removed afterwards.
    fn in_archive(&self, source: &Path, text: &str) -> String {
        let (from, to) = (self.scratch.path(), source.display().to_string());
        // Rules files are named without `./`.
        let shown = from.strip_prefix(".").unwrap_or(from).display().to_string();
        text.replace(&*from.to_string_lossy(), &to)
            .replace(&shown, &to)
    }

    /// Rewrites the messages in a report likewise.
    fn report(&self, source: &Path, mut report: PackReport, hosts: bool) -> PackReport {
        let (from, to) = (self.scratch.path(), source.display());
        for warning in &mut report.warnings {
            warning.text = self.in_archive(source, &warning.text);
        }
        for skipped in &mut report.skipped {
            if let Ok(inner) = skipped.path.strip_prefix(from) {
                skipped.path = source.join(inner);
            }
        }
        // With hosts, the folder is named after a host.
        if let Some(folder) = self.only_folder.as_ref().filter(|_| !hosts) {
            let text = format!(
                "all files of '{to}' are in its folder '{folder}', so their paths begin with \
                 '/{folder}/'; to serve them at '/': 'gannet extract {to} -o DIR', then 'gannet \
                 pack DIR/{folder}'"
            );
            report.warnings.push(text.into());
        }
        report
    }
}

/// A directory that is removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn beside(output: &Path) -> Result<Self, Failure> {
        let path = Self::path_beside(output);
        std::fs::create_dir(&path)
            .map_err(|error| Failure::of_system("create", path.display(), &error))?;
        Ok(Self(path))
    }

    fn path_beside(output: &Path) -> PathBuf {
        let mut name = std::ffi::OsString::from(".");
        name.push(output.file_name().unwrap_or_default());
        name.push(format!(".import-{}", std::process::id()));
        output.with_file_name(name)
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Failure is ignored: the archive is what counts.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Rejects an unusable source before any work is done; returns the kind if it is a foreign archive.
fn check_source(directory: &Path) -> Result<Option<import::Kind>, Failure> {
    let refuse = |cause: String| Failure::new("pack", directory.display(), cause).help(SOURCE_HELP);
    let fail = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput => refuse(cause(&error)),
        io::ErrorKind::PermissionDenied => {
            refuse(cause(&error)).help("make it readable for this user")
        }
        _ => Failure::of_system("pack", directory.display(), &error),
    };
    if std::fs::metadata(directory).map_err(fail)?.is_dir() {
        return Ok(None);
    }
    if is_archive(directory).map_err(fail)? {
        let shown = printable(&directory.to_string_lossy());
        return Err(refuse("it is packed already: a gannet archive".into())
            .help(format!("'gannet extract {shown} -o DIR' writes its files")));
    }
    let kind = import::kind_of(directory).map_err(fail)?;
    kind.map(Some)
        .ok_or_else(|| refuse("neither a directory nor a zip, tar or kawipiko archive".into()))
}

/// Reports a missing output folder before anything is read.
fn check_output(output: &Path) -> Result<(), Failure> {
    let folder = output.parent().filter(|it| !it.as_os_str().is_empty());
    let Some(folder) = folder.filter(|it| !it.exists()) else {
        return Ok(());
    };
    let shown = printable(&folder.to_string_lossy());
    let cause = format!("there is no folder '{shown}'");
    let help = format!("make it first: 'mkdir -p {shown}'");
    Err(Failure::new("write", output.display(), cause).help(help))
}

/// Refuses to replace a file that is not an archive, since a mistyped name would destroy it. Empty
/// files may be replaced.
fn check_replaced(output: &Path) -> Result<(), Failure> {
    if !std::fs::metadata(output).is_ok_and(|it| it.is_file() && it.len() > 0) {
        return Ok(());
    }
    let cause = match is_archive(output) {
        Ok(true) => return Ok(()),
        Ok(false) => "the existing file is not a gannet archive".to_owned(),
        Err(error) => format!("the existing file cannot be read: {}", cause(&error)),
    };
    Err(Failure::new("replace", output.display(), cause)
        .help("name another file with -o, or remove this one first"))
}

const SOURCE_HELP: &str = "name the folder that holds the site: 'gannet pack DIR -o site.gannet'; \
    many generators write it to 'public', 'dist', '_site' or 'build'";

/// `site.gannet` in the working directory, for `./dist/site/` as for `.` inside it.
fn output_name(directory: &Path) -> Result<PathBuf, Failure> {
    let full = directory.canonicalize().map_err(|error| {
        Failure::new("pack", directory.display(), cause(&error)).help("check the path")
    })?;
    // For `site.zip`, the name is 'site'.
    let name = match full.is_file() {
        true => full.file_stem(),
        false => full.file_name(),
    };
    let Some(name) = name else {
        return Err(
            Failure::usage("no name for the archive of the root directory")
                .help("name it with -o FILE"),
        );
    };
    let mut name = name.to_owned();
    name.push(".gannet");
    Ok(PathBuf::from(name))
}

/// `gannet` in the user's cache directory (XDG Base Directory Specification); `None` without a home
/// directory, as in some containers.
fn cache_folder() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("gannet"))
}
