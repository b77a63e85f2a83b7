//! Content that was opened and checked: one description for all threads, from which each worker
//! makes its [`Release`](super::Release).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use gannet_archive::Archive;
use gannet_content::rules::memory::Replaced;
use gannet_content::rules::pattern::Scheme;
use gannet_io::driver::{File, Meta, Root};
use gannet_io::memory::Memory;

use super::directory::copies::CopiesElsewhere;
use super::directory::kept_names::KeptNames;
use super::directory::{DirectoryOptions, LongCopies};
use super::files::OpenArchive;
use super::partial::PartialRelease;
use super::room::Room;
use super::rules::SiteRules;
use crate::bounds::limits::OPEN_FILES_MAX;
use crate::config::{ContentOptions, UnknownHost};
use crate::observe::board::OverdueSince;
use crate::passwords::file::PasswordFile;
use crate::release::archive_room::MemoryReservation;
use crate::release::on_demand::OnDemandHosts;
use crate::release::own_fields::OwnFields;

/// Everything that decides a response. Immutable: a change makes a new one.
#[derive(Clone)]
pub(crate) struct Opened {
    /// If the next description has the same current content at the same index, a worker keeps its
    /// caches of it.
    pub(crate) contents: BTreeMap<usize, Generations>,
    /// Hosts whose sites are opened at the first request.
    pub(crate) on_demand: Option<OnDemandHosts>,
    /// Of sites that were opened at a request: whether another one has come since this was last cleared.
    pub(crate) uses: BTreeMap<usize, Arc<AtomicBool>>,
    pub(crate) unknown_host: UnknownHost,
    /// The domain below which releases answer by themselves.
    pub(crate) previews: Option<String>,
    pub(crate) policy: Arc<Policy>,
    /// The operator's users, who alone may have some paths of all sites.
    pub(crate) passwords: Option<Arc<PasswordFile>>,
    /// A worker's cache limits, for all contents together.
    pub(crate) room: Room,
    /// Copies of longer files of live directories, for all workers.
    pub(crate) long_copies: Arc<LongCopies>,
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
    /// Responses say how long they waited.
    pub(crate) server_timing: bool,
}

impl Policy {
    /// The fields under these options; `secure_fields` for responses over TLS, `alt_svc` for those
    /// not over HTTP/3; `late` as in [`OwnFields`].
    pub(crate) fn new(
        options: &ContentOptions,
        secure_fields: Vec<(String, String)>,
        alt_svc: Option<String>,
        late: Arc<OverdueSince>,
    ) -> Self {
        Self {
            fields: options.fields.clone(),
            secure_fields,
            alt_svc,
            own: OwnFields::new(options, late),
            server_timing: options.server_timing,
        }
    }

    /// The operator's fields for responses to requests sent by this scheme.
    pub(crate) fn fields_of(&self, scheme: Scheme) -> Vec<(&str, &[u8])> {
        let fields = match scheme {
            Scheme::Https => &self.secure_fields,
            Scheme::Http => &self.fields,
        };
        let fields = fields.iter();
        fields
            .map(|(name, value)| (name.as_str(), value.as_bytes()))
            .collect()
    }
}

/// A content, and its other releases that answer for their immutable assets: pages that browsers
/// have loaded refer to them, or will once another node has sent such a page.
#[derive(Clone)]
pub(crate) struct Generations {
    /// Answers requests.
    pub(crate) current: Arc<OpenedContent>,
    /// Answer, in this order, where [`current`](Self::current) has nothing: the staged release,
    /// then those kept, newest first. At most [`OTHER_RELEASES_MAX`](crate::bounds::limits::OTHER_RELEASES_MAX).
    pub(crate) others: Vec<Arc<OpenedArchive>>,
    /// All of these releases, to answer by themselves below [`Opened::previews`].
    pub(crate) previews: Vec<Preview>,
}

/// A release that answers by itself.
#[derive(Clone)]
pub(crate) struct Preview {
    /// The name of the release in a store.
    pub(crate) id: String,
    pub(crate) archive: Arc<OpenedArchive>,
}

impl Generations {
    /// Bytes of them copied into memory.
    pub(crate) fn copied_len(&self) -> u64 {
        let others = self.others.iter().map(|it| it.copied_len());
        self.current.copied_len() + others.sum::<u64>()
    }

    /// Content without other releases.
    pub(crate) fn only(current: OpenedContent) -> Self {
        Self {
            current: Arc::new(current),
            others: Vec::new(),
            previews: Vec::new(),
        }
    }
}

/// Content, and its hosts.
pub(crate) struct OpenedContent {
    /// Empty: every host that no other content names.
    pub(crate) hosts: Vec<String>,
    pub(crate) what: CheckedContent,
}

/// Content that was opened and checked.
pub(crate) enum CheckedContent {
    /// A directory, or one file of it.
    Directory(OpenedDirectory),
    /// An archive whose metadata is valid.
    Archive(Arc<OpenedArchive>),
}

/// See [`CheckedContent::Directory`].
#[derive(Clone)]
pub(crate) struct OpenedDirectory {
    /// A descriptor for each worker; empty while the path names no directory.
    pub(crate) roots: Vec<Root>,
    /// Other directories that were or will be there, for names in frameworks' folders that the
    /// current one does not have: the staged one, then earlier ones, newest first. At most
    /// [`OTHER_RELEASES_MAX`](crate::bounds::limits::OTHER_RELEASES_MAX).
    pub(crate) others: Vec<Root>,
    /// Its sidecars, if they are not beside its files.
    pub(crate) copies: Option<CopiesElsewhere>,
    /// The site's own rules, as last read.
    pub(crate) rules: Option<Arc<SiteRules>>,
    pub(crate) options: Arc<DirectoryOptions>,
    /// Names that browsers may cache, of all workers.
    pub(crate) kept: Arc<KeptNames>,
}

/// See [`CheckedContent::Archive`].
pub(crate) struct OpenedArchive {
    pub(crate) archive: Arc<Archive<Vec<u8>>>,
    /// For each worker a descriptor of the archive, or of its sealed copy with the mapping.
    pub(crate) files: Vec<(File, Option<Arc<Memory>>)>,
    /// Bytes of the archive, without what follows it in the file.
    pub(crate) len: u64,
    /// Whether `files` are sealed copies, which cannot change.
    pub(crate) is_copied: bool,
    /// The room that the copies have in a budget, as long as they are used.
    pub(crate) room: Option<Arc<MemoryReservation>>,
    /// Metadata of the file at opening.
    pub(crate) meta: Meta,
    /// The file itself, shared by the workers; `None` in the simulator.
    pub(crate) origin: Option<Arc<OpenArchive>>,
    /// What is known of the file, if only a part of it is here.
    pub(crate) partial: Option<Arc<PartialRelease>>,
    /// Its hosts with their names and rules.
    pub(crate) hosts: Vec<ArchiveHost>,
    /// Answer paths that name nothing with the front page.
    pub(crate) spa: bool,
    /// Some file may be another form of a file.
    pub(crate) has_forms: bool,
    /// Answers for immutable assets while another release was current.
    pub(crate) kept_answers: Arc<AtomicU64>,
}

/// Index of a host in an archive, its names, and its rules.
pub(crate) type ArchiveHost = (u16, Vec<String>, Option<Arc<SiteRules>>);

impl Opened {
    /// Whether some path of some site is for users alone.
    pub(crate) fn has_passwords(&self) -> bool {
        let has_users = |rules: &Option<Arc<SiteRules>>| {
            rules
                .as_deref()
                .is_some_and(|rules| rules.users().is_some())
        };
        let mut contents = self.contents.values().map(|it| &it.current.what);
        self.passwords.is_some()
            || contents.any(|what| match what {
                CheckedContent::Directory(directory) => has_users(&directory.rules),
                CheckedContent::Archive(archive) => {
                    archive.hosts.iter().any(|(_, _, it)| has_users(it))
                }
            })
    }

    /// Bytes of archives copied into memory.
    pub(crate) fn copied_len(&self) -> u64 {
        self.contents.values().map(Generations::copied_len).sum()
    }

    /// One content for every host, for workers that have all the room each.
    pub(crate) fn one(what: CheckedContent, options: &ContentOptions) -> Self {
        let hosts = Vec::new();
        Self {
            contents: BTreeMap::from([(0, Generations::only(OpenedContent { hosts, what }))]),
            ..Self::none(options)
        }
    }

    /// No content yet.
    pub(crate) fn none(options: &ContentOptions) -> Self {
        Self {
            contents: BTreeMap::new(),
            on_demand: None,
            uses: BTreeMap::new(),
            unknown_host: UnknownHost::Default,
            previews: options.previews.clone(),
            policy: Arc::new(Policy::new(
                options,
                options.fields.clone(),
                None,
                Arc::default(),
            )),
            passwords: None,
            room: Room {
                memory: options.cache_memory(),
                descriptors: OPEN_FILES_MAX,
            },
            long_copies: Arc::new(LongCopies::new(1)),
        }
    }
}

impl OpenedArchive {
    /// Bytes of it copied into memory for as long as it is served.
    fn copied_len(&self) -> u64 {
        if self.is_copied { self.len } else { 0 }
    }

    /// What the rules of its hosts, which share a room, hold of the memory for those of all sites.
    pub(crate) fn rules_memory(&self) -> Replaced {
        let mut rules = self.hosts.iter().filter_map(|(.., rules)| rules.as_ref());
        let room = rules.find_map(|rules| rules.memory());
        room.map_or_else(Replaced::default, |room| room.replaced())
    }

    /// The first 16 hexadecimal digits of its build id, for people.
    pub(crate) fn short_id(&self) -> String {
        let id = self.archive.superblock().build_id();
        id[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether a worker still uses its copy.
    pub(crate) fn is_copy_used(self: &Arc<Self>) -> bool {
        let of_copy = |(_, memory): &(_, Option<Arc<Memory>>)| {
            memory.as_ref().is_some_and(|it| Arc::strong_count(it) > 1)
        };
        Arc::strong_count(self) > 1 || self.files.iter().any(of_copy)
    }

    /// Whether a worker still uses any memory of it.
    pub(crate) fn is_used(self: &Arc<Self>) -> bool {
        // What is known of a part has the archive, too, and responses have that.
        let own = 1 + usize::from(self.partial.is_some());
        let is_viewed = |it: &Arc<PartialRelease>| Arc::strong_count(it) > 1;
        self.is_copy_used()
            || self.partial.as_ref().is_some_and(is_viewed)
            || Arc::strong_count(&self.archive) > own
    }

    /// The same archive, with one host's rules, for previews.
    pub(crate) fn for_preview(&self) -> Self {
        let rules = self
            .hosts
            .first()
            .and_then(|(_, _, rules)| rules.as_deref());
        let rules = rules.cloned().unwrap_or_default().for_preview();
        let number = self.hosts.first().map_or(0, |(number, ..)| *number);
        Self {
            archive: Arc::clone(&self.archive),
            files: self.files.clone(),
            room: self.room.clone(),
            origin: self.origin.clone(),
            partial: self.partial.clone(),
            hosts: vec![(number, Vec::new(), Some(Arc::new(rules)))],
            kept_answers: Arc::default(),
            ..*self
        }
    }

    /// The same archive without its copy in memory, read from its file through one descriptor for all
    /// workers: for the time when it is kept beside the current release. `None` if the file has
    /// been written to since, or there is no descriptor left.
    pub(crate) fn without_copy(&self) -> Option<Self> {
        let origin = self.origin.as_ref()?;
        let file = origin.file.try_clone().ok()?;
        let now = Meta::of(&file).ok()?;
        if (now.len, now.mtime_ns) != (self.meta.len, self.meta.mtime_ns) {
            return None;
        }
        let file = File::from(file);
        let files = self.files.iter().map(|_| (file.clone(), None)).collect();
        Some(Self {
            files,
            is_copied: false,
            room: None,
            archive: Arc::clone(&self.archive),
            origin: Some(Arc::clone(origin)),
            partial: None,
            hosts: self.hosts.clone(),
            kept_answers: Arc::clone(&self.kept_answers),
            ..*self
        })
    }
}

impl OpenedContent {
    /// Bytes of it copied into memory for as long as it is served.
    pub(crate) fn copied_len(&self) -> u64 {
        match &self.what {
            CheckedContent::Archive(archive) => archive.copied_len(),
            CheckedContent::Directory(_) => 0,
        }
    }
}
