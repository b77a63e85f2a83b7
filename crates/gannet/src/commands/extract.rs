//! `gannet extract`: writes the files of an archive into a directory.

use std::path::PathBuf;

use clap::ArgMatches;
use gannet_content::routing::TrailingSlash;
use gannet_content::rules::Compat;
use gannet_site::archive::{self, ExtractOptions};
use gannet_site::pack::PackOptions;

use super::{print, text};
use crate::messages::{Failure, printable};
use crate::quantities::{counted, size};

/// Extracts, and prints the totals and the command that packs the files again.
///
/// # Errors
/// The archive cannot be read, or a file cannot be written.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let options = ExtractOptions {
        archive: super::archive(matches)?,
        output: PathBuf::from(text(matches, "output")),
    };
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
