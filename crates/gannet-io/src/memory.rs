//! Memory that a send may point into: heap bytes, a mapped file, or a sealed copy of a file.

use std::ffi::c_void;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Immutable memory shared with the kernel while a send is under way.
///
/// Three kinds: heap bytes; a mapping of a file that anybody may still truncate; and a sealed copy
/// of a file in a `memfd`, which nobody can change. User code may read only the first and the last
/// ([`as_heap_slice`](Self::as_heap_slice)): touching a mapping beyond the end of a truncated file
/// raises SIGBUS, whereas the kernel answers `EFAULT` for the same page.
pub struct Memory(Kind);

enum Kind {
    Heap(Box<[u8]>),
    Mapped(Mapping, Origin),
    Sealed(Mapping),
}

/// Where the bytes of a mapping come from, for reading them without touching it.
struct Origin {
    file: OwnedFd,
    offset: u64,
}

impl Memory {
    /// Heap bytes.
    #[must_use]
    pub fn from_vec(bytes: Vec<u8>) -> Self {
        Self(Kind::Heap(bytes.into_boxed_slice()))
    }

    /// Maps `len` bytes of `file` from `offset` (any byte position), shared and read-only.
    ///
    /// # Errors
    /// Those of `mmap`; `EINVAL` when the end of the range does not fit the address space.
    pub fn map(file: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self::from_vec(Vec::new()));
        }
        let mapping = Mapping::of(file.as_fd(), offset, len, ProtFlags::READ)?;
        let file = file.as_fd().try_clone_to_owned()?;
        Ok(Self(Kind::Mapped(mapping, Origin { file, offset })))
    }

    /// Maps a whole file in memory that is sealed against every change, as [`sealed_copy`] makes
    /// it.
    ///
    /// # Errors
    /// `InvalidInput` for a file that is not sealed so, or is empty; those of `mmap`.
    pub fn map_sealed(file: impl AsFd) -> io::Result<Self> {
        let file = file.as_fd();
        let needed = SealFlags::SHRINK | SealFlags::WRITE;
        let seals = rustix::fs::fcntl_get_seals(file).unwrap_or(SealFlags::empty());
        let len = usize::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
        if !seals.contains(needed) || len == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mapping = Mapping::of(file, 0, len, ProtFlags::READ)?;
        if len <= POPULATED_MAX {
            // Only a matter of speed.
            let _ = mapping.advise(Advice::LinuxPopulateRead);
        }
        Ok(Self(Kind::Sealed(mapping)))
    }

    /// Copies `len` bytes of `file` from `offset` into a `memfd` sealed against every change, in
    /// huge pages where the system has them.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file is shorter; those of `memfd_create`, `ftruncate`, `mmap` and
    /// `pread`, `ENOMEM` first of all.
    pub fn seal_copy(file: impl AsFd, offset: u64, len: usize) -> io::Result<Self> {
        if len == 0 {
            return Ok(Self::from_vec(Vec::new()));
        }
        let (memfd, mapped_len) = seal(file.as_fd(), offset, len)?;
        let mut sealed = Mapping::of(memfd.as_fd(), 0, mapped_len, ProtFlags::READ)?;
        sealed.len = len;
        Ok(Self(Kind::Sealed(sealed)))
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.0 {
            Kind::Heap(bytes) => bytes.len(),
            Kind::Mapped(mapping, _) | Kind::Sealed(mapping) => mapping.len,
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, if user code may read them without risk of SIGBUS: heap and sealed memory.
    #[must_use]
    pub fn as_heap_slice(&self) -> Option<&[u8]> {
        match &self.0 {
            Kind::Heap(bytes) => Some(bytes),
            Kind::Mapped(..) => None,
            Kind::Sealed(mapping) => Some(mapping.sealed()),
        }
    }

    /// Copies a range into `to`, whatever kind of memory it is: a mapped file is read, not touched.
    /// Waits for the disk if the bytes are not in memory.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file was truncated; those of `pread`.
    ///
    /// # Panics
    /// If the range is out of bounds or not as long as `to`.
    pub fn copy_to(&self, range: Range<usize>, to: &mut [u8]) -> io::Result<()> {
        assert_eq!(range.len(), to.len(), "a range as long as its target");
        match &self.0 {
            Kind::Heap(bytes) => to.copy_from_slice(&bytes[range]),
            Kind::Sealed(mapping) => to.copy_from_slice(&mapping.sealed()[range]),
            Kind::Mapped(mapping, origin) => {
                assert!(range.end <= mapping.len, "range within the memory");
                fill(origin.file.as_fd(), origin.offset + range.start as u64, to)?;
            }
        }
        Ok(())
    }

    /// Reads the whole range into memory now (`MADV_POPULATE_READ`, Linux 5.14). Does nothing for
    /// heap and sealed memory, which is there already.
    ///
    /// # Errors
    /// `EFAULT` when the file is shorter than the mapping, `EIO`, `ENOMEM`; `EINVAL` on an older
    /// kernel.
    pub fn preload(&self) -> io::Result<()> {
        match &self.0 {
            Kind::Mapped(mapping, _) => Ok(mapping.advise(Advice::LinuxPopulateRead)?),
            Kind::Heap(_) | Kind::Sealed(_) => Ok(()),
        }
    }

    /// Where the range begins, for the kernel to read. Panics if the range is out of bounds.
    pub(crate) fn address(&self, range: &Range<usize>) -> *const u8 {
        assert!(
            range.start <= range.end && range.end <= self.len(),
            "range within the memory"
        );
        let start = match &self.0 {
            Kind::Heap(bytes) => bytes.as_ptr(),
            Kind::Mapped(mapping, _) | Kind::Sealed(mapping) => mapping.bytes().cast_const(),
        };
        start.wrapping_add(range.start)
    }
}

/// A copy of the first `len` bytes of `file` that nobody can change: the descriptor of a sealed
/// `memfd`, to be mapped and to be sent from.
///
/// # Errors
/// As [`Memory::seal_copy`]; `InvalidInput` for an empty file.
pub fn sealed_copy(file: impl AsFd, len: usize) -> io::Result<OwnedFd> {
    if len == 0 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    seal(file.as_fd(), 0, len).map(|(memfd, _)| memfd)
}

/// Reads `len` bytes of `file` from `offset` into memory of our own: for what is looked up at random
/// while it is served. Huge pages, where the kernel gives them, make that and the reading quicker.
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
        // SAFETY: the range lies within the vector's spare room, and this advice changes no content.
        // Where it is not taken, ordinary pages do.
        let _ = unsafe { rustix::mm::madvise(start, whole, Advice::LinuxHugepage) };
    }
    while bytes.len() < len {
        let at = offset + bytes.len() as u64;
        match rustix::io::pread(file.as_fd(), rustix::buffer::spare_capacity(&mut bytes), at) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// A file in memory that holds `bytes` and that nobody can change.
///
/// # Errors
/// `EMFILE`, `ENFILE`, `ENOMEM`.
pub(crate) fn sealed_bytes(bytes: &[u8]) -> Result<crate::driver::File, rustix::io::Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = rustix::fs::memfd_create(c"gannet-file", flags)?;
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rustix::io::write(&memfd, rest)?;
        rest = &rest[count..];
    }
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&memfd, seals)?;
    Ok(crate::driver::File::from(std::fs::File::from(memfd)))
}

/// Copies a range into a sealed `memfd`; returns it and the length to map.
fn seal(file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<(OwnedFd, usize)> {
    let huge = len.next_multiple_of(HUGE_PAGE);
    let (memfd, mapped_len) = match reserve(huge, MemfdFlags::HUGETLB) {
        Ok(memfd) => (memfd, huge),
        // No huge pages reserved (the usual case): ordinary ones, made huge by the kernel
        // where `shmem_enabled` lets it.
        Err(_) => (reserve(len, MemfdFlags::empty())?, len),
    };
    let write = ProtFlags::READ | ProtFlags::WRITE;
    let mut target = Mapping::of(memfd.as_fd(), 0, mapped_len, write)?;
    target.advise(Advice::LinuxHugepage).ok();
    fill(file, offset, &mut target.writable()[..len])?;
    // `F_SEAL_WRITE` is refused while a writable mapping stands.
    drop(target);
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&memfd, seals)?;
    Ok((memfd, mapped_len))
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Kind::Heap(_) => "heap",
            Kind::Mapped(..) => "mapped",
            Kind::Sealed(_) => "sealed",
        };
        write!(f, "Memory({kind}, {} bytes)", self.len())
    }
}

/// Sealed files up to this length are put into the page tables at once; for larger ones, of which
/// few pages may ever be asked for, the kernel does so piece by piece.
const POPULATED_MAX: usize = 8 << 20;

/// The size of a huge page on every machine we know of with 4 KiB base pages.
const HUGE_PAGE: usize = 2 << 20;

/// A `memfd` of `len` bytes that are really there, so that filling it cannot run out of memory
/// half-way.
fn reserve(len: usize, flags: MemfdFlags) -> io::Result<OwnedFd> {
    let flags = flags | MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = rustix::fs::memfd_create("gannet", flags)?;
    rustix::fs::ftruncate(&memfd, len as u64)?;
    if flags.contains(MemfdFlags::HUGETLB) {
        rustix::fs::fallocate(&memfd, rustix::fs::FallocateFlags::empty(), 0, len as u64)?;
    }
    Ok(memfd)
}

/// Reads exactly `target.len()` bytes.
fn fill(file: BorrowedFd<'_>, offset: u64, target: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < target.len() {
        match rustix::io::pread(file, &mut target[done..], offset + done as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// A range of a file in the address space; unmapped when dropped.
struct Mapping {
    /// Page-aligned start of the mapping.
    base: NonNull<c_void>,
    /// Length of the mapping from `base`.
    mapped_len: usize,
    /// Where the asked range begins in it: less than a page.
    lead: usize,
    /// Length of the asked range; `lead + len <= mapped_len`.
    len: usize,
}

// SAFETY: the mapping belongs to this value alone and is not tied to a thread; shared references
// give out only addresses, or bytes that are sealed against any change.
unsafe impl Send for Mapping {}
// SAFETY: as above; nothing is written through a shared reference.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn of(file: BorrowedFd<'_>, offset: u64, len: usize, access: ProtFlags) -> io::Result<Self> {
        let lead = (offset % rustix::param::page_size() as u64) as usize;
        let mapped_len = len.checked_add(lead).ok_or(rustix::io::Errno::INVAL)?;
        let aligned = offset - lead as u64;
        let hint = std::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice replaces nothing.
        let base =
            unsafe { rustix::mm::mmap(hint, mapped_len, access, MapFlags::SHARED, file, aligned)? };
        let base = NonNull::new(base).expect("mmap never returns null without MAP_FIXED");
        Ok(Self {
            base,
            mapped_len,
            lead,
            len,
        })
    }

    fn bytes(&self) -> *mut u8 {
        self.base.as_ptr().cast::<u8>().wrapping_add(self.lead)
    }

    fn advise(&self, advice: Advice) -> rustix::io::Result<()> {
        // SAFETY: the range is ours, and none of the two pieces of advice in use (populate, huge
        // pages) changes its content.
        unsafe { rustix::mm::madvise(self.base.as_ptr(), self.mapped_len, advice) }
    }

    /// The bytes of a fresh `memfd` mapping.
    fn writable(&mut self) -> &mut [u8] {
        // SAFETY: only `seal_copy` calls this, on a shared writable mapping of a memfd that no one
        // else has; the memfd is as long as the mapping; `&mut self` keeps it exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.bytes(), self.len) }
    }

    /// The bytes of a sealed `memfd`.
    fn sealed(&self) -> &[u8] {
        // SAFETY: only called for `Kind::Sealed`, whose makers have sealed the memfd or asked for
        // its seals: it has at least `len` bytes, and the seals
        // keep anybody from writing, shrinking or unsealing it while the mapping lives.
        unsafe { std::slice::from_raw_parts(self.bytes(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped in `of` and is unmapped once; borrowed slices have ended
        // (they borrow `self`), and operations of the kernel keep the owning `Arc`.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.mapped_len) };
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

    /// A part of a file that is larger than a huge page is read as it is, and no further.
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

    /// A mapping may begin anywhere, and is not readable as a slice.
    #[test]
    fn maps_any_range() {
        let content: Vec<u8> = (0..10_000u32).map(|i| i as u8).collect();
        let file = file_with(&content);
        let memory = Memory::map(&file, 4097, 5000).unwrap();
        assert_eq!(memory.len(), 5000);
        assert!(memory.as_heap_slice().is_none());
        memory.preload().unwrap();
        // The kernel reads the right bytes through the address.
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        // SAFETY: the range is inside the mapping, whose file is not truncated in this test.
        let bytes = unsafe { std::slice::from_raw_parts(memory.address(&(1..4001)), 4000) };
        rustix::io::write(&writer, bytes).unwrap();
        let mut got = vec![0; 4000];
        assert_eq!(rustix::io::read(&reader, &mut got).unwrap(), 4000);
        assert_eq!(got, content[4098..8098]);
    }

    /// A sealed copy has the bytes and outlives truncation of its origin.
    #[test]
    fn seals_a_copy() {
        let content: Vec<u8> = (0..3_000_000u32).map(|i| (i / 3) as u8).collect();
        let file = file_with(&content);
        let memory = Memory::seal_copy(&file, 3, 2_999_997).unwrap();
        file.set_len(0).unwrap();
        assert_eq!(memory.as_heap_slice().unwrap(), &content[3..]);
    }

    /// Every kind can be copied from, and a truncated mapping is an error there.
    #[test]
    fn copies_from_any_kind() {
        let content: Vec<u8> = (0..10_000u32).map(|i| (i / 7) as u8).collect();
        let file = file_with(&content);
        let kinds = [
            Memory::map(&file, 100, 9_000).unwrap(),
            Memory::seal_copy(&file, 100, 9_000).unwrap(),
            Memory::from_vec(content[100..9_100].to_vec()),
        ];
        let mut got = vec![0; 5_000];
        for memory in &kinds {
            memory.copy_to(1..5_001, &mut got).unwrap();
            assert_eq!(got, content[101..5_101], "{memory:?}");
        }
        file.set_len(4_000).unwrap();
        let error = kinds[0].copy_to(1..5_001, &mut got).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        kinds[1].copy_to(1..5_001, &mut got).unwrap();
    }

    /// A sealed file can be mapped for reading; one that somebody could change cannot.
    #[test]
    fn maps_only_what_is_sealed() {
        let content: Vec<u8> = (0..10_000u32).map(|i| (i / 5) as u8).collect();
        let file = file_with(&content);
        assert!(Memory::map_sealed(&file).is_err());
        let sealed = sealed_copy(&file, content.len()).unwrap();
        let memory = Memory::map_sealed(&sealed).unwrap();
        assert_eq!(&memory.as_heap_slice().unwrap()[..content.len()], &content);
    }

    /// A file shorter than asked is an error at the copy, not a fault later.
    #[test]
    fn refuses_a_short_file() {
        let file = file_with(b"short");
        let error = Memory::seal_copy(&file, 0, 6).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(Memory::map(&file, 0, 0).unwrap().is_empty());
    }

    /// Populating a mapping beyond the end of its file is an error.
    #[test]
    fn preload_of_a_truncated_file_fails() {
        let file = file_with(&[1; 8192]);
        let memory = Memory::map(&file, 0, 8192).unwrap();
        file.set_len(0).unwrap();
        assert!(memory.preload().is_err());
    }

    #[test]
    #[should_panic(expected = "range within the memory")]
    fn refuses_a_range_outside() {
        let _ = Memory::from_vec(vec![0; 4]).address(&(2..5));
    }
}
