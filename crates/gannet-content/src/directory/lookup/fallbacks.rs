//! The pages of folders that answer for missing paths below them: those of the deepest existing
//! folder, found by bisection, then those of the folders above it.

use std::sync::Arc;

use gannet_http::semantics::status::Status;

use super::{AtPath, End, Lookup, State};
use crate::limits::NOT_FOUND_FOLDERS_MAX;
use crate::routing::FallbackKind;

impl Lookup {
    /// Queries the fallbacks of the deepest existing folder within `fallback_len`.
    pub(super) fn ask_nearest_fallback(&mut self) {
        let path = &self.path[..self.fallback_len];
        let folders = path.iter().filter(|&&byte| byte == b'/').count();
        self.ask_folder(0, folders.min(NOT_FOUND_FOLDERS_MAX - 1));
    }

    /// Queries the folder in the middle between two levels, or the fallbacks of the deepest
    /// existing one.
    fn ask_folder(&mut self, low: usize, high: usize) {
        if low == high {
            return self.ask_fallback(self.folder_len(low), 0);
        }
        let folder_len = self.folder_len(middle(low, high));
        self.name.clear();
        self.name.extend_from_slice(&self.path[..folder_len]);
        self.state = State::Folder { low, high };
    }

    /// Nothing exists below a missing folder. A folder that may not be opened may contain files
    /// that may.
    pub(super) fn take_folder(&mut self, low: usize, high: usize, at_path: AtPath) {
        let asked = middle(low, high);
        match at_path {
            AtPath::Directory | AtPath::Denied => self.ask_folder(asked, high),
            _ => self.ask_folder(low, asked - 1),
        }
    }

    /// The length of the name of the path's folder at this level; the root is level 0.
    fn folder_len(&self, level: usize) -> usize {
        let slashes = self
            .path
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/');
        let mut ends = slashes.map(|(index, _)| index);
        level
            .checked_sub(1)
            .and_then(|before| ends.nth(before))
            .unwrap_or(0)
    }

    /// Queries a fallback from number `next` on, in the folder whose name is `folder_len` bytes
    /// long, then in the one above it.
    fn ask_fallback(&mut self, folder_len: usize, next: usize) {
        let routing = Arc::clone(&self.routing);
        let is_rule = self.rule_status.is_some();
        let may_answer = |kind: FallbackKind| match kind.status(&self.path, self.is_navigation) {
            Some(status) => !is_rule || status == Status::NOT_FOUND,
            None => false,
        };
        let mut rest = (next..).zip(routing.fallbacks.get(next..).unwrap_or_default());
        if let Some((next, fallback)) = rest.find(|(_, one)| may_answer(one.kind)) {
            self.name.clear();
            self.name.extend_from_slice(&self.path[..folder_len]);
            if folder_len > 0 {
                self.name.push(b'/');
            }
            self.name.extend_from_slice(&fallback.name);
            self.state = State::Fallback { folder_len, next };
        } else if folder_len == 0 {
            self.state = State::Done(End::Missing);
        } else {
            let slash = |byte: &u8| *byte == b'/';
            let parent = self.path[..folder_len].iter().rposition(slash);
            self.ask_fallback(parent.unwrap_or(0), 0);
        }
    }

    /// A page that cannot be read must not turn a 404 into a 403: the path is missing.
    pub(super) fn take_fallback(&mut self, folder_len: usize, next: usize, at_path: AtPath) {
        if at_path != AtPath::Regular {
            return self.ask_fallback(folder_len, next + 1);
        }
        let kind = self.routing.fallbacks.get(next).map(|one| one.kind);
        let status = kind.and_then(|kind| kind.status(&self.path, self.is_navigation));
        let found = status.filter(|status| *status != Status::NOT_FOUND);
        self.found_other(found.unwrap_or(self.missing_status()));
    }
}

/// The level between two, the greater one if they are adjacent.
fn middle(low: usize, high: usize) -> usize {
    (low + high).div_ceil(2)
}
