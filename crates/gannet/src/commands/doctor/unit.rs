//! What the unit of the service on this machine takes away from it.
//!
//! The unit does not confine a user who runs doctor, so that doctor cannot try what it forbids.

use std::fs;
use std::path::{Path, PathBuf};

use super::facts::Lack;

/// Folders with units, the first of which wins; systemd.unit(5).
const FOLDERS: [&str; 4] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
];

/// Each of them makes systemd answer `openat2` with `ENOSYS`: it cannot see in that call which
/// permissions a new file gets.
const FORBIDDING: [&str; 2] = ["RestrictSUIDSGID", "DynamicUser"];

/// The line of gannet.service below this root that forbids `openat2`, if there is one.
pub(super) fn forbidden(root: &Path) -> Option<Lack> {
    let mut found = FORBIDDING.map(|_| None);
    for file in files(root) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            if let Some(at) = FORBIDDING.iter().position(|it| *it == key.trim()) {
                let is_on = ["yes", "true", "on", "1"].contains(&value.trim());
                found[at] = is_on.then(|| file.clone());
            }
        }
    }
    let mut found = FORBIDDING.iter().zip(found);
    found.find_map(|(key, file)| {
        Some(Lack {
            why: format!(
                "'{}' has {key}=yes, with which systemd forbids openat2",
                file?.display()
            ),
            help: Some(match *key {
                "DynamicUser" => "name a user by User= in place of that line".into(),
                _ => format!("remove that line, or add {key}=no by 'systemctl edit gannet'"),
            }),
        })
    })
}

/// The unit, and what is added to it, in the order in which systemd reads them.
fn files(root: &Path) -> Vec<PathBuf> {
    let folders = FOLDERS.map(|folder| root.join(folder));
    let units = folders.iter().map(|folder| folder.join("gannet.service"));
    let mut files: Vec<PathBuf> = units
        .into_iter()
        .find(|it| it.exists())
        .into_iter()
        .collect();
    let added = folders.iter().map(|folder| folder.join("gannet.service.d"));
    let entries = added
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flatten();
    let mut added: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    added.retain(|path| path.extension().is_some_and(|it| it == "conf"));
    added.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    // Of files with one name, that of the first folder counts.
    added.dedup_by(|later, first| later.file_name() == first.file_name());
    files.extend(added);
    files
}

#[cfg(test)]
mod tests {
    use gannet_testkit::Folder;

    use super::*;

    /// The unit of an administrator hides that of a package, and what is added later wins.
    #[test]
    fn what_forbids_a_call_is_found_where_it_is_in_force() {
        let root = Folder::new();
        let check = |expect: Option<&str>| {
            let why = forbidden(root.path()).map(|lack| lack.why);
            match expect {
                Some(file) => assert!(why.as_ref().is_some_and(|it| it.contains(file)), "{why:?}"),
                None => assert_eq!(why, None),
            }
        };
        check(None);
        root.write(
            "usr/lib/systemd/system/gannet.service",
            "[Service]\nRestrictSUIDSGID=yes\n",
        );
        check(Some(
            "usr/lib/systemd/system/gannet.service' has RestrictSUIDSGID=yes",
        ));
        root.write(
            "etc/systemd/system/gannet.service",
            "[Service]\n# RestrictSUIDSGID=yes\n",
        );
        check(None);
        root.write(
            "etc/systemd/system/gannet.service.d/b.conf",
            "[Service]\nDynamicUser = true\n",
        );
        check(Some("b.conf' has DynamicUser=yes"));
        root.write(
            "run/systemd/system/gannet.service.d/c.conf",
            "[Service]\nDynamicUser=no\n",
        );
        check(None);
    }
}
