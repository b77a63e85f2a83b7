//! The note in a copy of what it is a copy of: two stores have the same serials for other releases, so
//! that what one has would count as news, or as an attack, in the copy of the other.
//!
//! ```text
//! s3://bucket/site
//! service 5c1f0e6a93b2d847
//! ```
//!
//! The second line is that of a bucket, whose URL does not say which service or account has it. Earlier
//! versions wrote the first alone, which holds for any of them.

use std::fs::{self, DirEntry, File};
use std::io::Write;
use std::path::Path;

use gannet_io::named_file;
use gannet_store::ORIGIN;

use crate::error::FleetError;
use crate::limits::ORIGIN_LEN_MAX;
use crate::picture::remove;
use crate::remote::Remote;

/// Refuses the copy of another store. A folder without a note, such as a copy that an older version has
/// made, is that of any; and so is one in which nothing but the note is left.
///
/// # Errors
/// The folder's note names another URL than this store's, or another service.
pub fn must_be_of(folder: &Path, remote: &Remote) -> Result<(), FleetError> {
    let Some(text) = noted(folder) else {
        return Ok(());
    };
    let mut lines = text.lines();
    let of = lines.next().unwrap_or_default();
    let service = lines.next().and_then(|it| it.strip_prefix(SERVICE));
    let is_elsewhere = service.is_some_and(|it| Some(it) != remote.service().as_deref());
    if of == remote.url() && !is_elsewhere || is_empty(folder) {
        return Ok(());
    }
    Err(FleetError::OtherCopy {
        folder: folder.to_path_buf(),
        of: of.to_owned(),
        is_elsewhere: of == remote.url(),
        note: folder.join(ORIGIN),
    })
}

/// Notes what a folder is a copy of, if that is not noted yet. It is on the disk before anything else that
/// is written after it.
///
/// # Errors
/// The folder is the copy of another store by now, or the note cannot be written, and there is none of an
/// earlier version that names the URL.
pub(crate) fn note(folder: &Path, remote: &Remote) -> Result<(), FleetError> {
    let mut text = format!("{}\n", remote.url());
    if let Some(service) = remote.service() {
        text += &format!("{SERVICE}{service}\n");
    }
    let former = noted(folder);
    if former.as_ref() == Some(&text) {
        return Ok(());
    }
    must_be_of(folder, remote)?;
    let (draft, path) = (folder.join(DRAFT), folder.join(ORIGIN));
    let written = remove(&draft).and_then(|()| {
        let written = File::create_new(&draft).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(folder)?.sync_all()
        });
        written.map_err(FleetError::io("write", &path))
    });
    match written {
        // On a full disk, a release that comes into force makes room; the next round writes the note.
        Err(_) if former.is_some_and(|it| it == format!("{}\n", remote.url())) => {
            let _ = remove(&draft);
            Ok(())
        }
        written => written,
    }
}

/// What the note says; one that is torn or cannot be read says nothing.
fn noted(folder: &Path) -> Option<String> {
    let text = named_file::read_text(&folder.join(ORIGIN), ORIGIN_LEN_MAX).ok()?;
    text.ends_with('\n').then_some(text)
}

/// Whether a folder has nothing that a listing shows, but folders in which nothing is.
fn is_empty(folder: &Path) -> bool {
    let is_nothing = |entry: DirEntry| {
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        is_hidden || fs::read_dir(entry.path()).is_ok_and(|mut it| it.next().is_none())
    };
    fs::read_dir(folder).is_ok_and(|mut it| it.all(|entry| entry.is_ok_and(is_nothing)))
}

/// Before what tells services apart.
const SERVICE: &str = "service ";

/// The note before it has its name. The next process that opens the copy removes what is left of it.
const DRAFT: &str = ".new-origin";
