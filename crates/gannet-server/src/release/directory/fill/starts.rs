//! Files whose first bytes decide about their fields: see [`stored_coding::is_told_by_start`].

use gannet_content::stored_coding::{self, START_LEN};
use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, Errno, OpenedFile, Started, Token};

use super::{DiskLookup, Filled, State};
use crate::release::wakeup::Wakeup;

impl DiskLookup {
    /// Takes the file found, or reads its first bytes before that.
    pub(super) fn found(&mut self, mut opened: OpenedFile) -> Option<Filled> {
        if !stored_coding::is_told_by_start(&self.file_path) {
            return self.take_original(opened);
        }
        // What was read ahead is not charged, and the read may take a while.
        opened.content = Vec::new();
        self.state = State::Start(opened);
        None
    }

    /// Reads the first bytes.
    pub(super) fn ask_start<D: Driver>(
        driver: &mut D,
        opened: &OpenedFile,
        token: Token,
    ) -> Started<Wakeup> {
        match driver.read(&opened.file, 0, START_LEN, token) {
            Started::Now(result) => Started::Now(result.map(Wakeup::Read)),
            Started::Pending => Started::Pending,
        }
    }

    /// Handles the first bytes: a file that is shorter is no gzip.
    pub(super) fn started(
        &mut self,
        opened: OpenedFile,
        result: Result<Wakeup, Errno>,
    ) -> Option<Filled> {
        self.is_gzip = match result {
            Ok(Wakeup::Read(start)) => stored_coding::is_gzip(&start),
            Err(Errno::NODATA) => false,
            _ => return Some(Filled::Error(Status::INTERNAL_SERVER_ERROR)),
        };
        self.take_original(opened)
    }
}
