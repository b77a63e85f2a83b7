//! How files below a root are opened: the few `open_how` structures that there are (openat2(2)).
//!
//! With a sandbox they are in memory that this process cannot change any more: a mapping that is
//! read-only and sealed (mseal(2), Linux 6.10), so that it can neither be written to nor replaced. A filter
//! of system calls sees the address of a structure alone; of these it knows what is there. A thread
//! that may open files by these alone empties and makes none, whatever Landlock would let it: see
//! [`sandbox`](crate::sandbox).

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::{LazyLock, OnceLock};

use rustix::fs::{OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use rustix::path::Arg;

use crate::process::page_size;
use crate::residency::last_errno;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    /// Reading, FIFOs and devices without waiting, leaving the time of the last access as it is
    /// (`O_NOATIME`): the kernel then has no metadata to write at the first read of a day. Only for the
    /// owner of the file.
    ReadQuietly,
    /// The same, for files of others.
    Read,
    /// A mere reference (`O_PATH`), which has no side effects: metadata.
    Look,
    /// Reading the names of a folder, and nothing but a folder.
    ReadFolder,
    /// The same, if the last name of the path is no symbolic link.
    ReadOwnFolder,
    /// A mere reference to a folder.
    LookAtFolder,
}

/// How far a lookup below a root may go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LookupReach {
    /// Paths that the kernel has cached, on the root's own mount; fails with `EAGAIN` or `EXDEV`
    /// instead of waiting.
    Cached,
    /// The root's own mount; fails with `EXDEV` at its boundary. May wait for a disk.
    Mount,
    /// All mounts. May wait for any length of time.
    Everywhere,
    /// All mounts, but no symbolic link is followed.
    Straight,
}

/// `struct open_how`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct OpenHow {
    flags: u64,
    mode: u64,
    resolve: u64,
}

// In the order of their numbers. What is opened most often comes first, as filters compare one after
// the other.
const PURPOSES: [Purpose; 6] = [
    Purpose::ReadQuietly,
    Purpose::Read,
    Purpose::Look,
    Purpose::ReadFolder,
    Purpose::ReadOwnFolder,
    Purpose::LookAtFolder,
];
const REACHES: [LookupReach; 4] = [
    LookupReach::Cached,
    LookupReach::Mount,
    LookupReach::Everywhere,
    LookupReach::Straight,
];

/// The number of structures: one for each purpose and reach.
const COUNT: usize = PURPOSES.len() * REACHES.len();

/// The length of each, for the kernel.
pub(crate) const LEN: usize = size_of::<OpenHow>();

impl Purpose {
    /// The flags of `open`, but for what resolves the path.
    pub(crate) fn flags(self) -> OFlags {
        let read = OFlags::RDONLY | OFlags::LARGEFILE | OFlags::CLOEXEC;
        let look = OFlags::PATH | OFlags::CLOEXEC;
        match self {
            Self::Read => read | OFlags::NONBLOCK | OFlags::NOCTTY,
            Self::ReadQuietly => read | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOATIME,
            Self::Look => look,
            Self::ReadFolder => read | OFlags::DIRECTORY,
            Self::ReadOwnFolder => read | OFlags::DIRECTORY | OFlags::NOFOLLOW,
            Self::LookAtFolder => look | OFlags::DIRECTORY,
        }
    }
}

impl OpenHow {
    fn new(purpose: Purpose, reach: LookupReach) -> Self {
        let resolve = ResolveFlags::BENEATH
            | match reach {
                LookupReach::Cached => {
                    ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV | ResolveFlags::CACHED
                }
                LookupReach::Mount => ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV,
                LookupReach::Everywhere => ResolveFlags::NO_MAGICLINKS,
                LookupReach::Straight => ResolveFlags::NO_SYMLINKS,
            };
        Self {
            flags: purpose.flags().bits().into(),
            mode: 0,
            resolve: resolve.bits(),
        }
    }
}

/// The structures, in memory of their own that stays for as long as the process.
#[derive(Debug)]
struct Table {
    first: NonNull<OpenHow>,
    /// They are in a page of their own, which is read-only.
    is_apart: bool,
}

// SAFETY: the memory is never written to after `Table::new`, and never freed.
unsafe impl Send for Table {}
// SAFETY: the same.
unsafe impl Sync for Table {}

static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

impl Table {
    fn new() -> Self {
        let first = Self::apart();
        Self {
            is_apart: first.is_ok(),
            first: first.unwrap_or_else(|_| NonNull::from(Box::leak(Box::new(hows()))).cast()),
        }
    }

    /// The structures in a page of their own.
    fn apart() -> Result<NonNull<OpenHow>, Errno> {
        let len = page_size();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, which nothing uses.
        let page =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, access, MapFlags::PRIVATE)? };
        let first = NonNull::new(page.cast::<OpenHow>()).ok_or(Errno::NOMEM)?;
        // SAFETY: the new page is writable, aligned, ours alone, and longer than the array.
        unsafe { first.cast::<[OpenHow; COUNT]>().write(hows()) };
        // SAFETY: the page is ours, and is only read from now on.
        unsafe { rustix::mm::mprotect(page, len, MprotectFlags::READ)? };
        Ok(first)
    }

    /// Takes from everybody, for ever, the means to change the page.
    fn seal(&self) -> bool {
        let (page, len) = (self.first.as_ptr(), page_size());
        // SAFETY: the page is ours. It is neither changed nor unmapped from now on.
        self.is_apart && unsafe { libc::syscall(MSEAL, page, len, 0_usize) } == 0
    }

    fn address(&self, number: usize) -> *const OpenHow {
        assert!(number < COUNT, "each purpose and reach has a structure");
        // SAFETY: the table has that many structures.
        unsafe { self.first.add(number).as_ptr() }
    }
}

/// `libc` lacks it on some platforms. Linux 6.10; the same number everywhere.
const MSEAL: libc::c_long = 462;

fn hows() -> [OpenHow; COUNT] {
    std::array::from_fn(|number| {
        let purpose = PURPOSES[number / REACHES.len()];
        OpenHow::new(purpose, REACHES[number % REACHES.len()])
    })
}

/// Seals the structures, and returns the addresses of all of them: they cannot be changed any
/// more. `None` before Linux 6.10, and on processors of 32 bits.
pub(crate) fn sealed() -> Option<[u64; COUNT]> {
    static IS_SEALED: OnceLock<bool> = OnceLock::new();
    let table = &*TABLE;
    let address = |number| table.address(number) as u64;
    let is_sealed = IS_SEALED.get_or_init(|| table.seal());
    is_sealed.then(|| std::array::from_fn(address))
}

/// One `openat2` of a path below a directory.
pub(crate) fn open(
    directory: BorrowedFd<'_>,
    path: &[u8],
    purpose: Purpose,
    reach: LookupReach,
) -> Result<OwnedFd, Errno> {
    let how = TABLE.address(purpose as usize * REACHES.len() + reach as usize);
    path.into_with_c_str(|path| {
        // SAFETY: the path ends with a zero and lives during the call, and the kernel reads one
        // `open_how` of this length.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_openat2,
                directory.as_raw_fd(),
                path.as_ptr(),
                how,
                LEN,
            )
        };
        match i32::try_from(opened) {
            // SAFETY: the call returned this descriptor, which has no other owner.
            Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            _ => Err(last_errno()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_purpose_and_reach_has_a_structure_that_opens_for_reading_alone() {
        let writes = libc::O_ACCMODE | libc::O_TRUNC | libc::O_CREAT | libc::O_TMPFILE;
        let writes = writes & !libc::O_DIRECTORY;
        for (number, purpose) in PURPOSES.into_iter().enumerate() {
            assert_eq!(purpose as usize, number);
            for (number, reach) in REACHES.into_iter().enumerate() {
                assert_eq!(reach as usize, number);
                let how = OpenHow::new(purpose, reach);
                assert_eq!(how.flags & writes as u64, 0, "{purpose:?}");
                assert_eq!(how.mode, 0);
                let is_beneath = how.resolve & ResolveFlags::BENEATH.bits() != 0;
                assert!(is_beneath, "{reach:?}");
            }
        }
    }

    /// The attempts of an attacker who controls a thread.
    #[test]
    fn what_is_sealed_can_neither_be_changed_nor_replaced() {
        let Some(addresses) = sealed() else {
            return gannet_testkit::left_out("mseal", "the kernel lacks it");
        };
        let page = addresses[0] as *mut libc::c_void;
        let len = page_size();
        let both = libc::PROT_READ | libc::PROT_WRITE;
        let new = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let moved = libc::MREMAP_MAYMOVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let other =
            unsafe { libc::mmap(ptr::null_mut(), len, both, new & !libc::MAP_FIXED, -1, 0) };
        assert_ne!(other, libc::MAP_FAILED);
        let refused = |what: &str, result: i64| {
            assert_eq!((result, last_errno()), (-1, Errno::PERM), "{what}");
        };
        // SAFETY: the kernel refuses each, so no memory in use changes. (If it did not, the next
        // lookup of this test would tell.)
        unsafe {
            refused("mprotect", libc::mprotect(page, len, both).into());
            refused("mmap", libc::mmap(page, len, both, new, -1, 0) as i64);
            refused("munmap", libc::munmap(page, len).into());
            refused("mremap", libc::mremap(page, len, 2 * len, moved) as i64);
            let onto = moved | libc::MREMAP_FIXED;
            refused("onto", libc::mremap(other, len, len, onto, page) as i64);
            for advice in [libc::MADV_DONTNEED, libc::MADV_FREE, libc::MADV_WIPEONFORK] {
                refused("madvise", libc::madvise(page, len, advice).into());
            }
        }
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::write(write, &[0xff; 64]).unwrap();
        // SAFETY: the kernel refuses to write there.
        let taken = unsafe { libc::read(read.as_raw_fd(), page, 64) };
        assert_eq!((taken, last_errno()), (-1, Errno::FAULT));
        let directory = std::fs::File::open("/").unwrap();
        let directory = std::os::fd::AsFd::as_fd(&directory);
        assert!(open(directory, b".", Purpose::Read, LookupReach::Cached).is_ok());
    }
    #[test]
    fn a_confined_thread_opens_by_the_addresses_of_whole_structures_alone() {
        use crate::sandbox::{Calls, Domain, Kernel, Reach, forbid_privileges};
        let (kernel, sealed) = (Kernel::look(), sealed());
        let (Ok(()), Some(addresses)) = (kernel.seccomp, sealed) else {
            return gannet_testkit::left_out("mseal", "the kernel lacks it, or filters");
        };
        let reach = Reach {
            read: vec!["/".into()],
            ..Reach::default()
        };
        let domain = Domain::new(&kernel, &reach, Calls::Worker { opens: true }).unwrap();
        let copy = OpenHow::new(Purpose::Read, super::LookupReach::Cached);
        let confined = move || {
            forbid_privileges().unwrap();
            domain.enter().unwrap();
            let open = |how: u64, len: u64| {
                let path = c"/";
                // SAFETY: the path ends with a zero; the kernel only reads at both addresses.
                let opened = unsafe {
                    libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path.as_ptr(), how, len)
                };
                if opened >= 0 {
                    Errno::from_raw_os_error(0)
                } else {
                    last_errno()
                }
            };
            let len = LEN as u64;
            for address in addresses {
                // An absolute path is beneath nothing: the kernel has read the structure.
                assert_eq!(open(address, len), Errno::XDEV);
                for other in [address + 1, address - 8, address + 8, address | 1 << 63] {
                    assert_eq!(open(other, len), Errno::PERM);
                }
                assert_eq!(open(address, len + 8), Errno::PERM);
                assert_eq!(open(address, len | 1 << 32), Errno::PERM);
            }
            assert_eq!(open(&raw const copy as u64, len), Errno::PERM);
        };
        std::thread::spawn(confined).join().unwrap();
    }
}
