//! A file system with a disk that is as slow or as broken as a test requires.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEntry, Request, SessionACL,
};

use crate::{Folder, left_out};

/// The behaviour of the disk below a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Disk {
    /// Correct.
    Good,
    /// Reads that reach this offset fail with `EIO`.
    BrokenFrom(u64),
    /// Reads that reach this offset hang until [`Mounted::release`].
    SlowFrom(u64),
    /// Reads that reach into this range hang until [`Mounted::release`].
    SlowWithin(u64, u64),
    /// Lookups of the name hang until [`Mounted::release`].
    SlowName,
    /// The file is listed once [`Mounted::release`] lets it be.
    SlowList,
    /// Each read takes this long, and other accesses wait for it: a disk that does one thing at a
    /// time.
    Delayed(Duration),
}

/// A mounted file system with files in its root; unmounted on drop.
pub struct Mounted {
    path: PathBuf,
    /// The mount point, if it is a temporary folder.
    folder: Option<Folder>,
    gate: Arc<Gate>,
    session: Option<BackgroundSession>,
}

/// Requests of the kernel that hang.
#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
}

#[derive(Default)]
struct GateState {
    is_open: bool,
    hanging: Vec<Box<dyn FnOnce() + Send>>,
}

impl Gate {
    /// Answers now, or once the gate is opened.
    fn pass(&self, answer: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock().expect("not poisoned");
        if state.is_open {
            drop(state);
            answer();
        } else {
            state.hanging.push(Box::new(answer));
        }
    }

    fn close(&self) {
        self.state.lock().expect("not poisoned").is_open = false;
    }

    fn open(&self) {
        let mut state = self.state.lock().expect("not poisoned");
        state.is_open = true;
        let hanging = std::mem::take(&mut state.hanging);
        drop(state);
        for answer in hanging {
            answer();
        }
    }
}

impl Mounted {
    /// Mounts files with their names, contents and disks. `None` if this is not permitted: the test
    /// is left out.
    pub fn new(files: &[(&str, &[u8], Disk)]) -> Option<Self> {
        let folder = Folder::new();
        let mut mounted = Self::at(folder.path(), files)?;
        mounted.folder = Some(folder);
        Some(mounted)
    }

    /// Mounts at an existing folder.
    pub fn at(path: &Path, files: &[(&str, &[u8], Disk)]) -> Option<Self> {
        let gate = Arc::new(Gate::default());
        let files = files
            .iter()
            .zip(2..)
            .map(|((name, content, disk), inode)| {
                let file = File {
                    inode: INodeNo(inode),
                    content: content.to_vec(),
                    disk: *disk,
                };
                ((*name).to_owned(), file)
            })
            .collect();
        let disk = TestDisk {
            files,
            gate: Arc::clone(&gate),
        };
        let mut config = Config::default();
        config.mount_options = vec![MountOption::RO, MountOption::FSName("gannet-test".into())];
        config.acl = SessionACL::All;
        match fuser::spawn_mount(disk, path, &config) {
            Ok(session) => Some(Self {
                path: path.to_owned(),
                folder: None,
                gate,
                session: Some(session),
            }),
            Err(error) => {
                left_out("FUSE", error);
                None
            }
        }
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// From now on, slow requests hang until the next [`release`](Self::release).
    pub fn hold(&self) {
        self.gate.close();
    }

    /// How many requests of the kernel hang.
    pub fn hanging(&self) -> usize {
        self.gate.state.lock().expect("not poisoned").hanging.len()
    }

    /// Lets all hanging and future requests proceed.
    pub fn release(&self) {
        self.gate.open();
    }

    /// A guard that releases on drop. Create it after the server, which cannot end while the disk
    /// hangs.
    pub fn release_at_end(&self) -> ReleaseAtEnd {
        ReleaseAtEnd(Arc::clone(&self.gate))
    }
}

/// See [`Mounted::release_at_end`].
pub struct ReleaseAtEnd(Arc<Gate>);

impl Drop for ReleaseAtEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.release();
        drop(self.session.take());
        drop(self.folder.take());
    }
}

struct File {
    inode: INodeNo,
    content: Vec<u8>,
    disk: Disk,
}

struct TestDisk {
    files: BTreeMap<String, File>,
    gate: Arc<Gate>,
}

/// The kernel caches nothing, so that every access reaches the disk.
const KEEP: Duration = Duration::ZERO;

/// The reads, of at most 128 KiB, that the kernel may have outstanding.
const READS_AT_ONCE: u16 = 256;

impl TestDisk {
    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let file = self.files.values().find(|file| file.inode == inode);
        let (kind, perm, size) = match file {
            Some(file) => (FileType::RegularFile, 0o644, file.content.len() as u64),
            None if inode == INodeNo::ROOT => (FileType::Directory, 0o755, 0),
            None => return None,
        };
        let time = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind,
            perm,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            flags: 0,
            blksize: 4096,
        })
    }
}

impl Filesystem for TestDisk {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // With three quarters of these outstanding, the kernel ends readahead early and fetches what
        // it left out page by page, which it does with no real disk. Other tests decide what is read.
        let is_real = |file: &File| matches!(file.disk, Disk::Delayed(_));
        if self.files.values().any(is_real) {
            config
                .set_max_background(READS_AT_ONCE)
                .map_err(|_| io::Error::other("the kernel takes fewer reads at once"))?;
        }
        // Otherwise the kernel serialises lookups in a folder.
        config
            .add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS)
            .map_err(|_| io::Error::other("the kernel looks up one name at a time"))
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let file = name.to_str().and_then(|name| self.files.get(name));
        let (Some(file), true) = (file, parent == INodeNo::ROOT) else {
            return reply.error(Errno::ENOENT);
        };
        let Some(attributes) = self.attributes(file.inode) else {
            return reply.error(Errno::ENOENT);
        };
        let answer = move || reply.entry(&KEEP, &attributes, Generation(0));
        match file.disk {
            Disk::SlowName => self.gate.pass(answer),
            _ => answer(),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&KEEP, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let mut is_slow = false;
        for ((name, file), next) in self.files.iter().zip(1..).skip(offset as usize) {
            is_slow |= file.disk == Disk::SlowList;
            if reply.add(file.inode, next, FileType::RegularFile, name) {
                break;
            }
        }
        match is_slow {
            true => self.gate.pass(move || reply.ok()),
            false => reply.ok(),
        }
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(file) = self.files.values().find(|file| file.inode == inode) else {
            return reply.error(Errno::ENOENT);
        };
        let len = file.content.len() as u64;
        let end = len.min(offset + u64::from(size));
        let bytes = file.content[offset.min(len) as usize..end as usize].to_vec();
        match file.disk {
            Disk::BrokenFrom(from) if end > from => reply.error(Errno::EIO),
            Disk::SlowFrom(from) if end > from => self.gate.pass(move || reply.data(&bytes)),
            Disk::SlowWithin(from, to) if end > from && offset < to => {
                self.gate.pass(move || reply.data(&bytes));
            }
            Disk::Delayed(time) => {
                thread::sleep(time);
                reply.data(&bytes);
            }
            _ => reply.data(&bytes),
        }
    }
}
