//! `gannet bundle`: makes an image for containers.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use clap::ArgMatches;
use gannet_http::semantics::date::DATE_MAX;
use gannet_site::bundle::{BundleOptions, Program, bundle};

use super::{archive_at, print, source_date_epoch, text};
use crate::components;
use crate::messages::{Failure, printable};
use crate::quantities::size;

/// Makes the image, and prints its name, its length, and how it is pushed or loaded.
///
/// # Errors
/// There is nothing to put into it, the program or the archive cannot be used, or the file cannot be
/// written.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let typed = matches.get_one::<OsString>("archive");
    let archive = typed.map(|it| archive_at(PathBuf::from(it))).transpose()?;
    let is_volume = matches.get_flag("no-program");
    if is_volume && archive.is_none() {
        return Err(
            Failure::usage("without ARCHIVE and program the image would be empty")
                .help("name an archive, or leave out --no-program"),
        );
    }
    let program = (!is_volume).then(own_program).transpose()?;
    let named = matches.get_one::<OsString>("name");
    let name = match (named, &archive, &program) {
        (Some(name), ..) => name.to_string_lossy().into_owned(),
        (None, None, Some(program)) => format!("gannet:{}", program.version),
        (None, ..) => "site:latest".into(),
    };
    let dated = archive
        .as_deref()
        .or(program.as_ref().map(|it| it.file.as_path()));
    let time = match source_date_epoch()? {
        Some(time) => u64::try_from(time).unwrap_or(0),
        None => dated.map_or(0, modified),
    };
    let output = PathBuf::from(text(matches, "output"));
    let report = bundle(&BundleOptions {
        program,
        archive,
        output: output.clone(),
        name,
        time: time.min(DATE_MAX.cast_unsigned()),
    })?;
    let file = printable(&output.to_string_lossy());
    let (len, name, digest) = (size(report.len), report.name, report.digest);
    print(&format!("{file}: {name}, {len}, sha256:{digest}\n"))
}

fn modified(path: &Path) -> u64 {
    let time = fs::metadata(path).and_then(|it| it.modified()).ok();
    let time = time.and_then(|it| it.duration_since(UNIX_EPOCH).ok());
    time.map_or(0, |it| it.as_secs())
}

/// This very program, with what it says about itself.
fn own_program() -> Result<Program, Failure> {
    let file = std::env::current_exe();
    let file = file.map_err(|error| Failure::of_system("find", "this program", &error))?;
    let (mut bill, mut licences) = (Vec::new(), Vec::new());
    let written = components::write_sbom(&mut bill)
        .and_then(|()| components::write_licenses(false, &mut licences));
    written.expect("memory can be written");
    Ok(Program {
        file,
        version: env!("CARGO_PKG_VERSION"),
        bill,
        licences,
    })
}
