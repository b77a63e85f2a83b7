//! The folder of an orderer: whole files, for their owner alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;

use super::error::AcmeError;
use crate::limits::ORDER_KEPT_S;

/// The folder of certificates.
pub const CERTIFICATES: &str = "certificates";
/// The folder of certificates for challenges.
pub const CHALLENGES: &str = "challenges";
/// Held while an orderer lives.
const LOCK: &str = "lock";

/// A folder that one orderer uses at a time.
pub(super) struct Folder {
    path: PathBuf,
    /// Locked.
    _lock: File,
}

impl Folder {
    /// Makes the folder if there is none. If another process uses it, `is_busy` is called with that process,
    /// if that is known, and it is waited for: a server that is replaced by another one ends its process a
    /// little later.
    pub(super) fn open(path: &Path, is_busy: impl FnOnce(Option<u32>)) -> Result<Self, AcmeError> {
        for folder in [path, &path.join(CERTIFICATES), &path.join(CHALLENGES)] {
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(folder);
            made.map_err(AcmeError::io("make", folder))?;
        }
        let lock = path.join(LOCK);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true);
        options.truncate(false).mode(0o600);
        let file = options.open(&lock).map_err(AcmeError::io("open", &lock))?;
        let locked = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                is_busy(holder(&file));
                flock(&file, FlockOperation::LockExclusive)
            }
            locked => locked,
        };
        locked.map_err(|errno| AcmeError::io("lock", &lock)(errno.into()))?;
        // Processes that wait report who has it, if there is room on the disk.
        let own = format!("{}\n", process::id());
        let _ = file.set_len(0);
        let _ = file.write_all_at(own.as_bytes(), 0);
        let folder = Self {
            path: path.to_owned(),
            _lock: file,
        };
        folder.clear()?;
        Ok(folder)
    }

    /// Removes challenges that are over, and files that were not finished.
    fn clear(&self) -> Result<(), AcmeError> {
        for name in [CHALLENGES, CERTIFICATES] {
            let folder = self.path.join(name);
            let entries = fs::read_dir(&folder).map_err(AcmeError::io("read", &folder))?;
            for entry in entries.flatten() {
                let file = entry.file_name();
                let file = file.to_string_lossy();
                // Other files belong to the operator.
                let is_draft = file.starts_with('.') && file.ends_with(".pem.new");
                let is_challenge = name == CHALLENGES && file.ends_with(".pem");
                let path = entry.path();
                let is_order = file.starts_with('.') && file.ends_with(ORDER) && is_over(&path);
                if is_challenge || is_draft || is_order {
                    fs::remove_file(&path).map_err(AcmeError::io("remove", &path))?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn account(&self, server: &str) -> PathBuf {
        self.path.join(format!("account-{server}.json"))
    }

    pub(super) fn history(&self, server: &str) -> PathBuf {
        self.path.join(format!("history-{server}"))
    }

    pub(super) fn order(&self, host: &str) -> PathBuf {
        let name = format!(".{host}{ORDER}");
        self.path.join(CERTIFICATES).join(name)
    }

    pub(super) fn certificate(&self, host: &str) -> PathBuf {
        self.path.join(CERTIFICATES).join(format!("{host}.pem"))
    }

    pub(super) fn challenge(&self, name: &str) -> PathBuf {
        self.path.join(CHALLENGES).join(format!("{name}.pem"))
    }
}

/// Whether a file is that of one host: its certificate, its order or its challenge. The others are for all.
pub(super) fn is_of_host(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(".pem") || name.ends_with(ORDER)
}

/// The process that has the lock.
fn holder(lock: &File) -> Option<u32> {
    let mut text = [0; 16];
    let len = lock.read_at(&mut text, 0).ok()?;
    str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
}

/// Whether an order was abandoned.
fn is_over(path: &Path) -> bool {
    let written = fs::metadata(path).and_then(|metadata| metadata.modified());
    let age = written.ok().and_then(|written| written.elapsed().ok());
    age.is_some_and(|age| age > Duration::from_secs(ORDER_KEPT_S))
}

/// How the file of an order ends.
const ORDER: &str = ".order";

/// Replaces a file as a whole: it is on the disk before it has its name. Its owner alone may read it.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), AcmeError> {
    Room::new(path, content.len() as u64)?.fill(content)
}

/// Room on the disk for a file that is written later. Nothing is left of it if it is not.
pub(super) struct Room {
    path: PathBuf,
    draft: PathBuf,
    file: File,
}

impl Room {
    /// Room for so many bytes, where the file system can keep it.
    pub(super) fn new(path: &Path, len: u64) -> Result<Self, AcmeError> {
        let refuse = AcmeError::io("write", path);
        let made = || -> io::Result<Self> {
            let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
            let draft = path.with_file_name(format!(".{}.new", name.to_string_lossy()));
            let _ = fs::remove_file(&draft);
            let mut options = OpenOptions::new();
            let file = options.write(true).create_new(true).mode(0o600);
            let room = Self {
                file: file.open(&draft)?,
                path: path.to_owned(),
                draft,
            };
            keep_room(&room.file, len)?;
            Ok(room)
        };
        made().map_err(refuse)
    }

    pub(super) fn fill(self, content: &[u8]) -> Result<(), AcmeError> {
        let filled = || -> io::Result<()> {
            self.file.write_all_at(content, 0)?;
            self.file.set_len(content.len() as u64)?;
            self.file.sync_all()?;
            fs::rename(&self.draft, &self.path)?;
            let folder = self.path.parent().ok_or(io::ErrorKind::InvalidFilename)?;
            File::open(folder)?.sync_all()
        };
        filled().map_err(AcmeError::io("write", &self.path))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // It has its name by now, unless something went wrong.
        let _ = fs::remove_file(&self.draft);
    }
}

/// Has blocks of the disk set aside for a file, beyond its end.
///
/// # Errors
/// `ENOSPC`, `EDQUOT`, `EFBIG`, ...
pub(super) fn keep_room(file: &File, len: u64) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    match fallocate(file, FallocateFlags::KEEP_SIZE, 0, len) {
        // Not all file systems can.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// The content of a file, up to so many bytes; `None` if there is none.
pub(super) fn read(path: &Path, most: u64) -> Result<Option<Vec<u8>>, AcmeError> {
    use io::Read;
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(AcmeError::io("read", path)(error)),
    };
    let mut content = Vec::new();
    let read = file.take(most + 1).read_to_end(&mut content);
    read.map_err(AcmeError::io("read", path))?;
    match content.len() as u64 > most {
        true => Err(AcmeError::Damaged(
            path.to_owned(),
            format!("longer than {most} bytes"),
        )),
        false => Ok(Some(content)),
    }
}

/// A file that is there while this value lives.
pub(super) struct Passing(PathBuf);

impl Passing {
    pub(super) fn put(path: PathBuf, content: &[u8]) -> Result<Self, AcmeError> {
        replace(&path, content)?;
        Ok(Self(path))
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        // The next start removes what is left.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use gannet_testkit::Folder as TestFolder;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path)
            .expect("it is there")
            .permissions()
            .mode()
            & 0o777
    }

    #[test]
    fn files_are_replaced_as_a_whole_and_are_their_owners() {
        let base = TestFolder::new();
        let path = base.join("state");
        let folder = Folder::open(&path, |_| panic!("no other process")).expect("made");
        let file = folder.certificate("a.test");
        for content in [&b"one"[..], b"another"] {
            replace(&file, content).expect("written");
            assert_eq!(fs::read(&file).expect("readable"), content);
        }
        assert_eq!((mode(&file), mode(&path)), (0o600, 0o700));
        assert_eq!(mode(file.parent().expect("a folder")), 0o700);
        // Who has opened the earlier file has all of it.
        let mut earlier = File::open(&file).expect("opened");
        replace(&file, b"third").expect("written");
        let mut content = String::new();
        io::Read::read_to_string(&mut earlier, &mut content).expect("readable");
        assert_eq!(content, "another");
        let left = fs::read_dir(file.parent().expect("a folder")).expect("readable");
        assert_eq!(left.count(), 1, "no drafts");
        // A folder in its way: nothing is left of the attempt, and nothing was lost.
        let blocked = folder.certificate("b.test");
        fs::create_dir_all(blocked.join("x")).expect("made");
        let error = replace(&blocked, b"new").expect_err("refused");
        assert!(error.to_string().starts_with("cannot write"), "{error}");
        assert!(!file.with_file_name(".b.test.pem.new").exists());
    }

    #[test]
    fn what_was_not_finished_is_removed_at_the_next_start() {
        let base = TestFolder::new();
        let folder = Folder::open(base.path(), |_| panic!("no other process")).expect("made");
        let certificate = folder.certificate("a.test");
        replace(&certificate, b"kept").expect("written");
        fs::write(certificate.with_file_name(".a.test.pem.new"), "half").expect("written");
        std::mem::forget(Passing::put(folder.challenge("a.test"), b"proof").expect("written"));
        let path = folder.challenge("b.test");
        drop(Passing::put(path.clone(), b"proof").expect("written"));
        assert!(!path.exists());
        drop(folder);
        let folder = Folder::open(base.path(), |_| panic!("no other process")).expect("made");
        assert!(!folder.challenge("a.test").exists());
        assert!(!certificate.with_file_name(".a.test.pem.new").exists());
        assert_eq!(fs::read(&certificate).expect("readable"), b"kept");
    }

    #[test]
    fn only_what_orderers_leave_is_removed() {
        let base = TestFolder::new();
        drop(Folder::open(base.path(), |_| ()).expect("made"));
        let left = [
            "challenges/a.pem",
            "challenges/.a.pem.new",
            "certificates/.a.pem.new",
            "certificates/.old.test.order",
        ];
        let foreign = [
            "challenges/index.html",
            "certificates/a.pem",
            "certificates/.gitignore",
            "certificates/.new.test.order",
        ];
        for name in left.iter().chain(&foreign) {
            base.write(name, "text");
        }
        let old = File::options()
            .write(true)
            .open(base.join(left[3]))
            .expect("there");
        let week = Duration::from_secs(ORDER_KEPT_S + 1);
        old.set_modified(std::time::SystemTime::now() - week)
            .expect("set");
        drop(Folder::open(base.path(), |_| ()).expect("there"));
        assert!(left.iter().all(|name| !base.join(name).exists()));
        assert!(foreign.iter().all(|name| base.join(name).exists()));
    }

    #[test]
    fn one_orderer_waits_for_the_other() {
        let base = TestFolder::new();
        let first = Folder::open(base.path(), |_| panic!("no other process")).expect("made");
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let is_busy = move |process| sender.send(process).expect("the test waits");
                Folder::open(base.path(), is_busy).map(drop)
            });
            let process = receiver.recv().expect("it says that it waits");
            assert_eq!(process, Some(process::id()));
            assert!(!second.is_finished());
            drop(first);
            second.join().expect("no panic").expect("its turn");
        });
    }
}
