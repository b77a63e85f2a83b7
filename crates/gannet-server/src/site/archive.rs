//! An archive: everything was decided when it was packed; a request is one lookup.

use std::rc::Rc;
use std::sync::Arc;

use gannet_archive::{Archive, Body, Entry, EntryKind, Key, Variant};
use gannet_content::mime;
use gannet_content::plan::Representation;
use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::response::{ReadyBlock, Status};
use gannet_io::memory::Memory;

use super::{Resolved, Selected, ServedFile, Source, Wanted};
use crate::limits::SMALL_FILE_MAX;

/// An archive, as one worker sees it.
pub(crate) struct ArchiveSite {
    /// Index, entries and field blocks, validated; shared by all workers, never written.
    pub(crate) archive: Arc<Archive<Vec<u8>>>,
    /// The whole file, mapped or copied. A worker has its own handle, so that counting its uses
    /// touches no cache line of another worker.
    pub(crate) memory: Arc<Memory>,
    /// The descriptor that large bodies are sent from.
    pub(crate) file: Rc<ServedFile>,
    /// Paths that name nothing are answered with the front page.
    pub(crate) spa: bool,
    /// The archive was copied into memory that nobody can change.
    pub(crate) is_sealed: bool,
}

impl ArchiveSite {
    /// What a path comes to.
    pub(crate) fn resolve(&self, wanted: Wanted<'_>) -> Resolved<'_> {
        match self.archive.lookup(Key::content(wanted.path)) {
            Some(entry) => self.answer(entry, wanted, Status::OK),
            None => self.missing(wanted),
        }
    }

    fn answer<'s>(&'s self, entry: Entry<'s>, wanted: Wanted<'_>, status: Status) -> Resolved<'s> {
        match entry.kind() {
            EntryKind::Redirect { location, .. } => Resolved::Redirect(location),
            EntryKind::Content => match entry.select(wanted.codings.bits()) {
                Some(variant) => Resolved::Selected(self.selected(&entry, variant, status)),
                None => Resolved::Error(Status::NOT_FOUND),
            },
        }
    }

    /// The front page for an application's own paths, else the nearest page for what is missing.
    #[cold]
    fn missing(&self, wanted: Wanted<'_>) -> Resolved<'_> {
        let is_page = self.spa && !mime::looks_like_asset(wanted.path);
        let front = || self.archive.lookup(Key::content(b"/"));
        if let Some(entry) = is_page.then(front).flatten() {
            return self.answer(entry, wanted, Status::OK);
        }
        // The path is at most PATH_MAX long, so this climbs a bounded number of folders.
        let mut folder = wanted.path;
        while let Some(slash) = folder.iter().rposition(|b| *b == b'/') {
            if let Some(entry) = self.archive.lookup(Key::not_found_page(&folder[..=slash])) {
                return self.answer(entry, wanted, Status::NOT_FOUND);
            }
            folder = &folder[..slash];
        }
        Resolved::Error(Status::NOT_FOUND)
    }

    fn selected<'s>(
        &'s self,
        entry: &Entry<'s>,
        variant: Variant<'s>,
        status: Status,
    ) -> Selected<'s> {
        let (len, source) = match variant.body() {
            Body::Tiny(bytes) => (bytes.len() as u64, Source::Bytes(bytes)),
            Body::Blob { offset, len } if len <= SMALL_FILE_MAX => {
                let offset = usize::try_from(offset).expect("the file is mapped");
                (len, Source::Memory(&self.memory, offset))
            }
            Body::Blob { offset, len } => (len, Source::File(&self.file, offset)),
        };
        let h1 = variant.h1();
        Selected {
            status,
            block: ReadyBlock {
                bytes: h1.bytes,
                length_end: h1.length_end,
                shared_start: h1.shared_start,
                hpack: None,
            },
            representation: Representation {
                len,
                coding: coding(variant.coding()),
                entity_tag: Some(variant.entity_tag()).filter(|tag| !tag.is_empty()),
                last_modified: entry.last_modified(),
            },
            content_type: variant.content_type(),
            source,
        }
    }
}

/// The format's coding is the protocol's: same names, same numbers.
fn coding(stored: gannet_archive::Coding) -> Coding {
    match stored {
        gannet_archive::Coding::Identity => Coding::Identity,
        gannet_archive::Coding::Gzip => Coding::Gzip,
        gannet_archive::Coding::Brotli => Coding::Brotli,
        gannet_archive::Coding::Zstd => Coding::Zstd,
    }
}
