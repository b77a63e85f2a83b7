//! Reading the names of a directory, without the metadata of its entries.

use std::mem::MaybeUninit;

use rustix::fs::{FileType, RawDir};
use rustix::io::Errno;

use crate::how::Purpose;
use crate::meta::{Meta, meta_of};
use crate::root::{LookupReach, OsRoot};

/// What to keep of the names of a directory: a number for a name that counts, `None` for others. It
/// runs off the caller's thread.
pub type KeepName = fn(&[u8]) -> Option<u64>;

/// The names of a directory, as far as they were read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Survey {
    /// The directory's own metadata, read before the first name: while they are the same, it has
    /// the same names, if they were not quite new then.
    pub meta: Meta,
    /// What was kept of the names, in no particular order.
    pub kept: Vec<u64>,
    /// Names read.
    pub count: usize,
    /// All names were read.
    pub is_whole: bool,
    /// All of these name regular files and directories: no links, no FIFOs, no devices.
    pub is_plain: bool,
}

impl Survey {
    /// A directory of which no name was read yet.
    pub(crate) fn new(meta: Meta) -> Self {
        Self {
            meta,
            kept: Vec::new(),
            count: 0,
            is_whole: true,
            is_plain: true,
        }
    }

    /// Takes the next name, unless `max` were read.
    pub(crate) fn take(&mut self, name: &[u8], is_plain: bool, max: usize, keep: KeepName) -> bool {
        if self.count == max {
            self.is_whole = false;
            return false;
        }
        self.count += 1;
        self.is_plain &= is_plain;
        self.kept.extend(keep(name));
        true
    }
}

/// Reads at most `max` names of the directory `path`.
pub(crate) fn survey(
    root: &OsRoot,
    path: &[u8],
    max: usize,
    keep: KeepName,
    reach: LookupReach,
) -> Result<Survey, Errno> {
    let directory = root.resolve(path, Purpose::ReadFolder, reach)?;
    let mut survey = Survey::new(meta_of(&rustix::fs::fstat(&directory)?));
    let mut buffer = [MaybeUninit::<u8>::uninit(); 16 * 1024];
    let mut names = RawDir::new(&directory, &mut buffer);
    while let Some(entry) = names.next() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let is_plain = matches!(
            entry.file_type(),
            FileType::RegularFile | FileType::Directory
        );
        if !survey.take(name.to_bytes(), is_plain, max, keep) {
            break;
        }
    }
    Ok(survey)
}
