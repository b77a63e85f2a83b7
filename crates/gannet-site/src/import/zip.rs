//! zip, by the crate of that name.

use std::io::{Read, Seek};

use zip::ZipArchive;
use zip::result::ZipError;

use super::limits::FILES_MAX;
use super::{Entries, ImportError, read_error};

/// The bits of a Unix mode that mark a symbolic link.
const TYPE_MASK: u32 = 0o170_000;
const SYMBOLIC_LINK: u32 = 0o120_000;

pub(super) fn read(from: impl Read + Seek, entries: &mut dyn Entries) -> Result<(), ImportError> {
    let mut archive = ZipArchive::new(from).map_err(refuse)?;
    if archive.len() as u64 > FILES_MAX {
        return Err(ImportError::TooMuch("it has too many files"));
    }
    for number in 0..archive.len() {
        let mut file = archive.by_index(number).map_err(refuse)?;
        let path = path(file.name_raw(), &file.name().map_err(refuse)?);
        if file.is_dir() || path.ends_with(b"/") {
            continue;
        }
        if file
            .unix_mode()
            .is_some_and(|mode| mode & TYPE_MASK == SYMBOLIC_LINK)
        {
            entries.left_out(&path, "a symbolic link");
            continue;
        }
        let modified = file.last_modified().and_then(|at| {
            unix_seconds([
                i64::from(at.year()),
                i64::from(at.month()),
                i64::from(at.day()),
                i64::from(at.hour()),
                i64::from(at.minute()),
                i64::from(at.second()),
            ])
        });
        entries.file(&path, modified, &mut file)?;
    }
    Ok(())
}

/// Decodes the path of an entry. `by_flag` is its text according to the flag for UTF-8 or code page
/// 437, but many programs write UTF-8 without setting the flag. Without a slash, backslashes count
/// as slashes, since older Windows programs write them.
fn path(raw: &[u8], by_flag: &str) -> Vec<u8> {
    let path = std::str::from_utf8(raw).unwrap_or(by_flag);
    match path.contains('/') {
        true => path.into(),
        false => path.replace('\\', "/").into(),
    }
}

fn refuse(error: ZipError) -> ImportError {
    match error {
        ZipError::Io(error) => read_error(error),
        ZipError::UnsupportedArchive(what) => ImportError::Unsupported(what.to_string()),
        ZipError::InvalidArchive(_) => ImportError::Damaged(
            "its list of files, at its end, is missing or damaged: it may be cut short".into(),
        ),
        other => ImportError::Damaged(other.to_string()),
    }
}

/// zip stores local times without a zone; they are taken as UTC. 1 January 1980 means none.
fn unix_seconds([year, month, day, hour, minute, second]: [i64; 6]) -> Option<i64> {
    if !(1..=12).contains(&month) || (year, month, day) == (1980, 1, 1) {
        return None;
    }
    // Days before the year, counted from March so that the leap day comes last.
    let (y, m) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days =
        365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day
            - 719_469;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_become_unix_seconds() {
        let check = |at, expect| assert_eq!(unix_seconds(at), expect, "{at:?}");
        check([1980, 1, 1, 0, 0, 0], None);
        check([1980, 1, 2, 0, 0, 0], Some(315_619_200));
        check([2000, 2, 29, 12, 34, 56], Some(951_827_696));
        check([2024, 3, 1, 0, 0, 0], Some(1_709_251_200));
        check([2024, 0, 1, 0, 0, 0], None);
    }
}
