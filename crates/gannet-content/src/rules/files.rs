//! The locations of rules files in a live directory.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::Compat;
use super::limits::RULES_FOLDERS_MAX;
use crate::routing::is_redirects_name;

/// The files with redirects that a live directory may have, relative to it, in the order in which
/// they are read: the one at the root, which may be missing; for kawipiko then those of the folders
/// below it, outer ones first. Hidden folders are left out.
///
/// `names` returns the entries of a folder, and for each whether it is a folder, not a symbolic
/// link to one.
///
/// # Errors
/// There are more than [`RULES_FOLDERS_MAX`] folders. Unreadable folders are left out.
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
        next.sort();
        level = next;
    }
    Ok(files)
}
