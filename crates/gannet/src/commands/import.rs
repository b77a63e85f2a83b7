//! `gannet import`: writes the files of a foreign archive into a directory.

use std::io;
use std::path::PathBuf;

use clap::ArgMatches;
use gannet_server::notices::ERRORS;
use gannet_site::import::{self, Kind};

use super::removal::{RemovalOnSignal, Unpacking, unpack};
use super::serve::content_kind::is_archive;
use super::{print, text};
use crate::messages::{Failure, printable};
use crate::quantities::{counted, size};

/// Imports, and prints what was written.
///
/// # Errors
/// The archive cannot be read, or a file cannot be written; the directory is then left as it was.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let source = PathBuf::from(text(matches, "archive"));
    let output = PathBuf::from(text(matches, "output"));
    let refuse = |error: io::Error| Failure::of_system("import", source.display(), &error);
    if is_archive(&source).map_err(refuse)? {
        let shown = printable(&source.to_string_lossy());
        return Err(
            Failure::new("import", source.display(), "it is a gannet archive")
                .help(format!("'gannet extract {shown} -o DIR' writes its files")),
        );
    }
    let Some(kind) = import::kind_of(&source).map_err(refuse)? else {
        return Err(
            Failure::new("import", source.display(), "unknown kind of archive")
                .help("gannet imports zip, tar, tar.gz, tar.zst and kawipiko archives"),
        );
    };
    let unpacking = Unpacking::into(&output);
    let stopped = unpacking.clone();
    let _removal = RemovalOnSignal::by(move || stopped.undo())?;
    unpacking.begin()?;
    let unpacked = unpack(&source, kind, &output).inspect_err(|_| unpacking.undo())?;
    for left_out in &unpacked.left_out {
        let left_out = printable(left_out);
        ERRORS.tell(format_args!("gannet: left out {left_out}"));
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
