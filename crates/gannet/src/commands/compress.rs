//! `gannet compress`: writes compressed copies beside the files of a directory.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use gannet_io::cause::FileError;
use gannet_server::notices::ERRORS;
use gannet_site::pack::encoders::parse_list;
use gannet_site::pack::sidecars::{self, SidecarOptions, SidecarReport, Unfinished, WRITE_COPY};
use gannet_site::pack::{Effort, Encoder, PackError, READ};

use super::pack::progress;
use super::removal::RemovalOnSignal;
use super::{print, text};
use crate::messages::{Failure, printable};
use crate::quantities::{counted, size};

/// Makes the copies, and prints what they save.
///
/// # Errors
/// The directory cannot be read, or has no room for copies.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let folder = PathBuf::from(text(matches, "directory"));
    let options = SidecarOptions {
        encoders: encoders(matches)?,
        is_forced: matches.get_flag("force"),
        folder: folder.clone(),
        into: matches.get_one::<OsString>("into").map(PathBuf::from),
    };
    let unfinished = Unfinished::default();
    let stopped = unfinished.clone();
    let _removal = RemovalOnSignal::by(move || stopped.remove_all())?;
    let mut shown = progress::shown(false);
    let report = sidecars::make(&options, &unfinished, &mut *shown);
    let report = report.map_err(|failed| match failed {
        PackError::NotADirectory(ref path) => {
            Failure::new("compress", path.display(), "not a directory")
                .help("name the folder that holds the files: 'gannet compress DIR'")
        }
        _ => explained(failed),
    })?;
    for warning in warnings(&report) {
        ERRORS.log(format_args!("gannet: {warning}"));
    }
    let text = summary(&folder, &report);
    let count = report.failed.len();
    for failed in report.failed.into_iter().take(FAILED_SHOWN) {
        explained(failed).report();
    }
    if let more @ 1.. = count.saturating_sub(FAILED_SHOWN) {
        ERRORS.log(format_args!("gannet: {more} more of this kind"));
    }
    let status = print(&text)?;
    Ok(if count > 0 { 1 } else { status })
}

/// Files that could not be read or have no copies, each with a line.
const FAILED_SHOWN: usize = 10;

fn explained(failed: PackError) -> Failure {
    match failed {
        PackError::Io(FileError {
            doing: READ,
            ref error,
            ..
        }) if error.kind() == ErrorKind::PermissionDenied => Failure::from(failed)
            .help("run it as a user who may read it, or leave it out by a line in .gannetignore"),
        PackError::PatternsLeadOut(_) => {
            Failure::from(failed).help("make it a file of the folder, or remove it")
        }
        PackError::Io(FileError {
            doing: WRITE_COPY,
            ref error,
            ..
        }) if error.kind() == ErrorKind::ReadOnlyFilesystem => Failure::from(failed)
            .help("write the copies elsewhere: '--into CACHE', and serve with '--compress CACHE/'"),
        PackError::Io(FileError {
            doing: WRITE_COPY,
            ref error,
            ..
        }) if error.kind() == ErrorKind::InvalidInput => {
            Failure::from(failed).help("keep the copies outside of that folder")
        }
        PackError::NoFile(..) => Failure::from(failed).help("make it a file, or remove it"),
        _ => failed.into(),
    }
}

/// The encoders of `--compress`, or one for each coding.
fn encoders(matches: &ArgMatches) -> Result<Vec<Encoder>, Failure> {
    let effort = Effort::default();
    let Some(typed) = matches.get_one::<OsString>("compress") else {
        return Ok(Encoder::all(effort));
    };
    let shown = printable(&typed.to_string_lossy());
    let wrong = |cause: String| {
        Failure::usage(format!("cannot use '--compress {shown}': {cause}"))
            .help("see 'gannet compress --help'")
    };
    let choices = parse_list(&typed.to_string_lossy()).map_err(wrong)?;
    match choices.is_empty() {
        true => Err(wrong("nothing is left to do".into())),
        false => Ok(Encoder::chosen(&choices, effort)),
    }
}

fn summary(folder: &Path, report: &SidecarReport) -> String {
    let shown = printable(&folder.to_string_lossy());
    let percent = match report.compressed_bytes {
        0 => String::new(),
        bytes => {
            let tenths = u128::from(report.best_bytes) * 1000 / u128::from(bytes);
            format!(" ({}.{} %)", tenths / 10, tenths % 10)
        }
    };
    format!(
        "{shown}: {}, {}; compressed: {}, {} to {}{percent}\n\
         copies: {} made, {} current, {} removed\n",
        counted(report.file_count, "file"),
        size(report.bytes),
        report.compressed_count,
        size(report.compressed_bytes),
        size(report.best_bytes),
        report.made_count,
        report.current_count,
        report.removed_count,
    )
}

fn warnings(report: &SidecarReport) -> impl Iterator<Item = String> {
    let kinds: [(Vec<&PathBuf>, &str, &str); 4] = [
        (
            report.foreign.iter().collect(),
            "not made by gannet, and left alone",
            "servers send such files as copies; --force replaces them, but for links and folders",
        ),
        (
            report.changed.iter().collect(),
            "changed while being read",
            "run it again when nothing is writing to them",
        ),
        (
            report.linked.iter().collect(),
            "behind links to folders or out of this one, without copies",
            "name the folder that a link leads to",
        ),
        (
            report.too_long.iter().collect(),
            "too long to be compressed",
            "64 MiB are the limit",
        ),
    ];
    kinds.into_iter().filter_map(|(paths, what, next)| {
        let first = printable(&paths.first()?.to_string_lossy());
        Some(format!(
            "{what}: {}, such as '{first}'; {next}",
            paths.len()
        ))
    })
}
