//! `gannet get`: downloads, and measures it.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgMatches;

use super::{check_trust, print, texts};
use crate::get::{self, GetOptions};
use crate::messages::Failure;

/// Downloads, and shows the report.
///
/// # Errors
/// See [`get::run`].
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let path = |name: &str| matches.get_one::<OsString>(name).map(PathBuf::from);
    let connections = match matches.get_one::<OsString>("connections") {
        None => 1,
        Some(typed) => get::connections(&typed.to_string_lossy())?,
    };
    check_trust(matches.get_flag("insecure"), path("cacert").as_ref())?;
    let options = GetOptions {
        urls: texts(matches, "url"),
        connections,
        output: path("output"),
        resumes: matches.get_flag("continue"),
        is_insecure: matches.get_flag("insecure"),
        cacert: path("cacert"),
        http2: matches.get_flag("http2"),
        json: matches.get_flag("json"),
        quiet: matches.get_flag("quiet"),
    };
    print(&get::run(&options)?)
}
