//! The note in a copy of what it is a copy of: two stores have the same serials for other releases, so
//! that what one has would count as news, or as an attack, in the copy of the other.

use std::path::Path;

use gannet_io::named_file;

use crate::error::FleetError;
use crate::limits::ORIGIN_LEN_MAX;
use crate::picture::write_anew;

/// Refuses the copy of another store. A folder without a note, such as a copy that an older version has
/// made, is that of any.
///
/// # Errors
/// The folder's note names another URL than this one, which has no password.
pub fn must_be_of(folder: &Path, url: &str) -> Result<(), FleetError> {
    match noted(folder).filter(|of| of != url) {
        None => Ok(()),
        Some(of) => Err(FleetError::OtherCopy {
            folder: folder.to_path_buf(),
            of,
            note: folder.join(NOTE),
        }),
    }
}

/// Notes what a folder is a copy of, if that is not noted yet.
///
/// # Errors
/// The note cannot be written.
pub(crate) fn note(folder: &Path, url: &str) -> Result<(), FleetError> {
    match noted(folder) {
        Some(_) => Ok(()),
        None => write_anew(&folder.join(NOTE), format!("{url}\n").as_bytes()),
    }
}

/// What the note says; one that is torn or cannot be read says nothing.
fn noted(folder: &Path) -> Option<String> {
    let text = named_file::read_text(&folder.join(NOTE), ORIGIN_LEN_MAX).ok()?;
    text.strip_suffix('\n').map(str::to_owned)
}

/// The file. Publishing and serving leave it alone.
const NOTE: &str = ".origin";
