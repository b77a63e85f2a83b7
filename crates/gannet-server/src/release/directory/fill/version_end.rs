//! The end of a file that has changed recently, as it is when the file is opened: see
//! [`growing`](crate::release::growing).

use gannet_http::semantics::coding::Coding;
use gannet_io::driver::{Driver, Errno, Meta, OpenedFile, Started, Token};

use super::super::is_recent;
use super::{DiskLookup, Filled, State};
use crate::bounds::limits::{GROWING_ENDS_MAX, SMALL_FILE_MAX};
use crate::release::growing::VersionEnd;
use crate::release::wakeup::Wakeup;

impl DiskLookup {
    /// Takes the file found, or reads its last bytes before that, if it may grow while it is sent. Shorter ones
    /// are read whole, and those of other machines have times by other clocks.
    pub(super) fn take_original(&mut self, opened: OpenedFile) -> Option<Filled> {
        let meta = &opened.meta;
        let is_long = meta.len > SMALL_FILE_MAX;
        if !is_long || !is_recent(meta, self.unix) || opened.file.is_foreign() {
            return self.take(Coding::Identity, opened, 0);
        }
        self.state = State::VersionEnd(opened);
        None
    }

    /// Reads its last bytes.
    pub(super) fn ask_version_end<D: Driver>(
        driver: &mut D,
        opened: &OpenedFile,
        token: Token,
    ) -> Started<Wakeup> {
        let range = VersionEnd::range(opened.meta.len);
        let len = (range.end - range.start) as usize;
        match driver.read(&opened.file, range.start, len, token) {
            Started::Now(result) => Started::Now(result.map(Wakeup::Read)),
            Started::Pending => Started::Pending,
        }
    }

    /// Handles its last bytes. If it has changed meanwhile and is not shorter, the version is that of now,
    /// whose end is read in turn, some times; then one that only became longer keeps the end that was read.
    pub(super) fn version_end<D: Driver>(
        &mut self,
        driver: &D,
        mut opened: OpenedFile,
        result: Result<Wakeup, Errno>,
    ) -> Option<Filled> {
        // Nor does it grow.
        if driver.cannot_change(&opened.file) {
            return self.take(Coding::Identity, opened, 0);
        }
        let now = driver.meta(&opened.file);
        if let (Ok(Wakeup::Read(bytes)), Ok(now)) = (result, now) {
            if now == opened.meta {
                self.findings.end = Some((now, VersionEnd::of(&bytes)));
            } else if now.len >= opened.meta.len && self.ends < GROWING_ENDS_MAX {
                self.ends += 1;
                opened.meta = now;
                self.state = State::VersionEnd(opened);
                return None;
            } else if now.len >= opened.meta.len {
                // Its writer never pauses, and appends: these bytes are as they were a moment before. If it is not
                // longer yet, answers wait for that.
                self.findings.end = Some((opened.meta, VersionEnd::of(&bytes)));
            }
        }
        self.take(Coding::Identity, opened, 0)
    }

    /// The end of this version of the file found, if it was read.
    pub(super) fn end_of(&self, coding: Coding, meta: &Meta) -> Option<VersionEnd> {
        let (of, end) = self.findings.end.filter(|_| coding == Coding::Identity)?;
        (of == *meta).then_some(end)
    }
}
