//! Files that are there as gzip alone: `page.html.gz` without `page.html`.
//!
//! The gzip is sent to who accepts it. For others it is inflated when it is needed, as bodies of
//! archives are (`release/bodies`). How long the content is its last bytes say (RFC 1952 section
//! 2.3.1), so fields are made without inflating; content of another length is an error. What is too
//! long to be inflated is sent as gzip to everybody.

use std::cell::OnceCell;
use std::rc::Rc;

use gannet_archive::limits::INFLATED_LEN_MAX;
use gannet_content::directory::lookup::{Ask, Told};
use gannet_content::directory::sidecars::may_have_sidecars;
use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, Errno, FileKind, OpenedFile, Started, Token};

use super::super::{Cached, Draft};
use super::told::told;
use super::{Fill, Filled, READS_MAX, State};
use crate::exchange::Disk;

/// The suffix of their names.
const SUFFIX: &[u8] = b".gz";

/// The fewest bytes of gzip: its header and its trailer (RFC 1952 section 2.3).
const GZIP_LEN_MIN: u64 = 18;

/// The length of the content, at the end of gzip.
const CONTENT_LEN_LEN: u64 = 4;

impl Fill {
    /// Whether what the lookup asks for may be there as gzip.
    pub(super) fn may_be_gzip(&self) -> bool {
        let Ask::Open(path) = self.lookup.step() else {
            return false;
        };
        self.site.options.compressed_only
            && !self.lookup.wants_folder()
            && !path.is_empty()
            && may_have_sidecars(path, 1)
    }

    /// The name under which it would be there.
    pub(super) fn gzip_name(&self) -> Vec<u8> {
        let path = match self.lookup.step() {
            Ask::Open(path) => path,
            Ask::Done(_) => &self.file_path,
        };
        [path, SUFFIX].concat()
    }

    /// Takes the answer to whether there is gzip.
    pub(super) fn gzip_opened(&mut self, result: Result<Disk, Errno>) -> Option<Filled> {
        let gzip = match result {
            Ok(Disk::Opened(opened)) if opened.meta.kind == FileKind::Regular => opened,
            other => {
                let told = match told(&other) {
                    // That is none, which says nothing of the name without the suffix.
                    Told::Missing | Told::Directory | Told::Other | Told::Escapes => Told::Missing,
                    told => told,
                };
                self.lookup.told(told);
                return self.looked();
            }
        };
        if (GZIP_LEN_MIN..=INFLATED_LEN_MAX).contains(&gzip.meta.len) {
            self.state = State::GzipEnd(gzip);
            return None;
        }
        self.gzip_found(gzip, None)
    }

    /// Asks for the last bytes of gzip.
    pub(super) fn ask_end<D: Driver>(
        driver: &mut D,
        gzip: &OpenedFile,
        token: Token,
    ) -> Started<Disk> {
        let at = gzip.meta.len - CONTENT_LEN_LEN;
        match driver.read(&gzip.file, at, CONTENT_LEN_LEN as usize, token) {
            Started::Now(result) => Started::Now(result.map(Disk::Read)),
            Started::Pending => Started::Pending,
        }
    }

    /// Takes the last bytes of gzip. `None`, too, if it has become shorter.
    pub(super) fn gzip_end(
        &mut self,
        gzip: OpenedFile,
        result: Result<Disk, Errno>,
    ) -> Option<Filled> {
        let Ok(Disk::Read(end)) = result else {
            return Some(Filled::Error(Status::INTERNAL_SERVER_ERROR));
        };
        let Ok(end) = <[u8; CONTENT_LEN_LEN as usize]>::try_from(end) else {
            return self.gzip_changed();
        };
        let len = u64::from(u32::from_le_bytes(end));
        self.gzip_found(gzip, Some(len).filter(|len| *len <= INFLATED_LEN_MAX))
    }

    fn gzip_found(&mut self, gzip: OpenedFile, len: Option<u64>) -> Option<Filled> {
        self.opened = Some(gzip);
        self.gzip_alone = Some(len);
        self.lookup.told(Told::Regular);
        self.looked()
    }

    /// Takes gzip as the representation in that coding, and what it comes to as the one without.
    pub(super) fn take_gzip(&mut self, gzip: OpenedFile, len: Option<u64>) -> Option<Filled> {
        if let Some(len) = len
            && let Some(body) = self
                .site
                .gzip_alone(gzip.file.clone(), gzip.meta, self.unix)
        {
            self.drafts.push(Draft {
                path: self.gzip_name(),
                coding: Coding::Identity,
                meta: gzip.meta,
                len,
                body: OnceCell::from(body),
            });
        }
        self.take(Coding::Gzip, gzip, 0)
    }

    /// Content is to be inflated, of which it will be told.
    pub(crate) fn await_load(&mut self, cached: Rc<Cached>) {
        self.state = State::Inflating(cached);
    }

    /// Content has been inflated, or cannot be. `None` if the file has changed meanwhile: then all
    /// is to be asked again.
    pub(super) fn gzip_inflated<D: Driver>(
        &mut self,
        driver: &D,
        cached: Rc<Cached>,
        result: Result<Disk, Errno>,
    ) -> Option<Filled> {
        let has_changed = || cached.files().any(|file| !file.is_unchanged(driver));
        match result {
            Ok(Disk::Loaded) => Some(Filled::File(cached, self.status, None)),
            // Peers hold as many copies as there may be.
            Err(Errno::AGAIN | Errno::NOMEM) => Some(Filled::Short),
            _ if has_changed() => self.gzip_changed(),
            _ => Some(Filled::Error(Status::INTERNAL_SERVER_ERROR)),
        }
    }

    /// Asks for everything again, unless that was done often.
    fn gzip_changed(&mut self) -> Option<Filled> {
        self.reads += 1;
        if self.reads >= READS_MAX {
            return Some(Filled::Error(Status::SERVICE_UNAVAILABLE));
        }
        self.start_over();
        None
    }
}
