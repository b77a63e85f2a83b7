//! A live directory: what a worker caches of it, and how long that stays fresh.
//!
//! A request path that was answered a moment ago is answered from memory. After
//! [`BELIEVED_MS`](crate::limits::BELIEVED_MS) the metadata of its file is asked for and compared
//! with what is remembered (identity, length, times), so a change is seen within a second on every
//! file system, without a watch per directory. Now and then
//! ([`CONFIRMED_MS`](crate::limits::CONFIRMED_MS)) the whole path is looked up again.

mod cache;
mod coded;
pub(crate) mod fill;
pub(crate) mod kept_names;
pub(crate) mod listings;

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use gannet_content::answer::{self, Resource};
use gannet_content::directory::lookup::LookupOptions;
use gannet_content::mime::{Types, TypesError};
use gannet_content::plan::Representation;
use gannet_content::policy::cache::Lifetime;
use gannet_content::policy::defaults::DefaultFields;
use gannet_content::routing::Routing;
use gannet_content::rules::headers::FieldChanges;
use gannet_content::validators::{self, LiveFile};
use gannet_http::h2::hpack::{self, ready::ReadyHpack};
use gannet_http::semantics::coding::{Coding, CodingSet};
use gannet_http::semantics::ready_fields::ReadyFields;
use gannet_http::semantics::response::ReadyBlock;
use gannet_http::semantics::status::Status;
use gannet_io::driver::{Driver, Meta, Nanos, OpenedFile, Root};

use self::cache::Cache;
pub(crate) use self::cache::Room;
use self::coded::CodedAlone;
use self::kept_names::KeptNames;
use super::bodies::Bodies;
use super::opened::OpenedDirectory;
use super::rules::SiteRules;
use super::{Selected, ServedFile, Source};
use crate::config::ContentOptions;
use crate::exchange::body::Body;
use crate::limits::{RECENT_S, SETTLED_S, SMALL_FILE_MAX, SNAPSHOT_MAX};

/// A live directory, as one worker sees it: that which is at a path at some time, with its rules.
pub(crate) struct DirectorySite {
    /// None while nothing is at the directory's path.
    root: Option<Root>,
    /// The site's own rules.
    rules: Option<Arc<SiteRules>>,
    pub(crate) options: Arc<DirectoryOptions>,
    /// What browsers were told to keep, by all workers.
    kept: Arc<KeptNames>,
    /// What is remembered; nothing any more once it is retired.
    cache: RefCell<Option<Cache>>,
    /// Content of files that are there in a coding alone: the last one that was decoded.
    bodies: Bodies,
}

/// How a directory is served.
pub(crate) struct DirectoryOptions {
    pub(crate) lookup: LookupOptions,
    pub(crate) routing: Arc<Routing>,
    pub(crate) defaults: DefaultFields,
    pub(crate) types: Types,
    pub(crate) sidecars: bool,
    /// `NAME.gz` answers for a `NAME` that is not there.
    pub(crate) compressed_only: bool,
    /// Files up to this length are read whole before they are sent.
    pub(crate) read_max: u64,
    /// Only this file of the directory is served, at `/` and at its name.
    pub(crate) single: Option<Vec<u8>>,
}

/// A file's representations, remembered.
pub(crate) struct Cached {
    content_type: String,
    last_modified: Option<i64>,
    /// In order of length; the first acceptable one is sent.
    variants: Vec<CachedVariant>,
    /// The fields are what the site's rules make of them for the one path that this answers.
    is_ruled: bool,
    /// A file of it had changed just before it was looked at: see [`is_settled`].
    is_brief: bool,
    /// A file of it had changed not long before: its bytes are read again at a lookup after this time.
    read_again_at: Option<Nanos>,
    /// It is the content of a path, and stands in for no other.
    is_own: bool,
}

/// What a file answers.
pub(crate) struct Role<'a> {
    /// Its own path, not others that have nothing.
    pub(crate) is_own: bool,
    /// With the status of an error.
    pub(crate) is_error: bool,
    /// Its path below the root, which it may have in a coding alone.
    pub(crate) name: &'a [u8],
    /// What the site's rules make of its fields, unless that is settled at each request.
    pub(crate) changes: Option<&'a FieldChanges>,
}

/// What the disk said of one content coding of a file: the file itself, or a sidecar.
pub(crate) struct Draft {
    /// Its path below the root.
    pub(crate) path: Vec<u8>,
    pub(crate) coding: Coding,
    /// Of the file, also where the content is what that is decoded to.
    pub(crate) meta: Meta,
    /// Length of the content in bytes.
    pub(crate) len: u64,
    /// The content, once a request has needed it.
    pub(crate) body: OnceCell<Body>,
    /// What it is decoded from before it is sent.
    pub(crate) coded: Option<Rc<CodedAlone>>,
}

/// The same, ready to be sent.
struct CachedVariant {
    draft: Draft,
    tag: String,
    ready: ReadyFields,
    /// The same fields for HTTP/2.
    hpack: Option<ReadyHpack>,
    /// Its SHA-256, once somebody has asked for it.
    sha256: OnceCell<[u8; 32]>,
    /// Bytes that requests have taken of it before there was a copy.
    taken: Cell<u64>,
    /// The file that they are being sent from.
    live: RefCell<Weak<ServedFile>>,
}

/// Whether a file has been as it is for so long that bytes read now can be kept. The times of a file
/// are set when a write begins, and no finer than a clock ticks: what is read while somebody writes
/// may be half old and half new, and nothing tells afterwards. (git calls such files racy.)
///
/// `unix` (seconds) is the time when the file was found to be open, and not an earlier one. A file of
/// the future is not settled: the clock of its file system goes ahead, or ours was set back.
fn is_settled(meta: &Meta, unix: i64) -> bool {
    let changed = meta.ctime_ns.div_euclid(1_000_000_000);
    i128::from(unix) - changed > i128::from(SETTLED_S)
}

/// Whether a file may be as it is because of a write that is still under way: its times, which are set
/// when a write begins, would never tell. Its bytes are read again when the path is looked up again.
fn is_recent(meta: &Meta, unix: i64) -> bool {
    let changed = meta.ctime_ns.div_euclid(1_000_000_000);
    i128::from(unix) - changed <= i128::from(RECENT_S)
}

impl Cached {
    /// Makes a file's variants ready to be sent. `None` if its fields cannot be rendered.
    fn new(
        content_type: String,
        mut drafts: Vec<Draft>,
        unix: i64,
        site: &DirectorySite,
        role: &Role<'_>,
    ) -> Option<Self> {
        let is_original = |draft: &&Draft| draft.coding == Coding::Identity;
        let original = drafts.iter().find(is_original).or(drafts.first())?;
        let last_modified = validators::last_modified(original.meta.mtime_ns, unix);
        let has_choice = drafts.len() > 1;
        let lifetime = match role {
            Role { is_own: true, .. } => site.lifetime(role.name, original, &content_type),
            Role { is_error: true, .. } => Lifetime::NoCache,
            Role { .. } => Lifetime::Revalidate,
        };
        // What would have to be decoded is for those who accept nothing else.
        drafts.sort_by_key(|draft| (draft.coded.is_some(), draft.len));
        let fields = site.options.defaults.of_content(None);
        let fields: Vec<(&str, &[u8])> = fields.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        let mut variants = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let mut tag = validators::live_tag(&LiveFile {
                mtime_ns: draft.meta.mtime_ns,
                ctime_ns: draft.meta.ctime_ns,
                len: draft.len,
                identity: draft.meta.identity,
            });
            if draft.coded.is_some() {
                // The coded representation of the same file has one, too.
                tag.insert_str(tag.len() - 1, "-i");
            }
            let ready = answer::ready_fields(&Resource {
                content_type: &content_type,
                coding: draft.coding,
                len: draft.len,
                entity_tag: &tag,
                last_modified,
                vary: has_choice,
                cache_control: Some(lifetime.cache_control()),
                fields: &fields,
            });
            let mut ready = ready.ok()?;
            if let Some(changes) = role.changes {
                ready = changes.apply_to_block(ready.as_block()).ok()?;
            }
            variants.push(CachedVariant {
                draft,
                tag,
                hpack: hpack::ready::render(ready.as_block()),
                ready,
                sha256: OnceCell::new(),
                taken: Cell::new(0),
                live: RefCell::default(),
            });
        }
        Some(Self {
            content_type,
            last_modified,
            variants,
            is_ruled: role.changes.is_some(),
            is_own: role.is_own,
            is_brief: false,
            read_again_at: None,
        })
    }

    /// The bytes of a coding, if its file is still this one.
    fn body(&self, coding: Coding, meta: &Meta) -> Option<Body> {
        self.variant(coding, meta)?.draft.body.get().cloned()
    }

    fn variant(&self, coding: Coding, meta: &Meta) -> Option<&CachedVariant> {
        let same = |v: &&CachedVariant| v.draft.coding == coding && v.draft.meta == *meta;
        self.variants.iter().find(same)
    }

    fn variant_in(&self, coding: Coding) -> Option<&CachedVariant> {
        self.variants.iter().find(|v| v.draft.coding == coding)
    }

    /// The content of a coding was read.
    pub(crate) fn set_body(&self, coding: Coding, body: Body) {
        if let Some(variant) = self.variant_in(coding) {
            // Whoever was first has read the same version.
            let _ = variant.draft.body.set(body);
        }
    }

    /// Whether a coding is to be copied, for a request that takes so many bytes of it: once requests
    /// have taken as many as there are. Each counts as [`SMALL_FILE_MAX`] at least: without a copy,
    /// looking it up costs as much.
    pub(crate) fn is_worth_copying(&self, coding: Coding, needed: u64) -> bool {
        self.variant_in(coding).is_some_and(|variant| {
            let taken = variant.taken.get() + needed.max(SMALL_FILE_MAX);
            variant.taken.set(taken.min(variant.draft.len));
            taken >= variant.draft.len
        })
    }

    /// The file of a coding, to be sent as it is: one descriptor for all who are sent it at the same
    /// time, and none when nobody is.
    pub(crate) fn live(&self, coding: Coding, opened: OpenedFile) -> Rc<ServedFile> {
        let OpenedFile { file, meta } = opened;
        let opened = || Rc::new(ServedFile::live(file, meta));
        let Some(variant) = self.variant(coding, &meta) else {
            return opened();
        };
        let before = variant.live.borrow().upgrade();
        before.filter(|file| !file.is_over()).unwrap_or_else(|| {
            let file = opened();
            *variant.live.borrow_mut() = Rc::downgrade(&file);
            file
        })
    }

    /// Whether it would be made of exactly these.
    fn is_made_of(&self, drafts: &[Draft]) -> bool {
        self.variants.len() == drafts.len()
            && drafts
                .iter()
                .all(|draft| self.variant(draft.coding, &draft.meta).is_some())
    }

    /// The smallest acceptable variant; without one the file as it is (RFC 9110 section 12.5.3
    /// lets a server disregard the field), which may be coded and too long to be decoded.
    pub(crate) fn select(&self, codings: CodingSet, status: Status) -> Selected<'_> {
        let variant = self
            .variants
            .iter()
            .find(|v| codings.contains(v.draft.coding))
            .or_else(|| {
                self.variants
                    .iter()
                    .find(|v| v.draft.coding == Coding::Identity)
            })
            .or_else(|| self.variants.first())
            .expect("a cached file has a variant");
        Selected {
            status,
            block: ReadyBlock {
                hpack: variant.hpack.as_ref().map(ReadyHpack::as_block),
                ..variant.ready.as_block()
            },
            representation: Representation {
                len: variant.draft.len,
                coding: variant.draft.coding,
                entity_tag: Some(variant.tag.as_bytes()),
                last_modified: self.last_modified,
            },
            content_type: self.content_type.as_bytes(),
            source: match (variant.draft.body.get(), &variant.draft.coded) {
                (Some(body), _) => body.as_source(),
                (None, Some(coded)) => Source::Unloaded(coded.body(variant.draft.len)),
                (None, None) => Source::Unread,
            },
            sha256: (variant.draft.len <= SMALL_FILE_MAX).then_some(&variant.sha256),
            is_ruled: self.is_ruled,
            is_own: self.is_own,
        }
    }

    /// Whether it is sent from a file that may change.
    fn is_live(&self) -> bool {
        self.files().any(|file| !file.is_constant())
    }

    /// Bytes of memory that remembering it costs, roughly.
    fn weight(&self) -> u64 {
        let bodies = self.variants.iter().map(|v| match v.draft.body.get() {
            Some(body) if !body.is_live() => body.len(),
            _ => 0,
        });
        bodies.sum::<u64>() + 1_024
    }

    /// Descriptors that it keeps open.
    fn descriptors(&self) -> usize {
        self.files().count()
    }

    /// Files that it is sent from.
    fn files(&self) -> impl Iterator<Item = &Rc<ServedFile>> {
        self.variants
            .iter()
            .filter_map(|v| match v.draft.body.get() {
                Some(Body::File(file, _)) => Some(file),
                _ => v.draft.coded.as_ref().map(|coded| &coded.file),
            })
    }
}

impl DirectoryOptions {
    /// Those of a directory, or of a `single` file of it.
    ///
    /// # Errors
    /// When a configured content type cannot be one.
    pub(crate) fn new(
        options: &ContentOptions,
        single: Option<Vec<u8>>,
    ) -> Result<Self, TypesError> {
        let lookup = LookupOptions {
            clean_urls: options.clean_urls && single.is_none(),
            spa: options.spa && single.is_none(),
            listing: options.listing && single.is_none(),
            // A single file was named by the operator, whatever it is called.
            dotfiles: options.dotfiles || single.is_some(),
        };
        let mut routing = options.routing.clone();
        if single.is_some() {
            routing.rules = None;
        }
        let types = options.types.iter();
        Ok(Self {
            lookup,
            routing: Arc::new(routing),
            defaults: options.defaults.clone(),
            types: Types::new(types.map(|(suffix, t)| (suffix.as_str(), t.as_str())))?,
            sidecars: options.sidecars,
            compressed_only: options.compressed_only && single.is_none(),
            read_max: options.snapshot_max.clamp(SMALL_FILE_MAX, SNAPSHOT_MAX),
            single,
        })
    }
}

impl DirectorySite {
    /// The directory as a worker has it, which remembers files for which there is `room`.
    pub(crate) fn new(opened: &OpenedDirectory, worker: usize, room: Room) -> Self {
        let root = opened.roots.get(worker).cloned();
        Self {
            rules: opened.rules.clone().filter(|_| root.is_some()),
            root,
            options: Arc::clone(&opened.options),
            kept: Arc::clone(&opened.kept),
            cache: RefCell::new(Some(Cache::new(room))),
            bodies: Bodies::new(0),
        }
    }

    /// What is remembered of it is forgotten.
    pub(crate) fn forget(&self) {
        if let Some(cache) = &mut *self.cache.borrow_mut() {
            cache.clear();
        }
    }

    /// Content that was decoded is forgotten.
    pub(crate) fn forget_bodies(&self) {
        self.bodies.forget();
    }

    /// The same, and nothing is remembered any more: another release has taken its place.
    pub(crate) fn retire(&self) {
        *self.cache.borrow_mut() = None;
        self.bodies.retire();
    }

    /// Bytes that may be remembered of it; 0 once it is retired.
    pub(crate) fn memory(&self) -> u64 {
        self.cache.borrow().as_ref().map_or(0, Cache::memory)
    }

    /// The directory, if any is at its path.
    pub(crate) fn root(&self) -> Option<&Root> {
        self.root.as_ref()
    }

    /// What no other site of this worker has while this one is there.
    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The content of a file that is there in a coding alone, to be decoded when it is needed.
    /// `None` if no more of them can be told apart.
    pub(crate) fn coded_alone(
        &self,
        coded: &OpenedFile,
        coding: Coding,
        unix: i64,
    ) -> Option<CodedAlone> {
        let meta = coded.meta;
        // What has just changed may be of several versions.
        let version = is_settled(&meta, unix).then_some(meta);
        let file = Rc::new(ServedFile::live(coded.file.clone(), meta));
        CodedAlone::new(file, coding, (meta.len, version), &self.bodies)
    }

    /// How long the content of a name may be kept that this file has.
    fn lifetime(&self, name: &[u8], file: &Draft, content_type: &str) -> Lifetime {
        self.kept.lifetime(name, content_type, &file.meta)
    }

    /// The site's own rules.
    pub(crate) fn rules(&self) -> Option<&SiteRules> {
        self.rules.as_deref()
    }

    /// The cached entry for a path, if fresh. Files sent from disk are checked on every request: a
    /// response for an older version could not be completed.
    pub(crate) fn lookup<D: Driver>(
        &self,
        path: &[u8],
        now: Nanos,
        driver: &D,
    ) -> Option<(Rc<Cached>, Status)> {
        let root = self.root.as_ref()?;
        let is_same = |cached: &Cached| {
            cached
                .variants
                .iter()
                .all(|v| driver.peek(root, &v.draft.path) == Some(v.draft.meta))
        };
        let found = self.cache.borrow_mut().as_mut()?.fresh(path, now, is_same);
        found.filter(|(cached, _)| cached.files().all(|file| file.is_unchanged(driver)))
    }

    /// Closes files that are kept open for later requests, the oldest first. False if none is.
    pub(crate) fn drop_descriptors(&self) -> bool {
        let mut cache = self.cache.borrow_mut();
        cache.as_mut().is_some_and(Cache::drop_descriptors)
    }

    /// The cached entry for a path, fresh or stale.
    pub(crate) fn previous(&self, path: &[u8]) -> Option<Rc<Cached>> {
        let found = self.cache.borrow().as_ref()?.any(path);
        found.filter(|cached| !cached.files().any(|file| file.is_over()))
    }

    /// Remembers what a request path came to, unless another release has taken its place. True if
    /// that keeps a file open that somebody may delete.
    pub(crate) fn remember(
        &self,
        path: &[u8],
        cached: Rc<Cached>,
        status: Status,
        now: Nanos,
    ) -> bool {
        let is_live = cached.is_live();
        match &mut *self.cache.borrow_mut() {
            Some(cache) => cache.insert(path, cached, status, now),
            None => return false,
        }
        is_live
    }

    /// Lets go of files that may change and that nobody has asked for in a while: deleted ones take
    /// room on the disk as long as they are open. True if some are left.
    pub(crate) fn close_idle(&self, now: Nanos) -> bool {
        let mut cache = self.cache.borrow_mut();
        cache.as_mut().is_some_and(|cache| cache.close_idle(now))
    }
}
