//! Threads that check files periodically, and the criterion for acting on a change.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use gannet_io::driver::Root;
use gannet_io::named_file;

use crate::bounds::limits::LOOKS_PAUSE_MAX;

/// A thread that runs a check periodically.
///
/// Dropping it ends the thread when its current check returns, without waiting: a check of a file
/// system that hangs may never return, and holds nothing that others need.
pub(crate) struct Lookout {
    /// Each with what is to be dropped when the check is done.
    asks: Sender<Sender<()>>,
}

impl Lookout {
    /// Starts to call `look` at this interval, or less often where it takes more than one part in
    /// `part` of the time; 0: never less often. Its argument says whether [`ask`](Self::ask)
    /// requested the call.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        name: &str,
        every: Duration,
        part: u32,
        mut look: impl FnMut(bool) + Send + 'static,
    ) -> io::Result<Self> {
        let (asks, inbox) = mpsc::channel();
        let watch = move || {
            let mut pause = every;
            loop {
                let asked = match inbox.recv_timeout(pause) {
                    Ok(done) => Some(done),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                let begun = Instant::now();
                look(asked.is_some());
                drop(asked);
                // Cap the back-off after a slow check.
                pause = every.max((begun.elapsed() * part).min(LOOKS_PAUSE_MAX));
            }
        };
        std::thread::Builder::new().name(name.into()).spawn(watch)?;
        Ok(Self { asks })
    }

    /// Requests a check now; `done` is dropped after it.
    pub(crate) fn ask(&self, done: Sender<()>) {
        // The thread lives as long as this value.
        let _ = self.asks.send(done);
    }
}

/// Detects that something has changed and settled again: two consecutive checks agree. Files are
/// rarely written atomically, and related files never at the same moment.
pub(crate) struct Quiet<T> {
    /// The state last acted upon.
    known: T,
    /// The state found by the last check.
    last: T,
}

impl<T: Clone + PartialEq> Quiet<T> {
    pub(crate) fn new(known: T) -> Self {
        Self {
            last: known.clone(),
            known,
        }
    }

    /// Whether to act upon the current state.
    pub(crate) fn is_due(&mut self, now: &T) -> bool {
        let is_quiet = *now == self.last;
        self.last.clone_from(now);
        is_quiet && *now != self.known
    }

    /// The state last acted upon.
    pub(crate) fn known(&self) -> &T {
        &self.known
    }

    /// Records that this state was acted upon.
    pub(crate) fn acted(&mut self, known: T) {
        self.known = known;
    }
}

/// Metadata that change whenever a file does.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of the file at the path, if any; symbolic links are followed.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|meta| Self::of_meta(&meta))
    }

    /// The same for a path below a directory. All links that lead out of it have the same stamp.
    pub(crate) fn below(root: &Root, path: &Path) -> Option<Self> {
        match named_file::metadata_below(root, path) {
            Ok(meta) => Some(Self::of_meta(&meta)),
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => Some(Self::default()),
            Err(_) => None,
        }
    }

    /// The stamp of something that is not on a disk, and has changed so many times.
    pub(crate) fn of_changes(count: u64) -> Self {
        Self {
            inode: count,
            ..Self::default()
        }
    }

    fn of_meta(meta: &Metadata) -> Self {
        Self {
            device: meta.dev(),
            inode: meta.ino(),
            len: meta.len(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_when_it_is_quiet() {
        let mut quiet = Quiet::new(1);
        assert!(!quiet.is_due(&1), "nothing has changed");
        assert!(!quiet.is_due(&2), "it may still be changing");
        assert!(!quiet.is_due(&3), "it still changes");
        assert!(quiet.is_due(&3));
        quiet.acted(3);
        assert!(!quiet.is_due(&3), "a change is due once");
        assert!(!quiet.is_due(&4));
        assert!(!quiet.is_due(&3), "it was undone");
    }

    #[test]
    fn nobody_waits_for_a_look_that_hangs() {
        let (hang, hung) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        let look = move |_| {
            begun.send(()).expect("the test waits");
            // Until the test ends.
            let _ = hung.recv();
        };
        let lookout = Lookout::start("test", Duration::ZERO, 0, look).expect("a thread");
        begins.recv().expect("the check begins");
        drop(lookout);
        drop(hang);
    }
}
