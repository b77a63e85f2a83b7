//! The sites of a build: one, or one for each host that has a folder.

use std::path::PathBuf;

use super::progress::Progress;
use super::rules::SiteRules;
use super::walk::{Skipped, Tree, walk};
use super::{PackError, PackOptions};
use crate::host_folders::HostFolders;

/// A host with its folder and rules.
#[derive(Debug, Default)]
pub(super) struct SourceHost {
    /// 0 for all hosts without a folder.
    pub(super) number: u16,
    /// `None` for number 0.
    pub(super) name: Option<String>,
    pub(super) folder: PathBuf,
    pub(super) rules: SiteRules,
}

/// Walks all sites of a build, and reads their rules.
pub(super) fn walk_all(
    options: &PackOptions,
    progress: &mut dyn Progress,
) -> Result<(Tree, Vec<SourceHost>), PackError> {
    match options.hosts {
        true => walk_hosts(options, progress),
        false => walk_one(options, progress),
    }
}

/// Walks the one site of a build without hosts.
fn walk_one(
    options: &PackOptions,
    progress: &mut dyn Progress,
) -> Result<(Tree, Vec<SourceHost>), PackError> {
    let folder = options.source.clone();
    let found = |count, bytes| progress.found(count, bytes);
    let mut tree = walk(&folder, 0, options, found)?;
    let rules = SiteRules::take(&mut tree.files, &options.routing);
    let rules = rules.map_err(|error| error.in_folder(&folder))?;
    let host = SourceHost {
        folder,
        rules,
        ..SourceHost::default()
    };
    Ok((tree, vec![host]))
}

/// Walks the folders of the hosts one after another.
fn walk_hosts(
    options: &PackOptions,
    progress: &mut dyn Progress,
) -> Result<(Tree, Vec<SourceHost>), PackError> {
    let root = &options.source;
    let mut found = HostFolders::of(root).map_err(PackError::io("read", root))?;
    let skipped = |path, rule| Skipped {
        path,
        rule,
        is_excluded: false,
    };
    let mut tree = Tree::default();
    // Archives support names only.
    let is_address = |host: &Option<String>| host.as_ref().is_some_and(|it| it.starts_with('['));
    for (_, path) in found.folders.extract_if(.., |(host, _)| is_address(host)) {
        let cause = "an archive can hold host names, but no IPv6 addresses";
        tree.skipped.push(skipped(path, cause.into()));
    }
    if found.folders.is_empty() {
        return Err(PackError::NoHosts(root.clone()));
    }
    let others = found.others.into_iter();
    tree.skipped
        .extend(others.map(|it| skipped(it.path, it.cause)));
    let inside = root.canonicalize().map_err(PackError::io("read", root))?;
    for (_, folder) in &found.folders {
        if folder
            .canonicalize()
            .is_ok_and(|target| !target.starts_with(&inside))
        {
            if !options.follow_links {
                return Err(PackError::HostLeadsOut(folder.clone()));
            }
            let text = format!(
                "the folder of a host is a symbolic link out of '{}': '{}'",
                root.display(),
                folder.display()
            );
            tree.warnings.push(text.into());
        }
    }
    let mut hosts = Vec::new();
    let (mut last, mut bytes_before) = (0, 0);
    for (name, folder) in found.folders {
        let number = match &name {
            None => 0,
            Some(_) => last + 1,
        };
        if number == u16::MAX {
            return Err(PackError::TooManyHosts(root.clone()));
        }
        last = number;
        let count_before = tree.files.len() as u64;
        let mut bytes_here = 0;
        let mut one = walk(&folder, number, options, |count, bytes| {
            bytes_here = bytes;
            progress.found(count_before + count, bytes_before + bytes);
        })?;
        bytes_before += bytes_here;
        let rules = SiteRules::take(&mut one.files, &options.routing);
        let rules = rules.map_err(|error| error.in_folder(&folder))?;
        tree.files.append(&mut one.files);
        tree.skipped.append(&mut one.skipped);
        tree.warnings.append(&mut one.warnings);
        hosts.push(SourceHost {
            number,
            name,
            folder,
            rules,
        });
    }
    Ok((tree, hosts))
}
