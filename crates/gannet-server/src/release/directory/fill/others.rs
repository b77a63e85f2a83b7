//! The directories that are searched for a path which is missing in the first one.

use gannet_content::directory::lookup::{AtPath, Step};
use gannet_content::policy::hashed_name::framework_folder;
use gannet_io::driver::Root;

use super::DiskLookup;

impl DiskLookup {
    /// The directory that is being searched.
    pub(super) fn root(&self) -> Option<&Root> {
        match self.findings.missing_in.checked_sub(1) {
            None => self.site.root(),
            Some(other) => self.site.others().get(other),
        }
    }

    /// Continues with the next directory, if the path itself was `found` missing and may be kept there.
    pub(super) fn is_elsewhere(&mut self, found: AtPath) -> bool {
        let is_first = self.findings.missing_in == 0;
        let is_missing = match is_first {
            true => found == AtPath::Missing,
            false => found != AtPath::Regular,
        };
        let own = self.wanted().strip_prefix(b"/").unwrap_or_default();
        let is_own = matches!(self.lookup.step(), Step::Open(path) if path == own);
        if !is_missing || !is_own || !is_kept_name(own) {
            return false;
        }
        let has_next = self.findings.missing_in < self.site.others().len();
        self.findings.missing_in = if has_next {
            self.findings.missing_in + 1
        } else {
            0
        };
        has_next
    }
}

/// Whether a missing path may be in a directory that was there before: only names that change with
/// the content cannot be mistaken for something that was deleted.
fn is_kept_name(path: &[u8]) -> bool {
    str::from_utf8(path).is_ok_and(|path| framework_folder(path).is_some())
}
