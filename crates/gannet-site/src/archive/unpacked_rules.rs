//! Converts the rules and options of an archive to those of a directory: rules files, and options
//! of packing.

use gannet_archive::{Archive, EntryKind, Key, Namespace};
use gannet_content::policy::digest::REPR_DIGEST;
use gannet_content::routing::TrailingSlash;

use super::rule_list::tables;
use super::{ArchiveFile, SiteError};
use crate::pack::PackOptions;

/// A rules file of a host.
#[derive(Debug)]
pub(super) struct RulesFile {
    /// The virtual host; 0 for any.
    pub(super) host: u16,
    /// `_redirects` or `_headers`.
    pub(super) name: &'static str,
    /// Its content.
    pub(super) text: String,
}

/// The files from which packing reads the same rules.
///
/// # Errors
/// The rules cannot be read, or no file can express them.
pub(super) fn rules_files(file: &ArchiveFile) -> Result<Vec<RulesFile>, SiteError> {
    let mut files = Vec::new();
    for (host, rules) in tables(file)? {
        let redirects = rules.redirects().map(|table| table.redirects().text());
        let headers = rules.headers().map(|table| table.headers().text());
        for (name, text) in [("_redirects", redirects), ("_headers", headers)] {
            let Some(text) = text else { continue };
            let text = text.ok_or_else(|| SiteError::Damaged {
                archive: file.path().to_path_buf(),
                what: format!("its rules are none that a file '{name}' can have"),
            })?;
            files.push(RulesFile { host, name, text });
        }
    }
    Ok(files)
}

/// Sets the `options` that the archive was packed with, as far as it shows.
///
/// # Errors
/// The rules cannot be read.
pub(super) fn read_options(file: &ArchiveFile, options: &mut PackOptions) -> Result<(), SiteError> {
    let archive = file.archive();
    let recorded = archive.options();
    let seen = VisibleOptions::in_entries(archive);
    options.hosts = archive.hosts().len() > 0;
    options.spa = recorded.spa;
    options.listing = recorded.listing;
    options.clean_urls = recorded.clean_urls;
    options.dotfiles = seen.has_dotfiles;
    options.repr_digest = seen.has_digests;
    options.routing.trailing_slash = match (seen.removes_slashes, seen.adds_slashes) {
        _ if !recorded.slash_redirects => TrailingSlash::Off,
        (true, _) => TrailingSlash::Never,
        (false, true) => TrailingSlash::Always,
        (false, false) => TrailingSlash::Auto,
    };
    if seen.has_rules_files {
        options.routing.rules = None;
    }
    for (_, rules) in tables(file)? {
        let redirects = rules.redirects().map(|table| table.redirects().compat);
        let headers = rules.headers().map(|table| table.headers().compat);
        if let Some(compat) = redirects.or(headers) {
            options.routing.rules = Some(compat);
            break;
        }
    }
    Ok(())
}

/// Options visible in the entries.
#[derive(Debug, Default)]
struct VisibleOptions {
    has_dotfiles: bool,
    has_rules_files: bool,
    has_digests: bool,
    /// A folder's page is at `/folder` only: `/folder/` redirects.
    removes_slashes: bool,
    /// `/page` redirects to `/page/`, though it is a file of its own.
    adds_slashes: bool,
}

impl VisibleOptions {
    fn in_entries(archive: &Archive<Vec<u8>>) -> Self {
        let mut seen = Self::default();
        let has_file = |host: u16, path: &[u8]| {
            let entry = archive.lookup(Key::content(path).on(host));
            entry.is_some_and(|entry| entry.kind() == EntryKind::Content && !entry.is_alias())
        };
        for entry in archive.entries() {
            let key = entry.key();
            if key.namespace != Namespace::Content {
                continue;
            }
            match entry.kind() {
                EntryKind::Redirect { .. } => {
                    let page = [key.path, b".html"].concat();
                    seen.adds_slashes |= has_file(key.host, &page);
                }
                EntryKind::Content => {
                    if let Some(folder) = key.path.strip_suffix(b"/index.html") {
                        let slash = [folder, b"/"].concat();
                        let is_there = |path| archive.lookup(Key::content(path).on(key.host));
                        let has_slash = is_there(&slash).is_some();
                        seen.removes_slashes |= !has_slash && is_there(folder).is_some();
                    }
                    seen.has_dotfiles |= is_dotfile(key.path);
                    seen.has_rules_files |= matches!(key.path, b"/_redirects" | b"/_headers");
                    let block = entry.variants().next().map(|variant| variant.h1());
                    seen.has_digests |= block.is_some_and(|it| it.get(REPR_DIGEST).is_some());
                }
            }
        }
        seen
    }
}

/// Whether packing excludes a path because of a dot.
fn is_dotfile(path: &[u8]) -> bool {
    let segments = path.split(|byte| *byte == b'/').skip(1);
    segments.enumerate().any(|(depth, segment)| {
        let is_known = depth == 0 && segment == b".well-known";
        segment.starts_with(b".") && !is_known
    })
}
