//! The folder of an orderer: whole files, for their owner alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::error::AcmeError;

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
    /// Makes the folder if there is none. If somebody else uses it, `is_busy` is called, and it is waited
    /// for: a server that is replaced by another one ends its process a little later.
    pub(super) fn open(path: &Path, is_busy: impl FnOnce()) -> Result<Self, AcmeError> {
        for folder in [path, &path.join(CERTIFICATES), &path.join(CHALLENGES)] {
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(folder);
            made.map_err(AcmeError::io("make", folder))?;
        }
        let lock = path.join(LOCK);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&lock).map_err(AcmeError::io("open", &lock))?;
        let locked = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                is_busy();
                flock(&file, FlockOperation::LockExclusive)
            }
            locked => locked,
        };
        locked.map_err(|errno| AcmeError::io("lock", &lock)(errno.into()))?;
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
                // Whatever else is there is somebody's own.
                let is_draft = file.starts_with('.') && file.ends_with(".pem.new");
                let is_challenge = name == CHALLENGES && file.ends_with(".pem");
                if is_challenge || is_draft {
                    let path = entry.path();
                    fs::remove_file(&path).map_err(AcmeError::io("remove", &path))?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn account(&self, server: &str) -> PathBuf {
        self.path.join(format!("account-{server}.json"))
    }

    pub(super) fn certificate(&self, host: &str) -> PathBuf {
        self.path.join(CERTIFICATES).join(format!("{host}.pem"))
    }

    pub(super) fn challenge(&self, name: &str) -> PathBuf {
        self.path.join(CHALLENGES).join(format!("{name}.pem"))
    }
}

/// Replaces a file as a whole: it is on the disk before it has its name. Its owner alone may read it.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), AcmeError> {
    let written = || -> io::Result<()> {
        let (folder, name) = match (path.parent(), path.file_name()) {
            (Some(folder), Some(name)) => (folder, name.to_string_lossy()),
            _ => return Err(io::ErrorKind::InvalidFilename.into()),
        };
        let draft = folder.join(format!(".{name}.new"));
        let _ = fs::remove_file(&draft);
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        let done = file.write_all(content).and_then(|()| file.sync_all());
        let done = done.and_then(|()| fs::rename(&draft, path));
        if done.is_err() {
            let _ = fs::remove_file(&draft);
        }
        done?;
        File::open(folder)?.sync_all()
    };
    written().map_err(AcmeError::io("write", path))
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
        let folder = Folder::open(&path, || panic!("nobody else")).expect("made");
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
        let folder = Folder::open(base.path(), || panic!("nobody else")).expect("made");
        let certificate = folder.certificate("a.test");
        replace(&certificate, b"kept").expect("written");
        fs::write(certificate.with_file_name(".a.test.pem.new"), "half").expect("written");
        std::mem::forget(Passing::put(folder.challenge("a.test"), b"proof").expect("written"));
        let path = folder.challenge("b.test");
        drop(Passing::put(path.clone(), b"proof").expect("written"));
        assert!(!path.exists());
        drop(folder);
        let folder = Folder::open(base.path(), || panic!("nobody else")).expect("made");
        assert!(!folder.challenge("a.test").exists());
        assert!(!certificate.with_file_name(".a.test.pem.new").exists());
        assert_eq!(fs::read(&certificate).expect("readable"), b"kept");
    }

    #[test]
    fn only_what_orderers_leave_is_removed() {
        let base = TestFolder::new();
        drop(Folder::open(base.path(), || ()).expect("made"));
        let left = [
            "challenges/a.pem",
            "challenges/.a.pem.new",
            "certificates/.a.pem.new",
        ];
        let foreign = [
            "challenges/index.html",
            "certificates/a.pem",
            "certificates/.gitignore",
        ];
        for name in left.iter().chain(&foreign) {
            base.write(name, "text");
        }
        drop(Folder::open(base.path(), || ()).expect("there"));
        assert!(left.iter().all(|name| !base.join(name).exists()));
        assert!(foreign.iter().all(|name| base.join(name).exists()));
    }

    #[test]
    fn one_orderer_waits_for_the_other() {
        let base = TestFolder::new();
        let first = Folder::open(base.path(), || panic!("nobody else")).expect("made");
        let (told, tells) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let is_busy = move || told.send(()).expect("the test waits");
                Folder::open(base.path(), is_busy).map(drop)
            });
            tells.recv().expect("it says that it waits");
            assert!(!second.is_finished());
            drop(first);
            second.join().expect("no panic").expect("its turn");
        });
    }
}
