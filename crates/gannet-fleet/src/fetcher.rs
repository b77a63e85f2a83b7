//! Fetches what partial releases lack, when servers ask for it.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use gannet_store::ReleaseId;

use crate::error::FleetError;
use crate::remote::Remote;

/// What a fetcher may do.
#[derive(Clone, Copy, Debug)]
pub struct FetchSettings {
    /// Bytes that all files of releases take on the disk, at most.
    pub room: u64,
    /// Bytes that are fetched in a second, at most.
    pub rate_max: Option<u64>,
}

/// What a server needs of a partial release.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Want {
    /// The release.
    pub release: ReleaseId,
    /// The number of a stored blob.
    pub blob: u32,
    /// A range of the blob, counted from its start; it may go beyond its end.
    pub range: Range<u64>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Answer {
    /// The units at the start of the range are there, as many as fit into
    /// [`FETCH_LEN_MAX`](crate::limits::FETCH_LEN_MAX).
    Present(Effort),
    /// They are not.
    Failed(Reason, Effort),
}

/// Why something was not fetched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// The store sends other bytes than those of the release.
    Damaged,
    /// The store does not answer, or not in time, or refuses.
    Unreachable,
    /// There is no room for it, or the disk fails.
    NoRoom,
    /// Too many wait already.
    Busy,
    /// There is no such partial release here, or it has no such blob.
    Unknown,
}

/// What it took. Of those that wait for one fetch, the first alone learns of it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Effort {
    /// Bytes that came from the store.
    pub fetched: u64,
    /// How long the store took; zero if nothing was fetched.
    pub took: Duration,
    /// Units that were not what they should be.
    pub unverified: u32,
}

/// Is called with an answer, on the fetcher's thread, for which it must not be long.
pub type Answered = Box<dyn FnOnce(Answer) + Send>;

/// Fetches units of the partial releases of a copy, on a thread of its own.
pub struct Fetcher {}

impl Fetcher {
    /// Begins. The [`Follower`](crate::Follower) of the folder has to live as long: it has the lock. `report` is
    /// called with what fails, on the fetcher's thread; the same failure is reported once until a fetch succeeds.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(
        remote: Remote,
        folder: &Path,
        settings: FetchSettings,
        report: impl FnMut(FleetError) + Send + 'static,
    ) -> Result<Self, FleetError> {
        let _ = (remote, folder, settings, report);
        Ok(Self {})
    }

    /// Makes what a server needs present, and reads ahead to the end of the blob; of a longer one
    /// [`FETCH_LEN_MAX`](crate::limits::FETCH_LEN_MAX) bytes.
    pub fn ask(&self, want: Want, answered: Answered) {
        let _ = (self, want);
        answered(Answer::Failed(Reason::Unknown, Effort::default()));
    }

    /// A server has sent this without asking: what is used stays, and is fetched first of the next release. It is
    /// dropped if there is too much to do.
    pub fn used(&self, want: Want) {
        let _ = (self, want);
    }

    /// This release is in force from here on: it is warmed by the use of the one before.
    pub fn in_force(&self, release: ReleaseId) {
        let _ = (self, release);
    }
}
