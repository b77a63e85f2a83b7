//! The lock of a store: one publisher at a time on a machine.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use gannet_io::named_file;
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::error::{self, StoreError};

/// Holds the lock. The system releases it when the process ends, in whatever way.
pub(crate) struct Lock(File);

impl Lock {
    /// Takes the lock of a store, and says in its file who has it.
    pub(crate) fn take(folder: &Path, holder: &str) -> Result<Self, StoreError> {
        Self::take_or(folder, holder, || thread::sleep(LOOK_PAUSE))
    }

    /// The same. One that has just taken it has not written its name yet, and one that ends has removed it: until there
    /// is a name, or the lock is free, this waits.
    fn take_or(folder: &Path, holder: &str, mut wait: impl FnMut()) -> Result<Self, StoreError> {
        let mut looks = 0;
        let path = folder.join(LOCK);
        let refuse = |error: io::Error| StoreError::io(error::LOCK, &path)(error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        // A link would lead the text to another file.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let mut file = loop {
            let file = options.open(&path).map_err(refuse)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    let by = named_file::read_text(&path, LOCK_LEN_MAX);
                    let is_unnamed = by.as_ref().is_ok_and(|by| by.trim().is_empty());
                    if is_unnamed && looks < LOOKS_MAX {
                        looks += 1;
                        wait();
                        continue;
                    }
                    return Err(StoreError::Busy {
                        store: folder.to_path_buf(),
                        by: by.unwrap_or_default().trim().to_owned(),
                    });
                }
                Err(error) => return Err(refuse(error.into())),
            }
            // One that failed to begin a store removes its lock.
            let held = file.metadata().map_err(refuse)?;
            if fs::metadata(&path).is_ok_and(|it| (it.dev(), it.ino()) == (held.dev(), held.ino()))
            {
                break file;
            }
        };
        // Only a message: that it may be old or cut off does no harm.
        let written = file
            .set_len(0)
            .and_then(|()| file.seek(SeekFrom::Start(0)))
            .and_then(|_| writeln!(file, "{holder}"));
        written.map_err(refuse)?;
        Ok(Self(file))
    }
}

/// A process that this one is just starting has the descriptor as well until it becomes another
/// program: closing it here would leave the lock taken. The next to take it is not to be taken for this one.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.set_len(0);
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Who is at work.
pub(crate) const LOCK: &str = ".lock";
/// Bytes read of the lock's file.
const LOCK_LEN_MAX: u64 = 256;
/// Looks for the name of who holds it, and the pause after each: together a second.
const LOOKS_MAX: u32 = 50;
const LOOK_PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copied_descriptor_does_not_hold_it() {
        let folder = std::env::temp_dir().join(format!("gannet-lock-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let lock = Lock::take(&folder, "ann").unwrap();
        let copied = lock.0.try_clone().unwrap();
        assert!(matches!(
            Lock::take(&folder, "bob"),
            Err(StoreError::Busy { by, .. }) if by == "ann"
        ));
        drop(lock);
        assert_eq!(fs::read_to_string(folder.join(LOCK)).unwrap(), "");
        Lock::take(&folder, "bob").unwrap();
        drop(copied);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn one_that_begins_is_waited_for_and_named_and_one_that_ends_makes_room() {
        let folder = std::env::temp_dir().join(format!("gannet-held-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join(LOCK);
        let other = File::create(&path).unwrap();
        flock(&other, FlockOperation::NonBlockingLockExclusive).unwrap();
        let mut waits = 0;
        let taken = Lock::take_or(&folder, "bob", || {
            waits += 1;
            if waits == 3 {
                fs::write(&path, "ann@build\n").unwrap();
            }
        });
        assert!(matches!(taken, Err(StoreError::Busy { by, .. }) if by == "ann@build"));
        assert_eq!(waits, 3);
        // Another program has locked it.
        other.set_len(0).unwrap();
        waits = 0;
        let taken = Lock::take_or(&folder, "bob", || waits += 1);
        assert!(matches!(taken, Err(StoreError::Busy { by, .. }) if by.is_empty()));
        assert_eq!(waits, LOOKS_MAX);
        let end = || flock(&other, FlockOperation::Unlock).unwrap();
        Lock::take_or(&folder, "bob", end).unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
