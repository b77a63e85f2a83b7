//! Open files: their metadata, reading them, and closing them.
//!
//! Everything here is a plain system call. Calls that may block are made on helper threads only.

use std::any::Any;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};

use rustix::fs::AtFlags;
use rustix::io::Errno;

use crate::closer::{Closer, Closing};
use crate::limits;
use crate::memory::{Attached, Memory};
use crate::meta::{Meta, heard_of, meta_of, meta_of_statx};
use crate::residency::{self, Residency, last_errno};
use crate::shared_pages::PagePart;
use crate::store::Store;

/// An open file. Cheap to clone; it is closed when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct File(Arc<Inner>);

/// A [`File`] that is open only as long as someone else has it.
#[derive(Clone, Debug)]
pub struct WeakFile(Weak<Inner>);

impl WeakFile {
    /// The file, if it is still open.
    #[must_use]
    pub fn upgrade(&self) -> Option<File> {
        self.0.upgrade().map(File)
    }
}

/// What a [`File`] holds.
#[derive(Debug)]
struct Inner {
    what: What,
    /// Dropped with the file, or with its mapping if that lives longer.
    attached: OnceLock<Attached>,
}

/// What is open.
#[derive(Debug)]
enum What {
    Os(OsFile),
    /// A file of a virtual disk, which alone knows its type.
    Virtual(Box<dyn Any + Send + Sync>),
}

/// An open file with its metadata, read from its own descriptor (`fstat`).
#[derive(Clone, Debug)]
pub struct OpenedFile {
    /// The descriptor.
    pub file: File,
    /// Its metadata.
    pub meta: Meta,
    /// All of its bytes, read before the metadata, if that was asked for and possible; otherwise none: see
    /// [`Disk::open_plain`](crate::disk::Disk::open_plain).
    pub content: Vec<u8>,
}

/// A descriptor and what is known about it.
#[derive(Debug)]
pub(crate) struct OsFile {
    /// Present until dropped.
    content: Option<Content>,
    pub(crate) store: Store,
    pub(crate) residency: Residency,
    /// Closes the descriptor, where closing may take long.
    pub(crate) closer: OnceLock<Closer>,
    /// Its mapping, if it is sealed memory and a mapping was requested.
    sealed: OnceLock<Option<Arc<Memory>>>,
}

/// What a file's bytes are read from.
#[derive(Debug)]
enum Content {
    /// A file of its own.
    Whole(OwnedFd),
    /// A part of one: a copy in memory.
    Part(Arc<PagePart>),
}

impl From<std::fs::File> for File {
    fn from(file: std::fs::File) -> Self {
        let fd = OwnedFd::from(file);
        let store = Store::of(fd.as_fd());
        Self::os(fd, store)
    }
}

impl File {
    pub(crate) fn os(fd: OwnedFd, store: Store) -> Self {
        Self::of_content(Content::Whole(fd), store)
    }

    /// A copy that is a part of a huge page.
    pub(crate) fn part(part: PagePart) -> Self {
        Self::of_content(Content::Part(Arc::new(part)), Store::Memory)
    }

    fn of_content(content: Content, store: Store) -> Self {
        Self::new(What::Os(OsFile {
            content: Some(content),
            store,
            residency: Residency::default(),
            closer: OnceLock::new(),
            sealed: OnceLock::new(),
        }))
    }

    /// A file of a virtual disk, which gets it back by [`as_virtual`](Self::as_virtual).
    pub(crate) fn of_virtual(file: impl Any + Send + Sync) -> Self {
        Self::new(What::Virtual(Box::new(file)))
    }

    fn new(what: What) -> Self {
        Self(Arc::new(Inner {
            what,
            attached: OnceLock::new(),
        }))
    }

    /// The same, without keeping it open.
    #[must_use]
    pub fn downgrade(&self) -> WeakFile {
        WeakFile(Arc::downgrade(&self.0))
    }

    /// Whether it is on a file system of another machine or process, which may hang for any length
    /// of time.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        matches!(&self.0.what, What::Os(file) if file.store == Store::Remote)
    }

    /// Drops `what` with the last clone of this file or the last user of its
    /// [`sealed_memory`](Self::sealed_memory), whichever lives longer: perhaps a send. To be called
    /// once, before that memory is first requested.
    pub fn attach(&self, what: impl Any + Send + Sync) {
        let is_first = self.0.attached.set(Arc::new(what)).is_ok();
        debug_assert!(is_first, "one thing is attached");
        if let What::Os(file) = &self.0.what {
            debug_assert!(file.sealed.get().is_none(), "a mapping would not keep it");
        }
    }

    /// Its content, if it is sealed memory, which user code may read.
    #[must_use]
    pub fn sealed_memory(&self) -> Option<&Arc<Memory>> {
        let What::Os(file) = &self.0.what else {
            return None;
        };
        if file.store != Store::Memory {
            return None;
        }
        let map = || {
            let attached = self.0.attached.get().cloned();
            if let Content::Part(part) = file.content() {
                return Some(Arc::new(Memory::shared(Arc::clone(part), attached)));
            }
            let mapped = Memory::map_sealed_with(file, attached);
            mapped.ok().map(Arc::new)
        };
        file.sealed.get_or_init(map).as_ref()
    }

    /// The descriptor and what is known about it. Panics on a file of a virtual disk, which a real
    /// engine never returns.
    pub(crate) fn as_os(&self) -> &OsFile {
        match &self.0.what {
            What::Os(file) => file,
            What::Virtual(_) => panic!("a file of a virtual disk in a real engine"),
        }
    }

    /// The file of a virtual disk, if it is one of type `F`.
    pub(crate) fn as_virtual<F: Any>(&self) -> Option<&F> {
        match &self.0.what {
            What::Os(_) => None,
            What::Virtual(file) => file.downcast_ref(),
        }
    }
}

/// Whether a call may wait for a disk or a network.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Blocking {
    /// Fail with `EAGAIN` instead.
    No,
    /// On a helper thread.
    Yes,
}

impl Drop for OsFile {
    fn drop(&mut self) {
        if let (Some(closer), Some(Content::Whole(fd))) = (self.closer.get(), self.content.take()) {
            let mapping = self.sealed.take().flatten();
            closer.close(Closing { fd, mapping });
        }
    }
}

impl AsFd for OsFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self.content() {
            Content::Whole(fd) => fd.as_fd(),
            Content::Part(part) => part.as_fd(),
        }
    }
}

impl OsFile {
    fn content(&self) -> &Content {
        self.content.as_ref().expect("taken by drop only")
    }

    /// Where an offset of the file is in that of its descriptor, which may have other files, too: at most where
    /// this one ends.
    pub(crate) fn place(&self, offset: u64) -> u64 {
        match self.content() {
            Content::Whole(_) => offset,
            Content::Part(part) => part.start() + offset.min(part.len()),
        }
    }

    /// Metadata of the descriptor, now. On a file system that may block, this is the kernel's
    /// cached metadata; to refresh it, open the path again on a helper.
    pub(crate) fn meta(&self) -> Result<Meta, Errno> {
        if self.store == Store::Remote {
            return heard_of(self, c"", AtFlags::EMPTY_PATH).map(|found| meta_of_statx(&found));
        }
        rustix::fs::fstat(self).map(|stat| meta_of(&stat))
    }

    /// Reads `len` bytes at `offset`, fewer only at the end of the file.
    ///
    /// With [`Blocking::No`], `EAGAIN` when any of it is not in memory, and `EOPNOTSUPP` when the
    /// file system does not support the query.
    pub(crate) fn read(&self, offset: u64, len: usize, how: Blocking) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        self.read_into(offset, len, &mut bytes, how)?;
        Ok(bytes)
    }

    /// As [`read`](Self::read), into a vector whose memory is reused. Nothing is cleared first:
    /// that would cost half as much as reading.
    pub(crate) fn read_into(
        &self,
        offset: u64,
        len: usize,
        bytes: &mut Vec<u8>,
        how: Blocking,
    ) -> Result<(), Errno> {
        bytes.clear();
        bytes.try_reserve_exact(len).map_err(|_| Errno::NOMEM)?;
        let end = self.place(offset.saturating_add(len as u64));
        let offset = self.place(offset);
        let len = (end - offset) as usize;
        while bytes.len() < len {
            let at = offset.saturating_add(bytes.len() as u64);
            let left = len - bytes.len();
            match read_more(self.as_fd(), at, left, bytes, how) {
                Ok(0) => break,
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    /// Whether closing it may take long: on a file system that may hang, or because it frees more
    /// memory than a worker should.
    pub(crate) fn is_slow_to_close(&self) -> bool {
        match (self.store, self.content()) {
            (Store::Remote, _) => true,
            // What others still use, or one huge page.
            (Store::Memory, Content::Part(_)) => false,
            (Store::Memory, Content::Whole(_)) => {
                rustix::fs::fstat(self).is_ok_and(|stat| stat.st_size > limits::FREED_AT_ONCE_MAX)
            }
            (Store::Disk, _) => false,
        }
    }

    /// Sets how the descriptor is closed, if that may take long.
    pub(crate) fn close_by(&self, closer: impl FnOnce() -> Closer) {
        if self.is_slow_to_close() {
            self.closer.get_or_init(closer);
        }
    }

    /// Reads what is missing of a range into the page cache, through a small buffer.
    pub(crate) fn warm(&self, offset: u64, len: u64) -> Result<(), Errno> {
        // Before the hint: a page counts as soon as its reading has begun.
        let missing = residency::missing(self.as_fd(), offset..offset + len);
        let len_hint = std::num::NonZeroU64::new(len);
        // One large request to the disk instead of many small ones; only a hint.
        let _ = rustix::fs::fadvise(self, offset, len_hint, rustix::fs::Advice::WillNeed);
        let mut scratch = [0; 16 * 1024];
        for mut piece in missing {
            while !piece.is_empty() {
                let room = (piece.end - piece.start).min(scratch.len() as u64) as usize;
                match rustix::io::pread(self, &mut scratch[..room], piece.start) {
                    Ok(0) => return Ok(()),
                    Ok(count) => piece.start += count as u64,
                    Err(Errno::INTR) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(())
    }
}

/// Reads once, at most `len` bytes, appending to the vector, which must have room for them.
pub(crate) fn read_more(
    fd: BorrowedFd<'_>,
    offset: u64,
    len: usize,
    bytes: &mut Vec<u8>,
    how: Blocking,
) -> Result<usize, Errno> {
    let flags = match how {
        Blocking::Yes => 0,
        Blocking::No => libc::RWF_NOWAIT,
    };
    let room = &mut bytes.spare_capacity_mut()[..len];
    let room = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    };
    // The system call takes the offset in two words; on a 64-bit machine the second is empty.
    let half = libc::c_long::BITS / 2;
    let (low, high) = (offset, offset >> half >> half);
    let (low, high) = (low as libc::c_long, high as libc::c_long);
    let fd = fd.as_raw_fd();
    // SAFETY: `room` is one entry for `iov_len` bytes of spare capacity, which `bytes` owns and
    // nothing else accesses during the call; the kernel writes only there. The arguments are of
    // the types that preadv2(2) takes.
    let count =
        unsafe { libc::syscall(libc::SYS_preadv2, fd, &raw const room, 1, low, high, flags) };
    let Ok(count) = usize::try_from(count) else {
        return Err(last_errno());
    };
    assert!(
        count <= len,
        "the kernel reads no more than it was asked for"
    );
    // SAFETY: the kernel has written the `count` bytes after `len()`, within the capacity.
    unsafe { bytes.set_len(bytes.len() + count) };
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::sealed_file;

    /// A value attached to a file is dropped with its last part: a send may hold only the memory.
    #[test]
    fn what_is_attached_lasts_as_long_as_file_and_memory() {
        let content = std::fs::File::open("/proc/self/exe").unwrap();
        for is_memory_last in [true, false] {
            let file = File::os(sealed_file(&content, 0..10_000).unwrap(), Store::Memory);
            let charge = Arc::new(());
            file.attach(Arc::clone(&charge));
            let memory = Arc::clone(file.sealed_memory().unwrap());
            if is_memory_last {
                drop(file);
                assert_eq!(Arc::strong_count(&charge), 2);
                drop(memory);
            } else {
                drop(memory);
                assert_eq!(Arc::strong_count(&charge), 2);
                drop(file);
            }
            assert_eq!(Arc::strong_count(&charge), 1);
        }
    }

    /// Both ways to query metadata give the same result, as do both ways to read.
    #[test]
    fn remote_files_look_the_same() {
        let open = || OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
        let local = File::os(open(), Store::Disk);
        let remote = File::os(open(), Store::Remote);
        assert_eq!(
            local.as_os().meta().unwrap(),
            remote.as_os().meta().unwrap()
        );
    }
}
