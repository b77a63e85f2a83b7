//! `gannet cat`: the content of a URL.

use std::ffi::OsString;

use clap::ArgMatches;
use gannet_archive::Coding;
use gannet_site::archive::{self, CatOptions};

use super::{stream, texts};
use crate::messages::{Failure, printable};

/// Writes contents to standard output.
///
/// # Errors
/// The archive cannot be read, or has no such content.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let options = CatOptions {
        archive: super::archive(matches)?,
        paths: texts(matches, "path"),
        coding: coding(matches)?,
    };
    stream(|out| Ok(archive::cat(&options, out)?))
}

fn coding(matches: &ArgMatches) -> Result<Option<Coding>, Failure> {
    let Some(typed) = matches.get_one::<OsString>("coding") else {
        return Ok(None);
    };
    let known = Coding::ALL.into_iter().find(|it| typed == it.name());
    known.map(Some).ok_or_else(|| {
        let typed = printable(&typed.to_string_lossy());
        Failure::usage(format!("unknown coding '{typed}'"))
            .help("the codings are identity, gzip, br and zstd")
    })
}
