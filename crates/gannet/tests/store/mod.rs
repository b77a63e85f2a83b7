//! A site and a store in a folder, for the tests of publishing.

use std::fs;
use std::path::PathBuf;

use gannet_testkit::{Folder, gannet_in};

/// A folder with a site of a few pages.
pub(crate) fn with_site() -> Folder {
    let folder = Folder::new();
    folder.write("site/index.html", "<!DOCTYPE html><title>One</title>");
    for page in 0..8 {
        folder.write(format!("site/{page}.html"), format!("page {page}"));
    }
    folder
}

/// Publishes the site to the store `store`.
pub(crate) fn publish(folder: &Folder, more: &[&str]) -> gannet_testkit::Ended {
    let arguments = ["publish", "site", "store", "--fast"];
    gannet_in(folder, arguments.iter().chain(more))
}

/// The value of a line of a pointer.
pub(crate) fn line<'t>(pointer: &'t str, key: &str) -> &'t str {
    let mut lines = pointer.lines().filter_map(|line| line.split_once(' '));
    lines
        .find(|(found, _)| *found == key)
        .map_or("", |(_, value)| value)
}

/// The pointer in force.
pub(crate) fn current(folder: &Folder) -> String {
    fs::read_to_string(folder.join("store/current")).expect("a pointer is in force")
}

/// The archive of a release.
pub(crate) fn file_of(folder: &Folder, release: &str) -> PathBuf {
    folder.join(format!("store/releases/{release}.gannet"))
}
