//! What is to be served, opened and checked: one description for all threads, of which each worker
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

/// Everything that decides an answer. It never changes: another one takes its place.
#[derive(Clone)]
pub(crate) struct Opened {
    /// A worker keeps what it has remembered of a content that is the same, at the same place, in
    /// the next description.
    pub(crate) contents: Vec<Arc<OpenedContent>>,
    pub(crate) unknown_host: UnknownHost,
    pub(crate) policy: Arc<Policy>,
    /// What a worker may hold to remember one content.
    pub(crate) room: Room,
}

/// Fields that answers have whatever is served.
pub(crate) struct Policy {
    /// What the operator configures for every answer.
    pub(crate) fields: Vec<(String, String)>,
    /// The same for answers over TLS.
    pub(crate) secure_fields: Vec<(String, String)>,
    /// Where HTTP/3 is, for answers over TLS by the other versions.
    pub(crate) alt_svc: Option<String>,
    /// Those of the server's own answers.
    pub(crate) own: OwnFields,
}

impl Policy {
    /// The fields under these options; `secure_fields` for answers over TLS, `alt_svc` for those that
    /// do not come by HTTP/3.
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

/// Content, and the hosts that it is for.
pub(crate) struct OpenedContent {
    /// None for every host that no other content names.
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
    /// A descriptor for each worker; none while nothing is at the directory's path.
    pub(crate) roots: Vec<Root>,
    /// The site's own rules, as they were last read.
    pub(crate) rules: Option<Arc<SiteRules>>,
    pub(crate) options: Arc<DirectoryOptions>,
    /// What browsers were told to keep, by all workers.
    pub(crate) kept: Arc<KeptNames>,
}

/// See [`What::Archive`].
pub(crate) struct OpenedArchive {
    pub(crate) archive: Arc<Archive<Vec<u8>>>,
    /// For each worker a descriptor of the archive, or of the sealed copy of it, which is mapped.
    pub(crate) files: Vec<(File, Option<Arc<Memory>>)>,
    pub(crate) len: u64,
    /// What it was when it was opened, unless it was copied; with what all workers know of it.
    pub(crate) live: Option<(Meta, Option<Arc<OpenArchive>>)>,
    /// Its hosts with their names, and the rules of each.
    pub(crate) hosts: Vec<ArchiveHost>,
    /// Paths that name nothing are answered with the front page.
    pub(crate) spa: bool,
}

/// The number of a host in an archive, its names, and its rules.
pub(crate) type ArchiveHost = (u16, Vec<String>, Option<Arc<SiteRules>>);

impl Opened {
    /// One content for every host, for one worker that has all the room.
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
    /// Bytes of it that are copied into memory, for as long as it is served.
    pub(crate) fn copied_len(&self) -> u64 {
        match &self.what {
            What::Archive(archive) if archive.live.is_none() => archive.len,
            What::Archive(_) | What::Directory(_) => 0,
        }
    }
}
