//! An archive: everything was decided when it was packed; a request is one lookup.

use std::rc::Rc;
use std::sync::Arc;

use gannet_archive::{Archive, Body, Entry, EntryKind, Key, Namespace, Variant};
use gannet_content::mime;
use gannet_content::plan::Representation;
use gannet_content::rules::matcher::Request as Asked;
use gannet_http::semantics::coding::{Coding, accept_encoding};
use gannet_http::semantics::fields::KnownField;
use gannet_http::semantics::request::Request;
use gannet_http::semantics::response::{HpackBlock, ReadyBlock, Status};
use gannet_http::semantics::target_path::encode_path;
use gannet_io::memory::Memory;

use super::inflated::{GzipBody, Inflated, Inflation};
use super::rules::{Ruled, Rules, Ruling};
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
    /// Bodies that are stored as gzip alone.
    pub(crate) inflated: Inflated,
    /// Paths that name nothing are answered with the front page.
    pub(crate) spa: bool,
    /// The archive was copied into memory that nobody can change.
    pub(crate) is_sealed: bool,
    /// Which of the archive's hosts this is.
    pub(crate) host: u16,
    /// It is the one among them that the file's guard belongs to.
    pub(crate) is_first_host: bool,
    /// The name spaces of pages that answer for folders, best first.
    pub(crate) fallbacks: Vec<Namespace>,
    /// The site's own rules.
    pub(crate) rules: Option<Rules>,
}

impl ArchiveSite {
    /// The name spaces of pages that answer for folders, as far as an archive has them, best
    /// first.
    pub(crate) fn fallbacks(archive: &Archive<Vec<u8>>, host: u16) -> Vec<Namespace> {
        [
            Namespace::Wildcard,
            Namespace::ApplicationPage,
            Namespace::NotFoundPage,
        ]
        .into_iter()
        .filter(|namespace| archive.has_namespace(host, *namespace))
        .collect()
    }

    /// What a path comes to.
    pub(crate) fn resolve(&self, wanted: Wanted<'_>, ruling: Option<&Ruling<'_>>) -> Resolved<'_> {
        if let Some(ruled) = ruling.and_then(Ruling::before_files) {
            return self.ruled(ruled, wanted);
        }
        match self.find(Namespace::Content, wanted.path) {
            Some(entry) => self.answer(entry, wanted, Status::OK, true),
            None => self.missing(wanted, ruling),
        }
    }

    /// What is to be done before a request can be answered that needs a body which is not in
    /// memory.
    #[cold]
    pub(crate) fn inflation(&self, request: &Request<'_>, asked: Asked<'_>) -> Option<Inflation> {
        let path = asked.path;
        let codings = accept_encoding(request.fields.lines(KnownField::AcceptEncoding));
        let ruling = self.rules.as_deref().map(|rules| Ruling { rules, asked });
        match self.resolve(Wanted { path, codings }, ruling.as_ref()) {
            Resolved::Selected(selected) => match selected.source {
                Source::Gzip(body) => body.inflation(),
                _ => None,
            },
            _ => None,
        }
    }

    fn find(&self, namespace: Namespace, path: &[u8]) -> Option<Entry<'_>> {
        let key = Key {
            host: self.host,
            namespace,
            path,
        };
        self.archive.lookup(key)
    }

    fn find_content(&self, path: &[u8]) -> Option<Entry<'_>> {
        let entry = self.find(Namespace::Content, path);
        entry.filter(|entry| matches!(entry.kind(), EntryKind::Content))
    }

    fn answer<'s>(
        &'s self,
        entry: Entry<'s>,
        wanted: Wanted<'_>,
        status: Status,
        is_own: bool,
    ) -> Resolved<'s> {
        match entry.kind() {
            EntryKind::Redirect { location, .. } => Resolved::Redirect(location.into()),
            // Who takes no coding that is there, nor the plain form, gets the plain form: RFC 9110
            // section 12.5.3 prefers that to an error, and a directory does the same.
            EntryKind::Content => match entry
                .select(wanted.codings.bits())
                .or_else(|| entry.select(gannet_archive::Coding::Identity.bit()))
            {
                Some(variant) => {
                    let selected = self.selected(&entry, variant, status);
                    let is_fixed = self.rules.as_ref().is_none_or(|r| r.fields_are_fixed());
                    Resolved::Selected(Selected {
                        is_ruled: is_own && is_fixed,
                        ..selected
                    })
                }
                None => Resolved::Error(Status::NOT_FOUND),
            },
        }
    }

    /// What a redirect rule wants.
    #[cold]
    fn ruled(&self, ruled: Ruled, wanted: Wanted<'_>) -> Resolved<'_> {
        let (status, path) = match ruled {
            Ruled::Elsewhere { status, location } => return Resolved::Elsewhere(status, location),
            Ruled::Content { status, path } => (status, path),
        };
        // With or without a slash at its end.
        let other = match path.strip_suffix(b"/") {
            Some(path) => path.to_vec(),
            None => [path.as_slice(), b"/"].concat(),
        };
        let found = self.find_other(&path).or_else(|| self.find_other(&other));
        match found {
            Some(entry) => self.answer(entry, wanted, status, false),
            None => {
                let at = Wanted {
                    path: &path,
                    ..wanted
                };
                self.fallback(at, &[Namespace::NotFoundPage])
            }
        }
    }

    /// The content of a path, to answer for another one.
    fn find_other(&self, path: &[u8]) -> Option<Entry<'_>> {
        let unruled = self.rules.as_ref()?;
        let unruled = unruled.fields_are_fixed().then_some(Namespace::Unruled);
        let unruled = unruled.and_then(|namespace| self.find(namespace, path));
        unruled.or_else(|| self.find_content(path))
    }

    /// Nothing has the path itself.
    #[cold]
    fn missing(&self, wanted: Wanted<'_>, ruling: Option<&Ruling<'_>>) -> Resolved<'_> {
        if let Some(path) = wanted.path.strip_suffix(b"/")
            && self.archive.options().slash_redirects
            && self.find_content(path).is_some()
        {
            let mut location = Vec::new();
            encode_path(path, &mut location);
            return Resolved::Redirect(location.into());
        }
        if let Some(ruled) = ruling.and_then(Ruling::for_missing) {
            return self.ruled(ruled, wanted);
        }
        let is_page = self.spa && !mime::looks_like_asset(wanted.path);
        if is_page {
            let front = self.find_other(b"/").or_else(|| self.find_content(b"/"));
            if let Some(entry) = front {
                return self.answer(entry, wanted, Status::OK, false);
            }
        }
        self.fallback(wanted, &self.fallbacks)
    }

    /// The page of the nearest folder that answers for what is missing below it.
    fn fallback(&self, wanted: Wanted<'_>, namespaces: &[Namespace]) -> Resolved<'_> {
        // The path is at most PATH_MAX long, so this climbs a bounded number of folders.
        let mut folder = wanted.path;
        while let Some(slash) = folder.iter().rposition(|b| *b == b'/') {
            for namespace in namespaces {
                let status = match namespace {
                    Namespace::NotFoundPage => Status::NOT_FOUND,
                    Namespace::ApplicationPage if mime::looks_like_asset(wanted.path) => continue,
                    _ => Status::OK,
                };
                if let Some(entry) = self.find(*namespace, &folder[..=slash]) {
                    return self.answer(entry, wanted, status, false);
                }
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
            Body::Inflated { gzip, len } => {
                let body = GzipBody {
                    inflated: &self.inflated,
                    file: &self.file,
                    number: variant.blob_number(),
                    gzip,
                    len,
                };
                (len, Source::Gzip(body))
            }
        };
        let h1 = variant.h1();
        Selected {
            status,
            block: ReadyBlock {
                bytes: h1.bytes,
                length_end: h1.length_end,
                shared_start: h1.shared_start,
                common: h1.common,
                common_shared_start: h1.common_shared_start,
                hpack: variant.hpack().map(|hpack| HpackBlock {
                    bytes: hpack.bytes,
                    length_end: hpack.length_end,
                    shared_start: hpack.shared_start,
                    common: hpack.common,
                    common_shared_start: hpack.common_shared_start,
                }),
            },
            representation: Representation {
                len,
                coding: coding(variant.coding()),
                entity_tag: Some(variant.entity_tag()).filter(|tag| !tag.is_empty()),
                last_modified: entry.last_modified(),
            },
            content_type: variant.content_type(),
            source,
            sha256: None,
            is_ruled: true,
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
