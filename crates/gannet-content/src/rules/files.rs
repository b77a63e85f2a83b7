//! The locations of rules files in a live directory.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::Compat;
use super::limits::{RULES_FILES_MAX, RULES_FOLDERS_MAX, SITE_RULES_LEN_MAX};
use crate::routing::is_redirects_name;

/// How many more rules files a site may have, and of how many bytes together.
#[derive(Debug)]
pub struct RulesRoom {
    files: usize,
    bytes: u64,
}

impl Default for RulesRoom {
    fn default() -> Self {
        Self {
            files: RULES_FILES_MAX,
            bytes: SITE_RULES_LEN_MAX,
        }
    }
}

impl RulesRoom {
    /// Takes that of a file with this text.
    ///
    /// # Errors
    /// There is not so much.
    pub fn take(&mut self, text: &[u8]) -> io::Result<()> {
        self.files = self.files.checked_sub(1).ok_or_else(too_many_files)?;
        let left = self.bytes.checked_sub(text.len() as u64);
        self.bytes = left.ok_or_else(|| {
            io::Error::other(format!(
                "the rules files up to it have more than {SITE_RULES_LEN_MAX} bytes together"
            ))
        })?;
        Ok(())
    }
}

fn too_many_files() -> io::Error {
    io::Error::other(format!("more than {RULES_FILES_MAX} files have rules"))
}

/// The files with redirects that a live directory may have, relative to it, in the order in which
/// they are read: the one at the root, which may be missing; for kawipiko then those of the folders
/// below it, outer ones first. Hidden folders are left out.
///
/// `names` returns the entries of a folder, and for each whether it is a folder, not a symbolic
/// link to one.
///
/// # Errors
/// There are more than [`RULES_FOLDERS_MAX`] folders, or [`RULES_FILES_MAX`] files. Unreadable folders
/// are left out.
pub fn redirects_files(
    compat: Compat,
    names: impl Fn(&Path) -> io::Result<Vec<(OsString, bool)>>,
) -> io::Result<Vec<String>> {
    if compat != Compat::Kawipiko {
        return Ok(vec!["_redirects".into()]);
    }
    let mut files = vec!["_redirects".into(), "_redirects.txt".into()];
    let mut level = vec![String::new()];
    let mut folder_count = 0;
    while !level.is_empty() {
        let mut next = Vec::new();
        let mut found = Vec::new();
        for folder in level {
            folder_count += 1;
            if folder_count > RULES_FOLDERS_MAX {
                let cause = format!("more than {RULES_FOLDERS_MAX} folders may have rules");
                return Err(io::Error::other(cause));
            }
            for (name, is_folder) in names(Path::new(&folder)).unwrap_or_default() {
                // A name that is not UTF-8 is not one of those searched for.
                let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
                    continue;
                };
                if is_folder {
                    next.push(format!("{folder}{name}/"));
                } else if is_redirects_name(name.as_bytes(), compat) && !folder.is_empty() {
                    found.push(format!("{folder}{name}"));
                }
            }
        }
        found.sort();
        files.append(&mut found);
        if files.len() > RULES_FILES_MAX {
            return Err(too_many_files());
        }
        next.sort();
        level = next;
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_site_are_bounded_together() {
        let mut room = RulesRoom::default();
        let text = vec![b'a'; 1 << 20];
        for _ in 0..16 {
            room.take(&text).expect("it has room");
        }
        let error = room.take(b"a").expect_err("it is full");
        let why = "the rules files up to it have more than 16777216 bytes together";
        assert_eq!(error.to_string(), why);
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let mut room = RulesRoom::default();
        assert!((0..RULES_FILES_MAX).all(|_| room.take(b"").is_ok()));
        let error = room.take(b"").expect_err("it is full");
        assert_eq!(error.to_string(), "more than 10000 files have rules");
        let folders = |count: usize| {
            redirects_files(Compat::Kawipiko, |folder| {
                Ok(match folder.as_os_str().is_empty() {
                    true => (0..count).map(|at| (at.to_string().into(), true)).collect(),
                    false => vec![("_redirects".into(), false)],
                })
            })
        };
        // The root's are among them, whether or not they exist.
        let most = RULES_FILES_MAX - 2;
        assert_eq!(folders(most).map(|it| it.len()).ok(), Some(RULES_FILES_MAX));
        let error = folders(most + 1).expect_err("too many");
        assert_eq!(error.to_string(), "more than 10000 files have rules");
    }
}
