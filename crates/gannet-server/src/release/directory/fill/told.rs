//! What an answer of the disk means for a lookup.

use gannet_content::directory::lookup::Told;
use gannet_io::driver::{Errno, FileKind};

use crate::exchange::Wakeup;

/// Whether descriptors or memory were used up, of the process or of the machine, or there is no
/// room among what waits for the disk (`EAGAIN`). It says nothing about the path.
pub(super) fn is_shortage(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN
    )
}

/// What a lookup is told of an answer.
pub(super) fn told(result: &Result<Wakeup, Errno>) -> Told {
    match result {
        Ok(Wakeup::Opened(opened)) => match opened.meta.kind {
            FileKind::Regular => Told::Regular,
            FileKind::Directory => Told::Directory,
            FileKind::Other => Told::Other,
        },
        Ok(_) => Told::Failed,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL) => Told::Missing,
        Err(Errno::ACCESS | Errno::PERM) => Told::Denied,
        Err(Errno::XDEV | Errno::LOOP) => Told::Escapes,
        Err(_) => Told::Failed,
    }
}
