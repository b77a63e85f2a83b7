//! An archive: its entries, and what a server answers from them.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::Path;

use gannet_archive::{Entry, EntryKind, Key, Namespace};
use gannet_content::mime::looks_like_asset;

use super::{Located, SiteFile, folded, names_of};
use crate::archive_commands::{ArchiveFile, CommandError};

/// An archive whose files are known.
#[derive(Debug)]
pub struct ArchivePlace {
    file: ArchiveFile,
    files: Vec<SiteFile>,
    /// By the number of a file: the number of its entry.
    entries: Vec<u32>,
    /// By the number of the first blob and the type: the first file with them. Other names of a
    /// file share both.
    by_blob: HashMap<(u32, Vec<u8>), usize>,
    folded: HashMap<(u16, Vec<u8>), usize>,
}

impl ArchivePlace {
    pub(super) fn open(path: &Path) -> Result<Self, CommandError> {
        let file = ArchiveFile::open(path)?;
        let mut place = Self {
            file,
            files: Vec::new(),
            entries: Vec::new(),
            by_blob: HashMap::new(),
            folded: HashMap::new(),
        };
        for entry in place.file.archive().entries() {
            let is_file = entry.key().namespace == Namespace::Content
                && entry.kind() == EntryKind::Content
                && !entry.is_alias();
            if !is_file {
                continue;
            }
            let number = place.files.len();
            if let Some(variant) = entry.variants().next() {
                let key = (variant.blob_number(), entry.content_type().to_vec());
                place.by_blob.entry(key).or_insert(number);
            }
            let (host, url) = (entry.key().host, entry.path().to_vec());
            place.folded.entry((host, folded(&url))).or_insert(number);
            place.entries.push(entry.number());
            place.files.push(SiteFile {
                host,
                url,
                content_type: String::from_utf8_lossy(entry.content_type()).into_owned(),
            });
        }
        Ok(place)
    }

    /// The archive.
    #[must_use]
    pub fn file(&self) -> &ArchiveFile {
        &self.file
    }

    pub(super) fn files(&self) -> &[SiteFile] {
        &self.files
    }

    /// The entry of a file.
    #[must_use]
    pub fn entry(&self, number: usize) -> Option<Entry<'_>> {
        self.file.archive().entry(*self.entries.get(number)?)
    }

    pub(super) fn read(&self, number: usize, max: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(entry) = self.entry(number) else {
            return Ok(None);
        };
        let Some(content) = self.file.content(&entry)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        content
            .take(max.saturating_add(1))
            .read_to_end(&mut bytes)?;
        Ok((bytes.len() as u64 <= max).then_some(bytes))
    }

    pub(super) fn locate(
        &self,
        host: u16,
        path: &[u8],
        with_pages: bool,
        tell: &mut dyn FnMut(String),
    ) -> Located {
        let archive = self.file.archive();
        if let Some(entry) = archive.lookup(Key::content(path).on(host)) {
            tell("an entry has this path".into());
            return self.located(&entry, 200);
        }
        tell("no entry has this path".into());
        if !with_pages {
            return Located::Missing(None);
        }
        if archive.options().spa
            && !looks_like_asset(path)
            && let Some(entry) = archive.lookup(Key::content(b"/").on(host))
        {
            tell("the front page answers for it".into());
            return self.located(&entry, 200);
        }
        let mut folder = path;
        while let Some(slash) = folder.iter().rposition(|byte| *byte == b'/') {
            let key = Key::not_found_page(&folder[..=slash]).on(host);
            let of_folder = [
                (Namespace::ApplicationPage, 200),
                (Namespace::Wildcard, 200),
                (Namespace::NotFoundPage, 404),
            ];
            for (namespace, status) in of_folder {
                if namespace == Namespace::ApplicationPage && looks_like_asset(path) {
                    continue;
                }
                if let Some(entry) = archive.lookup(key.within(namespace)) {
                    let shown = crate::target::url(&folder[..=slash]);
                    tell(format!(
                        "the page of the folder '{shown}' answers, {status}"
                    ));
                    return self.located(&entry, status);
                }
            }
            folder = &folder[..slash];
        }
        Located::Missing(None)
    }

    fn located(&self, entry: &Entry<'_>, status: u16) -> Located {
        if let EntryKind::Redirect { status, location } = entry.kind() {
            let location = String::from_utf8_lossy(location).into_owned();
            return Located::Redirect {
                status,
                location,
                rule: None,
            };
        }
        // Entries are numbered in the order of the files.
        let own = self.entries.binary_search(&entry.number()).ok();
        let number = own.or_else(|| {
            let blob = entry.variants().next()?.blob_number();
            let key = (blob, entry.content_type().to_vec());
            self.by_blob.get(&key).copied()
        });
        match (number, status) {
            (number, 404) => Located::Missing(number),
            (Some(number), status) => Located::File(number, status),
            // A listing has no file.
            (None, _) => Located::Listing,
        }
    }

    pub(super) fn differently_spelled(&self, host: u16, path: &[u8]) -> Option<Vec<u8>> {
        let found = names_of(path)
            .iter()
            .find_map(|name| self.folded.get(&(host, folded(name))).copied())?;
        Some(self.files.get(found)?.url.clone())
    }
}
