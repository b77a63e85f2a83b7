//! Files that responses are sent from, each fixed to one version.

use std::cell::{Cell, OnceCell};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, thread};

use gannet_io::driver::{Driver, Errno, File, Meta};

use super::growing::{Growing, MetaNow, SliceTaken, VersionEnd};
use super::partial::PartialView;
use crate::bounds::limits::{RECENT_S, SETTLED_S};
use crate::watch::notices::ERRORS;

/// A file that responses are sent from.
///
/// Anyone with write access may change a live file at any time. Bytes read from it are therefore
/// valid only if [`is_unchanged`](Self::is_unchanged) holds *after* the read.
pub(crate) struct ServedFile {
    /// The descriptor.
    pub(crate) file: File,
    /// Its version when it was opened; `None` if it cannot change.
    version: Option<Version>,
    /// The response that this is for, if the file may grow meanwhile; otherwise it is for all.
    growing: Option<Box<Growing>>,
    /// What is known of it, if only a part of it is here.
    pub(crate) partial: Option<PartialView>,
}

struct Version {
    /// The metadata, with the most recent link count.
    seen: Cell<Meta>,
    /// Whether no process can change it, once that was looked up.
    is_fixed: OnceCell<bool>,
    /// Its last bytes, if it had changed recently when it was opened.
    end: Option<VersionEnd>,
    /// The file has changed to another version; this is final.
    is_over: Cell<bool>,
    /// The archive in this file, if any.
    archive: Option<Arc<OpenArchive>>,
}

/// An archive served from its file; shared by all workers.
pub(crate) struct OpenArchive {
    /// Its path, for messages.
    pub(crate) path: PathBuf,
    pub(crate) file: fs::File,
    /// Its first bytes, which contain the digest of all others.
    pub(crate) start: Vec<u8>,
    /// The operator was notified that it has changed.
    pub(crate) is_reported: AtomicBool,
}

impl ServedFile {
    /// A file that cannot change.
    pub(crate) fn constant(file: File) -> Self {
        Self {
            file,
            version: None,
            growing: None,
            partial: None,
        }
    }

    /// That of a release of which only a part is here: what is there is the same always.
    pub(crate) fn of_partial(file: File, view: PartialView) -> Self {
        Self {
            partial: Some(view),
            ..Self::constant(file)
        }
    }

    /// The same file to read the blob at this offset once, if only a part of the file is here.
    pub(crate) fn partial_at(&self, offset: u64) -> Option<Rc<Self>> {
        let view = self.partial.as_ref()?.at(offset);
        Some(Rc::new(Self::of_partial(self.file.clone(), view)))
    }

    /// A file that may change; `meta` is its metadata at opening. With its `end` then, it may grow.
    pub(crate) fn live(file: File, meta: Meta, end: Option<VersionEnd>) -> Self {
        let mut file = Self::of_archive(file, meta, None);
        if let Some(version) = &mut file.version {
            version.end = end;
        }
        file
    }

    /// The file of an archive; all workers share `archive`.
    pub(crate) fn of_archive(file: File, meta: Meta, archive: Option<Arc<OpenArchive>>) -> Self {
        let version = Version {
            seen: Cell::new(meta),
            is_fixed: OnceCell::new(),
            end: None,
            is_over: Cell::new(false),
            archive,
        };
        Self {
            file,
            version: Some(version),
            growing: None,
            partial: None,
        }
    }

    /// Its inode, unless it cannot change; and the path of the archive in it, if any.
    pub(crate) fn place(&self) -> Option<(u64, Option<&Path>)> {
        let version = self.version.as_ref()?;
        let (_, inode) = version.seen.get().identity;
        Some((inode, version.archive.as_ref().map(|it| &*it.path)))
    }

    /// The end of its version, if it had changed recently when it was opened.
    pub(crate) fn end(&self) -> Option<VersionEnd> {
        self.version.as_ref()?.end
    }

    /// The same file for one response with these ranges, if it may grow meanwhile: it has changed recently,
    /// as of `unix` (seconds).
    pub(crate) fn growing(
        self: &Rc<Self>,
        unix: i64,
        ranges: impl FnOnce() -> Vec<Range<u64>>,
    ) -> Option<Rc<Self>> {
        let version = self.version.as_ref()?;
        let (meta, end) = (version.seen.get(), version.end?);
        if !is_recent(&meta, unix) {
            return None;
        }
        let is_settled = is_settled(&meta, unix);
        let growing = Growing::new(Rc::clone(self), (meta.len, end), ranges(), is_settled);
        Some(Rc::new(Self {
            growing: Some(Box::new(growing)),
            ..Self::live(self.file.clone(), meta, None)
        }))
    }

    /// The response that it is for, if it may grow meanwhile.
    pub(crate) fn growth(&self) -> Option<&Growing> {
        self.growing.as_deref()
    }

    /// Whether a range is here. Whether that has stayed so, [`is_unchanged`](Self::is_unchanged) says.
    pub(crate) fn begins(&self, range: Range<u64>) -> bool {
        let partial = self.partial.as_ref();
        partial.is_none_or(|it| it.begin(range) == Ok(true))
    }

    /// What is to be read again for the response that it is for.
    pub(crate) fn next(&self) -> Option<Range<u64>> {
        match (&self.growing, &self.partial) {
            (Some(growing), _) => growing.next(),
            (None, Some(partial)) => Some(partial.slice()),
            (None, None) => None,
        }
    }

    /// Takes the next slice of `len` bytes that was read for a response.
    pub(crate) fn take<D: Driver>(&self, (bytes, len): (Vec<u8>, usize), driver: &D) -> SliceTaken {
        match &self.growing {
            Some(growing) => growing.take((bytes, len), (self.grown(driver), driver.now())),
            None if bytes.len() == len && self.is_unchanged(driver) => SliceTaken::Send(bytes),
            None if self.partial.is_some() => SliceTaken::ReadAgain(bytes),
            None => SliceTaken::Changed,
        }
    }

    /// Whether it is a copy that cannot change.
    pub(crate) fn is_constant(&self) -> bool {
        self.version.is_none() && self.partial.is_none()
    }

    /// Whether no process can change its bytes, so that its pages may stay in any queue.
    pub(crate) fn cannot_change<D: Driver>(&self, driver: &D) -> bool {
        self.partial.is_none()
            && self.version.as_ref().is_none_or(|version| {
                let ask = || driver.cannot_change(&self.file);
                *version.is_fixed.get_or_init(ask)
            })
    }

    /// Whether it is still the version that was opened, so that bytes read from it belong to that
    /// version. Once false, always false.
    pub(crate) fn is_unchanged<D: Driver>(&self, driver: &D) -> bool {
        let Some(version) = &self.version else {
            return self.partial.as_ref().is_none_or(PartialView::is_intact);
        };
        if version.is_over.get() {
            return false;
        }
        let seen = version.seen.get();
        let is_same = meta_of_version(driver, &self.file, &seen).is_ok_and(|now| {
            let is_link_change = is_link_change(&seen, &now);
            let archive = version.archive.as_ref();
            let is_same =
                now == seen || is_link_change || archive.is_some_and(|it| it.is_same(&seen, &now));
            // After a removal, the new status change time may be still to come.
            if is_same && !(is_link_change && now.ctime_ns == seen.ctime_ns) {
                version.seen.set(now);
            }
            is_same
        });
        version.is_over.set(!is_same);
        if let (false, Some(archive)) = (is_same, &version.archive) {
            archive.report_change();
        }
        is_same
    }

    /// The metadata now, compared with those at opening. Once another version, always that.
    fn grown<D: Driver>(&self, driver: &D) -> MetaNow {
        let Some(version) = self.version.as_ref().filter(|it| !it.is_over.get()) else {
            return MetaNow::Other;
        };
        let seen = version.seen.get();
        if let Ok(now) = meta_of_version(driver, &self.file, &seen) {
            if now == seen || now.len > seen.len {
                return MetaNow::Whole(now);
            }
            if is_link_change(&seen, &now) {
                // Once: what changes its status later may be an overwrite with its times restored. The new
                // time may be still to come.
                if now.ctime_ns != seen.ctime_ns {
                    version.seen.set(now);
                }
                return MetaNow::Whole(now);
            }
            if now.len == seen.len && now.mtime_ns != seen.mtime_ns {
                return MetaNow::Written(now.mtime_ns);
            }
        }
        version.is_over.set(true);
        MetaNow::Other
    }

    /// Whether a change to another version was detected.
    pub(crate) fn is_over(&self) -> bool {
        self.version.as_ref().is_some_and(|v| v.is_over.get())
    }
}

impl OpenArchive {
    /// Whether a change is one of its status alone. Such a change ends a download of a live file,
    /// but must not take down a whole site: the first bytes decide, which are unique to each
    /// archive.
    fn is_same(&self, seen: &Meta, now: &Meta) -> bool {
        let but_for_status = Meta {
            ctime_ns: seen.ctime_ns,
            links: seen.links,
            ..*now
        };
        let mut start = vec![0; self.start.len()];
        but_for_status == *seen
            && self.file.read_exact_at(&mut start, 0).is_ok()
            && start == self.start
    }

    /// Logs that it was changed, once.
    fn report_change(&self) {
        if !self.is_reported.swap(true, Ordering::Relaxed) {
            ERRORS.log(format_args!(
                "gannet: archive '{}': it was changed while it is served; only what is in memory \
                 is sent until the new one is complete\nhelp: next time publish by renaming the new \
                 archive over the old one",
                self.path.display()
            ));
        }
    }
}

/// The metadata of an open file now, to be compared with those seen before.
///
/// The kernel removes a link and sets the status change time in two steps, whose order depends on
/// the file system, and queries can see the state between them. A changed time alone would look
/// like another version, so the metadata is queried again in case the removal follows.
pub(crate) fn meta_of_version<D: Driver>(
    driver: &D,
    file: &File,
    seen: &Meta,
) -> Result<Meta, Errno> {
    let now = driver.meta(file)?;
    let but_for_time = Meta {
        ctime_ns: seen.ctime_ns,
        ..now
    };
    if now != *seen && but_for_time == *seen {
        thread::yield_now();
        return driver.meta(file);
    }
    Ok(now)
}

/// Whether only links were removed in between: by a deletion, or a replacement by rename. Both also
/// set the time of the last status change, and leave the bytes to processes that have the file
/// open. An added link may come with changed bytes and a restored mtime: tools that update in
/// place, preserve times and then hard-link copies do just that.
pub(crate) fn is_link_change(seen: &Meta, now: &Meta) -> bool {
    let but_for_links = Meta {
        ctime_ns: seen.ctime_ns,
        links: seen.links,
        ..*now
    };
    now.links < seen.links && but_for_links == *seen
}

/// Whether a file has been unchanged for long enough that bytes read now may be cached. The timestamps
/// of a file are set when a write begins, no finer than a clock tick: a read during a write may
/// return a mix of old and new bytes, which no later check can detect. (git calls such files racy.)
///
/// `unix` (seconds) is the time when the file was opened, not an earlier one. A file with a future
/// time is not settled: its file system's clock is ahead, or ours was set back.
pub(super) fn is_settled(meta: &Meta, unix: i64) -> bool {
    meta.ctime_ns < i128::from(unix - SETTLED_S) * 1_000_000_000
}

/// Whether a file may be the result of a write that is still in progress: its timestamps, set when
/// the write began, would never show it. Its bytes are read again when the path is looked up again.
pub(super) fn is_recent(meta: &Meta, unix: i64) -> bool {
    meta.ctime_ns >= i128::from(unix - RECENT_S) * 1_000_000_000
}

#[cfg(test)]
mod tests {
    use gannet_io::driver::FileKind;

    use super::*;

    #[test]
    fn a_change_of_names_is_told_from_a_change_of_bytes() {
        let seen = Meta {
            kind: FileKind::Regular,
            len: 10,
            mtime_ns: 1_000,
            ctime_ns: 2_000,
            identity: (1, 2),
            links: 1,
        };
        let check = |now: Meta, expect: bool| assert_eq!(is_link_change(&seen, &now), expect);
        let later = Meta {
            ctime_ns: 3_000,
            ..seen
        };
        check(Meta { links: 0, ..later }, true);
        check(Meta { links: 2, ..later }, false);
        check(later, false);
        for changed in [
            Meta { len: 11, ..later },
            Meta {
                mtime_ns: 1_001,
                ..later
            },
        ] {
            check(changed, false);
            check(
                Meta {
                    links: 0,
                    ..changed
                },
                false,
            );
        }
    }
}
