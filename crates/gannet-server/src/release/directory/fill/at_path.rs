//! The meaning of a disk result for a lookup.

use gannet_content::directory::lookup::AtPath;
use gannet_io::driver::{Errno, FileKind};

use crate::release::wakeup::Wakeup;

/// What a result says about the path.
pub(super) fn at_path(result: &Result<Wakeup, Errno>) -> AtPath {
    match result {
        Ok(Wakeup::Opened(opened)) => match opened.meta.kind {
            FileKind::Regular => AtPath::Regular,
            FileKind::Directory => AtPath::Directory,
            FileKind::Other => AtPath::Other,
        },
        Ok(_) => AtPath::Failed,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::NAMETOOLONG | Errno::INVAL) => AtPath::Missing,
        Err(Errno::ACCESS | Errno::PERM) => AtPath::Denied,
        Err(Errno::XDEV | Errno::LOOP) => AtPath::Escapes,
        Err(_) => AtPath::Failed,
    }
}
