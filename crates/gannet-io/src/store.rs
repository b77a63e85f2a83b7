//! What kind of file system a file is on: whether its calls may block.

use std::os::fd::BorrowedFd;

/// How the file system behind a file may block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Store {
    /// Content is memory (tmpfs, ramfs, sealed memory): never cold. Reads of swapped-out pages do
    /// wait: tmpfs refuses reads that must not wait (`RWF_NOWAIT`) altogether, so each read would
    /// need a helper thread, for the sake of a machine that is short of memory.
    Memory,
    /// A disk: pages in the page cache do not block.
    Disk,
    /// Another machine or process (NFS, FUSE, 9p): any call may block, even on cached content.
    Remote,
}

impl Store {
    /// Classifies by the magic number of `statfs` (`linux/magic.h` and the file systems' sources).
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Self {
        const MEMORY: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];
        // nfs, smb, cifs, smb2, fuse (and virtiofs), 9p, ceph, afs twice, coda, gfs2, ocfs2,
        // lustre, gpfs, vboxsf, orangefs.
        const REMOTE: [u64; 16] = [
            0x6969,
            0x517b,
            0xff53_4d42,
            0xfe53_4d42,
            0x6573_5546,
            0x0102_1997,
            0x00c3_6400,
            0x5346_414f,
            0x6b41_4653,
            0x7375_7245,
            0x0116_1970,
            0x7461_636f,
            0x0bd0_0bd0,
            0x4750_4653,
            0x786f_4256,
            0x2003_0528,
        ];
        // On an error, assume the worst.
        let Some(magic) = magic_of(fd) else {
            return Self::Remote;
        };
        if MEMORY.contains(&magic) {
            Self::Memory
        } else if REMOTE.contains(&magic) {
            Self::Remote
        } else {
            Self::Disk
        }
    }

    /// Whether it is a file system that no kernel writes.
    pub(crate) fn is_never_written(fd: BorrowedFd<'_>) -> bool {
        // EROFS, squashfs.
        const NEVER: [u64; 2] = [0xe0f5_e1e2, 0x7371_7368];
        magic_of(fd).is_some_and(|magic| NEVER.contains(&magic))
    }

    /// Whether it is ext4, or one of those that it replaced.
    pub(crate) fn is_ext4(fd: BorrowedFd<'_>) -> bool {
        magic_of(fd) == Some(0xef53)
    }
}

/// The 32 significant bits of the file system's number, which are sign-extended on some machines.
fn magic_of(fd: BorrowedFd<'_>) -> Option<u64> {
    let found = rustix::fs::fstatfs(fd).ok()?;
    Some(found.f_type as u64 & 0xffff_ffff)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// Known file systems are distinguished.
    #[test]
    fn classifies_file_systems() {
        let proc = std::fs::File::open("/proc/self/stat").unwrap();
        assert_eq!(Store::of(proc.as_fd()), Store::Disk);
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let memfd = rustix::fs::memfd_create("test", flags).unwrap();
        assert_eq!(Store::of(memfd.as_fd()), Store::Memory);
    }
}
