//! `gannet verify`: checks every byte of an archive against its digest, and its signature.

use clap::ArgMatches;
use gannet_site::archive::{self, hex};

use super::part::Part;
use super::print;
use crate::messages::{Failure, printable};
use crate::quantities::{counted, size};

/// Verifies, and prints a summary of the archive.
///
/// # Errors
/// The archive is damaged, or not signed with the given key.
pub fn run(matches: &ArgMatches) -> Result<u8, Failure> {
    let path = super::archive(matches)?;
    let mut signed = "";
    if let Some(key) = super::public_key(matches)? {
        archive::verify_signature(&path, &key)?;
        signed = ", signed";
    }
    let shown = printable(&path.to_string_lossy());
    if let Some(part) = Part::of(&path)? {
        let (all, build) = (size(part.bytes()), hex(&part.build_id()[..8]));
        return print(&match part.verify(&path)?.map(size) {
            Some(here) => {
                format!("{shown}: what is here is intact{signed}, {here} of {all}, build {build}\n")
            }
            None => {
                format!("{shown}: all of it is here and intact{signed}, {all}, build {build}\n")
            }
        });
    }
    let report = archive::verify(&path)?;
    let build = hex(&report.build_id[..8]);
    let (blobs, bytes) = (counted(report.blob_count, "blob"), size(report.bytes));
    let mut rest = String::new();
    if report.packed_len > 0 {
        let len = size(report.packed_len);
        rest =
            format!("not verified: packed index of {len}, which copies compare with the archive\n");
    }
    if report.undecoded_count > 0 {
        let count = counted(report.undecoded_count, "coding");
        rest += &format!("not decoded: {count} with dictionaries that the archive does not have\n");
    }
    print(&format!(
        "{shown}: intact{signed}, {blobs}, {bytes}, build {build}\n{rest}"
    ))
}
