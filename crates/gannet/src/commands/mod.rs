//! The commands: each reads its arguments, calls a library, and reports the outcome.

pub mod acme;
pub mod bundle;
pub mod cat;
pub mod check;
pub mod compress;
mod destination;
pub mod dev;
pub mod diff;
pub mod doctor;
pub mod explain;
pub mod extract;
mod failure;
pub mod follow;
pub mod get;
pub mod health;
pub mod help;
mod host_entries;
pub mod inspect;
pub mod install;
pub mod keygen;
pub mod ls;
pub mod pack;
mod part;
pub mod password;
pub mod publish;
pub mod receive;
pub mod releases;
mod removal;
pub mod rollback;
pub mod serve;
mod stores;
#[cfg(feature = "fleet")]
mod supply;
pub mod verify;
pub mod version;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use gannet_store::{Pointer, Store, StoreError};

use crate::command_line::commands::all_flags;
use crate::command_line::config_file::{self, ConfigFile};
use crate::command_line::flag::Flag;
use crate::command_line::layers::{self, CONFIG_VARIABLE, Origins};
use crate::command_line::values;
use crate::messages::{Exit, Failure, printable};

/// Writes to standard output; a closed pipe is success.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(text: &str) -> Result<u8, Failure> {
    write(|out| out.write_all(text.as_bytes()))
}

/// The same for text written in pieces.
///
/// # Errors
/// Standard output cannot be written.
pub fn write(text: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<u8, Failure> {
    stream(|out| text(out).map_err(Failure::from_output))
}

/// A required argument.
#[must_use]
pub fn text<'a>(matches: &'a ArgMatches, name: &str) -> &'a OsString {
    matches
        .get_one::<OsString>(name)
        .expect("clap has refused a command line without it")
}

/// Lets a command write to standard output.
fn stream(command: impl FnOnce(&mut dyn Write) -> Result<(), Failure>) -> Result<u8, Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    command(&mut out)?;
    out.flush().map_err(Failure::from_output)?;
    Ok(0)
}

/// The same for a command that returns a verdict: true exits with status 1; if the command fails,
/// the status is 2.
fn judge(command: impl FnOnce(&mut dyn Write) -> Result<bool, Failure>) -> Result<u8, Failure> {
    let mut judgement = false;
    let written = stream(|out| {
        judgement = command(out)?;
        Ok(())
    });
    written.map_err(|failure| match failure.exit {
        Exit::ReaderGone => failure,
        _ => failure.as_usage(),
    })?;
    Ok(u8::from(judgement))
}

/// The archive that is named; of a store, the release in force.
fn archive(matches: &ArgMatches) -> Result<PathBuf, Failure> {
    archive_at(PathBuf::from(text(matches, "archive")))
}

/// The same for a path that is neither a site nor a draft of one.
fn archive_at(path: PathBuf) -> Result<PathBuf, Failure> {
    let path = in_force(path)?;
    // A folder can only be a store, into which this user may be unable to look.
    if path.is_dir()
        && let Err(error @ StoreError::Io(_)) = Store::open(&path, None)
    {
        return Err(error.into());
    }
    Ok(path)
}

/// The file of the release in force if the path is a store, else the path itself. Of a release on demand, the file of
/// the part that is here.
pub(crate) fn in_force(path: PathBuf) -> Result<PathBuf, Failure> {
    file_in_force(path, Store::release_file)
}

/// The same. Of a whole release, `find` makes sure that it is what the pointer names.
fn file_in_force(
    path: PathBuf,
    find: impl FnOnce(&Store, &Pointer) -> Result<PathBuf, StoreError>,
) -> Result<PathBuf, Failure> {
    if !Store::is_store(&path) {
        return Ok(path);
    }
    let store = Store::open(&path, None)?;
    let pointer = store.pointer()?;
    if pointer.is_expired(stores::now()) {
        Failure::from(StoreError::Expired(store.pointer_path(), pointer.serial)).report();
    }
    let part = store.partial_path(pointer.release);
    match store.file_of(pointer.release) == part {
        // It is refused for what it is, if it is not enough.
        true => Ok(part),
        false => Ok(find(&store, &pointer)?),
    }
}

/// All values of an argument.
fn texts(matches: &ArgMatches, name: &str) -> Vec<String> {
    let values = matches.get_many::<OsString>(name).unwrap_or_default();
    values.map(|it| it.to_string_lossy().into_owned()).collect()
}

/// The public key that signatures are checked with, if one is named.
fn public_key(matches: &ArgMatches) -> Result<Option<String>, Failure> {
    let Some(key) = matches.get_one::<OsString>("public-key") else {
        return Ok(None);
    };
    let shown = printable(&key.to_string_lossy());
    let read = key.to_str().ok_or("not UTF-8".to_owned());
    let read = read.and_then(values::public_key).map_err(|cause| {
        Failure::usage(format!("cannot use '--public-key {shown}': {cause}"))
            .help("give the line of Base64 in the .pub file, or the name of that file")
    });
    read.map(Some)
}

/// The value of [`SOURCE_DATE_EPOCH`] in Unix seconds, if it is set.
fn source_date_epoch() -> Result<Option<i64>, Failure> {
    let Some(value) = std::env::var_os(SOURCE_DATE_EPOCH).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(seconds) => Ok(Some(seconds)),
        None => {
            let object = format!("{SOURCE_DATE_EPOCH}={}", value.to_string_lossy());
            Err(Failure::new("use", object, "not a number of seconds")
                .as_usage()
                .help("give seconds since 1970, such as $(git log -1 --format=%ct)"))
        }
    }
}

/// Rejects a list of trusted certificates if any certificate is accepted.
fn check_trust(is_insecure: bool, cacert: Option<&PathBuf>) -> Result<(), Failure> {
    match is_insecure && cacert.is_some() {
        false => Ok(()),
        true => {
            Err(Failure::usage("--cacert has no effect with --insecure")
                .help("leave one of them out"))
        }
    }
}

/// The configuration file that the command line or the environment names.
fn config_path<'a>(
    matches: &'a ArgMatches,
    environment: &'a layers::Environment,
) -> Option<&'a OsString> {
    let named = matches.get_one::<OsString>("config");
    let named = named.or_else(|| environment.get(CONFIG_VARIABLE));
    named.filter(|path| !path.is_empty())
}

/// The settings of a command, merged from all layers.
fn resolve<S: Default>(
    flags: &'static [Flag<S>],
    section: &'static str,
    matches: &ArgMatches,
) -> Result<(S, Origins), Failure> {
    let (settings, origins, _) = resolve_with_file(flags, section, matches)?;
    Ok((settings, origins))
}

/// As [`resolve`], with the configuration file that was read.
fn resolve_with_file<S: Default>(
    flags: &'static [Flag<S>],
    section: &'static str,
    matches: &ArgMatches,
) -> Result<(S, Origins, ConfigFile), Failure> {
    let known = all_flags();
    let environment = layers::environment();
    layers::refuse_retired(&environment)?;
    for warning in layers::suspicious_variables(&environment, &known) {
        warning.report();
    }
    let file = match config_path(matches, &environment) {
        Some(path) => config_file::read(Path::new(path), &known)?,
        None => ConfigFile::default(),
    };
    let (settings, origins) = layers::resolve(flags, section, matches, &environment, &file)?;
    Ok((settings, origins, file))
}

/// The environment variable that conventionally makes builds reproducible
/// (<https://reproducible-builds.org/specs/source-date-epoch/>).
const SOURCE_DATE_EPOCH: &str = "SOURCE_DATE_EPOCH";
