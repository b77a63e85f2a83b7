//! tar, by the crate of that name.

use std::io::Read;

use tar::{Archive, EntryType};

use super::limits::FILES_MAX;
use super::{Entries, ImportError, read_error};

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
            _ => entries.left_out(&path, "neither file nor folder"),
        }
    }
    Ok(())
}
