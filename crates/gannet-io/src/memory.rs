//! Memory that a send may refer to: heap bytes, or a sealed copy of a file.

use std::any::Any;
use std::ffi::c_void;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::residency::last_errno;
use crate::shared_pages::PagePart;

/// Immutable memory shared with the kernel while a send is under way: heap bytes, or a sealed,
/// immutable copy of a file in a `memfd`. A mapping of a file that can still be truncated does not
/// qualify: access beyond the end raises SIGBUS.
pub struct Memory {
    kind: MemoryKind,
    #[expect(dead_code, reason = "it is dropped with the bytes")]
    attached: Option<Attached>,
}

enum MemoryKind {
    Heap(Box<[u8]>),
    Sealed(Mapping),
    Shared(Arc<PagePart>),
}

/// A value that lives as long as the bytes.
pub(crate) type Attached = Arc<dyn Any + Send + Sync>;

impl Memory {
    /// Heap bytes.
    #[must_use]
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        Self::new(MemoryKind::Heap(bytes.into_boxed_slice()), None)
    }

    /// Heap bytes; drops `what` with them, wherever that happens: perhaps in a send.
    #[must_use]
    pub fn from_vec_with(bytes: Vec<u8>, what: impl Any + Send + Sync) -> Self {
        let attached: Attached = Arc::new(what);
        Self::new(MemoryKind::Heap(bytes.into_boxed_slice()), Some(attached))
    }

    /// Maps a whole file in memory that is sealed against every change, as [`sealed_copy`] makes
    /// it.
    ///
    /// # Errors
    /// `InvalidInput` for a file that is not sealed that way, or is empty; those of `mmap`.
    pub fn map_sealed(file: impl AsFd) -> io::Result<Self> {
        Self::map_sealed_with(file, None)
    }

    /// As [`map_sealed`](Self::map_sealed); `attached` lives as long as the mapping.
    pub(crate) fn map_sealed_with(file: impl AsFd, attached: Option<Attached>) -> io::Result<Self> {
        let file = file.as_fd();
        let needed = SealFlags::SHRINK | SealFlags::WRITE;
        let seals = rustix::fs::fcntl_get_seals(file).unwrap_or(SealFlags::empty());
        let len = usize::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        if !seals.contains(needed) || len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mapping = Mapping::of(file, len, ProtFlags::READ)?;
        if len <= POPULATED_MAX {
            // A failure only costs speed.
            let _ = mapping.advise(Advice::LinuxPopulateRead);
        }
        Ok(Self::new(MemoryKind::Sealed(mapping), attached))
    }

    /// A part of a huge page; `attached` lives as long as the bytes.
    pub(crate) fn shared(part: Arc<PagePart>, attached: Option<Attached>) -> Self {
        Self::new(MemoryKind::Shared(part), attached)
    }

    fn new(kind: MemoryKind, attached: Option<Attached>) -> Self {
        Self { kind, attached }
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.kind {
            MemoryKind::Heap(bytes) => bytes,
            MemoryKind::Sealed(mapping) => mapping.sealed(),
            MemoryKind::Shared(part) => part.bytes(),
        }
    }

    /// The heap bytes, for reuse; what was attached to them is dropped. `None` for a sealed copy.
    #[must_use]
    pub fn into_vec(self) -> Option<Vec<u8>> {
        match self.kind {
            MemoryKind::Heap(bytes) => Some(bytes.into_vec()),
            MemoryKind::Sealed(_) | MemoryKind::Shared(_) => None,
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where the range begins, for the kernel to read. Panics if the range is out of bounds.
    pub(crate) fn address(&self, range: &Range<usize>) -> *const u8 {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "range within the memory"
        );
        self.bytes().as_ptr().wrapping_add(range.start)
    }
}

/// An immutable copy of the first `len` bytes of `file`: the descriptor of a sealed `memfd`, for
/// mapping and sending. It is in huge pages where the kernel has them.
///
/// # Errors
/// `UnexpectedEof` if the file is shorter; those of `memfd_create`, `ftruncate` and `pread`, `ENOMEM`
/// first of all; `InvalidInput` for an empty file.
pub fn sealed_copy(file: impl AsFd, len: u64) -> io::Result<OwnedFd> {
    if len == 0 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sealed_file(file, 0..len).map_err(|errno| match errno {
        Errno::NODATA => io::ErrorKind::UnexpectedEof.into(),
        errno => errno.into(),
    })
}

/// Reads `len` bytes of `file` from `offset` into our own memory, for data that is accessed at
/// random while serving. Huge pages, where the kernel provides them, speed up both the copy and the
/// accesses.
///
/// # Errors
/// Those of `pread`; `UnexpectedEof` if the file is too short, `OutOfMemory`.
pub fn read_large(file: impl AsFd, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let is_reserved = bytes.try_reserve_exact(len).is_ok();
    if !is_reserved {
        return Err(io::Error::from(io::ErrorKind::OutOfMemory));
    }
    let room = bytes.spare_capacity_mut();
    let lead = room.as_ptr().addr().next_multiple_of(HUGE_PAGE) - room.as_ptr().addr();
    if let Some(whole) = room
        .len()
        .checked_sub(lead)
        .map(|len| len - len % HUGE_PAGE)
        && whole > 0
    {
        let start = room[lead..].as_mut_ptr().cast::<c_void>();
        // SAFETY: the range is within the vector's spare capacity, and this advice changes no
        // content. If the kernel ignores it, the pages are ordinary ones.
        let _ = unsafe { rustix::mm::madvise(start, whole, Advice::LinuxHugepage) };
    }
    while bytes.len() < len {
        let at = offset + bytes.len() as u64;
        match rustix::io::pread(file.as_fd(), rustix::buffer::spare_capacity(&mut bytes), at) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// An immutable file in memory that holds a range of `file`: in huge pages as far as whole ones fit
/// and the kernel has them, whatever its policy for such files is. They are sent in longer pieces,
/// and freed in a moment. The rest is written rather than mapped: a page that is written whole is
/// not cleared first.
///
/// # Errors
/// `EMFILE`, `ENFILE`; `ENOMEM` when no copy can be made, whatever the cause: a sandbox may refuse
/// it. `ENODATA` when the file ends before the range, and those of `pread`.
pub(crate) fn sealed_file(file: impl AsFd, range: Range<u64>) -> Result<OwnedFd, Errno> {
    let (file, len) = (file.as_fd(), range.end - range.start);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = rustix::fs::memfd_create(c"gannet-file", flags);
    let memfd = memfd.map_err(|errno| match errno {
        Errno::MFILE | Errno::NFILE => errno,
        _ => Errno::NOMEM,
    })?;
    let mut done = copy_huge((file, range.start), memfd.as_fd(), len)?;
    let mut buffer = Vec::new();
    let room = (len - done).min(COPY_BUFFER_LEN) as usize;
    buffer.try_reserve_exact(room).map_err(|_| Errno::NOMEM)?;
    buffer.resize(room, 0);
    while done < len {
        let most = room.min(usize::try_from(len - done).unwrap_or(room));
        match rustix::io::pread(file, &mut buffer[..most], range.start + done) {
            Ok(0) => return Err(Errno::NODATA),
            Ok(count) => {
                write_all(memfd.as_fd(), &buffer[..count], done)?;
                done += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    rustix::fs::fcntl_add_seals(&memfd, SEALS)?;
    Ok(memfd)
}

/// Copies as many whole huge pages of `file`, from an offset and of `len` bytes, as the kernel has to
/// an empty `memfd`; returns their bytes, 0 if it has no such pages for it.
///
/// # Errors
/// As [`sealed_file`].
fn copy_huge(
    (file, offset): (BorrowedFd<'_>, u64),
    memfd: BorrowedFd<'_>,
    len: u64,
) -> Result<u64, Errno> {
    let whole = usize::try_from(len).unwrap_or(0) / HUGE_PAGE * HUGE_PAGE;
    if whole == 0 {
        return Ok(0);
    }
    let Some(target) = huge_mapping(memfd, whole)? else {
        return Ok(0);
    };
    // SAFETY: the memfd is not shared with anything else.
    let target = unsafe { target.part_mut(0..whole) };
    fill_copy((file, offset), target)?;
    Ok(whole as u64)
}

/// A writable mapping of an empty `memfd`, which becomes `whole` bytes long, whole huge pages. `None` if the kernel
/// has no such pages for it (before Linux 6.1, or too little contiguous memory).
///
/// # Errors
/// Those of `ftruncate` and `pwrite`.
pub(crate) fn huge_mapping(memfd: BorrowedFd<'_>, whole: usize) -> Result<Option<Mapping>, Errno> {
    rustix::fs::ftruncate(memfd, whole as u64)?;
    // The kernel collapses only ranges of which there is a page. Written, not touched in a mapping:
    // a lack of memory is an error here, and a signal there.
    for at in (0..whole).step_by(HUGE_PAGE) {
        write_all(memfd, &[0], at as u64)?;
    }
    let mapping = Mapping::aligned(memfd, whole).ok();
    Ok(mapping.filter(|it| it.collapse().is_ok()))
}

/// Reads exactly `target.len()` bytes of a file from an offset into a mapping.
///
/// # Errors
/// As [`sealed_file`].
pub(crate) fn fill_copy(from: (BorrowedFd<'_>, u64), target: &mut [u8]) -> Result<(), Errno> {
    match fill(from, target) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Err(Errno::NODATA),
        Err(e) => Err(match Errno::from_io_error(&e) {
            // A page of the mapping could not be had.
            None | Some(Errno::FAULT) => Errno::NOMEM,
            Some(errno) => errno,
        }),
    }
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(to, bytes, offset) {
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.kind {
            MemoryKind::Heap(_) => "heap",
            MemoryKind::Sealed(_) => "sealed",
            MemoryKind::Shared(_) => "shared",
        };
        write!(f, "Memory({kind}, {} bytes)", self.len())
    }
}

/// Against every change, and against other seals.
const SEALS: SealFlags = SealFlags::SHRINK
    .union(SealFlags::GROW)
    .union(SealFlags::WRITE)
    .union(SealFlags::SEAL);

/// Sealed files up to this length are mapped into the page tables at once; for larger ones, of
/// which few pages may ever be needed, the kernel does so on demand.
const POPULATED_MAX: usize = 8 << 20;

/// Bytes copied at a time: they stay in the second-level cache between read and write.
const COPY_BUFFER_LEN: u64 = 128 << 10;

/// `MADV_COLLAPSE` of `asm-generic/mman-common.h`, which not every C library declares.
const MADV_COLLAPSE: libc::c_int = 25;

/// The size of a huge page on every machine we know of with 4 KiB base pages.
pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Reads exactly `target.len()` bytes from an offset.
fn fill((file, offset): (BorrowedFd<'_>, u64), target: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < target.len() {
        match rustix::io::pread(file, &mut target[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// The beginning of a file in the address space; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<c_void>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread; shared references
// give out only addresses, bytes that are sealed against any change, and ranges whose callers promise that nobody
// writes them, or else that nobody else has them.
unsafe impl Send for Mapping {}
// SAFETY: as above; only `part_mut` writes through a shared reference.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(file: BorrowedFd<'_>, len: usize, access: ProtFlags) -> io::Result<Self> {
        let hint = std::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing.
        let base = unsafe { rustix::mm::mmap(hint, len, access, MapFlags::SHARED, file, 0)? };
        let base = NonNull::new(base).expect("mmap never returns null without MAP_FIXED");
        Ok(Self { base, len })
    }

    /// A writable mapping that begins at a multiple of the huge page size, without which the kernel
    /// gives it no such pages.
    fn aligned(file: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        let hint = std::ptr::null_mut();
        let (none, write) = (ProtFlags::empty(), ProtFlags::READ | ProtFlags::WRITE);
        let room = len + HUGE_PAGE;
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing.
        let room_at = unsafe { rustix::mm::mmap_anonymous(hint, room, none, MapFlags::PRIVATE)? };
        let lead = room_at.addr().next_multiple_of(HUGE_PAGE) - room_at.addr();
        let start = room_at.wrapping_byte_add(lead);
        let fixed = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: `lead` is less than a huge page, so the range is within the reserved one, which is
        // ours and unused.
        let mapped = unsafe { rustix::mm::mmap(start, len, write, fixed, file, 0) };
        let end = start.wrapping_byte_add(len);
        let (before, after) = match mapped {
            Ok(_) => ((room_at, lead), (end, HUGE_PAGE - lead)),
            Err(_) => ((room_at, room), (end, 0)),
        };
        for (at, len) in [before, after] {
            if len > 0 {
                // SAFETY: parts of the reserved range that nothing uses.
                let unmapped = unsafe { rustix::mm::munmap(at, len) };
                debug_assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
            }
        }
        let base = NonNull::new(mapped?).expect("mmap never returns null without MAP_FIXED");
        Ok(Self { base, len })
    }

    /// Puts what the mapping shows into huge pages now (`MADV_COLLAPSE`, Linux 6.1).
    fn collapse(&self) -> rustix::io::Result<()> {
        // SAFETY: the range is ours, and this advice changes none of its content.
        match unsafe { libc::madvise(self.base.as_ptr(), self.len, MADV_COLLAPSE) } {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }

    fn advise(&self, advice: Advice) -> rustix::io::Result<()> {
        // SAFETY: the range is ours, and the advice in use (populate) changes none of its
        // content.
        unsafe { rustix::mm::madvise(self.base.as_ptr(), self.len, advice) }
    }

    /// Bytes of a writable mapping.
    ///
    /// # Safety
    /// Nobody else reads or writes them while the slice lives, and the memfd is as long as the mapping.
    #[expect(
        clippy::mut_from_ref,
        reason = "parts of a mapping are written at the same time"
    )]
    pub(crate) unsafe fn part_mut(&self, range: Range<usize>) -> &mut [u8] {
        let at = self.address(&range);
        // SAFETY: within the mapping; the rest is promised by the caller.
        unsafe { std::slice::from_raw_parts_mut(at, range.len()) }
    }

    /// Bytes of a mapping.
    ///
    /// # Safety
    /// Nobody writes them while the slice lives, and the memfd is as long as the mapping.
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &[u8] {
        let at = self.address(&range);
        // SAFETY: within the mapping; the rest is promised by the caller.
        unsafe { std::slice::from_raw_parts(at, range.len()) }
    }

    fn address(&self, range: &Range<usize>) -> *mut u8 {
        let is_within = range.start <= range.end && range.end <= self.len;
        assert!(is_within, "a range of the mapping");
        self.base.as_ptr().cast::<u8>().wrapping_add(range.start)
    }

    /// The bytes of a sealed `memfd`.
    fn sealed(&self) -> &[u8] {
        // SAFETY: only called for `MemoryKind::Sealed`, whose constructors have sealed the memfd or
        // queried its seals: it has at least `len` bytes, and the seals prevent writing, shrinking
        // and unsealing while the mapping lives.
        unsafe { self.part(0..self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped in `of` or `aligned` and is unmapped once; borrowed slices have ended
        // (they borrow `self`), and operations of the kernel keep the owning `Arc`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.len) };
        debug_assert!(unmapped.is_ok(), "a mapping of ours can be unmapped");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file_with(bytes: &[u8]) -> std::fs::File {
        let memfd = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        let mut file = std::fs::File::from(memfd);
        file.write_all(bytes).unwrap();
        file
    }

    /// A part of a file that is larger than a huge page is read exactly.
    #[test]
    fn reads_large_parts() {
        let content: Vec<u8> = (0..5 << 20).map(|at: u32| (at / 7) as u8).collect();
        let file = file_with(&content);
        assert_eq!(
            read_large(&file, 3, 5_000_000).unwrap(),
            content[3..5_000_003]
        );
        assert_eq!(read_large(&file, 10, 0).unwrap(), []);
        let beyond = read_large(&file, 10, 5 << 20).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::UnexpectedEof);
        let absurd = read_large(&file, 0, usize::MAX).unwrap_err();
        assert_eq!(absurd.kind(), io::ErrorKind::OutOfMemory);
    }

    /// A sealed copy has the bytes and survives truncation of the original.
    #[test]
    fn seals_a_copy() {
        let content: Vec<u8> = (0..3_000_000u32).map(|i| (i / 3) as u8).collect();
        let file = file_with(&content);
        let sealed = sealed_copy(&file, 2_999_997).unwrap();
        file.set_len(0).unwrap();
        let memory = Memory::map_sealed(&sealed).unwrap();
        assert_eq!(memory.bytes()[..2_999_997], content[..2_999_997]);
    }

    /// The copy of a file has its bytes, and no more, whether or not it has huge pages; a file that
    /// is shorter is an error.
    #[test]
    fn a_sealed_file_has_the_bytes() {
        let huge = HUGE_PAGE as u64;
        let content: Vec<u8> = (0..3 * huge).map(|at| (at / 5 % 251) as u8).collect();
        let file = file_with(&content);
        let lens = [1, huge - 1, huge, huge + 1, 2 * huge, 3 * huge - 1];
        let ranges = lens.map(|len| 0..len).into_iter();
        for range in ranges.chain([7..9, huge + 1..3 * huge, 4_097..huge + 4_099]) {
            let sealed = sealed_file(&file, range.clone()).unwrap();
            let memory = Memory::map_sealed(&sealed).unwrap();
            let expected = &content[range.start as usize..range.end as usize];
            assert!(memory.bytes() == expected, "{range:?}");
        }
        for range in [
            0..3 * huge + 1,
            0..4 * huge,
            1..3 * huge + 1,
            2 * huge..4 * huge,
        ] {
            assert_eq!(sealed_file(&file, range).unwrap_err(), Errno::NODATA);
        }
    }

    /// A sealed file can be mapped for reading; a mutable one cannot.
    #[test]
    fn maps_only_what_is_sealed() {
        let content: Vec<u8> = (0..10_000u32).map(|i| (i / 5) as u8).collect();
        let file = file_with(&content);
        assert!(Memory::map_sealed(&file).is_err());
        let sealed = sealed_copy(&file, content.len() as u64).unwrap();
        let memory = Memory::map_sealed(&sealed).unwrap();
        assert_eq!(&memory.bytes()[..content.len()], &content);
    }

    /// A file shorter than requested is an error during the copy, not a fault later.
    #[test]
    fn refuses_a_short_file() {
        let file = file_with(b"short");
        let error = sealed_copy(&file, 6).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    #[should_panic(expected = "range within the memory")]
    fn refuses_a_range_outside() {
        let _ = Memory::from_vec(vec![0; 4]).address(&(2..5));
    }
}
