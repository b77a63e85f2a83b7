//! `gannet extract`: writes the files of an archive into a directory.

use std::path::PathBuf;

use clap::ArgMatches;
use gannet_site::archive::{self, ExtractOptions};

use super::{print, text};
use crate::messages::{Failure, printable};
use crate::quantities::{counted, size};

/// Extracts, and prints the totals and the command that packs the files again.
///
/// # Errors
/// The archive cannot be read, or a file cannot be written.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let options = ExtractOptions {
        archive: super::archive(matches),
        output: PathBuf::from(text(matches, "output")),
    };
    let report = archive::extract(&options)?;
    let shown = printable(&options.output.to_string_lossy());
    let (files, bytes) = (counted(report.file_count, "file"), size(report.bytes));
    let hint = match report.pack_flags.as_slice() {
        [] => String::new(),
        flags => format!("; pack it with '{}'", flags.join(" ")),
    };
    print(&format!("{shown}: {files}, {bytes}{hint}\n"))
}
