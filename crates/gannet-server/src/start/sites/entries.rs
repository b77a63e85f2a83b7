//! A folder of hosts and its entries on disk.

use std::io;
use std::path::Path;
use std::sync::Arc;

use gannet_content::rules::memory::Replaced;
use gannet_io::driver::Root;
use gannet_io::named_file;
use gannet_store::Store;

use crate::coder::Coder;
use crate::config::{Content, Hosted, Many};
use crate::release::on_demand::HostTable;
use crate::release::opened::{CheckedContent, OpenedContent};
use crate::start::follow;
use crate::start::open::{Followed, OpenError, Opening};
use crate::start::releases::{self, Surroundings};
use crate::start::sandbox::Readable;
use crate::watch::lookout::Stamp;

/// Questions to the disk. Each of these may take as long as a file system likes.
pub(crate) trait Entries: Send + Sync {
    /// Differs when an entry has come or gone; `None` if the folder is gone.
    fn stamp(&self) -> Option<Stamp>;

    /// Finds the entries.
    ///
    /// # Errors
    /// The folder cannot be read.
    fn find(&self) -> io::Result<HostTable>;

    /// Opens the site of a host.
    ///
    /// # Errors
    /// See [`OpenError`].
    fn open(&self, host: &str, entry: &Content) -> Result<OpenedEntry, OpenError>;

    /// Whether what was opened is still what is at its path.
    fn is_there(&self, content: &Content) -> bool;
}

/// What was opened.
pub(crate) struct OpenedEntry {
    /// What kind of entry it is.
    pub(crate) content: Content,
    pub(crate) what: CheckedContent,
    /// Makes what follows it, once it has a place.
    pub(crate) follow: Box<dyn FnOnce(usize, Arc<OpenedContent>) -> Box<dyn Follow>>,
}

/// Follows the changes of one open site.
pub(crate) trait Follow: Send {
    /// Looks for changes; an operator may have asked for that.
    fn look(&mut self, is_asked: bool);
}

impl Follow for follow::Follower {
    fn look(&mut self, is_asked: bool) {
        Self::look(self, is_asked);
    }
}

impl Follow for releases::ReleaseFollower {
    fn look(&mut self, is_asked: bool) {
        Self::look(self, is_asked);
    }
}

/// The entries of a folder on disk.
pub(super) struct OnDisk {
    pub(super) many: Many,
    pub(super) surroundings: Surroundings,
    pub(super) coder: Arc<Coder>,
    pub(super) readable: Option<Readable>,
}

impl Entries for OnDisk {
    fn stamp(&self) -> Option<Stamp> {
        Stamp::of(&self.many.folder)
    }

    fn find(&self) -> io::Result<HostTable> {
        (self.many.find)(&self.many.folder).map(|found| table(&found))
    }

    fn open(&self, host: &str, entry: &Content) -> Result<OpenedEntry, OpenError> {
        let opening = Opening {
            options: &self.surroundings.options,
            workers: self.surroundings.workers,
            room: &self.surroundings.room,
            coder: Some(&self.coder),
            host: Some(host),
            replaced: Replaced::default(),
        };
        inside(&self.many, entry)?;
        let content = real(entry.clone());
        let (what, followed) = opening.open(&content)?;
        let (name, host) = (content.clone().into_path(), host.to_owned());
        let surroundings = self.surroundings.clone();
        let readable = self.readable.clone();
        let follow = move |place, current| -> Box<dyn Follow> {
            match followed {
                Followed::Directory(source) => {
                    let published = surroundings.published;
                    let follower = follow::Follower::new(source, place, published);
                    Box::new(follower.within(readable))
                }
                Followed::Releases(origin) => {
                    let source = releases::ArchiveOrigin {
                        place,
                        name,
                        origin,
                        host: Some(host),
                    };
                    Box::new(releases::ReleaseFollower::new(
                        source,
                        current,
                        surroundings,
                    ))
                }
            }
        };
        Ok(OpenedEntry {
            content,
            what,
            follow: Box::new(follow),
        })
    }

    fn is_there(&self, content: &Content) -> bool {
        inside(&self.many, content).is_ok() && real_of(content) == *content
    }
}

/// Checks that an entry is in the folder, or where its links may lead: a link that leads elsewhere is not
/// served, nor looked at, as it may lead to a file system that does not answer.
///
/// # Errors
/// It is not, or not accessible.
pub(super) fn inside(many: &Many, content: &Content) -> Result<(), OpenError> {
    let what = match content {
        Content::HostFolder(_) => "directory",
        _ => "site",
    };
    let path = content.clone().into_path();
    let name = path.file_name().unwrap_or_default();
    let root = Root::open_with(&many.folder, &many.outside);
    let found = root.and_then(|root| named_file::metadata_below(&root, Path::new(name)));
    found
        .map(drop)
        .map_err(|error| OpenError::Io(what, path, error))
}

pub(super) fn table(found: &[Hosted]) -> HostTable {
    let mut table = HostTable::default();
    for Hosted { hosts, content, .. } in found {
        for host in hosts {
            table.insert(host.as_bytes().into(), content.clone());
        }
    }
    table
}

/// What an entry is: a folder may be a store.
pub(super) fn real(content: Content) -> Content {
    match content {
        Content::HostFolder(path) if Store::is_store(&path) => Content::Store(path),
        content => content,
    }
}

/// What is at the path of an open site now.
fn real_of(content: &Content) -> Content {
    match content {
        Content::Store(path) => real(Content::HostFolder(path.clone())),
        content => real(content.clone()),
    }
}
