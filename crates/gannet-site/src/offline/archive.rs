//! An archive: its files, and a server's answers from them.

use gannet_content::rules::steps::Steps;
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Read};

use gannet_archive::{Entry, EntryKind, Namespace};
use gannet_content::archive::{Entries, Facts, Host, Resolution, Space, resolve};
use gannet_content::rules::table::Ruled;

use super::{Located, RequestUrl, Rules, SiteFile, folded, names_of};
use crate::archive::ArchiveFile;

/// An archive with a list of its files.
#[derive(Debug)]
pub struct ArchivePlace {
    file: ArchiveFile,
    /// It is served with `--spa`.
    spa: bool,
    files: Vec<SiteFile>,
    /// Entry numbers, by file number.
    entries: Vec<u32>,
    /// By number of the first blob and by type: the first such file. Other names of a file share
    /// both.
    by_blob: HashMap<(u32, Vec<u8>), usize>,
    folded: HashMap<(u16, Vec<u8>), usize>,
}

impl ArchivePlace {
    pub(super) fn new(file: ArchiveFile, spa: bool) -> Self {
        let mut place = Self {
            file,
            spa,
            files: Vec::new(),
            entries: Vec::new(),
            by_blob: HashMap::new(),
            folded: HashMap::new(),
        };
        for entry in place.file.archive().entries() {
            let is_content =
                entry.key().namespace == Namespace::Content && entry.kind() == EntryKind::Content;
            if !is_content || entry.is_alias() {
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
                is_carried: entry.carried_since().is_some(),
                content_type: String::from_utf8_lossy(entry.content_type()).into_owned(),
            });
        }
        place
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
        asked: &RequestUrl<'_>,
        rules: &Rules,
        report: &mut dyn FnMut(String),
    ) -> Located {
        match self.resolve(asked, rules, report) {
            Resolution::Entry { entry, status, .. } => self.located(&entry, status.0),
            Resolution::Redirect(location) => Located::Redirect {
                status: 301,
                location: String::from_utf8_lossy(&location).into_owned(),
                rule: None,
            },
            Resolution::Elsewhere {
                status,
                location,
                rule,
            } => Located::Redirect {
                status: status.0,
                location: String::from_utf8_lossy(&location).into_owned(),
                rule: Some(rule),
            },
            // Without a server there are no other releases.
            Resolution::Kept => Located::Missing(None, 404),
            Resolution::Missing(status) => Located::Missing(None, status.0),
        }
    }

    /// What the server finds for a request; calls `report` with each step in words.
    pub(crate) fn resolve(
        &self,
        asked: &RequestUrl<'_>,
        rules: &Rules,
        report: &mut dyn FnMut(String),
    ) -> Resolution<Entry<'_>> {
        let options = self.file.archive().options();
        let host = self.on(asked.host);
        let fallbacks = host.fallbacks();
        let facts = Facts {
            spa: self.spa || options.spa,
            slash_redirects: options.slash_redirects,
            has_unruled: rules.headers().is_some_and(|table| !table.has_hosts()),
            fallbacks: &fallbacks,
            redirects: rules.redirects(),
        };
        let tried = RecordedLookups {
            host,
            rules,
            report: RefCell::new(report),
        };
        let request = (&asked.rule_input(), &Steps::default());
        resolve(&tried, &facts, request, || asked.is_navigation)
    }

    /// Whether a path has content of its own.
    pub(super) fn has_content(&self, host: u16, path: &[u8]) -> bool {
        self.content(host, path).is_some()
    }

    /// The content of a path.
    pub(crate) fn content(&self, host: u16, path: &[u8]) -> Option<Entry<'_>> {
        let entry = self.on(host).find(Space::Content, path);
        entry.filter(|entry| entry.kind() == EntryKind::Content)
    }

    fn on(&self, number: u16) -> Host<'_, Vec<u8>> {
        Host::of(self.file.archive(), number)
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
            (number, status @ (404 | 410 | 451)) => Located::Missing(number, status),
            (Some(number), status) => Located::File(number, status),
            // Listings are not files.
            (None, status) => Located::Listing(status),
        }
    }

    pub(super) fn differently_spelled(&self, host: u16, path: &[u8]) -> Option<Vec<u8>> {
        let found = names_of(path)
            .iter()
            .find_map(|name| self.folded.get(&(host, folded(name))).copied())?;
        Some(self.files.get(found)?.url.clone())
    }
}

/// The entries of a host; records each lookup in words.
struct RecordedLookups<'a, 't> {
    host: Host<'a, Vec<u8>>,
    rules: &'t Rules,
    report: RefCell<&'t mut dyn FnMut(String)>,
}

impl<'a> Entries for RecordedLookups<'a, '_> {
    type Entry = Entry<'a>;

    fn find(&self, space: Space, path: &[u8]) -> Option<Entry<'a>> {
        let found = self.host.find(space, path);
        let shown = crate::target::url(path);
        let words = match (space, &found) {
            (Space::Content, Some(_)) => format!("an entry at '{shown}'"),
            (Space::Content, None) => format!("no entry at '{shown}'"),
            // Not reported: it has the content of the same path.
            (Space::Unruled, _) => return found,
            (Space::Fallback(_), None) => return None,
            (Space::Fallback(_), Some(_)) => format!("the page of the folder '{shown}' answers"),
        };
        (self.report.borrow_mut())(words);
        found
    }

    fn has_content(&self, entry: &Entry<'a>) -> bool {
        self.host.has_content(entry)
    }

    fn is_file(&self, entry: &Entry<'a>) -> bool {
        self.host.is_file(entry)
    }

    fn is_listing(&self, entry: &Entry<'a>) -> bool {
        self.host.is_listing(entry)
    }

    fn ruled(&self, ruled: Option<&Ruled>) {
        (self.report.borrow_mut())(self.rules.verdict(ruled));
    }
}
