//! `gannet extract`: writes the files of an archive into a directory, of a foreign one, too.

use std::io;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use gannet_content::routing::TrailingSlash;
use gannet_content::rules::Compat;
use gannet_server::notices::ERRORS;
use gannet_site::archive::{self, ExtractOptions};
use gannet_site::import::{self, Kind};
use gannet_site::pack::PackOptions;

use super::removal::{RemovalOnSignal, Unpacking, unpack};
use super::serve::content_kind::is_archive;
use super::{print, text};
use crate::messages::{Failure, printable};
use crate::quantities::{counted, size};

/// Extracts, and prints the totals and how to pack the files again.
///
/// # Errors
/// The archive cannot be read, or a file cannot be written.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let archive = super::archive(matches)?;
    let output = PathBuf::from(text(matches, "output"));
    let refuse = |error: io::Error| Failure::of_system("extract", archive.display(), &error);
    if archive.is_dir() || is_archive(&archive).map_err(refuse)? {
        return of_gannet(ExtractOptions { archive, output });
    }
    match import::kind_of(&archive).map_err(refuse)? {
        Some(kind) => of_others(&archive, kind, &output),
        None => Err(
            Failure::new("extract", archive.display(), "unknown kind of archive").help(
                "gannet extracts its own archives, zip, tar, tar.gz, tar.zst and those of kawipiko",
            ),
        ),
    }
}

/// Files of an archive of another kind. If one cannot be written, the directory is left as it was.
fn of_others(source: &Path, kind: Kind, output: &Path) -> Result<u8, Failure> {
    let unpacking = Unpacking::into(output);
    let stopped = unpacking.clone();
    let _removal = RemovalOnSignal::by(move || stopped.undo())?;
    unpacking.begin()?;
    let unpacked = unpack(source, kind, output).inspect_err(|_| unpacking.undo())?;
    for left_out in &unpacked.left_out {
        let left_out = printable(left_out);
        ERRORS.log(format_args!("gannet: left out {left_out}"));
    }
    let shown = printable(&output.to_string_lossy());
    let files = counted(unpacked.file_count, "file");
    let hint = match (kind, &unpacked.only_folder) {
        (Kind::Kawipiko, _) => "; pack it with '--compat kawipiko'".into(),
        (_, Some(folder)) => {
            let site = printable(&output.join(folder).to_string_lossy());
            format!("; all in one folder: the site may be '{site}'")
        }
        (_, None) => String::new(),
    };
    let (kind, bytes) = (kind.name(), size(unpacked.bytes));
    print(&format!("{shown}: {files}, {bytes}, from {kind}{hint}\n"))
}

fn of_gannet(options: ExtractOptions) -> Result<u8, Failure> {
    let report = archive::extract(&options)?;
    let shown = printable(&options.output.to_string_lossy());
    let (files, bytes) = (counted(report.file_count, "file"), size(report.bytes));
    let hint = match flags(&report.packing).as_slice() {
        [] => String::new(),
        flags => format!("; pack it with '{}'", flags.join(" ")),
    };
    print(&format!("{shown}: {files}, {bytes}{hint}\n"))
}

/// The flags of `gannet pack` for options of an archive that are not the default.
fn flags(options: &PackOptions) -> Vec<String> {
    let routing = &options.routing;
    let compat = routing.rules.filter(|it| *it != Compat::default());
    let flags = [
        options.hosts.then(|| "--hosts".to_owned()),
        options.spa.then(|| "--spa".to_owned()),
        options.listing.then(|| "--listing".to_owned()),
        (!options.clean_urls).then(|| "--no-clean-urls".to_owned()),
        options.dotfiles.then(|| "--dotfiles".to_owned()),
        (routing.rules.is_none()).then(|| "--no-rules".to_owned()),
        options.repr_digest.then(|| "--digest sha-256".to_owned()),
        match routing.trailing_slash {
            TrailingSlash::Auto => None,
            TrailingSlash::Always => Some("--trailing-slash always".to_owned()),
            TrailingSlash::Never => Some("--trailing-slash never".to_owned()),
            TrailingSlash::Off => Some("--trailing-slash off".to_owned()),
        },
        compat.map(|compat| format!("--compat {}", compat.name())),
    ];
    flags.into_iter().flatten().collect()
}
