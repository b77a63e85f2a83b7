//! The output file of an archive, under another name until it is complete.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gannet_archive::limits::{BLOB_ALIGN, PACKED_WINDOW_LOG};
use gannet_archive::{
    Archive, ArchiveError, Finished, GroupHash, SUPERBLOCK_LEN, Superblock, TreeHasher, Writer,
};
use rustix::io::Errno;

use super::PackError;
use super::error::WRITE;
use super::limits::{COPY_CHUNK, KEPT_RUN_MAX, PACKED_LEVEL, REOPENED_MAX};
use super::previous::KeptBlob;

/// A file beside its target, renamed to the target once it is completely on disk.
pub(super) struct Output {
    temporary: Temporary,
    file: BufWriter<File>,
    /// The offset of the next byte, after those still to be copied.
    offset: u64,
    /// Stored bytes of an earlier archive to copy next.
    kept: Option<KeptRun>,
}

/// Consecutive blobs of an earlier archive that are consecutive in this one, too, and are copied
/// together with the padding between them.
struct KeptRun {
    source: Arc<File>,
    /// Their offset in the earlier archive.
    from: u64,
    /// Their offset in this archive.
    to: u64,
    len: u64,
}

impl KeptRun {
    /// Whether a blob for `offset` continues the run. The gap is smaller than the alignment of
    /// blobs, so that it cannot contain another blob, and is zero if the archive is unmodified. Tiny
    /// blobs have no alignment: between two of them may be a third.
    fn goes_on_with(&self, offset: u64, blob: &KeptBlob<'_>) -> bool {
        let is_padded = blob.is_ready() && !blob.is_tiny;
        let gap_max = if is_padded { BLOB_ALIGN - 1 } else { 0 };
        let end = self.from + self.len;
        Arc::ptr_eq(&self.source, &blob.archive.file)
            && (end..=end.saturating_add(gap_max)).contains(&blob.offset)
            && blob.offset - self.from == offset - self.to
            && self.len < KEPT_RUN_MAX
    }
}

/// A file beside its target, which gets the target's name once it is completely on disk. It is removed
/// on drop, unless that has happened.
pub(crate) struct Temporary {
    target: PathBuf,
    /// `None` once it is the target.
    path: Option<PathBuf>,
}

impl Temporary {
    /// Begins a file that will become `target`, to be read and written. An existing one stays until
    /// [`Temporary::publish`]; if that is a link, what it leads to is replaced.
    ///
    /// # Errors
    /// The target is a folder or a device, or the system refuses something.
    pub(crate) fn create(target: &Path) -> io::Result<(Self, File)> {
        // A device or a FIFO would be replaced by a file.
        match fs::metadata(target) {
            Ok(found) if found.is_dir() => return Err(Errno::ISDIR.into()),
            Ok(found) if !found.is_file() => {
                return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a file"));
            }
            _ => {}
        }
        let target = target
            .canonicalize()
            .unwrap_or_else(|_| target.to_path_buf());
        let name = target.file_name().ok_or(Errno::ISDIR)?;
        let path = hidden_beside(&target, name);
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true);
        let file = options.open(&path)?;
        let path = Some(path);
        Ok((Self { target, path }, file))
    }

    /// The path of the file to be.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Gives the file its name, durably.
    ///
    /// # Errors
    /// Those of rename(2) and fsync(2).
    pub(crate) fn publish(mut self, file: &File) -> io::Result<()> {
        file.sync_all()?;
        if let Some(path) = &self.path {
            fs::rename(path, &self.target)?;
        }
        self.path = None;
        // The new name is durable only once its folder is flushed.
        File::open(folder_of(&self.target))?.sync_all()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // An error is already being reported.
            let _ = fs::remove_file(path);
        }
    }
}

impl Output {
    /// Begins a file that will become `target`. An existing one stays until [`Output::publish`].
    pub(super) fn create(target: &Path) -> Result<Self, PackError> {
        let created = Temporary::create(target);
        let (temporary, file) = created.map_err(PackError::io(WRITE, target))?;
        let mut output = Self {
            temporary,
            file: BufWriter::with_capacity(COPY_CHUNK, file),
            offset: 0,
            kept: None,
        };
        output.pad_to(SUPERBLOCK_LEN as u64)?;
        Ok(output)
    }

    /// Writes `bytes` at `offset`, which is not before the end of the file; pads with zeros.
    pub(super) fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), PackError> {
        self.pad_to(offset)?;
        self.file
            .write_all(bytes)
            .map_err(PackError::io(WRITE, self.target()))?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Copies all of `source` to `offset`; returns its length, its digest and its tree.
    pub(super) fn copy_at(
        &mut self,
        offset: u64,
        source: &mut dyn Read,
        path: &Path,
    ) -> Result<(u64, [u8; 32], Vec<GroupHash>), PackError> {
        self.pad_to(offset)?;
        let mut hasher = TreeHasher::default();
        let mut chunk = vec![0; COPY_CHUNK];
        loop {
            let count = match source.read(&mut chunk) {
                Ok(0) => return Ok(hasher.finish()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(PackError::io("read", path)(error)),
            };
            hasher.update(&chunk[..count]);
            self.write_at(self.offset, &chunk[..count])?;
        }
    }

    /// Copies stored bytes of an earlier archive to `offset`, together with any that follow
    /// directly. File systems that can share blocks between files do not copy the data.
    pub(super) fn copy_kept(&mut self, offset: u64, blob: &KeptBlob<'_>) -> Result<(), PackError> {
        match &mut self.kept {
            Some(run) if run.goes_on_with(offset, blob) => {
                run.len = offset - run.to + blob.len;
            }
            _ => {
                self.pad_to(offset)?;
                self.kept = Some(KeptRun {
                    source: Arc::clone(&blob.archive.file),
                    from: blob.offset,
                    to: offset,
                    len: blob.len,
                });
            }
        }
        self.offset = offset + blob.len;
        Ok(())
    }

    /// Copies the pending run.
    fn copy_run(&mut self) -> io::Result<()> {
        let Some(KeptRun {
            source, from, len, ..
        }) = self.kept.take()
        else {
            return Ok(());
        };
        self.file.flush()?;
        let mut source = &*source;
        source.seek(SeekFrom::Start(from))?;
        if io::copy(&mut source.take(len), self.file.get_mut())? == len {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// The path of the archive being written.
    pub(super) fn target(&self) -> &Path {
        self.temporary.target()
    }

    /// The file's temporary name.
    pub(super) fn temporary(&self) -> PathBuf {
        self.temporary.path.clone().unwrap_or_default()
    }

    /// Writes the metadata region. Returns the result of writing besides that of `writer`.
    pub(super) fn finish(
        &mut self,
        writer: Writer,
    ) -> Result<(Finished, io::Result<()>), ArchiveError> {
        let mut written = self.align();
        let finished = writer.finish_into(&mut |bytes| {
            if written.is_ok() {
                written = self.file.write_all(bytes);
                self.offset += bytes.len() as u64;
            }
        })?;
        debug_assert!(written.is_err() || self.offset == finished.file_len);
        Ok((finished, written))
    }

    /// Writes the metadata region a second time, packed, if the superblock says so. Returns the length of the file.
    pub(super) fn pack_metadata(&mut self, finished: &Finished) -> io::Result<u64> {
        if !finished.is_packed {
            return Ok(finished.file_len);
        }
        self.file.flush()?;
        let source = self.file.get_ref().try_clone()?;
        let mut encoder = zstd::Encoder::new(&mut self.file, PACKED_LEVEL)?;
        encoder.window_log(PACKED_WINDOW_LOG)?;
        let mut chunk = vec![0; COPY_CHUNK];
        let mut at = finished.metadata_offset;
        while at < finished.file_len {
            let left = usize::try_from(finished.file_len - at).unwrap_or(COPY_CHUNK);
            let piece = &mut chunk[..left.min(COPY_CHUNK)];
            source.read_exact_at(piece, at)?;
            encoder.write_all(piece)?;
            at += piece.len() as u64;
        }
        encoder.finish()?;
        self.file.stream_position()
    }

    /// Opens the written archive like a server, unless it is too large for that.
    pub(super) fn reopen(
        &mut self,
        finished: &Finished,
    ) -> Result<Result<(), ArchiveError>, PackError> {
        let len = finished.file_len - finished.metadata_offset;
        if len > REOPENED_MAX {
            return Ok(Ok(()));
        }
        let mut metadata = vec![0; usize::try_from(len).unwrap_or(0)];
        let flushed = self.file.flush();
        flushed.map_err(PackError::io(WRITE, self.target()))?;
        let file = self.file.get_ref();
        let read = file.read_exact_at(&mut metadata, finished.metadata_offset);
        read.map_err(PackError::io("read", self.target()))?;
        let opened = Superblock::parse(&finished.superblock, finished.file_len)
            .and_then(|superblock| Archive::new(superblock, metadata.as_slice()).map(|_| ()));
        Ok(opened)
    }

    /// Pads to the page where the metadata region begins.
    fn align(&mut self) -> io::Result<()> {
        self.copy_run()?;
        let offset = self.offset.next_multiple_of(SUPERBLOCK_LEN as u64);
        io::copy(
            &mut io::repeat(0).take(offset - self.offset),
            &mut self.file,
        )?;
        self.offset = offset;
        Ok(())
    }

    /// Flushes everything to disk, and renames the file. The superblock is written last: a file
    /// without it is not an archive.
    pub(super) fn publish(self, finished: &Finished) -> Result<(), PackError> {
        let Self {
            temporary, file, ..
        } = self;
        let target = temporary.target().to_path_buf();
        let refuse = |error| PackError::io(WRITE, &target)(error);
        let mut file = file
            .into_inner()
            .map_err(|error| refuse(error.into_error()))?;
        file.sync_data().map_err(refuse)?;
        file.seek(SeekFrom::Start(0)).map_err(refuse)?;
        file.write_all(&finished.superblock).map_err(refuse)?;
        temporary.publish(&file).map_err(refuse)
    }

    fn pad_to(&mut self, offset: u64) -> Result<(), PackError> {
        debug_assert!(
            offset >= self.offset,
            "blobs are placed one after the other"
        );
        let padding = offset.saturating_sub(self.offset);
        self.copy_run()
            .and_then(|()| io::copy(&mut io::repeat(0).take(padding), &mut self.file))
            .map_err(PackError::io(WRITE, self.target()))?;
        self.offset += padding;
        Ok(())
    }
}

/// The temporary name of an archive written to `target` by this process; `None` if `target` cannot
/// be a file name.
#[must_use]
pub fn temporary_of(target: &Path) -> Option<PathBuf> {
    let target = target
        .canonicalize()
        .unwrap_or_else(|_| target.to_path_buf());
    Some(hidden_beside(&target, target.file_name()?))
}

fn folder_of(target: &Path) -> PathBuf {
    match target.parent() {
        Some(folder) if folder != Path::new("") => folder.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// The leading dot keeps it out of sites that are served or packed.
pub(super) fn hidden_beside(target: &Path, name: &OsStr) -> PathBuf {
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.tmp", std::process::id()));
    folder_of(target).join(hidden)
}

#[cfg(test)]
mod tests {
    use gannet_archive::{Key, Options};

    use super::*;

    #[test]
    fn the_metadata_follows_packed() {
        let name = format!("gannet-output-{}.gannet", std::process::id());
        let target = std::env::temp_dir().join(name);
        let mut output = Output::create(&target).expect("there is room");
        let mut writer = Writer::new(Options::default());
        for number in 0..10_000 {
            let path = format!("/{number}");
            writer.add_redirect(Key::content(path.as_bytes()), 301, b"/");
        }
        writer.pack_metadata_from(0);
        let (finished, written) = output.finish(writer).expect("sound");
        written.expect("there is room");
        output.reopen(&finished).expect("readable").expect("sound");
        let len = output.pack_metadata(&finished).expect("there is room");
        output.publish(&finished).expect("there is room");
        let file = fs::read(&target).expect("it is there");
        fs::remove_file(&target).expect("it is there");
        assert_eq!(file.len() as u64, len);
        let superblock = Superblock::parse(&file[..SUPERBLOCK_LEN], len).expect("sound");
        let packed = superblock.packed_metadata(len).expect("it says so");
        let unpacked = zstd::decode_all(&file[packed.start as usize..]).expect("a frame");
        let metadata = superblock.metadata_range();
        assert!(unpacked == file[metadata.start as usize..metadata.end as usize]);
    }
}
