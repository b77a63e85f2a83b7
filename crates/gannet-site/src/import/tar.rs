//! tar, by the crate of that name.

use std::io::Read;

use tar::{Archive, EntryType};

use super::limits::FILES_MAX;
use super::{Entries, ImportError, read_error};

/// The length of a header, bytes.
pub(super) const HEADER_LEN: u64 = 512;

/// Whether a tar begins with these bytes: a header with a valid checksum, or the zeros of an empty
/// one.
pub(super) fn is_header(first: &[u8]) -> bool {
    let Ok(bytes) = <&[u8; HEADER_LEN as usize]>::try_from(first) else {
        return false;
    };
    let header = tar::Header::from_byte_slice(bytes);
    // The checksum field itself counts as spaces.
    let (before, rest) = bytes.split_at(148);
    let sum = before
        .iter()
        .chain(&rest[8..])
        .map(|byte| u32::from(*byte))
        .sum::<u32>()
        + 8 * 32;
    bytes.iter().all(|byte| *byte == 0) || header.cksum().is_ok_and(|it| it == sum)
}

pub(super) fn read(from: impl Read, entries: &mut dyn Entries) -> Result<(), ImportError> {
    let mut archive = Archive::new(from);
    let found = archive.entries().map_err(read_error)?;
    for (count, entry) in found.enumerate() {
        if count as u64 >= FILES_MAX {
            return Err(ImportError::TooMuch("it has too many files"));
        }
        let mut entry = entry.map_err(read_error)?;
        let path = entry.path_bytes().into_owned();
        let modified = entry.header().mtime().ok();
        let modified = modified.and_then(|at| i64::try_from(at).ok());
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                entries.file(&path, modified, &mut entry)?;
            }
            EntryType::Directory | EntryType::XGlobalHeader | EntryType::XHeader => {}
            EntryType::Link => match entry.link_name_bytes() {
                Some(before) => entries.same_as(&path, &before)?,
                None => entries.left_out(&path, "a dangling link"),
            },
            EntryType::Symlink => entries.left_out(&path, "a symbolic link"),
            _ => entries.left_out(&path, "neither a file nor a folder"),
        }
    }
    Ok(())
}
