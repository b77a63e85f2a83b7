//! One request from its event to its answer, the same for every version of HTTP.
//!
//! `pump` takes requests from a protocol machine and answers what memory can answer. What it cannot
//! waits with the release that it began with (`waiting::WaitingRequest`): `waiting` asks for it,
//! `first_reads`, `listing` and `loading` do what is done once for several who wait, `shortage` has
//! those for whom something was used up. `answering` makes the answer from what the site has,
//! `own_answers` the others; `outgoing` gathers the answers of one send, and names the content that
//! follows it as `body`.

pub(crate) mod answering;
pub(crate) mod body;
pub(crate) mod digests;
pub(crate) mod first_reads;
pub(crate) mod listing;
pub(crate) mod loading;
pub(crate) mod outgoing;
mod own_answers;
pub(crate) mod own_fields;
pub(crate) mod pump;
pub(crate) mod redirect;
pub(crate) mod shortage;
pub(crate) mod waiting;

use gannet_http::semantics::status::Status;
use gannet_io::driver::{Done, Errno, File, OpenedFile};

use crate::release::directory::listings::ListingPage;

/// What wakes a request that waits.
pub(crate) enum Wakeup {
    Opened(OpenedFile),
    Read(Vec<u8>),
    /// A listing that several may have waited for, or why there is none.
    Listed(Result<ListingPage, Status>),
    /// A copy of the file that was to be read.
    Copied(File),
    /// The turn to read has come.
    Admitted,
    /// What was short may be had again.
    Again,
    /// The body that was waited for is in memory.
    Loaded,
}

impl TryFrom<Done> for Wakeup {
    type Error = Errno;

    /// An answer of the engine to whoever asks it directly.
    fn try_from(done: Done) -> Result<Self, Errno> {
        match done {
            Done::Opened(opened) => Ok(Self::Opened(opened)),
            Done::Read(bytes) => Ok(Self::Read(bytes)),
            _ => {
                debug_assert!(false, "waiters only open and read");
                Err(Errno::IO)
            }
        }
    }
}
