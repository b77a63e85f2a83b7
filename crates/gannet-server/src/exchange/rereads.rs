//! Slices of files that were read for responses; and reading again what was sent of a file that has grown
//! meanwhile ([`growing`](crate::release::growing)).
//!
//! All responses of a worker share a budget for that in each turn. Those that exceed it wait in a line.

use gannet_io::driver::{Driver, Errno, Started, Token};

use crate::bounds::ledger::Work;
use crate::exchange::shared::Shared;
use crate::release::ServedFile;
use crate::release::growing::SliceTaken;
use crate::release::wakeup::Wakeup;

/// The bytes to send of a slice.
pub(crate) enum SliceRead {
    /// All of it.
    Read(Vec<u8>),
    /// Those are read again first: the waiter is woken for the next step.
    Awaited,
    /// The read failed, the file is shorter than announced, or holds another version now.
    Lost,
}

impl<D: Driver> Shared<D> {
    /// Takes the result of reading `len` bytes of a file for a response.
    pub(crate) fn slice_read(
        &mut self,
        (file, len): (&ServedFile, usize),
        mut wakeup: Result<Wakeup, Errno>,
        waiter: Token,
    ) -> SliceRead {
        loop {
            let again = match wakeup {
                Ok(Wakeup::Read(bytes)) => match file.take((bytes, len), &self.driver) {
                    SliceTaken::Send(bytes) => return SliceRead::Read(bytes),
                    SliceTaken::ReadAgain(bytes) => {
                        self.driver.give_back(bytes);
                        let next = file.growth().and_then(|growing| growing.next());
                        let len = next.map_or(0, |next| next.end - next.start);
                        if !self.may_reread(len) {
                            self.rereads.push(waiter, &mut self.waiters);
                            return SliceRead::Awaited;
                        }
                        file.growth()
                    }
                    SliceTaken::Changed => None,
                },
                Ok(Wakeup::Admitted) => file.growth(),
                _ => None,
            };
            let Some(next) = again.and_then(|growing| growing.next()) else {
                self.counters.cut_short += 1;
                return SliceRead::Lost;
            };
            let len = next.end - next.start;
            self.counters.reread += len;
            let started = self
                .driver
                .read(&file.file, next.start, len as usize, waiter);
            match started {
                Started::Now(result) => wakeup = result.map(Wakeup::Read),
                Started::Pending => return SliceRead::Awaited,
            }
        }
    }

    /// Whether `len` bytes may be read again now: no other response waits for that, and the budget allows it.
    fn may_reread(&mut self, len: u64) -> bool {
        self.rereads.0.is_empty() && self.budget.take(Work::Reread, len)
    }
}
