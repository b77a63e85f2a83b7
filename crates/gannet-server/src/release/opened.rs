//! Content that was opened and checked: one description for all threads, from which each worker
//! makes its [`Release`](super::Release).

use std::sync::Arc;

use gannet_archive::Archive;
use gannet_io::driver::{File, Meta, Root};
use gannet_io::memory::Memory;

use super::directory::kept_names::KeptNames;
use super::directory::{DirectoryOptions, Room};
use super::files::OpenArchive;
use super::rules::SiteRules;
use crate::config::{ContentOptions, UnknownHost};
use crate::exchange::own_fields::OwnFields;
use crate::limits::OPEN_FILES_MAX;

/// Everything that decides a response. Immutable: a change makes a new one.
#[derive(Clone)]
pub(crate) struct Opened {
    /// If the next description has the same content at the same index, a worker keeps its caches of
    /// it.
    pub(crate) contents: Vec<Arc<OpenedContent>>,
    pub(crate) unknown_host: UnknownHost,
    pub(crate) policy: Arc<Policy>,
    /// A worker's cache limits for one content.
    pub(crate) room: Room,
}

/// Fields of responses, independent of the content.
pub(crate) struct Policy {
    /// Fields configured by the operator for every response.
    pub(crate) fields: Vec<(String, String)>,
    /// The same for responses over TLS.
    pub(crate) secure_fields: Vec<(String, String)>,
    /// The `alt-svc` value that advertises HTTP/3 in responses over TLS by other versions.
    pub(crate) alt_svc: Option<String>,
    /// Fields of the server's own responses.
    pub(crate) own: OwnFields,
}

impl Policy {
    /// The fields under these options; `secure_fields` for responses over TLS, `alt_svc` for those
    /// not over HTTP/3.
    pub(crate) fn new(
        options: &ContentOptions,
        secure_fields: Vec<(String, String)>,
        alt_svc: Option<String>,
    ) -> Self {
        Self {
            fields: options.fields.clone(),
            secure_fields,
            alt_svc,
            own: OwnFields::new(options),
        }
    }
}

/// Content, and its hosts.
pub(crate) struct OpenedContent {
    /// Empty: every host that no other content names.
    pub(crate) hosts: Vec<String>,
    pub(crate) what: What,
}

/// Content that was opened and checked.
pub(crate) enum What {
    /// A directory, or one file of it.
    Directory(OpenedDirectory),
    /// An archive whose metadata is valid.
    Archive(OpenedArchive),
}

/// See [`What::Directory`].
#[derive(Clone)]
pub(crate) struct OpenedDirectory {
    /// A descriptor for each worker; empty while the path names no directory.
    pub(crate) roots: Vec<Root>,
    /// The site's own rules, as last read.
    pub(crate) rules: Option<Arc<SiteRules>>,
    pub(crate) options: Arc<DirectoryOptions>,
    /// Names that browsers were told to cache, by any worker.
    pub(crate) kept: Arc<KeptNames>,
}

/// See [`What::Archive`].
pub(crate) struct OpenedArchive {
    pub(crate) archive: Arc<Archive<Vec<u8>>>,
    /// For each worker a descriptor of the archive, or of its sealed copy with the mapping.
    pub(crate) files: Vec<(File, Option<Arc<Memory>>)>,
    pub(crate) len: u64,
    /// Metadata at opening and the state shared by workers, unless it was copied.
    pub(crate) live: Option<(Meta, Option<Arc<OpenArchive>>)>,
    /// Its hosts with their names and rules.
    pub(crate) hosts: Vec<ArchiveHost>,
    /// Answer paths that name nothing with the front page.
    pub(crate) spa: bool,
}

/// Index of a host in an archive, its names, and its rules.
pub(crate) type ArchiveHost = (u16, Vec<String>, Option<Arc<SiteRules>>);

impl Opened {
    /// One content for every host, for one worker with all the room.
    pub(crate) fn one(what: What, options: &ContentOptions) -> Self {
        let hosts = Vec::new();
        Self {
            contents: vec![Arc::new(OpenedContent { hosts, what })],
            unknown_host: UnknownHost::Default,
            policy: Arc::new(Policy::new(options, options.fields.clone(), None)),
            room: Room {
                memory: options.cache_memory,
                descriptors: OPEN_FILES_MAX,
            },
        }
    }
}

impl OpenedContent {
    /// Bytes of it copied into memory for as long as it is served.
    pub(crate) fn copied_len(&self) -> u64 {
        match &self.what {
            What::Archive(archive) if archive.live.is_none() => archive.len,
            What::Archive(_) | What::Directory(_) => 0,
        }
    }
}
