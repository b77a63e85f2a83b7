//! `gannet pack`: the settings become options, the report becomes a table.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

use gannet_archive::Coding;
use gannet_content::policy::csp::PolicyOptions;
use gannet_content::rules::Compat;

use crate::command_line::pack_flags::PackSettings;
use crate::import;
use crate::messages::{Failure, cause, printable};
use crate::pack::{
    self, Bar, BuildMemory, Compressible, Encoder, NoProgress, PackOptions, Progress,
};
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
    let _removal = RemovalOnSignal::of(&options.output)
        .map_err(|error| Failure::new("handle", "SIGINT and SIGTERM", cause(&error)))?;
    let scratch = imported(directory, &options.output)?;
    if let Some(scratch) = &scratch {
        options.source = scratch.path().to_path_buf();
        // Inodes and times of what was just unpacked tell nothing about its content.
        options.memory.verify_sources = true;
    }
    let mut bar = Bar::new();
    let mut nothing = NoProgress;
    let watched = !quiet && io::stderr().is_terminal();
    let progress: &mut dyn Progress = if watched { &mut bar } else { &mut nothing };
    let report = pack::pack(&options, progress)?;
    Ok(if quiet {
        String::new()
    } else {
        report.table(colour, list_skipped)
    })
}

/// Unpacks an archive of another kind beside the output, if that is what is to be packed.
fn imported(source: &Path, output: &Path) -> Result<Option<Scratch>, Failure> {
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
    Ok(Some(scratch))
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

/// As long as it lives, SIGINT and SIGTERM remove what is unfinished before they end the process:
/// nothing is dropped then. They end it at once, however long a file still takes to compress.
struct RemovalOnSignal(Handle);

impl RemovalOnSignal {
    fn of(output: &Path) -> io::Result<Self> {
        let file = pack::temporary_of(output);
        let folder = Scratch::path_beside(output);
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let handle = signals.handle();
        std::thread::Builder::new()
            .name("gannet-signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    // What is not there, or cannot be removed, does not keep the process alive.
                    let _ = file.as_ref().map(std::fs::remove_file);
                    remove_folder(&folder);
                    let _ = emulate_default_handler(signal);
                }
            })?;
        Ok(Self(handle))
    }
}

impl Drop for RemovalOnSignal {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Removes a folder into which another thread may still be writing: that can make an attempt fail.
fn remove_folder(folder: &Path) {
    const ATTEMPTS: usize = 100;
    for _ in 0..ATTEMPTS {
        match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            _ => return,
        }
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
