//! What a waiting request is woken with.

use gannet_http::semantics::status::Status;
use gannet_io::driver::{Done, Errno, File, OpenedFile};

use crate::passwords::checker::Checked;
use crate::release::directory::listings::ListingPage;

/// The event that wakes a waiting request.
pub(crate) enum Wakeup {
    Opened(OpenedFile),
    Read(Vec<u8>),
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
    /// A part of a release on demand is here, or cannot be: the status to answer with.
    Fetched(Result<(), Status>),
}

impl TryFrom<Done> for Wakeup {
    type Error = Errno;

    /// Converts the result of a disk operation.
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

/// Whether descriptors or memory were used up, of the process or of the system, or there was no
/// room in the disk queue (`EAGAIN`). Such an error says nothing about the path.
pub(crate) fn is_shortage(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN
    )
}
