//! A stage for orderers: a folder, an ACME server, and a clock.

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use gannet_fleet::acme::{Event, OrderSettings, Orderer, Renewals};
use gannet_testkit::Folder;
use serde_json::Value;

use crate::ca::Ca;

pub(crate) const HOUR: i64 = 3600;

/// A folder, a server, and a clock that a test moves.
pub(crate) struct Stage {
    pub(crate) ca: Ca,
    pub(crate) folder: Folder,
    pub(crate) settings: OrderSettings,
    pub(crate) now: Cell<i64>,
    /// Thumbprints that were told in a round.
    pub(crate) thumbprints: RefCell<Vec<String>>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let ca = Ca::start();
        let settings = OrderSettings {
            server: ca.url("one"),
            ..OrderSettings::default()
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = since.expect("after 1970").as_secs().cast_signed();
        Self {
            ca,
            folder: Folder::new(),
            settings,
            now: Cell::new(now),
            thumbprints: RefCell::default(),
        }
    }

    /// As a new process does.
    pub(crate) fn open(&self) -> Orderer {
        self.open_for(&["a.test"])
    }

    /// The same for these hosts.
    pub(crate) fn open_for(&self, hosts: &[&str]) -> Orderer {
        let hosts: Vec<_> = hosts.iter().map(|&host| host.to_owned()).collect();
        let settings = self.settings.clone();
        Orderer::open(self.folder.path(), &hosts, settings, |_| {
            panic!("nobody else")
        })
        .expect("opened")
    }

    /// One round; returns what was told.
    pub(crate) fn round(&self, orderer: &mut Orderer) -> (Renewals, Vec<String>) {
        let mut told = Vec::new();
        let renewals = orderer.round(&|| self.now.get(), &mut |event| {
            told.push(match event {
                Event::Ordered { host, .. } => format!("ordered {host}"),
                Event::Failed { error, .. } => format!("{error}; {:?}", error.help()),
                Event::Replaced { .. } => "replaced".to_owned(),
                Event::Account { thumbprint } => {
                    return self.thumbprints.borrow_mut().push(thumbprint);
                }
                Event::Warned(error) => format!("warning: {error}"),
            });
        });
        (renewals, told)
    }

    /// The thumbprint of the account, which is made if there is none.
    pub(crate) fn thumbprint(&self, orderer: &mut Orderer) -> String {
        orderer.thumbprint(self.now.get()).expect("an account")
    }

    /// The server refuses so many more requests of a kind, with a problem of this type.
    pub(crate) fn refuse(&self, count: usize, request: &'static str, problem: &'static str) {
        let refused = std::iter::repeat_n((request, problem), count);
        self.ca.state().refused.extend(refused);
    }

    pub(crate) fn pass(&self, seconds: i64) {
        self.now.set(self.now.get() + seconds);
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join("certificates/a.test.pem")
    }

    /// The files of the folder whose names begin so.
    pub(crate) fn files(&self, prefix: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path()).expect("readable");
        let paths = entries.map(|entry| entry.expect("readable").path());
        let is_it = |path: &PathBuf| {
            let name = path.file_name().expect("a name");
            name.to_string_lossy().starts_with(prefix)
        };
        paths.filter(is_it).collect()
    }

    /// The file of the account, and its content.
    pub(crate) fn account(&self) -> (PathBuf, Value) {
        let files = self.files("account-");
        let is_lost = |path: &PathBuf| path.extension().is_some_and(|it| it == "lost");
        let path = files.into_iter().find(|path| !is_lost(path));
        let path = path.expect("an account");
        let text = fs::read(&path).expect("readable");
        (path, serde_json::from_slice(&text).expect("JSON"))
    }
}

#[track_caller]
pub(crate) fn says(told: &[String], expect: &[&str]) {
    let is_said = told.len() == expect.len()
        && told
            .iter()
            .zip(expect)
            .all(|(line, part)| line.contains(part));
    assert!(is_said, "{told:#?} and not {expect:#?}");
}
