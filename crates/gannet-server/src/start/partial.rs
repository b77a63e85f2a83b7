//! Opens a release of which only a part is on this machine.

use std::cell::RefCell;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use gannet_archive::signature;
use gannet_archive::{Superblock, Units, of_metadata};
use gannet_io::driver::Meta;
use gannet_store::{PARTIAL, Pointer, ReleaseId};

use crate::bounds::limits::ERROR_PAGES_MS;
use crate::config::supply::{AHEAD, NO_CLIENT, ReleasePart};
use crate::release::opened::OpenedArchive;
use crate::release::partial::{ErrorParts, PartialRelease, PartialView};
use crate::start::archive::{add_error_pages, metadata};
use crate::start::open::{OpenError, Opening};

/// Whether a file of a store has only a part of its release.
pub(super) fn is_partial(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(PARTIAL.as_bytes())
}

impl Opening<'_> {
    /// Opens the file of a release of which only a part may be here.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub(super) fn open_partial(
        &self,
        path: &Path,
        pointer: &Pointer,
    ) -> Result<OpenedArchive, OpenError> {
        if self.options.supply.is_none() {
            return Err(OpenError::Partial(path.to_owned()));
        }
        let io_error = |e| OpenError::Io("release", path.to_owned(), e);
        let partial = gannet_store::PartialRelease::open(path).map_err(io_error)?;
        let meta = Meta::of(&partial.file).map_err(io_error)?;
        let superblock = Superblock::parse(&partial.first, meta.len);
        let superblock = superblock.map_err(|e| OpenError::Archive(path.to_owned(), e))?;
        let archive = metadata(&partial.file, superblock, path)?;
        let id = ReleaseId::of_build_id(archive.superblock().build_id());
        // The build ID covers the digest of every part that is yet to come.
        let is_right = id == pointer.release
            && meta.len == pointer.size
            && signature::check_build_id(&archive).is_ok();
        if !is_right {
            return Err(OpenError::Other(path.to_owned()));
        }
        let archive = Arc::new(archive);
        let mut hosts = self.hosts_of(&archive, path)?;
        let units = {
            let mut read = of_metadata(archive.superblock(), archive.metadata());
            Units::read(archive.superblock(), &mut read).map_err(io_error)?
        };
        let presence = partial.presence;
        let release = Arc::new(PartialRelease {
            id: id.bytes(),
            archive: Arc::clone(&archive),
            file: partial.file.try_clone().ok().map(Arc::new),
            pages: OnceLock::new(),
            presence: Box::new(move |blob, range| {
                let units = units.in_blob(blob, range);
                let look = presence.look(units.clone()).ok()?;
                let is_present = look.present() == units.end - units.start && !units.is_empty();
                is_present.then(|| look.stamp())
            }),
        });
        let end = Instant::now() + Duration::from_millis(ERROR_PAGES_MS);
        let pages = RefCell::new(ErrorParts::new());
        add_error_pages(&mut hosts, &archive, |bytes, at| {
            let view = PartialView::of(Arc::clone(&release)).at(at);
            let range = at..at + bytes.len() as u64;
            self.await_part(&view, &range, end);
            let part = view.part(&range);
            let is_begun = view.begin(range) == Ok(true);
            let is_read = partial.file.read_exact_at(bytes, at).is_ok();
            // What is here and cannot be read does not come by waiting.
            let is_here = is_begun && view.is_intact();
            note_page(&mut pages.borrow_mut(), part, is_here);
            is_here && is_read
        });
        let _ = release.pages.set(pages.into_inner());
        Ok(OpenedArchive {
            partial: Some(release),
            ..self.opened_in(archive, hosts, (&partial.file, meta, false), path)?
        })
    }

    /// Has a range fetched, and waits for it, until then at most.
    fn await_part(&self, view: &PartialView, range: &Range<u64>, end: Instant) {
        if let Some(supply) = &self.options.supply
            && view.lacking(range).is_some()
            && supply.say(&view.part(range), AHEAD, NO_CLIENT)
        {
            while view.lacking(range).is_some() && Instant::now() < end {
                thread::sleep(LOOK);
            }
        }
    }
}

/// Notes a page that was read for a host. It comes late for all of several hosts if one of them lacks it.
fn note_page(pages: &mut ErrorParts, part: ReleasePart, is_here: bool) {
    *pages.entry(part).or_insert(true) &= is_here;
}

/// How often a part that is awaited is looked for.
const LOOK: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_one_host_lacks_is_lacking() {
        let part = ReleasePart {
            release: [7; 16],
            blob: 0,
            range: 0..9,
        };
        for reads in [[true, true], [false, true], [true, false], [false, false]] {
            let mut pages = ErrorParts::new();
            for is_here in reads {
                note_page(&mut pages, part.clone(), is_here);
            }
            assert_eq!(pages[&part], reads == [true, true], "{reads:?}");
        }
    }
}
