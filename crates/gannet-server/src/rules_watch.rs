//! A live directory's rules files: read again when they have changed, for all workers at once.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gannet_content::rules::Compat;

use crate::limits::{RULES_CHECK_MS, RULES_SEARCH_PART};
use crate::running::Remote;
use crate::site::rules::{SiteRules, redirects_files};
use crate::worker::Message;

/// The rules files of a live directory, as they were when they were read.
#[derive(Clone, Debug)]
pub(crate) struct RulesSource {
    root: PathBuf,
    compat: Compat,
    names: Vec<String>,
    seen: Vec<Option<Version>>,
}

impl RulesSource {
    /// The files of `root` now. Read them after this: then no change is missed.
    pub(crate) fn new(root: &Path, compat: Compat) -> Self {
        let names = names(root, compat);
        Self {
            root: root.to_owned(),
            compat,
            seen: look(root, &names),
            names,
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
            names: mut known,
            mut seen,
        } = source;
        let watch = move || {
            let pause = Duration::from_millis(RULES_CHECK_MS);
            let mut next_search = Instant::now();
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                let begun = Instant::now();
                let has_new_names = begun >= next_search && {
                    let now = names(&root, compat);
                    next_search = Instant::now() + begun.elapsed() * RULES_SEARCH_PART;
                    std::mem::replace(&mut known, now) != known
                };
                let now = look(&root, &known);
                if now != seen || has_new_names {
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

/// The rules files that there may be, relative to the directory.
fn names(root: &Path, compat: Compat) -> Vec<String> {
    // Too many folders are told by who reads the rules.
    let mut names = redirects_files(root, compat).unwrap_or_default();
    names.push("_headers".into());
    names
}

fn look(root: &Path, names: &[String]) -> Vec<Option<Version>> {
    let nanoseconds = |seconds, rest| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    let version = |name: &String| {
        let meta = fs::metadata(root.join(name)).ok()?;
        let modified = nanoseconds(meta.mtime(), meta.mtime_nsec());
        let changed = nanoseconds(meta.ctime(), meta.ctime_nsec());
        Some((meta.dev(), meta.ino(), meta.len(), modified, changed))
    };
    names.iter().map(version).collect()
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
