//! Holds sections of a large site's archive on disk until their places in the archive are known.
//!
//! A section begins in memory and moves to an unnamed file when it outgrows that, so that a small
//! site creates no files.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::rc::Rc;

use gannet_archive::{SectionKind, Spool};

use super::limits::{COPY_CHUNK, SPOOLED_AT_ONCE};

/// Spools sections to files beside the archive.
#[derive(Debug)]
pub(super) struct DiskSpool {
    /// The prefix of the files' names until they are unlinked; a number is appended.
    path: PathBuf,
    sections: BTreeMap<u32, Section>,
    error: SpoolError,
}

/// The first error of a spool, to be checked when the archive is finished.
#[derive(Clone, Debug, Default)]
pub(super) struct SpoolError(Rc<RefCell<Option<io::Error>>>);

impl SpoolError {
    /// Returns and clears the error.
    ///
    /// # Errors
    /// The error that occurred, if any.
    pub(super) fn check(&self) -> io::Result<()> {
        self.0.borrow_mut().take().map_or(Ok(()), Err)
    }

    fn keep(&self, result: io::Result<()>) {
        if let Err(error) = result {
            self.0.borrow_mut().get_or_insert(error);
        }
    }
}

#[derive(Debug, Default)]
struct Section {
    /// The bytes after those in the file.
    last: Vec<u8>,
    file: Option<File>,
}

impl DiskSpool {
    /// Creates a spool whose files have names that start with `path`, and the place of its errors.
    pub(super) fn new(path: PathBuf) -> (Self, SpoolError) {
        let error = SpoolError::default();
        let spool = Self {
            path,
            sections: BTreeMap::new(),
            error: error.clone(),
        };
        (spool, error)
    }

    fn spill(&mut self, number: u32) -> io::Result<()> {
        let Some(section) = self.sections.get_mut(&number) else {
            return Ok(());
        };
        let file = match &mut section.file {
            Some(file) => file,
            none => {
                let mut name = self.path.clone().into_os_string();
                name.push(format!(".{number}"));
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .open(&name)?;
                // An unlinked file is freed when closed, even if this process dies.
                fs::remove_file(&name)?;
                none.insert(file)
            }
        };
        file.write_all(&section.last)?;
        section.last.clear();
        Ok(())
    }
}

impl Spool for DiskSpool {
    fn append(&mut self, section: SectionKind, bytes: &[u8]) {
        let number = section.number();
        let section = self.sections.entry(number).or_default();
        section.last.extend_from_slice(bytes);
        if section.last.len() >= SPOOLED_AT_ONCE {
            let spilled = self.spill(number);
            self.error.keep(spilled);
        }
    }

    fn read(&mut self, section: SectionKind, take: &mut dyn FnMut(&[u8])) {
        let Some(section) = self.sections.get_mut(&section.number()) else {
            return;
        };
        if let Some(file) = &mut section.file {
            self.error.keep(read_all(file, take));
        }
        take(&section.last);
    }
}

/// Reads a file from its start, and leaves the position at its end.
fn read_all(file: &mut File, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    let mut chunk = vec![0; COPY_CHUNK];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(count) => take(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_to_the_disk_comes_back_and_leaves_no_file() {
        let name = format!("gannet-spool-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).expect("writable");
        let (mut spool, error) = DiskSpool::new(folder.join("site"));
        let piece: Vec<u8> = (0..SPOOLED_AT_ONCE / 3).map(|n| n as u8).collect();
        let mut expected = Vec::new();
        for _ in 0..10 {
            spool.append(SectionKind::Variants, &piece);
            expected.extend_from_slice(&piece);
        }
        spool.append(SectionKind::TinyBlobs, b"small");
        let mut read = |kind| {
            let mut all = Vec::new();
            spool.read(kind, &mut |bytes| all.extend_from_slice(bytes));
            all
        };
        assert!(read(SectionKind::Variants) == expected);
        assert!(read(SectionKind::Variants) == expected, "twice");
        assert_eq!(read(SectionKind::TinyBlobs), b"small");
        assert_eq!(read(SectionKind::FieldsH1), b"");
        error.check().expect("no error");
        assert_eq!(fs::read_dir(&folder).expect("readable").count(), 0);
        fs::remove_dir(&folder).expect("empty");
        let (mut spool, error) = DiskSpool::new(folder.join("site"));
        spool.append(SectionKind::Variants, &vec![0; SPOOLED_AT_ONCE]);
        let found = error.check().map_err(|error| error.kind());
        assert_eq!(found, Err(io::ErrorKind::NotFound));
    }
}
