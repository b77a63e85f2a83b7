//! Threads that look at files now and then, and what makes a change one to act upon.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use gannet_io::driver::Root;
use gannet_io::named_file;

use crate::limits::{LOOKS_PART, LOOKS_PAUSE_MAX};

/// A thread that looks at something now and then.
///
/// Dropping it ends the thread when its current look returns. Nobody waits for that: a look at a
/// file system that hangs may never return, and holds nothing that anybody needs.
pub(crate) struct Lookout {
    asks: Sender<()>,
}

impl Lookout {
    /// Starts to look every so often. `look` learns whether somebody has asked for it.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(
        name: &str,
        every: Duration,
        mut look: impl FnMut(bool) + Send + 'static,
    ) -> io::Result<Self> {
        let (asks, inbox) = mpsc::channel();
        let watch = move || {
            let mut pause = every;
            loop {
                let is_asked = match inbox.recv_timeout(pause) {
                    Ok(()) => true,
                    Err(RecvTimeoutError::Timeout) => false,
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                let begun = Instant::now();
                look(is_asked);
                // Cap the back-off after a slow check.
                pause = every.max((begun.elapsed() * LOOKS_PART).min(LOOKS_PAUSE_MAX));
            }
        };
        std::thread::Builder::new().name(name.into()).spawn(watch)?;
        Ok(Self { asks })
    }

    /// Has it look now.
    pub(crate) fn ask(&self) {
        // The thread lives as long as this value.
        let _ = self.asks.send(());
    }
}

/// Tells when something has changed and is quiet again: two looks in a row have seen the same.
/// Files are rarely written at one stroke, and those that belong together never at the same moment.
pub(crate) struct Quiet<T> {
    /// What was acted upon.
    known: T,
    /// What the last look has seen.
    last: T,
}

impl<T: Clone + PartialEq> Quiet<T> {
    pub(crate) fn new(known: T) -> Self {
        Self {
            last: known.clone(),
            known,
        }
    }

    /// Whether what is seen now is to be acted upon.
    pub(crate) fn is_due(&mut self, now: &T) -> bool {
        let is_quiet = *now == self.last;
        self.last.clone_from(now);
        is_quiet && *now != self.known
    }

    /// What was acted upon.
    pub(crate) fn known(&self) -> &T {
        &self.known
    }

    /// This was acted upon.
    pub(crate) fn acted(&mut self, known: T) {
        self.known = known;
    }
}

/// What changes when a file does.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// Of what is at the path now, if anything is; symbolic links are followed.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().map(|meta| Self::of_meta(&meta))
    }

    /// The same of a path below a directory. Links that lead out of it are all alike.
    pub(crate) fn below(root: &Root, path: &Path) -> Option<Self> {
        match named_file::metadata_below(root, path) {
            Ok(meta) => Some(Self::of_meta(&meta)),
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => Some(Self::default()),
            Err(_) => None,
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
        assert!(!quiet.is_due(&2), "it may go on");
        assert!(!quiet.is_due(&3), "it does");
        assert!(quiet.is_due(&3));
        quiet.acted(3);
        assert!(!quiet.is_due(&3), "once");
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
        let lookout = Lookout::start("test", Duration::ZERO, look).expect("a thread");
        begins.recv().expect("it looks");
        drop(lookout);
        drop(hang);
    }
}
