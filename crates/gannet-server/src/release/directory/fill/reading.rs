//! Reads the content of a file, in one version.

use std::rc::Rc;
use std::sync::Arc;

use gannet_http::semantics::coding::Coding;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, Errno, OpenedFile};
use gannet_io::memory::Memory;

use super::super::Cached;
use super::{DiskLookup, Filled, READS_MAX, State};
use crate::bounds::ledger::Charge;
use crate::bounds::limits::SMALL_FILE_MAX;
use crate::release::body::Body;
use crate::release::files::{is_link_change, meta_of_version};
use crate::release::wakeup::Wakeup;

impl DiskLookup {
    /// The file of a coding whose content is still unread. Those of other codings are closed.
    pub(crate) fn take_unread(&mut self, coding: Coding) -> Option<OpenedFile> {
        let unread = std::mem::take(&mut self.findings.unread);
        let mut found = unread.into_iter().filter(|(other, _)| *other == coding);
        found.next().map(|(_, opened)| opened)
    }

    /// Waits for the content of a coding that is being copied from this file, or read into memory
    /// that is already charged.
    pub(crate) fn await_content(
        &mut self,
        (cached, coding): (Rc<Cached>, Coding),
        opened: OpenedFile,
        charge: Option<Charge>,
    ) {
        self.state = State::Reading {
            cached,
            coding,
            opened,
            charge,
        };
    }

    /// The result for content that was read when its file was opened, into memory that is charged now.
    /// [`take`](Self::take) has seen that it is one version.
    pub(crate) fn content_at_hand(
        &self,
        (cached, coding): (Rc<Cached>, Coding),
        content: Vec<u8>,
        charge: Charge,
    ) -> Filled {
        let len = content.len();
        let memory = Arc::new(Memory::from_vec_with(content, Some(charge)));
        cached.set_body(coding, Body::Shared(memory, 0..len));
        Filled::File(cached, self.findings.status, None)
    }

    /// Handles the result of reading content. `None` if the file has changed meanwhile, so that one
    /// version of it is cached, and the lookup starts over.
    pub(crate) fn content_read<D: Driver>(
        &mut self,
        driver: &mut D,
        result: Result<Wakeup, Errno>,
    ) -> Option<Filled> {
        let state = std::mem::replace(&mut self.state, State::Looking);
        let State::Reading {
            cached,
            coding,
            opened,
            charge,
        } = state
        else {
            debug_assert!(false, "it awaits content");
            return Some(Filled::Error(Status::INTERNAL_SERVER_ERROR));
        };
        // A replacement by rename leaves this file as it is.
        let is_same = meta_of_version(driver, &opened.file, &opened.meta)
            .is_ok_and(|now| now == opened.meta || is_link_change(&opened.meta, &now));
        let is_long = opened.meta.len > SMALL_FILE_MAX;
        let body = match result {
            Ok(Wakeup::Read(bytes)) if is_same && bytes.len() as u64 == opened.meta.len => {
                let memory = Arc::new(Memory::from_vec_with(bytes, charge));
                Body::Shared(memory, 0..opened.meta.len as usize)
            }
            Ok(Wakeup::Copied(file)) if is_same => Body::copy(file, opened.meta.len),
            // It is shorter than before: it has changed.
            Ok(_) | Err(Errno::NODATA) => {
                self.reads += 1;
                if self.reads >= READS_MAX {
                    return Some(Filled::Error(Status::SERVICE_UNAVAILABLE));
                }
                self.start_over();
                return None;
            }
            // No descriptor or memory to spare: send it from the file itself.
            Err(Errno::NOMEM | Errno::MFILE | Errno::NFILE | Errno::AGAIN) if is_long => {
                return Some(self.live((cached, coding), opened));
            }
            Err(Errno::NOMEM | Errno::AGAIN) => return Some(Filled::Short),
            Err(errno) => {
                self.failed(self.variant_path(coding), errno);
                return Some(Filled::Error(Status::INTERNAL_SERVER_ERROR));
            }
        };
        cached.set_body(coding, body);
        Some(Filled::File(cached, self.findings.status, None))
    }

    /// The result for content that is sent directly from this file.
    pub(crate) fn live(
        &self,
        (cached, coding): (Rc<Cached>, Coding),
        opened: OpenedFile,
    ) -> Filled {
        let end = self.end_of(coding, &opened.meta);
        let file = cached.live(coding, opened, end);
        Filled::File(cached, self.findings.status, Some(file))
    }
}
