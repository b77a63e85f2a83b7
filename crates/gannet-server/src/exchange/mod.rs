//! One request from its event to its response, the same for every version of HTTP.
//!
//! `pump` takes requests from a protocol machine and answers those that need only memory. Any other
//! waits with the release that it began with (`waiting::WaitingRequest`): `waiting` drives it,
//! `first_reads`, `listing` and `loading` do work shared by several waiters, `shortage` defers those
//! that found a resource exhausted. `answering` builds responses with the site's content, `own_answers`
//! all others; `timing` is their `server-timing`, `challenges` are those of ACME servers; `outgoing`
//! gathers the responses of one send, and `body` references content that follows it.

pub(crate) mod answering;
pub(crate) mod body;
pub(crate) mod challenges;
pub(crate) mod digests;
pub(crate) mod first_reads;
pub(crate) mod listing;
pub(crate) mod loading;
mod methods;
pub(crate) mod outgoing;
mod own_answers;
pub(crate) mod own_fields;
pub(crate) mod pump;
pub(crate) mod redirect;
pub(crate) mod shortage;
pub(crate) mod timing;
pub(crate) mod unopened;
pub(crate) mod waiting;

use gannet_http::semantics::status::Status;
use gannet_io::driver::{Done, Errno, File, OpenedFile, Survey};

use crate::passwords::checker::Checked;
use crate::release::directory::listings::ListingPage;

/// The event that wakes a waiting request.
pub(crate) enum Wakeup {
    Opened(OpenedFile),
    Read(Vec<u8>),
    /// The names of a folder.
    Surveyed(Survey),
    /// A listing that several requests may have waited for, or the status of its failure.
    Listed(Result<ListingPage, Status>),
    /// A copy of the file to be read.
    Copied(File),
    /// Admitted to read content.
    Admitted,
    /// A resource that was exhausted may be available again.
    Again,
    /// The awaited body is in memory.
    Loaded,
    /// The password of the request was compared with a hash.
    PasswordChecked(Checked),
    /// The site of the request is open, or cannot be: the status to answer with.
    SiteOpened(Result<(), Status>),
}

impl TryFrom<Done> for Wakeup {
    type Error = Errno;

    /// Converts the result of a disk operation.
    fn try_from(done: Done) -> Result<Self, Errno> {
        match done {
            Done::Opened(opened) => Ok(Self::Opened(opened)),
            Done::Read(bytes) => Ok(Self::Read(bytes)),
            Done::Surveyed(survey) => Ok(Self::Surveyed(survey)),
            _ => {
                debug_assert!(false, "waiters only open, survey and read");
                Err(Errno::IO)
            }
        }
    }
}
