//! `gannet verify`: checks every byte of an archive against its digest, and its signature.

use std::ffi::OsString;

use clap::ArgMatches;
use gannet_site::archive::{self, hex};

use super::print;
use crate::command_line::values;
use crate::messages::{Failure, printable};
use crate::quantities::{counted, size};

/// Verifies, and prints a summary of the archive.
///
/// # Errors
/// The archive is damaged, or not signed with the given key.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let path = super::archive(matches)?;
    let mut signed = "";
    if let Some(key) = matches.get_one::<OsString>("public-key") {
        let wrong = |cause: String| {
            let shown = printable(&key.to_string_lossy());
            Failure::usage(format!("cannot use '--public-key {shown}': {cause}"))
                .help("give the line of Base64 in the .pub file, or the name of that file")
        };
        let key = key.to_str().ok_or_else(|| wrong("not UTF-8".into()))?;
        archive::verify_signature(&path, &values::public_key(key).map_err(wrong)?)?;
        signed = ", signed";
    }
    let report = archive::verify(&path)?;
    let shown = printable(&path.to_string_lossy());
    let build = hex(&report.build_id[..8]);
    let (blobs, bytes) = (counted(report.blob_count, "blob"), size(report.bytes));
    let mut rest = String::new();
    if report.undecoded_count > 0 {
        let count = counted(report.undecoded_count, "coding");
        rest = format!("not decoded: {count} with dictionaries that the archive does not have\n");
    }
    print(&format!(
        "{shown}: intact{signed}, {blobs}, {bytes}, build {build}\n{rest}"
    ))
}
