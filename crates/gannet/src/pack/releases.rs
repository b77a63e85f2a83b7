//! What the release before says of the names of files: which of them change with their content.

use std::path::Path;

use gannet_archive::{Coding, Entry, EntryKind, Namespace};
use gannet_content::answer::CACHE_IMMUTABLE;
use gannet_content::policy::cache::{Lifetime, Releases, lifetime};

use super::PackError;
use super::sources::Sources;
use crate::archive_commands::{ArchiveFile, host_name};

/// Gives each file the lifetime that it has in the light of an earlier archive.
///
/// # Errors
/// The archive cannot be opened.
pub(super) fn apply(sources: &mut Sources, previous: &Path) -> Result<(), PackError> {
    let previous = ArchiveFile::open(previous).map_err(PackError::Previous)?;
    let archive = previous.archive();
    let before: Vec<_> = archive
        .entries()
        .filter_map(|entry| {
            let (digest, lifetime) = content_of(&entry)?;
            let host = host_name(archive, entry.key().host);
            Some((full_path(host, entry.path()), digest, lifetime))
        })
        .collect();
    let paths: Vec<String> = sources
        .files
        .iter()
        .map(|source| {
            let number = usize::from(source.file.host).checked_sub(1);
            let host = number.and_then(|number| sources.host_names.get(number));
            full_path(host.map_or("", String::as_str), &source.file.url)
        })
        .collect();
    let after = sources.files.iter().zip(&paths);
    let after = after.map(|(source, path)| {
        let digest = sources.contents[source.content].digest;
        (path.as_str(), digest)
    });
    let before = before
        .iter()
        .map(|(path, digest, lifetime)| (path.as_str(), *digest, *lifetime));
    let releases = Releases::compare(before, after);
    for (source, path) in sources.files.iter_mut().zip(&paths) {
        (source.lifetime, _) = lifetime(path, &source.content_type, Some(&releases));
    }
    Ok(())
}

/// The path of a file on the site, with the host before it if it has one.
fn full_path(host: &str, url: &[u8]) -> String {
    let path = String::from_utf8_lossy(url.strip_prefix(b"/").unwrap_or(url));
    match host {
        "" => path.into_owned(),
        host => format!("{host}/{path}"),
    }
}

/// The digest of a file's content, and how long its answers may be kept. Pages are always asked
/// for: nothing is to be known of them.
fn content_of(entry: &Entry<'_>) -> Option<([u8; 32], Lifetime)> {
    let is_file = entry.kind() == EntryKind::Content
        && entry.key().namespace == Namespace::Content
        && !entry.content_type().starts_with(b"text/html");
    let variant = entry.select(Coding::Identity.bit()).filter(|_| is_file)?;
    let fields = variant.h1().whole();
    let fields = String::from_utf8_lossy(&fields);
    let mut values = fields
        .lines()
        .filter_map(|line| line.strip_prefix("cache-control: "));
    let lifetime = match values.next() == Some(CACHE_IMMUTABLE) {
        true => Lifetime::Immutable,
        false => Lifetime::Revalidate,
    };
    Some((variant.digest().try_into().ok()?, lifetime))
}
