//! `gannet pack`: the settings become options, the report becomes a table.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use gannet_archive::Coding;
use gannet_content::policy::csp::PolicyOptions;
use gannet_content::rules::Compat;

use crate::command_line::pack_flags::PackSettings;
use crate::import;
use crate::messages::{Failure, cause, printable};
use crate::pack::{
    self, Bar, BuildMemory, Compressible, Encoder, NoProgress, PackOptions, PackReport, Progress,
};
use crate::removal::{RemovalOnSignal, remove_folder};
use crate::serve::Terminal;

/// The environment variable by which builds are made repeatable everywhere
/// (<https://reproducible-builds.org/specs/source-date-epoch/>).
const SOURCE_DATE_EPOCH: &str = "SOURCE_DATE_EPOCH";

/// What the settings ask for.
///
/// # Errors
/// No name for the archive can be made from the directory's, or the environment is wrong.
pub fn options(directory: &Path, mut settings: PackSettings) -> Result<PackOptions, Failure> {
    let kind = check_source(directory)?;
    if kind == Some(import::Kind::Kawipiko) {
        settings.site.compat.get_or_insert(Compat::Kawipiko);
    }
    let output = match settings.output {
        Some(output) => output,
        None => output_name(directory)?,
    };
    let has_gzip = settings.compress.iter().any(|(it, _)| *it == Coding::Gzip);
    if settings.drop_identity && !has_gzip {
        return Err(
            Failure::usage("--drop-identity needs gzip, which --compress leaves out")
                .help("add gzip to --compress: it is what bodies are inflated from"),
        );
    }
    Ok(PackOptions {
        source: directory.to_owned(),
        hosts: settings.hosts,
        output,
        encoders: Encoder::chosen(&settings.compress, settings.effort),
        drop_identity: settings.drop_identity,
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
        exclude: settings.exclude,
        include: settings.include,
        previous: settings.previous,
        sign: settings.sign,
        memory: BuildMemory {
            keeps_archives: settings.cache.is_some(),
            folder: settings.cache.or_else(cache_folder),
            verify_sources: settings.verify_sources,
            is_fresh: settings.fresh,
        },
        types: settings.types,
        threads: settings.threads,
        source_date_epoch: source_date_epoch()?,
    })
}

/// Packs with a bar on a terminal; gives the table, or nothing when quiet.
///
/// # Errors
/// Packing failed.
pub fn run(directory: &Path, settings: PackSettings) -> Result<String, Failure> {
    let quiet = settings.quiet;
    let list_skipped = settings.list_skipped;
    let colour = Terminal::look(settings.colour).colour;
    let mut options = options(directory, settings)?;
    let unfinished = pack::temporary_of(&options.output);
    let folder = Scratch::path_beside(&options.output);
    let _removal = RemovalOnSignal::by(move || {
        // What is not there, or cannot be removed, does not keep the process alive.
        let _ = unfinished.as_ref().map(std::fs::remove_file);
        remove_folder(&folder);
    })?;
    let imported = imported(directory, &options.output)?;
    if let Some(imported) = &imported {
        options.source = imported.scratch.path().to_path_buf();
        // Inodes and times of what was just unpacked tell nothing about its content.
        options.memory.verify_sources = true;
    }
    let mut bar = Bar::new();
    let mut nothing = NoProgress;
    let watched = !quiet && io::stderr().is_terminal();
    let progress: &mut dyn Progress = if watched { &mut bar } else { &mut nothing };
    let packed = pack::pack(&options, progress).map_err(Failure::from);
    let report = match &imported {
        Some(imported) => imported.told(directory, packed, options.hosts)?,
        None => packed?,
    };
    Ok(if quiet {
        String::new()
    } else {
        report.table(colour, list_skipped)
    })
}

/// Unpacks an archive of another kind beside the output, if that is what is to be packed.
fn imported(source: &Path, output: &Path) -> Result<Option<Imported>, Failure> {
    let is_file = std::fs::metadata(source).is_ok_and(|it| it.is_file());
    if !is_file {
        return Ok(None);
    }
    let refuse = |error: io::Error| Failure::new("import", source.display(), cause(&error));
    let Some(kind) = import::kind_of(source).map_err(refuse)? else {
        return Ok(None);
    };
    let scratch = Scratch::beside(output)?;
    let unpacked =
        import::unpack(source, kind, scratch.path()).map_err(|error| error.failure(source))?;
    for left_out in &unpacked.left_out {
        eprintln!("gannet: left out {}", printable(left_out));
    }
    Ok(Some(Imported {
        only_folder: unpacked.only_folder,
        scratch,
    }))
}

/// An archive of another kind, unpacked.
struct Imported {
    scratch: Scratch,
    /// The folder that all its files are in.
    only_folder: Option<String>,
}

impl Imported {
    /// What is told of packing, in the words of who packs the archive `source`: not of a directory
    /// that nobody can look into later.
    fn told(
        &self,
        source: &Path,
        packed: Result<PackReport, Failure>,
        hosts: bool,
    ) -> Result<PackReport, Failure> {
        let (from, to) = (self.scratch.path(), source.display().to_string());
        // As rules files are named: without `./`.
        let shown = from.strip_prefix(".").unwrap_or(from).display().to_string();
        let in_archive = |text: &str| {
            text.replace(&*from.to_string_lossy(), &to)
                .replace(&shown, &to)
        };
        let mut report = packed.map_err(|failure| Failure {
            message: in_archive(&failure.message),
            ..failure
        })?;
        for warning in &mut report.warnings {
            *warning = in_archive(warning);
        }
        for skipped in &mut report.skipped {
            if let Ok(inner) = skipped.path.strip_prefix(from) {
                skipped.path = source.join(inner);
            }
        }
        // With hosts, the folder is the name of one.
        if let Some(folder) = self.only_folder.as_ref().filter(|_| !hosts) {
            report.warnings.push(format!(
                "all files of '{to}' are in its folder '{folder}', and their paths begin with \
                 '/{folder}/'; to have them at '/': 'gannet import {to} -o DIR', then 'gannet \
                 pack DIR/{folder}'"
            ));
        }
        Ok(report)
    }
}

/// A directory that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn beside(output: &Path) -> Result<Self, Failure> {
        let path = Self::path_beside(output);
        std::fs::create_dir(&path)
            .map_err(|error| Failure::new("create", path.display(), cause(&error)))?;
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
        // What cannot be removed is left: the archive is what counts.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Names what is wrong with the directory before anything else is said about it; what it is if it
/// is an archive of another kind.
fn check_source(directory: &Path) -> Result<Option<import::Kind>, Failure> {
    let refuse = |cause: String, help: &str| {
        Err(Failure::new("pack", directory.display(), cause).help(help))
    };
    match std::fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => Ok(None),
        Ok(_) => match import::kind_of(directory) {
            Ok(Some(kind)) => Ok(Some(kind)),
            Ok(None) => refuse(
                "neither a directory nor a zip, tar or kawipiko archive".into(),
                SOURCE_HELP,
            ),
            Err(error) => refuse(cause(&error), "make it readable for this user"),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => refuse(cause(&error), SOURCE_HELP),
        Err(error) => refuse(cause(&error), "make it readable for this user"),
    }
}

const SOURCE_HELP: &str = "name the folder that holds the site: 'gannet pack DIR -o site.gannet'; \
    many generators write it to 'public', 'dist', '_site' or 'build'";

/// `site.gannet` in the working directory, for `./dist/site/` as for `.` inside of it.
fn output_name(directory: &Path) -> Result<PathBuf, Failure> {
    let full = directory.canonicalize().map_err(|error| {
        Failure::new("pack", directory.display(), cause(&error)).help("check the path")
    })?;
    // `site.zip` is the site 'site'.
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

/// `gannet` in the user's cache directory (XDG Base Directory Specification); none where there is
/// no home, as in some containers.
fn cache_folder() -> Option<PathBuf> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(cache.join("gannet"))
}

fn source_date_epoch() -> Result<Option<i64>, Failure> {
    let Some(value) = std::env::var_os(SOURCE_DATE_EPOCH).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(seconds) => Ok(Some(seconds)),
        None => {
            let object = format!("{SOURCE_DATE_EPOCH}={}", value.to_string_lossy());
            Err(Failure::new("use", object, "not a number of seconds").as_usage())
        }
    }
}
