//! A live directory's rules files: read again when they have changed, for all workers at once.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use gannet_content::rules::Compat;

use crate::limits::RULES_CHECK_MS;
use crate::running::Remote;
use crate::site::rules::{SiteRules, redirects_names};
use crate::worker::Message;

/// The rules files of a live directory, as they were when they were read.
#[derive(Clone, Debug)]
pub(crate) struct RulesSource {
    root: PathBuf,
    compat: Compat,
    seen: Vec<Option<Version>>,
}

impl RulesSource {
    /// The files of `root` now. Read them after this: then no change is missed.
    pub(crate) fn new(root: &Path, compat: Compat) -> Self {
        Self {
            root: root.to_owned(),
            compat,
            seen: look(root, compat),
        }
    }
}

/// Looks at the files now and then; ends when dropped.
pub(crate) struct RulesWatch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RulesWatch {
    /// Begins to watch the files of the site of this number, and tells the workers what has changed.
    pub(crate) fn start(site: u32, source: RulesSource, workers: Vec<Remote>) -> Self {
        let (stop, stopped) = mpsc::channel();
        let RulesSource {
            root,
            compat,
            mut seen,
        } = source;
        let watch = move || {
            let pause = Duration::from_millis(RULES_CHECK_MS);
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let now = look(&root, compat);
                if now != seen {
                    seen = now;
                    reload(site, &root, compat, &workers);
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("gannet-rules".into())
            .spawn(watch);
        Self {
            stop: Some(stop),
            // Without a thread to spare the rules stay as they are.
            thread: thread.ok(),
        }
    }
}

impl Drop for RulesWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

/// What tells one version of a file from another.
type Version = (u64, u64, u64, i128, i128);

fn look(root: &Path, compat: Compat) -> Vec<Option<Version>> {
    let nanoseconds = |seconds, rest| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    redirects_names(compat)
        .chain(["_headers"])
        .map(|name| {
            let meta = fs::metadata(root.join(name)).ok()?;
            let modified = nanoseconds(meta.mtime(), meta.mtime_nsec());
            let changed = nanoseconds(meta.ctime(), meta.ctime_nsec());
            Some((meta.dev(), meta.ino(), meta.len(), modified, changed))
        })
        .collect()
}

fn reload(site: u32, root: &Path, compat: Compat, workers: &[Remote]) {
    match SiteRules::of_directory(root, compat) {
        Ok(rules) => {
            let rules = rules.map(Arc::new);
            for worker in workers {
                worker.tell(Message::Rules(site, rules.clone()));
            }
            eprintln!("gannet: the rules of '{}' were read again", root.display());
        }
        Err(error) => eprintln!(
            "gannet: cannot use the new rules of '{}', the old ones hold:\n  {error}",
            root.display()
        ),
    }
}
