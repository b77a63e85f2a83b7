//! The entries of a directory for many hosts, for the commands that judge sites.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gannet_content::host_name::WILDCARD;
use gannet_io::driver::Root;
use gannet_io::named_file;
use gannet_site::check::{self, CheckOptions, Finding, Report, Severity};
use gannet_site::host_folders::{HostFolders, Other, is_archive, names_for};
use gannet_site::offline::SiteOptions;

use super::in_force;
use crate::messages::Failure;

fn list(
    folder: &Path,
    of: impl FnOnce(&Path) -> io::Result<HostFolders>,
) -> Result<HostFolders, Failure> {
    let found = of(folder).map_err(|error| Failure::of_system("read", folder.display(), &error))?;
    match found.folders.is_empty() {
        false => Ok(found),
        true => {
            let cause = "no entry has the name of a host";
            Err(Failure::new("read", folder.display(), cause)
                .help("make one such as 'example.org', or leave --hosts out"))
        }
    }
}

/// The entry that answers for a host, by name, and its site: its own, or the one for all others.
///
/// # Errors
/// The directory has no entry that is named after a host, or its store cannot be read.
pub(super) fn of(site: &SiteOptions, host: &str) -> Result<Option<(String, PathBuf)>, Failure> {
    let found = list(&site.path, HostFolders::with_archives)?.folders;
    let named = |host: String| found.iter().find(|(name, _)| name.as_ref() == Some(&host));
    let own = names_for(host).find_map(named);
    // That of no host comes first.
    let entry = own.or_else(|| found.first().filter(|(name, _)| name.is_none()));
    let entry_of = |(_, path): &(_, PathBuf)| {
        inside(site, path)?;
        Ok((name_of(path), in_force(path.clone())?))
    };
    entry.map(entry_of).transpose()
}

/// Checks all entries. Links to a site by the names of its entries are its own.
///
/// # Errors
/// The directory cannot be read, or has no entry that is named after a host.
pub(super) fn check(options: &CheckOptions) -> Result<Report, Failure> {
    let found = list(&options.site.path, HostFolders::to_serve)?;
    let mut report = Report::default();
    for Other { path, cause, .. } in &found.others {
        let name = name_of(path);
        if !name.starts_with('.') && (path.is_dir() || is_archive(path)) {
            let message = format!("not served: {cause}");
            report.note(about(Severity::Warning, "no-site", name, message));
        }
    }
    // A link to another entry is another host with the same site.
    let mut sites: Vec<(PathBuf, Vec<String>)> = Vec::new();
    let mut known = HashMap::new();
    for (host, path) in found.folders {
        if let Err(failure) = inside(&options.site, &path) {
            let (name, message) = (name_of(&path), format!("not served: {}", failure.message));
            report.note(about(Severity::Error, "no-site", name, message));
            continue;
        }
        let real = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        let number = *known.entry(real).or_insert_with(|| {
            sites.push((path, options.origins.clone()));
            sites.len() - 1
        });
        sites[number]
            .1
            .extend(host.filter(|it| !it.starts_with(WILDCARD)));
    }
    for (path, origins) in sites {
        let name = name_of(&path);
        let checked = in_force(path).and_then(|path| {
            let site = options.site.clone();
            let site = SiteOptions { path, ..site };
            let prefix = options.prefix.clone();
            Ok(check::check(&CheckOptions {
                site,
                origins,
                prefix,
            })?)
        });
        match checked {
            Ok(site) => report.add(&name, site),
            Err(failure) => {
                report.note(about(Severity::Error, "no-site", name, failure.message));
            }
        }
    }
    Ok(report)
}

/// Whether the server finds an entry in the folder: it follows no link that leads out of it.
fn inside(site: &SiteOptions, path: &Path) -> Result<(), Failure> {
    let name = Path::new(path.file_name().unwrap_or_default());
    let root = Root::open_with(&site.path, &site.outside);
    let found = root.and_then(|root| named_file::metadata_below(&root, name));
    found.map(drop).map_err(|error| {
        Failure::of_system("open", path.display(), &error).help(
            "a link has to stay in the folder; 'gannet serve --site HOST=PATH' serves a path elsewhere, and \
             --follow-links DIR lets links lead into DIR",
        )
    })
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// A finding about an entry as a whole.
fn about(severity: Severity, kind: &'static str, file: String, message: String) -> Finding {
    Finding {
        severity,
        kind,
        message,
        help: None,
        file,
        line: 0,
        column: 0,
        source: String::new(),
    }
}
