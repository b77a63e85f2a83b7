//! A folder of hosts whose entries a test makes, opens, looks at and closes, in its own time.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gannet_io::driver::{Driver, Nanos, Root};

use super::{Driven, DrivenClients, DrivenTls, SILENT, directory, worker};
use crate::config::{Content, ContentOptions, Limits};
use crate::ground::inbox::Remote;
use crate::passwords::checker::Checker;
use crate::release::directory::DirectoryOptions;
use crate::release::on_demand::{Ask, HostTable, OnDemandHosts};
use crate::release::opened::Opened;
use crate::start::open::OpenError;
use crate::start::published::Published;
use crate::start::sites::entries::{Entries, Follow, OpenedEntry};
use crate::start::sites::set::{Beginning, OpenTask, Sites};
use crate::watch::lookout::Stamp;
use crate::worker::Worker;

/// A site in a driven folder of hosts.
#[derive(Clone)]
pub enum DrivenSite {
    /// A live directory.
    Directory(Root),
    /// Something that cannot be served.
    Invalid,
}

/// The folder: hosts with the names of their entries, which have the sites.
#[derive(Default)]
struct DrivenFolder {
    table: HostTable,
    sites: HashMap<PathBuf, DrivenSite>,
    changes: u64,
}

/// The requests to it.
struct DrivenState {
    folder: Arc<Mutex<DrivenFolder>>,
    options: ContentOptions,
}

/// What never changes needs no follower.
struct Still;

impl Follow for Still {
    fn look(&mut self, _: bool) {}
}

fn lock(folder: &Mutex<DrivenFolder>) -> MutexGuard<'_, DrivenFolder> {
    folder.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Entries for DrivenState {
    fn stamp(&self) -> Option<Stamp> {
        Some(Stamp::of_changes(lock(&self.folder).changes))
    }

    fn find(&self) -> io::Result<HostTable> {
        Ok(lock(&self.folder).table.clone())
    }

    fn open(&self, _: &str, entry: &Content) -> Result<OpenedEntry, OpenError> {
        let path = entry.clone().into_path();
        let site = lock(&self.folder).sites.get(&path).cloned();
        let options = || DirectoryOptions::new(&self.options, None, None);
        match site {
            Some(DrivenSite::Directory(root)) => Ok(OpenedEntry {
                content: entry.clone(),
                what: directory(root, None, None, options().expect("the types are valid")),
                follow: Box::new(|_, _| Box::new(Still)),
            }),
            Some(DrivenSite::Invalid) => Err(OpenError::Kind(path)),
            None => {
                let error = io::ErrorKind::NotFound.into();
                Err(OpenError::Io("directory", path, error))
            }
        }
    }

    fn is_there(&self, content: &Content) -> bool {
        let path = content.clone().into_path();
        lock(&self.folder).sites.contains_key(&path)
    }
}

/// A site that is being opened.
pub struct DrivenOpening(OpenTask);

/// Does what the threads of a folder of hosts do, for one driven worker.
pub struct DrivenSites {
    sites: Sites,
    asked: Receiver<Ask>,
    folder: Arc<Mutex<DrivenFolder>>,
    /// When the simulation began.
    begun: Instant,
}

impl DrivenSites {
    /// A worker of an empty folder, `open_max` of whose sites may be open.
    pub fn start<D: Driver>(
        mut driver: D,
        tls: Option<DrivenTls>,
        (options, limits): (&ContentOptions, Limits),
        open_max: usize,
    ) -> (Self, Driven<D>) {
        let table = Arc::new(HostTable::default());
        let (on_demand, asked) = OnDemandHosts::new(Arc::clone(&table));
        let opened = Arc::new(Opened {
            on_demand: Some(on_demand),
            ..Opened::none(options)
        });
        let (messages, inbox) = mpsc::channel();
        let remote = Remote::new(messages, driver.waker(Worker::<D>::wake_token()));
        let published = Published::new(Arc::clone(&opened), vec![remote.clone()]);
        let published = Arc::new(published);
        let (checker, password_jobs) = Checker::new();
        let worker = worker(
            driver,
            (inbox, checker),
            (0, &opened),
            (options, limits),
            (tls, &DrivenClients::default()),
        );
        let folder = Arc::new(Mutex::new(DrivenFolder::default()));
        let entries = DrivenState {
            folder: Arc::clone(&folder),
            options: options.clone(),
        };
        let sites = Sites::new(
            Box::new(entries),
            Arc::clone(&published),
            (vec![remote.clone()], &SILENT),
            Beginning {
                table,
                next_place: 0,
                on_demand: None,
                open_max,
                // This thread is that of the worker as well.
                patience: Duration::ZERO,
            },
        );
        let driven = Driven {
            worker,
            options: options.clone(),
            published,
            remote,
            coder: Arc::default(),
            password_jobs,
        };
        let sites = Self {
            sites,
            asked,
            folder,
            begun: Instant::now(),
        };
        (sites, driven)
    }

    fn at(&self, now: Nanos) -> Instant {
        self.begun + Duration::from_nanos(now.0)
    }

    /// Makes an entry with a new name that of a host, instead of any before.
    pub fn put(&self, host: &str, name: &str, site: DrivenSite) {
        let mut folder = lock(&self.folder);
        let entry = Content::HostFolder(name.into());
        let before = folder.table.insert(host.as_bytes().into(), entry);
        if let Some(before) = before {
            folder.sites.remove(&before.into_path());
        }
        folder.sites.insert(name.into(), site);
        folder.changes += 1;
    }

    /// Removes the entry of a host.
    pub fn remove(&self, host: &str) {
        let mut folder = lock(&self.folder);
        if let Some(before) = folder.table.remove(host.as_bytes()) {
            folder.sites.remove(&before.into_path());
            folder.changes += 1;
        }
    }

    /// Takes the worker's questions, and answers those that have waited for too long.
    pub fn answer(&self, now: Nanos) {
        let now = self.at(now);
        for ask in self.asked.try_iter() {
            self.sites.ask(&ask, now);
        }
        self.sites.give_up(now);
        while self.sites.hires(now) {}
    }

    /// Begins to open a site, as a thread does; `None` if there is nothing to do.
    pub fn begin(&self, now: Nanos) -> Option<DrivenOpening> {
        self.sites.begin(self.at(now)).map(DrivenOpening)
    }

    /// A site is open now, or cannot be opened.
    pub fn end(&self, opening: DrivenOpening, now: Nanos) {
        let opened = self.sites.open(&opening.0);
        self.sites.end(opening.0, opened, self.at(now));
    }

    /// The same of a site that is closed for another one before the worker can answer from it.
    pub fn end_closed(&self, opening: &DrivenOpening) {
        self.sites.answer_waiting(&opening.0, Ok(()));
    }

    /// Looks for changes, and closes sites.
    pub fn look(&self, now: Nanos) {
        self.sites.read_folder(false);
        for (host, place) in self.sites.to_look_at() {
            self.sites.look_at(&host, place, false);
        }
        self.sites.close(self.at(now));
    }
}
